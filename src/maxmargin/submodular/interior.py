"""Interior point method for 1/2 |theta|^2 + sum_n c_n max_y [...] with a nonnegative block.

Every sample n remembers some sets k. With v_nk(theta) = loss + score(set) - score(truth), the part of (3)
that they span is the quadratic program

    min  1/2 |theta|^2 + sum_n c_n xi_n    so that  s_nk = xi_n - v_nk(theta) >= 0,  t >= 0,

t the pair weights in theta. With multipliers alpha_nk and r its optimum is where

    theta + sum_nk alpha_nk a_nk = (0, r),   sum_k alpha_nk = c_n,   alpha_nk s_nk = 0,   t_e r_e = 0,

a_nk the gradient of v_nk. An epoch takes one step of Mehrotra's predictor and corrector towards it, runs
inference at the new theta and at the end of the full step, and remembers the sets that are new: the program
grows while it is solved. The step is that of `maxmargin.core.listed_qp`. The gradient a_nk is (x_n, bias)
times the change of labels, and a block of H for two labels is X' diag(.) X.

*Factored.* H has as many rows as theta. The scale of the features does not matter; the number of weights
does.

*Iterated*, by conjugate gradients. A product with H takes two passes over X. H is ill-conditioned because
some sums over k are large. They are few directions U per sample, in the space of labels, and

    (B + U U')^-1 = B^-1 - B^-1 U (I + U' B^-1 U)^-1 U' B^-1,     B = I + diag(0, r / t),

with the `largest` of them, from a matrix of their number and the products x_n.x_m, is a good preconditioner.
The residual of a step contributes 1/2 |residual|^2 to the gap, which is the stopping rule.

Sets matter more than steps: a program with few sets is a poor model of P, and its path leads far away from
the optimum. So large problems start with one epoch of block steps (`maxmargin.submodular.bcfw`), which finds
many sets for less than the price of one step; if some columns are long, on rows with shorter columns. A
sample whose multipliers or slacks would turn negative moves less far than the others, or raises its bound xi,
instead of stopping all of them.

alpha, scaled to sum_k alpha_nk = c_n, is a point of the dual at every epoch, and inference gives P: the gap
is a certificate, as in the other methods.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dtrsv

from maxmargin.core.linalg import ridged_cholesky
from maxmargin.core.listed_qp import Equations, Point, Step, max_step
from maxmargin.core.loop import Certificate, Clock, Evaluated, Progress
from maxmargin.core.rows import readonly
from maxmargin.submodular import inference_loops as loops
from maxmargin.submodular.bcfw import ClippedBCFW
from maxmargin.submodular.problem import SubmodularF1

# Block steps are skipped if all samples together have at most this many labels.
FEW = 10_000
# Ratio of 1/2 |residual|^2 to the products alpha s above which the residual dominates the gap.
FAR = 1000.0
# Smallest target of the products, relative to P and to 1/2 |residual|^2: with smaller ones, H would be
# singular to rounding before the multipliers of long rows are accurate.
AIM = 3e-4
# Sums over sets with at most this many entries use NumPy, so that nothing is compiled.
FEW_ENTRIES = 100_000
# Largest relative decrease of multipliers and slacks in a step.
BACK = 0.9
# Fraction of the samples that may limit the step before all others stop; a fifth of it if the residual
# dominates the gap, as with unscaled features.
HELD = 0.05
# Largest share of a new set, and share of the centred point at the start.
SHARE = 0.3
# Products alpha s at the start, in units of the cost of a sample.
LEVEL = 0.1
# If a new set is above xi, xi moves above it by this fraction of the difference.
MARGIN = 0.1
# Epochs of block steps if columns are long.
EPOCHS = 8
# A smaller relative difference of two values is rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class InteriorSolution:
    """The best theta; remembered sets of every sample (`known` places), and their shares at the best D.

    Sets give valid planes for any features, costs and pairs, so they can start another fit.
    """

    theta: np.ndarray
    sets: np.ndarray
    known: np.ndarray
    share: np.ndarray

    def fits(self, problem: SubmodularF1) -> bool:
        """Return whether the sets are sets of the samples of this problem."""
        return (self.sets.shape[0], self.sets.shape[2]) == problem.truth.shape


class Planes:
    """The remembered sets of the samples, and the planes v = loss + rise of the score behind them.

    `known` marks the places in use. Samples without cost have none.
    """

    def __init__(self, problem: SubmodularF1, sets: np.ndarray, known: np.ndarray) -> None:
        self.problem = problem
        self.sets, self.known = sets, known & (problem.cost > 0)[:, None]
        self.loss = np.stack([problem.losses(sets[:, k]) for k in range(sets.shape[1])], axis=1)

    def add(self, samples: np.ndarray, places: np.ndarray, sets: np.ndarray) -> None:
        """Put the set of each of the samples in its place; a new place is appended if needed."""
        if places.max(initial=0) == self.sets.shape[1]:
            self.sets = np.concatenate([self.sets, self.problem.truth[:, None]], axis=1)
            self.known = np.pad(self.known, [(0, 0), (0, 1)])
            self.loss = np.pad(self.loss, [(0, 0), (0, 1)])
        self.sets[samples, places], self.known[samples, places] = sets[samples], True
        self.loss[samples, places] = self.problem.losses(sets)[samples]

    def image(self, weights: np.ndarray) -> np.ndarray:
        """Return sum_nk weights_nk a_nk, a vector like theta."""
        return image_of(self.problem, self.sets, weights)

    def rise(self, theta: np.ndarray) -> np.ndarray:
        """Return a_nk . theta, the change of every v_nk from theta = 0."""
        scores, T = self.scores(theta)
        truth = self.problem.truth
        if self.sets.size <= FEW_ENTRIES:
            here = np.einsum("nv,nv->n", scores + truth @ T, truth)[:, None]
            rise = np.einsum("nkv,nkv->nk", scores[:, None] + self.sets @ T, self.sets) - here
            return np.where(self.known, rise, 0.0)
        rise = np.empty(self.known.shape)
        on = np.empty(len(T), np.int64)
        loops.rise_batch(scores, T, readonly(truth), self.sets, self.known, on, rise)
        return rise

    def scores(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return unary scores of all samples, and the matrix of the pair weights."""
        Z, t = self.problem.split(theta)
        V = Z.shape[1]
        T = np.zeros((V, V))
        T[tuple(self.problem.pairs.index.T)] = self.problem.pairs.strength * t
        return self.problem.scores(Z), T


