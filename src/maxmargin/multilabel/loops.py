"""Loops that all linear solvers of M3L share, in the letters of `problem`.

N samples, L labels, D features. Signs Y (N x L: +1, -1, 0 unknown), dual variables alpha in [0, c_il],
weights stored feature-major with the bias last ((D+1) x L), g_il = m_il - y_il f_il the gradient of the dual.
Ranges of labels lo..hi are unsigned, so that no loop tests for negative indices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import (
    add,
    as_reals,
    bits_nonzero,
    fill,
    larger,
    load,
    load_row,
    lowest_bit,
    multiply,
    store_above,
    store_row,
    subtract,
    where_above,
)
from maxmargin.core.rows import LINE, ONE, row_scores, vector_product

# Parts of the rows of V, a power of two, that threads divide among them.
PARTS = 16


class EntryArrays(NamedTuple):
    """The arrays of `problem.EntryCosts` in working precision."""

    signs: np.ndarray
    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    per_entry_margin: bool


class Scoring(NamedTuple):
    """How samples are scored: f_i = (x_i, bias)'T, then times G unless G is empty."""

    T: np.ndarray
    G: np.ndarray
    bias: np.floating


class Bounds(NamedTuple):
    """Entries that are still visited, and the shrinking bounds (44)-(45).

    `low` and `high` have two rows: row 0 holds the bounds of this pass, beyond which a variable at its bound
    is unmarked, and row 1 collects the extreme projected gradients for the next pass.
    """

    marks: np.ndarray
    low: np.ndarray
    high: np.ndarray


@helper(hot=True)
def entry_costs(costs, i, l):
    """Box and margin of one entry."""
    signs, weight, upper, margin, per_entry_margin = costs
    y = signs[i, l]
    if y == 0:
        return upper.dtype.type(0), upper.dtype.type(0)
    side = 1 if y > 0 else 0
    c = upper[side, l] * (weight[i, l] if weight.shape[1] > 1 else weight[i, 0])
    return c, (margin[i, l] if per_entry_margin else margin[side, l])


@helper(hot=True)
def list_nonzeros(v, places):
    """Write the positions of nonzeros into `places`; return their number."""
    found, at, line = np.uint64(0), np.uint64(0), np.uint64(len(LINE))
    while at + line <= v.shape[0]:
        bits = bits_nonzero(load(v, at, LINE))
        while bits:
            places[found] = at + lowest_bit(bits)
            found += ONE
            bits &= bits - ONE
        at += line
    while at < v.shape[0]:
        places[found] = at
        found += np.uint64(v[at] != 0)
        at += ONE
    return np.int64(found)


@compiled(reorder=True, allocates=True)
def accumulate(rows, bias, alpha, signs, first, last, V):
    """V += X'(Y * alpha), skipping the zeros of alpha: the sum in (23), for some rows of V.

    These are the rows j with j modulo `PARTS` in first..last.
    """
    data, indices, indptr, dense = rows
    d, mask, L = V.shape[0] - 1, PARTS - 1, alpha.shape[1]
    step = np.empty(L, V.dtype)
    few = np.empty(L, np.uint64)
    columns = np.empty(d + 2, np.uint64)
    values = np.empty(d + 2, V.dtype)
    for i in range(alpha.shape[0]):
        n_few = list_nonzeros(alpha[i], few)
        for t in range(n_few):
            step[t] = signs[i, few[t]] * alpha[i, few[t]]
        if n_few == 0:
            continue
        # The columns of this part side by side; a branch would not be predictable.
        columns[0], values[0] = d, bias
        n_columns = int(first <= d & mask < last)
        shift = dense * indptr[i]
        for k in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[k - shift])
            columns[n_columns], values[n_columns] = j, data[k]
            n_columns += (first <= j & mask) & (j & mask < last)
        for k in range(n_columns):
            x, v = values[k], V[columns[k]]
            for t in range(n_few):
                v[few[t]] += x * step[t]


@compiled
def rare_last(rows, frequent, first, last, indices, values):
    """Copy the sparse rows first..last with the columns from `frequent` on last, in reversed order."""
    data, columns, indptr, _ = rows
    for i in range(first, last):
        front, back = indptr[i], indptr[i + 1] - 1
        for k in range(indptr[i], indptr[i + 1]):
            rare = columns[k] >= frequent
            place = back if rare else front
            indices[place], values[place] = columns[k], data[k]
            back -= rare
            front += not rare


