"""Writers: a file is whole under its name or not there at all.

`*_lines` give the text of a data set, or of one piece of a larger one, line by line.
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

CLASS = "class"
# Entries of a dense piece of a table that is written out at once.
CELLS = 1 << 21
_PLAIN = re.compile(r"[A-Za-z0-9_.+\-=/:]+")
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def write_svmlight(
    data: Dataset, path: PathLike, *, zero_based: bool = False, labels: Sequence[int] | None = None
) -> None:
    """Write multi-label SVMlight text (packed if the name ends in .xz or .gz).

    Labels are written as column numbers of Y from 0, or as the entries of `labels` at these
    columns; one integer class per sample is written as it is, other classes as their number in
    `label_names`. Values are written with as many digits as reading them back exactly needs.
    """
    with atomic_write(path, pack=True) as out:
        out.writelines(svmlight_lines(data, zero_based=zero_based, labels=labels))


def svmlight_lines(
    data: Dataset, *, zero_based: bool = False, labels: Sequence[int] | None = None
) -> Iterator[bytes]:
    """The lines that `write_svmlight` writes."""
    X = sp.csr_array(data.X)
    if not np.isfinite(X.data).all():
        raise ValueError("SVMlight text cannot hold missing or infinite feature values.")
    if X.shape[1] == 0:
        raise ValueError("SVMlight text cannot hold samples without features.")
    first = 0 if zero_based else 1
    X.sort_indices()
    for i, words in enumerate(_label_words(data, labels)):
        start, stop = X.indptr[i], X.indptr[i + 1]
        pairs = [
            f"{j + first}:{value!r}"
            for j, value in zip(
                X.indices[start:stop].tolist(), X.data[start:stop].astype(float).tolist(), strict=True
            )
            if value != 0
        ]
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
    """Write a CSV table with a header: the features, then one 0/1 column per label or one with the class.

    That one is called as `extras["target"]` says, otherwise `class`.

    Missing values become empty fields; numbers have as many digits as reading them back exactly
    needs. Packed if the name ends in .xz or .gz.

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
    """The lines that `write_csv` writes."""
    names, labels = _names(data)
    if header:
        yield _csv_line(names + labels, delimiter)
    for row, entries in _rows(data, missing=""):
        yield _csv_line(row + entries, delimiter)


def write_arff(data: Dataset, path: PathLike, xml: PathLike | None = None) -> None:
    """Write an ARFF file and, for several labels, the XML that names them.

    Parameters
    ----------
    data : Dataset
        Its rows are written sparsely if X is sparse.
    path : path-like
        The ARFF file; packed if the name ends in .xz or .gz. Labels come last, as {0,1}; one class
        per sample becomes a nominal attribute (`extras["target"]`, otherwise `class`).
    xml : path-like, default=None
        The label file of Mulan, nested as `extras["label_parents"]` says; None writes none.
    """
    if xml is not None and not data.multilabel:
        raise ValueError("xml names several labels; this data has one class per sample.")
    with atomic_write(path, pack=True) as out:
        out.writelines(arff_lines(data))
    if xml is not None:
        with atomic_write(xml, pack=True) as out:
            out.write(label_xml(data).encode())


def arff_lines(data: Dataset, *, header: bool = True) -> Iterator[bytes]:
    """The lines that `write_arff` writes to the ARFF file."""
    if not data.multilabel and "?" in data.label_names:
        raise ValueError("ARFF cannot hold a class called '?', which means a missing value there.")
    if header:
        yield from _arff_header(data)
    sparse = sp.issparse(data.X)
    class_at = -1 if data.multilabel else data.X.shape[1]
    for row, entries in _rows(data, missing="?"):
        words = row + (entries if data.multilabel else [_quote(entries[0])])
        if sparse:
            kept = [f"{j} {word}" for j, word in enumerate(words) if word != "0" or j == class_at]
            yield ("{" + ",".join(kept) + "}\n").encode()
        else:
            yield (",".join(words) + "\n").encode()


def _arff_header(data: Dataset) -> Iterator[bytes]:
    names, labels = _names(data)
    yield f"@relation {_quote(data.name or 'data')}\n\n".encode()
    for name in names:
        yield f"@attribute {_quote(name)} numeric\n".encode()
    if data.multilabel:
        for name in labels:
            yield f"@attribute {_quote(name)} {{0,1}}\n".encode()
    else:
        values = ",".join(_quote(name) for name in data.label_names)
        yield f"@attribute {_quote(labels[0])} {{{values}}}\n".encode()
    yield b"\n@data\n"


