"""Chains as blocks whose state is a set of marginals: BCFW, BCPL and OEG.

Objective and weights depend on the distribution of block i only through its node marginals ``mu`` (rows x K,
all sequences stacked) and the sum of its edge marginals ``pairs`` (n x K x K). A step chooses target
marginals s, moves mu and pairs by gamma (s - mu), and w by -C_i gamma (E_s Phi - E_mu Phi).

BCPL also stores the marginals of all edges. The chain of largest entropy with these marginals, p(z) =
prod_edges mu_e / prod_interior mu_t, has the factors 1 / mu_t on interior nodes (1 on the two ends; mu_1 for
a single node) and mu_e on the edges. The target is p(z) exp(H(z) / tau).

OEG stores log potentials, theta_un (rows x K) and one table theta_pr (K x K) per sequence: theta += (un, R) /
tau, and the marginals of the new chain replace the old ones.

Both compute target marginals by forward-backward. If nothing can underflow (`is_narrow`), it multiplies
factors and rescales every message, without exponentials or logarithms per edge and transition. Otherwise it
adds logarithms, which is much slower and works for any range.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import scatter_rows, scattered_norm, subtract_scattered
from maxmargin.core.simplex import line_search
from maxmargin.structured.chain_loops import Chain, Messages, forward_backward, read_nodes
from maxmargin.structured.oracle_loops import (
    aim_at_best,
    away_from_truth,
    max_oracle,
    mix,
    move,
    scatter,
    toward_best,
    toward_soft,
)

# The largest range r of log factors, of a node and of an edge together, at which factors are multiplied.
# Every entry of a message depends on every entry of the previous one, so it is at least m exp(-r) times the
# largest entry, which is at least 1 / K of the sum. Here m = 1 for OEG, whose potentials are part of r, and m
# is the smallest edge marginal, floor / K^2, for BCPL. The product of a forward and a backward message is
# therefore at least m^2 exp(-2r) / K^2. For r = 250 and the floor 1e-15 that is 1e-247 / K^6, and doubles
# keep all digits down to 2e-308. The sum over an edge is at least m exp(-r) / K^2, so terms that underflow
# are negligible.
WIDEST = 250.0


class Marginals(NamedTuple):
    """Node marginals (rows x K) and summed edge marginals (n x K x K)."""

    mu: np.ndarray
    pairs: np.ndarray


class EdgeMarginals(NamedTuple):
    """The same with the marginals of all edges (edges x K x K), those of sequence i from edge_at[i]."""

    mu: np.ndarray
    pairs: np.ndarray
    edges: np.ndarray
    edge_at: np.ndarray


class Potentials(NamedTuple):
    """Log potentials: of nodes (rows x K) and of the edges of each sequence (n x K x K)."""

    theta_un: np.ndarray
    theta_pr: np.ndarray


class MarginalWork(NamedTuple):
    """Workspace of a step.

    Oracle (`un`, `forward`, `answer`), direction (`d`, `dR`), its features (`V`, `VB`, on the columns of
    X listed in `columns`, the last `counts`: a stamp and how many), target (`nodes`, `edges`), factors of
    its nodes or their logarithms (`phi`), factors of transitions (`table`), messages.
    """

    un: np.ndarray
    forward: np.ndarray
    answer: np.ndarray
    d: np.ndarray
    dR: np.ndarray
    V: np.ndarray
    VB: np.ndarray
    columns: np.ndarray
    seen: np.ndarray
    counts: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    phi: np.ndarray
    table: np.ndarray
    messages: Messages

    @classmethod
    def empty(cls, longest: int, n_labels: int, n_features: int) -> MarginalWork:
        K = n_labels
        un, forward, d, nodes, phi = np.zeros((5, longest, K))
        columns, seen = np.zeros((2, n_features), np.int64)
        return cls(
            un, forward, np.zeros(longest, np.int64), d, np.zeros((K, K)), np.zeros((n_features, K)),
            np.zeros((3, K)), columns, seen, np.zeros(2, np.int64), nodes,
            np.zeros((max(longest - 1, 1), K, K)), phi, np.zeros((1, K, K)), Messages.empty(longest, K),
        )  # fmt: skip


@helper(reorder=True)
def compute_features(rows, start, length, work):
    """Compute the features of the direction (d, dR) in V and VB."""
    d, VB, counts = work.d, work.VB, work.counts
    K = d.shape[1]
    VB[:] = 0.0
    for a in range(K):
        VB[1, a] = d[0, a]
        VB[2, a] = d[length - 1, a]
    for t in range(length):
        for a in range(K):
            VB[0, a] += d[t, a]
    counts[0] += 1
    counts[1] = scatter_rows(rows, start, length, d, work.V, work.columns, work.seen, counts[0])


@helper(reorder=True)
def squared_norm(work):
    """|E_s Phi - E_mu Phi|^2 of the features in `work`."""
    VB, dR = work.VB, work.dR
    total = scattered_norm(work.V, work.columns, work.counts[1])
    for a in range(VB.shape[1]):
        total += VB[0, a] * VB[0, a] + VB[1, a] * VB[1, a] + VB[2, a] * VB[2, a]
    for a in range(dR.shape[0]):
        for b in range(dR.shape[1]):
            total += dR[a, b] * dR[a, b]
    return total


@helper(reorder=True)
def subtract_features(w, scale, work):
    """w -= scale * (E_s Phi - E_mu Phi)."""
    U, R, B = w
    K = R.shape[0]
    subtract_scattered(scale, work.V, work.columns, work.counts[1], U)
    for r in range(3):
        for a in range(K):
            B[r, a] -= scale * work.VB[r, a]
    for a in range(K):
        for b in range(K):
            R[a, b] -= scale * work.dR[a, b]


@helper(reorder=True)
def slope_along(un, R, d, dR, length):
    """E_s H - E_mu H, the directional derivative over C_i."""
    K = dR.shape[0]
    total = 0.0
    for t in range(length):
        for a in range(K):
            total += un[t, a] * d[t, a]
    for a in range(K):
        for b in range(K):
            total += R[a, b] * dR[a, b]
    return total


@scatter.of(Chain)
def scatter_chain(chain, i, work):
    """Rows of the sequence times d, bias, first and last; the transitions are dR itself."""
    start = chain.offsets[i]
    compute_features(chain.rows, start, chain.offsets[i + 1] - start, work)
    return squared_norm(work)


@move.of(Chain)
def move_chain(chain, w, scale, work):
    subtract_features(w, scale, work)


@toward_best.of(Chain)
def toward_labeling(chain, w, state, i, work):
    """(d, dR) = indicator of the labeling minus the marginals."""
    start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    d, dR, path = work.d, work.dR, work.answer
    K = dR.shape[0]
    for a in range(K):
        for b in range(K):
            dR[a, b] = -state.pairs[i, a, b]
    for t in range(length):
        for a in range(K):
            d[t, a] = -state.mu[start + t, a]
        d[t, path[t]] += 1.0
        if t > 0:
            dR[path[t - 1], path[t]] += 1.0
    return slope_along(work.un, w.R, d, dR, length)


@away_from_truth.of(Chain)
def away_from_true_labeling(chain, state, i, work):
    """(d, dR) = marginals minus the truth; true labels get minus the others' mass: 1 - mu is rounded."""
    start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    d, dR, y = work.d, work.dR, chain.y
    K = dR.shape[0]
    for a in range(K):
        for b in range(K):
            dR[a, b] = state.pairs[i, a, b]
    for t in range(length):
        wrong = 0.0
        for a in range(K):
            d[t, a] = state.mu[start + t, a]
            if a != y[start + t]:
                wrong += d[t, a]
        d[t, y[start + t]] = -wrong
        if t > 0:
            dR[y[start + t - 1], y[start + t]] -= 1.0


