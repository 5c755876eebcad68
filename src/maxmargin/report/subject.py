"""What a report is about: a fitted model and the labelled data it was judged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Promise:
    """The share of true labels found (recall) or of given labels that are true (precision) that was promised.

    Attributes
    ----------
    kind : {"recall", "precision"}
    share, found : float
        What was promised, and how it came out on the test samples.
    n_calibration : int
        Samples that the thresholds come from.
    """

    kind: str
    share: float
    found: float
    n_calibration: int


@dataclass(frozen=True)
class Subject:
    """A fitted model, the labelled data it was judged on, and what stands beside it.

    Attributes
    ----------
    name, data : str
        What the model and the data are called.
    model : estimator
        The fitted estimator, without the scaling before it.
    X : matrix
        Features of the test samples as the estimator sees them, behind the scaling.
    truth, predicted : arrays
        Labels of the test samples: an indicator, or one class per sample (or position).
    measures, seconds : mapping, float
        Results of the model and the time its fit took.
    better : mapping of str to bool
        For each measure, whether more is better.
    predict_seconds : float or None
        The time its predictions took.
    scores : array or None
        Score of every label, where the model gives one.
    probabilities : array or None
        Probability of every label, where the model gives one.
    promise : Promise or None
        What the sets of labels were promised to hold.
    lengths : array of int or None
        Positions of each sequence.
    baseline, baseline_measures, baseline_seconds, baseline_scores : str, mapping, float, array or None
        The same of a scikit-learn estimator, where one was fitted.
    label_names, feature_names : sequences of str
    training_labels : labels or None
        Labels of the training samples.
    training : str
        What the model was trained on, in words.
    caution : str
        What has to be known before the figures are read, such as that the model was trained on these samples.
    preprocessing : str
        What is done to the features before, in words.
    thresholds : array or None
        For each label the score above which it is worth predicting, chosen on training data.
    texts : sequence of str or None
        What each test sample is: its text or its file.
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
        """How many samples it was judged on, in words."""
        return f"{self.X.shape[0]} samples" if self.lengths is None else f"{len(self.lengths)} sequences"

    @property
    def names(self) -> list[str]:
        """Names of the columns of an indicator, or of the classes."""
        found = list(self.label_names)
        return found if found else [str(name) for name in self.model.classes_]

    @property
    def features(self) -> list[str]:
        """Names of the features, or their numbers."""
        found = list(self.feature_names)
        return found if found else [f"x{j}" for j in range(self.X.shape[1])]

    @property
    def weights(self) -> Any:
        """One row of weights per name, dense or CSR; None where the model is not linear in its features."""
        coef = getattr(self.model, "coef_", None)
        if coef is None or np.ndim(coef) != 2 or hasattr(self.model, "basis_vectors_"):
            return None
        coef = coef.tocsr() if sp.issparse(coef) else np.asarray(coef)
        if coef.shape[0] == 1 and len(self.names) == 2:
            coef = sp.vstack([-coef, coef], format="csr") if sp.issparse(coef) else np.vstack([-coef, coef])
        return coef if coef.shape == (len(self.names), self.X.shape[1]) else None

    def terms(self, i: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Terms of the scores of one test sample, their weights for every name, and what they are called."""
        terms = self.model._terms(self.X[[i]])
        values = terms.values.toarray() if sp.issparse(terms.values) else np.asarray(terms.values)
        weights = terms.weights
        if weights.shape[0] == 1 and len(self.names) == 2:
            weights = np.vstack([-weights, weights])
        return values[0], weights, list(terms.names)

    def row(self, i: int) -> np.ndarray:
        """One test sample, dense."""
        return row_of(self.X, i)


def row_of(matrix: Any, k: int) -> np.ndarray:
    """One row of a dense or sparse matrix, dense."""
    return matrix[[k]].toarray()[0] if sp.issparse(matrix) else np.asarray(matrix[k])


def indicator(labels: Any) -> np.ndarray | None:
    """A dense 0/1 matrix, None for one class per sample."""
    if labels is None or np.ndim(labels) != 2:
        return None
    dense = labels.toarray() if sp.issparse(labels) else np.asarray(labels)
    return (dense > 0).astype(int)


def correlation(Y: np.ndarray) -> np.ndarray:
    """Correlations of the columns; NaN for a column that never changes."""
    centred = Y - Y.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=0))
    scale[scale == 0] = np.nan
    return (centred / scale).T @ (centred / scale)


def f1_of(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """F1 of every column; 0 where nothing is true and nothing predicted."""
    hits = (truth * predicted).sum(axis=0)
    return 2 * hits / np.maximum(truth.sum(axis=0) + predicted.sum(axis=0), 1)


def micro_f1(truth: np.ndarray, predicted: np.ndarray) -> float:
    """F1 over all entries; 0 where nothing is true and nothing predicted."""
    return float(2 * (truth * predicted).sum() / max(truth.sum() + predicted.sum(), 1))


def own_cut(subject: Subject) -> str:
    """What a label needs to be in an answer: "score" (above 0), "probability" (above 0.5), "" for neither."""
    predicted = indicator(subject.predicted)
    if predicted is None:
        return ""
    if subject.scores is not None and np.array_equal(predicted, np.asarray(subject.scores) > 0):
        return "score"
    found = subject.probabilities
    return "probability" if found is not None and np.array_equal(predicted, np.asarray(found) > 0.5) else ""


@dataclass(frozen=True)
class LabelResult:
    """How one label is predicted; `constant` is the F1 of predicting it always."""

    name: str
    precision: float
    recall: float
    f1: float
    samples: int
    predicted: int
    constant: float


def per_label(subject: Subject) -> list[LabelResult]:
    """Results of every label or class, in their order."""
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    names = subject.names
    if truth is None or predicted is None:
        classes = np.unique(np.concatenate([np.asarray(subject.truth), np.asarray(subject.predicted)]))
        truth = (np.asarray(subject.truth)[:, None] == classes).astype(int)
        predicted = (np.asarray(subject.predicted)[:, None] == classes).astype(int)
        names = [str(name) for name in classes]
    hits, n = (truth * predicted).sum(axis=0), len(truth)
    true, told, f1 = truth.sum(axis=0), predicted.sum(axis=0), f1_of(truth, predicted)
    return [
        LabelResult(
            name, float(hits[k] / max(told[k], 1)), float(hits[k] / max(true[k], 1)), float(f1[k]),
            int(true[k]), int(told[k]), float(2 * true[k] / (n + true[k])),
        )
        for k, name in enumerate(names)
    ]  # fmt: skip
