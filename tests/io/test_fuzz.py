"""Whatever a file holds, a reader gives a Dataset or a DataFormatError, nothing else."""

import gzip
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.datasets import read_label_xml
from tests.fuzz.readers import MARKS, READERS, SVM, WORDS, attempt

PIECES = st.one_of(st.binary(max_size=6), st.sampled_from(MARKS + WORDS))


@st.composite
def mutated(draw, start: bytes) -> bytes:
    """The file with a few stretches replaced."""
    text = start
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        until = draw(st.integers(at, min(len(text), at + 8)))
        text = text[:at] + draw(PIECES) + text[until:]
    return text


@pytest.mark.parametrize("name", READERS)
def test_the_starting_files_are_good(name, tmp_path):
    read, start = READERS[name]
    assert attempt(name, start(), tmp_path / "f") == "used"
    if read is read_label_xml:
        data = read(tmp_path / "f")
        assert data.names == ("l", "x") and data.parents == (-1, 0)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_mutated_files(name, tmp_path_factory, data):
    content = data.draw(mutated(READERS[name][1]()))
    attempt(name, content, tmp_path_factory.getbasetemp() / f"mutated-{name}")


@pytest.mark.parametrize("name", READERS)
@given(content=st.binary(max_size=200))
def test_random_bytes(name, tmp_path_factory, content):
    attempt(name, content, tmp_path_factory.getbasetemp() / f"random-{name}")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
@given(data=st.data())
def test_damaged_packed_files(pack, tmp_path_factory, data):
    content = data.draw(mutated(pack(SVM)))
    attempt("svmlight", content, tmp_path_factory.getbasetemp() / f"packed-{pack.__module__}")
