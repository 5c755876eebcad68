"""Requested and measured recall or precision of label sets on test samples.

    python -m experiments.label_sets [--small] [data set ...]

Probabilities of MultiLabelSVC (C=1, scaled columns). The guarantee needs test samples drawn like the
training samples, which some published splits are not, so rows have both the "published" split and "mixed",
the mean over random splits of all samples with its standard deviation ("mixed spread", if there are
several). "constant set" predicts the most frequent training labels for every sample: for recall as few as
reach it there, for precision as many. Of more than a hundred labels the 40 most frequent ones are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import chosen, show, write
from experiments._results import load as machine_load
from experiments.probabilities import MOST_LABELS, SETS, parts, scaled
from maxmargin import Calibrated, LabelSets, MultiLabelSVC

ASKED: tuple[dict[str, Any], ...] = (
    {"recall": 0.9},
    {"recall": 0.95},
    {"recall": None, "precision": 0.8},
)
SPLITS, CALIBRATIONS = 5, (0.25, 5)
# Large sets take long; they are mixed three times, and a quarter is set aside.
LARGE, SPLITS_OF_LARGE, CALIBRATIONS_OF_LARGE = 1000, 3, (0.25,)
# Of more labels the most frequent ones are taken.
MANY = 100


def held(
    data: tuple[Any, np.ndarray, Any, np.ndarray], asked: dict[str, Any], calibration: Any, seed: int
) -> Any:
    """Return the measured share, and the number of labels in a set."""
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


def constant_held(data: tuple[Any, np.ndarray, Any, np.ndarray], asked: dict[str, Any]) -> Any:
    """The same of one set for all samples, chosen on the labels of the training part."""
    _, Y, _, Z = data
    order, kind = np.argsort(-Y.sum(axis=0), kind="stable"), kind_of(asked)
    kept = [k for k in range(len(order) + 1) if share(Y, order[:k], kind) >= asked[kind]]
    size = min(kept) if kind == "recall" else max(kept)
    return share(Z, order[:size], kind), size


def share(Y: np.ndarray, given: np.ndarray, kind: str) -> float:
    """Return the mean recall or precision of one set of labels; 1 for a sample without labels."""
    hits = Y[:, given].sum(axis=1)
    sizes = Y.sum(axis=1) if kind == "recall" else np.full(len(Y), len(given))
    return float(np.mean(np.where(sizes > 0, hits / np.maximum(sizes, 1), 1.0)))


def kind_of(asked: dict[str, Any]) -> str:
    return "recall" if asked["recall"] else "precision"


def samples(name: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    X, Y, X_test, Z = parts(name)
    X, X_test = scaled(X, X_test)
    if Y.shape[1] > MANY:
        kept = np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:MOST_LABELS])
        Y, Z = Y[:, kept], Z[:, kept]
    return X, Y, X_test, Z


def row_of(name: str, Y: np.ndarray, asked: dict[str, Any], calibration: str, found: Any) -> dict[str, Any]:
    """Return the row of the published and the mixed splits."""
    published, *drawn = found
    mean, spread = np.mean(drawn, axis=0), np.std(drawn, axis=0, ddof=1) if len(drawn) > 1 else None
    return {
        "data": name,
        "promised": f"{kind_of(asked)} {asked[kind_of(asked)]}",
        "calibration": calibration,
        "published split": float(published[0]),
        "mixed splits": float(mean[0]),
        "mixed spread": "" if spread is None else float(spread[0]),
        "splits": len(drawn),
        "labels in a set": float(mean[1]),
        "all labels": Y.shape[1],
        "true labels": float(Y.sum(axis=1).mean()),
    }


def constant_rows(name: str) -> Iterator[dict[str, Any]]:
    data = samples(name)
    splits = [data, *(mixed(data, k) for k in range(SPLITS))]
    for asked in ASKED:
        found = [constant_held(split, asked) for split in splits]
        yield row_of(name, np.vstack([data[1], data[3]]), asked, "constant set", found)


def model_rows(name: str) -> Iterator[dict[str, Any]]:
    data = samples(name)
    n_splits, calibrations = (
        (SPLITS_OF_LARGE, CALIBRATIONS_OF_LARGE) if len(data[1]) > LARGE else (SPLITS, CALIBRATIONS)
    )
    splits = [data, *(mixed(data, k) for k in range(n_splits))]
    for asked in ASKED:
        for calibration in calibrations:
            found = [held(split, asked, calibration, max(k - 1, 0)) for k, split in enumerate(splits)]
            label = "a quarter" if calibration == 0.25 else "5 folds"
            yield row_of(name, np.vstack([data[1], data[3]]), asked, label, found)


if __name__ == "__main__":
    for name in chosen(__doc__, SETS, ("emotions",)):
        for row in chain(constant_rows(name), model_rows(name)):
            show(row)
            write("label_sets", [row], key=("data", "promised", "calibration"), conditions=machine_load())
