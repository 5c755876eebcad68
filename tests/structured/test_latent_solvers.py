"""Latent rounds and their block solvers against enumeration, known answers and a generic solver."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.loop import Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.structured import latent_bcpl, latent_pairs
from maxmargin.structured.latent_bcpl import LatentPartialLinearisation
from maxmargin.structured.latent_pairs import LatentPairs
from maxmargin.structured.latent_problem import LatentProblem
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
    method = LatentPairs(known(), seeded(), np.array(KAT["h0"]), round_precision=1e-7)
    outcome = run(method, Stopping(1e-7, 5000))
    assert outcome.converged
    objectives = np.array(method.objectives) * KAT["lam"]
    np.testing.assert_allclose(objectives[:2], KAT["cccp_objectives"], atol=1e-6)
    np.testing.assert_allclose(objectives[2:], KAT["cccp_objectives"][-1], atol=1e-6)
    assert method.chosen.tolist() == KAT["final_h"]


@pytest.mark.parametrize("cls", [LatentPairs, LatentPartialLinearisation])
def test_known_optimum_of_the_first_majoriser(cls):
    problem = known()
    method = cls(problem, seeded(), np.array(KAT["h0"]))
    for _ in range(2000):
        method.visit(np.arange(problem.y.size))
    lam = KAT["lam"]
    assert problem.values(method.W, method.chosen).majoriser * lam == pytest.approx(
        KAT["first_inner_optimum"], abs=1e-6
    )
    assert method.dual() * lam == pytest.approx(KAT["first_inner_optimum"], abs=1e-6)


@pytest.mark.parametrize("cls", [LatentPairs, LatentPartialLinearisation])
def test_inexact_rounds_reach_the_known_end(cls):
    method = cls(known(), seeded(), np.array(KAT["h0"]))
    outcome = run(method, Stopping(1e-6, 5000))
    assert outcome.converged
    assert outcome.certificate.primal * KAT["lam"] == pytest.approx(KAT["cccp_objectives"][-1], abs=2e-6)
    assert method.chosen.tolist() == KAT["final_h"]


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", [False, True])
def test_frank_wolfe_equals_enumerated(sparse):
    problem, twin, chosen = both(0, sparse=sparse)
    method = LatentPairs(problem, seeded(), chosen, pairwise=False)
    for i in np.random.default_rng(0).integers(0, 5, 20):
        method.visit(np.array([i]))
        twin.vertex_step(i)
        np.testing.assert_allclose(method.W.ravel(), twin.w, atol=1e-9)
        assert method.dual() == pytest.approx(twin.dual(), abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(3))
def test_pairwise_equals_enumerated(seed, monkeypatch):
    monkeypatch.setattr(latent_pairs, "CACHED_STEPS", 1)
    problem, twin, chosen = both(seed)
    method = LatentPairs(problem, seeded(), chosen)
    caches = [[b.pairs.index((h, b.y))] for b, h in zip(twin.bags, chosen, strict=True)]
    rng = np.random.default_rng(seed)
    for i, again in zip(rng.integers(0, 5, 40), rng.random(40) < 0.4, strict=True):
        (method.revisit if again else method.visit)(np.array([i]))
        step = twin.cached_step if again else twin.pairwise_step
        step(i, latent_pairs.RELAXATION, caches[i])
        np.testing.assert_allclose(method.W.ravel(), twin.w, atol=1e-9)
        assert method.dual() == pytest.approx(twin.dual(), abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("safeguard", [False, True])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_bcpl_equals_enumerated(tau, safeguard):
    problem, twin, chosen = both(3, sparse=safeguard)
    method = LatentPartialLinearisation(problem, seeded(), chosen, temperature=tau, safeguard=safeguard)
    twin.soften(latent_bcpl.SOFTNESS)
    np.testing.assert_allclose(method.W.ravel(), twin.w, atol=1e-12)
    for i in np.random.default_rng(0).integers(0, 5, 20):
        method.visit(np.array([i]))
        twin.bcpl_step(i, tau, 1 - latent_bcpl.EPSILON, latent_bcpl.FLOOR, safeguard)
        np.testing.assert_allclose(method.W.ravel(), twin.w, atol=1e-9)
        assert method.dual() == pytest.approx(twin.dual(), abs=1e-9)


@pytest.mark.nojit
def test_values_equal_enumerated_and_the_majoriser_touches():
    problem, twin, chosen = both(1)
    W = np.random.default_rng(1).normal(size=problem.weights().shape)
    values = problem.values(W, chosen)
    assert values.objective == pytest.approx(twin.objective(W.ravel()))
    assert values.majoriser == pytest.approx(twin.majoriser(W.ravel()))
    assert values.majoriser >= values.objective
    touching = problem.values(W, values.best)
    assert touching.majoriser == pytest.approx(touching.objective, abs=1e-12)
    np.testing.assert_array_equal(values.best, [b.true_scores(W.ravel()).argmax() for b in twin.bags])


def test_weights_are_repetition():
    """Of the objective, that is; which stationary point is reached depends on the order of visits."""
    bags, y, chosen = random_bags(4, n=8)
    counts = np.array([0, 1, 2, 3, 1, 0, 2, 1])
    again = np.repeat(np.arange(8), counts)
    weighted = problem_of(bags, y, 3, 0.4, weights=counts)
    copied = problem_of([bags[i] for i in again], y[again], 3, 0.4)
    W = np.random.default_rng(0).normal(size=weighted.weights().shape)
    a, b = weighted.values(W, chosen), copied.values(W, chosen[again])
    assert a.objective == pytest.approx(b.objective) and a.majoriser == pytest.approx(b.majoriser)
    first = LatentPairs(weighted, seeded(), chosen, round_precision=0.0)
    second = LatentPairs(copied, seeded(), chosen[again], round_precision=0.0)
    for _ in range(3000):
        first.visit(first.blocks)
        second.visit(second.blocks)
    assert first.dual() == pytest.approx(second.dual(), rel=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("cls", "tol"), [(LatentPairs, 1e-6), (LatentPartialLinearisation, 1e-5)])
def test_majoriser_is_solved_as_a_generic_solver_would(cls, tol, seed):
    problem, twin, chosen = both(seed)
    method = cls(problem, seeded(), chosen, round_precision=0.0)
    for _ in range(3000):
        method.visit(np.arange(5))
    best = naive.optimum(twin)
    assert method.dual() == pytest.approx(best, rel=tol)
    assert method.dual() <= best + 1e-7 <= problem.values(method.W, chosen).majoriser + 2e-7


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("cls", "options", "tol"),
    [
        (LatentPairs, {}, 1e-5),
        (LatentPairs, {"pairwise": False}, 1e-2),
        (LatentPartialLinearisation, {}, 1e-4),
        (LatentPartialLinearisation, {"safeguard": False}, 1e-3),
    ],
)
def test_objective_never_rises_and_ends_stationary(cls, options, tol, seed):
    problem, _, chosen = both(seed, C=3.0)
    method = cls(problem, seeded(), chosen, **options)
    start = method.objective
    outcome = run(method, Stopping(tol, 50_000))
    assert outcome.converged
    primals = [start, *(record["primal"] for record in outcome.history)]
    assert np.all(np.diff(primals) <= 1e-12)
    assert np.all(np.diff(method.objectives) < 0)
    assert all(record["dual"] <= record["primal"] for record in outcome.history)
    values = problem.values(method.accepted, method.chosen)
    np.testing.assert_array_equal(values.best, method.chosen)
    assert outcome.certificate.primal == pytest.approx(values.objective, rel=1e-12)


def test_change_of_candidates_keeps_alpha_a_distribution_and_its_gram():
    problem, _, chosen = both(2, C=5.0)
    method = LatentPairs(problem, seeded(), chosen)
    for _ in range(30):
        method.visit(np.arange(5))
    other = np.minimum(chosen + 1, problem.sizes - 1)
    method.follow(other)
    s = method.state
    np.testing.assert_allclose(np.add.reduceat(s.alpha, s.slot_at[:-1]), 1.0, atol=1e-12)
    X = problem.rows.matrix
    for i in range(5):
        pairs = s.labels[s.label_at[i] : s.label_at[i + 1]].reshape(-1, 2)[: s.count[i]]
        assert len({tuple(pair) for pair in pairs.tolist()}) == len(pairs)
        rows = X[problem.offsets[i] + pairs[:, 0]]
        expected = (rows @ rows.T + problem.bias**2) * (pairs[:, 1][:, None] == pairs[:, 1])
        room = s.capacity[i]
        gram = s.grams[s.gram_at[i] : s.gram_at[i + 1]].reshape(room, room)
        np.testing.assert_allclose(gram[: s.count[i], : s.count[i]], expected, atol=1e-12)
