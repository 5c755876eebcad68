"""`maxmargin predict`: read, predict and write data in chunks, in constant memory."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from maxmargin.cli.console import FILE, Command, echo, model_argument
from maxmargin.cli.data import (
    TABLES,
    ReadOptions,
    check_source,
    column_names,
    delimiter_of,
    format_of,
    joined,
    located,
    names_of,
    part,
    read,
    read_options,
    reading_bar,
    sequence_lengths,
    source_of,
)
from maxmargin.cli.families import complete_data
from maxmargin.cli.measures import category_lines, unknown_categories
from maxmargin.cli.models import Stored, bare, check_missing, label_scores, last_step, open_model
from maxmargin.io.words import visible

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset

# Rows of a chunk of data that is in memory already.
ROWS = 4096
KINDS = ("csv", "jsonl", "same", "svmlight", "arff", "parquet")


@click.command("predict", cls=Command, short_help="Predict the labels of new data.")
@model_argument
@click.argument("source", metavar="DATA", shell_complete=complete_data)
@click.option("-o", "--output", type=FILE, help="File to write. Default: stdout.")
@click.option(
    "--to",
    "kind",
    type=click.Choice(KINDS),
    default="csv",
    show_default=True,
    help="Output format. csv: a 0/1 column per label, or the class. jsonl: one object per sample. same: the "
    "format of DATA, with features and predicted labels. svmlight, arff, parquet: features and labels.",
)
@click.option(
    "--keep",
    multiple=True,
    callback=joined,
    help="Tables: columns of DATA to copy to the output, a,b,c (csv, jsonl, same).",
)
@click.option("--scores", is_flag=True, help="Output the score of every label (csv: instead of labels).")
@click.option(
    "--probabilities",
    is_flag=True,
    help="Output the probability of every label (csv: instead of labels). The model must be fitted with "
    "--probabilities.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="Output this many labels with the highest scores, best first (csv, jsonl).",
)
@read_options
def predict_command(
    model_file: Path,
    source: str,
    output: Path | None,
    kind: str,
    keep: str | None,
    scores: bool,
    probabilities: bool,
    top: int | None,
    reading: ReadOptions,
) -> None:
    """Predict the labels of DATA (a file, a known data set, or - for stdin) with MODEL.

    Files are processed in chunks, so memory does not grow with their size. Columns are matched by name.
    Labels in DATA are ignored and may be absent.

    \b
    maxmargin predict model.mm new.csv
    maxmargin predict model.mm new.csv --keep id --to jsonl
    maxmargin predict model.mm new.csv --to same --keep id -o labelled.csv
    maxmargin predict model.mm new.svm --to same -o labelled.svm
    maxmargin predict subjects.mm new.svm --top 5 --scores --to jsonl
    cat new.csv | maxmargin predict model.mm - --format csv --to jsonl
    """
    stored = open_model(model_file)
    on_terminal = output is None and sys.stdout.isatty()
    if scores and stored.family.task == "chain":
        raise click.UsageError("--scores: a chain scores whole sequences, not single labels.")
    if scores and probabilities:
        raise click.UsageError("Give either --scores or --probabilities, not both.")
    if (scores or probabilities) and kind not in ("csv", "jsonl"):
        raise click.UsageError(f"--{'scores' if scores else 'probabilities'} needs --to csv or --to jsonl.")
    if probabilities and not hasattr(stored.model, "predict_proba"):
        raise click.UsageError("The model has no probabilities; fit it with --probabilities auto.")
    has_top = kind in ("csv", "jsonl") and hasattr(last_step(bare(stored.model)), "predict_top")
    if top is not None and not has_top:
        raise click.UsageError("--top is for models of --model multilabel, with --to csv or --to jsonl.")
    if kind == "parquet" and on_terminal:
        raise click.UsageError("--to parquet cannot be printed on a terminal; give -o FILE.")
    known = stored.reading(reading)
    if kind not in ("csv", "jsonl", "same") and stored.has_words:
        raise click.UsageError(f"--to {kind} needs numbers; for a table with words use csv, jsonl or same.")
    copied = _copied(stored, source, known, kind, names_of(keep))
    measure = "scores" if scores else "probabilities" if probabilities else None
    unknown: dict[str, Counter[str]] = {}
    with (
        opened(stored, source, known, copied, bar=not on_terminal) as (own, chunks),
        _target(output) as out,
    ):
        if kind == "same":
            kind = f"whole_{own}" if copied else _same(own, source)
        writer = Writer(out, kind, stored, known, source, output)
        for data in chunks:
            if data.X.shape[0]:
                for name, counts in unknown_categories(
                    bare(stored.model), data.X, stored.feature_names
                ).items():
                    unknown.setdefault(name, Counter()).update(counts)
                writer.write(_top(stored, data, top, scores) if top else _answer(stored, data, measure))
        if not writer.n_written:
            raise ValueError(f"{source} has no samples.")
        writer.close()
    for line in category_lines(unknown):
        echo(line)


def _copied(stored: Stored, source: str, reading: ReadOptions, kind: str, keep: list[str]) -> list[str]:
    """Return the columns of DATA to copy: those of --keep, and all features of a table written as `same`."""
    check_source(source, reading)
    path = Path(source)
    own = reading.format if source == "-" else format_of(path, reading) if path.exists() else None
    if keep and (own not in TABLES or kind not in ("csv", "jsonl", "same")):
        raise click.UsageError(
            "--keep copies columns of CSV, JSON lines and Parquet files, with --to csv, jsonl or same."
        )
    taken = {
        "csv": ["class", *stored.label_names],
        "jsonl": ["labels", "class", "scores", "probabilities"],
    }.get(kind, _label_column_names(stored))
    if clash := [name for name in keep if name in taken]:
        raise click.UsageError(f"--keep {clash[0]}: the predictions have a column of this name.")
    by_rows = keep or own == "jsonl" or stored.has_words or stored.tags is not None or reading.changes_cells
    if kind != "same" or own not in TABLES or not by_rows:
        return keep
    return [*keep, *(name for name in stored.feature_names if name not in keep)]


def _same(own: str | None, source: str) -> str:
    """Return the kind of Writer that writes the format of the source."""
    if own is None or own == "mail":
        raise click.UsageError(
            f"--to same: the format of {source} cannot be written; use --to csv, jsonl, svmlight, arff or "
            "parquet."
        )
    return {"csv": "table", "xc": "svmlight"}.get(own, own)


@contextmanager
def opened(
    stored: Stored, source: str, reading: ReadOptions, copied: Sequence[str] = (), bar: bool = True
) -> Iterator[tuple[str | None, Iterator[Dataset]]]:
    """Yield the format of a source (None for a known data set) and its chunks, with the copied columns.

    A chunk has the features in the order of the model; its labels have no meaning. `bar` shows progress.
    """
    with located(source, reading) as path:
        kind = None if path is None else format_of(path, reading)
        if path is None or kind == "mail":
            yield kind, _in_memory(stored, source, reading)
        else:
            with reading_bar(path, bar) as progress:
                yield kind, _streamed(stored, path, kind, reading, copied, progress)


def _streamed(
    stored: Stored,
    path: Path,
    kind: str | None,
    reading: ReadOptions,
    copied: Sequence[str],
    progress: Any,
) -> Iterator[Dataset]:
    """Yield the chunks of a file."""
    from maxmargin.datasets import Dataset
    from maxmargin.io import chunks as stream
    from maxmargin.io.svmlight import read_xc_header

    if kind == "letters":
        for data in stream.stream_letters(path, progress=progress):
            yield part(data, reading.split, "test")
        return
    if kind == "jsonl" or stored.has_words or (kind in TABLES and (copied or reading.changes_cells)):
        from maxmargin.io.mixed import read_chunks

        if kind not in TABLES:
            raise click.UsageError(
                f"{path}: the model was fitted on a table with words; give CSV, JSON lines or Parquet."
            )
        kinds = stored.columns or dict.fromkeys(_feature_columns(stored, path, kind, reading), "number")
        yield from read_chunks(source_of(path, kind, reading, progress), kinds, reading.dtype, copied)
        return
    how: dict[str, Any] = {"dtype": reading.dtype, "progress": progress}
    chunks: Iterator[Any]
    if kind == "svmlight":
        chunks = stream.stream_svmlight(path, stored.n_features, zero_based=reading.zero_based, **how)
    elif kind == "xc":
        how |= {"header_lines": 1, "n_samples": read_xc_header(path)[0]}
        chunks = stream.stream_svmlight(path, stored.n_features, zero_based=True, **how)
    else:
        names = _feature_columns(stored, path, kind, reading)
        if kind == "parquet":
            chunks = stream.stream_parquet(path, names, **how)
        elif kind == "arff":
            chunks = stream.stream_arff(path, names, encoding=reading.encoding, **how)
        else:
            how |= {"delimiter": delimiter_of(path, reading), "encoding": reading.encoding}
            chunks = stream.stream_csv(path, names, header=reading.header, **how)
    for X in chunks:
        yield Dataset(X, X)


def _feature_columns(stored: Stored, path: Path, kind: str | None, reading: ReadOptions) -> list[str]:
    """Return the feature columns: by name, or else all columns that are no labels and not dropped."""
    if stored.feature_names:
        return stored.feature_names
    if kind not in TABLES:
        raise click.UsageError(
            f"The features of the model have numbers, not names, so {path} cannot be matched; give SVMlight."
        )
    from maxmargin.io.table import LabelColumns

    names = column_names(path, kind, reading)
    labels: list[int] = []
    if reading.names_labels:
        columns = reading.columns()
        labels = LabelColumns(columns["target"], columns["labels"], columns["label_prefix"]).find(names, path)
    dropped = names_of(reading.drop)
    found = [name for j, name in enumerate(names) if j not in labels and name not in dropped]
    if len(found) != stored.n_features:
        raise click.UsageError(
            f"{path} has {len(found)} columns of features, but the model takes {stored.n_features} by "
            "position; name the labels (--target, --labels or --label-prefix) and --drop the other columns."
        )
    return found


def _in_memory(stored: Stored, source: str, reading: ReadOptions) -> Iterator[Dataset]:
    """Yield chunks of a data set that is held in memory; sequences stay whole."""
    import numpy as np

    single = stored.family.task == "multiclass"
    data = stored.aligned(read(source, reading, single=single, split="test"), source)
    n = data.X.shape[0]
    if stored.family.task == "chain":
        yield data
        return
    for start in range(0, n, ROWS):
        yield data.take(np.arange(start, min(start + ROWS, n)))


@dataclass(frozen=True)
class Answer:
    """A chunk of data, its predicted labels, and the scores or probabilities asked for (`measure`).

    `top` is the number of best labels in `predicted`, 0 if labels are predicted otherwise.
    """

    data: Dataset
    predicted: Any
    scores: Any
    measure: str | None = None
    top: int = 0

    @property
    def several(self) -> bool:
        return getattr(self.predicted, "ndim", 1) == 2

    @property
    def copied(self) -> dict[str, list[Any]]:
        """The columns of the table to copy."""
        return self.data.extras.get("carried", {})

    @property
    def labelled(self) -> Dataset:
        """The data with the predicted labels."""
        return replace(self.data, Y=self.predicted)


def _answer(stored: Stored, data: Dataset, measure: str | None) -> Answer:
    """Predict a chunk."""
    import numpy as np

    model, X = stored.model, _complete(stored, data)
    lengths = {"lengths": sequence_lengths(data)} if stored.family.task == "chain" else {}
    predicted = model.predict(X, **lengths)
    classes = tuple(str(name) for name in model.classes_)
    named = replace(
        data,
        X=X,
        feature_names=tuple(stored.feature_names),
        label_names=tuple(stored.label_names) if np.ndim(predicted) == 2 else classes,
        extras={**data.extras, "target": stored.target},
    )
    scores = label_scores(model, X) if measure == "scores" else None
    if measure == "probabilities":
        scores = model.predict_proba(X)
    return Answer(named, predicted, scores, measure)


def _top(stored: Stored, data: Dataset, top: int, scores: bool) -> Answer:
    """Predict the names of the labels with the highest scores of a chunk."""
    import numpy as np

    X, inner = _complete(stored, data), bare(stored.model)
    for step in getattr(inner, "steps", [])[:-1]:
        X = step[1].transform(X)
    labels, found = last_step(inner).predict_top(X, min(top, len(stored.label_names)))
    return Answer(data, np.array(labels, dtype=object), found if scores else None, top=labels.shape[1])


def _complete(stored: Stored, data: Dataset) -> Any:
    """Return the rows as the model takes them; raise an error for missing values that it does not fill."""
    import numpy as np

    X = stored.like_training(data.X)
    if hasattr(X, "toarray") and np.isnan(X.data).any():
        raise ValueError("Some sparse feature values are missing; fill them in before predicting.")
    check_missing(stored.model, X, "DATA")
    return X


def _label_columns(stored: Stored, predicted: Any) -> dict[str, list[Any]]:
    """Return the predicted labels as columns: the class, lists of tags, or a 0/1 column per label."""
    if getattr(predicted, "ndim", 1) == 1:
        return {stored.target: predicted.tolist()}
    dense, names = _dense(predicted), stored.label_names
    if stored.tags is not None:
        return {stored.tags: [[names[k] for k in row.nonzero()[0]] for row in dense]}
    return {name: column.astype(int).tolist() for name, column in zip(names, dense.T, strict=True)}


def _label_column_names(stored: Stored) -> list[str]:
    """Return the names of these columns, which no copied column may have."""
    if stored.family.task in ("multiclass", "chain") or stored.about["reading"].get("target") is not None:
        return [stored.target]
    return list(stored.label_names) if stored.tags is None else [stored.tags]


def _separator(stored: Stored) -> str | None:
    """Return the separator of tags in a cell, or None for JSON lists if a tag contains the separator."""
    from maxmargin.io.mixed import SEPARATORS

    asked = stored.about["reading"].get("separator")
    marks = [asked] if asked else SEPARATORS
    clear = not any(mark in name or name.startswith("[") for name in stored.label_names for mark in marks)
    return (asked or SEPARATORS[0]) if clear else None


def _csv_bytes(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", delimiter=delimiter).writerows(rows)
    return text.getvalue().encode()


def _csv_cell(value: Any, separator: str | None = None) -> Any:
    """Return a value as a cell of CSV: tags joined by the separator, other lists as JSON."""
    if isinstance(value, list) and separator is not None and all(isinstance(tag, str) for tag in value):
        return separator.join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value


def _json_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a JSON object, with null for NaN and text for other values without a JSON form."""
    plain = {name: None if value != value else value for name, value in row.items()}
    return json.dumps(plain, ensure_ascii=False, default=str).encode() + b"\n"


