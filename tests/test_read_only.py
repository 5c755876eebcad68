"""What a user gives is read and never written, even where it cannot be written to."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.cli.families import build
from maxmargin.cli.reproduce import WARMED

N, CLASSES = 400, 5


def rows(kind, width):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((N, 12)) < 0.4, rng.random((N, 12)), 0).astype(width)
    return sp.csr_array(dense) if kind == "csr" else dense


def labels(task):
    rng = np.random.default_rng(1)
    classes = rng.integers(CLASSES, size=N)
    many = {"multilabel": (rng.random((N, CLASSES)) < 0.4).astype(int), "bags": classes[: N // 4]}
    cut = {"lengths": np.full(N // 4, 4)} if task in ("chain", "bags") else {}
    return many.get(task, classes), cut


def locked(array, place, mapped):
    """A copy that cannot be written to, in memory or in a file."""
    if mapped:
        np.save(place, array)
        return np.load(place, mmap_mode="r")
    array = array.copy()
    array.flags.writeable = False
    return array


def parts(X):
    return (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)


@pytest.mark.parametrize(
    ("kind", "width", "mapped"),
    [("dense", "float64", True), ("csr", "float64", False), ("dense", "float32", False)],
)
@pytest.mark.parametrize("name", WARMED)
def test_fit_and_predict_do_not_write_to_their_arguments(name, kind, width, mapped, tmp_path):
    estimator, task = WARMED[name]
    X, (y, cut) = rows(kind, width), labels(task)
    keep = [
        locked(each, tmp_path / f"{k}.npy", mapped) for k, each in enumerate([*parts(X), y, *cut.values()])
    ]
    *mine, y = keep[: len(parts(X)) + 1]
    cut = dict(zip(cut, keep[len(parts(X)) + 1 :], strict=True))
    given = sp.csr_array(tuple(mine), shape=X.shape) if sp.issparse(X) else mine[0]
    before = [each.tobytes() for each in keep]
    model = build(estimator, random_state=0)
    limits = {"max_iter": 5, "max_basis": 4}
    model.set_params(**{key: value for key, value in limits.items() if key in model.get_params()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(given, y, **cut).predict(given, **cut)
    assert [each.tobytes() for each in keep] == before
