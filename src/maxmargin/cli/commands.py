"""`maxmargin fit`, `evaluate`, `compare`, `report` and `reproduce`."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
import time
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.completion import ParameterCommand, complete_data, complete_words
from maxmargin.cli.console import RESULT, log, print_table, say
from maxmargin.cli.data import REMEMBERED, ReadOptions, Samples, read, read_options, samples
from maxmargin.cli.families import (
    FAMILIES,
    ON_CLUSTER,
    Family,
    described,
    estimator,
    family_of,
    possible_families,
    split_words,
)
from maxmargin.cli.models import (
    MEASURES,
    Fitted,
    Stored,
    bare,
    certificate,
    decided,
    evaluate,
    fit,
    has_all_labels,
    label_scores,
    last_step,
    open_model,
    predicted_by,
    prepared,
    preprocessing,
    promise_of,
    scale_option,
    text_option,
)
from maxmargin.cli.options import Command
from maxmargin.cli.search import FOLDS, check_parameters, cross_validated, names_of_c, values_of_c
from maxmargin.cli.seen import noted_rows, seen
from maxmargin.cli.structure import LEARNED, check_files, is_structure, learn_prior, prior_of, tree_of
from maxmargin.cli.unknown import category_words, label_words

_MODELS = "\n".join(f"{family.name:18s} {family.summary}" for family in FAMILIES.values())
_HELP = f"""Fit a model on DATA (a file, the name of a data set, or - for stdin) and save it.

Every parameter of the estimator is an option: --C 10, --kernel rbf, --max-iter 100,
--prior labels; -m FAMILY --parameters lists them. --C auto, or --C given several times, chooses C by
cross-validation. Ctrl-C saves the model reached so far.

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
# Feature names beyond this many are left out of model files.
MANY = 200_000
# What a fit took, which only `-v` and `--json` print.
DETAILS = ("ran", "epochs", "objective")
NEEDS_PLOTS = "its pictures need matplotlib; pip install matplotlib."


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
    help="Model family; default: multiclass or multilabel, as the data has one label per sample or several.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Model file to write.  [required]")
@click.option("--parameters", is_flag=True, help="List the parameters of the model family and stop.")
@scale_option
@text_option
@click.option(
    "--probabilities",
    type=click.Choice(["auto", "sigmoid", "isotonic", "temperature"]),
    help="Calibrate scores, so that the model gives probabilities; auto suits the kind of labels.",
)
@click.option(
    "--ensemble",
    is_flag=True,
    help="With --probabilities: the mean of those of the folds' models, better as a rule; a larger model.",
)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Answer sets in which this share of the true labels is expected; several labels per sample only.",
)
@click.option(
    "--set-precision",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Instead: answer sets of which this share is expected to be true.",
)
@click.option(
    "--tree",
    type=click.Path(path_type=Path),
    help="File of pairs parent,child of labels: in every answer a child implies its parents.",
)
@click.option(
    "--cluster",
    "place",
    metavar="local|ADDRESS",
    help="Fit on a Dask cluster, whose workers read DATA: one or several files.",
)
@click.option("--workers", type=click.IntRange(1), help="With --cluster local: how many; default: the cores.")
@click.option(
    "--cv",
    "folds",
    type=click.IntRange(2),
    metavar="FOLDS",
    help="Print how good the model is by cross-validation on DATA before the fit on all of it. Several "
    f"values of --C are compared in as many folds; default for them: {FOLDS}.",
)
@click.option("--json", "as_json", is_flag=True, help="Say the result as one JSON object.")
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
    place: str | None,
    workers: int | None,
    folds: int | None,
    as_json: bool,
    reading: ReadOptions,
) -> int:
    chosen = FAMILIES.get(family or "")
    if parameters:
        if chosen is None:
            raise click.UsageError("--parameters lists those of a model family: say which by -m.")
        rows = described(chosen)
        print_table(f"Parameters of {chosen.estimator}", ["option", "default", "what it is"], rows, (0, 1, 2))
        return 0
    possible = [chosen] if chosen else possible_families(reading)
    positional, given = split_words(words, possible, () if place is None else ON_CLUSTER)
    Cs = values_of_c(given)
    shares = {"recall": recall, "precision": set_precision}
    promised = {name: share for name, share in shares.items() if share is not None}
    if ensemble and probabilities is None:
        raise click.UsageError(
            "--ensemble needs --probabilities: say auto, sigmoid, isotonic or temperature."
        )
    if place is not None:
        from maxmargin.cli import cluster

        decisions = probabilities is not None or bool(promised) or tree is not None
        cluster.refuse(scale=scale, decisions=decisions, folds=bool(folds or Cs))
        output = _checked(output)
        wanted = cluster.Wanted(place, workers, positional, chosen, given)

        def on_cluster() -> tuple[Fitted, dict[str, Any]]:
            fitted, family, data = cluster.fit_parts(wanted, reading)
            return fitted, noted(family, data, fitted, positional[0], reading)

        return _finished(output, as_json, on_cluster)
    if workers is not None:
        raise click.UsageError("--workers is the number of those of --cluster local.")
    if len(positional) != 1:
        raise click.UsageError("Name exactly one DATA: a file, a data set, or - for stdin.")
    output = _checked(output)
    structure = given.pop("prior") if is_structure(given.get("prior")) else None
    if len(promised) + (tree is not None) > 1:
        raise click.UsageError(
            "Give one of --recall, --set-precision and --tree: a set keeps one promise, and need not agree "
            "with a tree."
        )
    if structure == LEARNED and (folds or Cs):
        raise click.UsageError("--prior learned needs one value of --C and no --cv.")
    of_sets = {"--recall": recall, "--set-precision": set_precision, "--tree": tree, "--prior": structure}

    def check(family: Family) -> None:
        check_parameters([family], given, Cs)
        _check_task(family, probabilities, of_sets)

    check_files(tree, structure)
    if len(possible) == 1:
        check(possible[0])
    known = read(
        positional[0], reading, single=chosen is not None and chosen.task == "multiclass", split="train"
    )
    chosen = chosen or family_of(known)
    check(chosen)
    data = samples(known, chosen)
    inner = estimator(chosen, given)
    if structure not in (None, LEARNED):
        inner.set_params(prior=prior_of(structure, data.label_names))
    edges = () if tree is None else tree_of(tree, data.label_names)
    plain = prepared(inner, scale, data, text_as)
    model = decided(plain, probabilities, promised, edges, ensemble)

    def work() -> tuple[Fitted, dict[str, Any]]:
        if structure == LEARNED:
            learn_prior(plain, data.X, data.y)
        judged = None
        if folds or Cs:
            judged = cross_validated(model, chosen, data, folds or FOLDS, Cs, told=True)
            if Cs:
                model.set_params(**{names_of_c(model)[0]: judged.C})
        fitted = fit(model, data, f"fitting {chosen.name}")
        return replace(fitted, judged=judged), noted(chosen, data, fitted, positional[0], reading)

    return _finished(output, as_json, work)


