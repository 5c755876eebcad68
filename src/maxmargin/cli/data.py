"""Where data comes from (a known name, a file, stdin), and samples as models take them."""

from __future__ import annotations

import difflib
import functools
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

from maxmargin.cli.columns import tell_kinds, warn_of_columns
from maxmargin.cli.console import progress_bar, said_warnings

if TYPE_CHECKING:
    from maxmargin.cli.families import Family
    from maxmargin.datasets import Dataset
    from maxmargin.io.mixed import Source

FORMATS = ("arff", "csv", "jsonl", "letters", "mail", "parquet", "svmlight", "xc")
MIXED = ("csv", "jsonl", "parquet")
DELIMITERS = (",", ";", "\t", "|")
_BY_SUFFIX = {
    ".arff": "arff",
    ".csv": "csv",
    ".tsv": "csv",
    ".data": "letters",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".xc": "xc",
}
# What to do with files that are often at hand.
_OTHER_FILES = {
    ".json": "write one object a line, and give --format jsonl",
    ".txt": "give --format, such as csv with --delimiter",
    ".xls": "save the sheet as CSV",
    ".xlsx": "save the sheet as CSV",
}
COLUMN_KINDS = frozenset({"numbers", "categories", "text", "dates"})
LABEL_COLUMNS = frozenset({"target", "labels", "label_prefix"})
# How the cells of a table are read.
CELLS = frozenset({"decimal", "missing"})
# Column names that a message lists.
LISTED = 40
# What a model remembers of how its training data was read.
REMEMBERED = (
    LABEL_COLUMNS
    | COLUMN_KINDS
    | CELLS
    | {"separator", "drop", "header", "delimiter", "encoding", "zero_based"}
)


