"""The solver "exact" with a linear kernel: one simplex projection per block visit.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. A visit to block i sets

    alpha_i <- projection of alpha_i + H_i / kappa_i on the simplex,

the minimiser over the block (Crammer and Singer 2001; Keerthi et al. 2008), after which g_i = 0.

Two rules choose the blocks of a pass:

- *shrinking*: a block found optimal at a vertex waits 1, 3, 7, ... passes for its next visit; the wait
  grows each time it is found optimal again. A block that moved is visited in every pass;
- *gap sampling*: a block whose last gap was well below the mean waits for one pass.

The primal point: P - D is a valid gap for any W. W(alpha) oscillates around the optimum while alpha
moves, so P(W(alpha)) falls late. The mean of W over the last passes has a gap three to ten times smaller.
It is certified, and stored in the model, if `tol` is not tight and W is small enough to be added up
several times in a pass.

Stopping: the sum of the gaps found on arrival decides when to compute a certificate. Then W(alpha) is
recomputed in float64 for the dual and all samples are scored at the primal point, without shrinking. The
run ends when that gap is at most `tol`. A dense X with many zeros is first scored in working precision,
which is much cheaper. Either pass updates the gap of every block and reactivates blocks with a gap.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from maxmargin.core.linalg import root_of_slope
from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress, squared_norm
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.multiclass_loops import Snapshots
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    LinearIterate,
    LinearMultiClass,
    LinearSolution,
    Setup,
)

# Rows scored at a time in the search for the best multiple of W.
CHUNK = 4096
# The best multiple of W is computed from this epoch on, or once D has stopped rising, every so many epochs.
FIRST_MULTIPLE, MULTIPLE_EVERY = 60, 20
# D has stopped rising when an epoch raises it by at most this share of the gap that tol allows.
STOPPED = 1e-4
# The longest wait of a block is 2**LONGEST - 1 passes.
LONGEST = 6
# A block with less than the first share of the mean gap waits for one pass. When all gaps are known, a block
# with more than the second share is visited in the next pass.
SMALL, REACTIVATE = 0.5, 0.01
# A certificate that fails is followed by passes // CHECKS passes without one.
CHECKS = 6
# Expected ratio of the certified gap to the sum of the gaps found on arrival: start value and range.
RATIO, LEAST, MOST = 0.6, 0.05, 2.0
# The mean of W is evaluated for a `tol` of at least this; for a smaller one W itself is.
AVERAGE_FROM = 1e-4
# W is added to its mean at most SNAPSHOTS times in a sweep, at least APART visits apart for full rows (more
# for sparse rows), and not at all in a sweep too short for FEWEST additions.
SNAPSHOTS, APART, FEWEST = 32, 10.0, 6


class RecentMean:
    """The mean of W during the last passes, each counting half as much as the one after it."""

    def __init__(self, iterate: LinearIterate) -> None:
        rows = iterate.problem.rows
        self.iterate = iterate
        self.apart = int(APART * rows.shape[0] * rows.shape[1] / max(rows.data.size, 1))
        self.forget()

    def forget(self) -> None:
        """Drop the snapshots of W."""
        self.sums: np.ndarray | None = None
        self.count = np.zeros(1)

    def decay(self) -> None:
        """Halve the weight of the snapshots so far."""
        if self.sums is not None:
            self.sums *= self.sums.dtype.type(0.5)
            self.count *= 0.5

    def exact_sweep(self, order: np.ndarray, gaps: np.ndarray, idle: np.ndarray) -> float:
        """Run a sweep of the iterate and add its W to the mean on the way."""
        every = max(len(order) // SNAPSHOTS, self.apart)
        if FEWEST * every > len(order):
            self.forget()
            return self.iterate.exact_sweep(order, gaps, idle)
        if self.sums is None:
            self.sums = self.iterate.problem.zeros(self.iterate.dtype)
        return self.iterate.exact_sweep(order, gaps, idle, Snapshots(every, self.sums, self.count))

    def mean(self, dtype: Any) -> np.ndarray | None:
        """The mean in the given precision, None without snapshots."""
        if self.sums is None or not self.count[0]:
            return None
        return np.divide(self.sums, self.count[0], dtype=dtype)

    def estimate(self) -> tuple[float, np.ndarray] | None:
        """P at the mean and the block gaps there, in working precision; None if that is not cheap."""
        W = self.mean(self.iterate.dtype)
        return None if W is None else self.iterate.estimate(W)


class ExactBlocks(Evaluated):
    """The solver "exact" with a linear kernel."""

    def __init__(
        self,
        problem: LinearMultiClass,
        setup: Setup,
        *,
        sampling: str = "gap",
        shrinking: bool = True,
        averaging: bool = True,
    ) -> None:
        self.problem, self.tol, self.rng = problem, setup.tol, setup.rng
        self.sampling, self.shrinking = sampling == "gap", shrinking
        self.averaging = averaging and self.tol >= AVERAGE_FROM
        self._work_on(iterate := problem.iterate(setup))
        n = problem.n
        self.gaps = np.full(n, np.inf)
        self.gaps[problem.costs == 0] = 0.0
        self.idle = np.zeros(n, np.bool_)
        self.streak, self.due = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.passes = self.next_check = 0
        self.ratio = RATIO
        self.best = BestWeights()
        self.dual = iterate.dual()

    def _work_on(self, iterate: LinearIterate) -> None:
        self.iterate = iterate
        self.mean = RecentMean(iterate) if self.averaging else None
        double = iterate.dtype == np.float64
        # Rounding of alpha next to 1 in single precision leaves gaps of this size.
        step = float(np.finfo(np.float32).eps) * max(float(self.problem.kappa.max(initial=0.0)), 1.0)
        self.coarse = 0.0 if double else step * float(self.problem.costs.sum())

    def _move(self, clock: Clock) -> Progress:
        """Visit the blocks that are due; certify when the gaps found are small enough."""
        visited = self._due()
        self._sweep(shuffled(visited, self.iterate.run_length, self.rng), clock)
        found = float(self.gaps.sum())
        self._reschedule(visited, found)
        promising = self._promising(found)
        if not promising and found <= self.coarse:
            blocks = self.problem.normalised(self.iterate.blocks(), False)
            self._work_on(self.problem.iterate(Setup(self.tol, self.rng, blocks)))
        if promising or Certificate(self.best.primal, self.dual).gap <= self.tol:
            evaluation = self._evaluated()
            self._learn_from(evaluation)
            if promising:
                self._expect(evaluation.certificate.primal - evaluation.certificate.dual, found)
            return Progress(self.certify(), len(visited), exact=True)
        return Progress(Certificate(self.best.primal, self.dual), len(visited))

    def certify(self) -> Certificate:
        """D of the stored blocks, P at the best of the mean of W, W itself and those certified before."""
        here = self._evaluated().certificate
        return Certificate(min(here.primal, self.best.primal), here.dual)

    def solution(self) -> LinearSolution:
        """The model of the certificate."""
        certificate, here = self.current()
        return here._replace(weights=self.best.weights) if self.best.primal < certificate.primal else here

    def current(self) -> tuple[Certificate, LinearSolution]:
        """P and D of the stored blocks, and their model: the better of the mean of W and W itself."""
        here = self._evaluated()
        return here.certificate, self.iterate.solution(here)

    def _evaluate(self) -> Evaluation:
        """Certificate of the blocks at the better of the mean of W and W itself."""
        W = None if self.mean is None else self.mean.mean(np.float64)
        if self.mean is None or W is None:
            return self.iterate.evaluate()
        at_mean = self.mean.iterate.evaluate(W)
        if at_mean.certificate.gap <= self.tol:
            return at_mean
        # The next pass starts from W(alpha), so the gaps there schedule its blocks.
        at_weights = self.mean.iterate.evaluate(image=at_mean.image)
        if at_weights.certificate.primal <= at_mean.certificate.primal:
            return at_weights
        return at_mean._replace(gaps=at_weights.gaps)

    def _sweep(self, order: np.ndarray, clock: Clock) -> None:
        if self.mean is not None:
            self.mean.decay()
        for part in np.array_split(order, -(-len(order) // self.iterate.stride)):
            sweep = self.iterate.exact_sweep if self.mean is None else self.mean.exact_sweep
            self.dual += sweep(part, self.gaps, self.idle)
            if clock.expired():
                break

    def _promising(self, found: float) -> bool:
        """Whether to compute a certificate; an estimate in working precision decides where that is cheap."""
        close = self.ratio * found <= self.tol * (self.dual + found)
        if not close or self.passes < self.next_check:
            return False
        self.next_check = self.passes + 1 + self.passes // CHECKS
        estimate = None if self.mean is None else self.mean.estimate()
        if estimate is None or Certificate(estimate[0], self.dual).gap <= self.tol:
            return True
        self.next_check = self.passes + 2
        self._expect(estimate[0] - self.dual, found)
        self._reactivate(estimate[1])
        return False

    def _learn_from(self, evaluation: Evaluation) -> None:
        """Continue from the recomputed W, dual and gaps."""
        certificate = evaluation.certificate
        if certificate.gap > self.tol:
            self.iterate.resync(evaluation)
            self.best.offer(certificate.primal, evaluation.answer[:, : self.problem.c])
        self.dual = certificate.dual
        self._reactivate(evaluation.gaps)

    def _expect(self, gap: float, found: float) -> None:
        if found > 0 and np.isfinite(found):
            self.ratio = min(max(gap / found, LEAST), MOST)

    def _reactivate(self, gaps: np.ndarray) -> None:
        """Schedule blocks with a gap for the next pass; the others have no gap at present."""
        self.gaps = gaps.copy()
        active = gaps > REACTIVATE * gaps.mean()
        self.streak[active] = 0
        self.due[active] = self.passes

    def _due(self) -> np.ndarray:
        """The blocks of the next pass; passes without any are skipped."""
        present = self.problem.present
        due = self.due[present]
        if len(due):
            self.passes = max(self.passes, int(due.min()))
        return present[due <= self.passes]

    def _reschedule(self, visited: np.ndarray, found: float) -> None:
        """Set the next visit of the visited blocks by shrinking and gap sampling."""
        self.passes += 1
        wait = np.zeros(len(visited), np.int64)
        if self.sampling:
            wait[self.gaps[visited] <= SMALL * found / self.problem.n] = 1
        if self.shrinking:
            idle = self.idle[visited]
            streak = np.where(idle, np.minimum(self.streak[visited] + 1, LONGEST), 0)
            self.streak[visited] = streak
            wait = np.where(idle, (1 << streak) - 1, wait)
        self.due[visited] = self.passes + wait


class LossesOfMultiples:
    """The losses of s W as a function of s >= 1, from the samples whose loss at W is not zero."""

    def __init__(self, problem: LinearMultiClass, W: np.ndarray) -> None:
        self.problem, self.square = problem, squared_norm(W)
        parts = [self._part(W, slice(first, first + CHUNK)) for first in range(0, problem.n, CHUNK)]
        self.costs, self.Delta, self.changes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _part(self, W: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Costs, Delta and score differences of samples with a loss; the others have none at a larger s."""
        problem, y = self.problem, self.problem.y[part]
        rows = problem.rows.matrix[part].astype(np.float64)
        changes = rows @ W[:-1] + problem.bias * W[-1]
        changes -= changes[np.arange(len(y)), y][:, None]
        Delta = problem.labels.Delta[y]
        violated = (Delta + changes).max(axis=1) > 0
        return problem.costs[part][violated], Delta[violated], changes[violated]

    def losses(self, s: float) -> tuple[float, float]:
        """The losses of s W and their derivative in s."""
        H = self.Delta + s * self.changes
        if self.problem.loss == loops.CRAMMER_SINGER:
            at = np.arange(len(H)), H.argmax(axis=1)
            losses, slopes = H[at], self.changes[at]
        else:
            losses = np.maximum(H, 0).sum(axis=1)
            slopes = np.where(H > 0, self.changes, 0.0).sum(axis=1)
        return float(self.costs @ losses), float(self.costs @ slopes)

    def primal(self, s: float) -> float:
        """P(s W)."""
        return 0.5 * s * s * self.square + self.losses(s)[0]

    def best(self) -> tuple[float, float]:
        """The best multiple s, and P(s W)."""
        longest = math.sqrt(2 * self.primal(1.0) / self.square) - 1 if self.square else 0.0
        longest = max(longest, 0.0)
        t = root_of_slope(lambda t: (self.losses(1 + t)[1], 0.0), self.square, self.square, longest)
        return 1 + t, self.primal(1 + t)


