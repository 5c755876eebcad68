"""SparseMultiClassSVC and SparseMultiLabelSVC as a user meets them."""

from __future__ import annotations

import inspect
import re
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from maxmargin import SparseMultiClassSVC, SparseMultiLabelSVC, priors
from maxmargin.baselines import ImportVectorMachine, SparseOneVsRest
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Clock
from maxmargin.sparse.greedy import FixedBasis, Newton, Sweeps
from maxmargin.sparse.loss_loops import SquaredMargins
from maxmargin.sparse.machines import SOLVERS
from maxmargin.sparse.problem import BasisProblem
from tests.sparse.test_problem import CHOLESKY

MACHINES = (SparseMultiClassSVC, SparseMultiLabelSVC)


@pytest.fixture(scope="module")
def tagged():
    X, Y = make_multilabel_classification(120, n_features=6, n_classes=5, n_labels=2, random_state=1)
    return StandardScaler().fit_transform(X), Y


@pytest.mark.parametrize("selection", ["block", "sequential"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_method_certifies_its_stage(wine, selection, solver):
    X, y = wine
    # Sweeps converge slowly; with more weight on the norm they are as good as the rest.
    C, max_iter = (0.5, 3000) if solver == "sweeps" else (5, 200)
    machine = SparseMultiClassSVC(
        C=C, max_basis=12, selection=selection, solver=solver, max_iter=max_iter, rel_tol=0, random_state=0
    ).fit(X, y)
    assert machine.n_basis_ == 12 == len(machine.path_) == len(machine.history_)
    assert machine.duality_gap_ <= 1e-6
    objectives = [record["primal"] for record in machine.history_]
    assert (np.diff(objectives) < 0).all()
    assert all(record["dual"] <= record["primal"] for record in machine.history_)
    assert machine.primal_objective_ == pytest.approx(objective(machine, X, y), rel=1e-9)


def objective(machine, X, y):
    """The objective of a fitted multi-class machine from its public attributes."""
    K = rbf_kernel(X, machine.basis_vectors_, gamma=1 / (X.shape[1] * X.var()))
    F = K @ machine.coef_.T
    own = F[np.arange(len(y)), y]
    Xi = np.maximum(1 + F - own[:, None], 0)
    Xi[np.arange(len(y)), y] = 0
    K_JJ = K[machine.basis_indices_]
    return 0.5 * np.trace(machine.coef_ @ K_JJ @ machine.coef_.T) + machine.C * (Xi**2).sum()


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_reaches_the_same_optimum(wine, solver):
    X, y = wine
    machine = SparseMultiClassSVC(C=0.5, max_basis=6, rel_tol=0, solver=solver, max_iter=3000, random_state=0)
    machine.fit(X, y)
    # Which basis a solver grows may be up to rounding; on that basis the optimum is one.
    problem = BasisProblem(Kernel.of(X, "rbf"), X, SquaredMargins(y, np.full(len(y), 0.5), 3))
    basis = FixedBasis(problem, machine.basis_vectors_, np.zeros((6, 3)))
    assert Newton(100, CHOLESKY).optimise(basis, lambda: 1e-12, lambda: False)
    assert machine.primal_objective_ == pytest.approx(basis.here.objective, rel=2e-6)
    np.testing.assert_allclose(basis.here.W.sum(axis=1), 0, atol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_certificates_change_nothing(wine, solver):
    X, y = wine

    def grow(certified):
        problem = BasisProblem(Kernel.of(X, "rbf"), X, SquaredMargins(y, np.ones(len(y)), 3))
        greedy = SOLVERS[solver].build(
            problem, np.arange(len(X)), np.random.RandomState(0), max_basis=6, n_candidates=5,
            rel_tol=0.0, patience=1, tol=1e-6, max_iter=50,
        )  # fmt: skip
        for _ in range(6):
            progress = greedy.epoch(Clock())
            if certified:
                certificate, solution = greedy.certify(), greedy.solution()
                assert greedy.certify() == certificate
                np.testing.assert_array_equal(greedy.solution().coefficients, solution.coefficients)
                assert certificate.primal == pytest.approx(progress.certificate.primal, rel=1e-9)
                assert certificate.dual <= certificate.primal
        return greedy.solution()

    np.testing.assert_array_equal(grow(True).coefficients, grow(False).coefficients)


def test_an_interrupted_stage_is_part_of_the_path(wine, monkeypatch):
    X, y = wine
    calls = []

    def interrupt(self, basis, u, step=Sweeps._step):
        calls.append(u)
        if len(basis.indices) == 3:
            raise KeyboardInterrupt
        return step(self, basis, u)

    monkeypatch.setattr(Sweeps, "_step", interrupt)
    machine = SparseMultiClassSVC(solver="sweeps", max_basis=9, rel_tol=0, random_state=0)
    with pytest.raises(KeyboardInterrupt, match="stopped after"):
        machine.fit(X, y)
    assert calls and machine.n_basis_ == 3 == len(machine.path_)
    np.testing.assert_array_equal(machine.path_[-1], machine.coef_)
    assert machine.primal_objective_ == pytest.approx(objective(machine, X, y), rel=1e-9)


def test_too_few_sweeps_warn_with_gap_and_remedy(wine):
    X, y = wine
    machine = SparseMultiClassSVC(C=100, max_basis=8, solver="sweeps", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"relative duality gap of .*increase max_iter") as caught:
        machine.fit(X, y)
    assert caught[0].filename == __file__  # the warning points at the caller
    assert machine.duality_gap_ > 1e-6
    assert machine.score(X, y) > 0.5


def test_labels_without_prior_equal_one_squared_hinge_svm_each(tagged):
    X, Y = tagged
    machine = SparseMultiLabelSVC(
        C=0.7, kernel="linear", max_basis=500, rel_tol=0, fit_intercept=True, tol=1e-10, random_state=0
    ).fit(X, Y)
    assert machine.n_basis_ == X.shape[1] + 1
    weights = machine.coef_ @ machine.basis_vectors_
    total = 0.0
    for label, (w, b) in enumerate(zip(weights, machine.intercept_, strict=True)):
        peer = LinearSVC(C=0.7, loss="squared_hinge", tol=1e-8, max_iter=100000).fit(X, Y[:, label])
        np.testing.assert_allclose(w, peer.coef_[0], atol=1e-5)
        assert b == pytest.approx(peer.intercept_[0], abs=1e-5)
        signs = 2 * Y[:, label] - 1
        hinges = np.maximum(1 - signs * peer.decision_function(X), 0)
        total += 0.5 * (peer.coef_**2).sum() + 0.5 * peer.intercept_[0] ** 2 + 0.7 * (hinges**2).sum()
    assert machine.primal_objective_ == pytest.approx(total, rel=1e-7)


def test_two_classes_equal_the_binary_squared_hinge_svm(wine):
    X, y = wine
    y = (y == 1).astype(int)
    machine = SparseMultiClassSVC(C=0.5, kernel="linear", max_basis=100, rel_tol=0, tol=1e-10).fit(X, y)
    # f_1 - f_0 has twice the norm cost and one violation per sample: LinearSVC at twice C.
    peer = LinearSVC(C=1.0, loss="squared_hinge", fit_intercept=False, tol=1e-8, max_iter=100000).fit(X, y)
    np.testing.assert_allclose(machine.decision_function(X), peer.decision_function(X), atol=1e-5)


@pytest.mark.parametrize(
    ("R", "solver"),
    [
        ("definite", "auto"),
        ("definite", "sweeps"),
        ("singular", "auto"),
        ("low rank", "auto"),
        ("builder", "auto"),
    ],
)
def test_priors_of_every_kind(tagged, R, solver):
    X, Y = tagged
    prior = {
        "definite": priors.from_labels(Y),
        "singular": priors.from_categories(Y[:4]),
        "low rank": priors.from_categories(Y[:2]),
        "builder": priors.identity,
    }[R]
    options = {"C": 2, "prior": prior, "max_basis": 15, "rel_tol": 0, "random_state": 0}
    machine = SparseMultiLabelSVC(solver=solver, max_iter=4000, **options).fit(X, Y)
    reference = SparseMultiLabelSVC(tol=1e-10, **options).fit(X, Y)
    assert machine.duality_gap_ <= 1e-6
    assert machine.primal_objective_ == pytest.approx(reference.primal_objective_, rel=1e-2)
    if R == "builder":
        plain = SparseMultiLabelSVC(**{**options, "prior": None}, tol=1e-10).fit(X, Y)
        np.testing.assert_allclose(reference.decision_function(X), plain.decision_function(X), atol=1e-4)
    if R == "low rank":
        assert np.linalg.matrix_rank(machine.coef_, tol=1e-8) <= 2


@pytest.mark.parametrize("machine", MACHINES)
def test_path_is_nested_and_staged(machine, wine):
    X, y = wine
    fitted = machine(C=5, max_basis=9, rel_tol=0, random_state=3).fit(X, y)
    shorter = machine(C=5, max_basis=4, rel_tol=0, random_state=3).fit(X, y)
    cut = fitted.truncate(4)
    np.testing.assert_array_equal(cut.basis_indices_, shorter.basis_indices_)
    assert cut.primal_objective_ == pytest.approx(shorter.primal_objective_, rel=1e-2)
    assert cut.coef_.shape == shorter.coef_.shape and cut.n_basis_ == 4
    stages = list(fitted.staged_decision_function(X))
    np.testing.assert_allclose(stages[3], cut.decision_function(X), atol=1e-10)
    np.testing.assert_allclose(stages[-1], fitted.decision_function(X), atol=1e-10)
    np.testing.assert_array_equal(list(fitted.staged_predict(X))[3], cut.predict(X))
    assert fitted.n_basis_ == 9 == fitted.truncate(9).n_basis_
    for wrong in (0, 10, 2.5, True):
        with pytest.raises(ValueError, match="n_basis must be an integer from 1 to 9"):
            fitted.truncate(wrong)


@pytest.mark.parametrize("machine", MACHINES)
def test_same_seed_same_machine_and_order_does_not_matter(machine, wine):
    X, y = wine
    # Coefficients that are exact to rounding leave no choice of a vector to it.
    machine = partial(machine, max_basis=10, tol=1e-12)
    first = machine(random_state=7).fit(X, y)
    again = machine(random_state=7).fit(X, y)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = machine(random_state=7).fit(X[order], y[order])
    np.testing.assert_array_equal(first.basis_indices_, order[shuffled.basis_indices_])
    np.testing.assert_allclose(first.decision_function(X), shuffled.decision_function(X), atol=1e-6)
    other = machine(random_state=8).fit(X, y)
    assert set(first.basis_indices_) != set(other.basis_indices_)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(MACHINES))
def test_weights_equal_repetition(seed, machine):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 3))
    y = rng.integers(0, 3, 40)
    y[:3] = 0, 1, 2
    weights = rng.integers(0, 4, 40)
    weights[:3] = 1
    options = {"max_basis": 8, "n_candidates": 6, "rel_tol": 0, "tol": 1e-12, "random_state": seed}
    weighted = machine(**options).fit(X, y, sample_weight=weights)
    repeated = machine(**options).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.basis_vectors_, repeated.basis_vectors_)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-6)
    assert weighted.primal_objective_ == pytest.approx(repeated.primal_objective_, rel=1e-9)


