"""Scores that scikit-learn lacks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from maxmargin import metrics

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
