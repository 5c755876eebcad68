"""Sets of labels keep their guarantee."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier

import maxmargin
from maxmargin import Calibrated, LabelSets, MultiClassSVC, MultiLabelSVC
from maxmargin.decisions.sets import label_threshold, precision_threshold, recall_threshold

RNG = np.random.default_rng(0)
N, L = 200, 5
X = RNG.normal(size=(N, L))
Y = (X + RNG.normal(size=(N, L)) > np.linspace(0, 1.5, L)).astype(int)
WORDS = np.array(["ant", "bee", "cat"])[np.argmax(X[:, :3] + RNG.normal(size=(N, 3)), axis=1)]
RESAMPLES = 1000


class Given:
    """Draws (scores, truth) of samples: the estimator is fixed, as after a fit on other samples."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def draw(self, n):
        scores = self.rng.normal(size=(n, L)) - np.linspace(0, 2, L)
        truth = self.rng.random((n, L)) < 1 / (1 + np.exp(-2 * scores))
        return np.round(scores, 1), truth  # with ties


def recall_of(on, truth):
    size = truth.sum(axis=1)
    return np.where(size > 0, (on & truth).sum(axis=1) / np.maximum(size, 1), 1.0)


def precision_of(on, truth):
    size = on.sum(axis=1)
    return np.where(size > 0, (on & truth).sum(axis=1) / np.maximum(size, 1), 1.0)


def assert_at_least(values, asked):
    """The mean is not below what was asked by more than chance (3 standard errors) explains."""
    assert np.mean(values) >= asked - 3 * np.std(values) / np.sqrt(len(values))


@pytest.mark.parametrize(("n", "asked"), [(12, 0.9), (60, 0.8)])
def test_recall_is_kept_on_a_thousand_resamples(n, asked):
    given, found, sizes = Given(1), [], []
    for _ in range(RESAMPLES):
        scores, truth = given.draw(n)
        threshold = recall_threshold(scores, truth, (1 - asked) * (n + 1) - 1, np.ones(n))
        new, true = given.draw(50)
        found.append(recall_of(new > threshold, true).mean())
        sizes.append((new > threshold).sum(axis=1).mean())
    assert_at_least(found, asked)
    assert np.mean(found) < asked + 2.5 / n  # not by predicting all labels
    assert np.mean(sizes) < L


@pytest.mark.parametrize("asked", [0.7, 0.9])
def test_precision_is_kept_on_a_thousand_resamples(asked):
    given, found, sizes, n = Given(2), [], [], 60
    for _ in range(RESAMPLES):
        scores, truth = given.draw(n)
        threshold = precision_threshold(
            scores, truth, np.ones_like(truth), (1 - asked) * (n + 1) - 1, np.ones(n)
        )
        new, true = given.draw(50)
        found.append(precision_of(new > threshold, true).mean())
        sizes.append((new > threshold).sum(axis=1).mean())
    assert_at_least(found, asked)
    assert np.mean(sizes) > 0.1


def test_the_recall_of_one_label_is_kept_on_a_thousand_resamples():
    rng, found = np.random.default_rng(3), []
    for _ in range(RESAMPLES):
        values = np.round(rng.normal(size=25), 1)
        found.append(np.mean(np.round(rng.normal(size=200), 1) > label_threshold(values, 0.9, np.ones(25))))
    assert_at_least(found, 0.9)
    assert np.mean(found) < 0.97


