"""Submodular learning on a cluster: the optimum of one machine, whatever the partitions."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin.dask import SubmodularSVC
from tests.dask.conftest import CUTS, delayed_parts

TIGHT = {"tol": 1e-8, "C": 0.05}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 3)) * (rng.random((70, 3)) < 0.8)
    Y = (X @ rng.normal(size=(3, 3)) + rng.normal(size=(70, 3)) > 0.3).astype(int)
    return X, Y


@pytest.mark.parametrize("n_parts", CUTS)
def test_reaches_the_optimum_of_one_machine(client, data, n_parts):
    X, Y = data
    X = sp.csr_array(X) if n_parts == 3 else X
    best = maxmargin.SubmodularSVC(**TIGHT).fit(X, Y)
    model = SubmodularSVC(**TIGHT).fit(*delayed_parts(X, Y, n_parts), client=client)
    assert model.duality_gap_ <= 1e-8
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    assert model.dual_objective_ == pytest.approx(best.dual_objective_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-3)
    np.testing.assert_allclose(model.interaction_, best.interaction_, atol=1e-3)
    assert np.array_equal(model.pairs_, best.pairs_)
    np.testing.assert_allclose(model.decision_function(X), best.decision_function(X), atol=1e-3)


VARIANTS = {
    "jaccard": {"cooccurrence": "jaccard", "pair_fraction": 1.0},
    "no pairs": {"pair_fraction": 0.0},
    "no line search": {"solver": "bundle", "line_search": False},
    "no intercept": {"fit_intercept": False, "interaction_scale": 2.0},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_mean_what_they_mean_on_one_machine(client, data, name):
    X, Y = data
    weight = np.arange(70) % 3.0
    best = maxmargin.SubmodularSVC(C=0.05, tol=1e-6, **VARIANTS[name]).fit(X, Y, weight)
    model = SubmodularSVC(C=0.05, tol=1e-6, **VARIANTS[name])
    model.fit(da.from_array(X, (30, 3)), da.from_array(Y, (30, 3)), weight, client=client)
    assert model.duality_gap_ <= 1e-6
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=2e-6)


def test_unknown_entries_are_refused(client, data):
    X, Y = data
    Y = Y.astype(float)
    Y[3, 1] = np.nan
    with pytest.raises(ValueError, match="unknown"):
        SubmodularSVC().fit(X, Y, client=client)
