"""What is measured for each kind of labels; the first measure of a task is the headline."""

from __future__ import annotations

from typing import Any

# For each task: name of the measure -> whether more is better.
MEASURES: dict[str, dict[str, bool]] = {
    "multilabel": {"micro F1": True, "macro F1": True, "Hamming loss": False, "exact match": True},
    "multiclass": {"accuracy": True, "macro F1": True},
    "chain": {"letter accuracy": True, "word accuracy": True},
}


def measure(task: str, truth: Any, predicted: Any, lengths: Any = None) -> dict[str, float]:
    """All measures of a task.

    Parameters
    ----------
    task : str
    truth, predicted : labels in the same kind; for chains one stacked vector with `lengths`
    """
    if task == "chain":
        return _chain(truth, predicted, lengths)
    return _multilabel(truth, predicted) if task == "multilabel" else _multiclass(truth, predicted)


def _multilabel(truth: Any, predicted: Any) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    return {
        "micro F1": float(f1_score(truth, predicted, average="micro", zero_division=0)),
        "macro F1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
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
