"""The null competitor: the cost of a race that computes nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.problems import kernel_multilabel, multiclass, multilabel


def multilabel_weights(problem: multilabel.Problem, tol: float) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((problem.Y.shape[1], problem.X.shape[1])), np.zeros(problem.Y.shape[1])


def multiclass_weights(problem: multiclass.Problem, tol: float) -> np.ndarray:
    return np.zeros((problem.y.max() + 1, problem.X.shape[1]))


def fit_kernel(problem: kernel_multilabel.Problem) -> None:
    pass


def kernel_coefficients(
    problem: kernel_multilabel.Problem, model: None
) -> tuple[np.ndarray, np.ndarray, float]:
    return np.zeros(problem.Y.shape), np.zeros(problem.Y.shape[1]), 0.0


def learn(X: Any, y: np.ndarray, n_classes: int) -> tuple[float, np.ndarray]:
    """Looks at every row and always answers class 0."""
    start = time.perf_counter()
    total = 0
    for i in range(len(y)):
        total += X.indptr[i + 1] - X.indptr[i]
    return time.perf_counter() - start, y != 0


def cut(scores: np.ndarray, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the sign of the unary scores: the cost of a batch without cuts."""
    return scores > 0
