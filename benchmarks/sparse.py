"""Races of the sparse machines: training on letter, inference on a million poker hands.

    python -m benchmarks.sparse letter          # training: 15,000 x 16, 26 classes, 180 basis vectors
    python -m benchmarks.sparse poker           # inference: 1,000,000 hands, 100 basis vectors, 10 classes
    python -m benchmarks.sparse --small         # both at a toy size, to see that they run

Set OPENBLAS_NUM_THREADS=1 for the single-thread numbers. gamma (1/8, 1/2, 2, 8 times 1/n_features)
and C (1, 10, 100) are chosen, before anything is timed, by 2-fold cross-validation on `TUNING`
training samples drawn at random, with at most `TUNING_BASIS` basis vectors; SVC is tuned on the
same folds for itself. Every time is the median of `REPEATS` runs, each in a process of its own after
a small run that compiles, which is reported apart; `peak_mib` is how far the memory of that process
rose, beside `rows_and_scores_mib`, what the basis rows and the scores alone need.

SVC predicts `SAMPLE` hands and its time is scaled to all. It is timed as trained on all hands, and
on the fewest (of n/32, n/16, ..., n) with which it is as accurate as the sparse machine, or on those
with which it comes closest. Results go to results/sparse_letter.csv and results/sparse_poker.csv.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.measure import run_alone, write_csv
from experiments.data.poker import draw_hands
from maxmargin import SparseMultiClassSVC, datasets

REPEATS = 3
TUNING, TUNING_BASIS = 5000, 100
SAMPLE = 20_000


def tuned(machine: Any, X: np.ndarray, y: np.ndarray) -> Any:
    """The machine with gamma and C chosen by cross-validation on a part of the training samples."""
    keep = np.random.default_rng(0).permutation(len(y))[:TUNING]
    grid = {"gamma": [g / X.shape[1] for g in (0.125, 0.5, 2.0, 8.0)], "C": [1.0, 10.0, 100.0]}
    folds = StratifiedKFold(2, shuffle=True, random_state=1)
    return machine.set_params(
        **GridSearchCV(machine, grid, cv=folds, refit=False).fit(X[keep], y[keep]).best_params_
    )


def sparse_machine(d: int, X: np.ndarray, y: np.ndarray) -> SparseMultiClassSVC:
    machine = SparseMultiClassSVC(max_basis=min(d, TUNING_BASIS), rel_tol=0, random_state=0)
    return tuned(machine, X, y).set_params(max_basis=d)


def repeated(action: Callable[[], Any], warm: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """The run with the median time."""
    reports = [run_alone(action, warm) for _ in range(repeats)]
    return sorted(reports, key=lambda report: report["seconds"])[len(reports) // 2]


def row(race: str, method: str, machine: Any, report: dict[str, Any], **numbers: Any) -> dict[str, Any]:
    keep = {name: round(report[name], 4) for name in ("seconds", "warm_seconds", "peak_mib")}
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    chosen = {"gamma": machine.gamma, "C": machine.C}
    return {"race": race, "method": method, "threads": threads, **numbers, **keep, **chosen}


def letter(small: bool) -> list[dict[str, Any]]:
    """Training time of SMSVM at 180 basis vectors, in both precisions."""
    train, test = datasets.load("letter", split="train"), datasets.load("letter", split="test")
    n, d, repeats = (600, 12, 1) if small else (len(train.y), 180, REPEATS)
    scaler, y = StandardScaler().fit(train.X), train.y[:n]
    machine = sparse_machine(d, scaler.transform(train.X[:n]), y)
    tiny = SparseMultiClassSVC(max_basis=15, rel_tol=0, gamma=machine.gamma, C=machine.C)
    rows = []
    for kind in (np.float32, np.float64):
        X, T = scaler.transform(train.X[:n]).astype(kind), scaler.transform(test.X).astype(kind)
        report = repeated(partial(machine.fit, X, y), partial(tiny.fit, X[:500], y[:500]), repeats)
        fitted = report["answer"]
        needed = n * (fitted.n_basis_ * X.itemsize + 8 * len(fitted.classes_)) / 2**20
        rows.append(row("letter training", f"SMSVM {np.dtype(kind)}", machine, report, n=n,
                        vectors=fitted.n_basis_, accuracy=100 * fitted.score(T, test.y),
                        gap=fitted.duality_gap_, rows_and_scores_mib=round(needed, 1)))  # fmt: skip
    return rows


def poker(small: bool) -> list[dict[str, Any]]:
    """Seconds to classify a million hands, against SVC at its own and at equal accuracy."""
    train = datasets.load("poker", split="train")
    X_test, y_test = draw_hands(20_000 if small else 1_000_000, random_state=1)
    scaler = StandardScaler().fit(train.X)
    X, T = (scaler.transform(part).astype(np.float32) for part in (train.X, X_test))
    n, d, repeats = (1000, 20, 1) if small else (len(X), 100, REPEATS)
    X, y = X[:n], train.y[:n]
    machine = sparse_machine(d, X, y).fit(X, y)
    report = repeated(partial(machine.predict, T), partial(machine.predict, T[:1000]), repeats)
    accuracy = float((report["answer"] == y_test).mean())
    needed = len(T) * len(machine.classes_) * T.itemsize / 2**20
    rows = [row("poker inference", "SMSVM", machine, report, n=len(T), vectors=machine.n_basis_,
                accuracy=100 * accuracy, gap=machine.duality_gap_,
                rows_and_scores_mib=round(needed, 1))]  # fmt: skip
    sample, truth = T[:SAMPLE], y_test[:SAMPLE]
    best = tuned(SVC(cache_size=500), X, y).get_params()
    peers = {size: SVC(**best).fit(X[:size], y[:size]) for size in (n >> shift for shift in range(5, -1, -1))}
    scores = {size: float((peer.predict(sample) == truth).mean()) for size, peer in peers.items()}
    as_good = [size for size, score in scores.items() if score >= accuracy]
    equal = as_good[0] if as_good else max(scores, key=lambda size: scores[size])
    for method, size in (("SVC", n), ("SVC at equal accuracy" if as_good else "SVC at its best", equal)):
        report = repeated(
            partial(peers[size].predict, sample), partial(peers[size].predict, T[:100]), repeats
        )
        report["seconds"] *= len(T) / len(sample)
        rows.append(row("poker inference", method, peers[size], report, n=len(T),
                        vectors=len(peers[size].support_), accuracy=100 * scores[size],
                        times_slower=round(report["seconds"] / rows[0]["seconds"], 1)))  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("races", nargs="*", default=["letter", "poker"])
    parser.add_argument("--small", action="store_true", help="toy sizes; nothing is written")
    options = parser.parse_args()
    for race in options.races:
        started = time.perf_counter()
        rows = {"letter": letter, "poker": poker}[race](options.small)
        for found in rows:
            print({k: round(v, 6) if isinstance(v, float) else v for k, v in found.items()}, flush=True)
        print(f"{race}: {time.perf_counter() - started:.0f} s in all", flush=True)
        if not options.small:
            write_csv(f"sparse_{race}", rows)


if __name__ == "__main__":
    main()
