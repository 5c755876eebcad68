"""What a reader makes of a file stays in proportion to it.

One word of a file may stand for many entries: a nominal value for a column each, a run for its length. A
reader counts both, and refuses a file whose entries are far more than its words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxmargin.io.atomic import PathLike
from maxmargin.io.dataset import DataFormatError

# Entries of an array that a word of a file may stand for on average, of 8 bytes or so each; and how many
# entries are fine for any file.
PER_WORD, FREE = 32, 1 << 22


def in_proportion(made: int, given: int) -> bool:
    """Whether `made` entries are in proportion to the `given` words of a file."""
    return made <= FREE + PER_WORD * given


def check_proportion(
    made: int, given: int, words: str, why: str, path: PathLike, line: int | None = None
) -> None:
    """Refuse more entries than the words (cells, letters) of a file may stand for; `why` has the cure."""
    if not in_proportion(made, given):
        raise DataFormatError(f"{given:,} {words} stand for {made:,}, out of proportion: {why}", path, line)


def word_array(words: Sequence[str]) -> np.ndarray:
    """Words as an array of fixed width, or of objects where a few long ones would make it far too wide.

    Examples
    --------
    >>> from maxmargin.io.proportion import word_array
    >>> word_array(["red", "blue"]).dtype, word_array(["red"] * 10_000 + ["blue" * 10_000]).dtype
    (dtype('<U4'), dtype('O'))
    """
    wide = len(words) * max(map(len, words), default=0)
    letters = len(words) + sum(map(len, set(words)))
    return np.array(words, dtype=str if in_proportion(wide, letters) else object)