def _check_task(family: Family, probabilities: str | None, of_sets: Mapping[str, Any]) -> None:
    """Refuse options that are not for the labels of a family."""
    if family.task == "chain" and probabilities is not None:
        raise click.UsageError(
            "--probabilities: sequences are calibrated in Python, by maxmargin.Calibrated."
        )
    for option, asked in of_sets.items():
        if asked is not None and family.task != "multilabel":
            raise click.UsageError(f"{option} {asked} is for models of several labels per sample.")
    if of_sets["--prior"] == LEARNED and family.estimator != "MultiLabelSVC":
        raise click.UsageError("--prior learned is for MultiLabelSVC; take -m multilabel.")


def _finished(output: Path, as_json: bool, work: Callable[[], tuple[Fitted, dict[str, Any]]]) -> int:
    """Fit, save the model with what is noted beside it, and print how it went and what comes next."""
    import maxmargin
    from maxmargin.report.page import number

    try:
        fitted, about = work()
    except KeyboardInterrupt:
        say(f"Stopped by Ctrl-C before there was a model; {output} is as it was.", RESULT)
        return 130
    maxmargin.save(fitted.model, output, metadata=about)
    result = {"model": str(output), "family": about["family"], "samples": about["samples"]} | outcome(fitted)
    judged = fitted.judged
    if as_json:
        print(json.dumps(result | ({} if judged is None else judged.found())))
    else:
        if judged is not None:
            judged.tell()
        words = {key: f"{key} {number(value)}" for key, value in result.items()}
        say(", ".join(word for key, word in words.items() if key not in DETAILS), RESULT)
        log.debug("%s", ", ".join(words[key] for key in DETAILS if key in words))
    if fitted.interrupted:
        say(f"Stopped by Ctrl-C; {output} holds the model reached.", RESULT)
        return 130
    if not as_json:
        file = shlex.quote(str(output))
        measured = "" if judged else f"; maxmargin evaluate {file} TEST_DATA, or fit --cv 3, measures it"
        say(f"Next: maxmargin predict {file} NEW_DATA{measured}.")
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
    return {"seconds": fitted.seconds} | certificate(fitted.last)


def noted(family: Family, data: Samples, fitted: Fitted, source: str, reading: ReadOptions) -> dict[str, Any]:
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
        **({} if data.columns is None else {"columns": dict(data.columns)}),
        **({} if data.target is None else {"target": data.target}),
        **noted_rows(data, reading),
    }


