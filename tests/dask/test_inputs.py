"""Data for models on a cluster: files in parts, ranges of bytes, frames."""

import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

import maxmargin
from maxmargin import datasets
from maxmargin.cli import _one_line
from maxmargin.cli.cluster import read_part
from maxmargin.cli.data import ReadOptions
from maxmargin.dask import MultiClassSVC, MultiLabelSVC, partitions, read_arff, read_parquet, read_svmlight
from maxmargin.dask.cluster import Cluster

TEXT = "0,2 1:0.5 3:1\n2 2:4\n\n1 4:1 5:2 # last\n 1:3\n0 1:1 2:1 3:1\n"


def computed(partitions):
    return dask.compute(*partitions, scheduler="sync")


@pytest.mark.parametrize("blocksize", [None, 1, 7, 20, 1000])
def test_ranges_of_bytes_hold_every_line_once(tmp_path, blocksize):
    (tmp_path / "a.svm").write_text(TEXT)
    whole = datasets.read_svmlight(tmp_path / "a.svm")
    parts = computed(read_svmlight(tmp_path / "a.svm", blocksize=blocksize))
    assert blocksize != 7 or len(parts) == 9
    assert np.array_equal(sp.vstack([X for X, _ in parts]).toarray(), whole.X.toarray())
    assert np.array_equal(sp.vstack([Y for _, Y in parts]).toarray(), whole.Y.toarray())


def test_partitions_of_several_files_have_the_same_columns(tmp_path):
    (tmp_path / "b1.svm").write_text("10 1:1\n9 3:1\n")
    (tmp_path / "b2.svm").write_text("2,10 2:1\n")
    (tmp_path / "b3.svm").write_text("")
    (first, one), (second, two), (third, none) = computed(read_svmlight(str(tmp_path / "b*.svm")))
    assert first.shape[1] == second.shape[1] == third.shape[1] == 3
    assert one.toarray().tolist() == [[0, 0, 1], [0, 1, 0]]  # 2, 9, 10
    assert two.toarray().tolist() == [[1, 0, 1]]
    assert none.shape == (0, 3)


def test_errors_in_a_range_of_bytes_name_the_line_of_the_file(tmp_path):
    (tmp_path / "c.svm").write_text("1 1:1\n" * 20 + "1 1:x\n" + "1 1:1\n" * 20)
    with pytest.raises(datasets.DataFormatError, match="line 21"):
        computed(read_svmlight(tmp_path / "c.svm", blocksize=30))
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_svmlight(tmp_path / "nothing*.svm")


def test_an_error_without_a_path_gets_a_note_with_it(tmp_path, monkeypatch):
    def broken(path, **how):
        raise OSError("disk gone")

    path = tmp_path / "d.svm"
    path.write_text("1 1:1\n")
    monkeypatch.setattr(datasets, "read_svmlight", broken)
    with pytest.raises(OSError) as caught:
        computed(read_svmlight(path))
    assert caught.value.__notes__ == [f"in {path}"]
    with pytest.raises(OSError) as caught:
        read_part(path, None, ReadOptions(), False)
    assert caught.value.__notes__ == [f"in {path}"]
    assert _one_line(caught.value) == f"disk gone in {path}"


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    return frame.assign(
        u=(X[:, 0] > 0).astype(int), v=(X[:, 1] > 0.3).astype(int), kind=np.where(X[:, 2] > 0, "on", "off")
    )


def test_parquet_parts_give_the_model_of_the_whole(client, tmp_path, table):
    for k, rows in enumerate([slice(0, 25), slice(25, 40)]):
        table.iloc[rows].drop(columns="kind").to_parquet(tmp_path / f"p{k}.parquet")
    best = maxmargin.MultiLabelSVC(tol=1e-8).fit(
        table[["a", "b", "c"]].to_numpy(), table[["u", "v"]].to_numpy()
    )
    parts = read_parquet(tmp_path / "p*.parquet", labels=["u", "v"])
    model = MultiLabelSVC(tol=1e-8).fit(parts, client=client)
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


