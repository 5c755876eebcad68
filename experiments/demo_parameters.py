"""Choose the parameters of the demo: each competitor by its mean over folds of the training part.

    python -m experiments.demo_parameters            # print the choices; fail where the demo differs
    python -m experiments.demo_parameters --small    # only the first task

Parts of task titles as arguments select tasks. Among equal means the smallest parameter is chosen.
"""

from __future__ import annotations

import itertools
import sys
import warnings

import numpy as np

from experiments._results import SMALL, command_line
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


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("words", nargs="*", help="parts of titles")
    words = parser.parse_args().words
    if unknown := [word for word in words if not any(word in task.title for task in TASKS)]:
        parser.error(f"no task has {unknown[0]!r} in its title: {'; '.join(task.title for task in TASKS)}")
    warnings.simplefilter("ignore")
    different = 0
    for task in TASKS[:1] if SMALL else TASKS:
        if words and not any(word in task.title for word in words):
            continue
        for entrant in task.entrants:
            params, mean = choose(task, entrant)
            same = params == dict(entrant.params)
            different += not same
            said = "" if same else f", but the demo has {dict(entrant.params)}"
            print(f"{task.title}: {entrant.name}: {params}, {task.measure} {mean:.4f}{said}", flush=True)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
