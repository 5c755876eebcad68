"""The paper's linear solver: dual coordinate ascent with label-coupled shrinking.

Problem, dual and gap as in problems/m3l.py. One variable at a time,

    alpha_pl <- clip(alpha_pl + g_pl / (R_ll |x_p|^2), 0, c_pl),    z_k += R_kl d x_p for all k,

in two phases: A visits pairs (p, l) in random order and updates all labels at once; B, entered
when the largest projected gradient is below 100 tol, makes L steps along one label before the
others hear of them. Variables at a bound leave the active set when their gradient points out of
the box beyond what the other labels can still move (bounds (44)-(45) with |R_kl| / R_kk, which
does not depend on the scale of R). Once the active set holds but a part of the gap it is restored.

Hariharan, Vishwanathan, Varma 2012, section 5.2, with a permutation per pass instead of
sampling with replacement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.core.rows import readonly
from maxmargin.multilabel import dca_loops as loops
from maxmargin.multilabel.reach import coupled_reach

SWITCH = 100.0


class DualCoordinateAscent:
    """State of the method: alpha (N x L), Z ((D+1) x L), both float64, and the active set."""

    def __init__(self, problem: Any, alpha: np.ndarray, *, tol: float, rng: np.random.RandomState) -> None:
        require(problem, ("rows", "costs", "bias", "q", "r", "solution", "measure"), "DualCoordinateAscent")
        self.problem, self.tol, self.rng = problem, tol, rng
        self.alpha = alpha.astype(np.float64)
        self.n, self.L = alpha.shape
        self.R = np.diag(problem.r) if problem.R is None else problem.R
        self.Z = problem.couple(problem.accumulate(self.alpha))
        self.active = np.ones((self.n, self.L), np.bool_)
        self.largest = np.inf
        self._forget_bounds()

    def _forget_bounds(self) -> None:
        self.low = np.zeros((2, self.L))
        self.high = np.zeros((2, self.L))
        self.low[0], self.high[0] = -np.inf, np.inf

    def epoch(self, clock: Clock) -> Progress:
        problem = self.problem
        active_pairs = np.flatnonzero(self.active)
        delayed = self.largest < SWITCH * self.tol
        order = self._delayed_order(active_pairs) if delayed else (self.rng.permutation(active_pairs),)
        loop = loops.delayed_pass if delayed else loops.random_pass
        seen = loop(
            problem.rows.flat, problem.bias, *map(readonly, order), self.alpha,
            *problem.costs.flat(np.float64), readonly(problem.q + problem.bias**2), readonly(self.R),
            self.Z, self.active, self.low, self.high,
        )  # fmt: skip
        progress = self._measure()
        certificate = progress.certificate
        enough = max(self.tol * abs(certificate.primal), 0.3 * (certificate.primal - certificate.dual))
        if seen <= enough and not self.active.all():
            self.active[:] = True
            self._forget_bounds()
        else:
            self._move_bounds()
        return progress

    def certify(self) -> Certificate:
        self.Z, certificate = self.problem.solution(self.alpha)
        return certificate

    def weights(self) -> np.ndarray:
        """Z of the state as it is."""
        self.certify()
        return self.Z

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

    def _move_bounds(self) -> None:
        self.largest = max(float(self.high[1].max()), float(-self.low[1].min()))
        reach = coupled_reach(self.R, self.low[1], self.high[1])
        self._forget_bounds()
        self.low[0], self.high[0] = reach

    def _measure(self) -> Progress:
        problem = self.problem
        sums = problem.measure(self.alpha, self.Z, None, np.empty((self.n, self.L), np.bool_), 1)
        gap, loss = float(sums.gap.sum()), float(sums.loss.sum())
        norm = float(sums.value.sum()) - loss + gap
        primal = 0.5 * norm + loss + problem.costs.constant
        return Progress(Certificate(primal, primal - gap), int(np.count_nonzero(self.active)))
