"""Names of labels, features and files as people may see them, whatever characters they hold."""

from __future__ import annotations

import re

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
