"""The exact multi-class solver with a kernel: slow twins, the optimum at any C, precision, limits."""

import numpy as np
import pytest
from scipy.optimize import minimize

from maxmargin import MultiClassSVC
from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_kernel_loops as loops
from maxmargin.structured.kernel_interior import solve_blocks
from maxmargin.structured.multiclass_problem import KernelMultiClass, Labels, Setup
from maxmargin.structured.working_sets import SetRule, WorkingSets, without_tiny_masses
from tests.naive import multiclass as naive

LOSSES = ["crammer_singer", "weston_watkins"]


def overlapping(n=80, d=3, c=3, seed=0, distance=0.7):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    return rng.normal(size=(n, d)) + distance * y[:, None], y


def problem_of(X, y, C=1.0, loss="crammer_singer", *, dtype=np.float64, cache_size=10.0, kernel="rbf"):
    K = KernelMatrix(Kernel.of(X, kernel, offset=1.0), X, cache_size, dtype)
    c = y.max() + 1
    costs = C * (1 + 0.1 * np.cos(np.arange(len(y))))
    return KernelMultiClass(K, Labels(y, costs, 1.0 - np.eye(c), loss))


def solver_of(problem, tol=1e-6, seed=0, **rule):
    return WorkingSets(problem, Setup(tol, np.random.RandomState(seed)), rule=SetRule(**rule))


