"""`MultiLabelSVC` on many labels: the problem in sparse labels, the sparse model, and its scores.

A sparse `coef_` is CSC, so that the labels that a feature speaks for stand side by side: a sample is scored
by going through its features, in memory of one number per label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.rows import RowArrays, Rows, check_digits, readonly
from maxmargin.core.threads import run_threads
from maxmargin.multilabel import score_loops as loops
from maxmargin.multilabel.many import LabelBlocks, ManyM3L, ManySolution
from maxmargin.multilabel.narrow import LabelNewton
from maxmargin.multilabel.problem import used_columns
from maxmargin.multilabel.squared import SquaredNewton

# Samples that are scored at a time, if memory allows it.
SCORED, MIB = 256, 2**20


def side_totals(on: sp.csr_array, weight: np.ndarray) -> np.ndarray:
    """Sums of the weights of the negatives and positives of every label."""
    positive = on.T @ weight
    return np.vstack([weight.sum() - positive, positive])


def constant_labels(on: sp.csr_array, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which labels lack a side among the samples of positive weight, and which are ever on."""
    counts = on.T @ (weight > 0).astype(np.int64)
    return (counts == 0) | (counts == np.count_nonzero(weight)), counts > 0


def pose(X: Any, on: sp.csr_array, weight: np.ndarray, **costs: Any) -> ManyM3L:
    """The problem of the labels that are on.

    Sparse rows stand in the order of their lengths: a loop over one row after the other then ends when the
    processor expects it.
    """
    X, columns = used_columns(X)
    if sp.issparse(X):
        order = np.argsort(np.diff(X.indptr), kind="stable")
        X, on, weight = X[order], on[order], weight[order]
    problem = ManyM3L(Rows.of(X), on, weight, columns=columns, **costs)
    reach = math.sqrt(float(problem.squares.max(initial=problem.bias**2)))
    check_digits(reach, float(problem.weight.sum()) * float(problem.upper.max(initial=0.0)))
    return problem


def default(
    problem: ManyM3L, *, rng: np.random.RandomState, **options: Any
) -> LabelBlocks | LabelNewton | SquaredNewton:
    """Newton's method, of the loss, for few features; else ascent on the samples near a label.

    Newton's method comes to the rescue of labels that the ascent does not bring to their end.
    """

    def newton() -> LabelNewton | SquaredNewton:
        return SquaredNewton(problem, **options) if problem.squared else LabelNewton(problem, **options)

    few = few_features(problem, 500 if problem.squared else 300)
    if few or (problem.squared and cheap_squares(problem)):
        return newton()
    few = few_features(problem, 1200, filled=0.0, cells=2 * 10**7)
    rescue = newton if few or (problem.squared and sparse_few(problem, 2000)) else None
    return LabelBlocks(problem, rng=rng, rescue=rescue, **options)


def sparse_few(problem: ManyM3L, most: int) -> bool:
    """Whether rows are sparse, with at most so many features."""
    return not problem.rows.dense and problem.n_features <= most


def cheap_squares(problem: ManyM3L, most: float = 25.0) -> bool:
    """Whether Newton's method for the squared loss is the first choice for sparse rows: X'X is cheap.

    At 18 products for each entry of X (tmc2007-500) it takes a quarter of the time of the ascent or less, at
    61 (delicious) up to twice as long. Those of a triangular factor count a twentieth.
    """
    lengths, d = np.diff(problem.rows.indptr), problem.n_features + 1.0
    products = 0.5 * float(lengths @ (lengths + 1.0)) + d**3 / 60
    return sparse_few(problem, 500) and products <= most * max(problem.rows.data.size, 1)


def few_features(problem: ManyM3L, most: int, filled: float = 0.2, cells: int = 5 * 10**7) -> bool:
    """Whether Newton's method is the first choice: dense columns, not too many of them.

    Parameters
    ----------
    most : int
        Largest number of features.
    filled : float
        Least part of X that is not zero.
    cells : int
        Largest size of the dense copy of X.
    """
    n, d = problem.shape[0], problem.n_features
    return d <= most and filled * n * d <= problem.rows.data.size and n * d <= cells


def attributes(problem: ManyM3L, solution: ManySolution, n_features: int, *, dense: bool) -> dict[str, Any]:
    """Coefficients and intercepts, as they were certified.

    Coefficients are sparse, unless there is room for `dense` ones and half of them or more are not zero.
    """
    Z = solution.weights.tocsr()
    counts = np.zeros(n_features, Z.indptr.dtype)
    counts[slice(None) if problem.columns is None else problem.columns] = np.diff(Z.indptr[:-1])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(Z.indptr.dtype)
    # The last row is that of the bias; without it the others stay where they are.
    coef = sp.csr_array((Z.data[: indptr[-1]], Z.indices[: indptr[-1]], indptr), (n_features, Z.shape[1]))
    if dense and 2 * coef.nnz >= math.prod(coef.shape):
        coef = coef.toarray()
    return {"coef_": coef.T, "intercept_": problem.bias * Z[[-1]].toarray()[0]}


def pieces(n_samples: int, n_labels: int, memory_limit: float) -> Iterator[slice]:
    """Slices of samples whose scores take no more than `memory_limit` MiB."""
    size = int(np.clip(memory_limit * MIB // (8 * max(n_labels, 1)), 1, SCORED))
    return (slice(start, min(start + size, n_samples)) for start in range(0, n_samples, size))


def by_feature(coef: Any) -> RowArrays:
    """CSC weights as compiled loops take them: one row per feature."""
    return Rows.of(coef.T).flat


def scores(X: Any, coef: Any, intercept: np.ndarray) -> np.ndarray:
    """Scores of all labels, one row per sample."""
    answer = np.empty((X.shape[0], len(intercept)))
    loops.score_labels(Rows.of(X).flat, by_feature(coef), readonly(intercept), answer)
    return answer


def top(X: Any, coef: Any, intercept: np.ndarray, k: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """The k labels with the highest scores of every sample, best first, and these scores."""
    n = X.shape[0]
    labels, best = np.empty((n, k), np.int64), np.empty((n, k))
    rows, weights, bias = Rows.of(X).flat, by_feature(coef), readonly(intercept)

    def work(part: slice) -> None:
        loops.top_labels(rows, weights, bias, part.start, part.stop, labels, best)

    size = max(-(-n // (4 * n_threads)), 1)
    run_threads(work, [slice(a, min(a + size, n)) for a in range(0, n, size)], n_threads)
    return labels, best


def top_dense(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of scores that are there."""
    labels, best = np.empty((len(scores), k), np.int64), np.empty((len(scores), k))
    loops.top_scores(readonly(scores.astype(np.float64, copy=False)), labels, best)
    return labels, best
