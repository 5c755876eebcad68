"""Dual coordinate ascent for labels that are not coupled, all labels at once and then one by one.

Problem, dual and gap as in problems/m3l.py with R diagonal. The method alternates between
two layouts of the same weights:

1. *Sweeps*, feature-major: a row x_i is read once for all labels and the loops run along
   them. Cheap per variable; used while almost every variable still moves.
2. *Polishing*, label-major: each label works on the list of samples that still have a gap,
   with its weight vector in cache, until its share of the gap is small enough.

Each epoch ends with one exact measurement of the gap over all samples and labels, which also
rebuilds the lists, so nothing that was left out can be forgotten. Labels share nothing but X:
threads take one range of labels each. The bias is found as in solvers/_bias.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Patience, Progress, require
from maxmargin.core.rows import readonly
from maxmargin.core.threads import lined_up, run_threads, transpose
from maxmargin.multilabel import loops
from maxmargin.multilabel.bias import BiasPull
from maxmargin.multilabel.reach import neglected_share

FIRST_SWEEPS = 3
PASSES = 10
# Polishing aims at this part of the gap that is still allowed.
AIM = 0.7
# Polishing sees the gap a little late; below this share of the goal it is worth certifying at once.
LIKELY = 0.8
# Random numbers handed to the polishing loop per epoch; a power of two, small enough for L1.
DRAWS = 1 << 13


class LabelSweeps:
    """State of the method: alpha (N x L) and W in the working precision.

    W is (D+1) x L and a few idle columns that keep its rows on cache lines of their own.
    """

    def __init__(
        self, problem: Any, alpha: np.ndarray, *, tol: float, rng: np.random.RandomState, n_threads: int = 1
    ) -> None:
        require(
            problem, ("rows", "costs", "bias", "q", "r", "accumulate", "measure", "solution"), "LabelSweeps"
        )
        self.problem, self.tol, self.rng, self.n_threads = problem, tol, rng, n_threads
        self.n, self.L = alpha.shape
        self.flags = np.ones((self.n, self.L), np.bool_)
        self.S = np.zeros(self.L)
        self.gap = np.empty(0)
        self.relative_gap = np.inf
        self.quiet = 0.0
        # What polishing saw of the gap last, and the objective it is compared with.
        self.expected, self.scale = np.inf, 0.0
        self.solved: Any = None
        self.follow = BiasPull(problem.bias, problem.q, self.L)
        self.patience = Patience()
        self._prepare(alpha)

    def _prepare(self, alpha: np.ndarray) -> None:
        """Set up the state in the precision of alpha."""
        problem, real = self.problem, alpha.dtype.type
        self.alpha, self.real = alpha, real
        self.bias = real(problem.bias)
        self.q = readonly(problem.q.astype(real))
        self.r = readonly(problem.r.astype(real))
        self.costs = problem.costs.flat(real)
        self.W = lined_up(problem.shape[2] + 1, self.L, real)
        self.WT: np.ndarray = np.empty(self.W.shape[::-1], real)
        if alpha.any():
            self.W[:, : self.L] = problem.accumulate(alpha, real, self.n_threads) * self.r

    @property
    def bias_row(self) -> np.ndarray:
        """The bias as a row of V."""
        return self.W[-1, : self.L] / self.problem.r

    def epoch(self, clock: Clock) -> Progress:
        self.solved = None
        if self.gap.size:
            self._polish(clock)
        elif self.alpha.any():
            self._measure()
            self._polish(clock)
        else:
            for _ in range(FIRST_SWEEPS):
                self._sweep()
        if self.expected <= LIKELY * self.tol * self.scale:
            certificate = self.certify()
            if certificate.gap <= self.tol:
                return Progress(certificate, int(np.count_nonzero(self.flags)), exact=True)
        progress = self._measure()
        if self.patience.exhausted(progress.certificate.gap) and self.real is np.float32:
            self._prepare(self.alpha.astype(np.float64))
        return progress

    def certify(self) -> Certificate:
        self.solved, certificate = self.problem.solution(self.alpha, self.bias_row, self.n_threads)
        self.W[:, : self.L] = self.solved
        return certificate

    def weights(self) -> np.ndarray:
        """Z of the state as it is, in float64."""
        if self.solved is None:
            self.certify()
        return self.solved

    def _sweep(self) -> None:
        order = readonly(self.rng.permutation(self.n))
        pull = readonly(self.follow.pull.astype(self.real))

        def work(part: tuple[np.uint64, np.uint64]) -> None:
            loops.sweep_labels(
                self.problem.rows.flat, self.bias, pull, order, *part, self.alpha, *self.costs,
                self.q, self.r, self.W, self.S,
            )  # fmt: skip

        run_threads(work, self.problem.label_ranges(self.n_threads), self.n_threads)
        goal = (self.problem.bias * self.S * self.problem.r).astype(self.real)
        self.W[-1, : self.L] += pull * (goal - self.W[-1, : self.L])

    def _polish(self, clock: Clock) -> None:
        counts = np.count_nonzero(self.flags, axis=0)
        starts = np.concatenate([[0], np.cumsum(counts)])
        members = np.empty(starts[-1], np.int32 if self.n < 2**31 else np.int64)
        order = readonly(self.rng.permutation(self.n))
        loops.gather_lists(readonly(self.flags), order, starts[:-1].copy(), members)
        draws = readonly(self.rng.randint(0, 2**32, DRAWS, dtype=np.uint32))
        share = AIM * max(self.tol / max(self.relative_gap, self.tol), 0.02)
        targets = readonly(self.gap * share)
        pull = readonly(self.follow.pull.astype(self.real))
        WT = self.WT
        transpose(self.W, WT, self.n_threads)
        remaining = self.gap.copy()

        def work(labels: np.ndarray) -> None:
            if not clock.expired():
                loops.polish_labels(
                    self.problem.rows.flat, self.bias, pull, readonly(labels),
                    readonly(starts), readonly(members), self.alpha, *self.costs, self.q, self.r, WT,
                    self.S, targets, PASSES, draws, remaining,
                )  # fmt: skip

        # Longest lists first and in small groups, so that threads end together.
        by_length = np.argsort(-counts, kind="stable")
        by_length = by_length[self.gap[by_length] > 0]
        n_groups = min(len(by_length), 8 * self.n_threads)
        run_threads(work, [by_length[k::n_groups] for k in range(n_groups)], self.n_threads)
        transpose(WT, self.W, self.n_threads)
        self.expected = float(remaining.sum())

    def _measure(self) -> Progress:
        problem = self.problem
        sums = problem.measure(self.alpha, self.W, None, self.flags, self.n_threads, self.quiet)
        self.S = sums.S
        lag = self.bias_row - problem.bias * self.S
        lag_share = 0.5 * problem.r * lag**2
        self.gap = sums.gap + lag_share
        self.follow.learn(self.gap, lag_share)
        norms = np.einsum("jl,jl->l", self.W, self.W, dtype=np.float64)[: self.L]
        primal = 0.5 * float(np.sum(norms / problem.r)) + float(sums.loss.sum()) + problem.costs.constant
        certificate = Certificate(primal, primal - float(self.gap.sum()))
        self.relative_gap = certificate.gap
        self.scale = abs(certificate.primal)
        self.quiet = neglected_share(self.tol, certificate.primal, self.alpha.size)
        return Progress(certificate, int(np.count_nonzero(self.flags)))