def _quote(word: str) -> str:
    """The word as it may stand in an ARFF file."""
    if _PLAIN.fullmatch(word):
        return word
    if "\n" in word or "\r" in word:
        raise ValueError(f"ARFF cannot hold the line break in {word!r}.")
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"


def write_parquet(data: Dataset, path: PathLike) -> None:
    """Write a Parquet table with the columns of `write_csv`; needs pyarrow.

    Missing values become nulls. Sparse rows are written out in full, a few at a time.
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
            self._write_table(names, labels, data.take(slice(start, start + step)))

    def _write_table(self, names: list[str], labels: list[str], data: Dataset) -> None:
        import pyarrow as pa

        X = data.X.toarray() if sp.issparse(data.X) else data.X
        columns = [pa.array(X[:, j], from_pandas=True) for j in range(len(names))]
        if data.multilabel:
            Y = data.Y.toarray() if sp.issparse(data.Y) else data.Y
            columns += [pa.array(Y[:, k], from_pandas=True) for k in range(len(labels))]
        else:
            columns.append(pa.array(data.Y.tolist()))
        table = pa.table(columns, names=names + labels)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(pa.PythonFile(self._out, mode="w"), table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Write the end of the file, without which it cannot be read."""
        if self._writer is not None:
            self._writer.close()


def letter_lines(data: Dataset, first_id: int = 1, first_word: int = 1) -> Iterator[bytes]:
    """The lines of a letter.data file; `per_row` has "word", "position" and "fold"."""
    word, position, fold = (data.per_row[key].tolist() for key in ("word", "position", "fold"))
    for i, (letter, pixels) in enumerate(zip(data.Y.tolist(), data.X.astype(int).tolist(), strict=True)):
        last = i + 1 == len(word) or word[i + 1] != word[i]
        number = first_id + i
        following = -1 if last else number + 1
        fields = [number, letter, following, word[i] + first_word, position[i] + 1, fold[i], *pixels]
        yield "\t".join(map(str, fields)).encode() + b"\n"


def _csv_line(words: list[str], delimiter: str) -> bytes:
    quoted = [
        '"' + word.replace('"', '""') + '"' if _NEEDS_QUOTES.search(word) or delimiter in word else word
        for word in words
    ]
    return (delimiter.join(quoted) or '""').encode() + b"\n"


def _names(data: Dataset) -> tuple[list[str], list[str]]:
    names = list(data.feature_names) or [f"x{j}" for j in range(data.X.shape[1])]
    labels = list(data.label_names) if data.multilabel else [data.extras.get("target") or CLASS]
    seen: set[str] = set()
    for name in names + labels:
        if name in seen:
            raise ValueError(f"The name {name!r} occurs twice among features and labels; rename one.")
        seen.add(name)
    return names, labels


def _rows(data: Dataset, missing: str) -> Iterator[tuple[list[str], list[str]]]:
    """Words of the features and of the labels of each sample."""
    for i in range(data.X.shape[0]):
        entries = _dense(data.Y, i) if data.multilabel else [data.Y[i]]
        labels = [_word(value, missing) for value in entries] if data.multilabel else [str(entries[0])]
        yield [_word(value, missing) for value in _dense(data.X, i)], labels


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


def label_xml(data: Dataset) -> str:
    """The text of the label file of Mulan."""
    parents = data.extras.get("label_parents", [-1] * data.n_labels)
    children: dict[int, list[int]] = {}
    for label, parent in enumerate(parents):
        children.setdefault(int(parent), []).append(label)
    lines = ['<?xml version="1.0" encoding="utf-8"?>', '<labels xmlns="http://mulan.sourceforge.net/labels">']
    waiting: list[tuple[str, int]] = [("open", label) for label in reversed(children.get(-1, []))]
    while waiting:
        step, label = waiting.pop()
        if step == "close":
            lines.append("</label>")
            continue
        lines.append(f"<label name={quoteattr(data.label_names[label])}>")
        waiting.append(("close", label))
        waiting += [("open", child) for child in reversed(children.get(label, []))]
    return "\n".join([*lines, "</labels>", ""])
