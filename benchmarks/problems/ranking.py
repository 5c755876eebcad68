"""Races of online rankers: rounds per second, errors, growth, memory.

race      learners on the shipped mail stream, and on the Enron mailboxes if MAXMARGIN_DATA has them
slow      slow peers on the first 1,000 rows of each, and ours on the same rows
peers     errors of other learners with their default parameters on every mailbox, and their course
growth    rounds per second as words, labels and rounds grow, and peak memory

One thread. Every learner receives the same rows in the same order and predicts before it learns. Medians of
five runs, learners in turns, each in its own process; the first call (compilation) is reported separately.
Results: ranking_race.csv, ranking_peers.csv, ranking_growth.csv and plots of the last two.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import nothing, ours, river, sgd, vowpalwabbit
from benchmarks.race import Competitor, Panel, Row, Setting, lines, plot, race, save
from maxmargin import LabelRanker
from maxmargin.datasets import load

REPEATS = 5
MAILBOXES = ("beck-s", "farmer-d", "kitchen-l", "lokay-m", "williams-w3")
FIRST = 1000  # rows of the slow learners
CHUNK = 10_000  # rounds per call of partial_fit where a stream is generated
UPDATES = ("fixed", "worst_pair", "all_pairs")
# Entropy: the setting that experiments/ranking.py finds on most mailboxes.
ENTROPY = {"C": 1.0, "margin": 0.003}
FAST = {
    "null": nothing.learn,
    "LabelRanker()": ours.learn,
    **{f"squared/{update}": partial(ours.learn, update=update, weighting=None) for update in UPDATES},
    "squared/all_pairs, rows of unit length": partial(ours.learn, unit=True, weighting=None),
    "squared/all_pairs, weighting=idf": partial(ours.learn, weighting="idf"),
    "squared/all_pairs, weighting=sqrt-idf": partial(ours.learn, weighting="sqrt-idf"),
    **{
        f"entropy/{update}": partial(ours.learn, update=update, regulariser="entropy", **ENTROPY)
        for update in UPDATES
    },
    "squared/all_pairs, pdip": partial(ours.learn, solver="pdip", weighting=None),
    "vw --oaa, parsed examples": vowpalwabbit.learn,
    "vw --oaa, with parsing": partial(vowpalwabbit.learn, parsing=True),
    "vw --oaa, parsed examples, rows weighed by idf": partial(vowpalwabbit.learn, weighed=True),
}
SLOW = {
    "LabelRanker()": ours.learn,
    "LabelRanker(), row by row": ours.learn_row_by_row,
    "StreamRanker(), dictionaries": ours.learn_dictionaries,
    "scikit-learn SGD pa1, row by row": sgd.learn,
    "river PA-I one-vs-rest": river.learn,
    "vw --csoaa_ldf, parsed examples": vowpalwabbit.learn_crossed,
}
OTHERS = {
    "scikit-learn SGD pa1": sgd.learn,
    "River PA-I one-vs-rest": river.learn,
    "Vowpal Wabbit --oaa": vowpalwabbit.learn,
    "Vowpal Wabbit --csoaa_ldf": vowpalwabbit.learn_crossed,
}


def competitors(learners: dict[str, Any], X: Any, y: np.ndarray) -> list[Competitor]:
    """Learners on a stream; each answers with its own seconds and with its mistakes."""
    k = int(y.max()) + 1
    found = []
    for name, learn in learners.items():
        kind = name.partition(" ")[0].lower()
        needs = {"vw": vowpalwabbit.NEEDS, "vowpal": vowpalwabbit.NEEDS, "river": river.NEEDS}.get(kind, ())
        found.append(Competitor(name, partial(learn, X, y, k), partial(learn, X[:2], y[:2], k), needs=needs))
    return found


def stream(name: str) -> tuple[Any, np.ndarray]:
    data = load(name)
    return data.X, np.unique(data.Y, return_inverse=True)[1]


def mailboxes(setting: Setting) -> list[str]:
    here = bool(os.environ.get("MAXMARGIN_DATA")) and not setting.small
    return [f"enron-folders/{user}" for user in MAILBOXES] if here else []


def learners(entries: dict[str, Any], part: bool, setting: Setting) -> None:
    """All of every stream, or a part: its first rounds."""
    rows: list[Row] = []
    for name in ["mail-stream", *mailboxes(setting)]:
        X, y = synthetic(120, 10, 4) if setting.small else stream(name)
        n = min(FIRST, len(y) // 2) if part else len(y)
        for learner, result in race(competitors(entries, X[:n], y[:n]), setting.times(REPEATS)).items():
            seconds = float(np.median([run.answer[0] for run in result.runs]))
            rows.append(
                {
                    "stream": f"{name}, first {n}" if part else name,
                    "learner": learner,
                    "rounds": n,
                    "labels": int(y[:n].max()) + 1,
                    "nonzeros": round(X[:n].nnz / n, 1),
                    "rounds_per_second": round(n / seconds),
                    "error_percent": round(100 * float(np.mean(result.answer[1])), 2),
                    "first_call_seconds": round(result.first_call, 2),
                }
            )
    save(setting, "ranking_race", rows, ("stream", "learner"))


def others(setting: Setting) -> None:
    """Measure the errors of the peers on whole mailboxes, and plot them beside our default ranker."""
    rows: list[Row] = []
    panels = []
    for name in mailboxes(setting) or ["mail-stream"]:
        X, y = synthetic(120, 10, 4) if setting.small else stream(name)
        user = name.rpartition("/")[2]
        found = race(competitors({"LabelRanker()": ours.learn, **OTHERS}, X, y), 1)
        so_far = {}
        for learner, result in found.items():
            wrong = np.asarray(result.answer[1])
            so_far[learner] = (np.arange(1, len(y) + 1), 100 * np.cumsum(wrong) / np.arange(1, len(y) + 1))
            error = round(100 * float(wrong.mean()), 1)
            rows.append({"user": user, "learner": learner, "error_percent": error})
        panels.append(Panel("rounds", "mistakes so far, %", so_far, user, log=False))
    save(setting, "ranking_peers", rows)
    plot(setting, "ranking_peers", [panels])


def synthetic(
    rounds: int, nonzeros: int, labels: int, n_features: int = 20_000, seed: int = 0
) -> tuple[Any, np.ndarray]:
    """Word presence with Zipf frequencies; every label prefers fifty words of its own."""
    rng = np.random.default_rng(seed)
    y = rng.integers(labels, size=rounds)
    base = np.minimum((rng.pareto(0.6, (rounds, nonzeros)) * 10).astype(np.int64), n_features - 1)
    own = (y[:, None] * 50 + rng.integers(50, size=(rounds, nonzeros))) % n_features
    columns = np.sort(np.where(rng.random((rounds, nonzeros)) < 0.2, own, base), axis=1)
    keep = np.diff(columns, axis=1, prepend=-1) > 0
    start = np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int32)
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


def growth(setting: Setting) -> None:
    """Rounds per second as nonzeros, labels and rounds grow, and how far memory rose above the start."""
    base = {"rounds": 200 if setting.small else 20_000, "nonzeros": 100, "labels": 100}
    sweeps = {
        "nonzeros": (10, 100) if setting.small else (10, 30, 100, 300, 1000),
        "labels": (10, 100) if setting.small else (2, 10, 30, 100, 300, 1000),
        "rounds": (100, 200) if setting.small else (1000, 10_000, 100_000, 1_000_000),
    }
    rows: list[Row] = []
    for axis, values in sweeps.items():
        for value in values:
            size = {**base, axis: value}
            entries = [
                Competitor(
                    f"{regulariser}/{update}",
                    partial(timed, update, regulariser, **size),
                    partial(timed, update, regulariser, 20, 5, 3),
                )
                for regulariser in ("squared", "entropy")
                for update in UPDATES
            ]
            repeats = 1 if value == 1_000_000 else setting.times(REPEATS)
            for name, result in race(entries, repeats).items():
                seconds = float(np.median([run.answer[0] for run in result.runs]))
                rows.append(
                    {
                        "axis": axis,
                        **size,
                        "learner": name,
                        "rounds_per_second": round(size["rounds"] / seconds),
                        "error_percent": round(result.answer[1], 2),
                        "peak_MiB": round(result.peak_mib),
                    }
                )
    save(setting, "ranking_growth", rows)
    panels = [
        Panel(axis, "rounds per second", lines(rows, axis, "rounds_per_second", "learner", axis=axis))
        for axis in sorted(sweeps)
    ]
    plot(setting, "ranking_growth", [panels])


RACES = {
    "race": partial(learners, FAST, False),
    "slow": partial(learners, SLOW, True),
    "peers": others,
    "growth": growth,
}
