"""Probabilities: fitted curves, every kind of labels, labels with few samples, folds and files."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import maxmargin
from maxmargin import Calibrated, MultiClassSVC, MultiLabelSVC
from maxmargin.datasets import load
from maxmargin.decisions.curves import (
    PRIOR_PRECISION,
    PRIOR_VARIANCE,
    Sigmoids,
    Temperature,
    between_variance,
    fit_isotonic,
    fit_sigmoids,
    fit_temperature,
)
from maxmargin.edge.labels import LabelSpace
from maxmargin.edge.wrappers import fit_remembering, held_out_scores
from maxmargin.persistence import ModelFileError

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 4))
Y = (X[:, :3] + 0.7 * RNG.normal(size=(N, 3)) > [0.0, 0.5, 1.0]).astype(int)
WORDS = np.array(["ant", "bee", "cat"])[np.argmax(X[:, :3] + 0.5 * RNG.normal(size=(N, 3)), axis=1)]
METHODS = ["sigmoid", "isotonic"]


def is_probability(P):
    return np.isfinite(P).all() and (P >= 0).all() and (P <= 1).all()


def platt(scores, on, weight):
    """One sigmoid by a general optimiser: the slow twin of the curves without shrinkage."""
    positive, negative = (weight * on).sum(), (weight * ~on).sum()
    target = np.where(on, (positive + 1) / (positive + 2), 1 / (negative + 2))

    def loss(ab):
        f = ab[0] * scores + ab[1]
        return float(weight @ (np.logaddexp(0, f) - target * f))

    return minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x


def test_a_lone_sigmoid_is_that_of_platt():
    s = RNG.normal(size=(80, 2)) * [3.0, 0.01] + [5.0, 0.0]
    on = RNG.random((80, 2)) < expit((s - [5.0, 0.0]) * [0.5, 200.0])
    w = RNG.integers(0, 3, size=(80, 2)).astype(float)
    curves = fit_sigmoids(s, on, w, np.full(2, 0.5))
    for l in range(2):
        a, b = platt(s[:, l] * [1.0, 100.0][l], on[:, l], w[:, l])
        assert curves.slope[l] == pytest.approx(a * [1.0, 100.0][l], rel=1e-4)
        assert curves.intercept[l] == pytest.approx(b, rel=1e-4, abs=1e-4)


def test_slopes_of_rare_labels_are_shrunk_to_the_others():
    n, L = 400, 30
    s = RNG.normal(size=(n, L)) - 2
    on = RNG.random((n, L)) < expit(2 * s)
    on[:, 0] = False
    on[np.argsort(s[:, 0])[:2], 0] = True  # two positives, with the lowest scores
    curves = fit_sigmoids(s, on, np.ones((n, L)), np.full(L, 0.1))
    alone, _ = platt(s[:, 0], on[:, 0], np.ones(n))
    assert alone < 0 <= curves.slope[0]
    assert 1.5 < np.median(curves.slope) < 2.5
    spread = np.std([platt(s[:, l], on[:, l], np.ones(n))[0] for l in range(1, L)])
    assert np.std(curves.slope[1:]) < 0.5 * spread


def test_slopes_minimise_the_penalised_loss():
    """Against a general optimiser over log a and b, with the mean and spread of the logarithms."""
    n, L = 300, 5
    s = RNG.normal(size=(n, L)) - 1
    on = RNG.random((n, L)) < expit(np.array([0.5, 1.0, 2.0, 4.0, 8.0]) * s)
    curves = fit_sigmoids(s, on, np.ones((n, L)), np.full(L, 0.1))
    centred, unit = s - s.mean(axis=0), np.sqrt(((s - s.mean(axis=0)) ** 2).mean())
    logs, variances = [], []
    for l in range(L):
        z = centred[:, l] / unit
        a, b = platt(z, on[:, l], np.ones(n))
        curvature = expit(a * z + b) * expit(-a * z - b)
        hessian = np.array([[curvature @ z**2, curvature @ z], [curvature @ z, curvature.sum()]])
        logs.append(np.log(a)), variances.append(np.linalg.inv(hessian)[0, 0] / a**2)
    mean, spread = between_variance(np.array(logs), np.array(variances), PRIOR_VARIANCE, PRIOR_PRECISION)
    for l in range(L):
        on_l, f = on[:, l], lambda tb, l=l: np.exp(tb[0]) * centred[:, l] / unit + tb[1]
        target = np.where(on_l, (on_l.sum() + 1) / (on_l.sum() + 2), 1 / ((~on_l).sum() + 2))

        def loss(tb, f=f, target=target):
            return (np.logaddexp(0, f(tb)) - target * f(tb)).sum() + (tb[0] - mean) ** 2 / (2 * spread)

        best = minimize(loss, [mean, 0.0], method="BFGS", options={"gtol": 1e-7}).x
        assert curves.slope[l] * unit == pytest.approx(np.exp(best[0]), rel=1e-3)


def test_slopes_of_few_labels_do_not_collapse_by_chance():
    """Slopes that differ by less than their errors still keep a part of the difference."""
    n = 60
    s = RNG.normal(size=(n, 4))
    on = RNG.random((n, 4)) < expit(2 * s)
    curves = fit_sigmoids(s, on, np.ones((n, 4)), np.full(4, 0.5))
    alone = np.array([platt(s[:, l], on[:, l], np.ones(n))[0] for l in range(4)])
    assert np.corrcoef(alone, curves.slope)[0, 1] > 0.9 and np.ptp(curves.slope) > 0.05


def test_the_variance_beyond_that_of_the_estimates():
    true = RNG.normal(3.0, 0.5, size=4000)
    variances = RNG.uniform(0.1, 1.0, size=4000)
    mean, spread = between_variance(true + RNG.normal(size=4000) * np.sqrt(variances), variances)
    assert mean == pytest.approx(3.0, abs=0.05) and spread == pytest.approx(0.25, abs=0.05)
    assert between_variance(np.array([1.0, 1.0, 1.0]), np.ones(3))[1] == 0
    # The guess counts less with more estimates: (2 * 10 - 2) of the estimates, 2 of the guess.
    assert between_variance(np.array([1.0, 3.0, 5.0]), np.full(3, 0.5), 0.2, 10.0)[1] == pytest.approx(
        16 / 14
    )


def test_the_temperature_is_the_best_one():
    scores = 5 * RNG.normal(size=(500, 4))
    P = np.exp(scores / 2)
    codes = np.array([RNG.choice(4, p=p / p.sum()) for p in P])
    on = np.eye(4, dtype=bool)[codes]
    found = fit_temperature(scores, on, np.ones((500, 4)), np.full(4, 0.25))
    losses = [
        log_loss(codes, type(found)(found.value * factor).probabilities(scores), labels=range(4))
        for factor in (0.95, 1, 1.05)
    ]
    assert found.value == pytest.approx(2.0, rel=0.2) and losses[1] == min(losses)


def probabilities_apart(n_classes):
    """Draw classes whose overlap naive Bayes underestimates, because three columns are almost equal."""
    rng = np.random.RandomState(3)
    y = rng.randint(n_classes, size=240)
    one = y[:, None] * 1.5 + rng.randn(240, 1)
    return np.hstack([one + 0.05 * rng.randn(240, 3), rng.randn(240, 1)]), y


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_temperature_of_probabilities_is_that_of_their_logarithms(n_classes, ensemble):
    A, b = probabilities_apart(n_classes)
    folds = list(KFold(3, shuffle=True, random_state=0).split(A))
    model = Calibrated(GaussianNB(), method="temperature", cv=folds, ensemble=ensemble).fit(A, b)
    P = np.clip(cross_val_predict(GaussianNB(), A, b, cv=folds, method="predict_proba"), 1e-12, 1)

    def loss(power):
        return log_loss(b, softmax(np.log(P) / np.exp(power), axis=1))

    best = min(loss(power) for power in np.linspace(-3, 5, 201))
    held_out = loss(np.log(model.curves_.value))
    assert held_out <= best + 1e-3 and held_out < loss(0.0) - 0.05
    inside = model.estimators_ if ensemble else [model.estimator_]
    logs = [np.log(np.clip(part.predict_proba(A), 1e-12, 1)) for part in inside]
    expected = np.mean([softmax(part / model.curves_.value, axis=1) for part in logs], axis=0)
    np.testing.assert_allclose(model.predict_proba(A), expected, atol=1e-9)


def test_probabilities_of_zero_have_a_temperature():
    A, b = probabilities_apart(3)
    assert (KNeighborsClassifier(3).fit(A, b).predict_proba(A) == 0).any()
    model = Calibrated(KNeighborsClassifier(3), cv=3).fit(A[::2], b[::2])
    found = model.predict_proba(A[1::2])
    plain = KNeighborsClassifier(3).fit(A[::2], b[::2]).predict_proba(A[1::2])
    assert is_probability(found) and log_loss(b[1::2], found) < log_loss(b[1::2], plain)


def test_isotonic_curves_are_nondecreasing_and_not_zero_or_one():
    s = RNG.normal(size=(60, 2))
    on = s > 0
    curves = fit_isotonic(s, on, np.ones((60, 2)), np.full(2, 0.5))
    grid = np.linspace(-5, 5, 101)[:, None] * np.ones(2)
    P = curves.probabilities(grid)
    assert (np.diff(P, axis=0) >= 0).all()
    assert P.min() == pytest.approx(1 / 62) and P.max() == pytest.approx(61 / 62)


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_are_not_worse_than_platt_inside_one_vs_rest(method):
    train, test = load("emotions", "train"), load("emotions", "test")
    ours = Calibrated(make_pipeline(StandardScaler(), MultiLabelSVC(C=0.1, random_state=0)), method=method)
    theirs = make_pipeline(
        StandardScaler(),
        OneVsRestClassifier(CalibratedClassifierCV(LinearSVC(C=0.1), method=method, ensemble=False)),
    )
    losses = []
    for model in (ours, theirs):
        P = np.clip(model.fit(train.X, train.Y).predict_proba(test.X), 1e-15, 1 - 1e-15)
        losses.append(-np.mean(np.where(test.Y > 0, np.log(P), np.log(1 - P))))
    assert losses[0] <= losses[1] * 1.01


@pytest.mark.parametrize("method", ["isotonic"])
def test_every_kind_of_labels(method):
    names = np.array(["p", "q", "r"])
    kinds = {
        "indicator": Y,
        "sign": 2 * Y - 1,
        "sparse": sp.csr_array(Y),
        "frame": pd.DataFrame(Y, columns=names),
        "sets": [set(names[row > 0]) for row in Y],
    }
    reference = None
    for kind, y in kinds.items():
        model = Calibrated(MultiLabelSVC(random_state=0), method=method).fit(X, y)
        P = model.predict_proba(X)
        assert P.shape == Y.shape and is_probability(P)
        assert LabelSpace.recognise(model.predict(X)).kind == kind
        reference = P if reference is None else reference
        np.testing.assert_allclose(P, reference, atol=1e-9)
    np.testing.assert_array_equal(
        Calibrated(MultiLabelSVC(random_state=0), method=method).fit(X, Y).predict(X), reference > 0.5
    )


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("MultiClassSVC", "sigmoid"), ("MultiClassSVC", "isotonic"), ("MultiClassSVC", "temperature"),
        ("SparseMultiClassSVC", "temperature"), ("LabelRanker", "sigmoid"), ("MultiLabelSVC", "isotonic"),
    ],
)  # fmt: skip
def test_classes_sum_to_one(name, method):
    for y in (WORDS, np.where(WORDS == "ant", "ant", "bee")):
        few = {"max_basis": 3, "n_candidates": 5} if name.startswith("Sparse") else {}
        base = getattr(maxmargin, name)(random_state=0, **few)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = Calibrated(base, method=method, cv=3).fit(X, y)
        P = model.predict_proba(X)
        assert P.shape == (N, len(np.unique(y))) and is_probability(P)
        np.testing.assert_allclose(P.sum(axis=1), 1)
        np.testing.assert_array_equal(model.predict(X), model.classes_[P.argmax(axis=1)])
        assert log_loss(y, P) < 0.9 * np.log(len(model.classes_))


@pytest.mark.parametrize("method", METHODS)
def test_labels_with_few_positives(method):
    Z = np.zeros((N, 6), int)
    Z[:, 0] = 1  # always on
    Z[7, 2] = 1  # one positive (column 1 has none)
    Z[[3, 30], 3] = 1  # two positives
    Z[:, 4:] = Y[:, :2]
    with pytest.warns(UserWarning, match="constant in y"):
        model = Calibrated(MultiLabelSVC(random_state=0), method=method).fit(X, Z)
    P = model.predict_proba(np.vstack([X, 1e6 * X[:3]]))
    assert is_probability(P)
    np.testing.assert_allclose(P[:, 0], (N + 1) / (N + 2))
    np.testing.assert_allclose(P[:, 1], 1 / (N + 2))
    assert P[:N, 2].mean() < 0.1 and P[:N, 3].mean() < 0.1


def test_folds_do_not_warn_of_constants_or_change_warning_filters():
    """Filters belong to the process, and concurrent fits would not restore them."""

    class Looks(MultiLabelSVC):
        def fit(self, X, y):
            seen.append(list(warnings.filters))
            return super().fit(X, y)

    seen, Z = [], Y.copy()
    Z[:, 0] = 1
    with pytest.warns(UserWarning, match="constant in y") as said:
        before = list(warnings.filters)
        Calibrated(Looks(), cv=3).fit(X, Z)
    assert seen == [before] * 4 and len(said) == 1


def test_a_label_with_one_positive_has_the_slope_of_the_others():
    Z = np.column_stack([Y, Y[:, ::-1], np.zeros(N, int)])
    Z[7, -1] = 1
    model = Calibrated(MultiLabelSVC(random_state=0)).fit(X, Z)
    assert model.curves_.slope[:-1].min() / 2 < model.curves_.slope[-1] < 2 * model.curves_.slope[:-1].max()


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("method", [*METHODS, "temperature"])
def test_one_class_and_a_class_of_one_sample(method, ensemble):
    model = Calibrated(MultiClassSVC(random_state=0), method=method, cv=3, ensemble=ensemble)
    with pytest.warns(UserWarning, match="a single class"):
        model.fit(X, np.full(N, "ant"))
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((N, 1)))
    assert set(model.predict(X)) == {"ant"}
    y = WORDS.astype("U4").copy()
    y[0] = "rare"
    P = model.fit(X, y).predict_proba(X)
    assert P.shape == (N, 4) and is_probability(P) and P[:, 3].max() < 0.9
    np.testing.assert_allclose(P.sum(axis=1), 1)


@pytest.mark.parametrize("ensemble", [False, True])
def test_missing_entries_are_left_out(ensemble):
    Z = np.where(RNG.random(Y.shape) < 0.3, np.nan, Y)
    model = Calibrated(MultiLabelSVC(random_state=0), ensemble=ensemble)
    P, Q = model.fit(X, Z).predict_proba(X), model.fit(X, Y).predict_proba(X)
    assert is_probability(P) and np.abs(P - Q).mean() < 0.1
    Z[:, 0] = np.nan
    with pytest.warns(UserWarning, match="constant"):
        P = model.fit(X, Z).predict_proba(X)
    np.testing.assert_allclose(P[:, 0], 0.5)


@pytest.mark.parametrize("method", METHODS)
def test_an_ensemble_is_the_mean_of_the_folds(method):
    """By hand: the models of the folds, one curve for all held-out scores, the mean over the models."""
    fold = np.arange(N) % 3
    cv = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    base = MultiLabelSVC(random_state=0, tol=1e-8)
    model = Calibrated(base, cv=cv, method=method, ensemble=True).fit(X, Y)
    folds = [clone(base).fit(X[train], Y[train]) for train, _ in cv]
    scores = np.empty(Y.shape)
    for (_, test), one in zip(cv, folds, strict=True):
        scores[test] = one.decision_function(X[test])
    fitted = {"sigmoid": fit_sigmoids, "isotonic": fit_isotonic}[method]
    curves = fitted(scores, Y > 0, np.ones(Y.shape), Y.mean(axis=0))
    by_hand = np.mean([curves.probabilities(one.decision_function(X)) for one in folds], axis=0)
    np.testing.assert_allclose(model.predict_proba(X), by_hand, atol=1e-3)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X) > 0.5)
    assert len(model.estimators_) == 3
    assert not any(one.warm_start or hasattr(one, "_warm") for one in model.estimators_)
    model.set_params(ensemble=False).fit(X, Y)
    assert not hasattr(model, "estimators_") and not hasattr(model, "_met")


def test_folds_without_a_label_do_not_count():
    Z = np.column_stack([Y, np.arange(N) == 7, np.zeros(N, int), np.ones(N, int)]).astype(int)
    with pytest.warns(UserWarning, match="constant in y"):
        model = Calibrated(MultiLabelSVC(random_state=0), cv=4, ensemble=True).fit(X, Z)
    assert model._met.sum(axis=0).tolist() == [4, 4, 4, 3, 0, 0]
    P = model.predict_proba(np.vstack([X, 1e6 * X[:3]]))
    assert is_probability(P)
    np.testing.assert_allclose(P[:, 4:], [[1 / (N + 2), (N + 1) / (N + 2)]] * len(P))
    seen = [one for one, met in zip(model.estimators_, model._met[:, 3], strict=True) if met]
    rare = [model.curves_.probabilities(one.decision_function(X))[:, 3] for one in seen]
    np.testing.assert_allclose(P[:N, 3], np.mean(rare, axis=0))


def test_weights_repeat_samples():
    """With the same folds, a weight of two is the sample twice."""
    w = np.where(np.arange(N) % 2, 1.0, 2.0)
    twice = np.concatenate([np.arange(N), np.flatnonzero(w == 2)])
    fold = np.arange(N) % 3
    cv = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    cv2 = [(np.flatnonzero(fold[twice] != k), np.flatnonzero(fold[twice] == k)) for k in range(3)]
    base = MultiLabelSVC(random_state=0, tol=1e-8)
    weighted = Calibrated(base, cv=cv).fit(X, Y, sample_weight=w).predict_proba(X)
    repeated = Calibrated(base, cv=cv2).fit(X[twice], Y[twice]).predict_proba(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-3)


def test_only_the_most_probable_labels():
    model = Calibrated(MultiLabelSVC(random_state=0)).fit(X, Y)
    P, top = model.predict_proba(X), model.predict_proba(X, top=2)
    assert sp.issparse(top) and top.shape == P.shape and (np.diff(top.indptr) == 2).all()
    kept = top.toarray()
    np.testing.assert_allclose(kept.max(axis=1), P.max(axis=1))
    np.testing.assert_allclose(kept[kept > 0], P[kept > 0])
    for wrong in (0, 4, True):
        with pytest.raises(ValueError, match="top must be a whole number from 1 to"):
            model.predict_proba(X, top=wrong)


def test_chains_have_a_temperature():
    rng = np.random.default_rng(1)
    words = [rng.normal(size=(4, 3)) for _ in range(40)]
    y = [np.argmax(word + rng.normal(size=word.shape), axis=1) for word in words]
    model = Calibrated(maxmargin.ChainSVC(random_state=0), method="temperature", cv=3).fit(words, y)
    P = model.predict_proba(words)
    assert len(P) == 40 and is_probability(np.vstack(P))
    np.testing.assert_allclose(np.vstack(P).sum(axis=1), 1)
    plain = model.estimator_.predict_marginals(words)
    truth = np.concatenate(y)
    assert log_loss(truth, np.vstack(P)) < log_loss(truth, np.vstack(plain))
    default = Calibrated(maxmargin.ChainSVC(random_state=0), cv=3).fit(words, y)
    assert default.curves_.value == model.curves_.value
    with pytest.raises(ValueError, match="leave method at 'auto'"):
        Calibrated(maxmargin.ChainSVC(), method="sigmoid").fit(words, y)
    with pytest.raises(ValueError, match="use ensemble=False"):
        Calibrated(maxmargin.ChainSVC(), method="temperature", ensemble=True).fit(words, y)


@pytest.mark.parametrize("ensemble", [False, True])
def test_the_default_suits_the_kind_of_labels(ensemble):
    for y, curves in ((WORDS, Temperature), (WORDS[0] == WORDS, Sigmoids), (Y, Sigmoids)):
        base = MultiLabelSVC(random_state=0) if y is Y else MultiClassSVC(random_state=0)
        model = Calibrated(base, ensemble=ensemble).fit(X, y)
        assert isinstance(model.curves_, curves)
    classes = Calibrated(MultiClassSVC(random_state=0)).fit(X, WORDS)
    np.testing.assert_array_equal(classes.predict(X), classes.estimator_.predict(X))


def test_the_temperature_of_correct_predictions_is_positive():
    """The targets have as many errors as those of Platt, so T does not vanish."""
    n = 50
    on = np.eye(3, dtype=bool)[np.arange(n) % 3]
    scores = np.where(on, 1.0, -1.0)
    found = fit_temperature(scores, on, np.ones((n, 3)), np.full(3, 1 / 3))
    P = found.probabilities(scores)
    assert P[on] == pytest.approx(1 - 1 / (n + 2), abs=1e-4)


def test_folds_on_a_raw_table_learn_as_much_as_the_model():
    """Features of very different size: the dual solution of all samples is a bad start for a fold."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    rows = 100 * rng.normal(size=(300, 4)) ** 3
    rows[:, 0] += 300 * y
    rows[:, 1] += 2 * rows[:, 0]
    model = Calibrated(MultiClassSVC()).fit(rows, y)
    right = (model.predict(rows) == y).mean()
    assert right == (model.estimator_.predict(rows) == y).mean()
    # Log loss of a constant: log 3.
    assert log_loss(y, model.predict_proba(rows)) < 0.8 * np.log(3)