@pytest.mark.parametrize("resamples", [50, pytest.param(RESAMPLES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("calibration", [0.25, 5])
def test_fits_keep_the_guarantee(calibration, resamples):
    """Whole fits on resamples of a population; with folds this is not a theorem, but holds here."""
    rng = np.random.default_rng(4)
    W = rng.normal(size=(3, 4))
    base = RidgeClassifier()
    found = []
    for k in range(resamples):
        A = rng.normal(size=(160, 3))
        B = (A @ W + rng.normal(size=(160, 4)) > 0.3).astype(int)
        sets = LabelSets(base, recall=0.9, calibration=calibration, random_state=k).fit(A[:80], B[:80])
        found.append(sets.score(A[80:], B[80:]))
    assert_at_least(found, 0.9)


def test_thresholds_by_hand():
    scores = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    truth, ones = np.array([[1, 1], [1, 0], [0, 0]], bool), np.ones(3)
    # Without a label lost; with half a sample's; with all labels.
    assert 0.999 < recall_threshold(scores, truth, 0.0, ones) < 1.0
    assert 1.999 < recall_threshold(scores, truth, 0.5, ones) < 2.0
    assert recall_threshold(scores, truth, 2.0, ones) == np.inf
    assert recall_threshold(scores, truth, -0.1, ones) == -np.inf
    known = np.ones_like(truth)
    # Sample 2 is wrong from 6 on, sample 1 from 4 on; sample 0 never.
    assert precision_threshold(scores, truth, known, 0.0, ones) == 6.0
    assert precision_threshold(scores, truth, known, 1.0, ones) == 4.0
    assert precision_threshold(scores, truth, known, 2.0, ones) == -np.inf
    assert precision_threshold(scores, truth, known, -0.1, ones) == np.inf


def test_predictions_have_the_kind_of_y():
    names = np.array(list("vwxyz"))
    sets = LabelSets(MultiLabelSVC(), random_state=0).fit(X, [set(names[row > 0]) for row in Y])
    assert all(isinstance(row, set) for row in sets.predict(X))
    frame = LabelSets(MultiLabelSVC(), random_state=0).fit(X, pd.DataFrame(Y, columns=names)).predict(X)
    assert list(frame.columns) == list(names)
    for y in (WORDS, WORDS == "ant"):
        classes = LabelSets(MultiClassSVC(), random_state=0).fit(X[:150], y[:150])
        on = classes.predict(X[150:])
        assert on.shape == (50, len(np.unique(y))) and classes.score(X[150:], y[150:]) > 0.8


def test_a_label_of_calibration_samples_only_is_kept():
    y = [{"common"} if k % 2 else {"common", "other"} for k in range(20)]
    y[3] = {"common", "once"}
    for seed in range(8):
        sets = LabelSets(MultiLabelSVC(), recall=0.5, random_state=seed).fit(X[:20], y)
        assert list(sets.classes_) == ["common", "once", "other"] and len(sets.predict(X)) == N


def test_every_label_by_itself():
    Z = np.column_stack([Y, np.zeros(N, int)])
    Z[:3, -1] = 1
    with pytest.warns(UserWarning, match="Label 5 has too few positive calibration samples"):
        sets = LabelSets(MultiLabelSVC(), per_label=True, recall=0.8, random_state=0).fit(X, Z)
    assert sets.predict(X)[:, -1].all() and np.isneginf(sets.thresholds_[-1])
    assert len(set(sets.thresholds_.tolist())) == L + 1


def test_unknown_entries_do_not_count():
    Z = Y.astype(float)
    Z[RNG.random(Z.shape) < 0.4] = np.nan
    for asked in ({"recall": 0.8}, {"recall": None, "precision": 0.6}):
        sets = LabelSets(MultiLabelSVC(), random_state=0, **asked).fit(X, Z)
        assert np.isfinite(sets.thresholds_).all() and 0 < sets.score(X, Z) <= 1


def test_too_few_samples_give_a_warning():
    with pytest.warns(
        UserWarning, match="recall=0.99 cannot be guaranteed with 50 calibration samples; it needs 99"
    ):
        sets = LabelSets(MultiLabelSVC(), recall=0.99, random_state=0).fit(X, Y)
    assert sets.predict(X).all()
    with pytest.warns(UserWarning, match="Every set is empty"):
        sets = LabelSets(MultiLabelSVC(), recall=None, precision=0.99, random_state=0).fit(X, Y)
    assert not sets.predict(X).any()


def test_parameters_that_conflict_are_refused():
    with pytest.raises(ValueError, match="Pass one of recall and precision"):
        LabelSets(MultiLabelSVC(), precision=0.9).fit(X, Y)
    with pytest.raises(ValueError, match="per_label=True needs recall"):
        LabelSets(MultiLabelSVC(), recall=None, precision=0.9, per_label=True).fit(X, Y)
    with pytest.raises(ValueError, match="'recall' parameter of LabelSets"):
        LabelSets(MultiLabelSVC(), recall=1.0).fit(X, Y)


CASES = {
    "recall": LabelSets(MultiLabelSVC(), random_state=0),
    "precision": LabelSets(MultiLabelSVC(), recall=None, precision=0.7, random_state=0),
    "each": LabelSets(MultiLabelSVC(), per_label=True, calibration=3, random_state=0),
    "probabilities": LabelSets(Calibrated(MultiLabelSVC(), cv=2), random_state=0),
}


@pytest.mark.parametrize("name", CASES)
def test_saved_and_loaded(tmp_path, name):
    model = clone(CASES[name]).fit(X, Y)
    maxmargin.save(model, tmp_path / "m.mm")
    again = maxmargin.load(tmp_path / "m.mm")
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert again.score(X, Y) == model.score(X, Y)
