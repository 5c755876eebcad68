"""A large SVMlight file through the command line: peak memory and time of `info`, `fit` and `predict`.

The file is drawn at random, shaped like text (`--gib 1` by default), in a temporary directory
that is removed afterwards. Peak memory is that of the whole process, with the interpreter and the
libraries, of which the first row, a fit on a tiny file, gives an idea.

    python -m benchmarks.large_file [--gib 1] [--small]
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "large_file.csv"
FEATURES, PER_ROW, LABELS, DISTINCT = 50_000, 80, 8, 4000


def write_file(path: Path, n_bytes: int) -> tuple[int, int, int]:
    """Repeat a few thousand random rows up to the wanted size; returns bytes, samples and nonzeros."""
    rng = np.random.default_rng(0)
    lines, nonzeros = [], 0
    for labels in rng.random((DISTINCT, LABELS)) < 0.2:
        columns = np.unique(rng.integers(1, FEATURES + 1, PER_ROW))
        values = rng.uniform(0.1, 1, len(columns))
        pairs = " ".join(f"{j}:{x:.6f}" for j, x in zip(columns.tolist(), values.tolist(), strict=True))
        lines.append(f"{','.join(map(str, np.flatnonzero(labels)))} {pairs}\n")
        nonzeros += len(columns)
    block = "".join(lines).encode()
    times = -(-n_bytes // len(block))
    with open(path, "wb") as out:
        for _ in range(times):
            out.write(block)
    return times * len(block), times * len(lines), times * nonzeros


def run(words: list[str], folder: Path) -> dict[str, float]:
    """Seconds, processor seconds and peak MiB of a command line."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "maxmargin.cli", *words], cwd=folder, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"maxmargin {' '.join(words)} failed")
    return {
        "peak_mib": round(used.ru_maxrss / 1024),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    }


def measure(n_bytes: int) -> list[dict[str, object]]:
    """One record per command."""
    model = ["-m", "multilabel", "--max-iter", "2", "--n-jobs", "1"]
    commands = {
        "fit on a tiny file": ["fit", "tiny.svm", *model, "-o", "tiny.mm"],
        "datasets info": ["datasets", "info", "large.svm"],
        "fit, two epochs": ["fit", "large.svm", *model, "-o", "large.mm"],
        "fit, two epochs, float32": ["fit", "large.svm", *model, "--float32", "-o", "large32.mm"],
        "predict": ["predict", "large.mm", "large.svm", "-o", "out.csv"],
        "predict --to same": ["predict", "large.mm", "large.svm", "--to", "same", "-o", "out.svm"],
    }
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="maxmargin-") as place:
        folder = Path(place)
        small, large = write_file(folder / "tiny.svm", 1), write_file(folder / "large.svm", n_bytes)
        for name, words in commands.items():
            n_bytes, rows, nonzeros = small if "tiny" in name else large
            csr = (nonzeros * (8 if "float32" in name else 12) + 4 * rows) / 2**20
            sizes = {"file_mib": round(n_bytes / 2**20), "samples": rows, "csr_mib": round(csr)}
            taken = run(words, folder)
            found.append(
                {"command": name, **sizes, **taken, "peak_of_csr": round(taken["peak_mib"] / csr, 2)}
            )
            print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--small", action="store_true", help="20 MiB, and keep no results")
    options = parser.parse_args()
    records = measure(20 << 20 if options.small else int(options.gib * 2**30))
    if not options.small:
        with open(RESULTS, "w", newline="", encoding="utf-8") as file:
            load = f"load {os.getloadavg()[0]:.1f}"  # on a busy machine only cpu_seconds tell
            file.write(f"# {platform.machine()}, {os.cpu_count()} cores, {load}, one thread\n")
            writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(records)


if __name__ == "__main__":
    main()
