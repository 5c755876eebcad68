"""Loops over bags of candidate rows: block steps, evaluation, weights.

Bag i is the rows offsets[i]..offsets[i + 1] - 1; an answer is a pair of a candidate h and a
class k, with features x_h in slot k. W is feature-major (features + 1) x K, its last row
belonging to the constant feature `bias`. H(h, k) = [k != y] + W_k . x_h. Blocks keep their
pairs in slots (see slots.py), named (h, k), or all of them as alpha (rows x K).
"""

from __future__ import annotations

import math

import numpy as np

from maxmargin.core.atoms import free_slot, solve_cached
from maxmargin.core.jit import compiled
from maxmargin.core.rows import (
    row_column_add,
    row_column_dot,
    row_product,
    row_scores,
    scatter_rows,
    scattered_norm,
    subtract_scattered,
)
from maxmargin.core.simplex import line_search
from maxmargin.structured.chain_loops import NEGLIGIBLE


@compiled
def margins(rows, start, size, bias, W, y, H):
    """H(h, k) of all pairs; returns the best pair, the lowest candidate and class on ties."""
    K = W.shape[1]
    best_h, best_k = 0, 0
    for h in range(size):
        row_scores(rows, start + h, bias, W, 0, K, H[h])
        for k in range(K):
            if k != y:
                H[h, k] += 1.0
            if H[h, k] > H[best_h, best_k]:
                best_h, best_k = h, k
    return best_h, best_k


@compiled
def vertex_step(m, alpha, H, gram, u, cost):
    """Frank-Wolfe on the slots: move alpha towards slot u by the exact line search."""
    mean, cross, norm = 0.0, 0.0, 0.0
    for j in range(m):
        mean += alpha[j] * H[j]
        cross += alpha[j] * gram[u, j]
        for l in range(m):
            norm += alpha[j] * alpha[l] * gram[j, l]
    numerator = H[u] - mean
    curvature = cost * (gram[u, u] - 2.0 * cross + norm)
    if numerator <= 0.0:
        return
    if numerator >= curvature:
        alpha[:m] = 0.0
        alpha[u] = 1.0
        return
    gamma = numerator / curvature
    for j in range(m):
        alpha[j] *= 1.0 - gamma
    alpha[u] += gamma


@compiled
def pairs_epoch(
    rows, offsets, y, costs, bias, order, W,
    capacity, label_at, slot_at, gram_at, count, labels, alpha, deltas, grams, gaps,
    pairwise, steps, precision, relaxation, H, values, old,
):  # fmt: skip
    """Visit the blocks in `order`: best pair, a slot for it, a step on the slots, move W.

    The step is Frank-Wolfe, or `pairwise` steps on all slots as in chain_pairwise.py.
    gaps[i] receives the gap of block i before its visit.
    """
    for index in range(order.size):
        i = order[index]
        start, cost, truth = offsets[i], costs[i], y[i]
        room, m = capacity[i], count[i]
        pairs = labels[label_at[i] : label_at[i + 1]].reshape((room, 2))
        a = alpha[slot_at[i] : slot_at[i + 1]]
        gram = grams[gram_at[i] : gram_at[i + 1]].reshape((room, room))
        best_h, best_k = margins(rows, start, offsets[i + 1] - start, bias, W, truth, H)
        mean, spot = 0.0, -1
        for j in range(m):
            values[j] = H[pairs[j, 0], pairs[j, 1]]
            mean += a[j] * values[j]
            old[j] = a[j]
            if pairs[j, 0] == best_h and pairs[j, 1] == best_k:
                spot = j
        gaps[i] = max(cost * (H[best_h, best_k] - mean), 0.0)
        if spot < 0:
            spot = free_slot(m, a, values)
            if spot < 0:
                continue
            m = max(m, spot + 1)
            count[i] = m
            pairs[spot, 0], pairs[spot, 1] = best_h, best_k
            a[spot], old[spot], values[spot] = 0.0, 0.0, H[best_h, best_k]
            deltas[slot_at[i] + spot] = 0.0 if best_k == truth else 1.0
            for j in range(m):
                product = 0.0
                if pairs[j, 1] == best_k:
                    product = row_product(rows, start + pairs[j, 0], start + best_h, bias)
                gram[j, spot] = product
                gram[spot, j] = product
        if pairwise:
            solve_cached(m, a, values, gram, cost / relaxation, steps, precision)
        else:
            vertex_step(m, a, values, gram, spot, cost)
        for j in range(m):
            if a[j] != old[j]:
                step = cost * (old[j] - a[j])
                row_column_add(rows, start + pairs[j, 0], bias, step, pairs[j, 1], W)


