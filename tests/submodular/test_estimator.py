"""SubmodularSVC as a scikit-learn estimator."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning

from maxmargin import SubmodularSVC
from maxmargin.metrics import example_f1, scorer
from maxmargin.submodular.estimator import SOLVERS
from maxmargin.submodular.problem import fixed_points
from tests.naive import submodular as naive

X, Y = make_multilabel_classification(60, n_features=8, n_classes=4, random_state=0)
X = X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("solver", ["bundle", "bcfw", "interior"])
def test_dense_sparse_float32_readonly_and_threads_agree(solver):
    model = SubmodularSVC(C=0.5, tol=1e-4, max_iter=3000, solver=solver, random_state=0)
    rows, labels = X[:24], Y[:24]
    base = clone(model).fit(rows, labels).primal_objective_
    frozen = rows.copy()
    frozen.flags.writeable = False
    large = sp.csr_array(rows)
    large.indices, large.indptr = large.indices.astype(np.int64), large.indptr.astype(np.int64)
    for data in (sp.csr_matrix(rows), large, rows.astype(np.float32), frozen, np.asfortranarray(rows)):
        assert clone(model).fit(data, labels).primal_objective_ == pytest.approx(base, rel=2e-4)
    threads = clone(model).set_params(n_jobs=2).fit(rows, labels)
    assert threads.primal_objective_ == pytest.approx(base, rel=2e-4)


def test_score_is_subset_accuracy_and_margins_have_the_sign_of_the_answer():
    model = SubmodularSVC(C=1.0, tol=1e-2).fit(X, Y)
    answer = model.predict(X)
    assert model.score(X, Y) == pytest.approx(np.mean((answer == Y).all(axis=1)))
    assert scorer("example_f1")(model, X, Y) == pytest.approx(example_f1(Y, answer))
    margins = model.decision_function(X)
    assert np.array_equal(margins > 1e-9, answer > 0)
    assert (model.interaction_ >= 0).all() and np.allclose(model.interaction_, model.interaction_.T)
    assert model.interaction_.any(), "the example is meant to use pairs"


@pytest.mark.parametrize("solver", ["bundle", "bcfw", "interior"])
def test_sample_weight_equals_repetition(solver):
    weights, rows, labels = np.random.default_rng(0).integers(0, 3, 24), X[:24], Y[:24]
    model = SubmodularSVC(C=0.5, tol=1e-6, max_iter=3000, solver=solver, random_state=0)
    weighted = clone(model).fit(rows, labels, sample_weight=weights)
    repeated = clone(model).fit(np.repeat(rows, weights, axis=0), np.repeat(labels, weights, axis=0))
    np.testing.assert_allclose(weighted.primal_objective_, repeated.primal_objective_, rtol=1e-5)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-2)


@pytest.mark.parametrize("solver", ["bundle", "bcfw", "interior"])
def test_warm_starts_continue(solver):
    model = SubmodularSVC(C=0.5, tol=1e-3, max_iter=3000, solver=solver, warm_start=True, random_state=0)
    dual = model.fit(X, Y).dual_objective_
    assert model.set_params(tol=1.0).fit(X, Y).n_iter_ == 1
    assert model.dual_objective_ >= dual * (1 - 1e-9)
    model.set_params(tol=1e-3)
    assert model.set_params(C=0.6).fit(X, Y).duality_gap_ <= 1e-3
    with pytest.warns(UserWarning, match=r"warm_start ignored: the last fit had data of shape \(60, 4\)"):
        fewer = model.fit(X[:30], Y[:30]).primal_objective_
    fresh = clone(model).fit(X[:30], Y[:30])
    assert fewer == fresh.primal_objective_
    assert not hasattr(model.set_params(warm_start=False).fit(X, Y), "_warm")


@pytest.mark.parametrize("solver", ["auto", "bundle", "interior"])
def test_warm_starts_accept_samples_without_weight_before(solver):
    model = SubmodularSVC(C=0.5, tol=1e-3, max_iter=3000, solver=solver, warm_start=True, random_state=0)
    anew = clone(model).fit(X, Y)
    model.fit(X, Y, sample_weight=np.r_[np.zeros(5), np.ones(len(X) - 5)]).fit(X, Y)
    assert model.duality_gap_ <= 1e-3
    np.testing.assert_allclose(model.primal_objective_, anew.primal_objective_, rtol=2e-3)


def test_warm_start_of_blocks_needs_the_same_labels():
    model = SubmodularSVC(C=0.5, tol=1e-2, solver="bcfw", warm_start=True, random_state=0).fit(X, Y)
    with pytest.warns(UserWarning, match="warm_start ignored: y or the label pairs differ"):
        other = model.fit(X, Y[:, ::-1])
    assert other.duality_gap_ <= 1e-2
    assert other.primal_objective_ == clone(model).fit(X, Y[:, ::-1]).primal_objective_


def test_a_warm_start_is_not_pickled():
    model = SubmodularSVC(tol=1e-1, warm_start=True).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert hasattr(model, "_warm") and not hasattr(again, "_warm")
    assert np.array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("solver", ["bundle", "bcfw", "interior"])
def test_a_plane_cache_of_one_reaches_the_same_objective(solver):
    """A memory of one set is the method without memory."""
    model = SubmodularSVC(C=0.5, tol=1e-3, max_iter=3000, solver=solver, warm_start=True, random_state=0)
    wide, narrow = clone(model).fit(X, Y), clone(model).set_params(plane_cache=1).fit(X, Y)
    assert narrow.primal_objective_ == pytest.approx(wide.primal_objective_, rel=2e-3)
    if solver == "bcfw":
        assert narrow._warm[0].blocks.memory.shape[1] == 1 and wide._warm[0].blocks.memory.shape[1] == 40


def test_a_parameter_that_the_solver_does_not_read_is_refused():
    with pytest.raises(ValueError, match=r"line_search=False is read by solver 'bundle' only"):
        SubmodularSVC(solver="bcfw", line_search=False).fit(X, Y)


def test_certified_inference_is_optimal_by_enumeration():
    """Where Algorithm 3 says so, Algorithm 2's set has the largest slack of all 2^V sets."""
    model = SubmodularSVC(C=3.0, interaction_scale=2.0, pair_fraction=1.0, tol=1e-2).fit(X, Y)
    truth = Y.copy()
    truth[:3] = 0
    sets, proven = model.certify_inference(X, truth, return_sets=True)
    scores, W = X @ model.coef_.T + model.intercept_, np.triu(model.interaction_, 1)
    found = fixed_points(scores, truth.astype(np.uint8), model._unary(X)[1])
    assert sets.dtype == bool and np.array_equal(sets, found.sets)
    best = [naive.loss_augmented(a, W, t)[0] for a, t in zip(scores, truth, strict=True)]
    assert proven.dtype == bool and proven.shape == (60,) and proven[:3].all()
    assert 3 < proven.sum() < 60, "the example is meant to have both kinds of samples"
    np.testing.assert_allclose(found.values[proven], np.array(best)[proven], atol=1e-8)
    threads = clone(model).set_params(n_jobs=2).fit(X, Y)
    assert np.array_equal(threads.certify_inference(X, truth), proven)


