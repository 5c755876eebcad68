"""Machines with few basis functions shared by all classes or labels: SMSVM, SM3L, SM3L-P.

Problem (fixed basis J of d training samples, K the kernel matrix, lower-case k columns):

    min over al (d x r):  e = 1/2 tr(al' K_JJ al) + L(F),     F = K_J al P

L is one of the losses in `loss_loops`, with the weights C * sample_weight. P (r x k) factors a label prior, R
= P'P, so that only R and never its inverse is needed, and R may be singular; without a prior P is the
identity. The paper writes lambda/2 before the regulariser instead: lambda = 1/(2C) for SMSVM (3.10), whose
loss has a factor 1/2, and lambda = 1/C for SM3L (4.22), SpSVM and the import vector machine; its objective is
lambda times this one.

Coordinates. With K_JJ = L L' the columns of Psi = K_J L^-T are orthonormal functions that span the same
space, so with W = L' al

    e = 1/2 |W|^2 + L(Psi W P),   gradient  g = W + Psi' G P',   e - min e <= |g|^2 / 2,

the last by strong convexity; generalised Hessian H V = V + Psi' [D (Psi V P)] P'.

Candidates. Sample j joins with coefficients beta (r). Because j is a training sample, its inner product with
the present functions is Z_j, Z = Psi W:

    e(beta) = e + [Z_j + K_j' G P'] beta + ...,   Hessian  H_j = K_jj I + P (sum_i K_ij^2 D_i) P'

Steps: "block" solves H_j beta = -B_j; "sequential" makes one Gauss-Seidel sweep over the columns, the k
one-dimensional problems (3.12) of the paper. The objective after the step is exact.

Full model. For multipliers a = 2 c Xi of any scores, scaled by s, weak duality gives D(s) = s sum(a) - s^2
[L(F) + 1/2 tr(G' K G R)], a lower bound on the objective with all samples as basis; the best s is used.
`MultiLogit` has a similar bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, solve_triangular

from maxmargin.core.kernels import Clouds, Kernel, squared_norms
from maxmargin.core.linalg import ridged_cholesky
from maxmargin.core.loop import Certificate
from maxmargin.sparse.largest_margin import SquaredLargestMargin
from maxmargin.sparse.loss_loops import FEW, Curvature, Expansion, Loss, StarCurvature, star_transposed

SELECTIONS = ("block", "sequential")
# Samples per chunk of a pass over all samples; bounds the memory.
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Position:
    """Coefficients W (d x r), functions Z = Psi W, scores F = Z P and the loss there."""

    W: np.ndarray
    Z: np.ndarray
    F: np.ndarray
    loss: Expansion

    @property
    def objective(self) -> float:
        """1/2 |W|^2 + L(F): the objective (3.10), and (4.22) with labels, over lambda."""
        return 0.5 * float(np.vdot(self.W, self.W)) + self.loss.value


@dataclass(frozen=True, eq=False)
class Scored:
    """Candidates with their kernel rows, steps, and the objective after each step."""

    indices: np.ndarray
    rows: Any
    steps: np.ndarray
    objectives: np.ndarray


@dataclass(frozen=True, eq=False)
class BasisProblem:
    """Objective, derivatives, candidates and bounds, for any basis.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix of shape (l, n_features)
        Training rows; the square kernel matrix with a precomputed kernel.
    loss : Loss
    P : array of shape (r, k), default=None
        P with P'P = R; None for the identity.
    """

    kernel: Kernel
    X: Any
    loss: Loss
    P: np.ndarray | None = None

    @property
    def n(self) -> int:
        return self.X.shape[0]

    @property
    def rank(self) -> int:
        """r, the number of columns of coefficients."""
        return self.loss.n_columns if self.P is None else len(self.P)

    @cached_property
    def directions(self) -> np.ndarray:
        """Directions of the columns in the space of al: one row per class or label."""
        return np.eye(self.rank) if self.P is None else np.linalg.pinv(self.P)

    @cached_property
    def diagonal(self) -> np.ndarray:
        """k(x, x) of every sample."""
        return self.kernel.diagonal(self.X)

    @cached_property
    def squares(self) -> np.ndarray:
        """|x|^2 of every sample."""
        return squared_norms(self.X)

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """Return the scores of all columns from those of the r factor columns, beta = al P of (4.19)."""
        return Z if self.P is None else Z @ self.P

    def back(self, G: np.ndarray) -> np.ndarray:
        """Return the transpose of `scores`: map a gradient in F to one in Z."""
        return G if self.P is None else G @ self.P.T

    def less_smoothed(self) -> BasisProblem | None:
        """Return the problem with a less smoothed loss, or None if there is none."""
        loss = self.loss.less_smoothed() if isinstance(self.loss, SquaredLargestMargin) else None
        return None if loss is None else replace(self, loss=loss)

    def at(self, W: np.ndarray, Z: np.ndarray) -> Position:
        """Return the position of coefficients W with values Z = Psi W."""
        F = self.scores(Z)
        return Position(W, Z, F, self.loss.at(F))

    def gradient(self, Psi: np.ndarray, here: Position) -> np.ndarray:
        """Return the gradient in W (d x r); the functions are the first d columns of Psi."""
        G, d = here.loss.gradient, len(here.W)
        if self.P is None:
            return here.W + transposed_product(Psi, here.loss.curvature, G, d)
        return here.W + Psi[:, :d].T @ self.back(G).astype(Psi.dtype, copy=False)

    def step(self, here: Position, V: np.ndarray, dZ: np.ndarray, longest: float = np.inf) -> float:
        """Return the length in [0, `longest`] that minimises the objective along V; dZ = Psi V."""
        q1, q2 = float(np.vdot(here.W, V)), float(np.vdot(V, V))
        return self.loss.step(here.F, self.scores(dZ), q1, q2, longest)

    def kernel_rows(self, indices: np.ndarray) -> np.ndarray:
        """Return rows of K, len(indices) x l, with an exact diagonal."""
        others = np.arange(self.n) if self.kernel.name == "precomputed" else self.X
        K = np.ascontiguousarray(self.kernel.block(self.X[indices], others))
        K[np.arange(len(indices)), indices] = self.diagonal[indices]
        return K

    def score(
        self,
        here: Position,
        indices: np.ndarray,
        selection: str = "block",
        excess: np.ndarray | float = 0.0,
    ) -> Scored:
        """Return the steps of candidates, and e of (3.13): the exact objective after each step.

        `excess` (candidates x r) is the part of the slope of a candidate that belongs to the present
        functions, whose coefficients may not be optimal yet. It is removed from Z, so that a candidate cannot
        gain by it.
        """
        K = self.kernel_rows(indices)
        Z, own = here.Z[indices] - excess, self.diagonal[indices]
        # Only samples with curvature have a gradient.
        rows = here.loss.curvature.rows()
        active = K[:, rows].astype(np.float64, copy=False)
        H = here.loss.curvature.restrict(rows).mixtures(active**2)
        H = H if self.P is None else self.P @ H @ self.P.T
        H[:, np.arange(self.rank), np.arange(self.rank)] += own[:, None]
        B = Z + self.back(active @ here.loss.gradient[rows])
        steps = candidate_steps(B, H, self.directions, selection)
        # The regulariser after the step is 1/2 |W|^2 + beta . Z_j + 1/2 K_jj |beta|^2.
        change = np.einsum("qr,qr->q", steps, Z) + 0.5 * own * np.einsum("qr,qr->q", steps, steps)
        losses = self.loss.after(here.F, K, self.scores(steps))
        return Scored(indices, K, steps, 0.5 * float(np.vdot(here.W, here.W)) + change + losses)

    def certificate(self, vectors: Any, L: np.ndarray, W: np.ndarray) -> Certificate:
        """Return objective and lower bound for a basis, from kernel values in float64; L L' = K_JJ."""
        al = solve_triangular(L, W, trans="T", lower=True)
        F = self.scores(np.vstack([K @ al for _, K in self.kernel_chunks(vectors)]))
        expansion = self.loss.at(F)
        G = self.back(expansion.gradient)
        K_JJ = self.gram(vectors)
        g = K_JJ @ al + sum(K.T @ G[rows] for rows, K in self.kernel_chunks(vectors))
        primal = 0.5 * float(np.vdot(al, K_JJ @ al)) + expansion.value
        whitened = solve_triangular(L, g, lower=True)
        return Certificate(primal + expansion.excess, primal - 0.5 * float(np.vdot(whitened, whitened)))

    def full_model_bound(self, at: Expansion) -> float:
        """Return a lower bound on the objective of the model with all samples as basis, from any scores."""
        rows = np.flatnonzero(at.gradient.any(axis=1))
        A = self.back(at.gradient[rows])
        quadratic = 0.0
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            K = self.kernel.block(self.X[part], self.vectors(rows), np.float64)
            quadratic += float(np.vdot(A[start : start + CHUNK], K @ A))
        return self.loss.full_bound(at, quadratic)

    def vectors(self, J: np.ndarray) -> Any:
        """Return training samples as a basis: rows of X, or their indices with a precomputed kernel."""
        return J if self.kernel.name == "precomputed" else self.X[J]

    def gram(self, vectors: Any) -> np.ndarray:
        """Return K_JJ in float64, symmetric, with an exact diagonal."""
        if isinstance(vectors, Clouds):
            return self.kernel.inner_products(vectors)
        precomputed = self.kernel.name == "precomputed"
        K = self.kernel.block(self.X[vectors] if precomputed else vectors, vectors, np.float64)
        K = (K + K.T) / 2
        K[np.diag_indices_from(K)] = self.diagonal[vectors] if precomputed else self.kernel.diagonal(vectors)
        return K

    def kernel_chunks(self, vectors: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield K_J in float64, by chunks of samples."""
        for start in range(0, self.n, CHUNK):
            rows = np.arange(start, min(start + CHUNK, self.n))
            yield rows, self.kernel.block(self.X[rows], vectors, np.float64)


def basis_product(Psi: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return Psi V in float64."""
    return (Psi @ V.astype(Psi.dtype, copy=False)).astype(np.float64, copy=False)


def transposed_product(Psi: np.ndarray, curvature: Curvature, U: np.ndarray, d: int) -> np.ndarray:
    """Return the first d columns of Psi, transposed, times U (l x k); U is zero without curvature."""
    if isinstance(curvature, StarCurvature) and curvature.few:
        answer = np.zeros((curvature.k, d), Psi.dtype)
        star_transposed(Psi, curvature.stars, U, answer)
        return answer.T
    return Psi[:, :d].T @ U.astype(Psi.dtype, copy=False)


def solve_each(H: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Solve H_j x_j = B_j; if one of them is singular to rounding, by `ridged_cholesky`."""
    try:
        return np.linalg.solve(H, B[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return np.stack([cho_solve(ridged_cholesky(h), b) for h, b in zip(H, B, strict=True)])


def candidate_steps(B: np.ndarray, H: np.ndarray, directions: np.ndarray, selection: str) -> np.ndarray:
    """Return the steps of candidates with gradients B and Hessians H: by (3.12), or all columns jointly."""
    if selection == "block":
        return -solve_each(H, B)
    # M maps the coefficients to the space of the columns themselves.
    M = directions
    B, H = B @ M.T, M @ H @ M.T
    diagonal = np.diagonal(H, axis1=1, axis2=2)
    beta = np.zeros_like(B)
    for r in range(B.shape[1]):
        slope = np.einsum("qs,qs->q", H[:, r], beta) + B[:, r]
        beta[:, r] = -slope / diagonal[:, r]
    return beta @ M


def hessian(
    Psi: np.ndarray, curvature: Curvature, P: np.ndarray | None, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the Hessian as an (r d) x (r d) matrix, with the coefficients of a column contiguous."""
    d, r = shape
    if P is None:
        H = np.zeros((r, d, r, d))
        for a, b, block in curvature.blocks(Psi):
            H[a, :, b, :] = block
            H[b, :, a, :] = block.T
    else:
        mixed, blocks = [], []
        for a, b, block in curvature.blocks(Psi):
            pair = np.outer(P[:, a], P[:, b])
            mixed.append((pair if a == b else pair + pair.T).ravel())
            blocks.append(block.ravel())
        sums = np.array(mixed).T @ np.array(blocks, dtype=np.float64)
        H = sums.reshape(r, r, d, d).transpose(0, 2, 1, 3)
    flat = H.reshape(r * d, r * d)
    flat[np.diag_indices_from(flat)] += 1.0
    return flat


def hessian_product(Psi: np.ndarray, curvature: Curvature, P: np.ndarray | None, V: np.ndarray) -> np.ndarray:
    """Return the Hessian times V (d x r), without forming it."""
    narrow = V.astype(Psi.dtype, copy=False)
    if P is None and isinstance(curvature, StarCurvature):
        return V + curvature.through(Psi, narrow)
    U = Psi @ narrow
    U = curvature.product(U) if P is None else curvature.product(U @ P) @ P.T
    return V + Psi.T @ U.astype(Psi.dtype, copy=False)


def product_work(curvature: Curvature, P: np.ndarray | None, n_columns: int) -> int:
    """Return the number of matrix entries that a Hessian product takes per basis function."""
    if P is None and isinstance(curvature, StarCurvature) and curvature.few:
        return FEW * (len(curvature.stars.leaves) + len(curvature.stars.y))
    return len(curvature.rows()) * n_columns


def candidate_pool(X: Any, weights: np.ndarray, by_content: bool = True) -> np.ndarray:
    """Return one index for every distinct row of X with a positive weight, ordered by content alone.

    A random draw from this pool does not depend on the order of the samples, on whether equal samples are
    repeated or weighted, nor on the type of the rows (dense, CSR, float32, float64). Without `by_content` (a
    precomputed kernel, whose rows are not samples), all rows of positive weight are returned in their order.
    """
    index = np.flatnonzero(weights > 0)
    if not by_content:
        return index
    _, first = np.unique(row_keys(X)[index], return_index=True)
    return index[first]


def row_keys(X: Any) -> np.ndarray:
    """Return a 64-bit hash of every row, from its nonzero entries rounded to float32."""
    n, d = X.shape
    factors = _mix(np.arange(1, d + 1, dtype=np.uint64)) | np.uint64(1)
    keys = np.zeros(n, np.uint64)
    for start in range(0, n, CHUNK):
        part = X[start : start + CHUNK]
        if sp.issparse(part):
            if not part.has_canonical_format:
                part = part.copy()
                part.sum_duplicates()
            filled = np.flatnonzero(np.diff(part.indptr))
            if filled.size:
                hashed = _hashes(part.data) * factors[part.indices]
                keys[start + filled] = np.add.reduceat(hashed, part.indptr[filled])
        else:
            keys[start : start + CHUNK] = (_hashes(part) * factors).sum(axis=1, dtype=np.uint64)
    return keys


def _hashes(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32) + np.float32(0)
    return _mix(np.ascontiguousarray(rounded).view(np.uint32).astype(np.uint64))


def _mix(bits: np.ndarray) -> np.ndarray:
    """Scramble 64-bit integers; zero stays zero, so that absent entries do not matter."""
    bits = bits * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(32)
    return bits
