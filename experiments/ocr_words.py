"""OCR words: dual objective against passes and time, and test errors (figures 1e and 2e).

Run it as ``python -m experiments.ocr_words [--seconds 10] [--out experiments/results]``;
``maxmargin.datasets.load`` must find the OCR letters. Fold 0 is for training, the other folds for the test.

ocr_words_curves.csv  some epochs of every solver and lambda, BCPL and OEG at the paper's eight temperatures;
                      a line ends at a gap of 1e-4 or with the first pass after `limit_s` CPU seconds
ocr_words_gaps.csv    every solver and temperature with several seeds, mean and spread: gap and dual objective
                      at the end, passes and CPU seconds to gaps of 0.01 and 0.0001 (blank unless all did)
ocr_words_errors.csv  letter and word error on the test folds
ocr_words_chosen.csv  the same for parameters chosen by the letter error of five folds of the training words,
                      for both models: regularisation, and size of pixels beside constants
ocr_words.png         the curves of the solvers, BCPL at the paper's temperature and OEG at its best
ocr_words_temperatures.png  the curves of BCPL and OEG at all temperatures

The tables of errors need sklearn-crfsuite (at toy size its lines are optional). Seconds are CPU seconds of
one thread.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from experiments._races import CpuClock, thin
from experiments._results import RESULTS, SMALL, command_line, machine_state, show, spread_of
from experiments._words import Words, load_words
from maxmargin import ChainSVC, MultiClassSVC
from maxmargin.metrics import word_accuracy

LAMBDAS = (0.1, 0.01, 0.001)
GRID = (10.0, 0.01) if SMALL else (100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 1e-5, 1e-10)
SOLVERS: dict[str, dict[str, Any]] = {
    "BCFW": {"solver": "bcfw"},
    "BCPL safeguarded": {"solver": "bcpl"},
    "pairwise, cached": {"solver": "pairwise"},
    "OEG safe tau": {"solver": "oeg"},
    **{f"BCPL tau={tau:g}": {"solver": "bcpl", "temperature": tau, "safeguard": False} for tau in GRID},
    **{f"OEG tau={tau:g}": {"solver": "oeg", "temperature": tau} for tau in GRID},
}
SEEDS = 2 if SMALL else 3
# The gaps to which ocr_words_gaps.csv counts passes and seconds; a line ends at the last.
GOALS = (1e-2, 1e-4)
# For letters alone, which are eight times as many as words.
LETTER_LAMBDAS = (0.01, 0.001, 0.0001)
# Strengths of the regulariser tried for the random field.
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Sizes of the constants beside pixels of 1 that are tried for both, and the number of folds that choose.
SCALINGS = (1.0, 2.0, 4.0, 8.0)
FOLDS = 5


def race(
    train: Words, lam: float, options: dict[str, Any], seed: int, seconds: float
) -> list[dict[str, Any]]:
    """Every epoch of one line, objectives in the paper's scaling: lambda times ours."""
    clock = CpuClock(seconds)
    model = ChainSVC(
        C=1 / (lam * train.lengths.size), tol=GOALS[-1], max_iter=100_000, random_state=seed, **options
    )
    model.set_callbacks(clock).fit(train.X, train.y, lengths=train.lengths)
    return [
        {
            "epoch": record["epoch"],
            "seconds": at,
            "primal": lam * record["primal"],
            "dual": lam * record["dual"],
            "gap": record["gap"],
            "limit_s": seconds,
        }
        for record, at in zip(model.history_, clock.seconds, strict=False)
    ]


def curves(train: Words, seconds: float) -> Iterator[dict[str, Any]]:
    """Train with every solver at every lambda for the same time, and keep some of the history."""
    for lam, (name, options) in product(LAMBDAS, SOLVERS.items()):
        race(train, lam, options, 0, 0.0)  # compiles
        line = race(train, lam, options, 0, seconds)
        for k in thin(len(line)):
            yield {"solver": name, "lambda": lam, **line[k]}
        print(lam, name, len(line), f"epochs, gap {line[-1]['gap']:.2e}", flush=True)


