"""Proximal Newton method: a few dozen Newton steps for problems with few weights.

With weights W, dual variables alpha and the weights W(alpha) that these make, the problems have the form

    primal  P(W)     = 1/2 |W|^2 + sum_i loss_i(W),
    dual    D(alpha) = value(alpha) - 1/2 |W(alpha)|^2.

The proximal point method in the dual (in the primal: the method of multipliers, Rockafellar 1976) keeps an
anchor, shares a of the dual variables, and replaces each loss by the smooth one

    phi_i(W) = max_t  t . H_i(W) - tau / 2 |t - a_i|^2      over the feasible shares t,

H the margins; the best t are the proximal shares t(W). The smoothed objective F = 1/2 |W|^2 + sum_i c_i phi_i
is piecewise quadratic: its gradient is W - W(t(W)), and its second derivative adds c_i / tau x_i x_i' to the
identity for the shares inside their bounds. Newton steps with a line search minimise F. For every W and its
shares

    P(W) - D(t) = sum_i c_i [ loss_i - t_i . H_i ] + 1/2 |W - W(t)|^2:

the second term measures how well F is minimised, and the first how far F is from P. When the second is small
beside the first, the anchor moves to t(W) and tau shrinks. Both terms vanish at the optimum. Usually 15 to 40
steps are enough, for any C and conditioning of X. The best points of P and D are kept separately.

Columns of W that share a step form a group: each label alone, or all classes. Arrays are column-major, groups
x columns x samples, and groups x columns x features for weights.

Rockafellar, "Augmented Lagrangians and applications of the proximal point algorithm in convex programming",
Mathematics of Operations Research 1, 1976. Yan, Li, "An efficient augmented Lagrangian method for support
vector machine", Optimization Methods and Software 35, 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dposv

from maxmargin.core.linalg import ridged_cholesky

# The anchor moves once 1/2 |W - W(t)|^2 is at most SOLVED times the other term of the gap; tau is then
# multiplied by SHRINK, and stays above LEAST of the first one. None of this changes the optimum.
SOLVED, SHRINK, LEAST = 3.0, 0.5, 2.5e-7
# A line search ends where the slope has fallen to this part of the first one.
FLAT = 0.2
ALL = slice(None)


class ProximalPoint(NamedTuple):
    """Proximal shares (g, k, n) and sums over the samples.

    `steps` (g, k, n) are the coefficients of W(alpha). `losses`, `means` and `values` (g) are the costed sums
    of the losses, of t . H and of the shares' terms in the dual objective. `moved` marks the samples with
    steps, None all.
    """

    shares: np.ndarray
    steps: np.ndarray
    losses: np.ndarray
    means: np.ndarray
    values: np.ndarray
    moved: np.ndarray | None = None


class Line(Protocol):
    """The smoothed losses of some groups along a line of scores."""

    def slope(self, lengths: np.ndarray, of: Any) -> np.ndarray:
        """The derivatives of the groups `of` the line, at their lengths."""
        ...

    def bracketed(self, moved: np.ndarray | None) -> None:
        """Called when slopes bracket all lengths, with the samples that had steps at the start."""
        ...

    def point(self, lengths: np.ndarray | None) -> ProximalPoint:
        """The proximal points at the final lengths."""
        ...


class Losses(Protocol):
    """The losses of all samples; the dual objective is 0 at the shares `zero_shares` (G, k, n)."""

    zero_shares: np.ndarray

    def line(
        self, at: Any, tau: np.ndarray, anchor: np.ndarray, scores: np.ndarray, moves: np.ndarray | None
    ) -> Line:
        """The losses of the groups `at` at scores + t moves; without moves, at the scores only."""
        ...


class Geometry(Protocol):
    """How weights score the samples, and how Newton's equation is solved."""

    def scores(self, W: np.ndarray) -> np.ndarray:
        """Scores (g, k, n) of weights."""
        ...

    def image(self, steps: np.ndarray, moved: np.ndarray | None = None) -> np.ndarray:
        """The weights of the given steps, over the samples that have moved if that is known."""
        ...

    def directions(self, newton: NewtonSteps, at: Any) -> np.ndarray:
        """The Newton directions of the groups `at`: -(second derivative)^-1 `newton.gradients`."""
        ...


