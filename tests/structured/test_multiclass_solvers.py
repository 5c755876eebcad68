"""Multi-class solvers: known answers, slow twins, certificates, limit cases."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.structured import schedule_loops as schedule
from maxmargin.structured.batch import BatchSteps
from maxmargin.structured.blocks import PATIENCE, BlockSteps
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.extract import PIECE
from maxmargin.structured.multiclass_kernel import KernelMultiClass
from maxmargin.structured.multiclass_linear import LinearMultiClass
from maxmargin.structured.multiclass_problem import Labels, StepRule, is_safe, step_rule
from tests.naive import multiclass as naive

KAT = json.loads((Path(__file__).parents[1] / "fixtures" / "kat_multiclass.json").read_text())
FIXED = KAT["fixed_point"]


class InOrder:
    """Stands for a random generator that leaves the order alone."""

    def permutation(self, x):
        return np.asarray(x)


def labels_of(y, costs, Delta=None, loss="crammer_singer"):
    y = np.asarray(y)
    Delta = 1.0 - np.eye(y.max() + 1) if Delta is None else np.asarray(Delta, float)
    return Labels(y, np.asarray(costs, float), Delta, loss)


def linear(X, labels, bias=0.0, **options):
    X = X.tocsr() if sp.issparse(X) else np.ascontiguousarray(X)
    return LinearMultiClass(Rows.of(X), labels, bias, **options)


def kernelised(X, labels, cache_size=10.0):
    return KernelMultiClass(KernelMatrix(Kernel.of(X, "linear"), X, cache_size), labels)


def small_data(n=24, d=5, c=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    y = np.arange(n) % c
    costs = rng.uniform(0.2, 1.5, n)
    Delta = rng.uniform(0.5, 2.0, (c, c))
    np.fill_diagonal(Delta, 0)
    return X, y, costs, Delta


def kat_problem(case):
    X, y = np.array(case["X"], float), np.array(case["y"])
    weights = np.ones(len(y)) if case.get("sample_weight") is None else np.array(case["sample_weight"])
    costs = weights / (case["lam"] * weights.sum())
    return X, labels_of(y, costs, case.get("Delta"))


def method_for(solver, problem, seed=0, tol=1e-9, **options):
    rng = np.random.default_rng(seed) if seed is not None else InOrder()
    if solver == "exact":
        return ExactBlocks(problem, problem.start(False), tol, rng, **options)
    rule = step_rule(problem, solver, options.pop("temperature", "auto"), **options)
    entropic = rule.name in ("pl", "eg")
    state = problem.start(entropic, 1e-3 if entropic else 0.0)
    watched = not is_safe(problem, solver, rule)
    if solver in ("fw", "pl", "eg"):
        return BatchSteps(problem, state, rule, watched=watched)
    return BlockSteps(problem, state, rule, rng, watched=watched)


@pytest.mark.parametrize("case", KAT["problems"], ids=lambda case: case["name"])
def test_known_optimum(case):
    X, labels = kat_problem(case)
    # In the case with a bias the last column of X is the constant.
    bias = case.get("bias", 0.0)
    problem = linear(X[:, :-1] if bias and np.all(X[:, -1] == bias) else X, labels, bias)
    outcome = run(method_for("exact", problem), Stopping(1e-9, 5000))
    scale = labels.costs.sum()
    assert outcome.converged
    assert outcome.certificate.primal / scale == pytest.approx(case["objective"], rel=1e-6)


def test_known_weights():
    case = KAT["problems"][0]
    X, labels = kat_problem(case)
    problem = linear(X, labels)
    method = method_for("exact", problem)
    run(method, Stopping(1e-12, 5000))
    np.testing.assert_allclose(problem.solution(method.state).T[:, :-1], case["W"], atol=1e-5)


def fixed_point():
    X, y = np.array(FIXED["X"]), np.array(FIXED["y"])
    costs = np.full(len(y), 1 / (FIXED["lam"] * len(y)))
    return X, y, costs, 1.0 - np.eye(3)


def test_fixed_point_objectives_and_gaps():
    X, y, costs, _ = fixed_point()
    problem = linear(X, labels_of(y, costs))
    state = problem.start(False, alpha=np.array(FIXED["alpha"]))
    gaps = np.empty(len(y))
    certificate = problem.certify(state, gaps)
    scale = costs.sum()
    assert certificate.primal / scale == pytest.approx(FIXED["primal"], abs=1e-9)
    assert certificate.dual / scale == pytest.approx(FIXED["dual"], abs=1e-9)
    np.testing.assert_allclose(gaps / scale, FIXED["block_gaps"], atol=1e-9)
    np.testing.assert_allclose(problem.solution(state).T[:, :-1], FIXED["W"], atol=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("name", ["fw", "pl_tau_0.01", "pl_tau_0.1", "pl_tau_1", "exact"])
def test_fixed_point_single_step(name):
    X, y, costs, _ = fixed_point()
    problem = linear(X, labels_of(y, costs))
    alpha, block = np.array(FIXED["alpha"]), np.array([FIXED["block"]])
    state = problem.start(name.startswith("pl"), 0.0, alpha)
    before = problem.dual(state)
    if name == "exact":
        gain = problem.exact_sweep(state, block, np.empty(9), np.zeros(9, bool))
        np.testing.assert_allclose(state.alpha[FIXED["block"]], FIXED["steps"][name]["alpha_i"], atol=1e-9)
    else:
        tau = float(name.split("_")[-1]) if name.startswith("pl") else 1.0
        rule = StepRule(name[:2], np.full(9, tau), safeguard=False, truncation=0.0, floor=0.0)
        gain = problem.block_sweep(state, rule, block, np.empty(9))
    after = problem.certify(state, np.empty(9)).dual
    assert after / costs.sum() == pytest.approx(FIXED["steps"][name]["dual_after"], abs=1e-9)
    assert gain == pytest.approx(after - before, abs=1e-9)


@pytest.mark.parametrize("name", ["bcfw", "bcpl", "oeg", "pairwise", "exact"])
@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_cyclic_traces_of_the_known_answers(name, kind):
    X, y, costs, _ = fixed_point()
    build = linear if kind == "linear" else kernelised
    problem = build(X, labels_of(y, costs))
    trace = FIXED["cyclic_traces"][name]
    options = {}
    if name in ("bcpl", "oeg"):
        options = {"temperature": trace["tau"], "safeguard": False, "truncation": 0.0, "floor": 0.0}
    if name == "exact":
        options = {"sampling": False, "shrinking": False}
    method = method_for(name, problem, seed=None, **options)
    for dual, gap in zip(trace["dual_after_pass"], trace["gap_after_pass"], strict=True):
        certificate = method.certify()
        assert certificate.dual / costs.sum() == pytest.approx(dual, abs=2e-9)
        assert (certificate.primal - certificate.dual) / costs.sum() == pytest.approx(gap, abs=2e-9)
        method.epoch(Clock())


@pytest.mark.parametrize(
    ("name", "solver", "tau"), [("fw", "fw", 1.0), ("pl_tau_1", "pl", 1.0), ("eg_tau_20", "eg", 20.0)]
)
@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_batch_traces_of_the_known_answers(name, solver, tau, kind):
    X, y, costs, _ = fixed_point()
    problem = (linear if kind == "linear" else kernelised)(X, labels_of(y, costs))
    method = method_for(solver, problem, temperature=tau, truncation=0.0, floor=0.0)
    for dual in FIXED["batch_dual_traces"][name]:
        assert method.certify().dual / costs.sum() == pytest.approx(dual, abs=2e-9)
        method.epoch(Clock())


def test_paper_example_recomputed():
    """Section 4.1 of the paper: its reductions hold, by the tie-break; its optimum is infeasible."""
    example = KAT["paper_example_41"]
    A, b = np.array(example["A"], float), np.array(example["b"], float)

    def value(a):
        return -b @ a + 0.5 * example["lam"] * a @ A.T @ A @ a

    def reduction(a, target):
        gradient = -b + example["lam"] * A.T @ A @ a
        d = target - a
        gamma = np.clip(-gradient @ d / (example["lam"] * (A @ d) @ (A @ d)), 0, 1)
        return value(a) - value(a + gamma * d)

    for alpha, expected in (
        (np.array(example["alpha_printed"]), example["reductions"]),
        (np.array(example["feasible_alpha"]), example["feasible_reductions"]),
    ):
        H = b - example["lam"] * A.T @ A @ alpha
        assert reduction(alpha, np.eye(3)[0]) == pytest.approx(expected["fw_e1"], abs=5e-5)
        assert reduction(alpha, np.eye(3)[1]) == pytest.approx(expected["fw_e2_tied"], abs=5e-5)
        assert reduction(alpha, naive.softmax(alpha, H, 1.0)) == pytest.approx(expected["pl_tau1"], abs=5e-5)
    assert sum(example["alpha_printed"]) == pytest.approx(1.125)
    best = np.array(example["simplex_optimum"])
    assert value(best) == pytest.approx(example["T_optimum"])
    for target in np.eye(3):
        assert reduction(best, target) == pytest.approx(0, abs=1e-12)


TWINS = ["exact", "fw", "pairwise", "pl", "safeguarded", "eg"]


def twin_passes(kind, problem, X, y, costs, Delta, order, passes):
    """Pairs of blocks after each pass: compiled, naive."""
    entropic = kind in ("pl", "safeguarded", "eg")
    taus = 0.3 * problem.kappa + 0.01
    options = {"floor": 1e-6} if entropic else {}
    rule = StepRule(
        "pl" if kind == "safeguarded" else kind, taus, kind == "safeguarded", 1e-9, options.get("floor", 0.0)
    )
    state = problem.start(entropic, 1e-2 if entropic else 0.0)
    alpha = naive.start(y, len(Delta), 1e-2 if entropic else 0.0)
    if kind in ("pl", "safeguarded"):
        options["truncation"] = 1e-9
    for _ in range(passes):
        if kind == "exact":
            problem.exact_sweep(state, order, np.empty(len(y)), np.zeros(len(y), bool))
        else:
            problem.block_sweep(state, rule, order, np.empty(len(y)))
        naive.sweep(kind, order, X, y, costs, Delta, alpha, taus, **options)
        yield state, alpha


@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize("layout", ["dense", "csr", "csr64", "bias", "kernel", "kernel_rows"])
def test_blocks_follow_the_naive_twin(kind, layout):
    X, y, costs, Delta = small_data()
    labels = labels_of(y, costs, Delta)
    full = X
    if layout == "kernel":
        problem = kernelised(X, labels)
    elif layout == "kernel_rows":
        problem = kernelised(X, labels, cache_size=0.0)
    elif layout == "bias":
        problem, full = linear(X, labels, 0.5), np.column_stack([X, np.full(len(y), 0.5)])
    elif layout == "dense":
        problem = linear(X, labels)
    else:
        S = sp.csr_array(X)
        if layout == "csr64":
            S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
        problem = linear(S, labels)
    order = np.random.default_rng(1).permutation(len(y))
    for state, alpha in twin_passes(kind, problem, full, y, costs, Delta, order, 3):
        np.testing.assert_allclose(state.blocks(), alpha, atol=1e-9)
        P, D, gaps = naive.objectives(full, y, costs, Delta, alpha)
        found = np.empty(len(y))
        certificate = problem.certify(state, found)
        assert certificate.primal == pytest.approx(P, rel=1e-9)
        assert certificate.dual == pytest.approx(D, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(found, np.maximum(gaps, 0), atol=1e-9)


@pytest.mark.parametrize("kind", ["exact", "fw", "safeguarded"])
@pytest.mark.parametrize("c", [2, 11, 20, 50])
@pytest.mark.parametrize("sparse", [False, True])
def test_several_words_of_classes_follow_the_naive_twin(kind, c, sparse):
    """Rows long enough to be searched for zeros, classes in one word, two, three, and four, two and one."""
    X, y, costs, Delta = small_data(n=30, d=90, c=c)
    X[:, 20:60] = 0
    X /= 5
    problem = linear(sp.csr_array(X) if sparse else X, labels_of(y, costs, Delta), 0.5)
    full = np.column_stack([X, np.full(len(y), 0.5)])
    order = np.random.default_rng(1).permutation(len(y))
    for state, alpha in twin_passes(kind, problem, full, y, costs, Delta, order, 3):
        np.testing.assert_allclose(state.blocks(), alpha, atol=1e-9)
        certificate = problem.certify(state, np.empty(len(y)))
        P, D, _ = naive.objectives(full, y, costs, Delta, alpha)
        assert certificate.primal == pytest.approx(P, rel=1e-9)
        assert certificate.dual == pytest.approx(D, rel=1e-9, abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("kind", TWINS)
def test_tiny_twin(kind):
    X, y, costs, Delta = small_data(n=6, d=3, c=3)
    problem = linear(X, labels_of(y, costs, Delta))
    for state, alpha in twin_passes(kind, problem, X, y, costs, Delta, np.arange(6), 2):
        np.testing.assert_allclose(state.blocks(), alpha, atol=1e-9)


@pytest.mark.parametrize("solver", ["exact", "bcfw", "bcpl", "oeg", "pairwise"])
def test_block_solvers_reach_the_same_optimum(solver):
    X, y, costs, Delta = small_data(seed=3)
    problem = linear(X, labels_of(y, costs, Delta), 1.0)
    best = run(method_for("exact", problem, tol=1e-10), Stopping(1e-10, 5000)).certificate
    tol = 1e-4 if solver == "bcfw" else 1e-6
    outcome = run(method_for(solver, problem, tol=tol), Stopping(tol, 50000))
    assert outcome.converged
    assert outcome.certificate.gap <= tol
    assert outcome.certificate.primal == pytest.approx(best.primal, rel=2 * tol)
    assert outcome.certificate.dual <= best.primal * (1 + 1e-12)
    for record in outcome.history:
        assert record["dual"] <= best.primal * (1 + 1e-9)
        assert record["primal"] >= best.dual * (1 - 1e-9)


@pytest.mark.parametrize("solver", ["fw", "pl", "eg"])
def test_batch_solvers_reach_the_same_optimum(solver):
    X, y, costs, _ = small_data(n=12, seed=4)
    problem = linear(X, labels_of(y, 0.1 * costs))
    best = run(method_for("exact", problem, tol=1e-10), Stopping(1e-10, 5000)).certificate
    tol = 1e-2 if solver == "fw" else 1e-3
    outcome = run(method_for(solver, problem), Stopping(tol, 5000))
    assert outcome.converged
    assert outcome.certificate.primal == pytest.approx(best.primal, rel=2 * tol)


def test_dual_never_falls_and_gain_is_exact():
    X, y, costs, Delta = small_data(n=60, c=6, seed=5)
    problem = linear(X, labels_of(y, costs, Delta))
    method = method_for("exact", problem, tol=1e-8)
    last = problem.dual(method.state)
    for _ in range(20):
        method.epoch(Clock())
        dual = method.problem.dual(method.state)
        assert dual >= last - 1e-12
        assert method.dual == pytest.approx(dual, rel=1e-10)
        last = dual


@pytest.mark.parametrize("sampling", [True, False])
@pytest.mark.parametrize("shrinking", [True, False])
def test_schedules_end_at_the_same_optimum(sampling, shrinking):
    X, y, costs, _ = small_data(n=120, c=4, seed=6)
    problem = linear(X, labels_of(y, 5 * costs))
    method = method_for("exact", problem, tol=1e-7, sampling=sampling, shrinking=shrinking)
    outcome = run(method, Stopping(1e-7, 20000))
    assert outcome.converged
    visits = [record["active"] for record in outcome.history]
    assert (min(visits) < 120) == (sampling or shrinking)
    reference = run(method_for("exact", problem, seed=9, tol=1e-9), Stopping(1e-9, 20000)).certificate
    assert outcome.certificate.primal == pytest.approx(reference.primal, rel=1e-6)


def test_blocks_left_out_are_woken_by_the_certificate():
    X, y, costs, _ = small_data(n=40, seed=7)
    problem = linear(X, labels_of(y, costs))
    method = method_for("exact", problem, tol=1e-6)
    method.epoch(Clock())
    method.due[:] = 10**6
    method.certify()
    assert (method.due[method.gaps > 0.01 * method.gaps.mean()] <= method.passes).all()


def test_single_precision_is_certified_in_double():
    X, y, costs, _ = small_data(n=80, d=8, seed=8)
    labels = labels_of(y, costs)
    single = linear(X.astype(np.float32), labels, precision="single")
    method = method_for("exact", single, tol=1e-4)
    outcome = run(method, Stopping(1e-4, 2000))
    assert outcome.converged and method.state.alpha.dtype == np.float32
    alpha = method.state.blocks()
    alpha /= alpha.sum(axis=1, keepdims=True)
    rows = X.astype(np.float32).astype(float)
    P, D, _ = naive.objectives(rows, y, costs, labels.Delta, alpha)
    assert outcome.certificate.dual == pytest.approx(D, rel=1e-12)
    W = single.solution(method.state)
    np.testing.assert_array_equal(W, W.astype(np.float32))
    losses = naive.margins(rows, y, labels.Delta, W[:-1].T).max(axis=1)
    assert outcome.certificate.primal == pytest.approx(0.5 * (W**2).sum() + costs @ losses, rel=1e-12)
    assert outcome.certificate.primal == pytest.approx(P, rel=1e-6)


def test_averaging_is_the_weighted_mean_of_the_iterates():
    X, y, costs, Delta = small_data(n=12, seed=9)
    problem = linear(X, labels_of(y, costs, Delta))
    state = problem.start(False)
    problem.start_averaging(state)
    rule = step_rule(problem, "bcfw", "auto")
    mean, k = np.zeros_like(state.weights), 0
    for i in list(range(12)) * 2:
        problem.block_sweep(state, rule, np.array([i]), np.empty(12))
        rho = 2 / (k + 2)
        mean, k = (1 - rho) * mean + rho * state.weights, k + 1
    primal, average = problem.averaged_primal(state)
    np.testing.assert_allclose(average, mean, atol=1e-12)
    H = naive.margins(X, y, Delta, average[:-1, :4].T)
    assert primal == pytest.approx(0.5 * (average**2).sum() + costs @ H.max(axis=1))


def test_oeg_below_its_safe_temperature_gives_up():
    X, y, costs, _ = small_data(n=60, seed=10)
    problem = linear(3 * X, labels_of(y, 10 * costs))
    rule = step_rule(problem, "oeg", 1e-3)
    assert not is_safe(problem, "oeg", rule)
    method = BlockSteps(problem, problem.start(True, 1e-3), rule, np.random.default_rng(0), watched=True)
    outcome = run(method, Stopping(1e-6, 1000))
    assert outcome.reason == "stuck" and "raise temperature" in outcome.cure
    duals = [record["dual"] for record in outcome.history]
    assert outcome.n_iter <= duals.index(max(duals[:-1])) + 1 + PATIENCE
    assert outcome.certificate.dual >= max(0.0, max(duals[:-1]) - 1e-9)


@pytest.mark.parametrize("solver", ["oeg", "eg"])
def test_automatic_temperature_is_safe_and_monotone(solver):
    X, y, costs, _ = small_data(n=40, seed=11)
    problem = linear(X, labels_of(y, 20 * costs))
    assert is_safe(problem, solver, step_rule(problem, solver, "auto"))
    outcome = run(method_for(solver, problem), Stopping(1e-8, 30))
    duals = np.array([record["dual"] for record in outcome.history])
    assert (np.diff(duals) >= -1e-9 * np.abs(duals[1:])).all()


def test_hot_partial_linearization_is_exponentiated_gradient():
    """tau >= kappa / 2 makes every line search end at 1."""
    X, y, costs, Delta = small_data(seed=12)
    problem = linear(X, labels_of(y, costs, Delta))
    order = np.arange(len(y))
    states = []
    for name in ("pl", "eg"):
        state = problem.start(True, 1e-3)
        rule = StepRule(name, 0.5 * problem.kappa + 1e-12, False, 0.0, 0.0)
        problem.block_sweep(state, rule, order, np.empty(len(y)))
        states.append(state)
    np.testing.assert_allclose(states[0].blocks(), states[1].blocks(), atol=1e-12)


def test_exact_step_gains_at_least_as_much_as_any_other():
    X, y, costs, Delta = small_data(seed=13)
    rng = np.random.default_rng(0)
    problem = linear(X, labels_of(y, costs, Delta))
    for i in range(10):
        alpha = rng.dirichlet(np.ones(4), len(y))
        block = np.array([i])
        best = problem.exact_sweep(problem.start(False, alpha=alpha), block, np.empty(24), np.zeros(24, bool))
        for name in ("fw", "pairwise", "pl", "eg"):
            rule = StepRule(name, 0.3 * problem.kappa, False, 0.0, 0.0)
            state = problem.start(name in ("pl", "eg"), 0.0, alpha)
            assert problem.block_sweep(state, rule, block, np.empty(24)) <= best + 1e-10


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_weston_watkins_against_a_generic_solver(kind):
    cvxpy = pytest.importorskip("cvxpy")
    X, y, costs, Delta = small_data(n=15, seed=14)
    problem = (linear if kind == "linear" else kernelised)(X, labels_of(y, costs, Delta, "weston_watkins"))
    outcome = run(
        ExactBlocks(problem, problem.start(False), 1e-8, np.random.default_rng(0)), Stopping(1e-8, 5000)
    )
    assert outcome.converged
    W = cvxpy.Variable((4, X.shape[1]))
    total = 0
    for i in range(15):
        for k in range(4):
            if k != y[i]:
                total += costs[i] * cvxpy.pos(Delta[y[i], k] + (W[k] - W[y[i]]) @ X[i])
    reference = cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(W) + total)).solve()
    assert outcome.certificate.primal == pytest.approx(reference, rel=1e-5)
    for record in outcome.history:
        assert record["dual"] <= reference * (1 + 1e-6) and record["primal"] >= reference * (1 - 1e-6)


def test_crammer_singer_against_a_generic_solver():
    cvxpy = pytest.importorskip("cvxpy")
    X, y, costs, Delta = small_data(n=15, seed=15)
    outcome = run(method_for("exact", linear(X, labels_of(y, costs, Delta))), Stopping(1e-9, 5000))
    W, slack = cvxpy.Variable((4, X.shape[1])), cvxpy.Variable(15)
    bounds = [slack[i] >= Delta[y[i], k] + (W[k] - W[y[i]]) @ X[i] for i in range(15) for k in range(4)]
    objective = 0.5 * cvxpy.sum_squares(W) + costs @ slack
    reference = cvxpy.Problem(cvxpy.Minimize(objective), bounds).solve()
    assert outcome.certificate.primal == pytest.approx(reference, rel=1e-6)


def zero_rich(n=400, d=60, density=0.05, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d)) * (rng.random((n, d)) < density)
    X[:, d // 4 : d // 2] = 0
    return X, rng.integers(0, 3, n), np.full(n, 2.0), rng


@pytest.mark.parametrize("density", [0.05, 0.4])
@pytest.mark.parametrize("d", [60, 150])
def test_rows_with_many_zeros_are_extracted_and_change_nothing(density, d):
    """All rows when their nonzeros fit into a part of X, else the ones asked for."""
    X, y, costs, rng = zero_rich(d=d, density=density)
    dense, sparse = linear(X, labels_of(y, costs)), linear(sp.csr_array(X), labels_of(y, costs))
    order = rng.permutation(400)[:50]
    states = [problem.start(False) for problem in (dense, sparse)]
    for part in (order, order[::-1], np.concatenate([order[:30], np.arange(5)])):
        for problem, state in zip((dense, sparse), states, strict=True):
            problem.exact_sweep(state, np.unique(part), np.empty(400), np.zeros(400, bool))
    kept = dense._extract
    assert kept is not None and kept.count >= 50
    assert kept.holds_all == (density < 0.1)
    assert kept.values.nbytes + kept.columns.nbytes <= X.nbytes / 6 + 16
    for place in range(kept.count):
        part = slice(kept.starts[place], kept.starts[place + 1])
        row = np.zeros(d)
        row[kept.columns[part]] = kept.values[part]
        np.testing.assert_array_equal(row, X[kept.samples[place]])
    certificates = [
        problem.certify(state, np.empty(400)) for problem, state in zip((dense, sparse), states, strict=True)
    ]
    np.testing.assert_allclose(states[0].alpha, states[1].alpha, atol=1e-12)
    np.testing.assert_allclose(states[0].certified, states[1].certified, atol=1e-12)
    assert certificates[0].primal == pytest.approx(certificates[1].primal)
    assert certificates[0].dual == pytest.approx(dense.dual(states[0]))
    assert certificates[0].dual > 0


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_certificates_of_rows_with_many_zeros_read_them_in_pieces(mean, n_threads):
    """The numbers are those of the same rows as CSR, to the last sample of the last piece."""
    n = 2 * PIECE + 77
    X, y, costs, _ = zero_rich(n=n, density=0.2)
    costs[-1] = 50.0
    dense = linear(X, labels_of(y, costs), n_threads=n_threads)
    sparse = linear(sp.csr_array(X), labels_of(y, costs))
    found = []
    for problem in (dense, sparse):
        state, gaps = problem.start(False), np.empty(n)
        problem.exact_sweep(state, np.arange(n), np.empty(n), np.zeros(n, bool))
        state.sums, state.n_sums = 2 * state.weights, 4.0
        found.append((problem.certify(state, gaps, mean), gaps, state.certified))
    assert dense._extract.useful and sparse._extract is None
    assert found[0][0].primal == pytest.approx(found[1][0].primal, rel=1e-12)
    assert found[0][0].dual == pytest.approx(found[1][0].dual, rel=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-9)
    np.testing.assert_allclose(found[0][2], found[1][2], atol=1e-9)


def test_a_kernel_that_does_not_fit_is_solved_in_parts():
    """Scores stay those of the blocks after every pass, the dual rises, and the optimum is the same."""
    X, y, costs, Delta = small_data(n=200, seed=19)
    labels = labels_of(y, costs, Delta)
    whole, parts = kernelised(X, labels), kernelised(X, labels, cache_size=0.05)
    assert parts.K.whole is None and 64 <= parts.stride < 100
    method = method_for("exact", parts, tol=1e-8)
    duals = [method.dual]
    for _ in range(4):
        method.epoch(Clock())
        state = method.state
        np.testing.assert_allclose(state.weights.T, parts.K.times(parts.coefficients(state)), atol=1e-9)
        assert method.dual == pytest.approx(parts.dual(state), rel=1e-9)
        duals.append(method.dual)
    assert (np.diff(duals) > 0).all()
    done = np.flatnonzero(method.idle & (method.state.alpha.max(axis=1) == 1))[:5]
    assert len(done) and parts.exact_sweep(method.state, done, method.gaps, method.idle) >= 0
    outcome = run(method, Stopping(1e-8, 2000))
    reference = run(method_for("exact", whole, tol=1e-8), Stopping(1e-8, 2000))
    assert outcome.converged and reference.converged
    assert outcome.certificate.primal == pytest.approx(reference.certificate.primal, rel=1e-7)


def test_a_full_extract_keeps_the_busiest_rows():
    X, y, costs, _ = zero_rich(density=0.4)
    problem = linear(X, labels_of(y, costs))
    state = problem.start(False)
    for part in (np.arange(200), np.arange(300, 320)):
        problem.exact_sweep(state, part, np.empty(400), np.zeros(400, bool))
    assert set(problem._extract.samples[: problem._extract.count]) == set(range(300, 320))


def test_snapshots_are_the_mean_of_the_iterates():
    X, y, costs, _ = small_data(n=480, seed=16)
    problem = linear(X, labels_of(y, costs))
    state, apart = problem.start(False), problem.start(False)
    order = np.random.default_rng(0).permutation(480)
    gaps, idle = np.empty(480), np.zeros(480, bool)
    problem.exact_sweep(state, order, gaps, idle, True)
    seen = []
    for part in np.split(order, 32):
        problem.exact_sweep(apart, part, gaps, idle)
        seen.append(apart.weights.copy())
    assert state.n_sums == 32 and apart.sums is None
    np.testing.assert_allclose(state.sums / 32, np.mean(seen, axis=0), atol=1e-12)
    state.fade()
    problem.exact_sweep(state, order, gaps, idle, True)
    assert state.n_sums == 48


@pytest.mark.parametrize("loss", ["crammer_singer", "weston_watkins"])
def test_certificate_of_the_mean_describes_the_stored_solution(loss):
    X, y, costs, Delta = small_data(n=480, seed=17)
    problem = linear(X, labels_of(y, costs, Delta, loss))
    method = method_for("exact", problem, tol=1e-3)
    outcome = run(method, Stopping(1e-3, 500))
    assert outcome.converged and method.averaging and method.state.n_sums
    W = problem.solution(method.state)[:-1].T
    H = naive.margins(X, y, Delta, W)
    losses = H.max(axis=1) if loss == "crammer_singer" else np.maximum(H, 0).sum(axis=1)
    assert outcome.certificate.primal == pytest.approx(0.5 * (W**2).sum() + costs @ losses, rel=1e-12)
    _, dual, _ = naive.objectives(X, y, costs, Delta, method.state.blocks(), loss)
    assert outcome.certificate.dual == pytest.approx(dual, rel=1e-9)
    alone = run(method_for("exact", problem, tol=1e-3, averaging=False), Stopping(1e-3, 500))
    assert outcome.n_iter <= alone.n_iter


def test_an_unfinished_run_keeps_the_better_primal_point():
    X, y, costs, Delta = small_data(n=480, seed=18)
    problem = linear(X, labels_of(y, costs, Delta))
    for passes in (1, 3):
        method = method_for("exact", problem, tol=1e-3)
        outcome = run(method, Stopping(1e-3, passes))
        certificates = [problem.certify(method.state, np.empty(480), mean) for mean in (True, False)]
        assert outcome.certificate.primal == min(c.primal for c in certificates)


def test_survey_is_the_certificate_in_working_precision():
    X, y, costs, rng = zero_rich(n=1200, d=80)
    problem = linear(X, labels_of(y, costs), precision="single")
    state = problem.start(False)
    gaps, found = np.empty(1200), np.empty(1200)
    assert problem.survey(state, gaps) is None
    for _ in range(3):
        problem.exact_sweep(state, rng.permutation(1200), gaps, np.zeros(1200, bool), True)
    primal = problem.survey(state, found)
    assert primal == pytest.approx(problem.certify(state, gaps, True).primal, rel=1e-5)
    np.testing.assert_allclose(found, gaps, atol=1e-4)


@pytest.mark.nojit
@pytest.mark.parametrize("longest", [0, 3])
def test_schedule_follows_the_naive_twin(longest):
    rng = np.random.default_rng(longest)
    n = 40
    streak, due = rng.integers(0, 4, n), rng.integers(0, 9, n)
    gaps, idle = rng.random(n), rng.random(n) < 0.5
    present = np.arange(0, n, 2)
    room = np.empty(n, np.int64)
    size = schedule.due_blocks(present, due, 5, room)
    visited = room[:size].copy()
    np.testing.assert_array_equal(visited, present[due[present] <= 5])
    expected = naive.postponed(visited, gaps, idle, 6, 0.3, longest, streak, due)
    schedule.postpone(visited, gaps, idle, 6, 0.3, longest, streak, due)
    np.testing.assert_array_equal(streak, expected[0])
    np.testing.assert_array_equal(due, expected[1])


def test_missing_operation_is_named():
    with pytest.raises(TypeError, match="exact_sweep"):
        ExactBlocks(object(), None, 1e-3, None)
