"""Races of `ChainSVC` on OCR words, one thread each: `python -m benchmarks.chain_race [--small]`.

training   the default solver against block-coordinate Frank-Wolfe, both to the same certified gap
decoding   letters per second on the test words against sklearn-crfsuite, with its feature dicts
           turned into its own item sequences beforehand (not counted) and without; "nothing"
           answers with one label and shows what reading the input costs
growth     time of an epoch and of decoding, and memory, against the length of the sequences and
           the number of labels, on made data

Every run has a process of its own, in which a small run comes first so that compilation is
reported apart; the contenders take turns, and the median of the repeats counts. Results go to
results/: chain_race.csv, chain_growth.csv, chain_growth.png (`--small`: to *_small.csv alone).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.measure import RESULTS, run_alone, write_csv
from experiments._results import machine_state
from experiments._words import Words, load_words
from experiments.ocr_words import pixel_features
from maxmargin import ChainSVC

SOLVERS = ("pairwise", "bcfw")
LENGTHS = (1, 10, 100, 1000, 10_000)
LABELS = (2, 4, 8, 16, 32, 64, 128, 256)
LETTERS, FEATURES = 20_000, 20


def first(words: Words, n: int) -> Words:
    rows = int(words.lengths[:n].sum())
    return Words(words.X[:rows], words.y[:rows], words.lengths[:n])


def fit(words: Words, lam: float, **options: Any) -> ChainSVC:
    model = ChainSVC(C=1 / (lam * words.lengths.size), random_state=0, **options)
    return model.fit(words.X, words.y, lengths=words.lengths)


def trained(words: Words, lam: float, **options: Any) -> dict[str, float]:
    model = fit(words, lam, **options)
    return {"epochs": model.n_iter_, "gap": model.duality_gap_, "objective": lam * model.primal_objective_}


def take_turns(
    race: str,
    contenders: dict[str, tuple[Callable[[], Any], Callable[[], Any]]],
    repeats: int,
    describe: Callable[[Any], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Median seconds of every contender (a run and what warms it up), and how many times ours.

    `describe` turns the answer of a run into columns, outside of what is timed.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, (action, warm) in contenders.items():
            runs[name].append(run_alone(action, warm))
    seconds = {name: float(np.median([r["seconds"] for r in reports])) for name, reports in runs.items()}
    ours = next(iter(seconds.values()))
    rows = []
    for name, reports in runs.items():
        rows.append(
            {
                "race": race,
                "competitor": name,
                "seconds": f"{seconds[name]:.4f}",
                "times_ours": f"{seconds[name] / ours:.2f}",
                "peak_mib": f"{max(r['peak_mib'] for r in reports):.1f}",
                "first_call_seconds": f"{reports[0]['warm_seconds']:.2f}",
                **describe(reports[0]["answer"]),
            }
        )
        print(rows[-1], flush=True)
    return rows


def training(train: Words, lam: float, tol: float, repeats: int) -> list[dict[str, Any]]:
    """Seconds to the certified gap."""
    few = first(train, 50)
    contenders = {
        solver: (
            partial(trained, train, lam, solver=solver, tol=tol, max_iter=100_000),
            partial(trained, few, lam, solver=solver, max_iter=1),
        )
        for solver in SOLVERS
    }

    def describe(answer: dict[str, float]) -> dict[str, Any]:
        return {name: f"{value:.6g}" for name, value in answer.items()}

    return take_turns(f"training, lambda={lam:g}, gap {tol:g}", contenders, repeats, describe)


def decoding(train: Words, test: Words, repeats: int) -> list[dict[str, Any]]:
    """Letters per second of models trained on the training words."""
    import pycrfsuite
    import sklearn_crfsuite

    model = fit(train, 0.01, tol=0.1)
    crf = sklearn_crfsuite.CRF(algorithm="lbfgs", c2=0.1, max_iterations=50, all_possible_transitions=True)
    crf.fit(pixel_features(train), [list(word) for word in train.labels()])
    features = pixel_features(test)
    prepared = [pycrfsuite.ItemSequence(word) for word in features]
    dense = test.X.toarray()

    calls = {
        "ChainSVC, CSR": lambda: model.predict(test.X, lengths=test.lengths),
        "ChainSVC, dense": lambda: model.predict(dense, lengths=test.lengths),
        "sklearn-crfsuite, dicts": lambda: crf.predict(features),
        "sklearn-crfsuite, prepared": lambda: [crf.tagger_.tag(word) for word in prepared],
        "nothing": lambda: np.full(test.y.size, "e"),
    }

    def describe(answer: Any) -> dict[str, Any]:
        letters = answer if isinstance(answer[0], str) else np.concatenate([np.asarray(w) for w in answer])
        return {"letter_error": f"{np.mean(letters != test.y):.4f}"}

    rows = take_turns("decoding", {name: (call, call) for name, call in calls.items()}, repeats, describe)
    for row in rows:
        row["letters_per_second"] = f"{test.y.size / max(float(row['seconds']), 1e-4):.0f}"
    return rows


def made(length: int, n_labels: int, letters: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences of one length in which every label occurs: rows, labels, lengths."""
    rng = np.random.default_rng(0)
    sizes = np.full(max(letters // length, 1), length)
    y = rng.integers(n_labels, size=sizes.sum())
    y[:n_labels] = np.arange(n_labels)[: y.size]
    return rng.normal(size=(n_labels, FEATURES))[y] + rng.normal(size=(y.size, FEATURES)), y, sizes


def epochs(X: np.ndarray, y: np.ndarray, sizes: np.ndarray, n: int) -> dict[str, float]:
    """Seconds of an epoch and of decoding, after `n` epochs of the default solver."""
    model = ChainSVC(C=1e-3, normalize_loss=False, max_iter=n, tol=1e-9, random_state=0)
    model.fit(X, y, lengths=sizes)
    decoding = []
    for _ in range(3):
        start = time.perf_counter()
        model.predict(X, lengths=sizes)
        decoding.append(time.perf_counter() - start)
    return {"epoch": model.history_[-1]["seconds"] / model.n_iter_, "decoding": float(np.median(decoding))}


def growth(small: bool) -> list[dict[str, Any]]:
    """Lengths at 26 labels, labels at length 20."""
    letters = 2_000 if small else LETTERS
    cases = [("length", L, 26) for L in LENGTHS if letters >= L]
    cases += [("labels", 20, K) for K in (LABELS[:5] if small else LABELS)]
    warm = partial(epochs, *made(5, 3, 50), 2)
    rows = []
    for varied, length, n_labels in cases:
        data = made(length, n_labels, letters)
        report = run_alone(partial(epochs, *data, 5), warm)
        seconds, size = report["answer"], data[1].size
        rows.append(
            {
                "varied": varied,
                "length": length,
                "labels": n_labels,
                "letters": size,
                "epoch_microseconds_per_letter": f"{1e6 * seconds['epoch'] / size:.4g}",
                "decoding_microseconds_per_letter": f"{1e6 * seconds['decoding'] / size:.4g}",
                "peak_mib": f"{report['peak_mib']:.1f}",
                "input_mib": f"{data[0].nbytes / 2**20:.1f}",
            }
        )
        print(rows[-1], flush=True)
    return rows


def draw(rows: list[dict[str, Any]]) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(10, 7))
    for column, what in enumerate(("length", "labels")):
        part = [row for row in rows if row["varied"] == what]
        at = [row[what] for row in part]
        for name in ("epoch", "decoding"):
            times = [float(row[f"{name}_microseconds_per_letter"]) for row in part]
            axes[0, column].loglog(at, times, "o-", label=name)
        for name, label in (("peak_mib", "peak above the start"), ("input_mib", "input")):
            axes[1, column].loglog(at, [max(float(row[name]), 0.1) for row in part], "o-", label=label)
        axes[0, column].set_ylabel("microseconds per letter")
        axes[1, column].set_ylabel("MiB")
        for axis in axes[:, column]:
            axis.set_xlabel({"length": "length of a sequence", "labels": "number of labels"}[what])
            axis.legend()
    figure.suptitle(f"ChainSVC, about {LETTERS} letters of {FEATURES} features, one thread")
    figure.tight_layout()
    figure.savefig(RESULTS / "chain_growth.png", dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--lam", type=float, nargs="+", default=[0.01])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("race", "growth"))
    parser.add_argument("--small", action="store_true", help="few words, loose gap: to see that it runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    machine = machine_state()

    def keep(name: str, rows: list[dict[str, Any]]) -> None:
        suffix = "_small" if arguments.small else ""
        write_csv(f"{name}{suffix}", [{**row, "machine": machine} for row in rows])

    if arguments.only != "growth":
        train, test = load_words("train"), load_words("test")
        if arguments.small:
            train, test = first(train, 60), first(test, 60)
        rows = decoding(train, test, arguments.repeats)
        for lam in arguments.lam:
            rows += training(train, lam, 0.1 if arguments.small else arguments.tol, arguments.repeats)
        keep("chain_race", rows)
    if arguments.only != "race":
        grown = growth(arguments.small)
        keep("chain_growth", grown)
        if not arguments.small:
            draw(grown)


if __name__ == "__main__":
    main()
