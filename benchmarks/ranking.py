"""Race of the online rankers: rounds per second, growth, memory.

    python -m benchmarks.ranking [--quick] [--out benchmarks/results]

One thread. Streams: the shipped mail stream, and the Enron mailboxes where MAXMARGIN_DATA has
them. Every learner sees the same rows in the same order and predicts before it learns; slow
peers get the first rows only, and the error of ours is given on the same rows. Medians of
--repeats runs, learners alternating; the first call (compilation) is reported apart.

Writes ranking_race.csv, ranking_growth.csv and ranking_growth.png.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import ranking_peers as peers
from benchmarks.measure import run_alone
from maxmargin import LabelRanker
from maxmargin.datasets import load

MAILBOXES = ("beck-s", "farmer-d", "kitchen-l", "lokay-m", "williams-w3")
CHUNK = 10000  # rounds per call of partial_fit where a stream is generated
# Entropy: the setting that experiments/ranking.py finds on most mailboxes.
ENTROPY = {"C": 1.0, "margin": 0.003}
FAST = {
    "null": peers.null,
    **{f"squared/{update}": peers.ours(update) for update in ("fixed", "worst_pair", "all_pairs")},
    "squared/all_pairs, rows of unit length": peers.ours(unit=True),
    "squared/all_pairs, weighting=idf": peers.ours(weighting="idf"),
    **{
        f"entropy/{update}": peers.ours(update, "entropy", **ENTROPY)
        for update in ("fixed", "worst_pair", "all_pairs")
    },
    "squared/all_pairs, pdip": peers.ours(solver="pdip"),
    "vw --oaa, parsed examples": peers.vowpal_wabbit(parsing=False),
    "vw --oaa, with parsing": peers.vowpal_wabbit(parsing=True),
    "vw --oaa, parsed examples, rows weighed by idf": peers.vowpal_wabbit(parsing=False, weighed=True),
}
SLOW = {
    "squared/all_pairs": peers.ours(),
    "squared/all_pairs, row by row": peers.ours_row_by_row,
    "squared/all_pairs, dictionaries": peers.ours_dictionaries,
    "scikit-learn SGD pa1, row by row": peers.scikit_learn,
    "river PA-I one-vs-rest": peers.river,
    "vw --csoaa_ldf, parsed examples": peers.vowpal_wabbit_ldf,
}


def race(stream: str, X: Any, y: np.ndarray, learners: dict[str, Any], repeats: int) -> list[dict[str, Any]]:
    """Every learner on the same rows, taking turns."""
    k = int(y.max()) + 1
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    first, errors = {}, {}
    for name, learner in learners.items():
        start = time.perf_counter()
        learner(X[:2], y[:2], k)
        first[name] = time.perf_counter() - start
    for _ in range(repeats):
        for name, learner in learners.items():
            spent, wrong = learner(X, y, k)
            seconds[name].append(spent)
            errors[name] = 100 * float(np.mean(wrong))
    return [
        {
            "stream": stream,
            "learner": name,
            "rounds": len(y),
            "labels": k,
            "nonzeros": round(X.nnz / len(y), 1),
            "rounds_per_second": round(len(y) / float(np.median(seconds[name]))),
            "error_percent": round(errors[name], 2),
            "first_call_seconds": round(first[name], 2),
        }
        for name in learners
    ]


def synthetic(
    rounds: int, nonzeros: int, labels: int, n_features: int = 20000, seed: int = 0
) -> tuple[Any, Any]:
    """Word presence with Zipf frequencies; every label prefers fifty words of its own."""
    rng = np.random.default_rng(seed)
    y = rng.integers(labels, size=rounds)
    base = np.minimum((rng.pareto(0.6, (rounds, nonzeros)) * 10).astype(np.int64), n_features - 1)
    own = (y[:, None] * 50 + rng.integers(50, size=(rounds, nonzeros))) % n_features
    columns = np.sort(np.where(rng.random((rounds, nonzeros)) < 0.2, own, base), axis=1)
    keep = np.diff(columns, axis=1, prepend=-1) > 0
    start = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    indices = columns[keep].astype(np.int32)
    X = sp.csr_array((np.ones(len(indices)), indices, start), shape=(rounds, n_features))
    return X, y


def timed(update: str, regulariser: str, rounds: int, nonzeros: int, labels: int) -> tuple[float, float]:
    """Seconds of learning on a stream that is drawn chunk by chunk, and the error in percent."""
    options = ENTROPY if regulariser == "entropy" else {}
    model = LabelRanker(update, regulariser, **options)
    seconds = 0.0
    for seed, start in enumerate(range(0, rounds, CHUNK)):
        X, y = synthetic(min(CHUNK, rounds - start), nonzeros, labels, seed=seed)
        started = time.perf_counter()
        model.partial_fit(X, y, classes=np.arange(labels))
        seconds += time.perf_counter() - started
    return seconds, 100 * model.n_mistakes_ / rounds


def growth(quick: bool, repeats: int) -> list[dict[str, Any]]:
    """Rounds per second as nonzeros, labels and rounds grow, and how far memory rose above the start."""
    base = {"rounds": 2000 if quick else 20000, "nonzeros": 100, "labels": 100}
    sweeps = {
        "nonzeros": (10, 100) if quick else (10, 30, 100, 300, 1000),
        "labels": (10, 100) if quick else (2, 10, 30, 100, 300, 1000),
        "rounds": (1000, 10000) if quick else (1000, 10000, 100000, 1000000),
    }
    rows = []
    for axis, values in sweeps.items():
        for value in values:
            size = {**base, axis: value}
            for regulariser in ("squared", "entropy"):
                for update in ("fixed", "worst_pair", "all_pairs"):
                    runs = [
                        run_alone(
                            partial(timed, update, regulariser, **size),
                            partial(timed, update, regulariser, 20, 5, 3),
                        )
                        for _ in range(1 if value == 1000000 else repeats)
                    ]
                    seconds = float(np.median([run["answer"][0] for run in runs]))
                    rows.append(
                        {
                            "axis": axis,
                            **size,
                            "learner": f"{regulariser}/{update}",
                            "rounds_per_second": round(size["rounds"] / seconds),
                            "error_percent": round(runs[-1]["answer"][1], 2),
                            "peak_MiB": round(max(run["peak_mib"] for run in runs)),
                        }
                    )
    return rows


def write(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = sorted({row["axis"] for row in rows})
    figure, panels = plt.subplots(1, len(axes), figsize=(4 * len(axes), 3.6), sharey=True)
    for panel, axis in zip(panels, axes, strict=True):
        for learner in dict.fromkeys(row["learner"] for row in rows):
            points = [row for row in rows if row["axis"] == axis and row["learner"] == learner]
            panel.loglog(
                [p[axis] for p in points], [p["rounds_per_second"] for p in points], "o-", label=learner
            )
        panel.set_xlabel(axis)
    panels[0].set_ylabel("rounds per second")
    panels[-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def run_race(streams: list[str], options: argparse.Namespace, repeats: int) -> None:
    """Every learner on every stream, printed and written."""
    rows = []
    for name in streams:
        data = load(name)
        y = np.unique(data.Y, return_inverse=True)[1]
        first = 150 if options.quick else 1000
        rows += race(name, data.X, y, FAST, repeats)
        rows += race(f"{name}, first {first}", data.X[:first], y[:first], SLOW, repeats)
        for row in rows:
            if row["stream"].startswith(name):
                rate, error = row["rounds_per_second"], row["error_percent"]
                print(f"{row['stream']:38s} {row['learner']:40s} {rate:>9} rounds/s  {error:6.2f} %")
    write(rows, options.out / "ranking_race.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repeat: to see that it works")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--growth", action="store_true", help="the growth alone, without the race")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    repeats = 1 if options.quick else options.repeats
    options.out.mkdir(parents=True, exist_ok=True)
    streams = ["mail-stream"]
    if os.environ.get("MAXMARGIN_DATA") and not options.quick:
        streams += [f"enron-folders/{user}" for user in MAILBOXES]
    if not options.growth:
        run_race(streams, options, repeats)
    rows = growth(options.quick, repeats)
    write(rows, options.out / "ranking_growth.csv")
    plot(rows, options.out / "ranking_growth.png")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
