"""A basis whose vectors move: gradients, optimisers, certificates, and refused combinations."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import maxmargin
from maxmargin import SparseMultiClassSVC, SparseMultiLabelSVC
from maxmargin.core import kernels
from maxmargin.core.kernels import Clouds, Kernel
from maxmargin.core.loop import Clock
from maxmargin.sparse import learned, machines
from maxmargin.sparse.greedy import Greedy, Newton
from maxmargin.sparse.learned import (
    Adam,
    Learned,
    Moving,
    QuasiNewton,
    Schedule,
    independent,
    regularise,
    value_and_gradient,
)
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
CODES = np.arange(12) % 4
SIGNS = np.where(RNG.random((12, 3)) < 0.5, 1, -1)
P = RNG.normal(size=(2, 3))
C = RNG.uniform(0.5, 2, 12)
PROBLEMS = {
    "margins": BasisProblem(Kernel("rbf", 0.4), X, SquaredMargins(CODES, C, 4)),
    "hinges": BasisProblem(Kernel("rbf", 0.4, offset=0.7), X, SquaredHinges(SIGNS, C)),
    "prior": BasisProblem(Kernel("rbf", 0.4, offset=0.7), sp.csr_array(X), SquaredHinges(SIGNS, C), P),
}


def clouded(gamma, U, V, spread):
    """Values of rows and clouds, and between clouds, one by one."""
    K, K_JJ = np.empty((len(U), len(V))), np.empty((len(V), len(V)))
    for j, (v, r) in enumerate(zip(V, spread, strict=True)):
        for i, u in enumerate(U):
            K[i, j] = math.exp(-gamma * sum((u - v) ** 2 / (1 + r)))
        for i, (w, s) in enumerate(zip(V, spread, strict=True)):
            scale = math.sqrt(math.prod((1 + r) * (1 + s) / (1 + r + s)))
            K_JJ[i, j] = scale * math.exp(-gamma * sum((w - v) ** 2 / (1 + r + s)))
    return K, K_JJ


def naive(problem, at, share):
    """The objective, value by value."""
    rows = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    rows = rows if at.metric is None else rows @ at.metric.T
    gamma, offset = math.exp(at.width), problem.kernel.offset
    spread = np.zeros_like(at.vectors) if at.spread is None else np.exp(at.spread)
    K, K_JJ = (values + offset for values in clouded(gamma, rows, at.vectors, spread))
    F = K @ at.al if problem.P is None else K @ at.al @ problem.P
    if isinstance(problem.loss, SquaredHinges):
        loss = (problem.loss.c[:, None] * np.maximum(0, 1 - problem.loss.Y * F) ** 2).sum()
    else:
        M = np.maximum(0, 1 + F - F[np.arange(12), CODES][:, None])
        M[np.arange(12), CODES] = 0
        loss = (problem.loss.c[:, None] * M**2).sum()
    return 0.5 * share * np.trace(at.al.T @ K_JJ @ at.al) + loss


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("metric", [None, P.T @ P + np.eye(3)], ids=["points", "clouds"])
def test_the_gradient_is_that_of_the_objective(name, metric):
    problem, rng = PROBLEMS[name], np.random.default_rng(1)
    at = Moving(rng.normal(size=(5, 3)), rng.normal(size=(5, problem.rank)), -1.0)
    if metric is not None:
        problem = replace(problem, X=X)
        at = at._replace(metric=metric, spread=rng.normal(size=(5, 3)))
    value, gradient = value_and_gradient(problem, np.arange(12), at, 0.5, regularise(at))
    assert value == pytest.approx(naive(problem, at, 0.5), rel=1e-12)
    for place in range(3 if metric is None else 5):
        direction = rng.normal(size=np.shape(at[place]))
        ends = [
            naive(problem, at._replace(**{Moving._fields[place]: at[place] + h * direction}), 0.5)
            for h in (1e-6, -1e-6)
        ]
        expected = (ends[0] - ends[1]) / 2e-6
        assert np.vdot(gradient[place], direction) == pytest.approx(expected, rel=1e-6)


def test_steps_follow_adams_rule():
    expected = np.array([3.0, -1.0, 0.5])
    adam, x, mean, square = Adam(expected), expected, 0.0, 0.0
    for t, g in enumerate((2.0, -1.0, 4.0), 1):
        x = adam.step(x, np.full(3, g), 0.5)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        corrected = mean / (1 - 0.9**t) / math.sqrt(square / (1 - 0.999**t))
        expected = expected - 0.5 * corrected
    np.testing.assert_allclose(x, expected, rtol=1e-12)


def quadratic(size, steepest):
    """A convex quadratic function with known minimum; counts how often it is asked."""
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(size, size)))
    A, lowest, asked = Q @ np.diag(np.geomspace(1, steepest, size)) @ Q.T, rng.normal(size=size), []

    def objective(x):
        asked.append(x)
        return 0.5 * (x - lowest) @ A @ (x - lowest), A @ (x - lowest)

    return objective, lowest, asked


def never():
    return False


def test_quasi_newton_steps_follow_the_updated_inverse_hessian():
    """The direction is that of the dense update H <- (I - s y'/s'y) H (I - y s'/s'y) + s s'/s'y."""
    objective, _, _ = quadratic(6, 50.0)
    quasi, x = QuasiNewton(memory=3, longest=np.inf), np.zeros(6)
    for _ in range(5):
        x = quasi.minimise(objective, x, 1, never)
    assert len(quasi.changes) == 3
    s, y, _ = quasi.changes[-1]
    H = np.eye(6) * (s @ y) / (y @ y)
    for s, y, inverse in quasi.changes:
        assert inverse == pytest.approx(1 / (s @ y))
        turn = np.eye(6) - np.outer(s, y) / (s @ y)
        H = turn @ H @ turn.T + np.outer(s, s) / (s @ y)
    g = objective(x)[1]
    np.testing.assert_allclose(quasi.direction(g), -H @ g, rtol=1e-9)


def test_quasi_newton_finds_the_minimum_by_steps_that_are_no_longer_than_allowed():
    objective, lowest, asked = quadratic(10, 1e4)
    quasi = QuasiNewton(longest=0.2)
    x, values = np.zeros(10), [objective(np.zeros(10))[0]]
    for _ in range(100):
        following = quasi.minimise(objective, x, 1, never)
        assert np.abs(following - x).max() <= 0.2 + 1e-12
        x = following
        values.append(objective(x)[0])
    np.testing.assert_allclose(x, lowest, atol=1e-6)
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))
    asked.clear()
    np.testing.assert_array_equal(quasi.minimise(objective, lowest, 100, never), lowest)
    assert len(asked) <= 2 * learned.TRIALS + 1


@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-22, 1e15])
def test_quasi_newton_in_single_precision_accepts_gradients_of_any_size(size):
    """Nothing is divided by zero if gradients or their squares underflow."""
    centre = np.arange(5, dtype=np.float32)

    def objective(x):
        far = (x - centre).astype(np.float64)
        return 0.5 * size * float(far @ far), (size * far).astype(np.float32)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = QuasiNewton().minimise(objective, np.ones(5, np.float32), 30, lambda: False)
    assert np.isfinite(x).all() and objective(x)[0] <= objective(np.ones(5, np.float32))[0]
    if size >= 1e-22:
        np.testing.assert_allclose(x, centre, atol=1e-3)


@pytest.fixture
def quick(monkeypatch):
    """Few steps a round, enough for small data."""
    monkeypatch.setattr(machines, "Learned", partial(Learned, steps=25, descents=10))


def objective(machine, X, y):
    """The objective of a fitted multi-class machine from its public attributes."""
    U, V = X @ machine.metric_.T, machine.basis_vectors_ @ machine.metric_.T
    K, K_JJ = clouded(machine.gamma_, U, V, machine.spread_)
    F = K @ machine.coef_.T
    own = F[np.arange(len(y)), y]
    Xi = np.maximum(1 + F - own[:, None], 0)
    Xi[np.arange(len(y)), y] = 0
    return 0.5 * np.trace(machine.coef_ @ K_JJ @ machine.coef_.T) + machine.C * (Xi**2).sum()


def test_classes_learn_a_certified_basis_that_beats_the_grown_one(wine, quick):
    X, y = wine
    machine = SparseMultiClassSVC(C=5, max_basis=4, rel_tol=0, random_state=0)
    grown = machine.fit(X, y).primal_objective_
    learned = machine.set_params(basis="learned", full_bound=True).fit(X, y)
    assert learned.n_basis_ == 4 and learned.gamma_ != 1 / (X.shape[1] * X.var())
    assert learned.primal_objective_ < 0.7 * grown
    assert learned.duality_gap_ <= 1e-6
    assert learned.primal_objective_ == pytest.approx(objective(learned, X, y), rel=1e-9)
    assert learned.full_model_bound_ < learned.primal_objective_
    assert [record["basis"] for record in learned.history_[:5]] == [1, 2, 3, 4, 4]
    again = SparseMultiClassSVC(C=5, max_basis=4, rel_tol=0, random_state=0, basis="learned").fit(X, y)
    np.testing.assert_array_equal(again.coef_, learned.coef_)


def test_labels_with_a_prior_learn_too(wine, quick, tmp_path):
    X, y = wine
    Y = (y[:, None] == np.arange(3)).astype(int)
    R = np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]])
    machine = SparseMultiLabelSVC(C=5, prior=R, max_basis=4, rel_tol=0, fit_intercept=True, random_state=0)
    grown = machine.fit(X, Y).primal_objective_
    learned = machine.set_params(basis="learned").fit(sp.csr_array(X), Y)
    assert learned.primal_objective_ < 0.8 * grown and learned.duality_gap_ <= 1e-6
    maxmargin.save(learned, tmp_path / "learned.mm")
    loaded = maxmargin.load(tmp_path / "learned.mm")
    assert loaded.basis == "learned" and loaded.gamma_ == learned.gamma_
    np.testing.assert_array_equal(loaded.decision_function(X), learned.decision_function(X))


def test_a_metric_finds_the_features_that_matter(monkeypatch, tmp_path):
    """Of six features two tell the classes; where one width must serve all, the louder others count more."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)) * [1, 1, 2, 2, 2, 2] + 50
    y = 2 * (X[:, 0] > 50) + ((X[:, 1] - 50) ** 2 < 0.5)
    machine = SparseMultiClassSVC(C=5, max_basis=6, basis="learned", random_state=0)
    seen = machine.fit(X[:200], y[:200])
    reach = np.linalg.norm(seen.metric_, axis=0)
    assert reach[:2].min() > 3 * reach[2:].max()
    assert np.square(reach).mean() == pytest.approx(1) and seen.duality_gap_ <= 1e-6
    np.testing.assert_allclose(seen.decision_function(sp.csr_array(X)), seen.decision_function(X), atol=1e-9)
    maxmargin.save(seen, tmp_path / "seen.mm")
    loaded = maxmargin.load(tmp_path / "seen.mm")
    np.testing.assert_array_equal(loaded.decision_function(X), seen.decision_function(X))
    monkeypatch.setattr(learned, "NARROW", 5)
    round_ones = SparseMultiClassSVC(C=5, max_basis=6, basis="learned", random_state=0).fit(X[:200], y[:200])
    assert round_ones.metric_ is None
    assert seen.score(X[200:], y[200:]) > round_ones.score(X[200:], y[200:]) + 0.1


