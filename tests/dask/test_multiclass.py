"""MultiClassSVC on a cluster reaches the optimum of one machine, whatever the partitions."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin.core.loop import Clock
from maxmargin.dask import MultiClassSVC, decision_function, predict
from maxmargin.dask.multiclass import TASKS, ClassPart, blocks_of
from maxmargin.dask.rounds import Here, Partitioned, Rounds
from maxmargin.dask.working_sets import dense
from maxmargin.structured.multiclass_problem import Labels
from tests.checks import apart
from tests.dask.conftest import delayed_parts

TIGHT = {"tol": 1e-8, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(70, 5)) * (rng.random((70, 5)) < 0.7)
    return X, np.array(["a", "b", "c"])[np.argmax(X[:, :3] + rng.normal(size=(70, 3)), axis=1)]


@pytest.mark.parametrize("n_parts", [1, 3, 7])
def test_reaches_the_optimum_of_one_machine(client, data, n_parts):
    X, y = data
    X = sp.csr_array(X) if n_parts == 3 else X
    best = maxmargin.MultiClassSVC(**TIGHT).fit(X, y)
    model = MultiClassSVC(working_rows=25, **TIGHT)
    model.fit(*delayed_parts(X, y, n_parts), client=client)
    assert model.duality_gap_ <= 1e-8
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    assert model.dual_objective_ == pytest.approx(best.dual_objective_, rel=1e-6)
    longest = np.sqrt(1 + np.max(np.sum((X.toarray() if sp.issparse(X) else X) ** 2, axis=1)))
    scores = best.decision_function(X)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=longest * apart(model, best))


VARIANTS = {
    "weston_watkins": {"loss": "weston_watkins"},
    "costs": {"cost_matrix": [[0, 1, 2], [3, 0, 1], [1, 1, 0]]},
    "balanced": {"class_weight": "balanced"},
    "weights": {"class_weight": {"a": 3.0}, "C": 5.0},
    "no intercept": {"fit_intercept": False},
    "scaled intercept": {"intercept_scaling": 5.0, "C": 0.1},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_have_the_meaning_of_one_machine(client, data, name):
    X, y = data
    weight = np.arange(70) % 3.0
    best = maxmargin.MultiClassSVC(**TIGHT, **VARIANTS[name]).fit(X, y, weight)
    model = MultiClassSVC(working_rows=30, **TIGHT, **VARIANTS[name])
    model.fit(da.from_array(X, (30, 5)), da.from_array(y, 40), weight, client=client)
    assert model.duality_gap_ <= 1e-8
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


def test_two_classes_share_a_column_and_one_class_is_constant(client, data):
    X, y = data
    best = maxmargin.MultiClassSVC(**TIGHT).fit(X, y == "a")
    model = MultiClassSVC(**TIGHT).fit(da.from_array(X, (30, 5)), y == "a", client=client)
    assert model.coef_.shape == (1, 5)
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    with pytest.warns(UserWarning, match="a single class"):
        model = MultiClassSVC().fit(da.from_array(X, (30, 5)), np.full(70, "a"), client=client)
    assert set(model.predict(X)) == {"a"}


def test_two_processes_and_lazy_answers(processes, data):
    X, y = data
    rows = da.from_array(X, (30, 5))
    best = maxmargin.MultiClassSVC(tol=1e-6, random_state=0).fit(X, y)
    model = MultiClassSVC(working_rows=40, tol=1e-6, random_state=0).fit(rows, y, client=processes)
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=2e-6)
    for answers, theirs in [
        (model.predict(rows), model.to_local().predict(X)),
        (predict(best, rows), best.predict(X)),
        (decision_function(best, rows), best.decision_function(X)),
    ]:
        assert isinstance(answers, da.Array)
        answers = answers.compute(scheduler="sync")
        if theirs.dtype == float:
            np.testing.assert_allclose(answers, theirs, rtol=1e-12, atol=1e-12)
        else:
            assert np.array_equal(answers, theirs)
    assert type(model.to_local()) is maxmargin.MultiClassSVC


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("loss", ["crammer_singer", "weston_watkins"])
@pytest.mark.nojit
def test_every_round_is_an_ascent_with_true_certificates(loss, in_turn):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(45, 4)) * [1.0, 5.0, 1.0, 0.1], rng.integers(0, 3, 45)
    Delta = np.array([[0.0, 1, 2], [1, 0, 1], [3, 1, 0]])
    costs = rng.uniform(0, 2, 45)
    rows = np.array_split(np.arange(45), 3)
    parts = [ClassPart(X[k], Labels(y[k], costs[k], Delta, loss), 1.0) for k in rows]
    problem = Partitioned(TASKS, parts, [15, 15, 15], 4, [slice(0, 3)], None, 1.0, 0.0)
    solver = Rounds(problem, Here(), tol=1e-6, budget=15, rng=np.random.RandomState(0), in_turn=in_turn)
    last = -np.inf
    for _ in range(6):
        shown = solver.epoch(Clock()).certificate
        assert shown.dual >= last - 1e-9 * abs(shown.primal)
        last = shown.dual
        exact, W = solver.certify(), solver.solution()
        wrong = np.vstack([dense(some) for some in solver.groups[0].alphas])
        assert (wrong >= 0).all()
        assert (wrong <= 1).all()
        assert loss == "weston_watkins" or (wrong.sum(axis=1) <= 1 + 1e-12).all()
        # Both objectives over all rows, by their formulas.
        ones, truth = np.column_stack([X, np.ones(45)]), np.arange(45)
        V = ones.T @ (costs[:, None] * (np.eye(3)[y] - blocks_of(wrong, y)))
        dual = float(costs @ (wrong * Delta[y]).sum(axis=1)) - 0.5 * np.vdot(V, V)
        H = Delta[y] + ones @ W - (ones @ W)[truth, y][:, None]
        worst = H.max(axis=1) if loss == "crammer_singer" else np.maximum(H, 0).sum(axis=1)
        assert exact.dual == pytest.approx(dual, rel=1e-9, abs=1e-9)
        assert shown.dual == pytest.approx(dual, rel=1e-9, abs=1e-9)
        assert exact.primal == pytest.approx(0.5 * np.vdot(W, W) + costs @ worst, rel=1e-9)


def test_invalid_data_and_parameters_are_refused(client, data):
    X, y = data
    with pytest.raises(ValueError, match="one class per sample"):
        MultiClassSVC().fit(X, np.eye(70)[:, :3], client=client)
    with pytest.raises(ValueError, match="kernel"):
        MultiClassSVC(kernel="rbf").fit(X, y, client=client)
    with pytest.raises(ValueError, match="zero everywhere"):
        MultiClassSVC().fit(X, y, np.zeros(70), client=client)
    with pytest.raises(ValueError, match="Partition 1: sample_weight"):
        MultiClassSVC().fit(
            [dask.delayed((X[:9], y[:9], np.ones(9))), dask.delayed((X[9:], y[9:], -np.ones(61)))],
            client=client,
        )
