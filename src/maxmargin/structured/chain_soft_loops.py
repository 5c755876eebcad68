"""Block steps on chains whose target is a softened labeling: OEG and BCPL.

OEG keeps log potentials, theta_un (rows x K) and one table theta_pr (K x K) per sequence:
theta += (un, R) / tau, and the marginals of the new chain replace the old ones.

BCPL keeps consistent marginals of the nodes (`mu`) and edges. The chain with these marginals
and the largest entropy, p(z) = prod_edges mu_e / prod_interior mu_t, has the factors 1 / mu_t
on interior nodes (1 on the two ends; mu_1 when there is one node only) and mu_e on the edges;
the target is p(z) exp(H(z) / tau), and a step mixes it in.

Forward-backward multiplies factors and rescales every message, which costs no exponential
per edge; where the factors of a chain range too far for that it takes logarithms.
"""

from __future__ import annotations

import math

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.simplex import line_search
from maxmargin.structured.chain_loops import augment, forward_backward, unary_scores, viterbi
from maxmargin.structured.chain_marginal_loops import (
    gain,
    move_marginals,
    move_weights,
    spread,
    squared_norm,
    vertex_move,
)

# Largest range of log factors at which products of two messages stay clear of underflow.
WIDEST = 250.0


@compiled
def spread_of(values):
    """Largest minus smallest value."""
    return values.max() - values.min()


@compiled
def widest_rows(values, length):
    """Largest spread among the first rows of a matrix."""
    widest = 0.0
    for t in range(length):
        widest = max(widest, spread_of(values[t]))
    return widest


@compiled(reorder=True)
def multiply_messages(phi, factors, stride, length, forward, backward, nodes, edges):
    """Marginals of the chain with node factors phi and edge factors `factors` (see chain.py for stride).

    `edges` may be the same array as `factors` when stride is 1.
    """
    K = phi.shape[1]
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
            total += row[b]
        for b in range(K):
            row[b] /= total
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
            total += value
        for a in range(K):
            row[a] /= total
    for t in range(length - 1):
        table, after, total = factors[t * stride], nodes[t + 1], 0.0
        for a in range(K):
            weight, line, out = forward[t, a], table[a], edges[t, a]
            for b in range(K):
                out[b] = weight * line[b] * after[b]
                total += out[b]
        for a in range(K):
            for b in range(K):
                edges[t, a, b] /= total
    for t in range(length):
        total = 0.0
        for a in range(K):
            nodes[t, a] = forward[t, a] * backward[t, a]
            total += nodes[t, a]
        for a in range(K):
            nodes[t, a] /= total


@compiled
def log_messages(theta_un, theta_pr, stride, length, forward, backward, norms, work, nodes, edges):
    """The same from log factors, of any range."""
    K = theta_un.shape[1]
    forward_backward(theta_un, theta_pr, stride, length, forward, backward, norms, work)
    for t in range(length - 1):
        for a in range(K):
            reached = forward[t, a] - norms[1, t]
            for b in range(K):
                edges[t, a, b] = math.exp(
                    reached + theta_pr[t * stride, a, b] + theta_un[t + 1, b] + backward[t + 1, b]
                )
    for t in range(length):
        for a in range(K):
            nodes[t, a] = math.exp(forward[t, a] + backward[t, a] - norms[0, t])


@compiled
def soft_move(nodes, edges, mu, pairs, start, length, d, dR):
    """(d, dR) = target marginals minus the present ones."""
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


@compiled
def add_scaled(target, values, rate):
    """target += rate * (values - max(values)): the shift changes no distribution, and no term overflows."""
    top = values.max()
    for a in range(values.shape[0]):
        target[a] += rate * (values[a] - top)


@compiled
def exponentials(theta, out):
    """out = exp(theta - max(theta))."""
    top = theta.max()
    for a in range(theta.shape[0]):
        out[a] = math.exp(theta[a] - top)


