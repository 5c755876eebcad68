"""Pairwise Frank-Wolfe on chains with cached labelings (the default solver).

Problem and dual as in problems/chain.py. Block i holds alpha_i as a list of labelings with
weights. A visit

1. finds the labeling u with the largest H_i by Viterbi and adds it to the list;
2. on the list alone, repeatedly moves weight from the worst labeling v in use to the best
   one u, gamma = min((H_u - H_v) / (C_i |Psi_u - Psi_v|^2), alpha_v), until the gap of the
   list has shrunk to PRECISION of what it was. Stored Gram matrices keep H exact;
3. moves w by the sum of these steps.

An epoch is one visit of every block and then REPEATS visits that leave out step 1 and go on
with the labelings in use, which costs a fraction of a Viterbi call.

Step 2 minimises a quadratic with its curvature divided by RELAXATION. For any relaxation
below 2 the dual still rises: the minimiser d satisfies d . H >= d'Qd / relaxation, so the
change of the true quadratic is at most (1/2 - 1/relaxation) d'Qd < 0. Over-relaxation
anticipates what the neighbouring blocks will do.

The primal is evaluated at a running mean of w over the last few epochs (see _passes.py).

Gap and stopping: see solvers/_chain.py. Pairwise steps with an active set: Lacoste-Julien
and Jaggi (2015); cached labelings: Shah, Kolmogorov and Lampert (2015), Osokin et al. (2016).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Clock
from maxmargin.structured.atoms import Slots
from maxmargin.structured.chain_pairwise_loops import cached_epoch, pairwise_epoch, weights_of_labelings
from maxmargin.structured.chain_solver import ChainMethod
from maxmargin.structured.passes import mean_of_pass, mean_with_repeats

CACHED_STEPS = 100
REPEATS = 5
PRECISION = 0.1
RELAXATION = 1.5
# Weight of the newest epoch in the running mean of w.
NEWEST = 0.2
FIRST_CAPACITY = 8


def true_labelings(y: np.ndarray, offsets: np.ndarray) -> Slots:
    """Every block holds the true labeling alone: w = 0."""
    lengths = np.diff(offsets)
    slots = Slots.empty(lengths, np.full(lengths.size, FIRST_CAPACITY))
    slots.count[:] = 1
    slots.alpha[slots.slot_at[:-1]] = 1.0
    within = np.arange(y.size) - np.repeat(offsets[:-1], lengths)
    slots.labels[np.repeat(slots.label_at[:-1], lengths) + within] = y
    return slots


class ChainPairwise(ChainMethod):
    """The method above; `state` is the dual solution of an earlier fit on the same sequences."""

    def __init__(
        self, problem: Any, rng: np.random.RandomState, tol: float, state: Slots | None = None
    ) -> None:
        super().__init__(problem, rng, tol)
        self.state = true_labelings(problem.y, problem.offsets) if state is None else state
        self.gaps = np.where(problem.costs > 0, np.inf, 0.0)
        self.mean, self.averaged = problem.weights(), 0
        K, longest = problem.n_labels, problem.longest
        self.scratch = problem.weights()
        self.work = *np.zeros((2, longest, K)), np.zeros(longest, np.int64)
        if state is not None:
            self.restore()

    def sweep(self, clock: Clock) -> None:
        self.state = self.state.enlarged()
        mean = mean_of_pass(self.visit, self.rng.permutation(self.blocks), self.weights.vector, clock)
        if mean is not None:
            mixed = self.state.mixed(self.blocks)
            mean = mean_with_repeats(mean, self.revisit, mixed, REPEATS, self.rng, self.weights.vector, clock)
        if mean is not None:
            self.averaged += 1
            self.mean.vector += max(1.0 / self.averaged, NEWEST) * (mean - self.mean.vector)

    def visit(self, order: np.ndarray) -> None:
        p, s = self.problem, self.state
        H, old = np.empty((2, int(s.capacity.max())))
        pairwise_epoch(
            p.rows.flat, p.offsets, p.y, p.costs, p.loss, order, *self.weights.parts, *self.scratch.parts,
            s.capacity, s.label_at, s.slot_at, s.gram_at, s.count, s.labels, s.alpha, s.deltas, s.grams,
            self.gaps, CACHED_STEPS, PRECISION, RELAXATION, *self.work, H, old,
        )  # fmt: skip

    def revisit(self, order: np.ndarray) -> None:
        """Visit the blocks of `order` on the labelings in use alone."""
        p, s = self.problem, self.state
        H, old = np.empty((2, int(s.capacity.max())))
        cached_epoch(
            p.rows.flat, p.offsets, p.y, p.costs, order, *self.weights.parts,
            s.capacity, s.label_at, s.slot_at, s.gram_at, s.count, s.labels, s.alpha, s.deltas, s.grams,
            CACHED_STEPS, PRECISION, RELAXATION, H, old,
        )  # fmt: skip

    def candidate(self) -> Any:
        return self.mean

    def expected_loss(self) -> np.ndarray:
        return self.state.expected_loss()

    def active(self) -> int:
        return int(np.count_nonzero(self.state.alpha))

    def restore(self) -> None:
        p, s = self.problem, self.state
        self.weights.vector[:] = 0.0
        weights_of_labelings(
            p.rows.flat, p.offsets, p.y, p.costs, s.capacity, s.label_at, s.slot_at, s.count,
            s.labels, s.alpha, *self.weights.parts,
        )  # fmt: skip
