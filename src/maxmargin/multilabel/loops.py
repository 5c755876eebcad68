"""Loops that every linear solver of M3L needs, and those of Newton's method, in the letters of `problem`.

N samples, L labels, D features. Signs Y (N x L: +1, -1, 0 unknown), dual variables alpha in
[0, c_il], weights stored feature-major with the bias last ((D+1) x L), g_il = m_il - y_il f_il the
gradient of the dual. Ranges of labels lo..hi are unsigned, so that no loop has to think of negative indices.

Newton's method (see `newton`) takes one label at a time. There X (N x D) is dense, with the constant feature
as its last column and every column brought to about one; `ridge` (D) is what the norm then charges each
weight. For one label: signs y, boxes c, margins m, scores f = X z, shares t = alpha / c of the boxes, a the
centre of the proximal step in these shares, g = m - y f.
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

# Shares of the rows of V, a power of two, that threads divide among them.
SHARES = 16
# Rows that enter the Hessian at a time: each of its entries is then read and written once for all of them.
TILE = 8
# A pivot below this part of its diagonal entry is rounding; it is raised to it.
PIVOT = 1e-14
# The line search: how far the slope has to fall, and how often it is looked at.
FLAT, LOOKS = 0.1, 30


class EntryArrays(NamedTuple):
    """What the loss asks of every entry: the arrays of `problem.EntryCosts` in working precision."""

    signs: np.ndarray
    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    tied: bool


class Scoring(NamedTuple):
    """How samples are scored: f_i = (x_i, bias)'T, then times G unless G is empty."""

    T: np.ndarray
    G: np.ndarray
    bias: np.floating


@helper(hot=True)
def entry_costs(costs, i, l):
    """Box and margin of one entry."""
    signs, weight, upper, margin, tied = costs
    y = signs[i, l]
    if y == 0:
        return upper.dtype.type(0), upper.dtype.type(0)
    side = 1 if y > 0 else 0
    c = upper[side, l] * (weight[i, l] if weight.shape[1] > 1 else weight[i, 0])
    return c, (margin[i, l] if tied else margin[side, l])


