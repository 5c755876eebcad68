"""Linear M3L whose rows lie in several parts: working sets of rows travel, the parts look at the rest.

Problem, dual and gap as in `multilabel.problem`. A round has two waves of tasks, for every group of
labels on its own (one group where a prior couples the labels):

1. *look*, in every part at once: scores of its rows under the weights Z of the group, the sums that make
   the certificate, and the rows with the largest shares of the gap;
2. *solve*, one task per group: the dual over the rows that were sent, everything else held fixed.

The second is a problem of the same kind and goes to the ordinary solvers. With W the rows sent and
F the scores of all, those that come from elsewhere are F' = F_W - X_W X_W'A_W R, and

    D(alpha) = const + <m - Y_W F', alpha_W> - 1/2 <A_W, X_W X_W'A_W R>:

margins move, nothing else does. So every round is an exact ascent over a block of the dual variables,
which stay feasible throughout; nothing has to be averaged, damped or searched along, and how many rounds
it takes depends on how many rows may be sent, not on how many parts there are.

The parts keep no state: V = X'A and the dual variables (sparse, as most are zero) are at the one who
drives the rounds. A part that is lost is read again and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Progress, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.multilabel.estimator import SOLVERS
from maxmargin.multilabel.problem import EntryCosts, LinearM3L

# Rows that are scored at a time, so that no part needs memory for all its scores at once.
PIECE = 4096
# A solve goes to this part of the gap asked for, or of the gap there is if that is more, in at most so many
# epochs.
INNER, INNER_SHARE, INNER_EPOCHS = 0.05, 0.005, 50
# Where a round gains less than that, solves go further by this factor from then on.
CARE = 0.1
# Rows with gradients closer to zero than this may have to answer when others move; ties are broken at random.
NEAR, SHUFFLE = 0.3, 1e-3


class Workers(Protocol):
    """Where tasks run: this process (`Here`) or a cluster."""

    def share(self, value: Any) -> Any:
        """Put a value where tasks can reach it; tasks take the answer as an argument."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Begin a task; its answer may be an argument of other tasks."""

    def gather(self, answers: list[Any]) -> list[Any]:
        """Wait for the answers of tasks."""

    def steadily(self, work: Callable[[], Any]) -> Any:
        """Do a piece of work that submits and gathers, again where a worker was lost meanwhile."""


class Here:
    """Tasks run at once in this process."""

    def share(self, value: Any) -> Any:
        return value

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        return task(*arguments)

    def gather(self, answers: list[Any]) -> list[Any]:
        return answers

    def steadily(self, work: Callable[[], Any]) -> Any:
        return work()


@dataclass(frozen=True)
class Part:
    """Some rows of the problem, with what the loss asks of them."""

    X: Any
    costs: EntryCosts
    bias: float

    def of(self, labels: slice) -> EntryCosts:
        """The costs of some labels."""
        costs = self.costs
        weight = costs.weight if costs.weight.shape[1] == 1 else costs.weight[:, labels]
        return replace(
            costs,
            signs=costs.signs[:, labels],
            weight=weight,
            upper=costs.upper[:, labels],
            margin=costs.margin[:, labels],
        )


class Call(NamedTuple):
    """Rows that a part sends: which ones, the rows, their costs, dual variables and scores."""

    ids: np.ndarray
    X: Any
    costs: EntryCosts
    alpha: np.ndarray
    scores: np.ndarray


class Look(NamedTuple):
    """What a part reports of a group: sums per label (losses, <m, alpha>) and the rows it sends."""

    loss: np.ndarray
    value: np.ndarray
    call: Call | None


class Move(NamedTuple):
    """Answer of a solve: the change of V, the bias row, and the new dual variables of every part's rows.

    The solvers keep the bias as a primal variable, close to its dual value.
    """

    dV: np.ndarray
    bias_row: np.ndarray
    alphas: list[np.ndarray]


def scores(X: Any, Z: np.ndarray, bias: float) -> np.ndarray:
    """(x_i, bias)'Z of some rows, in float64."""
    return np.asarray(X @ Z[:-1]) + bias * Z[-1]


class Weights(NamedTuple):
    """Weights Z of some labels, and how far the dual value of their bias is from its row of Z."""

    Z: np.ndarray
    lag: np.ndarray


