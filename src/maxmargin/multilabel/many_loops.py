"""Loops of `many`: one label at a time on the few samples that matter to it, all samples in one scan.

Names as in `problem`. The members of a label are the samples with a dual variable of their own, its
positives first. Every other negative sample i has alpha_i = u lambda_i: one number u per label moves
them all along the shared direction m = sum_i lambda_i x_i, the *background* (see `many`).

A label of the block in work is a column of W ((D+1) x width, the bias last).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import row_add, row_column_dot, row_dot
from maxmargin.core.simd import add_product, fill, largest, load, load_row, multiply, store, subtract
from maxmargin.multilabel.sweep_loops import shuffle

# Buckets by which the worst violations are told from the others.
BUCKETS = 64


class LabelCosts(NamedTuple):
    """Weight of every sample, boxes (off, on) and margin of every label, constant feature, and the loss.

    The box of sample i for label l is weight[i] * upper[side, l]; with `squared` it is the factor of
    the squared hinge loss.
    """

    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    bias: float
    squared: bool


class Background(NamedTuple):
    """lambda (n_samples, sum 1), m = X'lambda (n_features), X m and |m|^2.

    For boxes of one: the largest u, and the curvature that the squared hinge loss adds along u.
    """

    share: np.ndarray
    m: np.ndarray
    products: np.ndarray
    square: float
    most: float
    ridge: float


class Members(NamedTuple):
    """The members of the labels in work: those of the k-th are rows[starts[k]:starts[k + 1]].

    The first n_on[k] of them are its positives. u is its background.
    """

    starts: np.ndarray
    rows: np.ndarray
    alpha: np.ndarray
    n_on: np.ndarray
    u: np.ndarray


class Aims(NamedTuple):
    """Of every label in work: its number, the gap to leave, the size up to which weights are dropped."""

    labels: np.ndarray
    target: np.ndarray
    cull: np.ndarray


class Weights(NamedTuple):
    """Sparse weights of the labels in work; the k-th has those from starts[k] to starts[k + 1]."""

    starts: np.ndarray
    features: np.ndarray
    values: np.ndarray


class Scratch(NamedTuple):
    """Zeros to work in: weights and q (n_features + 1), marks of features and the list of those marked."""

    w: np.ndarray
    q: np.ndarray
    marked: np.ndarray
    touched: np.ndarray


class Line(NamedTuple):
    """The direction u of one label without its members: |m - q|^2, its mass, curvature, largest u."""

    square: float
    mass: float
    curvature: float
    most: float


@compiled
def spread(rows, squares, weight, n_passes, share, w):
    """Coordinate ascent on sum_i lambda_i - 1/2 |X'lambda|^2, lambda >= 0: a short vector of the hull."""
    for _ in range(n_passes):
        for i in range(share.shape[0]):
            if weight[i] > 0.0 and squares[i] > 0.0:
                new = max(share[i] + (1.0 - row_dot(rows, i, 0.0, w)) / squares[i], 0.0)
                if new != share[i]:
                    row_add(rows, i, 0.0, new - share[i], w)
                    share[i] = new


@compiled
def gather_candidates(columns, rows, starts, on, limit, counts, chosen):
    """For every label the samples that share rare features with its positives, the nearest ones first cut.

    `columns` are the rare features as rows of X'. The k-th label takes up to limit[k] samples; they go
    to chosen[k], their number to counts[k].
    """
    values, members, indptr, _ = columns
    n = rows.indptr.shape[0] - 1
    scores = np.zeros(n, np.float32)
    touched = np.empty(n, np.int64)
    bucket = np.empty(BUCKETS, np.int64)
    for k in range(starts.shape[0] - 1):
        n_touched = 0
        for position in range(starts[k], starts[k + 1]):
            i = on[position]
            for t in range(rows.indptr[i], rows.indptr[i + 1]):
                j = rows.indices[t - rows.dense * rows.indptr[i]]
                x = np.float32(rows.data[t])
                for c in range(indptr[j], indptr[j + 1]):
                    other = members[c]
                    if scores[other] == 0.0:
                        touched[n_touched] = other
                        n_touched += 1
                    scores[other] += x * np.float32(values[c])
        for position in range(starts[k], starts[k + 1]):
            scores[on[position]] = 0.0
        highest = np.float32(0.0)
        for t in range(n_touched):
            highest = max(highest, scores[touched[t]])
        bucket[:] = 0
        for t in range(n_touched):
            f = scores[touched[t]]
            if f > 0.0:
                bucket[min(int(BUCKETS * f / highest), BUCKETS - 1)] += 1
        cut, total = BUCKETS, 0
        while cut > 0 and total + bucket[cut - 1] <= limit[k]:
            cut -= 1
            total += bucket[cut]
        found = 0
        for t in range(n_touched):
            f = scores[touched[t]]
            if f > 0.0 and min(int(BUCKETS * f / highest), BUCKETS - 1) >= cut:
                chosen[k, found] = touched[t]
                found += 1
            scores[touched[t]] = 0.0
        counts[k] = found


