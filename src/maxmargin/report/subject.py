"""The subject of a report: a fitted model and labelled test samples, with measures and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Promise:
    """The guarantee of a `LabelSets`.

    Attributes
    ----------
    kind : {"recall", "precision"}
    share, found : float
        The guaranteed share, and the share on the test samples.
    n_calibration : int
        Number of samples that the thresholds are computed from.
    """

    kind: str
    share: float
    found: float
    n_calibration: int


@dataclass(frozen=True)
class Subject:
    """A fitted model, the labelled test samples, and a baseline.

    Attributes
    ----------
    name, data : str
        Names of the model and of the data.
    model : estimator
        The fitted estimator, without the preprocessing before it.
    X : matrix
        Features of the test samples, after the preprocessing.
    truth, predicted : arrays
        Labels of the test samples: an indicator, or one class per sample (or position).
    measures, seconds : mapping, float
        Results of the model, and the time of its fit.
    better : mapping of str to bool
        For each measure, whether a larger value is better.
    predict_seconds : float or None
        The time of its predictions.
    scores, probabilities : array or None
        Score and probability of every label, if the model has them.
    promise : Promise or None
        The guarantee of its sets of labels.
    lengths : array of int or None
        Number of positions of each sequence.
    baseline, baseline_measures, baseline_seconds : str, mapping, float or None
        A model to compare with: its name, results and time to fit.
    baseline_predicted, baseline_scores : array or None
        Its predictions and scores.
    label_names, feature_names : sequences of str
    training_labels : array or None
        Labels of the training samples.
    training, caution, preprocessing : str
        Sentences on the training data, on what limits the results, and on the preprocessing.
    thresholds : array or None
        A threshold for each label, tuned on the training data.
    texts : sequence of str or None
        The text or file of each test sample.
    """

    name: str
    data: str
    model: Any
    X: Any
    truth: Any
    predicted: Any
    measures: Mapping[str, float]
    seconds: float | None
    better: Mapping[str, bool] = field(default_factory=dict)
    predict_seconds: float | None = None
    scores: Any = None
    probabilities: Any = None
    promise: Promise | None = None
    lengths: Any = None
    baseline: str = ""
    baseline_measures: Mapping[str, float] = field(default_factory=dict)
    baseline_seconds: float | None = None
    baseline_predicted: Any = None
    baseline_scores: Any = None
    label_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    training_labels: Any = None
    training: str = ""
    caution: str = ""
    preprocessing: str = ""
    thresholds: Any = None
    texts: Sequence[str] | None = None

    @property
    def size(self) -> str:
        """Number of test samples, in words."""
        return f"{self.X.shape[0]} samples" if self.lengths is None else f"{len(self.lengths)} sequences"

    @property
    def names(self) -> list[str]:
        """Names of the columns of an indicator, or of the classes."""
        return list(self.label_names) or [str(name) for name in self.model.classes_]

    @property
    def features(self) -> list[str]:
        """Names of the features, or their numbers."""
        return list(self.feature_names) or [f"x{j}" for j in range(self.X.shape[1])]

    @property
    def weights(self) -> Any:
        """One row of weights per label, dense or CSR; None if the model is not linear in its features."""
        coef = getattr(self.model, "coef_", None)
        if coef is None or np.ndim(coef) != 2 or hasattr(self.model, "basis_vectors_"):
            return None
        coef = two_rows(coef.tocsr() if sp.issparse(coef) else np.asarray(coef), self.names)
        return coef if coef.shape == (len(self.names), self.X.shape[1]) else None

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Measures of the predictions, with errors."""
        return estimates(self, self.predicted)

    @cached_property
    def baseline_estimates(self) -> dict[str, Estimate]:
        """Measures of the predictions of the baseline, with errors."""
        return estimates(self, self.baseline_predicted)

    def terms(self, i: int) -> tuple[np.ndarray, Any, list[str]]:
        """Terms of the scores of one test sample, their weights for every label, and their names."""
        terms = self.model._terms(self.X[[i]])
        values = terms.values.toarray() if sp.issparse(terms.values) else np.asarray(terms.values)
        return values[0], two_rows(terms.weights, self.names), list(terms.names)


def two_rows(weights: Any, names: Sequence[str]) -> Any:
    """Return one row of weights per label, also for two classes with a single row."""
    if weights.shape[0] != 1 or len(names) != 2:
        return weights
    return (
        sp.vstack([-weights, weights], format="csr")
        if sp.issparse(weights)
        else np.vstack([-weights, weights])
    )


def row_of(matrix: Any, k: int) -> np.ndarray:
    """Return one row of a dense or sparse matrix as a vector."""
    return matrix[[k]].toarray()[0] if sp.issparse(matrix) else np.asarray(matrix[k])


