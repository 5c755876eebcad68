"""What is measured for each kind of labels; the first measure of a task is the headline."""

from __future__ import annotations

from typing import Any

# For each task: name of the measure -> whether more is better.
MEASURES: dict[str, dict[str, bool]] = {
    "multilabel": {
        "micro F1": True,
        "macro F1": True,
        "example F1": True,
        "Hamming loss": False,
        "exact match": True,
    },
    "multiclass": {"accuracy": True, "macro F1": True},
    "ranking": {"top label right": True, "ranking loss": False, "average precision": True},
    "chain": {"letter accuracy": True, "word accuracy": True},
}


def measure(
    task: str, truth: Any, predicted: Any, *, lengths: Any = None, scores: Any = None, classes: Any = None
) -> dict[str, float]:
    """All measures of a task.

    Parameters
    ----------
    task : str
    truth, predicted : labels in the same kind; for chains one stacked vector with `lengths`
    lengths : array of int
        For chains: positions of each sequence.
    scores, classes : array of shape (n_samples, n_labels), array of shape (n_labels,)
        For rankings: the score of every label.
    """
    if task == "chain":
        return _chain(truth, predicted, lengths)
    if task == "ranking":
        return _ranking(truth, scores, classes)
    return _multilabel(truth, predicted) if task == "multilabel" else _multiclass(truth, predicted)


def label_scores(model: Any, X: Any) -> Any:
    """One score per label, also for two classes, where scikit-learn gives one per sample."""
    import numpy as np

    scores = model.label_scores(X) if hasattr(model, "label_scores") else model.decision_function(X)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def _multilabel(truth: Any, predicted: Any) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    from maxmargin.metrics import example_f1

    return {
        "micro F1": float(f1_score(truth, predicted, average="micro", zero_division=0)),
        "macro F1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
        "example F1": float(example_f1(truth, predicted)),
        "Hamming loss": float(hamming_loss(truth, predicted)),
        "exact match": float(accuracy_score(truth, predicted)),
    }


def _multiclass(truth: Any, predicted: Any) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score

    return {
        "accuracy": float(accuracy_score(truth, predicted)),
        "macro F1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
    }


def _chain(truth: Any, predicted: Any, lengths: Any) -> dict[str, float]:
    import numpy as np

    right = np.asarray(truth) == np.asarray(predicted)
    words = np.logical_and.reduceat(right, np.cumsum(lengths) - lengths)
    return {"letter accuracy": float(right.mean()), "word accuracy": float(words.mean())}


def _ranking(truth: Any, scores: Any, classes: Any) -> dict[str, float]:
    """Samples whose label the model has never met count as wrong in every respect."""
    import numpy as np
    import scipy.sparse as sp

    truth = truth.toarray() if sp.issparse(truth) else np.asarray(truth)
    relevant = truth[:, None] == np.asarray(classes)[None, :] if truth.ndim == 1 else truth > 0
    told = ~relevant.all(axis=1)
    relevant, scores = relevant[told], np.asarray(scores)[told]
    known = relevant.any(axis=1)
    top = np.zeros(len(scores))
    loss, precision = np.ones(len(scores)), np.zeros(len(scores))
    for i in np.flatnonzero(known):
        on, off = scores[i][relevant[i]], scores[i][~relevant[i]]
        top[i] = on.max() > off.max()
        loss[i] = (on[:, None] <= off[None, :]).mean()
        ranks = (scores[i][None, :] >= on[:, None]).sum(axis=1)
        precision[i] = np.mean((on[None, :] >= on[:, None]).sum(axis=1) / ranks)
    return {
        "top label right": float(top.mean()),
        "ranking loss": float(loss.mean()),
        "average precision": float(precision.mean()),
    }
