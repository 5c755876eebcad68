"""Machines with few basis functions shared by all classes or labels: SMSVM, SM3L, SM3L-P.

Problem (fixed basis J of d training samples, K the kernel matrix, lower-case k columns):

    min over al (d x r):  e = 1/2 tr(al' K_JJ al) + L(F),     F = K_J al P

with L one of the losses in `basis_losses`, which carry the weights C * sample_weight. P
(r x k) factors a label prior, R = P'P, so that only R and never its inverse is needed and a
singular R is as good as any; without a prior P is the identity. The papers write
lambda/2 in front of the regulariser instead: lambda = 1/(2C) for SMSVM, whose loss has a
factor 1/2, and lambda = 1/C for SM3L, SpSVM and the import vector machine; their
objective is lambda times this one.

Coordinates. With K_JJ = L L' the rows of Psi = K_J L^-T are orthonormal functions spanning
the same space, so with W = L' al

    e = 1/2 |W|^2 + L(Psi W P),   gradient  g = W + Psi' G P',   e - min e <= |g|^2 / 2,

the last by strong convexity. Psi grows by one column per basis function: that is a Cholesky
factorisation of K with the pivots chosen by the greedy search, and what is left of the
diagonal, K_jj - |Psi_j|^2, is the Schur complement by which dependent candidates are refused.

Candidates. Sample j joins with coefficients beta (r); because j is a training sample, its
inner product with the current functions is Z_j, Z = Psi W:

    e(beta) = e + [Z_j + K_j' G P'] beta + ...,   Hessian  H_j = K_jj I + P (sum_i K_ij^2 D_i) P'

Steps: "block" solves H_j beta = -B_j; "sequential" makes one Gauss-Seidel sweep over the
columns, the paper's k one-dimensional problems; "jacobi" does them all at once. The
objective after the step is evaluated exactly.

Full model. From the multipliers a = 2 c Xi of any scores, scaled by s, weak duality gives
D(s) = s sum(a) - s^2 [L(F) + 1/2 tr(G' K G R)], a lower bound on the objective with all
samples as basis; it is used at its best s. `MultiLogit` has a bound of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Certificate
from maxmargin.sparse.losses import Expansion
from maxmargin.sparse.newton import hessian

# Smallest Schur complement, relative to k(x, x), of a basis function that may join.
DEPENDENT = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-5}
SELECTIONS = ("block", "sequential", "jacobi")
CHUNK = 1024


@dataclass(frozen=True)
class Scored:
    """Candidates with their kernel rows, steps and the objective each would lead to."""

    indices: np.ndarray
    rows: np.ndarray
    steps: np.ndarray
    objectives: np.ndarray


class BasisProblem:
    """Objective, derivatives and candidates for a basis that grows.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix of shape (l, n_features)
        Training rows; the square kernel matrix with a precomputed kernel.
    loss : SquaredMargins, SquaredHinges or MultiLogit
    factor : array of shape (r, k), default=None
        P with P'P = R; None for the identity.
    selection : {"block", "sequential", "jacobi"}
        How the step of a candidate is found.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Any,
        loss: Any,
        factor: np.ndarray | None = None,
        selection: str = "block",
    ) -> None:
        self.kernel, self.X, self.loss, self.P = kernel, X, loss, factor
        self.selection = selection
        self.n = X.shape[0]
        self.rank = loss.n_columns if factor is None else len(factor)
        # Directions of the columns in the space of al: one row per class or label.
        self.directions = np.eye(self.rank) if factor is None else np.linalg.pinv(factor)
        self.diagonal = kernel.diagonal(X)
        self.residual = self.diagonal.copy()
        self.basis: list[int] = []
        self._store = np.empty((self.n, 0), X.dtype)
        self.W = np.empty((0, self.rank))
        self.Z = np.zeros((self.n, self.rank))
        self.expand()

    @property
    def Psi(self) -> np.ndarray:
        """Orthonormal functions at the training samples, l x d."""
        return self._store[:, : len(self.basis)]

    @property
    def objective(self) -> float:
        return 0.5 * float(np.vdot(self.W, self.W)) + self.expansion.value

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """Scores of all columns from those of the r factor columns."""
        return Z if self.P is None else Z @ self.P

    def back(self, G: np.ndarray) -> np.ndarray:
        """The transpose of `scores`: a gradient in F becomes one in Z."""
        return G if self.P is None else G @ self.P.T

    def expand(self) -> Expansion:
        """Loss, gradient and curvature at the current scores; kept in `expansion`."""
        self.F = self.scores(self.Z)
        self.expansion: Expansion = self.loss.at(self.F)
        return self.expansion

    def gradient(self) -> np.ndarray:
        """Gradient in W (d x r)."""
        return self.W + self.pull(self.back(self.expansion.gradient))

    def push(self, V: np.ndarray) -> np.ndarray:
        """Psi V in float64."""
        return (self.Psi @ V.astype(self.Psi.dtype, copy=False)).astype(np.float64, copy=False)

    def pull(self, U: np.ndarray) -> np.ndarray:
        """Psi' U in float64."""
        return (self.Psi.T @ U.astype(self.Psi.dtype, copy=False)).astype(np.float64, copy=False)

    def move(self, V: np.ndarray, longest: float = np.inf) -> float:
        """Go along V (d x r) to the minimum of the objective; returns the step length taken."""
        dZ = self.push(V)
        q1, q2 = float(np.vdot(self.W, V)), float(np.vdot(V, V))
        t = self.loss.step(self.F, self.scores(dZ), q1, q2, longest)
        self.W += t * V
        self.Z += t * dZ
        self.expand()
        return t

    def kernel_rows(self, indices: np.ndarray) -> np.ndarray:
        """Rows of K, len(indices) x l, with an exact diagonal."""
        others = np.arange(self.n) if self.kernel.name == "precomputed" else self.X
        K = self.kernel.block(self.X[indices], others)
        K[np.arange(len(indices)), indices] = self.diagonal[indices]
        return K

    def admissible(self, indices: np.ndarray) -> np.ndarray:
        """Those samples whose kernel function does not depend on the basis."""
        floor = DEPENDENT[np.dtype(self.X.dtype)] * self.diagonal[indices]
        return indices[self.residual[indices] > floor]

    def score(self, indices: np.ndarray) -> Scored:
        """Steps of candidates and the exact objective after each."""
        K = self.kernel_rows(indices)
        Z, own = self.Z[indices], self.diagonal[indices]
        B = Z + self.back(K @ self.expansion.gradient)
        H = self.expansion.curvature.mixtures(np.square(K, dtype=np.float64))
        if self.P is not None:
            H = self.P @ H @ self.P.T
        H[:, np.arange(self.rank), np.arange(self.rank)] += own[:, None]
        steps = self._steps(B, H)
        change = np.einsum("qr,qr->q", steps, Z) + 0.5 * own * np.einsum("qr,qr->q", steps, steps)
        losses = self.loss.after(self.F, K, self.scores(steps))
        regulariser = 0.5 * float(np.vdot(self.W, self.W))
        return Scored(indices, K, steps, regulariser + change + losses)

    def _steps(self, B: np.ndarray, H: np.ndarray) -> np.ndarray:
        if self.selection == "block":
            return np.linalg.solve(H, -B[:, :, None])[:, :, 0]
        # In the space of the columns themselves, which the rows of M lead into.
        M = self.directions
        B, H = B @ M.T, M @ H @ M.T
        diagonal = np.diagonal(H, axis1=1, axis2=2)
        if self.selection == "jacobi":
            return (-B / diagonal) @ M
        beta = np.zeros_like(B)
        for r in range(B.shape[1]):
            pulled = np.einsum("qs,qs->q", H[:, r], beta) + B[:, r]
            beta[:, r] = -pulled / diagonal[:, r]
        return beta @ M

    def grow(self, j: int, row: np.ndarray, step: np.ndarray) -> None:
        """Let sample j join the basis with coefficients `step`; `row` is row j of K."""
        d = len(self.basis)
        self._reserve(d + 1)
        before, pivot, column = self._orthonormal(j, row)
        self._store[:, d] = column
        self.residual -= np.square(column, dtype=np.float64)
        self.residual[j] = 0.0
        W = np.vstack([self.W + np.outer(before, step), pivot * step])
        # Basis and coefficients change together, so that an interrupted fit stays consistent.
        self.basis, self.W = [*self.basis, j], W
        self.Z += np.outer(row, step)
        self.expand()

    def _orthonormal(self, j: int, row: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """Row j of the Cholesky factor (old part, pivot) and the function that j adds."""
        before = self.Psi[j].astype(np.float64)
        pivot = float(np.sqrt(self.diagonal[j] - before @ before))
        column = (row - self.Psi @ before.astype(self.Psi.dtype)) / pivot
        column[self.basis] = 0.0
        column[j] = pivot
        return before, pivot, column

    def _reserve(self, columns: int) -> None:
        kept = self._store.shape[1]
        if columns > kept:
            larger = np.empty((self.n, min(self.n, kept + max(16, kept // 4))), self._store.dtype)
            larger[:, :kept] = self._store
            self._store = larger

    def refine(self) -> None:
        """Go on in float64: the basis functions are recomputed from kernel values in float64.

        Rows kept in float32 are good enough to choose a basis, and leave the final
        coefficients as far from the optimum as their rounding is from the kernel.
        """
        if self._store.dtype == np.float64 or not self.basis:
            return
        J = np.array(self.basis, dtype=np.intp)
        L = np.linalg.cholesky(self._gram(J))
        self._store = np.vstack([solve_triangular(L, K.T, lower=True).T for _, K in self._strips(J)])
        self._store[J] = L
        self.Z = self.push(self.W)
        self.expand()

    def _gram(self, J: np.ndarray) -> np.ndarray:
        """K_JJ in float64, symmetric, with an exact diagonal."""
        K = self._values(J, J)
        K = (K + K.T) / 2
        K[np.diag_indices_from(K)] = self.diagonal[J]
        return K

    def triangle(self) -> np.ndarray:
        """L with L L' = K_JJ (d x d)."""
        return np.tril(self.Psi[self.basis].astype(np.float64))

    def coefficients(self, W: np.ndarray | None = None) -> np.ndarray:
        """Coefficients of the kernel functions in the scores, d x k, of this or an earlier W."""
        W = self.W if W is None else W
        return self.scores(self._factor_coefficients(W))

    def _factor_coefficients(self, W: np.ndarray) -> np.ndarray:
        return solve_triangular(self.triangle()[: len(W), : len(W)], W, trans="T", lower=True)

    def certify(self) -> Certificate:
        """Objective and its lower bound for this basis, from the coefficients and K in float64."""
        al = self._factor_coefficients(self.W)
        J = np.array(self.basis, dtype=np.intp)
        F = self.scores(np.vstack([K @ al for _, K in self._strips(J)]))
        expansion = self.loss.at(F)
        pulled = self.back(expansion.gradient)
        K_JJ = self._gram(J)
        g = K_JJ @ al + sum(K.T @ pulled[rows] for rows, K in self._strips(J))
        primal = 0.5 * float(np.vdot(al, K_JJ @ al)) + expansion.value
        whitened = solve_triangular(self.triangle(), g, lower=True)
        return Certificate(primal, primal - 0.5 * float(np.vdot(whitened, whitened)))

    def full_model_bound(self) -> float:
        """A lower bound on the objective of the model with all samples as basis."""
        G = self.expansion.gradient
        rows = np.flatnonzero(G.any(axis=1))
        A = self.back(G[rows])
        quadratic = 0.0
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            quadratic += float(np.vdot(A[start : start + CHUNK], self._values(part, rows) @ A))
        return self.loss.full_bound(self.expansion, quadratic)

    def _strips(self, J: np.ndarray) -> Any:
        for start in range(0, self.n, CHUNK):
            rows = np.arange(start, min(start + CHUNK, self.n))
            yield rows, self._values(rows, J)

    def _values(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        others = columns if self.kernel.name == "precomputed" else self.X[columns]
        return self.kernel.block(self.X[rows], others, np.float64)


class FullStepProblem(BasisProblem):
    """Candidates are judged by the objective after one Newton step in all coefficients.

    This is how the import vector machine was published; it costs a Newton step per candidate.
    """

    def score(self, indices: np.ndarray) -> Scored:
        scored = super().score(indices)
        after = [self._after_newton(int(j), row) for j, row in zip(indices, scored.rows, strict=True)]
        return replace(scored, objectives=np.array(after))

    def _after_newton(self, j: int, row: np.ndarray) -> float:
        Psi = np.column_stack([self.Psi, self._orthonormal(j, row)[2]]).astype(np.float64)
        W = np.vstack([self.W, np.zeros(self.rank)])
        g = W + Psi.T @ self.back(self.expansion.gradient)
        H = hessian(Psi, self.expansion.curvature, self.P, W.shape)
        W = W - cho_solve(cho_factor(H, lower=True), g.T.ravel()).reshape(g.T.shape).T
        return 0.5 * float(np.vdot(W, W)) + self.loss.at(self.scores(Psi @ W)).value
