"""What tells the columns of an ARFF file: its header, and the XML of Mulan that names the labels.

The XML is parsed as a stream by expat. A document type declaration is refused, so no entity is
ever defined or expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from maxmargin.io.atomic import PathLike
from maxmargin.io.dataset import DataFormatError
from maxmargin.io.files import read_bytes
from maxmargin.io.proportion import check_proportion

_BLANK = re.compile(r"[ \t]*")
_NOT_BLANK = re.compile(r"[^ \t]*")
_ESCAPED = re.compile(r"\\(.)")
_NUMERIC = {"numeric", "real", "integer"}

Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Attribute:
    """A column of the file."""

    name: str
    values: tuple[str, ...] | None  # of a nominal attribute
    kind: str  # "numeric", "nominal", or what else the file says


@dataclass(frozen=True)
class Header:
    """What stands before the rows."""

    path: PathLike
    relation: str
    attributes: list[Attribute]
    data_line: int

    @property
    def names(self) -> list[str]:
        """Names of the attributes."""
        return [attribute.name for attribute in self.attributes]

    def error(self, message: str) -> DataFormatError:
        """A fault of the header as a whole."""
        return DataFormatError(message, self.path, self.data_line)


def read_header(path: PathLike, lines: Lines) -> Header:
    """Read the lines up to and with @data."""
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
    """Refuse long names of attributes with many values, of which each makes a name of a column."""
    given = made = 0
    for attribute in attributes:
        values = attribute.values or ()
        letters = sum(map(len, values))
        given += len(attribute.name) + letters
        made += len(attribute.name) * len(values) + letters
    why = "every value makes a column name; shorten the names of nominal attributes"
    check_proportion(made, given, "letters", why, path, line)


def _attribute(scan: Scanner) -> Attribute:
    name = scan.word("an attribute's name", stop=" \t{")
    scan.skip()
    if scan.peek() == "{":
        values = scan.nominal_values()
        return Attribute(name, values, "nominal")
    kind = scan.bare().lower()
    if kind in _NUMERIC:
        scan.end()
        return Attribute(name, None, "numeric")
    if kind in ("string", "date"):
        return Attribute(name, None, kind)
    if kind == "relational":
        raise scan.error("relational attributes are not supported")
    raise scan.error(f"{kind!r} is not a type of attribute")


class Scanner:
    """Reads words, quoted or bare, from one line."""

    def __init__(self, line: str, path: PathLike, line_number: int):
        self.line, self.path, self.number = line, path, line_number
        self.at = 0

    def error(self, message: str, at: int | None = None) -> DataFormatError:
        return DataFormatError(message, self.path, self.number, (self.at if at is None else at) + 1)

    def skip(self) -> None:
        """Go on to the next character that is not blank."""
        self.at = _BLANK.match(self.line, self.at).end()  # type: ignore[union-attr]

    def peek(self) -> str:
        """The next character, or nothing at the end."""
        return self.line[self.at : self.at + 1]

    def end(self) -> None:
        """Nothing but a comment may follow."""
        self.skip()
        if self.at < len(self.line) and self.peek() != "%":
            raise self.error(f"unexpected {self.line[self.at : self.at + 40]!r}")

    def bare(self) -> str:
        """The characters up to the next blank."""
        self.skip()
        start = self.at
        self.at = _NOT_BLANK.match(self.line, start).end()  # type: ignore[union-attr]
        return self.line[start : self.at]

    def word(self, what: str, stop: str) -> str:
        """A quoted word without its quotes and escapes, or a bare one as it stands."""
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
        """The values between braces."""
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
    """The text without the backslashes that escape a character."""
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


@dataclass(frozen=True)
class LabelTree:
    """Labels in document order and the position of each one's parent (-1 at the top)."""

    names: tuple[str, ...]
    parents: tuple[int, ...]


def read_label_xml(path: PathLike) -> LabelTree:
    """Read a Mulan label file: `<labels>` with `<label name="...">` elements, nested or flat."""
    state = _State(path)
    parser = expat.ParserCreate()
    state.parser = parser
    parser.StartDoctypeDeclHandler = state.doctype
    parser.StartElementHandler = state.start
    parser.EndElementHandler = state.end
    parser.CharacterDataHandler = state.text
    try:
        parser.Parse(read_bytes(path), True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise DataFormatError(f"not XML: {reason}", path, error.lineno, error.offset + 1) from error
    except DataFormatError:
        raise
    except (LookupError, ValueError) as error:  # of the encoding that the file declares
        raise DataFormatError(f"not XML: {error}", path, 1) from error
    if not state.names:
        raise state.error("no <label name=...> in the file")
    return LabelTree(tuple(state.names), tuple(state.parents))


@dataclass
class _State:
    path: PathLike
    names: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    open_labels: list[int] = field(default_factory=list)
    depth: int = 0
    parser: expat.XMLParserType = field(default_factory=expat.ParserCreate)

    def error(self, message: str) -> DataFormatError:
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber
        return DataFormatError(message, self.path, line, column + 1)

    def doctype(self, *_: object) -> None:
        raise self.error("a document type declaration is not allowed here")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        self.depth += 1
        if self.depth == 1:
            if tag != "labels":
                raise self.error(f"<labels> expected, found <{tag}>")
            return
        if tag != "label":
            raise self.error(f"<label> expected, found <{tag}>")
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
