"""Newton steps in one call: those of the method in NumPy, its optimum, and when they are taken."""

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin import MultiClassSVC
from maxmargin.core.loop import Stopping, run
from maxmargin.structured import small_loops as loops
from maxmargin.structured.multiclass_problem import Setup
from maxmargin.structured.newton import ProximalNewton, SmallNewton, is_small, newton
from tests.structured.test_newton import LOSSES, data, problem_of


@pytest.mark.nojit
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("c", [2, 3, 5])
def test_steps_are_those_of_the_method_in_numpy(loss, c):
    X, y, costs, Delta = data(30, 4, c)
    problem = problem_of(X, y, costs, Delta, loss, bias=0.7)
    small, other = (kind(problem, Setup(1e-9, None)) for kind in (SmallNewton, ProximalNewton))
    for _ in range(3):  # until a mass that rounding makes decides between two pieces of F
        small._step()
        other._step()
        np.testing.assert_allclose(small.small.W.T, other.state.W, atol=1e-12)
        np.testing.assert_allclose(small.small.image.T, other.state.image, atol=1e-11)
        np.testing.assert_allclose(small.small.points.blocks, other.state.blocks, atol=1e-12)
        assert small.small.numbers[loops.GAP] == pytest.approx(other.state.gap, rel=1e-10)
        assert small.small.numbers[loops.TAU] == other.tau
        assert (small.bounds.primal, small.bounds.dual) == pytest.approx(
            (other.bounds.primal, other.bounds.dual)
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("c", [2, 3, 5])
@pytest.mark.parametrize("form", ["dense", "csr", "float32"])
def test_both_reach_the_same_optimum(loss, c, form):
    X, y, costs, Delta = data(60, 4, c)
    rows = {"dense": X, "csr": sp.csr_array(X), "float32": X.astype(np.float32)}[form]
    problem = problem_of(rows, y, costs, Delta, loss)
    found = []
    for kind in (SmallNewton, ProximalNewton):
        solver = kind(problem, Setup(1e-9, None))
        outcome = run(solver, Stopping(1e-9, 400))
        assert outcome.converged
        found.append((outcome.certificate.primal, solver.solution().weights))
    assert found[0][0] == pytest.approx(found[1][0], rel=2e-9)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-3)


def test_looking_changes_nothing_and_an_answer_stays_as_it_is():
    solver = SmallNewton(problem_of(*data(30, 4, 3), LOSSES[0]), Setup(1e-9, None))
    solver._step()
    answer = solver.solution()
    before = [part.copy() for part in (answer.weights, answer.blocks)]
    assert solver.certify() == solver.certify()
    for _ in range(5):
        solver._step()
    np.testing.assert_array_equal(answer.weights, before[0])
    np.testing.assert_array_equal(answer.blocks, before[1])


def test_columns_that_rounding_makes_dependent_get_a_ridge():
    X, y, _, _ = data(60, 2, 3)
    X = 1e9 * np.column_stack([X, X, X + 1e-9])
    model = MultiClassSVC(solver="newton").fit(X, y)
    assert model.duality_gap_ <= model.tol
    assert np.isfinite(model.coef_).all()


def test_it_is_for_small_tables():
    for n, d, c, small in ((100, 4, 3, True), (100, 60, 3, False), (3000, 4, 3, False), (2000, 30, 2, False)):
        X, y, costs, Delta = data(n, d, c)
        problem = problem_of(X, y, costs, Delta, LOSSES[0])
        assert is_small(problem) == small
        assert type(newton(problem, Setup(1e-3, None))) is (SmallNewton if small else ProximalNewton)
