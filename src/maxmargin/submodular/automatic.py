"""The default solver of problems with many weights: block steps, then interior point steps where those stall.

Block steps cost little and need few passes on rows of moderate length. Where c |x|^2 is large, as with
features that nobody has scaled, or where many samples share what few features tell, they need hundreds.
Which of the two it is shows in the gap after some epochs; the sets met until then are what the interior
point method starts from. It needs the products of all rows with each other.
"""

from __future__ import annotations

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.submodular.bcfw import BlockSolution, ClippedBCFW
from maxmargin.submodular.interior import Equations, InteriorPoint, InteriorSolution
from maxmargin.submodular.problem import SubmodularF1


def suits(problem: SubmodularF1, *, labels: int = 40_000, pairs: int = 1000) -> bool:
    """Whether interior point steps can take over: more samples than features, and not too many of them.

    With more `labels`, of all samples together, the preconditioner holds too few of the directions: on enron
    (60,000) these took 44 CPU seconds to a gap of 2.5e-3, and block steps alone take 10.
    """
    n, V, d, E = problem.shape
    return d < n and n * V <= labels and pairs >= E


class StepsThenInterior:
    """Block steps, and an interior point method when their gap is above `stalled` after some `epochs`.

    Of the sets in ``python -m benchmarks submodular sets`` this applies to raw birds, at 0.99 by then. Where
    its columns have variance 1 they are at 0.05, and done in half the time that interior point steps take.
    """

    def __init__(
        self,
        problem: SubmodularF1,
        steps: ClippedBCFW,
        way: type[Equations],
        *,
        memory: int = 20,
        epochs: int = 5,
        stalled: float = 0.3,
    ) -> None:
        self.problem, self.way, self.memory = problem, way, memory
        self.epochs, self.stalled = epochs, stalled
        self.solver: ClippedBCFW | InteriorPoint = steps

    def epoch(self, clock: Clock) -> Progress:
        """One of the solver at work, which may change after it."""
        solver = self.solver
        progress = solver.epoch(clock)
        if not isinstance(solver, ClippedBCFW) or solver.epochs != self.epochs:
            return progress
        if progress.certificate.gap > self.stalled and not clock.expired():
            self.solver = InteriorPoint(self.problem, memory=self.memory, steps=solver, way=self.way)
        return progress

    def certify(self) -> Certificate:
        return self.solver.certify()

    def solution(self) -> BlockSolution | InteriorSolution:
        return self.solver.solution()
