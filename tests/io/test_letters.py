"""Taskar's letter.data."""

import numpy as np
import pytest

from maxmargin.datasets import DataFormatError, read_letter_data

ROWS = [
    [1, "a", 2, 1, 1, 0, 1, 0, 1],
    [2, "b", -1, 1, 2, 0, 0, 0, 1],
    [3, "a", -1, 2, 1, 3, 1, 1, 1],
]


def written(tmp_path, rows):
    path = tmp_path / "letter.data"
    path.write_text("".join("\t".join(map(str, row)) + "\t\n" for row in rows))
    return path


def test_words_positions_and_folds(tmp_path):
    data = read_letter_data(written(tmp_path, ROWS))
    np.testing.assert_array_equal(data.X, [[1, 0, 1], [0, 0, 1], [1, 1, 1]])
    assert data.Y.tolist() == ["a", "b", "a"] and data.label_names == ("a", "b")
    assert {key: value.tolist() for key, value in data.per_row.items()} == {
        "word": [0, 0, 1],
        "position": [0, 1, 0],
        "fold": [0, 0, 3],
    }
    assert data.part("train").per_row["word"].tolist() == [0, 0]
    assert data.part("test").Y.tolist() == ["a"]


@pytest.mark.parametrize(
    ("row", "column", "value", "place", "message"),
    [
        (1, 6, "2", (2, 7), "not a pixel"),
        (1, 1, "ab", (2, 2), "not one letter"),
        (0, 2, "x", (1, 3), "next_id 'x'"),
        (0, 5, "1.0", (1, 6), "fold '1.0'"),
        (1, 3, 9, (2, 4), "a word stops"),
        (2, 2, 4, (None, None), "within a word"),
    ],
)
def test_faults_name_their_place(tmp_path, row, column, value, place, message):
    rows = [list(r) for r in ROWS]
    rows[row][column] = value
    with pytest.raises(DataFormatError, match=message) as caught:
        read_letter_data(written(tmp_path, rows))
    assert (caught.value.line, caught.value.column) == place


def test_rows_of_different_length_and_none(tmp_path):
    with pytest.raises(DataFormatError, match="8 fields"):
        read_letter_data(written(tmp_path, [ROWS[0], ROWS[1][:-1]]))
    with pytest.raises(DataFormatError, match="no characters"):
        read_letter_data(written(tmp_path, []))
