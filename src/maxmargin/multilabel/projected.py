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
from maxmargin.multilabel.problem import M3L


def largest_projected_gradient(problem: M3L, alpha: np.ndarray) -> float:
    """max |g| over all entries that may move that way, in units of the margin (half of the paper's)."""
    boxes = problem.costs.boxes()
    g = problem.costs.margins() - problem.costs.signs * problem.training_scores(alpha)
    rise, fall = np.where(alpha < boxes, g, 0.0), np.where(alpha > 0, -g, 0.0)
    return float(np.maximum(rise, fall).max(initial=0.0))


class UntilProjected:
    """A solver whose fit ends once the largest projected gradient is at most `tau`."""

    def __init__(self, solver: Solver, problem: M3L, tau: float) -> None:
        self.solver, self.problem, self.tau = solver, problem, tau

    def epoch(self, clock: Clock) -> Progress:
        progress = self.solver.epoch(clock)
        largest = largest_projected_gradient(self.problem, self.solver.solution().alpha)
        return replace(progress, done=largest <= self.tau)

    def certify(self) -> Certificate:
        return self.solver.certify()

    def solution(self) -> Any:
        return self.solver.solution()
