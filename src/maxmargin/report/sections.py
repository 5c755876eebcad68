"""The sections of a report on one fitted model, in order: summary, labels, training, weights, errors."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.words import number
from maxmargin.metrics import label_brier, label_log_loss, precision_at_k, reliability
from maxmargin.report import pictures
from maxmargin.report.page import (
    Figure,
    Html,
    Section,
    chips,
    figures,
    folded,
    picture,
    share,
    shown,
    side,
    signed,
    sorted_table,
    table,
    text,
    verdict,
    with_error,
)
from maxmargin.report.subject import (
    Promise,
    Subject,
    answers_by,
    correlation,
    f1_of,
    indicator,
    per_label,
    row_of,
    two_rows,
)
from maxmargin.report.verdict import judgement, leads

# A curve is drawn from this many certified epochs on; otherwise a table.
MIN_CURVE = 6
# Limits: rows of the table of labels, labels of a picture, classes of a matrix.
MAX_LABELS, MAX_DRAWN, MAX_CLASSES = 2000, 16, 40
# Numbers k of P@k.
TOP = (1, 3, 5, 10)
# Rows of the table of confusions; pairs of correlated labels, and the test samples that each label needs.
MAX_CONFUSED, MAX_PAIRS, MIN_SAMPLES = 10, 10, 5
# Rows of the tables of weights and of basis vectors, and weights per row.
MAX_ROWS, MAX_WEIGHTS = 30, 6
# Errors, features of an error, and letters of a text.
MAX_ERRORS, MAX_REASONS, MAX_LETTERS = 8, 5, 120


def sections(subject: Subject) -> Iterator[Section]:
    """Yield all sections that apply to a model; the first is of level 2."""
    model, truth, predicted = subject.model, indicator(subject.truth), indicator(subject.predicted)
    yield Section("Summary", _summary(subject))
    yield Section("Labels", _labels(subject), 3, wide=True)
    if truth is not None and predicted is not None:
        if subject.scores is not None and truth.shape[1] > TOP[1]:
            yield Section("First labels", _first_labels(subject, truth), 3)
        if truth.shape[1] > 1:
            drawn = _correlations(subject, truth, predicted)
            yield Section("Label correlations", drawn, 3, folded=True, wide=len(subject.names) <= MAX_CLASSES)
    elif hasattr(model, "rank") and subject.scores is not None:
        yield Section("Ranking", _ranking(subject), 3, wide=True)
    if truth is None and 1 < len(subject.names) <= MAX_CLASSES:
        yield Section("Confusions", _confusions(subject), 3, wide=True)
    if subject.probabilities is not None:
        yield Section("Probabilities", _probabilities(subject), 3, wide=True)
    if subject.promise is not None:
        yield Section("Guarantee", _guarantee(subject, subject.promise), 3, wide=True)
    history = getattr(model, "history_", None)
    # The gaps of a growing basis belong to different problems, and a stream has no optimum.
    if history and not hasattr(model, "basis_vectors_") and not hasattr(model, "n_mistakes_"):
        yield Section("Training", _training(subject, history), 3)
    if subject.weights is not None:
        yield Section("Most weighted features", _weights(subject), 3, wide=True)
    if getattr(model, "interaction_", None) is not None:
        yield Section("Attractive pairs", _pairs(subject), 3)
    if hasattr(model, "transitions_") and len(subject.names) <= MAX_CLASSES:
        words = "Weight of each class (column) after each other class (row)."
        yield Section("Transitions", picture(pictures.weights(model.transitions_, subject.names), words), 3)
    if hasattr(model, "basis_vectors_"):
        yield Section("Basis vectors", _basis(subject), 3, wide=True)
    if hasattr(model, "support_"):
        yield Section("Support vectors", _support(subject), 3)
    yield Section("Errors", _errors(subject), 3, wide=True)


def versions() -> Section:
    """Return the versions of the packages and the machine."""
    packages = ("maxmargin", "numpy", "scipy", "scikit-learn", "numba")
    words = [f"{name} {metadata.version(name)}" for name in packages]
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Section(
        "Versions", text(", ".join([*words, f"Python {platform.python_version()}", machine]) + ".")
    )


def _summary(subject: Subject) -> str:
    model, others = subject.model, subject.baseline_measures
    kind = "labels" if np.ndim(subject.truth) == 2 else "classes"
    words = (
        f"{subject.training} Judged on {subject.size} of {subject.X.shape[1]} features and "
        f"{len(subject.names)} {kind}. Preprocessing: {subject.preprocessing or 'none'}."
    )
    if subject.baseline:
        words += f" {subject.baseline} has its default parameters and the same preprocessing."
    rows: list[list[Any]] = []
    for key, value in subject.measures.items():
        row = [Figure(shown(with_error(value, subject.estimates.get(key))))]
        if others:
            theirs = others.get(key)
            estimate = subject.baseline_estimates.get(key)
            row.append(Figure("" if theirs is None else shown(with_error(theirs, estimate))))
            lead = leads(subject, key)
            if lead:
                row[lead < 0] = Figure(f'<b class="best">{row[lead < 0]}</b>')
        rows.append([key, *row])
    rows.append(["seconds to fit", subject.seconds, *([subject.baseline_seconds] if others else [])])
    columns = ["measure", "maxmargin", *([subject.baseline] if others else [])]
    measured = table(columns, rows)
    if subject.estimates:
        note = " Bold: better by more than two standard errors of the difference." if others else ""
        measured += text(f"± is the standard error from the sample of test data.{note}")
    facts = table(["model", ""], [[title, value] for title, value in _facts(model)])
    opening = verdict(*judgement(subject)) + figures(_cards(subject))
    return opening + text(words.strip()) + side(measured, _call(model) + facts)


def _cards(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Yield the main numbers: title, value, note."""
    model, others = subject.model, subject.baseline_measures
    for key, value in list(subject.measures.items())[:3]:
        note = f"{subject.baseline}: {number(others[key])}" if key in others else ""
        yield key, with_error(value, subject.estimates.get(key)), note
    if subject.seconds is not None:
        took = subject.predict_seconds
        note = "" if took is None else f"and {took:.2g} s to predict {subject.size}"
        yield "time to fit", f"{subject.seconds:.3g} s", note
    gap, tol = getattr(model, "duality_gap_", None), getattr(model, "tol", None)
    if gap is not None and tol is not None and not hasattr(model, "n_mistakes_"):
        yield "relative duality gap", number(float(gap)), f"tol: {number(float(tol))}"


