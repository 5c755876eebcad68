"""`LabelSets`: sets of labels that hold a promise about recall or precision.

Conformal risk control: the loss of a sample at threshold t is the share of its true labels that score
below t (recall), or the largest share of wrong labels among those above any threshold from t on
(precision; the largest one makes the loss monotone). With n samples that the model has not seen, the
threshold is the one that gives the most labels (precision) or the fewest (recall) among those with

    (sum of the n losses + 1) / (n + 1) <= 1 - what was asked ,

and the expected loss of a new sample, exchangeable with the n, is at most 1 - what was asked. For one
label by itself this is a quantile of the scores of its positive samples. Weights of samples, relative to the
largest, multiply the losses, and n is their sum: new samples are then drawn in proportion to weights none
of which is above the largest. A loss is at most one, so that the largest weight for the new sample is the
worst case.

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

from maxmargin._names import WRAPPERS
from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import LabelNames, Sizes, State, Whole, floats, part
from maxmargin.decisions.calibrated import INNER, TAKEN, WIDTH, check_width
from maxmargin.edge.estimator import fit_context, warn
from maxmargin.edge.held_out import aligned, arguments_of, held_out_scores, method_of, take
from maxmargin.edge.labels import SHOWN, LabelSpace, check_answers, with_known
from maxmargin.edge.wrapping import Wrapper, cut_rows, pass_on_input, read_input, takes_kernel, tell_width

SHARE = [Interval(Real, 0, 1, closed="neither"), None]


def _check_sets(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: the estimator knows no other labels, and all thresholds are numbers."""
    if "estimator_" not in state:
        return
    check_width(state, state.get("_fitted_on"))
    check_answers(state["_labels"], state["classes_"])
    if not set(state["estimator_"].classes_.tolist()) <= set(state["classes_"].tolist()):
        raise ValueError("its estimator has labels of its own")
    if np.isnan(state["thresholds_"]).any():
        raise ValueError("a threshold is NaN")


