"""Multi-label SVMlight text, with and without a line of sizes: values, faults, round trips, memory."""

import gzip
import lzma
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from maxmargin.datasets import DataFormatError, Dataset, read_svmlight, read_xc, write_svmlight
from maxmargin.io import svmlight as _svmlight
from maxmargin.io.chunks import stream_svmlight
from maxmargin.io.svmlight import Rows as _Rows
from maxmargin.io.svmlight import Rules as _Rules
from maxmargin.io.svmlight import parse_block as _parse_block
from maxmargin.io.svmlight import parse_slowly as _parse_slowly

WIDE = _Rules("f", True, None, None, 1, float(np.finfo(float).max))


def written(tmp_path, text: bytes | str):
    path = tmp_path / "a.svm"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def random_data(n=60, d=40, n_labels=5, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.2, random_state=rng, format="csr")
    return Dataset(
        X, sp.csr_array(rng.integers(0, 2, (n, n_labels))), label_names=tuple(map(str, range(n_labels)))
    )


def test_values_labels_comments_blank_lines_and_empty_sets(tmp_path):
    path = written(
        tmp_path,
        "# a comment\n3,1 1:.5 4:-2e-1\n\n 2:7\n1\t3:1 # end\r\n2 1:0 2:+1 \n5:1\n3 # nothing else\n",
    )
    data = read_svmlight(path)
    np.testing.assert_array_equal(
        data.X.toarray(),
        [[0.5, 0, 0, -0.2, 0], [0, 7, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0] * 5],
    )
    assert data.label_names == ("1", "2", "3")
    np.testing.assert_array_equal(
        data.Y.toarray(), [[1, 0, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    )
    assert data.X.nnz == 6 and data.X.indices.dtype == np.int32


def test_samples_without_any_feature(tmp_path):
    data = read_svmlight(written(tmp_path, "1\n2,1\n"))
    assert data.X.shape == (2, 0) and data.Y.toarray().tolist() == [[1, 0], [1, 1]]
    assert read_svmlight(written(tmp_path, "1\n"), n_features=3).X.shape == (1, 3)


def test_the_matrix_can_be_changed_in_place(tmp_path):
    X = read_svmlight(written(tmp_path, "1 1:2\n")).X
    X.data *= 2
    assert X.toarray().tolist() == [[4]]


def test_qid_is_kept(tmp_path):
    data = read_svmlight(written(tmp_path, "1 qid:7 1:2\nqid:8 2:1\n0,1 qid:-1\n"))
    np.testing.assert_array_equal(data.per_row["qid"], [7, 8, -1])
    np.testing.assert_array_equal(data.X.toarray(), [[2, 0], [0, 1], [0, 0]])


def test_one_label_per_line(tmp_path):
    data = read_svmlight(written(tmp_path, "+1 1:1\n-1 2:1\n"), multilabel=False)
    np.testing.assert_array_equal(data.Y, [1, -1])
    assert data.label_names == ("-1", "1") and not data.multilabel


def test_given_labels_and_width_fix_the_shape(tmp_path):
    data = read_svmlight(
        written(tmp_path, "7 0:1\n3,7 2:1\n"), labels=[9, 7, 3], n_features=6, zero_based=True
    )
    assert data.X.shape == (2, 6)
    np.testing.assert_array_equal(data.Y.toarray(), [[0, 1, 0], [0, 1, 1]])


def test_large_numbers_stay_exact(tmp_path):
    big = 2**62 + 1
    data = read_svmlight(written(tmp_path, f"{big},{-big} {big}:1.5\n"))
    assert data.X.indices.dtype == np.int64 and data.X.indices[0] == big - 1
    assert data.label_names == (str(-big), str(big))


def test_float32(tmp_path):
    path = written(tmp_path, "1 1:0.1\n")
    assert read_svmlight(path, dtype=np.float32).X.dtype == np.float32
    with pytest.raises(DataFormatError, match="too large"):
        read_svmlight(written(tmp_path, "1 1:1e39\n"), dtype=np.float32)
    with pytest.raises(ValueError, match="dtype must be"):
        read_svmlight(path, dtype=int)
    with pytest.raises(ValueError, match="labels must differ"):
        read_svmlight(path, labels=[1, 1])


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("1 1:2\n1 x:2\n", 2, 3, "feature index"),
        ("1 1:2 3:a\n", 1, 9, "not a finite number"),
        ("1 1:nan\n", 1, 5, "not a finite number"),
        ("1 1:1e999\n", 1, 5, "too large"),
        ("1 1:1_0\n", 1, 5, "not a finite number"),
        ("1 2:1 2:1\n", 1, 7, "indices must increase"),
        ("1 3:1 2:1\n", 1, 7, "indices must increase"),
        ("\n\n1 0:1\n", 3, 3, "zero_based=True"),
        ("1 -4:1\n", 1, 3, "below 1"),
        ("1 1:2:3\n", 1, 5, "not a finite number"),
        ("1 1:2 4:\n", 1, 9, "not a finite number"),
        ("1 :5\n", 1, 3, "feature index"),
        ("1 1:2 4\n", 1, 7, "not index:value"),
        ("1,,2 1:1\n", 1, 3, "label"),
        ("1,2, 1:1\n", 1, 5, "label"),
        ("cat 1:1\n", 1, 1, "label"),
        ("1.5 1:1\n", 1, 1, "label"),
        ("2,2 1:1\n", 1, 1, "twice"),
        ("1 1:1-2\n", 1, 5, "not a finite number"),
        ("1 5: 6:1-2\n", 1, 5, "not a finite number"),
        (f"1 {2**63}:1\n", 1, 3, "64 bits"),
        (f"{2**63} 1:1\n", 1, 1, "64 bits"),
        ("1 qid:x 1:1\n", 1, 7 - 4, "query id"),
        ("1 qid:1 1:1\n1 2:2\n", 2, 1, "qid"),
        ("1 qid:1 1:1\nqid:1 4\n", 2, 7, "not index:value"),
        ("1 1:\xff\n", 1, 5, "not a finite number"),
        ("1 1:2\x00\n", 1, 5, "not a finite number"),
    ],
)
def test_faults_name_their_place(tmp_path, text, line, column, message):
    path = written(tmp_path, text)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_svmlight(path)
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), line, column)
    assert str(caught.value).startswith(f"{path}, line {line}, column {column}: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [1]}, "label 2 is not among"),
        ({"n_features": 2}, "beyond n_features=2"),
        ({"multilabel": False}, "one label per line"),
    ],
)
def test_faults_against_the_arguments(tmp_path, options, message):
    with pytest.raises(DataFormatError, match=message) as caught:
        read_svmlight(written(tmp_path, "1 1:1\n1,2 3:1\n"), **options)
    assert caught.value.line == 2


