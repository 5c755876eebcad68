"""The solver of problems whose rows lie in several parts: rounds of the tasks of `working_sets`.

M3L brings its own tasks (`working_sets`), and so do machines with one class per sample (`class_sets`).

The parts keep no state: V = X'A and the dual variables (sparse, as most are zero) are here. A part that is
lost is read again and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from maxmargin import priors
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.dask.working_sets import Call, Look, Move, Task, Weights, added, folded, replaced

# A solve goes to this part of the gap asked for, or of the gap there is if that is more; one that holds all
# rows, and has nobody to wait for, to another part of the gap asked for.
INNER, INNER_SHARE, INNER_WHOLE = 0.05, 0.005, 0.7
# Where a round gains less than that, solves go further by this factor from then on.
CARE = 0.1
# Rows of a working set that cost little anywhere.
FEW_ROWS = 10_000
# Epochs of a solve that visits a part in turn.
VISIT = 2
# A worker has room for so many times the rows of a solve, and so many bytes of each of their labels.
ROOM, PER_ENTRY = 4, 16


def nothing() -> None:
    """There is nothing to forget."""


class Workers(Protocol):
    """Where tasks run: this process (`Here`) or a cluster."""

    def share(self, value: Any) -> Any:
        """Put a value where tasks can reach it; tasks take the answer as an argument."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Begin a task; its answer may be an argument of other tasks."""

    def gather(self, answers: list[Any]) -> list[Any]:
        """Wait for the answers of tasks."""

    def steadily(self, work: Callable[[], Any], lost: Callable[[], None] = nothing) -> Any:
        """Do a piece of work that submits and gathers, again where a worker was lost meanwhile.

        Before that `lost` is called, to forget answers of earlier tasks.
        """


class Here:
    """Tasks run at once in this process."""

    def share(self, value: Any) -> Any:
        return value

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        return task(*arguments)

    def gather(self, answers: list[Any]) -> list[Any]:
        return answers

    def steadily(self, work: Callable[[], Any], lost: Callable[[], None] = nothing) -> Any:
        return work()


class Tasks(NamedTuple):
    """What a problem asks of workers; `working_sets` says what each of them does."""

    everything: Callable[..., Call]
    look: Callable[..., Look]
    called: Callable[..., Call]
    solve: Callable[..., tuple[Move, list[np.ndarray]]]
    accumulated: Callable[..., np.ndarray]


def sums(seen: Look) -> Look:
    """A look without the choice of rows."""
    return seen._replace(ids=seen.ids[:0])


@dataclass(frozen=True)
class Scattered:
    """A problem in parts: its tasks, the parts as they take them, their sizes, and what they share.

    `groups` are ranges of labels that no prior couples.
    """

    tasks: Tasks
    parts: list[Any]
    sizes: list[int]
    n_features: int
    groups: list[slice]
    R: np.ndarray | None
    bias: float
    constant: float


def fitting_rows(problem: Scattered, n_bytes: int, room: float) -> int:
    """Rows that a solve may hold where a worker has `room` bytes; all rows together have `n_bytes`."""
    n, widest = sum(problem.sizes), max(labels.stop - labels.start for labels in problem.groups)
    fitting = room / (ROOM * (n_bytes / n + PER_ENTRY * widest))
    return max(FEW_ROWS, *problem.sizes, int(min(fitting, n)))


class Best(NamedTuple):
    """The weights with the smallest primal so far, and tr(R^-1 Z'Z) of theirs."""

    weights: Weights
    norm: float
    primal: float


