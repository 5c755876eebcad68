"""Training of the submodular machine: optimum, duality, solvers against each other and cvxpy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from maxmargin import SubmodularSVC
from maxmargin.core.listed_qp import Point
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.submodular import interior
from maxmargin.submodular.bcfw import ClippedBCFW, vector_of
from maxmargin.submodular.bundle import Bundle, maximise_model
from maxmargin.submodular.estimator import SOLVERS
from maxmargin.submodular.problem import LabelPairs, SubmodularF1, attractive_pairs, cooccurrence
from tests.naive import submodular as naive

KNOWN = json.loads((Path(__file__).parents[1] / "fixtures" / "kat_submodular.json").read_text())


def tiny(seed, N=7, V=4, D=3, fraction=1.0, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    truth = (X @ rng.normal(size=(D, V)) + rng.normal(size=(N, V)) > 0).astype(np.uint8)
    pairs = attractive_pairs(truth, fraction, 1.0)
    cost = rng.uniform(0.2, 1.5, N)
    return SubmodularF1(Rows.of(X), truth, cost, pairs, **options)


def solver_of(name, problem, **options):
    return SOLVERS[name].build(SubmodularSVC(solver=name, random_state=0, **options), problem)


def all_constraints(problem):
    """The quadratic program with one constraint for every sample and set."""
    X = np.column_stack([problem.rows.matrix, np.full(len(problem.truth), problem.bias)])
    N, V, D, E = problem.shape
    Z, t, xi = cp.Variable((D + 1, V)), cp.Variable(E, nonneg=True), cp.Variable(N, nonneg=True)
    sets = naive.all_sets(V)
    constraints = []
    for n in range(N):
        truth = problem.truth[n].astype(int)
        joint = naive.pair_features(sets, problem.pairs.index) - naive.pair_features(
            truth[None], problem.pairs.index
        )
        margin = (sets - truth) @ (X[n] @ Z)
        if E:
            margin = margin + (joint * problem.pairs.strength) @ t
        constraints.append(naive.losses_of(sets, truth) + margin <= xi[n])
    norm = cp.sum_squares(Z) + (cp.sum_squares(t) if E else 0)
    program = cp.Problem(cp.Minimize(0.5 * norm + problem.cost @ xi), constraints)
    return program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9)


@pytest.mark.parametrize("case", KNOWN["cooccurrence"])
def test_known_pairs(case):
    Y = np.array(case["Y"])
    np.testing.assert_allclose(np.triu(cooccurrence(Y), 1), case["count"])
    half = attractive_pairs(Y, 0.5, 1.0)
    assert half.index.tolist() == case["top_half"]
    np.testing.assert_allclose(half.strength, np.array(case["max"])[tuple(half.index.T)], atol=1e-9)
    jaccard = attractive_pairs(Y, 0.5, 2.0, "jaccard")
    np.testing.assert_allclose(
        jaccard.strength, 2 * np.array(case["jaccard"])[tuple(half.index.T)], atol=1e-9
    )


def test_number_of_pairs_in_the_paper():
    rng = np.random.default_rng(0)
    assert len(attractive_pairs(rng.random((400, 14)) < 0.5, 0.5, 1.0)) == 45
    assert len(attractive_pairs(rng.random((400, 53)) < 0.5, 0.05, 1.0)) == 68
    never = np.eye(5, dtype=int)
    assert len(attractive_pairs(never, 1.0, 1.0)) == 0


@pytest.mark.parametrize("case", KNOWN["bundle_qp"])
def test_known_master_problem(case):
    lam, E = case["lam"], case["nonneg_last"]
    G = np.vstack([np.zeros(len(case["G"][0])), case["G"]]) / np.sqrt(lam)
    b = np.concatenate([[0.0], case["b"]])
    free = G.shape[1] - E
    K = G[:, :free] @ G[:, :free].T
    start = np.eye(len(b))[0]
    alpha, grad = maximise_model(K, G[:, free:], b, start, 1e-12)
    theta = -alpha @ G / np.sqrt(lam)
    theta[free:] = np.maximum(theta[free:], 0)
    np.testing.assert_allclose(theta, case["theta"], atol=1e-5)
    value = lam / 2 * theta @ theta + max(0, np.max(np.array(case["b"]) + np.array(case["G"]) @ theta))
    assert value == pytest.approx(case["value"], abs=1e-7)
    assert grad.max() - alpha @ grad <= 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_master_problem_against_cvxpy(seed):
    rng = np.random.default_rng(seed)
    m, free, E = int(rng.integers(2, 25)), int(rng.integers(1, 30)), int(rng.integers(0, 12))
    G = rng.normal(size=(m, free + E)) * 10.0 ** rng.integers(-2, 3)
    if seed % 2:
        G[1:] = G[rng.integers(0, m, m - 1)]
    G[0] = 0
    b = np.concatenate([[0.0], rng.random(m - 1)])
    alpha = rng.dirichlet(np.ones(m))
    K, B = G[:, :free] @ G[:, :free].T, G[:, free:]
    alpha, grad = maximise_model(K, B, b, alpha, 1e-10)
    theta = np.concatenate([-alpha @ G[:, :free], np.maximum(-alpha @ B, 0)])
    dual = b @ alpha - 0.5 * theta @ theta
    assert (alpha >= 0).all() and alpha.sum() == pytest.approx(1.0)
    assert grad.max() - alpha @ grad <= 1e-10
    x = cp.Variable(free + E)
    planes = cp.max(b + G @ x)
    bounds = [x[free:] >= 0] if E else []
    model = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(x) + planes), bounds)
    assert dual == pytest.approx(model.solve(solver=cp.CLARABEL), abs=1e-6)


@pytest.mark.parametrize("case", KNOWN["ssvm"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_known_optimum(case, solver):
    X, Y = np.array(case["X"]), np.array(case["Y"], np.uint8)
    N = len(Y)
    C = 1 / (case["lam"] * N)
    pairs = LabelPairs(np.array(case["pairs"]), np.array(case["C"]))
    problem = SubmodularF1(Rows.of(X), Y, np.full(N, C), pairs, bias=0.0)
    method = solver_of(solver, problem)
    outcome = run(method, Stopping(1e-7, 20000))
    scale = C * N
    assert outcome.converged
    assert outcome.certificate.primal / scale == pytest.approx(case["objective"], abs=1e-6)
    assert outcome.certificate.dual / scale == pytest.approx(case["lower_bound"], abs=1e-6)
    Z, t = problem.split(method.solution().theta)
    np.testing.assert_allclose(Z[:-1].T, case["theta1"], atol=2e-3)
    np.testing.assert_allclose(t, case["theta2"], atol=2e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_all_methods_reach_the_optimum_of_the_full_program(seed, fraction):
    problem = tiny(seed, fraction=fraction)
    best = all_constraints(problem)
    for method in (
        *(solver_of(name, problem) for name in SOLVERS),
        Bundle(problem, line_search=False),
        ClippedBCFW(problem, np.random.RandomState(0), renewal=1),
        ClippedBCFW(problem, np.random.RandomState(0), proximal_weight=0.0),
        ClippedBCFW(problem, np.random.RandomState(0), proximal_weight=10.0),
    ):
        outcome = run(method, Stopping(1e-6, 5000))
        assert outcome.converged
        assert outcome.certificate.primal == pytest.approx(best, rel=5e-6)
        assert outcome.certificate.dual == pytest.approx(best, rel=5e-6)
        assert (method.problem.split(method.solution().theta)[1] >= 0).all()


def test_plain_block_frank_wolfe_comes_near():
    best = all_constraints(tiny(0))
    outcome = run(ClippedBCFW(tiny(0), np.random.RandomState(0), memory=1), Stopping(1e-2, 5000))
    assert outcome.converged and outcome.certificate.primal == pytest.approx(best, rel=1e-2)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("inference", ["exact", "fixed_point"])
def test_weak_duality_at_every_record(solver, inference):
    problem = tiny(5, N=12, V=5, exact=inference == "exact")
    best = all_constraints(problem)
    method = solver_of(solver, problem)
    outcome = run(method, Stopping(1e-6, 300))
    duals = [record["dual"] for record in outcome.history]
    assert (np.diff(duals) >= -1e-9 * best).all()
    for record in outcome.history:
        assert record["dual"] <= best * (1 + 1e-7) and record["dual"] <= record["primal"]
        assert record["primal"] >= best * (1 - 1e-7)
    assert outcome.certificate.primal >= best * (1 - 1e-7)
    assert outcome.certificate.dual <= best * (1 + 1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("inference", ["exact", "fixed_point"])
def test_certificates_change_nothing(solver, inference):
    problem = tiny(6, N=15, V=6, exact=inference == "exact", max_nodes=2)
    alone, watched = solver_of(solver, problem), solver_of(solver, problem)
    for _ in range(12):
        seen, expected = watched.epoch(Clock()), alone.epoch(Clock())
        assert seen == expected
        assert watched.certify() == watched.certify()
        assert np.array_equal(watched.solution().theta, alone.solution().theta)


@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_do_not_change_the_result(solver):
    def fitted(n_jobs):
        method = solver_of(solver, tiny(7, N=20, V=6, n_jobs=n_jobs))
        return method, [method.epoch(Clock()) for _ in range(8)]

    alone, records = fitted(None)
    for n_jobs in (1, 3):
        method, others = fitted(n_jobs)
        assert others == records and method.certify() == alone.certify()
        assert np.array_equal(method.solution().theta, alone.solution().theta)
        assert np.array_equal(method.hints, alone.hints)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_is_left_as_it_was(solver):
    problem = tiny(8)
    first = solver_of(solver, problem)
    run(first, Stopping(1e-3, 50))
    solution = first.solution()
    before = first.certify()
    again = type(first)(
        problem, start=solution, **({"rng": np.random.RandomState(1)} if solver == "bcfw" else {})
    )
    again.epoch(Clock())
    assert first.certify() == before and again.certify().dual >= before.dual * (1 - 1e-9)


def test_certificate_is_that_of_the_stored_solution():
    problem = tiny(1)
    method = Bundle(problem)
    outcome = run(method, Stopping(1e-4, 500))
    theta = method.solution().theta
    Z, t = problem.split(theta)
    W = np.zeros((4, 4))
    W[tuple(problem.pairs.index.T)] = problem.pairs.strength * t
    X = np.column_stack([problem.rows.matrix, np.ones(len(problem.truth))])
    slack = []
    for n, truth in enumerate(problem.truth.astype(int)):
        best, _ = naive.loss_augmented(X[n] @ Z, W, truth)
        slack.append(best - naive.scores_of(truth[None], X[n] @ Z, W)[0])
    primal = 0.5 * theta @ theta + problem.cost @ np.array(slack)
    assert outcome.certificate.primal == pytest.approx(primal, rel=1e-8)


@pytest.mark.parametrize("seed", range(2))
def test_inexact_inference_reaches_a_true_gap_or_names_the_remedy(seed):
    problem = tiny(seed, N=10, V=5, exact=False)
    outcome = run(Bundle(problem), Stopping(1e-6, 5000))
    assert outcome.converged or "inference='exact'" in outcome.remedy
    assert outcome.certificate.primal >= all_constraints(problem) * (1 - 1e-7)


@pytest.mark.parametrize(
    "options, remedy",
    [
        ({"max_nodes": 1}, "increase max_nodes"),
        ({"max_nodes": 1000}, "scale the features"),
        ({"exact": False}, "use inference='exact'"),
    ],
)
def test_the_remedy_of_a_stuck_solver_is_what_ended_its_searches(options, remedy):
    problem = tiny(3, N=12, V=6, **options)
    assert problem.remedy(np.ones(problem.dimension)) == remedy


def test_truncated_search_still_proves_its_gap():
    problem = tiny(3, N=12, V=6, max_nodes=1)
    outcome = run(Bundle(problem), Stopping(1e-3, 200))
    best = all_constraints(problem)
    assert outcome.certificate.dual <= best * (1 + 1e-7) <= outcome.certificate.primal * (1 + 2e-7)


@pytest.mark.nojit
@pytest.mark.parametrize("V", [3, 5])
def test_block_pass_equals_its_twin(V):
    problem = tiny(2, N=4, V=V, D=2, bias=0.0)
    X = problem.rows.matrix
    index, strength = problem.pairs.index, problem.pairs.strength
    rng = np.random.default_rng(0)
    # Half the weight on a wrong set each: at theta = 0 many sets would tie.
    others = 1 - problem.truth
    state = [([t.astype(int), o.astype(int)], [0.5, 0.5]) for t, o in zip(problem.truth, others, strict=True)]
    method = ClippedBCFW(problem, np.random.RandomState(0), memory=30, proximal_weight=0.0)
    blocks = method.blocks
    # The other half is not remembered: it is the rest.
    blocks.memory[:, 0], blocks.share[:, 0], blocks.kept[:] = others, 0.5, 1
    sides = others.astype(float), problem.truth.astype(float)
    blocks.labels[:] = 0.5 * (sides[0] - sides[1])
    blocks.joints[:] = 0.5 * (naive.pair_features(sides[0], index) - naive.pair_features(sides[1], index))
    blocks.losses[:] = 0.5 * problem.losses(others)
    method.vector = vector_of(problem, blocks)
    for turn in range(8):
        order, ask = rng.permutation(4), turn % 2 == 0
        # One step per visit: after an exact one, two planes of the block have the same value.
        method.visit(order, ask, rounds=1)
        naive.block_pass(X, problem.truth.astype(int), problem.cost, index, strength, order, state, 1, ask)
        Z, u = problem.split(method.vector)
        expected = naive.dual_vector(X, problem.truth.astype(int), problem.cost, index, strength, state)
        np.testing.assert_allclose(Z[:-1], expected[0], atol=1e-10)
        np.testing.assert_allclose(u, expected[1], atol=1e-10)
        np.testing.assert_allclose(method.vector, vector_of(problem, blocks), atol=1e-10)
        dual = problem.cost @ blocks.losses - 0.5 * np.sum(Z**2) - 0.5 * np.sum(np.maximum(u, 0) ** 2)
        twin = naive.dual_value(X, problem.truth.astype(int), problem.cost, index, strength, state)
        assert dual == pytest.approx(twin, abs=1e-10)


@pytest.mark.parametrize("memory", [1, 2, 3])
def test_a_small_memory_keeps_the_dual_rising(memory):
    problem = tiny(4, N=9, V=5)
    method = ClippedBCFW(problem, np.random.RandomState(1), memory=memory)
    duals = []
    for _ in range(30):
        method.epoch(Clock())
        duals.append(method.certify().dual)
        assert (method.blocks.share >= 0).all() and (method.blocks.share.sum(axis=1) <= 1 + 1e-9).all()
    assert (np.diff(duals) >= -1e-9 * duals[-1]).all() and duals[-1] > duals[0]


def test_no_pairs_is_rml():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    Y = (X @ rng.normal(size=(4, 5)) > 0).astype(int)
    options = {"C": 0.3, "tol": 1e-5, "max_iter": 5000}
    plain = SubmodularSVC(pair_fraction=0.0, **options).fit(X, Y)
    scaled = SubmodularSVC(interaction_scale=0.0, **options).fit(X, Y)
    assert len(plain.pairs_) == len(scaled.pairs_) == 0 and not plain.interaction_.any()
    assert plain.primal_objective_ == pytest.approx(scaled.primal_objective_, rel=1e-5)
    assert np.array_equal(plain.predict(X) > 0, plain.decision_function(X) > 0)


def test_one_label_is_a_linear_svm():
    """With one label Delta is the 0/1 loss and the slack is the hinge loss of the unary score."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=50) > 0
    model = SubmodularSVC(C=0.7, tol=1e-6, max_iter=5000).fit(X, y[:, None].astype(int))
    svm = LinearSVC(C=0.7, loss="hinge", tol=1e-10, max_iter=10**6).fit(X, y)
    w = np.append(svm.coef_, svm.intercept_)
    hinge = np.maximum(0, 1 - np.where(y, 1, -1) * (X @ w[:-1] + w[-1])).sum()
    assert model.primal_objective_ == pytest.approx(0.5 * w @ w + 0.7 * hinge, rel=1e-4)
    np.testing.assert_allclose(model.coef_, svm.coef_, atol=1e-2)