def test_methods_that_do_not_fit_the_labels_are_refused():
    with pytest.raises(ValueError, match="use method='sigmoid'"):
        Calibrated(MultiLabelSVC(), method="temperature").fit(X, Y)
    with pytest.raises(ValueError, match="'method' parameter of Calibrated"):
        Calibrated(MultiLabelSVC(), method="platt").fit(X, Y)


def test_one_pass_over_the_folds_serves_all_labels(monkeypatch):
    fits = []
    plain = MultiLabelSVC.fit
    monkeypatch.setattr(
        MultiLabelSVC, "fit", lambda self, *a, **k: fits.append(len(a[0])) or plain(self, *a, **k)
    )
    Calibrated(MultiLabelSVC(random_state=0), cv=4).fit(X, Y)
    assert len(fits) == 5


def test_folds_start_from_the_solution_on_all_samples():
    base = MultiLabelSVC(kernel="rbf", random_state=0, tol=1e-6)
    model, dual = fit_remembering(base, X, Y, {})
    assert not model.warm_start and not hasattr(model, "_warm") and dual.shape == Y.shape
    labels = LabelSpace.read(Y)
    folds = list(KFold(3).split(X))
    cold = held_out_scores(base, (X, Y, {}), labels, folds).scores
    warm = held_out_scores(base, (X, Y, {}), labels, folds, dual).scores
    np.testing.assert_allclose(warm, cold, atol=5e-3)


