"""Machines with few basis vectors that answer with one class, and those that answer with labels."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from maxmargin.core.kernels import Kernel
from maxmargin.edge.labels import LabelSpace
from maxmargin.sparse.growth import BasisMachine
from maxmargin.sparse.problem import BasisProblem


class ClassMachine(BasisMachine, ABC):
    """The class with the highest score."""

    @abstractmethod
    def _problem(self, kernel: Kernel, X: Any, codes: np.ndarray, costs: np.ndarray) -> BasisProblem:
        """What is minimised, for classes 0, 1, ... and weights C * sample_weight."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Grow a basis and fit its coefficients.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights on the losses; equal to repeating samples.
        """
        X = self._read_rows(X, reset=True)
        self.classes_, codes = read_classes(X, y)
        weights, costs = self._read_costs(sample_weight, X)
        problem = self._problem(self._settle_kernel(X, weights), X, codes, costs)
        self._grow(problem, costs, y, constant=np.zeros(len(self.classes_)))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes; for two classes the difference of the second and the first."""
        return _contrast(self._scores(X))

    def predict(self, X: Any) -> np.ndarray:
        """The class with the highest score; among equals the first."""
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]

    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """`decision_function` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield _contrast(scores)

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """`predict` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self.classes_[np.argmax(scores, axis=1)]


class LabelMachine(BasisMachine):
    """The labels with a positive score, or the best of several classes."""

    def _read_labels(self, X: Any, y: Any, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Signs of the labels, 0 where nothing is to be learnt, and the answer of constant labels."""
        self._labels, signs = LabelSpace.read(y)
        check_consistent_length(X, signs)
        self.classes_ = self._labels.classes
        constant = constant_labels(signs, costs, self._labels)
        return np.where(constant == 0, signs, np.int8(0)), constant

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the labels (n_samples, n_labels); a vector when y was one of two classes."""
        scores = self._scores(X)
        return self._labels.scores(scores)

    def predict(self, X: Any) -> Any:
        """Labels with a positive score, or the best class, in the kind that `fit` was given."""
        scores = self._scores(X)
        return self._labels.answer(self._labels.choose(scores), like=X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = False
        return tags


def _contrast(scores: np.ndarray) -> np.ndarray:
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def read_classes(X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Classes in sorted order, and the code of every sample's class."""
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None; pass the classes."
        )
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y holds one class only, {str(classes[0])!r}; at least 2 classes are needed.")
    return classes, codes


def constant_labels(signs: np.ndarray, costs: np.ndarray, labels: LabelSpace) -> np.ndarray:
    """+1 or -1 for a label that is always on or off (an unknown one is off), else 0."""
    seen = signs[costs > 0]
    on, off = (seen == 1).any(axis=0), (seen == -1).any(axis=0)
    constant = np.where(on & off, 0.0, np.where(on, 1.0, -1.0))
    if constant.any():
        names = labels.classes[-len(constant) :][constant != 0].tolist()
        shown = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
        warnings.warn(
            f"{np.count_nonzero(constant)} of {len(constant)} labels never change in the training data "
            f"({shown}); for them the constant is predicted.",
            UserWarning,
            stacklevel=5,
        )
    return constant
