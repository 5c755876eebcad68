"""Labels: how each is predicted, the first ones by score, thresholds, correlations, ranks, confusions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from maxmargin.metrics import precision_at_k
from maxmargin.report import pictures
from maxmargin.report.page import Section, bar, picture, share, sorted_table, table, text
from maxmargin.report.subject import Subject, correlation, f1_of, indicator, own_cut, per_label

# Labels of a table, and labels with a curve of their own.
MOST = 2000
CURVES = 6
# Numbers of first labels that are judged.
FIRST = (1, 3, 5, 10)
# Classes up to which a matrix of confusions can be read, and confusions in words.
CLASSES = 40
CONFUSED = 10
# Pairs of labels in words, and samples that a label has to have for it.
PAIRS = 10
OFTEN = 5


def label_sections(subject: Subject) -> Iterator[Section]:
    """Sections on labels, as far as they apply."""
    yield Section("Labels", _labels(subject), 3)
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    if truth is not None and predicted is not None:
        if subject.scores is not None and truth.shape[1] > FIRST[1]:
            yield Section("First labels", _first_labels(subject, truth), 3)
        if subject.thresholds is not None:
            yield Section("Thresholds", _thresholds(subject, truth, predicted), 3)
        if truth.shape[1] > 1:
            yield Section("Label correlations", _correlations(subject, truth, predicted), 3, folded=True)
    elif hasattr(subject.model, "rank") and subject.scores is not None:
        yield Section("Ranking", _ranking(subject), 3)
    if truth is None and 1 < len(subject.names) <= CLASSES:
        yield Section("Confusions", _confusions(subject), 3)


def _labels(subject: Subject) -> str:
    """Every label, to search and to sort; those that no test sample has and nobody predicts are left out."""
    found = per_label(subject)
    seen = [each for each in found if each.samples or each.predicted]
    rows = [
        [
            each.name, share(each.f1), bar(each.f1), share(each.precision), share(each.recall), each.samples,
            each.predicted, share(each.constant),
        ]
        for each in sorted(seen, key=lambda each: -each.samples)[:MOST]
    ]  # fmt: skip
    columns = ["label", "F1", "", "precision", "recall", "samples", "predicted", "F1 of a constant"]
    words = "A constant predicts the label for every sample."
    if len(found) > len(seen):
        words += f" {len(found) - len(seen)} labels neither occur in the test samples nor are predicted."
    if len(seen) > MOST:
        words += f" The {MOST} most frequent of {len(seen)}."
    return text(words) + sorted_table(columns, rows, "labels")


def _first_labels(subject: Subject, truth: np.ndarray) -> str:
    """Precision of the labels with the highest scores, beside the best that any order could reach."""
    scores = {"maxmargin": subject.scores}
    if subject.baseline_scores is not None:
        scores[subject.baseline] = subject.baseline_scores
    rows = []
    for k in FIRST:
        if k < truth.shape[1]:
            best = float(np.minimum(truth.sum(axis=1), k).mean() / k)
            found = [share(precision_at_k(truth, np.asarray(each), k)) for each in scores.values()]
            rows.append([f"P@{k}", *found, share(best)])
    words = "Of the first k labels by score, the share that is right; the last column is the most possible."
    return text(words) + table(["", *scores, "most possible"], rows)


def _thresholds(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    """Thresholds chosen on training data, judged on the test samples."""
    scores, thresholds = np.asarray(subject.scores), np.asarray(subject.thresholds)
    most = np.argsort(-truth.sum(axis=0), kind="stable")
    few, cut = most[:CURVES], own_cut(subject)
    curves = pictures.thresholds(
        truth[:, few], scores[:, few], [subject.names[k] for k in few], thresholds[few], cut == "score"
    )
    own, chosen = f1_of(truth, predicted), f1_of(truth, scores > thresholds)
    words = (
        "F1 of the most frequent labels on the test samples, for every threshold on their score; the dot is "
        "the threshold that cross-validation on the training data chose."
    )
    rows = [
        [subject.names[k], share(own[k]), share(chosen[k]), share(float(thresholds[k]))] for k in most[:MOST]
    ]
    answers = {"score": "F1 at 0", "probability": "F1 at p > 0.5"}.get(cut, "F1 as predicted")
    columns = ["label", answers, "F1 at threshold", "threshold"]
    return picture(curves, words) + sorted_table(columns, rows, "labels")


def _correlations(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    if len(subject.names) > pictures.NAMED:
        return _pairs(subject, truth, predicted)
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


def _pairs(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    """The pairs of labels that go together most in the truth; too many labels for a picture."""
    often = np.flatnonzero(truth.sum(axis=0) >= OFTEN)
    together = np.triu(correlation(truth[:, often]), 1)
    found = correlation(predicted[:, often])
    rows = []
    for at in np.argsort(-together, axis=None, kind="stable")[:PAIRS]:
        a, b = np.unravel_index(at, together.shape)
        rows.append(
            [
                f"{subject.names[often[a]]}, {subject.names[often[b]]}",
                share(float(together[a, b])),
                share(float(found[a, b])),
            ]
        )
    words = f"Of the labels with at least {OFTEN} test samples, the pairs that go together most."
    return text(words) + table(["labels", "correlation", "in predictions"], rows)


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
        for n, a, b in sorted(wrong, reverse=True)[:CONFUSED]
        if n
    ]
    words = "Rows: the truth. Columns: the prediction. The darker, the larger a part of its row."
    most = table(["truth", "predicted", "times", "share of the truth"], rows) if rows else ""
    return picture(pictures.confusions(counts, [str(name) for name in classes]), words) + most
