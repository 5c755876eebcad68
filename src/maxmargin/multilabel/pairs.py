"""Fast exact solver for kernelised M3L: block sweeps, greedy pair steps, Newton.

Problem, dual, gap and letters are those of `problems.m3l_kernel`: signed coefficients B
between lo and hi, residuals E = T - K B R, all label-major. K is shared by all labels.

Three moves, all of which only ever raise the dual objective:

- *block sweeps*: a few one-variable sweeps over all labels of 64 samples inside their
  64 x 64 kernel, then one matrix product carries the change to all residuals. Cheap per
  coefficient (BLAS). A prior of low rank is applied in its factors.
- *pair steps* on one label: the most violating coefficient and its best partner (as in
  `solvers.smo`) are moved together; the pass that updates the residual also finds the next
  violation. They end when the gap of the label has fallen to its share of the goal; with a
  prior that ties labels, already when it has fallen to a quarter, because the others move it
  again. Labels that are not tied run in threads.
- *Newton*: when the pair steps on a label have cost as much as a Cholesky factorisation of
  K on its free coefficients, that system is solved and the step cut to the box.

Independent labels get block sweeps until the solution is roughly known, then pair steps.
With tied labels each epoch takes whichever of the two last raised the dual more for its
(counted, not timed) cost.

When K does not fit in memory, samples are taken in random chunks whose own kernel does
fit; the moves run inside the chunk and its change is carried to all residuals in blocks. A
sample all of whose coefficients rest at a bound sits the epoch out.

Training stops on the relative duality gap, recomputed in float64 from B. Work in float32
changes over to float64 when rounding keeps the gap from falling.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from maxmargin.core.loop import Certificate, Clock, Patience, Progress, require
from maxmargin.core.rows import readonly
from maxmargin.core.threads import run_threads
from maxmargin.multilabel import kernel_loops as loops

CONTRACT = (
    "K", "prior", "coupled", "low_rank", "target", "bounds", "constant", "alpha", "feasible",
    "scores", "certificate", "precise",
)  # fmt: skip
BLOCK = 64
SWEEPS_PER_BLOCK = 4
# Independent labels: pair steps follow below this relative gap, or after this many epochs.
SWEEP_UNTIL = 0.05
SWEEP_EPOCHS = 4
# How far one visit takes the gap of a label: all the way, or to where others move it again.
REDUCTION_ALONE = 0.01
REDUCTION_TIED = 0.25
NEWTON_MOST = 4000
NEWTON_ROUNDS = 5
RIDGE = 1e-10
SINGULAR = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
# Tied labels: rough nanoseconds of one product in a matrix product, in a sweep, in a pair step.
PRODUCT, SWEPT, PAIRED = 0.02, 0.1, 1.0
# A move that was not taken looks this much better every epoch, so that it is tried again.
RETRY = 1.25


class Part(NamedTuple):
    """Some samples, or all of them: their kernel and their columns of the state."""

    K: np.ndarray
    diagonal: np.ndarray
    E: np.ndarray
    B: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    T: np.ndarray


class PairDescent:
    """State of the method; `B` is the solution, label-major, in working precision.

    Parameters
    ----------
    problem : KernelM3L
    tol : float
        The relative gap that training stops at; label visits aim at it.
    rng : numpy.random.RandomState
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
        rng: Any,
        n_threads: int = 1,
        start: np.ndarray | None = None,
    ) -> None:
        require(problem, CONTRACT, "PairDescent")
        self.tol, self.rng, self.n_threads = tol, rng, n_threads
        self.swept = 0
        self.rates = {"sweep": np.inf, "pairs": np.inf}
        self.patience = Patience(3)
        self._load(problem, np.zeros(problem.target.shape) if start is None else start)

    def epoch(self, clock: Clock) -> Progress:
        """One pass over all samples (block sweeps) or over all labels (pair steps)."""
        K = self.problem.K
        if K.whole is None:
            chunks = self._chunks()
            for samples in chunks:
                self._improve_chunk(samples, REDUCTION_TIED if len(chunks) > 1 else REDUCTION_ALONE, clock)
                if clock.expired():
                    break
        else:
            part = Part(readonly(K.whole), self.diagonal, self.E, self.B, self.lo, self.hi, self.T)
            (self._improve_tied if self.problem.coupled else self._improve)(part, clock)
        gaps, duals = measure(self.E, self.B, self.lo, self.hi, self.T)
        dual = float(duals.sum()) + self.problem.constant
        certificate = Certificate(dual + float(gaps.sum()), dual)
        if self.patience.exhausted(certificate.gap) and self.E.dtype != np.float64:
            self._load(self.problem.precise(), self.solution())
        return Progress(certificate, loops.count_movable(self.E, self.B, self.lo, self.hi))

    def certify(self) -> Certificate:
        """Recompute residuals and certificate from B, in float64."""
        B = self.problem.feasible(self.B)
        F = self.problem.scores(B)
        self.E[:] = self.problem.target - F
        return self.problem.certificate(B, F)

    def solution(self) -> np.ndarray:
        """The dual solution that `certify` speaks of, in float64."""
        return self.problem.feasible(self.B)

    @property
    def alpha(self) -> np.ndarray:
        """The dual solution as dual variables, samples x labels."""
        return self.problem.alpha(self.solution())

    def _load(self, problem: Any, B: np.ndarray) -> None:
        """Take up a problem in the precision in which its kernel values are kept."""
        self.problem = problem
        dtype = problem.K.dtype
        self.T = readonly(problem.target.astype(dtype))
        self.lo, self.hi = (readonly(bound.astype(dtype)) for bound in problem.bounds)
        self.R, self.diagonal = (readonly(a.astype(dtype)) for a in (problem.prior, problem.K.diagonal))
        self.r = readonly(np.diag(self.R).copy())
        self.P = None if problem.low_rank is None else problem.low_rank.astype(dtype)
        self.B = B.astype(dtype)
        self.E = (problem.target - problem.scores(B) if B.any() else problem.target).astype(dtype)

    def _improve(self, part: Part, clock: Clock) -> None:
        """One epoch on independent labels."""
        gaps, duals = measure(*part[2:])
        primal = float(gaps.sum() + duals.sum()) + self.problem.constant
        if gaps.sum() > SWEEP_UNTIL * abs(primal) and self.swept < SWEEP_EPOCHS:
            self._sweep(part, clock)
            self.swept += 1
        else:
            self._visit_labels(part, gaps, duals, REDUCTION_ALONE, clock)

    def _improve_tied(self, part: Part, clock: Clock) -> None:
        """One epoch on labels tied by the prior: the move that promises more."""
        gaps, duals = measure(*part[2:])
        L, n = self.E.shape
        move = max(self.rates, key=lambda name: self.rates[name])
        if move == "sweep":
            self._sweep(part, clock)
            rank = L if self.P is None else len(self.P)
            cost = n * (n * rank * PRODUCT + BLOCK * L * SWEEPS_PER_BLOCK * SWEPT)
        else:
            steps = self._visit_labels(part, gaps, duals, REDUCTION_TIED, clock)
            cost = n * (steps * PAIRED + L * L * SWEPT)
        gained = float(measure(*part[2:])[1].sum() - duals.sum())
        self.rates = {name: RETRY * rate for name, rate in self.rates.items()}
        self.rates[move] = gained / cost

    def _improve_chunk(self, samples: np.ndarray, least: float, clock: Clock) -> None:
        """All moves within a chunk; its change is then carried to all residuals."""
        arrays = (self.E, self.B, self.lo, self.hi, self.T)
        E, B, lo, hi, T = (np.ascontiguousarray(array[:, samples]) for array in arrays)
        K, diagonal = readonly(self.problem.K.square(samples)), readonly(self.diagonal[samples])
        part = Part(K, diagonal, E, B, readonly(lo), readonly(hi), readonly(T))
        self._sweep(part, clock)
        self._visit_labels(part, *measure(*part[2:]), least, clock)
        changes = B - self.B[:, samples]
        self.B[:, samples] = B
        if self.P is not None:
            self.E -= self.P.T @ self.problem.K.combine(self.P @ changes, samples)
        else:
            self.E -= self.problem.K.combine(self.R @ changes, samples)

    def _chunks(self) -> list[np.ndarray]:
        """Random chunks of the samples that may still move, whose own kernel fits in memory."""
        K = self.problem.K
        size = max(int(np.sqrt(K.cache_size * 2**20 / K.dtype.itemsize)), BLOCK)
        settled = loops.settled(self.E, self.B, self.lo, self.hi)
        order = self.rng.permutation(np.flatnonzero(~settled))
        return [np.sort(part) for part in np.array_split(order, -(-len(order) // size))] if len(order) else []

    def _sweep(self, part: Part, clock: Clock) -> None:
        """Block sweeps over all samples in random order."""
        order = self.rng.permutation(len(part.diagonal))
        for begin in range(0, len(order), BLOCK):
            samples = np.sort(order[begin : begin + BLOCK])
            rows = part.K[samples]
            changes = np.empty((len(part.E), len(samples)), part.E.dtype)
            state = part.E, part.B, part.lo, part.hi, SWEEPS_PER_BLOCK, changes
            if self.problem.coupled:
                loops.coupled_block_sweeps(readonly(rows[:, samples]), self.R, samples, *state)
            else:
                loops.block_sweeps(readonly(rows[:, samples]), self.r, samples, *state)
            np.subtract(part.E, self._mix(changes, rows), out=part.E)
            if clock.expired():
                return

    def _mix(self, changes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """R changes K[rows], in the cheapest order."""
        if self.P is not None:
            return self.P.T @ ((self.P @ changes) @ rows)
        if self.problem.coupled:
            return (self.R @ changes) @ rows
        return (self.r[:, None] * changes) @ rows

    def _visit_labels(
        self, part: Part, gaps: np.ndarray, duals: np.ndarray, least: float, clock: Clock
    ) -> int:
        """Pair steps on every label, the largest gap first; returns the number of steps."""
        gap = float(gaps.sum())
        if gap <= 0:
            return 0
        aim = 0.9 * self.tol * abs(float(duals.sum()) + self.problem.constant)
        reduction = max(min(aim / gap, 1.0), least)
        labels = np.argsort(-gaps)
        if self.problem.coupled:
            return sum(self._visit_tied(l, part, reduction, clock) for l in labels)
        return sum(run_threads(lambda l: self._visit(l, part, reduction, clock), labels, self.n_threads))

    def _visit_tied(self, l: int, part: Part, reduction: float, clock: Clock) -> int:
        """Pair steps on one label, then their effect on all labels tied to it."""
        before = part.E[l].copy()
        steps = self._visit(l, part, reduction, clock)
        if steps:
            before -= part.E[l]
            before /= self.r[l]
            loops.carry(l, self.R, before, part.E)
        return steps

    def _visit(self, l: int, part: Part, reduction: float, clock: Clock) -> int:
        """Bring the gap of one label down by the factor `reduction`; returns the number of steps."""
        label = e, b, lo, hi = part.E[l], part.B[l], part.lo[l], part.hi[l]
        target = reduction * loops.label_gap(*label)
        if target <= 0 or clock.expired():
            return 0
        n = len(e)
        work = np.empty((4, n), e.dtype)
        bits = work.view(np.int32 if e.dtype == np.float32 else np.int64)
        singular = e.dtype.type(SINGULAR[e.dtype])
        total = 0
        for _ in range(NEWTON_ROUNDS):
            m = np.count_nonzero((b > lo) & (b < hi))
            # A pair step costs about n nanoseconds, a factorisation m^3/90 + m^2.
            budget = max(n, int((m**3 / 90 + m**2) / n))
            steps, gap = loops.fast_label(
                part.K, part.diagonal, self.r[l], *label, work, bits, budget, target, singular
            )
            total += steps
            if gap <= target or steps < budget or clock.expired():
                break
            newton_step(part.K, self.r[l], *label)
        return total


def measure(
    E: np.ndarray, B: np.ndarray, lo: np.ndarray, hi: np.ndarray, T: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gap and dual objective, label by label."""
    gaps = [loops.label_gap(*label) for label in zip(E, B, lo, hi, strict=True)]
    duals = [loops.label_dual(*label) for label in zip(E, B, T, strict=True)]
    return np.array(gaps), np.array(duals)


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
