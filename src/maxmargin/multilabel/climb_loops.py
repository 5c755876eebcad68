"""Loops of `many` between two looks: every label climbs on its members, and says which weights it keeps.

`turn` is all that Python calls: one function, as its parts take the same arrays and share what they call.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import prefetch
from maxmargin.core.rows import row_add
from maxmargin.multilabel.many_loops import (
    COMMON,
    Line,
    ascend,
    dual_of,
    join,
    leave,
    shortages,
    square_of,
    straighten,
)
from maxmargin.multilabel.near_loops import LANES

# Members whose rows are asked for before they are needed; an entry of a row that may be in its second line.
AHEAD, LINE = 8, 12
# Of 16 bits.
LARGEST = 32767
# A first ascent has the background if the bias takes more than this part of what negative members can carry.
BURDEN = 0.1


@helper(hot=True)
def _open(costs, on, lanes, k, rule):
    """The positives of a label become its first members, with the alpha of their boxes."""
    l, size, loss = lanes.label[k], 0, 0.0
    h = 2.0 * costs.margin[l]
    for t in range(on.indptr[l], on.indptr[l + 1]):
        i = on.indices[t]
        if costs.weight[i] > 0.0:
            c = costs.weight[i] * costs.upper[1, l]
            lanes.members[k, size], lanes.alpha[k, size] = i, c
            loss += c * (h * h if costs.squared else h)
            size += 1
    lanes.n_on[k] = lanes.size[k] = size
    lanes.u[k], lanes.cull[k], lanes.target[k] = 0.0, rule.cull, rule.begin * loss
    lanes.apart[k], lanes.dual[k] = costs.bias > 0.0, -np.inf


@helper(hot=True)
def _enter(samples, costs, share, room, lanes, k, known):
    """The members of a lane come into the room; returns how many features are known then."""
    last = lanes.size[k] - 1
    for t in range(last + 1):
        ahead = samples.rows.indptr[lanes.members[k, min(t + AHEAD, last)]]
        prefetch(samples.rows.data, ahead)
        prefetch(samples.rows.indices, ahead)
        prefetch(samples.rows.data, ahead + LINE)
        prefetch(samples.rows.indices, ahead + LINE)
        further = lanes.members[k, min(t + 2 * AHEAD, last)]
        prefetch(samples.rows.indptr, further)
        prefetch(samples.squares, further)
        prefetch(costs.weight, further)
        prefetch(share, further)
        side = 1 if t < lanes.n_on[k] else 0
        known = join(samples, costs, room, lanes.label[k], lanes.members[k, t], side, t, known)
        a = room.alpha[t] = lanes.alpha[k, t]
        if a > 0.0:
            row_add(room.local, t, costs.bias, a if side else -a, room.w)
    return known


@helper(reorder=True)
def _cull(background, room, known, u, cull):
    """Keep the weights larger than `cull`; returns half the squared norm of all that are."""
    D = room.w.shape[0] - 1
    norm = square_of(room.w[D])
    for t in range(known):
        x = room.w[t]
        if u > 0.0:
            x -= u * (background.m[room.features[t]] - room.q[t])
        room.kept[t] = x if abs(x) > cull else 0.0
    for t in range(known):
        norm += square_of(room.kept[t])
    if u > 0.0:
        for s in range(D):
            j = background.order[s]
            x = u * background.m[j]
            if abs(x) <= cull:
                break
            if room.place[j] < 0:
                norm += x * x
    room.kept[D] = room.w[D]
    return 0.5 * norm


@helper
def _show(samples, costs, background, room, lanes, k, known):
    """Put the weights that are kept where they are looked at, in units of which the largest has 32,767."""
    D, u, cull, l, count = room.w.shape[0] - 1, lanes.u[k], lanes.cull[k], lanes.label[k], 0
    features, values = lanes.features[k], lanes.values[k]
    for t in range(known):
        features[count], values[count] = room.features[t], room.kept[t]
        count += int(room.kept[t] != 0.0)
    if u > 0.0:
        for s in range(D):
            j = background.order[s]
            x = -u * background.m[j]
            if abs(x) <= cull:
                break
            if room.place[j] < 0:
                features[count], values[count] = j, x
                count += 1
    largest = 0.0
    for t in range(count):
        largest = max(largest, abs(values[t]))
    unit = largest / LARGEST if largest > 0.0 else 1.0
    last = lanes.weights.shape[0] - 1
    for t in range(count):
        lanes.weights[min(features[t], last), k] = np.int16(np.rint(values[t] / unit))
    lanes.n_kept[k], lanes.bias[k], lanes.unit[k] = count, room.w[D], unit
    limit = -costs.margin[l] - costs.bias * room.w[D]
    limit -= samples.slack * np.sqrt(2.0 * lanes.half[k]) + 1e-6 * abs(limit) + samples.spread * unit
    lanes.limit[k] = limit / unit


@helper
def _drop(costs, background, room, lanes, k, known, cull):
    """Drop the weights up to `cull`; returns the members' part of the objective then."""
    half = lanes.half[k] = _cull(background, room, known, lanes.u[k], cull)
    return half + shortages(costs, room, lanes.label[k], lanes.n_on[k], lanes.size[k], lanes.short[k])


