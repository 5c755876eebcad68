"""Block methods with a fixed step: BCFW, BCPL and OEG.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`; the steps themselves are
`maxmargin.core.simplex`. One epoch is one pass over a random permutation of the blocks, then a
certificate: W recomputed from alpha in float64, every sample scored. The run ends when that
relative gap is at most `tol`.

| name | target s of block i                  | step                                  |
|------|--------------------------------------|---------------------------------------|
| fw   | vertex of the largest margin         | exact line search (BCFW)              |
| pl   | alpha_ik exp(H_ik / tau), normalised | exact line search (BCPL, Algorithm 2) |
| eg   | the same                             | 1 (OEG)                               |

With averaging the model is the weighted average of all iterates (weight 2/(k+2) at block
step k), and the certificate pairs its primal value with the dual value of the blocks.

An exponentiated step has no line search. Below its safe temperature kappa_i / 4 it may climb
down for ever; a run whose dual has not risen for `patience` passes is ended, and the best
blocks seen are kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress
from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.multiclass_loops import Moves, StepRule
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    Iterate,
    KernelSolution,
    LinearIterate,
    LinearSolution,
    MultiClassProblem,
    Setup,
)

STEPS = {"fw": loops.FRANK_WOLFE, "pl": loops.LINEARIZED, "eg": loops.EXPONENTIATED}
# Epochs without a higher dual after which a step that may lower it is given up.
PATIENCE = 10
# Entropic steps need mass on every class: how much they take from the truth, and from blocks that are given.
SOFTNESS, WARM_SOFTNESS = 1e-3, 1e-6
TOO_COLD = "raise temperature, below whose safe value the dual objective falls,"


def step_rule(
    problem: MultiClassProblem,
    step: str,
    temperature: float | str = "auto",
    *,
    safeguard: bool = True,
    truncation: float = 2.2e-16,
    floor: float = 1e-15,
    batch: bool = False,
) -> StepRule:
    """A step with its temperatures, the tau of the surrogate (8), one per sample.

    "auto" is 0.1 kappa_i for partial linearization, which has a line search, and the smallest
    safe value for exponentiated gradient: kappa_i / 4 for blocks, max_i q_i sum_i C_i / 4 for
    the batch form. At 0, partial linearization is Frank-Wolfe.
    """
    kind = STEPS[step]
    if temperature == "auto":
        taus = 0.25 * curvature(problem, batch) if step == "eg" else 0.1 * problem.kappa
    else:
        taus = np.full(problem.n, float(temperature))
        kind = loops.FRANK_WOLFE if step == "pl" and temperature == 0 else kind
    # A block without curvature belongs at a vertex; any small temperature takes it there.
    taus = np.where((problem.kappa == 0) | (taus == 0), 1e-6, taus)
    return StepRule(kind, readonly(taus), bool(safeguard), float(truncation), float(floor))


def curvature(problem: MultiClassProblem, batch: bool) -> np.ndarray:
    """kappa_i of a block, or max_i q_i sum_i C_i, what it is to a step of all blocks."""
    if not batch:
        return problem.kappa
    return np.full(problem.n, float(problem.norms.max(initial=0.0) * problem.costs.sum()))


def is_safe(problem: MultiClassProblem, rule: StepRule, batch: bool = False) -> bool:
    """Whether every step of the rule is sure not to lower the dual."""
    if rule.kind != loops.EXPONENTIATED:
        return True
    return bool((rule.temperatures >= 0.25 * (1 - 1e-12) * curvature(problem, batch)).all())


def first_iterate(problem: MultiClassProblem, setup: Setup, rule: StepRule) -> Iterate:
    """Where a rule starts; entropic steps need mass on every class.

    They take `SOFTNESS` from the truth, or less where the dual is highest before that, so that W starts
    near 0 whatever lambda is; into given blocks they blend `WARM_SOFTNESS`.
    """
    if rule.kind == loops.FRANK_WOLFE:
        return problem.iterate(setup)
    if setup.blocks is not None:
        return problem.iterate(setup, True, WARM_SOFTNESS)
    iterate = problem.iterate(setup, True, SOFTNESS)
    slope, curvature = problem.linear_term(iterate.blocks()), iterate.squared_norm()
    return iterate if slope >= curvature else problem.iterate(setup, True, SOFTNESS * slope / curvature)


class BestSoFar:
    """Remembers the best blocks of a method whose dual may fall, and says when it gave up."""

    def __init__(self, iterate: Iterate) -> None:
        self.dual, self.alpha, self.waited = iterate.dual(), iterate.alpha.copy(), 0

    def lost(self, iterate: Iterate, dual: float) -> bool:
        """Record the blocks of one epoch; true once there was nothing better for long enough."""
        if dual > self.dual:
            self.dual, self.alpha, self.waited = dual, iterate.alpha.copy(), 0
            return False
        self.waited += 1
        return self.waited >= PATIENCE or not math.isfinite(dual)


class RunningAverage:
    """The average of W with weight 2/(k+2) at block step k: W - V/S_K, V = sum_j S_{j-1} U_j.

    U_j is the move of W in step j and S_j = j (j + 1) / 2.
    """

    def __init__(self, iterate: LinearIterate) -> None:
        self.iterate, self.n_steps = iterate, 0
        self.moves = iterate.problem.zeros(iterate.dtype)

    def block_sweep(self, rule: StepRule, order: np.ndarray, gaps: np.ndarray) -> float:
        """Let the iterate sweep and collect the moves of its W."""
        gain = self.iterate.block_sweep(rule, order, gaps, Moves(self.n_steps, self.moves))
        self.n_steps += len(order)
        return gain

    def evaluate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation of the blocks with P at the average."""
        W = evaluation.image.astype(self.iterate.dtype).astype(np.float64)
        average = W - self.moves / (0.5 * self.n_steps * (self.n_steps + 1))
        return self.iterate.evaluate(average, evaluation.image)


