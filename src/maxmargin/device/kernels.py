"""Kernel values on a device: the formulas of `maxmargin.core.kernels` in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from maxmargin.core.kernels import DISTANCE_ROUNDING, Clouds, Kernel

# Bytes of kernel values that are made at a time, besides the result.
BLOCK_BYTES = 2**30


def to_device(X: Any, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Rows on a device, dense; CSR rows travel as they are and are filled in there."""
    if sp.issparse(X):
        counts, columns, values = (
            torch.from_numpy(part).to(device)
            for part in (np.diff(X.indptr), X.indices.astype(np.int64), X.data)
        )
        rows = torch.repeat_interleave(torch.arange(X.shape[0], device=device), counts)
        dense = torch.zeros(X.shape, dtype=dtype, device=device)
        dense[rows, columns] = values.to(dtype)
        return dense
    return torch.from_numpy(np.ascontiguousarray(X)).to(device).to(dtype)


def padded(kernel: Kernel, X: np.ndarray | sp.csr_array, padding: int) -> np.ndarray | sp.csr_array:
    """X with so many zero rows behind; of a precomputed kernel with columns too."""
    if kernel.name == "precomputed":
        return np.pad(X, (0, padding))
    if not sp.issparse(X):
        return np.pad(X, ((0, padding), (0, 0)))
    return sp.vstack([X, sp.csr_array((padding, X.shape[1]), dtype=X.dtype)], format="csr")


def chunks(n: int, bytes_per_row: int) -> Iterator[slice]:
    """Cut 0..n into slices of bounded memory."""
    size = max(1, BLOCK_BYTES // max(bytes_per_row, 1))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def block(kernel: Kernel, X: torch.Tensor, Z: torch.Tensor | Clouds) -> torch.Tensor:
    """Values k(x, z) for all rows x of X and z of Z, in their precision, the offset included."""
    if isinstance(Z, Clouds):
        K = _clouded(kernel, X, Z)
    elif kernel.name == "rbf":
        if kernel.metric is not None:
            M = torch.as_tensor(kernel.metric, dtype=X.dtype, device=X.device)
            X, Z = X @ M.T, Z @ M.T
        K = _rbf(kernel.gamma, X, Z)
    elif kernel.name == "chi2":
        K = torch.exp(-kernel.gamma * _chi2_distances(X, Z))
    else:
        K = X @ Z.T
        if kernel.name == "poly":
            K = K.mul_(kernel.gamma).add_(kernel.coef0).pow_(kernel.degree)
        elif kernel.name == "sigmoid":
            K = K.mul_(kernel.gamma).add_(kernel.coef0).tanh_()
    return K.add_(kernel.offset) if kernel.offset else K


def _rbf(gamma: float, X: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
    """exp(-gamma |x - z|^2), the exponent as one product of rows longer by two numbers."""
    x, z = (
        gamma * torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64).square()
        for rows in (X, Z)
    )
    reach = float(x.max() + z.max()) if len(x) and len(z) else 0.0
    exact = reach * torch.finfo(X.dtype).eps <= DISTANCE_ROUNDING
    work = X.dtype if exact else torch.float64
    left = torch.cat([2 * gamma * X.to(work), -x.to(work), torch.ones_like(x, dtype=work)], dim=1)
    right = torch.cat([Z.to(work), torch.ones_like(z, dtype=work), -z.to(work)], dim=1)
    return (left @ right.T).exp_().to(X.dtype)


def _clouded(kernel: Kernel, X: torch.Tensor, clouds: Clouds) -> torch.Tensor:
    """exp(-gamma sum_f (u_f - v_f)^2 / (1 + r_f)), as one product of rows (u^2, u, 1)."""
    V = kernel.apply_metric(np.asarray(clouds.centres, np.float64))
    weights = torch.from_numpy(clouds.weights(kernel.gamma, V)).to(X.device)
    if kernel.metric is not None:
        X = X @ torch.as_tensor(kernel.metric, dtype=X.dtype, device=X.device).T
    longest = float(X.square().sum(dim=1, dtype=torch.float64).max()) if len(X) else 0.0
    reach = kernel.gamma * (longest + float(np.square(V).sum(axis=1).max(initial=0.0)))
    exact = reach * torch.finfo(X.dtype).eps <= DISTANCE_ROUNDING
    U = X if exact else X.double()
    left = torch.cat([U.square(), U, torch.ones_like(U[:, :1])], dim=1)
    return (left @ weights.to(U.dtype)).clamp_(max=0).exp_().to(X.dtype)


def _chi2_distances(X: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
    distances = torch.empty(len(X), len(Z), dtype=X.dtype, device=X.device)
    for rows in chunks(len(X), Z.numel() * X.element_size()):
        x, z = X[rows, None], Z[None]
        total = x + z
        distances[rows] = torch.where(total > 0, (x - z).square() / total, 0).sum(dim=2)
    return distances


class DeviceKernel:
    """The kernel matrix of some rows on a device: kept as a whole where it fits, else made by rows.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix of shape (n_samples, n_features)
        Rows, or with "precomputed" the kernel values.
    device : torch.device
    dtype : torch.dtype
    whole : bool
        Whether the matrix is kept.
    """

    def __init__(self, kernel: Kernel, X: Any, device: torch.device, dtype: torch.dtype, whole: bool) -> None:
        self.kernel, self.n = kernel, X.shape[0]
        self.X64 = to_device(X, device, torch.float64)
        self.X = self.X64.to(dtype)
        self.whole: torch.Tensor | None = None
        if whole:
            self.whole = torch.empty(self.n, self.n, device=device, dtype=dtype)
            for rows in chunks(self.n, self.n * self.X.element_size()):
                self.whole[rows] = self._made(rows, self.X)

    def _made(self, rows: slice | torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        if self.kernel.name == "precomputed":
            return X[rows] + self.kernel.offset
        return block(self.kernel, X[rows], X)

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of K of some samples, in the working precision."""
        return self._made(rows, self.X) if self.whole is None else self.whole[rows]

    def times(self, B: torch.Tensor) -> torch.Tensor:
        """B K, label-major, in the working precision."""
        if self.whole is not None:
            return B @ self.whole
        return self._products(B, self.X)

    def times_exactly(self, B: torch.Tensor) -> torch.Tensor:
        """B K in float64, from values computed anew in float64."""
        return self._products(B.double(), self.X64)

    def _products(self, B: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        answer = torch.empty_like(B)
        for rows in chunks(self.n, self.n * X.element_size()):
            answer[:, rows] = B @ self._made(rows, X).T
        return answer