def _facts(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield attributes of a fitted model, with titles."""
    shown = [
        ("solver", "solver_"),
        ("epochs", "n_iter_"),
        ("objective", "primal_objective_"),
        ("basis vectors", "n_basis_"),
    ]
    if hasattr(model, "n_mistakes_"):  # a model of a stream
        shown = [("rounds", "n_rounds_"), ("mistakes while learning", "n_mistakes_")]
    for title, attribute in shown:
        if hasattr(model, attribute):
            yield title, getattr(model, attribute)
    if hasattr(model, "support_"):
        yield "support vectors", len(model.support_)


def _call(model: Any) -> str:
    """Return the constructor call with parameters that are not the default, and a folded table of all."""
    params = model.get_params(deep=False)
    default = type(model)().get_params(deep=False)
    given = ", ".join(
        f"{key}={_word(value)}" for key, value in params.items() if _word(value) != _word(default.get(key))
    )
    every = table(["parameter", "value"], [[key, _word(value)] for key, value in sorted(params.items())])
    return f"<p><code>{shown(type(model).__name__)}({shown(given)})</code></p>" + folded("parameters", every)


def _word(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return getattr(value, "__name__", None) or repr(value)


def _labels(subject: Subject) -> str:
    """Return the table of labels in the test samples or the predictions, and a picture of the largest."""
    found = per_label(subject)
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    tuned = thresholds = None
    if subject.thresholds is not None and truth is not None and predicted is not None:
        thresholds = np.asarray(subject.thresholds)
        tuned = f1_of(truth, np.asarray(subject.scores) > thresholds)
    order = [k for k, each in enumerate(found) if each.samples or each.predicted]
    order = sorted(order, key=lambda k: -found[k].samples)
    rows = []
    for k in order[:MAX_LABELS]:
        each = found[k]
        row = [each.name, *map(share, (each.f1, each.precision, each.recall)), each.samples, each.predicted]
        row.append(share(each.constant))
        if tuned is not None and thresholds is not None:
            row += [share(float(tuned[k])), share(float(thresholds[k]))]
        rows.append(row)
    columns = ["label", "F1", "precision", "recall", "samples", "predicted", "constant F1"]
    words = "The constant predicts the label for every sample."
    if tuned is not None:
        columns += ["tuned F1", "threshold"]
        cuts = {"score": "scores above 0", "probability": "probabilities above 0.5"}
        words += f" F1 is for {cuts.get(answers_by(subject), 'the predictions')}, tuned F1 for the threshold."
    if len(found) > len(order):
        words += f" {len(found) - len(order)} labels neither occur in the test samples nor are predicted."
    if len(order) > MAX_LABELS:
        words += f" These are the {MAX_LABELS} most frequent of {len(order)}."
    few = order[:MAX_DRAWN]
    own, constant = np.array([found[k].f1 for k in few]), np.array([found[k].constant for k in few])
    drawn = pictures.label_f1(
        [found[k].name for k in few], own, None if tuned is None else tuned[few], constant
    )
    caption = "F1 of the most frequent labels on the test samples."
    return text(words) + side(sorted_table(columns, rows, "labels"), picture(drawn, caption), natural=True)


def _first_labels(subject: Subject, truth: np.ndarray) -> str:
    """Return P@k beside the largest possible value."""
    scores = {"maxmargin": subject.scores}
    if subject.baseline_scores is not None:
        scores[subject.baseline] = subject.baseline_scores
    rows = []
    for k in TOP:
        if k < truth.shape[1]:
            best = float(np.minimum(truth.sum(axis=1), k).mean() / k)
            found = [share(precision_at_k(truth, np.asarray(each), k)) for each in scores.values()]
            rows.append([f"P@{k}", *found, share(best)])
    words = "P@k is the share of true labels among the k labels with the highest scores."
    return text(words) + table(["", *scores, "largest possible"], rows)


def _correlations(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    if len(subject.names) > pictures.MAX_NAMED:
        return _correlated_pairs(subject, truth, predicted)
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
    words = f"Correlation of labels: {', '.join(matrices)}. Red is positive, blue negative, grey undefined."
    return picture(pictures.correlations(matrices, subject.names), words)


def _correlated_pairs(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    """Return the pairs of labels with the largest correlations, if there are too many for a picture."""
    often = np.flatnonzero(truth.sum(axis=0) >= MIN_SAMPLES)
    together = np.triu(correlation(truth[:, often]), 1)
    found = correlation(predicted[:, often])
    rows = []
    for at in np.argsort(-together, axis=None, kind="stable")[:MAX_PAIRS]:
        a, b = np.unravel_index(at, together.shape)
        names = f"{subject.names[often[a]]}, {subject.names[often[b]]}"
        rows.append([names, share(float(together[a, b])), share(float(found[a, b]))])
    words = f"The most correlated pairs of labels with at least {MIN_SAMPLES} test samples."
    return text(words) + table(["labels", "correlation", "in predictions"], rows)


def _ranking(subject: Subject) -> str:
    """Return the ranks of the true labels; labels that were absent from the fit come last."""
    names = {name: k for k, name in enumerate(subject.model.classes_.tolist())}
    scores = np.asarray(subject.scores)
    ranks = np.full(len(scores), scores.shape[1] + 1)
    for i, label in enumerate(np.asarray(subject.truth).tolist()):
        if label in names:
            ranks[i] = 1 + int((scores[i] > scores[i, names[label]]).sum())
    words = (
        "The rank of the true label (later: a label that was absent from the fit), and the share of wrong "
        "first labels so far, in the order of the test samples."
    )
    shares = [(k, float((ranks <= k).mean())) for k in (1, 2, 3, 5, 10) if k <= scores.shape[1]]
    rows = [[f"among the first {k}", share(found)] for k, found in shares]
    drawn = picture(pictures.ranking(ranks, scores.shape[1]), words)
    return side(drawn, table(["true label", "share"], rows), natural=True)


def _confusions(subject: Subject) -> str:
    from sklearn.metrics import confusion_matrix

    classes = np.asarray(subject.model.classes_)
    truth, predicted = np.asarray(subject.truth), np.asarray(subject.predicted)
    known = np.isin(truth, classes)
    counts = confusion_matrix(truth[known], predicted[known], labels=classes)
    wrong = [(int(counts[a, b]), a, b) for a in range(len(counts)) for b in range(len(counts)) if a != b]
    rows = [
        [str(classes[a]), str(classes[b]), n, share(n / max(int(counts[a].sum()), 1))]
        for n, a, b in sorted(wrong, reverse=True)[:MAX_CONFUSED]
        if n
    ]
    words = "Rows are true classes, columns are predictions; dark cells are large shares of their row."
    most = table(["truth", "predicted", "times", "share of the truth"], rows) if rows else ""
    return side(picture(pictures.confusions(counts, [str(name) for name in classes]), words), most)


def _probabilities(subject: Subject) -> str:
    """Return losses beside those of constant probabilities, and the reliability diagram."""
    truth, found = _columns(subject, subject.truth), np.asarray(subject.probabilities)
    trained = subject.training_labels is not None
    rate = truth.mean(axis=0)
    if trained:
        known = _columns(subject, subject.training_labels)
        rate = (known.sum(axis=0) + 1) / (
            len(known) + 2
        )  # never zero: a label may be new in the test samples
    rate = np.broadcast_to(np.clip(rate, 1e-12, 1 - 1e-12), truth.shape)
    rows = [
        ["log loss", label_log_loss(truth, found), label_log_loss(truth, rate)],
        ["Brier score", label_brier(truth, found), label_brier(truth, rate)],
    ]
    words = (
        "Means over all samples and labels; smaller is better. The last column predicts the share of each "
        f"label in the {'training' if trained else 'test'} samples as its probability, for every sample; "
        "larger losses than these are useless."
    )
    predicted, seen, counts = reliability(truth, found)
    caption = (
        "The share of true labels among labels with about the same predicted probability, with standard "
        "errors. The area of a point grows with its number of labels."
    )
    losses = text(words) + table(["measure", "maxmargin", "label shares"], rows)
    return side(losses, picture(pictures.reliability(predicted, seen, counts), caption))


def _columns(subject: Subject, labels: Any) -> np.ndarray:
    """Return labels as a 0/1 matrix with a column per probability."""
    found = indicator(labels)
    return (
        (np.asarray(labels)[:, None] == np.asarray(subject.model.classes_)).astype(int)
        if found is None
        else found
    )


def _guarantee(subject: Subject, promised: Promise) -> str:
    """Return the guaranteed and the observed share, and the sizes of the sets."""
    truth, given = indicator(subject.truth), indicator(subject.predicted)
    assert truth is not None and given is not None
    what = {
        "recall": "share of the true labels in the set",
        "precision": "share of true labels among those in the set",
    }[promised.kind]
    scatter = 1 / np.sqrt(min(promised.n_calibration, len(truth)))
    words = (
        "The guarantee is about the mean over samples from the same distribution, with thresholds from "
        f"{promised.n_calibration} calibration samples. A single fit and test set deviates by about "
        f"{scatter:.2f}. A value far below the guarantee means that the test samples have another "
        "distribution than the training samples."
    )
    sizes, true = given.sum(axis=1), truth.sum(axis=1)
    rows = [
        [f"{what}: guaranteed", promised.share],
        ["found on the test samples", promised.found],
        ["labels in a set, mean", float(sizes.mean())],
        ["labels in a set, median", float(np.median(sizes))],
        ["largest set", int(sizes.max())],
        ["empty sets", int((sizes == 0).sum())],
        ["true labels of a sample, mean", float(true.mean())],
    ]
    caption = "Number of samples with sets, and true labels, of each size."
    shown = picture(pictures.sizes(sizes, true), caption)
    return side(text(words) + table(["sets of labels", "value"], rows), shown)


def _training(subject: Subject, history: Sequence[Mapping[str, float]]) -> str:
    """Return a curve, or a table if there are few epochs."""
    certified = [
        record for record in history if np.isfinite(record["dual"]) and np.isfinite(record["primal"])
    ]
    if len(certified) >= MIN_CURVE:
        words = "Upper bounds on the distance of the best objectives so far from the optimum, relative to it."
        return picture(pictures.training(certified, getattr(subject.model, "tol", None)), words)
    rows = [
        [k + 1, *(float(record[key]) for key in ("seconds", "primal", "dual", "gap"))]
        for k, record in enumerate(history[:MIN_CURVE])
    ]
    return table(["epoch", "seconds", "primal objective", "dual objective", "relative gap"], rows)


def _weights(subject: Subject) -> str:
    weights, features = subject.weights, subject.features
    rows = []
    for k, name in enumerate(subject.names[:MAX_ROWS]):
        own = row_of(weights, k)
        best = np.argsort(-np.abs(own), kind="stable")[:MAX_WEIGHTS]
        rows.append([name, chips(signed(features[j], own[j]) for j in best if own[j])])
    if len(subject.names) > MAX_ROWS:
        rows.append([f"and {len(subject.names) - MAX_ROWS} more", ""])
    half = -(-len(rows) // 2) if len(rows) > 3 else len(rows)
    columns = ["label", "features with the largest weights"]
    return side(*(table(columns, part, wrapped=[1]) for part in (rows[:half], rows[half:]) if part))


def _pairs(subject: Subject) -> str:
    upper = np.triu(np.asarray(subject.model.interaction_), 1)
    order = np.argsort(-upper, axis=None, kind="stable")[:MAX_PAIRS]
    pairs = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, upper.shape), strict=True)]
    names = subject.names
    rows = [[names[a], names[b], float(upper[a, b])] for a, b in pairs if upper[a, b] > 0]
    if not rows:
        return text("No two labels attract each other.")
    return table(["label", "attracts", "by"], rows)


def _basis(subject: Subject) -> str:
    """Return the training samples of the basis, and the labels with the largest coefficients."""
    model = subject.model
    coef = two_rows(np.atleast_2d(np.asarray(model.coef_)), subject.names)
    indices = np.asarray(model.basis_indices_)
    labels = subject.training_labels
    rows = []
    for j in range(min(len(indices), MAX_ROWS)):
        best = np.argsort(-np.abs(coef[:, j]), kind="stable")[:4]
        row: list[Any] = [int(indices[j])]
        if labels is not None:
            row.append(_label_words(labels, int(indices[j]), subject.names))
        rows.append([*row, chips(signed(subject.names[k], coef[k, j]) for k in best)])
    columns = ["training sample", *(["its labels"] if labels is not None else []), "largest coefficients"]
    words = f"{len(indices)} of the training samples, in the order in which they were chosen."
    if getattr(model, "basis", "greedy") == "learned":
        words = f"{len(indices)} learned vectors, beside the training samples that they started from."
    history = getattr(model, "history_", ())
    drawn = picture(pictures.growth(history), "Objective while the basis grew.") if len(history) > 1 else ""
    return text(words) + side(table(columns, rows, wrapped=[len(columns) - 1]), drawn)


def _label_words(labels: Any, i: int, names: list[str]) -> str:
    known = indicator(labels[[i]] if np.ndim(labels) == 2 else None)
    if known is None:
        return str(np.asarray(labels)[i])
    return ", ".join(names[k] for k in np.flatnonzero(known[0])) or "none"


def _support(subject: Subject) -> str:
    model = subject.model
    words = text(f"{len(model.support_)} training samples are support vectors.")
    dual = getattr(model, "dual_coef_", None)
    if dual is None or np.ndim(dual) != 2:
        return words
    dense = np.asarray(dual.toarray() if hasattr(dual, "toarray") else dual)
    counts = (dense != 0).sum(axis=1) if len(dense) == len(subject.names) else (dense != 0).sum(axis=0)
    if len(counts) != len(subject.names):
        return words
    order = np.argsort(-counts, kind="stable")[:MAX_ROWS]
    return words + table(["label", "support vectors"], [[subject.names[k], int(counts[k])] for k in order])


def _errors(subject: Subject) -> str:
    """Return wrong predictions, most confident first, with the features that caused them."""
    if subject.lengths is not None:
        return _wrong_sequences(subject)
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    if truth is not None and predicted is not None:
        return _wrong_sets(subject, truth, predicted)
    return _wrong_classes(subject)


def _wrong_classes(subject: Subject) -> str:
    truth, predicted = np.asarray(subject.truth), np.asarray(subject.predicted)
    wrong = np.flatnonzero(truth != predicted)
    code = {name: k for k, name in enumerate(np.asarray(subject.model.classes_).tolist())}
    pairs = [(code.get(truth[i].item()), code.get(predicted[i].item())) for i in wrong]
    scores = None if subject.scores is None else np.asarray(subject.scores)
    lead = [0.0] * len(wrong)
    if scores is not None:
        lead = [
            np.inf if a is None or b is None else float(scores[i, b] - scores[i, a])
            for i, (a, b) in zip(wrong, pairs, strict=True)
        ]
    rows = []
    for at in np.argsort(-np.array(lead), kind="stable")[:MAX_ERRORS]:
        i, (a, b) = int(wrong[at]), pairs[at]
        row: list[Any] = [i, str(truth[i]), str(predicted[i])]
        if scores is not None:
            row.append("new label" if a is None else lead[at])
        rows.append([*row, *_about(subject, i, b, a)])
    columns = ["test sample", "truth", "predicted", *(["difference of scores"] if scores is not None else [])]
    return _n_wrong(len(wrong), len(truth)) + _examples(subject, columns, rows)


def _wrong_sets(subject: Subject, truth: np.ndarray, predicted: np.ndarray) -> str:
    wrong = np.flatnonzero((truth != predicted).any(axis=1))
    scores = None if subject.scores is None else np.asarray(subject.scores)
    if answers_by(subject) == "probability":
        scores = np.asarray(subject.probabilities) - 0.5
    violation = np.zeros(len(wrong))
    if scores is not None:
        violation = (np.abs(scores) * (truth != predicted)).max(axis=1)[wrong]
    kinds = {(1, 1): "found", (1, 0): "missed", (0, 1): "minus"}
    rows = []
    for at in np.argsort(-violation, kind="stable")[:MAX_ERRORS]:
        i = int(wrong[at])
        off = np.flatnonzero(truth[i] != predicted[i])
        worst = int(off[np.argmax(np.abs(scores[i, off]))] if scores is not None else off[0])
        marks = chips(
            (subject.names[k], kinds[truth[i, k], predicted[i, k]])
            for k in np.flatnonzero(truth[i] | predicted[i])
        )
        chosen, rejected = (worst, None) if predicted[i, worst] else (None, worst)
        rows.append([i, marks, *_about(subject, i, chosen, rejected)])
    words = text("Green: correct. Struck through: missed. Red: wrong.")
    return _n_wrong(len(wrong), len(truth)) + words + _examples(subject, ["test sample", "labels"], rows)


def _wrong_sequences(subject: Subject) -> str:
    truth, predicted = np.asarray(subject.truth), np.asarray(subject.predicted)
    starts = np.cumsum(subject.lengths) - subject.lengths
    off = np.add.reduceat((truth != predicted).astype(int), starts)
    rows = []
    for k in np.argsort(-off, kind="stable")[:MAX_ERRORS]:
        if off[k]:
            inside = slice(starts[k], starts[k] + subject.lengths[k])
            wrong = truth[inside] != predicted[inside]
            words = " ".join(
                f'<span class="minus">{shown(str(label))}</span>' if bad else shown(str(label))
                for label, bad in zip(predicted[inside], wrong, strict=True)
            )
            # The parts of the score at the first wrong position.
            X, t = subject.X[inside], int(np.flatnonzero(wrong)[0])
            why = subject.model.explain(X, top=MAX_REASONS, names=subject.features, lengths=[X.shape[0]])[t]
            parts = chips((f"{name} {value:+.3g}", "plus" if value > 0 else "") for name, value in why.parts)
            rows.append([int(k), " ".join(map(str, truth[inside])), Html(words), int(off[k]), parts])
    columns = ["test sequence", "truth", "predicted", "wrong", "largest parts of the first wrong score"]
    return _n_wrong(int((off > 0).sum()), len(off), "sequences") + table(columns, rows)


def _n_wrong(wrong: int, n: int, what: str = "predictions") -> str:
    return text(f"{wrong} of {n} {what} are wrong. Those with the largest scores come first.")


def _about(subject: Subject, i: int, chosen: int | None, rejected: int | None) -> list[Any]:
    """Return the text of a sample, if known, and the features with the largest parts in the error."""
    words: list[Any] = []
    if subject.texts is not None:
        whole = " ".join(str(subject.texts[i]).split())
        words.append(whole if len(whole) <= MAX_LETTERS else whole[:MAX_LETTERS] + " …")
    return [*words, _reasons(subject, i, chosen, rejected)]


def _reasons(subject: Subject, i: int, chosen: int | None, rejected: int | None) -> Html:
    """Return the largest contributions to the wrong prediction, or the largest features if unknown."""
    x, weights, features = row_of(subject.X, i), subject.weights, subject.features
    if weights is None and hasattr(subject.model, "explain") and (chosen is not None or rejected is not None):
        x, weights, features = subject.terms(i)
    if weights is None or (chosen is None and rejected is None):
        largest = np.argsort(-np.abs(x), kind="stable")[:MAX_REASONS]
        return chips((f"{features[j]} = {number(float(x[j]))}", "") for j in largest if x[j])
    direction = (row_of(weights, chosen) if chosen is not None else 0) - (
        row_of(weights, rejected) if rejected is not None else 0
    )
    part = x * direction
    best = np.argsort(-part, kind="stable")[:MAX_REASONS]
    return chips((f"{features[j]} +{number(float(part[j]))}", "plus") for j in best if part[j] > 0)


def _examples(subject: Subject, columns: list[str], rows: list[list[Any]]) -> str:
    linear = subject.weights is not None or sp.issparse(getattr(subject.model, "coef_", None))
    reason = "features with the largest parts in the error" if linear else "largest features"
    if not linear and hasattr(subject.model, "explain"):
        reason = "training rows with the largest parts in the error"
    every = [*columns, *(["text"] if subject.texts is not None else []), reason]
    return table(every, rows, wrapped=range(len(columns) - (columns[-1] == "labels"), len(every)))
