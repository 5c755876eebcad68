"""Multi-label SVMlight text: `label,label index:value index:value # comment`, one sample a line.

scikit-learn parses a file in blocks of whole lines. If it refuses a block, or the block holds anything
that it accepts and this format does not (labels that are not integers, repeated labels, `nan`, digits with
underscores), the block is parsed again word by word to find the line and the character of the fault. Both
parsers return the same arrays.

Reading needs the memory of the result plus a few dozen MiB for one block: well below twice the CSR matrix.

`read_xc` reads the variant of the extreme classification repository. Its first line holds the numbers of
samples, features and labels, both counted from 0, so that absent labels and features keep their columns. A
blank line there is a sample without labels and features; blank lines after the last sample are skipped.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.dataset import DataFormatError, Dataset, PathLike, check_proportion
from maxmargin.io.files import Progress, open_bytes

BLOCK = 1 << 20
_LARGEST = np.iinfo(np.int64).max
# scikit-learn reads labels as float64, in which integers up to this one are exact.
_EXACT = 2**53
_BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")
_COMMENT = re.compile(rb"#[^\n]*")
_BLANK_LINE = re.compile(rb"\n(?= *\n| +\Z)")
_QUERY = re.compile(rb"(\n *(?:[^ \n:]+ +)?)qid:([+-]?[0-9]+)(?= +[^ \n:]+:)")
_LABEL_WITH_POINT = re.compile(rb"\n *[0-9,+-]*[.eE]")
_WORD = re.compile(rb"[^ ]+")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_XC_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*")
# Bytes that the name of a label takes.
LABEL_BYTES = 4


def read_svmlight(
    path: PathLike,
    *,
    multilabel: bool = True,
    labels: Sequence[int] | None = None,
    n_features: int | None = None,
    zero_based: bool = False,
    dtype: Any = np.float64,
    progress: Progress | None = None,
    header_lines: int = 0,
    n_samples: int | None = None,
    span: tuple[int, int] | None = None,
) -> Dataset:
    """Read multi-label SVMlight (LIBSVM) text, plain or packed as .xz or .gz.

    Parameters
    ----------
    path : path-like
        The file. Comments (`#`) and blank lines are skipped; a `qid:n` goes to `per_row["qid"]`.
    multilabel : bool, default=True
        Whether Y is a sparse indicator. If False, every line must have one label, and Y is their
        array.
    labels : sequence of int, default=None
        All label ids, in the order of the columns of Y; any other id is an error. None
        takes the ids that occur, sorted.
    n_features : int, default=None
        Number of columns; a larger index is an error. None takes the largest index that occurs.
    zero_based : bool, default=False
        Whether the first feature has index 0. With the usual 1-based files an index 0 is an error.
    dtype : {float64, float32}, default=float64
        Type of the values.
    progress : callable, default=None
        Called with (bytes read, bytes in all) of the stored file after each block.
    header_lines : int, default=0
        Number of lines to skip at the beginning of the file.
    n_samples : int, default=None
        Number of samples, if known. Blank lines then count as samples without labels and features until
        this number is reached.
    span : pair of int, default=None
        Read only the lines that begin at or after the first byte position and before the second one, of
        a file that is not packed. The result may be empty.

    Returns
    -------
    Dataset
        X is a csr_array with sorted indices (32-bit where they fit, 64-bit otherwise). Explicit
        zeros are not stored.

    Raises
    ------
    DataFormatError
        With the file, line and character of the first fault.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.svm"
    >>> _ = path.write_text("0,2 1:0.5 3:1\\n2 2:4  # a comment\\n")
    >>> data = read_svmlight(path)
    >>> data.X.toarray()
    array([[0.5, 0. , 1. ],
           [0. , 4. , 0. ]])
    >>> data.label_names, data.Y.toarray().tolist()
    (('0', '2'), [[1, 1], [0, 1]])
    """
    if dtype not in (np.float64, np.float32):
        raise ValueError(f"dtype must be float64 or float32. Got {dtype!r} instead.")
    allowed = labels if labels is None or isinstance(labels, range) else frozenset(labels)
    if labels is not None and allowed is not None and len(allowed) < len(labels):
        raise ValueError("labels must differ from each other.")
    largest = float(np.finfo(dtype).max)
    first = 0 if zero_based else 1
    rules = Rules(path, multilabel, allowed, n_features, first, largest, header_lines, n_samples, span)
    rows = Rows.of(dtype)
    for part in parsed_blocks(rules, progress):
        rows.extend(part)
    if not len(rows.sizes) and span is None:
        raise DataFormatError("the file has no samples", path)
    if rows.qid and len(rows.qid) != len(rows.sizes):
        raise DataFormatError("some lines have a qid and some have none", path)
    per_row = {"qid": np.array(rows.qid, dtype=np.int64)} if rows.qid else {}
    X = rows.matrix(n_features)
    Y, names = rows.indicator(labels) if multilabel else rows.classes(labels)
    features = tuple(f"x{j}" for j in range(X.shape[1])) if X.shape[1] <= 1_000_000 else ()
    return Dataset(X, Y, features, names, source=str(path), per_row=per_row)


def read_xc_header(path: PathLike) -> tuple[int, int, int]:
    """Return the numbers of samples, features and labels in the first line of a file."""
    with open_bytes(path) as (plain, stored):
        line = plain.readline(100)
        size = stored.seek(0, 2)
    found = _XC_HEADER.fullmatch(line)
    if found is None:
        raise DataFormatError("the first line must hold the numbers of samples, features and labels", path, 1)
    n_samples, n_features, n_labels = (int(number) for number in found.groups())
    remedy = f"the first line claims {n_labels:,} labels; correct it, or read the rest as SVMlight text"
    check_proportion(LABEL_BYTES * n_labels, size, "bytes", remedy, path, 1)
    return n_samples, n_features, n_labels


def read_xc(path: PathLike, *, dtype: Any = np.float64, progress: Progress | None = None) -> Dataset:
    """Read a file of the extreme classification repository, plain or packed as .xz or .gz.

    Parameters
    ----------
    path : path-like
    dtype : {float64, float32}, default=float64
        Type of the values.
    progress : callable, default=None
        Called with (bytes read, bytes in all) of the stored file after each block.

    Returns
    -------
    Dataset
        X and Y are sparse; the labels are called "0", "1", ...

    Raises
    ------
    DataFormatError
        With the file, line and character of the first fault.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> _ = path.write_text("2 3 4\\n0,2 0:0.5 2:1\\n 1:4\\n")
    >>> data = read_xc(path)
    >>> data.X.shape, data.Y.toarray().tolist()
    ((2, 3), [[1, 0, 1, 0], [0, 0, 0, 0]])
    """
    n_samples, n_features, n_labels = read_xc_header(path)
    data = read_svmlight(
        path,
        labels=range(n_labels),
        n_features=n_features,
        zero_based=True,
        dtype=dtype,
        progress=progress,
        header_lines=1,
        n_samples=n_samples,
    )
    if data.X.shape[0] != n_samples:
        raise DataFormatError(
            f"the first line says {n_samples} samples, but there are {data.X.shape[0]}", path, 1
        )
    return data


@dataclass(frozen=True)
class Rules:
    """What the samples of a file may contain."""

    path: PathLike
    multilabel: bool
    labels: frozenset[int] | range | None
    n_features: int | None
    first_index: int
    largest_value: float
    header_lines: int = 0
    n_samples: int | None = None
    span: tuple[int, int] | None = None

    @property
    def last_index(self) -> int:
        return _LARGEST - 1 if self.n_features is None else self.n_features - 1 + self.first_index


@dataclass
class Samples:
    """The samples of one block: flat label ids and nonzeros, with their counts per sample."""

    indices: np.ndarray
    values: np.ndarray
    sizes: Any
    labels: Any
    label_sizes: Any
    qid: Any


@dataclass
class Rows:
    """The samples read so far."""

    values: array
    indices: array = field(default_factory=lambda: array("i"))
    sizes: array = field(default_factory=lambda: array("q"))
    labels: array = field(default_factory=lambda: array("q"))
    label_sizes: array = field(default_factory=lambda: array("q"))
    qid: array = field(default_factory=lambda: array("q"))

    @classmethod
    def of(cls, dtype: Any) -> Rows:
        """Return an empty collection whose values have the given type."""
        return cls(array("d" if dtype == np.float64 else "f"))

    def extend(self, part: Samples) -> None:
        """Append samples without their explicit zeros."""
        stored = part.values != 0
        sizes = np.asarray(part.sizes, dtype=np.int64)
        if not stored.all():
            owner = np.repeat(np.arange(len(sizes)), sizes)
            sizes = np.bincount(owner[stored], minlength=len(sizes))
            part.indices, part.values = part.indices[stored], part.values[stored]
        if self.indices.typecode == "i" and part.indices.max(initial=0) > np.iinfo(np.int32).max:
            self.indices = array("q", self.indices)
        self.indices.frombytes(part.indices.astype(self.indices.typecode).tobytes())
        self.values.frombytes(part.values.astype(self.values.typecode).tobytes())
        self.sizes.frombytes(sizes.astype(np.int64).tobytes())
        self.labels.extend(part.labels)
        self.label_sizes.frombytes(np.asarray(part.label_sizes, dtype=np.int64).tobytes())
        self.qid.extend(part.qid)

    def matrix(self, n_features: int | None) -> sp.csr_array:
        """Return the CSR matrix, which shares the memory filled while reading."""
        indptr = np.zeros(len(self.sizes) + 1, dtype=np.int64)
        np.cumsum(self.sizes, out=indptr[1:])
        indices = np.frombuffer(self.indices, dtype=self.indices.typecode)
        values = np.frombuffer(self.values, dtype=self.values.typecode)
        width = n_features if n_features is not None else int(indices.max(initial=-1)) + 1
        if indptr[-1] <= np.iinfo(np.int32).max and indices.dtype == np.int32:
            indptr = indptr.astype(np.int32)
        else:
            indices = indices.astype(np.int64, copy=False)
        return sp.csr_array((values, indices, indptr), shape=(len(self.sizes), width))

    def indicator(self, labels: Sequence[int] | None) -> tuple[sp.csr_array, tuple[str, ...]]:
        ids = np.array(self.labels, dtype=np.int64)
        columns = np.unique(ids) if labels is None else np.array(labels, dtype=np.int64)
        order = np.argsort(columns, kind="stable")
        where = order[np.searchsorted(columns, ids, sorter=order)] if len(ids) else ids
        indptr = np.concatenate(([0], np.cumsum(self.label_sizes, dtype=np.int64)))
        Y = sp.csr_array(
            (np.ones(len(ids), dtype=np.int32), where, indptr), shape=(len(self.label_sizes), len(columns))
        )
        Y.sort_indices()
        return Y, tuple(str(label) for label in columns)

    def classes(self, labels: Sequence[int] | None) -> tuple[np.ndarray, tuple[str, ...]]:
        y = np.array(self.labels, dtype=np.int64)
        return y, tuple(str(label) for label in (np.unique(y) if labels is None else labels))


def parsed_blocks(rules: Rules, progress: Progress | None) -> Iterator[Samples]:
    """Yield the samples of a file, about a MiB of text at a time."""
    line, blanks = 1 + rules.header_lines, rules.n_samples or 0
    with open_bytes(rules.path) as (plain, stored):
        total = stored.seek(0, 2)
        stored.seek(0)
        for _ in range(rules.header_lines):
            plain.readline()
        if rules.span is not None:
            _go_to(rules.span[0], plain, stored, rules.path)
        while block := _lines(plain, rules.span):
            try:
                part = parse_block(block, rules, blanks)
            except (ValueError, OverflowError):
                part = parse_slowly(block, rules, line + _lines_before(rules), blanks)
            yield part
            blanks = max(blanks - len(part.sizes), 0)
            line += block.count(b"\n")
            if progress is not None:
                progress(min(stored.tell(), total), total)


def _go_to(start: int, plain: IO[bytes], stored: IO[bytes], path: PathLike) -> None:
    """Move to the first line that begins at or after a byte."""
    if plain is not stored:
        raise DataFormatError("a span of a packed file cannot be read; unpack the file first", path)
    if start:
        plain.seek(start - 1)
        plain.readline()


def _lines(plain: IO[bytes], span: tuple[int, int] | None) -> bytes:
    """Read about a MiB of whole lines that begin in the span."""
    left = BLOCK if span is None else max(min(BLOCK, span[1] - plain.tell()), 0)
    block = plain.read(left)
    return block if block[-1:] in (b"\n", b"") else block + plain.readline()


def _lines_before(rules: Rules) -> int:
    """Count the lines that begin before the span."""
    if rules.span is None or not rules.span[0]:
        return 0
    with open(rules.path, "rb") as file:
        return file.read(rules.span[0] - 1).count(b"\n") + 1


def parse_block(block: bytes, rules: Rules, blanks: int = 0) -> Samples:
    """Parse a block at once; after any ValueError or OverflowError, `parse_slowly` finds the fault.

    Blank lines count as samples as long as there are no more than `blanks` samples.
    """
    text, blank = b"\n" + block.translate(_BLANKS), 0
    if blanks:
        # scikit-learn skips blank lines, so they get an explicit zero; lines of comments stay blank.
        text, blank = _BLANK_LINE.subn(b"\n%d:0" % rules.first_index, text)
    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    qid = []
    if b"qid:" in text:
        parts = _QUERY.split(text)
        qid = [int(query) for query in parts[2::3]]
        del parts[2::3]
        text = b"".join(parts)
    if text.translate(None, b"0123456789+-.eE:, \n") or _LABEL_WITH_POINT.search(text):
        raise ValueError
    X, labels, label_sizes = _parse_labelled(text, rules.first_index == 0)
    if (qid and len(qid) != len(label_sizes)) or (blank and len(label_sizes) > blanks):
        raise ValueError
    largest = X.indices.max(initial=0) + rules.first_index
    if largest > rules.last_index or not (np.abs(X.data) <= rules.largest_value).all():
        raise ValueError
    if not (np.abs(labels) < _EXACT).all() or (not rules.multilabel and (label_sizes != 1).any()):
        raise ValueError
    ids = array("q", labels.astype(np.int64).tobytes())
    if rules.labels is not None and not all(map(rules.labels.__contains__, ids)):
        raise ValueError
    return Samples(X.indices, X.data, np.diff(X.indptr), ids, label_sizes, array("q", qid))


def _parse_labelled(text: bytes, zero_based: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the matrix, all labels (sorted within each sample), and the number of labels per sample."""
    from sklearn.datasets import load_svmlight_file

    if b"," not in text:
        # Reading one label per line is faster, but fails at a line without a label.
        try:
            X, labels = load_svmlight_file(io.BytesIO(text), zero_based=zero_based)
            return X, labels, np.ones(len(labels), dtype=np.int64)
        except ValueError:
            pass
    X, sets = load_svmlight_file(io.BytesIO(text), multilabel=True, zero_based=zero_based)
    sizes = np.fromiter(map(len, sets), dtype=np.int64, count=len(sets))
    labels = np.fromiter(chain.from_iterable(sets), dtype=np.float64, count=sizes.sum())
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if ((np.diff(labels) == 0) & (np.diff(owner) == 0)).any():
        raise ValueError
    return X, labels, sizes


