"""Figure 1 and beyond: example F1 of the submodular machine and of what else one could use.

    python -m experiments.submodular_f1 figure1 yeast        # 1 %, 10 %, 100 % of the features, several draws
    python -m experiments.submodular_f1 figure1 enron
    python -m experiments.submodular_f1 table emotions birds medical bibtex
    python -m experiments.submodular_f1 figure1 yeast --small # two draws, two folds, short grids; no files

C and the interaction scale are chosen by cross-validation on the training part (5 folds), C of the other
machines too. RAkEL has labelsets of V/2 labels and 2 V models, ML-kNN ten neighbours and s = 1, as in
the paper; its "2 N" models are read as twice the number of labels. The paper gives a figure without
numbers: with all features its model and RML are about equal, with fewer its model is better.
Results: results/submodular_f1.csv, and results/submodular_figure1.png.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

from experiments._results import RESULTS, write
from maxmargin import MultiLabelSVC, SubmodularSVC, datasets
from maxmargin.baselines import MLkNN, RAkEL, ThresholdTuner
from maxmargin.metrics import example_f1
from maxmargin.model_selection import iterative_train_test_split

FRACTIONS = (0.01, 0.1, 1.0)
PAIRS = {"yeast": 0.5, "enron": 0.05}


def f1_scorer(model: Any, X: Any, Y: Any) -> float:
    return example_f1(Y, model.predict(X))


def searched(model: Any, grid: dict[str, list], folds: int) -> Any:
    return GridSearchCV(model, grid, scoring=f1_scorer, cv=KFold(folds, shuffle=True, random_state=0))


def competitors(name: str, V: int, small: bool) -> dict[str, Any]:
    Cs = [0.01, 1.0] if small else [0.001, 0.01, 0.1, 1.0, 10.0]
    scales = [0.0, 1.0] if small else [0.0, 0.3, 1.0, 3.0, 10.0]
    folds = 2 if small else 5
    fraction = PAIRS.get(name, min(1.0, 500 / (V * (V - 1) / 2)))
    # The scale matters for pairs only and 0 is RML, so RML is the first column of the grid.
    machine = SubmodularSVC(pair_fraction=fraction, tol=1e-2, max_iter=500, solver="bcfw", random_state=0)
    svm = MultiLabelSVC(tol=1e-2)
    return {
        "SubmodularSVC": searched(machine, {"C": Cs, "interaction_scale": scales}, folds),
        "RML": searched(clone(machine).set_params(pair_fraction=0.0), {"C": Cs}, folds),
        "binary relevance": searched(svm, {"C": Cs}, folds),
        "binary relevance, tuned thresholds": searched(
            ThresholdTuner(svm, cv=3), {"estimator__C": Cs}, folds
        ),
        "RAkEL": RAkEL(OneVsRestClassifier(LinearSVC()), labelset_size=max(1, V // 2), random_state=0),
        "ML-kNN": MLkNN(10, smoothing=1.0),
    }


def split(name: str) -> tuple[Any, Any, Any, Any]:
    data = datasets.load(name)
    if data.train is not None:
        return data.X[data.train], data.X[data.test], data.Y[data.train], data.Y[data.test]
    return iterative_train_test_split(data.X, data.Y, test_size=0.3, random_state=0)


def compete(name: str, draw: int, fraction: float, small: bool) -> list[dict]:
    """All competitors on one random subset of the features."""
    X, X_test, Y, Y_test = split(name)
    D = X.shape[1]
    kept = np.sort(np.random.default_rng(draw).permutation(D)[: max(1, round(fraction * D))])
    rows = []
    for method, model in competitors(name, Y.shape[1], small).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            chain = make_pipeline(MaxAbsScaler(), model).fit(X[:, kept], Y)
        best = getattr(chain[-1], "best_params_", {})
        row = {
            "data": name,
            "features": fraction,
            "draw": draw,
            "method": method,
            "example_f1": f1_scorer(chain, X_test[:, kept], Y_test),
            "chosen": " ".join(f"{key}={value:g}" for key, value in best.items()),
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def plot(rows: list[dict]) -> None:
    import matplotlib.pyplot as plt

    names = sorted({row["data"] for row in rows})
    figure, axes = plt.subplots(1, len(names), figsize=(5 * len(names), 3.6), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            mine = [row for row in rows if row["data"] == name and row["method"] == method]
            at = sorted({row["features"] for row in mine})
            mean = [np.mean([row["example_f1"] for row in mine if row["features"] == x]) for x in at]
            axis.semilogx(at, mean, "o-", label=method)
        axis.set(xlabel="part of the features", ylabel="example F1", title=name)
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / f"submodular_figure1_{'_'.join(names)}.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["figure1", "table"])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.data:
        for fraction in FRACTIONS if chosen.what == "figure1" else (1.0,):
            draws = 1 if fraction == 1.0 else 2 if chosen.small else chosen.draws
            for draw in range(draws):
                rows += compete(name, draw, fraction, chosen.small)
        if not chosen.small:
            write("submodular_f1", rows, ("data", "features", "draw", "method"))
    if chosen.what == "figure1" and not chosen.small:
        plot(rows)


if __name__ == "__main__":
    main()
