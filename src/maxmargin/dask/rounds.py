"""The solver of problems whose rows lie in several parts: rounds of the tasks of `working_sets`.

M3L brings its own tasks (`working_sets`), and so do machines with one class per sample (`multiclass`).

On a cluster a round is one solve for every group of labels, over the rows with the largest shares of the gap.
The parts keep no state: V = X'A and the dual variables (sparse, as most are zero) are here. A part that is
lost is read again and nothing else happens.

In one process, for rows that lie in files, a round deals all rows that have a share of the gap out at random
to sets that fit the memory and solves, roughly, for each set in turn. Sets must be dealt anew each round:
rows that always move together pull the weights to and fro between the sets. Runs of neighbouring rows stay
together, as these are read from a file in one go. The dual variables lie in a temporary file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Evaluated, Progress
from maxmargin.dask.working_sets import Call, Look, Move, Task, Weights, added, replaced

# A solve goes to this part of the gap asked for, or of the gap there is if that is more; one that holds all
# rows, and has nobody to wait for, to another part of the gap asked for.
INNER, INNER_SHARE, INNER_WHOLE = 0.05, 0.005, 0.7
# Where a round gains less than that, solves go further by this factor from then on.
CARE = 0.1
# Rows of a working set that cost little anywhere.
FEW_ROWS = 10_000
# How often a round deals rows out to sets where there are several, and rows that then stay together.
DEALS, RUN = 3, 16
# A worker has room for so many times the rows of a solve, and so many bytes of each of their labels.
ROOM, PER_ENTRY = 4, 16
# Memory in MiB that a fit in one process may take whatever is given, as Python and what it imports take
# several times as much; and bytes of rows, with PER_ENTRY for each of their labels, that are simply loaded.
LEAST, LOADED = 32, 24 << 20
# Bytes of such a fit for each row besides its labels and weights, each weight of a feature, each label of the
# rows of a set, and whatever the sizes; how often it holds these rows: `experiments/out_of_core.py`.
PER_ROW, PER_WEIGHT, PER_SOLVED, ALWAYS, COPIES = 10, 64, 100, 1 << 20, 2.25

NONE = np.empty(0)


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


class Tasks(NamedTuple):
    """What a problem asks of workers; `working_sets` says what each of them does."""

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


def fitting_set(problem: Scattered, n_bytes: int, limit: float) -> int:
    """Rows of a set for which a fit in one process needs no more than `limit` MiB, or LEAST."""
    n, L = sum(problem.sizes), problem.groups[-1].stop
    kept = sum(part.costs.signs.nbytes + part.costs.weight.nbytes for part in problem.parts)
    kept += PER_ROW * n + PER_WEIGHT * (problem.n_features + 1) * L + ALWAYS
    each = COPIES * n_bytes / n + PER_SOLVED * L
    fitting = int((max(limit, LEAST) * 2**20 - kept) / each)
    if fitting < RUN:
        raise ValueError(
            f"memory_limit={limit:g} (MiB) is too little for the labels of {n:,} samples and the weights; "
            f"raise it to {(kept + RUN * each) / 2**20 + 0.1:.1f} or more, or give working_rows."
        )
    return min(fitting, n)


def loadable(problem: Scattered, n_bytes: int) -> bool:
    """Whether rows of `n_bytes` are so few that there is nothing to gain from leaving them in files."""
    return n_bytes + PER_ENTRY * sum(problem.sizes) * problem.groups[-1].stop <= LOADED


def mapped_zeros(shape: tuple[int, int]) -> np.ndarray:
    """Zeros in a temporary file that goes when they do; the room for them is taken at once."""
    with tempfile.TemporaryFile(prefix="maxmargin-") as file:
        zeros = np.memmap(file, np.float64, "w+", shape=shape)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, zeros.nbytes)
    return np.asarray(zeros)


class Best(NamedTuple):
    """The weights with the smallest primal so far, and tr(R^-1 Z'Z) of theirs."""

    weights: Weights
    norm: float
    primal: float


class Group:
    """The state of a group of labels: V, the bias row of Z, and the dual variables of every part.

    Any weights have a primal. What the dual variables make at the moment may be far from optimal while the
    dual is not, so the best ones are kept.
    """

    def __init__(self, labels: slice, problem: Scattered, mapped: bool) -> None:
        L = labels.stop - labels.start
        self.labels = labels
        self.R = None if problem.R is None else problem.R[labels, labels]
        self.V = np.zeros((problem.n_features + 1, L))
        self.bias_row = np.zeros(L)
        self.alphas: list[Any]
        if mapped:
            self.alphas = np.split(mapped_zeros((sum(problem.sizes), L)), np.cumsum(problem.sizes)[:-1])
        else:
            self.alphas = [sp.csr_array((n, L)) for n in problem.sizes]
        self.best = Best(self.weights(), 0.0, np.inf)
        self.forget()

    def couple(self, V: np.ndarray) -> np.ndarray:
        """Z = V R."""
        return V if self.R is None else V @ self.R

    def weights(self) -> Weights:
        """The weights, with the bias as the solves left it."""
        return self._travelling(self.V, self.bias_row)

    def _travelling(self, V: np.ndarray, bias_row: np.ndarray) -> Weights:
        Z = np.array(self.couple(V))
        lag = Z[-1] - bias_row
        Z[-1] = bias_row
        return Weights(Z, lag)

    def forget(self) -> None:
        """Begin a new mean of the weights for `centre`."""
        self.seen, self.means = 0, (np.zeros_like(self.V), np.zeros_like(self.bias_row))

    def remember(self) -> None:
        """Let the weights as they are into the mean."""
        self.seen += 1
        for mean, now in zip(self.means, (self.V, self.bias_row), strict=True):
            mean += (now - mean) / self.seen

    def centre(self) -> tuple[Weights, float]:
        """The mean of the weights remembered, or the weights; and tr(R^-1 Z'Z) of them.

        Weights swing from set to set where these are visited in turn, and their mean does not.
        """
        V, b = self.means if self.seen else (self.V, self.bias_row)
        bias = b @ b if self.R is None else b @ np.linalg.pinv(self.R, hermitian=True) @ b
        return self._travelling(V, b), self.dual_norm(V[:-1]) + float(bias)

    def dual_norm(self, V: np.ndarray) -> float:
        """tr(R^-1 Z'Z) of the weights that V makes."""
        return float(np.vdot(V, self.couple(V)))

    def move(self, move: Move, ids: list[np.ndarray]) -> None:
        """Take over what a solve found for some rows of every part."""
        self.bias_row = self.couple(self.V[-1:])[0] + move.bias_row
        self.V += move.dV
        self.alphas = [
            replaced(alpha, rows, new) for alpha, rows, new in zip(self.alphas, ids, move.alphas, strict=True)
        ]


class Rounds(Evaluated):
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
        Draws the seeds of tasks, and deals out rows.
    solver : str, default="auto"
        The solver of the solves, by its name in `multilabel.estimator.SOLVERS`.
    n_threads : int, default=1
        Threads of a solve.
    at_once : int or None, default=None
        Groups that are solved for at a time, so that rows of so many only are on their way; None is all.
    in_turn : bool, default=False
        Solve for all rows that have a share of the gap, set by set, in this process.
    """

    name = "rounds"

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
        n = sum(problem.sizes)
        self.budget = budget or max(FEW_ROWS, *problem.sizes)
        self.whole = self.budget >= n
        shares = [-(-self.budget * size // n) for size in problem.sizes]
        self.quotas: list[int | None] = [None] * len(shares) if in_turn else list(shares)
        self.groups = [Group(labels, problem, mapped=in_turn) for labels in problem.groups]
        self.at_once = at_once or len(self.groups)
        self.care = 1.0
        self.looks: list[list[Any]] | None = None
        self.certificates = workers.steadily(self._look)

    @property
    def inner_tol(self) -> float:
        """The relative gap that solves go to."""
        if self.whole:
            return self.care * INNER_WHOLE * self.tol
        return self.care * max(INNER * self.tol, INNER_SHARE * self._total(self.certificates).gap)

    def _move(self, clock: Clock) -> Progress:
        before, tol = self._total(self.certificates), self.inner_tol
        if self.in_turn:
            visited = self._deal(tol, clock)
        else:
            moves = self.workers.steadily(self._solve)
            for group, (move, ids) in zip(self.groups, moves, strict=True):
                group.move(move, ids)
            visited = max(sum(len(some) for some in ids) for _, ids in moves)
        self.certificates = self.workers.steadily(self._look)
        after = self._total(self.certificates)
        if after.dual - before.dual < tol * abs(after.primal):
            # What was gained could not be told from what solves leave undone.
            self.care *= CARE
        return Progress(after, visited)

    def _deal(self, tol: float, clock: Clock) -> int:
        """Solve for all rows that a look has chosen, some at a time; how many there are at most."""
        starts = np.cumsum([0, *self.problem.sizes])
        chosen = [
            np.concatenate([seen.ids + start for seen, start in zip(looks, starts[:-1], strict=True)])
            for looks in self._taken_looks()
        ]
        for group, certificate, rows in zip(self.groups, self.certificates, chosen, strict=True):
            n_sets = -(-len(rows) // self.budget)
            for _ in range(min(DEALS, n_sets)):
                group.forget()
                for some in self._sets(rows, n_sets):
                    if clock.expired():
                        break
                    cuts = pairwise(np.searchsorted(some, starts))
                    ids = [some[a:b] - start for start, (a, b) in zip(starts[:-1], cuts, strict=True)]
                    self._visit(group, self._task(group, certificate, tol), ids)
        return max(len(rows) for rows in chosen)

    def _sets(self, rows: np.ndarray, n_sets: int) -> Iterator[np.ndarray]:
        """Rows in random sets, which are made of runs of neighbours."""
        edges = np.flatnonzero(np.diff(rows // min(RUN, self.budget), prepend=-1, append=-1))
        order = self.rng.permutation(len(edges) - 1)
        for first in range(n_sets):
            runs = np.sort(order[first::n_sets])
            yield np.concatenate([rows[edges[k] : edges[k + 1]] for k in runs])

    def _visit(self, group: Group, task: Task, ids: list[np.ndarray]) -> None:
        """Solve for some rows of every part."""
        tasks = self.problem.tasks
        calls = [
            tasks.called(part, group.labels, alpha, Look(NONE, NONE, rows))
            for part, alpha, rows in zip(self.problem.parts, group.alphas, ids, strict=True)
        ]
        move, _ = tasks.solve(task, group.weights(), *calls)
        group.move(move, ids)
        group.remember()

    def _task(self, group: Group, certificate: Certificate, tol: float) -> Task:
        seed = int(self.rng.randint(2**31))
        return Task(group.R, self.problem.bias, certificate.dual, tol, seed, self.solver, self.n_threads)

    def _evaluate(self) -> tuple[np.ndarray, Certificate]:
        """Z, feature-major with the bias last, and its certificate with the stored dual variables."""
        return self.workers.steadily(self._anew)

    def _anew(self) -> tuple[np.ndarray, Certificate]:
        V = self.workers.gather([self._summed(group) for group in self.groups])
        looks = self._looks([group.best.weights for group in self.groups], [0] * len(self.quotas))
        certificates = [
            Certificate(0.5 * group.best.norm + loss, value - 0.5 * group.dual_norm(v))
            for group, v, (loss, value) in zip(self.groups, V, self._sums(looks), strict=True)
        ]
        return np.hstack([group.best.weights.Z for group in self.groups]), self._total(certificates)

    def _summed(self, group: Group) -> Any:
        """Begin to sum V up anew, part by part: in one process there are never many of them."""
        submit, tasks = self.workers.submit, self.problem.tasks
        shares = (
            submit(tasks.accumulated, part, group.labels, alpha)
            for part, alpha in zip(self.problem.parts, group.alphas, strict=True)
        )
        return reduce(lambda one, other: submit(added, one, other), shares)

    def _look(self) -> list[Certificate]:
        """Look at the weights as they are; keep them where they are the best."""
        points = [group.centre() for group in self.groups]
        looks = self._looks([weights for weights, _ in points], self.quotas)
        certificates = []
        for group, (weights, norm), (loss, value) in zip(self.groups, points, self._sums(looks), strict=True):
            if 0.5 * norm + loss < group.best.primal:
                group.best = Best(weights, norm, 0.5 * norm + loss)
            certificates.append(Certificate(group.best.primal, value - 0.5 * group.dual_norm(group.V)))
        self.looks = looks
        return certificates

    def _looks(self, points: list[Weights], quotas: list[Any]) -> list[list[Any]]:
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

    def _taken_looks(self) -> list[list[Any]]:
        """The looks at the weights as they are; looked for anew, should a worker be lost meanwhile."""
        if self.looks is None:
            self._look()
        looks, self.looks = self.looks, None
        assert looks is not None
        return looks

    def _solve(self) -> list[tuple[Move, list[np.ndarray]]]:
        jobs = list(zip(self.groups, self.certificates, self._taken_looks(), strict=True))
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