@compiled
def cached_epoch(
    rows, offsets, costs, bias, order, W,
    capacity, label_at, slot_at, gram_at, count, labels, alpha, deltas, grams,
    steps, precision, relaxation, values, old,
):  # fmt: skip
    """Visit the blocks in `order` on the pairs in use alone: pairwise steps, move W."""
    for index in range(order.size):
        i = order[index]
        start, cost = offsets[i], costs[i]
        room, m = capacity[i], count[i]
        pairs = labels[label_at[i] : label_at[i + 1]].reshape((room, 2))
        a = alpha[slot_at[i] : slot_at[i + 1]]
        gram = grams[gram_at[i] : gram_at[i + 1]].reshape((room, room))
        for j in range(m):
            old[j], values[j] = a[j], -np.inf
            if a[j] > 0.0:
                score = row_column_dot(rows, start + pairs[j, 0], bias, pairs[j, 1], W)
                values[j] = deltas[slot_at[i] + j] + score
        solve_cached(m, a, values, gram, cost / relaxation, steps, precision)
        for j in range(m):
            if a[j] != old[j]:
                step = cost * (old[j] - a[j])
                row_column_add(rows, start + pairs[j, 0], bias, step, pairs[j, 1], W)


@compiled
def weights_of_pairs(
    rows, offsets, y, costs, bias, chosen,
    capacity, label_at, slot_at, count, labels, alpha, W,
):  # fmt: skip
    """Add sum_i C_i (Phi(y_i, h*_i) - E Phi) to W, which enters as zero."""
    for i in range(offsets.size - 1):
        start = offsets[i]
        pairs = labels[label_at[i] : label_at[i + 1]].reshape((capacity[i], 2))
        row_column_add(rows, start + chosen[i], bias, costs[i], y[i], W)
        for j in range(count[i]):
            step = -costs[i] * alpha[slot_at[i] + j]
            if step != 0.0:
                row_column_add(rows, start + pairs[j, 0], bias, step, pairs[j, 1], W)


@compiled
def bag_values(rows, offsets, first, last, y, bias, W, chosen, H, hinge, at_chosen, at_best, best):
    """For the bags first..last-1: largest H, score of the true class at the chosen candidate, its
    largest score over all candidates and where; a tie keeps the chosen one, else the lowest."""
    for i in range(first, last):
        start, truth = offsets[i], y[i]
        size = offsets[i + 1] - start
        best_h, best_k = margins(rows, start, size, bias, W, truth, H)
        hinge[i] = H[best_h, best_k]
        top = chosen[i]
        at_chosen[i] = H[top, truth]
        for h in range(size):
            if H[h, truth] > H[top, truth]:
                top = h
        at_best[i] = H[top, truth]
        best[i] = top


@compiled
def bag_scores(rows, offsets, first, last, bias, W, work, scores, candidates):
    """Largest score of every class over the candidates of a bag, and the candidate (lowest on ties)."""
    K = W.shape[1]
    for i in range(first, last):
        for h in range(offsets[i + 1] - offsets[i]):
            row_scores(rows, offsets[i] + h, bias, W, 0, K, work)
            for k in range(K):
                if h == 0 or work[k] > scores[i, k]:
                    scores[i, k] = work[k]
                    candidates[i, k] = h


@compiled
def soften(alpha, H, start, size, rate, top, target):
    """target(h, k) = alpha(h, k) exp(rate H(h, k)), normalised, as probabilities."""
    K = H.shape[1]
    largest = -np.inf
    for h in range(size):
        for k in range(K):
            target[h, k] = math.log(alpha[start + h, k]) + rate * (H[h, k] - top)
            largest = max(largest, target[h, k])
    total = 0.0
    for h in range(size):
        for k in range(K):
            shifted = target[h, k] - largest
            target[h, k] = math.exp(shifted) if shifted > NEGLIGIBLE else 0.0
            total += target[h, k]
    for h in range(size):
        for k in range(K):
            target[h, k] /= total


