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

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import row_outer_few, row_scores
from maxmargin.submodular.cut_loops import copy, set_arc
from maxmargin.submodular.inference_loops import (
    Example,
    f1_loss,
    infer,
    load,
)

# The rest of a block below this weight is rounding.
RESIDUE = 1e-12
# A line search ends when its bracket or its slope is this small relative to where it began: rounding.
ROUNDING = 1e-15
# Newton steps within a bracket end long before; this ends them when rounding makes them go round.
MOST_NEWTON = 100
# A set with less than this part of the largest share of its block is not worth flipping labels of.
MINOR = 0.3
# Where a block has no plane, or no label to flip; the rest is the source of a step that has none.
MISSING = -1

# Rows of the arrays of a `StepRoom`: of remembered sets, of labels, of pairs.
VALUE, LOSS = 0, 1
SIZE, HITS = 0, 1
STEP, RISE, REST = 0, 1, 2
JUMP, REST_PAIRS = 0, 1


class Samples(NamedTuple):
    """What does not move: true sets, costs, squared norms of the rows (bias included), the bias."""

    truth: np.ndarray
    cost: np.ndarray
    squares: np.ndarray
    bias: np.float64


class Pairs(NamedTuple):
    """Pairs e = (ends[0, e], ends[1, e]) and their strengths; `arcs[:, e]` are their places in the graph.

    `which[i, j]` is the pair of two labels, MISSING where they are none.
    """

    ends: np.ndarray
    strength: np.ndarray
    arcs: np.ndarray
    which: np.ndarray


class Visit(NamedTuple):
    """What to do with a block: ask for its most violating set (how, with how many nodes), then step.

    At most `rounds` steps; a block is left when a step promises less than the part `enough` of
    what its steps have gained.
    """

    ask: bool
    exact: bool
    max_nodes: int
    rounds: int
    enough: float


class Weights(NamedTuple):
    """theta before its pairs are cut at zero."""

    Z: np.ndarray
    u: np.ndarray


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


class Met(NamedTuple):
    """What inference met on the way: where to start next time, slacks and their bounds."""

    hints: np.ndarray
    slack: np.ndarray
    bound: np.ndarray


class StepRoom(NamedTuple):
    """Workspace of a visit; the rows of `sets`, `counts`, `labels` and `pairs` are named above.

    `on[m]` lists the labels of set m, SIZE of them, HITS of them true; the last row is for a set that is not
    remembered yet. RISE is what the flip of each label brings. STEP and JUMP are the step in labels
    and in pairs, of which `few` lists those that change. REST and REST_PAIRS describe the rest.
    """

    sets: np.ndarray
    counts: np.ndarray
    on: np.ndarray
    labels: np.ndarray
    pairs: np.ndarray
    few: np.ndarray
    flipped: np.ndarray
    before: np.ndarray

    @classmethod
    def empty(cls, memory: int, V: int, E: int) -> StepRoom:
        """Workspace for so many sets, labels and pairs."""
        return cls(
            np.empty((2, memory + 1)),
            np.empty((2, memory + 1), np.int64),
            np.empty((memory + 1, V), np.int64),
            np.empty((3, V)),
            np.empty((2, E)),
            np.empty(max(V, E), np.int64),
            np.empty(V, np.uint8),
            np.empty(V),
        )


@helper
def remember(y, memory, share, kept, spare):
    """Add y to the remembered sets unless it is there; answer its place and how many there are.

    When there is no room the set with the least share makes some, but not the one at `spare`.
    """
    V = y.shape[0]
    for m in range(kept):
        same = True
        for i in range(V):
            if memory[m, i] != y[i]:
                same = False
                break
        if same:
            return m, kept
    slot = kept
    if kept == memory.shape[0]:
        slot = MISSING
        for m in range(kept):
            if m != spare and (slot == MISSING or share[m] < share[slot]):
                slot = m
    for i in range(V):
        memory[slot, i] = y[i]
    share[slot] = 0.0
    return slot, max(kept, slot + 1)


