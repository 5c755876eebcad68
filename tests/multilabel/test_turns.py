"""Newton's method in turns: coupled labels that are too many to be joined."""

import numpy as np
import pytest

from maxmargin import MultiLabelSVC, priors
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.multilabel.interior import InteriorPoint
from maxmargin.multilabel.newton import few_features, in_turns
from maxmargin.multilabel.problem import LinearM3L, hamming_costs, tied_costs
from maxmargin.multilabel.turns import NewtonInTurns
from tests.multilabel.test_newton import table


def posed(X, Y, R, bias=1.0, C=2.0, tied=False):
    """Weights of samples and labels that differ, some entries unknown unless the loss is tied."""
    rng = np.random.default_rng(1)
    signs = np.where(Y, 1, -1).astype(np.int8)
    upper, weight = C * rng.uniform(0.5, 2, (2, Y.shape[1])), rng.uniform(0.5, 2, (len(Y), 1))
    if tied:
        return LinearM3L(Rows.of(X), tied_costs(signs, upper, weight, R), R, bias)
    signs[rng.random(signs.shape) < 0.1] = 0
    return LinearM3L(Rows.of(X), hamming_costs(signs, upper, weight), R, bias)


def objectives(problem, X, alpha, Z):
    """Both objectives by their definitions; Z with the row of the bias."""
    Xb, Y = np.column_stack([X, np.full(len(X), problem.bias)]), problem.costs.signs.astype(float)
    c, m, constant = problem.costs.boxes(), problem.costs.margins(), problem.costs.constant
    V = Xb.T @ (Y * alpha)
    primal = 0.5 * np.trace(np.linalg.solve(problem.R, Z.T @ Z)) + np.sum(c * np.maximum(0, m - Y * (Xb @ Z)))
    assert (alpha >= 0).all() and (alpha <= c).all()
    return primal + constant, np.sum(m * alpha) - 0.5 * np.trace(problem.R @ V.T @ V) + constant


@pytest.mark.nojit
@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_a_turn_lowers_the_smoothed_primal_and_the_parts_of_the_gap_add_up(bias):
    X, Y = table(n=30, d=4, L=3)
    R = np.array([[1.0, 0.4, -0.3], [0.4, 2.0, 0.2], [-0.3, 0.2, 0.5]])
    problem = posed(X, Y, R, bias)
    method = NewtonInTurns(problem, np.zeros(Y.shape), tol=0.0)
    Xb = np.column_stack([X, np.full(30, bias)])[:, : 4 + (bias > 0)]
    S, c, m = problem.costs.signs.astype(float), problem.costs.boxes(), problem.costs.margins()

    def smoothed():
        """Each hinge is the integral of its share: a + g / omega between 0 and 1."""
        Z, omega, a = (method.Z / method.scale).T, method.state.omega, method.state.centre.T
        g = m - S * (Xb @ Z)
        low, high = -a * omega, (1 - a) * omega
        middle = 0.5 * omega * (np.clip(g, low, high) / omega + a) ** 2
        return 0.5 * np.trace(np.linalg.solve(R, Z.T @ Z)) + np.sum(c * (middle + np.maximum(g - high, 0)))

    before = smoothed()
    for _ in range(6):
        for l in range(3):
            method._turn(l)
            after = smoothed()
            assert after <= before * (1 + 1e-9)
            before = after
        method._look()
        before = smoothed()  # with another centre
    np.testing.assert_allclose(method.F, Xb @ (method.Z / method.scale).T, atol=1e-9)


@pytest.mark.parametrize("kind", ["hamming", "tied"])
@pytest.mark.parametrize("bias", [0.0, 1.0, 100.0])
def test_reaches_the_optimum_of_the_interior_point_method(kind, bias):
    X, Y = table(d=6, L=5)
    R = priors.shrink(priors.from_labels(Y), 0.8)
    problem = posed(X, Y, R, bias, tied=kind == "tied")
    turns = NewtonInTurns(problem, np.zeros(Y.shape), tol=1e-9)
    outcome = run(turns, Stopping(1e-9, 200))
    other = run(InteriorPoint(problem), Stopping(1e-7, 100))
    assert outcome.converged and other.converged
    assert outcome.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-7)
    found = objectives(problem, X, *turns.solution())
    assert outcome.certificate.primal == pytest.approx(found[0], rel=1e-10)
    assert outcome.certificate.dual == pytest.approx(found[1], rel=1e-10)
    assert found[1] <= found[0] * (1 + 1e-12)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_it_is_the_default_for_unscaled_columns_and_many_coupled_labels(C):
    X, Y = table(n=150, d=60, L=25)
    model = MultiLabelSVC(C=C, prior=priors.from_labels).fit(X, Y)
    assert model.duality_gap_ <= 1e-3


def test_a_start_from_the_solution_is_the_end():
    X, Y = table(d=6, L=5)
    problem = posed(X, Y, priors.from_labels(Y))
    method = NewtonInTurns(problem, np.zeros(Y.shape), tol=1e-9)
    run(method, Stopping(1e-9, 200))
    again = NewtonInTurns(problem, method.solution().alpha, tol=1e-6)
    assert again.epoch(Clock()).certificate.gap <= 1e-6
    far = NewtonInTurns(problem, problem.costs.boxes(), tol=1e-6)
    assert not far.Z.any() and far.state.omega.min() > again.state.omega.max()


def test_labels_take_turns_where_they_are_many_and_loosely_tied():
    X, Y = table(n=100, d=40, L=12)
    loose, tight = priors.from_labels(Y), 1e-4 * np.eye(12) + 1
    assert in_turns(posed(X, Y, loose)) and few_features(posed(X, Y, loose))
    assert not in_turns(posed(X, Y, tight)) and not few_features(posed(X, Y, tight))
    assert not in_turns(posed(X, Y, np.diag(np.arange(1.0, 13.0))))
    assert not in_turns(posed(X[:, :20], Y, loose))  # 240 columns in all are joined
    assert not in_turns(posed(X, Y, loose, C=1e13))
    assert not in_turns(posed(X, Y, loose), entries=1000)


def test_where_rounding_may_stop_the_turns_an_interior_point_method_goes_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 100)) + 1
    Y = (X @ rng.normal(size=(100, 10)) > 0).astype(int)
    R = 0.7 + 0.3 * np.eye(10)
    costs = hamming_costs(np.where(Y, 1, -1).astype(np.int8), np.full((2, 10), 1e7), np.ones((300, 1)))
    turns = NewtonInTurns(LinearM3L(Rows.of(X), costs, R), np.zeros(Y.shape), tol=1e-3)
    alone = run(turns, Stopping(1e-3, 500))
    assert alone.converged or alone.cure == "scale the features"
    assert MultiLabelSVC(C=1e7, prior=R).fit(X, Y).duality_gap_ <= 1e-3


def test_a_round_ends_with_the_time():
    X, Y = table(d=6, L=5)
    method = NewtonInTurns(posed(X, Y, priors.from_labels(Y)), np.zeros(Y.shape), tol=1e-3)
    method.epoch(Clock(0.0))
    assert method.Z[0].any() and not method.Z[1:].any()
    certificate = method.certify()
    assert certificate.dual <= certificate.primal
