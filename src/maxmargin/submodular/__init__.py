"""Submodular multi-label learning for the F-score (Petterson, Caetano 2011).

`EQUATIONS` maps each equation, algorithm and theorem of the paper to the function that computes it.
"""

EQUATIONS: dict[str, str] = {
    "(1)": "problem.SubmodularF1.losses",
    "(2)": "problem.best_sets",
    "(3)": "problem.SubmodularF1",
    "(4)": "inference_loops.exact_search",
    "(5)": "problem.worst_sets",
    "(6)": "problem.SubmodularF1.primal",
    "(7)": "problem.SubmodularF1.plane",
    "(8)": "inference_loops.augmented_score",
    "(10)": "inference_loops.increment",
    "(14)": "inference_loops.best_addition",
    "(15)": "inference_loops.fixed_point_batch",
    "Algorithm 1": "bundle.Bundle.epoch",
    "Algorithm 2": "inference_loops.fixed_point",
    "Algorithm 3": "inference_loops.best_addition",
    "Theorem 2": "inference_loops.fixed_point_batch",
}
