"""The default solver of large linear multi-class problems: block steps, then Newton steps where those stall.

Block steps are the fastest there is on rows of moderate length, and need thousands of passes where C |x|^2
is large, as with features that nobody has scaled. Which of the two it is shows in the certified gap.

Classes that a linear model tells apart are another matter. With a large C the optimum is a small W with
hardly a loss, and W(alpha) falls short of many margins by a little, each of which costs C: P tells nothing
long after D has settled. P bounds the optimum at any point, so it is taken at the best multiple of W(alpha),

    P(s W) = s^2 / 2 |W|^2 + sum_i C_i loss_i(s W),    1 <= s <= sqrt(2 P(W)) / |W|,

convex in s. Then block steps go on, as they do where a Newton step is dear.

Block steps pass over ever fewer blocks as others come to rest: an epoch is as many of their passes as visit
n blocks, so that epochs cost the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, squared_norm
from maxmargin.structured.curvature import PIECE
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.multiclass_loops import CRAMMER_SINGER
from maxmargin.structured.multiclass_problem import LinearMultiClass, LinearSolution, Setup
from maxmargin.structured.newton import FACTORED, ProximalNewton


def suits_late(problem: LinearMultiClass, *, most: int = 2000) -> bool:
    """Whether Newton steps can take over where block steps are slow: rows are dense next to samples."""
    n, d = problem.rows.shape
    return d <= most and d < n


class Shortfall:
    """The losses of s W as a function of s >= 1, from the samples whose loss at W is not zero."""

    def __init__(self, problem: LinearMultiClass, W: np.ndarray) -> None:
        self.problem, self.square = problem, squared_norm(W)
        parts = [self._part(W, slice(first, first + PIECE)) for first in range(0, problem.n, PIECE)]
        self.costs, self.Delta, self.changes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _part(self, W: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Costs, Delta and differences of the scores of some samples; those of no loss stay so as s grows."""
        problem, y = self.problem, self.problem.y[part]
        rows = problem.rows.matrix[part].astype(np.float64)
        changes = rows @ W[:-1] + problem.bias * W[-1]
        changes -= changes[np.arange(len(y)), y][:, None]
        Delta = problem.labels.Delta[y]
        short = (Delta + changes).max(axis=1) > 0
        return problem.costs[part][short], Delta[short], changes[short]

    def primal(self, s: float) -> tuple[float, float]:
        """P(s W) and its slope in s."""
        H = self.Delta + s * self.changes
        if self.problem.loss == CRAMMER_SINGER:
            at = np.arange(len(H)), H.argmax(axis=1)
            losses, slopes = H[at], self.changes[at]
        else:
            losses = np.maximum(H, 0).sum(axis=1)
            slopes = np.where(H > 0, self.changes, 0.0).sum(axis=1)
        loss, slope = (float(np.einsum("i,i", self.costs, each)) for each in (losses, slopes))
        return 0.5 * s * s * self.square + loss, s * self.square + slope

    def best(self, *, halvings: int = 50) -> tuple[float, float]:
        """The best multiple s, and P(s W)."""
        low, at_low = 1.0, self.primal(1.0)
        if not self.square or at_low[1] >= 0:
            return low, at_low[0]
        high = float(np.sqrt(2 * at_low[0] / self.square))
        for _ in range(halvings):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.primal(middle)[1] < 0 else (low, middle)
        # Above the kink at which the slope changes its sign all margins are kept.
        return high, self.primal(high)[0]


