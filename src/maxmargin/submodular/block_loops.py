"""Blocks of the dual of the submodular multi-label machine, one per sample.

A block n is a convex combination of planes, stored as the mean of their labels (`labels[n]`), of their pairs
(`joints[n]`) and of their losses (`losses[n]`). With the unary weights Z ((D + 1) x V),

    Z = sum_n c_n (x_n, 1) (y^n - labels[n])',    u_e = sum_n c_n strength_e (y^n_i y^n_j - joints[n, e])

and the pair weights are strength_e max(0, u_e). Some sets of a block are remembered (`memory[n]`, the first
`kept[n]` rows) with their shares of the combination. The remaining share belongs to one more plane, the rest,
which is the mean minus the shares and needs no storage.

A step moves the weight gamma from one plane of a block to another whose value is larger by `slope`. If their
labels differ by `step` and their pairs by `jump`, the slope of the dual falls to

    slope - gamma c |x|^2 |step|^2 - sum_e r_e (max(0, u_e) - max(0, u_e - gamma c r_e)),

r_e = strength_e jump_e; gamma is the root of this. There are two kinds of steps, and the one with the larger
predicted gain is taken: from the lowest to the highest plane in memory, or from a remembered set to the same
set with some labels flipped, which need not be remembered yet. Inference finds one set per call, and a block
with many labels near their margins needs many sets; flips find most of them for the price of a sum.

Sets contain few of the labels. A visit first lists the labels of the remembered sets, so that the cost of
scores and steps depends on the labels that are on and their pairs, not on all labels and pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import row_outer_few, row_scores
from maxmargin.submodular.cut_loops import copy
from maxmargin.submodular.inference_loops import count, f1_loss

# A smaller weight of the rest is rounding.
RESIDUE = 1e-12
# A line search ends when its bracket or its slope is this small relative to its start.
ROUNDING = 1e-15
# Most Newton steps within a bracket; only rounding can make them cycle.
MOST_NEWTON = 100
# Labels are flipped only in sets with at least this fraction of the largest share of the block.
MINOR = 0.3
# A visit ends when a step is predicted to gain less than this fraction of the gain of the visit.
ENOUGH = 0.1
# No set: the source of a step is then the rest. Of one NumPy type, so that loops are compiled once.
MISSING: Any = np.int64(-1)
NO: Any = np.int64(0)


class Samples(NamedTuple):
    """True sets, costs, squared norms of the rows (bias included), and the bias."""

    truth: np.ndarray
    cost: np.ndarray
    squares: np.ndarray
    bias: np.float64


class Pairs(NamedTuple):
    """Pairs e = (first[e], second[e]) and their strengths.

    `which[i, j]` is the number of the pair of two labels, or MISSING.
    """

    first: np.ndarray
    second: np.ndarray
    strength: np.ndarray
    which: np.ndarray


class Weights(NamedTuple):
    """theta before its pairs are cut at zero, and the weights of the pairs as a symmetric matrix."""

    Z: np.ndarray
    u: np.ndarray
    matrix: np.ndarray


class Blocks(NamedTuple):
    """One convex combination of planes per sample: mean labels, mean pairs (both on), mean loss.

    Labels and pairs are stored minus those of the true set: for large features the difference is so small
    that it would be lost to rounding in the sum.

    `memory[n]` are the `kept[n]` remembered sets of the sample and `share[n]` their shares of the
    combination; `gaps[n]` is the gap of the block at its last visit.
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


class Direction(NamedTuple):
    """The change of labels (`step`) and of pairs (`jump`) of a step; `few` lists the pairs that change."""

    step: np.ndarray
    jump: np.ndarray
    few: np.ndarray


class Rest(NamedTuple):
    """Labels and pairs of the rest."""

    labels: np.ndarray
    joints: np.ndarray


class Flips(NamedTuple):
    """The gain of flipping each label, and a set with some of its labels flipped."""

    gain: np.ndarray
    flipped: np.ndarray


