"""Block solvers on chains against enumeration, known answers and a generic solver."""

import json
from pathlib import Path

import numpy as np
import pytest

from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.structured.chain import SOLVERS
from maxmargin.structured.chain_problem import ChainProblem
from maxmargin.structured.oracle_loops import solve_cached
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


def solver_of(name, problem, tol=1e-9, **options):
    return SOLVERS[name].build(problem, np.random.RandomState(0), tol, **options)


@pytest.mark.parametrize("name", CASES)
def test_known_optimum(name):
    case = CASES[name]
    problem = known(case)
    solver = solver_of("pairwise", problem)
    outcome = run(solver, Stopping(1e-9, 20000))
    assert outcome.converged
    assert outcome.certificate.primal * case["lam"] == pytest.approx(case["objective"], abs=1e-6)
    assert outcome.certificate.dual * case["lam"] == pytest.approx(case["objective"], abs=1e-6)
    K, f = case["K"], len(case["xs"][0][0])
    w = np.array(case["w"])
    U, rest = w[: K * f].reshape(K, f), w[K * f :]
    found = solver.solution().vector
    np.testing.assert_allclose(problem.shaped(found).U.T, U, atol=1e-4)
    np.testing.assert_allclose(found[K * f :], rest, atol=1e-4)


PLAIN = {"safeguard": False, "floor": 0.0}
TRACES = {
    "bcfw_tau_0.01": ("bcfw", {}),
    "bcpl_tau_0.1": ("bcpl", {"temperature": 0.1, **PLAIN}),
    "bcpl_tau_1": ("bcpl", {"temperature": 1.0, **PLAIN}),
    "oeg_tau_10": ("oeg", {"temperature": 10.0}),
}


@pytest.mark.parametrize("name", TRACES)
def test_known_trace_of_cyclic_passes(name):
    solver, options = TRACES[name]
    expected, lam = KAT["cyclic_traces"][name], CASES["plain"]["lam"]
    problem = known(CASES["plain"])
    blocks = solver_of(solver, problem, **options).blocks
    for step in range(4):
        if step:
            blocks.visit(np.arange(problem.lengths.size))
        dual = blocks.objective()
        primal = problem.primal(blocks.vector)
        assert dual * lam == pytest.approx(expected["dual_after_pass"][step], abs=1e-6)
        assert (primal - dual) * lam == pytest.approx(expected["gap_after_pass"][step], abs=1e-6)


def furthest(blocks, twin, i):
    """Largest distance between the weights of both, and between their marginals of block i."""
    node, _ = naive.marginals(twin.alpha[i], twin.blocks[i].zs, len(twin.blocks[i].y), twin.K)
    start = blocks.problem.offsets[i]
    marginals = blocks.state.mu[start : start + len(node)]
    return max(np.abs(blocks.vector - twin.w).max(), np.abs(marginals - node).max())


@pytest.mark.parametrize("solver", ["bcpl", "oeg"])
@pytest.mark.parametrize("C", [0.1, 1e3, 1e6])
def test_soft_steps_start_near_w_zero_whatever_lambda(solver, C):
    """Near the highest dual on the way from the truth to the softened truth, which is above that of w = 0."""
    problem, twin = random_problem(0, C=C)
    blocks = solver_of(solver, problem).blocks
    duals = []
    for softness in np.geomspace(1e-11, 1e-2, 1000):
        twin.soften(softness)
        duals.append(twin.dual())
    assert blocks.objective() > 0
    assert blocks.objective() >= max(duals) * 0.999


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(3))
def test_bcfw_equals_enumerated(seed):
    problem, twin = random_problem(seed)
    blocks = solver_of("bcfw", problem).blocks
    for i in np.random.default_rng(seed).integers(0, 4, 12):
        blocks.visit(np.array([i]))
        twin.bcfw_step(i)
        assert furthest(blocks, twin, i) <= 1e-9


@pytest.mark.nojit
@pytest.mark.parametrize("safeguard", [False, True])
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_bcpl_equals_enumerated_projected(tau, safeguard):
    problem, twin = random_problem(5, longest=4)
    blocks = solver_of("bcpl", problem, temperature=tau, safeguard=safeguard, floor=0.0).blocks
    twin.soften(1e-2)
    np.testing.assert_allclose(blocks.vector, twin.w, atol=1e-12)
    for i in np.random.default_rng(0).integers(0, 4, 12):
        blocks.visit(np.array([i]))
        twin.bcpl_step(i, tau, longest=blocks.rule.longest, safeguard=safeguard)
        assert furthest(blocks, twin, i) <= 1e-9


@pytest.mark.nojit
def test_oeg_equals_enumerated():
    problem, twin = random_problem(7)
    blocks = solver_of("oeg", problem, temperature=2.0).blocks
    twin.soften(1e-2)
    for i in np.random.default_rng(0).integers(0, 4, 12):
        blocks.visit(np.array([i]))
        twin.oeg_step(i, 2.0)
        assert furthest(blocks, twin, i) <= 1e-9


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(3))
def test_pairwise_equals_enumerated(seed):
    """One step per visit: a second one would start at H_u = H_v, where rounding chooses the pair."""
    problem, twin = random_problem(seed, C=0.7)
    blocks = solver_of("pairwise", problem, steps=1).blocks
    caches = [[b.truth] for b in twin.blocks]
    rng = np.random.default_rng(seed)
    for i, again in zip(rng.integers(0, 4, 30), rng.random(30) < 0.4, strict=True):
        (blocks.revisit if again else blocks.visit)(np.array([i]))
        step = twin.cached_visit if again else twin.pairwise_visit
        step(i, caches[i], 1, blocks.rule.precision, blocks.rule.relaxation)
        np.testing.assert_allclose(blocks.vector, twin.w, atol=1e-9)
        _, alpha, _ = blocks.atoms.of(i)
        np.testing.assert_allclose(alpha[: blocks.atoms.filled[i]], twin.alpha[i][caches[i]], atol=1e-9)


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


