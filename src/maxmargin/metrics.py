"""Scores for predictions with many labels, and for sequences, that scikit-learn lacks.

Label indicators are arrays, sparse matrices or data frames of 0/1 (or -1/+1), one column per
label; a vector stands for one label. Sequences of sets (lists, tuples) of names are taken wherever
two answers are compared. Measures at k take sparse labels and sparse scores without making them
dense: a label without a stored score stands behind all that have one. `scorer` makes a measure the
`scoring` of a search.

Unknown entries of the true labels (NaN, or None for a sample of a sequence of sets) are left out of every
measure, and so are samples without a known entry.

Examples
--------
>>> from maxmargin import metrics
>>> truth = [[1, 1, 0], [0, 0, 0]]
>>> answer = [[1, 0, 0], [0, 0, 0]]
>>> float(metrics.example_f1(truth, answer))    # (2/3 + 1) / 2: two empty sets agree fully
0.8333333333333333
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def _truth(Y: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Which labels are on, and which entries are known, as boolean matrices; a vector becomes one column."""
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


def _answer(Y: Any, name: str) -> np.ndarray:
    """Which labels are on, as a boolean matrix, where all entries must be known."""
    on, known = _truth(Y, name)
    if not known.all():
        raise ValueError(f"{name} must hold only 0/1 (or only -1/+1).")
    return on


@dataclass(frozen=True)
class _Pair:
    """Two answers to the samples and labels that have a known entry, as boolean matrices.

    Both are off where the entry is not known: no hit and no error.
    """

    truth: np.ndarray
    answer: np.ndarray
    known: np.ndarray
    weight: Any


def _pair(y_true: Any, y_pred: Any, sample_weight: Any) -> _Pair:
    """What is known of two answers, and the weights."""
    if is_sets(y_true) or is_sets(y_pred):
        check_consistent_length(y_true, y_pred, sample_weight)
        signs, given = signs_alike(y_true, y_pred)
        truth, known, answer = signs > 0, signs != 0, given > 0
    else:
        (truth, known), answer = _truth(y_true, "y_true"), _answer(y_pred, "y_pred")
    if truth.shape != answer.shape:
        raise ValueError(f"y_true has shape {truth.shape} but y_pred has shape {answer.shape}.")
    if known.all():
        return _Pair(truth, answer, known, sample_weight)
    rows, weight = _known_rows(known, sample_weight)
    part = np.ix_(rows, known.any(axis=0))
    return _Pair(truth[part], (answer & known)[part], known[part], weight)


def _known_rows(known: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, Any]:
    """The samples that have a known entry, and their weights."""
    _check_weight(sample_weight, len(known))
    return with_known(known, sample_weight, "y_true")


def _check_weight(sample_weight: Any, n: int) -> None:
    if sample_weight is not None and np.shape(sample_weight) != (n,):
        raise ValueError(f"sample_weight has shape {np.shape(sample_weight)}; expected {(n,)}.")


