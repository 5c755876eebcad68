"""Machines with a shared basis on a GPU: the growth of `sparse.greedy`, with sums over samples on the device.

Arrays with a number per sample are on the device in float64: rows, basis functions, scores, losses,
candidates. Arrays with a number per basis function (coefficients, gradient, triangle) are small and stay on
the host, which runs the same search, line search and conjugate gradients as a fit on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.linalg import solve_triangular

from maxmargin.core.linalg import conjugate_gradients, root_of_slope
from maxmargin.core.loop import Certificate
from maxmargin.device.numerics import chunks, kernel_block, to_device
from maxmargin.sparse.greedy import DEPENDENT, Greedy, Newton, preconditioned
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem, Scored, candidate_steps


@dataclass(frozen=True)
class DeviceExpansion:
    """A loss at scores F: value, gradient G in F, and weights D of its generalised Hessian, both l x k.

    `excess` is part of the interface of `loss_loops.Expansion`; losses on a device have none.
    """

    value: float
    G: torch.Tensor
    D: torch.Tensor
    excess: float = 0.0

    @property
    def gradient(self) -> np.ndarray:
        """G on the host."""
        return self.G.cpu().numpy()


class Hinges:
    """`SquaredHinges` on a device; its curvature is diagonal."""

    def __init__(self, loss: SquaredHinges, device: torch.device) -> None:
        self.Y = torch.from_numpy(loss.Y).to(device).double()
        self.c = torch.from_numpy(loss.c).to(device)[:, None]

    def at(self, F: torch.Tensor) -> DeviceExpansion:
        excess = torch.where(self.Y != 0, (1 - self.Y * F).clamp(min=0), 0.0)
        value = float((self.c * excess.square()).sum())
        return DeviceExpansion(value, -2 * self.c * self.Y * excess, 2 * self.c * (excess > 0))

    def after(self, rows: slice, F: torch.Tensor) -> torch.Tensor:
        """Losses of scores (q x l x k) of some samples, one per candidate."""
        excess = torch.where(self.Y[rows] != 0, (1 - self.Y[rows] * F).clamp(min=0), 0.0)
        return (self.c[rows] * excess.square()).sum(dim=(1, 2))

    def product(self, D: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
        return D * U

    def diagonal(self, D: torch.Tensor) -> torch.Tensor:
        return D

    def mixtures(self, D: torch.Tensor, S: torch.Tensor) -> torch.Tensor:
        """The sums over samples of S_qi D_i, q x k x k."""
        return torch.diag_embed(S @ D)


class Margins:
    """`SquaredMargins` on a device; its curvature is the Laplacian of a star around the true class."""

    def __init__(self, loss: SquaredMargins, device: torch.device) -> None:
        self.y = torch.from_numpy(loss.y.astype(np.int64)).to(device)[:, None]
        self.c = torch.from_numpy(loss.c).to(device)[:, None]
        self.right = torch.zeros(len(self.y), loss.n_columns, dtype=torch.bool, device=device)
        self.right.scatter_(1, self.y, True)

    def at(self, F: torch.Tensor) -> DeviceExpansion:
        excess = torch.where(self.right, 0.0, (1 + F - F.gather(1, self.y)).clamp(min=0))
        G = 2 * self.c * excess
        value = float((self.c * excess.square()).sum())
        return DeviceExpansion(value, self._balanced(G), 2 * self.c * (excess > 0))

    def _balanced(self, leaves: torch.Tensor) -> torch.Tensor:
        """The values of the wrong classes, and minus their sum at the true class."""
        return torch.where(self.right, -leaves.sum(dim=1, keepdim=True), leaves)

    def after(self, rows: slice, F: torch.Tensor) -> torch.Tensor:
        """Losses of scores (q x l x k) of some samples, one per candidate."""
        own = F.gather(2, self.y[rows].expand(len(F), -1, -1))
        excess = torch.where(self.right[rows], 0.0, (1 + F - own).clamp(min=0))
        return (self.c[rows] * excess.square()).sum(dim=(1, 2))

    def product(self, D: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
        return self._balanced(D * (U - U.gather(1, self.y)))

    def diagonal(self, D: torch.Tensor) -> torch.Tensor:
        return torch.where(self.right, D.sum(dim=1, keepdim=True), D)

    def mixtures(self, D: torch.Tensor, S: torch.Tensor) -> torch.Tensor:
        """The sums over samples of S_qi D_i, q x k x k."""
        mixed = torch.diag_embed(S @ self.diagonal(D))
        for r in range(D.shape[1]):
            to_class = -(S @ (D * self.right[:, r, None]))
            mixed[:, :, r] += to_class
            mixed[:, r, :] += to_class
        return mixed


@dataclass(frozen=True)
class DevicePosition:
    """Coefficients W (d x r, on the host), Z = Psi W, scores F and the loss there."""

    W: np.ndarray
    Z: torch.Tensor
    F: torch.Tensor
    loss: DeviceExpansion

    @property
    def objective(self) -> float:
        return 0.5 * float(np.vdot(self.W, self.W)) + self.loss.value


class DeviceBasis:
    """`GrowingBasis` with its functions on a device, always in float64."""

    def __init__(self, problem: BasisProblem, device: torch.device) -> None:
        self.problem, self.device = problem, device
        assert isinstance(problem.loss, SquaredMargins | SquaredHinges)
        kind: Any = Margins if isinstance(problem.loss, SquaredMargins) else Hinges
        self.loss: Any = kind(problem.loss, device)
        self.X = to_device(problem.X, device, torch.float64)
        self.P = None if problem.P is None else self._sent(problem.P)
        self.indices: list[int] = []
        self.residual = problem.diagonal.copy()
        self.triangle = np.empty((0, 0))
        self._store = torch.empty(problem.n, 0, dtype=torch.float64, device=device)
        none = torch.zeros(problem.n, problem.rank, dtype=torch.float64, device=device)
        self.here = self._at(np.empty((0, problem.rank)), none)

    def _sent(self, numbers: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers, np.float64)).to(self.device)

    def _scores(self, Z: torch.Tensor) -> torch.Tensor:
        return Z if self.P is None else Z @ self.P

    def _back(self, G: torch.Tensor) -> torch.Tensor:
        return G if self.P is None else G @ self.P.T

    def _at(self, W: np.ndarray, Z: torch.Tensor) -> DevicePosition:
        F = self._scores(Z)
        return DevicePosition(W, Z, F, self.loss.at(F))

    @property
    def Psi(self) -> torch.Tensor:
        """Orthonormal functions at the training samples, l x d."""
        return self._store[:, : len(self.indices)]

    def gradient(self) -> np.ndarray:
        """Gradient of the objective in W (d x r)."""
        return self.here.W + (self.Psi.T @ self._back(self.here.loss.G)).cpu().numpy()

    def hessian_product(self, V: np.ndarray) -> np.ndarray:
        """The Hessian times V (d x r), without forming it."""
        U = self._scores(self.Psi @ self._sent(V))
        pulled = self.Psi.T @ self._back(self.loss.product(self.here.loss.D, U))
        return V + pulled.cpu().numpy()

    def inverse_blocks(self, base: np.ndarray) -> np.ndarray:
        """Inverses of base_r I + Psi' diag(D_rr) Psi for every column r."""
        weights = self.loss.diagonal(self.here.loss.D)
        eye = torch.eye(len(self.indices), dtype=torch.float64, device=self.device)
        blocks = [
            base[r] * eye + self.Psi.T @ (weights[:, r, None] * self.Psi) for r in range(weights.shape[1])
        ]
        return torch.cholesky_inverse(torch.linalg.cholesky(torch.stack(blocks))).cpu().numpy()

    def move(self, V: np.ndarray, longest: float = np.inf) -> None:
        """Move W along V (d x r) to the minimum of the objective, at most `longest` times V."""
        W, dZ = self.here.W, self.Psi @ self._sent(V)
        F, dF = self.here.F, self._scores(dZ)

        def derivatives(t: float) -> tuple[float, float]:
            there = self.loss.at(F + t * dF)
            slope = torch.sum(there.G * dF)
            curvature = torch.sum(dF * self.loss.product(there.D, dF))
            first, second = torch.stack([slope, curvature]).tolist()
            return first, second

        t = root_of_slope(derivatives, float(np.vdot(W, V)), float(np.vdot(V, V)), longest)
        self.here = self._at(W + t * V, self.here.Z + t * dZ)

    def admissible(self, indices: np.ndarray) -> np.ndarray:
        """The samples whose kernel function is linearly independent of the basis."""
        floor = DEPENDENT[np.dtype(np.float64)] * self.problem.diagonal[indices]
        return indices[self.residual[indices] > floor]

    def kernel_rows(self, indices: np.ndarray) -> torch.Tensor:
        """Rows of K, with an exact diagonal."""
        kernel, some = self.problem.kernel, torch.from_numpy(indices).to(self.device)
        if kernel.name == "precomputed":
            K = self.X[some] + kernel.offset
        else:
            K = kernel_block(kernel, self.X[some], self.X)
        K[torch.arange(len(indices), device=self.device), some] = self._sent(self.problem.diagonal[indices])
        return K

    def score(self, indices: np.ndarray, selection: str) -> Scored:
        """Steps of the candidates and the exact objective after each; as `BasisProblem.score`."""
        problem, here = self.problem, self.here
        K = self.kernel_rows(indices)
        some = torch.from_numpy(indices).to(self.device)
        Z = here.Z[some].cpu().numpy() - self.Psi[some].cpu().numpy() @ self.gradient()
        B = Z + self._back(K @ here.loss.G).cpu().numpy()
        H = self.loss.mixtures(here.loss.D, K.square()).cpu().numpy()
        if problem.P is not None:
            H = problem.P @ H @ problem.P.T
        own = problem.diagonal[indices]
        H[:, np.arange(problem.rank), np.arange(problem.rank)] += own[:, None]
        steps = candidate_steps(B, H, problem.directions, selection)
        change = np.einsum("qr,qr->q", steps, Z) + 0.5 * own * np.einsum("qr,qr->q", steps, steps)
        regulariser = 0.5 * float(np.vdot(here.W, here.W))
        return Scored(indices, K, steps, regulariser + change + self._losses_after(K, steps))

    def _losses_after(self, K: torch.Tensor, steps: np.ndarray) -> np.ndarray:
        """Loss of F + K_q steps_q' for every candidate q."""
        moved = self._scores(self._sent(steps))
        losses = torch.zeros(len(K), dtype=torch.float64, device=self.device)
        for rows in chunks(self.problem.n, 3 * 8 * moved.numel()):
            losses += self.loss.after(rows, self.here.F[rows] + K[:, rows, None] * moved[:, None])
        return losses.cpu().numpy()

    def join(self, j: int, row: torch.Tensor, step: np.ndarray) -> None:
        """Add sample j to the basis with coefficients `step`; `row` is row j of K."""
        d = len(self.indices)
        before = self.Psi[j]
        pivot = float(np.sqrt(self.problem.diagonal[j] - float(before @ before)))
        column = (row - self.Psi @ before) / pivot
        column[self.indices] = 0.0
        column[j] = pivot
        if d == self._store.shape[1]:
            self._store = torch.nn.functional.pad(self._store, (0, max(16, d // 4)))
        self._store[:, d] = column
        self.residual -= column.square().cpu().numpy()
        self.residual[j] = 0.0
        old = before.cpu().numpy()
        triangle = np.zeros((d + 1, d + 1))
        triangle[:d, :d], triangle[d, :d], triangle[d, d] = self.triangle, old, pivot
        here = self._at(
            np.vstack([self.here.W + np.outer(old, step), pivot * step]),
            self.here.Z + row[:, None] * self._sent(step),
        )
        self.indices, self.triangle, self.here = [*self.indices, j], triangle, here

    @property
    def vectors(self) -> Any:
        """The basis vectors."""
        return self.problem.vectors(np.array(self.indices, dtype=np.intp))

    def n_active(self) -> int:
        """Return the number of samples with loss."""
        return int(self.here.loss.G.any(dim=1).sum())

    def refine(self) -> None:
        """Do nothing: all arrays are in float64."""

    def coefficients(self, W: np.ndarray) -> np.ndarray:
        """Coefficients of the kernel functions in the scores, d x k, of this or an earlier W."""
        L = self.triangle[: len(W), : len(W)]
        return self.problem.scores(solve_triangular(L, W, trans="T", lower=True))

    def certificate(self) -> Certificate:
        """Objective and its lower bound, from recomputed kernel values; as `BasisProblem.certificate`."""
        J, L = np.array(self.indices, dtype=np.intp), self.triangle
        al = solve_triangular(L, self.here.W, trans="T", lower=True)
        there = self._sent(al)
        Z = torch.cat([K @ there for _, K in self._strips(J)])
        expansion = self.loss.at(self._scores(Z))
        pulled = self._back(expansion.G)
        K_JJ = self.problem.gram(self.vectors)
        g = K_JJ @ al
        for rows, K in self._strips(J):
            g += (K.T @ pulled[rows]).cpu().numpy()
        primal = 0.5 * float(np.vdot(al, K_JJ @ al)) + expansion.value
        whitened = solve_triangular(L, g, lower=True)
        return Certificate(primal, primal - 0.5 * float(np.vdot(whitened, whitened)))

    def _strips(self, J: np.ndarray) -> Iterator[tuple[slice, torch.Tensor]]:
        basis = torch.from_numpy(J).to(self.device)
        for rows in chunks(self.problem.n, 8 * max(len(J), 1)):
            if self.problem.kernel.name == "precomputed":
                yield rows, self.X[rows][:, basis] + self.problem.kernel.offset
            else:
                yield rows, kernel_block(self.problem.kernel, self.X[rows], self.X[basis])


class DeviceNewton(Newton):
    """Newton's method with conjugate gradients, whose products run on the device."""

    def direction(self, basis: Any, g: np.ndarray, accuracy: float) -> np.ndarray:
        M = basis.problem.directions
        inverse = basis.inverse_blocks(np.einsum("mr,mr->m", M, M))

        def apply(V: np.ndarray) -> np.ndarray:
            return np.matmul(inverse, V.T[:, :, None])[:, :, 0].T

        precondition = partial(preconditioned, basis.problem, apply)
        return conjugate_gradients(basis.hessian_product, -g, precondition, accuracy=accuracy)[0]


def growing(problem: BasisProblem, *args: Any, device: torch.device, max_iter: int, **options: Any) -> Greedy:
    """Algorithm 1 on a device."""
    basis: Any = DeviceBasis(problem, device)
    optimiser = DeviceNewton(max_iter)
    optimiser.name = "cg on a GPU"
    return Greedy(problem, *args, optimiser=optimiser, basis=basis, **options)
