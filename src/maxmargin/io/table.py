"""CSV and Parquet tables of numbers; the label columns of a table and the values of its fields (ARFF too)."""

from __future__ import annotations

import csv
import math
import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from maxmargin.io.dataset import DataFormatError, Dataset, PathLike, word_array
from maxmargin.io.files import MOST, RATIO, Progress, text_lines
from maxmargin.io.words import no_column

_YES = {"1", "1.0", "yes", "true", "y", "t"}
_NO = {"0", "0.0", "-1", "-1.0", "no", "false", "n", "f"}
_MISSING = {"", "?", "nan"}
_TRUTH = {"true": 1.0, "false": 0.0}
# Bytes that a value of a table takes in memory.
VALUE = 8
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def read_csv(
    path: PathLike,
    *,
    target: str | int | None = None,
    labels: Sequence[str] | int | None = None,
    label_prefix: str | None = None,
    header: bool = True,
    delimiter: str = ",",
    drop: Sequence[str] = (),
    encoding: str = "utf-8",
    dtype: Any = np.float64,
    progress: Progress | None = None,
) -> Dataset:
    """Read a CSV table; exactly one of `target`, `labels` and `label_prefix` gives its label columns.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz. Every feature must be a number, or true (1) or false (0);
        an empty field, `?` or `nan` is missing (NaN).
    target : str or int, default=None
        Name or position (negative: from the end) of one column, the class of each sample. Classes that
        are all integers become int64, others text.
    labels : list of str, or int, default=None
        One 0/1 column per label: their names, or the number of last columns (negative: of first
        columns).
    label_prefix : str, default=None
        One 0/1 column per label: those whose name has this prefix.
    header : bool, default=True
        Whether the first line names the columns; otherwise their names are c0, c1, ...
    delimiter : str, default=","
        The character between fields.
    drop : sequence of str, default=()
        Columns to leave out.
    encoding : str, default="utf-8"
        Encoding of the text.
    dtype : {float64, float32}, default=float64
        Type of the features.
    progress : callable, default=None
        Called now and then with (bytes read, bytes in all) of the stored file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.csv"
    >>> _ = path.write_text("size,weight,tag_red,tag_sweet\\n1,2.5,0,1\\n3,,1,1\\n")
    >>> data = read_csv(path, label_prefix="tag_")
    >>> data.label_names, data.Y.tolist()
    (('tag_red', 'tag_sweet'), [[0, 1], [1, 1]])
    """
    where = LabelColumns(target, labels, label_prefix)
    names, rows = open_csv(path, header, delimiter, encoding, progress)
    check_names(names, drop, path)
    label_columns, single = where.find(names, path, 1), where.target is not None
    left_out = {*label_columns, *(j for j, name in enumerate(names) if name in drop)}
    features = [j for j in range(len(names)) if j not in left_out]
    values, entries, words = array("d"), array("d"), []
    for line, fields in rows:
        values.fromlist(field_values(line, fields, names, features, path, number))
        if not single:
            entries.fromlist(field_values(line, fields, names, label_columns, path, indicator))
            continue
        words.append(fields[label_columns[0]].strip())
        if not words[-1]:
            fault = "the class is missing; fill it in or delete the row"
            raise DataFormatError(fault, path, line, label_columns[0] + 1)
    if not (words or entries):
        raise DataFormatError("the file has no rows", path)
    n = len(words) or len(entries) // len(label_columns)
    X = np.array(values).reshape(n, len(features)).astype(dtype, copy=False)
    Y = words if single else np.array(entries).reshape(n, len(label_columns))
    return _dataset(X, Y, names, features, label_columns, where, path)


def read_parquet(
    path: PathLike,
    *,
    target: str | int | None = None,
    labels: Sequence[str] | int | None = None,
    label_prefix: str | None = None,
    drop: Sequence[str] = (),
    dtype: Any = np.float64,
) -> Dataset:
    """Read a Parquet table; needs pyarrow. Arguments as in `read_csv`.

    A file whose values take more than 64 MiB and 200 times its size is refused.
    """
    where = LabelColumns(target, labels, label_prefix)
    with open_parquet(path) as file:
        table = file.read(use_threads=False)
        names = [str(name) for name in table.column_names]
        check_names(names, drop, path)
        label_columns = where.find(names, path)
        features = [j for j in range(len(names)) if j not in label_columns and names[j] not in drop]
        if table.num_rows == 0:
            raise DataFormatError("the table has no rows", path)
        X = np.empty((table.num_rows, len(features)), dtype=dtype)
        for k, j in enumerate(features):
            X[:, k] = column_numbers(table.column(j), names[j], j, path)
        if where.target is not None:
            j = label_columns[0]
            words = [word for part in table.column(j).chunks for word in column_values(part, names[j], path)]
            if None in words:
                raise DataFormatError("a class is missing", path, column=j + 1)
            return _dataset(X, list(map(str, words)), names, features, label_columns, where, path)
        Y = np.column_stack([column_numbers(table.column(j), names[j], j, path) for j in label_columns])
        if not np.isin(Y[~np.isnan(Y)], (0, 1)).all():
            raise DataFormatError("a label column holds values other than 0 and 1", path)
        return _dataset(X, Y, names, features, label_columns, where, path)


