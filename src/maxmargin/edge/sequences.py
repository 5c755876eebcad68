"""The label edge of sequences: words outside, small integers inside.

A list of sequences takes one label sequence for each: a list, a tuple, an array, or a string
whose characters are the labels. A stacked matrix takes one vector with a label per row.
Predictions come back in the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from maxmargin.edge.groups import Groups


@dataclass(frozen=True)
class SequenceLabels:
    """The labels known to a fitted estimator and the kind of sequence in which they were given."""

    classes: np.ndarray
    container: type

    @classmethod
    def read(cls, y: Any, groups: Groups) -> tuple[SequenceLabels, np.ndarray]:
        """Learn the labels of `y` and return them with one code per row."""
        stacked = stack_labels(y, groups)
        check_classification_targets(stacked)
        classes, codes = np.unique(stacked, return_inverse=True)
        first = y[0] if groups.kind in ("list", "array") else stacked
        container = type(first) if type(first) in (str, list, tuple) else np.ndarray
        return cls(classes, container), codes.reshape(-1)

    def answer(self, codes: np.ndarray, groups: Groups) -> Any:
        """Give one code per row back as labels: stacked, as a 2-D array, or a list of sequences."""
        labels = self.classes[codes]
        if groups.kind in ("rows", "stacked"):
            return labels
        if groups.kind == "array":
            return labels.reshape(len(groups), -1)
        return [self.pack(piece) for piece in groups.cut(labels)]

    def pack(self, labels: np.ndarray) -> Any:
        """One label sequence in the kind given to fit."""
        if self.container is str:
            return "".join(labels.tolist())
        return labels if self.container is np.ndarray else self.container(labels.tolist())


def stack_labels(y: Any, groups: Groups) -> np.ndarray:
    """One label per row, checked against the lengths of the sequences."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None; pass the labels.")
    if groups.kind in ("rows", "stacked"):
        if isinstance(y, (list, tuple)) and any(isinstance(item, (list, tuple, np.ndarray)) for item in y):
            raise ValueError(
                "y holds sequences, but X is stacked; join them to one vector with a label for every row."
            )
        stacked = column_or_1d(y, warn=True)
        if len(stacked) != groups.offsets[-1]:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {groups.offsets[-1]} "
                f"rows, but y has {len(stacked)} labels."
            )
        return _complete(stacked)
    if len(y) != len(groups):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {len(groups)} "
            f"sequences, but y has {len(y)}."
        )
    pieces = []
    for i, (labels, length) in enumerate(zip(y, groups.lengths, strict=True)):
        piece = np.asarray(list(labels) if isinstance(labels, str) else labels)
        if piece.shape != (length,):
            raise ValueError(
                f"y[{i}] has shape {piece.shape}, but X[{i}] has {length} rows; one label per row is needed."
            )
        pieces.append(piece)
    texts = {piece.dtype.kind in "US" for piece in pieces}
    if len(texts) > 1:
        raise ValueError("y mixes strings and numbers; use one type of label.")
    return _complete(np.concatenate(pieces))


def _complete(stacked: np.ndarray) -> np.ndarray:
    if stacked.dtype.kind == "f" and not np.isfinite(stacked).all():
        raise ValueError("Input y contains NaN or infinity; every row needs a label.")
    if stacked.dtype.kind == "O" and any(label is None for label in stacked):
        raise ValueError("Input y contains None; every row needs a label.")
    return stacked
