"""Bundle method for 1/2 |theta|^2 + R(theta) with some coordinates of theta nonnegative (BMRM).

R is convex, nonnegative and known by planes: asked at theta, the problem answers with g and b such
that b + <g, theta'> <= R(theta') for all theta', and with an upper bound of R(theta).

    model     M(theta) = 1/2 |theta|^2 + max(0, max_i b_i + <g_i, theta>)         <= P(theta)
    its dual  D(alpha) = b.alpha - 1/2 |theta(alpha)|^2,  alpha in the simplex (a zero plane included)
    link      theta(alpha) = -sum_i alpha_i g_i, its nonnegative coordinates cut at zero
    gap       (best P met - D(alpha)) / best P;  D(alpha) <= min P for every alpha in the simplex

Teo, Vishwanathan, Smola, Le, "Bundle methods for regularized risk minimization", 2010, with the
nonnegative block eliminated from the dual. Each epoch asks for one plane. With `line_search` it is
asked for near the best point between the best theta so far and the minimiser of the model, as in
OCAS (Franc and Sonnenburg, 2009): P along that line is underestimated from the sets remembered per
sample, which costs no inference.
"""

from __future__ import annotations

import numpy as np

from maxmargin.solvers import _simplex_qp
from maxmargin.solvers._loop import Certificate, Clock, Progress, require

# A plane unused for this many epochs is dropped.
PATIENCE = 25
# How far from the best point towards the minimiser of the model the next plane is asked for.
ADVANCE = 0.1
# Accuracy of the master problem relative to the gap of the whole.
MASTER = 1e-2


class Bundle:
    """State of the method: the planes, their weights alpha, and the best theta met."""

    def __init__(self, problem, line_search: bool = True, memory: int = 10, start: tuple | None = None):
        require(problem, ("risk", "plane", "certificate", "dimension", "n_nonnegative"), "The bundle method")
        if line_search:
            require(problem, ("remembered",), "The line search of the bundle method")
        self.problem = problem
        self.line_search = line_search
        self.free = problem.dimension - problem.n_nonnegative
        self.G = np.zeros((1, problem.dimension))
        self.b = np.zeros(1)
        self.K = np.zeros((1, 1))
        self.sets: list[np.ndarray | None] = [None]
        self.idle = np.zeros(1, np.int64)
        self.alpha = np.ones(1)
        self.recent: list[np.ndarray] = []
        self.memory = memory
        self.best = np.zeros(problem.dimension)
        self.best_primal = np.inf
        if start is not None:
            self._resume(*start)

    def _resume(self, sets: list[np.ndarray], alpha: np.ndarray) -> None:
        for labels in sets:
            self._add(labels)
        self.alpha = alpha.copy()
        self._solve(0.0)

    @property
    def theta(self) -> np.ndarray:
        """Minimiser of the model for the weights alpha."""
        theta = -self.alpha @ self.G
        np.maximum(theta[self.free :], 0.0, out=theta[self.free :])
        return theta

    @property
    def solution(self) -> tuple[list[np.ndarray], np.ndarray]:
        """The sets behind the planes in use (the zero plane has none) and all weights."""
        used = np.flatnonzero(self.alpha > 0)
        used = np.union1d([0], used)
        return [self.sets[k] for k in used[1:]], self.alpha[used]

    def dual(self) -> float:
        """D(alpha), from the stored planes."""
        theta = self.theta
        return float(self.b @ self.alpha - 0.5 * theta @ theta)

    def epoch(self, clock: Clock) -> Progress:
        target = self.theta
        point = self._between(target) if self.line_search and np.isfinite(self.best_primal) else target
        sets, value, upper = self.problem.risk(point)
        primal = 0.5 * float(point @ point) + upper
        if primal < self.best_primal:
            self.best_primal, self.best = primal, point
        self.recent = [*self.recent, sets][-self.memory :]
        self._add(sets)
        before = self.dual()
        self._solve(MASTER * max(self.best_primal - before, 0.0))
        self._forget()
        dual = self.dual()
        certificate = Certificate(self.best_primal, dual)
        return Progress(certificate, int(np.count_nonzero(self.alpha)))

    def certify(self) -> Certificate:
        return self.problem.certificate(self.best, self.dual())

    def _between(self, target: np.ndarray) -> np.ndarray:
        """Best point on the way from the best theta to `target`, moved on a little."""
        here = self.problem.remembered(self.best, self.recent)
        there = self.problem.remembered(target, self.recent)
        towards = target - self.best
        square = np.array([self.best @ self.best, self.best @ towards, towards @ towards])
        cost = self.problem.cost

        def value(beta: float) -> float:
            slack = np.maximum(np.max(here + beta * (there - here), axis=0), 0.0)
            return float(0.5 * square[0] + beta * square[1] + 0.5 * beta**2 * square[2] + cost @ slack)

        low, high = 0.0, 1.0
        for _ in range(20):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            if value(left) <= value(right):
                high = right
            else:
                low = left
        beta = 0.5 * (low + high)
        beta += ADVANCE * (1.0 - beta)
        return self.best + beta * towards

    def _add(self, sets: np.ndarray) -> None:
        g, b = self.problem.plane(sets)
        row = self.G[:, : self.free] @ g[: self.free]
        own = float(g[: self.free] @ g[: self.free])
        self.K = np.block([[self.K, row[:, None]], [row[None, :], np.array([[own]])]])
        self.G = np.vstack([self.G, g])
        self.b = np.append(self.b, b)
        self.sets.append(sets)
        self.idle = np.append(self.idle, 0)
        self.alpha = np.append(self.alpha, 0.0)

    def _solve(self, tol: float) -> None:
        self.alpha, _ = _simplex_qp.maximise(self.K, self.G[:, self.free :], self.b, self.alpha, tol)

    def _forget(self) -> None:
        self.idle = np.where(self.alpha > 0, 0, self.idle + 1)
        keep = self.idle <= PATIENCE
        keep[0] = True
        if keep.all():
            return
        self.G, self.b, self.alpha, self.idle = self.G[keep], self.b[keep], self.alpha[keep], self.idle[keep]
        self.K = self.K[np.ix_(keep, keep)]
        self.sets = [labels for labels, kept in zip(self.sets, keep, strict=True) if kept]
