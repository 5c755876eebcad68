"""Races of `MultiClassSVC` at equal quality, one thread each: `python -m benchmarks.multiclass [--small]`.

Problems: mnist (pixels / 255), 20newsgroups, reuters-r52 (tf-idf) and letter (/ 15), no
intercept, at lambda = 0.1, 0.01, 0.001, i.e. C = 1 / (lambda n). A run counts when it is certified
to a relative gap of 1e-3: (P - D) / P <= 1e-3 with its own dual objective D, which LIBLINEAR prints.
Peers are tried at finely spaced tolerances from loose to tight and the first that meets it is timed,
the median of three. Rows named "by objective" ask less of the peer: that P be within 1e-3 of the best
dual bound known, which nobody knows who runs it alone. One-vs-rest solves another objective and is
there for information. `--growth` times ours on generated data of growing size: rows of 100 dense
features, and sparse rows with many classes. Results go to results/multiclass*.csv, the growth also
to a plot.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC

from benchmarks.measure import RESULTS, run_alone, write_csv
from maxmargin import MultiClassSVC, datasets

GAP = 1e-3
LAMBDAS = (0.1, 0.01, 0.001)
TOLERANCES = (
    1.0,
    0.7,
    0.5,
    0.4,
    0.3,
    0.25,
    0.2,
    0.17,
    0.15,
    0.12,
    0.1,
    0.09,
    0.08,
    0.07,
    0.06,
    0.05,
    0.03,
    0.01,
    0.001,
)


Fit = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Problem:
    name: str
    X: Any
    y: np.ndarray

    def primal(self, W: np.ndarray, C: float) -> float:
        """Crammer-Singer's objective in float64."""
        total = 0.5 * float(np.sum(np.square(W, dtype=np.float64)))
        for start in range(0, len(self.y), 20_000):
            rows = slice(start, start + 20_000)
            scores = np.asarray(self.X[rows] @ W.T.astype(np.float64))
            truth = scores[np.arange(len(scores)), self.y[rows]].copy()
            scores += 1.0
            scores[np.arange(len(scores)), self.y[rows]] -= 1.0
            total += C * float((scores.max(axis=1) - truth).sum())
        return total


def real(name: str, small: bool) -> Problem:
    data = datasets.load(name, split="train")
    y = np.unique(data.Y, return_inverse=True)[1]
    X = data.X
    if sp.issparse(X):
        X = TfidfTransformer().fit_transform(sp.csr_matrix(X, dtype=np.float64))
        X.sum_duplicates()
    else:
        X = np.ascontiguousarray(X, dtype=np.float64) / {"mnist": 255.0, "letter": 15.0}[name]
    if small:
        X, y = X[:2000], np.unique(y[:2000], return_inverse=True)[1]
    return Problem(name, X, y)


def fit_ours(problem: Problem, C: float, tol: float) -> np.ndarray:
    model = MultiClassSVC(C=C, fit_intercept=False, tol=tol, random_state=0)
    return model.fit(problem.X, problem.y).coef_


def fit_linear_svc(problem: Problem, C: float, tol: float, verbose: bool = False) -> np.ndarray:
    model = LinearSVC(
        C=C, multi_class="crammer_singer", fit_intercept=False, tol=tol, random_state=0, max_iter=100_000,
        verbose=verbose,
    )  # fmt: skip
    return model.fit(problem.X, problem.y).coef_


def fit_liblinear(problem: Problem, C: float, tol: float, verbose: bool = False) -> np.ndarray:
    from liblinear.liblinearutil import train

    model = train(problem.y, problem.X, f"-s 4 -c {C} -e {tol} {'' if verbose else '-q'}")
    c = model.nr_class
    W = np.ctypeslib.as_array(model.w, (model.nr_feature * c,)).reshape(-1, c).T
    order = np.argsort(model.get_labels())
    full = np.zeros((c, problem.X.shape[1]))
    full[:, : W.shape[1]] = W[order]
    return full