@helper
def toward_target(mu, pairs, start, length, work):
    """(d, dR) = target marginals minus the current ones."""
    d, dR, nodes, edges = work.d, work.dR, work.nodes, work.edges
    K = dR.shape[0]
    for a in range(K):
        for b in range(K):
            dR[a, b] = -pairs[a, b]
    for t in range(length):
        for a in range(K):
            d[t, a] = nodes[t, a] - mu[start + t, a]
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                dR[a, b] += edges[t, a, b]


@helper
def largest(values):
    """The largest entry of a vector."""
    top = values[0]
    for a in range(values.shape[0]):
        top = max(top, values[a])
    return top


@helper
def range_of(values):
    """Largest minus smallest entry of a vector."""
    low = values[0]
    for a in range(values.shape[0]):
        low = min(low, values[a])
    return largest(values) - low


@helper
def is_narrow(un, pr, length, rate):
    """Whether the factors exp(rate * un) and exp(rate * pr) may be multiplied: see `WIDEST`."""
    widest = 0.0
    for t in range(length):
        widest = max(widest, range_of(un[t]))
    return rate * (widest + range_of(pr.reshape(pr.size))) < WIDEST


@helper(reorder=True)
def multiply_messages(phi, factors, stride, length, work):
    """Marginals of the chain with node factors phi and edge factors `factors`, into nodes and edges.

    Messages are scaled to sum 1; safe where `is_narrow` says so. See chain_loops.py for stride;
    `factors` may be the array of `edges` when it is 1.
    """
    K, nodes, edges = phi.shape[1], work.nodes, work.edges
    forward, backward = work.messages.forward, work.messages.backward
    # Forward messages, scaled to sum 1.
    for a in range(K):
        forward[0, a] = phi[0, a]
        backward[length - 1, a] = 1.0
    for t in range(1, length):
        table, before, row = factors[(t - 1) * stride], forward[t - 1], forward[t]
        for b in range(K):
            row[b] = 0.0
        for a in range(K):
            weight, line = before[a], table[a]
            for b in range(K):
                row[b] += weight * line[b]
        total = 0.0
        for b in range(K):
            row[b] *= phi[t, b]
        for b in range(K):
            total += row[b]
        for b in range(K):
            row[b] /= total
    # Until the last loop nodes[t] holds phi[t] * backward[t], the right factor of edge t - 1.
    for t in range(length - 2, -1, -1):
        table, row, after = factors[t * stride], backward[t], nodes[t + 1]
        for b in range(K):
            after[b] = phi[t + 1, b] * backward[t + 1, b]
        total = 0.0
        for a in range(K):
            line, value = table[a], 0.0
            for b in range(K):
                value += line[b] * after[b]
            row[a] = value
        for a in range(K):
            total += row[a]
        for a in range(K):
            row[a] /= total
    # Edge marginals, then node marginals.
    for t in range(length - 1):
        table, after, total = factors[t * stride], nodes[t + 1], 0.0
        for a in range(K):
            weight, line, out = forward[t, a], table[a], edges[t, a]
            for b in range(K):
                out[b] = weight * line[b] * after[b]
            for b in range(K):
                total += out[b]
        for a in range(K):
            for b in range(K):
                edges[t, a, b] /= total
    for t in range(length):
        total = 0.0
        for a in range(K):
            nodes[t, a] = forward[t, a] * backward[t, a]
        for a in range(K):
            total += nodes[t, a]
        for a in range(K):
            nodes[t, a] /= total