@helper(hot=True)
def set_pair(e, new, pairs, graph):
    """Give pair e a new weight in the graph."""
    weight, total = graph.weight, graph.total
    i, j, there, back = pairs.ends[0, e], pairs.ends[1, e], pairs.arcs[0, e], pairs.arcs[1, e]
    change = new - weight[there]
    weight[there] = weight[back] = new
    total[i] += change
    total[j] += change
    set_arc(i, j, new, graph.matrix, graph.near)
    set_arc(j, i, new, graph.matrix, graph.near)


@helper
def list_set(example, y, m, room):
    """List the labels of set m, and note its loss."""
    on, truth = room.on[m], example.truth
    size, hits = 0, 0
    for i in range(y.shape[0]):
        on[size] = i
        size += y[i]
        hits += y[i] * truth[i]
    room.counts[SIZE, m], room.counts[HITS, m] = size, hits
    room.sets[LOSS, m] = f1_loss(size, hits, example.n1)


@helper
def weigh_flips(example, m, y, room):
    """Write how much the flip of each label raises the value of set m, y; find labels to flip together.

    These are the labels that bring more than half of what they bring on average: with a curvature of one
    each, they promise most if what they bring adds up. Answers the half, the sum and how many there are.
    """
    scores, truth, n1, graph = example
    on, size, hits, rise = room.on[m], room.counts[SIZE, m], room.counts[HITS, m], room.labels[RISE]
    V = scores.shape[0]
    for i in range(V):
        rise[i] = scores[i]
    for b in range(size):
        row = graph.matrix[on[b]]
        for i in range(V):
            rise[i] += row[i]
    here = room.sets[LOSS, m]
    add_hit, add_miss = f1_loss(size + 1, hits + 1, n1) - here, f1_loss(size + 1, hits, n1) - here
    drop_hit, drop_miss = f1_loss(size - 1, hits - 1, n1) - here, f1_loss(size - 1, hits, n1) - here
    for i in range(V):
        if y[i]:
            rise[i] = (drop_hit if truth[i] else drop_miss) - rise[i]
        else:
            rise[i] += add_hit if truth[i] else add_miss
    half, total, count, before = 0.0, 0.0, 0, -1
    while count != before:
        before, total, count = count, 0.0, 0
        for i in range(V):
            if rise[i] > half:
                total += rise[i]
                count += 1
        if count > 0:
            half = 0.5 * total / count
    return half, total, count


@helper(hot=True)
def promise(slope, most, curvature):
    """Gain of the best step in [0, most] when the slope falls by `curvature` per unit."""
    if slope >= most * curvature:
        return most * (slope - 0.5 * most * curvature)
    return 0.5 * slope * slope / curvature


@helper
def best_step(slope, most, c, unary, strength, n_few, u, room):
    """The step in [0, most] at which the slope has fallen to zero, or `most`.

    The slope falls in linear pieces, with a kink where some u_e changes its sign: Newton steps
    within a shrinking bracket.
    """
    few, jump = room.few, room.pairs[JUMP]
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
def take_rest(truth, pairs, blocks, n, room):
    """Write the rest of block n, the mean minus the shares: labels and pairs; answer its weight and loss."""
    share, labels, joints = blocks.share[n], room.labels[REST], room.pairs[REST_PAIRS]
    rest, loss = 1.0, blocks.losses[n]
    for m in range(blocks.kept[n]):
        rest -= share[m]
        loss -= share[m] * room.sets[LOSS, m]
    if rest <= RESIDUE:
        return 0.0, 0.0
    for i in range(labels.shape[0]):
        labels[i] = truth[i] + blocks.labels[n, i]
    for e in range(joints.shape[0]):
        joints[e] = truth[pairs.ends[0, e]] * truth[pairs.ends[1, e]] + blocks.joints[n, e]
    for m in range(blocks.kept[n]):
        if share[m] > 0:
            on = room.on[m]
            for b in range(room.counts[SIZE, m]):
                labels[on[b]] -= share[m]
                for a in range(b):
                    e = pairs.which[on[a], on[b]]
                    if e != MISSING:
                        joints[e] -= share[m]
    for i in range(labels.shape[0]):
        labels[i] /= rest
    for e in range(joints.shape[0]):
        joints[e] /= rest
    return rest, loss / rest


