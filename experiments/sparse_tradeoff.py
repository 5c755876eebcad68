"""Accuracy against the number of basis vectors: SMSVM, Nystroem + LinearSVC, SVC.

    python -m experiments.sparse_tradeoff satimage
    python -m experiments.sparse_tradeoff letter

Standardised features, RBF kernel. gamma (2^-3 ... 2^1 / n_features) and C (1 ... 1000) are chosen
for each method by 3-fold cross-validation on 2,000 training samples, with 60 basis vectors for
SMSVM and Nystroem. SMSVM's whole curve comes from one fit. Nystroem draws its landmarks at
random (mean of three seeds) and trains LinearSVC (squared hinge) on the mapped features. The
CSV also has, for each size of SMSVM's basis in it, the number of landmarks that Nystroem needs
for the same accuracy (interpolated between the sizes tried; blank beyond the largest).
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from experiments import _results
from maxmargin import SparseMultiClassSVC, datasets

SIZES = (10, 20, 30, 45, 60, 90, 120, 180, 250, 350, 500, 700, 1000, 1400)
GROWN = {"letter": 250, "satimage": 120}


def choose(machine: Any, X: np.ndarray, y: np.ndarray, names: tuple[str, str]) -> dict[str, float]:
    keep = np.random.default_rng(0).permutation(len(y))[:2000]
    grid = {names[0]: (2.0 ** np.arange(-3, 2) / X.shape[1]).tolist(), names[1]: [1, 10, 100, 1000]}
    return GridSearchCV(machine, grid, cv=3, refit=False).fit(X[keep], y[keep]).best_params_


def landmarks(found: list[tuple[int, float]], accuracy: float) -> float | str:
    """Landmarks needed for an accuracy, by interpolation in the logarithm of their number."""
    sizes, scores = np.log([s for s, _ in found]), np.maximum.accumulate([a for _, a in found])
    if accuracy > scores[-1]:
        return ""
    return float(np.exp(np.interp(accuracy, scores, sizes)))


def tradeoff(name: str) -> None:
    train, test = datasets.load(name, split="train"), datasets.load(name, split="test")
    scaler = StandardScaler().fit(train.X)
    X, T = scaler.transform(train.X).astype(np.float32), scaler.transform(test.X).astype(np.float32)
    sparse = SparseMultiClassSVC(max_basis=60, rel_tol=0, random_state=0)
    sparse.set_params(**choose(sparse, X, train.y, ("gamma", "C")), max_basis=GROWN[name]).fit(X, train.y)
    curve = [100 * float((p == test.y).mean()) for p in sparse.staged_predict(T)]
    mapped = make_pipeline(Nystroem(n_components=60, random_state=0), LinearSVC(max_iter=5000))
    mapped.set_params(**choose(mapped, X, train.y, ("nystroem__gamma", "linearsvc__C")))
    found = []
    for size in SIZES:
        scores = []
        for seed in range(3):
            mapped.set_params(nystroem__n_components=size, nystroem__random_state=seed)
            scores.append(mapped.fit(X, train.y).score(T, test.y))
        found.append((size, 100 * float(np.mean(scores))))
        print(name, "Nystroem", found[-1], flush=True)
    full = SVC(cache_size=500)
    full.set_params(**choose(full, X, train.y, ("gamma", "C"))).fit(X, train.y)
    reference = (len(full.support_), 100 * float(full.score(T, test.y)))
    rows = [{"data": name, "method": "Nystroem + LinearSVC", "vectors": s, "accuracy": a} for s, a in found]
    rows += [
        {"data": name, "method": "SMSVM", "vectors": d, "accuracy": curve[d - 1],
         "nystroem_for_this_accuracy": landmarks(found, curve[d - 1])}
        for d in (*(s for s in SIZES if s < len(curve)), len(curve))
    ]  # fmt: skip
    rows.append({"data": name, "method": "SVC", "vectors": reference[0], "accuracy": reference[1]})
    _results.write("sparse_tradeoff", rows, ("data", "method", "vectors"))
    figure, axis = plt.subplots(figsize=(6, 4.2))
    axis.semilogx(np.arange(1, len(curve) + 1), curve, label="SMSVM")
    axis.semilogx(*zip(*found, strict=True), "s-", label="Nystroem + LinearSVC")
    axis.semilogx(*reference, "k*", ms=11, label="SVC")
    axis.set(xlabel="basis vectors", ylabel="test accuracy (%)", title=name)
    axis.set_ylim(bottom=max(40, min(a for _, a in found) - 2))
    axis.legend()
    figure.tight_layout()
    figure.savefig(_results.RESULTS / f"sparse_tradeoff_{name}.png", dpi=110)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*GROWN]:
        tradeoff(chosen)
