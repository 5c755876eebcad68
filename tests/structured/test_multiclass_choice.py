"""How `MultiClassSVC` chooses a solver: every row, the borders between them, block steps and what follows."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

from maxmargin import MultiClassSVC
from maxmargin.core.loop import Stopping, Switch, run
from maxmargin.edge.estimator import automatic, first_that_holds
from maxmargin.structured.exact import ExactBlocks, FullEpochs, LossesOfMultiples
from maxmargin.structured.multiclass_choice import ROWS, block_steps, few_samples
from maxmargin.structured.multiclass_problem import Setup
from tests.structured.test_newton import LOSSES, ROUNDING, data, objectives, problem_of
from tests.structured.test_small import kernel_problem

RNG = np.random.default_rng(0)


def setup(tol=1e-3):
    return Setup(tol, np.random.RandomState(0))


def table(n, d, c, size=1.0):
    """Rows of normal features, and classes that depend on some of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.argmax(X[:, :c] + rng.normal(size=(n, c)), axis=1)
    return X * size, y


def scaled(n, d, c):
    """Features of many scales."""
    X, y = table(n, d, c)
    return X * 10.0 ** np.random.default_rng(1).uniform(-1, 3, d), y


def text(n, d, c):
    rng = np.random.default_rng(0)
    return sp.random_array((n, d), density=0.02, format="csr", rng=rng), np.arange(n) % c


# Data that lands in each row, and what runs: a solver that stalls is followed by another.
LANDS = {
    0: [(table(60, 70, 6), {}, "interior"), (load_iris(return_X_y=True), {"kernel": "rbf"}, "interior")],
    1: [(load_iris(return_X_y=True), {}, "newton")],
    2: [(table(2000, 10, 4, 100.0), {}, "newton")],
    3: [(table(400, 80, 8, 0.1), {}, "exact"), (scaled(300, 80, 8), {}, "exact, then newton")],
    4: [(table(1000, 620, 5, 0.01), {}, "exact")],
    5: [(text(900, 1000, 3), {}, "exact")],
    6: [(table(310, 3, 3), {"kernel": "rbf"}, "working-sets")],
}


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_every_row_has_data_that_lands_in_it(number, monkeypatch):
    """The row is the first that holds, and the fitted model names the solver that ran."""
    row, taken = ROWS[number], []

    def spied(rows, problem):
        taken.append(first_that_holds(rows, problem))
        return taken[-1]

    monkeypatch.setattr("maxmargin.edge.estimator.first_that_holds", spied)
    for (X, y), options, ran in LANDS[number]:
        model = MultiClassSVC(random_state=0, **options).fit(X, y)
        assert taken.pop() is row
        assert model.solver_ == ran and ran.split(", then ")[0] == row.name
        assert model.duality_gap_ <= 1e-3
        assert [record["solver"] for record in model.history_][-1] == ran.split(", then ")[-1]


def test_a_row_names_its_reason_and_its_measurement(pytestconfig):
    for row in ROWS:
        assert row.because.endswith(".")
        assert row.measured == "not measured" or (pytestconfig.rootpath / row.measured).exists()


def test_the_borders_between_the_rows():
    def rows(n, d, c, size=1.0):
        X = RNG.normal(size=(n, d)) * size
        return ROWS.index(first_that_holds(ROWS, problem_of(X, np.arange(n) % c, np.ones(n), 1 - np.eye(c))))

    def kernel(n, c, **options):
        problem = kernel_problem(
            RNG.normal(size=(n, 3)), np.arange(n) % c, np.ones(n), 1 - np.eye(c), **options
        )
        return ROWS.index(first_that_holds(ROWS, problem))

    assert rows(40, 100, 3) == rows(60, 70, 6) == rows(20, 30, 2) == rows(50, 59, 10, 10.0) == 0
    assert rows(150, 4, 3) == rows(846, 18, 4) == rows(1000, 4, 4) == 1
    assert rows(569, 30, 2, 100.0) == 1 and rows(2000, 4, 4, 100.0) == rows(600, 59, 10, 100.0) == 2
    assert rows(400, 59, 10) == rows(2000, 40, 10) == rows(2000, 4, 4) == rows(200, 60, 10, 10.0) == 3
    assert rows(1000, 800, 4) == 4 and rows(1000, 2001, 3) == rows(1000, 1000, 3) == 5
    assert kernel(300, 4) == kernel(100, 20) == kernel(100, 3, dtype=np.float32) == 0
    assert kernel(301, 4) == kernel(300, 20) == 6
    assert kernel(100, 3, kernel="poly", coef0=1.0) == 0
    assert kernel(100, 3, kernel="sigmoid", coef0=-1.0) == 6, "it is not positive semi-definite"


def test_interior_points_need_costs_and_classes_to_choose_from():
    X, y, costs, Delta = data(30, 2, 3)
    assert not few_samples(kernel_problem(X, y, 0 * costs, Delta))
    assert not few_samples(kernel_problem(X, 0 * y, costs, np.zeros((1, 1))))
    assert not few_samples(problem_of(np.hstack([X] * 20), y, 0 * costs, Delta))


