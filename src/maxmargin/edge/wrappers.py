"""What wrappers of an estimator share: routing of `fit` arguments, kernel matrices, held-out scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from joblib import effective_n_jobs
from scipy.special import logit
from sklearn import get_config
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples, has_fit_parameter, validate_data

from maxmargin._names import ESTIMATORS
from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import INPUT, Field, Whole
from maxmargin.edge.estimator import ignoring, warn
from maxmargin.edge.labels import LabelSpace

# Estimators that a model file may hold inside a wrapper.
INNER = (*(name for name in ESTIMATORS if name != "StreamRanker"), "Pipeline")
# The width is stored if the inner estimator has it.
WIDTH: dict[str, Field] = {**INPUT, "n_features_in_": Whole(size="n_features", group="width")}
# Warnings about the labels of a fold; the fit on all samples warns about all labels.
FOLD_WARNINGS = r"Label .* constant in y|y contains a single class"
# Probabilities are clipped to [CLIP, 1 - CLIP], so that their logarithms are finite.
CLIP = 1e-12


class Wrapper(MetaEstimatorMixin):
    """Pass arguments of `fit` on to `estimator`, as scikit-learn's meta-estimators do."""

    # The parameter that may be a splitter, and what else sample weights count in.
    _splitter: ClassVar[str | None] = "cv"
    _weighed: ClassVar[str | None] = None

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which arguments of `fit` the estimator and the splitter request.

        Returns
        -------
        MetadataRouter
            See scikit-learn's user guide on metadata routing.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        of_fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(estimator=self.estimator, method_mapping=of_fit)
        if self._splitter is not None:
            of_split = MethodMapping().add(caller="fit", callee="split")
            router.add(splitter=getattr(self, self._splitter), method_mapping=of_split)
        return router

    def _routed(self, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments of `fit` for the estimator, and those for the splitter.

        With metadata routing these are the requested ones. Without it the estimator gets all of them,
        and the last step of a Pipeline gets the sample weights.
        """
        given = {name: value for name, value in given.items() if value is not None}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given)
            return routed["estimator"]["fit"], routed["splitter"]["split"] if self._splitter else {}
        weight = given.pop("sample_weight", None)
        if weight is None:
            return given, {}
        name = _weight_name(self.estimator)
        if name is not None:
            return {**given, name: weight}, {}
        what = f"{type(last_step(self.estimator)).__name__} takes no sample_weight in fit"
        if self._weighed is None:
            raise ValueError(f"{what}; leave the weights out, or choose an estimator that takes them.")
        warn(f"{what}; the weights count in the {self._weighed} only.")
        return given, {}

    def _copy_width(self, model: Any) -> None:
        """Copy width and names of X from the fitted estimator; those of a kernel matrix are set already."""
        if takes_kernel(self.estimator):
            return
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def _read_input(self, X: Any, *, reset: bool = False) -> Any:
        """Return X for the estimator, which validates it; check a kernel matrix here, before it is cut."""
        X = check_format(X, "X")
        tags = get_tags(self.estimator).input_tags
        if not tags.pairwise:
            return X
        finite = not tags.allow_nan
        K = validate_data(
            self, X, reset=reset, accept_sparse="csr" if tags.sparse else False, ensure_all_finite=finite
        )
        if reset and K.shape[0] != K.shape[1]:
            raise ValueError(
                "X must be the square matrix of kernel values of the training samples. Got shape "
                f"{K.shape} instead."
            )
        return K


def last_step(model: Any) -> Any:
    """Return the estimator at the end of a pipeline, or the model itself."""
    return last_step(model.steps[-1][1]) if hasattr(model, "steps") else model


def _weight_name(estimator: Any) -> str | None:
    """Return the `fit` argument for sample weights of the estimator or of its last step, if it has one."""
    if hasattr(estimator, "steps"):
        step, last = estimator.steps[-1]
        name = _weight_name(last)
        return None if name is None else f"{step}__{name}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def copy_input_tags(tags: Any, estimator: Any) -> Any:
    """Return the tags of a wrapper with those of its estimator about X."""
    inner = get_tags(estimator).input_tags
    for name in ("sparse", "pairwise", "positive_only"):
        setattr(tags.input_tags, name, getattr(inner, name))
    return tags


def takes_kernel(estimator: Any) -> bool:
    """Whether X is a square matrix of values for pairs of samples."""
    return bool(get_tags(estimator).input_tags.pairwise)


def cut_rows(estimator: Any, X: Any, rows: np.ndarray, fitted: np.ndarray | None = None) -> Any:
    """Return some rows of X; of a kernel matrix, their values with the samples `fitted` (or `rows`)."""
    part = _safe_indexing(X, rows)
    if not takes_kernel(estimator):
        return part
    return _safe_indexing(part, rows if fitted is None else fitted, axis=1)


def take(values: Any, rows: np.ndarray) -> Any:
    """Return some rows of y or of the weights, of any kind."""
    return None if values is None else _safe_indexing(values, rows)


def arguments_of(given: Mapping[str, Any], X: Any, rows: np.ndarray) -> dict[str, Any]:
    """Return the `fit` arguments of some rows: those with one value per sample are cut."""
    return _check_method_params(X, given, indices=rows)


def method_of(estimator: Any) -> str:
    """Return the name of the method that gives the scores of an estimator."""
    return "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"


def score_columns(model: Any, X: Any, space: LabelSpace) -> np.ndarray:
    """Return scores with one column per label (for two classes, one column for the second)."""
    scores = getattr(model, method_of(model))(X)
    if isinstance(scores, list):  # two columns per label, one column for a constant label
        pairs = zip(scores, model.classes_, strict=True)
        return np.column_stack([np.asarray(part)[:, -1] * (names[-1] > 0) for part, names in pairs])
    scores = np.asarray(scores)
    if space.kind == "binary" and scores.ndim == 2:
        return scores[:, -1:]
    return scores[:, None] if scores.ndim == 1 else scores


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Log-odds of probabilities, finite also for 0 and 1."""
    return logit(np.clip(probabilities, CLIP, 1 - CLIP))


def as_logits(estimator: Any, scores: np.ndarray) -> np.ndarray:
    """Return logits: decision values unchanged, probabilities as (log-odds or) logarithms."""
    if method_of(estimator) == "decision_function":
        return scores
    return log_odds(scores) if scores.shape[1] == 1 else np.log(np.clip(scores, CLIP, 1.0))


def aligned(model: Any, X: Any, space: LabelSpace, fitted: np.ndarray | None = None) -> np.ndarray:
    """Return scores in the columns of `space`; -inf for a class that was absent from the fit.

    If X is a kernel matrix, `fitted` are the columns of the samples that the model was fitted on
    (None: all).
    """
    if fitted is not None:
        X = _safe_indexing(X, fitted, axis=1)
    found = score_columns(model, X, space)
    names = space.names.tolist()
    if isinstance(model.classes_, list):  # one array per label: a multi-output classifier
        return found
    known = names if space.kind == "binary" and len(model.classes_) == 2 else model.classes_.tolist()
    if known == names and found.shape[1] == len(names):
        return found
    if len(known) == 1:  # a constant model
        found = np.ones((len(found), 1))
    elif space.kind == "multiclass" and len(known) == 2 and found.shape[1] == 1:
        found = np.hstack([-found, found])
    if found.shape[1] != len(known):
        raise ValueError(
            f"{type(last_step(model)).__name__} gave {found.shape[1]} columns of scores for {len(known)} "
            "labels; it must score every label."
        )
    scores = np.full((len(found), len(names)), -np.inf)
    column = {name: k for k, name in enumerate(names)}
    kept = [k for k, name in enumerate(known) if name in column]
    scores[:, [column[known[k]] for k in kept]] = found[:, kept]
    return scores


def quiet() -> AbstractContextManager[None]:
    """Ignore warnings about constant labels of a fold."""
    return ignoring(FOLD_WARNINGS)


def fit_remembering(estimator: Any, X: Any, y: Any, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return a fitted copy and its dual solution (or None), from which fits of the folds can start."""
    model = clone(estimator)
    inner = last_step(model)
    keeps = hasattr(inner, "_keep_dual")
    if keeps:
        inner._keep_dual = True
    model.fit(X, y, **given)
    warm = getattr(inner, "_warm", None)
    if keeps:
        del inner._keep_dual
        if not getattr(inner, "warm_start", False):
            vars(inner).pop("_warm", None)
    dual = None if warm is None else warm[0]
    return model, dual if isinstance(dual, np.ndarray) and len(dual) == _num_samples(y) else None


@dataclass(frozen=True)
class HeldOut:
    """Scores (n_samples x n_columns) by models fitted on the other folds.

    A score is -inf for a class that was absent from the fit. An entry is `known` if its label is known
    and the model was fitted on samples with and without that label. ``two_sided[k]`` are the labels for
    which this holds in fold k. `models`, and for a kernel matrix the `columns` that each model takes, are
    there on request.
    """

    scores: np.ndarray
    known: np.ndarray
    two_sided: np.ndarray
    models: list[Any]
    columns: list[np.ndarray]


def held_out_scores(
    estimator: Any,
    data: tuple[Any, Any, Mapping[str, Any]],
    labels: tuple[LabelSpace, np.ndarray],
    splits: Iterable[tuple[np.ndarray, np.ndarray]],
    dual: Any = None,
    *,
    keep: bool = False,
    n_jobs: int | None = None,
) -> HeldOut:
    """Score every sample by a model that was not fitted on it.

    Parameters
    ----------
    estimator : estimator with `decision_function` or `predict_proba`
    data : X, y, further arguments of `fit`
    labels : the label space of y, and its signs
    splits : pairs of the rows to fit on and the rows to score
    dual : array of n_samples rows, default=None
        Dual solution of a fit on all samples; each fold starts from its rows.
    keep : bool, default=False
        Keep the models of the folds.
    n_jobs : int or None, default=None
        Number of folds fitted at the same time, as in scikit-learn.
    """
    _, signs = labels
    scores = np.full(signs.shape, -np.inf)
    known = np.zeros(signs.shape, bool)
    signs_in_fit, models, columns = [], [], []
    splits = list(splits)
    each = [(estimator, data, labels, split, dual, keep) for split in splits]
    # `Parallel` changes the warning filters of the whole process, so it is avoided for one job.
    if effective_n_jobs(n_jobs) == 1:
        folds = [_fold(*one) for one in each]
    else:
        folds = Parallel(n_jobs=n_jobs)(delayed(_fold)(*one) for one in each)
    for (train, test), (found, two_sided, model) in zip(splits, folds, strict=True):
        scores[test] = found
        known[test] = two_sided & (signs[test] != 0)
        signs_in_fit.append(two_sided)
        if keep:
            models.append(model)
            columns += [np.asarray(train, np.int64)] if takes_kernel(estimator) else []
    return HeldOut(scores, known, np.array(signs_in_fit), models, columns)


def _fold(
    estimator: Any,
    data: tuple[Any, Any, Mapping[str, Any]],
    labels: tuple[LabelSpace, np.ndarray],
    split: tuple[np.ndarray, np.ndarray],
    dual: Any,
    keep: bool,
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Fit one fold; return its scores, the labels with both signs in the fit, and the model if kept."""
    (X, y, given), (space, signs), (train, test) = data, labels, split
    model = clone(estimator)
    inner = last_step(model)
    two_sided = (signs[train] > 0).any(axis=0) & (signs[train] < 0).any(axis=0)
    # If a class is absent from the fold, its dual solution has fewer columns.
    starts = dual is not None and (two_sided.all() or not (space.single_label or space.kind == "sets"))
    if starts:
        inner.set_params(warm_start=True)
        inner._warm = dual[train], inner.C, (len(train), *dual.shape[1:])
    with quiet():
        model.fit(cut_rows(estimator, X, train), take(y, train), **arguments_of(given, X, train))
    scores = aligned(model, cut_rows(estimator, X, test, train), space)
    if starts and not last_step(estimator).warm_start:
        inner.set_params(warm_start=False)
        vars(inner).pop("_warm", None)
    return scores, two_sided, model if keep else None
