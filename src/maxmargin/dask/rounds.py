"""The solver of problems whose rows are in several parts: rounds of the tasks of `working_sets`.

MultiLabelSVC uses the tasks of `working_sets`, MultiClassSVC its own (`multiclass`).

On a cluster, a round is one solve for every group of labels over the rows with the largest shares of the gap.
The parts hold no state: V = X'A and the dual variables (sparse, as most are zero) are stored here. A lost
part is read again, and nothing else is lost.

In one process, for rows in files, a round deals all rows with a share of the gap at random to sets that fit
the memory, and solves for each set in turn to a low accuracy. Every round draws other sets, because rows that
always move together make the weights oscillate between the sets. Runs of neighbouring rows stay together,
because they are read from a file in one piece. The dual variables are in a temporary file.
"""

from __future__ import annotations

import operator
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Evaluated, Progress
from maxmargin.dask.working_sets import Move, Scan, Sent, Task, Weights, replaced

# The gap of solves, relative to `tol` or to the current gap, whichever is larger; and for solves that hold
# all rows.
INNER, INNER_SHARE, INNER_WHOLE = 0.05, 0.005, 0.7
# Factor of that gap from the first round on whose gain is below it.
TIGHTEN = 0.1
# Smallest budget of rows of a working set.
FEW_ROWS = 10_000
# How often a round deals the rows to sets if there are several, and the length of runs of rows that stay
# together.
DEALS, RUN = 3, 16
# A worker needs the memory of ROOM times the rows of a solve, and PER_ENTRY bytes for each of their labels.
ROOM, PER_ENTRY = 4, 16
# Smallest memory limit in MiB of a fit in one process; and bytes of X and PER_ENTRY of y that are loaded with
# any limit, because Python and its imports need several times as much.
LEAST, LOADED = 32, 24 << 20
# Bytes of a fit in one process per row, per weight of a feature, per label of a row of a set, and in any
# case; and how many copies of the rows of a set it holds. Measured by `experiments/out_of_core.py`.
PER_ROW, PER_WEIGHT, PER_SOLVED, ALWAYS, COPIES = 10, 64, 100, 1 << 20, 2.25

NONE = np.empty(0)


class Here:
    """Run tasks at once in this process; `cluster.Cluster` runs them on workers."""

    def share(self, value: Any) -> Any:
        """Store a value near the workers; the result may be an argument of tasks."""
        return value

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Start a task; the result may be an argument of other tasks."""
        return task(*arguments)

    def gather(self, answers: list[Any]) -> list[Any]:
        """Wait for the results of tasks."""
        return answers

    def retry(self, work: Callable[[], Any]) -> Any:
        """Call `work`, and call it again if a worker was lost meanwhile."""
        return work()


class Tasks(NamedTuple):
    """The tasks of a problem, with the signatures of the functions in `working_sets`."""

    scan: Callable[..., Scan]
    send: Callable[..., Sent]
    solve: Callable[..., tuple[Move, list[np.ndarray]]]
    accumulate: Callable[..., np.ndarray]


def without_rows(scanned: Scan) -> Scan:
    """The sums of a scan, without the choice of rows, which stays with the worker."""
    return scanned._replace(ids=scanned.ids[:0])


@dataclass(frozen=True)
class Partitioned:
    """A problem in parts: tasks, parts (arguments of the tasks), sizes of the parts, and common quantities.

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


def rows_of_worker(problem: Partitioned, n_bytes: int, memory: float) -> int:
    """Rows that a solve may hold on a worker with `memory` bytes; all rows together take `n_bytes`."""
    n, widest = sum(problem.sizes), max(labels.stop - labels.start for labels in problem.groups)
    fitting = memory / (ROOM * (n_bytes / n + PER_ENTRY * widest))
    return max(FEW_ROWS, *problem.sizes, int(min(fitting, n)))


