"""Newton's method for one label as its header writes it: whole matrices, no scaling, search by bisection.

An independent twin of `maxmargin.core.proximal_newton` with the losses of `maxmargin.multilabel.newton`.
"""

import numpy as np


class NewtonTwin:
    """One label: X with its constant feature, signs y, boxes c, margins m, r of the prior."""

    def __init__(self, X, y, c, m, r, omega, shrink, least, solved):
        self.X, self.y, self.c, self.m, self.r = X, y, c, m, r
        self.omega, self.shrink, self.least, self.solved = omega, shrink, least, solved
        self.z, self.centre = np.zeros(X.shape[1]), np.full(len(y), 0.5)
        self.primal, self.dual = np.inf, -np.inf

    def shares(self, z):
        return np.clip(self.centre + (self.m - self.y * (self.X @ z)) / self.omega, 0, 1)

    def gradient(self, z):
        return z / self.r - self.X.T @ (self.y * self.c * self.shares(z))

    def record(self):
        """Store both objectives; move the centre once the distance part of the gap is small enough."""
        g, t = self.m - self.y * (self.X @ self.z), self.shares(self.z)
        V = self.X.T @ (self.y * self.c * t)
        self.primal = min(self.primal, 0.5 * self.z @ self.z / self.r + self.c @ np.maximum(g, 0))
        self.dual = max(self.dual, self.m @ (self.c * t) - 0.5 * self.r * V @ V)
        left = self.c @ (np.maximum(g, 0) - t * g)
        if 0.5 * self.r * np.sum((self.z / self.r - V) ** 2) <= self.solved * left:
            self.centre, self.omega = t, max(self.shrink * self.omega, self.least)

    def step(self, tries=100):
        """A Newton step to the minimum along its line; returns the first slope and the direction."""
        t = self.shares(self.z)
        inside = (t > 0) & (t < 1)
        H = np.eye(len(self.z)) / self.r + (self.X[inside].T * self.c[inside] / self.omega) @ self.X[inside]
        d = -np.linalg.solve(H, self.gradient(self.z))

        def slope(length):
            return self.gradient(self.z + length * d) @ d

        first, low, high = slope(0.0), 0.0, 1.0
        while slope(high) < 0:
            high *= 2
        for _ in range(tries):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        self.z = self.z + high * d
        return first, d
