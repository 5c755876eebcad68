"""Slow obvious twins of the latent loops: every pair (candidate, class) is written out.

Weights are one vector, class after class within each feature (feature-major), the constant
feature last. Pairs are ordered candidate by candidate.
"""

import numpy as np


def pair_features(x, k, K):
    W = np.zeros((x.size, K))
    W[:, k] = x
    return W.ravel()


class Bag:
    def __init__(self, rows, y, K, cost, bias):
        rows = np.hstack([np.asarray(rows, float), np.full((len(rows), 1), bias)])
        self.rows, self.y, self.K, self.cost = rows, y, K, cost
        self.pairs = [(h, k) for h in range(len(rows)) for k in range(K)]
        self.phi = np.array([pair_features(rows[h], k, K) for h, k in self.pairs])
        self.delta = np.array([float(k != y) for _, k in self.pairs])

    def H(self, w):
        return self.delta + self.phi @ w

    def true_scores(self, w):
        return self.rows @ w.reshape(-1, self.K)[:, self.y]


class Enumerated:
    """Explicit alpha over all pairs, with candidates `chosen` for the true classes."""

    def __init__(self, bags, ys, K, costs, chosen, bias=0.0):
        self.bags = [Bag(b, y, K, c, bias) for b, y, c in zip(bags, ys, costs, strict=True)]
        self.chosen = list(chosen)
        self.alpha = [
            np.eye(len(b.pairs))[b.pairs.index((h, b.y))] for b, h in zip(self.bags, chosen, strict=True)
        ]

    def soften(self, delta):
        for i, b in enumerate(self.bags):
            a = np.full(len(b.pairs), delta / (len(b.pairs) - 1))
            a[b.pairs.index((self.chosen[i], b.y))] = 1 - delta
            self.alpha[i] = a

    def truth(self, i):
        b = self.bags[i]
        return b.phi[b.pairs.index((self.chosen[i], b.y))]

    @property
    def w(self):
        return sum(
            b.cost * (self.truth(i) - a @ b.phi)
            for i, (b, a) in enumerate(zip(self.bags, self.alpha, strict=True))
        )

    def objective(self, w):
        return 0.5 * w @ w + sum(b.cost * (b.H(w).max() - b.true_scores(w).max()) for b in self.bags)

    def majoriser(self, w):
        return 0.5 * w @ w + sum(b.cost * (b.H(w).max() - self.truth(i) @ w) for i, b in enumerate(self.bags))

    def dual(self):
        return sum(b.cost * (a @ b.delta) for b, a in zip(self.bags, self.alpha, strict=True)) - 0.5 * (
            self.w @ self.w
        )

    def best(self, i):
        H = self.bags[i].H(self.w)
        return int(np.argmax(H.max() - H < 1e-12))

    def line_search(self, i, s, longest=1.0):
        b, d = self.bags[i], s - self.alpha[i]
        numerator, curvature = d @ b.H(self.w), b.cost * np.sum((d @ b.phi) ** 2)
        gamma = 0.0 if numerator <= 0 else min(longest, numerator / curvature if curvature else longest)
        return gamma, gamma * numerator - 0.5 * gamma**2 * curvature

    def vertex_step(self, i):
        s = np.eye(len(self.alpha[i]))[self.best(i)]
        self.alpha[i] = self.alpha[i] + self.line_search(i, s)[0] * (s - self.alpha[i])

    def bcpl_step(self, i, tau, longest, floor, safeguard):
        b = self.bags[i]
        e = np.log(self.alpha[i]) + b.H(self.w) / tau
        s = np.exp(e - e.max())
        s /= s.sum()
        gamma, decrease = self.line_search(i, s, longest)
        if safeguard:
            vertex = np.eye(len(s))[self.best(i)]
            other, promised = self.line_search(i, vertex, longest)
            if promised > decrease:
                s, gamma = vertex, other
        if gamma > 0:
            mixed = self.alpha[i] + gamma * (s - self.alpha[i])
            mixed = (1 - floor) * mixed + floor / len(mixed)
            self.alpha[i] = mixed / mixed.sum()

    def oeg_step(self, i, tau, floor):
        b = self.bags[i]
        e = np.log(self.alpha[i]) + b.H(self.w) / tau
        s = np.exp(e - e.max())
        mixed = (1 - floor) * s / s.sum() + floor / len(s)
        self.alpha[i] = mixed / mixed.sum()

    def pairwise_step(self, i, relaxation, cache):
        """Add the best pair to the cache (a list of indices), then one step."""
        u = self.best(i)
        if u not in cache:
            cache.append(u)
        self.step_between(i, relaxation, cache)

    def cached_step(self, i, relaxation, cache):
        """One step on the pairs of the cache that are in use."""
        self.step_between(i, relaxation, [j for j in cache if self.alpha[i][j] > 0])

    def step_between(self, i, relaxation, cache):
        """Move weight from the worst pair in use to the best one of the cache."""
        b = self.bags[i]
        H, a = b.H(self.w), self.alpha[i].copy()
        u = max(cache, key=lambda j: (H[j], -cache.index(j)))
        v = min((j for j in cache if a[j] > 0), key=lambda j: (H[j], cache.index(j)))
        if H[u] <= H[v]:
            return
        curvature = b.cost / relaxation * np.sum((b.phi[u] - b.phi[v]) ** 2)
        move = a[v] if curvature * a[v] <= H[u] - H[v] else (H[u] - H[v]) / curvature
        a[u] += move
        a[v] = 0.0 if move == a[v] else a[v] - move
        self.alpha[i] = a


def optimum(problem):
    """Smallest value of the majoriser by a generic solver."""
    import cvxpy as cp

    w = cp.Variable(problem.bags[0].phi.shape[1])
    loss = sum(
        b.cost * (cp.max(b.delta + b.phi @ w) - problem.truth(i) @ w) for i, b in enumerate(problem.bags)
    )
    program = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss))
    program.solve(solver=cp.CLARABEL)
    return program.value
