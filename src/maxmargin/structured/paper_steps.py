"""The methods of the paper: BCFW, BCPL, OEG and their batch forms FW, PL, EG.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`; the steps on a block are in
`maxmargin.core.simplex`. After every epoch W is recomputed from alpha in float64 and all samples are scored
for a certificate.

| name | target s of block i                  | step                                  |
|------|--------------------------------------|---------------------------------------|
| fw   | vertex of the largest margin         | exact line search                     |
| pl   | alpha_ik exp(H_ik / tau), normalised | exact line search                     |
| eg   | the same                             | 1                                     |

A block method (Algorithm 2) visits the blocks in random order. A batch method (Algorithm 1 of Mohapatra et
al., with the factor lambda that its line search lacks) computes all targets s_i at the same W and moves every
block by one step

    gamma = sum_i C_i (s_i - alpha_i).H_i / |A (s - alpha)|^2, clipped to [0, 1],

where A (s - alpha) is the change of W.

With averaging the model is the weighted average of all iterates (weight 2/(k+2) at block step k), and the
certificate pairs its primal value with the dual value of the blocks.

Exponentiated gradient has no line search. Below its safe temperature, kappa_i / 4 for blocks and
max_i q_i sum_i C_i / 4 for the batch form, the dual may fall. A run whose dual has not risen for `PATIENCE`
passes ends with the best blocks found.
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
# A method whose steps may lower the dual stops after so many epochs without a higher one.
PATIENCE = 10
# Entropic steps need mass on every class: the share taken from the truth, and from given blocks.
SOFTNESS, WARM_SOFTNESS = 1e-3, 1e-6
TOO_COLD = "increase temperature to a value at which the dual objective does not fall,"


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
    """kappa_i of a block, or max_i q_i sum_i C_i for a step of all blocks."""
    if not batch:
        return problem.kappa
    return np.full(problem.n, float(problem.norms.max(initial=0.0) * problem.costs.sum()))


def is_safe(problem: MultiClassProblem, rule: StepRule, batch: bool = False) -> bool:
    """Whether no step of the rule can lower the dual."""
    if rule.kind != loops.EXPONENTIATED:
        return True
    return bool((rule.temperatures >= 0.25 * (1 - 1e-12) * curvature(problem, batch)).all())


def first_iterate(problem: MultiClassProblem, setup: Setup, rule: StepRule) -> Iterate:
    """The start of a rule; entropic steps need mass on every class.

    They take `SOFTNESS` from the truth, or the smaller share with the highest dual, so that W starts near 0
    for any lambda. Into given blocks they blend `WARM_SOFTNESS`.
    """
    if rule.kind == loops.FRANK_WOLFE:
        return problem.iterate(setup)
    if setup.blocks is not None:
        return problem.iterate(setup, True, WARM_SOFTNESS)
    iterate = problem.iterate(setup, True, SOFTNESS)
    slope, curvature = problem.linear_term(iterate.blocks()), iterate.squared_norm()
    return iterate if slope >= curvature else problem.iterate(setup, True, SOFTNESS * slope / curvature)


class BestSoFar:
    """The best blocks of a method whose dual may fall, with a patience for improvement."""

    def __init__(self, iterate: Iterate) -> None:
        self.dual, self.alpha, self.waited = iterate.dual(), iterate.alpha.copy(), 0

    def lost(self, iterate: Iterate, dual: float) -> bool:
        """Record the blocks of one epoch; true after `PATIENCE` epochs without improvement."""
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
        """Run a sweep of the iterate and collect the moves of its W."""
        gain = self.iterate.block_sweep(rule, order, gaps, Moves(self.n_steps, self.moves))
        self.n_steps += len(order)
        return gain

    def evaluate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation of the blocks with P at the average."""
        W = evaluation.image.astype(self.iterate.dtype).astype(np.float64)
        average = W - self.moves / (0.5 * self.n_steps * (self.n_steps + 1))
        return self.iterate.evaluate(average, evaluation.image)