class Group:
    """The state of a group of labels: V, the bias row of Z, and the dual variables of every part.

    Where R = P'P has at most half as many factors as labels, V stands for V P', all that Z = V R depends on:
    so few columns travel and are kept.

    Any weights have a primal. What the dual variables make at the moment may be far from optimal while the
    dual is not, so the best ones are kept.
    """

    def __init__(self, labels: slice, problem: Scattered) -> None:
        L = labels.stop - labels.start
        self.labels = labels
        self.R = None if problem.R is None else problem.R[labels, labels]
        P = None if self.R is None else priors.factor(self.R)
        self.P = P if P is not None and 2 * len(P) <= L else None
        self.V = np.zeros((problem.n_features + 1, L if self.P is None else len(self.P)))
        self.bias_row = np.zeros(L)
        self.alphas = [sp.csr_array((n, L)) for n in problem.sizes]
        self.best = Best(self._travelling(self.V, self.bias_row), 0.0, np.inf)
        self.seen, self.means = 0, [np.zeros_like(self.V), np.zeros_like(self.bias_row)]

    def couple(self, V: np.ndarray) -> np.ndarray:
        """Z = V R."""
        if self.P is not None:
            return V @ self.P
        return V if self.R is None else V @ self.R

    def weights(self) -> Weights:
        """The weights, with the bias as the solves left it."""
        return self._travelling(self.V, self.bias_row)

    def _travelling(self, V: np.ndarray, bias_row: np.ndarray) -> Weights:
        lag = self.couple(V[-1:])[0] - bias_row
        return Weights(V if self.P is not None else self.couple(V), self.P, bias_row, lag)

    def remember(self) -> None:
        """Take note of the weights as they are, for `centre`."""
        self.seen += 1
        self.means = [
            mean + (now - mean) / self.seen for mean, now in zip(self.means, self._point, strict=True)
        ]

    def centre(self) -> tuple[Weights, float]:
        """The mean of the weights noted since the last call, or the weights; and tr(R^-1 Z'Z) of them.

        Weights swing from part to part where these are visited in turn, and their mean does not.
        """
        V, b = self.means if self.seen else self._point
        self.seen, self.means = 0, [np.zeros_like(self.V), np.zeros_like(self.bias_row)]
        bias = float(b @ b) if self.R is None else float(b @ np.linalg.pinv(self.R, hermitian=True) @ b)
        return self._travelling(V, b), self.dual_norm(V[:-1]) + bias

    @property
    def _point(self) -> list[np.ndarray]:
        return [self.V, self.bias_row]

    def dual_norm(self, V: np.ndarray) -> float:
        """tr(R^-1 Z'Z) of the weights that V makes."""
        return float(np.vdot(V, V if self.P is not None else self.couple(V)))

    def move_part(self, number: int, move: Move) -> None:
        """Take over what a solve for one part found."""
        self._shift(move)
        self.alphas[number] = sp.csr_array(move.alphas[0])

    def _shift(self, move: Move) -> None:
        self.bias_row = self.couple(self.V[-1:])[0] + move.bias_row
        self.V = self.V + move.dV

    def move(self, move: Move, calls: list[np.ndarray]) -> None:
        """Take over what a solve found."""
        self._shift(move)
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
    budget : int or None
        Rows that a solve may hold; None is the size of the largest part, at least 10,000.
    rng : numpy.random.RandomState
        Draws the seeds of tasks.
    solver : str, default="auto"
        The solver of the solves, by its name in `multilabel.estimator.SOLVERS`.
    n_threads : int, default=1
        Threads of a solve.
    at_once : int or None, default=None
        Groups that are solved for at a time, so that rows of so many only are on their way; None is all.
    in_turn : bool, default=False
        In every round also solve, roughly, for each part on its own, one after the other, so that all rows
        move and not only those sent. It suits parts in one place, where it takes no longer than elsewhere.
    """

    def __init__(
        self,
        problem: Scattered,
        workers: Workers,
        *,
        tol: float,
        budget: int | None,
        rng: np.random.RandomState,
        solver: str = "auto",
        n_threads: int = 1,
        at_once: int | None = None,
        in_turn: bool = False,
    ) -> None:
        self.problem, self.workers, self.tol, self.rng = problem, workers, tol, rng
        self.solver, self.n_threads, self.in_turn = solver, n_threads, in_turn
        n, budget = sum(problem.sizes), budget or max(FEW_ROWS, *problem.sizes)
        self.whole = budget >= n
        self.quotas = [-(-budget * size // n) for size in problem.sizes]
        self.groups = [Group(labels, problem) for labels in problem.groups]
        self.at_once = at_once or len(self.groups)
        self.care = 1.0
        self.looks: list[list[Any]] | None = None
        self.certificates = workers.steadily(self._look)
        self._answer: tuple[np.ndarray, Certificate] | None = None

    @property
    def inner_tol(self) -> float:
        """The relative gap that solves go to."""
        if self.whole:
            return self.care * INNER_WHOLE * self.tol
        return self.care * max(INNER * self.tol, INNER_SHARE * self._total(self.certificates).gap)

    def epoch(self, clock: Clock) -> Progress:
        self._answer = None
        before, tol = self._total(self.certificates), self.inner_tol
        moves = self.workers.steadily(self._solve)
        for group, (move, ids) in zip(self.groups, moves, strict=True):
            group.move(move, ids)
        sent = max(sum(len(some) for some in ids) for _, ids in moves)
        if self.in_turn:
            self._visit_parts(tol, clock)
            sent = sum(self.problem.sizes)
        self.certificates = self.workers.steadily(self._look)
        after = self._total(self.certificates)
        if after.dual - before.dual < tol * abs(after.primal):
            # What was gained could not be told from what solves leave undone.
            self.care *= CARE
        return Progress(after, sent)

    def _visit_parts(self, tol: float, clock: Clock) -> None:
        """Solve for the rows of every part, roughly, everything else held fixed."""
        for number, (part, size) in enumerate(zip(self.problem.parts, self.problem.sizes, strict=True)):
            for group, certificate in zip(self.groups, self.certificates, strict=True):
                if not size or clock.expired():
                    continue
                task = replace(self._task(group, certificate, tol), epochs=VISIT)
                rows = self.workers.submit(
                    self.problem.tasks.everything, part, group.labels, group.alphas[number]
                )
                answer = self.workers.submit(self.problem.tasks.solve, task, group.weights(), rows)
                group.move_part(number, self.workers.gather([answer])[0][0])
                group.remember()

    def _task(self, group: Group, certificate: Certificate, tol: float) -> Task:
        seed = int(self.rng.randint(2**31))
        return Task(group.R, self.problem.bias, certificate.dual, tol, seed, self.solver, self.n_threads)

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
                self._accumulated(group, part, alpha)
                for part, alpha in zip(self.problem.parts, group.alphas, strict=True)
            ]
            for group in self.groups
        ]
        V = gather([submit(added, *shares) for shares in sums_of_parts])
        looks = self._looks([group.best.weights for group in self.groups], [0] * len(self.quotas))
        certificates = [
            Certificate(0.5 * group.best.norm + loss, value - 0.5 * group.dual_norm(v))
            for group, v, (loss, value) in zip(self.groups, V, self._sums(looks), strict=True)
        ]
        return np.hstack([group.best.weights.Z for group in self.groups]), self._total(certificates)

    def _accumulated(self, group: Group, part: Any, alpha: sp.csr_array) -> Any:
        """Begin to sum up V of a part, as it travels."""
        V = self.workers.submit(self.problem.tasks.accumulated, part, group.labels, alpha)
        return V if group.P is None else self.workers.submit(folded, V, group.P)

    def _look(self) -> list[Certificate]:
        """Look at the weights as they are; keep them where they are the best."""
        points = [group.centre() for group in self.groups]
        looks = self._looks([weights for weights, _ in points], self.quotas)
        certificates = []
        for group, (weights, norm), (loss, value) in zip(self.groups, points, self._sums(looks), strict=True):
            primal = 0.5 * norm + loss
            if primal < group.best.primal:
                group.best = Best(weights, norm, primal)
            certificates.append(Certificate(group.best.primal, value - 0.5 * group.dual_norm(group.V)))
        self.looks = looks
        return certificates

    def _looks(self, points: list[Weights], quotas: list[int]) -> list[list[Any]]:
        """Every part's look at given weights of every group."""
        answers = []
        for group, weights in zip(self.groups, points, strict=True):
            shared = self.workers.share(weights)
            seed = int(self.rng.randint(2**31)) if any(quotas) else 0
            answers.append(
                [
                    self.workers.submit(
                        self.problem.tasks.look, part, group.labels, shared, alpha, quota, seed + k
                    )
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
        jobs = list(zip(self.groups, self.certificates, looks, strict=True))
        answers = []
        for first in range(0, len(jobs), self.at_once):
            some = jobs[first : first + self.at_once]
            answers += self.workers.gather([self._begin_solve(*job) for job in some])
        return answers

    def _begin_solve(self, group: Group, certificate: Certificate, looks: list[Any]) -> Any:
        """Begin a solve for a group, over the rows that looks have chosen."""
        submit, tasks = self.workers.submit, self.problem.tasks
        calls = [
            submit(tasks.called, part, group.labels, alpha, seen)
            for part, alpha, seen in zip(self.problem.parts, group.alphas, looks, strict=True)
        ]
        task = self._task(group, certificate, self.inner_tol)
        return submit(tasks.solve, task, self.workers.share(group.weights()), *calls)

    def _total(self, certificates: list[Certificate]) -> Certificate:
        constant = self.problem.constant
        return Certificate(
            sum(c.primal for c in certificates) + constant, sum(c.dual for c in certificates) + constant
        )
