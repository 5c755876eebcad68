"""The base class of the estimators on a cluster, and lazy predictions of any model."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from dask import delayed, is_dask_collection
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.loop import Solver, run
from maxmargin.dask import partitions
from maxmargin.dask.cluster import Cluster, connected
from maxmargin.dask.rounds import Partitioned
from maxmargin.edge.estimator import fit_context


class OnCluster(ABC):
    """Mixin that trains the estimator class `LOCAL` on a cluster; to be listed before it."""

    LOCAL: ClassVar[type[Any]]
    n_features_in_: int
    _observer: Any
    _stopping: Any
    _store_outcome: Any

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None, *, client=None):
        """Fit the model.

        Parameters
        ----------
        X : dask array or dataframe of shape (n_samples, n_features), or list of delayed partitions
            Arrays and matrices in memory are cut into one partition per worker.
        y : labels in the partitions of X
            Of any kind that the estimator of this name in `maxmargin` takes; None if partitions are pairs
            (X, y).
        sample_weight : in the partitions of X, default=None
        client : distributed.Client or "here", default=None
            None is the current client, or a cluster of this machine's cores for the time of the fit; "here"
            is this process, for partitions in files (`store`).

        Returns
        -------
        self : the fitted estimator
        """
        self._check_choices()
        if getattr(self, "warm_start", False):
            raise ValueError(
                "warm_start=True does not work on a cluster; fit the estimator that to_local() returns."
            )
        with connected(client) as cluster, cluster.naming():
            blocks, facts = partitions.begin(cluster, X, y, sample_weight)
            self._learn_features(facts)
            problem = self._partitioned(cluster, blocks, facts)
            solver = self._make_solver(cluster, problem, sum(one.n_bytes for one in facts))
            observer = self._observer(X, y, lambda: self._weights(problem, solver.solution()))
            outcome = run(solver, self._stopping(), observer)
            self.__dict__.update(self._weights(problem, solver.solution()))
            self._store_outcome(outcome)
        return self

    @abstractmethod
    def _check_choices(self) -> None:
        """Refuse incompatible parameters before anything is read."""

    @abstractmethod
    def _partitioned(self, cluster: Cluster, blocks: list[Any], facts: list[partitions.Facts]) -> Partitioned:
        """The problem given by the parameters and the partitions."""

    @abstractmethod
    def _make_solver(self, cluster: Cluster, problem: Partitioned, n_bytes: int) -> Solver:
        """The solver of the problem; the rows of all partitions have `n_bytes`."""

    @abstractmethod
    def _weights(self, problem: Partitioned, found: Any) -> dict[str, Any]:
        """The fitted attributes that prediction reads, from the solution."""

    def _learn_features(self, facts: list[partitions.Facts]) -> None:
        numbers = [one.n_features for one in facts]
        for k, number in enumerate(numbers):
            if number != numbers[0]:
                raise ValueError(
                    f"X has {numbers[0]} features in partition 0, but {number} in partition {k}; all "
                    "partitions need the same features."
                )
        self.n_features_in_ = numbers[0]
        names = next((one.names for one in facts if one.names is not None), None)
        if names is not None:
            self.feature_names_in_ = names

    def _unfitted(self) -> Any:
        """The estimator of `maxmargin` with the same parameters."""
        return self.LOCAL(**{name: getattr(self, name) for name in self.LOCAL().get_params(deep=False)})

    def to_local(self) -> Any:
        """The fitted estimator of `maxmargin`: to save, to report on, and to predict without Dask.

        Returns
        -------
        model : the estimator of this name in `maxmargin`
        """
        check_is_fitted(self, "n_features_in_")
        local = self._unfitted()
        fields = self.LOCAL.STATE.fields
        local.__dict__.update({name: vars(self)[name] for name in fields if name in vars(self)})
        return local

    def decision_function(self, X):
        """Scores as of the estimator in `maxmargin`; on a Dask collection a lazy dask array."""
        if is_dask_collection(X):
            return lazily(self.to_local(), "decision_function", X)
        return self.LOCAL.decision_function(self, X)

    def predict(self, X):
        """Predictions as of the estimator in `maxmargin`; lazy on Dask collections.

        Returns
        -------
        answers
            On a Dask collection a dask array, or a list of delayed partitions if predictions are no array.
        """
        return lazily(self.to_local(), "predict", X) if is_dask_collection(X) else self.LOCAL.predict(self, X)


def predict(model: Any, X: Any) -> Any:
    """Lazy predictions of any fitted estimator on a Dask collection.

    Parameters
    ----------
    model : estimator
        Any of `maxmargin`'s, fitted.
    X : dask array or dataframe of shape (n_samples, n_features), or list of delayed partitions
        A partition for `ChainSVC` or `LatentSVC` is a list of matrices.

    Returns
    -------
    answers : dask array, or list of delayed partitions if X is one or predictions are no array

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin
    >>> from maxmargin.dask import predict
    >>> X, y = load_iris(return_X_y=True)
    >>> model = maxmargin.MultiClassSVC(random_state=0).fit(X, y)
    >>> predict(model, da.from_array(X, (50, 4)))[:3].compute()
    array([0, 0, 0])
    """
    return lazily(model, "predict", X)


def decision_function(model: Any, X: Any) -> Any:
    """Lazy scores of any fitted estimator on a Dask collection.

    Parameters
    ----------
    model : estimator
        Any of `maxmargin`'s, fitted.
    X : dask array or dataframe of shape (n_samples, n_features), or list of delayed partitions

    Returns
    -------
    scores : dask array, or list of delayed partitions if X is one
    """
    return lazily(model, "decision_function", X)


def lazily(model: Any, method: str, X: Any) -> Any:
    """Call a method of a model for every block; a list of delayed partitions gives such a list."""
    if partitions.is_list(X):
        return [getattr(delayed(model), method)(block) for block in X]
    probe = copy.copy(model)
    probe.__dict__.pop("feature_names_in_", None)
    one = getattr(probe, method)(np.zeros((1, model.n_features_in_)))
    model = delayed(model)
    blocks, lengths = partitions.blocks_of(X)
    if not isinstance(one, np.ndarray):
        return [getattr(model, method)(block) for block in blocks]
    answers = []
    for block, n in zip(blocks, lengths or [float("nan")] * len(blocks), strict=True):
        answer = delayed(_by_block)(model, method, block, one[:0])
        answers.append(da.from_delayed(answer, (n, *one.shape[1:]), meta=one[:0]))
    return da.concatenate(answers, axis=0, allow_unknown_chunksizes=True)


def _by_block(model: Any, method: str, X: Any, nothing: np.ndarray) -> np.ndarray:
    """Call a method of a model for a block of rows, which may be empty."""
    return getattr(model, method)(X) if X.shape[0] else nothing
