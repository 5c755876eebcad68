"""One sample of a linear multi-class machine in SIMD words: scores, exact block, update of W.

All vectors over the classes are padded to a multiple of the number of lanes (see
`maxmargin.core.simd`): blocks and steps with 0, margins with `PAD`, far below any margin, so
that a padded class is never the largest and never gets mass.

A row of X is the pairs ``(indices[p - shift], data[p])`` for p from `start` to `stop`, with
``shift = start`` for the rows of a dense matrix, which share one index array, and 0 for CSR.
Positions are unsigned, or every access would test for a negative index.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core import simd
from maxmargin.core.jit import compiled
from maxmargin.core.simplex import FLAT, argmax

PAD = -1e30
# Less than any gap, so that the largest term is above a level of minus this.
TINY = 1e-30
ONE, TWO = np.uint64(1), np.uint64(2)
# Dense rows of at least this many entries are searched for zeros.
LONG = np.uint64(64)


@compiled(reorder=True, inline=True)
def nonzero_from(data, p, last, lanes):
    """First position from p on at which a word of a dense row holds a nonzero, or the row's tail."""
    while p + np.uint64(len(lanes)) <= last and not simd.any_nonzero(simd.load(data, p, lanes)):
        p += np.uint64(len(lanes))
    return p


@compiled(reorder=True, inline=True)
def add_scores(data, indices, first, last, shift, W, o, lanes, H):
    """H += W' x for a word of classes from o on, as two sums, so that additions overlap."""
    kind = W.dtype.type
    a = simd.load(H, o, lanes)
    b = simd.fill(kind(0), a)
    p = first
    while p + TWO <= last:
        a = simd.add_product(a, kind(data[p]), simd.load_row(W, indices[p - shift], o, lanes))
        b = simd.add_product(b, kind(data[p + ONE]), simd.load_row(W, indices[p + ONE - shift], o, lanes))
        p += TWO
    if p < last:
        a = simd.add_product(a, kind(data[p]), simd.load_row(W, indices[p - shift], o, lanes))
    simd.store(simd.add(a, b), H, o)


@compiled(reorder=True, inline=True)
def subtract_outer(data, indices, first, last, shift, W, o, lanes, step):
    """W -= x (x) step for a word of classes from o on, unless none of them moves."""
    kind = W.dtype.type
    s = simd.load(step, o, lanes)
    if simd.any_nonzero(s):
        for p in range(first, last):
            f = indices[p - shift]
            w = simd.load_row(W, f, o, lanes)
            simd.store_row(simd.add_product(w, -kind(data[p]), s), W, f, o)


@compiled(reorder=True, inline=True)
def by_words(work, data, indices, first, last, shift, W, lanes, vector):
    """Do `work` on all classes, four words as one where there are as many, then the rest as one.

    A row is read once for all classes of a long word, which LLVM keeps in several registers.
    """
    L = len(lanes)
    o = np.int64(0)
    while o + 4 * L <= W.shape[1]:
        work(data, indices, first, last, shift, W, o, lanes + lanes + lanes + lanes, vector)
        o += 4 * L
    if o + 3 * L == W.shape[1]:
        work(data, indices, first, last, shift, W, o, lanes + lanes + lanes, vector)
    elif o + 2 * L == W.shape[1]:
        work(data, indices, first, last, shift, W, o, lanes + lanes, vector)
    elif o < W.shape[1]:
        work(data, indices, first, last, shift, W, o, lanes, vector)


@compiled(reorder=True, inline=True)
def row_scores(data, indices, start, stop, dense, W, lanes, H):
    """H += W' x for a row of X; runs of zeros in a long dense row cost next to nothing."""
    first, last = np.uint64(start), np.uint64(stop)
    shift = first if dense else np.uint64(0)
    searched = dense and last - first >= LONG
    p = first
    while p < last:
        q = last
        if searched:
            p = nonzero_from(data, p, last, lanes)
            q = p
            while q + np.uint64(len(lanes)) <= last and simd.any_nonzero(simd.load(data, q, lanes)):
                q += np.uint64(len(lanes))
            if q == p:
                q = last
        by_words(add_scores, data, indices, p, q, shift, W, lanes, H)
        p = q


@compiled(reorder=True, inline=True)
def row_outer(data, indices, start, stop, dense, bias, step, lanes, W):
    """W -= (x, bias) (x) step for a row of X, zeros as in `row_scores`."""
    first, last = np.uint64(start), np.uint64(stop)
    shift = first if dense else np.uint64(0)
    searched = dense and last - first >= LONG
    p = first
    while p < last:
        q = last
        if searched:
            p = nonzero_from(data, p, last, lanes)
            q = min(p + np.uint64(len(lanes)), last)
        by_words(subtract_outer, data, indices, p, q, shift, W, lanes, step)
        p = q
    if bias != 0:
        d = W.shape[0] - 1
        for o in range(0, W.shape[1], len(lanes)):
            w, s = simd.load_row(W, d, o, lanes), simd.load(step, o, lanes)
            simd.store_row(simd.add_product(w, -W.dtype.type(bias), s), W, d, o)


