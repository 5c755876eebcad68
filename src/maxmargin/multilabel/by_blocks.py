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
from maxmargin.multilabel.many import ManyM3L, ManySolution
from maxmargin.multilabel.problem import used_columns

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
