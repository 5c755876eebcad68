"""The M3L problem: certificate, closed form, tied loss, against enumeration and a generic solver."""

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from maxmargin import priors
from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Stopping, run
from maxmargin.core.rows import Rows, without_zeros
from maxmargin.multilabel.estimator import KERNEL_ONLY, SOLVERS
from maxmargin.multilabel.problem import KernelM3L, LinearM3L, frequent_first, hinge_costs, tied_costs


def random_problem(seed, n=7, d=3, L=3, R="dense", bias=1.0, missing=True):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, d)
    Y = np.where(rng.rand(n, L) < 0.5, 1, -1).astype(np.int8)
    if missing:
        Y[0, 0] = 0
    costs = hinge_costs(Y, rng.rand(2, L) + 0.2, rng.rand(n, 1) + 0.1, rng.rand(2, L) + 0.3)
    P = rng.randn({"dense": L, "low": 1}.get(R, L), L)
    prior = None if R == "none" else P.T @ P + (0.3 * np.eye(L) if R == "dense" else 0)
    return LinearM3L(Rows.of(X), costs, prior, bias), rng


@given(st.integers(0, 10**6), st.sampled_from(["none", "dense", "low"]), st.sampled_from([0.0, 1.0, 2.5]))
def test_gap_is_the_sum_of_its_shares(seed, R, bias):
    problem, rng = random_problem(seed, R=R, bias=bias)
    n, L = problem.shape
    alpha = rng.rand(n, L) * problem.costs.boxes()
    Z, certificate = problem.evaluate(alpha)
    sums = problem.measure(alpha, Z, None, np.empty((n, L), np.bool_), 1)
    assert certificate.primal - certificate.dual == pytest.approx(sums.gap.sum(), abs=1e-9)
    assert certificate.primal >= certificate.dual - 1e-12


@given(st.integers(0, 10**6), st.sampled_from(["none", "dense", "low"]))
def test_a_bias_of_its_own_keeps_weak_duality(seed, R):
    problem, rng = random_problem(seed, R=R, bias=1.7)
    n, L = problem.shape
    alpha = rng.rand(n, L) * problem.costs.boxes()
    u = rng.randn(L)
    Z, certificate = problem.evaluate(alpha, u)
    lag = u - 1.7 * (problem.costs.signs * alpha).sum(0)
    sums = problem.measure(alpha, Z, None, np.empty((n, L), np.bool_), 1)
    lag_share = 0.5 * lag @ problem.couple(lag)
    assert certificate.primal - certificate.dual == pytest.approx(sums.gap.sum() + lag_share, abs=1e-9)


def test_gradient_of_the_dual_by_differences():
    problem, rng = random_problem(3)
    n, L = problem.shape
    alpha = rng.rand(n, L) * problem.costs.boxes()
    Z, base = problem.evaluate(alpha)
    F = problem.rows.matrix @ Z[:-1] + problem.bias * Z[-1]
    g = problem.costs.margins() - problem.costs.signs * F
    for i, l in product(range(n), range(L)):
        if problem.costs.signs[i, l]:
            shifted = alpha.copy()
            shifted[i, l] += 1e-6
            assert (problem.evaluate(shifted)[1].dual - base.dual) / 1e-6 == pytest.approx(g[i, l], abs=1e-4)


def generic_optimum(problem):
    """Minimise the primal over W with Z = W P, by CVXPY."""
    X = np.asarray(problem.rows.matrix)
    Xb = np.column_stack([X, np.full(len(X), problem.bias)])
    L = problem.shape[1]
    P = priors.factor(np.eye(L) if problem.R is None else problem.R)
    W = cp.Variable((Xb.shape[1], len(P)))
    slack = cp.pos(problem.costs.margins() - cp.multiply(problem.costs.signs, Xb @ W @ P))
    objective = 0.5 * cp.sum_squares(W) + cp.sum(cp.multiply(problem.costs.boxes(), slack))
    model = cp.Problem(cp.Minimize(objective))
    model.solve(solver=cp.CLARABEL)
    return model.value + problem.costs.constant


