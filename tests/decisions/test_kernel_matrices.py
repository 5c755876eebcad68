"""Wrappers predict the same with a precomputed kernel as with the kernel itself."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import maxmargin
from maxmargin import Calibrated, LabelSets, MultiClassSVC, MultiLabelSVC, TreeLabels
from maxmargin.baselines import ThresholdTuner
from maxmargin.persistence import ModelFileError

RNG = np.random.default_rng(0)
N = 60
X, NEW = RNG.normal(size=(N, 4)), RNG.normal(size=(25, 4))
Y = (X[:, :3] + 0.5 * RNG.normal(size=(N, 3)) > [0.0, 0.3, -0.3]).astype(int)
Y[:, 0] |= Y[:, 1]
CODES = np.argmax(X[:, :3], axis=1)
K, K_NEW = X @ X.T, NEW @ X.T
# To a gap at which two routes to one optimum agree in seven digits.
TIGHT = {"tol": 1e-10, "max_iter": 5000}
WRAPPERS = {
    "calibrated": (lambda inner: Calibrated(inner, cv=3), Y),
    "classes": (lambda inner: Calibrated(inner, cv=3), CODES),
    "folds": (lambda inner: Calibrated(inner, cv=3, ensemble=True), Y),
    "share": (lambda inner: LabelSets(inner, recall=0.7, random_state=0), Y),
    "share of classes": (lambda inner: LabelSets(inner, recall=0.7, random_state=0), CODES),
    "sets of folds": (lambda inner: LabelSets(inner, recall=0.7, calibration=3, random_state=0), Y),
    "both": (lambda inner: LabelSets(Calibrated(inner, cv=3, ensemble=True), recall=0.7, random_state=0), Y),
    "tuner": (lambda inner: ThresholdTuner(inner, cv=3), Y),
    "tree": (lambda inner: TreeLabels(inner, [(0, 1)]), Y),
}


def pair(name):
    """A wrapper around a kernel matrix, the same around the kernel, and y."""
    wrap, y = WRAPPERS[name]
    inner = MultiClassSVC if y is CODES else MultiLabelSVC
    # A polynomial of degree one uses the same solver as a precomputed kernel; kernel="linear" does not.
    return (
        wrap(inner(kernel="precomputed", random_state=0, **TIGHT)),
        wrap(inner(kernel="poly", degree=1, gamma=1.0, random_state=0, **TIGHT)),
        y,
    )


def same_answers(model, rows, other, others_rows):
    np.testing.assert_array_equal(model.predict(rows), other.predict(others_rows))
    for name in ("predict_proba", "decision_function"):
        assert hasattr(model, name) == hasattr(other, name)
        if hasattr(model, name):
            np.testing.assert_allclose(
                getattr(model, name)(rows), getattr(other, name)(others_rows), atol=1e-5
            )


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_kernel_matrix_gives_the_model_of_its_kernel(name):
    given, computed, y = pair(name)
    given, computed = given.fit(K, y), computed.fit(X, y)
    same_answers(given, K_NEW, computed, NEW)
    if hasattr(given, "thresholds_"):
        np.testing.assert_allclose(given.thresholds_, computed.thresholds_, atol=1e-5)
    assert given.n_features_in_ == N


@pytest.mark.parametrize("name", ["folds", "share", "tuner", "tree"])
def test_cross_validation_cuts_the_matrix(name):
    given, computed, y = pair(name)
    assert np.array_equal(cross_val_score(given, K, y, cv=2), cross_val_score(computed, X, y, cv=2))


@pytest.mark.parametrize("kernel", ["precomputed", "chi2", "rbf"])
def test_wrappers_have_the_input_tags_of_their_estimator(kernel):
    inner = MultiLabelSVC(kernel=kernel)
    expected = get_tags(inner).input_tags
    for wrap, _ in WRAPPERS.values():
        found = get_tags(wrap(inner)).input_tags
        assert found.pairwise == expected.pairwise
        assert found.positive_only == expected.positive_only
        assert found.sparse == expected.sparse


@pytest.mark.parametrize("name", ["folds", "share", "both", "tuner", "tree"])
def test_saved_and_loaded(name, tmp_path):
    model, _, y = pair(name)
    model = model.fit(K, y)
    maxmargin.save(model, tmp_path / "m.mm")
    same_answers(maxmargin.load(tmp_path / "m.mm"), K_NEW, model, K_NEW)


@pytest.mark.parametrize("name", ["folds", "share"])
def test_a_file_whose_columns_do_not_fit_is_refused(name, tmp_path):
    model, _, y = pair(name)
    model = model.fit(K, y)
    right, several = model._fitted_on, isinstance(model._fitted_on, list)
    for change, said in (
        (lambda rows: rows + N, "beyond those of the kernel matrix"),
        (lambda rows: rows[1:], "another width"),
        (lambda rows: rows - N, "not from 0"),
    ):
        model._fitted_on = [*map(change, right)] if several else change(right)
        with pytest.raises(ModelFileError, match=said):
            maxmargin.save(model, tmp_path / "m.mm")


@pytest.mark.parametrize("name", ["calibrated", "share", "tuner", "tree"])
def test_a_matrix_of_another_width_is_refused(name):
    model, _, y = pair(name)
    with pytest.raises(ValueError, match="square matrix"):
        clone(model).fit(K[:, :-1], y)
    model.fit(K, y)
    with pytest.raises(ValueError, match=f"expecting {N} features"):
        model.predict(K_NEW[:, :-1])


@pytest.mark.parametrize("name", ["folds", "share", "tuner"])
def test_lists_and_frames_are_matrices_too(name):
    model, _, y = pair(name)
    expected = clone(model).fit(K, y)
    same_answers(clone(model).fit(K.tolist(), y), K_NEW.tolist(), expected, K_NEW)
    names = [f"sample {k}" for k in range(N)]
    framed = clone(model).fit(pd.DataFrame(K, columns=names), y)
    assert framed.feature_names_in_.tolist() == names
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that names were not expected
        same_answers(framed, pd.DataFrame(K_NEW, columns=names), expected, K_NEW)


def test_a_fit_on_rows_after_one_on_a_matrix():
    for name in ("folds", "share"):
        given, computed, y = pair(name)
        given.fit(K, y).set_params(estimator=computed.estimator)
        same_answers(given.fit(X, y), NEW, computed.fit(X, y), NEW)
