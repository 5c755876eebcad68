"""Why a score is what it is: the parts that add up to it.

A score is a sum: of weights times features in a linear model, of coefficients times kernel values in
one with a kernel, where every term belongs to a training row, plus a bias.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Terms(NamedTuple):
    """Scores as `decision_function` gives them are values @ weights' + bias, one column for two classes.

    `values` (n_samples x n_terms, dense or CSR) are features or kernel values, `names` those of the terms;
    `weights` may be CSR.
    """

    values: Any
    weights: Any
    bias: np.ndarray
    names: Sequence[str]

    def contrasted(self) -> Terms:
        """Two columns as one: the second minus the first."""
        W, b = self.weights, self.bias
        return self._replace(weights=W[1:] - W[:1], bias=b[1:] - b[:1])


@dataclass(frozen=True)
class Explanation:
    """What carried the score of one label for one sample.

    Attributes
    ----------
    label : the label or class
    score : float
        Its score as `decision_function` gives it; of two classes, the lead of this one over the other.
    parts : tuple of (name, value)
        The largest parts of the score, in size, first the largest.
    rest : float
        The sum of all other parts.
    bias : float
        What the score is without any part.
    """

    label: Any
    score: float
    parts: tuple[tuple[str, float], ...]
    rest: float
    bias: float

    def __str__(self) -> str:
        lines = [f"{self.label}: {self.score:+.4g}"]
        told = [*self.parts, ("all others", self.rest), ("bias", self.bias)]
        return "\n".join([*lines, *(f"  {value:+.4g}  {name}" for name, value in told)])


class Explained(ABC):
    """A classifier that can say what its scores are made of."""

    classes_: np.ndarray

    @abstractmethod
    def _terms(self, X: Any) -> Terms:
        """What every score of X is the sum of."""

    def explain(
        self, X: Any, label: Any = None, top: int = 10, names: Sequence[str] | None = None
    ) -> list[Explanation]:
        """The features, or with a kernel the training rows, that carried the score of a label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        label : name of a label or class, default=None
            None explains the label with the highest score of every sample.
        top : int, default=10
            How many parts are named; the others are summed up.
        names : sequence of str, default=None
            Names of the features, such as ``vectorizer.get_feature_names_out()``; those seen in `fit`
            by default, otherwise x0, x1, ... Training rows are called by their number.

        Returns
        -------
        list of Explanation
            For each sample; parts, rest and bias add up to the score.
        """
        if isinstance(top, bool) or not isinstance(top, Integral) or top < 1:
            raise ValueError(f"top must be a whole number, at least 1. Got {top!r} instead.")
        terms = self._terms(X)
        called = list(terms.names) if names is None else [str(name) for name in names]
        if len(called) != terms.weights.shape[1]:
            raise ValueError(
                f"names has {len(called)} entries, but a score has {terms.weights.shape[1]} parts."
            )
        products = terms.values @ terms.weights.T
        scores = (products.toarray() if sp.issparse(products) else products) + terms.bias
        found = []
        for i in range(scores.shape[0]):
            k = self._column(label, scores[i])
            # Of two classes there is one column, which speaks against the first.
            column, sign = (k, 1.0) if scores.shape[1] > 1 or len(self.classes_) == 1 else (0, 2.0 * k - 1.0)
            part = sign * _row(terms.weights, column) * _row(terms.values, i)
            order = np.argsort(-np.abs(part), kind="stable")
            bias, first = sign * float(terms.bias[column]), [j for j in order[:top].tolist() if part[j] != 0]
            found.append(
                Explanation(
                    _plain(self.classes_[k]),
                    float(part.sum()) + bias,
                    tuple((called[j], float(part[j])) for j in first),
                    float(part[order[top:]].sum()),
                    bias,
                )
            )
        return found

    def _column(self, label: Any, scores: np.ndarray) -> int:
        if label is None:
            return (
                int(np.argmax(scores)) if len(scores) > 1 or len(self.classes_) == 1 else int(scores[0] > 0)
            )
        places = [k for k, name in enumerate(self.classes_.tolist()) if name == label]
        if not places:
            raise ValueError(f"label={label!r} is not among the labels of the model.")
        return places[0]


def linear_terms(model: Any, X: Any, weights: Any, bias: np.ndarray) -> Terms:
    """Terms of a model that is linear in its features."""
    names = getattr(model, "feature_names_in_", None)
    known = [f"x{j}" for j in range(weights.shape[1])] if names is None else [str(name) for name in names]
    weights = weights.tocsr() if sp.issparse(weights) else np.asarray(weights, np.float64)
    return Terms(X, weights, np.asarray(bias, np.float64), known)


def kernel_terms(
    kernel: Any, X: Any, basis: Any, rows: np.ndarray, weights: np.ndarray, bias: np.ndarray
) -> Terms:
    """Terms of a model with a kernel; `rows` are the training rows of its basis."""
    dtype = np.result_type(X.dtype, np.float64)
    values = kernel.block(X, basis, dtype) if len(rows) else np.zeros((X.shape[0], 0))
    return Terms(values, np.asarray(weights), np.asarray(bias), [f"row {i}" for i in rows.tolist()])


def _row(matrix: Any, i: int) -> np.ndarray:
    return matrix[[i]].toarray()[0] if sp.issparse(matrix) else matrix[i]


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name
