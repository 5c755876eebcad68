"""Loops of the paper's dual coordinate ascent on linear M3L, in the scaling and letters of `problem`.

The bias is an ordinary last feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import row_column_dot, row_outer, row_outer_few
from maxmargin.multilabel.loops import entry_costs


class PaperState(NamedTuple):
    """Inputs and state of a pass: R, |x_i|^2 with the bias, alpha and Z = V R."""

    R: np.ndarray
    q: np.ndarray
    alpha: np.ndarray
    Z: np.ndarray


@helper(hot=True)
def visit(rows, costs, bias, i, l, state, bounds):
    """The step (37) with the gradient from the weights, (39); return the step and the gap before it."""
    R, q, alpha, Z = state
    active, low, high = bounds
    c, m = entry_costs(costs, i, l)
    y, a = costs.signs[i, l], alpha[i, l]
    g = m - y * row_column_dot(rows, i, bias, l, Z)
    gap = c * max(g, 0.0) - a * g
    # Shrinking (44)-(45).
    if (a == 0.0 and g < low[0, l]) or (a == c and g > high[0, l]):
        active[i, l] = False
        return 0.0, gap
    if not (a == 0.0 and g < 0.0) and not (a == c and g > 0.0):
        low[1, l], high[1, l] = min(low[1, l], g), max(high[1, l], g)
    curvature = R[l, l] * q[i]
    target = a + g / curvature if curvature > 0.0 else (c if g > 0.0 else a)
    alpha[i, l] = min(max(target, 0.0), c)
    return y * (alpha[i, l] - a), gap


@compiled(allocates=True)
def random_pass(rows, costs, bias, pairs, state, bounds):
    """Phase A: every step updates the weights of all labels, (40).

    A pair (sample i, label l) is one number i * L + l. Returns the gap of all pairs before their steps.
    """
    R, _, alpha, Z = state
    L = alpha.shape[1]
    step = np.empty(L)
    few = np.empty(L, np.int64)
    total = 0.0
    for position in range(pairs.shape[0]):
        i, l = pairs[position] // L, pairs[position] % L
        d, gap = visit(rows, costs, bias, i, l, state, bounds)
        total += gap
        if d != 0.0:
            n_few = 0
            for k in range(L):
                step[k] = d * R[l, k]
                if step[k] != 0.0:
                    few[n_few] = k
                    n_few += 1
            if 2 * n_few > L:
                row_outer(rows, i, bias, step, 0, L, Z)
            else:
                row_outer_few(rows, i, bias, step, few, n_few, Z)
    return total


@compiled(allocates=True)
def delayed_pass(rows, costs, bias, pairs, starts, state, bounds):
    """Phase B: steps of a chunk update only z_l; the other labels follow at its end, (42).

    `starts` holds the start of every chunk and the end of the last. v = sum of step * x over a chunk, (43),
    is kept with the list of its nonzero features.
    """
    data, indices, indptr, dense = rows
    R, _, alpha, Z = state
    L = alpha.shape[1]
    D = Z.shape[0] - 1
    v = np.zeros(D + 1)
    marked = np.zeros(D + 1, np.bool_)
    touched = np.empty(D + 1, np.int64)
    total = 0.0
    for chunk in range(starts.shape[0] - 1):
        n_touched = 0
        l = pairs[starts[chunk]] % L
        for position in range(starts[chunk], starts[chunk + 1]):
            i = pairs[position] // L
            d, gap = visit(rows, costs, bias, i, l, state, bounds)
            total += gap
            if d == 0.0:
                continue
            # z_l += R_ll d x_i and v += d x_i; the last entry is the bias.
            shift = dense * indptr[i]
            for k in range(indptr[i], indptr[i + 1] + 1):
                last = k == indptr[i + 1]
                j = np.int64(D) if last else np.int64(indices[k - shift])
                x = bias if last else data[k]
                Z[j, l] += x * d * R[l, l]
                v[j] += x * d
                if not marked[j]:
                    marked[j] = True
                    touched[n_touched] = j
                    n_touched += 1
        # z_k += R_lk v for the other labels.
        for t in range(n_touched):
            j = touched[t]
            for k in range(L):
                if k != l:
                    Z[j, k] += v[j] * R[l, k]
            v[j] = 0.0
            marked[j] = False
    return total
