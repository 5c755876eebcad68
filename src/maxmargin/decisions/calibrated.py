"""`Calibrated`: probabilities for estimators that have scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.kernels import chunks
from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import MOST, Array, LabelNames, Several, Sizes, State, Whole, flags, part
from maxmargin.decisions.curves import (
    Temperature,
    fit_isotonic,
    fit_sigmoids,
    fit_temperature,
    minimise_temperature,
)
from maxmargin.edge.estimator import fit_context
from maxmargin.edge.labels import LabelClassifier, LabelSpace, check_answers, check_same
from maxmargin.edge.wrappers import (
    INNER,
    WIDTH,
    Wrapper,
    aligned,
    arguments_of,
    as_logits,
    copy_input_tags,
    fit_remembering,
    held_out_scores,
    quiet,
    score_columns,
    take,
)
from maxmargin.model_selection import IterativeStratifiedKFold

METHODS: dict[str, Callable[..., Any]] = {
    "sigmoid": fit_sigmoids,
    "isotonic": fit_isotonic,
    "temperature": fit_temperature,
}
# The score of a class that was absent from a fold: every curve gives it its lowest probability.
ABSENT = -1e30
# The columns of a kernel matrix that a model takes: the samples that it was fitted on.
TAKEN = Array((None,), ("i8",), 0, MOST, group="kernel")


def _check_calibrated(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check a stored `Calibrated`: labels and widths agree, and there is one curve per score."""
    if "estimator_" not in state:
        return
    check_width(state)
    check_same(state["classes_"], state["estimator_"].classes_)
    models = state.get("estimators_", ())
    for inner, taken in zip(models, state.get("_fitted_on", [None] * len(models)), strict=True):
        check_width({**state, "estimator_": inner}, taken)
        if not set(inner.classes_.tolist()) <= set(state["classes_"].tolist()):
            raise ValueError("the model of a fold has labels that the others do not have")
    if "_labels" in state:
        check_answers(state["_labels"], state["classes_"])
        if "n_curves" in sizes:
            sizes.fix("n_curves", state["_labels"].n_columns)
    elif not isinstance(state["curves_"], Temperature) or not hasattr(
        state["estimator_"], "predict_marginals"
    ):
        raise ValueError("only models of sequences lack _labels, and they have a temperature")


def check_width(state: Mapping[str, Any], taken: np.ndarray | None = None) -> None:
    """Check that the inner estimator is fitted on rows as wide as those of the wrapper.

    With a kernel matrix its rows are the columns `taken`.
    """
    inner = state["estimator_"]
    if not hasattr(inner, "classes_"):
        raise ValueError("its estimator is not fitted")
    width = state.get("n_features_in_")
    if taken is not None and (width is None or max(taken, default=0) >= width):
        raise ValueError("its estimator takes columns beyond those of the kernel matrix")
    given = width if taken is None else len(taken)
    if getattr(inner, "n_features_in_", None) != given:
        raise ValueError("its estimator takes rows of another width")