@helper
def add_log_messages(theta_un, theta_pr, stride, length, work):
    """Marginals from the logarithms of factors, of any range."""
    K, edges, messages = theta_un.shape[1], work.edges, work.messages
    forward_backward(theta_un, theta_pr, stride, length, messages)
    for t in range(length - 1):
        for a in range(K):
            reached = messages.forward[t, a] - messages.norms[1, t]
            for b in range(K):
                edges[t, a, b] = math.exp(
                    reached + theta_pr[t * stride, a, b] + theta_un[t + 1, b] + messages.backward[t + 1, b]
                )
    read_nodes(messages, length, work.nodes)


@helper
def exponentials(values, rate, out):
    """out = exp(rate * (values - max(values)))."""
    top = largest(values)
    for a in range(values.shape[0]):
        out[a] = math.exp(rate * (values[a] - top))


@helper
def add_scaled(target, values, rate):
    """target += rate * (values - max(values)): the shift changes no distribution, and no term overflows."""
    top = largest(values)
    for a in range(values.shape[0]):
        target[a] += rate * (values[a] - top)


@helper
def interior(t, length):
    """Exponent of mu_t in the chain of largest entropy: -1 inside, 0 at the ends, 1 if alone."""
    if length == 1:
        return 1
    return 0 if t == 0 or t == length - 1 else -1


@helper
def target_factors(mu, kept, start, length, R, rate, work):
    """Factors of p_mu(z) exp(rate * H(z)) into phi and edges."""
    K, phi, factors, table = R.shape[0], work.phi, work.edges, work.table[0]
    exponentials(R.reshape(K * K), rate, table.reshape(K * K))
    for t in range(length):
        exponentials(work.un[t], rate, phi[t])
        power = interior(t, length)
        for a in range(K):
            if power > 0:
                phi[t, a] *= mu[start + t, a]
            elif power < 0:
                phi[t, a] = phi[t, a] / mu[start + t, a] if mu[start + t, a] > 0.0 else 0.0
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                factors[t, a, b] = kept[t, a, b] * table[a, b]