@helper
def value_of(example, m, room):
    """Value of set m, which has been listed."""
    a, matrix, on, value = example.a, example.graph.matrix, room.on[m], room.sets[LOSS, m]
    for b in range(room.counts[SIZE, m]):
        value += a[on[b]]
        for c in range(b):
            value += matrix[on[c], on[b]]
    return value


@helper
def weigh(example, pairs, blocks, n, u, rest, room):
    """Write the values of the remembered sets of block n; answer the mean value and that of the rest."""
    values, share = room.sets[VALUE], blocks.share[n]
    mean, rest_value = 0.0, 0.0
    for m in range(blocks.kept[n]):
        values[m] = value_of(example, m, room)
        mean += share[m] * values[m]
    weight, loss = rest
    if weight > 0:
        labels, joints = room.labels[REST], room.pairs[REST_PAIRS]
        rest_value = loss
        for i in range(labels.shape[0]):
            rest_value += labels[i] * example.a[i]
        for e in range(joints.shape[0]):
            rest_value += joints[e] * pairs.strength[e] * max(u[e], 0.0)
        mean += weight * rest_value
    return mean, rest_value


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
def join(sign, m, other, which, n_few, room):
    """Add the pairs of set m that `other` lacks to the step, with a sign; answer how many change now."""
    on, few, jump = room.on[m], room.few, room.pairs[JUMP]
    for b in range(room.counts[SIZE, m]):
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
def leave_rest(high, memory, which, room):
    """Write the step from the rest to set `high`; answer how many pairs change."""
    labels, step, joints, jump = (
        room.labels[REST],
        room.labels[STEP],
        room.pairs[REST_PAIRS],
        room.pairs[JUMP],
    )
    on = room.on[high]
    for i in range(step.shape[0]):
        step[i] = memory[high, i] - labels[i]
    for e in range(jump.shape[0]):
        jump[e] = -joints[e]
    for b in range(room.counts[SIZE, high]):
        for a in range(b):
            e = which[on[a], on[b]]
            if e != MISSING:
                jump[e] += 1.0
    n_few = 0
    for e in range(jump.shape[0]):
        room.few[n_few] = e
        n_few += jump[e] != 0
    return n_few


@helper
def aim(low, high, memory, which, room):
    """Write the step from one remembered set to another; answer how many pairs change."""
    step = room.labels[STEP]
    for i in range(step.shape[0]):
        step[i] = np.float64(memory[high, i]) - memory[low, i]
    n_few = join(1.0, high, memory[low], which, 0, room)
    return join(-1.0, low, memory[high], which, n_few, room)


@helper
def aim_high(pairs, blocks, n, square, rest, rest_value, room):
    """A step from the lowest plane of block n, perhaps the rest, to its highest: write step and jump.

    Answers source (MISSING: the rest), target, the slope, the most weight that can move, the loss
    of the source, how many pairs change, and the curvature, as if no pair were cut at zero.
    """
    memory, share = blocks.memory[n], blocks.share[n]
    values, step, jump = room.sets[VALUE], room.labels[STEP], room.pairs[JUMP]
    weight, rest_loss = rest
    high, low = extremes(blocks.kept[n], share, values)
    if weight > 0 and (low == MISSING or rest_value < values[low]):
        low = MISSING
        slope, most, lost = values[high] - rest_value, weight, rest_loss
        n_few = leave_rest(high, memory, pairs.which, room)
    else:
        slope, most, lost = values[high] - values[low], share[low], room.sets[LOSS, low]
        n_few = aim(low, high, memory, pairs.which, room)
    curvature = 0.0
    for i in range(step.shape[0]):
        curvature += step[i] * step[i]
    curvature *= square
    for f in range(n_few):
        curvature += (pairs.strength[room.few[f]] * jump[room.few[f]]) ** 2
    return low, high, slope, most, lost, n_few, curvature


