"""Input validation for samples that are groups of rows: sequences and bags of candidates.

| X                                                 | a sample is                 |
|---------------------------------------------------|-----------------------------|
| list (tuple, object array) of matrices or frames  | one matrix                  |
| 3-D array                                         | X[i]                        |
| matrix or frame with `lengths`                    | the next lengths[i] rows    |
| matrix or frame                                   | one row, a group of one     |

All of these are converted to one stacked matrix and the offsets of the groups. A stacked matrix is not
copied; a list is copied once.

Labels are one per group (bags), or one per row (sequences). A list of sequences takes one label sequence
each: a list, a tuple, an array, or a string whose characters are the labels. A stacked matrix takes one
vector with a label per row. Predictions have the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import LabelNames, Sizes, State, chosen
from maxmargin.edge.estimator import warn_if_single


@dataclass(frozen=True)
class Groups:
    """The stacked rows of all groups; group i is the rows offsets[i]..offsets[i + 1] - 1.

    `kind` is "list", "array" (3-D), "stacked" (with lengths) or "rows" (groups of one).
    """

    X: Any
    offsets: np.ndarray
    kind: str

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return self.offsets.size - 1

    def cut(self, stacked: np.ndarray) -> list[np.ndarray]:
        """Split an array with one entry per row into one array per group."""
        return np.split(stacked, self.offsets[1:-1])


def read_groups(estimator: Any, X: Any, lengths: Any, *, reset: bool) -> Groups:
    """Validate X (and lengths); `estimator` validates the stacked rows.

    A model fitted to larger groups refuses a matrix without `lengths`, which is most likely meant as a
    single group.
    """
    groups = _read(estimator, X, lengths, reset)
    if reset:
        estimator._groups_of_one = bool(groups.lengths.max() == 1)
    elif groups.kind == "rows" and not estimator._groups_of_one:
        raise ValueError(
            "X is one matrix, but fit was given several rows per sample: pass [X] if it is one sample, "
            "or pass lengths, the number of rows of each sample."
        )
    return groups


def _read(estimator: Any, X: Any, lengths: Any, reset: bool) -> Groups:
    if lengths is not None:
        if _is_ragged(X):
            raise ValueError(
                "lengths is for one stacked matrix, but X is a list of matrices; leave lengths out."
            )
        rows = estimator._read_rows(X, reset=reset)
        return Groups(rows, _offsets(_check_lengths(lengths, rows.shape[0])), "stacked")
    if isinstance(X, np.ndarray) and X.ndim == 3:
        n, length, _ = X.shape
        if n == 0 or length == 0:
            raise ValueError(f"X has shape {X.shape}; pass at least one sample of at least one row.")
        rows = estimator._read_rows(X.reshape(n * length, -1), reset=reset)
        return Groups(rows, _offsets(np.full(n, length)), "array")
    if not _is_ragged(X):
        rows = estimator._read_rows(X, reset=reset)
        return Groups(rows, np.arange(rows.shape[0] + 1), "rows")
    if len(X) == 0:
        raise ValueError("X is an empty list: 0 samples, but at least one is needed.")
    sizes = _check_sizes(X)
    return Groups(estimator._read_rows(_stack(X), reset=reset), _offsets(sizes), "list")


def _is_ragged(X: Any) -> bool:
    """Whether X is a sequence of matrices (an empty list counts as one)."""
    if isinstance(X, np.ndarray):
        return X.ndim == 1 and X.dtype == object and len(X) > 0 and _dimensions(X[0]) == 2
    if not isinstance(X, (list, tuple)):
        return False
    return len(X) == 0 or _dimensions(X[0]) == 2


def _dimensions(item: Any) -> int:
    """Return the number of dimensions of a matrix, frame or nested list; -1 for a ragged list."""
    if hasattr(item, "shape"):
        return len(item.shape)
    try:
        return np.ndim(item)
    except ValueError:
        return -1


def _check_sizes(X: Any) -> np.ndarray:
    """Return the number of rows of every matrix in X; check that all have the same width."""
    sizes = np.empty(len(X), np.int64)
    width = None
    for i, item in enumerate(X):
        if _dimensions(item) != 2:
            raise ValueError(f"X[{i}] is not a matrix of rows and features, but X[0] is.")
        rows, columns = item.shape if hasattr(item, "shape") else np.shape(item)
        if rows == 0:
            raise ValueError(f"X[{i}] is empty, but every sample needs at least one row; remove it.")
        width = columns if width is None else width
        if columns != width:
            raise ValueError(f"X[{i}] has {columns} features, but X[0] has {width}; they must be equal.")
        sizes[i] = rows
    return sizes


def _stack(X: Any) -> Any:
    if any(sp.issparse(item) for item in X):
        parts = [check_format(item, f"X[{i}]") for i, item in enumerate(X)]
        return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
    frames = [nw.from_native(item, eager_only=True, pass_through=True) for item in X]
    if all(isinstance(frame, nw.DataFrame) for frame in frames):
        return nw.concat(frames, how="vertical").to_native()
    return np.concatenate([np.asarray(item) for item in X])


def _check_lengths(lengths: Any, n_rows: int) -> np.ndarray:
    sizes = np.asarray(lengths)
    if sizes.ndim != 1 or sizes.size == 0 or sizes.dtype.kind not in "iu":
        raise ValueError("lengths must be a list of whole numbers: the number of rows of each sample.")
    if (sizes > n_rows).any():
        i = int(np.flatnonzero(sizes > n_rows)[0])
        raise ValueError(f"lengths[{i}] is {sizes[i]}, but X has {n_rows} rows; lengths must sum to that.")
    sizes = sizes.astype(np.int64)
    if sizes[0] == 0 and sizes[-1] == n_rows and (np.diff(sizes) >= 0).all():
        raise ValueError(
            "lengths must be the number of rows of each sample, but these are offsets; pass np.diff(lengths)."
        )
    if (sizes < 1).any():
        i = int(np.flatnonzero(sizes < 1)[0])
        raise ValueError(f"lengths[{i}] is {sizes[i]}; every sample needs at least one row.")
    if sizes.sum() != n_rows:
        raise ValueError(f"lengths sum to {sizes.sum()}, but X has {n_rows} rows; they must be equal.")
    return sizes


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _check_pack(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check stored labels: they are strings if predictions are strings."""
    if state["container"] is str and not all(isinstance(name, str) for name in state["classes"].tolist()):
        raise ValueError("it predicts strings, but its labels are not strings")


