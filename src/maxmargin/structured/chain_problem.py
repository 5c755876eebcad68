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
optimization for multi-class SVM" (2016), eq. (11) and (12), lambda = 1 / (C * sum of weights)
and P_paper = lambda * P.

With constant features of size s, w = (U, R / s, ...) and Psi = s (Psi of rows x / s and ones). The loops work
on the rows x / s, the losses Delta / s and the costs s C_i, which give the same P and D.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.structured.atoms import CAPACITY, Atoms
from maxmargin.structured.block_solver import chunks
from maxmargin.structured.chain_loops import Chain, ChainWeights, ChainWork, decode


def weights_of_vector(vector: np.ndarray, n_labels: int) -> ChainWeights:
    """The parts of a flat vector w as views: U (features x K), R (K x K), B (bias, first, last)."""
    K = n_labels
    edge = vector.size - K * K - 3 * K
    return ChainWeights(
        vector[:edge].reshape(-1, K),
        vector[edge : edge + K * K].reshape(K, K),
        vector[edge + K * K :].reshape(3, K),
    )


def _divided(rows: Rows, scaling: float) -> Rows:
    """The rows x / s, in double precision, so that their weights are those of x."""
    matrix = rows.matrix.astype(np.float64)
    matrix /= scaling
    return Rows.of(matrix)


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
    scaling : float
        Size s of the constant features.
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
        scaling: float = 1.0,
        n_threads: int = 1,
    ) -> None:
        self.rows = rows = rows if scaling == 1 else _divided(rows, scaling)
        self.scaling = scaling
        self.offsets = readonly(offsets.astype(np.int64))
        self.y = readonly(y.astype(np.int64))
        self.n_labels = n_labels
        self.lengths = np.diff(self.offsets)
        n = self.lengths.size
        weights = np.ones(n) if sample_weight is None else sample_weight
        self.costs = readonly(scaling * C * weights)
        self.loss = readonly((1.0 / self.lengths if normalize_loss else np.ones(n)) / scaling)
        self.blocks = Chain(rows.flat, self.offsets, self.y, self.costs, self.loss)
        self.size = (rows.shape[1] + n_labels + 3) * n_labels
        self.n_threads = n_threads

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def shaped(self, vector: np.ndarray) -> ChainWeights:
        """A vector of weights in the form of the loops."""
        return weights_of_vector(vector, self.n_labels)

    def hinges(self, vector: np.ndarray) -> np.ndarray:
        """max_z H_i(z) of every sequence."""
        out, labels = np.empty(self.lengths.size), np.empty(self.y.size, np.int64)
        # Writable views, as in the epochs, so that numba compiles one signature.
        weights = self.shaped(vector)

        def part(bounds: tuple[int, int]) -> None:
            un, forward = np.empty((2, self.longest, self.n_labels))
            decode(self.blocks, *bounds, weights, un, forward, labels, out)

        run_threads(part, chunks(self.offsets, self.n_threads), self.n_threads)
        return out

    def primal(self, vector: np.ndarray) -> float:
        """P at w, eq. (11)."""
        return float(0.5 * (vector @ vector) + self.costs @ self.hinges(vector))

    def dual(self, vector: np.ndarray, expected_loss: np.ndarray) -> float:
        """D, eq. (12), from w and E Delta of every sequence."""
        return float(self.costs @ expected_loss - 0.5 * (vector @ vector))

    def true_atoms(self, capacity: int = CAPACITY) -> Atoms:
        """All weight on the true labelings: w = 0."""
        atoms = Atoms.empty(self.lengths, np.full(self.lengths.size, capacity))
        atoms.filled[:] = 1
        atoms.alpha[atoms.atom_at[:-1]] = 1.0
        within = np.arange(self.y.size) - np.repeat(self.offsets[:-1], self.lengths)
        atoms.answers[np.repeat(atoms.answer_at[:-1], self.lengths) + within] = self.y
        return atoms

    def workspace(self) -> ChainWork:
        """Workspace of the loops over lists of labelings."""
        un, forward = np.zeros((2, self.longest, self.n_labels))
        return ChainWork(un, forward, np.zeros(self.longest, np.int64), self.shaped(np.zeros(self.size)))
