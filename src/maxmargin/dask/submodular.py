"""`maxmargin.dask.SubmodularSVC`: the model of `maxmargin.SubmodularSVC` on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from maxmargin.core.loop import run
from maxmargin.core.rows import Rows
from maxmargin.dask import partitions
from maxmargin.dask.cluster import Cluster
from maxmargin.dask.estimator import OnCluster
from maxmargin.dask.partitions import Block
from maxmargin.dask.set_planes import ScatteredF1
from maxmargin.edge.estimator import choose
from maxmargin.edge.labels import LabelSpace, constant_labels, warn_of_constants
from maxmargin.submodular.bundle import Bundle
from maxmargin.submodular.estimator import SOLVERS, complete
from maxmargin.submodular.estimator import SubmodularSVC as Local
from maxmargin.submodular.problem import LabelPairs, SubmodularF1, cooccurrence, frequent_pairs


@dataclass(eq=False, repr=False)
class SubmodularSVC(OnCluster, Local):
    """Multi-label classifier with attractive pairs of labels, trained for the example F1 on a Dask cluster.

    The model of `maxmargin.SubmodularSVC`: the same objective, parameters, attributes and certified duality
    gap. `to_local` gives the ordinary estimator. Workers infer the sets of labels of their rows; the client
    keeps the planes that they make.

    Parameters
    ----------
    C, interaction_scale, pair_fraction, cooccurrence, inference, max_nodes, line_search, plane_cache, \
fit_intercept, intercept_scaling, tol, max_iter, time_limit, n_jobs, verbose
        As in `maxmargin.SubmodularSVC`; `n_jobs` is the number of threads of one task.
    solver : {"auto", "bundle"}, default="auto"
        Both are cutting planes.

    Attributes
    ----------
    coef_, intercept_, interaction_, pairs_, pair_strength_, classes_, constant_labels_, primal_objective_, \
dual_objective_, duality_gap_, n_iter_, history_, n_features_in_, feature_names_in_
        As in `maxmargin.SubmodularSVC`; `n_iter_` is the number of planes.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from maxmargin.dask import SubmodularSVC
    >>> X, Y = make_multilabel_classification(60, n_classes=4, random_state=0)
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     model = SubmodularSVC(C=0.01, tol=1e-2).fit(da.from_array(X, (20, 20)), Y, client=client)
    >>> model.duality_gap_ <= 1e-2
    True
    """

    LOCAL: ClassVar[type[Local]] = Local

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Local._parameter_constraints,
        "solver": [StrOptions({"auto", "bundle"})],
    }

    def _check_choices(self) -> None:
        choose(self, SOLVERS)

    def _learn(
        self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts], X: Any, y: Any
    ) -> None:
        labels = partitions.common_space(seen)
        problem = self._scattered(cluster, blocks, seen, labels)
        solver = Bundle(problem, line_search=self.line_search, memory=self.plane_cache)
        observer = self._observer(X, y, lambda: self._attributes(problem, labels, solver.solution().theta))
        outcome = run(solver, self._stopping(), observer, self.solver)
        self.__dict__.update(self._attributes(problem, labels, solver.solution().theta))
        self._store_outcome(outcome)

    def _scattered(
        self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts], labels: LabelSpace
    ) -> ScatteredF1:
        """The problem that the parameters and the partitions pose; learns which labels are constant."""
        totals = partitions.totals(cluster, blocks, seen, labels)
        self.constant_labels_, on = constant_labels(*partitions.two_sided(totals))
        self._always = self.constant_labels_ & on
        warn_of_constants(labels.names, self.constant_labels_)
        counts = cluster.ask(pair_counts, blocks, labels)
        pairs = frequent_pairs(sum(counts), self.pair_fraction, self.interaction_scale, self.cooccurrence)
        self._warn_of_inference(pairs)
        local = self._unfitted()
        parts = [cluster.submit(f1_part, block, labels, pairs, local) for block in blocks]
        nobody = f1_part(Block(np.empty((0, self.n_features_in_)), None, None, None), labels, pairs, local)
        return ScatteredF1(**vars(nobody), workers=cluster, parts=parts, size=sum(one.n for one in seen))


def _truth(block: Block, labels: LabelSpace) -> np.ndarray:
    """The true sets of a block."""
    return complete(block.X, partitions.signs_of(block, labels))


def pair_counts(block: Block, labels: LabelSpace) -> np.ndarray:
    """How many samples of a block have both labels of a pair."""
    return cooccurrence(_truth(block, labels), block.weight)


def f1_part(block: Block, labels: LabelSpace, pairs: LabelPairs, model: Local) -> SubmodularF1:
    """The block as a part of the problem."""
    truth = _truth(block, labels)
    cost = np.full(len(truth), float(model.C)) if block.weight is None else model.C * block.weight
    return SubmodularF1(
        Rows.of(block.X),
        truth,
        cost,
        pairs,
        bias=float(model.intercept_scaling) if model.fit_intercept else 0.0,
        exact=model.inference == "exact",
        max_nodes=model.max_nodes,
        n_jobs=model.n_jobs,
    )
