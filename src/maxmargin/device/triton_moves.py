"""The moves of `maxmargin.device.moves` as Triton programs, and the product that carries a change on.

The block is the `order[k]`-th group of `BLOCK` samples; k is a number and `order` lies on the device, so
that a whole epoch can be captured as one CUDA graph and replayed in another order. Everything is label-
major; a row of e, b, lo, hi has `n` numbers. `strip` is the first row of the kernel matrix (or of the
rows of the block alone, then `ahead` is 0; else 1).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sweep(order, k, strip, ahead, e, b, lo, hi, r, moved, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Independent labels; one program and one warp per label."""
    label = tl.program_id(0).to(tl.int64)
    start = tl.load(order + k).to(tl.int64) * BLOCK
    tile = strip + start * n * ahead + start
    cols = tl.arange(0, BLOCK)
    here = label * n + start + cols
    residual, at = tl.load(e + here), tl.load(b + here)
    low, high = tl.load(lo + here), tl.load(hi + here)
    weight = tl.load(r + label)
    curvature = weight * tl.load(tile + cols.to(tl.int64) * (n + 1))
    step = tl.where(curvature > 0, 1 / curvature, 1e30)
    before = at
    for _ in range(ROUNDS):
        row = tl.load(tile + cols)
        for i in range(BLOCK):
            following = tl.load(tile + ((i + 1) % BLOCK) * n.to(tl.int64) + cols)
            change = tl.minimum(tl.maximum(at + residual * step, low), high) - at
            change = tl.where(cols == i, change, 0.0)
            at += change
            residual -= weight * tl.sum(change) * row
            row = following
    tl.store(b + here, at)
    tl.store(moved + label * BLOCK + cols, weight * (at - before))


@triton.jit
def walk(
    order, k, strip, ahead, e, b, lo, hi, R, moved, n,
    L: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Tied labels; one program walks the samples. R is padded to WIDTH columns."""
    start = tl.load(order + k).to(tl.int64) * BLOCK
    tile = strip + start * n * ahead + start
    labels, places = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    real = labels < L
    diagonal = tl.load(R + labels * (WIDTH + 1), mask=real, other=1.0)
    images = tl.zeros((BLOCK, WIDTH), dtype=strip.dtype.element_ty)
    for _ in range(ROUNDS):
        for i in range(BLOCK):
            here = labels.to(tl.int64) * n + start + i
            own = tl.load(tile + i * (n.to(tl.int64) + 1))
            row = tl.load(tile + i * n.to(tl.int64) + places)
            residual = tl.load(e + here, mask=real, other=0.0) - tl.sum(row[:, None] * images, axis=0)
            at = tl.load(b + here, mask=real, other=0.0)
            low, high = tl.load(lo + here, mask=real, other=0.0), tl.load(hi + here, mask=real, other=0.0)
            curvature = diagonal * own
            step = tl.where(curvature > 0, 1 / curvature, 1e30)
            change = tl.minimum(tl.maximum(at + residual * step, low), high) - at
            if tl.max(tl.abs(change)) > 0:
                image = tl.zeros((WIDTH,), dtype=strip.dtype.element_ty)
                correlations = tl.load(R + labels)
                for label in range(L):
                    following = tl.load(R + ((label + 1) % L) * WIDTH + labels)
                    change = tl.minimum(tl.maximum(at + residual * step, low), high) - at
                    change = tl.where(labels == label, change, 0.0)
                    at += change
                    d = tl.sum(change)
                    image += d * correlations
                    residual -= own * d * correlations
                    correlations = following
                tl.store(b + here, at, mask=real)
                images += tl.where((places == i)[:, None], image[None, :], 0.0)
    tl.store(moved + labels[None, :] * BLOCK + places[:, None], images, mask=real[None, :])


@triton.jit
def project(
    order, k, strip, ahead, f, alpha, Delta, costs, moved, n, L, relaxation,
    ROUNDS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Crammer-Singer; one program walks the samples."""
    start = tl.load(order + k).to(tl.int64) * BLOCK
    tile = strip + start * n * ahead + start
    classes, places = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    real = classes < L
    images = tl.zeros((BLOCK, WIDTH), dtype=strip.dtype.element_ty)
    for _ in range(ROUNDS):
        for i in range(BLOCK):
            cost = tl.load(costs + start + i)
            if cost > 0:
                here = classes.to(tl.int64) * n + start + i
                row = tl.load(tile + i * n.to(tl.int64) + places)
                score = tl.load(f + here, mask=real, other=0.0) - tl.sum(row[:, None] * images, axis=0)
                at = tl.load(alpha + here, mask=real, other=0.0)
                curvature = cost * tl.load(tile + i * (n.to(tl.int64) + 1))
                step = tl.where(curvature > 0, relaxation / curvature, 1e30)
                v = at + (score + tl.load(Delta + here, mask=real, other=0.0)) * step
                v = tl.where(real, v, float("-inf"))
                v = v - tl.max(v)
                tau = (tl.sum(tl.where(real, v, 0.0)) - 1) / L
                rising = 1
                while rising == 1:
                    kept = v > tau
                    higher = (tl.sum(tl.where(kept, v, 0.0)) - 1) / tl.sum(kept.to(v.dtype))
                    rising = (higher > tau).to(tl.int32)
                    tau = tl.maximum(tau, higher)
                new = tl.where(real, tl.maximum(v - tau, 0.0), 0.0)
                tl.store(alpha + here, new, mask=real)
                images += tl.where((places == i)[:, None], (cost * (new - at))[None, :], 0.0)
    tl.store(moved + classes[None, :] * BLOCK + places[:, None], images, mask=real[None, :])


@triton.jit
def carry(
    order, k, strip, ahead, e, moved, n, L,
    BLOCK: tl.constexpr, DEPTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """e -= moved K[block]: products of parts in single precision, three on tensor cores for each."""
    start = tl.load(order + k).to(tl.int64) * BLOCK * ahead
    cols = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside, known = cols < n, rows < L
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, BLOCK, DEPTH):
        some = first + tl.arange(0, DEPTH)
        change = tl.load(moved + rows[:, None] * BLOCK + some[None, :], mask=known[:, None], other=0.0)
        values = tl.load(
            strip + (start + some.to(tl.int64))[:, None] * n + cols[None, :], mask=inside[None, :], other=0.0
        )
        total += tl.dot(change, values, input_precision="tf32x3")
    here = rows.to(tl.int64)[:, None] * n + cols[None, :]
    mask = known[:, None] & inside[None, :]
    tl.store(e + here, tl.load(e + here, mask=mask, other=0.0) - total, mask=mask)
