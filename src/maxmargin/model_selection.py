"""Splits that are stratified by several labels per sample, and models over a range of C.

Iterative stratification (Sechidis, Tsoumakas, Vlahavas, "On the stratification of multi-label data", ECML
PKDD 2011) assigns the samples of the rarest label first. A sample goes to the part that lacks most samples
of this label. Ties go to the part that lacks most samples of any label, then to the first part, or to a
random one with shuffling.
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
from maxmargin.edge.labels import is_sets, label_rows, matrix_of

_SEVERAL_LABELS = (
    "y must hold several labels per sample: an indicator of shape (n_samples, n_labels) or a list of sets. "
    "For one class per sample use sklearn.model_selection.StratifiedKFold."
)


_NO_INDICATOR = "y must be an indicator of 0/1 or -1/+1, with NaN for unknown entries."


class IterativeStratifiedKFold(BaseCrossValidator):
    """K-fold cross-validation with the same share of every label in every fold.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether samples are assigned in random order and ties are broken at random.
    random_state : int, RandomState instance or None, default=None
        Seed if `shuffle` is True.

    Notes
    -----
    Folds may differ in size by a few samples, because the shares of labels have priority. Time is linear
    in the number of label entries, plus the square of the number of labels.

    y may have unknown entries (NaN, or None for a sample of a list of sets). The known entries of both
    signs, and the samples without known entries, are then stratified as well. A search over such labels
    needs an instance of this class as `cv`, because scikit-learn refuses NaN in y if `cv` is a number, and
    a measure that leaves unknown entries out: the `score` of the estimator, or `maxmargin.metrics.scorer`.

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
        """Return the number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the training and test rows of each fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Only its length is used.
        y : indicator (dense, sparse or data frame) or list of sets
            The labels of each sample; NaN or None if unknown.
        groups : ignored
        """
        if y is None:
            raise ValueError("y must hold the labels of each sample. Got None instead.")
        X, y = indexable(check_format(X, "X"), check_format(y, "y"))
        Y = _indicator(y)
        if Y.shape[0] < self.n_splits:
            raise ValueError(f"n_splits={self.n_splits} is more than the {Y.shape[0]} samples.")
        rng = check_random_state(self.random_state) if self.shuffle else None
        fold = _assign(Y, np.full(self.n_splits, 1 / self.n_splits), rng)
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
        Share of the test part, exact up to a few samples.
    random_state : int, RandomState instance or None, default=None
        Seed of the order in which samples are assigned.

    Returns
    -------
    X_train, X_test, y_train, y_test
        As in scikit-learn's `train_test_split`.
    """
    if not 0 < test_size < 1:
        raise ValueError(f"test_size must lie between 0 and 1. Got {test_size!r} instead.")
    X, y = indexable(check_format(X, "X"), check_format(y, "y"))
    part = _assign(_indicator(y), np.array([1 - test_size, test_size]), check_random_state(random_state))
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
    """Return the 0/1 columns to stratify by, as CSR: one per label.

    A label with unknown entries has a second column for its negative entries, and there is one column for
    the samples without known entries.
    """
    if is_sets(y):
        rows = label_rows(y)
        on = sp.csr_array(MultiLabelBinarizer(sparse_output=True).fit_transform([r or () for r in rows]))
        return _with_unknown(on, np.array([row is None for row in rows]))
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


def _with_unknown(columns: sp.csr_array, nothing: np.ndarray) -> sp.csr_array:
    """Append a column for the samples without known entries, if there are any."""
    if not nothing.any():
        return columns
    return sp.csr_array(sp.hstack([columns, sp.csr_array(nothing[:, None])], format="csr"))


def _assign(Y: sp.csr_array, shares: np.ndarray, rng: np.random.RandomState | None) -> np.ndarray:
    """Return the part of each sample."""
    n = Y.shape[0]
    by_label = sp.csc_array(Y)
    remaining = np.diff(by_label.indptr).astype(np.int64)
    lacking = remaining[:, None] * shares
    lacking_any = n * shares
    part = np.full(n, -1)

    def put(sample: int, most: np.ndarray) -> None:
        best = np.flatnonzero(most >= most.max() - 1e-9)
        lacks = lacking_any[best]
        best = best[lacks >= lacks.max() - 1e-9]
        chosen = best[0] if rng is None else best[rng.randint(len(best))]
        labels = Y.indices[Y.indptr[sample] : Y.indptr[sample + 1]]
        part[sample] = chosen
        lacking[labels, chosen] -= 1
        lacking_any[chosen] -= 1
        remaining[labels] -= 1

    # Assign the samples of the rarest remaining label, then the samples without labels.
    while remaining.any():
        label = int(np.argmin(np.where(remaining > 0, remaining, n + 1)))
        for sample in _ordered(by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]], rng):
            if part[sample] < 0:
                put(sample, lacking[label])
    for sample in _ordered(np.flatnonzero(part < 0), rng):
        put(sample, lacking_any)
    return part


def _ordered(samples: np.ndarray, rng: np.random.RandomState | None) -> np.ndarray:
    return np.sort(samples) if rng is None else rng.permutation(samples)


def regularization_path(
    estimator: Any, X: Any, y: Any, Cs: Sequence[float] | int, sample_weight: Any = None
) -> Iterator[Any]:
    """Fit a copy of `estimator` for each C, each started from the previous solution.

    Parameters
    ----------
    estimator : MultiLabelSVC, MultiClassSVC, ChainSVC or SubmodularSVC
    X, y, sample_weight : as for `fit`
    Cs : sequence of float or int
        Values of C; fits are in increasing order. For a MultiLabelSVC an int is a number of values,
        spaced geometrically between the largest C with a closed-form solution and the estimator's C.

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
        vars(fitted).pop("_warm", None)  # only the next fit needs the dual solution
        yield fitted
