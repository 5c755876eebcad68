"""Block solvers on chains against enumeration, known answers and a generic solver."""

import json
from pathlib import Path

import numpy as np
import pytest

from maxmargin.core.atoms import solve_cached
from maxmargin.core.loop import Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.structured import chain_pairwise
from maxmargin.structured.chain_bcfw import ChainFrankWolfe
from maxmargin.structured.chain_bcpl import ChainPartialLinearisation
from maxmargin.structured.chain_oeg import ChainExponentiatedGradient
from maxmargin.structured.chain_pairwise import ChainPairwise
from maxmargin.structured.chain_problem import ChainProblem
from tests.naive import chain as naive

KAT = json.loads((Path(__file__).parents[1] / "fixtures" / "kat_chain.json").read_text())
CASES = {case["name"]: case for case in KAT["problems"]}


def problem_of(xs, ys, K, C, weights=None, normalise=True):
    offsets = np.concatenate([[0], np.cumsum([len(y) for y in ys])])
    X = np.concatenate([np.asarray(x, float) for x in xs])
    return ChainProblem(Rows.of(X), offsets, np.concatenate(ys), K, C, weights, normalise)


def known(case):
    """Problem in the library's scaling, and the factor from its objective to the paper's."""
    n = len(case["xs"])
    p = np.full(n, 1 / n) if case["p"] is None else np.array(case["p"])
    return problem_of(case["xs"], case["ys"], case["K"], 1 / case["lam"], p, case["normalise"])


def random_problem(seed, n=4, K=3, f=2, longest=3, C=1.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    xs = [rng.normal(size=(L, f)) for L in lengths]
    ys = [rng.integers(0, K, L) for L in lengths]
    problem = problem_of(xs, ys, K, C)
    twin = naive.Enumerated(xs, ys, K, problem.costs, problem.loss)
    return problem, twin


def method_of(cls, problem, tol=1e-9, **options):
    return cls(problem, np.random.RandomState(0), tol, **options)


@pytest.mark.parametrize("name", CASES)
def test_known_optimum(name):
    case = CASES[name]
    problem = known(case)
    method = method_of(ChainPairwise, problem)
    outcome = run(method, Stopping(1e-9, 20000))
    assert outcome.converged
    assert outcome.certificate.primal * case["lam"] == pytest.approx(case["objective"], abs=1e-6)
    assert outcome.certificate.dual * case["lam"] == pytest.approx(case["objective"], abs=1e-6)
    K, f = case["K"], len(case["xs"][0][0])
    w = np.array(case["w"])
    U, rest = w[: K * f].reshape(K, f), w[K * f :]
    np.testing.assert_allclose(method.best.U.T, U, atol=1e-4)
    np.testing.assert_allclose(method.best.vector[K * f :], rest, atol=1e-4)


PLAIN = {"safeguard": False, "epsilon": 0.0, "floor": 0.0}
TRACES = {
    "bcfw_tau_0.01": (ChainFrankWolfe, {}),
    "bcpl_tau_0.1": (
        ChainPartialLinearisation,
        {"temperature": 0.1, **PLAIN},
    ),
    "bcpl_tau_1": (ChainPartialLinearisation, {"temperature": 1.0, **PLAIN}),
    "oeg_tau_10": (ChainExponentiatedGradient, {"temperature": 10.0}),
}


@pytest.mark.parametrize("name", TRACES)
def test_known_trace_of_cyclic_passes(name):
    cls, options = TRACES[name]
    expected, lam = KAT["cyclic_traces"][name], CASES["plain"]["lam"]
    problem = known(CASES["plain"])
    method = method_of(cls, problem, **options)
    for step in range(4):
        if step:
            method.visit(np.arange(problem.lengths.size))
        dual = problem.dual(method.weights, method.expected_loss())
        primal = problem.primal(method.weights)
        assert dual * lam == pytest.approx(expected["dual_after_pass"][step], abs=1e-6)
        assert (primal - dual) * lam == pytest.approx(expected["gap_after_pass"][step], abs=1e-6)


def furthest(method, twin, i):
    """Largest distance between the weights of both, and between their marginals of block i."""
    node, _ = naive.marginals(twin.alpha[i], twin.blocks[i].zs, len(twin.blocks[i].y), twin.K)
    start = method.problem.offsets[i]
    marginals = method.mu[start : start + len(node)]
    return max(np.abs(method.weights.vector - twin.w).max(), np.abs(marginals - node).max())


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(3))
def test_bcfw_equals_enumerated(seed):
    problem, twin = random_problem(seed)
    method = method_of(ChainFrankWolfe, problem)
    for i in np.random.default_rng(seed).integers(0, 4, 12):
        method.visit(np.array([i]))
        twin.bcfw_step(i)
        assert furthest(method, twin, i) <= 1e-9


@pytest.mark.nojit
@pytest.mark.parametrize("safeguard", [False, True])
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_bcpl_equals_enumerated_projected(tau, safeguard):
    problem, twin = random_problem(5, longest=4)
    method = method_of(ChainPartialLinearisation, problem, temperature=tau, safeguard=safeguard, floor=0.0)
    twin.soften(1e-2)
    np.testing.assert_allclose(method.weights.vector, twin.w, atol=1e-12)
    for i in np.random.default_rng(0).integers(0, 4, 12):
        method.visit(np.array([i]))
        twin.bcpl_step(i, tau, longest=method.longest_step, safeguard=safeguard)
        assert furthest(method, twin, i) <= 1e-9


