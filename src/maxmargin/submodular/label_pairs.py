"""Which pairs of labels attract each other, and how strongly, from training labels.

n_ij is the (weighted) number of samples with both labels. "count" is n_ij divided by the largest
of them, "jaccard" is n_ij / (n_i + n_j - n_ij), which does not favour frequent labels. The pairs
kept are the floor(fraction V (V - 1) / 2) with the largest n_ij, ties in lexicographic order; a
pair that never occurs is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LabelPairs:
    """Pairs i < j (rows of `index`), most frequent first, and the scale of their feature."""

    index: np.ndarray
    strength: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


def cooccurrence(truth: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """n_ij for all labels, with n_ii the frequency of label i."""
    Y = truth.astype(np.float64)
    return Y.T @ (Y if weights is None else Y * weights[:, None])


def attractive_pairs(
    truth: np.ndarray, fraction: float, scale: float, method: str = "count", weights: np.ndarray | None = None
) -> LabelPairs:
    """The most frequent pairs of labels with strength `scale` times their normalised count."""
    counts = cooccurrence(truth, weights)
    i, j = np.triu_indices(len(counts), 1)
    n = counts[i, j]
    # The rounding guards a fraction such as 0.29 * 100, which is 28.999999999999996.
    keep = np.argsort(-n, kind="stable")[: int(np.floor(round(fraction * len(n), 9)))]
    keep = keep[n[keep] > 0]
    i, j, n = i[keep], j[keep], n[keep]
    if method == "jaccard":
        normalised = n / (counts[i, i] + counts[j, j] - n)
    else:
        normalised = n / counts[np.triu_indices(len(counts), 1)].max(initial=1e-300)
    strength = scale * normalised
    used = strength > 0
    return LabelPairs(np.column_stack([i, j])[used].astype(np.int64), strength[used])
