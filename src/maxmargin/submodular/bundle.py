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

from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.submodular import simplex_qp as _simplex_qp

# A plane unused for this many epochs is dropped.
PATIENCE = 25
# How far from the best point towards the minimiser of the model the next plane is asked for.
ADVANCE = 0.1
# Accuracy of the master problem relative to the gap of the whole.
MASTER = 1e-2
# Epochs in a row without a relative change of this size after which no further plane will help.
STILL, PATIENCE_STILL = 1e-12, 3


@dataclass(frozen=True)
class BundleSolution:
    """The best theta met; the sets behind the planes in use, and their weights (zero plane first).

    Sets give a valid plane for any features, costs and pairs, so they can start another fit.
    """

    theta: np.ndarray
    sets: list[np.ndarray]
    alpha: np.ndarray

    def fits(self, problem: Any) -> bool:
        """Whether the sets are sets of this problem's samples."""
        return all(labels.shape == problem.truth.shape for labels in self.sets)


class Bundle:
    """State of the method: the planes, their weights alpha, and the best theta met."""

    def __init__(
        self, problem: Any, line_search: bool = True, memory: int = 10, start: BundleSolution | None = None
    ) -> None:
        require(
            problem,
            ("risk", "plane", "certificate", "dimension", "n_nonnegative", "when_stuck"),
            "The bundle method",
        )
        if line_search:
            require(problem, ("remembered",), "The line search of the bundle method")
        self.problem = problem
        self.blas = ThreadpoolController()
        self.line_search = line_search
        self.free = problem.dimension - problem.n_nonnegative
        self.G = np.zeros((1, problem.dimension))
        self.b = np.zeros(1)
        self.K = np.zeros((1, 1))
        self.sets: list[np.ndarray] = [np.empty((0, 0), np.uint8)]
        self.idle = np.zeros(1, np.int64)
        self.alpha = np.ones(1)
        self.recent: list[np.ndarray] = []
        self.memory = memory
        self.theta = self.best = np.zeros(problem.dimension)
        self.lower = 0.0
        self.best_primal = np.inf
        self.still = 0
        if start is not None:
            for labels in start.sets:
                self._add(labels)
            self.alpha = start.alpha.copy()
            self._solve(MASTER * max(self.dual(), 0.0))

    def _minimiser(self) -> np.ndarray:
        """theta(alpha), from the stored planes."""
        theta = -self.alpha @ self.G
        np.maximum(theta[self.free :], 0.0, out=theta[self.free :])
        return theta

    @property
    def solution(self) -> BundleSolution:
        """What to keep of the run."""
        used = np.union1d([0], np.flatnonzero(self.alpha > 0))
        return BundleSolution(self.best, [self.sets[k] for k in used if k > 0], self.alpha[used])

    def dual(self) -> float:
        """D(alpha), from the stored planes."""
        theta = self._minimiser()
        return float(self.b @ self.alpha - 0.5 * theta @ theta)

    def epoch(self, clock: Clock) -> Progress:
        target, before = self.theta, Certificate(self.best_primal, self.lower)
        search = self.line_search and np.isfinite(self.best_primal) and self.still == 0
        point = self._between(target) if search else target
        sets, upper = self.problem.risk(point)
        primal = 0.5 * float(point @ point) + upper
        if primal < self.best_primal:
            self.best_primal, self.best = primal, point
        self.recent = [*self.recent, sets][-self.memory :]
        self._add(sets)
        self._solve(MASTER * max(self.best_primal - before.dual, 0.0))
        self._forget()
        now = Certificate(self.best_primal, self.lower)
        moved = max(before.primal - now.primal, now.dual - before.dual)
        self.still = 0 if moved > STILL * abs(now.primal) else self.still + 1
        stuck = self.problem.when_stuck if self.still >= PATIENCE_STILL else ""
        return Progress(now, int(np.count_nonzero(self.alpha)), stuck=stuck)

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
        corner = np.array([[g[: self.free] @ g[: self.free]]])
        # One statement, so that an interrupt leaves planes that belong together.
        self.G, self.b, self.K, self.sets, self.idle, self.alpha = (
            np.vstack([self.G, g]),
            np.append(self.b, b),
            np.block([[self.K, row[:, None]], [row[None, :], corner]]),
            [*self.sets, sets],
            np.append(self.idle, 0),
            np.append(self.alpha, 0.0),
        )

    def _solve(self, tol: float) -> None:
        # The matrices are small: threads would only wait for each other.
        with self.blas.limit(limits=1, user_api="blas"):
            self.alpha, _ = _simplex_qp.maximise(self.K, self.G[:, self.free :], self.b, self.alpha, tol)
        self.theta = self._minimiser()
        self.lower = float(self.b @ self.alpha - 0.5 * self.theta @ self.theta)

    def _forget(self) -> None:
        self.idle = np.where(self.alpha > 0, 0, self.idle + 1)
        keep = np.flatnonzero(self.idle <= PATIENCE)
        keep = np.union1d([0], keep)
        if len(keep) == len(self.b):
            return
        self.G, self.b, self.K, self.sets, self.idle, self.alpha = (
            self.G[keep],
            self.b[keep],
            self.K[np.ix_(keep, keep)],
            [self.sets[k] for k in keep],
            self.idle[keep],
            self.alpha[keep],
        )
