"""A bias that follows its samples without being shaken by each of them.

The bias is a constant feature s. Plain coordinate ascent keeps it at s S, S = sum_i y_i alpha_i,
so every step of one sample moves the scores of all others; the steps fight over the bias and
convergence slows down, badly so for a large s. Here the bias is a primal variable b = s u of
its own, found by the proximal point method: with h(b) the best dual value for a given bias,

    b_new = argmin  h(b) + (b - b_old)^2 / (2 rho'),     1/rho = 1/s^2 + 1/rho'.

Within one such problem b answers a step d of a sample by rho d (rho = s^2 would be the plain
method), and going to the next one moves it by rho (S - b / s^2). One pass is taken per problem.
The certificate accounts for whatever distance between b and s^2 S is left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# rho relative to the mean squared norm of a sample: small enough that samples hardly feel each
# other through the bias, large enough that the bias arrives within a few passes.
RELATIVE_RATE = 0.05


class BiasAnswer(NamedTuple):
    """How the bias row u answers: `give` per unit step of a sample, `pull` after each pass."""

    bias: float
    rate: float
    give: float
    pull: float

    @classmethod
    def choose(cls, bias: float, q: np.ndarray) -> BiasAnswer:
        """Pick rho for samples of squared norm q; all zero when there is no bias."""
        typical = float(np.mean(q))
        rate = min(bias**2, RELATIVE_RATE * typical) if typical > 0 else bias**2
        return cls(bias, rate, rate / bias, rate / bias**2) if bias else cls(0.0, 0.0, 0.0, 0.0)
