"""Row by row products of X (dense or CSR, see `maxmargin.core.rows`) with a vector or a matrix.

The vector forms serve loops over one label at a time, the matrix forms (feature-major
weights, one contiguous row per feature) loops over all labels of a sample at once.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled

ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@compiled(inline=True, reorder=True)
def dot(a, b):
    """a . b of two short vectors."""
    total = a.dtype.type(0)
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@compiled(inline=True, reorder=True)
def _dot_dense(data, start, d, w, total):
    for j in range(d):
        total += data[start + j] * w[j]
    return total


@compiled(inline=True)
def _dot_sparse(data, indices, start, stop, w, total):
    # Four running sums by hand: vectorised gathers are slower than scalar loads. Unsigned
    # positions, or every access would test for a negative index.
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


@compiled(inline=True)
def row_dot(data, indices, indptr, dense, i, bias, w):
    """w . (x_i, bias), where the last entry of w belongs to the bias."""
    d = w.shape[0] - 1
    total = bias * w[d]
    if dense:
        return _dot_dense(data, indptr[i], d, w, total)
    return _dot_sparse(data, indices, indptr[i], indptr[i + 1], w, total)


@compiled(inline=True, reorder=True)
def _add_dense(data, start, d, step, w):
    for j in range(d):
        w[j] += data[start + j] * step


@compiled(inline=True)
def row_add(data, indices, indptr, dense, i, bias, step, w):
    """w += step (x_i, bias)."""
    d = w.shape[0] - 1
    w[d] += bias * step
    if dense:
        _add_dense(data, indptr[i], d, step, w)
    else:
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            w[indices[k]] += data[k] * step


@compiled(inline=True, reorder=True)
def row_scores(data, indices, indptr, dense, i, bias, W, lo, hi, scores):
    """scores[lo:hi] = (x_i, bias)' W[:, lo:hi]; the last row of W belongs to the bias."""
    w = W[W.shape[0] - 1]
    for l in range(lo, hi):
        scores[l] = bias * w[l]
    shift = dense * indptr[i]
    for k in range(indptr[i], indptr[i + 1]):
        x = W.dtype.type(data[k])
        w = W[indices[k - shift]]
        for l in range(lo, hi):
            scores[l] += x * w[l]


@compiled(inline=True, reorder=True)
def row_outer(data, indices, indptr, dense, i, bias, step, lo, hi, W):
    """W[:, lo:hi] += (x_i, bias) step[lo:hi]'."""
    w = W[W.shape[0] - 1]
    for l in range(lo, hi):
        w[l] += bias * step[l]
    shift = dense * indptr[i]
    for k in range(indptr[i], indptr[i + 1]):
        x = W.dtype.type(data[k])
        w = W[indices[k - shift]]
        for l in range(lo, hi):
            w[l] += x * step[l]


@compiled(inline=True)
def row_outer_few(data, indices, indptr, dense, i, bias, step, few, n_few, W):
    """W[:, few] += (x_i, bias) step[few]' for a short list of columns."""
    w = W[W.shape[0] - 1]
    for t in range(n_few):
        w[few[t]] += bias * step[few[t]]
    shift = dense * indptr[i]
    for k in range(indptr[i], indptr[i + 1]):
        x = W.dtype.type(data[k])
        w = W[indices[k - shift]]
        for t in range(n_few):
            w[few[t]] += x * step[few[t]]
