"""Primal-dual interior point method, for problems that coordinate ascent finds hard.

Problem, dual and gap as in `problem`. With B the rows y_il (x_i kron P_l), R = P'P, the dual is

    min_a  1/2 |B'a|^2 - <m, a>,   0 <= a <= c,        multipliers lam, mu >= 0 of the two bounds
    B B'a - m - lam + mu = 0,      a lam = sigma,  (c - a) mu = sigma,      sigma -> 0,

solved by Mehrotra's predictor and corrector. One step solves (B B' + Theta) d = rhs, Theta diagonal,
through the matrix I + B' Theta^-1 B of order (D+1) rank(R), whose solution is the change of the weights
U = B'a. The weights are carried along on their own: recomputed from a they would lose as many digits as
the squares of the features are large. Columns are scaled by powers of two. Conditioning of X, R or C hardly
matters: 20 to 40 steps whatever the data, each O(N (D+1)^2) per label; it needs few features, or few
labels that are coupled. Independent labels are solved one by one inside each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from maxmargin.core.linalg import ridged_cholesky
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.rows import readonly
from maxmargin.multilabel.problem import LinearM3L, Solution, powers_of_two

# How near to its bounds a variable may come, relative to its box: what float64 can tell apart.
NEAR_ZERO, NEAR_TOP = 1e-18, 1e-15
# Multipliers start at no less than this part of the mean gradient, and at more than zero.
FIRST_MULTIPLIER, LEAST_MULTIPLIER = 0.1, 1e-8


class _Block:
    """Labels that are coupled with each other, with their part of the dual variables.

    X has columns of about one and `ridge` is what that makes of the identity, one number per column; the
    weights U are those of these columns.
    """

    def __init__(
        self, X: np.ndarray | sp.sparray, ridge: np.ndarray, problem: LinearM3L, labels: slice, P: np.ndarray
    ) -> None:
        self.X, self.ridge, self.P = X, ridge[:, None], P
        costs = problem.costs
        self.Y = costs.signs[:, labels].astype(np.float64)
        self.c = costs.boxes()[:, labels]
        self.m = costs.margins()[:, labels]
        self.live = self.c > 0
        # In the middle of the boxes, or where the scores are of the size of the margins: weights that have to
        # shrink by many digits would keep the rounding of their start.
        self.a = 0.5 * self.c
        self.U = self._sums(self.a) / self.ridge
        far, near = float(np.abs(self._scores(self.U)).mean()), float(self.m.mean())
        if far > near > 0:
            self.a, self.U = near / far * self.a, near / far * self.U
        g = self._scores(self.U) - self.m
        floor = 1.0
        if self.live.any():
            floor = FIRST_MULTIPLIER * np.abs(g[self.live]).mean() + LEAST_MULTIPLIER
        self.lam, self.mu = np.maximum(g, 0) + floor, np.maximum(-g, 0) + floor

    def _sums(self, a: np.ndarray) -> np.ndarray:
        return self.X.T @ (self.Y * a) @ self.P.T

    def _scores(self, U: np.ndarray) -> np.ndarray:
        return self.Y * (self.X @ U @ self.P)

    def _factor(self, inverse: np.ndarray) -> Any:
        """Cholesky factor of I + B' Theta^-1 B, in the scale of the columns."""
        d, rank = self.X.shape[1], len(self.P)
        H = np.zeros((d, rank, d, rank))
        for l in range(inverse.shape[1]):
            gram = self.X.T @ (self.X * inverse[:, l, None])
            gram = gram.toarray() if sp.issparse(gram) else gram
            H += gram[:, None, :, None] * np.outer(self.P[:, l], self.P[:, l])[None, :, None, :]
        matrix = H.reshape(d * rank, d * rank)
        diagonal = np.diag_indices_from(matrix)
        matrix[diagonal] += np.repeat(self.ridge.ravel(), rank)
        return ridged_cholesky(matrix)

    def _direction(self, factor: Any, inverse: np.ndarray, rhs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Changes of a and of the weights."""
        scaled = inverse * rhs
        sums = self._sums(scaled)
        d_U = scipy.linalg.cho_solve(factor, sums.ravel(), check_finite=False).reshape(sums.shape)
        return scaled - inverse * self._scores(d_U), d_U

    def step(self, safety: float, negligible: float) -> None:
        """One predictor-corrector step; none once the products that must vanish are rounding."""
        room = np.where(self.live, self.c - self.a, 1.0)
        a = np.where(self.live, self.a, 1.0)
        left = float(((a * self.lam + room * self.mu) * self.live).sum())
        if left <= negligible * float((self.m * self.a).sum()):
            return
        inverse = np.where(self.live, 1.0 / (self.lam / a + self.mu / room), 0.0)
        factor = self._factor(inverse)

        def towards(r1: np.ndarray, r2: np.ndarray) -> tuple[np.ndarray, ...]:
            d, d_U = self._direction(factor, inverse, r1 / a - r2 / room)
            return d, (r1 - self.lam * d) / a, (r2 + self.mu * d) / room, d_U

        def longest(d: np.ndarray, d_lam: np.ndarray, d_mu: np.ndarray) -> float:
            ratios = [1.0]
            for value, change in ((a, d), (room, -d), (self.lam, d_lam), (self.mu, d_mu)):
                falls = self.live & (change < 0)
                if falls.any():
                    ratios.append(float(np.min(-value[falls] / change[falls])))
            return min(ratios)

        d, d_lam, d_mu, _ = towards(-a * self.lam, -room * self.mu)
        size = longest(d, d_lam, d_mu)
        count = 2 * int(self.live.sum())
        now = left / count
        then = (a + size * d) * (self.lam + size * d_lam) + (room - size * d) * (self.mu + size * d_mu)
        sigma = (float((then * self.live).sum()) / count) ** 3 / now**2
        d, d_lam, d_mu, d_U = towards(sigma - a * self.lam - d * d_lam, sigma - room * self.mu + d * d_mu)
        # The sum of the products, a parabola along the step, falls: otherwise steps may go round for ever.
        falls = float(((d * (self.lam - self.mu) + a * d_lam + room * d_mu) * self.live).sum())
        bends = float((d * (d_lam - d_mu) * self.live).sum())
        size = safety * longest(d, d_lam, d_mu)
        if size * bends > -0.9 * falls > 0:
            size = -0.9 * falls / bends
        inside = np.clip(self.a + size * d, NEAR_ZERO * self.c, (1 - NEAR_TOP) * self.c)
        self.a = np.where(self.live, inside, 0.0)
        self.lam, self.mu = self.lam + size * d_lam, self.mu + size * d_mu
        self.U = self.U + size * d_U


class InteriorPoint:
    """State of the method: a and the multipliers of both bounds, per block of coupled labels.

    Parameters
    ----------
    problem : LinearM3L
    safety : float, default=0.995
        Part of the way to the nearest bound that a step may go.
    negligible : float, default=1e-13
        A block is solved when its products a lam + (c - a) mu are this small beside <m, a>.
    """

    def __init__(self, problem: LinearM3L, safety: float = 0.995, negligible: float = 1e-13) -> None:
        self.problem, self.safety, self.negligible = problem, safety, negligible
        rank = len(problem.factor) if problem.coupled else 1
        problem.check_memory("interior", ((problem.n_features + 1) * rank) ** 2)
        X, self.scale = _scaled(problem)
        ridge = 1 / self.scale**2
        if problem.coupled:
            self.blocks = [_Block(X, ridge, problem, slice(None), problem.factor)]
        else:
            self.blocks = [
                _Block(X, ridge, problem, slice(l, l + 1), np.array([[np.sqrt(r)]]))
                for l, r in enumerate(problem.r)
            ]
        self.certificate = Certificate(np.inf, -np.inf)
        self._keep_if_better()

    def epoch(self, clock: Clock) -> Progress:
        for block in self.blocks:
            block.step(self.safety, self.negligible)
            if clock.expired():
                break
        self._keep_if_better()
        return Progress(self.certificate, self.problem.shape[0], exact=True)

    def certify(self) -> Certificate:
        return self.certificate

    def solution(self) -> Solution:
        """The best point so far."""
        return Solution(readonly(self.alpha), self.Z)

    def _keep_if_better(self) -> None:
        """Hold on to the best point: the last steps of an ill-conditioned problem can lose digits."""
        alpha = np.hstack([block.a for block in self.blocks])
        U = np.hstack([block.U for block in self.blocks]) / self.scale[:, None]
        Z, certificate = self.problem.evaluate(alpha, weights=U)
        if not certificate.gap >= self.certificate.gap:
            self.alpha, self.Z, self.certificate = alpha, Z, certificate


def _scaled(problem: LinearM3L) -> tuple[Any, np.ndarray]:
    """X in float64 with the constant feature last, its columns divided by powers of two; these powers."""
    X = problem.rows.matrix
    column = np.full((X.shape[0], 1), problem.bias)
    if sp.issparse(X):
        X = sp.csr_array(sp.hstack([X, column])).astype(np.float64)
        scale = powers_of_two(abs(X).max(axis=0).toarray().ravel())
        return sp.csr_array(X * (1 / scale)), scale
    X = np.hstack([X, column]).astype(np.float64)
    scale = powers_of_two(np.abs(X).max(axis=0, initial=0.0))
    return X / scale, scale