def rows_within(problem: Partitioned, n_bytes: int, limit: float) -> int:
    """Rows of a set with which a fit in one process needs at most `limit` MiB (at least LEAST)."""
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


def loadable(problem: Partitioned, n_bytes: int) -> bool:
    """Whether rows of `n_bytes` are too few to gain anything from leaving them in files."""
    return n_bytes + PER_ENTRY * sum(problem.sizes) * problem.groups[-1].stop <= LOADED


def mapped_zeros(shape: tuple[int, int]) -> np.ndarray:
    """Zeros in a temporary file that is deleted with them; its disk space is allocated at once."""
    with tempfile.TemporaryFile(prefix="maxmargin-") as file:
        zeros = np.memmap(file, np.float64, "w+", shape=shape)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, zeros.nbytes)
    return np.asarray(zeros)


class Best(NamedTuple):
    """The weights with the smallest primal so far, tr(R^-1 Z'Z) of them, and the primal."""

    weights: Weights
    norm: float
    primal: float


class Group:
    """The state of a group of labels: V, the bias row of Z, and the dual variables of every part.

    The weights with the smallest primal are stored as well: those of the current dual variables may be far
    from optimal although the dual is close.
    """

    def __init__(self, labels: slice, problem: Partitioned, mapped: bool) -> None:
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
        self.reset_mean()

    def couple(self, V: np.ndarray) -> np.ndarray:
        """Z = V R."""
        return V if self.R is None else V @ self.R

    def weights(self) -> Weights:
        """The current weights, with the bias of the last solve."""
        return self._with_bias(self.V, self.bias_row)

    def _with_bias(self, V: np.ndarray, bias_row: np.ndarray) -> Weights:
        Z = np.array(self.couple(V))
        lag = Z[-1] - bias_row
        Z[-1] = bias_row
        return Weights(Z, lag)

    def reset_mean(self) -> None:
        """Start a new mean of the weights for `centre`."""
        self.n_averaged, self.means = 0, (np.zeros_like(self.V), np.zeros_like(self.bias_row))

    def add_to_mean(self) -> None:
        """Add the current weights to the mean."""
        self.n_averaged += 1
        for mean, now in zip(self.means, (self.V, self.bias_row), strict=True):
            mean += (now - mean) / self.n_averaged

    def centre(self) -> tuple[Weights, float]:
        """The mean of the weights since `reset_mean`, or the current weights; and tr(R^-1 Z'Z) of them.

        Weights oscillate between sets that are visited in turn; their mean does not.
        """
        V, b = self.means if self.n_averaged else (self.V, self.bias_row)
        bias = b @ b if self.R is None else b @ np.linalg.pinv(self.R, hermitian=True) @ b
        return self._with_bias(V, b), self.dual_norm(V[:-1]) + float(bias)

    def dual_norm(self, V: np.ndarray) -> float:
        """tr(R^-1 Z'Z) of the weights Z = V R."""
        return float(np.vdot(V, self.couple(V)))

    def apply(self, move: Move, ids: list[np.ndarray]) -> None:
        """Store the result of a solve for the rows `ids` of every part."""
        self.bias_row = self.couple(self.V[-1:])[0] + move.bias_row
        self.V += move.dV
        self.alphas = [
            replaced(alpha, rows, new) for alpha, rows, new in zip(self.alphas, ids, move.alphas, strict=True)
        ]


