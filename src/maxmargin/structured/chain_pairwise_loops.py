"""Pairwise Frank-Wolfe on chains with cached labelings.

Block i keeps a set of labelings z_j with weights alpha_j (a distribution), the losses
Delta_j and the Gram matrix Psi_j . Psi_k of their feature differences
Psi(z) = Phi(x, y) - Phi(x, z). Slot 0 is the truth, whose difference is 0. The weights of
the model are w = sum_i C_i sum_j alpha_ij Psi_ij.

With the Gram matrix at hand a step on the cached labelings costs O(slots) and moves
H_k = Delta_k - w . Psi_k exactly, so that one Viterbi call pays for many steps. A later visit
may even do without Viterbi and go on with the labelings in use.

The slots of all blocks lie in flat arrays as described in slots.py; `labels` holds a
labeling in every slot.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.atoms import free_slot, solve_cached
from maxmargin.core.jit import compiled
from maxmargin.structured.chain_loops import augment, excess, unary_scores, viterbi


@compiled
def add_difference(rows, start, length, y, z, scale, U, R, B):
    """Add scale * Psi(z) to the weights (U, R, B), touching only where z leaves the truth."""
    data, indices, indptr, dense = rows
    for t in range(length):
        a, b = z[t], y[start + t]
        if a != b:
            begin = indptr[start + t]
            for k in range(begin, indptr[start + t + 1]):
                value = scale * data[k]
                if value != 0.0:
                    c = indices[k - dense * begin]
                    U[c, b] += value
                    U[c, a] -= value
            B[0, b] += scale
            B[0, a] -= scale
            if t == 0:
                B[1, b] += scale
                B[1, a] -= scale
            if t == length - 1:
                B[2, b] += scale
                B[2, a] -= scale
        if t > 0 and (a != b or z[t - 1] != y[start + t - 1]):
            R[y[start + t - 1], b] += scale
            R[z[t - 1], a] -= scale


@compiled
def clear_difference(rows, start, length, y, z, U, R, B):
    """Set to zero every weight that `add_difference` touched for z."""
    _, indices, indptr, dense = rows
    for t in range(length):
        a, b = z[t], y[start + t]
        if a != b:
            begin = indptr[start + t]
            for k in range(begin, indptr[start + t + 1]):
                c = indices[k - dense * begin]
                U[c, b] = 0.0
                U[c, a] = 0.0
        if t > 0:
            R[y[start + t - 1], b] = 0.0
            R[z[t - 1], a] = 0.0
    B[:] = 0.0


@compiled
def dot_difference(rows, start, length, y, z, U, R, B):
    """Psi(z) . (U, R, B)."""
    data, indices, indptr, dense = rows
    total = 0.0
    for t in range(length):
        a, b = z[t], y[start + t]
        if a != b:
            begin = indptr[start + t]
            for k in range(begin, indptr[start + t + 1]):
                c = indices[k - dense * begin]
                total += data[k] * (U[c, b] - U[c, a])
            total += B[0, b] - B[0, a]
            if t == 0:
                total += B[1, b] - B[1, a]
            if t == length - 1:
                total += B[2, b] - B[2, a]
        if t > 0 and (a != b or z[t - 1] != y[start + t - 1]):
            total += R[y[start + t - 1], b] - R[z[t - 1], a]
    return total


@compiled
def find_labeling(path, labels, m, length):
    """Slot of the labeling equal to `path` among m, or -1."""
    for j in range(m):
        t = 0
        while t < length and labels[j, t] == path[t]:
            t += 1
        if t == length:
            return j
    return -1


@compiled
def pairwise_epoch(
    rows, offsets, y, costs, loss, order, U, R, B, V, VR, VB,
    capacity, label_at, slot_at, gram_at, count, labels, alpha, deltas, grams, gaps,
    steps, precision, relaxation, un, forward, path, H, old,
):  # fmt: skip
    """Visit the blocks in `order`: Viterbi, cache its labeling, solve on the cache, move w.

    (V, VR, VB) are zero weights on entry and exit; gaps[i] receives the gap of block i
    before its visit. A block whose slots are all in use goes without the new labeling.
    """
    for index in range(order.size):
        i = order[index]
        start, length, cost = offsets[i], offsets[i + 1] - offsets[i], costs[i]
        room, m = capacity[i], count[i]
        z = labels[label_at[i] : label_at[i + 1]].reshape((room, length))
        a = alpha[slot_at[i] : slot_at[i + 1]]
        gram = grams[gram_at[i] : gram_at[i + 1]].reshape((room, room))

        unary_scores(rows, start, length, U, B, un)
        augment(un, y, start, length, loss[i])
        viterbi(un, R, length, forward, path)
        top = excess(un, R, y, start, path, length)
        mean = 0.0
        for j in range(m):
            H[j] = excess(un, R, y, start, z[j], length)
            mean += a[j] * H[j]
            old[j] = a[j]
        gaps[i] = max(cost * (top - mean), 0.0)

        if find_labeling(path, z, m, length) < 0:
            spot = free_slot(m, a, H)
            if spot >= 0:
                wrong = 0
                for t in range(length):
                    z[spot, t] = path[t]
                    wrong += path[t] != y[start + t]
                m = max(m, spot + 1)
                count[i] = m
                a[spot], old[spot], H[spot] = 0.0, 0.0, top
                deltas[slot_at[i] + spot] = loss[i] * wrong
                add_difference(rows, start, length, y, path, 1.0, V, VR, VB)
                for j in range(m):
                    product = dot_difference(rows, start, length, y, z[j], V, VR, VB)
                    gram[j, spot] = product
                    gram[spot, j] = product
                clear_difference(rows, start, length, y, path, V, VR, VB)

        solve_cached(m, a, H, gram, cost / relaxation, steps, precision)
        for j in range(1, m):
            if a[j] != old[j]:
                scale = cost * (a[j] - old[j])
                add_difference(rows, start, length, y, z[j], scale, U, R, B)


@compiled
def cached_epoch(
    rows, offsets, y, costs, order, U, R, B,
    capacity, label_at, slot_at, gram_at, count, labels, alpha, deltas, grams,
    steps, precision, relaxation, H, old,
):  # fmt: skip
    """Visit the blocks in `order` without Viterbi: solve on the labelings in use, move w."""
    for index in range(order.size):
        i = order[index]
        start, length, cost = offsets[i], offsets[i + 1] - offsets[i], costs[i]
        room, m = capacity[i], count[i]
        z = labels[label_at[i] : label_at[i + 1]].reshape((room, length))
        a = alpha[slot_at[i] : slot_at[i + 1]]
        gram = grams[gram_at[i] : gram_at[i + 1]].reshape((room, room))
        for j in range(m):
            old[j], H[j] = a[j], -np.inf
            if a[j] > 0.0:
                psi_w = dot_difference(rows, start, length, y, z[j], U, R, B)
                H[j] = deltas[slot_at[i] + j] - psi_w
        solve_cached(m, a, H, gram, cost / relaxation, steps, precision)
        for j in range(1, m):
            if a[j] != old[j]:
                scale = cost * (a[j] - old[j])
                add_difference(rows, start, length, y, z[j], scale, U, R, B)


@compiled
def weights_of_labelings(
    rows, offsets, y, costs, capacity, label_at, slot_at, count, labels, alpha,
    U, R, B,
):  # fmt: skip
    """Add w = sum_i C_i sum_j alpha_ij Psi_ij to the weights (U, R, B), which enter as zero."""
    for i in range(offsets.size - 1):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        z = labels[label_at[i] : label_at[i + 1]].reshape((capacity[i], length))
        for j in range(1, count[i]):
            scale = costs[i] * alpha[slot_at[i] + j]
            if scale > 0.0:
                add_difference(rows, start, length, y, z[j], scale, U, R, B)
