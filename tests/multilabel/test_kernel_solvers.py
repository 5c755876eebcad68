"""Kernelised M3L: both solvers reach the known optimum, and prove it."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from maxmargin.core import kernels as functions
from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Stopping, run
from maxmargin.multilabel.estimator import LINEAR_ONLY, SOLVERS
from maxmargin.multilabel.kernel_sweeps import KernelRule, KernelSweeps
from maxmargin.multilabel.problem import KernelM3L, hinge_costs, tied_costs
from tests.naive import kernel_m3l as naive

# Every solver of the table that takes a kernel.
WITH_KERNEL = sorted(set(SOLVERS) - set(LINEAR_ONLY))
CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "m3l_kernel.json").read_text())["cases"]


class GivenCosts:
    """Costs with every entry given."""

    def __init__(self, signs, boxes, margins, constant=0.0):
        self.signs, self._boxes, self._margins, self.constant = signs, boxes, margins, constant

    def boxes(self):
        return self._boxes

    def margins(self):
        return self._margins


def make(problem, solver, tol=1e-9, n_threads=1, alpha=None):
    """The solver by itself; for "auto" pair steps, as Newton's method has tests of its own."""
    start = np.zeros(problem.shape) if alpha is None else alpha
    build = KernelSweeps if solver == "auto" else SOLVERS[solver].build
    return build(problem, start, tol=tol, rng=np.random.RandomState(0), n_threads=n_threads)


def solve(problem, solver, tol=1e-9, max_iter=3000):
    method = make(problem, solver, tol)
    return method, run(method, Stopping(tol, max_iter))


def reach(problem, outcome):
    """How far scores may be from those at the optimum: 1/2 |w - w*|^2 / R_ll is at most the gap."""
    gap = max(outcome.certificate.primal - outcome.certificate.dual, 1e-13 * outcome.certificate.primal)
    return np.sqrt(2 * gap * np.diagonal(problem.prior).max() * problem.K.diagonal.max()) + 1e-8


def random_problem(seed, n=25, L=4, prior="dense", C=1.0, cache_size=np.inf, dtype=np.float64, kernel="rbf"):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3)
    signs = np.where(rng.rand(n, L) < 0.4, 1, -1).astype(np.int8)
    signs[1, 0] = 0
    P = rng.randn(2, L)
    R = {
        "none": None,
        "dense": 0.5 * P.T @ P + np.eye(L),
        "low": P.T @ P,
        "diagonal": np.diag(0.5 + rng.rand(L)),
    }[prior]
    costs = hinge_costs(signs, C * (0.5 + rng.rand(2, L)), 0.5 + rng.rand(n, 1), 0.5 + rng.rand(2, L))
    K = KernelMatrix(Kernel.of(X, kernel, gamma=0.5, offset=1.0), X, cache_size, dtype)
    return KernelM3L(K, costs, R)


