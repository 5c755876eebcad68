"""Tables with columns of several kinds: CSV, JSON lines and Parquet as rows of named values.

Features are numbers, categories, texts or dates (`maxmargin.tables` chooses the kinds and prepares them).
Labels are a class, 0/1 columns, or one column of tags: "red;sweet", a list, or a list in JSON. A sample with
an empty cell of tags has no labels.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.edge.estimator import warn
from maxmargin.io.dataset import DataFormatError, Dataset, PathLike, check_proportion, in_proportion
from maxmargin.io.files import Progress, text_lines
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
# Separators of tags, in the order of preference.
SEPARATORS = (";", "|", ",")
# Rows that decide whether a CSV file holds only numbers; rows of a chunk of a large file.
INSPECTED, ROWS = 1000, 4096
# From this share of numbers on, a word in a column counts as a mistake, not as a category.
MOSTLY = 0.5
# Characters of a cell in a message.
SHOWN = 60
# 2024-01-31, also with slashes or points, and 31.01.2024; a time of day may follow.
_DAY = re.compile(r"(?:(\d{4})([-/.])(\d{1,2})\2(\d{1,2})|(\d{1,2})\.(\d{1,2})\.(\d{4}))(?:[T ]\d{1,2}:.*)?")
_PYTHON_WORD = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_PYTHON_LIST = re.compile(
    rf"\s*\[\s*(?:{_PYTHON_WORD.pattern})(?:\s*,\s*(?:{_PYTHON_WORD.pattern}))*\s*\]\s*"
)
Row = tuple[int, dict[str, Any]]
KindOf = Callable[[Sequence[Any], str], str]


@dataclass(frozen=True, kw_only=True)
class Cells:
    """How to interpret cells: the decimal mark (point or comma) and the words that mean a missing value."""

    decimal: str = "."
    missing: Sequence[str] = ()

    @cached_property
    def empty(self) -> set[Any]:
        """Words and numbers that mean a missing value."""
        words = set(self.missing)
        return words | {number(word) for word in words if _is_plain_number(word)}

    def value(self, cell: Any) -> Any:
        """Return the value of a cell, None if it means a missing value."""
        if not self.missing:
            return cell
        key = cell.strip() if isinstance(cell, str) else cell
        comparable = isinstance(key, (str, int, float)) and not isinstance(key, bool)
        return None if comparable and key in self.empty else cell

    def number(self, value: Any) -> float:
        """Return the number in a cell, NaN for an empty one."""
        if value is None:
            return math.nan
        if isinstance(value, str):
            if self.decimal == "." or is_truth(value):
                return number(value)
            if "." in value or not _is_plain_number(value.replace(",", ".")):
                raise ValueError(f"{value!r} is not a number with a decimal comma")
            return number(value.replace(",", "."))
        if not isinstance(value, (int, float)):
            raise ValueError(f"{value!r} is not a number")
        try:
            found = float(value)
        except OverflowError:  # a large integer
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
    def readers(self) -> dict[str, Callable[[Any], Any]]:
        """Functions from a cell to the value for a model, by the kind of the column."""
        return {"number": self.number, "category": _category, "text": _text, "date": _iso_day}


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
        """Yield numbered rows as dictionaries, with None for missing values."""
        if not self.missing:
            return self.cells()
        return ((line, {name: self.value(cell) for name, cell in row.items()}) for line, row in self.cells())

    def cells(self) -> Iterator[Row]:
        """Yield numbered rows as dictionaries of the cells as stored."""
        readers = {"csv": self._csv, "jsonl": self._jsonl, "parquet": self._parquet}
        return readers[self.kind]()

    def types(self) -> Any:
        """Return the schema of a Parquet file, in which dictionaries of words are words."""
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
                raise self.fault(f"expected an object in braces, found a {type(row).__name__}", line)
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
    """Whether a table has words among its features or a column of tags, in its first thousand rows."""
    if source.kind == "jsonl":
        return True
    rows = list(islice(source.rows(), INSPECTED))
    if not rows:
        return False
    names = list(rows[0][1])
    labels = {names[j] for j in where.find(names, source.path, 1)}
    columns = {name: [row[name] for _, row in rows] for name in names}
    if where.labels is not None and len(labels) == 1 and not _is_indicator(columns[next(iter(labels))]):
        return True
    features = [name for name in names if name not in labels and name not in drop]
    return not all(source.is_number(value) for name in features for value in columns[name])


def read_mixed(
    source: Source,
    where: LabelColumns,
    kind_of: KindOf,
    *,
    kinds: Mapping[str, str],
    complete: bool = False,
    drop: Sequence[str] = (),
    separator: str | None = None,
    labels: Sequence[str] | None = None,
    dtype: Any = np.float64,
) -> Dataset:
    """Read a whole table.

    A single label column that is not 0/1 is a column of tags: None as `separator` chooses among `SEPARATORS`;
    `labels` are the tags of a model, other tags get columns after these. `kinds` gives the kinds of some
    columns, or of all features if it is `complete`; `kind_of` chooses the others from values and name.

    X is an array of numbers, or of objects if there are words. `extras["columns"]` has the kind of every
    feature, `extras["tagged"]` says whether the labels are a column of tags.
    """
    lines, columns = _collect(source)
    names = list(columns)
    positions = where.find(names, source.path)
    label_names = {names[j] for j in positions}
    check_names(names, drop, source.path)
    absent = [name for name in kinds if name not in columns]
    if absent:
        raise source.fault(no_column(absent, names))
    taken = [name for name in kinds if name in label_names]
    if taken:
        raise source.fault(f"column {taken[0]!r} holds the labels and cannot also be a feature")
    wanted = list(kinds) if complete else [n for n in names if n not in label_names and n not in drop]
    found_kinds = {
        name: kinds.get(name) or _find_kind(source, columns[name], name, names.index(name), lines, kind_of)
        for name in wanted
    }
    X = _features(source, {name: columns[name] for name in wanted}, found_kinds, lines, dtype)
    texts = [name for name, kind in found_kinds.items() if kind == "text"]
    per_row = {"text": X[:, wanted.index(texts[0])]} if texts else {}
    column = names[positions[0]]
    tagged = where.labels is not None and len(positions) == 1
    tagged = tagged and (bool(separator) or not _is_indicator(columns[column]))
    if tagged:
        y, found = _read_tags(source, column, columns[column], lines, separator, labels)
    else:
        y, found = _read_labels(source, where, [names[j] for j in positions], columns, lines)
    target = column if where.target is not None else None
    extras = {"columns": found_kinds, "tagged": tagged, "target": target}
    return Dataset(X, y, tuple(wanted), found, source=str(source.path), per_row=per_row, extras=extras)


def read_chunks(
    source: Source, kinds: Mapping[str, str], dtype: Any = np.float64, carried: Sequence[str] = ()
) -> Iterator[Dataset]:
    """Yield the features of a table in chunks of up to 4096 rows, for prediction; labels are ignored.

    `extras["carried"]` has the cells of the carried columns as stored, `extras["types"]` the schema of a
    Parquet file.
    """
    rows = source.cells()
    extras = {"types": source.types()} if carried and source.kind == "parquet" else {}
    while chunk := list(islice(rows, ROWS)):
        lines = [line for line, _ in chunk]
        present = {name for _, row in chunk for name in row}
        absent = [name for name in (*kinds, *carried) if name not in present]
        if absent:
            raise source.fault(no_column(absent, sorted(present)), lines[0])
        columns = {name: [row.get(name) for _, row in chunk] for name in kinds}
        if source.missing:
            columns = {name: list(map(source.value, cells)) for name, cells in columns.items()}
        X = _features(source, columns, kinds, lines, dtype)
        cells = {name: [row.get(name) for _, row in chunk] for name in carried}
        yield Dataset(X, X, tuple(kinds), extras={**extras, "carried": cells})


def _collect(source: Source) -> tuple[list[int], dict[str, list[Any]]]:
    """Return line numbers and columns; names that a row lacks are missing values there."""
    lines: list[int] = []
    columns: dict[str, list[Any]] = {}
    n_cells = 0
    remedy = "most columns are empty in most rows; drop the rare ones, or write the table as SVMlight text"
    for line, row in source.rows():
        for name, value in row.items():
            if name not in columns:
                columns[name] = [None] * len(lines)
            columns[name].append(value)
        lines.append(line)
        n_cells += len(row) + 1
        check_proportion(len(lines) * len(columns), n_cells, "cells", remedy, source.path, line)
        for values in columns.values():
            if len(values) < len(lines):
                values.append(None)
    if not lines:
        raise source.fault("the file has no rows")
    return lines, columns


def _find_kind(
    source: Source, values: list[Any], name: str, position: int, lines: list[int], kind_of: KindOf
) -> str:
    """Choose the kind of a column; refuse numbers with a few words among them.

    Booleans are numbers, except beside other words.
    """
    known = [i for i, value in enumerate(values) if value not in (None, "")]
    words = [i for i in known if not source.is_number(values[i])]
    if not words:
        return "number"
    numbers = len(known) - len(words) - sum(is_truth(values[i]) for i in known)
    word = values[words[0]]
    if numbers >= MOSTLY * len(known) and isinstance(word, str):
        comma = replace(source, decimal=",").is_number(word)
        hint = "--decimal ," if comma else f"--missing {word.strip()}"
        raise source.fault(
            f"column {name!r}: {word!r} is not a number, but {numbers} of {len(known)} values are; pass "
            f"{hint} if it means that, correct it, or give the column's kind (--categories or --text)",
            lines[words[0]],
            position + 1,
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
    for j, (name, kind) in enumerate(kinds.items()):
        _fill(X[:, j], source.readers[kind], columns[name], name, source, lines)
    return X


def _fill(
    out: np.ndarray,
    read: Callable[[Any], Any],
    values: list[Any],
    name: str,
    source: Source,
    lines: list[int],
) -> None:
    """Convert the values of a column; an error names the column and the line."""
    for i, value in enumerate(values):
        try:
            out[i] = read(value)
        except ValueError as error:
            raise source.fault(f"column {name!r}: {error}", lines[i]) from None


def _read_labels(
    source: Source, where: LabelColumns, names: list[str], columns: Mapping[str, list[Any]], lines: list[int]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return classes or a 0/1 indicator, and the names."""
    if where.target is not None:
        words = ["" if value is None else str(value).strip() for value in columns[names[0]]]
        if "" in words:
            fault = f"the class is missing (column {names[0]!r}); fill it in or delete the row"
            raise source.fault(fault, lines[words.index("")])
        return classes(words)
    Y = np.empty((len(lines), len(names)))
    for k, name in enumerate(names):
        _fill(Y[:, k], _indicator, columns[name], name, source, lines)
    return label_array(Y), tuple(names)


