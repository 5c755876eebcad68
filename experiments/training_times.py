"""Tables 1 and 2 of the M3L paper: training times without a prior, and a linear fit over time.

    OPENBLAS_NUM_THREADS=1 python -m experiments.training_times [data set ...] [--kinds "linear,rbf"]
    OPENBLAS_NUM_THREADS=1 python -m experiments.training_times --small

Table 1: the paper's solvers (`dca` for linear models, `smo` for kernels), the default, and one LinearSVC
(hinge loss, tol=0.01) or one SVC (tol=1e-3, a cache of 1,000 MB) per label, on the first rows of a random
order of the training part. (With a linear kernel the default is the linear model, in the rows of "linear".)
RBF with gamma="scale", C = 1, dense features standardised. Ours stop at a certified relative gap of 1e-3.
For LinearSVC, which has the same objective, `excess` is its distance above the objective of the default;
SVC has another objective (a free intercept). With more than `PEER_LABELS` labels, one machine per label is
timed on so many of them, evenly spaced by frequency, and its seconds are scaled (`labels_timed`). The
paper's seconds are for the same data and 2,000 samples on its machine: compare ratios.

Table 2: RCV1, linear, 101 topics; seconds, dual objective, training and test Hamming loss at decreasing
tolerances.

CPU seconds of one process without compilation: the mean over `seeds` orders of the samples, with spread and
the largest gap (SVC has one run). A fit of ours ends after `OURS` seconds, and `gap` and `note` say so. If
LinearSVC or SVC takes more than `MOST` seconds for all labels, larger sizes are skipped and the row says
so. Results: results/training_times.csv and rcv1_over_time.csv.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments import _data
from experiments._races import CpuClock
from experiments._results import (
    SMALL,
    command_line,
    machine,
    machine_state,
    one_of,
    several_of,
    spread_of,
    write,
)
from maxmargin import MultiLabelSVC

SETS = ("yeast", "tmc2007-500", "mediamill-reduced", "rcv1-subsets", "awa1")
LINEAR_SIZES, KERNEL_SIZES = ((100,), (60,)) if SMALL else ((1000, 4000), (500, 1000, 2000))
OURS, MOST, PEER_LABELS = 120.0, 200.0, 16
SEEDS = 2 if SMALL else 3
# LIBLINEAR, LM3L, LIBSVM linear, KM3L linear, LIBSVM rbf, KM3L rbf at 2,000 samples
PAPER = {
    "awa1": (3, 7, 234, 15, 250, 20), "rcv1-subsets": (7, 4, 54, 6, 139, 11),
    "tmc2007-500": (1, 1, 27, 5, 43, 7), "mediamill-reduced": (2, 2, 11, 2, 15, 6),
}  # fmt: skip
COLUMNS = {
    ("linear", "LinearSVC per label"): 0, ("linear", "dca"): 1, ("linear kernel", "SVC per label"): 2,
    ("linear kernel", "smo"): 3, ("rbf", "SVC per label"): 4, ("rbf", "smo"): 5,
}  # fmt: skip


def samples(name: str, n: int | None = None, draw: int = 0) -> tuple[Any, np.ndarray]:
    """Rows and labels with both sides of a training part."""
    data = _data.load(name)
    train = np.arange(data.X.shape[0]) if data.train is None else data.train
    rows = np.random.RandomState(draw).permutation(train)[:n]
    X = data.X[rows].astype(np.float64)
    X = sp.csr_matrix(X) if sp.issparse(X) else StandardScaler().fit_transform(X)
    Y = data.Y[rows]
    Y = Y.toarray() if sp.issparse(Y) else np.asarray(Y)
    return X, Y[:, (Y.min(axis=0) == 0) & (Y.max(axis=0) == 1)]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a piece of work, and its answer."""
    began = time.process_time()
    answer = work()
    return time.process_time() - began, answer


