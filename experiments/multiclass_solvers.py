"""Partial linearization (BCPL) beside Frank-Wolfe (BCFW) and the other solvers of MultiClassSVC.

    python -m experiments.multiclass_solvers [--small] [data ...]
    python -m experiments.multiclass_solvers mnist --sizes 1000 4000 --lambdas 0.01 --parts races
    python -m experiments.multiclass_solvers --parts draw        # figures, from the stored results

Five sets at n = 1,000, 4,000, 16,000 and all, lambda = 0.1, 0.01, 0.001 (C = 1 / (lambda n)). Each solver
runs to a certified relative gap of 1e-3 or for --limit CPU seconds, `SEEDS` times. OEG has the temperature
of the paper's grid with the best dual after ten passes (at most `SHORT` seconds). The sweep of temperatures
and the ablation have lambda = 0.01 and all samples. Written to results/, row by row:

- multiclass_solvers.csv: passes, CPU seconds and final gap of each solver, means and standard deviations;
- multiclass_curves.csv and multiclass_curves_<data>.png: dual objective (times lambda) against CPU seconds
  and passes of the first seed, all samples;
- multiclass_mean_time.png: mean seconds over lambda to the gap, as in figure 2 of the paper, with 1,000 and
  4,000 samples and with all;
- multiclass_mean_time.csv: the same numbers, and mean passes; ">" if a run did not reach the gap;
- multiclass_temperature.csv: passes over the paper's grid of temperatures;
- multiclass_ablation.csv: the exact solver without gap sampling, shrinking or single precision, and BCPL
  without safeguard or floor.

`reached` counts the runs that reached the gap. The others are charged the limit, so their mean is a lower
bound. Seconds are CPU time of one thread (wall time if `machine` says so).
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MinMaxScaler

from experiments import _data
from experiments._races import CpuClock, mean_and_spread, thin
from experiments._results import RESULTS, SMALL, command_line, load, one_of, write
from maxmargin import MultiClassSVC
from maxmargin.edge.estimator import Choice
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.multiclass import SOLVERS as NAMED
from maxmargin.structured.paper_steps import BlockSteps

DATA = ("letter", "satimage", "reuters-r52", "20newsgroups", "mnist")
SIZES = (1000, 4000, 16000, 10**9)
LAMBDAS = (0.1, 0.01, 0.001)
PARTS = ("races", "sweeps", "draw")
GRID = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 1e-5, 1e-10)
LIMIT, SHORT, PASSES = (0.1, 0.1, 10) if SMALL else (3.0, 1.0, 10_000)  # LIMIT: unless --limit is given
SEEDS = range(1 if SMALL else 3)
# Variants of the solvers that the estimator has no name for.
NAMED.update(
    {
        "exact passes": Choice(ExactBlocks, "One pass over the blocks an epoch."),
        "exact without gap sampling": Choice(partial(ExactBlocks, sampling="uniform"), "Of these."),
        "exact without shrinking": Choice(partial(ExactBlocks, shrinking=False), "Of these."),
        "exact without both": Choice(
            partial(ExactBlocks, sampling="uniform", shrinking=False), "Every block in every pass."
        ),
        "bcfw averaged": Choice(partial(BlockSteps, "fw", averaging=True), "The mean of the iterates."),
        "bcpl without floor": Choice(
            partial(BlockSteps, "pl", floor=0.0), "As printed.", ("temperature", "safeguard")
        ),
    }
)
SOLVERS: dict[str, dict[str, Any]] = {
    "exact": {"solver": "exact passes"},
    "exact, every block": {"solver": "exact without both"},
    "bcfw": {"solver": "bcfw"},
    "bcfw averaged": {"solver": "bcfw averaged"},
    "bcpl 0.01 (paper)": {"solver": "bcpl without floor", "temperature": 0.01, "safeguard": False},
    "bcpl auto": {"solver": "bcpl"},
    "oeg auto": {"solver": "oeg"},
}
ABLATION: dict[str, dict[str, Any]] = {
    "exact": {"solver": "exact passes"},
    "exact without gap sampling": {"solver": "exact without gap sampling"},
    "exact without shrinking": {"solver": "exact without shrinking"},
    "exact without both": {"solver": "exact without both"},
    "exact in double precision": {"solver": "exact passes", "precision": "double"},
    "bcpl": {"solver": "bcpl"},
    "bcpl without safeguard": {"solver": "bcpl", "safeguard": False},
    "bcpl without floor": {"solver": "bcpl without floor"},
    "bcpl without both": {"solver": "bcpl without floor", "safeguard": False},
}


def problem(name: str, small: bool) -> tuple[Any, np.ndarray]:
    """Training rows: tf-idf for texts, features scaled to [0, 1] otherwise."""
    data = _data.load(name, split="train")
    if sp.issparse(data.X):
        X = TfidfTransformer().fit_transform(sp.csr_matrix(data.X, dtype=np.float64))
    else:
        X = data.X / 255.0 if name == "mnist" else MinMaxScaler().fit_transform(data.X)
    y = np.unique(data.Y, return_inverse=True)[1]
    if small:
        some = np.random.default_rng(0).permutation(len(y))[:300]
        X, y = X[some], y[some]
    return X, y


class Run:
    """One fit, its CPU seconds after every pass, and its records."""

    def __init__(self, X: Any, y: np.ndarray, lam: float, seed: int, limit: float, **options: Any) -> None:
        clock = CpuClock(limit)
        options = {"max_iter": PASSES, **options}
        model = MultiClassSVC(C=1.0 / (lam * len(y)), fit_intercept=False, random_state=seed, **options)
        model.set_callbacks(clock).fit(X, y)
        history = model.history_
        self.seconds = clock.seconds[: len(history)]
        self.dual = [lam * record["dual"] for record in history]
        self.visits = sum(record["active"] for record in history) / history[0]["active"]
        self.gap, self.reached = model.duality_gap_, model.duality_gap_ <= model.tol
        self.charged = self.seconds[-1] if self.reached else max(limit, self.seconds[-1])


def runs(X: Any, y: np.ndarray, lam: float, limit: float, **options: Any) -> list[Run]:
    return [Run(X, y, lam, seed, limit, **options) for seed in SEEDS]


def row(label: str, found: list[Run], limit: float) -> dict[str, Any]:
    """Means and spreads over the seeds."""
    answer: dict[str, Any] = {"solver": label, "seeds": len(found)}
    answer["reached"] = f"{sum(run.reached for run in found)} of {len(found)}"
    answer["passes"], answer["passes_spread"] = mean_and_spread([float(len(run.dual)) for run in found])
    answer["visits_per_sample"] = mean_and_spread([run.visits for run in found])[0]
    answer["cpu_s"], answer["cpu_spread"] = mean_and_spread([run.charged for run in found])
    answer["gap"] = mean_and_spread([float(run.gap) for run in found])[0]
    return answer | {"limit_s": limit}


def best_temperature(X: Any, y: np.ndarray, lam: float) -> float:
    """The temperature of the paper's grid that raises OEG's dual most in a short run."""
    duals = {
        tau: Run(X, y, lam, 0, SHORT, solver="oeg", temperature=tau, max_iter=10).dual[-1] for tau in GRID
    }
    return max(GRID, key=lambda tau: np.nan_to_num(duals[tau], nan=-np.inf))


def races(
    name: str, X: Any, y: np.ndarray, sizes: Iterable[int], lambdas: Iterable[float], limit: float
) -> None:
    """All solvers at every n and lambda, and the curves with all samples."""
    order = np.random.default_rng(0).permutation(len(y))
    for n in sorted({min(n, len(y)) for n in sizes}):
        A, b = X[order[:n]], y[order[:n]]
        for lam in lambdas:
            about = {"data": name, "n": n, "all": n == len(y), "lambda": lam}
            entries = {label: (options, "") for label, options in SOLVERS.items()}
            tau = best_temperature(A, b, lam)
            entries["oeg best"] = ({"solver": "oeg", "temperature": tau}, tau)
            for label, (options, temperature) in entries.items():
                found = runs(A, b, lam, limit, **options)
                kept = {**about, **row(label, found, limit), "temperature": temperature}
                write("multiclass_solvers", [kept], ("data", "n", "lambda", "solver"), conditions=load())
                if n == len(y):
                    write("multiclass_curves", points(name, lam, label, found[0]),
                          ("data", "lambda", "solver", "pass"), whole=("data", "lambda", "solver"),
                          conditions=load())  # fmt: skip
            print(name, n, lam, flush=True)


def points(name: str, lam: float, label: str, run: Run) -> list[dict[str, Any]]:
    """The curve of one run, thinned."""
    about = {"data": name, "lambda": lam, "solver": label}
    return [
        {**about, "pass": k + 1, "cpu_s": run.seconds[k], "dual": run.dual[k]} for k in thin(len(run.dual))
    ]


def sweeps(name: str, X: Any, y: np.ndarray, limit: float) -> None:
    """BCPL over the paper's temperatures, and the ablation."""
    lam = 0.01
    for tau in GRID:
        found = runs(X, y, lam, limit, solver="bcpl", temperature=tau, safeguard=False)
        write("multiclass_temperature",
              [{"data": name, "lambda": lam, **row("bcpl", found, limit), "temperature": tau}],
              ("data", "lambda", "temperature"), conditions=load())  # fmt: skip
    for label, options in ABLATION.items():
        found = runs(X, y, lam, limit, **options)
        write("multiclass_ablation", [{"data": name, "lambda": lam, **row(label, found, limit)}],
              ("data", "lambda", "solver"), conditions=load())  # fmt: skip


