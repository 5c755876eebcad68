"""Kill a process that writes, at random moments: ``python -m tests.fuzz.kills 1000``."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import maxmargin
from maxmargin.datasets import read_svmlight
from maxmargin.io.atomic import atomic_write

SAVING = """
import sys, numpy as np, maxmargin
from maxmargin.datasets import Dataset, write_svmlight
model = maxmargin.LatentSVC(max_iter=1).fit(np.eye(4), [0, 1, 0, 1])
model.latent_ = np.zeros(200_000, np.int64)
k = 0
print("ready", flush=True)
while True:
    k += 1
    model.latent_[:] = k
    maxmargin.save(model, sys.argv[1])
    write_svmlight(Dataset(np.full((2000, 3), float(k)), np.ones((2000, 1))), sys.argv[2])
"""


def kill_at_random(folder: Path, kills: int, seed: int = 0) -> int:
    """Kill a process that saves and converts; how often it left something else than old or new."""
    rng = random.Random(seed)
    model, data = folder / "m.mm", folder / "d.svm"
    command = [sys.executable, "-W", "ignore", "-c", SAVING, os.fspath(model), os.fspath(data)]
    broken = 0
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.random() * 0.2)
        process.kill()
        process.wait()
        process.stdout.close()
        if model.exists():
            chosen = maxmargin.load(model).latent_
            broken += len(np.unique(chosen)) != 1 or chosen[0] < 1
        if data.exists():
            X = read_svmlight(data).X.toarray()
            broken += X.shape != (2000, 3) or len(np.unique(X)) != 1
    for path in (model, data):
        with atomic_write(path) as out:
            out.write(b"the next writer cleans up")
    return broken + len(list(folder.iterdir())) - 2


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as place:
        found = kill_at_random(Path(place), count)
    print(f"{count} kills, {found} broken files or leftovers")
    sys.exit(found > 0)
