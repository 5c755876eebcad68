"""Moves on blocks and lists as Triton programs, the product that updates all scores, and sparse products.

Block k holds the samples ``order[k * BLOCK:(k + 1) * BLOCK]``; `order` is on the device, so that an epoch can
be captured as one CUDA graph and replayed in another order. `tile` holds the kernel values among the samples
of the block. All arrays are label-major; a row of e, b, lo, hi has `n` numbers.

Coefficients move one after the other, and most of the time goes into broadcasting the residual of the next
one: it is in the register of one thread, and a sum over the threads makes it known to all. So four residuals
are broadcast at a time, and each is corrected for the moves before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from maxmargin.device.multilabel import Bias, Entries, Lists
    from maxmargin.device.numerics import SparseRows

# Stored numbers, and columns of the dense factor, in one step of a product of sparse rows.
DEPTH, BREADTH = 16, 128
# Numbers of a sparse row that are prefetched; the rest of a longer row is fetched when it is used.
AHEAD = 128


@triton.jit(do_not_specialize=["k"])
def gather(order, k, K, tile, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Copy the kernel values among the samples of a block to `tile`."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    i = tl.load(order + k * BLOCK + rows).to(tl.int64)
    j = tl.load(order + k * BLOCK + cols)
    tl.store(tile + rows[:, None] * BLOCK + cols[None, :], tl.load(K + i[:, None] * n + j[None, :]))


@triton.jit
def at_place(vector, places, place):
    """Broadcast one number of a vector to all threads."""
    return tl.sum(tl.where(places == place, vector, 0.0))


@triton.jit
def clipped_step(at, residual, step, low, high):
    """The step of a coefficient to its optimum within the bounds."""
    return tl.minimum(tl.maximum(at + residual * step, low), high) - at


@triton.jit
def inverse(curvature):
    return tl.where(curvature > 0, 1 / curvature, 1e30)


@triton.jit
def move_four(H, stride, scale, places, first, residual, compact, WIDTH: tl.constexpr):
    """Move four coefficients in order; returns the changes d and H d.

    The Hessian is `scale` H, so the residuals change by -scale H d. `compact` holds coefficients, lower
    bounds, upper bounds and inverse curvatures, WIDTH numbers each.
    """
    H += first * stride
    row0, row1 = tl.load(H + places), tl.load(H + stride + places)
    row2, row3 = tl.load(H + 2 * stride + places), tl.load(H + 3 * stride + places)
    h01, h02, h03 = tl.load(H + first + 1), tl.load(H + first + 2), tl.load(H + first + 3)
    h12, h13 = tl.load(H + stride + first + 2), tl.load(H + stride + first + 3)
    h23 = tl.load(H + 2 * stride + first + 3)
    # Each step corrects the residuals of the coefficients after it.
    at = compact + first
    low, high, step = at + WIDTH, at + 2 * WIDTH, at + 3 * WIDTH
    e0, e1 = at_place(residual, places, first), at_place(residual, places, first + 1)
    e2, e3 = at_place(residual, places, first + 2), at_place(residual, places, first + 3)
    d0 = clipped_step(tl.load(at), e0, tl.load(step), tl.load(low), tl.load(high))
    e1 -= scale * h01 * d0
    e2 -= scale * h02 * d0
    e3 -= scale * h03 * d0
    d1 = clipped_step(tl.load(at + 1), e1, tl.load(step + 1), tl.load(low + 1), tl.load(high + 1))
    e2 -= scale * h12 * d1
    e3 -= scale * h13 * d1
    d2 = clipped_step(tl.load(at + 2), e2, tl.load(step + 2), tl.load(low + 2), tl.load(high + 2))
    e3 -= scale * h23 * d2
    d3 = clipped_step(tl.load(at + 3), e3, tl.load(step + 3), tl.load(low + 3), tl.load(high + 3))
    image = d0 * row0 + d1 * row1 + d2 * row2 + d3 * row3
    later = tl.where(places == first + 2, d2, tl.where(places == first + 3, d3, 0.0))
    change = tl.where(places == first, d0, tl.where(places == first + 1, d1, later))
    return change, image


@triton.jit(do_not_specialize=["k"])
def sweep(
    order, k, tile, e, b, lo, hi, r, compact, moved, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Move the coefficients of independent labels in order, ROUNDS times; one program of one warp per label.

    `r` is the diagonal of R. Writes b, and r times the change of b to `moved`.
    """
    label = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    here = label.to(tl.int64) * n + tl.load(order + k * BLOCK + places)
    residual, before = tl.load(e + here), tl.load(b + here)
    compact += label * 4 * BLOCK
    tl.store(compact + BLOCK + places, tl.load(lo + here))
    tl.store(compact + 2 * BLOCK + places, tl.load(hi + here))
    weight = tl.load(r + label)
    tl.store(compact + 3 * BLOCK + places, inverse(weight * tl.load(tile + places * (BLOCK + 1))))
    at = before
    for _ in range(ROUNDS):
        tl.store(compact + places, at)
        tl.debug_barrier()
        for first in range(0, BLOCK, 4):
            change, image = move_four(tile, BLOCK, weight, places, first, residual, compact, BLOCK)
            at += change
            residual -= weight * image
        tl.debug_barrier()
    tl.store(b + here, at)
    tl.store(moved + label * BLOCK + places, weight * (at - before))


