"""Weights of samples, sides and labels, from the kinds users give them in to plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, check_array

from maxmargin.edge.labels import LabelSpace


def entry_weights(sample_weight: Any, signs: np.ndarray) -> np.ndarray:
    """Sample weights as a column, or entry weights as a matrix; ones when None."""
    n, L = signs.shape
    if sample_weight is None:
        return np.ones((n, 1))
    if getattr(sample_weight, "ndim", 1) == 2:
        weight = check_array(sample_weight, dtype=np.float64, input_name="sample_weight")
        if weight.shape != (n, L):
            raise ValueError(
                f"sample_weight has shape {weight.shape}; pass one weight per sample ({n},) or one per "
                f"entry of y ({n}, {L})."
            )
    else:
        weight = _check_sample_weight(sample_weight, signs, dtype=np.float64)[:, None]
    if (weight < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`; weights must be nonnegative.")
    if not weight.any():
        raise ValueError("sample_weight is zero everywhere; at least one weight must be positive.")
    return weight


def side_weights(class_weight: Any, space: LabelSpace, signs: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weights of negative (row 0) and positive (row 1) entries of every label."""
    L = signs.shape[1]
    if class_weight is None:
        return np.ones((2, L))
    if isinstance(class_weight, str):
        on, off = ((signs > 0) * weight).sum(axis=0), ((signs < 0) * weight).sum(axis=0)
        total = on + off
        sides = np.vstack([off, on])
        return np.divide(total, 2 * sides, out=np.ones((2, L)), where=sides > 0)
    if isinstance(class_weight, dict):
        if space.kind == "binary":
            _check_names(class_weight, space, "class_weight")
            return np.array([[float(class_weight.get(name, 1.0))] for name in space.classes.tolist()])
        sides = np.ones((2, L))
        sides[1] = label_numbers(class_weight, space, "class_weight", default=1.0)
        return sides
    sides = check_array(class_weight, dtype=np.float64, input_name="class_weight").T
    if sides.shape != (2, L):
        raise ValueError(f"class_weight must have shape ({L}, 2): the weights of 'off' and 'on' per label.")
    return _nonnegative(sides, "class_weight")


def label_numbers(values: Any, space: LabelSpace, name: str, default: float) -> np.ndarray:
    """One nonnegative number per label from None, a number, a dict by label or an array."""
    L = space.n_columns
    if values is None:
        return np.full(L, default)
    if isinstance(values, dict):
        _check_names(values, space, name)
        names = space.classes[1:] if space.kind == "binary" else space.classes
        values = [values.get(label, default) for label in names.tolist()]
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim == 0:
        numbers = np.full(L, float(numbers))
    if numbers.shape != (L,):
        raise ValueError(f"{name} must hold one number per label ({L}). Got shape {numbers.shape} instead.")
    return _nonnegative(numbers, name)


def _nonnegative(numbers: np.ndarray, name: str) -> np.ndarray:
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise ValueError(f"{name} must hold finite nonnegative numbers.")
    return numbers


def _check_names(values: dict, space: LabelSpace, name: str) -> None:
    unknown = [key for key in values if key not in space.classes.tolist()]
    if unknown:
        raise ValueError(
            f"{name} names {unknown[0]!r}, which is not a label; known are {space.classes[:5]}..."
        )
