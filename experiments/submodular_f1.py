"""Figure 1 and beyond: example F1 of the submodular machine and of other methods.

    python -m experiments.submodular_f1                       # figure1 and table, all sets
    python -m experiments.submodular_f1 figure1 yeast         # 1 %, 10 %, 100 % of the features
    python -m experiments.submodular_f1 table medical --draws 0 1 2
    python -m experiments.submodular_f1 again                 # repeat the final fits that reached the limit
    python -m experiments.submodular_f1 plot                  # means and figure, from the stored results

A draw chooses the features at random; with all of them, draw 0 has the published parts and every further
one a random training and test part of the same sizes. C and the interaction scale (0 is RML) are chosen by
cross-validation on the training part in `FOLDS` folds (paper: 5), for every scale of `SCALES`. C goes in
steps of ten, from three values on while the best is at an end (to 1e-6 and 1e4); the larger of two equally
good values counts, and `edge` marks a choice at an end. In validation a fit of the submodular machine stops
at a gap of 5 %, or with the first epoch after `VALIDATION` CPU seconds; `note` counts these. The final fit
has a tolerance of 1 % and at most `FINAL` CPU seconds; `note` says if time or 1,000 epochs ended it. With
more than 15 labels training uses Algorithm 2, as in the paper, and `gap` contains what it may have missed;
with fewer, inference is exact. "constant set" predicts one set for all samples, built label by label for
the best example F1 on the training part. Tuned thresholds use the C of binary relevance. RAkEL has
labelsets of V/2 labels and 2 V models (the paper's "2 N" is read as twice the number of labels) on ridge
classifiers, and is left out beyond `RAKEL_LABELS` labels; ML-kNN has ten neighbours and s = 1.

The paper has a figure without numbers: with all features its model and RML are about equal, with fewer its
model is better. `cpu_s` is the time of choice and final fit; on bibtex, birds and medical without the final
fits of `again`. Results: results/submodular_f1.csv, written row by row, results/submodular_f1_means.csv and
results/submodular_figure1.png.
"""

from __future__ import annotations

import csv
import itertools
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler

from experiments import _data
from experiments._baselines import MLkNN, RAkEL
from experiments._races import CpuClock
from experiments._results import RESULTS, SMALL, command_line, load, one_of, show, spread_of, write
from maxmargin import MultiLabelSVC, SubmodularSVC
from maxmargin.baselines import ThresholdTuner
from maxmargin.metrics import example_f1
from maxmargin.model_selection import iterative_train_test_split

FRACTIONS = (0.01, 0.1, 1.0)
DATA = ("yeast", "enron", "emotions", "birds", "medical", "bibtex")
# Draws of the sets that are in the table alone.
TABLE_DRAWS = {"emotions": 5}
PAIRS = {"yeast": 0.5, "enron": 0.05}
SCALES = (0.0, 1.0) if SMALL else (0.0, 1.0, 10.0, 100.0)
# With a scale of 100 the machine takes minutes for one choice on enron.
SCALES_OF = {} if SMALL else {"enron": (0.0, 1.0, 10.0)}
# Powers of ten that C starts from, and how far it may go.
MACHINE_C, SVM_C = ((-1,), (0,)) if SMALL else ((-3, -2, -1), (-1, 0, 1))
START = {} if SMALL else {"enron": (-4, -3, -2)}
LOWEST, HIGHEST = (0, -1) if SMALL else (-6, 4)
# CPU seconds of a final fit, and of one in validation.
FINAL, FINAL_GAP = 120.0, 1e-2
VALIDATION = 30.0
FOLDS, DRAWS = (2, 1) if SMALL else (3, 5)
# Beyond this many labels RAkEL trains hundreds of models on hundreds of classes each.
RAKEL_LABELS = 60
COLUMNS = (
    "data",
    "features",
    "draw",
    "method",
    "example_f1",
    "chosen",
    "edge",
    "folds",
    "gap",
    "cpu_s",
    "note",
)


def dense(Y: Any) -> np.ndarray:
    return np.asarray(Y.toarray() if hasattr(Y, "toarray") else Y)


