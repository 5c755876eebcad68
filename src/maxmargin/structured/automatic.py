"""The default solver of large linear multi-class problems: block steps, then Newton steps where those stall.

Block steps are the fastest there is on rows of moderate length, and need thousands of passes where C |x|^2
is large, as with features that nobody has scaled. Which of the two it is shows in the certified gap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.multiclass_problem import LinearMultiClass, LinearSolution, Setup
from maxmargin.structured.newton import FACTORED, ProximalNewton


def suits_late(problem: LinearMultiClass, *, most: int = 2000) -> bool:
    """Whether Newton steps can take over where block steps are slow: rows are dense next to samples."""
    n, d = problem.rows.shape
    return d <= most and d < n


class SweepsThenNewton:
    """Exact block steps, and Newton steps from there on once their gap falls too slowly.

    Parameters
    ----------
    problem : LinearMultiClass
    setup : Setup
    factored : int
    early, late : (int, float)
        In how many passes the gap must fall to which share of itself: `early` where the order of Newton's
        matrix is at most `factored`, and a step cheap, `late` otherwise.
    """

    def __init__(
        self,
        problem: LinearMultiClass,
        setup: Setup,
        *,
        factored: int = FACTORED,
        early: tuple[int, float] = (40, 0.25),
        late: tuple[int, float] = (200, 0.5),
    ) -> None:
        self.problem, self.setup = problem, setup
        order = problem.c * (problem.rows.shape[1] + 1)
        self.every, self.factor = early if order <= factored else late
        self.solver: ExactBlocks | ProximalNewton = ExactBlocks(problem, setup)
        self.passes, self.gap = 0, np.inf

    def epoch(self, clock: Clock) -> Progress:
        progress = self.solver.epoch(clock)
        self.passes += 1
        if isinstance(self.solver, ExactBlocks) and self.passes % self.every == 0:
            gap = self.solver.certify().gap
            if gap > max(self.factor * self.gap, self.setup.tol):
                blocks = self.solver.solution().blocks
                # These blocks are near, so that the first anchor may hold less.
                self.solver = ProximalNewton(self.problem, replace(self.setup, blocks=blocks), first=1.0)
                progress = replace(progress, exact=False)
            self.gap = gap
        return progress

    def certify(self) -> Certificate:
        return self.solver.certify()

    def solution(self) -> LinearSolution:
        return self.solver.solution()
