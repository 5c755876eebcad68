"""`maxmargin warmup`: compile the loops of default fits before the first fit.

Families are shared out to processes, each of which fits made data. numba keeps what they compile on disk.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import click

from maxmargin._names import ESTIMATORS
from maxmargin.cli.console import progress_bar
from maxmargin.cli.families import FAMILIES, build
from maxmargin.cli.options import Command

# What can be warmed up: the families, and bags of candidates, for which there is no file format.
WARMED = {family.name: (family.estimator, family.task) for family in FAMILIES.values()} | {
    "latent": ("LatentSVC", "bags")
}
# So that the last process to end does not begin last.
SLOW = ["multilabel", "multiclass", "submodular", "chain", "ranking"]
SLOWEST_FIRST = sorted(WARMED, key=[*SLOW, *WARMED].index)
# Rows and columns of a table and of texts: too many numbers for loops to run as plain Python.
TABLE, TEXTS = (1000, 30), (1000, 2000)
FILLED = 0.02
# Texts have many labels, for which fits take single precision.
N_CLASSES, MANY = 7, 300
# Enough passes for every loop of a default fit.
LIMITS = {"max_iter": 15, "max_basis": 5, "random_state": 0}


@click.command("warmup", cls=Command, short_help="Compile the inner loops ahead of the first fit.")
@click.argument("families", nargs=-1, type=click.Choice(list(WARMED)), metavar="[FAMILY]...")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="one per core",
    help="How many processes compile.",
)
def warmup_command(families: Sequence[str], jobs: int) -> None:
    """Compile the inner loops of the given families (all by default) and keep them on disk.

    A first fit by default parameters then starts at once. Loops of other solvers are compiled when they are
    first used.
    """
    chosen = [name for name in SLOWEST_FIRST if name in (families or WARMED)]
    start = time.perf_counter()
    with progress_bar() as bar, ProcessPoolExecutor(min(jobs, len(chosen)), _fresh_processes()) as pool:
        line = bar.add_task("compiling", total=len(chosen))
        tasks = {pool.submit(warm, name): name for name in chosen}
        for task in as_completed(tasks):
            task.result()
            bar.update(line, advance=1, description=tasks[task])
    print(f"Ready: {', '.join(chosen)} ({time.perf_counter() - start:.1f} s).")


def _fresh_processes() -> Any:
    """How processes start that know nothing of this one, whose locks may be held.

    Where the system can copy processes, they are copies of one that has only imported the estimators.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(sorted({ESTIMATORS[estimator] for estimator, _ in WARMED.values()}))
    return server


def warm(name: str) -> None:
    """Fit and predict made data by the default parameters of one family."""
    estimator, task = WARMED[name]
    for params, X, y, cut in _cases(estimator, task):
        model = build(estimator, **params)
        model.set_params(**{key: value for key, value in LIMITS.items() if key in model.get_params()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, **cut).predict(X, **cut)


def _cases(estimator: str, task: str) -> Iterator[tuple[dict[str, Any], Any, Any, dict[str, Any]]]:
    """Parameters, rows, labels for the task, and the cut into sequences or bags of four rows."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    table, texts = rng.random(TABLE), rng.random(TEXTS)
    n = len(table)
    classes, many = rng.integers(N_CLASSES, size=n), (rng.random((n, MANY)) < 0.3).astype(int)
    y = {"multilabel": many[:, :N_CLASSES], "bags": classes[: n // 4]}.get(task, classes)
    cut = {"lengths": np.full(n // 4, 4)} if task in ("chain", "bags") else {}
    yield {}, table, y, cut
    if build(estimator).get_params().get("kernel") == "linear":
        yield {"kernel": "rbf"}, table, y, cut
        words = sp.csr_array(np.where(texts < FILLED, texts, 0))
        yield {}, words, many if task == "multilabel" else y, cut
