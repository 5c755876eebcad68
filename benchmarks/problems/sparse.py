"""Races of the sparse machines: training on letter, prediction of a million poker hands.

letter    training: 15,000 x 16, 26 classes, 180 basis vectors
poker     prediction: 1,000,000 hands, 100 basis vectors, 10 classes

One core and one BLAS thread each. gamma (1/8, 1/2, 2, 8 times 1/n_features) and C (1, 10, 100) are chosen
before the timing by 2-fold cross-validation on `TUNING` random training samples, with at most `TUNING_BASIS`
basis vectors; SVC is tuned on the same folds. Every time is the median of three runs, each in its own process
after a small run that compiles. `peak_mib` is the growth of that process, and `rows_and_scores_mib` the
memory of basis rows and scores alone.

SVC predicts `SAMPLE` hands and its time is scaled to all. It is trained on all hands, and on the fewest (of
n/32, n/16, ..., n) with which it is as accurate as the sparse machine, or closest to it. Results:
sparse_letter.csv and sparse_poker.csv.

`benchmarks/tried/sparse.md` lists what was tried.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from benchmarks.peers import svc
from benchmarks.race import Competitor, Result, Row, Setting, race, save
from maxmargin import SparseMultiClassSVC, datasets

REPEATS = 3
TUNING, TUNING_BASIS = 5000, 100
SAMPLE = 20_000
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def letters() -> Split:
    train, test = datasets.load("letter", split="train"), datasets.load("letter", split="test")
    return train.X, train.y, test.X, test.y


def hands(n: int) -> Split:
    """The training hands, and so many drawn by the rules of the game."""
    from experiments.data.poker import draw_hands

    train = datasets.load("poker", split="train")
    return train.X, train.y, *draw_hands(n, random_state=1)


def toy(n: int, n_test: int) -> Split:
    """Three overlapping clouds."""
    rng = np.random.default_rng(0)
    y = np.arange(n + n_test) % 3
    X = rng.normal(size=(3, 4))[y] + rng.normal(size=(n + n_test, 4))
    return X[:n], y[:n], X[n:], y[n:]


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


def row(title: str, method: str, machine: Any, result: Result, **numbers: Any) -> Row:
    run = result.middle
    taken = {"seconds": run.seconds, "warm_seconds": run.warm_seconds, "peak_mib": run.peak_mib}
    taken = {name: round(value, 4) for name, value in taken.items()}
    chosen = {"gamma": machine.gamma, "C": machine.C}
    return {"race": title, "method": method, "threads": 1, **numbers, **taken, **chosen}


def letter(setting: Setting) -> None:
    """Training time of SMSVM at 180 basis vectors, in both precisions."""
    data, y, test, truth = toy(120, 60) if setting.small else letters()
    d, scaler = 5 if setting.small else 180, StandardScaler().fit(data)
    machine = sparse_machine(d, scaler.transform(data), y)
    tiny = SparseMultiClassSVC(max_basis=min(d, 15), rel_tol=0, gamma=machine.gamma, C=machine.C)
    rows = []
    for kind in (np.float32, np.float64):
        X, T = scaler.transform(data).astype(kind), scaler.transform(test).astype(kind)
        name = f"SMSVM {np.dtype(kind)}"
        trainer = Competitor(name, partial(machine.fit, X, y), partial(tiny.fit, X[:500], y[:500]))
        result = race([trainer], setting.times(REPEATS))[name]
        fitted = result.middle.answer
        needed = len(y) * (fitted.n_basis_ * X.itemsize + 8 * len(fitted.classes_)) / 2**20
        rows.append(
            row(
                "letter training",
                name,
                machine,
                result,
                n=len(y),
                vectors=fitted.n_basis_,
                accuracy=100 * fitted.score(T, truth),
                gap=fitted.duality_gap_,
                rows_and_scores_mib=round(needed, 1),
            )
        )
    save(setting, "sparse_letter", rows)


def poker(setting: Setting) -> None:
    """Seconds to classify a million hands, against SVC at its own and at equal accuracy."""
    data, y, test, truth = toy(160, 400) if setting.small else hands(1_000_000)
    scaler = StandardScaler().fit(data)
    X, T = (scaler.transform(part).astype(np.float32) for part in (data, test))
    machine = sparse_machine(5 if setting.small else 100, X, y).fit(X, y)
    ours = Competitor("SMSVM", partial(machine.predict, T), partial(machine.predict, T[:1000]))
    result = race([ours], setting.times(REPEATS))["SMSVM"]
    accuracy = float((result.answer == truth).mean())
    needed = len(T) * len(machine.classes_) * T.itemsize / 2**20
    rows = [
        row(
            "poker inference",
            "SMSVM",
            machine,
            result,
            n=len(T),
            vectors=machine.n_basis_,
            accuracy=100 * accuracy,
            gap=machine.duality_gap_,
            rows_and_scores_mib=round(needed, 1),
        )
    ]
    sample = T[:SAMPLE]
    best = tuned(svc.machine(cache_size=500), X, y).get_params()
    sizes = [len(y) >> shift for shift in range(5, -1, -1)]
    peers = {size: svc.machine(**best).fit(X[:size], y[:size]) for size in sizes}
    scores = {size: float((peer.predict(sample) == truth[:SAMPLE]).mean()) for size, peer in peers.items()}
    as_good = [size for size, score in scores.items() if score >= accuracy]
    equal = as_good[0] if as_good else max(scores, key=lambda size: scores[size])
    chosen = {"SVC": len(y), "SVC at equal accuracy" if as_good else "SVC at its best": equal}
    results = race(
        [
            Competitor(name, partial(peers[size].predict, sample), partial(peers[size].predict, T[:100]))
            for name, size in chosen.items()
        ],
        setting.times(REPEATS),
    )
    for name, size in chosen.items():
        found = row(
            "poker inference",
            name,
            peers[size],
            results[name],
            n=len(T),
            vectors=len(peers[size].support_),
            accuracy=100 * scores[size],
        )
        found["seconds"] = round(found["seconds"] * len(T) / len(sample), 4)
        rows.append(found | {"times_slower": round(found["seconds"] / rows[0]["seconds"], 1)})
    save(setting, "sparse_poker", rows)


RACES = {"letter": letter, "poker": poker}