def indicator(labels: Any) -> np.ndarray | None:
    """Return labels as a dense 0/1 matrix, None for one class per sample."""
    if labels is None or np.ndim(labels) != 2:
        return None
    dense = labels.toarray() if sp.issparse(labels) else np.asarray(labels)
    return (dense > 0).astype(int)


def correlation(Y: np.ndarray) -> np.ndarray:
    """Return the correlations of the columns; NaN for a constant column."""
    centred = Y - Y.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=0))
    scale[scale == 0] = np.nan
    return (centred / scale).T @ (centred / scale)


def f1_of(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the F1 of every column; 0 if nothing is true and nothing predicted."""
    hits = (truth * predicted).sum(axis=0)
    return 2 * hits / np.maximum(truth.sum(axis=0) + predicted.sum(axis=0), 1)


class Estimate(NamedTuple):
    """A measure on the test samples, and the influence of each sample on it."""

    value: Any
    influence: np.ndarray

    def error(self, other: Estimate | None = None) -> float:
        """Return the standard error of the measure, or of its difference to the `other` model."""
        influence = self.influence if other is None else self.influence - other.influence
        return float(influence.std() / np.sqrt(len(influence)))


def _ratio(part: np.ndarray, whole: np.ndarray) -> Estimate:
    """Estimate sum(part) / sum(whole) over samples; by the delta method, its error is that of a mean."""
    total = np.maximum(whole.sum(axis=0), 1e-300)
    value = part.sum(axis=0) / total
    return Estimate(value, len(part) * (part - value * whole) / total)


def _indicators(subject: Subject, predicted: Any) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return names, truth and predictions as 0/1 matrices; classes have one column each."""
    truth, chosen = indicator(subject.truth), indicator(predicted)
    if truth is not None and chosen is not None:
        return subject.names, truth, chosen
    both = [np.asarray(subject.truth), np.asarray(predicted)]
    classes = np.unique(np.concatenate(both))
    truth, chosen = ((labels[:, None] == classes).astype(int) for labels in both)
    return [str(name) for name in classes], truth, chosen


def estimates(subject: Subject, predicted: Any) -> dict[str, Estimate]:
    """Return the measures that depend on true and predicted labels only; none if truth has NaN."""
    truth = subject.truth
    if predicted is None or (getattr(truth, "dtype", np.dtype(int)).kind == "f" and (truth != truth).any()):
        return {}
    if subject.lengths is not None:
        lengths = np.asarray(subject.lengths)
        right = (np.asarray(truth) == np.asarray(predicted)).astype(int)
        hits = np.add.reduceat(right, np.cumsum(lengths) - lengths)
        words = _ratio(hits == lengths, np.ones(len(hits)))
        return {"letter accuracy": _ratio(hits, lengths), "word accuracy": words}
    _, on, chosen = _indicators(subject, predicted)
    sizes, right = on + chosen, on == chosen
    hits, size = (on * chosen).sum(axis=1), sizes.sum(axis=1)
    ones, per_label = np.ones(len(on)), _ratio(2 * on * chosen, sizes)
    macro = Estimate(per_label.value.mean(), per_label.influence.mean(axis=1))
    exact = _ratio(right.all(axis=1), ones)
    if np.ndim(truth) != 2:
        return {"accuracy": exact, "top label right": exact, "macro F1": macro}
    return {
        "micro F1": _ratio(2 * hits, size),
        "macro F1": macro,
        "example F1": _ratio(np.where(size == 0, 1.0, 2 * hits / np.maximum(size, 1)), ones),
        "Hamming loss": _ratio((~right).mean(axis=1), ones),
        "exact match": exact,
    }


def answers_by(subject: Subject) -> str:
    """Return how labels are predicted: "score" above 0, "probability" above 0.5, or "" for neither."""
    predicted = indicator(subject.predicted)
    if predicted is None:
        return ""
    if subject.scores is not None and np.array_equal(predicted, np.asarray(subject.scores) > 0):
        return "score"
    found = subject.probabilities
    return "probability" if found is not None and np.array_equal(predicted, np.asarray(found) > 0.5) else ""


class LabelResult(NamedTuple):
    """Results of one label; `constant` is the F1 of predicting it for every sample."""

    name: str
    precision: float
    recall: float
    f1: float
    samples: int
    predicted: int
    constant: float


def per_label(subject: Subject) -> list[LabelResult]:
    """Return the results of every label or class."""
    names, truth, predicted = _indicators(subject, subject.predicted)
    hits, true, chosen = (part.sum(axis=0) for part in (truth * predicted, truth, predicted))
    precision, recall = hits / np.maximum(chosen, 1), hits / np.maximum(true, 1)
    constant = 2 * true / (len(truth) + true)
    numbers = (precision, recall, f1_of(truth, predicted), true, chosen, constant)
    rows = zip(*(column.tolist() for column in numbers), strict=True)
    return [LabelResult(name, *row) for name, row in zip(names, rows, strict=True)]
