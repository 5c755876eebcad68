"""The race harness: every competitor in its own process, in turns; medians, CSV files, plots.

A process first prepares (not timed), then makes a small run that compiles (reported as the first call), then
the timed run. It is pinned to as many cores as the race allows. A forked process inherits the data; a fresh
process starts from nothing, with one BLAS thread, so that its peak memory is its own, and receives only what
can be pickled. `settle_memory` allocates memory before the timed run: on a virtual machine a page that the
host has to provide costs 2 to 3 ms per MB, which varies from run to run.
"""

from __future__ import annotations

import csv
import ctypes
import fcntl
import importlib.util
import multiprocessing as mp
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).parent / "results"
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
Row = dict[str, Any]
# MiB that are brought near before a run (0: none), by a process that takes large pages, as numpy does.
SETTLED = 512
TOUCH = """
import mmap, sys
size = int(sys.argv[1])
pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
if hasattr(mmap, "MADV_HUGEPAGE"):
    pages.madvise(mmap.MADV_HUGEPAGE)
pages[::4096] = bytes(size // 4096)
"""


@dataclass(frozen=True)
class Setting:
    """How races are run: toy sizes or not, how often each competitor runs, where results go.

    `repeats` of None leaves the number to the race; `out` of None keeps no results.
    """

    small: bool = False
    repeats: int | None = None
    out: Path | None = RESULTS

    def times(self, usual: int) -> int:
        """Return the number of repeats for a usual number."""
        return self.repeats or (1 if self.small else usual)


@dataclass(frozen=True)
class Competitor:
    """A competitor.

    Attributes
    ----------
    name : str
    run, warm : callables
        The timed function, and a small run before it; they receive the result of `prepare`, if there is one.
    prepare : callable or None
        Runs first in the process, not timed.
    judge : callable or None
        Computes the reported result from those of `prepare` and `run`, not timed.
    needs : tuple of str
        Modules that must be installed.
    cores : int
    """

    name: str
    run: Callable[..., Any]
    warm: Callable[..., Any] | None = None
    prepare: Callable[[], Any] | None = None
    judge: Callable[..., Any] | None = None
    needs: tuple[str, ...] = ()
    cores: int = 1


@dataclass(frozen=True)
class Run:
    """One measured run.

    `peak_mib` is how far resident memory rose above the start of the run; `process_mib` the highest of the
    process, and `before_mib` the highest before the run.
    """

    seconds: float
    warm_seconds: float
    peak_mib: float
    process_mib: float
    before_mib: float
    answer: Any


@dataclass
class Result:
    """All runs of one competitor."""

    runs: list[Run] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)

    @property
    def peak_mib(self) -> float:
        return max(run.peak_mib for run in self.runs)

    @property
    def first_call(self) -> float:
        """Return the seconds of the first small run, which compiles or loads loops."""
        return self.runs[0].warm_seconds

    @property
    def answer(self) -> Any:
        return self.runs[0].answer

    @property
    def middle(self) -> Run:
        """The run with the median time."""
        return sorted(self.runs, key=lambda run: run.seconds)[len(self.runs) // 2]


def race(
    competitors: Iterable[Competitor], repeats: int, *, fresh: bool = False, too_long: float = float("inf")
) -> dict[str, Result]:
    """Run all competitors that are here, in turns, so often; one that takes `too_long` runs once."""
    here = present(competitors)
    results = {each.name: Result() for each in here}
    for _ in range(repeats):
        for each in here:
            runs = results[each.name].runs
            if not any(run.seconds > too_long for run in runs):
                runs.append(run_alone(each, fresh=fresh))
                print(f"  {each.name}: {runs[-1].seconds:.4g} s", flush=True)
    return results


def present(competitors: Iterable[Competitor]) -> list[Competitor]:
    """Return the competitors whose modules are installed; print a line for each of the others."""
    here = []
    for each in competitors:
        absent = [name for name in each.needs if importlib.util.find_spec(name) is None]
        if absent:
            print(f"  {each.name}: left out, {absent[0]} is not installed (pip install -e .[bench])")
        else:
            here.append(each)
    return here


def loosest(
    competitor: Callable[[float], Competitor], tolerances: Sequence[float], good: Callable[[Any], bool]
) -> tuple[float, Any] | None:
    """Return the first tolerance, from loose to tight, that is good enough (else the last), and its result.

    None where the competitor is not here.
    """
    for tol in tolerances:
        if not present([competitor(tol)]):
            return None
        answer = run_alone(competitor(tol)).answer
        if good(answer):
            break
    return tol, answer


def run_alone(competitor: Competitor, *, fresh: bool = False) -> Run:
    """One run in a process of its own."""
    context = mp.get_context("spawn" if fresh else "fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, competitor, SETTLED))
    with _one_thread() if fresh else _as_it_is():
        child.start()
    there.close()
    try:
        report = here.recv()
    except EOFError:
        raise RuntimeError(f"the process of {competitor.name} died; see its output above") from None
    child.join()
    return report


def _child(connection: Any, competitor: Competitor, n_mib: int) -> None:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: competitor.cores]))
    threadpool_limits(1)  # further BLAS threads would wait for each other on few cores
    given = () if competitor.prepare is None else (competitor.prepare(),)
    started = time.perf_counter()
    if competitor.warm is not None:
        competitor.warm(*given)
    warm_seconds = time.perf_counter() - started
    settle_memory(n_mib)
    before = _highest_mib()
    with _Watch() as watch:
        started = time.perf_counter()
        answer = competitor.run(*given)
        seconds = time.perf_counter() - started
    highest = max(watch.peak / 2**20, _highest_mib())
    if competitor.judge is not None:
        answer = competitor.judge(*given, answer)
    rise = (watch.peak - watch.start_size) / 2**20
    connection.send(Run(seconds, warm_seconds, rise, highest, before, answer))