def look(part: Part, labels: slice, weights: Weights, alpha: sp.csr_array, quota: int, seed: int) -> Look:
    """Measure the rows of a part under the weights of some labels; choose up to `quota` rows to send."""
    Z, lag = weights
    costs = part.of(labels)
    n, L = costs.signs.shape
    loss, value = np.zeros(L), np.zeros(L)
    share, near = np.zeros((2, n))
    for first in range(0, n, PIECE):
        rows = slice(first, min(first + PIECE, n))
        some = _rows_of(costs, rows)
        a, margins = alpha[rows].toarray(), some.margins()
        gradient = margins - some.signs * scores(part.X[rows], Z, part.bias)
        boxes = some.boxes()
        hinge = boxes * np.maximum(gradient, 0.0)
        loss += hinge.sum(axis=0)
        value += np.einsum("il,il->l", margins, a)
        share[rows] = np.sum(hinge - a * gradient, axis=1)
        near[rows] = np.sum(boxes * np.maximum(NEAR - np.abs(gradient), 0.0), axis=1)
    chosen = choose(share, near, quota, np.random.default_rng(seed))
    X = part.X[chosen]
    dual_scores = scores(X, Z, part.bias) + part.bias * lag
    return Look(loss, value, Call(chosen, X, _rows_of(costs, chosen), alpha[chosen].toarray(), dual_scores))


def choose(share: np.ndarray, near: np.ndarray, quota: int, rng: np.random.Generator) -> np.ndarray:
    """Up to `quota` rows: half by their shares of the gap, the rest by how close they are to their margins.

    Both belong together: what moves pushes others, and they must be able to answer.
    """
    noise = 1.0 + SHUFFLE * rng.random(len(share))
    first = _largest(share * noise, max(quota // 2, quota - int(np.count_nonzero(near))))
    left = near * noise
    left[first] = 0.0
    return np.sort(np.concatenate([first, _largest(left, quota - len(first))]))


def _largest(numbers: np.ndarray, most: int) -> np.ndarray:
    """Places of the largest positive numbers, `most` of them at most."""
    places = np.flatnonzero(numbers > 0.0)
    if places.size <= most:
        return places
    return places[np.argpartition(-numbers[places], most)[:most]]


def _rows_of(costs: EntryCosts, rows: slice | np.ndarray) -> EntryCosts:
    margin = costs.margin[rows] if costs.tied else costs.margin
    return replace(costs, signs=costs.signs[rows], weight=costs.weight[rows], margin=margin)


def sums(seen: Look) -> Look:
    """A look without the rows."""
    return seen._replace(call=None)


@dataclass(frozen=True)
class Task:
    """What a solve needs besides the rows: prior, bias, the dual of the group so far, gap and solver."""

    R: np.ndarray | None
    bias: float
    dual: float
    tol: float
    seed: int
    solver: str
    n_threads: int = 1


def solve(task: Task, *looks: Look) -> tuple[Move, list[np.ndarray]]:
    """Maximise the dual over the rows sent, all other dual variables held fixed; also says which rows."""
    calls = [seen.call for seen in looks if seen.call is not None]
    ids = [call.ids for call in calls]
    alpha = np.vstack([call.alpha for call in calls])
    if not alpha.size:  # every entry is at rest
        n_features, L = calls[0].X.shape[1], alpha.shape[1]
        return Move(np.zeros((n_features + 1, L)), np.zeros(L), [call.alpha for call in calls]), ids
    problem, V = _restricted(task, calls, alpha)
    rng = np.random.RandomState(task.seed)
    solver = SOLVERS[task.solver].build(
        problem, alpha.copy(), tol=task.tol, rng=rng, n_threads=task.n_threads
    )
    run(solver, Stopping(task.tol, INNER_EPOCHS))
    solution = solver.solution()
    step = np.asarray(solution.alpha, np.float64) - alpha
    dV = problem.accumulate(step)
    bias_row = solution.weights[-1] - problem.couple(V[-1:])[0]
    # A solve that was stopped may have gone too far: the best point of the way is never worse than its start.
    slope = float(np.vdot(problem.costs.margin, step) - np.vdot(problem.couple(V), dV))
    curvature = float(np.vdot(problem.couple(dV), dV))
    if slope < curvature:
        share = max(slope, 0.0) / curvature
        step, dV, bias_row = share * step, share * dV, share * problem.couple(dV[-1:])[0]
    ends = np.cumsum([len(some) for some in ids])[:-1]
    return Move(dV, bias_row, np.split(alpha + step, ends)), ids


def _restricted(task: Task, calls: list[Call], alpha: np.ndarray) -> tuple[LinearM3L, np.ndarray]:
    """The problem over the rows sent, whose objective is that of the whole group, and V of these rows."""
    costs = EntryCosts(
        np.vstack([call.costs.signs for call in calls]),
        stacked_weights([call.costs for call in calls]),
        calls[0].costs.upper,
        np.vstack([call.costs.margins() for call in calls]),
        tied=True,
    )
    X = stacked([call.X for call in calls])
    problem = LinearM3L(Rows.of(X), costs, task.R, task.bias)
    V = problem.accumulate(alpha)
    Z = problem.couple(V)
    elsewhere = np.vstack([call.scores for call in calls]) - scores(X, Z, task.bias)
    margin = costs.margin - costs.signs * elsewhere
    constant = task.dual - float(np.vdot(margin, alpha) - 0.5 * np.vdot(V, Z))
    return replace(problem, costs=replace(costs, margin=margin, constant=constant)), V


def stacked_weights(costs: list[EntryCosts]) -> np.ndarray:
    """Weights of samples, or of entries where any part has them."""
    wide = max(one.weight.shape[1] for one in costs)
    return np.vstack([np.broadcast_to(one.weight, (len(one.signs), wide)) for one in costs])


def stacked(blocks: list[Any]) -> Any:
    """Blocks of rows as one matrix."""
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.vstack(blocks)


def accumulated(part: Part, labels: slice, alpha: sp.csr_array) -> np.ndarray:
    """V = X'A of the rows of a part."""
    return LinearM3L(Rows.of(part.X), part.of(labels), None, part.bias).accumulate(alpha.toarray())


def replaced(alpha: sp.csr_array, rows: np.ndarray, new: np.ndarray) -> sp.csr_array:
    """Dual variables with some rows replaced."""
    keep = np.ones(alpha.shape[0])
    keep[rows] = 0.0
    kept = sp.diags_array(keep, format="csr") @ alpha
    kept.eliminate_zeros()
    places = sp.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), (alpha.shape[0], len(rows)))
    return sp.csr_array(kept + places @ sp.csr_array(new))


