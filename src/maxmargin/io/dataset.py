"""What every reader and `load` return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


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