@pytest.mark.parametrize("how", [{"loss": "squared_hinge"}, {"memory_limit": 0}], ids=str)
def test_fits_without_a_dual_solution_are_calibrated_too(how):
    """Folds of such a fit do not start warm."""
    base = MultiLabelSVC(random_state=0, **how)
    model, dual = fit_remembering(base, X, Y, {})
    assert dual is None and not model.warm_start
    P = Calibrated(base).fit(X, Y).predict_proba(X)
    assert is_probability(P) and log_loss(Y[:, 0], P[:, 0]) < 0.45


def test_in_a_search_and_cloned():
    search = GridSearchCV(Calibrated(MultiLabelSVC(random_state=0)), {"estimator__C": [0.1, 1.0]}, cv=2)
    search.fit(X, Y)
    model = clone(search.best_estimator_).fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X), search.predict_proba(X))


CASES = {
    "sigmoid": (Calibrated(MultiLabelSVC(random_state=0)), Y),
    "isotonic": (Calibrated(make_pipeline(StandardScaler(), MultiLabelSVC()), method="isotonic"), Y),
    "temperature": (Calibrated(MultiClassSVC(), method="temperature"), WORDS),
    "two classes": (Calibrated(maxmargin.SparseMultiClassSVC(max_basis=4, random_state=0)), WORDS == "ant"),
    "ranker": (Calibrated(maxmargin.LabelRanker(random_state=0)), Y),
    "folds": (Calibrated(make_pipeline(StandardScaler(), MultiLabelSVC()), cv=3, ensemble=True), Y),
    "folds of classes": (Calibrated(MultiClassSVC(), cv=2, method="temperature", ensemble=True), WORDS),
    "in a pipeline": (make_pipeline(StandardScaler(), Calibrated(MultiLabelSVC())), Y),
}


