"""Data of the command line: reading a known data set, a file or stdin, and samples as models take them."""

from __future__ import annotations

import difflib
import functools
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from maxmargin.cli.console import FILE, echo, echoed_warnings, progress_bar

if TYPE_CHECKING:
    from maxmargin.cli.families import Family
    from maxmargin.datasets import Dataset
    from maxmargin.io.mixed import Source

FORMATS = ("arff", "csv", "jsonl", "letters", "mail", "parquet", "svmlight", "xc")
# Formats of tables, which may hold text and categories.
TABLES = ("csv", "jsonl", "parquet")
DELIMITERS = (",", ";", "\t", "|")
_BY_SUFFIX = {
    ".arff": "arff", ".csv": "csv", ".tsv": "csv", ".data": "letters", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".svm": "svmlight", ".svmlight": "svmlight", ".libsvm": "svmlight", ".xc": "xc",
}  # fmt: skip
# What to do with files of other formats.
_OTHER_FILES = {
    ".json": "write one object per line and give --format jsonl",
    ".txt": "give --format, such as csv with --delimiter",
    ".xls": "save the sheet as CSV",
    ".xlsx": "save the sheet as CSV",
}
COLUMN_KINDS = frozenset({"numbers", "categories", "text", "dates"})
LABEL_COLUMNS = frozenset({"target", "labels", "label_prefix"})
CELLS = frozenset({"decimal", "missing"})
# Options that a model file stores, so that further data is read like the training data.
REMEMBERED = (
    LABEL_COLUMNS
    | COLUMN_KINDS
    | CELLS
    | {"separator", "drop", "header", "delimiter", "encoding", "zero_based"}
)
# Options that also apply to known data sets.
FOR_ALL = frozenset({"drop", "float32", "split"})
# Names that a message lists.
LISTED = 40


@dataclass(frozen=True)
class ReadOptions:
    """Options that say how to read a file; `given` names those on the command line."""

    format: str | None = None
    target: str | None = None
    labels: str | None = None
    label_prefix: str | None = None
    separator: str | None = None
    numbers: str | None = None
    categories: str | None = None
    text: str | None = None
    dates: str | None = None
    decimal: str = "."
    missing: str | None = None
    xml: Path | None = None
    drop: str | None = None
    header: bool = True
    delimiter: str | None = None
    encoding: str = "utf-8"
    zero_based: bool = False
    float32: bool = False
    split: str | None = None
    given: frozenset[str] = frozenset()

    def without_files(self) -> ReadOptions:
        """Return the options that apply to a known data set."""
        return replace(self, given=self.given & FOR_ALL)

    @property
    def names_labels(self) -> bool:
        """Whether the options name the columns of labels."""
        return not (self.target is None and self.labels is None and self.label_prefix is None)

    @property
    def changes_cells(self) -> bool:
        """Whether cells have another decimal mark or other missing values than usual."""
        return self.decimal != "." or self.missing is not None

    def columns(self) -> dict[str, Any]:
        """Return the label columns as arguments of the table readers."""
        labels: Any = self.labels
        if labels is not None and labels != "meka":
            # A column may be called by a number; the reader looks for that name first.
            labels = int(labels) if labels.lstrip("-").isdigit() else names_of(labels)
        target: Any = self.target
        if target is not None and target.lstrip("-").isdigit():
            target = int(target)
        return {"target": target, "labels": labels, "label_prefix": self.label_prefix}

    @property
    def dtype(self) -> Any:
        import numpy as np

        return np.float32 if self.float32 else np.float64