@click.command("evaluate", cls=Command, short_help="Measure a model on labelled data.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA", shell_complete=complete_data)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@read_options
def evaluate_command(model_file: Path, source: str, as_json: bool, reading: ReadOptions) -> None:
    """Measure MODEL on labelled DATA (a file, a known name, or - for stdin).

    Data that comes with a split is measured on its test part. Label columns are those of the
    training data unless told otherwise. Samples that the model was trained on are told as such;
    with --json, "trained on" is "all", "some" or "none known". Labels that the model does not know
    count as missed in every measure. Of a model fitted with --recall or --set-precision the share
    that was promised stands beside the share that was found.

    \b
    maxmargin evaluate yeast.mm yeast --json
    maxmargin evaluate kind.mm other.csv --target kind
    """
    stored = open_model(model_file)
    data = stored.read(source, reading, "test")
    predicted = predicted_by(stored.model, data)
    found = evaluate(stored.model, stored.family, data, predicted)
    promise = promise_of(stored.model, data, predicted)
    if promise is not None:
        found |= {f"{promise.kind} promised": promise.share, f"{promise.kind} found": promise.found}
    trained = seen(stored, data, source, reading)
    labels, categories = stored.unknown(data)
    if as_json:
        about = {"model": str(model_file), "data": source, "samples": len(data), "trained on": trained.which}
        print(json.dumps(about | found | {"unknown labels": labels, "unknown categories": categories}))
        return
    title = f"{model_file} on {source}: {len(data)} samples"
    lines = [*trained.lines, *label_words(labels), *category_words(categories), title]
    print_table("\n".join(lines), ["measure", "value"], list(found.items()))


@click.command("report", cls=Command, short_help="Write a page with pictures about a model.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA", shell_complete=complete_data)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="HTML file to write.",
)
@click.option("--train", help="Training data: adds a scikit-learn baseline and the training labels.")
@read_options
def report_command(
    model_file: Path, source: str, output: Path, train: str | None, reading: ReadOptions
) -> None:
    """Write one HTML page about MODEL on labelled DATA: measures, training, labels, errors.

    The page is one file, needs no network, and reads well on a phone. Pictures need
    matplotlib: pip install matplotlib.

    \b
    maxmargin report yeast.mm yeast --train yeast -o yeast.html
    """
    if find_spec("matplotlib") is None:
        raise ImportError(f"The report needs more than the package: {NEEDS_PLOTS}")
    from maxmargin.report import page, sections, versions

    stored = open_model(model_file)
    data = stored.read(source, reading, "test")
    beside: dict[str, Any] = {}
    if train is not None:
        beside_file = source == "-" or Path(source).exists()
        known = stored.read(train, reading.without_files() if beside_file else reading, "train")
        beside["training_labels"] = known.y
        if has_all_labels(known):
            beside |= baseline(stored, known, data) | {"thresholds": thresholds(stored, known)}
    if "samples" in stored.about:
        beside["training"] = f"Trained on {stored.about['samples']} samples of {stored.about['data']}."
    labels, categories = stored.unknown(data)
    lines = [*seen(stored, data, source, reading).lines, *label_words(labels), *category_words(categories)]
    for line in lines:
        say(line)
    beside["caution"] = " ".join(lines)
    about = subject(stored.model, stored.family, data, source, stored.about.get("seconds"), **beside)
    parts = [*sections(about), versions()]
    write_page(output, page(f"{model_file.name} on {source}", f"{about.size} to test", parts))


def subject(
    model: Any, family: Family, data: Samples, source: str, seconds: float | None, **beside: Any
) -> Any:
    """What the report needs to know of a fitted model and labelled data."""
    from maxmargin.report import Subject
    from maxmargin.tables import names_behind, words_for

    before = preprocessing(model)
    start = time.perf_counter()
    predicted = predicted_by(model, data)
    took = time.perf_counter() - start
    return Subject(
        name=family.name,
        data=source,
        model=last_step(bare(model)),
        X=data.X if before is None else before.transform(data.X),
        truth=data.y,
        predicted=predicted,
        measures=evaluate(model, family, data, predicted),
        better=MEASURES[family.task],
        seconds=seconds,
        predict_seconds=took,
        scores=None if family.task == "chain" else label_scores(model, data.X),
        probabilities=model.predict_proba(data.X) if hasattr(model, "predict_proba") else None,
        promise=promise_of(model, data, predicted),
        lengths=data.lengths,
        label_names=data.label_names if data.y.ndim == 2 else (),
        feature_names=tuple(
            data.feature_names if before is None else names_behind(before, data.feature_names)
        ),
        texts=data.texts,
        **{"preprocessing": "" if before is None else words_for(before, data.feature_names)} | beside,
    )


