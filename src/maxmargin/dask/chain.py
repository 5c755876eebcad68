"""`maxmargin.dask.ChainSVC`: the model of `maxmargin.ChainSVC` on a cluster."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dask import delayed, is_dask_collection
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.multiclass import check_classification_targets

from maxmargin.core.loop import run
from maxmargin.dask import partitions
from maxmargin.dask.cluster import Cluster
from maxmargin.dask.estimator import OnCluster
from maxmargin.dask.labelings import ChainPart, ScatteredChains, Sequences, Terms
from maxmargin.edge.estimator import warn_if_single
from maxmargin.edge.groups import SequenceLabels, container_of, read_groups, stack_labels
from maxmargin.structured.chain import ChainSVC as Local
from maxmargin.structured.chain import named
from maxmargin.structured.chain_problem import weights_of_vector
from maxmargin.submodular.bundle import Bundle


class Told(NamedTuple):
    """What the client learns of a block of sequences first."""

    n: int
    n_features: int
    names: np.ndarray | None
    classes: np.ndarray
    container: type
    total_weight: float
    longest: int


@dataclass(eq=False, repr=False)
class ChainSVC(OnCluster, Local):
    """Label the positions of sequences jointly, by a structured SVM on a chain, on a Dask cluster.

    The model of `maxmargin.ChainSVC`: the same objective, attributes and certified duality gap. `to_local`
    gives the ordinary estimator. Workers infer the labelings of their sequences; the client keeps the planes
    that they make.

    Parameters
    ----------
    C, normalize_loss, intercept_scaling, tol, max_iter, time_limit, n_jobs, verbose
        As in `maxmargin.ChainSVC`; `n_jobs` is the number of threads of a prediction.
    solver : {"bundle"}, default="bundle"
        Cutting planes.

    Attributes
    ----------
    classes_, coef_, intercept_, first_, last_, transitions_, primal_objective_, dual_objective_, \
duality_gap_, n_iter_, history_, n_features_in_, feature_names_in_
        As in `maxmargin.ChainSVC`; `n_iter_` is the number of planes.

    Notes
    -----
    A partition of X is a list of (length x features) matrices, that of y the list of their label sequences.
    They come as lists of delayed partitions, or as lists of sequences in memory, which are cut into one
    partition per worker.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> from maxmargin.dask import ChainSVC
    >>> X = [np.array([[1.0, 0], [0, 1], [0, 0]]), np.array([[0.0, 1], [0, 0]])]
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     model = ChainSVC(C=10).fit(X, ["abb", "bb"], client=client)
    >>> model.to_local().predict(X)
    ['abb', 'bb']
    """

    LOCAL: ClassVar[type[Local]] = Local

    _: KW_ONLY
    solver: str = "bundle"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Local._parameter_constraints,
        "solver": [StrOptions({"bundle"})],
        "temperature": [StrOptions({"auto"})],
        "safeguard": [Options(bool, {True})],
    }

    def _begin(self, cluster: Cluster, X: Any, y: Any, weight: Any) -> tuple[list[Any], list[Any]]:
        """Blocks of the partitions that hold sequences, and what is known of these."""
        answers = cluster.read(read_sequences, pieces(X, y, weight, len(cluster)))
        told = cluster.ask(tell, answers)
        filled = [(block, one) for block, one in zip(answers, told, strict=True) if one.n]
        if not filled:
            raise ValueError("X has no sequences in any partition.")
        return [block for block, _ in filled], [one for _, one in filled]

    def _learn(self, cluster: Cluster, blocks: list[Any], seen: list[Any], X: Any, y: Any) -> None:
        self.classes_ = classes = np.unique(np.concatenate([one.classes for one in seen]))
        warn_if_single(classes)
        partitions.check_weighted(sum(one.total_weight for one in seen))
        self._labels = SequenceLabels(classes, seen[0].container)
        self._groups_of_one = max(one.longest for one in seen) == 1
        terms = Terms(classes, float(self.C), self.normalize_loss, float(self.intercept_scaling))
        parts = [cluster.submit(ChainPart, block, terms) for block in blocks]
        K = len(classes)
        size = (self.n_features_in_ + K + 3) * K
        problem = ScatteredChains(size, workers=cluster, parts=parts, size=sum(one.n for one in seen))
        solver = Bundle(problem)

        def attributes() -> dict[str, np.ndarray]:
            return named(weights_of_vector(solver.solution().theta, K), terms.scaling)

        outcome = run(solver, self._stopping(), self._observer(X, y, attributes), self.solver)
        self.__dict__.update(attributes())
        self._store_outcome(outcome)

    def _unfitted(self) -> Local:
        """The ordinary estimator with the same parameters but for the solver."""
        names = self.LOCAL().get_params(deep=False).keys() - {"solver"}
        return self.LOCAL(**{name: getattr(self, name) for name in names})

    @property
    def decision_function(self) -> Any:
        """There is none, as a sequence has no single score per label."""
        raise AttributeError("ChainSVC has no decision_function; predict_kbest gives labelings with scores.")

    def predict(self, X, lengths=None):
        """Labelings as of the ordinary estimator.

        Parameters
        ----------
        X : list of matrices of shape (length, n_features), or one stacked matrix with `lengths`
            Or a list of delayed partitions, for which the answers are delayed, too.
        lengths : array-like of int, default=None

        Returns
        -------
        y : list of label sequences in the kind given to fit, or one stacked vector
        """
        if partitions.is_list(X):
            model = delayed(self.to_local())
            return [model.predict(block) for block in X]
        return self.LOCAL.predict(self, X, lengths)


def pieces(X: Any, y: Any, weight: Any, n_parts: int) -> list[tuple[Any, Any, Any]]:
    """The partitions of X with those of y and of the weights, not yet read."""
    partitions.check_any(X)
    if partitions.is_list(X):
        return partitions.pieces(X, y, weight, n_parts)
    if is_dask_collection(X):
        raise ValueError(
            "X is a Dask collection, which does not say where sequences end; pass a list of delayed "
            "partitions, each a list of matrices."
        )
    if y is None or len(X) != len(y):
        raise ValueError(f"X has {len(X)} sequences; y must hold one label sequence for each.")
    cuts = np.linspace(0, len(X), min(n_parts, max(len(X), 1)) + 1).astype(int)
    return [(X[a:b], y[a:b], None if weight is None else weight[a:b]) for a, b in pairwise(cuts)]


def read_sequences(number: int, X: Any, y: Any, weight: Any) -> Sequences:
    """Check one partition of sequences; errors say which."""
    if y is None:
        X, y, weight = partitions.unpacked(number, X)
    if not len(X):
        return Sequences(np.empty((0, 0)), np.zeros(1, np.int64), np.empty(0), None, None, list)
    probe = Local()
    try:
        groups = read_groups(probe, X, None, reset=True)
        labels = stack_labels(y, groups)
        check_classification_targets(labels)
    except ValueError as error:
        raise ValueError(f"Partition {number}: {error}") from error
    weight = partitions.checked_weights(number, weight, len(groups))
    names = getattr(probe, "feature_names_in_", None)
    return Sequences(groups.X, groups.offsets, labels, weight, names, container_of(y, groups))


def tell(block: Sequences) -> Told:
    """Sizes and labels of a block."""
    lengths = np.diff(block.offsets)
    total = float(len(lengths)) if block.weight is None else float(block.weight.sum())
    longest = int(lengths.max(initial=0))
    width = block.X.shape[1]
    return Told(len(lengths), width, block.names, np.unique(block.y), block.container, total, longest)
