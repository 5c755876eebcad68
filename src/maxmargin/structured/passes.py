"""Passes over blocks, and the mean of the weights on the way.

The dual rises smoothly under block steps, but the primal jumps about, as each visit serves its
own block; the mean of the weights over a pass is the better model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from maxmargin.core.loop import Clock

# Pieces of a pass, between which the time limit is looked at.
PIECES = 8


def mean_of_pass(
    visit: Callable[[np.ndarray], None], order: np.ndarray, weights: np.ndarray, clock: Clock
) -> np.ndarray | None:
    """Visit the blocks in `order`; the mean of `weights` after every piece, None if time ran out."""
    total = np.zeros_like(weights)
    for piece in np.array_split(order, PIECES):
        if clock.expired():
            return None
        visit(piece)
        total += weights / PIECES
    return total


def mean_with_repeats(
    mean: np.ndarray,
    visit: Callable[[np.ndarray], None],
    blocks: np.ndarray,
    repeats: int,
    rng: np.random.RandomState,
    weights: np.ndarray,
    clock: Clock,
) -> np.ndarray | None:
    """Pass over `blocks` so many times more, each in random order.

    Returns the mean of `mean` and the weights after every further pass, None if time ran out.
    """
    total = mean.copy()
    for _ in range(repeats):
        if clock.expired():
            return None
        visit(rng.permutation(blocks))
        total += weights
    return total / (1 + repeats)
