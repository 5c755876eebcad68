"""Choose the parameters of the demo: those with the best mean over folds of the training part.

    python -m experiments.demo_parameters            # prints the parameters, and fails if the demo differs
    python -m experiments.demo_parameters --small    # for the first task only

Words select tasks by their titles. Among equal means the smallest parameter is chosen.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from experiments._results import SMALL, command_line
from maxmargin.cli.data import Samples
from maxmargin.cli.demo import TASKS, Entrant, Split, Task

C = (0.01, 0.1, 1.0, 10.0)
# Data with few samples of many standardised columns needs smaller values.
SMALL_C = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
# The values to choose from, for every entrant; C where none are listed.
GRIDS = {
    "MultiClassSVC": C[:3],
    "LinearSVC crammer_singer": C[:3],
    "SparseMultiClassSVC": (0.1, 1.0, 10.0, 100.0),
    "SVC": (1.0, 10.0, 100.0),
    "Nystroem 100 + LinearSVC": (1.0, 10.0, 100.0),
    "SubmodularSVC": SMALL_C,
    "LinearSVC per label": SMALL_C,
    "the same with tuned thresholds": SMALL_C,
    "LabelRanker idf": (0.1, 1.0, 10.0),
    "SGDClassifier pa1": (0.01, 0.1, 1.0),
    "ChainSVC": C[:3],
}


def thirds(train: Samples) -> Iterator[Split]:
    """Yield three folds of samples in random order."""
    from sklearn.model_selection import KFold

    for known, held_out in KFold(3, shuffle=True, random_state=0).split(range(len(train))):
        yield train.take(known), train.take(held_out)


def new_categories(train: Samples) -> Iterator[Split]:
    """Yield three folds whose test parts have categories that the training parts do not have."""
    from sklearn.model_selection import GroupKFold

    category = np.unique(train.y, axis=0, return_inverse=True)[1].ravel()
    for known, held_out in GroupKFold(3).split(train.X, groups=category):
        yield train.take(known), train.take(held_out)


def known_labels(train: Samples) -> Iterator[Split]:
    """Yield three folds with the labels of their training parts; other labels have no score."""
    for known, held_out in thirds(train):
        occur = known.y.any(axis=0)
        yield replace(known, y=known.y[:, occur]), replace(held_out, y=held_out.y[:, occur])


def halves(train: Samples) -> Iterator[Split]:
    """Yield the first and the second half of a stream."""
    middle = len(train) // 2
    yield train.take(slice(0, middle)), train.take(slice(middle, None))


# Folds by the title of the task; thirds where none are listed.
FOLDS = {
    "Text with a thousand labels": known_labels,
    "Categories that were never seen (zero-shot)": new_categories,
    "A stream of mail": halves,
}


def choose(task: Task, entrant: Entrant) -> tuple[dict[str, float], float]:
    """Return the best parameters of the grid and their mean."""
    train, _ = task.load()
    folds = list(FOLDS.get(task.title, thirds)(train))
    grid = dict.fromkeys(entrant.params, GRIDS.get(entrant.name, C))
    best: tuple[dict[str, float], float] = ({}, -np.inf)
    for values in itertools.product(*grid.values()):
        params = dict(zip(grid, values, strict=True))
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
            other = "" if same else f", but the demo has {dict(entrant.params)}"
            print(f"{task.title}: {entrant.name}: {params}, {task.measure} {mean:.4f}{other}", flush=True)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
