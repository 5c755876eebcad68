"""Accuracy against the number of basis vectors: SMSVM, Nystroem + LinearSVC, SVC, the most frequent class.

    python -m experiments.sparse_tradeoff satimage
    python -m experiments.sparse_tradeoff letter

Standardised features, RBF kernel. gamma (1/8, 1/2, 2, 8 times 1/n_features) and C (1, 10, 100, 1000), and
beyond in steps of 4 and 10 while the best is at an end (`GAMMA`, `COST`), are chosen by 2-fold
cross-validation on `TUNING` training samples: for SMSVM with 60 basis vectors, for Nystroem with 60
landmarks, and from 250 landmarks on again with 350 (on letter with `MANY` samples, because fewer choose too
wide a kernel), and for SVC. The whole curve of SMSVM comes from one fit, with 25 and with 100 candidates
per basis vector at the same gamma and C. Nystroem draws its landmarks at random and trains LinearSVC
(squared hinge) on the mapped features, with more landmarks until it is better than the best of SMSVM, or
until a fit took more than `LIMIT` CPU seconds. Both are means over three seeds, with their spread.

The CSV also has, for sizes of SMSVM's basis, the number of landmarks that Nystroem needs for the same
accuracy (interpolated; blank beyond the largest) and their ratio.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from experiments import _data, _results
from experiments._grids import Axis, searched
from experiments._results import SMALL
from maxmargin import SparseMultiClassSVC

SIZES = (10, 20) if SMALL else (10, 20, 30, 45, 60, 90, 120, 180, 250, 350, 500, 700, 1000, 1400)
TUNING = 100 if SMALL else 1500
GAMMA = Axis((0.5, 2.0), (0.5, 2.0), 4.0) if SMALL else Axis((0.125, 0.5, 2.0, 8.0), (1 / 512, 128.0), 4.0)
COST = Axis((1.0, 10.0), (1.0, 10.0), 10.0) if SMALL else Axis((1.0, 10.0, 100.0, 1000.0), (0.1, 1e4), 10.0)
GROWN = {"letter": 20, "satimage": 20} if SMALL else {"letter": 180, "satimage": 150}
MANY = {"letter": 100} if SMALL else {"letter": 6000}
SEEDS, LIMIT = 2 if SMALL else 3, 60.0


def choose(
    machine: Any, X: np.ndarray, y: np.ndarray, names: tuple[str, str], samples: int = TUNING
) -> dict[str, float]:
    keep = np.random.default_rng(0).permutation(len(y))[:samples]
    axes = {names[0]: GAMMA.scaled(1 / X.shape[1]), names[1]: COST}
    return searched(machine, X[keep], y[keep], axes, 2)


def nystroem(
    X: np.ndarray, y: np.ndarray, T: np.ndarray, truth: np.ndarray, enough: float, tuning: int
) -> list[tuple[int, list[float]]]:
    """(landmarks, test accuracies) until their mean is more than `enough` or training takes too long."""
    machine = make_pipeline(Nystroem(random_state=0), LinearSVC(max_iter=3000))
    found: list[tuple[int, list[float]]] = []
    for size in SIZES:
        if size in (SIZES[0], 250):
            machine.set_params(nystroem__n_components=60 if size < 250 else 350, nystroem__random_state=0)
            machine.set_params(**choose(machine, X, y, ("nystroem__gamma", "linearsvc__C"), tuning))
        machine.set_params(nystroem__n_components=size)
        scores = []
        started = time.process_time()
        for seed in range(SEEDS):
            machine.set_params(nystroem__random_state=seed)
            scores.append(100 * float(machine.fit(X, y).score(T, truth)))
        seconds = (time.process_time() - started) / len(scores)
        found.append((size, scores))
        print("Nystroem", *found[-1], f"{seconds:.1f} s", machine.get_params()["nystroem__gamma"],
              machine.get_params()["linearsvc__C"], flush=True)  # fmt: skip
        if np.mean(scores) > enough or seconds > LIMIT:
            break
    return found


def landmarks(found: list[tuple[int, float]], accuracy: float) -> float | None:
    """Landmarks needed for an accuracy, by interpolation in the logarithm of their number."""
    sizes, scores = np.log([s for s, _ in found]), np.maximum.accumulate([a for _, a in found])
    if accuracy > scores[-1]:
        return None
    return float(np.exp(np.interp(accuracy, scores, sizes)))


def row_of(name: str, method: str, vectors: int, scores: list[float]) -> dict[str, Any]:
    """A row of the table: mean accuracy over the seeds, and its spread."""
    mean, spread = float(np.mean(scores)), _results.spread_of(scores)
    return {
        "data": name, "method": method, "vectors": vectors, "runs": len(scores), "accuracy": mean,
        "accuracy_spread": spread,
    }  # fmt: skip


def tradeoff(name: str) -> None:
    train, test = _data.load(name, split="train"), _data.load(name, split="test")
    scaler = StandardScaler().fit(train.X)
    X, T = scaler.transform(train.X).astype(np.float32), scaler.transform(test.X).astype(np.float32)
    sparse = SparseMultiClassSVC(max_basis=60, rel_tol=0, random_state=0)
    sparse.set_params(**choose(sparse, X, train.y, ("gamma", "C")), max_basis=GROWN[name])
    curves: dict[str, np.ndarray] = {}
    for candidates in (25, 100):
        runs = []
        for seed in range(SEEDS):
            sparse.set_params(n_candidates=candidates, random_state=seed).fit(X, train.y)
            runs.append([100 * float((p == test.y).mean()) for p in sparse.staged_predict(T)])
        shortest = min(map(len, runs))
        curves[f"SMSVM, {candidates} candidates"] = np.array([run[:shortest] for run in runs])
    best = max(float(runs.mean(axis=0).max()) for runs in curves.values())
    print(name, "SMSVM", sparse.gamma, sparse.C, best, flush=True)
    drawn = nystroem(X, train.y, T, test.y, best, MANY.get(name, TUNING))
    found = [(size, float(np.mean(scores))) for size, scores in drawn]
    full = SVC(cache_size=500)
    full.set_params(**choose(full, X, train.y, ("gamma", "C"))).fit(X, train.y)
    reference = (len(full.support_), 100 * float(full.score(T, test.y)))
    constant = DummyClassifier().fit(X, train.y).score(T, test.y)
    rows = [row_of(name, "constant", 0, [100 * float(constant)])]
    rows += [row_of(name, "Nystroem + LinearSVC", size, scores) for size, scores in drawn]
    for method, runs in curves.items():
        length = runs.shape[1]
        for d in (*(size for size in SIZES if size < length), length):
            row = row_of(name, method, d, runs[:, d - 1].tolist())
            need = landmarks(found, row["accuracy"])
            rows.append(row | {"nystroem_for_this_accuracy": need or "", "ratio": need / d if need else ""})
    rows.append(row_of(name, "SVC", reference[0], [reference[1]]))
    _results.write("sparse_tradeoff", rows, ("data", "method", "vectors"))
    figure, axis = plt.subplots(figsize=(6, 4.2))
    for method, runs in curves.items():
        axis.semilogx(np.arange(1, runs.shape[1] + 1), runs.mean(axis=0), label=method)
    axis.semilogx(*zip(*found, strict=True), "s-", label="Nystroem + LinearSVC")
    axis.semilogx(*reference, "k*", ms=11, label="SVC")
    axis.set(xlabel="basis vectors", ylabel="test accuracy (%)", title=name)
    axis.set_ylim(bottom=max(40, min(a for _, a in found) - 2))
    axis.legend()
    figure.tight_layout()
    figure.savefig(_results.RESULTS / f"sparse_tradeoff_{name}.png", dpi=110)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in _results.chosen(__doc__, [*GROWN], ["satimage"]):
        tradeoff(name)
