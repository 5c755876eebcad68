"""`maxmargin.dask.MultiLabelSVC`: the linear model of `maxmargin.MultiLabelSVC` on a cluster.

There are two partitions of the work. With "rows", rows stay in their parts and `rounds` solves for groups of
labels. With "labels" (`WholeRows`), every worker fetches all rows once and solves for some of the labels:
without a prior that couples them, labels share nothing but X, so objective, dual and gap are sums over groups
of labels.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin import priors
from maxmargin.core.loop import Certificate, Clock, Progress, Solver, run
from maxmargin.core.rows import Rows
from maxmargin.core.threads import count_threads
from maxmargin.dask import partitions
from maxmargin.dask.cluster import Cluster
from maxmargin.dask.estimator import OnCluster
from maxmargin.dask.rounds import (
    ROOM,
    Here,
    Partitioned,
    Rounds,
    Tasks,
    loadable,
    rows_of_worker,
    rows_within,
)
from maxmargin.dask.working_sets import Part, accumulate, scan, send, solve, stacked, stacked_weights
from maxmargin.edge.estimator import choose
from maxmargin.edge.labels import LabelSpace, constant_labels
from maxmargin.multilabel.estimator import LINEAR_ONLY, SOLVERS
from maxmargin.multilabel.estimator import MultiLabelSVC as Local
from maxmargin.multilabel.problem import (
    EntryCosts,
    LinearM3L,
    frequent_first,
    hinge_costs,
    label_numbers,
    side_totals,
    side_weights,
    tied_costs,
)

TASKS = Tasks(scan, send, solve, accumulate)
# Share of all rows that a solve holds for each of its labels; the rows of several labels overlap as
# independent random sets do. Measured by `experiments/labels_per_solve.py`.
SHARE_OF_LABEL = 0.125
# The cost of a label is 1 plus RARER times the share of samples on its rarer side. Measured by
# `experiments/label_costs.py`.
RARER = 10.0


@dataclass(frozen=True)
class Terms:
    """Parameters of the loss that all parts share."""

    space: LabelSpace
    upper: np.ndarray
    margin: np.ndarray
    R: np.ndarray | None
    tied: bool
    bias: float


def part_of(block: partitions.Block, terms: Terms) -> Part:
    """The block as a part of the problem."""
    signs = partitions.signs_of(block, terms.space)
    weight = partitions.weights_of(block, signs)
    if terms.tied and len(signs):
        assert terms.R is not None
        costs = tied_costs(signs, terms.upper, weight, terms.R)
    else:
        costs = hinge_costs(signs, terms.upper, weight, terms.margin)
    if len(signs):
        LinearM3L(Rows.of(block.X), costs, terms.R, terms.bias).check_sizes()
    return Part(block.X, costs, terms.bias)


def constant_of(part: Part) -> float:
    """The constant in the objective of a part."""
    return part.costs.constant


def label_groups(
    n_labels: int, R: np.ndarray | None, n_groups: int, costs: np.ndarray | None = None
) -> list[slice]:
    """At most `n_groups` ranges of labels that the prior does not couple, of about equal cost or size."""
    ends = np.concatenate([[0.0], np.cumsum(np.ones(n_labels) if costs is None else costs)])
    goals = np.linspace(0.0, ends[-1], min(n_groups, n_labels) + 1)
    cuts = set(np.searchsorted(0.5 * (ends[1:] + ends[:-1]), goals).tolist())
    if R is not None:
        cuts = {cut for cut in cuts if not R[:cut, cut:].any()}
    return [slice(a, b) for a, b in pairwise(sorted(cuts))]


def label_costs(sides: np.ndarray) -> np.ndarray:
    """Relative cost of training each label; `sides` holds the weights of both of its sides."""
    total = sides.sum(axis=0)
    rarer = np.divide(sides.min(axis=0), total, out=np.zeros(len(total)), where=total > 0)
    return 1.0 + RARER * rarer


def split_groups(
    groups: list[slice], R: np.ndarray | None, share: float, each: float = SHARE_OF_LABEL
) -> list[slice]:
    """Split groups until a solve that holds a `share` of the rows has enough rows for each of its labels."""
    if share >= 1.0:
        return groups
    together = max(1, int(np.log1p(-share) / np.log1p(-each)))
    finer = []
    for labels in groups:
        n = labels.stop - labels.start
        inside = label_groups(n, None if R is None else R[labels, labels], -(-n // together))
        finer += [slice(labels.start + some.start, labels.start + some.stop) for some in inside]
    return finer


class Heads(NamedTuple):
    """The weights of all labels, shape (n_labels, n_features), and the bias row of Z."""

    coef: np.ndarray
    bias_row: np.ndarray


class Trained(NamedTuple):
    """Weights of a group of labels (feature-major, bias last), their columns or None for all, and the gap."""

    weights: np.ndarray
    columns: np.ndarray | None
    certificate: Certificate


class Assignment(NamedTuple):
    """The labels, out of `n_labels`, that one worker trains."""

    labels: slice
    n_labels: int
    R: np.ndarray | None
    model: Local
    seed: int


def train(wanted: Assignment, *parts: Part) -> Trained:
    """Solve for the labels of one group on the rows of all parts."""
    given = [part.of(wanted.labels) for part in parts]
    filled = next((one for one in given if len(one.signs)), given[0])
    margin = np.vstack([one.margins() for one in given]) if filled.per_entry_margin else filled.margin
    signs = np.vstack([one.signs for one in given])
    costs = EntryCosts(signs, stacked_weights(given), filled.upper, margin, filled.per_entry_margin)
    rows, columns = frequent_first(Rows.of(stacked([part.X for part in parts])))
    problem = LinearM3L(rows, costs, wanted.R, parts[0].bias, columns)
    model, stopping = wanted.model, wanted.model._stopping()
    solver = SOLVERS[model.solver].build(
        problem,
        model._start(problem, stopping, wanted.n_labels),
        tol=stopping.target,
        rng=np.random.RandomState(wanted.seed),
        n_threads=count_threads(model.n_jobs),
    )
    outcome = run(solver, stopping)
    return Trained(np.ascontiguousarray(solver.solution().weights), columns, outcome.certificate)


class WholeRows:
    """The solver of partition="labels": one epoch, in which every group of labels is trained to the gap of
    `model`.

    Parameters
    ----------
    problem : Partitioned
    workers : Here
    model : maxmargin.MultiLabelSVC
        Its parameters set solver, precision, limits and threads.
    rng : numpy.random.RandomState
    """

    name = "whole rows"

    def __init__(
        self, problem: Partitioned, workers: Here, *, model: Local, rng: np.random.RandomState
    ) -> None:
        self.problem, self.workers, self.model = problem, workers, model
        self.seed = int(rng.randint(2**31))
        self.trained: list[Trained] = []

    def epoch(self, clock: Clock) -> Progress:
        self.trained = self.workers.retry(self._train)
        return Progress(
            self.certify(), sum(self.problem.sizes), exact=True, stuck="increase max_iter or time_limit"
        )

    def certify(self) -> Certificate:
        if not self.trained:
            raise KeyboardInterrupt("Interrupted before any label was trained; there is no model.")
        constant = self.problem.constant
        return Certificate(
            sum(one.certificate.primal for one in self.trained) + constant,
            sum(one.certificate.dual for one in self.trained) + constant,
        )

    def solution(self) -> Heads:
        problem = self.problem
        coef = np.zeros((problem.n_features, problem.groups[-1].stop))
        for labels, one in zip(problem.groups, self.trained, strict=True):
            coef[slice(None) if one.columns is None else one.columns, labels] = one.weights[:-1]
        return Heads(coef.T, np.concatenate([one.weights[-1] for one in self.trained]))

    def _train(self) -> list[Trained]:
        problem, submit = self.problem, self.workers.submit
        answers: list[Any] = []
        for labels in problem.groups:
            R = None if problem.R is None else problem.R[labels, labels]
            wanted = Assignment(labels, problem.groups[-1].stop, R, self.model, self.seed)
            answers.append(submit(train, wanted, *problem.parts))
        return self.workers.gather(answers)


@dataclass(eq=False, repr=False)
class MultiLabelSVC(OnCluster, Local):
    """Max-margin classifier for many labels on a Dask cluster; linear.

    The model of `maxmargin.MultiLabelSVC` with kernel="linear": the same objective, parameters, attributes
    and certified duality gap. `to_local` returns that estimator.

    Parameters
    ----------
    C, prior, loss, class_weight, label_weight, label_margin, fit_intercept, intercept_scaling, solver, tol, \
