"""Tables of several kinds of columns: CSV, JSON lines and Parquet as rows of named values.

Features are numbers, categories or texts (`maxmargin.tables` says which is which, and prepares them).
Labels are a class, 0/1 columns, or one column of tags: "red;sweet", a list, or a list in JSON. An
empty cell of tags is a sample without any.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.edge.estimator import warn
from maxmargin.io.atomic import PathLike
from maxmargin.io.dataset import DataFormatError, Dataset
from maxmargin.io.dates import day_of
from maxmargin.io.files import Progress, text_lines
from maxmargin.io.proportion import check_proportion, in_proportion
from maxmargin.io.table import (
    LabelColumns,
    check_names,
    check_unpacked,
    classes,
    column_values,
    indicator,
    is_truth,
    label_array,
    number,
    open_csv,
    open_parquet,
)
from maxmargin.io.words import no_column

FORMATS = ("csv", "jsonl", "parquet")
KINDS = ("number", "category", "text", "date")
# Separators of tags, in the order in which they are looked for.
SEPARATORS = (";", "|", ",")
# Rows that tell whether a CSV file holds numbers alone; rows of a piece of a large file.
LOOKED_AT, ROWS = 1000, 4096
# Words among so many numbers are mistakes, not categories.
MOSTLY = 0.5
# Characters of a cell that a message shows.
SHOWN = 60
_PYTHON_WORD = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_PYTHON_LIST = re.compile(
    rf"\s*\[\s*(?:{_PYTHON_WORD.pattern})(?:\s*,\s*(?:{_PYTHON_WORD.pattern}))*\s*\]\s*"
)
Row = tuple[int, dict[str, Any]]
KindOf = Callable[[Sequence[Any], str], str]


@dataclass(frozen=True, kw_only=True)
class Cells:
    """What the cells of a table mean.

    Numbers in words have the `decimal` mark, a point or a comma. A cell that is one of the `missing` words is
    empty.
    """

    decimal: str = "."
    missing: Sequence[str] = ()

    @cached_property
    def empty(self) -> set[Any]:
        """Words and numbers that mean a missing value."""
        words = set(self.missing)
        return words | {number(word) for word in words if _is_plain(word)}

    def value(self, cell: Any) -> Any:
        """The value of a cell, None for one that means a missing value."""
        return None if self.missing and _cell(cell) in self.empty else cell

    def number(self, value: Any) -> float:
        """The number that a cell holds, NaN for an empty one."""
        if value is None:
            return math.nan
        if isinstance(value, str):
            if self.decimal == "." or is_truth(value):
                return number(value)
            if "." in value or not _is_plain(value.replace(",", ".")):
                raise ValueError(f"{value!r} is not a number with a decimal comma")
            return number(value.replace(",", "."))
        if not isinstance(value, (int, float)):
            raise ValueError(f"{value!r} is not a number")
        try:
            found = float(value)
        except OverflowError:  # of a whole number
            found = math.inf
        if math.isinf(found):
            raise ValueError(f"{value!r} is not a finite number")
        return found

    def is_number(self, value: Any) -> bool:
        """Whether a cell is a number or empty."""
        if value is None or isinstance(value, (int, float)):
            return True
        try:
            self.number(value)
        except ValueError:
            return False
        return True

    @property
    def meaning(self) -> dict[str, Callable[[Any], Any]]:
        """What a value is to a model, by the kind of its column."""
        return {"number": self.number, "category": _category, "text": _text, "date": _date}


@dataclass(frozen=True)
class Source(Cells):
    """A table in a file and how to read it; `kind` is one of `FORMATS`."""

    path: PathLike
    kind: str
    header: bool = True
    delimiter: str = ","
    encoding: str = "utf-8"
    progress: Progress | None = field(default=None, compare=False)

    def fault(self, message: str, line: int | None = None, column: int | None = None) -> DataFormatError:
        return DataFormatError(message, self.path, line, column)

    def rows(self) -> Iterator[Row]:
        """Numbered rows as dictionaries of named values, None for those that mean a missing one."""
        if not self.missing:
            return self.cells()
        return ((line, {name: self.value(cell) for name, cell in row.items()}) for line, row in self.cells())

    def cells(self) -> Iterator[Row]:
        """Numbered rows as the file has them."""
        readers = {"csv": self._csv, "jsonl": self._jsonl, "parquet": self._parquet}
        return readers[self.kind]()

    def types(self) -> Any:
        """The schema of a Parquet file, in which words are words."""
        with open_parquet(self.path):
            import pyarrow.parquet as pq

            return pq.read_schema(self.path)

    def _csv(self) -> Iterator[Row]:
        names, rows = open_csv(self.path, self.header, self.delimiter, self.encoding, self.progress)
        check_names(names, (), self.path)
        for line, fields in rows:
            if len(fields) != len(names):
                words = f"{len(fields)} fields, but the first line has {len(names)}"
                raise self.fault(words, line, len(fields))
            yield line, dict(zip(names, fields, strict=True))

    def _jsonl(self) -> Iterator[Row]:
        for line, text in text_lines(self.path, self.encoding, self.progress):
            if not text.strip():
                continue
            try:
                row = json.loads(text, parse_constant=lambda word: None)
            except (ValueError, RecursionError) as error:
                raise self.fault(f"not a JSON object ({error})", line) from error
            if not isinstance(row, dict):
                raise self.fault(f"an object in braces was expected, not a {type(row).__name__}", line)
            yield line, row

    def _parquet(self) -> Iterator[Row]:
        line = letters = 0
        stored = os.path.getsize(self.path)
        with open_parquet(self.path) as file:
            for batch in file.iter_batches(batch_size=ROWS, use_threads=False):
                names = [str(name) for name in batch.schema.names]
                columns = [column_values(*pair, self.path) for pair in zip(batch.columns, names, strict=True)]
                letters += sum(len(word) for words in columns for word in words if isinstance(word, str))
                check_unpacked(letters, stored, self.path)
                for row in zip(*columns, strict=True):
                    line += 1
                    yield line, dict(zip(names, row, strict=True))


def holds_more_than_numbers(source: Source, where: LabelColumns, drop: Sequence[str]) -> bool:
    """Whether a table needs this reader: it has words among its features, or a column of tags.

    A file is judged by its first thousand rows.
    """
    if source.kind == "jsonl":
        return True
    rows = list(islice(source.rows(), LOOKED_AT))
    if not rows:
        return False
    names = list(rows[0][1])
    labels = {names[j] for j in where.find(names, source.path, 1)}
    columns = {name: [row[name] for _, row in rows] for name in names}
    if where.labels is not None and len(labels) == 1 and not _is_indicator(columns[next(iter(labels))]):
        return True
    return not all(
        source.is_number(value)
        for name in names
        if name not in labels and name not in drop
        for value in columns[name]
    )


def _is_plain(word: str) -> bool:
    """Whether a word is a number with a decimal point, or empty."""
    try:
        number(word)
    except ValueError:
        return False
    return not is_truth(word)


def _cell(value: Any) -> Any:
    """What is compared with words that mean a missing value."""
    if isinstance(value, str):
        return value.strip()
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _is_indicator(values: Sequence[Any]) -> bool:
    """Whether a column holds 0 and 1; one that is empty throughout holds neither."""
    try:
        found = [_indicator(value) for value in values]
    except ValueError:
        return False
    return not all(map(math.isnan, found))


def _indicator(value: Any) -> float:
    if isinstance(value, (list, tuple, dict)):
        raise ValueError(f"{value!r} is not a label entry (0 or 1)")
    return math.nan if value is None else indicator(str(value))


def read_mixed(
    source: Source,
    where: LabelColumns,
    kind_of: KindOf,
    *,
    told: Mapping[str, str],
    complete: bool = False,
    drop: Sequence[str] = (),
    separator: str | None = None,
    labels: Sequence[str] | None = None,
    dtype: Any = np.float64,
) -> Dataset:
    """Read a whole table.

    Parameters
    ----------
    source : Source
    where : LabelColumns
        One named column that is not 0/1 is a column of tags.
    kind_of : callable
        Tells the kind of a column by its values and its name.
    told : mapping of str to str
        Kinds of columns that are known.
    complete : bool
        Whether no other column counts.
    drop : sequence of str
        Columns to leave out.
    separator : str or None
        What stands between tags; None looks for ``;``, ``|`` and ``,``.
    labels : sequence of str or None
        The tags of a model; others follow them.
    dtype : dtype
        Of the features, where all are numbers.

    Returns
    -------
    Dataset
        X is an array of numbers, or of objects where there are words; `extras["columns"]` has the
        kind of every feature, `extras["tagged"]` whether the labels are a column of tags.
    """
    lines, columns = _collected(source)
    names = list(columns)
    places = where.find(names, source.path)
    label_names = {names[j] for j in places}
    check_names(names, drop, source.path)
    absent = [name for name in told if name not in columns]
    if absent:
        raise source.fault(no_column(absent, names))
    taken = [name for name in told if name in label_names]
    if taken:
        raise source.fault(f"column {taken[0]!r} holds the labels and cannot be a feature, too")
    wanted = list(told) if complete else [n for n in names if n not in label_names and n not in drop]
    kinds = {}
    for name in wanted:
        kinds[name] = told.get(name) or _seen_kind(
            source, columns[name], name, names.index(name), lines, kind_of
        )
    X = _features(source, {name: columns[name] for name in wanted}, kinds, lines, dtype)
    texts = [name for name, kind in kinds.items() if kind == "text"]
    per_row = {"text": X[:, wanted.index(texts[0])]} if texts else {}
    column = names[places[0]]
    tagged = where.labels is not None and len(places) == 1
    tagged = tagged and (bool(separator) or not _is_indicator(columns[column]))
    if tagged:
        y, found = _tagged(source, column, columns[column], lines, separator, labels)
    else:
        y, found = _labels(source, where, places, columns, lines)
    extras = {"columns": kinds, "tagged": tagged, "target": column if where.target is not None else None}
    return Dataset(X, y, tuple(wanted), found, source=str(source.path), per_row=per_row, extras=extras)


def read_pieces(
    source: Source, kinds: Mapping[str, str], dtype: Any = np.float64, carried: Sequence[str] = ()
) -> Iterator[Dataset]:
    """The features of a table in pieces of up to 4096 rows, for prediction; labels are not looked at.

    `extras["carried"]` has the cells of the carried columns as they are in the file, `extras["types"]` the
    schema of a Parquet file.
    """
    rows = source.cells()
    extras = {"types": source.types()} if carried and source.kind == "parquet" else {}
    while piece := list(islice(rows, ROWS)):
        lines = [line for line, _ in piece]
        there = {name for _, row in piece for name in row}
        absent = [name for name in (*kinds, *carried) if name not in there]
        if absent:
            raise source.fault(no_column(absent, sorted(there)), lines[0])
        columns = {name: [row.get(name) for _, row in piece] for name in kinds}
        if source.missing:
            columns = {name: list(map(source.value, cells)) for name, cells in columns.items()}
        X = _features(source, columns, kinds, lines, dtype)
        cells = {name: [row.get(name) for _, row in piece] for name in carried}
        yield Dataset(X, X, tuple(kinds), extras={**extras, "carried": cells})


def _collected(source: Source) -> tuple[list[int], dict[str, list[Any]]]:
    """Line numbers and columns; a name that a row lacks is missing there."""
    lines: list[int] = []
    columns: dict[str, list[Any]] = {}
    given = 0
    for line, row in source.rows():
        for name, value in row.items():
            if name not in columns:
                columns[name] = [None] * len(lines)
            columns[name].append(value)
        lines.append(line)
        given += len(row) + 1
        why = "most columns are empty in most rows; drop the rare ones, or write the table as svmlight text"
        check_proportion(len(lines) * len(columns), given, "cells", why, source.path, line)
        for values in columns.values():
            if len(values) < len(lines):
                values.append(None)
    if not lines:
        raise source.fault("the file has no rows")
    return lines, columns


def _seen_kind(
    source: Source, values: list[Any], name: str, place: int, lines: list[int], kind_of: KindOf
) -> str:
    """The kind of a column: numbers also where they are written as words, but for a few that are none.

    Booleans are numbers, but beside other words they are words.
    """
    known = [i for i, value in enumerate(values) if value not in (None, "")]
    words = [i for i in known if not source.is_number(values[i])]
    if not words:
        return "number"
    numbers = len(known) - len(words) - sum(is_truth(values[i]) for i in known)
    if numbers >= MOSTLY * len(known) and isinstance(values[words[0]], str):
        word = values[words[0]]
        comma = replace(source, decimal=",").is_number(word)
        means = "--decimal ," if comma else f"--missing {word.strip()}"
        raise source.fault(
            f"column {name!r}: {word!r} is not a number, but {numbers} of {len(known)} "
            f"values are; give {means} if it means that, mend it, or name the column's kind (--categories or "
            "--text)",
            lines[words[0]],
            place + 1,
        )
    try:
        return kind_of([value if value != "" else None for value in values], name)
    except ValueError as error:
        raise source.fault(str(error)) from error


def _features(
    source: Source, columns: Mapping[str, list[Any]], kinds: Mapping[str, str], lines: list[int], dtype: Any
) -> np.ndarray:
    numbers = all(kind == "number" for kind in kinds.values())
    X = np.empty((len(lines), len(kinds)), dtype if numbers else object)
    meaning = source.meaning
    for j, (name, kind) in enumerate(kinds.items()):
        for i, value in enumerate(columns[name]):
            try:
                X[i, j] = meaning[kind](value)
            except ValueError as error:
                raise source.fault(f"column {name!r}: {error}", lines[i]) from None
    return X


def _date(value: Any) -> str | None:
    day = day_of(value)
    return None if day is None else day.isoformat()


def _category(value: Any) -> str | None:
    if isinstance(value, (list, tuple, dict)):
        raise ValueError(f"{value!r} is not a category")
    word = "" if value is None or value != value else str(value).strip()
    return word or None


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, (str, int, float)):
        raise ValueError(f"{value!r} is not a text")
    return "" if value is None or value != value else str(value)


def _labels(
    source: Source,
    where: LabelColumns,
    places: list[int],
    columns: Mapping[str, list[Any]],
    lines: list[int],
) -> tuple[np.ndarray, tuple[str, ...]]:
    names = [list(columns)[j] for j in places]
    values = columns[names[0]]
    if where.target is not None:
        words = ["" if value is None else str(value).strip() for value in values]
        if "" in words:
            fault = f"the class is missing (column {names[0]!r}); fill it in or leave the row out"
            raise source.fault(fault, lines[words.index("")])
        return classes(words)
    Y = np.empty((len(lines), len(names)))
    for k, name in enumerate(names):
        for i, value in enumerate(columns[name]):
            try:
                Y[i, k] = _indicator(value)
            except ValueError as error:
                raise source.fault(f"column {name!r}: {error}", lines[i]) from None
    return label_array(Y), tuple(names)


def _tagged(
    source: Source,
    name: str,
    values: Sequence[Any],
    lines: list[int],
    separator: str | None,
    known: Sequence[str] | None,
) -> tuple[Any, tuple[str, ...]]:
    """Indicator and names of the tags of a column; sparse where the tags are many and each is rare."""
    texts = [value for value in values if isinstance(value, str) and not value.lstrip().startswith("[")]
    there = next((one for one in SEPARATORS if any(one in text for text in texts)), None)
    if separator and there and not any(separator in text for text in texts):
        warn(
            f"Column {name!r}: the separator {separator!r} occurs nowhere, but {there!r} does; every entry "
            "is taken for one tag."
        )
    separator = separator or there
    rows = []
    for value, line in zip(values, lines, strict=True):
        try:
            rows.append(tags_of(value, separator))
        except ValueError as error:
            raise source.fault(f"column {name!r}: {error}", line) from None
    found = list(known or ())
    found += sorted({tag for row in rows for tag in row}.difference(found))
    if not found:
        raise source.fault(f"column {name!r} holds no tag at all")
    place = {tag: k for k, tag in enumerate(found)}
    ends = np.cumsum([0, *map(len, rows)])
    places = np.array([place[tag] for row in rows for tag in row], np.int64)
    Y = sp.csr_array((np.ones(ends[-1], np.int32), places, ends), shape=(len(rows), len(found)))
    Y.sort_indices()
    return Y.toarray() if in_proportion(Y.shape[0] * Y.shape[1], len(rows) + Y.nnz) else Y, tuple(found)


def tags_of(value: Any, separator: str | None = None) -> list[str]:
    """The tags of a cell: a list, a list as JSON or Python writes it, or words with a separator between.

    Examples
    --------
    >>> tags_of("red; sweet", ";"), tags_of('["red"]'), tags_of("['red']"), tags_of(None)
    (['red', 'sweet'], ['red'], ['red'], [])
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _list_in(value)
    if value is None or value == "":
        return []
    if isinstance(value, (list, tuple)):
        if not all(isinstance(tag, (str, int)) for tag in value):
            raise ValueError(f"{value!r} is not a list of words")
        words = [str(tag).strip() for tag in value]
    elif isinstance(value, (str, int)):
        words = [word.strip() for word in (str(value).split(separator) if separator else [str(value)])]
    else:
        raise ValueError(f"{value!r} is no tag: words, a list or a list in JSON were expected")
    return [word for word in dict.fromkeys(words) if word]


def _list_in(text: str) -> list[Any]:
    """The list that a text is, in JSON or as Python writes words in quotes."""
    if _PYTHON_LIST.fullmatch(text):
        return [single or double for single, double in _PYTHON_WORD.findall(text)]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        raise ValueError(f'{shown!r} is not a list of tags; write ["red", "sweet"] or red;sweet') from None
