"""The one exception for a file that is not what it should be."""

from __future__ import annotations

import os
from typing import Any


class DataFormatError(ValueError):
    """A file does not follow its format.

    Parameters
    ----------
    message : str
        What is wrong and, where there is one, the cure.
    path : path-like, default=None
        The file.
    line : int, default=None
        1-based line of the fault.
    column : int, default=None
        1-based place in the line: the field in tables (CSV, ARFF rows, letter.data), the
        character elsewhere.
    """

    def __init__(
        self,
        message: str,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
    ):
        self.message = message
        self.path = None if path is None else os.fspath(path)
        self.line = line
        self.column = column
        where = [] if self.path is None else [self.path]
        where += [] if line is None else [f"line {line}"]
        where += [] if column is None else [f"column {column}"]
        super().__init__(f"{', '.join(where)}: {message}" if where else message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.path, self.line, self.column)
