"""`maxmargin.dask.MultiClassSVC`: the linear model of `maxmargin.MultiClassSVC` on a cluster.

Problem, dual and gap are those of `structured.multiclass_problem`, rounds and tasks those of `working_sets`.
Of a dual block only its mass on wrong classes is sent, most of which is zero: b_ik = alpha_ik, k != y_i.

A solve over the rows S, with W' the weights due to all other rows, maximises

    D(alpha_S) = const + sum_S C_i alpha_i.Delta_i - 1/2 |W' + W(alpha_S)|^2,

which is the ordinary problem with weights that start at W'.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import column_or_1d

from maxmargin.core.loop import Certificate, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.dask import partitions
from maxmargin.dask.cluster import Cluster
from maxmargin.dask.estimator import OnCluster
from maxmargin.dask.rounds import Partitioned, Rounds, Tasks
from maxmargin.dask.working_sets import (
    BATCH,
    NEAR,
    Move,
    Scan,
    Sent,
    Task,
    Weights,
    choose,
    dense,
    no_move,
    scores,
    stacked,
)
from maxmargin.edge.estimator import balance, warn_if_single
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.multiclass import MultiClassSVC as Local
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    Labels,
    LinearIterate,
    LinearMultiClass,
    LinearSolution,
    Setup,
)


@dataclass(frozen=True)
class ClassPart:
    """Some rows of the problem with their classes and costs."""

    X: Any
    labels: Labels
    bias: float


class Restricted(LinearMultiClass):
    """The problem over some rows, given the weights W' and the dual value due to all other rows."""

    def __init__(self, X: Any, labels: Labels, bias: float, others: np.ndarray, value: float) -> None:
        super().__init__(Rows.of(X), labels, bias)
        self.others = super().zeros(np.float64)
        self.others[:, : self.c] = others
        self.value = value

    def zeros(self, dtype: Any) -> np.ndarray:
        """The weights W', which are those of blocks at the true classes."""
        W = super().zeros(dtype)
        W[:] = self.others
        return W

    def iterate(self, setup: Setup, entropic: bool = False, softness: float = 0.0) -> LinearIterate:
        return RestrictedIterate(self, setup, entropic, softness)

    def evaluate(
        self,
        alpha: np.ndarray,
        logs: bool = False,
        mean: np.ndarray | None = None,
        image: np.ndarray | None = None,
    ) -> Evaluation:
        W = self.weights(alpha, logs)
        losses, linear, gaps = self.losses(W, alpha, logs)
        own = W - self.others
        primal = 0.5 * float(np.vdot(own, own)) - 0.5 * float(np.vdot(self.others, self.others)) + losses
        dual = linear - 0.5 * float(np.vdot(W, W))
        return Evaluation(Certificate(self.value + primal, self.value + dual), gaps, W, W)


class RestrictedIterate(LinearIterate):
    """A dual point of some rows, with the weights of all rows."""

    problem: Restricted

    def dual(self) -> float:
        problem = self.problem
        return problem.value + problem.linear_term(self.blocks()) - 0.5 * self.squared_norm()


def scan(part: ClassPart, classes: slice, weights: Weights, wrong: Any, quota: int | None, seed: int) -> Scan:
    """Measure the rows of a part under the weights, and choose up to `quota` rows to send."""
    labels = part.labels
    n = len(labels.y)
    loss, value = np.zeros(1), np.zeros(1)
    share, near = np.zeros((2, n))
    for first in range(0, n, BATCH):
        rows = slice(first, min(first + BATCH, n))
        b, y, costs = dense(wrong[rows]), labels.y[rows], labels.costs[rows]
        truth = np.arange(len(y)), y
        F, Delta = scores(part.X[rows], weights.Z, part.bias), labels.Delta[y]
        H = Delta + F - F[truth][:, None]
        H[truth] = 0.0
        worst = H.max(axis=1) if labels.loss == "crammer_singer" else np.maximum(H, 0.0).sum(axis=1)
        loss += costs @ worst
        value += costs @ np.einsum("ik,ik->i", b, Delta)
        share[rows] = costs * (worst - np.einsum("ik,ik->i", b, H))
        near[rows] = costs * np.maximum(NEAR - _margin_lead(H, truth, labels.loss), 0.0)
    return Scan(loss, value, choose(share, near, quota, np.random.default_rng(seed)))


