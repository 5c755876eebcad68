"""Inner loops of the multi-class machines: products of rows in SIMD words, block steps, passes.

Arguments shared by the loops, read-only unless noted:

- `problem`: `ProblemArrays`, constant during a fit;
- `source`: `SampleRows`, rows of X and the samples they belong to;
- `W` (n_features + 1, width), writable: weights, feature-major and padded, so that a nonzero of a row reads
  the weights of all classes from contiguous memory; the last row belongs to the bias;
- `alpha` (n, c), writable: dual blocks, alpha or (`logs`) its logarithm.

The loops maintain W = sum_i C_i (e_{y_i} - alpha_i) (x) x_i. W may be in single precision for any X.
Kernel machines keep `scores` (c, n) instead, the F_k(x_i) of the training samples; a block step on sample i
subtracts C_i delta_k K_i from row k.

All vectors over the classes are padded to a multiple of the number of lanes (see
`maxmargin.core.lanes`): blocks and steps with 0, margins with `PAD`. `PAD` is far below any margin, so that
a padded class is never the largest and never gets mass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxmargin.core import lanes as simd
from maxmargin.core import simplex
from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import RowArrays, prefetch_row

CRAMMER_SINGER, WESTON_WATKINS = 0, 1
FRANK_WOLFE, LINEARIZED, EXPONENTIATED = 0, 1, 2
PAD = -1e30
# Smaller than any gap: the largest term of a projection lies above a level of -TINY.
TINY = 1e-30
ZERO, ONE, TWO = np.uint64(0), np.uint64(1), np.uint64(2)
# Dense rows of at least this many entries are searched for zeros.
LONG = np.uint64(64)
# A row is prefetched so many visits ahead.
AHEAD = 2


class ProblemArrays(NamedTuple):
    """Class, cost C_i and squared norm (bias included) of every sample, and the shared constants.

    `Delta` has one row per true class, padded with `PAD` to the width of W; `bias` is the value of the
    constant feature, a gap below `rounding` counts as zero, and `lanes` is a tuple with the length of a SIMD
    word of classes.
    """

    y: np.ndarray
    costs: np.ndarray
    norms: np.ndarray
    Delta: np.ndarray
    loss: int
    bias: float
    rounding: float
    lanes: tuple[int, ...]


class SampleRows(NamedTuple):
    """Rows of X, or some of them without their zeros; row r belongs to `sample[r]`."""

    sample: np.ndarray
    rows: RowArrays


class KernelRows(NamedTuple):
    """`store[place[j]]` is the kernel row of the j-th visited sample."""

    place: np.ndarray
    store: np.ndarray


class StepRule(NamedTuple):
    """A block step by its kind, with one temperature per sample."""

    kind: int
    temperatures: np.ndarray
    safeguard: bool
    truncation: float
    floor: float


class Snapshots(NamedTuple):
    """After every `every` visits, if that is positive, W is added to `sums` and counted in `taken[0]`."""

    every: int
    sums: np.ndarray
    taken: np.ndarray


class Moves(NamedTuple):
    """Unless empty, `sums` collects sum_j S_{j-1} U_j over the block steps j = 1, 2, ...

    U_j is the move of W and S_j = j (j + 1) / 2; `before` steps were taken before the pass.
    """

    before: int
    sums: np.ndarray


class Row(NamedTuple):
    """A stretch of a row of X: ``(indices[p - shift], data[p])`` for p from `first` to `last`.

    ``shift`` is the start of the row in a dense matrix, whose rows share one index array, and 0 in CSR.
    Positions are unsigned, which saves the test for a negative index in every access.
    """

    data: np.ndarray
    indices: np.ndarray
    first: np.uint64
    last: np.uint64
    shift: np.uint64


class ExactWork(NamedTuple):
    """Workspace of one exact block step: margins, the block, a vector, and the costed move."""

    H: np.ndarray
    a: np.ndarray
    v: np.ndarray
    step: np.ndarray


class BlockWork(NamedTuple):
    """Workspace of a block step of the paper: margins, old and new block, logarithms, costed move."""

    H: np.ndarray
    old: np.ndarray
    new: np.ndarray
    log_target: np.ndarray
    log_new: np.ndarray
    step: np.ndarray


# Products of a row of X with W, a word of classes at a time.


@helper(reorder=True)
def nonzero_from(data, p, last, lanes):
    """The first position from p on with a nonzero in its word of a dense row, or the tail of the row."""
    while p + np.uint64(len(lanes)) <= last and not simd.any_nonzero(simd.load(data, p, lanes)):
        p += np.uint64(len(lanes))
    return p


@helper(reorder=True)
def add_scores(row, W, o, lanes, H):
    """H += W' x for a word of classes from o on, in two sums that the processor adds in parallel."""
    data, indices, first, last, shift = row
    kind = W.dtype.type
    a = simd.load(H, o, lanes)
    b = simd.fill(kind(0), a)
    p = first
    while p + TWO <= last:
        a = simd.add_product(a, kind(data[p]), simd.load_row(W, indices[p - shift], o, lanes))
        b = simd.add_product(b, kind(data[p + ONE]), simd.load_row(W, indices[p + ONE - shift], o, lanes))
        p += TWO
    if p < last:
        a = simd.add_product(a, kind(data[p]), simd.load_row(W, indices[p - shift], o, lanes))
    simd.store(simd.add(a, b), H, o)