@pytest.mark.parametrize("solver", WITH_KERNEL)
@pytest.mark.parametrize("cache_size", [np.inf, 0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_known_answers(case, cache_size, solver):
    X, Y = np.array(case["X"], float), np.array(case["Y"], np.int8)
    right, wrong = np.array(case["delta_plus"], float), np.array(case["delta_minus"], float)
    C = np.array(case["C"], float) * np.ones(Y.shape)
    costs = GivenCosts(Y, 2 * C, (wrong - right) / 2 * np.ones(Y.shape), float(np.sum(C * right)))
    kernel = Kernel.of(X, case["kernel"], gamma=case["gamma"], offset=case["bias_scale"] ** 2)
    problem = KernelM3L(KernelMatrix(kernel, X, cache_size), costs, np.array(case["R"], float))
    method, outcome = solve(problem, solver, 1e-10)
    assert outcome.converged
    assert outcome.certificate.primal == pytest.approx(case["objective"], rel=1e-8)
    scores = problem.training_scores(method.solution().alpha)
    np.testing.assert_allclose(scores, case["scores"], atol=reach(problem, outcome))


def test_tied_costs_are_those_of_the_known_answer():
    case = next(case for case in CASES if case["name"] == "rbf_tied_loss")
    X, Y, R = np.array(case["X"], float), np.array(case["Y"], np.int8), np.array(case["R"], float)
    C = 2 * float(np.ravel(case["C"])[0])
    costs = tied_costs(Y, np.full((2, Y.shape[1]), C), np.ones((len(Y), 1)), R)
    kernel = Kernel.of(X, "rbf", gamma=case["gamma"], offset=case["bias_scale"] ** 2)
    _, outcome = solve(KernelM3L(KernelMatrix(kernel, X), costs, R), "auto")
    assert outcome.certificate.primal == pytest.approx(case["objective"], rel=1e-8)


@pytest.mark.parametrize("prior", ["none", "diagonal", "dense", "low"])
def test_solvers_agree_with_a_generic_one(prior):
    problem = random_problem(3, n=12, L=3, prior=prior)
    K, R = problem.K.times(np.eye(12)), problem.prior
    root_K = np.linalg.cholesky(K + 1e-12 * np.eye(12))
    values, vectors = np.linalg.eigh(R)
    root_R = vectors * np.sqrt(np.maximum(values, 0))
    lo, hi = problem.bounds
    A = cp.Variable((12, 3))
    objective = cp.sum(cp.multiply(problem.target.T, A)) - 0.5 * cp.sum_squares(root_K.T @ A @ root_R)
    generic = cp.Problem(cp.Maximize(objective), [lo.T <= A, hi.T >= A])
    generic.solve(solver=cp.CLARABEL)
    for solver in WITH_KERNEL:
        method, outcome = solve(problem, solver, 1e-9)
        assert outcome.converged
        assert outcome.certificate.dual == pytest.approx(generic.value, rel=1e-7)
        np.testing.assert_allclose(
            problem.training_scores(method.solution().alpha),
            K @ A.value @ R,
            atol=reach(problem, outcome) + 2e-4,
        )


def test_mirrored_svc_has_the_same_optimum():
    rng = np.random.RandomState(0)
    X, y = rng.randn(40, 3), np.where(rng.rand(40) < 0.5, 1, -1).astype(np.int8)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    mirrored = np.block([[K, -K], [-K, K]])
    C = 0.7
    svc = SVC(C=C / 2, kernel="precomputed", tol=1e-10).fit(mirrored, np.concatenate([y, -y]))
    costs = hinge_costs(y[:, None], np.full((2, 1), C), np.ones((40, 1)))
    problem = KernelM3L(KernelMatrix(Kernel.of(X, "rbf", gamma=0.5), X), costs)
    for solver in WITH_KERNEL:
        method, outcome = solve(problem, solver, 1e-11)
        scores = problem.training_scores(method.solution().alpha)[:, 0]
        theirs = svc.decision_function(mirrored)[:40]
        np.testing.assert_allclose(scores, theirs, atol=reach(problem, outcome) + 1e-5)


@given(
    st.integers(0, 10**6),
    st.sampled_from(["none", "diagonal", "dense", "low"]),
    st.sampled_from([0.05, 1.0, 30.0]),
    st.sampled_from([np.inf, 0.002, 0]),
    st.sampled_from(WITH_KERNEL),
)
@example(596, "low", 30.0, np.inf, "smo")
@settings(max_examples=40)
def test_certificates_hold_at_every_record(seed, prior, C, cache_size, solver):
    problem = random_problem(seed, prior=prior, C=C, cache_size=cache_size)
    # Pair steps alone ("smo") may take thousands of epochs where a prior of low rank meets a large C.
    method, outcome = solve(problem, solver, 1e-5, max_iter=100_000)
    assert outcome.converged and outcome.certificate.gap <= 1e-5
    duals = [record["dual"] for record in outcome.history]
    slack = 1e-9 * abs(outcome.certificate.primal)
    assert all(record["primal"] >= record["dual"] - slack for record in outcome.history)
    assert all(later >= earlier - slack for earlier, later in pairwise(duals))
    alpha = method.solution().alpha
    boxes, margins, Y = problem.costs.boxes(), problem.costs.margins(), problem.costs.signs.astype(float)
    assert (alpha >= 0).all() and (alpha <= boxes).all()
    assert not alpha[boxes == 0].any()
    primal, dual = naive.objectives(problem.K.times(np.eye(25)), problem.prior, Y, margins, boxes, alpha)
    assert outcome.certificate.primal == pytest.approx(primal, rel=1e-9)
    assert outcome.certificate.dual == pytest.approx(dual, rel=1e-9)


@pytest.mark.parametrize("solver", WITH_KERNEL)
@pytest.mark.parametrize(
    ("name", "X"),
    [
        ("duplicates", np.repeat(np.random.RandomState(0).randn(8, 2), 4, axis=0)),
        ("zero vectors", np.vstack([np.zeros((6, 2)), np.random.RandomState(0).randn(20, 2)])),
        ("rank one", np.random.RandomState(0).randn(26, 1)),
        ("opposites", np.vstack([np.eye(3), -np.eye(3), -2 * np.eye(3)])),
        ("all zero", np.zeros((5, 2))),
        ("one sample", np.ones((1, 2))),
    ],
)
def test_degenerate_kernels(name, X, solver):
    rng = np.random.RandomState(1)
    signs = np.where(rng.rand(len(X), 2) < 0.5, 1, -1).astype(np.int8)
    costs = hinge_costs(signs, np.ones((2, 2)), np.ones((len(X), 1)))
    for R in (None, np.ones((2, 2))):
        problem = KernelM3L(KernelMatrix(Kernel.of(X, "linear"), X), costs, R)
        _, outcome = solve(problem, solver, 1e-7)
        assert outcome.certificate.gap <= 1e-7


def test_work_in_single_precision_ends_in_double_when_needed():
    problem = random_problem(0, n=60, C=50.0, dtype=np.float32)
    method, outcome = solve(problem, "auto", 1e-10)
    assert outcome.converged and method.E.dtype == np.float64
    rough, outcome = solve(problem, "auto", 1e-3)
    assert outcome.converged and rough.E.dtype == np.float32
    assert rough.solution().alpha.dtype == rough.solution().weights.dtype == np.float64


@pytest.mark.parametrize("gamma", [0.7, 0.05])
def test_sweeps_and_pair_steps_reach_the_gap_whatever_pair_steps_cost(gamma):
    """Where many coefficients are free sweeps go on; where few are, pair steps follow a rough answer."""
    rng = np.random.RandomState(0)
    n, L, tol = 900, 4, 1e-6
    X, signs = rng.randn(n, 8), np.where(rng.rand(n, L) < 0.5, 1, -1).astype(np.int8)
    costs = hinge_costs(signs, np.ones((2, L)), np.ones((n, 1)), np.ones((2, L)))
    K = KernelMatrix(Kernel.of(X, "rbf", gamma=gamma, offset=1.0), X, np.inf, np.float64)
    problem = KernelM3L(K, costs, None)
    for rule in (KernelRule(), KernelRule(pair_steps=0.0)):
        start, rng = np.zeros(problem.shape), np.random.RandomState(0)
        method = KernelSweeps(problem, start, tol=tol, rng=rng, rule=rule)
        assert run(method, Stopping(tol, 1000)).certificate.gap <= tol


def test_threads_change_nothing():
    problem = random_problem(0, n=60, L=7, prior="diagonal")
    one, two = (make(problem, "auto", 1e-6, n_threads) for n_threads in (1, 2))
    run(one, Stopping(1e-6)), run(two, Stopping(1e-6))
    np.testing.assert_array_equal(one.B, two.B)


@pytest.mark.parametrize("prior", ["none", "diagonal"])
def test_sweeps_within_batches_of_samples(prior):
    """They raise the dual, keep the residuals of the coefficients, and threads change nothing."""
    problem = random_problem(0, n=330, L=7, prior=prior)
    rule = KernelRule(block=8, batch=64, batch_speed=np.inf, sweep_epochs=50, sweep_until=0.0)
    ends = []
    for n_threads in (1, 2, 3):
        start, rng = np.zeros(problem.shape), np.random.RandomState(0)
        method = KernelSweeps(problem, start, tol=1e-4, rng=rng, n_threads=n_threads, rule=rule)
        outcome = run(method, Stopping(1e-4, 20))
        assert method.swept == outcome.n_iter
        assert outcome.history[-1]["gap"] < outcome.history[0]["gap"]
        duals = [record["dual"] for record in outcome.history]
        assert np.all(np.diff(duals) > 0)
        F = problem.training_scores(method.solution().alpha)
        np.testing.assert_allclose(method.E, problem.target - F.T, atol=1e-8)
        ends.append(method.B)
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


def test_a_sweep_ends_part_of_the_way_back_where_that_is_enough():
    """Residuals are those of the coefficients there, which stay in their boxes; else nothing changes."""
    rng = np.random.RandomState(0)
    n, L = 300, 3
    X, signs = rng.randn(n, 4), np.where(rng.rand(n, L) < 0.5, 1, -1).astype(np.int8)
    costs = hinge_costs(signs, np.full((2, L), 10.0), np.ones((n, 1)), np.ones((2, L)))
    K = KernelMatrix(Kernel.of(X, "rbf", gamma=0.05, offset=1.0), X, np.inf, np.float64)
    problem = KernelM3L(K, costs, None)
    rule = KernelRule(block=8, batch=64, batch_speed=np.inf, sweep_epochs=50, sweep_until=0.0)

    def sweeps(tol, **changes):
        start, rng = np.zeros(problem.shape), np.random.RandomState(0)
        method = KernelSweeps(problem, start, tol=tol, rng=rng, rule=replace(rule, **changes))
        return method, run(method, Stopping(tol, 15))

    gaps = [record["gap"] for record in sweeps(1e-9)[1].history]
    for gap in gaps[3:9]:
        method, outcome = sweeps(gap / 1.05)
        assert outcome.certificate.gap <= gap / 1.05
        np.testing.assert_allclose(method.E, problem.target - problem.scores(method.B), atol=1e-8)
        np.testing.assert_array_equal(method.B, np.clip(method.B, method.state.lo, method.state.hi))


@pytest.mark.parametrize("solver", WITH_KERNEL)
@pytest.mark.parametrize("prior", ["none", "low"])
def test_residuals_are_those_of_the_solution(prior, solver):
    problem = random_problem(2, prior=prior)
    method = make(problem, solver)
    run(method, Stopping(1e-12, 3))
    np.testing.assert_allclose(method.E, problem.target - problem.scores(method.B), atol=1e-8)


@pytest.mark.parametrize("solver", WITH_KERNEL)
def test_a_warm_start_is_near_the_optimum_that_it_ends_at(solver):
    low, high = random_problem(4, C=1.0), random_problem(4, C=1.02)
    method, _ = solve(low, solver, 1e-8)
    _, outcome = solve(high, solver, 1e-8)
    warm = make(high, solver, 1e-8, alpha=high.warm(method.solution().alpha, 1.02))
    assert warm.certify().gap < 0.05
    again = run(warm, Stopping(1e-8, 3000))
    assert again.certificate.primal == pytest.approx(outcome.certificate.primal, rel=1e-7)


def test_closed_form_for_small_boxes():
    problem = random_problem(5)
    scale = problem.closed_form_scale()
    boxes = problem.costs.boxes()
    for factor, holds in ((0.99, True), (1.01, False)):
        costs = GivenCosts(problem.costs.signs, factor * scale * boxes, problem.costs.margins())
        method, _ = solve(KernelM3L(problem.K, costs, problem.R), "auto", 1e-12)
        assert np.allclose(method.solution().alpha, factor * scale * boxes, rtol=1e-9) == holds


def test_memory_stays_within_the_cache(monkeypatch):
    monkeypatch.setattr(functions, "BLOCK_BYTES", 2**20)
    X = np.random.RandomState(0).randn(3000, 5)
    L, cache_size = 2, 4

    def train(n, solver):
        signs = np.where(X[:n, :L] > 0, 1, -1).astype(np.int8)
        costs = hinge_costs(signs, np.ones((2, L)), np.ones((n, 1)))
        size = cache_size if n == len(X) else 0.01
        K = KernelMatrix(Kernel.of(X[:n], "rbf"), X[:n], size, np.float32)
        assert K.whole is None
        run(make(KernelM3L(K, costs), solver, 1e-3), Stopping(1e-3, 3))

    for solver in WITH_KERNEL:
        train(400, solver)  # compiles, so that only the arrays of the next one are counted
        tracemalloc.start()
        train(3000, solver)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        state = 12 * 3000 * L * 8
        assert peak < (cache_size + 6) * 2**20 + state < 0.5 * 4 * 3000**2


def test_interrupted_and_limited_runs_keep_a_certificate():
    problem = random_problem(0, n=200, L=6, C=100.0)
    for solver in WITH_KERNEL:
        method = make(problem, solver, 1e-12)
        outcome = run(method, Stopping(1e-12, 10**6, time_limit=1e-4))
        assert outcome.reason == "time_limit"
        assert outcome.certificate.primal >= outcome.certificate.dual
