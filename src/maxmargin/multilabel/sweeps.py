"""The default linear solver of wide data: sweeps of dual coordinate ascent.

Problem, dual and gap as in `problem`. Every epoch ends with a measurement of the gap over all samples and
labels, which also selects the entries to visit next, so no entry is skipped for good. Entries with a
negligible part of the gap are skipped.

**Independent labels** (`LabelSweeps`) share only X. Each thread works on a range of labels with its own copy
of their weights, so no core waits for data that another one has written. The method alternates between two
layouts of the weights:

1. *sweeps*, feature-major: a row x_i is read once for all labels and the loops run over labels. They are
cheap per
   variable and are used while almost every variable still moves. The last one marks the entries that moved or
   are inside their boxes; in the first epoch these are visited by per-label passes without a measurement;
2. *per-label passes*, label-major: each label works on the list of samples that still have a gap, with its
   weight vector in cache, until its part of the gap is small enough. The dual objective converges long before
   the primal one, which depends on every last step: on RCV1 nine tenths of the gap are in the primal. So the
   passes end at the mean of the dual variables over the last one, whose weights have a gap smaller by a
   third.

**Coupled labels** (`SampleSweeps`): the labels of a sample form one block; its scores are x_i'T G with R = G
H':

- full rank: T = V = X'A, G = R, H = I; a changed variable changes one column of T;
- low rank:  T = V P', G = H = P' with R = P'P; operations cost the rank, not the number of labels.

The first sweeps visit all entries; the last of them marks those that moved or are inside their boxes, and
these are listed by sample and visited without a measurement. Later in the first epoch two more such sweeps
update the lists, which costs less than a pass and a measurement together. Passes end at the mean of the last
two, whose gap on RCV1 is smaller by a fifth.

**The bias** is a constant feature s. Plain coordinate ascent keeps it at s S, S = sum_i y_i alpha_i, so every
step of one sample changes the scores of all others; these changes compete and slow down convergence, above
all for a large s. Here the bias is a primal variable b = s u, found by the proximal point method: with h(b)
the best dual objective for a given bias,

    b_new = argmin  h(b) + (b - b_old)^2 / (2 rho'),     1/rho = 1/s^2 + 1/rho'.

Within one proximal problem b answers a step d of a sample by rho d, and the next problem moves it by rho (S -
b / s^2). One pass is made per problem. rho = s^2 is the plain method. A small rho decouples the samples, but
b then moves slowly if it is far from its optimum. So every label starts with a small rho and raises it after
every epoch with little progress; per-label passes halve it for the rest of the epoch whenever b has passed
s^2 S. The certificate includes the remaining distance between b and s^2 S.
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
from maxmargin.multilabel.loops import Bounds
from maxmargin.multilabel.problem import WIDE, LinearM3L, Solution, Sums, shrinking_bounds

# Lower and upper bounds on gradients, beyond which an entry at its bound is skipped.
Limits = tuple[np.ndarray | float, np.ndarray | float]
NO_LIMITS: Limits = (-np.inf, np.inf)
# Labels whose weights fill a cache line.
TOGETHER = len(LINE)


# Sweeps over all entries in the first epoch.
FIRST_SWEEPS = 3
# Most passes of an epoch over the list of each label.
LABEL_PASSES = 20
# Passes over the first lists of all samples; the last number is that of all later ones, which stay valid for
# longer. The first epoch makes as many lists as there are numbers, each by a sweep over all entries. With a
# prior of low rank all lists have LOW_RANK_PASSES.
SAMPLE_PASSES, LOW_RANK_PASSES = (3, 5, 8), 5
# Adjacent samples that are visited one after the other, in at least N_BLOCKS blocks, because their data is
# fetched from memory together: on RCV1 and tmc2007-500 a pass takes a fifth less time, and as many passes are
# needed; blocks of 64 need up to ten more. With a prior of low rank blocks of eight take twice as many
# passes, so samples are visited one by one, as with few features or samples.
BLOCK, N_BLOCKS = 8, 500
# At a tol up to this sweeps alone are not enough, and the first epoch continues with lists.
EARLY = 3e-3
# Per-label passes skip entries with less than this part of an equal share of the target gap of the label, and
# passes over samples those with less than this part of an equal share of what tol allows: on three of four
# draws of RCV1 that saves one of 16 passes.
NEGLIGIBLE = 0.3
# The gap of the mean of a per-label pass, relative to the gap seen during the pass.
KEPT = 0.75
# If the gap of the pass before is at most this multiple of what tol allows, the last two passes are averaged.
NEAR = 1.5
# Part of the allowed gap that all skipped entries together may have.
NEGLECTED = 0.1
# Groups of labels of a thread for per-label passes.
N_GROUPS = 16
# Random numbers for the orders of one epoch of per-label passes (a power of two, which stays in cache), and
# the distance between the first numbers of two labels: a prime, so that the first N_DRAWS labels start at
# different numbers.
N_DRAWS, STRIDE = 1 << 13, 7919
# rho grows by the factor GROWTH if an epoch leaves more than the part PAYS of a label's gap and the bias has
# at least the part FELT of it.
PAYS, GROWTH, FELT = 0.7, 4.0, 0.01


@dataclass(frozen=True)
class SweepRule:
    """How much is done in an epoch, and which entries are skipped.

    Parameters
    ----------
    aim, least : float
        Per-label passes aim at the part `aim` of the gap that tol allows (at 0.95 four of ten fits of 3,000
        rows of RCV1 to 1e-4 missed it by up to 3 % and took another epoch, at 0.9 one). A label ends at the
        part `least` of the gap of its first pass, because skipped entries then have the larger part of the
        gap.
    missed : float
        Expected gap of skipped entries, relative to the last measured gap. If this and the gap of the visited
        ones are within tol, the epoch certifies at once. On five sets (`python -m benchmarks multilabel
        sets`) it was 0.01 to 0.1.
    likely : float
        If the gap seen in a pass over the samples is at most this multiple of what tol allows, the epoch
        certifies at once.
    bias_rate : float
        First rho of the bias, relative to the mean squared norm of a sample.
    """

    aim: float = 0.9
    least: float = 0.07
    missed: float = 0.03
    likely: float = 1.2
    bias_rate: float = 0.05


class BiasDamping:
    """rho / s^2 of every label: the step of its bias towards its dual value."""

    def __init__(self, bias: float, q: np.ndarray, n_labels: int, rule: SweepRule) -> None:
        typical = float(np.mean(q))
        start = min(1.0, rule.bias_rate * typical / bias**2) if bias and typical > 0 else 1.0
        self.values = np.full(n_labels, start)
        self.last = np.full(n_labels, np.inf)
        self.rule = rule

    def update(self, gaps: np.ndarray, bias_gap: np.ndarray) -> None:
        """Raise rho where the gap hardly fell and the bias has a part in it."""
        slow = (gaps > PAYS * self.last) & (bias_gap > FELT * gaps)
        self.values = np.where(slow, np.minimum(GROWTH * self.values, 1.0), self.values)
        self.last = gaps.copy()


class Sweeps(Evaluated, ABC):
    """State that both kinds of sweeps share: alpha (N x L) in working precision, flags, bias, certificate.

    `bias_row` is the bias as a row of V.

    Parameters
    ----------
    problem : LinearM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from; they are changed in place, and their dtype is the working
        precision.
    tol : float
        The relative gap at which training stops; the skipped entries depend on it.
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
        # Written by sweeps over all entries and by measurements.
        self.flags = aligned_empty((self.n, self.L), np.bool_)
        self.S = np.zeros(self.L)
        # The gap of all labels and of each, the primal objective, the expected gap, the gap of skipped
        # entries.
        self.gap, self.gaps = np.inf, np.empty(0)
        self.scale, self.expected, self.negligible = 0.0, np.inf, 0.0
        self.damping = BiasDamping(problem.bias, problem.q, self.L, self.rule)
        self.patience = Patience()
        self.best = BestWeights()
        self._setup(alpha)
        self._prepare(alpha)

    def epoch(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The last epoch seemed done but was not certified: the weights have drifted, or were dropped.
            self._rebuild(self.solution().weights)
        return super().epoch(clock)

    def _move(self, clock: Clock) -> Progress:
        self._improve(clock)
        if self._seems_done():
            certificate = self._certify_end()
            if certificate.gap <= self.tol:
                return Progress(certificate, self._active(), exact=True)
        certificate = self._measure()
        exhausted, small = self.patience.exhausted(certificate.gap), certificate.gap <= self.tol
        if small:
            certificate = self._certify_end()
        if exhausted and certificate.gap > self.tol and self.real is np.float32:
            self._prepare(self.alpha.astype(np.float64))
        if small:
            return Progress(certificate, self._active(), exact=True)
        return Progress(Certificate(self.best.primal, certificate.dual), self._active())

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The best weights, and their certificate with the present dual variables."""
        Z, here = self.problem.evaluate(self.alpha, self.bias_row, self.n_threads)
        if here.gap > self.tol and not self.best.are_last:
            best, certificate = self.problem.evaluate(
                self.alpha, n_threads=self.n_threads, weights=self._factors(self.best.weights)
            )
            if certificate.primal < here.primal:
                Z, here = best, Certificate(certificate.primal, here.dual)
        return Solution(readonly(self.alpha), Z), here

    def _certify_end(self) -> Certificate:
        """Compute the certificate in the memory of the weights; restore them if the gap is too large."""
        Z, certificate = self.problem.evaluate(
            self.alpha, self.bias_row, self.n_threads, buffer=self._release()
        )
        self.gap = certificate.gap
        if self.gap <= self.tol:
            self._answer = Solution(readonly(self.alpha), Z), certificate
        else:
            self._rebuild(Z)
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
        damping = readonly(self.damping.values.astype(self.real))
        return loops.Geometry(self.bias, damping, self.q, self.r)

    def _order(self) -> np.ndarray:
        """Samples in random order, those of a block one after the other."""
        size = min(max(1, self.n // N_BLOCKS), self.block)
        blocks = self.rng.permutation(-(-self.n // size))
        order = (size * blocks[:, None] + self.rng.permutation(size)).ravel()
        return readonly(order[order < self.n])

    def _measured(self, sums: Sums) -> Certificate:
        """Store a measurement: the gaps of labels, and below which gap an entry is skipped."""
        problem = self.problem
        self.S = sums.S
        residual = self.bias_row - problem.bias * self.S
        coupled = problem.couple(residual[None])[0]
        bias_gap = 0.5 * residual * coupled
        self.gaps = sums.gap + bias_gap
        self.damping.update(self.gaps, bias_gap)
        loss, value = float(sums.loss.sum()), float(sums.value.sum())
        # <A, F> = <m, alpha> - <g, alpha> and <g, alpha> = loss - gap, for scores F with the bias u R;
        # replacing s S by u in both factors completes the square.
        norm = value - loss + float(sums.gap.sum()) + float(coupled @ self.bias_row)
        primal = 0.5 * norm + loss + problem.costs.constant
        certificate = Certificate(primal, primal - float(self.gaps.sum()))
        self.gap, self.scale = certificate.gap, abs(primal)
        self.negligible = NEGLECTED * self.tol * self.scale / self.alpha.size
        return certificate

    def _active(self) -> int:
        """Number of samples with an entry that is visited."""
        return int(np.count_nonzero(self.flags.any(axis=1)))

    def _seems_done(self) -> bool:
        """Whether a certificate is worth its cost before the measurement."""
        return False

    @abstractmethod
    def _setup(self, alpha: np.ndarray) -> None:
        """Set up what does not depend on the precision, and the size of a block of samples."""

    @abstractmethod
    def _improve(self, clock: Clock) -> None:
        """The ascent of one epoch."""

    @abstractmethod
    def _measure(self) -> Certificate:
        """The certificate of the running weights; marks the entries to visit next."""

    @abstractmethod
    def _factors(self, weights: np.ndarray) -> np.ndarray:
        """U of the running weights, with Z = U P and R = P'P."""

    @abstractmethod
    def _release(self) -> np.ndarray | None:
        """Drop the weights; return their memory for reuse, or None."""

    @abstractmethod
    def _rebuild(self, weights: np.ndarray) -> None:
        """Recompute the weights from the dual variables."""


class LabelSweeps(Sweeps):
    """Sweeps and per-label passes for independent labels.

    W is (D+1) x L, padded so that its rows are whole cache lines. In sweeps every thread has its own weights
    for its labels: `by_part`, one after the other in the memory of W. WT holds the weights label-major, the
    same as W if `is_label_major`, and newer ones if `label_major_is_newer`.
    """

    def _setup(self, alpha: np.ndarray) -> None:
        self.n_lines = -(-self.L // TOGETHER)
        # Cut between cache lines: a partial line costs a sweep as much as a whole one.
        lines = ranges(self.n_lines, self.n_threads)
        self.parts = [(TOGETHER * first, min(TOGETHER * last, self.L)) for first, last in lines]
        many = self.n >= BLOCK * N_BLOCKS
        self.block = BLOCK if self.problem.n_features >= WIDE and many else 1

    def _prepare(self, alpha: np.ndarray) -> None:
        super()._prepare(alpha)
        self.bias_row = np.zeros(self.L)
        self._allocate()
        # In the first epoch of a cold start, sweeps from zero make the weights.
        self.blank = not self.gaps.size and not alpha.any()
        if not self.blank:
            self._take(self.problem.accumulate(alpha, self.real, self.n_threads) * self.r)

    def _allocate(self) -> None:
        rows, width = self.problem.n_features + 1, TOGETHER * self.n_lines
        # One allocation: a large one is mapped in large pages.
        self.buffer = aligned_empty(2 * rows * width, self.real)
        halves = self.buffer[: rows * width], self.buffer[rows * width :]
        self.W, self.WT = halves[0].reshape(rows, width), halves[1].reshape(width, rows)
        starts = [rows * first for first, _ in self.parts] + [rows * width]
        self.by_part = [halves[0][slice(*place)].reshape(rows, -1) for place in pairwise(starts)]
        self.WT[self.L :] = 0

    def _take(self, weights: np.ndarray) -> None:
        """Continue from these weights."""
        self.W[:, : self.L], self.W[:, self.L :] = weights, 0
        self.bias_row = weights[-1] / self.problem.r
        self.is_label_major = self.label_major_is_newer = False

    def _release(self) -> np.ndarray:
        buffer = self.buffer
        del self.buffer, self.W, self.WT, self.by_part
        return buffer

    def _rebuild(self, weights: np.ndarray) -> None:
        self._allocate()
        self._take(weights)

    def _seems_done(self) -> bool:
        return self.expected <= self.tol * self.scale

    def _improve(self, clock: Clock) -> None:
        if self.blank:
            self._ascend(clock, FIRST_SWEEPS, passes=self.tol <= EARLY)
            self.blank = False
            return
        if not self.gaps.size:
            self._measure()
        self._ascend(clock)

    def _ascend(self, clock: Clock, sweeps: int = 0, passes: bool = True) -> None:
        """Sweeps over all entries, then per-label passes over the marked ones; the weights end label-major.

        A thread starts per-label passes as soon as it has swept its own labels.
        """
        geometry, orders = self._geometry(), [self._order() for _ in range(sweeps)]
        if not sweeps and not self.is_label_major:
            transpose(self.W, self.WT, self.n_threads)
        label_passes = self._label_passes(clock, geometry) if passes else lambda _: ()

        def work(k: int) -> Iterable[Task]:
            if sweeps:
                self._sweep(k, geometry, orders)
            return label_passes(k)

        run_tasks([partial(work, k) for k in range(len(self.parts))], self.n_threads)
        self._mark_label_major()
        if passes and self.gaps.size:
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
            w += geometry.damping[own] * (goal - w)
        self.WT[own] = W[:, : len(w)].T

    def _part(self, k: int) -> np.ndarray:
        """Zero weights for a part of the labels."""
        self.by_part[k][:] = 0
        return self.by_part[k]

    def _mark_label_major(self) -> None:
        """Mark WT as newer than W."""
        self.bias_row = self.WT[: self.L, -1] / self.problem.r
        self.is_label_major = self.label_major_is_newer = True

    def _label_passes(self, clock: Clock, geometry: loops.Geometry) -> Callable[[int], list[Task]]:
        """Per-label passes on the marked entries of a part of the labels; gaps go to `remaining`."""
        rule, state = self.rule, loops.Ascent(self.alpha, self.WT, self.S)
        order = readonly(self.rng.permutation(self.n))
        draws = readonly(self.rng.randint(0, 2**32, N_DRAWS, dtype=np.uint32))
        limits = loops.PassLimits(LABEL_PASSES, rule.least, NEGLIGIBLE)
        # The first epoch makes per-label passes before any measurement.
        gaps = self.gaps if self.gaps.size else np.full(self.L, np.inf)
        self.remaining = gaps.copy()

        def visit(labels: np.ndarray, lists: loops.Lists) -> tuple[()]:
            if not clock.expired():
                loops.label_passes(
                    self.rows, self.costs, geometry, labels, lists, draws, limits, state, self.remaining,
                )  # fmt: skip
            return ()

        def groups(k: int) -> list[Task]:
            lists, labels = self._lists(k, order), np.arange(*self.parts[k])
            # Longest lists first and in small groups, so that threads end together.
            by_length = labels[np.argsort(-np.diff(lists.starts)[labels], kind="stable")]
            by_length = by_length[gaps[by_length] > 0]
            n_groups = min(len(by_length), N_GROUPS)
            return [partial(visit, readonly(by_length[g::n_groups]), lists) for g in range(n_groups)]

        return groups

    def _catch_up(self) -> None:
        """Copy the weights from WT to W if WT is newer."""
        if self.label_major_is_newer:
            transpose(self.WT, self.W, self.n_threads)
            self.label_major_is_newer = False

    def _lists(self, k: int, order: np.ndarray) -> loops.Lists:
        """The marked samples of every label of a part in the given order, and its target gap."""
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
        sums = self.problem.measure(self.alpha, self.W, None, self.flags, self.n_threads, self.negligible)
        certificate = self._measured(sums)
        self.best.offer(certificate.primal, self.W)
        return certificate

    def _factors(self, weights: np.ndarray) -> np.ndarray:
        return weights[:, : self.L] / np.sqrt(self.problem.r)


class SampleSweeps(Sweeps):
    """Sweeps for coupled labels: T ((D+1) x K) and the bias row u, in working precision."""

    def _setup(self, alpha: np.ndarray) -> None:
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
        # Weights use the memory of those of the certificate, which are in double precision.
        size = (self.problem.n_features + 1) * -(-self.L // 16) * 16
        self.buffer = None if self.factored else aligned_empty(size, np.float64)
        V = self.problem.accumulate(alpha, self.real, self.n_threads, padded=True, buffer=self.buffer)
        V[-1, : self.L] = self.bias_row
        self.T = V
        if self.factored:
            self.T = aligned_zeros(len(V), rank, self.real)
            self.T[:, :rank] = V[:, : self.L] @ G.T
        mixing = np.pad(G.T, ((0, 0), (0, self.T.shape[1] - rank)))
        self.mixing = loops.Mixing(readonly(mixing), self.factored)

    def _release(self) -> np.ndarray | None:
        buffer = self.buffer
        del self.T, self.buffer
        return buffer

    def _rebuild(self, weights: np.ndarray) -> None:
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
        for round_ in range(self.first_lists):
            if round_:
                self._sweep()
            if self._visit(clock):
                return

    def _visit(self, clock: Clock) -> bool:
        """Passes over the marked entries; return whether the fit seems done or time has expired."""
        lists, bounds, done = self._lists(), NO_LIMITS, False
        for _ in range(next(self.lengths)):
            near = self.expected <= NEAR * self.tol * self.scale
            S, bias_row = self.S.copy(), self.bias_row
            bounds = self._pass(lists, bounds)
            done = near and self._seems_done()
            if done:
                # T is not averaged: the certificate does not need it, and if that fails T is recomputed.
                np.add(lists.a, lists.before, out=lists.a)
                np.multiply(lists.a, self.real(0.5), out=lists.a)
                self.S, self.bias_row = 0.5 * (S + self.S), 0.5 * (bias_row + self.bias_row)
                break
            if clock.expired():
                done = True
                break
        rows = np.repeat(np.arange(self.n), np.diff(lists.starts))
        self.alpha[rows, lists.label] = lists.a
        return done

    def _sweep(self) -> None:
        """One pass over all entries, which marks those to list."""
        self._pass(self._empty_lists(self.L))

    def _empty_lists(self, size: int) -> loops.SampleLists:
        """Lists for `size` entries that belong to no sample yet."""
        nowhere, values = np.empty(0, np.int64), np.empty((5, size), self.real)
        return loops.SampleLists(nowhere, nowhere, np.empty(size, np.uint32), *values)

    def _lists(self) -> loops.SampleLists:
        """The marked entries of every sample."""
        self.listed = int(np.count_nonzero(self.flags))
        starts, counts = np.empty(self.n + 1, np.int64), np.empty(self.n, np.int64)
        lists = self._empty_lists(self.listed)._replace(starts=starts, counts=counts)
        loops.gather_entries(readonly(self.flags.view(np.uint8)), self.costs, self.alpha, lists)
        return lists

    def _pass(self, lists: loops.SampleLists, limits: Limits = NO_LIMITS) -> Limits:
        """One pass over the listed entries; return the bounds beyond which the next one skips them."""
        low, high = np.zeros((2, 2, self.L), self.real)
        low[0], high[0] = limits
        damping, bias = self.damping.values, self.problem.bias
        # Moved before the pass, so that samples respond before the gap is measured.
        self._set_bias(self.bias_row + damping * (bias * self.S - self.bias_row))
        before = self.S.copy()
        self.expected, primal = loops.sweep_samples(
            self.rows, self.costs, self._geometry(), self._order(), self.mixing,
            loops.Ascent(self.alpha, self.T, self.S), lists, Bounds(self.flags, low, high),
            self._small(),
        )  # fmt: skip
        if not len(lists.starts):
            self.scale = abs(primal + self.problem.costs.constant)
        self._set_bias(self.bias_row + damping * bias * (self.S - before))
        return shrinking_bounds(self.problem.prior, low[1], high[1])

    def _small(self) -> np.floating:
        """The gap below which an entry takes no step; 0 before there are lists."""
        return self.real(NEGLIGIBLE * self.tol * self.scale / self.listed if self.listed else 0.0)

    def _set_bias(self, row: np.ndarray) -> None:
        self.bias_row = row
        self.T[-1, : len(self.G)] = self.G @ row if self.factored else row

    def _measure(self) -> Certificate:
        sums = self.problem.measure(self.alpha, self.T, self.G, self.flags, self.n_threads, self.negligible)
        certificate = self._measured(sums)
        self.best.offer(certificate.primal, self.T)
        return certificate

    def _factors(self, weights: np.ndarray) -> np.ndarray:
        rank = len(self.G)
        weights = weights[:, :rank].astype(np.float64)
        return weights if self.factored else weights @ self.problem.factor.T
