"""SMO with delayed gradients for kernelised M3L (Algorithm 1 of the paper, corrected).

Problem, dual, gap and letters are those of `problems.m3l_kernel`: signed coefficients B
between lo and hi, residuals E = T - K B R, all label-major.

One round takes the label l with the largest violation max_i |projected E_li| and makes up
to `n_inner` steps on it. A step takes the worst sample p, its partner q that promises the
largest unconstrained gain

    h_pq = (e_p^2 K_qq + e_q^2 K_pp - 2 e_p e_q K_pq) / (K_pp K_qq - K_pq^2)

among those with a positive definite pair, and solves the two-variable problem exactly
within the box; without a partner p moves alone. Only the residual of label l follows each
step. What the steps did, u = K dB_l, is carried to the other labels once, after the inner
loop, E_k -= R_kl u; this delay makes a step cost O(N) instead of O(N L).

The inner loop ends early when the violation of label l has fallen below `break_factor`
times its value at entry: with a prior that ties labels, the others will move it again.
Training stops on the relative duality gap, recomputed in float64 from B.

Kernel rows come from the whole matrix when it fits in memory, else from the shared LRU
cache. Hariharan, Vishwanathan, Varma, "Efficient max-margin multi-label classification
with applications to zero-shot learning", Machine Learning 88, 2012.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.core.rows import readonly
from maxmargin.multilabel import kernel_loops as loops

CONTRACT = ("K", "prior", "target", "bounds", "constant", "alpha", "scores", "certificate")
# A pair is taken as singular when its determinant is below this fraction of K_pp K_qq.
SINGULAR = 1e-12
# Share of all coefficients that one epoch may touch, so that records come often enough.
EPOCH_SHARE = 1 / 16


class SMO:
    """State of the method; `B` is the solution, label-major.

    Parameters
    ----------
    problem : KernelM3L
    start : array of shape (n_labels, n_samples), default=None
        A feasible B to start from.
    n_inner : int, default=None
        Steps on one label before the others follow; None is max(n_labels, 10).
    break_factor : float, default=0.5
        See above; 0 is the paper's own rule.
    """

    def __init__(
        self,
        problem: Any,
        start: np.ndarray | None = None,
        n_inner: int | None = None,
        break_factor: float = 0.5,
    ) -> None:
        require(problem, CONTRACT, "SMO")
        self.problem, self.break_factor = problem, break_factor
        L, n = problem.target.shape
        self.n_inner = max(L, 10) if n_inner is None else n_inner
        self.n_rounds = max(L, int(EPOCH_SHARE * n * L / self.n_inner))
        self.lo, self.hi = (readonly(bound) for bound in problem.bounds)
        self.R, self.diagonal = readonly(problem.prior), readonly(problem.K.diagonal)
        self.B = np.zeros((L, n)) if start is None else start.copy()
        self.E = problem.target - problem.scores(self.B) if self.B.any() else problem.target.copy()
        self.violations, self.u = np.zeros(L), np.zeros(n)
        self.steps = 0
        self._renew()

    def epoch(self, clock: Clock) -> Progress:
        """Some rounds; the certificate is that of the running residuals."""
        slices = 8
        for _ in range(slices):
            self.steps += self._rounds(-(-self.n_rounds // slices), clock)
            if clock.expired():
                break
        self._renew()
        movable = loops.count_movable(self.E, self.B, self.lo, self.hi)
        return Progress(self.problem.certificate(self.B, self.problem.target - self.E), movable)

    def certify(self) -> Certificate:
        """Recompute residuals and certificate from B."""
        F = self.problem.scores(self.B)
        np.subtract(self.problem.target, F, out=self.E)
        self._renew()
        return self.problem.certificate(self.B, F)

    def solution(self) -> np.ndarray:
        """The dual solution that `certify` speaks of."""
        return self.B

    @property
    def alpha(self) -> np.ndarray:
        """The dual solution as dual variables, samples x labels."""
        return self.problem.alpha(self.solution())

    def _renew(self) -> None:
        """Violation of every label."""
        for l, (e, b, lo, hi) in enumerate(zip(self.E, self.B, self.lo, self.hi, strict=True)):
            self.violations[l] = loops.worst(e, b, lo, hi)[1]

    def _rounds(self, n_rounds: int, clock: Clock) -> int:
        whole = self.problem.K.whole
        if whole is None:
            return sum(0 if clock.expired() else self._cached_round() for _ in range(n_rounds))
        return loops.smo_rounds(
            readonly(whole), self.diagonal, self.R, self.E, self.B, self.lo, self.hi, self.violations,
            self.u, n_rounds, self.n_inner, self.break_factor, SINGULAR,
        )  # fmt: skip

    def _cached_round(self) -> int:
        """One round on rows from the cache; the same steps as `smo_rounds`."""
        l = int(np.argmax(self.violations))
        if self.violations[l] <= 0:
            return 0
        self.u[:] = 0
        done = self._cached_label(l)
        loops.carry(l, self.R, self.u, self.E)
        loops.renew_violations(l, self.R, self.E, self.B, self.lo, self.hi, self.violations)
        if done == 0:
            self.violations[l] = 0
        return done

    def _cached_label(self, l: int) -> int:
        cache, diagonal, r = self.problem.K.cache, self.diagonal, self.R[l, l]
        e, b, lo, hi = self.E[l], self.B[l], self.lo[l], self.hi[l]
        entry = self.violations[l]
        for step in range(self.n_inner):
            p, violation = loops.worst(e, b, lo, hi)
            if p < 0 or (step > 0 and violation < self.break_factor * entry):
                return step
            K_p = readonly(cache.row(p))
            q = loops.partner(K_p, diagonal, p, e, b, lo, hi, SINGULAR)
            K_q = K_p if q < 0 else readonly(cache.row(q, pinned=(p,)))
            w_p, w_q = loops.move(p, q, K_p[p if q < 0 else q], diagonal, r, e, b, lo, hi)
            if w_p == 0 and w_q == 0:
                return step
            loops.spread(K_p, K_q, w_p, w_q, r, e, self.u)
        return self.n_inner
