"""Races of `ChainSVC` on OCR words, one thread each.

decoding   letters per second on the test words against sklearn-crfsuite, with its feature dictionaries
           converted to its item sequences beforehand (not timed) and without; "nothing" returns one label
           and measures the cost of reading the input; both models have the parameters that folds of the
           training words choose (experiments/ocr_words.py)
training   the default solver against block-coordinate Frank-Wolfe, both to the same certified gap
           (-p tol=1e-2, -p lam=[0.01])
growth     time of an epoch and of decoding, and memory, against the length of the sequences and
           the number of labels, on generated data

Every run has its own process, in which a small run compiles first. Competitors take turns, and the median of
three runs counts. Results: chain_race.csv (decoding and training), chain_growth.csv and chain_growth.png.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import crfsuite
from benchmarks.race import Competitor, Panel, Row, Setting, lines, machine, plot, race, run_alone, save
from maxmargin import ChainSVC, datasets

REPEATS = 3
SOLVERS = ("pairwise", "bcfw")
LENGTHS = (1, 10, 100, 1000, 10_000)
LABELS = (2, 4, 8, 16, 32, 64, 128, 256)
LETTERS, FEATURES = 20_000, 20
KEY = ("race", "competitor")
CHOSEN = {"lam": 0.04, "normalize_loss": False, "intercept_scaling": 8.0}


@dataclass(frozen=True)
class Words:
    """Stacked letters (CSR pixels), their labels, and the number of letters of each word."""

    X: sp.csr_array
    y: np.ndarray
    lengths: np.ndarray

    def first(self, n: int) -> Words:
        rows = int(self.lengths[:n].sum())
        return Words(self.X[:rows], self.y[:rows], self.lengths[:n])

    def cut(self, stacked: np.ndarray) -> list[list[Any]]:
        """One list per word."""
        return [part.tolist() for part in np.split(stacked, np.cumsum(self.lengths)[:-1])]

    def fit(self, lam: float, **options: Any) -> ChainSVC:
        model = ChainSVC(C=1 / (lam * self.lengths.size), random_state=0, **options)
        return model.fit(self.X, self.y, lengths=self.lengths)


def real(split: str) -> Words:
    """Fold 0 ("train", 626 words) or the other nine folds ("test", 6251 words)."""
    data = datasets.load("ocr-letters")
    rows = data.train if split == "train" else data.test
    lengths = np.unique(data.per_row["word"][rows], return_counts=True)[1]
    return Words(sp.csr_array(data.X[rows]), data.y[rows], lengths)


def toy(split: str) -> Words:
    X, codes, lengths = made(5, 4, 800, seed=split == "test")
    return Words(sp.csr_array(np.maximum(X, 0)), np.array(list("aeio"))[codes], lengths)


def made(
    length: int, n_labels: int, letters: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences of one length in which every label occurs: rows, labels, lengths."""
    rng = np.random.default_rng(seed)
    sizes = np.full(max(letters // length, 1), length)
    y = rng.integers(n_labels, size=sizes.sum())
    y[:n_labels] = np.arange(n_labels)[: y.size]
    return rng.normal(size=(n_labels, FEATURES))[y] + rng.normal(size=(y.size, FEATURES)), y, sizes


def rows_of(
    title: str, competitors: Sequence[Competitor], describe: Callable[[Any], Row], setting: Setting
) -> list[Row]:
    """Return the median seconds of every competitor, and their ratio to the first one, which is ours."""
    results = race(competitors, setting.times(REPEATS))
    first = next(iter(results.values())).seconds
    return [
        {
            "race": title,
            "competitor": name,
            "seconds": f"{result.seconds:.4f}",
            "times_ours": f"{result.seconds / first:.2f}",
            "peak_mib": f"{result.peak_mib:.1f}",
            "first_call_seconds": f"{result.first_call:.2f}",
            **describe(result),
            "machine": machine(),
        }
        for name, result in results.items()
    ]


def decoding(setting: Setting) -> None:
    """Letters per second of models trained on the training words."""
    load = toy if setting.small else real
    train, test = load("train"), load("test")
    model, dense = train.fit(**CHOSEN, tol=1e-2, max_iter=3000), test.X.toarray()
    calls: dict[str, Callable[[], Any]] = {
        "ChainSVC, CSR": lambda: model.predict(test.X, lengths=test.lengths),
        "ChainSVC, dense": lambda: model.predict(dense, lengths=test.lengths),
    }
    if all(find_spec(name) for name in crfsuite.NEEDS):
        crf, dicts = crfsuite.fit(train), crfsuite.features(test)
        prepared = crfsuite.prepared(dicts)
        calls["sklearn-crfsuite, dicts"] = lambda: crf.predict(dicts)
        calls["sklearn-crfsuite, prepared"] = lambda: crfsuite.tag(crf, prepared)
    else:
        print("  sklearn-crfsuite: left out, it is not installed (pip install -e .[bench])")
    calls["nothing"] = lambda: np.full(test.y.size, "e")

    def describe(result: Any) -> Row:
        answer = result.answer
        letters = answer if isinstance(answer[0], str) else np.concatenate([np.asarray(w) for w in answer])
        return {
            "letter_error": f"{np.mean(letters != test.y):.4f}",
            "letters_per_second": f"{test.y.size / max(result.seconds, 1e-4):.0f}",
        }

    competitors = [Competitor(name, call, call) for name, call in calls.items()]
    save(setting, "chain_race", rows_of("decoding", competitors, describe, setting), KEY)


def training(setting: Setting, lam: Sequence[float] = (0.01,), tol: float = 1e-2) -> None:
    """Seconds to the certified gap."""
    train, tol = (toy("train"), max(tol, 0.1)) if setting.small else (real("train"), tol)
    few, rows = train.first(50), []

    def trained(strength: float, solver: str) -> Row:
        model = train.fit(strength, solver=solver, tol=tol, max_iter=100_000)
        objective = strength * model.primal_objective_
        return {"epochs": model.n_iter_, "gap": model.duality_gap_, "objective": objective}

    for strength in lam:
        competitors = [
            Competitor(
                solver,
                partial(trained, strength, solver),
                partial(few.fit, strength, solver=solver, max_iter=1),
            )
            for solver in SOLVERS
        ]
        title = f"training, lambda={strength:g}, gap {tol:g}"
        rows += rows_of(
            title, competitors, lambda result: {k: f"{v:.6g}" for k, v in result.answer.items()}, setting
        )
    save(setting, "chain_race", rows, KEY)


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


def growth(setting: Setting) -> None:
    """Lengths at 26 labels, labels at length 20."""
    letters = 500 if setting.small else LETTERS
    cases = [("length", L, 26) for L in LENGTHS if letters >= L]
    cases += [("labels", 20, K) for K in (LABELS[:3] if setting.small else LABELS)]
    warm = partial(epochs, *made(5, 3, 50), 2)
    rows: list[Row] = []
    for varied, length, n_labels in cases:
        data = made(length, n_labels, letters)
        run = run_alone(Competitor(varied, partial(epochs, *data, 5), warm))
        rows.append(
            {
                "varied": varied,
                "length": length,
                "labels": n_labels,
                "letters": data[1].size,
                "epoch_microseconds_per_letter": f"{1e6 * run.answer['epoch'] / data[1].size:.4g}",
                "decoding_microseconds_per_letter": f"{1e6 * run.answer['decoding'] / data[1].size:.4g}",
                "peak_mib": f"{run.peak_mib:.1f}",
                "input_mib": f"{data[0].nbytes / 2**20:.1f}",
                "machine": machine(),
            }
        )
    save(setting, "chain_growth", rows)
    panels: list[list[Panel]] = [[], []]
    for what, title in (("length", "length of a sequence"), ("labels", "number of labels")):

        def of(column: str, what: str = what) -> Any:
            return lines(rows, what, column, "varied", varied=what)[what]

        times = {name: of(f"{name}_microseconds_per_letter") for name in ("epoch", "decoding")}
        panels[0].append(Panel(title, "microseconds per letter", times))
        panels[1].append(
            Panel(title, "MiB", {"peak above the start": of("peak_mib"), "input": of("input_mib")})
        )
    plot(
        setting,
        "chain_growth",
        panels,
        f"ChainSVC, about {letters} letters of {FEATURES} features, one thread",
    )


RACES = {"decoding": decoding, "training": training, "growth": growth}