def per_label(make: Callable[[], Any], X: Any, Y: np.ndarray) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [make().fit(X, y) for y in Y.T]


def excess(models: list[LinearSVC], X: Any, Y: np.ndarray, ours: MultiLabelSVC, some: np.ndarray) -> float:
    """How far the objective of LinearSVC's models of some labels is above ours of the same labels."""
    W, b = np.vstack([m.coef_ for m in models]), np.array([m.intercept_[0] for m in models])
    return objective(W, b, X, Y) / objective(ours.coef_[some], ours.intercept_[some], X, Y) - 1


def objective(W: np.ndarray, b: np.ndarray, X: Any, Y: np.ndarray) -> float:
    """The primal objective of linear models without a prior, C = 1."""
    losses = np.maximum(0, 1 - (2.0 * Y - 1) * (X @ W.T + b)).sum()
    return 0.5 * float((W**2).sum() + (b**2).sum()) + float(losses)


def spread_labels(Y: np.ndarray) -> np.ndarray:
    """At most `PEER_LABELS` labels, evenly spread over the order of their frequency."""
    order = np.argsort(Y.sum(axis=0), kind="stable")
    places = np.linspace(0, len(order) - 1, min(PEER_LABELS, len(order)))
    return np.sort(order[np.round(places).astype(int)])


def our_fits(kind: str, solver: str, X: Any, Y: np.ndarray) -> tuple[dict[str, Any], MultiLabelSVC]:
    """CPU seconds and gap of one of our solvers over several orders, and the last model."""
    kernel = "rbf" if kind == "rbf" else "linear"
    # Nothing but the clock ends a fit before its gap.
    model = MultiLabelSVC(kernel=kernel, solver=solver, cache_size=1000, max_iter=10**6, random_state=0)
    model.fit(X[:50], Y[:50])
    seconds, gaps = [], []
    for seed in range(SEEDS):
        model.set_params(random_state=seed).set_callbacks(CpuClock(OURS))
        seconds.append(timed(lambda: model.fit(X, Y))[0])
        gaps.append(model.duality_gap_)
    late = sum(gap > model.tol for gap in gaps)
    note = f"{late} of {SEEDS} fits ended by {OURS:g} CPU s" if late else ""
    return {**over_seeds(seconds), "gap": max(gaps), "excess": "", "note": note}, model


def over_seeds(seconds: list[float]) -> dict[str, Any]:
    return {"cpu_seconds": float(np.mean(seconds)), "spread": spread_of(seconds), "seeds": len(seconds)}


def peer_fits(kind: str, X: Any, Y: np.ndarray) -> tuple[list[float], list[Any]]:
    """CPU seconds of one scikit-learn machine per label, and the models of the last run."""
    kernel = "rbf" if kind == "rbf" else "linear"
    machines: list[Any] = [SVC(kernel=kernel, cache_size=1000)]
    if kind == "linear":
        common = {"loss": "hinge", "tol": 0.01, "max_iter": 10**4}
        machines = [LinearSVC(random_state=seed, **common) for seed in range(SEEDS)]
    runs = [timed(lambda: per_label(partial(clone, machine), X, Y)) for machine in machines]  # noqa: B023
    return [seconds for seconds, _ in runs], runs[-1][1]


