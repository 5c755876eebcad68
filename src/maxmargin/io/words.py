"""Names of labels, features and files as people may see them, whatever characters they hold."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

# How many names of columns a message shows.
SHOWN = 8
# Control characters (the start of an ANSI escape among them), line separators, characters that turn the
# direction of text, and halves of characters, which stand for bytes of file names that are no text.
_ACTS = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(words: str) -> str:
    r"""Text in which characters that would act instead of being seen stand as their escapes.

    Examples
    --------
    >>> from maxmargin.io.words import visible
    >>> print(visible("red \x1b[31mroses\n"))
    red \x1b[31mroses\n
    """
    return _ACTS.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), words)


def no_column(absent: Sequence[str], there: Iterable[str]) -> str:
    """That columns are absent, and what the one that was meant may be called.

    Examples
    --------
    >>> from maxmargin.io.words import no_column
    >>> print(no_column(["tag"], ["name", "tags"]))
    no column is called 'tag' (1 absent); did you mean 'tags'?
    """
    names = list(there)
    near = difflib.get_close_matches(absent[0], names, n=1)
    more = ", ..." if len(names) > SHOWN else ""
    cure = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, names[:SHOWN]))}{more}"
    return f"no column is called {absent[0]!r} ({len(absent)} absent); {cure}"