@helper(hot=True)
def find_flips(example, blocks, n, curvature, expected, room):
    """The remembered set of block n whose flips promise most, if it is more than `expected`, or MISSING.

    `curvature` is that of one row, which every flip adds. Sets of a minor share are left out.
    """
    memory, share, source, most = blocks.memory[n], blocks.share[n], MISSING, 0.0
    for m in range(blocks.kept[n]):
        most = max(most, share[m])
    for m in range(blocks.kept[n]):
        if share[m] > MINOR * most:
            _, total, count = weigh_flips(example, m, memory[m], room)
            if count > 0 and promise(total, share[m], count * curvature) > expected:
                expected, source = promise(total, share[m], count * curvature), m
    return source


@helper
def flip(example, blocks, n, source, curvature, room):
    """Write a remembered set with some labels flipped, or with the best one where that promises more.

    Answers what the step to it promises, and how much higher it is.
    """
    y, new, rise, most = blocks.memory[n, source], room.flipped, room.labels[RISE], blocks.share[n, source]
    half, _, count = weigh_flips(example, source, y, room)
    best, fresh = 0, blocks.memory.shape[1]
    for i in range(y.shape[0]):
        new[i] = 1 - y[i] if rise[i] > half else y[i]
        if rise[i] > rise[best]:
            best = i
    list_set(example, new, fresh, room)
    slope = value_of(example, fresh, room) - room.sets[VALUE, source]
    expected, alone = promise(slope, most, count * curvature), promise(rise[best], most, curvature)
    if slope > 0 and expected >= alone:
        return expected, slope
    copy(new, y)
    new[best] = 1 - y[best]
    return alone, rise[best]


@helper
def aim_at_flips(example, pairs, blocks, n, source, room):
    """A step from a remembered set of block n to the one that `flip` wrote, which is remembered.

    Writes step and jump; answers its place, whether another had to go that had a share, and how many pairs
    change.
    """
    before = 0.0
    for m in range(blocks.kept[n]):
        before += blocks.share[n, m]
    target, blocks.kept[n] = remember(room.flipped, blocks.memory[n], blocks.share[n], blocks.kept[n], source)
    for m in range(blocks.kept[n]):
        before -= blocks.share[n, m]
    list_set(example, room.flipped, target, room)
    return target, before > 0, aim(source, target, blocks.memory[n], pairs.which, room)


@helper(hot=True)
def improve(example, pairs, c, square, blocks, n, u, floor, rest, room):
    """One step of block n; answer what it promised, how far the mean was below the highest plane, the rest.

    The scores of the sample, u and the graph move with the block. Nothing moves when no step
    promises more than `floor`.
    """
    mean, rest_value = weigh(example, pairs, blocks, n, u, rest, room)
    source, target, slope, most, lost, n_few, curvature = aim_high(
        pairs, blocks, n, square, rest, rest_value, room
    )
    expected = promise(slope, most, c * curvature) if slope > 0 else 0.0
    gap = room.sets[VALUE, target] - mean
    flipped, rise = MISSING, 0.0
    if blocks.memory.shape[1] > 1:
        flipped = find_flips(example, blocks, n, c * square, expected, room)
        if flipped != MISSING:
            worth, rise = flip(example, blocks, n, flipped, c * square, room)
            gap = max(gap, room.sets[VALUE, flipped] + rise - mean)
            if worth > expected:
                expected = worth
            else:
                flipped = MISSING
    if expected <= floor:
        return expected, gap, rest
    forgot = False
    if flipped != MISSING:
        source, slope, most = flipped, rise, blocks.share[n, flipped]
        lost = room.sets[LOSS, flipped]
        target, forgot, n_few = aim_at_flips(example, pairs, blocks, n, source, room)
    move(example, pairs, c, square, blocks, n, u, (source, target, slope, most, lost, n_few), room)
    if forgot or source == MISSING:
        rest = take_rest(example.truth, pairs, blocks, n, room)
    return expected, gap, rest


