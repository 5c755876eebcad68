"""A bias that follows its samples without being shaken by each of them.

The bias is a constant feature s. Plain coordinate ascent keeps it at s S, S = sum_i y_i alpha_i,
so every step of one sample moves the scores of all others; the steps fight over the bias and
convergence slows down, badly so for a large s. Here the bias is a primal variable b = s u of
its own, found by the proximal point method: with h(b) the best dual value for a given bias,

    b_new = argmin  h(b) + (b - b_old)^2 / (2 rho'),     1/rho = 1/s^2 + 1/rho'.

Within one such problem b answers a step d of a sample by rho d, and going to the next one moves
it by rho (S - b / s^2). One pass is taken per problem. rho = s^2 is the plain method; a small rho
decouples the samples, but lets the bias travel slowly when it has far to go. So every label
starts with a small rho and raises it whenever an epoch did not pay. The certificate accounts for
whatever distance between b and s^2 S is left.
"""

from __future__ import annotations

import numpy as np

# First rho, relative to the mean squared norm of a sample.
RELATIVE_RATE = 0.05
# An epoch pays when it leaves less than this share of a label's gap; otherwise rho grows.
PAYS = 0.7
GROWTH = 4.0


class BiasPull:
    """rho / s^2 of every label: how strongly its bias is drawn to its dual value."""

    def __init__(self, bias: float, q: np.ndarray, n_labels: int) -> None:
        typical = float(np.mean(q))
        start = min(1.0, RELATIVE_RATE * typical / bias**2) if bias and typical > 0 else 1.0
        self.pull = np.full(n_labels, start)
        self.last = np.full(n_labels, np.inf)

    def learn(self, gap: np.ndarray, lag_share: np.ndarray) -> None:
        """Raise rho where the gap hardly fell and the bias has a part in it."""
        slow = (gap > PAYS * self.last) & (lag_share > 0.01 * gap)
        self.pull = np.where(slow, np.minimum(GROWTH * self.pull, 1.0), self.pull)
        self.last = gap.copy()
