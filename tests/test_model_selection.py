"""Iterative stratification: shares of labels, the splitter's contract, kinds of labels."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from maxmargin.datasets import load
from maxmargin.model_selection import IterativeStratifiedKFold, iterative_train_test_split


def by_the_book(Y, k):
    """The algorithm of the paper, as it is written there."""
    n, n_labels = Y.shape
    left = set(range(n))
    want = [n / k for _ in range(k)]
    want_label = [[Y[:, l].sum() / k for l in range(n_labels)] for _ in range(k)]
    fold = np.full(n, -1)
    while left:
        counts = [(sum(Y[i, l] for i in left), l) for l in range(n_labels)]
        counts = [pair for pair in counts if pair[0] > 0]
        if counts:
            label = min(counts)[1]
            chosen = sorted(i for i in left if Y[i, label])
        else:
            label, chosen = None, sorted(left)
        for i in chosen:
            need = [want_label[j][label] if label is not None else 0 for j in range(k)]
            j = max(range(k), key=lambda j: (round(need[j], 9), round(want[j], 9), -j))
            fold[i] = j
            left.remove(i)
            want[j] -= 1
            for l in range(n_labels):
                want_label[j][l] -= Y[i, l]
    return fold


@given(
    st.integers(2, 4).flatmap(
        lambda k: st.tuples(
            st.just(k),
            st.integers(1, 5).flatmap(
                lambda l: st.lists(
                    st.lists(st.integers(0, 1), min_size=l, max_size=l), min_size=k, max_size=14
                )
            ),
        )
    )
)
def test_equals_the_algorithm_as_written(case):
    k, rows = case
    Y = np.array(rows)
    fold = np.full(len(Y), -1)
    for j, (train, test) in enumerate(IterativeStratifiedKFold(k).split(Y, Y)):
        assert not np.intersect1d(train, test).size and len(train) + len(test) == len(Y)
        fold[test] = j
    np.testing.assert_array_equal(fold, by_the_book(Y, k))


def spread(Y, splits):
    """Largest deviation of a fold's label counts from an equal share."""
    counts = np.array([Y[test].sum(axis=0) for _, test in splits])
    return np.abs(counts - Y.sum(axis=0) / len(counts)).max(axis=0)


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "random_state": 0}])
def test_labels_are_shared_better_than_by_plain_folds(options):
    data = load("yeast")
    ours = spread(data.Y, list(IterativeStratifiedKFold(10, **options).split(data.X, data.Y)))
    plain = spread(data.Y, list(KFold(10, shuffle=True, random_state=0).split(data.X)))
    assert ours.max() <= 6 < plain.max()
    assert ours[13] < 1  # 34 samples: 3 or 4 in each of ten folds
    sizes = [len(test) for _, test in IterativeStratifiedKFold(10, **options).split(data.X, data.Y)]
    assert sum(sizes) == 2417 and max(sizes) - min(sizes) < 25


def test_kinds_of_labels_give_the_same_folds():
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (30, 4))
    kinds = [
        2 * Y - 1,
        Y.tolist(),
        Y.astype(bool),
        sp.csr_array(Y),
        sp.csc_matrix(Y),
        pd.DataFrame(Y, columns=list("abcd")),
        [set(np.flatnonzero(row)) for row in Y],
        [list(np.array(list("abcd"))[row == 1]) for row in Y],
    ]
    expected = [test.tolist() for _, test in IterativeStratifiedKFold(3).split(Y, Y)]
    for kind in kinds:
        assert [test.tolist() for _, test in IterativeStratifiedKFold(3).split(Y, kind)] == expected


def test_shuffling_is_repeatable_and_random():
    Y = np.random.default_rng(0).integers(0, 2, (40, 3))

    def folds(seed):
        splitter = IterativeStratifiedKFold(4, shuffle=True, random_state=seed)
        return [test.tolist() for _, test in splitter.split(Y, Y)]

    assert folds(1) == folds(1) != folds(2)


def test_works_inside_scikit_learn():
    data = load("emotions", "train")
    model = OneVsRestClassifier(LinearSVC())
    cv = IterativeStratifiedKFold(3, shuffle=True, random_state=0)
    assert cross_val_score(model, data.X, data.Y, cv=cv, scoring="f1_micro").shape == (3,)
    search = GridSearchCV(model, {"estimator__C": [0.1]}, cv=cv, scoring="f1_micro").fit(data.X, data.Y)
    assert search.n_splits_ == 3
    assert repr(cv) == "IterativeStratifiedKFold(n_splits=3, random_state=0, shuffle=True)"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_splits": 1}, "n_splits"), ({"n_splits": 2.5}, "n_splits"), ({"random_state": 0}, "shuffle=True")],
)
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        IterativeStratifiedKFold(**options)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "Got None"),
        ([0, 1, 2, 0], "StratifiedKFold"),
        (np.array([[0, 2]] * 4), "0/1 or -1/"),
        (np.ones((3, 2)), "more than the 3 samples"),
    ],
)
def test_wrong_labels(y, message):
    X = np.zeros((3 if getattr(y, "shape", None) == (3, 2) else 4, 1))
    with pytest.raises(ValueError, match=message):
        list(IterativeStratifiedKFold(4).split(X, y))


def test_train_test_split():
    data = load("yeast")
    frame = pd.DataFrame(data.Y, columns=data.label_names)
    X_train, X_test, Y_train, Y_test = iterative_train_test_split(
        sp.csr_array(data.X), frame, test_size=0.3, random_state=0
    )
    assert X_train.shape[0] == len(Y_train) and X_test.shape[0] == len(Y_test)
    assert len(Y_test) == pytest.approx(0.3 * 2417, abs=20)
    np.testing.assert_allclose(Y_test.sum() / (Y_test.sum() + Y_train.sum()), 0.3, atol=0.015)
    again = iterative_train_test_split(data.X, frame, test_size=0.3, random_state=0)
    pd.testing.assert_frame_equal(again[3], Y_test)
    sets = iterative_train_test_split([[1], [2], [3]], [{"a"}, {"b"}, {"a"}], test_size=0.5, random_state=0)
    assert all(isinstance(labels, set) for labels in sets[2] + sets[3])
    with pytest.raises(ValueError, match="test_size must"):
        iterative_train_test_split(data.X, data.Y, test_size=1.5)
    with pytest.raises(ValueError, match="without samples"):
        iterative_train_test_split(data.X[:2], data.Y[:2], test_size=0.01)
