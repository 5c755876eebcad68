"""Dual objective against time and iterations: the paper's solver, ours, and one SVC per label.

    OPENBLAS_NUM_THREADS=1 python -m experiments.kernel_convergence
    OPENBLAS_NUM_THREADS=1 python -m experiments.kernel_convergence --small

Animals with Attributes, RBF with gamma="scale", C = 1, 85 attributes (figures 2 and 3 of the paper).
For `MultiLabelSVC` the records of one fit are shown, against the epoch ("auto": one pass; "smo":
one sixteenth of all coefficients touched). SVC keeps no record, so it is fitted at several `tol`, all
labels one after the other, and its iterations are those of all labels together. Shown is the
relative distance of the dual objective from its optimum; SVC has a free intercept, so its optimum is
its own (tol=1e-6). Results: results/kernel_convergence.csv and .png.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from experiments._results import RESULTS, write
from maxmargin import MultiLabelSVC, datasets


def ours(solver: str, X: np.ndarray, Y: np.ndarray, optimum: float) -> list[dict]:
    """The records of one fit."""
    MultiLabelSVC(kernel="rbf", solver=solver).fit(X[:50], Y[:50])
    model = MultiLabelSVC(kernel="rbf", solver=solver, tol=1e-5, random_state=0, cache_size=1000).fit(X, Y)
    return [
        {
            "solver": f"MultiLabelSVC {solver}", "iteration": record["epoch"], "seconds": record["seconds"],
            "dual_distance": max(1 - record["dual"] / optimum, 1e-12), "gap": record["gap"],
        }
        for record in model.history_
    ]  # fmt: skip


def svc_dual(X: np.ndarray, Y: np.ndarray, tol: float) -> tuple[float, float, int]:
    """Dual objective, seconds and iterations of one SVC per label."""
    dual, iterations = 0.0, 0
    seconds = 0.0
    K = rbf_kernel(X.astype(np.float64), gamma=1 / (X.shape[1] * X.var()))
    for y in Y.T:
        if y.min() == y.max():
            continue
        started = time.perf_counter()
        model = SVC(C=1.0, tol=tol).fit(X, y)
        seconds += time.perf_counter() - started
        a, support = model.dual_coef_[0], model.support_
        dual += np.abs(a).sum() - 0.5 * a @ K[np.ix_(support, support)] @ a
        iterations += int(model.n_iter_[0])
    return dual, seconds, iterations


def plot(rows: list[dict]) -> None:
    """Distance to the optimum against seconds and against iterations."""
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    for name in dict.fromkeys(row["solver"] for row in rows):
        mine = [row for row in rows if row["solver"] == name]
        for axes, key in zip(both, ("seconds", "iteration"), strict=True):
            axes.loglog(
                [row[key] for row in mine], [row["dual_distance"] for row in mine], marker=".", label=name
            )
            axes.set_xlabel(key if key == "seconds" else "epochs (SVC: iterations)")
    both[0].set_ylabel("(D* - D) / D*")
    both[0].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "kernel_convergence.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    data = datasets.load("awa1")
    rows = np.random.RandomState(0).choice(data.train, 100 if small else 1000, replace=False)
    X, Y = data.X[rows], data.Y[rows][:, :5] if small else data.Y[rows]
    best = MultiLabelSVC(kernel="rbf", tol=1e-9, cache_size=1000).fit(X, Y).dual_objective_
    table = ours("auto", X, Y, best) + ours("smo", X, Y, best)
    svc_best = svc_dual(X, Y, 1e-6)[0]
    for tol in (1.0, 0.3, 0.1, 0.01, 0.001):
        dual, seconds, iterations = svc_dual(X, Y, tol)
        table.append(
            {
                "solver": "SVC per label", "iteration": iterations, "seconds": seconds,
                "dual_distance": max(1 - dual / svc_best, 1e-12), "gap": "",
            }
        )  # fmt: skip
    if small:
        print(*table, sep="\n")
        return
    write("kernel_convergence", table, ("solver", "iteration"))
    plot(table)


if __name__ == "__main__":
    main()
