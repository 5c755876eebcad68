"""Block-coordinate partial linearisation on chains, in marginal space.

Problem, dual and gap as in problems/chain.py. The paper's target for block i (Mohapatra et
al., eq. 9) is s(z) ~ alpha_i(z) exp(H_i(z) / tau). After a step of length gamma < 1 the
distribution alpha_i is a mixture, whose log is no sum over edges, so s is out of reach of
forward-backward. Objective and weights depend on the marginals mu_i only, therefore alpha_i
is replaced at every visit by the chain p_mu of largest entropy with the same marginals:
nothing changes in the objective, and the step is the paper's from there.

    s ~ p_mu(z) exp(H_i(z) / tau) by forward-backward,
    gamma = clip((E_s H - E_mu H) / (C_i |E_s Phi - E_mu Phi|^2), 0, 1 - EPSILON),
    mu_e <- (1 - gamma) mu_e + gamma s_e on every edge.

For L <= 2 it is the paper's algorithm. Small tau makes it stall, as mass shrinks by
exp(-range(H) / tau); the safeguard takes the Frank-Wolfe step instead where that promises
the larger decrease, so that no step is worse than one of BCFW. A floor of the uniform chain
keeps every marginal alive.

It starts near the truth: independent nodes with 0.99 on it. Stopping: see solvers/_chain.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.structured.chain_marginal import MarginalMethod, softened_logs
from maxmargin.structured.chain_soft_loops import bcpl_epoch, calibrate

SOFTNESS = 1e-2
EPSILON = 2.2204e-16
FLOOR = 1e-15
# Temperature per unit of the largest loss.
DEFAULT_TEMPERATURE = 0.1
# Node and edge marginals are made consistent again after this many epochs.
CALIBRATE_EVERY = 50
Marginals = tuple[np.ndarray, np.ndarray]


class ChainPartialLinearisation(MarginalMethod):
    """The method above; `temperature` None takes 0.1 of the largest loss of each sequence."""

    def __init__(
        self,
        problem: Any,
        rng: np.random.RandomState,
        tol: float,
        state: Marginals | None = None,
        temperature: float | None = None,
        safeguard: bool = True,
        epsilon: float = EPSILON,
        floor: float = FLOOR,
    ) -> None:
        super().__init__(problem, rng, tol)
        K, lengths = problem.n_labels, problem.lengths
        tau = DEFAULT_TEMPERATURE * problem.loss * lengths
        self.rates = 1.0 / (tau if temperature is None else np.full(lengths.size, temperature))
        self.safeguard, self.longest_step, self.floor = safeguard, 1.0 - epsilon, floor
        self.gaps = np.where(problem.costs > 0, np.inf, 0.0) if safeguard else None
        self.collected = np.zeros(lengths.size) if self.gaps is None else self.gaps
        self.edge_at = np.concatenate([[0], np.cumsum((lengths - 1) * K * K)])
        self.make_messages()
        self.phi = np.zeros((problem.longest, K))
        if state is None:
            nodes = np.exp(softened_logs(problem.y, K, SOFTNESS))
            state = nodes, independent_edges(nodes, problem.offsets)
        self.mu, self.edge_marginals = state
        self.restore()

    @property
    def state(self) -> Marginals:
        return self.mu, self.edge_marginals

    def visit(self, order: np.ndarray) -> None:
        self.stamp = bcpl_epoch(
            *self.data, order, *self.weights.parts, self.scratch.U, self.scratch.B, self.mu, self.pairs,
            self.edge_marginals, self.edge_at, self.rates, self.longest_step, self.floor, self.safeguard,
            self.collected, *self.messages[:-1], self.table[0], self.path, self.phi, *self.moves,
        )  # fmt: skip

    def expected_loss(self) -> np.ndarray:
        if self.epochs % CALIBRATE_EVERY == CALIBRATE_EVERY - 1:
            self.restore()
        return super().expected_loss()

    def restore(self) -> None:
        """Make the marginals consistent, then recompute w from them."""
        calibrate(
            self.problem.offsets, self.mu, self.pairs, self.edge_marginals, self.edge_at, self.weights.R,
            *self.messages[:-1], self.table[0], self.phi,
        )  # fmt: skip
        super().restore()


def independent_edges(nodes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Edge marginals of independent nodes, edge after edge of every sequence, flat."""
    left = np.ones(len(nodes), bool)
    left[offsets[1:] - 1] = False
    t = np.flatnonzero(left)
    return (nodes[t][:, :, None] * nodes[t + 1][:, None, :]).reshape(-1)
