"""Bundle method for 1/2 |theta|^2 + R(theta) with some coordinates of theta nonnegative (BMRM).

R is convex, nonnegative and known by planes: asked at theta, the problem answers with g and b such
that b + <g, theta'> <= R(theta') for all theta', and with an upper bound of R(theta).

    model     M(theta) = 1/2 |theta|^2 + max(0, max_i b_i + <g_i, theta>)         <= P(theta)
    its dual  D(alpha) = b.alpha - 1/2 |theta(alpha)|^2,  alpha in the simplex (a zero plane included)
    link      theta(alpha) = -sum_i alpha_i g_i, its nonnegative coordinates cut at zero
    gap       (best P met - D(alpha)) / best P;  D(alpha) <= min P for every alpha in the simplex

This is Algorithm 1 of Petterson and Caetano, after Teo, Vishwanathan, Smola, Le, "Bundle methods for
regularized risk minimization", 2010, with the nonnegative block eliminated from the dual (in place of
the paper's appendix C). Each epoch asks for one plane. With `line_search` it is asked for near the
best point between the best theta so far and the minimiser of the model, as in OCAS (Franc and
Sonnenburg, 2009): P along that line is underestimated from the sets remembered per sample, which
costs no inference.

The dual of the model is a small concave program, `maximise_model`. With K the Gram matrix of the
planes on the free coordinates and the rows of B their parts on the nonnegative ones,

    D(alpha) = b.alpha - 1/2 alpha'K alpha - 1/2 |max(0, -B'alpha)|^2,   alpha >= 0, sum alpha = 1,

is smooth and piecewise quadratic. Its gradient is the value of each plane at theta(alpha), so the
gap of the program is max_i grad_i - alpha.grad >= max D - D(alpha).
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.submodular.problem import SubmodularF1

# A plane unused for more epochs than this is dropped.
PATIENCE = 25
# How far from the best point towards the minimiser the next plane is asked for, as in OCAS.
ADVANCE = 0.1
# Gap of the model's dual, relative to the gap of the whole, up to which it is solved.
ACCURACY = 1e-2
# Epochs in a row without any change after which no further plane will help.
MOST_STILL = 3
# A change of the objectives below this part of them is rounding.
STILL = 1e-12
# The part of its diagonal that makes a Gram matrix of dependent planes definite, and how it grows
# where that is not enough.
RIDGE, GROWTH = 1e-13, 100.0
# A diagonal below this is that of planes without features; relative to it a ridge would underflow.
FLAT = 1e-100


class Risk(Protocol):
    """What the method asks of a problem; the last coordinates of theta, one for each pair, are nonnegative.

    `submodular.problem` says what each method does; the sets are answers of all samples, of any kind.
    """

    @property
    def dimension(self) -> int: ...

    @property
    def pairs(self) -> Sized: ...

    @property
    def exact(self) -> bool: ...

    @property
    def n_samples(self) -> int: ...

    def guesses(self) -> Any: ...

    def risk(self, theta: np.ndarray, hints: Any = None) -> tuple[Any, float]: ...

    def plane(self, sets: Any) -> tuple[np.ndarray, float]: ...

    def along(self, start: np.ndarray, end: np.ndarray, memory: Any) -> Callable[[float], float]: ...

    def cut(self, vector: np.ndarray) -> np.ndarray: ...

    def primal(self, theta: np.ndarray, risk: float) -> float: ...

    def dual(self, offset: float, theta: np.ndarray) -> float: ...

    def certificate(self, theta: np.ndarray, dual: float, hints: Any) -> Certificate: ...


@dataclass(frozen=True)
class Planes:
    """The planes (rows of G, offsets b), the sets behind them, and their weights; the first is zero.

    K is the Gram matrix of their free parts, `idle` how many epochs each has had no weight.
    """

    G: np.ndarray
    b: np.ndarray
    K: np.ndarray
    sets: tuple[np.ndarray, ...]
    idle: np.ndarray
    alpha: np.ndarray

    @classmethod
    def none(cls, dimension: int) -> Planes:
        """The zero plane alone."""
        sets = (np.empty((0, 0), np.uint8),)
        return cls(
            np.zeros((1, dimension)), np.zeros(1), np.zeros((1, 1)), sets, np.zeros(1, np.int64), np.ones(1)
        )

    def add(self, g: np.ndarray, b: float, sets: np.ndarray, free: int) -> Planes:
        """One plane more, without weight; `free` is how many coordinates may be negative."""
        row = self.G[:, :free] @ g[:free]
        corner = np.array([[g[:free] @ g[:free]]])
        return Planes(
            np.vstack([self.G, g]),
            np.append(self.b, b),
            np.block([[self.K, row[:, None]], [row[None, :], corner]]),
            (*self.sets, sets),
            np.append(self.idle, 0),
            np.append(self.alpha, 0.0),
        )

    def forget(self, patience: int) -> Planes:
        """Without the planes that have been idle for more than `patience` epochs."""
        idle = np.where(self.alpha > 0, 0, self.idle + 1)
        keep = np.union1d([0], np.flatnonzero(idle <= patience))
        if len(keep) == len(self.b):
            return replace(self, idle=idle)
        return Planes(
            self.G[keep],
            self.b[keep],
            self.K[np.ix_(keep, keep)],
            tuple(self.sets[k] for k in keep),
            idle[keep],
            self.alpha[keep],
        )


@dataclass(frozen=True)
class BundleSolution:
    """The best theta met; the sets behind the planes in use, and their weights (zero plane first).

    Sets give a valid plane for any features, costs and pairs, so they can start another fit.
    """

    theta: np.ndarray
    sets: tuple[np.ndarray, ...]
    alpha: np.ndarray

    def fits(self, problem: SubmodularF1) -> bool:
        """Whether the sets are sets of this problem's samples."""
        return all(labels.shape == problem.truth.shape for labels in self.sets)


