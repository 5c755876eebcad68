"""Block-coordinate Frank-Wolfe for 1/2 |theta|^2 + sum_n c_n max_y [...] with a nonnegative block.

    dual      D(mu) = sum_n c_n loss_n - 1/2 |theta|^2,   theta = u with the nonnegative block cut at zero,
              u = sum_n u_n,  u_n the mean of c_n (phi(x^n, y^n) - phi(x^n, y)) over the planes of sample n
    step      towards the plane of the most violating set of one sample, by
              slope / curvature cut to [0, 1]; the curvature ignores the cut at zero, which can only
              make it too large, so D never falls
    gap       P - D = sum_n c_n (slack of the best set - slack of the mean plane), P with proven bounds

Lacoste-Julien, Jaggi, Schmidt, Pletscher, "Block-coordinate Frank-Wolfe optimization for structural
SVMs", 2013. During a pass the slacks are those met on the way, which prove nothing; `certify`
recomputes theta, D and the bounds of all slacks from the stored blocks.
"""

from __future__ import annotations

import numpy as np

from maxmargin.solvers._loop import Certificate, Clock, Progress, require


class ClippedBCFW:
    """State of the method: one mean plane per sample, and theta that they add up to."""

    def __init__(self, problem, rng: np.random.RandomState, start=None):
        require(problem, ("blocks", "blocks_vector", "frank_wolfe_pass", "certificate"), "BCFW")
        self.problem, self.rng = problem, rng
        self.blocks = problem.blocks() if start is None else start
        self.used = np.flatnonzero(problem.cost > 0)
        self.vector = problem.blocks_vector(self.blocks)

    @property
    def theta(self) -> np.ndarray:
        """theta(u): the nonnegative block cut at zero."""
        theta = self.vector.copy()
        end = len(theta) - self.problem.n_nonnegative
        np.maximum(theta[end:], 0.0, out=theta[end:])
        return theta

    @property
    def solution(self):
        """The mean plane of every sample."""
        return self.blocks

    def dual(self) -> float:
        theta = self.theta
        return float(self.problem.cost @ self.blocks.losses - 0.5 * theta @ theta)

    def epoch(self, clock: Clock) -> Progress:
        order = self.rng.permutation(self.used)
        upper = self.problem.frank_wolfe_pass(order, self.vector, self.blocks)
        theta = self.theta
        met = 0.5 * float(theta @ theta) + float(self.problem.cost @ upper)
        return Progress(Certificate(max(met, self.dual()), self.dual()), len(order))

    def certify(self) -> Certificate:
        self.vector = self.problem.blocks_vector(self.blocks)
        return self.problem.certificate(self.theta, self.dual())
