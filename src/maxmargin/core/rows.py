"""One view of the rows of X, dense or CSR, for the compiled loops.

Row i of X is the pairs ``(indices[k - dense * indptr[i]], data[k])`` for k from
``indptr[i]`` to ``indptr[i + 1]``. A dense matrix is the case in which all rows share
one index array 0..D-1 (``dense = 1``), a CSR matrix the case ``dense = 0``. Nothing is
copied: ``data`` is the user's own memory, and int32 or int64 column indices are
reinterpreted as unsigned, which spares the loops numpy's negative-index wrap-around.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

Flat = tuple[np.ndarray, np.ndarray, np.ndarray, np.int64]
# Nonzeros squared at a time.
PIECE = 1 << 20


def readonly(array: np.ndarray) -> np.ndarray:
    """Return a read-only C-contiguous view, so that each loop has one signature per dtype."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix as flat arrays; build it with `Rows.of`."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    dense: bool
    shape: tuple[int, int]
    matrix: Any

    @classmethod
    def of(cls, X: Any) -> Rows:
        """View a C-contiguous dense or canonical CSR matrix of floats."""
        n, d = X.shape
        if sp.issparse(X):
            if not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            unsigned = np.uint64 if X.indices.dtype.itemsize == 8 else np.uint32
            indices = X.indices.view(unsigned)
            indptr = X.indptr.astype(np.int64)
            return cls(readonly(X.data), readonly(indices), readonly(indptr), False, (n, d), X)
        X = np.ascontiguousarray(X)
        indptr = np.arange(n + 1, dtype=np.int64) * d
        indices = np.arange(d, dtype=np.uint32)
        return cls(readonly(X.reshape(-1)), readonly(indices), readonly(indptr), True, (n, d), X)

    @property
    def flat(self) -> Flat:
        """The arguments every compiled loop over rows starts with."""
        return self.data, self.indices, self.indptr, np.int64(self.dense)

    def with_values(self, values: np.ndarray) -> Rows:
        """The same pattern with other values, one for every entry of `data`."""
        X = values.reshape(self.shape) if self.dense else _like(self.matrix, values)
        return replace(self, data=readonly(values), matrix=X)

    def squared_norms(self) -> np.ndarray:
        """Squared Euclidean norm of every row, in float64."""
        if self.dense:
            X = self.matrix
            return np.einsum("ij,ij->i", X, X, dtype=np.float64)
        sums = np.zeros(self.shape[0])
        # Some rows at a time, so that the squares of a large matrix are never all there at once.
        cuts = np.searchsorted(self.indptr, np.arange(0, self.indptr[-1] + PIECE, PIECE))
        for first, last in pairwise(np.unique(np.append(cuts, self.shape[0]).clip(0, self.shape[0]))):
            begin = self.indptr[first]
            squares = np.square(self.data[begin : self.indptr[last]], dtype=np.float64)
            filled = first + np.flatnonzero(np.diff(self.indptr[first : last + 1]))
            if filled.size:
                sums[filled] = np.add.reduceat(squares, self.indptr[filled] - begin)
        return sums


def _like(X: Any, values: np.ndarray) -> Any:
    """A CSR matrix that shares the pattern of X."""
    return sp.csr_array((values, X.indices, X.indptr), shape=X.shape)
