"""Inner loops of the linear multi-class machines.

Arguments shared by all loops, as flat read-only arrays unless said otherwise:

- `rows`: the rows of X (see `maxmargin.core.rows`);
- `sample[r]`: the sample that row r belongs to (rows may be an extract of X);
- `lanes`: as many entries as a SIMD word of the loop has lanes (see `maxmargin.core.simd`);
- `y, costs, norms`: class, cost C_i and squared norm (bias included) of each sample;
- `Delta`: cost matrix, row = truth, padded with `PAD` to the width of W;
- `bias`: value of the constant feature, whose weights are the last row of W;
- `W` (n_features + 1, width), writable: weights, feature-major and padded, so that one
  nonzero of a row updates the scores of all classes from contiguous memory;
- `alpha` (n, c), writable: dual blocks, alpha or its logarithm.

W may be in single precision whatever the precision of X.

W = sum_i C_i (e_{y_i} - alpha_i) (x) x_i holds at all times.
"""

from __future__ import annotations

import math

import numpy as np

from maxmargin.core import simd
from maxmargin.core import simplex as blocks
from maxmargin.core.jit import compiled
from maxmargin.structured import lane_loops as vector

CRAMMER_SINGER, WESTON_WATKINS = 0, 1
FRANK_WOLFE, PAIRWISE, LINEARIZED, EXPONENTIATED = 0, 1, 2, 3
# How many visits ahead a row is asked for, and how many cache lines of it at most.
AHEAD, LINES = 2, 32


@compiled(inline=True)
def at_bounds(alpha, c, truth):
    """Whether every coordinate but the truth's is 0 or 1."""
    if alpha[truth] == 1:
        return True
    inside = 0
    for k in range(c):
        inside += k != truth and alpha[k] != 0 and alpha[k] != 1
    return inside == 0


@compiled(inline=True)
def fetch(data, indices, first, last, dense):
    """Ask for the beginning of a row."""
    line = 64 // data.itemsize
    for p in range(first, min(last, first + LINES * line), line):
        simd.prefetch(data, p)
    if not dense:
        line = 64 // indices.itemsize
        for p in range(first, min(last, first + LINES * line), line):
            simd.prefetch(indices, p)


@compiled(reorder=True, inline=True)
def exact_move(loss, a, H, c, truth, cost, norm, rounding, lanes, new, step):
    """Solve one block exactly; a becomes the new block and `step` its costed move.

    H need only be right up to a constant, and is 0 for the truth afterwards. Returns the block
    gap before the move, per unit of cost, and the increase of the dual, which is negative when
    the block is optimal already and nothing was done.
    """
    largest, mean = vector.settle_margins(a, H[truth], lanes, H)
    value = vector.positive_sum(lanes, H) if loss == WESTON_WATKINS else largest
    gap = max(value - mean, 0.0)
    if gap <= rounding * max(1.0, largest):
        return gap, -1.0
    kappa, scale = H.dtype.type(cost * norm), H.dtype.type(cost)
    if loss == WESTON_WATKINS:
        blocks.weston_watkins_step(a, H, c, truth, kappa, new)
        slope = squares = scale * 0
        for k in range(c):
            delta = new[k] - a[k]
            step[k] = scale * delta
            slope += delta * H[k]
            squares += delta * delta
            a[k] = new[k]
    else:
        slope, squares = vector.exact_step(H, largest, largest - mean, kappa, scale, lanes, new, a, step)
    return gap, cost * max(slope - 0.5 * kappa * squares, 0.0)


