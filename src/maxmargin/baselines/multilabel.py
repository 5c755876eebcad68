"""Multi-label methods that the papers compare with: label powerset, RAkEL, ML-kNN."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted, validate_data

from maxmargin.core.sparse_format import check_format
from maxmargin.edge.estimator import fit_context, warn
from maxmargin.edge.labels import LabelClassifier, LabelSpace
from maxmargin.edge.wrapping import pass_on_input


class _MultiLabel(LabelClassifier, BaseEstimator):
    """Reads labels of any kind and answers in it; takes dense or sparse X."""

    def _read(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        X = validate_data(self, check_format(X, "X"), accept_sparse="csr", dtype=[np.float64, np.float32])
        self._labels, signs = LabelSpace.read(y)
        check_consistent_length(X, signs)
        if not signs.all():
            raise ValueError(f"y has unknown (NaN) entries; {type(self).__name__} needs every label.")
        self.classes_ = self._labels.classes
        return X, signs > 0

    def _read_new(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(
            self, check_format(X, "X"), reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        estimator = getattr(self, "estimator", None)
        return tags if estimator is None else pass_on_input(tags, estimator)


class _Constant(BaseEstimator):
    """Stands in where the training data hold only one set of labels."""

    def predict(self, X: Any) -> np.ndarray:
        return np.zeros(_num_samples(X), dtype=int)


def _fit_powerset(estimator: Any, X: Any, on: np.ndarray) -> tuple[np.ndarray, Any]:
    """The distinct sets of labels and a classifier for their numbers."""
    sets, codes = np.unique(on, axis=0, return_inverse=True)
    if len(sets) == 1:
        return sets, _Constant()
    base = LinearSVC() if estimator is None else clone(estimator)
    return sets, base.fit(X, codes.reshape(-1))


class LabelPowerset(MetaEstimatorMixin, _MultiLabel):
    """One class for each set of labels seen in training.

    Parameters
    ----------
    estimator : classifier, default=None
        Learns the classes; None means `LinearSVC()`.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
    label_sets_ : boolean array of shape (n_sets, n_labels)
    estimator_ : the fitted classifier

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from maxmargin.baselines import LabelPowerset
    >>> X, Y = make_multilabel_classification(50, n_classes=3, random_state=0)
    >>> LabelPowerset().fit(X, Y).predict(X).shape
    (50, 3)
    """

    _parameter_constraints: dict[str, list[Any]] = {"estimator": [HasMethods(["fit", "predict"]), None]}

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> LabelPowerset:
        """Number the sets of labels and learn the numbers."""
        X, on = self._read(X, y)
        self.label_sets_, self.estimator_ = _fit_powerset(self.estimator, X, on)
        return self

    def predict(self, X: Any) -> Any:
        """The most likely of the sets of labels seen in training."""
        rows = self._read_new(X)
        return self._labels.answer(self.label_sets_[self.estimator_.predict(rows)], like=X)


class RAkEL(MetaEstimatorMixin, _MultiLabel):
    """Random k-labelsets: label powersets of random small groups of labels, which vote.

    Tsoumakas and Vlahavas, "Random k-labelsets", 2007.

    Parameters
    ----------
    estimator : classifier, default=None
        Learns each powerset; None means `LinearSVC()`.
    labelset_size : int, default=3
        Labels in a group (the paper's k), at most the number of labels.
    n_models : int, default=None
        Number of groups (the paper's m); None means twice the number of labels. Groups are drawn
        without repetition while there are enough of them.
    threshold : float in [0, 1], default=0.5
        A label is on when more than this part of its votes say so.
    random_state : int, RandomState instance or None, default=0
        Draws the groups; None draws others in every fit.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
    groups_ : list of arrays
        Labels of each group.
    models_ : list of (label sets, classifier)

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from maxmargin.baselines import RAkEL
    >>> X, Y = make_multilabel_classification(50, n_classes=5, random_state=0)
    >>> RAkEL(labelset_size=2, random_state=0).fit(X, Y).predict(X).shape
    (50, 5)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "labelset_size": [Interval(Integral, 1, None, closed="left")],
        "n_models": [Interval(Integral, 1, None, closed="left"), None],
        "threshold": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        labelset_size: int = 3,
        n_models: int | None = None,
        threshold: float = 0.5,
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.labelset_size = labelset_size
        self.n_models = n_models
        self.threshold = threshold
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> RAkEL:
        """Draw the groups and learn the powerset of each."""
        X, on = self._read(X, y)
        n_labels = on.shape[1]
        self.groups_ = self._draw_groups(n_labels, check_random_state(self.random_state))
        self.models_ = [_fit_powerset(self.estimator, X, on[:, group]) for group in self.groups_]
        return self

    def _draw_groups(self, n_labels: int, rng: np.random.RandomState) -> list[np.ndarray]:
        size = min(self.labelset_size, n_labels)
        wanted = 2 * n_labels if self.n_models is None else self.n_models
        seen: dict[tuple[int, ...], None] = {}
        # Every label gets a vote first: cut random orders of the labels into groups.
        order = rng.permutation(n_labels)
        for start in range(0, n_labels, size):
            group = order[start : start + size]
            spare = np.setdiff1d(order, group)
            fill = rng.permutation(spare)[: size - len(group)]
            seen[tuple(sorted(np.append(group, fill).tolist()))] = None
        misses = 0
        while len(seen) < wanted and misses < 100:
            drawn = tuple(sorted(rng.choice(n_labels, size, replace=False).tolist()))
            misses = misses + 1 if drawn in seen else 0
            seen[drawn] = None
        return [np.array(group) for group in seen]

    def vote_share(self, X: Any) -> np.ndarray:
        """Part of the votes of each label that say on, one column per label."""
        rows = self._read_new(X)
        votes = np.zeros((rows.shape[0], self._labels.n_columns))
        counts = np.zeros(votes.shape[1])
        for group, (sets, model) in zip(self.groups_, self.models_, strict=True):
            votes[:, group] += sets[model.predict(rows)]
            counts[group] += 1
        return votes / counts

    def decision_function(self, X: Any) -> np.ndarray:
        """Share of the votes above `threshold`."""
        share = self.vote_share(X)
        return self._labels.scores(share - self.threshold)

    def predict(self, X: Any) -> Any:
        """Labels for which more than `threshold` of the votes say on."""
        share = self.vote_share(X)
        return self._labels.answer(self._labels.choose(share - self.threshold), like=X)


class MLkNN(_MultiLabel):
    """Multi-label k nearest neighbours with Bayesian counts.

    Each label is on when, given how many of the neighbours have it, on is more likely than off;
    the likelihoods are counted on the training samples, each with its neighbours without itself.
    Zhang and Zhou, "ML-kNN: a lazy learning approach to multi-label learning", 2007.

    Parameters
    ----------
    n_neighbors : int, default=10
        With no more samples than that, all others are neighbours, and a warning says so.
    smoothing : float, default=1.0
        Strength of the uniform prior (the paper's s).
    n_jobs : int or None, default=None
        Passed to `NearestNeighbors`.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
    n_neighbors_ : int
        Neighbours that were counted.
    neighbors_ : fitted `NearestNeighbors`

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from maxmargin.baselines import MLkNN
    >>> X, Y = make_multilabel_classification(50, n_classes=3, random_state=0)
    >>> MLkNN(n_neighbors=5).fit(X, Y).predict(X).shape
    (50, 3)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "smoothing": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [Integral, None],
    }

    def __init__(self, n_neighbors: int = 10, *, smoothing: float = 1.0, n_jobs: int | None = None) -> None:
        self.n_neighbors = n_neighbors
        self.smoothing = smoothing
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> MLkNN:
        """Count how many neighbours share a label, for samples with and without it."""
        X, on = self._read(X, y)
        n = X.shape[0]
        if n < 2:
            raise ValueError("Found 1 sample; MLkNN needs two, for a sample is not a neighbour of itself.")
        if n <= self.n_neighbors:
            warn(f"n_neighbors={self.n_neighbors} is more than the {n - 1} other samples; all are counted.")
        k, s = min(self.n_neighbors, n - 1), self.smoothing
        self.n_neighbors_ = k
        self._on = on
        self.neighbors_ = NearestNeighbors(n_neighbors=k, n_jobs=self.n_jobs).fit(X)
        counts = on[self.neighbors_.kneighbors(return_distance=False)].sum(axis=1)
        self._prior = (s + on.sum(axis=0)) / (2 * s + n)
        tables = np.zeros((2, on.shape[1], k + 1))
        for l in range(on.shape[1]):
            for side in (0, 1):
                tables[side, l] = np.bincount(counts[on[:, l] == side, l], minlength=k + 1)
        self._likelihood = (s + tables) / (s * (k + 1) + tables.sum(axis=2, keepdims=True))
        return self

    def _log_odds(self, X: Any) -> np.ndarray:
        rows = self._read_new(X)
        counts = self._on[self.neighbors_.kneighbors(rows, return_distance=False)].sum(axis=1)
        labels = np.arange(counts.shape[1])
        on = self._prior * self._likelihood[1, labels, counts]
        off = (1 - self._prior) * self._likelihood[0, labels, counts]
        return np.log(on) - np.log(off)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logarithm of how much more likely each label is on than off."""
        odds = self._log_odds(X)
        return self._labels.scores(odds)

    def predict(self, X: Any) -> Any:
        """Labels more likely on than off."""
        odds = self._log_odds(X)
        return self._labels.answer(self._labels.choose(odds), like=X)
