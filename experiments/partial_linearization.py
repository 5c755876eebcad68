"""Partial linearization (BCPL) beside Frank-Wolfe (BCFW) and exponentiated gradient (OEG).

    python -m experiments.partial_linearization [--small] [sizes] [why] [words] [bags]
    python -m experiments.partial_linearization sizes --data mnist --n 1000 4000
    python -m experiments.partial_linearization draw         # the figure, from the stored results

Written to results/, row by row, with lambda = 1 / (C n), no intercept and dual objectives times lambda:

- partial_linearization_sizes.csv: five sets at n = 1,000, 4,000, 16,000 and all, lambda = 0.1, 0.01, 0.001,
  BCFW and BCPL. Every run ends at a gap of 1e-3, after `most_passes` passes or after `limit_s` CPU seconds
  (--limit; twice that with more than 4,000 samples); `reached` counts the runs that reached the gap.
  `passes` and `cpu_s` are those of the whole run, `passes_to_common` and `cpu_to_common` those to the
  highest dual objective that all runs of BCFW and BCPL reach, with those of BCFW beside them; spreads are
  standard deviations over the seeds;
- partial_linearization_why.csv: one problem with one change at a time, every run to the gap or for
  `limit_s` CPU seconds, and the share of blocks of the optimum with more than one class;
- partial_linearization_words.csv: the words of the OCR set; every run has the same CPU seconds, or ends at
  a gap of 1e-3 (ocr_words_curves.csv has all eight temperatures of the paper);
- partial_linearization_bags.csv: hidden digits, the convex problem of a fit's last round, every run with
  the same CPU seconds (figures 1d, 2d);
- partial_linearization.png: CPU seconds of BCFW and BCPL to one dual objective, mean over lambda (figure
  2).

BCPL is the paper's: tau = 0.01, no safeguard, no floor. All start near W = 0. Seconds are CPU time of one
thread, with a certificate after every pass.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from experiments._races import Curve, common, mean_and_spread, trace
from experiments._results import RESULTS, SMALL, command_line, load, one_of, show, write
from experiments._words import load_words
from experiments.latent_digits import hide, windows
from experiments.multiclass_solvers import problem
from maxmargin import ChainSVC, LatentSVC, MultiClassSVC
from maxmargin.core.loop import Clock
from maxmargin.core.rows import Rows
from maxmargin.structured.latent_rounds import LatentProblem, PairBlocks, SoftPairs

DATA = ("letter", "satimage", "reuters-r52", "20newsgroups", "mnist")
SIZES = (300,) if SMALL else (1000, 4000, 16000, 10**9)
LAMBDAS = (0.1, 0.01) if SMALL else (0.1, 0.01, 0.001)
SEEDS = range(1 if SMALL else 3)
GRID = (10.0, 0.01) if SMALL else (100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 1e-5, 1e-10)
PASSES, LIMIT = (5, 0.1) if SMALL else (1000, 3.0)
WHY_SECONDS, WORD_SECONDS, BAG_SECONDS = (0.1, 0.1, 0.1) if SMALL else (2.4, 6.0, 1.5)
PAPER = {"solver": "bcpl", "temperature": 0.01, "safeguard": False}
SOLVERS: dict[str, dict[str, Any]] = {
    "BCFW": {"solver": "bcfw"},
    "BCPL": {**PAPER, "solver": "bcpl without floor"},
    "BCPL, safeguarded": {"solver": "bcpl"},
    "OEG, safe tau": {"solver": "oeg"},
}
TWO = {name: SOLVERS[name] for name in ("BCFW", "BCPL")}


def multiclass(
    X: Any, y: np.ndarray, lam: float, limit: float, passes: int, options: dict[str, Any], seed: int
) -> Curve:
    """One run, at most so many CPU seconds and passes long."""
    model = MultiClassSVC(
        C=1 / (lam * len(y)), fit_intercept=False, max_iter=passes, random_state=seed, **options
    )
    curve = trace(model, limit, X, y)
    return curve._replace(dual=lam * curve.dual)


def races(make: Any, solvers: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for every solver: `make(options, seed)` runs it. BCFW comes first."""
    curves: dict[str, list[Curve]] = {}
    for label, options in solvers.items():
        curves[label] = [make(options, seed) for seed in SEEDS]
        yield row_of(label, curves[label], curves["BCFW"])


def row_of(label: str, mine: list[Curve], theirs: list[Curve]) -> dict[str, Any]:
    """Return passes and seconds of a method, in all and to the dual objective that BCFW also reaches."""
    goal = common(mine, theirs)
    row: dict[str, Any] = {"solver": label, "seeds": len(mine)}
    row["reached"] = f"{sum(curve.gap <= 1e-3 for curve in mine)} of {len(mine)}"
    row["passes"], row["passes_spread"] = mean_and_spread([float(curve.passes) for curve in mine])
    row["cpu_s"], row["cpu_spread"] = mean_and_spread([float(curve.seconds[-1]) for curve in mine])
    row["gap"] = float(np.mean([curve.gap for curve in mine]))
    row["dual_objective"] = float(np.mean([curve.dual.max() for curve in mine]))
    for runs, name in ((mine, ""), (theirs, "bcfw_")):
        there = np.array([curve.reach(goal) for curve in runs])
        for what, values in zip(("passes", "cpu"), there.T.tolist(), strict=True):
            row[f"{name}{what}_to_common"], row[f"{name}{what}_to_common_spread"] = mean_and_spread(values)
    return row


