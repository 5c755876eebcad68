"""`MultiClassSVC`: scikit-learn's contract, equal objectives, weights, edges."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from maxmargin import MultiClassSVC
from maxmargin.model_selection import regularization_path
from maxmargin.structured.multiclass import SOLVERS


def iris():
    return load_iris(return_X_y=True)


def crammer_singer(model, X, y, sample_weight=None):
    """Objective of Crammer-Singer at the coefficients of a fitted linear model."""
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    W, b = np.asarray(model.coef_, float), np.asarray(model.intercept_, float)
    if len(model.classes_) == 2:
        W, b = np.vstack([-W / 2, W / 2]), np.concatenate([-b / 2, b / 2])
    codes = np.searchsorted(model.classes_, y)
    S = X.astype(float) @ W.T + b
    H = S + 1.0 - np.eye(len(model.classes_))[codes]
    losses = H.max(axis=1) - S[np.arange(len(y)), codes]
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    scaling = model.intercept_scaling
    return 0.5 * ((W**2).sum() + ((b / scaling) ** 2).sum()) + model.C * weight @ losses


@pytest.mark.parametrize("C", [0.01, 10.0])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_objective_equals_linear_svc(C, n_classes, weighted):
    X, y = iris()
    X, y = X[y < n_classes] / 2, y[y < n_classes]
    weight = np.random.default_rng(0).uniform(0.1, 2, len(y)) if weighted else None
    ours = MultiClassSVC(C=C, intercept_scaling=2.0, tol=1e-7, max_iter=20000, random_state=0)
    ours.fit(X, y, sample_weight=weight)
    theirs = LinearSVC(C=C, multi_class="crammer_singer", intercept_scaling=2.0, tol=1e-9, max_iter=10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(X, y, sample_weight=weight)
    assert ours.duality_gap_ <= 1e-7
    assert ours.primal_objective_ == pytest.approx(crammer_singer(ours, X, y, weight), rel=1e-9)
    assert ours.primal_objective_ == pytest.approx(crammer_singer(theirs, X, y, weight), rel=1e-5)
    assert ours.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3 * np.abs(theirs.coef_).max())


def test_two_classes_are_a_binary_hinge_with_twice_the_cost():
    X, y = iris()
    X, y = X[y > 0], y[y > 0]
    ours = MultiClassSVC(C=0.5, fit_intercept=False, tol=1e-8, max_iter=20000).fit(X, y)
    binary = LinearSVC(C=1.0, loss="hinge", fit_intercept=False, tol=1e-9, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(ours.coef_, binary.coef_, rtol=1e-3, atol=1e-3)
    assert ours.decision_function(X).shape == (100,)


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_certifies_its_gap(solver):
    X, y = make_blobs(60, 4, centers=3, random_state=1)
    X = (X - X.mean(axis=0)) / 10
    for C in (0.01, 0.1):
        tol = 0.05 if solver in ("fw", "eg") else 1e-3
        model = MultiClassSVC(C=C, solver=solver, tol=tol, max_iter=5000, random_state=0).fit(X, y)
        assert model.duality_gap_ <= tol
        assert model.primal_objective_ == pytest.approx(crammer_singer(model, X, y), rel=1e-9)
        reference = MultiClassSVC(C=C, tol=1e-8, max_iter=5000).fit(X, y)
        assert model.primal_objective_ <= reference.primal_objective_ / (1 - tol)
        for record in model.history_:
            assert record["dual"] <= reference.primal_objective_ * (1 + 1e-9)
            assert record["primal"] >= reference.dual_objective_ * (1 - 1e-9)
            assert set(record) == {"epoch", "seconds", "primal", "dual", "gap", "active", "solver"}


def test_optimality_conditions():
    X, y = load_digits(return_X_y=True)
    X = X[:300] / 16
    options = {"C": 0.5, "fit_intercept": False, "tol": 1e-8, "warm_start": True, "max_iter": 20000}
    model = MultiClassSVC(solver="exact", **options).fit(X, y[:300])
    alpha, S = model._warm[0], model.decision_function(X)
    H = S + 1.0 - np.eye(10)[y[:300]]
    slack = H.max(axis=1, keepdims=True) - H
    assert (slack[alpha > 1e-6] < 1e-3).all()
    np.testing.assert_allclose(alpha.sum(axis=1), 1, atol=1e-12)
    # 1/2 |W - W(alpha)|^2 is a part of P - D.
    distance = np.linalg.norm(0.5 * (np.eye(10)[y[:300]] - alpha).T @ X - model.coef_)
    assert distance <= np.sqrt(2 * (model.primal_objective_ - model.dual_objective_)) + 1e-8
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("loss", ["crammer_singer", "weston_watkins"])
def test_weights_are_repetitions(loss):
    X, y = iris()
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    options = {"C": 0.3, "loss": loss, "tol": 1e-8, "max_iter": 20000}
    weighted = MultiClassSVC(**options).fit(X, y, sample_weight=weight)
    repeated = MultiClassSVC(**options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.primal_objective_ == pytest.approx(repeated.primal_objective_, rel=1e-7)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-3)


def test_balanced_class_weight_counts_weights():
    X, y = iris()
    weight = np.where(y == 0, 2, 1)
    options = {"class_weight": "balanced", "tol": 1e-8, "max_iter": 20000}
    weighted = MultiClassSVC(**options).fit(X, y, sample_weight=weight)
    repeated = MultiClassSVC(**options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.primal_objective_ == pytest.approx(repeated.primal_objective_, rel=1e-7)
    by_name = MultiClassSVC(C=1.0, class_weight={0: 2.0}, tol=1e-8, max_iter=20000).fit(X, y)
    by_sample = MultiClassSVC(C=1.0, tol=1e-8, max_iter=20000).fit(X, y, sample_weight=weight)
    assert by_name.primal_objective_ == pytest.approx(by_sample.primal_objective_, rel=1e-7)


def test_cost_matrix_follows_the_order_of_the_classes():
    X, y = iris()
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    Delta = np.array([[0.0, 1, 1], [1, 0, 10], [1, 1, 0]])
    plain = MultiClassSVC(C=0.05, tol=1e-6, max_iter=5000).fit(X, names)
    wary = MultiClassSVC(C=0.05, cost_matrix=Delta, tol=1e-6, max_iter=5000).fit(X, names)

    def mistakes(model):
        return ((names == "versicolor") & (model.predict(X) == "virginica")).sum()

    assert mistakes(wary) <= mistakes(plain)
    zero = MultiClassSVC(cost_matrix=np.zeros((3, 3))).fit(X, names)
    assert zero.primal_objective_ == 0 and not zero.coef_.any()
    free = np.array([[0.0, 0, 0], [1, 0, 1], [1, 1, 0]])
    model = MultiClassSVC(cost_matrix=free, tol=1e-6, max_iter=5000).fit(X, names)
    assert model.duality_gap_ <= 1e-6


@pytest.mark.parametrize(
    ("Delta", "message"),
    [
        (np.ones((3, 3)), "zero on its diagonal"),
        (np.zeros((2, 2)), "one row and one column per class"),
        (-(1 - np.eye(3)), "nonnegative"),
        (np.where(np.eye(3) > 0, 0, np.nan), "finite"),
    ],
)
def test_bad_cost_matrix(Delta, message):
    with pytest.raises(ValueError, match=message):
        MultiClassSVC(cost_matrix=Delta).fit(*iris())


def test_dense_sparse_single_and_double_agree():
    X, y = load_digits(return_X_y=True)
    X, y = X[:400] / 16, y[:400]
    options = {"C": 0.1, "tol": 1e-4, "random_state": 0, "max_iter": 5000}
    reference = MultiClassSVC(C=0.1, tol=1e-8, max_iter=5000).fit(X, y)
    readonly = X.copy()
    readonly.flags.writeable = False
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    for given_X in (
        X,
        readonly,
        sp.csr_matrix(X),
        sp.csr_array(X),
        sp.csc_array(X),
        wide,
        X.astype(np.float32),
    ):
        for precision in ("auto", "double", "single"):
            model = MultiClassSVC(precision=precision, **options).fit(given_X, y)
            assert model.duality_gap_ <= 1e-4
            assert model.primal_objective_ == pytest.approx(reference.primal_objective_, rel=2e-4)
            assert model.coef_.dtype == np.float64


def test_kernels():
    X, y = iris()
    X = StandardScaler().fit_transform(X)
    linear = MultiClassSVC(C=0.3, tol=1e-7, max_iter=20000).fit(X, y)
    by_kernel = MultiClassSVC(C=0.3, kernel=lambda A, B: A @ B.T, tol=1e-7, max_iter=20000).fit(X, y)
    assert by_kernel.primal_objective_ == pytest.approx(linear.primal_objective_, rel=1e-6)
    np.testing.assert_allclose(by_kernel.decision_function(X), linear.decision_function(X), atol=1e-3)
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    rbf = MultiClassSVC(kernel="rbf", gamma=0.5, tol=1e-6, random_state=0).fit(X, y)
    given_K = MultiClassSVC(kernel="precomputed", tol=1e-6, random_state=0).fit(K, y)
    assert rbf.primal_objective_ == pytest.approx(given_K.primal_objective_, rel=1e-6)
    np.testing.assert_allclose(rbf.decision_function(X), given_K.decision_function(K), atol=1e-3)
    small_cache = MultiClassSVC(kernel="rbf", gamma=0.5, tol=1e-6, cache_size=0.01, random_state=0).fit(X, y)
    assert small_cache.primal_objective_ == pytest.approx(rbf.primal_objective_, rel=1e-6)
    assert len(rbf.support_) == len(rbf.support_vectors_) == rbf.dual_coef_.shape[1] < len(y)
    with pytest.raises(ValueError, match="square"):
        MultiClassSVC(kernel="precomputed").fit(X, y)


def test_warm_start_and_path():
    X, y = load_digits(return_X_y=True)
    X, y = X[:500] / 16, y[:500]
    model = MultiClassSVC(C=0.1, warm_start=True, tol=1e-4, random_state=0, max_iter=5000).fit(X, y)
    dual = model.dual_objective_
    assert model.fit(X, y).history_[0]["dual"] >= dual * (1 - 1e-6)
    warm = model.set_params(C=0.2).fit(X, y)
    cold = MultiClassSVC(C=0.2, tol=1e-4, max_iter=5000).fit(X, y)
    assert warm.primal_objective_ == pytest.approx(cold.primal_objective_, rel=2e-4)
    for solver in ("bcpl", "bcfw"):
        assert model.set_params(solver=solver).fit(X, y).duality_gap_ <= 1e-4
    path = list(regularization_path(MultiClassSVC(tol=1e-3), X, y, [0.1, 0.01]))
    assert [m.C for m in path] == [0.01, 0.1]
    assert all(m.duality_gap_ <= 1e-3 and not hasattr(m, "_warm") for m in path)
    assert path[0].primal_objective_ < path[1].primal_objective_


def test_divergence_is_warned_of():
    X, y = load_digits(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="increase temperature"):
        model = MultiClassSVC(C=1.0, solver="oeg", temperature=1e-3, max_iter=200).fit(X[:200], y[:200])
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "weston_watkins", "solver": "bcfw"}, "solver='auto', 'newton' and 'exact' only"),
        ({"temperature": 0.1}, "temperature=0.1 is read by solver 'bcpl', 'oeg', 'pl', 'eg' only"),
        ({"solver": "oeg", "safeguard": False}, "safeguard=False is read by solver 'bcpl' only"),
        ({"solver": "pairwise"}, "solver='pairwise' was removed; use solver='auto' instead"),
        ({"solver": "oeg", "temperature": 0}, "positive temperature"),
        ({"C": -1}, "'C' parameter of MultiClassSVC"),
        ({"solver": "simplex"}, "'solver' parameter of MultiClassSVC"),
        ({"solver": "newton", "kernel": "rbf"}, "solver='newton' needs kernel='linear'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        MultiClassSVC(**options).fit(*iris())


def test_zero_temperature_is_frank_wolfe():
    X, y = iris()
    models = [
        MultiClassSVC(C=0.1, random_state=0, max_iter=5, tol=0, **options)
        for options in ({"solver": "bcpl", "temperature": 0}, {"solver": "bcfw"})
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first, second = (model.fit(X, y) for model in models)
    np.testing.assert_array_equal(first.coef_, second.coef_)


@pytest.mark.parametrize("solver", ["exact", "bcfw", "bcpl", "oeg"])
def test_zero_rows_and_huge_values(solver):
    X, y = iris()
    X = np.vstack([X, np.zeros((3, 4))])
    y = np.concatenate([y, [0, 1, 2]])
    model = MultiClassSVC(C=0.01, fit_intercept=False, solver=solver, tol=1e-2, max_iter=3000).fit(X, y)
    assert model.duality_gap_ <= 1e-2
    huge = MultiClassSVC(C=1e-16, fit_intercept=False, solver=solver, tol=1e-2, max_iter=3000).fit(1e8 * X, y)
    scaled = MultiClassSVC(C=1.0, fit_intercept=False, tol=1e-3, max_iter=3000).fit(X, y)
    assert huge.primal_objective_ * 1e16 == pytest.approx(scaled.primal_objective_, rel=3e-2)
    with pytest.raises(ValueError, match="NaN"):
        MultiClassSVC(solver=solver).fit(np.full((3, 2), np.nan), [0, 1, 2])


@settings(max_examples=20)
@given(
    st.integers(2, 20),
    st.integers(1, 6),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 10**6),
)
def test_any_shape_is_certified(n, d, c, sparse, dtype, seed):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)
    y = rng.integers(0, c, n)
    weight = rng.integers(0, 3, n) + (np.arange(n) == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = MultiClassSVC(C=0.5, max_iter=5000, random_state=seed)
        model.fit(sp.csr_array(X) if sparse else X, y, sample_weight=weight)
    assert model.duality_gap_ <= 1e-3
    assert model.dual_objective_ <= model.primal_objective_ * (1 + 1e-12)
    objective = crammer_singer(model, X.astype(float), y, weight)
    assert model.primal_objective_ == pytest.approx(objective, rel=1e-5, abs=1e-9)
    assert set(model.predict(X)) <= set(y)


def test_a_fit_with_another_kernel_replaces_all_attributes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (np.linalg.norm(X, axis=1) > 1.5).astype(int) + (X[:, 0] > 1)
    model = MultiClassSVC(kernel="linear", random_state=0).fit(X, y)
    model.set_params(kernel="rbf", C=100).fit(X, y)
    fresh = MultiClassSVC(kernel="rbf", C=100, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), fresh.decision_function(X))
    model.set_params(kernel="linear", C=1.0).fit(X, y)
    assert hasattr(model, "coef_") and not hasattr(model, "dual_coef_") and not hasattr(model, "_kernel")


@pytest.mark.parametrize("solver", ["auto", "exact", "bcpl", "bcfw", "fw", "newton"])
@pytest.mark.parametrize("scale", [1e6, 1e8])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_dual_stays_below_the_optimum_where_alpha_is_all_but_one(solver, scale):
    """Three samples on a line: the optimum is 1 / (4 scale^2), from alpha about 1 / scale^2 away from 1."""
    X, optimum = scale * np.array([[1.0], [-2.0], [3.0]]), 0.25 / scale**2
    model = MultiClassSVC(solver=solver, fit_intercept=False, max_iter=200, random_state=0).fit(X, [0, 1, 0])
    assert model.dual_objective_ <= optimum * (1 + 1e-12) <= model.primal_objective_ * (1 + 1e-11)
    assert model.duality_gap_ >= (model.primal_objective_ - optimum) / model.primal_objective_ - 1e-12


@pytest.mark.parametrize("solver", ["auto", "exact"])
@pytest.mark.parametrize("scale", [1e3])
def test_more_features_than_samples_of_any_scale(solver, scale):
    """Gene expressions have such shapes; the kernel form gives the reference optimum."""
    X = scale * np.random.RandomState(0).randn(20, 700)
    y = np.random.RandomState(1).randint(0, 3, 20)
    model = MultiClassSVC(solver=solver, random_state=0).fit(X, y)
    reference = MultiClassSVC(kernel="precomputed", tol=1e-5, random_state=0).fit(X @ X.T, y)
    assert model.duality_gap_ <= 1e-3
    assert model.dual_objective_ <= reference.primal_objective_ * (1 + 1e-9)
    assert model.primal_objective_ == pytest.approx(reference.primal_objective_, rel=1e-3)


def test_a_warm_start_that_other_labels_made_worthless_is_left():
    rng = np.random.RandomState(0)
    X, y = rng.randn(40, 5), rng.randint(0, 3, 40)
    model = MultiClassSVC(loss="weston_watkins", warm_start=True, C=0.1).fit(X, y)
    model.set_params(C=100).fit(X, y[::-1])
    cold = MultiClassSVC(loss="weston_watkins", C=100).fit(X, y[::-1])
    assert model.duality_gap_ <= 1e-3
    assert model.primal_objective_ == pytest.approx(cold.primal_objective_, rel=2e-3)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_class_weights_are_finite_and_not_negative(weight):
    with pytest.raises(ValueError, match="class_weight must hold finite nonnegative numbers"):
        MultiClassSVC(class_weight={0: weight}).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