@compiled(reorder=True, inline=True)
def block_move(
    kind, a, H, c, cost, norm, tau, safeguard, truncation, floor, old, new, log_target, log_new, step
):
    """One step of the given kind on one block; a and `step` as in `exact_move`.

    Returns the block gap before the move, per unit of cost, and the increase of the dual.
    """
    entropic = kind >= LINEARIZED
    for k in range(c):
        old[k] = math.exp(a[k]) if entropic else a[k]
    slope, _ = blocks.vertex_direction(old, H, c, blocks.argmax(H, c))
    gap = max(slope, 0.0)
    kappa = cost * norm
    if kind == FRANK_WOLFE:
        blocks.frank_wolfe_step(old, H, c, kappa, new)
    elif kind == PAIRWISE:
        blocks.pairwise_step(old, H, c, kappa, new)
    else:
        if kind == LINEARIZED:
            blocks.linearized_step(a, old, H, c, kappa, tau, safeguard, truncation, log_target, log_new)
        else:
            blocks.exponentiated_step(a, H, c, tau, log_new)
        blocks.log_floor(log_new, c, floor)
        for k in range(c):
            new[k] = math.exp(log_new[k])
    slope, squares = 0.0, 0.0
    for k in range(c):
        delta = new[k] - old[k]
        step[k] = cost * delta
        slope += delta * H[k]
        squares += delta * delta
        a[k] = log_new[k] if entropic else new[k]
    return gap, cost * (slope - 0.5 * kappa * squares)


@compiled(reorder=True)
def exact_sweep(
    loss, order, sample, rows, y, costs, norms, Delta, bias, rounding, lanes, every,
    W, alpha, gaps, idle, mean
):  # fmt: skip
    """Solve the blocks of the rows in `order` exactly, one after the other.

    `gaps[i]` becomes the block gap found on arrival and `idle[i]` says that the block was
    optimal at a vertex. After every `every` visits W is added to `mean`, if `every` is
    positive. Returns the increase of the dual objective.
    """
    data, indices, indptr, dense = rows
    c, width = alpha.shape[1], W.shape[1]
    H, a = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    new, step = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    flat_alpha = alpha.reshape(-1)
    until = every
    total = 0.0
    for j in range(order.size):
        if j + AHEAD < order.size:
            r = order[j + AHEAD]
            fetch(data, indices, indptr[r], indptr[r + 1], dense)
            simd.prefetch(flat_alpha, sample[r] * c)
        r = order[j]
        i = sample[r]
        truth, start, stop = y[i], indptr[r], indptr[r + 1]
        vector.margins(data, indices, start, stop, dense, truth, Delta, bias, W, lanes, H)
        for k in range(c):
            a[k] = alpha[i, k]
        gap, gain = exact_move(loss, a, H, c, truth, costs[i], norms[i], rounding, lanes, new, step)
        gaps[i] = costs[i] * gap
        idle[i] = gain < 0 and at_bounds(a, c, truth)
        if gain >= 0:
            total += gain
            for k in range(c):
                alpha[i, k] = a[k]
            vector.row_outer(data, indices, start, stop, dense, bias, step, lanes, W)
        until -= 1
        if until == 0:
            until = every
            for f in range(W.shape[0]):
                for k in range(width):
                    mean[f, k] += W[f, k]
    return total


@compiled(reorder=True)
def block_sweep(
    kind, order, sample, rows, y, costs, norms, Delta, bias, taus, safeguard,
    truncation, floor, lanes, W, alpha, moves, n_steps, gaps
):  # fmt: skip
    """One step of the given kind on the blocks of the rows in `order`.

    For the entropic kinds `alpha` holds logarithms. When `moves` has the shape of W it
    collects sum_j S_{j-1} U_j over the block steps j = 1, 2, ..., where U_j is the move of W
    and S_j = j (j + 1) / 2; `n_steps` were taken before. Returns the increase of the dual.
    """
    data, indices, indptr, dense = rows
    c, width = alpha.shape[1], W.shape[1]
    H, step = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    old, new, log_target, log_new = np.empty(c), np.empty(c), np.empty(c), np.empty(c)
    total = 0.0
    for j in range(order.size):
        r = order[j]
        i = sample[r]
        truth, start, stop = y[i], indptr[r], indptr[r + 1]
        vector.margins(data, indices, start, stop, dense, truth, Delta, bias, W, lanes, H)
        base = H[truth]
        for k in range(c):
            H[k] -= base
        gap, gain = block_move(
            kind, alpha[i], H, c, costs[i], norms[i], taus[i], safeguard, truncation, floor, old, new,
            log_target, log_new, step
        )  # fmt: skip
        gaps[i] = costs[i] * gap
        total += gain
        vector.row_outer(data, indices, start, stop, dense, bias, step, lanes, W)
        if moves.size:
            before = 0.5 * (n_steps + j) * (n_steps + j + 1.0)
            for k in range(c):
                step[k] *= before
            vector.row_outer(data, indices, start, stop, dense, bias, step, lanes, moves)
    return total


