"""Label ranking under the entropy: the state of a learner with weights on the simplex.

F(w) = sum_j w_j log(n w_j) and G(theta) = log sum_j e^theta_j - log n. `problem` defines problem and dual,
`entropy_loops` the arrays and the rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from maxmargin.core.rows import Rows, readonly
from maxmargin.core.state import DOUBLE, State, floats
from maxmargin.ranking import loops
from maxmargin.ranking.entropy_loops import EntropyWeights, inspect_rows, refresh
from maxmargin.ranking.loops import Batch, Log, Memory, Rule, Work
from maxmargin.ranking.problem import TALLY, RankingState, check_capacity, grown
from maxmargin.ranking.step_loops import Shapes, blank_shapes


@dataclass
class EntropyState(RankingState):
    """Weights on the simplex under the entropy, in log space with lazy normalisation."""

    theta: np.ndarray = field(init=False)
    v: np.ndarray = field(init=False)
    c: np.ndarray = field(init=False)
    z: np.ndarray = field(init=False)
    slack: np.ndarray = field(init=False)

    STATE: ClassVar[State] = State(
        {
            **TALLY,
            "theta": floats("max_columns", "max_labels", dtypes=DOUBLE, packed=True),
            "v": floats("max_columns", "max_labels", dtypes=DOUBLE, packed=True, low=0.0),
            "c": floats("max_labels", dtypes=DOUBLE),
            "z": floats("max_labels", dtypes=DOUBLE, low=1e-100),
            "slack": floats("max_labels", dtypes=DOUBLE),
        },
        check_capacity,
    )

    def _allocate(self, columns: int, labels: int) -> None:
        before = len(getattr(self, "c", ()))
        for name, start in (("c", math.log(max(self.n_features, 1))), ("z", 1.0), ("slack", 0.0)):
            array = np.full(labels, start)
            array[:before] = getattr(self, name, array[:0])
            setattr(self, name, array)
        self.theta = grown(getattr(self, "theta", None), (columns, labels), np.float64)
        self.v = grown(getattr(self, "v", None), (columns, labels), np.float64)
        self.v[:, before:] = np.exp(-self.c[before:])

    def _enter_columns(self, before: int) -> None:
        self.v[before : self.used] = np.exp(-self.c)

    @property
    def _capacity(self) -> tuple[int, int]:
        return self.theta.shape

    def inspect(self, rows: Rows) -> Shapes:
        shapes = blank_shapes(rows.shape[0])
        inspect_rows(rows.flat, self.n_features, shapes)
        return shapes

    @property
    def _arrays(self) -> EntropyWeights:
        return EntropyWeights(self.theta, self.v, self.c, self.z, self.slack, self.used, self.n_features)

    def rounds(
        self, batch: Batch, rule: Rule, interior: bool, known: int, memory: Memory, record: np.ndarray
    ) -> int:
        log = Log(self.threshold, record)
        work = Work.of(batch, *self._arrays.v.shape)
        return loops.rounds(batch, None, self._arrays, interior, rule, known, memory, log, work)

    def latest_scores(self, rows: Rows) -> np.ndarray:
        # Scores are means of x under the weights of a label.
        k = self.n_labels
        out = np.empty((rows.shape[0], k))
        unseen = np.exp(-self.c[:k]) if self.used < self.n_features else np.zeros(k)
        loops.score_rows(rows.flat, self.slots_for(rows), readonly(self.v), unseen, out)
        out /= self.z[:k]
        return out

    def weights(self) -> np.ndarray:
        k = self.n_labels
        log_z = self._log_normalisers()
        seen = self.slots >= 0
        # A column that has not occurred has theta = 0; if there is one, log Z is at least 0.
        unseen = np.exp(np.minimum(-log_z, 0.0))
        dense = np.repeat(unseen[:, None], self.n_features, axis=1)
        dense[:, seen] = np.exp(self.theta[self.slots[seen], :k] - log_z).T
        return dense

    def _log_normalisers(self) -> np.ndarray:
        theta = self.theta[: self.used, : self.n_labels]
        top = theta.max(axis=0, initial=0.0 if self.used < self.n_features else -np.inf)
        total = np.exp(theta - top).sum(axis=0)
        if self.used < self.n_features:
            total += (self.n_features - self.used) * np.exp(-top)
        return top + np.log(total)

    def conjugate(self) -> float:
        return float(np.sum(self._log_normalisers() - math.log(self.n_features)))

    def complexity(self) -> float:
        # F(w_y) = <w_y, theta_y> - G(theta_y).
        theta = self.theta[: self.used, : self.n_labels]
        log_z = self._log_normalisers()
        inner = float(np.sum(np.exp(theta - log_z) * theta))
        return inner - float(np.sum(log_z - math.log(self.n_features)))

    def rebuilt(self, rows: Rows, steps: np.ndarray) -> tuple[Self, float]:
        other = self.snapshot()
        other.theta = np.zeros(self.theta.shape)
        other.v, other.c, other.z, other.slack = (
            array.copy() for array in (self.v, self.c, self.z, self.slack)
        )
        loops.add_steps(rows.flat, readonly(steps), self.n_labels, other.theta, self.slots)
        for y in range(self.n_labels):
            refresh(other._arrays, y)
        return other, other.conjugate()

    @staticmethod
    def complexity_of(W: np.ndarray) -> float:
        positive = W[W > 0]
        return float(np.sum(positive * np.log(W.shape[1] * positive)))
