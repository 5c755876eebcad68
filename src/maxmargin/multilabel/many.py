"""Many labels that are not coupled: each is solved on the few samples near it, and certified on all.

Problem, dual and gap as in `problem`, without a prior: labels share nothing but X. With the squared hinge
loss, c_il max(0, m_il - y_il f_il)^2, the dual variables have no upper bound and

    dual     D(alpha) = <m, alpha> - 1/2 <A, F> - sum_il alpha_il^2 / (4 c_il).

y is sparse and stays so; nothing is as large as n_samples x n_labels.

**Members.** Of a label's samples only its positives and the negatives near its margin have a dual variable
of their own. After each ascent on the members (`many_loops`) one look at all samples, for 64 labels
at once (`near_loops`), gives the primal objective of the label exactly, and the negatives that violate its
margin most become members; those without alpha that no longer violate it leave. The first ones are found
by a look at what samples share with the positives of the label, above all rare features. The bias that is
stored is the best one not above that of the ascent. The label is done when P - D <= tol P; so the
sum over labels is, and neither the order of labels nor the size of a block changes any of them.

**The background.** A label with few positives needs negatives for its bias alone: it wants
sum_i alpha_i to be about the same on both sides, spread over samples so that X'alpha is small. All
labels want the same, so it is found once: lambda >= 0 with sum 1 and a short m = X'lambda. The samples that
are no members have alpha_i = u lambda_i, one number u for each label; a sample that becomes a member
takes its part of u along (q collects these parts, so that the background of a label is m - q). Where a
look finds next to no violators and the gap is still there, the background of the label dissolves into
members, its largest parts first.

**Culling.** Weights up to `cull` are dropped, and the primal objective is that of the weights that are
left; where that adds too much to the part of the members, a label takes a quarter of its `cull` until it does
not.

**The rescue.** Passes over members take long where a few features are far larger than others. Where features
are few enough, a label that is not done after as many looks as Newton's method would cost is left to that,
which starts from its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.rows import RowArrays, Rows, readonly
from maxmargin.core.threads import aligned_zeros, run_threads
from maxmargin.multilabel import many_loops as loops
from maxmargin.multilabel.many_loops import LANES, LEVELS, STRETCH, climb
from maxmargin.multilabel.near_loops import judge, look, settle

# What a sample of k features shares with positives counts k to the power of minus this. Of the support
# vectors of titles it finds 77 % instead of 75 %, in rows of 8 words instead of 18.
TERSE = 0.2
# Passes that find the background, and random numbers for the orders, a power of two.
SPREAD_PASSES, N_DRAWS = 100, 1 << 13
# Blocks of an epoch for each of several threads, so that none waits long for the others.
SHARE = 4


@dataclass(frozen=True)
class BlockRule:
    """How the work on a label is cut.

    Parameters
    ----------
    block : int
        Labels of a block, the unit of threads and epochs.
    common : int
        What a feature of so many samples says of those that share it with a positive counts half.
    candidates, least : int
        Samples that a label begins with for each positive one, and besides; so many violators become
        members at a time, or as many as there are members.
    passes : int
        Most passes over the members between two looks.
    begin : float
        Part of the loss at rest that the first ascent may leave as a gap.
    listed, step : int
        Where more samples would violate a margin than this number for each that may become a member, as every
        `step`-th sample says, the bias is lowered before the look.
    tries, tries_squared : int
        Looks that a label has at least before another method takes over, and all that it has with the squared
        hinge loss (3 to 10 are as good on enron, delicious, bibtex and corel5k, 30 take up to twice as long).
    newton : float
        One look costs as much as that method where X'X takes so many times the products of X (estimated from
        times on enron at C = 100).
    """

    block: int = 512
    common: int = 100
    candidates: int = 20
    least: int = 128
    passes: int = 60
    begin: float = 0.05
    listed: int = 4
    step: int = 64
    tries: int = 30
    tries_squared: int = 10
    newton: float = 12.0

    def patience_of(self, problem: ManyM3L) -> int:
        """Looks that a label has before Newton's method on all samples and features would have cost less."""
        if problem.squared:
            return self.tries_squared
        (n, _), d, entries = problem.shape, problem.n_features + 1, max(problem.rows.data.size, 1)
        return max(self.tries, int(n * d * d / (self.newton * entries)))

    def told(self, tol: float, cull: float, max_rounds: int) -> loops.Rule:
        """What the loops are told."""
        given = (getattr(self, name) for name in loops.Rule._fields[3:])
        return loops.Rule(float(tol), float(cull), int(max_rounds), *given)


