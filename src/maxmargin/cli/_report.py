"""`maxmargin report`: a page about a model file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from maxmargin.cli._console import say
from maxmargin.cli._families import Family
from maxmargin.cli._fitting import last_step
from maxmargin.cli._measures import MEASURES, label_scores, measure
from maxmargin.cli._samples import Samples, samples
from maxmargin.cli._source import ReadOptions, read, read_options
from maxmargin.cli._stored import open_model


@click.command("report", short_help="Write a page with pictures about a model.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA")
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
def command(model_file: Path, source: str, output: Path, train: str | None, reading: ReadOptions) -> None:
    """Write one HTML page about MODEL on labelled DATA: measures, training, labels, errors.

    The page is one file, needs no network, and reads well on a phone. Pictures need
    matplotlib: pip install "maxmargin[plots]".

    \b
    maxmargin report yeast.mm yeast --train yeast -o yeast.html
    """
    from maxmargin.report import page, sections, versions

    stored = open_model(model_file)
    data = stored.read(source, reading, "test")
    beside: dict[str, Any] = {}
    if train is not None:
        known = samples(
            read(train, stored.reading(reading), single=stored.family.task == "multiclass", split="train"),
            stored.family,
        )
        beside = baseline(stored.family, known, data) | {"training_labels": known.y}
    trained = f"Trained on {stored.about['samples']} samples of {stored.about['data']}."
    about = subject(
        stored.model, stored.family, data, source, stored.about["seconds"], training=trained, **beside
    )
    parts = [*sections(about), versions()]
    write(output, page(f"{model_file.name} on {source}", f"{len(data)} test samples", parts))


def subject(model: Any, family: Family, data: Samples, source: str, seconds: float, **beside: Any) -> Any:
    """What the report needs to know of a fitted model and labelled data."""
    from maxmargin.report import Subject

    start = time.perf_counter()
    predicted = model.predict(data.X, **data.cut)
    took = time.perf_counter() - start
    scores = None if family.task == "chain" else label_scores(model, data.X)
    ranked = {"scores": scores, "classes": model.classes_} if family.task == "ranking" else {}
    return Subject(
        name=family.name,
        data=source,
        model=last_step(model),
        X=model[:-1].transform(data.X) if hasattr(model, "steps") else data.X,
        truth=data.y,
        predicted=predicted,
        measures=measure(family.task, data.y, predicted, lengths=data.lengths, **ranked),
        better=MEASURES[family.task],
        seconds=seconds,
        predict_seconds=took,
        scores=scores,
        lengths=data.lengths,
        label_names=data.label_names if data.y.ndim == 2 else (),
        feature_names=data.feature_names,
        texts=data.texts,
        **beside,
    )


def baseline(family: Family, known: Samples, data: Samples) -> dict[str, Any]:
    """Fit the scikit-learn baseline of a family, scaled by itself, and measure it."""
    model = family.baseline()
    start = time.perf_counter()
    model.fit(known.X, known.y)
    seconds = time.perf_counter() - start
    predicted = model.predict(data.X)
    ranked = (
        {"scores": label_scores(model, data.X), "classes": model.classes_} if family.task == "ranking" else {}
    )
    return {
        "baseline": f"scikit-learn {family.baseline_name}",
        "baseline_measures": measure(family.task, data.y, predicted, lengths=data.lengths, **ranked),
        "baseline_seconds": seconds,
    }


def write(output: Path, html: str) -> None:
    """Write the page in one step and say where it is."""
    from maxmargin.io.atomic import atomic_write

    with atomic_write(output) as out:
        out.write(html.encode())
    say(f"Report: {output}")
