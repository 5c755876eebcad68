"""Kill a process that writes, at random moments: ``python -m tests.fuzz.kills 1000``.

Three kinds of writing alternate: saving a model, fitting one by the command line, and converting data by the
command line. After each kill the old or the new file is complete. The next writer removes the temporary
files of killed ones.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import maxmargin
from maxmargin.cli import main
from maxmargin.datasets import Dataset, read_svmlight, write_svmlight
from maxmargin.io.files import atomic_write

N = 2000


def quietly(words: list[str]) -> None:
    """Run a command without its output."""
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        assert main(words) == 0


class Saving:
    """Saves a model with the same number in all entries, a new one each time."""

    name = "m.mm"

    def __init__(self, folder: Path) -> None:
        self.path = folder / self.name
        self.model: Any = maxmargin.LatentSVC(tol=0.1).fit(np.eye(4), [0, 1, 0, 1])

    def write(self, k: int) -> None:
        self.model.latent_ = np.full(200_000, k)
        maxmargin.save(self.model, self.path)

    def is_whole(self) -> bool:
        chosen = maxmargin.load(self.path).latent_
        return len(np.unique(chosen)) == 1 and chosen[0] >= 1


class Fitting:
    """Runs `maxmargin fit` on a small file."""

    name = "fitted.mm"

    def __init__(self, folder: Path) -> None:
        self.path, self.data = folder / self.name, folder / "data.svm"
        X = np.random.default_rng(0).normal(size=(60, 3))
        write_svmlight(Dataset(X, (X[:, :1] > 0).astype(float)), self.data)
        self.write(1)

    def write(self, k: int) -> None:
        words = ["fit", str(self.data), "-m", "multilabel", "--C", str(k % 7 + 1), "-o", str(self.path)]
        quietly(words)

    def is_whole(self) -> bool:
        return maxmargin.load(self.path).coef_.shape == (1, 3)


class Converting:
    """Runs `maxmargin datasets convert` on a file with the same number in all fields."""

    name = "converted.svm"

    def __init__(self, folder: Path) -> None:
        self.path, self.source = folder / self.name, folder / "source.csv"
        rows = "".join("7,7,7,1\n" for _ in range(N))
        self.source.write_text("a,b,c,l\n" + rows)

    def write(self, k: int) -> None:
        words = ["datasets", "convert", str(self.source), str(self.path), "--labels", "1"]
        quietly(words)

    def is_whole(self) -> bool:
        X = read_svmlight(self.path).X.toarray()
        return X.shape == (N, 3) and bool((X == 7).all())


WRITERS: tuple[Callable[[Path], Any], ...] = (Saving, Fitting, Converting)


def kill_at_random(folder: Path, kills: int, seed: int = 0) -> int:
    """Kill processes that write; return the number of broken files and of remaining temporary files."""
    rng = random.Random(seed)
    writers = [kind(folder) for kind in WRITERS]
    broken = 0
    for turn in range(kills):
        writer = writers[turn % len(writers)]
        child = os.fork()
        if child == 0:
            for k in itertools.count(1):
                writer.write(k)
        time.sleep(rng.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if writer.path.exists():
            broken += not writer.is_whole()
    parts = list(folder.glob(".*.part"))
    print(f"{len(parts)} files of killed writers were left before the next one wrote")
    for writer in writers:
        with atomic_write(writer.path) as out:
            out.write(b"the next writer cleans up")
    return broken + len(list(folder.glob(".*.part")))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as place:
        found = kill_at_random(Path(place), count)
    print(f"{count} kills, {found} broken files or leftovers")
    sys.exit(int(found > 0))
