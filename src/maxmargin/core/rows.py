"""One view of the rows of X, dense or CSR, and their compiled products with vectors and matrices.

Row i of X is the pairs ``(indices[k - dense * indptr[i]], data[k])`` for k from ``indptr[i]`` to ``indptr[i +
1]``. In a dense matrix all rows share one index array 0..D-1 (``dense = 1``); a CSR matrix has ``dense = 0``.
``data`` is the user's own memory, and so are int32 column indices, viewed as unsigned, so that loops do not
test for negative indices. int64 indices are narrowed to 32 bits, so that each loop is compiled for one width;
only a matrix of more than 2^32 columns keeps them.

Products come in two forms: with a vector, for loops over one label at a time, and with a feature-major matrix
(one contiguous row per feature), for loops over all labels of a sample. The last entry (row) of the weights
belongs to a constant feature of value `bias`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from maxmargin.core.jit import helper
from maxmargin.core.lanes import (
    add_product,
    any_nonzero,
    fill,
    load,
    load_row,
    multiply,
    prefetch,
    store,
    store_row,
)
from maxmargin.core.loop import SERIAL_SIZE
from maxmargin.core.threads import run_threads

# More columns than 32 bits can count.
WIDE = 1 << 32
# A dense matrix with at most this part of nonzeros is converted to CSR, which takes up to a fifth of its
# memory (12 bytes per nonzero); the part is estimated on PROBED rows.
FEW_NONZEROS, PROBED = 0.1, 256
# Nonzeros squared at a time.
CHUNK = 1 << 17
# Digits of the largest number whose square, summed over many, is still finite.
LARGEST_DIGITS = 140
# Cache lines of a row that are prefetched.
LINES = 32
# Columns of weights that are summed at a time, in registers, and a cache line of them. The widest group fills
# the registers (14 of eight floats): a row of weights is then read at once, on RCV1 in half the time of four
# groups. Half as many for the rest and for one of two threads; every other size is another loop to compile.
WIDEST, HALF, GROUP, LINE = (0,) * 112, (0,) * 64, (0,) * 32, (0,) * 16
# Three lines, for the other one of two threads.
THREE_LINES = (0,) * 48
ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


class RowArrays(NamedTuple):
    """The rows of X as arguments of compiled loops."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    dense: np.int64