def _dataset(
    X: np.ndarray,
    Y: Any,
    names: list[str],
    features: list[int],
    label_columns: list[int],
    where: LabelColumns,
    path: PathLike,
) -> Dataset:
    """Join features with 0/1 labels, or with the words of the classes."""
    label_names = tuple(names[j] for j in label_columns)
    extras = {}
    if where.target is not None:
        extras["target"] = label_names[0]
        Y, label_names = classes(Y)
    else:
        Y = label_array(Y)
    return Dataset(X, Y, tuple(names[j] for j in features), label_names, source=str(path), extras=extras)


@contextmanager
def open_parquet(path: PathLike) -> Iterator[Any]:
    """Open a Parquet file with a small buffer; faults of the file become DataFormatError."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("Parquet needs pyarrow: pip install pyarrow") from error
    with open(path, "rb") as file:
        try:
            stored = pq.ParquetFile(pa.PythonFile(file, mode="r"), buffer_size=1 << 16, pre_buffer=False)
            texts = _check_parquet(stored.metadata, os.fstat(file.fileno()).st_size, path)
            try:
                # Columns of words stay dictionaries, so that a repeated word takes memory once.
                opened = pq.ParquetFile(
                    pa.PythonFile(file, mode="r"),
                    buffer_size=1 << 16,
                    pre_buffer=False,
                    read_dictionary=texts,
                )
            except KeyError as error:
                raise DataFormatError(f"not a readable Parquet file (no column {error})", path) from error
            yield opened
        except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
            raise DataFormatError(f"not a readable Parquet file ({error})", path) from error


def _check_parquet(metadata: Any, stored: int, path: PathLike) -> list[str]:
    """Refuse values far larger than the file; return the columns of words to keep as dictionaries."""
    size, texts = max(metadata.num_rows, 0) * VALUE, set()
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for column in map(group.column, range(group.num_columns)):
            size += max(column.num_values, 0) * VALUE + max(column.total_uncompressed_size, 0)
            if column.physical_type == "BYTE_ARRAY" and "DELTA_BYTE_ARRAY" not in column.encodings:
                texts.add(column.path_in_schema)
    check_unpacked(size, stored, path)
    return sorted(texts)


def check_unpacked(size: int, stored: int, path: PathLike) -> None:
    """Refuse a Parquet file whose values need far more memory than the file has bytes."""
    if size > max(MOST, RATIO * stored):
        raise DataFormatError(
            f"{stored:,} bytes expand to values of {size:,} bytes, which may exhaust the memory; if you "
            "trust them, write the file plain (pyarrow: use_dictionary=False, compression='none')",
            path,
        )


def column_values(column: Any, name: str, path: PathLike) -> list[Any]:
    """Return the values of a Parquet column; rows with the same word share one object."""
    import pyarrow as pa

    kind = column.type
    try:
        if pa.types.is_dictionary(kind):
            words = column.dictionary.to_pylist()
            return [None if k is None else words[k] for k in column.indices.to_pylist()]
        if pa.types.is_list(kind):
            words, ends = column_values(column.values, name, path), column.offsets.to_pylist()
            there = column.is_valid().to_pylist()
            rows = zip(there, pairwise(ends), strict=True)
            return [words[a:b] if is_list else None for is_list, (a, b) in rows]
        return column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataFormatError(f"column {name!r} holds a value that cannot be read ({error})", path) from error


def column_numbers(column: Any, name: str, j: int, path: PathLike) -> np.ndarray:
    """Return the numbers of Parquet column j, NaN where they are missing."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        raise DataFormatError(f"column {name!r} is of type {kind}, not a number", path, column=j + 1)
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if np.isinf(values).any():
        raise DataFormatError(f"column {name!r} has an infinite value", path, column=j + 1)
    return values


def check_names(names: list[str], drop: Sequence[str], path: PathLike) -> None:
    """Refuse repeated column names, and columns to drop that do not exist."""
    seen: set[str] = set()
    for j, name in enumerate(names):
        if name in seen:
            raise DataFormatError(f"column name {name!r} occurs twice", path, 1, j + 1)
        seen.add(name)
    absent = [name for name in drop if name not in seen]
    if absent:
        raise DataFormatError(f"to drop, {no_column(absent, names)}", path, 1)


