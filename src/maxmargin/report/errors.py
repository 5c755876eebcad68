"""The errors of a model, those of which it is surest first, with the features that spoke for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.report.page import Html, chips, number, shown, table, text
from maxmargin.report.subject import Subject, indicator, own_cut, row_of

# Errors shown, features named for each, and letters of its text.
ERRORS = 8
REASONS = 5
LETTERS = 120


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
    if own_cut(subject) == "probability":  # where the model is surest is far from its own cut
        scores = np.asarray(subject.probabilities) - 0.5
    violation = np.zeros(len(wrong))
    if scores is not None:
        violation = (np.abs(scores) * (truth != predicted)).max(axis=1)[wrong]
    rows = []
    for at in np.argsort(-violation, kind="stable")[:ERRORS]:
        i = int(wrong[at])
        off = np.flatnonzero(truth[i] != predicted[i])
        worst = int(off[np.argmax(np.abs(scores[i, off]))] if scores is not None else off[0])
        marks = chips(_marked(subject.names, truth[i], predicted[i]))
        for_it, against = (worst, None) if predicted[i, worst] else (None, worst)
        rows.append([i, marks, *_about(subject, i, for_it, against)])
    told = _said(len(wrong), len(truth)) + text(
        "Green: rightly found. Struck through: missed. Red: one too many."
    )
    return told + _examples(subject, ["test sample", "labels"], rows)


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
                f'<span class="minus">{shown(str(label))}</span>' if bad else shown(str(label))
                for label, bad in zip(predicted[inside], wrong, strict=True)
            )
            carried = _carried(subject, inside, int(np.flatnonzero(wrong)[0]))
            rows.append([int(k), " ".join(map(str, truth[inside])), Html(words), int(off[k]), carried])
    return _said(int((off > 0).sum()), len(off), "sequences") + table(
        ["test sequence", "truth", "predicted", "wrong", "what carried the first wrong label"], rows
    )


def _carried(subject: Subject, inside: slice, t: int) -> Html:
    """The largest parts of the score of a position: features, and the labels beside it."""
    X = subject.X[inside]
    told = subject.model.explain(X, top=REASONS, names=subject.features, lengths=[X.shape[0]])[t]
    return chips((f"{name} {value:+.3g}", "plus" if value > 0 else "") for name, value in told.parts)


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
    if weights is None and hasattr(subject.model, "explain") and (for_it is not None or against is not None):
        x, weights, features = subject.terms(i)
    if weights is None or (for_it is None and against is None):
        largest = np.argsort(-np.abs(x), kind="stable")[:REASONS]
        return chips((f"{features[j]} = {number(float(x[j]))}", "") for j in largest if x[j])
    direction = (row_of(weights, for_it) if for_it is not None else 0) - (
        row_of(weights, against) if against is not None else 0
    )
    part = x * direction
    best = np.argsort(-part, kind="stable")[:REASONS]
    return chips((f"{features[j]} +{number(float(part[j]))}", "plus") for j in best if part[j] > 0)


def _examples(subject: Subject, columns: list[str], rows: list[list[Any]]) -> str:
    linear = subject.weights is not None or sp.issparse(getattr(subject.model, "coef_", None))
    reason = "features that spoke for the error" if linear else "largest features"
    if not linear and hasattr(subject.model, "explain"):
        reason = "training rows that spoke for the error"
    more = (["what it is"] if subject.texts is not None else []) + [reason]
    every = [*columns, *more]
    return table(every, rows, wrapped=range(len(columns) - (columns[-1] == "labels"), len(every)))
