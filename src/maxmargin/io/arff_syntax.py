"""The words of ARFF: header lines, quoting, fields of a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from maxmargin.io.errors import DataFormatError
from maxmargin.io.files import PathLike

_BLANK = re.compile(r"[ \t]*")
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = re.compile(r"[A-Za-z0-9_.+\-=/:]+")
_NUMERIC = {"numeric", "real", "integer"}

Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Attribute:
    name: str
    values: tuple[str, ...] | None  # of a nominal attribute
    kind: str  # "numeric", "nominal", or what else the file says


@dataclass(frozen=True)
class Header:
    relation: str
    attributes: list[Attribute]
    data_line: int


def read_header(path: PathLike, lines: Lines) -> Header:
    relation = ""
    attributes: list[Attribute] = []
    seen: set[str] = set()
    for number_, raw in lines:
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        scan = Scanner(line, path, number_)
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
            return Header(relation, attributes, number_)
        else:
            raise scan.error("@relation, @attribute or @data expected", 0)
    raise DataFormatError("the file has no @data line", path)


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

    def __init__(self, line: str, path: PathLike, number_: int):
        self.line, self.path, self.number = line, path, number_
        self.at = 0

    def error(self, message: str, at: int | None = None) -> DataFormatError:
        return DataFormatError(message, self.path, self.number, (self.at if at is None else at) + 1)

    def skip(self) -> None:
        self.at = _BLANK.match(self.line, self.at).end()  # type: ignore[union-attr]

    def peek(self) -> str:
        return self.line[self.at : self.at + 1]

    def end(self) -> None:
        self.skip()
        if self.at < len(self.line) and self.peek() != "%":
            raise self.error(f"unexpected {self.line[self.at : self.at + 40]!r}")

    def bare(self) -> str:
        self.skip()
        start = self.at
        while self.at < len(self.line) and self.line[self.at] not in " \t":
            self.at += 1
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
        values: list[str] = []
        self.at += 1
        while True:
            values.append(self.word("a nominal value", stop=",}"))
            self.skip()
            mark = self.peek()
            self.at += 1
            if mark == "}":
                break
            if mark != ",":
                self.at -= 1
                raise self.error("',' or '}' expected")
        self.end()
        if len(set(values)) < len(values):
            raise self.error("a nominal value occurs twice")
        return tuple(values)


def unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def fields(line: str, scan: Scanner) -> list[str]:
    """The comma separated fields of a dense row; an unquoted % starts a comment."""
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


def quote(word: str) -> str:
    """The word as it may stand in an ARFF file."""
    if _PLAIN.fullmatch(word):
        return word
    if "\n" in word or "\r" in word:
        raise ValueError(f"ARFF cannot hold the line break in {word!r}.")
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
