"""What the estimators on a cluster share: features of all partitions, the ordinary model, lazy answers."""

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
from maxmargin.dask.rounds import Scattered
from maxmargin.edge.estimator import fit_context


class OnCluster(ABC):
    """Mixed into an ordinary estimator, `LOCAL`, in front of it."""

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
            Arrays and matrices in memory work too and are cut into one partition per worker.
        y : labels in the partitions of X
            Of any kind that the estimator of this name in `maxmargin` takes; None where partitions are pairs
            (X, y).
        sample_weight : in the partitions of X, default=None
        client : distributed.Client or "here", default=None
            None is the current client, or a cluster of this machine's cores for the time of the fit; "here"
            is this process alone, for partitions in files (`store`).

        Returns
        -------
        self : the fitted estimator
        """
        self._check_choices()
        if getattr(self, "warm_start", False):
            raise ValueError("warm_start=True is not for clusters; use to_local() and fit that.")
        with connected(client) as cluster, cluster.naming():
            blocks, seen = partitions.begin(cluster, X, y, sample_weight)
            self._learn_features(seen)
            problem = self._scattered(cluster, blocks, seen)
            solver = self._scattered_solver(cluster, problem, sum(one.n_bytes for one in seen))
            observer = self._observer(X, y, lambda: self._weights(problem, solver.solution()))
            outcome = run(solver, self._stopping(), observer)
            self.__dict__.update(self._weights(problem, solver.solution()))
            self._store_outcome(outcome)
        return self

    @abstractmethod
    def _check_choices(self) -> None:
        """Refuse parameters that do not go together, before anything is read."""

    @abstractmethod
    def _scattered(self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts]) -> Scattered:
        """The problem that the parameters and the partitions pose."""

    @abstractmethod
    def _scattered_solver(self, cluster: Cluster, problem: Scattered, n_bytes: int) -> Solver:
        """What solves it; the rows of all partitions have `n_bytes`."""

    @abstractmethod
    def _weights(self, problem: Scattered, found: Any) -> dict[str, Any]:
        """What prediction needs, from the solution."""

    def _learn_features(self, seen: list[partitions.Facts]) -> None:
        numbers = [one.n_features for one in seen]
        odd = [k for k, number in enumerate(numbers) if number != numbers[0]]
        if odd:
            raise ValueError(
                f"X has {numbers[0]} features in partition 0, but {numbers[odd[0]]} in partition {odd[0]}."
            )
        self.n_features_in_ = numbers[0]
        names = next((one.names for one in seen if one.names is not None), None)
        if names is not None:
            self.feature_names_in_ = names

    def _unfitted(self) -> Any:
        """The ordinary estimator with the same parameters."""
        return self.LOCAL(**{name: getattr(self, name) for name in self.LOCAL().get_params(deep=False)})

    def to_local(self) -> Any:
        """The ordinary estimator: to save, to report on, to predict with anywhere.

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
        """Scores as of the ordinary estimator; lazy on Dask collections, whose answer is a dask array."""
        if is_dask_collection(X):
            return lazily(self.to_local(), "decision_function", X)
        return self.LOCAL.decision_function(self, X)

    def predict(self, X):
        """Answers as of the ordinary estimator; lazy on Dask collections.

        Returns
        -------
        answers
            On a Dask collection a dask array, or a list of delayed partitions where answers are no array.
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
    answers : dask array, or list of delayed partitions where X is one or answers are no array

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
    scores : dask array, or list of delayed partitions where X is one
    """
    return lazily(model, "decision_function", X)


def lazily(model: Any, method: str, X: Any) -> Any:
    """A method of a model, block by block; of a list of delayed partitions the answers are one, too."""
    if partitions.is_list(X):
        return [getattr(delayed(model), method)(block) for block in X]
    probe = copy.copy(model)
    probe.__dict__.pop("feature_names_in_", None)
    one = getattr(probe, method)(np.zeros((1, model.n_features_in_)))
    model = delayed(model)
    blocks = partitions.blocks_of(X)
    if not isinstance(one, np.ndarray):
        return [getattr(model, method)(block) for block in blocks]
    answers = []
    for block, n in zip(blocks, partitions.lengths_of(X), strict=True):
        answer = delayed(_by_block)(model, method, block, one[:0])
        answers.append(da.from_delayed(answer, (n, *one.shape[1:]), meta=one[:0]))
    return da.concatenate(answers, axis=0, allow_unknown_chunksizes=True)


def _by_block(model: Any, method: str, X: Any, nothing: np.ndarray) -> np.ndarray:
    """A method of a model on a block of rows, which may be empty."""
    return getattr(model, method)(X) if X.shape[0] else nothing
