"""Label ranking: what the competitor minimises, its dual, the weights that carry it, and its ascent.

With labels y, examples (x_t, Y_t), margin gamma and a regulariser F with conjugate G,

    P(w) = sum_y F(w_y) + C sum_t loss_t,    loss_t = max over r in Y_t, s not in Y_t of
                                                      [gamma - (<w_r, x_t> - <w_s, x_t>)]_+
    D    = gamma sum_t a_t - sum_y G(theta_y),   theta_y = sum_t alpha_ty x_t,   w_y = grad G(theta_y)

where alpha_t >= 0 on Y_t, <= 0 off it, sums to zero, and a_t, its sum over Y_t, is at most C.

| regulariser | F(w)                          | G(theta)                       | kappa(x)            |
|-------------|-------------------------------|--------------------------------|---------------------|
| squared     | 1/2 |w|^2                     | 1/2 |theta|^2                  | |x|^2               |
| entropy     | sum_j w_j log(n w_j), simplex | log sum_j e^theta_j - log n    | (max x - min x)^2/4 |

A mistake raises D by at least lambda = gamma C - kappa C^2, and D <= P(w) for every w, hence
lambda M <= P(w): the number of mistakes M is bounded by any competitor's objective. C is the
paper's own, which is scikit-learn's: it multiplies the sum of the losses.

One pass over the rows is the online algorithm: predict, then ascend the dual with a step of the
example at hand. Further passes take an example's old step out and put a better one in, which is
block-coordinate ascent on the dual; with update "all_pairs" they converge to the optimum. The
stopping rule is the relative gap (P - D) / |P|, with D recomputed from the stored steps and P
from the weights that these steps give. The other two updates never decrease the dual either,
but need not reach the optimum. The state under the entropy is in `entropy`.
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


# What a state holds, whatever the regulariser.
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


def check_room(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: the arrays have room for the columns and labels in use."""
    if sizes["room_columns"] < sizes["used"] or sizes["room_labels"] < sizes["n_classes"]:
        raise ValueError("its weights have no room for its columns and labels")
    _, rounds, growth = state["threshold"]
    if not (rounds >= 0 and growth in (1.0, 2.0)):
        raise ValueError("its threshold is no average")
    if state.get("rarity") and state["counts"].max(initial=0) > state["counted"]:
        raise ValueError("its columns occurred in more rounds than there were")


