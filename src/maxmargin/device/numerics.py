"""Kernel values in PyTorch, by the formulas of `maxmargin.core.kernels`, and products of sparse rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from maxmargin.core.kernels import DISTANCE_ROUNDING, Clouds, Kernel

# Bytes of kernel values computed at a time, besides the result.
BLOCK_BYTES = 2**30
# Kernel values computed at a time in prediction.
BATCH_VALUES = 2**28
# Stored numbers of a sparse row that are summed at a time.
PIECE = 256


def to_device(X: Any, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """X as a dense matrix on a device; CSR rows are copied as they are and filled in there."""
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


def dtype_of(itemsize: int) -> torch.dtype:
    """The floating point type of `itemsize` bytes."""
    return torch.float32 if itemsize == 4 else torch.float64


def chunks(n: int, bytes_per_row: int) -> Iterator[slice]:
    """Cut 0..n into slices of at most BLOCK_BYTES."""
    size = max(1, BLOCK_BYTES // max(bytes_per_row, 1))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def kernel_block(kernel: Kernel, X: torch.Tensor, Z: torch.Tensor | Clouds) -> torch.Tensor:
    """Values k(x, z) for all rows x of X and z of Z, in their precision, the offset included."""
    if isinstance(Z, Clouds):
        K = _clouded(kernel, X, Z)
    elif kernel.name == "rbf":
        K = _rbf(kernel.gamma, _transformed(kernel, X), _transformed(kernel, Z))
    elif kernel.name == "chi2":
        K = torch.exp(-kernel.gamma * _chi2_distances(X, Z))
    else:
        K = X @ Z.T
        if kernel.name == "poly":
            K = K.mul_(kernel.gamma).add_(kernel.coef0).pow_(kernel.degree)
        elif kernel.name == "sigmoid":
            K = K.mul_(kernel.gamma).add_(kernel.coef0).tanh_()
    return K.add_(kernel.offset) if kernel.offset else K


def _transformed(kernel: Kernel, X: torch.Tensor) -> torch.Tensor:
    if kernel.metric is None:
        return X
    return X @ torch.as_tensor(kernel.metric, dtype=X.dtype, device=X.device).T


def _rbf(gamma: float, X: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
    """exp(-gamma |x - z|^2), the exponent as one product of rows extended by two numbers.

    Single precision is used only where the exponent keeps DISTANCE_ROUNDING.
    """
    x, z = (
        gamma * torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64).square()
        for rows in (X, Z)
    )
    largest = float(x.max() + z.max()) if len(x) and len(z) else 0.0
    exact = largest * torch.finfo(X.dtype).eps <= DISTANCE_ROUNDING
    work = X.dtype if exact else torch.float64
    left = torch.cat([2 * gamma * X.to(work), -x.to(work), torch.ones_like(x, dtype=work)], dim=1)
    right = torch.cat([Z.to(work), torch.ones_like(z, dtype=work), -z.to(work)], dim=1)
    return (left @ right.T).exp_().to(X.dtype)


def _clouded(kernel: Kernel, X: torch.Tensor, clouds: Clouds) -> torch.Tensor:
    """exp(-gamma sum_f (u_f - v_f)^2 / (1 + r_f)), as one product of rows (u^2, u, 1)."""
    V = kernel.apply_metric(np.asarray(clouds.centres, np.float64))
    weights = torch.from_numpy(clouds.weights(kernel.gamma, V)).to(X.device)
    X = _transformed(kernel, X)
    longest = float(X.square().sum(dim=1, dtype=torch.float64).max()) if len(X) else 0.0
    largest = kernel.gamma * (longest + float(np.square(V).sum(axis=1).max(initial=0.0)))
    exact = largest * torch.finfo(X.dtype).eps <= DISTANCE_ROUNDING
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


def kernel_product(X: torch.Tensor, kernel: Kernel, basis: Any, coefficients: np.ndarray) -> torch.Tensor:
    """k(X, basis) @ coefficients, with at most BATCH_VALUES kernel values at a time."""
    dtype = X.dtype if X.dtype in (torch.float32, torch.float64) else torch.float64
    X, B = X.to(dtype), torch.from_numpy(np.ascontiguousarray(coefficients)).to(X.device, dtype)
    answer = torch.zeros(len(X), B.shape[1], dtype=dtype, device=X.device)
    if not len(B):
        return answer
    if kernel.name == "precomputed":
        return X[:, torch.from_numpy(basis).to(X.device)] @ B
    Z = basis if isinstance(basis, Clouds) else to_device(basis, X.device, dtype)
    size = max(1, BATCH_VALUES // len(B))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        torch.matmul(kernel_block(kernel, X[rows], Z), B, out=answer[rows])
    return answer


class DeviceKernel:
    """The kernel matrix of some rows on a device, stored whole or computed in rows.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix of shape (n_samples, n_features)
        Rows, or the kernel values with "precomputed".
    padding : int
        Zero rows to append to X, and with "precomputed" zero columns as well.
    device : torch.device
    dtype : torch.dtype
    whole : bool
        Whether to store the matrix.
    """

    def __init__(
        self, kernel: Kernel, X: Any, padding: int, device: torch.device, dtype: torch.dtype, whole: bool
    ) -> None:
        self.kernel, self.n = kernel, X.shape[0] + padding
        widen = padding if kernel.name == "precomputed" else 0
        self.X64 = torch.nn.functional.pad(to_device(X, device, torch.float64), (0, widen, 0, padding))
        self.X = self.X64.to(dtype)
        self.whole: torch.Tensor | None = None
        if whole:
            self.whole = torch.empty(self.n, self.n, device=device, dtype=dtype)
            for rows in chunks(self.n, self.n * self.X.element_size()):
                self.whole[rows] = self._compute(rows, self.X)

    def _compute(self, rows: slice | torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        if self.kernel.name == "precomputed":
            return X[rows] + self.kernel.offset
        return kernel_block(self.kernel, X[rows], X)

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of K in the working precision."""
        return self._compute(rows, self.X) if self.whole is None else self.whole[rows]

    def times(self, B: torch.Tensor) -> torch.Tensor:
        """B K, label-major, in the working precision."""
        return B @ self.whole if self.whole is not None else self._products(B, self.X)

    def times_exactly(self, B: torch.Tensor) -> torch.Tensor:
        """B K in float64, from kernel values recomputed in float64."""
        return self._products(B.double(), self.X64)

    def _products(self, B: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        answer = torch.empty_like(B)
        for rows in chunks(self.n, self.n * X.element_size()):
            answer[:, rows] = B @ self._compute(rows, X).T
        return answer


@dataclass(frozen=True)
class SparseRows:
    """CSR rows as flat tensors: row i holds ``values[starts[i]:starts[i + 1]]`` at ``columns[...]``.

    PyTorch's own sparse products add in an order that varies between runs. Products here sum every row from
    left to right, long rows in pieces whose sums are added in order, so that results are reproducible.
    """

    starts: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor

    def times(self, W: torch.Tensor) -> torch.Tensor:
        """W X', label-major."""
        from maxmargin.device import triton_moves

        dense, counts, sum_rows = W.T.contiguous(), self.starts.diff(), triton_moves.sum_rows
        if int(counts.max()) <= PIECE:
            return sum_rows(self.starts, self.columns, self.values, dense).T.contiguous()
        # Sum pieces of PIECE numbers, then sum the pieces of each row.
        n_pieces = torch.div(counts + PIECE - 1, PIECE, rounding_mode="floor")
        of_row = torch.cat([n_pieces.new_zeros(1), n_pieces.cumsum(0)])
        row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), n_pieces)
        number = torch.arange(len(row), device=counts.device) - of_row[row]
        pieces = torch.cat([self.starts[row] + PIECE * number, self.starts[-1:]])
        partial = sum_rows(pieces, self.columns, self.values, dense)
        order = torch.arange(len(row), dtype=self.columns.dtype, device=counts.device)
        return sum_rows(of_row, order, torch.ones_like(partial[:, 0]), partial).T.contiguous()


class DeviceRows:
    """Sparse rows and their transpose on a device.

    Parameters
    ----------
    X : CSR matrix of shape (n_samples, n_features)
    device : torch.device
    dtype : torch.dtype
    """

    def __init__(self, X: Any, device: torch.device, dtype: torch.dtype) -> None:
        starts = torch.from_numpy(X.indptr.astype(np.int64)).to(device)
        index = np.int32 if max(X.nnz, *X.shape) < 2**31 else np.int64
        columns = torch.from_numpy(X.indices.astype(index, copy=False)).to(device)
        self.rows = SparseRows(starts, columns, torch.from_numpy(X.data).to(device).to(dtype))
        by_column = torch.argsort(columns, stable=True)
        samples = torch.repeat_interleave(torch.arange(X.shape[0], device=device), starts.diff())
        counts = torch.bincount(columns.long(), minlength=X.shape[1])
        column_starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        values = self.rows.values[by_column]
        self.columns = SparseRows(column_starts, samples[by_column].to(columns.dtype), values)

    def in_precision(self, dtype: torch.dtype) -> SparseRows:
        """The rows without their transpose, in another precision."""
        return replace(self.rows, values=self.rows.values.to(dtype))