class ManySolution(NamedTuple):
    """Weights (sparse, labels are columns, the bias last) and what certifies every label."""

    weights: sp.csr_array | sp.csc_array
    primal: np.ndarray
    dual: np.ndarray


class Answer(NamedTuple):
    """Weights of one label, the bias last, and the two objectives that certify them."""

    weights: np.ndarray
    primal: float
    dual: float


class OneLabel(Protocol):
    """A method that solves one label by itself, from some weights on; None where there was no time for it.

    `stuck` says what to change where rounding keeps it from the end.
    """

    stuck: str

    def solve(self, l: int, clock: Clock, start: np.ndarray) -> Answer | None: ...


@dataclass(frozen=True)
class ManyM3L:
    """Labels that are not coupled, with y as sparse rows of those that are on.

    The box of an entry is weight[i] * upper[side, l], its margin is margin[l]; `squared` takes the
    squared hinge loss. `columns` says which ones of the user's features the rows hold, None all.
    """

    rows: Rows
    on: sp.csr_array
    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    bias: float = 1.0
    squared: bool = False
    columns: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Samples, labels."""
        n, L = self.on.shape
        return n, L

    @property
    def n_features(self) -> int:
        return self.rows.shape[1]

    @cached_property
    def squares(self) -> np.ndarray:
        """Squared norm of every sample, without the bias."""
        return readonly(self.rows.squared_norms())

    @cached_property
    def costs(self) -> loops.LabelCosts:
        weight, upper, margin = (readonly(a) for a in (self.weight, self.upper, self.margin))
        return loops.LabelCosts(weight, upper, margin, self.bias, self.squared)

    def at_rest(self) -> tuple[np.ndarray, np.ndarray]:
        """A bias for every label that keeps all samples off, and the primal objective that has alone."""
        on = self.on.T @ self.weight
        h = np.array([[0.0], [2.0]]) * self.margin if self.bias else np.tile(self.margin, (2, 1))
        loss = self.upper * h ** (2 if self.squared else 1)
        constant = np.where(self.upper.any(axis=0), -self.margin / self.bias if self.bias else 0.0, 0.0)
        return constant, 0.5 * constant**2 + loss[1] * on + loss[0] * (self.weight.sum() - on)

    def background(self, n_passes: int) -> loops.Background:
        """The shared direction of samples that are no members; nothing without a bias to balance."""
        n = self.shape[0]
        share, w = np.zeros(n), np.zeros(self.n_features + 1)
        if self.bias:
            loops.spread(self.rows.flat, self.squares, readonly(self.weight), n_passes, share, w)
        total = float(share.sum())
        if total > 0:
            share /= total
            w /= total
        m = w[:-1]
        carrying = np.flatnonzero(share)
        boxes, parts = self.weight[carrying], share[carrying]
        products = np.asarray(self.rows.matrix @ m, dtype=np.float64)
        return loops.Background(
            readonly(share),
            readonly(m),
            readonly(products),
            float(m @ m),
            float(np.min(boxes / parts)) if parts.size else 0.0,
            float(np.sum(parts**2 / (2 * boxes))),
            readonly(carrying[np.argsort(-parts, kind="stable")]),
            readonly(np.argsort(-np.abs(m), kind="stable")),
        )

    def samples(self, common: int, step: int, m: np.ndarray) -> loops.Samples:
        """X with its features by frequency; the more samples than `common` share one, the less it says."""
        X, squares = self.rows.matrix, self.squares
        (n, D), lengths = self.rows.shape, np.diff(self.rows.indptr)
        longest, norm = int(lengths.max(initial=0)), 1e-30 + float(np.sqrt(squares.max(initial=0.0)))
        terse = readonly(np.maximum(lengths, 1.0) ** -TERSE)
        slack, spread = 2.0**-22 * (longest + 4) * norm, 0.51 * float(np.sqrt(longest)) * norm
        if self.rows.dense:
            flat, few = self.rows.flat, Rows.of(X[::step]).flat
            names, rarity = readonly(np.arange(D)), readonly(np.ones(D))
            seen = D, flat.indptr[1:], few, few.indptr[1:]
            return loops.Samples(flat, names, squares, rarity, terse, *seen, slack, spread)
        counts = np.bincount(X.indices, minlength=D)
        # Last those of one sample that are not in m.
        names = np.argsort(-(counts + (m != 0)), kind="stable")
        n_seen = int(np.count_nonzero((counts > 1) | (m != 0)))
        place = np.empty(D, X.indices.dtype)
        place[names] = np.arange(D)
        sorted_ = sp.csr_array((X.data.copy(), place[X.indices], X.indptr), shape=X.shape)
        sorted_.sort_indices()
        unseen = np.searchsorted(X.indptr, np.flatnonzero(sorted_.indices >= n_seen), side="right") - 1
        kept = lengths - np.bincount(unseen, minlength=n)
        flat, few = padded(sorted_), padded(sorted_[::step])
        seen = n_seen, readonly(flat.indptr[:-1] + kept), few, readonly(few.indptr[:-1] + kept[::step])
        rarity = readonly(1.0 / (1.0 + counts[names] / common))
        return loops.Samples(flat, readonly(names), squares, rarity, terse, *seen, slack, spread)

    def room(self, samples: loops.Samples) -> loops.Room:
        """Memory for one thread; what is not used is never touched."""
        n, D = self.shape[0], self.n_features
        dense = self.rows.dense
        data = np.empty_like(samples.rows.data)
        indices = np.arange(D, dtype=np.uint32) if dense else np.empty(data.size, np.uint32)
        every = np.arange(D + 1, dtype=np.int32)
        place = every[:D].copy()
        if not dense:
            place[loops.COMMON :] = -1
        return loops.Room(
            alpha=np.empty(n),
            own=np.empty(n),
            box=np.empty(n),
            product=np.empty(n),
            turn=np.empty(n, np.int64),
            local=RowArrays(data, indices, np.zeros(n + 1, np.int64), np.int64(dense)),
            marks=np.zeros(n, np.bool_),
            place=place,
            features=every,
            w=np.zeros(D + 1),
            q=np.zeros(D + 1),
            kept=np.zeros(D + 1),
            v=np.zeros(D + 1),
            near=np.empty(n, np.int64),
            excess=np.empty(n),
            cost=np.empty(n),
            bucket=np.empty(LEVELS, np.int64),
            state=np.zeros(4),
        )

    def lanes(self, samples: loops.Samples) -> loops.Lanes:
        """Free lanes; of what depends on the number of samples only what is used is ever touched."""
        (n, _), D, K = self.shape, self.n_features, len(LANES)
        whole, real = np.zeros((4, K), np.int64), np.zeros((8, K))
        return loops.Lanes(
            label=np.full(K, -1),
            turns=whole[0],
            n_on=whole[1],
            size=whole[2],
            members=np.empty((K, n), np.int64),
            alpha=np.empty((K, n)),
            short=np.empty((K, n)),
            u=real[0],
            apart=np.zeros(K, np.bool_),
            cull=real[1],
            target=real[2],
            dual=real[3],
            primal=real[4],
            done=np.zeros(K, np.bool_),
            half=real[5],
            bias=real[6],
            n_kept=whole[3],
            features=np.empty((K, D + 1), np.int32),
            values=np.empty((K, D + 1)),
            unit=real[7],
            weights=aligned_zeros(samples.n_seen + 1, K, np.int16),
            limit=np.full(K, np.inf, np.float32),
            found=np.zeros(K, np.int64),
            near=np.empty((K, n + 1), np.int32),
            score=np.empty((K, n + 1), np.float32),
            stretch=np.empty((STRETCH, K), np.float32),
            passing=np.empty(STRETCH, np.uint64),
        )


def cull_weights(
    w: np.ndarray,
    primal: float,
    dual: float,
    cull: float,
    tol: float,
    primal_of: Callable[[np.ndarray], float],
) -> tuple[np.ndarray, float]:
    """The weights of a label without those up to `cull`, or less where the gap needs them, and their P."""
    while cull > 0.0:
        kept = np.where(np.abs(w) > cull, w, 0.0)
        kept[-1] = w[-1]
        found = primal_of(kept)
        if found - dual <= tol * found:
            return kept, found
        cull = 0.25 * cull if cull > 1e-6 else 0.0
    return w, primal


def padded(X: sp.csr_array) -> RowArrays:
    """Rows that are filled up with zeros to a multiple of four."""
    lengths = np.diff(X.indptr).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(-(-lengths // 4) * 4)])
    at = np.arange(X.indices.size) + np.repeat(indptr[:-1] - X.indptr[:-1], lengths)
    data, indices = np.zeros(indptr[-1], X.dtype), np.zeros(indptr[-1], np.uint32)
    data[at], indices[at] = X.data, X.indices
    return RowArrays(readonly(data), readonly(indices), readonly(indptr), np.int64(0))


def by_label(on: sp.csr_array) -> RowArrays:
    """The samples of every label, as rows without values."""
    columns = on.tocsc()
    indices, indptr = columns.indices.astype(np.int64), columns.indptr.astype(np.int64)
    return RowArrays(readonly(np.empty(0)), readonly(indices), readonly(indptr), np.int64(0))


class Kept(NamedTuple):
    """Weights of some labels: how many each has, their features and values."""

    counts: np.ndarray
    features: np.ndarray
    values: np.ndarray


# Features, by frequency, and values of the weights of some labels, the bias last.
Weights = dict[int, tuple[np.ndarray, np.ndarray]]


def packed(weights: Weights, names: np.ndarray) -> Kept:
    """The weights of a block, one label after the other, by the names of their features in X."""
    features, values = (np.concatenate(arrays) for arrays in zip(*weights.values(), strict=True))
    return Kept(np.array([len(part[0]) for part in weights.values()]), names[features], values)


def by_feature(parts: list[Kept], shape: tuple[int, int]) -> sp.csr_array:
    """The weights of all parts, labels one after the other, as rows of features."""
    counts = sum(np.bincount(part.features, minlength=shape[0]) for part in parts)
    total = int(np.sum(counts))
    # Small enough numbers keep the labels as small as they are.
    small = np.int32 if total < 2**31 else np.int64
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(small)
    labels, values, free, first = np.empty(total, small), np.empty(total), indptr[:-1].copy(), 0
    for part in parts:
        loops.sow(*part, first, free, labels, values)
        first += len(part.counts)
    return sp.csr_array((values, labels, indptr), shape=shape)


class LabelBlocks:
    """The solver of `ManyM3L`: some blocks of labels an epoch, each label until it is certified.

    Parameters
    ----------
    problem : ManyM3L
    tol : float
        The relative gap that every label reaches.
    rng : numpy.random.RandomState
        Draws the orders of members.
    n_threads : int, default=1
    cull : float, default=0.0
        Largest weight that may be dropped.
    max_rounds : int, default=1000
        Most looks at all samples for a label.
    rescue : function without arguments, default=None
        Makes the method for labels that are not done when that method would have cost less.
    rule : BlockRule
    """

    def __init__(
        self,
        problem: ManyM3L,
        *,
        tol: float,
        rng: np.random.RandomState,
        n_threads: int = 1,
        cull: float = 0.0,
        max_rounds: int = 1000,
        rescue: Callable[[], OneLabel] | None = None,
        rule: BlockRule | None = None,
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        self.rule = BlockRule() if rule is None else rule
        L = problem.shape[1]
        self.draws = readonly(rng.randint(0, 2**32, N_DRAWS, dtype=np.uint32))
        background = problem.background(SPREAD_PASSES)
        self.samples = problem.samples(self.rule.common, self.rule.step, background.m)
        m = readonly(background.m[self.samples.names])
        largest = readonly(np.argsort(-np.abs(m), kind="stable"))
        self.background = background._replace(m=m, order=largest)
        self.on = by_label(problem.on)
        self.names = np.append(self.samples.names, problem.n_features).astype(np.int32)
        patience = max_rounds if rescue is None else min(self.rule.patience_of(problem), max_rounds)
        self.told = self.rule.told(tol, cull, patience)
        self.build = rescue if patience < max_rounds else None
        self.rescue: OneLabel | None = None
        self.constant, self.primal = problem.at_rest()
        self.dual = np.zeros(L)
        self.blocks = [np.arange(a, min(a + self.rule.block, L)) for a in range(0, L, self.rule.block)]
        self.batch = 1 if n_threads == 1 else n_threads * SHARE
        self.done: list[Kept | None] = [None] * len(self.blocks)
        self.desks: list[tuple[loops.Room, loops.Lanes]] = []
        self.next = 0

    @property
    def n_epochs(self) -> int:
        """Epochs that all blocks take."""
        return -(-len(self.blocks) // self.batch)

    def epoch(self, clock: Clock) -> Progress:
        batch = range(self.next, min(self.next + self.batch, len(self.blocks)))
        found = run_threads(lambda b: self._block(b, clock), batch, self.n_threads)
        self._rescue(found, clock)
        for b, kept in zip(batch, found, strict=True):
            self.done[b] = packed(kept, self.names)
        self.next = batch.stop
        certificate = self.certify()
        over, close = self.next == len(self.blocks), certificate.gap <= self.tol
        stuck = self.rescue.stuck if self.rescue and over and not close else ""
        visited = int(sum(len(self.blocks[b]) for b in batch))
        return Progress(certificate, visited, exact=True, done=over and close, stuck=stuck)

    def certify(self) -> Certificate:
        return Certificate(float(self.primal.sum()), float(self.dual.sum()))

    def solution(self) -> ManySolution:
        parts = [
            self._at_rest(labels) if kept is None else kept
            for labels, kept in zip(self.blocks, self.done, strict=True)
        ]
        shape = self.problem.n_features + 1, self.problem.shape[1]
        return ManySolution(by_feature(parts, shape), self.primal, self.dual)

    def _at_rest(self, labels: np.ndarray) -> Kept:
        """Labels that were not reached: all samples are off."""
        bias = np.full(len(labels), self.problem.n_features, np.int32)
        return Kept(np.ones(len(labels), np.int64), bias, self.constant[labels])

    def _rescue(self, found: list[Weights], clock: Clock) -> None:
        """Labels that were given up are solved by the other method; the better answer counts."""
        if self.build is None:
            return
        gap = self.primal - self.dual
        left = {l: kept for kept in found for l in kept if gap[l] > self.tol * self.primal[l]}
        if not left or clock.expired():
            return
        if self.rescue is None:
            self.rescue = self.build()
        rescue = self.rescue

        def solve(l: int) -> Answer | None:
            start, (features, values) = np.zeros(len(self.names)), left[l][l]
            start[self.names[features]] = values
            return rescue.solve(l, clock, start)

        answers = run_threads(solve, left, self.n_threads)
        for (l, kept), answer in zip(left.items(), answers, strict=True):
            if answer is not None and answer.primal - answer.dual < gap[l]:
                weights = answer.weights[self.names]
                features = np.append(np.flatnonzero(weights[:-1]), len(weights) - 1)
                kept[l] = features.astype(np.int32), weights[features]
                self.primal[l], self.dual[l] = answer.primal, answer.dual

    def _block(self, b: int, clock: Clock) -> Weights:
        """Solve the labels of one block, as far as there is time."""
        labels, problem = self.blocks[b], self.problem
        room, lanes = desk = self._desk()
        bias = np.array([problem.n_features], np.int32)
        kept = {l: (bias, self.constant[[l]]) for l in labels.tolist()}
        waiting, left = labels[::-1].tolist(), len(labels)
        while True:
            for k in np.flatnonzero(lanes.done | (lanes.label < 0)).tolist():
                if lanes.done[k]:
                    self._keep(lanes, k, kept)
                    left -= 1
                lanes.label[k], lanes.turns[k] = waiting.pop() if waiting else -1, -1
                lanes.done[k] = False
            if left == 0 or clock.expired():
                break
            self._turn(room, lanes)
        lanes.label[:] = -1
        self.desks.append(desk)
        return kept

    def _turn(self, room: loops.Room, lanes: loops.Lanes) -> None:
        """One turn of every lane: ascent, a look at some samples, one at all, and what they say."""
        samples, costs, rule = self.samples, self.problem.costs, self.told
        climb(samples, costs, self.background, self.on, rule, self.draws, room, lanes)
        look(samples.probe, samples.probe_stop, lanes)
        settle(samples, costs, rule, room, lanes, self.rule.step)
        look(samples.rows, samples.stop, lanes)
        judge(samples, costs, self.background, rule, room, lanes)

    def _desk(self) -> tuple[loops.Room, loops.Lanes]:
        """What a thread works in, free for the next block."""
        try:
            return self.desks.pop()
        except IndexError:
            return self.problem.room(self.samples), self.problem.lanes(self.samples)

    def _keep(self, lanes: loops.Lanes, k: int, kept: Weights) -> None:
        """Store the weights of the label in a lane, the bias last, and what certifies them."""
        l, last = int(lanes.label[k]), lanes.n_kept[k]
        lanes.features[k, last], lanes.values[k, last] = self.problem.n_features, lanes.bias[k]
        kept[l] = lanes.features[k, : last + 1].copy(), lanes.values[k, : last + 1].copy()
        self.primal[l], self.dual[l] = lanes.primal[k], lanes.dual[k]