@helper(reorder=True)
def subtract_outer(row, W, o, lanes, step):
    """W -= x (x) step for a word of classes from o on, unless none of them moves."""
    data, indices, first, last, shift = row
    kind = W.dtype.type
    s = simd.load(step, o, lanes)
    if simd.any_nonzero(s):
        for p in range(first, last):
            f = indices[p - shift]
            w = simd.load_row(W, f, o, lanes)
            simd.store_row(simd.add_product(w, -kind(data[p]), s), W, f, o)


# A row is read once for up to four words of classes, which LLVM keeps in registers. The length of a word is
# part of its type, so the products name each length.


@helper(reorder=True)
def add_all_scores(row, W, lanes, H):
    """H += W' x, by words."""
    L, width, o = len(lanes), W.shape[1], np.int64(0)
    while o + 4 * L <= width:
        add_scores(row, W, o, lanes + lanes + lanes + lanes, H)
        o += 4 * L
    if o + 3 * L == width:
        add_scores(row, W, o, lanes + lanes + lanes, H)
    elif o + 2 * L == width:
        add_scores(row, W, o, lanes + lanes, H)
    elif o < width:
        add_scores(row, W, o, lanes, H)


@helper(reorder=True)
def subtract_all_outer(row, W, lanes, step):
    """W -= x (x) step, by words."""
    L, width, o = len(lanes), W.shape[1], np.int64(0)
    while o + 4 * L <= width:
        subtract_outer(row, W, o, lanes + lanes + lanes + lanes, step)
        o += 4 * L
    if o + 3 * L == width:
        subtract_outer(row, W, o, lanes + lanes + lanes, step)
    elif o + 2 * L == width:
        subtract_outer(row, W, o, lanes + lanes, step)
    elif o < width:
        subtract_outer(row, W, o, lanes, step)


@helper(reorder=True)
def row_scores(rows, r, W, lanes, H):
    """H += W' x for row r; zeros of a long dense row are skipped a word at a time."""
    data, indices, indptr, dense = rows
    first, last = np.uint64(indptr[r]), np.uint64(indptr[r + 1])
    shift = first if dense else ZERO
    searched = dense and last - first >= LONG
    p = first
    while p < last:
        q = last
        if searched:
            p = nonzero_from(data, p, last, lanes)
            q = p
            while q + np.uint64(len(lanes)) <= last and simd.any_nonzero(simd.load(data, q, lanes)):
                q += np.uint64(len(lanes))
            if q == p:
                q = last
        add_all_scores(Row(data, indices, p, q, shift), W, lanes, H)
        p = q


@helper(reorder=True)
def row_outer(rows, r, bias, step, lanes, W):
    """W -= (x, bias) (x) step for row r; zeros are skipped as in `row_scores`."""
    data, indices, indptr, dense = rows
    first, last = np.uint64(indptr[r]), np.uint64(indptr[r + 1])
    shift = first if dense else ZERO
    searched = dense and last - first >= LONG
    p = first
    while p < last:
        q = last
        if searched:
            p = nonzero_from(data, p, last, lanes)
            q = min(p + np.uint64(len(lanes)), last)
        subtract_all_outer(Row(data, indices, p, q, shift), W, lanes, step)
        p = q
    if bias != 0:
        d = W.shape[0] - 1
        for o in range(0, W.shape[1], len(lanes)):
            w, s = simd.load_row(W, d, o, lanes), simd.load(step, o, lanes)
            simd.store_row(simd.add_product(w, -W.dtype.type(bias), s), W, d, o)