# Options that also concern named data sets.
FOR_ALL = frozenset({"drop", "float32", "split"})


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file, as told on the command line; `given` names what was told there."""

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
        """These options for a named data set that is read beside a file, which the others are for."""
        return replace(self, given=self.given & FOR_ALL)

    @property
    def says_labels(self) -> bool:
        """Whether it is told which columns hold the labels."""
        return not (self.target is None and self.labels is None and self.label_prefix is None)

    @property
    def says_cells(self) -> bool:
        """Whether cells are read in another way than usual."""
        return self.decimal != "." or self.missing is not None

    def columns(self) -> dict[str, Any]:
        """Arguments of the table readers that say where the labels are."""
        labels: Any = self.labels
        if labels is not None and labels != "meka":
            # A column may be called by a number; the reader of names looks for it first.
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
    """Names that an option was given, once as a,b,c or one after the other."""
    return ",".join(values) or None


_NAMES: dict[str, Any] = {"multiple": True, "callback": joined}
_OPTIONS = (
    click.option("--format", type=click.Choice(FORMATS), help="Format of the file; default: by its name."),
    click.option("--target", help="Tables: the column with the class of each sample (name or position)."),
    click.option(
        "--labels",
        **_NAMES,
        help="Tables: 0/1 label columns, as names a,b,c or how many of the last; or one column of tags: "
        "words with a separator, a list, a list in JSON.",
    ),
    click.option("--label-prefix", help="Tables: 0/1 label columns, as the start of their names."),
    click.option("--separator", help="Tables: what stands between tags; default: the first found of ; | ,"),
    click.option(
        "--numbers", **_NAMES, help="Tables: columns of numbers, a,b,c; default: seen by their values."
    ),
    click.option(
        "--categories", **_NAMES, help="Tables: columns of categories, a,b,c; default: seen by their values."
    ),
    click.option("--text", **_NAMES, help="Tables: columns of text, a,b,c; default: seen by their values."),
    click.option(
        "--dates",
        **_NAMES,
        help="Tables: columns of dates, a,b,c; used are year, month, weekday and days since the first.",
    ),
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        default=".",
        help="Tables: the decimal mark of numbers; default: a point.",
    ),
    click.option(
        "--missing",
        **_NAMES,
        help="Tables: words that mean a missing value, such as n/a,NULL; empty cells do.",
    ),
    click.option(
        "--xml", type=click.Path(path_type=Path), help="ARFF: the Mulan file that names the labels."
    ),
    click.option("--drop", **_NAMES, help="Tables: columns to leave out, a,b,c."),
    click.option("--header/--no-header", default=True, help="CSV: whether the first line names the columns."),
    click.option("--delimiter", help="CSV: the character between fields; default: as the first line has it."),
    click.option(
        "--encoding", default="utf-8", help="CSV, JSON lines and ARFF: encoding of the text; default: utf-8."
    ),
    click.option("--zero-based", is_flag=True, help="SVMlight: the first feature has index 0."),
    click.option("--float32", is_flag=True, help="Keep the features in single precision."),
    click.option(
        "--split",
        type=click.Choice(["train", "test", "all"]),
        help="Which rows, where the data comes with a split.",
    ),
)


def read_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how to read; the command gets them as one `reading`."""
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
        Rows to take when the data comes with a split and the command line names none.
    known : mapping
        Of a model: its `labels` and `n_features` for SVMlight, its `columns` and `label_names` for tables.
    """
    with located(source, reading) as path:
        if path is None:
            return part(_load(source, reading), reading.split, split)
        return part(_read_file(path, reading, single, known or {}), reading.split, split)


def check_source(source: str, reading: ReadOptions) -> None:
    """Refuse stdin of an unknown format, and a name of no file and no known data set."""
    from maxmargin.io.registry import registry

    if source == "-":
        if reading.format is None:
            raise click.UsageError("Data on stdin needs --format, one of " + ", ".join(FORMATS) + ".")
    elif not Path(source).exists() and source not in (known := registry()):
        near = difflib.get_close_matches(source, known, n=1)
        hint = (
            f" Did you mean the data set {near[0]}?"
            if near
            else " `maxmargin datasets list` shows the names."
        )
        raise click.UsageError(f"There is no file and no known data set {source!r}.{hint}")


@contextmanager
def located(source: str, reading: ReadOptions) -> Iterator[Path | None]:
    """The file behind a source, stdin spooled to disk; None for a known data set."""
    from maxmargin.datasets import DataFormatError

    check_source(source, reading)
    if source == "-":
        format_of(Path("stdin"), reading)  # options that it does not take are refused before it is read
        with tempfile.TemporaryDirectory(prefix="maxmargin-") as folder:
            path = Path(folder) / "stdin"
            with open(path, "wb") as out:
                shutil.copyfileobj(sys.stdin.buffer, out)
            try:
                yield path
            except DataFormatError as error:
                raise ValueError(str(error).replace(str(path), "stdin")) from error
        return
    path = Path(source)
    yield path if path.exists() else None


def format_of(path: Path, reading: ReadOptions) -> str:
    """The format asked for, or the one that the file's name tells; options for tables need a table."""
    kind = _format_of(path, reading)
    if kind not in MIXED and (given := sorted(reading.given & (CELLS | COLUMN_KINDS))):
        raise click.UsageError(f"--{given[0]} is for CSV, JSON lines and Parquet, and {path} is {kind}.")
    return kind


def _format_of(path: Path, reading: ReadOptions) -> str:
    if reading.format is not None:
        return reading.format
    if path.is_dir():
        return "mail"
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".xz", ".gz")]
    kind = _BY_SUFFIX.get(suffixes[-1].lower()) if suffixes else None
    if kind is None:
        cure = _OTHER_FILES.get(suffixes[-1].lower() if suffixes else "", "give --format")
        raise click.UsageError(f"{path}: the name does not tell the format; {cure}.")
    return kind


def _load(name: str, reading: ReadOptions) -> Dataset:
    """A known data set; options that say what a file holds are not for it."""
    import numpy as np

    from maxmargin import datasets
    from maxmargin.io.words import no_column

    for option in sorted(reading.given - FOR_ALL):
        raise click.UsageError(
            f"--{option.replace('_', '-')} is for files; it is known how the data set {name} is read."
        )
    data = datasets.load(name)
    if "drop" in reading.given:
        names, drop = data.feature_names, names_of(reading.drop)
        if absent := [column for column in drop if column not in names]:
            raise ValueError(f"{name}: to drop, {no_column(absent, names)}")
        kept = [j for j, column in enumerate(names) if column not in drop]
        data = replace(data, X=data.X[:, kept], feature_names=tuple(names[j] for j in kept))
    return replace(data, X=data.X.astype(np.float32)) if reading.float32 else data


def part(data: Dataset, asked: str | None, default: str) -> Dataset:
    """The rows asked for, or else those of the default side where the data comes with a split."""
    if asked is not None and asked != "all":
        if {"train": data.train, "test": data.test}[asked] is None:
            raise click.UsageError(
                f"{data.name or data.source} does not come with a {asked} part; leave --split out."
            )
        return data.part(asked)
    if asked == "all":
        return data
    rows = {"train": data.train, "test": data.test}.get(default)
    return data if rows is None else data.take(rows)


