"""The problems of the linear multi-label races: real data sets and data of RCV1's full shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from maxmargin import datasets


@dataclass(frozen=True)
class Problem:
    """Features, 0/1 labels (dense int8) and the objective's C."""

    name: str
    X: Any
    Y: np.ndarray
    C: float = 1.0

    def primal(self, W: np.ndarray, b: np.ndarray) -> float:
        """Sum over labels of LinearSVC's objective (intercept scaling one), in float64."""
        total = 0.5 * float(np.sum(np.square(W, dtype=np.float64)) + np.sum(np.square(b, dtype=np.float64)))
        for start in range(0, self.X.shape[0], 20_000):
            rows = slice(start, start + 20_000)
            scores = self.X[rows] @ W.T.astype(np.float64) + b
            signs = np.where(self.Y[rows] > 0, 1.0, -1.0)
            total += self.C * float(np.maximum(0, 1 - signs * scores).sum())
        return total

    def part(self, n: int) -> Problem:
        """The first n samples, without the labels that are constant there."""
        on = self.Y[:n].sum(axis=0)
        return Problem(self.name, self.X[:n], self.Y[:n, (on > 0) & (on < n)], self.C)


def real(name: str) -> Problem:
    """A data set by name; rows of length one."""
    data = datasets.load(name, split="all" if name == "rcv1-subsets" else "train")
    Y = data.Y.toarray() if sp.issparse(data.Y) else np.asarray(data.Y)
    X = data.X.tocsr() if sp.issparse(data.X) else np.ascontiguousarray(data.X)
    keep = (Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y))
    return Problem(name, normalize(X.astype(np.float64)), Y[:, keep].astype(np.int8))


def generated(n: int, d: int = 47_236, nnz: int = 75, labels: int = 103, seed: int = 0) -> Problem:
    """Text-like data: Zipf words, labels from sparse linear rules with noise, float32 rows of length one."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, d + 1) ** 0.9
    cumulative = np.cumsum(weights / weights.sum())
    columns = np.searchsorted(cumulative, rng.random((n, nnz))).astype(np.int32)
    np.clip(columns, 0, d - 1, out=columns)
    columns.sort(axis=1)
    values = rng.random((n, nnz), dtype=np.float32) + np.float32(0.5)
    values *= np.log1p(columns).astype(np.float32)  # rare words weigh more
    X = sp.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * nnz + 1, nnz)), shape=(n, d))
    X.sum_duplicates()
    normalize(X, copy=False)
    rules = rng.standard_normal((d, labels)).astype(np.float32)
    share = 0.3 / np.arange(1, labels + 1) ** 0.8  # from frequent labels to rare ones
    Y = np.empty((n, labels), np.int8)
    for start in range(0, n, 20_000):
        rows = slice(start, start + 20_000)
        scores = X[rows] @ rules
        scores += 0.3 * rng.standard_normal(scores.shape).astype(np.float32)
        if start == 0:
            thresholds = np.array([np.quantile(scores[:, l], 1 - share[l]) for l in range(labels)])
        Y[rows] = scores > thresholds
    return Problem(f"generated-{n}", X, Y)