@pytest.mark.parametrize("few", [0, interior.FEW])
@pytest.mark.parametrize("seed", range(2))
def test_the_interior_method_reaches_the_gap_from_many_sets_or_two(seed, few, monkeypatch):
    monkeypatch.setattr(interior, "FEW", few)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 15))
    Y = (X @ rng.normal(size=(15, 7)) + 4 * rng.normal(size=(300, 7)) > 1).astype(int)
    assert SubmodularSVC(solver="interior").fit(X, Y).duality_gap_ <= 1e-3


def test_slacks_lost_to_rounding_end_the_interior_method_with_a_remedy():
    """The rounding of the scores of long rows may be larger than the slacks."""
    method = interior.InteriorPoint(tiny(0))
    method.epoch(Clock())
    method.xi = method._highest()
    assert method.epoch(Clock()).stuck == "scale the features"


def remembered(problem, K, seed=0):
    """Random sets and weights of every sample, with some places not in use."""
    rng = np.random.default_rng(seed)
    N, V = problem.truth.shape
    known = rng.random((N, K)) < 0.8
    return (rng.random((N, K, V)) < 0.5).astype(np.uint8), known, np.where(known, rng.random((N, K)), 0.0)


def gradients(problem, sets):
    """phi(x, set) - phi(x, truth) of every sample and set, as rows like theta."""
    X = np.column_stack([problem.rows.matrix, np.full(len(problem.truth), problem.bias)])
    i, j = problem.pairs.index.T

    def features(x, y):
        return np.concatenate([np.outer(x, y).ravel(), problem.pairs.strength * y[i] * y[j]])

    samples = zip(X, problem.truth, sets, strict=True)
    return np.array([[features(x, y) - features(x, own) for y in mine] for x, own, mine in samples])


