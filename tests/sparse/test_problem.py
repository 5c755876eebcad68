"""Fixed bases: known answers, derivatives, certificates, agreement of all methods."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from maxmargin import SparseMultiClassSVC, priors
from maxmargin.core.kernels import Kernel
from maxmargin.sparse.greedy import ROWS, FixedBasis, GrowingBasis, InverseBlocks, Newton, Sweeps
from maxmargin.sparse.loss_loops import DiagonalCurvature, MultiLogit, SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import (
    BasisProblem,
    basis_product,
    candidate_pool,
    hessian,
    hessian_product,
    row_keys,
    solve_each,
)
from tests.naive import basis as naive

CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "fixtures" / "kat_sparse.json").read_text())["cases"]
}
# The squared Crammer-Singer loss is not differentiable; tests of its own are in test_largest_margin.py.
CASES.pop("cs2_Jall")
# Newton's method by one row alone, whatever the equation.
CHOLESKY, CG = [replace(ROWS[0], holds=lambda equation: True)], ROWS[-1:]
METHODS = {
    "cholesky": partial(Newton, rows=CHOLESKY),
    "cg": partial(Newton, rows=CG),
    "sweeps": Sweeps,
}


def build(case, dtype=np.float64, scale=1.0):
    """The problem of a known answer, in the library's scaling: objective / lambda."""
    X = np.array(case["X"], dtype=dtype)
    n, lam, P = len(X), case["lam"], None
    kernel = Kernel.of(X, "rbf", gamma=case["gamma"])
    if case["method"] == "smsvm":
        loss = SquaredMargins(np.array(case["y"]), np.full(n, scale / (2 * lam)), case["k"])
    elif case["method"] == "imvm":
        loss = MultiLogit(np.array(case["y"]), np.full(n, scale / lam), case["k"])
    elif case["method"] == "spsvm":
        loss = SquaredHinges(np.array(case["y_pm"])[:, None], np.full(n, scale / (2 * lam)))
    else:
        loss = SquaredHinges(np.array(case["Y"]), np.full(n, scale / lam))
        P = priors.factor(np.array(case["R"]))
    return BasisProblem(kernel, X, loss, P)


def grown(case, problem=None):
    """The basis of a known answer, with coefficients zero."""
    basis = GrowingBasis(build(case) if problem is None else problem)
    for j in case["J"]:
        basis.join(j, basis.problem.kernel_rows(np.array([j]))[0], np.zeros(basis.problem.rank))
    return basis


def place(basis, W):
    """Put the coefficients at W."""
    basis.here = basis.problem.at(W, basis_product(basis.Psi, W))
    return basis.here


def solve(basis, method, tol=1e-13, max_iter=3000):
    inner = METHODS[method](max_iter)
    return inner.optimise(basis, lambda: tol * basis.here.objective, lambda: False)


def certify(basis):
    return basis.problem.certificate(
        basis.problem.vectors(np.array(basis.indices)), basis.triangle, basis.here.W
    )


def coefficients(basis):
    return basis.coefficients(basis.here.W)


# Sweeps converge slowly at a small lambda; that case has a test of its own below.
SLOW_SWEEPS = ("smsvm_J4_smalllam", "sweeps")


@pytest.mark.parametrize(
    ("name", "method"), [pair for pair in product(CASES, METHODS) if pair != SLOW_SWEEPS]
)
def test_known_minima(name, method):
    case = CASES[name]
    basis = grown(case)
    assert solve(basis, method)
    certificate = certify(basis)
    assert certificate.primal * case["lam"] == pytest.approx(case["objective"], rel=1e-9)
    assert certificate.gap <= 1e-11
    # The coefficients of a whole kernel matrix are as ill-conditioned as it is.
    expected = np.array(case["coef"]).reshape(len(case["J"]), -1)
    np.testing.assert_allclose(coefficients(basis), expected, atol=2e-6 * np.abs(expected).max())
    if "scores" in case:
        np.testing.assert_allclose(basis.here.F, case["scores"], atol=1e-6)


def test_slow_sweeps_approach_the_same_minimum():
    case = CASES["smsvm_J4_smalllam"]
    basis = grown(case)
    solve(basis, "sweeps", max_iter=100)
    early = basis.here.objective
    solve(basis, "sweeps", max_iter=3100)
    certificate, minimum = certify(basis), case["objective"] / case["lam"]
    assert certificate.dual <= minimum <= certificate.primal <= early
    assert certificate.primal - minimum < 1e-3 * minimum


