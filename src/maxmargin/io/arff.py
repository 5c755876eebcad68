"""ARFF as written by Weka, Mulan and MEKA, dense and sparse, with the label XML of Mulan.

A nominal feature of two values becomes one 0/1 column (1 for a word that means yes, otherwise for the second
value); one of more values becomes one 0/1 column per value. Features are sparse if the rows of the file are,
or if nominal features make them more than `PER_WORD` times as wide as a row. An attribute that a sparse row
leaves out has the value 0 or, if nominal, its first declared value, as Weka defines it.

expat parses the XML as a stream. A document type declaration is refused, so no entity is ever expanded.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
import scipy.sparse as sp

from maxmargin.io.dataset import PER_WORD, DataFormatError, Dataset, PathLike, check_proportion
from maxmargin.io.files import Progress, read_bytes, text_lines
from maxmargin.io.table import LabelColumns, classes, indicator, number

_BLANK = re.compile(r"[ \t]*")
_NOT_BLANK = re.compile(r"[^ \t]*")
_ESCAPED = re.compile(r"\\(.)")
_MEKA = re.compile(r"-[cC]\s+(-?[0-9]+)")
_INDEX = re.compile(r"[0-9]{1,9}")
_NUMERIC = {"numeric", "real", "integer"}
_TRUE_WORDS = {"yes", "true", "y", "t", "1"}
_FALSE_WORDS = {"no", "false", "n", "f", "0"}

Lines = Iterator[tuple[int, str]]


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
        The two files, plain or packed as .xz or .gz. Labels may be any columns; Y has them in
        the order of the ARFF file. For nested labels, `extras["label_parents"]` holds the column
        of each label's parent, or -1.
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
    positions = _match(tree.names, header)
    data = Table(header, sorted(positions), False, drop).read(lines, dtype)
    column = {position: k for k, position in enumerate(sorted(positions))}
    parents = np.full(len(positions), -1)
    for position, parent in zip(positions, tree.parents, strict=True):
        if parent >= 0:
            parents[column[position]] = column[positions[parent]]
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
    """Read an ARFF file; exactly one of `target`, `labels` and `label_prefix` gives its label columns.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz.
    target : str or int, default=None
        Name or position of one attribute, the class of each sample.
    labels : list of str, int or "meka", default=None
        One 0/1 attribute per label: their names, the number of last attributes (negative: of first
        ones), or "meka" for the `-C` option in the relation's name.
    label_prefix : str, default=None
        One 0/1 attribute per label: those whose name has this prefix.
    drop, encoding, dtype, progress
        As in `read_mulan`.

    Returns
    -------
    Dataset
        X and an indicator Y are dense, or CSR if the rows of the file are sparse. X is also CSR if
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
    return Table(header, label_columns, where.target is not None, drop).read(lines, dtype)


@dataclass(frozen=True)
class Attribute:
    """A column of the file; `values` are those of a nominal attribute."""

    name: str
    values: tuple[str, ...] | None
    kind: str  # "numeric", "nominal", "string" or "date"


@dataclass(frozen=True)
class Header:
    """The lines before the rows."""

    path: PathLike
    relation: str
    attributes: list[Attribute]
    data_line: int

    @property
    def names(self) -> list[str]:
        """Names of the attributes."""
        return [attribute.name for attribute in self.attributes]

    def error(self, message: str) -> DataFormatError:
        """Return an error about the header as a whole."""
        return DataFormatError(message, self.path, self.data_line)


def read_header(path: PathLike, lines: Lines) -> Header:
    """Read the lines up to and including @data."""
    relation = ""
    attributes: list[Attribute] = []
    seen: set[str] = set()
    for line_number, raw in lines:
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        scan = Scanner(line, path, line_number)
        keyword = scan.bare().lower()
        if keyword == "@relation":
            relation = line[len("@relation") :].strip()
        elif keyword == "@attribute":
            attribute = _attribute(scan)
            if attribute.name in seen:
                raise scan.error(f"attribute {attribute.name!r} occurs twice")
            seen.add(attribute.name)
            attributes.append(attribute)
        elif keyword == "@data":
            if not attributes:
                raise scan.error("@data before any @attribute")
            _check_names(attributes, path, line_number)
            return Header(path, relation, attributes, line_number)
        else:
            raise scan.error("@relation, @attribute or @data expected", 0)
    raise DataFormatError("the file has no @data line", path)


