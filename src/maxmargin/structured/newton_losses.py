"""The smoothed losses of the proximal Newton method and their curvature, in NumPy or by compiled loops.

Letters are those of `maxmargin.structured.newton`. All classes form one group, whose arrays are class-major,
(1, c, n), so that NumPy sums over classes by whole rows. The loops read them as (n, c), sample by sample.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.proximal_newton import ProximalPoint
from maxmargin.core.rows import readonly
from maxmargin.structured import newton_loops as loops
from maxmargin.structured.newton_loops import CRAMMER_SINGER, Along, Points, ProximalTask

# Below this number of dual variables the passes are NumPy: each takes less than a millisecond.
SMALL_PASS = 20_000
# Numbers in the copies of rows of one product.
COPIED = 2**19


class ArrayLosses:
    """The smoothed losses of all samples."""

    def __init__(self, task: ProximalTask) -> None:
        self.task = task
        n = len(task.y)
        self.truth = task.y * n + np.arange(n)
        self.Delta = task.Delta.T.take(task.y, axis=1)
        self.zero_shares = self.column_major(np.eye(len(task.Delta))[task.y])

    @staticmethod
    def column_major(blocks: np.ndarray) -> np.ndarray:
        """Blocks (n, c) as (1, c, n)."""
        return np.ascontiguousarray(blocks.T)[None]

    def line(self, at: Any, tau: np.ndarray, anchor: np.ndarray, scores: np.ndarray, moves: Any) -> ArrayLine:
        """The losses at scores + t moves."""
        moves = None if moves is None else self._margins(moves[0])
        return ArrayLine(self, float(tau[0]), anchor[0], self._margins(scores[0]), moves)

    def add_curvature(
        self, first: int, X: np.ndarray, tau: float, shares: np.ndarray, matrix: np.ndarray
    ) -> None:
        """Add the second derivative of the losses of the rows from `first` on to a matrix.

        The matrix is that of `newton_loops.add_curvature`.
        """
        y, costs, _, loss = self.task
        part = slice(first, first + len(X))
        y, costs, alpha = y[part], costs[part], shares[:, part]
        inside = alpha > 0.0
        if loss != CRAMMER_SINGER:
            inside &= alpha < 1.0
            inside[y, np.arange(len(y))] = True
        size = np.add.reduce(inside)
        some = np.flatnonzero((size > 1) & (costs > 0.0))
        if len(alpha) > 2:
            parts = BlockShares(loss, y.take(some), costs.take(some) / tau, inside.take(some, axis=1))
            parts.add_products(X.take(some, axis=0), matrix)
            return
        X, weights = X.take(some, axis=0), costs.take(some) / tau
        weights *= 1.0 if loss == CRAMMER_SINGER else 2.0
        matrix += (X * weights[:, None]).T @ X

    def _margins(self, scores: np.ndarray) -> np.ndarray:
        return scores - scores.take(self.truth)


class ArrayLine:
    """The smoothed losses along a line; `point` belongs to the last slope."""

    def __init__(
        self, losses: ArrayLosses, tau: float, anchor: np.ndarray, margins: np.ndarray, moves: Any
    ) -> None:
        loss, two = losses.task.loss, len(anchor) == 2
        # With two classes the simplex is an interval, on which both masses move together.
        self.free = two or loss != CRAMMER_SINGER
        self.losses, self.tau = losses, 2.0 * tau if two and loss == CRAMMER_SINGER else tau
        self.anchor, self.moves = anchor, moves
        self.costed: Any = None if moves is None else moves * losses.task.costs
        self.margins = margins + losses.Delta

    def slope(self, lengths: np.ndarray, of: Any) -> np.ndarray:
        """The derivative at a length."""
        self._move(float(lengths[0]) * self.moves + self.margins)
        return np.array([np.vdot(self.alpha, self.costed)])

    def _move(self, H: np.ndarray) -> None:
        """Compute the proximal points of margins."""
        self.H = H
        if self.free:
            self.alpha = self.H / self.tau
            self.alpha += self.anchor
            self.alpha.clip(0.0, 1.0, out=self.alpha)
        else:
            self.alpha = self._on_simplex()

    def bracketed(self, moved: np.ndarray | None) -> None:
        """Keep all blocks: selecting those that move would cost more than it saves at this size."""

    def _on_simplex(self) -> np.ndarray:
        """Projection of anchor + H / tau on the simplex of each sample.

        The level theta of max(v_k - theta, 0) rises, and classes are dropped, until all kept ones have mass.
        With S the kept classes, sum_S v_k - 1 equals sum_S H_k / tau minus the anchor's mass outside S. This
        form does not subtract 1, so small masses keep their digits. Margins are relative to the largest one,
        so that those of S are small.
        """
        self.largest = np.maximum.reduce(self.H)
        G = self.H - self.largest
        G /= self.tau
        v = self.anchor + G
        theta, outside = np.maximum.reduce((self.anchor - 1.0) + G), -self.anchor
        before = G.size + 1
        for _ in range(len(G)):
            kept = v > theta
            count = int(np.count_nonzero(kept))
            if count == before:
                break
            theta, before = np.add.reduce(np.where(kept, G, outside)) / np.add.reduce(kept), count
        v -= theta
        return np.maximum(v, 0.0, out=v)

    def point(self, lengths: np.ndarray | None) -> ProximalPoint:
        """The proximal points at the last length, with their losses and steps."""
        if lengths is None:
            self._move(self.margins)
        truth, costs, alpha = self.losses.truth, self.losses.task.costs, self.alpha
        flat = alpha.reshape(-1)
        left = flat.take(truth)
        flat[truth] = 0.0
        mass = np.add.reduce(alpha)
        if self.free:
            total, rest = np.add.reduce(np.maximum(self.H, 0.0)), 1.0 - mass
        else:
            total = self.largest
            if np.maximum.reduce(mass, initial=0.0) > 1.0:
                alpha /= np.maximum(mass, 1.0)
                mass = np.minimum(mass, 1.0)
            # Where the projection is 0 at the true class, 1 - mass is rounding only.
            rest = np.where(left == 0.0, 0.0, 1.0 - mass)
        costed = alpha * costs
        steps = -costed
        steps.reshape(-1)[truth] = np.add.reduce(costed)
        flat[truth] = rest
        losses, means, values = (
            np.array([np.vdot(*pair)])
            for pair in ((costs, total), (costed, self.H), (costed, self.losses.Delta))
        )
        return ProximalPoint(alpha[None], steps[None], losses, means, values, mass > 0.0)


class LoopLosses:
    """The smoothed losses of all samples, by a compiled loop."""

    def __init__(self, task: ProximalTask) -> None:
        self.task, self.support = task, np.empty(len(task.Delta), np.int64)
        self.zero_shares = self.column_major(np.eye(len(task.Delta))[task.y])

    @staticmethod
    def column_major(blocks: np.ndarray) -> np.ndarray:
        """Blocks (n, c) as (1, c, n), a view."""
        return blocks.T[None]

    def line(self, at: Any, tau: np.ndarray, anchor: np.ndarray, scores: np.ndarray, moves: Any) -> LoopLine:
        """The losses at scores + t moves."""
        parts = (anchor, scores, scores if moves is None else moves)
        return LoopLine(self.task, float(tau[0]), *(readonly(part[0].T) for part in parts))

    def add_curvature(
        self, first: int, X: np.ndarray, tau: float, shares: np.ndarray, matrix: np.ndarray
    ) -> None:
        """Add the second derivative of the losses of the rows from `first` on to a matrix."""
        loops.add_curvature(self.task, first, readonly(X), tau, readonly(shares.T), matrix, self.support)


class LoopLine:
    """The smoothed losses along a line; `point` belongs to the last slope."""

    def __init__(
        self, task: ProximalTask, tau: float, anchor: np.ndarray, scores: np.ndarray, moves: np.ndarray
    ) -> None:
        self.task, self.tau, self.anchor, self.scores, self.moves = task, tau, anchor, scores, moves
        n, c = scores.shape
        self.points = Points(np.empty((n, c)), np.empty(n), np.empty((n, c)))
        self.workspace, self.totals = np.empty((2, c)), np.empty(4)
        self.samples, self.touched = readonly(np.arange(n)), np.zeros(n, np.bool_)

    def slope(self, lengths: np.ndarray, of: Any) -> np.ndarray:
        """The derivative at a length."""
        self._move(float(lengths[0]))
        return -self.totals[3:]

    def _move(self, t: float) -> None:
        """Compute the proximal points at a length."""
        along = Along(self.scores, t, self.moves)
        loops.proximal_pass(
            self.task, along, self.tau, self.anchor, self.samples, self.points, self.workspace, self.totals
        )
        self.touched |= self.points.masses > 0.0

    def bracketed(self, moved: np.ndarray | None) -> None:
        """Leave out blocks without mass at all slopes so far, except for those that `moved` before.

        The slopes bracket the length, and a block without mass on wrong classes at both ends has none
        between.
        """
        self.samples = readonly(np.flatnonzero(self.touched | (moved if moved is not None else True)))

    def point(self, lengths: np.ndarray | None) -> ProximalPoint:
        """The proximal points at the last length, with their losses and steps."""
        if lengths is None:
            self._move(0.0)
        blocks, masses, steps = self.points
        losses, means, values = self.totals[:3, None].copy()
        return ProximalPoint(blocks.T[None], steps.T[None], losses, means, values, masses > 0.0)


def smoothed_losses(task: ProximalTask) -> ArrayLosses | LoopLosses:
    """The losses in NumPy or by compiled loops, by their number."""
    return (ArrayLosses if len(task.y) * len(task.Delta) < SMALL_PASS else LoopLosses)(task)


class Pairs(NamedTuple):
    """Pairs of classes (k, l), l <= k, and the positions of the pairs (k, k)."""

    rows: np.ndarray
    columns: np.ndarray
    same: np.ndarray


@functools.cache
def class_pairs(c: int) -> Pairs:
    """All pairs of c classes."""
    rows, columns = np.tril_indices(c)
    return Pairs(rows, columns, np.flatnonzero(rows == columns))


class BlockShares:
    """Weights of the samples in the blocks (k, l) of Newton's matrix, which multiply x x'."""

    def __init__(self, loss: int, y: np.ndarray, weights: np.ndarray, inside: np.ndarray) -> None:
        self.loss, self.y, self.weights, self.inside = loss, y, weights, inside
        self.size = np.add.reduce(inside)
        self.pairs = class_pairs(len(inside))

    def add_products(self, X: np.ndarray, matrix: np.ndarray) -> None:
        """Add sum_i share_i x_i x_i' to all blocks, from copies of the rows with a nonzero share."""
        D, (rows, columns, _) = X.shape[1], self.pairs
        target = matrix.reshape(len(self.inside), D, len(self.inside), D)
        products = np.empty((len(rows), D, D))
        copied = np.cumsum(self.size * (self.size + 1) // 2) * D
        cuts = copied.searchsorted(np.arange(COPIED, copied[-1], COPIED)).tolist() if len(X) else []
        for start, stop in pairwise([0, *cuts, len(X)]):
            part = slice(start, stop)
            shares = self._of(part).reshape(-1)
            used = shares.nonzero()[0]
            right = X[part].take(used % (stop - start), axis=0)
            left = right * shares.take(used)[:, None]
            edges = used.searchsorted(np.arange(len(rows) + 1) * (stop - start)).tolist()
            for k, (low, high) in enumerate(pairwise(edges)):
                np.dot(left[low:high].T, right[low:high], out=products[k])
            target[rows, :, columns] += products

    def _of(self, part: slice) -> np.ndarray:
        """The shares of some samples, one row for each pair of classes."""
        (rows, columns, same), inside = self.pairs, self.inside[:, part]
        weights, size = self.weights[part], self.size[part]
        free = inside * weights
        if self.loss == CRAMMER_SINGER:
            shares = (free / -size).take(rows, axis=0)
            shares *= inside.take(columns, axis=0)
            shares[same] += free
            return shares
        # The pair (y, y) has the sum over the free classes, and the pair (y, k) minus the weight of k.
        truth = self.y[part] == np.arange(len(inside))[:, None]
        ends = truth[rows] != truth[columns]
        shares = np.where(ends, -np.minimum(free[rows], free[columns]), 0.0)
        shares[same] = np.where(truth, (size - 1) * weights, free)
        return shares
