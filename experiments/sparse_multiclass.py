"""Sparse multi-class machines: basis vectors, accuracy, time (tables 2, 3 and 4, poker).

    python -m experiments.sparse_multiclass iris wine glass vowel 'vowel (3-fold)' vehicle segment
    python -m experiments.sparse_multiclass dna satimage shuttle letter
    python -m experiments.sparse_multiclass poker

Features are standardised on the training part (dna: left as 0/1). gamma and C are chosen for each method
from gamma = 1/8, 1/2, 2, 8 (times 1/n_features) and C = 1, 10, 100, 1000, and in steps of 4 and 10 beyond
while the best is at an end (`GAMMA`, `COST`), by cross-validation on at most `TUNING` random training
samples, 3 folds (2 from 500 samples on), with at most `TUNING_BASIS` basis vectors. CS and WW use the
choice for SVC, the variants of SMSVM and ImVM that of their model. Sets without a test part are
cross-validated in 3 folds with separate choices; their rows are means over the folds. On the others the
sparse machines grow from `SEEDS` seeds with one choice. `runs` is the number of fits of a row;
`vectors_spread` and `accuracy_spread` (of the whole basis) are standard deviations over them. The result
file has gamma times n_features.

The test speakers of vowel differ from the training speakers, and no method reaches the paper's accuracy on
them; "vowel (3-fold)" cross-validates the 528 training samples instead.

SMSVM grows until five basis vectors in a row lower the objective by less than a thousandth each (paper:
one), the others to the cap of the set. `goal` is the paper's accuracy or, if SMSVM does not reach it, the
best accuracy of SMSVM. For every sparse machine `vectors` is the smallest basis that reaches the goal, over
the mean of the folds, or the basis with its best accuracy if none does (`reached`). Sizes are read off the
test part, as in the paper; `accuracy_grown` is the accuracy of the whole basis. A goal that is SMSVM's own
best favours SMSVM, so `common_goal` is the best accuracy that SMSVM, ImVM and Sparse-OVA all reach, with
`vectors_to_common` for each; `vectors_to_paper` is for the paper's own accuracy, blank if it is not
reached. "ImVM, full scoring" scores a candidate by a Newton step in all coefficients, as published; "SMSVM,
squared CS" has the squared Crammer-Singer loss of the supplement; both run on the smallest sets
(`FULL_SCORING`). "constant" predicts the most frequent class of the training part.

sparse_friedman.csv: mean ranks of these three over the sets, and Friedman's test (table 4).

--keep-choices takes gamma and C of sets with a test part from the result file; --methods SVC CS WW runs
these alone, with the goal of the result file. Times are CPU seconds of one thread, of the whole training
(`grown_to` basis vectors) and of predicting the test part. Training with the final gamma and C stops with
the first round after `LIMIT` seconds, and `note` says so. shuttle has 10,000 training samples; on poker the
paths are followed on the first 50,000 test hands, and SVC, CS and WW predict 10,000, with their time scaled
(`part_of_set`).
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import friedmanchisquare, rankdata
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from experiments import _data, _results
from experiments._grids import Axis, searched
from experiments._results import SMALL, show, spread_of
from experiments.data.poker import draw_hands
from maxmargin import MultiClassSVC, SparseMultiClassSVC
from maxmargin.baselines import ImportVectorMachine, SparseOneVsRest

TUNING, TUNING_BASIS = 1500, 40
GAMMA = Axis((0.5,), (0.5, 0.5), 4.0) if SMALL else Axis((0.125, 0.5, 2.0, 8.0), (1 / 128, 128.0), 4.0)
COST = Axis((10.0,), (10.0, 10.0), 10.0) if SMALL else Axis((1.0, 10.0, 100.0, 1000.0), (0.1, 1e6), 10.0)
# Methods that take gamma and C of another one.
ALIKE = {"ImVM, full scoring": "ImVM", "SMSVM, squared CS": "SMSVM", "CS": "SVC", "WW": "SVC"}
FULL_SCORING = ("iris", "wine", "glass", "vehicle")
THREE = ("SMSVM", "ImVM", "Sparse-OVA")
CROSS_VALIDATED = ("iris", "wine", "glass", "vowel (3-fold)", "vehicle", "segment")
# Most basis vectors of SMSVM, of ImVM, and of each class of Sparse-OVA.
CAPS = {"letter": (180, 300, 150), "dna": (200, 300, 150), "poker": (100, 100, 100)}
DEFAULT_CAPS = (150, 200, 100)
LIMIT = 600.0
SEEDS = 1 if SMALL else 3
# Test samples used along a path, and by the full models.
STAGED, FULL = 50_000, 10_000

NAMES = (
    "iris",
    "wine",
    "glass",
    "vowel",
    "vowel (3-fold)",
    "vehicle",
    "segment",
    "dna",
    "satimage",
    "shuttle",
    "letter",
    "poker",
)


class CpuLimit:
    """A callback that ends a fit after so many seconds of CPU time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.start = seconds, time.process_time()

    def setup(self, estimator: Any, context: Any) -> None:
        self.start = time.process_time()

    def on_fit_task_begin(self, *args: Any, **kwargs: Any) -> None:
        pass

    def on_fit_task_end(self, *args: Any, **kwargs: Any) -> bool:
        return time.process_time() - self.start > self.seconds

    def teardown(self, estimator: Any, context: Any) -> None:
        pass


