"""What a report is about: a fitted model, the data it was judged on, and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp


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
    lengths : array of int or None
        Positions of each sequence.
    baseline, baseline_measures, baseline_seconds : str, mapping, float
        The same of a scikit-learn estimator, where one was fitted.
    label_names, feature_names : sequences of str
    training_labels : labels or None
        Labels of the training samples.
    training : str
        What the model was trained on, in words.
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
    seconds: float
    better: Mapping[str, bool] = field(default_factory=dict)
    predict_seconds: float | None = None
    scores: Any = None
    lengths: Any = None
    baseline: str = ""
    baseline_measures: Mapping[str, float] = field(default_factory=dict)
    baseline_seconds: float | None = None
    label_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    training_labels: Any = None
    training: str = ""
    texts: Sequence[str] | None = None

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
    def weights(self) -> np.ndarray | None:
        """One row of weights per name, None where the model is not linear in its features."""
        coef = getattr(self.model, "coef_", None)
        if coef is None or np.ndim(coef) != 2 or hasattr(self.model, "basis_vectors_"):
            return None
        if len(coef) == 1 and len(self.names) == 2:
            coef = np.vstack([-coef, coef])
        return np.asarray(coef) if coef.shape == (len(self.names), self.X.shape[1]) else None

    def row(self, i: int) -> np.ndarray:
        """One test sample, dense."""
        return self.X[[i]].toarray()[0] if sp.issparse(self.X) else np.asarray(self.X[i])


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
