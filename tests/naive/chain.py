"""Slow obvious twins of the chain loops: every labeling is written out.

A problem is (xs, ys, K, costs, losses): matrices, label arrays, number of labels, C_i and the
loss per wrong label of each sequence. Weights are one vector in the order U (feature-major),
R, bias, first, last.
"""

import itertools

import numpy as np


def labelings(length, K):
    """All labelings, ordered so that the first of several maximal ones is the one Viterbi takes:
    lowest last label, then lowest label before it, and so on."""
    return [z[::-1] for z in itertools.product(range(K), repeat=length)]


def features(x, z, K):
    L, f = x.shape
    U, R, B = np.zeros((f, K)), np.zeros((K, K)), np.zeros((3, K))
    for t in range(L):
        U[:, z[t]] += x[t]
        B[0, z[t]] += 1
        if t > 0:
            R[z[t - 1], z[t]] += 1
    B[1, z[0]] += 1
    B[2, z[L - 1]] += 1
    return np.concatenate([U.ravel(), R.ravel(), B.ravel()])


def score(un, pr, z):
    """Score of z under unary potentials (L x K) and pair potentials (L-1 x K x K)."""
    total = sum(un[t, a] for t, a in enumerate(z))
    return total + sum(pr[t, z[t], z[t + 1]] for t in range(len(z) - 1))


def marginals(p, zs, length, K):
    """Node and edge marginals of the distribution p over the labelings zs."""
    node, edge = np.zeros((length, K)), np.zeros((max(length - 1, 0), K, K))
    for weight, z in zip(p, zs, strict=True):
        for t, a in enumerate(z):
            node[t, a] += weight
            if t > 0:
                edge[t - 1, z[t - 1], a] += weight
    return node, edge


def softmax(values):
    e = np.exp(values - values.max())
    return e / e.sum()


class Block:
    """One sequence with all its labelings: differences Psi, losses Delta, and H for given w."""

    def __init__(self, x, y, K, cost, loss):
        self.x, self.y, self.K, self.cost = np.asarray(x, float), tuple(y), K, cost
        self.zs = labelings(len(y), K)
        phi = np.array([features(self.x, z, K) for z in self.zs])
        self.truth = self.zs.index(self.y)
        self.psi = phi[self.truth] - phi
        self.delta = loss * np.array([sum(a != b for a, b in zip(z, y, strict=True)) for z in self.zs])

    def H(self, w):
        return self.delta - self.psi @ w


