"""Newton's method: its steps, its optimum, and the tables that coordinate ascent cannot do."""

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin import MultiLabelSVC, priors
from maxmargin.core import proximal_newton
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.multilabel import newton
from maxmargin.multilabel.choice import few_features, weakly_coupled
from maxmargin.multilabel.newton import CoupledRows, LabelRows, Newton
from maxmargin.multilabel.problem import LinearM3L, hinge_costs, tied_costs
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
    return LinearM3L(Rows.of(X), hinge_costs(signs, upper, rng.uniform(0.5, 2, (len(Y), 1))), R, bias)


@pytest.mark.nojit
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_steps_are_those_of_the_definition(bias, monkeypatch):
    """Step by step; the twin goes on from where the line search ended."""
    monkeypatch.setattr(newton, "STEPS", 1)
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 3))
    Y = (X @ rng.normal(size=(3, 2)) + rng.normal(size=(30, 2)) > 0).astype(int)
    problem = posed(X, Y, R=np.diag([0.5, 2.0]), bias=bias)
    method = Newton(problem, np.zeros(Y.shape), tol=0.0)
    Xb = np.column_stack([X, np.full(30, bias)])
    boxes, margins = problem.costs.boxes(), problem.costs.margins()
    twins = [
        NewtonTwin(
            Xb, 2.0 * Y[:, l] - 1, boxes[:, l], margins[:, l], problem.r[l],
            newton.FIRST, proximal_newton.SHRINK, method.steps.least, proximal_newton.SOLVED,
        )
        for l in range(2)
    ]  # fmt: skip
    for _ in range(8):
        steps = method.steps
        for l, twin in enumerate(twins):
            twin.record()
            assert steps.primal[l] == pytest.approx(twin.primal)
            assert steps.dual[l] == pytest.approx(twin.dual, rel=1e-9, abs=1e-9)
        method.epoch(Clock())
        for l, twin in enumerate(twins):
            assert steps.tau[l] == pytest.approx(twin.omega)
            np.testing.assert_allclose(steps.anchor[l, 0], twin.centre, atol=1e-9)
            first, d = twin.step()
            z = steps.W[l, 0] * np.sqrt(problem.r[l])
            # The search may stop a little before or behind the minimum of the twin.
            length = (z - twin.z) @ d / (d @ d)
            np.testing.assert_allclose(z, twin.z + length * d, atol=1e-9 * np.abs(z).max())
            assert abs(twin.gradient(z) @ d) <= proximal_newton.FLAT * abs(first) + 1e-9
            twin.z = z


@pytest.mark.parametrize(
    ("form", "squared"), [("dense", False), ("sparse", True), ("products", True), ("sparse", False)]
)
@pytest.mark.parametrize("curved, size", [(4, 1.0), (25, 1.0), (25, 1e12)])
def test_directions_of_a_label_solve_its_equations(squared, form, curved, size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 30)) * (rng.random((40, 30)) < 0.4)
    rows = LabelRows(sp.csr_array(X) if form == "sparse" else X, keep_products=form == "products")
    weights, rest = np.zeros(40), rng.normal(size=30)
    weights[rng.permutation(40)[:curved]] = size * rng.uniform(0.5, 2, curved)
    hessian = np.eye(30) + X.T @ (weights[:, None] * X)
    found = rows._direction(weights, rest)
    np.testing.assert_allclose(hessian @ found, -rest, atol=1e-9 * np.abs(hessian).max())


@pytest.mark.parametrize("direct", [True, False])
def test_directions_of_tied_labels_solve_their_equations(direct, monkeypatch):
    rng = np.random.default_rng(0)
    X, P = rng.normal(size=(20, 4)), rng.normal(size=(3, 3))
    weights, rest = rng.random((3, 20)) * (rng.random((3, 20)) < 0.5), rng.normal(size=(3, 4))
    rows = CoupledRows(X, P)
    columns = np.einsum("rl,id->lird", P, X).reshape(60, 12)
    hessian = np.eye(12) + columns.T @ (weights.reshape(-1, 1) * columns)
    squares = np.stack([rows._squares(each) for each in weights])
    if direct:
        found = rows._solve_directly(squares, weights, rest)
    else:
        found = rows._solve_iteratively(squares, weights, rest, accuracy=1e-12)
    np.testing.assert_allclose(found.ravel(), np.linalg.solve(hessian, rest.ravel()), rtol=1e-8)
    np.testing.assert_allclose(rows.scores(rest[None])[0].ravel(), columns @ rest.ravel(), atol=1e-12)
    np.testing.assert_allclose(rows.image(weights[None])[0].ravel(), weights.ravel() @ columns, atol=1e-12)
    labels, samples = np.array([0, 2, 1]), np.array([3, 3, 17])
    np.testing.assert_allclose(rows.entry_rows(labels, samples), columns[20 * labels + samples])


