"""Rows of ARFF turned into arrays.

How attributes become columns is told in `_arff`.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.arff_syntax import Attribute, Header, Lines, Scanner, fields
from maxmargin.io.columns import classes, indicator, number
from maxmargin.io.dataset import Dataset
from maxmargin.io.errors import DataFormatError
from maxmargin.io.files import PathLike

_INDEX = re.compile(r"[0-9]{1,9}")
_TRUE_WORDS = {"yes", "true", "y", "t", "1"}
_FALSE_WORDS = {"no", "false", "n", "f", "0"}


class Table:
    """Rows being turned into arrays: each attribute knows its first column and its values' codes."""

    def __init__(
        self, path: PathLike, header: Header, label_columns: list[int], single: bool, drop: Sequence[str]
    ):
        self.path, self.attributes, self.single = path, header.attributes, single
        self.label_columns = label_columns
        labels = {j: k for k, j in enumerate(label_columns)}
        self.encoders: list[_Encoder] = []
        self.feature_names: list[str] = []
        for j, attribute in enumerate(header.attributes):
            if j in labels:
                encoder = _label_encoder(attribute, labels[j], single)
                self._check_label(attribute, encoder, header.data_line)
            elif attribute.name in drop:
                encoder = _Encoder("drop", 0, number)
            else:
                feature = _feature_encoder(attribute, len(self.feature_names))
                if feature is None:
                    raise DataFormatError(
                        f"attribute {attribute.name!r} of type {attribute.kind} cannot be a feature; "
                        f"pass drop=[{attribute.name!r}]",
                        path,
                        header.data_line,
                    )
                encoder = feature
                self.feature_names += encoder.names(attribute)
            self.encoders.append(encoder)
        self.sparse: bool | None = None
        self.words: list[str] = []
        self.x: _SparseMatrix | _DenseMatrix
        self.y: _SparseMatrix | _DenseMatrix

    def _check_label(self, attribute: Attribute, encoder: _Encoder, line: int) -> None:
        try:
            for value in attribute.values or ():
                encoder.check(value)
        except ValueError as error:
            raise DataFormatError(f"label {attribute.name!r}: {error}", self.path, line) from None

    def read(self, lines: Lines) -> None:
        for number_, raw in lines:
            self.add(number_, raw)
        if self.sparse is None:
            raise DataFormatError("the file has no rows after @data", self.path)

    def features_by_pieces(self, lines: Lines, rows: int, dtype: Any) -> Iterator[Any]:
        """Matrices of the features of up to `rows` rows each."""
        for number_, raw in lines:
            self.add(number_, raw)
            if self.sparse is not None and self.x.n_rows == rows:
                yield self.x.matrix(len(self.feature_names), dtype)
                self._begin(self.sparse)
        if self.sparse is not None and self.x.n_rows:
            yield self.x.matrix(len(self.feature_names), dtype)

    def add(self, number_: int, raw: str) -> None:
        """Take one line of the data section."""
        line = raw.strip()
        if not line or line.startswith("%"):
            return
        is_sparse = line.startswith("{")
        if self.sparse is None:
            self.defaults = self._sparse_defaults() if is_sparse else []
            self._begin(is_sparse)
        elif self.sparse != is_sparse:
            raise DataFormatError("dense and sparse rows are mixed", self.path, number_, 1)
        self.x.new_row()
        self.y.new_row()
        if is_sparse:
            self._sparse_row(line, number_)
        else:
            self._dense_row(line, number_)

    def _begin(self, sparse: bool) -> None:
        self.sparse = sparse
        self.x = _SparseMatrix() if sparse else _DenseMatrix(len(self.feature_names))
        self.y = _SparseMatrix() if sparse else _DenseMatrix(len(self.label_columns))

    def _dense_row(self, line: str, number_: int) -> None:
        words = fields(line, Scanner(line, self.path, number_))
        if len(words) != len(self.encoders):
            raise DataFormatError(
                f"{len(words)} values for {len(self.encoders)} attributes", self.path, number_, len(words)
            )
        for j, (encoder, word) in enumerate(zip(self.encoders, words, strict=True)):
            self._put(j, encoder, word, number_, j + 1)

    def _sparse_row(self, line: str, number_: int) -> None:
        scan = Scanner(line, self.path, number_)
        given: set[int] = set()
        for place, (digits, word) in enumerate(_plain_pairs(line) or _scanned_pairs(scan), 1):
            if not _INDEX.fullmatch(digits) or int(digits) >= len(self.encoders):
                raise scan.error(f"{digits!r} is not the number of an attribute", place - 1)
            j = int(digits)
            if j in given:
                raise scan.error(f"attribute {j} occurs twice in the row", place - 1)
            given.add(j)
            self._put(j, self.encoders[j], word, number_, place)
        for j, word in self.defaults:
            if j not in given:
                self._put(j, self.encoders[j], word, number_, 1)

    def _sparse_defaults(self) -> list[tuple[int, str]]:
        """Attributes whose value, when left out of a sparse row, is not a plain zero."""
        found = []
        for j, (attribute, encoder) in enumerate(zip(self.attributes, self.encoders, strict=True)):
            word = attribute.values[0] if attribute.values else "0"
            if encoder.kind != "drop" and (encoder.kind in ("class", "onehot") or encoder.encode(word) != 0):
                found.append((j, word))
        return found

    def _put(self, j: int, encoder: _Encoder, word: str, number_: int, column: int) -> None:
        kind = encoder.kind
        if kind == "drop":
            return
        try:
            if kind == "class":
                self.words.append(encoder.check(word))
                return
            value = encoder.encode(word)
        except ValueError as error:
            name = self.attributes[j].name
            raise DataFormatError(f"attribute {name!r}: {error}", self.path, number_, column) from None
        if kind == "onehot":
            if value != value:
                for k in range(encoder.width):
                    self.x.add(encoder.column + k, math.nan)
            else:
                self.x.add(encoder.column + int(value), 1.0)
        elif value != 0:
            (self.y if kind == "label" else self.x).add(encoder.column, value)

    def dataset(self, dtype: Any, extras: dict[str, Any]) -> Dataset:
        X = self.x.matrix(len(self.feature_names), dtype)
        Y: Any
        if self.single:
            Y, label_names = classes(self.words)
        else:
            Y = self.y.matrix(len(self.label_columns), np.float64)
            complete = not np.isnan(Y.data if self.sparse else Y).any()
            Y = Y.astype(np.int32) if complete else Y
            label_names = tuple(self.attributes[j].name for j in self.label_columns)
        return Dataset(
            X, Y, tuple(self.feature_names), label_names, source=str(Path(self.path)), extras=extras
        )


