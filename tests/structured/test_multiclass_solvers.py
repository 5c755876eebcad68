"""Multi-class solvers: known answers, slow twins, certificates, limit cases."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import Rows, readonly
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.multiclass import SOLVERS
from maxmargin.structured.multiclass_loops import StepRule
from maxmargin.structured.multiclass_problem import CHUNK, KernelMultiClass, Labels, LinearMultiClass, Setup
from maxmargin.structured.paper_steps import PATIENCE, STEPS, BlockSteps, is_safe, step_rule
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


def solver_for(name, problem, seed=0, tol=1e-9, dtype=np.float64, **options):
    rng = np.random.default_rng(seed) if seed is not None else InOrder()
    passes = name == "exact" and isinstance(problem, LinearMultiClass)
    build = ExactBlocks if passes else SOLVERS[name].build
    return build(problem, Setup(tol, rng, None, dtype), **options)


def iterate_at(problem, entropic=False, softness=0.0, alpha=None, dtype=np.float64):
    return problem.iterate(Setup(0.0, None, alpha, dtype), entropic, softness)


def rule_of(step, taus, safeguard=False, truncation=0.0, floor=0.0):
    return StepRule(STEPS[step], readonly(taus), safeguard, truncation, floor)


@pytest.mark.parametrize("name", ["bcpl", "oeg", "pl", "eg"])
@pytest.mark.parametrize("scale", [0.1, 1e3, 1e6])
def test_entropic_steps_start_near_W_zero_whatever_lambda(name, scale):
    """At the highest dual on the way from the truth to the softened truth, which is above that of W = 0."""
    X, y, costs, Delta = small_data()
    problem = LinearMultiClass(Rows.of(X), Labels(y, scale * costs, Delta), 1.0)
    start = solver_for(name, problem).certify().dual
    duals = [iterate_at(problem, True, softness).dual() for softness in np.geomspace(1e-11, 1e-3, 300)]
    assert start > 0 and start >= max(duals) * (1 - 1e-9)


@pytest.mark.parametrize("case", KAT["problems"], ids=lambda case: case["name"])
def test_known_optimum(case):
    X, labels = kat_problem(case)
    # In the case with a bias the last column of X is the constant.
    bias = case.get("bias", 0.0)
    problem = linear(X[:, :-1] if bias and np.all(X[:, -1] == bias) else X, labels, bias)
    outcome = run(solver_for("exact", problem), Stopping(1e-9, 5000))
    scale = labels.costs.sum()
    assert outcome.converged
    assert outcome.certificate.primal / scale == pytest.approx(case["objective"], rel=1e-6)


def test_known_weights():
    case = KAT["problems"][0]
    X, labels = kat_problem(case)
    problem = linear(X, labels)
    solver = solver_for("exact", problem)
    run(solver, Stopping(1e-12, 5000))
    np.testing.assert_allclose(solver.solution().weights.T[:, :-1], case["W"], atol=1e-5)


def fixed_point():
    X, y = np.array(FIXED["X"]), np.array(FIXED["y"])
    costs = np.full(len(y), 1 / (FIXED["lam"] * len(y)))
    return X, y, costs, 1.0 - np.eye(3)


def test_fixed_point_objectives_and_gaps():
    X, y, costs, _ = fixed_point()
    problem = linear(X, labels_of(y, costs))
    iterate = iterate_at(problem, alpha=np.array(FIXED["alpha"]))
    evaluation = iterate.evaluate()
    certificate, gaps = evaluation.certificate, evaluation.gaps
    scale = costs.sum()
    assert certificate.primal / scale == pytest.approx(FIXED["primal"], abs=1e-9)
    assert certificate.dual / scale == pytest.approx(FIXED["dual"], abs=1e-9)
    np.testing.assert_allclose(gaps / scale, FIXED["block_gaps"], atol=1e-9)
    np.testing.assert_allclose(iterate.solution(evaluation).weights.T[:, :-1], FIXED["W"], atol=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("name", ["fw", "pl_tau_0.01", "pl_tau_0.1", "pl_tau_1", "exact"])
def test_fixed_point_single_step(name):
    X, y, costs, _ = fixed_point()
    problem = linear(X, labels_of(y, costs))
    alpha, block = np.array(FIXED["alpha"]), np.array([FIXED["block"]])
    iterate = iterate_at(problem, name.startswith("pl"), alpha=alpha)
    before = iterate.dual()
    if name == "exact":
        gain = iterate.exact_sweep(block, np.empty(9), np.zeros(9, bool))
        np.testing.assert_allclose(iterate.alpha[FIXED["block"]], FIXED["steps"][name]["alpha_i"], atol=1e-9)
    else:
        tau = float(name.split("_")[-1]) if name.startswith("pl") else 1.0
        gain = iterate.block_sweep(rule_of(name[:2], np.full(9, tau)), block, np.empty(9))
    after = iterate.evaluate().certificate.dual
    assert after / costs.sum() == pytest.approx(FIXED["steps"][name]["dual_after"], abs=1e-9)
    assert gain == pytest.approx(after - before, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(["bcfw", "bcpl", "oeg"], ["linear", "kernel"]),
        ("exact", "linear"),
    ],
)
def test_cyclic_traces_of_the_known_answers(name, kind):
    X, y, costs, _ = fixed_point()
    build = linear if kind == "linear" else kernelised
    problem = build(X, labels_of(y, costs))
    trace = FIXED["cyclic_traces"][name]
    options = {}
    if name in ("bcpl", "oeg"):
        options = {"temperature": trace["tau"], "safeguard": False, "truncation": 0.0, "floor": 0.0}
    if name == "exact":
        options = {"sampling": "uniform", "shrinking": False}
    method = solver_for(name, problem, seed=None, **options)
    for dual, gap in zip(trace["dual_after_pass"], trace["gap_after_pass"], strict=True):
        certificate = method.iterate.evaluate().certificate
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
    method = solver_for(solver, problem, temperature=tau, truncation=0.0, floor=0.0)
    for dual in FIXED["batch_dual_traces"][name]:
        assert method.certify().dual / costs.sum() == pytest.approx(dual, abs=2e-9)
        method.epoch(Clock())


TWINS = ["exact", "fw", "pl", "safeguarded", "eg"]


def twin_passes(kind, problem, X, y, costs, Delta, order, passes):
    """The iterate and the naive blocks after each pass."""
    entropic = kind in ("pl", "safeguarded", "eg")
    taus = 0.3 * problem.kappa + 0.01
    options = {"floor": 1e-6} if entropic else {}
    iterate = iterate_at(problem, entropic, 1e-2 if entropic else 0.0)
    alpha = naive.start(y, len(Delta), 1e-2 if entropic else 0.0)
    if kind in ("pl", "safeguarded"):
        options["truncation"] = 1e-9
    for _ in range(passes):
        if kind == "exact":
            iterate.exact_sweep(order, np.empty(len(y)), np.zeros(len(y), bool))
        else:
            step = "pl" if kind == "safeguarded" else kind
            rule = rule_of(step, taus, kind == "safeguarded", 1e-9, options.get("floor", 0.0))
            iterate.block_sweep(rule, order, np.empty(len(y)))
        naive.sweep(kind, order, X, y, costs, Delta, alpha, taus, **options)
        yield iterate, alpha


@pytest.mark.nojit
@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize("layout", ["dense", "csr", "csr64", "bias", "kernel", "kernel_rows"])
def test_blocks_follow_the_naive_twin(kind, layout):
    if kind == "exact" and layout.startswith("kernel"):
        pytest.skip("the exact solver with a kernel has its own tests, test_working_sets")
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
    for iterate, alpha in twin_passes(kind, problem, full, y, costs, Delta, order, 3):
        np.testing.assert_allclose(iterate.blocks(), alpha, atol=1e-9)
        P, D, gaps = naive.objectives(full, y, costs, Delta, alpha)
        evaluation = iterate.evaluate()
        assert evaluation.certificate.primal == pytest.approx(P, rel=1e-9)
        assert evaluation.certificate.dual == pytest.approx(D, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(evaluation.gaps, np.maximum(gaps, 0), atol=1e-9)


@pytest.mark.parametrize("kind", ["exact", "safeguarded"])
@pytest.mark.parametrize("c", [2, 11, 50])
@pytest.mark.parametrize("sparse", [False, True])
def test_several_words_of_classes_follow_the_naive_twin(kind, c, sparse):
    """Rows long enough to be searched for zeros, classes in one word, two, three, and four, two and one."""
    X, y, costs, Delta = small_data(n=30, d=90, c=c)
    X[:, 20:60] = 0
    X /= 5
    problem = linear(sp.csr_array(X) if sparse else X, labels_of(y, costs, Delta), 0.5)
    full = np.column_stack([X, np.full(len(y), 0.5)])
    order = np.random.default_rng(1).permutation(len(y))
    for iterate, alpha in twin_passes(kind, problem, full, y, costs, Delta, order, 3):
        np.testing.assert_allclose(iterate.blocks(), alpha, atol=1e-9)
        certificate = iterate.evaluate().certificate
        P, D, _ = naive.objectives(full, y, costs, Delta, alpha)
        assert certificate.primal == pytest.approx(P, rel=1e-9)
        assert certificate.dual == pytest.approx(D, rel=1e-9, abs=1e-9)


# Gaps that the slower solvers reach in a few thousand passes.
REACHED = {"bcfw": 1e-4, "fw": 1e-2, "pl": 1e-3, "eg": 1e-3}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_every_solver_reaches_the_optimum_and_keeps_weak_duality(name, kind):
    if name == "newton" and kind == "kernel":
        pytest.skip("steps on weights")
    batch = name in ("fw", "pl", "eg")
    X, y, costs, Delta = small_data(n=12 if batch else 24, seed=3)
    labels = labels_of(y, 0.1 * costs if batch else costs, None if batch else Delta)
    problem = (
        linear(X, labels, 1.0)
        if kind == "linear"
        else kernelised(np.column_stack([X, np.ones(len(y))]), labels)
    )
    best = run(solver_for("exact", problem, tol=1e-10), Stopping(1e-10, 5000)).certificate
    tol = REACHED.get(name, 1e-6)
    outcome = run(solver_for(name, problem, tol=tol), Stopping(tol, 50000))
    assert outcome.converged
    assert outcome.certificate.gap <= tol
    assert outcome.certificate.primal == pytest.approx(best.primal, rel=2 * tol)
    assert outcome.certificate.dual <= best.primal * (1 + 1e-12)
    for record in outcome.history:
        assert record["dual"] <= best.primal * (1 + 1e-9)
        assert record["primal"] >= best.dual * (1 - 1e-9)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", ["linear", "single", "kernel"])
def test_certificates_do_not_change_a_solver(name, kind):
    """Certificates and solutions asked for between epochs change no later bit."""
    if name == "newton" and kind == "kernel":
        pytest.skip("steps on weights")
    X, y, costs, Delta = small_data(n=60, seed=20)
    options = {"averaging": True} if name == "bcfw" and kind != "kernel" else {}
    dtype = np.float32 if kind == "single" else np.float64
    labels = labels_of(y, costs, Delta)
    problem = kernelised(X, labels) if kind == "kernel" else linear(X, labels, 0.5)
    certified, alone = (solver_for(name, problem, tol=1e-4, dtype=dtype, **options) for _ in range(2))
    for _ in range(12):
        before = certified.certify()
        assert certified.certify() == before
        certified.solution()
        assert certified.epoch(Clock()) == alone.epoch(Clock())
        first, second = certified.solution(), certified.solution()
        np.testing.assert_array_equal(first[0], second[0])
        np.testing.assert_array_equal(first.blocks, alone.solution().blocks)
    assert certified.certify() == alone.certify()
    np.testing.assert_array_equal(certified.solution()[0], alone.solution()[0])


def test_dual_never_falls_and_gain_is_exact():
    X, y, costs, Delta = small_data(n=60, c=6, seed=5)
    problem = linear(X, labels_of(y, costs, Delta))
    solver = solver_for("exact", problem, tol=1e-8)
    last = solver.iterate.dual()
    for _ in range(20):
        solver.epoch(Clock())
        dual = solver.iterate.dual()
        assert dual >= last - 1e-12
        assert solver.dual == pytest.approx(dual, rel=1e-10)
        last = dual


@pytest.mark.parametrize("sampling", ["gap", "uniform"])
@pytest.mark.parametrize("shrinking", [True, False])
def test_schedules_end_at_the_same_optimum(sampling, shrinking):
    X, y, costs, _ = small_data(n=120, c=4, seed=6)
    problem = linear(X, labels_of(y, 5 * costs))
    method = solver_for("exact", problem, tol=1e-7, sampling=sampling, shrinking=shrinking)
    outcome = run(method, Stopping(1e-7, 20000))
    assert outcome.converged
    visits = [record["active"] for record in outcome.history]
    assert (min(visits) < 120) == (sampling == "gap" or shrinking)
    reference = run(solver_for("exact", problem, seed=9, tol=1e-9), Stopping(1e-9, 20000)).certificate
    assert outcome.certificate.primal == pytest.approx(reference.primal, rel=1e-6)


def test_single_precision_is_certified_in_double():
    X, y, costs, _ = small_data(n=80, d=8, seed=8)
    labels = labels_of(y, costs)
    single = linear(X.astype(np.float32), labels)
    method = solver_for("exact", single, tol=1e-4, dtype=np.float32)
    outcome = run(method, Stopping(1e-4, 2000))
    assert outcome.converged and method.iterate.alpha.dtype == np.float32
    W, alpha = method.solution()
    alpha = alpha.astype(np.float64)
    alpha /= alpha.sum(axis=1, keepdims=True)
    rows = X.astype(np.float32).astype(float)
    P, D, _ = naive.objectives(rows, y, costs, labels.Delta, alpha)
    assert outcome.certificate.dual == pytest.approx(D, rel=1e-12)
    losses = naive.margins(rows, y, labels.Delta, W[:-1].T).max(axis=1)
    assert outcome.certificate.primal == pytest.approx(0.5 * (W**2).sum() + costs @ losses, rel=1e-12)
    assert outcome.certificate.primal == pytest.approx(P, rel=1e-6)


def test_averaging_is_the_weighted_mean_of_the_iterates():
    X, y, costs, Delta = small_data(n=12, seed=9)
    problem = linear(X, labels_of(y, costs, Delta))
    solver, iterate = solver_for("bcfw", problem, seed=None, averaging=True), iterate_at(problem)
    rule = step_rule(problem, "fw")
    mean, k = np.zeros_like(iterate.weights), 0
    for _ in range(2):
        solver.epoch(Clock())
        for i in range(12):
            iterate.block_sweep(rule, np.array([i]), np.empty(12))
            rho = 2 / (k + 2)
            mean, k = (1 - rho) * mean + rho * iterate.weights, k + 1
    average = solver.solution().weights
    np.testing.assert_allclose(average, mean[:, :4], atol=1e-12)
    H = naive.margins(X, y, Delta, average[:-1].T)
    assert solver.certify().primal == pytest.approx(0.5 * (average**2).sum() + costs @ H.max(axis=1))
    assert solver.certify().dual == pytest.approx(iterate.dual())


def test_oeg_below_its_safe_temperature_gives_up():
    X, y, costs, _ = small_data(n=60, seed=10)
    problem = linear(3 * X, labels_of(y, 10 * costs))
    assert not is_safe(problem, step_rule(problem, "eg", 1e-3))
    solver = BlockSteps("eg", problem, Setup(1e-6, np.random.default_rng(0)), temperature=1e-3)
    outcome = run(solver, Stopping(1e-6, 1000))
    assert outcome.reason == "stuck" and "increase temperature" in outcome.remedy
    duals = [record["dual"] for record in outcome.history]
    assert outcome.n_iter <= duals.index(max(duals[:-1])) + 1 + PATIENCE
    assert outcome.certificate.dual >= max(0.0, max(duals[:-1]) - 1e-9)


@pytest.mark.parametrize("solver", ["oeg", "eg"])
def test_automatic_temperature_is_safe_and_monotone(solver):
    X, y, costs, _ = small_data(n=40, seed=11)
    problem = linear(X, labels_of(y, 20 * costs))
    batch = solver == "eg"
    assert is_safe(problem, step_rule(problem, "eg", batch=batch), batch)
    outcome = run(solver_for(solver, problem), Stopping(1e-8, 30))
    duals = np.array([record["dual"] for record in outcome.history])
    assert (np.diff(duals) >= -1e-9 * np.abs(duals[1:])).all()


def test_hot_partial_linearization_is_exponentiated_gradient():
    """tau >= kappa / 2 makes every line search end at 1."""
    X, y, costs, Delta = small_data(seed=12)
    problem = linear(X, labels_of(y, costs, Delta))
    order = np.arange(len(y))
    found = []
    for name in ("pl", "eg"):
        iterate = iterate_at(problem, True, 1e-3)
        iterate.block_sweep(rule_of(name, 0.5 * problem.kappa + 1e-12), order, np.empty(len(y)))
        found.append(iterate.blocks())
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


def test_exact_step_gains_at_least_as_much_as_any_other():
    X, y, costs, Delta = small_data(seed=13)
    rng = np.random.default_rng(0)
    problem = linear(X, labels_of(y, costs, Delta))
    for i in range(10):
        alpha = rng.dirichlet(np.ones(4), len(y))
        block = np.array([i])
        best = iterate_at(problem, alpha=alpha).exact_sweep(block, np.empty(24), np.zeros(24, bool))
        for name in STEPS:
            iterate = iterate_at(problem, name in ("pl", "eg"), alpha=alpha)
            assert (
                iterate.block_sweep(rule_of(name, 0.3 * problem.kappa), block, np.empty(24)) <= best + 1e-10
            )


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_weston_watkins_against_a_generic_solver(kind):
    cvxpy = pytest.importorskip("cvxpy")
    X, y, costs, Delta = small_data(n=15, seed=14)
    problem = (linear if kind == "linear" else kernelised)(X, labels_of(y, costs, Delta, "weston_watkins"))
    outcome = run(solver_for("exact", problem, tol=1e-8), Stopping(1e-8, 5000))
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
    outcome = run(solver_for("exact", linear(X, labels_of(y, costs, Delta))), Stopping(1e-9, 5000))
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


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_certificates_of_rows_with_many_zeros_read_them_in_pieces(mean, n_threads):
    """The numbers are those of the same rows as CSR, to the last sample of the last piece."""
    n = 2 * CHUNK + 77
    X, y, costs, _ = zero_rich(n=n, density=0.2)
    costs[-1] = 50.0
    dense = linear(X, labels_of(y, costs), n_threads=n_threads)
    sparse = linear(sp.csr_array(X), labels_of(y, costs))
    found = []
    for problem in (dense, sparse):
        iterate = iterate_at(problem)
        iterate.exact_sweep(np.arange(n), np.empty(n), np.zeros(n, bool))
        found.append(iterate.evaluate(0.5 * iterate.weights if mean else None))
    assert dense.zero_rich and not sparse.zero_rich
    first, second = found
    assert first.certificate.primal == pytest.approx(second.certificate.primal, rel=1e-12)
    assert first.certificate.dual == pytest.approx(second.certificate.dual, rel=1e-12)
    np.testing.assert_allclose(first.gaps, second.gaps, atol=1e-9)
    np.testing.assert_allclose(first.answer, second.answer, atol=1e-9)


@pytest.mark.parametrize("loss", ["crammer_singer", "weston_watkins"])
def test_certificate_of_the_mean_describes_the_stored_solution(loss):
    X, y, costs, Delta = small_data(n=480, seed=17)
    problem = linear(X, labels_of(y, costs, Delta, loss))
    solver = solver_for("exact", problem, tol=1e-3)
    outcome = run(solver, Stopping(1e-3, 500))
    assert outcome.converged and solver.mean.count[0]
    W = solver.solution().weights[:-1].T
    H = naive.margins(X, y, Delta, W)
    losses = H.max(axis=1) if loss == "crammer_singer" else np.maximum(H, 0).sum(axis=1)
    assert outcome.certificate.primal == pytest.approx(0.5 * (W**2).sum() + costs @ losses, rel=1e-12)
    _, dual, _ = naive.objectives(X, y, costs, Delta, solver.solution().blocks, loss)
    assert outcome.certificate.dual == pytest.approx(dual, rel=1e-9)


def test_an_unfinished_run_keeps_the_better_primal_point():
    X, y, costs, Delta = small_data(n=480, seed=18)
    problem = linear(X, labels_of(y, costs, Delta))
    for passes in (1, 3):
        solver = solver_for("exact", problem, tol=1e-3)
        outcome = run(solver, Stopping(1e-3, passes))
        points = (solver.mean.mean(np.float64), None)
        primals = [solver.iterate.evaluate(point).certificate.primal for point in points]
        assert outcome.certificate.primal <= min(primals)
