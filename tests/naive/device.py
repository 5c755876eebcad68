"""Slow twins of `maxmargin.device.triton_moves`, with the same arguments, in PyTorch."""

import torch

# Replaces 1 / 0 for a sample with K_ii = 0: the step takes its coefficients to a bound.
HUGE = 1e30
ROOT_STEPS = 40


class Twin:
    """Call a function like a Triton program: ``twin[grid](arguments)`` does the work of the whole grid."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return self.function


def inverse(curvature):
    """1 / curvature, or HUGE where the curvature is 0."""
    return torch.where(curvature > 0, 1 / curvature, HUGE)


@Twin
def gather(order, k, K, tile, n, BLOCK, ROWS, num_warps):
    samples = order[k * BLOCK : (k + 1) * BLOCK].long()
    tile.copy_(K[samples][:, samples])


@Twin
def propagate(order, k, K, e, moved, n, L, BLOCK, ROWS, COLUMNS, PRECISION, num_warps):
    e -= moved @ K[order[k * BLOCK : (k + 1) * BLOCK].long()]


@Twin
def sweep(order, k, tile, e, b, lo, hi, r, compact, moved, n, ROUNDS, BLOCK, num_warps):
    samples = order[k * BLOCK : (k + 1) * BLOCK].long()
    e, lo, hi = e[:, samples], lo[:, samples], hi[:, samples]
    step = inverse(r[:, None] * tile.diagonal())
    new = b[:, samples]
    for _ in range(ROUNDS):
        for i in range(BLOCK):
            best = torch.clamp(new[:, i] + e[:, i] * step[:, i], lo[:, i], hi[:, i])
            e -= (r * (best - new[:, i]))[:, None] * tile[i]
            new[:, i] = best
    moved.copy_(r[:, None] * (new - b[:, samples]))
    b[:, samples] = new


@Twin
def walk(order, k, tile, e, b, lo, hi, R, compact, moved, n, L, ROUNDS, BLOCK, WIDTH, num_warps):
    samples, R = order[k * BLOCK : (k + 1) * BLOCK].long(), R[:L, :L]
    e, lo, hi, new = e[:, samples], lo[:, samples], hi[:, samples], b[:, samples]
    moved.zero_()
    for _ in range(ROUNDS):
        for i in range(BLOCK):
            step, image = inverse(R.diagonal() * tile[i, i]), torch.zeros_like(new[:, i])
            for label in range(L):
                residual = e[label, i] - tile[i, i] * image[label]
                best = torch.clamp(new[label, i] + residual * step[label], lo[label, i], hi[label, i])
                image += (best - new[label, i]) * R[label]
                new[label, i] = best
            e -= image[:, None] * tile[i]
            moved[:, i] += image
    b[:, samples] = new


@Twin
def project(
    order, k, tile, f, alpha, Delta, costs, y, moved, n, relaxation, L, BOXED, ROUNDS, BLOCK, WIDTH, STEPS,
    num_warps
):  # fmt: skip
    samples = order[k * BLOCK : (k + 1) * BLOCK].long()
    f, Delta, costs, y = f[:, samples], Delta[:, samples], costs[samples], y[samples]
    new = alpha[:, samples]
    for _ in range(ROUNDS):
        for i in range(BLOCK):
            if costs[i] == 0:
                continue
            slope = (f[:, i] + Delta[:, i]) * inverse(costs[i] * tile[i, i]) * relaxation
            best = box(new[:, i], slope, int(y[i])) if BOXED else simplex(new[:, i] + slope)
            f -= (costs[i] * (best - new[:, i]))[:, None] * tile[i]
            new[:, i] = best
    moved.copy_(costs * (new - alpha[:, samples]))
    alpha[:, samples] = new


def box(at, slope, truth):
    """The optimal block of Weston and Watkins: wrong classes in [0, 1], the true class balances them.

    A class moves from `at` to max(0, min(1, at + slope - slope_truth - D)), where D is the sum of all
    changes. D is the root of a rising piecewise linear function.
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
        # The root of the current linear piece, or the midpoint if that lies outside the bracket.
        straight = root - excess / (1 + int((wrong & (new > 0) & (new < 1)).sum()))
        root = straight if low < straight < high else (low + high) / 2
    new = torch.where(wrong, torch.clamp(aim - root, 0, 1), at)
    new[truth] = at[truth] - (new - at).sum()
    return new


def simplex(v):
    """The projection of v on the simplex: max(v - tau, 0) with sum 1."""
    v = v - v.max()
    tau = torch.clamp((v.sum() - 1) / len(v), min=-1)
    for _ in range(len(v)):
        kept = v > tau
        higher = (v[kept].sum() - 1) / kept.sum()
        if higher <= tau:
            break
        tau = higher
    return torch.clamp(v - tau, min=0)


def descend(lists, X, w, entries, q, r, bias, bounds):
    """The lists of all labels, one sample at a time."""
    seen = torch.zeros(len(w), dtype=torch.float64, device=w.device)
    violations = torch.zeros_like(bounds)
    for label, (start, count) in enumerate(zip(lists.starts.tolist(), lists.counts.tolist(), strict=True)):
        for i in lists.members[start : start + count].tolist():
            row = slice(X.starts[i], X.starts[i + 1])
            columns, values = X.columns[row].long(), X.values[row]
            b, lo, hi = entries.B[label, i], entries.lo[label, i], entries.hi[label, i]
            # The residual, and the share of this entry in the gap.
            e = entries.T[label, i] - w[label, columns] @ values - bias.feature * bias.at[label]
            seen[label] += (hi - b) * e.clamp(min=0) + (b - lo) * (-e).clamp(min=0)
            if (b == lo and -e > bounds[0, label]) or (b == hi and e > bounds[1, label]):
                entries.flags[label, i] = False
                continue
            if b > lo:
                violations[0, label] = torch.maximum(violations[0, label], -e)
            if b < hi:
                violations[1, label] = torch.maximum(violations[1, label], e)
            # The coordinate step, and the weights and the bias that follow it.
            own = (q[i] + bias.pull[label] * bias.feature**2) * r[label]
            change = torch.clamp(b + e * inverse(own), lo, hi) - b
            entries.B[label, i] += change
            w[label, columns] += change * r[label] * values
            bias.at[label] += bias.pull[label] * bias.feature * change * r[label]
    return seen, violations


def sum_rows(starts, columns, values, dense):
    """The product of sparse rows and a dense matrix."""
    counts = starts.diff()
    rows = torch.repeat_interleave(torch.arange(len(counts), device=dense.device), counts)
    answer = torch.zeros(len(counts), dense.shape[1], dtype=dense.dtype, device=dense.device)
    return answer.index_add_(0, rows, values[:, None] * dense[columns.long()])
