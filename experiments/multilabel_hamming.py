"""Hamming loss of MultiLabelSVC beside one LinearSVC per label, on the published splits.

    python -m experiments.multilabel_hamming [--small] [data set ...]

The prior is the label correlation of the training part, shrunk by 0.1. C is chosen among `COSTS` by the
Hamming loss of three folds of at most `TUNING` training samples, without and with the prior. LinearSVC has
the C found without a prior, and rows have length one, so the first two columns solve the same problem. Two
constant answers are no label at all, and the labels of most training samples. Nothing is random, so there
is no spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import hamming_loss
from sklearn.model_selection import KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from experiments import _data
from experiments._results import chosen, show, write
from maxmargin import MultiLabelSVC, priors

SETS = ("yeast", "bibtex", "tmc2007-500")
COSTS, TUNING = (0.1, 1.0, 10.0, 100.0), 5000


def dense(Y: Any) -> np.ndarray:
    return np.asarray(Y.toarray() if hasattr(Y, "toarray") else Y)


def chosen_C(prior: Any, X: Any, Y: Any) -> float:
    """C with the least Hamming loss over folds of the training part."""
    keep = np.random.default_rng(0).permutation(X.shape[0])[:TUNING]
    X, Y = X[keep], Y[keep]
    losses = dict.fromkeys(COSTS, 0.0)
    for fit, check in KFold(3).split(keep):
        for C in COSTS:
            model = MultiLabelSVC(C, prior=prior, tol=1e-2, random_state=0).fit(X[fit], Y[fit])
            losses[C] += hamming_loss(Y[check], model.predict(X[check]))
    return min(losses, key=losses.__getitem__)


def compare(name: str) -> dict[str, Any]:
    """Test Hamming losses in percent on one data set."""
    train, test = _data.load(name, split="train"), _data.load(name, split="test")
    X, X_test = normalize(train.X), normalize(test.X)
    losses = {}
    C, tied_C = (chosen_C(prior, X, train.Y) for prior in (None, priors.from_labels))
    models = {
        "one_vs_rest": OneVsRestClassifier(LinearSVC(C=C, loss="hinge", random_state=0, max_iter=10**5)),
        "MultiLabelSVC": MultiLabelSVC(C, random_state=0),
        "MultiLabelSVC_prior": MultiLabelSVC(tied_C, prior=priors.from_labels, random_state=0),
    }
    for label, model in models.items():
        losses[label] = 100 * hamming_loss(test.Y, model.fit(X, train.Y).predict(X_test))
    return {
        "data": name,
        "train": len(train.Y),
        "test": len(test.Y),
        "labels": train.Y.shape[1],
        "C": C,
        "C_prior": tied_C,
        **{key: float(value) for key, value in losses.items()},
        "never_on": 100 * float(dense(test.Y).mean()),
        "majority": 100 * float(np.mean((dense(train.Y).mean(axis=0) > 0.5) != dense(test.Y))),
    }


if __name__ == "__main__":
    rows = [compare(name) for name in chosen(__doc__, SETS, ("yeast",))]
    for row in rows:
        show(row)
    print(write("multilabel_hamming", rows, key=("data",)))
