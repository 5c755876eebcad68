"""Max-margin multi-label classification with a label prior (M3L).

Hariharan, Vishwanathan, Varma, "Efficient max-margin multi-label classification with applications
to zero-shot learning", Machine Learning 88, 2012.

`estimator` holds `MultiLabelSVC`, `problem` the mathematics and its scaling, `paper_linear` and
`paper_kernel` the paper's solvers, `newton`, `sweeps` and `kernel_sweeps` the default ones (few features,
wide data, kernels), `label_blocks` the solver and the sparse model of tens of thousands of labels, `choice`
the table by which "auto" chooses among them, and `*loops` the compiled loops.
"""

# Where the equations and algorithms of the paper are, by their numbers there.
EQUATIONS = {
    "(5)": "problem.EntryCosts",
    "(6)": "problem.hinge_costs",
    "(12)": "problem.LinearM3L.evaluate",
    "(23)": "problem.LinearM3L.couple",
    "(25)": "problem.KernelM3L.certificate",
    "(26)": "kernel_loops.move",
    "(29)": "loops.measure",
    "(30)": "paper_kernel_loops.partner",
    "(31)": "paper_kernel_loops.measure",
    "(32)": "paper_kernel_loops.measure",
    "(33)": "paper_kernel_loops.follow",
    "(35)": "paper_kernel_loops.propagate",
    "(36)": "paper_kernel_loops.follow",
    "(37)": "paper_linear_loops.visit",
    "(39)": "paper_linear_loops.visit",
    "(40)": "paper_linear_loops.random_pass",
    "(42)": "paper_linear_loops.delayed_pass",
    "(43)": "paper_linear_loops.delayed_pass",
    "(44)": "problem.shrinking_bounds",
    "(45)": "problem.shrinking_bounds",
    "(47)": "kernel_loops.pair_gain",
    "(56)": "paper_kernel_loops.partner",
    "(58)": "kernel_loops.single_step",
    "Algorithm 1": "paper_kernel.SMO",
    "Algorithm 2": "kernel_loops.pair_step",
}
