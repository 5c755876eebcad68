"""Machines with few basis functions shared by all classes or labels: SMSVM, SM3L, SM3L-P.

Problem (fixed basis J of d training samples, K the kernel matrix, lower-case k columns):

    min over al (d x r):  e = 1/2 tr(al' K_JJ al) + L(F),     F = K_J al P

with L one of the losses in `loss_loops`, which carry the weights C * sample_weight. P
(r x k) factors a label prior, R = P'P, so that only R and never its inverse is needed and a
singular R is as good as any; without a prior P is the identity. The paper writes
lambda/2 in front of the regulariser instead: lambda = 1/(2C) for SMSVM (3.10), whose loss has a
factor 1/2, and lambda = 1/C for SM3L (4.22), SpSVM and the import vector machine; its
objective is lambda times this one.

Coordinates. With K_JJ = L L' the rows of Psi = K_J L^-T are orthonormal functions spanning
the same space, so with W = L' al

    e = 1/2 |W|^2 + L(Psi W P),   gradient  g = W + Psi' G P',   e - min e <= |g|^2 / 2,

the last by strong convexity; generalised Hessian H V = V + Psi' [D (Psi V P)] P'.

Candidates. Sample j joins with coefficients beta (r); because j is a training sample, its
inner product with the current functions is Z_j, Z = Psi W:

    e(beta) = e + [Z_j + K_j' G P'] beta + ...,   Hessian  H_j = K_jj I + P (sum_i K_ij^2 D_i) P'

Steps: "block" solves H_j beta = -B_j; "sequential" makes one Gauss-Seidel sweep over the
columns, the paper's k one-dimensional problems (3.12). The objective after the step is evaluated
exactly.

Full model. From the multipliers a = 2 c Xi of any scores, scaled by s, weak duality gives
D(s) = s sum(a) - s^2 [L(F) + 1/2 tr(G' K G R)], a lower bound on the objective with all
samples as basis; it is used at its best s. `MultiLogit` has a bound of the same kind.
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
from maxmargin.sparse.loss_loops import FEW, Curvature, Expansion, Loss, StarCurvature, star_pull

SELECTIONS = ("block", "sequential")
# Samples taken together where something is computed for all of them; bounds the memory.
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Position:
    """Coefficients W (d x r) with their functions Z = Psi W, the scores F = Z P and the loss there."""

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
    """Candidates with what it takes to join (their kernel rows), steps, and the objective each leads to."""

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
        """Scores of all columns from those of the r factor columns, beta = al P of (4.19)."""
        return Z if self.P is None else Z @ self.P

    def back(self, G: np.ndarray) -> np.ndarray:
        """The transpose of `scores`: a gradient in F becomes one in Z."""
        return G if self.P is None else G @ self.P.T

    def sharper(self) -> BasisProblem | None:
        """The same with a copy nearer to a loss that has kinks; None where there is none."""
        loss = self.loss.sharper() if isinstance(self.loss, SquaredLargestMargin) else None
        return None if loss is None else replace(self, loss=loss)

    def at(self, W: np.ndarray, Z: np.ndarray) -> Position:
        """Scores, loss, gradient and curvature at coefficients W with values Z = Psi W."""
        F = self.scores(Z)
        return Position(W, Z, F, self.loss.at(F))

    def gradient(self, Psi: np.ndarray, here: Position) -> np.ndarray:
        """Gradient in W (d x r); the functions are the first d columns of Psi."""
        G, d = here.loss.gradient, len(here.W)
        if self.P is None:
            return here.W + pull(Psi, here.loss.curvature, G, d)
        return here.W + Psi[:, :d].T @ self.back(G).astype(Psi.dtype, copy=False)

    def step(self, here: Position, V: np.ndarray, dZ: np.ndarray, longest: float = np.inf) -> float:
        """How far to go along V, at most `longest`: to the minimum of the objective; dZ = Psi V."""
        q1, q2 = float(np.vdot(here.W, V)), float(np.vdot(V, V))
        return self.loss.step(here.F, self.scores(dZ), q1, q2, longest)

    def kernel_rows(self, indices: np.ndarray) -> np.ndarray:
        """Rows of K, len(indices) x l, with an exact diagonal."""
        others = np.arange(self.n) if self.kernel.name == "precomputed" else self.X
        K = np.ascontiguousarray(self.kernel.block(self.X[indices], others))
        K[np.arange(len(indices)), indices] = self.diagonal[indices]
        return K

    def score(
        self,
        here: Position,
        indices: np.ndarray,
        selection: str = "block",
        known: np.ndarray | float = 0.0,
    ) -> Scored:
        """Steps of candidates, and e of (3.13) for each of them: the exact objective after its step.

        `known` (candidates x r) is what a candidate's slope owes to the functions that are there, whose
        coefficients may be short of optimal: neither its step nor its objective takes account of that.
        """
        K = self.kernel_rows(indices)
        Z, own = here.Z[indices] - known, self.diagonal[indices]
        rows = here.loss.curvature.rows()
        seen = K[:, rows].astype(np.float64, copy=False)
        mixtures = here.loss.curvature.restrict(rows).mixtures(seen**2)
        steps, change = self.newcomers(Z, own, seen @ here.loss.gradient[rows], mixtures, selection)
        losses = self.loss.after(here.F, K, self.scores(steps))
        regulariser = 0.5 * float(np.vdot(here.W, here.W))
        return Scored(indices, K, steps, regulariser + change + losses)

    def newcomers(
        self, Z: np.ndarray, own: np.ndarray, slopes: np.ndarray, mixtures: np.ndarray, selection: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Steps of candidates, and by how much each changes the regulariser.

        Z are their functions, `own` is K_jj, `slopes` K_j' G, and `mixtures` sum_i K_ij^2 D_i.
        """
        H = mixtures if self.P is None else self.P @ mixtures @ self.P.T
        H[:, np.arange(self.rank), np.arange(self.rank)] += own[:, None]
        steps = candidate_steps(Z + self.back(slopes), H, self.directions, selection)
        change = np.einsum("qr,qr->q", steps, Z) + 0.5 * own * np.einsum("qr,qr->q", steps, steps)
        return steps, change

    def certificate(self, vectors: Any, L: np.ndarray, W: np.ndarray) -> Certificate:
        """Objective and its lower bound for a basis, from kernel values in float64; L L' = K_JJ."""
        al = solve_triangular(L, W, trans="T", lower=True)
        F = self.scores(np.vstack([K @ al for _, K in self.strips(vectors)]))
        expansion = self.loss.at(F)
        pulled = self.back(expansion.gradient)
        K_JJ = self.gram(vectors)
        g = K_JJ @ al + sum(K.T @ pulled[rows] for rows, K in self.strips(vectors))
        primal = 0.5 * float(np.vdot(al, K_JJ @ al)) + expansion.value
        whitened = solve_triangular(L, g, lower=True)
        return Certificate(primal + expansion.excess, primal - 0.5 * float(np.vdot(whitened, whitened)))

    def full_model_bound(self, at: Expansion) -> float:
        """A lower bound on the objective of the model with all samples as basis, from any scores."""
        rows = np.flatnonzero(at.gradient.any(axis=1))
        A = self.back(at.gradient[rows])
        quadratic = 0.0
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            K = self.kernel.block(self.X[part], self.vectors(rows), np.float64)
            quadratic += float(np.vdot(A[start : start + CHUNK], K @ A))
        return self.loss.full_bound(at, quadratic)

    def vectors(self, J: np.ndarray) -> Any:
        """Training samples as a basis: rows of X; with a precomputed kernel their places."""
        return J if self.kernel.name == "precomputed" else self.X[J]

    def gram(self, vectors: Any) -> np.ndarray:
        """K_JJ in float64, symmetric, with an exact diagonal."""
        if isinstance(vectors, Clouds):
            return self.kernel.inner_products(vectors)
        precomputed = self.kernel.name == "precomputed"
        K = self.kernel.block(self.X[vectors] if precomputed else vectors, vectors, np.float64)
        K = (K + K.T) / 2
        K[np.diag_indices_from(K)] = self.diagonal[vectors] if precomputed else self.kernel.diagonal(vectors)
        return K

    def strips(self, vectors: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """K_J in float64, some samples at a time."""
        for start in range(0, self.n, CHUNK):
            rows = np.arange(start, min(start + CHUNK, self.n))
            yield rows, self.kernel.block(self.X[rows], vectors, np.float64)


def push(Psi: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Psi V in float64."""
    return (Psi @ V.astype(Psi.dtype, copy=False)).astype(np.float64, copy=False)


def pull(Psi: np.ndarray, curvature: Curvature, U: np.ndarray, d: int) -> np.ndarray:
    """The first d columns of Psi, transposed, times U (l x k), which is zero where there is no curvature."""
    if isinstance(curvature, StarCurvature) and curvature.few:
        answer = np.zeros((curvature.k, d), Psi.dtype)
        star_pull(Psi, curvature.stars, U, answer)
        return answer.T
    return Psi[:, :d].T @ U.astype(Psi.dtype, copy=False)


def solve_each(H: np.ndarray, B: np.ndarray) -> np.ndarray:
    """x_j with H_j x_j = B_j; where rounding made one of them singular, by `ridged_cholesky`."""
    try:
        return np.linalg.solve(H, B[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return np.stack([cho_solve(ridged_cholesky(h), b) for h, b in zip(H, B, strict=True)])


def candidate_steps(B: np.ndarray, H: np.ndarray, directions: np.ndarray, selection: str) -> np.ndarray:
    """Coefficients of candidates, gradients B and Hessians H: (3.12), or jointly for all columns."""
    if selection == "block":
        return -solve_each(H, B)
    # In the space of the columns themselves, which the rows of M lead into.
    M = directions
    B, H = B @ M.T, M @ H @ M.T
    diagonal = np.diagonal(H, axis1=1, axis2=2)
    beta = np.zeros_like(B)
    for r in range(B.shape[1]):
        pulled = np.einsum("qs,qs->q", H[:, r], beta) + B[:, r]
        beta[:, r] = -pulled / diagonal[:, r]
    return beta @ M


def hessian(
    Psi: np.ndarray, curvature: Curvature, P: np.ndarray | None, shape: tuple[int, ...]
) -> np.ndarray:
    """The Hessian as an (r d) x (r d) matrix, coefficients of a column next to each other."""
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
    """The Hessian times V (d x r), without forming it."""
    narrow = V.astype(Psi.dtype, copy=False)
    if P is None and isinstance(curvature, StarCurvature):
        return V + curvature.through(Psi, narrow)
    U = Psi @ narrow
    U = curvature.product(U) if P is None else curvature.product(U @ P) @ P.T
    return V + Psi.T @ U.astype(Psi.dtype, copy=False)


def product_work(curvature: Curvature, P: np.ndarray | None, n_columns: int) -> int:
    """To how many entries of a matrix a product with the Hessian applies every function, or as good as."""
    if P is None and isinstance(curvature, StarCurvature) and curvature.few:
        return FEW * (len(curvature.stars.leaves) + len(curvature.stars.y))
    return len(curvature.rows()) * n_columns


def candidate_pool(X: Any, weights: np.ndarray, by_content: bool = True) -> np.ndarray:
    """One index for every distinct row of X with a positive weight, ordered by content alone.

    A random draw from this pool is the same whether equal samples are repeated or weighted,
    however the samples are ordered, and for dense, CSR, float32 and float64 rows alike.
    Without `by_content` (a precomputed kernel, whose rows are not samples) all rows of
    positive weight are taken as they come.
    """
    index = np.flatnonzero(weights > 0)
    if not by_content:
        return index
    _, first = np.unique(row_keys(X)[index], return_index=True)
    return index[first]


def row_keys(X: Any) -> np.ndarray:
    """A 64-bit hash of every row, from its nonzero entries rounded to float32."""
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
    """Scramble 64-bit integers; zero stays zero, so that absent entries have no say."""
    bits = bits * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(32)
    return bits
