"""Conjugate gradients for the steps of the interior point method (`maxmargin.submodular.interior`).

A product with H takes two passes over X. What makes H ill conditioned is that some sums over k are large:
they are few directions U for each sample, in the space of labels, and

    (B + U U')^-1 = B^-1 - B^-1 U (I + U' B^-1 U)^-1 U' B^-1,     B = I + diag(0, r / t),

with the `largest` of them, from a matrix of their number and the products x_n.x_m, leaves little to do. The
residual of a step is part of the gap, 1/2 |residual|^2 of it, which says when to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.linalg.blas import dtrsv

from maxmargin.core.linalg import ridged_cholesky
from maxmargin.submodular import iterated_loops as loops
from maxmargin.submodular.interior import Equations, Planes, Point
from maxmargin.submodular.problem import SubmodularF1


def _products(problem: SubmodularF1) -> np.ndarray:
    """x_n . x_m of all samples, with the bias."""
    X = problem.rows.matrix.astype(np.float64)
    K = X @ X.T
    return (K.toarray() if hasattr(K, "toarray") else np.asarray(K)) + problem.bias**2


class Iterated(Equations):
    """With conjugate gradients; K holds the products of the rows, bias included.

    Parameters
    ----------
    largest : int
        So many directions are inverted exactly by the preconditioner,
    least : float
        of those that add more than this to I.
    accuracy : float
        The part of the sum of all products alpha s that 1/2 |residual|^2 may be in the last system of a step;
        ten times as much in the one before.
    most : int
        Largest number of products with H.
    """

    many = True

    @classmethod
    def of(cls, problem: SubmodularF1) -> Callable[[Planes, Point], Equations]:
        return partial(cls, K=_products(problem))

    def __init__(
        self,
        planes: Planes,
        point: Point,
        K: np.ndarray,
        *,
        largest: int = 2500,
        least: float = 10.0,
        accuracy: float = 1e-2,
        most: int = 200,
    ) -> None:
        super().__init__(planes, point)
        self.bound = point.r / point.t
        products = float(np.sum(point.alpha * point.slack, where=planes.known)) + float(point.t @ point.r)
        self.goals = [10 * accuracy * products, accuracy * products]
        self.most, self.start = most, np.zeros(planes.problem.dimension)
        self._direct(K, largest, least)

    def _direct(self, K: np.ndarray, largest: int, least: float) -> None:
        """Find the directions, and factorise the matrix that inverts them."""
        problem, sets = self.planes.problem, self.planes.sets
        _, V = problem.truth.shape
        labels = sets.astype(np.float64)
        labels -= np.einsum("nk,nkv->nv", self.d / self.total[:, None], labels)[:, None]
        labels *= np.sqrt(self.d)[:, :, None]
        sizes, vectors = np.linalg.eigh(np.matmul(labels, labels.transpose(0, 2, 1)))
        sizes *= problem.squares[:, None]
        if sizes.size > largest:
            least = max(least, float(np.partition(sizes.ravel(), -largest)[-largest]))
        self.samples, which = np.nonzero(sizes > least)
        # The vectors are orthogonal to sqrt(d), so that the mean of a sample falls out.
        weights = vectors[self.samples, :, which] * np.sqrt(self.d)[self.samples]
        self.labels = np.zeros((len(self.samples), V))
        self.pairs = np.zeros((len(self.samples), len(problem.pairs)))
        place = np.full((V, V), -1)
        place[tuple(problem.pairs.index.T)] = np.arange(len(problem.pairs))
        loops.combine_sets(weights, self.samples, sets, place, self.labels, self.pairs)
        self.pairs *= problem.pairs.strength
        matrix = self.labels @ self.labels.T
        # K is symmetric, and rows are picked faster than columns.
        matrix *= K[self.samples].T[self.samples]
        matrix += (self.pairs / (1.0 + self.bound)) @ self.pairs.T
        matrix.flat[:: len(matrix) + 1] += 1.0
        self.factor = ridged_cholesky(matrix)[0]

    def product(self, vector: np.ndarray) -> np.ndarray:
        """H vector."""
        planes, problem = self.planes, self.planes.problem
        labels, joint = planes.sums()
        scores, T = planes.scores(vector)
        loops.spread_batch(scores, T, self.d, planes.sets, labels, joint)
        out = vector + problem.features(labels, joint[tuple(problem.pairs.index.T)])
        pairs = problem.split(out)[1]
        pairs += self.bound * problem.split(vector)[1]
        return out

    def precondition(self, vector: np.ndarray) -> np.ndarray:
        """The inverse of B + U U'."""
        problem = self.planes.problem
        out = vector.copy()
        Z, t = problem.split(out)
        t /= 1.0 + self.bound
        inner = np.einsum("fv,fv->f", problem.scores(Z)[self.samples], self.labels) + self.pairs @ t
        # With one right side these take half the time of `cho_solve`.
        if inner.size:
            inner = dtrsv(self.factor, dtrsv(self.factor, inner, lower=1), lower=1, trans=1)
        labels = self.planes.sums()[0]
        loops.add_rows(inner, self.samples, self.labels, labels)
        back = problem.features(labels, np.zeros(len(t)))
        problem.split(back)[1][:] = (inner @ self.pairs) / (1.0 + self.bound)
        return out - back

    def inverse(self, right: np.ndarray) -> np.ndarray:
        """By conjugate gradients, from the solution of the system before."""
        goal = self.goals.pop(0) if len(self.goals) > 1 else self.goals[0]
        x = self.start
        residual = right - self.product(x)
        way, last = np.zeros_like(x), np.inf
        for _ in range(self.most):
            if 0.5 * float(residual @ residual) <= goal:
                break
            near = self.precondition(residual)
            size = float(residual @ near)
            way = near + size / last * way
            last, image = size, self.product(way)
            length = size / float(way @ image)
            x = x + length * way
            residual = residual - length * image
        self.start = x
        return x
