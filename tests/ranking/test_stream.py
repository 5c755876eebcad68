"""`StreamRanker`: the same model as `LabelRanker`, one dictionary at a time."""

import numpy as np
import pytest

from maxmargin import LabelRanker, StreamRanker
from maxmargin.edge.estimator import first_that_holds as held
from maxmargin.ranking import estimator


def examples(m=40):
    rng = np.random.RandomState(0)
    X = (rng.rand(m, 12) < 0.3).astype(float)
    y = np.array(list("abc"))[X[:, :3].argmax(1)]
    return X, y, [{f"w{j}": 1.0 for j in np.flatnonzero(row)} for row in X]


@pytest.mark.parametrize(
    ("update", "weighting"), [("fixed", None), ("worst_pair", "idf"), ("all_pairs", "auto")]
)
def test_one_at_a_time_equals_a_chunk(update, weighting):
    X, y, rows = examples()
    chunk = LabelRanker(update, weighting=weighting).partial_fit(X, y)
    one = StreamRanker(LabelRanker(update, n_features="grow", weighting=weighting))
    for row, label in zip(rows, y.tolist(), strict=True):
        one.learn_one(row, label)
    assert one.ranker.n_mistakes_ == chunk.n_mistakes_
    order = [one.columns[f"w{j}"] for j in range(12)]
    np.testing.assert_allclose(one.ranker.coef_[:, order], chunk.coef_, atol=1e-12)
    assert [one.predict_one(row) for row in rows] == chunk.predict(X).tolist()
    assert [one.rank_one(row) for row in rows] == chunk.rank(X).tolist()


def test_hashed_names_stay_binary_under_the_entropy(monkeypatch):
    _, y, rows = examples()
    model = StreamRanker(LabelRanker(regulariser="entropy", n_features=5, margin=0.3))
    taken = []
    monkeypatch.setattr(estimator, "first_that_holds", lambda *what: taken.append(held(*what)) or taken[-1])
    for row, label in zip(rows, y.tolist(), strict=True):
        model.learn_one(row, label)
    assert {row.name for row in taken} == {"water-filling"}
    assert model.ranker.coef_.shape == (3, 5)
    assert model.predict_one({"never": 1.0}) in {"a", "b", "c"}


def test_sets_of_labels_and_the_beginning():
    model = StreamRanker()
    assert model.predict_one({"x": 1.0}) is None and model.rank_one({"x": 1.0}) == []
    for _ in range(3):
        model.learn_one({"x": 1.0}, {"a", "b"}).learn_one({"y": 1.0}, {"c"})
    assert model.predict_one({"x": 1.0}) == {"a", "b"}
    with pytest.raises(ValueError, match="finite"):
        model.learn_one({"x": float("nan")}, {"a"})
    with pytest.raises(ValueError, match="n_features"):
        StreamRanker(LabelRanker())


def test_a_text_is_a_feature_of_its_own():
    model = StreamRanker()
    for _ in range(3):
        model.learn_one({"colour": "red", "size": 1.0}, "apple").learn_one({"colour": "yellow"}, "lemon")
    assert set(model.columns) == {"colour=red", "colour=yellow", "size"}
    assert model.predict_one({"colour": "yellow"}) == "lemon"


def test_a_clone_has_learnt_nothing():
    model = StreamRanker(LabelRanker("fixed", n_features="grow")).learn_one({"x": 1.0}, "a")
    fresh = model.clone()
    assert fresh.predict_one({"x": 1.0}) is None and fresh.ranker.update == "fixed"
    assert model.clone(include_attributes=True).predict_one({"x": 1.0}) == "a"
    assert model.clone({"ranker": LabelRanker("worst_pair", n_features=8)}).ranker.n_features == 8