def tied(X, Y, R, bias=1.0, C=2.0, loss="hinge"):
    """Weights of samples and labels that differ, some entries unknown unless the loss is tied."""
    rng = np.random.default_rng(1)
    signs = np.where(Y, 1, -1).astype(np.int8)
    upper, weight = C * rng.uniform(0.5, 2, (2, Y.shape[1])), rng.uniform(0.5, 2, (len(Y), 1))
    if loss == "tied":
        return LinearM3L(Rows.of(X), tied_costs(signs, upper, weight, R), R, bias)
    signs[rng.random(signs.shape) < 0.1] = 0
    return LinearM3L(Rows.of(X), hinge_costs(signs, upper, weight), R, bias)


def objectives(problem, X, alpha, Z):
    """Both objectives by their definitions; Z with the row of the bias."""
    Xb, Y = np.column_stack([X, np.full(len(X), problem.bias)]), problem.costs.signs.astype(float)
    c, m, constant = problem.costs.boxes(), problem.costs.margins(), problem.costs.constant
    V = Xb.T @ (Y * alpha)
    primal = 0.5 * np.trace(np.linalg.solve(problem.R, Z.T @ Z)) + np.sum(c * np.maximum(0, m - Y * (Xb @ Z)))
    assert (alpha >= 0).all() and (alpha <= c).all()
    return primal + constant, np.sum(m * alpha) - 0.5 * np.trace(problem.R @ V.T @ V) + constant


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("loss", "bias"), [("hinge", 0.0), ("hinge", 100.0), ("tied", 1.0)])
def test_tied_labels_reach_a_gap_that_the_definitions_confirm(loss, bias, direct, monkeypatch):
    if not direct:
        monkeypatch.setattr(newton, "DIRECT", 0)
    X, Y = table(d=6, L=5)
    R = priors.shrink(priors.from_labels(Y), 0.8)
    problem = tied(X, Y, R, bias, loss=loss)
    method = Newton(problem, np.zeros(Y.shape), tol=1e-9)
    outcome = run(method, Stopping(1e-9, 300))
    assert outcome.converged
    found = objectives(problem, X, *method.solution())
    assert outcome.certificate.primal == pytest.approx(found[0], rel=1e-10)
    assert outcome.certificate.dual == pytest.approx(found[1], rel=1e-10)
    assert found[1] <= found[0] * (1 + 1e-12)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_it_is_the_default_for_unscaled_columns_and_many_tied_labels(C):
    X, Y = table(n=150, d=60, L=25)
    model = MultiLabelSVC(C=C, prior=priors.from_labels).fit(X, Y)
    assert model.duality_gap_ <= 1e-3 and model.solver_ == "newton"


def test_labels_that_are_tightly_tied_are_no_first_choice():
    X, Y = table(n=100, d=40, L=12)
    loose, tight = priors.from_labels(Y), 1e-4 * np.eye(12) + 1
    assert weakly_coupled(posed(X, Y, R=loose)) and few_features(posed(X, Y, R=loose))
    assert not weakly_coupled(posed(X, Y, R=tight)) and not few_features(posed(X, Y, R=tight))
    assert not weakly_coupled(posed(X, Y, R=np.diag(np.arange(1.0, 13.0))))


def test_large_costs_of_tied_labels_converge():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 100)) + 1
    Y = (X @ rng.normal(size=(100, 10)) > 0).astype(int)
    assert MultiLabelSVC(C=1e7, prior=0.7 + 0.3 * np.eye(10)).fit(X, Y).duality_gap_ <= 1e-3


@pytest.mark.parametrize(
    ("prior", "bias"),
    [(None, 0.0), (None, 100.0), ("diagonal", 1.0), ("dense", 1.0), ("dense", 100.0), ("singular", 1.0)],
)
def test_columns_of_all_sizes_reach_a_tiny_gap(prior, bias):
    X, Y = table()
    R = {
        None: None,
        "diagonal": np.diag([0.5, 1.0, 4.0]),
        "dense": np.eye(3) + 0.5,
        "singular": np.ones((3, 3)) + np.diag([1.0, 0, 0]),
    }[prior]
    options = {"prior": R, "fit_intercept": bias > 0, "intercept_scaling": bias or 1.0}
    model = MultiLabelSVC(solver="newton", tol=1e-10, **options).fit(X, Y)
    assert model.duality_gap_ <= 1e-10


@pytest.mark.parametrize(("solver", "factor"), [("auto", 1e4), ("newton", 1e-4), ("newton", 1e6)])
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
    steps = method.steps
    steps.scores += 1.0  # drift
    for _ in range(5):
        method.epoch(Clock())
    np.testing.assert_allclose(steps.scores, method.geometry.scores(steps.W), atol=1e-9)
    assert method.certify().gap <= 1e-6


def test_what_would_need_too_much_memory_is_refused():
    X = sp.eye_array(20_000, format="csr")
    y = np.arange(20_000) % 2
    with pytest.raises(ValueError, match=r"solver='newton' is for few features.*GiB.*solver='auto'"):
        MultiLabelSVC(solver="newton").fit(X, y)


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
