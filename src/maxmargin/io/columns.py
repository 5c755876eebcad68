"""Tables to arrays: which columns are labels, what a field means.

Shared by the table formats (CSV, Parquet, ARFF).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxmargin.io.errors import DataFormatError
from maxmargin.io.files import PathLike

_YES = {"1", "1.0", "yes", "true", "y", "t"}
_NO = {"0", "0.0", "-1", "-1.0", "no", "false", "n", "f"}
_MISSING = {"", "?", "nan"}
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class LabelColumns:
    """Which columns of a table hold the labels; exactly one of the three is given.

    Attributes
    ----------
    target : str or int or None
        One column with the class of each sample: its name or position (from the end if negative).
    labels : sequence of str, or int, or None
        One 0/1 column per label: their names, or how many of the last columns (negative: of the
        first columns).
    prefix : str or None
        One 0/1 column per label: those whose name starts so.
    """

    target: str | int | None = None
    labels: Sequence[str] | int | None = None
    prefix: str | None = None

    def __post_init__(self) -> None:
        given = [self.target is not None, self.labels is not None, self.prefix is not None]
        if sum(given) != 1:
            raise ValueError("Say where the labels are: give exactly one of target, labels and label_prefix.")
        if isinstance(self.labels, str):
            raise ValueError("labels must be a list of column names or a number of columns, not one string.")

    def find(self, names: Sequence[str], path: PathLike, line: int | None = None) -> list[int]:
        """Positions of the label columns among `names`, in the order of the file."""
        if self.target is not None:
            return [self._target(names, path, line)]
        if self.prefix is not None:
            found = [j for j, name in enumerate(names) if name.startswith(self.prefix)]
            if not found:
                raise DataFormatError(f"no column starts with {self.prefix!r}", path, line)
            return found
        assert self.labels is not None and not isinstance(self.labels, str)
        if isinstance(self.labels, int):
            count = abs(self.labels)
            if not 0 < count <= len(names):
                raise DataFormatError(f"cannot take {count} label columns of {len(names)}", path, line)
            every = list(range(len(names)))
            return every[-count:] if self.labels > 0 else every[:count]
        position = {name: j for j, name in enumerate(names)}
        absent = [name for name in self.labels if name not in position]
        if absent:
            raise DataFormatError(f"no column is called {absent[0]!r} ({len(absent)} absent)", path, line)
        return sorted({position[name] for name in self.labels})

    def _target(self, names: Sequence[str], path: PathLike, line: int | None) -> int:
        if isinstance(self.target, str):
            if self.target not in names:
                raise DataFormatError(f"no column is called {self.target!r}", path, line)
            return names.index(self.target)
        assert self.target is not None
        if not -len(names) <= self.target < len(names):
            raise DataFormatError(f"there is no column {self.target} among {len(names)}", path, line)
        return self.target % len(names)


def number(field: str) -> float:
    """A finite number, or NaN for a missing one; ValueError otherwise.

    Stricter than float(): no underscores, no infinities, no digits beyond ASCII.
    """
    try:
        value = float(field)
    except ValueError:
        if field.strip() in _MISSING:
            return math.nan
        raise ValueError(f"{field!r} is not a number") from None
    if not math.isfinite(value):
        if value != value and field.strip().lower() == "nan":
            return value
        raise ValueError(f"{field!r} is not a finite number")
    if "_" in field or not field.isascii():
        raise ValueError(f"{field!r} is not a number")
    return value


def indicator(field: str) -> float:
    """0 or 1 for a label entry, NaN for a missing one; ValueError otherwise."""
    word = field.strip().lower()
    if word in _YES:
        return 1.0
    if word in _NO:
        return 0.0
    if word in _MISSING:
        return math.nan
    raise ValueError(f"{field!r} is not a label entry (0 or 1)")


def label_array(Y: np.ndarray) -> np.ndarray:
    """Integers when nothing is missing, float with NaN otherwise."""
    return Y if np.isnan(Y).any() else Y.astype(np.int32)


def classes(words: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each sample, as int64 where every one is a plain whole number, and the class names."""
    y = np.array(words)
    if all(_WHOLE.fullmatch(word) for word in words):
        y = y.astype(np.int64)
    return y, tuple(str(name) for name in np.unique(y))
