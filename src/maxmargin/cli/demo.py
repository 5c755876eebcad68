"""`maxmargin demo`, which runs the tasks of `showcase`, and `maxmargin warmup`."""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.commands import NEEDS_PLOTS, subject, write_page
from maxmargin.cli.console import print_table, progress_bar, say
from maxmargin.cli.data import Samples
from maxmargin.cli.families import FAMILIES, build
from maxmargin.cli.showcase import TASKS, Outcome, Task, lesson

COLUMNS = ["who", "score", "fit s", "predict s", "KB"]
OWN_DATA = """On your own table (the column "kind" holds the class; several 0/1 columns: --labels a,b,c):
  maxmargin fit table.csv --target kind -m multiclass --scale standard -o kind.mm
  maxmargin report kind.mm other.csv -o kind.html
  maxmargin predict kind.mm new.csv"""


@click.command("demo", short_help="Tasks for which these models are made, beside scikit-learn's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per model instead of tables.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("maxmargin-demo"),
    show_default=True,
    help="Where to put report.html.",
)
def demo_command(as_json: bool, directory: Path) -> None:
    """Fit models on tasks for which they are made, beside what one would take otherwise.

    Data ships with the package or is made of scikit-learn's. All parameters were chosen by
    cross-validation on the training part. Prints a table and a sentence per task, and writes a
    page with pictures.
    """
    results = []
    start = time.perf_counter()
    with progress_bar() as bar:
        line = bar.add_task("compiling", total=2 * len(TASKS))
        splits = []
        for task in TASKS:
            bar.update(line, description=f"{task.title}: compiling")
            splits.append(task.load())
            compile_loops(task, splits[-1][0])
            bar.advance(line)
        compiling = time.perf_counter() - start
        for task, (train, test) in zip(TASKS, splits, strict=True):
            bar.update(line, description=task.title)
            found = [task.run(entrant.build(**entrant.params), train, test) for entrant in task.entrants]
            results.append(Result(task, train, test, found))
            bar.advance(line)
    for result in results:
        if as_json:
            _print_json(result)
        else:
            columns = [result.task.measure if column == "score" else column for column in COLUMNS]
            print_table(f"{result.task.title}\n  {result.task.data}", columns, result.rows())
            print(f"{result.lesson}\n")
    if not as_json:
        print(
            f"Parameters: by cross-validation on the training parts. The first fits took {compiling:.1f} s, "
            "compiling what was not compiled before; that is in no time above."
        )
    _write_report(directory, results)
    if not as_json:
        print(OWN_DATA)


@dataclass(frozen=True)
class Result:
    """A task that was run."""

    task: Task
    train: Samples
    test: Samples
    outcomes: list[Outcome]

    def rows(self) -> list[list[Any]]:
        """One row per entrant, in the order of COLUMNS."""
        return [
            [
                entrant.shown if found.converged else f"{entrant.shown} (not converged)",
                found.score,
                found.fit_seconds,
                found.predict_seconds,
                found.kilobytes,
            ]
            for entrant, found in zip(self.task.entrants, self.outcomes, strict=True)
        ]

    @property
    def lesson(self) -> str:
        return lesson(self.task, self.outcomes)


def _print_json(result: Result) -> None:
    about = {"task": result.task.title, "data": result.task.data, "measure": result.task.measure}
    for k, row in enumerate(result.rows()):
        print(json.dumps(about | {"ours": k == 0} | dict(zip(COLUMNS, row, strict=True))))


def compile_loops(task: Task, train: Samples) -> None:
    """Fit some rows, so that the times shown later are those of fitting alone.

    As many as it takes to be solved in the precision and by the loops of all rows.
    """
    few = train.take(slice(0, 400) if train.lengths is None else range(4))
    entrant = task.entrants[0]
    task.run(entrant.build(**entrant.params).set_params(max_iter=2), few, few)


def _write_report(directory: Path, results: list[Result]) -> None:
    if find_spec("matplotlib") is None:
        say(f"No report: {NEEDS_PLOTS}")
        return
    from maxmargin.report import Section, page, sections, table, text, versions

    parts = []
    for result in results:
        columns = [result.task.measure if column == "score" else column for column in COLUMNS]
        told = text(f"{result.task.data}.") + table(columns, result.rows()) + text(result.lesson)
        parts.append(Section(result.task.title, told))
        if result.task.family:
            _, *more = sections(_subject(result))
            parts += [replace(section, folded=True) for section in more]
    directory.mkdir(parents=True, exist_ok=True)
    lead = (
        "Tasks for which these models are made, beside what one would take otherwise. Parameters were chosen "
        "by cross-validation on the training parts; compiling is in no time."
    )
    write_page(directory / "report.html", page("maxmargin demo", lead, [*parts, versions()]))


