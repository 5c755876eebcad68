"""Who races: one adapter per peer, ours, and a null competitor that does nothing.

An adapter takes a problem and a tolerance of its own kind and returns weights (labels x
features) and intercepts, so that everybody is judged by the same objective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from benchmarks.problems import Problem
from maxmargin import MultiLabelSVC

Weights = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Competitor:
    """A name, a way to fit, and tolerances to try from loose to tight until the gap is met."""

    name: str
    fit: Callable[[Problem, float], Weights]
    tolerances: Sequence[float]
    compile: Callable[[Problem, float], Any] | None = None

    def warm_up(self, problem: Problem, tol: float) -> None:
        """Whatever happens once per process, on a small problem."""
        (self.compile or self.fit)(problem, tol)


def _ours(dtype: Any = None, **options: Any) -> Callable[[Problem, float], Weights]:
    def fit(problem: Problem, tol: float) -> Weights:
        X = problem.X if dtype is None else problem.X.astype(dtype)
        model = MultiLabelSVC(C=problem.C, tol=tol, random_state=0, **options).fit(X, problem.Y)
        return model.coef_, model.intercept_

    return fit


def _linear_svc(problem: Problem, tol: float) -> Weights:
    base = LinearSVC(C=problem.C, loss="hinge", tol=tol, random_state=0, max_iter=100_000)
    # int64: narrower indicators overflow inside scikit-learn's binarizer beyond 127 labels.
    model = OneVsRestClassifier(base).fit(problem.X, problem.Y.astype(np.int64))
    W = np.vstack([estimator.coef_ for estimator in model.estimators_])
    return W, np.hstack([estimator.intercept_ for estimator in model.estimators_])


def _libmultilabel(problem: Problem, tol: float) -> Weights:
    from libmultilabel.linear import train_1vsrest

    X = sp.csr_matrix(problem.X, dtype=np.float64)
    options = f"-s 3 -c {problem.C} -e {tol} -B 1 -q"
    model = train_1vsrest(sp.csr_matrix(problem.Y), X, options=options, verbose=False)
    W = np.asarray(model.weights)
    return W[:-1].T, W[-1]


def _null(problem: Problem, tol: float) -> Weights:
    return np.zeros((problem.Y.shape[1], problem.X.shape[1])), np.zeros(problem.Y.shape[1])


PEER_TOLERANCES = (1.0, 0.3, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001, 1e-4)

LINEAR_SVC = Competitor("LinearSVC one-vs-rest", _linear_svc, PEER_TOLERANCES)
LIBMULTILABEL = Competitor("LibMultiLabel one-vs-rest", _libmultilabel, PEER_TOLERANCES)
NULL = Competitor("nothing", _null, (0.0,))


def ours(name: str = "MultiLabelSVC", **options: Any) -> Competitor:
    """MultiLabelSVC; its tolerance is the certified gap itself."""
    return Competitor(name, _ours(**options), (), _ours(**options, precision="single"))
