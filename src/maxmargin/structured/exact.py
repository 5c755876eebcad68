"""Exact block solver: one simplex projection per block, few visits to blocks that are done.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. A visit to block i sets

    alpha_i <- projection of alpha_i + H_i / kappa_i on the simplex,

the best point of the block (Crammer and Singer 2001; Keerthi et al. 2008), after which
g_i = 0. No other step gains more from the same point, and none needs fewer numbers.

Which blocks are visited in a pass:

- *shrinking*: a block found optimal at a vertex waits 1, 3, 7, ... passes for its next visit,
  each time it is found so again; a block that moved is visited in every pass;
- *gap sampling*: a block whose last gap was well below the mean waits for one pass.

The primal point: P - D holds for any W, and W(alpha) swings around the optimum while alpha
moves, so that P(W(alpha)) falls late. The mean of W over the last passes is better by a factor
of three to ten and is what is certified, and what the model keeps, while `tol` is not tight
and W is small enough to be looked at a few times in a pass.

Stopping: the gaps found on arrival, summed over all blocks, say when a certificate is worth
its price. Then W(alpha) is recomputed in float64 for the dual and all samples are scored at
the primal point, nothing shrunk away; the run ends when that gap is at most `tol`. Where
scoring in working precision is much cheaper (a dense X with many zeros), that is done first.
Either pass gives every block its gap, which wakes the ones that were left out wrongly.

Active-set Newton: once it is known which coordinates end at a bound, the rest is a quadratic in
the free ones. With z_j the move of free coordinate j = (i, k) against the pivot p of its block, the
minimiser of T = -D solves

    G z = r,   G_jj' = C_i C_i' K_ii' <u_j, u_j'>,   r_j = C_i (H_ik - H_ip),   u_j = e_k - e_p,

K_ii' = x_i.x_i'. The step stops at the first bound it meets, and that coordinate stays there;
so every step raises the dual and an active set is solved after finitely many. Block sweeps find
it, these steps finish it: where sweeps need thousands of passes (large C, few features), a
few dozen steps reach the last digits. A step costs O(m^3) for m free coordinates, so it is
taken only while they are few.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg

from maxmargin.core.linalg import root_of_slope
from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress, squared_norm
from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.multiclass_loops import Snapshots
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    LinearIterate,
    LinearMultiClass,
    LinearSolution,
    Setup,
)

# Rows scored at a time for the best multiple of W.
PIECE = 4096
# The epoch of the first look at the best multiple of W, unless D rests before, and epochs between two looks.
FIRST_LOOK, LOOK = 60, 20
# D is at rest once an epoch raises it by no more than this part of what tol allows. On text D comes to rest
# so late that blocks are certified before.
AT_REST = 1e-4
# The longest wait of a block is 2**LONGEST - 1 passes.
LONGEST = 6
# Blocks with less than the first share of the mean gap sit out one pass; those with more than the second,
# when all gaps are known, are due at once.
QUIET, AWAKE = 0.5, 0.01
# Passes between two attempts to solve the active set by Newton steps.
NEWTON = 10
# A certificate that fails is followed by passes // CHECKS passes without one.
CHECKS = 6
# How much of the gaps found on arrival is expected to be there at the end of a pass, at first, and the range
# in which certificates correct that.
REMAINDER, LEAST, MOST = 0.6, 0.05, 2.0
# From this `tol` on the mean of W is evaluated; below it W itself settles.
AVERAGE_FROM = 1e-4
# W is added to the sum of its mean at most so many times in a sweep, at least so many visits apart when rows
# are full (sparser rows make that more expensive), and not at all in a sweep too short for so many times.
SNAPSHOTS, APART, FEWEST = 32, 10.0, 6


class RecentMean:
    """The mean of W during the last passes, each counting half as much as the one after it."""

    def __init__(self, iterate: LinearIterate) -> None:
        rows = iterate.problem.rows
        self.iterate = iterate
        self.apart = int(APART * rows.shape[0] * rows.shape[1] / max(rows.data.size, 1))
        self.forget()

    def forget(self) -> None:
        """Drop the snapshots of W, after a move that leaves them behind."""
        self.sums: np.ndarray | None = None
        self.count = np.zeros(1)

    def fade(self) -> None:
        """Halve the weight of the snapshots so far."""
        if self.sums is not None:
            self.sums *= self.sums.dtype.type(0.5)
            self.count *= 0.5

    def exact_sweep(self, order: np.ndarray, gaps: np.ndarray, idle: np.ndarray) -> float:
        """Let the iterate sweep and look at its W on the way."""
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

    def survey(self) -> tuple[float, np.ndarray] | None:
        """P at the mean and the block gaps there, in working precision; None if that is not cheap."""
        W = self.mean(self.iterate.dtype)
        return None if W is None else self.iterate.survey(W)


class ExactBlocks(Evaluated):
    """The solver "exact" with a linear kernel."""

    def __init__(
        self,
        problem: LinearMultiClass,
        setup: Setup,
        *,
        sampling: str = "gap",
        shrinking: bool = True,
        newton: bool = True,
        averaging: bool = True,
    ) -> None:
        self.problem, self.tol, self.rng = problem, setup.tol, setup.rng
        self.sampling, self.shrinking = sampling == "gap", shrinking
        self.averaging = averaging and self.tol >= AVERAGE_FROM
        self.active_set = newton
        self._work_on(iterate := problem.iterate(setup))
        n = problem.n
        self.gaps = np.full(n, np.inf)
        self.gaps[problem.costs == 0] = 0.0
        self.idle = np.zeros(n, np.bool_)
        self.streak, self.due = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.visited = np.empty(len(problem.present) + 1, np.int64)
        self.passes = self.next_check = 0
        self.remainder = REMAINDER
        self.best = BestWeights()
        self.dual = iterate.dual()

    def _work_on(self, iterate: LinearIterate) -> None:
        self.iterate = iterate
        self.mean = RecentMean(iterate) if self.averaging else None
        double = iterate.dtype == np.float64
        self.newton = self.active_set and double
        # Gaps come no closer to zero than a step of alpha next to 1 in single precision lets them.
        step = float(np.finfo(np.float32).eps) * max(float(self.problem.kappa.max(initial=0.0)), 1.0)
        self.coarse = 0.0 if double else step * float(self.problem.costs.sum())

    def _move(self, clock: Clock) -> Progress:
        """Visit the blocks that are due; certify when the gaps found look small enough."""
        visited = self._due()
        self._sweep(shuffled(visited, self.iterate.run_length, self.rng), clock)
        found = float(self.gaps.sum())
        if self.newton and (self.passes + 1) % NEWTON == 0:
            self._solve_active_set()
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
        """The model that `certify` speaks of."""
        certificate, here = self.current()
        return here._replace(weights=self.best.weights) if self.best.primal < certificate.primal else here

    def current(self) -> tuple[Certificate, LinearSolution]:
        """P and D of the stored blocks, and their model: the better of the mean of W and W itself."""
        here = self._evaluated()
        return here.certificate, self.iterate.solution(here)

    def _evaluate(self) -> Evaluation:
        """What the blocks prove, at the better of the mean of W and W itself."""
        W = None if self.mean is None else self.mean.mean(np.float64)
        if self.mean is None or W is None:
            return self.iterate.evaluate()
        at_mean = self.mean.iterate.evaluate(W)
        if at_mean.certificate.gap <= self.tol:
            return at_mean
        # Not done: the gaps at W(alpha) itself are those that the next pass will meet.
        at_weights = self.mean.iterate.evaluate(image=at_mean.image)
        if at_weights.certificate.primal <= at_mean.certificate.primal:
            return at_weights
        return at_mean._replace(gaps=at_weights.gaps)

    def _sweep(self, order: np.ndarray, clock: Clock) -> None:
        if self.mean is not None:
            self.mean.fade()
        for part in np.array_split(order, -(-len(order) // self.iterate.stride)):
            sweep = self.iterate.exact_sweep if self.mean is None else self.mean.exact_sweep
            self.dual += sweep(part, self.gaps, self.idle)
            if clock.expired():
                break

    def _solve_active_set(self) -> None:
        if active_set_newton(self.problem, self.iterate):
            self.dual = self.iterate.dual()
            if self.mean is not None:
                self.mean.forget()

    def _promising(self, found: float) -> bool:
        """Whether a certificate is worth its price, after a cheaper look where there is one."""
        close = self.remainder * found <= self.tol * (self.dual + found)
        if not close or self.passes < self.next_check:
            return False
        self.next_check = self.passes + 1 + self.passes // CHECKS
        seen = None if self.mean is None else self.mean.survey()
        if seen is None or Certificate(seen[0], self.dual).gap <= self.tol:
            return True
        self.next_check = self.passes + 2
        self._expect(seen[0] - self.dual, found)
        self._wake(seen[1])
        return False

    def _learn_from(self, evaluation: Evaluation) -> None:
        """Go on from what was computed anew."""
        certificate = evaluation.certificate
        if certificate.gap > self.tol:
            self.iterate.resync(evaluation)
            self.best.offer(certificate.primal, evaluation.answer[:, : self.problem.c])
        self.dual = certificate.dual
        self._wake(evaluation.gaps)

    def _expect(self, gap: float, found: float) -> None:
        if found > 0 and np.isfinite(found):
            self.remainder = min(max(gap / found, LEAST), MOST)

    def _wake(self, gaps: np.ndarray) -> None:
        """Blocks with a gap are due at once; the others have just been seen to be done."""
        self.gaps = gaps.copy()
        awake = gaps > AWAKE * gaps.mean()
        self.streak[awake] = 0
        self.due[awake] = self.passes

    def _due(self) -> np.ndarray:
        present = self.problem.present
        if not (self.shrinking or self.sampling):
            return present
        while True:
            size = loops.due_blocks(present, self.due, self.passes, self.visited)
            if size:
                return self.visited[:size].copy()
            self.passes += 1

    def _reschedule(self, visited: np.ndarray, found: float) -> None:
        self.passes += 1
        quiet = QUIET * found / self.problem.n if self.sampling else -1.0
        longest = LONGEST if self.shrinking else 0
        loops.postpone(
            readonly(visited), self.gaps, self.idle, self.passes, quiet, longest, self.streak, self.due
        )


class Shortfall:
    """The losses of s W as a function of s >= 1, from the samples whose loss at W is not zero."""

    def __init__(self, problem: LinearMultiClass, W: np.ndarray) -> None:
        self.problem, self.square = problem, squared_norm(W)
        parts = [self._part(W, slice(first, first + PIECE)) for first in range(0, problem.n, PIECE)]
        self.costs, self.Delta, self.changes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _part(self, W: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Costs, Delta and differences of the scores of some samples; those of no loss stay so as s grows."""
        problem, y = self.problem, self.problem.y[part]
        rows = problem.rows.matrix[part].astype(np.float64)
        changes = rows @ W[:-1] + problem.bias * W[-1]
        changes -= changes[np.arange(len(y)), y][:, None]
        Delta = problem.labels.Delta[y]
        short = (Delta + changes).max(axis=1) > 0
        return problem.costs[part][short], Delta[short], changes[short]

    def losses(self, s: float) -> tuple[float, float]:
        """The losses of s W, and their slope in s."""
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

    For classes that a linear model separates, P(W) tells nothing long after D has settled: with a large C
    the optimum is a small W with hardly a loss, and W(alpha) falls short of many margins by a little, each of
    which costs C. P bounds the optimum at any point, so it is also taken at the best multiple of W(alpha),

        P(s W) = s^2 / 2 |W|^2 + sum_i C_i loss_i(s W),    1 <= s <= sqrt(2 P(W)) / |W|,

    convex in s: as soon as D has come to rest, or from epoch `first_look` on, and every `LOOK` epochs then.
    """

    def __init__(
        self, problem: LinearMultiClass, setup: Setup, *, first_look: int = FIRST_LOOK, **options: Any
    ) -> None:
        self.problem, self.tol, self.first_look = problem, setup.tol, first_look
        self.blocks = ExactBlocks(problem, setup, **options)
        self.epochs, self.dual, self.rested = 0, -np.inf, False

    def _move(self, clock: Clock) -> Progress:
        progress = self.blocks.epoch(clock)
        visited = progress.active
        while not progress.exact and visited < self.problem.n and not clock.expired():
            progress = self.blocks.epoch(clock)
            visited += progress.active
        self.epochs += 1
        rise, self.dual = progress.certificate.dual - self.dual, progress.certificate.dual
        rests = not self.rested and rise <= AT_REST * self.tol * abs(self.dual)
        self.rested |= rests
        due = self.rested or self.epochs >= self.first_look
        if rests or (due and self.epochs % LOOK == 0):
            solution, certificate = self._evaluated()
            self.blocks.best.offer(certificate.primal, solution.weights)
            return Progress(certificate, visited, exact=True)
        return replace(progress, active=visited)

    def _evaluate(self) -> tuple[LinearSolution, Certificate]:
        """The better of the best weights of the blocks and the best multiple of their last ones."""
        certificate, solution = self.blocks.certify(), self.blocks.solution()
        if certificate.gap <= self.tol:
            return solution, certificate
        last = self.blocks.current()[1]
        s, primal = Shortfall(self.problem, last.weights).best()
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


def active_set_newton(
    problem: LinearMultiClass, iterate: LinearIterate, *, most_free: int = 400, most_steps: int = 100
) -> int:
    """Take Newton steps until the active set is solved; returns how many were taken.

    None while more than `most_free` coordinates are free.
    """
    if not 0 < np.count_nonzero(interior(problem, iterate.alpha)) <= most_free:
        return 0
    for taken in range(most_steps):
        samples = np.flatnonzero(interior(problem, iterate.alpha))
        if not 0 < len(samples) <= most_free:
            return taken
        alpha = iterate.alpha[samples]
        free, pivots, lower, upper = bounds(problem, alpha, samples)
        at, classes = np.nonzero(free)
        if not 0 < len(at) <= most_free:
            return taken
        z = newton_moves(problem, iterate, samples, at, classes, pivots[at])
        delta = np.zeros_like(alpha)
        delta[at, classes] = z
        np.subtract.at(delta, (at, pivots[at]), z)
        gamma, hit = longest_step(alpha, delta, lower, upper)
        new = alpha + min(gamma, 1.0) * delta
        if gamma <= 1.0:
            new[hit] = (lower if delta[hit] < 0 else upper)[hit]
        iterate.move(samples, rebalanced(problem, new, samples))
        if gamma > 1.0:
            return taken + 1
    return most_steps


def newton_moves(
    problem: LinearMultiClass,
    iterate: LinearIterate,
    samples: np.ndarray,
    at: np.ndarray,
    classes: np.ndarray,
    pivots: np.ndarray,
    ridge: float = 1e-13,
) -> np.ndarray:
    """Moves of the free coordinates (samples[at], class) to the minimum over them.

    `ridge` is added to the diagonal of G, relative to its mean, so that flat directions run into a
    bound.
    """
    costs = problem.costs[samples][at]
    H = iterate.margins(samples)
    r = costs * (H[at, classes] - H[at, pivots])
    overlap = (classes[:, None] == classes).astype(float) + (pivots[:, None] == pivots)
    overlap -= (classes[:, None] == pivots).astype(float) + (pivots[:, None] == classes)
    G = problem.products(samples)[np.ix_(at, at)] * (costs[:, None] * costs) * overlap
    G[np.diag_indices_from(G)] += ridge * np.trace(G) / len(G) + np.finfo(float).tiny
    try:
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(G), r)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(G, r, rcond=None)[0]


def interior(problem: LinearMultiClass, alpha: np.ndarray) -> np.ndarray:
    """Samples whose block is not at a vertex."""
    inside = (alpha > 0) & (alpha < 1)
    inside[np.arange(problem.n), problem.y] &= problem.loss == loops.CRAMMER_SINGER
    return inside.any(axis=1) & (problem.costs > 0)


def bounds(problem: LinearMultiClass, alpha: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, ...]:
    """Free coordinates (mask), pivots, lower and upper bounds of the blocks of some samples.

    On a simplex the upper bounds follow from the lower ones.
    """
    here = np.arange(len(samples))
    free = (alpha > 0) & (alpha < 1)
    lower, upper = np.zeros(alpha.shape), np.full(alpha.shape, np.inf)
    if problem.loss == loops.CRAMMER_SINGER:
        pivots = np.argmax(alpha, axis=1)
    else:
        pivots = problem.y[samples]
        upper[:] = 1.0
        lower[here, pivots], upper[here, pivots] = -np.inf, np.inf
    free[here, pivots] = False
    return free, pivots, lower, upper


def longest_step(
    alpha: np.ndarray, delta: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, tuple[int, int]]:
    """Longest step that keeps lower <= alpha <= upper, and the coordinate that stops it."""
    bound = np.where(delta < 0, lower, upper)
    longest = np.full(alpha.shape, np.inf)
    np.divide(bound - alpha, delta, out=longest, where=delta != 0)
    hit = np.unravel_index(int(np.argmin(longest)), longest.shape)
    return float(longest[hit]), (int(hit[0]), int(hit[1]))


def rebalanced(problem: LinearMultiClass, blocks: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Blocks that sum to one exactly: the largest coordinate, or the truth's, takes the rounding."""
    here = np.arange(len(blocks))
    takes = np.argmax(blocks, axis=1) if problem.loss == loops.CRAMMER_SINGER else problem.y[samples]
    blocks[here, takes] = 0.0
    blocks[here, takes] = 1.0 - blocks.sum(axis=1)
    return blocks
