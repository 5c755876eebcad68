"""Per-label thresholds tuned for F1 or subset accuracy, around any estimator with scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d

from maxmargin._names import ESTIMATORS
from maxmargin.core.state import INPUT, Field, LabelNames, Sizes, State, Whole, floats, part
from maxmargin.edge.estimator import fit_context
from maxmargin.edge.held_out import held_out_scores, score_columns
from maxmargin.edge.labels import LabelClassifier, LabelSpace, check_answers
from maxmargin.edge.wrapping import Wrapper, pass_on_input, read_input, tell_width

MAX_SWEEPS = 50


def tune_thresholds(
    y_true: np.ndarray, scores: np.ndarray, average: str = "samples", *, sample_weight: Any = None
) -> np.ndarray:
    """Thresholds, one per label, that maximise a measure; a label is on when its score is above.

    "macro" is solved exactly, label by label. "micro" and "samples" start there, "subset" where every
    label has fewest errors, and change one threshold at a time to its exact best value, given the
    others, until none improves. A label without any known entry is off at all scores given.

    Parameters
    ----------
    y_true : array of shape (n_samples, n_labels), of booleans or of 0/1
        Unknown entries (NaN) are left out.
    scores : array of shape (n_samples, n_labels)
    average : {"samples", "micro", "macro", "subset"}, default="samples"
        An F1, or with "subset" the share of samples whose labels are all right.
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
        column.move(column.rights if average == "subset" else _f1(column.hits, column.sizes))
    if average == "macro":
        return np.array([column.threshold for column in columns])
    objectives: dict[str, Callable[[list[_Column], _Column], np.ndarray]] = {
        "micro": _micro,
        "samples": partial(_samples, truth, weight),
        "subset": partial(_subset, truth, weight),
    }
    for _ in range(MAX_SWEEPS):
        moves = [column.move(objectives[average](columns, column)) for column in columns]
        if not any(moves):
            break
    return np.array([column.threshold for column in columns])