def gaps(train: Words, seconds: float) -> Iterator[dict[str, Any]]:
    """Return the end of every line with several seeds."""
    for lam, (name, options) in product(LAMBDAS, SOLVERS.items()):
        race(train, lam, options, 0, 0.0)  # compiles
        lines = [race(train, lam, options, seed, seconds) for seed in range(SEEDS)]
        row = {"lambda": lam, "solver": name, **summary(lines), "limit_s": seconds}
        show(row)
        yield row


def compared(rows: list[dict[str, str]]) -> list[str]:
    """The solvers of the picture: BCPL at the paper's temperature, and OEG at the one that ended highest."""
    ends = {row["solver"]: float(row["dual"]) for row in rows}
    oeg = max((f"OEG tau={tau:g}" for tau in GRID), key=ends.__getitem__)
    return ["BCFW", "BCPL tau=0.01", "BCPL safeguarded", "pairwise, cached", "OEG safe tau", oeg]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def summary(lines: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return mean and spread of the ends of the lines over the seeds."""
    row: dict[str, Any] = {"seeds": len(lines)}
    for column in ("gap", "dual"):
        row |= mean_and_spread(column, [line[-1][column] for line in lines])
    for goal in GOALS:
        first = (next((record for record in line if record["gap"] <= goal), None) for line in lines)
        came = [record for record in first if record]
        row[f"reached_{goal:g}"] = f"{len(came)} of {len(lines)}"
        for column, key in (("passes", "epoch"), ("cpu_s", "seconds")):
            values = [record[key] for record in came] if len(came) == len(lines) else []
            row |= mean_and_spread(f"{column}_to_{goal:g}", values)
    return row


def mean_and_spread(column: str, values: list[float]) -> dict[str, Any]:
    return {column: float(np.mean(values)) if values else "", f"{column}_spread": spread_of(values)}


def errors(train: Words, test: Words) -> list[dict[str, Any]]:
    """Letter and word error of chains, independent letters, a conditional random field and a constant."""
    rows = []

    def record(model: str, setting: str, predicted: np.ndarray, seconds: float) -> None:
        words = Words(test.X, predicted, test.lengths).labels()
        letters, whole = float(np.mean(predicted != test.y)), 1 - word_accuracy(test.labels(), words)
        rows.append(
            {
                "model": model,
                "setting": setting,
                "letter error": letters,
                "word error": whole,
                "CPU seconds of training": seconds,
            }
        )
        print(
            f"{model:22s} {setting:14s} letters {letters:.4f}  words {whole:.4f}  {seconds:.1f} s", flush=True
        )

    ChainSVC(max_iter=1).fit(train.X[:100], train.y[:100])
    for lam in (1.0,) if SMALL else (1.0, 0.3, 0.1, 0.03, 0.01, 0.001):
        C = 1 / (lam * train.lengths.size)
        start = time.process_time()
        model = ChainSVC(C=C, tol=1e-2, max_iter=3000, random_state=0)
        model.fit(train.X, train.y, lengths=train.lengths)
        seconds = time.process_time() - start
        record("ChainSVC", f"lambda={lam}", model.predict(test.X, lengths=test.lengths), seconds)
    independent(train, test, record)
    random_field(train, test, record)
    record("constant", "most frequent", most_frequent(train, test), 0.0)
    return rows


def independent(train: Words, test: Words, record) -> None:
    """One multi-class SVM for letters alone."""
    MultiClassSVC(max_iter=1).fit(train.X[:100], train.y[:100])
    for lam in LETTER_LAMBDAS:
        start = time.process_time()
        model = MultiClassSVC(C=1 / (lam * train.y.size), tol=1e-3, random_state=0)
        model.fit(train.X, train.y)
        seconds = time.process_time() - start
        record("MultiClassSVC, letters", f"lambda={lam}", model.predict(test.X), seconds)


def random_field(train: Words, test: Words, record) -> None:
    """sklearn-crfsuite with the same features: pixels, label pairs, first and last letter."""
    try:
        import sklearn_crfsuite
    except ImportError:
        print("sklearn-crfsuite is not installed; its line is left out.")
        return
    for c2 in STRENGTHS:
        start = time.process_time()
        crf = sklearn_crfsuite.CRF(
            algorithm="lbfgs", c2=c2, max_iterations=200, all_possible_transitions=True
        )
        crf.fit(pixel_features(train), [list(word) for word in train.labels()])
        seconds = time.process_time() - start
        predicted = crf.predict(pixel_features(test))
        record("sklearn-crfsuite", f"c2={c2}", np.array([c for word in predicted for c in word]), seconds)


def chosen(train: Words, test: Words) -> list[dict[str, Any]]:
    """Return test errors of the best on folds of the training words, and of the most frequent letter."""
    constant = errors_of(most_frequent(train, test), test)
    empty = dict.fromkeys(("setting", "letter error on folds", "CPU seconds"), "")
    rows: list[dict[str, Any]] = [{"model": "constant", **constant, **empty}]
    models: dict[str, tuple[Callable[..., np.ndarray], dict[str, Any]]] = {
        "ChainSVC": (
            labels_of_chain,
            {"normalize_loss": (False,), "lam": (0.01, 0.02, 0.04, 0.08), "intercept_scaling": SCALINGS},
        ),
        "sklearn-crfsuite": (labels_of_field, {"c2": (0.3, 1.0, 3.0, 10.0), "scaling": SCALINGS}),
    }
    if not find_spec("sklearn_crfsuite"):
        print("sklearn-crfsuite is not installed; its line is left out.")
        del models["sklearn-crfsuite"]
    fold = np.random.default_rng(0).permutation(train.lengths.size) % FOLDS
    for name, (labels, grid) in models.items():
        found = []
        for values in product(*(tried[:1] if SMALL else tried for tried in grid.values())):
            setting = dict(zip(grid, values, strict=True))
            wrong = []
            for k in range(FOLDS):
                seen, held = train.where(fold != k), train.where(fold == k)
                wrong.append(labels(seen, held.X, held.lengths, **setting) != held.y)
            found.append((float(np.concatenate(wrong).mean()), setting))
            print(name, setting, f"{found[-1][0]:.4f}", flush=True)
        on_folds, setting = min(found, key=lambda pair: pair[0])
        start = time.process_time()
        answer = labels(train, test.X, test.lengths, **setting)
        rows.append(
            {
                "model": name,
                "setting": ", ".join(f"{key}={value}" for key, value in setting.items()),
                **errors_of(answer, test),
                "letter error on folds": on_folds,
                "CPU seconds": time.process_time() - start,
            }
        )
        show(rows[-1])
    return rows


def most_frequent(train: Words, test: Words) -> np.ndarray:
    """The most frequent letter of the training words, everywhere."""
    letters, counts = np.unique(train.y, return_counts=True)
    return np.full(test.y.size, letters[counts.argmax()])


def errors_of(predicted: np.ndarray, test: Words) -> dict[str, float]:
    words = Words(test.X, predicted, test.lengths).labels()
    wrong = 1 - word_accuracy(test.labels(), words)
    return {"letter error": float(np.mean(predicted != test.y)), "word error": wrong}


def labels_of_chain(train: Words, X: Any, lengths: np.ndarray, lam: float, **options: Any) -> np.ndarray:
    """Letters that a chain finds."""
    model = ChainSVC(C=1 / (lam * train.lengths.size), tol=1e-2, max_iter=3000, random_state=0, **options)
    return model.fit(train.X, train.y, lengths=train.lengths).predict(X, lengths=lengths)


def labels_of_field(train: Words, X: Any, lengths: np.ndarray, c2: float, scaling: float) -> np.ndarray:
    """Letters that sklearn-crfsuite finds, with pixels of 1 / scaling and c2 as for pixels of 1."""
    import sklearn_crfsuite

    crf = sklearn_crfsuite.CRF(
        algorithm="lbfgs", c2=c2 / scaling**2, max_iterations=200, all_possible_transitions=True
    )
    crf.fit(pixel_features(train, 1 / scaling), [list(word) for word in train.labels()])
    found = crf.predict(pixel_features(Words(X, np.array([]), lengths), 1 / scaling))
    return np.array([letter for word in found for letter in word])


def pixel_features(words: Words, value: float = 1.0) -> list[list[dict[str, float]]]:
    """Dark pixels of every letter by name, a constant, and whether it is the first or last."""
    X, sequences, row = words.X, [], 0
    for length in words.lengths:
        sequence = []
        for t in range(length):
            dark = X.indices[X.indptr[row] : X.indptr[row + 1]]
            features = {f"p{j}": value for j in dark}
            features["bias"] = 1.0
            if t == 0:
                features["first"] = 1.0
            if t == length - 1:
                features["last"] = 1.0
            sequence.append(features)
            row += 1
        sequences.append(sequence)
    return sequences


def draw(path: Path) -> None:
    """Distance of the dual to the best value seen: one picture of the solvers, one of the temperatures."""
    import matplotlib.pyplot as plt

    rows = read(path)
    lambdas = list(dict.fromkeys(row["lambda"] for row in rows))

    def missing(axis: Any, lam: str, solver: str, against: str, **look: Any) -> None:
        part = [row for row in rows if row["lambda"] == lam]
        best = min(float(row["primal"]) for row in part)
        line = [row for row in part if row["solver"] == solver]
        far = [(best - float(row["dual"])) / best for row in line]
        axis.loglog([float(row[against]) for row in line], far, **{"label": solver, **look})

    figure, axes = plt.subplots(2, len(lambdas), figsize=(13, 7.5), sharey="col", squeeze=False)
    units = (("epoch", "passes"), ("seconds", "CPU seconds, one thread"))
    for column, lam in enumerate(lambdas):
        shown = compared([row for row in rows if row["lambda"] == lam])
        for row, (against, unit) in enumerate(units):
            for k, solver in enumerate(shown):
                missing(axes[row, column], lam, solver, against, color=f"C{k}")
            axes[row, column].set(xlabel=unit)
        axes[0, column].set_title(f"$\\lambda$ = {lam}")
        axes[0, column].legend(fontsize=7)
    finish(figure, axes, path.with_name("ocr_words.png"))
    figure, axes = plt.subplots(2, len(lambdas), figsize=(13, 7.5), squeeze=False)
    for column, lam in enumerate(lambdas):
        for row, method in enumerate(("BCPL", "OEG")):
            for k, tau in enumerate(GRID):
                colour = plt.get_cmap("coolwarm")(1 - k / (len(GRID) - 1))
                missing(axes[row, column], lam, f"{method} tau={tau:g}", "seconds", color=colour)
            missing(axes[row, column], lam, "BCFW", "seconds", color="black", linestyle=":")
            axes[row, column].set(title=f"{method}, $\\lambda$ = {lam}", xlabel="CPU seconds, one thread")
            axes[row, 0].legend(fontsize=7)
    finish(figure, axes, path.with_name("ocr_words_temperatures.png"))


def finish(figure: Any, axes: np.ndarray, path: Path) -> None:
    for row in axes:
        row[0].set_ylabel("(best primal - dual) / best primal")
    figure.suptitle("OCR words, 626 for training: how far the dual objective still is")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = command_line(__doc__)
    seconds = 0.05 if SMALL else 10.0
    parser.add_argument("--seconds", type=float, default=seconds, help="CPU time of one line")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", choices=("curves", "gaps", "draw", "errors", "chosen"), default=None)
    arguments = parser.parse_args()
    if not SMALL and arguments.only not in ("curves", "gaps", "draw") and not find_spec("sklearn_crfsuite"):
        parser.error("the tables of errors need sklearn-crfsuite: install it, or ask for --only curves")
    arguments.out.mkdir(parents=True, exist_ok=True)
    header = f"# {machine_state()}, one thread\n"
    kept = arguments.out / "ocr_words_curves.csv"
    train, test = load_words("train"), load_words("test")
    if SMALL:
        train, test = train.first(60), test.first(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if arguments.only in (None, "curves"):
            save(curves(train, arguments.seconds), header, kept)
        if arguments.only in (None, "gaps"):
            save(gaps(train, arguments.seconds), header, arguments.out / "ocr_words_gaps.csv")
        if arguments.only in (None, "draw"):
            draw(kept)
        if arguments.only in (None, "errors"):
            save(errors(train, test), header, arguments.out / "ocr_words_errors.csv")
        if arguments.only in (None, "chosen"):
            save(chosen(train, test), header, arguments.out / "ocr_words_chosen.csv")


def save(rows: Iterable[Mapping[str, Any]], header: str, path: Path) -> None:
    """Write the rows below a line that names the machine."""
    with path.open("w", newline="") as file:
        file.write(header)
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, list(row), restval="", lineterminator="\n")
                writer.writeheader()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
            file.flush()


if __name__ == "__main__":
    main()
