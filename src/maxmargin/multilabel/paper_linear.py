"""The paper's linear solver, dual coordinate ascent with label-coupled shrinking, and its stopping rule.

Problem, dual and gap as in `problem`. One variable at a time,

    alpha_pl <- clip(alpha_pl + g_pl / (R_ll |x_p|^2), 0, c_pl),    z_k += R_kl d x_p for all k,

in two phases. Phase A visits pairs (p, l) in random order and updates all labels after every step. Phase B
starts when the largest projected gradient is below `switch`: it makes L steps on one label before the weights
of the others are updated. A variable at a bound leaves the active set if its gradient points out of the box
by more than the other labels can still move it, by the bounds (44)-(45) with |R_kl| / R_kk, which does not
depend on the scale of R. The active set is restored when it holds only a small part of the gap.

If R couples no labels, steps on different labels are independent and may be taken in any order:
`paper_ascent` then uses the lists of `sweeps.LabelSweeps`.

Hariharan, Vishwanathan, Varma 2012, section 6, with a permutation per pass instead of sampling with
replacement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress, Solver
from maxmargin.core.rows import readonly
from maxmargin.multilabel import paper_linear_loops as loops
from maxmargin.multilabel.loops import Bounds
from maxmargin.multilabel.problem import M3L, KernelM3L, LinearM3L, Solution, shrinking_bounds
from maxmargin.multilabel.sweeps import LabelSweeps, SweepRule


class DualCoordinateAscent(Evaluated):
    """State of the method: alpha (N x L) and Z ((D+1) x L), both float64, and the active set.

    Parameters
    ----------
    problem : LinearM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap at which training stops.
    rng : numpy.random.RandomState
        Draws the order of the pairs.
    switch : float, default=None
        Largest projected gradient at which phase B starts; None is 100 tol. The paper gives no number.
    restore : float, default=0.3
        The active set is restored once it holds at most this part of the gap.
    """

    def __init__(
        self,
        problem: LinearM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        rng: np.random.RandomState,
        switch: float | None = None,
        restore: float = 0.3,
    ) -> None:
        self.problem, self.tol, self.rng = problem, tol, rng
        self.switch, self.restore = 100 * tol if switch is None else switch, restore
        self.alpha = alpha.astype(np.float64)
        self.n, self.L = alpha.shape
        self.R = np.diag(problem.r) if problem.R is None else problem.R
        self.costs = problem.costs.flat(np.float64)
        self.q = readonly(problem.q + problem.bias**2)
        self.Z = problem.couple(problem.accumulate(self.alpha))
        self.active = np.ones((self.n, self.L), np.bool_)
        self.largest = self.gap = np.inf
        self.best = BestWeights()
        self._reset_bounds()

    def _move(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The last running gap was small enough but not its certificate: Z has drifted.
            self.Z = self.problem.evaluate(self.alpha)[0].copy()
        active_gap = self._pass()
        certificate = self._measure()
        self.gap = certificate.gap
        self.best.offer(certificate.primal, self.Z)
        gap = certificate.primal - certificate.dual
        visited = int(np.count_nonzero(self.active.any(axis=1)))
        if (
            active_gap <= max(self.tol * abs(certificate.primal), self.restore * gap)
            and not self.active.all()
        ):
            self.active[:] = True
            self._reset_bounds()
        else:
            self.largest = max(float(self.high[1].max()), float(-self.low[1].min()))
            bounds = shrinking_bounds(self.R, self.low[1], self.high[1])
            self._reset_bounds()
            self.low[0], self.high[0] = bounds
        return Progress(Certificate(self.best.primal, certificate.dual), visited)

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The best weights, and their certificate with the present dual variables."""
        Z, certificate = self.problem.evaluate(self.alpha)
        if self.best.primal < certificate.primal and not self.best.are_last:
            Z, certificate = self.best.weights, Certificate(self.best.primal, certificate.dual)
        return Solution(readonly(self.alpha), Z), certificate

    def _pass(self) -> float:
        """One pass over the active pairs; return the gap that they had."""
        pairs = np.flatnonzero(self.active)
        state = loops.PaperState(readonly(self.R), self.q, self.alpha, self.Z)
        bounds = Bounds(self.active, self.low, self.high)
        given = self.problem.rows.flat, self.costs, self.problem.bias
        if self.largest < self.switch:
            order, starts = self._delayed_order(pairs)
            return loops.delayed_pass(*given, readonly(order), readonly(starts), state, bounds)
        return loops.random_pass(*given, readonly(self.rng.permutation(pairs)), state, bounds)

    def _delayed_order(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Random chunks of at most L pairs of one label in random order, and where they start."""
        pairs = self.rng.permutation(pairs)
        pairs = pairs[np.argsort(pairs % self.L, kind="stable")]
        labels = pairs % self.L
        first = np.searchsorted(labels, labels)
        chunk = labels * (self.n + 1) + (np.arange(len(pairs)) - first) // self.L
        _, starts = np.unique(chunk, return_index=True)
        chunks = np.split(pairs, starts[1:])
        chunks = [chunks[k] for k in self.rng.permutation(len(chunks))]
        return np.concatenate(chunks), np.cumsum([0, *map(len, chunks)])

    def _reset_bounds(self) -> None:
        self.low, self.high = np.zeros((2, 2, self.L))
        self.low[0], self.high[0] = -np.inf, np.inf

    def _measure(self) -> Certificate:
        """The certificate of the running weights."""
        problem = self.problem
        sums = problem.measure(self.alpha, self.Z, None, np.empty((self.n, self.L), np.bool_), 1)
        gap, loss = float(sums.gap.sum()), float(sums.loss.sum())
        norm = float(sums.value.sum()) - loss + gap
        primal = 0.5 * norm + loss + problem.costs.constant
        return Certificate(primal, primal - gap)


def paper_ascent(
    problem: LinearM3L,
    alpha: np.ndarray,
    *,
    tol: float,
    rng: np.random.RandomState,
    switch: float | None = None,
) -> Solver:
    """The paper's linear solver; without coupled labels it works on one label after the other.

    The order of steps on independent labels does not matter, so the lists of `LabelSweeps` serve, with the
    bias as the ordinary feature that it is in the paper. They shrink by (44)-(45) for a diagonal R. Unlike
    the paper, an epoch ends at the mean of its last pass.
    """
    if problem.coupled:
        return DualCoordinateAscent(problem, alpha, tol=tol, rng=rng, switch=switch)
    return LabelSweeps(problem, alpha, tol=tol, rng=rng, rule=SweepRule(bias_rate=np.inf))


def largest_projected_gradient(problem: M3L, alpha: np.ndarray) -> float:
    """max |g| over the entries that may move along g, in units of the margin (half of the paper's)."""
    boxes = problem.costs.boxes()
    g = problem.costs.margins() - problem.costs.signs * problem.training_scores(alpha)
    rise, fall = np.where(alpha < boxes, g, 0.0), np.where(alpha > 0, -g, 0.0)
    return float(np.maximum(rise, fall).max(initial=0.0))


class UntilProjected:
    """Run a solver until the largest projected gradient is at most `tau`, the paper's stopping rule.

    The gradient g = m - Y * F is projected on the box: at alpha = 0 only its positive part counts, at
    alpha = c only its negative part. A bound tau bounds the duality gap only by tau times the sum of the
    boxes, so the model still reports its certified gap. It is the model of the last dual variables, which
    need not be the best one of the fit.
    """

    def __init__(self, solver: Solver, problem: LinearM3L | KernelM3L, tau: float) -> None:
        self.solver, self.problem, self.tau = solver, problem, tau
        self.end: tuple[Solution, Certificate] | None = None

    def epoch(self, clock: Clock) -> Progress:
        progress = self.solver.epoch(clock)
        alpha = self.solver.solution().alpha
        if largest_projected_gradient(self.problem, alpha) > self.tau:
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
