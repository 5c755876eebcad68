"""Inner loops of kernelised M3L.

All arrays are label-major. For one label: residual e = y m - f, signed coefficients
b = y alpha between lo and hi, kernel rows K[p], r = R[l, l]. A coefficient that moves by w
takes r w K[p] off the residual. A coefficient is movable when e > 0 and b < hi, or e < 0
and b > lo; then |e| is its violation, the size of the paper's projected gradient. One whose e is
zero may still follow as the partner of another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.simd import add_product, load_row, prefetch, store_row

# Numbers looked at in one go when the largest is searched: as many as keep the vector units busy.
CHUNK = 256
# A pair is taken as singular when its determinant is below this fraction of K_pp K_qq, by the precision of K:
# what rounding alone makes of the determinant of a sample with itself lies far below.
SINGULAR = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
# Labels whose residuals are carried together: as many as registers of x86-64 hold beside a row of K.
GROUP = 6
# Columns of a block of rows of K that are worked on for all labels: they fill half of the nearest cache.
TILE = 128
# Numbers of one register pair, as the tuples that `maxmargin.core.simd` takes.
LANES = {np.dtype(np.float32): (0,) * 16, np.dtype(np.float64): (0,) * 8}


class KernelState(NamedTuple):
    """Residuals, coefficients and their bounds; of one label (vectors) or of all (matrices)."""

    E: np.ndarray
    B: np.ndarray
    lo: np.ndarray
    hi: np.ndarray

    def label(self, l: int) -> KernelState:
        """The rows of one label."""
        return KernelState(self.E[l], self.B[l], self.lo[l], self.hi[l])


class Coefficient(NamedTuple):
    """One coefficient: value, residual, bounds."""

    b: float
    e: float
    lo: float
    hi: float


class Scratch(NamedTuple):
    """Four vectors of `label_steps`, and the last two seen as integers."""

    up: np.ndarray
    down: np.ndarray
    violation: np.ndarray
    gains: np.ndarray
    violation_bits: np.ndarray
    gain_bits: np.ndarray


def scratch(n, dtype):
    """Memory for `label_steps` on n samples."""
    work = np.empty((4, n), dtype)
    bits = work.view(np.int32 if work.dtype == np.float32 else np.int64)
    return Scratch(work[0], work[1], work[2], work[3], bits[2], bits[3])


@compiled(inline=True)
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


@compiled(inline=True)
def pair_gain(p_step, q_step, e_p, e_q, k_pp, k_qq, k_pq):
    """What a pair of steps adds to the dual objective, (47)."""
    curved = 0.5 * (k_pp * p_step * p_step + k_qq * q_step * q_step) + k_pq * p_step * q_step
    return e_p * p_step + e_q * q_step - curved


@compiled(inline=True)
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


@compiled
def count_movable(state):
    """Number of samples with a movable coefficient in any label."""
    E, B, lo, hi = state
    movable = np.zeros(E.shape[1], np.bool_)
    for l in range(len(E)):
        for i in range(E.shape[1]):
            x = E[l, i]
            if (x > 0 and B[l, i] < hi[l, i]) or (x < 0 and B[l, i] > lo[l, i]):
                movable[i] = True
    return movable.sum()


@compiled
def settled(state):
    """Samples whose coefficients are all at a bound that holds them there."""
    E, B, lo, hi = state
    answer = np.ones(E.shape[1], np.bool_)
    for l in range(len(E)):
        for i in range(E.shape[1]):
            x, b = E[l, i], B[l, i]
            if (x > 0 and b < hi[l, i]) or (x < 0 and b > lo[l, i]) or lo[l, i] < b < hi[l, i]:
                answer[i] = False
    return answer


@compiled
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
def update_tied(l, R, u, E):
    """Carry what label l collected to the residuals of the labels tied to it."""
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


@compiled(reorder=True)
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
    """Index of the largest of some nonnegative floats seen as integers; -1 if all are zero.

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


@compiled(reorder=True)
def update_and_measure(K_p, K_q, w_p, w_q, e, up, down, violation):
    """Carry a pair step to the residual and renew all violations in the same pass."""
    for i in range(len(e)):
        x = e[i] - (w_p * K_p[i] + w_q * K_q[i])
        e[i] = x
        rise = x * up[i]
        fall = -x * down[i]
        violation[i] = rise if rise > fall else fall


@compiled(reorder=True)
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

    One pass carries a step to the residual and measures all violations, a second one scores
    the partners; both run in SIMD. The gap is looked at every n / 32 steps, at which it costs
    little beside them. Returns the number of steps and the gap when it was last measured.
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


