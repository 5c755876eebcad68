"""Changed files: readers return a Dataset or raise DataFormatError; models are refused or harmless.

`make fuzz` tries many more.
"""

import gzip
import lzma
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.datasets import read_label_xml
from tests.fuzz import models
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
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_mutated_files(name, tmp_path_factory, data):
    content = data.draw(mutated(READERS[name][1]()))
    attempt(name, content, tmp_path_factory.getbasetemp() / f"mutated-{name}")


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=50, deadline=None)
@given(content=st.binary(max_size=200))
def test_random_bytes(name, tmp_path_factory, content):
    attempt(name, content, tmp_path_factory.getbasetemp() / f"random-{name}")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
@given(data=st.data())
def test_damaged_packed_files(pack, tmp_path_factory, data):
    content = data.draw(mutated(pack(SVM)))
    attempt("svmlight", content, tmp_path_factory.getbasetemp() / f"packed-{pack.__module__}")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return models.seeds(tmp_path_factory.mktemp("sound"))


def test_the_starting_models_are_good(files, tmp_path):
    for file in files:
        assert models.attempt(file, tmp_path / "m.mm") == "used"


@pytest.mark.parametrize("seed", range(6))
def test_changed_models_are_refused_or_harmless(seed, files, tmp_path):
    rng = random.Random(seed)
    answers = [models.attempt(models.mutated(rng, files), tmp_path / "m.mm") for _ in range(60)]
    assert 10 < answers.count("refused") < 60
