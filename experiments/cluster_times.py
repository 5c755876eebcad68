"""Seconds of fits on a local Dask cluster, beside one process with as many threads.

RCV1, or generated rows as in `cluster_rounds`; linear, certified relative gap 1e-3. The rows are on the
workers before the clock starts. Peers, unless ``--ours`` is given: scikit-learn's one-vs-rest LinearSVC on
the same cluster through joblib; with ``--dask-ml`` (if installed) its `Incremental` around an SGDClassifier
per label, one pass over the partitions; with ``--spark`` (if pyspark and Java are installed) one LinearSVC
of Spark per label, as many at a time as there are workers, timed once after a fit of one label (use few
labels: each needs hundreds of jobs). The objective of the model with zero weights is 1. `worker_seconds`
are those of the busiest worker in the fastest fit; the ideal is one thread's seconds divided by the
workers. Writes ``experiments/results/cluster_times.csv``. Run it on an idle machine.

    MAXMARGIN_DATA=... python -m experiments.cluster_times [--workers 2] [--labels 0] [--dask-ml] [--spark]
    python -m experiments.cluster_times --generated 195316 --labels 103 --ours
    python -m experiments.cluster_times --generated 781265 --labels 103 --fits labels threads --repeats 0
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import joblib
import numpy as np
import scipy.sparse as sp
from dask import delayed
from distributed import Client, get_task_stream, wait
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

import maxmargin
from experiments import _data
from experiments._results import SMALL, command_line, show, write
from experiments.cluster_rounds import generated
from maxmargin import dask as on_cluster

TOL = 1e-3
# Our models, as the command line and as the table call them.
OURS = {
    "threads": "one process, threads",
    "thread": "one process, one thread",
    "labels": "cluster, labels",
    "rows": "cluster, rows",
}
# Each of them does a line search of about ten jobs.
SPARK_ITERATIONS = 20


def load(labels: int, n_generated: int | None) -> tuple[Any, np.ndarray]:
    """Return rows of length one, and the labels that are not constant."""
    if n_generated:
        X, signs = generated(n_generated, labels or 103)
        return X, (signs > 0).astype(np.int8)
    data = _data.load("rcv1-subsets", split="all")
    X = sp.csr_array(normalize(data.X.astype(np.float64)))
    Y = data.Y.toarray() if sp.issparse(data.Y) else np.asarray(data.Y)
    if SMALL:
        X, Y = X[:300], Y[:300, :8]
    Y = Y[:, (Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y))]
    return X, Y[:, :: max(1, Y.shape[1] // labels)] if labels else Y


class Fitted(NamedTuple):
    """A fit: its seconds, those of the busiest worker, and the model."""

    seconds: float
    worker_seconds: float
    model: Any


def timed(fit: Callable[[], Any]) -> Fitted:
    """The fit and what the workers did for it, which is nothing where they had no part in it."""
    with get_task_stream() as stream:
        start = time.perf_counter()
        model = fit()
        seconds = time.perf_counter() - start
    busy: dict[str, float] = {}
    for task in stream.data:
        for spell in task["startstops"]:
            if spell["action"] == "compute":
                busy[task["worker"]] = busy.get(task["worker"], 0.0) + spell["stop"] - spell["start"]
    return Fitted(seconds, max(busy.values(), default=0.0), model)


def fastest(fits: dict[str, Callable[[], Any]], repeats: int) -> Iterator[tuple[str, Fitted]]:
    """The fastest fit of every kind, in turns, after one that does not count (0: one that does)."""
    turns = [{name: timed(fit) for name, fit in fits.items()} for _ in range(repeats + 1)]
    for name in fits:
        yield name, min((turn[name] for turn in turns[min(repeats, 1) :]), key=lambda one: one.seconds)


def objective(model: Any, X: Any, Y: np.ndarray) -> float:
    """1/2 |W|^2 and the hinge losses at C = 1, biases included, as a part of that of W = 0."""
    heads = getattr(model, "estimators_", None)
    heads = getattr(model, "heads", [model] if heads is None else heads)
    W = np.vstack([head.coef_ for head in heads])
    b = np.concatenate([np.ravel(head.intercept_) for head in heads])
    hinge = np.maximum(1.0 - np.where(Y > 0, 1.0, -1.0) * (X @ W.T + b), 0.0)
    return float(0.5 * (np.sum(W**2) + np.sum(b**2)) + hinge.sum()) / Y.size


class Head(NamedTuple):
    """The weights and the bias of one label, under scikit-learn's names."""

    coef_: np.ndarray
    intercept_: float


class PerLabel:
    """Models of single labels."""

    def __init__(self, heads: list[Any]) -> None:
        self.heads = heads


def incremental(parts: list[Any], shape: tuple[int, int], Y: np.ndarray) -> PerLabel:
    """dask-ml's pass over the partitions with stochastic gradients, label by label."""
    import dask.array as da
    from dask_ml.wrappers import Incremental
    from sklearn.linear_model import SGDClassifier

    cuts = [len(rows) for rows in np.array_split(np.arange(shape[0]), len(parts))]
    meta = sp.csr_array((0, shape[1]))
    blocks = [da.from_delayed(part[0], (n, shape[1]), meta=meta) for part, n in zip(parts, cuts, strict=True)]
    X = da.concatenate(blocks, axis=0)
    heads = []
    for column in Y.T:
        sgd = SGDClassifier(loss="hinge", alpha=1.0 / shape[0], random_state=0)
        y = da.from_array(column, chunks=(tuple(cuts),))
        heads.append(Incremental(sgd).fit(X, y, classes=[0, 1]).estimator_)
    return PerLabel(heads)


