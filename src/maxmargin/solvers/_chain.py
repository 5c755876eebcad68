"""What the block solvers for chains share: the order of visits, evaluations, certificates.

Any weights w' and any feasible alpha bracket the optimum, P(w') >= D(alpha). The dual of a
certificate is that of the stored alpha; its primal belongs to the weights the fit keeps:
those of alpha or, where that is lower, the method's own candidate. Records between
evaluations repeat the last primal, which stays a bound.

Block gaps are collected on the way at no cost, but each belongs to the weights of its own
visit. Their sum only says when an evaluation is worth a pass over all sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.solvers._loop import Certificate, Clock, Progress, require

# Evaluations between which the collected gaps alone decide.
EVALUATE_EVERY = 5
# Pieces of an epoch, between which the time limit is looked at.
PIECES = 8


class ChainMethod:
    """Base of the chain solvers; a subclass moves blocks and knows its dual solution.

    It offers `visit` (move the blocks of an order), `expected_loss` (E Delta of every
    sequence), `restore` (recompute w from the dual solution), `active`, and `candidate`
    (the weights that a fit stopped now would keep).
    """

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

    def visit(self, order: np.ndarray) -> None:
        raise NotImplementedError

    def expected_loss(self) -> np.ndarray:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def active(self) -> int:
        raise NotImplementedError

    def candidate(self) -> Any:
        return self.weights

    def epoch(self, clock: Clock) -> Progress:
        """Visit every block once, in random order."""
        if self.epochs == 0:
            self.bound = self.problem.primal(self.weights)
        for order in np.array_split(self.rng.permutation(self.blocks), PIECES):
            if clock.expired():
                break
            self.visit(order)
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
