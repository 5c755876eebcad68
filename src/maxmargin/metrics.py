"""Measures for many labels and for sequences that scikit-learn lacks.

Labels are arrays, sparse matrices or data frames of 0/1 (or -1/+1) with one column per label; a vector is
one label. Two label sets may also be sequences of sets (lists, tuples) of names. Measures at k accept sparse
labels and sparse scores without converting them to dense arrays; labels without a stored score rank last.
`scorer` makes a measure the `scoring` of a search.

All measures leave out unknown entries of the true labels (NaN, or None for a sample of a sequence of sets),
and samples without a known entry.

Examples
--------
>>> from maxmargin import metrics
>>> truth = [[1, 1, 0], [0, 0, 0]]
>>> answer = [[1, 0, 0], [0, 0, 0]]
>>> float(metrics.example_f1(truth, answer))    # (2/3 + 1) / 2: two empty sets agree
0.8333333333333333
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import accuracy_score, f1_score, get_scorer, get_scorer_names, make_scorer
from sklearn.utils.validation import check_consistent_length

from maxmargin.core.sparse_format import check_format
from maxmargin.edge.estimator import is_missing
from maxmargin.edge.labels import is_sets, matrix_of, signs_alike, surely_sets, with_known

__all__ = [
    "example_f1",
    "from_top",
    "hamming_accuracy",
    "label_brier",
    "label_cardinality",
    "label_log_loss",
    "letter_accuracy",
    "macro_f1",
    "micro_f1",
    "ndcg_at_k",
    "one_error",
    "precision_at_k",
    "propensities",
    "propensity_precision_at_k",
    "recall_at_k",
    "reliability",
    "scorer",
    "subset_accuracy",
    "word_accuracy",
]

# Scorers of scikit-learn that compare sets of labels.
_SET_SCORERS = ("f1", "jaccard", "precision", "recall")


def _read_labels(Y: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return boolean matrices of the labels that are on and of the known entries."""
    values = matrix_of(check_format(Y, name))
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2:
        raise ValueError(
            f"{name} must be a matrix of 0/1 with one column per label; got shape {values.shape}."
        )
    if values.dtype.kind not in "buif":
        raise ValueError(f"{name} holds {values.dtype}; pass a 0/1 indicator with one column per label.")
    known = ~np.isnan(values)
    seen = values if known.all() else values[known]
    if not (np.isin(seen, (0, 1)).all() or np.isin(seen, (-1, 1)).all()):
        raise ValueError(f"{name} must hold only 0/1 (or only -1/+1).")
    return values > 0, known


def _read_sparse(Y: Any, name: str = "y_true") -> tuple[sp.csr_array, sp.csr_array]:
    """Return the labels that are on as sparse rows of ones, and the unknown entries."""
    if not sp.issparse(Y):
        dense, known = _read_labels(Y, name)
        return sp.csr_array(dense.astype(float)), sp.csr_array(~known)
    on = sp.csr_array(check_format(Y, name), dtype=float, copy=True)
    on.sum_duplicates()
    unknown = on.copy()
    unknown.data = np.isnan(on.data)
    on.data[unknown.data] = 0.0
    if not np.isin(on.data, (0, 1)).all():
        raise ValueError(f"{name} must hold only 0/1 where it is sparse.")
    on.eliminate_zeros()
    unknown.eliminate_zeros()
    return on, unknown