def test_inference_without_interactions_is_certified_and_unknown_labels_are_refused():
    model = SubmodularSVC(pair_fraction=0.0, tol=1e-2).fit(X, Y)
    assert model.certify_inference(X, Y).all()
    holes = Y.astype(float)
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="unknown"):
        model.certify_inference(X, holes)


@pytest.mark.parametrize("solver", SOLVERS)
def test_too_few_iterations_warn_and_leave_a_usable_model(solver):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = SubmodularSVC(tol=1e-8, max_iter=3, solver=solver, random_state=0).fit(X, Y)
    assert model.n_iter_ == 3 and model.predict(X).shape == Y.shape
    assert [record["active"] for record in model.history_] == [60, 60, 60]
    assert model.dual_objective_ < model.primal_objective_


@pytest.mark.filterwarnings("ignore:Label:UserWarning")
@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_extreme_label_sets(fraction):
    ones, zeros = np.ones_like(Y), np.zeros_like(Y)
    model = SubmodularSVC(pair_fraction=fraction, tol=1e-3)
    assert np.array_equal(clone(model).fit(X, ones).predict(X), ones)
    assert np.array_equal(clone(model).fit(X, zeros).predict(X), zeros)
    single = clone(model).fit(X, Y[:, :1])
    assert single.predict(X).shape == (60, 1) and single.interaction_.shape == (1, 1)


def test_classes_and_two_classes():
    classes = np.array(["x", "y", "z"])[np.argmax(X[:, :3], axis=1)]
    model = SubmodularSVC(C=10.0, tol=1e-2).fit(X, classes)
    assert model.score(X, classes) == pytest.approx(np.mean(model.predict(X) == classes))
    assert model.score(X, classes) > 0.8
    two = SubmodularSVC(C=10.0, tol=1e-2).fit(X, classes == "x")
    assert two.decision_function(X).shape == (60,)
    assert two.score(X, classes == "x") == pytest.approx(np.mean(two.predict(X) == (classes == "x")))


