"""Measures against scikit-learn, against all orders of ties, and for every kind of labels."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import accuracy_score, f1_score, hamming_loss, ndcg_score
from sklearn.model_selection import cross_val_score

from maxmargin import MultiLabelSVC, metrics

KNOWN = json.loads((Path(__file__).parent / "fixtures" / "kat_submodular.json").read_text())


@pytest.mark.parametrize("case", KNOWN["f1"])
def test_known_f1(case):
    assert metrics.example_f1([case["ybar"]], [case["y"]]) == pytest.approx(case["F"], abs=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 6))
def test_equals_scikit_learn_where_it_has_them(seed, n, V):
    rng = np.random.default_rng(seed)
    truth, answer = (rng.random((2, n, V)) < 0.4).astype(int)
    weights = rng.random(n) + 0.1
    expected = f1_score(truth, answer, average="samples", zero_division=1, sample_weight=weights)
    assert metrics.example_f1(truth, answer, sample_weight=weights) == pytest.approx(expected)
    assert metrics.example_f1(sp.csr_matrix(truth), sp.csr_array(answer)) == metrics.example_f1(
        2 * truth - 1, 2 * answer - 1
    )
    assert metrics.subset_accuracy(truth, answer) == pytest.approx(accuracy_score(truth, answer))
    assert metrics.label_cardinality(truth) == pytest.approx(truth.sum() / n)
    assert metrics.hamming_accuracy(truth, answer) == pytest.approx(1 - hamming_loss(truth, answer))
    for average, ours in (("micro", metrics.micro_f1), ("macro", metrics.macro_f1)):
        theirs = f1_score(truth, answer, average=average, zero_division=0, sample_weight=weights)
        assert ours(truth, answer, sample_weight=weights) == pytest.approx(theirs)


MEASURES = ["example_f1", "hamming_accuracy", "macro_f1", "micro_f1", "subset_accuracy"]


def sets_of(Y):
    return [{f"label {j}" for j in np.flatnonzero(row)} for row in Y]


@pytest.mark.parametrize("name", ["example_f1", "hamming_accuracy", "micro_f1", "subset_accuracy"])
def test_sets_and_matrices_have_the_same_measures(name):
    truth, answer = (np.random.default_rng(3).random((2, 30, 4)) < 0.5).astype(int)
    measure = getattr(metrics, name)
    expected = measure(truth, answer)
    assert measure(sp.csr_array(truth), sp.csr_matrix(answer)) == pytest.approx(expected)
    assert measure(sets_of(truth), sets_of(answer)) == pytest.approx(expected)
    assert measure(list(map(list, sets_of(truth))), sets_of(answer)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("micro_f1", kind) for kind in ("matrix", "sparse", "frame", "lists")]
    + [(name, "sets") for name in MEASURES],
)
def test_scorers_take_every_kind_of_labels(name, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    Y = (X + 0.3 * rng.normal(size=X.shape) > 0).astype(int)
    given = {
        "matrix": Y,
        "sparse": sp.csr_array(Y),
        "frame": pd.DataFrame(Y, columns=["a", "b", "c"]),
        "sets": sets_of(Y),
        "lists": [sorted(labels) for labels in sets_of(Y)],
    }[kind]
    model = MultiLabelSVC(random_state=0)
    score = metrics.scorer(name)(model.fit(X, given), X, given)
    assert score == pytest.approx(getattr(metrics, name)(Y, clone(model).fit(X, Y).predict(X)))
    # scikit-learn's searches take neither sparse y nor lists of lists.
    if kind in ("frame", "sets"):
        found = cross_val_score(model, X, given, scoring=metrics.scorer(name), cv=3, error_score="raise")
        np.testing.assert_allclose(found, cross_val_score(model, X, Y, scoring=metrics.scorer(name), cv=3))


def test_precision_at_k_is_the_mean_over_all_ways_to_break_ties():
    rng = np.random.default_rng(0)
    for _ in range(30):
        truth, scores = rng.random(4) < 0.5, rng.integers(0, 3, 4)
        for k in range(1, 5):
            every = [
                truth[list(order[:k])].mean()
                for order in itertools.permutations(range(4))
                if (np.diff(scores[list(order)]) <= 0).all()
            ]
            assert metrics.precision_at_k(truth[None], scores[None], k) == pytest.approx(np.mean(every))


def test_lists_of_numbers_of_one_length_are_labels_unless_an_indicator():
    assert metrics.micro_f1([[1, 2], [2, 3]], [[1, 2], [3, 2]]) == 1.0
    assert metrics.example_f1([(1, 2)], [(1, 3)]) == 0.5
    # Only zeros and ones are an indicator, as lists too.
    assert metrics.micro_f1([[0, 1]], [[1, 0]]) == 0.0


def test_one_error_counts_shared_first_places_and_samples_without_labels():
    truth = [[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]]
    scores = [[2, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert metrics.one_error(truth, scores) == 0.5
    assert metrics.one_error(truth, scores, sample_weight=[1, 0, 0, 1]) == 0


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 6))
def test_measures_at_k_of_sparse_labels(seed, V, k):
    k = min(k, V)
    rng = np.random.default_rng(seed)
    truth = (rng.random((7, V)) < 0.4).astype(int)
    scores = rng.integers(0, 4, (7, V)).astype(float)
    whole = sp.csr_array((scores.ravel(), np.tile(np.arange(V), 7), np.arange(8) * V), shape=scores.shape)
    weights = rng.random(7) + 0.1
    # Expected values over all orders of equal scores, by drawing none: means within groups.
    gains = np.zeros((7, V))
    for i, row in enumerate(scores):
        for value in np.unique(row):
            place = np.sort(-row)
            gains[i, place == -value] = truth[i, row == value].mean()
    expected = np.average(gains[:, :k].mean(axis=1), weights=weights)
    for y in (sp.csr_array(truth), sp.csc_matrix(truth), truth):
        for given_scores in (scores, whole):
            found = metrics.precision_at_k(y, given_scores, k, sample_weight=weights)
            assert found == pytest.approx(expected)
    some = truth.any(axis=1)
    if not some.any():
        assert np.isnan(metrics.recall_at_k(truth, scores, k)) and np.isnan(
            metrics.ndcg_at_k(truth, scores, k)
        )
        return
    recall = (gains[:, :k].sum(axis=1)[some] / truth[some].sum(axis=1)).mean()
    assert metrics.recall_at_k(sp.csr_array(truth), whole, k) == pytest.approx(recall)
    if V > 1:
        theirs = np.mean([ndcg_score([t], [f], k=k) for t, f in zip(truth[some], scores[some], strict=True)])
        assert metrics.ndcg_at_k(truth, whole, k) == pytest.approx(theirs)
    chance = rng.random(V) + 0.1
    one = metrics.propensity_precision_at_k(truth, scores, k, propensity=np.ones(V))
    best = np.minimum(truth.sum(axis=1), k).mean() / k
    assert one == pytest.approx(metrics.precision_at_k(truth, scores, k) / best)
    assert metrics.propensity_precision_at_k(truth, truth / chance, k, propensity=chance) == pytest.approx(1)


def test_labels_without_a_score_come_last_and_top_lists_become_scores():
    truth = sp.csr_array(np.array([[1, 0, 1], [0, 1, 0]]))
    ranked = metrics.from_top([["c"], ["a"]], [[-2.0], [0.0]], ["a", "b", "c"])
    assert metrics.precision_at_k(truth, ranked, 1) == 0.5
    assert metrics.precision_at_k(truth, ranked, 2) == 0.25
    assert metrics.recall_at_k(truth, ranked, 3) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.example_f1([[0, 1]], np.array([[0, 2]])), "y_pred must hold only 0/1"),
        (lambda: metrics.example_f1([[0, 1]], [[0, 0.5]]), "y_pred must hold only 0/1"),
        (lambda: metrics.example_f1([[0, 1]], [[0, 1, 1]]), "shape"),
        (lambda: metrics.micro_f1([{1}, {2}], np.eye(2)), r"lists or tuples of labels\. Got ndarray"),
        (lambda: metrics.micro_f1([[1]], [[1]], sample_weight=[1, 2]), "sample_weight has shape"),
        (lambda: metrics.precision_at_k([[0, 1]], [[0.0, 1.0]], k=3), "k must be between 1 and the .* 2"),
        (lambda: metrics.precision_at_k([[0, 1]], [[0.0, np.nan]]), "NaN"),
        (lambda: metrics.precision_at_k(sp.csr_array([[2, 0]]), [[1.0, 2.0]]), "only 0/1"),
        (lambda: metrics.one_error([[0, 1]], [[0.0, np.nan]]), "NaN"),
        (lambda: metrics.ndcg_at_k([[1, 0]], [[0.1, 0.2]], k=3), "k must be between 1 and the .* 2"),
        (lambda: metrics.recall_at_k([[1, 0]], [[0.1, 0.2, 0.3]]), "y_score has shape"),
        (lambda: metrics.recall_at_k([[1, 0]], [[0.1, np.nan]]), "y_score holds NaN"),
        (lambda: metrics.propensity_precision_at_k([[1, 0]], [[1, 2]], propensity=[1]), "2 positive numbers"),
        (lambda: metrics.from_top([["a"]], [[1.0, 2.0]], ["a"]), "one shape"),
        (lambda: metrics.label_brier([[1, 0]], [[1.0, 2.0]]), "from 0 to 1"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