def _check_names(attributes: list[Attribute], path: PathLike, line: int) -> None:
    """Refuse long names of attributes with many values, each of which makes a column name."""
    words = entries = 0
    for attribute in attributes:
        values = attribute.values or ()
        letters = sum(map(len, values))
        words += len(attribute.name) + letters
        entries += len(attribute.name) * len(values) + letters
    remedy = "every value makes a column name; shorten the names of nominal attributes"
    check_proportion(entries, words, "letters", remedy, path, line)


def _attribute(scan: Scanner) -> Attribute:
    name = scan.word("an attribute's name", stop=" \t{")
    scan.skip()
    if scan.peek() == "{":
        return Attribute(name, scan.nominal_values(), "nominal")
    kind = scan.bare().lower()
    if kind in _NUMERIC:
        scan.end()
        return Attribute(name, None, "numeric")
    if kind in ("string", "date"):
        return Attribute(name, None, kind)
    if kind == "relational":
        raise scan.error("relational attributes are not supported")
    raise scan.error(f"{kind!r} is not a type of attribute")


def _open(
    path: PathLike, drop: Sequence[str], encoding: str, progress: Progress | None
) -> tuple[Header, Lines]:
    """Return the header and the lines after it."""
    lines = text_lines(path, encoding, progress)
    header = read_header(path, lines)
    absent = [name for name in drop if name not in header.names]
    if absent:
        raise header.error(f"no attribute is called {absent[0]!r} (to drop)")
    return header, lines


def _meka_columns(header: Header) -> LabelColumns:
    option = _MEKA.search(header.relation)
    if option is None:
        raise DataFormatError("the relation's name has no MEKA option -C n", header.path, 1)
    return LabelColumns(labels=-int(option.group(1)))  # MEKA counts from the front, negative from the end


def _match(wanted: Sequence[str], header: Header) -> list[int]:
    """Find the labels of the XML; either file may have a backslash before a quote."""
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
    """Collects rows into arrays of features and labels; `label_columns` are the positions of the labels."""

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
        self.sparse: bool | None = None  # until the first row
        self.classes: list[str] = []
        # Words of the rows, and the entries that they stand for beyond one each.
        self.n_words = self.n_entries = 0
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
            return _Encoder("feature", column, _Codes(values, *_codes_of_words(values)))
        if attribute.kind == "numeric":
            return _Encoder("feature", column, number)
        raise self.header.error(
            f"attribute {name!r} of type {attribute.kind} cannot be a feature; pass drop=[{name!r}]"
        )

    def feature_batches(self, lines: Lines, rows: int, dtype: Any) -> Iterator[Any]:
        """Yield matrices of the features, of up to `rows` rows each."""
        for line, text in lines:
            self.add(line, text)
            if self.sparse is not None and self.x.n_rows == rows:
                yield self.x.matrix(dtype)
                self._begin(self.sparse)
        if self.sparse is not None and self.x.n_rows:
            yield self.x.matrix(dtype)

    def add(self, line: int, text: str) -> None:
        """Add one line of the data section."""
        text = text.strip()
        if not text or text.startswith("%"):
            return
        sparse = text.startswith("{")
        if self.sparse is None:
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
        remedy = "nominal attributes are missing or left out; drop them (drop=, or --drop), or fill them in"
        check_proportion(self.n_entries, self.n_words, "values", remedy, self.header.path, line)

    def _begin(self, sparse: bool) -> None:
        self.sparse = sparse
        self.x = _Matrix(len(self.feature_names), sparse or self.wide)
        self.y = _Matrix(len(self.label_columns), sparse)
        self.defaults = self._sparse_defaults() if sparse else []

    def _dense_row(self, scan: Scanner) -> None:
        words = _fields(scan)
        if len(words) != len(self.encoders):
            raise scan.error(f"{len(words)} values for {len(self.encoders)} attributes", len(words) - 1)
        self.n_words += len(words)
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
        self.n_words += len(given) + 1
        for j, matrix, column, value in self.defaults:
            if j not in given:
                matrix.add(column, value)
                self.n_entries += 1
        for j in self.label_columns if self.single else ():
            if j not in given:
                self._put(j, self._default(j), scan, 0)

    def _default(self, j: int) -> str:
        """Return the value of attribute j where a sparse row leaves it out."""
        values = self.header.attributes[j].values
        return values[0] if values else "0"

    def _sparse_defaults(self) -> list[tuple[int, _Matrix, int, float]]:
        """Return the nonzero defaults: the attribute, its matrix and column, and the value."""
        defaults = []
        for j, encoder in enumerate(self.encoders):
            if encoder.kind in ("drop", "class"):
                continue
            value = encoder.encode(self._default(j))
            if encoder.kind == "onehot":
                defaults.append((j, self.x, encoder.column + int(value), 1.0))
            elif value != 0:
                defaults.append((j, self.y if encoder.kind == "label" else self.x, encoder.column, value))
        return defaults

    def _put(self, j: int, word: str, scan: Scanner, at: int) -> None:
        """Store the value of attribute j; `at` is its position in the row, for messages."""
        encoder = self.encoders[j]
        if encoder.kind == "drop":
            return
        try:
            if encoder.kind == "class":
                self.classes.append(encoder.check(word))
                return
            value = encoder.encode(word)
        except ValueError as error:
            raise scan.error(f"attribute {self.header.attributes[j].name!r}: {error}", at) from None
        if encoder.kind == "onehot" and value == value:
            self.x.add(encoder.column + int(value), 1.0)
        elif encoder.kind == "onehot":
            for column in range(encoder.column, encoder.column + encoder.width):
                self.x.add(column, math.nan)
            self.n_entries += encoder.width if self.x.sparse else 0
        elif value != 0:
            (self.y if encoder.kind == "label" else self.x).add(encoder.column, value)

    def read(self, lines: Lines, dtype: Any) -> Dataset:
        """Return all rows."""
        for line, text in lines:
            self.add(line, text)
        if self.sparse is None:
            raise DataFormatError("the file has no rows after @data", self.header.path)
        names = tuple(self.header.attributes[j].name for j in self.label_columns)
        Y: Any = self.y.matrix(np.float64)
        extras = {}
        if self.single:
            extras["target"] = names[0]
            Y, names = classes(self.classes)
        elif not np.isnan(Y.data if self.sparse else Y).any():
            Y = Y.astype(np.int32)
        source = str(Path(self.header.path))
        X, features = self.x.matrix(dtype), tuple(self.feature_names)
        return Dataset(X, Y, features, names, source=source, extras=extras)


