"""A basis whose vectors move: RBF vectors, their widths and the coefficients, learned together.

The objective is that of `problem`, now in the vectors z_j, the width gamma and the metric M too,

    e(z, gamma, M, al) = 1/2 tr(al' K_JJ al) + L(K_J al P),   K_ij = exp(-gamma |M (x_i - z_j)|^2) + offset .

M says how far the kernel reaches in every direction; k is a kernel whatever M is. It is learned where X is
dense, has at most `NARROW` features, as steps cost the square of their number, and as many samples as M has
entries, as fewer are learned by heart (digits, 900 samples of 64 features and 25 vectors: 97.2 % right, not
98.4); it is the identity elsewhere.

It is not convex in them: what is found depends on the start, a basis grown by `Greedy`. The steps are those
of M and of v_j = M z_j, which does not move with M; with u_i = M x_i, G = dL/dF,
H = (G P' al') * (K - offset) entry by entry, and S the same for 1/2 tr(al' K_JJ al),

    de/dv_j    = 2 gamma [sum_i H_ij (u_i - v_j) + sum_a S_ja (v_a - v_j)]
    de/dM      = 2 gamma sum_ij H_ij (v_j - u_i) x_i'
    de/dgamma  = - sum_ij H_ij |u_i - v_j|^2 - 1/2 sum_ab S_ab |v_a - v_b|^2 .

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
import scipy.sparse as sp

from maxmargin.core.kernels import Kernel, squared_norms
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.sparse.greedy import DEPENDENT, FixedBasis, Greedy, Solution
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem

# Most rounds of steps; the estimators allow as many epochs beside those of growth.
ROUNDS = 40
# Most features for which a metric is learned.
NARROW = 64
# A direction is forgotten when a metric has less than this share of its largest reach there.
FORGOTTEN = 1e-4

Movable: TypeAlias = SquaredMargins | SquaredHinges


class Moving(NamedTuple):
    """What is learned: vectors v_j (d x n_features), coefficients al (d x r), logarithm of gamma, M.

    None is the M of an identity that stays.
    """

    vectors: np.ndarray
    al: np.ndarray
    width: float
    metric: np.ndarray | None = None

    def arrays(self) -> list[np.ndarray]:
        """Vectors, coefficients and the metric, if there is one."""
        return [self.vectors, self.al, *([] if self.metric is None else [self.metric])]

    def through(self, X: Any) -> Any:
        """u = M x of every row."""
        return X if self.metric is None else X @ self.metric.T

    def places(self) -> np.ndarray:
        """z = M^-1 v of every vector; where M all but forgets a direction, z has no part in it."""
        if self.metric is None:
            return self.vectors
        back = np.linalg.pinv(self.metric.astype(np.float64), rcond=FORGOTTEN)
        return (self.vectors @ back.T).astype(self.vectors.dtype)

    def kernel(self, start: Kernel) -> Kernel:
        """The kernel with this width and metric, whose squares have the mean 1 over all directions."""
        if self.metric is None:
            return replace(start, gamma=math.exp(self.width))
        metric = self.metric.astype(np.float64)
        stretch = float(np.vdot(metric, metric)) / len(metric)
        return replace(start, gamma=stretch * math.exp(self.width), metric=metric / math.sqrt(stretch))


def squared_distances(X: Any, Z: np.ndarray, squares_X: np.ndarray, squares_Z: np.ndarray) -> np.ndarray:
    """|x_i - z_j|^2 from |x_i|^2 and |z_j|^2; X may be sparse."""
    D = X @ Z.T
    D *= -2
    D += squares_X[:, None]
    D += squares_Z
    return np.maximum(D, 0, out=D)


def slope(problem: BasisProblem, rows: np.ndarray, at: Moving, share: float) -> tuple[float, Moving]:
    """Objective and gradient from some samples; `share` of the regulariser counts."""
    V, al, gamma = at.vectors, at.al, math.exp(at.width)
    X, offset, dtype = problem.X[rows], problem.kernel.offset, V.dtype
    U = at.through(X)
    squares, bias = squared_norms(V).astype(dtype), offset * al.sum(axis=0)
    lengths = problem.squares[rows] if at.metric is None else squared_norms(U)
    D = squared_distances(U, V, lengths.astype(dtype), squares)
    K = np.exp(-gamma * D, dtype=dtype)
    F = problem.scores((K @ al + bias).astype(np.float64))
    value, G = cast(Movable, problem.loss).take(rows).value_and_gradient(F)
    G = problem.back(G).astype(dtype, copy=False)
    H = G @ al.T
    H *= K
    D_JJ = squared_distances(V, V, squares, squares)
    K_JJ = np.exp(-gamma * D_JJ, dtype=dtype)
    own = share * (K_JJ @ al + bias)
    S = share * (al @ al.T) * K_JJ
    towards = np.asarray((U.T @ H).T) + S @ V - (H.sum(axis=0) + S.sum(axis=0))[:, None] * V
    towards *= 2 * gamma
    width = -gamma * float(np.vdot(H, D) + 0.5 * np.vdot(S, D_JJ))
    metric = None
    if at.metric is not None:
        metric = 2 * gamma * (H @ V - H.sum(axis=1)[:, None] * U).T @ X
    gradient = Moving(towards, K.T @ G + offset * G.sum(axis=0) + own, width, metric)
    return 0.5 * float(np.vdot(al, own)) + value, gradient


class Adam:
    """Steps along a running mean of gradients over the root of that of their squares.

    `rates` are the lengths of full steps of vectors, coefficients, width and metric.
    """

    def __init__(
        self,
        start: Moving,
        rates: tuple[float, float, float, float],
        first: float = 0.9,
        second: float = 0.999,
    ) -> None:
        self.rates, self.first, self.second = rates, first, second
        sizes = [part.size for part in start.arrays()]
        self.mean, self.square, self.room = np.zeros((3, sum(sizes)), start.al.dtype)
        self.ends = np.cumsum(sizes)[:-1]
        self.width_mean = self.width_square = 0.0
        self.tiny = np.finfo(start.al.dtype).tiny
        self.steps = 0

    def step(self, at: Moving, gradient: Moving, share: float) -> Moving:
        """One step, `share` of the full rates long."""
        self.steps += 1
        scale = share * math.sqrt(1 - self.second**self.steps) / (1 - self.first**self.steps)
        mean, square, step = self.mean, self.square, self.room
        g = np.concatenate(gradient.arrays(), axis=None)
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
        of_vectors, of_al, of_width, of_metric = self.rates
        moved = [
            part - (scale * rate) * along.reshape(part.shape)
            for part, rate, along in zip(
                at.arrays(), (of_vectors, of_al, of_metric), np.split(step, self.ends), strict=False
            )
        ]
        self.width_mean += (1 - self.first) * (gradient.width - self.width_mean)
        self.width_square += (1 - self.second) * (gradient.width**2 - self.width_square)
        width = self.width_mean / (math.sqrt(self.width_square) + sys.float_info.min)
        vectors, al, *metric = moved
        return Moving(vectors, al, at.width - scale * of_width * width, *metric)


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
        # The problem with its rows seen from the middle of them, which is 0 where there is no metric.
        self.near, self.middle = self.problem, np.zeros((), self.problem.X.dtype)
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
        X, kernel, dtype = self.problem.X, self.problem.kernel, self.problem.X.dtype
        Z = X[self.greedy.basis.indices]
        Z = np.array(Z.toarray() if sp.issparse(Z) else Z, dtype)
        metric = None
        if not sp.issparse(X) and X.shape[1] <= min(NARROW, math.sqrt(len(rows))):
            # Seen from the middle, rows stay together when the metric turns.
            metric, self.middle = np.eye(X.shape[1], dtype=dtype), X.mean(axis=0)
            Z -= self.middle
            self.near = replace(self.problem, X=X - self.middle)
        al = np.zeros((len(Z), self.problem.rank), dtype)
        self.state = self.best = Moving(Z, al, math.log(kernel.gamma), metric)
        vectors = self.rate / math.sqrt(kernel.gamma * Z.shape[1])
        self.adam = Adam(self.state, (vectors, 3 * self.rate, self.rate / 3, self.rate / 3))
        self.lowest, self.certificate = np.inf, self.greedy.certify()

    def _judge(self) -> float:
        """Loss of the state on the samples held out."""
        kernel = replace(self.problem.kernel, gamma=math.exp(self.state.width))
        al, U = self.state.al.astype(np.float64), self.state.through(self.near.X[self.judged])
        F = self.problem.scores(kernel.scores(U, self.state.vectors, al))
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
            _, gradient = slope(self.near, rows, self.state, share)
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
        problem = replace(self.problem, kernel=self.best.kernel(self.problem.kernel))
        vectors = self.best.places() + self.middle
        kept = independent(problem, vectors)
        basis = FixedBasis(problem, vectors[kept], self.best.al[kept].astype(np.float64))
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