def _scored(y_true: Any, y_score: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """True labels, a score for each of them, which entries are known, and the weights."""
    truth, known = _truth(y_true, "y_true")
    scores = np.asarray(y_score, dtype=float)
    if scores.shape != truth.shape:
        raise ValueError(f"y_score has shape {scores.shape}; expected {truth.shape}.")
    if np.isnan(scores).any():
        raise ValueError("y_score holds NaN; every label needs a score.")
    if known.all():
        return truth, scores, known, sample_weight
    rows, weight = _known_rows(known, sample_weight)
    return truth[rows], scores[rows], known[rows], weight


def _mean(values: np.ndarray, sample_weight: Any) -> float:
    if sample_weight is None:
        return float(np.mean(values))
    _check_weight(sample_weight, len(values))
    return float(np.average(values, weights=np.asarray(sample_weight, dtype=float)))


def _mean_of_entries(values: np.ndarray, known: np.ndarray, sample_weight: Any) -> float:
    """Mean over the known entries."""
    counts = known.sum(axis=1)
    _check_weight(sample_weight, len(values))
    weight = 1.0 if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return _mean((values * known).sum(axis=1) / counts, weight * counts / known.shape[1])


def example_f1(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Mean over samples of 2 |y and t| / (|y| + |t|), which is 1 when both sets are empty.

    The same as scikit-learn's ``f1_score(average="samples", zero_division=1)``, without the
    warning, for sparse and -1/+1 indicators too.

    Parameters
    ----------
    y_true, y_pred : array-like, sparse matrix or frame of shape (n_samples, n_labels)
    sample_weight : array-like of shape (n_samples,), default=None

    Examples
    --------
    >>> from maxmargin.metrics import example_f1
    >>> example_f1([[1, 0], [0, 0]], [[1, 1], [0, 1]], sample_weight=[3, 1])
    0.5
    """
    if sp.issparse(y_true) and sp.issparse(y_pred):
        (on, unknown), (chosen, missing) = _sparse_truth(y_true), _sparse_truth(y_pred, "y_pred")
        if missing.nnz:
            raise ValueError("y_pred must hold only 0/1 where it is sparse.")
        if on.shape != chosen.shape:
            raise ValueError(f"y_true has shape {on.shape} but y_pred has shape {chosen.shape}.")
        hits = on.multiply(chosen).sum(axis=1)
        sizes = on.sum(axis=1) + chosen.sum(axis=1) - chosen.multiply(unknown).sum(axis=1)
        known = np.diff(unknown.indptr) < on.shape[1]
        rows, sample_weight = _known_rows(known[:, None], sample_weight)
        hits, sizes = hits[rows], sizes[rows]
    else:
        pair = _pair(y_true, y_pred, sample_weight)
        hits = np.sum(pair.truth & pair.answer, axis=1)
        sizes = pair.truth.sum(axis=1) + pair.answer.sum(axis=1)
        sample_weight = pair.weight
    return _mean(np.where(sizes > 0, 2.0 * hits / np.maximum(sizes, 1), 1.0), sample_weight)


def precision_at_k(y_true: Any, y_score: Any, k: int = 1, *, sample_weight: Any = None) -> float:
    """Mean fraction of true labels among the k with the highest scores.

    Ties are counted in expectation: labels whose scores equal the k-th highest share the places
    that are left in equal parts, so that the result depends neither on the order of the labels
    nor on chance. The divisor is k also for samples with fewer than k true labels. Labels that are not
    known to be true or not have no place; where fewer than k are known, the divisor is the number of those.

    Parameters
    ----------
    y_true : array-like, sparse matrix or frame of shape (n_samples, n_labels)
    y_score : array-like or sparse matrix of shape (n_samples, n_labels)
        Real scores, such as those of a `decision_function`, or some of them (`from_top`).
    k : int, default=1
        At most the number of labels.
    sample_weight : array-like of shape (n_samples,), default=None

    Examples
    --------
    >>> from maxmargin.metrics import precision_at_k
    >>> precision_at_k([[1, 0, 0]], [[0.5, 0.5, 0.1]], k=1)     # two labels share one place
    0.5
    """
    if sp.issparse(y_true) or sp.issparse(y_score):
        on, unknown = _sparse_truth(y_true)
        places = np.minimum(k, on.shape[1] - np.diff(unknown.indptr))
        return _mean_of(places > 0, _gains(on, y_score, k, unknown).sum(axis=1), places, sample_weight)
    truth, scores, known, sample_weight = _scored(y_true, y_score, sample_weight)
    _check_k(k, truth.shape[1])
    scores = np.where(known, scores, -np.inf)
    last = np.partition(scores, truth.shape[1] - k, axis=1)[:, truth.shape[1] - k, None]
    above, level = scores > last, scores == last
    share = (k - above.sum(axis=1)) / level.sum(axis=1)
    hits = np.sum(truth & above, axis=1) + share * np.sum(truth & level, axis=1)
    return _mean(hits / np.minimum(k, known.sum(axis=1)), sample_weight)


def recall_at_k(y_true: Any, y_score: Any, k: int = 1, *, sample_weight: Any = None) -> float:
    """Mean fraction of the true labels that are among the k with the highest scores.

    Ties are counted in expectation, as in `precision_at_k`. Samples without true labels are left out.

    Parameters
    ----------
    y_true, y_score, k, sample_weight : as for `precision_at_k`

    Examples
    --------
    >>> from maxmargin.metrics import recall_at_k
    >>> recall_at_k([[1, 1, 0]], [[0.9, 0.1, 0.5]], k=2)
    0.5
    """
    truth, unknown = _sparse_truth(y_true)
    sizes = np.diff(truth.indptr)
    found = _gains(truth, y_score, k, unknown).sum(axis=1)
    return _mean_of(sizes > 0, found, sizes, sample_weight)


def ndcg_at_k(y_true: Any, y_score: Any, k: int = 1, *, sample_weight: Any = None) -> float:
    """Mean of the gains of the k labels with the highest scores, 1 / log2(1 + place) for a true one,
    relative to the best order.

    Ties are counted in expectation, as in `precision_at_k`. Samples without true labels are left out.

    Parameters
    ----------
    y_true, y_score, k, sample_weight : as for `precision_at_k`

    Examples
    --------
    >>> from maxmargin.metrics import ndcg_at_k
    >>> round(ndcg_at_k([[1, 1, 0]], [[0.9, 0.1, 0.5]], k=2), 3)     # 1 / (1 + 1 / log2(3))
    0.613
    """
    truth, unknown = _sparse_truth(y_true)
    sizes = np.diff(truth.indptr)
    discount = 1 / np.log2(np.arange(2, k + 2))
    found = _gains(truth, y_score, k, unknown) @ discount
    best = np.concatenate([[0.0], np.cumsum(discount)])[np.minimum(sizes, k)]
    return _mean_of(sizes > 0, found, best, sample_weight)


def propensities(Y: Any, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """How likely a true label is to be in the data at all, by how often it is: Jain et al., KDD 2016.

    p_l = 1 / (1 + c (n_l + b)^-a) with c = (log n - 1) (b + 1)^a, for n training samples of which n_l
    have label l.

    Parameters
    ----------
    Y : array-like, sparse matrix or frame of shape (n_samples, n_labels)
        The labels of the training data.
    a, b : float
        0.55 and 1.5 unless known for the data.

    Examples
    --------
    >>> from maxmargin.metrics import propensities
    >>> propensities([[1, 0], [1, 0], [1, 1], [1, 0]]).round(2).tolist()
    [0.8, 0.72]
    """
    on, _ = _sparse_truth(Y)
    n, counts = on.shape[0], np.bincount(on.indices, minlength=on.shape[1])
    c = max(np.log(n) - 1, 0.0) * (b + 1) ** a
    return 1 / (1 + c * (counts + b) ** -a)


def propensity_precision_at_k(
    y_true: Any, y_score: Any, k: int = 1, *, propensity: Any, sample_weight: Any = None
) -> float:
    """Precision at k in which a true label counts 1 / propensity, relative to the best order (PSP@k).

    Ties are counted in expectation, as in `precision_at_k`.

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
    truth, unknown = _sparse_truth(y_true)
    chance = np.asarray(propensity, dtype=float)
    if chance.shape != (truth.shape[1],) or not (chance > 0).all():
        raise ValueError(f"propensity must hold {truth.shape[1]} positive numbers, one per label.")
    worth = sp.csr_array((1 / chance[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
    found, best = (_gains(worth, ranked, k, unknown).sum(axis=1) for ranked in (y_score, worth))
    total = _mean(best, sample_weight)
    return _mean(found, sample_weight) / total if total else float("nan")


def from_top(labels: Any, scores: Any, classes: Any) -> sp.csr_array:
    """The answer of `predict_top` as sparse scores, one column per class, for the measures at k.

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


def _sparse_truth(Y: Any, name: str = "y_true") -> tuple[sp.csr_array, sp.csr_array]:
    """The labels that are on as sparse rows of ones, and the entries that are not known."""
    if not sp.issparse(Y):
        on, known = _truth(Y, name)
        return sp.csr_array(on.astype(float)), sp.csr_array(~known)
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


def _without(scores: Any, unknown: sp.csr_array) -> Any:
    """Scores behind all others for labels that are not known to be true or not."""
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
    """What the labels in the first k places are worth (n_samples x k); equal scores share their places."""
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
    for i in range(n):
        columns, row = _row(scores, i)
        if len(row) > k:
            near = row >= np.partition(row, len(row) - k)[len(row) - k]
            columns, row = columns[near], row[near]
        order = np.argsort(-row, kind="stable")
        columns, row = columns[order], row[order]
        true = slice(worth.indptr[i], worth.indptr[i + 1])
        own[worth.indices[true]] = worth.data[true]
        _, first, sizes = np.unique(-row, return_index=True, return_counts=True)
        means = np.add.reduceat(own[columns], first) / sizes if len(row) else np.empty(0)
        shared = np.repeat(means, sizes)[:k]
        gains[i, : len(shared)] = shared
        own[worth.indices[true]] = 0.0
    return gains


def _row(scores: Any, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of a row of scores, dense or sparse."""
    if not sp.issparse(scores):
        return np.arange(scores.shape[1]), scores[i]
    part = slice(scores.indptr[i], scores.indptr[i + 1])
    return scores.indices[part], scores.data[part]


def _mean_of(counted: np.ndarray, found: np.ndarray, best: np.ndarray, sample_weight: Any) -> float:
    """Mean of found / best over the samples that count; NaN without any."""
    _check_weight(sample_weight, len(found))
    if not counted.any():
        return float("nan")
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)[counted]
    return _mean(found[counted] / best[counted], weight)


def one_error(y_true: Any, y_score: Any, *, sample_weight: Any = None) -> float:
    """Share of samples whose highest score is not that of a true label alone.

    A true label that shares the first place with a label that is not true counts as an error,
    and so does a sample without true labels.

    Parameters
    ----------
    y_true : array-like, sparse matrix or frame of shape (n_samples, n_labels)
    y_score : array-like of shape (n_samples, n_labels)
        Real scores, such as those of a `decision_function`.
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
    return _mean((best_true <= best_other).astype(float), sample_weight)


def subset_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Fraction of samples whose whole set of labels is right (also for sparse and -1/+1).

    Examples
    --------
    >>> from maxmargin.metrics import subset_accuracy
    >>> subset_accuracy([[1, 0], [0, 1]], [[1, 0], [1, 1]])
    0.5
    """
    pair = _pair(y_true, y_pred, sample_weight)
    return _mean(np.all(pair.truth == pair.answer, axis=1).astype(float), pair.weight)


def hamming_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Share of entries, one per sample and label, that are right: one minus the Hamming loss.

    Of sets the labels are those that occur in either answer.

    Examples
    --------
    >>> from maxmargin.metrics import hamming_accuracy
    >>> hamming_accuracy([[1, 0], [0, 1]], [[1, 0], [1, 1]])
    0.75
    """
    pair = _pair(y_true, y_pred, sample_weight)
    return _mean_of_entries(pair.truth == pair.answer, pair.known, pair.weight)


def micro_f1(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """F1 of all entries together, 0 where no label is on in either answer.

    Examples
    --------
    >>> from maxmargin.metrics import macro_f1, micro_f1
    >>> truth, answer = [{"a", "b"}, {"a"}], [{"a"}, {"a"}]
    >>> micro_f1(truth, answer), macro_f1(truth, answer)
    (0.8, 0.5)
    """
    return _f1(y_true, y_pred, "micro", sample_weight)


def macro_f1(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Mean over labels of F1, which is 0 for a label that is on in neither answer.

    A label without a known entry is left out.
    """
    return _f1(y_true, y_pred, "macro", sample_weight)


def _f1(y_true: Any, y_pred: Any, average: str, sample_weight: Any) -> float:
    pair = _pair(y_true, y_pred, sample_weight)
    value = f1_score(pair.truth, pair.answer, average=average, sample_weight=pair.weight, zero_division=0)
    return float(value)


def scorer(name: str) -> Any:
    """A measure of predicted labels as the `scoring` of scikit-learn's searches and validations.

    Parameters
    ----------
    name : {"example_f1", "hamming_accuracy", "macro_f1", "micro_f1", "subset_accuracy"} or str
        Or the name of a scikit-learn scorer of label sets, such as "f1_micro", "precision_samples",
        "recall_macro", "jaccard_micro", "accuracy". A search whose y is a sequence of sets
        needs this function for those, too, as scikit-learn's own scorers take matrices alone, and so
        does one whose y has unknown entries, as they refuse NaN.

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
        return make_scorer(_OfAnswers(known[name]))
    borrowed = [word for word in get_scorer_names() if word == "accuracy" or word.startswith(_OF_LABELS)]
    if name not in borrowed:
        raise ValueError(
            f"There is no scorer {name!r}; there are {', '.join(known)}, and scikit-learn's "
            f"{', '.join(borrowed)}."
        )
    theirs = get_scorer(name)
    return make_scorer(_OnSets(theirs._score_func, theirs._kwargs), greater_is_better=theirs._sign > 0)


# Scorers of scikit-learn that compare sets of labels.
_OF_LABELS = ("f1", "jaccard", "precision", "recall")


@dataclass(frozen=True)
class _OfAnswers:
    """A measure of ours on the answers of an estimator."""

    measure: Any

    @property
    def __name__(self) -> str:
        return self.measure.__name__

    def __call__(self, y_true: Any, y_pred: Any, **more: Any) -> float:
        return self.measure(y_true, surely_sets(y_pred), **more)


@dataclass(frozen=True)
class _OnSets:
    """A measure of scikit-learn on labels of any kind."""

    measure: Any
    options: dict[str, Any]

    @property
    def __name__(self) -> str:
        return self.measure.__name__

    def __call__(self, y_true: Any, y_pred: Any, **more: Any) -> float:
        pair = _pair(y_true, surely_sets(y_pred), more.pop("sample_weight", None))
        options = {"zero_division": 0} | self.options if self.measure is not accuracy_score else {}
        return float(self.measure(pair.truth, pair.answer, sample_weight=pair.weight, **options))


def label_cardinality(Y: Any) -> float:
    """Mean number of labels per sample: the sum over labels of their shares of the known entries.

    Examples
    --------
    >>> from maxmargin.metrics import label_cardinality
    >>> label_cardinality([[1, 1], [0, 1]])
    1.5
    """
    on, known = _truth(Y, "Y")
    counts = on.sum(axis=0) * (len(on) / np.maximum(known.sum(axis=0), 1))
    return float(counts.sum() / len(on))


def _probable(
    y_true: Any, y_proba: Any, sample_weight: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """True labels, a probability for each of them, which entries are known, and the weights."""
    truth, found, known, weight = _scored(y_true, y_proba, sample_weight)
    if (found < 0).any() or (found > 1).any():
        raise ValueError(
            "y_proba must hold probabilities, from 0 to 1; wrap the model in maxmargin.Calibrated."
        )
    return truth, found, known, weight


def label_log_loss(y_true: Any, y_proba: Any, *, sample_weight: Any = None) -> float:
    """Mean over all entries of minus the logarithm of the probability given to what is true.

    Probabilities of 0 and 1 count as the next numbers between them.

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
    """Mean over all entries of the squared distance between probability and truth.

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
    """What a reliability diagram shows, over all samples and labels: bins of equal width.

    Parameters
    ----------
    y_true, y_proba : as for `label_log_loss`
    n_bins : int, default=10

    Returns
    -------
    told, seen : arrays of shape (n_bins_used,)
        Mean probability and share of true entries in every bin that has any.
    counts : array of int
        Entries in them.

    Examples
    --------
    >>> from maxmargin.metrics import reliability
    >>> told, seen, counts = reliability([[1, 0], [1, 1]], [[0.9, 0.1], [0.9, 0.1]])
    >>> seen.tolist(), counts.tolist()
    ([0.5, 1.0], [2, 2])
    """
    truth, found, known, _ = _probable(y_true, y_proba)
    truth, found = truth[known], found[known]
    place = np.minimum((found * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(place, minlength=n_bins)
    used = counts > 0
    told = np.bincount(place, weights=found, minlength=n_bins)[used] / counts[used]
    seen = np.bincount(place, weights=truth, minlength=n_bins)[used] / counts[used]
    return told, seen, counts[used]


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
    """Right labels and known ones of every sequence that has any, and its weight."""
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
