"""MultiLabelSVC reaches the optimum: known answers, LinearSVC, priors, weights, precisions."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from maxmargin import MultiLabelSVC, priors
from maxmargin.model_selection import regularization_path
from maxmargin.multilabel.estimator import SOLVERS
from tests.checks import apart

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "m3l_linear.json").read_text())
EXACT = {"tol": 1e-9, "max_iter": 20000, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(
        n_samples=150, n_features=20, n_classes=6, n_labels=2, random_state=3
    )
    return X / np.linalg.norm(X, axis=1, keepdims=True), Y


def primal(model, X, Y, C, scaling=1.0, R=None):
    """The objective in sklearn's scaling, from coef_ and intercept_ alone."""
    S = 2.0 * Y - 1
    Z = np.column_stack([model.coef_, model.intercept_ / scaling])
    inverse = np.eye(len(Z)) if R is None else np.linalg.pinv(R)
    F = X @ model.coef_.T + model.intercept_
    return 0.5 * np.trace(inverse @ Z @ Z.T) + C * np.maximum(0, 1 - S * F).sum()


@pytest.mark.parametrize("solver", ["auto", "dca", "newton"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_known_answers(case, solver):
    X, Y, scale = np.array(case["X"]), np.array(case["Y"]), case["bias_scale"]
    model = MultiLabelSVC(
        C=2 * case["C"][0][0],
        prior=np.array(case["R"]),
        fit_intercept=scale > 0,
        intercept_scaling=scale or 1.0,
        solver=solver,
        **EXACT,
    ).fit(X, Y)
    assert model.primal_objective_ == pytest.approx(case["objective"], rel=1e-8)
    assert model.dual_objective_ == pytest.approx(case["objective"], rel=1e-8)
    np.testing.assert_allclose(model.decision_function(X), case["scores"], atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), case["predictions"])
    Z = np.vstack([model.coef_.T, model.intercept_ / scale]) if scale else model.coef_.T
    np.testing.assert_allclose(Z, case["Z"], atol=1e-6)


@pytest.mark.parametrize(("C", "intercept"), [(0.05, None), (1.0, 1.0), (10.0, 4.0)])
def test_without_prior_it_is_one_linear_svc_per_label(data, C, intercept):
    X, Y = data
    options = {"fit_intercept": intercept is not None, "intercept_scaling": intercept or 1.0}
    model = MultiLabelSVC(C=C, **options, **EXACT).fit(X, Y)
    total = 0.0
    for l in range(Y.shape[1]):
        peer = LinearSVC(C=C, loss="hinge", tol=1e-8, max_iter=10**6, random_state=0, **options)
        peer.fit(X, Y[:, l])
        peer.coef_ = peer.coef_.reshape(1, -1)
        total += primal(peer, X, Y[:, l : l + 1], C, intercept or 1.0)
    assert model.primal_objective_ == pytest.approx(total, rel=1e-5)
    assert primal(model, X, Y, C, intercept or 1.0) == pytest.approx(model.primal_objective_, rel=1e-9)


def random_prior(kind, L, rng):
    rank = {"dense": L, "low rank": 2, "singular": L - 1, "diagonal": L, "block": L}[kind]
    if kind == "diagonal":
        return np.diag(rng.rand(L) + 0.5)
    if kind == "block":
        R = np.eye(L)
        R[0, 1] = R[1, 0] = 0.8
        return R
    P = rng.randn(rank, L)
    return P.T @ P + 1e-3 * (np.eye(L) if kind == "dense" else 0)


@pytest.mark.parametrize("kind", ["dense", "low rank", "singular", "diagonal", "block"])
def test_priors_reach_the_same_certified_optimum(data, kind):
    X, Y = data
    R = random_prior(kind, Y.shape[1], np.random.RandomState(0))
    fast = MultiLabelSVC(C=0.7, prior=R, **EXACT).fit(X, Y)
    paper = MultiLabelSVC(C=0.7, prior=R, solver="dca", tol=1e-5, max_iter=20000, random_state=1).fit(X, Y)
    newton = MultiLabelSVC(C=0.7, prior=R, solver="newton", tol=1e-6).fit(X, Y)
    assert newton.duality_gap_ <= 1e-6
    assert newton.primal_objective_ == pytest.approx(fast.primal_objective_, rel=2e-6)
    assert fast.duality_gap_ <= 1e-9
    assert paper.duality_gap_ <= 1e-5
    assert paper.primal_objective_ == pytest.approx(fast.primal_objective_, rel=2e-5)
    assert primal(fast, X, Y, 0.7, R=R) == pytest.approx(fast.primal_objective_, rel=1e-6)


@pytest.mark.parametrize("prior", [None, "dense"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_history_tells_the_truth(data, prior, solver):
    """Weak duality at every epoch of every solver."""
    X, Y = data
    R = None if prior is None else random_prior("dense", Y.shape[1], np.random.RandomState(0))
    best = MultiLabelSVC(prior=R, **EXACT).fit(X, Y).dual_objective_
    model = MultiLabelSVC(prior=R, solver=solver, tol=1e-5, max_iter=20000, random_state=2).fit(X, Y)
    assert model.history_ and model.n_iter_ == len(model.history_)
    for record in model.history_:
        assert record["dual"] <= best * (1 + 1e-9) <= record["primal"] * (1 + 1e-8)
        assert record["gap"] == pytest.approx((record["primal"] - record["dual"]) / record["primal"])
        assert 0 <= record["active"] <= len(X)
    last = model.history_[-1]
    assert last["gap"] <= 1e-5 and model.duality_gap_ == pytest.approx(last["gap"])


def test_sample_weight_equals_repetition(data):
    X, Y = data
    rng = np.random.RandomState(0)
    weight = rng.randint(0, 4, len(X))
    R = random_prior("dense", Y.shape[1], rng)
    for prior in (None, R):
        weighted = MultiLabelSVC(prior=prior, class_weight="balanced", **EXACT).fit(X, Y, weight)
        repeated = MultiLabelSVC(prior=prior, class_weight="balanced", **EXACT).fit(
            X.repeat(weight, axis=0), Y.repeat(weight, axis=0)
        )
        assert weighted.primal_objective_ == pytest.approx(repeated.primal_objective_, rel=1e-7)
        np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=apart(weighted, repeated))


def test_class_and_label_weights_are_slopes(data):
    X, Y = data
    balanced = MultiLabelSVC(class_weight="balanced", **EXACT).fit(X, Y)
    on = Y.sum(0)
    table = np.column_stack([len(Y) / (2 * (len(Y) - on)), len(Y) / (2 * on)])
    by_table = MultiLabelSVC(class_weight=table, **EXACT).fit(X, Y)
    assert balanced.primal_objective_ == pytest.approx(by_table.primal_objective_, rel=1e-9)
    label_weight = np.linspace(0.5, 2, Y.shape[1])
    weighted = MultiLabelSVC(label_weight=label_weight, **EXACT).fit(X, Y)
    alone = [
        MultiLabelSVC(C=w, **EXACT).fit(X, Y[:, [l]]).primal_objective_ for l, w in enumerate(label_weight)
    ]
    assert weighted.primal_objective_ == pytest.approx(sum(alone), rel=1e-7)


def test_margin_scales_the_solution(data):
    X, Y = data
    plain = MultiLabelSVC(C=0.5, **EXACT).fit(X, Y)
    wide = MultiLabelSVC(C=1.0, label_margin=2.0, **EXACT).fit(X, Y)
    np.testing.assert_allclose(wide.coef_, 2 * plain.coef_, atol=2 * apart(wide, plain))
    assert wide.primal_objective_ == pytest.approx(4 * plain.primal_objective_, rel=1e-6)


@pytest.mark.parametrize("given", [{}, {"solver": "dca"}, {"kernel": "rbf"}])
def test_costs_of_entries_are_any_loss_over_labels(data, given):
    """The objective sums C max(a, b - y f), a and b what a right and a wrong answer to the entry cost."""
    X, Y = data
    rng = np.random.RandomState(0)
    cost = np.sort(rng.rand(*Y.shape, 2) * 2, axis=2)
    R = random_prior("dense", Y.shape[1], rng)
    model = MultiLabelSVC(C=0.7, prior=R, **given, **EXACT).fit(X, Y, label_cost=cost)
    assert model.duality_gap_ <= 1e-9
    F = model.decision_function(X)
    losses = 0.7 * np.maximum(cost[..., 0], cost[..., 1] - (2.0 * Y - 1) * F).sum()
    if "kernel" in given:
        norm = np.vdot(np.linalg.solve(R, model.dual_coef_), F[model.support_].T)  # dual_coef_ is (A R)'
    else:
        Z = np.column_stack([model.coef_, model.intercept_])
        norm = np.trace(np.linalg.solve(R, Z @ Z.T))
    assert model.primal_objective_ == pytest.approx(0.5 * norm + losses, rel=1e-7)
    of_wrong = MultiLabelSVC(C=0.7, prior=R, **given, **EXACT)
    of_wrong.fit(X, Y, label_cost=cost[..., 1] - cost[..., 0])
    # Of scores with a kernel k(x, x) = 1 and a bias of one, and of rows of norm one.
    np.testing.assert_allclose(of_wrong.decision_function(X), F, atol=np.sqrt(2) * apart(model, of_wrong))


def test_costs_of_one_are_the_hamming_loss(data):
    X, Y = data
    plain = MultiLabelSVC(**EXACT).fit(X, Y)
    ones = MultiLabelSVC(**EXACT).fit(X, Y, label_cost=[[1.0] * Y.shape[1]] * len(Y))
    np.testing.assert_allclose(ones.coef_, plain.coef_, atol=apart(ones, plain))


@pytest.mark.parametrize("prior", [None, "dense"])
@pytest.mark.parametrize("solver", ["dca", "smo"])
def test_the_stopping_rule_of_the_paper(data, solver, prior):
    """No gradient that is free to move exceeds tol."""
    X, Y = data
    R = None if prior is None else random_prior("dense", Y.shape[1], np.random.RandomState(0))
    given = {"prior": R, "solver": solver, "random_state": 0, "max_iter": 20000}
    tol = 0.03
    model = MultiLabelSVC(stopping="projected_gradient", tol=tol, warm_start=True, **given).fit(X, Y)
    alpha, _ = model._recall(Y.shape)
    g = 1 - (2 * Y - 1) * model.decision_function(X)
    rise, fall = np.where(alpha < 1.0, g, 0), np.where(alpha > 0, -g, 0)
    assert max(rise.max(), fall.max()) <= tol + 1e-9
    best = MultiLabelSVC(prior=R, **EXACT).fit(X, Y)
    assert model.dual_objective_ <= best.primal_objective_ and best.dual_objective_ <= model.primal_objective_


def test_the_inner_loop_of_the_paper_reaches_the_same_optimum(data):
    X, Y = data
    R = random_prior("low rank", Y.shape[1], np.random.RandomState(0))
    ours, paper = (
        MultiLabelSVC(prior=R, solver="smo", break_factor=factor, tol=1e-6, max_iter=20000).fit(X, Y)
        for factor in (0.5, 0.0)
    )
    assert paper.primal_objective_ == pytest.approx(ours.primal_objective_, rel=1e-5)


def test_tied_loss_with_identity_is_the_hamming_loss(data):
    X, Y = data
    tied = MultiLabelSVC(loss="tied", **EXACT).fit(X, Y)
    plain = MultiLabelSVC(**EXACT).fit(X, Y)
    np.testing.assert_allclose(tied.coef_, plain.coef_, atol=apart(tied, plain))
    R = priors.shrink(priors.from_labels(Y), 0.6)
    coupled = MultiLabelSVC(loss="tied", prior=R, **EXACT).fit(X, Y)
    assert coupled.duality_gap_ <= 1e-9
    assert not np.allclose(coupled.coef_, plain.coef_, atol=1e-3)


@pytest.mark.parametrize("prior", [None, "dense"])
def test_unknown_entries_have_no_loss(data, prior):
    X, Y = data
    rng = np.random.RandomState(0)
    R = None if prior is None else random_prior("dense", Y.shape[1], rng)
    hidden = rng.rand(*Y.shape) < 0.3
    holes = Y.astype(float)
    holes[hidden] = np.nan
    by_nan = MultiLabelSVC(prior=R, **EXACT).fit(X, holes)
    by_weight = MultiLabelSVC(prior=R, **EXACT).fit(X, Y, sample_weight=(~hidden).astype(float))
    assert by_nan.primal_objective_ == pytest.approx(by_weight.primal_objective_, rel=1e-8)
    assert by_nan.predict(X).shape == Y.shape and by_nan.predict(X).dtype == np.int64


@pytest.mark.parametrize("prior", [None, "dense"])
def test_every_kind_of_x_gives_the_same_model(data, prior, tmp_path):
    X, Y = data
    X = X.astype(np.float32).astype(np.float64) * (np.random.RandomState(0).rand(*X.shape) < 0.6)
    R = None if prior is None else priors.from_labels(Y)
    model = MultiLabelSVC(prior=R, tol=1e-9, max_iter=5000, random_state=0).fit(X, Y)
    wide = sp.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    mapped = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    frozen = X.copy()
    frozen.flags.writeable = False
    kinds = [sp.csr_array(X), sp.csr_matrix(X), wide, frozen, np.asfortranarray(X), X.astype(np.float32)]
    kinds.append(np.memmap(tmp_path / "X", dtype=np.float64, mode="r", shape=X.shape))
    for kind in kinds:
        other = clone(model).fit(kind, Y)
        assert other.coef_.dtype == np.float64 == other.decision_function(kind).dtype
        np.testing.assert_allclose(other.coef_, model.coef_, atol=apart(model, other))


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("prior", [None, "dense"])
def test_single_precision_is_certified_and_gives_way_when_it_stalls(data, prior, precision):
    X, Y = data
    R = None if prior is None else priors.from_labels(Y)
    for tol in (1e-3, 1e-9):
        model = MultiLabelSVC(C=3, prior=R, precision=precision, tol=tol, max_iter=5000, random_state=0)
        assert model.fit(X, Y).duality_gap_ <= tol


def test_threads_do_not_change_the_answer(data):
    X, Y = data
    one = MultiLabelSVC(n_jobs=1, **EXACT).fit(X, Y)
    two = MultiLabelSVC(n_jobs=2, **EXACT).fit(X, Y)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_warm_start_and_path(data):
    X, Y = data
    model = MultiLabelSVC(C=1.0, warm_start=True, tol=1e-6, random_state=0).fit(X, Y)
    cold = model.history_[0]["gap"]
    assert model.fit(X, Y).history_[0]["gap"] < 0.1 * cold
    start = model.smallest_C(X, Y)
    below = MultiLabelSVC(C=0.9 * start, **EXACT).fit(X, Y)
    S = 2.0 * Y - 1
    np.testing.assert_allclose(below.coef_, 0.9 * start * S.T @ X, atol=1e-8)
    path = list(regularization_path(MultiLabelSVC(C=2.0, tol=1e-5, random_state=0), X, Y, Cs=np.int64(4)))
    assert [round(m.C, 9) for m in path] == [round(c, 9) for c in np.geomspace(start, 2.0, 4)]
    assert not path[0].warm_start and not hasattr(path[0], "_warm")
    for step in path:
        alone = MultiLabelSVC(C=step.C, tol=1e-5, random_state=1).fit(X, Y)
        assert step.duality_gap_ <= 1e-5
        assert step.primal_objective_ == pytest.approx(alone.primal_objective_, rel=2e-5)


def test_the_smallest_C_is_silent_without_a_filter_of_the_process(data):
    X, Y = data
    Z = Y.copy()
    Z[:, 0] = 1
    seen = []

    def prior(signs):
        seen.append(list(warnings.filters))
        return priors.from_labels(signs)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        MultiLabelSVC(prior=prior).smallest_C(X, Z)
    assert seen == [before] and not said


def test_difficult_data_still_converges():
    rng = np.random.RandomState(0)
    X = rng.randn(60, 5) * np.array([300, 1, 1, 1e-3, 0])
    X[3] = X[4]  # duplicates with different labels
    X[5] = 0
    Y = rng.randint(0, 2, (60, 3))
    for prior in (None, np.ones((3, 3)), np.eye(3) * 1e3):
        for kind in (X, sp.csr_array(X)):
            model = MultiLabelSVC(C=30, prior=prior, random_state=0).fit(kind, Y)
            assert model.duality_gap_ <= 1e-3


def test_newton_takes_over_where_sweeps_stall():
    rng = np.random.RandomState(1)
    X = np.column_stack([rng.randn(300, 6), 50 + rng.randn(300)])
    Y = (X[:, :2] + 0.5 * rng.randn(300, 2) > 0).astype(int)
    sweeps_only = MultiLabelSVC(C=100, solver="dca", max_iter=100, random_state=0)
    with pytest.warns(ConvergenceWarning):
        assert sweeps_only.fit(X, Y).duality_gap_ > 1e-3
    certified = MultiLabelSVC(C=100, tol=1e-6, random_state=0).fit(X, Y)
    assert certified.duality_gap_ <= 1e-6
    assert primal(certified, X, Y, 100) == pytest.approx(certified.primal_objective_, rel=1e-9)


@pytest.mark.parametrize("solver", ["auto", "dca"])
def test_the_objective_is_that_of_the_stored_coefficients(solver):
    """Also in float32 and with large costs, where rounding the weights shows in the objective."""
    rng = np.random.RandomState(0)
    X = 10 * rng.randn(120, 300).astype(np.float32)
    Y = (rng.rand(120, 3) < 0.4).astype(int)
    model = MultiLabelSVC(C=10.0, tol=1e-2, solver=solver, random_state=0).fit(X, Y)
    W, b = model.coef_.astype(float), model.intercept_.astype(float)
    losses = np.maximum(0, 1 - (2 * Y - 1) * (X.astype(float) @ W.T + b)).sum()
    P = 0.5 * ((W**2).sum() + (b**2).sum()) + 10.0 * losses
    assert model.primal_objective_ == pytest.approx(P, rel=1e-9)
    assert losses * 10.0 > 1e-5 * P


def test_repeated_samples_with_fewer_of_them_than_features_converge():
    rng = np.random.RandomState(42)
    X, y, times = rng.rand(15, 30), rng.randint(0, 3, 15), rng.randint(0, 5, 15)
    model = MultiLabelSVC(solver="newton", tol=1e-9).fit(X.repeat(times, axis=0), y.repeat(times))
    assert model.duality_gap_ <= 1e-9