@contextmanager
def spark_fit(X: Any, Y: np.ndarray, workers: int) -> Iterator[Callable[[int], PerLabel]]:
    """What learns so many labels with Spark's LinearSVC, from rows that it has read."""
    from pyspark.ml.classification import LinearSVC
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    session = SparkSession.builder.master(f"local[{workers}]").config(map=settings).getOrCreate()
    names = [f"label{k}" for k in range(Y.shape[1])]
    rows = (
        (Vectors.sparse(X.shape[1], X.indices[a:b].tolist(), X.data[a:b].tolist()), *map(float, y))
        for a, b, y in zip(X.indptr[:-1], X.indptr[1:], Y, strict=True)
    )
    frame = session.createDataFrame(rows, ["features", *names]).repartition(workers).cache()
    frame.count()

    def learn(name: str) -> Any:
        machine = LinearSVC(
            labelCol=name, regParam=1.0 / len(Y), standardization=False, maxIter=SPARK_ITERATIONS
        )
        fitted = machine.fit(frame)
        return Head(fitted.coefficients.toArray()[None], fitted.intercept)

    def fit(labels: int) -> PerLabel:
        with ThreadPoolExecutor(workers) as pool:
            return PerLabel(list(pool.map(learn, names[:labels])))

    yield fit
    session.stop()


def line(name: str, fitted: Fitted, X: Any, Y: np.ndarray, workers: int) -> dict[str, Any]:
    """A line of the table."""
    seconds, worker_seconds, model = fitted
    found = {
        "rows": len(Y),
        "labels": Y.shape[1],
        "workers": workers,
        "fit": name,
        "seconds": round(seconds, 3),
        "worker_seconds": round(worker_seconds, 3) if worker_seconds else "",
        "rounds": getattr(model, "n_iter_", ""),
        "gap": f"{model.duality_gap_:.3g}" if hasattr(model, "duality_gap_") else "",
        "objective": f"{objective(model, X, Y):.6f}",
    }
    show(found)
    return found


def keep(table: list[dict[str, Any]]) -> None:
    """Write lines of the table."""
    key = ("rows", "labels", "workers", "fit")
    write("cluster_times", table, key, conditions=f"load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--labels", type=int, default=0, help="so many of the labels, 0 for all")
    parser.add_argument("--generated", type=int, help="so many rows that are made here in place of RCV1")
    parser.add_argument("--ours", action="store_true", help="our models only")
    parser.add_argument("--fits", nargs="+", choices=OURS, default=list(OURS), help="some of our models only")
    parser.add_argument("--repeats", type=int, default=1 if SMALL else 3, help="0 times the first fit")
    parser.add_argument("--dask-ml", action="store_true", help="with its wrapper around stochastic gradients")
    parser.add_argument("--spark", action="store_true", help="with its LinearSVC")
    chosen = parser.parse_args()
    X, Y = load(chosen.labels, chosen.generated)
    with (
        on_cluster.local_cluster(chosen.workers) as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        cuts = np.array_split(np.arange(len(Y)), chosen.workers)
        workers = list(client.nthreads())
        places = [[workers[k % len(workers)]] for k in range(len(cuts))]
        shared = [
            client.scatter((X[rows], Y[rows]), workers=at) for rows, at in zip(cuts, places, strict=True)
        ]
        parts = [delayed(tuple)(one) for one in shared]
        parts = client.persist(parts)
        wait(parts)

        def one_vs_rest() -> Any:
            with joblib.parallel_backend("dask", client=client):
                return OneVsRestClassifier(LinearSVC(loss="hinge", tol=1e-3), n_jobs=chosen.workers).fit(X, Y)

        def here(n_jobs: int) -> Any:
            return maxmargin.MultiLabelSVC(tol=TOL, random_state=0, n_jobs=n_jobs).fit(X, Y)

        def there(partition: str) -> Any:
            model = on_cluster.MultiLabelSVC(tol=TOL, random_state=0, partition=partition)
            return model.fit(parts, client=client)

        ours: dict[str, Callable[[], Any]] = {
            "threads": lambda: here(chosen.workers),
            "thread": lambda: here(1),
            "labels": lambda: there("labels"),
            "rows": lambda: there("rows"),
        }
        fits = {OURS[name]: ours[name] for name in chosen.fits}
        if not chosen.ours and len(fits) == len(OURS):
            fits["cluster, scikit-learn one-vs-rest"] = one_vs_rest
        if chosen.dask_ml:
            fits["cluster, dask-ml Incremental"] = lambda: incremental(parts, X.shape, Y)
        keep([line(name, fit, X, Y, chosen.workers) for name, fit in fastest(fits, chosen.repeats)])
    if chosen.spark:
        with spark_fit(X, Y, chosen.workers) as fit:
            fit(1)
            start = time.perf_counter()
            model = fit(Y.shape[1])
            fitted = Fitted(time.perf_counter() - start, 0.0, model)
        keep([line("Spark, LinearSVC per label", fitted, X, Y, chosen.workers)])


if __name__ == "__main__":
    main()