def methods(name: str) -> dict[str, Any]:
    """The machines of the tables; the caps are for the final fit."""
    shared = {"random_state": 0}
    caps = (10, 10, 10) if SMALL else CAPS.get(name, DEFAULT_CAPS)
    full = ImportVectorMachine(max_basis=caps[1], rel_tol=0, scoring="full", **shared)
    worst = SparseMultiClassSVC(
        loss="crammer_singer", max_basis=caps[0], n_iter_no_change=5, tol=1e-3, **shared
    )
    return {
        "SMSVM": SparseMultiClassSVC(max_basis=caps[0], n_iter_no_change=5, **shared),
        "ImVM": ImportVectorMachine(max_basis=caps[1], rel_tol=0, **shared),
        **({"ImVM, full scoring": full} if name in FULL_SCORING else {}),
        **({"SMSVM, squared CS": worst} if name in FULL_SCORING else {}),
        "Sparse-OVA": SparseOneVsRest(max_basis=caps[2], rel_tol=0, **shared),
        "constant": DummyClassifier(),
        "SVC": SVC(cache_size=500),
        "CS": MultiClassSVC(kernel="rbf", **shared),
        "WW": MultiClassSVC(kernel="rbf", loss="weston_watkins", **shared),
    }


def parts(name: str) -> list[tuple[Any, np.ndarray, Any, np.ndarray]]:
    """Training and test parts: the paper's split, or three folds."""
    data = _data.load(name.removesuffix(" (3-fold)"))
    data = data.part("train") if name == "vowel (3-fold)" else data
    if name == "poker":
        X_test, y_test = draw_hands(1_000_000, random_state=0)
        splits = [(data.X, data.y, X_test, y_test)]
    elif name in CROSS_VALIDATED:
        folds = StratifiedKFold(3, shuffle=True, random_state=0).split(data.X, data.y)
        splits = [(data.X[a], data.y[a], data.X[b], data.y[b]) for a, b in folds]
    else:
        train, test = data.part("train"), data.part("test")
        X, y = train.X, train.y
        if name == "shuttle":
            X, _, y, _ = train_test_split(X, y, train_size=10000, stratify=y, random_state=0)
        splits = [(X, y, test.X, test.y)]
    return [scaled(*split) for split in splits]


