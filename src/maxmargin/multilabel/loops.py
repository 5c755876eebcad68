"""Inner loops of the linear multi-label machine (M3L), for the scaling of problems/m3l.py.

Letters: N samples, L labels, D features. Y signs (N x L: +1, -1, 0 unknown), alpha dual
variables in [0, c_il], W or T weights stored feature-major with the bias last ((D+1) x L),
g_il = m_il - y_il f_il the gradient of the dual, r the diagonal of R.

The bias is a primal variable of its own. At the optimum it equals bias * S_l, S_l = sum_i A_il;
while samples are visited it answers a step d of one of them by pull[l] * bias * d, and after each
pass it is drawn towards bias * S by the factor pull[l] (see solvers/_bias.py). So the curvature
along one variable is r_l (q_i + rate_l), q_i = |x_i|^2, rate = pull * bias^2.

Costs of an entry: its box is c_il = weight[i, l] * upper[y, l] (weight may have one column
for all labels) and its margin m_il = margin[y, l], or margin[i, l] when `tied`. In the tables
`upper` and `margin` row 0 is for y = -1 and row 1 for y = +1. Ranges of labels lo..hi are
unsigned, so that no loop has to think of negative indices.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import (
    dot,
    row_add,
    row_dot,
    row_outer,
    row_outer_few,
    row_scores,
)


@compiled(inline=True)
def entry_costs(i, l, Y, weight, upper, margin, tied):
    """Box and margin of one entry."""
    y = Y[i, l]
    if y == 0:
        return upper.dtype.type(0), upper.dtype.type(0)
    side = 1 if y > 0 else 0
    c = upper[side, l] * (weight[i, l] if weight.shape[1] > 1 else weight[i, 0])
    return c, (margin[i, l] if tied else margin[side, l])


@compiled(inline=True, reorder=True)
def row_costs(i, Y, weight, upper, margin, tied, lo, hi, c, m):
    """Boxes and margins of the entries lo..hi of sample i."""
    zero = upper.dtype.type(0)
    y = Y[i]
    w = weight[i, 0]
    for l in range(lo, hi):
        c[l] = w * (upper[1, l] if y[l] > 0 else (upper[0, l] if y[l] < 0 else zero))
    if weight.shape[1] > 1:
        for l in range(lo, hi):
            c[l] = weight[i, l] * (upper[1, l] if y[l] > 0 else (upper[0, l] if y[l] < 0 else zero))
    if tied:
        for l in range(lo, hi):
            m[l] = margin[i, l]
    else:
        for l in range(lo, hi):
            m[l] = margin[1, l] if y[l] > 0 else margin[0, l]


@compiled
def accumulate(rows, bias, alpha, Y, lo, hi, V):
    """V[:, lo:hi] += X'(Y * alpha)[:, lo:hi], skipping the zeros of alpha."""
    n = alpha.shape[0]
    step = np.zeros(alpha.shape[1], V.dtype)
    few = np.empty(alpha.shape[1], np.int64)
    for i in range(n):
        n_few = 0
        for l in range(lo, hi):
            if alpha[i, l] != 0:
                step[l] = Y[i, l] * alpha[i, l]
                few[n_few] = l
                n_few += 1
        if n_few:
            row_outer_few(rows, i, bias, step, few, n_few, V)


@compiled
def measure(
    rows, bias, first, last, alpha, Y, weight, upper, margin, tied,
    T, G, coupled, quiet, flags, loss, gap, value, S,
):  # fmt: skip
    """Losses, gap and dual value per label over the samples first..last, and what is left to do.

    Scores are f_i = x_i'T, or x_i'T G when `coupled`. Adds to `loss`, `gap`, `value` and S
    (float64, one entry per label) and marks in `flags` the entries whose share of the gap is above `quiet`.
    """
    L = alpha.shape[1]
    K = T.shape[1]
    real = T.dtype.type
    zero = real(0)
    t = np.empty(K, T.dtype)
    f = np.empty(L, T.dtype)
    c = np.empty(L, T.dtype)
    m = np.empty(L, T.dtype)
    for i in range(first, last):
        row_scores(rows, i, bias, T, 0, K, t)
        if coupled:
            for l in range(L):
                f[l] = zero
            for k in range(K):
                for l in range(L):
                    f[l] += t[k] * G[k, l]
        else:
            for l in range(L):
                f[l] = t[l]
        row_costs(i, Y, weight, upper, margin, tied, 0, L, c, m)
        y, a, marks = Y[i], alpha[i], flags[i]
        for l in range(L):
            g = m[l] - real(y[l]) * f[l]
            hinge = c[l] * max(g, zero)
            share = hinge - real(a[l]) * g
            loss[l] += hinge
            gap[l] += share
            value[l] += m[l] * real(a[l])
            S[l] += y[l] * a[l]
            marks[l] = share > quiet


