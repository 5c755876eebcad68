"""Sparse kernel machines with one shared basis (Ganu, Shevade, Sundararajan 2013)."""

EQUATIONS: dict[str, str] = {
    "(3.7)": "basis_machine.BasisMachine._scores",
    "(3.9)": "loss_loops.SquaredMargins",
    "(3.10)": "problem.Position.objective",
    "(3.11)": "loss_loops.margins_expand",
    "(3.12)": "problem.candidate_steps",
    "(3.13)": "greedy.Greedy._join_best",
    "(3.14)": "greedy.Sweeps._step",
    "(3.15)": "loss_loops.StarCurvature",
    "(4.19)": "problem.BasisProblem.scores",
    "(4.22)": "loss_loops.SquaredHinges",
    "Algorithm 1": "greedy.Greedy",
    "Algorithm 2": "greedy.Greedy._grow",
    "Algorithm 3": "greedy.Sweeps",
    "Algorithm 4": "greedy.Greedy.epoch",
}
