"""Names of labels, features and files in messages, whatever characters they contain."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

# Number of column names in a message.
SHOWN = 8
# Control characters (such as the start of an ANSI escape), line separators, characters that change the
# direction of text, and surrogates (bytes of file names that are not text).
_CONTROL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(words: str) -> str:
    r"""Return the text with control characters written as escapes.

    Examples
    --------
    >>> from maxmargin.io.words import visible
    >>> print(visible("red \x1b[31mroses\n"))
    red \x1b[31mroses\n
    """
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), words)


def number(value: Any) -> str:
    """Format a number with four digits, or a word with control characters escaped; None is empty.

    Examples
    --------
    >>> from maxmargin.io.words import number
    >>> number(0.123456), number(0.000123)
    ('0.1235', '1.2e-04')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    return visible(str(value))


def no_column(absent: Sequence[str], present: Iterable[str]) -> str:
    """Return a message about absent columns, with the closest name or the first names that are present.

    Examples
    --------
    >>> from maxmargin.io.words import no_column
    >>> print(no_column(["tag"], ["name", "tags"]))
    no column is called 'tag' (1 absent); did you mean 'tags'?
    """
    names = list(present)
    near = difflib.get_close_matches(absent[0], names, n=1)
    more = ", ..." if len(names) > SHOWN else ""
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, names[:SHOWN]))}{more}"
    return f"no column is called {absent[0]!r} ({len(absent)} absent); {hint}"
