"""Thresholds tuned for F1 around any estimator, and the sparse machines that the papers compare with."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d

from maxmargin.core.state import LabelNames, Sizes, State, Whole, floats, part
from maxmargin.edge.estimator import fit_context
from maxmargin.edge.labels import LabelClassifier, LabelSpace, check_answers
from maxmargin.edge.wrappers import (
    INNER,
    WIDTH,
    Wrapper,
    copy_input_tags,
    held_out_scores,
    last_step,
    score_columns,
)
from maxmargin.sparse.rivals import ImportVectorMachine, SparseOneVsRest

__all__ = ["ImportVectorMachine", "SparseOneVsRest", "ThresholdTuner", "tune_thresholds"]

AVERAGES = ("samples", "micro", "macro", "subset")
MAX_SWEEPS = 50


def __getattr__(name: str) -> Any:
    if name in ("LabelPowerset", "MLkNN", "RAkEL"):
        raise AttributeError(
            f"maxmargin.baselines has no {name}: it moved to experiments/_baselines.py in the repository; "
            "MultiLabelSVC and ThresholdTuner learn several labels per sample."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def tune_thresholds(
    y_true: np.ndarray, scores: np.ndarray, average: str = "samples", *, sample_weight: Any = None
) -> np.ndarray:
    """Return the thresholds, one per label, that maximise a measure; a label is on above its threshold.

    "macro" is solved exactly, label by label. The others are local optima of coordinate ascent: one
    threshold at a time moves to its exact best value given the others, until none improves. "micro"
    and "samples" start at the solution of "macro", "subset" starts at the fewest errors per label. A
    label without known entries gets a threshold that no score exceeds.

    Parameters
    ----------
    y_true : array of shape (n_samples, n_labels), of booleans or of 0/1
        Unknown entries (NaN) are left out.
    scores : array of shape (n_samples, n_labels)
    average : {"samples", "micro", "macro", "subset"}, default="samples"
        An F1; or, with "subset", the share of samples whose labels are all correct.
    sample_weight : array-like of shape (n_samples,), default=None

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.baselines import tune_thresholds
    >>> truth = np.array([[True], [True], [False]])
    >>> tune_thresholds(truth, np.array([[-1.0], [-2.0], [-3.0]]), "macro")
    array([-2.5])
    """
    y_true = np.asarray(y_true)
    known, truth = ~np.isnan(y_true), y_true > 0
    weight = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, float)
    weight = weight / max(weight.max(), np.finfo(float).tiny)
    columns = [_Column(truth[:, l], scores[:, l], known[:, l], weight) for l in range(scores.shape[1])]
    for column in columns:
        column.move(column.correct if average == "subset" else _f1(column.hits, column.sizes))
    for _ in range(MAX_SWEEPS):
        if average == "macro":
            break
        moved = False
        for l, column in enumerate(columns):
            if average == "micro":
                others = columns[:l] + columns[l + 1 :]
                hits = sum(other.hits[other.cut] for other in others)
                sizes = sum(other.sizes[other.cut] for other in others)
                values = _f1(hits + column.hits, sizes + column.sizes)
            else:
                # The gain of each sample from switching label l on, summed in the order of its scores.
                gain = (_f1_gains if average == "samples" else _subset_gains)(columns, truth, l)
                values = np.concatenate([[0.0], np.cumsum((weight * gain)[column.order])])
            moved |= column.move(values)
        if not moved:
            break
    return np.array([column.cuts[column.cut] for column in columns])


def _f1(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return 2 hits / sizes, and 1 where no label is true or predicted."""
    return np.divide(2.0 * hits, sizes, out=np.ones(np.shape(sizes)), where=sizes > 0)


class _Column:
    """One label: its known samples by falling score, and the counts of every cut of that order.

    Cut j predicts the label for the first j samples; only cuts between different scores are allowed.
    """

    def __init__(self, truth: np.ndarray, scores: np.ndarray, known: np.ndarray, weight: np.ndarray) -> None:
        self.n = len(truth)
        rows = np.flatnonzero(known)
        self.order = rows[np.argsort(-scores[rows], kind="stable")]
        ranked, counted = scores[self.order], weight[self.order]
        self.hits = np.concatenate([[0.0], np.cumsum(counted * truth[self.order])])
        count = np.concatenate([[0.0], np.cumsum(counted)])
        self.sizes = count + self.hits[-1]
        self.correct = 2 * self.hits - count  # up to a constant
        self.allowed = np.concatenate([[True], ranked[1:] < ranked[:-1], np.ones(min(len(rows), 1), bool)])
        between = 0.5 * (ranked[1:] + ranked[:-1])
        # A midpoint may round up to the higher score, which must stay above the threshold.
        between = np.where(between < ranked[:-1], between, ranked[1:])
        first = ranked[0] if len(rows) else scores.max()
        self.cuts = np.concatenate([[first], between, np.nextafter(ranked[-1:], -np.inf)])
        self.cut = -1

    @property
    def on(self) -> np.ndarray:
        answer = np.zeros(self.n, bool)
        answer[self.order[: self.cut]] = True
        return answer

    def move(self, values: np.ndarray) -> bool:
        """Move to the allowed cut with the highest value; return whether that is an improvement."""
        values = np.where(self.allowed, values, -np.inf)
        best = int(np.argmax(values))
        if self.cut >= 0 and values[best] <= values[self.cut] + 1e-12:
            return False
        self.cut = best
        return True


