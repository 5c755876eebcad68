"""Races of the submodular machine: cuts per second, training to a gap, growth with size.

cuts      batches of cuts against PyMaxflow, scipy, networkx
train     yeast and enron to a relative gap of 1e-2
sets      default parameters on small sets, raw and scaled, and to 1e-2; some: -p 'names=["enron"]'
growth    labels to 200, samples to 8,000; also plotted

Times of cuts are medians of five runs, methods in turns, each in its own process, without compilation. All
receive the same graphs and scores. Our sets must equal those of PyMaxflow, if it is installed, or the race
stops. scipy's flow needs integers, so it receives rounded capacities and only its time counts. "null" uses
the sign of the unary scores, the cost of a batch without cuts. Results: submodular_<race>.csv and
submodular_growth.png.

`benchmarks/tried/submodular.md` lists what was tried.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning

from benchmarks.peers import flows, nothing, ours, pymaxflow
from benchmarks.problems.defaults import multilabel_table, toy
from benchmarks.race import Competitor, Panel, Row, Run, Setting, lines, plot, race, run_alone, save
from maxmargin import SubmodularSVC, datasets

REPEATS = 5
PAIRS = {"yeast": 0.5, "enron": 0.05}
SOLVERS = ("bundle", "bcfw")
SETS = ("flags", "emotions", "yeast", "birds", "cal500", "genbase", "medical", "enron")


def instance(V: int, density: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs, their weights, and scores with which about half of the labels are on."""
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(V, 1)
    kept = rng.random(len(i)) < density
    index = np.column_stack([i[kept], j[kept]])
    weight = rng.random(len(index))
    half = np.bincount(index.ravel(), weights=np.repeat(weight, 2), minlength=V) / 2
    spread = 0.5 * np.sqrt(max(1.0, density * V / 3))
    return index, weight, spread * rng.normal(size=(n, V)) - half