class _Pair(NamedTuple):
    """Two label sets, dense or sparse, of the samples with a known entry; unknown entries are off.

    `counts` is the number of known entries of each sample, `labels` the columns with a known entry.
    """

    truth: Any
    answer: Any
    counts: np.ndarray
    labels: np.ndarray
    weight: Any

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of correct labels of each sample, and the sizes of both sets together."""
        hits = np.asarray((self.truth * self.answer).sum(axis=1))
        return hits, np.asarray(self.truth.sum(axis=1)) + np.asarray(self.answer.sum(axis=1))

    def by_scikit_learn(self, measure: Any, **options: Any) -> float:
        both = [part[:, self.labels] for part in (self.truth, self.answer)]
        truth, answer = (part.toarray() > 0 if sp.issparse(part) else part for part in both)
        return float(measure(truth, answer, sample_weight=self.weight, **options))


def _pair(y_true: Any, y_pred: Any, sample_weight: Any) -> _Pair:
    """Validate two label sets and the weights."""
    truth: Any
    answer: Any
    if is_sets(y_true) or is_sets(y_pred):
        check_consistent_length(y_true, y_pred, sample_weight)
        signs, given = signs_alike(y_true, y_pred)
        truth, unknown, answer, missing = signs > 0, signs == 0, given > 0, np.zeros(1)
    elif sp.issparse(y_true) and sp.issparse(y_pred):
        (truth, unknown), (answer, missing) = _read_sparse(y_true), _read_sparse(y_pred, "y_pred")
    else:
        (truth, known), (answer, given) = _read_labels(y_true, "y_true"), _read_labels(y_pred, "y_pred")
        unknown, missing = ~known, ~given
    if missing.sum():
        raise ValueError("y_pred must hold only 0/1 (or only -1/+1).")
    if truth.shape != answer.shape:
        raise ValueError(f"y_true has shape {truth.shape} but y_pred has shape {answer.shape}.")
    n, n_labels = truth.shape
    _check_weight(sample_weight, n)
    counts = n_labels - np.asarray(unknown.sum(axis=1), int)
    labels = np.asarray(unknown.sum(axis=0)) < n
    if (counts == n_labels).all():
        return _Pair(truth, answer, counts, labels, sample_weight)
    answer = answer - answer * unknown if sp.issparse(answer) else answer & ~unknown
    rows, weight = with_known(counts[:, None] > 0, sample_weight, "y_true")
    return _Pair(truth[rows], answer[rows], counts[rows], labels, weight)


def _check_weight(sample_weight: Any, n: int) -> None:
    if sample_weight is not None and np.shape(sample_weight) != (n,):
        raise ValueError(f"sample_weight has shape {np.shape(sample_weight)}; expected {(n,)}.")


def _scored(y_true: Any, y_score: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Validate true labels and scores; return them with the known entries and the weights."""
    truth, known = _read_labels(y_true, "y_true")
    scores = np.asarray(y_score, dtype=float)
    if scores.shape != truth.shape:
        raise ValueError(f"y_score has shape {scores.shape}; expected {truth.shape}.")
    if np.isnan(scores).any():
        raise ValueError("y_score holds NaN; every label needs a score.")
    _check_weight(sample_weight, len(known))
    if known.all():
        return truth, scores, known, sample_weight
    rows, weight = with_known(known, sample_weight, "y_true")
    return truth[rows], scores[rows], known[rows], weight


def _mean(values: np.ndarray, sample_weight: Any, counts: Any = None) -> float:
    """Return the weighted mean over samples, or over their `counts` of entries."""
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if counts is not None:
        weight = counts if weight is None else weight * counts
    return float(np.average(values, weights=weight))


