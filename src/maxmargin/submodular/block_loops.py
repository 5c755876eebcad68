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

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import row_outer_few, row_scores
from maxmargin.submodular.cut_loops import own_graph, set_arc, set_score
from maxmargin.submodular.inference_loops import infer, inference_workspace
from maxmargin.submodular.set_loops import f1_loss, size_and_hits

# The rest of a block below this weight is rounding.
RESIDUE = 1e-12
# A block is left when a step promises less than this part of what its steps have gained.
ENOUGH = 1e-2


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
        slot = -1
        for m in range(kept):
            if m != spare and (slot < 0 or share[m] < share[slot]):
                slot = m
    for i in range(V):
        memory[slot, i] = y[i]
    share[slot] = 0.0
    return slot, max(kept, slot + 1)


@compiled(inline=True)
def set_pair(e, new, pairs, graph):
    """Give pair e a new weight in the graph."""
    first, second, _, slot = pairs
    weight, total = graph[2], graph[3]
    i, j = first[e], second[e]
    change = new - weight[slot[2 * e]]
    weight[slot[2 * e]] = weight[slot[2 * e + 1]] = new
    total[i] += change
    total[j] += change
    set_arc(i, j, new, graph[4], graph[5])
    set_arc(j, i, new, graph[4], graph[5])


@compiled
def best_flip(scores, graph, truth, n1, y, marginal):
    """The label whose flip raises the value of y most, and by how much; -1 when none does."""
    start, head, weight = graph[0], graph[1], graph[2]
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
    label, rise = -1, 0.0
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
    for _ in range(100):
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
        if low == most or high - low <= 1e-15 * most or abs(left) <= 1e-15 * slope:
            break
        gamma = min(gamma + left / bend, most) if bend > 0 else most
        if not low < gamma < high and not (gamma == most and high == most):
            gamma = 0.5 * (low + high)
    return gamma


@compiled
def improve(scores, pairs, graph, truth, n1, c, square, flips, kept, block, u, floor, room):
    """One step of a block; answer what it promised, how much its loss grew, the sets kept and the gap.

    The gap is by how much the highest plane at hand, flips included, lies above the mean before the step.

    Nothing moves when no step promises more than `floor`.
    """
    first, second, strength, _ = pairs
    memory, share, labels, joints, loss = block
    values, losses, step, jump, marginal, new = room
    V, E = labels.shape[0], first.shape[0]
    rest, rest_value, rest_loss = 1.0, loss, loss
    for i in range(V):
        rest_value += labels[i] * scores[i]
    for e in range(E):
        rest_value += joints[e] * strength[e] * max(u[e], 0.0)
    mean = rest_value
    high, low = 0, -1
    for m in range(kept):
        size, hits = size_and_hits(truth, memory[m])
        losses[m] = f1_loss(size, hits, n1)
        values[m] = set_score(scores, graph, memory[m]) + losses[m]
        rest -= share[m]
        rest_value -= share[m] * values[m]
        rest_loss -= share[m] * losses[m]
        if values[m] > values[high]:
            high = m
        if share[m] > 0 and (low < 0 or values[m] < values[low]):
            low = m
    from_rest = rest > RESIDUE and (low < 0 or rest_value / rest < values[low])
    if from_rest:
        slope, most = values[high] - rest_value / rest, rest
        lost = rest_loss / rest
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
    else:
        slope, most = values[high] - values[low], share[low]
        lost = losses[low]
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
    expected = promise(slope, most, c * curvature) if slope > 0 else 0.0

    gap = values[high] - mean
    source, flipped, rise = -1, -1, 0.0
    if flips:
        for m in range(kept):
            if share[m] > 0:
                label, gain = best_flip(scores, graph, truth, n1, memory[m], marginal)
                gap = max(gap, values[m] + gain - mean)
                if label >= 0 and promise(gain, share[m], c * square) > expected:
                    expected = promise(gain, share[m], c * square)
                    source, flipped, rise = m, label, gain
    if expected <= floor:
        return expected, 0.0, kept, gap
    if source >= 0:
        for i in range(V):
            new[i] = memory[source, i]
            step[i] = 0.0
        sign = 1.0 - 2.0 * new[flipped]
        step[flipped] = sign
        for e in range(E):
            jump[e] = 0.0
            if first[e] == flipped:
                jump[e] = sign * new[second[e]]
            elif second[e] == flipped:
                jump[e] = sign * new[first[e]]
        new[flipped] = 1 - new[flipped]
        low, from_rest, slope, most, lost = source, False, rise, share[source], losses[source]
        high, kept = remember(new, memory, share, kept, source)
        size, hits = size_and_hits(truth, new)
        losses[high] = f1_loss(size, hits, n1)

    unary = 0.0
    for i in range(V):
        unary += c * square * step[i] * step[i]
    gamma = best_step(slope, most, c, unary, strength, jump, u)
    if not from_rest:
        share[low] = 0.0 if gamma == most else share[low] - gamma
    share[high] += gamma
    for i in range(V):
        labels[i] += gamma * step[i]
        scores[i] -= gamma * c * square * step[i]
    for e in range(E):
        if jump[e] != 0:
            joints[e] += gamma * jump[e]
            u[e] -= gamma * c * strength[e] * jump[e]
            set_pair(e, strength[e] * max(u[e], 0.0), pairs, graph)
    return expected, gamma * (losses[high] - lost), kept, gap


