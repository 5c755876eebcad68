"""Blocks of the dual of the submodular multi-label machine, one per sample.

A block n is a convex combination of planes, kept as the mean of their labels (`labels[n]`), of
their pairs (`joints[n]`) and of their losses (`losses[n]`). With the unary weights Z ((D + 1) x V),

    Z = sum_n c_n (x_n, 1) (y^n - labels[n])',    u_e = sum_n c_n strength_e (y^n_i y^n_j - joints[n, e])

and the pair weights are strength_e max(0, u_e). Some sets of a block are remembered (`memory[n]`,
the first `kept[n]` rows) with their shares of the combination; what they do not explain is one
more plane, the rest, which needs no storage: it is the mean minus the shares.

A step moves the weight gamma from one plane of a block to another whose value is larger by `slope`.
Where their labels differ by `step` and their pairs by `jump`, the slope of the dual falls to

    slope - gamma c |x|^2 |step|^2 - sum_e r_e (max(0, u_e) - max(0, u_e - gamma c r_e)),

r_e = strength_e jump_e, and the step that makes it zero is taken. Two kinds compete by what they
promise: from the lowest to the highest plane at hand; or from a remembered set to the same set
with some labels flipped, which need not be remembered yet. Inference finds one set per call, and a
block with many labels near their margins needs many: flips find most of them for the price of a sum.

Sets hold few of the labels, so a visit first lists those of the sets that its block remembers: scores
and steps then cost what the labels that are on and their pairs cost, not all labels and all pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import row_outer_few, row_scores
from maxmargin.submodular.cut_loops import copy
from maxmargin.submodular.inference_loops import count, f1_loss

# The rest of a block below this weight is rounding.
RESIDUE = 1e-12
# A line search ends when its bracket or its slope is this small relative to where it began: rounding.
ROUNDING = 1e-15
# Newton steps within a bracket end long before; this ends them when rounding makes them go round.
MOST_NEWTON = 100
# A set with less than this part of the largest share of its block is not worth flipping labels of.
MINOR = 0.3
# Where a block has no plane, or no label to flip; the rest is the source of a step that has none. Numbers of
# one type, or loops would be compiled for each value.
MISSING: Any = np.int64(-1)
NO: Any = np.int64(0)


class Samples(NamedTuple):
    """What does not move: true sets, costs, squared norms of the rows (bias included), the bias."""

    truth: np.ndarray
    cost: np.ndarray
    squares: np.ndarray
    bias: np.float64


class Pairs(NamedTuple):
    """Pairs e = (first[e], second[e]) and their strengths.

    `which[i, j]` is the pair of two labels, MISSING where they are none.
    """

    first: np.ndarray
    second: np.ndarray
    strength: np.ndarray
    which: np.ndarray


class Visit(NamedTuple):
    """How long to stay with a block: at most `rounds` steps.

    A block is left when a step promises less than the part `enough` of what its steps have gained.
    """

    rounds: int
    enough: float


class Weights(NamedTuple):
    """theta before its pairs are cut at zero, and the weights of the pairs as a symmetric matrix."""

    Z: np.ndarray
    u: np.ndarray
    matrix: np.ndarray


class Blocks(NamedTuple):
    """One convex combination of planes per sample: mean labels, mean pairs (both on), mean loss.

    Labels and pairs are kept less those of the true set: where features are large they are so little away
    from it that the sum of both would be rounded.

    `memory[n]` holds the `kept[n]` sets that the sample remembers and `share[n]` their part of the
    combination; `gaps[n]` is how far the block was from its best when it was last visited.
    """

    memory: np.ndarray
    share: np.ndarray
    kept: np.ndarray
    labels: np.ndarray
    joints: np.ndarray
    losses: np.ndarray
    gaps: np.ndarray


class Listed(NamedTuple):
    """The sets of a block: `on[m]` lists the labels of set m, `sizes[m]` of them, `hits[m]` of them true.

    The last row is for a set that is not remembered yet.
    """

    on: np.ndarray
    sizes: np.ndarray
    hits: np.ndarray
    losses: np.ndarray
    values: np.ndarray


class Way(NamedTuple):
    """A step in labels, and a jump in pairs, of which `few` lists those that change."""

    step: np.ndarray
    jump: np.ndarray
    few: np.ndarray


class Rest(NamedTuple):
    """The labels and the pairs of the rest."""

    labels: np.ndarray
    joints: np.ndarray


class Flips(NamedTuple):
    """What the flip of each label brings, and a set with some of its labels flipped."""

    rise: np.ndarray
    flipped: np.ndarray


class StepRoom(NamedTuple):
    """Workspace of a visit: see above; scores of the sample, and its mean labels at the start."""

    listed: Listed
    way: Way
    rest: Rest
    flips: Flips
    scores: np.ndarray
    before: np.ndarray

    @classmethod
    def empty(cls, memory: int, V: int, E: int) -> StepRoom:
        """Workspace for so many sets, labels and pairs."""
        sizes, hits = np.empty((2, memory + 1), np.int64)
        losses, values = np.empty((2, memory + 1))
        return cls(
            Listed(np.empty((memory + 1, V), np.int64), sizes, hits, losses, values),
            Way(np.empty(V), np.empty(E), np.empty(max(V, E), np.int64)),
            Rest(np.empty(V), np.empty(E)),
            Flips(np.empty(V), np.empty(V, np.uint8)),
            np.empty(V),
            np.empty(V),
        )


@helper
def remember(y, memory, share, kept, spare):
    """Add y to the remembered sets unless it is there.

    When there is no room the set with the least share makes some, but not the one at `spare`. Answers the
    place of y, how many sets there are, and whether a share was lost.
    """
    V = y.shape[0]
    for m in range(kept):
        same = True
        for i in range(V):
            if memory[m, i] != y[i]:
                same = False
                break
        if same:
            return m, kept, False
    slot = kept
    if kept == memory.shape[0]:
        slot = MISSING
        for m in range(kept):
            if m != spare and (slot == MISSING or share[m] < share[slot]):
                slot = m
    for i in range(V):
        memory[slot, i] = y[i]
    forgot = slot < kept and share[slot] > 0
    share[slot] = 0.0
    return slot, max(kept, slot + 1), forgot


@helper
def list_set(truth, y, m, listed):
    """List the labels of set m, and note its loss."""
    on = listed.on[m]
    size, hits = 0, 0
    for i in range(y.shape[0]):
        on[size] = i
        size += y[i]
        hits += y[i] * truth[i]
    listed.sizes[m], listed.hits[m] = size, hits
    listed.losses[m] = f1_loss(size, hits, count(truth))


@helper
def weigh_flips(scores, truth, matrix, y, m, listed, rise):
    """Write how much the flip of each label raises the value of set m, y; find labels to flip together.

    These are the labels that bring more than half of what they bring on average: with a curvature of one
    each, they promise most if what they bring adds up. Answers the half, the sum and how many there are.
    """
    on, size, hits, n1 = listed.on[m], listed.sizes[m], listed.hits[m], count(truth)
    V = scores.shape[0]
    copy(rise, scores)
    for b in range(size):
        row = matrix[on[b]]
        for i in range(V):
            rise[i] += row[i]
    here = listed.losses[m]
    add_hit, add_miss = f1_loss(size + 1, hits + 1, n1) - here, f1_loss(size + 1, hits, n1) - here
    drop_hit, drop_miss = f1_loss(size - 1, hits - 1, n1) - here, f1_loss(size - 1, hits, n1) - here
    for i in range(V):
        if y[i]:
            rise[i] = (drop_hit if truth[i] else drop_miss) - rise[i]
        else:
            rise[i] += add_hit if truth[i] else add_miss
    half, total, chosen, before = 0.0, 0.0, 0, -1
    while chosen != before:
        before, total, chosen = chosen, 0.0, 0
        for i in range(V):
            if rise[i] > half:
                total += rise[i]
                chosen += 1
        if chosen > 0:
            half = 0.5 * total / chosen
    return half, total, chosen


@helper(hot=True)
def promise(slope, most, curvature):
    """Gain of the best step in [0, most] when the slope falls by `curvature` per unit."""
    if slope >= most * curvature:
        return most * (slope - 0.5 * most * curvature)
    return 0.5 * slope * slope / curvature


@helper
def best_step(slope, most, c, unary, strength, u, way, n_few):
    """The step in [0, most] at which the slope has fallen to zero, or `most`.

    The slope falls in linear pieces, with a kink where some u_e changes its sign: Newton steps
    within a shrinking bracket.
    """
    _, jump, few = way
    low, high, gamma = 0.0, most, 0.0
    for _ in range(MOST_NEWTON):
        left, bend = slope - unary * gamma, unary
        for f in range(n_few):
            e = few[f]
            pull = strength[e] * jump[e]
            after = u[e] - gamma * c * pull
            left -= pull * (max(u[e], 0.0) - max(after, 0.0))
            if after > 0 or (after == 0 and pull < 0):
                bend += c * pull * pull
        if left > 0:
            low = gamma
        else:
            high = gamma
        if low == most or high - low <= ROUNDING * most or abs(left) <= ROUNDING * slope:
            break
        gamma = min(gamma + left / bend, most) if bend > 0 else most
        if not low < gamma < high and not (gamma == most and high == most):
            gamma = 0.5 * (low + high)
    return gamma


@helper
def take_rest(truth, pairs, blocks, n, listed, rest):
    """Write the rest of block n, the mean minus the shares: labels and pairs; answer its weight and loss."""
    labels, joints = rest
    first, second, _, which = pairs
    share, kept = blocks.share[n], blocks.kept[n]
    weight, loss = 1.0, blocks.losses[n]
    for m in range(kept):
        weight -= share[m]
        loss -= share[m] * listed.losses[m]
    if weight <= RESIDUE:
        return 0.0, 0.0
    for i in range(labels.shape[0]):
        labels[i] = truth[i] + blocks.labels[n, i]
    for e in range(joints.shape[0]):
        joints[e] = truth[first[e]] * truth[second[e]] + blocks.joints[n, e]
    for m in range(kept):
        if share[m] > 0:
            on = listed.on[m]
            for b in range(listed.sizes[m]):
                labels[on[b]] -= share[m]
                for a in range(b):
                    e = which[on[a], on[b]]
                    if e != MISSING:
                        joints[e] -= share[m]
    for i in range(labels.shape[0]):
        labels[i] /= weight
    for e in range(joints.shape[0]):
        joints[e] /= weight
    return weight, loss / weight


@helper
def value_of(scores, matrix, m, listed):
    """Value of set m, which has been listed."""
    on, value = listed.on[m], listed.losses[m]
    for b in range(listed.sizes[m]):
        value += scores[on[b]]
        for c in range(b):
            value += matrix[on[c], on[b]]
    return value


@helper
def value_of_rest(scores, strength, u, loss, rest):
    """Value of the rest, whose loss is given."""
    value = loss
    for i in range(scores.shape[0]):
        value += rest.labels[i] * scores[i]
    for e in range(u.shape[0]):
        value += rest.joints[e] * strength[e] * max(u[e], 0.0)
    return value


@helper(hot=True)
def extremes(kept, share, values):
    """The highest of the remembered sets, and the lowest of those that have a share (or MISSING)."""
    high, low = 0, MISSING
    for m in range(kept):
        if values[m] > values[high]:
            high = m
        if share[m] > 0 and (low == MISSING or values[m] < values[low]):
            low = m
    return high, low


@helper
def join(sign, on, size, other, which, n_few, way):
    """Add the pairs of a listed set that `other` lacks to the step, with a sign; answer how many change."""
    _, jump, few = way
    for b in range(size):
        i = on[b]
        for a in range(b):
            j = on[a]
            if not (other[i] and other[j]):
                e = which[i, j]
                if e != MISSING:
                    jump[e] = sign
                    few[n_few] = e
                    n_few += 1
    return n_few


@helper
def leave_rest(high, memory, which, listed, rest, way):
    """Write the step from the rest to set `high`; answer how many pairs change."""
    step, jump, few = way
    on = listed.on[high]
    for i in range(step.shape[0]):
        step[i] = memory[high, i] - rest.labels[i]
    for e in range(jump.shape[0]):
        jump[e] = -rest.joints[e]
    for b in range(listed.sizes[high]):
        for a in range(b):
            e = which[on[a], on[b]]
            if e != MISSING:
                jump[e] += 1.0
    n_few = 0
    for e in range(jump.shape[0]):
        few[n_few] = e
        n_few += jump[e] != 0
    return n_few


@helper
def aim(low, high, memory, which, listed, way):
    """Write the step from one remembered set to another; answer how many pairs change."""
    for i in range(way.step.shape[0]):
        way.step[i] = np.float64(memory[high, i]) - memory[low, i]
    n_few = join(1.0, listed.on[high], listed.sizes[high], memory[low], which, NO, way)
    return join(-1.0, listed.on[low], listed.sizes[low], memory[high], which, n_few, way)


@helper
def find_flips(scores, truth, matrix, memory, share, kept, curvature, expected, listed, rise):
    """The remembered set whose flips promise most, if it is more than `expected`, or MISSING.

    `curvature` is that of one row, which every flip adds. Sets of a minor share are left out.
    """
    source, most = MISSING, 0.0
    for m in range(kept):
        most = max(most, share[m])
    for m in range(kept):
        if share[m] > MINOR * most:
            _, total, chosen = weigh_flips(scores, truth, matrix, memory[m], m, listed, rise)
            if chosen > 0 and promise(total, share[m], chosen * curvature) > expected:
                expected, source = promise(total, share[m], chosen * curvature), m
    return source


@helper
def flip(scores, truth, matrix, y, source, most, curvature, listed, flips):
    """Write a remembered set with some labels flipped, or with the best one where that promises more.

    Answers what the step to it promises, and how much higher it is.
    """
    rise, new = flips
    half, _, chosen = weigh_flips(scores, truth, matrix, y, source, listed, rise)
    best, fresh = 0, listed.sizes.shape[0] - 1
    for i in range(y.shape[0]):
        new[i] = 1 - y[i] if rise[i] > half else y[i]
        if rise[i] > rise[best]:
            best = i
    list_set(truth, new, fresh, listed)
    slope = value_of(scores, matrix, fresh, listed) - listed.values[source]
    expected, alone = promise(slope, most, chosen * curvature), promise(rise[best], most, curvature)
    if slope > 0 and expected >= alone:
        return expected, slope
    copy(new, y)
    new[best] = 1 - y[best]
    return alone, rise[best]


@helper
def improve(truth, pairs, c, square, blocks, n, weights, floor, rest, room):
    """One step of block n; answer what it promised, how far the mean was below the highest plane, the rest.

    The scores of the sample, u and the matrix of pair weights move with the block. Nothing moves when no step
    promises more than `floor`. The step goes from the lowest plane, perhaps the rest, to the highest one, or
    to a set with labels flipped.
    """
    listed, way, rest_room, flips, scores, _ = room
    step, jump, few = way
    _, u, matrix = weights
    strength, memory, share, kept = pairs.strength, blocks.memory[n], blocks.share[n], blocks.kept[n]
    values, rest_value, mean = listed.values, 0.0, 0.0
    weight, rest_loss = rest
    for m in range(kept):
        values[m] = value_of(scores, matrix, m, listed)
        mean += share[m] * values[m]
    if weight > 0:
        rest_value = value_of_rest(scores, strength, u, rest_loss, rest_room)
        mean += weight * rest_value
    target, source = extremes(kept, share, values)
    if weight > 0 and (source == MISSING or rest_value < values[source]):
        source, slope, most, lost = MISSING, values[target] - rest_value, weight, rest_loss
        n_few = leave_rest(target, memory, pairs.which, listed, rest_room, way)
    else:
        slope, most, lost = values[target] - values[source], share[source], listed.losses[source]
        n_few = aim(source, target, memory, pairs.which, listed, way)
    # As if no pair were cut at zero.
    curvature = 0.0
    for i in range(step.shape[0]):
        curvature += step[i] * step[i]
    curvature *= square
    for f in range(n_few):
        curvature += (strength[few[f]] * jump[few[f]]) ** 2
    expected = promise(slope, most, c * curvature) if slope > 0 else 0.0
    gap = values[target] - mean
    flipped, rise = MISSING, 0.0
    if memory.shape[0] > 1:
        flipped = find_flips(
            scores, truth, matrix, memory, share, kept, c * square, expected, listed, flips.rise
        )
        if flipped != MISSING:
            worth, rise = flip(
                scores, truth, matrix, memory[flipped], flipped, share[flipped], c * square, listed, flips
            )
            gap = max(gap, values[flipped] + rise - mean)
            if worth > expected:
                expected = worth
            else:
                flipped = MISSING
    if expected <= floor:
        return expected, gap, rest
    forgot = False
    if flipped != MISSING:
        source, slope, most, lost = flipped, rise, share[flipped], listed.losses[flipped]
        target, blocks.kept[n], forgot = remember(flips.flipped, memory, share, kept, source)
        list_set(truth, flips.flipped, target, listed)
        n_few = aim(source, target, memory, pairs.which, listed, way)
    unary = 0.0
    for i in range(step.shape[0]):
        unary += step[i] * step[i]
    unary *= c * square
    gamma = best_step(slope, most, c, unary, strength, u, way, n_few)
    if source != MISSING:
        share[source] = 0.0 if gamma == most else share[source] - gamma
    share[target] += gamma
    for i in range(step.shape[0]):
        blocks.labels[n, i] += gamma * step[i]
        scores[i] -= gamma * c * square * step[i]
    for f in range(n_few):
        e = few[f]
        blocks.joints[n, e] += gamma * jump[e]
        u[e] -= gamma * c * strength[e] * jump[e]
        set_pair(pairs.first[e], pairs.second[e], strength[e] * max(u[e], 0.0), matrix)
    blocks.losses[n] += gamma * (listed.losses[target] - lost)
    if forgot or source == MISSING:
        rest = take_rest(truth, pairs, blocks, n, listed, rest_room)
    return expected, gap, rest


@helper(hot=True)
def set_pair(i, j, weight, matrix):
    """Write the weight of a pair of labels."""
    matrix[i, j] = matrix[j, i] = weight


@compiled
def block_pass(rows, samples, pairs, order, found, visit, weights, blocks, room):
    """Improve the blocks in `order`, one after the other.

    `found` holds a set for each of them, which joins those that it remembers, or has no rows. A memory of one
    set is the plain method, without flips.
    """
    Z, u, matrix = weights
    step, _, few = room.way
    for e in range(u.shape[0]):
        set_pair(pairs.first[e], pairs.second[e], pairs.strength[e] * max(u[e], 0.0), matrix)
    for p in range(order.shape[0]):
        n = order[p]
        truth, c, square = samples.truth[n], samples.cost[n], samples.squares[n]
        if found.shape[0] > 0:
            blocks.kept[n] = remember(found[p], blocks.memory[n], blocks.share[n], blocks.kept[n], MISSING)[1]
        if blocks.kept[n] == 0:
            continue
        row_scores(rows, n, samples.bias, Z, 0, Z.shape[1], room.scores)
        copy(room.before, blocks.labels[n])
        for m in range(blocks.kept[n]):
            list_set(truth, blocks.memory[n, m], m, room.listed)
        rest = take_rest(truth, pairs, blocks, n, room.listed, room.rest)
        gained = 0.0
        for r in range(visit.rounds):
            floor = visit.enough * gained
            gain, gap, rest = improve(truth, pairs, c, square, blocks, n, weights, floor, rest, room)
            if r == 0:
                blocks.gaps[n] = gap
            if gain <= floor:
                break
            gained += gain
        # The steps moved the scores of this sample only; Z follows once for all of them.
        n_few = 0
        for i in range(step.shape[0]):
            step[i] = c * (room.before[i] - blocks.labels[n, i])
            if step[i] != 0:
                few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(rows, n, samples.bias, step, few, n_few, Z)