KNOWN_STEPS = {"sequential": "candidates_seq", "block": "candidates_block"}


@pytest.mark.parametrize(
    ("name", "selection"), [(n, s) for n, s in product(CASES, KNOWN_STEPS) if KNOWN_STEPS[s] in CASES[n]]
)
def test_known_candidates(name, selection):
    case = CASES[name]
    known = case[KNOWN_STEPS[selection]]
    basis = grown(case)
    assert solve(basis, "cholesky")
    scored = basis.problem.score(basis.here, np.array(known["j"]), selection)
    steps = np.array(known["step"] if "step" in known else known["step_beta"])
    np.testing.assert_allclose(basis.problem.scores(scored.steps), steps, atol=1e-6)
    np.testing.assert_allclose(scored.objectives * case["lam"], known["objective_after"], rtol=1e-7)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "full_model_lower_bound" in case])
def test_known_bounds_of_the_full_model(name):
    case = CASES[name]
    basis = grown(case)
    assert solve(basis, "cholesky")
    bound = basis.problem.full_model_bound(basis.here.loss) * case["lam"]
    assert bound == pytest.approx(case["full_model_lower_bound"], rel=1e-6)


@pytest.mark.parametrize("name", ["smsvm_Jall", "sm3l_Rpd_Jall"])
def test_bound_of_the_full_model_is_tight_for_the_full_basis(name):
    basis = grown(CASES[name])
    assert solve(basis, "cholesky")
    bound = basis.problem.full_model_bound(basis.here.loss)
    assert bound == pytest.approx(basis.here.objective, rel=1e-6)


def test_known_derivatives():
    case = CASES["smsvm_J3"]
    point, basis = case["at_point"], grown(case)
    L = basis.triangle
    here = place(basis, L.T @ np.array(point["coef"]))
    assert here.objective * case["lam"] == pytest.approx(point["objective"], rel=1e-9)
    np.testing.assert_allclose(L @ basis.gradient() * case["lam"], point["gradient"], rtol=1e-9)
    H = hessian(basis.Psi, here.loss.curvature, None, here.W.shape)
    big = np.kron(np.eye(basis.problem.rank), L)
    np.testing.assert_allclose(
        big @ H @ big.T * case["lam"], point["hessian_class_major"], rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("name", ["smsvm_J3", "sm3l_Rsing_J4", "imvm_J3"])
def test_gradient_and_hessian_by_finite_differences(name):
    basis = grown(CASES[name])
    problem = basis.problem
    rng = np.random.default_rng(0)
    W, V = rng.normal(size=(2, *basis.here.W.shape))

    def at(W):
        return place(basis, W).objective, basis.gradient()

    h = 1e-6
    (up, g_up), (down, g_down), (_, g) = at(W + h * V), at(W - h * V), at(W)
    assert (up - down) / (2 * h) == pytest.approx(np.vdot(g, V), rel=1e-6)
    curvature, slope = basis.here.loss.curvature, (g_up - g_down) / (2 * h)
    H = hessian(basis.Psi, curvature, problem.P, W.shape)
    HV = (H @ V.T.ravel()).reshape(V.T.shape).T
    np.testing.assert_allclose(HV, slope, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(hessian_product(basis.Psi, curvature, problem.P, V), HV, rtol=1e-10)


@pytest.mark.parametrize("name", ["smsvm_J3", "sm3l_I_J3", "sm3l_Rpd_J3", "sm3l_Rsing_J4"])
def test_minimum_equals_a_generic_solver(name):
    case = CASES[name]
    basis = grown(case)
    problem = basis.problem
    assert solve(basis, "cg")
    K = problem.kernel.block(problem.X, problem.X)
    J = case["J"]
    L = np.linalg.cholesky(K[np.ix_(J, J)])
    W = cp.Variable((len(J), problem.rank))
    F = K[:, J] @ np.linalg.inv(L).T @ W
    c = problem.loss.c
    if case["method"] == "smsvm":
        y = np.array(case["y"])
        own = np.eye(case["k"])[y]
        M = 1 + F - cp.sum(cp.multiply(own, F), axis=1, keepdims=True) @ np.ones((1, case["k"]))
        violation = cp.multiply(1 - own, cp.pos(M))
    else:
        violation = cp.pos(1 - cp.multiply(np.array(case["Y"]), F @ problem.P))
    loss = cp.sum(cp.multiply(np.repeat(c[:, None], violation.shape[1], 1), cp.square(violation)))
    reference = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) + loss))
    reference.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    assert basis.here.objective == pytest.approx(reference.value, rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_certificate_holds_away_from_the_minimum(name):
    case = CASES[name]
    basis = grown(case)
    here = place(basis, np.random.default_rng(1).normal(size=basis.here.W.shape))
    certificate = certify(basis)
    assert certificate.primal == pytest.approx(here.objective, rel=1e-9)
    assert certificate.dual <= case["objective"] / case["lam"] * (1 + 1e-9)


def test_prior_enters_through_R_alone():
    case = CASES["sm3l_Rpd_J3"]
    problem = build(case)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=problem.P.shape))[0]
    first, second = grown(case, problem), grown(case, replace(problem, P=Q @ problem.P))
    for basis in (first, second):
        solve(basis, "cg")
    np.testing.assert_allclose(coefficients(first), coefficients(second), atol=1e-7)
    steps = [b.problem.scores(b.problem.score(b.here, np.array([1, 5])).steps) for b in (first, second)]
    np.testing.assert_allclose(*steps, atol=1e-7)


