"""Partial linearization against its rivals: is BCPL faster than BCFW?

    python -m experiments.multiclass_solvers [--small] [data ...]

For every data set and lambda = 0.1, 0.01, 0.001 (C = 1 / (lambda n)), each solver runs to a
certified relative gap of 1e-3 or `LIMIT` seconds (`SWEEP_LIMIT` in the sweeps). Rows are written
as they come, so data sets can be run one by one. Written to results/:

- multiclass_solvers.csv: passes, seconds and final gap of each solver;
- multiclass_curves_<data>.png: dual objective against seconds and passes;
- multiclass_mean_time.png: mean seconds over lambda to the gap, as in the paper's figure 2;
- multiclass_temperature.csv: passes over the paper's grid of temperatures;
- multiclass_ablation.csv: the default solver without gap sampling, shrinking or single
  precision, and BCPL without safeguard or floor.

A solver that did not reach the gap is charged the limit, so its mean is a lower bound. All
loops are compiled before. `--small` takes 300 rows and a tenth of the time and
writes files that begin with small_.
"""

from __future__ import annotations

import csv
import sys
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MinMaxScaler

from experiments._results import RESULTS, write
from maxmargin import MultiClassSVC, datasets

DATA = ("letter", "satimage", "reuters-r52", "20newsgroups", "mnist")
LAMBDAS = (0.1, 0.01, 0.001)
GRID = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 1e-5, 1e-10)
# Seconds of a run, of one run of the sweeps and ablations, and passes at most.
LIMIT, SWEEP_LIMIT, PASSES = 5.0, 2.0, 1000
SOLVERS: dict[str, dict[str, Any]] = {
    "exact": {"solver": "exact"},
    "exact, every block": {"solver": "exact", "sampling": "uniform", "shrinking": False},
    "pairwise": {"solver": "pairwise"},
    "bcfw": {"solver": "bcfw"},
    "bcfw averaged": {"solver": "bcfw", "averaging": True},
    "bcpl 0.01 (paper)": {"solver": "bcpl", "temperature": 0.01, "safeguard": False, "floor": 0.0},
    "bcpl auto": {"solver": "bcpl"},
    "oeg auto": {"solver": "oeg"},
}
ABLATION: dict[str, dict[str, Any]] = {
    "exact": {},
    "exact without gap sampling": {"sampling": "uniform"},
    "exact without shrinking": {"shrinking": False},
    "exact without both": {"sampling": "uniform", "shrinking": False},
    "exact in double precision": {"precision": "double"},
    "bcpl": {"solver": "bcpl"},
    "bcpl without safeguard": {"solver": "bcpl", "safeguard": False},
    "bcpl without floor": {"solver": "bcpl", "floor": 0.0},
    "bcpl without both": {"solver": "bcpl", "safeguard": False, "floor": 0.0},
}


def problem(name: str, small: bool) -> tuple[Any, np.ndarray]:
    """Training rows: tf-idf for texts, features scaled to [0, 1] otherwise."""
    data = datasets.load(name, split="train")
    if sp.issparse(data.X):
        X = TfidfTransformer().fit_transform(sp.csr_matrix(data.X, dtype=np.float64))
    else:
        X = data.X / 255.0 if name == "mnist" else MinMaxScaler().fit_transform(data.X)
    y = np.unique(data.Y, return_inverse=True)[1]
    if small:
        some = np.random.default_rng(0).permutation(len(y))[:300]
        X, y = X[some], y[some]
    return X, y


def fit(X: Any, y: np.ndarray, lam: float, limit: float | None, **options: Any) -> MultiClassSVC:
    model = MultiClassSVC(
        C=1.0 / (lam * len(y)),
        fit_intercept=False,
        max_iter=PASSES,
        time_limit=limit,
        random_state=0,
        **options,
    )
    return model.fit(X, y)


def row(name: str, lam: float, label: str, model: MultiClassSVC, limit: float) -> dict[str, Any]:
    reached = model.duality_gap_ <= model.tol
    visits = sum(record["active"] for record in model.history_)
    return {
        "data": name,
        "lambda": lam,
        "solver": label,
        "reached": reached,
        "passes": model.n_iter_,
        "visits_per_sample": visits / model.history_[0]["active"],
        "seconds": model.history_[-1]["seconds"] if reached else limit,
        "gap": model.duality_gap_,
    }


