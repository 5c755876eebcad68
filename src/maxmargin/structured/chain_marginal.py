"""Dual solutions of chains kept as marginals, and the moves of weights that go with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.structured.chain_marginal_loops import weights_of_marginals
from maxmargin.structured.chain_solver import ChainMethod


class MarginalMethod(ChainMethod):
    """State: node marginals mu (rows x K) and summed edge marginals pairs (n x K x K).

    E Phi and E Delta are linear in them, hence so are w and D.
    """

    def __init__(self, problem: Any, rng: np.random.RandomState, tol: float) -> None:
        super().__init__(problem, rng, tol)
        K, longest, features = problem.n_labels, problem.longest, problem.rows.shape[1]
        self.mu = np.zeros((problem.y.size, K))
        self.pairs = np.zeros((problem.lengths.size, K, K))
        self.scratch = problem.weights()
        self.un, self.forward, self.d = np.zeros((3, longest, K))
        self.dR = np.zeros((K, K))
        self.path = np.zeros(longest, np.int64)
        self.columns, self.seen = np.zeros(features, np.int64), np.zeros(features, np.int64)
        self.stamp = 0

    def make_messages(self) -> None:
        """Allocate the workspace that `messages` names."""
        K, longest = self.problem.n_labels, self.problem.longest
        self.backward, self.nodes = np.zeros((2, longest, K))
        self.norms, self.work = np.zeros((2, longest)), np.zeros(K)
        self.edges = np.zeros((max(longest - 1, 1), K, K))
        self.table = np.zeros((1, K, K))

    @property
    def data(self) -> tuple[Any, ...]:
        """Rows, labels and costs, as every epoch takes them."""
        p = self.problem
        return p.rows.flat, p.offsets, p.y, p.costs, p.loss

    @property
    def moves(self) -> tuple[Any, ...]:
        """Workspace of a move."""
        return self.d, self.dR, self.columns, self.seen, self.stamp

    @property
    def messages(self) -> tuple[np.ndarray, ...]:
        """Workspace of a forward-backward pass and of the marginals it gives."""
        return (
            self.un,
            self.forward,
            self.backward,
            self.norms,
            self.work,
            self.nodes,
            self.edges,
            self.table,
        )

    def expected_loss(self) -> np.ndarray:
        p = self.problem
        wrong = 1.0 - self.mu[np.arange(p.y.size), p.y]
        return p.loss * np.add.reduceat(wrong, p.offsets[:-1])

    def active(self) -> int:
        """Number of (position, label) pairs that carry at least 1e-6 of their position."""
        return int((self.mu > 1e-6).sum())

    def restore(self) -> None:
        p = self.problem
        self.weights.vector[:] = 0.0
        self.stamp = weights_of_marginals(
            p.rows.flat, p.offsets, p.y, p.costs, self.mu, self.pairs, self.d, self.dR,
            self.scratch.U, self.scratch.B, self.columns, self.seen, self.stamp, *self.weights.parts,
        )  # fmt: skip


def truth_marginals(y: np.ndarray, offsets: np.ndarray, mu: np.ndarray, pairs: np.ndarray) -> None:
    """Write the marginals of the true labelings."""
    mu[:] = 0.0
    mu[np.arange(y.size), y] = 1.0
    pairs[:] = 0.0
    inner = np.ones(y.size, bool)
    inner[offsets[1:] - 1] = False
    t = np.flatnonzero(inner)
    sequence = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))[t]
    np.add.at(pairs, (sequence, y[t], y[t + 1]), 1.0)


def softened_logs(y: np.ndarray, n_labels: int, softness: float) -> np.ndarray:
    """Log marginals of independent nodes: 1 - softness on the truth, the rest spread evenly."""
    if n_labels == 1:
        return np.zeros((y.size, 1))
    logs = np.full((y.size, n_labels), np.log(softness / (n_labels - 1)))
    logs[np.arange(y.size), y] = np.log1p(-softness)
    return logs


def safe_temperatures(problem: Any) -> np.ndarray:
    """tau_i = C_i D_i^2 / 8, at which an exponentiated-gradient step cannot lower the dual.

    D_i^2 <= 2 [(sum_t |x_t|)^2 + (L - 1)^2 + L^2 + 2] bounds the squared distance between the
    features of two labelings.
    """
    norms = np.add.reduceat(np.sqrt(problem.rows.squared_norms()), problem.offsets[:-1])
    L = problem.lengths
    return problem.costs * (norms**2 + (L - 1.0) ** 2 + L**2 + 2.0) / 4.0
