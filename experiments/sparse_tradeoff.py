"""Accuracy against the number of basis vectors: SMSVM, Nystroem + LinearSVC, SVC, the most frequent class.

    python -m experiments.sparse_tradeoff satimage
    python -m experiments.sparse_tradeoff letter

Standardised features, RBF kernel. gamma (1/8, 1/2, 2, 8 times 1/n_features) and C (1, 10, 100, 1000)
are chosen by 2-fold cross-validation on `TUNING` training samples: for SMSVM with 60 basis vectors,
for Nystroem with 60 landmarks, and from 250 landmarks on anew with 350, for SVC as it is. SMSVM's
whole curve comes from one fit; beside the one with 25 candidates for a new basis vector stands one
with 100, at the same gamma and C. Nystroem draws its landmarks at random (mean of three seeds; one
seed from 180 landmarks on) and trains LinearSVC (squared hinge) on the mapped features. It grows
until it is better than SMSVM at its best, or until a fit took more than `LIMIT` seconds of CPU time.

The CSV also has, for sizes of SMSVM's basis, the number of landmarks that Nystroem needs for the
same accuracy (interpolated between the sizes tried; blank beyond the largest) and their ratio.
On letter these numbers are too high from 225 landmarks on: so few samples choose a kernel that is too wide
for them (with 6,000, `learned_basis` finds better ones).
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
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from experiments import _results
from experiments._results import SMALL
from maxmargin import SparseMultiClassSVC, datasets

SIZES = (10, 20) if SMALL else (10, 20, 30, 45, 60, 90, 120, 180, 250, 350, 500, 700, 1000, 1400)
TUNING = 100 if SMALL else 1500
GROWN = {"letter": 20, "satimage": 20} if SMALL else {"letter": 180, "satimage": 150}
ONE_SEED, LIMIT = 180, 60.0


def choose(
    machine: Any, X: np.ndarray, y: np.ndarray, names: tuple[str, str], samples: int = TUNING
) -> dict[str, float]:
    keep = np.random.default_rng(0).permutation(len(y))[:samples]
    gammas = [gamma / X.shape[1] for gamma in (0.125, 0.5, 2.0, 8.0)]
    grid = {names[0]: gammas, names[1]: [1.0, 10.0, 100.0, 1000.0]}
    return GridSearchCV(machine, grid, cv=2, refit=False).fit(X[keep], y[keep]).best_params_


def nystroem(
    X: np.ndarray, y: np.ndarray, T: np.ndarray, truth: np.ndarray, enough: float
) -> list[tuple[int, float]]:
    """(landmarks, test accuracy) until it is more than `enough` or training takes too long."""
    machine = make_pipeline(Nystroem(random_state=0), LinearSVC(max_iter=3000))
    found: list[tuple[int, float]] = []
    for size in SIZES:
        if size in (SIZES[0], 250):
            machine.set_params(nystroem__n_components=60 if size < 250 else 350)
            machine.set_params(**choose(machine, X, y, ("nystroem__gamma", "linearsvc__C")))
        machine.set_params(nystroem__n_components=size)
        scores = []
        started = time.process_time()
        for seed in range(1 if size >= ONE_SEED else 3):
            machine.set_params(nystroem__random_state=seed)
            scores.append(machine.fit(X, y).score(T, truth))
        seconds = (time.process_time() - started) / len(scores)
        found.append((size, 100 * float(np.mean(scores))))
        print("Nystroem", *found[-1], f"{seconds:.1f} s", machine.get_params()["nystroem__gamma"],
              machine.get_params()["linearsvc__C"], flush=True)  # fmt: skip
        if found[-1][1] > enough or seconds > LIMIT:
            break
    return found


def landmarks(found: list[tuple[int, float]], accuracy: float) -> float | None:
    """Landmarks needed for an accuracy, by interpolation in the logarithm of their number."""
    sizes, scores = np.log([s for s, _ in found]), np.maximum.accumulate([a for _, a in found])
    if accuracy > scores[-1]:
        return None
    return float(np.exp(np.interp(accuracy, scores, sizes)))


def tradeoff(name: str) -> None:
    train, test = datasets.load(name, split="train"), datasets.load(name, split="test")
    scaler = StandardScaler().fit(train.X)
    X, T = scaler.transform(train.X).astype(np.float32), scaler.transform(test.X).astype(np.float32)
    sparse = SparseMultiClassSVC(max_basis=60, rel_tol=0, random_state=0)
    sparse.set_params(**choose(sparse, X, train.y, ("gamma", "C")), max_basis=GROWN[name])
    curves = {}
    for candidates in (25, 100):
        sparse.set_params(n_candidates=candidates).fit(X, train.y)
        curves[f"SMSVM, {candidates} candidates"] = [
            100 * float((p == test.y).mean()) for p in sparse.staged_predict(T)
        ]
    print(name, "SMSVM", sparse.gamma, sparse.C, [max(curve) for curve in curves.values()], flush=True)
    found = nystroem(X, train.y, T, test.y, max(max(curve) for curve in curves.values()))
    full = SVC(cache_size=500)
    full.set_params(**choose(full, X, train.y, ("gamma", "C"))).fit(X, train.y)
    reference = (len(full.support_), 100 * float(full.score(T, test.y)))
    constant = DummyClassifier().fit(X, train.y).score(T, test.y)
    rows = [{"data": name, "method": "constant", "vectors": 0, "accuracy": 100 * float(constant)}]
    rows += [{"data": name, "method": "Nystroem + LinearSVC", "vectors": s, "accuracy": a} for s, a in found]
    for method, curve in curves.items():
        for d in (*(size for size in SIZES if size < len(curve)), len(curve)):
            row = {"data": name, "method": method, "vectors": d, "accuracy": curve[d - 1]}
            need = landmarks(found, curve[d - 1])
            rows.append(row | {"nystroem_for_this_accuracy": need or "", "ratio": need / d if need else ""})
    rows.append({"data": name, "method": "SVC", "vectors": reference[0], "accuracy": reference[1]})
    _results.write("sparse_tradeoff", rows, ("data", "method", "vectors"))
    figure, axis = plt.subplots(figsize=(6, 4.2))
    for method, curve in curves.items():
        axis.semilogx(np.arange(1, len(curve) + 1), curve, label=method)
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
