"""One Newton step of the proximal method in one call, for problems so small that calls are what takes time.

The step is that of `maxmargin.structured.newton`, whose letters it uses; weights are class-major (c, D), the
constant feature is the last column of X. With two classes W_1 = -W_2, so that Newton's matrix is that of one.

Arguments shared by the loops:

- `task`: `ProximalTask`, what a fit never changes;
- `X` (n, D): rows with the constant feature, float64;
- `state`: `SmallState`, which a step moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.structured.newton_loops import CRAMMER_SINGER, Along, Points, proximal_pass

# Places in `SmallState.numbers`: tau, the sum of the block gaps, P and D here, and the best of both.
TAU, GAP, PRIMAL, DUAL, BEST_PRIMAL, BEST_DUAL = range(6)
# How often a matrix that rounding has made indefinite gets a larger ridge, and the points of a line search.
RIDGES, TRIES = 16, 60
# The truth has what wrong classes leave of one; less than this is rounding.
ROUNDED = 1e-15


class SmallState(NamedTuple):
    """A point W with its scores, proximal points and W(alpha), the anchor, the best of both sides.

    `direction`, `moves`, `matrix` and `vectors` (scales, right-hand side) are room for a step.
    """

    W: np.ndarray
    image: np.ndarray
    scores: np.ndarray
    anchor: np.ndarray
    points: Points
    best_W: np.ndarray
    best_blocks: np.ndarray
    numbers: np.ndarray
    direction: np.ndarray
    moves: np.ndarray
    matrix: np.ndarray
    vectors: np.ndarray


@helper(reorder=True, hot=True)
def dot(a, b, size):
    """The product of the first entries of two rows."""
    total = 0.0
    for f in range(size):
        total += a[f] * b[f]
    return total


@helper(reorder=True, hot=True)
def add_scaled(factor, x, target, size):
    """target += factor x, in the first entries."""
    for f in range(size):
        target[f] += factor * x[f]


@helper(hot=True)
def clear(matrix):
    """matrix = 0."""
    for a in range(matrix.shape[0]):
        for b in range(matrix.shape[1]):
            matrix[a, b] = 0.0


@helper(hot=True)
def copy_rows(source, target):
    """target = source."""
    for i in range(source.shape[0]):
        for k in range(source.shape[1]):
            target[i, k] = source[i, k]


@helper(hot=True)
def score_rows(X, W, scores):
    """scores = X W'."""
    for i in range(X.shape[0]):
        for k in range(W.shape[0]):
            scores[i, k] = dot(X[i], W[k], W.shape[1])


@helper(reorder=True, hot=True)
def add_block(x, factor, row, column, matrix):
    """Add factor x x' to the block at (row, column), below the diagonal of the matrix alone."""
    D = x.size
    for f in range(D):
        s = factor * x[f]
        if s != 0.0:
            for g in range(f + 1 if row == column else D):
                matrix[row + f, column + g] += s * x[g]


@helper(hot=True)
def add_curvature(task, X, tau, blocks, matrix):
    """Add the second derivative of the smoothed losses, below the diagonal; of two classes, along (v, -v)."""
    y, costs, _, loss = task
    n, c = blocks.shape
    D = X.shape[1]
    for i in range(n):
        weight, truth, size = costs[i] / tau, y[i], 0
        for k in range(c):
            size += counts(task, truth, k, blocks[i, k])
        if size < 2 or weight == 0.0:
            continue
        if c == 2:
            add_block(X[i], weight if loss == CRAMMER_SINGER else 2.0 * weight, 0, 0, matrix)
            continue
        for k in range(c):
            for l in range(k + 1):
                if counts(task, truth, k, blocks[i, k]) and counts(task, truth, l, blocks[i, l]):
                    if loss == CRAMMER_SINGER:
                        factor = weight * ((1.0 if k == l else 0.0) - 1.0 / size)
                    elif k == l:
                        factor = weight * ((size - 1.0) if k == truth else 1.0)
                    else:
                        factor = -weight if k == truth or l == truth else 0.0
                    add_block(X[i], factor, k * D, l * D, matrix)


@helper(hot=True)
def counts(task, truth, k, mass):
    """Whether a class of a block moves with its scores."""
    if task.loss == CRAMMER_SINGER:
        return mass > (ROUNDED if k == truth else 0.0)
    return k == truth or 0.0 < mass < 1.0


@helper(hot=True)
def hold_mean(matrix, c, D):
    """Add the mean of the blocks on the diagonal, over c, to all blocks: all classes moving alike."""
    for f in range(D):
        for g in range(f + 1):
            total = 0.0
            for k in range(c):
                total += matrix[k * D + f, k * D + g]
            total /= c * c
            for k in range(c):
                for l in range(k + 1):
                    matrix[k * D + f, l * D + g] += total
                    if f != g and l != k:
                        matrix[k * D + g, l * D + f] += total


@helper(hot=True)
def factored(matrix, scales, ridge):
    """Cholesky factor, in place, of the matrix scaled to a diagonal of 1 + ridge; false if there is none."""
    order = matrix.shape[0]
    for a in range(order):
        scales[a] = 1.0 / np.sqrt(matrix[a, a])
    for a in range(order):
        for b in range(a):
            s = matrix[a, b] * scales[a] * scales[b] - dot(matrix[a], matrix[b], b)
            matrix[a, b] = s / matrix[b, b]
        pivot = 1.0 + ridge - dot(matrix[a], matrix[a], a)
        if not pivot > 0.0:
            return False
        matrix[a, a] = np.sqrt(pivot)
    return True


