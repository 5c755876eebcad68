"""LibMultiLabel, one-vs-rest on LIBLINEAR."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from benchmarks.problems import multilabel

NEEDS = ("libmultilabel",)


def multilabel_weights(problem: multilabel.Problem, tol: float) -> tuple[np.ndarray, np.ndarray]:
    from libmultilabel.linear import train_1vsrest

    X = sp.csr_matrix(problem.X, dtype=np.float64)
    options = f"-s 3 -c {problem.C} -e {tol} -B 1 -q"
    W = np.asarray(train_1vsrest(sp.csr_matrix(problem.Y), X, options=options, verbose=False).weights)
    return W[:-1].T, W[-1]
