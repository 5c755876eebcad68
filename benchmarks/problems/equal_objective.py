"""Small tables at equal objective: seconds until LinearSVC has an objective as good as ours.

multiclass  MultiClassSVC() beside LinearSVC(multi_class="crammer_singer")
multilabel  MultiLabelSVC() on one 0/1 column per class beside LinearSVC(loss="hinge"), one-vs-rest
rbf         MultiClassSVC(kernel="rbf") beside LinearSVC(multi_class="crammer_singer") on the eigenvectors of
            the kernel matrix, the only way to this objective in scikit-learn

The tables of `defaults`, raw and, if dense, standardised. LinearSVC is fitted with decreasing `tol` until its
objective, computed from its coefficients, is as small as ours or within 1e-3 of our dual objective; the
column `tol` has the last value. ">" marks a fit that was stopped after `MOST` times our seconds. LinearSVC()
or SVC() with default parameters is shown for comparison; its objective is another one. CPU seconds of one
thread, the minimum of as many fits as take `LEAST` seconds, in turns. Results: equal_objective_<race>.csv.
"""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import label_binarize
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from benchmarks.problems.defaults import Table, multiclass_table, toy
from benchmarks.race import Row, Setting, machine, save
from maxmargin import MultiClassSVC, MultiLabelSVC

TABLES = (
    "iris", "wine", "breast_cancer", "glass", "vowel", "vehicle", "digits", "segment", "satimage", "letter",
    "shuttle", "dna",
)  # fmt: skip
# Tables of which all eigenvectors of the kernel matrix are a matter of seconds.
SMALL = TABLES[:8]
TOLS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 1e-5, 1e-6)
MOST = 20
LEAST = 0.3
# A fit may always take so many seconds.
MOMENT = 0.2
Objective = Callable[[Any, Any, np.ndarray], float]


def crammer_singer(model: Any, X: Any, y: np.ndarray) -> float:
    """Half the squared weights and biases, and every sample's largest violation; two classes have one row."""
    W = np.column_stack([model.coef_, model.intercept_])
    if len(W) == 1:
        W = np.vstack([-W, W]) / 2
    scores = X @ W[:, :-1].T + W[:, -1]
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] -= 1
    return float(0.5 * (W**2).sum() + (scores + 1 - own[:, None]).max(axis=1).sum())


def one_vs_rest(model: Any, X: Any, y: np.ndarray) -> float:
    """Half the squared weights and biases, and the violations of every sample and class."""
    W = np.column_stack([model.coef_, model.intercept_])
    signs = 2 * label_binarize(y, classes=np.arange(y.max() + 1)) - 1
    return float(0.5 * (W**2).sum() + np.maximum(0, 1 - signs * (X @ W[:, :-1].T + W[:, -1])).sum())


class LinearOnKernel(BaseEstimator):
    """LinearSVC's Crammer-Singer machine on rows whose products are RBF kernel values plus a bias."""

    def __init__(self, tol: float = 1e-4) -> None:
        self.tol = tol

    def fit(self, X: np.ndarray, y: np.ndarray) -> LinearOnKernel:
        values, vectors = np.linalg.eigh(1 + rbf_kernel(X, gamma=1 / (X.shape[1] * X.var())))
        self.rows_ = vectors * np.sqrt(np.maximum(values, 0))
        machine = LinearSVC(multi_class="crammer_singer", fit_intercept=False, tol=self.tol, random_state=0)
        machine.fit(self.rows_, y)
        self.coef_, self.intercept_ = machine.coef_, np.zeros(len(machine.coef_))
        return self


def with_kernel(model: Any, X: Any, y: np.ndarray) -> float:
    """Return our certified objective, and that of the peer from its rows."""
    if isinstance(model, MultiClassSVC):
        return model.primal_objective_
    return crammer_singer(model, model.rows_, y)


