"""A second method for problems on which the first gets stuck, and the one for kernels.

Coordinate ascent and pair steps are the fastest methods on most wide data and kernels, but their rate depends
on the conditioning of X, K, R and C: a few unscaled features, or a large constant one, are enough to stop
them in their tracks. Where the problem is small enough, a method that does not care takes over.

With a kernel that is `Newton` on K = G G', the rows of G taken for features. It has the same dual variables,
and mostly the weights that they make are the model. Where rounding keeps these from being as good as the best
weights U in the features, the model is coefficients of all samples that make U.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate, Clock, Patience, Progress, Solver, Switch, stalls
from maxmargin.core.rows import Rows
from maxmargin.multilabel.newton import Newton
from maxmargin.multilabel.pairs import PairDescent
from maxmargin.multilabel.problem import M3L, KernelM3L, LinearM3L, Solution

# Eigenvalues of K below this part of the largest are rounding.
RANK = 1e-14
# A negative eigenvalue of more than this part of the largest is not rounding: K is indefinite.
INDEFINITE = 1e-10
# Samples up to which K is factored in less time than loops are compiled.
FEW = 300
ROUNDED = "scale the features, or lower C or intercept_scaling,"


class KernelNewton:
    """`Newton` on a factor of the kernel matrix, certified by the kernel matrix itself.

    Parameters
    ----------
    problem : KernelM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap that training stops at.
    n_threads : int, default=1
    """

    def __init__(self, problem: KernelM3L, alpha: np.ndarray, *, tol: float, n_threads: int = 1) -> None:
        self.problem, self.tol = problem, tol
        whole = KernelMatrix(problem.K.kernel, problem.K.X, np.inf, np.float64)
        values, vectors = np.linalg.eigh(whole.square(np.arange(whole.n)))
        # Of an indefinite K the factor leaves out what only pair steps can work with.
        self.is_definite = bool(values[0] >= -INDEFINITE * max(values[-1], 0.0))
        kept = values > RANK * max(values[-1], np.finfo(float).tiny)
        roots = np.sqrt(values[kept])
        self.inverse = vectors[:, kept] / roots
        rows = Rows.of(np.ascontiguousarray(vectors[:, kept] * roots))
        linear = LinearM3L(rows, problem.costs, problem.R, bias=0.0)
        self.newton = Newton(linear, alpha, tol=tol, n_threads=n_threads)
        self.patience = Patience(50)
        self._answer: tuple[Solution, Certificate] | None = None

    def epoch(self, clock: Clock) -> Progress:
        progress = self.newton.epoch(clock)
        self._answer = None
        certificate = self.certify()
        stuck = ROUNDED if progress.stuck or self.patience.exhausted(certificate.gap) else ""
        return replace(progress, certificate=certificate, exact=True, stuck=stuck)

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> Solution:
        return self._evaluated()[0]

    def _evaluated(self) -> tuple[Solution, Certificate]:
        if self._answer is None:
            problem, alpha = self.problem, self.newton.solution().alpha
            B = problem.coefficients(alpha)
            certificate = problem.certificate(B, problem.scores(B))
            self._answer = problem.solution(B), certificate
            if certificate.gap > self.tol:
                U = self.newton.weights()[:-1]
                weights = self.inverse @ (U @ problem.factor if problem.coupled else U * np.sqrt(problem.r))
                loss = problem.loss(problem.K.times(weights).T)
                primal = 0.5 * float(np.vdot(U, U)) + loss + problem.costs.constant
                if primal < certificate.primal:
                    self._answer = Solution(alpha, weights), Certificate(primal, certificate.dual)
        return self._answer


def affordable(
    problem: M3L,
    alone: bool = False,
    largest_order: int = 1200,
    largest_work: float = 2e10,
    largest_size: int = 2 * 10**7,
) -> bool:
    """Whether a step of Newton's or the interior point method costs no more than about a second.

    By the order of its systems, its products and its dual variables. `alone`: each label has its own system,
    though a prior couples them.
    """
    n, L = problem.shape
    D = problem.n_features if isinstance(problem, LinearM3L) else n
    rank = len(problem.factor) if problem.coupled and not alone else 1
    order = (D + 1) * rank
    work = L * (n * (D + 1.0) ** 2 + order**2) + (L if alone else 1) * order**3
    return order <= largest_order and work <= largest_work and n * max(L, D) <= largest_size


def kernel_default(
    problem: KernelM3L, alpha: np.ndarray, *, tol: float, rng: np.random.RandomState, n_threads: int = 1
) -> Solver:
    """Newton's method for few samples; else pair steps, with Newton's method behind them if affordable."""
    if len(alpha) <= FEW and not problem.coupled:
        newton = KernelNewton(problem.precise(), alpha, tol=tol, n_threads=n_threads)
        if newton.is_definite:
            return newton
    pairs = PairDescent(problem, alpha, tol=tol, rng=rng, n_threads=n_threads)
    if not affordable(problem):
        return pairs

    def second() -> Solver:
        return KernelNewton(problem.precise(), pairs.solution().alpha, tol=tol, n_threads=n_threads)

    return Switch(pairs, second, stalls(5), ("pair steps", "newton"))
