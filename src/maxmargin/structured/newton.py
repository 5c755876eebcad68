"""Proximal Newton method: some dozen Newton steps for problems with few features.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. Sweeps over blocks need
thousands of passes where features are few or of different scales; a Newton step does not care.

The proximal point method in the dual (in the primal: the method of multipliers, Rockafellar 1976) keeps
an anchor alpha0 and replaces the loss of a sample by the smooth one

    max_{a in simplex} a.H_i(W) - tau/2 |a - alpha0_i|^2,    alpha_i(W) = projection of alpha0_i + H_i / tau.

The smoothed objective F has the gradient W - W(alpha(W)) and, piecewise, the second derivative

    I + sum_i C_i / tau (1_S - 1/|S|) (x) x_i x_i',     S the classes with mass in alpha_i(W),

to which only samples with two classes or more contribute. Newton steps with a line search minimise it.
For every W and alpha

    P(W) - D(alpha) = sum_i C_i [ max_k H_i(k) - alpha_i.H_i ] + 1/2 |W - W(alpha)|^2,

so the second term says how well F is minimised, and the first how far F is from P: as soon as the
second is small beside the first, the anchor moves to alpha(W) and tau shrinks. Both vanish at the
optimum. P and D have their best points apart from each other; the model is the best W.

All classes moving alike changes no loss, so that their mean is 0 in W and in each direction; the matrix
may have any curvature there, and gets that of the others, or rounding would drown the identity.

A step costs O(n c D) for the scores, O(m D^2) for m pairs of classes with mass in a sample, and
O((c D)^3 / 3), D the number of features and the bias; memory holds six arrays of n x c numbers and the
matrix of order c D. Rows of any kind are read as they are, a few at a time where they are many. Where c D
is above 600, conjugate gradients (`curvature`) solve Newton's equation instead, preconditioned by the
blocks of classes.

On tables of some hundred rows the arithmetic of a step takes some microseconds, and NumPy's calls ten times
as long: there a step is one call (`small_loops`), and X one dense float64 array with the constant feature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dposv

from maxmargin.core.linalg import conjugate_gradients, ridged_cholesky
from maxmargin.core.loop import BestWeights, Certificate, Clock, Patience, Progress
from maxmargin.core.rows import readonly
from maxmargin.structured import newton_loops as loops
from maxmargin.structured import small_loops
from maxmargin.structured.curvature import PIECE, Curvature
from maxmargin.structured.multiclass_problem import LinearMultiClass, LinearSolution, Setup
from maxmargin.structured.newton_loops import Along, Points, ProximalTask

# Up to this many dual variables Newton steps are the first choice whatever the scale of the rows.
SMALL = 5000
# The largest order of a matrix that may be factored in a step.
FACTORED = 3000
# Numbers of X that are kept as a dense float64 array, however they came.
KEPT = 2**22
SCALES = "scale your features, which differ too much for float64,"


def suits(problem: LinearMultiClass, *, least: int = 125, most: int = 600, curved: float = 100.0) -> bool:
    """Whether to begin with Newton steps: features are few, and samples too or blocks are slow.

    Blocks are slow where C |x|^2 is large, as it is for features that nobody has scaled.
    """
    d = problem.rows.shape[1]
    order, slow = (d + 1) * problem.c, float(problem.kappa.mean()) > curved
    if order <= least:
        return slow or problem.n * problem.c <= SMALL
    return slow and order <= most and d < problem.n


class Proximal(NamedTuple):
    """Proximal points of all blocks at a point of a line, and the sums of `loops.proximal_pass`."""

    points: Points
    losses: float
    means: float
    linear: float
    slope: float


class State(NamedTuple):
    """A point W, its proximal blocks alpha and their masses on wrong classes, W(alpha), the sum of the block
    gaps, P(W) and D(alpha)."""

    W: np.ndarray
    blocks: np.ndarray
    masses: np.ndarray
    image: np.ndarray
    gap: float
    certificate: Certificate


class ProximalNewton:
    """The solver "newton".

    Parameters
    ----------
    problem : LinearMultiClass
    setup : Setup
    first, shrink : float
        The first tau, relative to the largest cost of an error, and its factor from one anchor to the next.
    share : float
        The anchor moves once 1/2 |W - W(alpha)|^2 is at most this many times the other term of the gap.
    flat : float
        A line search ends where the slope is at most this share of the first one.
    patience : int
        After this many steps without progress float64 is exhausted.
    direct : int
        The largest order of a matrix that is factored; above, Newton's equation is solved by conjugate
        gradients.
    """

    def __init__(
        self,
        problem: LinearMultiClass,
        setup: Setup,
        *,
        first: float = 2.0,
        shrink: float = 0.5,
        share: float = 3.0,
        flat: float = 0.2,
        patience: int = 100,
        direct: int = 600,
    ) -> None:
        self.problem, self.tol, self.direct = problem, setup.tol, direct
        self.shrink, self.share, self.flat = shrink, share, flat
        Delta = problem.labels.Delta
        self.task = ProximalTask(problem.y, problem.costs, readonly(Delta), problem.loss)
        self.samples = readonly(np.arange(problem.n))
        self.patience = Patience(patience, 0.99)
        self.tau = first * (float(Delta.max(initial=0.0)) or 1.0)
        self.anchor = np.zeros((problem.n, problem.c))
        self.anchor[np.arange(problem.n), problem.y] = 1.0
        if setup.blocks is not None:
            given = problem.normalised(setup.blocks, False)
            # Below D = 0, where a fit of its own begins, they tell less than nothing: y or C has changed.
            self.anchor = given if self._dual(given) >= 0.0 else self.anchor
        W = self._image(problem.steps(self.anchor))
        # Given blocks know which samples matter, but what cancelled in the W of other rows no longer does.
        self._begin(W if self._primal(W) <= problem.first_primal() else np.zeros_like(W))

    def _begin(self, W: np.ndarray) -> None:
        """Start at W with the first anchor."""
        self.state: State
        self._move_to(W)
        self.W, self.blocks = W, self.anchor
        self.bounds = self.certify()

    def epoch(self, clock: Clock) -> Progress:
        """One Newton step."""
        self._step()
        progress = Progress(self.bounds, self.problem.n)
        if self.bounds.gap <= self.tol:
            progress = Progress(self.certify(), self.problem.n, exact=True)
        falls = not self.patience.exhausted(self.bounds.primal - self.bounds.dual)
        return progress if falls else replace(progress, stuck=SCALES)

    def certify(self) -> Certificate:
        """P at the best W and D at the best blocks."""
        W, blocks = self.solution()
        return Certificate(self._primal(W), self._dual(blocks))

    def solution(self) -> LinearSolution:
        """The best W and the best blocks."""
        return LinearSolution(self.W, self.blocks)

    def keep(self, best: BestWeights) -> None:
        """Take weights that are known already for the best so far, if they are."""
        if best.primal < self.bounds.primal:
            self.W, self.bounds = best.weights, Certificate(best.primal, self.bounds.dual)

    def _dual(self, blocks: np.ndarray) -> float:
        steps = self.problem.steps(blocks)
        linear = -float(np.vdot(steps, self.task.Delta[self.task.y]))
        return linear - half_square(self._image(steps))

    def _primal(self, W: np.ndarray) -> float:
        scores = self._scores(W)
        return half_square(W) + self._proximal(Along(scores, 0.0, scores)).losses

    def _step(self) -> None:
        """One Newton step on F, whose anchor moves first if F is minimised well enough."""
        state = self.state
        if half_square(state.W - state.image) <= self.share * state.gap:
            self.anchor = state.blocks
            self.tau *= self.shrink
            self._move_to(state.W)
        direction = self._direction()
        moves = self._scores(direction)
        self.state, t = self._line_search(direction, moves)
        self.scores += t * moves
        self._keep_best()

    def _keep_best(self) -> None:
        here, best = self.state.certificate, self.bounds
        if here.primal < best.primal:
            self.W, best = self.state.W, Certificate(here.primal, best.dual)
        if here.dual > best.dual:
            self.blocks, best = self.state.blocks, Certificate(best.primal, here.dual)
        self.bounds = best

    def _direction(self) -> np.ndarray:
        """Newton's direction, with mean 0 over the classes."""
        order = self.problem.c * (self.problem.rows.shape[1] + 1)
        direction = self._solved() if order <= self.direct else self._nearly_solved()
        return direction - direction.mean(axis=1, keepdims=True)

    def _solved(self) -> np.ndarray:
        """The solution of Newton's equation by a Cholesky factor of its matrix."""
        c, D = self.problem.c, self.problem.rows.shape[1] + 1
        matrix = np.zeros((c * D, c * D))
        for first, X in self._pieces():
            loops.add_curvature(
                self.task,
                first,
                readonly(X),
                self.problem.bias,
                self.tau,
                readonly(self.state.blocks),
                matrix,
            )
        matrix.flat[:: c * D + 1] += 1.0
        blocks = matrix.reshape(c, D, c, D)
        blocks += np.einsum("kfkg->fg", blocks)[None, :, None, :] / c**2
        scale = 1.0 / np.sqrt(np.diagonal(matrix))
        matrix *= scale
        matrix *= scale[:, None]
        descent = scale * (self.state.image - self.state.W).T.ravel()
        _, solved, failed = dposv(matrix, descent, lower=True)
        if failed:
            solved = cho_solve(ridged_cholesky(matrix), descent, check_finite=False)
        return (scale * solved).reshape(c, D).T

    def _nearly_solved(
        self, *, accuracy: float = 0.03, most: int = 250, factored: int = FACTORED
    ) -> np.ndarray:
        """The solution by conjugate gradients, to an accuracy that suits a step.

        Where they take longer than a matrix of order `factored` at most, this and all later steps factor it.
        """
        curvature = Curvature(self.problem, self.state.blocks, self.tau)
        descent = self.state.image - self.state.W
        if descent.size <= factored:
            most = min(most, max(descent.size**2 // (3 * max(len(curvature.y), 1)), 10))
        direction, products = conjugate_gradients(
            curvature.product, descent, curvature.precondition(), accuracy=accuracy, max_products=most
        )
        if products < most or descent.size > factored:
            return direction
        self.direct = descent.size
        return self._solved()

    def _line_search(
        self, direction: np.ndarray, moves: np.ndarray, *, tries: int = 60
    ) -> tuple[State, float]:
        """Look for a point at which F is nearly flat along the direction; F is convex.

        The slope grows along the line, so that two slopes of different sign enclose the point. A block
        without mass on wrong classes at both has none in between, and is left as it is.
        """
        W = self.state.W
        steepest = float(np.vdot(W - self.state.image, direction))
        start, growth = float(np.vdot(W, direction)), float(np.vdot(direction, direction))
        if steepest >= 0:
            # Rounding has eaten the direction.
            return self.state, 0.0
        low, high = (0.0, steepest), None
        t, samples, points, masses = 1.0, self.samples, None, self.state.masses
        for attempt in range(tries):
            found, taken = self._proximal(Along(self.scores, t, moves), samples, points), t
            slope = start + t * growth - found.slope
            if abs(slope) <= self.flat * abs(steepest):
                break
            points = found.points
            if slope <= 0:
                low = t, slope
            elif high is None:
                samples = readonly(np.flatnonzero((masses > 0) | (points.masses > 0)))
            if slope > 0:
                high = t, slope
            if high is None:
                t, masses = 2 * t, points.masses.copy()
            else:
                # Halving in between, or a slope that jumps would hold one end for long.
                share = low[1] / (low[1] - high[1]) if attempt % 3 < 2 else 0.5
                t = low[0] + (high[0] - low[0]) * min(max(share, 0.1), 0.9)
        return self._state(W + taken * direction, found), taken

    def _move_to(self, W: np.ndarray) -> None:
        self.scores = self._scores(W)
        self.state = self._state(W, self._proximal(Along(self.scores, 0.0, self.scores)))

    def _proximal(
        self, along: Along, samples: np.ndarray | None = None, points: Points | None = None
    ) -> Proximal:
        """Proximal points along a line; those of some samples only replace their like in given points."""
        if points is None:
            n, c = self.anchor.shape
            points = Points(np.empty((n, c)), np.empty(n), np.empty((n, c)))
        if samples is None:
            samples = self.samples
        totals = np.empty(4)
        along = Along(readonly(along.scores), along.t, readonly(along.moves))
        loops.proximal_pass_entry(self.task, along, self.tau, readonly(self.anchor), samples, points, totals)
        return Proximal(points, *totals.tolist())

    def _state(self, W: np.ndarray, found: Proximal) -> State:
        gap = found.losses - found.means
        image = self._image(found.points.steps, found.points.masses > 0)
        certificate = Certificate(half_square(W) + found.losses, found.linear - half_square(image))
        return State(W, found.points.blocks, found.points.masses, image, gap, certificate)

    def _pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """Rows of X as dense float64 arrays, with the number of the first one."""
        if self._whole is not None:
            yield 0, self._whole
            return
        for first in range(0, self.problem.n, PIECE):
            yield first, self._dense(slice(first, first + PIECE))

    @cached_property
    def _whole(self) -> np.ndarray | None:
        """All of X, where it is such an array or makes one of at most `KEPT` numbers."""
        rows = self.problem.rows
        such = rows.dense and rows.data.dtype == np.float64
        return self._dense(slice(None)) if such or math.prod(rows.shape) <= KEPT else None

    def _dense(self, part: slice) -> np.ndarray:
        rows = self.problem.rows
        some = rows.matrix[part]
        return (some if rows.dense else some.toarray()).astype(np.float64, copy=False)

    def _scores(self, W: np.ndarray) -> np.ndarray:
        scores = np.empty((self.problem.n, self.problem.c))
        for first, X in self._pieces():
            np.matmul(X, W[:-1], out=scores[first : first + len(X)])
        scores += self.problem.bias * W[-1]
        return scores

    def _image(self, steps: np.ndarray, moved: np.ndarray | None = None) -> np.ndarray:
        """sum_i steps_i (x) x_i, over the samples that have moved if that is known."""
        W = np.zeros((self.problem.rows.shape[1] + 1, self.problem.c))
        for first, X in self._pieces():
            part = steps[first : first + len(X)]
            if moved is not None:
                some = np.flatnonzero(moved[first : first + len(X)])
                if 4 * len(some) < len(X):
                    X, part = X[some], part[some]
            W[:-1] += X.T @ part
        W[-1] = self.problem.bias * steps.sum(axis=0)
        return W


class SmallNewton(ProximalNewton):
    """The solver "newton" on small problems: the same steps, each in one call."""

    def _begin(self, W: np.ndarray) -> None:
        n, c = self.anchor.shape
        self.X = np.empty((n, len(W)))
        self.X[:, -1] = self.problem.bias
        for start, rows in self._pieces():
            self.X[start : start + len(rows), :-1] = rows
        order = len(W) * (c if c > 2 else 1)
        weights = np.ascontiguousarray(W.T)
        # An infinite gap lets the first step begin with the anchor.
        tau = self.tau / self.shrink
        self.small = small_loops.SmallState(
            W=weights,
            image=weights.copy(),
            scores=np.empty((n, c)),
            anchor=np.empty((n, c)),
            points=Points(self.anchor.copy(), np.empty(n), np.empty((n, c))),
            best_W=weights.copy(),
            best_blocks=self.anchor.copy(),
            numbers=np.array([tau, np.inf, np.inf, -np.inf, np.inf, -np.inf]),
            direction=np.empty((c, len(W))),
            moves=np.empty((n, c)),
            matrix=np.empty((order, order)),
            vectors=np.empty((2, order)),
        )
        self.bounds = self.certify()
        self.small.numbers[small_loops.BEST_PRIMAL] = self.bounds.primal
        self.small.numbers[small_loops.BEST_DUAL] = self.bounds.dual

    def solution(self) -> LinearSolution:
        return LinearSolution(np.ascontiguousarray(self.small.best_W.T), self.small.best_blocks.copy())

    def _step(self) -> None:
        rule = self.share, self.shrink, self.flat
        small_loops.newton_step(self.task, readonly(self.X), self.samples, *rule, self.small)
        numbers = self.small.numbers
        self.bounds = Certificate(
            float(numbers[small_loops.BEST_PRIMAL]), float(numbers[small_loops.BEST_DUAL])
        )


def is_small(problem: LinearMultiClass, *, order: int = 128, cells: int = 50_000) -> bool:
    """Whether a step takes less time than the calls that it is made of."""
    D = problem.rows.shape[1] + 1
    return problem.c * D <= order and problem.n * problem.c <= SMALL and problem.n * D <= cells


def newton(problem: LinearMultiClass, setup: Setup) -> ProximalNewton:
    """The solver "newton", as suits the size of the problem."""
    return SmallNewton(problem, setup) if is_small(problem) else ProximalNewton(problem, setup)


def half_square(W: np.ndarray) -> float:
    """1/2 |W|^2."""
    return 0.5 * float(np.vdot(W, W))
