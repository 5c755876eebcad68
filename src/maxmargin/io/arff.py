"""ARFF as Weka, Mulan and MEKA write it, dense and sparse, with the label XML of Mulan.

A nominal feature of two values becomes one 0/1 column (1 for the word that means yes, otherwise
for the second value); one of more values becomes one 0/1 column per value. Features are dense if the
rows of the file are, unless nominal features make them 32 times as wide as a row. In a sparse row an
attribute that is left out has the value 0 or, if nominal, its first declared value; that is how
Weka defines it.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.arff_header import Attribute, Header, Lines, Scanner, read_header, read_label_xml, unescape
from maxmargin.io.atomic import PathLike
from maxmargin.io.dataset import DataFormatError, Dataset
from maxmargin.io.files import Progress, text_lines
from maxmargin.io.proportion import PER_WORD, check_proportion
from maxmargin.io.table import LabelColumns, classes, indicator, number

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
    progress: Progress | None = None,
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
    progress : callable, default=None
        Called now and then with (bytes read, bytes in all) of the ARFF file as stored.
    """
    tree = read_label_xml(xml)
    header, lines = _open(arff, drop, encoding, progress)
    places = _match(tree.names, header)
    data = _read_rows(header, lines, sorted(places), False, drop, dtype)
    column = {place: k for k, place in enumerate(sorted(places))}
    parents = np.full(len(places), -1)
    for place, parent in zip(places, tree.parents, strict=True):
        if parent >= 0:
            parents[column[place]] = column[places[parent]]
    return replace(data, extras={"label_parents": parents})