@helper(hot=True)
def list_nonzeros(v, places):
    """Write the places of nonzeros into `places`; returns how many there are."""
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

    These are the rows j for which j modulo `SHARES` is in first..last.
    """
    data, indices, indptr, dense = rows
    d, mask, L = V.shape[0] - 1, SHARES - 1, alpha.shape[1]
    step = np.empty(L, V.dtype)
    few = np.empty(L, np.uint64)
    words = np.empty(d + 2, np.uint64)
    values = np.empty(d + 2, V.dtype)
    for i in range(alpha.shape[0]):
        n_few = list_nonzeros(alpha[i], few)
        for t in range(n_few):
            step[t] = signs[i, few[t]] * alpha[i, few[t]]
        if n_few == 0:
            continue
        # The words of this share side by side: without a branch that nothing foretells.
        words[0], values[0] = d, bias
        n_words = int(first <= d & mask < last)
        shift = dense * indptr[i]
        for k in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[k - shift])
            words[n_words], values[n_words] = j, data[k]
            n_words += (first <= j & mask) & (j & mask < last)
        for k in range(n_words):
            x, v = values[k], V[words[k]]
            for t in range(n_few):
                v[few[t]] += x * step[t]


@compiled
def count_columns(indices, counts):
    """Count how often each column occurs."""
    for k in range(indices.shape[0]):
        counts[indices[k]] += 1


@compiled
def renumber(indices, places, answer):
    """Write the places of columns into `answer`."""
    for k in range(indices.shape[0]):
        answer[k] = places[indices[k]]


@compiled
def rare_last(rows, near, first, last, indices, values):
    """Copy the sparse rows first..last; columns from `near` on come last, the first of them at the end."""
    data, columns, indptr, _ = rows
    for i in range(first, last):
        front, back = indptr[i], indptr[i + 1] - 1
        for k in range(indptr[i], indptr[i + 1]):
            rare = columns[k] >= near
            place = back if rare else front
            indices[place], values[place] = columns[k], data[k]
            back -= rare
            front += not rare


@helper(reorder=True, hot=True)
def lane_costs(costs, i, l, lanes, y):
    """Boxes and margins of as many entries of sample i from l on as there are lanes; y are their signs."""
    _, weight, upper, margin, tied = costs
    zero = fill(upper.dtype.type(0), y)
    negative, positive = np.uint64(0), np.uint64(1)
    off = where_above(zero, y, load_row(upper, negative, l, lanes), zero)
    w = load_row(weight, i, l, lanes) if weight.shape[1] > 1 else fill(weight[i, 0], y)
    c = multiply(w, where_above(y, zero, load_row(upper, positive, l, lanes), off))
    if tied:
        m = load_row(margin, i, l, lanes)
    else:
        on = load_row(margin, positive, l, lanes)
        m = where_above(y, zero, on, load_row(margin, negative, l, lanes))
    return c, m


@helper(hot=True)
def measure_entry(i, l, costs, f, alpha, quiet, flags, sums):
    """What entry (i, l) with the score f adds to the sums of `measure`."""
    c, m = entry_costs(costs, i, l)
    real = costs.upper.dtype.type
    y, a, zero = real(costs.signs[i, l]), real(alpha[i, l]), real(0)
    g = m - y * f
    hinge = max(g, zero)
    # As two shares, one of which is zero: no rounding is left of an entry at the bound it belongs to.
    gap = (c - a) * hinge + a * max(-g, zero)
    sums[0, l] += c * hinge
    sums[1, l] += gap
    sums[2, l] += m * a
    sums[3, l] += y * a
    if flags.shape[0] > 0:
        flags[i, l] = gap > quiet


@helper(hot=True)
def add_lanes(v, sums, k, l, lanes):
    """sums[k, l : l + lanes] += v, in the precision of `sums`."""
    total = load_row(sums, np.uint64(k), l, lanes)
    store_row(add(total, as_reals(v, total)), sums, np.uint64(k), l)


@helper(hot=True)
def measure_lanes(i, l, lanes, costs, scores, alpha, quiet, flags, sums):
    """The same for as many entries of sample i from l on as there are lanes."""
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
        store_above(gap, fill(quiet, gap), flags[i], l)


@compiled(allocates=True)
def measure(rows, costs, scoring, first, last, alpha, quiet, flags, sums):
    """Losses, gap, dual value and S per label over the samples first..last, and what is left to do.

    Adds to the four rows of `sums` (float64, one entry per label) and marks in `flags`, unless it is empty,
    the entries whose share c max(0, g) - alpha g of the gap, g the gradient (29), is above `quiet`.
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
            measure_lanes(i, l, LINE, costs, scores, alpha, quiet, flags, sums)
            l += line
        while l < L:
            measure_entry(i, l, costs, scores[l], alpha, quiet, flags, sums)
            l += ONE


class Columns(NamedTuple):
    """The scaled rows, what the norm charges the weight of each column, and the diagonal of R."""

    X: np.ndarray
    ridge: np.ndarray
    r: np.ndarray


class NewtonState(NamedTuple):
    """What all labels keep between calls, label-major.

    `omega`, `primal` and `dual` have one number per label; `centre`, `scores` and `best_share` are L x N,
    `z` and `best_z` L x D. The best weights and the best shares need not be of the same step.
    """

    omega: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    centre: np.ndarray
    scores: np.ndarray
    best_share: np.ndarray
    z: np.ndarray
    best_z: np.ndarray


class Shrinking(NamedTuple):
    """When a proximal step is solved, and omega of the next: see `newton.NewtonRule`."""

    shrink: float
    least: float
    solved: float


class Work(NamedTuple):
    """Of one label and step: ridge, V, the direction, shares, change of the scores, rows of H, H."""

    ridge: np.ndarray
    V: np.ndarray
    d: np.ndarray
    share: np.ndarray
    change: np.ndarray
    tile: np.ndarray
    H: np.ndarray


class Entries(NamedTuple):
    """The entries of one label."""

    y: np.ndarray
    c: np.ndarray
    m: np.ndarray


