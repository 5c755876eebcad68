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
with one label flipped, which need not be remembered yet. Inference finds one set per call, and a
block with many labels near their margins needs many: flips find most of them for the price of a sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import row_outer_few, row_scores
from maxmargin.submodular.cut_loops import Arcs, copy, set_arc, set_score
from maxmargin.submodular.inference_loops import (
    Example,
    f1_loss,
    infer,
    load,
    size_and_hits,
)

# The rest of a block below this weight is rounding.
RESIDUE = 1e-12
# A line search ends when its bracket or its slope is this small relative to where it began: rounding.
ROUNDING = 1e-15
# Newton steps within a bracket end long before; this ends them when rounding makes them go round.
MOST_NEWTON = 100
# Where a block has no plane, or no label to flip; the rest is the source of a step that has none.
MISSING = -1


class Samples(NamedTuple):
    """What does not move: true sets, costs, squared norms of the rows (bias included), the bias."""

    truth: np.ndarray
    cost: np.ndarray
    squares: np.ndarray
    bias: np.float64


class Pairs(NamedTuple):
    """Pairs e = (first, second) and their strengths; `places[2 e]` and `[2 e + 1]` are their `arcs`."""

    first: np.ndarray
    second: np.ndarray
    strength: np.ndarray
    places: np.ndarray
    arcs: Arcs


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
    """Workspace of a step: values and losses of the remembered sets, the step, a flipped set."""

    values: np.ndarray
    losses: np.ndarray
    step: np.ndarray
    jump: np.ndarray
    marginal: np.ndarray
    flipped: np.ndarray


@compiled
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


@compiled(inline=True)
def set_pair(e, new, pairs, graph):
    """Give pair e a new weight in the graph."""
    weight, total = graph.weight, graph.total
    i, j, there, back = pairs.first[e], pairs.second[e], pairs.places[2 * e], pairs.places[2 * e + 1]
    change = new - weight[there]
    weight[there] = weight[back] = new
    total[i] += change
    total[j] += change
    set_arc(i, j, new, graph.matrix, graph.near)
    set_arc(j, i, new, graph.matrix, graph.near)


@compiled
def best_flip(example, y, marginal):
    """The label whose flip raises the value of y most, and by how much; MISSING when none does."""
    scores, truth, n1, graph = example
    start, head, weight = graph.start, graph.head, graph.weight
    V = scores.shape[0]
    size, hits = size_and_hits(truth, y)
    for i in range(V):
        marginal[i] = scores[i]
    for i in range(V):
        if y[i]:
            for k in range(start[i], start[i + 1]):
                marginal[head[k]] += weight[k]
    here = f1_loss(size, hits, n1)
    add_hit, add_miss = f1_loss(size + 1, hits + 1, n1) - here, f1_loss(size + 1, hits, n1) - here
    drop_hit, drop_miss = f1_loss(size - 1, hits - 1, n1) - here, f1_loss(size - 1, hits, n1) - here
    label, rise = MISSING, 0.0
    for i in range(V):
        if y[i]:
            gain = (drop_hit if truth[i] else drop_miss) - marginal[i]
        else:
            gain = (add_hit if truth[i] else add_miss) + marginal[i]
        if gain > rise:
            label, rise = i, gain
    return label, rise


@compiled(inline=True)
def promise(slope, most, curvature):
    """Gain of the best step in [0, most] when the slope falls by `curvature` per unit."""
    if slope >= most * curvature:
        return most * (slope - 0.5 * most * curvature)
    return 0.5 * slope * slope / curvature


@compiled
def best_step(slope, most, c, unary, strength, jump, u):
    """The step in [0, most] at which the slope has fallen to zero, or `most`.

    The slope falls in linear pieces, with a kink where some u_e changes its sign: Newton steps
    within a shrinking bracket.
    """
    low, high, gamma = 0.0, most, 0.0
    for _ in range(MOST_NEWTON):
        left, bend = slope - unary * gamma, unary
        for e in range(jump.shape[0]):
            if jump[e] != 0:
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


@compiled(inline=True)
def weigh(example, pairs, blocks, n, u, room):
    """Write value and loss of the remembered sets of block n; answer the mean value and the rest.

    The rest is its share of the combination with its parts of the mean value and of the mean loss.
    """
    memory, share, labels, joints = blocks.memory[n], blocks.share[n], blocks.labels[n], blocks.joints[n]
    values, losses = room.values, room.losses
    rest, rest_value, rest_loss = 1.0, blocks.losses[n], blocks.losses[n]
    for i in range(labels.shape[0]):
        rest_value += labels[i] * example.a[i]
    for e in range(joints.shape[0]):
        rest_value += joints[e] * pairs.strength[e] * max(u[e], 0.0)
    mean = rest_value
    for m in range(blocks.kept[n]):
        size, hits = size_and_hits(example.truth, memory[m])
        losses[m] = f1_loss(size, hits, example.n1)
        values[m] = set_score(example.a, example.graph, memory[m]) + losses[m]
        rest -= share[m]
        rest_value -= share[m] * values[m]
        rest_loss -= share[m] * losses[m]
    return mean, (rest, rest_value, rest_loss)