def test_arff_parts_of_classes(client, tmp_path, table):
    head = "@relation t\n@attribute a numeric\n@attribute b numeric\n@attribute kind {on,off}\n@data\n"
    for k, rows in enumerate([slice(0, 25), slice(25, 40)]):
        lines = [
            f"{a!r},{b!r},{kind}" for a, b, kind in table.iloc[rows][["a", "b", "kind"]].to_numpy().tolist()
        ]
        (tmp_path / f"t{k}.arff").write_text(head + "\n".join(lines) + "\n")
    best = maxmargin.MultiClassSVC(tol=1e-8).fit(table[["a", "b"]].to_numpy(), table["kind"].to_numpy())
    model = MultiClassSVC(tol=1e-8).fit(read_arff(tmp_path / "t*.arff", target="kind"), client=client)
    assert model.classes_.tolist() == ["off", "on"]
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


def test_frames_of_dask(client, table):
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(table, npartitions=3)
    X, local = frame[["a", "b", "c"]], table[["a", "b", "c"]]
    labels = MultiLabelSVC(tol=1e-8).fit(X, frame[["u", "v"]], client=client)
    best = maxmargin.MultiLabelSVC(tol=1e-8).fit(local, table[["u", "v"]])
    assert labels.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    assert labels.feature_names_in_.tolist() == ["a", "b", "c"]
    answers = pd.concat(computed(labels.predict(X)))
    assert answers.to_numpy().tolist() == best.predict(local).to_numpy().tolist()
    classes = MultiClassSVC(tol=1e-8).fit(X, frame["kind"], client=client)
    best = maxmargin.MultiClassSVC(tol=1e-8).fit(local, table["kind"])
    assert classes.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    scores = classes.decision_function(X)
    np.testing.assert_allclose(scores.compute(scheduler="sync"), best.decision_function(local), atol=1e-3)


def test_columns_of_sets(client, table):
    dd = pytest.importorskip("dask.dataframe")
    sets = pd.Series([{"u"} if u else {"v", "w"} for u in table["u"]])
    X = table[["a", "b", "c"]]
    best = maxmargin.MultiLabelSVC(tol=1e-8).fit(X, list(sets))
    with dask.config.set({"dataframe.convert-string": False}):
        model = MultiLabelSVC(tol=1e-8)
        model.fit(dd.from_pandas(X, npartitions=2), dd.from_pandas(sets, npartitions=2), client=client)
    assert model.classes_.tolist() == ["u", "v", "w"]
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    with pytest.raises(ValueError, match="convert-string"):
        MultiLabelSVC().fit(
            dd.from_pandas(X, npartitions=2), dd.from_pandas(sets, npartitions=2), client=client
        )


def test_samples_with_unknown_labels():
    X = np.random.RandomState(0).randn(20, 3)
    y = [{"a"} if x[0] > 0 else {"b"} for x in X]
    y[3] = None
    parts = [dask.delayed((X[:10], y[:10])), dask.delayed((X[10:], y[10:]))]
    model = MultiLabelSVC(tol=1e-8).fit(parts, client="here")
    local = maxmargin.MultiLabelSVC(tol=1e-8).fit(X, y)
    assert model.primal_objective_ == pytest.approx(local.primal_objective_, rel=1e-7)


def test_malformed_sparse_matrices_are_refused():
    rows, labels = np.eye(4), np.eye(4, dtype=int)
    whole, broken = sp.csr_array(rows), sp.csr_array(rows)
    broken.indices[2] = 10**8
    for X, y in (
        (broken, labels),
        (whole, sp.csr_array((broken.data, broken.indices, broken.indptr), (4, 4))),
    ):
        with pytest.raises(ValueError, match=r"[Xy] is a malformed csr matrix"):
            partitions.pieces(X, y, None, 2)
    with pytest.raises(ValueError, match=r"Partition 3: X is a malformed csr matrix"):
        partitions.read(3, broken, labels, None)


def test_tasks_of_workers_compute_with_one_blas_thread(client):
    """So that the number of BLAS threads does not change the model."""

    def blas_threads():
        return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")

    with threadpool_limits(2, "blas"):
        assert Cluster(client).submit(blas_threads) == 1
