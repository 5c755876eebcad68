"""What a report says of one fitted model."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.report import _pictures
from maxmargin.report._page import Section, picture, table, text

LABELS = 30
CURVES = 6
FEATURES = 6
ERRORS = 8


@dataclass(frozen=True)
class Subject:
    """A fitted model, the labelled data it was judged on, and what stands beside it.

    Attributes
    ----------
    name, data : str
        What the model and the data are called.
    model : estimator
        The fitted estimator, without the scaling before it.
    truth, predicted : arrays
        Labels of the test samples: an indicator, or one class per sample (or position).
    measures, seconds : mapping, float
        Results of the model and the time its fit took.
    scores : array or None
        Score of every label, where the model gives one.
    baseline, baseline_measures, baseline_seconds : str, mapping, float
        The same of a scikit-learn estimator, where one was fitted.
    label_names, feature_names : sequences of str
    training_labels : indicator or None
        Labels of the training samples.
    """

    name: str
    data: str
    model: Any
    truth: Any
    predicted: Any
    measures: Mapping[str, float]
    seconds: float
    scores: Any = None
    baseline: str = ""
    baseline_measures: Mapping[str, float] = field(default_factory=dict)
    baseline_seconds: float | None = None
    label_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    training_labels: Any = None

    @property
    def names(self) -> list[str]:
        """Names of the columns of an indicator, or of the classes."""
        found = list(self.label_names)
        return found if found else [str(name) for name in self.model.classes_]


def sections(subject: Subject) -> Iterator[Section]:
    """All sections that apply to a model; the first is of level 2."""
    yield Section(f"{subject.name} on {subject.data}", _summary(subject))
    history = getattr(subject.model, "history_", None)
    if history and len(history) > 1:
        words = "Objective and certified gap against training time."
        yield Section("Training", picture(_pictures.training(history), words), 3)
    yield Section("Labels", _labels(subject), 3)
    truth, scores = _indicator(subject.truth), subject.scores
    if truth is not None and scores is not None and np.ndim(scores) == 2:
        most = np.argsort(-truth.sum(axis=0), kind="stable")[:CURVES]
        names = [subject.names[k] for k in most]
        words = "F1 of the most frequent labels, for every threshold on their score."
        yield Section(
            "Thresholds", picture(_pictures.thresholds(truth[:, most], scores[:, most], names), words), 3
        )
    if truth is not None and truth.shape[1] > 1:
        yield Section("Label correlations", _correlations(subject, truth), 3)
    weights = _weights(subject)
    if weights:
        yield Section("Most weighted features", weights, 3)
    yield Section("Errors", _errors(subject), 3)


def versions() -> Section:
    """What everything ran on."""
    packages = ("maxmargin", "numpy", "scipy", "scikit-learn", "numba")
    rows = [[name, metadata.version(name)] for name in packages]
    rows += [["Python", platform.python_version()], ["machine", f"{platform.system()} {platform.machine()}"]]
    return Section("Versions", table(["what", "version"], rows))


def _summary(subject: Subject) -> str:
    model = subject.model
    params = {
        key: value
        for key, value in model.get_params().items()
        if isinstance(value, (int, float, str)) and not isinstance(value, bool) and key != "verbose"
    }
    words = f"{type(model).__name__}({', '.join(f'{key}={value!r}' for key, value in params.items())})"
    beside = subject.baseline_measures
    columns = ["measure", "maxmargin"] + ([subject.baseline] if beside else [])
    rows: list[list[Any]] = [
        [key, value, *([beside[key]] if beside else [])] for key, value in subject.measures.items()
    ]
    rows.append(["seconds to fit", subject.seconds, *([subject.baseline_seconds] if beside else [])])
    for title, attribute in (
        ("epochs", "n_iter_"),
        ("relative duality gap", "duality_gap_"),
        ("basis vectors", "n_basis_"),
    ):
        if hasattr(model, attribute):
            rows.append([title, getattr(model, attribute), *([None] if beside else [])])
    if hasattr(model, "support_"):
        rows.append(["support vectors", len(model.support_), *([None] if beside else [])])
    return text(words) + table(columns, rows)


def _labels(subject: Subject) -> str:
    from sklearn.metrics import precision_recall_fscore_support

    truth, predicted = subject.truth, subject.predicted
    known = _indicator(truth)
    if known is not None:
        wanted = {"labels": list(range(known.shape[1]))}
        truth, predicted, names = known, _indicator(predicted), subject.names
    else:
        classes = np.unique(np.asarray(truth))
        wanted, names = {"labels": classes.tolist()}, [str(name) for name in classes]
    found = precision_recall_fscore_support(truth, predicted, average=None, zero_division=0, **wanted)
    order = np.argsort(-found[3], kind="stable")[:LABELS]
    rows = [[names[k], *(float(column[k]) for column in found[:3]), int(found[3][k])] for k in order]
    more = text(f"The {LABELS} most frequent of {len(names)}.") if len(names) > LABELS else ""
    return more + table(["label", "precision", "recall", "F1", "samples"], rows)


def _correlations(subject: Subject, truth: np.ndarray) -> str:
    matrices: dict[str, np.ndarray] = {}
    training = _indicator(subject.training_labels)
    if training is not None:
        matrices["training labels"] = _correlation(training)
    prior = getattr(subject.model, "prior_", None)
    if prior is not None:
        scale = np.sqrt(np.diag(prior))
        matrices["prior"] = prior / np.outer(scale, scale)
    matrices["test labels"] = _correlation(truth)
    predicted = _indicator(subject.predicted)
    assert predicted is not None
    matrices["predicted"] = _correlation(predicted)
    return picture(_pictures.correlations(matrices), f"Correlation of labels: {', '.join(matrices)}.")


def _correlation(Y: np.ndarray) -> np.ndarray:
    centred = Y - Y.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=0))
    scale[scale == 0] = 1
    return (centred / scale).T @ (centred / scale)


def _weights(subject: Subject) -> str:
    model, features = subject.model, subject.feature_names
    coef = getattr(model, "coef_", None)
    if coef is None or not features or coef.shape != (len(subject.names), len(features)):
        return ""
    rows = []
    for k, name in enumerate(subject.names[:LABELS]):
        best = np.argsort(-np.abs(coef[k]), kind="stable")[:FEATURES]
        rows.append([name, ", ".join(f"{features[j]} {coef[k, j]:+.2f}" for j in best)])
    return table(["label", "features with the largest weights"], rows)


def _errors(subject: Subject) -> str:
    truth, predicted = _indicator(subject.truth), _indicator(subject.predicted)
    rows = []
    if truth is None or predicted is None:
        a, b = np.asarray(subject.truth), np.asarray(subject.predicted)
        wrong = np.flatnonzero(a != b)
        rows = [[int(i), str(a[i]), str(b[i])] for i in wrong[:ERRORS]]
    else:
        wrong = np.flatnonzero((truth != predicted).any(axis=1))
        names = subject.names
        for i in wrong[:ERRORS]:
            words = [", ".join(names[k] for k in np.flatnonzero(Y[i])) or "none" for Y in (truth, predicted)]
            rows.append([int(i), *words])
    n = len(predicted if predicted is not None else subject.predicted)
    return text(f"{len(wrong)} of {n} answers differ from the truth.") + table(
        ["test sample", "truth", "predicted"], rows
    )


def _indicator(labels: Any) -> np.ndarray | None:
    """A dense 0/1 matrix, None for one class per sample."""
    if labels is None or np.ndim(labels) != 2:
        return None
    dense = labels.toarray() if sp.issparse(labels) else np.asarray(labels)
    return (dense > 0).astype(int)