@compiled(inline=True)
def _box(costs, i, l, side):
    """Box of an entry (infinite for the squared loss) and the ridge that its loss adds."""
    c = costs.weight[i] * costs.upper[side, l]
    if costs.squared:
        return np.inf, 0.5 / c if c > 0.0 else np.inf
    return c, 0.0


@compiled(inline=True)
def _enter(rows, costs, background, members, k, scratch):
    """Make w and q of a label's members; returns the number of features touched and the ridge along u."""
    w, q, marked, touched = scratch
    first, last = members.starts[k], members.starts[k + 1]
    n_touched, ridge = 0, background.ridge
    for t in range(first, last):
        i = members.rows[t]
        sign = 1.0 if t - first < members.n_on[k] else -1.0
        if members.alpha[t] != 0.0:
            row_add(rows, i, costs.bias, sign * members.alpha[t], w)
        share = background.share[i]
        if share > 0.0:
            row_add(rows, i, 1.0, share, q)
            ridge -= share * share / (2.0 * costs.weight[i])
        begin = rows.indptr[i]
        for s in range(begin, rows.indptr[i + 1]):
            j = rows.indices[s - rows.dense * begin]
            if not marked[j]:
                marked[j] = True
                touched[n_touched] = j
                n_touched += 1
    return n_touched, max(ridge, 0.0)


@compiled(inline=True)
def _pass(rows, squares, costs, members, k, l, line, shared, active, reach):
    """One pass of coordinate ascent over the active members of label l, u following every step.

    `shared` holds x_i . (m - q) of the members, their turns, w and the state [u, w . (m - q)]. A step
    of alpha_i moves u to its best place as long as that is inside its box, so that the curvature along
    alpha_i is what the background cannot take over. Returns the number of members still active, the
    extreme gradients of those that moved and the sum of the gaps seen.
    """
    product, turn, w, state = shared
    first = members.starts[k]
    last = w.shape[0] - 1
    bias = costs.bias
    low, high, left = 0.0, 0.0, 0.0
    position = 0
    while position < active:
        t = turn[position]
        i = members.rows[first + t]
        y = 1.0 if t < members.n_on[k] else -1.0
        c, ridge = _box(costs, i, l, 1 if y > 0.0 else 0)
        a = members.alpha[first + t]
        h = costs.margin[l] - y * (row_dot(rows, i, bias, w) - state[0] * product[t])
        if costs.squared:
            g = h - ridge * a
            left += max(h, 0.0) ** 2 / (2.0 * ridge) - a * h + 0.5 * ridge * a * a
        else:
            g = h
            left += c * max(h, 0.0) - a * h
        if (a == 0.0 and g < reach[0]) or (a == c and g > reach[1]):
            active -= 1
            turn[position], turn[active] = turn[active], t
            continue
        position += 1
        if (a == 0.0 and g <= 0.0) or (a == c and g >= 0.0):
            continue
        low, high = min(low, g), max(high, g)
        own = squares[i] + bias * bias + ridge
        cross = -y * (product[t] + bias * bias * line.mass)
        new = min(max(a + g / own, 0.0), c) if own > 0.0 else c
        if 0.0 < state[0] < line.most:
            reduced = own - cross * cross / line.curvature
            if reduced > 1e-9 * own:
                joint = min(max(a + g / reduced, 0.0), c)
                if 0.0 <= state[0] - cross * (joint - a) / line.curvature <= line.most:
                    new = joint
        step = y * (new - a)
        members.alpha[first + t] = new
        row_add(rows, i, bias, step, w)
        state[1] += step * product[t]
        _follow(costs, l, line, w, last, state)
    return active, low, high, left


