"""Cutting planes: the optimal weights for all answers found so far, by an interior point method.

Restricted to the answers j that the oracle has found for each block i, the structured SVM is a quadratic
program with few unknowns,

    min 1/2 |w|^2 + sum_i C_i xi_i   with slacks   s_j = xi_i + w . Psi_j - Delta_j >= 0,
    max sum_j a_j Delta_j - 1/2 |sum_j a_j Psi_j|^2   with   a_j >= 0, sum_{j of i} a_j = C_i,

Its solution gives a lower bound on the full problem, and the weights of the next oracle calls: the n-slack
method of Joachims, Finley and Yu, "Cutting-plane training of structural SVMs" (2009). The number of epochs of
block steps grows with C; cutting planes need about ten rounds at any C.

A step is that of `maxmargin.core.listed_qp`, with H factored: O(answers p^2 + p^3) for p weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from maxmargin.core.linalg import ridged_cholesky
from maxmargin.core.listed_qp import Equations, Point, max_step
from maxmargin.core.loop import Clock

# The largest number of products in the matrix of an iteration, early and late (after many slow epochs), and
# the largest number of entries of Psi (128 MB).
MOST_PRODUCTS = 1 << 30
MOST_LATE = 1 << 32
LARGEST = 1 << 24
# The largest number of weights for early cutting planes.
WIDEST = 256
# The share of the longest feasible step that is taken, and of the uniform distribution in the start.
SHORT_OF_BOUNDARY = 0.995
BLEND = 0.1


def affordable(answers: int, weights: int, late: bool = False) -> bool:
    """Whether answers and weights are few enough for cutting planes, early or late."""
    rows = max(answers, weights)
    if rows * weights > LARGEST:
        return False
    products = rows * weights**2
    return products <= MOST_LATE if late else weights <= WIDEST and products <= MOST_PRODUCTS


@dataclass(frozen=True)
class Listed:
    """Answers of all blocks, block after block: Psi_j, Delta_j, C_i, and where each block begins."""

    Psi: np.ndarray
    losses: np.ndarray
    costs: np.ndarray
    begins: np.ndarray

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum over the answers of every block."""
        return np.add.reduceat(values, self.begins, axis=0)

    def repeat(self, values: np.ndarray) -> np.ndarray:
        """Repeat the value of every block for each of its answers."""
        return np.repeat(values, np.diff(self.begins, append=len(self.Psi)), axis=0)

    def hinges(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Delta_j - w . Psi_j, and the largest of every block."""
        margins = self.losses - self.Psi @ w
        return margins, np.maximum.reduceat(margins, self.begins)

    def primal(self, w: np.ndarray) -> float:
        return 0.5 * float(w @ w) + float(self.costs @ self.hinges(w)[1])

    def dual(self, a: np.ndarray) -> float:
        v = a @ self.Psi
        return float(a @ self.losses) - 0.5 * float(v @ v)


def solve_listed(
    listed: Listed, w: np.ndarray, alpha: np.ndarray, precision: float, clock: Clock, most: int = 50
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and distributions near the optimum over the listed answers.

    Parameters
    ----------
    listed : Listed
    w : ndarray of shape (p,)
        Weights to start from.
    alpha : ndarray
        Share a_j / C_i of every answer, summing to 1 in each block.
    precision : float
        Stop when the gap has fallen to this share of the first one and the dual has risen.
    clock : Clock
        Its limit is checked before every iteration.
    most : int
        Maximum number of iterations; a slack of 0 by rounding also ends them.

    Returns
    -------
    w, alpha : ndarrays
        The same at the end.
    """
    costs = listed.repeat(listed.costs)
    first = listed.dual(costs * alpha)
    goal = precision * (listed.primal(w) - first)
    count = listed.repeat(listed.sums(np.ones(len(alpha))))
    a = costs * ((1.0 - BLEND) * alpha + BLEND / count)
    margins, hinges = listed.hinges(w)
    s = listed.repeat(hinges + BLEND * listed.losses.max()) - margins
    for _ in range(most):
        dual = listed.dual(a)
        if (dual > first and listed.primal(w) - dual <= goal) or clock.expired() or not s.min() > 0:
            break
        step = ListedEquations(listed, w, a, s).mehrotra()[0]
        length = min(1.0, SHORT_OF_BOUNDARY * float(min(max_step(a, step.alpha), max_step(s, step.slack))))
        w, s, a = w + length * step.theta, s + length * step.slack, a + length * step.alpha
    a = np.maximum(a, 0.0)
    return w, a / listed.repeat(listed.sums(a))


class ListedEquations(Equations):
    """The equations of a step from weights w, dual variables a and slacks s, where a_j is -Psi_j."""

    def __init__(self, listed: Listed, w: np.ndarray, a: np.ndarray, s: np.ndarray) -> None:
        self.listed, none = listed, np.empty(0)
        excess = listed.sums(a) - listed.costs
        super().__init__(Point(s, a, none, none, w - a @ listed.Psi, excess))
        means = listed.sums(self.d[:, None] * listed.Psi) / self.total[:, None]
        Z = listed.Psi - listed.repeat(means)
        Z *= np.sqrt(self.d)[:, None]
        H = Z.T @ Z
        H[np.diag_indices_from(H)] += 1.0
        self.factor = ridged_cholesky(H)

    def sums(self, values: np.ndarray) -> np.ndarray:
        return self.listed.sums(values)

    def repeat(self, values: np.ndarray) -> np.ndarray:
        return self.listed.repeat(values)

    def combine(self, weights: np.ndarray) -> np.ndarray:
        return -(weights @ self.listed.Psi)

    def scores(self, theta: np.ndarray) -> np.ndarray:
        return -(self.listed.Psi @ theta)

    def inverse(self, right: np.ndarray) -> np.ndarray:
        return np.asarray(cho_solve(self.factor, right))
