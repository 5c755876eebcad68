"""Writers of data sets; a file is complete under its name or not there at all.

`*_lines` yield the text of a data set, or of one chunk of a larger one, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import IO, Any
from xml.sax.saxutils import quoteattr

import numpy as np
import scipy.sparse as sp

from maxmargin.io.dataset import Dataset, PathLike
from maxmargin.io.files import atomic_write

# Name of the column of classes.
CLASS = "class"
# Entries of a table that are made dense at a time.
CELLS = 1 << 21
_PLAIN = re.compile(r"[A-Za-z0-9_.+\-=/:]+")
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def write_svmlight(
    data: Dataset, path: PathLike, *, zero_based: bool = False, labels: Sequence[int] | None = None
) -> None:
    """Write multi-label SVMlight text (packed if the name ends in .xz or .gz).

    Labels are written as column numbers of Y from 0, or as the entries of `labels` at these
    columns. Integer classes are written as they are, other classes as their number in
    `label_names`. Values have as many digits as an exact round trip needs.
    """
    with atomic_write(path, pack=True) as out:
        out.writelines(svmlight_lines(data, zero_based=zero_based, labels=labels))


def svmlight_lines(
    data: Dataset, *, zero_based: bool = False, labels: Sequence[int] | None = None
) -> Iterator[bytes]:
    """Yield the lines of `write_svmlight`."""
    X = sp.csr_array(data.X)
    if not np.isfinite(X.data).all():
        raise ValueError("SVMlight text cannot hold missing or infinite feature values.")
    if X.shape[1] == 0:
        raise ValueError("SVMlight text cannot hold samples without features.")
    first = 0 if zero_based else 1
    X.sort_indices()
    for i, words in enumerate(_label_words(data, labels)):
        row = slice(X.indptr[i], X.indptr[i + 1])
        entries = zip(X.indices[row].tolist(), X.data[row].astype(float).tolist(), strict=True)
        pairs = [f"{j + first}:{value!r}" for j, value in entries if value != 0]
        if not pairs and not words:
            pairs = [f"{first}:0"]
        yield f"{words} {' '.join(pairs)}".rstrip().encode() + b"\n"


def _label_words(data: Dataset, ids: Sequence[int] | None) -> Iterator[str]:
    if data.multilabel:
        words = [str(label) for label in (range(data.Y.shape[1]) if ids is None else ids)]
        Y = sp.csr_array(data.Y)
        if not np.isin(Y.data, (0, 1)).all():
            raise ValueError("SVMlight text cannot hold missing label entries.")
        Y.eliminate_zeros()
        Y.sort_indices()
        for i in range(Y.shape[0]):
            yield ",".join(words[k] for k in Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist())
    elif np.issubdtype(data.Y.dtype, np.integer):
        yield from map(str, data.Y.tolist())
    else:
        code = {name: str(k) for k, name in enumerate(data.label_names)}
        yield from (code[str(label)] for label in data.Y)


def write_csv(data: Dataset, path: PathLike) -> None:
    """Write a CSV table with a header (packed if the name ends in .xz or .gz).

    Features come first, then one 0/1 column per label, or one column with the class (its name is
    `extras["target"]`, or `class`). Missing values become empty fields. Numbers have as many
    digits as an exact round trip needs.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from maxmargin.datasets import load, read_csv
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "flags.csv"
    >>> write_csv(load("flags"), path)
    >>> read_csv(path, labels=7)
    Dataset('': 194 samples x 43 features, 7 labels)
    """
    with atomic_write(path, pack=True) as out:
        out.writelines(csv_lines(data))


def csv_lines(data: Dataset, *, header: bool = True, delimiter: str = ",") -> Iterator[bytes]:
    """Yield the lines of `write_csv`."""
    names, labels = _names(data)
    if header:
        yield _csv_line(names + labels, delimiter)
    for row, entries in _rows(data, missing=""):
        yield _csv_line(row + entries, delimiter)


def _csv_line(words: list[str], delimiter: str) -> bytes:
    quoted = [
        '"' + word.replace('"', '""') + '"' if _NEEDS_QUOTES.search(word) or delimiter in word else word
        for word in words
    ]
    return (delimiter.join(quoted) or '""').encode() + b"\n"


def write_arff(data: Dataset, path: PathLike, xml: PathLike | None = None) -> None:
    """Write an ARFF file and, for several labels, the XML that names them.

    Parameters
    ----------
    data : Dataset
        Rows are written sparsely if X is sparse.
    path : path-like
        The ARFF file; packed if the name ends in .xz or .gz. Labels come last, as {0,1}; one class
        per sample becomes a nominal attribute (its name is `extras["target"]`, or `class`).
    xml : path-like, default=None
        The label file of Mulan, nested according to `extras["label_parents"]`; None writes none.
    """
    if xml is not None and not data.multilabel:
        raise ValueError("xml names several labels, but this data has one class per sample.")
    with atomic_write(path, pack=True) as out:
        out.writelines(arff_lines(data))
    if xml is not None:
        with atomic_write(xml, pack=True) as out:
            out.write(label_xml(data).encode())


def arff_lines(data: Dataset, *, header: bool = True) -> Iterator[bytes]:
    """Yield the lines of the ARFF file of `write_arff`."""
    if not data.multilabel and "?" in data.label_names:
        raise ValueError("ARFF cannot hold a class called '?', which means a missing value there.")
    if header:
        names, labels = _names(data)
        yield f"@relation {_quote(data.name or 'data')}\n\n".encode()
        values = "0,1" if data.multilabel else ",".join(_quote(name) for name in data.label_names)
        for name in names:
            yield f"@attribute {_quote(name)} numeric\n".encode()
        for name in labels:
            yield f"@attribute {_quote(name)} {{{values}}}\n".encode()
        yield b"\n@data\n"
    class_at = -1 if data.multilabel else data.X.shape[1]
    for row, entries in _rows(data, missing="?"):
        words = row + (entries if data.multilabel else [_quote(entries[0])])
        if sp.issparse(data.X):
            kept = [f"{j} {word}" for j, word in enumerate(words) if word != "0" or j == class_at]
            yield ("{" + ",".join(kept) + "}\n").encode()
        else:
            yield (",".join(words) + "\n").encode()


def _quote(word: str) -> str:
    """Quote a word for an ARFF file."""
    if _PLAIN.fullmatch(word):
        return word
    if "\n" in word or "\r" in word:
        raise ValueError(f"ARFF cannot hold the line break in {word!r}.")
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"


def label_xml(data: Dataset) -> str:
    """Return the text of the label file of Mulan."""
    children: dict[int, list[int]] = {}
    for child, parent in enumerate(data.extras.get("label_parents", [-1] * data.n_labels)):
        children.setdefault(int(parent), []).append(child)
    lines = ['<?xml version="1.0" encoding="utf-8"?>', '<labels xmlns="http://mulan.sourceforge.net/labels">']
    # A stack instead of recursion, since labels may be nested deeply; None closes a label.
    stack: list[int | None] = [*reversed(children.get(-1, []))]
    while stack:
        label = stack.pop()
        if label is None:
            lines.append("</label>")
        else:
            lines.append(f"<label name={quoteattr(data.label_names[label])}>")
            stack.append(None)
            stack += reversed(children.get(label, []))
    return "\n".join([*lines, "</labels>", ""])


def write_parquet(data: Dataset, path: PathLike) -> None:
    """Write a Parquet table with the columns of `write_csv`; needs pyarrow.

    Missing values become nulls. Sparse rows are made dense, a few at a time.
    """
    with atomic_write(path) as out:
        writer = ParquetWriter(out)
        writer.write(data)
        writer.close()


class ParquetWriter:
    """Writes data sets with the same columns one after another into one Parquet table."""

    def __init__(self, out: IO[bytes]) -> None:
        try:
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise ImportError("Parquet needs pyarrow: pip install pyarrow") from error
        self._parquet, self._out = parquet, out
        self._writer: Any = None

    def write(self, data: Dataset) -> None:
        """Append the rows of a data set."""
        names, labels = _names(data)
        n, d = data.X.shape
        step = max(1, CELLS // max(d, 1))
        for start in range(0, n, step):
            self._write_table(names + labels, data.take(slice(start, start + step)))

    def _write_table(self, names: list[str], data: Dataset) -> None:
        import pyarrow as pa

        blocks = [data.X, data.Y] if data.multilabel else [data.X]
        dense = [block.toarray() if sp.issparse(block) else block for block in blocks]
        columns = [pa.array(column, from_pandas=True) for block in dense for column in block.T]
        if not data.multilabel:
            columns.append(pa.array(data.Y.tolist()))
        table = pa.table(columns, names=names)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(pa.PythonFile(self._out, mode="w"), table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Write the end of the file; it cannot be read without."""
        if self._writer is not None:
            self._writer.close()


