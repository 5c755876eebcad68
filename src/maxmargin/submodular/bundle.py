"""Bundle method for 1/2 |theta|^2 + R(theta) with some coordinates of theta nonnegative (BMRM).

R is convex and nonnegative. Inference at theta gives a plane g, b with b + <g, theta'> <= R(theta') for all
theta', and an upper bound of R(theta).

    model     M(theta) = 1/2 |theta|^2 + max(0, max_i b_i + <g_i, theta>)         <= P(theta)
    its dual  D(alpha) = b.alpha - 1/2 |theta(alpha)|^2,  alpha in the simplex (a zero plane included)
    link      theta(alpha) = -sum_i alpha_i g_i, its nonnegative coordinates cut at zero
    gap       (best P - D(alpha)) / best P;  D(alpha) <= min P for every alpha in the simplex

This is Algorithm 1 of Petterson and Caetano, after Teo, Vishwanathan, Smola, Le, "Bundle methods for
regularized risk minimization", 2010, with the nonnegative block eliminated from the dual (instead of appendix
C of the paper). Each epoch adds one plane. With `line_search` it belongs to a point near the best one between
the best theta so far and the minimiser of the model, as in OCAS (Franc and Sonnenburg, 2009): the remembered
sets of the samples give a lower bound of P along that line without inference.

The dual of the model is a small concave program, `maximise_model`. With K the Gram matrix of the planes on
the free coordinates and the rows of B their parts on the nonnegative ones,

    D(alpha) = b.alpha - 1/2 alpha'K alpha - 1/2 |max(0, -B'alpha)|^2,   alpha >= 0, sum alpha = 1,

is smooth and piecewise quadratic. Its gradient is the value of each plane at theta(alpha), so the gap of the
program is max_i grad_i - alpha.grad >= max D - D(alpha).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve
from scipy.optimize import minimize_scalar

from maxmargin.core.linalg import ridged_cholesky, root_of_slope
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.submodular.problem import SubmodularF1

# A plane unused for more epochs than this is dropped.
PATIENCE = 25
# Distance of the point of the next plane from the best point of the line search to the minimiser, as in OCAS.
ADVANCE = 0.1
# Gap to which the dual of the model is solved, relative to the gap of the problem.
ACCURACY = 1e-2
# Epochs in a row without any change after which no further plane will help.
MOST_STALLED = 3
# A smaller relative change of the objectives is rounding.
STALLED = 1e-12
# Most Newton steps per plane.
STEPS = 20
# Relative ridge that makes a Gram matrix of dependent planes definite, and its growth if that is not enough.
RIDGE, GROWTH = 1e-13, 100.0
# Planes whose Gram matrix has a smaller diagonal have no features.
FLAT = 1e-100


@dataclass(frozen=True)
class Planes:
    """The planes (rows of G, offsets b), the sets behind them, and their weights; the first is zero.

    K is the Gram matrix of their free parts, `idle` the number of epochs that each has had no weight.
    """

    G: np.ndarray
    b: np.ndarray
    K: np.ndarray
    sets: tuple[np.ndarray, ...]
    idle: np.ndarray
    alpha: np.ndarray

    @classmethod
    def none(cls, dimension: int) -> Planes:
        """Return the zero plane alone."""
        sets = (np.empty((0, 0), np.uint8),)
        return cls(
            np.zeros((1, dimension)), np.zeros(1), np.zeros((1, 1)), sets, np.zeros(1, np.int64), np.ones(1)
        )

    def add(self, g: np.ndarray, b: float, sets: np.ndarray, free: int) -> Planes:
        """Add one plane, without weight; `free` is the number of coordinates that may be negative."""
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

    def prune(self, patience: int) -> Planes:
        """Remove the planes that have been idle for more than `patience` epochs."""
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
    """The best theta; the sets behind the planes with weight, and their weights (zero plane first).

    Sets give a valid plane for any features, costs and pairs, so they can start another fit.
    """

    theta: np.ndarray
    sets: tuple[np.ndarray, ...]
    alpha: np.ndarray

    def fits(self, problem: SubmodularF1) -> bool:
        """Return whether the sets are sets of the samples of this problem."""
        return all(labels.shape == problem.truth.shape for labels in self.sets)


class Bundle:
    """The method: the planes, their weights alpha, and the best theta.

    Parameters
    ----------
    problem : SubmodularF1
    line_search : bool
        Add planes near the best point on the line to the minimiser; False is Algorithm 1.
    memory : int
        Number of recent epochs whose sets the line search uses.
    start : BundleSolution or None
        The solution of another fit.
    """

    def __init__(
        self,
        problem: SubmodularF1,
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
        self.stalled = 0
        if start is not None:
            for sets in start.sets:
                self._add(sets)
            self.planes = replace(self.planes, alpha=start.alpha)
            self._solve(ACCURACY * max(self._dual(), 0.0))

    def epoch(self, clock: Clock) -> Progress:
        """Run one round of Algorithm 1: infer, add the plane (7), minimise the model."""
        before = Certificate(self.best_primal, self.lower)
        search = self.line_search and np.isfinite(self.best_primal) and self.stalled == 0
        point = self._search(self.theta) if search else self.theta
        sets, risk = self.problem.risk(point, self.hints)
        primal = self.problem.primal(point, risk)
        if primal < self.best_primal:
            self.best_primal, self.best = primal, point
        self.recent = [*self.recent, sets][-self.memory :]
        self._add(sets)
        self._solve(ACCURACY * max(self.best_primal - before.dual, 0.0))
        self.planes = self.planes.prune(PATIENCE)
        now = Certificate(self.best_primal, self.lower)
        moved = max(before.primal - now.primal, now.dual - before.dual)
        self.stalled = 0 if moved > STALLED * abs(now.primal) else self.stalled + 1
        stuck = ""
        if self.stalled >= MOST_STALLED:
            stuck = "increase max_nodes" if self.problem.exact else "use inference='exact'"
        return Progress(now, len(self.problem.truth), stuck=stuck)

    def certify(self) -> Certificate:
        """Certify the best theta, with D(alpha) from the stored planes."""
        return self.problem.certificate(self.best, self._dual(), self.hints)

    def solution(self) -> BundleSolution:
        """Return the best theta, and the planes with weight."""
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

    def _search(self, target: np.ndarray) -> np.ndarray:
        """Return the best point from the best theta to `target`, moved further by `ADVANCE`."""
        risk = self.problem.along(self.best, target, self.recent)
        towards = target - self.best
        square = np.array([self.best @ self.best, self.best @ towards, towards @ towards])

        def value(beta: float) -> float:
            return float(0.5 * square[0] + beta * square[1] + 0.5 * beta**2 * square[2]) + risk(beta)

        beta = float(minimize_scalar(value, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-4}).x)
        return self.best + (beta + ADVANCE * (1.0 - beta)) * towards


def maximise_model(
    K: np.ndarray, B: np.ndarray, b: np.ndarray, alpha: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Improve `alpha` until the gap of the dual of the model is at most `tol`; return it with the gradient.

    An active-set Newton method for line 8 of Algorithm 1: the plane with the largest gradient joins the
    support, a Newton step (on the present quadratic piece of D) moves within the support, and a plane with
    weight zero leaves it. A line search on D cuts each step, so D never falls.
    """
    alpha = alpha / alpha.sum()
    for _ in range(STEPS * (len(b) + 5)):
        clipped = np.maximum(-alpha @ B, 0.0)
        grad = b - K @ alpha + B @ clipped
        best = int(np.argmax(grad))
        if grad[best] - alpha @ grad <= tol:
            break
        inside = alpha > 0
        inside[best] = True
        support = np.flatnonzero(inside)
        direction = _newton(K, B[:, clipped > 0], grad, support)
        new = support == best
        if alpha[best] == 0 and direction[new][0] <= 0:
            support = support[~new]
            direction = _newton(K, B[:, clipped > 0], grad, support)
        if direction @ grad[support] <= 0:
            # The Newton step is lost to rounding: move weight to the best plane instead.
            support = np.flatnonzero(inside)
            direction = (support == best) - alpha[support]
        alpha = _move(K, B, b, alpha, support, direction)
    clipped = np.maximum(-alpha @ B, 0.0)
    return alpha, b - K @ alpha + B @ clipped


