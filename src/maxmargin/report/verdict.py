"""What a report opens with: how good the model is, against what, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.metrics import example_f1
from maxmargin.report.page import number
from maxmargin.report.subject import LabelResult, Subject, f1_of, indicator, micro_f1, own_cut, per_label

# Labels that are named in a sentence.
NAMED = 6
# Ratio of the scales of columns from which on scaling is worth a try.
SCALES = 100.0


def judgement(subject: Subject) -> tuple[str, list[str]]:
    """How good the model is, after whatever has to be known first, and advice."""
    measure, value = next(iter(subject.measures.items()))
    beside = []
    if subject.baseline_measures:
        beside.append(f"{number(subject.baseline_measures[measure])} of {subject.baseline}")
    # Where the training labels are not known, it is chosen on the labels that it is judged by.
    known = subject.truth if subject.training_labels is None else subject.training_labels
    constant = constant_measure(subject.truth, known, measure)
    if constant is not None:
        chosen = "these samples themselves" if subject.training_labels is None else "the training labels"
        beside.append(f"{number(constant)} of the best constant answer, chosen on {chosen}")
    against = f", against {' and '.join(beside)}" if beside else ""
    found = f"{measure} {number(value)} on {subject.size}{against}."
    return f"{subject.caution} {found}".lstrip(), list(_advice(subject))


def constant_measure(judged: Any, known: Any, measure: str) -> float | None:
    """The main measure, on the labels judged, of the constant answer that is best on the known labels."""
    if np.ndim(judged) == 2:
        # Comparisons leave sparse labels sparse; entries that are unknown are not counted.
        truth, counts = judged > 0, _sums(known > 0)
        if measure == "micro F1":
            answer, hits = best_set(counts, known.shape[0]), _sums(truth)
            told = truth.shape[0] - (0 if sp.issparse(judged) else _sums(judged != judged)[answer])
            return float(
                2 * hits[answer].sum() / max(hits.sum() + np.broadcast_to(told, len(answer)).sum(), 1)
            )
        if measure == "top label right":  # samples that have all labels are left out, as in the measure
            dense = truth.toarray() if sp.issparse(truth) else truth
            told = dense[~dense.all(axis=1), counts.argmax()]
            return float(told.mean()) if len(told) else None
        return None
    if measure not in ("accuracy", "letter accuracy", "top label right"):
        return None
    classes, counts = np.unique(np.asarray(known), return_counts=True)
    return float(np.mean(np.asarray(judged) == classes[np.argmax(counts)]))


def _sums(matrix: Any) -> np.ndarray:
    """Sums of the columns."""
    return np.asarray(matrix.sum(axis=0)).ravel()


def best_set(counts: np.ndarray, n: int) -> np.ndarray:
    """The labels that have the best micro F1 as the answer for each of n rows, by how often they occur.

    Of the sets of one size the most frequent labels are best.
    """
    order = np.argsort(-counts, kind="stable")
    f1 = 2 * np.cumsum(counts[order]) / (n * np.arange(1, len(order) + 1) + counts.sum())
    return order[: f1.argmax() + 1]


def _advice(subject: Subject) -> Iterator[str]:
    yield from _on_the_fit(subject)
    at_zero = _at_zero(subject)
    yield from _on_the_cut(subject, at_zero)
    yield from _on_the_baseline(subject, at_zero)
    found = per_label(subject)
    never = [each for each in found if each.samples and not each.predicted]
    if never:
        yield f"{_count(never, found)} never predicted: {_named([each.name for each in never])}."
    yield from _on_thresholds(subject, never)
    losing = [each for each in found if each.predicted and each.f1 < each.constant]
    if losing and indicator(subject.truth) is not None:
        words = [f"{each.name} ({number(each.f1)} < {number(each.constant)})" for each in losing]
        yield f"{_count(losing, found)} predicted worse (in F1) than by always saying yes: {_named(words)}."


def _on_the_fit(subject: Subject) -> Iterator[str]:
    model = subject.model
    gap, tol = getattr(model, "duality_gap_", None), getattr(model, "tol", None)
    if gap is not None and tol is not None and not hasattr(model, "n_mistakes_") and not gap <= tol:
        yield (
            f"The fit stopped at a relative gap of {number(float(gap))}, short of the {number(float(tol))} "
            "asked for: raise --max-iter, or scale the columns."
        )
    if not subject.preprocessing and not sp.issparse(subject.X):
        spread = np.std(subject.X, axis=0)
        spread = spread[spread > 0]
        if len(spread) and spread.max() > SCALES * spread.min():
            factor = number(float(spread.max() / spread.min()))
            yield f"The columns differ in scale by a factor of {factor}: try fit --scale standard."


def _at_zero(subject: Subject) -> dict[str, float]:
    """Measures of the labels with scores above 0, of a model that could answer these and does not."""
    truth, joint = indicator(subject.truth), hasattr(subject.model, "interaction_")
    if truth is None or subject.scores is None or joint or own_cut(subject) == "score":
        return {}
    on = (np.asarray(subject.scores) > 0).astype(int)
    return {
        "micro F1": micro_f1(truth, on),
        "macro F1": float(f1_of(truth, on).mean()),
        "example F1": float(example_f1(truth, on)),
        "Hamming loss": float((truth != on).mean()),
        "exact match": float((truth == on).all(axis=1).mean()),
    }


def _beats(subject: Subject, measure: str, one: float, other: float) -> bool:
    return one > other if subject.better.get(measure, True) else one < other


def _on_the_cut(subject: Subject, at_zero: Mapping[str, float]) -> Iterator[str]:
    """Probabilities above one half make few wrong labels; F1 asks for more labels than that."""
    gained = [
        f"{key} {number(at_zero[key])} instead of {number(value)}"
        for key, value in subject.measures.items()
        if key.endswith("F1") and key in at_zero and _beats(subject, key, at_zero[key], value)
    ]
    if gained and own_cut(subject) == "probability":
        yield (
            "Labels are predicted at a probability above 0.5, which is for few wrong labels and misses many "
            f"for F1: at scores above 0 the same model has {', '.join(gained)}. For F1 fit without "
            "--probabilities."
        )


def _on_the_baseline(subject: Subject, at_zero: Mapping[str, float]) -> Iterator[str]:
    theirs = subject.baseline_measures
    worse = [
        key
        for key, value in subject.measures.items()
        if key in theirs and _beats(subject, key, theirs[key], value)
    ]
    by_cut = [key for key in worse if key in at_zero and not _beats(subject, key, theirs[key], at_zero[key])]
    by_fit = [key for key in worse if key not in by_cut]

    def told(keys: Sequence[str]) -> str:
        figures = [f"{key} ({number(subject.measures[key])} against {number(theirs[key])})" for key in keys]
        return f"{subject.baseline} is better in {', '.join(figures)}"

    if by_cut:
        cut = "the cut at a probability of 0.5" if own_cut(subject) else "how labels are chosen from scores"
        reason = cut if subject.promise is None else "what its sets promise"
        yield f"{told(by_cut)}: because of {reason}, not of C."
    if by_fit:
        yield f"{told(by_fit)}: choose C on the training data, by fit --C auto."
    if not subject.baseline_measures and subject.training:
        yield "With --train the report sets scikit-learn's model beside this one, and tunes thresholds."


def _on_thresholds(subject: Subject, never: Sequence[LabelResult]) -> Iterator[str]:
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    if subject.thresholds is None or subject.scores is None or truth is None or predicted is None:
        return
    scores, thresholds = np.asarray(subject.scores), np.asarray(subject.thresholds)
    at = dict(zip(subject.names, thresholds.tolist(), strict=True))
    own, chosen = f1_of(truth, predicted), f1_of(truth, scores > thresholds)
    woken = [f"{each.name} above {number(at[each.name])}" for each in never if np.isfinite(at[each.name])]
    before, after = number(float(own.mean())), number(float(chosen.mean()))
    words = f"Thresholds from cross-validation on the training data take macro F1 from {before} to {after}"
    if woken:
        words += f", and predict {_named(woken)}"
    yield words + "; in Python, maxmargin.baselines.ThresholdTuner(estimator, average='macro') does it."


def _count(some: Sequence[Any], every: Sequence[Any]) -> str:
    return f"{len(some)} of {len(every)} labels {'is' if len(some) == 1 else 'are'}"


def _named(words: Sequence[str]) -> str:
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more
