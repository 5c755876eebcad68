"""scikit-learn's LinearSVC: one-vs-rest, and Crammer and Singer's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.problems import multiclass, multilabel


def multilabel_weights(problem: multilabel.Problem, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """One machine per label."""
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    # With the squared loss and more samples than features "auto" is Newton's method on the primal.
    kind = {"loss": "squared_hinge", "dual": "auto"} if problem.squared else {"loss": "hinge"}
    base = LinearSVC(C=problem.C, tol=tol, random_state=0, max_iter=100_000, **kind)
    # int64: narrower indicators overflow inside scikit-learn's binarizer beyond 127 labels.
    model = OneVsRestClassifier(base).fit(problem.X, problem.Y.astype(np.int64))
    W = np.vstack([estimator.coef_ for estimator in model.estimators_])
    return W, np.hstack([estimator.intercept_ for estimator in model.estimators_])


def multiclass_weights(problem: multiclass.Problem, tol: float, verbose: bool = False) -> np.ndarray:
    """Crammer and Singer's machine, the same objective as ours; `verbose` prints its dual objective."""
    from sklearn.svm import LinearSVC

    model = LinearSVC(
        C=problem.C, multi_class="crammer_singer", fit_intercept=False, tol=tol, random_state=0,
        max_iter=100_000, verbose=verbose,
    )  # fmt: skip
    return model.fit(problem.X, problem.y).coef_


def one_vs_rest_weights(problem: multiclass.Problem, tol: float) -> np.ndarray:
    """Another objective, for information."""
    from sklearn.svm import LinearSVC

    model = LinearSVC(C=problem.C, loss="hinge", fit_intercept=False, tol=tol, random_state=0)
    return model.fit(problem.X, problem.y).coef_