def sizes(given: argparse.Namespace) -> None:
    """Figures 1a to 1c at several n."""
    for name in given.data:
        X, y = problem(name, SMALL)
        order = np.random.default_rng(0).permutation(len(y))
        for options in TWO.values():  # compiles
            multiclass(X[:200], y[:200], 0.1, 0.1, PASSES, options, 0)
        for n in sorted({min(n, len(y)) for n in given.n}):
            A, b = X[order[:n]], y[order[:n]]
            squares = sp.csr_array(A).power(2).sum(axis=1) if sp.issparse(A) else np.square(A).sum(axis=1)
            for lam in given.lambdas:
                limit = given.limit if n <= 4000 else 2 * given.limit
                about = {"data": name, "n": n, "all": n == len(y), "lambda": lam}
                about["kappa"] = float(np.mean(squares)) / (lam * n)
                for row in races(partial(multiclass, A, b, lam, limit, PASSES), TWO):
                    row |= {"limit_s": limit, "most_passes": PASSES}
                    write("partial_linearization_sizes", [about | row], ("data", "n", "lambda", "solver"))
                print(name, n, lam, flush=True)


def spread_blocks(X: Any, y: np.ndarray, lam: float) -> float:
    """Share of the samples whose block of the optimum is spread over several classes."""
    model = MultiClassSVC(C=1 / (lam * len(y)), fit_intercept=False, tol=1e-5, max_iter=2000, warm_start=True,
                          solver="exact", precision="double", random_state=0)  # fmt: skip
    blocks = model.fit(X, y)._warm[0]
    return float(np.mean(blocks.max(axis=1) < 1 - 1e-6))


def why(given: argparse.Namespace) -> None:
    """Is it curvature, the number of blocks, or where the optimum lies? One change at a time."""
    X, y = problem("mnist", False)
    order, lam, n = np.random.default_rng(0).permutation(len(y)), 0.1, 200 if SMALL else 1000
    few, many = order[:n], order[: 4 * n]
    norms = np.square(X[few]).sum(axis=1)
    flat = PCA(30, random_state=0).fit_transform(X[few])
    flat *= np.sqrt(norms.mean() / np.square(flat).sum(axis=1).mean())
    arms = {
        "base": (X[few], y[few], lam),
        "every sample four times": (np.tile(X[few], (4, 1)), np.tile(y[few], 4), lam),
        "four times the samples": (X[many], y[many], lam),
        "four times the samples, lambda / 4": (X[many], y[many], lam / 4),
        "lambda / 4": (X[few], y[few], lam / 4),
        "30 principal components, same |x|": (flat, y[few], lam),
        "30 principal components, lambda / 4": (flat, y[few], lam / 4),
    }
    for name, (A, b, strength) in arms.items():
        about = {"problem": name, "n": len(b), "features": A.shape[1], "lambda": strength}
        about["kappa"] = float(np.square(A).sum(axis=1).mean()) / (strength * len(b))
        about["spread_blocks"] = spread_blocks(A, b, strength)
        for row in races(partial(multiclass, A, b, strength, WHY_SECONDS, 10**5), SOLVERS):
            kept = about | row | {"limit_s": WHY_SECONDS}
            write("partial_linearization_why", [kept], ("problem", "solver"))
        show(about)


def words(given: argparse.Namespace) -> None:
    """Figures 1e and 2e: chains."""
    train = load_words("train")
    n = train.lengths.size

    def run(options: dict[str, Any], seed: int, seconds: float, lam: float) -> Curve:
        model = ChainSVC(C=1 / (lam * n), tol=1e-3, max_iter=100_000, random_state=seed, **options)
        curve = trace(model, seconds, train.X, train.y, lengths=train.lengths)
        return curve._replace(dual=lam * curve.dual)

    entries: list[tuple[str, float | str, dict[str, Any]]] = [
        ("BCFW", "", {"solver": "bcfw"}),
        ("BCPL", 0.01, PAPER),
        ("BCPL", 0.1, {**PAPER, "temperature": 0.1}),
        ("BCPL, safeguarded", "auto", {"solver": "bcpl"}),
    ]
    for _, _, options in entries:  # compiles
        run(options, 0, 0.0, 1.0)
    for lam in given.lambdas:
        theirs: list[Curve] = []
        for label, tau, options in entries:
            mine = [run(options, seed, WORD_SECONDS, lam) for seed in SEEDS]
            theirs = theirs or mine
            row = {"lambda": lam, "temperature": tau, **row_of(label, mine, theirs), "limit_s": WORD_SECONDS}
            write(
                "partial_linearization_words", [row], ("lambda", "solver", "temperature"), conditions=load()
            )
            print("words", lam, label, tau, flush=True)


