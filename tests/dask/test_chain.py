"""Chains on a cluster: the optimum of one machine, whatever the partitions."""

import warnings
from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin.dask import ChainSVC
from maxmargin.dask.chain import read_sequences
from maxmargin.dask.labelings import ChainPart, Terms

# 1, 2, 3 and 7 partitions of 20 sequences, one of them empty, one of a single sequence.
CUTS = {1: [], 2: [8], 3: [6, 6], 7: [1, 4, 7, 11, 11, 16]}
TIGHT = {"tol": 1e-8, "C": 0.3}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(length, 2)) for length in rng.integers(1, 5, 20)]
    scores = [np.hstack([x, np.zeros((len(x), 1))]) for x in X]
    words = ["".join("abc"[k] for k in np.argmax(one, axis=1)) for one in scores]
    return X, [word if k % 4 else word[::-1] for k, word in enumerate(words)]


@pytest.fixture(scope="module")
def best(data):
    return maxmargin.ChainSVC(**TIGHT, random_state=0).fit(*data)


def parts_of(X, y, n_parts):
    cuts = [slice(a, b) for a, b in pairwise([0, *CUTS[n_parts], len(y)])]
    return [dask.delayed(X[c]) for c in cuts], [dask.delayed(y[c]) for c in cuts]


@pytest.mark.parametrize("n_parts", CUTS)
def test_reaches_the_optimum_of_one_machine(client, data, best, n_parts):
    X, y = data
    X = [sp.csr_array(x) for x in X] if n_parts == 3 else X
    model = ChainSVC(**TIGHT).fit(*parts_of(X, y, n_parts), client=client)
    assert model.duality_gap_ <= 1e-8
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    assert model.dual_objective_ == pytest.approx(best.dual_objective_, rel=1e-6)
    for name in ("coef_", "transitions_", "intercept_", "first_", "last_"):
        np.testing.assert_allclose(getattr(model, name), getattr(best, name), atol=1e-3)
    assert model.predict(X) == model.to_local().predict(X)
    assert dask.compute(*model.predict(parts_of(X, y, 2)[0]), scheduler="sync")[0] == best.predict(X[:8])


def test_weights_counts_and_the_ordinary_model(client, data, tmp_path):
    X, y = data
    weight = np.arange(20) % 3.0
    given = {"C": 0.1, "normalize_loss": False, "intercept_scaling": 3.0, "tol": 1e-6}
    best = maxmargin.ChainSVC(**given).fit(X, y, weight)
    model = ChainSVC(**given).fit(X, y, weight, client=client)
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=2e-6)
    np.testing.assert_allclose(model.transitions_, best.transitions_, atol=1e-2)
    local = model.to_local()
    assert type(local) is maxmargin.ChainSVC
    assert local.solver == "pairwise"
    maxmargin.save(local, tmp_path / "chain.mm")
    assert maxmargin.load(tmp_path / "chain.mm").predict(X) == model.predict(X)


def test_a_partition_may_know_one_label_only(client):
    X, y = [np.eye(2), np.eye(2), np.ones((1, 2))], ["aa", "ab", "b"]
    pairs = [dask.delayed((X[:1], y[:1])), dask.delayed((X[1:], y[1:]))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ChainSVC().fit(pairs, client=client)
    assert model.classes_.tolist() == ["a", "b"]


def test_planes_touch_the_loss_and_bound_it(data):
    """Against the objective of one machine, and labelings one by one."""
    X, y = data
    weight = 1.0 + np.arange(20) % 2
    block = read_sequences(0, X, y, weight)
    part = ChainPart(block, Terms(np.array(list("abc")), 0.7, True, 1.0))
    rng = np.random.default_rng(1)
    theta, other = rng.normal(size=(2, part.problem.size))
    labels, risk = part.risk(theta)
    assert risk == pytest.approx(part.problem.primal(theta) - 0.5 * theta @ theta, rel=1e-12)
    gradient, offset = part.plane(labels)
    assert offset + gradient @ theta == pytest.approx(risk, rel=1e-10)
    beyond = part.problem.primal(other) - 0.5 * other @ other
    assert offset + gradient @ other < beyond
    along = part.along(theta, other, [labels, part.risk(other)[0]])
    assert along(0.0) == pytest.approx(risk, rel=1e-10)
    assert along(1.0) == pytest.approx(beyond, rel=1e-10)
    middle = 0.5 * (theta + other)
    assert along(0.5) <= part.problem.primal(middle) - 0.5 * middle @ middle + 1e-10


def test_mistakes_are_told(client, data):
    X, y = data
    with pytest.raises(ValueError, match="where sequences end"):
        ChainSVC().fit(da.ones((4, 2)), y, client=client)
    with pytest.raises(ValueError, match=r"Partition 1: y\[0\]"):
        wrong = [[dask.delayed(X[:2]), dask.delayed(X[2:3])], [dask.delayed(y[:2]), dask.delayed(["abcabc"])]]
        ChainSVC().fit(*wrong, client=client)
    with pytest.raises(ValueError, match="no sequences"):
        ChainSVC().fit([dask.delayed([])], [dask.delayed([])], client=client)
    with pytest.raises(ValueError, match="one label sequence for each"):
        ChainSVC().fit(X, y[:3], client=client)
    with pytest.raises(ValueError, match="zero everywhere"):
        ChainSVC().fit(X, y, np.zeros(20), client=client)
    assert not hasattr(ChainSVC(), "decision_function")
