"""The XML beside a Mulan ARFF file: which attributes are labels, and their hierarchy.

Parsed as a stream by expat. A document type declaration is refused, so no entity is ever defined
or expanded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from maxmargin.io.atomic import PathLike
from maxmargin.io.dataset import DataFormatError
from maxmargin.io.files import read_bytes


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
