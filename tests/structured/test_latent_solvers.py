"""Latent rounds and their block solvers against enumeration, known answers and a generic solver."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.loop import ROUNDING, Clock, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.structured.latent import SOLVERS
from maxmargin.structured.latent_rounds import SOFTNESS, LatentProblem, LatentRounds, PairBlocks, SoftPairs
from tests.golden import classes, features
from tests.naive import latent as naive

KAT = json.loads((Path(__file__).parents[1] / "fixtures" / "kat_latent.json").read_text())


def problem_of(bags, y, K, C, bias=0.0, sparse=False, weights=None):
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in bags])])
    X = np.concatenate([np.asarray(b, float) for b in bags])
    return LatentProblem(
        Rows.of(sp.csr_array(X) if sparse else X), offsets, np.asarray(y), K, C, weights, bias
    )


def known():
    return problem_of(KAT["feats"], KAT["y"], 3, 1 / (KAT["lam"] * len(KAT["y"])))


def random_bags(seed, n=5, K=3, d=2, most=3):
    rng = np.random.default_rng(seed)
    bags = [rng.normal(size=(rng.integers(1, most + 1), d)) for _ in range(n)]
    chosen = np.array([rng.integers(len(b)) for b in bags])
    return bags, rng.integers(0, K, n), chosen


def both(seed, C=0.7, bias=0.5, sparse=False):
    bags, y, chosen = random_bags(seed)
    problem = problem_of(bags, y, 3, C, bias, sparse)
    return problem, naive.Enumerated(bags, y, 3, problem.costs, chosen, bias), chosen


def seeded():
    return np.random.RandomState(0)


def test_known_rounds():
    """Every majoriser is solved almost exactly, so the rounds are those of the exact algorithm."""
    problem = known()
    solver = LatentRounds(
        problem, PairBlocks(problem, np.array(KAT["h0"])), seeded(), 1e-7, round_precision=1e-7
    )
    outcome = run(solver, Stopping(1e-7, 5000))
    assert outcome.converged
    objectives = solver.solution().objectives * KAT["lam"]
    np.testing.assert_allclose(objectives[:2], KAT["cccp_objectives"], atol=1e-6)
    np.testing.assert_allclose(objectives[2:], KAT["cccp_objectives"][-1], atol=1e-6)
    assert solver.solution().chosen.tolist() == KAT["final_h"]


@pytest.mark.parametrize("cls", [PairBlocks, SoftPairs])
def test_known_optimum_of_the_first_majoriser(cls):
    problem = known()
    chosen = np.array(KAT["h0"])
    blocks = cls(problem, chosen)
    for _ in range(2000):
        blocks.visit(np.arange(problem.y.size))
    lam = KAT["lam"]
    assert problem.values(blocks.vector, chosen).majoriser * lam == pytest.approx(
        KAT["first_inner_optimum"], abs=1e-6
    )
    assert blocks.objective() * lam == pytest.approx(KAT["first_inner_optimum"], abs=1e-6)


@pytest.mark.parametrize("name", ["pairwise", "bcpl"])
def test_inexact_rounds_reach_the_known_end(name):
    solver = SOLVERS[name].build(known(), seeded(), 1e-6, np.array(KAT["h0"]))
    outcome = run(solver, Stopping(1e-6, 5000))
    assert outcome.converged
    assert outcome.certificate.primal * KAT["lam"] == pytest.approx(KAT["cccp_objectives"][-1], abs=2e-6)
    assert solver.solution().chosen.tolist() == KAT["final_h"]


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", [False, True])
def test_frank_wolfe_equals_enumerated(sparse):
    problem, twin, chosen = both(0, sparse=sparse)
    blocks = PairBlocks(problem, chosen, pairwise=False)
    for i in np.random.default_rng(0).integers(0, 5, 20):
        blocks.visit(np.array([i]))
        twin.vertex_step(i)
        np.testing.assert_allclose(blocks.vector, twin.w, atol=1e-9)
        assert blocks.objective() == pytest.approx(twin.dual(), abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(3))
def test_pairwise_equals_enumerated(seed):
    problem, twin, chosen = both(seed)
    blocks = PairBlocks(problem, chosen, steps=1)
    caches = [[b.pairs.index((h, b.y))] for b, h in zip(twin.bags, chosen, strict=True)]
    rng = np.random.default_rng(seed)
    for i, again in zip(rng.integers(0, 5, 40), rng.random(40) < 0.4, strict=True):
        (blocks.revisit if again else blocks.visit)(np.array([i]))
        step = twin.cached_step if again else twin.pairwise_step
        step(i, blocks.rule.relaxation, caches[i])
        np.testing.assert_allclose(blocks.vector, twin.w, atol=1e-9)
        assert blocks.objective() == pytest.approx(twin.dual(), abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("safeguard", [False, True])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_bcpl_equals_enumerated(tau, safeguard):
    problem, twin, chosen = both(3, sparse=safeguard)
    blocks = SoftPairs(problem, chosen, temperature=tau, safeguard=safeguard)
    twin.soften(SOFTNESS)
    np.testing.assert_allclose(blocks.vector, twin.w, atol=1e-12)
    for i in np.random.default_rng(0).integers(0, 5, 20):
        blocks.visit(np.array([i]))
        twin.bcpl_step(i, tau, blocks.rule.longest, blocks.rule.floor, safeguard)
        np.testing.assert_allclose(blocks.vector, twin.w, atol=1e-9)
        assert blocks.objective() == pytest.approx(twin.dual(), abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", [False, True])
def test_oeg_equals_enumerated(sparse):
    problem, twin, chosen = both(3, sparse=sparse)
    blocks = SoftPairs(problem, chosen, temperature=0.3, safeguard=False, search=False)
    twin.soften(SOFTNESS)
    for i in np.random.default_rng(0).integers(0, 5, 20):
        blocks.visit(np.array([i]))
        twin.oeg_step(i, 0.3, blocks.rule.floor)
        np.testing.assert_allclose(blocks.vector, twin.w, atol=1e-9)


def test_oeg_never_lowers_the_dual_at_its_safe_temperature():
    problem, _, chosen = both(2, C=3.0)
    blocks = SoftPairs(problem, chosen, safeguard=False, search=False)
    before = blocks.objective()
    for i in np.random.default_rng(0).integers(0, 5, 300):
        blocks.visit(np.array([i]))
        after = blocks.objective()
        assert after >= before - 1e-12 * abs(before)
        before = after


@pytest.mark.parametrize("C", [0.1, 1e3, 1e6])
def test_soft_steps_start_where_the_dual_is_highest_before_the_softened_truth(C):
    problem, twin, chosen = both(0, C=C)
    blocks = SoftPairs(problem, chosen)
    duals = []
    for share in np.linspace(0, 1, 2001)[1:]:
        twin.soften(share * SOFTNESS)
        duals.append(twin.dual())
    assert blocks.objective() > 0
    assert blocks.objective() >= max(duals) * (1 - 1e-9)


@pytest.mark.nojit
def test_values_equal_enumerated_and_the_majoriser_touches():
    problem, twin, chosen = both(1)
    W = np.random.default_rng(1).normal(size=problem.size)
    values = problem.values(W, chosen)
    assert values.objective == pytest.approx(twin.objective(W))
    assert values.majoriser == pytest.approx(twin.majoriser(W))
    assert values.majoriser >= values.objective
    touching = problem.values(W, values.best)
    assert touching.majoriser == pytest.approx(touching.objective, abs=1e-12)
    np.testing.assert_array_equal(values.best, [b.true_scores(W).argmax() for b in twin.bags])


def test_weights_are_repetition():
    """Of the objective, that is; which stationary point is reached depends on the order of visits."""
    bags, y, chosen = random_bags(4, n=8)
    counts = np.array([0, 1, 2, 3, 1, 0, 2, 1])
    again = np.repeat(np.arange(8), counts)
    weighted = problem_of(bags, y, 3, 0.4, weights=counts)
    copied = problem_of([bags[i] for i in again], y[again], 3, 0.4)
    W = np.random.default_rng(0).normal(size=weighted.size)
    a, b = weighted.values(W, chosen), copied.values(W, chosen[again])
    assert a.objective == pytest.approx(b.objective) and a.majoriser == pytest.approx(b.majoriser)
    first, second = PairBlocks(weighted, chosen), PairBlocks(copied, chosen[again])
    for _ in range(3000):
        first.visit(first.visited)
        second.visit(second.visited)
    assert first.objective() == pytest.approx(second.objective(), rel=1e-8)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("cls", "tol"), [(PairBlocks, 1e-6), (SoftPairs, 1e-5)])
def test_majoriser_is_solved_as_a_generic_solver_would(cls, tol, seed):
    problem, twin, chosen = both(seed)
    blocks = cls(problem, chosen)
    for _ in range(3000):
        blocks.visit(np.arange(5))
    best = naive.optimum(twin)
    assert blocks.objective() == pytest.approx(best, rel=tol)
    assert blocks.objective() <= best + 1e-7 <= problem.values(blocks.vector, chosen).majoriser + 2e-7


# What each solver reaches within seconds on tiny problems.
REACH = [
    ("pairwise", {}, 1e-5),
    ("bcfw", {}, 1e-2),
    ("bcpl", {}, 1e-4),
    ("bcpl", {"safeguard": False}, 1e-3),
    ("oeg", {}, 1e-2),
]


def test_the_table_of_tolerances_is_complete():
    assert {name for name, _, _ in REACH} == set(SOLVERS)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "options", "tol"), REACH)
def test_objective_never_rises_and_ends_stationary(name, options, tol, seed):
    problem, _, chosen = both(seed, C=3.0)
    solver = SOLVERS[name].build(problem, seeded(), tol, chosen, **options)
    start = solver.objective
    outcome = run(solver, Stopping(tol, 50_000))
    assert outcome.converged
    primals = [record["primal"] for record in outcome.history]
    assert all(after <= before for before, after in pairwise(primals)) and primals[-1] <= start
    assert all(record["dual"] <= record["primal"] * (1 + ROUNDING) for record in outcome.history)
    solution = solver.solution()
    assert np.all(np.diff(solution.objectives) < 0)
    values = problem.values(solution.vector, solution.chosen)
    np.testing.assert_array_equal(values.best, solution.chosen)
    assert outcome.certificate.primal == pytest.approx(values.objective, rel=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("name", SOLVERS)
def test_certificates_do_not_change_a_fit(name):
    """certify and solution after every epoch leave no trace, in the first round and later."""
    problem, _, chosen = both(3, C=3.0)
    watched, alone = (SOLVERS[name].build(problem, seeded(), 1e-9, chosen) for _ in range(2))
    for _ in range(12):
        watched.epoch(Clock())
        alone.epoch(Clock())
        assert watched.certify() == watched.certify() and watched.solution() is watched.solution()
        np.testing.assert_array_equal(watched.blocks.vector, alone.blocks.vector)
        np.testing.assert_array_equal(watched.blocks.blocks.chosen, alone.blocks.blocks.chosen)
    assert watched.certify() == alone.certify()
    np.testing.assert_array_equal(watched.solution().vector, alone.solution().vector)


def test_candidates_that_lead_nowhere_are_given_up():
    """No weights lower the majoriser of the first candidates below W = 0; those found on the way lead on."""
    problem = problem_of(features("dense", "float64").reshape(40, 3, 8), classes(40), 4, 1.0, bias=1.0)
    first = np.zeros(40, np.int64)
    blocks = PairBlocks(problem, first)
    for _ in range(200):
        blocks.visit(np.arange(40))
    assert blocks.objective() > 0.999 * problem.costs.sum()
    solver = SOLVERS["pairwise"].build(problem, seeded(), 1e-2, first)
    outcome = run(solver, Stopping(1e-2, 1000))
    assert outcome.converged
    assert outcome.certificate.primal < 0.95 * problem.costs.sum()


def test_change_of_candidates_keeps_alpha_a_distribution_and_its_gram():
    problem, _, chosen = both(2, C=5.0)
    blocks = PairBlocks(problem, chosen)
    for _ in range(30):
        blocks.visit(np.arange(5))
    other = np.minimum(chosen + 1, problem.sizes - 1)
    blocks.follow(other)
    atoms = blocks.atoms
    np.testing.assert_allclose(np.add.reduceat(atoms.alpha, atoms.atom_at[:-1]), 1.0, atol=1e-12)
    X = problem.rows.matrix
    for i in range(5):
        pairs, _, gram = atoms.of(i)
        m = atoms.filled[i]
        pairs = pairs[:m]
        assert len({tuple(pair) for pair in pairs.tolist()}) == len(pairs)
        rows = X[problem.offsets[i] + pairs[:, 0]]
        expected = (rows @ rows.T + problem.bias**2) * (pairs[:, 1][:, None] == pairs[:, 1])
        np.testing.assert_allclose(gram[:m, :m], expected, atol=1e-12)


@pytest.mark.parametrize("name", sorted(SOLVERS))
@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_the_dual_stays_below_the_optimum_where_alpha_is_all_but_one(name, scale):
    """Three bags of one sample on a line: the optimum is 1 / (4 scale^2), alpha 1 / scale^2 away from 1."""
    bags, optimum = [scale * np.array([[x]]) for x in (1.0, -2.0, 3.0)], 0.25 / scale**2
    solver = SOLVERS[name].build(problem_of(bags, [0, 1, 0], 2, 1.0), seeded(), 1e-6, np.zeros(3, int))
    run(solver, Stopping(tol=1e-6, max_iter=200))
    certificate = solver.certify()
    assert certificate.dual <= optimum * (1 + 1e-12)
    assert name != "pairwise" or certificate.gap <= 1e-6
