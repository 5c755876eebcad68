"""`maxmargin fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from maxmargin.cli._console import number, print_table, say
from maxmargin.cli._families import FAMILIES, Family
from maxmargin.cli._fitting import SCALERS, Fitted, fit, scaled
from maxmargin.cli._params import described, estimator, split_words
from maxmargin.cli._samples import Samples, samples
from maxmargin.cli._source import REMEMBERED, ReadOptions, read, read_options

_MODELS = "\n".join(f"{family.name:18s} {family.summary}" for family in FAMILIES.values())
_HELP = f"""Fit a model on DATA (a file, the name of a data set, or - for stdin) and save it.

Every parameter of the estimator is an option: --C 10, --kernel rbf, --max-iter 100,
--prior labels; -m FAMILY --parameters lists them. Ctrl-C saves the model reached so far.

\b
Models:
{_MODELS}

\b
maxmargin fit yeast -m multilabel --prior labels --C 0.1 -o yeast.mm
maxmargin fit table.csv --target kind -m multiclass --scale standard -o kind.mm
maxmargin fit large.svm -m multilabel --float32 --n-jobs 2 --time-limit 60 -o large.mm
"""
# Feature names beyond this many are left out of model files.
MANY = 200_000


@click.command(
    "fit",
    context_settings={"ignore_unknown_options": True},
    short_help="Fit a model and save it.",
    help=_HELP,
    options_metavar="[OPTIONS] [--PARAMETER VALUE]...",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="DATA")
@click.option(
    "-m", "--model", "family", required=True, type=click.Choice(list(FAMILIES)), help="Model family."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Model file to write.  [required]")
@click.option("--parameters", is_flag=True, help="List the parameters of the model family and stop.")
@click.option("--scale", type=click.Choice(SCALERS), default="none", help="Scale the columns of X first.")
@click.option("--json", "as_json", is_flag=True, help="Say the result as one JSON object.")
@read_options
def command(
    words: tuple[str, ...],
    family: str,
    output: Path | None,
    parameters: bool,
    scale: str,
    as_json: bool,
    reading: ReadOptions,
) -> int:
    import maxmargin

    chosen = FAMILIES[family]
    if parameters:
        rows = described(chosen)
        print_table(f"Parameters of {chosen.estimator}", ["option", "default", "what it is"], rows, (0, 1, 2))
        return 0
    positional, given = split_words(words)
    if len(positional) != 1:
        raise click.UsageError("Name exactly one DATA: a file, a data set, or - for stdin.")
    output = _checked(output)
    model = estimator(chosen, given)
    data = samples(read(positional[0], reading, single=chosen.task == "multiclass", split="train"), chosen)
    fitted = fit(scaled(model, scale, data.X), data, f"fitting {family}")
    maxmargin.save(fitted.model, output, metadata=_about(chosen, data, fitted, positional[0], reading))
    result = {"model": str(output), "family": family, "samples": len(data), **outcome(fitted)}
    if as_json:
        print(json.dumps(result))
    else:
        say(", ".join(f"{key} {number(value)}" for key, value in result.items()))
    if fitted.interrupted:
        say(f"Stopped by Ctrl-C; {output} holds the model reached.")
        return 130
    return 0


def _checked(output: Path | None) -> Path:
    """The place of the model file, looked at before the work rather than after it."""
    if output is None:
        raise click.UsageError("Say where to put the model: -o FILE.")
    if output.is_dir():
        raise click.UsageError(f"{output} is a directory; -o names the model file to write.")
    if not output.resolve().parent.is_dir():
        raise click.UsageError(f"There is no directory {output.resolve().parent} to put the model into.")
    return output


def outcome(fitted: Fitted) -> dict[str, Any]:
    """What a fit proved and what it took."""
    found = {"seconds": fitted.seconds}
    for key, attribute in (
        ("epochs", "n_iter_"),
        ("objective", "primal_objective_"),
        ("gap", "duality_gap_"),
        ("basis vectors", "n_basis_"),
    ):
        if hasattr(fitted.last, attribute):
            found[key] = getattr(fitted.last, attribute)
    return found


def _about(
    family: Family, data: Samples, fitted: Fitted, source: str, reading: ReadOptions
) -> dict[str, Any]:
    """What prediction and reports need to know besides the model."""
    names = data.feature_names if len(data.feature_names) <= MANY else ()
    return {
        "family": family.name,
        "data": source,
        "samples": len(data),
        "label_names": list(data.label_names),
        "feature_names": list(names),
        "sparse": hasattr(data.X, "toarray"),
        "seconds": fitted.seconds,
        "reading": {key: value for key, value in vars(reading).items() if key in REMEMBERED},
    }