def test_a_fault_in_a_late_block_has_the_right_line(tmp_path, monkeypatch):
    monkeypatch.setattr(_svmlight, "BLOCK", 64)
    lines = [f"{i} {i + 1}:1" for i in range(200)]
    lines[150] = "150 1:1 oops"
    with pytest.raises(DataFormatError, match="oops") as caught:
        read_svmlight(written(tmp_path, "\n".join(lines)))
    assert (caught.value.line, caught.value.column) == (151, 9)


def test_files_without_samples(tmp_path):
    for text in ("", "\n\n", "# only a comment\n"):
        with pytest.raises(DataFormatError, match="no samples"):
            read_svmlight(written(tmp_path, text))


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_equals_scikit_learn(tmp_path, monkeypatch, block):
    monkeypatch.setattr(_svmlight, "BLOCK", block)
    data = random_data()
    path = tmp_path / "a.svm"
    write_svmlight(data, path)
    theirs, labels = load_svmlight_file(str(path), multilabel=True, zero_based=False, n_features=40)
    ours = read_svmlight(path, n_features=40)
    assert abs(ours.X - theirs).nnz == 0
    for i, row in enumerate(labels):
        assert set(row) == set(ours.Y.toarray()[i].nonzero()[0])


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_packed_files_whatever_their_name(tmp_path, pack):
    packed = pack(b"1 1:2\n")
    np.testing.assert_array_equal(read_svmlight(written(tmp_path, packed)).X.toarray(), [[2]])
    with pytest.raises(DataFormatError, match="compressed"):
        read_svmlight(written(tmp_path, packed[:-6]))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_round_trip(tmp_path, ending):
    data = random_data()
    write_svmlight(data, tmp_path / f"a.svm{ending}", zero_based=True)
    again = read_svmlight(tmp_path / f"a.svm{ending}", zero_based=True, n_features=40, labels=range(5))
    assert abs(again.X - data.X).nnz == 0 and abs(again.Y - data.Y).nnz == 0


