"""Cross-validation: the choice of C, `maxmargin fit --cv` and `maxmargin compare`."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from maxmargin.cli.console import RESULT, echo, echoed_warnings, json_option, print_table
from maxmargin.cli.data import ReadOptions, Samples, read, read_options, samples
from maxmargin.cli.families import (
    FAMILIES,
    Family,
    ParameterCommand,
    complete_words,
    estimator,
    family_of,
    possible_families,
    split_words,
    value_of,
)
from maxmargin.cli.measures import MEASURES, evaluate, has_all_labels
from maxmargin.cli.models import Fitted, fit, last_step, prepared, scale_option, text_option
from maxmargin.io.words import number

# Values of C that `--C auto` chooses from, and the number of folds.
CS = (0.01, 0.1, 1.0, 10.0)
FOLDS = 3
# Folds of the training part in which `compare` chooses C.
INNER = 2
# A first fit may compile; one of more seconds is not repeated to estimate the time of all fits.
LONG = 10.0


def values_of_c(given: dict[str, str]) -> tuple[float, ...]:
    """Remove several values of C, or auto, from the parameters and return them; else return ()."""
    word = given.get("C", "")
    if word != "auto" and "," not in word:
        return ()
    del given["C"]
    if word == "auto":
        return CS
    values = [value_of(one) for one in word.split(",")]
    if not all(isinstance(value, (int, float)) for value in values):
        raise click.UsageError(f"--C must be numbers, or auto alone. Got {word} instead.")
    return tuple(sorted({float(value) for value in values}))


def check_parameters(families: Iterable[Family], given: Mapping[str, str], Cs: Sequence[float]) -> None:
    """Check the parameters before the data is read."""
    for family in families:
        for one in [{"C": str(C)} for C in Cs] or [{}]:
            estimator(family, {**given, **one})


@dataclass(frozen=True)
class Validated:
    """Results of cross-validation.

    Attributes
    ----------
    Cs : sequence
        The values of C; (None,) if C was not chosen.
    measures : sequence
        For every C and fold, all measures.
    constants : sequence
        For every fold, the main measure of the best constant prediction on its training part.
    """

    Cs: Sequence[float | None]
    measures: Sequence[Sequence[dict[str, float]]]
    constants: Sequence[float | None]

    @property
    def measure(self) -> str:
        """The measure by which C is chosen."""
        return next(iter(self.measures[0][0]))

    def mean(self, k: int, measure: str) -> float:
        return float(sum(fold[measure] for fold in self.measures[k]) / len(self.measures[k]))

    @property
    def best(self) -> int:
        """The index of the best C; of the smallest one among equals."""
        means = [self.mean(k, self.measure) for k in range(len(self.Cs))]
        return means.index(max(means))

    @property
    def C(self) -> float | None:
        return self.Cs[self.best]

    def found(self) -> dict[str, Any]:
        """Return the means of all measures with the best C."""
        constants = [value for value in self.constants if value is not None]
        return {
            **({} if self.C is None else {"C": self.C}),
            "folds": len(self.constants),
            **{key: self.mean(self.best, key) for key in self.measures[0][0]},
            "constant answer": sum(constants) / len(constants) if constants else None,
        }

    def print(self) -> None:
        """Print the best C and the measures with it."""
        folds, measure, found = f"{len(self.constants)}-fold cross-validation", self.measure, self.found()
        if self.C is not None:
            tried = [f"{number(self.mean(k, measure))} with {C:g}" for k, C in enumerate(self.Cs)]
            echo(f"C {self.C:g} has the best {measure} in {folds}: {', '.join(tried)}.", RESULT)
            if self.Cs[-1] == self.C and len(self.Cs) > 1:
                more = f"--C {self.C:g},{10 * self.C:g},{100 * self.C:g}"
                echo(f"It is the largest C tried; {more} tries larger ones.")
        means = {key: f"{key} {number(found[key])}" for key in self.measures[0][0]}
        if found["constant answer"] is not None:
            means[measure] += f" (best constant prediction {number(found['constant answer'])})"
        note = " C was chosen on the same folds, so this is slightly optimistic." if self.C else ""
        echo(f"{folds.capitalize()}: {', '.join(means.values())}.{note}", RESULT)


def cross_validated(
    model: Any, family: Family, data: Samples, folds: int, Cs: Sequence[float], *, verbose: bool = False
) -> Validated:
    """Measure a model in folds of the training data, for every C if there are several.

    The preprocessing is fitted in each fold. With `verbose` the number of fits is printed first, and an
    estimate of the time of all fits after the first one.
    """
    from sklearn.base import clone

    from maxmargin.report.verdict import constant_measure

    values: list[float | None] = [*Cs] or [None]
    rows: list[list[dict[str, float]]] = [[] for _ in values]
    constants: list[float | None] = []
    count = folds * len(values) + 1
    if verbose:
        choice = f", C among {', '.join(f'{C:g}' for C in Cs)}" if Cs else ""
        echo(f"{folds}-fold cross-validation{choice}: {count} fits.")
    for train, test in splits(family, data, folds):
        known, held_out = data.take(train), data.take(test)
        start = time.perf_counter()
        inner = model
        if hasattr(model, "steps"):
            with echoed_warnings():
                before = clone(model[:-1])
                known = replace(known, X=before.fit_transform(known.X, known.y))
                held_out = replace(held_out, X=before.transform(held_out.X))
            inner = last_step(model)
        # The largest C comes first: its fit takes longest, so the estimate is rarely too low.
        for k in reversed(range(len(values))):
            one = clone(inner)
            if Cs:
                one.set_params(**{names_of_c(one)[0]: values[k]})
            fitted = _uninterrupted(one, known, f"fold {len(constants) + 1} of {folds}")
            rows[k].append(evaluate(fitted.model, family, held_out))
            if verbose:
                seconds = count * (time.perf_counter() - start)
                echo(f"All fits will take about {_duration(seconds)}, estimated from the first one.")
                verbose = False
        constants.append(constant_measure(held_out.y, known.y, next(iter(MEASURES[family.task]))))
    return Validated(values, rows, constants)


def _uninterrupted(model: Any, data: Samples, name: str) -> Fitted:
    """Fit a model; Ctrl-C ends the command."""
    fitted = fit(model, data, name)
    if fitted.interrupted:
        raise KeyboardInterrupt
    return fitted


def names_of_c(model: Any) -> list[str]:
    """Return the parameters C of a model, also inside a pipeline or wrapper."""
    return [name for name in model.get_params() if name == "C" or name.endswith("__C")]


def _duration(seconds: float) -> str:
    if seconds < 1.5:
        return "a second"
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def splits(family: Family, data: Samples, folds: int) -> Iterator[Any]:
    """Yield rows of training and test parts, stratified by labels; sequences stay whole."""
    import numpy as np
    from sklearn.model_selection import KFold, StratifiedKFold

    from maxmargin.model_selection import IterativeStratifiedKFold

    blank, y = np.zeros(len(data)), data.y
    kind: Any = StratifiedKFold
    if family.task == "chain":
        kind, y = KFold, None
    elif data.y.ndim == 2:
        kind = IterativeStratifiedKFold
    elif (fewest := np.unique(data.y, return_counts=True)[1].min()) < folds:
        echo(f"the smallest class has {fewest} samples; folds are not stratified.", logging.WARNING)
        kind, y = KFold, None
    return iter(kind(folds, shuffle=True, random_state=0).split(blank, y))


@click.command(
    "compare",
    cls=ParameterCommand,
    context_settings={"ignore_unknown_options": True},
    short_help="Cross-validate models and scikit-learn baselines.",
    options_metavar="[OPTIONS] [--PARAMETER VALUE]...",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="DATA", shell_complete=complete_words)
@click.option(
    "-m",
    "--model",
    "families",
    multiple=True,
    type=click.Choice(list(FAMILIES)),
    help="Model family; repeat it to compare several. Default: as in `maxmargin fit`.",
)
@click.option(
    "--folds", default=3, show_default=True, type=click.IntRange(2), help="Number of cross-validation folds."
)
@click.option(
    "--tune/--no-tune",
    default=None,
    help="Choose C within the training part of every fold. Default: yes, unless --C is a single value.",
)
@scale_option
@text_option
@click.option("--baseline/--no-baseline", default=True, help="Include scikit-learn's models. Default: yes.")
@json_option("Print one JSON object per model instead of a table.")
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
    """Cross-validate models and their scikit-learn baselines on DATA, with fit times.

    C is chosen for every model among 0.01, 0.1, 1 and 10, or the values of a repeated --C, by
    cross-validation within the training part of each fold. A first fit of every model estimates the total
    time. Parameters of estimators are options, as in `maxmargin fit`, and apply to all models of this
    package. Folds are stratified by labels. Times do not include compilation.

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
        raise click.UsageError("--no-tune needs a single C; give one value of --C, or leave --no-tune out.")
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
    _print_estimate(entries, folds, Cs)
    rows = [_row(*entry, folds, Cs) for entry in entries]
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    measures = list(dict.fromkeys(key for row in rows for key in row))[1:]
    table = [[measure, *(_shown(row.get(measure)) for row in rows)] for measure in measures]
    title = f"{positional[0]}, {folds}-fold cross-validation: mean ± standard deviation"
    print_table(title, ["", *(row["model"].replace(" ", "\n") for row in rows)], table)


