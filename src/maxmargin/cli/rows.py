"""Tables written again: columns of DATA as they are, and the predicted labels in the place of its own."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin.cli.models import Stored

Columns = Mapping[str, Sequence[Any]]


def label_columns(stored: Stored, predicted: Any) -> dict[str, list[Any]]:
    """The predicted labels as columns: the class, lists of tags, or one 0/1 column per label."""
    if getattr(predicted, "ndim", 1) == 1:
        return {stored.target: predicted.tolist()}
    dense = predicted.toarray() if hasattr(predicted, "toarray") else predicted
    names = stored.label_names
    if stored.tags is not None:
        return {stored.tags: [[names[k] for k in row.nonzero()[0]] for row in dense]}
    return {name: column.astype(int).tolist() for name, column in zip(names, dense.T, strict=True)}


def label_column_names(stored: Stored) -> list[str]:
    """The names of these columns, which no other column may have."""
    if stored.family.task in ("multiclass", "chain") or stored.about["reading"].get("target") is not None:
        return [stored.target]
    return list(stored.label_names) if stored.tags is None else [stored.tags]


def separator_of(stored: Stored) -> str | None:
    """What stands between tags in a cell; None for a list in JSON, where a tag has a separator in it."""
    from maxmargin.io.mixed import SEPARATORS

    asked = stored.about["reading"].get("separator")
    marks = [asked] if asked else SEPARATORS
    clear = not any(mark in name or name.startswith("[") for name in stored.label_names for mark in marks)
    return (asked or SEPARATORS[0]) if clear else None


def csv_bytes(columns: Columns, *, header: bool, delimiter: str, separator: str | None) -> bytes:
    """Rows of CSV, after a line of names if that is wanted."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n", delimiter=delimiter)
    if header:
        table.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        table.writerow([csv_cell(value, separator) for value in row])
    return text.getvalue().encode()


def csv_cell(value: Any, separator: str | None = None) -> Any:
    """A value as a cell of CSV: tags with separators between, other lists in JSON."""
    if isinstance(value, list) and separator is not None and all(isinstance(tag, str) for tag in value):
        return separator.join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value


def json_line(row: Mapping[str, Any]) -> bytes:
    """A row as a JSON object; what JSON has no word for is text or null."""
    plain = {name: None if value != value else value for name, value in row.items()}
    return json.dumps(plain, ensure_ascii=False, default=str).encode() + b"\n"


class ParquetRows:
    """Writes columns piece by piece into a Parquet table, those of DATA in their own types."""

    def __init__(self, out: IO[bytes], types: Any) -> None:
        self._out, self._types = out, types
        self._writer: Any = None

    def write(self, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            fields = [self._field(pa, name, values) for name, values in columns.items()]
            self._writer = pq.ParquetWriter(pa.PythonFile(self._out, mode="w"), pa.schema(fields))
        self._writer.write_table(pa.table(dict(columns), schema=self._writer.schema))

    def _field(self, pa: Any, name: str, values: Sequence[Any]) -> Any:
        if name in self._types.names:
            return self._types.field(name)
        return pa.field(name, pa.list_(pa.string()) if isinstance(values[0], list) else pa.array(values).type)

    def close(self) -> None:
        """Write the end of the file, without which it cannot be read."""
        if self._writer is not None:
            self._writer.close()
