"""Loops over the rows of X for the submodular multi-label machine.

Z holds the unary weights feature-major with the bias last ((D + 1) x V). A block n is the part
of the dual that belongs to one example: the mean of the labels (`labels[n]`) and of the pairs
(`joints[n]`) of its planes, and their mean loss (`losses[n]`). Then

    Z = sum_n c_n (x_n, 1) (y^n - labels[n])',    u_e = sum_n c_n strength_e (y^n_i y^n_j - joints[n, e])

and the pair weights are the positive part of u.
"""

from __future__ import annotations

import numpy as np

from maxmargin._jit._compile import compiled
from maxmargin._jit.cuts import own_graph
from maxmargin._jit.f1_inference import infer, inference_workspace, largest_truth
from maxmargin._jit.rows import row_outer_few, row_scores


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
def frank_wolfe_pass(
    data, indices, indptr, dense, bias, order, truth, cost, square, first, second, strength,
    slot, start, head, mirror, exact, max_nodes, hints, Z, u, labels, joints, losses, slack, bound,
):
    """One Frank-Wolfe step for every block in `order`; records slack and bound as they were met.

    `slot[2 e]` and `slot[2 e + 1]` are the arcs of pair e in the graph (start, head, mirror). The
    step maximises the dual with the curvature of the unclipped pairs, which is an upper bound,
    so that the dual never falls.
    """
    V, E = truth.shape[1], first.shape[0]
    weight, total = np.zeros(head.shape[0]), np.zeros(V)
    graph = own_graph(start, head, mirror, weight, total)
    weight, total = graph[4], graph[6]
    scratch = inference_workspace(V, head.shape[0], largest_truth(truth, 0, truth.shape[0]))
    ranks = np.empty(V, np.int64)
    scores, step, y = np.empty(V), np.empty(V), np.empty(V, np.uint8)
    few = np.empty(V, np.int64)
    for n in order:
        c = cost[n]
        row_scores(data, indices, indptr, dense, n, bias, Z, 0, V, scores)
        total[:] = 0.0
        for e in range(E):
            w = strength[e] * max(u[e], 0.0)
            weight[slot[2 * e]] = w
            weight[slot[2 * e + 1]] = w
            total[first[e]] += w
            total[second[e]] += w
        slack[n], bound[n], _, hints[n] = infer(
            scores, graph, truth[n], exact, max_nodes, hints[n], ranks, scratch, y
        )
        size, hits, n1 = 0, 0, 0
        for i in range(V):
            size += y[i]
            n1 += truth[n, i]
            hits += y[i] * truth[n, i]
        loss = 1.0 - 2.0 * hits / (size + n1) if size + n1 > 0 else 0.0

        # d = c (labels - y) (x, 1)' on Z and c strength (joints - pairs of y) on u.
        slope, square_step, n_few = loss - losses[n], 0.0, 0
        for i in range(V):
            step[i] = labels[n, i] - y[i]
            slope -= scores[i] * step[i]
            square_step += step[i] * step[i]
        curvature = square[n] * square_step
        for e in range(E):
            jump = strength[e] * (joints[n, e] - y[first[e]] * y[second[e]])
            slope -= max(u[e], 0.0) * jump
            curvature += jump * jump
        if slope <= 0.0:
            continue
        gamma = 1.0 if slope >= c * curvature else slope / (c * curvature)
        for i in range(V):
            labels[n, i] -= gamma * step[i]
            step[i] *= gamma * c
            if step[i] != 0:
                few[n_few] = i
                n_few += 1
        row_outer_few(data, indices, indptr, dense, n, bias, step, few, n_few, Z)
        for e in range(E):
            jump = joints[n, e] - y[first[e]] * y[second[e]]
            joints[n, e] -= gamma * jump
            u[e] += gamma * c * strength[e] * jump
        losses[n] += gamma * (loss - losses[n])


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