def _dense(predicted: Any) -> Any:
    return predicted.toarray() if hasattr(predicted, "toarray") else predicted


class ParquetRows:
    """Write columns in chunks to a Parquet table; copied columns keep their types."""

    def __init__(self, out: IO[bytes], types: Any) -> None:
        self._out, self._types = out, types
        self._writer: Any = None

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            fields = [self._field(pa, name, values) for name, values in columns.items()]
            self._writer = pq.ParquetWriter(pa.PythonFile(self._out, mode="w"), pa.schema(fields))
        self._writer.write_table(pa.table(dict(columns), schema=self._writer.schema))

    def _field(self, pa: Any, name: str, values: Sequence[Any]) -> Any:
        if name in self._types.names:
            return self._types.field(name)
        return pa.field(name, pa.list_(pa.string()) if isinstance(values[0], list) else pa.array(values).type)

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


class Writer:
    """Write answers in chunks.

    Parameters
    ----------
    out : binary file
    kind : str
        "csv" and "jsonl" hold predictions and copied columns; "svmlight", "arff", "parquet", "table" (CSV)
        and "letters" hold features and predictions; "whole_csv", "whole_jsonl" and "whole_parquet" hold
        copied columns, and predictions in the form of the training labels.
    stored : Stored
    reading : ReadOptions
        How the source is read; tables and SVMlight files are written likewise.
    source : str
    output : Path or None
        The file `out`, whose name the label file of ARFF shares.
    """

    def __init__(
        self,
        out: IO[bytes],
        kind: str,
        stored: Stored,
        reading: ReadOptions,
        source: str,
        output: Path | None,
    ) -> None:
        self.out, self.stored, self.reading, self.output = out, stored, reading, output
        is_csv = kind in ("table", "whole_csv")
        self.delimiter = delimiter_of(Path(source), reading) if is_csv else ","
        self.separator = _separator(stored)
        self.n_written = self.n_words = 0
        self._write_chunk = getattr(self, f"_{kind}")
        self._columns: Any = None

    def write(self, answer: Answer) -> None:
        self._write_chunk(answer)
        self.n_written += answer.data.X.shape[0]

    def close(self) -> None:
        """Write the end of the file."""
        if self._columns is not None:
            self._columns.close()

    def _csv(self, answer: Answer) -> None:
        files, names = answer.data.per_row.get("file"), list(answer.data.label_names)
        if answer.top:
            names, rows = _top_table(answer)
        elif answer.scores is not None:
            rows = answer.scores.tolist()
        elif answer.several:
            rows = _dense(answer.predicted).tolist()
        else:
            names, rows = ["class"], [[label] for label in answer.predicted.tolist()]
        copied = ({} if files is None else {"file": list(map(str, files))}) | answer.copied
        if copied:
            cells = zip(*copied.values(), strict=True)
            names = [*copied, *names]
            rows = [[*map(_csv_cell, own), *row] for own, row in zip(cells, rows, strict=True)]
        self.out.write(_csv_bytes(rows if self.n_written else [names, *rows]))

    def _jsonl(self, answer: Answer) -> None:
        names = answer.data.label_names
        files = answer.data.per_row.get("file")
        rows = _dense(answer.predicted) if answer.several else answer.predicted
        for i, row in enumerate(rows):
            entry: dict[str, Any] = {} if files is None else {"file": str(files[i])}
            entry |= {name: cells[i] for name, cells in answer.copied.items()}
            if answer.top:
                entry["labels"] = row.tolist()
            elif answer.several:
                entry["labels"] = [names[k] for k in row.nonzero()[0]]
            else:
                entry["class"] = row.item() if hasattr(row, "item") else row
            if answer.scores is not None:
                scores = answer.scores[i].tolist()
                key = answer.measure or "scores"
                entry[key] = scores if answer.top else dict(zip(names, scores, strict=True))
            self.out.write(_json_line(entry))

    def _svmlight(self, answer: Answer) -> None:
        from maxmargin.io.write import svmlight_lines

        ids = self.stored.label_ids
        self.out.writelines(svmlight_lines(answer.labelled, zero_based=self.reading.zero_based, labels=ids))

    def _table(self, answer: Answer) -> None:
        from maxmargin.io.write import csv_lines

        header = self.reading.header and not self.n_written
        self.out.writelines(csv_lines(answer.labelled, header=header, delimiter=self.delimiter))

    def _arff(self, answer: Answer) -> None:
        from maxmargin.io.files import atomic_write
        from maxmargin.io.write import arff_lines, label_xml

        if answer.several and self.output is not None and not self.n_written:
            xml = self.output.with_name(self.output.name.partition(".arff")[0] + ".xml")
            with atomic_write(xml, pack=True) as out:
                out.write(label_xml(answer.labelled).encode())
        self.out.writelines(arff_lines(answer.labelled, header=not self.n_written))

    def _parquet(self, answer: Answer) -> None:
        from maxmargin.io.write import ParquetWriter

        self._columns = self._columns or ParquetWriter(self.out)
        self._columns.write(answer.labelled)

    def _letters(self, answer: Answer) -> None:
        from maxmargin.io.write import letter_lines

        self.out.writelines(letter_lines(answer.labelled, self.n_written + 1, self.n_words + 1))
        self.n_words += int(answer.data.per_row["word"][-1]) + 1

    def _whole(self, answer: Answer) -> dict[str, list[Any]]:
        return answer.copied | _label_columns(self.stored, answer.predicted)

    def _whole_csv(self, answer: Answer) -> None:
        columns = self._whole(answer)
        rows: list[Any] = [columns] if self.reading.header and not self.n_written else []
        for row in zip(*columns.values(), strict=True):
            rows.append([_csv_cell(value, self.separator) for value in row])
        self.out.write(_csv_bytes(rows, self.delimiter))

    def _whole_jsonl(self, answer: Answer) -> None:
        columns = self._whole(answer)
        for row in zip(*columns.values(), strict=True):
            self.out.write(_json_line(dict(zip(columns, row, strict=True))))

    def _whole_parquet(self, answer: Answer) -> None:
        self._columns = self._columns or ParquetRows(self.out, answer.data.extras["types"])
        self._columns.write(self._whole(answer))


def _top_table(answer: Answer) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows of the best labels, each followed by its score if asked for."""
    ranks = range(1, answer.top + 1)
    if answer.scores is None:
        return [f"label {rank}" for rank in ranks], answer.predicted.tolist()
    columns = [f"{word} {rank}" for rank in ranks for word in ("label", "score")]
    pairs = zip(answer.predicted.tolist(), answer.scores.tolist(), strict=True)
    return columns, [[each for pair in zip(*row, strict=True) for each in pair] for row in pairs]


class Terminal(io.RawIOBase):
    """Write to a terminal with control characters escaped."""

    def write(self, chunk: Any) -> int:
        sys.stdout.write("\n".join(visible(line) for line in bytes(chunk).decode().split("\n")))
        return len(chunk)


@contextmanager
def _target(output: Path | None) -> Iterator[Any]:
    """Yield stdout, or a file that replaces an old one when it is complete."""
    if output is not None:
        from maxmargin.io.files import atomic_write

        with atomic_write(output, pack=True) as out:
            yield out
    elif sys.stdout.isatty():
        yield Terminal()
    else:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
