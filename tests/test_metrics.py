"""Scores that scikit-learn lacks."""

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
from sklearn.metrics import accuracy_score, f1_score, hamming_loss
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
    assert measure(sets_of(truth), sets_of(answer)) == pytest.approx(expected)
    assert measure(list(map(list, sets_of(truth))), sets_of(answer)) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["matrix", "sparse", "frame", "sets", "lists"])
@pytest.mark.parametrize(
    "name", ["example_f1", "hamming_accuracy", "macro_f1", "micro_f1", "subset_accuracy"]
)
def test_scorers_take_every_kind_of_labels(name, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    Y = (X + 0.3 * rng.normal(size=X.shape) > 0).astype(int)
    given = {
        "matrix": lambda: Y,
        "sparse": lambda: sp.csr_array(Y),
        "frame": lambda: pd.DataFrame(Y, columns=["a", "b", "c"]),
        "sets": lambda: sets_of(Y),
        "lists": lambda: [sorted(labels) for labels in sets_of(Y)],
    }[kind]()
    model = MultiLabelSVC(random_state=0)
    score = metrics.scorer(name)(model.fit(X, given), X, given)
    assert score == pytest.approx(getattr(metrics, name)(Y, clone(model).fit(X, Y).predict(X)))
    # scikit-learn's searches take neither sparse y nor lists of lists.
    if kind in ("frame", "sets"):
        found = cross_val_score(model, X, given, scoring=metrics.scorer(name), cv=3, error_score="raise")
        np.testing.assert_allclose(found, cross_val_score(model, X, Y, scoring=metrics.scorer(name), cv=3))


def test_an_unknown_scorer_is_refused():
    with pytest.raises(ValueError, match="there are example_f1"):
        metrics.scorer("roc_auc")


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


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="y_pred"):
        metrics.example_f1([[0, 1]], [[0, 2]])
    with pytest.raises(ValueError, match="shape"):
        metrics.example_f1([[0, 1]], [[0, 1, 1]])
    with pytest.raises(ValueError, match="k must be between 1 and the number of labels, 2"):
        metrics.precision_at_k([[0, 1]], [[0.0, 1.0]], k=3)
    with pytest.raises(ValueError, match="NaN"):
        metrics.precision_at_k([[0, 1]], [[0.0, np.nan]])


def test_one_error_counts_shared_first_places_and_samples_without_labels():
    truth = [[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]]
    scores = [[2, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert metrics.one_error(truth, scores) == 0.5
    assert metrics.one_error(truth, scores, sample_weight=[1, 0, 0, 1]) == 0
    with pytest.raises(ValueError, match="NaN"):
        metrics.one_error([[0, 1]], [[0.0, np.nan]])
