"""`maxmargin predict`: data read, predicted and written piece by piece, in memory that does not grow."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from maxmargin.cli.completion import complete_data
from maxmargin.cli.console import say
from maxmargin.cli.data import (
    MIXED,
    ReadOptions,
    check_source,
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
from maxmargin.cli.models import Stored, bare, check_missing, label_scores, last_step, open_model
from maxmargin.cli.options import Command
from maxmargin.cli.rows import (
    ParquetRows,
    csv_bytes,
    csv_cell,
    json_line,
    label_column_names,
    label_columns,
    separator_of,
)
from maxmargin.cli.unknown import category_counts, category_words
from maxmargin.io.words import visible

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset

# Rows of a piece of data that is in memory anyway.
ROWS = 4096
KINDS = ("csv", "jsonl", "same", "svmlight", "arff", "parquet")


@click.command("predict", cls=Command, short_help="Predict the labels of new data with a model.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA", shell_complete=complete_data)
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
@click.option(
    "--keep",
    multiple=True,
    callback=joined,
    help="Tables: columns of DATA that stand beside the predictions as they are, a,b,c (csv, jsonl, same).",
)
@click.option("--scores", is_flag=True, help="Give the score of every label as well (csv: instead).")
@click.option(
    "--probabilities",
    is_flag=True,
    help="Likewise the probability of every label, by a model that was fitted with --probabilities.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="The so many labels with the highest scores, best first (csv, jsonl).",
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
    """Predict the labels of DATA (a file, a known name, or - for stdin) with MODEL.

    Files are read, predicted and written piece by piece, in memory that does not grow with the
    file. Labels in DATA are ignored, and tables need not have their columns; columns are found
    by name.

    \b
    maxmargin predict model.mm new.csv
    maxmargin predict model.mm new.csv --keep id --to jsonl
    maxmargin predict model.mm new.csv --to same --keep id -o labelled.csv
    maxmargin predict model.mm new.svm --to same -o labelled.svm
    maxmargin predict subjects.mm new.svm --top 5 --scores --to jsonl
    cat new.csv | maxmargin predict model.mm - --format csv --to jsonl
    """
    stored = open_model(model_file)
    if scores and stored.family.task == "chain":
        raise click.UsageError("--scores: a chain scores whole sequences, not single labels.")
    if scores and probabilities:
        raise click.UsageError("Give one of --scores and --probabilities.")
    if (scores or probabilities) and kind not in ("csv", "jsonl"):
        raise click.UsageError(f"--{'scores' if scores else 'probabilities'} needs --to csv or --to jsonl.")
    if probabilities and not hasattr(stored.model, "predict_proba"):
        raise click.UsageError("The model has no probabilities; fit it with --probabilities auto.")
    if top is not None and (
        kind not in ("csv", "jsonl") or not hasattr(last_step(bare(stored.model)), "predict_top")
    ):
        raise click.UsageError("--top is for models of --model multilabel, with --to csv or --to jsonl.")
    if kind == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("--to parquet is not for a terminal: give -o FILE.")
    known = stored.reading(reading)
    if kind not in ("csv", "jsonl", "same") and stored.has_words:
        raise click.UsageError(
            f"--to {kind} is for numbers alone; a table with words needs --to csv, jsonl or same."
        )
    carried = _carried(stored, source, known, kind, names_of(keep))
    watched = output is None and sys.stdout.isatty()
    with (
        opened(stored, source, known, carried, bar=not watched) as (own, pieces),
        target(output) as out,
    ):
        whole = kind == "same" and bool(carried)
        writer = Writer(
            out,
            f"whole {own}" if whole else _kind(kind, own, source),
            stored,
            _how(stored, own, source, output, known),
        )
        unknown: dict[str, Counter[str]] = {}
        for data in pieces:
            if data.X.shape[0]:
                for name, counts in category_counts(bare(stored.model), data.X, stored.feature_names).items():
                    unknown.setdefault(name, Counter()).update(counts)
                measure = "scores" if scores else "probabilities" if probabilities else None
                writer.write(best(stored, data, top, scores) if top else answer(stored, data, measure))
        if not writer.n_written:
            raise ValueError(f"{source} has no samples.")
        writer.close()
    for line in category_words(unknown):
        say(line)


def _carried(stored: Stored, source: str, reading: ReadOptions, kind: str, keep: list[str]) -> list[str]:
    """The columns of DATA to write as they are: those to keep, and in a table written again all features."""
    check_source(source, reading)
    path = Path(source)
    own = reading.format if source == "-" else format_of(path, reading) if path.exists() else None
    if keep and (own not in MIXED or kind not in ("csv", "jsonl", "same")):
        raise click.UsageError(
            "--keep carries columns of CSV, JSON lines and Parquet files, with --to csv, jsonl or same."
        )
    taken = {
        "csv": ["class", *stored.label_names],
        "jsonl": ["labels", "class", "scores", "probabilities"],
    }.get(kind, label_column_names(stored))
    if clash := [name for name in keep if name in taken]:
        raise click.UsageError(f"--keep {clash[0]}: the predictions have a column of this name.")
    by_rows = keep or own == "jsonl" or stored.has_words or stored.tags is not None or reading.says_cells
    if kind != "same" or own not in MIXED or not by_rows:
        return keep
    return [*keep, *(name for name in stored.feature_names if name not in keep)]


def _kind(asked: str, own: str | None, source: str) -> str:
    """The kind to write; `own` is the format of the source."""
    if asked != "same":
        return asked
    if own is None or own == "mail":
        raise click.UsageError(
            f"--to same: {source} cannot be written again in its own kind; use --to csv, jsonl, svmlight, "
            "arff or parquet."
        )
    return {"csv": "table", "xc": "svmlight"}.get(own, own)


def _how(
    stored: Stored, own: str | None, source: str, output: Path | None, reading: ReadOptions
) -> dict[str, Any]:
    return {
        "header": reading.header,
        "delimiter": delimiter_of(Path(source), reading) if own == "csv" else ",",
        "zero_based": reading.zero_based,
        "label_ids": stored.label_ids,
        "separator": separator_of(stored),
        "xml": None if output is None else output.with_name(output.name.partition(".arff")[0] + ".xml"),
    }


@contextmanager
def opened(
    stored: Stored, source: str, reading: ReadOptions, carried: Sequence[str] = (), bar: bool = True
) -> Iterator[tuple[str | None, Iterator[Dataset]]]:
    """The format of a source (None for a known data set) and its pieces, with the carried columns of a table.

    A piece has the features in the order of the model; its labels, if any, mean nothing. Answers that go to a
    terminal show the progress themselves, without a `bar`.
    """
    with located(source, reading) as path:
        kind = None if path is None else format_of(path, reading)
        if path is None or kind == "mail":
            yield kind, _whole(stored, source, reading)
        else:
            with reading_bar(path, bar) as progress:
                yield kind, _streamed(stored, path, kind, reading, carried, progress)


def _streamed(
    stored: Stored,
    path: Path,
    kind: str | None,
    reading: ReadOptions,
    carried: Sequence[str],
    progress: Any,
) -> Iterator[Dataset]:
    from maxmargin.datasets import Dataset
    from maxmargin.io import chunks as _stream
    from maxmargin.io.svmlight import read_xc_header

    if kind == "letters":
        for data in _stream.stream_letters(path, progress=progress):
            yield part(data, reading.split, "test")
        return
    if kind == "jsonl" or stored.has_words or (kind in MIXED and (carried or reading.says_cells)):
        from maxmargin.io.mixed import read_chunks

        if kind not in MIXED:
            raise click.UsageError(
                f"{path}: the model was fitted on a table with words; give CSV, JSON lines or Parquet."
            )
        kinds = stored.columns or dict.fromkeys(_feature_columns(stored, path, kind, reading), "number")
        yield from read_chunks(source_of(path, kind, reading, progress), kinds, reading.dtype, carried)
        return
    how: dict[str, Any] = {"dtype": reading.dtype, "progress": progress}
    pieces: Iterator[Any]
    if kind == "svmlight":
        pieces = _stream.stream_svmlight(path, stored.n_features, zero_based=reading.zero_based, **how)
    elif kind == "xc":
        how |= {"header_lines": 1, "n_samples": read_xc_header(path)[0]}
        pieces = _stream.stream_svmlight(path, stored.n_features, zero_based=True, **how)
    else:
        names = _feature_columns(stored, path, kind, reading)
        if kind in ("csv", "arff"):
            how["encoding"] = reading.encoding
        if kind == "csv":
            delimiter = delimiter_of(path, reading)
            pieces = _stream.stream_csv(path, names, header=reading.header, delimiter=delimiter, **how)
        else:
            pieces = (_stream.stream_arff if kind == "arff" else _stream.stream_parquet)(path, names, **how)
    for X in pieces:
        yield Dataset(X, X)


def _feature_columns(stored: Stored, path: Path, kind: str | None, reading: ReadOptions) -> list[str]:
    """The columns that the model takes: by name, or by place all that are no labels and not dropped."""
    if stored.feature_names:
        return stored.feature_names
    if kind not in MIXED:
        raise click.UsageError(
            f"The model knows its features by number, not by name, so {path} cannot be matched; "
            "give SVMlight."
        )
    from maxmargin.io.table import LabelColumns

    names = [name for _, row in islice(source_of(path, kind, reading).rows(), 1) for name in row]
    labels: list[int] = []
    if reading.says_labels:
        told = reading.columns()
        labels = LabelColumns(told["target"], told["labels"], told["label_prefix"]).find(names, path)
    dropped = names_of(reading.drop)
    found = [name for j, name in enumerate(names) if j not in labels and name not in dropped]
    if len(found) != stored.n_features:
        raise click.UsageError(
            f"{path} has {len(found)} columns of features, and the model takes {stored.n_features} by place; "
            "name the labels (--target, --labels or --label-prefix) and --drop the other columns."
        )
    return found


def _whole(stored: Stored, source: str, reading: ReadOptions) -> Iterator[Dataset]:
    """A source that is held in memory anyway, cut where no sequence is torn."""
    import numpy as np

    data = stored.aligned(
        read(source, reading, single=stored.family.task == "multiclass", split="test"), source
    )
    n = data.X.shape[0]
    if stored.family.task == "chain":
        yield data
        return
    for start in range(0, n, ROWS):
        yield data.take(np.arange(start, min(start + ROWS, n)))


@dataclass(frozen=True)
class Answer:
    """A piece of the data, the labels predicted for it, and if they are wanted scores or probabilities."""

    data: Dataset
    predicted: Any
    scores: Any
    measure: str | None = None
    top: int = 0

    @property
    def several(self) -> bool:
        return getattr(self.predicted, "ndim", 1) == 2

    @property
    def carried(self) -> dict[str, list[Any]]:
        """Columns of the table that are written as they are."""
        return self.data.extras.get("carried", {})

    @property
    def labelled(self) -> Dataset:
        """The piece with the predicted labels in the place of its own."""
        return replace(self.data, Y=self.predicted)


def answer(stored: Stored, data: Dataset, measure: str | None) -> Answer:
    """Predict one piece."""
    import numpy as np

    model, X = stored.model, _complete(stored, data)
    chain = stored.family.task == "chain"
    predicted = model.predict(X, **({"lengths": sequence_lengths(data)} if chain else {}))
    classes = tuple(str(name) for name in model.classes_)
    named = replace(
        data,
        X=X,
        feature_names=tuple(stored.feature_names),
        label_names=tuple(stored.label_names) if np.ndim(predicted) == 2 else classes,
        extras={**data.extras, "target": stored.target},
    )
    found = None
    if measure is not None:
        found = label_scores(model, X) if measure == "scores" else model.predict_proba(X)
    return Answer(named, predicted, found, measure)


def best(stored: Stored, data: Dataset, top: int, scores: bool) -> Answer:
    """The names of the labels with the highest scores of one piece, and these scores if they are wanted."""
    import numpy as np

    X = _complete(stored, data)
    inner = bare(stored.model)
    for step in getattr(inner, "steps", [])[:-1]:
        X = step[1].transform(X)
    model = last_step(inner)
    labels, found = model.predict_top(X, min(top, len(stored.label_names)))
    return Answer(data, np.array(labels, dtype=object), found if scores else None, top=labels.shape[1])


def _complete(stored: Stored, data: Dataset) -> Any:
    """The rows of a piece as the model takes them, without missing values."""
    import numpy as np

    X = stored.like_training(data.X)
    if hasattr(X, "toarray") and np.isnan(X.data).any():
        raise ValueError("Some sparse feature values are missing; mend the file before predicting.")
    check_missing(stored.model, X, "DATA")
    return X


class Writer:
    """Writes answers of one piece after another.

    Parameters
    ----------
    out : binary file
    kind : str
        "csv" and "jsonl" hold the answers and columns to keep; "svmlight", "arff", "parquet", "table" (CSV)
        and "letters" the features beside them; "whole csv", "whole jsonl" and "whole parquet" carried
        columns, and the labels in the form of the training data.
    stored : Stored
    how : dict
        `header`, `delimiter` and `separator` (of tags) of a table, `zero_based` and `label_ids` of SVMlight,
        the path `xml` for the label file of ARFF.
    """

    def __init__(self, out: IO[bytes], kind: str, stored: Stored, how: dict[str, Any]) -> None:
        self.out, self.stored, self.how = out, stored, how
        self.n_written = self.n_words = 0
        write_piece: dict[str, Callable[[Answer], None]] = {
            "csv": self._csv,
            "jsonl": self._jsonl,
            "svmlight": self._svmlight,
            "arff": self._arff,
            "parquet": self._parquet,
            "table": self._table,
            "letters": self._letters,
            "whole csv": self._whole_csv,
            "whole jsonl": self._whole_jsonl,
            "whole parquet": self._whole_parquet,
        }
        self._write_piece = write_piece[kind]
        self._columns: Any = None

    def write(self, answer: Answer) -> None:
        self._write_piece(answer)
        self.n_written += answer.data.X.shape[0]

    def close(self) -> None:
        """Write what comes at the end of a file."""
        if self._columns is not None:
            self._columns.close()

    def _csv(self, answer: Answer) -> None:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        names = list(answer.data.label_names)
        columns = names if answer.several or answer.scores is not None else ["class"]
        files = answer.data.per_row.get("file")
        if answer.top:
            columns, rows = _top_table(answer)
        elif answer.scores is not None:
            rows = answer.scores.tolist()
        elif answer.several:
            rows = _dense(answer.predicted).tolist()
        else:
            rows = [[label] for label in answer.predicted.tolist()]
        if files is not None:
            columns, rows = ["file", *columns], [[str(f), *row] for f, row in zip(files, rows, strict=True)]
        if answer.carried:
            kept = zip(*answer.carried.values(), strict=True)
            columns = [*answer.carried, *columns]
            rows = [[*map(csv_cell, cells), *row] for cells, row in zip(kept, rows, strict=True)]
        if not self.n_written:
            table.writerow(columns)
        table.writerows(rows)
        self.out.write(text.getvalue().encode())

    def _jsonl(self, answer: Answer) -> None:
        names = answer.data.label_names
        files = answer.data.per_row.get("file")
        rows = _dense(answer.predicted) if answer.several else answer.predicted
        for i, row in enumerate(rows):
            said: dict[str, Any] = {} if files is None else {"file": str(files[i])}
            said |= {name: cells[i] for name, cells in answer.carried.items()}
            if answer.top:
                said["labels"] = row.tolist()
            elif answer.several:
                said["labels"] = [names[k] for k in row.nonzero()[0]]
            else:
                said["class"] = row.item() if hasattr(row, "item") else row
            if answer.top and answer.scores is not None:
                said["scores"] = answer.scores[i].tolist()
            elif answer.scores is not None:
                said[answer.measure or "scores"] = dict(zip(names, answer.scores[i].tolist(), strict=True))
            self.out.write(json_line(said))

    def _svmlight(self, answer: Answer) -> None:
        from maxmargin.io.write import svmlight_lines

        data = answer.labelled
        self.out.writelines(
            svmlight_lines(data, zero_based=self.how["zero_based"], labels=self.how["label_ids"])
        )

    def _table(self, answer: Answer) -> None:
        from maxmargin.io.write import csv_lines

        header = self.how["header"] and not self.n_written
        self.out.writelines(csv_lines(answer.labelled, header=header, delimiter=self.how["delimiter"]))

    def _arff(self, answer: Answer) -> None:
        from maxmargin.io.files import atomic_write
        from maxmargin.io.write import arff_lines, label_xml

        xml = self.how["xml"]
        if answer.several and xml is not None and not self.n_written:
            with atomic_write(xml, pack=True) as out:
                out.write(label_xml(answer.labelled).encode())
        self.out.writelines(arff_lines(answer.labelled, header=not self.n_written))

    def _parquet(self, answer: Answer) -> None:
        from maxmargin.io.write import ParquetWriter

        self._columns = self._columns or ParquetWriter(self.out)
        self._columns.write(answer.labelled)

    def _whole(self, answer: Answer) -> dict[str, list[Any]]:
        return answer.carried | label_columns(self.stored, answer.predicted)

    def _whole_csv(self, answer: Answer) -> None:
        header = self.how["header"] and not self.n_written
        how = {key: self.how[key] for key in ("delimiter", "separator")}
        self.out.write(csv_bytes(self._whole(answer), header=header, **how))

    def _whole_jsonl(self, answer: Answer) -> None:
        columns = self._whole(answer)
        for row in zip(*columns.values(), strict=True):
            self.out.write(json_line(dict(zip(columns, row, strict=True))))

    def _whole_parquet(self, answer: Answer) -> None:
        self._columns = self._columns or ParquetRows(self.out, answer.data.extras["types"])
        self._columns.write(self._whole(answer))

    def _letters(self, answer: Answer) -> None:
        from maxmargin.io.write import letter_lines

        self.out.writelines(letter_lines(answer.labelled, self.n_written + 1, self.n_words + 1))
        self.n_words += int(answer.data.per_row["word"][-1]) + 1


def _top_table(answer: Answer) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the best labels, each followed by its score if that is wanted."""
    places = range(1, answer.top + 1)
    if answer.scores is None:
        return [f"label {place}" for place in places], answer.predicted.tolist()
    columns = [f"{word} {place}" for place in places for word in ("label", "score")]
    pairs = zip(answer.predicted.tolist(), answer.scores.tolist(), strict=True)
    return columns, [[each for pair in zip(*row, strict=True) for each in pair] for row in pairs]


def _dense(predicted: Any) -> Any:
    return predicted.toarray() if hasattr(predicted, "toarray") else predicted


class Terminal(io.RawIOBase):
    """stdout that a person watches: names of labels cannot act on the terminal."""

    def write(self, piece: Any) -> int:
        sys.stdout.write("\n".join(visible(line) for line in bytes(piece).decode().split("\n")))
        return len(piece)


@contextmanager
def target(output: Path | None) -> Iterator[Any]:
    """stdout, or a file that appears when it is complete."""
    if output is None and sys.stdout.isatty():
        yield Terminal()
        return
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from maxmargin.io.files import atomic_write

    with atomic_write(output, pack=True) as out:
        yield out