def _f1_gains(columns: list[_Column], truth: np.ndarray, l: int) -> np.ndarray:
    """Return the gain in example F1 of every sample if label l is switched on."""
    answers = np.column_stack([column.on for column in columns])
    answers[:, l] = False
    hits = (answers & truth).sum(axis=1)
    sizes = answers.sum(axis=1) + truth.sum(axis=1)
    return _f1(hits + truth[:, l], sizes + 1) - _f1(hits, sizes)


def _subset_gains(columns: list[_Column], truth: np.ndarray, l: int) -> np.ndarray:
    """Return the gain in subset accuracy of every sample if label l is switched on."""
    correct = np.column_stack([column.on for column in columns]) == truth
    correct[:, l] = True
    return correct.all(axis=1) * np.where(truth[:, l], 1.0, -1.0)


def _check_tuned(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check a stored tuner: the class names agree, and its estimator is fitted."""
    if "_labels" not in state:
        return
    check_answers(state["_labels"], state["classes_"])
    if "classes_" not in vars(last_step(state["estimator_"])):
        raise ValueError("its estimator_ is not fitted")


def _has_scores(self: Any) -> bool:
    return hasattr(getattr(self, "estimator_", self.estimator), "decision_function")


class ThresholdTuner(Wrapper, LabelClassifier, BaseEstimator):
    """Tune one threshold per label on held-out scores, then fit the estimator on all samples.

    Parameters
    ----------
    estimator : multi-label classifier with `decision_function` or `predict_proba`
    average : {"samples", "micro", "macro", "subset"}, default="samples"
        The measure to maximise: the mean F1 of the samples ("samples"), the F1 over all entries
        ("micro"), the mean F1 of the labels ("macro"), or the share of samples whose labels are all
        correct ("subset").
    cv : int, cross-validation generator or iterable, default=5
        How samples are held out.
    n_jobs : int or None, default=None
        Number of folds fitted at the same time, as in scikit-learn.

    Attributes
    ----------
    estimator_ : fitted estimator
    thresholds_ : array of shape (n_labels,)
        A label is predicted if its score is above its threshold.
    classes_ : array of shape (n_labels,)

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn.multiclass import OneVsRestClassifier
    >>> from sklearn.svm import LinearSVC
    >>> from maxmargin.baselines import ThresholdTuner
    >>> X, Y = make_multilabel_classification(60, n_classes=3, random_state=0)
    >>> tuned = ThresholdTuner(OneVsRestClassifier(LinearSVC()), average="macro", cv=3).fit(X, Y)
    >>> tuned.thresholds_.shape
    (3,)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "decision_function"]), HasMethods(["fit", "predict_proba"])],
        "average": [StrOptions(set(AVERAGES))],
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    _weighed = "thresholds"

    STATE: ClassVar[State] = State(
        {
            **WIDTH,
            "_labels": part("LabelSpace"),
            "classes_": LabelNames("n_classes"),
            "thresholds_": floats("n_columns"),
            "estimator_": part(*INNER),
        },
        _check_tuned,
        {"estimator": part(*INNER), "cv": Whole(2, 10**6, none=True)},
    )

    def __init__(
        self, estimator: Any, *, average: str = "samples", cv: Any = 5, n_jobs: int | None = None
    ) -> None:
        self.estimator = estimator
        self.average = average
        self.cv = cv
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> ThresholdTuner:
        """Score held-out samples, tune the thresholds, and fit the estimator on all samples.

        Parameters
        ----------
        X : array-like, sparse matrix or frame
        y : labels of any kind; several labels per sample reach the estimator as a 0/1 matrix
            Unknown entries (NaN) are left out, label by label, if the estimator takes them.
        sample_weight : array-like of shape (n_samples,), default=None
            Passed to the estimator (in a Pipeline to its last step), and counted in the measure. If the
            estimator takes no weights, they count in the measure only, and a warning is raised.
        **fit_params
            Passed to the `fit` of the estimator; values with one entry per sample are cut to the
            samples of a fold. With scikit-learn's metadata routing, the estimator and the splitter get
            what they request.
        """
        X = self._read_input(X, reset=True)
        self._labels, signs = LabelSpace.read(y)
        single, on = self._labels.single_label, signs > 0
        target = column_or_1d(y) if single else on.astype(int)
        if not signs.all():
            target = np.where(signs == 0, np.nan, target)
        X, target = indexable(X, target)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        given, of_split = self._routed({"sample_weight": sample_weight, **fit_params})
        cv = check_cv(self.cv, target if single else None, classifier=is_classifier(self.estimator))
        splits = cv.split(X, target, **of_split)
        space = self._labels if single else LabelSpace.recognise(target)
        held_out = held_out_scores(
            self.estimator, (X, target, given), (space, signs), splits, n_jobs=self.n_jobs
        ).scores
        # A class that is absent from a fold has no score there.
        truth = np.where((signs != 0) & np.isfinite(held_out), on, np.nan)
        self.thresholds_ = tune_thresholds(truth, held_out, self.average, sample_weight=weight)
        self.estimator_ = clone(self.estimator).fit(X, target, **given)
        self.classes_ = self._labels.classes
        self._copy_width(self.estimator_)
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels whose score is above their threshold, in the kind passed to `fit`.

        For one class per sample, return the class with the largest score minus threshold.
        """
        margins = self._margins(X)
        return self._labels.answer(self._labels.choose(margins), like=X)

    @available_if(_has_scores)
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the estimator minus the thresholds."""
        margins = self._margins(X)
        return self._labels.scores(margins)

    def _margins(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return score_columns(self.estimator_, self._read_input(X), self._labels) - self.thresholds_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return copy_input_tags(tags, self.estimator)
