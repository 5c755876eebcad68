"""Races of the submodular machine: cuts per second, training to a gap, growth with size.

    python -m benchmarks.submodular cuts        # batches of cuts against PyMaxflow, scipy, networkx
    python -m benchmarks.submodular train       # yeast and enron to a relative gap of 1e-2
    python -m benchmarks.submodular growth      # labels to 200, samples to 8,000; also plotted
    python -m benchmarks.submodular --small     # all at a toy size, to see that they run

Times are medians of `REPEATS` runs, the methods of a race taking turns; compilation is reported apart.
Cuts: all get the same graphs and scores; ours must give the same sets as PyMaxflow or the race stops.
scipy's flow takes integers, so it is given rounded capacities and only its time counts. "null" only
looks at the sign of the unary scores: it is what a batch costs without any cut. PyMaxflow is GPL and
needed for this race alone (`pip install maxmargin[bench]`). Results go to results/submodular_<race>.csv.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import maximum_flow
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning

from maxmargin import SubmodularSVC, datasets
from maxmargin.submodular.problem import best_sets, weighted_graph

REPEATS = 5
RESULTS = Path(__file__).parent / "results"
PAIRS = {"yeast": 0.5, "enron": 0.05}


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = action()
    return time.perf_counter() - started, answer


def peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def instance(V: int, density: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs, their weights, and scores balanced so that about half of the labels end up on."""
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(V, 1)
    kept = rng.random(len(i)) < density
    index = np.column_stack([i[kept], j[kept]])
    weight = rng.random(len(index))
    half = np.bincount(index.ravel(), weights=np.repeat(weight, 2), minlength=V) / 2
    spread = 0.5 * np.sqrt(max(1.0, density * V / 3))
    return index, weight, spread * rng.normal(size=(n, V)) - half


