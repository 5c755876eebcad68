"""scikit-learn's SVC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.problems import kernel_multilabel


def machine(**params: Any) -> Any:
    """The estimator itself."""
    from sklearn.svm import SVC

    return SVC(**params)


def fit_kernel(problem: kernel_multilabel.Problem, tol: float = 1e-3, shared: bool = False) -> dict[int, Any]:
    """One machine per label, on X or on a kernel matrix computed once; constant labels need none."""
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.svm import SVC

    X, Y = problem.X, problem.Y
    data = rbf_kernel(X, gamma=problem.gamma) if shared else X
    kernel = "precomputed" if shared else "rbf"
    varied = [l for l in range(Y.shape[1]) if 0 < Y[:, l].sum() < len(Y)]
    return {l: SVC(C=problem.C, kernel=kernel, tol=tol).fit(data, Y[:, l]) for l in varied}


def kernel_coefficients(
    problem: kernel_multilabel.Problem, models: dict[int, Any]
) -> tuple[np.ndarray, np.ndarray, float]:
    A, b = np.zeros(problem.Y.shape), np.zeros(problem.Y.shape[1])
    for l, model in models.items():
        A[model.support_, l], b[l] = model.dual_coef_[0], model.intercept_[0]
    return A, b, 0.0
