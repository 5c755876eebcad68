"""Batch methods: Frank-Wolfe, partial linearization and exponentiated gradient on all blocks.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. All targets s_i are taken
at the same W, then one step gamma moves every block (Algorithm 1 of Mohapatra et al., with
the factor lambda that its line search lacks):

    gamma = sum_i C_i (s_i - alpha_i).H_i / |A (s - alpha)|^2, clipped to [0, 1],

where A (s - alpha) is the move of W. Exponentiated gradient takes gamma = 1, which is safe
for tau >= max_i q_i sum_i C_i / 4 and watched otherwise. Every epoch ends with a certificate.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.loop import Clock
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.blocks import CertifiedSteps, is_safe, step_rule
from maxmargin.structured.multiclass_problem import MultiClassProblem, Setup


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
