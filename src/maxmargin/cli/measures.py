"""Measures of a model on labelled data, and what limits their meaning: unknown labels, training samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from maxmargin.cli.console import echo
from maxmargin.cli.data import ReadOptions, Samples
from maxmargin.cli.families import Family
from maxmargin.cli.models import Stored, label_scores, last_step, lengths_for

if TYPE_CHECKING:
    import numpy as np

    from maxmargin.report import Promise

# For each task: name of the measure -> whether more is better.
MEASURES: dict[str, dict[str, bool]] = {
    "multilabel": {
        "micro F1": True, "macro F1": True, "example F1": True, "Hamming loss": False, "exact match": True,
    },
    "multiclass": {"accuracy": True, "macro F1": True},
    "ranking": {"top label right": True, "ranking loss": False, "average precision": True},
    "chain": {"letter accuracy": True, "word accuracy": True},
}  # fmt: skip


def measure(
    task: str, truth: Any, predicted: Any, *, lengths: Any = None, scores: Any = None, classes: Any = None
) -> dict[str, float]:
    """Return all measures of a task.

    Parameters
    ----------
    task : str
    truth, predicted : arrays
        Labels; stacked sequences for chains.
    lengths : array of int
        Chains: lengths of the sequences.
    scores, classes : array of shape (n_samples, n_labels), array of shape (n_labels,)
        Rankings: the score of every label, and the labels.
    """
    if task == "chain":
        return _chain(truth, predicted, lengths)
    if task == "ranking":
        return _ranking(truth, scores, classes)
    return _multilabel(truth, predicted) if task == "multilabel" else _multiclass(truth, predicted)


def evaluate(model: Any, family: Family, data: Samples, predicted: Any = None) -> dict[str, float]:
    """Return all measures of a fitted model; labels that the model does not have count as missed."""
    import numpy as np

    if predicted is None:
        predicted = predict(model, data)
    truth, predicted = _with_unknown(data, data.y), _with_unknown(data, predicted, missed=True)
    if family.task == "ranking":
        scores = label_scores(model, data.X)
        if data.unknown is not None:
            # Unknown labels rank below every known one.
            lowest = np.repeat(scores.min(axis=1, keepdims=True) - 1, data.unknown.shape[1], axis=1)
            scores = np.hstack([scores, lowest])
        return measure(family.task, truth, predicted, scores=scores, classes=model.classes_)
    found = measure(family.task, truth, predicted, lengths=data.lengths)
    if hasattr(getattr(last_step(model), "coef_", None), "tocsc"):
        found |= _at_k(model, data, truth)
    return found


def predict(model: Any, data: Samples) -> Any:
    """Return the predicted labels of samples."""
    return model.predict(data.X, **lengths_for(model, data))


def _with_unknown(data: Samples, labels: Any, *, missed: bool = False) -> Any:
    """Append the 0/1 columns of unknown labels, or zeros if they are `missed`."""
    if data.unknown is None:
        return labels
    import numpy as np
    import scipy.sparse as sp

    more = np.zeros_like(data.unknown) if missed else data.unknown
    if sp.issparse(labels):
        return sp.hstack([labels, sp.csr_array(more)], format="csr")
    return np.hstack([labels, more])


def _multilabel(truth: Any, predicted: Any) -> dict[str, float]:
    """Measure the known entries of the samples that have one."""
    import numpy as np
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    from maxmargin.metrics import example_f1

    share = 1.0
    if not hasattr(truth, "tocsr") and np.asarray(truth).dtype.kind == "f":
        # An unknown entry is 0 on both sides; the mean of the Hamming loss is over known entries.
        known = truth == truth
        rows = known.any(axis=1)
        truth, predicted, known = np.asarray(truth)[rows], np.asarray(predicted)[rows], known[rows]
        truth, predicted, share = np.nan_to_num(truth), np.where(known, predicted, 0), known.mean()
    return {
        "micro F1": float(f1_score(truth, predicted, average="micro", zero_division=0)),
        "macro F1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
        "example F1": float(example_f1(truth, predicted)),
        "Hamming loss": float(hamming_loss(truth, predicted) / share),
        "exact match": float(accuracy_score(truth, predicted)),
    }


def _at_k(model: Any, data: Samples, truth: Any) -> dict[str, float]:
    """Return the precision and the nDCG of the labels with the highest scores."""
    from maxmargin.metrics import from_top, ndcg_at_k, precision_at_k

    X, last = data.X, last_step(model)
    for step in getattr(model, "steps", [])[:-1]:
        X = step[1].transform(X)
    most = min(5, len(last.classes_))
    labels, scores = last.predict_top(X, most)
    ranked = from_top(labels, scores, last.classes_)
    ranked.resize(truth.shape)
    found = {f"P@{k}": precision_at_k(truth, ranked, k) for k in (1, 3, 5) if k <= most}
    return found | {f"nDCG@{most}": ndcg_at_k(truth, ranked, most)}


def _multiclass(truth: Any, predicted: Any) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score

    return {
        "accuracy": float(accuracy_score(truth, predicted)),
        "macro F1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
    }


def _chain(truth: Any, predicted: Any, lengths: Any) -> dict[str, float]:
    import numpy as np

    from maxmargin.metrics import letter_accuracy, word_accuracy

    words = [np.split(np.asarray(labels), np.cumsum(lengths)[:-1]) for labels in (truth, predicted)]
    return {"letter accuracy": letter_accuracy(*words), "word accuracy": word_accuracy(*words)}


def _ranking(truth: Any, scores: Any, classes: Any) -> dict[str, float]:
    """Measure the ranking of samples with at least one irrelevant label.

    Samples without a label known to the model count as wrong.
    """
    import numpy as np
    import scipy.sparse as sp
    from sklearn.metrics import label_ranking_average_precision_score, label_ranking_loss

    from maxmargin.metrics import one_error

    truth = truth.toarray() if sp.issparse(truth) else np.asarray(truth)
    relevant = truth[:, None] == np.asarray(classes)[None, :] if truth.ndim == 1 else truth > 0
    ordered = ~relevant.all(axis=1)
    relevant, scores = relevant[ordered], np.asarray(scores)[ordered]
    known = relevant.any(axis=1)
    if not known.any():
        return {"top label right": 0.0, "ranking loss": 1.0, "average precision": 0.0}
    relevant, scores, share = relevant[known], scores[known], float(known.mean())
    return {
        "top label right": share * (1 - one_error(relevant, scores)),
        "ranking loss": share * float(label_ranking_loss(relevant, scores)) + (1 - share),
        "average precision": share * float(label_ranking_average_precision_score(relevant, scores)),
    }


def has_all_labels(data: Samples) -> bool:
    """Return whether every label entry is known; if not, print that scikit-learn's models are left out."""
    import numpy as np

    if hasattr(data.y, "tocsr") or data.y.dtype.kind != "f" or not np.isnan(data.y).any():
        return True
    echo("Some label entries are missing; scikit-learn's models need all of them and are left out.")
    return False


