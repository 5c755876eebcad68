"""Wrappers pass weights, other arguments of `fit`, and requested metadata to their estimators."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maxmargin import Calibrated, ChainSVC, LabelSets, MultiLabelSVC, TreeLabels
from maxmargin.baselines import ThresholdTuner, tune_thresholds
from maxmargin.decisions.sets import label_threshold, precision_threshold, recall_threshold

RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 3))
Y = (X + RNG.normal(size=X.shape) > 0).astype(int)
WEIGHT = RNG.uniform(0.1, 2, N)
SVC = MultiLabelSVC(random_state=0, tol=1e-6)
WRAPPERS = {
    "Calibrated": lambda inner: Calibrated(inner, cv=2),
    "LabelSets": lambda inner: LabelSets(inner, recall=0.7, random_state=0),
    "LabelSets in folds": lambda inner: LabelSets(inner, recall=0.7, calibration=2, random_state=0),
    "TreeLabels": lambda inner: TreeLabels(inner, [(0, 1)]),
    "ThresholdTuner": lambda inner: ThresholdTuner(inner, cv=2),
}
WEIGHING = [name for name in WRAPPERS if name != "TreeLabels"]


class Noted(MultiLabelSVC):
    """Keeps the arguments of every fit."""

    seen = []

    def fit(self, X, y, sample_weight=None, note=None, label_cost=None):
        Noted.seen.append((X, sample_weight, note))
        return super().fit(X, y, sample_weight=sample_weight, label_cost=label_cost)


@pytest.fixture
def noted():
    Noted.seen = []
    return Noted.seen


def check_cut(seen):
    """Weights and notes of every fit are those of its rows."""
    row = {tuple(values): k for k, values in enumerate(X)}
    for rows, weight, note in seen:
        kept = [row[tuple(values)] for values in rows]
        np.testing.assert_array_equal(weight, WEIGHT[kept])
        assert note == [f"row {k}" for k in kept]


NOTES = [f"row {k}" for k in range(N)]


@pytest.mark.parametrize("name", WRAPPERS)
def test_arguments_of_fit_are_cut_to_the_rows_of_each_fit(name, noted):
    WRAPPERS[name](Noted()).fit(X, Y, sample_weight=WEIGHT, note=NOTES)
    assert noted
    check_cut(noted)


@pytest.mark.parametrize("name", WRAPPERS)
def test_weights_reach_the_last_step_of_a_pipeline(name):
    weight = WEIGHT * (X[:, 0] > 0)
    model = WRAPPERS[name](make_pipeline(StandardScaler(), SVC)).fit(X, Y, sample_weight=weight)
    plain = WRAPPERS[name](make_pipeline(StandardScaler(), SVC)).fit(X, Y)
    found = [fitted.estimator_[-1].coef_ for fitted in (model, plain)]
    assert not np.allclose(*found, rtol=0.1)


@pytest.mark.parametrize(
    "inner", [KNeighborsClassifier(), make_pipeline(StandardScaler(), KNeighborsClassifier())]
)
@pytest.mark.parametrize("name", WEIGHING)
def test_weights_that_the_estimator_does_not_take_count_elsewhere_with_a_warning(name, inner):
    message = "KNeighborsClassifier takes no sample_weight in fit; the weights count in the"
    with pytest.warns(UserWarning, match=message):
        model = WRAPPERS[name](inner).fit(X, Y, sample_weight=WEIGHT)
    assert 0 <= model.score(X, Y, sample_weight=WEIGHT) <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WRAPPERS[name](inner).fit(X, Y)


def test_weights_that_count_nowhere_are_refused():
    with pytest.raises(ValueError, match="KNeighborsClassifier takes no sample_weight in fit; leave"):
        WRAPPERS["TreeLabels"](KNeighborsClassifier()).fit(X, Y, sample_weight=WEIGHT)


@pytest.mark.parametrize("name", WRAPPERS)
def test_scores_take_weights(name):
    model = WRAPPERS[name](SVC).fit(X, Y)
    twice = np.arange(N) % 2 + 1
    repeated = model.score(np.repeat(X, twice, axis=0), np.repeat(Y, twice, axis=0))
    assert model.score(X, Y, sample_weight=twice) == pytest.approx(repeated)


@pytest.mark.parametrize("name", WRAPPERS)
def test_requests_decide_with_metadata_routing(name, noted):
    with sklearn.config_context(enable_metadata_routing=True):
        wrapper = WRAPPERS[name](SVC)
        with pytest.raises(UnsetMetadataPassedError, match=r"requested for MultiLabelSVC\.fit"):
            wrapper.fit(X, Y, sample_weight=WEIGHT)
        asking = Noted().set_fit_request(sample_weight=True, note="notes")
        WRAPPERS[name](asking).fit(X, Y, sample_weight=WEIGHT, notes=NOTES)
        check_cut(noted)
        noted.clear()
        declining = Noted().set_fit_request(sample_weight=False)
        if name == "TreeLabels":
            with pytest.raises(TypeError, match="not routed to any object"):
                WRAPPERS[name](declining).fit(X, Y, sample_weight=WEIGHT)
        else:
            WRAPPERS[name](declining).fit(X, Y, sample_weight=WEIGHT)
            assert all(weight is None for _, weight, _ in noted)


@pytest.mark.parametrize("name", ["Calibrated", "LabelSets in folds", "ThresholdTuner"])
def test_groups_reach_the_splitter(name, noted):
    groups = np.arange(N) % 5
    parameter = "calibration" if name == "LabelSets in folds" else "cv"
    with sklearn.config_context(enable_metadata_routing=True):
        wrapper = WRAPPERS[name](Noted()).set_params(**{parameter: GroupKFold(5)})
        wrapper.fit(X, Y, groups=groups)
    row = {tuple(values): k for k, values in enumerate(X)}
    met = [{groups[row[tuple(values)]] for values in rows} for rows, _, _ in noted]
    assert sorted(map(len, met)) == [4] * 5 + [5]


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_search_routes_through_the_wrapper(name, noted):
    with sklearn.config_context(enable_metadata_routing=True):
        wrapper = WRAPPERS[name](Noted().set_fit_request(sample_weight=True, note=True))
        wrapper.set_score_request(sample_weight=True)
        if name != "TreeLabels":
            wrapper.set_fit_request(sample_weight=True)
        GridSearchCV(wrapper, {"estimator__C": [0.1, 1.0]}, cv=2).fit(X, Y, sample_weight=WEIGHT, note=NOTES)
    check_cut(noted)


def test_weights_of_sequences_count_in_the_temperature():
    y = np.tile([0, 0, 1, 1], (30, 1))
    rows = [values[:, None] + RNG.normal(size=(4, 2)) for values in y]
    half = np.arange(30) % 2
    y[half == 0] = 1 - y[half == 0]  # the weights leave one half out, and the other is learnt
    chain = ChainSVC(random_state=0)
    both = Calibrated(chain, cv=2).fit(rows, list(y))
    one = Calibrated(chain, cv=2).fit(rows, list(y), sample_weight=np.where(half, 1.0, 1e-9))
    assert one.curves_.value < 0.5 * both.curves_.value


@pytest.mark.parametrize("average", ["samples", "micro", "macro", "subset"])
def test_weights_in_thresholds_repeat_samples(average):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth, scores = rng.random((20, 3)) < 0.4, rng.normal(size=(20, 3))
        times = rng.integers(0, 3, 20)
        found = tune_thresholds(truth, scores, average, sample_weight=times)
        repeated = tune_thresholds(np.repeat(truth, times, axis=0), np.repeat(scores, times, axis=0), average)
        on = scores[times > 0]
        np.testing.assert_array_equal(on > found, on > repeated)


def test_weights_of_samples_in_sets_repeat_their_losses():
    """A sample of half the weight counts half, beside a new one of the whole."""
    scores = np.arange(12.0)[:, None]
    truth, known = np.ones((12, 1), bool), np.ones((12, 1), bool)
    halves = np.tile([1.0, 0.5, 0.5], 4)
    # Losses of 2 are allowed: the samples 0, 1 and 2 together.
    assert 2.99 < recall_threshold(scores, truth, 2.0, halves) < 3.0
    assert precision_threshold(scores, ~truth, known, 2.0, halves[::-1]) == 8.0
    # 0.75 of a weight of 8: (2 + 1) of (8 + 1) may be missed at a share of 2/3.
    assert label_threshold(scores[:, 0], 2 / 3, halves) == recall_threshold(scores, truth, 2.0, halves)


def test_recall_is_kept_on_samples_drawn_by_their_weights():
    """Weighted exchangeability: samples are drawn from one population, and new ones by their weights."""
    rng, found = np.random.default_rng(5), []
    for _ in range(1000):
        weight = rng.choice([0.25, 1.0], size=80)
        # The heavy ones have the lower scores, and are fewer than they will be.
        scores = rng.normal(size=80) - 2 * (weight == 1)
        old, new = slice(0, 40), slice(40, 80)
        threshold = label_threshold(scores[old], 0.8, weight[old])
        found.append(np.average(scores[new] > threshold, weights=weight[new]))
    assert np.mean(found) >= 0.8 - 3 * np.std(found) / np.sqrt(1000)
    assert np.mean(found) < 0.9


@pytest.mark.parametrize("given", [-WEIGHT, WEIGHT[:-1]])
@pytest.mark.parametrize("name", WRAPPERS)
def test_weights_that_are_none_are_refused(name, given):
    with pytest.raises(ValueError):
        WRAPPERS[name](SVC).fit(X, Y, sample_weight=given)
