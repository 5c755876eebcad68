"""Files of the extreme classification repository."""

import gzip

import numpy as np
import pytest

from maxmargin.datasets import DataFormatError, read_xc

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


@pytest.mark.parametrize(
    "text, message",
    [
        ("0,3 0:0.5\n", "first line must hold"),
        ("1 4\n0 1:1\n", "first line must hold"),
        ("1 4 999999999\n0 1:1\n", "more than 100000000"),
        ("2 4 5\n0 1:1\n", "tells of 2 samples, but there are 1"),
        ("1 4 5\n5 1:1\n", "label 5 is not among"),
        ("1 4 5\n2,2 1:1\n", "a label occurs twice"),
        ("1 4 5\n0 4:1\n", "line 2.*lies beyond n_features=4|lies beyond n_features=4"),
    ],
)
def test_faults_are_named(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(DataFormatError, match=message):
        read_xc(path)