class FullEpochs(Evaluated):
    """Exact block steps whose epochs visit n blocks each, and whose model may be a multiple of W.

    For separable classes and a large C, P(W) stays large long after D has converged: W(alpha) misses many
    margins by a little, and each of them costs C. P bounds the optimum at any point, so it is also evaluated
    at the best multiple of W(alpha), which minimises the convex function

        P(s W) = s^2 / 2 |W|^2 + sum_i C_i loss_i(s W),    1 <= s <= sqrt(2 P(W)) / |W|.

    This is done once D has stopped rising, or from epoch `first_multiple` on, and then every
    `MULTIPLE_EVERY` epochs.
    """

    def __init__(
        self,
        problem: LinearMultiClass,
        setup: Setup,
        *,
        first_multiple: int = FIRST_MULTIPLE,
        **options: Any,
    ) -> None:
        self.problem, self.tol, self.first_multiple = problem, setup.tol, first_multiple
        self.blocks = ExactBlocks(problem, setup, **options)
        self.epochs, self.dual, self.stopped = 0, -np.inf, False

    def _move(self, clock: Clock) -> Progress:
        progress = self.blocks.epoch(clock)
        visited = progress.active
        while not progress.exact and visited < self.problem.n and not clock.expired():
            progress = self.blocks.epoch(clock)
            visited += progress.active
        self.epochs += 1
        rise, self.dual = progress.certificate.dual - self.dual, progress.certificate.dual
        stops = not self.stopped and rise <= STOPPED * self.tol * abs(self.dual)
        self.stopped |= stops
        due = self.stopped or self.epochs >= self.first_multiple
        if stops or (due and self.epochs % MULTIPLE_EVERY == 0):
            solution, certificate = self._evaluated()
            self.blocks.best.offer(certificate.primal, solution.weights)
            return Progress(certificate, visited, exact=True)
        return replace(progress, active=visited)

    def _evaluate(self) -> tuple[LinearSolution, Certificate]:
        """The best weights of the blocks, or the best multiple of the last ones if that is better."""
        certificate, solution = self.blocks.certify(), self.blocks.solution()
        if certificate.gap <= self.tol:
            return solution, certificate
        last = self.blocks.current()[1]
        s, primal = LossesOfMultiples(self.problem, last.weights).best()
        if primal >= certificate.primal:
            return solution, certificate
        return last._replace(weights=s * last.weights), Certificate(primal, certificate.dual)


def shuffled(visited: np.ndarray, run_length: int, rng: Any) -> np.ndarray:
    """Samples in random order, in runs of neighbours when they are many."""
    if run_length == 1 or len(visited) < 64 * run_length:
        return rng.permutation(visited)
    whole = len(visited) // run_length * run_length
    runs = rng.permutation(visited[:whole].reshape(-1, run_length))
    return np.concatenate([runs.ravel(), visited[whole:]])
