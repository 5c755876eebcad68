"""`LabelSets`: sets of labels with a guaranteed recall or precision.

Conformal risk control. The loss of a sample at threshold t is the share of its true labels with a score
below t (recall), or the largest share of wrong labels above any threshold from t on (precision; the
maximum makes the loss monotone). Let `share` be the requested recall or precision. With n calibration
samples, the threshold is the one with the fewest labels (recall) or the most labels (precision) that
satisfies

    (sum of the n losses + 1) / (n + 1) <= 1 - share .

The expected loss of a new sample, exchangeable with the n, is then at most 1 - share. For a single label
the threshold is a quantile of the scores of its positive samples.

Sample weights, divided by the largest, multiply the losses, and n is their sum. The guarantee is then
about new samples drawn in proportion to such weights. The term + 1 is the worst case of the new sample:
the largest weight and a loss of one.

Angelopoulos, Bates, Fisch, Lei, Schuster, "Conformal risk control", ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold, ShuffleSplit, check_cv
from sklearn.utils import check_random_state, indexable
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import LabelNames, Sizes, State, Whole, floats, part
from maxmargin.decisions.calibrated import TAKEN, check_width
from maxmargin.edge.estimator import fit_context, warn
from maxmargin.edge.labels import LabelSpace, check_answers, quoted, with_known
from maxmargin.edge.wrappers import (
    INNER,
    WIDTH,
    Wrapper,
    aligned,
    arguments_of,
    copy_input_tags,
    cut_rows,
    held_out_scores,
    method_of,
    take,
    takes_kernel,
)

SHARE = [Interval(Real, 0, 1, closed="neither"), None]


def _check_sets(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check stored sets: the estimator has no further labels, and no threshold is NaN."""
    if "estimator_" not in state:
        return
    check_width(state, state.get("_fitted_on"))
    check_answers(state["_labels"], state["classes_"])
    if not set(state["estimator_"].classes_.tolist()) <= set(state["classes_"].tolist()):
        raise ValueError("its estimator has labels that it does not have")
    if np.isnan(state["thresholds_"]).any():
        raise ValueError("a threshold is NaN")


