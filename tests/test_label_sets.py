"""Sets, lists and Series of labels work in all places of 0/1 matrices."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from maxmargin import LabelRanker, MultiLabelSVC, SparseMultiLabelSVC, SubmodularSVC, metrics
from maxmargin.baselines import ThresholdTuner
from maxmargin.model_selection import IterativeStratifiedKFold, iterative_train_test_split

NAMES = np.array(["blue", "red", "soft"])
X = np.random.RandomState(0).randn(60, 3)
ON = X + 0.5 * np.random.RandomState(1).randn(60, 3) > 0
SETS = [set(NAMES[row].tolist()) for row in ON]
LISTS = [sorted(labels) for labels in SETS]
ESTIMATORS = {
    "MultiLabelSVC": MultiLabelSVC(random_state=0),
    "SparseMultiLabelSVC": SparseMultiLabelSVC(max_basis=4, random_state=0),
    "SubmodularSVC": SubmodularSVC(C=0.1, tol=1e-2),
    "LabelRanker": LabelRanker(random_state=0),
    "ThresholdTuner": ThresholdTuner(MultiLabelSVC(random_state=0), cv=KFold(2)),
}


def objects(rows):
    array = np.empty(len(rows), dtype=object)
    array[:] = rows
    return array


FORMS = {
    "list of sets": SETS,
    "list of frozensets": [frozenset(labels) for labels in SETS],
    "list of lists": LISTS,
    "list of tuples": [tuple(labels) for labels in LISTS],
    "array of sets": objects(SETS),
    "pandas sets": pd.Series(SETS, index=range(100, 160)),
    "pandas lists": pd.Series(LISTS),
    "polars lists": pl.Series(LISTS),
    "polars sets": pl.Series(SETS, dtype=pl.Object),
}


def on(answer):
    return np.array([[name in labels for name in NAMES] for labels in answer])


@pytest.mark.parametrize(
    ("name", "form"),
    [("MultiLabelSVC", form) for form in FORMS]
    + [(name, form) for name in ESTIMATORS for form in ("list of tuples", "pandas sets")],
)
def test_a_sequence_of_labels_is_its_matrix(name, form):
    model = ESTIMATORS[name].fit(X, FORMS[form])
    answer = model.predict(X)
    kind = list if form == "polars lists" else type(next(iter(FORMS[form])))
    assert type(answer) is list and type(answer[0]) is kind
    score = model.score(X, FORMS[form])
    reference = ESTIMATORS[name].fit(X, ON.astype(int))
    np.testing.assert_array_equal(on(answer), reference.predict(X) > 0)
    assert score == reference.score(X, ON.astype(int))


@pytest.mark.parametrize("codes", [(10, 20, 30), (-1, 0, 1)])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_lists_of_numbers_are_labels_if_all_have_one_length(name, codes):
    rows = [[code for code, there in zip(codes, row, strict=True) if there] for row in ON]
    model, reference = (clone(ESTIMATORS[name]).fit(X, y) for y in (rows, SETS))
    two = [i for i, answer in enumerate(reference.predict(X)) if len(answer) == 2 == len(SETS[i])]
    some, sets = [rows[i] for i in two], [SETS[i] for i in two]
    assert model.score(X[two], some) == reference.score(X[two], sets)
    for measure in (metrics.scorer("micro_f1"), metrics.scorer("f1_micro")):
        assert measure(model, X[two], some) == measure(reference, X[two], sets)


def test_a_stream_of_lists_takes_lists_of_one_length():
    ranker = LabelRanker().partial_fit(X[:2], [[0, 1], [0]]).partial_fit(X[:2], [[0, 1], [1, 0]])
    assert ranker.classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("missing", "wrap"),
    [(None, list), (float("nan"), objects), (pd.NA, lambda rows: pd.Series(rows, dtype=object))],
    ids=["None", "nan", "NA"],
)
def test_a_missing_row_is_a_sample_with_unknown_labels(missing, wrap):
    unknown = np.arange(60) % 5 == 0
    y = wrap([missing if gone else labels for gone, labels in zip(unknown, SETS, strict=True)])
    Y = np.where(unknown[:, None], np.nan, ON)
    model = MultiLabelSVC(random_state=0).fit(X, y)
    reference = MultiLabelSVC(random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    np.testing.assert_array_equal(on(model.predict(X)), reference.predict(X))
    assert model.score(X, y) == reference.score(X, Y) == reference.score(X[~unknown], Y[~unknown])
    f1 = f1_score(ON[~unknown], reference.predict(X)[~unknown], average="micro")
    assert metrics.scorer("f1_micro")(model, X, y) == pytest.approx(f1)
    folds = list(IterativeStratifiedKFold(3).split(X, y))
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(60))


@pytest.mark.parametrize("name", ["SubmodularSVC", "LabelRanker"])
def test_models_without_support_for_unknown_labels_refuse_them(name):
    with pytest.raises(ValueError, match=r"unknown|y\[1\] is None"):
        ESTIMATORS[name].fit(X, [SETS[0], None, *SETS[2:]])


def test_a_row_other_than_a_collection_is_named():
    with pytest.raises(ValueError, match=r"y\[3\] is 'red', .* write \['red'\]"):
        MultiLabelSVC().fit(X, [*SETS[:3], "red", *SETS[4:]])


def test_a_stream_refuses_another_kind_of_labels():
    ranker = LabelRanker().partial_fit(X[:2], SETS[:2])
    with pytest.raises(ValueError, match="keep to one kind"):
        ranker.partial_fit(X[:2], [0.5, 1.0])


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("f1_micro", "list of sets"), ("f1_samples", "pandas sets"), ("jaccard_micro", "polars lists"),
        ("accuracy", "list of sets"),
    ],
)  # fmt: skip
def test_scorers_of_scikit_learn_take_sets(name, form):
    scores = cross_val_score(
        ESTIMATORS["MultiLabelSVC"], X, FORMS[form], scoring=metrics.scorer(name), cv=KFold(3)
    )
    theirs = cross_val_score(ESTIMATORS["MultiLabelSVC"], X, ON.astype(int), scoring=name, cv=KFold(3))
    np.testing.assert_allclose(scores, theirs)


def test_a_search_over_texts_and_sets():
    texts = [" ".join(labels) + " and more" for labels in LISTS]
    pipe = make_pipeline(TfidfVectorizer(), MultiLabelSVC(random_state=0))
    search = GridSearchCV(
        pipe, {"multilabelsvc__C": [0.1, 10.0]}, scoring=metrics.scorer("f1_micro"), cv=3, n_jobs=1
    )
    search.fit(texts, pd.Series(SETS))
    assert search.best_score_ > 0.9
    assert isinstance(search.predict(texts)[0], set)


def test_a_frame_of_sets_takes_scorers_by_name():
    binary = MultiLabelBinarizer()
    frame = pd.DataFrame(binary.fit_transform(SETS), columns=binary.classes_)
    search = GridSearchCV(MultiLabelSVC(random_state=0), {"C": [0.1, 1.0]}, scoring="f1_micro", cv=KFold(3))
    search.fit(X, frame)
    by_sets = GridSearchCV(
        MultiLabelSVC(random_state=0), {"C": [0.1, 1.0]}, scoring=metrics.scorer("f1_micro"), cv=KFold(3)
    ).fit(X, SETS)
    scores = search.cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores, by_sets.cv_results_["mean_test_score"])
    assert (scores > 0.5).all()
    assert search.predict(X).columns.tolist() == search.classes_.tolist() == NAMES.tolist()


def test_a_scorer_is_pickled_and_an_unknown_one_is_refused():
    assert pickle.loads(pickle.dumps(metrics.scorer("f1_micro"))) is not None
    with pytest.raises(ValueError, match=r"no scorer 'f1_mikro'; .*micro_f1.*f1_micro"):
        metrics.scorer("f1_mikro")


def test_a_split_accepts_a_series_of_sets():
    _, X_test, _, y_test = iterative_train_test_split(X, pd.Series(SETS), random_state=0)
    assert len(X_test) == len(y_test) and isinstance(y_test.iloc[0], set)
