"""`maxmargin reproduce` and `maxmargin warmup`: run experiments, compile ahead of the first fit."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from maxmargin._names import ESTIMATORS
from maxmargin.cli.console import FILE, RESULT, Command, echo, print_table, progress_bar
from maxmargin.cli.families import FAMILIES, build


@click.command(
    "reproduce",
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    short_help="Run an experiment of the repository.",
)
@click.argument("name", required=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[EXPERIMENT OPTIONS]...")
@click.option(
    "--repository",
    type=FILE,
    default=Path(),
    help="Checkout of the repository. Default: the current directory.",
)
def reproduce_command(name: str | None, options: tuple[str, ...], repository: Path) -> int:
    """Run the experiment NAME of the repository; without NAME, list the experiments.

    Experiments read data from MAXMARGIN_DATA or the cache, and write tables and pictures to
    experiments/results. The list names the data sets that each experiment needs. Further options are passed
    to the experiment; --small runs it at toy size, with artificial data in place of missing data sets.
    """
    folder = repository / "experiments"
    scripts = {path.stem: path for path in sorted(folder.glob("[!_]*.py"))}
    if not scripts:
        raise click.UsageError(
            f"There are no experiments in {repository.resolve()}; go to a checkout of the repository, or "
            "name it with --repository."
        )
    minutes, data = _table(folder / "minutes.toml"), _table(folder / "data.toml")
    if name is None:
        rows = [
            [
                key,
                _minutes(minutes, key),
                ", ".join(one if _is_local(one) else f"{one} (not here)" for one in data.get(key, []))
                or "none",
                (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0],
            ]
            for key, path in scripts.items()
        ]
        print_table("Experiments", ["name", "minutes", "data", "description"], rows, left=(0, 2, 3))
        return 0
    if name not in scripts:
        raise click.UsageError(f"There is no experiment {name!r}; choose one of {', '.join(scripts)}.")
    absent = [] if options else [one for one in data.get(name, []) if not _is_local(one)]
    if absent:
        raise ValueError(
            f"{name} needs data that is not on this machine: {', '.join(absent)}. `maxmargin datasets info "
            f"{_members(absent[0])[0]}` tells where to get it; --small runs without it."
        )
    takes = f"about {_minutes(minutes, name)} minutes of one core" + (" for all of it" if options else "")
    takes = "seconds" if "--small" in options else takes
    echo(f"python -m experiments.{name} {' '.join(options)} (takes {takes})")
    started = time.time()
    run = [sys.executable, "-m", f"experiments.{name}", *options]
    code = subprocess.run(run, cwd=repository, check=False).returncode
    output = folder / ("small" if "--small" in options else "results")
    output = Path(os.environ.get("MAXMARGIN_RESULTS", output))
    written = [path for path in sorted(output.glob("*")) if path.stat().st_mtime >= started]
    if code == 0 and written:
        echo(f"Results: {', '.join(map(str, written))}", RESULT)
    return code


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def _minutes(minutes: Mapping[str, float], name: str) -> str:
    return f"{minutes[name]:g}" if name in minutes else "?"


def _members(data: str) -> list[str]:
    """Return the data sets of a collection, or the data set of that name."""
    from maxmargin.io.registry import registry

    return [name for name in registry() if name.partition("/")[0] == data]


def _is_local(data: str) -> bool:
    """Return whether a data set, or every member of a collection, is on this machine."""
    from maxmargin.io.registry import where

    return all(where(name) not in ("can be fetched", "not here") for name in _members(data))


# Families to warm up, and bags of candidates, for which there is no file format.
WARMED = {family.name: (family.estimator, family.task) for family in FAMILIES.values()} | {
    "latent": ("LatentSVC", "bags")
}
# The slowest start first, so that no process is left with a slow one at the end.
SLOWEST_FIRST = sorted(WARMED, key=["multilabel", "multiclass", "submodular", "chain", *WARMED].index)
# Shapes of a dense table and of sparse texts, too large for the loops to run as plain Python.
TABLE, TEXTS = (1000, 30), (1000, 2000)
# Texts have many labels, for which fits use single precision.
N_CLASSES, MANY = 7, 300
# Enough iterations to reach every loop of a default fit.
LIMITS = {"max_iter": 15, "max_basis": 5, "random_state": 0}


@click.command("warmup", cls=Command, short_help="Compile the loops ahead of the first fit.")
@click.argument("families", nargs=-1, type=click.Choice(list(WARMED)), metavar="[FAMILY]...")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="one per core",
    help="Number of processes.",
)
def warmup_command(families: Sequence[str], jobs: int) -> None:
    """Compile the loops of the given families (default: all) and store them on disk.

    The first fit with default parameters then starts without compiling. Loops of other solvers are compiled
    when they are first used.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    chosen = [name for name in SLOWEST_FIRST if name in (families or WARMED)]
    start = time.perf_counter()
    # Forked processes could inherit locks that are held; these start from a process of their own.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    processes = multiprocessing.get_context(method)
    if method == "forkserver":
        processes.set_forkserver_preload(sorted({ESTIMATORS[estimator] for estimator, _ in WARMED.values()}))
    with progress_bar() as bar, ProcessPoolExecutor(min(jobs, len(chosen)), processes) as pool:
        line = bar.add_task("compiling", total=len(chosen))
        tasks = {pool.submit(warm, name): name for name in chosen}
        for task in as_completed(tasks):
            task.result()
            bar.update(line, advance=1, description=tasks[task])
    print(f"Ready: {', '.join(chosen)} ({time.perf_counter() - start:.1f} s).")


def warm(name: str) -> None:
    """Fit artificial data with the default parameters of a family, and predict it."""
    estimator, task = WARMED[name]
    for params, X, y, lengths in _cases(estimator, task):
        model = build(estimator, **params)
        model.set_params(**{key: value for key, value in LIMITS.items() if key in model.get_params()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, **lengths).predict(X, **lengths)


def _cases(estimator: str, task: str) -> Iterator[tuple[dict[str, Any], Any, Any, dict[str, Any]]]:
    """Yield parameters, rows, labels for the task, and lengths of sequences or bags of four rows."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    table, texts = rng.random(TABLE), rng.random(TEXTS)
    n = len(table)
    classes, many = rng.integers(N_CLASSES, size=n), (rng.random((n, MANY)) < 0.3).astype(int)
    y = {"multilabel": many[:, :N_CLASSES], "bags": classes[: n // 4]}.get(task, classes)
    lengths = {"lengths": np.full(n // 4, 4)} if task in ("chain", "bags") else {}
    yield {}, table, y, lengths
    if build(estimator).get_params().get("kernel") == "linear":
        yield {"kernel": "rbf"}, table, y, lengths
        words = sp.csr_array(np.where(texts < 0.02, texts, 0))
        yield {}, words, many if task == "multilabel" else y, lengths
