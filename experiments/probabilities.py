"""Log loss, Brier score and time of Calibrated beside Platt's sigmoids inside OneVsRestClassifier.

    python -m experiments.probabilities [--small] [data set ...]

Labels with fewer than five positive or negative training samples are left out, since scikit-learn's
CalibratedClassifierCV refuses them. C is 1 for everybody. LinearSVC has the squared hinge loss, so that the
rows around it tell ways of calibrating apart; those of MultiLabelSVC (hinge loss) stand for themselves.
Columns are taken as they are ("raw") and scaled: standardised, or where X is sparse divided by their largest
entry. Seconds are CPU seconds of the fit.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.svm import LinearSVC

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import chosen, write
from maxmargin import Calibrated, MultiLabelSVC, datasets
from maxmargin.metrics import label_brier, label_log_loss

SETS = ("emotions", "yeast", "medical", "bibtex", "reuters21578-modapte", "yso-sample")
FEWEST = 5


def parts(name: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Training and test part; labels are dense."""
    train, test = datasets.load(name, "train"), datasets.load(name, "test")
    Y, Z = (part.Y.toarray() if sp.issparse(part.Y) else np.asarray(part.Y) for part in (train, test))
    return train.X, Y, test.X, Z


def scaled(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Columns of about the same size."""
    scaler = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
    return scaler.fit_transform(X), scaler.transform(X_test)


def platt(method: str) -> Any:
    return OneVsRestClassifier(
        CalibratedClassifierCV(LinearSVC(random_state=0), method=method, ensemble=False)
    )


def compare(name: str) -> Iterator[dict[str, Any]]:
    """A row for every way and scaling."""
    X, Y, X_test, Z = parts(name)
    kept = (Y.sum(axis=0) >= FEWEST) & ((1 - Y).sum(axis=0) >= FEWEST)
    Y, Z = Y[:, kept], Z[:, kept]
    for scaling, (A, B) in {"raw": (X, X_test), "scaled": scaled(X, X_test)}.items():
        for way, model in {
            "Calibrated sigmoid": Calibrated(MultiLabelSVC(random_state=0)),
            "Calibrated isotonic": Calibrated(MultiLabelSVC(random_state=0), method="isotonic"),
            "Calibrated sigmoid around one-vs-rest LinearSVC": Calibrated(
                OneVsRestClassifier(LinearSVC(random_state=0))
            ),
            "one-vs-rest Platt around LinearSVC": platt("sigmoid"),
            "one-vs-rest isotonic around LinearSVC": platt("isotonic"),
        }.items():
            begin = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(A, Y)
            seconds = time.process_time() - begin
            P = model.predict_proba(B)
            yield {
                "data": name,
                "columns": scaling,
                "way": way,
                "labels": int(kept.sum()),
                "log loss": label_log_loss(Z, P),
                "Brier score": label_brier(Z, P),
                "fit s": seconds,
            }


if __name__ == "__main__":
    for name in chosen(SETS, ("emotions",)):
        rows = list(compare(name))
        for row in rows:
            print(row, flush=True)
        print(write("probabilities", rows, key=("data", "columns", "way")))
