"""A fit with rows mapped from files, beside the fit of the same rows in memory.

Generated sparse rows with noisy linear labels; certified relative gap 1e-3. Mapped rows have a memory limit
of a tenth of X. Each fit runs in its own process, which reports CPU seconds, wall seconds, and the peak
growth of its own memory (without pages of files); the median of some fits. Writes
``experiments/results/out_of_core.csv``.

    python -m experiments.out_of_core [--rows 1100000] [--labels 3 10] [--parts 40]
    python -m experiments.out_of_core --rows 20000 --labels 3 --parts 4 --share 1 --repeats 5
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from dask import compute, delayed

import maxmargin
from experiments._results import SMALL, command_line, show, write
from maxmargin.dask import MultiLabelSVC, store, stored

TOL, FEATURES, NONZEROS = 1e-3, 20_000, 80


def part(number: int, n: int, labels: int) -> tuple[Any, np.ndarray]:
    """Rows with columns as frequent as words are, of length one, and their labels."""
    rng = np.random.default_rng(number)
    columns = np.minimum((FEATURES ** rng.random((n, NONZEROS))).astype(np.int32) - 1, FEATURES - 1)
    X = sp.csr_array(
        (np.full(n * NONZEROS, NONZEROS**-0.5), columns.ravel(), np.arange(n + 1, dtype=np.int32) * NONZEROS),
        shape=(n, FEATURES),
    )
    X.sum_duplicates()
    W = np.random.default_rng(10**6).normal(size=(FEATURES, labels))
    F = X @ W
    return X, (F + 0.5 * F.std() * rng.normal(size=F.shape) > F.std()).astype(np.int8)


def own_memory() -> int:
    """Bytes of this process that belong to no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))


class Peak(threading.Thread):
    """Looks at the memory of this process again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.first = self.most = own_memory()
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.01):
            self.most = max(self.most, own_memory())


def measured(folder: str, mapped: bool, memory: float, repeats: int, answers: Any) -> None:
    """Fit, and put seconds, bytes, gap and objective into a queue."""
    with tempfile.TemporaryDirectory() as other:  # compiles, and loads what is loaded once
        small = store([delayed(part)(k, 200, 2) for k in range(2)], other)
        MultiLabelSVC(tol=TOL, working_rows=200).fit(small, client="here")
    maxmargin.MultiLabelSVC(tol=TOL).fit(*part(0, 200, 2))
    pairs = stored(folder)
    rows: Any = None
    if not mapped:
        blocks = compute(*pairs, scheduler="synchronous")
        rows = sp.vstack([X for X, _ in blocks], format="csr"), np.vstack([np.array(y) for _, y in blocks])
    peak = Peak()
    peak.start()
    taken = []
    for _ in range(repeats):
        start = time.process_time(), time.perf_counter()
        if mapped:
            model = MultiLabelSVC(tol=TOL, memory_limit=memory, random_state=0).fit(pairs, client="here")
        else:
            model = maxmargin.MultiLabelSVC(tol=TOL, random_state=0).fit(*rows)
        taken.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    peak.done.set()
    peak.join()
    seconds = tuple(np.median(taken, axis=0).tolist())
    answers.put((seconds, peak.most - peak.first, model.duality_gap_, model.primal_objective_, model.n_iter_))


def race(rows: int, labels: int, n_parts: int, share: float, repeats: int) -> list[dict[str, Any]]:
    """Both fits of generated rows."""
    context = multiprocessing.get_context("spawn")
    table = []
    with tempfile.TemporaryDirectory() as folder:
        store([delayed(part)(k, rows // n_parts, labels) for k in range(n_parts)], folder)
        size = sum(path.stat().st_size for path in Path(folder).glob("*-X-*.npy"))
        for mapped in (False, True):
            answers = context.Queue()
            how = (folder, mapped, share * size / 2**20, repeats, answers)
            process = context.Process(target=measured, args=how)
            process.start()
            (seconds, clock), grown, gap, objective, rounds = answers.get()
            process.join()
            table.append(
                {
                    "rows": rows,
                    "labels": labels,
                    "parts": n_parts,
                    "bytes of X": size,
                    "fit": "mapped" if mapped else "in memory",
                    "memory given": int(share * size) if mapped else "",
                    "cpu seconds": round(seconds, 2),
                    "seconds": round(clock, 2),
                    "bytes beside X": grown,
                    "gap": f"{gap:.3g}",
                    "objective": f"{objective:.6g}",
                    "passes": rounds,
                }
            )
            show(table[-1])
    return table


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, default=20_000 if SMALL else 1_100_000)
    parser.add_argument("--labels", type=int, nargs="+", default=[3] if SMALL else [3, 10])
    parser.add_argument("--parts", type=int, default=40)
    parser.add_argument("--share", type=float, default=1.0 if SMALL else 0.1, help="memory, as a part of X")
    parser.add_argument("--repeats", type=int, default=1)
    chosen = parser.parse_args()
    for labels in chosen.labels:
        table = race(chosen.rows, labels, chosen.parts, chosen.share, chosen.repeats)
        key = ("rows", "labels", "parts", "fit")
        write("out_of_core", table, key, conditions=f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
