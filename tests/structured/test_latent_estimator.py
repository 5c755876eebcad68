"""LatentSVC: the scikit-learn surface, input kinds, limit cases."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from maxmargin import LatentSVC, MultiClassSVC
from maxmargin.structured.latent import SOLVERS


def bags(n=60, seed=0, K=3, d=6, most=5):
    """Distractors around zero, and one candidate near the centre of the class."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.eye(K, d)
    X, y, where = [], np.arange(n) % K, []
    for k in y:
        rows = rng.normal(size=(rng.integers(1, most + 1), d))
        h = rng.integers(len(rows))
        rows[h] += centres[k]
        X.append(rows)
        where.append(h)
    return X, np.array(["one", "two", "three"])[y], np.array(where)


X, Y, WHERE = bags()
STACKED, LENGTHS = np.concatenate(X), [len(x) for x in X]


@pytest.mark.parametrize("solver", SOLVERS)
def test_finds_class_and_candidate(solver):
    model = LatentSVC(C=0.1, solver=solver, random_state=0, tol=1e-2).fit(X, Y)
    unseen, truth, where = bags(seed=1)
    assert model.score(unseen, truth) > 0.85
    assert (model.predict_latent(unseen) == where).mean() > 0.8
    assert (model.latent_ == WHERE).mean() > 0.8
    assert np.all(np.diff(model.objectives_) < 0)
    assert model.duality_gap_ <= 1e-2


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_two_classes_of_one_candidate_are_the_binary_svm(fit_intercept):
    rows = np.array([x[h] for x, h in zip(X, WHERE, strict=True)])
    labels = np.where(Y == "three", "two", Y)
    options = {"C": 0.05, "fit_intercept": fit_intercept, "intercept_scaling": 2.0}
    model = LatentSVC(**options, tol=1e-10, max_iter=20_000).fit(rows[:, None, :], labels)
    reference = LinearSVC(**options, multi_class="crammer_singer", tol=1e-11, max_iter=10**6).fit(
        rows, labels
    )
    scores = reference.decision_function(rows)
    np.testing.assert_allclose(model.decision_function(rows), scores, atol=1e-4)
    np.testing.assert_allclose(model.coef_[1] - model.coef_[0], reference.coef_[0], atol=2e-4)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("solver", "options", "tol", "atol"),
    [
        ("pairwise", {}, 1e-11, 1e-6),
        ("bcpl", {}, 1e-8, 1e-5),
        ("bcpl", {"safeguard": False}, 1e-6, 1e-3),
        ("bcfw", {}, 1e-3, 2e-2),
        ("oeg", {}, 1e-3, 2e-2),
    ],
)
def test_one_candidate_equals_multiclass_whatever_the_solver(solver, options, tol, atol, sparse):
    """Objective, weights and decisions; strong convexity bounds the weights by the objective."""
    rows = np.array([x[h] for x, h in zip(X, WHERE, strict=True)])
    weights = np.random.default_rng(0).integers(0, 3, len(rows))
    shared = {"C": 0.05, "intercept_scaling": 2.0, "random_state": 0}
    exact = MultiClassSVC(**shared, tol=1e-12).fit(rows, Y, sample_weight=weights)
    model = LatentSVC(**shared, **options, solver=solver, tol=tol, max_iter=20_000)
    bags = [sp.csr_array(row[None]) for row in rows] if sparse else rows[:, None, :]
    model.fit(bags, Y, sample_weight=weights)
    assert model.duality_gap_ <= tol
    assert model.primal_objective_ == pytest.approx(exact.primal_objective_, rel=tol)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=atol)
    np.testing.assert_allclose(model.intercept_, exact.intercept_, atol=2 * atol)
    squared = (
        np.sum((model.coef_ - exact.coef_) ** 2) + np.sum((model.intercept_ - exact.intercept_) ** 2) / 4
    )
    assert squared / 2 <= model.primal_objective_ - exact.dual_objective_ + 1e-12
    np.testing.assert_allclose(model.decision_function(bags), exact.decision_function(rows), atol=20 * atol)


