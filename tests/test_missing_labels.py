"""Unknown labels: measures, scores, splits, searches and thresholds leave them out."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    RandomizedSearchCV,
    cross_val_score,
    cross_validate,
)

from maxmargin import (
    Calibrated,
    LabelSets,
    MultiClassSVC,
    MultiLabelSVC,
    SparseMultiLabelSVC,
    TreeLabels,
    metrics,
)
from maxmargin.baselines import ThresholdTuner, tune_thresholds
from maxmargin.edge.labels import matrix_of
from maxmargin.model_selection import IterativeStratifiedKFold, iterative_train_test_split

RNG = np.random.default_rng(0)
N, L = 80, 4
X = RNG.normal(size=(N, L))
Y = (X + RNG.normal(size=X.shape) > 0).astype(float)
Z = Y.copy()
Z[RNG.random(Z.shape) < 0.3] = np.nan
Z[:5] = np.nan
KNOWN = ~np.isnan(Z)
ROWS = KNOWN.any(axis=1)
ANSWER = (X > 0.2).astype(int)
WEIGHT = RNG.uniform(0.5, 2, N)


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def f1(hits, size):
    return 2 * hits / size if size else 1.0


def by_sample(measure):
    """Weighted mean over samples with a known entry of a measure of those entries."""
    values = [measure(Z[i][KNOWN[i]] > 0, i) for i in np.flatnonzero(ROWS)]
    return np.average(values, weights=WEIGHT[ROWS])


def by_entry(values):
    weight = WEIGHT[:, None] * KNOWN
    return (values * weight).sum() / weight.sum()


def label_f1(l, weight=WEIGHT):
    truth, answer, w = Z[KNOWN[:, l], l] > 0, ANSWER[KNOWN[:, l], l] > 0, weight[KNOWN[:, l]]
    return 2 * (w * (truth & answer)).sum(), (w * truth).sum() + (w * answer).sum()


def expected(name):
    chosen = lambda i: ANSWER[i][KNOWN[i]] > 0  # noqa: E731
    counts = np.array([label_f1(l) for l in range(L)])
    return {
        "example_f1": lambda: by_sample(lambda t, i: f1((t & chosen(i)).sum(), t.sum() + chosen(i).sum())),
        "subset_accuracy": lambda: by_sample(lambda t, i: (t == chosen(i)).all()),
        "hamming_accuracy": lambda: by_entry(Y == ANSWER),
        "micro_f1": lambda: counts[:, 0].sum() / counts[:, 1].sum(),
        "macro_f1": lambda: (counts[:, 0] / counts[:, 1]).mean(),
    }[name]()


KINDS = {
    "array": lambda Z: Z,
    "objects": lambda Z: Z.astype(object),
    "signs": lambda Z: 2 * Z - 1,
    "lists": lambda Z: Z.tolist(),
    "lists with None": lambda Z: [[None if np.isnan(v) else int(v) for v in row] for row in Z],
    "frame": pd.DataFrame,
    "nullable frame": lambda Z: pd.DataFrame(Z).astype("Int64"),
    "sparse": sp.csr_array,
}
MEASURES = ["example_f1", "hamming_accuracy", "macro_f1", "micro_f1", "subset_accuracy"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MEASURES)
def test_measures_leave_unknown_entries_out(name, kind):
    measure = getattr(metrics, name)
    given = KINDS[kind](Z)
    assert measure(given, ANSWER, sample_weight=WEIGHT) == pytest.approx(expected(name))
    assert measure(given, sp.csr_array(ANSWER), sample_weight=WEIGHT) == pytest.approx(expected(name))


@pytest.mark.parametrize(
    "name", ["f1_micro", "precision_macro", "recall_samples", "jaccard_weighted", "accuracy"]
)
def test_scorers_of_scikit_learn_leave_them_out(name):
    model = MultiLabelSVC(random_state=0).fit(X, Z)
    scorer = metrics.scorer(name)
    # Unknown entries count as off in both arguments; samples without known entries are left out.
    off = model.predict(X) * KNOWN
    theirs = metrics.scorer(name)._score_func(np.where(KNOWN, Z, 0)[ROWS], off[ROWS].astype(int))
    assert scorer(model, X, Z) == pytest.approx(theirs)


def test_means_leave_out_labels_without_known_entries():
    more, answer = np.column_stack([Z, np.full(N, np.nan)]), np.column_stack([ANSWER, np.ones(N, int)])
    for name in MEASURES:
        measure = getattr(metrics, name)
        assert measure(more, answer) == pytest.approx(measure(Z, ANSWER))


SCORES = np.round(X, 1)  # with ties
PROBABILITIES = 1 / (1 + np.exp(-X))


def test_losses_of_probabilities_leave_unknown_entries_out():
    P = PROBABILITIES
    assert metrics.label_brier(Z, P, sample_weight=WEIGHT) == pytest.approx(by_entry((P - Y) ** 2))
    loss = -np.log(np.where(Y > 0, P, 1 - P))
    assert metrics.label_log_loss(Z, P, sample_weight=WEIGHT) == pytest.approx(by_entry(loss))
    alone = metrics.reliability(Z[KNOWN], P[KNOWN][:, None])
    for found, known in zip(metrics.reliability(Z, P), alone, strict=True):
        np.testing.assert_allclose(found, known)
    shares = np.array([Z[KNOWN[:, l], l].mean() for l in range(L)])
    assert metrics.label_cardinality(Z) == pytest.approx(shares.sum())


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", ["array", "sparse"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_measures_at_k_leave_unknown_labels_out(kind, form, k):
    truth, scores = KINDS[kind](Z), form(SCORES)
    if form is sp.csr_array:  # all scores are stored, zeros as well
        scores = sp.csr_array((SCORES.ravel(), np.tile(np.arange(L), N), np.arange(N + 1) * L), shape=(N, L))

    def each(measure):
        def of(t, i):
            return measure([t], [SCORES[i][KNOWN[i]]], min(k, len(t)))

        return of

    found = metrics.precision_at_k(truth, scores, k, sample_weight=WEIGHT)
    assert found == pytest.approx(by_sample(each(metrics.precision_at_k)))
    some = np.flatnonzero((Z == 1).any(axis=1))
    for measure in (metrics.recall_at_k, metrics.ndcg_at_k):
        values = [each(measure)(Z[i][KNOWN[i]] > 0, i) for i in some]
        assert measure(truth, scores, k) == pytest.approx(np.mean(values))
    assert metrics.propensity_precision_at_k(truth, scores, k, propensity=np.ones(L)) > 0
    np.testing.assert_array_equal(metrics.propensities(truth), metrics.propensities(np.nan_to_num(Z)))


def test_one_error_leaves_unknown_labels_out():
    errors = by_sample(lambda t, i: metrics.one_error([t], [SCORES[i][KNOWN[i]]]))
    assert metrics.one_error(Z, SCORES, sample_weight=WEIGHT) == pytest.approx(errors)


def test_positions_of_sequences_may_be_unknown():
    truth, answer = [["a", None, "b"], [None, None], [1.0, np.nan]], [["a", "x", "x"], ["x", "x"], [1.0, 2.0]]
    assert metrics.letter_accuracy(truth, answer) == pytest.approx(2 / 3)
    assert metrics.word_accuracy(truth, answer, sample_weight=[1, 5, 2]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.micro_f1(Z[:5], ANSWER[:5]),
        lambda: metrics.label_brier(Z[:5], PROBABILITIES[:5]),
        lambda: MultiLabelSVC().fit(X, Z).score(X[:5], Z[:5]),
        lambda: LabelSets(MultiLabelSVC(), recall=0.5, random_state=0).fit(X, Z).score(X[:5], Z[:5]),
    ],
)
def test_without_known_entries_measures_raise(call):
    with pytest.raises(ValueError, match="has no known entry; pass at least one sample"):
        call()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA], ids=str)
@pytest.mark.parametrize("container", [set, list])
def test_a_set_holds_no_missing_label(container, missing):
    rows = [container(row) for row in (["a", missing], ["b"], ["a", "b"], ["b"])]
    with pytest.raises(ValueError, match="y has a set with a missing label"):
        MultiLabelSVC().fit(X[:4], rows)


def test_answers_must_be_known():
    with pytest.raises(ValueError, match="y_pred must hold only 0/1"):
        metrics.micro_f1(ANSWER, Z)


SVC = MultiLabelSVC(random_state=0)
MODELS = {
    "MultiLabelSVC": SVC,
    "SparseMultiLabelSVC": SparseMultiLabelSVC(max_basis=5, random_state=0),
    "Calibrated": Calibrated(SVC, cv=3),
    "LabelSets": LabelSets(SVC, recall=0.7, random_state=0),
    "TreeLabels": TreeLabels(SVC, [(0, 1)]),
    "ThresholdTuner": ThresholdTuner(SVC, cv=3),
    "ThresholdTuner of probabilities": ThresholdTuner(Calibrated(SVC, cv=2), average="subset", cv=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_models_are_fitted_and_scored_on_known_entries(name):
    model = MODELS[name].fit(X, Z)
    score = model.score(X, Z)
    assert score == model.score(X[5:], Z[5:]) and 0 < score <= 1
    if name != "LabelSets":
        assert score == pytest.approx(metrics.subset_accuracy(Z, model.predict(X)))
    repeated = model.score(np.repeat(X, 2, axis=0), np.repeat(Z, 2, axis=0))
    assert model.score(X, Z, sample_weight=np.full(N, 2.0)) == pytest.approx(repeated)


@pytest.mark.parametrize(
    ("kind", "scoring"),
    [(kind, None) for kind in KINDS if kind != "sparse"]
    + [("array", metrics.scorer("micro_f1")), ("frame", metrics.scorer("f1_macro"))],
    ids=str,
)
def test_a_search_over_labels_with_unknown_entries(kind, scoring):
    given, grid = KINDS[kind](Z), {"C": [0.1, 1.0]}
    search = GridSearchCV(SVC, grid, cv=IterativeStratifiedKFold(3), scoring=scoring, error_score="raise")
    search.fit(X, given)
    assert 0 < search.best_score_ < 1 and search.predict(X).shape == (N, L)
    assert search.best_score_ == pytest.approx(
        cross_val_score(SVC.set_params(**search.best_params_), X, Z, cv=search.cv, scoring=scoring).mean()
    )


FOLDS = IterativeStratifiedKFold(3)


def own(name):
    """The parameter C of a model or of the estimator that it wraps."""
    return max((key for key in MODELS[name].get_params() if key.split("__")[-1] == "C"), key=len)


@pytest.mark.parametrize("name", MODELS)
def test_folds_score_every_model_on_known_entries(name):
    model = MODELS[name]
    measures = {"f1": metrics.scorer("f1_micro"), "hamming": metrics.scorer("hamming_accuracy")}
    given = {"cv": FOLDS, "error_score": "raise"}
    found = cross_validate(model, X, Z, scoring=measures, **given)
    alone = cross_val_score(model, X, Z, **given)
    for k, (train, test) in enumerate(FOLDS.split(X, Z)):
        fitted = clone(model).fit(X[train], Z[train])
        answer = fitted.predict(X[test])
        assert found["test_f1"][k] == pytest.approx(metrics.micro_f1(Z[test], answer))
        assert found["test_hamming"][k] == pytest.approx(metrics.hamming_accuracy(Z[test], answer))
        assert alone[k] == pytest.approx(fitted.score(X[test], Z[test]))


@pytest.mark.parametrize("name", ["MultiLabelSVC", "ThresholdTuner"])
@pytest.mark.parametrize("kind", [GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV])
def test_every_search_scores_known_entries(kind, name):
    more = {"n_iter": 2, "random_state": 0} if kind is RandomizedSearchCV else {}
    if kind is HalvingGridSearchCV:
        more = {"min_resources": N, "factor": 2}
    search = kind(
        MODELS[name],
        {own(name): [0.01, 1.0]},
        cv=FOLDS,
        scoring=metrics.scorer("f1_micro"),
        error_score="raise",
        **more,
    ).fit(X, Z)
    scores = search.cv_results_["mean_test_score"]
    assert 0 < search.best_score_ == scores[search.best_index_] == max(scores)
    assert search.best_estimator_.score(X, Z) > 0


def test_a_number_of_folds_works_for_labels_as_objects():
    """scikit-learn checks only numbers for NaN; it splits arrays of objects by `KFold`."""
    for given in (Z.astype(object), pd.DataFrame(Z).astype(object)):
        search = GridSearchCV(SVC, {"C": [0.1, 1.0]}, cv=3, scoring=metrics.scorer("micro_f1"))
        assert 0 < search.fit(X, given).best_score_ < 1
    signs = MultiLabelSVC(random_state=0).fit(X, (2 * Z - 1).astype(object)).predict(X)
    assert set(np.unique(signs)) == {-1, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_folds_stratify_known_entries(kind):
    rng = np.random.default_rng(1)
    W = np.full((60, 3), np.nan)
    W[:40] = rng.integers(0, 2, size=(40, 3))
    W[:, 2] = np.nan
    W[[3, 4, 5], 2], W[[6, 7, 8], 2] = 1, 0  # six known entries
    folds = list(IterativeStratifiedKFold(3).split(W, KINDS[kind](W)))
    for _, test in folds:
        assert (W[test, 2] == 1).sum() == 1 and (W[test, 2] == 0).sum() == 1
        assert np.isnan(W[test]).all(axis=1).sum() in (6, 7)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(60))
    if "lists" not in kind:
        _, _, train, _ = iterative_train_test_split(W, KINDS[kind](W), test_size=0.5, random_state=0)
        assert 8 <= np.isnan(matrix_of(train)).all(axis=1).sum() <= 12


def test_folds_stratify_samples_without_known_sets():
    rows = [None if i % 4 == 0 else {"a"} if i % 2 else set() for i in range(48)]
    for _, test in IterativeStratifiedKFold(4).split(rows, rows):
        assert sum(rows[i] is None for i in test) == 3 and sum(rows[i] == {"a"} for i in test) == 6


@pytest.mark.parametrize("average", ["samples", "micro", "macro", "subset"])
def test_no_other_threshold_is_better_on_known_entries(average):
    measure = {
        "samples": metrics.example_f1,
        "micro": metrics.micro_f1,
        "macro": metrics.macro_f1,
        "subset": metrics.subset_accuracy,
    }[average]
    found = tune_thresholds(Z, SCORES, average, sample_weight=WEIGHT)
    best = measure(Z, found < SCORES, sample_weight=WEIGHT)
    for l in range(L):
        for cut in np.unique(SCORES[:, l]):
            moved = found.copy()
            moved[l] = cut
            assert measure(Z, moved < SCORES, sample_weight=WEIGHT) <= best + 1e-12


def test_thresholds_of_a_label_are_those_of_its_known_entries():
    found = tune_thresholds(Z, X, "macro")
    for l in range(L):
        known = KNOWN[:, l]
        assert found[l] == tune_thresholds(Z[known, l : l + 1], X[known, l : l + 1], "macro")[0]
    nothing = np.column_stack([Z, np.full(N, np.nan)])
    scores = np.column_stack([X, X[:, 0]])
    for average in ("samples", "micro", "macro", "subset"):
        assert not (scores[:, -1] > tune_thresholds(nothing, scores, average)[-1]).any()


def test_tuned_thresholds_are_saved_in_every_kind_of_labels(tmp_path):
    import maxmargin

    sets = [None if np.isnan(row).any() else set(np.flatnonzero(row).tolist()) for row in Z]
    for given in (Z, pd.DataFrame(Z, columns=list("abcd")), sets):
        model = ThresholdTuner(SVC, cv=3).fit(X, given)
        maxmargin.save(model, tmp_path / "m.mm")
        again = maxmargin.load(tmp_path / "m.mm")
        assert np.array_equal(again.thresholds_, model.thresholds_) and again.score(X, given) > 0


def test_samples_without_known_entries_do_not_count_in_guarantees():
    """They have no loss; if they counted, the other samples could have larger losses."""
    W = np.repeat(Y, 3, axis=0)
    W[np.arange(len(W)) % 3 > 0] = np.nan
    rows = np.repeat(X, 3, axis=0)
    sets = LabelSets(SVC, recall=0.9, calibration=3, random_state=0).fit(rows, W)
    assert sets.n_calibration_ == N
    found = cross_scores(rows, W)
    assert (found > sets.thresholds_)[W == 1].mean() > 0.85


def cross_scores(rows, W):
    scores = np.empty(W.shape)
    for train, test in KFold(3, shuffle=True, random_state=0).split(rows):
        scores[test] = SVC.fit(rows[train], W[train]).decision_function(rows[test])
    return scores


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_classes_are_refused_without_a_warning(bad):
    y = np.arange(N) % 3 + 0.0
    y[7] = bad
    for model in (MultiClassSVC(), Calibrated(MultiClassSVC())):
        with pytest.raises(ValueError, match="every sample needs a class"):
            model.fit(X, y)
