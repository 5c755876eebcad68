"""Dual coordinate ascent for coupled labels, all labels of one sample together.

Problem, dual and gap as in problems/m3l.py with a prior R that ties labels together. The
labels of a sample form one block; its scores are x_i'T G with R = G H':

- full rank: T = V = X'A, G = R, H = I; a changed variable touches one column of T;
- low rank:  T = V P', G = H = P' with R = P'P; everything costs rank instead of labels.

An epoch makes a few passes over the entries that still have a gap and ends with one exact
measurement over all of them, which marks those to visit next. The bias is found as in
solvers/_bias.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Patience, Progress, require
from maxmargin.core.rows import readonly
from maxmargin.multilabel import loops
from maxmargin.multilabel.bias import BiasPull
from maxmargin.multilabel.reach import coupled_reach, neglected_share

PASSES = 5


class SampleSweeps:
    """State of the method: alpha (N x L), T ((D+1) x K) and the bias row u, in working precision."""

    def __init__(
        self, problem: Any, alpha: np.ndarray, *, tol: float, rng: np.random.RandomState, n_threads: int = 1
    ) -> None:
        require(
            problem, ("rows", "costs", "q", "r", "R", "low_rank", "accumulate", "measure"), "SampleSweeps"
        )
        self.problem, self.tol, self.rng, self.n_threads = problem, tol, rng, n_threads
        self.n, self.L = alpha.shape
        self.flags = np.ones((self.n, self.L), np.bool_)
        self.S = np.einsum("il,il->l", problem.costs.signs, alpha, dtype=np.float64)
        self.bias_row = problem.bias * self.S
        self.quiet = 0.0
        self.solved: Any = None
        self.follow = BiasPull(problem.bias, problem.q, self.L)
        self.patience = Patience()
        self._prepare(alpha)

    def _prepare(self, alpha: np.ndarray) -> None:
        """Set up the state in the precision of alpha."""
        problem, real = self.problem, alpha.dtype.type
        self.alpha, self.real = alpha, real
        P = problem.low_rank
        self.factored = P is not None
        G = (problem.R if P is None else P).astype(real)
        self.G, self.GT = readonly(G), readonly(G.T)
        self.bias = real(problem.bias)
        self.q = readonly(problem.q.astype(real))
        self.r = readonly(problem.r.astype(real))
        self.costs = problem.costs.flat(real)
        V = problem.accumulate(alpha, real, self.n_threads)
        V[-1] = self.bias_row
        self.T = np.ascontiguousarray(V @ G.T) if self.factored else V

    def epoch(self, clock: Clock) -> Progress:
        self.solved = None
        counts = np.count_nonzero(self.flags, axis=1)
        pull = readonly(self.follow.pull.astype(self.real))
        reach = np.full(self.L, -np.inf), np.full(self.L, np.inf)
        for _ in range(PASSES):
            before = self.S.copy()
            low, high = np.zeros((2, 2, self.L), self.real)
            low[0], high[0] = reach
            loops.sweep_samples(
                self.problem.rows.flat, self.bias, pull, readonly(self.rng.permutation(self.n)),
                readonly(self.rng.permutation(self.L)), self.alpha, *self.costs, self.q, self.r,
                self.T, self.GT, self.GT, self.factored, self.flags, counts, low, high, self.S,
            )  # fmt: skip
            self._draw_bias(before)
            reach = coupled_reach(self.problem.R, low[1], high[1])
            if clock.expired():
                break
        progress = self._measure()
        if self.patience.exhausted(progress.certificate.gap) and self.real is np.float32:
            self._prepare(self.alpha.astype(np.float64))
        return progress

    def certify(self) -> Certificate:
        self._prepare(self.alpha)
        self.solved, certificate = self.problem.solution(self.alpha, self.bias_row, self.n_threads)
        return certificate

    def weights(self) -> np.ndarray:
        """Z of the state as it is, in float64."""
        if self.solved is None:
            self.certify()
        return self.solved

    def _draw_bias(self, before: np.ndarray) -> None:
        """End a pass: the bias row has answered its steps, now draw it towards its dual value."""
        pull, bias = self.follow.pull, self.problem.bias
        self.bias_row += pull * bias * (self.S - before)
        self.bias_row += pull * (bias * self.S - self.bias_row)
        self.T[-1] = self.G @ self.bias_row if self.factored else self.bias_row

    def _measure(self) -> Progress:
        problem = self.problem
        sums = problem.measure(self.alpha, self.T, self.G, self.flags, self.n_threads, self.quiet)
        loss, value = float(sums.loss.sum()), float(sums.value.sum())
        self.S = sums.S
        lag = self.bias_row - problem.bias * self.S
        lag_share = 0.5 * lag * (problem.R @ lag)
        self.follow.learn(sums.gap + lag_share, lag_share)
        gap = float(sums.gap.sum()) + float(lag_share.sum())
        # <A, F> = <m, alpha> - <g, alpha> and <g, alpha> = loss - gap, for scores F with the bias u R;
        # moving from s S to u in both factors completes the square.
        cross = value - loss + float(sums.gap.sum())
        norm = cross + float(lag @ problem.R @ self.bias_row)
        primal = 0.5 * norm + loss + problem.costs.constant
        self.quiet = neglected_share(self.tol, primal, self.alpha.size)
        return Progress(Certificate(primal, primal - gap), int(np.count_nonzero(self.flags)))
