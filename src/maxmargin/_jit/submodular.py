"""Loops over the rows of X for the submodular multi-label machine.

Z holds the unary weights feature-major with the bias last ((D + 1) x V). A block n is the part
of the dual that belongs to one sample: a convex combination of planes, kept as the mean of their
labels (`labels[n]`), of their pairs (`joints[n]`) and of their losses (`losses[n]`). Then

    Z = sum_n c_n (x_n, 1) (y^n - labels[n])',    u_e = sum_n c_n strength_e (y^n_i y^n_j - joints[n, e])

and the pair weights are strength_e max(0, u_e). The latest sets of a block are remembered
(`memory[n]`, the first `kept[n]` rows) with their shares of the combination; what they do not
explain is one more plane, the rest, which needs no storage: it is the mean minus the shares.
"""

from __future__ import annotations

import numpy as np

from maxmargin._jit._compile import compiled
from maxmargin._jit.cuts import own_graph
from maxmargin._jit.f1_inference import infer, inference_workspace, largest_truth
from maxmargin._jit.rows import row_outer_few, row_scores

# The rest of a block below this weight is rounding.
RESIDUE = 1e-12
# A block is left when its slope has fallen to this part of the first one.
ENOUGH = 1e-2


@compiled
def score_rows(data, indices, indptr, dense, bias, Z, begin, end, scores):
    """scores[n] = (x_n, bias)' Z for the rows from `begin` to `end`."""
    V = Z.shape[1]
    for n in range(begin, end):
        row_scores(data, indices, indptr, dense, n, bias, Z, 0, V, scores[n])


@compiled
def add_outer(data, indices, indptr, dense, bias, step, lo, hi, Z):
    """Z[:, lo:hi] += sum_n (x_n, bias) step[n, lo:hi]', skipping zeros of `step`."""
    few = np.empty(Z.shape[1], np.int64)
    for n in range(step.shape[0]):
        n_few = 0
        for i in range(lo, hi):
            if step[n, i] != 0:
                few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(data, indices, indptr, dense, n, bias, step[n], few, n_few, Z)


@compiled
def plane_value(scores, start, head, arcs, truth, y):
    """Value of the plane of the set y, up to the score of the truth, and the loss in it."""
    size, hits, n1, value = 0, 0, 0, 0.0
    for i in range(y.shape[0]):
        n1 += truth[i]
        if y[i]:
            size += 1
            hits += truth[i]
            value += scores[i]
            for k in range(start[i], start[i + 1]):
                if y[head[k]]:
                    value += 0.5 * arcs[k]
    loss = 1.0 - 2.0 * hits / (size + n1) if size + n1 > 0 else 0.0
    return value + loss, loss


@compiled
def remember(y, memory, share, kept):
    """Add y to the remembered sets unless it is there; the one with the least share makes room."""
    V = y.shape[0]
    for m in range(kept):
        same = True
        for i in range(V):
            if memory[m, i] != y[i]:
                same = False
                break
        if same:
            return kept
    slot = kept
    if kept == memory.shape[0]:
        slot = 0
        for m in range(1, kept):
            if share[m] < share[slot]:
                slot = m
    for i in range(V):
        memory[slot, i] = y[i]
    share[slot] = 0.0
    return max(kept, slot + 1)


@compiled(inline=True)
def set_pair(e, weight, first, second, slot, arcs, total):
    """Give pair e a new weight in the graph."""
    change = weight - arcs[slot[2 * e]]
    arcs[slot[2 * e]] = weight
    arcs[slot[2 * e + 1]] = weight
    total[first[e]] += change
    total[second[e]] += change


