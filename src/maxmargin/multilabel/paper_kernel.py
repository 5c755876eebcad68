"""The paper's kernel solver: SMO with delayed gradients (Algorithm 1, corrected).

Problem, dual, gap and letters as in `problem`: signed coefficients B between lo and hi, residuals
E = T - K B R, all label-major.

One round selects a label l with a large violation max_i |projected E_li| and makes up to `n_inner` steps on
it. A step takes the most violating sample p, and the partner q with the largest unconstrained gain

    h_pq = (e_p^2 K_qq + e_q^2 K_pp - 2 e_p e_q K_pq) / (K_pp K_qq - K_pq^2)

among the positive definite pairs, and solves the two-variable problem exactly in the box; without a partner p
moves alone. Only the residual of label l follows each step. Their sum, u = K dB_l, is added to the scores of
the other labels after the inner loop; this delay makes a step cost O(N) instead of O(N L). The prior stays
factored, R = out into' of rank r: u is added to the r rows that all labels share, and the residual of a label
is computed from them when the label is examined, so a round costs O(N r) beside its steps. The violations of
the other labels are therefore estimates, see `paper_kernel_loops`. With `accepted` = `growth` = 1 the label
with the largest violation is selected as in the paper, which has to examine nearly all labels.

The inner loop ends when the violation of label l has fallen below `break_factor` times its value at the
start: with a prior that couples labels, the others will move it again. Training stops on the relative duality
gap, recomputed in float64 from B.

Kernel rows come from the whole matrix if it fits in memory, else from an LRU cache. Kernel values in single
precision are replaced by double precision if they keep the gap from falling to tol.

Hariharan, Vishwanathan, Varma, "Efficient max-margin multi-label classification with applications to
zero-shot learning", Machine Learning 88, 2012.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress
from maxmargin.core.rows import readonly
from maxmargin.multilabel import paper_kernel_loops as loops
from maxmargin.multilabel.kernel_loops import SINGULAR, KernelState, argmax_bits
from maxmargin.multilabel.problem import KernelM3L, Solution


class SMO(Evaluated):
    """State of Algorithm 1; B is the solution, label-major.

    Parameters
    ----------
    problem : KernelM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap at which training stops.
    n_inner : int, default=None
        Most steps on one label before the others follow; None is max(n_labels, 10).
    break_factor : float, default=0.5
        See above; 0 is the paper's rule.
    accepted, growth : float, default=0.5, 0.1
        A label is selected if its violation is this part of the largest estimate. Estimates grow by this part
        of the largest possible change.
    epoch_share : float, default=1/16
        Steps of an epoch relative to the number of coefficients, so that records come often enough.
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
        self.prior = loops.FactoredPrior(R, out, into, np.zeros((out.shape[1], n)))
        self.work = loops.workspace(n)
        self.violations = loops.Violations(np.zeros(L), np.empty((L, n)), np.empty((L, n)))
        self.steps, self.gap = 0, np.inf
        self.best = BestWeights()
        if self.B.any():
            self._recompute()
        self._measure_violations()

    @property
    def E(self) -> np.ndarray:
        """Residuals of all labels, by the running scores."""
        return self.duals.T - self.prior.out @ self.prior.S

    def _move(self, clock: Clock) -> Progress:
        """Some rounds; the certificate is that of the running scores."""
        if self.gap <= self.tol:
            # The last running gap was small enough but not its certificate: the scores have drifted, or
            # kernel values in single precision pose another problem.
            if self.problem.K.dtype != np.float64:
                self.problem = self.problem.precise()
                self.rule = self.rule._replace(singular=SINGULAR[self.problem.K.dtype])
            self._recompute()
            self._measure_violations()
        enough = self.steps + self.n_steps
        while self.steps < enough and self.problem.K.build(clock.expired) and not clock.expired():
            done = self._rounds(len(self.B), clock)
            self.steps += done
            if not done:
                break
        E = self._measure_violations()
        certificate = self.problem.certificate(self.B, self.problem.target - E)
        self.gap = certificate.gap
        self.best.offer(certificate.primal, self.B)
        return Progress(
            certificate, int(np.count_nonzero(KernelState(E, *self.duals[1:]).movable().any(axis=0)))
        )

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The best B, with its P and the D of the present B."""
        B, certificate = self.B, self.problem.certified(self.B)
        if not self.best.are_last:
            best = self.problem.certified(self.best.weights)
            if best.primal < certificate.primal:
                B, certificate = self.best.weights, Certificate(best.primal, certificate.dual)
        return self.problem.solution(B), certificate

    def _recompute(self) -> None:
        """Recompute the shared scores of B."""
        self.prior.S[:] = (self.problem.K.times(np.ascontiguousarray(self.B.T)) @ self.prior.into).T

    def _measure_violations(self) -> np.ndarray:
        """Compute the violations of all labels exactly; return their residuals."""
        _, B, lo, hi = self.duals
        estimate, up, down = self.violations
        np.less(B, hi, out=up)
        np.greater(B, lo, out=down)
        E = self.E
        estimate[:] = np.maximum(E * up, -E * down).max(axis=1, initial=0.0)
        return E

    def _rounds(self, n_rounds: int, clock: Clock) -> int:
        """Rounds on the whole kernel matrix, or on cached rows; return the number of steps."""
        whole = self.problem.K.whole
        if whole is None:
            return sum(0 if clock.expired() else self._cached_round() for _ in range(n_rounds))
        given = self.prior, self.duals, self.violations, self.work
        return loops.smo_rounds(readonly(whole), self.diagonal, *given, n_rounds, self.rule)

    def _cached_round(self) -> int:
        """One round on rows from the cache; the same steps as `smo_rounds`."""
        cache, given, work = self.problem.K.cache, (self.prior, self.duals, self.violations), self.work
        n_inner, break_factor, singular, accepted, growth = self.rule
        l, p = loops.select(*given, work, accepted)
        if l < 0:
            return 0
        entry, done = self.violations.estimate[l], 0
        while done < n_inner:
            K_p = readonly(cache.row(p))
            q = loops.partner(K_p, self.diagonal, l, p, self.violations, work, singular)
            K_q = K_p if q < 0 else readonly(cache.row(q, pinned=(p,)))
            if not loops.step(K_p, K_q, self.diagonal, l, p, q, *given, work):
                break
            done += 1
            p = argmax_bits(work.violation_bits)
            if p < 0 or work.violation[p] < break_factor * entry:
                break
        loops.propagate(l, self.prior, self.violations, work, growth)
        if done == 0:
            self.violations.estimate[l] = 0
        return done


def factors(R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R as out @ into.T: with rank(R) columns if that is at most half of the labels, else R and identity."""
    L = len(R)
    if np.count_nonzero(R - np.diag(np.diagonal(R))):
        values, vectors = np.linalg.eigh(R)
        kept = values > L * np.finfo(float).eps * values[-1]
        if 2 * kept.sum() <= L:
            G = np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept]))
            return G, G
    return R, np.eye(L)