def bags(given: argparse.Namespace) -> None:
    """Figures 1d and 2d: the convex problem with the candidates at which a fit has ended."""
    digits = load_digits()
    keep = np.random.default_rng(0).permutation(len(digits.target))[: 30 if SMALL else 300]
    strips, _ = hide(digits.images[keep], np.random.default_rng(1))
    X, y = windows(strips), digits.target[keep]
    rows, offsets = (
        Rows.of(np.ascontiguousarray(X.reshape(-1, X.shape[2]))),
        np.arange(len(y) + 1) * X.shape[1],
    )

    def last(lam: float) -> np.ndarray:
        model = LatentSVC(C=1 / (lam * len(y)), fit_intercept=False, tol=1e-2, random_state=0)
        return model.fit(X, y).latent_

    candidates = {lam: last(lam) for lam in given.lambdas}

    def run(label: str, tau: float | str, seed: int, lam: float) -> Curve:
        task, found = LatentProblem(rows, offsets, y, 10, 1 / (lam * len(y))), candidates[lam]
        if label == "BCFW":
            blocks: Any = PairBlocks(task, found, pairwise=False)
        else:
            blocks = SoftPairs(task, found, tau, label == "BCPL, safeguarded", search=label != "OEG")
        rng, start, dual, seconds = np.random.RandomState(seed), time.process_time(), [], []
        while not seconds or seconds[-1] < BAG_SECONDS:
            blocks.sweep(rng, Clock(None))
            dual.append(lam * blocks.objective())
            seconds.append(time.process_time() - start)
        upper = lam * task.values(blocks.recompute()[0], found).majoriser
        return Curve(np.array(dual), np.array(seconds), (upper - dual[-1]) / upper)

    for label in ("BCFW", "BCPL", "OEG"):  # compiles
        run(label, 1.0, 0, given.lambdas[0])
    for lam in given.lambdas:
        theirs: list[Curve] = []
        entries = [("BCFW", ""), ("BCPL", 0.01), ("BCPL, safeguarded", "auto"), ("OEG", "auto")]
        for label, tau in [*entries, *(("OEG", tau) for tau in GRID)]:
            mine = [run(label, tau or "auto", seed, lam) for seed in SEEDS]
            theirs = theirs or mine
            row = {"lambda": lam, "temperature": tau, **row_of(label, mine, theirs), "limit_s": BAG_SECONDS}
            write("partial_linearization_bags", [row], ("lambda", "solver", "temperature"), conditions=load())
        print("bags", lam, flush=True)


def bars() -> None:
    """Figure 2: seconds of both methods to the same dual objective, mean over lambda."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    means: dict[str, tuple[float, float]] = {}
    for part in ("sizes", "words", "bags"):
        path = RESULTS / f"partial_linearization_{part}.csv"
        if not path.exists():
            continue
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["solver"] == "BCPL"]
        rows = [row for row in rows if row.get("all", "True") == "True"]
        rows = [row for row in rows if float(row.get("temperature", 0.01)) == 0.01]
        for name in dict.fromkeys(row.get("data", part) for row in rows):
            own = [row for row in rows if row.get("data", part) == name]
            means[name] = tuple(
                float(np.mean([float(row[key]) for row in own]))
                for key in ("bcfw_cpu_to_common", "cpu_to_common")
            )
    figure, axis = plt.subplots(figsize=(1.5 + 1.3 * len(means), 4))
    for k, label in enumerate(("BCFW", "BCPL, tau = 0.01")):
        axis.bar(np.arange(len(means)) + 0.4 * k, [pair[k] for pair in means.values()], 0.4, label=label)
    axis.set_xticks(np.arange(len(means)) + 0.2, list(means))
    axis.set(yscale="log", ylabel="CPU seconds to the same dual objective, mean over lambda")
    axis.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "partial_linearization.png", dpi=110)


PARTS = {"why": why, "words": words, "bags": bags, "sizes": sizes}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument(
        "parts", nargs="*", type=one_of([*PARTS, "draw"]), help=f"of {', '.join(PARTS)}, draw"
    )
    parser.add_argument(
        "--data", nargs="*", choices=DATA, default=DATA[:1] if SMALL else DATA, help="sets of `sizes`"
    )
    parser.add_argument("--n", type=int, nargs="*", default=SIZES, help="numbers of samples of `sizes`")
    parser.add_argument("--lambdas", type=float, nargs="*", default=LAMBDAS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds of a run of `sizes`")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = given.parts or [*PARTS, "draw"]
    for part in parts:
        if part in PARTS:
            PARTS[part](given)
    if "draw" in parts:
        bars()


if __name__ == "__main__":
    main()
