"""Multi-class machines in the feature space of a kernel.

The problem is that of `maxmargin.structured.multiclass_problem` with x_i.x_j replaced by K_ij. With the
coefficients B = diag(C_i) (E - alpha), E one-hot, the scores of the training samples are K B,
|W|^2 = tr(B'KB), and a block step takes C_i delta_k K_i from the scores of class k.

Where K does not fit in memory, the exact solver takes samples in parts whose own kernel does: many
steps inside a part cost its size each, and one matrix product then carries its change to the
scores of all samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate
from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_kernel_loops as kernel_loops
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.multiclass_problem import (
    STEPS,
    Labels,
    MultiClassProblem,
    State,
    StepRule,
    alpha_moved,
    normalised,
)

# Where K does not fit, samples are taken in parts with a kernel of their own, of at least so many;
# passes over a part end when the gaps found have fallen to this share, or after so many.
LEAST, SETTLED, PASSES = 64, 0.05, 40


class KernelMultiClass(MultiClassProblem):
    """The problem in the feature space of a kernel; the state keeps the scores (c x n)."""

    def __init__(self, K: KernelMatrix, labels: Labels) -> None:
        super().__init__(labels, K.diagonal, np.float64)
        self.K = K
        self._Delta = readonly(labels.Delta.astype(np.float64))
        self.lanes = (0,) * 4
        self.averages = False
        # Where K does not fit in `cache_size`, as many samples as have a kernel of their own that does.
        room = 0 if K.whole is not None else int((K.cache_size * 2**20 / K.dtype.itemsize) ** 0.5)
        self.in_parts = room >= LEAST
        if self.in_parts:
            self.stride = room

    def start(self, entropic: bool, spread: float = 0.0, alpha: np.ndarray | None = None) -> State:
        """State at the given blocks, or at all mass on the truth."""
        if alpha is None:
            alpha = self.first_blocks(entropic, spread)
        else:
            alpha = self.given_blocks(alpha, entropic, spread)
        state = State(alpha, np.zeros((self.c, self.n)), entropic, np.empty((0, 0)))
        if alpha_moved(state, self.y):
            state.weights = np.ascontiguousarray(self.K.times(self.coefficients(state)).T)
        return state

    def coefficients(self, state: State) -> np.ndarray:
        """B = C_i (e_{y_i} - alpha_i): the scores of a sample x are k(x, X) B."""
        B = -normalised(state, self.loss)
        B[np.arange(self.n), self.y] += 1.0
        return self.costs[:, None] * B

    def exact_sweep(
        self, state: State, order: np.ndarray, gaps: np.ndarray, idle: np.ndarray, snapshots: bool = False
    ) -> float:
        """Solve the blocks in `order`, at most `stride`, exactly; several times over where K does not fit.

        Returns the increase of the dual.
        """
        if self.in_parts:
            return self._settle(state, order, gaps, idle)
        everyone = (self.y, self.costs, self.norms)
        return sum(
            self._solve(part, slots, store, everyone, state.weights, state.alpha, gaps, idle)
            for part, slots, store in self._parts(order)
        )

    def _settle(self, state: State, part: np.ndarray, gaps: np.ndarray, idle: np.ndarray) -> float:
        """Passes inside the kernel of some samples, to and fro; their change is carried to all scores."""
        K = self.K.square(part)
        these = (readonly(self.y[part]), readonly(self.costs[part]), readonly(self.norms[part]))
        scores, alpha = np.ascontiguousarray(state.weights[:, part]), state.alpha[part]
        found, done = np.empty(len(part)), np.zeros(len(part), np.bool_)
        order, gain, largest = np.arange(len(part)), 0.0, 0.0
        for _ in range(PASSES):
            gain += self._solve(order, order, K, these, scores, alpha, found, done)
            largest = max(largest, found.sum())
            order = order[~done[order]][::-1]
            if found.sum() <= SETTLED * largest:
                break
        gaps[part], idle[part] = found, done
        costed = self.costs[part, None] * (alpha - state.alpha[part])
        moved = np.flatnonzero(costed.any(axis=1))
        state.alpha[part] = alpha
        state.weights -= self.K.combine(np.ascontiguousarray(costed[moved].T), part[moved])
        return gain

    def _solve(
        self,
        order: np.ndarray,
        slots: np.ndarray,
        store: np.ndarray,
        samples: tuple[np.ndarray, np.ndarray, np.ndarray],
        scores: np.ndarray,
        alpha: np.ndarray,
        gaps: np.ndarray,
        idle: np.ndarray,
    ) -> float:
        """Solve blocks whose kernel rows are at hand; `samples` are their classes, costs and norms."""
        Delta, rounding, lanes = self._Delta, self.rounding, self.lanes
        rows = (readonly(order), readonly(slots), readonly(store))
        return kernel_loops.exact_sweep(
            self.loss, *rows, *samples, Delta, rounding, lanes, scores, alpha, gaps, idle
        )

    def block_sweep(self, state: State, rule: StepRule, order: np.ndarray, gaps: np.ndarray) -> float:
        """One step of `rule` on the blocks in `order`; returns the increase of the dual."""
        gain = 0.0
        for part, slots, store in self._parts(order):
            gain += kernel_loops.block_sweep(
                STEPS[rule.name],
                part,
                slots,
                store,
                self.y,
                self.costs,
                self.norms,
                self._Delta,
                readonly(rule.temperatures),
                rule.safeguard,
                rule.truncation,
                rule.floor,
                state.weights,
                state.alpha,
                gaps,
            )
        return gain

    def certify(self, state: State, gaps: np.ndarray, mean: bool = False) -> Certificate:
        """P and D of the stored blocks: scores anew in float64, all samples and classes."""
        B = self.coefficients(state)
        support = np.flatnonzero(B.any(axis=1))
        if self.K.whole is None and self.K.dtype == np.float64 and 2 * len(support) < self.n:
            scores = self.K.combine(np.ascontiguousarray(B[support].T), support).T
        else:
            scores = self.K.times(B)
        state.weights = np.ascontiguousarray(scores.T)
        half = 0.5 * float(np.vdot(B, scores))
        alpha = normalised(state, self.loss)
        H = scores + self._Delta[self.y]
        H -= H[np.arange(self.n), self.y][:, None]
        losses = H.max(axis=1) if self.loss == loops.CRAMMER_SINGER else np.maximum(H, 0).sum(axis=1)
        gaps[:] = self.costs * np.maximum(losses - np.einsum("ik,ik->i", alpha, H), 0)
        return Certificate(half + float(self.costs @ losses), self.linear_term(alpha) - half)

    def squared_norm(self, state: State) -> float:
        return float(np.vdot(self.coefficients(state), state.weights.T))

    def margins(self, state: State) -> np.ndarray:
        """H_i(k) up to a constant per sample, for all samples (n x c)."""
        return state.weights.T + self._Delta[self.y]

    def margins_of(self, state: State, samples: np.ndarray) -> np.ndarray:
        """H of some samples, up to a constant each."""
        return state.weights[:, samples].T + self._Delta[self.y[samples]]

    def products(self, samples: np.ndarray) -> np.ndarray:
        """K_ij of some samples."""
        return self.K.square(samples).astype(np.float64)

    def move(self, state: State, samples: np.ndarray, blocks: np.ndarray) -> None:
        """Set the blocks of some samples and take the move from the scores."""
        costed = self.costs[samples, None] * (blocks - state.alpha[samples])
        state.alpha[samples] = blocks
        state.weights -= self.K.combine(np.ascontiguousarray(costed.T), samples)

    def image(self, direction: np.ndarray) -> tuple[np.ndarray, float]:
        """What moving alpha by `direction` takes from the scores, and its squared norm."""
        costed = self.costs[:, None] * direction
        moved = self.K.times(costed)
        return np.ascontiguousarray(moved.T), float(np.vdot(costed, moved))

    def _parts(self, order: np.ndarray) -> Any:
        """Samples to visit, with the places of their kernel rows in a store."""
        if self.K.whole is not None:
            yield readonly(order), readonly(order), readonly(self.K.whole)
            return
        cache = self.K.cache
        assert cache is not None
        size = min(64, cache.capacity)
        for k in range(0, len(order), size):
            part = order[k : k + size]
            yield readonly(part), readonly(cache.fetch(part)), readonly(cache.store)