def readonly(array: np.ndarray) -> np.ndarray:
    """Return a read-only C-contiguous view, so that each loop has one signature per dtype."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def check_digits(largest: float, *factors: float) -> None:
    """Refuse a largest norm and factors whose squared product overflows."""
    if not sum(math.log10(max(x, 1.0)) for x in (largest, *factors)) <= LARGEST_DIGITS:
        raise ValueError(
            f"X (or intercept_scaling, or its kernel) contains a value of size {largest:.3g}; with this C "
            "its square overflows. Scale the features, or use a smaller C."
        )


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
            indices = X.indices
            if indices.itemsize == 8 and d <= WIDE:
                indices = indices.astype(np.uint32)
            indices = indices.view(np.uint64 if indices.itemsize == 8 else np.uint32)
            indptr = X.indptr.astype(np.int64)
            return cls(readonly(X.data), readonly(indices), readonly(indptr), False, (n, d), X)
        X = np.ascontiguousarray(X)
        indptr = np.arange(n + 1, dtype=np.int64) * d
        indices = np.arange(d, dtype=np.uint32)
        return cls(readonly(X.reshape(-1)), readonly(indices), readonly(indptr), True, (n, d), X)

    @property
    def flat(self) -> RowArrays:
        """The rows as compiled loops take them."""
        return RowArrays(self.data, self.indices, self.indptr, np.int64(self.dense))

    def with_values(self, values: np.ndarray) -> Rows:
        """The same pattern with other values, one per entry of `data`."""
        X = values.reshape(self.shape) if self.dense else _like(self.matrix, values)
        return replace(self, data=readonly(values), matrix=X)

    def renumbered(self, indices: np.ndarray, n_columns: int) -> Rows:
        """The same values of a CSR matrix in other columns, in any order within a row."""
        X = sp.csr_array(
            (self.data, indices.view(np.int32), self.matrix.indptr), shape=(self.shape[0], n_columns)
        )
        return replace(self, indices=readonly(indices), shape=X.shape, matrix=X)

    def check_digits(self, bias: float, mass: float) -> None:
        """Refuse rows whose multiples, of total weight `mass`, have a square that overflows."""
        check_digits(math.sqrt(float(self.squared_norms().max(initial=0.0)) + bias**2), mass)

    def squared_norms(self, n_threads: int = 1) -> np.ndarray:
        """Squared Euclidean norm of every row, in float64."""
        if self.dense:
            X = self.matrix
            if X.dtype == np.float64 and X.shape[1] <= SERIAL_SIZE:
                return np.vecdot(X, X)
            return np.einsum("ij,ij->i", X, X, dtype=np.float64)
        sums = np.zeros(self.shape[0])
        # In chunks, so that the squares of a large matrix never exist all at once.
        cuts = np.searchsorted(self.indptr, np.arange(0, self.indptr[-1] + CHUNK, CHUNK))
        parts = pairwise(np.unique(np.append(cuts, self.shape[0]).clip(0, self.shape[0])))

        def work(part: tuple[np.int64, np.int64]) -> None:
            first, last = part
            begin = self.indptr[first]
            squares = np.square(self.data[begin : self.indptr[last]], dtype=np.float64)
            filled = first + np.flatnonzero(np.diff(self.indptr[first : last + 1]))
            if filled.size:
                sums[filled] = np.add.reduceat(squares, self.indptr[filled] - begin)

        run_threads(work, parts, n_threads)
        return sums


def without_zeros(X: Any) -> Any:
    """A dense matrix of almost only zeros as CSR; any other matrix as it is."""
    if sp.issparse(X):
        return X
    probe = X[:: max(1, len(X) // PROBED)]
    return sp.csr_array(X) if np.count_nonzero(probe) <= FEW_NONZEROS * probe.size else X


def _like(X: Any, values: np.ndarray) -> Any:
    """A CSR matrix that shares the pattern of X."""
    return sp.csr_array((values, X.indices, X.indptr), shape=X.shape)


@helper(reorder=True)
def dot(a, b):
    """a . b of two short vectors."""
    total = a.dtype.type(0)
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@helper(reorder=True)
def _dot_dense(data, start, d, w, total):
    for j in range(d):
        total += data[start + j] * w[j]
    return total


@helper(hot=True)
def _dot_sparse(data, indices, start, stop, w, total):
    # Four sums by hand: vectorised gathers are slower than scalar loads. Positions are unsigned, or every
    # access would test for a negative index.
    a = b = c = w.dtype.type(0)
    k, end = np.uint64(start), np.uint64(stop)
    while k + FOUR <= end:
        total += data[k] * w[indices[k]]
        a += data[k + ONE] * w[indices[k + ONE]]
        b += data[k + TWO] * w[indices[k + TWO]]
        c += data[k + THREE] * w[indices[k + THREE]]
        k += FOUR
    while k < end:
        total += data[k] * w[indices[k]]
        k += ONE
    return (total + a) + (b + c)


@helper(hot=True)
def row_dot(rows, i, bias, w):
    """w . (x_i, bias), where the last entry of w belongs to the bias."""
    data, indices, indptr, dense = rows
    d = w.shape[0] - 1
    total = bias * w[d]
    if dense:
        return _dot_dense(data, indptr[i], d, w, total)
    return _dot_sparse(data, indices, indptr[i], indptr[i + 1], w, total)


@helper(reorder=True)
def _add_dense(data, start, d, step, w):
    for j in range(d):
        w[j] += data[start + j] * step


@helper(hot=True)
def row_add(rows, i, bias, step, w):
    """w += step (x_i, bias)."""
    data, indices, indptr, dense = rows
    d = w.shape[0] - 1
    w[d] += bias * step
    if dense:
        _add_dense(data, indptr[i], d, step, w)
    else:
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            w[indices[k]] += data[k] * step


@helper(reorder=True)
def _scores_in_lanes(rows, i, bias, W, at, lanes, scores):
    """scores[at : at + len(lanes)], summed in registers while the row is read."""
    data, indices, indptr, dense = rows
    shift = dense * indptr[i]
    sums = load_row(W, np.uint64(W.shape[0] - 1), at, lanes)
    sums = multiply(sums, fill(bias, sums))
    for k in range(indptr[i], indptr[i + 1]):
        x = W.dtype.type(data[k])
        sums = add_product(sums, x, load_row(W, np.uint64(indices[k - shift]), at, lanes))
    store(sums, scores, at)


@helper(reorder=True)
def row_scores(rows, i, bias, W, lo, hi, scores):
    """scores[lo:hi] = (x_i, bias)' W[:, lo:hi]; the last row of W belongs to the bias."""
    data, indices, indptr, dense = rows
    at, end = np.int64(lo), np.int64(hi)
    few, many = end - at < len(GROUP), end - at >= len(HALF)
    while at + len(WIDEST) <= end:
        _scores_in_lanes(rows, i, bias, W, at, WIDEST, scores)
        at += len(WIDEST)
    # The last group overlaps the one before; its scores are computed again with the same result.
    while at + len(GROUP) < end and many:
        at = min(at, end - len(HALF))
        _scores_in_lanes(rows, i, bias, W, at, HALF, scores)
        at += len(HALF)
    while at < end and not few:
        at = min(at, end - len(GROUP))
        _scores_in_lanes(rows, i, bias, W, at, GROUP, scores)
        at += len(GROUP)
    if few:
        w = W[W.shape[0] - 1]
        for l in range(lo, hi):
            scores[l] = bias * w[l]
        shift = dense * indptr[i]
        for k in range(indptr[i], indptr[i + 1]):
            x = W.dtype.type(data[k])
            w = W[indices[k - shift]]
            for l in range(lo, hi):
                scores[l] += x * w[l]