class SweepsThenNewton:
    """Exact block steps, and Newton steps from there on once their gap falls too slowly.

    Parameters
    ----------
    problem : LinearMultiClass
    setup : Setup
    factored : int
    early, late : (int, float)
        In how many epochs the gap must fall to which share of itself: `early` where the order of Newton's
        matrix is at most `factored`, and a step cheap, `late` otherwise.
    wide : int
        After how many epochs P is taken at the best multiple where Newton steps cannot take over at all.
    still : float
        There it is taken sooner, once an epoch raises D by no more than this part of what tol allows. On text
        D comes to rest so late that blocks are certified before.
    longer : float
        Classes can be told apart if the best multiple of W has less than this share of P(W).
    """

    def __init__(
        self,
        problem: LinearMultiClass,
        setup: Setup,
        *,
        factored: int = FACTORED,
        early: tuple[int, float] = (20, 0.25),
        late: tuple[int, float] = (200, 0.5),
        wide: int = 60,
        still: float = 1e-4,
        longer: float = 0.5,
    ) -> None:
        self.problem, self.setup, self.longer = problem, setup, longer
        order = problem.c * (problem.rows.shape[1] + 1)
        self.dear = order > factored
        self.every, self.factor = late if self.dear else early
        self.still = -np.inf
        if not suits_late(problem):
            self.dear, self.every, self.factor, self.still = True, wide, np.inf, still
        # Newton steps on the active set of blocks are for where those on W are dear.
        self.solver: ExactBlocks | ProximalNewton = ExactBlocks(problem, setup, newton=self.dear)
        self.epochs, self.gap, self.dual = 0, np.inf, -np.inf
        self.settled = False

    def epoch(self, clock: Clock) -> Progress:
        progress = self.solver.epoch(clock)
        visited = progress.active
        while not progress.exact and visited < self.problem.n and not clock.expired():
            progress = self.solver.epoch(clock)
            visited += progress.active
        self.epochs += 1
        rise, self.dual = progress.certificate.dual - self.dual, progress.certificate.dual
        if isinstance(self.solver, ExactBlocks):
            at_rest = not self.settled and rise <= self.still * self.setup.tol * abs(self.dual)
            if at_rest or self.epochs % self.every == 0:
                return self._judged(self.solver, progress)
            if self.settled and self.epochs % 20 == 0:
                return Progress(self._looked(self.solver)[1], progress.active, exact=True)
        return progress

    def _judged(self, solver: ExactBlocks, progress: Progress) -> Progress:
        """Go on with block steps or turn to Newton steps."""
        share, certificate = self._looked(solver)
        self.settled = self.dear or share < self.longer
        if certificate.gap > max(self.factor * self.gap, self.setup.tol):
            blocks = solver.solution().blocks
            # These blocks are near, so that the first anchor may hold less.
            newton = ProximalNewton(self.problem, replace(self.setup, blocks=blocks), first=1.0)
            newton.keep(solver.best)
            self.solver, self.settled = newton, False
            return replace(progress, exact=False)
        self.gap = certificate.gap
        return Progress(certificate, progress.active, exact=True)

    def _looked(self, solver: ExactBlocks) -> tuple[float, Certificate]:
        """Offer the best multiple of the weights; returns its part of P(W), and what is proved then."""
        (plain, _), (best, solution) = solver.current(), self._multiple(solver)
        solver.best.offer(best.primal, solution.weights)
        return best.primal / plain.primal if plain.primal else 1.0, solver.certify()

    def certify(self) -> Certificate:
        return self._answer()[0]

    def solution(self) -> LinearSolution:
        return self._answer()[1]

    def _answer(self) -> tuple[Certificate, LinearSolution]:
        """P and D, and the model: the best weights of the solver, or the best multiple of the last ones."""
        certificate, solution = self.solver.certify(), self.solver.solution()
        if isinstance(self.solver, ProximalNewton) or certificate.gap <= self.setup.tol:
            return certificate, solution
        multiple = self._multiple(self.solver)
        return multiple if multiple[0].primal < certificate.primal else (certificate, solution)

    def _multiple(self, solver: ExactBlocks) -> tuple[Certificate, LinearSolution]:
        """P and D at the best multiple of the weights as they are, and its model."""
        certificate, solution = solver.current()
        s, primal = Shortfall(self.problem, solution.weights).best()
        if s == 1.0:
            return certificate, solution
        return Certificate(primal, certificate.dual), solution._replace(weights=s * solution.weights)
