"""Taskar's letter.data: handwritten words, one character a line.

Columns, separated by tabs: id, letter, id of the next character (-1 at the end of a word), word
id, position, fold, then the pixels (128 of them in the original, row by row).
"""

from __future__ import annotations

from array import array

import numpy as np

from maxmargin.datasets._dataset import Dataset
from maxmargin.datasets._errors import DataFormatError
from maxmargin.datasets._files import PathLike, text_lines

_BEFORE_PIXELS = 6
_WHOLE_COLUMNS = ("id", "letter", "next_id", "word_id", "position", "fold")


def read_letter_data(path: PathLike) -> Dataset:
    """Read words of handwritten letters.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz.

    Returns
    -------
    Dataset
        One row per letter: X the 0/1 pixels (float64), Y the letter. `per_row["word"]` numbers the
        words from 0 in the order of the file, `per_row["position"]` is the place in the word from
        0 and `per_row["fold"]` the fold. `train` is fold 0 and `test` all others, as in the usual
        experiment.
    """
    pixels = bytearray()
    letters: list[str] = []
    words, positions, folds = array("q"), array("q"), array("q")
    width = 0
    ends, before = True, 0
    for line, text in text_lines(path, "utf-8"):
        fields = text.rstrip("\n\r\t ").split("\t")
        if fields == [""]:
            continue
        width = width or len(fields) - _BEFORE_PIXELS
        if width <= 0 or len(fields) - _BEFORE_PIXELS != width:
            raise DataFormatError(
                f"{len(fields)} fields, expected {_BEFORE_PIXELS} and then {max(width, 1)} pixels",
                path,
                line,
                len(fields),
            )
        whole = {
            name: _whole(fields[j], name, path, line, j) for j, name in enumerate(_WHOLE_COLUMNS) if j != 1
        }
        if len(fields[1]) != 1:
            raise DataFormatError(f"{fields[1]!r} is not one letter", path, line, 2)
        if ends:
            words.append(words[-1] + 1 if words else 0)
            positions.append(0)
        elif whole["word_id"] != before:
            raise DataFormatError("a word stops without next_id -1 in its last character", path, line, 4)
        else:
            words.append(words[-1])
            positions.append(positions[-1] + 1)
        ends, before = whole["next_id"] == -1, whole["word_id"]
        letters.append(fields[1])
        folds.append(whole["fold"])
        for j, field in enumerate(fields[_BEFORE_PIXELS:], _BEFORE_PIXELS + 1):
            if field not in ("0", "1"):
                raise DataFormatError(f"{field!r} is not a pixel (0 or 1)", path, line, j)
            pixels.append(field == "1")
    if not letters:
        raise DataFormatError("the file has no characters", path)
    if not ends:
        raise DataFormatError("the file ends within a word", path)
    X = np.frombuffer(pixels, dtype=np.uint8).reshape(len(letters), width).astype(np.float64)
    y = np.array(letters)
    fold = np.array(folds)
    return Dataset(
        X,
        y,
        tuple(f"pixel{j}" for j in range(width)),
        tuple(str(letter) for letter in np.unique(y)),
        train=np.flatnonzero(fold == 0),
        test=np.flatnonzero(fold != 0),
        source=str(path),
        per_row={"word": np.array(words), "position": np.array(positions), "fold": fold},
    )


def _whole(field: str, name: str, path: PathLike, line: int, j: int) -> int:
    digits = field.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise DataFormatError(f"{name} {field!r} is not a whole number", path, line, j + 1)
    return int(field)
