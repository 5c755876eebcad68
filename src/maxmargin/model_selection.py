"""Splits that keep the share of every label, and models over a range of C.

Iterative stratification for several labels per sample:

Sechidis, Tsoumakas, Vlahavas: On the stratification of multi-label data, ECML PKDD 2011. Labels are
dealt out rarest first. A sample goes to the part that still lacks most samples of the label at
hand, among equals to the part that lacks most samples at all, then to the first (or, when
shuffling, a random) one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import _safe_indexing, check_random_state, indexable

from maxmargin.core.sparse_format import check_format
from maxmargin.edge.estimator import is_missing
from maxmargin.edge.labels import is_sets, label_rows, matrix_of

_SEVERAL_LABELS = (
    "y must hold several labels per sample: an indicator of shape (n_samples, n_labels) or a list of sets. "
    "For one class per sample use sklearn.model_selection.StratifiedKFold."
)


_NO_INDICATOR = "y must be an indicator of 0/1 or -1/+1, with NaN for unknown entries."


class IterativeStratifiedKFold(BaseCrossValidator):
    """K-fold cross-validation that keeps the share of every label in every fold.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether samples are dealt out in random order and ties are broken at random.
    random_state : int, RandomState instance or None, default=None
        Seed when `shuffle` is True.

    Notes
    -----
    Folds may differ in size by a few samples: shares of labels come first. Time is linear in the
    number of label entries, plus the square of the number of labels.

    y may have unknown entries (NaN, or None for a sample of a list of sets). The known entries of both
    signs are then shared out, and the samples of which nothing is known. A search over such labels
    needs this splitter by name, since a number of folds makes scikit-learn check y for NaN, and a
    measure that leaves unknown entries out: the `score` of the estimator, or `maxmargin.metrics.scorer`.

    Examples
    --------
    >>> from maxmargin.datasets import load
    >>> from maxmargin.model_selection import IterativeStratifiedKFold
    >>> data = load("yeast", "train")
    >>> int(data.Y[:, 13].sum())                               # the rarest label
    21
    >>> folds = IterativeStratifiedKFold(n_splits=3).split(data.X, data.Y)
    >>> [int(data.Y[test, 13].sum()) for _, test in folds]
    [7, 7, 7]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None):
        if not isinstance(n_splits, int | np.integer) or n_splits < 2:
            raise ValueError(f"n_splits must be a whole number of at least 2. Got {n_splits!r} instead.")
        if random_state is not None and not shuffle:
            raise ValueError("random_state has no effect without shuffle=True; set that or leave it out.")
        self.n_splits = int(n_splits)
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Training and test rows of each fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Only its length is used.
        y : indicator (dense, sparse or data frame) or list of sets
            The labels of each sample; NaN or None where they are not known.
        groups : ignored
        """
        if y is None:
            raise ValueError("y must hold the labels of each sample. Got None instead.")
        X, y = indexable(check_format(X, "X"), check_format(y, "y"))
        Y = _indicator(y)
        if Y.shape[0] < self.n_splits:
            raise ValueError(f"n_splits={self.n_splits} is more than the {Y.shape[0]} samples.")
        rng = check_random_state(self.random_state) if self.shuffle else None
        fold = _deal_out(Y, np.full(self.n_splits, 1 / self.n_splits), rng)
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def iterative_train_test_split(
    X: Any, y: Any, *, test_size: float = 0.25, random_state: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Split into a training and a test part with the same share of every label.

    Parameters
    ----------
    X : array-like, sparse matrix or data frame
        The samples.
    y : indicator (dense, sparse or data frame) or list of sets
        The labels of each sample.
    test_size : float in (0, 1), default=0.25
        Share of the test part, met up to a few samples.
    random_state : int, RandomState instance or None, default=None
        Seed of the order in which samples are dealt out.

    Returns
    -------
    X_train, X_test, y_train, y_test
        As of scikit-learn's `train_test_split`.
    """
    if not 0 < test_size < 1:
        raise ValueError(f"test_size must lie between 0 and 1. Got {test_size!r} instead.")
    X, y = indexable(check_format(X, "X"), check_format(y, "y"))
    part = _deal_out(_indicator(y), np.array([1 - test_size, test_size]), check_random_state(random_state))
    train, test = np.flatnonzero(part == 0), np.flatnonzero(part == 1)
    if not len(train) or not len(test):
        raise ValueError(f"test_size={test_size} leaves one part without samples; there are {len(part)}.")
    return (
        _safe_indexing(X, train),
        _safe_indexing(X, test),
        _safe_indexing(y, train),
        _safe_indexing(y, test),
    )


