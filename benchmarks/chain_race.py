"""Races of ChainSVC on OCR words, one thread.

training   the default solver against block-coordinate Frank-Wolfe, both to the same certified gap
           at lambda = 0.01; alternating, median of several runs
decoding   letters per second against sklearn-crfsuite on the same words (with its feature dicts
           turned into its own item sequences beforehand, which is not counted, and without)
growth     time of one training epoch and of decoding against the length of the sequences and
           the number of labels, on made data

Run it as ``python benchmarks/chain_race.py [--tol 1e-2] [--repeats 3] [--quick]``. Results go to
benchmarks/results: chain_race.csv, chain_growth.csv, chain_growth.png. The first call of every
solver (compilation) is made before and reported apart.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from maxmargin import ChainSVC

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from _words import Words, load_words
from ocr_words import pixel_features


def timed(call) -> tuple[float, object]:
    start = time.perf_counter()
    answer = call()
    return time.perf_counter() - start, answer


def training(train: Words, lam: float, tol: float, repeats: int) -> list[dict]:
    """Seconds to the certified gap, alternating between the solvers."""
    C = 1 / (lam * train.lengths.size)

    def fit(solver: str, **options) -> ChainSVC:
        model = ChainSVC(C=C, solver=solver, random_state=0, **options)
        return model.fit(train.X, train.y, lengths=train.lengths)

    rows = []
    for solver in ("pairwise", "bcfw"):
        seconds, _ = timed(lambda solver=solver: fit(solver, max_iter=1))
        rows.append({"race": "first call", "what": solver, "run": 0, "seconds": seconds})
    for run in range(repeats):
        for solver in ("pairwise", "bcfw"):
            seconds, model = timed(lambda solver=solver: fit(solver, tol=tol, max_iter=100_000))
            rows.append(
                {
                    "race": f"training, lambda={lam}, gap {tol}",
                    "what": solver,
                    "run": run,
                    "seconds": seconds,
                    "epochs": model.n_iter_,
                    "gap": model.duality_gap_,
                    "objective": lam * model.primal_objective_,
                }
            )
            print(rows[-1], flush=True)
    return rows


def decoding(train: Words, test: Words, repeats: int) -> list[dict]:
    """Letters per second; each model was trained on fold 0."""
    import pycrfsuite
    import sklearn_crfsuite

    C = 1 / (0.01 * train.lengths.size)
    model = ChainSVC(C=C, tol=0.1, random_state=0).fit(train.X, train.y, lengths=train.lengths)
    crf = sklearn_crfsuite.CRF(algorithm="lbfgs", c2=0.1, max_iterations=50, all_possible_transitions=True)
    crf.fit(pixel_features(train), [list(word) for word in train.labels()])
    features = pixel_features(test)
    prepared = [pycrfsuite.ItemSequence(word) for word in features]
    dense = test.X.toarray()
    contenders = {
        "ChainSVC, CSR": lambda: model.predict(test.X, lengths=test.lengths),
        "ChainSVC, dense": lambda: model.predict(dense, lengths=test.lengths),
        "sklearn-crfsuite, dicts": lambda: crf.predict(features),
        "sklearn-crfsuite, prepared": lambda: [crf.tagger_.tag(word) for word in prepared],
    }
    rows = []
    for run in range(-1, repeats):
        for name, call in contenders.items():
            seconds, answer = timed(call)
            if run < 0:
                continue
            letters = np.concatenate([np.asarray(word) for word in answer]) if name[0] == "s" else answer
            rows.append(
                {
                    "race": "decoding",
                    "what": name,
                    "run": run,
                    "seconds": seconds,
                    "letters per second": test.y.size / seconds,
                    "letter error": float(np.mean(letters != test.y)),
                }
            )
            print(rows[-1], flush=True)
    return rows


def growth(quick: bool) -> pd.DataFrame:
    """Seconds per epoch and for decoding: length at 26 labels, labels at length 20; 20 features."""
    lengths = (1, 10, 100, 1000) if quick else (1, 10, 100, 1000, 10_000)
    labels = (2, 8, 32) if quick else (2, 4, 8, 16, 32, 64, 128, 256)
    total = 2_000 if quick else 20_000
    rng, rows = np.random.default_rng(0), []
    for what, cases in (("length", [(L, 26) for L in lengths]), ("labels", [(20, K) for K in labels])):
        for L, K in cases:
            y = np.concatenate([np.arange(K), rng.integers(K, size=max(total, K) - K)])
            size = y.size - y.size % L if y.size >= L else y.size
            y = y[:size]
            X = rng.normal(size=(K, 20))[y] + rng.normal(size=(size, 20))
            sizes = np.full(max(size // L, 1), min(L, size))
            model = ChainSVC(C=1e-3, normalize_loss=False, max_iter=5, tol=1e-9, random_state=0)
            model.fit(X, y, lengths=sizes)
            decode = min(timed(lambda m=model, X=X, s=sizes: m.predict(X, lengths=s))[0] for _ in range(3))
            epoch = model.history_[-1]["seconds"] / model.n_iter_
            rows.append(
                {
                    "varied": what,
                    "length": L,
                    "labels": K,
                    "letters": size,
                    "epoch, microseconds per letter": 1e6 * epoch / size,
                    "decoding, microseconds per letter": 1e6 * decode / size,
                }
            )
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for axis, what in zip(axes, ("length", "labels"), strict=True):
        part = table[table["varied"] == what]
        for column in ("epoch, microseconds per letter", "decoding, microseconds per letter"):
            axis.loglog(part[what], part[column], "o-", label=column.split(",")[0])
        axis.set(xlabel={"length": "length of a sequence", "labels": "number of labels"}[what])
        axis.set_ylabel("microseconds per letter")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--lam", type=float, default=0.01)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    train, test = load_words("train"), load_words("test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rows = decoding(train, test, arguments.repeats)
        rows += training(train, arguments.lam, arguments.tol, arguments.repeats)
        table = pd.DataFrame(rows)
        table["machine"] = f"{platform.machine()} Python {platform.python_version()}"
        table.to_csv(arguments.out / "chain_race.csv", index=False, float_format="%.6g")
        grown = growth(arguments.quick)
    grown.to_csv(arguments.out / "chain_growth.csv", index=False, float_format="%.6g")
    draw(grown, arguments.out / "chain_growth.png")
    medians = table.groupby(["race", "what"])["seconds"].median()
    print(medians.to_string())


if __name__ == "__main__":
    main()
