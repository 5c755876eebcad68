"""An interior point method for the kernelised multi-class dual: all blocks, or some, the others held fixed.

With the masses x_ik = C_i alpha_ik of these samples, class by class, and g_k = -H_k, the dual is

    minimise  sum_k [ 1/2 x_k' K x_k + linear ]   subject to   sum_k x_ik = C_i,   0 <= x_ik <= u_ik,

u_ik = inf for Crammer-Singer; for Weston-Watkins u_ik = C_i, and the truth's mass has no bounds. One
Newton step of the perturbed optimality conditions g + l = z - w, x z = mu, (u - x) w = mu solves

    A_k d_k + dl = r_k,   A_k = K + diag(z_k / x_k + w_k / (u_k - x_k)),   sum_k d_k = 0,

by a Cholesky factor of size m for every class and one for sum_k A_k^-1: O(c m^3), some 20 times,
whatever C and the condition of K. Predictor and corrector are those of Mehrotra (1992).

On some hundred samples that is the default: LAPACK does all the work, and no loop has to be compiled.
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

# Added to the diagonal of every A_k, relative to the largest k(x, x): what rounding takes from it.
ROUNDING = 1e-14
# Curvature given to a mass without bounds, whose own may be none; it slows no step that matters.
PROXIMAL = 1e-6
# How far a start is moved to the centre, and which part of the longest step is taken.
INWARD, SHORTER = 0.5, 0.99
# Most steps on some blocks; steps without progress after which float64 is exhausted.
MOST, PATIENCE = 60, 30
# Masses below the first of these levels that keeps the gap below `tol` are taken for none; so many more steps
# may be taken for that.
TRACES, MORE = (1e-2, 1e-3, 1e-4), 3
EPSILON = float(np.finfo(np.float64).eps)


class InteriorBlocks:
    """The default solver of kernels and wide rows on some hundred samples: an epoch is a step on all blocks.

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
        """One step, and what it proves."""
        stuck = False
        if self.certify().gap > self.tol:
            moved = self.point.step()
            self._look()
            if self.certify().gap <= self.tol:
                self._finish()
            else:
                stuck = self.patience.exhausted(self.point.gap()) or not moved
        return Progress(self.certify(), self.problem.n, exact=True, stuck="take a smaller C" if stuck else "")

    def certify(self) -> Certificate:
        """P of the blocks with the lowest one, and D of those with the highest one."""
        return self.lowest.certificate.tightened(self.highest.certificate)

    def solution(self) -> KernelSolution | LinearSolution:
        """The model that `certify` speaks of."""
        kind = LinearSolution if isinstance(self.problem, LinearMultiClass) else KernelSolution
        return kind(self.lowest.answer, self.blocks)

    def _look(self) -> None:
        """Evaluate the blocks as they are, and go on from there: a large C makes much of any rounding."""
        blocks, found = self._without_traces(0.0)
        some, point = self.problem.present, self.point
        point.x = (self.problem.costs[some, None] * blocks[some]).T
        point.g = -self._margins(found)
        if found.certificate.primal < self.lowest.certificate.primal:
            self.lowest = found
        if found.certificate.dual > self.highest.certificate.dual:
            self.highest, self.blocks = found, blocks

    def _finish(self) -> None:
        """Take the blocks without traces, for a model of few samples, as soon as they prove enough."""
        for _ in range(MORE):
            for level in TRACES:
                blocks, found = self._without_traces(level)
                if found.certificate.gap <= self.tol:
                    self.lowest, self.highest, self.blocks = found, found, blocks
                    return
            if not self.point.step():
                return

    def _without_traces(self, level: float) -> tuple[np.ndarray, Evaluation]:
        problem, some = self.problem, self.problem.present
        masses = (self.point.x / problem.costs[some]).T
        blocks = self.blocks.copy()
        blocks[some] = without_traces(masses, problem.y[some], problem.loss, level)
        return blocks, self.evaluate(blocks)


class RowScores:
    """What blocks prove with a linear kernel, in NumPy; the image is the scores (c, n)."""

    def __init__(self, problem: LinearMultiClass) -> None:
        self.problem, self.X = problem, problem.rows.matrix.astype(np.float64)

    def evaluate(self, blocks: np.ndarray) -> Evaluation:
        """P of (2) at W(alpha) as it is stored, and D of (4)."""
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


def without_traces(blocks: np.ndarray, y: np.ndarray, loss: int, level: float) -> np.ndarray:
    """Blocks without masses below `level`, which an interior point has everywhere; exactly feasible."""
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
    """Blocks (c, m) whose gaps sum to at most `goal`; the best ones seen where that is out of reach.

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
        # Not smaller for long, or no number: rounding has taken over.
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
        """One step of predictor and corrector; false when the equations cannot be solved any more."""
        # Where there is no bound the multipliers are 0, whatever they are multiplied with.
        low = np.where(self.bounded, self.x, 1.0)
        # Where rounding has taken the room below a bound, what it takes is left.
        least = EPSILON * np.where(self.capped, self.upper, 0.0)
        room = np.where(self.capped, np.maximum(self.upper - self.x, least), 1.0)
        curvature = np.where(self.bounded, self.z / low + self.w / room, PROXIMAL)
        try:
            factors = Factors(self.K, curvature)
        except np.linalg.LinAlgError:
            return False
        residual = -(self.g + self.l)
        pairs = np.count_nonzero(self.bounded) + np.count_nonzero(self.capped)
        mu = float(np.vdot(low, self.z) + np.vdot(room, self.w)) / pairs
        d, _ = factors.solve(residual)
        dz, dw = -self.z - self.z * d / low, -self.w + self.w * d / room
        length = self._longest(low, room, d, dz, dw)
        ahead = np.vdot(low + length * d, self.z + length * dz)
        ahead += np.vdot(room - length * d, self.w + length * dw)
        centred = mu * (float(ahead) / pairs / mu) ** 3
        pull = np.where(self.bounded, (centred - d * dz) / low, 0.0)
        push = np.where(self.capped, (centred + d * dw) / room, 0.0)
        d, dl = factors.solve(residual + pull - push)
        dz, dw = pull - self.z - self.z * d / low, push - self.w + self.w * d / room
        length = SHORTER * self._longest(low, room, d, dz, dw)
        self.x = self.x + length * d
        self.g, self.l = self.g + length * (d @ self.K), self.l + length * dl
        self.z, self.w = self.z + length * dz, self.w + length * dw
        return True

    def _longest(
        self, low: np.ndarray, room: np.ndarray, d: np.ndarray, dz: np.ndarray, dw: np.ndarray
    ) -> float:
        """Longest step up to 1 that keeps x, u - x, z and w positive."""
        steepest = 1.0
        for value, move, there in (
            (low, d, self.bounded),
            (self.z, dz, self.bounded),
            (room, -d, self.capped),
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
