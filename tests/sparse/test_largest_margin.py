"""The squared Crammer-Singer loss of the machines with a shared basis, and its smooth copy."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from sklearn.datasets import load_iris

from maxmargin import SparseMultiClassSVC
from maxmargin.core.kernels import Kernel
from maxmargin.sparse.greedy import GrowingBasis, Newton
from maxmargin.sparse.largest_margin import SquaredLargestMargin
from maxmargin.sparse.problem import BasisProblem
from tests.sparse.test_problem import CHOLESKY

# The known answer cs2_Jall: lambda/2 tr(a'Ka) + 1/2 sum xi^2 = 0.212990475281 with all samples as basis.
X = np.array(
    [
        0.5,
        1.2,
        -1.0,
        0.3,
        1.5,
        -0.7,
        -0.4,
        -1.1,
        0.9,
        0.8,
        1.3,
        -0.6,
        0.2,
        1.9,
        1.1,
        -1.4,
        -0.8,
        -0.2,
        0.1,
        0.4,
    ]
).reshape(10, 2)
Y, GAMMA, LAMBDA, OBJECTIVE = np.array([0, 1, 2, 1, 0, 2, 0, 2, 1, 0]), 0.5, 0.1, 0.212990475281


def make(seed=0, n=9, k=4, smoothing=0.3):
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.2, 2.0, n)
    c[rng.integers(n)] = 0.0
    return SquaredLargestMargin(rng.integers(0, k, n), c, k, 1e-9, smoothing), rng.normal(size=(n, k))


def slow(loss, F):
    """The smooth copy, one concave program per sample."""
    total, e = 0.0, loss.smoothing
    for i, (y, c) in enumerate(zip(loss.y, loss.c, strict=True)):
        M = np.delete(1 + F[i] - F[i, y], y)
        b = cp.Variable(len(M), nonneg=True)
        program = cp.Problem(cp.Maximize(2 * M @ b - cp.square(cp.sum(b)) - e * cp.sum_squares(b)))
        total += c * program.solve(solver="CLARABEL")
    return total


@pytest.mark.parametrize("smoothing", [1e-2, 0.3, 5.0])
def test_the_smooth_copy_is_its_maximum_and_below_the_loss(smoothing):
    loss, F = make(1, smoothing=smoothing)
    found = loss.at(F)
    assert found.value == pytest.approx(slow(loss, F), rel=1e-6)
    margins = [max(0.0, np.delete(1 + f - f[y], y).max()) for f, y in zip(F, loss.y, strict=True)]
    true = float(loss.c @ np.square(margins))
    assert found.value + found.excess == pytest.approx(true, rel=1e-12)
    assert 0 <= found.excess <= smoothing * true


def test_derivatives_and_line_search_by_differences():
    for seed in range(4):
        loss, F = make(seed)
        V, found, h = np.random.default_rng(seed).normal(size=F.shape), loss.at(F), 1e-6
        up, down = loss.at(F + h * V), loss.at(F - h * V)
        assert (up.value - down.value) / (2 * h) == pytest.approx(np.vdot(found.gradient, V), rel=1e-6)
        slope = (up.gradient - down.gradient) / (2 * h)
        np.testing.assert_allclose(found.curvature.product(V), slope, rtol=1e-5, atol=1e-5)
        V = V - found.gradient
        t = loss.step(F, V, -0.4, 0.7, np.inf)
        values = [-0.4 * s + 0.35 * s * s + loss.at(F + s * V).value for s in (t - 1e-4, t, t + 1e-4)]
        assert t > 1e-3 and values[1] <= min(values[0], values[2])


def test_curvature_views_agree():
    loss, F = make(5)
    curvature = loss.at(F).curvature
    n, k = F.shape
    D = np.stack([curvature.product(np.tile(e, (n, 1))) for e in np.eye(k)], axis=2)
    rng = np.random.default_rng(2)
    v, S, Psi = rng.normal(size=k), rng.random((2, n)), rng.normal(size=(n, 3))
    np.testing.assert_allclose(curvature.along(v), np.einsum("r,irs,s->i", v, D, v), atol=1e-12)
    np.testing.assert_allclose(curvature.diagonal(), np.einsum("irr->ir", D), atol=1e-12)
    np.testing.assert_allclose(curvature.mixtures(S), np.einsum("qi,irs->qrs", S, D), atol=1e-12)
    full = np.zeros((k, k, 3, 3))
    for r, s, block in curvature.blocks(Psi):
        full[r, s], full[s, r] = block, block.T
    np.testing.assert_allclose(full, np.einsum("id,irs,ie->rsde", Psi, D, Psi), atol=1e-12)
    rows = curvature.rows()
    assert set(rows) == {i for i in range(n) if D[i].any()}


def test_known_minimum_with_all_samples():
    loss = SquaredLargestMargin(Y, np.full(len(Y), 1 / (2 * LAMBDA)), 3, 1e-9)
    problem = BasisProblem(Kernel.of(X, "rbf", gamma=GAMMA), X, loss)
    basis = GrowingBasis(problem)
    for j in range(len(X)):
        basis.join(j, problem.kernel_rows(np.array([j]))[0], np.zeros(3))
    while True:
        assert Newton(100, CHOLESKY).optimise(basis, lambda: 1e-10, lambda: False)
        if (problem := basis.problem.less_smoothed()) is None:
            break
        basis.change_loss(problem)
    problem = basis.problem
    certificate = basis.certificate()
    assert certificate.primal * LAMBDA == pytest.approx(OBJECTIVE, rel=1e-8)
    assert certificate.dual <= certificate.primal and certificate.gap <= 1e-8
    bound = problem.full_model_bound(basis.here.loss)
    assert bound == pytest.approx(certificate.primal, rel=1e-7) and bound <= certificate.primal


def test_a_machine_reaches_its_tolerance_on_the_loss_itself():
    data, y = load_iris(return_X_y=True)
    machine = SparseMultiClassSVC(C=10, max_basis=8, loss="crammer_singer", random_state=0).fit(data, y)
    assert machine.duality_gap_ <= machine.tol and machine.score(data, y) > 0.95
    F = machine.decision_function(data)
    own = np.arange(len(y)), y
    margins = 1 + F - F[own][:, None]
    margins[own] = 0
    K = Kernel.of(machine.basis_vectors_, "rbf", gamma=1 / (data.shape[1] * data.var()))
    gram = K.block(machine.basis_vectors_, machine.basis_vectors_)
    objective = 0.5 * np.vdot(machine.coef_ @ gram, machine.coef_) + 10 * np.sum(margins.max(axis=1) ** 2)
    assert machine.primal_objective_ == pytest.approx(objective, rel=1e-9)


def test_two_classes_make_both_losses_the_same():
    data, y = load_iris(return_X_y=True)
    data, y = data[50::4], y[50::4]
    first, second = (
        SparseMultiClassSVC(max_basis=25, rel_tol=0, loss=loss, random_state=0).fit(data, y)
        for loss in ("weston_watkins", "crammer_singer")
    )
    assert second.primal_objective_ == pytest.approx(first.primal_objective_, rel=2e-6)


def test_a_small_tolerance_does_not_shorten_the_steps(wine):
    """The basis grows on one copy whatever tol is, and is as good."""
    machine = SparseMultiClassSVC(C=10, max_basis=10, rel_tol=0, loss="crammer_singer", random_state=0)
    found = []
    for tol in (1e-2, 1e-6):
        machine.set_params(tol=tol).fit(*wine)
        assert machine.n_basis_ == 10 and machine.duality_gap_ <= tol
        found.append(machine.primal_objective_)
    assert found[1] == pytest.approx(found[0], rel=0.05)
