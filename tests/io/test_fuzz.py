"""Whatever a file holds, a reader gives a Dataset or a DataFormatError, nothing else."""

import gzip
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.datasets import (
    DataFormatError,
    read_arff,
    read_csv,
    read_label_xml,
    read_letter_data,
    read_mulan,
    read_parquet,
    read_svmlight,
)

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
LETTER = b"1\ta\t2\t1\t1\t0\t1\t0\t\n2\tb\t-1\t1\t2\t0\t0\t1\t\n"


def mulan(path):
    xml = path.with_name("l.xml")
    xml.write_bytes(b'<labels><label name="l"/></labels>')
    return read_mulan(path, xml)


READERS = {
    "svmlight": (read_svmlight, SVM),
    "svmlight classes": (
        lambda path: read_svmlight(path, multilabel=False, zero_based=True),
        b"1 0:1\n2 3:4\n",
    ),
    "arff": (lambda path: read_arff(path, labels=["l"]), ARFF),
    "arff class": (lambda path: read_arff(path, target=1), ARFF),
    "arff meka": (lambda path: read_arff(path, labels="meka"), ARFF.replace(b"-C 1", b"-C -1")),
    "mulan": (mulan, SPARSE),
    "csv": (lambda path: read_csv(path, labels=1), CSV),
    "csv class": (lambda path: read_csv(path, target=0, header=False), b'7,"1.5"\n8,-2e3\n'),
    "xml": (read_label_xml, XML),
    "letter": (read_letter_data, LETTER),
}
MARKS = [*b"\n\r,:'\"{}?%#\\ \t-_<>\xff\x00"]
WORDS = [b"nan", b"1e999", b"9" * 30, b"&a;", b"<!DOCTYPE x>", b"@data", b"\xd9\xa1", b"utf-7"]
PIECES = st.one_of(st.binary(max_size=6), st.sampled_from([bytes([mark]) for mark in MARKS] + WORDS))


@st.composite
def mutated(draw, start: bytes) -> bytes:
    """The file with a few stretches replaced."""
    text = start
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        until = draw(st.integers(at, min(len(text), at + 8)))
        text = text[:at] + draw(PIECES) + text[until:]
    return text


def check(read, path) -> None:
    try:
        data = read(path)
    except DataFormatError as error:
        assert error.path is not None
        assert error.line is None or error.line >= 1
        assert error.column is None or error.column >= 1
        return
    if read is not read_label_xml:
        assert data.X.shape[0] == data.Y.shape[0] > 0
        assert not np.isinf(data.X.data if sp.issparse(data.X) else data.X).any()


@pytest.mark.parametrize("name", READERS)
def test_the_starting_files_are_good(name, tmp_path):
    read, start = READERS[name]
    (tmp_path / "f").write_bytes(start)
    data = read(tmp_path / "f")
    if read is read_label_xml:
        assert data.names == ("l", "x") and data.parents == (-1, 0)
    else:
        assert data.X.shape[0] == data.Y.shape[0] > 0


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=300)
@given(data=st.data())
def test_mutated_files(name, tmp_path_factory, data):
    read, start = READERS[name]
    path = tmp_path_factory.getbasetemp() / f"mutated-{name}"
    path.write_bytes(data.draw(mutated(start)))
    check(read, path)


@pytest.mark.parametrize("name", READERS)
@given(content=st.binary(max_size=200))
def test_random_bytes(name, tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / f"random-{name}"
    path.write_bytes(content)
    check(READERS[name][0], path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
@given(data=st.data())
def test_damaged_packed_files(pack, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / f"packed-{pack.__module__}"
    path.write_bytes(data.draw(mutated(pack(SVM))))
    check(read_svmlight, path)


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_parquet(tmp_path_factory, data):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0], "l": [0, 1]}), path)
    path.write_bytes(data.draw(mutated(path.read_bytes())))
    check(lambda p: read_parquet(p, labels=1), path)
