"""What a report opens with: how good the model is, against what, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.report.page import number
from maxmargin.report.subject import LabelResult, Subject, f1_of, indicator, micro_f1, per_label

# Labels that are named in a sentence.
NAMED = 6
# Ratio of the scales of columns from which on scaling is worth a try.
SCALES = 100.0


def judgement(subject: Subject) -> tuple[str, list[str]]:
    """One sentence on how good the model is, and advice."""
    measure, value = next(iter(subject.measures.items()))
    beside = []
    if subject.baseline_measures:
        beside.append(f"{number(subject.baseline_measures[measure])} of {subject.baseline}")
    constant = constant_measure(subject, measure)
    if constant is not None:
        chosen = "these samples themselves" if subject.training_labels is None else "the training labels"
        beside.append(f"{number(constant)} of the best constant answer, chosen on {chosen}")
    against = f", against {' and '.join(beside)}" if beside else ""
    return f"{measure} {number(value)} on {subject.size}{against}.", list(_advice(subject))


def constant_measure(subject: Subject, measure: str) -> float | None:
    """The main measure of the constant answer that is best on the training labels.

    Where these are not known it is chosen on the labels that it is judged by.
    """
    known = subject.truth if subject.training_labels is None else subject.training_labels
    truth, seen = indicator(subject.truth), indicator(known)
    if truth is not None and seen is not None:
        if measure == "micro F1":
            return micro_f1(truth, np.broadcast_to(best_set(seen), truth.shape))
        if measure == "top label right":  # samples that have all labels are left out, as in the measure
            told = truth[~truth.all(axis=1), seen.sum(axis=0).argmax()]
            return float(told.mean()) if len(told) else None
        return None
    if measure not in ("accuracy", "letter accuracy", "top label right"):
        return None
    classes, counts = np.unique(np.asarray(known), return_counts=True)
    return float(np.mean(np.asarray(subject.truth) == classes[np.argmax(counts)]))


def best_set(Y: np.ndarray) -> np.ndarray:
    """The set of labels with the best micro F1 as the answer for every row, as a 0/1 vector.

    Of the sets of one size the most frequent labels are best.
    """
    counts = Y.sum(axis=0)
    order = np.argsort(-counts, kind="stable")
    f1 = 2 * np.cumsum(counts[order]) / (len(Y) * np.arange(1, len(order) + 1) + counts.sum())
    answer = np.zeros(len(order), int)
    answer[order[: f1.argmax() + 1]] = 1
    return answer


def _advice(subject: Subject) -> Iterator[str]:
    yield from _on_the_fit(subject)
    yield from _on_the_baseline(subject)
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
            "asked for: raise max_iter, or scale the columns."
        )
    if not subject.preprocessing and not sp.issparse(subject.X):
        spread = np.std(subject.X, axis=0)
        spread = spread[spread > 0]
        if len(spread) and spread.max() > SCALES * spread.min():
            factor = number(float(spread.max() / spread.min()))
            yield f"The columns differ in scale by a factor of {factor}: try fit --scale standard."


def _on_the_baseline(subject: Subject) -> Iterator[str]:
    worse = [
        f"{key} ({number(value)} against {number(subject.baseline_measures[key])})"
        for key, value in subject.measures.items()
        if key in subject.baseline_measures
        and (value < subject.baseline_measures[key]) == subject.better.get(key, True)
        and value != subject.baseline_measures[key]
    ]
    if worse:
        yield (
            f"{subject.baseline} is better in {', '.join(worse)}: choose C on the training data "
            "(maxmargin compare with several --C)."
        )
    if not subject.baseline_measures and subject.training:
        yield "With --train the report sets scikit-learn's model beside this one, and tunes thresholds."


def _on_thresholds(subject: Subject, never: Sequence[LabelResult]) -> Iterator[str]:
    truth = indicator(subject.truth)
    if subject.thresholds is None or subject.scores is None or truth is None:
        return
    scores, thresholds = np.asarray(subject.scores), np.asarray(subject.thresholds)
    at = dict(zip(subject.names, thresholds.tolist(), strict=True))
    own, chosen = f1_of(truth, scores > 0), f1_of(truth, scores > thresholds)
    woken = [f"{each.name} above {number(at[each.name])}" for each in never if np.isfinite(at[each.name])]
    before, after = number(float(own.mean())), number(float(chosen.mean()))
    words = f"Thresholds from cross-validation on the training data take macro F1 from {before} to {after}"
    if woken:
        words += f", and predict {_named(woken)}"
    yield words + "; baselines.ThresholdTuner(average='macro') around the estimator does it."


def _count(some: Sequence[Any], every: Sequence[Any]) -> str:
    return f"{len(some)} of {len(every)} labels {'is' if len(some) == 1 else 'are'}"


def _named(words: Sequence[str]) -> str:
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more
