"""Greedy growth of a basis (Algorithms 1, 2 and 4 of Ganu, Shevade and Sundararajan) and its coefficients.

An epoch of `Greedy` adds one basis function:

1. Draw `n_candidates` samples that are not in the basis and do not depend on it. Score each by the exact
   objective after its step; the best one joins. If none lowers the objective, draw again, at most `REDRAWS`
   times.
2. Optimise all coefficients until an estimate of the excess is below `STAGE_SLACK` times the decrease so far
   in this epoch (or below `tol` times the objective), or until one of the first steps decreases the objective
   as predicted.

The coefficients of step 2 are not exact. A candidate that resembles present functions must not gain by that:
of its slope, B = Psi_j g + pivot psi_j' G with psi_j the function that it would add, step 1 leaves out Psi_j
g.

Growth ends when the basis has `max_basis` functions, when no admissible candidate is left, or when the
relative decrease (e_old - e_new) / e_old was below `rel_tol` for `patience` epochs. Then the last
coefficients are optimised in float64 until the excess is at most half of `tol` times the objective. The
sequence of bases is nested, and the coefficients of every stage are stored.

Coefficients for a fixed basis, min 1/2 |W|^2 + L(Psi W P), come from one of two methods. Both stop when |g|^2
/ 2, which bounds the excess, is at most a given slack. For stages that need no proof, Newton's method also
stops

- when g' M g / 2, M its preconditioner, is at most the slack and the bound at most `LOOSE` times the slack
  (the bound is often 20 to 1000 times the excess);
- when one of the first `QUICK` steps V predicts little, -g'V / 2 <= `SLIGHT` times the objective, and
  achieves at least `KEPT` of it. The quadratic model holds there, so almost nothing is left to gain.

The methods:

- `Newton`: all coefficients at once, then an exact line search. A Cholesky factor solves the Newton equation
  if it is small, else conjugate gradients do; only samples with curvature take part.
- `Sweeps` (Algorithm 3): class after class, one Newton step in the coefficients of that class and an exact
  search on the segment to it.

The preconditioner of the conjugate gradients is the inverse of the own block of every column, I + Psi'
diag(D_rr) Psi. If only differences of scores matter, H is the identity on what all columns share, so the
blocks apply to the differences only. With a prior the preconditioner works in the space of the labels, b = al
P, where only R^-1 couples them: the blocks are (R^-1)_rr I + Psi' diag(D_rr) Psi (R^+ for a singular R).
Bordering extends it with a growing basis, for one product with H; it is recomputed when the additional
iterations since then have cost as much as that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from maxmargin.core.kernels import Kernel
from maxmargin.core.linalg import Operator, conjugate_gradients, ridged_cholesky
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.edge.estimator import Row, first_that_holds
from maxmargin.sparse.loss_loops import Curvature, Expansion
from maxmargin.sparse.problem import (
    BasisProblem,
    Position,
    Scored,
    basis_product,
    hessian,
    hessian_product,
    product_work,
    transposed_product,
)

# Smallest Schur complement, relative to k(x, x), of an admissible candidate: below it, rounding of the kernel
# values dominates the function that the candidate adds.
DEPENDENT = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-5}


# Cost of a product of conjugate gradients besides its arithmetic, in operations.
OVERHEAD = 1e6
# Most products of conjugate gradients.
PRODUCTS = 250
# Largest relative residual of a direction; of one that may reach the goal, times the reduction of the
# gradient that is still needed; smallest one for which float32 is enough.
INEXACT, FINAL, SINGLE = 0.1, 0.3, 1e-2
# Largest bound on the excess, in units of the slack, at which the estimate of the excess is trusted. At a
# large C the estimate alone is too optimistic.
LOOSE = 30.0
# How many first steps may end a stage, the largest predicted decrease relative to the objective, and the
# fraction of it that must be achieved (benchmarks/problems/sparse.py).
QUICK, SLIGHT, KEPT = 2, 0.02, 0.9
# Further draws of candidates when none lowers the objective.
REDRAWS = 3
# Excess of the coefficients of a stage, relative to the decrease of its epoch.
STAGE_SLACK = 0.03
# Candidates scored together: bounds the memory of their kernel rows.
AT_ONCE = 128
# Smallest relative excess that float64 can resolve.
PRECISION = 1e-13


class Basis:
    """Orthonormal functions at the training samples, and the position of their coefficients.

    `Psi` are the functions (l x d), `triangle` is the L with L L' = K_JJ, `vectors` are the basis vectors.
    """

    problem: BasisProblem
    here: Position
    vectors: Any
    Psi: np.ndarray
    triangle: np.ndarray
    _slope: tuple[Position, np.ndarray] | None = None

    def gradient(self) -> np.ndarray:
        """Return the gradient of the objective in W (d x r), cached per position."""
        if self._slope is None or self._slope[0] is not self.here:
            self._slope = self.here, self.problem.gradient(self.wide, self.here)
        return self._slope[1]

    @property
    def wide(self) -> np.ndarray:
        """An array with contiguous rows whose first columns are Psi."""
        return self.Psi

    def move(self, V: np.ndarray, longest: float = np.inf) -> None:
        """Move along V (d x r) to the minimum of the objective, at most `longest` times V."""
        dZ = basis_product(self.Psi, V)
        t = self.problem.step(self.here, V, dZ, longest)
        dZ *= t
        dZ += self.here.Z
        self.here = self.problem.at(self.here.W + t * V, dZ)

    def certificate(self) -> Certificate:
        """Return objective and bound of the present coefficients, from kernel values in float64."""
        return self.problem.certificate(self.vectors, self.triangle, self.here.W)

    def coefficients(self, W: np.ndarray) -> np.ndarray:
        """Return the coefficients of the kernel functions, d x k, for the present or an earlier W."""
        L = self.triangle[: len(W), : len(W)]
        return self.problem.scores(solve_triangular(L, W, trans="T", lower=True))


class FixedBasis(Basis):
    """A basis of given vectors, with its functions in float64, and initial coefficients `al` (d x r)."""

    def __init__(self, problem: BasisProblem, vectors: Any, al: np.ndarray) -> None:
        self.problem, self.vectors = problem, vectors
        self.triangle = np.linalg.cholesky(problem.gram(vectors))
        self.Psi = whitened(problem, vectors, self.triangle)
        W = self.triangle.T @ al
        self.here = problem.at(W, basis_product(self.Psi, W))


def whitened(problem: BasisProblem, vectors: Any, triangle: np.ndarray) -> np.ndarray:
    """Return Psi = K_J L^-T in float64."""
    chunks = (K for _, K in problem.kernel_chunks(vectors))
    return np.vstack([solve_triangular(triangle, K.T, lower=True).T for K in chunks])


class GrowingBasis(Basis):
    """A basis of training samples that grows by one function at a time.

    Psi grows by one column per basis function. That is a Cholesky factorisation of K whose pivots the greedy
    search chooses; the remaining diagonal, K_jj - |Psi_j|^2, is the Schur complement that detects dependent
    candidates.
    """

    def __init__(self, problem: BasisProblem) -> None:
        self.problem = problem
        self.indices: list[int] = []
        self.residual = problem.diagonal.copy()
        self._store = np.empty((problem.n, 0), problem.X.dtype)
        self.here = problem.at(np.empty((0, problem.rank)), np.zeros((problem.n, problem.rank)))

    @property
    def Psi(self) -> np.ndarray:  # type: ignore[override]
        return self._store[:, : len(self.indices)]

    @property
    def wide(self) -> np.ndarray:
        return self._store

    @property
    def vectors(self) -> Any:
        return self.problem.vectors(np.array(self.indices, dtype=np.intp))

    @property
    def triangle(self) -> np.ndarray:  # type: ignore[override]
        return np.tril(self.Psi[self.indices].astype(np.float64))

    def admissible(self, indices: np.ndarray) -> np.ndarray:
        """Return those samples whose kernel function does not depend on the basis."""
        floor = DEPENDENT[np.dtype(self.problem.X.dtype)] * self.problem.diagonal[indices]
        return indices[self.residual[indices] > floor]

    def join(self, j: int, row: np.ndarray, step: np.ndarray) -> None:
        """Add sample j to the basis, with coefficients `step`; `row` is row j of K."""
        d = len(self.indices)
        self._reserve(d + 1)
        before, pivot, column = self.orthonormal(j, row)
        self._store[:, d] = column
        self.residual -= np.square(column, dtype=np.float64)
        self.residual[j] = 0.0
        W = np.vstack([self.here.W + np.outer(before, step), pivot * step])
        Z = np.outer(row, step)
        Z += self.here.Z
        here = self.problem.at(W, Z)
        # Basis and coefficients change together, so that an interrupted fit stays consistent.
        self.indices, self.here = [*self.indices, j], here

    def orthonormal(self, j: int, row: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """Return row j of the Cholesky factor (old part, pivot) and the function that j adds."""
        before = self.Psi[j].astype(np.float64)
        pivot = float(np.sqrt(self.problem.diagonal[j] - before @ before))
        column = (row - self.Psi @ before.astype(self.Psi.dtype)) / pivot
        column[self.indices] = 0.0
        column[j] = pivot
        return before, pivot, column

    def _reserve(self, columns: int) -> None:
        kept = self._store.shape[1]
        if columns > kept:
            larger = np.empty(
                (self.problem.n, min(self.problem.n, kept + max(16, kept // 4))), self.Psi.dtype
            )
            larger[:, :kept] = self._store
            self._store = larger

    def refine(self) -> None:
        """Recompute the basis functions in float64.

        Functions stored in float32 are accurate enough to choose a basis, but not for the final coefficients.
        """
        if self._store.dtype == np.float64 or not self.indices:
            return
        J = np.array(self.indices, dtype=np.intp)
        vectors = self.problem.vectors(J)
        L = np.linalg.cholesky(self.problem.gram(vectors))
        Psi = whitened(self.problem, vectors, L)
        Psi[J] = L
        self._store = Psi
        self.here = self.problem.at(self.here.W, basis_product(Psi, self.here.W))

    def change_loss(self, problem: BasisProblem) -> None:
        """Continue with a problem that differs in its loss only."""
        self.problem, self.here = problem, problem.at(self.here.W, self.here.Z)

    def score(self, indices: np.ndarray, selection: str) -> Scored:
        """Return candidates with their steps and the objective after each."""
        excess = self.Psi[indices] @ self.gradient()
        return self.problem.score(self.here, indices, selection, excess)

    def n_active(self) -> int:
        """Return the number of samples with loss."""
        G = self.here.loss.gradient
        return int(np.count_nonzero(np.einsum("ir,ir->i", G, G)))


# Most unknowns of a Cholesky factor: in general; with a prior of low rank, for which the preconditioner is
# poor; and if the conjugate gradients before cost more than a factor.
FEW, FEW_OF_LOW_RANK, MANY = 100, 1500, 4000
# Cost of an operation of assembling and factorising H, in operations of a product of conjugate gradients.
FACTOR = 3.0


class Equation(NamedTuple):
    """Size and cost of one Newton equation, for the choice of its solver.

    `factor` is the number of operations of a Cholesky factor, `products` that of the conjugate gradients
    before. The products of several solves add up as long as they do not converge, which happens at a large C.
    """

    unknowns: int
    coupled: bool
    low_rank: bool
    factor: float
    products: float


# How Newton equations are solved; the first row that holds applies, to each equation separately.
ROWS = (
    Row(
        "cholesky",
        lambda equation: equation.unknowns <= FEW,
        cho_solve,
        "Few unknowns.",
        "benchmarks/results/sparse_letter.csv",
    ),
    Row(
        "cholesky",
        lambda equation: equation.low_rank and equation.unknowns <= FEW_OF_LOW_RANK,
        cho_solve,
        "A prior of low rank, where conjugate gradients take many products.",
    ),
    Row(
        "cholesky",
        lambda equation: (
            not equation.coupled
            and equation.unknowns <= MANY
            and FACTOR * equation.factor < equation.products
        ),
        cho_solve,
        "No prior, and the conjugate gradients before cost more than a factor.",
    ),
    Row(
        "cg",
        lambda equation: True,
        conjugate_gradients,
        "Many unknowns: conjugate gradients, preconditioned by the block of every column.",
        "benchmarks/results/sparse_letter.csv",
    ),
)


class Newton:
    """Newton's method on all coefficients of a fixed basis.

    Parameters
    ----------
    max_iter : int
        Most Newton steps for one basis.
    rows : sequence of Row, default=`ROWS`
        How to choose the solver of the Newton equation.
    """

    def __init__(self, max_iter: int, rows: Sequence[Row] = ROWS) -> None:
        self.max_iter, self.rows = max_iter, rows
        self.name = rows[0].name
        self.blocks = InverseBlocks()
        self._basis: Basis | None = None
        self._expected = 0.0

    def optimise(
        self, basis: Basis, slack: Callable[[], float], expired: Callable[[], bool], proven: bool = True
    ) -> bool:
        """Iterate until the excess is at most `slack`, by its bound or, unless `proven`, by an estimate.

        Returns False if `max_iter` or the time limit ended the iterations.
        """
        if basis is not self._basis:
            self.blocks, self._basis, self._expected = InverseBlocks(), basis, 0.0
        first = None
        for iteration in range(self.max_iter + 1):
            g = basis.gradient()
            size, enough = float(np.vdot(g, g)), 2 * slack()
            if not proven and self.blocks.inverse.shape[1] == len(g):
                size = max(float(np.vdot(g, self._precondition(basis.problem, g))), size / LOOSE)
            if size <= enough:
                return True
            if iteration == self.max_iter or expired():
                return False
            first = size if first is None else first
            # The accuracy that superlinear convergence needs, or that reaches the goal.
            accuracy = max(min(INEXACT, np.sqrt(size / first)), FINAL * np.sqrt(enough / size))
            before, V = basis.here.objective, self.direction(basis, g, min(accuracy, FINAL))
            basis.move(V)
            predicted, after = -0.5 * float(np.vdot(g, V)), basis.here.objective
            slight = iteration < QUICK and predicted <= SLIGHT * after
            if not proven and slight and before - after >= KEPT * predicted:
                return True
        return False

    def direction(self, basis: Basis, g: np.ndarray, accuracy: float) -> np.ndarray:
        """Solve H V = -g, directly or by conjugate gradients to a relative `accuracy`."""
        problem, curvature = basis.problem, basis.here.loss.curvature
        rows = curvature.rows()
        curvature, Psi, P = curvature.restrict(rows), basis.Psi[rows], problem.P
        d, entries = len(g), product_work(curvature, P, g.shape[1])
        low_rank = P is not None and len(P) < len(problem.directions)
        factor = g.size**3 / 3 + d**2 * entries
        equation = Equation(g.size, P is not None, low_rank, factor, self._expected)
        row = first_that_holds(self.rows, equation)
        self.name = row.name
        if row.build is cho_solve:
            return -solve_newton(hessian(Psi, curvature, P, g.shape), g)
        if accuracy >= SINGLE:
            Psi = Psi.astype(np.float32, copy=False)
            P = None if P is None else P.astype(np.float32)
        M = problem.directions
        self.blocks.update(Psi, curvature, np.einsum("mr,mr->m", M, M))
        product = partial(hessian_product, Psi, curvature, P)
        V, steps = conjugate_gradients(
            product, -g, partial(self._precondition, problem), accuracy=accuracy, max_products=PRODUCTS
        )
        self.blocks.record(steps, 4.0 * d * entries)
        cost = steps * (4.0 * d * entries + OVERHEAD)
        self._expected = cost if steps < PRODUCTS else self._expected + cost
        return V

    def _precondition(self, problem: BasisProblem, V: np.ndarray) -> np.ndarray:
        return preconditioned(problem, self.blocks.apply, V)


def solve_newton(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return the V (d x r) with H V = g; H orders coefficients by column."""
    return cho_solve(ridged_cholesky(H), g.T.ravel()).reshape(g.T.shape).T


