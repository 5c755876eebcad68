"""Label powerset, RAkEL and ML-kNN, against their definitions."""

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification
from sklearn.neighbors import KNeighborsClassifier

from experiments._baselines import LabelPowerset, MLkNN, RAkEL

X, Y = make_multilabel_classification(80, n_classes=4, random_state=1)
# Counts have equal distances, which neighbour searches order as they like.
X = X + np.random.default_rng(0).random(X.shape)


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
    for group, base in zip(wide.groups_, wide.models_, strict=True):
        votes[:, group] += base.predict(X)
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