@helper(reorder=True)
def line_scores(rows, i, bias, W, scores):
    """scores = (x_i, bias)' W for a W whose rows are whole cache lines, with few readings of the row."""
    at, end = 0, W.shape[1]
    while at < end:
        if end - at >= len(WIDEST):
            _scores_in_lanes(rows, i, bias, W, at, WIDEST, scores)
            at += len(WIDEST)
        elif end - at >= len(HALF):
            _scores_in_lanes(rows, i, bias, W, at, HALF, scores)
            at += len(HALF)
        elif end - at >= len(THREE_LINES):
            _scores_in_lanes(rows, i, bias, W, at, THREE_LINES, scores)
            at += len(THREE_LINES)
        elif end - at >= len(GROUP):
            _scores_in_lanes(rows, i, bias, W, at, GROUP, scores)
            at += len(GROUP)
        else:
            _scores_in_lanes(rows, i, bias, W, at, LINE, scores)
            at += len(LINE)


@helper(reorder=True)
def _product_in_lanes(t, G, at, lanes, product):
    """product[at : at + len(lanes)], summed in registers while the rows of G are read."""
    sums = load_row(G, np.uint64(0), at, lanes)
    sums = multiply(sums, fill(t[0], sums))
    for k in range(1, G.shape[0]):
        sums = add_product(sums, t[k], load_row(G, np.uint64(k), at, lanes))
    store(sums, product, at)


@helper(reorder=True)
def vector_product(t, G, product):
    """product = t'G for a small matrix G of at least one row, in the groups of `row_scores`."""
    at, end = 0, G.shape[1]
    few = end < len(GROUP)
    while at + len(WIDEST) <= end:
        _product_in_lanes(t, G, at, WIDEST, product)
        at += len(WIDEST)
    while at < end and not few:
        at = min(at, end - len(GROUP))
        _product_in_lanes(t, G, at, GROUP, product)
        at += len(GROUP)
    if few:
        for l in range(end):
            product[l] = t[0] * G[0, l]
        for k in range(1, G.shape[0]):
            for l in range(end):
                product[l] += t[k] * G[k, l]


@helper(reorder=True)
def row_outer(rows, i, bias, step, lo, hi, W):
    """W[:, lo:hi] += (x_i, bias) step[lo:hi]'; groups of sixteen columns without a step are skipped."""
    data, indices, indptr, dense = rows
    shift = dense * indptr[i]
    at, end = np.int64(lo), np.int64(hi)
    last = np.uint64(W.shape[0] - 1)
    while at + len(LINE) <= end:
        steps = load(step, at, LINE)
        if any_nonzero(steps):
            store_row(add_product(load_row(W, last, at, LINE), bias, steps), W, last, at)
            for k in range(indptr[i], indptr[i + 1]):
                x, j = W.dtype.type(data[k]), np.uint64(indices[k - shift])
                store_row(add_product(load_row(W, j, at, LINE), x, steps), W, j, at)
        at += len(LINE)
    if at < end:
        first = np.uint64(at)
        w = W[W.shape[0] - 1]
        for l in range(first, np.uint64(hi)):
            w[l] += bias * step[l]
        for k in range(indptr[i], indptr[i + 1]):
            x = W.dtype.type(data[k])
            w = W[indices[k - shift]]
            for l in range(first, np.uint64(hi)):
                w[l] += x * step[l]


