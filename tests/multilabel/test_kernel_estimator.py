"""MultiLabelSVC with kernels: the scikit-learn side, limit cases, errors, zero-shot."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score

from maxmargin import MultiLabelSVC, priors
from maxmargin.model_selection import regularization_path
from tests.checks import apart

R = np.array([[1, 0.6, -0.2], [0.6, 1, 0.1], [-0.2, 0.1, 1]])


def data(n=60, seed=0, dtype=np.float64):
    rng = np.random.RandomState(seed)
    X = rng.rand(n, 4).astype(dtype)
    score = np.column_stack([np.sin(5 * X[:, 0]) + X[:, 1], X[:, 2] - X[:, 0], X.sum(axis=1) - 2])
    return X, (score > np.median(score, axis=0)).astype(int)


@pytest.mark.parametrize(
    ("kernel", "solver"),
    [
        ("linear", "smo"),
        ("rbf", "auto"),
        ("rbf", "smo"),
        ("poly", "auto"),
        ("sigmoid", "smo"),
        ("chi2", "auto"),
    ],
)
def test_dense_csr_and_single_precision_give_one_model(kernel, solver):
    X, Y = data()
    options = {
        "kernel": kernel,
        "solver": solver,
        "coef0": 0.5,
        "degree": 2,
        "gamma": 0.7,
        "tol": 1e-8,
        "random_state": 0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        dense = MultiLabelSVC(**options).fit(X, Y)
        sparse = MultiLabelSVC(**options).fit(sp.csr_array(X), Y)
        single = MultiLabelSVC(**options).fit(X.astype(np.float32), Y)
    expected = dense.decision_function(X)
    assert np.abs(expected).max() > 0.1
    longest = 3.5  # feature vector with its bias
    close = longest * apart(dense, sparse)
    np.testing.assert_allclose(sparse.decision_function(sp.csr_array(X)), expected, atol=close)
    scores = single.decision_function(X.astype(np.float32))
    assert scores.dtype == single.intercept_.dtype == np.float64
    np.testing.assert_allclose(scores, expected, atol=longest * apart(dense, single) + 1e-5)
    if kernel != "linear" or solver == "smo":
        assert sp.issparse(sparse.support_vectors_)
        np.testing.assert_array_equal(dense.support_vectors_, X[dense.support_])


@pytest.mark.parametrize(("prior", "bias"), [(None, 1.0), (R, 0.0), (np.outer([1, -1, 1], [1, -1, 1]), 3.0)])
def test_linear_kernel_equals_the_linear_solver(prior, bias):
    X, Y = data()
    options = {
        "prior": prior,
        "fit_intercept": bias > 0,
        "intercept_scaling": bias or 1.0,
        "tol": 1e-9,
        "C": 2.0,
    }
    linear = MultiLabelSVC(**options).fit(X, Y)
    weights = np.random.RandomState(0).rand(60) + 0.5
    for other in (
        MultiLabelSVC(solver="smo", **options).fit(X, Y),
        MultiLabelSVC(kernel=lambda A, B: A @ B.T, **options).fit(X, Y),
    ):
        assert other.primal_objective_ == pytest.approx(linear.primal_objective_, rel=1e-7)
        close = np.hypot(2, bias) * apart(linear, other)
        np.testing.assert_allclose(other.decision_function(X), linear.decision_function(X), atol=close)
        np.testing.assert_allclose(other.intercept_, linear.intercept_, atol=close)
        again = [clone(m).fit(X, Y, sample_weight=weights) for m in (linear, other)]
        assert again[0].primal_objective_ == pytest.approx(again[1].primal_objective_, rel=1e-7)
    smo = MultiLabelSVC(solver="smo", **options).fit(X, Y)
    np.testing.assert_allclose(smo.coef_, linear.coef_, atol=apart(smo, linear))


def test_precomputed_kernel_equals_the_kernel():
    X, Y = data(80)
    train, test = X[:60], X[60:]
    named = MultiLabelSVC(kernel="rbf", gamma=2.0, prior=R, tol=1e-9).fit(train, Y[:60])
    given = MultiLabelSVC(kernel="precomputed", prior=R, tol=1e-9).fit(rbf_kernel(train, gamma=2.0), Y[:60])
    K = rbf_kernel(test, train, gamma=2.0)
    close = np.sqrt(2) * apart(given, named)
    np.testing.assert_allclose(given.decision_function(K), named.decision_function(test), atol=close)
    assert given.__sklearn_tags__().input_tags.pairwise
    assert given.support_vectors_.size == 0
    scores = cross_val_score(given, rbf_kernel(X, gamma=2.0), Y, cv=3)
    np.testing.assert_allclose(scores, cross_val_score(named, X, Y, cv=3), atol=0.02)


def test_only_support_rows_are_needed():
    X, Y = data(200)
    model = MultiLabelSVC(kernel="rbf", C=100, tol=1e-4).fit(X, Y)
    assert 0 < len(model.support_) < 200
    assert model.dual_coef_.shape == (3, len(model.support_))
    assert not hasattr(model, "coef_")
    K = rbf_kernel(X, X[model.support_], gamma=1 / (4 * X.var()))
    expected = K @ model.dual_coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-10)


@pytest.mark.parametrize("solver", ["auto", "smo"])
def test_two_cached_rows_are_enough(solver):
    X, Y = data()
    options = {"kernel": "rbf", "solver": solver, "prior": R, "tol": 1e-6, "random_state": 0}
    whole, rows = (MultiLabelSVC(cache_size=size, **options).fit(X, Y) for size in (200, 0))
    assert rows.duality_gap_ <= 1e-6
    assert rows.primal_objective_ == pytest.approx(whole.primal_objective_, rel=2e-6)


def test_costs_weights_and_missing_entries():
    X, Y = data()
    known = Y.astype(float)
    known[::5, 1] = np.nan
    options = {
        "kernel": "rbf",
        "prior": R,
        "class_weight": "balanced",
        "label_weight": [1.0, 2.0, 0.5],
        "tol": 1e-8,
    }
    smo, auto = (MultiLabelSVC(solver=solver, **options).fit(X, known) for solver in ("smo", "auto"))
    assert smo.primal_objective_ == pytest.approx(auto.primal_objective_, rel=1e-6)
    weight = np.ones(Y.shape)
    weight[::5, 1] = 0
    options["class_weight"] = None
    masked = MultiLabelSVC(**options).fit(X, Y, sample_weight=weight)
    missing = MultiLabelSVC(**options).fit(X, known)
    close = np.sqrt(2) * apart(masked, missing)
    np.testing.assert_allclose(masked.decision_function(X), missing.decision_function(X), atol=close)


def test_a_weight_of_two_is_the_sample_twice():
    X, Y = data()
    weight = np.random.RandomState(0).randint(0, 3, 60)
    options = {"kernel": "rbf", "prior": R, "tol": 1e-9}
    weighted = MultiLabelSVC(**options).fit(X, Y, sample_weight=weight)
    repeated = MultiLabelSVC(**options).fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight, axis=0))
    close = np.sqrt(2) * apart(weighted, repeated)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=close)


def test_tied_loss():
    X, Y = data()
    options = {"kernel": "rbf", "prior": priors.shrink(R, 0.2), "loss": "tied", "tol": 1e-7}
    smo, auto = (MultiLabelSVC(solver=solver, **options).fit(X, Y) for solver in ("smo", "auto"))
    assert smo.primal_objective_ == pytest.approx(auto.primal_objective_, rel=1e-6)


def test_warm_start_and_path():
    X, Y = data(200)
    path = list(regularization_path(MultiLabelSVC(kernel="rbf", tol=1e-6), X, Y, Cs=[0.1, 1.0, 3.0]))
    cold = MultiLabelSVC(kernel="rbf", tol=1e-6, C=3.0).fit(X, Y)
    assert path[-1].primal_objective_ == pytest.approx(cold.primal_objective_, rel=3e-6)
    model = MultiLabelSVC(kernel="rbf", tol=1e-6, warm_start=True).fit(X, Y)
    first = model.history_[0]["gap"]
    assert model.fit(X, Y).history_[0]["gap"] < 0.1 * first


def test_refitting_with_another_kernel_leaves_nothing_behind():
    X, Y = data()
    model = MultiLabelSVC().fit(X, Y)
    model.set_params(kernel="rbf").fit(X, Y)
    assert not hasattr(model, "coef_") and hasattr(model, "dual_coef_")
    model.set_params(kernel="linear").fit(X, Y)
    assert hasattr(model, "coef_") and not hasattr(model, "dual_coef_")


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"kernel": "precomputed"}, np.ones((60, 4)), "square matrix"),
        ({"kernel": "precomputed"}, -np.eye(60), "semi-definite"),
        ({"kernel": "precomputed"}, np.triu(np.ones((60, 60))), "symmetric"),
        ({"kernel": "precomputed"}, np.full((60, 60), np.nan), "NaN"),
        ({"kernel": "chi2"}, -data()[0], "nonnegative features"),
        ({"kernel": "rbf", "gamma": -1.0}, data()[0], "'gamma' parameter of MultiLabelSVC"),
        ({"kernel": "cosine"}, data()[0], "'kernel' parameter of MultiLabelSVC"),
        ({"kernel": "rbf", "cache_size": -1}, data()[0], "'cache_size' parameter of MultiLabelSVC"),
        ({"kernel": "rbf", "solver": "dca"}, data()[0], "solver='dca' is linear"),
        ({"kernel": "rbf", "prior": np.diag([1.0, 1.0, -1.0])}, data()[0], "positive diagonal"),
        ({"kernel": "rbf", "prior": 1 - 2 * np.eye(3)[::-1]}, data()[0], "prior"),
        ({"kernel": lambda A, B: np.ones(3)}, data()[0], "one value for each pair"),
    ],
)
def test_bad_input_is_named(options, X, message):
    with pytest.raises(ValueError, match=message):
        MultiLabelSVC(**options).fit(X, data()[1])


def test_an_indefinite_kernel_is_said():
    X, Y = data()
    with pytest.warns(UserWarning, match="not positive semi-definite"):
        MultiLabelSVC(kernel="sigmoid", gamma=5.0, coef0=1.0).fit(X, Y)


def test_zero_shot_categories_are_recognised():
    rng = np.random.RandomState(0)
    signatures = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 1, 1],
                           [1, 0, 0, 1, 0], [0, 1, 0, 1, 1]])  # fmt: skip
    mixing = rng.randn(5, 8)
    category = rng.randint(0, 6, 400)
    X = (2 * signatures[category] - 1) @ mixing + rng.randn(400, 8)
    seen = category < 4
    model = MultiLabelSVC(kernel="rbf", prior=priors.from_categories(signatures[4:], shrinkage=0.3))
    model.fit(X[seen], signatures[category[seen]])
    found = model.predict_category(X[~seen], signatures[4:])
    assert np.mean(found == category[~seen] - 4) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["auto", "smo"])
def test_a_large_fit_stays_within_its_memory(solver):
    limit = 600 if solver == "auto" else 60
    script = f"""
import resource, warnings
import numpy as np
from maxmargin import MultiLabelSVC
warnings.simplefilter("ignore")
rng = np.random.RandomState(0)
X = rng.randn(20000, 20).astype(np.float32)
Y = (X[:, :3] + X[:, 3:6] ** 2 > 0.5).astype(int)
model = MultiLabelSVC(kernel="rbf", solver="{solver}", cache_size=200, precision="single", time_limit={limit})
model.set_params(cache_size=1).fit(X[:3000], Y[:3000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.set_params(cache_size=200).fit(X, Y)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, model.duality_gap_)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    grown, gap = map(float, answer.stdout.split())
    assert grown < 200 + 150, grown
    if solver == "auto":
        assert gap <= 1e-3