def test_every_vector_finds_a_width_of_its_own(quick, tmp_path):
    """A flat class and a high one cross in a plane: no single metric has both shapes."""
    rng = np.random.default_rng(0)
    X, flat = rng.uniform(-3, 3, size=(600, 2)), rng.random(600) < 0.5
    X[flat, 1] *= 0.05
    X[~flat, 0] *= 0.05
    y = np.where(np.abs(X).max(axis=1) < 0.3, 2, flat)
    machine = SparseMultiClassSVC(C=5, max_basis=3, basis="learned", random_state=0).fit(X, y)
    assert machine.spread_.shape == (3, 2) and machine.spread_.min() >= 0
    wide = (1 + machine.spread_[:, 0]) / (1 + machine.spread_[:, 1])
    assert wide.max() / wide.min() > 5
    assert machine.primal_objective_ == pytest.approx(objective(machine, X, y), rel=1e-9)
    maxmargin.save(machine, tmp_path / "m.mm")
    loaded = maxmargin.load(tmp_path / "m.mm")
    np.testing.assert_array_equal(loaded.spread_, machine.spread_)
    np.testing.assert_array_equal(loaded.decision_function(X), machine.decision_function(X))
    assert machine.fit(sp.csr_array(X), y).spread_ is None


def test_the_regulariser_of_many_clouds_is_computed_in_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(7, 3))
    at = Moving(rng.normal(size=(7, 3)), rng.normal(size=(7, 2)), 0.3, np.eye(3), spread)
    whole = regularise(at)
    kernel = Kernel("rbf", math.exp(0.3))
    np.testing.assert_allclose(whole.K, kernel.inner_products(Clouds(at.vectors, np.exp(spread))), rtol=1e-12)
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 400)
    parts = regularise(at)
    np.testing.assert_allclose(parts.K, whole.K, rtol=1e-12)
    for name, slope_there in whole.slopes.items():
        np.testing.assert_allclose(parts.slopes[name], slope_there, rtol=1e-10)


