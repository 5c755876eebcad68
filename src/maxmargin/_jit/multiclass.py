"""Inner loops of the linear multi-class machines.

Arguments shared by all loops, as flat read-only arrays unless said otherwise:

- `data, indices, indptr, dense`: the rows of X (see `maxmargin._rows`);
- `sample[r]`: the sample that row r belongs to (rows may be an extract of X);
- `y, costs, norms`: class, cost C_i and squared norm (bias included) of each sample;
- `Delta`: cost matrix, row = truth, padded to the width of W;
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

from maxmargin._jit import blocks
from maxmargin._jit._compile import compiled

CRAMMER_SINGER, WESTON_WATKINS = 0, 1
FRANK_WOLFE, PAIRWISE, LINEARIZED, EXPONENTIATED = 0, 1, 2, 3


@compiled(inline=True)
def nonzeros(data, start, d, values, columns):
    """Nonzero entries of a dense row, without a branch; returns how many."""
    size = 0
    for f in range(d):
        x = data[start + f]
        values[size] = x
        columns[size] = f
        size += x != 0
    return size


@compiled(reorder=True, inline=True)
def add_scores(values, columns, start, stop, W, H):
    """H += W^T x, four features at a time so that H is read and written a quarter as often."""
    width = W.shape[1]
    p = start
    while p + 4 <= stop:
        w0, w1, w2, w3 = W[columns[p]], W[columns[p + 1]], W[columns[p + 2]], W[columns[p + 3]]
        x0, x1 = H.dtype.type(values[p]), H.dtype.type(values[p + 1])
        x2, x3 = H.dtype.type(values[p + 2]), H.dtype.type(values[p + 3])
        for k in range(width):
            H[k] += x0 * w0[k] + x1 * w1[k] + x2 * w2[k] + x3 * w3[k]
        p += 4
    while p < stop:
        w, x = W[columns[p]], H.dtype.type(values[p])
        for k in range(width):
            H[k] += x * w[k]
        p += 1


@compiled(reorder=True, inline=True)
def add_row(values, columns, start, stop, step, changed, n_changed, W):
    """W -= x (x) step; only the changed classes when they are few, as two mostly are."""
    width = W.shape[1]
    if n_changed == 2:
        first, second = changed[0], changed[1]
        s0, s1 = step[first], step[second]
        for p in range(start, stop):
            w, x = W[columns[p]], W.dtype.type(values[p])
            w[first] -= x * s0
            w[second] -= x * s1
    elif 8 * n_changed <= width:
        for p in range(start, stop):
            w, x = W[columns[p]], W.dtype.type(values[p])
            for j in range(n_changed):
                k = changed[j]
                w[k] -= x * step[k]
    else:
        for p in range(start, stop):
            w, x = W[columns[p]], W.dtype.type(values[p])
            for k in range(width):
                w[k] -= x * step[k]


@compiled(inline=True)
def nonzero_classes(step, c, changed):
    """Classes that a step changes; returns how many."""
    n_changed = 0
    for k in range(c):
        changed[n_changed] = k
        n_changed += step[k] != 0
    return n_changed


@compiled(reorder=True, inline=True)
def margins(data, indices, start, stop, dense, truth, Delta, bias, W, values, columns, H):
    """Loss-augmented margins of one row, 0 for the truth; returns how many nonzeros a dense row has."""
    d, width = W.shape[0] - 1, W.shape[1]
    for k in range(width):
        H[k] = Delta[truth, k] + W.dtype.type(bias) * W[d, k]
    size = 0
    if dense:
        size = nonzeros(data, start, d, values, columns)
        add_scores(values, columns, 0, size, W, H)
    else:
        add_scores(data, indices, start, stop, W, H)
    base = H[truth]
    for k in range(width):
        H[k] -= base
    return size


@compiled(reorder=True, inline=True)
def apply(data, indices, start, stop, dense, size, bias, values, columns, step, changed, n_changed, W):
    """W -= x (x) step for the row that `margins` read last."""
    if dense:
        add_row(values, columns, 0, size, step, changed, n_changed, W)
    else:
        add_row(data, indices, start, stop, step, changed, n_changed, W)
    if bias != 0:
        d = W.shape[0] - 1
        for j in range(n_changed):
            W[d, changed[j]] -= W.dtype.type(bias) * step[changed[j]]


@compiled(reorder=True, inline=True)
def block_values(loss, alpha, H, c):
    """Loss of a sample, its block gap (both per unit of cost), and max H; H_truth must be 0."""
    largest = blocks.largest_of(H, c)
    mean = largest * 0
    for k in range(c):
        mean += alpha[k] * H[k]
    value = largest
    if loss == WESTON_WATKINS:
        value = largest * 0
        for k in range(c):
            value += H[k] if H[k] > 0 else largest * 0
    return value, max(value - mean, 0.0), largest


@compiled(inline=True)
def at_bounds(alpha, c, truth):
    """Whether every coordinate but the truth's is 0 or 1."""
    inside = 0
    for k in range(c):
        inside += k != truth and alpha[k] != 0 and alpha[k] != 1
    return inside == 0