@compiled
def oeg_epoch(
    rows, offsets, y, costs, loss, order, U, R, B, V, VB,
    mu, pairs, theta_un, theta_pr, rates, un, forward, backward, norms, work, nodes, edges, table,
    d, dR, columns, seen, stamp,
):  # fmt: skip
    """Online exponentiated gradient with rate 1 / tau for each sequence."""
    K = R.shape[0]
    flat_R, flat_table = R.reshape(K * K), table.reshape(K * K)
    for index in range(order.size):
        i = order[index]
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        unary_scores(rows, start, length, U, B, un)
        augment(un, y, start, length, loss[i])
        theta, flat_pr = theta_un[start : start + length], theta_pr[i].reshape(K * K)
        for t in range(length):
            add_scaled(theta[t], un[t], rates[i])
        add_scaled(flat_pr, flat_R, rates[i])
        if widest_rows(theta, length) + spread_of(flat_pr) < WIDEST:
            for t in range(length):
                exponentials(theta[t], un[t])
            exponentials(flat_pr, flat_table)
            multiply_messages(un, table, 0, length, forward, backward, nodes, edges)
        else:
            log_messages(theta, theta_pr[i : i + 1], 0, length, forward, backward, norms, work, nodes, edges)
        soft_move(nodes, edges, mu, pairs[i], start, length, d, dR)
        stamp += 1
        touched = spread(rows, start, length, d, V, VB, columns, seen, stamp)
        move_marginals(1.0, d, dR, mu, pairs[i], start, length)
        move_weights(costs[i], V, VB, columns, touched, dR, U, R, B)
    return stamp


@compiled
def interior(t, length):
    """Exponent of mu_t in the chain of largest entropy: -1 inside, 0 at the ends, 1 if alone."""
    if length == 1:
        return 1
    return 0 if t == 0 or t == length - 1 else -1


@compiled
def target_factors(mu, kept, start, length, un, R, rate, phi, factors, table):
    """Factors of p_mu(z) exp(rate * H(z))."""
    K = R.shape[0]
    top = R.max()
    for a in range(K):
        for b in range(K):
            table[a, b] = math.exp(rate * (R[a, b] - top))
    for t in range(length):
        top, power = un[t].max(), interior(t, length)
        for a in range(K):
            phi[t, a] = math.exp(rate * (un[t, a] - top))
            if power > 0:
                phi[t, a] *= mu[start + t, a]
            elif power < 0:
                phi[t, a] = phi[t, a] / mu[start + t, a] if mu[start + t, a] > 0.0 else 0.0
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                factors[t, a, b] = kept[t, a, b] * table[a, b]


@compiled
def target_logs(mu, kept, start, length, un, R, rate, theta_un, theta_pr):
    """The same as logarithms."""
    K = R.shape[0]
    top = R.max()
    for t in range(length):
        power = interior(t, length)
        for a in range(K):
            theta_un[t, a] = 0.0
            if power != 0:
                known = mu[start + t, a] > 0.0
                theta_un[t, a] = power * math.log(mu[start + t, a]) if known else -np.inf
        add_scaled(theta_un[t], un[t], rate)
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                known = kept[t, a, b] > 0.0
                theta_pr[t, a, b] = math.log(kept[t, a, b]) + rate * (R[a, b] - top) if known else -np.inf


@compiled
def target_marginals(
    mu, kept, start, length, un, R, rate, phi, table, forward, backward, norms, work, nodes, edges
):
    """Marginals of p_mu(z) exp(rate * H(z)) into nodes and edges."""
    if rate * (widest_rows(un, length) + spread_of(R)) < WIDEST:
        target_factors(mu, kept, start, length, un, R, rate, phi, edges, table)
        multiply_messages(phi, edges, 1, length, forward, backward, nodes, edges)
    else:
        target_logs(mu, kept, start, length, un, R, rate, phi, edges)
        log_messages(phi, edges, 1, length, forward, backward, norms, work, nodes, edges)


@compiled(reorder=True)
def mix(gamma, floor, length, nodes, edges, mu, start, kept):
    """Mix the target into the marginals with weight gamma, blend in `floor` of the uniform chain,
    normalise, and read the nodes off the edges."""
    K = mu.shape[1]
    if length == 1:
        total = 0.0
        for a in range(K):
            mixed = (1.0 - gamma) * mu[start, a] + gamma * nodes[0, a]
            mu[start, a] = (1.0 - floor) * mixed + floor / K
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
                total += row[b]
        for a in range(K):
            row, mass = kept[t, a], 0.0
            for b in range(K):
                row[b] /= total
                mass += row[b]
            mu[start + t, a] = mass
    for b in range(K):
        mu[start + length - 1, b] = 0.0
    for a in range(K):
        for b in range(K):
            mu[start + length - 1, b] += kept[length - 2, a, b]