def _read_file(path: Path, reading: ReadOptions, single: bool, known: Mapping[str, Any]) -> Dataset:
    from maxmargin import datasets

    kind = format_of(path, reading)
    if kind == "mail":
        return datasets.read_mail_folders(path)
    if kind in MIXED and not reading.says_labels:
        raise click.UsageError(f"{path}: {which_labels(path, kind, reading)}")
    if kind in MIXED and reading.drop and "drop" not in reading.given:
        reading = _without_absent(path, kind, reading)
    with reading_bar(path) as progress:
        if kind in MIXED and reading.labels != "meka":
            data = read_columns(source_of(path, kind, reading, progress), reading, known)
            if data is not None:
                return data
        if kind == "letters":
            return datasets.read_letter_data(path, progress=progress)
        if kind == "svmlight":
            return datasets.read_svmlight(
                path,
                multilabel=not single,
                zero_based=reading.zero_based,
                dtype=reading.dtype,
                progress=progress,
                **{name: known[name] for name in ("labels", "n_features") if name in known},
            )
        if kind == "xc":
            return datasets.read_xc(path, dtype=reading.dtype, progress=progress)
        data = read_table(path, kind, reading, progress)
    if kind in MIXED and not known:
        warn_of_columns(data, {}, {})
    return data


def _without_absent(path: Path, kind: str, reading: ReadOptions) -> ReadOptions:
    """Columns that training left out need not be in further data."""
    names = {name for _, row in islice(source_of(path, kind, reading).rows(), 1) for name in row}
    return replace(reading, drop=",".join(name for name in names_of(reading.drop) if name in names) or None)


def which_labels(path: Path, kind: str, reading: ReadOptions) -> str:
    """That the columns with the labels must be named, and which columns a table has."""
    names = [repr(name) for _, row in islice(source_of(path, kind, reading).rows(), 1) for name in row]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return (
        "say which columns are labels: --target, --labels or --label-prefix. "
        f"The columns are {', '.join(names[:LISTED])}{more}."
    )


def read_table(path: Path, kind: str, reading: ReadOptions, progress: Any) -> Dataset:
    """A table of numbers and 0/1 labels, or of one class per sample."""
    from maxmargin import datasets

    how: dict[str, Any] = {"drop": names_of(reading.drop), "dtype": reading.dtype}
    if kind == "parquet":
        return datasets.read_parquet(path, **how, **reading.columns())
    how["encoding"] = reading.encoding
    if kind == "arff" and not reading.says_labels:
        return datasets.read_mulan(path, _xml_of(path, reading), progress=progress, **how)
    how |= reading.columns()
    if kind == "arff":
        return datasets.read_arff(path, progress=progress, **how)
    delimiter = delimiter_of(path, reading)
    return datasets.read_csv(path, header=reading.header, delimiter=delimiter, progress=progress, **how)


def delimiter_of(path: Path, reading: ReadOptions) -> str:
    """The delimiter told, or the one that the first line of the file has most of."""
    from maxmargin.io.files import text_lines

    if reading.delimiter is not None:
        return {"tab": "\t", "\\t": "\t"}.get(reading.delimiter, reading.delimiter)
    if ".tsv" in path.suffixes or not path.is_file():
        return "\t" if ".tsv" in path.suffixes else ","
    _, first = next(text_lines(path, reading.encoding), (1, ""))
    return max(DELIMITERS, key=first.count)


def source_of(path: Path, kind: str, reading: ReadOptions, progress: Any = None) -> Source:
    """A table and how to read it."""
    from maxmargin.io.mixed import Source

    delimiter = delimiter_of(path, reading) if kind == "csv" else ","
    missing = names_of(reading.missing)
    how: dict[str, Any] = {"decimal": reading.decimal, "missing": missing}
    return Source(path, kind, reading.header, delimiter, reading.encoding, progress, **how)