@compiled(reorder=True, inline=True)
def exact_move(loss, a, H, c, truth, cost, norm, rounding, new, step):
    """Solve one block exactly; a becomes the new block and `step` its costed move.

    Returns the block gap before the move, per unit of cost, and the increase of the dual,
    which is negative when the block is optimal already and nothing was done.
    """
    _, gap, largest = block_values(loss, a, H, c)
    if gap <= rounding * max(1.0, largest):
        return gap, -1.0
    kappa = H.dtype.type(cost * norm)
    if loss == WESTON_WATKINS:
        blocks.weston_watkins_step(a, H, c, truth, kappa, new)
    else:
        blocks.exact_step(a, H, c, kappa, largest, new)
    scale = H.dtype.type(cost)
    slope = squares = scale * 0
    for k in range(c):
        delta = new[k] - a[k]
        step[k] = scale * delta
        slope += delta * H[k]
        squares += delta * delta
        a[k] = new[k]
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
    _, gap, _ = block_values(CRAMMER_SINGER, old, H, c)
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
    loss, order, sample, data, indices, indptr, dense, y, costs, norms, Delta, bias, rounding, W, alpha,
    gaps, idle
):  # fmt: skip
    """Solve the blocks of the rows in `order` exactly, one after the other.

    `gaps[i]` becomes the block gap found on arrival and `idle[i]` says that the block was
    optimal at a vertex. Returns the increase of the dual objective.
    """
    c, d, width = alpha.shape[1], W.shape[0] - 1, W.shape[1]
    H, step, new = np.zeros(width, W.dtype), np.zeros(width, W.dtype), np.empty(c, W.dtype)
    changed = np.empty(c + 1, np.int64)
    values, columns = np.empty(d + 1, W.dtype), np.empty(d + 1, indices.dtype)
    total = 0.0
    for j in range(order.size):
        r = order[j]
        i = sample[r]
        truth, start, stop = y[i], indptr[r], indptr[r + 1]
        size = margins(data, indices, start, stop, dense, truth, Delta, bias, W, values, columns, H)
        gap, gain = exact_move(loss, alpha[i], H, c, truth, costs[i], norms[i], rounding, new, step)
        gaps[i] = costs[i] * gap
        idle[i] = gain < 0 and at_bounds(alpha[i], c, truth)
        if gain >= 0:
            total += gain
            n_changed = nonzero_classes(step, c, changed)
            apply(data, indices, start, stop, dense, size, bias, values, columns, step, changed, n_changed, W)
    return total