# What each solver reaches within seconds on tiny problems.
REACH = {"pairwise": 1e-7, "bcfw": 1e-3, "bcpl": 1e-4, "oeg": 1e-2}


def test_the_table_of_tolerances_is_complete():
    assert set(REACH) == set(SOLVERS)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_reaches_the_optimum(name, seed):
    tol = REACH[name]
    problem, twin = random_problem(seed, C=0.3)
    outcome = run(solver_of(name, problem, tol), Stopping(tol, 100_000, 20))
    best = naive.optimum(twin)
    assert outcome.converged
    assert outcome.certificate.dual - 1e-7 <= best <= outcome.certificate.primal + 1e-7
    assert outcome.certificate.gap <= tol
    for record in outcome.history:
        assert record["dual"] <= best + 1e-7 <= record["primal"] + 2e-7


@pytest.mark.parametrize("name", SOLVERS)
def test_certificate_is_that_of_the_stored_solution(name):
    problem, twin = random_problem(3, n=5, C=2.0)
    solver = solver_of(name, problem, 1e-12)
    outcome = run(solver, Stopping(1e-12, 7))
    assert outcome.certificate.primal == pytest.approx(twin.primal(solver.solution().vector), rel=1e-12)
    w, loss = solver.blocks.recompute()
    assert outcome.certificate.dual == pytest.approx(problem.costs @ loss - 0.5 * w @ w, rel=1e-12)
    duals = [record["dual"] for record in outcome.history]
    assert np.all(np.diff(duals) >= -1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("name", SOLVERS)
def test_certificates_do_not_change_a_fit(name):
    """certify and solution after every epoch leave no trace."""
    problem, _ = random_problem(1, n=5, C=2.0)
    watched, alone = solver_of(name, problem, 1e-12), solver_of(name, problem, 1e-12)
    for _ in range(7):
        watched.epoch(Clock())
        alone.epoch(Clock())
        before = watched.certify()
        assert before == watched.certify() and watched.solution() is not None
        np.testing.assert_array_equal(watched.blocks.vector, alone.blocks.vector)
    np.testing.assert_array_equal(watched.solution().vector, alone.solution().vector)
    assert watched.certify() == alone.certify()


@pytest.mark.parametrize("name", SOLVERS)
def test_synchronised_weights_are_those_that_the_steps_kept(name):
    problem, _ = random_problem(4, n=4, C=1.0)
    blocks = solver_of(name, problem).blocks
    for _ in range(60):
        blocks.visit(np.arange(4))
    running, loss = blocks.vector.copy(), blocks.expected_loss()
    blocks.synchronise()
    np.testing.assert_allclose(blocks.vector, running, atol=1e-9)
    np.testing.assert_allclose(blocks.expected_loss(), loss, atol=1e-9)


def test_atoms_survive_growth():
    """Far more labelings than the first capacity holds: the state stays a distribution and w its image."""
    problem, _ = random_problem(11, n=3, K=4, longest=6, C=50.0)
    solver = solver_of("pairwise", problem, 1e-10, start=problem.true_atoms(4))
    run(solver, Stopping(1e-10, 400))
    atoms = solver.solution().dual
    assert atoms.capacity.max() > 4
    np.testing.assert_allclose(np.add.reduceat(atoms.alpha, atoms.atom_at[:-1]), 1.0, atol=1e-12)
    np.testing.assert_allclose(solver.blocks.recompute()[0], solver.blocks.vector, atol=1e-9)


def test_bcpl_stays_consistent_over_many_epochs():
    problem, _ = random_problem(2, n=3, longest=4)
    solver = solver_of("bcpl", problem)
    run(solver, Stopping(1e-12, 120))
    state, fresh = solver.blocks.state, solver.blocks.fresh()
    np.testing.assert_allclose(state.mu, fresh.mu, atol=1e-10)
    np.testing.assert_allclose(state.pairs, fresh.pairs, atol=1e-10)
    np.testing.assert_allclose(state.mu.sum(1), 1.0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(SOLVERS))
@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_the_dual_stays_below_the_optimum_where_marginals_are_all_but_one(name, scale):
    """Samples on a line, x >= 1 of one label and x <= -1 of the other; 1 / 4 scale^2 without transitions."""
    xs, ys = [scale * np.array([[x]]) for x in (1.0, -2.0, 3.0)], [[0], [1], [0]]
    solver = solver_of(name, problem_of(xs, ys, 2, 1.0), 1e-6)
    run(solver, Stopping(tol=1e-6, max_iter=200))
    certificate = solver.certify()
    assert certificate.dual <= 0.25 / scale**2 * (1 + 1e-12)
    assert name != "pairwise" or certificate.gap <= 1e-6