class LabelSets(Wrapper, BaseEstimator):
    """Sets of labels in which the asked share of the true labels is found, in expectation.

    Parameters
    ----------
    estimator : classifier with `decision_function` or `predict_proba`
        `Calibrated` makes the scores of labels comparable, and the sets smaller.
    recall : float in (0, 1) or None, default=0.9
        The share of its true labels that a sample is expected to find in its set, at least.
    precision : float in (0, 1) or None, default=None
        Instead: the share of the labels in its set that are expected to be true, at least (an empty set
        counts as one). Give ``recall=None`` with it.
    per_label : bool, default=False
        Promise the recall of every label by itself: of the samples that have it, at least this share is
        expected to be told so. A label with fewer than recall / (1 - recall) positive samples in the
        calibration is in every set, since nothing less keeps the promise; a warning names it.
    calibration : float in (0, 1), int, or cross-validation generator, default=0.25
        A share of the samples, drawn at random, from which the thresholds come; the estimator is fitted
        on the others, and the promise is a theorem. Or a number of folds: every sample is scored by a
        model of the other folds, and the estimator is fitted on all samples. That makes more of few
        samples, but the theorem is about models of the folds, not about the one that answers.
    random_state : int, RandomState instance or None, default=0
        Draws the share, or shuffles the folds; None draws anew in every fit.

    Attributes
    ----------
    estimator_ : the fitted estimator
    thresholds_ : array of shape (n_labels,)
        A label is in the set when its score is above; -inf where it always is, inf where it never is.
    classes_ : array of shape (n_labels,)
    n_calibration_ : int
        Number of samples that the thresholds come from.

    Notes
    -----
    The promise is about the mean over new samples that come from where the training samples came from
    (exchangeable with them), and over draws of the training samples. It says nothing about a single
    sample, about the samples with certain features, or about data that has shifted; without `per_label`
    it says nothing about a single label. Unknown entries of y (NaN) are left out, and so are samples
    without a known entry. A sample without true labels has found all of them.

    With kernel="precomputed", `predict` takes the kernel values with all samples of `fit`, those that the
    thresholds come from too.

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
        {"estimator": part(*INNER, *(name for name in WRAPPERS if name == "Calibrated"))},
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
        """Fit the estimator, and find the thresholds on samples that it has not seen.

        Parameters
        ----------
        X : array-like, sparse matrix or frame
        y : labels of any kind that the estimator takes
        sample_weight : array-like of shape (n_samples,), default=None
            Passed to the estimator (in a Pipeline to its last step), and counted in the thresholds: the
            promise is then about new samples drawn in proportion to such weights, none above the largest
            given. For an estimator that takes no weights they count in the thresholds alone, with a
            warning.
        **fit_params
            Passed to the `fit` of the estimator; values with one entry for each sample are cut to the
            samples of a fit. With scikit-learn's metadata routing the estimator and the splitter get, of
            these and of the weights, what they request.
        """
        if (self.recall is None) == (self.precision is None):
            raise ValueError(
                "Give one of recall and precision, and None for the other. "
                f"Got recall={self.recall!r} and precision={self.precision!r} instead."
            )
        if self.per_label and self.recall is None:
            raise ValueError("per_label=True promises the recall of every label; precision is overall only.")
        X, y = indexable(read_input(self, X, reset=True), check_format(y, "y"))
        self._labels, signs = LabelSpace.read(y)
        self.classes_ = self._labels.classes
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        weight = weight / max(weight.max(), np.finfo(float).tiny) * signs.any(axis=1)
        given, of_split = self._routed({"sample_weight": sample_weight, **fit_params})
        scores, rows = self._unseen(X, y, signs, given, of_split)
        self.n_calibration_ = int((weight[rows] > 0).sum())
        truth, known = self._truth(signs[rows])
        if self.per_label:
            self.thresholds_ = self._of_each_label(scores, truth, weight[rows])
        else:
            self.thresholds_ = np.full(len(self.classes_), self._of_all(scores, truth, known, weight[rows]))
        tell_width(self, self.estimator_)
        return self

    def _unseen(
        self, X: Any, y: Any, signs: np.ndarray, given: dict[str, Any], of_split: dict[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores of samples by models that have not seen them, and their rows; fits the estimator."""
        self.__dict__.pop("_fitted_on", None)
        if isinstance(self.calibration, Real) and not isinstance(self.calibration, Integral):
            if len(signs) < 2:
                raise ValueError("Found 1 sample; calibration needs one apart from those of the fit.")
            draw = ShuffleSplit(1, test_size=float(self.calibration), random_state=self.random_state)
            train, rest = next(draw.split(np.zeros(len(signs))))
            self.estimator_ = clone(self.estimator).fit(
                cut_rows(self.estimator, X, train), take(y, train), **arguments_of(given, X, train)
            )
            unseen = cut_rows(self.estimator, X, rest, train)
            scores = self._both(aligned(self.estimator_, unseen, self._labels))
            if takes_kernel(self.estimator):
                self._fitted_on = np.asarray(train, np.int64)
            return scores, rest
        cv = self.calibration
        if isinstance(cv, Integral):
            cv = KFold(int(cv), shuffle=True, random_state=check_random_state(self.random_state))
        folds = check_cv(cv).split(X, y, **of_split)
        self.estimator_ = clone(self.estimator).fit(X, y, **given)
        found = held_out_scores(self.estimator, (X, y, given), (self._labels, signs), folds)
        return self._both(found.scores), np.arange(len(signs))

    def _columns(self, X: Any) -> np.ndarray:
        fitted = getattr(self, "_fitted_on", None)
        return self._both(aligned(self.estimator_, read_input(self, X), self._labels, fitted))

    def _both(self, scores: np.ndarray) -> np.ndarray:
        """One column per class, also for two."""
        if self._labels.kind != "binary":
            return scores
        other = -scores if method_of(self.estimator) == "decision_function" else 1 - scores
        return np.hstack([other, scores])

    def _truth(self, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Entries that are true, and those that are known."""
        if self._labels.kind == "binary":
            signs = np.hstack([-signs, signs])
        return signs > 0, signs != 0

    def _of_all(self, scores: np.ndarray, truth: np.ndarray, known: np.ndarray, weight: np.ndarray) -> float:
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
                f"{name}={share:g} cannot be promised from {weight.sum():g} samples, {needed} "
                f"are needed: every set {'holds all labels' if name == 'recall' else 'is empty'}."
            )
        return threshold

    def _of_each_label(self, scores: np.ndarray, truth: np.ndarray, weight: np.ndarray) -> np.ndarray:
        assert self.recall is not None
        found = np.array(
            [label_threshold(scores[on, l], self.recall, weight[on]) for l, on in enumerate(truth.T)]
        )
        always = np.flatnonzero(np.isneginf(found))
        if always.size:
            shown = ", ".join(repr(name) for name in self.classes_[always][:SHOWN].tolist())
            more = " and others" if always.size > SHOWN else ""
            warn(
                f"Label {shown}{more} has too few positive samples in the calibration for "
                f"recall={self.recall:g}; it is in every set."
            )
        return found

    def predict(self, X: Any) -> Any:
        """The sets, in the kind of labels given to `fit`; for classes a 0/1 matrix, a column per class."""
        on = self._sets(X)
        return on.astype(np.int64) if self._labels.single_label else self._labels.answer(on, like=X)

    def _sets(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return (self._columns(X) > self.thresholds_) | np.isneginf(self.thresholds_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The promised share as it came out: of true labels found, or of given labels that are true.

        Parameters
        ----------
        X : array-like, sparse matrix or frame
        y : the true labels, in the kind that `fit` was given
            Unknown entries (NaN) are left out, and so are samples without a known entry.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
            A mean over samples.
        """
        on = self._sets(X)
        truth, known = self._truth(self._labels.signs(y))
        rows, weight = with_known(known, sample_weight, "y")
        hits = (on & truth).sum(axis=1)
        sizes = truth.sum(axis=1) if self.recall is not None else (on & known).sum(axis=1)
        share = np.where(sizes > 0, hits / np.maximum(sizes, 1), 1.0)
        return float(np.average(share[rows], weights=weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        return pass_on_input(tags, self.estimator)


def allowance(share: float, weight: np.ndarray) -> float:
    """The sum of losses up to which `share` is promised; below zero where nothing is."""
    return float((1 - share) * (weight.sum() + 1) * (1 + 1e-12) - 1)


def recall_threshold(scores: np.ndarray, truth: np.ndarray, allowed: float, weight: np.ndarray) -> float:
    """Highest threshold above which all true labels but `allowed` (a sum over samples) are found."""
    if allowed < 0:
        return -np.inf
    rows = np.nonzero(truth)[0]
    values, share = scores[truth], weight[rows] / truth.sum(axis=1)[rows]
    order = np.argsort(values, kind="stable")
    values, missed = values[order], np.cumsum(share[order])
    # The lowest score whose loss, with that of its equals, is too much stays in.
    kept = np.flatnonzero(missed > allowed * (1 + 1e-12))
    return float(np.nextafter(values[kept[0]], -np.inf)) if kept.size else np.inf


def precision_threshold(
    scores: np.ndarray, truth: np.ndarray, known: np.ndarray, allowed: float, weight: np.ndarray
) -> float:
    """Lowest threshold above which the losses, each the worst from there on, sum to `allowed` at most."""
    if allowed < 0:
        return np.inf
    ranked = np.argsort(np.where(known, -scores, np.inf), axis=1, kind="stable")
    wrong = np.cumsum(np.take_along_axis(~truth & known, ranked, axis=1), axis=1)
    size = np.cumsum(np.take_along_axis(known, ranked, axis=1), axis=1)
    worst = np.maximum.accumulate(wrong / np.maximum(size, 1), axis=1)
    rise = np.diff(worst, axis=1, prepend=0.0) * weight[:, None]
    at = rise > 0
    values, rise = np.take_along_axis(scores, ranked, axis=1)[at], rise[at]
    order = np.argsort(-values, kind="stable")
    values, total = values[order], np.cumsum(rise[order])
    over = np.flatnonzero(total > allowed * (1 + 1e-12))
    return float(values[over[0]]) if over.size else -np.inf


def label_threshold(values: np.ndarray, share: float, weight: np.ndarray) -> float:
    """Threshold above which a new score, exchangeable with these, is with probability `share` at least."""
    truth = np.ones((len(values), 1), bool)
    return recall_threshold(values[:, None], truth, allowance(share, weight), weight)