class Calibrated(Wrapper, LabelClassifier, BaseEstimator):
    """Probabilities for an estimator with scores, for all of its labels at once.

    Cross-validation scores every sample by a model that was not fitted on it. One pass over the folds
    serves all labels: `cv` fits, each started from the solution on all samples if the estimator supports
    that. Curves that map a score to a probability are fitted to these scores. The estimator itself is
    fitted on all samples; with ``ensemble=True`` the models of the folds predict in its place.

    Parameters
    ----------
    estimator : classifier with `decision_function` (or `predict_proba`), or `ChainSVC`
        It may be the last step of a Pipeline.
    method : {"auto", "sigmoid", "isotonic", "temperature"}, default="auto"
        - "sigmoid": one sigmoid per label. The slope of a label with few positives is shrunk towards
          the common slope of all labels.
        - "isotonic": one nondecreasing curve per label. It needs hundreds of positives.
        - "temperature": softmax(scores / T), for one class per sample, where it changes no prediction,
          and for sequences. If the estimator has only `predict_proba`, the scores are the logarithms of
          its probabilities.
        - "auto": "temperature" for three classes or more and for sequences, otherwise "sigmoid".

        For one class per sample the probabilities are normalised to sum to one.
    cv : int, cross-validation generator or iterable, default=5
        An int is a number of stratified folds: each has the same share of every label.
    ensemble : bool, default=False
        If True, probabilities are means over the models of the folds. They are usually better, but the
        model is `cv` times as large and as slow. The curves are fitted to all held-out scores together;
        scikit-learn's `CalibratedClassifierCV` fits them fold by fold. Not available for sequences.

    Attributes
    ----------
    estimator_ : the estimator, fitted on all samples
    estimators_ : list of the models of the folds, if ``ensemble=True``
    curves_ : the fitted curves
    classes_ : array of shape (n_labels,)
    n_features_in_, feature_names_in_ : those of the estimator, if it has them

    Notes
    -----
    `predict` returns the labels with a probability above one half, or the most probable class. The
    predictions of the estimator itself are those of `estimator_.predict`.

    A label that is constant in y has the probability (n_on + 1) / (n + 2) everywhere. A label with a
    single positive sample cannot be both fitted and scored, so it gets the slope of the other labels.
    Unknown entries of y (NaN) are left out, if the estimator takes them. Probabilities are between 0 and
    1 and never NaN. With `ensemble`, the mean of a label is over the folds that contain it.

    Held-out scores take n_samples x n_labels numbers. A fold that starts from the solution on all samples
    depends on the samples that it scores, to within `tol` of the estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import Calibrated, MultiLabelSVC
    >>> rng = np.random.RandomState(0)
    >>> X = rng.randn(200, 2)
    >>> Y = (X + rng.randn(200, 2) > 0).astype(int)
    >>> model = Calibrated(MultiLabelSVC()).fit(X, Y)
    >>> bool(model.predict_proba([[0.0, 3.0]])[0, 1] > 0.95)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [
            HasMethods(["fit", "decision_function"]),
            HasMethods(["fit", "predict_proba"]),
            HasMethods(["fit", "predict_marginals"]),
        ],
        "method": [StrOptions({"auto", *METHODS})],
        "cv": ["cv_object"],
        "ensemble": ["boolean"],
    }

    _weighed = "curves"

    STATE: ClassVar[State] = State(
        {
            **WIDTH,
            "classes_": LabelNames("n_names"),
            "_labels": part("LabelSpace", group="labels"),
            "curves_": part("Sigmoids", "IsotonicCurves", "Temperature"),
            "estimator_": part(*INNER, own_sizes=True),
            "estimators_": Several(part(*INNER, own_sizes=True), size="n_folds", group="ensemble"),
            "_met": flags("n_folds", "n_curves", group="ensemble"),
            "_fitted_on": Several(TAKEN, size="n_folds", group="kernel"),
        },
        _check_calibrated,
        {"estimator": part(*INNER), "cv": Whole(2, 10**6, none=True)},
    )

    def __init__(self, estimator: Any, *, method: str = "auto", cv: Any = 5, ensemble: bool = False) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Calibrated:
        """Fit the estimator and the curves.

        Parameters
        ----------
        X : array-like, sparse matrix or frame, or any other input of the estimator
            Sequences and bags are a list of matrices. With kernel="precomputed", the square matrix of
            kernel values; `predict` takes those of new samples with all samples of `fit`.
        y : labels of any kind that the estimator takes
        sample_weight : array-like of shape (n_samples,), default=None
            Passed to the estimator (in a Pipeline to its last step), and counted in the curves. If the
            estimator takes no weights, they count in the curves only, and a warning is raised.
        **fit_params
            Passed to the `fit` of the estimator; values with one entry per sample are cut to the
            samples of a fold. With scikit-learn's metadata routing, the estimator and the splitter get
            what they request.
        """
        for name in ("_labels", "estimators_", "_met", "_fitted_on"):
            self.__dict__.pop(name, None)
        X, y = self._read_input(X, reset=True), check_format(y, "y")
        X, y, sample_weight = indexable(X, y, sample_weight)
        given, of_split = self._routed({"sample_weight": sample_weight, **fit_params})
        fit = self._fit_sequences if hasattr(self.estimator, "predict_marginals") else self._fit_labels
        fit(X, y, sample_weight, given, of_split)
        self._copy_width(self.estimator_)
        return self

    def _fit_labels(
        self, X: Any, y: Any, sample_weight: Any, given: dict[str, Any], of_split: dict[str, Any]
    ) -> None:
        self._labels, signs = LabelSpace.read(y)
        self.classes_ = self._labels.classes
        method = self.method
        if method == "auto":
            # The scores of several classes are comparable only with one another.
            method = "temperature" if self._labels.kind == "multiclass" else "sigmoid"
        if method == "temperature" and not self._labels.single_label:
            raise ValueError(
                "method='temperature' needs one class per sample, but y has several labels per sample; use "
                "method='sigmoid'."
            )
        weight = np.ones(len(signs)) if sample_weight is None else np.asarray(sample_weight, float)
        weight = np.broadcast_to(weight if weight.ndim == 2 else weight[:, None], signs.shape)
        self.estimator_, dual = fit_remembering(self.estimator, X, y, given)
        folds = splits(self.cv, X, y, signs, of_split)
        held_out = held_out_scores(
            self.estimator, (X, y, given), (self._labels, signs), folds, dual, keep=self.ensemble
        )
        if self.ensemble:
            self.estimators_, self._met = held_out.models, held_out.two_sided
            if held_out.columns:
                self._fitted_on = held_out.columns
        on = signs > 0
        counted = weight * (signs != 0)
        rate = ((counted * on).sum(axis=0) + 1) / (counted.sum(axis=0) + 2)
        found = held_out.scores
        if method == "temperature":
            found = as_logits(self.estimator_, found)
        scores = np.where(held_out.known, found, 0.0)
        self.curves_: Any = METHODS[method](scores, on, weight * held_out.known, rate)

    def _fit_sequences(
        self, X: Any, y: Any, sample_weight: Any, given: dict[str, Any], of_split: dict[str, Any]
    ) -> None:
        """Fit the temperature of the marginals to held-out sequences."""
        if self.method not in ("auto", "temperature"):
            raise ValueError(
                f"method={self.method!r} needs one score per label, but a sequence has one score as a whole; "
                "leave method at 'auto'."
            )
        if self.ensemble:
            raise ValueError(
                "ensemble=True averages the probabilities of labels, but a sequence is predicted as a whole; "
                "use ensemble=False."
            )
        if not isinstance(X, (list, tuple)) and np.ndim(X) != 3:
            raise ValueError("X must be a list of matrices, one for each sequence.")
        self.estimator_ = clone(self.estimator).fit(X, y, **given)
        self.classes_ = self.estimator_.classes_
        weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
        folds = []
        cv = check_cv(self.cv) if not isinstance(self.cv, int) else KFold(self.cv)
        for train, test in cv.split(np.zeros(len(X)), **of_split):
            with quiet():
                model = clone(self.estimator).fit(
                    take(X, train), take(y, train), **arguments_of(given, X, train)
                )
            codes = _codes(model.classes_, take(y, test))
            folds.append((model, list(take(X, test)), codes, weight[test]))

        def loss(temperature: float) -> float:
            return sum(_marginal_loss(*fold, temperature) for fold in folds)

        unit = float(np.abs(self.estimator_.coef_).sum(axis=1).mean())
        self.curves_ = minimise_temperature(loss, unit)

    def predict_proba(self, X: Any, top: int | None = None) -> Any:
        """Return the probability of every label, or of every class.

        Parameters
        ----------
        X : as for `fit`
        top : int, default=None
            Keep the `top` most probable labels of every sample, in a sparse matrix. Rows are then scored
            in chunks, so that memory does not grow with n_samples x n_labels.

        Returns
        -------
        array of shape (n_samples, n_labels), or a CSR array with `top` entries a row
            Columns as in `classes_`. For sequences, a list of arrays of shape (length, n_labels).
        """
        check_is_fitted(self)
        if not hasattr(self, "_labels"):
            if top is not None:
                raise ValueError("top must be None for sequences; it selects labels of single samples.")
            return self.estimator_.predict_marginals(X, temperature=self.curves_.value)
        if top is None:
            return self._probabilities(X)
        if isinstance(top, bool) or not 1 <= top <= len(self.classes_):
            raise ValueError(
                f"top must be a whole number from 1 to the number of labels, {len(self.classes_)}. "
                f"Got {top!r} instead."
            )
        X = check_format(X, "X")
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        parts = [
            _largest(self._probabilities(_safe_indexing(X, np.arange(n)[rows])), top)
            for rows in chunks(n, 8 * len(self.classes_))
        ]
        return sp.vstack(parts, format="csr")

    def _probabilities(self, X: Any) -> np.ndarray:
        X = self._read_input(X)
        if hasattr(self, "estimators_"):
            found = self._mean_of_folds(X)
        else:
            scores = self._curve_scores(self.estimator_, score_columns(self.estimator_, X, self._labels))
            found = np.asarray(self.curves_.probabilities(scores))
        if self._labels.kind == "binary":
            return np.hstack([1 - found, found])
        return found / found.sum(axis=1, keepdims=True) if self._labels.kind == "multiclass" else found

    def _mean_of_folds(self, X: Any) -> np.ndarray:
        """Average the probabilities of the folds, with the weights of `fold_shares`."""
        found, absent = np.zeros(1), absent_scores(self._met)
        taken = getattr(self, "_fitted_on", [None] * len(self.estimators_))
        folds = zip(self.estimators_, self._met, fold_shares(self._met), taken, strict=True)
        for model, present, share, fitted in folds:
            scores = self._curve_scores(model, aligned(model, X, self._labels, fitted))
            found = found + share * self.curves_.probabilities(np.where(present, scores, absent))
        return found

    def _curve_scores(self, model: Any, scores: Any) -> np.ndarray:
        """Return the scores in the form that the curves were fitted to."""
        scores = np.asarray(scores, np.float64)
        return as_logits(model, scores) if isinstance(self.curves_, Temperature) else scores

    def predict(self, X: Any) -> Any:
        """Return the labels with a probability above one half, or the most probable class.

        They come in the kind passed to `fit`. For sequences, return the predictions of the estimator.
        """
        check_is_fitted(self)
        if not hasattr(self, "_labels"):
            return self.estimator_.predict(X)
        found = self._probabilities(X)
        if self._labels.kind == "binary":
            found = found[:, 1:]
        return self._labels.answer(self._labels.choose(found - 0.5), like=X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = get_tags(self.estimator).classifier_tags.multi_label
        return copy_input_tags(tags, self.estimator)


def splits(
    cv: Any, X: Any, y: Any, signs: np.ndarray, of_split: Mapping[str, Any]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield training and held-out rows; an int `cv` gives folds stratified by label."""
    if not isinstance(cv, Integral):
        return check_cv(cv).split(X, y, **of_split)
    sides = np.hstack([signs, -signs]) if signs.shape[1] == 1 else signs
    if not signs.all():
        sides = np.where(sides == 0, np.nan, sides)
    return IterativeStratifiedKFold(int(cv)).split(np.zeros(len(signs)), sides)


