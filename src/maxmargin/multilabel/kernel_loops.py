"""Inner loops of kernelised M3L.

All arrays are label-major. For one label: residual e = y m - f, signed coefficients b = y alpha between lo
and hi, kernel rows K[p], r = R[l, l]. A change of a coefficient by w changes the residual by -r w K[p]. A
coefficient is movable if e > 0 and b < hi, or e < 0 and b > lo; then |e| is its violation, the size of the
paper's projected gradient. A coefficient with e = 0 may still move as the partner of another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import (
    add,
    add_product,
    any_nonzero,
    fill,
    larger,
    load_row,
    multiply,
    prefetch,
    store_row,
    subtract,
    where_above,
)
from maxmargin.core.threads import aligned_zeros

# Chunk of the search for a maximum, large enough to keep the vector units busy.
CHUNK = 256
# A pair is singular if its determinant is below this fraction of K_pp K_qq, by the precision of K: rounding
# errors in the determinant of a sample with itself are far smaller.
SINGULAR = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
# Columns of residuals that stay in registers in `propagate`, as tuples for `maxmargin.core.lanes`: they fill
# most registers of x86-64.
LANES = {np.dtype(np.float32): (0,) * 96, np.dtype(np.float64): (0,) * 48}
# Labels that are moved side by side, as such a tuple.
LABELS = (0,) * 48
# Numbers of a cache line in single precision.
LINE = 16


class KernelState(NamedTuple):
    """Residuals, coefficients and their bounds; of one label (vectors) or of all (matrices)."""

    E: np.ndarray
    B: np.ndarray
    lo: np.ndarray
    hi: np.ndarray

    def label(self, l: int) -> KernelState:
        """The rows of one label."""
        return KernelState(self.E[l], self.B[l], self.lo[l], self.hi[l])

    def movable(self) -> np.ndarray:
        """Whether each coefficient is movable."""
        E, B, lo, hi = self
        return (E > 0) & (hi > B) | (E < 0) & (lo < B)


class Coefficient(NamedTuple):
    """One coefficient: value, residual, bounds."""

    b: float
    e: float
    lo: float
    hi: float


class Scratch(NamedTuple):
    """Four vectors of `label_steps`, and the last two viewed as integers."""

    up: np.ndarray
    down: np.ndarray
    violation: np.ndarray
    gains: np.ndarray
    violation_bits: np.ndarray
    gain_bits: np.ndarray


class Block(NamedTuple):
    """A block of samples and many labels: residuals, values, bounds, changes times r."""

    start: np.ndarray
    now: np.ndarray
    before: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    changes: np.ndarray


class Workspace(NamedTuple):
    """Memory of `block_sweeps`: columns of rows of K, a block, and 2 negligible, r, 1 / r of its labels."""

    tile: np.ndarray
    block: Block
    scales: np.ndarray


def workspace(size, dtype):
    """Memory for blocks of `size` samples (an even number), aligned to cache lines."""
    parts = [aligned_zeros(size, len(LABELS), dtype) for _ in Block._fields]
    return Workspace(
        aligned_zeros(size, len(LANES[dtype]), dtype), Block(*parts), aligned_zeros(3, len(LABELS), dtype)
    )


def scratch(n, dtype):
    """Memory for `label_steps` on n samples."""
    work = np.empty((4, n), dtype)
    bits = work.view(np.int32 if work.dtype == np.float32 else np.int64)
    return Scratch(work[0], work[1], work[2], work[3], bits[2], bits[3])


@helper(hot=True)
def single_step(b, e, curvature, lo, hi):
    """Best value of one coefficient, all others fixed: (58)."""
    if curvature > 0:
        value = b + e / curvature
        return min(max(value, lo), hi)
    if e > 0:
        return hi
    if e < 0:
        return lo
    return b


@helper(hot=True)
def pair_gain(p_step, q_step, e_p, e_q, k_pp, k_qq, k_pq):
    """The gain of the dual objective by a pair of steps, (47)."""
    curved = 0.5 * (k_pp * p_step * p_step + k_qq * q_step * q_step) + k_pq * p_step * q_step
    return e_p * p_step + e_q * q_step - curved


@helper(hot=True)
def pair_step(first, second, k_pp, k_qq, k_pq):
    """Best values of two coefficients, all others fixed, for a positive definite pair: Algorithm 2."""
    b_p, e_p, lo_p, hi_p = first
    b_q, e_q, lo_q, hi_q = second
    det = k_pp * k_qq - k_pq * k_pq
    p = b_p + (e_p * k_qq - e_q * k_pq) / det
    q = b_q + (e_q * k_pp - e_p * k_pq) / det
    p_in = lo_p <= p <= hi_p
    q_in = lo_q <= q <= hi_q
    if p_in and q_in:
        return p, q
    p_face = min(max(p, lo_p), hi_p)
    q_face = min(max(q, lo_q), hi_q)
    q_then = single_step(b_q, e_q - k_pq * (p_face - b_p), k_qq, lo_q, hi_q)
    if q_in:
        return p_face, q_then
    p_then = single_step(b_p, e_p - k_pq * (q_face - b_q), k_pp, lo_p, hi_p)
    if p_in:
        return p_then, q_face
    gain_p = pair_gain(p_face - b_p, q_then - b_q, e_p, e_q, k_pp, k_qq, k_pq)
    gain_q = pair_gain(p_then - b_p, q_face - b_q, e_p, e_q, k_pp, k_qq, k_pq)
    if gain_p >= gain_q:
        return p_face, q_then
    return p_then, q_face


@helper
def move(p, q, k_pq, diagonal, r, label):
    """Move the pair p, q (q = -1: p alone) to the optimum of (26)-(28); returns both changes of b."""
    e, b, lo, hi = label
    if q < 0:
        value = single_step(b[p], e[p], r * diagonal[p], lo[p], hi[p])
        w_p, w_q = value - b[p], value - value
        b[p] = value
        return w_p, w_q
    p_value, q_value = pair_step(
        Coefficient(b[p], e[p], lo[p], hi[p]),
        Coefficient(b[q], e[q], lo[q], hi[q]),
        r * diagonal[p],
        r * diagonal[q],
        r * k_pq,
    )
    w_p, w_q = p_value - b[p], q_value - b[q]
    b[p], b[q] = p_value, q_value
    return w_p, w_q


@compiled(reorder=True)
def update_coupled(l, R, u, E):
    """Add the changes of label l to the residuals of the labels coupled to it."""
    for k in range(len(E)):
        if k != l and R[k, l] != 0:
            e, weight = E[k], R[k, l]
            for i in range(len(u)):
                e[i] -= weight * u[i]


@compiled(reorder=True)
def label_gap(label):
    """sum_i [ (hi - b) max(e, 0) + (b - lo) max(-e, 0) ] of one label."""
    e, b, lo, hi = label
    gap = 0.0
    for i in range(len(e)):
        x = np.float64(e[i])
        rise = (np.float64(hi[i]) - b[i]) * x
        fall = (np.float64(lo[i]) - b[i]) * x
        gap += rise if rise > fall else fall
    return gap


@helper(reorder=True)
def label_dual(e, b, target):
    """<target, b> - 1/2 <b, f> of one label, with f = target - e: its part of (25)."""
    value = 0.0
    for i in range(len(e)):
        value += np.float64(b[i]) * (np.float64(target[i]) + e[i])
    return 0.5 * value


@compiled
def measure_labels(state, T, gaps, duals):
    """Gap and dual objective of every label."""
    E, B, lo, hi = state
    for l in range(len(E)):
        gaps[l] = label_gap(KernelState(E[l], B[l], lo[l], hi[l]))
        duals[l] = label_dual(E[l], B[l], T[l])


@compiled
def argmax_bits(bits):
    """Index of the largest of some nonnegative floats viewed as integers; -1 if all are zero.

    Integers keep the order of nonnegative floats, and their maximum runs in SIMD.
    """
    zero = bits.dtype.type(0)
    best, start = zero, 0
    for begin in range(0, len(bits), CHUNK):
        part = bits[begin : begin + CHUNK]
        top = zero
        for i in range(len(part)):
            top = max(top, part[i])
        if top > best:
            best, start = top, begin
    if best == zero:
        return -1
    part = bits[start:]
    for i in range(len(part)):
        if part[i] == best:
            return start + i
    return -1


@helper(reorder=True)
def update_and_measure(K_p, K_q, w_p, w_q, e, up, down, violation):
    """Update the residual after a pair step and compute all violations in the same pass."""
    for i in range(len(e)):
        x = e[i] - (w_p * K_p[i] + w_q * K_q[i])
        e[i] = x
        rise = x * up[i]
        fall = -x * down[i]
        violation[i] = rise if rise > fall else fall


@helper(reorder=True)
def pair_gains(K_p, diagonal, p, e, up, down, violation, singular, gains):
    """Unconstrained gain (56) of every possible partner of p, up to a common factor."""
    zero, one = e.dtype.type(0), e.dtype.type(1)
    e_p, k_pp = e[p], diagonal[p]
    square, twice = e_p * e_p, e_p + e_p
    least = singular * k_pp
    for j in range(len(e)):
        k, k_jj, x = K_p[j], diagonal[j], e[j]
        det = k_pp * k_jj - k * k
        regular = det > least * k_jj
        gain = (square * k_jj + x * (x * k_pp - twice * k)) / (det if regular else one)
        possible = violation[j] + up[j] * down[j] > zero
        gains[j] = gain if regular & possible else zero


@compiled
def label_steps(K, diagonal, r, label, work, budget, target, singular):
    """Greedy second-order pair steps on one label until its gap is at most `target`.

    One pass updates the residual and computes all violations, a second one computes the gains of the
    partners; both run in SIMD. The gap is computed every n / 32 steps, which costs little beside them.
    Returns the number of steps and the last computed gap.
    """
    e, b, lo, hi = label
    up, down, violation, gains, violation_bits, gain_bits = work
    n = len(e)
    zero, one = e.dtype.type(0), e.dtype.type(1)
    for i in range(n):
        up[i] = one if b[i] < hi[i] else zero
        down[i] = one if b[i] > lo[i] else zero
    check = max(16, n // 32)
    gap = 0.0
    p, q, w_p, w_q = 0, 0, zero, zero
    step = 0
    while True:
        update_and_measure(K[p], K[q], r * w_p, r * w_q, e, up, down, violation)
        if step % check == 0 or step == budget:
            gap = label_gap(label)
            if gap <= target or step == budget:
                return step, gap
        # The most violating coefficient p and its best partner q (30), then the exact step (26)-(28).
        p = argmax_bits(violation_bits)
        if p < 0:
            return step, 0.0
        pair_gains(K[p], diagonal, p, e, up, down, violation, singular, gains)
        q = argmax_bits(gain_bits)
        other = q if q >= 0 else p
        w_p, w_q = move(p, q, K[p, other], diagonal, r, label)
        q = other
        up[p] = one if b[p] < hi[p] else zero
        down[p] = one if b[p] > lo[p] else zero
        up[q] = one if b[q] < hi[q] else zero
        down[q] = one if b[q] > lo[q] else zero
        if w_p == zero and w_q == zero:
            return step, label_gap(label)
        step += 1


@compiled
def gather(K, rows, columns, answer):
    """answer = K[rows][:, columns]."""
    for i in range(len(rows)):
        row = K[rows[i]]
        for j in range(len(columns)):
            answer[i, j] = row[columns[j]]


@compiled(reorder=True, allocates=True)
def propagate(K, samples, changes, E, begin, end, tile, lanes):
    """Add sum_k changes[k, l] K[samples[k]] to the residuals of every label l, in the columns begin to end.

    Changes of zero cost nothing. The loop works on as many rows of K as `tile` has, and copies some columns
    of them to it: they stay in the first-level cache for all labels, and the residuals of a label stay in
    registers while its changes are added. The next columns of both are prefetched.
    """
    L, width, most = len(E), len(lanes), len(tile)
    starts = np.empty(L + 1, np.int64)
    places, values = np.empty(L * most, np.uint32), np.empty(L * most, E.dtype)
    whole = end - (end - begin) % width
    for first in range(0, len(samples), most):
        rows = samples[first : first + most]
        size, count = len(rows), 0
        for l in range(L):
            starts[l] = count
            for k in range(size):
                value = changes[first + k, l]
                if value != 0:
                    places[count], values[count] = k, value
                    count += 1
        starts[L] = count
        # Columns in groups of registers: copy the tile, then update every label.
        for at in range(begin, whole, width):
            for k in range(size):
                store_row(load_row(K, np.uint64(rows[k]), at, lanes), tile, np.uint64(k), 0)
            for l in range(L):
                for k in range(l * size // L, (l + 1) * size // L):
                    row = K[rows[k]]
                    for at_next in range(at + width, min(at + 2 * width, end), LINE):
                        prefetch(row, at_next)
                e = load_row(E, np.uint64(l), at, lanes)
                for t in range(starts[l], starts[l + 1]):
                    e = add_product(e, values[t], load_row(tile, np.uint64(places[t]), 0, lanes))
                store_row(e, E, np.uint64(l), at)
                for at_next in range(at + width, min(at + 2 * width, end), LINE):
                    prefetch(E[l], at_next)
        # The last columns, one by one.
        for l in range(L):
            e_l = E[l]
            for t in range(starts[l], starts[l + 1]):
                row, value = K[rows[places[t]]], values[t]
                for at in range(whole, end):
                    e_l[at] += value * row[at]


@helper(hot=True)
def block_residuals(K, i, start, changes):
    """Residuals of sample i of a block for many labels: start_i - sum_j K_ij changes_j, in two sums."""
    e = load_row(start, np.uint64(i), 0, LABELS)
    other = fill(K[0, 0] - K[0, 0], e)
    for j in range(0, len(K), 2):
        e = add_product(e, -K[i, j], load_row(changes, np.uint64(j), 0, LABELS))
        other = add_product(other, -K[i, j + 1], load_row(changes, np.uint64(j + 1), 0, LABELS))
    return add(e, other)


@helper(hot=True)
def block_steps(e, i, inverse, scales, block):
    """Move the coefficients of one sample and many labels to their best values, (58).

    A step of w to an inner value gains w e / 2, a step to a bound gains more. The first step of a coefficient
    is skipped if that is at most half of `negligible`. `inverse` is 1 / K_ii. Returns the squared steps.
    """
    i = np.uint64(i)
    negligible, r, nothing = load_row(scales, 0, 0, LABELS), load_row(scales, 1, 0, LABELS), subtract(e, e)
    b, before = load_row(block.now, i, 0, LABELS), load_row(block.before, i, 0, LABELS)
    lo, hi = load_row(block.lo, i, 0, LABELS), load_row(block.hi, i, 0, LABELS)
    longest = multiply(multiply(e, load_row(scales, 2, 0, LABELS)), fill(inverse, e))
    value = larger(add(b, longest), lo)
    value = where_above(value, hi, hi, value)
    moved, w = subtract(b, before), subtract(value, b)
    asked = where_above(multiply(moved, moved), nothing, subtract(nothing, r), negligible)
    value = where_above(multiply(w, e), asked, value, b)
    store_row(value, block.now, i, 0)
    store_row(multiply(r, subtract(value, before)), block.changes, i, 0)
    w = subtract(value, b)
    return multiply(w, w)


@compiled(reorder=True, allocates=True)
def block_sweeps(K, r, order, state, n_sweeps, negligible, work, lanes):
    """Sweeps of one-variable steps over blocks of samples (R diagonal), for many labels side by side.

    Steps on a block use the residuals of the block only; then their changes are added to those of all
    samples. Missing labels of the last group have bounds of zero. A coefficient is skipped if its first step
    would gain at most negligible[l].
    """
    E, B, lo, hi = state
    L, width, (size, tile) = len(E), len(LABELS), (len(work.tile), work.tile)
    K_block = np.zeros((size, size), E.dtype)
    changes = np.empty((size, L), E.dtype)
    zero, one, steep = E.dtype.type(0), E.dtype.type(1), E.dtype.type(1e30)
    for begin in range(0, len(order), size):
        samples = order[begin : begin + size]
        m = len(samples)
        gather(K, samples, samples, K_block)
        for first in range(0, L, width):
            block, scales = work.block, work.scales
            count = min(width, L - first)
            for part in block:
                part[:] = 0
            scales[:] = 1
            for l in range(count):
                e, b, low, high = E[first + l], B[first + l], lo[first + l], hi[first + l]
                scales[0, l], scales[1, l] = negligible[first + l] + negligible[first + l], r[first + l]
                scales[2, l] = one / r[first + l]
                for i in range(m):
                    p = samples[i]
                    block.start[i, l], block.now[i, l], block.before[i, l] = e[p], b[p], b[p]
                    block.lo[i, l], block.hi[i, l] = low[p], high[p]
            # Sweeps (58) until no coefficient of the block moves.
            for _ in range(n_sweeps):
                moves = fill(zero, load_row(scales, 0, 0, LABELS))
                for i in range(m):
                    residuals = block_residuals(K_block, i, block.start, block.changes)
                    k = K_block[i, i]
                    inverse = one / k if k > zero else steep
                    moves = larger(moves, block_steps(residuals, i, inverse, scales, block))
                if not any_nonzero(moves):
                    break
            for l in range(count):
                b = B[first + l]
                for i in range(m):
                    b[samples[i]] = block.now[i, l]
                    changes[i, first + l] = -block.changes[i, l]
        propagate(K, samples, changes[:m], E, 0, E.shape[1], tile, lanes)


@compiled(reorder=True, allocates=True)
def coupled_block_sweeps(K, R, samples, state, n_sweeps, changes):
    """The same for coupled labels: all labels of a sample, then the next sample."""
    E, B, lo, hi = state
    size, L = len(samples), len(E)
    dtype = E.dtype.type
    e = np.empty((size, L), E.dtype)
    w = np.empty(L, E.dtype)
    for i in range(size):
        for l in range(L):
            e[i, l] = E[l, samples[i]]
            changes[l, i] = 0
    for _ in range(n_sweeps):
        moved = False
        for i in range(size):
            j = samples[i]
            k_ii = K[i, i]
            w[:] = 0
            moved_here = False
            for l in range(L):
                value = single_step(B[l, j], e[i, l] - k_ii * w[l], R[l, l] * k_ii, lo[l, j], hi[l, j])
                change = value - B[l, j]
                if change != 0:
                    moved_here = True
                    B[l, j] = value
                    changes[l, i] += dtype(change)
                    coupling = R[l]
                    for k in range(L):
                        w[k] += change * coupling[k]
            if moved_here:
                moved = True
                for other in range(size):
                    k, row = K[i, other], e[other]
                    for l in range(L):
                        row[l] -= k * w[l]
        if not moved:
            break
