"""The compact files of shipped data hold what was packed."""

import numpy as np
import pytest

from experiments.data.pack import pack, pack_stream, pack_texts
from maxmargin.datasets import Dataset, read_mail_folders
from maxmargin.io.shipped import unpack, unpack_stream, unpack_texts


def test_packing_is_exact(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(-(10**8), 10**8, (20, 7)) / 10**4
    data = Dataset(
        X, rng.integers(0, 2, (20, 3)), tuple("abcdefg"), tuple("xyz"), np.arange(12), np.arange(12, 20)
    )
    pack(data, tmp_path / "a.npz.xz")
    again = unpack(tmp_path / "a.npz.xz")
    np.testing.assert_array_equal(again.X, X)
    np.testing.assert_array_equal(again.Y, data.Y)
    np.testing.assert_array_equal(again.test, data.test)
    assert (again.feature_names, again.label_names) == (data.feature_names, data.label_names)
    with pytest.raises(ValueError, match="6 decimals"):
        pack(Dataset(X + 1e-9, data.Y), tmp_path / "b.npz.xz")


def test_packing_keeps_texts_and_labels(tmp_path):
    texts, names = ["old roses", "roses in tea", "tea & <b>milk</b>", "old tea"], ("a", "b c")
    pack_texts(texts, [[0], [0, 1], [1], [1]], names, 3, tmp_path / "t.npz.xz")
    again = unpack_texts(tmp_path / "t.npz.xz")
    assert again.per_row["text"].tolist() == texts and again.label_names == names
    assert again.Y.tolist() == [[1, 0], [1, 1], [0, 1], [0, 1]] and again.test.tolist() == [3]
    # Words of a single training text are left out, and rows have unit length.
    assert again.feature_names == ("roses", "tea")
    np.testing.assert_allclose(again.X.power(2).sum(axis=1), 1)


def test_packing_keeps_the_stream_and_drops_the_words(tmp_path):
    for k, (folder, words) in enumerate([("b", "gold corn"), ("a", "corn"), ("b", "mine"), ("b", "")]):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / str(k)).write_text(f"Date: {k + 1} Jan 2001 10:00:00 +0000\n\n{words}\n")
    data = read_mail_folders(tmp_path)
    pack_stream(data, tmp_path / "s.npz.xz")
    again = unpack_stream(tmp_path / "s.npz.xz")
    assert np.diff(again.X.indptr).tolist() == np.diff(data.X.indptr).tolist()
    np.testing.assert_array_equal((again.X @ again.X.T).toarray(), (data.X @ data.X.T).toarray())
    assert (again.Y[:, None] == again.Y).tolist() == (data.Y[:, None] == data.Y).tolist()
    assert not set(again.feature_names) & set(data.feature_names)