class Bundle:
    """State of the method: the planes, their weights alpha, and the best theta met.

    Parameters
    ----------
    problem : Risk
    line_search : bool
        Ask for planes near the best point on the way to the minimiser; False is Algorithm 1.
    memory : int
        From how many epochs the line search remembers the sets.
    start : BundleSolution or None
        The solution of another fit.
    """

    def __init__(
        self,
        problem: Risk,
        *,
        line_search: bool = True,
        memory: int = 20,
        start: BundleSolution | None = None,
    ) -> None:
        self.problem, self.line_search, self.memory = problem, line_search, memory
        self.free = problem.dimension - len(problem.pairs)
        self.planes = Planes.none(problem.dimension)
        self.hints = problem.guesses()
        self.recent: list[np.ndarray] = []
        self.theta = self.best = np.zeros(problem.dimension)
        self.lower, self.best_primal = 0.0, np.inf
        self.still = 0
        if start is not None:
            for sets in start.sets:
                self._add(sets)
            self.planes = replace(self.planes, alpha=start.alpha)
            self._solve(ACCURACY * max(self._dual(), 0.0))

    def epoch(self, clock: Clock) -> Progress:
        """One round of Algorithm 1: infer, add the plane (7), minimise the model."""
        before = Certificate(self.best_primal, self.lower)
        search = self.line_search and np.isfinite(self.best_primal) and self.still == 0
        point = self._between(self.theta) if search else self.theta
        sets, risk = self.problem.risk(point, self.hints)
        primal = self.problem.primal(point, risk)
        if primal < self.best_primal:
            self.best_primal, self.best = primal, point
        self.recent = [*self.recent, sets][-self.memory :]
        self._add(sets)
        self._solve(ACCURACY * max(self.best_primal - before.dual, 0.0))
        self.planes = self.planes.forget(PATIENCE)
        now = Certificate(self.best_primal, self.lower)
        moved = max(before.primal - now.primal, now.dual - before.dual)
        self.still = 0 if moved > STILL * abs(now.primal) else self.still + 1
        stuck = ""
        if self.still >= MOST_STILL:
            stuck = "increase max_nodes" if self.problem.exact else "use inference='exact'"
        return Progress(now, self.problem.n_samples, stuck=stuck)

    def certify(self) -> Certificate:
        """P of the best theta and D(alpha), from the stored planes."""
        return self.problem.certificate(self.best, self._dual(), self.hints)

    def solution(self) -> BundleSolution:
        """The best theta, and the planes in use."""
        alpha, sets = self.planes.alpha, self.planes.sets
        used = np.union1d([0], np.flatnonzero(alpha > 0))
        return BundleSolution(self.best, tuple(sets[k] for k in used if k > 0), alpha[used])

    def _minimiser(self) -> np.ndarray:
        return self.problem.cut(-self.planes.alpha @ self.planes.G)

    def _dual(self) -> float:
        return self.problem.dual(float(self.planes.b @ self.planes.alpha), self._minimiser())

    def _add(self, sets: np.ndarray) -> None:
        self.planes = self.planes.add(*self.problem.plane(sets), sets, self.free)

    def _solve(self, tol: float) -> None:
        planes = self.planes
        alpha, _ = maximise_model(planes.K, planes.G[:, self.free :], planes.b, planes.alpha, tol)
        self.planes = replace(planes, alpha=alpha)
        self.theta = self._minimiser()
        self.lower = self.problem.dual(float(planes.b @ alpha), self.theta)

    def _between(self, target: np.ndarray) -> np.ndarray:
        """Best point on the way from the best theta to `target`, moved on a little."""
        risk = self.problem.along(self.best, target, self.recent)
        towards = target - self.best
        square = np.array([self.best @ self.best, self.best @ towards, towards @ towards])

        def value(beta: float) -> float:
            return float(0.5 * square[0] + beta * square[1] + 0.5 * beta**2 * square[2]) + risk(beta)

        # Thirds of a convex function: 20 of them find the point to 3e-4, far below `ADVANCE`.
        low, high = 0.0, 1.0
        for _ in range(20):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            if value(left) <= value(right):
                high = right
            else:
                low = left
        beta = 0.5 * (low + high)
        beta += ADVANCE * (1.0 - beta)
        return self.best + beta * towards


