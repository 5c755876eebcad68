"""Chains whose sequences lie in several parts: labelings are inferred there, cutting planes are kept here.

Problem as in `structured.chain_problem`: P(w) = 1/2 |w|^2 + R(w), R(w) = sum_i C_i max_z H_i(z). Labelings z
of all sequences make a plane of R,

    b + <g, w> <= R(w),   b = sum_i C_i Delta(y_i, z_i),   g = -sum_i C_i Psi_i(z_i),

which touches R where z are the most violating labelings, found by Viterbi. So `submodular.bundle` learns
chains too: all its coordinates may be negative, and inference is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows
from maxmargin.dask.set_planes import InParts
from maxmargin.structured.chain_loops import decode
from maxmargin.structured.chain_problem import ChainProblem


class Sequences(NamedTuple):
    """Stacked rows, offsets, stacked labels, weights and names of the features of one partition.

    `container` is the kind of its label sequences.
    """

    X: Any
    offsets: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    names: np.ndarray | None
    container: type


class Terms(NamedTuple):
    """What the loss asks of all parts alike."""

    classes: np.ndarray
    C: float
    normalize_loss: bool
    scaling: float


class ChainPart:
    """Some sequences of the problem, as `set_planes` asks for them; the sets are stacked labelings."""

    def __init__(self, sequences: Sequences, terms: Terms) -> None:
        self.n_labels = len(terms.classes)
        codes = np.searchsorted(terms.classes, sequences.y)
        self.problem = ChainProblem(
            Rows.of(sequences.X),
            sequences.offsets,
            codes,
            self.n_labels,
            terms.C,
            sequences.weight,
            terms.normalize_loss,
            terms.scaling,
        )

    def guesses(self) -> np.ndarray:
        """Viterbi starts anywhere."""
        return np.empty(0)

    def risk(self, theta: np.ndarray, hints: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """The most violating labelings, and the loss part of P."""
        problem, weights = self.problem, self.problem.shaped(theta.copy())
        labels, losses = np.empty(len(problem.y), np.int64), np.empty(len(problem.lengths))
        un, forward = np.empty((2, problem.longest, self.n_labels))
        decode(problem.blocks, 0, len(losses), weights, un, forward, labels, losses)
        return labels, float(problem.costs @ losses)

    def plane(self, sets: np.ndarray) -> tuple[np.ndarray, float]:
        """g and b of given labelings."""
        problem = self.problem
        gradient = self._features(sets) - self._features(problem.y)
        return gradient, float(problem.costs @ self._losses(sets))

    def along(self, start: np.ndarray, end: np.ndarray, memory: list[np.ndarray]) -> Callable[[float], float]:
        """The loss part of P from `start` (0) to `end` (1), as far as given labelings know it."""
        here, there = (self._excesses(w, memory) for w in (start, end))
        costs = self.problem.costs

        def risk(beta: float) -> float:
            return float(costs @ np.maximum(np.max(here + beta * (there - here), axis=0), 0.0))

        return risk

    def _losses(self, labels: np.ndarray) -> np.ndarray:
        """Delta of every sequence."""
        return self.problem.loss * self._by_sequence(labels != self.problem.y)

    def _by_sequence(self, numbers: np.ndarray) -> np.ndarray:
        """Sums over the rows of every sequence, none of which is empty."""
        return np.add.reduceat(numbers, self.problem.offsets[:-1], dtype=np.float64)

    def _ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """First and last row of every sequence, and all rows that another one follows."""
        first, last = self.problem.offsets[:-1], self.problem.offsets[1:] - 1
        return first, last, np.setdiff1d(np.arange(len(self.problem.y)), last)

    def _features(self, labels: np.ndarray) -> np.ndarray:
        """sum_i C_i Phi(x_i, z_i) as a flat vector."""
        problem, K = self.problem, self.n_labels
        cost = np.repeat(problem.costs, problem.lengths)
        first, last, inside = self._ends()
        places = sp.csr_array((cost, (np.arange(len(labels)), labels)), shape=(len(labels), K))
        pairs = labels[inside] * K + labels[inside + 1]
        vector = np.zeros(problem.size)
        weights = problem.shaped(vector)
        weights.U[:] = problem.rows.matrix.T @ places.toarray()
        weights.R[:] = np.bincount(pairs, cost[inside], K * K).reshape(K, K)
        for row, rows in zip(weights.B, (np.arange(len(labels)), first, last), strict=True):
            row[:] = np.bincount(labels[rows], cost[rows], K)
        return vector

    def _excesses(self, w: np.ndarray, memory: list[np.ndarray]) -> np.ndarray:
        """H_i of given labelings at w, a row for each of them."""
        problem, weights = self.problem, self.problem.shaped(w)
        un = np.asarray(problem.rows.matrix @ weights.U) + weights.B[0]
        first, last, inside = self._ends()
        un[first] += weights.B[1]
        un[last] += weights.B[2]
        rows = np.arange(len(problem.y))

        def scores(labels: np.ndarray) -> np.ndarray:
            numbers = un[rows, labels]
            numbers[inside] += weights.R[labels[inside], labels[inside + 1]]
            return self._by_sequence(numbers)

        truth = scores(problem.y)
        return np.stack([self._losses(labels) + scores(labels) - truth for labels in memory])


@dataclass(frozen=True)
class ScatteredChains(InParts):
    """The learning problem over parts, as `submodular.bundle` asks for it."""

    dimension: int

    # No weight is bound to be nonnegative, and inference is exact.
    pairs = ()
    exact = True

    def cut(self, vector: np.ndarray) -> np.ndarray:
        return vector

    def primal(self, theta: np.ndarray, risk: float) -> float:
        """P at theta, whose loss part is `risk`."""
        return 0.5 * float(theta @ theta) + risk

    def dual(self, offset: float, theta: np.ndarray) -> float:
        """D of planes with the mean offset b that make theta."""
        return offset - 0.5 * float(theta @ theta)

    def certificate(self, theta: np.ndarray, dual: float, hints: Any) -> Certificate:
        """P at theta next to a dual value; `hints` are read only."""
        return Certificate(self.primal(theta, self.risk(theta, hints.copy())[1]), dual)
