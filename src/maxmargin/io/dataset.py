"""The result of every reader, the error that readers raise, and the limit on what a file may expand to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

PathLike = str | os.PathLike[str]
# One word of a file may stand for many entries: a nominal value for one column per value, a run for its
# length. A file may expand to `PER_WORD` entries per word on average; `FREE` entries are always allowed.
PER_WORD, FREE = 32, 1 << 22


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples, their labels, and where they came from.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        The features as in the source, neither scaled nor centred. Missing values are NaN.
    Y : ndarray or csr_array
        Several labels per sample: 0/1 indicator of shape (n_samples, n_labels), float with NaN
        for missing entries. One label per sample: array of classes, shape (n_samples,).
    feature_names, label_names : tuple of str
        Names of the columns of X and of the labels (or classes, in sorted order).
    train, test : ndarray of int, or None
        Rows of the published split; None if the source has none.
    name, source, licence : str
        Name, origin and licence.
    per_row : mapping of str to ndarray
        Further arrays with one entry per sample (texts, words, folds, query ids).
    extras : mapping of str to object
        Other contents of the source (attribute signatures of classes, parents of labels).

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
        """The same object as Y, under scikit-learn's name."""
        return self.Y

    @property
    def n_labels(self) -> int:
        """Number of labels or classes."""
        return len(self.label_names)

    @property
    def multilabel(self) -> bool:
        """Whether a sample may have several labels."""
        return self.Y.ndim == 2

    def part(self, split: str | None) -> Dataset:
        """Return the rows of one side of the split.

        Parameters
        ----------
        split : {"train", "test", "all"} or None
            None and "all" return every row and keep the split in `train` and `test`.
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
        """Return a Dataset of the given rows, in that order, without a split."""
        per_row = {key: values[rows] for key, values in self.per_row.items()}
        return replace(self, X=self.X[rows], Y=self.Y[rows], train=None, test=None, per_row=per_row)

    def __repr__(self) -> str:
        n, d = self.X.shape
        kind = "labels" if self.multilabel else "classes"
        sides = {"train": self.train, "test": self.test}
        parts = [f"{len(rows)} {side}" for side, rows in sides.items() if rows is not None]
        split = f"; {', '.join(parts)}" if parts else ""
        return f"Dataset({self.name!r}: {n} samples x {d} features, {self.n_labels} {kind}{split})"


def stack(train: Dataset, test: Dataset) -> Dataset:
    """Join training and test rows; both must have the same columns."""
    if train.feature_names != test.feature_names or (
        train.multilabel and train.label_names != test.label_names
    ):
        raise DataFormatError("its columns differ from those of the training file", test.source)
    X, Y = (
        sp.vstack(pair, format="csr") if sp.issparse(pair[0]) else np.concatenate(pair)
        for pair in ((train.X, test.X), (train.Y, test.Y))
    )
    n = train.X.shape[0]
    return replace(
        train,
        X=X,
        Y=Y,
        label_names=train.label_names if train.multilabel else tuple(map(str, np.unique(Y))),
        train=np.arange(n),
        test=np.arange(n, X.shape[0]),
        per_row={key: np.concatenate([train.per_row[key], test.per_row[key]]) for key in train.per_row},
    )


class DataFormatError(ValueError):
    """A file does not follow its format.

    Parameters
    ----------
    message : str
        The fault and, where there is one, the remedy.
    path : path-like, default=None
        The file.
    line : int, default=None
        1-based line of the fault.
    column : int, default=None
        1-based position in the line: the field in tables (CSV, ARFF rows, letter.data), the
        character elsewhere.
    """

    def __init__(
        self,
        message: str,
        path: PathLike | None = None,
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


def in_proportion(entries: int, words: int) -> bool:
    """Whether a file of so many words may expand to so many entries."""
    return entries <= FREE + PER_WORD * words


def check_proportion(
    entries: int, words: int, unit: str, remedy: str, path: PathLike, line: int | None = None
) -> None:
    """Refuse a file that expands to too many entries; `unit` names its words (cells, letters, bytes)."""
    if not in_proportion(entries, words):
        message = f"{words:,} {unit} would expand to {entries:,} entries, too many for a file of this size"
        raise DataFormatError(f"{message}: {remedy}", path, line)


def word_array(words: Sequence[str]) -> np.ndarray:
    """Return words as an array of fixed width, or of objects if a few long words would make it too wide.

    Examples
    --------
    >>> from maxmargin.io.dataset import word_array
    >>> word_array(["red", "blue"]).dtype, word_array(["red"] * 10_000 + ["blue" * 10_000]).dtype
    (dtype('<U4'), dtype('O'))
    """
    width = len(words) * max(map(len, words), default=0)
    letters = len(words) + sum(map(len, set(words)))
    return np.array(words, dtype=str if in_proportion(width, letters) else object)