max_iter, time_limit, n_jobs, random_state, verbose
        As in `maxmargin.MultiLabelSVC`; `n_jobs` is the number of threads of one task. A callable prior is
        called with the labels of all partitions.
    partition : {"auto", "labels", "rows"}, default="auto"
        "labels": every worker holds all rows and trains some of the labels; there are no rounds. "rows": rows
        stay in their partitions, and in each round the rows with the largest shares of the gap are sent to
        the workers that solve for a group of labels; if a solve may hold all rows, this is the same as
        "labels". "auto" is "labels" if no prior couples the labels and each worker has memory for four times
        X.
    working_rows : int, default=None
        With "rows": rows that a solve may hold. None is as many as fit a worker's memory four times, at least
        10,000 and the largest partition; with ``client="here"`` as many as `memory_limit` allows. More rows
        mean fewer rounds.
    memory_limit : float, default=2048
        With ``client="here"``: memory in MiB, without data in files; at least 32. Dual variables are in a
        temporary file, in the folder that the environment variable TMPDIR names. Unless `working_rows` is
        given, data of up to 24 MiB (X, and 16 bytes for each label of each row) is loaded with any limit.

    Attributes
    ----------
    coef_, intercept_, classes_, prior_, constant_labels_, primal_objective_, dual_objective_, duality_gap_, \
