"""Loops of the sweeps on linear M3L, in the scaling and letters of `problem`.

Names as in `loops`; r is the diagonal of R, q_i = |x_i|^2.

The bias is a primal variable (see `sweeps`). At the optimum it equals bias * S_l, S_l = sum_i A_il. During a
pass it answers a step d of a sample by damping[l] * bias * d, and after each pass it moves towards bias * S
by the factor damping[l]. So the curvature along one variable is r_l (q_i + damping_l bias^2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import (
    add,
    add_product,
    as_reals,
    bits_nonzero,
    divide,
    fill,
    larger,
    load,
    load_row,
    lowest_bit,
    multiply,
    prefetch,
    store,
    store_above,
    subtract,
    where_above,
)
from maxmargin.core.rows import (
    LINE,
    ONE,
    dot,
    line_scores,
    prefetch_row,
    row_add,
    row_dot,
    row_outer,
    row_outer_few,
    row_scores,
    shuffle,
    vector_product,
)
from maxmargin.multilabel.loops import entry_costs, lane_costs, list_nonzeros

# Visits ahead for which rows, and lists of samples, are prefetched.
PREFETCH, PREFETCH_LISTS = 2, 16
# Up to this number of columns are updated one by one, more by cache lines; any number to 16 is as fast on
# RCV1.
FEW = 2
# An entry is dropped if its gradient points out of its box by this part of the largest violation; with the
# whole violation per-label passes took 2 to 8 % longer on five sets.
OUT = np.float32(0.25)
# From this number of marked labels of a sample on, their scores come from one product with R, which takes as
# long as about this number of products with single rows of R.
MANY = 16
NOTHING = np.uint64(0)
# One lane, for labels that do not fill a cache line.
SINGLE = (0,)


class Geometry(NamedTuple):
    """The terms of the curvature of a variable: bias, its damping per label, |x_i|^2, diagonal of R."""

    bias: np.floating
    damping: np.ndarray
    q: np.ndarray
    r: np.ndarray


class Ascent(NamedTuple):
    """State of the sweeps: dual variables, the weights they make, and S = sum_i A_il."""

    alpha: np.ndarray
    W: np.ndarray
    S: np.ndarray


class Lists(NamedTuple):
    """Samples of per-label passes: those of label l are members[starts[l]:starts[l + 1]].

    A label reads its random numbers from position `first` on and ends at a gap of `target`.
    """

    starts: np.ndarray
    members: np.ndarray
    first: np.ndarray
    target: np.ndarray


class PassLimits(NamedTuple):
    """Most passes over a label, and the part of the gap of its first pass at which it ends.

    Entries with less than the part `negligible` of an equal share of the target gap take no step.
    """

    passes: int
    least: float
    negligible: float


class LabelCopy(NamedTuple):
    """The listed entries of one label side by side, and the order in which they are visited.

    `mean` is the average of `a` over the time of the last pass.
    """

    a: np.ndarray
    mean: np.ndarray
    y: np.ndarray
    c: np.ndarray
    m: np.ndarray
    q: np.ndarray
    order: np.ndarray


class Steps(NamedTuple):
    """Of some labels of a sample, on whole cache lines: scores, new dual variables, steps times y."""

    f: np.ndarray
    new: np.ndarray
    step: np.ndarray


class SampleLists(NamedTuple):
    """Entries to visit: those of sample i are `counts[i]` from `starts[i]` on.

    `before` is `a` before the last visit. For empty `starts` see `sweep_samples`.
    """

    starts: np.ndarray
    counts: np.ndarray
    label: np.ndarray
    a: np.ndarray
    before: np.ndarray
    y: np.ndarray
    c: np.ndarray
    m: np.ndarray


class Mixing(NamedTuple):
    """R = G H' for scores x_i'T G': H the identity (T = V), or H = G for a prior of low rank (`factored`).

    G is L x K, padded with zero columns as T is.
    """

    G: np.ndarray
    factored: bool


@helper(reorder=True)
def lane_steps(i, lo, k, lanes, costs, geometry, a, mark, steps):
    """The steps (37) of the labels of sample i from lo + k on, one per lane; their scores are given.

    Marks the variables that moved or are inside their boxes.
    """
    bias, damping, q, r = geometry
    l = lo + k
    f, old = load(steps.f, k, lanes), load(a, l, lanes)
    zero = fill(q.dtype.type(0), f)
    y = as_reals(load_row(costs.signs, i, l, lanes), f)
    c, m = lane_costs(costs, i, l, lanes, y)
    g = subtract(m, multiply(y, f))
    curvature = multiply(add_product(fill(q[i], f), bias * bias, load(damping, l, lanes)), load(r, l, lanes))
    rise = where_above(curvature, zero, divide(g, curvature), where_above(g, zero, c, zero))
    new = larger(add(old, rise), zero)
    new = where_above(new, c, c, new)
    step = multiply(y, subtract(new, old))
    within = where_above(c, new, new, zero)
    store_above(larger(larger(step, subtract(zero, step)), within), zero, mark, l)
    store(new, steps.new, k)
    store(step, steps.step, k)


@compiled(allocates=True)
def sweep_labels(rows, costs, geometry, order, lo, hi, state, marks):
    """One pass of dual coordinate ascent over all labels lo..hi of every sample in `order`.

    For independent labels (R diagonal, r its diagonal): the step (37) for all labels of a sample at once,
    which is exact because they do not interact. The weights of `state` are those of these labels, padded to
    whole cache lines. Marks the variables that moved or are inside their boxes.
    """
    signs = costs.signs
    bias, damping, _, r = geometry
    alpha, W, S = state
    L, size, width = alpha.shape[1], hi - lo, np.uint64(W.shape[1])
    line, real = np.uint64(len(LINE)), W.dtype.type
    step = np.zeros(width, W.dtype)
    steps = Steps(np.empty(width, W.dtype), np.empty(width, W.dtype), step)
    scale = np.zeros(width, W.dtype)
    response = np.zeros(width, W.dtype)
    for l in range(lo, hi):
        scale[l - lo], response[l - lo] = r[l], damping[l] * bias
    few = np.empty(width, np.uint64)
    w = W[W.shape[0] - 1]
    for position in range(order.shape[0]):
        i = np.uint64(order[position])
        ahead = order[min(position + PREFETCH, order.shape[0] - 1)]
        prefetch_row(rows, ahead)
        for p in range(ahead * L + np.int64(lo), ahead * L + np.int64(hi), 16):
            prefetch(alpha, p)
        for p in range(ahead * L + np.int64(lo), ahead * L + np.int64(hi), 64):
            prefetch(signs, p)
            prefetch(marks, p)
        # Scores of all labels, then the steps (37) of all labels, LINE at a time.
        line_scores(rows, i, bias, W, steps.f)
        a, mark = alpha[i], marks[i]
        done = NOTHING
        while done < size:
            if size < line:
                lane_steps(i, lo, done, SINGLE, costs, geometry, a, mark, steps)
                done += ONE
            else:
                # The last lanes overlap the ones before; their steps are computed again with the same result.
                done = min(done, size - line)
                lane_steps(i, lo, done, LINE, costs, geometry, a, mark, steps)
                done += line
        # Store the nonzero steps: alpha, S and the bias; then w_l += r_l d x_i.
        n_few = NOTHING
        for at in range(NOTHING, width, line):
            moves = load(step, at, LINE)
            bits = bits_nonzero(moves)
            if bits == NOTHING:
                continue
            scaled = multiply(moves, load(scale, at, LINE))
            store(add(load(w, at, LINE), multiply(load(response, at, LINE), scaled)), w, at)
            while bits != NOTHING:
                k = at + lowest_bit(bits)
                bits &= bits - ONE
                a[lo + k] = steps.new[k]
                S[lo + k] += step[k]
                few[n_few] = k
                n_few += ONE
            store(scaled, step, at)
        if n_few > FEW:
            row_outer(rows, i, real(0), step, NOTHING, width, W)
        elif n_few:
            row_outer_few(rows, i, real(0), step, few, n_few, W)


@compiled(allocates=True)
def gather_lists(flags, order, lo, hi, ends, members):
    """Write the samples marked for each of the labels lo..hi into `members`, in the given order.

    `flags` are 0 or 1. `ends[l]` is the start of label l's list on entry and its end on return.
    """
    few = np.empty(hi - lo, np.uint64)
    ours = ends[lo:hi]
    for position in range(order.shape[0]):
        i = order[position]
        for t in range(list_nonzeros(flags[i, lo:hi], few)):
            k = few[t]
            members[ours[k]] = i
            ours[k] += 1


@helper(hot=True)
def label_pass(rows, listed, copy, active, bias_and_damping, r, w, total, small, bounds):
    """One pass of coordinate ascent over the active entries of one label.

    An entry at a bound whose gradient is outside `bounds` is removed: the last active one takes its position.
    `total` is S of the label. Returns the number of active entries, the extreme gradients of the entries that
    moved, the sum of the gaps before the steps, and the new S.
    """
    a, mean, y, c, m, q, order = copy
    bias, damping = bias_and_damping
    square = damping * bias * bias
    lower, upper = bounds
    real = w.dtype.type
    zero = real(0)
    low, high = zero, zero
    left = 0.0
    t = 0
    turns = real(active)
    while t < active:
        o = order[t]
        i = listed[o]
        mean[o] = a[o]
        prefetch_row(rows, listed[order[min(t + PREFETCH, active - 1)]])
        g = m[o] - y[o] * real(row_dot(rows, i, bias, w))
        share = c[o] * max(g, zero) - a[o] * g
        left += share
        if (a[o] == zero and g < lower) or (a[o] == c[o] and g > upper):
            active -= 1
            order[t], order[active] = order[active], o
            continue
        if share > small:
            low, high = min(low, g), max(high, g)
            curvature = (q[o] + square) * r
            target = a[o] + g / curvature if curvature > zero else c[o]
            new = min(max(target, zero), c[o])
            step = y[o] * (new - a[o])
            row_add(rows, i, damping * bias, step * r, w)
            total += step
            mean[o] = min(a[o] + (new - a[o]) * (real(active - t) / turns), c[o])
            a[o] = new
        t += 1
    return active, low, high, left, total


@helper(hot=True)
def apply_means(rows, listed, copy, bias_and_damping, r, w, total):
    """Move the entries of one label to their means; return the new S."""
    a, mean, y = copy.a, copy.mean, copy.y
    bias, damping = bias_and_damping
    for t in range(listed.shape[0]):
        if mean[t] != a[t]:
            step = y[t] * (mean[t] - a[t])
            row_add(rows, listed[t], damping * bias, step * r, w)
            total += step
    return total


@compiled(allocates=True)
def label_passes(rows, costs, geometry, labels, lists, draws, limits, state, remaining):
    """Dual coordinate ascent (37) on the listed samples of each label in `labels`, one label at a time.

    The weights of `state` are label-major (L x (D+1)), so that the vector of a label stays in cache. Every
    pass visits the list in a new random order. A variable at a bound is dropped if its gradient points out of
    the box by more than a quarter (`OUT`) of the largest violation of the pass before. If the bias passes its
    target, its damping is halved from then on. A label ends when the gaps seen during a pass add up to at
    most its target, or to the part `limits.least` of its first pass; the gap of its last pass is written to
    `remaining`. Its variables end at their means over the time of that pass.
    """
    bias, dampings, norms, r = geometry
    starts, members, first, targets = lists
    passes, least, negligible = limits
    alpha, WT, S = state
    signs = costs.signs
    real = WT.dtype.type
    zero, half, infinity = real(0), real(0.5), real(np.inf)
    longest = 0
    for position in range(labels.shape[0]):
        l = labels[position]
        longest = max(longest, starts[l + 1] - starts[l])
    a, mean, y, c, m, q = (
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
        np.empty(longest, WT.dtype),
    )
    order = np.empty(longest, np.int64)
    copy = LabelCopy(a, mean, y, c, m, q, order)
    for position in range(labels.shape[0]):
        l = labels[position]
        listed = members[starts[l] : starts[l + 1]]
        w = WT[l]
        active = listed.shape[0]
        for t in range(active):
            i = listed[t]
            a[t], y[t], q[t] = alpha[i, l], signs[i, l], norms[i]
            c[t], m[t] = entry_costs(costs, i, l)
            order[t] = t
        bounds = -infinity, infinity
        cursor = first[l]
        target, small = targets[l], zero
        damping, last = dampings[l], 0.0
        for done in range(passes):
            cursor = shuffle(order, active, draws, cursor)
            active, low, high, left, S[l] = label_pass(
                rows, listed, copy, active, (bias, damping), r[l], w, S[l], small, bounds
            )
            # The bias moves towards bias * S; half of the squared rest is part of the gap.
            residual = bias * S[l] - w[w.shape[0] - 1] / r[l]
            w[w.shape[0] - 1] += damping * real(residual) * r[l]
            left += 0.5 * r[l] * ((1 - damping) * residual) ** 2
            if residual * last < 0.0 and damping < 1:  # at 1 the residual is rounding
                damping *= half
            last = residual
            bounds = (OUT * low if low < zero else -infinity), (OUT * high if high > zero else infinity)
            remaining[l] = left
            if done == 0:
                target = max(target, least * left)
                small = real(negligible * target / max(active, 1))
            if left <= target:
                break
        S[l] = apply_means(rows, listed, copy, (bias, damping), r[l], w, S[l])
        for t in range(listed.shape[0]):
            alpha[listed[t], l] = mean[t]


@compiled(allocates=True)
def gather_entries(flags, costs, alpha, lists):
    """List the marked entries of every sample, one after the other; `flags` are 0 or 1."""
    few = np.empty(flags.shape[1], np.uint64)
    e = 0
    for i in range(flags.shape[0]):
        count = list_nonzeros(flags[i], few)
        lists.starts[i], lists.counts[i] = e, count
        for t in range(count):
            l = few[t]
            lists.label[e], lists.a[e], lists.y[e] = l, alpha[i, l], costs.signs[i, l]
            lists.c[e], lists.m[e] = entry_costs(costs, i, l)
            e += 1
    lists.starts[flags.shape[0]] = e


@helper(reorder=True)
def lane_candidates(costs, i, l, lanes, f, alpha):
    """Bits of the entries of sample i from l on with a nonzero dual variable or a positive gradient."""
    old = load_row(alpha, i, l, lanes)
    y = as_reals(load_row(costs.signs, i, l, lanes), old)
    _, m = lane_costs(costs, i, l, lanes, y)
    g = subtract(m, multiply(y, load(f, l, lanes)))
    zero, one = fill(f.dtype.type(0), old), fill(f.dtype.type(1), old)
    return bits_nonzero(where_above(larger(old, g), zero, one, zero))


@helper(hot=True)
def list_sample(costs, i, f, alpha, lists):
    """List the entries of sample i with a dual variable or a positive gradient; return their number."""
    label, a, y, c, m = lists.label, lists.a, lists.y, lists.c, lists.m
    L, line = np.uint64(alpha.shape[1]), np.uint64(len(LINE))
    done, found = NOTHING, 0
    while done < L:
        if line > L:
            first = done
            bits = lane_candidates(costs, i, first, SINGLE, f, alpha)
            done += ONE
        else:
            # The last lanes overlap the ones before, which are listed already.
            first = min(done, L - line)
            bits = lane_candidates(costs, i, first, LINE, f, alpha) >> (done - first) << (done - first)
            done = first + line
        while bits != NOTHING:
            l = first + lowest_bit(bits)
            bits &= bits - ONE
            label[found], a[found], y[found] = l, alpha[i, l], costs.signs[i, l]
            c[found], m[found] = entry_costs(costs, i, l)
            found += 1
    return found


@compiled(allocates=True)
def sweep_samples(rows, costs, geometry, order, mixing, state, lists, bounds, small):
    """One pass over the listed entries of the samples in `order`, for coupled labels.

    All labels of a sample form one block with Hessian q_i R. One Gauss-Seidel sweep through its listed labels
    keeps t = x_i'T up to date, so that each score is one product with a row of G; if many are listed, it
    keeps the scores of all labels instead. Entries beyond the `bounds` leave their list; those with a gap
    below `small` take no step. Returns the gap before the steps.

    Without lists, the entries of a sample that may move are listed during the pass, and those that moved or
    are inside their boxes are marked. Then the primal objective before the steps is returned as well,
    otherwise 0.
    """
    bias, damping, q, r = geometry
    alpha, T, S = state
    marks, low, high = bounds
    G, factored = mixing
    starts, counts, label, a, before, y, c, m = lists
    everything = starts.shape[0] == 0
    L, K = alpha.shape[1], T.shape[1]
    real = T.dtype.type
    zero, half, square = real(0), real(0.5), bias * bias
    t = np.empty(K, T.dtype)
    scores = np.empty(max(L, K), T.dtype)
    step = np.zeros(K, T.dtype)
    few = np.empty(L, np.uint64)
    bottom = T[T.shape[0] - 1]
    seen, primal = 0.0, 0.0
    for position in range(order.shape[0]):
        i = order[position]
        if not everything:
            far = order[min(position + PREFETCH_LISTS, order.shape[0] - 1)]
            prefetch(starts, far)
            prefetch(counts, far)
        begin = 0 if everything else starts[i]
        end = begin if everything else begin + counts[i]
        if begin == end and not everything:
            continue
        ahead = order[min(position + PREFETCH, order.shape[0] - 1)]
        prefetch_row(rows, ahead)
        if everything:
            for p in range(ahead * L, ahead * L + L, 16):
                prefetch(alpha, p)
            for p in range(ahead * L, ahead * L + L, 64):
                prefetch(costs.signs, p)
                prefetch(marks, p)
        else:
            p = starts[ahead]
            prefetch(label, p)
            prefetch(a, p)
            prefetch(before, p)
            prefetch(y, p)
            prefetch(c, p)
            prefetch(m, p)
        row_scores(rows, i, bias, T, 0, K, t)
        many = not factored and (everything or end - begin > MANY)
        if many:
            vector_product(t, G, scores)
        if everything:
            if factored:
                for l in range(L):
                    scores[l] = dot(G[l], t)
            end = list_sample(costs, np.uint64(i), scores, alpha, lists)
        # Gauss-Seidel over the listed labels: gradient, shrinking, step.
        n_few = 0
        e = begin
        while e < end:
            l = label[e]
            f = scores[l] if many else dot(G[l], t)
            g = m[e] - y[e] * f
            share = c[e] * max(g, zero) - a[e] * g
            seen += share
            if everything:
                primal += c[e] * max(g, zero) + half * a[e] * (m[e] - g)
            at_zero, at_top = a[e] == zero, a[e] == c[e]
            before[e] = a[e]
            if (at_zero and g < low[0, l]) or (at_top and g > high[0, l]):
                end -= 1
                counts[i] -= 1
                label[e], label[end] = label[end], label[e]
                a[e], a[end] = a[end], a[e]
                before[e], before[end] = before[end], before[e]
                y[e], y[end] = y[end], y[e]
                c[e], c[end] = c[end], c[e]
                m[e], m[end] = m[end], m[e]
                continue
            if not (at_zero and g < zero) and not (at_top and g > zero):
                low[1, l], high[1, l] = min(low[1, l], g), max(high[1, l], g)
            if share < small:
                e += 1
                continue
            # Step (37) with the curvature of the label, then t and the rows of T that it changes.
            own = q[i] + damping[l] * square
            curvature = own * r[l]
            target = a[e] + g / curvature if curvature > zero else (c[e] if g > zero else a[e])
            a[e] = min(max(target, zero), c[e])
            d = y[e] * (a[e] - before[e])
            e += 1
            if d == zero:
                continue
            S[l] += d
            few[n_few] = l
            n_few += 1
            if factored:
                g_row = G[l]
                for k in range(K):
                    t[k] += own * d * g_row[k]
                    step[k] += d * g_row[k]
                    bottom[k] += damping[l] * bias * d * g_row[k]
            else:
                if many:
                    g_row = G[l]
                    for k in range(K):
                        scores[k] += own * d * g_row[k]
                else:
                    t[l] += own * d
                step[l] = d
                bottom[l] += damping[l] * bias * d
        if n_few:
            if factored or n_few > FEW:
                row_outer(rows, i, zero, step, 0, K, T)
            else:
                row_outer_few(rows, i, zero, step, few, n_few, T)
            for k in range(K):
                step[k] = zero
        if everything:
            for l in range(L):
                marks[i, l] = False
            for e in range(end):
                alpha[i, label[e]] = a[e]
                marks[i, label[e]] = a[e] != before[e] or zero < a[e] < c[e]
    return seen, primal
