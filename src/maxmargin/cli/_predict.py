"""`maxmargin predict`: labels for new data, streamed where the format allows it."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from maxmargin.cli._measures import label_scores
from maxmargin.cli._source import (
    ReadOptions,
    delimiter_of,
    format_of,
    located,
    read,
    read_options,
    reading_bar,
)
from maxmargin.cli._stored import Stored, open_model

BATCH = 4096


@click.command("predict")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; default: stdout.")
@click.option(
    "--to",
    "kind",
    type=click.Choice(["csv", "jsonl", "svmlight"]),
    default="csv",
    show_default=True,
    help="csv: a 0/1 column per label, or the class; jsonl: an object per sample; svmlight: with features.",
)
@click.option("--scores", is_flag=True, help="Give the score of every label as well (csv: instead).")
@read_options
def command(
    model_file: Path, source: str, output: Path | None, kind: str, scores: bool, reading: ReadOptions
) -> None:
    """Predict the labels of DATA (a file, a known name, or - for stdin) with MODEL.

    SVMlight and CSV are read, predicted and written piece by piece, in memory that does not
    grow with the file. Labels in DATA are ignored, and CSV need not have their columns.
    """
    stored = open_model(model_file)
    if scores and stored.family.task == "chain":
        raise click.UsageError("--scores: a chain scores whole sequences, not single labels.")
    if scores and kind == "svmlight":
        raise click.UsageError("--scores needs --to csv or --to jsonl.")
    with _target(output) as out:
        writer = _Writer(out, stored, kind, scores)
        for X, cut in batches(stored, source, stored.reading(reading)):
            writer.write(stored.like_training(X), cut)


def batches(stored: Stored, source: str, reading: ReadOptions) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Pieces of the features of a source, with the lengths of sequences where there are any."""
    from maxmargin.datasets._stream import stream_csv, stream_svmlight

    with located(source, reading) as path:
        kind = None if path is None else format_of(path, reading)
        if path is not None and kind == "svmlight":
            with reading_bar(path) as progress:
                for X in stream_svmlight(
                    path,
                    stored.n_features,
                    zero_based=reading.zero_based,
                    dtype=reading.dtype,
                    progress=progress,
                ):
                    yield X, {}
            return
        if path is not None and kind == "csv":
            for X in stream_csv(
                path,
                stored.about["feature_names"],
                header=reading.header,
                delimiter=delimiter_of(path, reading),
                dtype=reading.dtype,
            ):
                yield X, {}
            return
    if stored.family.task == "chain":
        data = stored.read(source, reading, "test")
        yield data.X, data.cut
        return
    table = read(source, reading, single=stored.family.task == "multiclass", split="test")
    for start in range(0, table.X.shape[0], BATCH):
        yield table.X[start : start + BATCH], {}


class _Writer:
    """Writes predictions of one batch after another."""

    def __init__(self, out: IO[str], stored: Stored, kind: str, scores: bool) -> None:
        self.out, self.stored, self.kind, self.scores = out, stored, kind, scores
        self.csv = csv.writer(out, lineterminator="\n")
        self.begun = False

    def write(self, X: Any, cut: dict[str, Any]) -> None:
        model = self.stored.model
        predicted = model.predict(X, **cut)
        several = getattr(predicted, "ndim", 1) == 2
        scores = label_scores(model, X) if self.scores else None
        names = self.stored.label_names
        if not several and scores is not None:
            names = [str(name) for name in model.classes_]
        if self.kind == "jsonl":
            self._write_objects(predicted, scores, names, several)
        elif self.kind == "svmlight":
            self._write_svmlight(X, predicted, several)
        else:
            self._write_table(predicted, scores, names, several)

    def _write_table(self, predicted: Any, scores: Any, names: list[str], several: bool) -> None:
        if not self.begun:
            self.csv.writerow(names if several or scores is not None else ["class"])
            self.begun = True
        if scores is not None:
            self.csv.writerows(scores.tolist())
        elif several:
            self.csv.writerows(_dense(predicted).tolist())
        else:
            self.csv.writerows([[label] for label in predicted.tolist()])

    def _write_objects(self, predicted: Any, scores: Any, names: list[str], several: bool) -> None:
        rows = _dense(predicted) if several else predicted
        for i, row in enumerate(rows):
            answer: dict[str, Any]
            if several:
                answer = {"labels": [names[k] for k in row.nonzero()[0]]}
            else:
                answer = {"class": row.item() if hasattr(row, "item") else row}
            if scores is not None:
                answer["scores"] = dict(zip(names, scores[i].tolist(), strict=True))
            self.out.write(json.dumps(answer, ensure_ascii=False) + "\n")

    def _write_svmlight(self, X: Any, predicted: Any, several: bool) -> None:
        import tempfile

        import scipy.sparse as sp

        from maxmargin.datasets import Dataset, write_svmlight

        Y = sp.csr_array(predicted) if several else predicted
        with tempfile.TemporaryDirectory(prefix="maxmargin-") as folder:
            path = Path(folder) / "part"
            write_svmlight(Dataset(X, Y, label_names=tuple(self.stored.label_names)), path)
            self.out.write(path.read_text())


def _dense(predicted: Any) -> Any:
    return predicted.toarray() if hasattr(predicted, "toarray") else predicted


@contextmanager
def _target(output: Path | None) -> Iterator[IO[str]]:
    """stdout, or a file that appears when it is complete."""
    if output is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    from maxmargin.datasets._files import whole_file

    with whole_file(output) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True)
        yield text
        text.flush()
        text.detach()