def block(name: str, kind: str, sizes: tuple[int, ...]) -> Iterator[dict]:
    """All solvers of one kind of model on one data set, row by row."""
    solvers = {"linear": ("dca", "auto"), "linear kernel": ("smo",), "rbf": ("smo", "auto")}[kind]
    peer = "LinearSVC per label" if kind == "linear" else "SVC per label"
    slow: set[str] = set()
    model = None
    n = len(samples(name)[1])
    for size in dict.fromkeys(min(size, n) for size in sizes):
        X, Y = samples(name, size)
        for solver in (*solvers, peer):
            columns = ("cpu_seconds", "spread", "seeds", "gap", "excess", "note")
            found: dict[str, Any] = dict.fromkeys(columns, "") | {"cpu_seconds": "too slow with fewer"}
            timed_labels = Y.shape[1]
            if solver not in slow and solver == peer:
                some = spread_labels(Y)
                timed_labels = len(some)
                seconds, models = peer_fits(kind, X, Y[:, some])
                above = excess(models, X, Y[:, some], model, some) if model and kind == "linear" else ""
                found |= over_seeds([one * Y.shape[1] / len(some) for one in seconds]) | {"excess": above}
            elif solver not in slow:
                found, model = our_fits(kind, solver, X, Y)
            if solver == peer and isinstance(found["cpu_seconds"], float) and found["cpu_seconds"] > MOST:
                slow.add(solver)
            column = COLUMNS.get((kind, solver))
            paper = PAPER[name][column] if column is not None and name in PAPER else ""
            row = {"data": name, "kind": kind, "samples": len(Y), "labels": Y.shape[1], "solver": solver}
            yield {**row, **found, "labels_timed": timed_labels, "paper_seconds_at_2000": paper}


def over_time() -> list[dict]:
    """What `dca` and `auto` reach on RCV1 at falling tolerances, means over the orders of the samples."""
    data = _data.load("rcv1-subsets")
    Y = data.Y.toarray() if sp.issparse(data.Y) else np.asarray(data.Y)
    train = data.train[:500] if SMALL else data.train
    X, X_test, Y_test = data.X[train], data.X[data.test], Y[data.test]
    rows = [
        {
            "solver": "constant: no topic", "tol": "", "seeds": "", "cpu_seconds": 0.0, "cpu_spread": "",
            "dual": "", "gap": "", "train_percent": 100 * float(Y[train].mean()),
            "test_percent": 100 * float(Y_test.mean()), "test_spread": "",
        }
    ]  # fmt: skip
    for solver in ("dca", "auto"):
        MultiLabelSVC(solver=solver).fit(X[:200], Y[train][:200])
        for tol in (0.3, 0.1, 0.03, 0.01, 1e-3):
            runs = []
            for seed in range(SEEDS):
                model = MultiLabelSVC(solver=solver, tol=tol, random_state=seed)
                seconds, _ = timed(lambda: model.fit(X, Y[train]))  # noqa: B023
                wrong = [
                    100 * float(np.mean(model.predict(Z) != T)) for Z, T in ((X, Y[train]), (X_test, Y_test))
                ]
                runs.append((seconds, model.dual_objective_, model.duality_gap_, *wrong))
            means = np.mean(runs, axis=0).tolist()
            columns = ("cpu_seconds", "dual", "gap", "train_percent", "test_percent")
            spreads = {
                "cpu_spread": spread_of([run[0] for run in runs]),
                "test_spread": spread_of([run[-1] for run in runs]),
            }
            row = {"solver": solver, "tol": tol, "seeds": SEEDS}
            rows.append(row | dict(zip(columns, means, strict=True)) | spreads)
    return rows


def main() -> None:
    parser = command_line(__doc__)
    known = (*SETS, "over_time")
    sizes = {"linear": LINEAR_SIZES, "linear kernel": KERNEL_SIZES, "rbf": KERNEL_SIZES}
    parser.add_argument("data", nargs="*", type=one_of(known), help=f"of {', '.join(known)} (table 2)")
    parser.add_argument("--kinds", type=several_of(list(sizes)), default=list(sizes), help="of table 1")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.data or (("yeast", "over_time") if SMALL else known):
        state = f"{machine_state().removeprefix(machine())[2:]}, CPU seconds"
        if name == "over_time":
            write("rcv1_over_time", over_time(), ("solver", "tol"), conditions=state)
            continue
        for kind in options.kinds:
            for row in block(name, kind, sizes[kind]):
                write("training_times", [row], ("data", "kind", "samples", "solver"), conditions=state)


if __name__ == "__main__":
    main()