def letter_lines(data: Dataset, first_id: int = 1, first_word: int = 1) -> Iterator[bytes]:
    """Yield the lines of a letter.data file; `per_row` has "word", "position" and "fold"."""
    word, position, fold = (data.per_row[key].tolist() for key in ("word", "position", "fold"))
    for i, (letter, pixels) in enumerate(zip(data.Y.tolist(), data.X.astype(int).tolist(), strict=True)):
        last = i + 1 == len(word) or word[i + 1] != word[i]
        number = first_id + i
        following = -1 if last else number + 1
        fields = [number, letter, following, word[i] + first_word, position[i] + 1, fold[i], *pixels]
        yield "\t".join(map(str, fields)).encode() + b"\n"


def _names(data: Dataset) -> tuple[list[str], list[str]]:
    """Return the names of the columns of features and of labels, which must differ."""
    names = list(data.feature_names) or [f"x{j}" for j in range(data.X.shape[1])]
    labels = list(data.label_names) if data.multilabel else [data.extras.get("target") or CLASS]
    seen: set[str] = set()
    for name in names + labels:
        if name in seen:
            raise ValueError(f"The name {name!r} occurs twice among features and labels; rename one.")
        seen.add(name)
    return names, labels


def _rows(data: Dataset, missing: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of the features and of the labels of each sample."""
    for i in range(data.X.shape[0]):
        row = [_word(value, missing) for value in _dense(data.X, i)]
        if data.multilabel:
            yield row, [_word(value, missing) for value in _dense(data.Y, i)]
        else:
            yield row, [str(data.Y[i])]


def _dense(matrix: Any, i: int) -> list[float]:
    if not sp.issparse(matrix):
        return matrix[i].tolist()
    row = np.zeros(matrix.shape[1], dtype=matrix.dtype)
    entries = slice(matrix.indptr[i], matrix.indptr[i + 1])
    row[matrix.indices[entries]] = matrix.data[entries]
    return row.tolist()


def _word(value: float, missing: str) -> str:
    if value != value:
        return missing
    if value in (float("inf"), float("-inf")):
        raise ValueError("An infinite value cannot be written.")
    return repr(value + 0).removesuffix(".0")
