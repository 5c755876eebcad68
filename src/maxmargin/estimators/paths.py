"""Models over a range of C, each started from the one before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import clone

from maxmargin.estimators._labels import LabelSpace
from maxmargin.estimators.multilabel import MultiLabelSVC

# Where estimators keep what only a warm start needs.
WARM_STATE = ("_warm", "_dual", "_dual_solution")


def smallest_C(estimator: MultiLabelSVC, X: Any, y: Any, sample_weight: Any = None) -> float:
    """The C up to which every dual variable sits at its bound and the solution is closed-form."""
    probe = clone(estimator).set_params(C=1.0)
    X = probe._read_rows(X, reset=True)
    probe._space, signs = LabelSpace.read(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        problem = probe._problem(X, signs, sample_weight)
    return problem.closed_form_scale()


def regularization_path(
    estimator: Any, X: Any, y: Any, Cs: Sequence[float] | int, sample_weight: Any = None
) -> Iterator[Any]:
    """Fit a copy of `estimator` for each C, each started from the solution before.

    Parameters
    ----------
    estimator : MultiLabelSVC, MultiClassSVC, ChainSVC or SubmodularSVC
    X, y, sample_weight : as for `fit`
    Cs : sequence of float or int
        Values of C, visited in increasing order. For a MultiLabelSVC a number asks for that
        many, spaced geometrically from the C where the path leaves its closed form to the
        estimator's C.

    Yields
    ------
    estimator
        A fitted copy per C.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin import MultiClassSVC
    >>> from maxmargin.estimators.paths import regularization_path
    >>> X, y = load_iris(return_X_y=True)
    >>> [model.C for model in regularization_path(MultiClassSVC(), X, y, [1.0, 0.1])]
    [0.1, 1.0]
    """
    if isinstance(Cs, int):
        if not isinstance(estimator, MultiLabelSVC):
            raise TypeError(f"Cs must be a sequence of numbers for {type(estimator).__name__}. Got {Cs!r}.")
        start = min(smallest_C(estimator, X, y, sample_weight), estimator.C / 2)
        Cs = np.geomspace(start, estimator.C, Cs).tolist()
    model = clone(estimator).set_params(warm_start=True)
    for C in np.sort(np.asarray(Cs, dtype=float)).tolist():
        model.set_params(C=C).fit(X, y, sample_weight=sample_weight)
        fitted = copy(model).set_params(warm_start=estimator.warm_start)
        for name in WARM_STATE:
            vars(fitted).pop(name, None)
        yield fitted
