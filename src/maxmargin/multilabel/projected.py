"""The paper's stopping rule, around any solver: no projected gradient is larger than a number.

The gradient g = m - Y * F of the dual (`problem`) is projected on the box: at alpha = 0 only what is positive
counts, at alpha = c only what is negative. A bound tau on all of them bounds the duality gap by tau times the
sum of the boxes and no better, so that a fit which ends by this rule still reports its certified gap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, Solver
from maxmargin.multilabel.problem import M3L, KernelM3L, LinearM3L, Solution


def largest_projected_gradient(problem: M3L, alpha: np.ndarray) -> float:
    """max |g| over all entries that may move that way, in units of the margin (half of the paper's)."""
    boxes = problem.costs.boxes()
    g = problem.costs.margins() - problem.costs.signs * problem.training_scores(alpha)
    rise, fall = np.where(alpha < boxes, g, 0.0), np.where(alpha > 0, -g, 0.0)
    return float(np.maximum(rise, fall).max(initial=0.0))


class UntilProjected:
    """A solver whose fit ends once the largest projected gradient is at most `tau`.

    The model is then the one of these dual variables, which need not be the best one on the way.
    """

    def __init__(self, solver: Solver, problem: LinearM3L | KernelM3L, tau: float) -> None:
        self.solver, self.problem, self.tau = solver, problem, tau
        self.end: tuple[Solution, Certificate] | None = None

    def epoch(self, clock: Clock) -> Progress:
        progress = self.solver.epoch(clock)
        alpha = self.solver.solution().alpha
        done = largest_projected_gradient(self.problem, alpha) <= self.tau
        if not done:
            return replace(progress, done=False)
        if isinstance(self.problem, LinearM3L):
            Z, certificate = self.problem.evaluate(alpha)
            self.end = Solution(alpha, Z), certificate
        else:
            B = self.problem.coefficients(alpha)
            self.end = self.problem.solution(B), self.problem.certified(B)
        return replace(progress, exact=False, done=True)

    def certify(self) -> Certificate:
        return self.solver.certify() if self.end is None else self.end[1]

    def solution(self) -> Any:
        return self.solver.solution() if self.end is None else self.end[0]
