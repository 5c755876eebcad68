"""Newton's method for few features: `core.proximal_newton` with the losses of classes.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. Block sweeps need thousands of
passes if features are few or differ in scale; the number of Newton steps depends on neither.

The proximal point of a block is its anchor's projection, alpha_i(W) = projection of a_i + H_i / tau on the
simplex (Crammer-Singer) or the box (Weston-Watkins), and the second derivative of the smoothed losses is,
piecewise,

    sum_i C_i / tau (1_S - 1/|S|) (x) x_i x_i',     S the classes with mass in alpha_i(W),

Only samples with two classes or more in S contribute. Adding the same vector to all classes changes no loss,
so W and every direction have mean 0 over the classes. The matrix may have any curvature along the mean; it
gets the average curvature, against rounding.

With D = features + 1, a step costs O(n c D) for the scores, O(m D^2) for m pairs of classes with mass in a
sample, and O((c D)^3 / 3) for the factor. Memory: six arrays of n x c numbers and the matrix of order c D.
Dense and sparse rows are converted in chunks. If c D is above 600, conjugate gradients solve Newton's
equation, preconditioned by the diagonal blocks of the classes.

With two classes W_1 = -W_2, and the matrix is that of one class. Small problems compute the losses in NumPy,
which compiles nothing, and large ones in compiled loops (`newton_losses`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrs

from maxmargin.core.linalg import conjugate_gradients, ridged_cholesky
from maxmargin.core.loop import Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.core.proximal_newton import ALL, NewtonSteps, half_squares, solve_scaled
from maxmargin.core.rows import readonly
from maxmargin.structured.multiclass_problem import LinearMultiClass, LinearSolution, Setup
from maxmargin.structured.newton_loops import CRAMMER_SINGER, ProximalTask
from maxmargin.structured.newton_losses import smoothed_losses

# The fit is stuck after this many steps without progress.
PATIENCE = 100
# Up to the first order Newton's matrix is factored; up to the second, if conjugate gradients take longer.
# These stop at the relative residual ACCURACY or after so many products.
DIRECT, FACTORED = 600, 3000
ACCURACY, PRODUCTS = 0.03, 250
# An X of up to so many numbers is kept as a dense float64 array with the constant feature; a larger one is
# converted so many rows at a time.
KEPT, CHUNK = 2**22, 4096
# Up to so many features the preconditioner factors the diagonal blocks; beyond, it is the diagonal.
BLOCKS = 2000
SCALES = "scale the features, whose sizes differ too much for float64,"


class ProximalNewton(Evaluated):
    """The solver "newton".

    Parameters
    ----------
    problem : LinearMultiClass
    setup : Setup
    first : float
        The first tau, relative to the largest cost of an error.
    """

    def __init__(self, problem: LinearMultiClass, setup: Setup, *, first: float = 2.0) -> None:
        self.problem, self.tol = problem, setup.tol
        Delta = problem.labels.Delta
        self.task = ProximalTask(problem.y, problem.costs, readonly(Delta), problem.loss)
        self.losses, self.geometry = smoothed_losses(self.task), ClassRows(problem)
        self.patience = Patience(PATIENCE, 0.99)
        anchor, dual = self.losses.zero_shares, 0.0
        if setup.blocks is not None:
            given = problem.normalised(setup.blocks, False)
            # A start with D < 0 is worse than none, which has D = 0: y or C has changed.
            if (value := self._dual(given)) >= 0.0:
                anchor, dual = self.losses.column_major(given), value
        W = self.geometry.image(self.losses.column_major(problem.steps(anchor[0].T)))
        # Blocks of other rows may give a W worse than zero.
        W = W if self._primal(W) <= problem.first_primal() else np.zeros_like(W)
        tau = first * (float(Delta.max(initial=0.0)) or 1.0)
        self.steps = NewtonSteps(self.losses, self.geometry, W, anchor, tau)
        if dual > self.steps.dual[0]:
            self.steps.best_shares, self.steps.dual[0] = anchor, dual

    def offer(self, weights: np.ndarray) -> None:
        """Keep weights (D, c) of another solver as the best ones if their primal objective is lower."""
        W = np.ascontiguousarray(weights.T)[None]
        if (primal := self._primal(W)) < self.steps.primal[0]:
            self.steps.best_W, self.steps.primal[0] = W, primal

    def _move(self, clock: Clock) -> Progress:
        """One Newton step."""
        steps = self.steps
        steps.step(ALL)
        bounds = Certificate(float(steps.primal[0]), float(steps.dual[0]))
        progress = Progress(bounds, self.problem.n)
        if bounds.gap <= self.tol:
            progress = Progress(self.certify(), self.problem.n, exact=True)
        falls = not self.patience.exhausted(bounds.primal - bounds.dual)
        return progress if falls else replace(progress, stuck=SCALES)

    def _evaluate(self) -> tuple[LinearSolution, Certificate]:
        """The best W and the best blocks, with their P and D."""
        W, blocks = self.steps.best_W, np.ascontiguousarray(self.steps.best_shares[0].T)
        solution = LinearSolution(np.ascontiguousarray(W[0].T), blocks)
        return solution, Certificate(self._primal(W), self._dual(blocks))

    def _dual(self, blocks: np.ndarray) -> float:
        steps = self.problem.steps(blocks)
        linear = -float(np.vdot(steps, self.task.Delta[self.task.y]))
        return linear - float(half_squares(self.geometry.image(self.losses.column_major(steps)))[0])

    def _primal(self, W: np.ndarray) -> float:
        nothing = self.losses.zero_shares
        line = self.losses.line(ALL, np.ones(1), nothing, self.geometry.scores(W), None)
        return float(half_squares(W)[0] + line.point(None).losses[0])


class ClassRows:
    """Rows of X, the constant feature last; all classes form one group of equations."""

    def __init__(self, problem: LinearMultiClass) -> None:
        self.problem, self.direct = problem, DIRECT
        self.shape = problem.c, problem.rows.shape[1] + 1

    def scores(self, W: np.ndarray) -> np.ndarray:
        scores = np.empty((1, self.problem.c, self.problem.n))
        for first, X in self._chunks():
            np.matmul(W[0], X.T, out=scores[0, :, first : first + len(X)])
        return scores

    def image(self, steps: np.ndarray, moved: np.ndarray | None = None) -> np.ndarray:
        W = np.zeros((1, *self.shape))
        for first, X in self._chunks():
            part = steps[0, :, first : first + len(X)]
            if moved is not None:
                there = moved[first : first + len(X)]
                if 4 * np.count_nonzero(there) < len(X):
                    X, part = X[there], part[:, there]
            W[0] += part @ X
        return W

    def directions(self, newton: NewtonSteps, at: Any) -> np.ndarray:
        """Newton's direction, with mean 0 over the classes."""
        tau, shares, rest = float(newton.tau[0]), newton.shares[0], newton.gradients[0]
        solve = self._solved if rest.size <= self.direct else self._solved_by_cg
        direction = solve(newton.losses, tau, shares, -rest)
        return (direction - np.add.reduce(direction) / len(direction))[None]

    def _solved(self, losses: Any, tau: float, shares: np.ndarray, descent: np.ndarray) -> np.ndarray:
        """Solve Newton's equation by a Cholesky factor of its matrix."""
        c, D = self.shape
        two = c == 2
        order = D if two else c * D
        matrix = np.zeros((order, order))
        for first, X in self._chunks():
            losses.add_curvature(first, X, tau, shares, matrix)
        matrix.reshape(-1)[:: order + 1] += 1.0
        if two:
            solved = solve_scaled(matrix, 0.5 * (descent[0] - descent[1]))
            return np.stack([solved, -solved])
        blocks = matrix.reshape(c, D, c, D)
        blocks += np.einsum("kfkg->fg", blocks)[None, :, None, :] / c**2
        return solve_scaled(matrix, descent.ravel()).reshape(c, D)

    def _solved_by_cg(self, losses: Any, tau: float, shares: np.ndarray, descent: np.ndarray) -> np.ndarray:
        """Solve Newton's equation by conjugate gradients.

        If they take longer than factoring a matrix of order up to `FACTORED`, this and all later steps
        factor.
        """
        curvature = Curvature(self.problem, shares.T, tau)
        most = PRODUCTS
        if descent.size <= FACTORED:
            most = min(most, max(descent.size**2 // (3 * max(len(curvature.y), 1)), 10))
        direction, products = conjugate_gradients(
            curvature.product, descent.T, curvature.precondition(), accuracy=ACCURACY, max_products=most
        )
        if products < most or descent.size > FACTORED:
            return direction.T
        self.direct = descent.size
        return self._solved(losses, tau, shares, descent)

    def _chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Chunks of X as dense float64 arrays, the constant feature last, each with its first row."""
        if self._whole is not None:
            yield 0, self._whole
            return
        for first in range(0, self.problem.n, CHUNK):
            yield first, self._dense(slice(first, first + CHUNK))

    @cached_property
    def _whole(self) -> np.ndarray | None:
        """All of X, if it has at most `KEPT` numbers."""
        return self._dense(slice(None)) if math.prod(self.problem.rows.shape) <= KEPT else None

    def _dense(self, part: slice) -> np.ndarray:
        rows = self.problem.rows
        some = rows.matrix[part]
        X = np.empty((some.shape[0], some.shape[1] + 1))
        X[:, :-1] = some if rows.dense else some.toarray()
        X[:, -1] = self.problem.bias
        return X


class Curvature:
    """Products of the second derivative of F with directions.

    The preconditioner is its diagonal blocks, one for each class, or its diagonal if features are many.
    """

    def __init__(self, problem: LinearMultiClass, blocks: np.ndarray, tau: float) -> None:
        inside = blocks > 0
        if problem.loss != CRAMMER_SINGER:
            inside &= blocks < 1
            inside[np.arange(problem.n), problem.y] = True
        samples = np.flatnonzero((inside.sum(axis=1) > 1) & (problem.costs > 0))
        self.problem, self.y = problem, problem.y[samples]
        self.X = problem.rows.matrix[samples].astype(np.float64)
        self.inside = inside[samples].astype(np.float64)
        self.sizes = self.inside.sum(axis=1, keepdims=True)
        self.weights = problem.costs[samples, None] / tau
        self.truth = np.arange(len(samples)), self.y

    def product(self, V: np.ndarray) -> np.ndarray:
        """V plus the curvature of the losses along V."""
        moves = self.inside * (self.X @ V[:-1] + self.problem.bias * V[-1])
        if self.problem.loss == CRAMMER_SINGER:
            moves -= self.inside * (moves.sum(axis=1, keepdims=True) / self.sizes)
        else:
            moves -= self.inside * moves[self.truth][:, None]
            moves[self.truth] = -moves.sum(axis=1)
        moves *= self.weights
        out = V.copy()
        out[:-1] += self.X.T @ moves
        out[-1] += self.problem.bias * moves.sum(axis=0)
        return out

    def shares(self) -> np.ndarray:
        """Weights of x x' in the diagonal blocks, one column for each class."""
        if self.problem.loss == CRAMMER_SINGER:
            return self.weights * self.inside * (1 - 1 / self.sizes)
        shares = self.weights * self.inside
        shares[self.truth] *= self.sizes[:, 0] - 1
        return shares

    def precondition(self) -> Callable[[np.ndarray], np.ndarray]:
        """V -> M^-1 V, where M is the diagonal blocks, or the diagonal if features are many."""
        shares, bias = self.shares(), self.problem.bias
        if self.X.shape[1] > BLOCKS or not self.problem.rows.dense:
            squares = self.X.multiply(self.X) if sp.issparse(self.X) else self.X**2
            diagonal = 1 + np.vstack([squares.T @ shares, bias**2 * shares.sum(axis=0)])
            return lambda V: V / diagonal
        factors, scales = [], []
        for share in shares.T:
            matrix = self._block(share)
            scale = 1 / np.sqrt(np.diagonal(matrix))
            factors.append(ridged_cholesky(matrix * scale * scale[:, None])[0])
            scales.append(scale)

        def solve(V: np.ndarray) -> np.ndarray:
            out = np.empty_like(V)
            for k, (factor, scale) in enumerate(zip(factors, scales, strict=True)):
                out[:, k] = scale * dpotrs(factor, scale * V[:, k], lower=True)[0]
            return out

        return solve

    def _block(self, share: np.ndarray) -> np.ndarray:
        """I + sum_i share_i x_i x_i', the bias last, in chunks of rows."""
        D = self.X.shape[1] + 1
        matrix = np.eye(D)
        used = np.flatnonzero(share)
        for first in range(0, len(used), CHUNK):
            rows = used[first : first + CHUNK]
            root = np.sqrt(share[rows])
            part = self.X[rows] * root[:, None]
            matrix[:-1, :-1] += part.T @ part
            matrix[-1, :-1] += self.problem.bias * (root @ part)
        matrix[:-1, -1] = matrix[-1, :-1]
        matrix[-1, -1] += self.problem.bias**2 * share.sum()
        return matrix
