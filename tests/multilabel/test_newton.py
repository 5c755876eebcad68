"""Newton's method: its steps, its optimum, and the tables that coordinate ascent cannot do."""

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin import MultiLabelSVC, priors
from maxmargin.core.loop import Clock
from maxmargin.core.rows import Rows
from maxmargin.multilabel import proximal
from maxmargin.multilabel.newton import Newton, NewtonRule, few_features
from maxmargin.multilabel.problem import LinearM3L, hamming_costs
from tests.naive.newton import NewtonTwin


def table(n=80, d=5, L=3, seed=0):
    """Columns of sizes from a thousandth to a thousand with means far from zero, labels that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, L)) + 0.7 * rng.normal(size=(n, L)) > 0).astype(int)
    return (X + 3) * np.logspace(-3, 3, d), Y


def posed(X, Y, C=2.0, R=None, bias=1.0):
    signs = np.where(Y, 1, -1).astype(np.int8)
    rng = np.random.default_rng(1)
    upper = C * rng.uniform(0.5, 2, (2, Y.shape[1]))
    return LinearM3L(Rows.of(X), hamming_costs(signs, upper, rng.uniform(0.5, 2, (len(Y), 1))), R, bias)


@pytest.mark.nojit
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_steps_are_those_of_the_definition(bias):
    """Step by step; the twin goes on from where the compiled line search ended."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 3))
    Y = (X @ rng.normal(size=(3, 2)) + rng.normal(size=(30, 2)) > 0).astype(int)
    problem = posed(X, Y, R=np.diag([0.5, 2.0]), bias=bias)
    rule = NewtonRule(n_steps=1)
    method = Newton(problem, np.zeros(Y.shape), tol=0.0, rule=rule)
    Xb = np.column_stack([X, np.full(30, bias)])[:, : 3 + (bias > 0)]
    boxes, margins = problem.costs.boxes(), problem.costs.margins()
    twins = [
        NewtonTwin(
            Xb, 2.0 * Y[:, l] - 1, boxes[:, l], margins[:, l], problem.r[l],
            rule.first, rule.shrink, rule.least, rule.solved,
        )
        for l in range(2)
    ]  # fmt: skip
    for _ in range(8):
        method.epoch(Clock())
        for l, twin in enumerate(twins):
            twin.look()
            assert method.state.omega[l] == pytest.approx(twin.omega)
            np.testing.assert_allclose(method.state.centre[l], twin.centre, atol=1e-9)
            first, d = twin.step()
            z = method.state.z[l] / method.scale
            # The compiled search may stop a little before or behind the minimum of the twin.
            length = (z - twin.z) @ d / (d @ d)
            np.testing.assert_allclose(z, twin.z + length * d, atol=1e-9 * np.abs(z).max())
            assert abs(twin.gradient(z) @ d) <= proximal.FLAT * abs(first) + 1e-9
            twin.z = z
            assert method.state.primal[l] == pytest.approx(twin.primal)
            assert method.state.dual[l] == pytest.approx(twin.dual, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("prior", [None, "diagonal", "dense", "singular"])
@pytest.mark.parametrize("bias", [0.0, 1.0, 100.0])
def test_reaches_the_optimum_of_the_interior_point_method(prior, bias):
    X, Y = table()
    R = {
        None: None,
        "diagonal": np.diag([0.5, 1.0, 4.0]),
        "dense": np.eye(3) + 0.5,
        "singular": np.ones((3, 3)) + np.diag([1.0, 0, 0]),
    }[prior]
    options = {"prior": R, "fit_intercept": bias > 0, "intercept_scaling": bias or 1.0}
    newton = MultiLabelSVC(solver="newton", tol=1e-10, **options).fit(X, Y)
    other = MultiLabelSVC(solver="interior", tol=1e-6, **options).fit(X, Y)
    assert newton.duality_gap_ <= 1e-10 and other.duality_gap_ <= 1e-6
    assert newton.primal_objective_ == pytest.approx(other.primal_objective_, rel=1e-6)


@pytest.mark.parametrize("solver", ["auto", "interior"])
@pytest.mark.parametrize("factor", [1e-4, 1e4, 1e6])
def test_the_scale_of_the_features_does_not_matter(solver, factor):
    X, Y = table(L=2)
    for prior in (None, np.eye(2) + 0.5):
        model = MultiLabelSVC(C=1 / factor, prior=prior, solver=solver)
        assert model.fit(factor * X, Y).duality_gap_ <= 1e-3


def test_it_is_the_default_for_few_features_and_any_C():
    X, Y = table(n=300)
    for C in (1e-3, 1.0, 1e3, 1e6):
        assert MultiLabelSVC(C=C).fit(X, Y).duality_gap_ <= 1e-3
    assert few_features(posed(X, Y))
    assert not few_features(posed(sp.random(50, 200, 0.05, format="csr", random_state=0), Y[:50]))
    assert not few_features(posed(np.ones((20, 400)), Y[:20]))


def test_a_start_from_the_solution_is_the_end():
    X, Y = table()
    for R in (None, priors.from_labels(Y)):
        problem = posed(X, Y, R=R)
        method = Newton(problem, np.zeros(Y.shape), tol=1e-9)
        while method.epoch(Clock()).certificate.gap > 1e-9:
            pass
        again = Newton(problem, method.solution().alpha, tol=1e-6)
        assert again.epoch(Clock()).certificate.gap <= 1e-6


def test_drifted_scores_are_made_anew():
    X, Y = table()
    method = Newton(posed(X, Y), np.zeros(Y.shape), tol=1e-6)
    while method.gap > 1e-6:
        method.epoch(Clock())
    method.state.scores[:] += 1.0  # drift
    for _ in range(5):
        method.epoch(Clock())
    np.testing.assert_allclose(method.state.scores, method.state.z @ method.columns.X.T, atol=1e-9)
    assert method.certify().gap <= 1e-6


@pytest.mark.parametrize("solver", ["newton", "interior"])
def test_what_would_need_too_much_memory_is_refused(solver):
    X = sp.eye_array(20_000, format="csr")
    y = np.arange(20_000) % 2
    with pytest.raises(ValueError, match=rf"solver='{solver}' is for few features.*GiB.*solver='auto'"):
        MultiLabelSVC(solver=solver).fit(X, y)


@pytest.mark.parametrize("prior", [None, np.array([[2.0, 1.0], [1.0, 2.0]])])
def test_boxes_that_no_optimum_comes_near_do_not_stop_it(prior):
    """Labels that can be told apart: from some C on the optimum is the same."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = 1e5 * rng.normal(size=(15, 11)).astype(np.float32)
        Y = (X @ rng.normal(size=(11, 2)) > 0).astype(int)
        common = {"prior": prior, "intercept_scaling": 0.01, "tol": 1e-6}
        enough = MultiLabelSVC(C=1e-6, **common).fit(X, Y)
        model = MultiLabelSVC(C=1e7, **common).fit(X, Y)
        assert enough.duality_gap_ <= 1e-6 and model.duality_gap_ <= 1e-6
        assert model.primal_objective_ == pytest.approx(enough.primal_objective_, rel=3e-6)
        scores = X.astype(float) @ model.coef_.T + model.intercept_
        assert ((2 * Y - 1) * scores).min() >= 1 - 1e-12
