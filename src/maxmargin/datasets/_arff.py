"""ARFF as Weka, Mulan and MEKA write it, dense and sparse, with the label XML of Mulan.

A nominal feature of two values becomes one 0/1 column (1 for the word that means yes, otherwise
for the second value); one of more values becomes one 0/1 column per value. In a sparse row an
attribute that is left out has the value 0 or, if nominal, its first declared value; that is how
Weka defines it.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.datasets._arff_syntax import Attribute, Header, Lines, Scanner, fields, read_header, unescape
from maxmargin.datasets._columns import LabelColumns, classes, indicator, label_array, number
from maxmargin.datasets._dataset import Dataset
from maxmargin.datasets._errors import DataFormatError
from maxmargin.datasets._files import PathLike, text_lines
from maxmargin.datasets._xml import LabelTree, read_label_xml

_MEKA = re.compile(r"-[cC]\s+(-?[0-9]+)")
_INDEX = re.compile(r"[0-9]{1,9}")
_TRUE_WORDS = {"yes", "true", "y", "t", "1"}
_FALSE_WORDS = {"no", "false", "n", "f", "0"}


def read_mulan(
    arff: PathLike,
    xml: PathLike,
    *,
    drop: Sequence[str] = (),
    encoding: str = "utf-8",
    dtype: Any = np.float64,
) -> Dataset:
    """Read a Mulan data set: an ARFF file and the XML file that names its labels.

    Parameters
    ----------
    arff, xml : path-like
        The two files, plain or packed as .xz or .gz. Labels may stand in any column; Y has them in
        the order of the ARFF file. `extras["label_parents"]` holds, for nested labels, the column
        of each label's parent or -1.
    drop : sequence of str, default=()
        Attributes to leave out, such as identifiers.
    encoding : str, default="utf-8"
        Encoding of the ARFF file.
    dtype : {float64, float32}, default=float64
        Type of the features.
    """
    tree = read_label_xml(xml)
    data = _read(arff, tree, drop, encoding, dtype)
    position = {name: k for k, name in enumerate(data.label_names)}
    column = [position[data.extras["labels_in_xml_order"][k]] for k in range(len(tree.names))]
    parents = np.full(len(column), -1)
    for k, parent in enumerate(tree.parents):
        if parent >= 0:
            parents[column[k]] = column[parent]
    return Dataset(
        data.X,
        data.Y,
        data.feature_names,
        data.label_names,
        source=data.source,
        extras={"label_parents": parents},
    )


def read_arff(
    path: PathLike,
    *,
    target: str | int | None = None,
    labels: Sequence[str] | int | str | None = None,
    label_prefix: str | None = None,
    drop: Sequence[str] = (),
    encoding: str = "utf-8",
    dtype: Any = np.float64,
) -> Dataset:
    """Read an ARFF file whose label columns are told by exactly one of the first three arguments.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz.
    target : str or int, default=None
        One attribute that holds the class of each sample: its name or position.
    labels : list of str, int or "meka", default=None
        One 0/1 attribute per label: their names, how many of the last attributes (negative: of the
        first), or "meka" for the `-C` option in the relation's name.
    label_prefix : str, default=None
        One 0/1 attribute per label: those whose name starts so.
    drop, encoding, dtype
        As in `read_mulan`.

    Returns
    -------
    Dataset
        X and an indicator Y are dense, or CSR when the rows of the file are sparse.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.arff"
    >>> _ = path.write_text('''@relation tiny
    ... @attribute 'body size' numeric
    ... @attribute colour {red, green, blue}
    ... @attribute sweet {0, 1}
    ... @data
    ... 1.5, green, 1
    ... ?, red, 0
    ... ''')
    >>> data = read_arff(path, labels=["sweet"])
    >>> data.feature_names
    ('body size', 'colour=red', 'colour=green', 'colour=blue')
    >>> data.X.tolist(), data.Y.tolist()
    ([[1.5, 0.0, 1.0, 0.0], [nan, 1.0, 0.0, 0.0]], [[1], [0]])
    """
    if labels == "meka":
        if target is not None or label_prefix is not None:
            raise ValueError("Say where the labels are: give exactly one of target, labels and label_prefix.")
        return _read(path, "meka", drop, encoding, dtype)
    return _read(path, LabelColumns(target, labels, label_prefix), drop, encoding, dtype)


def _read(
    path: PathLike, where: LabelColumns | LabelTree | str, drop: Sequence[str], encoding: str, dtype: Any
) -> Dataset:
    lines = text_lines(path, encoding)
    header = read_header(path, lines)
    names = [attribute.name for attribute in header.attributes]
    absent = [name for name in drop if name not in names]
    if absent:
        raise DataFormatError(f"no attribute is called {absent[0]!r} (to drop)", path, header.data_line)
    in_xml_order: list[str] = []
    if isinstance(where, LabelTree):
        found = _match(where.names, names, path, header.data_line)
        in_xml_order = [names[j] for j in found]
        label_columns = sorted(found)
    else:
        where = _meka_columns(header, path) if isinstance(where, str) else where
        label_columns = where.find(names, path, header.data_line)
    table = _Table(
        path, header, label_columns, isinstance(where, LabelColumns) and where.target is not None, drop
    )
    table.read(lines)
    return table.dataset(dtype, {"labels_in_xml_order": in_xml_order} if in_xml_order else {})


def _meka_columns(header: Header, path: PathLike) -> LabelColumns:
    option = _MEKA.search(header.relation)
    if option is None:
        raise DataFormatError("the relation's name has no MEKA option -C n", path, 1)
    return LabelColumns(labels=-int(option.group(1)))  # MEKA counts from the front, negative from the end


def _match(wanted: Sequence[str], names: list[str], path: PathLike, line: int) -> list[int]:
    """Positions of the labels of the XML; a backslash before a quote may stand in either file."""
    exact = {name: j for j, name in enumerate(names)}
    loose = {unescape(name): j for j, name in enumerate(names)}
    found = []
    for name in wanted:
        position = exact.get(name, loose.get(unescape(name)))
        if position is None:
            raise DataFormatError(f"label {name!r} of the XML file is not an attribute", path, line)
        found.append(position)
    if len(set(found)) < len(found):
        raise DataFormatError("two labels of the XML file name the same attribute", path, line)
    return found


class _Table:
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
        self.n_rows = 0
        self.words: list[str] = []
        self.x = _Entries()
        self.y = _Entries()

    def _check_label(self, attribute: Attribute, encoder: _Encoder, line: int) -> None:
        try:
            for value in attribute.values or ():
                encoder.check(value)
        except ValueError as error:
            raise DataFormatError(f"label {attribute.name!r}: {error}", self.path, line) from None

    def read(self, lines: Lines) -> None:
        for number_, raw in lines:
            line = raw.strip()
            if not line or line.startswith("%"):
                continue
            is_sparse = line.startswith("{")
            if self.sparse is None:
                self.sparse = is_sparse
                self.defaults = self._sparse_defaults() if is_sparse else []
            elif self.sparse != is_sparse:
                raise DataFormatError("dense and sparse rows are mixed", self.path, number_, 1)
            self._sparse_row(line, number_) if is_sparse else self._dense_row(line, number_)
            self.n_rows += 1
        if self.n_rows == 0:
            raise DataFormatError("the file has no rows after @data", self.path)

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
                    self.x.add(self.n_rows, encoder.column + k, math.nan)
            else:
                self.x.add(self.n_rows, encoder.column + int(value), 1.0)
        elif value != 0:
            (self.y if kind == "label" else self.x).add(self.n_rows, encoder.column, value)

    def dataset(self, dtype: Any, extras: dict[str, Any]) -> Dataset:
        assert self.sparse is not None
        X = self.x.array((self.n_rows, len(self.feature_names)), self.sparse, dtype)
        Y: Any
        if self.single:
            Y, label_names = classes(self.words)
        else:
            Y = self.y.array((self.n_rows, len(self.label_columns)), self.sparse, np.float64)
            complete = not np.isnan(Y.data if self.sparse else Y).any()
            Y = (Y.astype(np.int32) if complete else Y) if self.sparse else label_array(Y)
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


class _Entries:
    """Nonzero entries of a matrix, collected row by row."""

    def __init__(self) -> None:
        self.rows, self.columns, self.values = array("q"), array("q"), array("d")

    def add(self, row: int, column: int, value: float) -> None:
        self.rows.append(row)
        self.columns.append(column)
        self.values.append(value)

    def array(self, shape: tuple[int, int], sparse: bool, dtype: Any) -> Any:
        values = np.array(self.values).astype(dtype)
        rows, columns = np.array(self.rows, dtype=np.int32), np.array(self.columns, dtype=np.int32)
        if sparse:
            return sp.csr_array((values, (rows, columns)), shape=shape)
        dense = np.zeros(shape, dtype=dtype)
        dense[rows, columns] = values
        return dense