def baseline(stored: Stored, known: Samples, data: Samples) -> dict[str, Any]:
    """Fit the scikit-learn baseline of a family behind the same preprocessing, and measure it."""
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline

    family, before = stored.family, preprocessing(stored.model)
    model = family.baseline() if before is None else make_pipeline(*clone(before), family.baseline())
    start = time.perf_counter()
    model.fit(known.X, known.y)
    seconds = time.perf_counter() - start
    predicted = predicted_by(model, data)
    return {
        "baseline": f"scikit-learn {family.baseline_name}",
        "baseline_seconds": seconds,
        "baseline_measures": evaluate(model, family, data, predicted),
        "baseline_predicted": predicted,
        "baseline_scores": model.decision_function(data.X) if family.task == "multilabel" else None,
    }


def thresholds(stored: Stored, known: Samples) -> Any:
    """For each label the threshold with the best F1 in cross-validation on training data.

    None for a model that does not answer label by label.
    """
    import numpy as np
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_predict

    from maxmargin.baselines import tune_thresholds

    model = bare(stored.model)
    if stored.family.task != "multilabel" or hasattr(last_step(model), "interaction_"):
        return None
    known_labels = known.y.toarray() if hasattr(known.y, "toarray") else np.asarray(known.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = cross_val_predict(clone(model), known.X, known_labels, cv=3, method="decision_function")
    return tune_thresholds(known_labels > 0, scores, "macro")


def write_page(output: Path, html: str) -> None:
    """Write the page in one step and say where it is."""
    from maxmargin.io.files import atomic_write

    with atomic_write(output) as out:
        out.write(html.encode())
    say(f"Report: {output}", RESULT)


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
    type=click.Path(path_type=Path),
    default=Path(),
    help="Checkout of the repository; default: the directory you are in.",
)
def reproduce_command(name: str | None, options: tuple[str, ...], repository: Path) -> int:
    """Run the experiment NAME of the repository; without NAME, list them.

    Experiments read their data through MAXMARGIN_DATA or the cache, and write tables and
    pictures to experiments/results. The list names the data sets that each one reads in full. Further options
    go to the experiment itself; --small runs it at toy size, with made data where a set is not here.
    """
    folder = repository / "experiments"
    scripts = {path.stem: path for path in sorted(folder.glob("[!_]*.py"))}
    if not scripts:
        raise click.UsageError(
            f"There are no experiments in {repository.resolve()}; go to a checkout of the repository or name "
            "it by --repository."
        )
    minutes, data = _table(folder / "minutes.toml"), _table(folder / "data.toml")
    if name is None:
        rows = [
            [key, _minutes(minutes, key), _where(data.get(key, [])), _first_line(path)]
            for key, path in scripts.items()
        ]
        print_table("Experiments", ["name", "minutes", "data", "what"], rows, left=(0, 2, 3))
        return 0
    if name not in scripts:
        raise click.UsageError(f"No experiment is called {name!r}; there are {', '.join(scripts)}.")
    absent = [] if options else [one for one in data.get(name, []) if not _is_here(one)]
    if absent:
        raise ValueError(
            f"{name} reads data that is not on this machine: {', '.join(absent)}. `maxmargin datasets info "
            f"{_members(absent[0])[0]}` shows where its files are to be had; --small runs without them."
        )
    takes = f"about {_minutes(minutes, name)} minutes of one core" + (" for all of it" if options else "")
    takes = "seconds" if "--small" in options else takes
    say(f"python -m experiments.{name} {' '.join(options)} (takes {takes})")
    words, started = [sys.executable, "-m", f"experiments.{name}", *options], time.time()
    code = subprocess.run(words, cwd=repository, check=False).returncode
    output = folder / ("small" if "--small" in options else "results")
    output = Path(os.environ.get("MAXMARGIN_RESULTS", output))
    written = [path for path in sorted(output.glob("*")) if path.stat().st_mtime >= started]
    if code == 0 and written:
        say(f"Results: {', '.join(map(str, written))}", RESULT)
    return code


def _table(path: Path) -> dict[str, Any]:
    """What a file of the experiments says of each, if it is there."""
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def _minutes(minutes: Mapping[str, float], name: str) -> str:
    return f"{minutes[name]:g}" if name in minutes else "?"


def _members(data: str) -> list[str]:
    """The data sets of a collection, or the one of that name."""
    from maxmargin.io.registry import registry

    return [name for name in registry() if name.partition("/")[0] == data]


def _is_here(data: str) -> bool:
    """Whether a data set is on this machine, or every member of a collection."""
    from maxmargin.io.registry import where

    return all(where(name) not in ("can be fetched", "not here") for name in _members(data))


def _where(data: Sequence[str]) -> str:
    """The data sets that an experiment reads, and which of them are not on this machine."""
    return ", ".join(name if _is_here(name) else f"{name} (not here)" for name in data) or "none"


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.partition("\n")[0]
