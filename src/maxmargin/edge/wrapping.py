"""What a wrapper takes is what its estimator takes; a kernel matrix is cut in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import validate_data

from maxmargin.core.sparse_format import check_format

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


def read_input(wrapper: Any, X: Any, *, reset: bool = False) -> Any:
    """X as it is, which the estimator will check; what must hold before X is cut is checked here."""
    X = check_format(X, "X")
    tags = get_tags(wrapper.estimator).input_tags
    if not tags.pairwise:
        return X
    finite = not tags.allow_nan
    K = validate_data(
        wrapper, X, reset=reset, accept_sparse="csr" if tags.sparse else False, ensure_all_finite=finite
    )
    if reset and K.shape[0] != K.shape[1]:
        raise ValueError(
            f"X must be the square matrix of kernel values of the training samples. Got shape {K.shape} "
            "instead."
        )
    return K


def tell_width(wrapper: Any, model: Any) -> None:
    """Width and names of X as the fitted estimator tells them; those of a kernel matrix are read already."""
    if takes_kernel(wrapper.estimator):
        return
    for name in ("n_features_in_", "feature_names_in_"):
        wrapper.__dict__.pop(name, None)
        if hasattr(model, name):
            setattr(wrapper, name, getattr(model, name))


def cut_rows(estimator: Any, X: Any, rows: np.ndarray, fitted: np.ndarray | None = None) -> Any:
    """Some rows of X; of a kernel matrix their values with the samples `fitted`, or with one another."""
    part = _safe_indexing(X, rows)
    return cut_columns(part, rows if fitted is None else fitted) if takes_kernel(estimator) else part


def cut_columns(K: Any, fitted: np.ndarray) -> Any:
    """The kernel values with the samples `fitted`."""
    return _safe_indexing(K, fitted, axis=1)