@compiled
def block_pass(
    rows,
    bias,
    order,
    truth,
    cost,
    squares,
    first,
    second,
    strength,
    slot,
    start,
    head,
    ask,
    exact,
    max_nodes,
    rounds,
    hints,
    memory,
    share,
    kept,
    Z,
    u,
    labels,
    joints,
    losses,
    gaps,
    slack,
    bound,
):
    """Improve the blocks in `order`, one after the other.

    With `ask` each sample is first asked for its most violating set, and slack and bound are
    recorded as they were met; otherwise the block works on its remembered sets and their flips.
    A memory of one set is the plain method, without flips. `slot[2 e]` and `slot[2 e + 1]` are
    the arcs of pair e in the graph (start, head).
    """
    V, E, M = truth.shape[1], first.shape[0], memory.shape[1]
    pairs = first, second, strength, slot
    graph = own_graph(start, head, np.zeros(head.shape[0]), np.zeros(V))
    scratch = inference_workspace(V)
    ranks, few = np.empty(V, np.int64), np.empty(V, np.int64)
    scores, before, y = np.empty(V), np.empty(V), np.empty(V, np.uint8)
    step = np.empty(V)
    room = np.empty(M), np.empty(M), step, np.empty(E), np.empty(V), np.empty(V, np.uint8)
    for e in range(E):
        set_pair(e, strength[e] * max(u[e], 0.0), pairs, graph)
    for n in order:
        row_scores(rows, n, bias, Z, 0, V, scores)
        if ask:
            slack[n], bound[n], _, hints[n] = infer(
                scores, graph, truth[n], exact, max_nodes, hints[n], ranks, scratch, y
            )
            _, kept[n] = remember(y, memory[n], share[n], kept[n], -1)
        if kept[n] == 0:
            continue
        n1 = np.int64(0)
        for i in range(V):
            before[i] = labels[n, i]
            n1 += truth[n, i]
        gained = 0.0
        for r in range(rounds):
            block = memory[n], share[n], labels[n], joints[n], losses[n]
            gain, growth, kept[n], gap = improve(
                scores, pairs, graph, truth[n], n1, cost[n], squares[n], M > 1, kept[n], block, u,
                ENOUGH * gained, room,
            )  # fmt: skip
            if r == 0:
                gaps[n] = gap
            if gain <= ENOUGH * gained:
                break
            losses[n] += growth
            gained += gain
        n_few = 0
        for i in range(V):
            step[i] = cost[n] * (before[i] - labels[n, i])
            if step[i] != 0:
                few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(rows, n, bias, step, few, n_few, Z)