def image_of(problem: SubmodularF1, sets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sum_nk weights_nk (phi(x^n, set_nk) - phi(x^n, y^n)), a vector like theta."""
    N, V = problem.truth.shape
    i, j = problem.pairs.index.T
    if sets.size <= FEW_ENTRIES:
        total, truth = weights.sum(axis=1)[:, None], problem.truth
        labels = np.matmul(weights[:, None], sets)[:, 0] - total * truth
        weighted = (weights[:, :, None] * sets).reshape(-1, V)
        joint = weighted.T @ sets.reshape(-1, V) - (total * truth).T @ truth
        return problem.features(labels, joint[i, j])
    labels, joint = np.zeros((N, V)), np.zeros((V, V))
    on = np.empty(V, np.int64)
    loops.gather_batch(readonly(weights), readonly(problem.truth), sets, on, labels, joint)
    return problem.features(labels, joint[i, j])


def dense_features(problem: SubmodularF1) -> np.ndarray:
    """Return the rows, dense and in double precision, with the bias."""
    X = problem.rows.matrix
    X = X.toarray() if hasattr(X, "toarray") else X
    return np.hstack([X.astype(np.float64), np.full((len(X), 1), problem.bias)])


class SetEquations(Equations):
    """The equations of a step over the planes of sets; a subclass inverts H."""

    # Whether it is meant for many weights: then a new set moves theta(alpha) far, and gets a small share.
    many: ClassVar[bool]

    def __init__(self, planes: Planes, point: Point) -> None:
        self.planes = planes
        super().__init__(point, planes.known)

    @classmethod
    @abstractmethod
    def of(cls, problem: SubmodularF1) -> Callable[[Planes, Point], SetEquations]:
        """Return a constructor for the points of one problem."""

    def sums(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values.sum(axis=1))

    def repeat(self, values: np.ndarray) -> np.ndarray:
        return values[:, None]

    def combine(self, weights: np.ndarray) -> np.ndarray:
        return self.planes.image(weights)

    def scores(self, theta: np.ndarray) -> np.ndarray:
        return self.planes.rise(theta)


class Factored(SetEquations):
    """The equations with H factorised; X has the bias as its last column."""

    many = False

    @classmethod
    def of(cls, problem: SubmodularF1) -> Callable[[Planes, Point], SetEquations]:
        return partial(cls, X=dense_features(problem))

    def __init__(self, planes: Planes, point: Point, X: np.ndarray) -> None:
        super().__init__(planes, point)
        self.factor = cho_factor(self._matrix(X), lower=True, overwrite_a=True)

    def _matrix(self, X: np.ndarray, negligible: float = 1e-4) -> np.ndarray:
        """Return the lower triangle of H, with the weights of one label contiguous and pairs last.

        Samples that add less than `negligible` to I are left out: one of their sets has all the weight.
        """
        labels, pairs = self._centred()
        counted = np.einsum("nkv,nkv->n", labels, labels) * self.planes.problem.squares
        counted += np.einsum("nke,nke->n", pairs, pairs)
        X, labels, pairs = (part[counted > negligible] for part in (X, labels, pairs))
        squares = np.matmul(labels.transpose(0, 2, 1), labels)
        crossed = np.matmul(labels.transpose(0, 2, 1), pairs)
        width, V = X.shape[1], labels.shape[2]
        end = width * V
        H = np.zeros((end + len(self.point.t),) * 2)
        _write_products(X, squares, H)
        for a in range(V):
            H[end:, a * width : (a + 1) * width] = crossed[:, a].T @ X
        flat = pairs.reshape(pairs.shape[0] * pairs.shape[1], len(self.point.t))
        H[end:, end:] = flat.T @ flat
        diagonal = np.einsum("ii->i", H)
        diagonal += 1.0
        diagonal[end:] += self.point.r / self.point.t
        diagonal *= 1.0 + ROUNDING
        return H

    def _centred(self) -> tuple[np.ndarray, np.ndarray]:
        """Return sqrt(d_nk) (a_nk - mean_n) without x_n: labels, and pairs times their strengths."""
        problem, sets = self.planes.problem, self.planes.sets
        i, j = problem.pairs.index.T
        root, weights = np.sqrt(self.d)[:, :, None], self.d / self.total[:, None]
        parts = sets.astype(np.float64), (sets[:, :, i] & sets[:, :, j]) * problem.pairs.strength
        labels, pairs = ((part - np.einsum("nk,nkf->nf", weights, part)[:, None]) * root for part in parts)
        return labels, pairs

    def inverse(self, right: np.ndarray) -> np.ndarray:
        Z, t = self.planes.problem.split(right)
        solved = cho_solve(self.factor, np.concatenate([Z.T.ravel(), t]))
        return np.concatenate([solved[: Z.size].reshape(Z.shape[::-1]).T.ravel(), solved[Z.size :]])


def _write_products(X: np.ndarray, squares: np.ndarray, H: np.ndarray) -> None:
    """Write sum_n squares_n (x) x_n x_n' into H, without the blocks above the diagonal.

    Both factors are symmetric, so a quarter of all products is enough.
    """
    width = X.shape[1]
    a, b = np.tril_indices(squares.shape[1])
    weights, columns = np.ascontiguousarray(squares[:, a, b].T), np.ascontiguousarray(X.T)
    blocks = np.empty((len(a), width, width))
    for i in range(width):
        blocks[:, i, : i + 1] = weights @ (columns[: i + 1] * columns[i]).T
    for block, row, column in zip(blocks, a * width, b * width, strict=True):
        H[row : row + width, column : column + width] = np.tril(block) + np.tril(block, -1).T


def row_products(problem: SubmodularF1) -> np.ndarray:
    """Return x_n . x_m of all samples, with the bias."""
    X = problem.rows.matrix.astype(np.float64)
    K = X @ X.T
    return (K.toarray() if hasattr(K, "toarray") else np.asarray(K)) + problem.bias**2


class Iterated(SetEquations):
    """The equations solved by conjugate gradients; K are the products of the rows, bias included.

    Parameters
    ----------
    largest : int
        Most directions that the preconditioner inverts exactly.
    least : float
        Smallest size of such a direction, relative to I.
    accuracy : float
        1/2 |residual|^2 in the last system of a step, relative to the sum of all products alpha s; ten times
        as much in the first one.
    most : int
        Largest number of products with H.
    """

    many = True

    @classmethod
    def of(cls, problem: SubmodularF1) -> Callable[[Planes, Point], SetEquations]:
        return partial(cls, K=row_products(problem))

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
        self._build_preconditioner(K, largest, least)

    def _build_preconditioner(self, K: np.ndarray, largest: int, least: float) -> None:
        """Find the directions, and factorise the matrix that inverts them."""
        problem, sets = self.planes.problem, self.planes.sets
        labels = sets.astype(np.float64)
        labels -= np.einsum("nk,nkv->nv", self.d / self.total[:, None], labels)[:, None]
        labels *= np.sqrt(self.d)[:, :, None]
        sizes, vectors = np.linalg.eigh(np.matmul(labels, labels.transpose(0, 2, 1)))
        sizes *= problem.squares[:, None]
        if sizes.size > largest:
            least = max(least, float(np.partition(sizes.ravel(), -largest)[-largest]))
        self.samples, which = np.nonzero(sizes > least)
        # The vectors are orthogonal to sqrt(d), so the mean of a sample cancels.
        weights = vectors[self.samples, :, which] * np.sqrt(self.d)[self.samples]
        chosen = sets[self.samples]
        self.labels = np.matmul(weights[:, None], chosen.astype(np.float64))[:, 0]
        self.pairs = np.zeros((len(self.samples), len(problem.pairs)))
        for k in range(sets.shape[1]):
            self.pairs += weights[:, k, None] * problem.joints(chosen[:, k])
        self.pairs *= problem.pairs.strength
        # The directions of a sample are contiguous.
        self.owners, self.begins = np.unique(self.samples, return_index=True)
        matrix = self.labels @ self.labels.T
        # K is symmetric, and indexing rows is faster than indexing columns.
        matrix *= K[self.samples].T[self.samples]
        matrix += (self.pairs / (1.0 + self.bound)) @ self.pairs.T
        matrix.flat[:: len(matrix) + 1] += 1.0
        self.factor = ridged_cholesky(matrix)[0]

    def product(self, vector: np.ndarray) -> np.ndarray:
        """Return H vector."""
        problem, rise = self.planes.problem, self.scores(vector)
        mean = self.sums(self.d * rise) / self.total
        out = vector + self.combine(self.d * (rise - self.repeat(mean)))
        pairs = problem.split(out)[1]
        pairs += self.bound * problem.split(vector)[1]
        return out

    def precondition(self, vector: np.ndarray) -> np.ndarray:
        """Return (B + U U')^-1 vector."""
        problem = self.planes.problem
        out = vector.copy()
        Z, t = problem.split(out)
        t /= 1.0 + self.bound
        inner = np.einsum("fv,fv->f", problem.scores(Z)[self.samples], self.labels) + self.pairs @ t
        # For one right-hand side these take half the time of `cho_solve`.
        if inner.size:
            inner = dtrsv(self.factor, dtrsv(self.factor, inner, lower=1), lower=1, trans=1)
        labels = np.zeros(problem.truth.shape)
        if inner.size:
            labels[self.owners] = np.add.reduceat(inner[:, None] * self.labels, self.begins)
        back = problem.features(labels, np.zeros(len(t)))
        problem.split(back)[1][:] = (inner @ self.pairs) / (1.0 + self.bound)
        return out - back

    def inverse(self, right: np.ndarray) -> np.ndarray:
        """Solve H x = right by conjugate gradients, from the solution of the system before."""
        goal = self.goals.pop(0) if len(self.goals) > 1 else self.goals[0]
        x = self.start
        residual = right - self.product(x)
        direction, last = np.zeros_like(x), np.inf
        for _ in range(self.most):
            if 0.5 * float(residual @ residual) <= goal:
                break
            z = self.precondition(residual)
            size = float(residual @ z)
            direction = z + size / last * direction
            last, image = size, self.product(direction)
            length = size / float(direction @ image)
            x = x + length * direction
            residual = residual - length * image
        self.start = x
        return x


class InteriorPoint(Evaluated):
    """The method: theta, the bounds xi, the multipliers alpha and r, and the best theta.

    Parameters
    ----------
    problem : SubmodularF1
    memory : int
        How many sets a sample remembers, at least two; a new set replaces the one with the smallest weight.
    start : InteriorSolution or None
        The solution of another fit, whose sets are remembered from the start.
    steps : ClippedBCFW or None
        A block solver of this problem to continue from.
    linear_solver : type of SetEquations
        How the equations of a step are solved.
    """

    def __init__(
        self,
        problem: SubmodularF1,
        *,
        memory: int = 20,
        start: InteriorSolution | None = None,
        steps: ClippedBCFW | None = None,
        linear_solver: type[SetEquations] = Factored,
    ) -> None:
        self.problem, self.memory = problem, max(memory, 2)
        # With many weights, a new set gets at most twice its part of the share of a full memory.
        self.new_weight = 2 * SHARE / self.memory if linear_solver.many else SHARE
        self.hints = problem.guesses()
        self.best, self.best_primal, self.best_dual = np.zeros(problem.dimension), np.inf, -np.inf
        self.equations = linear_solver.of(problem)
        if start is None:
            few = steps is None and problem.truth.size <= FEW and not linear_solver.many
            starts = [self._two_sets()] if few else self._block_steps(steps)
            theta = starts[-1].theta
        else:
            starts, theta = [start], None
        for each in starts:
            each = self._with_true_sets(each)
            self.planes = Planes(problem, each.sets.copy(), each.known)
            alpha = np.where(self.planes.known, each.share, 0.0) * problem.cost[:, None]
            # Zeros stand for all weight on the true sets, where D is zero.
            self._keep_best_share(np.zeros(alpha.shape))
            self._keep_best_share(alpha)
        self._centre(problem.cut(-self.planes.image(alpha)) if theta is None else theta, alpha)

    def _two_sets(self) -> InteriorSolution:
        """Return the true sets, with all of the shares, and the most violating sets at theta = 0."""
        truth = self.problem.truth
        worst = self.problem.infer(self.best, self.hints).sets
        known = np.column_stack([np.ones(len(truth), bool), (worst != truth).any(axis=1)])
        share = np.broadcast_to([1.0, 0.0], known.shape)
        return InteriorSolution(self.best, np.stack([truth, worst], axis=1), known, share)

    def _block_steps(self, steps: ClippedBCFW | None) -> list[InteriorSolution]:
        """Return the results of the given block steps, or of one epoch of new ones.

        If columns are long, the last result is that of steps on shorter columns: steps on long rows gain
        little, and the sets that they find are far from the optimum.
        """
        shrunk, scale = self.problem.shrunk()
        long = shrunk is not self.problem
        taken = [] if steps is None else [self._from_steps(steps)]
        if taken and not long:
            return taken
        steps = ClippedBCFW(shrunk, np.random.RandomState(0), memory=self.memory)
        for _ in range(EPOCHS if long else 1):
            steps.epoch(Clock())
        return [*taken, self._from_steps(steps, scale)]

    def _from_steps(self, steps: ClippedBCFW, scale: np.ndarray | None = None) -> InteriorSolution:
        """Return theta, sets and shares of block steps; with a scale, of steps on shrunk columns."""
        theta, primal, blocks = steps.best.copy(), steps.best_primal, steps.blocks
        if scale is not None:
            self.problem.split(theta)[0][:-1] /= scale[:, None]
            primal = self.problem.primal(theta, self.problem.risk(theta, self.hints)[1])
        if primal < self.best_primal:
            self.best, self.best_primal = theta, primal
        known = np.arange(blocks.memory.shape[1]) < blocks.kept[:, None]
        # Forgotten sets have no share; if nothing else is left, all sets have equal shares.
        share = np.where(known, blocks.share, 0.0)
        share = np.where(share.sum(axis=1, keepdims=True) > 0, share, known)
        return InteriorSolution(theta, blocks.memory, known, share / share.sum(axis=1, keepdims=True))

    def _with_true_sets(self, start: InteriorSolution) -> InteriorSolution:
        """Add the true sets of samples without known sets, which had no cost in the fit before."""
        new = ~start.known.any(axis=1)
        if not new.any():
            return start
        sets, known, share = start.sets.copy(), start.known.copy(), start.share.copy()
        sets[new, 0], known[new, 0], share[new, 0] = self.problem.truth[new], True, 1.0
        return InteriorSolution(start.theta, sets, known, share)

    def _centre(self, theta: np.ndarray, alpha: np.ndarray) -> None:
        """Set an interior point near theta and alpha: products alpha s of one level, and most of alpha."""
        problem, planes, cost = self.problem, self.planes, self.problem.cost
        self.theta = theta.copy()
        mu = LEVEL * float(cost.max(initial=0.0))
        problem.split(self.theta)[1][:] += mu**0.5
        self.r = np.full(len(problem.pairs), mu**0.5)
        values = np.where(planes.known, planes.loss + planes.rise(self.theta), -np.inf)
        highest = self._highest()
        # Bisection for xi with sum_k level / (xi - v_k) = 1; the bounds are those of one set and of equal
        # sets.
        low, high = highest + LEVEL, highest + LEVEL * np.maximum(planes.known.sum(axis=1), 1)
        for _ in range(50):
            xi = 0.5 * (low + high)
            above = np.sum(LEVEL / (xi[:, None] - values), axis=1) > 1
            low, high = np.where(above, xi, low), np.where(above, high, xi)
        self.xi = high
        centred = cost[:, None] * LEVEL / (self.xi[:, None] - values)
        self.alpha = SHARE * centred + (1 - SHARE) * alpha

    def _move(self, clock: Clock) -> Progress:
        """Take a step, run inference at its end and at that of a full step, and add the sets found."""
        problem = self.problem
        try:
            mu, ahead = self._step()
        except np.linalg.LinAlgError:
            return Progress(self._best_certificate(), 0, stuck="scale the features")
        self._keep_best_share(self.alpha)
        above = self._add_sets(self._infer(self.theta), mu)
        self._add_sets(self._infer(ahead), mu)
        stuck = ""
        if not above and mu * self.alpha.size <= ROUNDING * self.best_primal:
            stuck = problem.remedy(self.theta)
        return Progress(self._best_certificate(), int(np.count_nonzero(problem.cost)), stuck=stuck)

    def _infer(self, theta: np.ndarray) -> np.ndarray:
        """Return the sets that inference finds at theta; keep theta if its P is the best yet."""
        sets, risk = self.problem.risk(theta, self.hints)
        primal = self.problem.primal(theta, risk)
        if primal < self.best_primal:
            self.best, self.best_primal = theta, primal
        return sets

    def _best_certificate(self) -> Certificate:
        return Certificate(self.best_primal, min(self.best_dual, self.best_primal))

    def _evaluate(self) -> tuple[InteriorSolution, Certificate]:
        """Return the best theta and the present sets, with P and D recomputed from them."""
        sets, known, alpha = self.best_share
        cost = self.problem.cost
        loss = np.stack([self.problem.losses(sets[:, k]) for k in range(sets.shape[1])], axis=1)
        certificate = self.problem.certificate(self.best, self._dual(sets, alpha, loss), self.hints)
        share = alpha / np.where(cost > 0, cost, 1.0)[:, None]
        return InteriorSolution(self.best, readonly(sets), readonly(known), readonly(share)), certificate

    def _highest(self) -> np.ndarray:
        """Return max_k v_nk at theta; zero for samples without cost."""
        values = np.where(self.planes.known, self.planes.loss + self.planes.rise(self.theta), -np.inf)
        return np.where(self.problem.cost > 0, values.max(axis=1), 0.0)

    def _point(self) -> Point:
        planes = self.planes
        slack = np.where(planes.known, self.xi[:, None] - planes.loss - planes.rise(self.theta), 1.0)
        residual = self.theta + planes.image(self.alpha)
        residual[len(residual) - len(self.r) :] -= self.r
        excess = self.alpha.sum(axis=1) - self.problem.cost
        return Point(slack, self.alpha, self.problem.split(self.theta)[1], self.r, residual, excess)

    def _step(self) -> tuple[float, np.ndarray]:
        """Take a step of Mehrotra's method; return the mean of the target products, and the full step."""
        point = self._point()
        if not (point.slack > 0).all():
            raise np.linalg.LinAlgError("Rounding of the scores is larger than the remaining gap.")
        least = AIM * min(0.5 * float(point.residual @ point.residual), self.best_primal)
        step, mu, target = self.equations(self.planes, point).mehrotra(least)
        full = self.problem.cut(self.theta + step.theta)
        return mu + self._move_along(point, step) * (target - mu), full

    def _move_along(self, point: Point, step: Step) -> float:
        """Move along the step; return the length.

        Samples that reach a limit before the others raise their bounds xi. If this costs more than all
        products alpha s, as with large costs, the step ends at the first limit instead.
        """
        slack, alpha, t, r, residual, _ = point
        stopped = np.minimum(BACK * np.minimum(max_step(slack, step.slack), max_step(alpha, step.alpha)), 1.0)
        products = float(np.sum(alpha * slack, where=self.planes.known))
        held = HELD if 0.5 * float(residual @ residual) <= FAR * products else HELD / 5
        most = BACK * float(max_step(t, step.t))
        length = min(float(np.quantile(stopped, held)), most)
        lacking = (1 - BACK) * slack - (slack + length * step.slack)
        raised = np.maximum(lacking, 0.0).max(axis=1)
        if float(self.problem.cost @ raised) > products:
            length, raised = min(float(stopped.min()), most), np.zeros(len(raised))
        self.theta = self.theta + length * step.theta
        self.xi = self.xi + length * step.xi + raised
        self.alpha = np.maximum(alpha + length * step.alpha, (1 - BACK) * alpha)
        self.r = np.maximum(r + length * step.r, (1 - BACK) * r)
        return length

    def _keep_best_share(self, alpha: np.ndarray) -> None:
        """Scale alpha to sum to the costs, and keep it if its D is the best yet."""
        total = alpha.sum(axis=1)
        alpha = alpha * (self.problem.cost / np.where(total > 0, total, 1.0))[:, None]
        dual = self._dual(self.planes.sets, alpha, self.planes.loss)
        if dual > self.best_dual:
            self.best_dual = dual
            self.best_share = self.planes.sets.copy(), self.planes.known.copy(), alpha

    def _dual(self, sets: np.ndarray, alpha: np.ndarray, loss: np.ndarray) -> float:
        theta = self.problem.cut(-image_of(self.problem, sets, alpha))
        return self.problem.dual(float(np.sum(alpha * loss)), theta)

    def _add_sets(self, sets: np.ndarray, mu: float) -> int:
        """Add new sets, with small multipliers; return how many are above all known ones."""
        planes, cost = self.planes, self.problem.cost
        values = self.problem.slacks(self.theta, [sets])[0]
        above = (cost > 0) & (values > self._highest() + ROUNDING * (1.0 + np.abs(values)))
        there = planes.known & (planes.sets == sets[:, None]).all(axis=2)
        samples = np.flatnonzero((cost > 0) & ~there.any(axis=1))
        places = np.argmin(np.where(planes.known, self.alpha, -1.0), axis=1)[samples]
        full = planes.known[samples, places]
        if planes.sets.shape[1] < self.memory:
            places[full] = planes.sets.shape[1]
        planes.add(samples, places, sets)
        if self.alpha.shape[1] < planes.sets.shape[1]:
            self.alpha = np.pad(self.alpha, [(0, 0), (0, 1)])
        value, c = values[samples], cost[samples]
        excess = np.maximum(value - self.xi[samples], 0.0)
        self.xi[samples] = np.maximum(self.xi[samples], value + MARGIN * excess + mu / c)
        self.alpha[samples, places] = np.minimum(mu / (self.xi[samples] - value), self.new_weight * c)
        self.alpha[samples] *= (c / self.alpha[samples].sum(axis=1))[:, None]
        return int(np.count_nonzero(above))
