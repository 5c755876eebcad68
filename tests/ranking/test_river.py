"""`StreamRanker` among River's models: its checks, pipelines, metrics and progressive validation."""

import pytest

from maxmargin import LabelRanker, StreamRanker

river = pytest.importorskip("river")
from river import checks, compose, datasets, evaluate, metrics, preprocessing  # noqa: E402

# Ten times as many rows, for the growth of memory.
LONG = {"check_bounded_memory_growth"}


def of(model):
    return [
        pytest.param(
            model, check, id=f"{k}-{check.__name__}", marks=pytest.mark.slow if check.__name__ in LONG else ()
        )
        for k, check in enumerate(checks.yield_checks(model))
    ]


@pytest.mark.parametrize(("model", "check"), of(StreamRanker()))
def test_rivers_own_checks(model, check):
    check(model.clone())


@pytest.mark.slow
@pytest.mark.parametrize(("model", "check"), of(StreamRanker(LabelRanker("worst_pair", n_features=64))))
def test_rivers_own_checks_of_a_hashed_ranker(model, check):
    check(model.clone())


def test_progressive_validation_of_a_pipeline():
    model = preprocessing.StandardScaler() | StreamRanker()
    accuracy = evaluate.progressive_val_score(datasets.ImageSegments().take(400), model, metrics.Accuracy())
    assert accuracy.get() > 0.7


def test_a_pipeline_with_words_and_numbers():
    words = compose.SelectType(str) | preprocessing.OneHotEncoder()
    model = words + (compose.SelectType((int, float)) | preprocessing.StandardScaler()) | StreamRanker()
    accuracy = metrics.Accuracy()
    for _ in range(20):
        for x, y in (({"colour": "red", "size": 1.0}, "apple"), ({"colour": "yellow", "size": 2.0}, "lemon")):
            accuracy.update(y, model.predict_one(x))
            model.learn_one(x, y)
    assert accuracy.get() > 0.9 and accuracy.works_with(model)
