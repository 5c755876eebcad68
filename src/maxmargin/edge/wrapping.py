"""What a wrapper takes is what its estimator takes; a kernel matrix is cut in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import _check_feature_names, _check_n_features

PASSED_ON = ("sparse", "pairwise", "positive_only")


def pass_on_input(tags: Any, estimator: Any) -> Any:
    """The tags of a wrapper, with what its estimator says of X."""
    inner = get_tags(estimator).input_tags
    for name in PASSED_ON:
        setattr(tags.input_tags, name, getattr(inner, name))
    return tags


def takes_kernel(estimator: Any) -> bool:
    """Whether X is a square matrix of values for pairs of samples."""
    return bool(get_tags(estimator).input_tags.pairwise)


def cut_rows(estimator: Any, X: Any, rows: np.ndarray, fitted: np.ndarray | None = None) -> Any:
    """Some rows of X; of a kernel matrix their values with the samples `fitted`, or with one another."""
    if not takes_kernel(estimator):
        return _safe_indexing(X, rows)
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2 or X.shape[0] != X.shape[1]:
        raise ValueError(
            f"X must be the square matrix of kernel values of the training samples. Got shape {X.shape} "
            "instead."
        )
    return cut_columns(_safe_indexing(X, rows), rows if fitted is None else fitted)


def check_kernel(wrapper: Any, K: Any, reset: bool = False) -> None:
    """Note the width and names of a kernel matrix, or hold one to those that were noted.

    For wrappers whose models take some of the columns only.
    """
    _check_feature_names(wrapper, K, reset=reset)
    _check_n_features(wrapper, K, reset=reset)


def cut_columns(K: Any, fitted: np.ndarray) -> Any:
    """The kernel values with the samples `fitted`."""
    return _safe_indexing(K if hasattr(K, "shape") else np.asarray(K), fitted, axis=1)
