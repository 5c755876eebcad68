"""A learned prior beside that of the label correlations, on test samples.

    python -m experiments.learned_priors [--small] [data set ...]

MultiLabelSVC on scaled columns, without a prior, with `priors.from_labels` and with `priors.learned`, on
100, 300 and all training samples. Draw 0 has the first samples, further draws random ones (fewer draws of
sets with more than `LARGE` training samples). Each model has the C with the smallest Hamming loss in
three-fold cross-validation. Test losses in percent; "constant" predicts the labels of most training
samples. Of more than 200 labels the 40 most frequent training labels are used. learned_priors_means.csv has
means and standard deviations over the draws, also of the gain over no prior in the same draw.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from sklearn.metrics import hamming_loss
from sklearn.model_selection import KFold

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import RESULTS, SMALL, chosen, show, spread_of, write
from experiments._results import load as machine_load
from experiments.probabilities import MOST_LABELS, SETS, parts, scaled
from maxmargin import MultiLabelSVC, priors

CS = (0.1,) if SMALL else (0.001, 0.01, 0.1, 1.0)
SIZES: tuple[int | None, ...] = (100,) if SMALL else (100, 300, None)
WAYS = ("none", "from_labels", "learned")
# Of more labels the most frequent ones are taken.
MANY = 200
DRAWS, DRAWS_OF_LARGE, LARGE = (1, 1, 1500) if SMALL else (5, 3, 1500)


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
    for draw, size in product(range(DRAWS if len(Y) <= LARGE else DRAWS_OF_LARGE), SIZES):
        if (size is None and draw) or (size is not None and size >= len(Y)):
            continue
        some = np.random.default_rng(draw).permutation(len(Y))[:size] if draw else np.arange(len(Y))[:size]
        A, B = X[some], Y[some]
        row: dict[str, Any] = {"data": name, "samples": len(B), "draw": draw, "constant": constant_loss(B, Z)}
        for way in WAYS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                C = min(CS, key=lambda C, way=way: validated(way, C, A, B))
                row[way] = 100 * float(hamming_loss(Z, fitted(way, C, A, B).predict(X_test)))
            row[f"{way} C"] = C
        yield row


def over_draws(values: np.ndarray) -> tuple[float, float | str]:
    """Mean and standard deviation, the latter of several draws only."""
    return float(values.mean()), spread_of(values)


def summary() -> None:
    """Return means over the draws, spreads, and the gain of the priors over no prior in the same draw."""
    with (RESULTS / "learned_priors.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    means = []
    for name, samples in dict.fromkeys((row["data"], row["samples"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["samples"]) == (name, samples)]
        losses = {way: np.array([float(row[way]) for row in mine]) for way in ("constant", *WAYS)}
        found: dict[str, Any] = {"data": name, "samples": samples, "draws": len(mine)}
        for way, loss in losses.items():
            found |= dict(zip((way, f"{way} spread"), over_draws(loss), strict=True))
        for way in WAYS[1:]:
            gains = over_draws(losses["none"] - losses[way])
            found |= dict(zip((f"{way} gains", f"{way} gain spread"), gains, strict=True))
        means.append(found)
    write("learned_priors_means", means, ("data", "samples"))


if __name__ == "__main__":
    for name in chosen(__doc__, SETS, ("emotions",)):
        for row in rows_of(name):
            show(row)
            write("learned_priors", [row], key=("data", "samples", "draw"), conditions=machine_load())
    summary()