@pytest.mark.parametrize("few", [0, interior.FEW_ENTRIES])
@pytest.mark.parametrize("seed", range(3))
def test_sums_over_remembered_sets_are_those_of_their_features(seed, few, monkeypatch):
    monkeypatch.setattr(interior, "FEW_ENTRIES", few)
    problem = tiny(seed, V=5)
    sets, known, weights = remembered(problem, 4, seed)
    planes, A = interior.Planes(problem, sets, known), gradients(problem, sets)
    theta = np.random.default_rng(seed).normal(size=problem.dimension)
    np.testing.assert_allclose(planes.rise(theta), np.where(known, A @ theta, 0.0), atol=1e-12)
    np.testing.assert_allclose(planes.image(weights), np.einsum("nk,nkf->f", weights, A), atol=1e-12)


@pytest.mark.parametrize("largest", [3, 1000])
def test_both_solvers_of_the_equations_of_a_step_agree(largest):
    """With H written out: I + sum d (a - mean)(a - mean)' + diag(0, r / t)."""
    problem = tiny(1, N=12, V=5, D=3)
    sets, known, alpha = remembered(problem, 4)
    planes, A = interior.Planes(problem, sets, known), gradients(problem, sets)
    rng = np.random.default_rng(2)
    E, n_samples = len(problem.pairs), len(problem.truth)
    point = Point(
        slack=rng.uniform(1e-4, 1.0, known.shape), alpha=alpha, t=rng.uniform(0.1, 1.0, E),
        r=rng.uniform(0.1, 1.0, E), residual=np.zeros(problem.dimension), excess=np.zeros(n_samples),
    )  # fmt: skip
    d = np.where(known, alpha / point.slack, 0.0)
    apart = A - np.einsum("nk,nkf->nf", d / np.maximum(d.sum(axis=1), 1e-300)[:, None], A)[:, None]
    H = np.eye(problem.dimension) + np.einsum("nk,nkf,nkg->fg", d, apart, apart)
    H[-E:, -E:] += np.diag(point.r / point.t)
    right = rng.normal(size=problem.dimension)
    factored = interior.Factored(planes, point, interior.dense_features(problem))
    np.testing.assert_allclose(factored.inverse(right), np.linalg.solve(H, right), rtol=1e-6, atol=1e-8)
    K = interior.row_products(problem)
    iterated = interior.Iterated(planes, point, K, largest=largest, least=1e-6, accuracy=1e-20, most=1000)
    np.testing.assert_allclose(iterated.product(right), H @ right, rtol=1e-9)
    np.testing.assert_allclose(iterated.inverse(right), np.linalg.solve(H, right), rtol=1e-6, atol=1e-8)


