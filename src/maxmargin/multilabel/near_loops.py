"""Loops of `many` that look at all samples: who is near the margin of a label, and what it has reached.

The labels of all lanes are looked at together. Their weights stand side by side, so that one register
takes a feature of all of them, and a sample is read once. That is done by weights of 16 bits, whose products
are summed in single precision; the samples whose scores may reach the margin, rounding considered, are scored
again in double. None of the others has a loss, so the primal objective is exact.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import (
    add_product,
    as_reals,
    bits_not_below,
    fill,
    load,
    load_row,
    lowest_bit,
    prefetch,
    store_row,
)
from maxmargin.core.rows import row_dot
from maxmargin.multilabel.many_loops import AIM, FEW, FOLLOW, HALVINGS, LANES, LEVELS, PATIENCE, STRETCH

# Entries of X whose weights are asked for before they are needed, and samples whose rows are.
AHEAD, FETCHED = np.uint64(64), 8
NONE, ONE = np.uint64(0), np.uint64(1)


@compiled
def look(rows, stop, lanes):
    """List for every lane which samples have a score not below its limit, and the score.

    `stop` is where rows end that are looked at.
    """
    data, indices, indptr, dense = rows
    n, width, last = indptr.shape[0] - 1, len(LANES), np.uint64(max(indices.shape[0], 1) - 1)
    scores, passing, limit = lanes.stretch, lanes.passing, load(lanes.limit, 0, LANES)
    zero = fill(np.float32(0.0), limit)
    lanes.found[:] = 0
    for first in range(0, n, STRETCH):
        size = min(STRETCH, n - first)
        for r in range(size):
            s, begin = zero, indptr[first + r]
            shift = np.uint64(dense * begin)
            for t in range(np.uint64(begin), np.uint64(stop[first + r])):
                if not dense:
                    ahead = width * np.int64(indices[min(t + AHEAD, last)])
                    prefetch(lanes.weights, ahead)
                    prefetch(lanes.weights, ahead + width // 2)
                j = np.uint64(indices[t - shift])
                s = add_product(s, np.float32(data[t]), as_reals(load_row(lanes.weights, j, 0, LANES), s))
            store_row(s, scores, np.uint64(r), 0)
            # A score that overflows is not a number, and that is not below.
            passing[r] = bits_not_below(s, limit)
        for r in range(size):
            bits = passing[r]
            while bits != NONE:
                k = lowest_bit(bits)
                bits &= bits - ONE
                at = lanes.found[k]
                lanes.near[k, at], lanes.score[k, at] = first + r, scores[r, k]
                lanes.found[k] = at + 1


@helper(hot=True)
def _fill(room, lanes, k, on):
    """Spread the weights of a lane over all features, or make these zero again."""
    for t in range(lanes.n_kept[k]):
        room.v[lanes.features[k, t]] = lanes.values[k, t] if on else 0.0
    room.v[room.v.shape[0] - 1] = lanes.bias[k] if on else 0.0


@helper
def _violators(samples, costs, room, lanes, k, step, exact):
    """How many samples that are no members violate the margin, by scores of double precision or not.

    What was looked at is every `step`-th sample.
    """
    l, found = lanes.label[k], 0
    offset = costs.margin[l] + costs.bias * lanes.bias[k]
    last = lanes.found[k] - 1
    for t in range(last + 1):
        if exact:
            ahead = samples.rows.indptr[lanes.near[k, min(t + FETCHED, last)]]
            prefetch(samples.rows.data, ahead)
            prefetch(samples.rows.indices, ahead)
        i = step * lanes.near[k, t]
        c = costs.weight[i] * costs.upper[0, l]
        if not room.marks[i] and c > 0.0:
            if exact:
                h = costs.margin[l] + row_dot(samples.rows, i, costs.bias, room.v)
            else:
                h = offset + lanes.unit[k] * np.float64(lanes.score[k, t])
            if h > 0.0:
                room.near[found], room.excess[found], room.cost[found] = i, h, c
                found += 1
    return found


@helper(reorder=True)
def _losses(costs, short, cost, size, shift):
    """Loss and its slope where margins are missed by `short` less a shift, at these costs."""
    loss, slope = 0.0, 0.0
    if costs.squared:
        for t in range(size):
            h = max(short[t] - shift, 0.0)
            loss += cost[t] * h * h
            slope -= 2.0 * cost[t] * h
    else:
        for t in range(size):
            h = max(short[t] - shift, 0.0)
            loss += cost[t] * h
            slope -= cost[t] if h > 0.0 else 0.0
    return loss, slope


@helper
def _loss_at(costs, room, lanes, k, found, shift):
    """Loss when every score is lower by `shift`, and its slope; half its squared bias is not in it."""
    n_on, size = lanes.n_on[k], lanes.size[k]
    near, near_slope = _losses(costs, room.excess, room.cost, found, shift)
    on, on_slope = _losses(costs, lanes.short[k], room.box, n_on, -shift)
    off, off_slope = _losses(costs, lanes.short[k, n_on:], room.box[n_on:], size - n_on, shift)
    return near + on + off, near_slope - on_slope + off_slope


@helper(hot=True)
def _lowered(costs, room, lanes, k, found):
    """The primal objective with the best bias that is lower, and by how much scores are lower then.

    Those that were not found have no loss there either. The bias is found by halving.
    """
    b, rest = lanes.bias[k], lanes.half[k] - 0.5 * lanes.bias[k] * lanes.bias[k]
    loss, slope = _loss_at(costs, room, lanes, k, found, 0.0)
    best, at, low, high = rest + 0.5 * b * b + loss, 0.0, 0.0, 0.0
    if costs.bias > 0.0 and costs.bias * slope < b:
        for t in range(found):
            high = max(high, room.excess[t])
        for t in range(lanes.n_on[k], lanes.size[k]):
            high = max(high, lanes.short[k, t])
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            loss, slope = _loss_at(costs, room, lanes, k, found, middle)
            c = b - middle / costs.bias
            if rest + 0.5 * c * c + loss < best:
                best, at = rest + 0.5 * c * c + loss, middle
            if costs.bias * slope < c:
                low = middle
            else:
                high = middle
    return best, at


@helper(hot=True)
def _reached(samples, costs, rule, room, lanes, k):
    """Number of violators, primal objective and how far to lower the bias; all exact where it may suffice."""
    found, primal, shift = 0, 0.0, 0.0
    for exact in range(2):
        if exact:
            _fill(room, lanes, k, True)
        found = _violators(samples, costs, room, lanes, k, 1, exact == 1)
        primal, shift = _lowered(costs, room, lanes, k, found)
        if exact:
            _fill(room, lanes, k, False)
        if primal - lanes.dual[k] > 2.0 * rule.tol * primal and lanes.turns[k] < rule.max_rounds:
            break
    return found, primal, shift


@helper
def level(excess, found, limit, bucket):
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


@helper
def welcome(room, lanes, k, found, most, share):
    """The worst of what was found become members, with their share of the background."""
    least, first = level(room.excess, found, most, room.bucket), lanes.size[k]
    for t in range(found):
        if room.excess[t] >= least and lanes.size[k] - first < most:
            i, size = room.near[t], lanes.size[k]
            lanes.members[k, size], lanes.alpha[k, size] = i, lanes.u[k] * share[i]
            room.marks[i] = True
            lanes.size[k] = size + 1
    return lanes.size[k] - first


@helper(hot=True)
def _dissolve(room, lanes, k, most, background):
    """Carriers of the background become members."""
    first = lanes.size[k]
    for t in range(background.carriers.shape[0]):
        i, size = background.carriers[t], lanes.size[k]
        if size - first >= most:
            break
        if not room.marks[i]:
            lanes.members[k, size], lanes.alpha[k, size] = i, lanes.u[k] * background.share[i]
            room.marks[i] = True
            lanes.size[k] = size + 1


@helper(hot=True)
def _mark(costs, room, lanes, k):
    """Mark the members of a lane, and note their boxes."""
    for t in range(lanes.size[k]):
        i, side = lanes.members[k, t], 1 if t < lanes.n_on[k] else 0
        room.marks[i], room.box[t] = True, costs.weight[i] * costs.upper[side, lanes.label[k]]


@helper(hot=True)
def _unmark(room, lanes, k):
    for t in range(lanes.size[k]):
        room.marks[lanes.members[k, t]] = False


@helper(hot=True)
def _wanted(rule, lanes, k):
    """How many samples may become members: before the first ascent so many for each positive one."""
    first = lanes.turns[k] == 0
    return rule.least + rule.candidates * lanes.n_on[k] if first else max(rule.least, lanes.size[k])


@compiled
def settle(samples, costs, rule, room, lanes, step):
    """After a look at every `step`-th sample: lower the bias of a lane that too many samples are near to.

    Its violators are too many to become members, and to list them all takes long.
    """
    for k in range(len(LANES)):
        most = rule.listed * _wanted(rule, lanes, k) // step
        if lanes.label[k] < 0 or costs.bias == 0.0 or lanes.found[k] <= most:
            continue
        _mark(costs, room, lanes, k)
        found = _violators(samples, costs, room, lanes, k, step, False)
        _unmark(room, lanes, k)
        shift = level(room.excess, found, most, room.bucket)
        if shift > 0.0:
            old, new = lanes.bias[k], lanes.bias[k] - shift / costs.bias
            limit = np.float64(lanes.limit[k]) + shift * (1.0 - 1e-6) / lanes.unit[k]
            lanes.bias[k], lanes.limit[k] = new, limit
            lanes.half[k] += 0.5 * (new * new - old * old)
            for t in range(lanes.size[k]):
                lanes.short[k, t] += shift if t < lanes.n_on[k] else -shift


@compiled
def judge(samples, costs, background, rule, room, lanes):
    """After a look: the primal objective of every lane, whether it is done, else its new members."""
    for k in range(len(LANES)):
        l = lanes.label[k]
        if l < 0:
            continue
        _mark(costs, room, lanes, k)
        most = _wanted(rule, lanes, k)
        if lanes.turns[k] == 0:
            found = _violators(samples, costs, room, lanes, k, 1, False)
            offset = costs.margin[l] + costs.bias * lanes.bias[k]
            for t in range(found):
                room.excess[t] = samples.terse[room.near[t]] * (room.excess[t] - offset)
            welcome(room, lanes, k, found, most, background.share)
            _unmark(room, lanes, k)
            continue
        found, primal, shift = _reached(samples, costs, rule, room, lanes, k)
        lanes.primal[k], dual = primal, lanes.dual[k]
        lanes.done[k] = primal - dual <= rule.tol * primal or lanes.turns[k] >= rule.max_rounds
        if shift > 0.0:
            lanes.bias[k] -= shift / costs.bias
        if not lanes.done[k]:
            target = max(AIM * rule.tol * primal, FOLLOW * (primal - dual))
            if welcome(room, lanes, k, found, most, background.share) < FEW:
                target = PATIENCE * min(lanes.target[k], AIM * rule.tol * primal)
                if lanes.u[k] > 0.0:
                    _dissolve(room, lanes, k, most, background)
            lanes.target[k] = target
        _unmark(room, lanes, k)