@helper(reorder=True, hot=True)
def place(X, entries, f, centre, omega, share, V):
    """Shares t = clip(a + g / omega, 0, 1) and V = X'(y c t) at the scores f.

    Returns the losses, <m, alpha> and the part of the gap that is left once Z and V agree,
    sum of c (max(g, 0) - t g).
    """
    y, c, m = entries
    D = X.shape[1]
    loss, value, left = 0.0, 0.0, 0.0
    for j in range(D):
        V[j] = 0.0
    for i in range(X.shape[0]):
        g = m[i] - y[i] * f[i]
        t = min(max(centre[i] + g / omega, 0.0), 1.0)
        share[i] = t
        hinge = max(g, 0.0)
        loss += c[i] * hinge
        value += m[i] * c[i] * t
        left += c[i] * (hinge - t * g)
        step = y[i] * c[i] * t
        if step != 0.0:
            for j in range(D):
                V[j] += step * X[i, j]
    return loss, value, left


@helper(reorder=True, hot=True)
def hessian(X, ridge, c, share, omega, tile, H):
    """Lower triangle of H = diag(ridge) + sum of c / omega x x' over the entries within their boxes."""
    n, D = X.shape
    for a in range(D):
        for b in range(a):
            H[a, b] = 0.0
        H[a, a] = ridge[a]
    filled = 0
    for i in range(n + 1):
        if i < n:
            if not (0.0 < share[i] < 1.0 and c[i] > 0.0):
                continue
            root = np.sqrt(c[i] / omega)
            for j in range(D):
                tile[filled, j] = root * X[i, j]
            filled += 1
        elif filled > 0:
            for k in range(filled, TILE):
                for j in range(D):
                    tile[k, j] = 0.0
            filled = TILE
        if filled == TILE:
            filled = 0
            for a in range(D):
                t0, t1, t2, t3 = tile[0, a], tile[1, a], tile[2, a], tile[3, a]
                t4, t5, t6, t7 = tile[4, a], tile[5, a], tile[6, a], tile[7, a]
                for b in range(a + 1):
                    H[a, b] += (
                        (t0 * tile[0, b] + t1 * tile[1, b] + t2 * tile[2, b] + t3 * tile[3, b])
                        + (t4 * tile[4, b] + t5 * tile[5, b] + t6 * tile[6, b] + t7 * tile[7, b])
                    )  # fmt: skip


@helper(reorder=True, hot=True)
def solve(H, b, d):
    """d = H^-1 b by a Cholesky factorisation in the place of H."""
    D = len(b)
    for i in range(D):
        diagonal = H[i, i]
        for j in range(i):
            total = H[i, j]
            for k in range(j):
                total -= H[i, k] * H[j, k]
            H[i, j] = total / H[j, j]
        pivot = diagonal
        for k in range(i):
            pivot -= H[i, k] * H[i, k]
        H[i, i] = np.sqrt(max(pivot, PIVOT * diagonal))
    for i in range(D):
        total = b[i]
        for k in range(i):
            total -= H[i, k] * d[k]
        d[i] = total / H[i, i]
    for i in range(D - 1, -1, -1):
        d[i] /= H[i, i]
        for k in range(i):
            d[k] -= H[i, k] * d[i]


@helper(reorder=True, hot=True)
def slope(entries, f, change, centre, omega, length):
    """What the losses add to the slope of the smoothed objective at f + length * change."""
    y, c, m = entries
    total = 0.0
    for i in range(len(f)):
        g = m[i] - y[i] * (f[i] + length * change[i])
        t = min(max(centre[i] + g / omega, 0.0), 1.0)
        total -= y[i] * c[i] * t * change[i]
    return total


@helper(hot=True)
def search(entries, f, change, centre, omega, first, bend):
    """Length of the step: where the slope, `first` < 0 at zero and never falling, has come to a tenth.

    `bend` is the curvature of the norm along the step.
    """
    start = first - slope(entries, f, change, centre, omega, 0.0)
    low, at_low, high, at_high = 0.0, first, np.inf, 0.0
    length = 1.0
    for _ in range(LOOKS):
        s = start + length * bend + slope(entries, f, change, centre, omega, length)
        if abs(s) <= -FLAT * first:
            break
        if s < 0.0:
            low, at_low = length, s
        else:
            high, at_high = length, s
        if high == np.inf:
            length *= 2.0
        else:
            length = low + (high - low) * min(max(at_low / (at_low - at_high), 0.05), 0.95)
    return length