def preconditioned(problem: BasisProblem, apply: Operator, V: np.ndarray) -> np.ndarray:
    """Apply inverse blocks to V; with a relative loss only to the differences between its columns."""
    M = problem.directions
    if problem.P is not None:
        return apply(V @ M.T) @ M
    if not problem.loss.relative:
        return apply(V)
    shared = V.mean(axis=1, keepdims=True)
    answer = apply(V - shared)
    return answer - answer.mean(axis=1, keepdims=True) + shared


class InverseBlocks:
    """Inverses of base_r I + Psi' diag(w_r) Psi for every column r, updated while d grows."""

    def __init__(self) -> None:
        self.inverse, self.base = np.empty((0, 0, 0)), np.empty(0)
        self.cost, self.spent, self.usual = 0.0, 0.0, 0

    def update(self, Psi: np.ndarray, curvature: Curvature, base: np.ndarray) -> None:
        """Extend the blocks to all columns of Psi by bordering, or recompute them if that is cheaper."""
        d, self.base = Psi.shape[1], base
        stale = len(self.inverse) != len(base) or self.spent >= self.cost
        if stale or self.inverse.shape[1] < d:
            weights = curvature.diagonal()
            if stale:
                self._recompute(Psi, weights)
            while self.inverse.shape[1] < d:
                self._border(Psi, curvature, weights)

    def _recompute(self, Psi: np.ndarray, weights: np.ndarray) -> None:
        k, d = weights.shape[1], Psi.shape[1]
        self.inverse = np.empty((k, d, d))
        for block, weight, base in zip(self.inverse, weights.T, self.base, strict=True):
            gram = own_block(Psi, weight)
            gram[np.diag_indices(d)] += base
            block[:] = cho_solve(ridged_cholesky(gram), np.eye(d))
        self.cost = FACTOR * d * d * (2.0 * np.count_nonzero(weights) + k * d)
        self.spent, self.usual = 0.0, 0

    def _border(self, Psi: np.ndarray, curvature: Curvature, weights: np.ndarray) -> None:
        d = self.inverse.shape[1]
        new = Psi[:, d].astype(np.float64)
        weighted = weights * new[:, None]
        h = transposed_product(Psi, curvature, weighted, d).T.astype(np.float64)
        u = self.apply(h.T).T
        # The inverse of [A h; h' own] is [A^-1 + u u'/s, -u/s; -u'/s, 1/s] with u = A^-1 h, s = own - h'u.
        own = self.base + new @ weighted
        s = np.maximum(own - np.einsum("rd,rd->r", h, u), self.base)
        # An inverse block is at most 1 / base. If this fails, the weights have changed too much since the
        # last update, and the new row gets no off-diagonal entries.
        diagonal = np.einsum("rdd->rd", self.inverse) + u**2 / s[:, None]
        stale = diagonal.max(axis=1, initial=0.0) > 2 / self.base
        u[stale], s[stale] = 0.0, own[stale]
        larger = np.empty((len(self.inverse), d + 1, d + 1))
        root = u / np.sqrt(s)[:, None]
        np.multiply(root[:, :, None], root[:, None, :], out=larger[:, :d, :d])
        larger[:, :d, :d] += self.inverse
        larger[:, :d, d] = larger[:, d, :d] = -u / s[:, None]
        larger[:, d, d] = 1 / s
        self.inverse = larger

    def apply(self, V: np.ndarray) -> np.ndarray:
        """Multiply every column of V by the inverse of its block."""
        return np.matmul(self.inverse, V.T[:, :, None])[:, :, 0].T

    def record(self, steps: int, flops: float) -> None:
        """Add the cost of products beyond the number that the first solution took."""
        if self.usual == 0:
            self.usual = steps
        self.spent += max(steps - self.usual, 0) * flops