def read(name: str) -> list[dict[str, str]]:
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def draw() -> None:
    """The curves of every set, and the bars."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = read("multiclass_curves")
    for name in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == name]
        lambdas = sorted({row["lambda"] for row in mine}, key=float, reverse=True)
        figure, axes = plt.subplots(2, len(lambdas), figsize=(5 * len(lambdas), 7), squeeze=False)
        for column, lam in enumerate(lambdas):
            part = [row for row in mine if row["lambda"] == lam]
            for label in dict.fromkeys(row["solver"] for row in part):
                line = [row for row in part if row["solver"] == label]
                for axis, key in zip(axes[:, column], ("cpu_s", "pass"), strict=True):
                    axis.plot([float(r[key]) for r in line], [float(r["dual"]) for r in line], label=label)
            top = max(float(row["dual"]) for row in part)
            for axis, unit in zip(axes[:, column], ("CPU seconds", "passes"), strict=True):
                axis.set(xscale="log", xlabel=unit, ylabel="dual objective", ylim=(0.5 * top, 1.01 * top))
            axes[0, column].set_title(f"{name}, lambda = {lam}")
        axes[0, -1].legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(RESULTS / f"multiclass_curves_{name}.png", dpi=110)
        plt.close(figure)
    rows = read("multiclass_solvers")
    write("multiclass_mean_time", means(rows), ("data", "n", "mean_of"))
    bars(rows)


def means(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return mean passes and seconds over lambda by solver; ">" if a run did not reach the gap."""
    answer = []
    names = list(dict.fromkeys(row["data"] for row in rows))
    cases = sorted({(names.index(row["data"]), int(row["n"])) for row in rows})
    for name, n in [(names[at], str(n)) for at, n in cases]:
        for column in ("passes", "cpu_s"):
            mine = [row for row in rows if (row["data"], row["n"]) == (name, n)]
            line: dict[str, Any] = {"data": name, "n": n, "mean_of": column, "limit_s": mine[0]["limit_s"]}
            for label in [*SOLVERS, "oeg best"]:
                part = [row for row in mine if row["solver"] == label]
                there = all(row["reached"] == f"{row['seeds']} of {row['seeds']}" for row in part)
                values = [float(row[column]) for row in part]
                line[label] = f"{'' if there else '> '}{np.mean(values):.3g}" if values else ""
            answer.append(line)
    return answer


