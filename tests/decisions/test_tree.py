"""Consistent sets are the best of all consistent sets."""

import itertools

import numpy as np
import pytest
from sklearn.base import clone

import maxmargin
from maxmargin import Calibrated, MultiLabelSVC, TreeLabels
from maxmargin.decisions import consistent_labels
from maxmargin.persistence import ModelFileError

RNG = np.random.default_rng(0)


def test_against_all_sets():
    for _ in range(30):
        parent = [None] + [RNG.integers(k) if RNG.random() < 0.8 else None for k in range(1, 6)]
        # Columns in any order, so that children may stand before their parents.
        order = RNG.permutation(6)
        edges = [(int(order[p]), int(order[k])) for k, p in enumerate(parent) if p is not None]
        scores = RNG.normal(size=(3, 6))
        found = consistent_labels(scores, edges)
        for row, on in zip(scores, found, strict=True):
            allowed = [
                np.array(z, bool)
                for z in itertools.product((0, 1), repeat=6)
                if all(z[p] >= z[c] for p, c in edges)
            ]
            assert any((on == z).all() for z in allowed)
            assert row[on].sum() == pytest.approx(max(row[z].sum() for z in allowed))


def test_scores_are_not_changed_and_wrong_trees_are_refused():
    scores = np.array([[-1.0, 2.0]])
    assert consistent_labels(scores, [(0, 1)]).tolist() == [[True, True]]
    assert scores.tolist() == [[-1.0, 2.0]]
    with pytest.raises(ValueError, match="2 has two parents"):
        consistent_labels(np.zeros((1, 3)), [(0, 2), (1, 2)])
    with pytest.raises(ValueError, match="contain a cycle"):
        consistent_labels(np.zeros((1, 2)), [(0, 1), (1, 0)])
    with pytest.raises(ValueError, match="not among the labels"):
        consistent_labels(np.zeros((1, 2)), [("a", "b")])
    with pytest.raises(ValueError, match="2 columns"):
        consistent_labels(np.zeros((1, 2)), [("a", "b")], ["a", "b", "c"])


X = RNG.normal(size=(80, 4))
# Labels for which a plain model violates the tree.
Y = (X[:, :3] + 0.6 * RNG.normal(size=(80, 3)) > 0.2).astype(int)
EDGES = [(2, 0), (2, 1)]
NAMES = np.array(["cat", "dog", "animal"])
SETS = [set(NAMES[row > 0].tolist()) for row in Y]
NAMED = [("animal", "cat"), ("animal", "dog")]


@pytest.mark.parametrize(
    "y, edges", [(Y, EDGES), (2 * Y - 1, EDGES), (SETS, NAMED)], ids=["0/1", "signs", "sets"]
)
def test_predictions_agree_with_the_tree_in_every_kind(y, edges):
    base = MultiLabelSVC(random_state=0)
    model = TreeLabels(base, edges).fit(X, y)
    scores = model.estimator_.decision_function(X)
    on = consistent_labels(scores, edges, model.classes_.tolist())
    assert ((scores > 0) != on).any()
    answers = model.predict(X)
    if isinstance(answers, list):
        assert [set(model.classes_[row]) for row in on] == answers
    else:
        np.testing.assert_array_equal(answers > 0, on)
    assert model.score(X, answers) == 1.0 and not hasattr(model, "predict_proba")


def test_of_probabilities_the_set_is_the_most_probable_one():
    model = TreeLabels(Calibrated(MultiLabelSVC(random_state=0), cv=2), EDGES).fit(X, Y)
    P = model.predict_proba(X[:20])
    allowed = [z for z in itertools.product((0, 1), repeat=3) if z[2] >= max(z[:2])]
    best = [max(allowed, key=lambda z, p=p: np.prod(np.where(z, p, 1 - p))) for p in P]
    assert model.predict(X[:20]).tolist() == [list(z) for z in best]


def test_a_tree_is_saved_cloned_and_checked(tmp_path):
    model = TreeLabels(Calibrated(MultiLabelSVC(random_state=0), cv=2), NAMED).fit(X, SETS)
    maxmargin.save(model, tmp_path / "m.mm")
    again = maxmargin.load(tmp_path / "m.mm")
    assert again.predict(X) == model.predict(X) == clone(again).fit(X, SETS).predict(X)
    model.parents_ = np.array([1, 0, -1])
    with pytest.raises(ModelFileError, match="contain a cycle"):
        maxmargin.save(model, tmp_path / "m.mm")


def test_edges_that_do_not_fit_the_labels_are_refused():
    with pytest.raises(ValueError, match="one class per sample"):
        TreeLabels(MultiLabelSVC(), NAMED).fit(X, NAMES[np.arange(80) % 3])
    with pytest.raises(ValueError, match="'fish', which is not among the labels"):
        TreeLabels(MultiLabelSVC(), [("animal", "fish")]).fit(X, SETS)