@triton.jit(do_not_specialize=["k"])
def walk(
    order, k, tile, e, b, lo, hi, R, compact, moved, n,
    L: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Move the coefficients of coupled labels, sample by sample and label by label; one program.

    R is padded to WIDTH rows and columns. Writes b, and R times the change of b to `moved`.

    The numbers of the next sample are fetched while the current one is moved.
    """
    labels, places = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    real = labels < L
    diagonal = tl.load(R + labels * (WIDTH + 1))
    images = tl.zeros((BLOCK, WIDTH), dtype=tile.dtype.element_ty)
    order += k * BLOCK
    here = labels.to(tl.int64) * n + tl.load(order)
    residual, at = tl.load(e + here, mask=real, other=0.0), tl.load(b + here, mask=real, other=0.0)
    low, high = tl.load(lo + here, mask=real, other=0.0), tl.load(hi + here, mask=real, other=0.0)
    for visit in range(ROUNDS * BLOCK):
        i = visit % BLOCK
        following = labels.to(tl.int64) * n + tl.load(order + (visit + 1) % BLOCK)
        next_residual = tl.load(e + following, mask=real, other=0.0)
        next_at = tl.load(b + following, mask=real, other=0.0)
        next_low = tl.load(lo + following, mask=real, other=0.0)
        next_high = tl.load(hi + following, mask=real, other=0.0)
        own = tl.load(tile + i * (BLOCK + 1))
        row = tl.load(tile + i * BLOCK + places)
        residual -= tl.sum(row[:, None] * images, axis=0)
        tl.store(compact + labels, at)
        tl.store(compact + WIDTH + labels, low)
        tl.store(compact + 2 * WIDTH + labels, high)
        tl.store(compact + 3 * WIDTH + labels, inverse(own * diagonal))
        tl.debug_barrier()
        total = tl.zeros((WIDTH,), dtype=tile.dtype.element_ty)
        for first in range(0, L, 4):
            change, image = move_four(R, WIDTH, own, labels, first, residual, compact, WIDTH)
            at += change
            total += image
            residual -= own * image
        tl.debug_barrier()
        tl.store(b + here, at, mask=real)
        images += tl.where((places == i)[:, None], total[None, :], 0.0)
        here, residual, at, low, high = following, next_residual, next_at, next_low, next_high
    tl.store(moved + labels[None, :] * BLOCK + places[:, None], images, mask=real[None, :])


@triton.jit
def simplex(v, real, L: tl.constexpr):
    """The projection of v on the simplex."""
    v = tl.where(real, v, float("-inf"))
    v = v - tl.max(v)
    # Every set of entries bounds tau from below: the sum of all, and the largest entry alone.
    tau = tl.maximum((tl.sum(tl.where(real, v, 0.0)) - 1) / L, -1.0)
    rising = 1
    while rising == 1:
        kept = v > tau
        higher = (tl.sum(tl.where(kept, v, 0.0)) - 1) / tl.sum(kept.to(v.dtype))
        rising = (higher > tau).to(tl.int32)
        tau = tl.maximum(tau, higher)
    return tl.maximum(v - tau, 0.0)


@triton.jit
def box(at, slope, real, right, STEPS: tl.constexpr):
    """The optimal block of Weston and Watkins: wrong classes in [0, 1], the true class balances them.

    A class moves from `at` to max(0, min(1, at + slope - slope_truth - D)), where D is the sum of all
    changes. D is the root of a rising piecewise linear function.
    """
    wrong = real & (right == 0)
    aim = at + slope - tl.sum(tl.where(right, slope, 0.0))
    low, high = -tl.sum(tl.where(wrong, at, 0.0)), tl.sum(tl.where(wrong, 1 - at, 0.0))
    root = tl.minimum(tl.maximum(low * 0, low), high)
    new = at
    n_steps = 0
    while n_steps < STEPS:
        new = tl.where(wrong, tl.minimum(tl.maximum(aim - root, 0.0), 1.0), at)
        excess = root - tl.sum(tl.where(wrong, new - at, 0.0))
        low, high = tl.where(excess < 0, root, low), tl.where(excess > 0, root, high)
        free = tl.sum((wrong & (new > 0) & (new < 1)).to(at.dtype))
        straight = root - excess / (1 + free)
        inside = (straight > low) & (straight < high)
        following = tl.where(inside, straight, (low + high) / 2)
        n_steps = tl.where((excess == 0) | (following == root), STEPS, n_steps + 1)
        root = tl.where(excess == 0, root, following)
    new = tl.where(wrong, tl.minimum(tl.maximum(aim - root, 0.0), 1.0), at)
    return tl.where(right, at - tl.sum(tl.where(wrong, new - at, 0.0)), new)


@triton.jit(do_not_specialize=["k"])
def project(
    order, k, tile, f, alpha, Delta, costs, y, moved, n, relaxation,
    L: tl.constexpr, BOXED: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    """Move the block alpha_i of each sample to its optimum given the others, `relaxation` times the step.

    With the loss of Crammer and Singer that is a projection on the simplex; BOXED selects the loss of Weston
    and Watkins. `f` holds the scores (c x n), `Delta` the cost of every answer, `y` the true classes. Writes
    alpha, and C_i times the change of alpha to `moved`. One program; the next sample is fetched while one is
    moved.
    """
    classes, places = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    real = classes < L
    images = tl.zeros((BLOCK, WIDTH), dtype=tile.dtype.element_ty)
    order += k * BLOCK
    sample = tl.load(order)
    here = classes.to(tl.int64) * n + sample
    cost, truth = tl.load(costs + sample), tl.load(y + sample)
    at = tl.load(alpha + here, mask=real, other=0.0)
    score = tl.load(f + here, mask=real, other=0.0) + tl.load(Delta + here, mask=real, other=0.0)
    for visit in range(ROUNDS * BLOCK):
        i = visit % BLOCK
        sample = tl.load(order + (visit + 1) % BLOCK)
        following = classes.to(tl.int64) * n + sample
        next_cost, next_truth = tl.load(costs + sample), tl.load(y + sample)
        next_at = tl.load(alpha + following, mask=real, other=0.0)
        next_score = tl.load(f + following, mask=real, other=0.0)
        next_score += tl.load(Delta + following, mask=real, other=0.0)
        row = tl.load(tile + i * BLOCK + places)
        step = relaxation * inverse(cost * tl.load(tile + i * (BLOCK + 1)))
        slope = (score - tl.sum(row[:, None] * images, axis=0)) * step
        if BOXED:
            new = box(at, slope, real, classes == truth, STEPS)
        else:
            new = simplex(at + slope, real, L)
        new = tl.where(real, tl.where(cost > 0, new, at), 0.0)
        tl.store(alpha + here, new, mask=real)
        images += tl.where((places == i)[:, None], (cost * (new - at))[None, :], 0.0)
        here, cost, truth, at, score = following, next_cost, next_truth, next_at, next_score
    tl.store(moved + classes[None, :] * BLOCK + places[:, None], images, mask=real[None, :])


@triton.jit(do_not_specialize=["k"])
def propagate(
    order, k, K, e, moved, n, L,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """e -= moved K[block], one tile of e per program."""
    cols = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside, known, places = cols < n, rows < L, tl.arange(0, BLOCK)
    here = rows.to(tl.int64)[:, None] * n + cols[None, :]
    mask = known[:, None] & inside[None, :]
    change = tl.load(moved + rows[:, None] * BLOCK + places[None, :], mask=known[:, None], other=0.0)
    samples = tl.load(order + k * BLOCK + places).to(tl.int64)
    values = tl.load(K + samples[:, None] * n + cols[None, :], mask=inside[None, :], other=0.0)
    total = tl.load(e + here, mask=mask, other=0.0) - tl.dot(change, values, input_precision=PRECISION)
    tl.store(e + here, total, mask=mask)


def descend(
    lists: Lists, X: SparseRows, w: torch.Tensor, entries: Entries, q: torch.Tensor,
    r: torch.Tensor, bias: Bias, bounds: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """One pass of dual coordinate ascent over the list of every label, for linear models of sparse rows.

    An entry at a bound whose residual points out of the box by more than `bounds` (below and above, 2 x L)
    becomes inactive. Changes w, B, flags and the weight of the bias; returns the gaps measured on the way,
    and the largest violations below and above.
    """
    L, d = w.shape
    seen, violations = torch.zeros_like(bias.at), torch.zeros_like(bounds)
    descend_label[(L,)](
        lists.members, lists.starts, lists.counts, X.starts, X.columns, X.values, w,
        entries.B, entries.lo, entries.hi, entries.T, entries.flags, q, r,
        bias.feature, bias.at, bias.pull, bounds, seen, violations, L, d, entries.B.shape[1],
        AHEAD=AHEAD, num_warps=1,
    )  # fmt: skip
    return seen.double(), violations


@triton.jit
def locate(members, indptr, k, count):
    """Sample k of a list, and the first and last index of its row; sample 0 past the end."""
    sample = tl.load(members + k, mask=k < count, other=0).to(tl.int64)
    return sample, tl.load(indptr + sample), tl.load(indptr + sample + 1)


@triton.jit
def load_row(indices, data, first, last, lanes):
    """The first AHEAD numbers of a row."""
    known = first + lanes < last
    columns = tl.load(indices + first + lanes, mask=known, other=0)
    return columns, tl.load(data + first + lanes, mask=known, other=0.0)


@triton.jit
def load_entry(B, lo, hi, T, q, sample):
    """A coefficient, its bounds, its target, and the squared norm of its row."""
    b, low, high = tl.load(B + sample), tl.load(lo + sample), tl.load(hi + sample)
    return b, low, high, tl.load(T + sample), tl.load(q + sample)


@triton.jit
def descend_label(
    members, starts, counts, indptr, indices, data, w, B, lo, hi, T, flags, q, r,
    feature, at, pull, bounds, seen, violations, L, d, n, AHEAD: tl.constexpr,
):  # fmt: skip
    """One pass over the list of a label; the data of the next samples are prefetched."""
    label = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, AHEAD)
    members += tl.load(starts + label)
    count = tl.load(counts + label)
    w += label * d
    B, lo, hi, T, flags = B + label * n, lo + label * n, hi + label * n, T + label * n, flags + label * n
    weight, bias, follow = tl.load(r + label), tl.load(at + label), tl.load(pull + label)
    below, above = tl.load(bounds + label), tl.load(bounds + L + label)
    gap, lowest, highest = bias * 0, bias * 0, bias * 0
    square = feature * feature * follow

    # A program stalls when it uses a number that has not arrived from memory yet. So the rows and entries of
    # the next two samples are prefetched, the row limits of the third, and the number of the fourth.
    sample0, first0, last0 = locate(members, indptr, 0, count)
    columns0, values0 = load_row(indices, data, first0, last0, lanes)
    b0, low0, high0, target0, own0 = load_entry(B, lo, hi, T, q, sample0)
    sample1, first1, last1 = locate(members, indptr, 1, count)
    columns1, values1 = load_row(indices, data, first1, last1, lanes)
    b1, low1, high1, target1, own1 = load_entry(B, lo, hi, T, q, sample1)
    sample2, first2, last2 = locate(members, indptr, 2, count)
    sample3 = tl.load(members + 3, mask=count > 3, other=0).to(tl.int64)
    k = 0
    while k < count:
        sample, first, last, columns, values = sample0, first0, last0, columns0, values0
        b, low, high, target, own = b0, low0, high0, target0, own0
        sample0, first0, last0, columns0, values0 = sample1, first1, last1, columns1, values1
        b0, low0, high0, target0, own0 = b1, low1, high1, target1, own1
        sample1, first1, last1 = sample2, first2, last2
        columns1, values1 = load_row(indices, data, first1, last1, lanes)
        b1, low1, high1, target1, own1 = load_entry(B, lo, hi, T, q, sample1)
        sample2, first2, last2 = sample3, tl.load(indptr + sample3), tl.load(indptr + sample3 + 1)
        sample3 = tl.load(members + k + 4, mask=k + 4 < count, other=0).to(tl.int64)

        # The score w'x, and the share of this entry in the gap.
        held = tl.load(w + columns, mask=first + lanes < last, other=0.0)
        score = tl.sum(held * values)
        place = first + AHEAD
        while place < last:
            more = tl.load(indices + place + lanes, mask=place + lanes < last, other=0)
            much = tl.load(data + place + lanes, mask=place + lanes < last, other=0.0)
            score += tl.sum(tl.load(w + more, mask=place + lanes < last, other=0.0) * much)
            place += AHEAD
        e = target - score - feature * bias
        gap += (high - b) * tl.maximum(e, 0.0) + (b - low) * tl.maximum(-e, 0.0)
        if ((b == low) & (-e > below)) | ((b == high) & (e > above)):
            tl.store(flags + sample, False)
        else:
            # The coordinate step within the bounds, then w and the bias.
            lowest = tl.where(b > low, tl.maximum(lowest, -e), lowest)
            highest = tl.where(b < high, tl.maximum(highest, e), highest)
            change = clipped_step(b, e, inverse((own + square) * weight), low, high)
            if change != 0:
                tl.store(B + sample, b + change)
                step = change * weight
                bias += follow * feature * step
                tl.store(w + columns, held + step * values, mask=first + lanes < last)
                place = first + AHEAD
                while place < last:
                    more = tl.load(indices + place + lanes, mask=place + lanes < last, other=0)
                    much = tl.load(data + place + lanes, mask=place + lanes < last, other=0.0)
                    old = tl.load(w + more, mask=place + lanes < last, other=0.0)
                    tl.store(w + more, old + step * much, mask=place + lanes < last)
                    place += AHEAD
        tl.debug_barrier()
        k += 1
    tl.store(at + label, bias)
    tl.store(seen + label, gap)
    tl.store(violations + label, lowest)
    tl.store(violations + L + label, highest)


def sum_rows(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    """The product of sparse rows and a dense matrix."""
    n, L = len(starts) - 1, dense.shape[1]
    answer = torch.empty(n, L, dtype=dense.dtype, device=dense.device)
    grid = (n, -(-L // BREADTH))
    sum_row[grid](starts, columns, values, dense, answer, L, DEPTH=DEPTH, BREADTH=BREADTH, num_warps=4)
    return answer


@triton.jit
def sum_row(starts, columns, values, dense, answer, L, DEPTH: tl.constexpr, BREADTH: tl.constexpr):
    """One row of the product, BREADTH columns per program."""
    row = tl.program_id(0).to(tl.int64)
    across = tl.program_id(1) * BREADTH + tl.arange(0, BREADTH)
    inside = across < L
    place, last = tl.load(starts + row), tl.load(starts + row + 1)
    total = tl.zeros((BREADTH,), dtype=dense.dtype.element_ty)
    while place < last:
        some = place + tl.arange(0, DEPTH)
        known = some < last
        lines = tl.load(columns + some, mask=known, other=0).to(tl.int64)
        factors = tl.load(values + some, mask=known, other=0.0)
        mask = known[:, None] & inside[None, :]
        block = tl.load(dense + lines[:, None] * L + across[None, :], mask=mask, other=0.0)
        total += tl.sum(factors[:, None] * block, axis=0)
        place += DEPTH
    tl.store(answer + row * L + across, total, mask=inside)
