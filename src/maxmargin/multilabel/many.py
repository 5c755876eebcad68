"""Many labels that are not coupled: each is solved on the few samples near it, and certified on all.

Problem, dual and gap as in `problem`, without a prior: labels share nothing but X. With the squared hinge
loss, c_il max(0, m_il - y_il f_il)^2, the dual variables have no upper bound and

    dual     D(alpha) = <m, alpha> - 1/2 <A, F> - sum_il alpha_il^2 / (4 c_il).

y is sparse and stays so; nothing is as large as n_samples x n_labels.

**Members.** Of a label's samples only its positives and the negatives near its margin have a dual variable
of their own. They are found by scanning: after each ascent on the members one pass over all samples,
for some labels at once, gives the primal objective of the label exactly, and the negatives that violate
its margin most become members. The first ones are samples that share a rare feature with its positives.
The label is done when P - D <= tol P; so the sum over labels is, and neither the order of labels nor the
size of a block changes any of them.

**The background.** A label with few positives needs negatives for its bias alone: it wants
sum_i alpha_i to be about the same on both sides, spread over samples so that X'alpha is small. All
labels want the same, so it is found once: lambda >= 0 with sum 1 and a short m = X'lambda. The samples that
are no members have alpha_i = u lambda_i, one number u for each label; a sample that becomes a member
takes its part of u along (q collects these parts, so that the background of a label is m - q). Where a
scan finds next to no violators and the gap is still there, the background of the label dissolves into
members, its largest parts first.

**Culling.** Weights up to `cull` are dropped, and the primal objective is that of the weights that are
left; where the gap is not small enough then, a label halves its `cull` until it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import aligned_zeros, run_threads
from maxmargin.multilabel import many_loops as loops

# Labels that are scanned at once: their scores of one sample fill the registers.
LANES = (0,) * 16


@dataclass(frozen=True)
class BlockRule:
    """How the work on a block is cut.

    Parameters
    ----------
    block : int
        Labels of a block, the unit of threads and time limits.
    rare : float
        Features in at most this part of the samples say which samples are near.
    candidates : int
        Samples that a label begins with, for each positive one.
    least : int
        So many violators become members at a time, or as many as there are members.
    passes : int
        Passes over the members between two scans.
    aim, patience : float
        The ascent aims at this part of the gap that tol allows; where the scan finds nothing that
        explains the gap, at this part of what it aimed at before.
    few, scouting : int
        Fewer new violators do not explain the gap; nor do any after so many scans explain all of
        it, and a label drops smaller weights only.
    spread_passes, n_draws : int
        Passes that find the background; random numbers for the orders.
    """

    block: int = 512
    rare: float = 0.01
    candidates: int = 30
    least: int = 64
    passes: int = 30
    aim: float = 0.5
    patience: float = 0.25
    few: int = 8
    scouting: int = 2
    spread_passes: int = 10
    n_draws: int = 1 << 13


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
    def by_label(self) -> sp.csc_array:
        """The samples of every label."""
        return self.on.tocsc()

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
        carrying = share > 0
        boxes, parts = self.weight[carrying], share[carrying]
        return loops.Background(
            readonly(share),
            readonly(m),
            readonly(np.asarray(self.rows.matrix @ m, dtype=np.float64)),
            float(m @ m),
            float(np.min(boxes / parts, initial=np.inf)) if parts.size else 0.0,
            float(np.sum(parts**2 / (2 * boxes))),
        )

    def rare_columns(self, part: float) -> Any:
        """Features in at most `part` of the samples as rows of X'; the others are empty."""
        X = self.rows.matrix
        if self.rows.dense:
            X = sp.csr_array((0, 0), dtype=X.dtype)
            return Rows.of(sp.csr_array((self.n_features, self.shape[0]), dtype=X.dtype)).flat
        columns = X.tocsc()
        counts = np.diff(columns.indptr)
        rare = counts <= max(part * self.shape[0], 1)
        stays = np.repeat(rare, counts)
        indptr = np.concatenate([[0], np.cumsum(np.where(rare, counts, 0))])
        shape = (self.n_features, self.shape[0])
        return Rows.of(sp.csr_array((columns.data[stays], columns.indices[stays], indptr), shape=shape)).flat


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
        Most scans for a label.
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
        self.cull, self.max_rounds = cull, max_rounds
        self.rule = BlockRule() if rule is None else rule
        L = problem.shape[1]
        self.draws = readonly(rng.randint(0, 2**32, self.rule.n_draws, dtype=np.uint32))
        self.back = problem.background(self.rule.spread_passes)
        carrying = np.flatnonzero(self.back.share)
        self.carriers = carrying[np.argsort(-self.back.share[carrying], kind="stable")]
        self.rare = problem.rare_columns(self.rule.rare)
        self.live = np.asarray(problem.upper.any(axis=0))
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
        D, L = self.problem.n_features, self.problem.shape[1]
        parts = [
            Kept(np.ones(len(labels), np.int64), np.full(len(labels), D, np.int32), self.constant[labels])
            if kept is None
            else kept
            for labels, kept in zip(self.blocks, self.done, strict=True)
        ]
        counts, features, values = (np.concatenate([part[k] for part in parts]) for k in range(3))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        weights = sp.csc_array((values, features, indptr), shape=(D + 1, L))
        return ManySolution(weights, self.primal, self.dual)

    def _block(self, b: int, clock: Clock) -> Kept:
        """Solve the labels of one block that have a loss."""
        labels = self.blocks[b]
        work = BlockWork(self, labels[self.live[labels]])
        while not clock.expired() and work.fill():
            work.round()
        counts = np.ones(len(labels), np.int64)
        features, values = [], []
        for place, l in enumerate(labels):
            part = work.answers.get(
                int(l), (np.array([self.problem.n_features], np.int32), self.constant[l : l + 1])
            )
            counts[place] = len(part[0])
            features.append(part[0])
            values.append(part[1])
        return Kept(counts, np.concatenate(features), np.concatenate(values))


