"""The nonzeros of rows of a dense X, so that sweeps over them skip the zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from maxmargin.core.rows import RowArrays, Rows, readonly
from maxmargin.structured import multiclass_loops as loops

# Largest part of the bytes of X that the extract may use.
SHARE = 1 / 6
# A matrix with fewer zeros than this share is read as it is.
ZEROS = 0.5
SEGMENTS = 16
# Zeros are skipped in words of this many entries.
LANES = (0,) * 8
# Rows whose nonzeros are at hand at a time when all rows are read once.
PIECE = 512

# Whose rows they are, the rows as flat arrays, and which of them to read.
Piece = tuple[np.ndarray, Any, int, int]


class Extract:
    """The nonzeros of rows of a dense X, in the working precision.

    Rows are added when they are first asked for, until `SHARE` of the bytes of X are used. An X
    whose nonzeros all fit is extracted as a whole; of another one only the busiest rows are,
    and when it is full and far fewer rows are asked for, it starts afresh with those.
    """

    def __init__(self, rows: Rows, dtype: np.dtype) -> None:
        self.rows = rows
        n, d = rows.shape
        self.dtype, self.index = dtype, np.dtype(np.uint16 if d <= 2**16 else np.uint32)
        self.room = int(SHARE * rows.data.nbytes) // (dtype.itemsize + self.index.itemsize)
        probe = rows.matrix[:: max(1, n // 256)]
        density = np.count_nonzero(probe) / max(probe.size, 1)
        self.useful = density < 1 - ZEROS
        self.holds_all = 1.05 * density * n * d < self.room
        self.count, self.full = 0, False

    def _allocate(self) -> None:
        n = self.rows.shape[0]
        self.values, self.columns = np.empty(self.room + 1, self.dtype), np.empty(self.room + 1, self.index)
        self.samples = np.empty(n, np.int64)
        self.starts = np.zeros(n + 1, np.int64)
        self.place = np.full(n, -1, np.int64)

    @property
    def complete(self) -> bool:
        """Whether all rows are at hand."""
        return self.count == self.rows.shape[0]

    @property
    def flat(self) -> RowArrays:
        """The extract as the rows of a CSR matrix; `samples` says whose they are."""
        return RowArrays(readonly(self.values), readonly(self.columns), readonly(self.starts), np.int64(0))

    def add(self, samples: np.ndarray) -> None:
        """Extract as many of the samples as still fit."""
        data, indices, indptr, _ = self.rows.flat
        before = self.count
        self.count += loops.extract(
            readonly(samples), data, indices, indptr, LANES, before, self.values, self.columns, self.starts
        )
        added = samples[: self.count - before]
        self.full = len(added) < len(samples)
        self.samples[before : self.count] = added
        self.place[added] = np.arange(before, self.count)

    def pieces(self, first: int, last: int) -> Iterator[Piece]:
        """The nonzeros of rows first..last as they are in X, a few rows at a time."""
        data, indices, indptr, _ = self.rows.flat
        room = PIECE * self.rows.shape[1] + 1
        values, columns = np.empty(room, data.dtype), np.empty(room, self.index)
        for start in range(first, last, PIECE):
            samples = readonly(np.arange(start, min(start + PIECE, last)))
            starts = np.zeros(len(samples) + 1, np.int64)
            loops.extract(samples, data, indices, indptr, LANES, 0, values, columns, starts)
            flat = (readonly(values), readonly(columns), readonly(starts), np.int64(0))
            yield samples, flat, 0, len(samples)

    def split(self, order: np.ndarray, whole: Any) -> list[tuple[np.ndarray, Any, np.ndarray]]:
        """The part of `order` that is at hand, and the part to be read from X."""
        if not self.useful or not (self.holds_all or 2 * len(order) <= self.rows.shape[0]):
            return [(*whole, order)]
        if self.count == 0:
            self._allocate()
        if self.complete:
            return [(readonly(self.samples), self.flat, self.place[order])]
        missing = order[self.place[order] < 0]
        if self.full and len(missing) and 2 * len(order) < self.count:
            self.place[:], self.count, self.full = -1, 0, False
            missing = order
        if len(missing) and not self.full:
            self.add(np.sort(missing))
        flat = self.flat
        parts = []
        # Alternating, so that no part of the samples is always the last to be visited.
        for segment in np.array_split(order, SEGMENTS if (self.place[order] < 0).any() else 1):
            place = self.place[segment]
            parts.append((readonly(self.samples), flat, place[place >= 0]))
            parts.append((*whole, segment[place < 0]))
        return [part for part in parts if len(part[2])]
