"""Label ranking under the entropy: the state of a learner whose weights stay on the simplex.

F(w) = sum_j w_j log(n w_j) and G(theta) = log sum_j e^theta_j - log n; problem and dual are in
`problem`, what the arrays hold and how the rounds move them in `entropy_loops`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from maxmargin.core.rows import Rows, readonly
from maxmargin.core.state import DOUBLE, State, floats
from maxmargin.ranking import loops
from maxmargin.ranking.entropy_loops import EntropyWeights, refresh, survey_rows
from maxmargin.ranking.loops import Batch, Log, Memory, Rule, Work
from maxmargin.ranking.problem import TALLY, RankingState, check_room, grown
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
            "theta": floats("room_columns", "room_labels", dtypes=DOUBLE, packed=True),
            "v": floats("room_columns", "room_labels", dtypes=DOUBLE, packed=True, low=0.0),
            "c": floats("room_labels", dtypes=DOUBLE),
            "z": floats("room_labels", dtypes=DOUBLE, low=1e-100),
            "slack": floats("room_labels", dtypes=DOUBLE),
        },
        check_room,
    )

    def _allocate(self, columns: int, labels: int) -> None:
        old = getattr(self, "c", np.empty(0))
        self.c = np.full(labels, math.log(max(self.n_features, 1)))
        self.c[: len(old)] = old
        for name, fill, dtype in (("z", 1.0, np.float64), ("slack", 0.0, np.float64)):
            fresh = np.full(labels, fill, dtype)
            fresh[: len(old)] = getattr(self, name, fresh[:0])
            setattr(self, name, fresh)
        self.theta = grown(getattr(self, "theta", None), (columns, labels), np.float64)
        self.v = grown(getattr(self, "v", None), (columns, labels), np.float64)
        self.v[:, len(old) :] = np.exp(-self.c[len(old) :])

    def _enter_columns(self, before: int) -> None:
        self.v[before : self.used] = np.exp(-self.c)

    @property
    def _room(self) -> tuple[int, int]:
        return self.theta.shape

    def survey(self, rows: Rows) -> Shapes:
        """Kind, base, slope and range of every row."""
        shapes = blank_shapes(rows.shape[0])
        survey_rows(rows.flat, self.n_features, shapes)
        return shapes

    @property
    def _arrays(self) -> EntropyWeights:
        return EntropyWeights(self.theta, self.v, self.c, self.z, self.slack, self.used, self.n_features)

    def rounds(
        self, batch: Batch, rule: Rule, interior: bool, known: int, memory: Memory, record: np.ndarray
    ) -> int:
        """Run the rounds of a batch; returns the number of labels known afterwards."""
        log = Log(self.threshold, record)
        work = Work.of(batch, *self._arrays.v.shape)
        return loops.rounds(batch, None, self._arrays, interior, rule, known, memory, log, work)

    def latest_scores(self, rows: Rows) -> np.ndarray:
        """Scores of every row for every known label: the mean of x under the label's weights."""
        k = self.n_labels
        out = np.empty((rows.shape[0], k))
        unseen = np.exp(-self.c[:k]) if self.used < self.n_features else np.zeros(k)
        loops.score_rows(rows.flat, self.slots_for(rows), readonly(self.v), unseen, out)
        out /= self.z[:k]
        return out

    def weights(self) -> np.ndarray:
        """The weights that predict, on the simplex, labels x columns."""
        k = self.n_labels
        log_z = self._log_normalisers()
        seen = self.slots >= 0
        # A column that never occurred has theta 0; while there is one, log Z is at least 0.
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
        """sum_y G(theta_y), with G = log sum_j e^theta_j - log n the conjugate (4) of F."""
        return float(np.sum(self._log_normalisers() - math.log(self.n_features)))

    def complexity(self) -> float:
        """sum_y F(w_y) = sum_y <w_y, theta_y> - G(theta_y)."""
        theta = self.theta[: self.used, : self.n_labels]
        log_z = self._log_normalisers()
        inner = float(np.sum(np.exp(theta - log_z) * theta))
        return inner - float(np.sum(log_z - math.log(self.n_features)))

    def rebuilt(self, rows: Rows, steps: np.ndarray) -> tuple[Self, float]:
        """A state with the weights of the stored steps, and its sum_y G."""
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
        """sum_y F(w_y) of a competitor on the simplex."""
        positive = W[W > 0]
        return float(np.sum(positive * np.log(W.shape[1] * positive)))
