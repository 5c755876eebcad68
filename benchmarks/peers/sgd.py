"""scikit-learn's SGDClassifier with the PA-I step, one-vs-rest, one row at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np


def learn(X: Any, y: np.ndarray, n_classes: int) -> tuple[float, np.ndarray]:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0)
    classes = np.arange(n_classes)
    wrong = np.ones(len(y), bool)
    start = time.perf_counter()
    for i in range(len(y)):
        row = X[i : i + 1]
        if i:
            wrong[i] = model.predict(row)[0] != y[i]
        model.partial_fit(row, y[i : i + 1], classes=classes)
    return time.perf_counter() - start, wrong