def test_classes_that_are_words_become_numbers(tmp_path):
    write_svmlight(Dataset(np.eye(3), np.array(["b", "a", "b"]), (), ("a", "b")), tmp_path / "a.svm")
    np.testing.assert_array_equal(read_svmlight(tmp_path / "a.svm", multilabel=False).Y, [1, 0, 1])


def test_what_cannot_be_written_is_refused_and_leaves_no_file(tmp_path):
    for X, Y in [
        ([[np.nan]], [[1]]),
        ([[np.inf]], [[1]]),
        (np.zeros((1, 0)), [[1]]),
        ([[1.0]], [[np.nan]]),
    ]:
        with pytest.raises(ValueError, match="SVMlight text cannot hold"):
            write_svmlight(Dataset(np.array(X), np.array(Y, dtype=float)), tmp_path / "a.svm")
    assert list(tmp_path.iterdir()) == []


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.data())
def test_any_numbers_survive_a_round_trip(tmp_path_factory, data):
    n, d, n_labels = (data.draw(st.integers(1, 4)) for _ in range(3))
    X = np.array(data.draw(st.lists(st.lists(finite, min_size=d, max_size=d), min_size=n, max_size=n)))
    Y = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(0, 1), min_size=n_labels, max_size=n_labels), min_size=n, max_size=n
            )
        )
    )
    path = tmp_path_factory.mktemp("svm") / "a.svm"
    write_svmlight(Dataset(X, Y), path)
    again = read_svmlight(path, n_features=d, labels=range(n_labels))
    np.testing.assert_array_equal(again.X.toarray(), X)
    np.testing.assert_array_equal(again.Y.toarray(), Y)


words = st.text("0123456789.:,-+eE #q\tid_x", max_size=12).map(str.encode)


@given(st.lists(words, max_size=6).map(b"\n".join), st.integers(0, 6))
def test_both_parsers_agree_on_any_text(block, room):
    fast, slow = _Rows.of(float), _Rows.of(float)
    try:
        fast.extend(_parse_block(block, WIDE, room))
    except (ValueError, OverflowError):
        return
    slow.extend(_parse_slowly(block, WIDE, 1, room))
    assert fast == slow


def test_the_fast_parser_takes_ordinary_text():
    part = _parse_block(b"1,2 1:0.5 3:1e-3  # x\r\n 2:1\n", WIDE)
    assert part.indices.tolist() == [0, 2, 1] and list(part.label_sizes) == [2, 0]


def test_memory_stays_near_that_of_the_matrix(tmp_path, monkeypatch):
    monkeypatch.setattr(_svmlight, "BLOCK", 1 << 14)
    rng = np.random.default_rng(0)
    values = [f"{v:.6f}" for v in rng.random(50)]
    path = tmp_path / "big.svm"
    with open(path, "w") as file:
        for i in range(2_000):
            first = i % 7 + 1
            file.write(f"{i % 11} " + " ".join(f"{first + 13 * k}:{v}" for k, v in enumerate(values)) + "\n")
    seen = []
    tracemalloc.start()
    data = read_svmlight(path, progress=lambda done, total: seen.append((done, total)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    csr = data.X.data.nbytes + data.X.indices.nbytes + data.X.indptr.nbytes
    block = 24 * _svmlight.BLOCK
    assert data.X.nnz == 100_000
    assert peak < 1.5 * csr + block
    assert seen[-1] == (path.stat().st_size,) * 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen) and len(seen) > 5


XC = "3 4 5\n0,3 0:0.5 3:1\n 1:4\n4,2 2:-1e-3\n"


def test_header_labels_and_features_from_zero(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text(XC)
    data = read_xc(path)
    assert data.X.toarray().tolist() == [[0.5, 0, 0, 1], [0, 4, 0, 0], [0, 0, -0.001, 0]]
    assert data.Y.toarray().tolist() == [[1, 0, 0, 1, 0], [0] * 5, [0, 0, 1, 0, 1]]
    assert data.label_names == ("0", "1", "2", "3", "4")
    packed = tmp_path / "tiny.txt.gz"
    packed.write_bytes(gzip.compress(XC.encode()))
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
    monkeypatch.setattr(_svmlight, "BLOCK", block)
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
