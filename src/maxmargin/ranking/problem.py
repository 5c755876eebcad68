"""Label ranking: objective, dual, the state of a learner, and passes over the rows.

With labels y, examples (x_t, Y_t), margin gamma and a regulariser F with conjugate G,

    P(w) = sum_y F(w_y) + C sum_t loss_t,    loss_t = max over r in Y_t, s not in Y_t of
                                                      [gamma - (<w_r, x_t> - <w_s, x_t>)]_+
    D    = gamma sum_t a_t - sum_y G(theta_y),   theta_y = sum_t alpha_ty x_t,   w_y = grad G(theta_y)

where alpha_t >= 0 on Y_t, <= 0 off it, sums to zero, and a_t, its sum over Y_t, is at most C.

| regulariser | F(w)                          | G(theta)                       | kappa(x)            |
|-------------|-------------------------------|--------------------------------|---------------------|
| squared     | 1/2 |w|^2                     | 1/2 |theta|^2                  | |x|^2               |
| entropy     | sum_j w_j log(n w_j), simplex | log sum_j e^theta_j - log n    | (max x - min x)^2/4 |

A mistake raises D by at least lambda = gamma C - kappa C^2, and D <= P(w) for every w. Hence lambda M <=
P(w): the objective of any competitor bounds the number of mistakes M. C of the paper and C of scikit-learn
agree here: both multiply the sum of the losses.

One pass over the rows is the online algorithm: predict, then ascend the dual with a step of the current
example. Further passes replace the step of an example by a better one, which is block-coordinate ascent on
the dual. With update "all_pairs" they converge to the optimum; the other two updates never decrease the dual,
but need not reach the optimum. A fit stops at the relative gap (P - D) / |P|, with D recomputed from the
stored steps and P from the weights of these steps. The state under the entropy is in `entropy`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.state import (
    DOUBLE,
    MEASURED,
    MOST,
    Array,
    Field,
    Flag,
    Several,
    Sizes,
    State,
    Whole,
    chosen,
    floats,
)
from maxmargin.ranking import loops
from maxmargin.ranking.loops import Batch, Log, Memory, Relevant, Rule, SquaredWeights, Work
from maxmargin.ranking.step_loops import ALL_PAIRS, FIXED, WORST_PAIR, Shapes, blank_shapes

UPDATES = {"fixed": FIXED, "worst_pair": WORST_PAIR, "all_pairs": ALL_PAIRS}
NO_SHAPES = blank_shapes(0)


# Stored attributes of a state under both regularisers.
TALLY: dict[str, Field] = {
    "n_features": Whole(size="n_features"),
    "dtype": chosen(np.dtype(np.float64), np.dtype(np.float32)),
    "used": Whole(size="used"),
    "slots": Array(("n_features",), ("i4",), -1, "used"),
    "n_labels": Whole(size="n_classes"),
    "born": Several(Whole(), size="n_classes"),
    **dict.fromkeys(("n_rounds", "n_steps", "n_mistakes", "n_first", "n_first_mistakes"), Whole()),
    **dict.fromkeys(("mass", "dual", "kappa", "worst_gap"), MEASURED),
    "threshold": floats(3, dtypes=DOUBLE),
}


def check_capacity(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that the arrays are large enough for the columns and labels in use."""
    if sizes["max_columns"] < sizes["used"] or sizes["max_labels"] < sizes["n_classes"]:
        raise ValueError("its weights have fewer rows or columns than it has columns and labels")
    _, rounds, growth = state["threshold"]
    if not (rounds >= 0 and growth in (1.0, 2.0)):
        raise ValueError("its threshold is not a running average")
    if state.get("rarity") and state["counts"].max(initial=0) > state["counted"]:
        raise ValueError("a column was counted in more rounds than there were")