@compiled
def sweep_labels(
    rows, bias, pull, order, lo, hi, alpha, Y, weight, upper, margin, tied,
    q, r, W, S,
):  # fmt: skip
    """One pass of dual coordinate ascent over all labels lo..hi of every sample in `order`.

    For labels that are not coupled (R diagonal, r its diagonal): eqs. (37)-(40) of the paper
    for all labels of a sample at once, which is exact because they do not interact.
    """
    L = alpha.shape[1]
    real = W.dtype.type
    zero, square = real(0), bias * bias
    f = np.empty(L, W.dtype)
    c = np.empty(L, W.dtype)
    m = np.empty(L, W.dtype)
    step = np.empty(L, W.dtype)
    few = np.empty(L, np.int64)
    for position in range(order.shape[0]):
        i = order[position]
        row_scores(rows, i, bias, W, lo, hi, f)
        row_costs(i, Y, weight, upper, margin, tied, lo, hi, c, m)
        y, a = Y[i], alpha[i]
        n_few = 0
        changed = 0
        w = W[W.shape[0] - 1]
        for l in range(lo, hi):
            g = m[l] - real(y[l]) * f[l]
            curvature = (q[i] + pull[l] * square) * r[l]
            target = a[l] + g / curvature if curvature > zero else (c[l] if g > zero else a[l])
            new = min(max(target, zero), c[l])
            step[l] = real(y[l]) * (new - a[l]) * r[l]
            S[l] += real(y[l]) * (new - a[l])
            a[l] = new
        for l in range(lo, hi):
            w[l] += pull[l] * bias * step[l]
            changed += step[l] != zero
        if 4 * changed > hi - lo:
            row_outer(rows, i, zero, step, lo, hi, W)
        elif changed:
            for l in range(lo, hi):
                if step[l] != zero:
                    few[n_few] = l
                    n_few += 1
            row_outer_few(rows, i, zero, step, few, n_few, W)


@compiled
def gather_lists(flags, order, ends, members):
    """Write the samples marked for each label into `members`, in the order given.

    `ends[l]` is the start of label l's list on entry and its end on return.
    """
    L = flags.shape[1]
    for position in range(order.shape[0]):
        i = order[position]
        for l in range(L):
            if flags[i, l]:
                members[ends[l]] = i
                ends[l] += 1


@compiled
def polish_labels(
    rows, bias, pull, labels, starts, members, alpha, Y, weight, upper,
    margin, tied, q, r, WT, S, targets, n_passes, draws, remaining,
):  # fmt: skip
    """Dual coordinate ascent on the listed samples of each label in `labels`, one label at a time.

    Rows of WT are weight vectors (L x (D+1)), so that the one in work stays in cache. Every
    pass goes through the list in a new random order (Fisher-Yates on the numbers in `draws`);
    a variable at a bound is dropped once its gradient points out of the box by more than the
    largest violation of the pass before. A label is done when the gaps seen during a pass add
    up to no more than its target; what its last pass saw is left in `remaining`.
    """
    real = WT.dtype.type
    zero, infinity = real(0), real(np.inf)
    square = bias * bias
    longest = 0
    for position in range(labels.shape[0]):
        l = labels[position]
        longest = max(longest, starts[l + 1] - starts[l])
    a, y, c, m = (
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
    )
    curvature = np.empty(longest, WT.dtype)
    turn = np.empty(longest, np.int64)
    for position in range(labels.shape[0]):
        l = labels[position]
        listed = members[starts[l] : starts[l + 1]]
        w = WT[l]
        active = listed.shape[0]
        for t in range(active):
            i = listed[t]
            a[t], y[t], curvature[t] = alpha[i, l], Y[i, l], (q[i] + pull[l] * square) * r[l]
            c[t], m[t] = entry_costs(i, l, Y, weight, upper, margin, tied)
            turn[t] = t
        small = real(0.1 * targets[l] / max(active, 1))
        low_reach, high_reach = -infinity, infinity
        cursor, mask = l * 7919, draws.shape[0] - 1
        for _ in range(n_passes):
            for u in range(active - 1, 0, -1):
                cursor += 1
                v = np.int64((np.uint64(draws[cursor & mask]) * np.uint64(u + 1)) >> np.uint64(32))
                turn[u], turn[v] = turn[v], turn[u]
            low, high = zero, zero
            left = 0.0
            t = 0
            while t < active:
                o = turn[t]
                i = listed[o]
                g = m[o] - y[o] * real(row_dot(rows, i, bias, w))
                share = c[o] * max(g, zero) - a[o] * g
                left += share
                if (a[o] == zero and g < low_reach) or (a[o] == c[o] and g > high_reach):
                    active -= 1
                    turn[t], turn[active] = turn[active], o
                    continue
                if share > small:
                    low, high = min(low, g), max(high, g)
                    target = a[o] + g / curvature[o] if curvature[o] > zero else c[o]
                    new = min(max(target, zero), c[o])
                    step = y[o] * (new - a[o])
                    row_add(rows, i, pull[l] * bias, step * r[l], w)
                    S[l] += step
                    a[o] = new
                t += 1
            lag = bias * S[l] - w[w.shape[0] - 1] / r[l]
            w[w.shape[0] - 1] += pull[l] * real(lag) * r[l]
            left += 0.5 * r[l] * ((1 - pull[l]) * lag) ** 2
            low_reach = low if low < zero else -infinity
            high_reach = high if high > zero else infinity
            remaining[l] = left
            if left <= targets[l]:
                break
        for t in range(listed.shape[0]):
            alpha[listed[t], l] = a[t]


