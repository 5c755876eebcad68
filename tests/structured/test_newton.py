"""Proximal Newton steps: slow twins of the loops, the split of the gap, hard tables, a random campaign."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from maxmargin import MultiClassSVC
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.proximal_newton import ALL
from maxmargin.core.rows import Rows, readonly
from maxmargin.structured import newton, newton_losses
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.multiclass_problem import Labels, LinearMultiClass, Setup
from maxmargin.structured.newton import ProximalNewton
from maxmargin.structured.newton_loops import ProximalTask
from maxmargin.structured.newton_losses import ArrayLosses, LoopLosses
from tests.naive import multiclass as naive

LOSSES = ("crammer_singer", "weston_watkins")
# The smoothed losses in NumPy and by a compiled loop.
FORMS = (ArrayLosses, LoopLosses)
# Of objectives, and of scores, whose large terms may cancel.
ROUNDING, SCORE_ROUNDING = 1e-9, 4e-16


def data(n=40, d=3, c=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** np.arange(d)
    y = np.arange(n) % c
    costs = rng.uniform(0, 2, n) * (rng.random(n) < 0.9)
    Delta = rng.uniform(0.5, 2, (c, c))
    np.fill_diagonal(Delta, 0)
    return X, y, costs, Delta


def problem_of(X, y, costs, Delta, loss="crammer_singer", bias=1.0, **options):
    return LinearMultiClass(Rows.of(X), Labels(y, costs, Delta, loss), bias, **options)


def line_of(losses, tau, anchor, scores, moves):
    """A line of samples x classes."""
    parts = (losses.column_major(part) for part in (anchor, scores, moves))
    return losses.line(ALL, np.full(1, tau), *parts)


def slope(line, t):
    return line.slope(np.full(1, t), ALL)[0]


def point(line):
    """Blocks, a mask of those that moved, steps, and the sums of losses, alpha.H and alpha.Delta."""
    found = line.point(np.ones(1))
    sums = (float(each[0]) for each in (found.losses, found.means, found.values))
    return found.shares[0].T, found.moved, found.steps[0].T, *sums


def objectives(X, y, costs, Delta, loss, W, blocks):
    """P(W) and D(blocks) from their definitions; W has one row per class."""
    n = len(y)
    off = blocks.copy()
    off[np.arange(n), y] = 0
    assert (off >= 0).all() and (off.sum(axis=1) <= 1 + 1e-12 if loss == LOSSES[0] else off <= 1).all()
    alpha = off.copy()
    alpha[np.arange(n), y] = 1 - off.sum(axis=1)
    S = X @ W.T
    H = Delta[y] + S - S[np.arange(n), y][:, None]
    losses = H.max(axis=1) if loss == LOSSES[0] else np.maximum(H, 0).sum(axis=1)
    steps = -costs[:, None] * off
    steps[np.arange(n), y] = costs * off.sum(axis=1)
    image = steps.T @ X
    primal = 0.5 * (W**2).sum() + costs @ losses
    return primal, costs @ (alpha * Delta[y]).sum(axis=1) - 0.5 * (image**2).sum()


@pytest.mark.nojit
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("c", [2, 4])
def test_proximal_points_equal_their_slow_twins(form, loss, c):
    _, y, costs, Delta = data(c=c)
    rng = np.random.default_rng(1)
    n = len(y)
    task = ProximalTask(y, costs, readonly(Delta), LOSSES.index(loss))
    scores, moves = rng.normal(size=(n, c)), rng.normal(size=(n, c))
    scores[np.arange(n), y] += 2.5
    anchor = np.array([naive.project(v) for v in rng.normal(size=(n, c))])
    anchor[: n // 2] = np.eye(c)[y[: n // 2]]
    line = line_of(form(task), 0.7, anchor, scores, moves)
    at = slope(line, 0.5)
    blocks, moved, steps, *totals = point(line)
    assert 0 < moved.sum() < n
    S = scores + 0.5 * moves
    H = Delta[y] + S - S[np.arange(n), y][:, None]
    for i in range(n):
        if loss == LOSSES[0]:
            expected = naive.project(anchor[i] + H[i] / 0.7)
        else:
            expected = np.clip(anchor[i] + H[i] / 0.7, 0, 1)
            expected[y[i]] = 1 - np.delete(expected, y[i]).sum()
        np.testing.assert_allclose(blocks[i], expected, atol=1e-12)
    np.testing.assert_allclose(steps, costs[:, None] * (np.eye(c)[y] - blocks), atol=1e-12)
    losses = H.max(axis=1) if loss == LOSSES[0] else np.maximum(H, 0).sum(axis=1)
    np.testing.assert_array_equal(
        moved, np.delete(blocks.ravel(), np.arange(n) * c + y).reshape(n, -1).any(1)
    )
    expected = [costs @ losses, costs @ (blocks * H).sum(axis=1), costs @ (blocks * Delta[y]).sum(axis=1)]
    np.testing.assert_allclose([*totals, at], [*expected, -(steps * moves).sum()])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("c", [2, 3, 6])
@pytest.mark.parametrize("tau", [1e-12, 0.5, 1e6])
@pytest.mark.parametrize("t", [0.0, 2.0])
def test_both_forms_find_the_same_points_on_ties_and_without_costs(loss, c, tau, t):
    """Scores are whole numbers, so that many margins are alike; some costs and some Delta are none."""
    rng = np.random.default_rng(c)
    n = 200
    y, costs = rng.integers(0, c, n), rng.integers(0, 3, n).astype(float)
    Delta = rng.integers(0, 3, (c, c)).astype(float)
    np.fill_diagonal(Delta, 0)
    scores, moves = rng.integers(-2, 3, (2, n, c)).astype(float)
    anchor = rng.random((n, c)) * (rng.random((n, c)) < 0.5)
    anchor[np.arange(n), y] += 0.5
    anchor /= anchor.sum(axis=1, keepdims=True)
    task = ProximalTask(y, costs, readonly(Delta), LOSSES.index(loss))
    lines = [line_of(form(task), tau, anchor, scores, moves) for form in FORMS]
    slopes = [slope(line, t) for line in lines]
    arrays, loop = map(point, lines)
    np.testing.assert_allclose(arrays[0], loop[0], atol=1e-12)
    np.testing.assert_array_equal(arrays[1], loop[1])
    np.testing.assert_allclose(arrays[2], loop[2], atol=1e-12)
    np.testing.assert_allclose([*slopes[:1], *arrays[3:]], [*slopes[1:], *loop[3:]], rtol=1e-12, atol=1e-10)


@pytest.mark.nojit
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("c", [2, 3])
def test_small_masses_keep_their_digits(form, c):
    """A mass of 1e-20 beside 1 is neither lost nor rounded."""
    task = ProximalTask(np.zeros(1, np.int64), np.ones(1), readonly(1 - np.eye(c)), 0)
    scores = np.full((1, c), -2.0)
    scores[0, :2] = 0.5, -0.5 + 2**-40
    line = line_of(form(task), 2.0**30, np.eye(c)[:1], scores, scores)
    slope(line, 0.0)
    blocks, _, steps, *_ = point(line)
    assert steps[0, 0] == -steps[0, 1] == blocks[0, 1] == pytest.approx(2**-71, rel=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("c", [2, 3, 5])
def test_curvature_is_that_of_its_formula(form, loss, c, monkeypatch):
    """Of two classes it is that along (v, -v)."""
    monkeypatch.setattr(newton_losses, "COPIED", 100)
    rng = np.random.default_rng(c)
    n, D, tau = 60, 4, 0.3
    X, y, costs = rng.normal(size=(n + 5, D)), rng.integers(0, c, n + 5), rng.integers(0, 3, n + 5) / 2
    blocks = rng.random((n + 5, c)) * (rng.random((n + 5, c)) < 0.5)
    blocks[::7] = np.eye(c)[y[::7]]
    blocks[1::7, 0] = 1.0
    matrix, expected = np.zeros((c * D, c * D)), np.zeros((c * D, c * D))
    for i in range(5, n + 5):
        curvature = np.zeros((c, c))
        if loss == LOSSES[0]:
            S = np.flatnonzero(blocks[i] > 0)
            curvature[np.ix_(S, S)] = np.eye(len(S)) - 1 / max(len(S), 1)
        else:
            for k in range(c):
                if k != y[i] and 0 < blocks[i, k] < 1:
                    e = np.eye(c)[k] - np.eye(c)[y[i]]
                    curvature += np.outer(e, e)
        expected += costs[i] / tau * np.kron(curvature, np.outer(X[i], X[i]))
    if c == 2:
        both = np.vstack([np.eye(D), -np.eye(D)]) / np.sqrt(2)
        matrix, expected = np.zeros((D, D)), both.T @ expected @ both
    task = ProximalTask(y, costs, readonly(1 - np.eye(c)), LOSSES.index(loss))
    form(task).add_curvature(5, X[5:], tau, blocks.T, matrix)
    np.testing.assert_allclose(np.tril(matrix), np.tril(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("c", [2, 5])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_numpy_and_compiled_passes_reach_the_same_optimum(loss, c, form, monkeypatch):
    X, y, costs, Delta = data(60, 4, c)
    rows = sp.csr_array(X) if form == "csr" else X
    problem = problem_of(rows, y, costs, Delta, loss)
    found = []
    for small, kind in ((newton_losses.SMALL_PASS, ArrayLosses), (0, LoopLosses)):
        monkeypatch.setattr(newton_losses, "SMALL_PASS", small)
        solver = ProximalNewton(problem, Setup(1e-9, None))
        outcome = run(solver, Stopping(1e-9, 400))
        assert outcome.converged and isinstance(solver.losses, kind)
        found.append((outcome.certificate.primal, solver.solution().weights))
    assert found[0][0] == pytest.approx(found[1][0], rel=2e-9)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-3)


def test_many_rows_are_read_in_chunks(monkeypatch):
    X, y, costs, Delta = data(300, 4, 3)
    primals = []
    for kept, piece in ((newton.KEPT, newton.CHUNK), (0, 64)):
        monkeypatch.setattr(newton, "KEPT", kept)
        monkeypatch.setattr(newton, "CHUNK", piece)
        outcome = run(ProximalNewton(problem_of(X, y, costs, Delta), Setup(1e-9, None)), Stopping(1e-9, 400))
        assert outcome.converged
        primals.append(outcome.certificate.primal)
    assert primals[0] == pytest.approx(primals[1], rel=2e-9)


def test_certificates_do_not_change_the_steps_nor_later_steps_an_answer():
    solver = ProximalNewton(problem_of(*data(30, 4, 3)), Setup(1e-9, None))
    solver.epoch(Clock())
    answer = solver.solution()
    before = [part.copy() for part in (answer.weights, answer.blocks)]
    assert solver.certify() == solver.certify()
    for _ in range(5):
        solver.epoch(Clock())
    np.testing.assert_array_equal(answer.weights, before[0])
    np.testing.assert_array_equal(answer.blocks, before[1])


def test_columns_that_rounding_makes_dependent_get_a_ridge():
    X, y, _, _ = data(60, 2, 3)
    X = 1e9 * np.column_stack([X, X, X + 1e-9])
    model = MultiClassSVC(solver="newton").fit(X, y)
    assert model.duality_gap_ <= model.tol
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_conjugate_gradients_and_factors_reach_the_same_optimum(loss, monkeypatch):
    problem = problem_of(*data(60, 4, 3), loss)
    primals = []
    for direct in (0, 600):
        monkeypatch.setattr(newton, "DIRECT", direct)
        outcome = run(ProximalNewton(problem, Setup(1e-6, None)), Stopping(1e-6, 400))
        assert outcome.converged
        primals.append(outcome.certificate.primal)
    assert primals[0] == pytest.approx(primals[1], rel=2e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gap_splits_in_two(loss):
    X, y, costs, Delta = data()
    solver = ProximalNewton(problem_of(X, y, costs, Delta, loss), Setup(1e-3, None))
    Xb = np.hstack([X, np.ones((len(y), 1))])
    for _ in range(5):
        solver.epoch(Clock())
        steps = solver.steps
        primal, dual = objectives(Xb, y, costs, Delta, loss, steps.W[0], steps.shares[0].T)
        assert primal - dual == pytest.approx(float(steps.gap[0] + steps.distance[0]), abs=1e-9 * primal)
        assert steps.primal[0] <= primal * (1 + 1e-9) and steps.dual[0] >= dual - 1e-9 * primal
        certificate = solver.certify()
        assert certificate.primal == pytest.approx(steps.primal[0])
        assert certificate.dual == pytest.approx(steps.dual[0], rel=1e-9, abs=1e-9 * primal)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_same_optimum_as_block_sweeps(loss, form, dtype):
    X, y, costs, Delta = data()
    X = (X / 50).astype(dtype)
    X = sp.csr_array(X) if form == "sparse" else X
    problem = problem_of(X, y, costs, Delta, loss)
    sweeps = run(ExactBlocks(problem, Setup(1e-7, np.random.default_rng(0))), Stopping(1e-6, 20000))
    newton = ProximalNewton(problem, Setup(1e-6, None))
    outcome = run(newton, Stopping(1e-6, 200))
    assert sweeps.converged and outcome.converged
    assert outcome.certificate.primal == pytest.approx(sweeps.certificate.primal, rel=2e-6)
    dense = np.asarray(X.toarray() if form == "sparse" else X, np.float64)
    Xb = np.hstack([dense, np.ones((len(y), 1))])
    solution = newton.solution()
    primal, dual = objectives(Xb, y, costs, Delta, loss, solution.weights.T, solution.blocks)
    assert outcome.certificate.primal == pytest.approx(primal, rel=1e-12)
    assert outcome.certificate.dual == pytest.approx(dual, rel=1e-12)


@pytest.mark.parametrize(
    ("load", "objective", "score"), [(load_wine, 9.3169, 0.98), (load_breast_cancer, 46.772, 0.95)]
)
def test_raw_tables_converge_by_default(load, objective, score):
    """Features of scales 0.1 to 1000, where sweeps stop at a gap of 1."""
    X, y = load(return_X_y=True)
    model = MultiClassSVC().fit(X, y)
    assert model.duality_gap_ <= 1e-3
    assert model.primal_objective_ == pytest.approx(objective, rel=1e-3)
    assert model.score(X, y) >= score


@pytest.mark.parametrize(
    "options", [{"C": 10.0}, {"C": 1e4}, {"loss": "weston_watkins", "intercept_scaling": 100.0}]
)
def test_few_features_and_overlapping_classes_converge(options):
    rng = np.random.default_rng(0)
    y = np.arange(700) % 3
    X = rng.normal(size=(700, 4)) + 0.5 * np.eye(3, 4)[y]
    model = MultiClassSVC(**options).fit(X, y)
    assert model.duality_gap_ <= 1e-3


def test_tol_decides_on_separable_classes():
    X, y = load_digits(return_X_y=True)
    for tol in (0.1, 1e-3):
        model = MultiClassSVC(tol=tol, random_state=0).fit(X, y)
        assert model.duality_gap_ <= tol
        assert all(record["gap"] > tol for record in model.history_[:-1])


def test_a_start_from_other_rows_is_no_worse_than_none():
    """Raw features of very different size: the weights of some rows of a dual solution are nonsense."""
    rng, n = np.random.default_rng(0), 90
    y = np.arange(n) % 3
    X = 100 * rng.normal(size=(n, 4)) ** 3
    X[:, 0] += 100 * y
    X[:, 1] += 2 * X[:, 0]
    whole = MultiClassSVC(C=100.0, warm_start=True).fit(X, y)
    some = rng.permutation(n)[: 3 * n // 4]
    cold = MultiClassSVC(C=100.0).fit(X[some], y[some])
    warm = MultiClassSVC(C=100.0, warm_start=True)
    warm._warm = whole._warm[0][some], 100.0, (len(some), 3)
    warm.fit(X[some], y[some])
    assert warm.duality_gap_ <= 1e-3
    assert warm.primal_objective_ == pytest.approx(cold.primal_objective_, rel=2e-3)


def test_certificates_of_sweeps_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9000, 4)), np.arange(9000) % 3
    histories = []
    for n_jobs in (1, 2, 3):
        model = MultiClassSVC(solver="exact", n_jobs=n_jobs, tol=1e-2, random_state=0).fit(X, y)
        histories.append([{**record, "seconds": 0} for record in model.history_])
    assert histories[0] == histories[1] == histories[2]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weston_watkins_blocks_in_single_precision_are_certified_as_a_dual_point(dtype):
    """The truth's coordinate is what the others leave, however it was rounded."""
    X, y, costs, Delta = data()
    rng = np.random.default_rng(0)
    blocks = rng.random((len(y), len(Delta))).astype(np.float32)
    blocks[np.arange(len(y)), y] = 0
    blocks[np.arange(len(y)), y] = 1 - blocks.sum(axis=1)
    problem = problem_of(X.astype(dtype), y, costs, Delta, "weston_watkins")
    Xb = np.hstack([X.astype(dtype), np.ones((len(y), 1))]).astype(np.float64)
    W = np.zeros((len(Delta), Xb.shape[1]))
    _, dual = objectives(Xb, y, costs, Delta, "weston_watkins", W, blocks.astype(np.float64))
    assert problem.evaluate(blocks).certificate.dual == pytest.approx(dual, rel=1e-13)