def with_dual(fit: Fit, problem: Problem, C: float, tol: float) -> tuple[np.ndarray, float]:
    """Weights of a LIBLINEAR run and the dual objective that it prints, with its sign turned."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile("w+") as printed:
        os.dup2(printed.fileno(), 1)
        try:
            W = fit(problem, C, tol, verbose=True)
            ctypes.CDLL(None).fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        printed.seek(0)
        text = printed.read()
    return W, -float(re.findall(r"Objective value = (\S+)", text)[-1])


def fit_one_vs_rest(problem: Problem, C: float, tol: float) -> np.ndarray:
    return (
        LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=0.1, random_state=0)
        .fit(problem.X, problem.y)
        .coef_
    )


def nothing(problem: Problem, C: float, tol: float) -> np.ndarray:
    return np.zeros((problem.y.max() + 1, problem.X.shape[1]))


@dataclass(frozen=True)
class Peer:
    """How to fit, the tolerances to try, and by what a run is judged."""

    fit: Fit
    tolerances: tuple[float, ...]
    judge: str = "none"  # "gap": its own; "objective": distance to the best bound known

    def good(self, problem: Problem, C: float, tol: float, bound: float) -> tuple[float, float, bool]:
        """Suboptimality, the peer's own gap, and whether the run counts."""
        if self.judge == "gap":
            W, dual = with_dual(self.fit, problem, C, tol)
        else:
            W, dual = self.fit(problem, C, tol), np.nan
        P = problem.primal(W, C)
        far, gap = (P - bound) / P, (P - dual) / P
        return far, gap, {"gap": gap, "objective": far, "none": 0.0}[self.judge] <= GAP


PEERS = {
    "MultiClassSVC": Peer(fit_ours, (GAP,)),
    "LinearSVC crammer_singer": Peer(fit_linear_svc, TOLERANCES, "gap"),
    "liblinear-official -s 4": Peer(fit_liblinear, TOLERANCES, "gap"),
    "LinearSVC crammer_singer, by objective": Peer(fit_linear_svc, TOLERANCES, "objective"),
    "liblinear-official -s 4, by objective": Peer(fit_liblinear, TOLERANCES, "objective"),
    "LinearSVC one-vs-rest": Peer(fit_one_vs_rest, (0.1,)),
    "nothing": Peer(nothing, (0.0,)),
}


def race(problem: Problem, repeats: int) -> list[dict[str, Any]]:
    rows = []
    some = np.random.default_rng(0).permutation(len(problem.y))[:300]
    warm = Problem(problem.name, problem.X[some], np.unique(problem.y[some], return_inverse=True)[1])
    for lam in LAMBDAS:
        C = 1.0 / (lam * len(problem.y))
        reference = MultiClassSVC(C=C, fit_intercept=False, tol=1e-5, max_iter=5000, random_state=0)
        bound = reference.fit(problem.X, problem.y).dual_objective_
        chosen = {}
        for name, peer in PEERS.items():
            for tol in peer.tolerances:
                far, gap, good = peer.good(problem, C, tol, bound)
                if good or tol == peer.tolerances[-1]:
                    chosen[name] = (peer.fit, tol, far, gap)
                    break
        times: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
        for _ in range(repeats):
            for name, (fit, tol, *_) in chosen.items():
                times[name].append(run_alone(partial(fit, problem, C, tol), partial(fit, warm, C, tol)))
        seconds = {name: float(np.median([r["seconds"] for r in runs])) for name, runs in times.items()}
        for name, runs in times.items():
            _, tol, far, gap = chosen[name]
            rows.append(
                {
                    "data": problem.name,
                    "n": len(problem.y),
                    "features": problem.X.shape[1],
                    "classes": int(problem.y.max()) + 1,
                    "lambda": lam,
                    "competitor": name,
                    "tolerance": tol,
                    "suboptimality": f"{far:.2e}",
                    "gap": "" if np.isnan(gap) else f"{gap:.2e}",
                    "seconds": f"{seconds[name]:.4f}",
                    "times_ours": f"{seconds[name] / seconds['MultiClassSVC']:.2f}",
                    "first_call_seconds": f"{runs[0]['warm_seconds']:.2f}",
                    "peak_mib": f"{max(r['peak_mib'] for r in runs):.1f}",
                }
            )
            print(rows[-1], flush=True)
    return rows