def _subject(result: Result) -> Any:
    """What a report needs to know of our model."""
    task, mine = result.task, result.outcomes[0]
    return subject(
        mine.model, FAMILIES[task.family], result.test, task.title, mine.fit_seconds,
        training_labels=result.train.y,
    )  # fmt: skip


# What can be warmed up: the families, and bags of candidates, for which there is no file format.
WARMED = {family.name: (family.estimator, family.task) for family in FAMILIES.values()} | {
    "latent": ("LatentSVC", "bags")
}
# Parameters that choose between compiled loops; every combination that an estimator takes is fitted.
CHOICES = ("solver", "loss", "update", "regulariser", "selection", "inference")
# What else does, where not all values matter: all kernels that are not linear share their loops.
FURTHER = {"kernel": ("linear", "rbf"), "prior": (None, "labels")}
# Rows and classes of the fits: a tiny problem, and one that is solved in single precision.
FEW = ((24, 3), (402, 6))


@click.command("warmup", short_help="Compile the inner loops ahead of the first fit.")
@click.argument("families", nargs=-1, type=click.Choice(list(WARMED)), metavar="[FAMILY]...")
def warmup_command(families: Sequence[str]) -> None:
    """Compile the inner loops of the given families (all by default) and keep them on disk.

    The first fit of an estimator then starts at once, whatever its solver. Needed at most once per
    machine and version.
    """
    chosen = list(families or WARMED)
    start = time.perf_counter()
    with progress_bar() as bar:
        for name in chosen:
            estimator, task = WARMED[name]
            every = list(variants(estimator))
            line = bar.add_task(name, total=len(every))
            for params in every:
                words = " ".join(f"{key}={value}" for key, value in params.items())
                bar.update(line, description=f"{name} {words}")
                fit_a_little(estimator, task, params)
                bar.advance(line)
    print(f"Ready: {', '.join(chosen)} ({time.perf_counter() - start:.1f} s).")


def options(estimator: str, parameter: str) -> list[str]:
    """The words that a parameter of an estimator takes, read from its constraint; empty without it."""
    import maxmargin

    constraints = getattr(maxmargin, estimator)._parameter_constraints.get(parameter, ())
    return sorted({word for each in constraints for word in getattr(each, "options", ())})


def solver_names(estimator: str) -> list[str]:
    """The solvers that an estimator can be asked for."""
    return options(estimator, "solver")


def variants(estimator: str) -> Iterator[dict[str, Any]]:
    """All combinations of the parameters that choose between loops."""
    known = build(estimator).get_params()
    axes: dict[str, Sequence[Any]] = {name: options(estimator, name) for name in CHOICES if name in known}
    axes |= {name: values for name, values in FURTHER.items() if name in known}
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def fit_a_little(
    estimator: str, task: str, params: dict[str, Any], sizes: Sequence[tuple[int, int]] = FEW
) -> bool:
    """Fit and predict a few rows (`sizes`: rows and classes), dense and CSR, in double and single precision.

    False where the estimator refuses the combination: there is no loop for it.
    """
    model = build(estimator, **params)
    known = model.get_params()
    # Only what chooses its precision by the size of the problem is compiled anew for larger ones.
    chosen = sizes if "precision" in known else sizes[:1]
    model.set_params(max_iter=3, **({"max_basis": 5} if "max_basis" in known else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for size in chosen:
                for X, y, cut in _few_rows(task, *size):
                    model.fit(X, y, **cut).predict(X, **cut)
                    if task == "multilabel":
                        model.decision_function(X)
        except ValueError as refusal:
            if not any(key in str(refusal) for key in params):
                raise
            return False
    return True


def _few_rows(task: str, n: int, n_classes: int) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Rows in every kind, labels for the task, and the cut into sequences or bags of three rows."""
    import numpy as np
    import scipy.sparse as sp

    codes, eye = np.arange(n) % n_classes, np.eye(n_classes, dtype=int)
    y = {"multilabel": eye[codes] | eye[codes[::-1]], "bags": codes[: n // 3]}.get(task, codes)
    cut = {"lengths": np.full(n // 3, 3)} if task in ("chain", "bags") else {}
    X = np.random.default_rng(0).random((n, 5))
    for kind in (np.float64, np.float32):
        yield X.astype(kind), y, cut
        yield sp.csr_array(X.astype(kind)), y, cut