class Rounds(Evaluated):
    """The solver: every epoch is one round of solves and scans.

    Parameters
    ----------
    problem : Partitioned
    workers : Here
    tol : float
        The relative gap to reach.
    budget : int or None
        Rows that a solve may hold; None is the size of the largest part, at least 10,000.
    rng : numpy.random.RandomState
        Draws the seeds of tasks, and deals the rows to sets.
    solver : str, default="auto"
        The solver of the solves, a name in `multilabel.estimator.SOLVERS`.
    n_threads : int, default=1
        Threads of a solve.
    at_once : int or None, default=None
        Groups solved for at a time, which bounds the rows in transit; None is all.
    in_turn : bool, default=False
        Solve for all rows that have a share of the gap, set by set, in this process.
    """

    name = "rounds"

    def __init__(
        self,
        problem: Partitioned,
        workers: Here,
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
        self.tightening = 1.0
        self.scans: list[list[Any]] | None = None
        self.certificates = workers.retry(self._scan)

    @property
    def inner_tol(self) -> float:
        """The relative gap of solves."""
        if self.whole:
            return self.tightening * INNER_WHOLE * self.tol
        return self.tightening * max(INNER * self.tol, INNER_SHARE * self._total(self.certificates).gap)

    def _move(self, clock: Clock) -> Progress:
        before, tol = self._total(self.certificates), self.inner_tol
        if self.in_turn:
            visited = self._deal(tol, clock)
        else:
            moves = self.workers.retry(self._solve)
            for group, (move, ids) in zip(self.groups, moves, strict=True):
                group.apply(move, ids)
            visited = max(sum(len(some) for some in ids) for _, ids in moves)
        self.certificates = self.workers.retry(self._scan)
        after = self._total(self.certificates)
        if after.dual - before.dual < tol * abs(after.primal):
            # The gain of the round is within the error of its solves.
            self.tightening *= TIGHTEN
        return Progress(after, visited)

    def _deal(self, tol: float, clock: Clock) -> int:
        """Solve for all rows that a scan has chosen, set by set; returns the largest number of rows."""
        starts = np.cumsum([0, *self.problem.sizes])
        chosen = [
            np.concatenate([one.ids + start for one, start in zip(scans, starts[:-1], strict=True)])
            for scans in self._take_scans()
        ]
        for group, certificate, rows in zip(self.groups, self.certificates, chosen, strict=True):
            n_sets = -(-len(rows) // self.budget)
            for _ in range(min(DEALS, n_sets)):
                group.reset_mean()
                for some in self._sets(rows, n_sets):
                    if clock.expired():
                        break
                    cuts = pairwise(np.searchsorted(some, starts))
                    ids = [some[a:b] - start for start, (a, b) in zip(starts[:-1], cuts, strict=True)]
                    self._visit(group, self._task(group, certificate, tol), ids)
        return max(len(rows) for rows in chosen)

    def _sets(self, rows: np.ndarray, n_sets: int) -> Iterator[np.ndarray]:
        """Random sets of rows, made of runs of neighbours."""
        edges = np.flatnonzero(np.diff(rows // min(RUN, self.budget), prepend=-1, append=-1))
        order = self.rng.permutation(len(edges) - 1)
        for first in range(n_sets):
            runs = np.sort(order[first::n_sets])
            yield np.concatenate([rows[edges[k] : edges[k + 1]] for k in runs])

    def _visit(self, group: Group, task: Task, ids: list[np.ndarray]) -> None:
        """Solve for the rows `ids` of every part."""
        tasks = self.problem.tasks
        sent = [
            tasks.send(part, group.labels, alpha, Scan(NONE, NONE, rows))
            for part, alpha, rows in zip(self.problem.parts, group.alphas, ids, strict=True)
        ]
        move, _ = tasks.solve(task, group.weights(), *sent)
        group.apply(move, ids)
        group.add_to_mean()

    def _task(self, group: Group, certificate: Certificate, tol: float) -> Task:
        seed = int(self.rng.randint(2**31))
        return Task(group.R, self.problem.bias, certificate.dual, tol, seed, self.solver, self.n_threads)

    def _evaluate(self) -> tuple[np.ndarray, Certificate]:
        """Z, feature-major with the bias last, and its certificate with the stored dual variables."""
        return self.workers.retry(self._recompute)

    def _recompute(self) -> tuple[np.ndarray, Certificate]:
        V = self.workers.gather([self._accumulate(group) for group in self.groups])
        scans = self._begin_scans([group.best.weights for group in self.groups], [0] * len(self.quotas))
        certificates = [
            Certificate(0.5 * group.best.norm + loss, value - 0.5 * group.dual_norm(v))
            for group, v, (loss, value) in zip(self.groups, V, self._sums(scans), strict=True)
        ]
        return np.hstack([group.best.weights.Z for group in self.groups]), self._total(certificates)

    def _accumulate(self, group: Group) -> Any:
        """Start to sum V over the parts, one after the other, so that one process holds two sums at most."""
        submit, tasks = self.workers.submit, self.problem.tasks
        shares = (
            submit(tasks.accumulate, part, group.labels, alpha)
            for part, alpha in zip(self.problem.parts, group.alphas, strict=True)
        )
        return reduce(lambda one, other: submit(operator.add, one, other), shares)

    def _scan(self) -> list[Certificate]:
        """Scan all rows under the current weights, and store the weights if they are the best so far."""
        points = [group.centre() for group in self.groups]
        scans = self._begin_scans([weights for weights, _ in points], self.quotas)
        certificates = []
        for group, (weights, norm), (loss, value) in zip(self.groups, points, self._sums(scans), strict=True):
            if 0.5 * norm + loss < group.best.primal:
                group.best = Best(weights, norm, 0.5 * norm + loss)
            certificates.append(Certificate(group.best.primal, value - 0.5 * group.dual_norm(group.V)))
        self.scans = scans
        return certificates

    def _begin_scans(self, points: list[Weights], quotas: list[Any]) -> list[list[Any]]:
        """Start the scan of every part under the given weights of every group."""
        submit, scan = self.workers.submit, self.problem.tasks.scan
        answers = []
        for group, weights in zip(self.groups, points, strict=True):
            shared = self.workers.share(weights)
            seed = int(self.rng.randint(2**31)) if any(quotas) else 0
            parts = enumerate(zip(self.problem.parts, group.alphas, quotas, strict=True))
            answers.append(
                [
                    submit(scan, part, group.labels, shared, alpha, quota, seed + k)
                    for k, (part, alpha, quota) in parts
                ]
            )
        return answers

    def _sums(self, scans: list[list[Any]]) -> list[tuple[float, float]]:
        """Losses and <m, alpha> of every group, over all parts."""
        submit, n = self.workers.submit, len(self.problem.parts)
        found = self.workers.gather([submit(without_rows, one) for answers in scans for one in answers])
        return [
            (
                float(sum(one.loss.sum() for one in found[first : first + n])),
                float(sum(one.value.sum() for one in found[first : first + n])),
            )
            for first in range(0, len(found), n)
        ]

    def _take_scans(self) -> list[list[Any]]:
        """The scans under the current weights; a retry after a lost worker scans again."""
        if self.scans is None:
            self._scan()
        scans, self.scans = self.scans, None
        assert scans is not None
        return scans

    def _solve(self) -> list[tuple[Move, list[np.ndarray]]]:
        jobs = list(zip(self.groups, self.certificates, self._take_scans(), strict=True))
        answers = []
        for first in range(0, len(jobs), self.at_once):
            some = jobs[first : first + self.at_once]
            answers += self.workers.gather([self._begin_solve(*job) for job in some])
        return answers

    def _begin_solve(self, group: Group, certificate: Certificate, scans: list[Any]) -> Any:
        """Start the solve of a group over the rows that its scans have chosen."""
        submit, tasks = self.workers.submit, self.problem.tasks
        sent = [
            submit(tasks.send, part, group.labels, alpha, scanned)
            for part, alpha, scanned in zip(self.problem.parts, group.alphas, scans, strict=True)
        ]
        task = self._task(group, certificate, self.inner_tol)
        return submit(tasks.solve, task, self.workers.share(group.weights()), *sent)

    def _total(self, certificates: list[Certificate]) -> Certificate:
        constant = self.problem.constant
        return Certificate(
            sum(c.primal for c in certificates) + constant, sum(c.dual for c in certificates) + constant
        )