class NewtonSteps:
    """State of the method: weights, their scores, anchor, tau, and the best points of both objectives.

    Parameters
    ----------
    losses : Losses
    geometry : Geometry
    weights : ndarray of shape (G, k, D)
        The first weights.
    anchor : ndarray of shape (G, k, n)
    tau : float
        The first tau.
    """

    def __init__(
        self,
        losses: Losses,
        geometry: Geometry,
        weights: np.ndarray,
        anchor: np.ndarray,
        tau: float,
    ) -> None:
        self.losses: Any = losses
        self.geometry, self.least = geometry, LEAST * tau
        self.W, self.anchor = weights, anchor
        self.tau = np.full(len(weights), float(tau))
        self.distance, self.gap = np.empty(len(weights)), np.empty(len(weights))
        self.shares, self.gradients = np.empty_like(anchor), np.empty_like(weights)
        self.restart()

    def restart(self) -> None:
        """Compute the scores of the weights, and reset both bounds.

        The dual objective of the first steps may be far below that of zero shares, which is zero.
        """
        G = len(self.W)
        self.primal, self.dual = np.full(G, np.inf), np.full(G, -np.inf)
        self.best_W, self.best_shares = np.zeros_like(self.W), self.losses.zero_shares.copy(order="K")
        self.scores = self.geometry.scores(self.W)
        self._evaluate(ALL)

    def run(self, at: np.ndarray, n_steps: int, targets: tuple[float, float]) -> None:
        """Take up to `n_steps` steps on each group whose gap is above its target.

        The target of a group is targets[0] times its objective plus targets[1].
        """
        for _ in range(n_steps):
            left = self.primal[at] - self.dual[at] > targets[0] * self.primal[at] + targets[1]
            at = at[left]
            if not at.size:
                return
            at = at[self.step(ALL if len(at) == len(self.W) else at)]

    def step(self, at: Any) -> np.ndarray:
        """One Newton step on each group; the anchor moves first where F is minimised well enough.

        Returns which groups another step may improve.
        """
        solved = self.distance[at] <= SOLVED * self.gap[at]
        if solved.any():
            now = ALL if at is ALL and solved.all() else np.arange(len(self.W))[at][solved]
            self._put("anchor", now, self.shares[now])
            self.tau[now] = np.maximum(SHRINK * self.tau[now], self.least)
            self._evaluate(now)
        directions = self.geometry.directions(self, at)
        W, gradients = self.W[at], self.gradients[at]
        first, start, growth = sums(gradients, directions), sums(W, directions), sums(directions, directions)
        # A direction that does not fall is rounding; a new anchor may help.
        falls = first < 0.0
        if falls.any():
            moves = self.geometry.scores(directions)
            line = self.losses.line(at, self.tau[at], self.anchor[at], self.scores[at], moves)
            lengths = roots_of_slopes(
                lambda t, of: start[of] + t * growth[of] + line.slope(t, of),
                first,
                lambda: line.bracketed(self.moved),
            )
            each = lengths[:, None, None]
            self.W[at] = W + each * directions
            self.scores[at] += each * moves
            self._evaluate(at, line.point(lengths))
        return falls | solved

    def _evaluate(self, at: Any, found: ProximalPoint | None = None) -> None:
        """Compute both objectives at the weights and their proximal shares, and store the best of each."""
        if found is None:
            line = self.losses.line(at, self.tau[at], self.anchor[at], self.scores[at], None)
            found = line.point(None)
        W, image = self.W[at], self.geometry.image(found.steps, found.moved)
        gradients = W - image
        self.distance[at], self.gap[at] = half_squares(gradients), found.losses - found.means
        self.moved = found.moved
        self._put("shares", at, found.shares)
        self._put("gradients", at, gradients)
        numbers = np.arange(len(self.W))[at]
        primal, dual = half_squares(W) + found.losses, found.values - half_squares(image)
        lower, higher = primal < self.primal[at], dual > self.dual[at]
        if lower.any():
            self.primal[numbers[lower]], self.best_W[numbers[lower]] = primal[lower], W[lower]
        if higher.any():
            self.dual[numbers[higher]] = dual[higher]
            now = ALL if at is ALL and higher.all() else numbers[higher]
            self._put("best_shares", now, found.shares if higher.all() else found.shares[higher])

    def _put(self, name: str, at: Any, value: np.ndarray) -> None:
        """Set an array at some groups; a single group stores the value without a copy."""
        if at is ALL and len(self.W) == 1:
            setattr(self, name, value)
        else:
            getattr(self, name)[at] = value


def roots_of_slopes(
    slope: Callable[[np.ndarray, np.ndarray], np.ndarray],
    first: np.ndarray,
    enclosed: Callable[[], None],
    *,
    tries: int = 60,
) -> np.ndarray:
    """Lengths at which convex functions are nearly flat along a line: |slope| <= FLAT |first|.

    Parameters
    ----------
    slope : callable
        (lengths, which) -> the slopes of the functions `which` at these lengths; they are nondecreasing.
    first : ndarray
        The slopes at zero. A function with a nonnegative slope has the length zero.
    enclosed : callable
        Called when all lengths are bracketed by slopes of different sign.
    tries : int, default=60
    """
    lengths, low, high = np.ones(len(first)), np.zeros(len(first)), np.full(len(first), np.inf)
    at_low, at_high = first.copy(), np.zeros(len(first))
    open = np.flatnonzero(first < 0.0)
    if len(open) < len(first):
        lengths[~(first < 0.0)] = 0.0
    for attempt in range(tries):
        found = slope(lengths[open], open)
        still = np.abs(found) > -FLAT * first[open]
        if not still.all():
            open, found = open[still], found[still]
            if not open.size:
                break
        rises = found > 0.0
        up, down = open[rises], open[~rises]
        low[down], at_low[down] = lengths[down], found[~rises]
        high[up], at_high[up] = lengths[up], found[rises]
        bounded = high[open] < np.inf
        if bounded.all():
            enclosed()
            inside = open
        else:
            inside = open[bounded]
            lengths[open[~bounded]] *= 2.0
        # Bisection every third time; a slope that jumps would keep one end for long.
        share = at_low[inside] / (at_low[inside] - at_high[inside]) if attempt % 3 < 2 else 0.5
        lengths[inside] = low[inside] + (high[inside] - low[inside]) * np.minimum(np.maximum(share, 0.1), 0.9)
    return lengths


def sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """<a, b> of every group."""
    if len(a) == 1:  # `vdot` leaves the products to BLAS
        return np.vdot(a, b)[None]
    return np.einsum("ij,ij->i", a.reshape(len(a), -1), b.reshape(len(b), -1))


def half_squares(a: np.ndarray) -> np.ndarray:
    """1/2 |a|^2 of every group."""
    return 0.5 * sums(a, a)


def solve_scaled(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a definite system whose columns differ in scale; its diagonal is scaled to one.

    The lower part of `matrix` is read and overwritten.
    """
    scale = 1.0 / np.sqrt(np.diagonal(matrix))
    matrix *= scale
    matrix *= scale[:, None]
    right = scale * right
    _, solved, failed = dposv(matrix.T, right, lower=False)
    if failed:
        solved = cho_solve(ridged_cholesky(matrix), right, check_finite=False)
    return scale * solved
