"""Log loss, Brier score and time of Calibrated beside Platt's sigmoids inside OneVsRestClassifier.

    python -m experiments.probabilities [--small] [data set ...]

Labels with fewer than five positive or negative training samples are left out, because
CalibratedClassifierCV refuses them, and of many labels the most frequent ones are used ("labels" is their
number). C = 1. LinearSVC has the squared hinge loss unless a row says "hinge loss"; compare rows with the
same loss. MultiLabelSVC with the squared hinge loss is measured on sparse columns, isotonic curves inside
OneVsRestClassifier on small sets. "constant" predicts the label frequencies of the training part. Columns
are "raw" and scaled: standardised, or for sparse X divided by their largest entry. Losses are means over
several draws of the folds ("draws"); "spread" is the standard deviation of the log loss. "folds together"
is the mean over the models of the folds (``ensemble=True``, the default of CalibratedClassifierCV). Seconds
are CPU seconds of the fastest fit with one BLAS thread.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments import _data
from experiments._results import chosen, show, spread_of, write
from experiments._results import load as machine_load
from maxmargin import Calibrated, MultiLabelSVC
from maxmargin.metrics import label_brier, label_log_loss
from maxmargin.model_selection import IterativeStratifiedKFold

SETS = ("emotions", "yeast", "medical", "bibtex", "reuters21578-modapte", "yso-sample")
FEWEST, MOST_LABELS = 5, 40
# How often folds are drawn: of sets with fewer samples than SMALL, of others, and of bibtex, where LinearSVC
# takes longest.
SMALL, DRAWS, DRAWS_OF_LARGE, DRAWS_OF_LONG = 1000, 8, 4, {"bibtex": 3}
TOGETHER = ", folds together"


def parts(name: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Training and test part; labels are dense."""
    train, test = _data.load(name, "train"), _data.load(name, "test")
    Y, Z = (part.Y.toarray() if sp.issparse(part.Y) else np.asarray(part.Y) for part in (train, test))
    return train.X, Y, test.X, Z


def scaled(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Columns of about the same size."""
    scaler = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
    return scaler.fit_transform(X), scaler.transform(X_test)


def platt(seed: int, method: str = "sigmoid", ensemble: bool = False, **how: Any) -> Any:
    cv = StratifiedKFold(5, shuffle=True, random_state=seed)
    base = LinearSVC(random_state=0, **how)
    return OneVsRestClassifier(CalibratedClassifierCV(base, method=method, cv=cv, ensemble=ensemble))


def ours(seed: int, base: Any, method: str = "sigmoid") -> Any:
    folds = IterativeStratifiedKFold(5, shuffle=True, random_state=seed)
    return Calibrated(base, method=method, cv=folds, ensemble=True)


def probabilities(model: Any, X: Any) -> dict[str, np.ndarray]:
    """What a model answers; of `Calibrated`, what its folds do together and what one fit on all rows does."""
    if not isinstance(model, Calibrated):
        return {"": model.predict_proba(X)}
    alone = copy(model)
    del alone.estimators_
    return {"": alone.predict_proba(X), TOGETHER: model.predict_proba(X)}


def ways(sparse: bool, small: bool) -> dict[str, Callable[[int], Any]]:
    """Models with probabilities, by the seed of their folds."""
    hinge, squared = MultiLabelSVC(random_state=0), MultiLabelSVC(random_state=0, loss="squared_hinge")
    found: dict[str, Callable[[int], Any]] = {
        "constant": lambda seed: OneVsRestClassifier(DummyClassifier(strategy="prior")),
        "Calibrated sigmoid": lambda seed: ours(seed, hinge),
        "Calibrated isotonic": lambda seed: ours(seed, hinge, "isotonic"),
        "Calibrated sigmoid around one-vs-rest LinearSVC": lambda seed: ours(
            seed, OneVsRestClassifier(LinearSVC(random_state=0))
        ),
        "one-vs-rest Platt around LinearSVC": platt,
        f"one-vs-rest Platt around LinearSVC{TOGETHER}": lambda seed: platt(seed, ensemble=True),
    }
    if small:
        found["one-vs-rest isotonic around LinearSVC"] = lambda seed: platt(seed, "isotonic")
    if sparse:
        found["Calibrated sigmoid, squared hinge loss"] = lambda seed: ours(seed, squared)
    # Last, since without scaled columns it takes longest.
    found["one-vs-rest Platt around LinearSVC, hinge loss"] = lambda seed: platt(seed, loss="hinge")
    return found


def compare(name: str) -> Iterator[dict[str, Any]]:
    """A row for every way and scaling."""
    X, Y, X_test, Z = parts(name)
    positives = Y.sum(axis=0)
    enough = np.flatnonzero((positives >= FEWEST) & (len(Y) - positives >= FEWEST))
    kept = np.sort(enough[np.argsort(-positives[enough], kind="stable")[:MOST_LABELS]])
    Y, Z = Y[:, kept], Z[:, kept]
    draws = DRAWS_OF_LONG.get(name, DRAWS if len(Y) < SMALL else DRAWS_OF_LARGE)
    for scaling, (A, B) in {"raw": (X, X_test), "scaled": scaled(X, X_test)}.items():
        for way, build in ways(sp.issparse(X), len(Y) < SMALL).items():
            seconds, answers = [], []
            for seed in range(draws):
                model = build(seed)
                begin = time.process_time()
                with warnings.catch_warnings(), threadpool_limits(1):
                    warnings.simplefilter("ignore")
                    model.fit(A, Y)
                seconds.append(time.process_time() - begin)
                answers.append(probabilities(model, B))
            for kind in answers[0]:
                losses = [label_log_loss(Z, drawn[kind]) for drawn in answers]
                yield {
                    "data": name,
                    "columns": scaling,
                    "way": way + kind,
                    "labels": len(kept),
                    "draws": draws,
                    "log loss": float(np.mean(losses)),
                    "Brier score": float(np.mean([label_brier(Z, drawn[kind]) for drawn in answers])),
                    "fit s": min(seconds),
                    "spread": spread_of(losses),
                }


if __name__ == "__main__":
    for name in chosen(__doc__, SETS, ("emotions",)):
        for row in compare(name):
            show(row)
            write("probabilities", [row], key=("data", "columns", "way"), conditions=machine_load())
