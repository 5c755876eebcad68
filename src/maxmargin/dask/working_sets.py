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
    """What a solve needs besides the rows; the gap it goes to, `tol`, is relative to `scale` and more."""

    R: np.ndarray | None
    bias: float
    scale: float
    tol: float
    seed: int
    solver: str
    n_threads: int = 1


def solve(task: Task, *looks: Look) -> tuple[Move, list[np.ndarray]]:
    """Maximise the dual over the rows sent, all other dual variables held fixed; also says which rows."""
    calls = [seen.call for seen in looks if seen.call is not None]
    X = stacked([call.X for call in calls])
    alpha = np.vstack([call.alpha for call in calls])
    if not alpha.size:  # every entry is at rest
        L = alpha.shape[1]
        nothing = Move(np.zeros((X.shape[1] + 1, L)), np.zeros(L), [call.alpha for call in calls])
        return nothing, [call.ids for call in calls]
    first = calls[0].costs
    costs = EntryCosts(
        np.vstack([call.costs.signs for call in calls]),
        np.vstack([call.costs.weight for call in calls]),
        first.upper,
        np.vstack([call.costs.margins() for call in calls]),
        tied=True,
        # The relative gap is that of the whole objective.
        constant=task.scale,
    )
    problem = LinearM3L(Rows.of(X), costs, task.R, task.bias)
    before = problem.accumulate(alpha)
    elsewhere = np.vstack([call.scores for call in calls]) - scores(X, problem.couple(before), task.bias)
    moved = replace(costs, margin=costs.margin - costs.signs * elsewhere)
    problem = LinearM3L(problem.rows, moved, task.R, task.bias)
    rng = np.random.RandomState(task.seed)
    solver = SOLVERS[task.solver].build(problem, alpha, tol=task.tol, rng=rng, n_threads=task.n_threads)
    run(solver, Stopping(task.tol, INNER_EPOCHS))
    solution = solver.solution()
    new = np.asarray(solution.alpha, np.float64)
    ends = np.cumsum([len(call.ids) for call in calls])[:-1]
    bias_row = solution.weights[-1] - problem.couple(before[-1:])[0]
    move = Move(problem.accumulate(new) - before, bias_row, np.split(new, ends))
    return move, [call.ids for call in calls]


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


class Group:
    """The state of a group of labels: V, the bias row of Z, and the dual variables of every part."""

    def __init__(self, labels: slice, problem: Scattered) -> None:
        L = labels.stop - labels.start
        self.labels = labels
        self.R = None if problem.R is None else problem.R[labels, labels]
        self.V = np.zeros((problem.n_features + 1, L))
        self.bias_row = np.zeros(L)
        self.alphas = [sp.csr_array((n, L)) for n in problem.sizes]

    def couple(self, V: np.ndarray) -> np.ndarray:
        return V if self.R is None else V @ self.R

    def weights(self, V: np.ndarray) -> Weights:
        """Z = V R, with the bias as the solves left it."""
        Z = self.couple(V)
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
        self.looks: list[list[Any]] | None = None
        self.certificates = workers.steadily(self._look)
        self._answer: tuple[np.ndarray, Certificate] | None = None

    def epoch(self, clock: Clock) -> Progress:
        self._answer = None
        moves = self.workers.steadily(self._solve)
        for group, (move, ids) in zip(self.groups, moves, strict=True):
            group.move(move, ids)
        sent = max(sum(len(some) for some in ids) for _, ids in moves)
        self.certificates = self.workers.steadily(self._look)
        return Progress(self._total(self.certificates), sent)

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
        submit = self.workers.submit
        sums_of_parts = [
            [
                submit(accumulated, part, group.labels, alpha)
                for part, alpha in zip(self.problem.parts, group.alphas, strict=True)
            ]
            for group in self.groups
        ]
        V = self.workers.gather([submit(added, *shares) for shares in sums_of_parts])
        looks = self._looks(V, [0] * len(self.quotas))
        total = self._total(self._certificates(V, looks))
        Z = [group.weights(v).Z for group, v in zip(self.groups, V, strict=True)]
        return np.hstack(Z), total

    def _look(self) -> list[Certificate]:
        V = [group.V for group in self.groups]
        looks = self._looks(V, self.quotas)
        certificates = self._certificates(V, looks)
        self.looks = looks
        return certificates

    def _looks(self, V: list[np.ndarray], quotas: list[int]) -> list[list[Any]]:
        """Every part's look at every group; `V` are the groups' sums."""
        answers = []
        for group, v in zip(self.groups, V, strict=True):
            weights = self.workers.share(group.weights(v))
            seed = int(self.rng.randint(2**31)) if any(quotas) else 0
            answers.append(
                [
                    self.workers.submit(look, part, group.labels, weights, alpha, quota, seed + k)
                    for k, (part, alpha, quota) in enumerate(
                        zip(self.problem.parts, group.alphas, quotas, strict=True)
                    )
                ]
            )
        return answers

    def _certificates(self, V: list[np.ndarray], looks: list[list[Any]]) -> list[Certificate]:
        submit = self.workers.submit
        seen = self.workers.gather([submit(sums, one) for answers in looks for one in answers])
        certificates, n = [], len(self.problem.parts)
        for k, (group, v) in enumerate(zip(self.groups, V, strict=True)):
            ours = seen[k * n : (k + 1) * n]
            primal_norm, dual_norm = group.norms(v)
            loss, value = (float(sum(s[field].sum() for s in ours)) for field in (0, 1))
            certificates.append(Certificate(0.5 * primal_norm + loss, value - 0.5 * dual_norm))
        return certificates

    def _solve(self) -> list[tuple[Move, list[np.ndarray]]]:
        if self.looks is None:
            self._look()
        looks, self.looks = self.looks, None  # looked for anew, should a worker be lost now
        assert looks is not None
        tol = max(INNER * self.tol, INNER_SHARE * self._total(self.certificates).gap)
        submit = self.workers.submit
        answers = []
        for group, certificate, ours in zip(self.groups, self.certificates, looks, strict=True):
            scale = max(certificate.primal, 0.0)
            seed = int(self.rng.randint(2**31))
            task = Task(group.R, self.problem.bias, scale, tol, seed, self.solver, self.n_threads)
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