def by_pymaxflow(scores: np.ndarray, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    import maxflow

    V = scores.shape[1]
    half = np.bincount(index.ravel(), weights=np.repeat(weight, 2), minlength=V) / 2
    i, j = np.ascontiguousarray(index[:, 0]), np.ascontiguousarray(index[:, 1])
    answers = np.empty(scores.shape, bool)
    for n, a in enumerate(scores):
        graph = maxflow.Graph[float](V, len(index))
        nodes = graph.add_nodes(V)
        graph.add_edges(i, j, weight / 2, weight / 2)
        c = a + half
        graph.add_grid_tedges(nodes, np.maximum(c, 0), np.maximum(-c, 0))
        graph.maxflow()
        answers[n] = ~graph.get_grid_segments(nodes)
    return answers


def capacities(a: np.ndarray, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    V = len(a)
    matrix = np.zeros((V + 2, V + 2))
    matrix[index[:, 0], index[:, 1]] = matrix[index[:, 1], index[:, 0]] = weight / 2
    c = a + matrix[:V, :V].sum(axis=1)
    matrix[V, :V], matrix[:V, V + 1] = np.maximum(c, 0), np.maximum(-c, 0)
    return matrix


def by_scipy(scores: np.ndarray, index: np.ndarray, weight: np.ndarray) -> None:
    V = scores.shape[1]
    for a in scores:
        whole = np.round(1e6 * capacities(a, index, weight)).astype(np.int32)
        maximum_flow(sp.csr_array(whole), V, V + 1)


def by_networkx(scores: np.ndarray, index: np.ndarray, weight: np.ndarray) -> None:
    import networkx as nx

    V = scores.shape[1]
    for a in scores:
        graph = nx.from_numpy_array(capacities(a, index, weight), create_using=nx.DiGraph)
        nx.set_edge_attributes(graph, {(u, v): d["weight"] for u, v, d in graph.edges(data=True)}, "capacity")
        nx.minimum_cut_value(graph, V, V + 1)


def cuts(small: bool) -> list[dict[str, Any]]:
    """Microseconds per cut, batches over one graph, as in prediction and training."""
    rows = []
    n = 50 if small else 2000
    for V in (14, 53, 101):
        for density in (0.05, 0.5, 1.0):
            index, weight, scores = instance(V, density, n)
            graph = weighted_graph(V, index, weight)
            compile_seconds, _ = seconds(lambda g=graph, s=scores: best_sets(s[:1], g))
            few = scores[: max(2, n // 100)]
            racers = {
                "maxmargin": (lambda g=graph, s=scores: best_sets(s, g), n),
                "maxmargin, 2 threads": (lambda g=graph, s=scores: best_sets(s, g, 2), n),
                "PyMaxflow": (lambda s=scores, i=index, w=weight: by_pymaxflow(s, i, w), n),
                "scipy": (lambda s=few, i=index, w=weight: by_scipy(s, i, w), len(few)),
                "networkx": (lambda s=few, i=index, w=weight: by_networkx(s, i, w), len(few)),
                "null": (lambda s=scores: s > 0, n),
            }
            times: dict[str, list[float]] = {name: [] for name in racers}
            answers = {}
            for _ in range(1 if small else REPEATS):
                for name, (action, count) in racers.items():
                    spent, answers[name] = seconds(action)
                    times[name].append(spent / count)
            if not np.array_equal(answers["maxmargin"] > 0, answers["PyMaxflow"]):
                raise RuntimeError(f"maxmargin and PyMaxflow disagree at V={V}, density {density}.")
            for name, spent in times.items():
                rows.append(
                    {
                        "race": "cuts",
                        "method": name,
                        "labels": V,
                        "density": density,
                        "microseconds": round(1e6 * float(np.median(spent)), 2),
                        "times_PyMaxflow": round(np.median(times["PyMaxflow"]) / np.median(spent), 2),
                        "compile_s": round(compile_seconds, 2) if name == "maxmargin" else "",
                    }
                )
    return rows


def fit(model: SubmodularSVC, X: Any, Y: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        spent, model = seconds(lambda: model.fit(X, Y))
    return {
        "seconds": round(spent, 2),
        "gap": float(f"{model.duality_gap_:.3g}"),
        "iterations": model.n_iter_,
        "objective": float(f"{model.primal_objective_:.6g}"),
        "peak_MiB": peak(),
    }


def train(small: bool) -> list[dict[str, Any]]:
    """Seconds to a relative gap of 1e-2 with exact inference."""
    rows = []
    for name, fraction in PAIRS.items():
        data = datasets.load(name, split="train")
        X, Y = (data.X[:60], data.Y[:60]) if small else (data.X, data.Y)
        limit = 5.0 if small else 300.0
        for solver in ("bundle", "bcfw"):
            warm = SubmodularSVC(solver=solver, pair_fraction=fraction, max_iter=2)
            compile_seconds = fit(warm, X[:20], Y[:20])["seconds"]
            for C in (0.01, 0.1, 1.0):
                model = SubmodularSVC(
                    C=C, pair_fraction=fraction, solver=solver, tol=1e-2, max_iter=10**5,
                    time_limit=limit, n_jobs=-1, random_state=0,
                )  # fmt: skip
                numbers = fit(model, X, Y)
                rows.append(
                    {
                        "race": "train",
                        "method": solver,
                        "data": name,
                        "C": C,
                        **numbers,
                        "compile_s": compile_seconds,
                    }
                )
                print(rows[-1])
    return rows


def one_growth(solver: str, V: int, n: int, limit: float) -> dict[str, Any]:
    """One training run, the first in its process, so that the peak memory is its own."""
    X, Y = make_multilabel_classification(n, n_features=100, n_classes=V, n_labels=4, random_state=0)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = SubmodularSVC(
        pair_fraction=0.1, solver=solver, tol=1e-2, max_iter=10**5, time_limit=limit, random_state=0
    )
    fit(clone(model).set_params(max_iter=1), X[:20], Y[:20])
    before = peak()
    numbers = fit(model, X, Y)
    return {
        "race": "growth",
        "method": solver,
        "labels": V,
        "samples": n,
        **numbers,
        "fit_MiB": numbers["peak_MiB"] - before,
    }


def growth(small: bool) -> list[dict[str, Any]]:
    """Seconds and memory of training, against labels and samples."""
    rows = []
    sizes = [(V, 200) for V in (10, 20)] if small else [(V, 500) for V in (10, 25, 50, 100, 200)]
    sizes += [(20, n) for n in ((100, 200) if small else (500, 1000, 2000, 4000, 8000))]
    for V, n in sizes:
        for solver in ("bundle", "bcfw"):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                rows.append(pool.submit(one_growth, solver, V, n, 5.0 if small else 120.0).result())
            print(rows[-1], flush=True)
    return rows


def plot_growth(rows: list[dict[str, Any]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8, 6))
    shown = (("seconds", "seconds to a gap of 1e-2"), ("peak_MiB", "peak memory of the process, MiB"))
    for column, along, fixed in ((0, "labels", "samples"), (1, "samples", "labels")):
        common = max({row[fixed] for row in rows}, key=lambda value: sum(row[fixed] == value for row in rows))
        for axis, (quantity, title) in zip(axes[:, column], shown, strict=True):
            for solver in ("bundle", "bcfw"):
                line = sorted(
                    (row[along], row[quantity])
                    for row in rows
                    if row["method"] == solver and row[fixed] == common
                )
                axis.loglog(*zip(*line, strict=True), "o-", label=solver)
            axis.set(xlabel=along, ylabel=title, title=f"{common} {fixed}")
            axis.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "submodular_growth.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("race", nargs="?", choices=["cuts", "train", "growth", "all"], default="all")
    parser.add_argument("--small", action="store_true", help="toy sizes; writes no results")
    chosen = parser.parse_args()
    races = {"cuts": cuts, "train": train, "growth": growth}
    names = list(races) if chosen.race == "all" else [chosen.race]
    rows = {name: races[name](chosen.small) for name in names}
    for row in (row for part in rows.values() for row in part):
        print(row)
    if chosen.small:
        return
    RESULTS.mkdir(exist_ok=True)
    for name, part in rows.items():
        with (RESULTS / f"submodular_{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(part[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(part)
    if "growth" in rows:
        plot_growth(rows["growth"])


if __name__ == "__main__":
    main()