def test_centres_ignore_directions_that_the_metric_removes():
    state = Moving(np.array([[2.0, 3.0]]), np.ones((1, 1)), 0.0, np.diag([2.0, 1e-7]))
    np.testing.assert_allclose(state.centres(), [[1.0, 0.0]])
    kernel = state.kernel(Kernel("rbf", 5.0))
    np.testing.assert_allclose(kernel.metric, np.diag([2.0, 1e-7]) / math.sqrt(2))
    assert kernel.gamma == pytest.approx(2)


def moving(wine, **options):
    """A `Learned` that has grown four vectors."""
    X, y = wine
    problem = BasisProblem(Kernel.of(X, "rbf"), X, SquaredMargins(y, np.full(len(y), 5.0), 3))
    rng = np.random.RandomState(0)
    greedy = Greedy(
        problem, np.arange(len(X)), rng, max_basis=4, n_candidates=5, rel_tol=0.0, patience=1, tol=1e-6,
        optimiser=Newton(100),
    )  # fmt: skip
    solver = Learned(greedy, rng, **options)
    while not solver.grown:
        solver.epoch(Clock())
    return solver


def test_a_moved_basis_with_a_higher_objective_is_rejected(wine):
    solver = moving(wine, rounds=2, steps=3, schedule=Schedule(256, 50.0, 2, 4, 3))
    grown = solver.greedy.solution()
    solver.lowest = np.inf  # let the held-out samples like what they see
    while not solver.epoch(Clock()).done:
        assert solver.certify() == solver.greedy.certify()
    np.testing.assert_array_equal(solver.solution().coefficients, grown.coefficients)
    np.testing.assert_array_equal(solver.solution().vectors, grown.vectors)
    assert solver.solution().path is None


