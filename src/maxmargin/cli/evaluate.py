"""`maxmargin evaluate` and `maxmargin report`."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.console import FILE, RESULT, Command, echo, json_option, model_argument, print_table
from maxmargin.cli.data import ReadOptions, Samples, read_options
from maxmargin.cli.families import Family, complete_data
from maxmargin.cli.measures import (
    MEASURES,
    category_lines,
    evaluate,
    has_all_labels,
    label_lines,
    predict,
    promise_of,
    trained_on,
    unknown_categories,
    unknown_labels,
)
from maxmargin.cli.models import Stored, bare, label_scores, last_step, open_model, preprocessing

NEEDS_PLOTS = "pictures need matplotlib; pip install matplotlib."
data_argument = click.argument("source", metavar="DATA", shell_complete=complete_data)


@click.command("evaluate", cls=Command, short_help="Measure a model on labelled data.")
@model_argument
@data_argument
@json_option("Print one JSON object instead of a table.")
@read_options
def evaluate_command(model_file: Path, source: str, as_json: bool, reading: ReadOptions) -> None:
    """Measure MODEL on labelled DATA (a file, a known data set, or - for stdin).

    Data that comes with a split is measured on its test part. Labels are read from the columns of the
    training data, unless options name others. A line tells whether the samples were used for training
    ("trained on" with --json: all, some or none known). Labels that the model does not have count as missed.
    For a model fitted with --recall or --set-precision the promised share is printed beside the share found.

    \b
    maxmargin evaluate yeast.mm yeast --json
    maxmargin evaluate kind.mm other.csv --target kind
    """
    stored = open_model(model_file)
    data = stored.read(source, reading, "test")
    predicted = predict(stored.model, data)
    found = evaluate(stored.model, stored.family, data, predicted)
    promise = promise_of(stored.model, data, predicted)
    if promise is not None:
        found |= {f"{promise.kind} promised": promise.share, f"{promise.kind} found": promise.found}
    which, lines = trained_on(stored, data, source, reading)
    labels, categories = _unknown(stored, data)
    if as_json:
        about = {"model": str(model_file), "data": source, "samples": len(data), "trained on": which}
        print(json.dumps(about | found | {"unknown labels": labels, "unknown categories": categories}))
        return
    title = f"{model_file} on {source}: {len(data)} samples"
    lines = [*lines, *label_lines(labels), *category_lines(categories), title]
    print_table("\n".join(lines), ["measure", "value"], list(found.items()))


def _unknown(stored: Stored, data: Samples) -> tuple[Any, Any]:
    """Count the labels, and the categories of every column, that the model does not have."""
    labels = unknown_labels(data, stored.model.classes_)
    return labels, unknown_categories(bare(stored.model), data.X, stored.feature_names)


@click.command("report", cls=Command, short_help="Write an HTML page about a model.")
@model_argument
@data_argument
@click.option(
    "-o", "--output", type=FILE, default=Path("report.html"), show_default=True, help="HTML file to write."
)
@click.option("--train", help="Training data: adds a scikit-learn baseline and counts of training labels.")
@read_options
def report_command(
    model_file: Path, source: str, output: Path, train: str | None, reading: ReadOptions
) -> None:
    """Write one HTML page about MODEL on labelled DATA: measures, training, labels, errors.

    The page is a single file that needs no network. Pictures need matplotlib: pip install matplotlib.

    \b
    maxmargin report yeast.mm yeast --train yeast -o yeast.html
    """
    if find_spec("matplotlib") is None:
        raise ImportError(f"Cannot write the report: {NEEDS_PLOTS}")
    from maxmargin.report import page, sections, versions

    stored = open_model(model_file)
    data = stored.read(source, reading, "test")
    beside: dict[str, Any] = {}
    if train is not None:
        is_file = source == "-" or Path(source).exists()
        # --split names a part of DATA only.
        options = replace(reading.without_files() if is_file else reading, split=None)
        known = stored.read(train, options, "train")
        beside["training_labels"] = known.y
        if has_all_labels(known):
            beside |= baseline(stored, known, data) | {"thresholds": _thresholds(stored, known)}
    if "samples" in stored.about:
        beside["training"] = f"Trained on {stored.about['samples']} samples of {stored.about['data']}."
    labels, categories = _unknown(stored, data)
    lines = [*trained_on(stored, data, source, reading)[1], *label_lines(labels), *category_lines(categories)]
    for line in lines:
        echo(line)
    beside["caution"] = " ".join(lines)
    about = subject(stored.model, stored.family, data, source, stored.about.get("seconds"), **beside)
    parts = [*sections(about), versions()]
    write_page(output, page(f"{model_file.name} on {source}", f"{about.size} to test", parts))


def subject(
    model: Any, family: Family, data: Samples, source: str, seconds: float | None, **beside: Any
) -> Any:
    """Return what a report describes: a fitted model and labelled data."""
    from maxmargin.report import Subject
    from maxmargin.tables import names_behind, words_for

    before, names = preprocessing(model), data.feature_names
    start = time.perf_counter()
    predicted = predict(model, data)
    seconds_to_predict = time.perf_counter() - start
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
        predict_seconds=seconds_to_predict,
        scores=None if family.task == "chain" else label_scores(model, data.X),
        probabilities=model.predict_proba(data.X) if hasattr(model, "predict_proba") else None,
        promise=promise_of(model, data, predicted),
        lengths=data.lengths,
        label_names=data.label_names if data.y.ndim == 2 else (),
        feature_names=tuple(names if before is None else names_behind(before, names)),
        texts=data.texts,
        **{"preprocessing": "" if before is None else words_for(before, names)} | beside,
    )


def baseline(stored: Stored, known: Samples, data: Samples) -> dict[str, Any]:
    """Fit and measure the scikit-learn baseline of a family after the same preprocessing."""
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline

    family, before = stored.family, preprocessing(stored.model)
    model = family.baseline() if before is None else make_pipeline(*clone(before), family.baseline())
    start = time.perf_counter()
    model.fit(known.X, known.y)
    seconds = time.perf_counter() - start
    predicted = predict(model, data)
    return {
        "baseline": f"scikit-learn {family.baseline_name}",
        "baseline_seconds": seconds,
        "baseline_measures": evaluate(model, family, data, predicted),
        "baseline_predicted": predicted,
        "baseline_scores": model.decision_function(data.X) if family.task == "multilabel" else None,
    }


def _thresholds(stored: Stored, known: Samples) -> Any:
    """Return the threshold of every label with the best cross-validated F1, or None.

    Models that do not predict label by label have no thresholds.
    """
    import numpy as np
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_predict

    from maxmargin.baselines import tune_thresholds

    model = bare(stored.model)
    if stored.family.task != "multilabel" or hasattr(last_step(model), "interaction_"):
        return None
    labels = known.y.toarray() if hasattr(known.y, "toarray") else np.asarray(known.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = cross_val_predict(clone(model), known.X, labels, cv=3, method="decision_function")
    return tune_thresholds(labels > 0, scores, "macro")


def write_page(output: Path, html: str) -> None:
    """Write the page in one step and print its path."""
    from maxmargin.io.files import atomic_write

    with atomic_write(output) as out:
        out.write(html.encode())
    echo(f"Report: {output}", RESULT)
