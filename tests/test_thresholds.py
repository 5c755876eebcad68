"""Tuned thresholds, and the error for names that moved to the experiments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from maxmargin import baselines
from maxmargin.baselines import ThresholdTuner, tune_thresholds
from maxmargin.edge.labels import LabelSpace
from maxmargin.edge.wrappers import held_out_scores

X, Y = make_multilabel_classification(80, n_classes=4, random_state=1)
# Counts have equal distances, which neighbour searches order as they like.
X = X + np.random.default_rng(0).random(X.shape)


@pytest.mark.parametrize("name", ["LabelPowerset", "MLkNN", "RAkEL"])
def test_baselines_of_experiments_say_where_they_are(name):
    with pytest.raises(AttributeError, match=r"experiments/_baselines.py"):
        getattr(baselines, name)
    assert not hasattr(baselines, name)


def all_cuts(scores):
    levels = np.unique(scores)
    return np.concatenate([[levels[0] - 1], (levels[1:] + levels[:-1]) / 2, [levels[-1]]])


def f1(truth, answer, average):
    if average == "subset":
        return np.mean((truth == answer).all(axis=1))
    return f1_score(truth, answer, average=average, zero_division=1)


@pytest.mark.parametrize("average", ["samples", "micro", "macro", "subset"])
def test_thresholds_against_all_of_them(average):
    rng = np.random.default_rng(0)
    reached = 0
    for _ in range(5):
        truth = rng.random((8, 2)) < 0.4
        scores = np.round(truth + rng.normal(size=(8, 2)), 1)
        found = f1(truth, scores > tune_thresholds(truth, scores, average), average)
        every = itertools.product(all_cuts(scores[:, 0]), all_cuts(scores[:, 1]))
        best = max(f1(truth, scores > np.array(pair), average) for pair in every)
        assert found <= best + 1e-12
        reached += found == pytest.approx(best)
        for l in range(2):
            tuned = tune_thresholds(truth, scores, average)
            for cut in all_cuts(scores[:, l]):
                tuned[l] = cut
                assert f1(truth, scores > tuned, average) <= found + 1e-12
    assert reached == 5 if average == "macro" else reached >= 3


@pytest.mark.parametrize(
    ("base", "average"),
    [
        (OneVsRestClassifier(LinearSVC()), "subset"),
        (OneVsRestClassifier(LogisticRegression()), "micro"),
        (KNeighborsClassifier(5), "macro"),
    ],
)
def test_tuner_around_any_estimator(base, average):
    tuned = ThresholdTuner(base, average=average, cv=3).fit(X, Y)
    assert tuned.thresholds_.shape == (4,) and tuned.predict(X).shape == Y.shape
    sparse = ThresholdTuner(OneVsRestClassifier(LinearSVC()), cv=3).fit(sp.csr_matrix(X), sp.csr_matrix(Y))
    assert sp.issparse(sparse.predict(X))


def test_folds_at_a_time_give_the_same_thresholds():
    tuner = ThresholdTuner(KNeighborsClassifier(5), cv=3)
    alone = tuner.fit(X, Y).thresholds_
    with parallel_config("threading", n_jobs=2):
        np.testing.assert_array_equal(tuner.fit(X, Y).thresholds_, alone)


def test_a_label_that_a_fold_has_not_met_is_improbable_there():
    """Such a model of scikit-learn answers with one column, of the probability that the label is off."""
    rare = np.column_stack([Y[:, 0], np.arange(80) < 4])
    splits = KFold(2).split(X)
    found = held_out_scores(KNeighborsClassifier(3), (X, rare, {}), LabelSpace.read(rare), splits)
    assert (found.scores[:40, 1] == 0).all() and not found.known[:40, 1].any()
    assert found.known[:, 0].all() and set(np.unique(found.scores[:, 0] * 3).round()) <= {0, 1, 2, 3}