def test_held_out_samples_choose(wine):
    solver = moving(wine, rounds=100, steps=10, descents=3, schedule=Schedule(256, 0.5, 5, 2, 1))
    assert not set(solver.validation) & set(solver.trained) and len(solver.validation) == 17
    losses = [solver._validation_loss()]
    judge, join, chosen = solver._validation_loss, solver._run_on_all_samples, []
    solver._validation_loss = lambda: losses.append(judge()) or losses[-1]
    solver._run_on_all_samples = lambda clock: chosen.append(solver.best) or join(clock)
    while not solver.epoch(Clock()).done:
        pass
    assert solver.lowest == min(losses)
    (solver.state,) = chosen
    assert judge() == min(losses)


def test_held_out_samples_join_at_the_end(wine):
    solver = moving(wine, rounds=7, steps=10, descents=5, schedule=Schedule(256, 0.5, 2, 9, 0))
    held, seen, descend, chosen = set(solver.validation), [], solver._lbfgs_round, []
    solver._lbfgs_round = lambda x, clock: seen.append(set(solver.trained)) or descend(x, clock)
    join = solver._run_on_all_samples
    solver._run_on_all_samples = lambda clock: chosen.append(solver.best) or join(clock)
    while not solver.epoch(Clock()).done:
        pass
    everything = set(range(len(wine[0])))
    assert [rows == everything for rows in seen] == [False] * 5 + [True] * 2
    assert all(not rows & held for rows in seen[:5])
    before, after = (
        value_and_gradient(solver.centred, np.arange(len(wine[0])), state, 1.0, regularise(state))[0]
        for state in (chosen[0], solver.best)
    )
    assert after < before


def test_rounds_on_all_samples_do_not_depend_on_the_chunks(wine, monkeypatch):
    states = []
    for chunk in (1000, 7):
        monkeypatch.setattr(learned, "CHUNK", chunk)
        solver = moving(wine, descents=5, schedule=Schedule(256, 0.1, 0, 4, 0))
        at, before = solver.units.vector(solver.state), solver.state
        solver.epoch(Clock())
        states.append(solver.units.vector(solver.state) - at)
        first, last = (
            value_and_gradient(solver.centred, solver.trained, state, 1.0, regularise(state))[0]
            for state in (before, solver.state)
        )
        assert last < 0.5 * first
    np.testing.assert_allclose(states[1], states[0], rtol=1e-6, atol=1e-9)


def test_dependent_vectors_are_left_out():
    problem = PROBLEMS["margins"]
    vectors = X[[0, 1, 0, 2]]
    np.testing.assert_array_equal(independent(problem, vectors), [0, 1, 3])


def test_a_time_limit_ends_the_moves_with_a_usable_model(wine, quick):
    X, y = wine
    machine = SparseMultiClassSVC(C=5, max_basis=3, basis="learned", random_state=0)

    class Late(Learned):
        def _run_round(self, clock):
            clock.limit = 0.0
            super()._run_round(clock)

    with pytest.MonkeyPatch.context() as patch, pytest.warns(ConvergenceWarning, match="cut short"):
        patch.setattr(machines, "Learned", Late)
        machine.fit(X, y)
    assert machine.score(X, y) > 0.5 and len(machine.history_) == 4


def test_wrong_uses_of_a_learned_basis_are_refused(wine, quick):
    X, y = wine
    with pytest.raises(ValueError, match=r"needs kernel='rbf'.*use basis='greedy'"):
        SparseMultiClassSVC(kernel="linear", basis="learned").fit(X, y)
    machine = SparseMultiClassSVC(max_basis=2, basis="learned", random_state=0).fit(X, y)
    for ask in (lambda: machine.truncate(1), lambda: next(machine.staged_predict(X))):
        with pytest.raises(AttributeError, match="no smaller stages; fit it with a smaller max_basis"):
            ask()
    with pytest.raises(ValueError, match="basis"):
        SparseMultiClassSVC(basis="moved").fit(X, y)