class Enumerated:
    """All block methods on explicit distributions alpha_i over labelings."""

    def __init__(self, xs, ys, K, costs, losses):
        self.blocks = [Block(*args) for args in zip(xs, ys, [K] * len(xs), costs, losses, strict=True)]
        self.alpha = [np.eye(len(b.zs))[b.truth] for b in self.blocks]
        self.K = K

    def soften(self, delta):
        """Independent nodes with 1 - delta on the truth."""
        for i, b in enumerate(self.blocks):
            node = np.full((len(b.y), self.K), delta / (self.K - 1))
            node[np.arange(len(b.y)), b.y] = 1 - delta
            self.alpha[i] = np.array([np.prod([node[t, a] for t, a in enumerate(z)]) for z in b.zs])

    @property
    def w(self):
        return sum(b.cost * (a @ b.psi) for b, a in zip(self.blocks, self.alpha, strict=True))

    def primal(self, w):
        return 0.5 * w @ w + sum(b.cost * b.H(w).max() for b in self.blocks)

    def dual(self):
        return sum(b.cost * (a @ b.delta) for b, a in zip(self.blocks, self.alpha, strict=True)) - 0.5 * (
            self.w @ self.w
        )

    def best(self, i):
        """First labeling whose H is largest; values equal to rounding are ties."""
        H = self.blocks[i].H(self.w)
        return int(np.argmax(H.max() - H < 1e-12))

    def _line_search(self, i, s, longest=1.0):
        b = self.blocks[i]
        d = s - self.alpha[i]
        numerator, curvature = d @ b.H(self.w), b.cost * np.sum((d @ b.psi) ** 2)
        if numerator <= 0:
            return 0.0
        return longest if numerator >= longest * curvature else numerator / curvature

    def decrease(self, i, s, gamma):
        b = self.blocks[i]
        d = s - self.alpha[i]
        return gamma * (d @ b.H(self.w)) - 0.5 * gamma**2 * b.cost * np.sum((d @ b.psi) ** 2)

    def bcfw_step(self, i):
        s = np.eye(len(self.alpha[i]))[self.best(i)]
        self.alpha[i] = self.alpha[i] + self._line_search(i, s) * (s - self.alpha[i])

    def project(self, i):
        """Replace alpha_i by the chain of largest entropy with the same marginals."""
        b = self.blocks[i]
        node, edge = marginals(self.alpha[i], b.zs, len(b.y), self.K)
        L = len(b.y)
        p = []
        for z in b.zs:
            value = node[0, z[0]] if L == 1 else np.prod([edge[t, z[t], z[t + 1]] for t in range(L - 1)])
            p.append(value / np.prod([node[t, z[t]] for t in range(1, L - 1)]))
        self.alpha[i] = np.array(p)

    def bcpl_step(self, i, tau, longest=1.0, safeguard=False):
        self.project(i)
        s = softmax(np.log(self.alpha[i]) + self.blocks[i].H(self.w) / tau)
        gamma = self._line_search(i, s, longest)
        if safeguard:
            vertex = np.eye(len(s))[self.best(i)]
            other = self._line_search(i, vertex, longest)
            if self.decrease(i, vertex, other) > self.decrease(i, s, gamma):
                s, gamma = vertex, other
        self.alpha[i] = self.alpha[i] + gamma * (s - self.alpha[i])

    def oeg_step(self, i, tau):
        self.alpha[i] = softmax(np.log(self.alpha[i]) + self.blocks[i].H(self.w) / tau)

    def pairwise_visit(self, i, cache, steps, precision, relaxation):
        """Add the best labeling to the cache (a list of indices), then pairwise steps on the cache alone."""
        best = self.best(i)
        if best not in cache:
            cache.append(best)
        self.pairwise_steps(i, cache, steps, precision, relaxation)

    def cached_visit(self, i, cache, steps, precision, relaxation):
        """Pairwise steps on the labelings of the cache that are in use."""
        used = [j for j in cache if self.alpha[i][j] > 0]
        self.pairwise_steps(i, used, steps, precision, relaxation)

    def pairwise_steps(self, i, cache, steps, precision, relaxation):
        """Move weight from the worst to the best labeling of the cache.

        The curvature of the steps is that of the problem divided by `relaxation`, so H moves by
        less than the weights will.
        """
        b, a = self.blocks[i], self.alpha[i].copy()
        H = b.H(self.w)
        cost = b.cost / relaxation
        goal = None
        for _ in range(steps):
            used = [j for j in cache if a[j] > 0]
            u = max(cache, key=lambda j: (H[j], -cache.index(j)))
            v = min(used, key=lambda j: (H[j], cache.index(j)))
            gap = H[u] - sum(a[j] * H[j] for j in used)
            goal = precision * gap if goal is None else goal
            if gap <= goal or H[u] <= H[v]:
                break
            difference = b.psi[u] - b.psi[v]
            move = min((H[u] - H[v]) / (cost * difference @ difference), a[v])
            a[u] += move
            a[v] = 0.0 if move == a[v] else a[v] - move
            H = H - cost * move * (b.psi @ difference)
        self.alpha[i] = a


def optimum(problem):
    """Optimal value of an `Enumerated` problem by a generic solver."""
    import cvxpy as cp

    w = cp.Variable(problem.blocks[0].psi.shape[1])
    hinge = sum(b.cost * cp.max(b.delta - b.psi @ w) for b in problem.blocks)
    program = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + hinge))
    program.solve(solver=cp.CLARABEL)
    return program.value