class Scanner:
    """Reads quoted and bare words from one line."""

    def __init__(self, line: str, path: PathLike, line_number: int):
        self.line, self.path, self.number = line, path, line_number
        self.at = 0

    def error(self, message: str, at: int | None = None) -> DataFormatError:
        return DataFormatError(message, self.path, self.number, (self.at if at is None else at) + 1)

    def skip(self) -> None:
        """Skip blanks."""
        self.at = _BLANK.match(self.line, self.at).end()  # type: ignore[union-attr]

    def peek(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self.line[self.at : self.at + 1]

    def end(self) -> None:
        """Refuse anything but a comment in the rest of the line."""
        self.skip()
        if self.at < len(self.line) and self.peek() != "%":
            raise self.error(f"unexpected {self.line[self.at : self.at + 40]!r}")

    def bare(self) -> str:
        """Return the characters up to the next blank."""
        self.skip()
        start = self.at
        self.at = _NOT_BLANK.match(self.line, start).end()  # type: ignore[union-attr]
        return self.line[start : self.at]

    def word(self, what: str, stop: str) -> str:
        """Return a quoted word without quotes and escapes, or a bare word up to a character of `stop`."""
        self.skip()
        quote, start = self.peek(), self.at
        if quote and quote in "'\"":
            self.at += 1
            while self.at < len(self.line) and self.line[self.at] != quote:
                self.at += 2 if self.line[self.at] == "\\" else 1
            if self.at >= len(self.line):
                raise self.error(f"the quote of {what} is not closed", start)
            self.at += 1
            return unescape(self.line[start + 1 : self.at - 1])
        while self.at < len(self.line) and self.line[self.at] not in stop:
            self.at += 1
        if self.at == start:
            raise self.error(f"{what} expected")
        return self.line[start : self.at].rstrip()

    def nominal_values(self) -> tuple[str, ...]:
        """Return the values between braces."""
        values: list[str] = []
        self.at += 1
        while True:
            values.append(self.word("a nominal value", stop=",}"))
            self.skip()
            if self.peek() not in (",", "}"):
                raise self.error("',' or '}' expected")
            self.at += 1
            if self.line[self.at - 1] == "}":
                break
        self.end()
        if len(set(values)) < len(values):
            raise self.error("a nominal value occurs twice")
        return tuple(values)


def unescape(text: str) -> str:
    """Remove the backslashes that escape a character."""
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _fields(scan: Scanner) -> list[str]:
    """Split a dense row at commas; an unquoted % starts a comment."""
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
    """Split an ordinary sparse row without quotes; return None for any other row."""
    if "'" in line or '"' in line or not line.endswith("}"):
        return None
    pairs = [pair.split() for pair in line[1:-1].split(",")]
    return pairs if all(len(pair) == 2 for pair in pairs) and "}" not in line[:-1] else None


def _scanned_pairs(scan: Scanner) -> list[tuple[str, str]]:
    """Read the pairs of any sparse row character by character."""
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
    """Turns the words of an attribute into numbers in one or more columns."""

    kind: str  # "feature", "onehot", "label", "class" or "drop"
    column: int
    encode: Callable[[str], float]
    width: int = 1

    def check(self, word: str) -> str:
        if math.isnan(self.encode(word)):
            raise ValueError("the value is missing")
        return word


def _codes_of_words(values: Sequence[str]) -> tuple[int, ...]:
    """Return the codes of one or two nominal values: 1 for a word that means yes."""
    words = [value.lower() for value in values]
    reverse = len(words) == 2 and words[0] in _TRUE_WORDS and words[1] in _FALSE_WORDS
    return (1, 0) if reverse else tuple(range(len(values)))


class _Codes:
    """Maps nominal values to codes (0, 1, ... by default) and a missing value to NaN."""

    def __init__(self, values: Sequence[str], *codes: int):
        numbers = map(float, codes or range(len(values)))
        self.codes = {"?": math.nan, **dict(zip(values, numbers, strict=True))}

    def __call__(self, word: str) -> float:
        try:
            return self.codes[word]
        except KeyError:
            raise ValueError(f"{word!r} is not one of its values") from None


class _Matrix:
    """A matrix filled row by row, dense or CSR."""

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

    def matrix(self, dtype: Any) -> Any:
        values = np.frombuffer(self.values).astype(dtype, copy=False)
        if not self.sparse:
            return values.reshape(self.n_rows, self.width)
        starts = np.append(self.starts, len(values))
        if len(values) <= np.iinfo(np.int32).max:
            starts = starts.astype(np.int32)
        columns = np.frombuffer(self.columns, np.intc)
        matrix = sp.csr_array((values, columns, starts), shape=(self.n_rows, self.width))
        matrix.sort_indices()
        return matrix


@dataclass(frozen=True)
class LabelTree:
    """Labels in document order and the position of each one's parent (-1 at the top)."""

    names: tuple[str, ...]
    parents: tuple[int, ...]


def read_label_xml(path: PathLike) -> LabelTree:
    """Read a Mulan label file: `<labels>` with `<label name="...">` elements, nested or flat."""
    parser = expat.ParserCreate()
    labels = _LabelParser(path, parser)
    parser.StartDoctypeDeclHandler = labels.doctype
    parser.StartElementHandler = labels.start
    parser.EndElementHandler = labels.end
    parser.CharacterDataHandler = labels.text
    try:
        parser.Parse(read_bytes(path), True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise DataFormatError(f"not XML: {reason}", path, error.lineno, error.offset + 1) from error
    except DataFormatError:
        raise
    except (LookupError, ValueError) as error:  # unknown or unsuitable encoding in the XML declaration
        raise DataFormatError(f"not XML: {error}", path, 1) from error
    if not labels.names:
        raise labels.error("no <label name=...> in the file")
    return LabelTree(tuple(labels.names), tuple(labels.parents))


@dataclass
class _LabelParser:
    path: PathLike
    parser: expat.XMLParserType
    names: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    open_labels: list[int] = field(default_factory=list)
    depth: int = 0

    def error(self, message: str) -> DataFormatError:
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber
        return DataFormatError(message, self.path, line, column + 1)

    def doctype(self, *_: object) -> None:
        raise self.error("a document type declaration is not allowed here")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        self.depth += 1
        expected = "labels" if self.depth == 1 else "label"
        if tag != expected:
            raise self.error(f"<{expected}> expected, found <{tag}>")
        if self.depth == 1:
            return
        name = attributes.get("name")
        if not name:
            raise self.error("a <label> without a name")
        if name in self.seen:
            raise self.error(f"label {name!r} occurs twice")
        self.seen.add(name)
        self.parents.append(self.open_labels[-1] if self.open_labels else -1)
        self.open_labels.append(len(self.names))
        self.names.append(name)

    def end(self, _: str) -> None:
        self.depth -= 1
        if self.depth > 0:
            self.open_labels.pop()

    def text(self, text: str) -> None:
        if text.strip():
            raise self.error(f"unexpected text {text.strip()[:40]!r}")