def test_conjugate_gradients_reach_the_optimum_of_the_factorised_system():
    problem = tiny(0, N=60, V=5, D=8)
    found = [
        run(interior.InteriorPoint(problem, linear_solver=kind), Stopping(tol=1e-6, max_iter=100))
        for kind in (interior.Iterated, interior.Factored)
    ]
    assert all(outcome.certificate.gap <= 1e-6 for outcome in found)
    assert found[0].certificate.primal == pytest.approx(found[1].certificate.primal, rel=2e-6)


def test_theta_is_that_of_the_planes_and_the_centre():
    problem = replace(tiny(0, N=40, V=6, D=30), cost=np.ones(40))
    solver = ClippedBCFW(problem, np.random.RandomState(0))
    assert solver.proximal_weight > 0
    for _ in range(3):
        solver.epoch(Clock())
        mean = (vector_of(problem, solver.blocks) + solver.proximal_weight * solver.centre) / (
            1 + solver.proximal_weight
        )
        np.testing.assert_allclose(solver.vector, mean, atol=1e-10)


def test_the_default_warm_starts_from_its_solution():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 60)) * np.geomspace(0.3, 30.0, 60)
    Y = (X @ rng.normal(size=(60, 36)) + 20 * rng.normal(size=(150, 36)) > 50).astype(int)
    model = SubmodularSVC(pair_fraction=0.1, random_state=0, warm_start=True).fit(X, Y)
    dual = model.dual_objective_
    assert model.duality_gap_ <= model.tol
    assert model.set_params(tol=1.0).fit(X, Y).dual_objective_ >= dual * (1 - 1e-9)