@helper(reorder=True)
def row_outer_few(rows, i, bias, step, few, n_few, W):
    """W[:, few] += (x_i, bias) step[few]' for a short list of columns; the same bits as `row_outer`."""
    data, indices, indptr, dense = rows
    w = W[W.shape[0] - 1]
    for t in range(n_few):
        w[few[t]] += bias * step[few[t]]
    shift = dense * indptr[i]
    for k in range(indptr[i], indptr[i + 1]):
        x = W.dtype.type(data[k])
        w = W[indices[k - shift]]
        for t in range(n_few):
            w[few[t]] += x * step[few[t]]


@helper(hot=True)
def row_column_dot(rows, i, bias, k, W):
    """W_k . (x_i, bias) for one column of a feature-major W."""
    data, indices, indptr, dense = rows
    total = bias * W[W.shape[0] - 1, k]
    shift = dense * indptr[i]
    for t in range(indptr[i], indptr[i + 1]):
        total += data[t] * W[indices[t - shift], k]
    return total


@helper(hot=True)
def row_column_add(rows, i, bias, step, k, W):
    """W_k += step (x_i, bias) for one column of a feature-major W."""
    data, indices, indptr, dense = rows
    W[W.shape[0] - 1, k] += bias * step
    shift = dense * indptr[i]
    for t in range(indptr[i], indptr[i + 1]):
        W[indices[t - shift], k] += data[t] * step


@helper(hot=True)
def prefetch_row(rows, r):
    """Prefetch the beginning of a row."""
    data, indices, indptr, dense = rows
    first, last = indptr[r], indptr[r + 1]
    line = 64 // data.itemsize
    for p in range(first, min(last, first + LINES * line), line):
        prefetch(data, p)
    if not dense:
        line = 64 // indices.itemsize
        for p in range(first, min(last, first + LINES * line), line):
            prefetch(indices, p)


@helper
def row_product(rows, i, j, bias):
    """(x_i, bias) . (x_j, bias)."""
    data, indices, indptr, dense = rows
    total = np.float64(bias * bias)
    k, end = indptr[i], indptr[i + 1]
    l, stop = indptr[j], indptr[j + 1]
    if dense:
        for t in range(end - k):
            total += data[k + t] * data[l + t]
        return total
    while k < end and l < stop:
        a, b = indices[k], indices[l]
        if a == b:
            total += data[k] * data[l]
        if a <= b:
            k += 1
        if b <= a:
            l += 1
    return total


@helper(reorder=True)
def scatter_rows(rows, start, length, d, V, columns, seen, stamp):
    """V = sum_t x_t d_t' over the rows start..start + length - 1; return the number of columns touched.

    V (features x K) is a workspace. ``seen[c] == stamp`` marks the columns of X that were touched, and
    `columns` lists them; a row of V is overwritten on its first touch, so nothing is cleared between calls.
    """
    data, indices, indptr, dense = rows
    K = d.shape[1]
    touched = 0
    for t in range(length):
        move = d[t]
        begin = indptr[start + t]
        for k in range(begin, indptr[start + t + 1]):
            value = data[k]
            if value != 0.0:
                c = indices[k - dense * begin]
                row = V[c]
                if seen[c] != stamp:
                    seen[c] = stamp
                    columns[touched] = c
                    touched += 1
                    for a in range(K):
                        row[a] = value * move[a]
                else:
                    for a in range(K):
                        row[a] += value * move[a]
    return touched


@helper(reorder=True)
def scattered_norm(V, columns, touched):
    """|V|^2 over the touched columns."""
    total = 0.0
    for j in range(touched):
        row = V[columns[j]]
        for a in range(row.size):
            total += row[a] * row[a]
    return total


@helper(reorder=True)
def subtract_scattered(scale, V, columns, touched, W):
    """W -= scale * V on the touched columns."""
    for j in range(touched):
        row, weights = V[columns[j]], W[columns[j]]
        for a in range(row.size):
            weights[a] -= scale * row[a]


@helper
def shuffle(order, size, draws, cursor):
    """Shuffle order[:size] (Fisher-Yates) with the numbers of `draws` that follow `cursor`.

    `draws` holds 32-bit numbers, a power of two of them, and is read cyclically. Returns the position of the
    last one used.
    """
    mask = draws.shape[0] - 1
    for u in range(size - 1, 0, -1):
        cursor += 1
        v = np.int64((np.uint64(draws[cursor & mask]) * np.uint64(u + 1)) >> np.uint64(32))
        order[u], order[v] = order[v], order[u]
    return cursor
