"""CSR rows on a device, and their products with dense matrices: the same bits every time.

The libraries' own sparse products add in no fixed order. Here every row is summed from left to right, long
ones in pieces whose sums are then summed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

# Stored numbers that are summed in one go.
PIECE = 256


@dataclass(frozen=True)
class SparseRows:
    """Rows as flat arrays: row i holds ``values[starts[i]:starts[i + 1]]`` at ``columns[...]``."""

    starts: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor

    def times(self, dense: torch.Tensor) -> torch.Tensor:
        """The product with a dense matrix."""
        if self.values.device.type != "cuda":
            counts = self.starts.diff()
            rows = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
            answer = torch.zeros(len(counts), dense.shape[1], dtype=dense.dtype, device=dense.device)
            return answer.index_add_(0, rows, self.values[:, None] * dense[self.columns.long()])
        from maxmargin.device import triton_moves

        counts = self.starts.diff()
        if int(counts.max()) <= PIECE:
            return triton_moves.sum_rows(self.starts, self.columns, self.values, dense)
        n_pieces = torch.div(counts + PIECE - 1, PIECE, rounding_mode="floor")
        of_row = torch.cat([n_pieces.new_zeros(1), n_pieces.cumsum(0)])
        row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), n_pieces)
        number = torch.arange(len(row), device=counts.device) - of_row[row]
        pieces = torch.cat([self.starts[row] + PIECE * number, self.starts[-1:]])
        partial = triton_moves.sum_rows(pieces, self.columns, self.values, dense)
        order = torch.arange(len(row), dtype=self.columns.dtype, device=counts.device)
        return triton_moves.sum_rows(of_row, order, torch.ones_like(partial[:, 0]), partial)


class DeviceRows:
    """Sparse rows and their transpose.

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
        """The rows alone, in another precision."""
        return replace(self.rows, values=self.rows.values.to(dtype))

    def scores(self, W: torch.Tensor) -> torch.Tensor:
        """W X', label-major."""
        return scores(self.rows, W)

    def weighted_sums(self, B: torch.Tensor) -> torch.Tensor:
        """B X, label-major."""
        return scores(self.columns, B)


def scores(rows: SparseRows, W: torch.Tensor) -> torch.Tensor:
    """The products of every line of W with every row, label-major."""
    return rows.times(W.T.contiguous()).T.contiguous()
