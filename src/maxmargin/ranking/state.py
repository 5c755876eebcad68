"""The weights that a ranking learner carries, under the squared norm and under the entropy.

Feature-major arrays (slot x label) with room to grow in both directions; see
`_jit.ranking` and `_jit.ranking_entropy` for what the compiled loops do with them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxmargin.core.rows import Rows, readonly
from maxmargin.ranking import entropy_loops, loops
from maxmargin.ranking.step_loops import TILTED

NONE = readonly(np.empty(0))


@dataclass(frozen=True)
class Survey:
    """What the entropy needs to know of every row: kind, base, slope and range of its values."""

    columns: tuple[np.ndarray, ...] = ()

    @property
    def has_general_rows(self) -> bool:
        """Whether some row leaves the reach of water filling: entropy and more than two values."""
        return bool(self.columns) and bool((self.columns[0] == TILTED).any())

    @property
    def largest_range(self) -> float:
        """Largest range of the values of a row under the entropy, which no margin can exceed."""
        return float(self.columns[3].max(initial=0.0)) if self.columns else math.inf


@dataclass(frozen=True)
class Relevant:
    """The relevant labels of every row: row i has `labels[start[i]:start[i + 1]]`."""

    start: np.ndarray
    labels: np.ndarray

    @property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        return readonly(self.start), readonly(self.labels)

    def first_rows(self, known: int) -> list[int]:
        """Row in which each label from `known` on occurs for the first time."""
        fresh = np.flatnonzero(self.labels >= known)
        _, at = np.unique(self.labels[fresh], return_index=True)
        return (np.searchsorted(self.start, fresh[at], side="right") - 1).tolist()


@dataclass
class RankingState(ABC):
    """What a learner has learnt: weights in slots, and the tally of its rounds.

    `slots[column]` is the row of the arrays that holds a column of X, -1 while it never
    occurred. Arrays have room for more columns and labels than are in use; they grow by
    doubling, so that memory follows what was seen and not the number of rounds.
    """

    n_features: int
    dtype: Any = np.float64
    slots: np.ndarray = field(init=False)
    used: int = 0
    n_labels: int = 0
    born: list[int] = field(default_factory=list)
    n_rounds: int = 0
    n_steps: int = 0
    n_mistakes: int = 0
    n_first: int = 0
    n_first_mistakes: int = 0
    mass: float = 0.0
    dual: float = 0.0
    kappa: float = 0.0
    worst_gap: float = 0.0
    threshold: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 2.0]))

    def __post_init__(self) -> None:
        self.slots = np.full(self.n_features, -1, np.int32)
        self._allocate(0, 0)

    @abstractmethod
    def _allocate(self, columns: int, labels: int) -> None:
        """Make arrays for so many columns and labels, keeping what they hold."""

    @property
    @abstractmethod
    def _room(self) -> tuple[int, int]:
        """For how many columns and labels the arrays have room."""

    def declare(self, n_labels: int) -> None:
        """Make labels known from the present round on."""
        self._reserve(self.used, n_labels)
        self.born += [self.n_rounds] * (n_labels - self.n_labels)
        self.n_labels = max(self.n_labels, n_labels)

    def widen(self, n_features: int) -> None:
        """Let X have more columns than before; they start at weight zero."""
        extra = np.full(max(0, n_features - self.n_features), -1, np.int32)
        self.slots = np.concatenate([self.slots, extra])
        self.n_features = len(self.slots)

    def slots_for(self, rows: Rows) -> np.ndarray:
        """Slots of the columns of X, which may be more than were ever met."""
        extra = rows.shape[1] - len(self.slots)
        return readonly(np.append(self.slots, np.full(extra, -1, np.int32)) if extra > 0 else self.slots)

    def weigh(self, rows: Rows, learn: bool = False) -> Rows:
        """The rows as the rounds see them: as they are."""
        return rows

    def replay(self, rows: Rows) -> Rows:
        """The rows of the whole stream as the rounds saw them: as they are."""
        return rows

    def admit(self, rows: Rows, relevant: Relevant) -> None:
        """Make room for the columns and labels of a chunk before its rounds begin."""
        n_labels = int(relevant.labels.max(initial=-1)) + 1
        if rows.dense and rows.shape[0]:
            occurring = readonly(np.flatnonzero(rows.matrix.any(axis=0)).astype(np.uint32))
        else:
            occurring = rows.indices if not rows.dense else rows.indices[:0]
        fresh = self.slots[occurring] < 0
        if fresh.any():
            before = self.used
            self._reserve(before + len(np.unique(occurring[fresh])), n_labels)
            self.used = loops.assign_slots(occurring, self.slots, before)
            self._enter_columns(before)
        else:
            self._reserve(self.used, n_labels)

    def lay_out(self, rows: Rows, survey: Survey, order: np.ndarray) -> tuple[np.ndarray, ...]:
        """The rows of `order` as slots and scaled values, for the compiled rounds."""
        size = int((rows.indptr[order + 1] - rows.indptr[order]).sum())
        start, cols, vals = np.empty(len(order) + 1, np.int64), np.empty(size, np.uint32), np.empty(size)
        base, scale = (survey.columns[1], survey.columns[3]) if survey.columns else (NONE, NONE)
        loops.gather_rows(rows.flat, readonly(order), self.slots, base, scale, start, cols, vals)
        return start, cols, vals

    def tally(self, record: np.ndarray) -> None:
        """Count the rounds of a record."""
        wrong, first = record[:, loops.MISTAKE], record[:, loops.FIRST]
        self.n_rounds += len(record)
        self.n_mistakes += int(wrong.sum())
        self.n_first += int(first.sum())
        self.n_first_mistakes += int((wrong * first).sum())
        self.mass += float(record[:, loops.MASS].sum())
        self.dual += float(record[:, loops.GAIN].sum())
        self.kappa = max(self.kappa, float(record[:, loops.CURVATURE].max(initial=0.0)))
        self.worst_gap = max(self.worst_gap, float(record[:, loops.GAP].max(initial=0.0)))

    @abstractmethod
    def _enter_columns(self, before: int) -> None:
        """Set up the columns that have just been given the slots from `before` on."""

    def _reserve(self, columns: int, labels: int) -> None:
        have_columns, have_labels = self._room
        if columns > have_columns or labels > have_labels:
            more = (
                columns if columns <= have_columns else max(columns, min(2 * have_columns, self.n_features))
            )
            wide = labels if labels <= have_labels else max(labels, 2 * have_labels)
            self._allocate(max(more, have_columns), max(wide, have_labels))


def _grown(array: np.ndarray | None, shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """A larger array of zeros with the old one in its corner."""
    new = np.zeros(shape, dtype)
    if array is not None:
        new[: array.shape[0], : array.shape[1]] = array
    return new


@dataclass
class SquaredState(RankingState):
    """Weights under the squared norm (w = theta), and their weighted sum when averaging.

    With `rarity` every row is weighed before it is met: an entry by the logarithm of how rare its
    column was in the rounds before, the row to unit length. `counts` holds in how many of the
    `counted` rounds each column occurred.
    """

    average: bool = False
    rarity: bool = False
    counts: np.ndarray = field(init=False)
    counted: int = 0
    W: np.ndarray = field(init=False)
    weighted: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts = np.zeros(self.n_features if self.rarity else 0, np.int64)

    def widen(self, n_features: int) -> None:
        """Let X have more columns than before; they start at weight zero and were never met."""
        super().widen(n_features)
        if self.rarity:
            self.counts = np.append(self.counts, np.zeros(self.n_features - len(self.counts), np.int64))

    def weigh(self, rows: Rows, learn: bool = False) -> Rows:
        """The rows as the rounds see them; with `learn` they count for the rows after them."""
        if not self.rarity:
            return rows
        if not self.counts.flags.writeable:  # a model mapped from a file
            self.counts = self.counts.copy()
        values = np.empty(rows.data.shape, rows.data.dtype)
        self.counted = loops.weigh_rows(rows.flat, self.counts, self.counted, learn, values)
        return rows.with_values(values)

    def replay(self, rows: Rows) -> Rows:
        """The rows of the whole stream as the rounds saw them, weighed from the start again."""
        return SquaredState(self.n_features, self.dtype, rarity=self.rarity).weigh(rows, learn=True)

    def _allocate(self, columns: int, labels: int) -> None:
        self.W = _grown(getattr(self, "W", None), (columns, labels), self.dtype)
        shape = (columns, labels) if self.average else (0, 0)
        self.weighted = _grown(getattr(self, "weighted", None), shape, np.float64)

    @property
    def _room(self) -> tuple[int, int]:
        return self.W.shape

    def _enter_columns(self, before: int) -> None:
        """Nothing to do: fresh slots hold the zero weights of fresh columns."""

    def rounds(
        self, codes: tuple[float, float, int, int], layout: tuple[np.ndarray, ...], known: int,
        survey: Survey, relevant: Relevant, order: np.ndarray, steps: np.ndarray, again: bool,
        record: np.ndarray,
    ) -> int:  # fmt: skip
        """Run the rounds of `order`; returns the number of labels known afterwards."""
        return loops.squared_rounds(
            *layout, readonly(order), *relevant.flat, self.W, self.weighted,
            known, self.n_steps, *codes, steps, again, self.threshold, record,
        )  # fmt: skip

    def survey(self, rows: Rows) -> Survey:
        """Nothing: every row is treated alike."""
        return Survey()

    def scores(self, rows: Rows, averaged: bool = True) -> np.ndarray:
        """Scores of every row for every known label."""
        plain = self._score(rows, self.W)
        if not (self.average and averaged and self.n_steps):
            return plain
        return ((self.n_steps + 1) * plain - self._score(rows, self.weighted)) / self.n_steps

    def _score(self, rows: Rows, W: np.ndarray) -> np.ndarray:
        out = np.empty((rows.shape[0], self.n_labels))
        loops.score_rows(rows.flat, self.slots_for(rows), readonly(W), np.zeros(self.n_labels), out)
        return out

    def weights(self) -> np.ndarray:
        """Weights that `scores` uses, labels x columns."""
        W = self.W[: self.used, : self.n_labels]
        if self.average and self.n_steps:
            late = self.weighted[: self.used, : self.n_labels]
            W = ((self.n_steps + 1) * W.astype(np.float64) - late) / self.n_steps
        dense = np.zeros((self.n_labels, self.n_features), W.dtype)
        seen = self.slots >= 0
        dense[:, seen] = W[self.slots[seen]].T
        return dense

    def conjugate(self) -> float:
        """sum_y G(theta_y)."""
        return 0.5 * float(np.sum(np.square(self.W, dtype=np.float64)))

    complexity = conjugate

    def rebuild(self, rows: Rows, steps: np.ndarray) -> float:
        """Set the weights to those of the stored steps; returns sum_y G in float64."""
        exact = np.zeros(self.W.shape)
        loops.add_steps(rows.flat, readonly(steps), self.n_labels, exact, self.slots)
        self.W[...] = exact
        return 0.5 * float(np.sum(np.square(exact)))

    @staticmethod
    def complexity_of(W: np.ndarray) -> float:
        """sum_y F(w_y) of a competitor."""
        return 0.5 * float(np.sum(np.square(W)))


@dataclass
class EntropyState(RankingState):
    """Weights on the simplex under the entropy, in log space with lazy normalisation."""

    theta: np.ndarray = field(init=False)
    v: np.ndarray = field(init=False)
    c: np.ndarray = field(init=False)
    z: np.ndarray = field(init=False)
    slack: np.ndarray = field(init=False)

    def _allocate(self, columns: int, labels: int) -> None:
        old = getattr(self, "c", np.empty(0))
        self.c = np.full(labels, math.log(max(self.n_features, 1)))
        self.c[: len(old)] = old
        for name, fill, dtype in (("z", 1.0, np.float64), ("slack", 0.0, np.float64)):
            fresh = np.full(labels, fill, dtype)
            fresh[: len(old)] = getattr(self, name, fresh[:0])
            setattr(self, name, fresh)
        self.theta = _grown(getattr(self, "theta", None), (columns, labels), np.float64)
        self.v = _grown(getattr(self, "v", None), (columns, labels), np.float64)
        self.v[:, len(old) :] = np.exp(-self.c[len(old) :])

    def _enter_columns(self, before: int) -> None:
        self.v[before : self.used] = np.exp(-self.c)

    @property
    def _room(self) -> tuple[int, int]:
        return self.theta.shape

    def survey(self, rows: Rows) -> Survey:
        """Kind, base, slope and range of every row."""
        n = rows.shape[0]
        kind = np.empty(n, np.int64)
        base, slope, spread = np.empty(n), np.empty(n), np.empty(n)
        entropy_loops.survey_rows(rows.data, rows.indptr, self.n_features, kind, base, slope, spread)
        return Survey((readonly(kind), readonly(base), readonly(slope), readonly(spread)))

    def rounds(
        self, codes: tuple[float, float, int, int], layout: tuple[np.ndarray, ...], known: int,
        survey: Survey, relevant: Relevant, order: np.ndarray, steps: np.ndarray, again: bool,
        record: np.ndarray,
    ) -> int:  # fmt: skip
        """Run the rounds of `order`; returns the number of labels known afterwards."""
        return entropy_loops.entropy_rounds(
            *layout, readonly(order), *relevant.flat, self.used, self.n_features,
            self.theta, self.v, self.c, self.z, self.slack, *survey.columns,
            known, *codes, steps, again, self.threshold, record,
        )  # fmt: skip

    def scores(self, rows: Rows, averaged: bool = True) -> np.ndarray:
        """Scores of every row for every known label: the mean of x under the label's weights."""
        k = self.n_labels
        out = np.empty((rows.shape[0], k))
        unseen = np.exp(-self.c[:k]) if self.used < self.n_features else np.zeros(k)
        loops.score_rows(rows.flat, self.slots_for(rows), readonly(self.v), unseen, out)
        out /= self.z[:k]
        return out

    def weights(self) -> np.ndarray:
        """Weights on the simplex, labels x columns."""
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
        """sum_y G(theta_y)."""
        return float(np.sum(self._log_normalisers() - math.log(self.n_features)))

    def complexity(self) -> float:
        """sum_y F(w_y) = sum_y <w_y, theta_y> - G(theta_y)."""
        theta = self.theta[: self.used, : self.n_labels]
        log_z = self._log_normalisers()
        inner = float(np.sum(np.exp(theta - log_z) * theta))
        return inner - float(np.sum(log_z - math.log(self.n_features)))

    def rebuild(self, rows: Rows, steps: np.ndarray) -> float:
        """Set the weights to those of the stored steps; returns sum_y G."""
        self.theta[...] = 0.0
        loops.add_steps(rows.flat, readonly(steps), self.n_labels, self.theta, self.slots)
        for y in range(self.n_labels):
            entropy_loops.refresh(
                self.theta, self.v, self.c, self.z, self.slack, y, self.used, self.n_features
            )
        return self.conjugate()

    @staticmethod
    def complexity_of(W: np.ndarray) -> float:
        """sum_y F(w_y) of a competitor on the simplex."""
        positive = W[W > 0]
        return float(np.sum(positive * np.log(W.shape[1] * positive)))