@pytest.mark.parametrize("machine", MACHINES)
def test_dense_sparse_and_single_precision_agree(machine, wine):
    X, y = wine
    X = np.where(np.abs(X) > 0.3, X, 0).astype(np.float32)
    options = {"C": 3, "max_basis": 8, "rel_tol": 0, "random_state": 0}
    reference = machine(**options).fit(X.astype(np.float64), y)
    kinds = (np.asarray, sp.csr_array, sp.csr_matrix)
    for kind in kinds:
        fitted = machine(**options).fit(kind(X), y)
        assert fitted.duality_gap_ <= 1e-6
        assert fitted.primal_objective_ == pytest.approx(reference.primal_objective_, rel=0.05)
        scores = fitted.decision_function(X.astype(np.float64))
        for other in kinds:
            found = fitted.decision_function(other(X))
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, scores, atol=2e-3)
    readonly = X.copy()
    readonly.flags.writeable = False
    frozen, free = machine(**options).fit(readonly, y), machine(**options).fit(X, y)
    np.testing.assert_array_equal(frozen.coef_, free.coef_)


@pytest.mark.parametrize("machine", MACHINES)
def test_single_precision_reaches_tol_at_a_large_C(machine):
    X, y = load_digits(return_X_y=True)
    fitted = machine(C=1e4, gamma=1e-3, max_basis=40, rel_tol=0, random_state=0)
    fitted.fit(X[:300].astype(np.float32), y[:300])
    assert fitted.duality_gap_ <= 1e-6 and fitted.basis_vectors_.dtype == np.float32