def _read_tags(
    source: Source,
    name: str,
    values: Sequence[Any],
    lines: list[int],
    separator: str | None,
    known: Sequence[str] | None,
) -> tuple[Any, tuple[str, ...]]:
    """Return the indicator and names of the tags in a column; sparse if tags are many and rare."""
    texts = [value for value in values if isinstance(value, str) and not value.lstrip().startswith("[")]
    used = next((one for one in SEPARATORS if any(one in text for text in texts)), None)
    if separator and used and not any(separator in text for text in texts):
        warn(
            f"Column {name!r}: the separator {separator!r} does not occur, but {used!r} does; every entry "
            "counts as one tag."
        )
    separator = separator or used
    rows = np.empty(len(lines), dtype=object)
    _fill(rows, lambda value: tags_of(value, separator), list(values), name, source, lines)
    found = list(known or ())
    found += sorted({tag for row in rows for tag in row}.difference(found))
    if not found:
        raise source.fault(f"column {name!r} has no tags")
    position = {tag: k for k, tag in enumerate(found)}
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.array([position[tag] for row in rows for tag in row], np.int64)
    Y = sp.csr_array((np.ones(ends[-1], np.int32), columns, ends), shape=(len(rows), len(found)))
    Y.sort_indices()
    return Y.toarray() if in_proportion(Y.shape[0] * Y.shape[1], len(rows) + Y.nnz) else Y, tuple(found)