@pytest.mark.parametrize("R", ["none", "dense", "low"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_reaches_the_optimum_of_a_generic_one(solver, R, bias):
    problem, _ = random_problem(11, R=R, bias=bias)
    posed = with_linear_kernel(problem) if solver in KERNEL_ONLY else problem
    expected = generic_optimum(problem)
    options = {"tol": 1e-10, "rng": np.random.RandomState(0), "n_threads": 1}
    method = SOLVERS[solver].build(posed, np.zeros(problem.shape), **options)
    outcome = run(method, Stopping(1e-10, 20000))
    assert outcome.converged
    assert outcome.certificate.primal == pytest.approx(expected, rel=1e-6)
    check_kkt(problem, method.solution().alpha)


def with_linear_kernel(problem):
    """The same problem on the matrix of inner products."""
    X = problem.rows.matrix
    K = KernelMatrix(Kernel.of(X, "linear", offset=problem.bias**2), X)
    return KernelM3L(K, problem.costs, problem.R)


@pytest.mark.parametrize("R", ["none", "dense", "low"])
def test_a_linear_kernel_poses_the_linear_problem(R):
    problem, rng = random_problem(4, R=R, bias=1.3)
    posed = with_linear_kernel(problem)
    alpha = rng.rand(*problem.shape) * problem.costs.boxes()
    B = posed.coefficients(alpha)
    certificate = posed.certificate(B, posed.scores(B))
    expected = problem.evaluate(alpha)[1]
    assert certificate.primal == pytest.approx(expected.primal, rel=1e-12)
    assert certificate.dual == pytest.approx(expected.dual, rel=1e-12)
    np.testing.assert_allclose(posed.training_scores(alpha), problem.training_scores(alpha), atol=1e-12)
    assert posed.closed_form_scale() == pytest.approx(problem.closed_form_scale(), rel=1e-12)
    assert posed.coupled == problem.coupled


def check_kkt(problem, alpha, slack=1e-5):
    Z, _ = problem.evaluate(alpha)
    F = problem.rows.matrix @ Z[:-1] + problem.bias * Z[-1]
    g = problem.costs.margins() - problem.costs.signs * F
    boxes = problem.costs.boxes()
    inside = (alpha > 1e-7) & (alpha < boxes - 1e-7)
    assert np.all(alpha >= 0) and np.all(alpha <= boxes + 1e-15)
    assert np.all(np.abs(g[inside]) < slack)
    assert np.all(g[(alpha <= 1e-7) & (boxes > 0)] < slack)
    assert np.all(g[(alpha >= boxes - 1e-7) & (boxes > 0)] > -slack)


@pytest.mark.parametrize("R", ["none", "dense"])
def test_small_boxes_have_a_closed_form(R):
    problem, _ = random_problem(5, R=R)
    scale = problem.closed_form_scale()
    costs = problem.costs
    for factor, optimal in ((0.99, True), (1.05, False)):
        upper = costs.upper * scale * factor
        shrunk = LinearM3L(
            problem.rows, hinge_costs(costs.signs, upper, costs.weight, costs.margin), problem.R, 1.0
        )
        _, certificate = shrunk.evaluate(shrunk.costs.boxes())
        assert (certificate.gap < 1e-12) is optimal


def test_tied_loss_is_the_printed_one():
    rng = np.random.RandomState(0)
    L = 3
    R = priors.shrink(priors.normalise(np.full((L, L), 0.2) + np.eye(L)), 0.2)
    Y = np.where(rng.rand(5, L) < 0.5, 1, -1).astype(np.int8)
    costs = tied_costs(Y, np.full((2, L), 2.0), np.ones((5, 1)), R)
    # With weights zero the loss is C/2 max over y of y_i'R(y_i - y), summed over samples.
    worst = sum(
        max(y_i @ R @ (y_i - np.array(y)) for y in product((-1, 1), repeat=L)) for y_i in Y.astype(float)
    )
    problem = LinearM3L(Rows.of(rng.randn(5, 2)), costs, R, 1.0)
    assert problem.evaluate(np.zeros((5, L)))[1].primal == pytest.approx(worst)


def test_tied_loss_refuses_a_prior_that_rewards_errors():
    Y = np.array([[1, 1, -1], [-1, 1, 1]], np.int8)
    R = np.full((3, 3), 0.9) + 0.1 * np.eye(3)
    with pytest.raises(ValueError, match=r"loss='tied' with this prior rewards"):
        tied_costs(Y, np.ones((2, 3)), np.ones((2, 1)), R)
    Y[0, 0] = 0
    with pytest.raises(ValueError, match="unknown"):
        tied_costs(Y, np.ones((2, 3)), np.ones((2, 1)), np.eye(3))


def test_rows_are_views():
    X = np.random.RandomState(0).randn(5, 4)
    dense = Rows.of(X)
    assert np.shares_memory(dense.data, X) and not dense.data.flags.writeable
    for index in (np.int32, np.int64):
        S = sp.csr_array(X)
        S.indices, S.indptr = S.indices.astype(index), S.indptr.astype(index)
        sparse = Rows.of(S)
        assert np.shares_memory(sparse.data, S.data)
        # Long indices of few columns are narrowed, so that loops are compiled for one width.
        assert np.shares_memory(sparse.indices, S.indices) == (index == np.int32)
        np.testing.assert_allclose(sparse.squared_norms(), (X**2).sum(1))
    np.testing.assert_allclose(dense.squared_norms(), (X**2).sum(1))
    doubled = sp.csr_array((np.ones(4), np.array([1, 1, 0, 0]), np.array([0, 2, 4])), shape=(2, 3))
    np.testing.assert_allclose(Rows.of(doubled).squared_norms(), [4, 4])


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
def test_norms_do_not_depend_on_the_pieces(monkeypatch, piece):
    monkeypatch.setattr("maxmargin.core.rows.CHUNK", piece)
    rng = np.random.RandomState(0)
    X = rng.randn(12, 6) * (rng.rand(12, 6) < 0.4)
    X[[0, 5, 11]] = 0
    for rows in (X, X[:0], np.zeros((3, 6))):
        np.testing.assert_allclose(Rows.of(sp.csr_array(rows)).squared_norms(), (rows**2).sum(1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_dense_matrix_of_zeros_is_worked_on_by_its_nonzeros(dtype):
    """One nonzero in ten and fewer: CSR of the same values; more, or CSR already: the matrix itself."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(600, 20)) * (rng.random((600, 20)) < 0.05)).astype(dtype)
    taken = without_zeros(X)
    assert sp.issparse(taken) and taken.dtype == dtype and taken.nnz == np.count_nonzero(X)
    np.testing.assert_array_equal(taken.toarray(), X)
    assert without_zeros(taken) is taken
    fuller = np.where(rng.random(X.shape) < 0.3, 1.0, X)
    assert without_zeros(fuller) is fuller


def test_empty_columns_of_a_narrow_table_are_left_out():
    """Newton's method, which may have to help, takes them for features."""
    rng = np.random.default_rng(0)
    X = np.zeros((40, 30))
    X[:, [3, 20, 7]] = rng.normal(size=(40, 3))
    rows, columns = frequent_first(Rows.of(without_zeros(X)))
    assert rows.shape == (40, 3) and columns is not None
    np.testing.assert_array_equal(rows.matrix.toarray(), X[:, columns])
    full = Rows.of(sp.csr_array(X[:, [3, 20, 7, 8]]))
    kept, columns = frequent_first(full)
    assert kept is full and columns is None


@pytest.mark.parametrize("n", [40, 2**16 + 1], ids=["counts of 16 bits", "of more"])
def test_frequent_columns_come_first(n):
    """Columns of equal frequency keep their order."""
    rng = np.random.default_rng(1)
    d = 5000
    X = sp.random_array((n, d), density=10 / d, format="csr", rng=rng)
    columns = np.repeat([17, 4000, 4], [n, 30, 30])
    X = sp.csr_array(X + sp.coo_array((np.ones(n + 60), (np.r_[:n, :30, :30], columns)), X.shape))
    rows, kept = frequent_first(Rows.of(X))
    counts = np.bincount(X.indices, minlength=d)
    assert kept is not None
    assert kept.tolist() == sorted(np.flatnonzero(counts).tolist(), key=lambda c: (-counts[c], c))
    np.testing.assert_array_equal(kept[rows.indices], X.indices)