@compiled
def direction(target, alpha, H, start, size, d):
    """d = target - alpha, and its product with H."""
    total = 0.0
    for h in range(size):
        for k in range(H.shape[1]):
            d[h, k] = target[h, k] - alpha[start + h, k]
            total += d[h, k] * H[h, k]
    return total


@compiled
def spread_bag(rows, start, size, bias, d, V, columns, seen, stamp):
    """V = sum_h (x_h, bias) d_h'; returns the touched columns and |V|^2."""
    touched = scatter_rows(rows, start, size, d, V, columns, seen, stamp)
    last = V[V.shape[0] - 1]
    norm = scattered_norm(V, columns, touched)
    for k in range(last.size):
        last[k] = 0.0
        for h in range(size):
            last[k] += bias * d[h, k]
        norm += last[k] * last[k]
    return touched, norm


@compiled
def bcpl_epoch(
    rows, offsets, y, costs, bias, order, W, V, alpha, rates,
    longest, floor, safeguard, gaps, H, target, d, columns, seen, stamp,
):  # fmt: skip
    """Block-coordinate partial linearisation over all pairs of a bag, with rate 1 / tau each.

    With `safeguard` the best pair itself is tried as target, and the step that promises the
    larger decrease is taken. `floor` > 0 of the uniform distribution is blended in after each
    step, so that alpha stays positive.
    """
    K = W.shape[1]
    for index in range(order.size):
        i = order[index]
        start, cost = offsets[i], costs[i]
        size = offsets[i + 1] - start
        best_h, best_k = margins(rows, start, size, bias, W, y[i], H)
        top, decrease, vertex_gamma = H[best_h, best_k], -1.0, 0.0
        target[:size] = 0.0
        target[best_h, best_k] = 1.0
        numerator = direction(target, alpha, H, start, size, d)
        gaps[i] = max(cost * numerator, 0.0)
        if safeguard:
            stamp += 1
            touched, norm = spread_bag(rows, start, size, bias, d, V, columns, seen, stamp)
            vertex_gamma = line_search(numerator, cost * norm, longest)
            decrease = vertex_gamma * (numerator - 0.5 * vertex_gamma * cost * norm)
        soften(alpha, H, start, size, rates[i], top, target)
        numerator = direction(target, alpha, H, start, size, d)
        stamp += 1
        touched, norm = spread_bag(rows, start, size, bias, d, V, columns, seen, stamp)
        gamma = line_search(numerator, cost * norm, longest)
        if decrease > gamma * (numerator - 0.5 * gamma * cost * norm):
            gamma = vertex_gamma
            target[:size] = 0.0
            target[best_h, best_k] = 1.0
        if gamma <= 0.0:
            continue
        total, uniform = 0.0, floor / (size * K)
        for h in range(size):
            for k in range(K):
                old = alpha[start + h, k]
                mixed = (1.0 - gamma) * old + gamma * target[h, k]
                alpha[start + h, k] = (1.0 - floor) * mixed + uniform
                d[h, k] = -old
                total += alpha[start + h, k]
        for h in range(size):
            for k in range(K):
                alpha[start + h, k] /= total
                d[h, k] += alpha[start + h, k]
        stamp += 1
        touched, norm = spread_bag(rows, start, size, bias, d, V, columns, seen, stamp)
        subtract_scattered(cost, V, columns, touched, W)
        for k in range(K):
            W[W.shape[0] - 1, k] -= cost * V[W.shape[0] - 1, k]
    return stamp


@compiled
def weights_of_alpha(rows, offsets, y, costs, bias, chosen, alpha, V, d, columns, seen, stamp, W):
    """Add sum_i C_i (Phi(y_i, h*_i) - E Phi) to W, which enters as zero."""
    K = W.shape[1]
    for i in range(offsets.size - 1):
        start = offsets[i]
        size = offsets[i + 1] - start
        for h in range(size):
            for k in range(K):
                d[h, k] = alpha[start + h, k]
        d[chosen[i], y[i]] -= 1.0
        stamp += 1
        touched, _ = spread_bag(rows, start, size, bias, d, V, columns, seen, stamp)
        subtract_scattered(costs[i], V, columns, touched, W)
        for k in range(K):
            W[W.shape[0] - 1, k] -= costs[i] * V[W.shape[0] - 1, k]
    return stamp
