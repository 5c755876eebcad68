"""The default linear solver of wide data: sweeps of dual coordinate ascent, Newton's method where they stall.

Problem, dual and gap as in `problem`. Every epoch ends with one measurement of the gap over all
samples and labels, which also says which entries to visit next, so that nothing that was left out can be
forgotten. Entries with a negligible share of the gap rest.

**Labels that are not coupled** (`LabelSweeps`) share nothing but X: threads take one range of labels
each, and in sweeps their weights with them, so that no core waits for what another has written. The
method alternates between two layouts of the same weights:

1. *sweeps*, feature-major: a row x_i is read once for all labels and the loops run along them. Cheap
   per variable; used while almost every variable still moves. The last one tells which entries moved or are
   within their boxes; in the first epoch these are polished at once, without a measurement;
2. *polishing*, label-major: each label works on the list of samples that still have a gap, with its
   weight vector in cache, until its share of the gap is small enough. The dual value settles long before
   the primal one, which feels every last step: on RCV1 nine tenths of the gap are the primal's. So it ends
   at the mean of the dual variables over its last pass, whose weights have a gap smaller by a third.

**Coupled labels** (`SampleSweeps`): the labels of a sample form one block; its scores are x_i'T G with
R = G H':

- full rank: T = V = X'A, G = R, H = I; a changed variable touches one column of T;
- low rank:  T = V P', G = H = P' with R = P'P; everything costs rank instead of labels.

The first sweeps look at all entries; the last of them tells which moved or are within their boxes, and these
are listed sample by sample and visited at once, without a measurement. Later in the first epoch two more such
sweeps make the lists anew, for less than a pass and a measurement take together. Passes end at the mean of
the last two, whose gap on RCV1 is smaller by a fifth.

**The bias** is a constant feature s. Plain coordinate ascent keeps it at s S, S = sum_i y_i alpha_i, so
every step of one sample moves the scores of all others; the steps fight over the bias and convergence
slows down, badly so for a large s. Here it is a primal variable b = s u of its own, found by the proximal
point method: with h(b) the best dual value for a given bias,

    b_new = argmin  h(b) + (b - b_old)^2 / (2 rho'),     1/rho = 1/s^2 + 1/rho'.

Within one such problem b answers a step d of a sample by rho d, and going to the next one moves it by
rho (S - b / s^2). One pass is taken per problem. rho = s^2 is the plain method; a small rho decouples
the samples, but lets the bias travel slowly when it has far to go. So every label starts with a small
rho and raises it whenever an epoch did not pay; polishing halves it for the rest of the epoch whenever b
has gone past s^2 S. The certificate accounts for whatever distance between b and s^2 S is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise, repeat

import numpy as np

from maxmargin.core.loop import (
    BestWeights,
    Certificate,
    Clock,
    Evaluated,
    Patience,
    Progress,
)
from maxmargin.core.rows import LINE, readonly
from maxmargin.core.threads import Task, aligned_empty, aligned_zeros, ranges, run_tasks, transpose
from maxmargin.multilabel import sweep_loops as loops
from maxmargin.multilabel.loops import Reach
from maxmargin.multilabel.problem import WIDE, LinearM3L, Solution, Sums, coupled_reach

# Lower and upper bounds on gradients, beyond which an entry at its box rests.
Bounds = tuple[np.ndarray | float, np.ndarray | float]
NO_BOUNDS: Bounds = (-np.inf, np.inf)
# Labels whose weights are a line.
TOGETHER = len(LINE)


# Sweeps over all entries in the first epoch.
FIRST_SWEEPS = 3
# Passes of an epoch over the lists of each label.
LABEL_PASSES = 20
# Passes over the first lists of all samples; the last number is that of all others. Later lists hold longer.
# In the first epoch as many lists are made as there are numbers, by a sweep over all entries. With a prior of
# low rank all lists have LOW_RANK_PASSES.
SAMPLE_PASSES, LOW_RANK_PASSES = (3, 5, 8), 5
# Samples that lie side by side and are visited one after the other, in blocks of which there are at least
# N_BLOCKS. What a block of eight needs comes from memory together: on RCV1 and tmc2007-500 a pass takes a
# fifth less, and as many are needed; with blocks of 64 they need up to ten more. With a prior of low rank,
# where steps are felt further, blocks of eight take twice as many passes; samples are visited one by one, as
# where features or samples are few.
BLOCK, N_BLOCKS = 8, 500
# Where tol is at most this, sweeps alone will not do, and the first epoch goes on to polish.
EARLY = 3e-3
# Entries with less than this part of an equal share of the gap that a label is to end at take no step, nor do
# listed ones of samples with less than this part of one of what tol allows: on three of four draws of RCV1
# that saves one of 16 passes.
IDLE = 0.3
# What polishing sees is the gap on its way; its mean has this part of it.
KEPT = 0.75
# Where the pass before saw this part of what tol allows, its end and that of the last one are averaged.
NEAR = 1.5
# Entries at rest may together hold this part of the gap that is allowed.
NEGLECTED = 0.1
# Groups of labels that a thread's are polished in.
N_GROUPS = 16
# Random numbers for the orders of one epoch of polishing (a power of two, which stays in cache), and how far
# apart two labels begin to read them: a prime, so that no two of the first N_DRAWS labels begin at the same
# number.
N_DRAWS, STRIDE = 1 << 13, 7919
# An epoch pays when it leaves less than the share PAYS of a label's gap. Otherwise rho grows by the factor
# GROWTH, if the bias has a part in the gap of at least FELT.
PAYS, GROWTH, FELT = 0.7, 4.0, 0.01


@dataclass(frozen=True)
class SweepRule:
    """How much is done in an epoch, and what may rest.

    Parameters
    ----------
    aim, least : float
        Polishing aims at the part `aim` of the gap that tol allows (at 0.95 four of ten fits of 3,000 rows of
        RCV1 to 1e-4 missed it by up to 3 % and took another epoch, at 0.9 one); a label is left at the part
        `least` of what its first pass saw, for then entries at rest have the larger part of the gap.
    missed : float
        Entries at rest will have this part of the gap there was. Where that and what polishing sees are what
        tol allows, it is worth certifying at once. On five sets (`python -m benchmarks multilabel sets`) it
        was 0.01 to 0.1.
    likely : float
        When a pass over the samples has seen this part of what tol allows, it is worth certifying at once.
    bias_rate : float
        First rho of the bias, relative to the mean squared norm of a sample.
    """

    aim: float = 0.9
    least: float = 0.07
    missed: float = 0.03
    likely: float = 1.2
    bias_rate: float = 0.05


class BiasPull:
    """rho / s^2 of every label: how strongly its bias is drawn to its dual value."""

    def __init__(self, bias: float, q: np.ndarray, n_labels: int, rule: SweepRule) -> None:
        typical = float(np.mean(q))
        start = min(1.0, rule.bias_rate * typical / bias**2) if bias and typical > 0 else 1.0
        self.pull = np.full(n_labels, start)
        self.last = np.full(n_labels, np.inf)
        self.rule = rule

    def learn(self, gaps: np.ndarray, lag_share: np.ndarray) -> None:
        """Raise rho where the gap hardly fell and the bias has a part in it."""
        slow = (gaps > PAYS * self.last) & (lag_share > FELT * gaps)
        self.pull = np.where(slow, np.minimum(GROWTH * self.pull, 1.0), self.pull)
        self.last = gaps.copy()


class Sweeps(Evaluated, ABC):
    """What both kinds of sweeps share: alpha (N x L) in working precision, marks, bias, certificate.

    `bias_row` is the bias as a row of V.

    Parameters
    ----------
    problem : LinearM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from, which are then moved; their type is the working precision.
    tol : float
        The relative gap that training stops at; polishing and resting entries depend on it.
    rng : numpy.random.RandomState
        Draws the orders of samples.
    n_threads : int, default=1
    rule : SweepRule
    """

    block: int
    bias_row: np.ndarray

    def __init__(
        self,
        problem: LinearM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        rng: np.random.RandomState,
        n_threads: int = 1,
        rule: SweepRule | None = None,
    ) -> None:
        self.problem, self.tol, self.rng, self.n_threads = problem, tol, rng, n_threads
        self.rule = SweepRule() if rule is None else rule
        self.n, self.L = alpha.shape
        # Sweeps over all entries write them, and measurements.
        self.flags = aligned_empty((self.n, self.L), np.bool_)
        self.S = np.zeros(self.L)
        # Of all labels and of each, the objective they are compared with, what is expected of the next.
        self.gap, self.gaps = np.inf, np.empty(0)
        self.scale, self.expected, self.quiet = 0.0, np.inf, 0.0
        self.follow = BiasPull(problem.bias, problem.q, self.L, self.rule)
        self.patience = Patience()
        self.best = BestWeights()
        self._begin(alpha)
        self._prepare(alpha)

    def epoch(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The fit seemed done and yet there is another epoch: the weights have drifted, or were dropped.
            self._resynchronise(self.solution().weights)
        return super().epoch(clock)

    def _move(self, clock: Clock) -> Progress:
        self._improve(clock)
        if self._seems_done():
            certificate = self._settled()
            if certificate.gap <= self.tol:
                return Progress(certificate, self._active(), exact=True)
        certificate = self._measure()
        exhausted, small = self.patience.exhausted(certificate.gap), certificate.gap <= self.tol
        if small:
            certificate = self._settled()
        if exhausted and certificate.gap > self.tol and self.real is np.float32:
            self._prepare(self.alpha.astype(np.float64))
        if small:
            return Progress(certificate, self._active(), exact=True)
        return Progress(Certificate(self.best.primal, certificate.dual), self._active())

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The best weights, and their certificate with the dual variables as they are."""
        Z, here = self.problem.evaluate(self.alpha, self.bias_row, self.n_threads)
        if here.gap > self.tol and not self.best.are_last:
            best, certificate = self.problem.evaluate(
                self.alpha, n_threads=self.n_threads, weights=self._factors(self.best.weights)
            )
            if certificate.primal < here.primal:
                Z, here = best, Certificate(certificate.primal, here.dual)
        return Solution(readonly(self.alpha), Z), here

    def _settled(self) -> Certificate:
        """The certificate at what seems to be the end, in the place of the weights; if it is not, go on."""
        Z, certificate = self.problem.evaluate(self.alpha, self.bias_row, self.n_threads, room=self._forget())
        self.gap = certificate.gap
        if self.gap <= self.tol:
            self._answer = Solution(readonly(self.alpha), Z), certificate
        else:
            self._resynchronise(Z)
        return certificate

    def _prepare(self, alpha: np.ndarray) -> None:
        """Set up the state in the precision of alpha."""
        self.alpha, self.real = alpha, alpha.dtype.type
        self.bias = self.real(self.problem.bias)
        self.rows = self.problem.rows_for(self.real).flat
        self.q = readonly(self.problem.q.astype(self.real))
        self.r = readonly(self.problem.r.astype(self.real))
        self.costs = self.problem.costs.flat(self.real)

    def _geometry(self) -> loops.Geometry:
        pull = readonly(self.follow.pull.astype(self.real))
        return loops.Geometry(self.bias, pull, self.q, self.r)

    def _order(self) -> np.ndarray:
        """Samples in random order, those of a block one after the other."""
        size = min(max(1, self.n // N_BLOCKS), self.block)
        blocks = self.rng.permutation(-(-self.n // size))
        order = (size * blocks[:, None] + self.rng.permutation(size)).ravel()
        return readonly(order[order < self.n])

    def _measured(self, sums: Sums) -> Certificate:
        """Note what was measured: the gaps of labels, and how little of one lets an entry rest."""
        problem = self.problem
        self.S = sums.S
        lag = self.bias_row - problem.bias * self.S
        felt = problem.couple(lag[None])[0]
        lag_share = 0.5 * lag * felt
        self.gaps = sums.gap + lag_share
        self.follow.learn(self.gaps, lag_share)
        loss, value = float(sums.loss.sum()), float(sums.value.sum())
        # <A, F> = <m, alpha> - <g, alpha> and <g, alpha> = loss - gap, for scores F with the bias u R;
        # moving from s S to u in both factors completes the square.
        norm = value - loss + float(sums.gap.sum()) + float(felt @ self.bias_row)
        primal = 0.5 * norm + loss + problem.costs.constant
        certificate = Certificate(primal, primal - float(self.gaps.sum()))
        self.gap, self.scale = certificate.gap, abs(primal)
        self.quiet = NEGLECTED * self.tol * self.scale / self.alpha.size
        return certificate

    def _active(self) -> int:
        """Number of samples with an entry that is still visited."""
        return int(np.count_nonzero(self.flags.any(axis=1)))

    def _seems_done(self) -> bool:
        """Whether a certificate is worth its price before the measurement."""
        return False

    @abstractmethod
    def _begin(self, alpha: np.ndarray) -> None:
        """Set up what does not depend on the precision, and how many samples make a block."""

    @abstractmethod
    def _improve(self, clock: Clock) -> None:
        """The ascent of one epoch."""

    @abstractmethod
    def _measure(self) -> Certificate:
        """The certificate by the weights at hand; marks what to visit next."""

    @abstractmethod
    def _factors(self, weights: np.ndarray) -> np.ndarray:
        """U of the weights at hand, with Z = U P and R = P'P."""

    @abstractmethod
    def _forget(self) -> np.ndarray | None:
        """Drop the weights; returns the memory that they had, where it is worth keeping."""

    @abstractmethod
    def _resynchronise(self, weights: np.ndarray) -> None:
        """Make the weights anew from the dual variables."""


class LabelSweeps(Sweeps):
    """Sweeps and polishing for labels that are not coupled.

    W is (D+1) x L and a few idle columns that make its rows whole lines. In sweeps every thread has the
    weights of its labels to itself: `by_part`, one after the other in the place of W. WT holds the same
    weights as W label-major where they are `turned`, and newer ones where it is `ahead`.
    """

    def _begin(self, alpha: np.ndarray) -> None:
        self.n_lines = -(-self.L // TOGETHER)
        # Cut between lines: one that is not full costs a sweep as much as one that is.
        lines = ranges(self.n_lines, self.n_threads)
        self.parts = [(TOGETHER * first, min(TOGETHER * last, self.L)) for first, last in lines]
        many = self.n >= BLOCK * N_BLOCKS
        self.block = BLOCK if self.problem.n_features >= WIDE and many else 1

    def _prepare(self, alpha: np.ndarray) -> None:
        super()._prepare(alpha)
        self.bias_row = np.zeros(self.L)
        self._make_room()
        # Where nothing is known yet, sweeps from zero make the weights.
        self.blank = not self.gaps.size and not alpha.any()
        if not self.blank:
            self._take(self.problem.accumulate(alpha, self.real, self.n_threads) * self.r)

    def _make_room(self) -> None:
        rows, width = self.problem.n_features + 1, TOGETHER * self.n_lines
        # One piece of memory: a large one is mapped in large pages.
        self.room = aligned_empty(2 * rows * width, self.real)
        halves = self.room[: rows * width], self.room[rows * width :]
        self.W, self.WT = halves[0].reshape(rows, width), halves[1].reshape(width, rows)
        starts = [rows * first for first, _ in self.parts] + [rows * width]
        self.by_part = [halves[0][slice(*place)].reshape(rows, -1) for place in pairwise(starts)]
        self.WT[self.L :] = 0

    def _take(self, weights: np.ndarray) -> None:
        """Go on from these weights."""
        self.W[:, : self.L], self.W[:, self.L :] = weights, 0
        self.bias_row = weights[-1] / self.problem.r
        self.turned = self.ahead = False

    def _forget(self) -> np.ndarray:
        room = self.room
        del self.room, self.W, self.WT, self.by_part
        return room

    def _resynchronise(self, weights: np.ndarray) -> None:
        self._make_room()
        self._take(weights)

    def _seems_done(self) -> bool:
        return self.expected <= self.tol * self.scale

    def _improve(self, clock: Clock) -> None:
        if self.blank:
            self._ascend(clock, FIRST_SWEEPS, polish=self.tol <= EARLY)
            self.blank = False
            return
        if not self.gaps.size:
            self._measure()
        self._ascend(clock)

    def _ascend(self, clock: Clock, sweeps: int = 0, polish: bool = True) -> None:
        """Sweeps over all entries, then polishing of those that are marked; the weights end label-major.

        A thread that has swept its labels goes on to polish some, whatever the others are at.
        """
        geometry, orders = self._geometry(), [self._order() for _ in range(sweeps)]
        if not sweeps and not self.turned:
            transpose(self.W, self.WT, self.n_threads)
        polishing = self._polishing(clock, geometry) if polish else lambda _: ()

        def work(k: int) -> Iterable[Task]:
            if sweeps:
                self._sweep(k, geometry, orders)
            return polishing(k)

        run_tasks([partial(work, k) for k in range(len(self.parts))], self.n_threads)
        self._turned()
        if polish and self.gaps.size:
            kept, missed = KEPT * self.remaining.sum(), self.rule.missed * self.gaps.sum()
            self.expected = float(kept + missed)

    def _sweep(self, k: int, geometry: loops.Geometry, orders: list[np.ndarray]) -> None:
        """Sweeps over all entries of a part of the labels."""
        part, W = self.parts[k], self._part(k)
        own, w = slice(*part), W[-1, : part[1] - part[0]]
        state, (lo, hi) = loops.Ascent(self.alpha, W, self.S), map(np.uint64, part)
        for order in orders:
            loops.sweep_labels(self.rows, self.costs, geometry, order, lo, hi, state, self.flags)
            goal = (self.problem.bias * self.S[own] * self.problem.r[own]).astype(self.real)
            w += geometry.pull[own] * (goal - w)
        self.WT[own] = W[:, : len(w)].T

    def _part(self, k: int) -> np.ndarray:
        """The weights of a part of the labels, with which a thread begins: none."""
        self.by_part[k][:] = 0
        return self.by_part[k]

    def _turned(self) -> None:
        """Note that WT is ahead; W follows where it is needed."""
        self.bias_row = self.WT[: self.L, -1] / self.problem.r
        self.turned = self.ahead = True

    def _polishing(self, clock: Clock, geometry: loops.Geometry) -> Callable[[int], list[Task]]:
        """What polishes a part of the labels, by what is marked then; their gaps end in `remaining`."""
        rule, state = self.rule, loops.Ascent(self.alpha, self.WT, self.S)
        order = readonly(self.rng.permutation(self.n))
        draws = readonly(self.rng.randint(0, 2**32, N_DRAWS, dtype=np.uint32))
        enough = loops.Enough(LABEL_PASSES, rule.least, IDLE)
        # The first epoch polishes before anything was measured.
        gaps = self.gaps if self.gaps.size else np.full(self.L, np.inf)
        self.remaining = gaps.copy()

        def polish(labels: np.ndarray, lists: loops.Lists) -> tuple[()]:
            if not clock.expired():
                loops.polish_labels(
                    self.rows, self.costs, geometry, labels, lists, draws, enough, state, self.remaining,
                )  # fmt: skip
            return ()

        def groups(k: int) -> list[Task]:
            lists, labels = self._lists(k, order), np.arange(*self.parts[k])
            # Longest lists first and in small groups, so that threads end together.
            by_length = labels[np.argsort(-np.diff(lists.starts)[labels], kind="stable")]
            by_length = by_length[gaps[by_length] > 0]
            n_groups = min(len(by_length), N_GROUPS)
            return [partial(polish, readonly(by_length[g::n_groups]), lists) for g in range(n_groups)]

        return groups

    def _catch_up(self) -> None:
        """Bring W to where polishing has left the weights."""
        if self.ahead:
            transpose(self.WT, self.W, self.n_threads)
            self.ahead = False

    def _lists(self, k: int, order: np.ndarray) -> loops.Lists:
        """The marked samples of every label of a part in the order given, and how far each label is to go."""
        rule, (lo, hi) = self.rule, self.parts[k]
        counts = np.zeros(self.L, np.int64)
        counts[lo:hi] = np.count_nonzero(self.flags[:, lo:hi], axis=0)
        starts = np.concatenate([[0], np.cumsum(counts)])
        members = np.empty(starts[-1], np.int32 if self.n < 2**31 else np.int64)
        loops.gather_lists(readonly(self.flags.view(np.uint8)), order, lo, hi, starts[:-1].copy(), members)
        target = np.zeros(self.L)
        if self.gaps.size:
            gap = max(self.gap, self.tol)
            target = self.gaps * ((rule.aim * self.tol - rule.missed * gap) / (KEPT * gap))
        first = STRIDE * np.arange(self.L)
        return loops.Lists(*(readonly(array) for array in (starts, members, first, target)))

    def _measure(self) -> Certificate:
        self._catch_up()
        sums = self.problem.measure(self.alpha, self.W, None, self.flags, self.n_threads, self.quiet)
        certificate = self._measured(sums)
        self.best.offer(certificate.primal, self.W)
        return certificate

    def _factors(self, weights: np.ndarray) -> np.ndarray:
        return weights[:, : self.L] / np.sqrt(self.problem.r)


class SampleSweeps(Sweeps):
    """Sweeps for coupled labels: T ((D+1) x K) and the bias row u, in working precision."""

    def _begin(self, alpha: np.ndarray) -> None:
        self.S = np.einsum("il,il->l", self.problem.costs.signs, alpha, dtype=np.float64)
        self.bias_row = self.problem.bias * self.S
        self.listed = 0  # entries of a pass
        low_rank = self.problem.low_rank is not None
        self.block = 1 if low_rank else BLOCK
        passes = (LOW_RANK_PASSES,) if low_rank else SAMPLE_PASSES
        self.lengths, self.first_lists = chain(passes, repeat(passes[-1])), len(passes)

    def _prepare(self, alpha: np.ndarray) -> None:
        super()._prepare(alpha)
        P = self.problem.low_rank
        self.factored = P is not None
        G = (self.problem.prior if P is None else P).astype(self.real)
        self.G, rank = readonly(G), len(G)
        # Weights lie where those of the certificate will, which are of double precision.
        size = (self.problem.n_features + 1) * -(-self.L // 16) * 16
        self.room = None if self.factored else aligned_empty(size, np.float64)
        V = self.problem.accumulate(alpha, self.real, self.n_threads, idle=True, room=self.room)
        V[-1, : self.L] = self.bias_row
        self.T = V
        if self.factored:
            self.T = aligned_zeros(len(V), rank, self.real)
            self.T[:, :rank] = V[:, : self.L] @ G.T
        mixing = np.pad(G.T, ((0, 0), (0, self.T.shape[1] - rank)))
        self.mixing = loops.Mixing(readonly(mixing), self.factored)

    def _forget(self) -> np.ndarray | None:
        room = self.room
        del self.T, self.room
        return room

    def _resynchronise(self, weights: np.ndarray) -> None:
        self._prepare(self.alpha)

    def _seems_done(self) -> bool:
        return self.expected <= self.rule.likely * self.tol * self.scale

    def _improve(self, clock: Clock) -> None:
        if np.isfinite(self.gap):  # there are marks by a measurement
            self._visit(clock)
            return
        for _ in range(FIRST_SWEEPS):
            self._sweep()
            if clock.expired():
                return
        if self.tol > EARLY:
            return
        for turn in range(self.first_lists):
            if turn:
                self._sweep()
            if self._visit(clock):
                return

    def _visit(self, clock: Clock) -> bool:
        """Passes over the marked entries; returns whether there is reason to stop."""
        lists, bounds, done = self._lists(), NO_BOUNDS, False
        for _ in range(next(self.lengths)):
            near = self.expected <= NEAR * self.tol * self.scale
            S, bias_row = self.S.copy(), self.bias_row
            bounds = self._pass(lists, bounds)
            done = near and self._seems_done()
            if done:
                # T stays behind: a certificate does not ask for it, and where that fails it is made anew.
                np.add(lists.a, lists.before, out=lists.a)
                np.multiply(lists.a, self.real(0.5), out=lists.a)
                self.S, self.bias_row = 0.5 * (S + self.S), 0.5 * (bias_row + self.bias_row)
                break
            if clock.expired():
                done = True
                break
        loops.scatter_entries(lists, self.alpha)
        return done

    def _sweep(self) -> None:
        """One pass over all entries, which marks those to list."""
        self._pass(self._room(self.L))

    def _room(self, size: int) -> loops.SampleLists:
        """Lists of so many entries that belong to no sample yet."""
        nowhere, values = np.empty(0, np.int64), np.empty((5, size), self.real)
        return loops.SampleLists(nowhere, nowhere, np.empty(size, np.uint32), *values)

    def _lists(self) -> loops.SampleLists:
        """The marked entries of every sample."""
        self.listed = int(np.count_nonzero(self.flags))
        starts, counts = np.empty(self.n + 1, np.int64), np.empty(self.n, np.int64)
        lists = self._room(self.listed)._replace(starts=starts, counts=counts)
        loops.gather_entries(readonly(self.flags.view(np.uint8)), self.costs, self.alpha, lists)
        return lists

    def _pass(self, lists: loops.SampleLists, bounds: Bounds = NO_BOUNDS) -> Bounds:
        """One pass over the listed entries; returns the bounds beyond which they rest in the next."""
        low, high = np.zeros((2, 2, self.L), self.real)
        low[0], high[0] = bounds
        pull, bias = self.follow.pull, self.problem.bias
        # Drawn before the pass and not after it, so that samples answer before the gap is measured.
        self._set_bias(self.bias_row + pull * (bias * self.S - self.bias_row))
        before = self.S.copy()
        self.expected, primal = loops.sweep_samples(
            self.rows, self.costs, self._geometry(), self._order(), self.mixing,
            loops.Ascent(self.alpha, self.T, self.S), lists, Reach(self.flags, low, high),
            self._small(),
        )  # fmt: skip
        if not len(lists.starts):
            self.scale = abs(primal + self.problem.costs.constant)
        self._set_bias(self.bias_row + pull * bias * (self.S - before))
        return coupled_reach(self.problem.prior, low[1], high[1])

    def _small(self) -> np.floating:
        """The share of the gap below which an entry takes no step; none before there are lists."""
        return self.real(IDLE * self.tol * self.scale / self.listed if self.listed else 0.0)

    def _set_bias(self, row: np.ndarray) -> None:
        self.bias_row = row
        self.T[-1, : len(self.G)] = self.G @ row if self.factored else row

    def _measure(self) -> Certificate:
        sums = self.problem.measure(self.alpha, self.T, self.G, self.flags, self.n_threads, self.quiet)
        certificate = self._measured(sums)
        self.best.offer(certificate.primal, self.T)
        return certificate

    def _factors(self, weights: np.ndarray) -> np.ndarray:
        rank = len(self.G)
        weights = weights[:, :rank].astype(np.float64)
        return weights if self.factored else weights @ self.problem.factor.T