def maximise_model(
    K: np.ndarray, B: np.ndarray, b: np.ndarray, alpha: np.ndarray, tol: float, steps_per_plane: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    """Improve `alpha` until the gap of the model's dual is at most `tol`; answer it with the gradient.

    An active-set Newton method for line 8 of Algorithm 1: the support grows by the plane with the
    largest gradient, a Newton step (on the piece of D at hand) moves within the support, a plane that
    reaches zero leaves it. Each step is cut by a line search on D, so D never falls.
    """
    alpha = alpha / alpha.sum()
    for _ in range(steps_per_plane * (len(b) + 5)):
        clipped = np.maximum(-alpha @ B, 0.0)
        grad = b - K @ alpha + B @ clipped
        best = int(np.argmax(grad))
        if grad[best] - alpha @ grad <= tol:
            break
        inside = alpha > 0
        inside[best] = True
        support = np.flatnonzero(inside)
        direction = _newton(K, B[:, clipped > 0], grad, support)
        newcomer = support == best
        if alpha[best] == 0 and direction[newcomer][0] <= 0:
            support = support[~newcomer]
            direction = _newton(K, B[:, clipped > 0], grad, support)
        if direction @ grad[support] <= 0:
            # Rounding has eaten the Newton step: fall back on moving weight to the best plane.
            support = np.flatnonzero(inside)
            direction = (support == best) - alpha[support]
        alpha = _move(K, B, b, alpha, support, direction)
    clipped = np.maximum(-alpha @ B, 0.0)
    return alpha, b - K @ alpha + B @ clipped


def _ridged_cholesky(H: np.ndarray, ridge: float = RIDGE, growth: float = GROWTH) -> tuple[np.ndarray, bool]:
    """Cholesky factor of H plus the least of the growing ridges, relative to its diagonal, that has one."""
    added = ridge * max(float(H.diagonal().max()), FLAT)
    while True:
        try:
            return cho_factor(H + added * np.eye(len(H)), lower=True)
        except np.linalg.LinAlgError:
            added *= growth


def _newton(K: np.ndarray, B: np.ndarray, grad: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Newton direction within the support, with entries that sum to zero."""
    H = K[np.ix_(support, support)] + B[support] @ B[support].T
    sides = np.column_stack([grad[support], np.ones(len(H))])
    towards, level = cho_solve(_ridged_cholesky(H), sides).T
    return towards - towards.sum() / level.sum() * level


def _move(
    K: np.ndarray, B: np.ndarray, b: np.ndarray, alpha: np.ndarray, support: np.ndarray, direction: np.ndarray
) -> np.ndarray:
    """Step along `direction` as far as D grows and alpha stays nonnegative."""
    here = alpha[support]
    shrinking = direction < 0
    reach = np.min(here[shrinking] / -direction[shrinking], initial=np.inf)
    bend = K[support] @ alpha, K[np.ix_(support, support)] @ direction
    v, w = -alpha @ B, -direction @ B[support]

    def slope(t: float) -> float:
        return float(direction @ (b[support] - bend[0] - t * bend[1]) - w @ np.maximum(v + t * w, 0.0))

    step = min(1.0, reach)
    if slope(step) < 0:
        low, high = 0.0, step
        # Halving down to the last bits of the step.
        for _ in range(60):
            middle = 0.5 * (low + high)
            if slope(middle) > 0:
                low = middle
            else:
                high = middle
        step = low if low > 0 else high
    moved = alpha.copy()
    moved[support] = np.maximum(here + step * direction, 0.0)
    if step == reach:
        # The plane that stops the step is exactly zero, whatever rounding says.
        blocked = np.flatnonzero(shrinking)
        moved[support[blocked[np.argmin(here[blocked] / -direction[blocked])]]] = 0.0
    return moved / moved.sum()