@compiled(inline=True)
def extremes(kept, share, values):
    """The highest of the remembered sets, and the lowest of those that have a share (or MISSING)."""
    high, low = 0, MISSING
    for m in range(kept):
        if values[m] > values[high]:
            high = m
        if share[m] > 0 and (low == MISSING or values[m] < values[low]):
            low = m
    return high, low


@compiled(inline=True)
def take_rest(kept, memory, share, rest, labels, joints, pairs, room):
    """Write the labels and pairs of the rest into `step` and `jump`: the mean minus the shares."""
    first, second, step, jump = pairs.first, pairs.second, room.step, room.jump
    V, E = labels.shape[0], joints.shape[0]
    for i in range(V):
        step[i] = labels[i]
    for e in range(E):
        jump[e] = joints[e]
    for m in range(kept):
        if share[m] > 0:
            for i in range(V):
                step[i] -= share[m] * memory[m, i]
            for e in range(E):
                jump[e] -= share[m] * (memory[m, first[e]] & memory[m, second[e]])
    for i in range(V):
        step[i] /= rest
    for e in range(E):
        jump[e] /= rest


@compiled(inline=True)
def aim_high(pairs, blocks, n, square, rest, room):
    """A step from the lowest plane of block n, perhaps the rest, to its highest: write step and jump.

    Answers source (MISSING: the rest), target, the slope, the most weight that can move, the loss
    of the source, and the curvature, as if no pair were cut at zero.
    """
    first, second, strength = pairs.first, pairs.second, pairs.strength
    memory, share, kept = blocks.memory[n], blocks.share[n], blocks.kept[n]
    values, step, jump = room.values, room.step, room.jump
    V, E = step.shape[0], jump.shape[0]
    weight, rest_value, rest_loss = rest
    high, low = extremes(kept, share, values)
    if weight > RESIDUE and (low == MISSING or rest_value / weight < values[low]):
        low = MISSING
        slope, most, lost = values[high] - rest_value / weight, weight, rest_loss / weight
        take_rest(kept, memory, share, weight, blocks.labels[n], blocks.joints[n], pairs, room)
    else:
        slope, most, lost = values[high] - values[low], share[low], room.losses[low]
        for i in range(V):
            step[i] = memory[low, i]
        for e in range(E):
            jump[e] = memory[low, first[e]] & memory[low, second[e]]
    curvature = 0.0
    for i in range(V):
        step[i] = memory[high, i] - step[i]
        curvature += square * step[i] * step[i]
    for e in range(E):
        jump[e] = (memory[high, first[e]] & memory[high, second[e]]) - jump[e]
        curvature += (strength[e] * jump[e]) ** 2
    return low, high, slope, most, lost, curvature


@compiled(inline=True)
def find_flip(example, blocks, n, curvature, expected, room):
    """The flip of a remembered set of block n that promises most, if it is more than `expected`.

    Answers what to expect, the set (MISSING: no flip is better), the label, the rise in value, and
    the value of the highest set that a flip gives.
    """
    memory, share = blocks.memory[n], blocks.share[n]
    source, label, rise, highest = MISSING, MISSING, 0.0, -np.inf
    for m in range(blocks.kept[n]):
        if share[m] > 0:
            flip, gain = best_flip(example, memory[m], room.marginal)
            highest = max(highest, room.values[m] + gain)
            if flip != MISSING and promise(gain, share[m], curvature) > expected:
                expected = promise(gain, share[m], curvature)
                source, label, rise = m, flip, gain
    return expected, source, label, rise, highest


@compiled(inline=True)
def aim_at_flip(example, pairs, blocks, n, source, label, room):
    """A step from a remembered set of block n to the same set with one label flipped.

    Writes step and jump, remembers the new set, and answers its place.
    """
    first, second, step, jump, new = pairs.first, pairs.second, room.step, room.jump, room.flipped
    for i in range(step.shape[0]):
        new[i] = blocks.memory[n, source, i]
        step[i] = 0.0
    sign = 1.0 - 2.0 * new[label]
    step[label] = sign
    for e in range(jump.shape[0]):
        jump[e] = 0.0
        if first[e] == label:
            jump[e] = sign * new[second[e]]
        elif second[e] == label:
            jump[e] = sign * new[first[e]]
    new[label] = 1 - new[label]
    target, blocks.kept[n] = remember(new, blocks.memory[n], blocks.share[n], blocks.kept[n], source)
    size, hits = size_and_hits(example.truth, new)
    room.losses[target] = f1_loss(size, hits, example.n1)
    return target