@compiled(inline=True)
def carry_strip(K, samples, changes, E, first, at, lanes):
    """Add sum_k changes[k, j] K[samples[k]] to the residuals of `GROUP` labels, some columns from `at` on.

    The residuals stay in registers while the rows of K pass by. Where fewer labels are left, their last one
    fills the group up; its own residuals are written last.
    """
    last = len(E) - 1
    l_0, l_1, l_2 = np.uint64(first), np.uint64(min(first + 1, last)), np.uint64(min(first + 2, last))
    l_3, l_4, l_5 = (
        np.uint64(min(first + 3, last)),
        np.uint64(min(first + 4, last)),
        np.uint64(min(first + 5, last)),
    )
    e_0, e_1, e_2 = load_row(E, l_0, at, lanes), load_row(E, l_1, at, lanes), load_row(E, l_2, at, lanes)
    e_3, e_4, e_5 = load_row(E, l_3, at, lanes), load_row(E, l_4, at, lanes), load_row(E, l_5, at, lanes)
    for k in range(len(samples)):
        row = load_row(K, np.uint64(samples[k]), at, lanes)
        e_0, e_1 = add_product(e_0, changes[k, 0], row), add_product(e_1, changes[k, 1], row)
        e_2, e_3 = add_product(e_2, changes[k, 2], row), add_product(e_3, changes[k, 3], row)
        e_4, e_5 = add_product(e_4, changes[k, 4], row), add_product(e_5, changes[k, 5], row)
    store_row(e_5, E, l_5, at)
    store_row(e_4, E, l_4, at)
    store_row(e_3, E, l_3, at)
    store_row(e_2, E, l_2, at)
    store_row(e_1, E, l_1, at)
    store_row(e_0, E, l_0, at)


@compiled(reorder=True)
def carry(K, samples, changes, E, lanes):
    """Add sum_k changes[g, k, j] K[samples[k]] to the residuals of every label l = `GROUP` g + j.

    A product with some rows of K where they are: `TILE` columns of them pass from memory once, asked for
    while those before are worked on, and stay in the nearest cache for all labels.
    """
    n, width, groups, size = E.shape[1], len(lanes), len(changes), len(samples)
    whole = n - n % width
    for begin in range(0, whole, TILE):
        end = min(begin + TILE, whole)
        for g in range(groups):
            for k in range(g * size // groups, (g + 1) * size // groups):
                row = K[samples[k]]
                for at in range(end, min(end + TILE, n), width):
                    prefetch(row, at)
            for at in range(begin, end, width):
                carry_strip(K, samples, changes[g], E, g * GROUP, at, lanes)
    for l in range(len(E)):
        for at in range(whole, n):
            x = E[l, at]
            for k in range(size):
                x += changes[l // GROUP, k, l % GROUP] * K[samples[k], at]
            E[l, at] = x


@compiled(reorder=True)
def block_sweeps(K, r, order, state, block, n_sweeps, lanes):
    """Sweeps of one-variable steps over blocks of samples, label by label (R diagonal).

    Steps on a block see its own residuals alone; what they changed is then carried to those of all samples.
    """
    E, B, lo, hi = state
    L = len(E)
    e, before = np.empty(block, E.dtype), np.empty(block, E.dtype)
    K_block = np.empty((block, block), E.dtype)
    changes = np.zeros((-(-L // GROUP), block, GROUP), E.dtype)
    for begin in range(0, len(order), block):
        samples = order[begin : begin + block]
        size = len(samples)
        for i in range(size):
            for j in range(size):
                K_block[i, j] = K[samples[i], samples[j]]
        for l in range(L):
            b, low, high = B[l], lo[l], hi[l]
            for i in range(size):
                e[i], before[i] = E[l, samples[i]], b[samples[i]]
            for _ in range(n_sweeps):
                moved = False
                for i in range(size):
                    p = samples[i]
                    value = single_step(b[p], e[i], r[l] * K_block[i, i], low[p], high[p])
                    w = value - b[p]
                    if w != 0:
                        moved = True
                        b[p] = value
                        row, w = K_block[i], r[l] * w
                        for j in range(size):
                            e[j] -= w * row[j]
                if not moved:
                    break
            for i in range(size):
                changes[l // GROUP, i, l % GROUP] = r[l] * (before[i] - b[samples[i]])
        carry(K, samples, changes[:, :size], E, lanes)


@compiled(reorder=True)
def coupled_block_sweeps(K, R, samples, state, n_sweeps, changes):
    """The same for a prior that ties labels: all labels of a sample, then the next sample."""
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
                    tied = R[l]
                    for k in range(L):
                        w[k] += change * tied[k]
            if moved_here:
                moved = True
                for other in range(size):
                    k, row = K[i, other], e[other]
                    for l in range(L):
                        row[l] -= k * w[l]
        if not moved:
            break
