"""Loops of `many` that look at all samples: who is near the margin of a label, found by bounds.

A negative sample i violates the margin of a label when w . x_i > -margin - bias. Only features that
pull upwards, x_ij w_j > 0, can lift it there, and few samples have one that is not common. With R the
features that are not, and c the others,

    w . x_i  <=  sum_(j in R) max(x_ij w_j, 0)  +  |w_c| |x_ic| .

The sum is gathered from the columns of X, each read once and only where it can pull upwards. The samples
whose bound passes are scored exactly; none of the others has a loss. So one look costs the length of
some columns instead of all of X, and is exact.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import row_add, row_dot
from maxmargin.multilabel.many_loops import (
    ascend,
    close_label,
    dual_of,
    join,
    loss_of,
    member_loss,
    open_label,
    straighten,
)

# Samples whose bounds are looked at together; levels by which the worst violations are told apart; how often
# the bound that makes a neighbour is halved.
STRETCH, LEVELS, HALVINGS = 32, 256, 8


@compiled(inline=True)
def _weigh(room, known, u):
    """Put the weights of members' features into v, without -u m, which scores add by themselves."""
    for t in range(known):
        j = room.features[t]
        room.v[j] = room.w[t] + u * room.q[t]
        room.listed[t] = j
    room.v[room.v.shape[0] - 1] = room.w[room.w.shape[0] - 1]
    return known


@compiled(inline=True)
def _cull(background, room, known, u, cull):
    """Put the weights larger than `cull` into v and `kept`; their number and half their squared norm."""
    D = room.w.shape[0] - 1
    count, norm = 0, room.w[D] ** 2
    for t in range(known):
        j = room.features[t]
        x = room.w[t] - u * (background.m[j] - room.q[t])
        room.kept[t] = 0.0
        if abs(x) > cull:
            room.kept[t], room.v[j], room.listed[count] = x, x, j
            norm += x * x
            count += 1
    if u > 0.0:
        for s in range(D):
            j = background.order[s]
            x = -u * background.m[j]
            if abs(x) <= cull:
                break
            if room.place[j] < 0:
                room.v[j], room.listed[count] = x, j
                norm += x * x
                count += 1
    room.v[D] = room.kept[D] = room.w[D]
    return count, 0.5 * norm


@compiled(inline=True)
def _forget(room, count):
    """Make v zero again."""
    for t in range(count):
        room.v[room.listed[t]] = 0.0
    room.v[room.v.shape[0] - 1] = 0.0


@compiled(inline=True)
def _bounds(samples, room, count):
    """Gather the bounds of features that are not common; returns the norm of the others that pull upwards."""
    values, members, indptr, _ = samples.columns
    zero = np.float32(0.0)
    square = 0.0
    for t in range(count):
        j = room.listed[t]
        mixed = samples.mixed[j]
        if room.v[j] > 0.0 or mixed:
            x = np.float32(room.v[j])
            begin, end = np.uint64(indptr[j]), np.uint64(indptr[j + 1])
            if begin == end:
                square += room.v[j] ** 2
            elif mixed:
                for c in range(begin, end):
                    room.bound[members[c]] += max(x * np.float32(values[c]), zero)
            else:
                for c in range(begin, end):
                    room.bound[members[c]] += x * np.float32(values[c])
    return np.sqrt(square)


@compiled(inline=True)
def _top(samples, background, room, i, reach, u):
    """The bound of a sample's score."""
    bound = samples.slack * (np.float64(room.bound[i]) + reach * np.float64(samples.common[i]))
    return bound - u * np.float64(background.floor[i])


@compiled(inline=True)
def _count(samples, background, room, begin, end, reach, u, limit):
    """How many of a stretch of samples may pass the limit."""
    passing = 0
    for i in range(np.uint64(begin), np.uint64(end)):
        passing += _top(samples, background, room, i, reach, u) > limit
    return passing


