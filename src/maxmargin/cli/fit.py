"""`maxmargin fit`."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.compare import (
    FOLDS,
    Validated,
    check_parameters,
    cross_validated,
    names_of_c,
    values_of_c,
)
from maxmargin.cli.console import FILE, RESULT, echo, json_option, log, print_table
from maxmargin.cli.data import REMEMBERED, ReadOptions, Samples, read, read_options, samples
from maxmargin.cli.families import (
    FAMILIES,
    ON_CLUSTER,
    Family,
    ParameterCommand,
    complete_words,
    described,
    estimator,
    family_of,
    possible_families,
    split_words,
)
from maxmargin.cli.measures import training_rows
from maxmargin.cli.models import Fitted, certificate, decided, fit, prepared, scale_option, text_option
from maxmargin.io.words import number

_MODELS = "\n".join(f"{family.name:18s} {family.summary}" for family in FAMILIES.values())
_HELP = f"""Fit a model on DATA (a file, the name of a data set, or - for stdin) and save it.

Every parameter of the estimator is an option: --C 10, --kernel rbf, --max-iter 100,
--prior labels. `maxmargin fit -m FAMILY --parameters` lists them. --C auto, or several values of --C, choose
C by cross-validation. Ctrl-C stops the fit and saves the model reached so far.

\b
Models:
{_MODELS}

