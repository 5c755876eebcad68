"""`maxmargin predict`: labels for new data, read, predicted and written piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from maxmargin.cli._answers import Writer, answer, target
from maxmargin.cli._pieces import opened
from maxmargin.cli._source import ReadOptions, delimiter_of, read_options
from maxmargin.cli._stored import Stored, open_model

KINDS = ("csv", "jsonl", "same", "svmlight", "arff", "parquet")


@click.command("predict", short_help="Predict the labels of new data with a model.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; default: stdout.")
@click.option(
    "--to",
    "kind",
    type=click.Choice(KINDS),
    default="csv",
    show_default=True,
    help="csv: a 0/1 column per label, or the class; jsonl: an object per sample; same: the kind of DATA, "
    "features and predicted labels; svmlight, arff, parquet: likewise, in that kind.",
)
@click.option("--scores", is_flag=True, help="Give the score of every label as well (csv: instead).")
@read_options
def command(
    model_file: Path, source: str, output: Path | None, kind: str, scores: bool, reading: ReadOptions
) -> None:
    """Predict the labels of DATA (a file, a known name, or - for stdin) with MODEL.

    Files are read, predicted and written piece by piece, in memory that does not grow with the
    file. Labels in DATA are ignored, and tables need not have their columns; columns are found
    by name.

    \b
    maxmargin predict model.mm new.csv
    maxmargin predict model.mm new.svm --to same -o labelled.svm
    cat new.csv | maxmargin predict model.mm - --format csv --to jsonl
    """
    stored = open_model(model_file)
    if scores and stored.family.task == "chain":
        raise click.UsageError("--scores: a chain scores whole sequences, not single labels.")
    if scores and kind not in ("csv", "jsonl"):
        raise click.UsageError("--scores needs --to csv or --to jsonl.")
    known = stored.reading(reading)
    with opened(stored, source, known) as (own, pieces), target(output) as out:
        writer = Writer(out, _kind(kind, own, source), _how(stored, source, output, known))
        for data in pieces:
            if data.X.shape[0]:
                writer.write(answer(stored, data, scores))
        if not writer.n_written:
            raise ValueError(f"{source} has no samples.")
        writer.close()


def _kind(asked: str, own: str | None, source: str) -> str:
    """The kind to write; `own` is the format of the source."""
    if asked != "same":
        return asked
    if own is None or own == "mail":
        raise click.UsageError(
            f"--to same: {source} cannot be written again in its own kind; use --to csv, jsonl, svmlight, "
            "arff or parquet."
        )
    return "table" if own == "csv" else own


def _how(stored: Stored, source: str, output: Path | None, reading: ReadOptions) -> dict[str, Any]:
    return {
        "header": reading.header,
        "delimiter": delimiter_of(Path(source), reading),
        "zero_based": reading.zero_based,
        "label_ids": stored.label_ids,
        "xml": None if output is None else output.with_name(output.name.partition(".arff")[0] + ".xml"),
    }