def fold_shares(present: np.ndarray) -> np.ndarray:
    """Return the weight of each fold in the mean of each label: equal over the folds that contain it."""
    counted = present | ~present.any(axis=0)
    return counted / counted.sum(axis=0)


def absent_scores(present: np.ndarray) -> np.ndarray:
    """Return the scores of labels that are absent from a fold; 0 if absent from all (a flat curve)."""
    return np.where(present.any(axis=0), ABSENT, 0.0)


def _largest(values: np.ndarray, top: int) -> sp.csr_array:
    """Return the largest entries of every row, in column order."""
    n, width = values.shape
    columns = np.sort(np.argpartition(-values, top - 1, axis=1)[:, :top], axis=1)
    data = np.take_along_axis(values, columns, axis=1).ravel()
    return sp.csr_array((data, columns.ravel(), np.arange(0, n * top + 1, top)), shape=(n, width))


def _codes(classes: np.ndarray, y: Any) -> list[np.ndarray]:
    """Return the class number of every position, -1 for a class that is absent from the fold."""
    number = {name: k for k, name in enumerate(classes.tolist())}
    return [
        np.array([number.get(name.item() if isinstance(name, np.generic) else name, -1) for name in labels])
        for labels in y
    ]


def _marginal_loss(
    model: Any, X: Any, codes: list[np.ndarray], weights: np.ndarray, temperature: float
) -> float:
    """Return the log loss of the marginals, summed over positions with a known class."""
    total = 0.0
    marginals = model.predict_marginals(X, temperature=temperature)
    for marginal, code, weight in zip(marginals, codes, weights, strict=True):
        known = code >= 0
        total -= float(weight * np.log(np.maximum(marginal[known, code[known]], 1e-300)).sum())
    return total