def linear_data():
    """Rows whose linear kernel is that of the naive twin."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(14, 3)), np.arange(14) % 4
    Delta = rng.uniform(0.5, 2.0, (4, 4))
    np.fill_diagonal(Delta, 0)
    return X, y, rng.uniform(0.2, 1.5, 14), Delta


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_settling_follows_the_naive_twin(dtype):
    X, y, costs, Delta = linear_data()
    problem = KernelMultiClass(KernelMatrix(Kernel.of(X, "linear"), X), Labels(y, costs, Delta))
    alpha, expected = naive.start(y, 4), naive.start(y, 4)
    orders = np.array([np.random.default_rng(k).permutation(14) for k in range(2)])
    scores = np.zeros((4, 14), dtype)
    arrays = problem.arrays_with(Delta, np.dtype(dtype), problem.arrays.lanes, 0.0)
    plan = loops.Plan(passes=3, share=0.0, shrinking=False, small=0.0, again=False)
    blocks = alpha.astype(dtype)
    moved = loops.solve_set(readonly((X @ X.T).astype(dtype)), arrays, plan, readonly(orders), scores, blocks)
    for k in range(3):
        naive.sweep("exact", orders[k % 2], X, y, costs, Delta, expected)
    rounding = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(blocks, expected, atol=rounding)
    B = costs[:, None] * (naive.start(y, 4) - expected)
    np.testing.assert_allclose(scores.T, X @ X.T @ B, atol=10 * rounding)
    assert 14 < moved <= 42


@pytest.mark.nojit
@pytest.mark.parametrize("loss", LOSSES)
def test_measured_gaps_are_those_of_the_naive_twin(loss):
    X, y, costs, Delta = linear_data()
    problem = KernelMultiClass(KernelMatrix(Kernel.of(X, "linear"), X), Labels(y, costs, Delta, loss))
    alpha = np.random.default_rng(2).dirichlet(np.ones(4), 14)
    B = costs[:, None] * (naive.start(y, 4) - alpha)
    gaps = np.empty(14)
    losses, squared = loops.measure(problem.arrays, X @ X.T @ B, alpha, gaps)
    P, D, expected = naive.objectives(X, y, costs, Delta, alpha, loss)
    assert 0.5 * squared + losses == pytest.approx(P, rel=1e-12)
    np.testing.assert_allclose(gaps, expected, atol=1e-12)
    assert gaps.sum() == pytest.approx(P - D, rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_any_cost_reaches_the_optimum(C, loss):
    X, y = overlapping(n=150)
    outcome = run(solver_of(problem_of(X, y, C, loss), tol=1e-6), Stopping(1e-6, 1000))
    assert outcome.converged
    # Another set of steps, order and precision of the inner problems ends at the same value.
    other = run(
        solver_of(problem_of(X, y, C, loss), tol=1e-8, seed=5, relaxation=1.0, all_at_once=0, size=100),
        Stopping(1e-8, 1000),
    )
    assert other.converged
    assert outcome.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-6)
    for record in outcome.history:
        assert record["dual"] <= other.certificate.primal * (1 + 1e-9)
        assert record["primal"] >= other.certificate.dual * (1 - 1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cache_size", [10.0, 0.05])
def test_scores_stay_those_of_the_blocks_and_the_dual_rises(loss, cache_size):
    X, y = overlapping(n=200)
    problem = problem_of(X, y, 10.0, loss, cache_size=cache_size)
    assert problem.K.fits == (cache_size == 10.0)
    solver = solver_of(problem, all_at_once=0, size=64, passes=3)
    last = 0.0
    for _ in range(6):
        solver.epoch(Clock())
        B = problem.coefficients(solver.alpha)
        np.testing.assert_allclose(solver.scores, problem.K.times(B), atol=1e-9)
        assert solver.certificate.dual >= last - 1e-9
        last = solver.certificate.dual
        here = problem.evaluate(solver.alpha).certificate
        assert solver.certificate.primal == pytest.approx(here.primal, rel=1e-9)
        assert solver.certificate.dual == pytest.approx(here.dual, rel=1e-9)
        assert solver.certify().primal <= here.primal


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sets_within_outer_sets_come_to_the_same_optimum(loss, kernel, dtype):
    X, y = overlapping(n=200)
    X = X @ X.T if kernel == "precomputed" else X
    best = run(solver_of(problem_of(X, y, 2.0, loss, kernel=kernel), 1e-8), Stopping(1e-8, 1000)).certificate
    # Room for 90 samples of 200: outer sets hold 80, their own sets 20.
    cache_size = 90**2 * np.dtype(dtype).itemsize / 2**20
    problem = problem_of(X, y, 2.0, loss, dtype=dtype, kernel=kernel, cache_size=cache_size)
    assert not problem.K.fits
    solver = solver_of(problem, 1e-4, all_at_once=0, size=20, outer=80)
    sizes = []
    solve_by_sets = solver._solve_by_sets

    def spied(chosen, clock):
        before = solver.certificate.dual
        solve_by_sets(chosen, clock)
        sizes.append(len(chosen))
        scores = problem.K.times(problem.coefficients(solver.alpha))
        np.testing.assert_allclose(solver.scores, scores, atol=1e-9 if dtype == np.float64 else 1e-3)
        assert solver.certificate.dual >= before - 1e-6

    solver._solve_by_sets = spied
    outcome = run(solver, Stopping(1e-4, 1000))
    assert outcome.converged and max(sizes) == 80 and solver.workspace.size == 80**2
    assert outcome.certificate.dual <= best.primal and outcome.certificate.primal >= best.dual
    assert outcome.certificate.primal == pytest.approx(best.primal, rel=1.1e-4)


def test_single_precision_is_left_when_it_is_not_enough():
    X, y = overlapping(n=120)
    problem = problem_of(X, y, 5.0, dtype=np.float32)
    solver = solver_of(problem, tol=1e-9)
    outcome = run(solver, Stopping(1e-9, 1000))
    assert outcome.converged and solver.dtype == np.float64
    assert outcome.certificate.gap <= 1e-9
    loose = solver_of(problem, tol=1e-3)
    assert run(loose, Stopping(1e-3, 1000)).converged and loose.dtype == np.float32


@pytest.mark.parametrize("loss", LOSSES)
def test_interior_points_against_a_generic_solver(loss):
    X, y = overlapping(n=9)
    problem = problem_of(X, y, 2.0, loss)
    K, costs = problem.K.whole, problem.costs
    ww = loss == "weston_watkins"
    start = naive.start(y, 3)
    H = (1.0 - np.eye(3))[y]
    found = solve_blocks(K, H.T, (costs[:, None] * start).T, costs, y if ww else None, 1e-9).T
    blocks = without_tiny_masses(found, y, problem.loss, 0.0)
    best = problem.evaluate(blocks).certificate
    assert best.gap < 1e-8
    wrong = np.arange(3) != y[:, None]

    def negative_dual(free):
        alpha = np.zeros((9, 3))
        alpha[wrong] = free
        alpha[~wrong] = 1 - alpha.sum(axis=1)
        B = costs[:, None] * (start - alpha)
        return 0.5 * np.vdot(B, K @ B) - (costs[:, None] * alpha * H).sum()

    sums = {"type": "ineq", "fun": lambda free: 1 - free.reshape(9, 2).sum(axis=1)}
    generic = minimize(
        negative_dual,
        np.full(18, 0.2),
        bounds=[(0, 1)] * 18,
        method="SLSQP",
        constraints=() if ww else (sums,),
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert best.dual == pytest.approx(-generic.fun, rel=1e-6)


@pytest.mark.parametrize("options", [{"sampling": "uniform"}, {"shrinking": False}])
def test_schedules_end_at_the_same_optimum(options):
    X, y = overlapping(n=150)
    problem = problem_of(X, y, 3.0)
    setup = Setup(1e-7, np.random.RandomState(3))
    other = WorkingSets(problem, setup, rule=SetRule(all_at_once=0, size=40), **options)
    outcome = run(other, Stopping(1e-7, 5000))
    assert outcome.converged
    best = run(solver_of(problem, 1e-9), Stopping(1e-9, 1000)).certificate
    assert outcome.certificate.primal == pytest.approx(best.primal, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_certificate_is_that_of_the_stored_model(dtype, n_classes, loss):
    """P of the scores that the stored model gives the training samples is the one reported."""
    X, y = overlapping(n=90, c=n_classes)
    X = (X * [1e3, 1.0, 1e-2]).astype(dtype)
    for C in (1.0, 1e3):
        model = MultiClassSVC(C=C, kernel="rbf", gamma=1e-3, loss=loss, random_state=0).fit(X, y)
        assert model.duality_gap_ <= 1e-3
        scores = model.decision_function(X)
        if n_classes == 2:
            scores = np.column_stack([-scores / 2, scores / 2])
        B = np.zeros((90, n_classes))
        if n_classes == 2:
            B[model.support_] = np.column_stack([-model.dual_coef_[0] / 2, model.dual_coef_[0] / 2])
        else:
            B[model.support_] = model.dual_coef_.T
        H = scores + (np.arange(n_classes) != y[:, None])
        H -= H[np.arange(90), y][:, None]
        losses = H.max(axis=1) if loss == "crammer_singer" else np.maximum(H, 0).sum(axis=1)
        primal = 0.5 * np.vdot(B, scores) + C * losses.sum()
        assert primal == pytest.approx(model.primal_objective_, rel=1e-9)