class LabelSets(Wrapper, BaseEstimator):
    """Sets of labels that contain a requested share of the true labels, in expectation.

    Parameters
    ----------
    estimator : classifier with `decision_function` or `predict_proba`
        `Calibrated` makes the scores of labels comparable, and the sets smaller.
    recall : float in (0, 1) or None, default=0.9
        The expected share of the true labels of a sample that are in its set is at least this.
    precision : float in (0, 1) or None, default=None
        The expected share of the labels of a set that are true is at least this; an empty set counts
        as one. Pass ``recall=None`` with it.
    per_label : bool, default=False
        If True, guarantee the recall of every label separately: of the samples that have the label, at
        least this share is expected to have it in their set. A label with fewer than
        recall / (1 - recall) positive calibration samples is in every set, and a warning names it.
    calibration : float in (0, 1), int, or cross-validation generator, default=0.25
        - A float is the share of the samples, drawn at random, that the thresholds are computed from.
          The estimator is fitted on the others, and the guarantee is a theorem.
        - An int is a number of folds. Every sample is scored by a model of the other folds, and the
          estimator is fitted on all samples. This uses few samples better, but the theorem applies to
          the models of the folds, not to the estimator that predicts.
    random_state : int, RandomState instance or None, default=0
        Seed of the calibration samples, or of the shuffled folds; None draws new ones in every fit.

    Attributes
    ----------
    estimator_ : the fitted estimator
    thresholds_ : array of shape (n_labels,)
        A label is in the set if its score is above; -inf means always, inf means never.
    classes_ : array of shape (n_labels,)
    n_calibration_ : int
        Number of samples that the thresholds are computed from.

    Notes
    -----
    The guarantee is about the mean over new samples that are exchangeable with the training samples, and
    over draws of the training samples. It is not about a single sample, a subgroup of samples, or
    shifted data; without `per_label` it is not about a single label. Unknown entries of y (NaN) are left
    out, and so are samples without a known entry. A sample without true labels has a recall of one.

    With kernel="precomputed", `predict` takes the kernel values with all samples of `fit`, including the
    calibration samples.

    For one class per sample the sets are 0/1 rows with a column per class: conformal prediction.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import LabelSets, MultiLabelSVC
    >>> rng = np.random.RandomState(0)
    >>> X = rng.randn(400, 3)
    >>> Y = (X + rng.randn(400, 3) > 0).astype(int)
    >>> sets = LabelSets(MultiLabelSVC(), recall=0.95, random_state=0).fit(X[:300], Y[:300])
    >>> bool(sets.score(X[300:], Y[300:]) > 0.9)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "decision_function"]), HasMethods(["fit", "predict_proba"])],
        "recall": SHARE,
        "precision": SHARE,
        "per_label": ["boolean"],
        "calibration": [Interval(Real, 0, 1, closed="neither"), "cv_object"],
        "random_state": ["random_state"],
    }

    _splitter = "calibration"
    _weighed = "thresholds"

    STATE: ClassVar[State] = State(
        {
            **WIDTH,
            "_labels": part("LabelSpace", own_sizes=True),
            "classes_": LabelNames("n_names"),
            "thresholds_": floats("n_names", finite=False),
            "n_calibration_": Whole(),
            "estimator_": part(*INNER, "Calibrated", own_sizes=True),
            "_fitted_on": TAKEN,
        },
        _check_sets,
        {"estimator": part(*INNER, "Calibrated")},
    )

    def __init__(
        self,
        estimator: Any,
        *,
        recall: float | None = 0.9,
        precision: float | None = None,
        per_label: bool = False,
        calibration: Any = 0.25,
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.recall = recall
        self.precision = precision
        self.per_label = per_label
        self.calibration = calibration
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> LabelSets:
        """Fit the estimator, and compute the thresholds from samples that it was not fitted on.

        Parameters
        ----------
        X : array-like, sparse matrix or frame
        y : labels of any kind that the estimator takes
        sample_weight : array-like of shape (n_samples,), default=None
            Passed to the estimator (in a Pipeline to its last step), and counted in the thresholds: the
            guarantee is then about new samples drawn in proportion to such weights, none above the
            largest of these. If the estimator takes no weights, they count in the thresholds only, and a
            warning is raised.
        **fit_params
            Passed to the `fit` of the estimator; values with one entry per sample are cut to the
            samples of a fit. With scikit-learn's metadata routing, the estimator and the splitter get
            what they request.
        """
        if (self.recall is None) == (self.precision is None):
            raise ValueError(
                "Pass one of recall and precision, and None for the other. "
                f"Got recall={self.recall!r} and precision={self.precision!r} instead."
            )
        if self.per_label and self.recall is None:
            raise ValueError("per_label=True needs recall; precision is available for all labels together.")
        X, y = indexable(self._read_input(X, reset=True), check_format(y, "y"))
        self._labels, signs = LabelSpace.read(y)
        self.classes_ = self._labels.classes
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        weight = weight / max(weight.max(), np.finfo(float).tiny) * signs.any(axis=1)
        given, of_split = self._routed({"sample_weight": sample_weight, **fit_params})
        scores, rows = self._calibration_scores(X, y, signs, given, of_split)
        self.n_calibration_ = int((weight[rows] > 0).sum())
        truth, known = self._truth(signs[rows])
        if self.per_label:
            self.thresholds_ = self._label_thresholds(scores, truth, weight[rows])
        else:
            threshold = self._common_threshold(scores, truth, known, weight[rows])
            self.thresholds_ = np.full(len(self.classes_), threshold)
        self._copy_width(self.estimator_)
        return self

    def _calibration_scores(
        self, X: Any, y: Any, signs: np.ndarray, given: dict[str, Any], of_split: dict[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit the estimator; return the scores of the calibration samples, and their rows."""
        self.__dict__.pop("_fitted_on", None)
        if isinstance(self.calibration, Real) and not isinstance(self.calibration, Integral):
            if len(signs) < 2:
                raise ValueError("X has 1 sample; at least 2 are needed, one to fit and one to calibrate.")
            draw = ShuffleSplit(1, test_size=float(self.calibration), random_state=self.random_state)
            train, rest = next(draw.split(np.zeros(len(signs))))
            self.estimator_ = clone(self.estimator).fit(
                cut_rows(self.estimator, X, train), take(y, train), **arguments_of(given, X, train)
            )
            held_out = cut_rows(self.estimator, X, rest, train)
            scores = self._all_columns(aligned(self.estimator_, held_out, self._labels))
            if takes_kernel(self.estimator):
                self._fitted_on = np.asarray(train, np.int64)
            return scores, rest
        cv = self.calibration
        if isinstance(cv, Integral):
            cv = KFold(int(cv), shuffle=True, random_state=check_random_state(self.random_state))
        folds = check_cv(cv).split(X, y, **of_split)
        self.estimator_ = clone(self.estimator).fit(X, y, **given)
        found = held_out_scores(self.estimator, (X, y, given), (self._labels, signs), folds)
        return self._all_columns(found.scores), np.arange(len(signs))

    def _all_columns(self, scores: np.ndarray) -> np.ndarray:
        """Return scores with one column per class, also for two classes."""
        if self._labels.kind != "binary":
            return scores
        other = -scores if method_of(self.estimator) == "decision_function" else 1 - scores
        return np.hstack([other, scores])

    def _truth(self, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which entries are true, and which are known."""
        if self._labels.kind == "binary":
            signs = np.hstack([-signs, signs])
        return signs > 0, signs != 0

    def _common_threshold(
        self, scores: np.ndarray, truth: np.ndarray, known: np.ndarray, weight: np.ndarray
    ) -> float:
        name, share = ("recall", self.recall) if self.recall is not None else ("precision", self.precision)
        assert share is not None
        allowed = allowance(share, weight)
        if name == "recall":
            threshold = recall_threshold(scores, truth, allowed, weight)
        else:
            threshold = precision_threshold(scores, truth, known, allowed, weight)
        if allowed < 0:
            needed = int(np.ceil(1 / (1 - share) - 1e-9)) - 1
            warn(
                f"{name}={share:g} cannot be guaranteed with {weight.sum():g} calibration samples; it needs "
                f"{needed}. Every set {'contains all labels' if name == 'recall' else 'is empty'}."
            )
        return threshold

    def _label_thresholds(self, scores: np.ndarray, truth: np.ndarray, weight: np.ndarray) -> np.ndarray:
        assert self.recall is not None
        found = np.array(
            [label_threshold(scores[on, l], self.recall, weight[on]) for l, on in enumerate(truth.T)]
        )
        always = np.isneginf(found)
        if always.any():
            warn(
                f"Label {quoted(self.classes_[always])} has too few positive calibration samples for "
                f"recall={self.recall:g}; it is in every set."
            )
        return found

    def predict(self, X: Any) -> Any:
        """Return the sets, in the kind passed to `fit`; for classes a 0/1 matrix, a column per class."""
        on = self._sets(X)
        return on.astype(np.int64) if self._labels.single_label else self._labels.answer(on, like=X)

    def _sets(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        fitted = getattr(self, "_fitted_on", None)
        scores = self._all_columns(aligned(self.estimator_, self._read_input(X), self._labels, fitted))
        return (scores > self.thresholds_) | np.isneginf(self.thresholds_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the recall or precision of the sets, whichever is guaranteed, as a mean over samples.

        Parameters
        ----------
        X : array-like, sparse matrix or frame
        y : the true labels, in the kind passed to `fit`
            Unknown entries (NaN) are left out, and so are samples without a known entry.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        on = self._sets(X)
        truth, known = self._truth(self._labels.signs(y))
        rows, weight = with_known(known, sample_weight, "y")
        hits = (on & truth).sum(axis=1)
        sizes = truth.sum(axis=1) if self.recall is not None else (on & known).sum(axis=1)
        share = np.where(sizes > 0, hits / np.maximum(sizes, 1), 1.0)
        return float(np.average(share[rows], weights=weight))

    def __sklearn_tags__(self) -> Any:
        return copy_input_tags(super().__sklearn_tags__(), self.estimator)


def allowance(share: float, weight: np.ndarray) -> float:
    """Return the largest sum of losses that guarantees `share`; below zero if nothing does."""
    return float((1 - share) * (weight.sum() + 1) * (1 + 1e-12) - 1)


def recall_threshold(scores: np.ndarray, truth: np.ndarray, allowed: float, weight: np.ndarray) -> float:
    """Return the highest threshold with a sum of losses (shares of missed labels) of at most `allowed`."""
    if allowed < 0:
        return -np.inf
    rows = np.nonzero(truth)[0]
    values, share = scores[truth], weight[rows] / truth.sum(axis=1)[rows]
    order = np.argsort(values, kind="stable")
    values, missed = values[order], np.cumsum(share[order])
    # The sum of losses exceeds `allowed` at the lowest kept score, if all equal scores are missed.
    kept = np.flatnonzero(missed > allowed * (1 + 1e-12))
    return float(np.nextafter(values[kept[0]], -np.inf)) if kept.size else np.inf


def precision_threshold(
    scores: np.ndarray, truth: np.ndarray, known: np.ndarray, allowed: float, weight: np.ndarray
) -> float:
    """Return the lowest threshold with a sum of losses (shares of wrong labels) of at most `allowed`."""
    if allowed < 0:
        return np.inf
    ranked = np.argsort(np.where(known, -scores, np.inf), axis=1, kind="stable")
    wrong = np.cumsum(np.take_along_axis(~truth & known, ranked, axis=1), axis=1)
    size = np.cumsum(np.take_along_axis(known, ranked, axis=1), axis=1)
    # The loss at the k-th score is the worst share from there upwards; sum its rises from the top.
    worst = np.maximum.accumulate(wrong / np.maximum(size, 1), axis=1)
    rise = np.diff(worst, axis=1, prepend=0.0) * weight[:, None]
    at = rise > 0
    values, rise = np.take_along_axis(scores, ranked, axis=1)[at], rise[at]
    order = np.argsort(-values, kind="stable")
    values, total = values[order], np.cumsum(rise[order])
    over = np.flatnonzero(total > allowed * (1 + 1e-12))
    return float(values[over[0]]) if over.size else -np.inf


def label_threshold(values: np.ndarray, share: float, weight: np.ndarray) -> float:
    """Return a threshold that a new score, exchangeable with `values`, exceeds with probability `share`."""
    truth = np.ones((len(values), 1), bool)
    return recall_threshold(values[:, None], truth, allowance(share, weight), weight)