def own_block(Psi: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return Psi' diag(weight) Psi in float64, from the rows with a weight."""
    rows = np.flatnonzero(weight)
    scaled = Psi[rows] * np.sqrt(weight[rows], dtype=Psi.dtype)[:, None]
    return (scaled.T @ scaled).astype(np.float64, copy=False)


class Sweeps:
    """Algorithm 3: class-by-class Newton steps for a fixed basis; at most `max_iter` sweeps."""

    name = "sweeps"

    def __init__(self, max_iter: int) -> None:
        self.max_iter = max_iter

    def optimise(
        self, basis: Basis, slack: Callable[[], float], expired: Callable[[], bool], proven: bool = True
    ) -> bool:
        """Sweep until the bound on the excess is at most `slack`; return False if a limit ends the sweeps."""
        for sweep in range(self.max_iter + 1):
            g = basis.gradient()
            if 0.5 * float(np.vdot(g, g)) <= slack():
                return True
            if sweep == self.max_iter or expired():
                return False
            for u in basis.problem.directions:
                self._step(basis, u)
        return False

    def _step(self, basis: Basis, u: np.ndarray) -> None:
        """Take a Newton step (3.14) in W along delta u' (delta in R^d), with an exact search on it."""
        v = basis.problem.scores(u)
        slope = basis.gradient() @ u
        H = own_block(basis.Psi, basis.here.loss.curvature.along(v))
        H[np.diag_indices_from(H)] += u @ u
        delta = -cho_solve(ridged_cholesky(H), slope)
        basis.move(np.outer(delta, u), longest=1.0)


class Solution(NamedTuple):
    """The basis, its coefficients (d x k), those of every stage if kept, and the loss at the solution.

    `basis` are the training samples of the basis, `vectors` the basis vectors, `kernel` their kernel.
    """

    basis: np.ndarray
    vectors: Any
    kernel: Kernel
    coefficients: np.ndarray
    path: list[np.ndarray] | None
    loss: Expansion


class Greedy:
    """Algorithm 1: grow a basis, one function an epoch.

    Parameters
    ----------
    problem : BasisProblem
    pool : int array
        Samples that may become basis functions, in a canonical order.
    rng : numpy RandomState
        Draws the candidates.
    max_basis : int
    n_candidates : int or None
        None scores the whole pool.
    rel_tol : float
    patience : int
    tol : float
        Relative excess at which the final coefficients count as optimal.
    optimiser : Newton or Sweeps
        Optimises the coefficients of every basis.
    selection : {"block", "sequential"}
        How the step of a candidate is computed; "sequential" also draws the first basis function at random,
        as the paper does.
    full_steps : bool, default=False
        Score a candidate by the objective after one Newton step in all coefficients, not only in its own.
    keep_path : bool, default=True
    basis : GrowingBasis, default=None
        Where the functions are stored, for example on a GPU; None stores them in NumPy arrays.
    """

    def __init__(
        self,
        problem: BasisProblem,
        pool: np.ndarray,
        rng: Any,
        *,
        max_basis: int,
        n_candidates: int | None,
        rel_tol: float,
        patience: int,
        tol: float,
        optimiser: Newton | Sweeps,
        selection: str = "block",
        full_steps: bool = False,
        keep_path: bool = True,
        basis: GrowingBasis | None = None,
    ) -> None:
        self.pool, self.rng = pool, rng
        self.max_basis, self.n_candidates = max_basis, n_candidates
        self.rel_tol, self.patience, self.tol = rel_tol, patience, tol
        self.optimiser, self.selection, self.full_steps = optimiser, selection, full_steps
        self.keep_path = keep_path
        self.basis = GrowingBasis(problem) if basis is None else basis
        self._path: list[np.ndarray] = []
        self._idle = 0

    @property
    def name(self) -> str:
        """Name of the last linear solver."""
        return self.optimiser.name

    def epoch(self, clock: Clock) -> Progress:
        """Run one round of Algorithm 4: add a function, then optimise the coefficients."""
        basis, before = self.basis, self.basis.here.objective
        grown = self._grow()
        if grown:
            self.optimiser.optimise(basis, lambda: self._slack(before), clock.expired, proven=False)
            self._idle = self._idle + 1 if before - basis.here.objective < self.rel_tol * before else 0
        full = len(basis.indices) >= self.max_basis
        done = not grown or full or self._idle >= self.patience
        if done:
            basis.refine()
            self._finish(clock)
        if self.keep_path and basis.indices:
            self._path[len(basis.indices) - 1 :] = [basis.here.W]
        return Progress(self._bound(), basis.n_active(), done=done, stage=len(basis.indices))

    def _finish(self, clock: Clock) -> None:
        """Optimise the last coefficients to `tol`; a smoothed loss is replaced by ever less smoothed ones."""
        basis, goal = self.basis, max(0.5 * self.tol, PRECISION)

        def slack() -> float:
            return max(goal * basis.here.objective, 0.1 * basis.here.loss.excess)

        self.optimiser.optimise(basis, slack, clock.expired)
        while (problem := basis.problem.less_smoothed()) and not clock.expired():
            basis.change_loss(problem)
            self.optimiser.optimise(basis, slack, clock.expired)

    @property
    def problem(self) -> BasisProblem:
        """The problem of the basis, with its present loss."""
        return self.basis.problem

    def certify(self) -> Certificate:
        """Return objective and bound of the present coefficients, from kernel values in float64."""
        return self.basis.certificate()

    def solution(self) -> Solution:
        """Return basis and coefficients of the last stage and, if kept, of all stages."""
        basis = self.basis
        earlier = self._path[: max(len(basis.indices) - 1, 0)]
        coefficients = basis.coefficients(basis.here.W)
        path = [*map(basis.coefficients, earlier), coefficients] if basis.indices else []
        kept = path if self.keep_path else None
        kernel = basis.problem.kernel
        return Solution(self._indices(), basis.vectors, kernel, coefficients, kept, basis.here.loss)

    def _indices(self) -> np.ndarray:
        return np.array(self.basis.indices, dtype=np.intp)

    def _slack(self, before: float) -> float:
        """Return the allowed excess of the coefficients of a stage."""
        return max(self.tol * before, STAGE_SLACK * (before - self.basis.here.objective))

    def _bound(self) -> Certificate:
        """Return objective and lower bound from running values."""
        g, here = self.basis.gradient(), self.basis.here
        return Certificate(here.objective + here.loss.excess, here.objective - 0.5 * float(np.vdot(g, g)))

    def _grow(self) -> bool:
        """Run Algorithm 2: add the best admissible candidate; return False if none lowers the objective."""
        for _ in range(REDRAWS + 1):
            left = self.basis.admissible(self.pool)
            if not left.size:
                return False
            drawn = self._draw(left)
            if self._join_best(drawn):
                return True
            if drawn.size == left.size:
                return False
        return False

    def _join_best(self, drawn: np.ndarray) -> bool:
        """Score the drawn candidates by (3.13), in chunks; add the best one if it lowers the objective."""
        lowest, winner = self.basis.here.objective, None
        for start in range(0, drawn.size, AT_ONCE):
            scored = self.basis.score(drawn[start : start + AT_ONCE], self.selection)
            objectives = after_newton(self.basis, scored) if self.full_steps else scored.objectives
            best = int(np.argmin(objectives))
            if objectives[best] < lowest:
                lowest = objectives[best]
                winner = int(scored.indices[best]), scored.rows[best], scored.steps[best]
        if winner is None:
            return False
        self.basis.join(*winner)
        return True

    def _draw(self, left: np.ndarray) -> np.ndarray:
        if self.selection == "sequential" and not self.basis.indices:
            return left[self.rng.choice(left.size, 1)]
        if self.n_candidates is None or self.n_candidates >= left.size:
            return left
        return left[self.rng.choice(left.size, self.n_candidates, replace=False)]


def after_newton(basis: GrowingBasis, scored: Scored) -> np.ndarray:
    """Return the objective with each candidate after one Newton step in all coefficients.

    The import vector machine was published this way; it costs a Newton step per candidate.
    """
    problem, here = basis.problem, basis.here
    objectives = np.empty(len(scored.indices))
    for q, (j, row) in enumerate(zip(scored.indices.tolist(), scored.rows, strict=True)):
        Psi = np.column_stack([basis.Psi, basis.orthonormal(j, row)[2]]).astype(np.float64)
        W = np.vstack([here.W, np.zeros(problem.rank)])
        g = W + Psi.T @ problem.back(here.loss.gradient)
        W = W - solve_newton(hessian(Psi, here.loss.curvature, problem.P, W.shape), g)
        objectives[q] = problem.at(W, Psi @ W).objective
    return objectives