def settle_memory(n_mib: int) -> None:
    """Allocate and free so much memory, as other work on the machine would have done.

    Free memory inherited by a fork is released, or every page would be copied on the first write. Then
    another process touches some and ends, because a virtual machine may have returned free pages to its
    host.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    if n_mib:
        subprocess.run([sys.executable, "-I", "-S", "-c", TOUCH, str(n_mib << 20)], check=True)


def _highest_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class _Watch(threading.Thread):
    """Watches the resident memory of this process, fifty times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_size = self.peak = self._size()
        self.over = threading.Event()

    @staticmethod
    def _size() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def run(self) -> None:
        while not self.over.wait(0.02):
            self.peak = max(self.peak, self._size())

    def __enter__(self) -> _Watch:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.over.set()


@contextmanager
def _one_thread() -> Iterator[None]:
    """BLAS threads are counted when a process starts."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


def run_command(words: Sequence[str], folder: Path) -> dict[str, float]:
    """Seconds, processor seconds and peak MiB of a command line."""
    start = time.perf_counter()
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} failed")
    return {
        "peak_mib": round(used.ru_maxrss / 1024),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    }


def machine(own: int = 0) -> str:
    """Return the kind of machine, and its load beyond the given number of our processes."""
    model, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = (line for line in info.read_text().splitlines() if "model name" in line)
        model = next((line.split(":", 1)[1].strip() for line in lines), model)
    load = os.getloadavg()[0]
    state = "shared with other work" if load > own + 0.5 else "quiet"
    return f"{model}, {os.cpu_count()} cores, load {load:.1f} ({state})"


def save(
    setting: Setting, name: str, rows: Sequence[Mapping[str, Any]], key: Sequence[str] = (), note: str = ""
) -> None:
    """Print the rows of a race and write them to <name>.csv.

    With `key`, rows of an older file stay unless a new one has the same key. `note` is a comment above them.
    """
    for row in rows:
        print("  ", {k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    if setting.out is None:
        return
    setting.out.mkdir(parents=True, exist_ok=True)
    path = setting.out / f"{name}.csv"
    # Two races may run at once, each on a core of its own, and write to one file.
    with path.open("a+", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        table: dict[tuple[str, ...], Mapping[str, Any]] = {}
        if key:
            table = {tuple(row[k] for k in key): row for row in csv.DictReader(file)}
        for i, row in enumerate(rows):
            table[tuple(str(row[k]) for k in key) or (str(i),)] = row
        columns = list(dict.fromkeys(column for row in table.values() for column in row))
        file.truncate(0)
        if note:
            file.write(f"# {note}\n")
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table.values())


@dataclass(frozen=True)
class Panel:
    """One plot: lines by name, each a pair of sequences; the axes are logarithmic by default."""

    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    title: str = ""
    log: bool = True


def lines(
    rows: Iterable[Row], x: str, y: str, by: str, **fixed: Any
) -> dict[str, tuple[list[float], list[float]]]:
    """For each value of column `by`: x and y of its rows, among those with the fixed values."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if all(row[column] == value for column, value in fixed.items()):
            found.setdefault(str(row[by]), []).append((float(row[x]), float(row[y])))
    return {
        name: ([p[0] for p in sorted(points)], [p[1] for p in sorted(points)])
        for name, points in found.items()
    }


def plot(setting: Setting, name: str, panels: Sequence[Sequence[Panel]], title: str = "") -> None:
    """Draw rows of panels to <name>.png; a line called "linear" is dotted."""
    if setting.out is None:
        return
    from matplotlib.figure import Figure

    n_columns = max(len(row) for row in panels)
    figure = Figure(figsize=(4.2 * n_columns, 3.5 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), n_columns, squeeze=False)
    for row, places in zip(panels, axes, strict=True):
        for panel, axis in zip(row, places, strict=False):
            for label, (x, y) in panel.lines.items():
                style = {"linestyle": ":", "color": "gray"} if label == "linear" else {}
                axis.plot(
                    x, y, **({"marker": "o", "markersize": 4} | style if panel.log else style), label=label
                )
            if panel.log:
                axis.set(xscale="log", yscale="log")
            axis.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    axes[0, 0].legend(fontsize=7)
    figure.suptitle(title)
    setting.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(setting.out / f"{name}.png", dpi=120)