def send(part: ClassPart, classes: slice, wrong: Any, scanned: Scan) -> Sent:
    """The rows chosen by a scan."""
    ids, labels = scanned.ids, part.labels
    some = Labels(labels.y[ids], labels.costs[ids], labels.Delta, labels.loss)
    return Sent(ids, part.X[ids], some, dense(wrong[ids]))


def _margin_lead(H: np.ndarray, truth: tuple[np.ndarray, np.ndarray], loss: str) -> np.ndarray:
    """The largest margin of each sample minus the next one, or the distance of its margins from zero."""
    if H.shape[1] < 2:
        return np.full(len(H), np.inf)
    if loss == "crammer_singer":
        best = np.partition(H, -2, axis=1)
        return best[:, -1] - best[:, -2]
    distance = np.abs(H)
    distance[truth] = np.inf
    return distance.min(axis=1)


def solve(task: Task, weights: Weights, *sent: Sent) -> tuple[Move, list[np.ndarray]]:
    """Maximise the dual over the rows sent, with the others fixed; returns the move and the row numbers."""
    ids = [one.ids for one in sent]
    wrong = np.vstack([one.alpha for one in sent])
    if not wrong.size:
        return no_move(sent, weights), ids
    given = [one.costs for one in sent]
    y, costs = (np.concatenate([getattr(one, name) for one in given]) for name in ("y", "costs"))
    labels = Labels(y, costs, given[0].Delta, given[0].loss)
    X = stacked([one.X for one in sent])
    before = blocks_of(wrong, labels.y)
    Z = weights.Z
    own = LinearMultiClass(Rows.of(X), labels, task.bias).weights(before, False)[:, : len(labels.Delta)]
    value = task.dual - float(labels.costs @ np.einsum("ik,ik->i", wrong, labels.Delta[labels.y]))
    value += 0.5 * float(np.vdot(Z, Z))
    problem = Restricted(X, labels, task.bias, Z - own, value)
    setup = Setup(task.tol, np.random.RandomState(task.seed), before)
    solver = ExactBlocks(problem, setup, averaging=False)
    run(solver, Stopping(task.tol, task.epochs))
    # The weights of the current blocks, which need not be the best so far.
    solution = solver.current()[1]
    dW = solution.weights - Z
    after = solution.blocks.copy()
    after[np.arange(len(after)), labels.y] = 0.0
    ends = np.cumsum([len(some) for some in ids])[:-1]
    return Move(dW, dW[-1], np.split(after, ends)), ids