def scaled(X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    if sp.issparse(X):
        return X, y, X_test, y_test
    scaler = StandardScaler().fit(X)
    kind = np.float32 if len(X_test) > 100_000 else np.float64
    return scaler.transform(X).astype(kind), y, scaler.transform(X_test).astype(kind), y_test


def tuned(machine: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    """gamma and C, chosen by cross-validation on the training part."""
    small = clone(machine)
    if "max_basis" in machine.get_params():
        small.set_params(max_basis=min(TUNING_BASIS, machine.max_basis), rel_tol=1e-3)
    if len(y) > TUNING:
        keep = np.random.default_rng(0).permutation(len(y))[:TUNING]
        X, y = X[keep], y[keep]
    folds = StratifiedKFold(2 if len(y) >= 500 else 3, shuffle=True, random_state=1)
    axes = {"gamma": GAMMA.scaled(1 / X.shape[1]), "C": COST}
    return searched(small, X, y, axes, folds)


def curve(machine: Any, X: Any, y: np.ndarray) -> list[tuple[int, float]]:
    """(number of distinct basis vectors, accuracy) along the path of a sparse machine."""
    if isinstance(machine, SparseOneVsRest):
        stages = [machine.truncate(m) for m in range(1, int(machine.basis_sizes_.max()) + 1)]
        return [(stage.n_basis_, float((stage.predict(X) == y).mean())) for stage in stages]
    return [(d, float((p == y).mean())) for d, p in enumerate(machine.staged_predict(X), 1)]


def mean_curve(paths: list[list[tuple[int, float]]]) -> list[tuple[float, float]]:
    """The mean of the curves of several folds; one that ended earlier stays at its end."""
    longest = max(map(len, paths))
    padded = [[*path, *[path[-1]] * (longest - len(path))] for path in paths]
    return [tuple(np.mean(stage, axis=0).tolist()) for stage in zip(*padded, strict=True)]


def needed(points: list[tuple[float, float]], accuracy: float) -> tuple[float, float, bool]:
    """The smallest basis that reaches an accuracy, else the one with the best; and which it is."""
    reached = [point for point in points if point[1] >= accuracy - 1e-9]
    return (*(reached[0] if reached else max(points, key=lambda p: (p[1], -p[0]))), bool(reached))


def measure(machine: Any, split: Any, choice: dict[str, float] | None) -> tuple[dict[str, Any], list]:
    """What one fit takes and gives, and its path if it has one; gamma and C as chosen, or chosen here."""
    X, y, X_test, y_test = split
    machine = clone(machine)
    if "gamma" in machine.get_params():
        machine.set_params(**(choice or tuned(machine, X, y)))
    if hasattr(machine, "set_callbacks"):
        machine.set_callbacks(CpuLimit(LIMIT))
    started = time.process_time()
    machine.fit(X, y)
    row = {"training_s": time.process_time() - started, "note": ""}
    if hasattr(machine, "set_callbacks") and row["training_s"] > LIMIT:
        row["note"] = f"not within {LIMIT:g} s"
    sparse = hasattr(machine, "n_basis_")
    several = len(y_test) if sparse or len(y_test) < 100_000 else FULL
    started = time.process_time()
    accuracy = float((machine.predict(X_test[:several]) == y_test[:several]).mean())
    row["inference_s"] = (time.process_time() - started) * len(y_test) / several
    parameters = machine.get_params()
    row |= {"gamma": parameters.get("gamma", np.nan) * X.shape[1], "C": parameters.get("C", np.nan)}
    row |= {"grown_to": float(machine.n_basis_) if sparse else np.nan, "accuracy_grown": 100 * accuracy}
    row["support"] = float(len(machine.support_)) if hasattr(machine, "support_") else 0.0
    return row, curve(machine, X_test[:STAGED], y_test[:STAGED]) if sparse else []


def kept_row(name: str, method: str) -> dict[str, str] | None:
    """The row of the result file."""
    path = _results.RESULTS / "sparse_multiclass.csv"
    if not path.exists():
        return None
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["data"], row["method"]) == (name, method)]
    return rows[0] if rows else None


def kept_choice(name: str, method: str, features: int) -> dict[str, float] | None:
    """gamma and C of the result file, which has no more than means over folds of some sets."""
    row = kept_row(name, method) if name not in CROSS_VALIDATED else None
    if row is None or not row["gamma"]:  # the constant has none
        return None
    return {"gamma": float(row["gamma"]) / features, "C": float(row["C"])}


def part_of_set(name: str, path: bool) -> str:
    """How much of the set a row has seen, where it is not all."""
    if name == "shuttle":
        return "10,000 of 43,500 training samples"
    return f"{STAGED if path else FULL:,} of 1,000,000 hands" if name == "poker" else ""