def joined(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Join the names of an option that may be repeated."""
    return ",".join(values) or None


def names_of(words: str | None) -> list[str]:
    return [word.strip() for word in words.split(",")] if words else []


_NAMES: dict[str, Any] = {"multiple": True, "callback": joined}
_OPTIONS = (
    click.option(
        "--format", type=click.Choice(FORMATS), help="Format of the file. Default: by its extension."
    ),
    click.option("--target", help="Tables: column of the class, by name or position."),
    click.option(
        "--labels",
        **_NAMES,
        help="Tables: 0/1 label columns, as names a,b,c or as the number of last columns; or one column of "
        "tags.",
    ),
    click.option("--label-prefix", help="Tables: prefix of the names of 0/1 label columns."),
    click.option(
        "--separator", help="Tables: separator between tags. Default: the first of ; | , that occurs."
    ),
    *(
        click.option(
            f"--{kind}", **_NAMES, help=f"Tables: columns of {kind}, a,b,c. Default: by their values."
        )
        for kind in ("numbers", "categories", "text")
    ),
    click.option(
        "--dates",
        **_NAMES,
        help="Tables: columns of dates, a,b,c. Their features are year, month, weekday and days since the "
        "first date.",
    ),
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        default=".",
        show_default=True,
        help="Tables: decimal mark of numbers.",
    ),
    click.option(
        "--missing",
        **_NAMES,
        help="Tables: words that mean a missing value, such as n/a,NULL. Empty cells are always missing.",
    ),
    click.option("--xml", type=FILE, help="ARFF: Mulan file with the names of the labels."),
    click.option("--drop", **_NAMES, help="Tables: columns to leave out, a,b,c."),
    click.option("--header/--no-header", default=True, help="CSV: whether the first line names the columns."),
    click.option("--delimiter", help="CSV: character between fields. Default: guessed from the first line."),
    click.option(
        "--encoding", default="utf-8", show_default=True, help="CSV, JSON lines, ARFF: text encoding."
    ),
    click.option("--zero-based", is_flag=True, help="SVMlight: feature indices start at 0."),
    click.option("--float32", is_flag=True, help="Store the features in single precision."),
    click.option(
        "--split",
        type=click.Choice(["train", "test", "all"]),
        help="Rows to use of data that comes with a split.",
    ),
)


def read_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading; the command receives them as one argument `reading`."""
    names = [name for name in ReadOptions.__dataclass_fields__ if name != "given"]

    @functools.wraps(function)
    def with_reading(*args: Any, **kwargs: Any) -> Any:
        source = click.get_current_context().get_parameter_source
        given = frozenset(name for name in names if source(name) is ParameterSource.COMMANDLINE)
        reading = ReadOptions(**{name: kwargs.pop(name) for name in names}, given=given)
        return function(*args, reading=reading, **kwargs)

    for option in reversed(_OPTIONS):
        with_reading = option(with_reading)
    return with_reading


def read(
    source: str,
    reading: ReadOptions,
    *,
    single: bool = False,
    split: str = "all",
    known: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read a data set.

    Parameters
    ----------
    source : str
        A file, "-" for stdin, or the name of a known data set.
    reading : ReadOptions
    single : bool
        SVMlight: whether each line must have one label.
    split : str
        Part to return if the data comes with a split and `reading` names none.
    known : mapping
        Properties of a model: `labels` and `n_features` for SVMlight, `columns` and `label_names` for tables.
    """
    with located(source, reading) as path:
        if path is None:
            return part(_load(source, reading), reading.split, split)
        return part(_read_file(path, reading, single, known or {}), reading.split, split)


def check_source(source: str, reading: ReadOptions) -> None:
    """Raise an error for stdin without a format, and for a name of no file and no known data set."""
    from maxmargin.io.registry import registry

    if source == "-":
        if reading.format is None:
            raise click.UsageError(f"Data on stdin needs --format, one of {', '.join(FORMATS)}.")
    elif not Path(source).exists() and source not in (known := registry()):
        near = difflib.get_close_matches(source, known, n=1)
        hint = (
            f"Did you mean the data set {near[0]}?" if near else "`maxmargin datasets list` shows the names."
        )
        raise click.UsageError(f"There is no file and no known data set {source!r}. {hint}")


@contextmanager
def located(source: str, reading: ReadOptions) -> Iterator[Path | None]:
    """Yield the file of a source, with stdin copied to disk; None for a known data set."""
    from maxmargin.datasets import DataFormatError

    check_source(source, reading)
    if source != "-":
        yield Path(source) if Path(source).exists() else None
        return
    format_of(Path("stdin"), reading)  # checks the options before stdin is read
    with tempfile.TemporaryDirectory(prefix="maxmargin-") as folder:
        path = Path(folder) / "stdin"
        with open(path, "wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out)
        try:
            yield path
        except DataFormatError as error:
            raise ValueError(str(error).replace(str(path), "stdin")) from error


def format_of(path: Path, reading: ReadOptions) -> str:
    """Return the format by --format or by the name of the file, and check that the options suit it."""
    kind = reading.format
    if kind is None and path.is_dir():
        kind = "mail"
    elif kind is None:
        suffixes = [suffix.lower() for suffix in path.suffixes if suffix not in (".xz", ".gz")]
        suffix = suffixes[-1] if suffixes else ""
        if suffix not in _BY_SUFFIX:
            remedy = _OTHER_FILES.get(suffix, "give --format")
            raise click.UsageError(f"{path}: the extension does not tell the format; {remedy}.")
        kind = _BY_SUFFIX[suffix]
    if kind not in TABLES and (given := sorted(reading.given & (CELLS | COLUMN_KINDS))):
        raise click.UsageError(f"--{given[0]} is for CSV, JSON lines and Parquet, but {path} is {kind}.")
    return kind


def _load(name: str, reading: ReadOptions) -> Dataset:
    """Load a known data set."""
    import numpy as np

    from maxmargin import datasets
    from maxmargin.io.words import no_column

    for option in sorted(reading.given - FOR_ALL):
        raise click.UsageError(f"--{option.replace('_', '-')} is for files, but {name} is a known data set.")
    data = datasets.load(name)
    if "drop" in reading.given:
        names, drop = data.feature_names, names_of(reading.drop)
        if absent := [column for column in drop if column not in names]:
            raise ValueError(f"{name}: to drop, {no_column(absent, names)}")
        kept = [j for j, column in enumerate(names) if column not in drop]
        data = replace(data, X=data.X[:, kept], feature_names=tuple(names[j] for j in kept))
    return replace(data, X=data.X.astype(np.float32)) if reading.float32 else data


def part(data: Dataset, asked: str | None, default: str) -> Dataset:
    """Return the part that --split names, else the part `default` if the data comes with a split."""
    sides = {"train": data.train, "test": data.test}
    if asked in sides:
        if sides[asked] is None:
            raise click.UsageError(
                f"{data.name or data.source} does not come with a {asked} part; leave --split out."
            )
        return data.part(asked)
    rows = None if asked == "all" else sides.get(default)
    return data if rows is None else data.take(rows)


def _read_file(path: Path, reading: ReadOptions, single: bool, known: Mapping[str, Any]) -> Dataset:
    from maxmargin import datasets

    kind = format_of(path, reading)
    if kind == "mail":
        return datasets.read_mail_folders(path)
    if kind in TABLES:
        if not reading.names_labels:
            raise click.UsageError(f"{path}: {which_labels(path, kind, reading)}")
        if reading.drop and "drop" not in reading.given:
            # Columns that training left out may be absent from further data.
            names = column_names(path, kind, reading)
            kept = [name for name in names_of(reading.drop) if name in names]
            reading = replace(reading, drop=",".join(kept) or None)
    with reading_bar(path) as progress:
        if kind in TABLES and reading.labels != "meka":
            data = _read_columns(source_of(path, kind, reading, progress), reading, known)
            if data is not None:
                return data
        if kind == "letters":
            return datasets.read_letter_data(path, progress=progress)
        if kind == "svmlight":
            sizes = {name: known[name] for name in ("labels", "n_features") if name in known}
            return datasets.read_svmlight(
                path,
                multilabel=not single,
                zero_based=reading.zero_based,
                dtype=reading.dtype,
                progress=progress,
                **sizes,
            )
        if kind == "xc":
            return datasets.read_xc(path, dtype=reading.dtype, progress=progress)
        data = read_table(path, kind, reading, progress)
    if kind in TABLES and not known:
        _warn_about_columns(data, {}, {})
    return data


def column_names(path: Path, kind: str, reading: ReadOptions) -> list[str]:
    """Return the names of the columns of a table, those of its first row."""
    return [name for _, row in islice(source_of(path, kind, reading).rows(), 1) for name in row]


def which_labels(path: Path, kind: str, reading: ReadOptions) -> str:
    """Return the message for a table whose label columns are not named."""
    names = [repr(name) for name in column_names(path, kind, reading)]
    return (
        "name the columns of labels with --target, --labels or --label-prefix. "
        f"The columns are {listed(names)}."
    )


def listed(names: list[str]) -> str:
    """Join the first names, and count the others."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def read_table(path: Path, kind: str, reading: ReadOptions, progress: Any) -> Dataset:
    """Read a table of numbers with 0/1 labels or one class per sample."""
    from maxmargin import datasets

    how: dict[str, Any] = {"drop": names_of(reading.drop), "dtype": reading.dtype}
    if kind == "parquet":
        return datasets.read_parquet(path, **how, **reading.columns())
    how |= {"encoding": reading.encoding, "progress": progress}
    if kind == "arff" and not reading.names_labels:
        return datasets.read_mulan(path, _xml_of(path, reading), **how)
    how |= reading.columns()
    if kind == "arff":
        return datasets.read_arff(path, **how)
    return datasets.read_csv(path, header=reading.header, delimiter=delimiter_of(path, reading), **how)


def delimiter_of(path: Path, reading: ReadOptions) -> str:
    """Return the given delimiter, or the most frequent one of the first line."""
    from maxmargin.io.files import text_lines

    if reading.delimiter is not None:
        return {"tab": "\t", "\\t": "\t"}.get(reading.delimiter, reading.delimiter)
    if ".tsv" in path.suffixes or not path.is_file():
        return "\t" if ".tsv" in path.suffixes else ","
    _, first = next(text_lines(path, reading.encoding), (1, ""))
    return max(DELIMITERS, key=first.count)


def source_of(path: Path, kind: str, reading: ReadOptions, progress: Any = None) -> Source:
    """Return a table file together with how to read it."""
    from maxmargin.io.mixed import Source

    delimiter = delimiter_of(path, reading) if kind == "csv" else ","
    cells: dict[str, Any] = {"decimal": reading.decimal, "missing": names_of(reading.missing)}
    return Source(path, kind, reading.header, delimiter, reading.encoding, progress, **cells)


def _read_columns(source: Source, reading: ReadOptions, known: Mapping[str, Any]) -> Dataset | None:
    """Read a table of numbers, categories and text; return None for a table of numbers and 0/1 labels."""
    from maxmargin.io.mixed import holds_more_than_numbers, read_mixed
    from maxmargin.io.table import LabelColumns
    from maxmargin.tables import kind_of_values, named_kinds

    if reading.separator == "":
        raise click.UsageError("--separator is empty; give the text between tags, or leave it out.")
    columns = reading.columns()
    where = LabelColumns(columns["target"], columns["labels"], columns["label_prefix"])
    given = named_kinds(
        *(names_of(getattr(reading, name)) for name in ("numbers", "categories", "text", "dates"))
    )
    drop, kinds = names_of(reading.drop), known.get("columns")
    needs_kinds = kinds or given or reading.separator or reading.changes_cells
    if not needs_kinds and not holds_more_than_numbers(source, where, drop):
        return None
    with echoed_warnings():
        data = read_mixed(
            source,
            where,
            kind_of_values,
            kinds=given if kinds is None else dict(kinds),
            complete=kinds is not None,
            drop=drop,
            separator=reading.separator,
            labels=known.get("label_names"),
            dtype=reading.dtype,
        )
    if kinds is None:
        found = data.extras["columns"]
        names = {kind: [name for name, own in found.items() if own == kind] for kind in KINDS}
        words = "; ".join(f"{kind}: {', '.join(own)}" for kind, own in names.items() if own)
        if words:
            echo(f"Columns by kind: {words}. (Change with --numbers, --categories, --text, --drop.)")
        _warn_about_columns(data, found, given)
    return data


@contextmanager
def reading_bar(path: Path, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar over the bytes of a file."""
    with progress_bar(shown=shown) as bar:
        task = bar.add_task(f"reading {path.name}")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _xml_of(path: Path, reading: ReadOptions) -> Path:
    """Return the label file: --xml, or the file beside the ARFF file whose name is its longest prefix."""
    if reading.xml is not None:
        return reading.xml
    stem = path.name.partition(".arff")[0]
    fitting = [other for other in path.parent.glob("*.xml") if stem.startswith(other.stem)]
    if not fitting:
        raise click.UsageError(
            f"{path} has no label file beside it; give --xml, or name the columns of labels with --target, "
            "--labels or --label-prefix."
        )
    return max(fitting, key=lambda other: len(other.stem))


KINDS = ("number", "category", "text", "date")
# Options that declare a column of words to be of a kind.
_PLURALS = {"category": "categories", "text": "text"}
# Increasing whole numbers with gaps count as row numbers from this many rows on.
_GROWING = 30
# First rows that rule out most columns of row numbers quickly.
_FIRST = 10
# Numbers in another notation: digits with thousands marks, a sign, a currency or a percent sign.
_LIKE_NUMBER = re.compile(r"[-+]?\s*[$€£]?\s*\d[\d.,' ]*\s*[$€£%]?")
_DECIMAL = re.compile(r"[-+]?\d*([.,])\d+")
_LIKE_ID = re.compile(r"\S*\d\S*")


def _warn_about_columns(data: Dataset, kinds: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Warn about columns of training data that are probably no features as they are."""
    for j, name in enumerate(data.feature_names):
        doubt = _doubt(name, data.X[:, j], kinds.get(name, "number"), name in given)
        if doubt:
            echo(f"column {name!r} {doubt}.", logging.WARNING)


def _doubt(name: str, values: Any, kind: str, given: bool) -> str:
    """Return why a column may be no feature of this kind, empty if it may be one."""
    if kind == "number":
        counts = not given and _counts_rows(values)
        return f"looks like a row number; --drop {name} leaves it out" if counts else ""
    if kind == "date":
        return ""
    known = [value for value in values.tolist() if value]
    different = len(set(known))
    if given:
        many = kind == "category" and len(known) > 2 and 2 * different > len(known)
        return f"has {different} categories in {len(known)} rows; each is a feature" if many else ""
    like_numbers = [word for word in known if _LIKE_NUMBER.fullmatch(word.strip())]
    if 2 * len(like_numbers) > len(known):
        mark = _DECIMAL.fullmatch(like_numbers[0].strip())
        remedy = f"--decimal {mark[1]} reads it as one" if mark else "write it as 1234.5"
        return (
            f"is read as {kind}, but {like_numbers[0]!r} looks like a number; {remedy}, "
            f"--{_PLURALS[kind]} {name} keeps it"
        )
    if different == len(known) > 2 and all(map(_LIKE_ID.fullmatch, known)):
        return f"has a different value in every row; --drop {name} leaves it out"
    return ""


def _counts_rows(values: Any) -> bool:
    """Return whether numbers increase by one, or are many increasing whole numbers."""
    import numpy as np

    if not (np.diff(values[:_FIRST].astype(float)) > 0).all():
        return False
    numbers = values.astype(float)
    steps = np.diff(numbers)
    if len(numbers) > 2 and (steps == 1).all():
        return True
    return len(numbers) >= _GROWING and bool((steps > 0).all() and (numbers == np.floor(numbers)).all())


@dataclass(frozen=True)
class Samples:
    """Rows and labels as models take them.

    `lengths` are those of the sequences that the rows are stacked from. `columns` has the kinds of the
    columns of a table with words. `unknown` has a 0/1 column for each tag that the model does not have.
    `target` is the name of the column with the class.
    """

    X: Any
    y: Any
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    lengths: Any = None
    texts: Any = None
    columns: Mapping[str, str] | None = None
    unknown: Any = None
    unknown_names: tuple[str, ...] = ()
    target: str | None = None

    def take(self, rows: Any) -> Samples:
        """Return some samples, or some sequences if there are any."""
        import numpy as np

        if self.lengths is None:
            texts = None if self.texts is None else self.texts[rows]
            return replace(self, X=self.X[rows], y=self.y[rows], texts=texts)
        starts = np.cumsum(self.lengths) - self.lengths
        inside = np.concatenate([np.arange(starts[k], starts[k] + self.lengths[k]) for k in rows])
        return replace(self, X=self.X[inside], y=self.y[inside], lengths=self.lengths[rows])

    def __len__(self) -> int:
        return self.X.shape[0] if self.lengths is None else len(self.lengths)


def samples(data: Dataset, family: Family) -> Samples:
    """Check that the data suits a family, and return its samples."""
    import numpy as np

    from maxmargin.edge.estimator import check_columns

    name = data.name or data.source
    single = family.task in ("multiclass", "chain")
    kind = "sparse-" if family.name.startswith("sparse-") else ""
    if single and data.multilabel:
        raise ValueError(
            f"{name} has several labels per sample, but --model {family.name} takes one; "
            f"use --model {kind}multilabel."
        )
    if family.task == "multilabel" and not data.multilabel:
        raise ValueError(
            f"{name} has one class per sample, but --model {family.name} takes several labels; "
            f"use --model {kind}multiclass."
        )
    if data.multilabel and data.Y.shape[1] == 0:
        raise ValueError(f"{name} has no labels; write the labels of a sample at the start of its line.")
    if data.X.shape[1] == 0:
        raise ValueError(f"{name} has no feature columns left.")
    if (
        family.name != "multilabel"
        and data.multilabel
        and data.Y.dtype.kind == "f"
        and np.isnan(data.Y).any()
    ):
        raise ValueError("Some label entries are missing; only --model multilabel accepts that.")
    if hasattr(data.X, "toarray"):
        check_columns(data.X.shape[1], name)
        if np.isnan(data.X.data).any():
            raise ValueError(f"{name} has missing values among sparse features; fill them in.")
    if family.task == "chain" and "word" not in data.per_row:
        raise ValueError("--model chain needs sequences: a letter.data file or the data set ocr-letters.")
    return Samples(
        data.X,
        data.Y,
        data.label_names,
        data.feature_names,
        sequence_lengths(data) if family.task == "chain" else None,
        data.per_row.get("text", data.per_row.get("file")),
        columns=data.extras.get("columns"),
        target=data.extras.get("target"),
    )


def sequence_lengths(data: Dataset) -> Any:
    """Return the lengths of the words of a data set of letters."""
    import numpy as np

    word = data.per_row["word"]
    ends = np.flatnonzero(np.append(word[1:] != word[:-1], True))
    return np.diff(np.concatenate(([-1], ends)))