def test_constant_labels_warn_and_are_predicted():
    fixed = Y.copy()
    fixed[:, 1], fixed[:, 2] = 1, 0
    with pytest.warns(UserWarning, match=r"Label 'b', 'c' is constant in y; the model will always"):
        model = SubmodularSVC(C=1e-4, tol=1e-2).fit(X, pd.DataFrame(fixed, columns=list("abcd")))
    assert model.constant_labels_.tolist() == [False, True, True, False]
    answer, margins = model.predict(X).to_numpy(), model.decision_function(X)
    assert (answer[:, 1] == 1).all() and (answer[:, 2] == 0).all()
    assert (margins[:, 1] > 0).all() and (margins[:, 2] < 0).all()
    weights = np.ones(len(Y))
    weights[fixed[:, 0] == 1] = 0
    with pytest.warns(UserWarning, match=r"Label 0, 1, 2 is constant"):
        SubmodularSVC(tol=1e-2).fit(X, fixed, sample_weight=weights)


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_block_steps_reach_the_optimum_where_sets_hardly_leave_the_truth(scale):
    """Means of planes are 1 / scale^2 away from the true sets: the sum of both would be rounded to these."""
    rng = np.random.default_rng(0)
    Y = (rng.random((40, 4)) < 0.4).astype(int)
    X = np.hstack([2 * Y - 1 + 0.1 * rng.normal(size=(40, 4)), rng.normal(size=(40, 2))])
    model = SubmodularSVC(solver="bcfw", random_state=0).fit(scale * X, Y)
    assert model.duality_gap_ <= 1e-3


@pytest.mark.parametrize("scale", [1.0, 1e7, 1e8])
def test_interior_point_steps_reach_the_gap_or_warn(scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    Y = (X @ rng.normal(size=(5, 4)) + 0.5 * rng.normal(size=(60, 4)) > 0).astype(int)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        model = SubmodularSVC(solver="interior").fit(scale * X, Y)
    assert model.dual_objective_ <= model.primal_objective_
    assert scale > 1.0 or model.duality_gap_ <= model.tol
    expected = [] if model.duality_gap_ <= model.tol else [ConvergenceWarning]
    assert [warning.category for warning in raised] == expected


def test_large_costs_of_separable_labels_are_optimal_by_default():
    """The slack of a true set goes to zero as 1 / C, and a step must not raise it for the sake of others."""
    for seed, C in ((0, 1e5), (1, 1e6), (2, 1e7)):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 5))
        Y = (X @ rng.normal(size=(5, 4)) > 0).astype(int)
        model = SubmodularSVC(C=C).fit(X, Y)
        assert model.duality_gap_ <= model.tol
        assert (model.predict(X) == Y).mean() > 0.99


@pytest.mark.parametrize("C", [1e5, 1e7])
@pytest.mark.parametrize("seed", range(4))
def test_large_costs_of_overlapping_labels_are_optimal_by_default(seed, C):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 5))
    Y = (X @ rng.normal(size=(5, 4)) + rng.normal(size=(60, 4)) > 0).astype(int)
    assert SubmodularSVC(C=C).fit(X, Y).duality_gap_ <= 1e-3


def test_inexact_inference_warns_before_the_first_epoch(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SubmodularSVC(inference="fixed_point", pair_fraction=0.0, tol=1e-1).fit(X, Y)
        SubmodularSVC(tol=1e-1).fit(X, Y)

    def no_epoch(*_):
        raise RuntimeError("an epoch starts")

    monkeypatch.setattr("maxmargin.submodular.estimator.run", no_epoch)
    with (
        pytest.warns(UserWarning, match=r"use inference='exact'"),
        pytest.raises(RuntimeError, match="an epoch starts"),
    ):
        SubmodularSVC(inference="fixed_point").fit(X, Y)


@pytest.mark.filterwarnings("ignore:inference='fixed_point'", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("inference", ["exact", "fixed_point"])
@pytest.mark.parametrize(("C", "tol"), [(1.0, 1e-9), (1e5, 1e-6), (1e7, 1e-6)])
def test_the_reported_primal_is_no_less_than_that_of_all_sets(solver, inference, C, tol):
    """At the optimum many sets nearly tie, and large costs multiply what inference misses among them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5))
    Y = (X @ rng.normal(size=(5, 4)) > 0).astype(int)
    model = SubmodularSVC(C=C, tol=tol, max_iter=60, solver=solver, inference=inference, random_state=0)
    model.fit(X, Y)
    W, scores = np.triu(model.interaction_, 1), X @ model.coef_.T + model.intercept_
    slack = [
        naive.loss_augmented(a, W, t)[0] - naive.scores_of(t[None], a, W)[0]
        for a, t in zip(scores, Y, strict=True)
    ]
    t = model.interaction_[tuple(model.pairs_.T)] / model.pair_strength_
    norm = np.sum(model.coef_**2) + model.intercept_ @ model.intercept_ + t @ t
    # The sums of both sides are rounded: a set has up to four scores and six pairs.
    size = np.abs(scores).max() + W.sum()
    rounded = C * len(X) * 10 * size * np.finfo(float).eps
    assert model.primal_objective_ >= 0.5 * norm + C * np.sum(slack) - rounded
