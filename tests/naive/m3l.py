"""Slow, obvious twins of the loops in maxmargin.multilabel.loops and maxmargin.multilabel.dca_loops.

X is a dense array here; Xb has the constant feature appended.
"""

import numpy as np


def costs_of(i, l, Y, weight, upper, margin, tied):
    y = int(Y[i, l])
    if y == 0:
        return 0.0, 0.0
    side = (y + 1) // 2
    w = weight[i, l] if weight.shape[1] > 1 else weight[i, 0]
    return upper[side, l] * w, (margin[i, l] if tied else margin[side, l])


def matrices_of(Y, weight, upper, margin, tied):
    n, L = Y.shape
    pairs = [[costs_of(i, l, Y, weight, upper, margin, tied) for l in range(L)] for i in range(n)]
    table = np.array(pairs)
    return table[:, :, 0], table[:, :, 1]


def accumulate(X, bias, alpha, Y):
    return np.column_stack([X, np.full(len(X), bias)]).T @ (Y * alpha)


def measure(X, bias, alpha, Y, weight, upper, margin, tied, T, G, quiet):
    c, m = matrices_of(Y, weight, upper, margin, tied)
    F = np.column_stack([X, np.full(len(X), bias)]) @ T
    if G is not None:
        F = F @ G
    g = m - Y * F
    hinge = c * np.maximum(g, 0)
    share = hinge - alpha * g
    return hinge.sum(0), share.sum(0), (m * alpha).sum(0), (Y * alpha).sum(0), share > quiet


def clipped(a, g, curvature, c):
    if curvature > 0:
        return min(max(a + g / curvature, 0.0), c)
    return c if g > 0 else a


def sweep_labels(X, bias, pull, order, alpha, Y, weight, upper, margin, tied, q, r, W, S):
    for i in order:
        x = np.append(X[i], bias)
        for l in range(Y.shape[1]):
            c, m = costs_of(i, l, Y, weight, upper, margin, tied)
            g = m - Y[i, l] * (x @ W[:, l])
            new = clipped(alpha[i, l], g, (q[i] + pull[l] * bias**2) * r[l], c)
            d = Y[i, l] * (new - alpha[i, l])
            alpha[i, l] = new
            W[:, l] += np.append(X[i], pull[l] * bias) * d * r[l]
            S[l] += d


def polish_label(
    X, bias, pull, l, listed, alpha, Y, weight, upper, margin, tied, q, r, w, S, target, n_passes, draws
):
    turn = list(range(len(listed)))
    dropped = []
    cursor = l * 7919
    small = 0.1 * target / max(len(listed), 1)
    low_reach, high_reach = -np.inf, np.inf
    for _ in range(n_passes):
        for u in range(len(turn) - 1, 0, -1):
            cursor += 1
            v = (int(draws[cursor % len(draws)]) * (u + 1)) >> 32
            turn[u], turn[v] = turn[v], turn[u]
        low = high = left = 0.0
        t = 0
        while t < len(turn):
            i = listed[turn[t]]
            c, m = costs_of(i, l, Y, weight, upper, margin, tied)
            a = alpha[i, l]
            g = m - Y[i, l] * (np.append(X[i], bias) @ w)
            share = c * max(g, 0.0) - a * g
            left += share
            if (a == 0 and g < low_reach) or (a == c and g > high_reach):
                dropped.append(turn[t])
                last = turn.pop()
                if t < len(turn):
                    turn[t] = last
                continue
            if share > small:
                low, high = min(low, g), max(high, g)
                new = clipped(a, g, (q[i] + pull[l] * bias**2) * r[l], c)
                d = Y[i, l] * (new - a)
                w += np.append(X[i], pull[l] * bias) * d * r[l]
                S[l] += d
                alpha[i, l] = new
            t += 1
        lag = bias * S[l] - w[-1] / r[l]
        w[-1] += pull[l] * lag * r[l]
        left += 0.5 * r[l] * ((1 - pull[l]) * lag) ** 2
        low_reach = low if low < 0 else -np.inf
        high_reach = high if high > 0 else np.inf
        if left <= target:
            break
    return left


def sweep_samples(
    X, bias, pull, order, label_order, alpha, Y, weight, upper, margin, tied, q, R, V, flags, low, high, S
):
    """With V kept in full: the low-rank form must give the same alpha."""
    for i in order:
        scores = np.append(X[i], bias) @ V
        for l in label_order:
            if not flags[i, l]:
                continue
            c, m = costs_of(i, l, Y, weight, upper, margin, tied)
            a = alpha[i, l]
            g = m - Y[i, l] * (scores @ R[:, l])
            if (a == 0 and g < low[0, l]) or (a == c and g > high[0, l]):
                flags[i, l] = False
                continue
            if not (a == 0 and g < 0) and not (a == c and g > 0):
                low[1, l], high[1, l] = min(low[1, l], g), max(high[1, l], g)
            own = q[i] + pull[l] * bias**2
            new = clipped(a, g, own * R[l, l], c)
            d = Y[i, l] * (new - a)
            alpha[i, l] = new
            scores[l] += own * d
            V[:, l] += np.append(X[i], pull[l] * bias) * d
            S[l] += d


def dca_pass(X, bias, chunks, alpha, Y, weight, upper, margin, tied, q, R, Z, active, low, high):
    """One pass over chunks of pairs; labels other than the chunk's hear of it at its end."""
    seen = 0.0
    for chunk in chunks:
        waiting = np.zeros_like(Z)
        for i, l in chunk:
            x = np.append(X[i], bias)
            c, m = costs_of(i, l, Y, weight, upper, margin, tied)
            a = alpha[i, l]
            g = m - Y[i, l] * (x @ Z[:, l])
            seen += c * max(g, 0.0) - a * g
            if (a == 0 and g < low[0, l]) or (a == c and g > high[0, l]):
                active[i, l] = False
                continue
            if not (a == 0 and g < 0) and not (a == c and g > 0):
                low[1, l], high[1, l] = min(low[1, l], g), max(high[1, l], g)
            new = clipped(a, g, q[i] * R[l, l], c)
            step = np.outer(x, Y[i, l] * (new - a) * R[l])
            alpha[i, l] = new
            Z[:, l] += step[:, l]
            step[:, l] = 0
            waiting += step
        Z += waiting
    return seen
