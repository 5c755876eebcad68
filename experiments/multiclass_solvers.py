"""Partial linearization against its rivals: is BCPL faster than BCFW?

    python -m experiments.multiclass_solvers [--small] [data ...]

For every data set and lambda = 0.1, 0.01, 0.001 (C = 1 / (lambda n)), each solver runs to a
certified relative gap of 1e-3 or `LIMIT` seconds. OEG's temperature is the one of the paper's grid
with the best dual after `SHORT` seconds. The sweep of temperatures and the ablation are at
lambda = 0.01 and at most `SWEEP` seconds a run. Written to results/, data set by data set:

- multiclass_solvers.csv: passes, seconds and final gap of each solver;
- multiclass_curves_<data>.png: dual objective against seconds and passes;
- multiclass_mean_time.png: mean seconds over lambda to the gap, as in the paper's figure 2;
- multiclass_temperature.csv: passes over the paper's grid of temperatures;
- multiclass_ablation.csv: the exact solver without gap sampling, shrinking or single
  precision, and BCPL without safeguard or floor.

A solver that did not reach the gap is charged the limit, so its mean is a lower bound. Rows whose `note` says
so are from before entropic steps began near W = 0; partial_linearization compares them as they are now.
"""

from __future__ import annotations

import csv
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MinMaxScaler

from experiments._results import RESULTS, SMALL, chosen, write
from maxmargin import MultiClassSVC, datasets

DATA = ("letter", "satimage", "reuters-r52", "20newsgroups", "mnist")
LAMBDAS = (0.1, 0.01, 0.001)
GRID = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 1e-5, 1e-10)
LIMIT, SWEEP, SHORT, PASSES = 6.0, 3.0, 1.0, 10_000
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
    "exact": {"solver": "exact"},
    "exact without gap sampling": {"solver": "exact", "sampling": "uniform"},
    "exact without shrinking": {"solver": "exact", "shrinking": False},
    "exact without both": {"solver": "exact", "sampling": "uniform", "shrinking": False},
    "exact in double precision": {"solver": "exact", "precision": "double"},
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


def fit(X: Any, y: np.ndarray, lam: float, limit: float, **options: Any) -> MultiClassSVC:
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
        "note": "",
    }


def best_oeg(X: Any, y: np.ndarray, lam: float, limit: float) -> tuple[float, MultiClassSVC]:
    """OEG at the temperature of the paper's grid that raises the dual most in a short run."""
    short = min(limit, SHORT)
    duals = {tau: fit(X, y, lam, short, solver="oeg", temperature=tau).history_[-1]["dual"] for tau in GRID}
    tau = max(GRID, key=lambda tau: np.nan_to_num(duals[tau], nan=-np.inf))
    return tau, fit(X, y, lam, limit, solver="oeg", temperature=tau)


def curves(name: str, models: dict[float, dict[str, MultiClassSVC]]) -> None:
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
    figure.savefig(RESULTS / f"multiclass_curves_{name}.png", dpi=110)
    plt.close(figure)


def mean_times() -> None:
    """Bars of the mean seconds over lambda, from the rows of all data sets that were run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with (RESULTS / "multiclass_solvers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = list(dict.fromkeys(row["solver"] for row in rows))
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, axis = plt.subplots(figsize=(1.5 + 2 * len(names), 4))
    for k, label in enumerate(labels):
        means = [
            np.mean([float(row["seconds"]) for row in rows if (row["solver"], row["data"]) == (label, name)])
            for name in names
        ]
        axis.bar(np.arange(len(names)) + k * 0.8 / len(labels), means, 0.8 / len(labels), label=label)
    axis.set(yscale="log", ylabel=f"mean seconds to gap 1e-3 (at most {LIMIT:g})")
    axis.set_xticks(np.arange(len(names)) + 0.4, names)
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "multiclass_mean_time.png", dpi=110)
    plt.close(figure)


def sweeps(name: str, X: Any, y: np.ndarray, limit: float) -> tuple[list[dict], list[dict]]:
    """BCPL over the paper's temperatures, and the ablation."""
    lam = 0.01
    temperatures = []
    for tau in GRID:
        model = fit(X, y, lam, limit, solver="bcpl", temperature=tau, safeguard=False)
        temperatures.append({**row(name, lam, "bcpl", model, limit), "temperature": tau})
    ablation = [
        row(name, lam, label, fit(X, y, lam, limit, **options), limit) for label, options in ABLATION.items()
    ]
    return temperatures, ablation


def main() -> None:
    warnings.simplefilter("ignore")
    limit, sweep = (0.1, 0.1) if SMALL else (LIMIT, SWEEP)
    for name in chosen(DATA, ["letter"]):
        X, y = problem(name, SMALL)
        for options in SOLVERS.values():  # compiles
            fit(X[:500], y[:500], 0.1, 1.0, **options)
        models: dict[float, dict[str, MultiClassSVC]] = {}
        table = []
        for lam in LAMBDAS:
            models[lam] = {label: fit(X, y, lam, limit, **options) for label, options in SOLVERS.items()}
            tau, models[lam]["oeg best"] = best_oeg(X, y, lam, limit)
            for label, model in models[lam].items():
                table.append({**row(name, lam, label, model, limit), "temperature": ""})
            table[-1]["temperature"] = tau
            print(name, lam, {label: model.n_iter_ for label, model in models[lam].items()}, flush=True)
        temperatures, ablation = sweeps(name, X, y, sweep)
        write("multiclass_solvers", table, ("data", "lambda", "solver"))
        write("multiclass_temperature", temperatures, ("data", "lambda", "temperature"))
        write("multiclass_ablation", ablation, ("data", "lambda", "solver"))
        curves(name, models)
        mean_times()


if __name__ == "__main__":
    main()