def random_fit(seed):
    """A random problem of any scale: its fit, how far rounding may take P, and P and D by definition."""
    rng = np.random.default_rng(seed)
    n, d, c = int(rng.integers(6, 60)), int(rng.integers(1, 8)), int(rng.integers(2, 6))
    X = (rng.normal(size=(n, d)) + rng.normal(size=d) * (rng.random() < 0.3)) * 10.0 ** rng.uniform(-3, 4, d)
    if rng.random() < 0.3:
        X = np.vstack([X, X])
    if rng.random() < 0.3:
        X[:, 0] = rng.choice([0.0, 1.0, 1000.0])
    if rng.random() < 0.3:
        X = np.hstack([X, X[:, :1]])
    X = X.astype(np.float32 if rng.random() < 0.3 else np.float64)
    n = len(X)
    y = np.arange(n) % c
    weights = rng.uniform(0, 2, n) * (rng.random(n) < 0.8)
    weights[0] = 1.0
    if rng.random() < 0.3:
        weights[y == c - 1] = 0.0
    Delta = rng.uniform(0.2, 3, (c, c)) if rng.random() < 0.5 else np.ones((c, c))
    np.fill_diagonal(Delta, 0)
    C, loss, scaling = 10.0 ** rng.uniform(-6, 6), LOSSES[seed % 2], 10.0 ** rng.uniform(-1, 2)
    model = MultiClassSVC(C, loss=loss, cost_matrix=Delta, intercept_scaling=scaling, warm_start=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has no weight")
        model.fit(sp.csr_array(X) if rng.random() < 0.3 else X, y, sample_weight=weights)
    W = np.hstack([model.coef_, model.intercept_[:, None] / scaling]).astype(np.float64)
    W = np.vstack([-W / 2, W / 2]) if c == 2 else W
    Xb = np.hstack([X.astype(np.float64), np.full((n, 1), scaling)])
    rounding = SCORE_ROUNDING * C * np.sum(weights[:, None] * (np.abs(Xb) @ np.abs(W.T) + Delta[y]))
    return model, rounding, objectives(Xb, y, C * weights, Delta, loss, W, model._warm[0])


def check_random_fits(seeds):
    """The certificate is true of every fit, and `tol` is reached."""
    for seed in seeds:
        model, rounding, (primal, dual) = random_fit(seed)
        assert model.primal_objective_ == pytest.approx(primal, rel=ROUNDING, abs=rounding), seed
        assert model.dual_objective_ == pytest.approx(dual, abs=ROUNDING * primal), seed
        assert dual <= primal * (1 + 1e-12), seed
        assert model.duality_gap_ <= 1e-3, seed


def test_random_problems_of_any_scale_are_solved():
    check_random_fits(range(40))


def test_slopes_that_jump_do_not_hold_a_line_search():
    """Rows that are all alike, or nearly: the way to the minimum is a millionth of the step."""
    check_random_fits([276, 490, 1169, 1327, 1652, 2602, 2907])


def test_coefficients_of_float32_rows_are_kept_in_float64():
    """In float32 these would be too coarse to get within tol of the optimum."""
    X, y = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32) * 1e3, np.arange(40) % 2
    X[:, 0] += 1e4 * y
    assert MultiClassSVC(C=1e6).fit(X, y).duality_gap_ <= 1e-3


@pytest.mark.slow
def test_many_random_problems_of_any_scale_are_solved():
    check_random_fits(range(40, 3000))