# One block.


@helper(reorder=True)
def margins(problem, truth, rows, r, W, H):
    """Loss-augmented margins of row r, up to a constant."""
    d, lanes, bias = W.shape[0] - 1, problem.lanes, W.dtype.type(problem.bias)
    for o in range(0, W.shape[1], len(lanes)):
        costs = simd.load_row(problem.Delta, truth, o, lanes)
        simd.store(simd.add_product(costs, bias, simd.load_row(W, d, o, lanes)), H, o)
    row_scores(rows, r, W, lanes, H)


@helper(reorder=True)
def kernel_margins(problem, truth, i, scores, H):
    """Loss-augmented margins of sample i, 0 for the truth; `PAD` for padded classes."""
    c, Delta = scores.shape[0], problem.Delta
    base = scores[truth, i]
    for k in range(c):
        H[k] = Delta[truth, k] + scores[k, i] - base
    for k in range(c, H.size):
        H[k] = PAD


@helper(reorder=True)
def subtract_kernel_row(step, row, scores):
    """Subtract step_k times the kernel row from the scores of every class that moved."""
    for k in range(scores.shape[0]):
        if step[k] != 0:
            target, factor = scores[k], step[k]
            for t in range(target.size):
                target[t] -= factor * row[t]


@helper(reorder=True)
def shift_and_reduce(alpha, base, lanes, H):
    """H -= base, the truth's; returns max H, the answer of the max-oracle (5), and alpha.H."""
    zero = simd.fill(H.dtype.type(0), simd.load(H, 0, lanes))
    shift = simd.fill(base, zero)
    top, mean = simd.fill(H.dtype.type(PAD), zero), zero
    for o in range(0, H.size, len(lanes)):
        h = simd.subtract(simd.load(H, o, lanes), shift)
        simd.store(h, H, o)
        top = simd.larger(top, h)
        mean = simd.add(mean, simd.multiply(simd.load(alpha, o, lanes), h))
    return simd.largest(top), simd.total(mean)


@helper(reorder=True)
def positive_sum(lanes, H):
    """sum_k max(H_k, 0)."""
    zero = simd.fill(H.dtype.type(0), simd.load(H, 0, lanes))
    sums = zero
    for o in range(0, H.size, len(lanes)):
        h = simd.load(H, o, lanes)
        sums = simd.add(sums, simd.where_above(h, zero, h, zero))
    return simd.total(sums)


@helper(reorder=True)
def project_simplex(alpha, H, largest, gap, kappa, lanes, v):
    """Projection of alpha + H / kappa: v = alpha + (H - largest) / kappa, theta and the support's size.

    The projected point is max(v_k - theta, 0), and theta the root of sum_k max(v_k - theta, 0) = 1,
    found by Newton's method: theta moves to the mean excess of the terms above it until their set no longer
    changes. The set may grow in the first step and shrinks afterwards, so there are at most c + 1 steps. With
    `gap` = largest - alpha.H, the start -gap / kappa is the root if the support does not change. The root is
    at least -1.
    """
    kind = H.dtype.type
    zero = simd.fill(kind(0), simd.load(H, 0, lanes))
    one, peak = simd.fill(kind(1), zero), simd.fill(largest, zero)
    inverse = 1 / kappa
    for o in range(0, H.size, len(lanes)):
        h = simd.subtract(simd.load(H, o, lanes), peak)
        simd.store(simd.add_product(simd.load(alpha, o, lanes), inverse, h), v, o)
    theta, size = -min(max(gap * inverse, kind(TINY)), kind(1)), kind(0)
    for _ in range(H.size + 1):
        level = simd.fill(theta, zero)
        sums, count = zero, zero
        for o in range(0, H.size, len(lanes)):
            x = simd.load(v, o, lanes)
            sums = simd.add(sums, simd.where_above(x, level, x, zero))
            count = simd.add(count, simd.where_above(x, level, one, zero))
        above = simd.total(count)
        if above == size:
            break
        size = above
        theta = (simd.total(sums) - kind(1)) / size
    return theta, size


