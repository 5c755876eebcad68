"""Small multi-class problems: interior points on all blocks."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

from maxmargin import MultiClassSVC
from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.kernel_interior import InteriorBlocks, without_tiny_masses
from maxmargin.structured.multiclass_problem import KernelMultiClass, Labels, Setup
from maxmargin.structured.working_sets import WorkingSets
from tests.structured.test_newton import LOSSES, data, objectives, problem_of


def kernel_problem(X, y, costs, Delta, loss=LOSSES[0], dtype=np.float64, kernel="rbf", **options):
    K = KernelMatrix(Kernel.of(X, kernel, offset=1.0, **options), X, 100, dtype)
    return KernelMultiClass(K, Labels(y, costs, Delta, loss))


def kernel_objectives(problem, B, blocks):
    """P of coefficients and D of blocks, by a factor of the kernel matrix as rows of features."""
    values, vectors = np.linalg.eigh(problem.products(np.arange(problem.n)))
    F = vectors * np.sqrt(np.maximum(values, 0.0))
    rest = problem.y, problem.costs, problem.labels.Delta, problem.labels.loss
    return objectives(F, *rest, (F.T @ B).T, blocks)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("c", [2, 4])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e6])
def test_kernels_are_solved_whatever_the_size_of_C(loss, c, C):
    """Some samples cost nothing, and one is there twice, in two classes."""
    X, y, costs, Delta = data(60, 2, c)
    X[1] = X[0]
    problem = kernel_problem(X, y, C * costs, Delta, loss)
    solver = InteriorBlocks(problem, Setup(1e-5, None))
    outcome = run(solver, Stopping(1e-5, 200))
    assert outcome.converged
    primal, dual = kernel_objectives(problem, *solver.solution())
    assert outcome.certificate.primal == pytest.approx(primal, rel=1e-6)
    assert outcome.certificate.dual == pytest.approx(dual, rel=1e-6)
    if C <= 1.0:
        sets = run(WorkingSets(problem, Setup(1e-5, np.random.RandomState(0))), Stopping(1e-5, 1000))
        assert outcome.certificate.primal == pytest.approx(sets.certificate.primal, rel=2e-5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", ["dense", "csr", "float32"])
def test_wide_rows_have_the_optimum_of_block_steps(loss, form):
    X, y, costs, Delta = data(40, 3, 4)
    X = np.hstack([X / 100, np.random.default_rng(1).normal(size=(40, 60))])
    rows = {"dense": X, "csr": sp.csr_array(X), "float32": X.astype(np.float32)}[form]
    problem = problem_of(rows, y, costs, Delta, loss)
    solver = InteriorBlocks(problem, Setup(1e-6, None))
    outcome = run(solver, Stopping(1e-6, 200))
    sweeps = run(ExactBlocks(problem, Setup(1e-6, np.random.RandomState(0))), Stopping(1e-6, 20000))
    assert outcome.converged and sweeps.converged
    assert outcome.certificate.primal == pytest.approx(sweeps.certificate.primal, rel=2e-6)
    dense = np.asarray(rows.toarray() if form == "csr" else rows, np.float64)
    W, blocks = solver.solution()
    found = objectives(np.hstack([dense, np.ones((40, 1))]), y, costs, Delta, loss, W.T, blocks)
    np.testing.assert_allclose(found, [outcome.certificate.primal, outcome.certificate.dual], rtol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_models_hold_the_samples_that_matter(loss):
    """Masses that an interior point has everywhere are left out: as many remain as block steps leave."""
    X, y = load_iris(return_X_y=True)
    counts = []
    for solver in ("auto", "exact"):
        model = MultiClassSVC(kernel="rbf", loss=loss, solver=solver).fit(X, y)
        assert model.duality_gap_ <= 1e-3
        counts.append(len(model.support_))
    assert counts[0] <= 1.2 * counts[1]


def test_blocks_without_tiny_masses_are_feasible():
    blocks = np.array([[0.9, 1e-5, 0.1 - 1e-5], [1e-6, 1.0 - 2e-6, 1e-6]])
    expected = [[0.9, 0.0, 0.1], [0.0, 1.0, 0.0]]
    for loss in (0, 1):
        found = without_tiny_masses(blocks, np.array([0, 1]), loss, 1e-4)
        np.testing.assert_allclose(found, expected, atol=2e-5)
        np.testing.assert_array_equal(found.sum(axis=1), 1.0)
        np.testing.assert_array_equal(found[:, [1, 0]].diagonal(), 0.0)


def test_a_solution_is_where_the_next_fit_begins():
    X, y = load_iris(return_X_y=True)
    model = MultiClassSVC(kernel="rbf", warm_start=True).fit(X, y)
    first, dual = model.n_iter_, model.dual_objective_
    model.fit(X, y)
    assert model.n_iter_ == 1 < first
    assert model.dual_objective_ == pytest.approx(dual)
    model.set_params(C=1.1).fit(X, y)
    assert model.duality_gap_ <= 1e-3


def test_certificates_do_not_change_interior_points():
    solver = InteriorBlocks(kernel_problem(*data(40, 2, 3)), Setup(1e-9, None))
    solver.epoch(Clock())
    answer = solver.solution()
    before = [part.copy() for part in answer]
    assert solver.certify() == solver.certify()
    for _ in range(4):
        solver.epoch(Clock())
    np.testing.assert_array_equal(answer.coefficients, before[0])
    np.testing.assert_array_equal(answer.blocks, before[1])


def test_rounding_ends_the_steps_with_a_reason():
    problem = kernel_problem(*data(40, 2, 3))
    outcome = run(InteriorBlocks(problem, Setup(1e-18, None)), Stopping(0.0, 1000))
    assert outcome.reason in ("stuck", "converged") and outcome.certificate.gap <= 1e-10
    assert outcome.n_iter < 200