def generated_dense(n: int, seed: int = 0) -> Problem:
    """Ten overlapping clouds in 100 dimensions, float32."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, 100)).astype(np.float32)
    y = rng.integers(0, 10, n)
    X = rng.standard_normal((n, 100), dtype=np.float32)
    X += centres[y]
    return Problem(f"dense-{n}", X / 10, y)


def generated_sparse(classes: int, n: int = 20_000, d: int = 20_000, seed: int = 0) -> Problem:
    """Sixty words a row, a third of them typical of the class."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    typical = rng.integers(0, d, (classes, 40))
    own = typical[y[:, None], rng.integers(0, 40, (n, 20))]
    columns = np.hstack([own, rng.integers(0, d, (n, 40))])
    X = sp.csr_matrix((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 60)), (n, d))
    X.sum_duplicates()
    return Problem(f"sparse-{classes}", TfidfTransformer().fit_transform(X), y)


def growth(small: bool) -> list[dict[str, Any]]:
    rows = []
    sizes = (1_000, 4_000) if small else (10_000, 100_000, 1_000_000)
    class_counts = (10, 50) if small else (10, 100, 1_000)
    problems = [partial(generated_dense, n) for n in sizes]
    problems += [partial(generated_sparse, c, 2_000 if small else 20_000) for c in class_counts]
    for make in problems:
        problem = make()
        C = 1.0 / (1e-3 * len(problem.y))
        for peer in ("MultiClassSVC", "LinearSVC crammer_singer"):
            fit, tol = PEERS[peer].fit, GAP if peer == "MultiClassSVC" else 0.1
            some = np.random.default_rng(0).permutation(len(problem.y))[:500]
            warm = Problem("warm", problem.X[some], np.unique(problem.y[some], return_inverse=True)[1])
            report = run_alone(partial(fit, problem, C, tol), partial(fit, warm, C, tol))
            rows.append(
                {
                    "data": problem.name,
                    "n": len(problem.y),
                    "classes": int(problem.y.max()) + 1,
                    "competitor": peer,
                    "objective": f"{problem.primal(report['answer'], C):.6g}",
                    "seconds": f"{report['seconds']:.3f}",
                    "peak_mib": f"{report['peak_mib']:.0f}",
                }
            )
            print(rows[-1], flush=True)
    return rows


def plot_growth(rows: list[dict[str, Any]], name: str) -> None:
    """Seconds and peak memory against samples (dense) and classes (sparse)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 7))
    for column, (kind, unit) in enumerate((("dense", "n"), ("sparse", "classes"))):
        for axis, quantity in zip(axes[:, column], ("seconds", "peak_mib"), strict=True):
            for peer in dict.fromkeys(row["competitor"] for row in rows):
                mine = [row for row in rows if row["competitor"] == peer and row["data"].startswith(kind)]
                axis.plot(
                    [row[unit] for row in mine], [float(row[quantity]) for row in mine], "o-", label=peer
                )
            axis.set(
                xscale="log", yscale="log", xlabel=unit, ylabel=quantity.replace("_mib", " MiB"), title=kind
            )
    axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)


def main() -> None:
    warnings.simplefilter("ignore")
    small = "--small" in sys.argv
    suffix = "_small" if small else ""
    names = [name for name in ("mnist", "20newsgroups", "reuters-r52", "letter") if name in sys.argv]
    if "--growth" in sys.argv:
        rows = growth(small)
        write_csv(f"multiclass_growth{suffix}", rows)
        plot_growth(rows, f"multiclass_growth{suffix}")
        return
    rows = []
    for name in names or ("letter", "reuters-r52", "20newsgroups", "mnist"):
        rows += race(real(name, small), 1 if small else 3)
    write_csv(f"multiclass{suffix}", rows)


if __name__ == "__main__":
    main()