@helper(reorder=True, hot=True)
def product(X, d, change):
    """change = X d."""
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += X[i, j] * d[j]
        change[i] = total


@helper(hot=True)
def note(l, ridge, V, sums, share, state):
    """Keep weights and shares that are better than those before; returns how far Z and V are apart.

    `sums` are the losses and <m, alpha>; the distance is 1/2 |ridge z - V|^2, in the norm of the dual.
    """
    loss, value = sums
    z = state.z[l]
    norm, dual_norm, apart = 0.0, 0.0, 0.0
    for j in range(len(V)):
        grad = ridge[j] * z[j] - V[j]
        norm += ridge[j] * z[j] * z[j]
        dual_norm += V[j] * V[j] / ridge[j]
        apart += grad * grad / ridge[j]
    primal, dual = 0.5 * norm + loss, value - 0.5 * dual_norm
    if primal < state.primal[l]:
        state.primal[l] = primal
        for j in range(len(z)):
            state.best_z[l, j] = z[j]
    if dual > state.dual[l]:
        state.dual[l] = dual
        for i in range(len(share)):
            state.best_share[l, i] = share[i]
    return 0.5 * apart


@helper(hot=True)
def descend(X, entries, centre, omega, z, f, work):
    """One Newton step with a line search on z and its scores f; false when rounding has eaten it."""
    ridge, V, d, share, change, tile, H = work
    hessian(X, ridge, entries.c, share, omega, tile, H)
    for j in range(len(d)):
        V[j] -= ridge[j] * z[j]
    solve(H, V, d)
    first, bend = 0.0, 0.0
    for j in range(len(d)):
        first -= V[j] * d[j]
        bend += ridge[j] * d[j] * d[j]
    if not first < 0.0:
        return False
    product(X, d, change)
    length = search(entries, f, change, centre, omega, first, bend)
    for j in range(len(d)):
        z[j] += length * d[j]
    for i in range(len(f)):
        f[i] += length * change[i]
    return True


@compiled(allocates=True)
def newton_labels(columns, costs, labels, targets, n_steps, rule, state):
    """Up to `n_steps` Newton steps on each of `labels`; one whose gap is at most its target rests.

    The target of a label is targets[0] times its objective plus targets[1].
    """
    X = columns.X
    n, D = X.shape
    y, c, m, share, change = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    ridge, V = np.empty(D), np.empty(D)
    work = Work(ridge, V, np.empty(D), share, change, np.empty((TILE, D)), np.empty((D, D)))
    entries = Entries(y, c, m)
    for position in range(len(labels)):
        l = labels[position]
        f, centre, z = state.scores[l], state.centre[l], state.z[l]
        for i in range(n):
            y[i] = costs.signs[i, l]
            c[i], m[i] = entry_costs(costs, i, l)
        for j in range(D):
            ridge[j] = columns.ridge[j] / columns.r[l]
        omega = state.omega[l]
        for _ in range(n_steps):
            loss, value, left = place(X, entries, f, centre, omega, share, V)
            apart = note(l, ridge, V, (loss, value), share, state)
            if state.primal[l] - state.dual[l] <= targets[0] * state.primal[l] + targets[1]:
                break
            solved = apart <= rule.solved * left
            if solved:
                for i in range(n):
                    centre[i] = share[i]
                omega = max(rule.shrink * omega, rule.least)
                place(X, entries, f, centre, omega, share, V)
            if not descend(X, entries, centre, omega, z, f, work) and not solved:
                break
        state.omega[l] = omega


@compiled
def add_squares(rows, near, weights, system):
    """Add sum_t weights_t z_i z_i', i = near_t, for sparse rows z: the diagonal and what is below it."""
    data, indices, indptr, _ = rows
    for t in range(near.shape[0]):
        first, last = indptr[near[t]], indptr[near[t] + 1]
        for a in range(first, last):
            line, x = system[indices[a]], weights[t] * data[a]
            for b in range(first, a + 1):
                line[indices[b]] += x * data[b]
