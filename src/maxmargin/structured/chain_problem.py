"""Chain-structured SVM: label a sequence of letters, words or frames jointly.

Sequence i has rows x_1..x_L and labels y in {0..K-1}^L. With weights w = (U, R, bias, first,
last) a labeling z scores

    score(z) = sum_t (U_{z_t} . x_t + bias_{z_t}) + sum_t R[z_t, z_{t+1}] + first_{z_1} + last_{z_L}
             = w . Phi(x, z).

Primal    P(w) = 1/2 |w|^2 + sum_i C_i max_z H_i(z),   H_i(z) = Delta(y_i, z) - w . Psi_i(z),
          Psi_i(z) = Phi(x_i, y_i) - Phi(x_i, z),  Delta = share (or number) of wrong labels.
Dual      D(alpha) = sum_i C_i E_{alpha_i} Delta - 1/2 |w|^2,  w = sum_i C_i E_{alpha_i} Psi_i,
          alpha_i a distribution over labelings.
Gap       P - D = sum_i C_i [max_z H_i(z) - E_{alpha_i} H_i], exact, by one Viterbi call each.

C_i = C * sample_weight_i. In the scaling of Mohapatra et al., "Partial linearization based
optimization for multi-class SVM", lambda = 1 / (C * sum of weights) and P_paper = lambda * P.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.structured.chain_loops import hinges


@dataclass
class ChainWeights:
    """One flat vector w and its parts as views: U (features x K), R (K x K), B (bias, first, last)."""

    vector: np.ndarray
    n_labels: int
    U: np.ndarray = field(init=False)
    R: np.ndarray = field(init=False)
    B: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        K, w = self.n_labels, self.vector
        edge = w.size - K * K - 3 * K
        self.U = w[:edge].reshape(-1, K)
        self.R = w[edge : edge + K * K].reshape(K, K)
        self.B = w[edge + K * K :].reshape(3, K)

    @classmethod
    def zeros(cls, n_features: int, n_labels: int) -> ChainWeights:
        return cls(np.zeros((n_features + n_labels + 3) * n_labels), n_labels)

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.U, self.R, self.B

    def copy(self) -> ChainWeights:
        return ChainWeights(self.vector.copy(), self.n_labels)


def pieces(offsets: np.ndarray, n_threads: int) -> list[tuple[int, int]]:
    """Cut the sequences into runs of about equal total length, a few for each thread."""
    n = offsets.size - 1
    if n_threads <= 1:
        return [(0, n)]
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], 4 * n_threads + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], cuts, [n]]))
    return [(int(a), int(b)) for a, b in itertools.pairwise(bounds)]


class ChainProblem:
    """Stacked rows of all sequences, their labels, and the objective above.

    Parameters
    ----------
    rows : Rows
        Rows of all sequences, one after the other.
    offsets : ndarray of shape (n + 1,)
        Sequence i is the rows offsets[i]..offsets[i + 1] - 1.
    y : ndarray of int
        Label of every row, 0..K-1.
    n_labels : int
    C : float
    sample_weight : ndarray of shape (n,), optional
    normalize_loss : bool
        Divide the Hamming loss of a sequence by its length.
    n_threads : int
        Threads for passes over all sequences at fixed weights.
    """

    def __init__(
        self,
        rows: Rows,
        offsets: np.ndarray,
        y: np.ndarray,
        n_labels: int,
        C: float,
        sample_weight: np.ndarray | None = None,
        normalize_loss: bool = True,
        n_threads: int = 1,
    ) -> None:
        self.rows = rows
        self.offsets = readonly(offsets.astype(np.int64))
        self.y = readonly(y.astype(np.int64))
        self.n_labels = n_labels
        self.lengths = np.diff(self.offsets)
        n = self.lengths.size
        weights = np.ones(n) if sample_weight is None else sample_weight
        self.costs = readonly(C * weights)
        self.loss = readonly(1.0 / self.lengths if normalize_loss else np.ones(n))
        self.n_threads = n_threads

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def weights(self) -> ChainWeights:
        """Zero weights."""
        return ChainWeights.zeros(self.rows.shape[1], self.n_labels)

    def hinges(self, weights: ChainWeights) -> np.ndarray:
        """max_z H_i(z) of every sequence."""
        out = np.empty(self.lengths.size)

        def part(bounds: tuple[int, int]) -> None:
            un, forward = np.empty((2, self.longest, self.n_labels))
            path = np.empty(self.longest, np.int64)
            parts = (readonly(p) for p in weights.parts)
            hinges(self.rows.flat, self.offsets, *bounds, self.y, self.loss, *parts, un, forward, path, out)

        run_threads(part, pieces(self.offsets, self.n_threads), self.n_threads)
        return out

    def primal(self, weights: ChainWeights) -> float:
        w = weights.vector
        return float(0.5 * (w @ w) + self.costs @ self.hinges(weights))

    def dual(self, weights: ChainWeights, expected_loss: np.ndarray) -> float:
        """D from w and E Delta of every sequence."""
        w = weights.vector
        return float(self.costs @ expected_loss - 0.5 * (w @ w))