def _print_estimate(
    entries: Sequence[tuple[str, Any, Family, Samples]], folds: int, Cs: Sequence[float]
) -> None:
    """Fit every model once, and print how long all fits will take."""
    from sklearn.base import clone

    total = 0.0
    for name, model, family, data in entries:
        train, _ = next(splits(family, data, folds))
        for _ in range(2):  # the first fit also reads or compiles loops
            seconds = _uninterrupted(clone(model), data.take(train), name).seconds
            if seconds > LONG:
                break
        total += folds * (1 + (INNER * len(Cs) if names_of_c(model) else 0)) * seconds
    models = "1 model" if len(entries) == 1 else f"{len(entries)} models"
    echo(f"{models}, {folds} folds: about {_duration(total)}.")


def _row(
    name: str, model: Any, family: Family, data: Samples, folds: int, Cs: Sequence[float]
) -> dict[str, Any]:
    """Return the mean and standard deviation of each measure over the folds, and the values of C."""
    import numpy as np
    from sklearn.base import clone

    found, chosen = [], []
    for train, test in splits(family, data, folds):
        known, one = data.take(train), clone(model)
        for key in names_of_c(one)[:1]:
            if Cs:
                one.set_params(**{key: cross_validated(one, family, known, INNER, Cs).C})
            chosen.append(one.get_params()[key])
        fitted = _uninterrupted(one, known, name)
        found.append(evaluate(fitted.model, family, data.take(test)) | {"fit s": fitted.seconds})
    row: dict[str, Any] = {"model": name}
    for key in found[0]:
        values = [each[key] for each in found]
        row[key] = [float(np.mean(values)), float(np.std(values))]
    if Cs and chosen:
        row["C"] = ", ".join(f"{C:g}" for C in chosen)
    return row


def _shown(value: Any) -> str:
    """Format a mean and deviation with the decimals of two digits of the deviation."""
    if not isinstance(value, list):
        return number(value)
    mean, deviation = value
    decimals = min(max(1 - math.floor(math.log10(deviation)), 0), 4) if deviation > 0 else 4
    return f"{mean:.{decimals}f} ± {deviation:.{decimals}f}"