@helper(hot=True)
def move(example, pairs, c, square, blocks, n, u, way, room):
    """Move weight of block n the `way` (source, target, slope, most, lost, few) of step and jump."""
    scores, graph, strength = example.a, example.graph, pairs.strength
    share, labels, joints = blocks.share[n], blocks.labels[n], blocks.joints[n]
    step, jump = room.labels[STEP], room.pairs[JUMP]
    source, target, slope, most, lost, n_few = way
    unary = 0.0
    for i in range(step.shape[0]):
        unary += step[i] * step[i]
    unary *= c * square
    gamma = best_step(slope, most, c, unary, strength, n_few, u, room)
    if source != MISSING:
        share[source] = 0.0 if gamma == most else share[source] - gamma
    share[target] += gamma
    for i in range(step.shape[0]):
        labels[i] += gamma * step[i]
        scores[i] -= gamma * c * square * step[i]
    for f in range(n_few):
        e = room.few[f]
        joints[e] += gamma * jump[e]
        u[e] -= gamma * c * strength[e] * jump[e]
        set_pair(e, strength[e] * max(u[e], 0.0), pairs, graph)
    blocks.losses[n] += gamma * (room.sets[LOSS, target] - lost)


@compiled
def block_pass(rows, samples, pairs, order, visit, weights, blocks, met, graph, rooms):
    """Improve the blocks in `order`, one after the other.

    With `visit.ask` each sample is first asked for its most violating set, and slack and bound are
    recorded as they were met; otherwise the block works on its remembered sets and their flips.
    A memory of one set is the plain method, without flips. The pairs of `graph` follow the weights.
    """
    Z, u = weights
    search, room = rooms
    V, E = Z.shape[1], u.shape[0]
    scores = search.a
    for e in range(E):
        set_pair(e, pairs.strength[e] * max(u[e], 0.0), pairs, graph)
    for n in order:
        row_scores(rows, n, samples.bias, Z, 0, V, scores)
        example = Example(scores, search.truth, load(search.truth, samples.truth[n]), graph)
        if visit.ask:
            met.slack[n], met.bound[n], _, met.hints[n] = infer(
                example, visit.exact, visit.max_nodes, met.hints[n], search, room.flipped
            )
            _, blocks.kept[n] = remember(
                room.flipped, blocks.memory[n], blocks.share[n], blocks.kept[n], MISSING
            )
        if blocks.kept[n] == 0:
            continue
        c = samples.cost[n]
        copy(room.before, blocks.labels[n])
        for m in range(blocks.kept[n]):
            list_set(example, blocks.memory[n, m], m, room)
        rest = take_rest(example.truth, pairs, blocks, n, room)
        gained = 0.0
        for r in range(visit.rounds):
            floor = visit.enough * gained
            gain, gap, rest = improve(example, pairs, c, samples.squares[n], blocks, n, u, floor, rest, room)
            if r == 0:
                blocks.gaps[n] = gap
            if gain <= floor:
                break
            gained += gain
        # The steps moved the scores of this sample only; Z follows once for all of them.
        n_few, step = 0, room.labels[STEP]
        for i in range(V):
            step[i] = c * (room.before[i] - blocks.labels[n, i])
            if step[i] != 0:
                room.few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(rows, n, samples.bias, step, room.few, n_few, Z)
