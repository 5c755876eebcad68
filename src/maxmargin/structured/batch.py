"""Batch methods: Frank-Wolfe, partial linearization and exponentiated gradient on all blocks.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. All targets s_i are taken
at the same W, then one step gamma moves every block (Algorithm 1 of Mohapatra et al., with
the factor lambda that its line search lacks):

    gamma = sum_i C_i (s_i - alpha_i).H_i / |A (s - alpha)|^2, clipped to [0, 1],

where A (s - alpha) is the move of W. Exponentiated gradient takes gamma = 1, which is safe
for tau >= max_i q_i sum_i C_i / 4 and watched otherwise. Every epoch ends with a certificate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.structured.blocks import TOO_COLD, Watch


class BatchSteps:
    """The method behind the solvers "fw", "pl" and "eg"."""

    def __init__(self, problem: Any, state: Any, rule: Any, *, watched: bool = False) -> None:
        require(problem, ("margins", "image", "certify"), f"solver={rule.name!r}")
        self.problem, self.state, self.rule = problem, state, rule
        self.gaps = np.zeros(problem.n)
        self.watch = Watch(state, problem.dual(state)) if watched else None

    def epoch(self, clock: Clock) -> Progress:
        """One step of all blocks, then a certificate."""
        self.step()
        certificate = self.certify()
        if self.watch is not None and self.watch.lost(self.state, certificate.dual):
            self.watch.restore(self.state)
            return Progress(self.certify(), self.problem.n, exact=True, stuck=TOO_COLD)
        return Progress(certificate, self.problem.n, exact=True)

    def step(self) -> None:
        problem, state = self.problem, self.state
        H = problem.margins(state)
        alpha = state.blocks()
        target, log_target = self._targets(H)
        direction = target - alpha
        image, squared = problem.image(direction)
        slope = float(problem.costs @ np.einsum("ik,ik->i", direction, H))
        if self.rule.name == "eg":
            gamma = 1.0
        elif squared <= max(slope, 0.0):
            gamma = 1.0 if slope > 0 else 0.0
        else:
            gamma = max(slope, 0.0) / squared
        if state.entropic:
            gamma = gamma if self.rule.name == "eg" else min(gamma, 1.0 - self.rule.truncation)
            state.alpha = self._blend(state.alpha, log_target, gamma)
        else:
            state.alpha += (gamma * direction).astype(state.alpha.dtype)
            np.maximum(state.alpha, 0, out=state.alpha)
        state.weights -= (gamma * image).astype(state.weights.dtype)

    def certify(self) -> Certificate:
        """P and D of the stored blocks."""
        return self.problem.certify(self.state, self.gaps)

    def _targets(self, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.rule.name == "fw":
            target = np.zeros_like(H)
            target[np.arange(len(H)), np.argmax(H, axis=1)] = 1.0
            return target, target
        u = self.state.alpha + (H - H.max(axis=1, keepdims=True)) / self.rule.temperatures[:, None]
        u -= log_sum(u)
        return np.exp(u), u

    def _blend(self, log_alpha: np.ndarray, log_target: np.ndarray, gamma: float) -> np.ndarray:
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