def _indicator(y: Any) -> sp.csr_array:
    """What is dealt out evenly, as CSR: positive label entries, and what unknown ones would make uneven.

    Of a label with unknown entries the negative ones are dealt out, too, and so are the samples of which
    nothing is known.
    """
    if is_sets(y):
        rows = label_rows(y)
        on = sp.csr_array(MultiLabelBinarizer(sparse_output=True).fit_transform([r or () for r in rows]))
        return _with_unknown(on, np.array([row is None for row in rows]))
    if isinstance(y, list | tuple) and y and not _is_table(y):
        raise ValueError(_SEVERAL_LABELS)
    if sp.issparse(y):
        y = sp.csr_array(y)
        if np.isin(y.data, (-1, 0, 1)).all():
            return sp.csr_array(y == 1)
    values = matrix_of(y)
    if values.ndim != 2:
        raise ValueError(_SEVERAL_LABELS)
    if values.dtype.kind not in "buif" or not np.isin(values[~np.isnan(values)], (-1, 0, 1)).all():
        raise ValueError(_NO_INDICATOR)
    on, unknown = sp.csr_array(values == 1), np.isnan(values)
    if not unknown.any():
        return on
    nothing = unknown.all(axis=1)
    partly = unknown[~nothing].any(axis=0)
    off = sp.csr_array(((values == 0) | (values == -1))[:, partly])
    return _with_unknown(sp.hstack([on, off], format="csr"), nothing)


def _with_unknown(dealt: sp.csr_array, nothing: np.ndarray) -> sp.csr_array:
    """Another column for samples of which nothing is known, if there are any."""
    if not nothing.any():
        return dealt
    return sp.csr_array(sp.hstack([dealt, sp.csr_array(nothing[:, None])], format="csr"))


def _is_table(y: Any) -> bool:
    """Whether nested lists are rows of an indicator rather than lists of labels."""
    if not all(isinstance(row, list | tuple) for row in y):
        return False
    known = (value for row in y for value in row if not is_missing(value))
    return len({len(row) for row in y}) == 1 and all(value in (-1, 0, 1) for value in known)


def _deal_out(Y: sp.csr_array, shares: np.ndarray, rng: np.random.RandomState | None) -> np.ndarray:
    """The part of each sample."""
    n = Y.shape[0]
    by_label = sp.csc_array(Y)
    remaining = np.diff(by_label.indptr).astype(np.int64)
    lacking = remaining[:, None] * shares
    lacking_any = n * shares
    part = np.full(n, -1)

    def place(sample: int, most: np.ndarray) -> None:
        best = np.flatnonzero(most >= most.max() - 1e-9)
        room = lacking_any[best]
        best = best[room >= room.max() - 1e-9]
        chosen = best[0] if rng is None else best[rng.randint(len(best))]
        labels = Y.indices[Y.indptr[sample] : Y.indptr[sample + 1]]
        part[sample] = chosen
        lacking[labels, chosen] -= 1
        lacking_any[chosen] -= 1
        remaining[labels] -= 1

    while remaining.any():
        label = int(np.argmin(np.where(remaining > 0, remaining, n + 1)))
        for sample in _ordered(by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]], rng):
            if part[sample] < 0:
                place(sample, lacking[label])
    for sample in _ordered(np.flatnonzero(part < 0), rng):
        place(sample, lacking_any)
    return part


def _ordered(samples: np.ndarray, rng: np.random.RandomState | None) -> np.ndarray:
    return np.sort(samples) if rng is None else rng.permutation(samples)


def regularization_path(
    estimator: Any, X: Any, y: Any, Cs: Sequence[float] | int, sample_weight: Any = None
) -> Iterator[Any]:
    """Fit a copy of `estimator` for each C, each started from the solution before.

    Parameters
    ----------
    estimator : MultiLabelSVC, MultiClassSVC, ChainSVC or SubmodularSVC
    X, y, sample_weight : as for `fit`
    Cs : sequence of float or int
        Values of C, visited in increasing order. For a MultiLabelSVC a number asks for that
        many, spaced geometrically from the C where the path leaves its closed form to the
        estimator's C.

    Yields
    ------
    estimator
        A fitted copy per C.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin import MultiClassSVC
    >>> from maxmargin.model_selection import regularization_path
    >>> X, y = load_iris(return_X_y=True)
    >>> [model.C for model in regularization_path(MultiClassSVC(), X, y, [1.0, 0.1])]
    [0.1, 1.0]
    """
    if isinstance(Cs, (int, np.integer)):
        if not hasattr(estimator, "smallest_C"):
            raise TypeError(f"Cs must be a sequence of numbers for {type(estimator).__name__}. Got {Cs!r}.")
        start = min(estimator.smallest_C(X, y, sample_weight), estimator.C / 2)
        Cs = np.geomspace(start, estimator.C, int(Cs)).tolist()
    model = clone(estimator).set_params(warm_start=True)
    for C in np.sort(np.asarray(Cs, dtype=float)).tolist():
        model.set_params(C=C).fit(X, y, sample_weight=sample_weight)
        fitted = copy(model).set_params(warm_start=estimator.warm_start)
        vars(fitted).pop("_warm", None)  # the next one starts from it; the copy does not need it
        yield fitted