class CertifiedSteps(Evaluated, ABC):
    """Epochs that each end with a certificate; what moves the blocks is left to `_step`.

    A rule that is not `safe` may lower the dual.
    """

    def __init__(self, problem: MultiClassProblem, setup: Setup, rule: StepRule, safe: bool) -> None:
        self.problem, self.rule = problem, rule
        self.iterate = first_iterate(problem, setup, rule)
        self.best = None if safe else BestSoFar(self.iterate)
        self.weights = BestWeights()

    def _move(self, clock: Clock) -> Progress:
        """Move all blocks, then certify; at a loss, return to the best blocks and say so."""
        active = self._step(clock)
        stuck = ""
        self._refresh()
        if self.best is not None and self.best.lost(self.iterate, self._evaluated().certificate.dual):
            self.iterate.alpha, stuck = self.best.alpha, TOO_COLD
            self._refresh()
        here = self._evaluated()
        self.weights.offer(here.certificate.primal, here.answer)
        return Progress(self.certify(), active, exact=True, stuck=stuck)

    def certify(self) -> Certificate:
        """P of the best weights and D of the best blocks."""
        here = self._evaluated().certificate
        dual = here.dual if self.best is None else max(here.dual, self.best.dual)
        return Certificate(min(here.primal, self.weights.primal), dual)

    def solution(self) -> LinearSolution | KernelSolution:
        """The model that `certify` speaks of."""
        here, iterate = self._evaluated(), self.iterate
        if self.weights.primal < here.certificate.primal:
            here = here._replace(answer=self.weights.weights)
        if self.best is not None and self.best.dual > here.certificate.dual:
            iterate = copy(iterate)
            iterate.alpha = self.best.alpha
        return iterate.solution(here)

    @abstractmethod
    def _step(self, clock: Clock) -> int:
        """Move the blocks; returns how many."""

    def _evaluate(self) -> Evaluation:
        return self.iterate.evaluate()

    def _refresh(self) -> None:
        """Evaluate the blocks after a move and go on from what was computed anew."""
        self._answer = None
        self.iterate.resync(self._evaluated())


class BlockSteps(CertifiedSteps):
    """The solvers "bcfw", "bcpl" (Algorithm 2) and "oeg"."""

    def __init__(
        self,
        step: str,
        problem: MultiClassProblem,
        setup: Setup,
        *,
        temperature: float | str = "auto",
        safeguard: bool = True,
        truncation: float = 2.2e-16,
        floor: float = 1e-15,
        averaging: bool = False,
    ) -> None:
        rule = step_rule(problem, step, temperature, safeguard=safeguard, truncation=truncation, floor=floor)
        super().__init__(problem, setup, rule, is_safe(problem, rule))
        self.rng = setup.rng
        self.gaps = np.zeros(problem.n)
        self.average: RunningAverage | None = None
        if averaging:
            if not isinstance(self.iterate, LinearIterate):
                raise ValueError("averaging needs weights, which a kernel does not have.")
            self.average = RunningAverage(self.iterate)

    def _step(self, clock: Clock) -> int:
        """One pass over all blocks in random order."""
        order = self.rng.permutation(self.problem.present)
        for part in np.array_split(order, -(-len(order) // self.iterate.stride)):
            sweep = self.iterate.block_sweep if self.average is None else self.average.block_sweep
            sweep(self.rule, part, self.gaps)
            if clock.expired():
                break
        return len(order)

    def _evaluate(self) -> Evaluation:
        """With averaging, P of the averaged weights, when there are any."""
        evaluation = self.iterate.evaluate()
        if self.average is None or not self.average.n_steps:
            return evaluation
        return self.average.evaluate(evaluation)
