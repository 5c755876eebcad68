"""The verdict of a report: how good the model is, compared with what, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.words import number
from maxmargin.report.page import with_error
from maxmargin.report.subject import (
    LabelResult,
    Subject,
    answers_by,
    estimates,
    f1_of,
    indicator,
    per_label,
)

# Number of labels that a sentence lists.
MAX_LISTED = 6
# Advise scaling if the standard deviations of the columns differ by this factor.
UNEVEN = 100.0
# A difference counts if it exceeds this many standard errors.
ERRORS = 2.0


def judgement(subject: Subject) -> tuple[str, list[str]]:
    """Return a sentence on the results, after the caution, and a list of advice."""
    measure, value = next(iter(subject.measures.items()))
    others = []
    if subject.baseline_measures:
        others.append(f"{number(subject.baseline_measures[measure])} of {subject.baseline}")
    # If the training labels are unknown, the constant prediction is chosen on the test labels.
    known = subject.truth if subject.training_labels is None else subject.training_labels
    constant = constant_measure(subject.truth, known, measure)
    if constant is not None:
        chosen = "these samples themselves" if subject.training_labels is None else "the training labels"
        others.append(f"{number(constant)} of the best constant prediction, chosen on {chosen}")
    against = f", against {' and '.join(others)}" if others else ""
    found = f"{measure} {with_error(value, subject.estimates.get(measure))} on {subject.size}{against}."
    return f"{subject.caution} {found}".lstrip(), list(_advice(subject))


def constant_measure(judged: Any, known: Any, measure: str) -> float | None:
    """Return the main measure on `judged` of the constant prediction that is best for the `known` labels."""
    if np.ndim(judged) == 2:
        # Comparisons keep sparse labels sparse; unknown entries are not counted.
        truth, counts = judged > 0, _sums(known > 0)
        if measure == "micro F1":
            answer, hits = best_set(counts, known.shape[0]), _sums(truth)
            predicted = truth.shape[0] - (0 if sp.issparse(judged) else _sums(judged != judged)[answer])
            return float(
                2 * hits[answer].sum() / max(hits.sum() + np.broadcast_to(predicted, len(answer)).sum(), 1)
            )
        if measure == "top label right":  # like the measure, leave out samples that have all labels
            dense = truth.toarray() if sp.issparse(truth) else truth
            right = dense[~dense.all(axis=1), counts.argmax()]
            return float(right.mean()) if len(right) else None
        return None
    if measure not in ("accuracy", "letter accuracy", "top label right"):
        return None
    classes, counts = np.unique(np.asarray(known), return_counts=True)
    return float(np.mean(np.asarray(judged) == classes[np.argmax(counts)]))


def _sums(matrix: Any) -> np.ndarray:
    """Return the sums of the columns."""
    return np.asarray(matrix.sum(axis=0)).ravel()


def best_set(counts: np.ndarray, n: int) -> np.ndarray:
    """Return the constant set of labels with the best micro F1 on n rows with these counts.

    Among the sets of one size, that of the most frequent labels is best.
    """
    order = np.argsort(-counts, kind="stable")
    f1 = 2 * np.cumsum(counts[order]) / (n * np.arange(1, len(order) + 1) + counts.sum())
    return order[: f1.argmax() + 1]


def leads(subject: Subject, measure: str) -> int:
    """Return 1 if the model is better than the baseline beyond the noise, -1 if worse, else 0."""
    value, other = subject.measures[measure], subject.baseline_measures.get(measure)
    if other is None or value == other:
        return 0
    own, theirs = subject.estimates.get(measure), subject.baseline_estimates.get(measure)
    if own is not None and theirs is not None and abs(value - other) <= ERRORS * own.error(theirs):
        return 0
    return 1 if (value > other) == subject.better.get(measure, True) else -1


def _advice(subject: Subject) -> Iterator[str]:
    yield from _on_the_fit(subject)
    at_zero = _at_zero(subject)
    yield from _on_the_cut(subject, at_zero)
    yield from _on_the_baseline(subject, at_zero)
    found = per_label(subject)
    never = [each for each in found if each.samples and not each.predicted]
    if never:
        yield f"{_count(never, found)} never predicted: {_listed([each.name for each in never])}."
    yield from _on_thresholds(subject, never)
    losing = [each for each in found if each.predicted and each.f1 < each.constant]
    if losing and indicator(subject.truth) is not None:
        words = [f"{each.name} ({number(each.f1)} < {number(each.constant)})" for each in losing]
        yield f"{_count(losing, found)} predicted worse (in F1) than by a constant yes: {_listed(words)}."


def _on_the_fit(subject: Subject) -> Iterator[str]:
    model = subject.model
    gap, tol = getattr(model, "duality_gap_", None), getattr(model, "tol", None)
    if gap is not None and tol is not None and not hasattr(model, "n_mistakes_") and not gap <= tol:
        yield (
            f"The fit stopped at a relative gap of {number(float(gap))}, above tol = {number(float(tol))}: "
            "raise --max-iter, or scale the columns."
        )
    if not subject.preprocessing and not sp.issparse(subject.X):
        deviations = np.std(subject.X, axis=0)
        deviations = deviations[deviations > 0]
        if len(deviations) and deviations.max() > UNEVEN * deviations.min():
            factor = number(float(deviations.max() / deviations.min()))
            yield f"The columns differ in scale by a factor of {factor}: try fit --scale standard."


def _at_zero(subject: Subject) -> dict[str, float]:
    """Return the measures of predicting scores above 0, for a model that predicts otherwise."""
    joint = hasattr(subject.model, "interaction_")
    if indicator(subject.truth) is None or subject.scores is None or joint or answers_by(subject) == "score":
        return {}
    on = (np.asarray(subject.scores) > 0).astype(int)
    return {name: float(found.value) for name, found in estimates(subject, on).items()}


def _beats(subject: Subject, measure: str, one: float, other: float) -> bool:
    return one > other if subject.better.get(measure, True) else one < other


def _on_the_cut(subject: Subject, at_zero: Mapping[str, float]) -> Iterator[str]:
    """Probabilities above one half give few wrong labels, but too few labels for F1."""
    gained = [
        f"{key} {number(at_zero[key])} instead of {number(value)}"
        for key, value in subject.measures.items()
        if key.endswith("F1") and key in at_zero and _beats(subject, key, at_zero[key], value)
    ]
    if gained and answers_by(subject) == "probability":
        yield (
            "The model predicts labels with a probability above 0.5, which is too strict for F1. With scores "
            f"above 0 it has {', '.join(gained)}. For F1 fit without --probabilities."
        )


def _on_the_baseline(subject: Subject, at_zero: Mapping[str, float]) -> Iterator[str]:
    theirs = subject.baseline_measures
    worse = [key for key in subject.measures if leads(subject, key) < 0]
    by_cut = [key for key in worse if key in at_zero and not _beats(subject, key, theirs[key], at_zero[key])]
    by_fit = [key for key in worse if key not in by_cut]

    def compared(keys: Sequence[str]) -> str:
        figures = [f"{key} ({number(subject.measures[key])} against {number(theirs[key])})" for key in keys]
        return f"{subject.baseline} is better in {', '.join(figures)}"

    if by_cut:
        cut = "the threshold of 0.5 on probabilities" if answers_by(subject) else "how labels are chosen"
        reason = cut if subject.promise is None else "the guarantee of its sets"
        yield f"{compared(by_cut)}. The reason is {reason}, not C."
    if by_fit:
        yield f"{compared(by_fit)}: choose C on the training data, by fit --C auto."
    if theirs and not worse and not any(leads(subject, key) for key in subject.measures):
        yield f"The differences to {subject.baseline} are within {ERRORS:g} standard errors."
    if not theirs and subject.training:
        yield "With --train the report compares with scikit-learn's model and tunes thresholds."


def _on_thresholds(subject: Subject, never: Sequence[LabelResult]) -> Iterator[str]:
    truth, predicted = indicator(subject.truth), indicator(subject.predicted)
    if subject.thresholds is None or subject.scores is None or truth is None or predicted is None:
        return
    scores, thresholds = np.asarray(subject.scores), np.asarray(subject.thresholds)
    at = dict(zip(subject.names, thresholds.tolist(), strict=True))
    own, tuned = f1_of(truth, predicted), f1_of(truth, scores > thresholds)
    found = [f"{each.name} above {number(at[each.name])}" for each in never if np.isfinite(at[each.name])]
    before, after = number(float(own.mean())), number(float(tuned.mean()))
    words = (
        f"Thresholds tuned by cross-validation on the training data change macro F1 from {before} to {after}"
    )
    if found:
        words += f", and predict {_listed(found)}"
    yield words + "; in Python, use maxmargin.baselines.ThresholdTuner(estimator, average='macro')."


def _count(some: Sequence[Any], every: Sequence[Any]) -> str:
    return f"{len(some)} of {len(every)} labels {'is' if len(some) == 1 else 'are'}"


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - MAX_LISTED} more" if len(words) > MAX_LISTED else ""
    return ", ".join(words[:MAX_LISTED]) + more