@compiled(reorder=True)
def block_sweep(
    kind, order, sample, data, indices, indptr, dense, y, costs, norms, Delta, bias, taus, safeguard,
    truncation, floor, W, alpha, moves, n_steps, gaps
):  # fmt: skip
    """One step of the given kind on the blocks of the rows in `order`.

    For the entropic kinds `alpha` holds logarithms. When `moves` has the shape of W it
    collects sum_j S_{j-1} U_j over the block steps j = 1, 2, ..., where U_j is the move of W
    and S_j = j (j + 1) / 2; `n_steps` were taken before. Returns the increase of the dual.
    """
    c, d, width = alpha.shape[1], W.shape[0] - 1, W.shape[1]
    H, step = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    old, new, log_target, log_new = np.empty(c), np.empty(c), np.empty(c), np.empty(c)
    changed = np.empty(c + 1, np.int64)
    values, columns = np.empty(d + 1, W.dtype), np.empty(d + 1, indices.dtype)
    total = 0.0
    for j in range(order.size):
        r = order[j]
        i = sample[r]
        truth, start, stop = y[i], indptr[r], indptr[r + 1]
        size = margins(data, indices, start, stop, dense, truth, Delta, bias, W, values, columns, H)
        gap, gain = block_move(
            kind, alpha[i], H, c, costs[i], norms[i], taus[i], safeguard, truncation, floor, old, new,
            log_target, log_new, step
        )  # fmt: skip
        gaps[i] = costs[i] * gap
        total += gain
        n_changed = nonzero_classes(step, c, changed)
        apply(data, indices, start, stop, dense, size, bias, values, columns, step, changed, n_changed, W)
        if moves.size:
            before = 0.5 * (n_steps + j) * (n_steps + j + 1.0)
            for k in range(c):
                step[k] *= before
            apply(
                data,
                indices,
                start,
                stop,
                dense,
                size,
                bias,
                values,
                columns,
                step,
                changed,
                n_changed,
                moves,
            )
    return total


@compiled(reorder=True)
def score_pass(
    loss, logs, first, last, data, indices, indptr, dense, y, costs, Delta, bias, W, alpha, gaps, totals
):
    """Loss and block gap of the samples first..last at the given W; nothing is changed.

    Adds the costed losses and the linear dual term sum_i C_i alpha_i . Delta_i to `totals`.
    """
    c = alpha.shape[1]
    d, width = W.shape[0] - 1, W.shape[1]
    H, a = np.zeros(width, W.dtype), np.empty(c)
    values, columns = np.empty(d + 1, W.dtype), np.empty(d + 1, indices.dtype)
    losses, linear = 0.0, 0.0
    for i in range(first, last):
        if costs[i] == 0:
            gaps[i] = 0.0
            continue
        truth = y[i]
        margins(data, indices, indptr[i], indptr[i + 1], dense, truth, Delta, bias, W, values, columns, H)
        normalised(loss, logs, alpha[i], c, a)
        value, gap, _ = block_values(loss, a, H, c)
        gaps[i] = costs[i] * gap
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
def rebuild(loss, logs, data, indices, indptr, dense, y, costs, bias, alpha, W):
    """W = sum_i C_i (e_{y_i} - alpha_i) (x) x_i, added to a W of zeros."""
    n, c = alpha.shape
    d = W.shape[0] - 1
    step, changed = np.zeros(W.shape[1], W.dtype), np.empty(c + 1, np.int64)
    a = np.empty(c)
    values, columns = np.empty(d + 1, W.dtype), np.empty(d + 1, indices.dtype)
    for i in range(n):
        if costs[i] == 0 or (not logs and alpha[i, y[i]] == 1 and loss == CRAMMER_SINGER):
            continue
        normalised(loss, logs, alpha[i], c, a)
        a[y[i]] -= 1.0
        for k in range(c):
            step[k] = costs[i] * a[k]
        n_changed = nonzero_classes(step, c, changed)
        start, stop = indptr[i], indptr[i + 1]
        size = nonzeros(data, start, d, values, columns) if dense else 0
        apply(data, indices, start, stop, dense, size, bias, values, columns, step, changed, n_changed, W)


@compiled
def extract(rows, data, indices, indptr, count, values, columns, starts):
    """Append the nonzeros of rows of a dense X while they fit; returns how many rows did.

    `count` rows are there already and `starts` is their index pointer. The last entry of
    `values` is never kept: the loop writes one ahead.
    """
    d = indices.size
    size = starts[count]
    for j in range(rows.size):
        if size + d > values.size - 1:
            return j
        start = indptr[rows[j]]
        for f in range(d):
            x = data[start + f]
            values[size] = x
            columns[size] = f
            size += x != 0
        starts[count + j + 1] = size
    return rows.size
