"""Kill a process that writes, at random moments: ``python -m tests.fuzz.kills 1000``."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import maxmargin
from maxmargin.datasets import Dataset, read_svmlight, write_svmlight
from maxmargin.io.atomic import atomic_write


def save_for_ever(model: Any, path: Path, data: Path) -> None:
    """Save a model and write data, each time with another number in all places."""
    for k in itertools.count(1):
        model.latent_[:] = k
        maxmargin.save(model, path)
        write_svmlight(Dataset(np.full((2000, 3), float(k)), np.ones((2000, 1))), data)


def kill_at_random(folder: Path, kills: int, seed: int = 0) -> int:
    """Kill a process that saves and converts; how often it left something else than old or new."""
    rng = random.Random(seed)
    path, data = folder / "m.mm", folder / "d.svm"
    model = maxmargin.LatentSVC(tol=0.1).fit(np.eye(4), [0, 1, 0, 1])
    model.latent_ = np.zeros(200_000, np.int64)
    broken = 0
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            save_for_ever(model, path, data)
        time.sleep(rng.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if path.exists():
            chosen = maxmargin.load(path).latent_
            broken += len(np.unique(chosen)) != 1 or chosen[0] < 1
        if data.exists():
            X = read_svmlight(data).X.toarray()
            broken += X.shape != (2000, 3) or len(np.unique(X)) != 1
    left = len(list(folder.glob(".*.part")))
    for written in (path, data):
        with atomic_write(written) as out:
            out.write(b"the next writer cleans up")
    print(f"{left} files of killed writers were left before the next one wrote")
    return int(broken) + len(list(folder.iterdir())) - 2


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as place:
        found = kill_at_random(Path(place), count)
    print(f"{count} kills, {found} broken files or leftovers")
    sys.exit(int(found > 0))