@dataclass(frozen=True)
class RankingProblem:
    """The margin and C of a competitor, whatever its regulariser."""

    gamma: float
    C: float

    def losses(self, scores: np.ndarray, relevant: Relevant, born: np.ndarray) -> np.ndarray:
        """The loss (1) of every row over the labels that were known in its round."""
        out = np.empty(len(scores))
        loops.hinge_losses(readonly(scores), relevant, readonly(born), self.gamma, out)
        return out

    def primal(self, complexity: float, scores: np.ndarray, relevant: Relevant, born: np.ndarray) -> float:
        """P of (3): the complexity sum_y F(w_y) of weights plus C times the losses of their scores."""
        return complexity + self.C * float(self.losses(scores, relevant, born).sum())

    def dual(self, mass: float, conjugate: float) -> float:
        """D of (5), in the reduced variables of (28): gamma times the mass less sum_y G(theta_y)."""
        return self.gamma * mass - conjugate

    def smallest_gain(self, kappa: float) -> float:
        """lambda of Lemma 1: what a mistake adds to the dual at least."""
        return self.gamma * self.C - kappa * self.C**2

    def mistake_bound(self, primal: float, kappa: float) -> float:
        """The largest M that (2) allows: the objective of a competitor over what a mistake adds."""
        gain = self.smallest_gain(kappa)
        return primal / gain if gain > 0 else math.inf


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

    def own(self) -> None:
        """Copy the arrays that cannot be written to, as those of a model mapped from a file."""
        for name, value in list(vars(self).items()):
            if isinstance(value, np.ndarray) and not value.flags.writeable:
                setattr(self, name, np.array(value))

    def slots_for(self, rows: Rows) -> np.ndarray:
        """Slots of the columns of X, which may be more than were ever met."""
        extra = rows.shape[1] - len(self.slots)
        return readonly(np.append(self.slots, np.full(extra, -1, np.int32)) if extra > 0 else self.slots)

    def weigh(self, rows: Rows) -> Rows:
        """Rows as a round would see them now: as they are."""
        return rows

    def meet(self, rows: Rows) -> Rows:
        """The rows of the next rounds as these see them: as they are."""
        return rows

    def replay(self, rows: Rows) -> Rows:
        """The rows of the whole stream as the rounds saw them: as they are."""
        return rows

    def survey(self, rows: Rows) -> Shapes:
        """What the rounds need to know of every row beforehand: nothing."""
        return NO_SHAPES

    def admit(self, rows: Rows, relevant: Relevant) -> None:
        """Make room for the columns and labels of a chunk before its rounds begin."""
        n_labels = int(relevant.labels.max(initial=-1)) + 1
        if rows.dense and rows.shape[0]:
            occurring = readonly(np.flatnonzero(rows.matrix.any(axis=0)).astype(np.uint32))
        else:
            occurring = rows.indices if not rows.dense else rows.indices[:0]
        before = self.used
        used = loops.assign_slots(occurring, self.slots, before)
        try:
            self._reserve(used, n_labels)
        except BaseException:  # no memory: these columns have not been met
            self.slots[self.slots >= before] = -1
            raise
        self.used = used
        if used > before:
            self._enter_columns(before)

    def lay_out(self, rows: Rows, relevant: Relevant, shapes: Shapes, order: np.ndarray) -> Batch:
        """The rows of `order` as slots and scaled values, for the compiled rounds."""
        size = int((rows.indptr[order + 1] - rows.indptr[order]).sum())
        start, cols, vals = np.empty(len(order) + 1, np.int64), np.empty(size, np.uint32), np.empty(size)
        order = readonly(order)
        loops.gather_rows(rows.flat, order, self.slots, shapes, start, cols, vals)
        return Batch(start, cols, vals, order, relevant, shapes, self.n_steps)

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
    def rounds(
        self, batch: Batch, rule: Rule, interior: bool, known: int, memory: Memory, record: np.ndarray
    ) -> int:
        """Run the rounds of a batch, update III by interior points if asked to.

        Returns the number of labels known afterwards.
        """

    @abstractmethod
    def latest_scores(self, rows: Rows) -> np.ndarray:
        """Scores of every row for every known label, by the weights as they are."""

    def scores(self, rows: Rows) -> np.ndarray:
        """The scores that predict."""
        return self.latest_scores(rows)

    @abstractmethod
    def weights(self) -> np.ndarray:
        """The weights that predict, labels x columns."""

    @abstractmethod
    def conjugate(self) -> float:
        """sum_y G(theta_y), with G the conjugate (4) of F."""

    @abstractmethod
    def complexity(self) -> float:
        """sum_y F(w_y) of the weights as they are."""

    @staticmethod
    @abstractmethod
    def complexity_of(W: np.ndarray) -> float:
        """sum_y F(w_y) of a competitor."""

    def snapshot(self) -> Self:
        """The state as it is, to which later rounds do nothing; large arrays are shared, not copied."""
        other = copy(self)
        other.threshold, other.born = self.threshold.copy(), list(self.born)
        return other

    @abstractmethod
    def rebuilt(self, rows: Rows, steps: np.ndarray) -> tuple[Self, float]:
        """A state with the weights of the stored steps, and its sum_y G; this one stays as it is."""

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


