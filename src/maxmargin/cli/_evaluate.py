"""`maxmargin evaluate` and `maxmargin compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from maxmargin.cli._console import number, print_table, say
from maxmargin.cli._families import FAMILIES, Family
from maxmargin.cli._fitting import SCALERS, fit, scaled
from maxmargin.cli._params import estimator, split_words
from maxmargin.cli._samples import Samples, samples
from maxmargin.cli._source import ReadOptions, read, read_options
from maxmargin.cli._stored import evaluate, open_model


@click.command("evaluate", short_help="Measure a model on labelled data.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@read_options
def evaluate_command(model_file: Path, source: str, as_json: bool, reading: ReadOptions) -> None:
    """Measure MODEL on labelled DATA (a file, a known name, or - for stdin).

    Data that comes with a split is measured on its test part. Label columns are those of the
    training data unless told otherwise.

    \b
    maxmargin evaluate yeast.mm yeast --json
    maxmargin evaluate kind.mm other.csv --target kind
    """
    stored = open_model(model_file)
    data = stored.read(source, reading, "test")
    found = stored.measures(data)
    if as_json:
        print(json.dumps({"model": str(model_file), "data": source, "samples": len(data), **found}))
        return
    print_table(f"{model_file} on {source}: {len(data)} samples", ["measure", "value"], list(found.items()))


@click.command(
    "compare",
    context_settings={"ignore_unknown_options": True},
    short_help="Cross-validate models beside scikit-learn's.",
    options_metavar="[OPTIONS] [--PARAMETER VALUE]...",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="DATA")
@click.option(
    "-m",
    "--model",
    "families",
    multiple=True,
    required=True,
    type=click.Choice(list(FAMILIES)),
    help="Model family; give it several times for several.",
)
@click.option(
    "--folds", default=3, show_default=True, type=click.IntRange(2), help="Folds of cross-validation."
)
@click.option("--scale", type=click.Choice(SCALERS), default="none", help="Scale the columns of X first.")
@click.option("--baseline/--no-baseline", default=True, help="Whether scikit-learn's models stand beside.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per model instead of a table.")
@read_options
def compare_command(
    words: tuple[str, ...],
    families: tuple[str, ...],
    folds: int,
    scale: str,
    baseline: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Cross-validate models and their scikit-learn baselines on DATA, with times.

    Parameters of the estimators are options, as in `maxmargin fit`; they go to every model.
    Folds keep the shares of all labels. The first fit of a family may include compilation;
    `maxmargin warmup` takes that out of the times.

    \b
    maxmargin compare iris -m multiclass -m sparse-multiclass --folds 5 --C 10
    """
    positional, given = split_words(words)
    if len(positional) != 1:
        raise click.UsageError("Name exactly one DATA: a file, a data set, or - for stdin.")
    rows = []
    seen: set[str] = set()
    for name in families:
        family = FAMILIES[name]
        data = samples(read(positional[0], reading, single=family.task == "multiclass"), family)
        rows.append(_cross_validated(name, estimator(family, given), family, data, folds, scale))
        if baseline and family.baseline_name not in seen:
            seen.add(family.baseline_name)
            label = f"scikit-learn {family.baseline_name}"
            rows.append(_cross_validated(label, family.baseline(), family, data, folds, scale))
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [[_shown(row.get(column)) for column in columns] for row in rows]
    print_table(f"{positional[0]}, {folds}-fold cross-validation: mean ± standard deviation", columns, table)


def _cross_validated(
    name: str, model: Any, family: Family, data: Samples, folds: int, scale: str
) -> dict[str, Any]:
    import numpy as np
    from sklearn.base import clone

    found = []
    sequences = family.task == "chain" and type(model).__name__ == family.estimator
    for train, test in _splits(family, data, folds):
        inside = data.take(train)
        fitted = fit(clone(scaled(model, scale, data.X)), inside if sequences else _flat(inside), name)
        measures = evaluate_on(fitted.model, family, data.take(test), sequences)
        found.append(measures | {"fit s": fitted.seconds})
    row: dict[str, Any] = {"model": name}
    for key in found[0]:
        values = [each[key] for each in found]
        row[key] = [float(np.mean(values)), float(np.std(values))]
    return row


def evaluate_on(model: Any, family: Family, data: Samples, sequences: bool) -> dict[str, float]:
    """Measures on `data`; a baseline of chains sees single positions."""
    if family.task == "chain" and not sequences:
        from maxmargin.cli._measures import measure

        return measure("chain", data.y, model.predict(data.X), lengths=data.lengths)
    return evaluate(model, family, data)


def _flat(data: Samples) -> Samples:
    return Samples(data.X, data.y, data.label_names, data.feature_names)


def _splits(family: Family, data: Samples, folds: int) -> Any:
    """Rows of training and test parts; sequences are kept whole, labels in their shares."""
    import numpy as np
    from sklearn.model_selection import KFold, StratifiedKFold

    from maxmargin.model_selection import IterativeStratifiedKFold

    blank = np.zeros(len(data))
    if family.task == "chain":
        return KFold(folds, shuffle=True, random_state=0).split(blank)
    if data.y.ndim == 2:
        return IterativeStratifiedKFold(folds, shuffle=True, random_state=0).split(blank, data.y)
    counts = np.unique(data.y, return_counts=True)[1]
    if counts.min() < folds:
        say(f"Warning: a class has only {counts.min()} samples; folds are not stratified.")
        return KFold(folds, shuffle=True, random_state=0).split(blank)
    return StratifiedKFold(folds, shuffle=True, random_state=0).split(blank, data.y)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{number(value[0])} ± {number(value[1])}"
    return number(value)
