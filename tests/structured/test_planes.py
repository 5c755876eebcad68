"""Cutting planes: the interior point method against enumeration, and what it is there for, a large C."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from maxmargin import ChainSVC, LatentSVC
from maxmargin.core.loop import Clock
from maxmargin.structured import atoms, planes
from maxmargin.structured.atoms import AtomBlocks
from maxmargin.structured.latent_rounds import PairBlocks
from maxmargin.structured.oracle_loops import expand_atoms
from maxmargin.structured.planes import Listed, solve_listed
from tests.naive import chain as naive
from tests.naive.latent import pair_features
from tests.structured.test_chain_solvers import random_problem
from tests.structured.test_latent_solvers import both


def overlapping_words(n=60, K=3, f=4, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(K, f))
    y = [rng.integers(0, K, rng.integers(1, 7)) for _ in range(n)]
    return [centres[z] + 2 * rng.normal(size=(len(z), f)) for z in y], y


def overlapping_bags(n=90, K=3, d=4, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    bags = [rng.normal(size=(rng.integers(1, 5), d)) for _ in y]
    for k, rows in zip(y, bags, strict=True):
        rows[rng.integers(len(rows)), k] += 1.0
    return bags, y


@pytest.mark.parametrize("C", [1.0, 1e2, 1e4])
@pytest.mark.parametrize(
    ("model", "data"), [(ChainSVC, overlapping_words), (LatentSVC, overlapping_bags)], ids=["chain", "latent"]
)
def test_few_features_and_overlapping_classes_converge_at_any_C(model, data, C):
    fitted = model(C=C, random_state=0, max_iter=200).fit(*data())
    assert fitted.duality_gap_ <= 1e-3


@pytest.mark.parametrize(
    ("model", "data"), [(ChainSVC, overlapping_words), (LatentSVC, overlapping_bags)], ids=["chain", "latent"]
)
@pytest.mark.parametrize("solver", ["bcfw", "bcpl", "oeg"])
def test_a_solver_far_from_the_optimum_at_large_C_names_the_one_that_gets_there(model, data, solver):
    fitted = model(C=100.0, solver=solver, random_state=0, max_iter=20)
    with pytest.warns(ConvergenceWarning, match='To get closer, use solver="pairwise", increase max_iter'):
        fitted.fit(*data())
    fitted.set_params(solver="pairwise", max_iter=200).fit(*data())
    assert fitted.duality_gap_ <= 1e-3


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_slow_steps_on_more_weights_are_followed_by_cutting_planes(monkeypatch, C):
    monkeypatch.setattr(planes, "WIDEST", 10)
    X, y = overlapping_words()
    late = ChainSVC(C=C, random_state=0).fit(X, y)
    assert late.duality_gap_ <= 1e-3
    monkeypatch.undo()
    early = ChainSVC(C=C, random_state=0).fit(X, y)
    assert late.primal_objective_ == pytest.approx(early.primal_objective_, rel=2e-3)


@pytest.mark.parametrize("weights", [None, np.arange(60) % 3])
def test_steps_and_cutting_planes_reach_one_optimum(monkeypatch, weights):
    X, y = overlapping_words()
    given = {"C": 1.0, "tol": 1e-5, "max_iter": 5000, "random_state": 0}
    by_planes = ChainSVC(**given).fit(X, y, weights)
    monkeypatch.setattr(atoms, "affordable", lambda answers, weights, late: False)
    by_steps = ChainSVC(**given).fit(X, y, weights)
    assert by_planes.primal_objective_ == pytest.approx(by_steps.primal_objective_, rel=1e-5)
    np.testing.assert_allclose(by_planes.coef_, by_steps.coef_, atol=1e-2)


def listed_of(twin):
    """All labelings of all sequences, and equal shares of them."""
    sizes = np.array([len(b.zs) for b in twin.blocks])
    listed = Listed(
        np.concatenate([b.psi for b in twin.blocks]),
        np.concatenate([b.delta for b in twin.blocks]),
        np.array([b.cost for b in twin.blocks]),
        np.cumsum(sizes) - sizes,
    )
    return listed, np.repeat(1.0 / sizes, sizes)


@pytest.mark.parametrize("C", [0.1, 10.0, 1e3])
def test_the_optimum_over_all_answers_is_that_of_the_problem(C):
    problem, twin = random_problem(1, C=C)
    listed, shares = listed_of(twin)
    w, alpha = solve_listed(listed, np.zeros(problem.size), shares, 1e-13, Clock())
    np.testing.assert_allclose(listed.sums(alpha), 1.0, rtol=1e-12)
    assert alpha.min() >= 0
    expected = naive.optimum(twin)
    assert problem.primal(w) == pytest.approx(expected, rel=1e-6)
    assert listed.dual(listed.repeat(listed.costs) * alpha) == pytest.approx(expected, rel=1e-6)


def laid_out(blocks, order):
    vector = np.zeros(blocks.problem.size)
    rows = np.empty((blocks.atoms.filled[order].sum(), vector.size))
    expand_atoms(blocks.blocks, blocks.atoms, order, blocks.problem.shaped(vector), vector, rows)
    assert not vector.any()
    return rows


def test_features_of_labelings():
    problem, _ = random_problem(3, n=5)
    blocks = AtomBlocks(problem, problem.blocks, problem.true_atoms(8), problem.workspace())
    blocks.visit(np.arange(5))
    order, expected = np.array([4, 1]), []
    for i in order:
        truth = problem.y[problem.offsets[i] : problem.offsets[i + 1]]
        x = problem.rows.matrix[problem.offsets[i] : problem.offsets[i + 1]]
        labelings = blocks.atoms.of(i)[0][: blocks.atoms.filled[i]]
        expected += [naive.features(x, truth, 3) - naive.features(x, z, 3) for z in labelings]
    np.testing.assert_allclose(laid_out(blocks, order), expected, atol=1e-12)


def test_features_of_pairs():
    problem, _, chosen = both(2, C=5.0, bias=0.5)
    blocks = PairBlocks(problem, chosen)
    blocks.visit(np.arange(5))
    X = np.column_stack([problem.rows.matrix, np.full(problem.offsets[-1], 0.5)])
    expected = []
    for i in range(5):
        truth = pair_features(X[problem.offsets[i] + chosen[i]], problem.y[i], 3)
        for h, k in blocks.atoms.of(i)[0][: blocks.atoms.filled[i]]:
            expected.append(truth - pair_features(X[problem.offsets[i] + h], k, 3))
    np.testing.assert_allclose(laid_out(blocks, np.arange(5)), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("solver", "settings", "name"),
    [
        ("bcfw", {"pairwise": False}, "bcfw"),
        ("planes", {"first_steps": 0}, "planes"),
        ("late planes", {"first_steps": 0, "late_steps": 0, "repeats": 0}, "planes"),
        ("pairwise", {}, "pairwise"),
    ],
)
def test_every_row_of_the_choice_is_taken(monkeypatch, solver, settings, name):
    if solver == "late planes":
        monkeypatch.setattr(planes, "WIDEST", 1)
    problem, _ = random_problem(3, n=5)
    blocks = AtomBlocks(problem, problem.blocks, problem.true_atoms(8), problem.workspace(), **settings)
    blocks.sweep(np.random.RandomState(0), Clock())
    assert blocks.name == name
    place = ["bcfw", "planes", "late planes", "pairwise"].index(solver)
    assert atoms.first_that_holds(atoms.ROWS, blocks) is atoms.ROWS[place]


@pytest.mark.parametrize(
    ("model", "data"), [(ChainSVC, overlapping_words), (LatentSVC, overlapping_bags)], ids=["chain", "latent"]
)
def test_the_solver_that_ran_is_named(model, data):
    fitted = model(C=1e4, random_state=0, max_iter=200).fit(*data())
    assert fitted.solver_ == "pairwise, then planes"
    assert {record["solver"] for record in fitted.history_} == {"pairwise", "planes"}
    with pytest.warns(ConvergenceWarning):
        assert model(solver="oeg", random_state=0, max_iter=2).fit(*data()).solver_ == "oeg"