@helper(hot=True)
def _choose(costs, background, room, lanes, k, known, rule):
    """Drop weights as far as the members' part of the objective allows it, in steps of a quarter.

    The first turn settles nothing, and drops them all.
    """
    cull = lanes.cull[k]
    if lanes.turns[k] > 0:
        whole = _drop(costs, background, room, lanes, k, known, 0.0)
        allowed = rule.spare * max(rule.tol * whole, whole - lanes.dual[k])
        while cull > 0.0 and not _drop(costs, background, room, lanes, k, known, cull) - whole <= allowed:
            cull = 0.25 * cull if cull > 1e-6 else 0.0
        lanes.cull[k] = cull
        if cull > 0.0:
            return
    _drop(costs, background, room, lanes, k, known, cull)


@helper(hot=True)
def _store(room, lanes, k, share):
    """Keep the members that matter: those off the margin with no alpha are found again if need be."""
    kept = 0
    for t in range(lanes.size[k]):
        i = lanes.members[k, t]
        if t < lanes.n_on[k] or room.alpha[t] > 0.0 or lanes.short[k, t] > 0.0 or share[i] > 0.0:
            lanes.members[k, kept], lanes.alpha[k, kept] = i, room.alpha[t]
            lanes.short[k, kept] = lanes.short[k, t]
            kept += 1
    lanes.size[k] = kept


@helper(hot=True)
def _guess(samples, costs, room, lanes, k, known):
    """Weights that find samples near the positives: the features these have, above all the rare ones.

    Negatives that share a frequent feature take its weight away, so it says little. A negative near one
    positive matters about as much as one near many, so it is roots that count.
    """
    l, last = lanes.label[k], room.w.shape[0] - 1
    for t in range(known):
        x = room.w[t]
        room.kept[t] = np.copysign(np.sqrt(abs(x) * samples.rarity[room.features[t]]), x)
    if costs.bias > 0.0:
        room.w[last] = -costs.margin[l] / costs.bias


@helper(hot=True)
def _burdened(costs, room, l, n_on, size):
    """Whether the bias would take a good part of what the first negatives can carry."""
    load, most = costs.margin[l] / square_of(costs.bias), 0.0
    for t in range(size):
        if t < n_on:
            load += room.box[t]
        else:
            most += room.box[t]
    return load > BURDEN * most


@helper(hot=True)
def _clear(lanes):
    """Take the weights of all lanes away, one by one or as they stand."""
    total = 0
    for k in range(len(LANES)):
        total += lanes.n_kept[k]
    last = lanes.weights.shape[0] - 1
    if total > last:
        lanes.weights[:] = 0
    else:
        for k in range(len(LANES)):
            for t in range(lanes.n_kept[k]):
                lanes.weights[min(lanes.features[k, t], last), k] = 0


@helper(hot=True)
def _climb(costs, background, rule, draws, room, lanes, k, known):
    """Ascent of a lane on its members, its dual objective, and the weights that are kept."""
    w, state, last = room.w, room.state, room.w.shape[0] - 1
    l, n_on, size = lanes.label[k], lanes.n_on[k], lanes.size[k]
    line, carried = Line(0.0, 0.0, 0.0, 0.0), lanes.u[k] > 0.0
    state[0], state[1], state[2], state[3] = 0.0, 0.0, background.ridge, lanes.bias[k]
    if lanes.turns[k] == 0 and costs.bias > 0.0:
        state[3] = -costs.margin[l] / costs.bias
        carried = _burdened(costs, room, l, n_on, size)
    if lanes.turns[k] > 0 or carried:
        line = straighten(costs, background, room, lanes.members[k], l, n_on, size, carried, state)
    apart = lanes.apart[k] and line.mass == 0.0
    well = ascend(costs, room, l, n_on, line, size, apart, lanes.target[k], rule.passes, draws)
    dual = dual_of(costs, room, l, line, state, size, known)
    # It never falls by steps that move the bias: so where it did, they do from now on.
    lanes.apart[k] = lanes.apart[k] and well and dual >= lanes.dual[k]
    lanes.dual[k] = dual
    lanes.u[k], w[last] = state[0], state[3]
    _choose(costs, background, room, lanes, k, known, rule)


@compiled
def climb(samples, costs, background, on, rule, draws, room, lanes):
    """Every lane: ascent on its members, its dual objective, and the weights that are looked at next."""
    D = room.w.shape[0] - 1
    _clear(lanes)
    for k in range(len(LANES)):
        lanes.n_kept[k], lanes.limit[k] = 0, np.inf
        if lanes.label[k] >= 0:
            first = lanes.turns[k] < 0
            if first:
                _open(costs, on, lanes, k, rule)
            known = D if room.local.dense else min(COMMON, D)
            known = _enter(samples, costs, background.share, room, lanes, k, known)
            if first:
                _guess(samples, costs, room, lanes, k, known)
            else:
                _climb(costs, background, rule, draws, room, lanes, k, known)
            _show(samples, costs, background, room, lanes, k, known)
            if first:
                # Scores of zero are not near.
                lanes.half[k], lanes.limit[k] = 0.0, 1e-30
            else:
                _store(room, lanes, k, background.share)
            leave(room, known)
            lanes.turns[k] += 1