@helper(reorder=True)
def exact_step(largest, gap, kappa, scale, lanes, work):
    """Replace the block by the projection of alpha + H / kappa on the simplex, its minimiser.

    `largest` is max H and `gap` is max H - alpha.H; `work.step` becomes the move delta times
    scale. Returns delta.H and |delta|^2.
    """
    H, alpha, v, step = work
    kind = H.dtype.type
    if kappa < simplex.FLAT:
        for k in range(v.size):
            v[k] = 0
        v[simplex.argmax(H, H.size)] = 1
        theta, size = kind(0), kind(1)
    else:
        theta, size = project_simplex(alpha, H, largest, gap, kappa, lanes, v)
    zero = simd.fill(kind(0), simd.load(H, 0, lanes))
    one, level, factor = simd.fill(kind(1), zero), simd.fill(theta, zero), simd.fill(scale, zero)
    slope, squares = zero, zero
    for o in range(0, H.size, len(lanes)):
        x = simd.load(v, o, lanes)
        # A single class gets mass 1, independent of the rounding of theta.
        mass = one if size == 1 else simd.subtract(x, level)
        new = simd.where_above(x, level, mass, zero)
        delta = simd.subtract(new, simd.load(alpha, o, lanes))
        simd.store(new, alpha, o)
        simd.store(simd.multiply(factor, delta), step, o)
        slope = simd.add(slope, simd.multiply(delta, simd.load(H, o, lanes)))
        squares = simd.add(squares, simd.multiply(delta, delta))
    return simd.total(slope), simd.total(squares)


@helper(reorder=True)
def exact_move(problem, i, c, work):
    """Solve the block of sample i exactly; `work.a` becomes the new block and `work.step` its costed move.

    The margins may contain a constant, which is removed. Returns the block gap before the move, per unit of
    cost, and the increase of the dual, which is negative if the block was optimal and did not move.
    """
    H, a, new, step = work
    truth, cost, loss, lanes = problem.y[i], problem.costs[i], problem.loss, problem.lanes
    largest, mean = shift_and_reduce(a, H[truth], lanes, H)
    value = positive_sum(lanes, H) if loss == WESTON_WATKINS else largest
    # g_i / C_i, and no step if it is rounding.
    gap = max(value - mean, 0.0)
    if gap <= problem.rounding * max(1.0, largest):
        return gap, -1.0
    kappa, scale = H.dtype.type(cost * problem.norms[i]), H.dtype.type(cost)
    if loss == WESTON_WATKINS:
        simplex.weston_watkins_step(a, H, c, truth, kappa, new)
        slope = squares = scale * 0
        for k in range(c):
            delta = new[k] - a[k]
            slope += delta * H[k]
            squares += delta * delta
        for k in range(c):
            step[k] = scale * (new[k] - a[k])
            a[k] = new[k]
    else:
        slope, squares = exact_step(largest, largest - mean, kappa, scale, lanes, work)
    return gap, cost * max(slope - 0.5 * kappa * squares, 0.0)


@helper(reorder=True)
def block_move(problem, rule, i, a, work):
    """Lines 6 to 9 of Algorithm 2 on block a of sample i: the target (9) and the step (10) of its rule.

    `work.H` holds the margins, `work.step` becomes the costed move. Returns the block gap before the
    move, per unit of cost, and the increase of the dual.
    """
    H, old, new, log_target, log_new, step = work
    kind, taus, safeguard, truncation, floor = rule
    c, cost = a.shape[0], problem.costs[i]
    kappa = cost * problem.norms[i]
    entropic = kind >= LINEARIZED
    for k in range(c):
        old[k] = math.exp(a[k]) if entropic else a[k]
    slope, _ = simplex.vertex_direction(old, H, c, simplex.argmax(H, c))
    gap = max(slope, 0.0)
    if kind == FRANK_WOLFE:
        simplex.frank_wolfe_step(old, H, c, kappa, new)
    else:
        if kind == LINEARIZED:
            simplex.linearized_step(a, old, H, c, kappa, taus[i], safeguard, truncation, log_target, log_new)
        else:
            simplex.exponentiated_step(a, H, c, taus[i], log_new)
        simplex.log_floor(log_new, c, floor)
        for k in range(c):
            new[k] = math.exp(log_new[k])
    slope, squares = 0.0, 0.0
    for k in range(c):
        delta = new[k] - old[k]
        slope += delta * H[k]
        squares += delta * delta
    for k in range(c):
        step[k] = cost * (new[k] - old[k])
        a[k] = log_new[k] if entropic else new[k]
    return gap, cost * (slope - 0.5 * kappa * squares)


