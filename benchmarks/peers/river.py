"""River's PA-I classifier, one-vs-rest."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

NEEDS = ("river",)


def learn(X: Any, y: np.ndarray, n_classes: int) -> tuple[float, np.ndarray]:
    from river import linear_model, multiclass

    rows, model = dictionaries(X), multiclass.OneVsRestClassifier(linear_model.PAClassifier(C=1.0, mode=1))
    wrong = np.empty(len(y), bool)
    start = time.perf_counter()
    for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        wrong[i] = model.predict_one(row) != label
        model.learn_one(row, label)
    return time.perf_counter() - start, wrong


def dictionaries(X: Any) -> list[dict[int, float]]:
    """Rows of word presence as dictionaries."""
    return [dict.fromkeys(X.indices[X.indptr[i] : X.indptr[i + 1]].tolist(), 1.0) for i in range(X.shape[0])]