def promise_of(model: Any, data: Samples, predicted: Any) -> Promise | None:
    """Return the recall or precision that a model promises beside the one found; None without a promise.

    True labels that the model does not have count as missed.
    """
    import numpy as np

    from maxmargin.decisions.sets import LabelSets
    from maxmargin.report import Promise

    if not isinstance(model, LabelSets):
        return None
    truth, on = (
        labels.toarray() if hasattr(labels, "toarray") else np.asarray(labels)
        for labels in (_with_unknown(data, data.y), _with_unknown(data, predicted, missed=True))
    )
    kind, share = ("precision", model.precision) if model.recall is None else ("recall", model.recall)
    assert share is not None
    hits, counted = (truth == 1) & (on > 0), truth == 1 if kind == "recall" else (on > 0) & (truth == truth)
    sizes = counted.sum(axis=1)
    found = np.where(sizes > 0, hits.sum(axis=1) / np.maximum(sizes, 1), 1.0).mean()
    return Promise(kind, share, float(found), model.n_calibration_)


# Names that a line on unknown labels or categories lists.
SHOWN = 5


def unknown_categories(model: Any, X: Any, names: Sequence[str]) -> dict[str, Counter[str]]:
    """Count, for each column of categories, the values that training did not have."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder

    found: dict[str, Counter[str]] = {}
    for _, step in getattr(model, "steps", ()):
        for _, part, columns in step.transformers_ if isinstance(step, ColumnTransformer) else ():
            if not isinstance(part, OneHotEncoder):
                continue
            for j, categories in zip(columns, part.categories_, strict=True):
                known = set(categories.tolist())
                new = [value for value in X[:, j].tolist() if value not in known]
                if new:
                    found[names[j]] = Counter(
                        "(missing)" if value is None or value != value else str(value) for value in new
                    )
    return found


def unknown_labels(data: Samples, classes: Iterable[Any]) -> Counter[str]:
    """Count the labels of the samples that the model does not have."""
    if data.y.ndim == 1:
        known = {str(name) for name in classes}
        return Counter(name for name in map(str, data.y.tolist()) if name not in known)
    if data.unknown is None:
        return Counter()
    return Counter(dict(zip(data.unknown_names, data.unknown.sum(axis=0).tolist(), strict=True)))


def label_lines(counts: Counter[str]) -> list[str]:
    """Return a line on unknown labels, if there are any."""
    if not counts:
        return []
    is_unknown = f"{_times(counts, 'label')} of the data {'is' if counts.total() == 1 else 'are'} unknown"
    return [f"{is_unknown} to the model and counted as missed: {_most_common(counts)}."]


def category_lines(found: dict[str, Counter[str]]) -> list[str]:
    """Return a line for each column with unknown categories."""
    return [
        f"Column {name!r}: {_times(counts, 'value')} unknown to the model, encoded as none of its "
        f"categories: {_most_common(counts)}."
        for name, counts in found.items()
    ]


def _times(counts: Counter[str], noun: str) -> str:
    return f"{counts.total()} {noun}{'' if counts.total() == 1 else 's'}"


def _most_common(counts: Counter[str]) -> str:
    shown = ", ".join(f"{name} ({count})" for name, count in counts.most_common(SHOWN))
    return f"{shown} and {len(counts) - SHOWN} others" if len(counts) > SHOWN else shown


# Odd constants of splitmix64, whose steps mix every bit into all others.
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
OPTIMISTIC = "so the figures say little about new data. To judge it,"
HOLD_OUT = "give samples that were held out of the fit, or cross-validate it with maxmargin compare"


def fingerprint(X: Any) -> str:
    """Return a hash of a set of rows that does not depend on their order, format or precision.

    It tells whether two tables have the same rows, and nothing about single rows.
    """
    import numpy as np

    from maxmargin.core.kernels import chunks

    sparse = hasattr(X, "tocsr")
    X = X.tocsr() if sparse else X
    n, width = X.shape
    weights = _mix(np.arange(1, width + 1, dtype=np.uint64) * np.uint64(STEP)) | np.uint64(1)
    filled = X.nnz // max(n, 1) + 1 if sparse else width
    total = np.zeros(1, np.uint64)
    for rows in chunks(n, 8 * filled):
        total += _mix(_row_hashes(X[rows], weights) + np.uint64(STEP)).sum()
    return f"{int(total[0]):016x}"


def _row_hashes(X: Any, weights: np.ndarray) -> np.ndarray:
    """Return a hash of every row: the sum over its entries, in which zeros count nothing."""
    import numpy as np

    if X.dtype == object:
        from hashlib import blake2b

        words = ["\x1f".join(map(str, row)).encode("utf-8", "surrogatepass") for row in X]
        hashes = [int.from_bytes(blake2b(row, digest_size=8).digest(), "little") for row in words]
        return np.array(hashes, np.uint64)
    if hasattr(X, "tocsr"):
        terms = _mix(_bits(X.data)) * weights[X.indices]
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return ends[X.indptr[1:]] - ends[X.indptr[:-1]]
    return (_mix(_bits(np.asarray(X))) * weights).sum(axis=1)


def _bits(values: np.ndarray) -> np.ndarray:
    """Return the bits of values in single precision; -0 and 0 have the same bits."""
    import numpy as np

    with np.errstate(over="ignore"):
        single = values.astype(np.float32) + np.float32(0)
    return single.view(np.uint32).astype(np.uint64)


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Apply the last steps of splitmix64, which map zero to zero."""
    import numpy as np

    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(FIRST)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(SECOND)
    return numbers ^ (numbers >> np.uint64(31))