def cutters(index: np.ndarray, weight: np.ndarray, scores: np.ndarray) -> list[Competitor]:
    """Return the competitors; slow ones receive a part of the rows."""
    graph = ours.graph(scores.shape[1], index, weight)
    few = scores[: max(2, len(scores) // 100)]
    first = partial(ours.cut, scores[:1], graph)
    return [
        Competitor("maxmargin", partial(ours.cut, scores, graph), first),
        Competitor("maxmargin, 2 threads", partial(ours.cut, scores, graph, 2), first, cores=2),
        Competitor("PyMaxflow", partial(pymaxflow.cut, scores, index, weight), needs=pymaxflow.NEEDS),
        Competitor("scipy", partial(flows.cut_by_scipy, few, index, weight)),
        Competitor("networkx", partial(flows.cut_by_networkx, few, index, weight), needs=("networkx",)),
        Competitor("null", partial(nothing.cut, scores, index, weight)),
    ]


def cuts(setting: Setting) -> None:
    """Microseconds per cut, batches over one graph, as in prediction and training."""
    rows: list[Row] = []
    n = 20 if setting.small else 2000
    for V in (6, 14) if setting.small else (14, 53, 101):
        for density in (0.5,) if setting.small else (0.05, 0.5, 1.0):
            index, weight, scores = instance(V, density, n)
            results = race(cutters(index, weight, scores), setting.times(REPEATS))
            them = results.get("PyMaxflow")
            if them is not None and not np.array_equal(results["maxmargin"].answer > 0, them.answer):
                raise RuntimeError(f"maxmargin and PyMaxflow disagree at V={V}, density {density}.")
            counts = dict.fromkeys(("scipy", "networkx"), max(2, n // 100))
            for name, result in results.items():
                each = result.seconds / counts.get(name, n)
                rows.append(
                    {
                        "race": "cuts",
                        "method": name,
                        "labels": V,
                        "density": density,
                        "microseconds": round(1e6 * each, 2),
                        "times_PyMaxflow": "" if them is None else round(them.seconds / n / each, 2),
                        "compile_s": round(result.first_call, 2) if name == "maxmargin" else "",
                    }
                )
    save(setting, "submodular_cuts", rows)


def fit(model: SubmodularSVC, X: Any, Y: Any) -> SubmodularSVC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, Y)


def outcome(model: SubmodularSVC) -> Row:
    return {
        "gap": float(f"{model.duality_gap_:.3g}"),
        "iterations": model.n_iter_,
        "objective": float(f"{model.primal_objective_:.6g}"),
    }


def numbers(run: Run) -> Row:
    return {"seconds": round(run.seconds, 2), **run.answer, "peak_MiB": round(run.process_mib)}


def train(setting: Setting) -> None:
    """Seconds to a relative gap of 1e-2 with exact inference, on all cores."""
    rows: list[Row] = []
    for name, fraction in PAIRS.items():
        if setting.small:
            X, Y = generated(8, 300)
        else:
            data = datasets.load(name, split="train")
            X, Y = data.X, data.Y
        for solver in (*SOLVERS, "auto"):
            warm = SubmodularSVC(solver=solver, pair_fraction=fraction, max_iter=2)
            for C in (0.1,) if setting.small else (0.01, 0.1, 1.0):
                model = SubmodularSVC(
                    C=C, pair_fraction=fraction, solver=solver, tol=1e-2, max_iter=10**5,
                    time_limit=0.5 if setting.small else 300.0, n_jobs=-1, random_state=0,
                )  # fmt: skip
                trainer = Competitor(
                    solver,
                    partial(fit, model, X, Y),
                    partial(fit, warm, X[:20], Y[:20]),
                    judge=outcome,
                    cores=os.cpu_count() or 1,
                )
                run = run_alone(trainer)
                head = {"race": "train", "method": solver, "data": name, "C": C}
                rows.append({**head, **numbers(run), "compile_s": round(run.warm_seconds, 2)})
    save(setting, "submodular_train", rows)


def sets(setting: Setting, names: Sequence[str] = SETS, limit: float = 30.0) -> None:
    """Seconds of default fits, to the default gap and to 1e-2, on one core."""
    rows: list[Row] = []
    for table in [toy(several=True)] if setting.small else map(multilabel_table, names):
        for each in (table,) if sp.issparse(table.X) else (table, table.scaled()):
            for tol in (1e-3, 1e-2):
                model = SubmodularSVC(tol=tol, time_limit=0.5 if setting.small else limit, random_state=0)
                trainer = Competitor(
                    "auto",
                    partial(fit, model, each.X, each.y),
                    partial(fit, clone(model).set_params(max_iter=5), *each.some()),
                    judge=outcome,
                )
                head = {"race": "sets", "data": each.name, "prep": each.prep, "tol": tol}
                rows.append({**head, **numbers(run_alone(trainer))})
    save(setting, "submodular_sets", rows, ("data", "prep", "tol"))


def generated(V: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, Y = make_multilabel_classification(n, n_features=100, n_classes=V, n_labels=4, random_state=0)
    return X / np.linalg.norm(X, axis=1, keepdims=True), Y


def growing(model: SubmodularSVC, data: tuple[np.ndarray, np.ndarray]) -> SubmodularSVC:
    return fit(model, *data)


def growing_a_little(model: SubmodularSVC, data: tuple[np.ndarray, np.ndarray]) -> None:
    fit(clone(model).set_params(max_iter=1), data[0][:20], data[1][:20])


def growth_outcome(data: Any, model: SubmodularSVC) -> Row:
    return outcome(model)


def growth(setting: Setting) -> None:
    """Seconds and memory of training, against labels and samples, in fresh processes."""
    sizes = [(8, 300)] if setting.small else [(V, 500) for V in (10, 25, 50, 100, 200)]
    sizes += [(8, 400)] if setting.small else [(20, n) for n in (500, 1000, 2000, 4000, 8000)]
    rows: list[Row] = []
    for V, n in sizes:
        for solver in SOLVERS:
            model = SubmodularSVC(
                pair_fraction=0.1, solver=solver, tol=1e-2, max_iter=10**5,
                time_limit=0.5 if setting.small else 120.0, random_state=0,
            )  # fmt: skip
            trainer = Competitor(
                solver, partial(growing, model), partial(growing_a_little, model), partial(generated, V, n),
                growth_outcome,
            )  # fmt: skip
            run = run_alone(trainer, fresh=True)
            head = {"race": "growth", "method": solver, "labels": V, "samples": n}
            rows.append({**head, **numbers(run), "fit_MiB": round(run.process_mib - run.before_mib)})
    save(setting, "submodular_growth", rows)
    panels = []
    for quantity, title in (
        ("seconds", "seconds to a gap of 1e-2"),
        ("peak_MiB", "peak memory of the process, MiB"),
    ):
        panels.append([])
        for along, fixed in (("labels", "samples"), ("samples", "labels")):
            values = [row[fixed] for row in rows]
            common = max(set(values), key=values.count)
            found = lines(rows, along, quantity, "method", **{fixed: common})
            panels[-1].append(Panel(along, title, found, f"{common} {fixed}"))
    plot(setting, "submodular_growth", panels)


RACES = {"cuts": cuts, "train": train, "sets": sets, "growth": growth}