@pytest.mark.parametrize("name", CASES)
def test_saved_and_loaded(tmp_path, name):
    model, y = CASES[name]
    model = clone(model).fit(X, y)
    maxmargin.save(model, tmp_path / "m.mm")
    again = maxmargin.load(tmp_path / "m.mm")
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_a_chain_is_saved_and_loaded(tmp_path):
    words, y = list(X.reshape(30, 4, 4)), list(WORDS.reshape(30, 4))
    model = Calibrated(maxmargin.ChainSVC(random_state=0), method="temperature", cv=2).fit(words, y)
    maxmargin.save(model, tmp_path / "m.mm")
    again = maxmargin.load(tmp_path / "m.mm")
    np.testing.assert_array_equal(
        np.vstack(model.predict_proba(words)), np.vstack(again.predict_proba(words))
    )


def test_a_file_whose_curves_do_not_fit_is_refused(tmp_path):
    model = Calibrated(MultiLabelSVC(random_state=0)).fit(X, Y)
    curves = type(model.curves_)(model.curves_.slope[:2], model.curves_.intercept[:2])
    model.curves_ = curves
    with pytest.raises(ModelFileError, match="n_curves"):
        maxmargin.save(model, tmp_path / "m.mm")


def test_a_file_whose_folds_do_not_fit_is_refused(tmp_path):
    model = Calibrated(MultiLabelSVC(random_state=0), cv=2, ensemble=True).fit(X, Y)
    folds = model.estimators_
    for wrong, said in (
        (folds[:1], "n_folds"),
        ([folds[0], MultiLabelSVC().fit(X[:, :2], Y)], "another width"),
        ([folds[0], MultiLabelSVC()], "not fitted"),
        ([folds[0], MultiLabelSVC().fit(X, [{"pq"[i % 2]} for i in range(N)])], "labels that the others"),
    ):
        model.estimators_ = wrong
        with pytest.raises(ModelFileError, match=said):
            maxmargin.save(model, tmp_path / "m.mm")
