"""Slow obvious twins of the multi-class loops: dense numpy, one block at a time."""

import numpy as np


def project(v):
    """Projection on the simplex by sorting."""
    u = np.sort(v)[::-1]
    excess = (np.cumsum(u) - 1) / np.arange(1, len(v) + 1)
    theta = excess[np.flatnonzero(u > excess)[-1]]
    return np.maximum(v - theta, 0)


def toward(alpha, target, H, kappa, longest=1.0):
    """Exact line search from alpha to target."""
    d = target - alpha
    slope, curvature = d @ H, kappa * d @ d
    gamma = 0.0 if slope <= 0 else 1.0 if curvature <= slope else slope / curvature
    gamma = min(gamma, longest)
    return alpha + gamma * d, gamma * slope - 0.5 * gamma**2 * curvature


def softmax(alpha, H, tau):
    weights = alpha * np.exp((H - H.max()) / tau)
    return weights / weights.sum()


def vertex(k, c):
    return np.eye(c)[k]


def step(kind, alpha, H, kappa, tau=None, truncation=0.0, floor=0.0):
    """New block after one step of the given kind."""
    c = len(alpha)
    if kind == "exact":
        return vertex(np.argmax(H), c) if kappa == 0 else project(alpha + (H - H.max()) / kappa)
    if kind == "fw":
        return toward(alpha, vertex(np.argmax(H), c), H, kappa)[0]
    if kind == "eg":
        new = softmax(alpha, H, tau)
    else:
        new, gain = toward(alpha, softmax(alpha, H, tau), H, kappa, 1 - truncation)
        if kind == "safeguarded":
            other, better = toward(alpha, vertex(np.argmax(H), c), H, kappa, 1 - truncation)
            new = other if better > gain else new
    new = (1 - floor) * new + floor / c
    return new / new.sum()


def weights(X, y, costs, alpha):
    E = np.eye(alpha.shape[1])[y]
    return (costs[:, None] * (E - alpha)).T @ X


def margins(X, y, Delta, W):
    H = Delta[y] + X @ W.T
    return H - H[np.arange(len(y)), y][:, None]


def objectives(X, y, costs, Delta, alpha, loss="crammer_singer"):
    """P, D and the block gaps at alpha."""
    W = weights(X, y, costs, alpha)
    H = margins(X, y, Delta, W)
    losses = H.max(axis=1) if loss == "crammer_singer" else np.maximum(H, 0).sum(axis=1)
    half = 0.5 * (W**2).sum()
    gaps = costs * (losses - (alpha * H).sum(axis=1))
    return half + costs @ losses, costs @ (alpha * Delta[y]).sum(axis=1) - half, gaps


def sweep(kind, order, X, y, costs, Delta, alpha, taus=None, **options):
    """One pass of block steps in the given order; alpha is changed in place."""
    for i in order:
        H = margins(X[[i]], y[[i]], Delta, weights(X, y, costs, alpha))[0]
        tau = None if taus is None else taus[i]
        alpha[i] = step(kind, alpha[i], H, costs[i] * X[i] @ X[i], tau, **options)
    return alpha


def batch(kind, X, y, costs, Delta, alpha, tau=None):
    """One batch step: all targets at the same W, one exact step."""
    H = margins(X, y, Delta, weights(X, y, costs, alpha))
    if kind == "fw":
        target = np.eye(alpha.shape[1])[np.argmax(H, axis=1)]
    else:
        target = np.array([softmax(a, h, tau) for a, h in zip(alpha, H, strict=True)])
    if kind == "eg":
        return target
    d = target - alpha
    move = (costs[:, None] * d).T @ X
    gamma = np.clip((costs @ (d * H).sum(axis=1)) / (move**2).sum(), 0, 1)
    return alpha + gamma * d


def start(y, c, spread=0.0):
    alpha = np.full((len(y), c), spread / (c - 1))
    alpha[np.arange(len(y)), y] = 1 - spread
    return alpha
