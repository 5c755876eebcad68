"""Inner loops of the proximal Newton method: proximal points of all blocks, and their curvature.

Arguments shared by the loops, read-only unless noted:

- `task`: `ProximalTask`, constant during a fit;
- `scores`, `moves` (n, c): scores W_k.x_i, and their change per unit of a step along a direction;
- `anchor` (n, c), `tau`: the centre and the strength of the proximal term;
- `points`: `Points`, written: proximal points alpha, their masses and steps.

Rows of X are dense float64 chunks for any X, the constant feature last, so each loop is compiled once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper

CRAMMER_SINGER = 0


class ProximalTask(NamedTuple):
    """Class and cost of every sample, the cost matrix and the kind of loss."""

    y: np.ndarray
    costs: np.ndarray
    Delta: np.ndarray
    loss: int


class Along(NamedTuple):
    """The point scores + t moves of a line."""

    scores: np.ndarray
    t: float
    moves: np.ndarray


class Points(NamedTuple):
    """Proximal points alpha (n, c), their masses on wrong classes (n,) and C_i (e_{y_i} - alpha_i) (n, c).

    The last two are computed from alpha of the wrong classes alone, so masses below the rounding of 1 keep
    all digits.
    """

    blocks: np.ndarray
    masses: np.ndarray
    steps: np.ndarray


@helper(hot=True)
def proximal_simplex(H, anchor, tau, v, new):
    """new = projection of anchor + H / tau on the simplex.

    The level theta of max(v_k - theta, 0) is found by dropping classes until all kept ones have mass. With S
    the kept classes, sum_S v_k - 1 equals sum_S H_k / tau minus the anchor's mass outside S. This form does
    not subtract 1, so small masses keep their digits. Margins are relative to that of the largest v, so that
    those of S are small.
    """
    c = H.size
    top = 0
    for k in range(c):
        v[k] = anchor[k] + H[k] / tau
        if v[k] > v[top]:
            top = k
    base = H[top]
    for k in range(c):
        v[k] = anchor[k] + (H[k] - base) / tau
    theta, kept = v[top] - 1.0, 0
    for _ in range(c):
        total, count = 0.0, 0
        for k in range(c):
            if v[k] > theta:
                total += (H[k] - base) / tau
                count += 1
            else:
                total -= anchor[k]
        if count == kept:
            break
        kept, theta = count, total / count
    for k in range(c):
        new[k] = max(v[k] - theta, 0.0)


@helper(hot=True)
def proximal_block(task, truth, H, anchor, tau, v, new):
    """The proximal point of one block; returns the mass on wrong classes, at most one on a simplex."""
    c = H.size
    if task.loss == CRAMMER_SINGER:
        proximal_simplex(H, anchor, tau, v, new)
    else:
        for k in range(c):
            new[k] = min(max(anchor[k] + H[k] / tau, 0.0), 1.0)
    mass = 0.0
    for k in range(c):
        if k != truth:
            mass += new[k]
    if task.loss == CRAMMER_SINGER and mass > 1.0:
        for k in range(c):
            new[k] /= mass
        mass = 1.0
    new[truth] = 1.0 - mass
    return mass


@compiled
def proximal_pass(task, along, tau, anchor, samples, points, workspace, totals):
    """Proximal points of the blocks of `samples` at a point of a line; `workspace` (2, c) is written.

    `totals` become the costed sums of the losses, of alpha.H and of alpha.Delta, and the sum of
    steps.moves. A block of no mass on wrong classes adds nothing to any of them.
    """
    y, costs, Delta, loss = task
    scores, t, moves = along
    blocks, masses, all_steps = points
    c = scores.shape[1]
    H, v = workspace[0], workspace[1]
    losses, means, linear, slope = 0.0, 0.0, 0.0, 0.0
    for i in samples:
        # Margins H_i at the point of the line, their maximum and positive sum.
        truth, cost = y[i], costs[i]
        base = scores[i, truth] + t * moves[i, truth]
        largest, positive, held = 0.0, 0.0, 0.0
        for k in range(c):
            h = Delta[truth, k] + (scores[i, k] + t * moves[i, k] - base)
            H[k] = h
            if k != truth:
                largest = max(largest, h)
                positive += max(h, 0.0)
                held += anchor[i, k]
        H[truth] = 0.0
        new, steps = blocks[i], all_steps[i]
        if largest == 0.0 and held == 0.0:
            # No violation and an anchor at the truth: the block stays there.
            for k in range(c):
                new[k], steps[k] = 0.0, 0.0
            new[truth], masses[i] = 1.0, 0.0
            continue
        # The proximal point, C_i (e_{y_i} - alpha_i), and the sums.
        mass = proximal_block(task, truth, H, anchor[i], tau, v, new)
        mean, cross = 0.0, 0.0
        for k in range(c):
            if k != truth:
                mean += new[k] * H[k]
                cross += new[k] * Delta[truth, k]
                steps[k] = -cost * new[k]
                slope += steps[k] * moves[i, k]
        steps[truth], masses[i] = cost * mass, mass
        slope += steps[truth] * moves[i, truth]
        losses += cost * (largest if loss == CRAMMER_SINGER else positive)
        means += cost * mean
        linear += cost * cross
    totals[0], totals[1], totals[2], totals[3] = losses, means, linear, slope


@helper(reorder=True)
def add_outer(x, factor, row, column, matrix):
    """Add factor x x' to the block of the matrix whose corner is (row, column)."""
    for f in range(x.size):
        s = factor * x[f]
        if s != 0:
            target = matrix[row + f]
            for g in range(x.size):
                target[column + g] += s * x[g]


@compiled
def add_curvature(task, first, X, tau, blocks, matrix, support):
    """Add the second derivative of the smoothed losses of the rows from `first` on to a matrix.

    Row k D + f belongs to feature f of class k; of the blocks (k, l) only those with l <= k are filled. A
    block whose classes S have mass adds C / tau (1_S - 1 / |S|) (x) x x', one with free classes
    (Weston-Watkins) C / tau (e_k - e_y) (e_k - e_y)' (x) x x' for each. With two classes the matrix is that
    of the weights (v, -v), of order D. `support` (c,) is written.
    """
    y, costs, _, loss = task
    c = blocks.shape[1]
    D = X.shape[1]
    for r in range(X.shape[0]):
        i = first + r
        # The classes S with curvature.
        truth = y[i]
        size = 0
        for k in range(c):
            inside = blocks[i, k] > 0.0
            if loss != CRAMMER_SINGER:
                inside = k == truth or (inside and blocks[i, k] < 1.0)
            if inside:
                support[size] = k
                size += 1
        if size < 2 or costs[i] == 0:
            continue
        weight = costs[i] / tau
        if c == 2:
            add_outer(X[r], weight if loss == CRAMMER_SINGER else 2.0 * weight, 0, 0, matrix)
            continue
        for s in range(size):
            for t in range(s + 1):
                k, l = support[s], support[t]
                if loss == CRAMMER_SINGER:
                    factor = weight * ((1.0 if k == l else 0.0) - 1.0 / size)
                elif k == l:
                    factor = weight * ((size - 1.0) if k == truth else 1.0)
                elif k == truth or l == truth:
                    factor = -weight
                else:
                    continue
                add_outer(X[r], factor, k * D, l * D, matrix)
