"""Block steps on chains whose state is a set of marginals: BCFW, BCPL and OEG.

Objective and weights see the distribution of block i only through its node marginals
``mu`` (rows x K, all sequences stacked) and the sum of its edge marginals ``pairs`` (n x K x K).
A step chooses target marginals s, moves mu and pairs by gamma (s - mu), and w by
-C_i gamma (E_s Phi - E_mu Phi).
"""

from __future__ import annotations

from maxmargin.core.jit import compiled
from maxmargin.core.rows import scatter_rows, scattered_norm, subtract_scattered
from maxmargin.core.simplex import line_search
from maxmargin.structured.chain_loops import augment, unary_scores, viterbi


@compiled(reorder=True)
def spread(rows, start, length, d, V, VB, columns, seen, stamp):
    """Features of the move d (L x K) into V and VB; returns how many columns of X they touch."""
    K = d.shape[1]
    VB[:] = 0.0
    for a in range(K):
        VB[1, a] = d[0, a]
        VB[2, a] = d[length - 1, a]
    for t in range(length):
        for a in range(K):
            VB[0, a] += d[t, a]
    return scatter_rows(rows, start, length, d, V, columns, seen, stamp)


@compiled(reorder=True)
def squared_norm(V, VB, columns, touched, dR):
    """|E_s Phi - E_mu Phi|^2 of a spread move."""
    total = scattered_norm(V, columns, touched)
    for a in range(VB.shape[1]):
        total += VB[0, a] * VB[0, a] + VB[1, a] * VB[1, a] + VB[2, a] * VB[2, a]
    for a in range(dR.shape[0]):
        for b in range(dR.shape[1]):
            total += dR[a, b] * dR[a, b]
    return total


@compiled(reorder=True)
def move_weights(scale, V, VB, columns, touched, dR, U, R, B):
    """(U, R, B) -= scale * (E_s Phi - E_mu Phi)."""
    K = dR.shape[0]
    subtract_scattered(scale, V, columns, touched, U)
    for r in range(3):
        for a in range(K):
            B[r, a] -= scale * VB[r, a]
    for a in range(K):
        for b in range(K):
            R[a, b] -= scale * dR[a, b]


@compiled(reorder=True)
def gain(un, R, d, dR, length):
    """E_s H - E_mu H, the directional derivative over C_i."""
    K = dR.shape[0]
    total = 0.0
    for t in range(length):
        for a in range(K):
            total += un[t, a] * d[t, a]
    for a in range(K):
        for b in range(K):
            total += R[a, b] * dR[a, b]
    return total


@compiled
def vertex_move(path, mu, pairs, start, length, d, dR):
    """(d, dR) = indicator of the labeling minus the marginals."""
    K = dR.shape[0]
    for a in range(K):
        for b in range(K):
            dR[a, b] = -pairs[a, b]
    for t in range(length):
        for a in range(K):
            d[t, a] = -mu[start + t, a]
        d[t, path[t]] += 1.0
        if t > 0:
            dR[path[t - 1], path[t]] += 1.0


@compiled
def move_marginals(gamma, d, dR, mu, pairs, start, length):
    """mu += gamma d, pairs += gamma dR."""
    K = dR.shape[0]
    for t in range(length):
        for a in range(K):
            mu[start + t, a] += gamma * d[t, a]
    for a in range(K):
        for b in range(K):
            pairs[a, b] += gamma * dR[a, b]


@compiled
def bcfw_epoch(
    rows, offsets, y, costs, loss, order, U, R, B, V, VB,
    mu, pairs, gaps, un, forward, path, d, dR, columns, seen, stamp,
):  # fmt: skip
    """Block-coordinate Frank-Wolfe: the target is the loss-augmented Viterbi labeling."""
    for index in range(order.size):
        i = order[index]
        start, length, cost = offsets[i], offsets[i + 1] - offsets[i], costs[i]
        unary_scores(rows, start, length, U, B, un)
        augment(un, y, start, length, loss[i])
        viterbi(un, R, length, forward, path)
        vertex_move(path, mu, pairs[i], start, length, d, dR)
        numerator = gain(un, R, d, dR, length)
        gaps[i] = max(cost * numerator, 0.0)
        stamp += 1
        touched = spread(rows, start, length, d, V, VB, columns, seen, stamp)
        gamma = line_search(numerator, cost * squared_norm(V, VB, columns, touched, dR), 1.0)
        if gamma > 0.0:
            move_marginals(gamma, d, dR, mu, pairs[i], start, length)
            move_weights(cost * gamma, V, VB, columns, touched, dR, U, R, B)
    return stamp


@compiled
def weights_of_marginals(rows, offsets, y, costs, mu, pairs, d, dR, V, VB, columns, seen, stamp, U, R, B):
    """Add w = sum_i C_i (Phi(x_i, y_i) - E_mu Phi) to the weights (U, R, B), which enter as zero."""
    K = R.shape[0]
    for i in range(offsets.size - 1):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        if costs[i] == 0.0:
            continue
        for a in range(K):
            for b in range(K):
                dR[a, b] = pairs[i, a, b]
        for t in range(length):
            for a in range(K):
                d[t, a] = mu[start + t, a]
            d[t, y[start + t]] -= 1.0
            if t > 0:
                dR[y[start + t - 1], y[start + t]] -= 1.0
        stamp += 1
        touched = spread(rows, start, length, d, V, VB, columns, seen, stamp)
        move_weights(costs[i], V, VB, columns, touched, dR, U, R, B)
    return stamp
