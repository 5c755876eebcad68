"""`maxmargin.dask.MultiClassSVC`: the linear model of `maxmargin.MultiClassSVC` on a cluster."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin.core.loop import run
from maxmargin.dask import partitions
from maxmargin.dask.class_sets import TASKS
from maxmargin.dask.cluster import Cluster
from maxmargin.dask.estimator import OnCluster
from maxmargin.dask.rounds import Rounds, Scattered
from maxmargin.edge.estimator import balance, warn_if_single
from maxmargin.structured.multiclass import MultiClassSVC as Local
from maxmargin.structured.multiclass_problem import Labels, LinearSolution


@dataclass(eq=False, repr=False)
class MultiClassSVC(OnCluster, Local):
    """Multi-class SVM with one joint objective on a Dask cluster; linear.

    The model of `maxmargin.MultiClassSVC` with kernel="linear": the same objective, the same parameters and
    attributes, the same certified duality gap. `to_local` gives the ordinary estimator. Rows stay in their
    partitions; each round the ones that matter most go to one worker, which solves for them.

    Parameters
    ----------
    C, loss, cost_matrix, class_weight, fit_intercept, intercept_scaling, tol, max_iter, time_limit, \
random_state, verbose
        As in `maxmargin.MultiClassSVC`.
    solver : {"auto", "exact"}, default="auto"
        Both are exact block steps on the rows that travel.
    working_rows : int, default=None
        How many rows a solve may hold; None is the size of the largest partition, at least 10,000. The more,
        the fewer rounds.

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

    def _learn(
        self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts], X: Any, y: Any
    ) -> None:
        problem = self._scattered(cluster, blocks, seen)
        solver = Rounds(
            problem,
            cluster,
            tol=self._stopping().target,
            budget=self.working_rows,
            rng=check_random_state(self.random_state),
            in_turn=cluster.in_turn,
        )
        observer = self._observer(X, y, lambda: self._weights(solver.solution()))
        outcome = run(solver, self._stopping(), observer, self.solver)
        self.__dict__.update(self._weights(solver.solution()))
        self._store_outcome(outcome)

    def _scattered(self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts]) -> Scattered:
        """The problem that the parameters and the partitions pose; learns the classes."""
        self.classes_ = classes = partitions.common_classes(seen)
        totals = cluster.ask(partitions.class_weights, blocks, classes)
        costs = self.C * self._class_factors(sum(totals))
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        labels = Labels(np.zeros(0, np.int64), np.zeros(0), self._read_costs(len(classes)), self.loss)
        parts = [cluster.submit(partitions.class_part, one, classes, costs, labels, bias) for one in blocks]
        sizes = [one.n for one in seen]
        return Scattered(TASKS, parts, sizes, self.n_features_in_, [slice(0, len(classes))], None, bias, 0.0)

    def _class_factors(self, totals: np.ndarray) -> np.ndarray:
        """What multiplies the weights of the samples of every class."""
        partitions.check_weighted(float(totals.sum()))
        warn_if_single(self.classes_)
        factors = np.ones(len(totals))
        if self.class_weight is not None:
            weighed = balance(self.class_weight, self.classes_, np.arange(len(totals)), totals)
            np.divide(weighed, totals, out=factors, where=totals > 0)
        self._warn_of_idle(totals * factors)
        return factors

    def _weights(self, W: np.ndarray) -> dict[str, Any]:
        """What prediction needs."""
        return self._attributes(None, LinearSolution(W, np.empty(0)))
