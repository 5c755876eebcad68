"""CSV and Parquet tables: label columns, faults with their place, round trips (of ARFF, too)."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from maxmargin.datasets import (
    DataFormatError,
    Dataset,
    read_csv,
    read_mulan,
    read_parquet,
    write_arff,
    write_csv,
    write_parquet,
)

TABLE = 'size,"tag, red",weight,tag_b\n1,0,2.5,1\n\n-3e1,yes,,False\n'


def written(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("where", [{"labels": ["tag_b", "tag, red"]}, {"label_prefix": "tag"}])
def test_label_columns_by_name_and_prefix(tmp_path, where):
    data = read_csv(written(tmp_path, TABLE), **where)
    assert data.feature_names == ("size", "weight") and data.label_names == ("tag, red", "tag_b")
    np.testing.assert_array_equal(data.X, [[1, 2.5], [-30, np.nan]])
    np.testing.assert_array_equal(data.Y, [[0, 1], [1, 0]])
    assert data.Y.dtype == np.int32


def test_label_columns_by_count(tmp_path):
    path = written(tmp_path, "a,b,c\n1,0,1\n0,1,?\n")
    assert read_csv(path, labels=2).label_names == ("b", "c")
    assert read_csv(path, labels=-2).label_names == ("a", "b")
    np.testing.assert_array_equal(read_csv(path, labels=2).Y, [[0, 1], [1, np.nan]])


def test_classes(tmp_path):
    path = written(tmp_path, "\ufeffa,kind\n1,x\n2, y \n")
    data = read_csv(path, target="kind")
    assert data.Y.tolist() == ["x", "y"] and data.label_names == ("x", "y") and data.feature_names == ("a",)
    path = written(tmp_path, "1;7\n2;-3\n")
    data = read_csv(path, target=-1, header=False, delimiter=";", dtype=np.float32)
    assert data.Y.tolist() == [7, -3] and data.Y.dtype == np.int64
    assert data.X.dtype == np.float32 and data.feature_names == ("c0",)
    data = read_csv(written(tmp_path, "01;7\n1;7\n"), target=0, header=False, delimiter=";")
    assert data.Y.tolist() == ["01", "1"]


def test_drop(tmp_path):
    data = read_csv(written(tmp_path, "id,a,l\nx1,1,0\n"), labels=1, drop=["id"])
    assert data.feature_names == ("a",)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a,l\n1,0\n2\n", 3, 1, "1 fields, but the first line has 2"),
        ("a,l\n1,0\n2,0,\n", 3, 3, "3 fields"),
        ("a,l\nx,0\n", 2, 1, "'a': 'x' is not a number"),
        ("a,l\n1e999,0\n", 2, 1, "finite"),
        ("a,l\n-inf,0\n", 2, 1, "finite"),
        ("a,l\n1_000,0\n", 2, 1, "not a number"),
        ("a,l\n\u0661,0\n", 2, 1, "not a number"),
        ("a,l\n1,2\n", 2, 2, "'l': '2' is not a label entry"),
        ('a,l\n"1\n2",0\n3,9\n', 2, 1, "not a number"),
        ('a,l\n"1,0\n', 2, None, "a quote that is never closed"),
        ("a,a\n1,0\n", 1, 2, "twice"),
        ("a,l\n", None, None, "no rows"),
        ("", None, None, "empty"),
        (b"a,l\n\xff,0\n", 2, 1, "encoding="),
    ],
)
def test_faults_name_their_place(tmp_path, text, line, column, message):
    path = written(tmp_path, text)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_csv(path, labels=1)
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), line, column)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"labels": ["z", "a"]}, "called 'z'"),
        ({"target": "z"}, "called 'z'"),
        ({"target": 2}, "no column 2"),
        ({"label_prefix": "z"}, "starts with 'z'"),
        ({"labels": 3}, "cannot take 3"),
        ({"labels": 0}, "cannot take 0"),
        ({"labels": 1, "drop": ["z"]}, "called 'z'"),
    ],
)
def test_absent_columns(tmp_path, where, message):
    with pytest.raises(DataFormatError, match=message):
        read_csv(written(tmp_path, "a,l\n1,0\n"), **where)


def test_missing_class(tmp_path):
    with pytest.raises(DataFormatError, match="class is missing") as caught:
        read_csv(written(tmp_path, "a,l\n1,\n"), target="l")
    assert (caught.value.line, caught.value.column) == (2, 2)


@pytest.mark.parametrize("where", [{}, {"labels": 1, "target": "a"}, {"labels": "tag"}])
def test_labels_are_named_in_one_way(tmp_path, where):
    with pytest.raises(ValueError, match=r"exactly one|not one string"):
        read_csv(written(tmp_path, "a,l\n1,0\n"), **where)


def test_pandas_reads_what_is_written(tmp_path):
    data = Dataset(
        np.array([[1.0, np.nan], [0.1, 3.0]]), np.array([[1, 0], [0, 1]]), ("a", "b, c"), ("l", "m")
    )
    write_csv(data, tmp_path / "a.csv.gz")
    frame = pd.read_csv(tmp_path / "a.csv.gz")
    assert list(frame.columns) == ["a", "b, c", "l", "m"]
    np.testing.assert_array_equal(frame[["a", "b, c"]], data.X)
    np.testing.assert_array_equal(frame[["l", "m"]], data.Y)


names = st.lists(
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
        lambda s: s == s.strip()
    ),
    min_size=3,
    max_size=6,
    unique=True,
)
values = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.just(np.nan), st.just(0.0))
FORMATS = {
    "csv": (write_csv, lambda path, n: read_csv(path, labels=n)),
    "arff": (
        lambda data, path: write_arff(data, path, path.with_suffix(".xml")),
        lambda path, n: read_mulan(path, path.with_suffix(".xml")),
    ),
    "parquet": (write_parquet, lambda path, n: read_parquet(path, labels=n)),
}


@pytest.mark.parametrize("kind", FORMATS)
@given(data=st.data(), sparse=st.booleans())
def test_round_trip_of_any_names_and_numbers(kind, tmp_path_factory, data, sparse):
    every = data.draw(names)
    n_labels = data.draw(st.integers(1, len(every) - 1))
    n, d = data.draw(st.integers(1, 4)), len(every) - n_labels
    X = np.array(data.draw(st.lists(st.lists(values, min_size=d, max_size=d), min_size=n, max_size=n)))
    row = st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=n_labels, max_size=n_labels)
    Y = np.array(data.draw(st.lists(row, min_size=n, max_size=n)))
    matrix = sp.csr_array if sparse else np.asarray
    write, read = FORMATS[kind]
    path = tmp_path_factory.mktemp(kind) / f"a.{kind}"
    write(Dataset(matrix(X), matrix(Y), tuple(every[:d]), tuple(every[d:])), path)
    again = read(path, n_labels)
    assert (again.feature_names, again.label_names) == (tuple(every[:d]), tuple(every[d:]))
    assert sp.issparse(again.X) == (sparse and kind == "arff")
    np.testing.assert_array_equal(again.X.toarray() if sp.issparse(again.X) else again.X, X)
    np.testing.assert_array_equal(again.Y.toarray() if sp.issparse(again.Y) else again.Y, Y)


def test_parquet_equals_csv(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {"a": [1.5, np.nan], "b": [1, 2], "tag_x": [True, False], "tag_y": [0, 1], "kind": ["u", "v"]}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    frame.assign(tag_x=frame.tag_x.astype(int)).to_csv(tmp_path / "a.csv", index=False)
    for options in ({"label_prefix": "tag_", "drop": ["kind"]}, {"target": "kind"}):
        ours, theirs = (
            read_parquet(tmp_path / "a.parquet", **options),
            read_csv(tmp_path / "a.csv", **options),
        )
        np.testing.assert_array_equal(ours.X, theirs.X)
        np.testing.assert_array_equal(ours.Y, theirs.Y)
        assert ours.feature_names == theirs.feature_names and ours.label_names == theirs.label_names


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["x"], "l": [1]}, "'a' is of type"),
        ({"a": [np.inf], "l": [1]}, "infinite"),
        ({"a": [1.0], "l": [3]}, "other than 0 and 1"),
        ({"a": [], "l": []}, r"no rows|of type"),
    ],
)
def test_parquet_faults(tmp_path, columns, message):
    pytest.importorskip("pyarrow")
    pd.DataFrame(columns).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataFormatError, match=message):
        read_parquet(tmp_path / "a.parquet", labels=1)


def test_parquet_that_is_none(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(DataFormatError, match="Parquet"):
        read_parquet(written(tmp_path, "a,b\n1,2\n"), labels=1)


def test_booleans_are_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("on,n,y\nTrue,1,a\nfalse,2,b\n,3,a\n")
    data = read_csv(path, target="y")
    np.testing.assert_array_equal(data.X, [[1, 1], [0, 2], [np.nan, 3]])