def test_growth_keeps_scores_and_factor_exact():
    basis = GrowingBasis(build(CASES["smsvm_Jall"]))
    problem = basis.problem
    rng = np.random.default_rng(0)
    K = problem.kernel.block(problem.X, problem.X)
    a = []
    for j in (3, 0, 7, 5):
        step = rng.normal(size=problem.rank)
        basis.join(j, K[j], step)
        a.append(step)
    J, L = basis.indices, basis.triangle
    np.testing.assert_allclose(L @ L.T, K[np.ix_(J, J)], atol=1e-12)
    np.testing.assert_allclose(basis.here.Z, K[:, J] @ np.array(a), atol=1e-12)
    np.testing.assert_allclose(basis_product(basis.Psi, basis.here.W), basis.here.Z, atol=1e-10)
    np.testing.assert_allclose(coefficients(basis), a, atol=1e-9)
    schur = np.diag(K) - np.einsum("ij,ij->i", K[:, J], np.linalg.solve(K[np.ix_(J, J)], K[J]).T)
    np.testing.assert_allclose(basis.residual, np.maximum(schur, 0), atol=1e-10)


def test_dependent_candidates_are_refused():
    X = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    y = np.array([0, 1, 0, 1])
    basis = GrowingBasis(BasisProblem(Kernel.of(X, "linear"), X, SquaredMargins(y, np.ones(4), 2)))
    everything = np.arange(4)
    assert basis.admissible(everything).tolist() == [0, 1, 2, 3]
    basis.join(0, X @ X[0], np.zeros(2))
    assert basis.admissible(everything).tolist() == [2, 3]
    basis.join(3, X @ X[3], np.zeros(2))
    assert basis.admissible(everything).size == 0


@pytest.mark.parametrize("selection", ["block", "sequential"])
@pytest.mark.parametrize("name", ["smsvm_J3", "sm3l_Rpd_J3"])
def test_objective_after_a_step_is_the_one_reached(name, selection):
    basis = grown(CASES[name])
    solve(basis, "cholesky", tol=1e-3)
    scored = basis.problem.score(basis.here, np.array([1, 4]), selection)
    basis.join(4, scored.rows[1], scored.steps[1])
    assert basis.here.objective == pytest.approx(scored.objectives[1], rel=1e-12)


@pytest.mark.parametrize("name", ["smsvm_J3", "sm3l_Rpd_J3"])
def test_candidates_gain_nothing_from_inexact_coefficients(name):
    """A function that is in the basis has nothing to add, however far the coefficients are from optimal."""
    basis = grown(CASES[name])
    scored = basis.score(np.array(basis.indices), "block")
    assert np.abs(basis.problem.score(basis.here, np.array(basis.indices)).steps).max() > 0.1
    np.testing.assert_allclose(scored.steps, 0, atol=1e-12)
    np.testing.assert_allclose(scored.objectives, basis.here.objective, rtol=1e-12)


def test_coefficients_of_a_stage_stop_by_an_estimate():
    goal = 1e-3 * grown(CASES["smsvm_J3"]).here.objective
    for proven in (False, True):
        basis, newton = grown(CASES["smsvm_J3"]), Newton(100, CG)
        assert newton.optimise(basis, lambda: goal, lambda: False, proven=proven)
        g = basis.gradient()
        bound, estimate = 0.5 * np.vdot(g, g), 0.5 * np.vdot(g, newton.blocks.apply(g))
        assert (bound if proven else estimate) <= goal


