"""The handwritten words of the OCR set, cut into sequences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from experiments import _data


@dataclass(frozen=True)
class Words:
    """Stacked letters (CSR pixels), their labels, and the number of letters of each word."""

    X: sp.csr_array
    y: np.ndarray
    lengths: np.ndarray

    def first(self, n: int) -> Words:
        """The first n words."""
        rows = int(self.lengths[:n].sum())
        return Words(self.X[:rows], self.y[:rows], self.lengths[:n])

    def where(self, kept: np.ndarray) -> Words:
        """The words marked in `kept`."""
        rows = np.repeat(kept, self.lengths)
        return Words(self.X[rows], self.y[rows], self.lengths[kept])

    def labels(self) -> list[str]:
        """The words as strings."""
        ends = np.cumsum(self.lengths)
        text = "".join(self.y.tolist())
        return [text[end - length : end] for end, length in zip(ends, self.lengths, strict=True)]


def load_words(split: str) -> Words:
    """Fold 0 ("train", 626 words) or the other nine folds ("test", 6251 words)."""
    data = _data.load("ocr-letters")
    rows = data.train if split == "train" else data.test
    word = data.per_row["word"][rows]
    lengths = np.unique(word, return_counts=True)[1]
    return Words(sp.csr_array(data.X[rows]), data.y[rows], lengths)
