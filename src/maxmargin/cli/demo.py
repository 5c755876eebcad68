"""`maxmargin demo`, which runs the tasks of `showcase`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.commands import NEEDS_PLOTS, subject, write_page
from maxmargin.cli.console import print_table, progress_bar, say
from maxmargin.cli.data import Samples
from maxmargin.cli.families import FAMILIES
from maxmargin.cli.options import Command
from maxmargin.cli.showcase import TASKS, Outcome, Task, lesson

COLUMNS = ["who", "score", "fit s", "predict s", "KB"]
OWN_DATA = """On your own table (the column "kind" holds the class; several 0/1 columns: --labels a,b,c):
  maxmargin fit table.csv --target kind -m multiclass --scale standard -o kind.mm
  maxmargin report kind.mm other.csv -o kind.html
  maxmargin predict kind.mm new.csv"""


@click.command(
    "demo", cls=Command, short_help="Tasks for which these models are made, beside scikit-learn's."
)
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
    with progress_bar() as bar:
        line = bar.add_task("", total=len(TASKS))
        for task in TASKS:
            bar.update(line, description=task.title)
            train, test = task.load()
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
        print("Parameters: by cross-validation on the training parts.")
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