@pytest.mark.parametrize("machine", MACHINES)
def test_precomputed_and_callable_kernels(machine, wine):
    X, y = wine
    options = {"max_basis": 10, "n_candidates": None, "rel_tol": 0, "tol": 1e-10}
    reference = machine(gamma=0.1, **options).fit(X, y)
    called = machine(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.1), **options).fit(X, y)
    np.testing.assert_allclose(called.decision_function(X), reference.decision_function(X), atol=1e-6)
    K = rbf_kernel(X, gamma=0.1)
    given_values = machine(kernel="precomputed", **options).fit(K, y)
    assert given_values.basis_vectors_.shape == (10, 0)
    np.testing.assert_array_equal(given_values.predict(K), reference.predict(X))
    np.testing.assert_allclose(
        given_values.decision_function(K[:5]), reference.decision_function(X[:5]), atol=1e-6
    )
    assert cross_val_score(machine(kernel="precomputed", max_basis=10), K, y, cv=3).mean() > 0.9


@pytest.mark.parametrize("machine", MACHINES)
def test_more_basis_vectors_than_distinct_samples(machine):
    X = np.repeat(np.eye(4), 5, axis=0)
    y = np.repeat([0, 1, 2, 0], 5)
    fitted = machine(max_basis=1000, rel_tol=0, random_state=0).fit(X, y)
    assert fitted.n_basis_ == 4
    assert (fitted.predict(X) == y).all()