@dataclass(frozen=True)
class Scattered:
    """A problem in parts: the parts as tasks take them, their sizes, and what they share.

    `groups` are ranges of labels that no prior couples.
    """

    parts: list[Any]
    sizes: list[int]
    n_features: int
    groups: list[slice]
    R: np.ndarray | None
    bias: float
    constant: float


class Best(NamedTuple):
    """The weights with the smallest primal so far, and tr(R^-1 Z'Z) of theirs."""

    Z: np.ndarray
    norm: float
    primal: float


class Group:
    """The state of a group of labels: V, the bias row of Z, and the dual variables of every part.

    Any weights have a primal. What the dual variables make at the moment may be far from optimal while the
    dual is not, so the best ones are kept.
    """

    def __init__(self, labels: slice, problem: Scattered) -> None:
        L = labels.stop - labels.start
        self.labels = labels
        self.R = None if problem.R is None else problem.R[labels, labels]
        self.V = np.zeros((problem.n_features + 1, L))
        self.bias_row = np.zeros(L)
        self.alphas = [sp.csr_array((n, L)) for n in problem.sizes]
        self.best = Best(self.V, 0.0, np.inf)

    def couple(self, V: np.ndarray) -> np.ndarray:
        return V if self.R is None else V @ self.R

    def weights(self) -> Weights:
        """Z = V R, with the bias as the solves left it."""
        Z = self.couple(self.V)
        lag = Z[-1] - self.bias_row
        return Weights(np.vstack([Z[:-1], self.bias_row]), lag)

    def norms(self, V: np.ndarray) -> tuple[float, float]:
        """tr(R^-1 Z'Z) with the bias of the weights, and with that of V."""
        shares = np.einsum("dl,dl->d", V, self.couple(V))
        b = self.bias_row
        bias = float(b @ b) if self.R is None else float(b @ np.linalg.pinv(self.R, hermitian=True) @ b)
        return float(shares[:-1].sum()) + bias, float(shares.sum())

    def move(self, move: Move, calls: list[np.ndarray]) -> None:
        """Take over what a solve found."""
        self.bias_row = self.couple(self.V[-1:])[0] + move.bias_row
        self.V = self.V + move.dV
        self.alphas = [
            replaced(alpha, ids, new) for alpha, ids, new in zip(self.alphas, calls, move.alphas, strict=True)
        ]


