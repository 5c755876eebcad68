"""Features of large files piece by piece, for prediction in bounded memory. Labels are skipped."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.datasets._columns import number
from maxmargin.datasets._csv import _rows
from maxmargin.datasets._errors import DataFormatError
from maxmargin.datasets._files import PathLike, Progress
from maxmargin.datasets._svmlight import _blocks, _parse_block, _parse_slowly, _Rows, _Rules

ROWS = 4096


def stream_svmlight(
    path: PathLike,
    n_features: int,
    *,
    zero_based: bool = False,
    dtype: Any = np.float64,
    progress: Progress | None = None,
) -> Iterator[sp.csr_array]:
    """CSR matrices of about a MiB of text each.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz; its lines may have labels or none.
    n_features : int
        Number of columns; a larger index is an error.
    zero_based, dtype, progress
        As in `read_svmlight`.
    """
    rules = _Rules(path, True, None, n_features, 0 if zero_based else 1, float(np.finfo(dtype).max))
    for first_line, block in _blocks(path, progress):
        try:
            part = _parse_block(block, rules)
        except (ValueError, OverflowError):
            part = _parse_slowly(block, rules, first_line)
        rows = _Rows(array("d" if dtype == np.float64 else "f"))
        rows.extend(part)
        if len(rows.sizes):
            yield rows.matrix(n_features)


def stream_csv(
    path: PathLike,
    columns: Sequence[str],
    *,
    header: bool = True,
    delimiter: str = ",",
    encoding: str = "utf-8",
    dtype: Any = np.float64,
) -> Iterator[np.ndarray]:
    """Matrices of up to 4096 rows with the named columns, in that order; other columns are ignored.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz.
    columns : sequence of str
        Names in the first line, or c0, c1, ... for a file without header.
    header, delimiter, encoding, dtype
        As in `read_csv`.
    """
    rows = _rows(path, delimiter, encoding)
    first = next(rows, None)
    if first is None:
        raise DataFormatError("the file is empty", path)
    names = [word.strip() for word in first[1]] if header else [f"c{j}" for j in range(len(first[1]))]
    position = {name: j for j, name in enumerate(names)}
    absent = [name for name in columns if name not in position]
    if absent:
        raise DataFormatError(f"no column is called {absent[0]!r} ({len(absent)} absent)", path, 1)
    chosen = [position[name] for name in columns]
    found: list[list[float]] = [] if header else [_numbers(*first, names, chosen, path)]
    for line, fields in rows:
        found.append(_numbers(line, fields, names, chosen, path))
        if len(found) == ROWS:
            yield np.array(found, dtype=dtype)
            found = []
    if found:
        yield np.array(found, dtype=dtype)


def _numbers(
    line: int, fields: list[str], names: list[str], chosen: list[int], path: PathLike
) -> list[float]:
    if len(fields) != len(names):
        raise DataFormatError(
            f"{len(fields)} fields, but the first line has {len(names)}", path, line, len(fields)
        )
    values = []
    for j in chosen:
        try:
            values.append(number(fields[j]))
        except ValueError as error:
            raise DataFormatError(f"column {names[j]!r}: {error}", path, line, j + 1) from None
    return values
