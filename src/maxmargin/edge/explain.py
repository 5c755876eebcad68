"""Explanations: the parts that a score is the sum of.

In a linear model the parts are weights times features. In a kernel model they are coefficients times kernel
values, one for each training row. Both have a bias.
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
    """The output of `decision_function` as values @ weights' + bias, with one column for two classes.

    `values` (n_samples x n_terms, dense or CSR) are features or kernel values, and `names` are the names
    of the terms. `weights` (one row per column of scores) are dense or CSR.
    """

    values: Any
    weights: Any
    bias: np.ndarray
    names: Sequence[str]

    def contrasted(self) -> Terms:
        """Return the second of two columns minus the first."""
        W, b = self.weights, self.bias
        return self._replace(weights=W[1:] - W[:1], bias=b[1:] - b[:1])


@dataclass(frozen=True)
class Explanation:
    """The parts of the score of one label for one sample.

    Attributes
    ----------
    label : the label or class
    score : float
        The output of `decision_function`; for the first of two classes, with the opposite sign.
    parts : tuple of (name, value)
        The parts with the largest absolute values, largest first.
    rest : float
        The sum of all other parts.
    bias : float
        The score minus all parts.
    where : str
        The position in a sequence, or the candidate of a bag; empty if a sample is one row.
    """

    label: Any
    score: float
    parts: tuple[tuple[str, float], ...]
    rest: float
    bias: float
    where: str = ""

    def __str__(self) -> str:
        lines = [f"{self.label}{f' ({self.where})' if self.where else ''}: {self.score:+.4g}"]
        parts = [*self.parts, ("all others", self.rest), ("bias", self.bias)]
        return "\n".join([*lines, *(f"  {value:+.4g}  {name}" for name, value in parts)])


class Explained(ABC):
    """A classifier with `explain`."""

    classes_: np.ndarray

    @abstractmethod
    def _terms(self, X: Any) -> Terms:
        """Return the terms of the scores of X."""

    def explain(
        self, X: Any, label: Any = None, top: int = 10, names: Sequence[str] | None = None
    ) -> list[Explanation]:
        """Split the score of a label into the parts of features or, with a kernel, of training rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        label : name of a label or class, default=None
            None explains the label with the highest score of every sample.
        top : int, default=10
            Number of parts to list; the others are summed.
        names : sequence of str, default=None
            Names of the features, such as ``vectorizer.get_feature_names_out()``. The default is those
            seen in `fit`, otherwise x0, x1, ... Training rows are named by their number.

        Returns
        -------
        list of Explanation
            One per sample; parts, rest and bias add up to the score.
        """
        check_top(top)
        terms = self._terms(X)
        named = named_parts(names, terms.names)
        scores = dense(terms.values @ terms.weights.T) + terms.bias
        found = []
        for i in range(scores.shape[0]):
            k = self._column(label, scores[i])
            # Two classes have one column; its sign is opposite for the first class.
            column, sign = (k, 1.0) if scores.shape[1] > 1 or len(self.classes_) == 1 else (0, 2.0 * k - 1.0)
            part = sign * dense(terms.weights[[column]])[0] * dense(terms.values[[i]])[0]
            found.append(explanation(self.classes_[k], part, sign * float(terms.bias[column]), named, top))
        return found

    def _column(self, label: Any, scores: np.ndarray) -> int:
        if label is None:
            return (
                int(np.argmax(scores)) if len(scores) > 1 or len(self.classes_) == 1 else int(scores[0] > 0)
            )
        return place_of(label, self.classes_)


def check_top(top: Any) -> None:
    """Check the number of parts to list."""
    if isinstance(top, bool) or not isinstance(top, Integral) or top < 1:
        raise ValueError(f"top must be a whole number, at least 1. Got {top!r} instead.")


def named_parts(names: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return the names of the parts, those passed or the default."""
    if names is not None and len(names) != len(known):
        raise ValueError(f"names has {len(names)} entries, but a score has {len(known)} parts.")
    return [str(name) for name in (known if names is None else names)]


def place_of(label: Any, classes: np.ndarray) -> int:
    """Return the column of a label."""
    columns = [k for k, name in enumerate(classes.tolist()) if name == label]
    if not columns:
        raise ValueError(f"label={label!r} is not among the labels of the model.")
    return columns[0]


def explanation(
    label: Any, part: np.ndarray, bias: float, named: Sequence[str], top: int, where: str = ""
) -> Explanation:
    """Return the explanation of a score with the given parts and bias."""
    order = np.argsort(-np.abs(part), kind="stable")
    first = [j for j in order[:top].tolist() if part[j] != 0]
    return Explanation(
        label.item() if isinstance(label, np.generic) else label,
        float(part.sum()) + bias,
        tuple((named[j], float(part[j])) for j in first),
        float(part[order[top:]].sum()),
        bias,
        where,
    )


class Pick(NamedTuple):
    """A row of a group and the label to explain; `further` are parts in addition to its features."""

    row: int
    label: int
    where: str
    further: Sequence[tuple[str, float]] = ()


def explain_rows(
    model: Any, X: Any, picks: Iterable[Pick], top: int, names: Sequence[str] | None
) -> list[Explanation]:
    """Explain the scores of some rows of X in a linear model of groups."""
    check_top(top)
    named = named_parts(names, feature_names(model))
    found = []
    for row, k, where, further in picks:
        part = np.append(model.coef_[k] * dense(X[[row]])[0], [value for _, value in further])
        every = [*named, *(name for name, _ in further)]
        found.append(explanation(model.classes_[k], part, float(model.intercept_[k]), every, top, where))
    return found


def feature_names(model: Any) -> list[str]:
    """Return the feature names of a fitted model, or x0, x1, ..."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def linear_terms(model: Any, X: Any, weights: Any, bias: np.ndarray) -> Terms:
    """Return the terms of a linear model."""
    weights = weights.tocsr() if sp.issparse(weights) else np.asarray(weights, np.float64)
    return Terms(X, weights, np.asarray(bias, np.float64), feature_names(model))


def kernel_terms(
    kernel: Any, X: Any, basis: Any, rows: np.ndarray, weights: np.ndarray, bias: np.ndarray
) -> Terms:
    """Return the terms of a kernel model; `rows` are the numbers of its training rows."""
    dtype = np.result_type(X.dtype, np.float64)
    values = kernel.block(X, basis, dtype) if len(rows) else np.zeros((X.shape[0], 0))
    return Terms(values, np.asarray(weights), np.asarray(bias), [f"row {i}" for i in rows.tolist()])


def dense(values: Any) -> np.ndarray:
    return values.toarray() if sp.issparse(values) else np.asarray(values)
