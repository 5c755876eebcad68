"""Shrinkage of the slopes of the labels' sigmoids, chosen on training parts alone.

    python -m experiments.slopes [--small] [data set ...]

Held-out scores of MultiLabelSVC on the scaled training part (all labels with two positives, at most 160)
are divided into halves, three times; curves fitted on one half are measured by the log loss on the other.
"own" leaves every label its own sigmoid, "shared" gives all the same slope. Between them are the spreads of
the log slopes that `maxmargin.decisions.curves` may assume, with the precision of this assumption. Log
losses are relative to that of "own", in percent: below zero is better. "spread" is the standard deviation
of the default, 0.2 at 100, over the halves. "constant" predicts the label frequencies of the other half.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import chosen, show, spread_of, write
from experiments.probabilities import SETS, parts, scaled
from maxmargin import MultiLabelSVC
from maxmargin.decisions import curves
from maxmargin.edge.labels import LabelSpace
from maxmargin.edge.wrappers import HeldOut, held_out_scores
from maxmargin.metrics import label_log_loss
from maxmargin.model_selection import IterativeStratifiedKFold

MOST, DEALS = 160, 3
# Expected spread and its precision.
WAYS = {
    "own": (1e6, 1e12),
    "no expectation": (0.0, 0.0),
    "0.2 at 30": (0.2, 30.0),
    "0.2 at 100": (0.2, 100.0),
    "0.2 at 300": (0.2, 300.0),
    "shared": (1e-12, 1e12),
}


def scores_of(name: str) -> tuple[HeldOut, np.ndarray]:
    """Held-out scores of the training part, and its labels."""
    X, Y, _, _ = parts(name)
    X, _ = scaled(X, X[:1])
    kept = np.flatnonzero((Y.sum(axis=0) >= 2) & ((1 - Y).sum(axis=0) >= 2))
    kept = np.sort(np.random.default_rng(0).permutation(kept)[:MOST])
    base = MultiLabelSVC(random_state=0, loss="squared_hinge" if sp.issparse(X) else "hinge")
    folds = IterativeStratifiedKFold(5, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = folds.split(X, Y[:, kept])
        return held_out_scores(base, (X, Y[:, kept], {}), LabelSpace.read(Y[:, kept]), splits), Y[:, kept]


def half_loss(
    held: HeldOut, Y: np.ndarray, fitted: np.ndarray, judged: np.ndarray, constant: bool = False
) -> float:
    """Log loss on some rows of the curves (or of the shares) of others, of the labels that both have met."""
    on = Y > 0
    kept = on[fitted].any(axis=0) & held.known.all(axis=0)
    S, on = held.scores[:, kept], on[:, kept]
    rate = (on[fitted].sum(axis=0) + 1) / (len(fitted) + 2)
    if constant:
        return float(label_log_loss(on[judged].astype(int), np.tile(rate, (len(judged), 1))))
    found = curves.fit_sigmoids(S[fitted], on[fitted], np.ones((len(fitted), kept.sum())), rate)
    return float(label_log_loss(on[judged].astype(int), found.probabilities(S[judged])))


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    held, Y = scores_of(name)
    cuts = [np.array_split(np.random.default_rng(k).permutation(len(Y)), 2) for k in range(DEALS)]
    orders = [order for cut in cuts for order in (cut, cut[::-1])]
    found = {}
    for way, (expected, precision) in WAYS.items():
        with mock.patch.multiple(curves, PRIOR_VARIANCE=expected, PRIOR_PRECISION=precision):
            found[way] = np.array([half_loss(held, Y, *order) for order in orders])
    found["constant"] = np.array([half_loss(held, Y, *order, constant=True) for order in orders])
    losses = {way: float(values.mean()) for way, values in found.items()}
    beside = {f"{way} %": 100 * (loss / losses["own"] - 1) for way, loss in losses.items() if way != "own"}
    spread = spread_of((100 * (found["0.2 at 100"] / found["own"] - 1)).tolist())
    yield {"data": name, "labels": Y.shape[1], "own": losses["own"], **beside, "spread": spread}


if __name__ == "__main__":
    for name in chosen(__doc__, SETS, ("emotions",)):
        for row in rows_of(name):
            show(row)
            write("slopes", [row], key=("data",))
