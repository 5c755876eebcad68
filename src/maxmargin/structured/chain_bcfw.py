"""Block-coordinate Frank-Wolfe on chains (Lacoste-Julien et al. 2013; Algorithm 2 with tau = 0).

Problem, dual and gap as in problems/chain.py. A visit of block i finds z = argmax H_i by
Viterbi and moves its marginals by gamma (1_z - mu_i), with the exact line search

    gamma = clip((H_i(z) - E_mu H_i) / (C_i |Phi(x_i, z) - E_mu Phi|^2), 0, 1).

It starts at the truth, w = 0. Stopping: see solvers/_chain.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.structured.chain_marginal import MarginalMethod, truth_marginals
from maxmargin.structured.chain_marginal_loops import bcfw_epoch

Marginals = tuple[np.ndarray, np.ndarray]


class ChainFrankWolfe(MarginalMethod):
    """The method above; `state` is (mu, pairs) of an earlier fit on the same sequences."""

    def __init__(
        self, problem: Any, rng: np.random.RandomState, tol: float, state: Marginals | None = None
    ) -> None:
        super().__init__(problem, rng, tol)
        self.gaps = np.where(problem.costs > 0, np.inf, 0.0)
        if state is None:
            truth_marginals(problem.y, problem.offsets, self.mu, self.pairs)
        else:
            self.mu, self.pairs = state
            self.restore()

    @property
    def state(self) -> Marginals:
        return self.mu, self.pairs

    def visit(self, order: np.ndarray) -> None:
        self.stamp = bcfw_epoch(
            *self.data, order, *self.weights.parts, self.scratch.U, self.scratch.B, self.mu, self.pairs,
            self.gaps, self.un, self.forward, self.path, *self.moves,
        )  # fmt: skip