def blocks_of(wrong: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Dual blocks from their masses on wrong classes."""
    alpha = wrong.copy()
    alpha[np.arange(len(y)), y] = 1.0 - wrong.sum(axis=1)
    return alpha


def accumulate(part: ClassPart, classes: slice, wrong: Any) -> np.ndarray:
    """W of the blocks of a part."""
    c = len(part.labels.Delta)
    if not len(part.labels.y):
        return np.zeros((part.X.shape[1] + 1, c))
    problem = LinearMultiClass(Rows.of(part.X), part.labels, part.bias)
    return problem.weights(blocks_of(dense(wrong), part.labels.y), False)[:, :c]


TASKS = Tasks(scan, send, solve, accumulate)


def class_weights(block: partitions.Block, classes: np.ndarray) -> np.ndarray:
    """Sum of the weights of every class."""
    codes, weight = coded(block, classes)
    return np.bincount(codes, weights=weight, minlength=len(classes))


def coded(block: partitions.Block, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Class number and weight of every sample of a block."""
    if not block.X.shape[0]:
        return np.zeros(0, np.int64), np.zeros(0)
    y = column_or_1d(np.asarray(block.y))
    weight = np.ones(len(y)) if block.weight is None else column_or_1d(block.weight)
    return np.searchsorted(classes, y), weight


def class_part(
    block: partitions.Block, classes: np.ndarray, costs: np.ndarray, labels: Labels, bias: float
) -> ClassPart:
    """The block as a part of the problem; `costs` holds a cost per class."""
    codes, weight = coded(block, classes)
    return ClassPart(block.X, replace(labels, y=codes, costs=costs[codes] * weight), bias)


@dataclass(eq=False, repr=False)
class MultiClassSVC(OnCluster, Local):
    """Multi-class SVM with one joint objective on a Dask cluster; linear.

    The model of `maxmargin.MultiClassSVC` with kernel="linear": the same objective, parameters, attributes
    and certified duality gap. `to_local` returns that estimator. Rows stay in their partitions; in each round
    the rows with the largest shares of the gap are sent to one worker, which solves for them.

    Parameters
    ----------
    C, loss, cost_matrix, class_weight, fit_intercept, intercept_scaling, tol, max_iter, time_limit, \
random_state, verbose
        As in `maxmargin.MultiClassSVC`.
    solver : {"auto", "exact"}, default="auto"
        Both are exact block steps on the rows that are sent.
    working_rows : int, default=None
        Rows that a solve may hold; None is the size of the largest partition, at least 10,000. More rows mean
        fewer rounds.

    Attributes
    ----------
    coef_, intercept_, classes_, primal_objective_, dual_objective_, duality_gap_, n_iter_, history_, \
n_features_in_, feature_names_in_
        As in `maxmargin.MultiClassSVC`; `n_iter_` is the number of rounds.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin.dask import MultiClassSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     model = MultiClassSVC(random_state=0).fit(da.from_array(X, (50, 4)), y, client=client)
    >>> model.duality_gap_ <= 1e-3
    True
    """

    LOCAL: ClassVar[type[Local]] = Local

    _: KW_ONLY
    working_rows: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Local._parameter_constraints,
        "kernel": [StrOptions({"linear"})],
        "solver": [StrOptions({"auto", "exact"})],
        "device": [StrOptions({"cpu"})],
        "working_rows": [Interval(Integral, 1, None, closed="left"), None],
    }

    def _check_choices(self) -> None:
        self._chosen()

    def _make_solver(self, cluster: Cluster, problem: Partitioned, n_bytes: int) -> Rounds:
        return Rounds(
            problem,
            cluster,
            tol=self._stopping().target,
            budget=self.working_rows,
            rng=check_random_state(self.random_state),
            in_turn=cluster.in_turn,
        )

    def _partitioned(self, cluster: Cluster, blocks: list[Any], facts: list[partitions.Facts]) -> Partitioned:
        """The problem given by the parameters and the partitions; sets `classes_`."""
        self.classes_ = classes = partitions.common_classes(facts)
        totals = cluster.map(class_weights, blocks, classes)
        costs = self.C * self._class_factors(sum(totals))
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        labels = Labels(np.zeros(0, np.int64), np.zeros(0), self._read_costs(len(classes)), self.loss)
        parts = [cluster.submit(class_part, one, classes, costs, labels, bias) for one in blocks]
        sizes = [one.n for one in facts]
        groups = [slice(0, len(classes))]
        return Partitioned(TASKS, parts, sizes, self.n_features_in_, groups, None, bias, 0.0)

    def _class_factors(self, totals: np.ndarray) -> np.ndarray:
        """The factor of the weights of the samples of every class."""
        partitions.check_weighted(float(totals.sum()))
        warn_if_single(self.classes_)
        factors = np.ones(len(totals))
        if self.class_weight is not None:
            weighed = balance(self.class_weight, self.classes_, np.arange(len(totals)), totals)
            np.divide(weighed, totals, out=factors, where=totals > 0)
        self._warn_of_idle(totals * factors)
        return factors

    def _weights(self, problem: Partitioned, found: np.ndarray) -> dict[str, Any]:
        return self._attributes(None, LinearSolution(found, np.empty(0)))
