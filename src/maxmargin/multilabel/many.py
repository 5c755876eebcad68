"""Many labels that are not coupled: each is solved on the few samples near it, and certified on all.

Problem, dual and gap as in `problem`, without a prior: labels share nothing but X. With the squared hinge
loss, c_il max(0, m_il - y_il f_il)^2, the dual variables have no upper bound and

    dual     D(alpha) = <m, alpha> - 1/2 <A, F> - sum_il alpha_il^2 / (4 c_il).

y is sparse and stays so; nothing is as large as n_samples x n_labels.

**Members.** Of a label's samples only its positives and the negatives near its margin have a dual variable
of their own. After each ascent on the members one look at all samples, which bounds make cheap
(`near_loops`), gives the primal objective of the label exactly, and the negatives that violate its margin
most become members. The first ones are samples that share features with its positives. The label is done
when P - D <= tol P; so the sum over labels is, and neither the order of labels nor the size of a block
changes any of them.

**The background.** A label with few positives needs negatives for its bias alone: it wants
sum_i alpha_i to be about the same on both sides, spread over samples so that X'alpha is small. All
labels want the same, so it is found once: lambda >= 0 with sum 1 and a short m = X'lambda. The samples that
are no members have alpha_i = u lambda_i, one number u for each label; a sample that becomes a member
takes its part of u along (q collects these parts, so that the background of a label is m - q). Where a
look finds next to no violators and the gap is still there, the background of the label dissolves into
members, its largest parts first.

**Culling.** Weights up to `cull` are dropped, and the primal objective is that of the weights that are
left; where the gap is not small enough then, a label takes a quarter of its `cull` until it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.rows import RowArrays, Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.multilabel import many_loops as loops
from maxmargin.multilabel.near_loops import solve_labels


@dataclass(frozen=True)
class BlockRule:
    """How the work on a label is cut.

    Parameters
    ----------
    block, chunk : int
        Labels of a block, the unit of threads and epochs; labels between two looks at the clock.
    common : float
        Features in more than this part of the samples are common: bounded together, not one by one.
    candidates, least : int
        Samples that a label begins with for each positive one, and besides; so many violators become
        members at a time, or as many as there are members.
    passes : int
        Most passes over the members between two looks.
    begin : float
        Part of the loss at rest that the first ascent may leave as a gap.
    aim, follow, patience : float
        Later ones aim at this part of the gap that tol allows, or this part of the gap there is; where
        a look finds nothing that explains the gap, at this part of what they aimed at before.
    few, enough, scouting : int
        Fewer new violators do not explain the gap. More suspects than `enough` times those that can become
        members are not scored in the first `scouting` rounds.
    spread_passes, n_draws : int
        Passes that find the background; random numbers for the orders.
    """

    block: int = 512
    chunk: int = 16
    common: float = 0.1
    candidates: int = 20
    least: int = 64
    passes: int = 60
    begin: float = 0.002
    aim: float = 0.8
    follow: float = 0.01
    patience: float = 0.25
    few: int = 8
    enough: int = 3
    scouting: int = 4
    spread_passes: int = 100
    n_draws: int = 1 << 13

    def told(self, tol: float, cull: float, max_rounds: int) -> loops.Rule:
        """What the loops are told."""
        given = (getattr(self, name) for name in loops.Rule._fields[3:])
        return loops.Rule(float(tol), float(cull), int(max_rounds), *given)


class ManySolution(NamedTuple):
    """Weights (CSC, labels are columns, the bias last) and what certifies every label."""

    weights: sp.csc_array
    primal: np.ndarray
    dual: np.ndarray


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
            readonly(np.nextafter(products.astype(np.float32), np.float32(-np.inf))),
        )

    def samples(self, common: float) -> loops.Samples:
        """X by rows and columns; features in more than this part of the samples are common."""
        X, n = self.rows.matrix, self.shape[0]
        if self.rows.dense:
            columns = sp.csr_array((self.n_features, n), dtype=X.dtype)
            mixed, norms, longest = X.min(axis=0, initial=0) < 0, np.sqrt(self.squares), self.n_features
        else:
            columns = sp.csr_array(X.T.tocsr())
            counts = np.diff(columns.indptr)
            stays = np.repeat(counts <= common * n, counts)
            mixed = np.zeros(self.n_features, np.bool_)
            mixed[np.repeat(np.arange(self.n_features), counts)[columns.data < 0]] = True
            squares = np.where(stays, 0.0, np.square(columns.data, dtype=np.float64))
            norms = np.sqrt(np.bincount(columns.indices, squares, minlength=n))
            indptr = np.concatenate([[0], np.cumsum(np.where(counts <= common * n, counts, 0))])
            shape = columns.shape
            columns = sp.csr_array((columns.data[stays], columns.indices[stays], indptr), shape=shape)
            longest = int(np.diff(self.rows.indptr).max(initial=0))
        return loops.Samples(
            self.rows.flat,
            self.squares,
            Rows.of(columns).flat,
            readonly(mixed),
            readonly(np.nextafter(norms.astype(np.float32), np.float32(np.inf))),
            1.0 + 2.0**-22 * (longest + 2),
        )

    def room(self) -> loops.Room:
        """Memory for one thread; what is not used is never touched."""
        n, D = self.shape[0], self.n_features
        data = np.empty(self.rows.data.size, self.rows.data.dtype)
        dense = self.rows.dense
        indices = np.arange(D, dtype=np.uint32) if dense else np.empty(data.size, np.uint32)
        every = np.arange(D, dtype=np.int64)
        return loops.Room(
            members=np.empty(n, np.int64),
            alpha=np.empty(n),
            own=np.empty(n),
            box=np.empty(n),
            product=np.empty(n),
            turn=np.empty(n, np.int64),
            local=RowArrays(data, indices, np.zeros(n + 1, np.int64), np.int64(dense)),
            marks=np.zeros(n, np.bool_),
            place=every.copy() if dense else np.full(D, -1),
            features=every,
            w=np.zeros(D + 1),
            q=np.zeros(D + 1),
            kept=np.zeros(D + 1),
            v=np.zeros(D + 1),
            listed=np.empty(D, np.int64),
            bound=np.zeros(n, np.float32),
            near=np.empty(n, np.int64),
            excess=np.empty(n),
        )


def by_label(on: sp.csr_array) -> RowArrays:
    """The samples of every label, as rows without values."""
    columns = on.tocsc()
    indices, indptr = columns.indices.astype(np.int64), columns.indptr.astype(np.int64)
    return RowArrays(readonly(np.empty(0)), readonly(indices), readonly(indptr), np.int64(0))


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
        rule: BlockRule | None = None,
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        self.rule = BlockRule() if rule is None else rule
        L = problem.shape[1]
        self.draws = readonly(rng.randint(0, 2**32, self.rule.n_draws, dtype=np.uint32))
        self.background = problem.background(self.rule.spread_passes)
        self.samples = problem.samples(self.rule.common)
        self.on = by_label(problem.on)
        self.told = self.rule.told(tol, cull, max_rounds)
        self.constant, self.primal = problem.at_rest()
        self.dual = np.zeros(L)
        self.blocks = [np.arange(a, min(a + self.rule.block, L)) for a in range(0, L, self.rule.block)]
        self.done: list[Kept | None] = [None] * len(self.blocks)
        self.next = 0

    @property
    def n_epochs(self) -> int:
        """Epochs that all blocks take."""
        return -(-len(self.blocks) // self.n_threads)

    def epoch(self, clock: Clock) -> Progress:
        batch = range(self.next, min(self.next + self.n_threads, len(self.blocks)))
        for b, answer in zip(
            batch, run_threads(lambda b: self._block(b, clock), batch, self.n_threads), strict=True
        ):
            self.done[b] = answer
        self.next = batch.stop
        certificate = self.certify()
        over = self.next == len(self.blocks)
        visited = int(sum(len(self.blocks[b]) for b in batch))
        return Progress(certificate, visited, exact=True, done=over and certificate.gap <= self.tol)

    def certify(self) -> Certificate:
        return Certificate(float(self.primal.sum()), float(self.dual.sum()))

    def solution(self) -> ManySolution:
        parts = [
            self._at_rest(labels) if kept is None else kept
            for labels, kept in zip(self.blocks, self.done, strict=True)
        ]
        counts, features, values = Kept.joined(parts)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shape = self.problem.n_features + 1, self.problem.shape[1]
        return ManySolution(sp.csc_array((values, features, indptr), shape=shape), self.primal, self.dual)

    def _at_rest(self, labels: np.ndarray) -> Kept:
        """Labels that were not reached: all samples are off."""
        bias = np.full(len(labels), self.problem.n_features, np.int32)
        return Kept(np.ones(len(labels), np.int64), bias, self.constant[labels])

    def _block(self, b: int, clock: Clock) -> Kept:
        """Solve the labels of one block, as far as there is time."""
        labels, step = self.blocks[b], self.rule.chunk
        room = self.problem.room()
        parts, reached = [], 0
        while reached < len(labels) and not clock.expired():
            some = labels[reached : reached + step]
            starts, features, values, told = solve_labels(
                self.samples, self.problem.costs, self.background, self.on, some, self.told, self.draws, room
            )
            self.primal[some], self.dual[some] = told.T
            parts.append(Kept(np.diff(starts), features, values))
            reached += len(some)
        return Kept.joined([*parts, self._at_rest(labels[reached:])])


class Kept(NamedTuple):
    """Weights of some labels: how many each has, their features and values."""

    counts: np.ndarray
    features: np.ndarray
    values: np.ndarray

    @classmethod
    def joined(cls, parts: list[Kept]) -> Kept:
        """Those of all parts."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