def test_columns_far_longer_than_others_do_not_stop_conjugate_gradients():
    """Without shorter columns for the first sets, and if products fall before the residual, D stays 0."""
    rng = np.random.default_rng(0)
    S = rng.normal(size=(100, 30))
    truth = (S @ rng.normal(size=(30, 12)) / 30**0.5 + rng.normal(size=(100, 12)) > 2).astype(np.uint8)
    X = Rows.of(S * np.geomspace(1e-2, 1e4, 30))
    problem = SubmodularF1(X, truth, np.ones(100), attractive_pairs(truth, 0.1, 1.0))
    found = run(interior.InteriorPoint(problem, linear_solver=interior.Iterated), Stopping(tol=1e-3))
    assert found.certificate.gap <= 1e-3


@pytest.mark.parametrize("sparse", [False, True])
def test_shrunk_columns_give_the_same_scores_for_shorter_weights(sparse):
    problem = tiny(0, N=9, D=4)
    X = problem.rows.matrix * [1e-3, 1.0, 5.0, 1e4]
    problem = replace(problem, rows=Rows.of(sp.csr_array(X) if sparse else X))
    shrunk, scale = problem.shrunk()
    values = shrunk.rows.matrix.toarray() if sparse else shrunk.rows.matrix
    np.testing.assert_allclose(values * scale, X)
    np.testing.assert_allclose(scale, np.maximum(np.sqrt(np.mean(X**2, axis=0)), 1.0))
    assert shrunk.shrunk()[0] is shrunk
