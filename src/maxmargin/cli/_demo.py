"""`maxmargin demo`: one model of each family beside scikit-learn, on data that ships."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass
from typing import Any

import click

from maxmargin.cli._console import print_table, progress_bar
from maxmargin.cli._families import FAMILIES, Family, build
from maxmargin.cli._measures import MEASURES, label_scores, measure

COLUMNS = ["family", "data", "measure", "maxmargin", "scikit-learn", "baseline", "gap", "fit s", "base s"]


@dataclass(frozen=True)
class Trial:
    """One estimator fitted and tested."""

    model: Any
    predicted: Any
    measures: dict[str, float]
    seconds: float


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per family instead of a table.")
def command(as_json: bool) -> None:
    """Fit one model of each family on shipped data beside its scikit-learn baseline."""
    rows = []
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
            rows.append(_row(family, *run(family)))
            bar.advance(task)
    if as_json:
        for row in rows:
            print(json.dumps(dict(zip(COLUMNS, row, strict=True))))
        return
    print_table("Test results, one model per family", COLUMNS, rows, left=(0, 1, 2, 5))
    print(f"Compiled the inner loops in {compiling:.1f} s; later runs find them on disk.")


def run(family: Family) -> tuple[Trial, Trial]:
    """Fit and test a family and its baseline on the demo's data."""
    from maxmargin.cli._demo_data import LOADERS

    split = LOADERS[family.demo_data]()
    return (
        _trial(build(family, family.demo_params), family, split, split.lengths is not None),
        _trial(family.baseline(), family, split, False),
    )


def _trial(model: Any, family: Family, split: Any, sequences: bool) -> Trial:
    known = {"lengths": split.lengths} if sequences else {}
    asked = {"lengths": split.lengths_test} if sequences else {}
    start = time.perf_counter()
    model.fit(split.X, split.y, **known)
    seconds = time.perf_counter() - start
    predicted = model.predict(split.X_test, **asked)
    ranked = family.task == "ranking"
    measures = measure(
        family.task,
        split.y_test,
        predicted,
        lengths=split.lengths_test,
        scores=label_scores(model, split.X_test) if ranked else None,
        classes=model.classes_ if ranked else None,
    )
    return Trial(model, predicted, measures, seconds)


def compile_loops(family: Family) -> None:
    """Fit a handful of rows, so that the times shown later are those of fitting alone."""
    from maxmargin.cli._demo_data import LOADERS

    split = LOADERS[family.demo_data]()
    n = 24
    lengths = None if split.lengths is None else split.lengths[: n // split.lengths[0]]
    known = {} if lengths is None else {"lengths": lengths}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build(family, family.demo_params).set_params(max_iter=2)
        model.fit(split.X[:n], split.y[:n], **known).predict(split.X[:n], **known)


def _row(family: Family, ours: Trial, base: Trial) -> list[Any]:
    headline = family.headline or next(iter(MEASURES[family.task]))
    return [
        family.name,
        family.demo_data,
        headline,
        ours.measures[headline],
        base.measures[headline],
        family.baseline_name,
        # One pass over a stream does not aim at an optimum.
        None if family.task == "ranking" else ours.model.duality_gap_,
        ours.seconds,
        base.seconds,
    ]
