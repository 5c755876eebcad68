"""What a first fit costs: CPU seconds with nothing compiled, and in a new process once the loops are on disk.

    python -m benchmarks.cold_fits                       # every default fit
    python -m benchmarks.cold_fits ChainSVC --repeats 5  # one estimator
    python -m benchmarks.cold_fits --loops               # and which loops took how long, the slowest first

Every fit has an empty folder for machine code and two processes, one after the other: the first one (`cold`)
compiles, the second one (`kept`) reads what the first left there. Counted is the processor time, user and
system, from before `import maxmargin` (NumPy, SciPy and scikit-learn are there already, for the data) to the
end of fit and predict, the median of `--repeats` runs, on one BLAS thread. Machine code that a wheel brought
is used where the package has some. Each fit is one row of results/cold_fits.csv, with the number of loops
that were compiled and the machine's load when it began, as times on a busy machine are higher. A run of some
of the fits leaves the rows of the others.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "cold_fits.csv"
# A name, the estimator, its parameters, the labels and what X is.
Fit = tuple[str, str, dict[str, Any], str, str]
FITS: list[Fit] = [
    ("MultiLabelSVC", "MultiLabelSVC", {}, "labels", "table"),
    ("MultiLabelSVC, wide rows", "MultiLabelSVC", {}, "labels", "words"),
    ("MultiLabelSVC, label blocks", "MultiLabelSVC", {"memory_limit": 0}, "labels", "words"),
    ("MultiLabelSVC, rbf", "MultiLabelSVC", {"kernel": "rbf"}, "labels", "table"),
    ("MultiClassSVC", "MultiClassSVC", {}, "classes", "table"),
    ("MultiClassSVC, wide rows", "MultiClassSVC", {}, "classes", "words"),
    ("MultiClassSVC, rbf", "MultiClassSVC", {"kernel": "rbf"}, "classes", "table"),
    ("LatentSVC", "LatentSVC", {}, "bags", "table"),
    ("ChainSVC", "ChainSVC", {}, "chains", "table"),
    ("LabelRanker", "LabelRanker", {}, "labels", "table"),
    ("SparseMultiClassSVC", "SparseMultiClassSVC", {"max_basis": 10}, "classes", "table"),
    (
        "SparseMultiClassSVC, learned",
        "SparseMultiClassSVC",
        {"max_basis": 5, "basis": "learned"},
        "classes",
        "table",
    ),
    ("SparseMultiLabelSVC", "SparseMultiLabelSVC", {"max_basis": 10}, "labels", "table"),
    (
        "SparseMultiLabelSVC, learned",
        "SparseMultiLabelSVC",
        {"max_basis": 5, "basis": "learned"},
        "labels",
        "table",
    ),
    ("SubmodularSVC", "SubmodularSVC", {"tol": 0.1}, "labels", "table"),
]
COLUMNS = ("fit", "cold_cpu_s", "kept_cpu_s", "loops", "repeats", "load")


def first_fit(fit: Fit) -> dict[str, Any]:
    """Fit and predict made data in this process: its CPU seconds, and those of every loop it compiled."""
    import time
    import warnings

    import numpy as np
    import scipy.sparse as sp
    import sklearn.base  # noqa: F401

    _, estimator, params, labels, kind = fit
    rng = np.random.default_rng(0)
    shape, filled = ((600, 800), 0.05) if kind == "words" else ((600, 12), 0.7)
    X = rng.random(shape) * (rng.random(shape) < filled)
    codes = np.arange(600) % (26 if labels == "chains" else 4)
    y = {"labels": (rng.random((600, 7)) < 0.3).astype(int), "bags": codes[:150]}.get(labels, codes)
    cut = {"lengths": np.full(150, 4)} if labels in ("bags", "chains") else {}
    warnings.simplefilter("ignore")
    start = time.process_time()
    import maxmargin
    from maxmargin.core.dispatch import Loop

    model = getattr(maxmargin, estimator)(**params)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    if "max_iter" in model.get_params():
        model.set_params(max_iter=20)
    from numba.core import event

    loops: list[tuple[str, float]] = []

    class Listener(event.Listener):
        """Takes the time of loops that Python calls; their parts are compiled within it."""

        began = 0.0

        def on_start(self, event: Any) -> None:
            if isinstance(event.data["dispatcher"], Loop):
                self.began = time.process_time()

        def on_end(self, event: Any) -> None:
            loop = event.data["dispatcher"]
            if isinstance(loop, Loop):
                loops.append((loop.py_func.__qualname__, time.process_time() - self.began))

    event.register("numba:compile", Listener())
    rows = sp.csr_array(X) if kind == "words" else X
    model.fit(rows, y, **cut).predict(rows, **cut)
    return {"seconds": time.process_time() - start, "loops": loops}


def in_new_process(fit: Fit, cache: Path) -> dict[str, Any]:
    """`first_fit` in a process of its own, with a folder for machine code."""
    environment = {"NUMBA_CACHE_DIR": str(cache), "MAXMARGIN_JIT_CACHE": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.cold_fits", "--alone", json.dumps(fit)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True, timeout=600
    )
    return json.loads(done.stdout)


def measure(fit: Fit, repeats: int) -> tuple[dict[str, Any], list[tuple[str, float]]]:
    """One row of the results, and the loops of the last cold fit."""
    load = os.getloadavg()[0]
    cold, kept = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as room:
            cold.append(in_new_process(fit, Path(room)))
            kept.append(in_new_process(fit, Path(room)))
    if any(run["loops"] for run in kept):
        raise SystemExit(f"{fit[0]}: compiled again what was on disk.")
    loops = cold[-1]["loops"]
    seconds = [round(statistics.median(run["seconds"] for run in runs), 2) for runs in (cold, kept)]
    return dict(zip(COLUMNS, (fit[0], *seconds, len(loops), repeats, round(load, 1)), strict=True)), loops


def keep(row: dict[str, Any]) -> None:
    """Put the row in place of an earlier one of the same fit, in the order of FITS."""
    kept: dict[str, dict[str, Any]] = {}
    if RESULTS.exists():
        with open(RESULTS, newline="") as file:
            kept = {row["fit"]: row for row in csv.DictReader(file)}
    kept[row["fit"]] = row
    with open(RESULTS, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept[fit[0]] for fit in FITS if fit[0] in kept)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="fits whose names begin so; all by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--loops", action="store_true", help="print the seconds of every loop")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.alone:
        print(json.dumps(first_fit(tuple(json.loads(asked.alone)))))
        return
    for fit in FITS:
        if not asked.names or any(fit[0].startswith(name) for name in asked.names):
            row, loops = measure(fit, asked.repeats)
            print(*(f"{name}={value}" for name, value in row.items()), flush=True)
            if asked.loops:
                print(*(f"    {s:.2f} {name}" for name, s in sorted(loops, key=lambda l: -l[1])), sep="\n")
            keep(row)


if __name__ == "__main__":
    main()
