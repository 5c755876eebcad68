"""`maxmargin demo`: one model of each family beside scikit-learn, on data that ships."""

from __future__ import annotations

import json
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from maxmargin.cli._console import print_table, progress_bar, say
from maxmargin.cli._families import FAMILIES, Family, build
from maxmargin.cli._measures import MEASURES
from maxmargin.cli._report import baseline, subject, write

COLUMNS = ["family", "data", "measure", "maxmargin", "scikit-learn", "baseline", "gap", "fit s", "base s"]


@click.command("demo", short_help="Fit one model of each family on shipped data.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per family instead of a table.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("maxmargin-demo"),
    show_default=True,
    help="Where to put report.html.",
)
def command(as_json: bool, directory: Path) -> None:
    """Fit one model of each family on shipped data beside its scikit-learn baseline.

    Prints one table and writes a page with pictures.
    """
    subjects = []
    with progress_bar() as bar:
        task = bar.add_task("compiling", total=2 * len(FAMILIES))
        start = time.perf_counter()
        for family in FAMILIES.values():
            bar.update(task, description=f"{family.name}: compiling")
            compile_loops(family)
            bar.advance(task)
        compiling = time.perf_counter() - start
        for family in FAMILIES.values():
            bar.update(task, description=f"{family.name}: fitting")
            subjects.append(run(family))
            bar.advance(task)
    rows = [_row(family, about) for family, about in zip(FAMILIES.values(), subjects, strict=True)]
    if as_json:
        for row in rows:
            print(json.dumps(dict(zip(COLUMNS, row, strict=True))))
    else:
        print_table("Test results, one model per family", COLUMNS, rows, left=(0, 1, 2, 5))
        print(f"Compiled the inner loops in {compiling:.1f} s; later runs find them on disk.")
    _write_report(directory, rows, subjects)


def run(family: Family) -> Any:
    """Fit and test a family and its baseline on the demo's data."""
    from maxmargin.cli._demo_data import LOADERS

    split = LOADERS[family.demo_data]()
    model = build(family, family.demo_params)
    start = time.perf_counter()
    model.fit(split.train.X, split.train.y, **split.train.cut)
    seconds = time.perf_counter() - start
    beside = baseline(family, split.train, split.test) | {
        "training_labels": split.train.y,
        "training": f"Trained on {len(split.train)} samples of {family.demo_data}.",
    }
    return subject(model, family, split.test, family.demo_data, seconds, **beside)


def compile_loops(family: Family) -> None:
    """Fit some rows, so that the times shown later are those of fitting alone.

    As many as it takes to be solved in the precision and by the loops of all rows.
    """
    from maxmargin.cli._demo_data import LOADERS

    train = LOADERS[family.demo_data]().train
    few = train.take(range(min(400, len(train)) if train.lengths is None else 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build(family, family.demo_params).set_params(max_iter=2)
        model.fit(few.X, few.y, **few.cut).predict(few.X, **few.cut)


def _row(family: Family, about: Any) -> list[Any]:
    headline = family.headline or next(iter(MEASURES[family.task]))
    return [
        family.name,
        family.demo_data,
        headline,
        about.measures[headline],
        about.baseline_measures[headline],
        family.baseline_name,
        # One pass over a stream does not aim at an optimum.
        None if family.task == "ranking" else about.model.duality_gap_,
        about.seconds,
        about.baseline_seconds,
    ]


def _write_report(directory: Path, rows: list[list[Any]], subjects: list[Any]) -> None:
    if find_spec("matplotlib") is None:
        say('No report: its pictures need matplotlib; pip install "maxmargin[plots]".')
        return
    from maxmargin.report import Section, page, sections, table, versions

    parts = [Section("All families", table(COLUMNS, rows))]
    for about in subjects:
        parts += sections(about)
    directory.mkdir(parents=True, exist_ok=True)
    lead = "One model of each family beside its scikit-learn baseline, on data that ships with the package."
    write(directory / "report.html", page("maxmargin demo", lead, [*parts, versions()]))
