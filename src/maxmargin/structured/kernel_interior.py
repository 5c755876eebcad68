"""An interior point method for the kernelised multi-class dual: all blocks, or some, the others held fixed.

With the masses x_ik = C_i alpha_ik of these samples, class by class, and g_k = -H_k, the dual is

    minimise  sum_k [ 1/2 x_k' K x_k + linear ]   subject to   sum_k x_ik = C_i,   0 <= x_ik <= u_ik,

u_ik = inf for Crammer-Singer; for Weston-Watkins u_ik = C_i, and the truth's mass has no bounds. One
Newton step of the perturbed optimality conditions g + l = z - w, x z = mu, (u - x) w = mu solves

    A_k d_k + dl = r_k,   A_k = K + diag(z_k / x_k + w_k / (u_k - x_k)),   sum_k d_k = 0,

by a Cholesky factor of size m for every class and one for sum_k A_k^-1: O(c m^3), some 20 times,
for any C and condition of K. Predictor and corrector are those of Mehrotra (1992).

It is the default for a few hundred samples, where LAPACK does all the work and no loop is compiled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from maxmargin.core.loop import Certificate, Clock, Patience, Progress, squared_norm
from maxmargin.structured.multiclass_loops import CRAMMER_SINGER
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    KernelMultiClass,
    KernelSolution,
    LinearMultiClass,
    LinearSolution,
    Setup,
)

# Added to the diagonal of every A_k, relative to the largest k(x, x), against rounding.
ROUNDING = 1e-14
# Curvature of a mass without bounds, which may have none of its own.
PROXIMAL = 1e-6
# The weight of the centre in the start, and the share of the longest step that is taken.
INWARD, SHORTER = 0.5, 0.99
# The largest number of steps on some blocks, and of steps without progress.
MOST, PATIENCE = 60, 30
# Masses below a level are set to zero, at the first of these levels that keeps the gap below `tol`. Up to
# MORE further steps are taken for that.
LEVELS, MORE = (1e-2, 1e-3, 1e-4), 3
EPSILON = float(np.finfo(np.float64).eps)


class InteriorBlocks:
    """The solver of a few hundred samples, with a kernel or wide rows: an epoch is a step on all blocks.

    Parameters
    ----------
    problem : KernelMultiClass or LinearMultiClass
    setup : Setup
    """

    def __init__(self, problem: KernelMultiClass | LinearMultiClass, setup: Setup) -> None:
        self.problem = problem
        if isinstance(problem, LinearMultiClass):
            self.evaluate: Callable[[np.ndarray], Evaluation] = RowScores(problem).evaluate
        else:
            self.problem = problem if problem.K.dtype == np.float64 else problem.precise()
            self.problem.K.build()
            self.evaluate = self.problem.evaluate
        self.tol, self.patience = setup.tol, Patience(PATIENCE)
        given = np.eye(problem.c)[problem.y] if setup.blocks is None else setup.blocks
        self.blocks = self.problem.normalised(given, False)
        self.lowest = self.highest = self.evaluate(self.blocks)
        self.point = self._start()

    def _start(self) -> InteriorPoint:
        """The interior point of the samples with a cost, halfway to the centre."""
        problem, some = self.problem, self.problem.present
        y, costs = problem.y[some], problem.costs[some]
        H = self._margins(self.lowest)
        truth = None if problem.loss == CRAMMER_SINGER else y
        return InteriorPoint(problem.products(some), H, (costs[:, None] * self.blocks[some]).T, costs, truth)

    def _margins(self, found: Evaluation) -> np.ndarray:
        some = self.problem.present
        return found.image[:, some] + self.problem.labels.Delta[self.problem.y[some]].T

    def epoch(self, clock: Clock) -> Progress:
        """One step and its certificate."""
        stuck = False
        if self.certify().gap > self.tol:
            moved = self.point.step()
            self._evaluate()
            if self.certify().gap <= self.tol:
                self._sparsify()
            else:
                stuck = self.patience.exhausted(self.point.gap()) or not moved
        return Progress(self.certify(), self.problem.n, exact=True, stuck="take a smaller C" if stuck else "")

    def certify(self) -> Certificate:
        """The lowest P and the highest D of all blocks so far."""
        return self.lowest.certificate.tightened(self.highest.certificate)

    def solution(self) -> KernelSolution | LinearSolution:
        """The model of the certificate."""
        kind = LinearSolution if isinstance(self.problem, LinearMultiClass) else KernelSolution
        return kind(self.lowest.answer, self.blocks)

    def _evaluate(self) -> None:
        """Evaluate the feasible blocks and continue from them, so that rounding does not accumulate."""
        blocks, found = self._feasible(0.0)
        some, point = self.problem.present, self.point
        point.x = (self.problem.costs[some, None] * blocks[some]).T
        point.g = -self._margins(found)
        if found.certificate.primal < self.lowest.certificate.primal:
            self.lowest = found
        if found.certificate.dual > self.highest.certificate.dual:
            self.highest, self.blocks = found, blocks

    def _sparsify(self) -> None:
        """Set tiny masses to zero, for a model of fewer samples, if the gap stays below `tol`."""
        for _ in range(MORE):
            for level in LEVELS:
                blocks, found = self._feasible(level)
                if found.certificate.gap <= self.tol:
                    self.lowest, self.highest, self.blocks = found, found, blocks
                    return
            if not self.point.step():
                return

    def _feasible(self, level: float) -> tuple[np.ndarray, Evaluation]:
        problem, some = self.problem, self.problem.present
        masses = (self.point.x / problem.costs[some]).T
        blocks = self.blocks.copy()
        blocks[some] = without_tiny_masses(masses, problem.y[some], problem.loss, level)
        return blocks, self.evaluate(blocks)


class RowScores:
    """Evaluation of blocks with a linear kernel, in NumPy; its image is the scores (c, n)."""

    def __init__(self, problem: LinearMultiClass) -> None:
        self.problem, self.X = problem, problem.rows.matrix.astype(np.float64)

    def evaluate(self, blocks: np.ndarray) -> Evaluation:
        """P of (2) at the stored W(alpha), and D of (4)."""
        problem, steps = self.problem, self.problem.steps(blocks)
        W = np.vstack([self.X.T @ steps, problem.bias * steps.sum(axis=0)])
        scores = self.X @ W[:-1] + problem.bias * W[-1]
        H = scores + problem.labels.Delta[problem.y]
        H -= H[np.arange(problem.n), problem.y][:, None]
        losses = H.max(axis=1) if problem.loss == CRAMMER_SINGER else np.maximum(H, 0.0).sum(axis=1)
        gaps = problem.costs * np.maximum(losses - np.einsum("ik,ik->i", blocks, H), 0.0)
        half = 0.5 * squared_norm(W)
        certificate = Certificate(half + float(problem.costs @ losses), problem.linear_term(blocks) - half)
        return Evaluation(certificate, gaps, np.ascontiguousarray(scores.T), W)


def without_tiny_masses(blocks: np.ndarray, y: np.ndarray, loss: int, level: float) -> np.ndarray:
    """Feasible blocks without masses below `level`, of which an interior point has many."""
    here = np.arange(len(blocks))
    blocks = np.where(blocks <= level, 0.0, blocks)
    if loss == CRAMMER_SINGER:
        takes = np.argmax(blocks, axis=1)
    else:
        blocks, takes = np.where(blocks >= 1 - level, 1.0, blocks), y
    blocks[here, takes] = 0.0
    blocks[here, takes] = 1.0 - blocks.sum(axis=1)
    return blocks


def solve_blocks(
    K: np.ndarray,
    H: np.ndarray,
    x: np.ndarray,
    costs: np.ndarray,
    truth: np.ndarray | None,
    goal: float,
) -> np.ndarray:
    """Blocks (c, m) whose gaps sum to at most `goal`, or the best ones found.

    Parameters
    ----------
    K : array of shape (m, m)
    H : array of shape (c, m)
        Margins at the masses `x`, up to a constant per sample.
    x : array of shape (c, m)
    costs : array of shape (m,)
    truth : array of shape (m,) or None
        The classes of the samples, for Weston-Watkins.
    goal : float
    """
    point = InteriorPoint(K, H, x, costs, truth)
    best, smallest = point.x, np.inf
    for _ in range(MOST):
        gap = point.gap()
        # The gap grows or is NaN: rounding dominates.
        if not gap <= 4 * smallest:
            break
        if gap < smallest:
            best, smallest = point.x, gap
        if gap <= goal or not point.step():
            break
    return best / costs


class InteriorPoint:
    """Masses x, multipliers l of their sums and z, w of their bounds, and the gradient g."""

    def __init__(
        self,
        K: np.ndarray,
        H: np.ndarray,
        x: np.ndarray,
        costs: np.ndarray,
        truth: np.ndarray | None,
    ) -> None:
        self.K, self.costs, self.truth = K, costs, truth
        (c, m), here = x.shape, np.arange(len(costs))
        self.bounded, self.upper = np.ones((c, m), np.bool_), np.full((c, m), np.inf)
        centre = np.tile(costs / c, (c, 1))
        if truth is not None:
            self.upper[:], centre[:] = costs, costs / 2
            self.bounded[truth, here], self.upper[truth, here] = False, np.inf
            centre[truth, here] = costs * (1 - 0.5 * (c - 1))
        self.capped = np.isfinite(self.upper)
        self.x = (1 - INWARD) * x + INWARD * centre
        self.g = -H + (self.x - x) @ K
        self.l = -self.g.min(axis=0) if truth is None else -self.g[truth, here]
        slack = self.g + self.l
        level = max(float(np.abs(slack).mean()), 1e-3)
        self.z = np.where(self.bounded, np.maximum(slack, 0.0) + level, 0.0)
        self.w = np.where(self.capped, np.maximum(-slack, 0.0) + level, 0.0)

    def gap(self) -> float:
        """The sum of the block gaps."""
        H = -self.g
        dots = np.einsum("ki,ki->i", self.x, H)
        if self.truth is None:
            return float((self.costs * H.max(axis=0) - dots).sum())
        H = H - H[self.truth, np.arange(len(dots))]
        return float((self.costs * np.maximum(H, 0.0).sum(axis=0)).sum() - np.vdot(self.x, H))

    def step(self) -> bool:
        """One predictor-corrector step; false if the equations are singular to working precision."""
        # Without a bound the multiplier is 0, and so is its product with any number.
        low = np.where(self.bounded, self.x, 1.0)
        # Rounding may leave no distance to the upper bound.
        least = EPSILON * np.where(self.capped, self.upper, 0.0)
        slack_up = np.where(self.capped, np.maximum(self.upper - self.x, least), 1.0)
        curvature = np.where(self.bounded, self.z / low + self.w / slack_up, PROXIMAL)
        try:
            factors = Factors(self.K, curvature)
        except np.linalg.LinAlgError:
            return False
        residual = -(self.g + self.l)
        pairs = np.count_nonzero(self.bounded) + np.count_nonzero(self.capped)
        mu = float(np.vdot(low, self.z) + np.vdot(slack_up, self.w)) / pairs
        d, _ = factors.solve(residual)
        dz, dw = -self.z - self.z * d / low, -self.w + self.w * d / slack_up
        length = self._longest(low, slack_up, d, dz, dw)
        ahead = np.vdot(low + length * d, self.z + length * dz)
        ahead += np.vdot(slack_up - length * d, self.w + length * dw)
        centred = mu * (float(ahead) / pairs / mu) ** 3
        low_term = np.where(self.bounded, (centred - d * dz) / low, 0.0)
        up_term = np.where(self.capped, (centred + d * dw) / slack_up, 0.0)
        d, dl = factors.solve(residual + low_term - up_term)
        dz, dw = low_term - self.z - self.z * d / low, up_term - self.w + self.w * d / slack_up
        length = SHORTER * self._longest(low, slack_up, d, dz, dw)
        self.x = self.x + length * d
        self.g, self.l = self.g + length * (d @ self.K), self.l + length * dl
        self.z, self.w = self.z + length * dz, self.w + length * dw
        return True

    def _longest(
        self, low: np.ndarray, slack_up: np.ndarray, d: np.ndarray, dz: np.ndarray, dw: np.ndarray
    ) -> float:
        """Longest step up to 1 that keeps x, u - x, z and w positive."""
        steepest = 1.0
        for value, move, there in (
            (low, d, self.bounded),
            (self.z, dz, self.bounded),
            (slack_up, -d, self.capped),
            (self.w, dw, self.capped),
        ):
            steepest = max(steepest, float((-move[there] / value[there]).max(initial=0.0)))
        return 1.0 / steepest


class Factors:
    """Cholesky factors of all A_k and of the sum of their inverses."""

    def __init__(self, K: np.ndarray, curvature: np.ndarray) -> None:
        m = len(K)
        total = np.zeros((m, m), order="F")
        ridge = ROUNDING * float(np.diagonal(K).max())
        self.factors = []
        for row in curvature:
            A = np.array(K, order="F")
            A[np.diag_indices(m)] += row + ridge
            self.factors.append(_cholesky(A))
            total += dpotri(self.factors[-1], lower=1)[0]
        self.total = _cholesky(total)

    def solve(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """d and dl for the right-hand sides r (c, m)."""
        dl = dpotrs(self.total, self._each(r).sum(axis=0), lower=1)[0]
        return self._each(r - dl), dl

    def _each(self, r: np.ndarray) -> np.ndarray:
        return np.array([dpotrs(A, row, lower=1)[0] for A, row in zip(self.factors, r, strict=True)])


def _cholesky(A: np.ndarray) -> np.ndarray:
    factor, failed = dpotrf(A, lower=1, overwrite_a=1)
    if failed or not np.isfinite(factor[-1, -1]):
        raise np.linalg.LinAlgError("A matrix of the interior point method is not positive definite.")
    return factor