def read_columns(source: Source, reading: ReadOptions, known: Mapping[str, Any]) -> Dataset | None:
    """A table of numbers, categories and text; None if it holds numbers and 0/1 labels alone."""
    from maxmargin.io.mixed import holds_more_than_numbers, read_mixed
    from maxmargin.io.table import LabelColumns
    from maxmargin.tables import kind_of_values, told_kinds

    if reading.separator == "":
        raise click.UsageError("--separator is empty; name what stands between tags, or leave it out.")
    columns = reading.columns()
    where = LabelColumns(columns["target"], columns["labels"], columns["label_prefix"])
    told = told_kinds(
        *(names_of(getattr(reading, name)) for name in ("numbers", "categories", "text", "dates"))
    )
    drop, kinds = names_of(reading.drop), known.get("columns")
    usual = not (kinds or told or reading.separator or reading.says_cells)
    if usual and not holds_more_than_numbers(source, where, drop):
        return None
    if kinds is not None:
        told = dict(kinds)
    with said_warnings():
        data = read_mixed(
            source,
            where,
            kind_of_values,
            kinds=told,
            complete=kinds is not None,
            drop=drop,
            separator=reading.separator,
            labels=known.get("label_names"),
            dtype=reading.dtype,
        )
    if kinds is None:
        tell_kinds(data, told)
    return data


@contextmanager
def reading_bar(path: Path, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over the bytes of a file."""
    with progress_bar(shown=shown) as bar:
        task = bar.add_task(f"reading {path.name}")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _xml_of(path: Path, reading: ReadOptions) -> Path:
    """The label file: as told, or beside the ARFF file with the longest name that fits."""
    if reading.xml is not None:
        return reading.xml
    stem = path.name.partition(".arff")[0]
    fitting = [other for other in path.parent.glob("*.xml") if stem.startswith(other.stem)]
    if not fitting:
        raise click.UsageError(
            f"{path}: no label file beside it; give --xml, or say which columns are labels: "
            "--target, --labels or --label-prefix."
        )
    return max(fitting, key=lambda other: len(other.stem))


def names_of(words: str | None) -> list[str]:
    return [word.strip() for word in words.split(",")] if words else []


@dataclass(frozen=True)
class Samples:
    """Rows and labels; `lengths` cut stacked rows into sequences, `texts` say what each row is.

    `columns` has the kinds of the columns of a table that was read for them. `unknown` has a 0/1 column for
    each tag that the model of these samples does not know. `target` is the column with the class, in a table.
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
        """Some samples (whole sequences, where there are any)."""
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
    """Check that the data suits a family and lay it out for it."""
    import numpy as np

    from maxmargin.edge.estimator import check_columns

    single = family.task in ("multiclass", "chain")
    kind = "sparse-" if family.name.startswith("sparse-") else ""
    if single and data.multilabel:
        raise ValueError(
            f"{data.name or data.source} has several labels per sample, and --model {family.name} takes one; "
            f"use --model {kind}multilabel."
        )
    if family.task == "multilabel" and not data.multilabel:
        raise ValueError(
            f"{data.name or data.source} has one class per sample, and --model {family.name} takes several "
            f"labels; use --model {kind}multiclass."
        )
    if data.multilabel and data.Y.shape[1] == 0:
        raise ValueError(
            f"{data.name or data.source} has no labels; write those of a sample at the beginning of its line."
        )
    if data.X.shape[1] == 0:
        raise ValueError(f"{data.name or data.source} has no feature columns left.")
    if (
        data.multilabel
        and data.Y.dtype.kind == "f"
        and np.isnan(data.Y).any()
        and family.name != "multilabel"
    ):
        raise ValueError("Some label entries are missing; only --model multilabel takes that.")
    if hasattr(data.X, "toarray"):
        check_columns(data.X.shape[1], data.name or data.source)
        if np.isnan(data.X.data).any():
            raise ValueError(
                f"{data.name or data.source} has missing values among sparse features; mend the file."
            )
    lengths = None
    if family.task == "chain":
        if "word" not in data.per_row:
            raise ValueError("--model chain needs sequences: a letter.data file or the data set ocr-letters.")
        lengths = sequence_lengths(data)
    texts = data.per_row.get("text", data.per_row.get("file"))
    return Samples(
        data.X,
        data.Y,
        data.label_names,
        data.feature_names,
        lengths,
        texts,
        columns=data.extras.get("columns"),
        target=data.extras.get("target"),
    )


def sequence_lengths(data: Dataset) -> Any:
    """Positions of each word of a data set of letters."""
    import numpy as np

    word = data.per_row["word"]
    ends = np.flatnonzero(np.append(word[1:] != word[:-1], True))
    return np.diff(np.concatenate(([-1], ends)))
