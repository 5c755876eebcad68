"""Sparse machines on a cluster: the basis and the optimum of one machine, whatever the partitions."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin import priors
from maxmargin.core.kernels import Kernel
from maxmargin.dask import SparseMultiClassSVC, SparseMultiLabelSVC
from maxmargin.sparse.greedy import GrowingBasis, Newton
from maxmargin.sparse.loss_loops import SquaredHinges
from maxmargin.sparse.problem import BasisProblem
from tests.dask.conftest import CUTS, delayed_parts

TIGHT = {"tol": 1e-8, "max_basis": 6, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4)) * (rng.random((70, 4)) < 0.7)
    X[40:45] = X[:5]
    Y = (X @ rng.normal(size=(4, 3)) + rng.normal(size=(70, 3)) > 0.2).astype(int)
    return X, Y


def agree(model, best, X):
    assert model.duality_gap_ <= 1e-8
    assert model.basis_indices_.tolist() == best.basis_indices_.tolist()
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    assert model.dual_objective_ == pytest.approx(best.dual_objective_, rel=1e-6)
    np.testing.assert_allclose(model.decision_function(X), best.decision_function(X), atol=1e-3)
    vectors = [
        one.toarray() if sp.issparse(one) else one for one in (model.basis_vectors_, best.basis_vectors_)
    ]
    assert np.array_equal(*vectors)
    assert len(model.path_) == len(best.path_)


@pytest.mark.parametrize("n_parts", CUTS)
def test_classes_reach_the_optimum_of_one_machine(client, data, n_parts):
    X, Y = data
    X, y = sp.csr_array(X) if n_parts == 3 else X, np.minimum(Y.sum(axis=1), 2)
    best = maxmargin.SparseMultiClassSVC(**TIGHT).fit(X, y)
    agree(SparseMultiClassSVC(**TIGHT).fit(*delayed_parts(X, y, n_parts), client=client), best, X)


@pytest.mark.parametrize("n_parts", CUTS)
def test_labels_reach_the_optimum_of_one_machine(client, data, n_parts):
    X, Y = data
    X = sp.csr_array(X) if n_parts == 3 else X
    best = maxmargin.SparseMultiLabelSVC(**TIGHT).fit(X, Y)
    agree(SparseMultiLabelSVC(**TIGHT).fit(*delayed_parts(X, Y, n_parts), client=client), best, X)


VARIANTS = {
    "prior": {"prior": priors.from_labels, "solver": "newton"},
    "rank one": {"prior": np.ones((3, 3))},
    "sequential": {"selection": "sequential"},
    "polynomials": {"kernel": "poly", "degree": 2, "fit_intercept": True, "gamma": "auto"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_mean_what_they_mean_on_one_machine(client, data, name):
    X, Y = data
    weight = np.arange(70) % 3.0
    best = maxmargin.SparseMultiLabelSVC(**TIGHT, **VARIANTS[name]).fit(X, Y, weight)
    model = SparseMultiLabelSVC(**TIGHT, **VARIANTS[name])
    model.fit(da.from_array(X, (30, 4)), da.from_array(Y, (30, 3)), weight, client=client)
    agree(model, best, X)


def test_conjugate_gradients_reach_the_optimum_of_their_basis(client, data):
    """Coefficients on the way are not those of one machine, which has a preconditioner, nor is the basis."""
    X, Y = data
    weight = np.arange(70) % 3.0
    model = SparseMultiLabelSVC(**TIGHT, solver="newton-cg", C=10.0)
    model.fit(da.from_array(X, (30, 4)), da.from_array(Y, (30, 3)), weight, client=client)
    kernel = Kernel.of(X, "rbf", gamma="scale", sample_weight=weight)
    basis = GrowingBasis(BasisProblem(kernel, X, SquaredHinges(2 * Y - 1, 10 * weight)))
    for j in model.basis_indices_:
        basis.join(j, basis.problem.kernel_rows(np.array([j]))[0], np.zeros(3))
    assert Newton(100, direct=True).optimise(basis, lambda: 1e-9, lambda: False)
    assert model.duality_gap_ <= 1e-8 and len(model.basis_indices_) == 6
    assert model.primal_objective_ == pytest.approx(basis.here.objective, rel=1e-7)
    np.testing.assert_allclose(model.coef_.T, basis.coefficients(basis.here.W), atol=1e-3)


def test_constant_labels_and_sets(client, data):
    X, Y = data
    Y = np.column_stack([Y, np.ones(70, int)])
    y = [{f"l{k}" for k in np.flatnonzero(row)} for row in Y]
    with pytest.warns(UserWarning, match="l3"):
        best = maxmargin.SparseMultiLabelSVC(**TIGHT).fit(X, y)
    with pytest.warns(UserWarning, match="l3"):
        model = SparseMultiLabelSVC(**TIGHT).fit(X, y, client=client)
    agree(model, best, X)
    assert model.constant_labels_.tolist() == [False, False, False, True]
    assert model.predict(X) == best.predict(X)


def test_what_a_cluster_cannot_do_is_refused(client, data):
    X, Y = data
    with pytest.raises(ValueError, match="full_bound"):
        SparseMultiLabelSVC(full_bound=True).fit(X, Y, client=client)
    with pytest.raises(ValueError, match="kernel"):
        SparseMultiClassSVC(kernel="precomputed").fit(X, Y[:, 0], client=client)
