"""Block-coordinate partial linearisation over all pairs (candidate, class) of each bag.

Problem and dual as in problems/latent.py, rounds and stopping rule in latent_rounds.py. The
target of block i is s(h, k) ~ alpha_i(h, k) exp(H_i(h, k) / tau_i), the step the exact line
search (E_s H - E H) / (C_i |E_s Phi - E Phi|^2), at most 1 - EPSILON. With the safeguard the
best pair itself is the target where that promises the larger decrease, so that no step is
worse than one of Frank-Wolfe. A floor of the uniform distribution keeps every pair alive.

tau_i = 0.1 C_i max_h |x_h|^2 unless given. It starts at 1 - SOFTNESS on (h*_i, y_i).
Memory: one number for every candidate and class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.structured.latent_loops import bcpl_epoch, weights_of_alpha
from maxmargin.structured.latent_rounds import LatentRounds

SOFTNESS = 1e-3
EPSILON = 2.2204e-16
FLOOR = 1e-15
DEFAULT_TEMPERATURE = 0.1


class LatentPartialLinearisation(LatentRounds):
    """The method above."""

    def __init__(
        self,
        problem: Any,
        *arguments: Any,
        temperature: float | None = None,
        safeguard: bool = True,
        **options: Any,
    ) -> None:
        self.safeguard = safeguard
        tau = DEFAULT_TEMPERATURE * problem.curvatures()
        tau = tau if temperature is None else np.full(tau.size, temperature)
        self.rates = np.divide(1.0, tau, out=np.ones_like(tau), where=tau > 0)
        features, c, largest = problem.rows.shape[1], problem.n_classes, problem.largest
        self.V = np.zeros((features + 1, c))
        self.H, self.target, self.d = np.zeros((3, largest, c))
        self.columns, self.seen = np.zeros(features, np.int64), np.zeros(features, np.int64)
        self.stamp = 0
        super().__init__(problem, *arguments, **options)

    def visit(self, order: np.ndarray) -> None:
        p = self.problem
        self.stamp = bcpl_epoch(
            p.rows.flat, p.offsets, p.y, p.costs, p.bias, order, self.W, self.V, self.alpha, self.rates,
            1.0 - EPSILON, FLOOR, self.safeguard, self.gaps, self.H, self.target, self.d,
            self.columns, self.seen, self.stamp,
        )  # fmt: skip

    def restart(self) -> None:
        """1 - SOFTNESS on (h*_i, y_i), the rest spread evenly over the other pairs."""
        p = self.problem
        others = np.repeat(p.sizes * p.n_classes - 1, p.sizes)
        truth = p.offsets[:-1] + self.chosen, p.y
        self.alpha = np.repeat(SOFTNESS / np.maximum(others, 1)[:, None], p.n_classes, axis=1)
        self.alpha[truth] = np.where(others[p.offsets[:-1]] > 0, 1.0 - SOFTNESS, 1.0)
        self.restore()

    def follow(self, new: np.ndarray) -> None:
        """Exchange the weights of (old h*, y) and (new h*, y)."""
        p = self.problem
        old_pair, new_pair = (p.offsets[:-1] + self.chosen, p.y), (p.offsets[:-1] + new, p.y)
        self.alpha[old_pair], self.alpha[new_pair] = self.alpha[new_pair], self.alpha[old_pair]

    def expected_loss(self) -> np.ndarray:
        p = self.problem
        right = self.alpha[np.arange(p.offsets[-1]), np.repeat(p.y, p.sizes)]
        return 1.0 - np.add.reduceat(right, p.offsets[:-1])

    def restore(self) -> None:
        p = self.problem
        self.W[:] = 0.0
        self.stamp = weights_of_alpha(
            p.rows.flat, p.offsets, p.y, p.costs, p.bias, self.chosen, self.alpha, self.V, self.d,
            self.columns, self.seen, self.stamp, self.W,
        )  # fmt: skip

    def active(self) -> int:
        """Number of pairs that carry at least 1e-6 of their bag."""
        return int((self.alpha > 1e-6).sum())