def example_f1(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Mean over samples of 2 |y and t| / (|y| + |t|), which is 1 if both sets are empty.

    The same as scikit-learn's ``f1_score(average="samples", zero_division=1)``, without the
    warning, and also for -1/+1 indicators and sets.

    Parameters
    ----------
    y_true, y_pred : array-like, sparse matrix or frame of shape (n_samples, n_labels), or sets
    sample_weight : array-like of shape (n_samples,), default=None

    Examples
    --------
    >>> from maxmargin.metrics import example_f1
    >>> example_f1([[1, 0], [0, 0]], [[1, 1], [0, 1]], sample_weight=[3, 1])
    0.5
    """
    pair = _pair(y_true, y_pred, sample_weight)
    hits, sizes = pair.sums()
    return _mean(np.where(sizes > 0, 2.0 * hits / np.maximum(sizes, 1), 1.0), pair.weight)


def subset_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Share of samples whose labels are all correct.

    Examples
    --------
    >>> from maxmargin.metrics import subset_accuracy
    >>> subset_accuracy([[1, 0], [0, 1]], [[1, 0], [1, 1]])
    0.5
    """
    pair = _pair(y_true, y_pred, sample_weight)
    hits, sizes = pair.sums()
    return _mean(sizes == 2 * hits, pair.weight)


def hamming_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Share of correct entries, one per sample and label: one minus the Hamming loss.

    For sets the labels are those that occur in either argument.

    Examples
    --------
    >>> from maxmargin.metrics import hamming_accuracy
    >>> hamming_accuracy([[1, 0], [0, 1]], [[1, 0], [1, 1]])
    0.75
    """
    pair = _pair(y_true, y_pred, sample_weight)
    hits, sizes = pair.sums()
    return _mean(1 - (sizes - 2 * hits) / pair.counts, pair.weight, pair.counts)


def micro_f1(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """F1 of all entries together, 0 if no label is on in either argument.

    Examples
    --------
    >>> from maxmargin.metrics import macro_f1, micro_f1
    >>> truth, answer = [{"a", "b"}, {"a"}], [{"a"}, {"a"}]
    >>> micro_f1(truth, answer), macro_f1(truth, answer)
    (0.8, 0.5)
    """
    pair = _pair(y_true, y_pred, sample_weight)
    return pair.by_scikit_learn(f1_score, average="micro", zero_division=0)


def macro_f1(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Mean over labels of F1, which is 0 for a label that is on in neither argument.

    A label without a known entry is left out.
    """
    pair = _pair(y_true, y_pred, sample_weight)
    return pair.by_scikit_learn(f1_score, average="macro", zero_division=0)


def scorer(name: str) -> Any:
    """Return a measure of predicted labels as the `scoring` of scikit-learn's searches and validations.

    Parameters
    ----------
    name : {"example_f1", "hamming_accuracy", "macro_f1", "micro_f1", "subset_accuracy"} or str
        Or the name of a scikit-learn scorer of label sets, such as "f1_micro", "precision_samples",
        "recall_macro", "jaccard_micro", "accuracy". Use this function for these if y is a sequence of
        sets or has unknown entries, because scikit-learn's own scorers accept neither.

    Returns
    -------
    callable ``scorer(estimator, X, y)``
        For y of every kind that the estimators take: indicators, sparse matrices, frames, sets.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from maxmargin import MultiLabelSVC, metrics
    >>> X = np.random.RandomState(0).randn(60, 2)
    >>> y = [{"east" if a > 0 else "west", "north" if b > 0 else "south"} for a, b in X]
    >>> scores = cross_val_score(MultiLabelSVC(), X, y, scoring=metrics.scorer("micro_f1"))
    >>> bool(scores.mean() > 0.9)
    True
    """
    measures = (example_f1, hamming_accuracy, macro_f1, micro_f1, subset_accuracy)
    known = {measure.__name__: measure for measure in measures}
    if name in known:
        return make_scorer(_OfLabels(known[name]))
    theirs = [word for word in get_scorer_names() if word == "accuracy" or word.startswith(_SET_SCORERS)]
    if name not in theirs:
        raise ValueError(
            f"There is no scorer {name!r}; there are {', '.join(known)}, and scikit-learn's "
            f"{', '.join(theirs)}."
        )
    found = get_scorer(name)
    options = {"zero_division": 0} | found._kwargs if found._score_func is not accuracy_score else {}
    return make_scorer(_OfLabels(found._score_func, options), greater_is_better=found._sign > 0)


@dataclass(frozen=True)
class _OfLabels:
    """A measure for labels of any kind; one of scikit-learn has `options`."""

    measure: Any
    options: dict[str, Any] | None = None

    @property
    def __name__(self) -> str:
        return self.measure.__name__

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
        y_pred = surely_sets(y_pred)
        if self.options is None:
            return self.measure(y_true, y_pred, sample_weight=sample_weight)
        return _pair(y_true, y_pred, sample_weight).by_scikit_learn(self.measure, **self.options)


def label_cardinality(Y: Any) -> float:
    """Mean number of labels per sample: the sum over labels of their shares of the known entries.

    Examples
    --------
    >>> from maxmargin.metrics import label_cardinality
    >>> label_cardinality([[1, 1], [0, 1]])
    1.5
    """
    on, known = _read_labels(Y, "Y")
    return float((on.sum(axis=0) / np.maximum(known.sum(axis=0), 1)).sum())


def precision_at_k(y_true: Any, y_score: Any, k: int = 1, *, sample_weight: Any = None) -> float:
    """Mean share of true labels among the k with the highest scores.

    Ties count in expectation: labels with the k-th highest score share the remaining positions equally, so
    the result does not depend on the order of the labels. The divisor is k, also for samples with fewer
    than k true labels, or the number of known entries if that is smaller.

    Parameters
    ----------
    y_true : array-like, sparse matrix or frame of shape (n_samples, n_labels)
    y_score : array-like or sparse matrix of shape (n_samples, n_labels)
        Scores such as those of `decision_function`, or only the highest of them (`from_top`).
    k : int, default=1
        At most the number of labels.
    sample_weight : array-like of shape (n_samples,), default=None

    Examples
    --------
    >>> from maxmargin.metrics import precision_at_k
    >>> precision_at_k([[1, 0, 0]], [[0.5, 0.5, 0.1]], k=1)     # two labels share one position
    0.5
    """
    if sp.issparse(y_true) or sp.issparse(y_score):
        on, unknown = _read_sparse(y_true)
        positions = np.minimum(k, on.shape[1] - np.diff(unknown.indptr))
        return _mean_ratio(_gains(on, y_score, k, unknown).sum(axis=1), positions, sample_weight)
    truth, scores, known, sample_weight = _scored(y_true, y_score, sample_weight)
    _check_k(k, truth.shape[1])
    scores = np.where(known, scores, -np.inf)
    last = np.partition(scores, truth.shape[1] - k, axis=1)[:, truth.shape[1] - k, None]
    above, level = scores > last, scores == last
    share = (k - above.sum(axis=1)) / level.sum(axis=1)
    hits = np.sum(truth & above, axis=1) + share * np.sum(truth & level, axis=1)
    return _mean(hits / np.minimum(k, known.sum(axis=1)), sample_weight)


def recall_at_k(y_true: Any, y_score: Any, k: int = 1, *, sample_weight: Any = None) -> float:
    """Mean share of the true labels that are among the k with the highest scores.

    Ties count in expectation, as in `precision_at_k`. Samples without true labels are left out.

    Parameters
    ----------
    y_true, y_score, k, sample_weight : as for `precision_at_k`

    Examples
    --------
    >>> from maxmargin.metrics import recall_at_k
    >>> recall_at_k([[1, 1, 0]], [[0.9, 0.1, 0.5]], k=2)
    0.5
    """
    truth, unknown = _read_sparse(y_true)
    found = _gains(truth, y_score, k, unknown).sum(axis=1)
    return _mean_ratio(found, np.diff(truth.indptr), sample_weight)


def ndcg_at_k(y_true: Any, y_score: Any, k: int = 1, *, sample_weight: Any = None) -> float:
    """Mean discounted gain of the k labels with the highest scores, relative to the best order.

    The gain of a true label at position p is 1 / log2(1 + p). Ties count in expectation, as in
    `precision_at_k`. Samples without true labels are left out.

    Parameters
    ----------
    y_true, y_score, k, sample_weight : as for `precision_at_k`

    Examples
    --------
    >>> from maxmargin.metrics import ndcg_at_k
    >>> round(ndcg_at_k([[1, 1, 0]], [[0.9, 0.1, 0.5]], k=2), 3)     # 1 / (1 + 1 / log2(3))
    0.613
    """
    truth, unknown = _read_sparse(y_true)
    discount = 1 / np.log2(np.arange(2, k + 2))
    found = _gains(truth, y_score, k, unknown) @ discount
    best = np.concatenate([[0.0], np.cumsum(discount)])[np.minimum(np.diff(truth.indptr), k)]
    return _mean_ratio(found, best, sample_weight)


def propensities(Y: Any, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """Estimate the probability that a true label is in the data, from its frequency.

    p_l = 1 / (1 + c (n_l + b)^-a) with c = (log n - 1) (b + 1)^a, for n training samples of which n_l
    have label l (Jain, Prabhu, Varma, KDD 2016).

    Parameters
    ----------
    Y : array-like, sparse matrix or frame of shape (n_samples, n_labels)
        The labels of the training data.
    a, b : float
        Constants of the data; 0.55 and 1.5 are the usual defaults.

    Examples
    --------
    >>> from maxmargin.metrics import propensities
    >>> propensities([[1, 0], [1, 0], [1, 1], [1, 0]]).round(2).tolist()
    [0.8, 0.72]
    """
    on, _ = _read_sparse(Y)
    n, counts = on.shape[0], np.bincount(on.indices, minlength=on.shape[1])
    c = max(np.log(n) - 1, 0.0) * (b + 1) ** a
    return 1 / (1 + c * (counts + b) ** -a)


def propensity_precision_at_k(
    y_true: Any, y_score: Any, k: int = 1, *, propensity: Any, sample_weight: Any = None
) -> float:
    """Precision at k in which a true label counts 1 / propensity, relative to the best order (PSP@k).

    Ties count in expectation, as in `precision_at_k`.

    Parameters
    ----------
    y_true, y_score, k, sample_weight : as for `precision_at_k`
    propensity : array-like of shape (n_labels,)
        Positive, such as `propensities` of the training labels.

    Examples
    --------
    >>> from maxmargin.metrics import propensity_precision_at_k
    >>> propensity_precision_at_k([[1, 1, 0]], [[0.9, 0.1, 0.5]], k=1, propensity=[0.8, 0.4, 0.5])
    0.5
    """
    truth, unknown = _read_sparse(y_true)
    chance = np.asarray(propensity, dtype=float)
    if chance.shape != (truth.shape[1],) or not (chance > 0).all():
        raise ValueError(f"propensity must hold {truth.shape[1]} positive numbers, one per label.")
    worth = sp.csr_array((1 / chance[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
    found, best = (_gains(worth, ranked, k, unknown).sum(axis=1) for ranked in (y_score, worth))
    _check_weight(sample_weight, len(found))
    total = _mean(best, sample_weight)
    return _mean(found, sample_weight) / total if total else float("nan")


def from_top(labels: Any, scores: Any, classes: Any) -> sp.csr_array:
    """Convert the output of `predict_top` to sparse scores, one column per class, for measures at k.

    Examples
    --------
    >>> from maxmargin.metrics import from_top
    >>> from_top([["b", "a"]], [[0.5, -0.1]], ["a", "b", "c"]).toarray().tolist()
    [[-0.1, 0.5, 0.0]]
    """
    labels, scores = np.asarray(labels), np.asarray(scores, dtype=float)
    if labels.shape != scores.shape or labels.ndim != 2:
        raise ValueError(f"labels and scores must have one shape; got {labels.shape} and {scores.shape}.")
    column = {name: k for k, name in enumerate(np.asarray(classes).tolist())}
    columns = np.array([column[name] for name in labels.ravel().tolist()], dtype=np.int64)
    n, k = labels.shape
    return sp.csr_array((scores.ravel(), columns, np.arange(n + 1) * k), shape=(n, len(column)))


def _check_k(k: int, n_labels: int) -> None:
    if not 1 <= k <= n_labels:
        raise ValueError(f"k must be between 1 and the number of labels, {n_labels}. Got {k} instead.")


def _without(scores: Any, unknown: sp.csr_array) -> Any:
    """Return the scores with unknown labels ranked last."""
    if not unknown.nnz:
        return scores
    if not sp.issparse(scores):
        scores = scores.copy()
        scores[unknown.nonzero()] = -np.inf
        return scores
    entries = scores.tocoo()
    kept = ~unknown.toarray()[entries.row, entries.col]
    return sp.csr_array((entries.data[kept], (entries.row[kept], entries.col[kept])), shape=scores.shape)


def _gains(worth: sp.csr_array, y_score: Any, k: int, unknown: sp.csr_array) -> np.ndarray:
    """Return the worth of the labels at the first k positions (n_samples x k); ties share it equally."""
    n, L = worth.shape
    _check_k(k, L)
    y_score = check_format(y_score, "y_score")
    scores = sp.csr_array(y_score, dtype=float) if sp.issparse(y_score) else np.asarray(y_score, dtype=float)
    if scores.shape != worth.shape:
        raise ValueError(f"y_score has shape {scores.shape}; expected {worth.shape}.")
    if np.isnan(scores.data if sp.issparse(scores) else scores).any():
        raise ValueError("y_score holds NaN; every label needs a score.")
    scores = _without(scores, unknown)
    gains, own = np.zeros((n, k)), np.zeros(L)
    every = np.arange(L)
    for i in range(n):
        if sp.issparse(scores):
            stored = slice(scores.indptr[i], scores.indptr[i + 1])
            columns, row = scores.indices[stored], scores.data[stored]
        else:
            columns, row = every, scores[i]
        if len(row) > k:  # keep the k highest scores and those equal to the last
            near = row >= np.partition(row, len(row) - k)[len(row) - k]
            columns, row = columns[near], row[near]
        order = np.argsort(-row, kind="stable")
        columns, row = columns[order], row[order]
        true = slice(worth.indptr[i], worth.indptr[i + 1])
        own[worth.indices[true]] = worth.data[true]
        # Each group of equal scores gets its mean worth at all of its positions.
        _, first, sizes = np.unique(-row, return_index=True, return_counts=True)
        means = np.add.reduceat(own[columns], first) / sizes if len(row) else np.empty(0)
        shared = np.repeat(means, sizes)[:k]
        gains[i, : len(shared)] = shared
        own[worth.indices[true]] = 0.0
    return gains


def _mean_ratio(found: np.ndarray, best: np.ndarray, sample_weight: Any) -> float:
    """Return the mean of found / best over the samples with a positive `best`; NaN without any."""
    _check_weight(sample_weight, len(found))
    counted = best > 0
    if not counted.any():
        return float("nan")
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)[counted]
    return _mean(found[counted] / best[counted], weight)


def one_error(y_true: Any, y_score: Any, *, sample_weight: Any = None) -> float:
    """Share of samples in which the highest score does not belong to true labels only.

    A tie of a true and another label at the highest score counts as an error, and so does a sample
    without true labels.

    Parameters
    ----------
    y_true : array-like, sparse matrix or frame of shape (n_samples, n_labels)
    y_score : array-like of shape (n_samples, n_labels)
        Scores such as those of `decision_function`.
    sample_weight : array-like of shape (n_samples,), default=None

    Examples
    --------
    >>> from maxmargin.metrics import one_error
    >>> one_error([[1, 0, 0], [1, 1, 0]], [[0.5, 0.5, 0.1], [0.2, 0.9, 0.1]])
    0.5
    """
    truth, scores, known, sample_weight = _scored(y_true, y_score, sample_weight)
    best_true = np.where(truth, scores, -np.inf).max(axis=1)
    best_other = np.where(known & ~truth, scores, -np.inf).max(axis=1)
    return _mean(best_true <= best_other, sample_weight)


def _probable(
    y_true: Any, y_proba: Any, sample_weight: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Validate true labels and probabilities; return them with the known entries and the weights."""
    truth, found, known, weight = _scored(y_true, y_proba, sample_weight)
    if (found < 0).any() or (found > 1).any():
        raise ValueError(
            "y_proba must hold probabilities, from 0 to 1; wrap the model in maxmargin.Calibrated."
        )
    return truth, found, known, weight


def _mean_of_entries(values: np.ndarray, known: np.ndarray, sample_weight: Any) -> float:
    counts = known.sum(axis=1)
    return _mean((values * known).sum(axis=1) / counts, sample_weight, counts)


def label_log_loss(y_true: Any, y_proba: Any, *, sample_weight: Any = None) -> float:
    """Mean over all entries of minus the logarithm of the probability of the true value.

    A probability of zero counts as the smallest positive number.

    Parameters
    ----------
    y_true : array-like, sparse matrix or frame of shape (n_samples, n_labels)
    y_proba : array-like of shape (n_samples, n_labels)
    sample_weight : array-like of shape (n_samples,), default=None

    Examples
    --------
    >>> from maxmargin.metrics import label_log_loss
    >>> round(label_log_loss([[1, 0]], [[0.5, 0.5]]), 4)
    0.6931
    """
    truth, found, known, weight = _probable(y_true, y_proba, sample_weight)
    right = np.clip(np.where(truth, found, 1 - found), np.finfo(float).tiny, 1.0)
    return _mean_of_entries(-np.log(right), known, weight)


def label_brier(y_true: Any, y_proba: Any, *, sample_weight: Any = None) -> float:
    """Mean over all entries of the squared difference of probability and truth.

    Parameters
    ----------
    y_true, y_proba, sample_weight : as for `label_log_loss`

    Examples
    --------
    >>> from maxmargin.metrics import label_brier
    >>> label_brier([[1, 0]], [[0.5, 0.5]])
    0.25
    """
    truth, found, known, weight = _probable(y_true, y_proba, sample_weight)
    return _mean_of_entries((found - truth) ** 2, known, weight)


def reliability(y_true: Any, y_proba: Any, n_bins: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the points of a reliability diagram over all samples and labels, with bins of equal width.

    Parameters
    ----------
    y_true, y_proba : as for `label_log_loss`
    n_bins : int, default=10

    Returns
    -------
    predicted, seen : arrays of shape (n_bins_used,)
        Mean probability and share of true entries in every bin that is not empty.
    counts : array of int
        Number of entries in these bins.

    Examples
    --------
    >>> from maxmargin.metrics import reliability
    >>> predicted, seen, counts = reliability([[1, 0], [1, 1]], [[0.9, 0.1], [0.9, 0.1]])
    >>> seen.tolist(), counts.tolist()
    ([0.5, 1.0], [2, 2])
    """
    truth, found, known, _ = _probable(y_true, y_proba)
    truth, found = truth[known], found[known]
    bins = np.minimum((found * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    used = counts > 0
    predicted = np.bincount(bins, weights=found, minlength=n_bins)[used] / counts[used]
    seen = np.bincount(bins, weights=truth, minlength=n_bins)[used] / counts[used]
    return predicted, seen, counts[used]


def letter_accuracy(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Share of positions with the correct label, over all sequences.

    Parameters
    ----------
    y_true, y_pred : lists of label sequences (strings, lists or arrays)
        The same number of sequences, each pair of the same length.
    sample_weight : array-like of shape (n_sequences,), default=None

    Examples
    --------
    >>> from maxmargin.metrics import letter_accuracy, word_accuracy
    >>> letter_accuracy(["abc", "de"], ["abd", "de"]), word_accuracy(["abc", "de"], ["abd", "de"])
    (0.8, 0.5)
    """
    right, lengths, weights = _compare(y_true, y_pred, sample_weight)
    return float(weights @ right / (weights @ lengths))


def word_accuracy(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Share of sequences whose labels are all correct.

    Parameters
    ----------
    y_true, y_pred, sample_weight : as for `letter_accuracy`
    """
    right, lengths, weights = _compare(y_true, y_pred, sample_weight)
    return float(weights @ (right == lengths) / weights.sum())


def _compare(y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of correct and of known labels of every sequence, and its weight."""
    if len(y_true) != len(y_pred) or len(y_true) == 0:
        raise ValueError(
            f"y_true has {len(y_true)} sequences and y_pred {len(y_pred)}; they need the same number, "
            "at least 1."
        )
    right, lengths = np.zeros(len(y_true)), np.zeros(len(y_true))
    for i, (true, predicted) in enumerate(zip(y_true, y_pred, strict=True)):
        if len(true) != len(predicted):
            raise ValueError(f"y_true[{i}] has {len(true)} labels, but y_pred[{i}] has {len(predicted)}.")
        same = [a == b for a, b in zip(true, predicted, strict=True) if not is_missing(a)]
        right[i], lengths[i] = sum(same), len(same)
    weights = np.ones(len(right)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if weights.shape != right.shape:
        raise ValueError(f"sample_weight must have {len(right)} entries, one per sequence.")
    rows, weights = with_known(lengths[:, None] > 0, weights, "y_true")
    return right[rows], lengths[rows], weights