@compiled(inline=True)
def improve(example, pairs, c, square, blocks, n, u, floor, room):
    """One step of block n; answer what it promised, and how far the mean was below the highest plane.

    The scores of the sample, u and the graph move with the block. Nothing moves when no step
    promises more than `floor`.
    """
    mean, rest = weigh(example, pairs, blocks, n, u, room)
    source, target, slope, most, lost, curvature = aim_high(pairs, blocks, n, square, rest, room)
    expected = promise(slope, most, c * curvature) if slope > 0 else 0.0
    gap = room.values[target] - mean
    flip_source, label, rise = MISSING, MISSING, 0.0
    if blocks.memory.shape[1] > 1:
        # A flip changes one label, so that its curvature is that of one row.
        expected, flip_source, label, rise, highest = find_flip(
            example, blocks, n, c * square, expected, room
        )
        gap = max(gap, highest - mean)
    if expected <= floor:
        return expected, gap
    if flip_source != MISSING:
        source, slope, most, lost = flip_source, rise, blocks.share[n, flip_source], room.losses[flip_source]
        target = aim_at_flip(example, pairs, blocks, n, source, label, room)
    move(example, pairs, c, square, blocks, n, u, (source, target, slope, most, lost), room)
    return expected, gap


@compiled(inline=True)
def move(example, pairs, c, square, blocks, n, u, way, room):
    """Move weight of block n the `way` (source, target, slope, most, lost) that step and jump describe."""
    scores, graph, strength = example.a, example.graph, pairs.strength
    share, labels, joints = blocks.share[n], blocks.labels[n], blocks.joints[n]
    step, jump = room.step, room.jump
    source, target, slope, most, lost = way
    unary = 0.0
    for i in range(step.shape[0]):
        unary += c * square * step[i] * step[i]
    gamma = best_step(slope, most, c, unary, strength, jump, u)
    if source != MISSING:
        share[source] = 0.0 if gamma == most else share[source] - gamma
    share[target] += gamma
    for i in range(step.shape[0]):
        labels[i] += gamma * step[i]
        scores[i] -= gamma * c * square * step[i]
    for e in range(jump.shape[0]):
        if jump[e] != 0:
            joints[e] += gamma * jump[e]
            u[e] -= gamma * c * strength[e] * jump[e]
            set_pair(e, strength[e] * max(u[e], 0.0), pairs, graph)
    blocks.losses[n] += gamma * (room.losses[target] - lost)


@compiled
def block_pass(rows, samples, pairs, order, visit, weights, blocks, met, graph, search):
    """Improve the blocks in `order`, one after the other.

    With `visit.ask` each sample is first asked for its most violating set, and slack and bound are
    recorded as they were met; otherwise the block works on its remembered sets and their flips.
    A memory of one set is the plain method, without flips. The pairs of `graph` follow the weights.
    """
    Z, u = weights
    V, E, M = Z.shape[1], u.shape[0], blocks.memory.shape[1]
    scores, before, y = np.empty(V), np.empty(V), np.empty(V, np.uint8)
    few = np.empty(V, np.int64)
    step = np.empty(V)
    room = StepRoom(np.empty(M), np.empty(M), step, np.empty(E), np.empty(V), np.empty(V, np.uint8))
    for e in range(E):
        set_pair(e, pairs.strength[e] * max(u[e], 0.0), pairs, graph)
    for n in order:
        row_scores(rows, n, samples.bias, Z, 0, V, scores)
        example = Example(scores, search.truth, load(search.truth, samples.truth[n]), graph)
        if visit.ask:
            met.slack[n], met.bound[n], _, met.hints[n] = infer(
                example, visit.exact, visit.max_nodes, met.hints[n], search, y
            )
            _, blocks.kept[n] = remember(y, blocks.memory[n], blocks.share[n], blocks.kept[n], MISSING)
        if blocks.kept[n] == 0:
            continue
        c = samples.cost[n]
        copy(before, blocks.labels[n])
        gained = 0.0
        for r in range(visit.rounds):
            floor = visit.enough * gained
            gain, gap = improve(example, pairs, c, samples.squares[n], blocks, n, u, floor, room)
            if r == 0:
                blocks.gaps[n] = gap
            if gain <= floor:
                break
            gained += gain
        # The steps moved the scores of this sample only; Z follows once for all of them.
        n_few = 0
        for i in range(V):
            step[i] = c * (before[i] - blocks.labels[n, i])
            if step[i] != 0:
                few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(rows, n, samples.bias, step, few, n_few, Z)