@compiled(inline=True)
def _collect(samples, costs, background, room, l, reach, u, limit):
    """List the samples whose bound passes the limit, with the excess; bounds are zero again after."""
    n, found = room.bound.shape[0], 0
    for begin in range(0, n, STRETCH):
        end = min(begin + STRETCH, n)
        if _count(samples, background, room, begin, end, reach, u, limit) > 0:
            for i in range(begin, end):
                top = _top(samples, background, room, i, reach, u)
                if top > limit and costs.weight[i] * costs.upper[0, l] > 0.0:
                    room.near[found], room.excess[found] = i, top - limit
                    found += 1
        for i in range(np.uint64(begin), np.uint64(end)):
            room.bound[i] = 0.0
    return found


@compiled(inline=True)
def _hide(room, size):
    """Let no member pass a limit; returns the highest bound that one had."""
    highest = 0.0
    for t in range(size):
        i = room.members[t]
        highest = max(highest, np.float64(room.bound[i]))
        room.bound[i] = -np.inf
    return highest


@compiled(inline=True)
def _suspects(samples, costs, background, room, l, size, count, u):
    """List the negatives that are no members and may violate the margin."""
    reach = _bounds(samples, room, count)
    _hide(room, size)
    limit = -costs.margin[l] - costs.bias * room.v[room.v.shape[0] - 1]
    limit -= 1e-12 * (1.0 + abs(limit))
    return _collect(samples, costs, background, room, l, reach, u, limit)


@compiled(inline=True)
def _neighbours(samples, costs, background, room, l, size, count, most):
    """List samples whose features pull upwards as those of the members do; about `most`, if there are."""
    _bounds(samples, room, count)
    level = _hide(room, size)
    for _ in range(HALVINGS):
        level *= 0.5
        if _count(samples, background, room, 0, room.bound.shape[0], 0.0, 0.0, level) >= most:
            break
    return _collect(samples, costs, background, room, l, 0.0, 0.0, level)


@compiled(inline=True)
def _look(samples, costs, background, room, l, found, u):
    """Score what was found; the violators among it stay in the list. Returns their number and loss."""
    stay, loss = 0, 0.0
    for t in range(found):
        i = room.near[t]
        h = costs.margin[l] + row_dot(samples.rows, i, costs.bias, room.v) - u * background.products[i]
        if h > 0.0:
            room.near[stay], room.excess[stay] = i, h
            loss += loss_of(costs, i, l, 0, h)
            stay += 1
    return stay, loss


@compiled(inline=True)
def _level(excess, found, limit, bucket):
    """A level that no more than `limit` of the excesses reach, but for those of one bucket."""
    if found <= limit:
        return 0.0
    highest = 0.0
    for t in range(found):
        highest = max(highest, excess[t])
    for k in range(LEVELS):
        bucket[k] = 0
    scale = LEVELS / highest
    for t in range(found):
        bucket[min(np.int64(scale * excess[t]), LEVELS - 1)] += 1
    cut, total = LEVELS, 0
    while cut > 0 and (total == 0 or total + bucket[cut - 1] <= limit):
        cut -= 1
        total += bucket[cut]
    return cut / scale


@compiled(inline=True)
def _welcome(samples, costs, background, room, l, i, size, known, u):
    """A negative becomes a member and takes its share of the background along."""
    known = join(samples, costs, room, l, i, 0, size, known)
    a = u * background.share[i]
    room.alpha[size] = a
    if a > 0.0:
        row_add(room.local, size, 0.0, -a, room.w)
    return known


@compiled(inline=True)
def _grow(samples, costs, background, room, l, size, known, found, limits, state):
    """The worst of what was found become members, and carriers of the background where it was little.

    `limits` are the level of excess to reach, the most new members, and what is little.
    """
    least, most, few = limits
    first, u = size, state[0]
    for t in range(found):
        if room.excess[t] >= least and size - first < most:
            known = _welcome(samples, costs, background, room, l, room.near[t], size, known, u)
            size += 1
    if size - first < few and u > 0.0:
        for t in range(background.carriers.shape[0]):
            i = background.carriers[t]
            if size - first >= most:
                break
            if not room.marks[i]:
                known = _welcome(samples, costs, background, room, l, i, size, known, u)
                size += 1
    return size, known


