"""The candidates for a basis, in an order that depends on their content alone.

A random draw from this pool is the same whether equal samples are repeated or weighted,
however the samples are ordered, and for dense, CSR, float32 and float64 rows alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.rows import Rows

CHUNK = 1024


def candidate_pool(X: Any, weights: np.ndarray, by_content: bool = True) -> np.ndarray:
    """One index for every distinct row of X with a positive weight.

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
    rows = Rows.of(X)
    n, d = rows.shape
    factors = _mix(np.arange(1, d + 1, dtype=np.uint64)) | np.uint64(1)
    keys = np.zeros(n, np.uint64)
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        low, high = rows.indptr[start], rows.indptr[stop]
        with np.errstate(over="ignore"):
            values = rows.data[low:high].astype(np.float32) + np.float32(0)
        hashed = _mix(values.view(np.uint32).astype(np.uint64))
        if rows.dense:
            keys[start:stop] = (hashed.reshape(-1, d) * factors).sum(axis=1, dtype=np.uint64)
        else:
            hashed *= factors[rows.indices[low:high]]
            bounds = rows.indptr[start : stop + 1] - low
            filled = np.flatnonzero(np.diff(bounds))
            if filled.size:
                keys[start + filled] = np.add.reduceat(hashed, bounds[filled])
    return keys


def _mix(bits: np.ndarray) -> np.ndarray:
    """Scramble 64-bit integers; zero stays zero, so that absent entries have no say."""
    bits = bits * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(32)
    return bits