class Validation:
    """The folds of a training part, whose fits run in several processes.

    `cpu` sums the seconds of the fits, `cut` has one entry for each: whether `VALIDATION` seconds ended it.
    """

    def __init__(self, X: Any, Y: np.ndarray, folds: int, workers: ProcessPoolExecutor) -> None:
        self.X, self.Y, self.workers = X, Y, workers
        self.folds = list(KFold(folds, shuffle=True, random_state=0).split(Y))
        self.forget()

    def forget(self) -> None:
        """Count anew."""
        self.cpu, self.cut = 0.0, []

    @property
    def note(self) -> str:
        cut = sum(self.cut)
        return f"{cut} of {len(self.cut)} fits in validation ended by {VALIDATION:g} CPU s" if cut else ""

    def scores(self, model: Any, powers: Iterable[int]) -> dict[int, float]:
        """The mean example F1 over the folds for every C = 10 ** power."""
        waiting = {
            power: [
                self.workers.submit(fold_score, clone(model).set_params(C=10.0**power), self.X, self.Y, *fold)
                for fold in self.folds
            ]
            for power in powers
        }
        found = {}
        for power, parts in waiting.items():
            answers = [part.result() for part in parts]
            found[power] = float(np.mean([score for score, _, _ in answers]))
            self.cpu += sum(seconds for _, seconds, _ in answers)
            self.cut += [cut for _, _, cut in answers]
        return found


