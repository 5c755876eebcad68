"""Scores of every sample by a model that has not seen it: k fits for all labels together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.special import logit
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples

from maxmargin.edge.estimator import ignoring
from maxmargin.edge.labels import LabelSpace
from maxmargin.edge.wrapping import cut_columns, cut_rows, last_step, takes_kernel

# What a fold may say of its labels; the fit on all samples says it of all labels.
OF_A_FOLD = r"Label .* constant in y|y holds one class only"

# Probabilities are taken as no closer to 0 or 1, so that their logarithms are finite.
SUREST = 1e-12


@dataclass(frozen=True)
class HeldOut:
    """Scores (n_samples x n_columns), -inf for a label that the model has not met.

    An entry is `known` when its label is, and when the model that scored it has met both sides of
    the label; a model that has not gives a constant. Row k of `met` says of which labels the model of
    fold k has met both sides; `models` are there if they are asked for, and with a kernel matrix the
    columns of it that each takes.
    """

    scores: np.ndarray
    known: np.ndarray
    met: np.ndarray
    models: list[Any]
    columns: list[np.ndarray]


def method_of(estimator: Any) -> str:
    """Where an estimator has its scores."""
    return "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"


def score_columns(model: Any, X: Any, space: LabelSpace) -> np.ndarray:
    """Scores with one column per label (for two classes, of the second)."""
    scores = getattr(model, method_of(model))(X)
    if isinstance(scores, list):  # a pair of columns for each label, one for a label that is constant
        pairs = zip(scores, model.classes_, strict=True)
        return np.column_stack([np.asarray(part)[:, -1] * (names[-1] > 0) for part, names in pairs])
    scores = np.asarray(scores)
    if space.kind == "binary" and scores.ndim == 2:
        return scores[:, -1:]
    return scores[:, None] if scores.ndim == 1 else scores


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Log-odds of probabilities, finite also for 0 and 1."""
    return logit(np.clip(probabilities, SUREST, 1 - SUREST))


def as_logits(estimator: Any, scores: np.ndarray) -> np.ndarray:
    """Scores whose softmax (of one column, whose sigmoid) gives the probabilities of `estimator`.

    Scores of a `decision_function` stay as they are.
    """
    if method_of(estimator) == "decision_function":
        return scores
    return log_odds(scores) if scores.shape[1] == 1 else np.log(np.clip(scores, SUREST, 1.0))


def aligned(model: Any, X: Any, space: LabelSpace, fitted: np.ndarray | None = None) -> np.ndarray:
    """Scores in the columns of a space; a label or class that the model has not met has -inf.

    With a kernel matrix as X, `fitted` are the samples that the model is fitted on, if they are not all.
    """
    if fitted is not None:
        X = cut_columns(X, fitted)
    found = score_columns(model, X, space)
    names = space.names.tolist()
    if isinstance(model.classes_, list):  # one array for each label
        return found
    met = names if space.kind == "binary" and len(model.classes_) == 2 else model.classes_.tolist()
    if met == names and found.shape[1] == len(names):
        return found
    scores = np.full((len(found), len(names)), -np.inf)
    if len(met) == 1:  # a constant model
        found = np.ones((len(found), 1))
    elif space.kind == "multiclass" and len(met) == 2 and found.shape[1] == 1:
        found = np.hstack([-found, found])
    if found.shape[1] != len(met):
        raise ValueError(
            f"{type(last_step(model)).__name__} gave {found.shape[1]} columns of scores for {len(met)} "
            "labels; it must score every label."
        )
    place = {name: k for k, name in enumerate(names)}
    kept = [k for k, name in enumerate(met) if name in place]
    scores[:, [place[met[k]] for k in kept]] = found[:, kept]
    return scores


def take(values: Any, rows: np.ndarray) -> Any:
    """Some of the rows of y or weights of any kind; those of X may be `cut_rows`."""
    return None if values is None else _safe_indexing(values, rows)


def arguments_of(given: Mapping[str, Any], X: Any, rows: np.ndarray) -> dict[str, Any]:
    """Arguments of a fit on some rows: those with one value for each sample are cut."""
    return _check_method_params(X, given, indices=rows)


def quiet() -> AbstractContextManager[None]:
    """Leave it to the fit on all samples to say which labels are constant."""
    return ignoring(OF_A_FOLD)


def fit_remembering(estimator: Any, X: Any, y: Any, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """A fitted copy, and the dual solution from which fits on some of its rows can start, if it has one."""
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
    """Scores of all samples by models that have not seen them.

    Parameters
    ----------
    estimator : estimator with `decision_function` or `predict_proba`
    data : X, y, further arguments of `fit`
    labels : the space of y and its signs
    splits : pairs of the rows to fit on and the rows to score
    dual : array of n_samples rows, default=None
        Dual solution of a fit on all samples: each fold starts from its rows of it.
    keep : bool, default=False
        Keep the models of the folds.
    n_jobs : int or None, default=None
        Folds at a time, as in scikit-learn.
    """
    _, signs = labels
    scores = np.full(signs.shape, -np.inf)
    known = np.zeros(signs.shape, bool)
    met, models, columns = [], [], []
    splits = list(splits)
    each = [(estimator, data, labels, split, dual, keep) for split in splits]
    # scikit-learn's `Parallel` sets warning filters, which belong to the process.
    if effective_n_jobs(n_jobs) == 1:
        folds = [_fold(*one) for one in each]
    else:
        folds = Parallel(n_jobs=n_jobs)(delayed(_fold)(*one) for one in each)
    for (train, test), (found, two_sided, model) in zip(splits, folds, strict=True):
        scores[test] = found
        known[test] = two_sided & (signs[test] != 0)
        met.append(two_sided)
        if keep:
            models.append(model)
            columns += [np.asarray(train, np.int64)] if takes_kernel(estimator) else []
    return HeldOut(scores, known, np.array(met), models, columns)


def _fold(
    estimator: Any,
    data: tuple[Any, Any, Mapping[str, Any]],
    labels: tuple[LabelSpace, np.ndarray],
    split: tuple[np.ndarray, np.ndarray],
    dual: Any,
    keep: bool,
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Scores of the held-out rows, the labels of which the model has met both sides, and the model."""
    (X, y, given), (space, signs), (train, test) = data, labels, split
    model = clone(estimator)
    two_sided = (signs[train] > 0).any(axis=0) & (signs[train] < 0).any(axis=0)
    # A fold without a class or name has fewer columns than the solution on all samples.
    if dual is not None and (two_sided.all() or not (space.single_label or space.kind == "sets")):
        inner = last_step(model).set_params(warm_start=True)
        inner._warm = dual[train], inner.C, (len(train), *dual.shape[1:])
    with quiet():
        model.fit(cut_rows(estimator, X, train), take(y, train), **arguments_of(given, X, train))
    scores = aligned(model, cut_rows(estimator, X, test, train), space)
    return scores, two_sided, without_start(model, estimator) if keep else None


def without_start(model: Any, estimator: Any) -> Any:
    """A model of a fold with the parameters of the estimator, and without the dual solution of its fit."""
    inner, asked = last_step(model), getattr(last_step(estimator), "warm_start", False)
    if getattr(inner, "warm_start", False) and not asked:
        inner.set_params(warm_start=False)
        vars(inner).pop("_warm", None)
    return model
