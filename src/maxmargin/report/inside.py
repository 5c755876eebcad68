"""What a model learnt: weights, pairs of labels, transitions, basis and support vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from maxmargin.report import pictures
from maxmargin.report.page import Section, chips, picture, signed, table, text
from maxmargin.report.subject import Subject, indicator, row_of

# Labels of a table, classes of a matrix that can be read, features and pairs of labels that are named.
LABELS = 30
CLASSES = 40
FEATURES = 6
PAIRS = 8


def inside_sections(subject: Subject) -> Iterator[Section]:
    """Sections on what the model learnt, as far as they apply."""
    if subject.weights is not None:
        yield Section("Most weighted features", _weights(subject), 3)
    model = subject.model
    if getattr(model, "interaction_", None) is not None:
        yield Section("Attractive pairs", _pairs(subject), 3)
    if hasattr(model, "transitions_") and len(subject.names) <= CLASSES:
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
        own = row_of(weights, k)
        best = np.argsort(-np.abs(own), kind="stable")[:FEATURES]
        rows.append([name, chips(signed(features[j], own[j]) for j in best if own[j])])
    if len(subject.names) > LABELS:
        rows.append([f"and {len(subject.names) - LABELS} more", ""])
    return table(["label", "features with the largest weights"], rows, wrapped=[1])


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
        row.append(chips(signed(subject.names[k], coef[k, j]) for k in best))
        rows.append(row)
    columns = ["training sample", *(["its labels"] if labels is not None else []), "speaks for and against"]
    words = f"{len(where)} of the training samples, in the order in which they were chosen."
    if getattr(model, "basis", "greedy") == "learned":
        words = f"{len(where)} learned vectors, beside the training samples that they started from."
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