@compiled(inline=True)
def _follow(costs, l, line, w, last, state):
    """Move u to its best place in its box."""
    if line.curvature <= 0.0:
        return
    g = line.mass * (costs.margin[l] + costs.bias * w[last]) + state[1]
    g -= state[0] * (line.curvature - (costs.bias * line.mass) ** 2)
    u = min(max(state[0] + g / line.curvature, 0.0), line.most)
    w[last] -= costs.bias * line.mass * (u - state[0])
    state[0] = u


@compiled
def polish(rows, squares, costs, background, aims, members, draws, n_passes, scratch):
    """Dual coordinate ascent on the members and the background of every label in work.

    A member at a bound rests once its gradient points out of the box by more than the largest
    violation of the pass before; a label is done when the gaps seen in a pass reach its target.
    Returns the culled weights (feature D is the bias) and one row per label: dual objective, half the
    squared norm of the culled weights.
    """
    w, q, _, touched = scratch
    D = background.m.shape[0]
    starts = np.zeros(aims.labels.shape[0] + 1, np.int64)
    features, values = np.empty(D + 1, np.int32), np.empty(D + 1)
    told = np.empty((aims.labels.shape[0], 2))
    longest = 0
    for k in range(aims.labels.shape[0]):
        longest = max(longest, members.starts[k + 1] - members.starts[k])
    product, turn, state = np.empty(longest), np.empty(longest, np.int64), np.zeros(2)
    for k in range(aims.labels.shape[0]):
        l, first = aims.labels[k], members.starts[k]
        active = members.starts[k + 1] - first
        n_touched, ridge = _enter(rows, costs, background, members, k, scratch)
        square, mass = background.square, 1.0 - q[D]
        for t in range(n_touched):
            j = touched[t]
            square += q[j] * (q[j] - 2.0 * background.m[j])
        square = max(square, 0.0)
        ridge = ridge / costs.upper[0, l] if costs.squared and costs.upper[0, l] > 0.0 else 0.0
        most = np.inf if costs.squared else background.most * costs.upper[0, l]
        if mass <= 1e-9:
            mass, square, most = 0.0, 0.0, 0.0
        line = Line(square, mass, square + (costs.bias * mass) ** 2 + ridge, most)
        state[0], state[1] = min(members.u[k], most), 0.0
        w[D] -= costs.bias * mass * state[0]
        for t in range(active):
            i = members.rows[first + t]
            turn[t], product[t] = t, background.products[i] - row_dot(rows, i, 0.0, q)
            state[1] += (1.0 if t < members.n_on[k] else -1.0) * members.alpha[first + t] * product[t]
        _follow(costs, l, line, w, D, state)
        shared = product, turn, w, state
        reach = -np.inf, np.inf
        cursor = np.int64(l) * 7919
        left = 0.0
        for _ in range(n_passes):
            cursor = shuffle(turn, active, draws, cursor)
            active, low, high, left = _pass(rows, squares, costs, members, k, l, line, shared, active, reach)
            reach = (low if low < 0.0 else -np.inf), (high if high > 0.0 else np.inf)
            if left <= aims.target[k]:
                break
        members.u[k] = state[0]
        told[k, 0] = _dual(costs, members, k, l, line, w, n_touched, touched, state, ridge)
        while features.shape[0] < starts[k] + D + 1:
            features, values = _doubled(features), _doubled(values)
        starts[k + 1], told[k, 1] = _leave(
            background, scratch, n_touched, state[0], aims.cull[k], starts[k], (features, values)
        )
    return Weights(starts, features[: starts[-1]], values[: starts[-1]]), told


@compiled
def _doubled(array):
    """The same numbers with room for as many more."""
    larger = np.empty(2 * array.shape[0], array.dtype)
    for i in range(array.shape[0]):
        larger[i] = array[i]
    return larger


