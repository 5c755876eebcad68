"""Inner loops of the kernelised multi-class machines: steps inside a working set, gaps of all samples.

Arguments are those of `maxmargin.structured.multiclass_loops`, restricted to the samples of the
working set where said so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.structured.multiclass_loops import (
    WESTON_WATKINS,
    ExactWork,
    ProblemArrays,
    at_bounds,
    exact_move,
    kernel_margins,
    subtract_kernel_row,
)


class Plan(NamedTuple):
    """At most `passes`, until the gaps found in one are the part `share` of those of the first.

    With `shrinking`, a block at a vertex with next to no gap is not visited again, or, with `again`, only
    once the others have come so far; then the last pass is one over all. A block with less than the part
    `quiet` of the mean gap of the pass before is not moved.
    """

    passes: int
    share: float
    shrinking: bool
    quiet: float
    again: bool


# A gap that is no reason to visit a block again, as a part of the mean gap that is aimed at.
NEGLIGIBLE = 0.3


@compiled(reorder=True, allocates=True)
def settle(K, problem, plan, orders, scores, alpha):
    """Exact block steps inside the kernel K of a working set, one pass after another.

    `scores` (c, size) and `alpha` (size, c) are those of the set and move, in the precision of K; the
    passes take the rows of `orders` in turn. Returns how many blocks were moved.
    """
    passes, share, shrinking, quiet, again = plan
    y, costs, norms, Delta, loss, bias, rounding, lanes = problem
    size, c = alpha.shape
    width = -(-c // len(lanes)) * len(lanes)
    H, a = np.zeros(width, scores.dtype), np.zeros(width, scores.dtype)
    v, step = np.zeros(width, scores.dtype), np.zeros(width, scores.dtype)
    work = ExactWork(H, a, v, step)
    done = np.zeros(size, np.bool_)
    first = found = level = least = 0.0
    moves = 0
    for t in range(passes):
        order = orders[t % len(orders)]
        here = ProblemArrays(y, costs, norms, Delta, loss, bias, max(rounding, level), lanes)
        found, unit, count = 0.0, 0.0, 0
        for j in range(size):
            i = order[j]
            if done[i]:
                continue
            truth = y[i]
            kernel_margins(problem, truth, i, scores, H)
            for k in range(c):
                a[k] = alpha[i, k]
            gap, gain = exact_move(here, i, c, work)
            found += costs[i] * gap
            unit += gap
            count += 1
            if gain >= 0:
                moves += 1
                for k in range(c):
                    alpha[i, k] = a[k]
                subtract_kernel_row(step, K[i], scores)
            elif shrinking and gap <= least and at_bounds(a, c, truth):
                done[i] = True
        if t == 0:
            first = found
            least = NEGLIGIBLE * share * unit / size
        if found <= share * first or count == 0:
            if count == size or not again:
                break
            for i in range(size):
                done[i] = False
        level = quiet * unit / max(count, 1)
    return moves


@compiled(reorder=True)
def measure(problem, scores, alpha, gaps):
    """Block gaps of all samples from their scores (n, c); returns the costed losses and |W|^2."""
    y, costs, Delta = problem.y, problem.costs, problem.Delta
    losses, squared = 0.0, 0.0
    for i in range(y.size):
        truth = y[i]
        base = scores[i, truth]
        largest, total, mean, lead = 0.0, 0.0, 0.0, 0.0
        for k in range(alpha.shape[1]):
            rise = scores[i, k] - base
            h = Delta[truth, k] + rise
            largest = max(largest, h)
            total += max(h, 0.0)
            mean += alpha[i, k] * h
            lead -= alpha[i, k] * rise
        value = total if problem.loss == WESTON_WATKINS else largest
        gaps[i] = costs[i] * max(value - mean, 0.0)
        losses += costs[i] * value
        squared += costs[i] * lead
    return losses, squared
