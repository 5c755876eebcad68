"""Block steps on chains whose target is a softened labeling: OEG and BCPL.

Both need log potentials whose forward-backward gives the target marginals s.

OEG keeps the potentials themselves, theta_un (rows x K) and one table theta_pr (K x K) per
sequence: theta += (un, R) / tau, and s replaces the marginals.

BCPL keeps consistent log marginals of the nodes and edges. The chain with these marginals
and the largest entropy, p(z) = prod_edges mu_e / prod_interior mu_t, has the potentials
-log mu_t on interior nodes (0 on the two ends; log mu_1 when there is one node only) and
log mu_e on the edges; the target is p(z) exp(H(z) / tau), and a step mixes it in.
"""

from __future__ import annotations

import math

import numpy as np

from maxmargin._jit._compile import compiled
from maxmargin._jit.chain import NEGLIGIBLE, augment, forward_backward, log_sum, unary_scores, viterbi
from maxmargin._jit.chain_marginal import (
    gain,
    move_marginals,
    move_weights,
    spread,
    squared_norm,
    vertex_move,
)
from maxmargin._jit.spread import best_step


@compiled
def log_add(x, y):
    """log(exp(x) + exp(y))."""
    if x < y:
        x, y = y, x
    return x + math.log1p(math.exp(y - x)) if y - x > NEGLIGIBLE else x


@compiled
def add_scaled(target, values, rate):
    """target += rate * (values - max(values)): the shift changes no distribution, and no term overflows."""
    top = values.max()
    for a in range(values.shape[0]):
        target[a] += rate * (values[a] - top)


@compiled
def soft_move(theta_un, theta_pr, stride, forward, backward, norms, mu, pairs, start, length, d, dR):
    """(d, dR) = marginals given by the messages minus the present ones."""
    K = dR.shape[0]
    for a in range(K):
        for b in range(K):
            dR[a, b] = -pairs[a, b]
    for t in range(length):
        for a in range(K):
            d[t, a] = math.exp(forward[t, a] + backward[t, a] - norms[0, t]) - mu[start + t, a]
    for t in range(length - 1):
        table = theta_pr[t * stride]
        for a in range(K):
            reached = forward[t, a] - norms[1, t]
            for b in range(K):
                dR[a, b] += math.exp(reached + table[a, b] + theta_un[t + 1, b] + backward[t + 1, b])


@compiled
def oeg_epoch(
    data, indices, indptr, dense, offsets, y, costs, loss, order, U, R, B, V, VB,
    mu, pairs, theta_un, theta_pr, rates, un, forward, backward, norms, work, d, dR, columns, seen, stamp,
):  # fmt: skip
    """Online exponentiated gradient with rate 1 / tau for each sequence."""
    K = R.shape[0]
    flat_R = R.reshape(K * K)
    for index in range(order.size):
        i = order[index]
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        unary_scores(data, indices, indptr, dense, start, length, U, B, un)
        augment(un, y, start, length, loss[i])
        for t in range(length):
            add_scaled(theta_un[start + t], un[t], rates[i])
        add_scaled(theta_pr[i].reshape(K * K), flat_R, rates[i])
        theta = theta_un[start : start + length]
        forward_backward(theta, theta_pr[i : i + 1], 0, length, forward, backward, norms, work)
        soft_move(theta, theta_pr[i : i + 1], 0, forward, backward, norms, mu, pairs[i], start, length, d, dR)
        stamp += 1
        touched = spread(data, indices, indptr, dense, start, length, d, V, VB, columns, seen, stamp)
        move_marginals(1.0, d, dR, mu, pairs[i], start, length)
        move_weights(costs[i], V, VB, columns, touched, dR, U, R, B)
    return stamp


@compiled
def target_potentials(log_nodes, log_edges, start, length, un, R, rate, theta_un, theta_pr):
    """Potentials of p_mu(z) exp(rate * H(z))."""
    K = R.shape[0]
    top = R.max()
    for t in range(length):
        for a in range(K):
            if length == 1:
                theta_un[t, a] = log_nodes[start, a]
            else:
                theta_un[t, a] = 0.0 if t == 0 or t == length - 1 else -log_nodes[start + t, a]
        add_scaled(theta_un[t], un[t], rate)
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                theta_pr[t, a, b] = log_edges[t, a, b] + rate * (R[a, b] - top)


@compiled
def mix_edges(gamma, theta_un, theta_pr, forward, backward, norms, length, log_edges):
    """Mix the marginals given by the messages into the log edge marginals with weight gamma."""
    keep, take = np.log1p(-gamma), math.log(gamma)
    K = theta_un.shape[1]
    for t in range(length - 1):
        for a in range(K):
            reached = take + forward[t, a] - norms[1, t]
            for b in range(K):
                target = reached + theta_pr[t, a, b] + theta_un[t + 1, b] + backward[t + 1, b]
                log_edges[t, a, b] = log_add(keep + log_edges[t, a, b], target)


@compiled
def mix_vertex(gamma, path, length, log_edges):
    """Mix one labeling into the log edge marginals with weight gamma."""
    keep, take = np.log1p(-gamma), math.log(gamma)
    K = log_edges.shape[1]
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                log_edges[t, a, b] += keep
        log_edges[t, path[t], path[t + 1]] = log_add(log_edges[t, path[t], path[t + 1]], take)


@compiled
def settle_edges(floor, length, log_nodes, start, log_edges, work):
    """Blend with the uniform chain, normalise every edge, and read the nodes off the edges."""
    K = log_edges.shape[1]
    for t in range(length - 1):
        table = log_edges[t].reshape(K * K)
        if floor > 0.0:
            for k in range(K * K):
                table[k] = log_add(math.log1p(-floor) + table[k], math.log(floor / (K * K)))
        total = log_sum(table, K * K)
        for k in range(K * K):
            table[k] -= total
        for a in range(K):
            log_nodes[start + t, a] = log_sum(log_edges[t, a], K)
    for b in range(K):
        for a in range(K):
            work[a] = log_edges[length - 2, a, b]
        log_nodes[start + length - 1, b] = log_sum(work, K)


