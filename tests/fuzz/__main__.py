"""Try changed model and data files by the thousand: ``python -m tests.fuzz --count 100000 --seed 1``.

A batch of files runs in a process of its own with limits on memory and time. Findings are crashes, hangs, any
exception but the documented one, and files that take more than 100 MB; each is reported with the number that
makes the file again (``--only``). A line per batch counts the files so far and gives the next number
(``--from``).
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

CPU_SECONDS, WALL_SECONDS = 20, 200  # for one file; a busy machine needs more wall time
MEGABYTES = 100  # by which one file may raise the peak memory
ADDRESSES = 8 << 30  # bytes of address space of the process, with libraries and threads
BATCH = 20_000
# Files in memory are replaced about ten times faster than files on disk.
FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def peak() -> float:
    """Return the peak memory so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make(kind: str, number: int, folder: Path):
    """Return the attempt for a number, which always makes the same file."""
    rng = random.Random(f"{kind} {number}")
    if kind == "models":
        from tests.fuzz import models

        file = models.mutated(rng, models.seeds(folder))
        return lambda: models.attempt(file, folder / "changed.mm")
    from tests.fuzz import readers

    name = rng.choice(sorted(readers.READERS))
    content = readers.mutated(rng, readers.start(name))
    return lambda: readers.attempt(name, content, folder / "changed")


def warm_up(kind: str, folder: Path) -> None:
    """Import and compile everything with sound files."""
    if kind == "models":
        from tests.fuzz import models

        for file in models.seeds(folder):
            models.attempt(file, folder / "changed.mm")
    else:
        from tests.fuzz import readers

        for name in readers.READERS:
            readers.attempt(name, readers.start(name), folder / "changed")


def one_line(error: Exception) -> str:
    """Describe an exception and its traceback in one line."""
    places = [
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
    ]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]} [{' '.join(places[-4:])}]"


def work(kind: str, first: int, count: int) -> None:
    """Try a batch; print the outcome of each file in a line. A file that takes too long ends the process."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        warm_up(kind, Path(folder))
        for number in range(first, first + count):
            attempt = make(kind, number, Path(folder))
            print(f"start {number}", flush=True)
            spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
            resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, resource.RLIM_INFINITY))
            signal.alarm(WALL_SECONDS)
            before = peak()
            try:
                answer = attempt()
            except Exception as error:
                answer = f"exception {one_line(error)}"
            if peak() - before > MEGABYTES:
                answer = f"memory {peak() - before:.0f} MB"
            print(f"done {number} {answer}", flush=True)


class Watcher:
    """Runs batches and collects their outcomes."""

    def __init__(self, kind: str, end: float) -> None:
        self.kind, self.end = kind, end
        self.counts, self.findings = collections.Counter(), []

    def batch(self, first: int, count: int) -> int:
        """Try a batch; return the next number, which is within the batch after a crash or a hang."""
        command = [sys.executable, "-m", "tests.fuzz", "--work", self.kind, "--from", str(first)]
        current = first
        with (
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            subprocess.Popen(
                [*command, "--count", str(count)], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                word, number, *outcome = line.rstrip("\n").split(" ", 2)
                current = int(number)
                if word == "done":
                    self.count(current, outcome[0])
                if time.monotonic() > self.end:
                    process.kill()
                    return current
            status = process.wait()
            errors.seek(0)
            words = errors.read().strip().splitlines()
        if status in (-signal.SIGXCPU, -signal.SIGALRM):
            self.count(current, f"hang: more than {CPU_SECONDS} s of CPU time, or {WALL_SECONDS} s")
        elif status != 0:
            self.count(current, f"crash: status {status} {words[-1:]}")
        return current + 1 if status else first + count

    def count(self, number: int, answer: str) -> None:
        self.counts[answer.split(" ", 1)[0]] += 1
        if answer not in ("refused", "used"):
            self.findings.append((number, answer))
            print(f"{self.kind} {number}: {answer}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="number of files")
    parser.add_argument("--seed", type=int, default=0, help="which files: another number, others")
    parser.add_argument("--kind", choices=["models", "readers"], help="one kind of files; both by default")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    parser.add_argument("--only", type=int, help="try the file of one number, here, with its traceback")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="first", type=int, help="first number, instead of a seed's first")
    options = parser.parse_args()
    if options.work:
        work(options.work, options.first, options.count)
        return 0
    if options.only is not None:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            print(make(options.kind or "models", options.only, Path(folder))())
        return 0
    failed, end = False, time.monotonic() + 60 * options.minutes
    for kind in [options.kind] if options.kind else ["models", "readers"]:
        watcher = Watcher(kind, end)
        number = first = options.seed * 10**9 if options.first is None else options.first
        while number < first + options.count and time.monotonic() < end:
            number = watcher.batch(number, min(BATCH, first + options.count - number))
            tried, counts = sum(watcher.counts.values()), dict(watcher.counts)
            found = f"{len(watcher.findings)} findings"
            print(f"{kind}: {tried} files from {first} to {number}, {counts}, {found}", flush=True)
        failed = failed or bool(watcher.findings)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
