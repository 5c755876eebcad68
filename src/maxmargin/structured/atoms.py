"""Dual solutions kept as short lists of atoms: for every block the answers that carry weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maxmargin.core.atoms import move_slots


@dataclass
class Slots:
    """Atoms of all blocks in flat arrays, laid out as described in _jit/slots.py.

    `widths` are the numbers that name an atom of each block, `deltas` the losses of the atoms.
    """

    widths: np.ndarray
    capacity: np.ndarray
    count: np.ndarray
    label_at: np.ndarray
    slot_at: np.ndarray
    gram_at: np.ndarray
    labels: np.ndarray
    alpha: np.ndarray
    deltas: np.ndarray
    grams: np.ndarray

    @classmethod
    def empty(cls, widths: np.ndarray, capacity: np.ndarray) -> Slots:
        def starts(sizes: np.ndarray) -> np.ndarray:
            return np.concatenate([[0], np.cumsum(sizes)])

        label_at, slot_at, gram_at = starts(capacity * widths), starts(capacity), starts(capacity**2)
        return cls(
            widths,
            capacity,
            np.zeros(widths.size, np.int64),
            label_at,
            slot_at,
            gram_at,
            np.zeros(label_at[-1], np.int32),
            np.zeros(slot_at[-1]),
            np.zeros(slot_at[-1]),
            np.zeros(gram_at[-1]),
        )

    def in_use(self) -> np.ndarray:
        """How many atoms of every block carry weight."""
        return np.add.reduceat(self.alpha > 0, self.slot_at[:-1], dtype=np.int64)

    def mixed(self, blocks: np.ndarray) -> np.ndarray:
        """Those of `blocks` in which more than one atom carries weight."""
        return blocks[self.in_use()[blocks] > 1]

    def expected_loss(self) -> np.ndarray:
        """E Delta of every block."""
        return np.add.reduceat(self.alpha * self.deltas, self.slot_at[:-1])

    def enlarged(self) -> Slots:
        """The same with twice the room for blocks that are full and use more than half of it."""
        full = self.count == self.capacity
        if not full.any():
            return self
        full &= 2 * self.in_use() > self.capacity
        if not full.any():
            return self
        new = Slots.empty(self.widths, np.where(full, 2 * self.capacity, self.capacity))
        new.count[:] = self.count
        move_slots(
            self.widths, self.count, self.capacity, self.label_at, self.slot_at, self.gram_at,
            self.labels, self.alpha, self.deltas, self.grams,
            new.capacity, new.label_at, new.slot_at, new.gram_at,
            new.labels, new.alpha, new.deltas, new.grams,
        )  # fmt: skip
        return new
