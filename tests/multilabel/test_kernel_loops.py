"""Compiled loops of kernelised M3L against their slow twins, iterate by iterate."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Clock
from maxmargin.multilabel import kernel_loops as loops
from maxmargin.multilabel import paper_kernel_loops
from maxmargin.multilabel.kernel_sweeps import newton_step
from maxmargin.multilabel.paper_kernel import SMO, factors
from maxmargin.multilabel.problem import KernelM3L, hinge_costs
from tests.naive import kernel_m3l as naive


def data(seed=0, n=12, L=3, rank=None):
    """Kernel, prior, signs (one unknown), margins and boxes of a small problem."""
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3)
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2)) + 0.5
    P = rng.randn(rank or L, L)
    R = P.T @ P + (0 if rank else 0.2 * np.eye(L))
    Y = np.where(rng.rand(n, L) < 0.5, 1, -1)
    m, C = 0.3 + rng.rand(n, L), 0.2 + rng.rand(n, L)
    C[0, 0] = 0
    return K, R, Y, m, C


def state(Y, m, C, K=None, R=None, alpha=None):
    """Residuals, coefficients and bounds as the loops take them."""
    alpha = np.zeros(Y.shape) if alpha is None else alpha
    F = 0 if K is None else K @ (Y * alpha) @ R
    arrays = (Y * m - F, Y * alpha, np.minimum(Y * C, 0), np.maximum(Y * C, 0))
    return loops.KernelState(*(np.ascontiguousarray(a.T.astype(float)) for a in arrays))


@pytest.mark.nojit
@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_pair_step_is_the_best_of_all_faces(seed):
    rng = np.random.RandomState(seed)
    A = rng.randn(2, 2)
    Q = A @ A.T + 0.05 * np.eye(2)
    e, lo = 3 * rng.randn(2), -rng.rand(2)
    b = lo + rng.rand(2) * rng.rand()
    hi = b + rng.rand(2)
    expected = b + naive.best_pair(Q, e, lo - b, hi - b)
    first, second = (loops.Coefficient(b[k], e[k], lo[k], hi[k]) for k in range(2))
    found = loops.pair_step(first, second, Q[0, 0], Q[1, 1], Q[0, 1])
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("rank", "break_factor", "shares"),
    [(None, 0.0, (1.0, 1.0)), (None, 0.5, (0.5, 0.1)), (1, 0.5, (1.0, 1.0))],
)
def test_smo_rounds_follow_the_corrected_algorithm(rank, break_factor, shares):
    K, R, Y, m, C = data(rank=rank)
    solver = smo_of(K, R, Y, m, C, break_factor, shares)
    assert solver.prior.S.shape == (rank or len(R), len(K))
    start = naive.violations(K, R, Y, m, np.zeros(Y.shape), C)
    np.testing.assert_allclose(solver.violations.estimate, start)
    for alpha, estimate in naive.smo_rounds(K, R, Y, m, C, 8, 4, break_factor, *shares):
        solver._rounds(1, Clock())
        np.testing.assert_allclose(solver.B.T, Y * alpha, atol=1e-9)
        np.testing.assert_allclose(solver.violations.estimate, estimate, atol=1e-9)
        F = (solver.prior.out @ solver.prior.S).T
        np.testing.assert_allclose(Y * (m - Y * F), Y * naive.gradient(K, R, Y, m, alpha), atol=1e-9)


def smo_of(K, R, Y, m, C, break_factor, shares):
    """Algorithm 1 at its start, four steps on a label at most."""
    given = state(Y, m, C)
    problem = SimpleNamespace(
        target=given.E, bounds=(given.lo, given.hi), prior=R, coefficients=lambda alpha: (Y * alpha).T.copy(),
        K=SimpleNamespace(whole=K, diagonal=np.diag(K).copy(), dtype=K.dtype),
    )  # fmt: skip
    accepted, growth = shares
    return SMO(problem, np.zeros(Y.shape), tol=1e-3, n_inner=4, break_factor=break_factor, accepted=accepted,
               growth=growth)  # fmt: skip


def test_the_largest_violation_is_the_one_taken():
    """With both shares 1 the naive twin takes the label with the largest violation in every round."""
    K, R, Y, m, C = data(5, L=4)
    before = np.zeros(Y.shape)
    for alpha, _ in naive.smo_rounds(K, R, Y, m, C, 10, 4, 0.5):
        moved = np.flatnonzero((alpha != before).any(axis=0))
        assert moved.tolist() == [np.argmax(naive.violations(K, R, Y, m, before, C))]
        before = alpha


@pytest.mark.parametrize(
    "R", [np.eye(3), np.diag([1.0, 2.0, 0.5]), np.ones((4, 4)), np.full((4, 4), 0.3) + np.eye(4)]
)
def test_a_prior_is_factored(R):
    out, into = factors(R)
    np.testing.assert_allclose(out @ into.T, R, atol=1e-14)
    assert out.shape[1] == (1 if np.array_equal(R, np.ones((4, 4))) else len(R))


def test_no_sample_is_its_own_partner_in_single_precision():
    K = np.full((3, 3), 10_000.0, np.float32) + np.eye(3, dtype=np.float32)
    work = paper_kernel_loops.workspace(3)
    work.e[:] = work.violation[:] = 1
    violations = paper_kernel_loops.Violations(np.ones(1), np.ones((1, 3)), np.zeros((1, 3)))
    for p in range(3):
        singular = loops.SINGULAR[K.dtype]
        assert (
            paper_kernel_loops.partner(K[p], np.diag(K).astype(float), 0, p, violations, work, singular) != p
        )


@pytest.mark.parametrize("estimate", [0.0, np.nan])
def test_no_label_is_chosen_without_a_violation(estimate):
    out = np.ones((1, 1))
    prior = paper_kernel_loops.FactoredPrior(out, out, out, np.full((1, 2), estimate))
    duals = paper_kernel_loops.Duals(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)))
    violations = paper_kernel_loops.Violations(np.full(1, estimate), np.ones((1, 2)), np.zeros((1, 2)))
    assert paper_kernel_loops.select(prior, duals, violations, paper_kernel_loops.workspace(2), 0.5) == (
        -1,
        -1,
    )


def test_smo_on_cached_rows_makes_the_same_steps():
    rng = np.random.RandomState(1)
    X, signs = rng.randn(30, 3), np.where(rng.rand(30, 3) < 0.5, 1, -1).astype(np.int8)
    costs = hinge_costs(signs, np.ones((2, 3)), np.ones((30, 1)))
    R = np.array([[1, 0.5, 0], [0.5, 1, -0.3], [0, -0.3, 1]])
    kernel = Kernel.of(X, "rbf", offset=1.0)
    zero = np.zeros(signs.shape)
    whole, cached = (
        SMO(KernelM3L(KernelMatrix(kernel, X, size), costs, R), zero, tol=1e-3) for size in (np.inf, 0)
    )
    assert cached.problem.K.whole is None and cached.problem.K.cache.capacity == 2
    for _ in range(20):
        assert whole._rounds(1, Clock()) == cached._rounds(1, Clock())
        np.testing.assert_allclose(whole.B, cached.B, atol=1e-12)
    assert whole.B.any()


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fused_label_steps_are_greedy_pair_steps(dtype):
    K, _, Y, m, C = data(3)
    Y, m, C = Y[:, :1], m[:, :1], C[:, :1]
    r = 1.7
    work = loops.scratch(len(K), dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-10
    for n_steps in (0, 1, 2, 5, 9):
        label = loops.KernelState(*(a.astype(dtype)[0] for a in state(Y, m, C)))
        diagonal = np.diag(K).astype(dtype)
        done, gap = loops.label_steps(
            K.astype(dtype), diagonal, dtype(r), label, work, n_steps, -1.0, dtype(1e-12)
        )
        alpha = naive.label_steps(K, r, Y, m, C, np.zeros(Y.shape), n_steps)
        np.testing.assert_allclose(label.B, (Y * alpha)[:, 0], atol=tolerance)
        primal, dual = naive.objectives(K, np.array([[r]]), Y, m, C, alpha)
        assert gap == pytest.approx(primal - dual, abs=10 * tolerance)
        assert done == n_steps


def test_fused_label_steps_stop_at_their_target():
    K, _, Y, m, C = data(3, n=40)
    label = state(Y[:, :1], m[:, :1], C[:, :1]).label(0)
    start = loops.label_gap(label)
    work = loops.scratch(40, np.float64)
    steps, gap = loops.label_steps(K, np.diag(K).copy(), 1.0, label, work, 10_000, 1e-3 * start, 1e-12)
    assert 0 < steps < 10_000 and gap <= 1e-3 * start
    assert loops.label_gap(label) == pytest.approx(gap)


@pytest.mark.nojit
@given(st.lists(st.floats(0, 2.0**100, width=32), min_size=1, max_size=600))
@settings(max_examples=25)
def test_argmax_of_bits_is_argmax(values):
    for dtype, integer in ((np.float32, np.int32), (np.float64, np.int64)):
        v = np.array(values, dtype)
        expected = int(np.argmax(v)) if v.any() else -1
        assert loops.argmax_bits(v.view(integer)) == expected


@pytest.mark.nojit
def test_coupled_block_sweeps_are_one_variable_steps():
    K, R, Y, m, C = data(5)
    alpha = 0.5 * C
    samples = np.array([1, 4, 7, 8])
    now = state(Y, m, C, K, R, alpha)
    residuals = now.E.copy()
    changes = np.empty((len(R), len(samples)))
    loops.coupled_block_sweeps(K[np.ix_(samples, samples)].copy(), R, samples, now, 2, changes)
    expected = naive.sweeps(K, R, Y, m, C, alpha, samples, 2)
    np.testing.assert_allclose(now.B.T, Y * expected, atol=1e-10)
    np.testing.assert_allclose(changes.T, (Y * (expected - alpha))[samples], atol=1e-10)
    np.testing.assert_array_equal(now.E, residuals)


@pytest.mark.nojit
@pytest.mark.parametrize("L", [1, 3, 50])
def test_block_sweeps_are_one_variable_steps_whose_changes_reach_all_samples(L):
    K, _, Y, m, C = data(5, L=L)
    R = np.diag(0.5 + np.arange(L) % 7)
    now, expected = state(Y, m, C, K, R, 0.5 * C), 0.5 * C
    order = np.array([1, 4, 7, 8, 2, 3, 5, 0, 11, 9])
    sweep(K, np.diag(R).copy(), order, now, 2, np.zeros(L), block=4)
    for samples in (order[:4], order[4:8], order[8:]):
        expected = naive.sweeps(K, R, Y, m, C, expected, samples, 2)
    np.testing.assert_allclose(now.B.T, Y * expected, atol=1e-10)
    np.testing.assert_allclose(now.E, state(Y, m, C, K, R, expected).E, atol=1e-10)


def sweep(K, r, order, now, n_sweeps, negligible, block):
    dtype = K.dtype
    loops.block_sweeps(
        K, r, order, now, n_sweeps, negligible, loops.workspace(block, dtype), loops.LANES[dtype]
    )


@pytest.mark.nojit
def test_block_sweeps_leave_coefficients_whose_first_step_would_gain_too_little():
    K, _, Y, m, C = data(7, n=2, L=1)
    order = np.array([0, 1])
    C[:] = 100.0  # no bound is near
    for sample in order:
        now = state(Y, m, C)
        gain = 0.5 * now.E[0, sample] ** 2 / K[sample, sample]
        for negligible, moves in ((1.01 * gain, False), (0.99 * gain, True)):
            sweep(K, np.ones(1), order[sample : sample + 1], now, 1, np.array([negligible]), block=2)
            assert now.B.any() == moves


@pytest.mark.nojit
def test_block_sweeps_without_curvature_go_to_the_bound():
    now = loops.KernelState(np.array([[2.0, -1.0, 0.0]]), np.zeros((1, 3)), -np.ones((1, 3)), np.ones((1, 3)))
    sweep(np.zeros((3, 3)), np.ones(1), np.arange(3), now, 2, np.zeros(1), block=4)
    np.testing.assert_array_equal(now.B, [[1.0, -1.0, 0.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "L", "density"), [(5, 1, 1.0), (16, 5, 0.0), (143, 13, 0.3), (144, 1, 0.3), (301, 5, 1.0)]
)
def test_changes_are_carried_by_a_product(L, n, dtype, density):
    rng = np.random.RandomState(0)
    K, E, samples = rng.randn(n, n).astype(dtype), rng.randn(L, n).astype(dtype), rng.permutation(n)[:9]
    changes = rng.randn(len(samples), L).astype(dtype) * (rng.rand(len(samples), L) < density)
    expected = E.astype(float) + changes.T.astype(float) @ K[samples]
    lanes = loops.LANES[np.dtype(dtype)]
    cut = n // 2 // len(lanes) * len(lanes)
    whole, tile = E.copy(), loops.workspace(4, np.dtype(dtype)).tile
    loops.propagate(K, samples, changes, whole, 0, n, tile, lanes)
    for begin, end in ((0, cut), (cut, n)):
        loops.propagate(K, samples, changes, E, begin, end, tile, lanes)
    np.testing.assert_allclose(E, expected, atol=1e-4 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(E, whole)


@pytest.mark.nojit
def test_rows_and_columns_are_gathered():
    K, answer = np.arange(20.0).reshape(4, 5), np.zeros((3, 3))
    loops.gather(K, np.array([3, 1]), np.array([0, 4, 2]), answer)
    np.testing.assert_array_equal(answer, [[15, 19, 17], [5, 9, 7], [0, 0, 0]])


def test_gap_and_dual_of_a_label():
    K, _, Y, m, C = data(7)
    Y, m, C = Y[:, :1], m[:, :1], C[:, :1]
    alpha = np.random.RandomState(0).rand(*C.shape) * C
    label = state(Y, m, C, K, np.eye(1), alpha).label(0)
    primal, dual = naive.objectives(K, np.eye(1), Y, m, C, alpha)
    assert loops.label_gap(label) == pytest.approx(primal - dual, rel=1e-12)
    assert loops.label_dual(label.E, label.B, (Y * m)[:, 0]) == pytest.approx(dual, rel=1e-12)
    gaps, duals = np.empty((2, 1))
    loops.measure_labels(state(Y, m, C, K, np.eye(1), alpha), np.ascontiguousarray((Y * m).T), gaps, duals)
    assert gaps[0] == pytest.approx(primal - dual, rel=1e-12)
    assert duals[0] == pytest.approx(dual, rel=1e-12)


@pytest.mark.parametrize("box", [100.0, 0.4])
def test_newton_raises_the_dual_and_solves_without_bounds(box):
    K, _, Y, m, C = data(9)
    Y, m = Y[:, :1], m[:, :1]
    C = np.full(Y.shape, box)
    alpha = 0.5 * C
    E, B, lo, hi = now = state(Y, m, C, K, np.eye(1), alpha)
    before = naive.objectives(K, np.eye(1), Y, m, C, alpha)[1]
    newton_step(K, 1.0, now.label(0))
    moved = np.abs(B.T)
    np.testing.assert_array_equal(B, np.clip(B, lo, hi))
    np.testing.assert_allclose(E.T, Y * naive.gradient(K, np.eye(1), Y, m, moved), atol=1e-9)
    assert naive.objectives(K, np.eye(1), Y, m, C, moved)[1] > before
    if box == 100.0 and (np.abs(moved - 0.5 * C) < 0.5 * C).all():
        np.testing.assert_allclose(E, 0, atol=1e-6)


def test_newton_leaves_a_label_without_free_coefficients_alone():
    K, _, Y, m, C = data(9)
    now = state(Y, m, C)
    newton_step(K, 1.0, now.label(0))
    assert not now.B.any()


def test_movable_coefficients_are_those_with_a_projected_gradient():
    K, R, Y, m, C = data(11)
    alpha = np.where(np.random.RandomState(0).rand(*C.shape) < 0.5, 0, C)
    alpha[3, 1] = 0.5 * C[3, 1]
    now = state(Y, m, C, K, R, alpha)
    movable = naive.projected(naive.gradient(K, R, Y, m, alpha), alpha, C) != 0
    np.testing.assert_array_equal(now.movable(), movable.T)