class CertifiedSteps(Evaluated, ABC):
    """Epochs that each end with a certificate; subclasses update the blocks in `_step`.

    A rule that is not `safe` may lower the dual.
    """

    def __init__(self, problem: MultiClassProblem, setup: Setup, rule: StepRule, safe: bool) -> None:
        self.problem, self.rule = problem, rule
        self.iterate = first_iterate(problem, setup, rule)
        self.best = None if safe else BestSoFar(self.iterate)
        self.weights = BestWeights()

    def _move(self, clock: Clock) -> Progress:
        """Move all blocks, then certify; restore the best blocks if the dual has stopped rising."""
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
        """The model of the certificate."""
        here, iterate = self._evaluated(), self.iterate
        if self.weights.primal < here.certificate.primal:
            here = here._replace(answer=self.weights.weights)
        if self.best is not None and self.best.dual > here.certificate.dual:
            iterate = copy(iterate)
            iterate.alpha = self.best.alpha
        return iterate.solution(here)

    @abstractmethod
    def _step(self, clock: Clock) -> int:
        """Move the blocks; returns their number."""

    def _evaluate(self) -> Evaluation:
        return self.iterate.evaluate()

    def _refresh(self) -> None:
        """Evaluate the blocks after a move and continue from the recomputed W."""
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
        """With averaging, P of the averaged weights after the first step."""
        evaluation = self.iterate.evaluate()
        if self.average is None or not self.average.n_steps:
            return evaluation
        return self.average.evaluate(evaluation)


class BatchSteps(CertifiedSteps):
    """The solvers "fw", "pl" (Algorithm 1) and "eg"."""

    def __init__(
        self,
        step: str,
        problem: MultiClassProblem,
        setup: Setup,
        *,
        temperature: float | str = "auto",
        truncation: float = 2.2e-16,
        floor: float = 1e-15,
    ) -> None:
        rule = step_rule(problem, step, temperature, truncation=truncation, floor=floor, batch=True)
        super().__init__(problem, setup, rule, is_safe(problem, rule, batch=True))

    def _step(self, clock: Clock) -> int:
        """One step of all blocks: lines 4 to 10 of Algorithm 1."""
        iterate = self.iterate
        H = iterate.margins()
        target, log_target = self._targets(H)
        direction = target - iterate.blocks()
        image, squared = iterate.image(direction)
        slope = float(self.problem.costs @ np.einsum("ik,ik->i", direction, H))
        gamma = self._step_length(slope, squared)
        if iterate.entropic:
            alpha = self._blend(iterate.alpha, log_target, gamma)
        else:
            alpha = iterate.alpha + (gamma * direction).astype(iterate.dtype)
            np.maximum(alpha, 0, out=alpha)
        iterate.advance(alpha, gamma * image)
        return self.problem.n

    def _targets(self, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Targets s of all blocks and their logarithms: vertices, or the softmax (9)."""
        if self.rule.kind == loops.FRANK_WOLFE:
            target = np.zeros_like(H)
            target[np.arange(len(H)), np.argmax(H, axis=1)] = 1.0
            return target, target
        u = self.iterate.alpha + (H - H.max(axis=1, keepdims=True)) / self.rule.temperatures[:, None]
        u -= log_sum(u)
        return np.exp(u), u

    def _step_length(self, slope: float, squared: float) -> float:
        """The step (10), clipped to [0, 1]; below 1 for logarithms, so that no coordinate is lost."""
        if self.rule.kind == loops.EXPONENTIATED:
            return 1.0
        if squared <= max(slope, 0.0):
            gamma = 1.0 if slope > 0 else 0.0
        else:
            gamma = max(slope, 0.0) / squared
        return min(gamma, 1.0 - self.rule.truncation) if self.iterate.entropic else gamma

    def _blend(self, log_alpha: np.ndarray, log_target: np.ndarray, gamma: float) -> np.ndarray:
        """log((1 - gamma) alpha + gamma s), with the floor under every class."""
        if gamma >= 1.0:
            blended = log_target
        elif gamma <= 0.0:
            blended = log_alpha
        else:
            blended = np.logaddexp(np.log1p(-gamma) + log_alpha, np.log(gamma) + log_target)
        floor = self.rule.floor
        if floor > 0:
            blended = np.logaddexp(np.log1p(-floor) + blended, np.log(floor / blended.shape[1]))
        return blended - log_sum(blended)


def log_sum(u: np.ndarray) -> np.ndarray:
    """log sum_k exp(u_k) of every row, as a column."""
    peak = u.max(axis=1, keepdims=True)
    return peak + np.log(np.exp(u - peak).sum(axis=1, keepdims=True))