@dataclass(frozen=True)
class SequenceLabels:
    """The labels of a fitted estimator and the kind of sequence in which they were passed."""

    classes: np.ndarray
    container: type

    STATE: ClassVar[State] = State(
        {"classes": LabelNames("n_classes"), "container": chosen(str, list, tuple, np.ndarray)}, _check_pack
    )

    @classmethod
    def read(cls, y: Any, groups: Groups) -> tuple[SequenceLabels, np.ndarray]:
        """Return the labels of `y`, and one code per row."""
        stacked = stack_labels(y, groups)
        check_classification_targets(stacked)
        classes, codes = np.unique(stacked, return_inverse=True)
        warn_if_single(classes)
        return cls(classes, container_of(y, groups)), codes.reshape(-1)

    def answer(self, codes: np.ndarray, groups: Groups) -> Any:
        """Convert one code per row to labels: a vector, a 2-D array, or a list of sequences."""
        labels = self.classes[codes]
        if groups.kind in ("rows", "stacked"):
            return labels
        if groups.kind == "array":
            return labels.reshape(len(groups), -1)
        return [self.pack(piece) for piece in groups.cut(labels)]

    def pack(self, labels: np.ndarray) -> Any:
        """Convert one label sequence to the kind passed to fit."""
        if self.container is str:
            return "".join(labels.tolist())
        return labels if self.container is np.ndarray else self.container(labels.tolist())


def container_of(y: Any, groups: Groups) -> type:
    """Return the type of the label sequences: str, list, tuple, otherwise an array."""
    first = y[0] if groups.kind in ("list", "array") else None
    return type(first) if type(first) in (str, list, tuple) else np.ndarray


def stack_labels(y: Any, groups: Groups) -> np.ndarray:
    """Return one label per row; check that every sequence has one label per row."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None; pass the labels.")
    if groups.kind in ("rows", "stacked"):
        if isinstance(y, (list, tuple)) and any(isinstance(item, (list, tuple, np.ndarray)) for item in y):
            raise ValueError(
                "y holds sequences, but X is stacked; join them to one vector with one label per row."
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
                f"y[{i}] has shape {piece.shape}, but X[{i}] has {length} rows; pass one label per row."
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