n_iter_, history_, n_features_in_, feature_names_in_
        As in `maxmargin.MultiLabelSVC`; `n_iter_` is the number of rounds, 1 with "labels".
    partition_ : str
        The partition that was used.

    Notes
    -----
    X and y are dask arrays (dense or CSR blocks), dask dataframes, or lists of delayed partitions; if `y` is
    None, each partition is a pair (X, y). Partitions may be empty, differ in size, and lack labels. Workers
    store only the rows that they read; after a loss, these partitions are read again and the round is
    repeated. The client stores the dual variables, most of which are zero, as sparse matrices; with
    ``client="here"`` they are in a temporary file.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from distributed import Client
    >>> from maxmargin.dask import MultiLabelSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> y = (X[:, :3] > 0).astype(int)
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     model = MultiLabelSVC(random_state=0).fit(da.from_array(X, (20, 4)), y, client=client)
    >>> model.duality_gap_ <= 1e-3
    True
    >>> model.to_local().predict(X[:1]).shape
    (1, 3)
    """

    LOCAL: ClassVar[type[Local]] = Local

    _: KW_ONLY
    partition: str = "auto"
    working_rows: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Local._parameter_constraints,
        "kernel": [StrOptions({"linear"})],
        "solver": [StrOptions({"auto", *LINEAR_ONLY})],
        "partition": [StrOptions({"auto", "labels", "rows"})],
        "working_rows": [Interval(Integral, 1, None, closed="left"), None],
    }

    def _check_choices(self) -> None:
        choose(self, SOLVERS)

    def _partitioned(self, cluster: Cluster, blocks: list[Any], facts: list[partitions.Facts]) -> Partitioned:
        """The problem given by the parameters and the partitions; sets the labels and constant labels."""
        self._space = space = partitions.common_space(facts)
        self.classes_ = space.classes
        known = np.zeros((0, space.n_columns), np.int8)
        if callable(self.prior):
            known = np.vstack(cluster.map(partitions.signs_of, blocks, space))
        self.prior_ = None if self.prior is None else priors.read_prior(self.prior, known)
        totals = partitions.totals(cluster, blocks, facts, space)
        signs, weight = partitions.two_sided(totals)
        upper = self.C * side_weights(self.class_weight, space, lambda: side_totals(signs, weight))
        upper *= label_numbers(self.label_weight, space, "label_weight", default=1.0)
        self._remove_constants(*constant_labels(signs, weight), upper)
        margin = np.tile(label_numbers(self.label_margin, space, "label_margin", default=1.0), (2, 1))
        tied = self.loss == "tied"
        R = priors.identity(space.n_columns) if tied and self.prior_ is None else self.prior_
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        terms = Terms(space, upper, margin, R, tied, bias)
        parts = [cluster.submit(part_of, block, terms) for block in blocks]
        constants = cluster.map(constant_of, parts) if tied else []
        groups = label_groups(space.n_columns, self.prior_, len(cluster), label_costs(weight))
        sizes, d = [one.n for one in facts], self.n_features_in_
        return Partitioned(TASKS, parts, sizes, d, groups, self.prior_, bias, sum(constants))

    def _make_solver(self, cluster: Cluster, problem: Partitioned, n_bytes: int) -> Solver:
        """`WholeRows`, or `Rounds` over rows that stay in their parts."""
        self.partition_ = self.partition
        if self.partition == "auto":
            fits = n_bytes * ROOM <= cluster.memory()
            self.partition_ = "labels" if fits and len(problem.groups) >= min(len(cluster), 2) else "rows"
        rng = check_random_state(self.random_state)
        options: dict[str, Any] = {"tol": self._stopping().target, "rng": rng, "solver": self.solver}
        options["n_threads"] = count_threads(self.n_jobs)
        if cluster.in_turn:
            if self.partition_ == "labels" or (self.working_rows is None and loadable(problem, n_bytes)):
                return WholeRows(problem, cluster, model=self._unfitted(), rng=rng)
            budget = self.working_rows or rows_within(problem, n_bytes, self.memory_limit)
            return Rounds(problem, cluster, budget=budget, in_turn=True, **options)
        budget = self.working_rows or rows_of_worker(problem, n_bytes, cluster.memory())
        n = sum(problem.sizes)
        if self.partition_ == "labels" or budget >= n:
            return WholeRows(problem, cluster, model=self._unfitted(), rng=rng)
        finer = replace(problem, groups=split_groups(problem.groups, problem.R, budget / n))
        return Rounds(finer, cluster, budget=budget, at_once=len(problem.groups), **options)

    def _weights(self, problem: Partitioned, found: Heads | np.ndarray) -> dict[str, Any]:
        """The fitted attributes, from the weights of all labels or from Z with the bias last."""
        if not isinstance(found, Heads):
            found = Heads(found[:-1].T.copy(order="F"), found[-1])
        bias = np.where(self.constant_labels_, self._constant_scores, problem.bias * found.bias_row)
        return {"coef_": found.coef, "intercept_": bias}
