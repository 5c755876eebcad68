"""Slow, obvious versions of the kernelised M3L loops, in the letters of the paper.

alpha in [0, C], margins m, signs Y, F = K (Y * alpha) R, gradient g = m - Y * F; everything is
recomputed from alpha whenever it is needed.
"""

from __future__ import annotations

import itertools

import numpy as np


def gradient(K, R, Y, m, alpha):
    return m - Y * (K @ (Y * alpha) @ R)


def projected(g, alpha, C):
    return np.where(alpha >= C, np.minimum(g, 0), np.where(alpha <= 0, np.maximum(g, 0), g)) * (C > 0)


def objectives(K, R, Y, m, C, alpha):
    F = K @ (Y * alpha) @ R
    norm = 0.5 * np.sum(Y * alpha * F)
    return norm + np.sum(C * np.maximum(0, m - Y * F)), np.sum(m * alpha) - norm


def best_pair(Q, g, low, high):
    """Maximise g'd - d'Qd/2 in a box by trying every face."""
    candidates = []
    for first, second in itertools.product(("free", "low", "high"), repeat=2):
        d = np.array([{"low": low[0], "high": high[0]}.get(first, np.nan),
                      {"low": low[1], "high": high[1]}.get(second, np.nan)])  # fmt: skip
        if first == second == "free":
            d = np.linalg.solve(Q, g)
        elif first == "free":
            d[0] = (g[0] - Q[0, 1] * d[1]) / Q[0, 0]
        elif second == "free":
            d[1] = (g[1] - Q[0, 1] * d[0]) / Q[1, 1]
        if (d >= np.array(low) - 1e-12).all() and (d <= np.array(high) + 1e-12).all():
            candidates.append(d)
    return max(candidates, key=lambda d: g @ d - d @ Q @ d / 2)


def choose_pair(K, Y, g, alpha, C, l, singular=1e-12):
    """The worst sample of label l and its best partner (None: none with a definite pair)."""
    gt = projected(g, alpha, C)[:, l]
    p = int(np.argmax(np.abs(gt)))
    gains = {}
    for j in range(len(K)):
        det = K[p, p] * K[j, j] - K[p, j] ** 2
        movable = gt[j] != 0 or 0 < alpha[j, l] < C[j, l]
        if movable and det > singular * K[p, p] * K[j, j]:
            s = Y[p, l] * Y[j, l]
            gains[j] = (
                g[p, l] ** 2 * K[j, j] + g[j, l] ** 2 * K[p, p] - 2 * g[p, l] * g[j, l] * s * K[p, j]
            ) / det
    return p, max(gains, key=lambda j: gains[j]) if gains else None


def move_pair(K, R, Y, m, C, alpha, l, p, q):
    """Solve the problem of one or two coefficients of label l; returns the new alpha."""
    g = gradient(K, R, Y, m, alpha)
    alpha = alpha.copy()
    if q is None:
        curvature = K[p, p] * R[l, l]
        if curvature > 0:
            alpha[p, l] = np.clip(alpha[p, l] + g[p, l] / curvature, 0, C[p, l])
        elif g[p, l] != 0:
            alpha[p, l] = C[p, l] if g[p, l] > 0 else 0.0
        return alpha
    cross = Y[p, l] * Y[q, l] * K[p, q]
    Q = R[l, l] * np.array([[K[p, p], cross], [cross, K[q, q]]])
    pair = [p, q]
    alpha[pair, l] += best_pair(Q, g[pair, l], -alpha[pair, l], C[pair, l] - alpha[pair, l])
    return np.clip(alpha, 0, C)


def smo_rounds(K, R, Y, m, C, n_rounds, n_inner, break_factor, accepted=1.0, growth=1.0):
    """Algorithm 1, corrected; yields alpha and the estimated violations after every round.

    With both shares 1 the label is the one with the largest violation: estimates are bounds then.
    """
    alpha = np.zeros(Y.shape)
    estimate = violations(K, R, Y, m, alpha, C)
    for _ in range(n_rounds):
        while True:
            l = int(np.argmax(estimate))
            estimate[l] = entry = violations(K, R, Y, m, alpha, C)[l]
            if entry > 0 and entry >= accepted * np.delete(estimate, l).max():
                break
        before = alpha.copy()
        for step in range(n_inner):
            violation = violations(K, R, Y, m, alpha, C)[l]
            if violation == 0 or (step > 0 and violation < break_factor * entry):
                break
            p, q = choose_pair(K, Y, gradient(K, R, Y, m, alpha), alpha, C, l)
            alpha = move_pair(K, R, Y, m, C, alpha, l, p, q)
        estimate += growth * np.abs(R[l]) * np.abs(K @ (Y * (alpha - before))[:, l]).max()
        estimate[l] = violations(K, R, Y, m, alpha, C)[l]
        yield alpha, estimate


def violations(K, R, Y, m, alpha, C):
    """The largest projected gradient of every label."""
    return np.abs(projected(gradient(K, R, Y, m, alpha), alpha, C)).max(axis=0)


def label_steps(K, r, Y, m, C, alpha, n_steps):
    """Greedy pair steps on a single label; returns alpha after `n_steps` of them."""
    R = np.array([[r]])
    for _ in range(n_steps):
        g = gradient(K, R, Y, m, alpha)
        if not projected(g, alpha, C).any():
            break
        alpha = move_pair(K, R, Y, m, C, alpha, 0, *choose_pair(K, Y, g, alpha, C, 0))
    return alpha


def sweeps(K, R, Y, m, C, alpha, samples, n_sweeps):
    """One-variable steps over the labels of some samples, sample by sample."""
    alpha = alpha.copy()
    for _ in range(n_sweeps):
        for i in samples:
            for l in range(Y.shape[1]):
                alpha = move_pair(K, R, Y, m, C, alpha, l, i, None)
    return alpha
