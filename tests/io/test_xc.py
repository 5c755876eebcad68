"""Files of the extreme classification repository."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.datasets import DataFormatError, read_xc, write_svmlight
from maxmargin.io import svmlight
from maxmargin.io.chunks import stream_svmlight

TEXT = "3 4 5\n0,3 0:0.5 3:1\n 1:4\n4,2 2:-1e-3\n"


def test_header_labels_and_features_from_zero(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text(TEXT)
    data = read_xc(path)
    assert data.X.toarray().tolist() == [[0.5, 0, 0, 1], [0, 4, 0, 0], [0, 0, -0.001, 0]]
    assert data.Y.toarray().tolist() == [[1, 0, 0, 1, 0], [0] * 5, [0, 0, 1, 0, 1]]
    assert data.label_names == ("0", "1", "2", "3", "4")
    packed = tmp_path / "tiny.txt.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    again = read_xc(packed, dtype=np.float32)
    assert again.X.dtype == np.float32 and (again.Y != data.Y).nnz == 0


BLANK = {
    "in the middle": "3 4 5\n0 0:1\n \n2 2:1\n",
    "without a space, and line ends of Windows": "3 4 5\r\n0 0:1\r\n\r\n2 2:1\r\n",
    "beside a comment": "3 4 5\n# not a sample\n0 0:1\n\t\n  # nor this\n2 2:1",
    "surplus ones at the end": "3 4 5\n0 0:1\n\n2 2:1\n\n \n",
}


@pytest.mark.parametrize("block", [1, 1 << 20])
@pytest.mark.parametrize("text", BLANK.values(), ids=BLANK)
def test_a_blank_line_is_a_sample(tmp_path, monkeypatch, text, block):
    monkeypatch.setattr(svmlight, "BLOCK", block)
    path = tmp_path / "blank.txt"
    path.write_bytes(text.encode())
    data = read_xc(path)
    assert data.X.toarray().tolist() == [[1, 0, 0, 0], [0] * 4, [0, 0, 1, 0]]
    assert data.Y.toarray().tolist() == [[1, 0, 0, 0, 0], [0] * 5, [0, 0, 1, 0, 0]]
    assert data.X.nnz == 2
    pieces = sp.vstack(list(stream_svmlight(path, 4, zero_based=True, header_lines=1, n_samples=3)))
    assert np.array_equal(pieces.toarray(), data.X.toarray())


@pytest.mark.parametrize("text", ["2 4 5\n0 0:1\n\n", "2 4 5\n0 0:1\n ", "2 0 5\n0\n\n"])
def test_the_last_sample_may_be_blank(tmp_path, text):
    path = tmp_path / "blank.txt"
    path.write_text(text)
    data = read_xc(path)
    assert data.X.shape[0] == 2
    assert data.Y.toarray().tolist() == [[1, 0, 0, 0, 0], [0] * 5]


def test_samples_without_anything_survive_a_round_trip(tmp_path):
    path, lines = tmp_path / "blank.txt", tmp_path / "written.svm"
    path.write_text(BLANK["in the middle"])
    data = read_xc(path)
    write_svmlight(data, lines, zero_based=True)
    path.write_text("3 4 5\n" + lines.read_text())
    again = read_xc(path)
    assert (again.X != data.X).nnz == (again.Y != data.Y).nnz == 0


@pytest.mark.parametrize(
    "text, message",
    [
        ("0,3 0:0.5\n", "first line must hold"),
        ("1 4\n0 1:1\n", "first line must hold"),
        ("1 4 999999999\n0 1:1\n", "claims 999,999,999 labels"),
        ("2 4 5\n0 1:1\n", "says 2 samples, but there are 1"),
        ("1 4 5\n5 1:1\n", "label 5 is not among"),
        ("1 4 5\n2,2 1:1\n", "a label occurs twice"),
        ("2 4 5\n0 1:1\n\n2 2:1\n", "says 2 samples, but there are 3"),
        ("3 4 5\n0 1:1\n\n2 2:x\n", "line 4.*'x' is not a finite number"),
        ("1 4 5\n0 4:1\n", "line 2.*lies beyond n_features=4|lies beyond n_features=4"),
    ],
)
def test_faults_are_named(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(DataFormatError, match=message):
        read_xc(path)
