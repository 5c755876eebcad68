"""Rows weighted by how rare their columns were before."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin import LabelRanker, load, save
from tests.naive import ranking as naive


def stream(n=40, d=12, k=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4)
    X[3] = 0
    return X, rng.integers(k, size=n)


def make(dense):
    return (lambda X: X) if dense else sp.csr_array


@pytest.mark.nojit
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("update", ["fixed", "worst_pair", "all_pairs"])
@pytest.mark.parametrize(
    ("weighting", "power", "smooth"), [("idf", 1.0, 0.0), ("sqrt-idf", 0.5, 0.0), ("smooth-idf", 0.5, 1.0)]
)
def test_learning_equals_learning_from_rows_weighted_before(dense, update, weighting, power, smooth):
    X, y = stream()
    kind = make(dense)
    ours = LabelRanker(update, weighting=weighting, trace=True).partial_fit(kind(X), y)
    twin = LabelRanker(update, trace=True).partial_fit(naive.weigh(X, power=power, smooth=smooth), y)
    np.testing.assert_allclose(ours.coef_, twin.coef_, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(ours.trace_["mistake"], twin.trace_["mistake"])
    assert ours.n_mistakes_ == twin.n_mistakes_ > 0


@pytest.mark.parametrize("dense", [True, False])
def test_prediction_uses_the_counts_and_does_not_change_them(dense):
    X, y = stream()
    ours = LabelRanker(weighting="idf").partial_fit(make(dense)(X[:30]), y[:30])
    expected = np.array([naive.weigh([row], X[:30])[0] for row in X[30:]]) @ ours.coef_.T
    for _ in range(2):
        np.testing.assert_allclose(ours.label_scores(make(dense)(X[30:])), expected, rtol=1e-12, atol=1e-13)


@settings(max_examples=10)
@given(st.lists(st.integers(1, 39), max_size=4), st.booleans(), st.sampled_from([np.float64, np.float32]))
def test_chunks_equal_one_call(cuts, dense, dtype):
    X, y = stream()
    X = make(dense)(X.astype(dtype))
    whole = LabelRanker(weighting="idf").partial_fit(X, y, classes=range(4))
    parts = LabelRanker(weighting="idf")
    edges = [0, *sorted(set(cuts)), len(y)]
    for start, stop in itertools.pairwise(edges):
        parts.partial_fit(X[start:stop], y[start:stop], classes=range(4))
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    assert parts.dual_objective_ == pytest.approx(whole.dual_objective_, rel=1e-12)


def test_fit_resets_the_counts_and_later_passes_keep_the_weighting():
    X, y = stream()
    model = LabelRanker(weighting="idf", max_iter=300, tol=1e-6, C=0.5, shuffle=False)
    model.fit(X, y).fit(X, y)
    twin = LabelRanker(max_iter=300, tol=1e-6, C=0.5).fit(naive.weigh(X), y)
    assert model.duality_gap_ <= 1e-6
    assert model.primal_objective_ == pytest.approx(twin.primal_objective_, rel=1e-5)


def test_the_bound_is_that_of_the_weighted_rows():
    X, y = stream()
    model = LabelRanker(weighting="idf", C=0.1).partial_fit(X, y, classes=range(4))
    twin = LabelRanker(C=0.1).partial_fit(naive.weigh(X), y, classes=range(4))
    W = np.random.default_rng(1).normal(size=(4, X.shape[1]))
    bound = model.mistake_bound(W, X, y)
    assert bound == pytest.approx(twin.mistake_bound(W, naive.weigh(X), y))
    assert model.n_mistakes_ <= bound
    ordered = LabelRanker(weighting="idf", C=0.1, max_iter=1, shuffle=False).fit(X, y)
    assert ordered.mistake_bound(W, X, y) == pytest.approx(bound)
    with pytest.raises(ValueError, match="shuffle=False"):
        LabelRanker(weighting="idf", C=0.1).fit(X, y).mistake_bound(W, X, y)
    with pytest.raises(ValueError, match=r'weighting="idf" needs regulariser="squared"'):
        LabelRanker(regulariser="entropy", weighting="idf").fit(np.abs(X), y)


def presence(n=40, d=12, k=4):
    X, y = stream(n, d, k)
    return (X != 0).astype(float), y


@pytest.mark.parametrize("dense", [True, False])
def test_only_presence_is_weighted_by_default(dense):
    X, y = presence()
    kind = make(dense)
    chosen, none = LabelRanker().partial_fit(kind(X), y), LabelRanker(weighting=None).partial_fit(kind(X), y)
    smooth = LabelRanker(weighting="smooth-idf").partial_fit(kind(X), y)
    np.testing.assert_array_equal(chosen.coef_, smooth.coef_)
    assert not np.allclose(chosen.coef_, none.coef_)
    np.testing.assert_array_equal(chosen.label_scores(kind(X)), smooth.label_scores(kind(X)))
    for other in (2 * X, X - 1, 0.5 * X, 0 * X):
        plain = LabelRanker(weighting=None, random_state=0).fit(kind(other), y)
        np.testing.assert_array_equal(LabelRanker(random_state=0).fit(kind(other), y).coef_, plain.coef_)
    entropy, none = (
        LabelRanker(regulariser="entropy", weighting=w).partial_fit(X, y) for w in ("auto", None)
    )
    np.testing.assert_array_equal(entropy.coef_, none.coef_)


@pytest.mark.parametrize("empty", [0, 3])
def test_the_default_weighting_depends_on_the_first_entries(empty):
    X, y = presence()
    X[:empty] = 0
    whole, single = LabelRanker().partial_fit(X, y, classes=range(4)), LabelRanker()
    for i in range(len(y)):
        single.partial_fit(X[i : i + 1], y[i : i + 1], classes=range(4))
    np.testing.assert_array_equal(single.coef_, whole.coef_)
    before = whole.coef_
    expected = naive.weigh(X[:3] * 2, X, power=0.5, smooth=1.0)
    np.testing.assert_allclose(whole.label_scores(X[:1] * 2), expected[:1] @ before.T, atol=1e-12)
    whole.partial_fit(X[:1] * 2, y[:1])
    twin = LabelRanker(weighting="smooth-idf").partial_fit(X, y, classes=range(4))
    np.testing.assert_array_equal(whole.coef_, twin.partial_fit(X[:1] * 2, y[:1]).coef_)


def test_columns_may_be_new(tmp_path):
    X, y = stream()
    narrow = X.copy()
    narrow[:20, 6:] = 0
    grown = LabelRanker(weighting="idf", n_features="grow").partial_fit(narrow[:20, :6], y[:20])
    grown.partial_fit(narrow[20:], y[20:])
    padded = LabelRanker(weighting="idf").partial_fit(narrow, y)
    np.testing.assert_array_equal(grown.coef_, padded.coef_)
    wider = np.hstack([X, np.ones((len(X), 2))])
    first = LabelRanker(weighting="idf", n_features="grow").partial_fit(X, y)
    expected = np.array([naive.weigh([row], np.pad(X, [(0, 0), (0, 2)]))[0] for row in wider])
    np.testing.assert_allclose(first.label_scores(wider), expected[:, :12] @ first.coef_.T, atol=1e-12)

    save(grown, tmp_path / "model.mm")
    again = load(tmp_path / "model.mm")
    np.testing.assert_array_equal(again.label_scores(X), grown.label_scores(X))
    again.partial_fit(X, y)
    np.testing.assert_array_equal(again.coef_, grown.partial_fit(X, y).coef_)
