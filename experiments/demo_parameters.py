"""Choose the parameters of the demo: each entrant by its mean over folds of the training part.

    python -m experiments.demo_parameters            # says what is chosen, and fails where the demo differs
    python -m experiments.demo_parameters --small    # of the first task alone

Among equal means the smallest parameter is taken.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Sequence

import numpy as np

from maxmargin.cli.showcase import TASKS, Entrant, Task


def choose(task: Task, entrant: Entrant) -> tuple[dict[str, float], float]:
    """The best parameters of the grid and their mean."""
    train, _ = task.load()
    folds = list(task.folds(train))
    best: tuple[dict[str, float], float] = ({}, -np.inf)
    for values in itertools.product(*entrant.grid.values()):
        params = dict(zip(entrant.grid, values, strict=True))
        mean = float(np.mean([task.run(entrant.build(**params), *fold).score for fold in folds]))
        if mean > best[1] + 1e-12:
            best = params, mean
    return best


def main(words: Sequence[str] = ()) -> int:
    warnings.simplefilter("ignore")
    different = 0
    for task in TASKS[:1] if "--small" in words else TASKS:
        named = [word for word in words if word != "--small"]
        if named and not any(word in task.title for word in named):
            continue
        for entrant in task.entrants:
            params, mean = choose(task, entrant)
            same = params == dict(entrant.params)
            different += not same
            said = "" if same else f", but the demo has {dict(entrant.params)}"
            print(f"{task.title}: {entrant.name}: {params}, {task.measure} {mean:.4f}{said}", flush=True)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