@helper(hot=True)
def at_bounds(alpha, c, truth):
    """Whether every coordinate but the truth's is 0 or 1."""
    if alpha[truth] == 1:
        return True
    inside = 0
    for k in range(c):
        inside += k != truth and alpha[k] != 0 and alpha[k] != 1
    return inside == 0


@helper(hot=True)
def is_at_truth(alpha, c, truth):
    """Whether all wrong classes have mass 0; alpha_truth alone may be rounded to 1."""
    moved = 0
    for k in range(c):
        moved += k != truth and alpha[k] != 0
    return moved == 0


@helper(reorder=True)
def normalised(loss, logs, state, c, truth, a):
    """A stored block in float64, exactly on its simplex in any precision of the state.

    With Weston-Watkins the coordinate of the truth is 1 minus the others, not its rounded value. Sums are
    separate loops: LLVM orders the sum of a loop that also writes by the alignment of its arrays.
    """
    for k in range(c):
        a[k] = math.exp(state[k]) if logs else state[k]
    total = 0.0
    for k in range(c):
        total += a[k]
    if loss == CRAMMER_SINGER:
        for k in range(c):
            a[k] /= total
    else:
        rest = 1.0
        for k in range(c):
            if k != truth:
                rest -= a[k]
        a[truth] = rest


# Passes over many blocks.


@compiled(reorder=True, allocates=True)
def exact_sweep(order, source, problem, snapshots, W, alpha, gaps, idle):
    """Solve the blocks of the rows in `order` exactly, one after the other.

    `gaps[i]` becomes the block gap before the step, and `idle[i]` whether the block was optimal at a vertex.
    Returns the increase of the dual objective.
    """
    sample, rows = source
    y, costs = problem.y, problem.costs
    every, sums, taken = snapshots
    c, width = alpha.shape[1], W.shape[1]
    H, a = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    v, step = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    work = ExactWork(H, a, v, step)
    flat_alpha = alpha.reshape(-1)
    until = every
    total = 0.0
    for j in range(order.size):
        # Prefetch the row and the block of a later visit.
        if j + AHEAD < order.size:
            r = order[j + AHEAD]
            prefetch_row(rows, r)
            simd.prefetch(flat_alpha, sample[r] * c)
        # The margins H_i and the exact step on the block.
        r = order[j]
        i = sample[r]
        truth = y[i]
        margins(problem, truth, rows, r, W, H)
        for k in range(c):
            a[k] = alpha[i, k]
        gap, gain = exact_move(problem, i, c, work)
        gaps[i] = costs[i] * gap
        idle[i] = gain < 0 and at_bounds(a, c, truth)
        # Store the block, and W -= x (x) C_i delta.
        if gain >= 0:
            total += gain
            for k in range(c):
                alpha[i, k] = a[k]
            row_outer(rows, r, problem.bias, step, problem.lanes, W)
        # A snapshot of W for its mean.
        until -= 1
        if until == 0:
            until = every
            taken[0] += 1
            for f in range(W.shape[0]):
                for k in range(width):
                    sums[f, k] += W[f, k]
    return total


@compiled(reorder=True, allocates=True)
def block_sweep(order, source, problem, rule, moves, W, alpha, gaps):
    """One step of `rule` on the blocks of the rows in `order`: a pass of Algorithm 2.

    For the entropic kinds `alpha` holds logarithms. Returns the increase of the dual.
    """
    sample, rows = source
    y, costs = problem.y, problem.costs
    before, sums = moves
    c, width = alpha.shape[1], W.shape[1]
    H, step = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    work = BlockWork(H, np.empty(c), np.empty(c), np.empty(c), np.empty(c), step)
    total = 0.0
    for j in range(order.size):
        r = order[j]
        i = sample[r]
        truth = y[i]
        margins(problem, truth, rows, r, W, H)
        base = H[truth]
        for k in range(c):
            H[k] -= base
        gap, gain = block_move(problem, rule, i, alpha[i], work)
        gaps[i] = costs[i] * gap
        total += gain
        row_outer(rows, r, problem.bias, step, problem.lanes, W)
        if sums.size:
            weight = 0.5 * (before + j) * (before + j + 1.0)
            for k in range(c):
                step[k] *= weight
            row_outer(rows, r, problem.bias, step, problem.lanes, sums)
    return total


