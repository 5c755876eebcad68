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

Of two classes W_1 = -W_2, and Newton's matrix is that of one. The losses of large problems are passes of a
compiled loop; those of small ones are NumPy, and nothing has to be compiled (`newton_losses`).
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
from maxmargin.structured.curvature import PIECE, Curvature
from maxmargin.structured.multiclass_problem import LinearMultiClass, LinearSolution, Setup
from maxmargin.structured.newton_loops import ProximalTask
from maxmargin.structured.newton_losses import Found, smoothed_losses

# Up to this many dual variables Newton steps are the first choice whatever the scale of the rows.
SMALL = 5000
# The largest order of a matrix that may be factored in a step.
FACTORED = 3000
# Numbers of X that are kept as a dense float64 array with the constant feature, however they came.
KEPT = 2**22
SCALES = "scale your features, which differ too much for float64,"


def suits(
    problem: LinearMultiClass, *, tiny: int = 300, least: int = 125, most: int = 600, curved: float = 100.0
) -> bool:
    """Whether to begin with Newton steps: features are few, and samples too or blocks are slow.

    Blocks are slow where C |x|^2 is large, as it is for features that nobody has scaled. On tables of few
    samples a fit takes some hundredths of a second in either way, and Newton steps have nothing to compile.
    """
    n, d = problem.rows.shape
    # Of two classes Newton's matrix is that of one.
    order = (d + 1) * problem.c
    if n * problem.c <= SMALL and (order // 2 if problem.c == 2 else order) <= tiny:
        return True
    slow = float(problem.kappa.mean()) > curved
    return slow and (order <= least or (order <= most and d < n))


class State(NamedTuple):
    """A point W, its proximal blocks alpha, which of these have mass on wrong classes, W(alpha), the sum of
    the block gaps, P(W) and D(alpha)."""

    W: np.ndarray
    blocks: np.ndarray
    moved: np.ndarray
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
        self.losses = smoothed_losses(self.task)
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
        self.W = W if self._primal(W) <= problem.first_primal() else np.zeros_like(W)
        self.blocks = self.anchor
        self.state: State
        self._move_to(self.W)
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
        return half_square(W) + self._found(self._scores(W)).losses

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
        return direction - np.add.reduce(direction, axis=1, keepdims=True) / self.problem.c

    def _solved(self) -> np.ndarray:
        """The solution of Newton's equation by a Cholesky factor of its matrix."""
        c, D = self.problem.c, self.problem.rows.shape[1] + 1
        two = c == 2
        order = D if two else c * D
        matrix = np.zeros((order, order))
        for first, X in self._pieces():
            self.losses.add_curvature(first, X, self.tau, self.state.blocks, matrix)
        diagonal = matrix.reshape(-1)[:: order + 1]
        diagonal += 1.0
        descent = (self.state.image - self.state.W).T
        if two:
            descent = 0.5 * (descent[0] - descent[1])
        else:
            blocks = matrix.reshape(c, D, c, D)
            blocks += np.einsum("kfkg->fg", blocks)[None, :, None, :] / c**2
        scale = 1.0 / np.sqrt(diagonal)
        matrix *= scale
        matrix *= scale[:, None]
        descent = scale * descent.ravel()
        _, solved, failed = dposv(matrix.T, descent, lower=False)
        if failed:
            solved = cho_solve(ridged_cholesky(matrix), descent, check_finite=False)
        solved = scale * solved
        return np.stack([solved, -solved], axis=1) if two else solved.reshape(c, D).T

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
        t, line = 1.0, self.losses.line(self.tau, self.anchor, self.scores, moves)
        for attempt in range(tries):
            slope, taken = start + t * growth + line.slope(t), t
            if abs(slope) <= self.flat * abs(steepest):
                break
            if slope > 0:
                if high is None:
                    line.close(self.state.moved)
                high = t, slope
            else:
                low = t, slope
            if high is None:
                t *= 2
            else:
                # Halving in between, or a slope that jumps would hold one end for long.
                share = low[1] / (low[1] - high[1]) if attempt % 3 < 2 else 0.5
                t = low[0] + (high[0] - low[0]) * min(max(share, 0.1), 0.9)
        return self._state(W + taken * direction, line.point()), taken

    def _move_to(self, W: np.ndarray) -> None:
        self.scores = self._scores(W)
        self.state = self._state(W, self._found(self.scores))

    def _found(self, scores: np.ndarray) -> Found:
        """The proximal points at given scores."""
        line = self.losses.line(self.tau, self.anchor, scores, scores)
        line.slope(0.0)
        return line.point()

    def _state(self, W: np.ndarray, found: Found) -> State:
        gap = found.losses - found.means
        image = self._image(found.steps, found.moved)
        certificate = Certificate(half_square(W) + found.losses, found.linear - half_square(image))
        return State(W, found.blocks, found.moved, image, gap, certificate)

    def _pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """Rows of X as dense float64 arrays, the constant feature last, with the number of the first one."""
        if self._whole is not None:
            yield 0, self._whole
            return
        for first in range(0, self.problem.n, PIECE):
            yield first, self._dense(slice(first, first + PIECE))

    @cached_property
    def _whole(self) -> np.ndarray | None:
        """All of X, where it is at most `KEPT` numbers."""
        return self._dense(slice(None)) if math.prod(self.problem.rows.shape) <= KEPT else None

    def _dense(self, part: slice) -> np.ndarray:
        rows = self.problem.rows
        some = rows.matrix[part]
        X = np.empty((some.shape[0], some.shape[1] + 1))
        X[:, :-1] = some if rows.dense else some.toarray()
        X[:, -1] = self.problem.bias
        return X

    def _scores(self, W: np.ndarray) -> np.ndarray:
        """X W; in memory class by class, as NumPy's passes take them."""
        scores = np.empty((self.problem.c, self.problem.n))
        for first, X in self._pieces():
            np.matmul(W.T, X.T, out=scores[:, first : first + len(X)])
        return scores.T

    def _image(self, steps: np.ndarray, moved: np.ndarray | None = None) -> np.ndarray:
        """sum_i steps_i (x) x_i, over the samples that have moved if that is known."""
        W = np.zeros((self.problem.rows.shape[1] + 1, self.problem.c))
        for first, X in self._pieces():
            part = steps[first : first + len(X)]
            if moved is not None:
                there = moved[first : first + len(X)]
                if 4 * np.count_nonzero(there) < len(X):
                    X, part = X[there], part[there]
            W += X.T @ part
        return W


def half_square(W: np.ndarray) -> float:
    """1/2 |W|^2."""
    return 0.5 * float(np.vdot(W, W))