@helper
def target_logs(mu, kept, start, length, R, rate, work):
    """Logarithms of the factors of p_mu(z) exp(rate * H(z)) into phi and edges."""
    K, phi, factors = R.shape[0], work.phi, work.edges
    top = largest(R.reshape(K * K))
    for t in range(length):
        power = interior(t, length)
        for a in range(K):
            phi[t, a] = 0.0
            if power != 0:
                known = mu[start + t, a] > 0.0
                phi[t, a] = power * math.log(mu[start + t, a]) if known else -np.inf
        add_scaled(phi[t], work.un[t], rate)
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                known = kept[t, a, b] > 0.0
                factors[t, a, b] = math.log(kept[t, a, b]) + rate * (R[a, b] - top) if known else -np.inf


@helper
def soft_target(state, i, start, length, R, rate, work):
    """Marginals of p_mu(z) exp(rate * H(z)), eq. (9), into nodes and edges."""
    kept = state.edges[state.edge_at[i] : state.edge_at[i + 1]]
    if is_narrow(work.un, R, length, rate):
        target_factors(state.mu, kept, start, length, R, rate, work)
        multiply_messages(work.phi, work.edges, 1, length, work)
    else:
        target_logs(state.mu, kept, start, length, R, rate, work)
        add_log_messages(work.phi, work.edges, 1, length, work)


@toward_soft.of(Chain)
def toward_soft_labeling(chain, w, state, rate, i, work):
    """Towards the marginals of p_mu(z) exp(rate * H(z)), by forward-backward."""
    start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    soft_target(state, i, start, length, w.R, rate, work)
    toward_target(state.mu, state.pairs[i], start, length, work)
    return slope_along(work.un, w.R, work.d, work.dR, length)


@aim_at_best.of(Chain)
def aim_at_labeling(chain, i, work):
    """Marginals of one labeling."""
    length = chain.offsets[i + 1] - chain.offsets[i]
    path, nodes, edges = work.answer, work.nodes, work.edges
    nodes[:length] = 0.0
    edges[: length - 1] = 0.0
    for t in range(length):
        nodes[t, path[t]] = 1.0
        if t > 0:
            edges[t - 1, path[t - 1], path[t]] = 1.0


@helper(reorder=True)
def mix_edges(gamma, floor, length, nodes, edges, mu, start, kept):
    """Mix the target into the marginals with weight gamma, blend in `floor` of the uniform chain,
    normalise, and read the nodes off the edges."""
    K = mu.shape[1]
    if length == 1:
        total = 0.0
        for a in range(K):
            mixed = (1.0 - gamma) * mu[start, a] + gamma * nodes[0, a]
            mu[start, a] = (1.0 - floor) * mixed + floor / K
        for a in range(K):
            total += mu[start, a]
        for a in range(K):
            mu[start, a] /= total
        return
    for t in range(length - 1):
        total = 0.0
        for a in range(K):
            row, target = kept[t, a], edges[t, a]
            for b in range(K):
                mixed = (1.0 - gamma) * row[b] + gamma * target[b]
                row[b] = (1.0 - floor) * mixed + floor / (K * K)
            for b in range(K):
                total += row[b]
        for a in range(K):
            row, mass = kept[t, a], 0.0
            for b in range(K):
                row[b] /= total
            for b in range(K):
                mass += row[b]
            mu[start + t, a] = mass
    for b in range(K):
        mu[start + length - 1, b] = 0.0
    for a in range(K):
        for b in range(K):
            mu[start + length - 1, b] += kept[length - 2, a, b]


@helper
def sum_edges(kept, length, pairs):
    """pairs = sum of the edge marginals."""
    pairs[:] = 0.0
    for t in range(length - 1):
        for a in range(pairs.shape[0]):
            for b in range(pairs.shape[1]):
                pairs[a, b] += kept[t, a, b]


@helper
def mix_all(mu, pairs, kept, gamma, floor, start, length, work):
    """The step of `mix`; writes the actual move into (d, dR)."""
    d, dR, K = work.d, work.dR, mu.shape[1]
    for t in range(length):
        for a in range(K):
            d[t, a] = -mu[start + t, a]
    for a in range(K):
        for b in range(K):
            dR[a, b] = -pairs[a, b]
    mix_edges(gamma, floor, length, work.nodes, work.edges, mu, start, kept)
    sum_edges(kept, length, pairs)
    for t in range(length):
        for a in range(K):
            d[t, a] += mu[start + t, a]
    for a in range(K):
        for b in range(K):
            dR[a, b] += pairs[a, b]


