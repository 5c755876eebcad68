"""The methods of the paper on chains, whose state is a set of marginals: BCFW, BCPL and OEG.

Problem, dual and gap are in chain_problem.py; epochs, evaluations and certificates in
`block_solver.BlockSolver`. The default, pairwise steps on stored labelings, is `atoms.on_atoms`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.structured.block_solver import Blocks, BlockSolver
from maxmargin.structured.chain_paper_loops import (
    EdgeMarginals,
    Marginals,
    MarginalWork,
    Potentials,
    bcfw_epoch,
    calibrate,
    oeg_epoch,
    read_all_marginals,
)
from maxmargin.structured.chain_problem import ChainProblem
from maxmargin.structured.oracle_loops import SoftRule, bcpl_epoch, weights_of_state

# Mass that a start takes from the truth.
SOFTNESS = 1e-2
# The automatic temperature of BCPL, relative to the largest loss of a sequence.
SHARE = 0.1
# A step of BCPL is at most 1 - EPSILON.
EPSILON = 2.2204e-16


class MarginalBlocks(Blocks):
    """Node marginals mu (rows x K), summed edge marginals pairs (n x K x K), and their w.

    E Phi and E Delta are linear in the marginals, so w is linear in them and D quadratic.
    """

    problem: ChainProblem
    state: Any

    def __init__(self, problem: ChainProblem) -> None:
        super().__init__(problem, problem.blocks)
        self.work = MarginalWork.empty(problem.longest, problem.n_labels, problem.rows.shape[1])

    @property
    def dual(self) -> Any:
        return self.state

    def fresh(self) -> Any:
        """The marginals of the dual solution, without the rounding of many steps."""
        return self.state

    def expected_loss(self) -> np.ndarray:
        return self._expected_loss(self.state.mu)

    def recompute(self) -> tuple[np.ndarray, np.ndarray]:
        state = self.fresh()
        return self._weights(state), self._expected_loss(state.mu)

    def synchronise(self) -> None:
        self.state = self.fresh()
        self.vector[:] = self._weights(self.state)

    def _weights(self, state: Any) -> np.ndarray:
        vector = np.zeros_like(self.vector)
        weights_of_state(self.blocks, state, self.problem.shaped(vector), self.work)
        return vector

    def _expected_loss(self, mu: np.ndarray) -> np.ndarray:
        p, wrong = self.problem, mu.copy()
        wrong[np.arange(p.y.size), p.y] = 0.0
        return p.loss * np.add.reduceat(wrong.sum(axis=1), p.offsets[:-1])


class FrankWolfe(MarginalBlocks):
    """Block-coordinate Frank-Wolfe (Lacoste-Julien et al. 2013; Algorithm 2 with tau = 0).

    A visit of block i finds z = argmax H_i by Viterbi and moves its marginals by gamma (1_z -
    mu_i), with the exact line search, eq. (10),

        gamma = clip((H_i(z) - E_mu H_i) / (C_i |Phi(x_i, z) - E_mu Phi|^2), 0, 1).

    It starts at the truth, w = 0.
    """

    name = "bcfw"

    def __init__(self, problem: ChainProblem, start: Marginals | None = None) -> None:
        super().__init__(problem)
        if start is None:
            self.state = true_marginals(problem)
        else:
            self.state = Marginals(*(part.copy() for part in start))
            self.synchronise()

    def visit(self, order: np.ndarray) -> None:
        bcfw_epoch(self.blocks, self.w, self.state, order, self.gaps, self.work)


class PartialLinearisation(MarginalBlocks):
    """Block-coordinate partial linearisation, Algorithm 2, in marginal space.

    The paper's target for block i, eq. (9), is s(z) ~ alpha_i(z) exp(H_i(z) / tau). After a step of length
    gamma < 1 the distribution alpha_i is a mixture, whose logarithm is not a sum over edges, and
    forward-backward cannot compute s. Objective and weights depend on the marginals mu_i only, so every visit
    replaces alpha_i by the chain p_mu of largest entropy with the same marginals. The objective does not
    change, and the step is the paper's from there.

        s ~ p_mu(z) exp(H_i(z) / tau) by forward-backward,
        gamma = clip((E_s H - E_mu H) / (C_i |E_s Phi - E_mu Phi|^2), 0, 1 - epsilon),
        mu_e <- (1 - gamma) mu_e + gamma s_e on every edge.

    For L <= 2 this is the paper's algorithm. With a small tau it stalls: masses shrink by exp(-range(H) /
    tau).

    Parameters
    ----------
    problem : ChainProblem
    start : EdgeMarginals or None
        Marginals of an earlier fit; None starts at independent nodes with 1 - SOFTNESS on the truth.
    temperature : float or "auto"
        tau; "auto" is `SHARE` of the largest loss of each sequence.
    safeguard : bool
        Take the Frank-Wolfe step if its gain is larger, so that no step is worse than one of BCFW.
    floor : float
        Share of the uniform chain to blend in after each step, which keeps every marginal positive and avoids
        underflow in products of factors (`chain_paper_loops.WIDEST`).
    """

    name = "bcpl"

    def __init__(
        self,
        problem: ChainProblem,
        start: EdgeMarginals | None = None,
        temperature: float | str = "auto",
        safeguard: bool = True,
        *,
        floor: float = 1e-15,
    ) -> None:
        super().__init__(problem)
        lengths = problem.lengths
        tau = SHARE * problem.loss * lengths if temperature == "auto" else np.full(lengths.size, temperature)
        self.rule = SoftRule(1.0 / tau, 1.0 - EPSILON, floor, safeguard)
        if start is None:
            self._soften(SOFTNESS)
            self._soften(SOFTNESS * self.best_share())
        else:
            self.state = EdgeMarginals(*(part.copy() for part in start))
            self.synchronise()

    def _soften(self, softness: float) -> None:
        """Start at independent nodes with 1 - softness on the truth."""
        nodes = np.exp(softened_logs(self.problem, softness))
        self.state = independent_edges(nodes, self.problem.offsets)
        self.synchronise()

    def visit(self, order: np.ndarray) -> None:
        bcpl_epoch(self.blocks, self.w, self.state, self.rule, order, self.gaps, self.work)

    def fresh(self) -> Marginals:
        """Consistent marginals, without a copy of those of the edges."""
        state = Marginals(np.zeros_like(self.state.mu), np.zeros_like(self.state.pairs))
        calibrate(self.blocks, self.state, state, False, self.w.R, np.zeros_like(self.work.edges), self.work)
        return state

    def synchronise(self) -> None:
        state = Marginals(self.state.mu, self.state.pairs)
        calibrate(self.blocks, self.state, state, True, self.w.R, self.work.edges, self.work)
        self.vector[:] = self._weights(state)


class ExponentiatedGradient(MarginalBlocks):
    """Online exponentiated gradient (Collins et al. 2008; Algorithm 2 with gamma = 1).

    Block i stores log potentials theta_i of a chain distribution alpha_i. A visit adds the potentials of H_i
    / tau_i to theta_i, which multiplies alpha_i(z) by exp(H_i(z) / tau_i), and computes the new marginals by
    forward-backward. There is no step size, so the distribution stays a chain.

    With tau_i = C_i D_i^2 / 8 (`temperature` "auto", see `safe_temperatures`) no step lowers the dual; long
    sequences converge slowly. The start is independent nodes with 1 - SOFTNESS on the truth.
    """

    name = "oeg"

    def __init__(
        self,
        problem: ChainProblem,
        start: Potentials | None = None,
        temperature: float | str = "auto",
    ) -> None:
        super().__init__(problem)
        n = problem.lengths.size
        tau = safe_temperatures(problem) if temperature == "auto" else np.full(n, temperature, float)
        self.rates = np.divide(1.0, tau, out=np.zeros(n), where=tau > 0)
        if start is None:
            self._soften(SOFTNESS)
            self._soften(SOFTNESS * self.best_share())
        else:
            self.potentials = Potentials(*(part.copy() for part in start))
            self.synchronise()

    def _soften(self, softness: float) -> None:
        """Start at independent nodes with 1 - softness on the truth."""
        p = self.problem
        pairs = np.zeros((p.lengths.size, p.n_labels, p.n_labels))
        self.potentials = Potentials(softened_logs(p, softness), pairs)
        self.synchronise()

    @property
    def dual(self) -> Potentials:
        return self.potentials

    def visit(self, order: np.ndarray) -> None:
        oeg_epoch(self.blocks, self.w, self.state, self.potentials, self.rates, order, self.gaps, self.work)

    def fresh(self) -> Marginals:
        """Marginals of the potentials."""
        state = true_marginals(self.problem)
        read_all_marginals(self.blocks, state, self.potentials, self.work)
        return state


def frank_wolfe(
    problem: ChainProblem, rng: np.random.RandomState, tol: float, start: Any = None
) -> BlockSolver:
    """The solver with `FrankWolfe` steps."""
    return BlockSolver(problem, FrankWolfe(problem, start), rng, tol)


def partial_linearisation(
    problem: ChainProblem, rng: np.random.RandomState, tol: float, start: Any = None, **options: Any
) -> BlockSolver:
    """The solver with steps of `PartialLinearisation`."""
    return BlockSolver(problem, PartialLinearisation(problem, start, **options), rng, tol)


def exponentiated_gradient(
    problem: ChainProblem, rng: np.random.RandomState, tol: float, start: Any = None, **options: Any
) -> BlockSolver:
    """The solver with steps of `ExponentiatedGradient`."""
    return BlockSolver(problem, ExponentiatedGradient(problem, start, **options), rng, tol)


def left_ends(offsets: np.ndarray) -> np.ndarray:
    """Rows with a right neighbour in their sequence."""
    left = np.ones(offsets[-1], bool)
    left[offsets[1:] - 1] = False
    return np.flatnonzero(left)


def true_marginals(problem: ChainProblem) -> Marginals:
    """The marginals of the true labelings."""
    y, n, K = problem.y, problem.lengths.size, problem.n_labels
    mu, pairs = np.zeros((y.size, K)), np.zeros((n, K, K))
    mu[np.arange(y.size), y] = 1.0
    t = left_ends(problem.offsets)
    sequence = np.repeat(np.arange(n), problem.lengths)[t]
    np.add.at(pairs, (sequence, y[t], y[t + 1]), 1.0)
    return Marginals(mu, pairs)


def softened_logs(problem: ChainProblem, softness: float) -> np.ndarray:
    """Log marginals of independent nodes: 1 - softness on the truth, the rest spread evenly."""
    y, K = problem.y, problem.n_labels
    if K == 1:
        return np.zeros((y.size, 1))
    logs = np.full((y.size, K), np.log(softness / (K - 1)))
    logs[np.arange(y.size), y] = np.log1p(-softness)
    return logs


def independent_edges(nodes: np.ndarray, offsets: np.ndarray) -> EdgeMarginals:
    """Marginals of independent nodes, edge after edge of every sequence."""
    K = nodes.shape[1]
    t = left_ends(offsets)
    edges = nodes[t][:, :, None] * nodes[t + 1][:, None, :]
    edge_at = np.concatenate([[0], np.cumsum(np.diff(offsets) - 1)])
    return EdgeMarginals(nodes, np.zeros((offsets.size - 1, K, K)), edges, edge_at)


def safe_temperatures(problem: ChainProblem) -> np.ndarray:
    """tau_i = C_i D_i^2 / 8, at which an exponentiated-gradient step cannot lower the dual.

    D_i^2 <= 2 [(sum_t |x_t|)^2 + (L - 1)^2 + L^2 + 2] bounds the squared distance between the
    features of two labelings.
    """
    norms = np.add.reduceat(np.sqrt(problem.rows.squared_norms()), problem.offsets[:-1])
    L = problem.lengths
    return problem.costs * (norms**2 + (L - 1.0) ** 2 + L**2 + 2.0) / 4.0
