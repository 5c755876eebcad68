"""Fast exact solver for kernelised M3L: block sweeps, greedy pair steps, Newton.

Problem, dual, gap and letters are those of `problems.m3l_kernel`: signed coefficients B
between lo and hi, residuals E = T - K B R, all label-major. K is shared by all labels.

Three moves, all of which only ever raise the dual objective:

- *block sweeps*: a few one-variable sweeps over all labels of 64 samples inside their
  64 x 64 kernel, then one matrix product carries the change to all residuals. Cheap per
  coefficient (BLAS), so they make the first rough solution. A prior of low rank is applied
  in its factors.
- *pair steps* on one label: the most violating coefficient and its best partner (as in
  `solvers.smo`) are moved together; the pass that updates the residual also finds the next
  violation. They end when the gap of the label has fallen to its share of the goal; with a
  prior that ties labels, already when it has fallen to a quarter. Labels that are not tied
  run in threads.
- *Newton*: when the pair steps on a label have cost as much as a Cholesky factorisation of
  K on its free coefficients, that system is solved and the step cut to the box.

When K does not fit in memory, samples are taken in random chunks whose own kernel does
fit; the moves run inside the chunk and its change is carried to all residuals in blocks.

Training stops on the relative duality gap, recomputed in float64 from B. Work in float32
changes over to float64 when rounding keeps the gap from falling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from maxmargin._jit import kernel_m3l as loops
from maxmargin._rows import readonly
from maxmargin._threads import run_threads
from maxmargin.solvers._loop import Certificate, Clock, Progress, require

CONTRACT = (
    "K", "prior", "coupled", "low_rank", "target", "bounds", "constant", "feasible", "scores",
    "certificate", "precise",
)  # fmt: skip
BLOCK = 64
SWEEPS_PER_BLOCK = 2
# Block sweeps make way for pair steps below this relative gap, or after this many epochs.
SWEEP_UNTIL = 0.05
SWEEP_EPOCHS = 4
# How far one visit takes the gap of a label: all the way, or to where others move it again.
REDUCTION_ALONE = 0.01
REDUCTION_TIED = 0.25
NEWTON_MOST = 4000
NEWTON_ROUNDS = 5
RIDGE = 1e-10
SINGULAR = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
STALLS_ALLOWED = 2


class PairDescent:
    """State of the method; `B` is the solution, label-major, in working precision.

    Parameters
    ----------
    problem : KernelM3L
    tol : float
        The relative gap that training stops at; label visits aim at it.
    rng : numpy.random.Generator
        Draws the order of the samples in the block sweeps.
    n_threads : int, default=1
        Threads over labels, when the prior ties none.
    start : array of shape (n_labels, n_samples), default=None
        A feasible B to start from.
    """

    def __init__(
        self,
        problem: Any,
        tol: float,
        rng: np.random.Generator,
        n_threads: int = 1,
        start: np.ndarray | None = None,
    ) -> None:
        require(problem, CONTRACT, "PairDescent")
        self.tol, self.rng, self.n_threads = tol, rng, n_threads
        self.swept = self.stalls = 0
        self.best = np.inf
        self._load(problem, np.zeros(problem.target.shape) if start is None else start)

    def epoch(self, clock: Clock) -> Progress:
        """One pass over all samples (block sweeps) or over all labels (pair steps)."""
        if self.stalls > STALLS_ALLOWED and self.E.dtype != np.float64:
            self._load(self.problem.precise(), self.solution())
        K = self.problem.K
        if K.whole is not None:
            self._improve(readonly(K.whole), self.E, self.B, self.lo, self.hi, self.T, clock)
        else:
            for samples in self._chunks():
                self._improve_chunk(samples, clock)
                if clock.expired():
                    break
        progress = self._progress()
        gap = progress.certificate.gap
        self.stalls = 0 if gap < 0.9 * self.best else self.stalls + 1
        self.best = min(gap, self.best)
        return progress

    def certify(self) -> Certificate:
        """Recompute residuals and certificate from B, in float64."""
        B = self.problem.feasible(self.B)
        F = self.problem.scores(B)
        np.subtract(self.problem.target, F, out=self.E, casting="same_kind")
        certificate = self.problem.certificate(B, F)
        if certificate.gap > self.best:
            self.best, self.stalls = np.inf, self.stalls + 1
        return certificate

    def solution(self) -> np.ndarray:
        """The dual solution that `certify` speaks of, in float64."""
        return self.problem.feasible(self.B)

    def _load(self, problem: Any, B: np.ndarray) -> None:
        """Take up a problem in the precision in which its kernel values are kept."""
        self.problem = problem
        dtype = problem.K.dtype
        self.stalls = 0
        self.T = readonly(problem.target.astype(dtype))
        self.lo, self.hi = (readonly(bound.astype(dtype)) for bound in problem.bounds)
        self.R, self.diagonal = readonly(problem.prior.astype(dtype)), problem.K.diagonal.astype(dtype)
        self.r = readonly(np.diag(self.R).copy())
        self.P = None if problem.low_rank is None else problem.low_rank.astype(dtype)
        self.B = B.astype(dtype)
        E = problem.target - problem.scores(B) if B.any() else problem.target
        self.E = E.astype(dtype)

    def _progress(self) -> Progress:
        gaps, duals = self._measure(self.E, self.B, self.lo, self.hi, self.T)
        dual = float(duals.sum()) + self.problem.constant
        movable = loops.count_movable(self.E, self.B, self.lo, self.hi)
        return Progress(Certificate(dual + float(gaps.sum()), dual), movable)

    @staticmethod
    def _measure(E: Any, B: Any, lo: Any, hi: Any, T: Any) -> tuple[np.ndarray, np.ndarray]:
        """Gap and dual objective, label by label."""
        gaps = [loops.label_gap(*label) for label in zip(E, B, lo, hi, strict=True)]
        duals = [loops.label_dual(*label) for label in zip(E, B, T, strict=True)]
        return np.array(gaps), np.array(duals)

    def _improve(
        self, K: Any, E: Any, B: Any, lo: Any, hi: Any, T: Any, clock: Clock, part: Any = None
    ) -> None:
        """One epoch on samples whose kernel K is at hand (`part`: those of a chunk)."""
        gaps, duals = self._measure(E, B, lo, hi, T)
        gap, primal = float(gaps.sum()), float(gaps.sum() + duals.sum()) + self.problem.constant
        if gap > SWEEP_UNTIL * abs(primal) and self.swept < SWEEP_EPOCHS:
            self._sweep(K, E, B, lo, hi, clock)
            self.swept += part is None
            if part is None:
                return
            gaps, duals = self._measure(E, B, lo, hi, T)
            gap = float(gaps.sum())
        if gap <= 0:
            return
        dual = abs(float(duals.sum()) + self.problem.constant)
        patient = part is None and not self.problem.coupled
        least = REDUCTION_ALONE if patient else REDUCTION_TIED
        reduction = max(min(0.9 * self.tol * dual / gap, 1.0), least)
        diagonal = readonly(self.diagonal if part is None else self.diagonal[part])
        work = [(l, K, diagonal, E, B, lo, hi, reduction, clock) for l in np.argsort(-gaps)]
        if self.problem.coupled:
            for task in work:
                self._visit_tied(*task)
        else:
            run_threads(lambda task: self._visit(*task), work, self.n_threads)

    def _sweep(self, K: Any, E: Any, B: Any, lo: Any, hi: Any, clock: Clock) -> None:
        """Block sweeps over all samples in random order."""
        order = self.rng.permutation(K.shape[0])
        for begin in range(0, len(order), BLOCK):
            samples = np.sort(order[begin : begin + BLOCK])
            rows = K[samples]
            inside = readonly(rows[:, samples])
            changes = np.empty((len(E), len(samples)), E.dtype)
            if self.problem.coupled:
                loops.coupled_block_sweeps(inside, self.R, samples, E, B, lo, hi, SWEEPS_PER_BLOCK, changes)
            else:
                loops.block_sweeps(inside, self.r, samples, E, B, lo, hi, SWEEPS_PER_BLOCK, changes)
            E -= self._mix(changes, rows)
            if clock.expired():
                return

    def _mix(self, changes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """R changes K[rows], in the cheapest order."""
        if self.P is not None:
            return self.P.T @ ((self.P @ changes) @ rows)
        if self.problem.coupled:
            return (self.R @ changes) @ rows
        return (self.r[:, None] * changes) @ rows

    def _visit_tied(self, l: int, K: Any, diagonal: Any, E: Any, *rest: Any) -> None:
        """Pair steps on one label, then their effect on all labels tied to it."""
        before = E[l].copy()
        self._visit(l, K, diagonal, E, *rest)
        before -= E[l]
        before /= self.r[l]
        loops.carry(l, self.R, before, E)

    def _visit(
        self, l: int, K: Any, diagonal: Any, E: Any, B: Any, lo: Any, hi: Any, reduction: float, clock: Clock
    ) -> None:
        """Bring the gap of one label down by the factor `reduction`."""
        label = E[l], B[l], lo[l], hi[l]
        target = reduction * loops.label_gap(*label)
        if target <= 0 or clock.expired():
            return
        n = len(diagonal)
        work = np.empty((4, n), E.dtype)
        bits = work.view(np.int32 if E.dtype == np.float32 else np.int64)
        singular = E.dtype.type(SINGULAR[E.dtype])
        for _ in range(NEWTON_ROUNDS):
            free = np.flatnonzero((B[l] > lo[l]) & (B[l] < hi[l]))
            # A pair step costs about n nanoseconds, a factorisation m^3/90 + m^2.
            budget = max(n, int((len(free) ** 3 / 90 + len(free) ** 2) / n))
            steps, gap = loops.fast_label(
                K, diagonal, self.r[l], *label, work, bits, budget, target, singular
            )
            if gap <= target or steps < budget or clock.expired():
                return
            newton_step(K, self.r[l], *label)

    def _chunks(self) -> list[np.ndarray]:
        """Random chunks of samples whose own kernel fits in memory."""
        K = self.problem.K
        n = K.n
        size = int(np.sqrt(K.cache_size * 2**20 / K.dtype.itemsize))
        size = min(max(size, BLOCK), n)
        n_chunks = -(-n // size)
        return [np.sort(part) for part in np.array_split(self.rng.permutation(n), n_chunks)]

    def _improve_chunk(self, samples: np.ndarray, clock: Clock) -> None:
        """All moves within a chunk; its change is then carried to all residuals."""
        K = readonly(self.problem.K.square(samples))
        E, B, lo, hi, T = (
            np.ascontiguousarray(a[:, samples]) for a in (self.E, self.B, self.lo, self.hi, self.T)
        )
        before = B.copy()
        self._improve(K, E, B, readonly(lo), readonly(hi), readonly(T), clock, samples)
        self.B[:, samples] = B
        changes = B - before
        if self.P is not None:
            self.E -= self.P.T @ self.problem.K.combine(self.P @ changes, samples)
        else:
            self.E -= self.problem.K.combine(self.R @ changes, samples)


def newton_step(K: np.ndarray, r: Any, e: np.ndarray, b: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> None:
    """Solve for the free coefficients of one label, cut to the box, and move along that line.

    The line is searched exactly, so the dual objective never falls. Nothing happens when
    there is no free coefficient, or too many, or when K is not definite on them.
    """
    free = np.flatnonzero((b > lo) & (b < hi))
    if not 0 < len(free) <= NEWTON_MOST:
        return
    inside = K[np.ix_(free, free)].astype(np.float64) * r
    inside[np.diag_indices_from(inside)] += RIDGE * inside.diagonal().max()
    try:
        step = cho_solve(cho_factor(inside, lower=True, overwrite_a=True, check_finite=False), e[free])
    except LinAlgError:
        return
    aim = np.clip(b[free] + step, lo[free], hi[free]).astype(b.dtype)
    move = aim - b[free]
    pull = r * (move @ K[free])
    slope, curvature = float(move @ e[free]), float(move @ pull[free])
    if slope <= 0:
        return
    length = 1.0 if curvature <= slope else slope / curvature
    b[free] = aim if length == 1.0 else b[free] + b.dtype.type(length) * move
    e -= e.dtype.type(length) * pull