def test_kernel_without_any_function():
    X, y = np.zeros((6, 2)), np.array([0, 1] * 3)
    machine = SparseMultiClassSVC(kernel="linear", random_state=0).fit(X, y)
    assert machine.n_basis_ == 0 and machine.coef_.shape == (2, 0)
    assert (machine.predict(X) == 0).all()


def test_intercept_moves_the_constant_out_of_the_kernel(wine):
    X, y = wine
    machine = SparseMultiClassSVC(fit_intercept=True, intercept_scaling=2.0, max_basis=8, random_state=0)
    machine.fit(X, y)
    np.testing.assert_allclose(machine.intercept_, 4.0 * machine.coef_.sum(axis=1))
    K = rbf_kernel(X, machine.basis_vectors_, gamma=1 / (X.shape[1] * X.var())) + 4.0
    np.testing.assert_allclose(machine.decision_function(X), K @ machine.coef_.T, atol=1e-10)


@pytest.mark.parametrize("machine", [SparseMultiClassSVC, ImportVectorMachine])
def test_one_class_only_is_predicted_with_a_warning(machine):
    with pytest.warns(UserWarning, match=r"a single class .'a'.; the model will always predict it") as caught:
        fitted = machine(full_bound=True).fit(np.eye(3), ["a", "a", "a"])
    assert len(caught) == 1 and caught[0].filename == __file__
    assert fitted.predict(np.eye(3) + 7).tolist() == ["a"] * 3
    assert fitted.n_basis_ == 0 and fitted.primal_objective_ == fitted.full_model_gap_ == 0


def test_history_has_samples_with_loss_and_basis_vectors(wine):
    X, y = wine
    machine = SparseMultiClassSVC(C=0.1, max_basis=5, rel_tol=0, random_state=0).fit(X, y)
    assert [record["basis"] for record in machine.history_] == [1, 2, 3, 4, 5]
    F = machine.decision_function(X)
    M = 1 + F - F[np.arange(len(y)), y][:, None]
    M[np.arange(len(y)), y] = 0
    assert machine.history_[-1]["active"] == np.count_nonzero((M > 0).any(axis=1))