def test_preconditioner_follows_a_growing_basis_exactly_while_weights_stay():
    rng = np.random.default_rng(0)
    Psi, weights = rng.normal(size=(40, 6)), rng.random((40, 3))
    base = np.array([1.0, 0.3, 2.0])
    blocks = InverseBlocks()
    blocks.update(Psi[:, :2], DiagonalCurvature(weights), base)
    blocks.record(5, 1.0)
    blocks.update(Psi, DiagonalCurvature(weights), base)
    for r, inverse in enumerate(blocks.inverse):
        exact = base[r] * np.eye(6) + (Psi.T * weights[:, r]) @ Psi
        np.testing.assert_allclose(inverse @ exact, np.eye(6), atol=1e-9)


def test_preconditioner_stays_bounded_when_weights_jump():
    rng = np.random.default_rng(0)
    Psi, base = rng.normal(size=(40, 6)), np.array([1.0, 0.3])
    blocks = InverseBlocks()
    blocks.update(Psi[:, :5], DiagonalCurvature(np.full((40, 2), 1e-6)), base)
    blocks.record(5, 1.0)
    blocks.update(Psi, DiagonalCurvature(np.full((40, 2), 1e4)), base)
    for inverse, least in zip(blocks.inverse, base, strict=True):
        values = np.linalg.eigvalsh(inverse)
        assert values[0] > 0 and values[-1] <= 2 / least


def test_preconditioning_differences_only_gives_the_same_direction(monkeypatch):
    X, y = load_digits(return_X_y=True)
    X, y = X[:400] / 16, y[:400]
    problem = BasisProblem(Kernel.of(X, "rbf", gamma=0.05), X, SquaredMargins(y, np.full(400, 10.0), 10))
    vectors, directions = X[::13], []
    for relative in (True, False):
        monkeypatch.setattr(SquaredMargins, "relative", relative)
        basis = FixedBasis(problem, vectors, np.zeros((len(vectors), 10)))
        g = basis.gradient() + np.arange(1.0, 11.0)
        directions.append(Newton(100, CG).direction(basis, g, 1e-8))
    np.testing.assert_allclose(directions[0], directions[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_pool_depends_on_content_only(dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (30, 4)).astype(dtype) * dtype(0.37)
    keys = row_keys(X)
    equal = {(i, j) for i in range(30) for j in range(i) if keys[i] == keys[j]}
    assert equal == naive.row_key_pairs(X)
    np.testing.assert_array_equal(row_keys(sp.csr_array(X)), keys)
    np.testing.assert_array_equal(row_keys(X.astype(np.float32)), row_keys(X.astype(np.float64)))
    order = rng.permutation(30)
    pool, shuffled = candidate_pool(X, np.ones(30)), candidate_pool(X[order], np.ones(30))
    np.testing.assert_array_equal(X[pool], X[order][shuffled])
    weights = (np.arange(30) % 3 > 0).astype(float)
    assert set(candidate_pool(X, weights)) <= set(np.flatnonzero(weights))
    assert candidate_pool(X, weights, by_content=False).tolist() == np.flatnonzero(weights).tolist()


def test_row_keys_do_not_depend_on_how_entries_are_stored():
    X = np.array([[0.0, 1.0], [-0.0, 1.0]])
    stored = sp.csr_array((np.array([0.0, 1.0, 1.0]), np.array([0, 1, 1]), np.array([0, 2, 3])), shape=(2, 2))
    twice = sp.csr_array((np.array([0.5, 0.5, 1.0]), np.array([1, 1, 1]), np.array([0, 2, 3])), shape=(2, 2))
    assert len({key for rows in (X, stored, twice) for key in row_keys(rows).tolist()}) == 1
    assert twice.nnz == 3 and twice.data.tolist() == [0.5, 0.5, 1.0]


def test_a_hessian_that_rounding_made_singular_is_solved():
    H = np.array([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 1.0]]])
    B = np.array([[1.0, 1.0], [2.0, 3.0]])
    x = solve_each(H, B)
    np.testing.assert_allclose(np.einsum("jab,jb->ja", H, x), B, atol=1e-12)


def test_coefficients_are_optimal_where_conjugate_gradients_do_not_end():
    """At a large C on separable samples only a Cholesky factor reaches the tolerance."""
    X, y = load_digits(return_X_y=True)
    machine = SparseMultiClassSVC(C=1e5, gamma=0.05, max_basis=20, rel_tol=0, random_state=0)
    assert machine.fit(X[:200] / 16, y[:200]).duality_gap_ <= 1e-6
