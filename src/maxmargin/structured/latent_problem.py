"""Latent multi-class SVM: a sample is a bag of candidate rows, one of which shows its class.

Bag i has candidates x_h, h = 0..m_i - 1, and the class y_i; class k with candidate h scores
W_k . x_h, and a bag gets the class with the largest score over its candidates.

    J(W) = 1/2 |W|^2 + sum_i C_i { max_{h,k} [ [k != y_i] + W_k . x_h ] - max_h W_{y_i} . x_h }

is convex minus convex. With candidates h*_i chosen for the true classes, the majoriser

    J_h*(W) = 1/2 |W|^2 + sum_i C_i { max_{h,k} [ [k != y_i] + W_k . x_h ] - W_{y_i} . x_{h*_i} }

is convex, lies above J, and touches it where every h*_i is a best candidate. Its dual, with
alpha_i a distribution over the pairs (h, k) of bag i, is

    D(alpha) = sum_i C_i E_{alpha_i} [k != y_i] - 1/2 |W|^2,
    W_k = sum_i C_i ( [k = y_i] x_{h*_i} - sum_h alpha_i(h, k) x_h ).

Block gaps C_i (max H_i - E_{alpha_i} H_i), H_i(h, k) = [k != y_i] + W_k . x_h, sum to
J_h*(W) - D(alpha). C_i = C * sample_weight_i; in the scaling of the partial-linearization
paper lambda = 1 / (C * sum of weights). The bias is a constant feature, regularised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.structured.latent_loops import Bags, bag_scores, bag_values
from maxmargin.structured.oracle_loops import pieces


@dataclass(frozen=True)
class BagValues:
    """J and J_h* at some weights, and the best candidate of every true class there."""

    objective: float
    majoriser: float
    best: np.ndarray


class LatentProblem:
    """Stacked candidates of all bags, their classes, and the objectives above.

    Parameters
    ----------
    rows : Rows
        Candidates of all bags, one bag after the other.
    offsets : ndarray of shape (n + 1,)
        Bag i is the rows offsets[i]..offsets[i + 1] - 1.
    y : ndarray of int
        Class of every bag, 0..K-1.
    n_classes : int
    C : float
    sample_weight : ndarray of shape (n,), optional
    bias : float
        Value of the constant feature; 0 for none.
    n_threads : int
        Threads for passes over all bags at fixed weights.
    """

    def __init__(
        self,
        rows: Rows,
        offsets: np.ndarray,
        y: np.ndarray,
        n_classes: int,
        C: float,
        sample_weight: np.ndarray | None = None,
        bias: float = 0.0,
        n_threads: int = 1,
    ) -> None:
        self.rows = rows
        self.offsets = readonly(offsets.astype(np.int64))
        self.y = readonly(y.astype(np.int64))
        self.n_classes = n_classes
        self.sizes = np.diff(self.offsets)
        self.costs = readonly(C * (np.ones(self.y.size) if sample_weight is None else sample_weight))
        self.bias = float(bias)
        self.n_threads = n_threads

    @property
    def largest(self) -> int:
        return int(self.sizes.max())

    @property
    def size(self) -> int:
        return (self.rows.shape[1] + 1) * self.n_classes

    def shaped(self, vector: np.ndarray) -> np.ndarray:
        """A vector of weights as W, (features + 1) x classes."""
        return vector.reshape(-1, self.n_classes)

    def bags(self, chosen: np.ndarray) -> Bags:
        """The blocks of the majoriser with the candidates `chosen`."""
        return Bags(self.rows.flat, self.offsets, self.y, self.costs, readonly(chosen), self.bias)

    def curvatures(self) -> np.ndarray:
        """C_i max_h |x_h|^2, the scale of a temperature for bag i."""
        norms = self.rows.squared_norms() + self.bias**2
        return self.costs * np.maximum.reduceat(norms, self.offsets[:-1])

    def means(self) -> LatentProblem:
        """The problem with every bag replaced by the mean of its candidates."""
        X, n = self.rows.matrix, self.y.size
        if self.rows.dense:
            mean = np.add.reduceat(X, self.offsets[:-1], axis=0) / self.sizes[:, None]
        else:
            share = np.repeat(1.0 / self.sizes, self.sizes)
            average = sp.csr_array((share, np.arange(share.size), self.offsets), shape=(n, share.size))
            mean = sp.csr_array(average @ X)
        rows = Rows.of(mean)
        return LatentProblem(
            rows, np.arange(n + 1), self.y, self.n_classes, 1.0, self.costs, self.bias, self.n_threads
        )

    def values(self, vector: np.ndarray, chosen: np.ndarray) -> BagValues:
        """Evaluate J and the majoriser with the candidates `chosen` at W."""
        n, bags, W = self.y.size, self.bags(chosen), readonly(self.shaped(vector))
        found, best = np.empty((3, n)), np.empty(n, np.int64)

        def part(bounds: tuple[int, int]) -> None:
            bag_values(bags, *bounds, W, np.empty((self.largest, self.n_classes)), found, best)

        run_threads(part, pieces(self.offsets, self.n_threads), self.n_threads)
        hinge, at_chosen, at_best = found
        half = 0.5 * float(vector @ vector)
        return BagValues(
            half + float(self.costs @ (hinge - at_best)), half + float(self.costs @ (hinge - at_chosen)), best
        )

    def dual(self, vector: np.ndarray, expected_loss: np.ndarray) -> float:
        """D, eq. (12), from W and the expected loss of every bag."""
        return float(self.costs @ expected_loss) - 0.5 * float(vector @ vector)


def best_candidates(
    rows: Rows, offsets: np.ndarray, W: np.ndarray, n_threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Largest score of every class over the candidates of each bag, and the candidate that has it.

    The last row of W is added to every score.
    """
    n, K = offsets.size - 1, W.shape[1]
    scores, candidates = np.empty((n, K)), np.empty((n, K), np.int64)
    offsets, W = readonly(offsets.astype(np.int64)), readonly(W)

    def part(bounds: tuple[int, int]) -> None:
        bag_scores(rows.flat, offsets, *bounds, 1.0, W, np.empty(K), scores, candidates)

    run_threads(part, pieces(offsets, n_threads), n_threads)
    return scores, candidates
