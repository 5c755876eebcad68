"""Probabilities of classes: Calibrated beside CalibratedClassifierCV around LinearSVC.

    python -m experiments.class_probabilities [--small] [data set ...]

Tables with default parameters, raw and standardised. Every draw divides a table into 60 % training and 40 %
test rows, at most `MOST` of either; test rows of classes without training rows are left out. Columns are
means over the draws; "spread" is the standard deviation of the log loss. "constant" predicts the class
frequencies of the training rows. "accuracy" is that of the most probable class, "of the model" that of the
scores without calibration, "fit s" the CPU seconds of the fastest fit.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.dummy import DummyClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments import _data
from experiments._results import chosen, show, write
from experiments._results import load as machine_load
from maxmargin import Calibrated, MultiClassSVC

SETS = (
    "iris", "wine", "breast_cancer", "glass", "vowel", "vehicle", "digits", "segment", "satimage", "shuttle",
)  # fmt: skip
TOYS = {"breast_cancer": load_breast_cancer, "digits": load_digits}
DRAWS, MOST, TEST = 5, 4000, 0.4


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes."""
    if name in TOYS:
        return TOYS[name](return_X_y=True)
    data = _data.load(name)
    return data.X, np.asarray(data.Y)


def ways() -> dict[str, Any]:
    """Models with probabilities."""
    ours, theirs = MultiClassSVC(random_state=0), LinearSVC(random_state=0)
    return {
        "constant": DummyClassifier(strategy="prior"),
        "Calibrated": Calibrated(ours),
        "Calibrated, folds together": Calibrated(ours, ensemble=True),
        "Calibrated sigmoid": Calibrated(ours, method="sigmoid"),
        "Calibrated isotonic": Calibrated(ours, method="isotonic"),
        "sigmoids around MultiClassSVC": CalibratedClassifierCV(ours, ensemble=False),
        "temperature around MultiClassSVC": CalibratedClassifierCV(
            ours, method="temperature", ensemble=False
        ),
        "sigmoids around LinearSVC": CalibratedClassifierCV(theirs, ensemble=False),
        "temperature around LinearSVC": CalibratedClassifierCV(theirs, method="temperature", ensemble=False),
    }


def parts(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Training rows and classes, test rows and classes."""
    X, Z, y, z = train_test_split(X, y, test_size=TEST, stratify=y, random_state=seed)
    met = np.isin(z, np.unique(y[:MOST]))
    return X[:MOST], y[:MOST], Z[met][:MOST], z[met][:MOST]


def measure(model: Any, X: np.ndarray, y: np.ndarray, Z: np.ndarray, z: np.ndarray) -> tuple[float, ...]:
    """Log loss, Brier score, accuracy, that of the model inside, and CPU seconds of the fit."""
    begin = time.process_time()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        model.fit(X, y)
    seconds = time.process_time() - begin
    classes = np.unique(y)
    P = model.predict_proba(Z)
    on = z[:, None] == classes
    inside = getattr(model, "estimator_", None)
    if inside is None and hasattr(model, "calibrated_classifiers_"):
        inside = model.calibrated_classifiers_[0].estimator
    of_model = np.nan if inside is None else float((inside.predict(Z) == z).mean())
    accuracy = float((classes[P.argmax(axis=1)] == z).mean())
    brier = float(((P - on) ** 2).sum(axis=1).mean())
    return log_loss(z, P, labels=classes), brier, accuracy, of_model, seconds


def compare(name: str) -> Iterator[dict[str, Any]]:
    """A row for every way and scaling."""
    X, y = table(name)
    for scaling in ("raw", "scaled"):
        for way, model in ways().items():
            found = []
            for seed in range(DRAWS):
                A, a, B, b = parts(X, y, seed)
                if scaling == "scaled":
                    scaler = StandardScaler().fit(A)
                    A, B = scaler.transform(A), scaler.transform(B)
                found.append(measure(clone(model), A, a, B, b))
            losses, brier, accuracy, of_model, seconds = np.array(found).T
            yield {
                "data": name,
                "columns": scaling,
                "way": way,
                "classes": len(np.unique(y)),
                "draws": DRAWS,
                "log loss": float(losses.mean()),
                "Brier score": float(brier.mean()),
                "accuracy": float(accuracy.mean()),
                "of the model": "" if np.isnan(of_model).any() else float(of_model.mean()),
                "fit s": float(seconds.min()),
                "spread": float(losses.std(ddof=1)),
            }


if __name__ == "__main__":
    for name in chosen(__doc__, SETS, ("iris",)):
        for row in compare(name):
            show(row)
            write("class_probabilities", [row], key=("data", "columns", "way"), conditions=machine_load())
