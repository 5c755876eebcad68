"""Rows in a folder that are mapped into memory."""

import mmap

import dask
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin.dask import MultiClassSVC, MultiLabelSVC, store, stored


@pytest.fixture
def parts():
    rng = np.random.default_rng(0)
    X = sp.random_array((90, 6), density=0.5, rng=rng, format="csr")
    Y = (X @ rng.normal(size=(6, 3)) > 0.1).astype(int)
    cuts = [slice(0, 40), slice(40, 40), slice(40, 90)]
    return X, Y, [dask.delayed((X[rows], Y[rows])) for rows in cuts]


def test_mapped_partitions_give_the_model_of_memory(parts, tmp_path):
    X, Y, delayed = parts
    mapped = store(delayed, tmp_path / "rows")
    (first, _), (empty, _), _ = dask.compute(*mapped, scheduler="sync")
    owner = first.data
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    assert isinstance(owner, mmap.mmap)
    assert empty.shape == (0, 6)
    for again in (mapped, stored(tmp_path / "rows")):
        model = MultiLabelSVC(tol=1e-7, working_rows=40, random_state=0).fit(again, client="here")
        best = maxmargin.MultiLabelSVC(tol=1e-7, random_state=0).fit(X, Y)
        assert model.partition_ == "rows"
        assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


def test_classes_train_on_mapped_partitions(parts, tmp_path):
    X, Y, _ = parts
    y = Y.sum(axis=1)
    mapped = store(
        [dask.delayed((X.toarray()[:40], y[:40])), dask.delayed((X.toarray()[40:], y[40:]))], tmp_path
    )
    best = maxmargin.MultiClassSVC(tol=1e-7, random_state=0).fit(X, y)
    model = MultiClassSVC(tol=1e-7, random_state=0).fit(mapped, client="here")
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


def test_wrong_calls_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="store"):
        stored(tmp_path)
    with pytest.raises(ValueError, match="here"):
        MultiLabelSVC().fit(np.eye(3), np.eye(3), client="there")
    with pytest.raises(ValueError, match="Partition 0: a pair"):
        store([dask.delayed(np.eye(3))], tmp_path)
    with pytest.raises(ZeroDivisionError) as caught:
        store([dask.delayed((np.eye(3), np.eye(3))), dask.delayed(divmod)(1, 0)], tmp_path)
    assert caught.value.__notes__ == ["in partition 1 of 2 (counted from 0)"]