@compiled
def settle_node(floor, gamma, target, vertex, log_node):
    """The same for a chain of one node: mix in `target` (or the label `vertex` >= 0), blend, normalise."""
    K = log_node.size
    keep, take = np.log1p(-gamma), math.log(gamma)
    for a in range(K):
        log_node[a] += keep
        if vertex < 0:
            log_node[a] = log_add(log_node[a], take + target[a])
        elif a == vertex:
            log_node[a] = log_add(log_node[a], take)
        if floor > 0.0:
            log_node[a] = log_add(math.log1p(-floor) + log_node[a], math.log(floor / K))
    total = log_sum(log_node, K)
    for a in range(K):
        log_node[a] -= total


@compiled
def marginals_of_logs(log_nodes, log_edges, start, length, mu, pairs):
    """Write exp of the log marginals into mu and pairs."""
    K = pairs.shape[0]
    pairs[:] = 0.0
    for t in range(length):
        for a in range(K):
            mu[start + t, a] = math.exp(log_nodes[start + t, a])
    for t in range(length - 1):
        for a in range(K):
            for b in range(K):
                pairs[a, b] += math.exp(log_edges[t, a, b])


@compiled
def bcpl_epoch(
    data, indices, indptr, dense, offsets, y, costs, loss, order, U, R, B, V, VB,
    mu, pairs, log_nodes, log_edges, edge_at, rates, longest, floor, safeguard, gaps,
    un, forward, backward, norms, work, path, theta_un, theta_pr, d, dR, columns, seen, stamp,
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
        edges = log_edges[edge_at[i] : edge_at[i + 1]].reshape((length - 1, K, K))
        unary_scores(data, indices, indptr, dense, start, length, U, B, un)
        augment(un, y, start, length, loss[i])

        vertex_gamma, vertex_decrease = 0.0, -1.0
        if safeguard:
            viterbi(un, R, length, forward, path)
            vertex_move(path, mu, pairs[i], start, length, d, dR)
            numerator = gain(un, R, d, dR, length)
            gaps[i] = max(cost * numerator, 0.0)
            stamp += 1
            touched = spread(data, indices, indptr, dense, start, length, d, V, VB, columns, seen, stamp)
            curvature = cost * squared_norm(V, VB, columns, touched, dR)
            vertex_gamma = best_step(numerator, curvature, longest)
            vertex_decrease = vertex_gamma * (numerator - 0.5 * vertex_gamma * curvature)

        target_potentials(log_nodes, edges, start, length, un, R, rates[i], theta_un, theta_pr)
        forward_backward(theta_un, theta_pr, 1, length, forward, backward, norms, work)
        soft_move(theta_un, theta_pr, 1, forward, backward, norms, mu, pairs[i], start, length, d, dR)
        numerator = gain(un, R, d, dR, length)
        stamp += 1
        touched = spread(data, indices, indptr, dense, start, length, d, V, VB, columns, seen, stamp)
        curvature = cost * squared_norm(V, VB, columns, touched, dR)
        gamma = best_step(numerator, curvature, longest)
        vertex = vertex_decrease > gamma * (numerator - 0.5 * gamma * curvature)
        if vertex:
            gamma = vertex_gamma
        if gamma <= 0.0:
            continue
        if length == 1:
            for a in range(K):
                work[a] = forward[0, a] + backward[0, a] - norms[0, 0]
            settle_node(floor, gamma, work, path[0] if vertex else -1, log_nodes[start])
        else:
            if vertex:
                mix_vertex(gamma, path, length, edges)
            else:
                mix_edges(gamma, theta_un, theta_pr, forward, backward, norms, length, edges)
            settle_edges(floor, length, log_nodes, start, edges, work)
        # The move is read off the settled logs, so that w follows the state and not the plan.
        for t in range(length):
            for a in range(K):
                d[t, a] = -mu[start + t, a]
        dR[:] = -pairs[i]
        marginals_of_logs(log_nodes, edges, start, length, mu, pairs[i])
        for t in range(length):
            for a in range(K):
                d[t, a] += mu[start + t, a]
        dR += pairs[i]
        stamp += 1
        touched = spread(data, indices, indptr, dense, start, length, d, V, VB, columns, seen, stamp)
        move_weights(cost, V, VB, columns, touched, dR, U, R, B)
    return stamp


@compiled
def calibrate(
    offsets,
    mu,
    pairs,
    log_nodes,
    log_edges,
    edge_at,
    R,
    un,
    forward,
    backward,
    norms,
    work,
    theta_un,
    theta_pr,
):
    """Make node and edge marginals consistent again, and mu and pairs equal to them."""
    K = R.shape[0]
    for i in range(offsets.size - 1):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        edges = log_edges[edge_at[i] : edge_at[i + 1]].reshape((length - 1, K, K))
        if length > 1:
            target_potentials(log_nodes, edges, start, length, un, R, 0.0, theta_un, theta_pr)
            forward_backward(theta_un, theta_pr, 1, length, forward, backward, norms, work)
            for t in range(length - 1):
                for a in range(K):
                    reached = forward[t, a] - norms[1, t]
                    for b in range(K):
                        edges[t, a, b] = reached + theta_pr[t, a, b] + theta_un[t + 1, b] + backward[t + 1, b]
            settle_edges(0.0, length, log_nodes, start, edges, work)
        marginals_of_logs(log_nodes, edges, start, length, mu, pairs[i])