class StepWorkspace(NamedTuple):
    """Workspace of a visit: see above; scores of the sample, and its mean labels at the start."""

    listed: Listed
    direction: Direction
    rest: Rest
    flips: Flips
    scores: np.ndarray
    before: np.ndarray

    @classmethod
    def empty(cls, memory: int, V: int, E: int) -> StepWorkspace:
        """Allocate a workspace for `memory` sets, V labels and E pairs."""
        sizes, hits = np.empty((2, memory + 1), np.int64)
        losses, values = np.empty((2, memory + 1))
        return cls(
            Listed(np.empty((memory + 1, V), np.int64), sizes, hits, losses, values),
            Direction(np.empty(V), np.empty(E), np.empty(max(V, E), np.int64)),
            Rest(np.empty(V), np.empty(E)),
            Flips(np.empty(V), np.empty(V, np.uint8)),
            np.empty(V),
            np.empty(V),
        )


@helper
def remember(y, memory, share, kept, spare):
    """Add y to the remembered sets unless it is one of them.

    If the memory is full, y replaces the set with the smallest share, except the one at `spare`. Returns the
    position of y, the number of sets, and whether a share was lost.
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
    share_lost = slot < kept and share[slot] > 0
    share[slot] = 0.0
    return slot, max(kept, slot + 1), share_lost


@helper
def list_set(truth, y, m, listed):
    """List the labels of set m, and store its loss."""
    on = listed.on[m]
    size, hits = 0, 0
    for i in range(y.shape[0]):
        on[size] = i
        size += y[i]
        hits += y[i] * truth[i]
    listed.sizes[m], listed.hits[m] = size, hits
    listed.losses[m] = f1_loss(size, hits, count(truth))


@helper
def flip_gains(scores, truth, matrix, y, m, listed, gain):
    """Write the gain of flipping each label of set m, y; choose labels to flip together.

    Chosen are the labels that gain more than half of the mean gain of the chosen ones: with a curvature of
    one each, they have the largest predicted gain if gains add up. Returns that half, the sum of the gains
    and the number of labels.
    """
    on, size, hits, n1 = listed.on[m], listed.sizes[m], listed.hits[m], count(truth)
    V = scores.shape[0]
    copy(gain, scores)
    for b in range(size):
        row = matrix[on[b]]
        for i in range(V):
            gain[i] += row[i]
    # The loss changes with the size of the set and its hits.
    here = listed.losses[m]
    add_hit, add_miss = f1_loss(size + 1, hits + 1, n1) - here, f1_loss(size + 1, hits, n1) - here
    drop_hit, drop_miss = f1_loss(size - 1, hits - 1, n1) - here, f1_loss(size - 1, hits, n1) - here
    for i in range(V):
        if y[i]:
            gain[i] = (drop_hit if truth[i] else drop_miss) - gain[i]
        else:
            gain[i] += add_hit if truth[i] else add_miss
    # Choose labels above half of the mean gain of the chosen ones, until the choice is stable.
    half, total, chosen, before = 0.0, 0.0, 0, -1
    while chosen != before:
        before, total, chosen = chosen, 0.0, 0
        for i in range(V):
            if gain[i] > half:
                total += gain[i]
                chosen += 1
        if chosen > 0:
            half = 0.5 * total / chosen
    return half, total, chosen


@helper(hot=True)
def best_gain(slope, most, curvature):
    """Return the gain of the best step in [0, most] if the slope falls by `curvature` per unit."""
    if slope >= most * curvature:
        return most * (slope - 0.5 * most * curvature)
    return 0.5 * slope * slope / curvature


@helper
def best_step(slope, most, c, unary, strength, u, direction, n_few):
    """Return the step in [0, most] at which the slope is zero, or `most`.

    The slope is piecewise linear, with a kink where some u_e changes its sign: Newton steps within a
    shrinking bracket.
    """
    _, jump, few = direction
    low, high, gamma = 0.0, most, 0.0
    for _ in range(MOST_NEWTON):
        left, bend = slope - unary * gamma, unary
        for f in range(n_few):
            e = few[f]
            change = strength[e] * jump[e]
            after = u[e] - gamma * c * change
            left -= change * (max(u[e], 0.0) - max(after, 0.0))
            if after > 0 or (after == 0 and change < 0):
                bend += c * change * change
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
def compute_rest(truth, pairs, blocks, n, listed, rest):
    """Write labels and pairs of the rest of block n, the mean minus the shares; return weight and loss."""
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
    """Return the value of set m, which has been listed."""
    on, value = listed.on[m], listed.losses[m]
    for b in range(listed.sizes[m]):
        value += scores[on[b]]
        for c in range(b):
            value += matrix[on[c], on[b]]
    return value


@helper
def value_of_rest(scores, strength, u, loss, rest):
    """Return the value of the rest, with its given loss."""
    value = loss
    for i in range(scores.shape[0]):
        value += rest.labels[i] * scores[i]
    for e in range(u.shape[0]):
        value += rest.joints[e] * strength[e] * max(u[e], 0.0)
    return value


@helper(hot=True)
def extremes(kept, share, values):
    """Return the highest of the remembered sets, and the lowest of those with a share (or MISSING)."""
    high, low = 0, MISSING
    for m in range(kept):
        if values[m] > values[high]:
            high = m
        if share[m] > 0 and (low == MISSING or values[m] < values[low]):
            low = m
    return high, low


@helper
def add_pairs(sign, on, size, other, which, n_few, direction):
    """Add the pairs of a listed set that `other` lacks to the direction; return how many pairs change."""
    _, jump, few = direction
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
def step_from_rest(high, memory, which, listed, rest, direction):
    """Write the direction from the rest to set `high`; return how many pairs change."""
    step, jump, few = direction
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
def step_between(low, high, memory, which, listed, direction):
    """Write the direction from one remembered set to another; return how many pairs change."""
    for i in range(direction.step.shape[0]):
        direction.step[i] = np.float64(memory[high, i]) - memory[low, i]
    n_few = add_pairs(1.0, listed.on[high], listed.sizes[high], memory[low], which, NO, direction)
    return add_pairs(-1.0, listed.on[low], listed.sizes[low], memory[high], which, n_few, direction)


@helper
def find_flips(scores, truth, matrix, memory, share, kept, curvature, expected, listed, gain):
    """Return the remembered set whose flips have the largest predicted gain above `expected`, or MISSING.

    `curvature` is that of one label, which every flip adds. Sets with a minor share are skipped.
    """
    source, most = MISSING, 0.0
    for m in range(kept):
        most = max(most, share[m])
    for m in range(kept):
        if share[m] > MINOR * most:
            _, total, chosen = flip_gains(scores, truth, matrix, memory[m], m, listed, gain)
            if chosen > 0 and best_gain(total, share[m], chosen * curvature) > expected:
                expected, source = best_gain(total, share[m], chosen * curvature), m
    return source


@helper
def flip_labels(scores, truth, matrix, y, source, most, curvature, listed, flips):
    """Write a remembered set with the chosen labels flipped, or with the best one if that gains more.

    Returns the predicted gain of the step to it, and how much higher its value is.
    """
    gain, new = flips
    half, _, chosen = flip_gains(scores, truth, matrix, y, source, listed, gain)
    best, fresh = 0, listed.sizes.shape[0] - 1
    for i in range(y.shape[0]):
        new[i] = 1 - y[i] if gain[i] > half else y[i]
        if gain[i] > gain[best]:
            best = i
    list_set(truth, new, fresh, listed)
    slope = value_of(scores, matrix, fresh, listed) - listed.values[source]
    expected, alone = best_gain(slope, most, chosen * curvature), best_gain(gain[best], most, curvature)
    if slope > 0 and expected >= alone:
        return expected, slope
    copy(new, y)
    new[best] = 1 - y[best]
    return alone, gain[best]


@helper
def block_step(truth, pairs, c, square, blocks, n, weights, floor, rest, work):
    """Take one step in block n; return its predicted gain, the gap of the block, and the rest.

    The scores of the sample, u and the matrix of pair weights are updated. Nothing moves if no step is
    predicted to gain more than `floor`. The step goes from the lowest plane, possibly the rest, to the
    highest one, or to a set with flipped labels.
    """
    listed, direction, rest_work, flips, scores, _ = work
    step, jump, few = direction
    _, u, matrix = weights
    strength, memory, share, kept = pairs.strength, blocks.memory[n], blocks.share[n], blocks.kept[n]
    values, rest_value, mean = listed.values, 0.0, 0.0
    weight, rest_loss = rest
    # Values of all planes of the block, and of their mean.
    for m in range(kept):
        values[m] = value_of(scores, matrix, m, listed)
        mean += share[m] * values[m]
    if weight > 0:
        rest_value = value_of_rest(scores, strength, u, rest_loss, rest_work)
        mean += weight * rest_value
    # The step from the lowest plane with a share to the highest one.
    target, source = extremes(kept, share, values)
    if weight > 0 and (source == MISSING or rest_value < values[source]):
        source, slope, most, lost = MISSING, values[target] - rest_value, weight, rest_loss
        n_few = step_from_rest(target, memory, pairs.which, listed, rest_work, direction)
    else:
        slope, most, lost = values[target] - values[source], share[source], listed.losses[source]
        n_few = step_between(source, target, memory, pairs.which, listed, direction)
    # The predicted gain, as if no pair were cut at zero.
    curvature = 0.0
    for i in range(step.shape[0]):
        curvature += step[i] * step[i]
    curvature *= square
    for f in range(n_few):
        curvature += (strength[few[f]] * jump[few[f]]) ** 2
    expected = best_gain(slope, most, c * curvature) if slope > 0 else 0.0
    gap = values[target] - mean
    # A step to a set with flipped labels, if it is predicted to gain more.
    flipped, gain = MISSING, 0.0
    if memory.shape[0] > 1:
        flipped = find_flips(
            scores, truth, matrix, memory, share, kept, c * square, expected, listed, flips.gain
        )
        if flipped != MISSING:
            worth, gain = flip_labels(
                scores, truth, matrix, memory[flipped], flipped, share[flipped], c * square, listed, flips
            )
            gap = max(gap, values[flipped] + gain - mean)
            if worth > expected:
                expected = worth
            else:
                flipped = MISSING
    if expected <= floor:
        return expected, gap, rest
    share_lost = False
    if flipped != MISSING:
        source, slope, most, lost = flipped, gain, share[flipped], listed.losses[flipped]
        target, blocks.kept[n], share_lost = remember(flips.flipped, memory, share, kept, source)
        list_set(truth, flips.flipped, target, listed)
        n_few = step_between(source, target, memory, pairs.which, listed, direction)
    unary = 0.0
    for i in range(step.shape[0]):
        unary += step[i] * step[i]
    unary *= c * square
    # Move the weight gamma; labels, pairs, losses, scores, u and the matrix follow.
    gamma = best_step(slope, most, c, unary, strength, u, direction, n_few)
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
    if share_lost or source == MISSING:
        rest = compute_rest(truth, pairs, blocks, n, listed, rest_work)
    return expected, gap, rest


@helper(hot=True)
def set_pair(i, j, weight, matrix):
    """Write the weight of a pair of labels."""
    matrix[i, j] = matrix[j, i] = weight


@compiled
def block_pass(rows, samples, pairs, order, found, rounds, weights, blocks, work):
    """Improve the blocks in `order`, one after the other, by at most `rounds` steps each.

    `found` has one set for each of them, which is added to the remembered ones, or has no rows. A memory of
    one set is the method without memory and flips.
    """
    Z, u, matrix = weights
    step, _, few = work.direction
    for e in range(u.shape[0]):
        set_pair(pairs.first[e], pairs.second[e], pairs.strength[e] * max(u[e], 0.0), matrix)
    for p in range(order.shape[0]):
        n = order[p]
        truth, c, square = samples.truth[n], samples.cost[n], samples.squares[n]
        if found.shape[0] > 0:
            blocks.kept[n] = remember(found[p], blocks.memory[n], blocks.share[n], blocks.kept[n], MISSING)[1]
        if blocks.kept[n] == 0:
            continue
        row_scores(rows, n, samples.bias, Z, 0, Z.shape[1], work.scores)
        copy(work.before, blocks.labels[n])
        for m in range(blocks.kept[n]):
            list_set(truth, blocks.memory[n, m], m, work.listed)
        rest = compute_rest(truth, pairs, blocks, n, work.listed, work.rest)
        gained = 0.0
        for r in range(rounds):
            floor = ENOUGH * gained
            gain, gap, rest = block_step(truth, pairs, c, square, blocks, n, weights, floor, rest, work)
            if r == 0:
                blocks.gaps[n] = gap
            if gain <= floor:
                break
            gained += gain
        # The steps updated the scores of this sample only; Z follows once, for all steps of the visit.
        n_few = 0
        for i in range(step.shape[0]):
            step[i] = c * (work.before[i] - blocks.labels[n, i])
            if step[i] != 0:
                few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(rows, n, samples.bias, step, few, n_few, Z)