@helper(hot=True)
def solve(matrix, scales, vector):
    """Solve with the factor, in place."""
    order = matrix.shape[0]
    for a in range(order):
        vector[a] = (vector[a] * scales[a] - dot(matrix[a], vector, a)) / matrix[a, a]
    for a in range(order - 1, -1, -1):
        vector[a] /= matrix[a, a]
        add_scaled(-vector[a], matrix[a], vector, a)
    for a in range(order):
        vector[a] *= scales[a]


@helper(hot=True)
def find_direction(task, X, state):
    """Newton's direction, with mean 0 over the classes."""
    W, image, matrix, direction = state.W, state.image, state.matrix, state.direction
    scales, vector = state.vectors[0], state.vectors[1]
    c, D = W.shape
    ridge = 0.0
    for _ in range(RIDGES):
        clear(matrix)
        add_curvature(task, X, state.numbers[TAU], state.points.blocks, matrix)
        for a in range(matrix.shape[0]):
            matrix[a, a] += 1.0
        if c > 2:
            hold_mean(matrix, c, D)
        if factored(matrix, scales, ridge):
            break
        ridge = max(10.0 * ridge, 2.2e-16)
    for f in range(D):
        if c == 2:
            vector[f] = 0.5 * ((image[0, f] - W[0, f]) - (image[1, f] - W[1, f]))
        else:
            for k in range(c):
                vector[k * D + f] = image[k, f] - W[k, f]
    solve(matrix, scales, vector)
    for f in range(D):
        if c == 2:
            direction[0, f], direction[1, f] = vector[f], -vector[f]
        else:
            mean = 0.0
            for k in range(c):
                mean += vector[k * D + f] / c
            for k in range(c):
                direction[k, f] = vector[k * D + f] - mean


@helper
def settle(X, totals, state):
    """W(alpha), P and D of the point whose proximal points were found, and the best of both sides."""
    W, image, numbers, points = state.W, state.image, state.numbers, state.points
    c, D = W.shape
    clear(image)
    for i in range(X.shape[0]):
        if points.masses[i] > 0.0:
            for k in range(c):
                if points.steps[i, k] != 0.0:
                    add_scaled(points.steps[i, k], X[i], image[k], D)
    square, image_square = 0.0, 0.0
    for k in range(c):
        square += dot(W[k], W[k], D)
        image_square += dot(image[k], image[k], D)
    numbers[GAP] = totals[0] - totals[1]
    numbers[PRIMAL] = 0.5 * square + totals[0]
    numbers[DUAL] = totals[2] - 0.5 * image_square
    if numbers[PRIMAL] < numbers[BEST_PRIMAL]:
        numbers[BEST_PRIMAL] = numbers[PRIMAL]
        copy_rows(W, state.best_W)
    if numbers[DUAL] > numbers[BEST_DUAL]:
        numbers[BEST_DUAL] = numbers[DUAL]
        copy_rows(points.blocks, state.best_blocks)


@compiled(allocates=True)
def newton_step(task, X, samples, share, shrink, flat, state):
    """One Newton step on F, whose anchor moves first if F is minimised well enough.

    The line search looks for a point at which F, which is convex, is nearly flat along the direction.
    """
    W, image, scores, direction, moves = state.W, state.image, state.scores, state.direction, state.moves
    c, D = W.shape
    totals = np.empty(4)
    left = 0.0
    for k in range(c):
        for f in range(D):
            left += 0.5 * (W[k, f] - image[k, f]) ** 2
    if left <= share * state.numbers[GAP]:
        copy_rows(state.points.blocks, state.anchor)
        state.numbers[TAU] *= shrink
        score_rows(X, W, scores)
        proximal_pass(
            task, Along(scores, 0.0, scores), state.numbers[TAU], state.anchor, samples, state.points, totals
        )
        settle(X, totals, state)
    find_direction(task, X, state)
    steepest, start, growth = 0.0, 0.0, 0.0
    for k in range(c):
        for f in range(D):
            steepest += (W[k, f] - image[k, f]) * direction[k, f]
            start += W[k, f] * direction[k, f]
            growth += direction[k, f] ** 2
    if not steepest < 0.0:
        return  # Rounding has eaten the direction.
    score_rows(X, direction, moves)
    low, low_slope, high, high_slope = 0.0, steepest, np.inf, np.inf
    t, taken = 1.0, 0.0
    for attempt in range(TRIES):
        proximal_pass(
            task, Along(scores, t, moves), state.numbers[TAU], state.anchor, samples, state.points, totals
        )
        taken = t
        slope = start + t * growth - totals[3]
        if abs(slope) <= flat * abs(steepest):
            break
        if slope > 0.0:
            high, high_slope = t, slope
        else:
            low, low_slope = t, slope
        if high == np.inf:
            t *= 2.0
        else:
            # Halving in between, or a slope that jumps would hold one end for long.
            part = low_slope / (low_slope - high_slope) if attempt % 3 < 2 else 0.5
            t = low + (high - low) * min(max(part, 0.1), 0.9)
    for k in range(c):
        add_scaled(taken, direction[k], W[k], D)
    for i in range(scores.shape[0]):
        add_scaled(taken, moves[i], scores[i], c)
    settle(X, totals, state)