@pytest.mark.parametrize("loss", LOSSES)
def test_newton_steps_take_over_where_block_steps_stall(loss):
    """Features of many scales and more weights than a matrix may have from the start."""
    X, y = scaled(300, 80, 8)
    problem = problem_of(X, y, np.ones(300), 1 - np.eye(8), loss)
    sweeps = run(ExactBlocks(problem, setup()), Stopping(1e-3, 400))
    both = automatic(ROWS)(problem, setup())
    outcome = run(both, Stopping(1e-3, 400))
    assert not sweeps.converged and outcome.converged
    assert isinstance(both, Switch) and outcome.solver == "exact, then newton"
    Xb = np.hstack([X, np.ones((300, 1))])
    solution = both.solution()
    primal, dual = objectives(Xb, y, np.ones(300), 1 - np.eye(8), loss, solution.weights.T, solution.blocks)
    assert outcome.certificate.primal == pytest.approx(primal, rel=1e-9)
    assert outcome.certificate.dual == pytest.approx(dual, rel=1e-9)


def test_block_steps_that_converge_are_left_alone():
    X, y = table(300, 80, 8, 0.1)
    problem = problem_of(X, y, np.ones(300), 1 - np.eye(8))
    outcome = run(automatic(ROWS)(problem, setup()), Stopping(1e-3, 400))
    alone = run(ExactBlocks(problem, setup()), Stopping(1e-3, 400))
    assert outcome.converged and outcome.solver == "exact"
    assert max(outcome.certificate.dual, alone.certificate.dual) <= outcome.certificate.primal * (1 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_best_multiple_of_weights_is_that_of_a_grid(loss):
    X, y, costs, Delta = data(60, 3, 4, seed=3)
    W = np.random.default_rng(0).normal(size=(4, 4)) / 10
    W[np.arange(3), np.arange(3)] += 1.0
    Xb = np.hstack([X, np.ones((60, 1))])
    y = (Xb @ W).argmax(axis=1)
    W /= 1e3
    s, primal = LossesOfMultiples(problem_of(X, y, costs, Delta, loss), W).best()
    blocks = np.eye(4)[y]
    grid = np.geomspace(1, 1e4, 2000)
    values = [objectives(Xb, y, costs, Delta, loss, t * W.T, blocks)[0] for t in (s, *grid)]
    assert values[0] == pytest.approx(primal, rel=1e-12) and s > 1
    assert min(values[1:]) * (1 - 1e-4) <= primal <= min(values[1:]) * (1 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_classes_that_can_be_separated_are_certified_at_a_multiple_of_the_weights(loss):
    """Pixels from 0 to 255 and a large C: P(W) is far above the optimum long after D has settled."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 5
    X = np.round(np.clip(rng.normal(size=(5, 100))[y] * 60 + rng.normal(size=(150, 100)) * 60 + 128, 0, 255))
    costs, Delta = np.full(150, 1e3), 1 - np.eye(5)
    problem = problem_of(X, y, costs, Delta, loss)
    solver = FullEpochs(problem, setup(1e-2))
    outcome = run(solver, Stopping(1e-2, 200))
    assert outcome.converged
    assert solver.blocks.current()[0].gap > 0.9
    W, blocks = solver.solution()
    Xb = np.hstack([X, np.ones((150, 1))])
    found = objectives(Xb, y, costs, Delta, loss, W.T, blocks)
    # Margins are kept by a hair and blocks are vertices but for one: C times the rounding of 101 products.
    rounding = np.finfo(float).eps * float(costs @ (np.abs(Xb) @ np.abs(W)).max(axis=1))
    assert rounding <= 1e-4 * found[0]
    assert outcome.certificate.primal == pytest.approx(found[0], rel=ROUNDING, abs=rounding)
    assert outcome.certificate.dual == pytest.approx(found[1], rel=ROUNDING, abs=rounding)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("build", [FullEpochs, partial(block_steps, (20, 0.25))])
def test_wide_rows_of_any_size_are_certified_as_soon_as_the_dual_rests(loss, build):
    """More features than samples: every margin can be kept, and P(W) is far from the optimum at first."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 300)) * 1e3, np.arange(40) % 3
    costs, Delta = np.ones(40), 1 - np.eye(3)
    solver = build(problem_of(X, y, costs, Delta, loss), setup())
    outcome = run(solver, Stopping(1e-3, 100))
    assert outcome.converged
    W, blocks = solver.solution()
    found = objectives(np.hstack([X, np.ones((40, 1))]), y, costs, Delta, loss, W.T, blocks)
    assert outcome.certificate.primal == pytest.approx(found[0], rel=1e-6)
    assert outcome.certificate.dual == pytest.approx(found[1], rel=1e-9)