@compiled(reorder=True)
def score_pass(
    loss, logs, first, last, sample, rows, y, costs, Delta, bias, lanes, W, alpha,
    gaps, totals
):  # fmt: skip
    """Loss and block gap of the rows first..last at the given W; nothing is changed.

    Adds the costed losses and the linear dual term sum_i C_i alpha_i . Delta_i to `totals`.
    """
    data, indices, indptr, dense = rows
    c, width = alpha.shape[1], W.shape[1]
    H, a = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    losses, linear = 0.0, 0.0
    for r in range(first, last):
        i = sample[r]
        if costs[i] == 0:
            gaps[i] = 0.0
            continue
        truth, start, stop = y[i], indptr[r], indptr[r + 1]
        vector.margins(data, indices, start, stop, dense, truth, Delta, bias, W, lanes, H)
        normalised(loss, logs, alpha[i], c, a)
        largest, mean = vector.settle_margins(a, H[truth], lanes, H)
        value = vector.positive_sum(lanes, H) if loss == WESTON_WATKINS else largest
        gaps[i] = costs[i] * max(value - mean, 0.0)
        losses += costs[i] * value
        dot = 0.0
        for k in range(c):
            dot += a[k] * Delta[truth, k]
        linear += costs[i] * dot
    totals[0] += losses
    totals[1] += linear


@compiled(reorder=True, inline=True)
def normalised(loss, logs, state, c, a):
    """A stored block as float64, exactly on its simplex whatever the precision of the state."""
    total = 0.0
    for k in range(c):
        a[k] = math.exp(state[k]) if logs else state[k]
        total += a[k]
    if loss == CRAMMER_SINGER:
        for k in range(c):
            a[k] /= total


@compiled(reorder=True)
def rebuild(
    loss, logs, first, last, sample, rows, y, costs, bias, lanes, alpha, W
):  # fmt: skip
    """Add sum_i C_i (e_{y_i} - alpha_i) (x) x_i over the rows first..last to W."""
    data, indices, indptr, dense = rows
    c = alpha.shape[1]
    step, a = np.zeros(W.shape[1], W.dtype), np.empty(c)
    for r in range(first, last):
        i = sample[r]
        if costs[i] == 0 or (not logs and alpha[i, y[i]] == 1 and loss == CRAMMER_SINGER):
            continue
        normalised(loss, logs, alpha[i], c, a)
        a[y[i]] -= 1.0
        for k in range(c):
            step[k] = costs[i] * a[k]
        vector.row_outer(data, indices, indptr[r], indptr[r + 1], dense, bias, step, lanes, W)


@compiled
def extract(rows, data, indices, indptr, lanes, count, values, columns, starts):
    """Append the nonzeros of rows of a dense X while they fit; returns how many rows did.

    `count` rows are there already and `starts` is their index pointer. The last entry of
    `values` is never kept: the loop writes one ahead.
    """
    d = np.uint64(indices.size)
    size = np.uint64(starts[count])
    for j in range(rows.size):
        if size + d >= np.uint64(values.size):
            return j
        first = np.uint64(indptr[rows[j]])
        last = first + d
        p = first
        while p < last:
            p = vector.nonzero_from(data, p, last, lanes)
            q = min(p + np.uint64(len(lanes)), last)
            for t in range(p, q):
                x = data[t]
                values[size] = x
                columns[size] = t - first
                size += np.uint64(x != 0)
            p = q
        starts[count + j + 1] = size
    return rows.size
