"""Epochs of block steps on a structured problem, with averaging of w and certificates.

The steps are those of `oracle_loops`. The dual rises under every block step, but the primal oscillates,
because each visit serves its own block; the mean of w over the last epochs is the better model.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress

# Epochs after which the primal is evaluated in any case, and after which w is recomputed from the dual.
EVALUATE_EVERY, SYNCHRONISE_EVERY = 5, 50
# Parts of a pass; the clock is checked and w is added to its mean after each of them.
PARTS = 8
# The least weight of the newest epoch in the mean of w.
NEWEST = 0.2


class Problem(Protocol):
    """What block steps need of a problem: C_i, and weights as one vector and in the form of the loops."""

    costs: np.ndarray

    @property
    def size(self) -> int: ...

    def shaped(self, vector: np.ndarray) -> Any: ...

    def dual(self, vector: np.ndarray, expected_loss: np.ndarray) -> float: ...


class ConvexProblem(Problem, Protocol):
    """A problem with a primal, whose blocks start at the truth."""

    blocks: Any

    def primal(self, vector: np.ndarray) -> float: ...

    def true_atoms(self) -> Any: ...

    def workspace(self) -> Any: ...


def chunks(offsets: np.ndarray, n_threads: int) -> list[tuple[int, int]]:
    """Split the groups of rows into ranges of about equal total length, a few for each thread."""
    n = offsets.size - 1
    if n_threads <= 1:
        return [(0, n)]
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], 4 * n_threads + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], cuts, [n]]))
    return [(int(a), int(b)) for a, b in itertools.pairwise(bounds)]


class Blocks(ABC):
    """The distributions alpha of all blocks, their w, and the steps that update both."""

    # The solver that ran the last epoch.
    name = ""
    # Whether the mean of w over an epoch is a better model than w at its end.
    averages = False
    # Whether the last epoch solved for all stored answers, so that its weights should be evaluated.
    solved = False

    def __init__(self, problem: Problem, blocks: Any) -> None:
        self.problem, self.blocks = problem, blocks
        self.vector = np.zeros(problem.size)
        self.w = problem.shaped(self.vector)
        self.visited = np.flatnonzero(problem.costs > 0)
        self.mean = RunningMean(problem.size)
        self.gaps = np.where(problem.costs > 0, np.inf, 0.0)

    @property
    @abstractmethod
    def dual(self) -> Any:
        """The dual solution, from which another fit can start."""

    @abstractmethod
    def visit(self, order: np.ndarray) -> None:
        """Take a step on the blocks of `order`, one after the other."""

    @abstractmethod
    def expected_loss(self) -> np.ndarray:
        """E Delta of every block."""

    @abstractmethod
    def recompute(self) -> tuple[np.ndarray, np.ndarray]:
        """w and E Delta of every block from the dual solution; changes nothing."""

    def synchronise(self) -> None:
        """Recompute w from the dual solution, without the rounding of many steps."""
        self.vector[:] = self.recompute()[0]

    def objective(self) -> float:
        """D at the current w."""
        return self.problem.dual(self.vector, self.expected_loss())

    def best_share(self) -> float:
        """The t in [0, 1] with the largest D on the line from the truth (t = 0, w = 0) to here (t = 1).

        D(t) = t E Delta - t^2 |w|^2 / 2, as the distributions mix linearly.
        """
        slope, curvature = float(self.problem.costs @ self.expected_loss()), float(self.vector @ self.vector)
        return 1.0 if slope >= curvature else slope / curvature

    def sweep(self, rng: np.random.RandomState, clock: Clock) -> int:
        """Visit every block once in random order and update the mean of w; returns how many were visited."""
        mean, seen = self.walk(rng, clock)
        if mean is not None:
            self.mean.add(mean)
        return seen

    def walk(self, rng: np.random.RandomState, clock: Clock) -> tuple[np.ndarray | None, int]:
        """Visit every block once in random order; returns the mean of w and the number of visits.

        The mean is None if the time limit passed.
        """
        total, seen = np.zeros_like(self.vector), 0
        for part in np.array_split(rng.permutation(self.visited), PARTS):
            if clock.expired():
                return None, seen
            self.visit(part)
            seen += part.size
            total += self.vector / PARTS
        return total, seen


class RunningMean:
    """Mean of w over the last few epochs, the newest of which has at least the weight `NEWEST`."""

    def __init__(self, size: int) -> None:
        self.value, self.count = np.zeros(size), 0

    def add(self, mean: np.ndarray) -> None:
        self.count += 1
        self.value += max(1.0 / self.count, NEWEST) * (mean - self.value)

    def restart(self, value: np.ndarray) -> None:
        """Start again from `value`."""
        self.value, self.count = value, 1


@dataclass(frozen=True)
class Solution:
    """The weights of the model, as one vector, and the dual solution of its certificate."""

    vector: np.ndarray
    dual: Any


class BlockSolver(Evaluated):
    """Epochs of block steps on a convex problem, with a certificate.

    Any weights w' and any feasible alpha bracket the optimum, P(w') >= D(alpha). The dual of a certificate
    is that of the stored alpha. Its primal is that of the returned weights: the best of those of alpha, the
    mean over the last epochs and those evaluated before.

    Block gaps are a by-product of the visits, but each belongs to the weights of its own visit. Their sum
    only decides when to evaluate the primal, which takes a pass over all blocks.

    Parameters
    ----------
    problem : ConvexProblem
    blocks : Blocks
        The distributions and their steps.
    rng : RandomState
        Order of the visits.
    tol : float
        Relative gap, estimated from the block gaps, at which the primal is evaluated.
    """

    def __init__(
        self, problem: ConvexProblem, blocks: Blocks, rng: np.random.RandomState, tol: float
    ) -> None:
        self.problem, self.blocks, self.rng, self.tol = problem, blocks, rng, tol
        self.best = BestWeights()
        self.epochs = 0

    @property
    def name(self) -> str:
        return self.blocks.name

    def _move(self, clock: Clock) -> Progress:
        """One sweep; evaluate the primal when it is due."""
        if self.epochs == 0 and self.blocks.vector.any():
            self.best.offer(self.problem.primal(self.blocks.vector), self.blocks.vector)
        seen = self.blocks.sweep(self.rng, clock)
        self.epochs += 1
        if self.epochs % SYNCHRONISE_EVERY == 0:
            self.blocks.synchronise()
        dual = self.blocks.objective()
        if not math.isfinite(dual):
            raise ValueError(
                "Scores divided by the temperature overflow; increase the temperature or decrease C."
            )
        if self._due(dual):
            vector = self.blocks.mean.value if self.blocks.averages else self.blocks.vector
            self.best.offer(self.problem.primal(vector), vector)
        return Progress(Certificate(self.best.primal, dual), seen)

    def _due(self, dual: float) -> bool:
        if self.blocks.solved or self.epochs % EVALUATE_EVERY == 0:
            return True
        estimate = self.blocks.gaps.sum()
        return bool(estimate <= self.tol * abs(dual + estimate))

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The weights with the lowest primal, and the dual solution with its recomputed D."""
        vector, expected_loss = self.blocks.recompute()
        dual, primal = self.problem.dual(vector, expected_loss), self.problem.primal(vector)
        if self.blocks.averages:
            other = self.problem.primal(self.blocks.mean.value)
            if other < primal:
                vector, primal = self.blocks.mean.value.copy(), other
        if self.best.primal < primal:
            vector, primal = self.best.weights, self.best.primal
        return Solution(vector, self.blocks.dual), Certificate(primal, dual)
