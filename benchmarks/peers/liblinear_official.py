"""liblinear-official: Crammer and Singer's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.problems import multiclass

NEEDS = ("liblinear",)


def multiclass_weights(problem: multiclass.Problem, tol: float, verbose: bool = False) -> np.ndarray:
    """Solver 4; `verbose` prints its dual objective."""
    from liblinear.liblinearutil import train

    model = train(problem.y, problem.X, f"-s 4 -c {problem.C} -e {tol} {'' if verbose else '-q'}")
    c = model.nr_class
    W = np.ctypeslib.as_array(model.w, (model.nr_feature * c,)).reshape(-1, c).T
    full = np.zeros((c, problem.X.shape[1]))
    full[:, : W.shape[1]] = W[np.argsort(model.get_labels())]
    return full
