"""The input edge for samples that are groups of rows: sequences and bags of candidates.

| given                                             | a sample is                 |
|---------------------------------------------------|-----------------------------|
| list (tuple, object array) of matrices or frames  | one matrix                  |
| 3-D array                                         | X[i]                        |
| matrix or frame together with `lengths`           | so many rows, in turn       |
| matrix or frame alone                             | one row, a group of one     |

Inside there is one stacked matrix and the offsets of the groups. A stacked matrix is used
as it is; a list has to be stacked first, which copies it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Groups:
    """Stacked rows of all groups; group i is the rows offsets[i]..offsets[i + 1] - 1.

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
        """Cut an array with one entry per row into one piece per group."""
        return np.split(stacked, self.offsets[1:-1])


def read_groups(estimator: Any, X: Any, lengths: Any, *, reset: bool) -> Groups:
    """Validate X (and lengths) as above, with `estimator` checking the stacked rows.

    A model of larger groups does not take a bare matrix, which would most likely be one group
    and not as many as it has rows.
    """
    groups = _read(estimator, X, lengths, reset)
    if reset:
        estimator._groups_of_one = bool(groups.lengths.max() == 1)
    elif groups.kind == "rows" and not estimator._groups_of_one:
        raise ValueError(
            "X is one matrix, but fit was given several rows per sample: pass [X] if it is one sample, "
            "or say with lengths how many rows belong to each."
        )
    return groups


def _read(estimator: Any, X: Any, lengths: Any, reset: bool) -> Groups:
    if lengths is not None:
        if _is_ragged(X):
            raise ValueError(
                "lengths belongs to one stacked matrix, but X is a list of matrices; leave it out."
            )
        rows = estimator._read_rows(X, reset=reset)
        return Groups(rows, _offsets(_check_lengths(lengths, rows.shape[0])), "stacked")
    if isinstance(X, np.ndarray) and X.ndim == 3:
        n, length, _ = X.shape
        if n == 0 or length == 0:
            raise ValueError(f"X has shape {X.shape}; it must hold at least one sample of at least one row.")
        rows = estimator._read_rows(X.reshape(n * length, -1), reset=reset)
        return Groups(rows, _offsets(np.full(n, length)), "array")
    if not _is_ragged(X):
        rows = estimator._read_rows(X, reset=reset)
        return Groups(rows, np.arange(rows.shape[0] + 1), "rows")
    if len(X) == 0:
        raise ValueError("X is an empty list: 0 samples, at least one is needed.")
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
    """Number of dimensions of an array, sparse matrix, frame or nested list; -1 for a ragged one."""
    if hasattr(item, "shape"):
        return len(item.shape)
    try:
        return np.ndim(item)
    except ValueError:
        return -1


def _check_sizes(X: Any) -> np.ndarray:
    """Rows of every matrix in X, all of the same width."""
    sizes = np.empty(len(X), np.int64)
    width = None
    for i, item in enumerate(X):
        if _dimensions(item) != 2:
            raise ValueError(f"X[{i}] is not a matrix of rows and features, but X[0] is.")
        rows, columns = item.shape if hasattr(item, "shape") else np.shape(item)
        if rows == 0:
            raise ValueError(f"X[{i}] is empty; every sample needs at least one row. Remove it.")
        width = columns if width is None else width
        if columns != width:
            raise ValueError(f"X[{i}] has {columns} features, but X[0] has {width}; all must be equal.")
        sizes[i] = rows
    return sizes


def _stack(X: Any) -> Any:
    if any(sp.issparse(item) for item in X):
        return sp.vstack([sp.csr_array(item) for item in X], format="csr")
    frames = [nw.from_native(item, eager_only=True, pass_through=True) for item in X]
    if all(isinstance(frame, nw.DataFrame) for frame in frames):
        return nw.concat(frames, how="vertical").to_native()
    return np.concatenate([np.asarray(item) for item in X])


def _check_lengths(lengths: Any, n_rows: int) -> np.ndarray:
    sizes = np.asarray(lengths)
    if sizes.ndim != 1 or sizes.size == 0 or sizes.dtype.kind not in "iu":
        raise ValueError("lengths must be a list of whole numbers, the number of rows of each sample.")
    if sizes[0] == 0 and sizes[-1] == n_rows and (np.diff(sizes) >= 0).all():
        raise ValueError(
            "lengths must be the rows of each sample, but these are offsets; pass np.diff of them."
        )
    if (sizes < 1).any():
        i = int(np.flatnonzero(sizes < 1)[0])
        raise ValueError(f"lengths[{i}] is {sizes[i]}; every sample needs at least one row.")
    if sizes.sum() != n_rows:
        raise ValueError(f"lengths sum to {sizes.sum()}, but X has {n_rows} rows; they must be equal.")
    return sizes


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