def fold_score(
    model: Any, X: Any, Y: np.ndarray, fit: np.ndarray, check: np.ndarray
) -> tuple[float, float, bool]:
    """Example F1 of one fold, CPU seconds, and whether time ended the fit."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_callbacks(CpuClock(VALIDATION)).fit(X[fit], Y[fit])
        score = example_f1(Y[check], dense(model.predict(X[check])))
    seconds = time.process_time() - started
    return score, seconds, bool(seconds > VALIDATION and model.duality_gap_ > model.tol)


def chosen_C(model: Any, start: tuple[int, ...], validation: Validation) -> tuple[float, float, bool]:
    """Return C by the mean example F1 over the folds, that mean, and whether C is at an end of the grid."""
    found = validation.scores(model, start)
    while True:
        best = max(found, key=lambda power: (found[power], power))
        if best == min(found) and best > LOWEST:
            found |= validation.scores(model, [best - 1])
        elif best == max(found) and best < HIGHEST:
            found |= validation.scores(model, [best + 1])
        else:
            return 10.0**best, found[best], best in (min(found), max(found))


def constant_set(Y: np.ndarray) -> np.ndarray:
    """The set, grown label by label, with the best mean example F1 to the rows of Y."""
    chosen = np.zeros(Y.shape[1], Y.dtype)
    best = example_f1(Y, np.tile(chosen, (len(Y), 1)))
    while not chosen.all():
        trials = [np.maximum(chosen, row) for row in np.eye(len(chosen), dtype=Y.dtype)]
        scores = [example_f1(Y, np.tile(trial, (len(Y), 1))) for trial in trials]
        if max(scores) <= best:
            break
        best, chosen = max(scores), trials[int(np.argmax(scores))]
    return chosen


def submodular(name: str, V: int) -> SubmodularSVC:
    """The machine for V labels, as it is validated."""
    fraction = PAIRS.get(name, min(1.0, 500 / (V * (V - 1) / 2)))
    machine = SubmodularSVC(pair_fraction=fraction, tol=5e-2, random_state=0)
    return machine.set_params(solver="bcfw", inference="fixed_point") if V > 15 else machine


def final(machine: SubmodularSVC, params: dict[str, float]) -> SubmodularSVC:
    """Return the machine with the chosen parameters."""
    return clone(machine).set_params(**params, tol=FINAL_GAP).set_callbacks(CpuClock(FINAL))


def competitors(
    name: str, Y: np.ndarray, validation: Validation
) -> Iterator[tuple[str, Any, dict[str, float], str]]:
    """Return every method with its chosen setting, not fitted, and the choices at an end of the grid."""
    V, machine = Y.shape[1], submodular(name, Y.shape[1])
    found, start, scales = [], START.get(name, MACHINE_C), SCALES_OF.get(name, SCALES)
    with ThreadPoolExecutor(len(scales)) as threads:
        machines = [clone(machine).set_params(interaction_scale=scale) for scale in scales]
        choices = threads.map(lambda one: chosen_C(one, start, validation), machines)
        for scale, (C, score, at_end) in zip(scales, choices, strict=True):
            found.append((score, {"C": C, "interaction_scale": scale}, "C" if at_end else ""))
    for method, some in (("SubmodularSVC", found), ("RML", found[:1])):
        _, params, edge = max(some, key=lambda one: one[0])
        if params["interaction_scale"] == scales[-1]:
            edge = f"{edge} interaction_scale".strip()
        yield method, final(machine, params), params, edge
    svm = MultiLabelSVC(tol=1e-2, random_state=0)
    C, _, at_end = chosen_C(svm, SVM_C, validation)
    params, edge = {"C": C}, "C" if at_end else ""
    yield "binary relevance", clone(svm).set_params(C=C), params, edge
    tuned = ThresholdTuner(clone(svm).set_params(C=C), cv=3)
    yield "binary relevance, tuned thresholds", tuned, params, edge
    if V <= RAKEL_LABELS:
        ridge = make_pipeline(FunctionTransformer(dense, accept_sparse=True), RidgeClassifier())
        yield "RAkEL", RAkEL(ridge, labelset_size=max(1, V // 2), random_state=0), {}, ""
    yield "ML-kNN", MLkNN(10, smoothing=1.0), {}, ""


def split(name: str, anew: int = 0) -> tuple[Any, Any, Any, Any]:
    """The published parts (30 % for the test where there are none); with `anew` others of the same sizes."""
    data = _data.load(name)
    if data.train is None:
        return iterative_train_test_split(data.X, data.Y, test_size=0.3, random_state=anew)
    train, test = data.train, data.test
    if anew:
        samples = np.random.default_rng(anew).permutation(np.concatenate([train, test]))
        train, test = np.split(samples, [len(train)])
    return data.X[train], data.X[test], data.Y[train], data.Y[test]


def drawn(name: str, draw: int, fraction: float) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """`split` with a random subset of the features, scaled; with all of them, of the parts of this draw."""
    X, X_test, Y, Y_test = split(name, draw if fraction == 1.0 else 0)
    kept = np.random.default_rng(draw).permutation(X.shape[1])[: max(1, round(fraction * X.shape[1]))]
    scaler = MaxAbsScaler().fit(X[:, np.sort(kept)])
    X, X_test = (scaler.transform(part[:, np.sort(kept)]) for part in (X, X_test))
    return X, X_test, dense(Y), dense(Y_test)


def compete(name: str, draw: int, fraction: float, folds: int, workers: ProcessPoolExecutor) -> None:
    """All competitors on one random subset of the features, or on one split with all of them."""
    X, X_test, Y, Y_test = drawn(name, draw, fraction)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        begun = {"data": name, "features": fraction, "draw": draw}
        constant = example_f1(Y_test, np.tile(constant_set(Y), (len(Y_test), 1)))
        record(begun | {"method": "constant set", "example_f1": constant, "folds": folds})
        started, validation = time.process_time(), Validation(X, Y, folds, workers)
        for method, model, params, edge in competitors(name, Y, validation):
            began = time.process_time()
            model.fit(X, Y)
            seconds = time.process_time() - began
            record(begun | {
                "method": method,
                "example_f1": example_f1(Y_test, dense(model.predict(X_test))),
                "chosen": " ".join(f"{key}={value:g}" for key, value in params.items()),
                "edge": edge,
                "folds": folds,
                "gap": getattr(model, "duality_gap_", ""),
                "cpu_s": time.process_time() - started + validation.cpu,
                "note": both(validation.note, ended(model, seconds)),
            })  # fmt: skip
            started = time.process_time()
            validation.forget()


def ended(model: Any, seconds: float) -> str:
    """What ended a final fit above the gap that it headed for."""
    if getattr(model, "duality_gap_", 0.0) <= FINAL_GAP:
        return ""
    return f"the final fit ended by {FINAL:g} CPU s" if seconds > FINAL else "the final fit stood still"


def both(first: str, second: str) -> str:
    return "; ".join(filter(None, (first, second)))


def again(names: Sequence[str]) -> None:
    """Repeat the final fits of submodular machines that reached the time limit, with the same choices."""
    for row in kept_rows():
        if row["data"] in names and row["method"] in ("SubmodularSVC", "RML") and late(row):
            name, fraction = row["data"], float(row["features"])
            X, X_test, Y, Y_test = drawn(name, int(row["draw"]), fraction)
            params = {key: float(value) for key, value in (word.split("=") for word in row["chosen"].split())}
            model = final(submodular(name, Y.shape[1]), params)
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, Y)
            seconds = time.process_time() - began
            note = ended(model, seconds)
            score = example_f1(Y_test, dense(model.predict(X_test)))
            validation = row["note"].partition("; ")[0] if "validation" in row["note"] else ""
            found = {"example_f1": score, "gap": float(model.duality_gap_)}
            found["cpu_s"] = float(row["cpu_s"]) + seconds
            row.pop("machine")
            record(row | found | {"features": fraction, "note": both(validation, note)})


def late(row: dict[str, str]) -> bool:
    """Whether the gap of a final fit is above the one that it headed for."""
    return bool(row["gap"]) and float(row["gap"]) > FINAL_GAP


def kept_rows() -> list[dict[str, str]]:
    with (RESULTS / "submodular_f1.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def record(row: dict[str, Any]) -> None:
    """Keep one row, with all columns."""
    row = {**dict.fromkeys(COLUMNS, ""), **row}
    show(row)
    write("submodular_f1", [row], ("data", "features", "draw", "method"), conditions=load())


def summary() -> None:
    """Mean and spread over the draws, in results/submodular_f1_means.csv."""
    rows = kept_rows()
    keys = dict.fromkeys((row["data"], row["features"], row["method"]) for row in rows)
    means = []
    for key in keys:
        mine = [row for row in rows if (row["data"], row["features"], row["method"]) == key]
        scores = [float(row["example_f1"]) for row in mine]
        gaps = [float(row["gap"]) for row in mine if row["gap"] not in ("", "nan")]
        means.append(dict(zip(("data", "features", "method"), key, strict=True)) | {
            "draws": len(scores), "example_f1": float(np.mean(scores)), "spread": spread_of(scores),
            "at_an_edge": sum(bool(row["edge"]) for row in mine),
            "largest_gap": max(gaps, default=""),
            "cpu_s": sum(float(row["cpu_s"] or 0) for row in mine),
            "note": joined([row["note"] for row in mine if row["note"]]),
        })  # fmt: skip
    write("submodular_f1_means", means, ("data", "features", "method"))


def joined(notes: list[str]) -> str:
    """The notes of all draws in one: "6 of 27, 9 of 33 fits ...; 2 final fits ..."."""
    parts = [part.partition(" fits ") for note in notes for part in note.split("; ") if "validation" in part]
    validation = ", ".join(first for first, _, _ in parts) + "".join(parts[0][1:]) if parts else ""
    said = Counter(note.rpartition("the final fit ")[2] for note in notes if "final" in note)
    return "; ".join(
        filter(None, [validation, *(f"{n} of the final fits {what}" for what, n in said.items())])
    )


def plot() -> None:
    import matplotlib.pyplot as plt

    rows = [row for row in kept_rows() if row["data"] in PAIRS]
    names = sorted({row["data"] for row in rows}, reverse=True)
    figure, axes = plt.subplots(1, len(names), figsize=(5 * len(names), 3.6), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            mine = [row for row in rows if row["data"] == name and row["method"] == method]
            at = sorted({float(row["features"]) for row in mine})
            mean = [np.mean([float(r["example_f1"]) for r in mine if float(r["features"]) == x]) for x in at]
            axis.semilogx(at, mean, "o-", label=method)
        axis.set(xlabel="part of the features", ylabel="example F1", title=name)
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "submodular_figure1.png", dpi=120)


def main() -> None:
    parser = command_line(__doc__)
    steps = ("figure1", "table", "again", "plot")
    parser.add_argument("what", nargs="?", choices=steps, help="figure1 and table if left out")
    parser.add_argument("data", nargs="*", type=one_of(DATA), help=f"of {', '.join(DATA)}")
    parser.add_argument("--draws", type=int, nargs="*", help="which: 0 1 2 ...")
    parser.add_argument("--fractions", type=float, nargs="*", default=[0.01] if SMALL else FRACTIONS)
    parser.add_argument("--jobs", type=int, default=1, help="processes that validate side by side")
    given = parser.parse_args()
    asked = list(itertools.product([given.what or "figure1"], given.data or (DATA[:1] if SMALL else PAIRS)))
    if given.what is None and not SMALL:
        asked += [("table", name) for name in DATA if name not in PAIRS]
    if given.what in ("again", "plot"):
        asked = []
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as workers:
        for what, name in asked:
            number = DRAWS if what == "figure1" else TABLE_DRAWS.get(name, min(DRAWS, 3))
            draws = range(number) if given.draws is None else given.draws
            for fraction, draw in itertools.product(given.fractions if what == "figure1" else [1.0], draws):
                compete(name, draw, fraction, FOLDS, workers)
    if given.what == "again":
        again(given.data or DATA)
    summary()
    plot()


if __name__ == "__main__":
    main()
