"""What a report says of one fitted model, in its order.

The summary comes first, then training, labels, what the model holds, and errors with examples.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import metadata
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.report import pictures
from maxmargin.report.page import (
    Figure,
    Html,
    Section,
    bar,
    chips,
    folded,
    number,
    picture,
    share,
    table,
    text,
)

# Labels of a table, and labels with a curve of their own.
LABELS = 30
CURVES = 6
# Classes up to which a matrix of confusions can be read.
CONFUSED = 40
# Features and pairs of labels that are named.
FEATURES = 6
PAIRS = 8
# Errors shown, features named for each, and letters of its text.
ERRORS = 8
REASONS = 5
LETTERS = 120


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


def sections(subject: Subject) -> Iterator[Section]:
    """All sections that apply to a model; the first is of level 2."""
    yield Section(f"{subject.name} on {subject.data}", _summary(subject))
    history = getattr(subject.model, "history_", None)
    # The gaps of a growing basis are those of different problems; its section shows the growth.
    if history and len(history) > 1 and not hasattr(subject.model, "basis_vectors_"):
        words = "Objective and certified gap against training time."
        yield Section("Training", picture(pictures.training(history), words), 3)
    yield from label_sections(subject)
    yield from inside_sections(subject)
    yield Section("Errors", mistakes(subject), 3)


def versions() -> Section:
    """What everything ran on."""
    packages = ("maxmargin", "numpy", "scipy", "scikit-learn", "numba")
    rows = [[name, metadata.version(name)] for name in packages]
    rows += [
        ["Python", platform.python_version()],
        ["machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"],
    ]
    return Section("Versions", table(["what", "version"], rows))


def _summary(subject: Subject) -> str:
    model = subject.model
    n = len(subject.lengths) if subject.lengths is not None else subject.X.shape[0]
    unit = "sequences" if subject.lengths is not None else "samples"
    words = f"{subject.training} Judged on {n} {unit} of {subject.X.shape[1]} features and "
    words += f"{len(subject.names)} {'labels' if np.ndim(subject.truth) == 2 else 'classes'}."
    beside = subject.baseline_measures
    columns = ["measure", "maxmargin"] + ([subject.baseline] if beside else [])
    rows: list[list[Any]] = []
    for key, value in subject.measures.items():
        rows.append([key, *_judged(value, beside.get(key), subject.better.get(key, True))])
    rows.append(["seconds to fit", subject.seconds, *([subject.baseline_seconds] if beside else [])])
    rows.append(["seconds to predict", subject.predict_seconds, *([None] if beside else [])])
    for title, value in _figures(model):
        rows.append([title, value, *([None] if beside else [])])
    return text(words.strip()) + _call(model) + table(columns, rows)


def _judged(ours: float, theirs: float | None, more: bool) -> list[Any]:
    """Two figures, the better one marked."""
    if theirs is None:
        return [ours]
    found = [Figure(number(ours)), Figure(number(theirs))]
    if ours != theirs:
        winner = 0 if (ours > theirs) == more else 1
        found[winner] = Figure(f'<b class="best">{found[winner]}</b>')
    return found


def _figures(model: Any) -> Iterator[tuple[str, Any]]:
    shown = [
        ("epochs", "n_iter_"),
        ("objective", "primal_objective_"),
        ("relative duality gap", "duality_gap_"),
        ("basis vectors", "n_basis_"),
    ]
    if hasattr(model, "n_mistakes_"):  # one pass over a stream does not aim at an optimum
        shown = [("rounds", "n_rounds_"), ("mistakes while learning", "n_mistakes_")]
    for title, attribute in shown:
        if hasattr(model, attribute):
            yield title, getattr(model, attribute)
    if hasattr(model, "support_"):
        yield "support vectors", len(model.support_)


def _call(model: Any) -> str:
    """The estimator with what differs from its defaults, and all parameters to open."""
    params = model.get_params(deep=False)
    default = type(model)().get_params(deep=False)
    said = ", ".join(
        f"{key}={_word(value)}" for key, value in params.items() if _word(value) != _word(default.get(key))
    )
    every = table(["parameter", "value"], [[key, _word(value)] for key, value in sorted(params.items())])
    return f"<p><code>{escape(type(model).__name__)}({escape(said)})</code></p>" + folded(
        "all parameters", every
    )


def _word(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return getattr(value, "__name__", None) or repr(value)


def label_sections(subject: Subject) -> Iterator[Section]:
    """Sections on labels, as far as they apply."""
    yield Section("Labels", _labels(subject), 3)
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    if truth is not None and predicted is not None:
        if subject.scores is not None:
            yield Section("Thresholds", _thresholds(subject, truth), 3)
        if truth.shape[1] > 1:
            yield Section("Label correlations", _correlations(subject, truth, predicted), 3)
    elif hasattr(subject.model, "rank") and subject.scores is not None:
        yield Section("Ranking", _ranking(subject), 3)
    if truth is None and 1 < len(subject.names) <= CONFUSED:
        yield Section("Confusions", _confusions(subject), 3)


def _labels(subject: Subject) -> str:
    from sklearn.metrics import precision_recall_fscore_support

    truth, predicted = subject.truth, subject.predicted
    known = indicator(truth)
    if known is not None:
        wanted = {"labels": list(range(known.shape[1]))}
        truth, predicted, names = known, indicator(predicted), subject.names
    else:
        classes = np.unique(np.asarray(truth))
        wanted, names = {"labels": classes.tolist()}, [str(name) for name in classes]
    found = precision_recall_fscore_support(truth, predicted, average=None, zero_division=0, **wanted)
    order = np.argsort(-found[3], kind="stable")[:LABELS]
    rows = []
    for k in order:
        precision, recall, f1 = (float(column[k]) for column in found[:3])
        rows.append([names[k], share(precision), share(recall), share(f1), bar(f1), int(found[3][k])])
    more = text(f"The {LABELS} most frequent of {len(names)}.") if len(names) > LABELS else ""
    return more + table(["label", "precision", "recall", "F1", "", "samples"], rows)


def _thresholds(subject: Subject, truth: np.ndarray) -> str:
    scores = np.asarray(subject.scores)
    most = np.argsort(-truth.sum(axis=0), kind="stable")[:CURVES]
    names = [subject.names[k] for k in most]
    curves = pictures.thresholds(truth[:, most], scores[:, most], names)
    words = (
        "F1 of the most frequent labels, for every threshold on their score; the dot is the best one. "
        "A threshold chosen here must be tested on other data."
    )
    rows = []
    for k in np.argsort(-truth.sum(axis=0), kind="stable")[:LABELS]:
        at, f1 = pictures.f1_curve(truth[:, k], scores[:, k])
        best = int(np.argmax(f1))
        now = (scores[:, k] > 0).astype(int)
        own = 2 * float(now @ truth[:, k]) / max(float(now.sum() + truth[:, k].sum()), 1.0)
        rows.append([subject.names[k], share(own), share(float(f1[best])), share(float(at[best]))])
    return picture(curves, words) + table(["label", "F1 at 0", "best F1", "best threshold"], rows)


def _correlations(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    matrices: dict[str, np.ndarray] = {}
    training = indicator(subject.training_labels)
    if training is not None:
        matrices["training labels"] = correlation(training)
    prior = getattr(subject.model, "prior_", None)
    if prior is not None:
        scale = np.sqrt(np.diag(prior))
        matrices["prior"] = prior / np.outer(scale, scale)
    matrices["test labels"] = correlation(truth)
    matrices["predicted"] = correlation(predicted)
    words = (
        f"Correlation of labels: {', '.join(matrices)}. Red: together, blue: apart, grey: a label that all "
        "samples have, or none."
    )
    return picture(pictures.correlations(matrices, subject.names), words)


def _ranking(subject: Subject) -> str:
    """Where the true label of each sample stands; labels that the model never met stand nowhere."""
    names = {name: k for k, name in enumerate(subject.model.classes_.tolist())}
    scores = np.asarray(subject.scores)
    places = np.full(len(scores), scores.shape[1] + 1)
    for i, label in enumerate(np.asarray(subject.truth).tolist()):
        if label in names:
            places[i] = 1 + int((scores[i] > scores[i, names[label]]).sum())
    words = (
        "At which place the true label is ranked (later: a label that the model has never met), and the "
        "share of wrong first places so far, in the order of the test samples."
    )
    shares = [(k, float((places <= k).mean())) for k in (1, 2, 3, 5, 10) if k <= scores.shape[1]]
    rows = [[f"among the first {k}", share(found), bar(found)] for k, found in shares]
    drawn = picture(pictures.ranking(places, scores.shape[1]), words)
    return drawn + table(["true label", "share", ""], rows)


def _confusions(subject: Subject) -> str:
    from sklearn.metrics import confusion_matrix

    classes = np.asarray(subject.model.classes_)
    truth, predicted = np.asarray(subject.truth), np.asarray(subject.predicted)
    known = np.isin(truth, classes)
    counts = confusion_matrix(truth[known], predicted[known], labels=classes)
    wrong = [(int(counts[a, b]), a, b) for a in range(len(counts)) for b in range(len(counts)) if a != b]
    rows = [
        [str(classes[a]), str(classes[b]), n, share(n / max(int(counts[a].sum()), 1))]
        for n, a, b in sorted(wrong, reverse=True)[:6]
        if n
    ]
    words = "Rows: the truth. Columns: the prediction. The darker, the larger a part of its row."
    most = table(["truth", "predicted", "times", "share of the truth"], rows) if rows else ""
    return picture(pictures.confusions(counts, [str(name) for name in classes]), words) + most


def inside_sections(subject: Subject) -> Iterator[Section]:
    """Sections on what the model learnt, as far as they apply."""
    if subject.weights is not None:
        yield Section("Most weighted features", _weights(subject), 3)
    model = subject.model
    if getattr(model, "interaction_", None) is not None:
        yield Section("Attractive pairs", _pairs(subject), 3)
    if hasattr(model, "transitions_") and len(subject.names) <= CONFUSED:
        words = "Weight of each class (column) after each other (row)."
        drawn = pictures.weights(model.transitions_, subject.names)
        yield Section("Transitions", picture(drawn, words), 3)
    if hasattr(model, "basis_vectors_"):
        yield Section("Basis vectors", _basis(subject), 3)
    if hasattr(model, "support_"):
        yield Section("Support vectors", _support(subject), 3)


def _weights(subject: Subject) -> str:
    weights, features = subject.weights, subject.features
    assert weights is not None
    rows = []
    for k, name in enumerate(subject.names[:LABELS]):
        best = np.argsort(-np.abs(weights[k]), kind="stable")[:FEATURES]
        rows.append([name, chips(_signed(features[j], weights[k, j]) for j in best if weights[k, j])])
    if len(subject.names) > LABELS:
        rows.append([f"and {len(subject.names) - LABELS} more", ""])
    return table(["label", "features with the largest weights"], rows, wrapped=[1])


def _signed(name: str, value: float) -> tuple[str, str]:
    return (
        f"{name} {'+' if value >= 0 else '−'}{number(abs(float(value)))}",
        "plus" if value >= 0 else "minus",
    )


def _pairs(subject: Subject) -> str:
    upper = np.triu(np.asarray(subject.model.interaction_), 1)
    order = np.argsort(-upper, axis=None, kind="stable")[:PAIRS]
    pairs = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, upper.shape), strict=True)]
    names = subject.names
    rows = [[names[a], names[b], float(upper[a, b])] for a, b in pairs if upper[a, b] > 0]
    if not rows:
        return text("No two labels attract each other.")
    return table(["label", "attracts", "by"], rows)


def _basis(subject: Subject) -> str:
    """Which training samples carry the model, and for which labels they speak most."""
    model = subject.model
    coef = np.atleast_2d(np.asarray(model.coef_))
    if len(coef) == 1 and len(subject.names) == 2:
        coef = np.vstack([-coef, coef])
    where = np.asarray(model.basis_indices_)
    labels = subject.training_labels
    rows = []
    for j in range(min(len(where), LABELS)):
        best = np.argsort(-np.abs(coef[:, j]), kind="stable")[:4]
        row: list[Any] = [int(where[j])]
        if labels is not None:
            row.append(_label_words(labels, int(where[j]), subject.names))
        row.append(chips(_signed(subject.names[k], coef[k, j]) for k in best))
        rows.append(row)
    columns = ["training sample", *(["its labels"] if labels is not None else []), "speaks for and against"]
    words = f"{len(where)} of the training samples, in the order in which they were chosen."
    drawn = ""
    history = getattr(model, "history_", ())
    if len(history) > 1:
        drawn = picture(pictures.growth(history), "Objective while the basis grew.")
    return text(words) + drawn + table(columns, rows, wrapped=[len(columns) - 1])


def _label_words(labels: Any, i: int, names: list[str]) -> str:
    known = indicator(labels[[i]] if np.ndim(labels) == 2 else None)
    if known is None:
        return str(np.asarray(labels)[i])
    return ", ".join(names[k] for k in np.flatnonzero(known[0])) or "none"


def _support(subject: Subject) -> str:
    model = subject.model
    words = f"{len(model.support_)} training samples have a part in the model."
    dual = getattr(model, "dual_coef_", None)
    if dual is None or np.ndim(dual) != 2:
        return text(words)
    dense = np.asarray(dual.toarray() if hasattr(dual, "toarray") else dual)
    counts = (dense != 0).sum(axis=1) if len(dense) == len(subject.names) else (dense != 0).sum(axis=0)
    if len(counts) != len(subject.names):
        return text(words)
    order = np.argsort(-counts, kind="stable")[:LABELS]
    return text(words) + table(
        ["label", "support vectors"], [[subject.names[k], int(counts[k])] for k in order]
    )


def mistakes(subject: Subject) -> str:
    """The errors section: those of which the model is surest come first."""
    if subject.lengths is not None:
        return _sequences(subject)
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    if truth is not None and predicted is not None:
        return _sets(subject, truth, predicted)
    return _single(subject)


def _single(subject: Subject) -> str:
    truth, predicted = np.asarray(subject.truth), np.asarray(subject.predicted)
    wrong = np.flatnonzero(truth != predicted)
    code = {name: k for k, name in enumerate(np.asarray(subject.model.classes_).tolist())}
    pairs = [(code.get(truth[i].item()), code.get(predicted[i].item())) for i in wrong]
    scores = None if subject.scores is None else np.asarray(subject.scores)
    if scores is not None:
        lead = [
            np.inf if a is None or b is None else scores[i, b] - scores[i, a]
            for i, (a, b) in zip(wrong, pairs, strict=True)
        ]
    else:
        lead = [0.0] * len(wrong)
    order = np.argsort(-np.array(lead), kind="stable")[:ERRORS]
    rows = []
    for at in order:
        i, (a, b) = int(wrong[at]), pairs[at]
        row: list[Any] = [i, str(truth[i]), str(predicted[i])]
        if scores is not None:
            row.append("new label" if a is None else float(lead[at]))
        rows.append([*row, *_about(subject, i, b, a)])
    columns = ["test sample", "truth", "predicted", *(["lead"] if scores is not None else [])]
    return _said(len(wrong), len(truth)) + _examples(subject, columns, rows)


def _sets(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    wrong = np.flatnonzero((truth != predicted).any(axis=1))
    scores = None if subject.scores is None else np.asarray(subject.scores)
    violation = np.zeros(len(wrong))
    if scores is not None:
        violation = (np.abs(scores) * (truth != predicted)).max(axis=1)[wrong]
    rows = []
    for at in np.argsort(-violation, kind="stable")[:ERRORS]:
        i = int(wrong[at])
        off = np.flatnonzero(truth[i] != predicted[i])
        worst = int(off[np.argmax(np.abs(scores[i, off]))] if scores is not None else off[0])
        told = chips(_marked(subject.names, truth[i], predicted[i]))
        for_it, against = (worst, None) if predicted[i, worst] else (None, worst)
        rows.append([i, told, *_about(subject, i, for_it, against)])
    shown = _said(len(wrong), len(truth)) + text(
        "Green: rightly found. Struck through: missed. Red: one too many."
    )
    return shown + _examples(subject, ["test sample", "labels"], rows)


def _marked(names: list[str], truth: np.ndarray, predicted: np.ndarray) -> list[tuple[str, str]]:
    kinds = {(1, 1): "found", (1, 0): "missed", (0, 1): "minus"}
    marked = [(names[k], kinds[truth[k], predicted[k]]) for k in np.flatnonzero(truth | predicted)]
    return marked or [("none", "")]


def _sequences(subject: Subject) -> str:
    truth, predicted = np.asarray(subject.truth), np.asarray(subject.predicted)
    starts = np.cumsum(subject.lengths) - subject.lengths
    off = np.add.reduceat((truth != predicted).astype(int), starts)
    rows = []
    for k in np.argsort(-off, kind="stable")[:ERRORS]:
        if off[k]:
            inside = slice(starts[k], starts[k] + subject.lengths[k])
            wrong = truth[inside] != predicted[inside]
            words = " ".join(
                f'<span class="minus">{escape(str(label))}</span>' if bad else escape(str(label))
                for label, bad in zip(predicted[inside], wrong, strict=True)
            )
            rows.append([int(k), " ".join(map(str, truth[inside])), Html(words), int(off[k])])
    return _said(int((off > 0).sum()), len(off), "sequences") + table(
        ["test sequence", "truth", "predicted", "wrong"], rows
    )


def _said(wrong: int, n: int, what: str = "answers") -> str:
    return text(
        f"{wrong} of {n} {what} differ from the truth. Those of which the model is surest come first."
    )


def _about(subject: Subject, i: int, for_it: int | None, against: int | None) -> list[Any]:
    """What a sample is, where known, and its features that decided."""
    words: list[Any] = []
    if subject.texts is not None:
        told = " ".join(str(subject.texts[i]).split())
        words.append(told if len(told) <= LETTERS else told[:LETTERS] + " …")
    return [*words, _reasons(subject, i, for_it, against)]


def _reasons(subject: Subject, i: int, for_it: int | None, against: int | None) -> Html:
    """Contributions to the wrong answer; the largest values where weights do not tell."""
    x, weights, features = subject.row(i), subject.weights, subject.features
    if weights is None or (for_it is None and against is None):
        largest = np.argsort(-np.abs(x), kind="stable")[:REASONS]
        return chips((f"{features[j]} = {number(float(x[j]))}", "") for j in largest if x[j])
    direction = (weights[for_it] if for_it is not None else 0) - (
        weights[against] if against is not None else 0
    )
    part = x * direction
    best = np.argsort(-part, kind="stable")[:REASONS]
    return chips((f"{features[j]} +{number(float(part[j]))}", "plus") for j in best if part[j] > 0)


def _examples(subject: Subject, columns: list[str], rows: list[list[Any]]) -> str:
    reason = "features that spoke for the error" if subject.weights is not None else "largest features"
    more = (["what it is"] if subject.texts is not None else []) + [reason]
    every = [*columns, *more]
    return table(every, rows, wrapped=range(len(columns) - (columns[-1] == "labels"), len(every)))
