"""Dual objective against coordinate updates and CPU seconds: the paper's solver, ours, and one SVC per label.

    OPENBLAS_NUM_THREADS=1 python -m experiments.kernel_convergence [data set ...]
    OPENBLAS_NUM_THREADS=1 python -m experiments.kernel_convergence --small

Figures 2 and 3 of the M3L paper. RBF with gamma="scale", C = 1, no prior, `SIZE` training samples, `DRAWS`
draws: the table has means and standard deviations, the figure the first draw. A pair step changes two
coefficients and counts as two updates, in `smo` (with the inner loop of the paper, break_factor=0, and with
ours) and in SVC. SVC appears twice: one label after the other at tol=1e-3, as in the paper, with a dual of
zero for labels not yet started; and all labels at decreasing tolerances. The default solver moves blocks,
so its rows have seconds only. Shown is the relative distance of the dual objective from its optimum. SVC
has a free intercept and so its own optimum (tol=1e-6). Results: results/kernel_convergence.csv and .png.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from experiments._results import RESULTS, SMALL, chosen, spread_of, write
from experiments.training_times import samples
from maxmargin import MultiLabelSVC
from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Clock
from maxmargin.multilabel.paper_kernel import SMO
from maxmargin.multilabel.problem import KernelM3L, hinge_costs

SETS = ("awa1", "yeast", "tmc2007-500", "mediamill-reduced")
SIZE, DRAWS = (60, 2) if SMALL else (1000, 3)
DISTANCE = 1e-6


def paper_solver(X: np.ndarray, Y: np.ndarray, break_factor: float, optimum: float) -> list[dict]:
    """Updates, seconds and distance after every epoch of `smo`."""
    L = Y.shape[1]
    costs = hinge_costs((2 * Y - 1).astype(np.int8), np.ones((2, L)), np.ones((len(Y), 1)))
    K = KernelMatrix(Kernel.of(X, "rbf", offset=1.0), X, 1000, np.float64)
    began = time.process_time()
    solver = SMO(
        KernelM3L(K, costs), np.zeros(Y.shape), tol=1e-7, break_factor=break_factor, epoch_share=1 / 32
    )
    rows = []
    while not rows or rows[-1]["dual_distance"] > DISTANCE:
        dual = solver.epoch(Clock()).certificate.dual
        rows.append(
            {
                "updates": 2 * solver.steps, "cpu_seconds": time.process_time() - began,
                "dual_distance": max(1 - dual / optimum, 1e-12),
            }
        )  # fmt: skip
    return rows


def default_solver(X: np.ndarray, Y: np.ndarray, optimum: float) -> list[dict]:
    """Seconds and distance at falling tolerances."""
    rows = []
    for tol in (0.1, 0.01, 1e-3, 1e-4, 1e-5):
        began = time.process_time()
        model = MultiLabelSVC(kernel="rbf", tol=tol, random_state=0, cache_size=1000).fit(X, Y)
        seconds = time.process_time() - began
        distance = max(1 - model.dual_objective_ / optimum, 1e-12)
        rows.append({"updates": "", "cpu_seconds": seconds, "dual_distance": distance})
    return rows


def svc(X: np.ndarray, Y: np.ndarray, tol: float) -> list[tuple[float, float, int]]:
    """Dual objective, CPU seconds and updates of one SVC per label."""
    K = rbf_kernel(X, gamma=1 / (X.shape[1] * X.var()))
    answers = []
    for y in Y.T:
        began = time.process_time()
        model = SVC(C=1.0, tol=tol).fit(X, y)
        seconds = time.process_time() - began
        a, support = model.dual_coef_[0], model.support_
        dual = float(np.abs(a).sum() - 0.5 * a @ K[np.ix_(support, support)] @ a)
        answers.append((dual, seconds, 2 * int(model.n_iter_[0])))
    return answers


def curves(name: str, draw: int) -> list[dict]:
    """All solvers on one draw of samples."""
    X, Y = samples(name, SIZE, draw)
    X = X.toarray() if sp.issparse(X) else X
    for solver in ("auto", "smo"):
        MultiLabelSVC(kernel="rbf", solver=solver).fit(X[:40], Y[:40])
    best = MultiLabelSVC(kernel="rbf", tol=1e-8, cache_size=1000).fit(X, Y).dual_objective_
    found = {
        "smo": paper_solver(X, Y, 0.5, best),
        "smo, inner loop of the paper": paper_solver(X, Y, 0.0, best),
        "auto": default_solver(X, Y, best),
    }
    svc_best = sum(dual for dual, _, _ in svc(X, Y, 1e-6))
    by_label = np.cumsum(svc(X, Y, 1e-3), axis=0)
    found["SVC, label after label"] = [
        {"updates": int(updates), "cpu_seconds": seconds, "dual_distance": max(1 - dual / svc_best, 1e-12)}
        for dual, seconds, updates in by_label
    ]
    at_tolerances = [np.sum(svc(X, Y, tol), axis=0) for tol in (1.0, 0.3, 0.1, 0.01, 1e-3)]
    found["SVC, falling tolerance"] = [
        {"updates": int(updates), "cpu_seconds": seconds, "dual_distance": max(1 - dual / svc_best, 1e-12)}
        for dual, seconds, updates in at_tolerances
    ]
    return [
        {"data": name, "solver": solver, "draw": draw, **row}
        for solver, rows in found.items()
        for row in rows
    ]


def summary(rows: list[dict]) -> list[dict]:
    """Updates and seconds to some distances, per data set and solver: means over the draws."""
    lines = []
    for name, solver in dict.fromkeys((row["data"], row["solver"]) for row in rows):
        line: dict = {"data": name, "solver": solver, "draws": DRAWS}
        mine = [row for row in rows if (row["data"], row["solver"]) == (name, solver)]
        for distance, named in ((0.05, "5_percent"), (0.01, "1_percent"), (1e-3, "1_permille")):
            near: dict[int, dict] = {}
            for row in mine:
                if row["dual_distance"] <= distance:
                    near.setdefault(row["draw"], row)
            for what in ("updates", "cpu_seconds"):
                mean, spread = over_draws([row[what] for row in near.values()])
                mean = round(mean) if what == "updates" and isinstance(mean, float) else mean
                line |= {f"{what}_to_{named}": mean, f"{what}_to_{named}_spread": spread}
        lines.append(line)
    return lines


def over_draws(values: list[Any]) -> tuple[Any, Any]:
    """Return mean and spread over the draws; a value that some draws lack counts as not reached."""
    if len(values) < DRAWS:
        return "not reached", ""
    return ("", "") if "" in values else (float(np.mean(values)), spread_of(values))


def plot(rows: list[dict]) -> None:
    """Distance to the optimum against updates and against CPU seconds, a row of panels per data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, panels = plt.subplots(len(names), 2, figsize=(10, 3.6 * len(names)), squeeze=False)
    for pair, name in zip(panels, names, strict=True):
        for k, solver in enumerate(dict.fromkeys(row["solver"] for row in rows)):
            mine = [row for row in rows if row["data"] == name and row["solver"] == solver]
            for axes, key in zip(pair, ("updates", "cpu_seconds"), strict=True):
                if mine and mine[0][key] != "":
                    distances = [r["dual_distance"] for r in mine]
                    axes.loglog([r[key] for r in mine], distances, ".-", color=f"C{k}", label=solver)
                axes.set(xlabel=key.replace("_", " "), ylabel="(D* - D) / D*", title=name)
    panels[0][1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "kernel_convergence.png", dpi=120)


def main() -> None:
    names = chosen(__doc__, SETS, ("yeast",))
    warnings.simplefilter("ignore")  # labels that are constant in the few samples that compile the loops
    drawn = []
    for name in names:
        rows = [row for draw in range(DRAWS) for row in curves(name, draw)]
        write("kernel_convergence", summary(rows), ("data", "solver"), conditions="CPU seconds")
        drawn += [row for row in rows if row["draw"] == 0]
    if SMALL or len(names) == len(SETS):
        plot(drawn)


if __name__ == "__main__":
    main()
