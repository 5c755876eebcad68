"""SMO with delayed gradients for kernelised M3L (Algorithm 1 of the paper, corrected).

Problem, dual, gap and letters are those of `problem`: signed coefficients B between lo and hi,
residuals E = T - K B R, all label-major.

One round takes a label l with a large violation max_i |projected E_li| and makes up
to `n_inner` steps on it. A step takes the worst sample p, its partner q that promises the
largest unconstrained gain

    h_pq = (e_p^2 K_qq + e_q^2 K_pp - 2 e_p e_q K_pq) / (K_pp K_qq - K_pq^2)

among those with a positive definite pair, and solves the two-variable problem exactly
within the box; without a partner p moves alone. Only the residual of label l follows each
step. What the steps did, u = K dB_l, is carried to the other labels once, after the inner
loop; this delay makes a step cost O(N) instead of O(N L). The prior stays factored, R = out into'
of rank r: u is added to the r rows that all labels share, and the residual of a label is made of
them when its turn comes, so that a round costs O(N r) beside its steps. So violations of the other
labels are estimated; `smo_loops` says how, and with `accepted` = `growth` = 1 the label taken is the one with
the largest violation, as in the paper, for which nearly all of them have to be looked at.

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

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress
from maxmargin.core.rows import readonly
from maxmargin.multilabel import smo_loops as loops
from maxmargin.multilabel.kernel_loops import SINGULAR, KernelState, argmax_bits, count_movable
from maxmargin.multilabel.problem import KernelM3L, Solution


class SMO(Evaluated):
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
    accepted, growth : float, default=0.5, 0.1
        A label is taken if its violation is this share of the largest estimate, and estimates grow by this
        share of what is possible.
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
        accepted: float = 0.5,
        growth: float = 0.1,
        epoch_share: float = 1 / 16,
    ) -> None:
        self.problem, self.tol = problem, tol
        L, n = problem.target.shape
        n_inner = max(L, 10) if n_inner is None else n_inner
        self.rule = loops.InnerRule(n_inner, break_factor, SINGULAR[problem.K.dtype], accepted, growth)
        self.n_steps = max(L, int(epoch_share * n * L))
        self.diagonal = readonly(problem.K.diagonal)
        self.B = problem.coefficients(alpha)
        self.duals = loops.Duals(readonly(problem.target), self.B, *map(readonly, problem.bounds))
        R = np.ascontiguousarray(problem.prior)
        out, into = factors(R)
        self.ties = loops.Ties(R, out, into, np.zeros((out.shape[1], n)))
        self.look = loops.look_of(n)
        self.violations = loops.Violations(np.zeros(L), np.empty((L, n)), np.empty((L, n)))
        self.steps, self.gap = 0, np.inf
        self.best = BestWeights()
        if self.B.any():
            self._recompute()
        self._renew()

    @property
    def E(self) -> np.ndarray:
        """Residuals of all labels, by the running scores."""
        return self.duals.T - self.ties.out @ self.ties.S

    def _move(self, clock: Clock) -> Progress:
        """Some rounds; the certificate is that of the running scores."""
        if self.gap <= self.tol:
            # The running gap was small enough and yet there is another epoch: scores have drifted, or
            # kernel values in single precision are those of another problem.
            if self.problem.K.dtype != np.float64:
                self.problem = self.problem.precise()
                self.rule = self.rule._replace(singular=SINGULAR[self.problem.K.dtype])
            self._recompute()
            self._renew()
        enough = self.steps + self.n_steps
        while self.steps < enough and self.problem.K.build(clock.expired) and not clock.expired():
            done = self._rounds(len(self.B), clock)
            self.steps += done
            if not done:
                break
        E = self._renew()
        certificate = self.problem.certificate(self.B, self.problem.target - E)
        self.gap = certificate.gap
        self.best.offer(certificate.primal, self.B)
        return Progress(certificate, int(count_movable(KernelState(E, *self.duals[1:]))))

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The best B, and P there with D of B as it is."""
        B, certificate = self.B, self.problem.certified(self.B)
        if not self.best.are_last:
            best = self.problem.certified(self.best.weights)
            if best.primal < certificate.primal:
                B, certificate = self.best.weights, Certificate(best.primal, certificate.dual)
        return self.problem.solution(B), certificate

    def _recompute(self) -> None:
        """The shared scores of B as it is."""
        self.ties.S[:] = (self.problem.K.times(np.ascontiguousarray(self.B.T)) @ self.ties.into).T

    def _renew(self) -> np.ndarray:
        """Look at all labels anew; returns their residuals."""
        _, B, lo, hi = self.duals
        estimate, up, down = self.violations
        np.less(B, hi, out=up)
        np.greater(B, lo, out=down)
        E = self.E
        estimate[:] = np.maximum(E * up, -E * down).max(axis=1, initial=0.0)
        return E

    def _rounds(self, n_rounds: int, clock: Clock) -> int:
        whole = self.problem.K.whole
        if whole is None:
            return sum(0 if clock.expired() else self._cached_round() for _ in range(n_rounds))
        return loops.smo_rounds(
            readonly(whole),
            self.diagonal,
            self.ties,
            self.duals,
            self.violations,
            self.look,
            n_rounds,
            self.rule,
        )

    def _cached_round(self) -> int:
        """One round on rows from the cache; the same steps as `smo_rounds`."""
        cache, parts, look = self.problem.K.cache, (self.ties, self.duals, self.violations), self.look
        n_inner, break_factor, singular, accepted, growth = self.rule
        l, p = loops.choose(*parts, look, accepted)
        if l < 0:
            return 0
        entry, done = self.violations.estimate[l], 0
        while done < n_inner:
            K_p = readonly(cache.row(p))
            q = loops.partner(K_p, self.diagonal, l, p, self.violations, look, singular)
            K_q = K_p if q < 0 else readonly(cache.row(q, pinned=(p,)))
            if not loops.step(K_p, K_q, self.diagonal, l, p, q, *parts, look):
                break
            done += 1
            p = argmax_bits(look.violation_bits)
            if p < 0 or look.violation[p] < break_factor * entry:
                break
        loops.carry(l, self.ties, self.violations, look, growth)
        if done == 0:
            self.violations.estimate[l] = 0
        return done


def factors(R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R as out @ into.T: with few columns if its rank is low, else R and the identity."""
    L = len(R)
    if np.count_nonzero(R - np.diag(np.diagonal(R))):
        values, vectors = np.linalg.eigh(R)
        kept = values > L * np.finfo(float).eps * values[-1]
        if 2 * kept.sum() <= L:
            G = np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))
            return G, G
    return R, np.eye(L)
