"""What every reader and `load` return, and what a reader raises."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples, their labels, and where they came from.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        The features as the source has them: nothing is scaled or centred. Missing values are NaN.
    Y : ndarray or csr_array
        Several labels per sample: 0/1 indicator of shape (n_samples, n_labels), float with NaN
        where an entry is missing. One label per sample: array of classes, shape (n_samples,).
    feature_names, label_names : tuple of str
        Names of the columns of X and of the labels (or classes, in sorted order).
    train, test : ndarray of int, or None
        Rows of the split that the source comes with; None when it has none.
    name, source, licence : str
        What it is called, where it comes from, what is known of its licence.
    per_row : mapping of str to ndarray
        Further arrays with one entry per sample (texts, words, folds, query ids).
    extras : mapping of str to object
        Anything else the source tells (attribute signatures of classes, parents of labels).

    Examples
    --------
    >>> from maxmargin.datasets import load
    >>> data = load("yeast")
    >>> data
    Dataset('yeast': 2417 samples x 103 features, 14 labels; 1500 train, 917 test)
    >>> data.part("test").X.shape
    (917, 103)
    """

    X: Any
    Y: Any
    feature_names: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    train: np.ndarray | None = None
    test: np.ndarray | None = None
    name: str = ""
    source: str = ""
    licence: str = ""
    per_row: Mapping[str, np.ndarray] = field(default_factory=dict)
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def y(self) -> Any:
        """The labels under the name scikit-learn gives them; the same object as Y."""
        return self.Y

    @property
    def n_labels(self) -> int:
        """Number of labels or classes."""
        return len(self.label_names)

    @property
    def multilabel(self) -> bool:
        """Whether a sample may carry several labels."""
        return self.Y.ndim == 2

    def part(self, split: str | None) -> Dataset:
        """The rows of one side of the split.

        Parameters
        ----------
        split : {"train", "test", "all"} or None
            None and "all" give everything, with the split kept in `train` and `test`.
        """
        if split is None or split == "all":
            return self
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train', 'test', 'all' or None. Got {split!r} instead.")
        rows = self.train if split == "train" else self.test
        if rows is None:
            raise ValueError(f"{self.name or 'this data'} comes without a {split} part; use split='all'.")
        return self.take(rows)

    def take(self, rows: Any) -> Dataset:
        """A Dataset of the given rows, in that order, without a split."""
        return replace(
            self,
            X=self.X[rows],
            Y=self.Y[rows],
            train=None,
            test=None,
            per_row={key: values[rows] for key, values in self.per_row.items()},
        )

    def __repr__(self) -> str:
        n, d = self.X.shape
        kind = "labels" if self.multilabel else "classes"
        parts = [
            f"{len(rows)} {side}"
            for side, rows in (("train", self.train), ("test", self.test))
            if rows is not None
        ]
        split = f"; {', '.join(parts)}" if parts else ""
        return f"Dataset({self.name!r}: {n} samples x {d} features, {self.n_labels} {kind}{split})"


def stack(train: Dataset, test: Dataset) -> Dataset:
    """Training rows, then test rows; both must have the same columns."""
    if train.feature_names != test.feature_names or (
        train.multilabel and train.label_names != test.label_names
    ):
        raise DataFormatError("its columns differ from those of the training file", test.source)
    X = _vstack(train.X, test.X)
    n = train.X.shape[0]
    names = train.label_names
    if not train.multilabel:
        names = tuple(str(label) for label in np.unique(np.concatenate([train.Y, test.Y])))
    return replace(
        train,
        X=X,
        Y=_vstack(train.Y, test.Y),
        label_names=names,
        train=np.arange(n),
        test=np.arange(n, X.shape[0]),
        per_row={key: np.concatenate([train.per_row[key], test.per_row[key]]) for key in train.per_row},
    )


def _vstack(a: Any, b: Any) -> Any:
    return sp.vstack([a, b], format="csr") if sp.issparse(a) else np.concatenate([a, b])


class DataFormatError(ValueError):
    """A file does not follow its format.

    Parameters
    ----------
    message : str
        What is wrong and, where there is one, the cure.
    path : path-like, default=None
        The file.
    line : int, default=None
        1-based line of the fault.
    column : int, default=None
        1-based place in the line: the field in tables (CSV, ARFF rows, letter.data), the
        character elsewhere.
    """

    def __init__(
        self,
        message: str,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
    ):
        self.message = message
        self.path = None if path is None else os.fspath(path)
        self.line = line
        self.column = column
        where = [] if self.path is None else [self.path]
        where += [] if line is None else [f"line {line}"]
        where += [] if column is None else [f"column {column}"]
        super().__init__(f"{', '.join(where)}: {message}" if where else message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.path, self.line, self.column)