@compiled(reorder=True, allocates=True)
def block_kernel_sweep(order, kernel, problem, rule, scores, alpha, gaps):
    """One step of `rule` on the blocks in `order`, with a kernel; see `block_sweep`."""
    place, store = kernel
    y, costs = problem.y, problem.costs
    c = alpha.shape[1]
    H, step = np.empty(c), np.empty(c)
    work = BlockWork(H, np.empty(c), np.empty(c), np.empty(c), np.empty(c), step)
    total = 0.0
    for j in range(order.size):
        i = order[j]
        kernel_margins(problem, y[i], i, scores, H)
        gap, gain = block_move(problem, rule, i, alpha[i], work)
        gaps[i] = costs[i] * gap
        total += gain
        subtract_kernel_row(step, store[place[j]], scores)
    return total


@compiled(reorder=True, allocates=True)
def score_pass(first, last, source, problem, logs, W, alpha, gaps, totals):
    """Loss and block gap of the rows first..last at the given W; the state does not change.

    Adds the costed losses of (2) and the linear term sum_i C_i alpha_i . Delta_i of (4) to `totals`.
    """
    sample, rows = source
    y, costs, Delta = problem.y, problem.costs, problem.Delta
    c, width = alpha.shape[1], W.shape[1]
    H, a = np.zeros(width, W.dtype), np.zeros(width, W.dtype)
    losses, linear = 0.0, 0.0
    for r in range(first, last):
        i = sample[r]
        if costs[i] == 0:
            gaps[i] = 0.0
            continue
        truth = y[i]
        margins(problem, truth, rows, r, W, H)
        normalised(problem.loss, logs, alpha[i], c, truth, a)
        largest, mean = shift_and_reduce(a, H[truth], problem.lanes, H)
        value = positive_sum(problem.lanes, H) if problem.loss == WESTON_WATKINS else largest
        gaps[i] = costs[i] * max(value - mean, 0.0)
        losses += costs[i] * value
        dot = 0.0
        for k in range(c):
            dot += a[k] * Delta[truth, k]
        linear += costs[i] * dot
    totals[0] += losses
    totals[1] += linear


@compiled(reorder=True, allocates=True)
def rebuild(first, last, source, problem, logs, alpha, W):
    """Add sum_i C_i (e_{y_i} - alpha_i) (x) x_i over the rows first..last to W."""
    sample, rows = source
    y, costs = problem.y, problem.costs
    c = alpha.shape[1]
    step, a = np.zeros(W.shape[1], W.dtype), np.empty(c)
    for r in range(first, last):
        i = sample[r]
        truth = y[i]
        if costs[i] == 0 or (not logs and is_at_truth(alpha[i], c, truth)):
            continue
        normalised(problem.loss, logs, alpha[i], c, truth, a)
        # The sum of the others instead of 1 - alpha_truth, which is rounded.
        for k in range(c):
            step[k] = costs[i] * a[k]
        rest = 0.0
        for k in range(c):
            if k != truth:
                rest += step[k]
        step[truth] = -rest
        row_outer(rows, r, problem.bias, step, problem.lanes, W)


@compiled
def copy_nonzeros(samples, rows, lanes, count, values, columns, starts):
    """Append the nonzeros of rows of a dense X while they fit; returns how many rows did.

    `count` rows are stored already, and `starts` is their index pointer. The last entry of `values` is
    scratch: the loop writes one entry ahead.
    """
    data, indices, indptr, _ = rows
    d = np.uint64(indices.size)
    size = np.uint64(starts[count])
    for j in range(samples.size):
        if size + d >= np.uint64(values.size):
            return j
        first = np.uint64(indptr[samples[j]])
        last = first + d
        p = first
        while p < last:
            p = nonzero_from(data, p, last, lanes)
            q = min(p + np.uint64(len(lanes)), last)
            for t in range(p, q):
                x = data[t]
                values[size] = x
                columns[size] = t - first
                size += np.uint64(x != 0)
            p = q
        starts[count + j + 1] = size
    return samples.size