def parse_slowly(block: bytes, rules: Rules, first_line: int, blanks: int = 0) -> Samples:
    """Parse a block word by word; raise DataFormatError at the first fault."""
    indices, values, sizes = array("q"), array("d"), array("q")
    labels, label_sizes, qid = array("q"), array("q"), array("q")
    for number, line in enumerate(block.translate(_BLANKS).splitlines(), first_line):
        text, comment, _ = line.partition(b"#")
        words = [(m.start() + 1, m.group()) for m in _WORD.finditer(text)]
        if not words and (comment or len(sizes) >= blanks):
            continue
        where = _Line(rules, number)
        ids: list[int] = []
        if words and b":" not in words[0][1]:
            ids = where.labels(*words.pop(0))
        if not rules.multilabel and len(ids) != 1:
            raise where.error(1, f"one label per line expected, found {len(ids)}")
        if words and words[0][1].startswith(b"qid:"):
            column, word = words.pop(0)
            qid.append(where.integer(column, word[4:], "query id"))
        before = rules.first_index - 1
        for column, word in words:
            before, value = where.pair(column, word, before)
            indices.append(before - rules.first_index)
            values.append(value)
        labels.extend(sorted(ids))
        label_sizes.append(len(ids))
        sizes.append(len(words))
        if qid and len(qid) != len(sizes):
            raise where.error(1, "some lines have a qid and some have none")
    return Samples(np.array(indices, dtype=np.int64), np.array(values), sizes, labels, label_sizes, qid)


