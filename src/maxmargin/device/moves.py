"""Moves on a block of samples, as plain PyTorch: what every device can do, and the twin of the fast ones.

Letters: a block has m samples with kernel values `tile` (m x m) among them. For L columns (labels or
classes) there are coefficients b, their bounds lo and hi, and residuals e, all L x m. A change d of
the coefficients of one sample i takes R d' tile[i] from the residuals of the block, and R d' K[i] from
those of all samples, R being the prior of the labels (the identity where there is none).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from maxmargin.device.rows import SparseRows

# Stands for 1 / 0 where a sample has no kernel value with itself: its coefficients go to a bound.
HUGE = 1e30
# Steps towards the root of a function of straight pieces; a few are enough unless there are many kinks.
ROOT_STEPS = 40


def inverse(curvature: torch.Tensor) -> torch.Tensor:
    """1 / curvature, and a huge number for none."""
    return torch.where(curvature > 0, 1 / curvature, HUGE)


def sweep(
    tile: torch.Tensor, e: torch.Tensor, b: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor,
    r: torch.Tensor, rounds: int,
) -> torch.Tensor:  # fmt: skip
    """Independent labels: one coefficient of each at a time, `rounds` times over the block.

    `r` is the diagonal of R. Changes b and e; returns r times the change of b.
    """
    before = b.clone()
    step = inverse(r[:, None] * tile.diagonal())
    for _ in range(rounds):
        for i in range(len(tile)):
            new = torch.clamp(b[:, i] + e[:, i] * step[:, i], lo[:, i], hi[:, i])
            e -= (r * (new - b[:, i]))[:, None] * tile[i]
            b[:, i] = new
    return r[:, None] * (b - before)


def walk(
    tile: torch.Tensor, e: torch.Tensor, b: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor,
    R: torch.Tensor, rounds: int,
) -> torch.Tensor:  # fmt: skip
    """Tied labels: sample by sample, and in it label by label.

    Changes b and e; returns R times the change of b.
    """
    moved = torch.zeros_like(b)
    for _ in range(rounds):
        for i in range(len(tile)):
            step = inverse(R.diagonal() * tile[i, i])
            image = torch.zeros_like(b[:, i])
            for label in range(len(R)):
                residual = e[label, i] - tile[i, i] * image[label]
                new = torch.clamp(b[label, i] + residual * step[label], lo[label, i], hi[label, i])
                image += (new - b[label, i]) * R[label]
                b[label, i] = new
            e -= image[:, None] * tile[i]
            moved[:, i] += image
    return moved


def project(
    tile: torch.Tensor, f: torch.Tensor, alpha: torch.Tensor, Delta: torch.Tensor, costs: torch.Tensor,
    y: torch.Tensor, boxed: bool, rounds: int, relaxation: float,
) -> torch.Tensor:  # fmt: skip
    """Classes: sample by sample, the block alpha_i goes to its best place.

    That is a projection on the simplex with the loss of Crammer and Singer; `boxed` is the loss of Weston and
    Watkins. `f` are scores (c x m), `Delta` the costs of every answer for every sample, `y` the right ones.
    Changes alpha and f; returns C_i times the change of alpha, which is taken from the scores.
    """
    before = alpha.clone()
    for _ in range(rounds):
        for i in range(len(tile)):
            if costs[i] == 0:
                continue
            step = inverse(costs[i] * tile[i, i]) * relaxation
            slope = (f[:, i] + Delta[:, i]) * step
            new = box(alpha[:, i], slope, int(y[i])) if boxed else simplex(alpha[:, i] + slope)
            f -= (costs[i] * (new - alpha[:, i]))[:, None] * tile[i]
            alpha[:, i] = new
    return costs * (alpha - before)


def box(at: torch.Tensor, slope: torch.Tensor, truth: int) -> torch.Tensor:
    """The best block of Weston and Watkins: between 0 and 1 but for the right class, which balances the rest.

    A class goes from `at` to max(0, min(1, at + slope - slope of the right one - D)), where D is the sum of
    all changes; so D is the root of a rising function made of straight pieces.
    """
    wrong = torch.arange(len(at), device=at.device) != truth
    aim = at + slope - slope[truth]
    low, high = -float(at[wrong].sum()), float((1 - at[wrong]).sum())
    root = min(max(0.0, low), high)
    for _ in range(ROOT_STEPS):
        new = torch.where(wrong, torch.clamp(aim - root, 0, 1), at)
        excess = root - float((new - at).sum())
        if excess == 0:
            break
        low, high = (root, high) if excess < 0 else (low, root)
        straight = root - excess / (1 + int((wrong & (new > 0) & (new < 1)).sum()))
        root = straight if low < straight < high else (low + high) / 2
    new = torch.where(wrong, torch.clamp(aim - root, 0, 1), at)
    new[truth] = at[truth] - (new - at).sum()
    return new


def simplex(v: torch.Tensor) -> torch.Tensor:
    """The point of the simplex nearest to v: max(v - tau, 0) that sums to one."""
    v = v - v.max()
    tau = torch.clamp((v.sum() - 1) / len(v), min=-1)
    for _ in range(len(v)):
        kept = v > tau
        higher = (v[kept].sum() - 1) / kept.sum()
        if higher <= tau:
            break
        tau = higher
    return torch.clamp(v - tau, min=0)


class Lists(NamedTuple):
    """The samples that each label visits: ``members[starts[l] : starts[l] + counts[l]]``, in that order."""

    members: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor


class Entries(NamedTuple):
    """Coefficients, their bounds, targets of the scores, and which are still visited, all L x n."""

    B: torch.Tensor
    lo: torch.Tensor
    hi: torch.Tensor
    T: torch.Tensor
    flags: torch.Tensor


class Bias(NamedTuple):
    """The constant feature, its weight per label, and rho / s^2: how strongly that answers a step."""

    feature: float
    at: torch.Tensor
    pull: torch.Tensor


def descend(
    lists: Lists, X: SparseRows, w: torch.Tensor, entries: Entries, q: torch.Tensor, r: torch.Tensor,
    bias: Bias, reach: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Linear labels: coefficients of listed samples go to their best place, one after the other.

    An entry at a bound whose residual points out of the box by more than `reach` (below and above, 2 x L)
    is visited no more. Changes w, B, flags and the weight of the bias; returns the gaps that were seen, and
    the largest violations below and above.
    """
    seen = torch.zeros(len(w), dtype=torch.float64, device=w.device)
    violations = torch.zeros_like(reach)
    for label, (start, count) in enumerate(zip(lists.starts.tolist(), lists.counts.tolist(), strict=True)):
        for i in lists.members[start : start + count].tolist():
            row = slice(X.starts[i], X.starts[i + 1])
            columns, values = X.columns[row].long(), X.values[row]
            b, lo, hi = entries.B[label, i], entries.lo[label, i], entries.hi[label, i]
            e = entries.T[label, i] - w[label, columns] @ values - bias.feature * bias.at[label]
            seen[label] += (hi - b) * e.clamp(min=0) + (b - lo) * (-e).clamp(min=0)
            if (b == lo and -e > reach[0, label]) or (b == hi and e > reach[1, label]):
                entries.flags[label, i] = False
                continue
            if b > lo:
                violations[0, label] = torch.maximum(violations[0, label], -e)
            if b < hi:
                violations[1, label] = torch.maximum(violations[1, label], e)
            own = (q[i] + bias.pull[label] * bias.feature**2) * r[label]
            change = torch.clamp(b + e * inverse(own), lo, hi) - b
            entries.B[label, i] += change
            w[label, columns] += change * r[label] * values
            bias.at[label] += bias.pull[label] * bias.feature * change * r[label]
    return seen, violations
