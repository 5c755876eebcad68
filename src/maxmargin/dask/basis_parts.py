"""Sparse machines whose rows lie in several parts: their functions grow in the workers.

Problem, coordinates and candidates as in `sparse.problem`; the search is `sparse.greedy`. Every part is a
problem of its own over its rows, and value, gradient and Hessian of the loss are sums over parts, as is the
loss after a candidate's step. The rows of the basis, which are few, are here; the functions Psi of a part's
rows are in its worker, a column added whenever a sample joins. One that is lost is made anew from the rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.linalg import solve_triangular

from maxmargin.core.linalg import conjugate_gradients, root_of_slope
from maxmargin.core.loop import Certificate
from maxmargin.dask.rounds import Workers
from maxmargin.dask.working_sets import added, stacked
from maxmargin.sparse.greedy import DEPENDENT, Basis, GrowingBasis, Newton, solve_newton
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem, Scored, hessian, hessian_product


class Functions(NamedTuple):
    """Orthonormal functions at the rows of a part, what they leave of k(x, x), and its rows in the basis."""

    Psi: np.ndarray
    residual: np.ndarray
    own: tuple[int, ...]


class Newcomer(NamedTuple):
    """A sample that joins: its row, its functions, its pivot, and where it is in a part (-1: elsewhere)."""

    x: Any
    before: np.ndarray
    pivot: float
    place: int


class Measured(NamedTuple):
    """Loss of a part, its gradient in W, and how many samples carry it."""

    value: float
    gradient: np.ndarray
    carriers: int


class Picked(NamedTuple):
    """Some rows of a part, their functions, and their k(x, x)."""

    x: Any
    psi: np.ndarray
    own: np.ndarray


class Tried(NamedTuple):
    """Kernel values of candidates at a part's rows with the scores there; K G and sum_i K_ij^2 D_i."""

    K: np.ndarray
    F: np.ndarray
    slopes: np.ndarray
    mixtures: np.ndarray


def no_functions(part: BasisProblem) -> Functions:
    """The functions of an empty basis."""
    return Functions(np.empty((part.n, 0)), part.diagonal.copy(), ())


def grown(part: BasisProblem, have: Functions, new: Newcomer) -> Functions:
    """One function more."""
    row = part.kernel.block(part.X, new.x, np.float64)[:, 0]
    column = (row - have.Psi @ new.before) / new.pivot
    column[list(have.own)] = 0.0
    own = have.own
    if new.place >= 0:
        column[new.place] = new.pivot
        own = (*own, new.place)
    residual = have.residual - column**2
    residual[list(own)] = 0.0
    return Functions(np.column_stack([have.Psi, column]), residual, own)


def dependent(part: BasisProblem, have: Functions) -> np.ndarray:
    """Rows whose kernel functions depend on the basis."""
    return np.flatnonzero(have.residual <= DEPENDENT[np.dtype(np.float64)] * part.diagonal)


def measured(part: BasisProblem, have: Functions, W: np.ndarray) -> Measured:
    """The loss of a part at coefficients W."""
    loss = part.at(W, have.Psi @ W).loss
    carriers = int(np.count_nonzero(loss.gradient.any(axis=1)))
    return Measured(loss.value, have.Psi.T @ part.back(loss.gradient), carriers)


def curvature(part: BasisProblem, have: Functions, W: np.ndarray) -> np.ndarray:
    """The Hessian of a part's loss."""
    curved = part.at(W, have.Psi @ W).loss.curvature
    rows = curved.rows()
    H = hessian(have.Psi[rows], curved.restrict(rows), part.P, W.shape)
    H[np.diag_indices_from(H)] -= 1.0
    return H


def curved(part: BasisProblem, have: Functions, W: np.ndarray, V: np.ndarray) -> np.ndarray:
    """The Hessian of a part's loss times V."""
    return hessian_product(have.Psi, part.at(W, have.Psi @ W).loss.curvature, part.P, V) - V