@dataclass(frozen=True)
class _Line:
    rules: Rules
    number: int

    def error(self, column: int, message: str) -> DataFormatError:
        return DataFormatError(message, self.rules.path, self.number, column)

    def integer(self, column: int, word: bytes, what: str) -> int:
        if not _INTEGER.fullmatch(word):
            raise self.error(column, f"{_show(word)} is not a {what}")
        if len(word) > 20 or not -_LARGEST <= int(word) <= _LARGEST:
            raise self.error(column, f"{what} {_show(word)} does not fit 64 bits")
        return int(word)

    def labels(self, column: int, words: bytes) -> list[int]:
        ids = []
        for word in words.split(b","):
            ids.append(self.integer(column, word, "label (whole numbers, separated by commas)"))
            if self.rules.labels is not None and ids[-1] not in self.rules.labels:
                raise self.error(column, f"label {ids[-1]} is not among the given labels")
            column += len(word) + 1
        if len(set(ids)) < len(ids):
            raise self.error(1, "a label occurs twice")
        return ids

    def pair(self, column: int, word: bytes, before: int) -> tuple[int, float]:
        left, colon, right = word.partition(b":")
        if not colon:
            raise self.error(column, f"{_show(word)} is not index:value")
        index = self.integer(column, left, "feature index")
        if index < self.rules.first_index:
            hint = "; pass zero_based=True (--zero-based) if the first feature is 0" if index == 0 else ""
            raise self.error(column, f"feature index {index} is below {self.rules.first_index}{hint}")
        if index > self.rules.last_index:
            limit = (
                "the 64-bit range" if self.rules.n_features is None else f"n_features={self.rules.n_features}"
            )
            raise self.error(column, f"feature index {index} lies beyond {limit}")
        if index <= before:
            raise self.error(column, f"feature index {index} after {before}: indices must increase")
        value_column = column + len(left) + 1
        if not _NUMBER.fullmatch(right):
            raise self.error(value_column, f"{_show(right)} is not a finite number")
        value = float(right)
        if abs(value) > self.rules.largest_value:
            raise self.error(value_column, f"{_show(right)} is too large")
        return index, value


def _show(word: bytes) -> str:
    return repr(word[:40].decode("ascii", "backslashreplace"))