def best_oeg(X: Any, y: np.ndarray, lam: float, limit: float) -> tuple[float, MultiClassSVC]:
    """OEG at the temperature of the paper's grid that ends with the smallest gap, then time."""
    fits = [(tau, fit(X, y, lam, limit, solver="oeg", temperature=tau)) for tau in GRID]
    return min(fits, key=lambda pair: (max(pair[1].duality_gap_, 1e-3), pair[1].history_[-1]["seconds"]))


def curves(name: str, models: dict[float, dict[str, MultiClassSVC]], prefix: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(models), figsize=(5 * len(models), 7), squeeze=False)
    for column, (lam, by_solver) in enumerate(models.items()):
        for label, model in by_solver.items():
            dual = [record["dual"] for record in model.history_]
            axes[0, column].plot([record["seconds"] for record in model.history_], dual, label=label)
            axes[1, column].plot([record["epoch"] for record in model.history_], dual, label=label)
        top = max(model.dual_objective_ for model in by_solver.values())
        for axis, unit in zip(axes[:, column], ("seconds", "passes"), strict=True):
            axis.set(xscale="log", xlabel=unit, ylabel="dual objective", ylim=(0.5 * top, 1.01 * top))
        axes[0, column].set_title(f"{name}, lambda = {lam:g}")
    axes[0, -1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{prefix}multiclass_curves_{name}.png", dpi=110)
    plt.close(figure)


def mean_times(rows: list[dict[str, Any]], prefix: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(row["solver"] for row in rows))
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, axis = plt.subplots(figsize=(1.5 + 2 * len(names), 4))
    for k, label in enumerate(labels):
        means = [
            np.mean([row["seconds"] for row in rows if row["solver"] == label and row["data"] == name])
            for name in names
        ]
        axis.bar(np.arange(len(names)) + k * 0.8 / len(labels), means, 0.8 / len(labels), label=label)
    axis.set(yscale="log", ylabel="mean seconds to gap 1e-3")
    axis.set_xticks(np.arange(len(names)) + 0.4, names)
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{prefix}multiclass_mean_time.png", dpi=110)
    plt.close(figure)


def read_table(name: str) -> list[dict[str, Any]]:
    """The rows of a result file, numbers as numbers."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return [{**row, "seconds": float(row["seconds"])} for row in csv.DictReader(file)]


def run(
    name: str, lam: float, X: Any, y: np.ndarray, prefix: str, shorter: float
) -> dict[str, MultiClassSVC]:
    """Everything for one data set and lambda, written as it comes; returns the models by solver."""
    limit, sweep_limit = LIMIT / shorter, SWEEP_LIMIT / shorter

    def keep(file: str, key: str, row: dict[str, Any]) -> None:
        write(f"{prefix}{file}", [row], ("data", "lambda", key))

    models = {}
    for label, options in SOLVERS.items():
        models[label] = fit(X, y, lam, limit, **options)
        keep("multiclass_solvers", "solver", row(name, lam, label, models[label], limit))
    tau, best = best_oeg(X, y, lam, sweep_limit)
    models[f"oeg best ({tau:g})"] = best
    keep(
        "multiclass_solvers",
        "solver",
        {**row(name, lam, "oeg best of grid", best, sweep_limit), "temperature": tau},
    )
    for tau in GRID:
        model = fit(X, y, lam, sweep_limit, solver="bcpl", temperature=tau, safeguard=False)
        keep(
            "multiclass_temperature",
            "temperature",
            {**row(name, lam, "bcpl", model, sweep_limit), "temperature": tau},
        )
    for label, options in ABLATION.items():
        model = fit(X, y, lam, sweep_limit, **options)
        keep("multiclass_ablation", "solver", row(name, lam, label, model, sweep_limit))
    return models


def main() -> None:
    warnings.simplefilter("ignore")
    small = "--small" in sys.argv
    prefix, shorter = ("small_", 10.0) if small else ("", 1.0)
    names = [name for name in DATA if name in sys.argv] or (["letter"] if small else list(DATA))
    RESULTS.mkdir(exist_ok=True)
    for name in names:
        X, y = problem(name, small)
        some = np.random.default_rng(0).permutation(len(y))[:300]
        for options in (*SOLVERS.values(), *ABLATION.values()):
            fit(X[some], y[some], 0.1, None, **{**options, "tol": 0.1})
        models: dict[float, dict[str, MultiClassSVC]] = {}
        for lam in LAMBDAS:
            models[lam] = run(name, lam, X, y, prefix, shorter)
            print(name, lam, {label: model.n_iter_ for label, model in models[lam].items()}, flush=True)
        curves(name, models, prefix)
    mean_times(read_table(f"{prefix}multiclass_solvers"), prefix)


if __name__ == "__main__":
    main()
