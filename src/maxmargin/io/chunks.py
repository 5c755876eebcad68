"""Features of large files in chunks, for prediction in bounded memory; labels are ignored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.arff import Table, read_header
from maxmargin.io.dataset import DataFormatError, Dataset, PathLike
from maxmargin.io.files import Progress, text_lines
from maxmargin.io.letters import Letters
from maxmargin.io.svmlight import Rows, Rules, parsed_blocks
from maxmargin.io.table import column_numbers, field_values, number, open_csv, open_parquet
from maxmargin.io.words import no_column

ROWS = 4096


def stream_svmlight(
    path: PathLike,
    n_features: int,
    *,
    zero_based: bool = False,
    dtype: Any = np.float64,
    progress: Progress | None = None,
    header_lines: int = 0,
    n_samples: int | None = None,
) -> Iterator[sp.csr_array]:
    """Yield CSR matrices of about a MiB of text each; arguments as in `read_svmlight`."""
    largest = float(np.finfo(dtype).max)
    rules = Rules(path, True, None, n_features, 0 if zero_based else 1, largest, header_lines, n_samples)
    for part in parsed_blocks(rules, progress):
        rows = Rows.of(dtype)
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
    progress: Progress | None = None,
) -> Iterator[np.ndarray]:
    """Yield matrices of up to 4096 rows with the given columns only, in the given order."""
    names, rows = open_csv(path, header, delimiter, encoding, progress)
    chosen = _positions(columns, names, path)
    found: list[list[float]] = []
    for line, fields in rows:
        found.append(field_values(line, fields, names, chosen, path, number))
        if len(found) == ROWS:
            yield np.array(found, dtype=dtype)
            found = []
    if found:
        yield np.array(found, dtype=dtype)


def stream_arff(
    path: PathLike,
    columns: Sequence[str],
    *,
    encoding: str = "utf-8",
    dtype: Any = np.float64,
    progress: Progress | None = None,
) -> Iterator[Any]:
    """Yield matrices of up to 4096 rows with the given features only, in the given order, dense or CSR."""
    lines = text_lines(path, encoding, progress)
    header = read_header(path, lines)
    wanted = set(columns)
    ignored = [
        attribute.name
        for attribute in header.attributes
        if attribute.name not in wanted
        and not any(f"{attribute.name}={value}" in wanted for value in attribute.values or ())
    ]
    table = Table(header, [], False, ignored)
    chosen = _positions(columns, table.feature_names, path)
    for X in table.feature_batches(lines, ROWS, dtype):
        yield X if chosen == list(range(X.shape[1])) else X[:, chosen]


def stream_parquet(
    path: PathLike, columns: Sequence[str], *, dtype: Any = np.float64, progress: Progress | None = None
) -> Iterator[np.ndarray]:
    """Yield matrices of up to 4096 rows with the given columns only, in the given order.

    `progress` is called with (rows read, rows in all).
    """
    with open_parquet(path) as file:
        names = [str(name) for name in file.schema_arrow.names]
        positions = _positions(columns, names, path)
        done, total = 0, file.metadata.num_rows
        for batch in file.iter_batches(ROWS, columns=list(columns), use_threads=False):
            X = np.empty((batch.num_rows, len(columns)), dtype=dtype)
            for k, (name, j) in enumerate(zip(columns, positions, strict=True)):
                X[:, k] = column_numbers(batch.column(name), name, j, path)
            yield X
            done += batch.num_rows
            if progress is not None:
                progress(done, total)


def stream_letters(path: PathLike, *, progress: Progress | None = None) -> Iterator[Dataset]:
    """Yield data sets of whole words, with about 4096 letters each."""
    letters = Letters(path)
    for line, text in text_lines(path, "utf-8", progress):
        letters.add(line, text)
        if letters.between_words and len(letters) >= ROWS:
            yield letters.dataset()
            letters = Letters(path, letters.width)
    if len(letters):
        yield letters.dataset()


def _positions(columns: Iterable[str], names: Sequence[str], path: PathLike) -> list[int]:
    position = {name: j for j, name in enumerate(names)}
    absent = [name for name in columns if name not in position]
    if absent:
        raise DataFormatError(no_column(absent, names), path, 1)
    return [position[name] for name in columns]
