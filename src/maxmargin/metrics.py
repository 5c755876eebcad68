"""Measures that scikit-learn lacks."""

from __future__ import annotations

from typing import Any

import numpy as np


def letter_accuracy(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Share of positions with the right label, over all sequences.

    Parameters
    ----------
    y_true, y_pred : lists of label sequences (strings, lists or arrays)
        The same number of sequences, each pair of the same length.
    sample_weight : array-like of shape (n_sequences,), default=None
        How often each sequence counts.

    Examples
    --------
    >>> from maxmargin.metrics import letter_accuracy, word_accuracy
    >>> letter_accuracy(["abc", "de"], ["abd", "de"]), word_accuracy(["abc", "de"], ["abd", "de"])
    (0.8, 0.5)
    """
    right, lengths, weights = _compare(y_true, y_pred, sample_weight)
    return float(weights @ right / (weights @ lengths))


def word_accuracy(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Share of sequences whose labels are all right.

    Parameters
    ----------
    y_true, y_pred : lists of label sequences (strings, lists or arrays)
        The same number of sequences, each pair of the same length.
    sample_weight : array-like of shape (n_sequences,), default=None
        How often each sequence counts.
    """
    right, lengths, weights = _compare(y_true, y_pred, sample_weight)
    return float(weights @ (right == lengths) / weights.sum())


def _compare(y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Right labels and length of every sequence, and its weight."""
    if len(y_true) != len(y_pred) or len(y_true) == 0:
        raise ValueError(
            f"y_true has {len(y_true)} sequences and y_pred {len(y_pred)}; they need the same number, "
            "at least 1."
        )
    right, lengths = np.zeros(len(y_true)), np.zeros(len(y_true))
    for i, (true, predicted) in enumerate(zip(y_true, y_pred, strict=True)):
        if len(true) != len(predicted):
            raise ValueError(f"y_true[{i}] has {len(true)} labels, but y_pred[{i}] has {len(predicted)}.")
        lengths[i] = len(true)
        right[i] = sum(a == b for a, b in zip(true, predicted, strict=True))
    weights = np.ones(len(right)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if weights.shape != right.shape:
        raise ValueError(f"sample_weight must have {len(right)} entries, one per sequence.")
    return right, lengths, weights
