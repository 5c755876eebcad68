"""Features of a source piece by piece, in memory that does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxmargin.cli._source import ReadOptions, delimiter_of, format_of, located, part, read, reading_bar
from maxmargin.cli._stored import Stored

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset

ROWS = 4096


@contextmanager
def opened(
    stored: Stored, source: str, reading: ReadOptions
) -> Iterator[tuple[str | None, Iterator[Dataset]]]:
    """The format of a source (None for a known data set) and its pieces.

    A piece has the features in the order of the model; its labels, if any, mean nothing.
    """
    with located(source, reading) as path:
        kind = None if path is None else format_of(path, reading)
        if path is None or kind == "mail":
            yield kind, _whole(stored, source, reading)
        else:
            with reading_bar(path) as progress:
                yield kind, _streamed(stored, path, kind, reading, progress)


def _streamed(
    stored: Stored, path: Path, kind: str | None, reading: ReadOptions, progress: Any
) -> Iterator[Dataset]:
    from maxmargin.datasets import Dataset
    from maxmargin.io import pieces as _stream

    if kind == "letters":
        for data in _stream.stream_letters(path, progress=progress):
            yield part(data, reading.split, "test")
        return
    how: dict[str, Any] = {"dtype": reading.dtype, "progress": progress}
    pieces: Iterator[Any]
    if kind == "svmlight":
        pieces = _stream.stream_svmlight(path, stored.n_features, zero_based=reading.zero_based, **how)
    else:
        names = stored.feature_names
        if not names:
            raise click.UsageError(
                f"The model knows its features by number, not by name, so {path} cannot be matched; "
                "give SVMlight."
            )
        if kind in ("csv", "arff"):
            how["encoding"] = reading.encoding
        if kind == "csv":
            delimiter = delimiter_of(path, reading)
            pieces = _stream.stream_csv(path, names, header=reading.header, delimiter=delimiter, **how)
        else:
            pieces = (_stream.stream_arff if kind == "arff" else _stream.stream_parquet)(path, names, **how)
    for X in pieces:
        yield Dataset(X, X)


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