def seconds(model: Any, X: Any, y: np.ndarray) -> float:
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def shortest(models: Sequence[Any], data: Sequence[tuple[Any, np.ndarray]]) -> list[float]:
    """Of every model the least seconds of its fits, which take turns until each has had `LEAST` seconds."""
    spent: list[list[float]] = [[] for _ in models]
    while min(sum(times) for times in spent) < LEAST:
        for model, (X, y), times in zip(models, data, spent, strict=True):
            if sum(times) < LEAST:
                times.append(seconds(model, X, y))
    return [min(times) for times in spent]


def within(model: Any, table: Table, objective: Objective, allowed: float) -> tuple[float, float] | None:
    """Seconds and objective of a fit in a process of its own; None if it is stopped for its time."""
    here, there = mp.Pipe(duplex=False)

    def work() -> None:
        spent = seconds(model, table.X, table.y)
        there.send((spent, objective(model, table.X, table.y)))

    child = mp.get_context("fork").Process(target=work)
    child.start()
    report = here.recv() if here.poll(allowed) else None
    child.terminate()
    child.join()
    return report


def as_good(peer: Any, table: Table, objective: Objective, ours: Any, allowed: float) -> float | None:
    """Return the largest `tol` with which the peer is as good as ours, or None if that takes too long."""
    enough = max(objective(ours, table.X, table.y), ours.dual_objective_ * (1 + 1e-3))
    for tol in TOLS:
        found = within(clone(peer).set_params(tol=tol), table, objective, allowed)
        if found is None:
            return None
        if found[1] <= enough:
            return tol
    return None


def race(
    name: str,
    ours: Any,
    peer: Any,
    plain: Any,
    objective: Objective,
    setting: Setting,
    *,
    tables: Sequence[str] = TABLES,
) -> None:
    """Every table, raw and scaled."""
    rows: list[Row] = []
    known = [toy(several=False)] if setting.small else (multiclass_table(table) for table in tables)
    with threadpool_limits(1):
        for raw in known:
            for table in [raw] if sp.issparse(raw.X) else [raw, raw.scaled()]:
                rows.append(row(table, ours, peer, plain, objective))
                print("  ", rows[-1], flush=True)
    save(setting, f"equal_objective_{name}", rows)


def row(table: Table, ours: Any, peer: Any, plain: Any, objective: Objective) -> Row:
    columns = label_binarize(table.y, classes=np.arange(table.y.max() + 1))
    own = (table.X, table.y)
    data = (table.X, columns) if isinstance(ours, MultiLabelSVC) else own
    ours.fit(*data)  # compiles
    allowed = max(MOST * seconds(ours, *data), MOMENT)
    tol = as_good(peer, table, objective, ours, allowed)
    if tol is None:
        mine, untuned = shortest([ours, plain], [data, own])
        its, mark, sign = allowed, ">", "<"
    else:
        mine, its, untuned = shortest([ours, clone(peer).set_params(tol=tol), plain], [data, own, own])
        mark = sign = ""
    return {
        "data": table.name, "prep": table.prep, "n": len(table.y), "features": table.X.shape[1],
        "classes": int(table.y.max()) + 1, "ours": f"{mine:.3g}", "gap": f"{ours.duality_gap_:.1e}",
        "peer": f"{mark}{its:.3g}", "tol": "" if tol is None else tol, "ratio": f"{sign}{mine / its:.2f}",
        f"{type(plain).__name__}()": f"{untuned:.3g}", "machine": machine(),
    }  # fmt: skip


RACES = {
    "multiclass": partial(
        race, "multiclass", MultiClassSVC(random_state=0),
        LinearSVC(multi_class="crammer_singer", random_state=0), LinearSVC(random_state=0), crammer_singer,
    ),
    "multilabel": partial(
        race, "multilabel", MultiLabelSVC(random_state=0),
        LinearSVC(loss="hinge", max_iter=10**7, random_state=0), LinearSVC(random_state=0), one_vs_rest,
    ),
    "rbf": partial(
        race, "rbf", MultiClassSVC(kernel="rbf", random_state=0), LinearOnKernel(), SVC(), with_kernel,
        tables=SMALL,
    ),
}  # fmt: skip