@compiled
def pairwise_step(
    scores,
    first,
    second,
    strength,
    slot,
    start,
    head,
    arcs,
    total,
    truth,
    c,
    square,
    memory,
    share,
    kept,
    values,
    labels,
    joints,
    losses,
    u,
    step,
    jump,
    floor,
):
    """Move weight from the lowest to the highest plane of one block; answer the slope it found.

    The step maximises the dual with the curvature of the unclipped pairs, an upper bound, so that
    the dual never falls. Nothing moves when the slope is at most `floor`.
    """
    V, E = labels.shape[0], first.shape[0]
    mean, rest, rest_value, rest_loss = losses, 1.0, 0.0, losses
    for i in range(V):
        mean += labels[i] * scores[i]
    for e in range(E):
        mean += joints[e] * arcs[slot[2 * e]]
    rest_value = mean
    high, low = 0, -1
    for m in range(kept):
        values[m], loss = plane_value(scores, start, head, arcs, truth, memory[m])
        rest -= share[m]
        rest_value -= share[m] * values[m]
        rest_loss -= share[m] * loss
        if values[m] > values[high]:
            high = m
        if share[m] > 0 and (low < 0 or values[m] < values[low]):
            low = m
    from_rest = rest > RESIDUE and (low < 0 or rest_value / rest < values[low])
    slope = values[high] - (rest_value / rest if from_rest else values[low])
    if slope <= floor:
        return slope, losses

    top, bottom = memory[high], memory[max(low, 0)]
    for i in range(V):
        step[i] = labels[i] if from_rest else bottom[i]
    for e in range(E):
        jump[e] = joints[e] if from_rest else bottom[first[e]] * bottom[second[e]]
    if from_rest:
        for m in range(kept):
            if share[m] > 0:
                for i in range(V):
                    step[i] -= share[m] * memory[m, i]
                for e in range(E):
                    jump[e] -= share[m] * memory[m, first[e]] * memory[m, second[e]]
        for i in range(V):
            step[i] /= rest
        for e in range(E):
            jump[e] /= rest
    curvature = 0.0
    for i in range(V):
        step[i] = top[i] - step[i]
        curvature += square * step[i] * step[i]
    for e in range(E):
        jump[e] = top[first[e]] * top[second[e]] - jump[e]
        curvature += (strength[e] * jump[e]) ** 2
    most = rest if from_rest else share[low]
    gamma = most if slope >= most * c * curvature else slope / (c * curvature)

    _, gained = plane_value(scores, start, head, arcs, truth, top)
    if from_rest:
        lost = rest_loss / rest
    else:
        _, lost = plane_value(scores, start, head, arcs, truth, bottom)
        share[low] = 0.0 if gamma == most else share[low] - gamma
    share[high] += gamma
    for i in range(V):
        labels[i] += gamma * step[i]
        scores[i] -= gamma * c * square * step[i]
    for e in range(E):
        if jump[e] != 0:
            joints[e] += gamma * jump[e]
            u[e] -= gamma * c * strength[e] * jump[e]
            set_pair(e, strength[e] * max(u[e], 0.0), first, second, slot, arcs, total)
    return slope, losses + gamma * (gained - lost)


@compiled
def block_pass(
    data,
    indices,
    indptr,
    dense,
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
    mirror,
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
    slack,
    bound,
):
    """Improve the blocks in `order`, one after the other.

    With `ask` each sample is first asked for its most violating set, and slack and bound are
    recorded as they were met; otherwise the block works on its remembered sets alone. `slot[2 e]`
    and `slot[2 e + 1]` are the arcs of pair e in the graph (start, head, mirror).
    """
    V, E, M = truth.shape[1], first.shape[0], memory.shape[1]
    graph = own_graph(start, head, mirror, np.zeros(head.shape[0]), np.zeros(V))
    arcs, total = graph[4], graph[6]
    scratch = inference_workspace(V, head.shape[0], largest_truth(truth, 0, truth.shape[0]))
    ranks, few = np.empty(V, np.int64), np.empty(V, np.int64)
    scores, before, step, y = np.empty(V), np.empty(V), np.empty(V), np.empty(V, np.uint8)
    jump, values = np.empty(E), np.empty(M)
    for e in range(E):
        set_pair(e, strength[e] * max(u[e], 0.0), first, second, slot, arcs, total)
    for n in order:
        row_scores(data, indices, indptr, dense, n, bias, Z, 0, V, scores)
        if ask:
            slack[n], bound[n], _, hints[n] = infer(
                scores, graph, truth[n], exact, max_nodes, hints[n], ranks, scratch, y
            )
            kept[n] = remember(y, memory[n], share[n], kept[n])
        if kept[n] == 0:
            continue
        for i in range(V):
            before[i] = labels[n, i]
        floor = 0.0
        for r in range(rounds):
            slope, losses[n] = pairwise_step(
                scores,
                first,
                second,
                strength,
                slot,
                start,
                head,
                arcs,
                total,
                truth[n],
                cost[n],
                squares[n],
                memory[n],
                share[n],
                kept[n],
                values,
                labels[n],
                joints[n],
                losses[n],
                u,
                step,
                jump,
                floor,
            )
            if slope <= floor:
                break
            if r == 0:
                floor = ENOUGH * slope
        n_few = 0
        for i in range(V):
            step[i] = cost[n] * (before[i] - labels[n, i])
            if step[i] != 0:
                few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(data, indices, indptr, dense, n, bias, step, few, n_few, Z)


@compiled
def remembered_slack(scores, truth, first, second, weight, memory, begin, end, values):
    """Slack of every remembered set of the examples from `begin` to `end`."""
    V = truth.shape[1]
    for n in range(begin, end):
        a, t = scores[n], truth[n]
        n1, at_truth = 0, 0.0
        for i in range(V):
            if t[i]:
                n1 += 1
                at_truth += a[i]
        for e in range(first.shape[0]):
            if t[first[e]] and t[second[e]]:
                at_truth += weight[e]
        for m in range(memory.shape[0]):
            y = memory[m, n]
            size, hits, score = 0, 0, -at_truth
            for i in range(V):
                if y[i]:
                    size += 1
                    hits += t[i]
                    score += a[i]
            for e in range(first.shape[0]):
                if y[first[e]] and y[second[e]]:
                    score += weight[e]
            if size + n1 > 0:
                score += 1.0 - 2.0 * hits / (size + n1)
            values[m, n] = score