def test_constant_and_unknown_labels(tagged):
    X, Y = tagged
    Y = Y.astype(float)
    Y[:, 1], Y[:, 3] = 1, 0
    Y[::7, 0] = np.nan
    with pytest.warns(UserWarning, match=r"Label 1, 3 is constant in y; the model will always") as caught:
        machine = SparseMultiLabelSVC(prior=priors.identity(5), max_basis=20, random_state=0).fit(X, Y)
    assert caught[0].filename == __file__
    far = machine.predict(X + 100)
    assert (far[:, 1] == 1).all() and (far[:, 3] == 0).all()
    assert not machine.coef_[[1, 3]].any()
    known = ~np.isnan(Y[:, 0])
    alone = SparseMultiLabelSVC(max_basis=20, random_state=0)
    assert (machine.predict(X)[known, 0] == Y[known, 0]).mean() > 0.7
    # An unknown entry has no loss: with the same basis its label is learnt from the rest.
    with pytest.warns(UserWarning):
        alone.fit(X, Y)
    assert alone.duality_gap_ <= 1e-6


def test_bad_input_is_named(tagged):
    X, Y = tagged
    for machine in MACHINES:
        with pytest.raises(ValueError, match="NaN"):
            machine().fit(np.full((4, 2), np.nan), [0, 1, 0, 1])
        with pytest.raises(NotFittedError):
            machine().predict(X)
        with pytest.raises(ValueError, match="non-zero"):
            machine().fit(np.eye(4), [0, 1, 0, 1], sample_weight=np.zeros(4))
    with pytest.raises(ValueError, match="there are 5 labels"):
        SparseMultiLabelSVC(prior=np.eye(4)).fit(X, Y)
    with pytest.raises(ValueError, match="positive semi-definite"):
        SparseMultiLabelSVC(prior=2 * np.eye(5) - np.ones((5, 5))).fit(X, Y)
    with pytest.raises(ValueError, match="square matrix"):
        SparseMultiClassSVC(kernel="precomputed").fit(X, Y[:, 0])


def test_growth_stops_by_relative_decrease():
    X, y = load_iris(return_X_y=True)
    machine = SparseMultiClassSVC(max_basis=100, rel_tol=0.05, n_candidates=None).fit(X, y)
    patient = SparseMultiClassSVC(max_basis=100, rel_tol=0.05, n_iter_no_change=4, n_candidates=None)
    patient.fit(X, y)
    assert machine.n_basis_ < patient.n_basis_ < 100
    objectives = [record["primal"] for record in machine.history_]
    drops = -np.diff(objectives) / np.array(objectives[:-1])
    assert drops[-1] < 0.05 and (drops[:-1] >= 0.05 * 0.9).all()


@pytest.mark.parametrize(
    "machine", [SparseMultiClassSVC, SparseMultiLabelSVC, SparseOneVsRest, ImportVectorMachine]
)
def test_every_parameter_is_documented(machine):
    text = inspect.cleandoc(machine.__doc__)
    described = re.findall(r"^(\w+) : ", text.partition("\nAttributes\n")[0], re.MULTILINE)
    assert sorted(described) == sorted(machine().get_params())
    assert "{parameters}" not in text and "{attributes}" not in text


def test_all_candidates_need_no_seed(wine):
    X, y = wine
    runs = [SparseMultiClassSVC(max_basis=6, n_candidates=None, random_state=s).fit(X, y) for s in (0, 1)]
    np.testing.assert_array_equal(runs[0].basis_indices_, runs[1].basis_indices_)


def test_a_large_C_on_large_features_converges():
    rows = 1e4 * np.random.default_rng(0).normal(size=(30, 3))
    model = SparseMultiClassSVC(C=1e8, kernel="linear", max_basis=4, n_candidates=4, random_state=0)
    model.fit(rows, np.arange(30) % 3)
    assert model.duality_gap_ <= 1e-3 and np.isfinite(model.decision_function(rows)).all()
