"""A large SVMlight file on the command line: peak memory and time of `info`, `fit` and `predict`.

commands    the only race; -p gib=1

The file is random, shaped like text, in a temporary directory. Peak memory is that of the whole process with
interpreter and libraries; the first row, a fit on a tiny file, shows their share. Results: large_file.csv.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.race import Row, Setting, run_command, save

FEATURES, PER_ROW, LABELS, DISTINCT = 50_000, 80, 8, 4000


def write_file(path: Path, n_bytes: int, distinct: int = DISTINCT) -> tuple[int, int, int]:
    """Repeat a few thousand random rows up to the wanted size; returns bytes, samples and nonzeros."""
    rng = np.random.default_rng(0)
    lines, nonzeros = [], 0
    for labels in rng.random((distinct, LABELS)) < 0.2:
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


def maxmargin(words: list[str], folder: Path) -> dict[str, float]:
    """Seconds, processor seconds and peak MiB of a command line of this package."""
    return run_command([sys.executable, "-m", "maxmargin.cli", *words], folder)


def commands(setting: Setting, gib: float = 1.0) -> None:
    """One row per command."""
    model = ["-m", "multilabel", "--max-iter", "2", "--n-jobs", "1"]
    lines = {
        "fit on a tiny file": ["fit", "tiny.svm", *model, "-o", "tiny.mm"],
        "datasets info": ["datasets", "info", "large.svm"],
        "fit, two epochs": ["fit", "large.svm", *model, "-o", "large.mm"],
        "fit, two epochs, float32": ["fit", "large.svm", *model, "--float32", "-o", "large32.mm"],
        "predict": ["predict", "large.mm", "large.svm", "-o", "out.csv"],
        "predict --to same": ["predict", "large.mm", "large.svm", "--to", "same", "-o", "out.svm"],
    }
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="maxmargin-") as place:
        folder = Path(place)
        distinct = 200 if setting.small else DISTINCT
        tiny = write_file(folder / "tiny.svm", 1, distinct)
        large = write_file(folder / "large.svm", 1 << 18 if setting.small else int(gib * 2**30), distinct)
        for name, words in lines.items():
            n_bytes, samples, nonzeros = tiny if "tiny" in name else large
            csr = (nonzeros * (8 if "float32" in name else 12) + 4 * samples) / 2**20
            taken = maxmargin(words, folder)
            rows.append(
                {
                    "command": name,
                    "file_mib": round(n_bytes / 2**20),
                    "samples": samples,
                    "csr_mib": round(csr),
                    **taken,
                    "peak_of_csr": round(taken["peak_mib"] / csr, 2),
                }
            )
    load = f"load {os.getloadavg()[0]:.1f}"  # on a busy machine only cpu_seconds are meaningful
    save(
        setting, "large_file", rows, note=f"{platform.machine()}, {os.cpu_count()} cores, {load}, one thread"
    )


RACES = {"commands": commands}