@pytest.mark.nojit
def test_oeg_equals_enumerated():
    problem, twin = random_problem(7)
    method = method_of(ChainExponentiatedGradient, problem, temperature=2.0)
    twin.soften(1e-2)
    for i in np.random.default_rng(0).integers(0, 4, 12):
        method.visit(np.array([i]))
        twin.oeg_step(i, 2.0)
        assert furthest(method, twin, i) <= 1e-9


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(3))
def test_pairwise_equals_enumerated(seed, monkeypatch):
    """One step per visit: a second one would start at H_u = H_v, where rounding chooses the pair."""
    monkeypatch.setattr(chain_pairwise, "CACHED_STEPS", 1)
    problem, twin = random_problem(seed, C=0.7)
    method = method_of(ChainPairwise, problem)
    caches = [[b.truth] for b in twin.blocks]
    rng = np.random.default_rng(seed)
    for i, again in zip(rng.integers(0, 4, 30), rng.random(30) < 0.4, strict=True):
        (method.revisit if again else method.visit)(np.array([i]))
        step = twin.cached_visit if again else twin.pairwise_visit
        step(i, caches[i], 1, chain_pairwise.PRECISION, chain_pairwise.RELAXATION)
        np.testing.assert_allclose(method.weights.vector, twin.w, atol=1e-9)
        s = method.state
        alpha = s.alpha[s.slot_at[i] : s.slot_at[i] + s.count[i]]
        np.testing.assert_allclose(alpha, twin.alpha[i][caches[i]], atol=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(4))
def test_steps_on_the_cache_solve_its_quadratic_program(seed):
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    m, cost = 5, 0.7
    psi, H = rng.normal(size=(m, 8)), rng.normal(size=m)
    gram, alpha = psi @ psi.T, np.full(m, 1 / m)
    moved, values = alpha.copy(), H.copy()
    solve_cached(m, moved, values, gram, cost, 2000, 1e-10)
    assert moved.min() >= 0 and moved.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(values, H - cost * gram @ (moved - alpha), atol=1e-10)

    def objective(a):
        return 0.5 * cost * (a - alpha) @ gram @ (a - alpha) - (a - alpha) @ H

    best = minimize(
        objective,
        alpha,
        bounds=[(0, 1)] * m,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
        options={"ftol": 1e-14},
    )
    assert objective(moved) == pytest.approx(best.fun, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("cls", "options", "tol"),
    [
        (ChainPairwise, {}, 1e-7),
        (ChainFrankWolfe, {}, 1e-3),
        (ChainPartialLinearisation, {}, 1e-4),
        (ChainExponentiatedGradient, {}, 1e-2),
    ],
)
def test_every_solver_reaches_the_optimum(cls, options, tol, seed):
    problem, twin = random_problem(seed, C=0.3)
    outcome = run(method_of(cls, problem, tol, **options), Stopping(tol, 100_000, 20))
    best = naive.optimum(twin)
    assert outcome.converged
    assert outcome.certificate.dual - 1e-7 <= best <= outcome.certificate.primal + 1e-7
    assert outcome.certificate.gap <= tol
    for record in outcome.history:
        assert record["dual"] <= best + 1e-7 <= record["primal"] + 2e-7


@pytest.mark.parametrize(
    "cls", [ChainPairwise, ChainFrankWolfe, ChainPartialLinearisation, ChainExponentiatedGradient]
)
def test_certificate_is_that_of_the_stored_solution(cls):
    problem, twin = random_problem(3, n=5, C=2.0)
    method = method_of(cls, problem, 1e-12)
    outcome = run(method, Stopping(1e-12, 7))
    assert outcome.certificate.primal == pytest.approx(twin.primal(method.best.vector), rel=1e-12)
    w, loss = method.weights.vector, method.expected_loss()
    assert outcome.certificate.dual == pytest.approx(problem.costs @ loss - 0.5 * w @ w, rel=1e-12)
    duals = [record["dual"] for record in outcome.history]
    assert np.all(np.diff(duals) >= -1e-12)


def test_pairwise_weights_and_room_survive_growth():
    """Far more labelings than the first capacity holds: the state stays a distribution and w its image."""
    problem, _ = random_problem(11, n=3, K=4, longest=6, C=50.0)
    method = method_of(ChainPairwise, problem, 1e-10)
    run(method, Stopping(1e-10, 400))
    s = method.state
    assert s.capacity.max() > chain_pairwise.FIRST_CAPACITY
    np.testing.assert_allclose(np.add.reduceat(s.alpha, s.slot_at[:-1]), 1.0, atol=1e-12)
    running = method.weights.vector.copy()
    method.restore()
    np.testing.assert_allclose(method.weights.vector, running, atol=1e-9)


def test_bcpl_stays_consistent_over_many_epochs():
    problem, _ = random_problem(2, n=3, longest=4)
    method = method_of(ChainPartialLinearisation, problem)
    run(method, Stopping(1e-12, 120))
    mu, pairs = method.mu.copy(), method.pairs.copy()
    method.restore()
    np.testing.assert_allclose(method.mu, mu, atol=1e-10)
    np.testing.assert_allclose(method.pairs, pairs, atol=1e-10)
    np.testing.assert_allclose(method.mu.sum(1), 1.0, atol=1e-12)


def test_zero_weight_blocks_are_never_visited():
    xs, ys = [np.ones((2, 1)), np.ones((1, 1))], [np.array([0, 1]), np.array([1])]
    for cls in (ChainPairwise, ChainFrankWolfe, ChainPartialLinearisation, ChainExponentiatedGradient):
        weighted = problem_of(xs, ys, 2, 1.0, np.array([1.0, 0.0]))
        alone = problem_of(xs[:1], ys[:1], 2, 1.0)
        a = run(method_of(cls, weighted, 1e-2), Stopping(1e-2, 5000))
        b = run(method_of(cls, alone, 1e-2), Stopping(1e-2, 5000))
        assert a.certificate.primal == pytest.approx(b.certificate.primal, rel=1e-2)
