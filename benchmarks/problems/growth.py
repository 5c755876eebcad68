"""Growth of training time with samples, features, labels and C: one varies, the others are fixed.

submodular  SubmodularSVC, to a gap of 1e-2
sparse      SparseMultiClassSVC with 50 vectors, and with a varying number of vectors
kernel      MultiClassSVC with an RBF kernel, to a gap of 1e-3; SVC (one-vs-one) beside it

Generated data: Gaussian clouds with a random centre per class and 10 % random labels; for submodular
scikit-learn's make_multilabel_classification. CPU seconds of one thread, the minimum of two fits, of which
the first may compile. `reached` is the relative gap. Results: growth_<race>.csv and .png.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.race import Panel, Row, Setting, lines, machine, plot, save
from maxmargin import MultiClassSVC, SparseMultiClassSVC, SubmodularSVC

FITS = 2
Data = tuple[np.ndarray, np.ndarray]
Size = Mapping[str, Any]


def clouds(samples: int, features: int, labels: int) -> Data:
    """Overlapping clouds, one for every class."""
    rng = np.random.default_rng(0)
    y = np.arange(samples) % labels
    X = 2 * rng.normal(size=(labels, features))[y] + 2 * rng.normal(size=(samples, features))
    anew = rng.random(samples) < 0.1
    y[anew] = rng.integers(labels, size=anew.sum())
    return X, y


def sets(samples: int, features: int, labels: int) -> Data:
    """Rows of unit length with about four labels each."""
    X, Y = make_multilabel_classification(
        samples, n_features=features, n_classes=labels, n_labels=4, random_state=0
    )
    return X / np.linalg.norm(X, axis=1, keepdims=True).clip(1), Y


@dataclass(frozen=True)
class Subject:
    """Models by name, built for a size; their data; the usual size, and the sizes that vary."""

    models: Mapping[str, Callable[[Size], Any]]
    data: Callable[..., Data]
    usual: Size
    varied: Mapping[str, Sequence[Any]]


SUBJECTS = {
    "submodular": Subject(
        {"SubmodularSVC": lambda s: SubmodularSVC(C=s["C"], tol=1e-2, random_state=0)},
        sets,
        {"samples": 500, "features": 100, "labels": 20, "C": 0.1},
        {
            "samples": (250, 500, 1000, 2000),
            "features": (25, 100, 400, 1600),
            "labels": (5, 10, 20, 40),
            "C": (0.01, 0.1, 1.0),
        },
    ),
    "sparse": Subject(
        {
            "SparseMultiClassSVC": lambda s: SparseMultiClassSVC(
                C=s["C"], max_basis=s["vectors"], rel_tol=0, random_state=0
            )
        },
        clouds,
        {"samples": 2000, "features": 20, "labels": 10, "C": 1.0, "vectors": 50},
        {
            "samples": (500, 2000, 8000),
            "features": (5, 20, 80, 320),
            "labels": (2, 5, 10, 20),
            "C": (0.01, 0.1, 1.0, 10.0),
            "vectors": (12, 25, 50, 100),
        },
    ),
    "kernel": Subject(
        {
            "MultiClassSVC": lambda s: MultiClassSVC(C=s["C"], kernel="rbf", random_state=0),
            "SVC": lambda s: SVC(C=s["C"]),
        },
        clouds,
        {"samples": 1000, "features": 20, "labels": 10, "C": 1.0},
        {
            "samples": (250, 500, 1000, 2000, 4000),
            "features": (5, 20, 80, 320),
            "labels": (2, 5, 10, 20),
            "C": (0.01, 0.1, 1.0, 10.0, 100.0),
        },
    ),
}


def fit(build: Callable[[Size], Any], data: Callable[..., Data], size: Size) -> Row:
    """Processor seconds of a fit, and the gap reached."""
    X, y = data(*(size[name] for name in ("samples", "features", "labels")))
    model, seconds = build(size), np.inf
    for _ in range(FITS):
        start = time.process_time()
        model.fit(X, y)
        seconds = min(seconds, time.process_time() - start)
    reached = f"{model.duality_gap_:.3g}" if hasattr(model, "duality_gap_") else ""
    return {"cpu_seconds": f"{seconds:.4g}", "reached": reached}


def growth(name: str, setting: Setting) -> None:
    """Vary one size at a time."""
    subject = SUBJECTS[name]
    usual, most = (dict(subject.usual, samples=60), 1) if setting.small else (dict(subject.usual), None)
    rows: list[Row] = []
    with threadpool_limits(1):
        for model, build in subject.models.items():
            for varied, values in subject.varied.items():
                for value in values[:most]:
                    size = {**usual, varied: value}
                    found = fit(build, subject.data, size)
                    rows.append({"model": model, "varied": varied, **size, **found, "machine": machine()})
    save(setting, f"growth_{name}", rows)
    panels = [
        Panel(varied, "processor seconds", lines(rows, varied, "cpu_seconds", "model", varied=varied))
        for varied in subject.varied
    ]
    told = ", ".join(f"{key} {value:g}" for key, value in usual.items())
    plot(setting, f"growth_{name}", [panels], f"one thread; where not varied: {told}")


RACES = {name: partial(growth, name) for name in SUBJECTS}