@compiled(inline=True)
def _leave(room, count, at, features, values):
    """Write the weights of v and the bias."""
    D = room.v.shape[0] - 1
    for t in range(count):
        j = room.listed[t]
        features[at + t], values[at + t] = j, room.v[j]
    features[at + count], values[at + count] = D, room.v[D]


@compiled
def _doubled(array):
    """The same numbers with room for as many more."""
    larger = np.empty(2 * array.shape[0], array.dtype)
    for i in range(array.shape[0]):
        larger[i] = array[i]
    return larger


@compiled
def solve_labels(samples, costs, background, on, labels, rule, draws, room):
    """Solve some labels, each until its gap is at most tol P for the weights that are kept.

    The first members are the positives and samples near them. Then in turns: ascent on the members, and
    a look at all samples, whose worst violators become members. Where far more samples are suspect
    than can become members they are not scored, at first. Returns the weights of all labels (where those
    of a label begin; features, the bias is feature D; values) and their primal and dual objectives.
    """
    D = background.m.shape[0]
    told = np.zeros((labels.shape[0], 2))
    starts = np.zeros(labels.shape[0] + 1, np.int64)
    features, values = np.empty(D + 1, np.int32), np.empty(D + 1)
    state, bucket = np.zeros(3), np.zeros(LEVELS, np.int64)
    for k in range(labels.shape[0]):
        l = labels[k]
        n_on, known, primal = open_label(samples, costs, on, room, l)
        size, fresh, most = n_on, 0, rule.candidates * n_on + rule.least
        looked, dual, target = False, 0.0, rule.begin * primal
        state[0], state[2] = 0.0, background.ridge
        for turn in range(rule.max_rounds + 1):
            line = straighten(costs, background, room, l, n_on, fresh, size, known, state)
            if turn > 0:
                ascend(costs, room, l, n_on, line, state, size, target, rule.passes, draws)
                most = max(rule.least, size)
            dual, half = dual_of(costs, room, l, line, state, size, known)
            count = _weigh(room, known, state[0])
            if turn == 0:
                found = _neighbours(samples, costs, background, room, l, size, count, most)
            else:
                found = _suspects(samples, costs, background, room, l, size, count, state[0])
                looked = found <= rule.enough * most or turn > rule.scouting
                if looked:
                    found, loss = _look(samples, costs, background, room, l, found, state[0])
                    primal = half + loss + member_loss(costs, room, l, n_on, size, room.w, state[0])
                    target = max(rule.aim * rule.tol * primal, rule.follow * (primal - dual))
            _forget(room, count)
            if (looked and primal - dual <= rule.tol * primal) or turn == rule.max_rounds:
                break
            fresh = size
            limits = _level(room.excess, found, most, bucket), most, rule.few
            size, known = _grow(samples, costs, background, room, l, size, known, found, limits, state)
            if looked and size - fresh < rule.few:
                target = rule.patience * min(target, rule.aim * rule.tol * primal)
        cull, primal = rule.cull, np.inf
        while True:
            count, half = _cull(background, room, known, state[0], cull)
            bound = half + member_loss(costs, room, l, n_on, size, room.kept, 0.0)
            if cull == 0.0 or bound - dual <= rule.tol * bound:
                found = _suspects(samples, costs, background, room, l, size, count, 0.0)
                found, loss = _look(samples, costs, background, room, l, found, 0.0)
                primal = bound + loss
                if cull == 0.0 or primal - dual <= rule.tol * primal:
                    break
            _forget(room, count)
            cull = 0.25 * cull if cull > 1e-6 else 0.0
        while starts[k] + count + 1 > features.shape[0]:
            features, values = _doubled(features), _doubled(values)
        _leave(room, count, starts[k], features, values)
        _forget(room, count)
        starts[k + 1] = starts[k] + count + 1
        told[k, 0], told[k, 1] = primal, dual
        close_label(room, size, known)
    return starts, features[: starts[-1]], values[: starts[-1]], told
