"""The paper's linear solver: dual coordinate ascent with label-coupled shrinking.

Problem, dual and gap as in `problem`. One variable at a time,

    alpha_pl <- clip(alpha_pl + g_pl / (R_ll |x_p|^2), 0, c_pl),    z_k += R_kl d x_p for all k,

in two phases: A visits pairs (p, l) in random order and updates all labels at once; B, entered
when the largest projected gradient is below `switch`, makes L steps along one label before the
others hear of them. Variables at a bound leave the active set when their gradient points out of
the box beyond what the other labels can still move (bounds (44)-(45) with |R_kl| / R_kk, which
does not depend on the scale of R). Once the active set holds but a part of the gap it is restored.

Where R ties no labels, steps on different labels do not meet and may be taken in any order:
`sweeps.paper_ascent` then goes through one label after the other.

Hariharan, Vishwanathan, Varma 2012, section 6, with a permutation per pass instead of
sampling with replacement.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress, Solver
from maxmargin.core.rows import readonly
from maxmargin.multilabel import dca_loops as loops
from maxmargin.multilabel.loops import Reach
from maxmargin.multilabel.problem import LinearM3L, Solution, coupled_reach
from maxmargin.multilabel.sweeps import LabelSweeps, SweepRule


class DualCoordinateAscent(Evaluated):
    """State of the method: alpha (N x L), Z ((D+1) x L), both float64, and the active set.

    Parameters
    ----------
    problem : LinearM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap that training stops at.
    rng : numpy.random.RandomState
        Draws the order of the pairs.
    switch : float, default=None
        Phase B follows once the largest projected gradient is below it; None is 100 tol. The paper
        speaks of a threshold and gives no number.
    restore : float, default=0.3
        The active set is restored once it holds no more than this part of the gap.
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
        self._forget_bounds()

    def _move(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The measured gap was small enough and yet there is another epoch: Z has drifted.
            self.Z = self.problem.evaluate(self.alpha)[0].copy()
        seen = self._pass()
        certificate = self._measure()
        self.gap = certificate.gap
        self.best.offer(certificate.primal, self.Z)
        enough = max(
            self.tol * abs(certificate.primal), self.restore * (certificate.primal - certificate.dual)
        )
        visited = int(np.count_nonzero(self.active.any(axis=1)))
        if seen <= enough and not self.active.all():
            self.active[:] = True
            self._forget_bounds()
        else:
            self._move_bounds()
        return Progress(Certificate(self.best.primal, certificate.dual), visited)

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The best weights, and their certificate with the dual variables."""
        Z, certificate = self.problem.evaluate(self.alpha)
        if self.best.primal < certificate.primal and not self.best.are_last:
            Z, certificate = self.best.weights, Certificate(self.best.primal, certificate.dual)
        return Solution(readonly(self.alpha), Z), certificate

    def _pass(self) -> float:
        """One pass over the active pairs; returns the gap that they had."""
        pairs = np.flatnonzero(self.active)
        state = loops.PaperState(readonly(self.R), self.q, self.alpha, self.Z)
        reach = Reach(self.active, self.low, self.high)
        given = self.problem.rows.flat, self.costs, self.problem.bias
        if self.largest < self.switch:
            order, chunks = self._delayed_order(pairs)
            return loops.delayed_pass(*given, readonly(order), readonly(chunks), state, reach)
        return loops.random_pass(*given, readonly(self.rng.permutation(pairs)), state, reach)

    def _delayed_order(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shuffle within labels, cut into chunks of at most L pairs of one label, shuffle the chunks."""
        pairs = self.rng.permutation(pairs)
        pairs = pairs[np.argsort(pairs % self.L, kind="stable")]
        labels = pairs % self.L
        first = np.searchsorted(labels, labels)
        chunk = labels * (self.n + 1) + (np.arange(len(pairs)) - first) // self.L
        _, starts = np.unique(chunk, return_index=True)
        pieces = np.split(pairs, starts[1:])
        pieces = [pieces[k] for k in self.rng.permutation(len(pieces))]
        bounds = np.cumsum([0, *map(len, pieces)])
        return np.concatenate(pieces), bounds

    def _forget_bounds(self) -> None:
        self.low = np.zeros((2, self.L))
        self.high = np.zeros((2, self.L))
        self.low[0], self.high[0] = -np.inf, np.inf

    def _move_bounds(self) -> None:
        self.largest = max(float(self.high[1].max()), float(-self.low[1].min()))
        reach = coupled_reach(self.R, self.low[1], self.high[1])
        self._forget_bounds()
        self.low[0], self.high[0] = reach

    def _measure(self) -> Certificate:
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
    """The paper's linear solver; where R ties no labels, one label after the other.

    The order of steps on labels that are not coupled does not matter, so the lists of `LabelSweeps` serve,
    with the bias as the ordinary feature that it is in the paper. Their shrinking is (44)-(45) for such an R;
    that an epoch ends at the mean of its last pass is ours.
    """
    if problem.coupled:
        return DualCoordinateAscent(problem, alpha, tol=tol, rng=rng, switch=switch)
    return LabelSweeps(problem, alpha, tol=tol, rng=rng, rule=SweepRule(bias_rate=np.inf))
