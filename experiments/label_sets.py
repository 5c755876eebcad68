"""What sets of labels promise, and what they hold on test samples.

    python -m experiments.label_sets [--small] [data set ...]

Scores are those of MultiLabelSVC (C=1, scaled columns), turned into probabilities. The test part of some
sets was drawn in another way than the training part; a promise is about samples drawn alike, so rows say
both: "published" split, and "mixed", the mean over random splits of all samples. "all labels" is the constant
that keeps every promise of recall: the sets of a model are worth what they are smaller. Of more than a
hundred labels the 40 most frequent ones are taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import chosen, write
from experiments._results import load as machine_load
from experiments.probabilities import MOST_LABELS, SETS, parts, scaled
from maxmargin import Calibrated, LabelSets, MultiLabelSVC

ASKED: tuple[dict[str, Any], ...] = (
    {"recall": 0.9},
    {"recall": 0.95},
    {"recall": None, "precision": 0.8},
)
SPLITS, CALIBRATIONS = 5, (0.25, 5)
# Large sets take long; they are mixed once, and a quarter is set aside.
LARGE, SPLITS_OF_LARGE, CALIBRATIONS_OF_LARGE = 1000, 1, (0.25,)
# Of more labels the most frequent ones are taken.
MANY = 100


def held(
    data: tuple[Any, np.ndarray, Any, np.ndarray], asked: dict[str, Any], calibration: Any, seed: int
) -> Any:
    """Share that was promised as it came out, and labels in a set."""
    X, Y, X_test, Z = data
    base = Calibrated(MultiLabelSVC(random_state=0, tol=1e-2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sets = LabelSets(base, calibration=calibration, random_state=seed, **asked).fit(X, Y)
    return sets.score(X_test, Z), sets.predict(X_test).sum(axis=1).mean()


def mixed(
    data: tuple[Any, np.ndarray, Any, np.ndarray], seed: int
) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """The same numbers of samples, dealt out anew."""
    X, Y, X_test, Z = data
    A = sp.vstack([X, X_test], format="csr") if sp.issparse(X) else np.vstack([X, X_test])
    B = np.vstack([Y, Z])
    order = np.random.default_rng(seed).permutation(len(B))
    train, test = order[: len(Y)], order[len(Y) :]
    return A[train], B[train], A[test], B[test]


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    X, Y, X_test, Z = parts(name)
    X, X_test = scaled(X, X_test)
    if Y.shape[1] > MANY:
        kept = np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:MOST_LABELS])
        Y, Z = Y[:, kept], Z[:, kept]
    data = (X, Y, X_test, Z)
    n_splits, calibrations = (
        (SPLITS_OF_LARGE, CALIBRATIONS_OF_LARGE) if len(Y) > LARGE else (SPLITS, CALIBRATIONS)
    )
    for asked in ASKED:
        for calibration in calibrations:
            published = held(data, asked, calibration, 0)
            drawn = np.mean([held(mixed(data, k), asked, calibration, k) for k in range(n_splits)], axis=0)
            kind = "recall" if asked["recall"] else "precision"
            yield {
                "data": name,
                "promised": f"{kind} {asked[kind]}",
                "calibration": "a quarter" if calibration == 0.25 else "5 folds",
                "published split": float(published[0]),
                "mixed splits": float(drawn[0]),
                "splits": n_splits,
                "labels in a set": float(drawn[1]),
                "all labels": Y.shape[1],
                "true labels": float(np.vstack([Y, Z]).sum(axis=1).mean()),
            }


if __name__ == "__main__":
    for name in chosen(SETS, ("emotions",)):
        for row in rows_of(name):
            print(row, flush=True)
            write("label_sets", [row], key=("data", "promised", "calibration"), conditions=machine_load())
