"""Exact block steps with a kernel: working sets on one shared kernel matrix, interior points at large C.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. A step on one block changes the
scores of all samples, n numbers for each class with a change. Samples are therefore processed in sets:

1. *choose*: samples are drawn, one with gap g_i in proportion to sqrt(g_i). The samples with the largest gaps
   are often neighbours, and a step on one of them closes the gaps of the others;
2. *solve*: several passes of exact block steps over these samples inside their own small kernel matrix;
3. *propagate*: one matrix product updates the scores of all samples, and one pass over these recomputes all
   gaps, without shrinking.

If the kernel matrix of all samples does not fit the memory, that of an *outer* set of samples is kept. Sets
within the outer set are solved as above, and the change is propagated to the other samples at the end, by
kernel values that are computed once and not stored.

A step is over-relaxed: the block moves to the projection of alpha_i + omega H_i / kappa_i, which raises the
dual for every omega below 2.

At large C, block steps need many passes. Once they have cost as much as an interior point method on all
active blocks (`maxmargin.structured.kernel_interior`), that method is run, and its solution is kept if the
dual rose.

Kernel values are in single precision if that is enough for `tol`. They are recomputed in double precision
once a certificate disagrees with the running gap or the gap has stopped falling. Training stops on the
relative gap, recomputed from the blocks by kernel values in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_kernel_loops as loops
from maxmargin.structured.kernel_interior import solve_blocks, without_tiny_masses
from maxmargin.structured.multiclass_loops import CRAMMER_SINGER
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    KernelMultiClass,
    KernelSolution,
    Setup,
    restricted,
)

# Passes over a set end when its gap has fallen to this share; sets within an outer set end after so many
# visits for each of its samples.
SHARE, ROUNDS = 0.1, 20
# On a problem so small that passes over all samples within this number of multiply-adds are more than
# `SetRule.passes`, and in single precision, passes go on until all samples are solved: an epoch costs more
# than these passes (benchmarks/results/defaults.md).
WORK = 8_000_000
# The gap of a set needs to fall only to this share of the gap that `tol` allows; that of an outer set to the
# second share.
AIM, OUTER_AIM = 0.5, 0.8
# Blocks with less than this share of the mean gap of the previous pass are not moved.
SMALL = 0.3
# Random orders drawn for the passes over a set.
ORDERS = 8
# The largest number of samples of an interior point method, and of its runs in a row.
INTERIOR_MOST, INTERIOR_ROUNDS = 1500, 4
# Cost model of an interior point method: its steps, the speed of a multiply-add in a factorisation relative
# to a block step (which is limited by memory), the overhead of a step in multiply-adds, and the share of the
# gap that `tol` allows at which it stops.
INTERIOR_STEPS, INTERIOR_SPEED, INTERIOR_OVERHEAD, INTERIOR_AIM = 20, 30.0, 2e5, 0.1
# Masses below a level are set to zero, at the first of these levels that keeps the gap below `tol`.
LEVELS = (1e-4, 1e-6, 1e-8, 0.0)


@dataclass(frozen=True)
class SetRule:
    """Sizes of working sets and passes over them; they do not change the optimum.

    Parameters
    ----------
    all_at_once : int
        With up to this many samples, all samples with a gap form one set.
    size, outer : int
        Number of samples of a set, and the largest number of an outer set.
    passes : int
        Maximum number of passes over a set.
    relaxation : float
        The omega of a step.
    """

    all_at_once: int = 1000
    size: int = 1024
    outer: int = 4096
    passes: int = 40
    relaxation: float = 1.4


class Settings(NamedTuple):
    """Settings shared by the sets of a problem and the sets within an outer set."""

    rng: Any
    by_gap: bool
    plan: loops.Plan
    rule: SetRule


class Sets:
    """Steps on working sets of a problem, with its blocks, scores (n, c) and gaps.

    `certificate` follows from the gaps, and `spent` counts the multiply-adds of block steps since the last
    interior point method.
    """

    alpha: np.ndarray
    scores: np.ndarray
    gaps: np.ndarray
    certificate: Certificate

    def __init__(self, problem: KernelMultiClass, tol: float, settings: Settings) -> None:
        self.tol, self.settings = tol, settings
        self.rng, self.by_gap, self.plan, self.rule = settings
        self.spent = 0.0
        self._load(problem)

    def rounds(self, most: int, clock: Clock) -> int:
        """Solve sets until the gap is small enough or `most` samples were visited; returns their number."""
        visited = 0
        while visited < most and self.certificate.gap > self.tol and not clock.expired():
            chosen = self._choose()
            if self._is_outer(chosen):
                self._solve_by_sets(chosen, clock)
            else:
                self._solve_set(chosen)
            visited += len(chosen)
            if self.certificate.gap > self.tol:
                self._solve_by_interior_points(clock)
        return visited

    def _is_outer(self, chosen: np.ndarray) -> bool:
        """Whether the samples form an outer set."""
        return not self.problem.K.fits and len(chosen) > self.rule.size

    def _load(self, problem: KernelMultiClass) -> None:
        """Work on a problem in the precision of its kernel values."""
        self.problem, self.dtype = problem, problem.K.dtype
        self.workspace = np.empty(0, self.dtype)
        arrays = problem.arrays_with(problem.labels.Delta, self.dtype, problem.arrays.lanes, 0.0)
        self.relaxed = arrays._replace(norms=readonly(problem.norms / self.rule.relaxation))

    def _measure(self) -> None:
        losses, squared = loops.measure(self.problem.arrays, self.scores, self.alpha, self.gaps)
        primal = 0.5 * squared + losses
        self.certificate = Certificate(primal, primal - float(self.gaps.sum()))

    def _choose(self) -> np.ndarray:
        """Choose the samples of the next set."""
        rule, waiting = self.rule, np.flatnonzero(self.gaps)
        size = rule.size
        if self.problem.n <= rule.all_at_once:
            size = self.problem.n
        elif not self.problem.K.fits:
            size = self._outer_size()
        if len(waiting) <= size:
            return waiting
        weights = np.sqrt(self.gaps[waiting]) if self.by_gap else 1.0
        keys = self.rng.exponential(size=len(waiting)) / weights
        return np.sort(waiting[np.argpartition(keys, size)[:size]])

    def _outer_size(self) -> int:
        """The number of samples whose kernel matrix fits `cache_size`."""
        K, rule = self.problem.K, self.rule
        fitting = int((K.cache_size * 2**20 / K.dtype.itemsize) ** 0.5)
        return min(max(fitting, rule.size // 16), rule.outer)

    def _share(self, chosen: np.ndarray) -> float:
        """The share of the gap of a set at which its passes end."""
        aim = OUTER_AIM if self._is_outer(chosen) else AIM
        needed = aim * min(self.tol / self.certificate.gap, 1.0)
        # Sets that follow will change the scores again, so a moderate share is enough.
        return needed if len(chosen) == np.count_nonzero(self.gaps) else max(SHARE, needed)

    def _solve_set(self, chosen: np.ndarray) -> None:
        """Exact block steps inside the kernel of some samples, propagated to all scores."""
        problem, rule = self.problem, self.rule
        K, costs = problem.K, problem.costs[chosen]
        whole = K.whole if len(chosen) == problem.n else None
        inside = K.square(chosen) if whole is None else whole
        scores = self.scores[chosen].T.astype(self.dtype, order="C")
        alpha = self.alpha[chosen].astype(self.dtype)
        orders = np.array([self.rng.permutation(len(chosen)) for _ in range(ORDERS)])
        plan = self.plan._replace(share=self._share(chosen))
        passes = WORK // problem.n**2
        if len(chosen) == np.count_nonzero(self.gaps) and passes > rule.passes and self.dtype == np.float32:
            plan = plan._replace(passes=passes, again=True)
        moved = loops.solve_set(
            readonly(inside), restricted(self.relaxed, chosen), plan, readonly(orders), scores, alpha
        )
        self.spent += moved * len(chosen)
        moves = costs[:, None] * (alpha - self.alpha[chosen])
        self.alpha[chosen] = alpha
        self._propagate(chosen, moves)

    def _solve_by_sets(self, chosen: np.ndarray, clock: Clock) -> None:
        """The same for an outer set, by sets within it."""
        share = self._share(chosen)
        if len(chosen) == np.count_nonzero(self.gaps):
            chosen = self._padded(chosen)
        inner = SetsWithin(self, chosen, share)
        inner.rounds(ROUNDS * len(chosen), clock)
        self.spent += inner.spent
        moves = self.problem.costs[chosen][:, None] * (inner.alpha - self.alpha[chosen])
        others = np.delete(np.arange(self.problem.n), chosen)
        self.scores[others] -= self.problem.K.combine_nonzeros(moves.astype(self.dtype), chosen, others).T
        self.scores[chosen], self.alpha[chosen] = inner.scores, inner.alpha
        self._measure()

    def _padded(self, chosen: np.ndarray) -> np.ndarray:
        """Pad an outer set with samples whose block is not at the true class: these may move again."""
        y = self.problem.y
        moved = (self.alpha[np.arange(len(y)), y] != 1) & (self.gaps == 0)
        padding = self.rng.permutation(np.flatnonzero(moved))[: self._outer_size() - len(chosen)]
        return np.sort(np.append(chosen, padding))

    def _active(self) -> np.ndarray:
        """Samples whose block is not at a vertex, and as many others with the largest gaps."""
        inside = (self.alpha > 0) & (self.alpha < 1)
        inside[np.arange(self.problem.n), self.problem.y] &= self.problem.loss == CRAMMER_SINGER
        inner = inside.any(axis=1)
        others = np.flatnonzero(~inner & (self.gaps > 0))
        count = min(len(others), max(np.count_nonzero(inner), self.rule.size // 8))
        largest = others[np.argsort(-self.gaps[others], kind="stable")[:count]]
        return np.sort(np.append(np.flatnonzero(inner), largest))

    def _solve_by_interior_points(self, clock: Clock) -> None:
        """Run interior points on the active blocks, once block steps have cost as much.

        Runs are repeated: the new scores may activate further blocks.
        """
        problem = self.problem
        if self.spent < INTERIOR_STEPS * INTERIOR_OVERHEAD:
            return
        samples = self._active()
        cost = INTERIOR_OVERHEAD + problem.c * len(samples) ** 3 / INTERIOR_SPEED
        if self.spent < INTERIOR_STEPS * cost:
            return
        self.spent = 0.0
        for _ in range(INTERIOR_ROUNDS):
            if not 0 < len(samples) <= INTERIOR_MOST or not self._interior_points(samples):
                return
            if self.certificate.gap <= self.tol or clock.expired():
                return
            samples = self._active()

    def _interior_points(self, samples: np.ndarray) -> bool:
        """Interior points on some blocks; the solution is kept if the dual rose. Returns whether it did."""
        problem = self.problem
        y, costs = problem.y[samples], problem.costs[samples]
        H = self.scores[samples] + problem.labels.Delta[y]
        before = self.alpha.copy(), self.scores.copy(), self.gaps.copy(), self.certificate
        blocks = solve_blocks(
            problem.products(samples),
            H.T,
            (costs[:, None] * self.alpha[samples]).T,
            costs,
            None if problem.loss == CRAMMER_SINGER else y,
            INTERIOR_AIM * self.tol * abs(self.certificate.primal),
        ).T
        for level in LEVELS:
            self._set(samples, without_tiny_masses(blocks, y, problem.loss, level))
            if self.certificate.gap <= self.tol:
                return True
        if self.certificate.dual > before[3].dual:
            return True
        self.alpha, self.scores, self.gaps, self.certificate = before
        return False

    def _set(self, samples: np.ndarray, blocks: np.ndarray) -> None:
        """Set the blocks of some samples and propagate the change to all scores."""
        moves = self.problem.costs[samples][:, None] * (blocks - self.alpha[samples])
        self.alpha[samples] = blocks
        self._propagate(samples, moves)

    def _propagate(self, samples: np.ndarray, moves: np.ndarray) -> None:
        """Update the scores and gaps of all samples after moves of some."""
        self.scores -= self.problem.K.combine_nonzeros(moves.astype(self.dtype), samples).T
        self._measure()


class SetsWithin(Sets):
    """Sets within an outer set of samples, until their gaps have fallen to `share`.

    The gap is relative to the objective of the whole problem.
    """

    def __init__(self, whole: Sets, samples: np.ndarray, share: float) -> None:
        if not len(whole.workspace):
            whole.workspace = np.empty(whole._outer_size() ** 2, whole.dtype)
        self.primal = whole.certificate.primal
        goal = share * float(whole.gaps[samples].sum()) / self.primal
        super().__init__(whole.problem.within(samples, whole.workspace), goal, whole.settings)
        self.alpha, self.scores, self.gaps = whole.alpha[samples], whole.scores[samples], whole.gaps[samples]
        self._measure()

    def _measure(self) -> None:
        loops.measure(self.problem.arrays, self.scores, self.alpha, self.gaps)
        self.certificate = Certificate(self.primal, self.primal - float(self.gaps.sum()))


class WorkingSets(Evaluated, Sets):
    """The solver "exact" with a kernel.

    Parameters
    ----------
    problem : KernelMultiClass
        Its kernel matrix sets the precision of the steps.
    setup : Setup
    sampling : {"gap", "uniform"}
        "gap" chooses samples with larger gaps more often.
    shrinking : bool
        Whether a block found optimal at a vertex is left out of further passes over its set.
    rule : SetRule
    """

    def __init__(
        self,
        problem: KernelMultiClass,
        setup: Setup,
        *,
        sampling: str = "gap",
        shrinking: bool = True,
        rule: SetRule | None = None,
    ) -> None:
        rule = SetRule() if rule is None else rule
        plan = loops.Plan(rule.passes, SHARE, shrinking, SMALL, False)
        super().__init__(problem, setup.tol, Settings(setup.rng, sampling == "gap", plan, rule))
        iterate = problem.iterate(setup)
        self.alpha = iterate.alpha
        self.scores = np.ascontiguousarray(iterate.scores.T)
        self.gaps = np.empty(problem.n)
        self.patience = Patience()
        self.best = BestWeights()
        self._measure()

    def _move(self, clock: Clock) -> Progress:
        """Solve sets with as many samples as have a gap, or until the gap is small enough."""
        if not self.problem.K.build(clock.expired):
            return Progress(self.certificate, 0)
        visited = self.rounds(int(np.count_nonzero(self.gaps)), clock)
        self.best.offer(self.certificate.primal, self.alpha)
        if self.certificate.gap > self.tol:
            if self.patience.exhausted(self.certificate.gap) and self.dtype != np.float64:
                self._load(self.problem.precise())
            return Progress(self.certificate, visited)
        here = self._evaluated()[2]
        self._learn_from(here)
        return Progress(self.certify(), visited, exact=True)

    def _evaluate(self) -> tuple[KernelSolution, Certificate, Evaluation]:
        """The model, P of the best blocks with D of the stored ones, and their evaluation."""
        here = self.problem.evaluate(self.alpha)
        best = here if self.best.are_last else self.problem.evaluate(self.best.weights)
        kept = here if here.certificate.primal <= best.certificate.primal else best
        solution = KernelSolution(kept.answer, self.alpha.copy())
        return solution, here.certificate.tightened(best.certificate), here

    def _learn_from(self, evaluation: Evaluation) -> None:
        """Continue from the recomputed scores, in double precision if their gap is above `tol`."""
        self.scores = np.ascontiguousarray(evaluation.image.T)
        self.gaps, self.certificate = evaluation.gaps.copy(), evaluation.certificate
        if self.certificate.gap > self.tol and self.dtype != np.float64:
            self._load(self.problem.precise())
