"""`maxmargin compare`: models beside scikit-learn's, C chosen for each of them alike."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import click

from maxmargin.cli.completion import ParameterCommand, complete_words
from maxmargin.cli.console import print_table, say
from maxmargin.cli.data import ReadOptions, Samples, read, read_options, samples
from maxmargin.cli.families import FAMILIES, Family, estimator, family_of, possible_families, split_words
from maxmargin.cli.models import evaluate, fit, has_all_labels, prepared, scale_option, text_option
from maxmargin.cli.search import (
    CS,
    check_parameters,
    cross_validated,
    duration,
    names_of_c,
    splits,
    values_of_c,
)

# Folds of the training part that C is chosen by.
INNER = 2
# Seconds of a fit that is not made twice to foretell how long all will take: the first may compile its loops.
LONG = 10.0


@click.command(
    "compare",
    cls=ParameterCommand,
    context_settings={"ignore_unknown_options": True},
    short_help="Cross-validate models beside scikit-learn's.",
    options_metavar="[OPTIONS] [--PARAMETER VALUE]...",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="DATA", shell_complete=complete_words)
@click.option(
    "-m",
    "--model",
    "families",
    multiple=True,
    type=click.Choice(list(FAMILIES)),
    help="Model family; give it several times for several. Default: as in `maxmargin fit`.",
)
@click.option(
    "--folds", default=3, show_default=True, type=click.IntRange(2), help="Folds of cross-validation."
)
@click.option(
    "--tune/--no-tune",
    default=None,
    help="Whether C is chosen within the training part of every fold; default: unless --C is one value.",
)
@scale_option
@text_option
@click.option("--baseline/--no-baseline", default=True, help="Whether scikit-learn's models stand beside.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per model instead of a table.")
@read_options
def compare_command(
    words: tuple[str, ...],
    families: tuple[str, ...],
    folds: int,
    tune: bool | None,
    scale: str,
    text_as: str,
    baseline: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Cross-validate models and their scikit-learn baselines on DATA, with times.

    C of every model is chosen alike, among 0.01, 0.1, 1 and 10 or the values of a repeated --C, by
    cross-validation within the training part of each fold; one fit of every model is timed first, and what
    all will take is said. Parameters of the estimators are options, as in `maxmargin fit`; they go to every
    model of this package. Folds keep the shares of all labels. Times are without compiling.

    \b
    maxmargin compare iris --folds 5
    maxmargin compare iris -m multiclass -m sparse-multiclass --C 10
    maxmargin compare iris --C 1 --C 10 --C 100
    """
    chosen = [FAMILIES[name] for name in families]
    positional, given = split_words(words, chosen or possible_families(reading))
    if len(positional) != 1:
        raise click.UsageError("Name exactly one DATA: a file, a data set, or - for stdin.")
    Cs = values_of_c(given)
    if Cs and tune is False:
        raise click.UsageError("--no-tune goes with one C: choose by several values of --C, or give one.")
    check_parameters(chosen, given, Cs)
    if not Cs and (tune or (tune is None and "C" not in given)):
        Cs = CS
    entries: list[tuple[str, Any, Family, Samples]] = []
    known = read(positional[0], reading, single=any(family.task == "multiclass" for family in chosen))
    for family in chosen or [family_of(known)]:
        data = samples(known, family)
        entries.append((family.name, prepared(estimator(family, given), scale, data, text_as), family, data))
        label = f"scikit-learn {family.baseline_name}"
        if baseline and label not in [entry[0] for entry in entries] and has_all_labels(data):
            entries.append((label, prepared(family.baseline(), scale, data, text_as), family, data))
    _foretell(entries, folds, Cs)
    rows = [_cross_validated(*entry, folds, Cs) for entry in entries]
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    measures = list(dict.fromkeys(key for row in rows for key in row))[1:]
    table = [[measure, *(_shown(row.get(measure)) for row in rows)] for measure in measures]
    title = f"{positional[0]}, {folds}-fold cross-validation: mean ± standard deviation"
    print_table(title, ["", *(row["model"].replace(" ", "\n") for row in rows)], table)


def _foretell(entries: Sequence[tuple[str, Any, Family, Samples]], folds: int, Cs: Sequence[float]) -> None:
    """Fit every model once and say how long all fits will take."""
    from sklearn.base import clone

    total = 0.0
    for name, model, family, data in entries:
        train, _ = next(splits(family, data, folds))
        for _ in range(2):  # the first one also reads the compiled loops from disk
            start = time.perf_counter()
            fitted = fit(clone(model), data.take(train), name)
            if fitted.interrupted:
                raise KeyboardInterrupt
            seconds = time.perf_counter() - start
            if seconds > LONG:
                break
        count = folds * (1 + (INNER * len(Cs) if names_of_c(model) else 0))
        total += count * seconds
    say(f"{len(entries)} models, {folds} folds: about {duration(total)}.")


def _cross_validated(
    name: str, model: Any, family: Family, data: Samples, folds: int, Cs: Sequence[float]
) -> dict[str, Any]:
    import numpy as np
    from sklearn.base import clone

    found, chosen = [], []
    for train, test in splits(family, data, folds):
        known = data.take(train)
        tuned = _tuned(clone(model), family, known, Cs)
        chosen += [tuned.get_params()[key] for key in names_of_c(tuned)[:1]]
        found.append(_measured(name, tuned, family, known, data.take(test)))
    row: dict[str, Any] = {"model": name}
    for key in found[0]:
        values = [each[key] for each in found]
        row[key] = [float(np.mean(values)), float(np.std(values))]
    if Cs and chosen:
        row["C"] = ", ".join(f"{C:g}" for C in chosen)
    return row


def _tuned(model: Any, family: Family, data: Samples, Cs: Sequence[float]) -> Any:
    """The model with the C that is best in cross-validation."""
    names = names_of_c(model)
    if not names or not Cs:
        return model
    return model.set_params(**{names[0]: cross_validated(model, family, data, INNER, Cs).C})


def _measured(name: str, model: Any, family: Family, train: Samples, test: Samples) -> dict[str, float]:
    fitted = fit(model, train, name)
    if fitted.interrupted:
        raise KeyboardInterrupt
    return evaluate(fitted.model, family, test) | {"fit s": fitted.seconds}


def _shown(value: Any) -> str:
    """Mean and deviation with the decimals of two digits of the deviation."""
    from maxmargin.report.page import number

    if not isinstance(value, list):
        return number(value)
    mean, deviation = value
    decimals = min(max(1 - math.floor(math.log10(deviation)), 0), 4) if deviation > 0 else 4
    return f"{mean:.{decimals}f} ± {deviation:.{decimals}f}"