@compiled
def vertex_marginals(path, length, nodes, edges):
    """Marginals of one labeling."""
    nodes[:length] = 0.0
    edges[: length - 1] = 0.0
    for t in range(length):
        nodes[t, path[t]] = 1.0
        if t > 0:
            edges[t - 1, path[t - 1], path[t]] = 1.0


@compiled
def sum_edges(kept, length, pairs):
    """pairs = sum of the edge marginals."""
    pairs[:] = 0.0
    for t in range(length - 1):
        for a in range(pairs.shape[0]):
            for b in range(pairs.shape[1]):
                pairs[a, b] += kept[t, a, b]


@compiled
def bcpl_epoch(
    rows, offsets, y, costs, loss, order, U, R, B, V, VB,
    mu, pairs, edge_marginals, edge_at, rates, longest, floor, safeguard, gaps,
    un, forward, backward, norms, work, nodes, edges, table, path, phi, d, dR, columns, seen, stamp,
):  # fmt: skip
    """Block-coordinate partial linearisation in marginal space, with rate 1 / tau for each sequence.

    With `safeguard` the Viterbi labeling is tried as well, and the step that promises the
    larger decrease is taken. Steps end at `longest` < 1, and `floor` of the uniform chain is
    blended in after each, so that no marginal is lost for good.
    """
    K = R.shape[0]
    for index in range(order.size):
        i = order[index]
        start, length, cost = offsets[i], offsets[i + 1] - offsets[i], costs[i]
        kept = edge_marginals[edge_at[i] : edge_at[i + 1]].reshape((length - 1, K, K))
        unary_scores(rows, start, length, U, B, un)
        augment(un, y, start, length, loss[i])

        vertex_gamma, vertex_decrease = 0.0, -1.0
        if safeguard:
            viterbi(un, R, length, forward, path)
            vertex_move(path, mu, pairs[i], start, length, d, dR)
            numerator = gain(un, R, d, dR, length)
            gaps[i] = max(cost * numerator, 0.0)
            stamp += 1
            touched = spread(rows, start, length, d, V, VB, columns, seen, stamp)
            curvature = cost * squared_norm(V, VB, columns, touched, dR)
            vertex_gamma = line_search(numerator, curvature, longest)
            vertex_decrease = vertex_gamma * (numerator - 0.5 * vertex_gamma * curvature)

        target_marginals(
            mu, kept, start, length, un, R, rates[i], phi, table, forward, backward, norms, work, nodes, edges
        )
        soft_move(nodes, edges, mu, pairs[i], start, length, d, dR)
        numerator = gain(un, R, d, dR, length)
        stamp += 1
        touched = spread(rows, start, length, d, V, VB, columns, seen, stamp)
        curvature = cost * squared_norm(V, VB, columns, touched, dR)
        gamma = line_search(numerator, curvature, longest)
        if vertex_decrease > gamma * (numerator - 0.5 * gamma * curvature):
            gamma = vertex_gamma
            vertex_marginals(path, length, nodes, edges)
        if gamma <= 0.0:
            continue
        # The move is read off the marginals kept, so that w follows the state and not the plan.
        for t in range(length):
            for a in range(K):
                d[t, a] = -mu[start + t, a]
        dR[:] = -pairs[i]
        mix(gamma, floor, length, nodes, edges, mu, start, kept)
        sum_edges(kept, length, pairs[i])
        for t in range(length):
            for a in range(K):
                d[t, a] += mu[start + t, a]
        dR += pairs[i]
        stamp += 1
        touched = spread(rows, start, length, d, V, VB, columns, seen, stamp)
        move_weights(cost, V, VB, columns, touched, dR, U, R, B)
    return stamp


@compiled
def calibrate(
    offsets, mu, pairs, edge_marginals, edge_at, R,
    un, forward, backward, norms, work, nodes, edges, table, phi,
):  # fmt: skip
    """Make node and edge marginals consistent again, and `pairs` the sum of the edges."""
    K = R.shape[0]
    for i in range(offsets.size - 1):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        kept = edge_marginals[edge_at[i] : edge_at[i + 1]].reshape((length - 1, K, K))
        target_marginals(
            mu, kept, start, length, un, R, 0.0, phi, table, forward, backward, norms, work, nodes, edges
        )
        mix(1.0, 0.0, length, nodes, edges, mu, start, kept)
        sum_edges(kept, length, pairs[i])