@compiled(inline=True)
def _dual(costs, members, k, l, line, w, n_touched, touched, state, ridge):
    """<m, alpha> - 1/2 |w|^2 (- the ridge of the squared loss), background included."""
    u = state[0]
    total, norm, extra = u * line.mass, 0.0, ridge * u * u
    first = members.starts[k]
    for t in range(first, members.starts[k + 1]):
        a = members.alpha[t]
        total += a
        if costs.squared and a > 0.0:
            side = 1 if t - first < members.n_on[k] else 0
            extra += a * a * 0.5 / (costs.weight[members.rows[t]] * costs.upper[side, l])
    for t in range(n_touched):
        norm += w[touched[t]] ** 2
    norm += w[w.shape[0] - 1] ** 2 - 2.0 * u * state[1] + u * u * line.square
    return costs.margin[l] * total - 0.5 * (norm + extra)


@compiled(inline=True)
def _leave(background, scratch, n_touched, u, cull, size, answer):
    """Write the weights larger than `cull` and the bias, clear the scratch; half their squared norm."""
    w, q, marked, touched = scratch
    features, values = answer
    D = w.shape[0] - 1
    norm = w[D] * w[D]
    for t in range(n_touched):
        j = touched[t]
        v = w[j] - u * (background.m[j] - q[j])
        if abs(v) > cull:
            features[size], values[size] = j, v
            norm += v * v
            size += 1
        w[j], q[j] = 0.0, 0.0
    if u > 0.0:
        for j in range(D):
            v = -u * background.m[j]
            if abs(v) > cull and not marked[j]:
                features[size], values[size] = j, v
                norm += v * v
                size += 1
    for t in range(n_touched):
        marked[touched[t]] = False
    features[size], values[size] = D, w[D]
    w[D], q[D] = 0.0, 0.0
    return size + 1, 0.5 * norm


class Found(NamedTuple):
    """Samples above the margin of the labels in work: those of the k-th from starts[k] on, counts[k] many.

    A list that is full keeps the larger half of the violations; `least` is the smallest one that
    still enters.
    """

    starts: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    excess: np.ndarray
    least: np.ndarray


@compiled
def scan(rows, costs, labels, members, W, lanes, found, loss):
    """Losses of all samples for the weights W of the labels in work, and their largest violations.

    Scores of all labels stay in registers; few samples have one above a margin. All are taken for
    negatives first, and the positives put right after.
    """
    data, indices, indptr, dense = rows
    scores = np.full(W.shape[1], np.inf)
    for k in range(labels.shape[0]):
        scores[k] = -costs.margin[labels[k]]
    limit = load(scores, 0, lanes)
    bias = np.int64(W.shape[0] - 1)
    constant = multiply(load_row(W, bias, 0, lanes), fill(costs.bias, limit))
    for i in range(indptr.shape[0] - 1):
        f = constant
        shift = np.uint64(dense * indptr[i])
        for t in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            f = add_product(f, np.float64(data[t]), load_row(W, indices[t - shift], 0, lanes))
        if largest(subtract(f, limit)) > 0.0 and costs.weight[i] > 0.0:
            store(f, scores, 0)
            for k in range(labels.shape[0]):
                l = labels[k]
                h = costs.margin[l] + scores[k]
                if h > 0.0:
                    loss[k] += _loss(costs, i, l, 0, h)
                    if h >= found.least[k]:
                        _note(found, k, i, h)
    for k in range(labels.shape[0]):
        l = labels[k]
        for t in range(members.starts[k], members.starts[k] + members.n_on[k]):
            i = members.rows[t]
            f = row_column_dot(rows, i, costs.bias, k, W)
            loss[k] += _loss(costs, i, l, 1, costs.margin[l] - f) - _loss(costs, i, l, 0, costs.margin[l] + f)


@compiled(inline=True)
def _loss(costs, i, l, side, h):
    """Loss of an entry that is h short of its margin."""
    h = max(h, 0.0)
    return costs.weight[i] * costs.upper[side, l] * (h * h if costs.squared else h)