def _plain_pairs(line: str) -> list[list[str]] | None:
    """The pairs of a sparse row without quotes or anything else out of the ordinary."""
    if "'" in line or '"' in line or not line.endswith("}"):
        return None
    pairs = [pair.split() for pair in line[1:-1].split(",")]
    return pairs if all(len(pair) == 2 for pair in pairs) and "}" not in line[:-1] else None


def _scanned_pairs(scan: Scanner) -> list[tuple[str, str]]:
    """The pairs of any sparse row, read character by character."""
    pairs: list[tuple[str, str]] = []
    scan.at = 1
    scan.skip()
    while scan.peek() != "}":
        digits = scan.word("an attribute's number", stop=" \t,}")
        pairs.append((digits, scan.word("a value", stop=",}")))
        scan.skip()
        if scan.peek() == ",":
            scan.at += 1
            scan.skip()
        elif scan.peek() != "}":
            raise scan.error("',' or '}' expected")
    scan.at += 1
    scan.end()
    return pairs


@dataclass
class _Encoder:
    kind: str  # "feature", "onehot", "label", "class" or "drop"
    column: int
    encode: Callable[[str], float]
    width: int = 1

    def check(self, word: str) -> str:
        if math.isnan(self.encode(word)):
            raise ValueError("the value is missing")
        return word

    def names(self, attribute: Attribute) -> list[str]:
        if self.kind == "onehot":
            assert attribute.values is not None
            return [f"{attribute.name}={value}" for value in attribute.values]
        return [attribute.name]


def _feature_encoder(attribute: Attribute, column: int) -> _Encoder | None:
    if attribute.kind == "numeric":
        return _Encoder("feature", column, number)
    if attribute.values is None:
        return None
    if len(attribute.values) > 2:
        codes = _Codes(attribute.values, range(len(attribute.values)))
        return _Encoder("onehot", column, codes, len(attribute.values))
    return _Encoder("feature", column, _Codes(attribute.values, _two_values(attribute.values)))


def _label_encoder(attribute: Attribute, column: int, single: bool) -> _Encoder:
    if single:
        known = _Codes(attribute.values, range(len(attribute.values))) if attribute.values else number
        return _Encoder("class", column, known)
    return _Encoder("label", column, indicator)


def _two_values(values: Sequence[str]) -> Sequence[int]:
    """Codes of a nominal attribute of one or two values: 1 for the one that means yes."""
    words = [value.lower() for value in values]
    if len(words) == 2 and words[0] in _TRUE_WORDS and words[1] in _FALSE_WORDS:
        return (1, 0)
    return range(len(values))


class _Codes:
    """A nominal value's code, NaN for a missing one."""

    def __init__(self, values: Sequence[str], codes: Sequence[int]):
        self.codes = {"?": math.nan, **dict(zip(values, map(float, codes), strict=True))}

    def __call__(self, word: str) -> float:
        try:
            return self.codes[word]
        except KeyError:
            raise ValueError(f"{word!r} is not one of its values") from None


class _SparseMatrix:
    """Nonzero entries of a matrix, collected row by row."""

    def __init__(self) -> None:
        self.rows, self.columns, self.values = array("i"), array("i"), array("d")
        self.n_rows = 0

    def new_row(self) -> None:
        self.n_rows += 1

    def add(self, column: int, value: float) -> None:
        self.rows.append(self.n_rows - 1)
        self.columns.append(column)
        self.values.append(value)

    def matrix(self, width: int, dtype: Any) -> sp.csr_array:
        entries = np.array(self.values).astype(dtype), (np.array(self.rows), np.array(self.columns))
        return sp.csr_array(entries, shape=(self.n_rows, width))


class _DenseMatrix:
    """A matrix filled row by row."""

    def __init__(self, width: int) -> None:
        self.values = array("d")
        self.empty_row = bytes(self.values.itemsize * width)
        self.n_rows = 0

    def new_row(self) -> None:
        self.n_rows += 1
        self.start = len(self.values)
        self.values.frombytes(self.empty_row)

    def add(self, column: int, value: float) -> None:
        self.values[self.start + column] = value

    def matrix(self, width: int, dtype: Any) -> np.ndarray:
        return np.array(self.values).reshape(self.n_rows, width).astype(dtype, copy=False)
