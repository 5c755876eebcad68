"""Changed data files: a reader returns data or raises DataFormatError."""

from __future__ import annotations

import functools
import gzip
import lzma
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.datasets import (
    DataFormatError,
    read_arff,
    read_csv,
    read_label_xml,
    read_letter_data,
    read_mail_folders,
    read_mulan,
    read_parquet,
    read_svmlight,
    read_xc,
)
from maxmargin.io.mixed import Source, read_mixed
from maxmargin.io.table import LabelColumns
from maxmargin.tables import kind_of_values

SVM = b"1,3 qid:2 1:0.5 7:-1e3 # text\n qid:1 2:4\n2 qid:7 9:1\n"
ARFF = (
    b"@relation 'a: -C 1'\n@attribute 'x y' numeric\n@attribute n {u,'v w',\"z\"}\n@attribute l {0,1}\n"
    b"@data\n1.5,'v w',1\n?,u,0 % end\n"
)
SPARSE = (
    b"@relation r\n@attribute x real\n@attribute n {u,v}\n@attribute l {0,1}\n@data\n{0 1.5, 1 'v',2 1}\n{}\n"
)
CSV = b'x,"n, m",l\n1.5,-2e3,1\n,"4",0\n'
XML = b'<?xml version="1.0" encoding="utf-8"?><labels><label name="l"><label name="x"/></label></labels>'
MAIL = (
    b"Date: Mon, 3 Jan 2000 00:00:03 -0000\nSubject: =?utf-8?b?w5xiZXI=?=\nContent-Type: multipart/mixed; "
    b"boundary=zz\n\n--zz\nContent-Type: text/html; charset=utf-8\n\n<style>p {}</style><p>Seen</p>\n--zz\n"
    b"Content-Transfer-Encoding: base64\n\naGVsbG8=\n--zz--\n"
)
MIXED = b'title,size,kind,tags\nred hat,1,a,"x;y"\n"blue, old",,a,\ngreen coat,3,b,"[""z""]"\nhat,4,b,x\n'
JSONL = (
    b'{"t": "red hat", "n": 1, "tags": ["x", "y"]}\n{"t": null, "n": 2.5, "tags": "x"}\n\n{"t": "a coat"}\n'
)
LETTER = b"1\ta\t2\t1\t1\t0\t1\t0\t\n2\tb\t-1\t1\t2\t0\t0\t1\t\n"


def _mulan(path: Path) -> Any:
    xml = path.with_name("l.xml")
    xml.write_bytes(b'<labels><label name="l"/></labels>')
    return read_mulan(path, xml)


def _mail(path: Path) -> Any:
    """Read the file as a message in a folder."""
    folder = path.with_name("mailbox") / "inbox"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1").write_bytes(path.read_bytes())
    return read_mail_folders(folder.parent)


def _table(kind: str, **where: Any) -> Callable[[Path], Any]:
    """Return a reader of tables with words."""
    return lambda path: read_mixed(Source(path, kind), LabelColumns(**where), kind_of_values, kinds={})


def _tar() -> bytes:
    import io
    import tarfile

    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w") as archive:
        entry = tarfile.TarInfo("inbox/1")
        entry.size = len(MAIL)
        archive.addfile(entry, io.BytesIO(MAIL))
    return stored.getvalue()[:2048]


def _parquet(**columns: Any) -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = io.BytesIO()
    pq.write_table(pa.table(columns or {"a": [1.0, 2.0], "b": [3, 4], "l": [0, 1]}), stored)
    return stored.getvalue()


READERS: dict[str, tuple[Callable[[Path], Any], Callable[[], bytes]]] = {
    "svmlight": (read_svmlight, lambda: SVM),
    "svmlight classes": (
        lambda path: read_svmlight(path, multilabel=False, zero_based=True),
        lambda: b"1 0:1\n2 3:4\n",
    ),
    "svmlight gz": (read_svmlight, lambda: gzip.compress(SVM, mtime=0)),
    "svmlight xz": (read_svmlight, lambda: lzma.compress(SVM)),
    "arff": (lambda path: read_arff(path, labels=["l"]), lambda: ARFF),
    "arff class": (lambda path: read_arff(path, target=1), lambda: ARFF),
    "arff meka": (lambda path: read_arff(path, labels="meka"), lambda: ARFF.replace(b"-C 1", b"-C -1")),
    "mulan": (_mulan, lambda: SPARSE),
    "csv": (lambda path: read_csv(path, labels=1), lambda: CSV),
    "csv class": (lambda path: read_csv(path, target=0, header=False), lambda: b'7,"1.5"\n8,-2e3\n'),
    "xml": (read_label_xml, lambda: XML),
    "letter": (read_letter_data, lambda: LETTER),
    "mail": (_mail, lambda: MAIL),
    "mailbox": (read_mail_folders, _tar),
    "table": (_table("csv", labels=["tags"]), lambda: MIXED),
    "table of classes": (_table("csv", target="kind"), lambda: MIXED),
    "json lines": (_table("jsonl", labels=["tags"]), lambda: JSONL),
    "parquet": (lambda path: read_parquet(path, labels=1), _parquet),
    "parquet of words": (
        _table("parquet", labels=["l"]),
        lambda: _parquet(l=[["x", "y"], None, ["x"]], b=["u", "v", "u"]),
    ),
    "extreme classification": (read_xc, lambda: b"2 3 4\n0,2 0:0.5 2:1\n 1:4\n"),
}
MARKS = [bytes([mark]) for mark in b"\n\r,:'\"{}?%#\\ \t-_<>\xff\x00"]
WORDS = [
    b"nan",
    b"1e999",
    b"9" * 30,
    b"&a;",
    b"<!DOCTYPE x>",
    b"@data",
    b"\xd9\xa1",
    b"utf-7",
    b"{",
    b"2147483648:1",
]


@functools.cache
def start(name: str) -> bytes:
    """Return a sound file for a reader."""
    return READERS[name][1]()


def mutated(rng: random.Random, start: bytes) -> bytes:
    """Replace, repeat or cut off a few parts of the file."""
    text = start
    for _ in range(rng.randint(1, 5)):
        at = rng.randint(0, len(text))
        until = rng.randint(at, min(len(text), at + 8))
        piece = rng.choice([rng.choice(MARKS), rng.choice(WORDS), rng.randbytes(rng.randint(0, 6)), b""])
        if rng.random() < 0.1:
            piece = text[at:until] * rng.randint(2, 50)
        text = text[:at] + piece + text[until:]
    return text[: rng.randint(0, len(text))] if rng.random() < 0.05 else text


def attempt(name: str, content: bytes, path: Path) -> str:
    """Read a file; return "refused" or "used". Any other exception is a finding."""
    path.write_bytes(content)
    read = READERS[name][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data = read(path)
        except DataFormatError as error:
            assert error.path is not None
            return "refused"
    if read is not read_label_xml:
        assert data.X.shape[0] == data.Y.shape[0] > 0
        if data.X.dtype == object:
            numbers = [value for value in data.X.ravel() if isinstance(value, float)]
            assert not np.isinf(numbers).any()
            return "used"
        assert not np.isinf(data.X.data if sp.issparse(data.X) else data.X).any()
    return "used"
