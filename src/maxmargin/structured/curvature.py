"""The second derivative of the smoothed objective of `newton` as products, for conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrs

from maxmargin.core.linalg import ridged_cholesky
from maxmargin.structured import newton_loops as loops
from maxmargin.structured.multiclass_problem import LinearMultiClass

# Rows that are read at a time where X is not a dense float64 array.
PIECE = 4096


class Curvature:
    """The second derivative of F as a product with directions, from the samples that contribute to it.

    The preconditioner is its blocks on the diagonal, one for each class, or its diagonal alone where
    features are many.
    """

    def __init__(self, problem: LinearMultiClass, blocks: np.ndarray, tau: float) -> None:
        inside = blocks > 0
        if problem.loss != loops.CRAMMER_SINGER:
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
        if self.problem.loss == loops.CRAMMER_SINGER:
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
        """Weights of x x' in the blocks on the diagonal, one column for each class."""
        if self.problem.loss == loops.CRAMMER_SINGER:
            return self.weights * self.inside * (1 - 1 / self.sizes)
        shares = self.weights * self.inside
        shares[self.truth] *= self.sizes[:, 0] - 1
        return shares

    def precondition(self, *, most: int = 2000) -> Callable[[np.ndarray], np.ndarray]:
        """V -> M^-1 V with M the blocks of the classes, or the diagonal where D is above `most`."""
        shares, bias = self.shares(), self.problem.bias
        if self.X.shape[1] > most or not self.problem.rows.dense:
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
        """I + sum_i share_i x_i x_i', the bias last; rows are taken a few at a time."""
        D = self.X.shape[1] + 1
        matrix = np.eye(D)
        used = np.flatnonzero(share)
        for first in range(0, len(used), PIECE):
            rows = used[first : first + PIECE]
            root = np.sqrt(share[rows])
            part = self.X[rows] * root[:, None]
            matrix[:-1, :-1] += part.T @ part
            matrix[-1, :-1] += self.problem.bias * (root @ part)
        matrix[:-1, -1] = matrix[-1, :-1]
        matrix[-1, -1] += self.problem.bias**2 * share.sum()
        return matrix