def _f1(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """2 hits / sizes, which is 1 where nothing is true and nothing predicted."""
    return np.divide(2.0 * hits, sizes, out=np.ones(np.shape(sizes)), where=sizes > 0)


class _Column:
    """One label: its known samples by falling score, and what each cut of that order would predict.

    Cut j puts the first j samples on; only cuts between different scores are allowed.
    """

    def __init__(self, truth: np.ndarray, scores: np.ndarray, known: np.ndarray, weight: np.ndarray) -> None:
        self.n = len(truth)
        rows = np.flatnonzero(known)
        self.order = rows[np.argsort(-scores[rows], kind="stable")]
        ranked, counted = scores[self.order], weight[self.order]
        self.hits = np.concatenate([[0.0], np.cumsum(counted * truth[self.order])])
        count = np.concatenate([[0.0], np.cumsum(counted)])
        self.sizes = count + self.hits[-1]
        self.rights = 2 * self.hits - count  # up to a constant
        self.allowed = np.concatenate([[True], ranked[1:] < ranked[:-1], np.ones(min(len(rows), 1), bool)])
        between = 0.5 * (ranked[1:] + ranked[:-1])
        # A midpoint may round up to the upper score, which must stay above the threshold.
        between = np.where(between < ranked[:-1], between, ranked[1:])
        self.cuts = np.concatenate(
            [[ranked[0] if len(rows) else scores.max()], between, np.nextafter(ranked[-1:], -np.inf)]
        )
        self.cut = -1

    @property
    def threshold(self) -> float:
        return float(self.cuts[self.cut])

    @property
    def on(self) -> np.ndarray:
        answer = np.zeros(self.n, bool)
        answer[self.order[: self.cut]] = True
        return answer

    def move(self, values: np.ndarray) -> bool:
        """Go to the allowed cut with the highest value; whether that improved on the present one."""
        values = np.where(self.allowed, values, -np.inf)
        best = int(np.argmax(values))
        if self.cut >= 0 and values[best] <= values[self.cut] + 1e-12:
            return False
        self.cut = best
        return True


def _micro(columns: list[_Column], column: _Column) -> np.ndarray:
    """Micro F1 for every cut of one column, the others as they are."""
    others = [other for other in columns if other is not column]
    hits = sum(other.hits[other.cut] for other in others)
    sizes = sum(other.sizes[other.cut] for other in others)
    return _f1(hits + column.hits, sizes + column.sizes)


def _samples(truth: np.ndarray, weight: np.ndarray, columns: list[_Column], column: _Column) -> np.ndarray:
    """Sum of example F1, up to a constant, for every cut of one column, the others as they are."""
    own = next(l for l, other in enumerate(columns) if other is column)
    answers = np.column_stack([other.on for other in columns])
    answers[:, own] = False
    hits = (answers & truth).sum(axis=1)
    sizes = answers.sum(axis=1) + truth.sum(axis=1)
    gain = weight * (_f1(hits + truth[:, own], sizes + 1) - _f1(hits, sizes))
    return np.concatenate([[0.0], np.cumsum(gain[column.order])])


def _subset(truth: np.ndarray, weight: np.ndarray, columns: list[_Column], column: _Column) -> np.ndarray:
    """Samples that are all right, up to a constant, for every cut of one column, the others as they are."""
    own = next(l for l, other in enumerate(columns) if other is column)
    right = np.column_stack([other.on for other in columns]) == truth
    right[:, own] = True
    gain = weight * right.all(axis=1) * np.where(truth[:, own], 1.0, -1.0)
    return np.concatenate([[0.0], np.cumsum(gain[column.order])])


def _check_tuned(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: two classes have two names, and what was tuned has learnt something."""
    if "_labels" not in state:
        return
    check_answers(state["_labels"], state["classes_"])
    inner = state["estimator_"]
    while hasattr(inner, "steps"):
        inner = inner.steps[-1][1]
    if "classes_" not in vars(inner):
        raise ValueError("its estimator_ is not fitted")


# What a model file can hold behind a tuner; the width is there if the estimator tells it.
INNER = (*(name for name in ESTIMATORS if name != "StreamRanker"), "Pipeline")
WIDTH: dict[str, Field] = {"n_features_in_": Whole(size="n_features", group="width")}


def _has(name: str) -> Any:
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))


class ThresholdTuner(Wrapper, LabelClassifier, BaseEstimator):
    """Tunes one threshold per label on held-out scores, then fits the estimator on all samples.

    Parameters
    ----------
    estimator : multi-label classifier with `decision_function` or `predict_proba`
    average : {"samples", "micro", "macro", "subset"}, default="samples"
        Which F1 to maximise: of samples (example F1), over all entries, or the mean over labels; or,
        with "subset", the share of samples whose labels are all right.
    cv : int, cross-validation generator or iterable, default=5
        How samples are held out.
    n_jobs : int or None, default=None
        Folds at a time, as in scikit-learn.

    Attributes
    ----------
    estimator_ : fitted estimator
    thresholds_ : array of shape (n_labels,)
        A label is on when its score is above its threshold.
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
        "average": [StrOptions({"samples", "micro", "macro", "subset"})],
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    _weighed = "thresholds"

    STATE: ClassVar[State] = State(
        {
            **INPUT,
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
        """Score every sample by a model that has not seen it, tune, and fit on all samples.

        Parameters
        ----------
        X : array-like, sparse matrix or frame
        y : labels of any kind; those of several labels per sample reach the estimator as a 0/1 matrix
            Unknown entries (NaN) are left out, label by label, if the estimator takes them.
        sample_weight : array-like of shape (n_samples,), default=None
            Passed to the estimator (in a Pipeline to its last step), and counted in the measure. For an
            estimator that takes no weights they count in the measure alone, with a warning.
        **fit_params
            Passed to the `fit` of the estimator; values with one entry for each sample are cut to the
            samples of a fold. With scikit-learn's metadata routing the estimator and the splitter get, of
            these and of the weights, what they request.
        """
        X = read_input(self, X, reset=True)
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
        # A fold that has not met a class has no score for it.
        truth = np.where((signs != 0) & np.isfinite(held_out), on, np.nan)
        self.thresholds_ = tune_thresholds(truth, held_out, self.average, sample_weight=weight)
        self.estimator_ = clone(self.estimator).fit(X, target, **given)
        self.classes_ = self._labels.classes
        tell_width(self, self.estimator_)
        return self

    def predict(self, X: Any) -> Any:
        """Labels whose score is above their threshold, in the kind that `fit` was given.

        For one class per sample, the class whose score is above its threshold the most.
        """
        check_is_fitted(self)
        scores = score_columns(self.estimator_, read_input(self, X), self._labels)
        return self._labels.answer(self._labels.choose(scores - self.thresholds_), like=X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the estimator minus the thresholds."""
        check_is_fitted(self)
        scores = score_columns(self.estimator_, read_input(self, X), self._labels)
        return self._labels.scores(scores - self.thresholds_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return pass_on_input(tags, self.estimator)
