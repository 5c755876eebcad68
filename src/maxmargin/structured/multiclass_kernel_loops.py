"""Inner loops of the kernel multi-class machines.

`scores` (c, n), writable and class-major, holds F_k(x_i) of the training samples; a block
step on sample i takes C_i delta_k K_i from row k. `store[slots[j]]` is the kernel row of
sample `order[j]`. The other arguments are those of `maxmargin.structured.multiclass_loops`.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.structured.lane_loops import PAD
from maxmargin.structured.multiclass_loops import at_bounds, block_move, exact_move


@compiled(reorder=True, inline=True)
def margins(i, truth, Delta, scores, H):
    """Loss-augmented margins of sample i, 0 for the truth; `PAD` for padded classes."""
    c = scores.shape[0]
    base = scores[truth, i]
    for k in range(c):
        H[k] = Delta[truth, k] + scores[k, i] - base
    for k in range(c, H.size):
        H[k] = PAD


@compiled(reorder=True, inline=True)
def apply(step, row, scores):
    """Take step_k times the kernel row from the scores of every class that moved."""
    for k in range(scores.shape[0]):
        if step[k] != 0:
            target, factor = scores[k], step[k]
            for t in range(target.size):
                target[t] -= factor * row[t]


@compiled(reorder=True)
def exact_sweep(
    loss, order, slots, store, y, costs, norms, Delta, rounding, lanes, scores, alpha, gaps, idle
):  # fmt: skip
    """Solve the blocks in `order` exactly; the answers are those of the linear loop."""
    c = alpha.shape[1]
    width = -(-c // len(lanes)) * len(lanes)
    H, a, new, step = np.zeros(width), np.zeros(width), np.zeros(width), np.zeros(width)
    total = 0.0
    for j in range(order.size):
        i = order[j]
        truth = y[i]
        margins(i, truth, Delta, scores, H)
        for k in range(c):
            a[k] = alpha[i, k]
        gap, gain = exact_move(loss, a, H, c, truth, costs[i], norms[i], rounding, lanes, new, step)
        gaps[i] = costs[i] * gap
        idle[i] = gain < 0 and at_bounds(a, c, truth)
        if gain >= 0:
            total += gain
            for k in range(c):
                alpha[i, k] = a[k]
            apply(step, store[slots[j]], scores)
    return total


@compiled(reorder=True)
def block_sweep(
    kind, order, slots, store, y, costs, norms, Delta, taus, safeguard, truncation, floor, scores, alpha, gaps
):
    """One step of the given kind on the blocks in `order`."""
    c = alpha.shape[1]
    H, step = np.empty(c), np.empty(c)
    old, new, log_target, log_new = np.empty(c), np.empty(c), np.empty(c), np.empty(c)
    total = 0.0
    for j in range(order.size):
        i = order[j]
        truth = y[i]
        margins(i, truth, Delta, scores, H)
        gap, gain = block_move(
            kind, alpha[i], H, c, costs[i], norms[i], taus[i], safeguard, truncation, floor, old, new,
            log_target, log_new, step
        )  # fmt: skip
        gaps[i] = costs[i] * gap
        total += gain
        apply(step, store[slots[j]], scores)
    return total
