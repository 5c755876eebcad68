"""What the block solvers for chains share: the order of visits, evaluations, certificates.

Any weights w' and any feasible alpha bracket the optimum, P(w') >= D(alpha). The dual of a
certificate is that of the stored alpha; its primal belongs to the weights the fit keeps:
those of alpha or, where that is lower, the method's own candidate. Records between
evaluations repeat the last primal, which stays a bound.

Block gaps are collected on the way at no cost, but each belongs to the weights of its own
visit. Their sum only says when an evaluation is worth a pass over all sequences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.structured.passes import mean_of_pass

# Evaluations between which the collected gaps alone decide.
EVALUATE_EVERY = 5


class ChainMethod(ABC):
    """Base of the chain solvers; a subclass moves blocks and knows its dual solution."""

    gaps: np.ndarray | None = None

    def __init__(self, problem: Any, rng: np.random.RandomState, tol: float) -> None:
        require(
            problem,
            ("rows", "offsets", "y", "costs", "loss", "n_labels", "weights", "primal", "dual"),
            type(self).__name__,
        )
        self.problem, self.rng, self.tol = problem, rng, tol
        self.blocks = np.flatnonzero(problem.costs > 0)
        self.weights = problem.weights()
        self.best = self.weights
        self.bound = np.inf
        self.epochs = 0

    @abstractmethod
    def visit(self, order: np.ndarray) -> None:
        """Move the blocks of `order`, one after the other."""

    @abstractmethod
    def expected_loss(self) -> np.ndarray:
        """E Delta of every sequence."""

    @abstractmethod
    def restore(self) -> None:
        """Recompute w from the dual solution."""

    @abstractmethod
    def active(self) -> int:
        """How much of the dual solution carries weight."""

    def candidate(self) -> Any:
        """The weights that a fit stopped now would keep."""
        return self.weights

    def sweep(self, clock: Clock) -> None:
        """Visit every block once, in random order."""
        mean_of_pass(self.visit, self.rng.permutation(self.blocks), self.weights.vector, clock)

    def epoch(self, clock: Clock) -> Progress:
        """One sweep; evaluate the primal when it is due."""
        if self.epochs == 0:
            self.bound = self.problem.primal(self.weights)
        self.sweep(clock)
        self.epochs += 1
        dual = self.problem.dual(self.weights, self.expected_loss())
        if self._due(dual):
            self.bound = self.problem.primal(self.candidate())
        return Progress(Certificate(self.bound, dual), self.active())

    def _due(self, dual: float) -> bool:
        if self.gaps is None or self.epochs % EVALUATE_EVERY == 0:
            return True
        estimate = self.gaps.sum()
        return bool(estimate <= self.tol * abs(dual + estimate))

    def certify(self) -> Certificate:
        """Recompute w and D from the stored dual solution, and P of the weights to keep."""
        self.restore()
        self.best, self.bound = self.weights, self.problem.primal(self.weights)
        other = self.candidate()
        if other is not self.weights:
            primal = self.problem.primal(other)
            if primal < self.bound:
                self.best, self.bound = other, primal
        return Certificate(self.bound, self.problem.dual(self.weights, self.expected_loss()))