def line(part: BasisProblem, have: Functions, W: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores at W, and what V adds to them."""
    return part.scores(have.Psi @ W), part.scores(have.Psi @ V)


def slope(part: BasisProblem, way: tuple[np.ndarray, np.ndarray], t: float) -> tuple[float, float]:
    """First and second derivative of a part's loss along a line."""
    return cast(SquaredMargins | SquaredHinges, part.loss).slope(*way, t)


def picked(part: BasisProblem, have: Functions, places: np.ndarray) -> Picked:
    """Some rows of a part."""
    return Picked(part.X[places], have.Psi[places], part.diagonal[places])


def tried(part: BasisProblem, have: Functions, W: np.ndarray, x: Any, places: np.ndarray) -> Tried:
    """What candidates meet at the rows of a part; `places` are those of candidates in it, or -1."""
    here = part.at(W, have.Psi @ W)
    K = np.ascontiguousarray(part.kernel.block(x, part.X, np.float64))
    ours = np.flatnonzero(places >= 0)
    K[ours, places[ours]] = part.diagonal[places[ours]]
    return Tried(K, here.F, K @ here.loss.gradient, here.loss.curvature.mixtures(K**2))


def sums(seen: Tried) -> tuple[np.ndarray, np.ndarray]:
    """What the client needs of it."""
    return seen.slopes, seen.mixtures


def after(part: BasisProblem, seen: Tried, steps: np.ndarray) -> np.ndarray:
    """The loss of a part after the step of every candidate."""
    return part.loss.after(seen.F, seen.K, part.scores(steps))


def from_kernel(part: BasisProblem, x: Any, al: np.ndarray) -> Measured:
    """The loss of a part and its gradient in the coefficients of the kernel functions, from kernel values."""
    everything = np.arange(part.n)
    strips = [(rows, part.kernel.block(part.X[rows], x, np.float64)) for rows in _strips(everything)]
    loss = part.loss.at(part.scores(np.vstack([K @ al for _, K in strips])))
    pulled = part.back(loss.gradient)
    return Measured(loss.value, sum(K.T @ pulled[rows] for rows, K in strips), 0)


def _strips(rows: np.ndarray) -> list[np.ndarray]:
    return np.array_split(rows, -(-len(rows) // 1024))


class Parts:
    """The parts as tasks take them, one after the other over all samples."""

    def __init__(self, workers: Workers, parts: list[Any], sizes: list[int]) -> None:
        self.workers, self.parts = workers, parts
        self.edges = np.cumsum([0, *sizes])

    def begin(self, task: Any, *arguments: list[Any]) -> list[Any]:
        """Answers of all parts as tasks take them; every argument has one value for each part."""
        submit = self.workers.submit
        return [submit(task, part, *theirs) for part, *theirs in zip(self.parts, *arguments, strict=True)]

    def ask(self, task: Any, *arguments: list[Any]) -> list[Any]:
        """The answers of all parts."""
        return self.workers.steadily(lambda: self.workers.gather(self.begin(task, *arguments)))

    def total(self, task: Any, *arguments: list[Any]) -> np.ndarray:
        """The sum of the arrays that parts answer with, summed by a worker."""

        def work() -> list[Any]:
            return self.workers.gather([self.workers.submit(added, *self.begin(task, *arguments))])

        return self.workers.steadily(work)[0]

    def all(self, value: Any) -> list[Any]:
        """The same for every part."""
        return [value] * len(self.parts)

    def places(self, indices: np.ndarray) -> list[np.ndarray]:
        """Where samples are in every part, -1 where they are not."""
        return [np.where((indices >= a) & (indices < b), indices - a, -1) for a, b in pairwise(self.edges)]


class Away(NamedTuple):
    """A loss that is in the workers; it is smooth, so that nothing comes on top of it."""

    excess: float = 0.0


class Here(NamedTuple):
    """Coefficients W with their objective, its gradient, and the number of samples that carry loss."""

    W: np.ndarray
    objective: float
    slope: np.ndarray
    carriers: int
    loss: Away = Away()


class ScatteredBasis(GrowingBasis):
    """The state of a fit whose functions are in the workers; `problem` is that of no sample."""

    here: Any

    def __init__(self, problem: BasisProblem, parts: Parts) -> None:
        self.problem, self.parts = problem, parts
        self.indices: list[int] = []
        self.rows: Any = problem.X
        self.factor = np.empty((0, 0))
        self.have = parts.begin(no_functions)
        self.free = np.ones(parts.edges[-1], bool)
        self._mark_dependent()
        self.here = self._at(np.empty((0, problem.rank)))

    @property
    def vectors(self) -> Any:
        return self.rows

    @property
    def triangle(self) -> np.ndarray:  # type: ignore[override]
        return self.factor

    def gradient(self) -> np.ndarray:
        return self.here.slope

    def carriers(self) -> int:
        return self.here.carriers

    def refine(self) -> None:
        """The functions are in float64 from the first."""

    def admissible(self, indices: np.ndarray) -> np.ndarray:
        return indices[self.free[indices]]

    def move(self, V: np.ndarray, longest: float = np.inf) -> None:
        parts, W = self.parts, self.here.W
        ways = parts.begin(line, self.have, parts.all(W), parts.all(V))

        def derivatives(t: float) -> tuple[float, float]:
            first, second = np.sum(parts.ask(slope, ways, parts.all(t)), axis=0)
            return float(first), float(second)

        t = root_of_slope(derivatives, float(np.vdot(W, V)), float(np.vdot(V, V)), longest)
        self.here = self._at(W + t * V)

    def score(self, indices: np.ndarray, selection: str) -> Scored:
        parts, W, problem = self.parts, self.here.W, self.problem
        places = parts.places(indices)
        found = parts.ask(picked, self.have, [one[one >= 0] for one in places])
        order = np.argsort(np.concatenate([np.flatnonzero(one >= 0) for one in places]))
        some = Picked(
            stacked([one.x for one in found])[order],
            np.vstack([one.psi for one in found])[order],
            np.concatenate([one.own for one in found])[order],
        )
        seen = parts.begin(tried, self.have, parts.all(W), parts.all(some.x), places)
        totals = self.parts.workers.steadily(
            lambda: self.parts.workers.gather([self.parts.workers.submit(sums, one) for one in seen])
        )
        slopes, mixtures = (sum(some) for some in zip(*totals, strict=True))
        Z = some.psi @ (W - self.gradient())
        steps, change = problem.newcomers(Z, some.own, slopes, mixtures, selection)
        losses = parts.total(after, seen, parts.all(steps))
        objectives = 0.5 * float(np.vdot(W, W)) + change + losses
        rows = [Picked(some.x[[q]], some.psi[q], some.own[q]) for q in range(len(indices))]
        return Scored(indices, rows, steps, objectives)

    def join(self, j: int, row: Any, step: np.ndarray) -> None:
        """Let sample j join the basis with coefficients `step`; `row` is what was picked of it."""
        pivot = float(np.sqrt(row.own - row.psi @ row.psi))
        d = len(self.indices)
        factor = np.zeros((d + 1, d + 1))
        factor[:d, :d], factor[d, :d], factor[d, d] = self.factor, row.psi, pivot
        places = self.parts.places(np.array([j]))
        self.have = self.parts.begin(
            grown, self.have, [Newcomer(row.x, row.psi, pivot, int(place[0])) for place in places]
        )
        self._mark_dependent()
        here = self._at(np.vstack([self.here.W + np.outer(row.psi, step), pivot * step]))
        self.rows = stacked([self.rows, row.x])
        self.indices, self.factor, self.here = [*self.indices, j], factor, here

    def certificate(self) -> Certificate:
        al = solve_triangular(self.factor, self.here.W, trans="T", lower=True)
        seen = self.parts.ask(from_kernel, self.parts.all(self.rows), self.parts.all(al))
        K = self.problem.kernel.block(self.rows, self.rows, np.float64)
        K = (K + K.T) / 2
        K[np.diag_indices_from(K)] = self.problem.kernel.diagonal(self.rows)
        g = K @ al + sum(one.gradient for one in seen)
        primal = 0.5 * float(np.vdot(al, K @ al)) + sum(one.value for one in seen)
        whitened = solve_triangular(self.factor, g, lower=True)
        return Certificate(primal, primal - 0.5 * float(np.vdot(whitened, whitened)))

    def hessian(self) -> np.ndarray:
        """The Hessian, coefficients of a column next to each other."""
        H = self.parts.total(curvature, self.have, self.parts.all(self.here.W))
        return H + np.eye(len(H))

    def hessian_product(self, V: np.ndarray) -> np.ndarray:
        """The Hessian times V."""
        return V + self.parts.total(curved, self.have, self.parts.all(self.here.W), self.parts.all(V))

    def _mark_dependent(self) -> None:
        for edge, rows in zip(self.parts.edges, self.parts.ask(dependent, self.have), strict=False):
            self.free[edge + rows] = False

    def _at(self, W: np.ndarray) -> Here:
        seen = self.parts.ask(measured, self.have, self.parts.all(W))
        objective = 0.5 * float(np.vdot(W, W)) + sum(one.value for one in seen)
        return Here(W, objective, W + sum(one.gradient for one in seen), sum(one.carriers for one in seen))


class ScatteredNewton(Newton):
    """Newton's method on all coefficients, whose Hessians come from the workers."""

    def direction(self, basis: Basis, g: np.ndarray, accuracy: float) -> np.ndarray:
        assert isinstance(basis, ScatteredBasis)
        if self._directly(basis.problem, g.size, np.inf):
            return -solve_newton(basis.hessian(), g)
        return conjugate_gradients(basis.hessian_product, -g, accuracy=accuracy)[0]