@compiled(reorder=True, inline=True)
def margins(data, indices, start, stop, dense, truth, Delta, bias, W, lanes, H):
    """Loss-augmented margins of one row, up to a constant."""
    d = W.shape[0] - 1
    for o in range(0, W.shape[1], len(lanes)):
        costs = simd.load_row(Delta, truth, o, lanes)
        simd.store(simd.add_product(costs, W.dtype.type(bias), simd.load_row(W, d, o, lanes)), H, o)
    row_scores(data, indices, start, stop, dense, W, lanes, H)


@compiled(reorder=True, inline=True)
def settle_margins(alpha, base, lanes, H):
    """H -= base; returns max H and alpha.H."""
    zero = simd.fill(H.dtype.type(0), simd.load(H, 0, lanes))
    shift = simd.fill(base, zero)
    top, mean = simd.fill(H.dtype.type(PAD), zero), zero
    for o in range(0, H.size, len(lanes)):
        h = simd.subtract(simd.load(H, o, lanes), shift)
        simd.store(h, H, o)
        top = simd.larger(top, h)
        mean = simd.add(mean, simd.multiply(simd.load(alpha, o, lanes), h))
    return simd.largest(top), simd.total(mean)


@compiled(reorder=True, inline=True)
def positive_sum(lanes, H):
    """sum_k max(H_k, 0)."""
    zero = simd.fill(H.dtype.type(0), simd.load(H, 0, lanes))
    sums = zero
    for o in range(0, H.size, len(lanes)):
        h = simd.load(H, o, lanes)
        sums = simd.add(sums, simd.where_above(h, zero, h, zero))
    return simd.total(sums)


@compiled(reorder=True, inline=True)
def project_simplex(alpha, H, largest, gap, kappa, lanes, v):
    """Projection of alpha + H / kappa: v = alpha + (H - largest) / kappa, theta and the support's size.

    The projected point is max(v_k - theta, 0), and theta the root of sum_k max(v_k - theta, 0) = 1,
    found by Newton's method: theta moves to the mean excess of the terms above it until their
    set no longer changes. The set may grow at first and shrinks from then on, so that this
    takes at most one step per class, and one. With `gap` = largest - alpha.H, the start
    -gap / kappa is where theta stays when the support does; the root is never below -1.
    """
    kind = H.dtype.type
    zero = simd.fill(kind(0), simd.load(H, 0, lanes))
    one, peak = simd.fill(kind(1), zero), simd.fill(largest, zero)
    inverse = 1 / kappa
    for o in range(0, H.size, len(lanes)):
        h = simd.subtract(simd.load(H, o, lanes), peak)
        simd.store(simd.add_product(simd.load(alpha, o, lanes), inverse, h), v, o)
    theta, size = -min(max(gap * inverse, kind(TINY)), kind(1)), kind(0)
    for _ in range(H.size + 1):
        level = simd.fill(theta, zero)
        sums, count = zero, zero
        for o in range(0, H.size, len(lanes)):
            x = simd.load(v, o, lanes)
            sums = simd.add(sums, simd.where_above(x, level, x, zero))
            count = simd.add(count, simd.where_above(x, level, one, zero))
        above = simd.total(count)
        if above == size:
            break
        size = above
        theta = (simd.total(sums) - kind(1)) / size
    return theta, size


@compiled(reorder=True, inline=True)
def exact_step(H, largest, gap, kappa, scale, lanes, v, alpha, step):
    """alpha becomes the best point of its simplex, the projection of alpha + H / kappa.

    `largest` is max H, `gap` is max H - alpha.H and v room for a vector; `step` becomes the
    move delta times scale. Returns delta.H and |delta|^2.
    """
    kind = H.dtype.type
    if kappa < FLAT:
        for k in range(v.size):
            v[k] = 0
        v[argmax(H, H.size)] = 1
        theta, size = kind(0), kind(1)
    else:
        theta, size = project_simplex(alpha, H, largest, gap, kappa, lanes, v)
    zero = simd.fill(kind(0), simd.load(H, 0, lanes))
    one, level, factor = simd.fill(kind(1), zero), simd.fill(theta, zero), simd.fill(scale, zero)
    slope, squares = zero, zero
    for o in range(0, H.size, len(lanes)):
        x = simd.load(v, o, lanes)
        # A single class takes all, whatever the rounding of theta.
        mass = one if size == 1 else simd.subtract(x, level)
        new = simd.where_above(x, level, mass, zero)
        delta = simd.subtract(new, simd.load(alpha, o, lanes))
        simd.store(new, alpha, o)
        simd.store(simd.multiply(factor, delta), step, o)
        slope = simd.add(slope, simd.multiply(delta, simd.load(H, o, lanes)))
        squares = simd.add(squares, simd.multiply(delta, delta))
    return simd.total(slope), simd.total(squares)