class Rounds:
    """The solver: every epoch is one round of solves and looks.

    Parameters
    ----------
    problem : Scattered
    workers : Workers
    tol : float
        The relative gap to reach.
    budget : int
        Rows that a solve may hold.
    rng : numpy.random.RandomState
        Draws the seeds of tasks.
    solver : str, default="auto"
        The solver of the solves, by its name in `multilabel.estimator.SOLVERS`.
    n_threads : int, default=1
        Threads of a solve.
    """

    def __init__(
        self,
        problem: Scattered,
        workers: Workers,
        *,
        tol: float,
        budget: int,
        rng: np.random.RandomState,
        solver: str = "auto",
        n_threads: int = 1,
    ) -> None:
        self.problem, self.workers, self.tol, self.rng = problem, workers, tol, rng
        self.solver, self.n_threads = solver, n_threads
        n = sum(problem.sizes)
        self.quotas = [-(-budget * size // n) for size in problem.sizes]
        self.groups = [Group(labels, problem) for labels in problem.groups]
        self.care = 1.0
        self.looks: list[list[Any]] | None = None
        self.certificates = workers.steadily(self._look)
        self._answer: tuple[np.ndarray, Certificate] | None = None

    @property
    def inner_tol(self) -> float:
        """The relative gap that solves go to."""
        return self.care * max(INNER * self.tol, INNER_SHARE * self._total(self.certificates).gap)

    def epoch(self, clock: Clock) -> Progress:
        self._answer = None
        before, tol = self._total(self.certificates), self.inner_tol
        moves = self.workers.steadily(self._solve)
        for group, (move, ids) in zip(self.groups, moves, strict=True):
            group.move(move, ids)
        sent = max(sum(len(some) for some in ids) for _, ids in moves)
        self.certificates = self.workers.steadily(self._look)
        after = self._total(self.certificates)
        if after.dual - before.dual < tol * abs(after.primal):
            # What was gained could not be told from what solves leave undone.
            self.care *= CARE
        return Progress(after, sent)

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> np.ndarray:
        """Z, feature-major with the bias last."""
        return self._evaluated()[0]

    def _evaluated(self) -> tuple[np.ndarray, Certificate]:
        """Weights and certificate from the stored dual variables, kept until the next round."""
        if self._answer is None:
            self._answer = self.workers.steadily(self._anew)
        return self._answer

    def _anew(self) -> tuple[np.ndarray, Certificate]:
        submit, gather = self.workers.submit, self.workers.gather
        sums_of_parts = [
            [
                submit(accumulated, part, group.labels, alpha)
                for part, alpha in zip(self.problem.parts, group.alphas, strict=True)
            ]
            for group in self.groups
        ]
        V = gather([submit(added, *shares) for shares in sums_of_parts])
        looks = self._looks(
            [Weights(group.best.Z, np.zeros(1)) for group in self.groups], [0] * len(self.quotas)
        )
        certificates = [
            Certificate(0.5 * group.best.norm + loss, value - 0.5 * group.norms(v)[1])
            for group, v, (loss, value) in zip(self.groups, V, self._sums(looks), strict=True)
        ]
        return np.hstack([group.best.Z for group in self.groups]), self._total(certificates)

    def _look(self) -> list[Certificate]:
        """Look at the weights as they are; keep them where they are the best."""
        weights = [group.weights() for group in self.groups]
        looks = self._looks(weights, self.quotas)
        certificates = []
        for group, (Z, _), (loss, value) in zip(self.groups, weights, self._sums(looks), strict=True):
            primal_norm, dual_norm = group.norms(group.V)
            primal = 0.5 * primal_norm + loss
            if primal < group.best.primal:
                group.best = Best(Z, primal_norm, primal)
            certificates.append(Certificate(group.best.primal, value - 0.5 * dual_norm))
        self.looks = looks
        return certificates

    def _looks(self, weights: list[Weights], quotas: list[int]) -> list[list[Any]]:
        """Every part's look at the weights of every group."""
        answers = []
        for group, theirs in zip(self.groups, weights, strict=True):
            shared = self.workers.share(theirs)
            seed = int(self.rng.randint(2**31)) if any(quotas) else 0
            answers.append(
                [
                    self.workers.submit(look, part, group.labels, shared, alpha, quota, seed + k)
                    for k, (part, alpha, quota) in enumerate(
                        zip(self.problem.parts, group.alphas, quotas, strict=True)
                    )
                ]
            )
        return answers

    def _sums(self, looks: list[list[Any]]) -> list[tuple[float, float]]:
        """Losses and <m, alpha> of every group, over all parts."""
        submit = self.workers.submit
        seen = self.workers.gather([submit(sums, one) for answers in looks for one in answers])
        n = len(self.problem.parts)
        ours = [seen[k * n : (k + 1) * n] for k in range(len(self.groups))]
        return [
            (float(sum(one.loss.sum() for one in some)), float(sum(one.value.sum() for one in some)))
            for some in ours
        ]

    def _solve(self) -> list[tuple[Move, list[np.ndarray]]]:
        if self.looks is None:
            self._look()
        looks, self.looks = self.looks, None  # looked for anew, should a worker be lost now
        assert looks is not None
        tol = self.inner_tol
        submit = self.workers.submit
        answers = []
        for group, certificate, ours in zip(self.groups, self.certificates, looks, strict=True):
            seed = int(self.rng.randint(2**31))
            task = Task(group.R, self.problem.bias, certificate.dual, tol, seed, self.solver, self.n_threads)
            answers.append(submit(solve, task, *ours))
        return self.workers.gather(answers)

    def _total(self, certificates: list[Certificate]) -> Certificate:
        constant = self.problem.constant
        return Certificate(
            sum(c.primal for c in certificates) + constant, sum(c.dual for c in certificates) + constant
        )


def added(*arrays: np.ndarray) -> np.ndarray:
    """The sum of arrays."""
    return sum(arrays[1:], arrays[0])
