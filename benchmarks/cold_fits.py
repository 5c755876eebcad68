"""Cost of a first fit: CPU seconds with nothing compiled, and in a new process with the loops on disk.

    python -m benchmarks.cold_fits                       # every fit
    python -m benchmarks.cold_fits ChainSVC --repeats 5  # one estimator
    python -m benchmarks.cold_fits small toy --loops     # small problems, and the loops that were compiled

Every fit has an empty folder for compiled loops and two processes. The first one (`cold`) compiles, the
second one (`kept`) loads the compiled loops. The time is user and system CPU time from before
`import maxmargin` (NumPy, SciPy and scikit-learn are already imported) to the end of fit and predict: the
median of `--repeats` runs with one BLAS thread. Fits on 600 rows end after 20 epochs. Small data sets,
generated data of the shape of glass, and toys of 40 rows are fitted to the end.

Each fit is one row of results/cold_fits.csv, with the number of compiled signatures and the load of the
machine at its start. A run of some fits leaves the rows of the others.
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
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn.datasets
import sklearn.svm  # a user of scikit-learn has it already

RESULTS = Path(__file__).parent / "results" / "cold_fits.csv"
COLUMNS = ("fit", "cold_cpu_s", "kept_cpu_s", "loops", "repeats", "load")
RBF: dict[str, Any] = {"kernel": "rbf"}
FEW, LEARNED = {"max_basis": 10}, {"max_basis": 5, "basis": "learned"}
# A name, the estimator, its parameters, the labels, and a data set or the shape of rows that are made.
Fit = tuple[str, str, dict[str, Any], str, str]
FITS: list[Fit] = [
    ("MultiLabelSVC", "MultiLabelSVC", {}, "labels", "600 x 12"),
    ("MultiLabelSVC, wide rows", "MultiLabelSVC", {}, "labels", "600 x 800"),
    ("MultiLabelSVC, label blocks", "MultiLabelSVC", {"memory_limit": 0}, "labels", "600 x 800"),
    ("MultiLabelSVC, rbf", "MultiLabelSVC", RBF, "labels", "600 x 12"),
    ("MultiClassSVC", "MultiClassSVC", {}, "classes", "600 x 12"),
    ("MultiClassSVC, wide rows", "MultiClassSVC", {}, "classes", "600 x 800"),
    ("MultiClassSVC, rbf", "MultiClassSVC", RBF, "classes", "600 x 12"),
    ("LatentSVC", "LatentSVC", {}, "bags", "600 x 12"),
    ("ChainSVC", "ChainSVC", {}, "chains", "600 x 12"),
    ("LabelRanker", "LabelRanker", {}, "labels", "600 x 12"),
    ("SparseMultiClassSVC", "SparseMultiClassSVC", FEW, "classes", "600 x 12"),
    ("SparseMultiClassSVC, learned", "SparseMultiClassSVC", LEARNED, "classes", "600 x 12"),
    ("SparseMultiLabelSVC", "SparseMultiLabelSVC", FEW, "labels", "600 x 12"),
    ("SparseMultiLabelSVC, learned", "SparseMultiLabelSVC", LEARNED, "labels", "600 x 12"),
    ("SubmodularSVC", "SubmodularSVC", {"tol": 0.1}, "labels", "600 x 12"),
    ("SubmodularSVC, wide rows", "SubmodularSVC", {"tol": 0.1}, "labels", "600 x 800"),
    ("SubmodularSVC, yeast", "SubmodularSVC", {"tol": 0.1}, "labels", "yeast"),
    *(
        (f"small {data}, {name}", name, {}, labels, data if data != "glass" else "214 x 9")
        for data in ("iris", "wine", "breast_cancer", "glass", "digits")
        for name, labels in (("MultiClassSVC", "classes"), ("MultiLabelSVC", "one of them"))
    ),
    ("small yeast, MultiLabelSVC", "MultiLabelSVC", {}, "labels", "yeast"),
    ("small rbf, MultiClassSVC", "MultiClassSVC", RBF, "classes", "300 x 12"),
    ("small rbf, MultiLabelSVC", "MultiLabelSVC", RBF, "labels", "300 x 12"),
    ("toy MultiLabelSVC", "MultiLabelSVC", {}, "labels", "40 x 5"),
    ("toy MultiClassSVC", "MultiClassSVC", {}, "classes", "40 x 5"),
    ("toy ChainSVC", "ChainSVC", {}, "chains", "40 x 5"),
    ("toy LatentSVC", "LatentSVC", {}, "bags", "40 x 5"),
    ("toy LabelRanker", "LabelRanker", {}, "labels", "40 x 5"),
    ("toy StreamRanker", "StreamRanker", {}, "classes", "40 x 5"),
    ("toy SubmodularSVC", "SubmodularSVC", {}, "labels", "40 x 5"),
    ("toy SparseMultiLabelSVC", "SparseMultiLabelSVC", {}, "labels", "40 x 5"),
    ("toy SparseMultiClassSVC", "SparseMultiClassSVC", {}, "classes", "40 x 5"),
]


def data_of(labels: str, rows: str) -> tuple[np.ndarray, np.ndarray]:
    """Dense rows, and their labels as the estimator takes them."""
    rng = np.random.default_rng(0)
    if rows == "yeast":
        from maxmargin import datasets  # not in the process that is measured

        data = datasets.load("yeast", "train")
        return data.X, data.y
    if " x " in rows:
        n, d = map(int, rows.split(" x "))
        X = rng.random((n, d)) * (rng.random((n, d)) < (0.05 if d > 500 else 0.7))
        scores = X @ rng.normal(size=(d, 26 if labels == "chains" else 6)) + 0.3 * rng.normal(size=(n, 1))
        Y, y = (scores > np.quantile(scores, 0.7, axis=0)).astype(int), scores.argmax(1)
    else:
        X, y = getattr(sklearn.datasets, f"load_{rows}")(return_X_y=True)
        Y = np.eye(y.max() + 1, dtype=int)[y]
    if labels == "one of them":
        Y = np.eye(y.max() + 1, dtype=int)[y]
    return X, {"classes": y, "chains": y, "bags": y[::4]}.get(labels, Y)


def first_fit(fit: Fit, folder: Path) -> float:
    """CPU seconds of fitting and predicting the data in a folder, in a process that did nothing before."""
    _, estimator, params, labels, shape = fit
    with np.load(folder / "data.npz") as file:
        X, y = file["X"], file["y"]
    cut = {"lengths": np.full(len(X) // 4, 4)} if labels in ("bags", "chains") else {}
    rows = sp.csr_array(X) if X.shape[1] > 500 else X
    warnings.simplefilter("ignore")
    start = time.process_time()
    import maxmargin

    model = getattr(maxmargin, estimator)(**params)
    if estimator == "StreamRanker":
        for row, label in zip(rows.tolist(), y.tolist(), strict=True):
            model.learn_one(dict(enumerate(row)), label)
        return time.process_time() - start
    limits = {"random_state": 0} | ({"max_iter": 20} if shape.startswith("600") else {})
    model.set_params(**{key: value for key, value in limits.items() if key in model.get_params()})
    model.fit(rows, y, **cut).predict(rows, **cut)
    return time.process_time() - start


def in_new_process(fit: Fit, folder: Path) -> float:
    """Run `first_fit` in its own process with the given folder for compiled loops."""
    environment = {"NUMBA_CACHE_DIR": str(folder / "loops"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.cold_fits", "--alone", json.dumps(fit), str(folder)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"{fit[0]}: {done.stderr}")
    return float(done.stdout)


def measure(fit: Fit, repeats: int) -> tuple[dict[str, Any], list[str]]:
    """One row of the results, and the names of the loops of the last cold fit."""
    load = os.getloadavg()[0]
    X, y = data_of(*fit[3:])
    cold, kept = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            np.savez(folder / "data.npz", X=X, y=y)
            cold.append(in_new_process(fit, folder))
            loops = sorted(path.name.partition(".py3")[0] for path in folder.rglob("*.nbc"))
            kept.append(in_new_process(fit, folder))
            if len(list(folder.rglob("*.nbc"))) > len(loops):
                raise SystemExit(f"{fit[0]}: the second process compiled, too.")
    seconds = [round(statistics.median(runs), 2) for runs in (cold, kept)]
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
    parser.add_argument("--loops", action="store_true", help="print the loops that were compiled")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.alone:
        print(first_fit(tuple(json.loads(asked.alone[0])), Path(asked.alone[1])))
        return
    for fit in FITS:
        if not asked.names or any(fit[0].startswith(name) for name in asked.names):
            row, loops = measure(fit, asked.repeats)
            print(*(f"{name}={value}" for name, value in row.items()), flush=True)
            if asked.loops:
                print(*(f"    {name}" for name in loops), sep="\n")
            keep(row)


if __name__ == "__main__":
    main()
