"""SMO with delayed gradients for kernelised M3L (Algorithm 1 of the paper, corrected).

Problem, dual, gap and letters are those of `problem`: signed coefficients B between lo and hi,
residuals E = T - K B R, all label-major.

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
cache; those in single precision give way to double where they keep the gap from falling to tol.

Hariharan, Vishwanathan, Varma, "Efficient max-margin multi-label classification
with applications to zero-shot learning", Machine Learning 88, 2012.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.rows import readonly
from maxmargin.multilabel import kernel_loops as loops
from maxmargin.multilabel.problem import KernelM3L, Solution


class SMO:
    """State of Algorithm 1; B is the solution, label-major.

    Parameters
    ----------
    problem : KernelM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap that training stops at.
    n_inner : int, default=None
        Steps on one label before the others follow; None is max(n_labels, 10).
    break_factor : float, default=0.5
        See above; 0 is the paper's own rule.
    singular : float, default=1e-12
        A pair is taken as singular when its determinant is below this fraction of K_pp K_qq.
    epoch_share : float, default=1/16
        Steps of an epoch as a share of the number of coefficients, so that records come often enough.
    """

    def __init__(
        self,
        problem: KernelM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        n_inner: int | None = None,
        break_factor: float = 0.5,
        singular: float = 1e-12,
        epoch_share: float = 1 / 16,
    ) -> None:
        self.problem, self.tol = problem, tol
        L, n = problem.target.shape
        n_inner = max(L, 10) if n_inner is None else n_inner
        self.rule = loops.InnerRule(n_inner, break_factor, singular)
        self.n_steps = max(L, int(epoch_share * n * L))
        self.R, self.diagonal = readonly(problem.prior), readonly(problem.K.diagonal)
        self.B = problem.coefficients(alpha)
        self.E = problem.target - problem.scores(self.B) if self.B.any() else problem.target.copy()
        self.state = loops.KernelState(self.E, self.B, *(readonly(bound) for bound in problem.bounds))
        self.chosen, self.u = loops.selection(L, n), np.zeros(n)
        self.steps, self.gap = 0, np.inf
        self._known: tuple[np.ndarray, Certificate] | None = None
        loops.renew_selection(self.state, self.u, self.chosen)

    def epoch(self, clock: Clock) -> Progress:
        """Some rounds; the certificate is that of the running residuals."""
        if self.gap <= self.tol:
            # The running gap was small enough and yet there is another epoch: residuals have drifted, or
            # kernel values in single precision are those of another problem.
            if self.problem.K.dtype != np.float64:
                self.problem, self._known = self.problem.precise(), None
            np.subtract(self.problem.target, self._evaluated()[0], out=self.E)
            loops.renew_selection(self.state, self.u, self.chosen)
        self._known = None
        enough = self.steps + self.n_steps
        while self.steps < enough and self.problem.K.build(clock.expired) and not clock.expired():
            done = self._rounds(len(self.R), clock)
            self.steps += done
            if not done:
                break
        loops.renew_selection(self.state, self.u, self.chosen)
        certificate = self.problem.certificate(self.B, self.problem.target - self.E)
        self.gap = certificate.gap
        return Progress(certificate, int(loops.count_movable(self.state)))

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> Solution:
        return self.problem.solution(self.B)

    def _evaluated(self) -> tuple[np.ndarray, Certificate]:
        """Scores and certificate of B as it is, kept until the next epoch."""
        if self._known is None:
            F = self.problem.scores(self.B)
            self._known = F, self.problem.certificate(self.B, F)
        return self._known

    def _rounds(self, n_rounds: int, clock: Clock) -> int:
        whole = self.problem.K.whole
        if whole is None:
            return sum(0 if clock.expired() else self._cached_round() for _ in range(n_rounds))
        return loops.smo_rounds(
            readonly(whole), self.diagonal, self.R, self.state, self.chosen, self.u, n_rounds, self.rule
        )

    def _cached_round(self) -> int:
        """One round on rows from the cache; the same steps as `smo_rounds`."""
        l = int(np.argmax(self.chosen.largest))
        if self.chosen.largest[l] <= 0:
            return 0
        self.u[:] = 0
        done = self._cached_label(l)
        loops.carry_to_all(l, self.R, self.state, self.u, self.chosen)
        if done == 0:
            self.chosen.largest[l] = 0
        return done

    def _cached_label(self, l: int) -> int:
        cache, diagonal, r = self.problem.K.cache, self.diagonal, self.R[l, l]
        label, (n_inner, break_factor, singular) = self.state.label(l), self.rule
        entry = self.chosen.largest[l]
        for step in range(n_inner):
            p, violation = loops.worst(label)
            if p < 0 or (step > 0 and violation < break_factor * entry):
                return step
            K_p = readonly(cache.row(p))
            q = loops.partner(K_p, diagonal, p, label, singular)
            K_q = K_p if q < 0 else readonly(cache.row(q, pinned=(p,)))
            w_p, w_q = loops.move(p, q, K_p[p if q < 0 else q], diagonal, r, label)
            if w_p == 0 and w_q == 0:
                return step
            loops.update_label(K_p, K_q, w_p, w_q, r, label.E, self.u)
        return n_inner