\b
maxmargin fit yeast -m multilabel --kernel rbf --scale standard -o yeast.mm
maxmargin fit table.csv --target kind -m multiclass --scale standard -o kind.mm
maxmargin fit table.csv --target kind --C auto -o kind.mm
maxmargin fit shop.csv --labels tags -o shop.mm
maxmargin fit mails.jsonl --text body --labels tags -o mails.mm
maxmargin fit large.svm -m multilabel --float32 --n-jobs 2 --time-limit 60 -o large.mm
"""
# A model file stores the names of at most this many features.
MAX_NAMES = 200_000
# Results that only `-v` and `--json` print.
DETAILS = ("ran", "epochs", "objective")
# Value of --prior for a prior that is learned together with the weights.
LEARNED = "learned"


@click.command(
    "fit",
    cls=ParameterCommand,
    context_settings={"ignore_unknown_options": True},
    short_help="Fit a model and save it.",
    help=_HELP,
    options_metavar="[OPTIONS] [--PARAMETER VALUE]...",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="DATA", shell_complete=complete_words)
@click.option(
    "-m",
    "--model",
    "family",
    type=click.Choice(list(FAMILIES)),
    help="Model family. Default: multiclass for one label per sample, multilabel for several.",
)
@click.option("-o", "--output", type=FILE, help="Model file to write.  [required]")
@click.option("--parameters", is_flag=True, help="List the parameters of the model family and exit.")
@scale_option
@text_option
@click.option(
    "--probabilities",
    type=click.Choice(["auto", "sigmoid", "isotonic", "temperature"]),
    help="Calibrate the scores to predict probabilities. auto: the usual method for the kind of labels.",
)
@click.option(
    "--ensemble",
    is_flag=True,
    help="With --probabilities: average the calibrated models of all folds. More accurate, but larger.",
)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Several labels per sample: predict sets with this expected share of the true labels.",
)
@click.option(
    "--set-precision",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Several labels per sample: predict sets of which this share is expected to be true.",
)
@click.option(
    "--tree", type=FILE, help="CSV file of label pairs parent,child; predictions include all parents."
)
@click.option(
    "--cluster",
    "address",
    metavar="local|ADDRESS",
    help="Fit on a Dask cluster whose workers read DATA: one or several files.",
)
@click.option(
    "--workers", type=click.IntRange(1), help="With --cluster local: number of workers. Default: CPU cores."
)
@click.option(
    "--cv",
    "folds",
    type=click.IntRange(2),
    metavar="FOLDS",
    help="Measure the model by cross-validation on DATA before the fit. Several values of --C are compared "
    f"in the same folds (default for them: {FOLDS}).",
)
@json_option("Print the result as one JSON object.")
@read_options
def fit_command(
    words: tuple[str, ...],
    family: str | None,
    output: Path | None,
    parameters: bool,
    scale: str,
    text_as: str,
    probabilities: str | None,
    ensemble: bool,
    recall: float | None,
    set_precision: float | None,
    tree: Path | None,
    address: str | None,
    workers: int | None,
    folds: int | None,
    as_json: bool,
    reading: ReadOptions,
) -> int:
    chosen = FAMILIES.get(family or "")
    if parameters:
        if chosen is None:
            raise click.UsageError("--parameters needs a model family: give -m.")
        title = f"Parameters of {chosen.estimator}"
        print_table(title, ["option", "default", "description"], described(chosen), (0, 1, 2))
        return 0
    possible = [chosen] if chosen else possible_families(reading)
    positional, given = split_words(words, possible, () if address is None else ON_CLUSTER)
    Cs = values_of_c(given)
    promised = {
        name: share for name, share in (("recall", recall), ("precision", set_precision)) if share is not None
    }
    if ensemble and probabilities is None:
        raise click.UsageError(
            "--ensemble needs --probabilities: give auto, sigmoid, isotonic or temperature."
        )
    if address is not None:
        from maxmargin.cli import cluster

        decisions = probabilities is not None or bool(promised) or tree is not None
        cluster.refuse(scale=scale, decisions=decisions, folds=bool(folds or Cs))
        output = _checked(output)

        def on_cluster() -> tuple[Fitted, dict[str, Any], None]:
            fitted, family, data = cluster.fit_files(positional, address, workers, chosen, given, reading)
            return fitted, _notes(family, data, fitted, positional[0], reading), None

        return _save_and_print(output, as_json, on_cluster)
    if workers is not None:
        raise click.UsageError("--workers needs --cluster local.")
    if len(positional) != 1:
        raise click.UsageError("Name exactly one DATA: a file, a data set, or - for stdin.")
    output = _checked(output)
    prior = given.pop("prior") if _names_structure(given.get("prior")) else None
    if len(promised) + (tree is not None) > 1:
        raise click.UsageError(
            "Give one of --recall, --set-precision and --tree: a set keeps one promise, and may not agree "
            "with a tree."
        )
    if prior == LEARNED and (folds or Cs):
        raise click.UsageError("--prior learned needs one value of --C and no --cv.")
    of_sets = {"--recall": recall, "--set-precision": set_precision, "--tree": tree, "--prior": prior}

    def check(family: Family) -> None:
        check_parameters([family], given, Cs)
        _check_task(family, probabilities, of_sets)

    # Mistakes in options and in small files are reported before the data is read.
    if tree is not None:
        _pairs(tree, "--tree")
    if prior is not None and prior != LEARNED:
        _pairs(Path(prior.partition(":")[2]), f"--prior {prior.partition(':')[0]}")
    if len(possible) == 1:
        check(possible[0])
    single = chosen is not None and chosen.task == "multiclass"
    known = read(positional[0], reading, single=single, split="train")
    chosen = chosen or family_of(known)
    check(chosen)
    data = samples(known, chosen)
    inner = estimator(chosen, given)
    if prior is not None and prior != LEARNED:
        inner.set_params(prior=_prior(prior, data.label_names))
    edges = () if tree is None else _tree(tree, data.label_names)
    plain = prepared(inner, scale, data, text_as)
    model = decided(plain, probabilities, promised, edges, ensemble)

    def work() -> tuple[Fitted, dict[str, Any], Validated | None]:
        if prior == LEARNED:
            _learn_prior(plain, data)
        validated = None
        if folds or Cs:
            validated = cross_validated(model, chosen, data, folds or FOLDS, Cs, verbose=True)
            if Cs:
                model.set_params(**{names_of_c(model)[0]: validated.C})
        fitted = fit(model, data, f"fitting {chosen.name}")
        return fitted, _notes(chosen, data, fitted, positional[0], reading), validated

    return _save_and_print(output, as_json, work)


def _check_task(family: Family, probabilities: str | None, of_sets: Mapping[str, Any]) -> None:
    """Raise an error for options that do not apply to the labels of a family."""
    if family.task == "chain" and probabilities is not None:
        raise click.UsageError(
            "--probabilities is not for sequences; calibrate them in Python with maxmargin.Calibrated."
        )
    for option, value in of_sets.items():
        if value is not None and family.task != "multilabel":
            raise click.UsageError(f"{option} {value} is for models of several labels per sample.")
    if of_sets["--prior"] == LEARNED and family.estimator != "MultiLabelSVC":
        raise click.UsageError("--prior learned is for MultiLabelSVC; use -m multilabel.")


def _save_and_print(
    output: Path, as_json: bool, work: Callable[[], tuple[Fitted, dict[str, Any], Validated | None]]
) -> int:
    """Fit, save the model with its notes, and print the result; return the exit code."""
    import maxmargin

    try:
        fitted, notes, validated = work()
    except KeyboardInterrupt:
        echo(f"Stopped by Ctrl-C before the first model; {output} was not written.", RESULT)
        return 130
    maxmargin.save(fitted.model, output, metadata=notes)
    result = {
        "model": str(output),
        "family": notes["family"],
        "samples": notes["samples"],
        "seconds": fitted.seconds,
        **certificate(fitted.last),
    }
    if as_json:
        print(json.dumps(result | ({} if validated is None else validated.found())))
    else:
        if validated is not None:
            validated.print()
        words = {key: f"{key} {number(value)}" for key, value in result.items()}
        echo(", ".join(word for key, word in words.items() if key not in DETAILS), RESULT)
        log.debug("%s", ", ".join(words[key] for key in DETAILS if key in words))
    if fitted.interrupted:
        echo(f"Stopped by Ctrl-C; {output} holds the model reached.", RESULT)
        return 130
    if not as_json:
        file = shlex.quote(str(output))
        measure = f" To measure the model: maxmargin evaluate {file} TEST_DATA, or fit --cv 3."
        echo(f"Next: maxmargin predict {file} NEW_DATA.{'' if validated else measure}")
    return 0


def _checked(output: Path | None) -> Path:
    """Check the path of the model file before the fit."""
    if output is None:
        raise click.UsageError("Name the model file to write: -o FILE.")
    if output.is_dir():
        raise click.UsageError(f"{output} is a directory; -o must name a file.")
    if not output.resolve().parent.is_dir():
        raise click.UsageError(f"There is no directory {output.resolve().parent} for the model file.")
    return output


def _notes(
    family: Family, data: Samples, fitted: Fitted, source: str, reading: ReadOptions
) -> dict[str, Any]:
    """Return what the model file stores for prediction and reports."""
    return {
        "family": family.name,
        "data": source,
        "samples": len(data),
        "label_names": list(data.label_names),
        "feature_names": list(data.feature_names) if len(data.feature_names) <= MAX_NAMES else [],
        "sparse": hasattr(data.X, "toarray"),
        "seconds": fitted.seconds,
        "reading": {key: value for key, value in vars(reading).items() if key in REMEMBERED},
        **({} if data.columns is None else {"columns": dict(data.columns)}),
        **({} if data.target is None else {"target": data.target}),
        **training_rows(data, reading),
    }


def _pairs(path: Path, option: str) -> list[tuple[str, ...]]:
    """Read a CSV file of label pairs, with an optional weight in a third column."""
    if not path.is_file():
        raise click.UsageError(f"{option}: there is no file {path}.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [(k, tuple(word.strip() for word in row)) for k, row in enumerate(csv.reader(file), 1) if row]
    for k, row in rows:
        if len(row) not in (2, 3):
            raise click.UsageError(f"{option}: line {k} of {path} has {len(row)} entries instead of 2 or 3.")
    if not rows:
        raise click.UsageError(f"{option}: {path} is empty.")
    return [row for _, row in rows]


def _edges(path: Path, labels: Sequence[str], option: str) -> list[tuple[Any, ...]]:
    """Read the pairs of a file as indices of labels; a first line without any label is a header."""
    rows = _pairs(path, option)
    index = {name: k for k, name in enumerate(labels)}
    if not {rows[0][0], rows[0][1]} & set(index):
        rows = rows[1:]
    for row in rows:
        for name in row[:2]:
            if name not in index:
                shown = ", ".join(labels[:10]) + (" and others" if len(labels) > 10 else "")
                raise click.UsageError(f"{option}: {path} names {name!r}; the labels are {shown}.")
    if not rows:
        raise click.UsageError(f"{option}: {path} names none of the labels.")
    return [(index[row[0]], index[row[1]], *row[2:]) for row in rows]


def _tree(path: Path, labels: Sequence[str]) -> list[tuple[int, int]]:
    """Read the pairs of parent and child, and check that they form a tree."""
    from maxmargin.decisions.tree import parents_of

    edges = _edges(path, labels, "--tree")
    if any(len(edge) > 2 for edge in edges):
        raise click.UsageError(f"--tree: {path} has three columns; give pairs of parent and child.")
    try:
        parents_of([(labels[above], labels[below]) for above, below in edges], list(labels))
    except ValueError as error:
        raise click.UsageError(f"--tree: {path}: {error}") from error
    return [(above, below) for above, below in edges]


def _names_structure(word: Any) -> bool:
    """Return whether a value of --prior is tree:FILE, graph:FILE or learned."""
    return isinstance(word, str) and (word == LEARNED or word.startswith(("tree:", "graph:")))


def _prior(word: str, labels: Sequence[str]) -> Any:
    """Return the prior for ``tree:FILE`` or ``graph:FILE``."""
    from maxmargin import priors

    kind, _, name = word.partition(":")
    option, path = f"--prior {kind}", Path(name)
    edges = _edges(path, labels, option)
    if kind == "tree":
        return priors.from_tree(edges, range(len(labels)))
    try:
        weighted = [(a, b, *map(float, weight)) for a, b, *weight in edges]
    except ValueError as error:
        raise click.UsageError(f"{option}: the third column of {path} is not a weight: {error}.") from error
    return priors.from_graph(weighted, range(len(labels)))


def _learn_prior(model: Any, data: Samples) -> None:
    """Set the prior of an estimator, or of the last step of a pipeline, to the learned one."""
    from sklearn.base import clone

    from maxmargin import priors

    X = data.X
    if hasattr(model, "steps"):
        X = clone(model[:-1]).fit_transform(X)
        model = model.steps[-1][1]
    model.set_params(prior=priors.learned(model, X, data.y))
