"""Max-margin multi-label classification with a label prior (M3L).

Hariharan, Vishwanathan, Varma, "Efficient max-margin multi-label classification with applications
to zero-shot learning", Machine Learning 88, 2012.

`estimator` holds `MultiLabelSVC`, `problem` the mathematics and its scaling, `dca` and `smo` the
paper's solvers, `newton`, `sweeps` and `pairs` the default ones (few features, wide data, kernels), `choice`
the rows by which "auto" chooses among them, `many` and `by_blocks` labels by the ten thousand with their
sparse model, `*loops` what is compiled.
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
    "(30)": "smo_loops.partner",
    "(31)": "smo_loops.measure",
    "(32)": "smo_loops.measure",
    "(33)": "smo_loops.follow",
    "(35)": "smo_loops.carry",
    "(36)": "smo_loops.follow",
    "(37)": "dca_loops.visit",
    "(39)": "dca_loops.visit",
    "(40)": "dca_loops.random_pass",
    "(42)": "dca_loops.delayed_pass",
    "(43)": "dca_loops.delayed_pass",
    "(44)": "problem.coupled_reach",
    "(45)": "problem.coupled_reach",
    "(47)": "kernel_loops.pair_gain",
    "(56)": "smo_loops.partner",
    "(58)": "kernel_loops.single_step",
    "Algorithm 1": "smo.SMO",
    "Algorithm 2": "kernel_loops.pair_step",
}