def read_arff(
    path: PathLike,
    *,
    target: str | int | None = None,
    labels: Sequence[str] | int | str | None = None,
    label_prefix: str | None = None,
    drop: Sequence[str] = (),
    encoding: str = "utf-8",
    dtype: Any = np.float64,
    progress: Progress | None = None,
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
    drop, encoding, dtype, progress
        As in `read_mulan`.

    Returns
    -------
    Dataset
        X and an indicator Y are dense, or CSR when the rows of the file are sparse. X is CSR, too, where
        nominal features have so many values that it has more than 32 columns for each of them.

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
    where = None
    if labels != "meka" or target is not None or label_prefix is not None:
        where = LabelColumns(target, labels, label_prefix)
    header, lines = _open(path, drop, encoding, progress)
    if where is None:
        where = _meka_columns(header)
    label_columns = where.find(header.names, path, header.data_line)
    return _read_rows(header, lines, label_columns, where.target is not None, drop, dtype)


def _open(
    path: PathLike, drop: Sequence[str], encoding: str, progress: Progress | None
) -> tuple[Header, Lines]:
    """The header, and the lines after it."""
    lines = text_lines(path, encoding, progress)
    header = read_header(path, lines)
    absent = [name for name in drop if name not in header.names]
    if absent:
        raise header.error(f"no attribute is called {absent[0]!r} (to drop)")
    return header, lines


def _read_rows(
    header: Header, lines: Lines, label_columns: list[int], single: bool, drop: Sequence[str], dtype: Any
) -> Dataset:
    table = Table(header, label_columns, single, drop)
    for line, text in lines:
        table.add(line, text)
    return table.dataset(dtype)


def _meka_columns(header: Header) -> LabelColumns:
    option = _MEKA.search(header.relation)
    if option is None:
        raise DataFormatError("the relation's name has no MEKA option -C n", header.path, 1)
    return LabelColumns(labels=-int(option.group(1)))  # MEKA counts from the front, negative from the end


def _match(wanted: Sequence[str], header: Header) -> list[int]:
    """Positions of the labels of the XML; a backslash before a quote may stand in either file."""
    exact = {name: j for j, name in enumerate(header.names)}
    loose = {unescape(name): j for j, name in enumerate(header.names)}
    found = []
    for name in wanted:
        position = exact.get(name, loose.get(unescape(name)))
        if position is None:
            raise header.error(f"label {name!r} of the XML file is not an attribute")
        found.append(position)
    if len(set(found)) < len(found):
        raise header.error("two labels of the XML file name the same attribute")
    return found


class Table:
    """Rows being turned into arrays; the labels stand in `label_columns`."""

    def __init__(self, header: Header, label_columns: list[int], single: bool, drop: Sequence[str]):
        self.header, self.label_columns, self.single = header, label_columns, single
        self.feature_names: list[str] = []
        column, dropped = {j: k for k, j in enumerate(label_columns)}, set(drop)
        self.encoders = [
            self._label_encoder(attribute, column[j])
            if j in column
            else self._feature_encoder(attribute, attribute.name in dropped)
            for j, attribute in enumerate(header.attributes)
        ]
        self.sparse: bool | None = None
        self.words: list[str] = []
        # Words of the rows, and the entries that they stand for beyond their own.
        self.given = self.made = 0
        features = sum(encoder.kind in ("feature", "onehot") for encoder in self.encoders)
        self.wide = len(self.feature_names) > PER_WORD * features

    def _label_encoder(self, attribute: Attribute, column: int) -> _Encoder:
        if self.single:
            encoder = _Encoder("class", column, _Codes(attribute.values) if attribute.values else number)
        else:
            encoder = _Encoder("label", column, indicator)
        try:
            for value in attribute.values or ():
                encoder.check(value)
        except ValueError as error:
            raise self.header.error(f"label {attribute.name!r}: {error}") from None
        return encoder

    def _feature_encoder(self, attribute: Attribute, dropped: bool) -> _Encoder:
        name, values, column = attribute.name, attribute.values, len(self.feature_names)
        if dropped:
            return _Encoder("drop", 0, number)
        if values is not None and len(values) > 2:
            self.feature_names += [f"{name}={value}" for value in values]
            return _Encoder("onehot", column, _Codes(values), len(values))
        self.feature_names.append(name)
        if values is not None:
            return _Encoder("feature", column, _Codes(values, *_yes_is_one(values)))
        if attribute.kind == "numeric":
            return _Encoder("feature", column, number)
        raise self.header.error(
            f"attribute {name!r} of type {attribute.kind} cannot be a feature; pass drop=[{name!r}]"
        )

    def features_by_pieces(self, lines: Lines, rows: int, dtype: Any) -> Iterator[Any]:
        """Matrices of the features of up to `rows` rows each."""
        for line, text in lines:
            self.add(line, text)
            if self.sparse is not None and self.x.n_rows == rows:
                yield self.x.matrix(dtype)
                self._begin(self.sparse)
        if self.sparse is not None and self.x.n_rows:
            yield self.x.matrix(dtype)

    def add(self, line: int, text: str) -> None:
        """Take one line of the data section."""
        text = text.strip()
        if not text or text.startswith("%"):
            return
        sparse = text.startswith("{")
        if self.sparse is None:
            self.defaults = self._sparse_defaults() if sparse else ()
            self._begin(sparse)
        elif self.sparse != sparse:
            raise DataFormatError("dense and sparse rows are mixed", self.header.path, line, 1)
        self.x.new_row()
        self.y.new_row()
        scan = Scanner(text, self.header.path, line)
        if sparse:
            self._sparse_row(scan)
        else:
            self._dense_row(scan)
        why = "nominal attributes are missing or left out; drop them (drop=, or --drop), or fill them in"
        check_proportion(self.made, self.given, "values", why, self.header.path, line)

    def _begin(self, sparse: bool) -> None:
        self.sparse = sparse
        self.x = _Matrix(len(self.feature_names), sparse or self.wide)
        self.y = _Matrix(len(self.label_columns), sparse)

    def _dense_row(self, scan: Scanner) -> None:
        words = _fields(scan)
        if len(words) != len(self.encoders):
            raise scan.error(f"{len(words)} values for {len(self.encoders)} attributes", len(words) - 1)
        self.given += len(words)
        for j, word in enumerate(words):
            self._put(j, word, scan, j)

    def _sparse_row(self, scan: Scanner) -> None:
        given: set[int] = set()
        for at, (digits, word) in enumerate(_plain_pairs(scan.line) or _scanned_pairs(scan)):
            if not _INDEX.fullmatch(digits) or int(digits) >= len(self.encoders):
                raise scan.error(f"{digits!r} is not the number of an attribute", at)
            j = int(digits)
            if j in given:
                raise scan.error(f"attribute {j} occurs twice in the row", at)
            given.add(j)
            self._put(j, word, scan, at)
        self.given += len(given) + 1
        for matrix, defaults in zip((self.x, self.y), self.defaults, strict=True):
            self.made += matrix.extend(*defaults.but_for(given))
        for j in self.label_columns if self.single else ():
            if j not in given:
                self._put(j, self._left_out(j), scan, 0)

    def _left_out(self, j: int) -> str:
        """The value of attribute j where a sparse row leaves it out."""
        values = self.header.attributes[j].values
        return values[0] if values else "0"

    def _sparse_defaults(self) -> tuple[_Defaults, _Defaults]:
        """Entries of features and of labels where a sparse row leaves out what is not zero then."""
        features, labels = _Defaults(), _Defaults()
        for j, encoder in enumerate(self.encoders):
            if encoder.kind in ("drop", "class"):
                continue
            value = encoder.encode(self._left_out(j))
            if encoder.kind == "onehot":
                features.add(j, encoder.column + int(value), 1.0)
            elif value != 0:
                (labels if encoder.kind == "label" else features).add(j, encoder.column, value)
        return features, labels

    def _put(self, j: int, word: str, scan: Scanner, at: int) -> None:
        """Take the value of attribute j; `at` is its place in the row, for messages."""
        encoder = self.encoders[j]
        if encoder.kind == "drop":
            return
        try:
            if encoder.kind == "class":
                self.words.append(encoder.check(word))
                return
            value = encoder.encode(word)
        except ValueError as error:
            raise scan.error(f"attribute {self.header.attributes[j].name!r}: {error}", at) from None
        if encoder.kind == "onehot" and value == value:
            self.x.add(encoder.column + int(value), 1.0)
        elif encoder.kind == "onehot":
            self.made += self.x.fill(encoder.column, encoder.width, math.nan)
        elif value != 0:
            (self.y if encoder.kind == "label" else self.x).add(encoder.column, value)

    def dataset(self, dtype: Any) -> Dataset:
        """What was taken."""
        if self.sparse is None:
            raise DataFormatError("the file has no rows after @data", self.header.path)
        names = tuple(self.header.attributes[j].name for j in self.label_columns)
        Y: Any = self.y.matrix(np.float64)
        extras = {}
        if self.single:
            extras["target"] = names[0]
            Y, names = classes(self.words)
        elif not np.isnan(Y.data if self.sparse else Y).any():
            Y = Y.astype(np.int32)
        source = str(Path(self.header.path))
        X, features = self.x.matrix(dtype), tuple(self.feature_names)
        return Dataset(X, Y, features, names, source=source, extras=extras)


def _fields(scan: Scanner) -> list[str]:
    """The comma separated fields of a dense row; an unquoted % starts a comment."""
    line = scan.line
    if "'" not in line and '"' not in line and "%" not in line:
        return [word.strip() for word in line.split(",")]
    found = []
    while True:
        found.append(scan.word("a value", stop=",%"))
        scan.skip()
        if scan.peek() in ("", "%"):
            return found
        if scan.peek() != ",":
            raise scan.error("',' expected")
        scan.at += 1


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
    """How the words of an attribute become numbers, and the first column that they go to."""

    kind: str  # "feature", "onehot", "label", "class" or "drop"
    column: int
    encode: Callable[[str], float]
    width: int = 1

    def check(self, word: str) -> str:
        if math.isnan(self.encode(word)):
            raise ValueError("the value is missing")
        return word


def _yes_is_one(values: Sequence[str]) -> tuple[int, ...]:
    """Codes of one or two nominal values: 1 for the one that means yes."""
    words = [value.lower() for value in values]
    reverse = len(words) == 2 and words[0] in _TRUE_WORDS and words[1] in _FALSE_WORDS
    return (1, 0) if reverse else tuple(range(len(values)))


class _Codes:
    """A nominal value's code (its number unless told otherwise), NaN for a missing one."""

    def __init__(self, values: Sequence[str], *codes: int):
        numbers = map(float, codes or range(len(values)))
        self.codes = {"?": math.nan, **dict(zip(values, numbers, strict=True))}

    def __call__(self, word: str) -> float:
        try:
            return self.codes[word]
        except KeyError:
            raise ValueError(f"{word!r} is not one of its values") from None


class _Defaults:
    """Entries of every sparse row that leaves their attributes out."""

    def __init__(self) -> None:
        self.place: dict[int, int] = {}
        self.columns, self.values = array("i"), array("d")

    def add(self, j: int, column: int, value: float) -> None:
        self.place[j] = len(self.columns)
        self.columns.append(column)
        self.values.append(value)

    def but_for(self, given: set[int]) -> tuple[Any, Any]:
        """Columns and values, without those of attributes that are given."""
        taken = [self.place[j] for j in given if j in self.place]
        if not taken:
            return self.columns, self.values
        kept = np.ones(len(self.columns), bool)
        kept[taken] = False
        return np.asarray(self.columns)[kept], np.asarray(self.values)[kept]


class _Matrix:
    """A matrix filled row by row: all entries of each row, or the nonzero ones with their columns."""

    def __init__(self, width: int, sparse: bool) -> None:
        self.width, self.sparse, self.n_rows = width, sparse, 0
        self.values, self.columns, self.starts = array("d"), array("i"), array("q")
        self._empty_row = b"" if sparse else bytes(self.values.itemsize * width)

    def new_row(self) -> None:
        self.n_rows += 1
        self.starts.append(len(self.values))
        self.values.frombytes(self._empty_row)

    def add(self, column: int, value: float) -> None:
        if self.sparse:
            self.columns.append(column)
            self.values.append(value)
        else:
            self.values[self.starts[-1] + column] = value

    def extend(self, columns: Any, values: Any) -> int:
        """Add entries of a sparse row; how many they are."""
        self.columns.frombytes(columns.tobytes())
        self.values.frombytes(values.tobytes())
        return len(columns)

    def fill(self, column: int, width: int, value: float) -> int:
        """Give neighbouring columns one value; how many entries that makes."""
        entries = array("d", [value]) * width
        if self.sparse:
            return self.extend(array("i", range(column, column + width)), entries)
        at = self.starts[-1] + column
        self.values[at : at + width] = entries
        return 0

    def matrix(self, dtype: Any) -> Any:
        values = np.frombuffer(self.values).astype(dtype, copy=False)
        if not self.sparse:
            return values.reshape(self.n_rows, self.width)
        starts = np.append(self.starts, len(values))
        if len(values) <= np.iinfo(np.int32).max:
            starts = starts.astype(np.int32)
        matrix = sp.csr_array(
            (values, np.frombuffer(self.columns, np.intc), starts), shape=(self.n_rows, self.width)
        )
        matrix.sort_indices()
        return matrix
