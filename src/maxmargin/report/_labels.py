"""How well each label is predicted, and how labels go together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from maxmargin.report import _pictures
from maxmargin.report._page import Section, bar, picture, share, table, text
from maxmargin.report._subject import Subject, correlation, indicator

LABELS = 30
CURVES = 6
# Classes up to which a matrix of confusions can be read.
CONFUSED = 40


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
    curves = _pictures.thresholds(truth[:, most], scores[:, most], names)
    words = (
        "F1 of the most frequent labels, for every threshold on their score; the dot is the best one. "
        "A threshold chosen here must be tested on other data."
    )
    rows = []
    for k in np.argsort(-truth.sum(axis=0), kind="stable")[:LABELS]:
        at, f1 = _pictures.f1_curve(truth[:, k], scores[:, k])
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
    return picture(_pictures.correlations(matrices, subject.names), words)


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
    drawn = picture(_pictures.ranking(places, scores.shape[1]), words)
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
    return picture(_pictures.confusions(counts, [str(name) for name in classes]), words) + most