def table(name: str, asked_for: Sequence[str], keep_choices: bool) -> None:
    """The rows of some methods on one set."""
    splits, goal, choices = parts(name), None, {}
    rows: dict[str, dict[str, Any]] = {}
    curves: dict[str, list[tuple[float, float]]] = {}
    paper = _results.paper("sparse_multiclass", ("data", "method"))
    told = paper.get((name, "SMSVM"), {}).get("paper_accuracy")
    if "SMSVM" not in asked_for and (kept_goal := kept_row(name, "SMSVM")):
        goal = float(kept_goal["goal"] or kept_goal["accuracy"]) / 100
    for method, machine in methods(name).items():
        if method not in asked_for:
            continue
        kept = kept_choice(name, method, splits[0][0].shape[1]) if keep_choices else None
        taken = choices.get(ALIKE.get(method), [kept] * len(splits))
        found = [measure(machine, split, choice) for split, choice in zip(splits, taken, strict=True)]
        choices[method] = [
            {"gamma": fold["gamma"] / split[0].shape[1], "C": fold["C"]}
            for (fold, _), split in zip(found, splits, strict=True)
        ]
        if len(splits) == 1 and found[0][1]:
            for seed in range(1, SEEDS):
                again = clone(machine).set_params(random_state=seed)
                found.append(measure(again, splits[0], choices[method][0]))
        notes = [fold.pop("note") for fold, _ in found]
        mean = {k: float(np.mean([fold[k] for fold, _ in found])) for k in found[0][0]}
        size, accuracy, reached = mean.pop("support"), mean["accuracy_grown"], ""
        spread = {"vectors_spread": "", "accuracy_spread": spread_of([f["accuracy_grown"] for f, _ in found])}
        if found[0][1]:
            points = curves[method] = mean_curve([path for _, path in found])
            if goal is None:
                best = max(point[1] for point in points)
                goal = min(best, float(told) / 100) if told else best
            size, accuracy, reached = needed(points, goal)
            accuracy *= 100
            spread["vectors_spread"] = spread_of([needed(path, goal)[0] for _, path in found])
        row = {
            "data": name,
            "method": method,
            "goal": 100 * goal if goal and found[0][1] else "",
            "vectors": size,
            "reached": reached,
        }
        row |= {"accuracy": accuracy, **mean, "runs": len(found), **spread, "note": max(notes)}
        row["part_of_set"] = part_of_set(name, bool(found[0][1]))
        row |= dict.fromkeys(("paper_vectors", "paper_accuracy", "paper_training_s", "paper_inference_s"), "")
        row |= paper.get((name, method), {})
        points = curves.get(method, [])
        enough = needed(points, float(told) / 100) if told and points else (np.nan, 0.0, False)
        row |= {
            "common_goal": "",
            "vectors_to_common": "",
            "vectors_to_paper": enough[0] if enough[2] else "",
        }
        rows[method] = {k: "" if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()}
        keep([rows[method]])
        show(row)
    if all(method in curves for method in THREE):
        common = min(max(accuracy for _, accuracy in curves[method]) for method in THREE)
        for method in THREE:
            size, _, _ = needed(curves[method], common)
            rows[method] |= {"common_goal": 100 * common, "vectors_to_common": size}
        keep([rows[method] for method in THREE])


def keep(rows: list[dict[str, Any]]) -> None:
    _results.write("sparse_multiclass", rows, ("data", "method"), conditions="one shared core, CPU time")


# Mean ranks that the paper prints, and those that its own tables 2 and 3 give.
PAPER_RANKS = {
    "vectors": ("1 / 2.27 / 2.73", "1 / 2.27 / 2.73"),
    "vectors_to_common": ("1 / 2.27 / 2.73", "1 / 2.27 / 2.73"),
    "training_s": ("1.82 / 3 / 1.36", "1.82 / 3 / 1.18"),
    "inference_s": ("1.18 / 1.95 / 2.77", "1.18 / 2.14 / 2.68"),
}


def friedman() -> None:
    """Table 4: whether the three machines differ over the sets.

    A machine that missed the goal has the larger rank in vectors; time of inference is that of the whole
    basis, in proportion to the vectors needed.
    """
    with (_results.RESULTS / "sparse_multiclass.csv").open(newline="") as file:
        rows = {(row["data"], row["method"]): row for row in csv.DictReader(file)}
    every = [name for name in dict.fromkeys(name for name, _ in rows) if name != "vowel (3-fold)"]
    answer = []
    for criterion, (printed, recomputed) in PAPER_RANKS.items():
        names = [name for name in every if all(rows.get((name, m), {}).get(criterion) for m in THREE)]
        if not names:
            continue
        values = np.array([[float(rows[name, m][criterion]) for m in THREE] for name in names])
        if criterion == "inference_s":
            values *= [[float(rows[name, m]["vectors"]) / float(rows[name, m]["grown_to"]) for m in THREE]
                       for name in names]  # fmt: skip
        if criterion == "vectors":
            missed = np.array([[rows[name, m]["reached"] == "False" for m in THREE] for name in names])
            values = np.where(missed, values + 1e9, values)
        ranks = rankdata(values, axis=1).mean(axis=0)
        statistic, p = friedmanchisquare(*values.T) if len(names) > 2 else (np.nan, np.nan)
        row = {"criterion": criterion, "sets": len(names), **dict(zip(THREE, map(float, ranks), strict=True))}
        row |= {"statistic": float(statistic), "p": float(p)}
        answer.append(row | {"paper_printed": printed, "paper_recomputed": recomputed})
    _results.write("sparse_friedman", answer, ("criterion",))


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)  # the column `note` says it
    parser = _results.command_line(__doc__)
    known = list(methods("iris"))
    parser.add_argument("data", nargs="*", type=_results.one_of(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--methods", nargs="+", choices=known, default=known)
    parser.add_argument(
        "--keep-choices", action="store_true", help="take gamma and C from the rows kept, where they are"
    )
    given = parser.parse_args()
    for name in given.data or (["iris", "wine", "glass"] if SMALL else NAMES):
        table(name, given.methods, given.keep_choices)
    friedman()
