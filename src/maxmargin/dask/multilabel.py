"""`maxmargin.dask.MultiLabelSVC`: the linear model of `maxmargin.MultiLabelSVC` on a cluster."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin import priors
from maxmargin.core.loop import Solver
from maxmargin.core.rows import Rows
from maxmargin.core.threads import count_threads
from maxmargin.dask import partitions
from maxmargin.dask.cluster import Cluster
from maxmargin.dask.estimator import OnCluster
from maxmargin.dask.label_groups import Heads, WholeRows, groups_of, label_costs, narrowed
from maxmargin.dask.rounds import ROOM, Rounds, Scattered, Tasks, fitting_rows, fitting_set, loadable
from maxmargin.dask.working_sets import Part, accumulated, called, look, solve
from maxmargin.edge.estimator import choose
from maxmargin.edge.labels import LabelSpace, constant_labels
from maxmargin.multilabel.estimator import LINEAR_ONLY, SOLVERS
from maxmargin.multilabel.estimator import MultiLabelSVC as Local
from maxmargin.multilabel.problem import (
    LinearM3L,
    hinge_costs,
    label_numbers,
    side_totals,
    side_weights,
    tied_costs,
)

TASKS = Tasks(look, called, solve, accumulated)


@dataclass(frozen=True)
class Terms:
    """What the loss asks of all parts alike."""

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


@dataclass(eq=False, repr=False)
class MultiLabelSVC(OnCluster, Local):
    """Max-margin classifier for many labels on a Dask cluster; linear.

    The model of `maxmargin.MultiLabelSVC` with kernel="linear": the same objective, the same parameters and
    attributes, the same certified duality gap. `to_local` gives the ordinary estimator.

    Parameters
    ----------
    C, prior, loss, class_weight, label_weight, label_margin, fit_intercept, intercept_scaling, solver, tol, \
max_iter, time_limit, n_jobs, random_state, verbose
        As in `maxmargin.MultiLabelSVC`; `n_jobs` is the number of threads of one task. A prior that is a
        callable is given the labels of all partitions at once.
    partition : {"auto", "labels", "rows"}, default="auto"
        "labels": every worker has all rows and learns some of the labels; there are no rounds. "rows": rows
        stay where they are, and each round the ones that matter most go to whoever solves for a group of
        labels; where a solve may hold all rows, that is "labels". "auto" is "labels" where no prior couples
        the labels and X fits the workers four times over.
    working_rows : int, default=None
        With rows that stay: how many of them a solve may hold; None is as many as fit a worker's memory four
        times over, at least 10,000 and the largest partition, or with ``client="here"`` as many as
        `memory_limit` allows. The more, the fewer rounds.
    memory_limit : float, default=2048
        With ``client="here"``: memory in MiB for everything but what lies in files. Dual variables lie in a
        temporary file (the variable TMPDIR says where such files are). At least 32 are taken, and X of up to
        24, with 16 bytes for each label of each row, is loaded whatever the limit is, unless `working_rows`
        is given.

    Attributes
    ----------
    coef_, intercept_, classes_, prior_, constant_labels_, primal_objective_, dual_objective_, duality_gap_, \
n_iter_, history_, n_features_in_, feature_names_in_
        As in `maxmargin.MultiLabelSVC`; `n_iter_` is the number of rounds, 1 with "labels".
    partition_ : str
        The partition that was taken.

    Notes
    -----
    X and y are dask arrays (dense or CSR blocks), dask dataframes, or lists of delayed partitions; with `y`
    None each of these is a pair (X, y). Partitions may be empty, of different sizes, and lack labels.
    Workers keep nothing but the rows they read: one that is lost costs the reading of its partitions and
    the round. The dual variables, of which most are zero, are kept sparse by the client, but with
    ``client="here"`` in a temporary file.

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

    def _scattered(self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts]) -> Scattered:
        """The problem that the parameters and the partitions pose; learns labels and constants."""
        self._space = space = partitions.common_space(seen)
        self.classes_ = space.classes
        self.prior_ = None if self.prior is None else self._read_prior(cluster, blocks)
        totals = partitions.totals(cluster, blocks, seen, space)
        signs, weight = partitions.two_sided(totals)
        upper = self.C * side_weights(self.class_weight, space, lambda: side_totals(signs, weight))
        upper *= label_numbers(self.label_weight, space, "label_weight", default=1.0)
        self._set_constants_aside(*constant_labels(signs, weight), upper)
        margin = np.tile(label_numbers(self.label_margin, space, "label_margin", default=1.0), (2, 1))
        tied = self.loss == "tied"
        R = priors.identity(space.n_columns) if tied and self.prior_ is None else self.prior_
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        terms = Terms(space, upper, margin, R, tied, bias)
        parts = [cluster.submit(part_of, block, terms) for block in blocks]
        constants = cluster.ask(constant_of, parts) if tied else []
        groups = groups_of(space.n_columns, self.prior_, len(cluster), label_costs(weight))
        sizes = [one.n for one in seen]
        return Scattered(TASKS, parts, sizes, self.n_features_in_, groups, self.prior_, bias, sum(constants))

    def _read_prior(self, cluster: Cluster, blocks: list[Any]) -> np.ndarray | None:
        """The prior; a callable is given the labels of all partitions."""
        signs = np.zeros((0, self._space.n_columns), np.int8)
        if callable(self.prior):
            signs = partitions.all_signs(cluster, blocks, self._space)
        return priors.read_prior(self.prior, signs)

    def _scattered_solver(self, cluster: Cluster, problem: Scattered, n_bytes: int) -> Solver:
        """Rows that travel whole, or rounds over rows that stay."""
        self.partition_ = self.partition
        if self.partition == "auto":
            fits = n_bytes * ROOM <= cluster.room()
            self.partition_ = "labels" if fits and len(problem.groups) >= min(len(cluster), 2) else "rows"
        rng = check_random_state(self.random_state)
        how: dict[str, Any] = {"tol": self._stopping().target, "rng": rng, "solver": self.solver}
        how["n_threads"] = count_threads(self.n_jobs)
        if cluster.in_turn:
            if self.partition_ == "labels" or (self.working_rows is None and loadable(problem, n_bytes)):
                return WholeRows(problem, cluster, model=self._unfitted(), rng=rng)
            budget = self.working_rows or fitting_set(problem, n_bytes, self.memory_limit)
            return Rounds(problem, cluster, budget=budget, in_turn=True, **how)
        n, budget = sum(problem.sizes), self.working_rows or fitting_rows(problem, n_bytes, cluster.room())
        if self.partition_ == "labels" or budget >= n:
            return WholeRows(problem, cluster, model=self._unfitted(), rng=rng)
        groups = narrowed(problem.groups, problem.R, budget / n)
        finer = replace(problem, groups=groups)
        return Rounds(finer, cluster, budget=budget, at_once=len(problem.groups), **how)

    def _weights(self, problem: Scattered, found: Heads | np.ndarray) -> dict[str, Any]:
        """What prediction needs, from the weights of labels or from Z with the bias last."""
        if not isinstance(found, Heads):
            found = Heads(found[:-1].T.copy(order="F"), found[-1])
        bias = np.where(self.constant_labels_, self._constant_scores, problem.bias * found.bias_row)
        return {"coef_": found.coef, "intercept_": bias}