@helper(reorder=True)
def lane_costs(costs, i, l, lanes, y):
    """Boxes and margins of the entries of sample i from l on, one per lane; y are their signs."""
    _, weight, upper, margin, per_entry_margin = costs
    zero = fill(upper.dtype.type(0), y)
    negative, positive = np.uint64(0), np.uint64(1)
    off = where_above(zero, y, load_row(upper, negative, l, lanes), zero)
    w = load_row(weight, i, l, lanes) if weight.shape[1] > 1 else fill(weight[i, 0], y)
    c = multiply(w, where_above(y, zero, load_row(upper, positive, l, lanes), off))
    if per_entry_margin:
        m = load_row(margin, i, l, lanes)
    else:
        on = load_row(margin, positive, l, lanes)
        m = where_above(y, zero, on, load_row(margin, negative, l, lanes))
    return c, m


@helper(hot=True)
def measure_entry(i, l, costs, f, alpha, negligible, flags, sums):
    """Add the terms of entry (i, l) with score f to the sums of `measure`."""
    c, m = entry_costs(costs, i, l)
    real = costs.upper.dtype.type
    y, a, zero = real(costs.signs[i, l]), real(alpha[i, l]), real(0)
    g = m - y * f
    hinge = max(g, zero)
    # As two terms, one of which is zero: an entry at its bound has no rounding error.
    gap = (c - a) * hinge + a * max(-g, zero)
    sums[0, l] += c * hinge
    sums[1, l] += gap
    sums[2, l] += m * a
    sums[3, l] += y * a
    if flags.shape[0] > 0:
        flags[i, l] = gap > negligible


@helper(hot=True)
def add_lanes(v, sums, k, l, lanes):
    """sums[k, l : l + lanes] += v, in the precision of `sums`."""
    total = load_row(sums, np.uint64(k), l, lanes)
    store_row(add(total, as_reals(v, total)), sums, np.uint64(k), l)


@helper(hot=True)
def measure_lanes(i, l, lanes, costs, scores, alpha, negligible, flags, sums):
    """The same for the entries of sample i from l on, one per lane."""
    f = load(scores, l, lanes)
    zero = fill(scores.dtype.type(0), f)
    y, a = as_reals(load_row(costs.signs, i, l, lanes), f), as_reals(load_row(alpha, i, l, lanes), f)
    c, m = lane_costs(costs, i, l, lanes, y)
    g = subtract(m, multiply(y, f))
    hinge = larger(g, zero)
    gap = add(multiply(subtract(c, a), hinge), multiply(a, larger(subtract(zero, g), zero)))
    add_lanes(multiply(c, hinge), sums, 0, l, lanes)
    add_lanes(gap, sums, 1, l, lanes)
    add_lanes(multiply(m, a), sums, 2, l, lanes)
    add_lanes(multiply(y, a), sums, 3, l, lanes)
    if flags.shape[0] > 0:
        store_above(gap, fill(negligible, gap), flags[i], l)


@compiled(allocates=True)
def measure(rows, costs, scoring, first, last, alpha, negligible, flags, sums):
    """Losses, gap, dual value and S per label over the samples first..last.

    Adds to the four rows of `sums` (float64, one entry per label). Unless `flags` is empty, it marks the
    entries whose part c max(0, g) - alpha g of the gap, g the gradient (29), is above `negligible`.
    """
    T, G, bias = scoring
    L, line = np.uint64(alpha.shape[1]), np.uint64(len(LINE))
    t = np.empty(T.shape[1], T.dtype)
    mixed = np.empty(G.shape[1], T.dtype)
    scores = mixed if G.shape[0] > 0 else t
    for i in range(np.uint64(first), np.uint64(last)):
        row_scores(rows, i, bias, T, 0, T.shape[1], t)
        if G.shape[0] > 0:
            vector_product(t, G, mixed)
        l = np.uint64(0)
        while l + line <= L:
            measure_lanes(i, l, LINE, costs, scores, alpha, negligible, flags, sums)
            l += line
        while l < L:
            measure_entry(i, l, costs, scores[l], alpha, negligible, flags, sums)
            l += ONE


@compiled
def add_squares(rows, chosen, weights, system):
    """Add sum_t weights_t z_i z_i', i = chosen_t, for sparse rows z: the diagonal and the lower triangle."""
    data, indices, indptr, _ = rows
    for t in range(chosen.shape[0]):
        first, last = indptr[chosen[t]], indptr[chosen[t] + 1]
        for a in range(first, last):
            line, x = system[indices[a]], weights[t] * data[a]
            for b in range(first, a + 1):
                line[indices[b]] += x * data[b]
