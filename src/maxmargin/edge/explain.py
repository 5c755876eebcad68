"""Why a score is what it is: the parts that add up to it.

A score is a sum: of weights times features in a linear model, of coefficients times kernel values in
one with a kernel, where every term belongs to a training row, plus a bias.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Terms(NamedTuple):
    """Scores as `decision_function` gives them are values @ weights' + bias, one column for two classes.

    `values` (n_samples x n_terms, dense or CSR) are features or kernel values, `names` those of the terms;
    `weights` (one row per column of scores) are dense or CSR.
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
    where : str
        The position in a sequence, or the candidate of a bag; empty for a sample that is one row.
    """

    label: Any
    score: float
    parts: tuple[tuple[str, float], ...]
    rest: float
    bias: float
    where: str = ""

    def __str__(self) -> str:
        lines = [f"{self.label}{f' ({self.where})' if self.where else ''}: {self.score:+.4g}"]
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
        check_top(top)
        terms = self._terms(X)
        called = called_parts(names, terms.names)
        scores = dense(terms.values @ terms.weights.T) + terms.bias
        found = []
        for i in range(scores.shape[0]):
            k = self._column(label, scores[i])
            # Of two classes there is one column, which speaks against the first.
            column, sign = (k, 1.0) if scores.shape[1] > 1 or len(self.classes_) == 1 else (0, 2.0 * k - 1.0)
            part = sign * dense(terms.weights[[column]])[0] * dense(terms.values[[i]])[0]
            found.append(tell(self.classes_[k], part, sign * float(terms.bias[column]), called, top))
        return found

    def _column(self, label: Any, scores: np.ndarray) -> int:
        if label is None:
            return (
                int(np.argmax(scores)) if len(scores) > 1 or len(self.classes_) == 1 else int(scores[0] > 0)
            )
        return place_of(label, self.classes_)


def check_top(top: Any) -> None:
    """How many parts are named."""
    if isinstance(top, bool) or not isinstance(top, Integral) or top < 1:
        raise ValueError(f"top must be a whole number, at least 1. Got {top!r} instead.")


def called_parts(names: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """What the parts are called: as told, or as they are known."""
    if names is not None and len(names) != len(known):
        raise ValueError(f"names has {len(names)} entries, but a score has {len(known)} parts.")
    return [str(name) for name in (known if names is None else names)]


def place_of(label: Any, classes: np.ndarray) -> int:
    """The number of a label."""
    places = [k for k, name in enumerate(classes.tolist()) if name == label]
    if not places:
        raise ValueError(f"label={label!r} is not among the labels of the model.")
    return places[0]


def tell(
    label: Any, part: np.ndarray, bias: float, called: Sequence[str], top: int, where: str = ""
) -> Explanation:
    """A score that is the sum of its parts and a bias; the largest parts are named."""
    order = np.argsort(-np.abs(part), kind="stable")
    first = [j for j in order[:top].tolist() if part[j] != 0]
    return Explanation(
        label.item() if isinstance(label, np.generic) else label,
        float(part.sum()) + bias,
        tuple((called[j], float(part[j])) for j in first),
        float(part[order[top:]].sum()),
        bias,
        where,
    )


class Pick(NamedTuple):
    """One row of a group and the label it is asked about; `further` are parts beside its features."""

    row: int
    label: int
    where: str
    further: Sequence[tuple[str, float]] = ()


def explain_rows(
    model: Any, X: Any, picks: Iterable[Pick], top: int, names: Sequence[str] | None
) -> list[Explanation]:
    """Why rows of X, each one of a group, have the scores they have in a linear model of groups."""
    check_top(top)
    called = called_parts(names, feature_names(model))
    found = []
    for row, k, where, further in picks:
        part = np.append(model.coef_[k] * dense(X[[row]])[0], [value for _, value in further])
        every = [*called, *(name for name, _ in further)]
        found.append(tell(model.classes_[k], part, float(model.intercept_[k]), every, top, where))
    return found


def feature_names(model: Any) -> list[str]:
    """Names of the features that a model saw in `fit`, or x0, x1, ..."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def linear_terms(model: Any, X: Any, weights: Any, bias: np.ndarray) -> Terms:
    """Terms of a model that is linear in its features."""
    weights = weights.tocsr() if sp.issparse(weights) else np.asarray(weights, np.float64)
    return Terms(X, weights, np.asarray(bias, np.float64), feature_names(model))


def kernel_terms(
    kernel: Any, X: Any, basis: Any, rows: np.ndarray, weights: np.ndarray, bias: np.ndarray
) -> Terms:
    """Terms of a model with a kernel; `rows` are the training rows of its basis."""
    dtype = np.result_type(X.dtype, np.float64)
    values = kernel.block(X, basis, dtype) if len(rows) else np.zeros((X.shape[0], 0))
    return Terms(values, np.asarray(weights), np.asarray(bias), [f"row {i}" for i in rows.tolist()])


def dense(values: Any) -> np.ndarray:
    return values.toarray() if sp.issparse(values) else np.asarray(values)
