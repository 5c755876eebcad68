"""Taskar's letter.data: handwritten words, one character a line.

Columns, separated by tabs: id, letter, id of the next character (-1 at the end of a word), word
id, position, fold, then the pixels row by row (128 of them in the original).
"""

from __future__ import annotations

from array import array

import numpy as np

from maxmargin.io.dataset import DataFormatError, Dataset, PathLike
from maxmargin.io.files import Progress, text_lines

_BEFORE_PIXELS = 6
_WHOLE_COLUMNS = ("id", "letter", "next_id", "word_id", "position", "fold")


def read_letter_data(path: PathLike, *, progress: Progress | None = None) -> Dataset:
    """Read words of handwritten letters.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz.
    progress : callable, default=None
        Called now and then with (bytes read, bytes in all) of the stored file.

    Returns
    -------
    Dataset
        One row per letter: X holds the 0/1 pixels (float64), Y the letter. `per_row["word"]` is the
        number of the word in the file, `per_row["position"]` the position in the word (both from
        0), and `per_row["fold"]` the fold. `train` is fold 0 and `test` all others, as usual.
    """
    letters = Letters(path)
    for line, text in text_lines(path, "utf-8", progress):
        letters.add(line, text)
    return letters.dataset()


class Letters:
    """Collects characters; `width` is the number of pixels, 0 until the first line."""

    def __init__(self, path: PathLike, width: int = 0) -> None:
        self.path, self.width = path, width
        self.pixels = bytearray()
        self.letters: list[str] = []
        self.words, self.positions, self.folds = array("q"), array("q"), array("q")
        self.between_words, self.word_id = True, 0

    def __len__(self) -> int:
        return len(self.letters)

    def add(self, line: int, text: str) -> None:
        """Add one line."""
        fields = text.rstrip("\n\r\t ").split("\t")
        if fields == [""]:
            return
        self.width = self.width or len(fields) - _BEFORE_PIXELS
        if self.width <= 0 or len(fields) - _BEFORE_PIXELS != self.width:
            expected = f"expected {_BEFORE_PIXELS} and then {max(self.width, 1)} pixels"
            raise DataFormatError(f"{len(fields)} fields, {expected}", self.path, line, len(fields))
        whole = {name: self._whole(fields, name, line) for name in _WHOLE_COLUMNS if name != "letter"}
        if len(fields[1]) != 1:
            raise DataFormatError(f"{fields[1]!r} is not one letter", self.path, line, 2)
        if self.between_words:
            self.words.append(self.words[-1] + 1 if self.words else 0)
            self.positions.append(0)
        elif whole["word_id"] != self.word_id:
            raise DataFormatError("a word stops without next_id -1 in its last character", self.path, line, 4)
        else:
            self.words.append(self.words[-1])
            self.positions.append(self.positions[-1] + 1)
        self.between_words, self.word_id = whole["next_id"] == -1, whole["word_id"]
        self.letters.append(fields[1])
        self.folds.append(whole["fold"])
        for j, field in enumerate(fields[_BEFORE_PIXELS:], _BEFORE_PIXELS + 1):
            if field not in ("0", "1"):
                raise DataFormatError(f"{field!r} is not a pixel (0 or 1)", self.path, line, j)
            self.pixels.append(field == "1")

    def _whole(self, fields: list[str], name: str, line: int) -> int:
        j = _WHOLE_COLUMNS.index(name)
        digits = fields[j].removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise DataFormatError(f"{name} {fields[j]!r} is not a whole number", self.path, line, j + 1)
        return int(fields[j])

    def dataset(self) -> Dataset:
        """Return the collected words."""
        if not self.letters:
            raise DataFormatError("the file has no characters", self.path)
        if not self.between_words:
            raise DataFormatError("the file ends within a word", self.path)
        X = np.frombuffer(self.pixels, dtype=np.uint8).reshape(len(self), self.width).astype(np.float64)
        y = np.array(self.letters)
        fold = np.array(self.folds)
        return Dataset(
            X,
            y,
            tuple(f"pixel{j}" for j in range(self.width)),
            tuple(str(letter) for letter in np.unique(y)),
            train=np.flatnonzero(fold == 0),
            test=np.flatnonzero(fold != 0),
            source=str(self.path),
            per_row={"word": np.array(self.words), "position": np.array(self.positions), "fold": fold},
        )