@compiled
def sweep_samples(
    rows, bias, pull, order, label_order, alpha, Y, weight, upper, margin, tied,
    q, r, T, H, G, factored, flags, counts, low, high, S,
):  # fmt: skip
    """One pass over the marked entries of the samples in `order`, for coupled labels.

    All labels of a sample form one block with Hessian q_i R; one Gauss-Seidel sweep through
    its marked labels keeps t = x_i'T up to date, so that each score is one product with a
    row of G (L x K). R = G H' with H the identity (K = L, T = V) or, for a prior of low rank,
    G = H = P' (K = rank, T = V P').

    `low` and `high` (two rows: read, write) carry the extreme projected gradients per label;
    an entry at a bound whose gradient points out of the box beyond them is unmarked.
    """
    L, K = alpha.shape[1], T.shape[1]
    real = T.dtype.type
    zero, square = real(0), bias * bias
    t = np.empty(K, T.dtype)
    step = np.empty(K, T.dtype)
    few = np.empty(K, np.int64)
    for position in range(order.shape[0]):
        i = order[position]
        if counts[i] == 0:
            continue
        row_scores(rows, i, bias, T, 0, K, t)
        for k in range(K):
            step[k] = zero
        n_few = 0
        moved = False
        for place in range(L):
            l = label_order[place]
            if not flags[i, l]:
                continue
            f = dot(G[l], t)
            c, m = entry_costs(i, l, Y, weight, upper, margin, tied)
            y, a = real(Y[i, l]), alpha[i, l]
            g = m - y * f
            at_zero, at_top = a == zero, a == c
            if (at_zero and g < low[0, l]) or (at_top and g > high[0, l]):
                flags[i, l] = False
                counts[i] -= 1
                continue
            if not (at_zero and g < zero) and not (at_top and g > zero):
                low[1, l], high[1, l] = min(low[1, l], g), max(high[1, l], g)
            own = q[i] + pull[l] * square
            curvature = own * r[l]
            target = a + g / curvature if curvature > zero else (c if g > zero else a)
            new = min(max(target, zero), c)
            if new == a:
                continue
            alpha[i, l] = new
            d = y * (new - a)
            S[l] += d
            moved = True
            if factored:
                h_row = H[l]
                for k in range(K):
                    t[k] += own * d * h_row[k]
                    step[k] += d * h_row[k]
                    T[T.shape[0] - 1, k] += pull[l] * bias * d * h_row[k]
            else:
                t[l] += own * d
                step[l] = d
                T[T.shape[0] - 1, l] += pull[l] * bias * d
                few[n_few] = l
                n_few += 1
        if moved:
            if factored or n_few > K // 4:
                row_outer(rows, i, zero, step, 0, K, T)
            else:
                row_outer_few(rows, i, zero, step, few, n_few, T)