def tags_of(value: Any, separator: str | None = None) -> list[str]:
    """Return the tags in a cell: a list, a list in JSON or Python notation, or separated words.

    Examples
    --------
    >>> tags_of("red; sweet", ";"), tags_of('["red"]'), tags_of("['red']"), tags_of(None)
    (['red', 'sweet'], ['red'], ['red'], [])
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _parse_list(value)
    if value is None or value == "":
        return []
    if isinstance(value, (list, tuple)):
        if not all(isinstance(tag, (str, int)) for tag in value):
            raise ValueError(f"{value!r} is not a list of words")
        words = [str(tag).strip() for tag in value]
    elif isinstance(value, (str, int)):
        words = [word.strip() for word in (str(value).split(separator) if separator else [str(value)])]
    else:
        raise ValueError(f"{value!r} is not a tag; expected words, a list or a list in JSON")
    return [word for word in dict.fromkeys(words) if word]


def _parse_list(text: str) -> list[Any]:
    """Parse a list in JSON, or of quoted words in Python notation."""
    if _PYTHON_LIST.fullmatch(text):
        return [single or double for single, double in _PYTHON_WORD.findall(text)]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        raise ValueError(f'{shown!r} is not a list of tags; write ["red", "sweet"] or red;sweet') from None


def day_of(value: Any) -> date | None:
    """Return the day in a cell, None for an empty cell.

    Examples
    --------
    >>> day_of("2024-01-31 10:30"), day_of("31.1.2024"), day_of("")
    (datetime.date(2024, 1, 31), datetime.date(2024, 1, 31), None)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    if hasattr(value, "isoformat") and hasattr(value, "toordinal"):
        return date.fromordinal(value.toordinal())
    found = _DAY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a date; write it as 2024-01-31 or 31.01.2024")
    year, _, month, day, own_day, own_month, own_year = found.groups()
    try:
        return date(int(year or own_year), int(month or own_month), int(day or own_day))
    except ValueError as error:
        raise ValueError(f"{value!r} is not a date ({error})") from None


def _iso_day(value: Any) -> str | None:
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


def _indicator(value: Any) -> float:
    if isinstance(value, (list, tuple, dict)):
        raise ValueError(f"{value!r} is not a label entry (0 or 1)")
    return math.nan if value is None else indicator(str(value))


def _is_indicator(values: Sequence[Any]) -> bool:
    """Whether a column holds 0 and 1, and is not empty."""
    try:
        found = [_indicator(value) for value in values]
    except ValueError:
        return False
    return not all(map(math.isnan, found))


def _is_plain_number(word: str) -> bool:
    """Whether a word is a number with a decimal point, or empty."""
    try:
        number(word)
    except ValueError:
        return False
    return not is_truth(word)
