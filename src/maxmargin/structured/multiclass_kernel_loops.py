"""Inner loops of the kernelised multi-class machines: steps inside a working set, gaps of all samples.

Arguments are those of `maxmargin.structured.multiclass_loops`; in `solve_set` they are restricted to the
samples of the working set.
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
    """At most `passes`, until the gap found in a pass is at most `share` of that of the first pass.

    With `shrinking`, a block at a vertex with a negligible gap is not visited again. With `again`, such
    blocks are visited again once the others have reached `share`, and the last pass is over all blocks. A
    block with less than the share `small` of the mean gap of the previous pass is not moved.
    """

    passes: int
    share: float
    shrinking: bool
    small: float
    again: bool


# A negligible gap of a block, as a share of the mean gap to reach.
NEGLIGIBLE = 0.3


@compiled(reorder=True, allocates=True)
def solve_set(K, problem, plan, orders, scores, alpha):
    """Exact block steps inside the kernel K of a working set, one pass after another.

    `scores` (c, size) and `alpha` (size, c) of the set are updated, in the precision of K. The passes cycle
    through the rows of `orders`. Returns the number of moves.
    """
    passes, share, shrinking, small, again = plan
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
            # The margins of the block and its exact step.
            truth = y[i]
            kernel_margins(problem, truth, i, scores, H)
            for k in range(c):
                a[k] = alpha[i, k]
            gap, gain = exact_move(here, i, c, work)
            found += costs[i] * gap
            unit += gap
            count += 1
            # A move changes the scores of the set; a block without one may be left out.
            if gain >= 0:
                moves += 1
                for k in range(c):
                    alpha[i, k] = a[k]
                subtract_kernel_row(step, K[i], scores)
            elif shrinking and gap <= least and at_bounds(a, c, truth):
                done[i] = True
        # The stopping rule, and the level of the next pass.
        if t == 0:
            first = found
            least = NEGLIGIBLE * share * unit / size
        if found <= share * first or count == 0:
            if count == size or not again:
                break
            for i in range(size):
                done[i] = False
        level = small * unit / max(count, 1)
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
