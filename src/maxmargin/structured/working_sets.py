"""Exact block steps with a kernel: working sets on one shared kernel matrix, interior points at large C.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. A step on one block moves the
scores of all samples, n numbers for each class that moved. So some samples are taken at a time:

1. *choose*: samples are drawn, one with gap g_i in proportion to sqrt(g_i). The largest gaps alone
   would often be those of neighbours, which solve each other's;
2. *settle*: exact block steps over these samples inside their own small kernel, several times;
3. *carry*: one matrix product takes their change to the scores of all samples, and one pass over
   these gives all gaps, none left out.

Where the kernel matrix of all samples is not kept, that of an *outer* set of samples is. Sets of these are
settled and carried on among them, as above, and the outcome is carried to the others at the end, by kernel
values that are computed for it and not kept.

A step is over-relaxed: the block goes to the projection of alpha_i + omega H_i / kappa_i, which raises
the dual for every omega below 2.

Where C is large, steps on single blocks fight over what they share, and passes become many. When they
have cost as much as an interior point method on all blocks that are not at rest would
(`maxmargin.structured.kernel_interior`), that is run, and its answer is kept if the dual rose.

Kernel values are in single precision while that is enough for `tol`, and in double precision once a
certificate disagrees with what the steps have seen or the gap has stopped falling. Training stops on the
relative gap, recomputed from the blocks by kernel values in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_kernel_loops as loops
from maxmargin.structured.kernel_interior import solve_blocks, without_traces
from maxmargin.structured.multiclass_loops import CRAMMER_SINGER
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    KernelMultiClass,
    KernelSolution,
    Setup,
    restricted,
)

# Passes over a set end when the gaps found have fallen to this share; sets within an outer set, when they
# have visited so many times its samples.
SHARE, ROUNDS = 0.1, 20
# Where so many multiply-adds are more than `SetRule.passes` over all samples, and single precision is enough,
# passes over those with a gap go on until all are done: on small tables an epoch costs more
# (benchmarks/results/defaults.md).
WORK = 8_000_000
# Gaps need not fall below the first part of the gap that `tol` allows; those of an outer set, whose own sets
# see all of them, below the second.
AIM, OUTER_AIM = 0.5, 0.8
# Blocks with less than this part of the mean gap of the pass before stay where they are.
QUIET = 0.3
# Random orders drawn for the passes over a set.
ORDERS = 8
# Most samples of an interior point method, and how often it is run in a row.
INTERIOR_MOST, INTERIOR_ROUNDS = 1500, 4
# The steps expected of it, how many times as fast as in a block step (which waits for memory) a multiply-add
# is in a factorisation, what a step costs besides, in multiply-adds, and the part that it leaves of the gap
# that `tol` allows.
INTERIOR_STEPS, INTERIOR_SPEED, INTERIOR_OVERHEAD, INTERIOR_AIM = 20, 30.0, 2e5, 0.1
# Masses below the first of these levels that keeps the gap below `tol` are taken for none.
TRACES = (1e-4, 1e-6, 1e-8, 0.0)


@dataclass(frozen=True)
class SetRule:
    """How samples are chosen and settled; none of it changes the optimum.

    Parameters
    ----------
    all_at_once : int
        Up to this many samples, all with a gap are one set.
    size, outer : int
        Samples of a set, and most of an outer set, whose kernel matrix is kept where that of all is not.
    passes : int
        Most passes over a set.
    relaxation : float
        The omega of a step.
    """

    all_at_once: int = 1000
    size: int = 1024
    outer: int = 4096
    passes: int = 40
    relaxation: float = 1.4


class Manner(NamedTuple):
    """What sets of a problem and sets within these share."""

    rng: Any
    by_gap: bool
    plan: loops.Plan
    rule: SetRule


class Sets:
    """Steps on working sets of a problem, whose blocks, scores (n, c) and gaps they keep.

    `certificate` is what the gaps tell, and `spent` the multiply-adds of block steps since the last interior
    point method.
    """

    alpha: np.ndarray
    scores: np.ndarray
    gaps: np.ndarray
    certificate: Certificate

    def __init__(self, problem: KernelMultiClass, tol: float, manner: Manner) -> None:
        self.tol, self.manner = tol, manner
        self.rng, self.by_gap, self.plan, self.rule = manner
        self.spent = 0.0
        self._load(problem)

    def rounds(self, most: int, clock: Clock) -> int:
        """Sets until the gap is small enough or `most` samples were visited; returns how many were."""
        visited = 0
        while visited < most and self.certificate.gap > self.tol and not clock.expired():
            chosen = self._choose()
            if self._is_outer(chosen):
                self._settle_by_sets(chosen, clock)
            else:
                self._settle(chosen)
            visited += len(chosen)
            if self.certificate.gap > self.tol:
                self._finish(clock)
        return visited

    def _is_outer(self, chosen: np.ndarray) -> bool:
        """Whether the samples are so many that they are settled by sets of them."""
        return not self.problem.K.fits and len(chosen) > self.rule.size

    def _load(self, problem: KernelMultiClass) -> None:
        """Take up a problem in the precision of its kernel values."""
        self.problem, self.dtype = problem, problem.K.dtype
        self.room = np.empty(0, self.dtype)
        arrays = problem.arrays_with(problem.labels.Delta, self.dtype, problem.arrays.lanes, 0.0)
        self.relaxed = arrays._replace(norms=readonly(problem.norms / self.rule.relaxation))

    def _measure(self) -> None:
        losses, squared = loops.measure(self.problem.arrays, self.scores, self.alpha, self.gaps)
        primal = 0.5 * squared + losses
        self.certificate = Certificate(primal, primal - float(self.gaps.sum()))

    def _choose(self) -> np.ndarray:
        """The samples of the next set."""
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
        """As many samples as their kernel matrix has room for."""
        K, rule = self.problem.K, self.rule
        fitting = int((K.cache_size * 2**20 / K.dtype.itemsize) ** 0.5)
        return min(max(fitting, rule.size // 16), rule.outer)

    def _share(self, chosen: np.ndarray) -> float:
        """The part of the gaps of a set that may be left."""
        aim = OUTER_AIM if self._is_outer(chosen) else AIM
        needed = aim * min(self.tol / self.certificate.gap, 1.0)
        # What others will move again is not worth the last digits.
        return needed if len(chosen) == np.count_nonzero(self.gaps) else max(SHARE, needed)

    def _settle(self, chosen: np.ndarray) -> None:
        """Exact block steps inside the kernel of some samples, carried to all scores."""
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
        moved = loops.settle(
            readonly(inside), restricted(self.relaxed, chosen), plan, readonly(orders), scores, alpha
        )
        self.spent += moved * len(chosen)
        moves = costs[:, None] * (alpha - self.alpha[chosen])
        self.alpha[chosen] = alpha
        self._carry(chosen, moves)

    def _settle_by_sets(self, chosen: np.ndarray, clock: Clock) -> None:
        """The same for so many samples that they are settled by sets of them."""
        share = self._share(chosen)
        if len(chosen) == np.count_nonzero(self.gaps):
            chosen = self._with_company(chosen)
        inner = SetsWithin(self, chosen, share)
        inner.rounds(ROUNDS * len(chosen), clock)
        self.spent += inner.spent
        moves = self.problem.costs[chosen][:, None] * (inner.alpha - self.alpha[chosen])
        others = np.delete(np.arange(self.problem.n), chosen)
        self.scores[others] -= self.problem.K.combine_nonzeros(moves.astype(self.dtype), chosen, others).T
        self.scores[chosen], self.alpha[chosen] = inner.scores, inner.alpha
        self._measure()

    def _with_company(self, chosen: np.ndarray) -> np.ndarray:
        """Samples and, where there is room, others that have left the truth: these may have to move again."""
        y = self.problem.y
        moved = (self.alpha[np.arange(len(y)), y] != 1) & (self.gaps == 0)
        company = self.rng.permutation(np.flatnonzero(moved))[: self._outer_size() - len(chosen)]
        return np.sort(np.append(chosen, company))

    def _unsettled(self) -> np.ndarray:
        """Samples whose block is not at a vertex, and as many of those at one that have the largest gaps."""
        inside = (self.alpha > 0) & (self.alpha < 1)
        inside[np.arange(self.problem.n), self.problem.y] &= self.problem.loss == CRAMMER_SINGER
        inner = inside.any(axis=1)
        others = np.flatnonzero(~inner & (self.gaps > 0))
        count = min(len(others), max(np.count_nonzero(inner), self.rule.size // 8))
        largest = others[np.argsort(-self.gaps[others], kind="stable")[:count]]
        return np.sort(np.append(np.flatnonzero(inner), largest))

    def _finish(self, clock: Clock) -> None:
        """Interior points on the blocks that are not at rest, once block steps have cost as much.

        Again while that pays: blocks at rest may be found to be wrong by the answer of the others.
        """
        problem = self.problem
        if self.spent < INTERIOR_STEPS * INTERIOR_OVERHEAD:
            return
        samples = self._unsettled()
        cost = INTERIOR_OVERHEAD + problem.c * len(samples) ** 3 / INTERIOR_SPEED
        if self.spent < INTERIOR_STEPS * cost:
            return
        self.spent = 0.0
        for _ in range(INTERIOR_ROUNDS):
            if not 0 < len(samples) <= INTERIOR_MOST or not self._solve(samples):
                return
            if self.certificate.gap <= self.tol or clock.expired():
                return
            samples = self._unsettled()

    def _solve(self, samples: np.ndarray) -> bool:
        """Interior points on some blocks; their answer is kept if the dual rose, and says whether it did."""
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
        for level in TRACES:
            self._set(samples, without_traces(blocks, y, problem.loss, level))
            if self.certificate.gap <= self.tol:
                return True
        if self.certificate.dual > before[3].dual:
            return True
        self.alpha, self.scores, self.gaps, self.certificate = before
        return False

    def _set(self, samples: np.ndarray, blocks: np.ndarray) -> None:
        """Set the blocks of some samples and carry the change to all scores."""
        moves = self.problem.costs[samples][:, None] * (blocks - self.alpha[samples])
        self.alpha[samples] = blocks
        self._carry(samples, moves)

    def _carry(self, samples: np.ndarray, moves: np.ndarray) -> None:
        """Take moves of some samples to the scores and gaps of all."""
        self.scores -= self.problem.K.combine_nonzeros(moves.astype(self.dtype), samples).T
        self._measure()


class SetsWithin(Sets):
    """Sets within a set of another problem's samples, until the part `share` of their gaps is left.

    The gap is relative to the objective of that problem.
    """

    def __init__(self, whole: Sets, samples: np.ndarray, share: float) -> None:
        if not len(whole.room):
            whole.room = np.empty(whole._outer_size() ** 2, whole.dtype)
        self.primal = whole.certificate.primal
        goal = share * float(whole.gaps[samples].sum()) / self.primal
        super().__init__(whole.problem.within(samples, whole.room), goal, whole.manner)
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
        Its kernel matrix says in which precision the steps work.
    setup : Setup
    sampling : {"gap", "uniform"}
        Whether samples with larger gaps are more likely to be chosen.
    shrinking : bool
        Whether a block found optimal at a vertex sits out further passes over its set.
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
        plan = loops.Plan(rule.passes, SHARE, shrinking, QUIET, False)
        super().__init__(problem, setup.tol, Manner(setup.rng, sampling == "gap", plan, rule))
        iterate = problem.iterate(setup)
        self.alpha = iterate.alpha
        self.scores = np.ascontiguousarray(iterate.scores.T)
        self.gaps = np.empty(problem.n)
        self.patience = Patience()
        self.best = BestWeights()
        self._measure()

    def _move(self, clock: Clock) -> Progress:
        """Sets until as many samples were visited as had a gap, or the gap is small enough."""
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
        """The model, P of the best blocks and D of the stored ones, and what the stored ones prove."""
        here = self.problem.evaluate(self.alpha)
        best = here if self.best.are_last else self.problem.evaluate(self.best.weights)
        kept = here if here.certificate.primal <= best.certificate.primal else best
        solution = KernelSolution(kept.answer, self.alpha.copy())
        return solution, here.certificate.tightened(best.certificate), here

    def _learn_from(self, evaluation: Evaluation) -> None:
        """Go on from scores computed anew; where these tell another gap, in double precision."""
        self.scores = np.ascontiguousarray(evaluation.image.T)
        self.gaps, self.certificate = evaluation.gaps.copy(), evaluation.certificate
        if self.certificate.gap > self.tol and self.dtype != np.float64:
            self._load(self.problem.precise())