class Kept(NamedTuple):
    """Weights of a block: how many each label has, their features and values."""

    counts: np.ndarray
    features: np.ndarray
    values: np.ndarray


class BlockWork:
    """The labels of a block that are in work, up to `width` at a time, and the memory they share."""

    def __init__(self, solver: LabelBlocks, labels: np.ndarray) -> None:
        problem = solver.problem
        D = problem.n_features
        self.solver, self.waiting = solver, labels
        self.W = aligned_zeros(D + 1, len(LANES), np.float64)
        self.scratch = loops.Scratch(
            np.zeros(D + 1), np.zeros(D + 1), np.zeros(D, np.bool_), np.empty(D, np.int64)
        )
        self.marks = np.zeros(problem.shape[0], np.bool_)
        self.open = np.empty(0, np.int64)
        self.members = loops.Members(
            np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), np.empty(0)
        )
        self.target, self.cull, self.rounds = np.empty(0), np.empty(0), np.empty(0, np.int64)
        self.answers: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def fill(self) -> bool:
        """Let waiting labels take free places; false when there is nothing left to do."""
        solver = self.solver
        free = len(LANES) - len(self.open)
        new, self.waiting = self.waiting[:free], self.waiting[free:]
        if len(new):
            starts, rows, n_on = self._beginnings(new)
            old = self.members
            self.open = np.concatenate([self.open, new])
            self.members = loops.Members(
                np.concatenate([old.starts, old.starts[-1] + starts[1:]]),
                np.concatenate([old.rows, rows]),
                np.concatenate([old.alpha, np.zeros(len(rows))]),
                np.concatenate([old.n_on, n_on]),
                np.concatenate([old.u, np.zeros(len(new))]),
            )
            begin = solver.rule.aim * solver.tol * solver.primal[new]
            self.target = np.concatenate([self.target, begin])
            self.cull = np.concatenate([self.cull, np.full(len(new), solver.cull)])
            self.rounds = np.concatenate([self.rounds, np.zeros(len(new), np.int64)])
        return bool(len(self.open))

    def _beginnings(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The positives of some labels and samples near them: starts, rows, number of positives."""
        solver, on = self.solver, self.solver.problem.by_label
        lists = [on.indices[on.indptr[l] : on.indptr[l + 1]].astype(np.int64) for l in labels]
        n_on = np.array([len(rows) for rows in lists], np.int64)
        starts = np.concatenate([[0], np.cumsum(n_on)])
        positives = np.concatenate(lists)
        limit = np.minimum(solver.rule.candidates * n_on, solver.problem.shape[0])
        counts, chosen = (
            np.zeros(len(labels), np.int64),
            np.empty((len(labels), max(limit.max(), 1)), np.int64),
        )
        loops.gather_candidates(
            solver.rare, solver.problem.rows.flat, starts, positives, limit, counts, chosen
        )
        both = [np.concatenate([rows, chosen[k, : counts[k]]]) for k, rows in enumerate(lists)]
        return np.concatenate([[0], np.cumsum(n_on + counts)]), np.concatenate(both), n_on

    def round(self) -> None:
        """Ascent on the members, a scan of all samples, and what follows from it for each label."""
        solver, problem, rule = self.solver, self.solver.problem, self.solver.rule
        rows = problem.rows.flat
        labels, members = self.open, self.members
        aims = loops.Aims(labels, self.target, self.cull)
        weights, told = loops.polish(
            rows,
            problem.squares,
            problem.costs,
            solver.back,
            aims,
            members,
            solver.draws,
            rule.passes,
            self.scratch,
        )
        dual, half_norm = told.T
        sizes = np.diff(members.starts)
        limit = np.maximum(rule.least, sizes)
        found = _nothing(2 * (limit + sizes))
        loss = self._scan(weights, found)
        primal = half_norm + loss
        gap = primal - dual
        self.rounds += 1
        over = (gap <= solver.tol * primal) | (self.rounds >= solver.max_rounds)
        for k in np.flatnonzero(over):
            part = slice(weights.starts[k], weights.starts[k + 1])
            self.answers[int(labels[k])] = weights.features[part].copy(), weights.values[part].copy()
        solver.primal[labels], solver.dual[labels] = primal, dual
        kept = np.flatnonzero(~over)
        starts, members_, alpha, taken = loops.grow(
            solver.back.share, solver.carriers, members, found, kept, limit, rule.few, self.marks
        )
        self.members = loops.Members(starts, members_, alpha, members.n_on[kept], members.u[kept])
        self.open, self.rounds = labels[kept], self.rounds[kept]
        self._aim(primal[kept], taken, kept)

    def _aim(self, primal: np.ndarray, taken: np.ndarray, kept: np.ndarray) -> None:
        """How well the labels that stay are to be solved next, and what they may drop."""
        rule = self.solver.rule
        explained = taken >= rule.few
        target = np.minimum(self.target[kept], rule.aim * self.solver.tol * primal)
        self.target = np.where(explained, 1.0, rule.patience) * target
        self.cull = np.where(explained & (self.rounds < rule.scouting), 1.0, 0.5) * self.cull[kept]

    def _scan(self, weights: loops.Weights, found: loops.Found) -> np.ndarray:
        """Loss of every label in work."""
        problem, labels = self.solver.problem, self.open
        columns = np.repeat(np.arange(len(labels)), np.diff(weights.starts))
        self.W[weights.features, columns] = weights.values
        loss = np.zeros(len(labels))
        loops.scan(problem.rows.flat, problem.costs, labels, self.members, self.W, LANES, found, loss)
        self.W[weights.features, columns] = 0
        return loss


def _nothing(room: np.ndarray) -> loops.Found:
    """Empty lists of so many places each."""
    starts = np.concatenate([[0], np.cumsum(room)])
    size = int(starts[-1])
    return loops.Found(
        starts, np.zeros(len(room), np.int64), np.empty(size, np.int64), np.empty(size), np.zeros(len(room))
    )
