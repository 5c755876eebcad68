"""Multi-label methods that the papers compare with: label powerset, RAkEL, ML-kNN.

They take dense or CSR rows and labels as a 0/1 array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import LinearSVC


class LabelPowerset(ClassifierMixin, BaseEstimator):
    """One class for each set of labels seen in training.

    Parameters
    ----------
    estimator : classifier, default=None
        Learns the classes; None means `LinearSVC()`.
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: np.ndarray) -> LabelPowerset:
        """Number the sets of labels and learn the numbers."""
        self.sets_, codes = np.unique(y, axis=0, return_inverse=True)
        base = LinearSVC() if self.estimator is None else clone(self.estimator)
        self.estimator_ = (base if len(self.sets_) > 1 else DummyClassifier()).fit(X, codes.ravel())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most likely of the sets of labels seen in training."""
        return self.sets_[self.estimator_.predict(X)]


class RAkEL(ClassifierMixin, BaseEstimator):
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
    random_state : int, default=0
        Draws the groups.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        labelset_size: int = 3,
        n_models: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.labelset_size = labelset_size
        self.n_models = n_models
        self.random_state = random_state

    def fit(self, X: Any, y: np.ndarray) -> RAkEL:
        """Draw the groups and learn the powerset of each."""
        self.n_labels_ = y.shape[1]
        self.groups_ = self._draw_groups(np.random.RandomState(self.random_state))
        self.models_ = [LabelPowerset(self.estimator).fit(X, y[:, group]) for group in self.groups_]
        return self

    def _draw_groups(self, rng: np.random.RandomState) -> list[np.ndarray]:
        n_labels = self.n_labels_
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
        """Return the share of positive votes of each label, one column per label."""
        votes, counts = np.zeros((X.shape[0], self.n_labels_)), np.zeros(self.n_labels_)
        for group, model in zip(self.groups_, self.models_, strict=True):
            votes[:, group] += model.predict(X)
            counts[group] += 1
        return votes / counts

    def predict(self, X: Any) -> np.ndarray:
        """Return the labels with more than half of the votes."""
        return (self.vote_share(X) > 0.5).astype(int)


class MLkNN(ClassifierMixin, BaseEstimator):
    """Multi-label k nearest neighbours with Bayesian counts.

    Each label is on when, given how many of the neighbours have it, on is more likely than off;
    the likelihoods are counted on the training samples, each with its neighbours without itself.
    Zhang and Zhou, "ML-kNN: a lazy learning approach to multi-label learning", 2007.

    Parameters
    ----------
    n_neighbors : int, default=10
    smoothing : float, default=1.0
        Strength of the uniform prior (the paper's s).
    """

    def __init__(self, n_neighbors: int = 10, *, smoothing: float = 1.0) -> None:
        self.n_neighbors = n_neighbors
        self.smoothing = smoothing

    def fit(self, X: Any, y: np.ndarray) -> MLkNN:
        """Count how many neighbours share a label, for samples with and without it."""
        self._on, k, s = np.asarray(y) > 0, self.n_neighbors, self.smoothing
        on = self._on
        self.neighbors_ = NearestNeighbors(n_neighbors=k).fit(X)
        counts = on[self.neighbors_.kneighbors(return_distance=False)].sum(axis=1)
        self._prior = (s + on.sum(axis=0)) / (2 * s + len(on))
        tables = np.zeros((2, on.shape[1], k + 1))
        for l in range(on.shape[1]):
            for side in (0, 1):
                tables[side, l] = np.bincount(counts[on[:, l] == side, l], minlength=k + 1)
        self._likelihood = (s + tables) / (s * (k + 1) + tables.sum(axis=2, keepdims=True))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Logarithm of how much more likely each label is on than off."""
        counts = self._on[self.neighbors_.kneighbors(X, return_distance=False)].sum(axis=1)
        labels = np.arange(counts.shape[1])
        on = self._prior * self._likelihood[1, labels, counts]
        off = (1 - self._prior) * self._likelihood[0, labels, counts]
        return np.log(on) - np.log(off)

    def predict(self, X: Any) -> np.ndarray:
        """Labels more likely on than off."""
        return (self.decision_function(X) > 0).astype(int)
