"""CCCP rounds for the latent SVM: majorise, lower the majoriser, choose candidates again.

Problem, majoriser J_h* and its dual D as in problems/latent.py. The state is a pair of
accepted weights W and candidates h* that are best for it, so that J_h*(W) = J(W). Blocks of
the dual of J_h* are visited epoch by epoch. Let V be the mean of the weights of alpha over
the last few epochs (see _passes.py). As soon as

    J_h*(V) - D(alpha) <= ROUND_PRECISION (J(W) - D(alpha)),

V has taken at least a share 1 - ROUND_PRECISION of all that this majoriser allows; it is
accepted, and as J(V) <= J_h*(V) < J(W) the objective never rises. Then h* becomes the best
candidates under V, and alpha goes on from where it was (restarted at h* if that is better).

Stopping: D(alpha) <= min J_h*, hence J(W) - D(alpha) bounds what another round could gain.
The fit has converged when this is at most tol J(W): W is stationary to that tolerance. It is
not a bound on the distance to the global minimum, which nobody knows.

The first W is 0, where every candidate is best, so that any choice of h* may start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.structured.passes import mean_of_pass

ROUND_PRECISION = 0.5
# Evaluations between which the collected block gaps alone decide.
EVALUATE_EVERY = 5
# Weight of the newest epoch in the running mean of the weights.
NEWEST = 0.2


class LatentRounds(ABC):
    """Base of the latent solvers; a subclass keeps alpha and moves its blocks."""

    gaps: np.ndarray

    def __init__(
        self,
        problem: Any,
        rng: np.random.RandomState,
        chosen: np.ndarray,
        round_precision: float = ROUND_PRECISION,
    ) -> None:
        require(
            problem,
            ("rows", "offsets", "y", "costs", "bias", "weights", "values", "dual"),
            type(self).__name__,
        )
        self.problem, self.rng, self.round_precision = problem, rng, round_precision
        self.blocks = np.flatnonzero(problem.costs > 0)
        self.chosen = chosen.astype(np.int64)
        self.accepted = problem.weights()
        self.objective = problem.values(self.accepted, self.chosen).objective
        self.objectives: list[float] = []
        self.W = problem.weights()
        self.gaps = np.where(problem.costs > 0, np.inf, 0.0)
        self.epochs = 0
        self.mean, self.averaged = problem.weights(), 0
        self.restart()

    @abstractmethod
    def visit(self, order: np.ndarray) -> None:
        """Move the blocks of `order`, one after the other."""

    @abstractmethod
    def restart(self) -> None:
        """Put alpha at the chosen candidates of the true classes."""

    @abstractmethod
    def follow(self, new: np.ndarray) -> None:
        """Take weight from the chosen candidates to the new ones."""

    @abstractmethod
    def expected_loss(self) -> np.ndarray:
        """E [k != y_i] of every bag."""

    @abstractmethod
    def restore(self) -> None:
        """Recompute W from alpha."""

    @abstractmethod
    def active(self) -> int:
        """Number of pairs that carry weight."""

    def candidate(self) -> np.ndarray:
        """The weights that a fit stopped now would keep, short of another evaluation."""
        return self.accepted if self.objectives else self.W

    def dual(self) -> float:
        return self.problem.dual(self.W, self.expected_loss())

    def sweep(self, clock: Clock) -> np.ndarray | None:
        """Visit every block once, in random order; the mean of W, None if time ran out."""
        return mean_of_pass(self.visit, self.rng.permutation(self.blocks), self.W, clock)

    def epoch(self, clock: Clock) -> Progress:
        """One sweep; end the round when its weights are good enough."""
        mean = self.sweep(clock)
        if mean is not None:
            self.averaged += 1
            self.mean += max(1.0 / self.averaged, NEWEST) * (mean - self.mean)
        self.epochs += 1
        dual = self.dual()
        allowed = self.objective - dual
        if self.epochs % EVALUATE_EVERY == 0 or self.gaps.sum() <= self.round_precision * allowed:
            self._end_round(dual)
        return Progress(Certificate(self.objective, self.dual()), self.active())

    def _end_round(self, dual: float) -> None:
        values = self.problem.values(self.mean, self.chosen)
        if values.majoriser - dual > self.round_precision * (self.objective - dual):
            return
        if values.objective < self.objective:
            self._accept(self.mean, values)

    def _accept(self, weights: np.ndarray, values: Any) -> None:
        self.accepted, self.objective = weights.copy(), values.objective
        self.objectives.append(self.objective)
        if not np.array_equal(values.best, self.chosen):
            self.follow(values.best)
            self.chosen = values.best
            self.averaged = 0
            self.restore()
            if self.dual() <= 0:
                self.restart()

    def certify(self) -> Certificate:
        """Recompute J of the weights to keep, and D from the stored alpha.

        The present weights are kept if they are better than the accepted ones, or if none
        were accepted yet: a fit cut short in its first round has a model, too.
        """
        self.restore()
        self.objective = self.problem.values(self.accepted, self.chosen).objective
        values = self.problem.values(self.W, self.chosen)
        if values.objective < self.objective or (not self.objectives and self.epochs > 0):
            self._accept(self.W, values)
        return Certificate(self.objective, self.dual())
