"""Label powerset, RAkEL, ML-kNN and tuned thresholds."""

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
from sklearn.utils.estimator_checks import parametrize_with_checks

from maxmargin.baselines import LabelPowerset, MLkNN, RAkEL, ThresholdTuner, tune_thresholds
from maxmargin.edge.held_out import held_out_scores
from maxmargin.edge.labels import LabelSpace

X, Y = make_multilabel_classification(80, n_classes=4, random_state=1)
# Counts have equal distances, which neighbour searches order as they like.
X = X + np.random.default_rng(0).random(X.shape)


def unweighted(estimator):
    """Checks that repeat samples by weights, where the estimator inside takes none."""
    checks = (f"check_sample_weight_equivalence_on_{rows}_data" for rows in ("dense", "sparse"))
    reason = "OneVsRestClassifier takes no sample_weight, and a warning says so"
    return dict.fromkeys(checks, reason) if isinstance(estimator, ThresholdTuner) else {}


@parametrize_with_checks(
    [
        LabelPowerset(),
        RAkEL(random_state=0),
        MLkNN(),
        MLkNN(n_neighbors=3),
        ThresholdTuner(OneVsRestClassifier(LinearSVC()), cv=2),
    ],
    expected_failed_checks=unweighted,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_powerset_only_answers_sets_it_has_seen():
    answer = LabelPowerset(KNeighborsClassifier(1)).fit(X, Y).predict(X)
    assert np.array_equal(answer, Y)
    few = LabelPowerset().fit(X[:10], Y[:10]).predict(X)
    assert {tuple(row) for row in few} <= {tuple(row) for row in Y[:10]}
    assert np.array_equal(LabelPowerset().fit(X, Y * 0 + 1).predict(X), Y * 0 + 1)


def test_rakel_with_one_group_of_all_labels_is_the_powerset():
    base = KNeighborsClassifier(3)
    one = RAkEL(base, labelset_size=4, n_models=1, random_state=0).fit(X, Y)
    assert np.array_equal(one.predict(X), LabelPowerset(base).fit(X, Y).predict(X))


def test_rakel_gives_every_label_a_vote_and_counts_them():
    model = RAkEL(labelset_size=3, n_models=2, random_state=0).fit(X, Y)
    assert set(np.concatenate(model.groups_)) == set(range(4))
    wide = RAkEL(labelset_size=2, random_state=0).fit(X, Y)
    assert len(wide.groups_) == 6, "six distinct pairs, although 2 * 4 models were asked for"
    votes = np.zeros(Y.shape)
    for group, (sets, base) in zip(wide.groups_, wide.models_, strict=True):
        votes[:, group] += sets[base.predict(X)]
    np.testing.assert_allclose(wide.vote_share(X), votes / 3)
    assert np.array_equal(wide.predict(X), (votes / 3 > 0.5).astype(int))


def test_mlknn_by_the_book():
    """Zhang and Zhou's counts, written with loops."""
    k, s = 4, 1.0
    model = MLkNN(n_neighbors=k, smoothing=s).fit(X[:50], Y[:50])
    distances = ((X[:50, None] - X[None, :50]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    for l in range(4):
        prior = (s + Y[:50, l].sum()) / (2 * s + 50)
        table = np.zeros((2, k + 1))
        for i in range(50):
            near = np.argsort(distances[i], kind="stable")[:k]
            table[Y[i, l], Y[near, l].sum()] += 1
        for i in range(50, 60):
            near = np.argsort(((X[:50] - X[i]) ** 2).sum(axis=1), kind="stable")[:k]
            c = Y[near, l].sum()
            on = prior * (s + table[1, c]) / (s * (k + 1) + table[1].sum())
            off = (1 - prior) * (s + table[0, c]) / (s * (k + 1) + table[0].sum())
            assert model.decision_function(X[i : i + 1])[0, l] == pytest.approx(np.log(on / off))


def test_mlknn_of_few_samples_counts_all_others():
    with pytest.warns(UserWarning, match="n_neighbors=10 is more than the 9 other samples"):
        few = MLkNN().fit(X[:10], Y[:10])
    assert few.n_neighbors_ == 9
    exact = MLkNN(n_neighbors=9).fit(X[:10], Y[:10])
    np.testing.assert_array_equal(few.decision_function(X), exact.decision_function(X))
    with pytest.raises(ValueError, match="1 sample"):
        MLkNN().fit(X[:1], Y[:1])


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
    for _ in range(10):
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
    assert reached == 10 if average == "macro" else reached >= 7


@pytest.mark.parametrize("average", ["samples", "micro", "macro", "subset"])
def test_tuner_around_any_estimator(average):
    for base in (OneVsRestClassifier(LinearSVC()), OneVsRestClassifier(LogisticRegression()), MLkNN(5)):
        tuned = ThresholdTuner(base, average=average, cv=3).fit(X, Y)
        assert tuned.thresholds_.shape == (4,) and tuned.predict(X).shape == Y.shape
    sparse = ThresholdTuner(OneVsRestClassifier(LinearSVC()), cv=3).fit(sp.csr_matrix(X), sp.csr_matrix(Y))
    assert sp.issparse(sparse.predict(X))


def test_folds_at_a_time_give_the_same_thresholds():
    tuner = ThresholdTuner(MLkNN(5), cv=3)
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