@mix.of(Chain)
def mix_marginals(chain, state, gamma, floor, i, work):
    """The uniform chain has 1 / K^2 on every edge."""
    start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    kept = state.edges[state.edge_at[i] : state.edge_at[i + 1]]
    mix_all(state.mu, state.pairs[i], kept, gamma, floor, start, length, work)


@compiled
def calibrate(chain, state, out, keep, R, spare, work):
    """Write consistent node marginals and summed edge marginals, those of p_mu, into `out`.

    With `keep` the edge marginals in `state` become consistent, too, and `out` may share its arrays.
    Otherwise those of one sequence at a time are written into `spare`.
    """
    work.un[:] = 0.0
    for i in range(chain.costs.size):
        start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
        soft_target(state, i, start, length, R, 0.0, work)
        kept = spare[: length - 1]
        if keep:
            kept = state.edges[state.edge_at[i] : state.edge_at[i + 1]]
        mix_edges(1.0, 0.0, length, work.nodes, work.edges, out.mu, start, kept)
        sum_edges(kept, length, out.pairs[i])


@helper
def move_marginals(gamma, state, i, start, length, work):
    """mu += gamma d, pairs += gamma dR."""
    K = work.dR.shape[0]
    for t in range(length):
        for a in range(K):
            state.mu[start + t, a] += gamma * work.d[t, a]
    for a in range(K):
        for b in range(K):
            state.pairs[i, a, b] += gamma * work.dR[a, b]


@compiled
def bcfw_epoch(chain, w, state, order, gaps, work):
    """Block-coordinate Frank-Wolfe, Algorithm 2 with tau = 0: the target is the best labeling."""
    for index in range(order.size):
        i = order[index]
        start, cost = chain.offsets[i], chain.costs[i]
        max_oracle(chain, w, i, work)
        slope = toward_best(chain, w, state, i, work)
        gaps[i] = max(cost * slope, 0.0)
        gamma = line_search(slope, cost * scatter(chain, i, work), 1.0)
        if gamma > 0.0:
            move_marginals(gamma, state, i, start, chain.offsets[i + 1] - start, work)
            move(chain, w, cost * gamma, work)


@compiled
def oeg_epoch(chain, w, state, potentials, rates, order, gaps, work):
    """Online exponentiated gradient, Algorithm 2 with gamma = 1, with rate 1 / tau for each sequence."""
    K = w.R.shape[0]
    flat_R = w.R.reshape(K * K)
    for index in range(order.size):
        i = order[index]
        start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
        max_oracle(chain, w, i, work)
        gaps[i] = max(chain.costs[i] * toward_best(chain, w, state, i, work), 0.0)
        theta = potentials.theta_un[start : start + length]
        for t in range(length):
            add_scaled(theta[t], work.un[t], rates[i])
        add_scaled(potentials.theta_pr[i].reshape(K * K), flat_R, rates[i])
        read_marginals(chain, state, potentials, i, work)
        compute_features(chain.rows, start, length, work)
        move(chain, w, chain.costs[i], work)


@helper
def potential_marginals(theta_un, theta_pr, length, work):
    """Marginals of the chain with log potentials theta, one table for all edges, into nodes and edges."""
    if is_narrow(theta_un, theta_pr, length, 1.0):
        for t in range(length):
            exponentials(theta_un[t], 1.0, work.phi[t])
        exponentials(theta_pr.reshape(theta_pr.size), 1.0, work.table.reshape(theta_pr.size))
        multiply_messages(work.phi, work.table, 0, length, work)
    else:
        add_log_messages(theta_un, theta_pr, 0, length, work)


@helper
def read_marginals(chain, state, potentials, i, work):
    """Replace the marginals of sequence i by those of its potentials; writes the move into `work`."""
    start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    potential_marginals(
        potentials.theta_un[start : start + length], potentials.theta_pr[i : i + 1], length, work
    )
    toward_target(state.mu, state.pairs[i], start, length, work)
    move_marginals(1.0, state, i, start, length, work)


@compiled
def read_all_marginals(chain, state, potentials, work):
    """Replace all marginals by those of the potentials."""
    for i in range(chain.costs.size):
        read_marginals(chain, state, potentials, i, work)