@dataclass(frozen=True)
class RankingProblem:
    """Margin and C of the ranking problem, for both regularisers."""

    gamma: float
    C: float

    def losses(self, scores: np.ndarray, relevant: Relevant, born: np.ndarray) -> np.ndarray:
        """Return the loss (1) of every row over the labels that were known in its round."""
        out = np.empty(len(scores))
        loops.hinge_losses(readonly(scores), relevant, readonly(born), self.gamma, out)
        return out

    def primal(self, complexity: float, scores: np.ndarray, relevant: Relevant, born: np.ndarray) -> float:
        """Return P of (3): the complexity sum_y F(w_y) plus C times the losses of these scores."""
        return complexity + self.C * float(self.losses(scores, relevant, born).sum())

    def dual(self, mass: float, conjugate: float) -> float:
        """Return D of (5), in the reduced variables of (28): gamma times the mass minus sum_y G(theta_y)."""
        return self.gamma * mass - conjugate

    def mistake_bound(self, primal: float, kappa: float) -> float:
        """Return the largest M that (2) allows: the objective of a competitor over lambda of Lemma 1."""
        gain = self.gamma * self.C - kappa * self.C**2
        return primal / gain if gain > 0 else math.inf


@dataclass
class RankingState(ABC):
    """The weights of a learner, stored by slot, and the counters of its rounds.

    `slots[column]` is the array row of a column of X, or -1 as long as the column has not occurred. Arrays
    are larger than needed and grow by doubling, so memory follows the columns and labels that occurred.
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
        """Make arrays for this many columns and labels, and copy the old values."""

    @property
    @abstractmethod
    def _capacity(self) -> tuple[int, int]:
        """Number of columns and labels that the arrays can store."""

    def declare(self, n_labels: int) -> None:
        """Make labels known from the present round on."""
        self._reserve(self.used, n_labels)
        self.born += [self.n_rounds] * (n_labels - self.n_labels)
        self.n_labels = max(self.n_labels, n_labels)

    def widen(self, n_features: int) -> None:
        """Let X have more columns than before; their weights start at zero."""
        extra = np.full(max(0, n_features - self.n_features), -1, np.int32)
        self.slots = np.concatenate([self.slots, extra])
        self.n_features = len(self.slots)

    def own(self) -> None:
        """Copy the arrays that are read-only, such as those of a memory-mapped model file."""
        for name, value in list(vars(self).items()):
            if isinstance(value, np.ndarray) and not value.flags.writeable:
                setattr(self, name, np.array(value))

    def slots_for(self, rows: Rows) -> np.ndarray:
        """Return the slots of the columns of X, -1 for columns beyond those of the training rows."""
        extra = rows.shape[1] - len(self.slots)
        return readonly(np.append(self.slots, np.full(extra, -1, np.int32)) if extra > 0 else self.slots)

    def weight_rows(self, rows: Rows, count: bool = False) -> Rows:
        """Return the rows with their weighting; with `count`, they are the rows of the next rounds."""
        return rows

    def replay(self, rows: Rows) -> Rows:
        """Return the rows of the whole stream with the weighting of their rounds."""
        return rows

    def inspect(self, rows: Rows) -> Shapes:
        """Return the shapes of the rows, which only the entropy needs."""
        return NO_SHAPES

    def allocate(self, rows: Rows, relevant: Relevant) -> None:
        """Allocate weights for the columns and labels of a chunk before its rounds begin."""
        n_labels = int(relevant.labels.max(initial=-1)) + 1
        if rows.dense and rows.shape[0]:
            occurring = readonly(np.flatnonzero(rows.matrix.any(axis=0)).astype(np.uint32))
        else:
            occurring = rows.indices if not rows.dense else rows.indices[:0]
        before = self.used
        used = loops.assign_slots(occurring, self.slots, before)
        try:
            self._reserve(used, n_labels)
        except BaseException:  # out of memory: these columns have not occurred
            self.slots[self.slots >= before] = -1
            raise
        self.used = used
        if used > before:
            self._enter_columns(before)

    def make_batch(self, rows: Rows, relevant: Relevant, shapes: Shapes, order: np.ndarray) -> Batch:
        """Return the rows of `order` as slots and scaled values, for the compiled rounds."""
        size = int((rows.indptr[order + 1] - rows.indptr[order]).sum())
        start, cols, vals = np.empty(len(order) + 1, np.int64), np.empty(size, np.uint32), np.empty(size)
        order = readonly(order)
        loops.gather_rows(rows.flat, order, self.slots, shapes, start, cols, vals)
        return Batch(start, cols, vals, order, relevant, shapes, self.n_steps)

    def tally(self, record: np.ndarray) -> None:
        """Add the rounds of a record to the counters."""
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
    def rounds(
        self, batch: Batch, rule: Rule, interior: bool, known: int, memory: Memory, record: np.ndarray
    ) -> int:
        """Run the rounds of a batch, with `interior` by interior points; return the number of labels."""

    @abstractmethod
    def latest_scores(self, rows: Rows) -> np.ndarray:
        """Return the scores of every row for every known label, with the present weights."""

    def scores(self, rows: Rows) -> np.ndarray:
        """Return the scores that predict."""
        return self.latest_scores(rows)

    @abstractmethod
    def weights(self) -> np.ndarray:
        """Return the weights that predict, labels x columns."""

    @abstractmethod
    def conjugate(self) -> float:
        """Return sum_y G(theta_y), with G the conjugate (4) of F."""

    @abstractmethod
    def complexity(self) -> float:
        """Return sum_y F(w_y) of the present weights."""

    @staticmethod
    @abstractmethod
    def complexity_of(W: np.ndarray) -> float:
        """Return sum_y F(w_y) of a competitor."""

    def snapshot(self) -> Self:
        """Return a copy that later rounds do not change; it shares the large arrays."""
        other = copy(self)
        other.threshold, other.born = self.threshold.copy(), list(self.born)
        return other

    @abstractmethod
    def rebuilt(self, rows: Rows, steps: np.ndarray) -> tuple[Self, float]:
        """Return a new state rebuilt from the stored steps, and its sum_y G; `self` is unchanged."""

    @abstractmethod
    def _enter_columns(self, before: int) -> None:
        """Initialise the columns with the slots from `before` on."""

    def _reserve(self, columns: int, labels: int) -> None:
        have_columns, have_labels = self._capacity
        if columns > have_columns:
            columns = max(columns, min(2 * have_columns, self.n_features))
        if labels > have_labels:
            labels = max(labels, 2 * have_labels)
        if columns > have_columns or labels > have_labels:
            self._allocate(max(columns, have_columns), max(labels, have_labels))


def grown(array: np.ndarray | None, shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """Return a larger array of zeros with the old one in its corner."""
    new = np.zeros(shape, dtype)
    if array is not None:
        new[: array.shape[0], : array.shape[1]] = array
    return new


@dataclass
class SquaredState(RankingState):
    """Weights under the squared norm (w = theta), and their weighted sum when averaging.

    With `rarity` every entry of a row is multiplied by the log rarity of its column in the rounds before
    (plus one if `smooth`; the square root if `damped`), and the row is scaled to unit length. `counts` is the
    number of the `counted` rounds in which each column occurred.
    """

    average: bool = False
    rarity: bool = False
    damped: bool = False
    smooth: bool = False
    counts: np.ndarray = field(init=False)
    counted: int = 0
    W: np.ndarray = field(init=False)
    weighted: np.ndarray = field(init=False)

    STATE: ClassVar[State] = State(
        {
            **TALLY,
            "average": Flag(),
            "rarity": Flag(),
            "damped": Flag(group="damped"),
            "smooth": Flag(group="smooth"),
            "counts": Array(("n_features",), ("i8",), 0, MOST, when="rarity"),
            "counted": Whole(),
            "W": floats("max_columns", "max_labels", packed=True),
            "weighted": floats("max_columns", "max_labels", dtypes=DOUBLE, packed=True, when="average"),
        },
        check_capacity,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts = np.zeros(self.n_features if self.rarity else 0, np.int64)
        if self.average:
            # Equal weights for all rounds, as in the average of the weights.
            self.threshold[2] = 1.0

    def start_weighting(self, rarity: bool, damped: bool, smooth: bool) -> None:
        """Apply the weighting from this round on; the rows before had no entries."""
        self.rarity, self.damped, self.smooth = rarity, damped, smooth
        self.counts, self.counted = np.zeros(self.n_features, np.int64), self.n_rounds

    def widen(self, n_features: int) -> None:
        super().widen(n_features)
        if self.rarity:
            self.counts = np.append(self.counts, np.zeros(self.n_features - len(self.counts), np.int64))

    def weight_rows(self, rows: Rows, count: bool = False) -> Rows:
        if not self.rarity:
            return rows
        if not self.counts.flags.writeable:  # of a memory-mapped model file
            self.counts = self.counts.copy()
        values = np.empty(rows.data.shape, rows.data.dtype)
        self.counted = loops.weight_rows(
            rows.flat, self.counts, self.counted, count, float(self.smooth), self.damped, values
        )
        return rows.with_values(values)

    def rarities(self) -> np.ndarray:
        """Return the factors of the entries of the next row, before it is scaled to unit length."""
        rarity = float(self.smooth) + np.log((2.0 + self.counted) / (1.0 + self.counts))
        return np.sqrt(rarity) if self.damped else rarity

    def replay(self, rows: Rows) -> Rows:
        fresh = SquaredState(
            self.n_features, self.dtype, rarity=self.rarity, damped=self.damped, smooth=self.smooth
        )
        return fresh.weight_rows(rows, count=True)

    def _allocate(self, columns: int, labels: int) -> None:
        self.W = grown(getattr(self, "W", None), (columns, labels), self.dtype)
        shape = (columns, labels) if self.average else (0, 0)
        self.weighted = grown(getattr(self, "weighted", None), shape, np.float64)

    @property
    def _capacity(self) -> tuple[int, int]:
        return self.W.shape

    def _enter_columns(self, before: int) -> None:
        """Leave the weights of new columns at zero."""

    def rounds(
        self, batch: Batch, rule: Rule, interior: bool, known: int, memory: Memory, record: np.ndarray
    ) -> int:
        weights, work = SquaredWeights(self.W, self.weighted), Work.of(batch, 0, self.W.shape[1])
        log, asked = Log(self.threshold, record), True if interior else None
        return loops.rounds(batch, weights, None, asked, rule, known, memory, log, work)

    def latest_scores(self, rows: Rows) -> np.ndarray:
        return self._score(rows, self.W)

    def scores(self, rows: Rows) -> np.ndarray:
        # The average of the weights over all rounds is ((n + 1) W - sum of t (step t)) / n.
        plain = self.latest_scores(rows)
        if not (self.average and self.n_steps):
            return plain
        return ((self.n_steps + 1) * plain - self._score(rows, self.weighted)) / self.n_steps

    def _score(self, rows: Rows, W: np.ndarray) -> np.ndarray:
        out = np.empty((rows.shape[0], self.n_labels))
        loops.score_rows(rows.flat, self.slots_for(rows), readonly(W), np.zeros(self.n_labels), out)
        return out

    def weights(self) -> np.ndarray:
        W = self.W[: self.used, : self.n_labels]
        if self.average and self.n_steps:
            late = self.weighted[: self.used, : self.n_labels]
            W = ((self.n_steps + 1) * W.astype(np.float64) - late) / self.n_steps
        dense = np.zeros((self.n_labels, self.n_features), W.dtype)
        seen = self.slots >= 0
        dense[:, seen] = W[self.slots[seen]].T
        return dense

    def conjugate(self) -> float:
        return 0.5 * float(np.sum(np.square(self.W, dtype=np.float64)))

    complexity = conjugate

    def rebuilt(self, rows: Rows, steps: np.ndarray) -> tuple[Self, float]:
        exact = np.zeros(self.W.shape)
        loops.add_steps(rows.flat, readonly(steps), self.n_labels, exact, self.slots)
        other = self.snapshot()
        other.W, other.weighted = exact.astype(self.W.dtype, copy=False), self.weighted.copy()
        return other, 0.5 * float(np.sum(np.square(exact)))

    @staticmethod
    def complexity_of(W: np.ndarray) -> float:
        return 0.5 * float(np.sum(np.square(W)))


# Most products of an entry of X with a label between two checks of the clock.
PRODUCTS = 1 << 23


class OnlineRanking(Evaluated):
    """Passes over the rows: the first in their order, later ones in random order.

    Parameters
    ----------
    problem : RankingProblem
    state : RankingState
        The weights, which the rounds change.
    rows : Rows
        The rows with their weighting (`RankingState.weight_rows`).
    relevant : Relevant
    shapes : Shapes
        The shapes of the rows (`RankingState.inspect`).
    name : str
        How steps are found, for `solver_`.
    update : {"fixed", "worst_pair", "all_pairs"}
    interior_point : bool
        Take every step of update III by the interior point method.
    remember : bool
        Store the step of every row (rows x labels floats), which later passes and certificates need.
    random_state : RandomState
        Order of the rows in later passes.
    most_rounds, most_entries : int
        Most rounds, and entries of X in them, between two checks of the clock and of Ctrl-C.
    renewal : int
        Recompute the weights from the steps after this many passes, which removes accumulated rounding.
    """

    def __init__(
        self,
        problem: RankingProblem,
        state: RankingState,
        rows: Rows,
        relevant: Relevant,
        shapes: Shapes,
        *,
        name: str = "",
        update: str = "all_pairs",
        interior_point: bool = False,
        remember: bool = False,
        random_state: Any = None,
        most_rounds: int = 1 << 13,
        most_entries: int = 1 << 18,
        renewal: int = 32,
    ) -> None:
        self.problem, self.state, self.rows, self.shapes = problem, state, rows, shapes
        self.relevant = Relevant(readonly(relevant.start), readonly(relevant.labels))
        self.rule, self.interior = Rule(problem.gamma, problem.C, UPDATES[update]), interior_point
        self.name, self.random_state = name, random_state
        self.most_rounds, self.renewal = most_rounds, renewal
        self.records: list[np.ndarray] = []
        self.passes = 0
        self.best = BestWeights()
        state.allocate(rows, relevant)
        self.most_entries = min(most_entries, PRODUCTS // max(state.n_labels, 1))
        self._births = [state.n_rounds + row for row in first_rows(relevant, state.n_labels)]
        self.steps = self._no_steps() if remember else np.zeros((0, 0))

    def _no_steps(self) -> np.ndarray:
        """Return zero steps for all rows."""
        shape = self.rows.shape[0], self.state.n_labels
        try:
            return np.zeros(shape)
        except MemoryError:
            raise MemoryError(
                f"More than one pass stores the step of every row for every label, {shape[0]} x {shape[1]} "
                f"floats or {shape[0] * shape[1] / 2**27:.0f} GiB, more than the free memory; set max_iter=1."
            ) from None

    def learn(self, clock: Clock | None = None) -> int:
        """Run the online pass: predict, update, count. Returns the rounds done before the clock expired."""
        return sum(map(self._count, self._rounds(np.arange(self.rows.shape[0]), False, clock)))

    def _count(self, piece: tuple[np.ndarray, int]) -> int:
        """Count the rounds of a record, and the labels that are new in them."""
        (record, known), state = piece, self.state
        fresh = known - state.n_labels
        state.born += self._births[:fresh]
        del self._births[:fresh]
        state.n_labels = known
        state.tally(record)
        self.records.append(record[:, : loops.MASS].copy())
        return len(record)

    def _improve(self, clock: Clock) -> int:
        """Replace the steps of all rows by better ones; return the rounds done before the clock expired."""
        if self.passes % self.renewal == 0:
            self.state = self._renewed()
        done = 0
        for record, _ in self._rounds(self.random_state.permutation(self.rows.shape[0]), True, clock):
            self.state.dual += float(record[:, loops.GAIN].sum())
            done += len(record)
        return done

    def _move(self, clock: Clock) -> Progress:
        """Run one pass and certify it; `active` is the number of rounds."""
        done = self._improve(clock) if self.passes else self.learn(clock)
        self.passes += 1
        if not self.steps.size:
            return Progress(self.certify(), done, exact=True)
        self.best.offer(self._primal(self.state), self.state)
        return Progress(Certificate(self.best.primal, self.state.dual), done)

    def _evaluate(self) -> tuple[RankingState, Certificate]:
        """Return the state rebuilt from the stored steps, or that of the best pass, and its certificate.

        The dual is recomputed from the stored steps, or from the weights if no steps are stored.
        """
        state = self._renewed()
        certificate = Certificate(self._primal(state), state.dual)
        if not self.best.are_last and self.best.primal < certificate.primal:
            state, certificate = self.best.weights, Certificate(self.best.primal, state.dual)
        return state, certificate

    def _renewed(self) -> RankingState:
        """Return the state without the rounding accumulated in weights and dual."""
        if self.steps.size:
            state, conjugate = self.state.rebuilt(self.rows, self.steps)
            state.mass = 0.5 * float(np.abs(self.steps).sum())
        else:
            state = self.state.snapshot()
            conjugate = state.conjugate()
        state.dual = self.problem.dual(state.mass, conjugate)
        return state

    def _primal(self, state: RankingState) -> float:
        scores, born = state.latest_scores(self.rows), np.zeros(state.n_labels, np.int64)
        return self.problem.primal(state.complexity(), scores, self.relevant, born)

    def _rounds(
        self, order: np.ndarray, again: bool, clock: Clock | None
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Run the rounds of `order` in chunks; yield the record of each and the number of labels after it."""
        state, memory = self.state, Memory(self.steps, again)
        sizes = np.cumsum(self.rows.indptr[order + 1] - self.rows.indptr[order])
        start = 0
        while start < len(order) and not (start and clock is not None and clock.expired()):
            most = self.most_entries + (sizes[start - 1] if start else 0)
            stop = min(start + self.most_rounds, int(np.searchsorted(sizes, most, side="right")))
            piece = order[start : max(start + 1, stop)]
            record = np.zeros((len(piece), loops.N_RECORD))
            batch = state.make_batch(self.rows, self.relevant, self.shapes, piece)
            known = state.rounds(batch, self.rule, self.interior, state.n_labels, memory, record)
            state.n_steps += len(piece)
            start += len(piece)
            yield record, known


def first_rows(relevant: Relevant, known: int) -> list[int]:
    """Return the row in which each label from `known` on occurs for the first time."""
    fresh = np.flatnonzero(relevant.labels >= known)
    _, at = np.unique(relevant.labels[fresh], return_index=True)
    return (np.searchsorted(relevant.start, fresh[at], side="right") - 1).tolist()


def reorder(relevant: Relevant, order: np.ndarray) -> Relevant:
    """Return the relevant labels of the rows in another order."""
    sizes = np.diff(relevant.start)[order]
    start = np.concatenate([[0], np.cumsum(sizes)])
    shift = np.repeat(relevant.start[:-1][order] - start[:-1], sizes)
    return Relevant(start, relevant.labels[np.arange(start[-1]) + shift])
