"""Pairwise and plain Frank-Wolfe on the pairs (candidate, class) of each bag.

Problem and dual as in problems/latent.py, rounds and stopping rule in latent_rounds.py. A
block keeps the pairs that carry weight. A visit scores all pairs of the bag, adds the best
one, u, and then either

- moves alpha towards u: gamma = (H_u - E H) / (C_i |Phi_u - E Phi|^2), clipped to [0, 1]
  (Frank-Wolfe), or
- on the pairs it has, moves weight from the worst to the best one until the gap among them
  has shrunk to PRECISION, with the curvature divided by RELAXATION (see chain_pairwise.py).

After the visits of a pairwise epoch the blocks are visited again on the pairs in use alone,
as often as costs about as much as scoring all pairs did, at most REPEATS times.

The features of two pairs are orthogonal unless the class is the same; then their product is
that of the candidates. The candidates of a bag are coupled by it, so that no projection onto
the simplex solves the block exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Clock
from maxmargin.core.rows import row_product
from maxmargin.structured.atoms import Slots
from maxmargin.structured.latent_loops import cached_epoch, pairs_epoch, weights_of_pairs
from maxmargin.structured.latent_rounds import LatentRounds
from maxmargin.structured.passes import mean_with_repeats

CACHED_STEPS = 100
REPEATS = 30
PRECISION = 0.1
RELAXATION = 1.5
FIRST_CAPACITY = 8


class LatentPairs(LatentRounds):
    """The method above; `pairwise=False` takes Frank-Wolfe steps."""

    state: Slots

    def __init__(self, *arguments: Any, pairwise: bool = True, **options: Any) -> None:
        self.pairwise = pairwise
        super().__init__(*arguments, **options)

    def visit(self, order: np.ndarray) -> None:
        p, s = self.problem, self.state
        H = np.empty((p.largest, p.n_classes))
        values, old = np.empty((2, int(s.capacity.max())))
        pairs_epoch(
            p.rows.flat, p.offsets, p.y, p.costs, p.bias, order, self.W,
            s.capacity, s.label_at, s.slot_at, s.gram_at, s.count, s.labels, s.alpha, s.deltas, s.grams,
            self.gaps, self.pairwise, CACHED_STEPS, PRECISION, RELAXATION, H, values, old,
        )  # fmt: skip

    def revisit(self, order: np.ndarray) -> None:
        """Visit the blocks of `order` on the pairs in use alone."""
        p, s = self.problem, self.state
        values, old = np.empty((2, int(s.capacity.max())))
        cached_epoch(
            p.rows.flat, p.offsets, p.costs, p.bias, order, self.W,
            s.capacity, s.label_at, s.slot_at, s.gram_at, s.count, s.labels, s.alpha, s.deltas, s.grams,
            CACHED_STEPS, PRECISION, RELAXATION, values, old,
        )  # fmt: skip

    def sweep(self, clock: Clock) -> np.ndarray | None:
        self.state = self.state.enlarged()
        mean = super().sweep(clock)
        if mean is None or not self.pairwise:
            return mean
        p = self.problem
        mixed = self.state.mixed(self.blocks)
        repeats = min(REPEATS, p.rows.shape[0] * p.n_classes // self.active())
        return mean_with_repeats(mean, self.revisit, mixed, repeats, self.rng, self.W, clock)

    def restart(self) -> None:
        """All weight on (h*_i, y_i): W = 0."""
        p = self.problem
        n = p.y.size
        s = Slots.empty(np.full(n, 2), np.full(n, FIRST_CAPACITY))
        s.count[:] = 1
        s.alpha[s.slot_at[:-1]] = 1.0
        s.labels[s.label_at[:-1]] = self.chosen
        s.labels[s.label_at[:-1] + 1] = p.y
        norms = p.rows.squared_norms() + p.bias**2
        s.grams[s.gram_at[:-1]] = norms[p.offsets[:-1] + self.chosen]
        self.state = s
        self.W[:] = 0.0

    def follow(self, new: np.ndarray) -> None:
        """Give the weight of (old h*, y) to (new h*, y) where the block holds that pair already,
        and rename the old pair otherwise."""
        p, s = self.problem, self.state
        for i in np.flatnonzero(new != self.chosen):
            pairs = s.labels[s.label_at[i] : s.label_at[i + 1]].reshape(-1, 2)[: s.count[i]]
            alpha = s.alpha[s.slot_at[i] : s.slot_at[i + 1]]
            is_truth = pairs[:, 1] == p.y[i]
            source = np.flatnonzero(is_truth & (pairs[:, 0] == self.chosen[i]))
            target = np.flatnonzero(is_truth & (pairs[:, 0] == new[i]))
            if not source.size:
                continue
            if target.size:
                alpha[target[0]] += alpha[source[0]]
                alpha[source[0]] = 0.0
                continue
            pairs[source[0], 0] = new[i]
            room = s.capacity[i]
            gram = s.grams[s.gram_at[i] : s.gram_at[i + 1]].reshape(room, room)
            first = p.offsets[i]
            for j in np.flatnonzero(is_truth):
                product = row_product(p.rows.flat, first + pairs[j, 0], first + new[i], p.bias)
                gram[source[0], j] = gram[j, source[0]] = product

    def expected_loss(self) -> np.ndarray:
        return self.state.expected_loss()

    def restore(self) -> None:
        p, s = self.problem, self.state
        self.W[:] = 0.0
        weights_of_pairs(
            p.rows.flat, p.offsets, p.y, p.costs, p.bias, self.chosen,
            s.capacity, s.label_at, s.slot_at, s.count, s.labels, s.alpha, self.W,
        )  # fmt: skip

    def active(self) -> int:
        return int(np.count_nonzero(self.state.alpha))