def open_csv(
    path: PathLike, header: bool, delimiter: str, encoding: str, progress: Progress | None
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the column names (c0, c1, ... without a header) and an iterator over numbered rows."""
    if len(delimiter) != 1:
        raise ValueError(f"delimiter must be one character. Got {delimiter!r} instead.")
    rows = _numbered_rows(path, delimiter, encoding, progress)
    first = next(rows, None)
    if first is None:
        raise DataFormatError("the file is empty", path)
    if header:
        return [word.strip() for word in first[1]], rows
    return [f"c{j}" for j in range(len(first[1]))], chain([first], rows)


def _numbered_rows(
    path: PathLike, delimiter: str, encoding: str, progress: Progress | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield numbered rows of fields without blank lines."""
    lines = (line for _, line in text_lines(path, encoding, progress))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                fault = "a field that begins in this row has a quote that is never closed"
                raise DataFormatError(fault, path, start) from error
            raise DataFormatError(str(error), path, max(reader.line_num, 1)) from error
        if fields:
            yield start, fields
        start = reader.line_num + 1


def field_values(
    line: int,
    fields: list[str],
    names: list[str],
    columns: list[int],
    path: PathLike,
    value: Callable[[str], float],
) -> list[float]:
    """Return the values of the chosen fields of a row."""
    if len(fields) != len(names):
        raise DataFormatError(
            f"{len(fields)} fields, but the first line has {len(names)}", path, line, len(fields)
        )
    values = []
    try:
        for j in columns:
            values.append(value(fields[j]))
    except ValueError as error:
        raise DataFormatError(f"column {names[j]!r}: {error}", path, line, j + 1) from None
    return values


@dataclass(frozen=True)
class LabelColumns:
    """The label columns of a table, given by exactly one of the arguments of `read_csv`."""

    target: str | int | None = None
    labels: Sequence[str] | int | None = None
    prefix: str | None = None

    def __post_init__(self) -> None:
        given = [self.target is not None, self.labels is not None, self.prefix is not None]
        if sum(given) != 1:
            raise ValueError("Pass exactly one of target, labels and label_prefix to name the label columns.")
        if isinstance(self.labels, str):
            raise ValueError("labels must be a list of column names or a number of columns, not one string.")

    def find(self, names: Sequence[str], path: PathLike, line: int | None = None) -> list[int]:
        """Return the positions of the label columns among `names`, in the order of the file."""
        if isinstance(self.target, int):
            if not -len(names) <= self.target < len(names):
                raise DataFormatError(f"there is no column {self.target} among {len(names)}", path, line)
            return [self.target % len(names)]
        if self.prefix is not None:
            found = [j for j, name in enumerate(names) if name.startswith(self.prefix)]
            if not found:
                raise DataFormatError(f"no column starts with {self.prefix!r}", path, line)
            return found
        if isinstance(self.labels, int):
            count = abs(self.labels)
            if not 0 < count <= len(names):
                raise DataFormatError(f"cannot take {count} label columns of {len(names)}", path, line)
            every = list(range(len(names)))
            return every[-count:] if self.labels > 0 else every[:count]
        wanted = [self.target] if self.target is not None else list(self.labels or ())
        position = {name: j for j, name in enumerate(names)}
        absent = [name for name in wanted if name not in position]
        if absent:
            raise DataFormatError(no_column(absent, names), path, line)
        return sorted({position[name] for name in wanted})


def number(field: str) -> float:
    """Return a finite number, or NaN for a missing one; raise ValueError for anything else.

    Unlike float(), it refuses underscores, infinities and digits outside ASCII. The words true and false are
    1 and 0 in upper or lower case.
    """
    try:
        value = float(field)
    except ValueError:
        if field.strip() in _MISSING:
            return math.nan
        if is_truth(field):
            return _TRUTH[field.strip().lower()]
        raise ValueError(f"{field!r} is not a number") from None
    if not math.isfinite(value):
        if value != value and field.strip().lower() == "nan":
            return value
        raise ValueError(f"{field!r} is not a finite number")
    if "_" in field or not field.isascii():
        raise ValueError(f"{field!r} is not a number")
    return value


def is_truth(value: Any) -> bool:
    """Whether a cell is a boolean or one of the words true and false."""
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in _TRUTH)


def indicator(field: str) -> float:
    """Return 0 or 1 for a label entry, NaN for a missing one; raise ValueError for anything else."""
    word = field.strip().lower()
    if word in _YES:
        return 1.0
    if word in _NO:
        return 0.0
    if word in _MISSING:
        return math.nan
    raise ValueError(f"{field!r} is not a label entry (0 or 1)")


def label_array(Y: np.ndarray) -> np.ndarray:
    """Return integers if no entry is missing, otherwise floats with NaN."""
    return Y if np.isnan(Y).any() else Y.astype(np.int32)


def classes(words: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the class of each sample (int64 if all are plain integers) and the class names."""
    y = word_array(words)
    if all(_WHOLE.fullmatch(word) for word in words):
        y = y.astype(np.int64)
    return y, tuple(str(name) for name in np.unique(y))