def _newton(K: np.ndarray, B: np.ndarray, grad: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Return the Newton direction within the support; its entries sum to zero."""
    H = K[np.ix_(support, support)] + B[support] @ B[support].T
    if H.diagonal().max() < FLAT:
        H = np.eye(len(H))
    sides = np.column_stack([grad[support], np.ones(len(H))])
    towards, level = cho_solve(ridged_cholesky(H, ridge=RIDGE, growth=GROWTH), sides).T
    return towards - towards.sum() / level.sum() * level


def _move(
    K: np.ndarray, B: np.ndarray, b: np.ndarray, alpha: np.ndarray, support: np.ndarray, direction: np.ndarray
) -> np.ndarray:
    """Take the step along `direction` that maximises D, as long as alpha stays nonnegative."""
    here = alpha[support]
    shrinking = direction < 0
    longest = np.min(here[shrinking] / -direction[shrinking], initial=np.inf)
    slope = float(direction @ (b[support] - K[support] @ alpha))
    curvature = float(direction @ K[np.ix_(support, support)] @ direction)
    v, w = -alpha @ B, -direction @ B[support]

    def clipped(t: float) -> tuple[float, float]:
        """Derivatives of 1/2 |max(0, v + t w)|^2."""
        positive = np.maximum(v + t * w, 0.0)
        return float(w @ positive), float(np.sum(w[positive > 0] ** 2))

    step = root_of_slope(clipped, -slope, curvature, min(1.0, longest))
    moved = alpha.copy()
    moved[support] = np.maximum(here + step * direction, 0.0)
    if step == longest:
        # The weight that limits the step becomes exactly zero.
        blocked = np.flatnonzero(shrinking)
        moved[support[blocked[np.argmin(here[blocked] / -direction[blocked])]]] = 0.0
    return moved / moved.sum()
