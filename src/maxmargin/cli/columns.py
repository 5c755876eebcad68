"""What the columns of a training table are taken for, and which of them look like something else."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from maxmargin.cli.console import say

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset

# Rows from which on whole numbers that only grow are a counter, if they leave some out.
GROWING = 30
# Rows that tell of most columns that they count nothing.
FEW = 10
# Words that may be numbers written in another way: digits with marks, a sign, a currency or a percent.
_LIKE_NUMBER = re.compile(r"[-+]?\s*[$€£]?\s*\d[\d.,' ]*\s*[$€£%]?")
_DECIMAL = re.compile(r"[-+]?\d*([.,])\d+")
# The option that says that a column is of a kind of words.
PLURALS = {"category": "categories", "text": "text"}
_LIKE_ID = re.compile(r"\S*\d\S*")


def tell_kinds(data: Dataset, told: Mapping[str, str]) -> None:
    """Print what the columns were taken for, and which ones look like something else."""
    kinds = data.extras["columns"]
    groups = [
        (kind, [name for name, own in kinds.items() if own == kind])
        for kind in ("number", "category", "text", "date")
    ]
    words = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in groups if names)
    if words:
        say(f"Columns by kind: {words}. (--numbers, --categories, --text and --drop say otherwise.)")
    warn_of_columns(data, kinds, told)


def warn_of_columns(data: Dataset, kinds: Mapping[str, str], told: Mapping[str, str]) -> None:
    """Warn of columns of training data that are probably no features as they are."""
    for j, name in enumerate(data.feature_names):
        values = data.X[:, j]
        kind = kinds.get(name, "number")
        for line in _doubts(name, values, kind, name in told):
            say(line, logging.WARNING)


def _doubts(name: str, values: Any, kind: str, told: bool) -> Iterator[str]:
    if kind == "number":
        if not told and _counts_rows(values):
            yield f"column {name!r} counts the rows; --drop {name} leaves it out."
        return
    if kind == "date":
        return
    known = [value for value in values.tolist() if value]
    different = len(set(known))
    if told:
        if kind == "category" and len(known) > 2 and 2 * different > len(known):
            yield (
                f"column {name!r} has {different} different values in {len(known)} rows; as a category each "
                "of them is a feature of its own."
            )
        return
    like_numbers = [word for word in known if _LIKE_NUMBER.fullmatch(word.strip())]
    if 2 * len(like_numbers) > len(known):
        mark = _DECIMAL.fullmatch(like_numbers[0].strip())
        cure = f"--decimal {mark[1]} reads it as one" if mark else "write it as 1234.5"
        yield (
            f"column {name!r} is taken for a {kind}, but {like_numbers[0]!r} looks like a number; {cure}, "
            f"--{PLURALS[kind]} {name} keeps it."
        )
    elif different == len(known) > 2 and all(map(_LIKE_ID.fullmatch, known)):
        yield f"column {name!r} has another word in every row; --drop {name} leaves it out."


def _counts_rows(values: Any) -> bool:
    """Whether numbers go up by one from row to row, or are many whole ones that only go up."""
    import numpy as np

    if not (np.diff(values[:FEW].astype(float)) > 0).all():
        return False
    numbers = values.astype(float)
    steps = np.diff(numbers)
    if len(numbers) > 2 and (steps == 1).all():
        return True
    return len(numbers) >= GROWING and bool((steps > 0).all() and (numbers == np.floor(numbers)).all())
