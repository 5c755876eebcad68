"""Writers: a file is whole under its name or not there at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import scipy.sparse as sp

from maxmargin.datasets._arff_syntax import quote
from maxmargin.datasets._dataset import Dataset
from maxmargin.datasets._files import PathLike, whole_file

CLASS = "class"
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def write_svmlight(data: Dataset, path: PathLike, *, zero_based: bool = False) -> None:
    """Write multi-label SVMlight text (packed if the name ends in .xz or .gz).

    Labels are written as column numbers of Y from 0, or as they are when each sample has one
    integer class; other classes as their number in `label_names`. Values are written with as many
    digits as reading them back exactly needs.
    """
    X = sp.csr_array(data.X)
    if not np.isfinite(X.data).all():
        raise ValueError("SVMlight text cannot hold missing or infinite feature values.")
    if X.shape[1] == 0:
        raise ValueError("SVMlight text cannot hold samples without features.")
    first = 0 if zero_based else 1
    X.sort_indices()
    with whole_file(path) as out:
        for i, words in enumerate(_label_words(data)):
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
            out.write(f"{words} {' '.join(pairs)}".rstrip().encode() + b"\n")


def _label_words(data: Dataset) -> Iterator[str]:
    if data.multilabel:
        Y = sp.csr_array(data.Y)
        if not np.isin(Y.data, (0, 1)).all():
            raise ValueError("SVMlight text cannot hold missing label entries.")
        Y.eliminate_zeros()
        Y.sort_indices()
        for i in range(Y.shape[0]):
            yield ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist()))
    elif np.issubdtype(data.Y.dtype, np.integer):
        yield from map(str, data.Y.tolist())
    else:
        code = {name: str(k) for k, name in enumerate(data.label_names)}
        yield from (code[str(label)] for label in data.Y)


def write_csv(data: Dataset, path: PathLike) -> None:
    """Write a CSV table with a header: the features, then one 0/1 column per label or `class`.

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
    names, labels = _names(data)
    with whole_file(path) as out:
        out.write(_csv_line(names + labels))
        for row, entries in _rows(data, missing=""):
            out.write(_csv_line(row + entries))


def write_arff(data: Dataset, path: PathLike, xml: PathLike | None = None) -> None:
    """Write an ARFF file and, for several labels, the XML that names them.

    Parameters
    ----------
    data : Dataset
        Its rows are written sparsely if X is sparse.
    path : path-like
        The ARFF file; packed if the name ends in .xz or .gz. Labels come last, as {0,1}; one class
        per sample becomes a nominal attribute `class`.
    xml : path-like, default=None
        The label file of Mulan, nested as `extras["label_parents"]` says; None writes none.
    """
    if xml is not None and not data.multilabel:
        raise ValueError("xml names several labels; this data has one class per sample.")
    if not data.multilabel and "?" in data.label_names:
        raise ValueError("ARFF cannot hold a class called '?', which means a missing value there.")
    names, labels = _names(data)
    with whole_file(path) as out:
        lines = [f"@relation {quote(data.name or 'data')}", ""]
        lines += [f"@attribute {quote(name)} numeric" for name in names]
        if data.multilabel:
            lines += [f"@attribute {quote(name)} {{0,1}}" for name in labels]
        else:
            values = ",".join(quote(name) for name in data.label_names)
            lines.append(f"@attribute {CLASS} {{{values}}}")
        out.write("\n".join([*lines, "", "@data", ""]).encode())
        sparse = sp.issparse(data.X)
        for row, entries in _rows(data, missing="?"):
            words = row + (entries if data.multilabel else [quote(entries[0])])
            if sparse:
                kept = [f"{j} {word}" for j, word in enumerate(words) if word != "0" or j == _class_at(data)]
                out.write(("{" + ",".join(kept) + "}\n").encode())
            else:
                out.write((",".join(words) + "\n").encode())
    if xml is not None:
        with whole_file(xml) as out:
            out.write(_label_xml(data).encode())


def _csv_line(words: list[str]) -> bytes:
    quoted = ['"' + word.replace('"', '""') + '"' if _NEEDS_QUOTES.search(word) else word for word in words]
    return (",".join(quoted) or '""').encode() + b"\n"


def _class_at(data: Dataset) -> int:
    return -1 if data.multilabel else data.X.shape[1]


def _names(data: Dataset) -> tuple[list[str], list[str]]:
    names = list(data.feature_names) or [f"x{j}" for j in range(data.X.shape[1])]
    labels = list(data.label_names) if data.multilabel else [CLASS]
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


def _label_xml(data: Dataset) -> str:
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
