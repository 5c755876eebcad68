"""A basis whose vectors move: RBF vectors, their widths and the coefficients, learned together.

The objective is that of `problem`, now in the vectors z_j, the width gamma, the metric M and the spreads r_j,

    e = 1/2 tr(al' K_JJ al) + L(K_J al P), K_ij = exp(-gamma sum_f (M (x_i - z_j))_f^2 / (1 + r_jf)) + offset,

M says how far the kernel reaches in every direction, r_j how much farther vector j does: it is a cloud
around z_j (`kernels.Clouds`), whose inner products with other clouds are K_JJ. So e is a norm
and a loss of functions of the kernel exp(-gamma |M (x - x')|^2), whatever M and r are. M and r are learned
where X is dense, has at most `NARROW` features, as steps cost the square of their number, and as many samples
as M has entries, as fewer are learned by heart (digits, 900 samples of 64 features and 25 vectors: 97.2 %
right, not 98.4); elsewhere M is the identity and r is 0, vectors are points.

It is not convex in them: what is found depends on the start, a basis grown by `Greedy`. The steps are those
of M, the logarithms of gamma and r, and v_j = M z_j, which does not move with M; with u_i = M x_i, G = dL/dF,
H = (G P' al') * (K - offset) entry by entry, w = gamma / (1 + r), and S the same as H for
1/2 tr(al' K_JJ al), with 1 + r_a + r_b in the place of 1 + r,

    dL/dv_jf   = 2 w_jf sum_i H_ij (u_if - v_jf)
    dL/dM      = 2 sum_ij H_ij w_j * (v_j - u_i) x_i'
    dL/dw_jf   = - sum_i H_ij (u_if - v_jf)^2 .

Steps follow the gradient of `batch` samples by Adam's rule (Kingma and Ba 2015), with a rate that
falls to zero along a cosine. A share of the samples is held out, and the loss on them is looked at
after every round of steps. When it has not fallen for some rounds, learning goes back to the
state that was best there with shorter steps, and after some such returns, or none, it ends. Then the
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

from maxmargin.core.kernels import Clouds, Kernel, chunks, squared_norms
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.sparse.greedy import DEPENDENT, FixedBasis, Greedy, Solution
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem

# Most rounds of steps; the estimators allow as many epochs beside those of growth.
ROUNDS = 40
# Most features for which a metric is learned.
NARROW = 64
# By how much the kernel of clouds is narrower at the start than that of the grown basis.
NARROWER = 2.0
# Numbers over pairs of clouds and features that are made at every step; more of them serve several steps.
PAIRS = 16384
# A direction is forgotten when a metric has less than this share of its largest reach there.
FORGOTTEN = 1e-4


class Pace(NamedTuple):
    """How learning goes.

    Attributes
    ----------
    batch : int
        Samples of a step.
    rate : float
        Longest step of a coordinate of the vectors, in units of 1 / sqrt(gamma n_features).
    patience : int
        Rounds without a gain on the samples held out, after which steps become shorter.
    returns : int
        How often they do before learning ends.
    """

    batch: int
    rate: float
    patience: int
    returns: int


# Chosen on parts of the training samples of letter, vehicle, segment, satimage and vowel.
# Steps of 1,024 samples reach objectives that are 2 to 8 % lower on letter (20 clouds), an accuracy higher by
# 0.3 +- 0.2 points (five seeds), and take a third longer there, two thirds on satimage.
# Nothing draws spreads back to 0: three times their sum, added to e, gains a point with 200 samples of which
# a metric alone tells all (eight seeds), but loses 1.8 +- 0.9 on halves of vehicle (8 clouds, six seeds).
OF_POINTS, OF_CLOUDS = Pace(256, 0.05, 4, 3), Pace(512, 0.1, 15, 0)
# Steps that see all samples need less patience: as good on halves of vehicle and vowel, in 0.6 to 0.8 of the
# time.
OF_FEW = OF_CLOUDS._replace(patience=8)

Movable: TypeAlias = SquaredMargins | SquaredHinges


class Moving(NamedTuple):
    """What is learned: vectors v_j (d x n_features), coefficients al (d x r), logarithms of gamma and r, M.

    None are the M of an identity that stays and the spread of points.
    """

    vectors: np.ndarray
    al: np.ndarray
    width: float
    metric: np.ndarray | None = None
    spread: np.ndarray | None = None

    def arrays(self) -> list[np.ndarray]:
        """Vectors, coefficients, and metric and spread if there are such."""
        return [part for part in (self.vectors, self.al, self.metric, self.spread) if part is not None]

    def through(self, X: Any) -> Any:
        """u = M x of every row."""
        return X if self.metric is None else X @ self.metric.T

    def places(self) -> np.ndarray:
        """z = M^-1 v of every vector; where M all but forgets a direction, z has no part in it."""
        if self.metric is None:
            return self.vectors
        back = np.linalg.pinv(self.metric.astype(np.float64), rcond=FORGOTTEN)
        return (self.vectors @ back.T).astype(self.vectors.dtype)

    def around(self, centres: np.ndarray) -> np.ndarray | Clouds:
        """A basis with this spread."""
        return centres if self.spread is None else Clouds(centres, np.exp(self.spread))

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


class PointValues:
    """Kernel values K (without offset) of some rows and points, and their derivatives."""

    def __init__(self, X: Any, squares: np.ndarray, at: Moving) -> None:
        self.X, self.V, self.gamma = X, at.vectors, math.exp(at.width)
        own = squared_norms(self.V).astype(self.V.dtype)
        self.D = squared_distances(X, self.V, squares.astype(self.V.dtype), own)
        self.K = np.exp(-self.gamma * self.D, dtype=self.V.dtype)

    def pull(self, H: np.ndarray) -> dict[str, Any]:
        """Derivatives of the sum of all H_ij log K_ij."""
        towards = np.asarray((self.X.T @ H).T) - H.sum(axis=0)[:, None] * self.V
        return {"vectors": 2 * self.gamma * towards, "width": -self.gamma * float(np.vdot(H, self.D))}


class CloudValues:
    """Kernel values K (without offset) of some rows and clouds, and their derivatives."""

    def __init__(self, X: np.ndarray, at: Moving) -> None:
        self.X, self.V = X, at.vectors
        assert at.spread is not None
        spread, self.U = np.exp(at.spread), at.through(X)
        self.share, self.sharp = spread / (1 + spread), math.exp(at.width) / (1 + spread)
        mixed = self.sharp * self.V
        # Exponents are products of rows (u^2, u) with these.
        self.rows, self.weights = np.hstack([self.U * self.U, self.U]), np.hstack([self.sharp, -2 * mixed])
        E = self.rows @ self.weights.T
        E += np.einsum("jf,jf->j", mixed, self.V)
        np.maximum(E, 0, out=E)
        self.K = np.exp(np.negative(E, out=E), out=E)

    def pull(self, H: np.ndarray) -> dict[str, Any]:
        """Derivatives of the sum of all H_ij log K_ij."""
        p, V = self.V.shape[1], self.V
        pulled, total = H.T @ self.rows, H.sum(axis=0)[:, None]
        towards = pulled[:, p:] - total * V
        apart = self.sharp * (pulled[:, :p] - V * (pulled[:, p:] + towards))
        back = H @ self.weights
        of_rows = 2 * self.U * back[:, :p] + back[:, p:]
        return {
            "vectors": 2 * self.sharp * towards,
            "width": -float(apart.sum()),
            "metric": -of_rows.T @ self.X,
            "spread": self.share * apart,
        }


class Own(NamedTuple):
    """K_JJ without offset, and the derivatives of 1/2 tr(al' K_JJ al) except by al."""

    K: np.ndarray
    slopes: dict[str, Any]


def own(at: Moving) -> Own:
    """The regulariser of a state."""
    V, gamma, pairs = at.vectors, math.exp(at.width), at.al @ at.al.T
    if at.spread is None:
        points = PointValues(V, squared_norms(V), at)
        slopes = points.pull(pairs * points.K)
        return Own(points.K, {**slopes, "width": 0.5 * slopes["width"]})
    spread = np.exp(at.spread)
    size = np.log1p(spread).sum(axis=1)
    K, vectors, wider, width = np.empty_like(pairs), np.empty_like(V), np.empty_like(V), 0.0
    for some in chunks(len(V), V.nbytes):
        apart = V[some, None] - V
        narrow = 1 / (1 + spread[some, None] + spread)
        near = apart * narrow
        far = np.einsum("ijf,ijf->ij", near, apart)
        heights = 0.5 * (size[some, None] + size + np.log(narrow).sum(axis=2))
        K[some] = np.exp(heights - gamma * far)
        S = pairs[some] * K[some]
        vectors[some] = -2 * gamma * np.einsum("ij,ijf->if", S, near)
        near *= near
        near *= gamma
        near -= 0.5 * narrow
        of_own = 0.5 * S.sum(axis=1)[:, None] / (1 + spread[some])
        wider[some] = spread[some] * (of_own + np.einsum("ij,ijf->if", S, near))
        width -= 0.5 * gamma * float(np.vdot(S, far))
    return Own(K, {"vectors": vectors, "width": width, "spread": wider})


def slope(
    problem: BasisProblem, rows: np.ndarray, at: Moving, share: float, regulariser: Own
) -> tuple[float, Moving]:
    """Objective and gradient from some samples; `share` of the regulariser counts."""
    al, offset, X = at.al, problem.kernel.offset, problem.X[rows]
    values = PointValues(X, problem.squares[rows], at) if at.spread is None else CloudValues(X, at)
    K, bias = values.K, offset * al.sum(axis=0)
    F = problem.scores((K @ al + bias).astype(np.float64))
    value, G = cast(Movable, problem.loss).take(rows).value_and_gradient(F)
    G = problem.back(G).astype(al.dtype, copy=False)
    H = G @ al.T
    H *= K
    pulled, kept = values.pull(H), share * (regulariser.K @ al + bias)
    for name, part in regulariser.slopes.items():
        pulled[name] = pulled[name] + share * part
    gradient = Moving(al=K.T @ G + offset * G.sum(axis=0) + kept, **pulled)
    return 0.5 * float(np.vdot(al, kept)) + value, gradient


class Adam:
    """Steps along a running mean of gradients over the root of that of their squares.

    `rates` are the lengths of full steps of vectors, coefficients, width, metric and spread.
    """

    def __init__(
        self,
        start: Moving,
        rates: tuple[float, float, float, float, float],
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
        of_vectors, of_al, of_width, of_metric, of_spread = self.rates
        moved = [
            part - (scale * rate) * along.reshape(part.shape)
            for part, rate, along in zip(
                at.arrays(),
                (of_vectors, of_al, of_metric, of_spread),
                np.split(step, self.ends),
                strict=False,
            )
        ]
        self.width_mean += (1 - self.first) * (gradient.width - self.width_mean)
        self.width_square += (1 - self.second) * (gradient.width**2 - self.width_square)
        width = self.width_mean / (math.sqrt(self.width_square) + sys.float_info.min)
        vectors, al, *more = moved
        return Moving(vectors, al, at.width - scale * of_width * width, *more)


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
    pace : Pace or None, default=None
        None is `OF_POINTS`, `OF_CLOUDS` or `OF_FEW`.
    held_out : float, default=0.1
        Share of the samples that no step sees; with fewer than ten samples they are all.
    shorter : float, default=0.3
        By what factor steps become shorter.
    """

    def __init__(
        self,
        greedy: Greedy,
        rng: Any,
        *,
        rounds: int = ROUNDS,
        steps: int = 500,
        pace: Pace | None = None,
        held_out: float = 0.1,
        shorter: float = 0.3,
    ) -> None:
        self.greedy, self.rng, self.problem = greedy, rng, greedy.problem
        self.rounds, self.steps, self.given_pace = rounds, steps, pace
        self.held_out, self.shorter = held_out, shorter
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
        over = self.round == self.rounds or self.returned > self.pace.returns
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
        metric = spread = None
        width = math.log(kernel.gamma)
        if not sp.issparse(X) and X.shape[1] <= min(NARROW, math.sqrt(len(rows))):
            # Seen from the middle, rows stay together when the metric turns.
            metric, self.middle = np.eye(X.shape[1], dtype=dtype), X.mean(axis=0)
            Z -= self.middle
            self.near = replace(self.problem, X=X - self.middle)
            # A kernel half as wide, and clouds that make up for it.
            width, spread = width + math.log(NARROWER), np.full_like(Z, math.log(NARROWER - 1))
        al = np.zeros((len(Z), self.problem.rank), dtype)
        self.state = self.best = Moving(Z, al, width, metric, spread)
        of_clouds = OF_CLOUDS if len(self.trained) > OF_CLOUDS.batch else OF_FEW
        self.pace = self.given_pace or (OF_POINTS if spread is None else of_clouds)
        rate = self.pace.rate
        vectors = rate / math.sqrt(kernel.gamma * Z.shape[1])
        self.adam = Adam(self.state, (vectors, 3 * rate, rate / 3, rate / 3, rate))
        self.seldom = 1 if spread is None else 1 + len(Z) * Z.size // PAIRS
        self.lowest, self.certificate = np.inf, self.greedy.certify()

    def _judge(self) -> float:
        """Loss of the state on the samples held out."""
        kernel = replace(self.problem.kernel, gamma=math.exp(self.state.width))
        al, U = self.state.al.astype(np.float64), self.state.through(self.near.X[self.judged])
        F = self.problem.scores(kernel.scores(U, self.state.around(self.state.vectors), al))
        return cast(Movable, self.problem.loss).take(self.judged).at(F).value

    def _move(self, clock: Clock) -> None:
        """One round of steps."""
        trained, batch = self.trained, self.pace.batch
        share = min(batch / len(trained), 1.0)
        length, first = self.shorter**self.returned, self.round * self.steps
        drawn = self.rng.randint(len(trained), size=(self.steps, batch)) if share < 1 else None
        for step in range(self.steps):
            if clock.expired():
                break
            rows = trained if drawn is None else trained[drawn[step]]
            if step % self.seldom == 0:
                regulariser = own(self.state)
            _, gradient = slope(self.near, rows, self.state, share, regulariser)
            rate = 0.5 + 0.5 * math.cos(math.pi * (first + step) / (self.rounds * self.steps))
            self.state = self.adam.step(self.state, gradient, length * rate)
        self.round += 1
        loss = self._judge()
        self.waited = 0 if loss < self.lowest else self.waited + 1
        if loss < self.lowest:
            self.best, self.lowest = self.state, loss
        elif self.waited == self.pace.patience:
            self.state, self.waited, self.returned = self.best, 0, self.returned + 1

    def _settle(self, clock: Clock) -> None:
        """Optimise the coefficients of the best vectors; keep them if they beat the grown basis."""
        problem = replace(self.problem, kernel=self.best.kernel(self.problem.kernel))
        vectors = self.best.around(self.best.places() + self.middle)
        kept = independent(problem, vectors)
        basis = FixedBasis(problem, vectors[kept], self.best.al[kept].astype(np.float64))
        goal = max(0.5 * self.greedy.tol, self.greedy.precision)
        self.greedy.optimiser.optimise(basis, lambda: goal * basis.here.objective, clock.expired)
        if basis.here.objective < self.greedy.basis.here.objective:
            self.found, self.certificate = (kept, basis), basis.certificate()


def independent(problem: BasisProblem, vectors: np.ndarray | Clouds) -> np.ndarray:
    """Those vectors, in their order, whose kernel functions do not depend on the ones before."""
    K = problem.gram(vectors)
    rest, kept = K.copy(), []
    for j in range(len(K)):
        if rest[j, j] > DEPENDENT[np.dtype(np.float64)] * K[j, j]:
            kept.append(j)
            rest -= np.outer(rest[:, j], rest[j] / rest[j, j])
    return np.array(kept, dtype=np.intp)