def bars(rows: list[dict[str, str]]) -> None:
    """Mean seconds over lambda at every n that several sets have, and with all samples."""
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(row["solver"] for row in rows))
    names = list(dict.fromkeys(row["data"] for row in rows))
    several = sorted({int(row["n"]) for row in rows if row["all"] == "False"})
    parts = {f"n = {n:,}": [row for row in rows if row["n"] == str(n)] for n in several}
    parts = {title: part for title, part in parts.items() if len({row["data"] for row in part}) > 1}
    parts["all samples"] = [row for row in rows if row["all"] == "True"]
    figure, axes = plt.subplots(
        len(parts), 1, figsize=(1.5 + 2 * len(names), 3.5 * len(parts)), squeeze=False
    )
    for axis, (title, part) in zip(axes[:, 0], parts.items(), strict=True):
        for k, label in enumerate(labels):
            mine = [row for row in part if row["solver"] == label]
            known = [name for name in names if any(row["data"] == name for row in mine)]
            at = np.array([names.index(name) for name in known]) + k * 0.8 / len(labels)
            means = [np.mean([float(row["cpu_s"]) for row in mine if row["data"] == name]) for name in known]
            axis.bar(at, means, 0.8 / len(labels), label=label, color=f"C{k}")
        axis.set(yscale="log", ylabel="mean seconds to gap 1e-3", title=title)
        axis.set_xticks(np.arange(len(names)) + 0.4, names)
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "multiclass_mean_time.png", dpi=110)
    plt.close(figure)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("data", nargs="*", type=one_of(DATA), help=f"of {', '.join(DATA)}")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--lambdas", type=float, nargs="*", default=LAMBDAS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds for each run")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names = given.data or (DATA[:1] if SMALL else DATA)
    for name in names if set(given.parts) - {"draw"} else []:
        X, y = problem(name, SMALL)
        for options in (SOLVERS | ABLATION).values():  # compiles
            Run(X[:500], y[:500], 0.1, 0, 1.0, **options)
        if "races" in given.parts:
            races(name, X, y, given.sizes, given.lambdas, given.limit)
        if "sweeps" in given.parts:
            sweeps(name, X, y, given.limit)
    if "draw" in given.parts:
        draw()


if __name__ == "__main__":
    main()