KINDS = {
    "csr": ([sp.csr_array(x) for x in X], {}),
    "pandas": ([pd.DataFrame(x, columns=list("abcdef")) for x in X], {}),
    "stacked": (STACKED, {"lengths": LENGTHS}),
    "stacked csr": (sp.csr_array(STACKED), {"lengths": LENGTHS}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_model(kind):
    rows, more = KINDS[kind]
    options = {"C": 0.1, "tol": 1e-10, "max_iter": 5000, "random_state": 0}
    model = LatentSVC(**options).fit(rows, Y, **more)
    reference = LatentSVC(**options).fit(X, Y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4)
    np.testing.assert_array_equal(model.predict(rows, **more), reference.predict(X))
    np.testing.assert_array_equal(model.predict_latent(rows, **more), reference.predict_latent(X))
    assert model.score(rows, Y, **more) == reference.score(X, Y)


def test_scores_are_the_best_over_the_candidates():
    model = LatentSVC(C=0.1, random_state=0).fit(X, Y)
    scores = np.array([(x @ model.coef_.T + model.intercept_).max(0) for x in X])
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-12)
    two = LatentSVC(C=0.1, n_jobs=2, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(two.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("init", ["mean", "first", "middle", "random", np.zeros(len(X), int)])
def test_starts(init):
    model = LatentSVC(C=0.1, init=init, random_state=0).fit(X, Y)
    assert np.all(np.diff(model.objectives_) < 0)
    assert model.predict(X).shape == (len(X),)


def test_a_start_from_means_chooses_candidates_where_no_weights_are_the_best_model_of_means():
    """One row of its class among twelve of clutter: the best model of means answers nothing."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    rows = rng.normal(size=(120, 13, 8))
    places = rng.integers(0, 13, 120)
    rows[np.arange(120), places, y] += 4.0
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    start = LatentSVC(C=0.01, tol=0.5, max_iter=1, random_state=0).fit(rows, y).latent_
    assert np.mean(start == places) > 0.5
    assert np.mean(start == 0) < 0.3


def test_more_starts_are_never_worse():
    one = LatentSVC(C=1, init="random", random_state=3).fit(X, Y)
    four = LatentSVC(C=1, init="random", n_init=4, random_state=3).fit(X, Y)
    assert four.primal_objective_ <= one.primal_objective_ + 1e-12


class Watcher:
    """A callback that keeps the number of every epoch and the accuracy reached after it."""

    def __init__(self, stop_after=None):
        self.epochs, self.scores, self.stop_after = [], [], stop_after

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        if context.task_name == "epoch":
            self.epochs.append(context.record.epoch)
            self.scores.append(fitted_estimator.score(X, y))
        return len(self.epochs) == self.stop_after


def test_callbacks_see_every_epoch_of_every_start(capsys):
    from sklearn.callback import ProgressBar

    options = {"C": 0.1, "init": "random", "random_state": 0}
    first = LatentSVC(**options).fit(X, Y).n_iter_
    watcher = Watcher()
    model = LatentSVC(**options, n_init=2).set_callbacks(watcher).fit(X, Y)
    second = len(watcher.epochs) - first
    assert second > 0 and model.n_iter_ in (first, second)
    assert watcher.epochs == [*range(1, first + 1), *range(1, second + 1)]
    assert model.score(X, Y) in watcher.scores
    LatentSVC(C=0.01).set_callbacks(ProgressBar()).fit(X, Y)
    assert "LatentSVC" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "labels", "options", "message"),
    [
        ([], [], {}, "empty list"),
        ([np.ones((2, 3)), np.ones((0, 3))], ["a", "b"], {}, r"X\[1\] is empty"),
        (X, Y[:-1], {}, "inconsistent numbers of samples"),
        (X, None, {}, "requires y"),
        (X, np.full(len(X), np.nan), {}, "NaN"),
        (STACKED, Y, {"lengths": [0, *np.cumsum(LENGTHS)]}, "np.diff"),
        (X, Y, {"init": [0, 1]}, "one candidate per bag"),
        (X, Y, {"init": np.full(len(X), 99)}, r"init\[0\] is 99"),
        (X, Y, {"init": "best"}, "init"),
        (X, Y, {"n_init": 0}, "n_init"),
        (X, Y, {"temperature": 2.0}, "is read by solver 'bcpl', 'oeg' only"),
    ],
)
def test_bad_input_is_named(rows, labels, options, message):
    more = {"lengths": options["lengths"]} if "lengths" in options else {}
    options = {name: value for name, value in options.items() if name not in more}
    with pytest.raises(ValueError, match=message):
        LatentSVC(**options).fit(rows, labels, **more)


def test_a_model_of_bags_refuses_a_bare_matrix():
    model = LatentSVC(C=0.1, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=r"pass \[X\]"):
        model.predict(STACKED)
    assert len(model.predict(STACKED, lengths=np.ones(len(STACKED), int))) == len(STACKED)


@given(
    n=st.integers(2, 6),
    K=st.integers(1, 4),
    d=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([np.float32, np.float64]),
    sparse=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_any_shape_ends_stationary(n, K, d, seed, dtype, sparse):
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(rng.integers(1, 4), d)).round(1).astype(dtype) for _ in range(n)]
    model = LatentSVC(C=0.5, tol=1e-4, max_iter=20_000, random_state=0)
    model.fit([sp.csr_array(x) for x in rows] if sparse else rows, rng.integers(0, K, n))
    assert model.duality_gap_ <= 1e-4
    assert np.all(np.diff(model.objectives_) <= 0)
    primals = [record["primal"] for record in model.history_]
    assert all(after <= before for before, after in pairwise(primals))
