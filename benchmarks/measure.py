"""Time and peak memory of one run, each in a process of its own.

The child is forked with the data already in memory, is pinned to as many cores as the race
allows, makes one small run first so that compilation is counted apart, and reports seconds and
how far its resident memory rose above the start.
"""

from __future__ import annotations

import csv
import multiprocessing as mp
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results"


class _Peak(threading.Thread):
    """Watches the resident memory of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process()
        self.start_rss = self.peak = self.process.memory_info().rss
        self.running = True

    def run(self) -> None:
        while self.running:
            self.peak = max(self.peak, self.process.memory_info().rss)
            time.sleep(0.02)


def _child(connection: Any, warm: Callable[[], Any] | None, action: Callable[[], Any], cores: int) -> None:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    started = time.perf_counter()
    if warm is not None:
        warm()
    warm_seconds = time.perf_counter() - started
    watch = _Peak()
    watch.start()
    started = time.perf_counter()
    answer = action()
    seconds = time.perf_counter() - started
    watch.running = False
    highest = max(watch.peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    connection.send(
        {
            "seconds": seconds,
            "warm_seconds": warm_seconds,
            "peak_mib": (watch.peak - watch.start_rss) / 2**20,
            "process_mib": highest / 2**20,
            "answer": answer,
        }
    )


def run_alone(
    action: Callable[[], Any], warm: Callable[[], Any] | None = None, cores: int = 1
) -> dict[str, Any]:
    """Run `action` in a forked process and return its answer with seconds and peak MiB."""
    context = mp.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, warm, action, cores))
    child.start()
    there.close()
    try:
        report = here.recv()
    except EOFError:
        raise RuntimeError("the measured process died; see its output above") from None
    child.join()
    return report


def write_csv(name: str, rows: list[dict[str, Any]]) -> Path:
    """Write the rows of a race to results/<name>.csv."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
