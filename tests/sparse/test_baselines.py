"""SparseOneVsRest and ImportVectorMachine."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from maxmargin import SparseMultiClassSVC, SparseMultiLabelSVC
from maxmargin.baselines import ImportVectorMachine, SparseOneVsRest
from maxmargin.core.kernels import Kernel
from maxmargin.sparse.greedy import GrowingBasis, after_newton
from maxmargin.sparse.loss_loops import MultiLogit
from maxmargin.sparse.problem import BasisProblem, basis_product

MACHINES = [SparseOneVsRest, ImportVectorMachine, SparseMultiClassSVC]


def test_one_vs_rest_is_one_single_label_machine_per_class(wine):
    X, y = wine
    options = {"C": 2, "max_basis": 7, "rel_tol": 0, "n_candidates": None, "tol": 1e-10}
    machine = SparseOneVsRest(**options).fit(X, y)
    alone = [SparseMultiLabelSVC(**options).fit(X, (y == r).astype(int)[:, None]) for r in range(3)]
    np.testing.assert_allclose(
        machine.decision_function(X), np.hstack([m.decision_function(X) for m in alone]), atol=1e-6
    )
    assert machine.basis_sizes_.tolist() == [7, 7, 7]
    assert set(machine.basis_indices_) == set(np.concatenate([m.basis_indices_ for m in alone]))
    assert (machine.coef_ != 0).sum(axis=1).tolist() == [7, 7, 7]
    assert machine.primal_objective_ == pytest.approx(sum(m.primal_objective_ for m in alone), rel=1e-8)
    assert machine.duality_gap_ <= 1e-9


def test_one_vs_rest_spanning_the_space_equals_linear_svc(wine):
    X, y = wine
    machine = SparseOneVsRest(C=0.3, kernel="linear", max_basis=50, rel_tol=0, tol=1e-10).fit(X, y)
    peer = LinearSVC(C=0.3, fit_intercept=False, tol=1e-8, max_iter=100000).fit(X, y)
    np.testing.assert_allclose(machine.decision_function(X), peer.decision_function(X), atol=1e-5)


def test_one_vs_rest_truncates_every_basis(wine):
    X, y = wine
    machine = SparseOneVsRest(max_basis=9, rel_tol=0, random_state=0).fit(X, y)
    cut = machine.truncate(3)
    assert cut.basis_sizes_.tolist() == [3, 3, 3] and cut.n_basis_ <= 9 < machine.n_basis_
    np.testing.assert_array_equal(cut.basis_vectors_, X[cut.basis_indices_])
    assert cut.primal_objective_ > machine.primal_objective_
    assert cut.predict(X).shape == y.shape
    with pytest.raises(ValueError, match="n_basis must be an integer from 1 to 9"):
        machine.truncate(10)
    copy = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(copy.truncate(3).coef_, cut.coef_)


@pytest.mark.parametrize("machine", [SparseOneVsRest, ImportVectorMachine])
def test_every_solver_and_selection_reaches_the_same_minimum(machine, wine):
    X, y = wine
    options = {"C": 0.5, "max_basis": 5, "rel_tol": 0, "n_candidates": None, "max_iter": 3000}
    reference = machine(tol=1e-9, **options).fit(X, y)
    other = machine(solver="sweeps", tol=1e-9, **options).fit(X, y)
    np.testing.assert_array_equal(other.basis_indices_, reference.basis_indices_)
    np.testing.assert_allclose(other.decision_function(X), reference.decision_function(X), atol=1e-3)
    assert other.primal_objective_ == pytest.approx(reference.primal_objective_, rel=1e-8)
    random_start = machine(selection="sequential", random_state=5, **options).fit(X, y)
    assert random_start.duality_gap_ <= 1e-6
    assert set(random_start.basis_indices_) != set(reference.basis_indices_)


@pytest.mark.parametrize("machine", MACHINES)
def test_full_model_bound_brackets_the_dense_optimum(machine, wine):
    X, y = wine
    dense = machine(max_basis=len(X), rel_tol=0, n_candidates=5, random_state=0, full_bound=True).fit(X, y)
    small = machine(max_basis=4, rel_tol=0, random_state=0, full_bound=True).fit(X, y)
    assert 0 < small.full_model_bound_ <= dense.primal_objective_ * (1 + 1e-9)
    assert dense.full_model_bound_ == pytest.approx(dense.primal_objective_, rel=1e-3)
    assert small.full_model_gap_ > 0.05 > dense.full_model_gap_
    assert small.truncate(2).full_model_gap_ > small.full_model_gap_


@pytest.mark.parametrize("machine", MACHINES)
def test_path_can_be_left_out(machine, wine):
    X, y = wine
    options = {"max_basis": 4, "rel_tol": 0, "random_state": 0}
    kept = machine(**options).fit(X, y)
    dropped = machine(keep_path=False, **options).fit(X, y)
    np.testing.assert_array_equal(kept.coef_, dropped.coef_)
    with pytest.raises(AttributeError, match="keep_path=True"):
        dropped.truncate(2)
    with pytest.raises(AttributeError, match="keep_path=True"):
        kept.set_params(keep_path=False).fit(X, y).truncate(2)


def test_one_vs_rest_takes_many_labels_and_constant_ones():
    X, Y = make_multilabel_classification(80, n_features=5, n_classes=4, random_state=0)
    Y[:, 2] = 1
    with pytest.warns(UserWarning, match=r"Label 2 is constant in y; the model will always"):
        machine = SparseOneVsRest(max_basis=6, random_state=0).fit(X, Y)
    assert machine.basis_sizes_[2] == 0
    assert (machine.predict(X + 1e3)[:, 2] == 1).all()
    cut = machine.truncate(2)
    assert cut.basis_sizes_.tolist() == [2, 2, 0, 2] and (cut.predict(X)[:, 2] == 1).all()


def test_one_vs_rest_shares_its_time_limit(wine):
    X, y = wine
    machine = SparseOneVsRest(max_basis=100, rel_tol=0, time_limit=1e-6, random_state=0)
    with pytest.warns(ConvergenceWarning, match="increase time_limit"):
        machine.fit(X, y)
    assert machine.basis_sizes_.tolist() == [1, 1, 1]
    assert machine.predict(X).shape == y.shape


def test_import_vectors_spanning_the_space_equal_logistic_regression(wine):
    X, y = wine
    machine = ImportVectorMachine(C=0.8, kernel="linear", max_basis=50, rel_tol=0, tol=1e-12).fit(X, y)
    peer = LogisticRegression(C=0.8, fit_intercept=False, tol=1e-10, max_iter=10000).fit(X, y)
    np.testing.assert_allclose(machine.predict_proba(X), peer.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(machine.coef_.sum(axis=0), 0, atol=1e-5)


@pytest.mark.parametrize("scoring", ["step", "full"])
def test_import_vectors_certify_and_descend(wine, scoring):
    X, y = wine
    machine = ImportVectorMachine(
        C=5, max_basis=8, scoring=scoring, n_candidates=6, rel_tol=0, random_state=0
    ).fit(X, y)
    assert machine.duality_gap_ <= 1e-6 and machine.n_basis_ == 8
    assert (np.diff([record["primal"] for record in machine.history_]) < 0).all()
    np.testing.assert_allclose(machine.predict_proba(X).sum(axis=1), 1)
    assert machine.score(X, y) > 0.9
    assert [p.shape for p in machine.staged_predict(X)] == [y.shape] * 8


def test_full_scoring_is_one_newton_step_in_all_coefficients():
    X, y = load_iris(return_X_y=True)
    X, y = X[::6], y[::6]
    loss = MultiLogit(y, np.full(len(y), 2.0), 3)
    kernel = Kernel.of(X, "rbf", gamma=0.5)
    problem = BasisProblem(kernel, X, loss)

    def grown(*steps):
        basis = GrowingBasis(problem)
        for j, step in steps:
            basis.join(j, problem.kernel_rows(np.array([j]))[0], np.full(3, step))
        return basis

    small = grown((0, 0.1), (10, 0.1))
    found = after_newton(small, problem.score(small.here, np.array([4, 20])))
    for j, objective in zip((4, 20), found, strict=True):
        larger = grown((0, 0.1), (10, 0.1), (j, 0.0))
        Psi, W = larger.Psi, larger.here.W
        g, h = larger.gradient(), 1e-6
        H = np.empty((g.size, g.size))
        for column, E in enumerate(np.eye(g.size).reshape(-1, *g.shape)):
            shifted = [V + Psi.T @ loss.at(basis_product(Psi, V)).gradient for V in (W + h * E, W - h * E)]
            H[:, column] = (shifted[0] - shifted[1]).ravel() / (2 * h)
        W = W - np.linalg.solve(H, g.ravel()).reshape(g.shape)
        expected = 0.5 * (W**2).sum() + loss.value(basis_product(Psi, W))
        assert objective == pytest.approx(expected, rel=1e-6)