def grown(array: np.ndarray | None, shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """A larger array of zeros with the old one in its corner."""
    new = np.zeros(shape, dtype)
    if array is not None:
        new[: array.shape[0], : array.shape[1]] = array
    return new


@dataclass
class SquaredState(RankingState):
    """Weights under the squared norm (w = theta), and their weighted sum when averaging.

    With `rarity` every row is weighed before it is met: an entry by the logarithm of how rare its
    column was in the rounds before (`smooth`: by one more, `damped`: by the root), the row to unit length.
    `counts` holds in how many of the `counted` rounds each column occurred.
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
            "W": floats("room_columns", "room_labels", packed=True),
            "weighted": floats("room_columns", "room_labels", dtypes=DOUBLE, packed=True, when="average"),
        },
        check_room,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts = np.zeros(self.n_features if self.rarity else 0, np.int64)
        if self.average:
            # The threshold is an average with equal weights then, as the weights are.
            self.threshold[2] = 1.0

    def weigh_from_now(self, rarity: bool, damped: bool, smooth: bool) -> None:
        """Weigh the rows to come; those before, if any, had no entries."""
        self.rarity, self.damped, self.smooth = rarity, damped, smooth
        self.counts, self.counted = np.zeros(self.n_features, np.int64), self.n_rounds

    def widen(self, n_features: int) -> None:
        """Let X have more columns than before; they start at weight zero and were never met."""
        super().widen(n_features)
        if self.rarity:
            self.counts = np.append(self.counts, np.zeros(self.n_features - len(self.counts), np.int64))

    def weigh(self, rows: Rows) -> Rows:
        """Rows as a round would see them now; they are not counted."""
        return self._weighed(rows, learn=False) if self.rarity else rows

    def meet(self, rows: Rows) -> Rows:
        """The rows of the next rounds as these see them, each counted for those after it."""
        return self._weighed(rows, learn=True) if self.rarity else rows

    def _weighed(self, rows: Rows, learn: bool) -> Rows:
        if not self.counts.flags.writeable:  # a model mapped from a file
            self.counts = self.counts.copy()
        values = np.empty(rows.data.shape, rows.data.dtype)
        self.counted = loops.weigh_rows(
            rows.flat, self.counts, self.counted, learn, float(self.smooth), self.damped, values
        )
        return rows.with_values(values)

    def rarities(self) -> np.ndarray:
        """By what the next row's entries would be multiplied, before the row is brought to unit length."""
        rarity = float(self.smooth) + np.log((2.0 + self.counted) / (1.0 + self.counts))
        return np.sqrt(rarity) if self.damped else rarity

    def replay(self, rows: Rows) -> Rows:
        """The rows of the whole stream as the rounds saw them, weighed from the start again."""
        fresh = SquaredState(
            self.n_features, self.dtype, rarity=self.rarity, damped=self.damped, smooth=self.smooth
        )
        return fresh.meet(rows)

    def _allocate(self, columns: int, labels: int) -> None:
        self.W = grown(getattr(self, "W", None), (columns, labels), self.dtype)
        shape = (columns, labels) if self.average else (0, 0)
        self.weighted = grown(getattr(self, "weighted", None), shape, np.float64)

    @property
    def _room(self) -> tuple[int, int]:
        return self.W.shape

    def _enter_columns(self, before: int) -> None:
        """Nothing to do: fresh slots hold the zero weights of fresh columns."""

    def rounds(
        self, batch: Batch, rule: Rule, interior: bool, known: int, memory: Memory, record: np.ndarray
    ) -> int:
        """Run the rounds of a batch; returns the number of labels known afterwards."""
        weights, work = SquaredWeights(self.W, self.weighted), Work.of(batch, 0, self.W.shape[1])
        log, asked = Log(self.threshold, record), True if interior else None
        return loops.rounds(batch, weights, None, asked, rule, known, memory, log, work)

    def latest_scores(self, rows: Rows) -> np.ndarray:
        """Scores of every row for every known label, by the weights as they are."""
        return self._score(rows, self.W)

    def scores(self, rows: Rows) -> np.ndarray:
        """The scores that predict: by the average of the weights over all rounds, if averaging."""
        plain = self.latest_scores(rows)
        if not (self.average and self.n_steps):
            return plain
        return ((self.n_steps + 1) * plain - self._score(rows, self.weighted)) / self.n_steps

    def _score(self, rows: Rows, W: np.ndarray) -> np.ndarray:
        out = np.empty((rows.shape[0], self.n_labels))
        loops.score_rows(rows.flat, self.slots_for(rows), readonly(W), np.zeros(self.n_labels), out)
        return out

    def weights(self) -> np.ndarray:
        """The weights that predict, labels x columns."""
        W = self.W[: self.used, : self.n_labels]
        if self.average and self.n_steps:
            late = self.weighted[: self.used, : self.n_labels]
            W = ((self.n_steps + 1) * W.astype(np.float64) - late) / self.n_steps
        dense = np.zeros((self.n_labels, self.n_features), W.dtype)
        seen = self.slots >= 0
        dense[:, seen] = W[self.slots[seen]].T
        return dense

    def conjugate(self) -> float:
        """sum_y G(theta_y), with G = |theta|^2 / 2 the conjugate (4) of F."""
        return 0.5 * float(np.sum(np.square(self.W, dtype=np.float64)))

    complexity = conjugate

    def rebuilt(self, rows: Rows, steps: np.ndarray) -> tuple[Self, float]:
        """A state with the weights of the stored steps, and its sum_y G in float64."""
        exact = np.zeros(self.W.shape)
        loops.add_steps(rows.flat, readonly(steps), self.n_labels, exact, self.slots)
        other = self.snapshot()
        other.W, other.weighted = exact.astype(self.W.dtype, copy=False), self.weighted.copy()
        return other, 0.5 * float(np.sum(np.square(exact)))

    @staticmethod
    def complexity_of(W: np.ndarray) -> float:
        """sum_y F(w_y) of a competitor."""
        return 0.5 * float(np.sum(np.square(W)))


# Products of an entry of X with a label between two looks at the clock.
PRODUCTS = 1 << 23


class OnlineRanking(Evaluated):
    """Passes over rows and their labels: the first in the order of the rows, later ones in random order.

    The rounds move `state`. `rows` are as the rounds see them (`RankingState.meet`), `shapes` is what
    `RankingState.survey` says of them. With `remember` the step of every row is kept (rows x labels),
    which later passes need to take it out again and certificates to recompute the dual.
    `interior_point` takes every step of update III by the paper's method; `name` says how steps are found.
    Between two looks at the clock and at Ctrl-C lie at most `most_rounds` rounds with `most_entries` entries
    of X, each of which meets every label, in `PRODUCTS` products. After `renewal` passes the weights are
    computed anew from the steps, which ends the rounding that gathers in them.
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
        state.admit(rows, relevant)
        self.most_entries = min(most_entries, PRODUCTS // max(state.n_labels, 1))
        self._births = [state.n_rounds + row for row in first_rows(relevant, state.n_labels)]
        self.steps = self._no_steps() if remember else np.zeros((0, 0))

    def _no_steps(self) -> np.ndarray:
        """The zero step of every row."""
        shape = self.rows.shape[0], self.state.n_labels
        try:
            return np.zeros(shape)
        except MemoryError:
            raise MemoryError(
                f"More than one pass keeps the step of every row for every label, {shape[0]} x {shape[1]} "
                f"floats or {shape[0] * shape[1] / 2**27:.0f} GiB, which cannot be had; set max_iter=1."
            ) from None

    def learn(self, clock: Clock | None = None) -> int:
        """The online pass: predict, update and count; returns the rounds before the clock ran out."""
        return sum(map(self._count, self._rounds(np.arange(self.rows.shape[0]), False, clock)))

    def _count(self, piece: tuple[np.ndarray, int]) -> int:
        """Count the rounds of a record and the labels that they brought."""
        (record, known), state = piece, self.state
        fresh = known - state.n_labels
        state.born += self._births[:fresh]
        del self._births[:fresh]
        state.n_labels = known
        state.tally(record)
        self.records.append(record[:, : loops.MASS].copy())
        return len(record)

    def improve(self, clock: Clock) -> int:
        """Replace the steps of all rows by better ones; returns the rounds before the clock ran out."""
        if self.passes % self.renewal == 0:
            self.state = self._renewed()
        done = 0
        for record, _ in self._rounds(self.random_state.permutation(self.rows.shape[0]), True, clock):
            self.state.dual += float(record[:, loops.GAIN].sum())
            done += len(record)
        return done

    def _move(self, clock: Clock) -> Progress:
        """One pass and the certificate after it; `active` counts the rounds."""
        done = self.improve(clock) if self.passes else self.learn(clock)
        self.passes += 1
        if not self.steps.size:
            return Progress(self.certify(), done, exact=True)
        self.best.offer(self._primal(self.state), self.state)
        return Progress(Certificate(self.best.primal, self.state.dual), done)

    def _evaluate(self) -> tuple[RankingState, Certificate]:
        """The state with the weights of the stored steps, or those of the best pass, and its certificate.

        The dual is recomputed from the stored steps, else from the weights.
        """
        state = self._renewed()
        certificate = Certificate(self._primal(state), state.dual)
        if not self.best.are_last and self.best.primal < certificate.primal:
            state, certificate = self.best.weights, Certificate(self.best.primal, state.dual)
        return state, certificate

    def _renewed(self) -> RankingState:
        """The state without the rounding that gathered in weights and dual."""
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
        """Run the rounds of `order` in pieces, as each is laid out in memory of its own.

        Yields the record of every piece and the number of labels known after it.
        """
        state, memory = self.state, Memory(self.steps, again)
        sizes = np.cumsum(self.rows.indptr[order + 1] - self.rows.indptr[order])
        start = 0
        while start < len(order) and not (start and clock is not None and clock.expired()):
            most = self.most_entries + (sizes[start - 1] if start else 0)
            stop = min(start + self.most_rounds, int(np.searchsorted(sizes, most, side="right")))
            piece = order[start : max(start + 1, stop)]
            record = np.zeros((len(piece), loops.N_RECORD))
            batch = state.lay_out(self.rows, self.relevant, self.shapes, piece)
            known = state.rounds(batch, self.rule, self.interior, state.n_labels, memory, record)
            state.n_steps += len(piece)
            start += len(piece)
            yield record, known


def first_rows(relevant: Relevant, known: int) -> list[int]:
    """Row in which each label from `known` on occurs for the first time."""
    fresh = np.flatnonzero(relevant.labels >= known)
    _, at = np.unique(relevant.labels[fresh], return_index=True)
    return (np.searchsorted(relevant.start, fresh[at], side="right") - 1).tolist()


def reordered(relevant: Relevant, order: np.ndarray) -> Relevant:
    """The relevant labels of the rows in another order."""
    sizes = np.diff(relevant.start)[order]
    start = np.concatenate([[0], np.cumsum(sizes)])
    shift = np.repeat(relevant.start[:-1][order] - start[:-1], sizes)
    return Relevant(start, relevant.labels[np.arange(start[-1]) + shift])
