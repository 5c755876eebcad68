"""A basis whose vectors move: RBF vectors, their width and the coefficients, learned together.

The objective is that of `problem`, now in the vectors z_j and the width gamma too,

    e(z, gamma, al) = 1/2 tr(al' K_JJ al) + L(K_J al P),   K_ij = exp(-gamma |x_i - z_j|^2) + offset .

It is not convex in them: what is found depends on the start, a basis grown by `Greedy`. With
G = dL/dF, H = (G P' al') * (K - offset) entry by entry, and S the same for 1/2 tr(al' K_JJ al),

    de/dz_j    = 2 gamma [sum_i H_ij (x_i - z_j) + sum_a S_ja (z_a - z_j)]
    de/dgamma  = - sum_ij H_ij |x_i - z_j|^2 - 1/2 sum_ab S_ab |z_a - z_b|^2 .

Steps follow the gradient of `batch` samples by Adam's rule (Kingma and Ba 2015), with a rate that
falls to zero along a cosine. A share of the samples is held out, and the loss on them is looked at
after every round of steps. When it has not fallen for some rounds, learning goes back to the
state that was best there with shorter steps, and after some such returns it ends. Then the
coefficients are optimised for the best vectors, over all samples, with the certificate of any
fixed basis. If the grown basis has the lower objective, it is kept.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from maxmargin.core.kernels import squared_norms
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.sparse.greedy import DEPENDENT, FixedBasis, Greedy, Solution
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem

# Most rounds of steps; the estimators allow as many epochs beside those of growth.
ROUNDS = 40

Movable: TypeAlias = SquaredMargins | SquaredHinges


class Moving(NamedTuple):
    """What is learned: vectors (d x n_features), coefficients al (d x r), logarithm of gamma."""

    vectors: np.ndarray
    al: np.ndarray
    width: float

    def flat(self) -> np.ndarray:
        """Vectors and coefficients in one row."""
        return np.concatenate((self.vectors, self.al), axis=None)


def squared_distances(X: Any, Z: np.ndarray, squares_X: np.ndarray, squares_Z: np.ndarray) -> np.ndarray:
    """|x_i - z_j|^2 from |x_i|^2 and |z_j|^2; X may be sparse."""
    D = X @ Z.T
    D *= -2
    D += squares_X[:, None]
    D += squares_Z
    return np.maximum(D, 0, out=D)


def slope(problem: BasisProblem, rows: np.ndarray, at: Moving, share: float) -> tuple[float, Moving]:
    """Objective and gradient from some samples; `share` of the regulariser counts."""
    Z, al, gamma = at.vectors, at.al, math.exp(at.width)
    X, offset, dtype = problem.X[rows], problem.kernel.offset, at.vectors.dtype
    squares, bias = squared_norms(Z).astype(dtype), offset * al.sum(axis=0)
    D = squared_distances(X, Z, problem.squares[rows].astype(dtype), squares)
    K = np.exp(-gamma * D, dtype=dtype)
    F = problem.scores((K @ al + bias).astype(np.float64))
    value, G = cast(Movable, problem.loss).take(rows).value_and_gradient(F)
    G = problem.back(G).astype(dtype, copy=False)
    H = G @ al.T
    H *= K
    D_JJ = squared_distances(Z, Z, squares, squares)
    K_JJ = np.exp(-gamma * D_JJ, dtype=dtype)
    own = share * (K_JJ @ al + bias)
    S = share * (al @ al.T) * K_JJ
    towards = np.asarray((X.T @ H).T) + S @ Z - (H.sum(axis=0) + S.sum(axis=0))[:, None] * Z
    towards *= 2 * gamma
    width = -gamma * float(np.vdot(H, D) + 0.5 * np.vdot(S, D_JJ))
    gradient = Moving(towards, K.T @ G + offset * G.sum(axis=0) + own, width)
    return 0.5 * float(np.vdot(al, own)) + value, gradient


class Adam:
    """Steps along a running mean of gradients over the root of that of their squares.

    `rates` are the lengths of full steps of vectors, coefficients and width.
    """

    def __init__(
        self, start: Moving, rates: tuple[float, float, float], first: float = 0.9, second: float = 0.999
    ) -> None:
        self.rates, self.first, self.second = rates, first, second
        self.mean, self.square, self.room = np.zeros((3, start.vectors.size + start.al.size), start.al.dtype)
        self.width_mean = self.width_square = 0.0
        self.tiny = np.finfo(start.al.dtype).tiny
        self.steps = 0

    def step(self, at: Moving, gradient: Moving, share: float) -> Moving:
        """One step, `share` of the full rates long."""
        self.steps += 1
        scale = share * math.sqrt(1 - self.second**self.steps) / (1 - self.first**self.steps)
        g, mean, square, step = gradient.flat(), self.mean, self.square, self.room
        np.subtract(g, mean, out=step)
        step *= 1 - self.first
        mean += step
        g *= g
        g -= square
        g *= 1 - self.second
        square += g
        np.sqrt(square, out=step)
        step += self.tiny
        np.divide(mean, step, out=step)
        edge = at.vectors.size
        vectors = (scale * self.rates[0]) * step[:edge].reshape(at.vectors.shape)
        al = (scale * self.rates[1]) * step[edge:].reshape(at.al.shape)
        self.width_mean += (1 - self.first) * (gradient.width - self.width_mean)
        self.width_square += (1 - self.second) * (gradient.width**2 - self.width_square)
        width = self.width_mean / (math.sqrt(self.width_square) + sys.float_info.min)
        np.subtract(at.vectors, vectors, out=vectors)
        np.subtract(at.al, al, out=al)
        return Moving(vectors, al, at.width - scale * self.rates[2] * width)


class Learned:
    """Grow a basis, move its vectors, optimise the coefficients of what was found.

    Parameters
    ----------
    greedy : Greedy
        Grows the basis to start from, one vector an epoch.
    rng : numpy RandomState
        Draws the samples held out and those of every step.
    rounds, steps : int, default=ROUNDS, 500
        At most so many rounds, one an epoch, of so many steps.
    batch : int, default=256
        Samples of a step.
    rate : float, default=0.05
        Longest step of a coordinate of the vectors, in units of 1 / sqrt(gamma n_features).
    held_out : float, default=0.1
        Share of the samples that no step sees; with fewer than ten samples they are all.
    patience : int, default=4
        Rounds without a gain on the samples held out, after which steps become shorter.
    shorter : float, default=0.3
        By what factor they do.
    returns : int, default=3
        How often they do before learning ends.
    """

    def __init__(
        self,
        greedy: Greedy,
        rng: Any,
        *,
        rounds: int = ROUNDS,
        steps: int = 500,
        batch: int = 256,
        rate: float = 0.05,
        held_out: float = 0.1,
        patience: int = 4,
        shorter: float = 0.3,
        returns: int = 3,
    ) -> None:
        self.greedy, self.rng, self.problem = greedy, rng, greedy.problem
        self.rounds, self.steps, self.batch, self.rate = rounds, steps, batch, rate
        self.held_out, self.patience, self.shorter, self.returns = held_out, patience, shorter, returns
        self.grown = False
        self.round = self.waited = self.returned = 0
        self.found: tuple[np.ndarray, FixedBasis] | None = None

    def epoch(self, clock: Clock) -> Progress:
        """One more vector, or one round of steps; the last round ends with the coefficients."""
        with self.greedy.threads():
            return self._epoch(clock)

    def _epoch(self, clock: Clock) -> Progress:
        if not self.grown:
            progress = self.greedy.epoch(clock)
            self.grown = bool(progress.done)
            if self.grown and self.greedy.basis.indices:
                self._begin()
                return replace(progress, done=False)
            return progress
        self._move(clock)
        over = self.round == self.rounds or self.returned > self.returns
        if over or clock.expired():
            self._settle(clock)
        return Progress(self.certificate, len(self.trained), exact=True, done=over)

    def certify(self) -> Certificate:
        """Of the moved basis once its coefficients are optimised, else of the grown one."""
        with self.greedy.threads():
            return self.greedy.certify() if self.found is None else self.found[1].certificate()

    def solution(self) -> Solution:
        """The moved basis once its coefficients are optimised, else the grown one; without stages."""
        if self.found is None:
            return self.greedy.solution()._replace(path=None)
        kept, basis = self.found
        with self.greedy.threads():
            coefficients = basis.coefficients(basis.here.W)
        J, kernel = self.greedy.solution().basis[kept], basis.problem.kernel
        return Solution(J, basis.vectors, kernel, coefficients, None, basis.here.loss)

    def _begin(self) -> None:
        """Start from the grown vectors; their coefficients have seen the samples that are now set apart."""
        rows = self.rng.permutation(np.flatnonzero(cast(Movable, self.problem.loss).c > 0))
        apart = int(self.held_out * len(rows))
        self.trained, self.judged = rows[apart:], rows[:apart] if apart else rows
        grown, kernel = self.greedy.basis, self.problem.kernel
        Z, dtype = self.problem.X[grown.indices], self.problem.X.dtype
        Z = np.array(Z.toarray() if hasattr(Z, "toarray") else Z, dtype)
        al = np.zeros((len(Z), self.problem.rank), dtype)
        self.state = self.best = Moving(Z, al, math.log(kernel.gamma))
        vectors = self.rate / math.sqrt(kernel.gamma * Z.shape[1])
        self.adam = Adam(self.state, (vectors, 3 * self.rate, self.rate / 3))
        self.lowest, self.certificate = np.inf, self.greedy.certify()

    def _judge(self) -> float:
        """Loss of the state on the samples held out."""
        kernel = replace(self.problem.kernel, gamma=math.exp(self.state.width))
        al = self.state.al.astype(np.float64)
        F = self.problem.scores(kernel.scores(self.problem.X[self.judged], self.state.vectors, al))
        return cast(Movable, self.problem.loss).take(self.judged).at(F).value

    def _move(self, clock: Clock) -> None:
        """One round of steps."""
        trained, share = self.trained, min(self.batch / len(self.trained), 1.0)
        length, first = self.shorter**self.returned, self.round * self.steps
        drawn = self.rng.randint(len(trained), size=(self.steps, self.batch)) if share < 1 else None
        for step in range(self.steps):
            if clock.expired():
                break
            rows = trained if drawn is None else trained[drawn[step]]
            _, gradient = slope(self.problem, rows, self.state, share)
            rate = 0.5 + 0.5 * math.cos(math.pi * (first + step) / (self.rounds * self.steps))
            self.state = self.adam.step(self.state, gradient, length * rate)
        self.round += 1
        loss = self._judge()
        self.waited = 0 if loss < self.lowest else self.waited + 1
        if loss < self.lowest:
            self.best, self.lowest = self.state, loss
        elif self.waited == self.patience:
            self.state, self.waited, self.returned = self.best, 0, self.returned + 1

    def _settle(self, clock: Clock) -> None:
        """Optimise the coefficients of the best vectors; keep them if they beat the grown basis."""
        problem = replace(self.problem, kernel=replace(self.problem.kernel, gamma=math.exp(self.best.width)))
        kept = independent(problem, self.best.vectors)
        basis = FixedBasis(problem, self.best.vectors[kept], self.best.al[kept].astype(np.float64))
        goal = max(0.5 * self.greedy.tol, self.greedy.precision)
        self.greedy.optimiser.optimise(basis, lambda: goal * basis.here.objective, clock.expired)
        if basis.here.objective < self.greedy.basis.here.objective:
            self.found, self.certificate = (kept, basis), basis.certificate()


def independent(problem: BasisProblem, vectors: np.ndarray) -> np.ndarray:
    """Those vectors, in their order, whose kernel functions do not depend on the ones before."""
    K = problem.gram(vectors)
    rest, kept = K.copy(), []
    for j in range(len(K)):
        if rest[j, j] > DEPENDENT[np.dtype(np.float64)] * K[j, j]:
            kept.append(j)
            rest -= np.outer(rest[:, j], rest[j] / rest[j, j])
    return np.array(kept, dtype=np.intp)
