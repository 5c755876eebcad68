"""Online exponentiated gradient on chains (Collins et al. 2008).

Problem, dual and gap as in problems/chain.py. Block i keeps log potentials theta_i of a
chain distribution alpha_i. A visit adds the potentials of H_i / tau_i to theta_i, which
multiplies alpha_i(z) by exp(H_i(z) / tau_i), and reads the new marginals off a
forward-backward pass. There is no step size, so the distribution stays a chain.

tau_i = C_i D_i^2 / 8 (the default, `safe_temperatures`) can never lower the dual; it is safe
and, for long sequences, slow. It starts near the truth: independent nodes with 0.99 on it.
Each epoch ends with an evaluation; stopping: see solvers/_chain.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.structured.chain_marginal import MarginalMethod, safe_temperatures, softened_logs
from maxmargin.structured.chain_soft_loops import oeg_epoch

SOFTNESS = 1e-2
Potentials = tuple[np.ndarray, np.ndarray]


class ChainExponentiatedGradient(MarginalMethod):
    """The method above; `temperature` None takes the safe one of each sequence."""

    def __init__(
        self,
        problem: Any,
        rng: np.random.RandomState,
        tol: float,
        state: Potentials | None = None,
        temperature: float | None = None,
    ) -> None:
        super().__init__(problem, rng, tol)
        self.make_messages()
        tau = safe_temperatures(problem) if temperature is None else np.full(problem.costs.size, temperature)
        self.rates = np.divide(1.0, tau, out=np.zeros_like(tau), where=tau > 0)
        if state is None:
            K = problem.n_labels
            state = softened_logs(problem.y, K, SOFTNESS), np.zeros((problem.lengths.size, K, K))
        self.theta_un: np.ndarray = state[0]
        self.theta_pr: np.ndarray = state[1]
        self.restore()

    @property
    def state(self) -> Potentials:
        return self.theta_un, self.theta_pr

    def visit(self, order: np.ndarray) -> None:
        self._sweep(order, self.rates, self.weights)

    def restore(self) -> None:
        """Recompute the marginals from the potentials, then w."""
        everything = np.arange(self.problem.lengths.size)
        self._sweep(everything, np.zeros_like(self.rates), self.problem.weights())
        super().restore()

    def _sweep(self, order: np.ndarray, rates: np.ndarray, weights: Any) -> None:
        self.stamp = oeg_epoch(
            *self.data, order, *weights.parts, self.scratch.U, self.scratch.B, self.mu, self.pairs,
            self.theta_un, self.theta_pr, rates, *self.messages, *self.moves,
        )  # fmt: skip