@compiled
def _note(found, k, i, h):
    """Append a violation; of a full list the larger half stays first, of equal ones the earlier."""
    begin = found.starts[k]
    room = found.starts[k + 1] - begin
    if found.counts[k] == room:
        excess = found.excess[begin : begin + room]
        middle = np.partition(excess, room // 2)[room // 2]
        ties = room // 2
        for t in range(begin, begin + room):
            ties -= found.excess[t] > middle
        kept = begin
        for t in range(begin, begin + room):
            level = found.excess[t] == middle
            if found.excess[t] > middle or (level and ties > 0):
                ties -= level
                found.rows[kept], found.excess[kept] = found.rows[t], found.excess[t]
                kept += 1
        found.counts[k] = kept - begin
        found.least[k] = np.nextafter(middle, np.inf)
        if h < found.least[k]:
            return
    found.rows[begin + found.counts[k]], found.excess[begin + found.counts[k]] = i, h
    found.counts[k] += 1


@compiled
def grow(share, carriers, members, found, kept, limit, few, marks):
    """The members of the labels that stay in work (`kept`) and the worst of what was found for them.

    A new member begins with its share of the background. `limit` is how many each label may take;
    where violators are `few`, what is left of the gap is in the background, and its `carriers` become
    members, the largest first. `marks` (one per sample) is all false, before and after. Returns starts,
    rows, alpha and how many violators each label took.
    """
    room = 0
    for k in kept:
        room += members.starts[k + 1] - members.starts[k] + limit[k]
    starts = np.zeros(kept.shape[0] + 1, np.int64)
    rows, alpha, taken = np.empty(room, np.int64), np.empty(room), np.zeros(kept.shape[0], np.int64)
    size = 0
    for place in range(kept.shape[0]):
        k = kept[place]
        for t in range(members.starts[k], members.starts[k + 1]):
            rows[size], alpha[size] = members.rows[t], members.alpha[t]
            marks[rows[size]] = True
            size += 1
        begin = found.starts[k]
        fresh = 0
        for t in range(begin, begin + found.counts[k]):
            if not marks[found.rows[t]]:
                found.rows[begin + fresh], found.excess[begin + fresh] = found.rows[t], found.excess[t]
                fresh += 1
        least = 0.0
        if fresh > limit[k]:
            least = np.partition(found.excess[begin : begin + fresh], fresh - limit[k])[fresh - limit[k]]
        for t in range(begin, begin + fresh):
            if found.excess[t] >= least and taken[place] < limit[k]:
                rows[size], alpha[size] = found.rows[t], members.u[k] * share[found.rows[t]]
                marks[rows[size]] = True
                size += 1
                taken[place] += 1
        added = taken[place]
        if added < few and members.u[k] > 0.0:
            for i in carriers:
                if added < limit[k] and not marks[i]:
                    rows[size], alpha[size] = i, members.u[k] * share[i]
                    marks[i] = True
                    size += 1
                    added += 1
        for t in range(starts[place], size):
            marks[rows[t]] = False
        starts[place + 1] = size
    return starts, rows[:size], alpha[:size], taken


@compiled(inline=True)
def _score(rows, i, weights, intercept, scores):
    """Scores of sample i by weights that are stored feature by feature."""
    for l in range(intercept.shape[0]):
        scores[l] = intercept[l]
    begin = rows.indptr[i]
    for t in range(begin, rows.indptr[i + 1]):
        x = np.float64(rows.data[t])
        j = rows.indices[t - rows.dense * begin]
        for c in range(np.uint64(weights.indptr[j]), np.uint64(weights.indptr[j + 1])):
            scores[weights.indices[c]] += x * weights.data[c]


@compiled
def score_labels(rows, weights, intercept, scores):
    """scores[i] = x_i'W + b for sparse weights, feature by feature."""
    for i in range(scores.shape[0]):
        _score(rows, i, weights, intercept, scores[i])


@compiled(inline=True)
def _insert(scores, labels, best):
    """The highest of some scores in falling order; of equal ones the first label."""
    k = best.shape[0]
    filled = 0
    for l in range(scores.shape[0]):
        f = scores[l]
        if filled == k and f <= best[k - 1]:
            continue
        place = min(filled, k - 1)
        while place > 0 and best[place - 1] < f:
            best[place], labels[place] = best[place - 1], labels[place - 1]
            place -= 1
        best[place], labels[place] = f, l
        filled = min(filled + 1, k)


@compiled
def top_labels(rows, weights, intercept, begin, end, labels, best):
    """The labels with the highest scores of the samples from `begin` to `end`, as `_insert` orders them."""
    scores = np.empty(intercept.shape[0])
    for i in range(begin, end):
        _score(rows, i, weights, intercept, scores)
        _insert(scores, labels[i], best[i])


@compiled
def top_scores(scores, labels, best):
    """The same of dense scores."""
    for i in range(scores.shape[0]):
        _insert(scores[i], labels[i], best[i])