def training_rows(data: Samples, reading: ReadOptions) -> dict[str, str]:
    """Return the properties of the training rows that a model file stores.

    Rows that stay on a cluster have no fingerprint.
    """
    found = {} if data.y is None else {"rows": fingerprint(data.X)}
    return found if reading.split is None else found | {"split": reading.split}


def trained_on(stored: Stored, data: Samples, source: str, asked: ReadOptions) -> tuple[str, list[str]]:
    """Return which samples are training samples ("all", "some", "none known"), and a line about it if any.

    The fingerprint of the rows recognises them under any name. A part of the training samples is recognised
    only as a part of the same known data set.
    """
    about = stored.about
    if "samples" not in about:
        return "none known", []
    n = about["samples"]
    same_name = source == about["data"] and source != "-"
    same_rows = about["rows"] == fingerprint(data.X) if "rows" in about else same_name
    if len(data) == n and same_rows:
        remedy = "leave --split out" if asked.split == "train" else HOLD_OUT
        return "all", [f"The model was trained on these {n} samples, {OPTIMISTIC} {remedy}."]
    if same_name and about.get("split") == "all" and len(data) < n:
        line = (
            f"The model was trained on these {len(data)} samples too, {OPTIMISTIC} fit without --split all."
        )
        return "all", [line]
    if same_name and asked.split == "all" and len(data) > n:
        line = f"The model was trained on {n} of these {len(data)} samples, {OPTIMISTIC} leave --split out."
        return "some", [line]
    return "none known", []
