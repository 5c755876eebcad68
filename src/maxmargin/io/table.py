"""CSV and Parquet tables."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from maxmargin.io.columns import LabelColumns, classes, indicator, label_array, number
from maxmargin.io.dataset import Dataset
from maxmargin.io.errors import DataFormatError
from maxmargin.io.files import PathLike, Progress, text_lines


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
    """Read a CSV table whose label columns are told by exactly one of the first three arguments.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz. Every feature must be a number; an empty field, `?`
        or `nan` is missing (NaN).
    target : str or int, default=None
        One column that holds the class of each sample: its name or position (negative: from the
        end). Classes that are all whole numbers come as int64, others as text.
    labels : list of str, or int, default=None
        One 0/1 column per label: their names, or how many of the last columns (negative: of the
        first).
    label_prefix : str, default=None
        One 0/1 column per label: those whose name starts so.
    header : bool, default=True
        Whether the first line names the columns; otherwise they are called c0, c1, ...
    delimiter : str, default=","
        One character between fields.
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
    if len(delimiter) != 1:
        raise ValueError(f"delimiter must be one character. Got {delimiter!r} instead.")
    rows = numbered_rows(path, delimiter, encoding, progress)
    first = next(rows, None)
    if first is None:
        raise DataFormatError("the file is empty", path)
    names = [word.strip() for word in first[1]] if header else [f"c{j}" for j in range(len(first[1]))]
    _check_names(names, drop, path)
    table = _Table(path, names, where, drop)
    if not header:
        table.add(*first)
    for line, fields in rows:
        table.add(line, fields)
    return table.dataset(dtype)


def read_parquet(
    path: PathLike,
    *,
    target: str | int | None = None,
    labels: Sequence[str] | int | None = None,
    label_prefix: str | None = None,
    drop: Sequence[str] = (),
    dtype: Any = np.float64,
) -> Dataset:
    """Read a Parquet table; needs pyarrow. Arguments as in `read_csv`."""
    where = LabelColumns(target, labels, label_prefix)
    with open_parquet(path) as file:
        table = file.read(use_threads=False)
    names = [str(name) for name in table.column_names]
    _check_names(names, drop, path)
    label_columns = where.find(names, path)
    features = [j for j in range(len(names)) if j not in label_columns and names[j] not in drop]
    X = np.empty((table.num_rows, len(features)), dtype=dtype)
    for k, j in enumerate(features):
        X[:, k] = column_numbers(table.column(j), names[j], j, path)
    feature_names = tuple(names[j] for j in features)
    if table.num_rows == 0:
        raise DataFormatError("the table has no rows", path)
    if where.target is not None:
        words = table.column(label_columns[0]).to_pylist()
        if None in words:
            raise DataFormatError("a class is missing", path, column=label_columns[0] + 1)
        y, class_names = classes([str(word) for word in words])
        return Dataset(X, y, feature_names, class_names, source=str(path))
    Y = np.column_stack([column_numbers(table.column(j), names[j], j, path) for j in label_columns])
    if not np.isin(Y[~np.isnan(Y)], (0, 1)).all():
        raise DataFormatError("a label column holds something else than 0 and 1", path)
    return Dataset(X, label_array(Y), feature_names, tuple(names[j] for j in label_columns), source=str(path))


@contextmanager
def open_parquet(path: PathLike) -> Iterator[Any]:
    """A Parquet file, read through a small buffer; faults of the file become DataFormatError."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("Parquet needs pyarrow: pip install pyarrow") from error
    with open(path, "rb") as file:
        try:
            yield pq.ParquetFile(pa.PythonFile(file, mode="r"), buffer_size=1 << 16, pre_buffer=False)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise DataFormatError(f"not a readable Parquet file ({error})", path) from error


def column_numbers(column: Any, name: str, j: int, path: PathLike) -> np.ndarray:
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataFormatError(f"column {name!r} is of type {kind}, not a number", path, column=j + 1)
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if np.isinf(values).any():
        raise DataFormatError(f"column {name!r} has an infinite value", path, column=j + 1)
    return values


def _check_names(names: list[str], drop: Sequence[str], path: PathLike) -> None:
    seen: set[str] = set()
    for j, name in enumerate(names):
        if name in seen:
            raise DataFormatError(f"column name {name!r} occurs twice", path, 1, j + 1)
        seen.add(name)
    absent = [name for name in drop if name not in seen]
    if absent:
        raise DataFormatError(f"no column is called {absent[0]!r} (to drop)", path, 1)


def numbered_rows(
    path: PathLike, delimiter: str, encoding: str, progress: Progress | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows of fields; blank lines are skipped."""
    lines = (line for _, line in text_lines(path, encoding, progress))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataFormatError(str(error), path, max(reader.line_num, 1)) from error
        if fields:
            yield start, fields
        start = reader.line_num + 1


class _Table:
    """Rows of text being turned into numbers."""

    def __init__(self, path: PathLike, names: list[str], where: LabelColumns, drop: Sequence[str]):
        self.path, self.names = path, names
        self.label_columns = where.find(names, path, 1)
        self.single = where.target is not None
        kinds = dict.fromkeys(self.label_columns, "label")
        self.features = [j for j in range(len(names)) if j not in kinds and names[j] not in drop]
        self.x, self.y = array("d"), array("d")
        self.words: list[str] = []
        self.n_rows = 0

    def add(self, line: int, fields: list[str]) -> None:
        if len(fields) != len(self.names):
            raise DataFormatError(
                f"{len(fields)} fields, but the first line has {len(self.names)}",
                self.path,
                line,
                len(fields),
            )
        self._extend(self.x, self.features, number, line, fields)
        if self.single:
            word = fields[self.label_columns[0]].strip()
            if not word:
                raise DataFormatError("the class is missing", self.path, line, self.label_columns[0] + 1)
            self.words.append(word)
        else:
            self._extend(self.y, self.label_columns, indicator, line, fields)
        self.n_rows += 1

    def _extend(self, out: array, columns: list[int], meaning: Any, line: int, fields: list[str]) -> None:
        for j in columns:
            try:
                out.append(meaning(fields[j]))
            except ValueError as error:
                raise DataFormatError(f"column {self.names[j]!r}: {error}", self.path, line, j + 1) from None

    def dataset(self, dtype: Any) -> Dataset:
        if self.n_rows == 0:
            raise DataFormatError("the file has no rows", self.path)
        X = np.array(self.x).reshape(self.n_rows, len(self.features)).astype(dtype, copy=False)
        feature_names = tuple(self.names[j] for j in self.features)
        if self.single:
            y, class_names = classes(self.words)
            return Dataset(X, y, feature_names, class_names, source=str(self.path))
        Y = label_array(np.array(self.y).reshape(self.n_rows, len(self.label_columns)))
        label_names = tuple(self.names[j] for j in self.label_columns)
        return Dataset(X, Y, feature_names, label_names, source=str(self.path))
