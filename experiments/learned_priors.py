"""Does a learnt prior beat that of the label correlations on held-out samples?

    python -m experiments.learned_priors [--small] [data set ...]

MultiLabelSVC on scaled columns, with no prior, `priors.from_labels` and `priors.learned`, on the first 100,
300 and all training samples; each has the C of the smallest Hamming loss in three-fold cross-validation. Test
losses in percent; "constant" answers every sample with the labels that most training samples have. Of more
than 200 labels the 40 most frequent ones in the training part are taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.metrics import hamming_loss
from sklearn.model_selection import KFold

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import chosen, write
from experiments._results import load as machine_load
from experiments.probabilities import MOST_LABELS, SETS, parts, scaled
from maxmargin import MultiLabelSVC, priors

CS = (0.001, 0.01, 0.1, 1.0)
SIZES: tuple[int | None, ...] = (100, 300, None)
WAYS = ("none", "from_labels", "learned")
# Of more labels the most frequent ones are taken.
MANY = 200


def fitted(way: str, C: float, X: Any, Y: np.ndarray) -> MultiLabelSVC:
    base = MultiLabelSVC(C=C, tol=1e-2, random_state=0)
    prior = {
        "none": lambda: None,
        "from_labels": lambda: priors.from_labels(Y),
        "learned": lambda: priors.learned(base, X, Y, n_rounds=3),
    }[way]()
    return base.set_params(prior=prior).fit(X, Y)


def validated(way: str, C: float, X: Any, Y: np.ndarray) -> float:
    """Mean Hamming loss of three folds."""
    folds = KFold(3, shuffle=True, random_state=0).split(np.zeros(len(Y)))
    return float(np.mean([hamming_loss(Y[b], fitted(way, C, X[a], Y[a]).predict(X[b])) for a, b in folds]))


def constant_loss(Y: np.ndarray, Z: np.ndarray) -> float:
    """Hamming loss, in percent, of the labels that most rows of Y have."""
    return 100 * float(np.mean((Y.mean(axis=0) > 0.5) != Z))


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    X, Y, X_test, Z = parts(name)
    X, X_test = scaled(X, X_test)
    if Y.shape[1] > MANY:
        kept = np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:MOST_LABELS])
        Y, Z = Y[:, kept], Z[:, kept]
    for size in SIZES:
        if size is not None and size >= len(Y):
            continue
        A, B = X[:size], Y[:size]
        row: dict[str, Any] = {"data": name, "samples": len(B), "constant": constant_loss(B, Z)}
        for way in WAYS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                C = min(CS, key=lambda C, way=way: validated(way, C, A, B))
                row[way] = 100 * float(hamming_loss(Z, fitted(way, C, A, B).predict(X_test)))
            row[f"{way} C"] = C
        yield row


if __name__ == "__main__":
    for name in chosen(SETS, ("emotions",)):
        for row in rows_of(name):
            print(row, flush=True)
            write("learned_priors", [row], key=("data", "samples"), conditions=machine_load())
