"""Accuracy of few basis vectors: learned, greedy, and random (Nystroem + LinearSVC).

    python -m experiments.learned_basis
    python -m experiments.learned_basis letter learned nystroem

letter with standardised features, mnist with pixels from 0 to 1; RBF kernel, float32, the split of the
source. Parameters are chosen by 2-fold cross-validation with the first seed: C (1, 10, 100) of learned
vectors, whose width starts at gamma="scale", with 45 of them on `TUNING` samples; gamma and C of Nystroem
from the grid of `sparse_tradeoff` on `RANDOM_TUNING` samples with 60 landmarks, and from 225 on again with
350. The greedy basis is the start of the learned one, with coefficients optimised for the same C at
gamma="scale". "constant" is the most frequent class. Rows are means over `runs` seeds, of the landmarks or
of the machine.

`nystroem_for_this_accuracy` is the number of landmarks that Nystroem needs for the same mean accuracy
(interpolated between those tried; blank if none reaches it), `ratio` this number over that of the vectors.
"""

from __future__ import annotations

import csv
import time
import warnings
from itertools import product
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from experiments import _data, _results, sparse_tradeoff
from experiments._results import show, spread_of
from maxmargin import SparseMultiClassSVC

BUDGETS = (5,) if _results.SMALL else (20, 45, 100, 200)
LANDMARKS = (5, 10) if _results.SMALL else (20, 45, 100, 225, 350, 500, 1000)
TUNING = 200 if _results.SMALL else 3000
# On letter 1,500 samples choose a kernel that is too wide for hundreds of landmarks.
RANDOM_TUNING = {"letter": 200, "mnist": 200} if _results.SMALL else {"letter": 6000, "mnist": 1500}
NAMES = ("letter", "mnist")
SEEDS = 2 if _results.SMALL else 3
RANDOM = "Nystroem + LinearSVC"
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def data(name: str) -> Split:
    """Training and test part, scaled."""
    train, test = _data.load(name, split="train"), _data.load(name, split="test")
    if name == "letter":
        scaler = StandardScaler().fit(train.X)
        X, T = scaler.transform(train.X), scaler.transform(test.X)
    else:
        X, T = train.X / 255, test.X / 255
    few = slice(300 if _results.SMALL else None)
    return X[few].astype(np.float32), train.y[few], T[few].astype(np.float32), test.y[few]


def keep(name: str, method: str, vectors: int, scores: list[float], **more: Any) -> None:
    """One row of the table, written as soon as it is known."""
    percent = [100 * score for score in scores]
    row = {
        "data": name, "method": method, "vectors": vectors, "runs": len(scores),
        "accuracy": float(np.mean(percent)), "accuracy_spread": spread_of(percent), **more,
    }  # fmt: skip
    show(row)
    load = _results.machine_state().removeprefix(f"{_results.machine()}, ")
    _results.write("learned_basis", [row], ("data", "method", "vectors"), conditions=load)


def nystroem(name: str, split: Split) -> None:
    """Random landmarks."""
    X, y, T, truth = split
    machine = make_pipeline(Nystroem(random_state=0), LinearSVC(max_iter=3000))
    for size in LANDMARKS:
        if size in (LANDMARKS[0], 225):
            machine.set_params(nystroem__n_components=60 if size < 225 else 350, nystroem__random_state=0)
            names = ("nystroem__gamma", "linearsvc__C")
            machine.set_params(**sparse_tradeoff.choose(machine, X, y, names, RANDOM_TUNING[name]))
        machine.set_params(nystroem__n_components=size)
        scores, seconds = [], []
        for seed in range(SEEDS):
            started = time.process_time()
            machine.set_params(nystroem__random_state=seed).fit(X, y)
            seconds.append(time.process_time() - started)
            scores.append(machine.score(T, truth))
        best = machine.get_params()
        chosen = {"gamma": best["nystroem__gamma"], "C": best["linearsvc__C"]}
        keep(name, RANDOM, size, scores, cpu_seconds=float(np.mean(seconds)), **chosen)


def learned(name: str, split: Split) -> None:
    """The learned basis of every budget, and the grown one that it started from."""
    X, y, T, truth = split
    few = np.random.default_rng(0).permutation(len(y))[:TUNING]
    machine = SparseMultiClassSVC(basis="learned", max_basis=45, rel_tol=0, random_state=0)
    search = GridSearchCV(machine, {"C": [1.0, 10.0, 100.0]}, cv=2, refit=False).fit(X[few], y[few])
    machine.set_params(**search.best_params_)
    for size, basis in product(BUDGETS, ("greedy", "learned")):
        machine.set_params(max_basis=size, basis=basis)
        scores, found = [], []
        for seed in range(SEEDS):
            started = time.process_time()
            machine.set_params(random_state=seed).fit(X, y)
            seconds = time.process_time() - started
            found.append((seconds, machine.gamma_, machine.primal_objective_, machine.duality_gap_))
            scores.append(machine.score(T, truth))
        means = dict(
            zip(("cpu_seconds", "gamma", "objective", "gap"), np.mean(found, axis=0).tolist(), strict=True)
        )
        keep(name, f"SMSVM, {basis}", machine.n_basis_, scores, C=machine.C, **means)


def constant(name: str, split: Split) -> None:
    """The most frequent class."""
    classes, counts = np.unique(split[1], return_counts=True)
    keep(name, "constant", 0, [float(np.mean(split[3] == classes[counts.argmax()]))])


def compare(name: str) -> None:
    """Add to every row of ours how many landmarks are as good."""
    path = _results.RESULTS / "learned_basis.csv"
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    rows = [row for row in table if row["data"] == name]
    found = sorted((int(r["vectors"]), float(r["accuracy"])) for r in rows if r["method"] == RANDOM)
    for row in rows:
        if found and row["method"].startswith("SMSVM"):
            need = sparse_tradeoff.landmarks(found, float(row["accuracy"]))
            row["nystroem_for_this_accuracy"] = f"{need:.4g}" if need else ""
            row["ratio"] = f"{need / int(row['vectors']):.3g}" if need else ""

    columns = [*(c for c in dict.fromkeys(c for row in table for c in row) if c != "machine"), "machine"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


PARTS = {"constant": constant, "learned": learned, "nystroem": nystroem}

if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    parser = _results.command_line(__doc__)
    parser.add_argument("data", nargs="?", type=_results.one_of(NAMES), help="letter or mnist; default: both")
    parser.add_argument("parts", nargs="*", type=_results.one_of(list(PARTS)), help=f"of {', '.join(PARTS)}")
    given = parser.parse_args()
    for name in [given.data] if given.data else NAMES[:1] if _results.SMALL else NAMES:
        rows = data(name)
        for part in given.parts or PARTS:
            PARTS[part](name, rows)
        compare(name)
