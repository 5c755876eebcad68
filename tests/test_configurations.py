"""scikit-learn's checks: all on the defaults, those that depend on the data on other configurations."""

import traceback
from unittest import SkipTest

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from maxmargin import (
    Calibrated,
    ChainSVC,
    LabelRanker,
    LabelSets,
    LatentSVC,
    MultiClassSVC,
    MultiLabelSVC,
    SparseMultiClassSVC,
    SparseMultiLabelSVC,
    SubmodularSVC,
    TreeLabels,
)
from maxmargin.baselines import ImportVectorMachine, SparseOneVsRest, ThresholdTuner
from maxmargin.core.kernels import NAMES
from maxmargin.multilabel.estimator import LINEAR_ONLY
from maxmargin.multilabel.estimator import SOLVERS as MULTILABEL
from maxmargin.structured.multiclass import SOLVERS as MULTICLASS
from tests.checks import run_check

# scikit-learn's SVC passes these: LIBSVM does not check kernel matrices.
NOT_A_KERNEL = (
    "the check passes an invalid kernel matrix (negative k(x, x), or not symmetric), which is refused"
)
NO_WEIGHT_WINS = "without an intercept no class weight turns every answer; LinearSVC fails it too"
GROWS = "features may appear at any time, so any number of them is valid"
A_PROMISE = (
    "weights say by which share new samples are drawn; to repeat a sample promises nothing more of them"
)
UNWEIGHTED = "OneVsRestClassifier takes no sample_weight, and warns"
A_SET = "the answer to a sample is a set, a 0/1 row, where the check asks for one value"


def expected_failures(estimator):
    """Why a check fails on every machine."""
    reasons = {}
    if getattr(estimator, "n_features", None) == "grow":
        for name in ("n_features_in_after_fitting", "estimators_partial_fit_n_features", "classifiers_train"):
            reasons[f"check_{name}"] = GROWS
    if isinstance(estimator, LabelSets) and get_tags(estimator).input_tags.sparse:
        for kind in ("array", "matrix"):
            reasons[f"check_estimator_sparse_{kind}"] = A_SET
    if isinstance(estimator, LabelSets) and estimator.calibration == 2:
        for rows in ("dense", "sparse"):
            reasons[f"check_sample_weight_equivalence_on_{rows}_data"] = A_PROMISE
    inner = getattr(estimator, "estimator", estimator)
    if isinstance(inner, OneVsRestClassifier):
        for rows in ("dense", "sparse"):
            reasons[f"check_sample_weight_equivalence_on_{rows}_data"] = UNWEIGHTED
    kernel = getattr(inner, "kernel", None)
    if kernel == "precomputed":
        reasons["check_positive_only_tag_during_fit"] = NOT_A_KERNEL
        is_checked = isinstance(inner, MultiClassSVC | MultiLabelSVC)
        if is_checked and has_fit_parameter(estimator, "sample_weight"):
            reasons["check_classifiers_one_label_sample_weights"] = NOT_A_KERNEL
    if kernel == "chi2" and inner is estimator and hasattr(estimator, "class_weight"):
        reasons["check_class_weight_classifiers"] = "passes negative features despite the tag"
    if getattr(estimator, "fit_intercept", True) is False and hasattr(estimator, "class_weight"):
        reasons["check_class_weight_classifiers"] = NO_WEIGHT_WINS
    return reasons


# Checks compare seven digits of wrappers too, and set no random state inside of them.
EXACT = {"tol": 1e-12, "random_state": 0}
# All checks run on these.
DEFAULTS = [
    MultiLabelSVC(),
    MultiClassSVC(),
    ChainSVC(),
    LatentSVC(),
    LabelRanker(),
    SparseMultiClassSVC(),
    SparseMultiLabelSVC(),
    SubmodularSVC(),
    SparseOneVsRest(),
    ImportVectorMachine(),
    Calibrated(MultiLabelSVC(**EXACT), cv=2),
    LabelSets(MultiLabelSVC(**EXACT)),
    ThresholdTuner(OneVsRestClassifier(LinearSVC()), cv=2),
]
# These read their input by the code of a default, so only the checks that depend on the data run on them.
OTHERS = [
    *[MultiClassSVC(solver=solver) for solver in MULTICLASS if solver != "auto"],
    MultiClassSVC(loss="weston_watkins"),
    MultiClassSVC(fit_intercept=False),
    *[MultiClassSVC(kernel=kernel, gamma=0.1) for kernel in ("rbf", "chi2", "precomputed")],
    MultiClassSVC(kernel="rbf", loss="weston_watkins"),
    MultiLabelSVC(solver="dca"),
    MultiLabelSVC(fit_intercept=False),
    *[MultiLabelSVC(kernel=kernel) for kernel in ("rbf", "chi2", "precomputed")],
    MultiLabelSVC(kernel="rbf", solver="smo"),
    *[LatentSVC(solver=solver) for solver in ("bcfw", "bcpl")],
    LabelRanker(average=True, max_iter=2, tol=1.0),
    LabelRanker("fixed"),
    LabelRanker(weighting="idf"),
    LabelRanker(regulariser="entropy"),
    LabelRanker(n_features="grow"),
    *[SparseMultiClassSVC(kernel=kernel) for kernel in ("precomputed", "chi2")],
    *[SparseMultiLabelSVC(kernel=kernel) for kernel in ("precomputed", "chi2")],
    SubmodularSVC(solver="bcfw", random_state=0, tol=1e-2),
    ThresholdTuner(MultiLabelSVC(**EXACT), cv=2),
    *[
        wrap(MultiLabelSVC(kernel="precomputed", **EXACT))
        for wrap in (
            lambda inner: Calibrated(inner, cv=2),
            lambda inner: Calibrated(inner, cv=2, ensemble=True),
            LabelSets,
            lambda inner: LabelSets(inner, calibration=2),
            lambda inner: ThresholdTuner(inner, cv=2),
        )
    ],
    Calibrated(MultiLabelSVC(kernel="chi2", **EXACT), cv=2),
]
DATA_DEPENDENT = {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_class_weight_classifiers",
    "check_classifiers_train",
    "check_methods_subset_invariance",
    "check_fit2d_1sample",
}
# Every kernel with every solver: minutes.
EVERY = [
    *[
        MultiClassSVC(kernel=kernel, solver=solver)
        for kernel in NAMES
        for solver in MULTICLASS
        if kernel == "linear" or solver not in LINEAR_ONLY
    ],
    *[MultiClassSVC(kernel=kernel, loss="weston_watkins") for kernel in NAMES],
    *[
        MultiLabelSVC(kernel=kernel, solver=solver)
        for kernel in NAMES
        for solver in MULTILABEL
        if kernel == "linear" or solver not in LINEAR_ONLY
    ],
    *[machine(basis="learned", max_basis=5) for machine in (SparseMultiClassSVC, SparseMultiLabelSVC)],
]


def data_dependent(estimators):
    """Parametrize a test with the checks of `DATA_DEPENDENT` alone."""
    mark = parametrize_with_checks(estimators, expected_failed_checks=expected_failures)
    names, cases = mark.args
    chosen = []
    for case in cases:
        # A case that is expected to fail is a `pytest.param`; a check with options is a variant.
        check = getattr(case, "values", case)[1]
        if check.func.__name__ in DATA_DEPENDENT and not check.keywords:
            chosen.append(case)
    return pytest.mark.parametrize(names, chosen, **mark.kwargs)


@parametrize_with_checks(DEFAULTS, expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore")
def test_defaults(estimator, check):
    run_check(estimator, check)


@data_dependent(OTHERS)
@pytest.mark.filterwarnings("ignore")
def test_other_configurations(estimator, check):
    run_check(estimator, check)


with sklearn.config_context(enable_metadata_routing=True):
    REQUESTING = MultiLabelSVC(**EXACT).set_fit_request(sample_weight=True)


@data_dependent(
    [
        Calibrated(REQUESTING, cv=2),
        LabelSets(REQUESTING),
        LabelSets(REQUESTING, calibration=2),
        ThresholdTuner(REQUESTING, cv=2),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_wrappers_with_metadata_routing(estimator, check):
    with sklearn.config_context(enable_metadata_routing=True):
        check(estimator)


@pytest.mark.filterwarnings("ignore")
def test_trees_refuse_only_one_class_per_sample():
    """Most checks pass classes, and between those there is nothing to imply."""
    for fresh, check in estimator_checks_generator(TreeLabels(MultiLabelSVC(), [(0, 1)])):
        try:
            check(fresh)
        except SkipTest:
            continue
        except (AssertionError, ValueError):
            assert "y has one class per sample" in traceback.format_exc()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", EVERY, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_every_configuration(estimator):
    failed = set()
    for fresh, check in estimator_checks_generator(clone(estimator)):
        try:
            run_check(fresh, check)
        except (SkipTest, pytest.skip.Exception):
            continue
        except (AssertionError, ValueError) as error:
            if check.func.__name__ not in expected_failures(estimator):
                failed.add((check.func.__name__, str(error)))
    assert not failed


@pytest.mark.parametrize("model", [MultiClassSVC, MultiLabelSVC])
@pytest.mark.parametrize("kernel", ["chi2", "rbf", "linear"])
def test_entries_given_twice_are_summed(model, kernel):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 4)) * (rng.random((40, 4)) < 0.6)
    y = np.arange(40) % 3
    X[y == 1] *= 2
    halves = sp.coo_array(X)
    rows, columns = halves.coords
    order = np.argsort(np.tile(rows, 2), kind="stable")
    twice = sp.csr_array(
        (
            np.tile(halves.data / 2, 2)[order],
            np.tile(columns, 2)[order],
            np.searchsorted(np.sort(np.tile(rows, 2)), np.arange(41)),
        ),
        shape=(40, 4),
    )
    assert not twice.has_canonical_format
    stored = twice.nnz
    once = model(kernel=kernel, gamma=0.5, random_state=0).fit(sp.csr_array(X), y)
    model_of_twice = model(kernel=kernel, gamma=0.5, random_state=0).fit(twice, y)
    assert twice.nnz == stored
    np.testing.assert_allclose(model_of_twice.decision_function(twice), once.decision_function(X), atol=1e-9)


@pytest.mark.parametrize("model", [MultiClassSVC, MultiLabelSVC])
def test_the_scale_of_a_kernel_counts_weights(model):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 3)) * np.linspace(0.1, 3, 30)[:, None], np.arange(30) % 3
    weights = np.where(np.arange(30) % 2, 3.0, 1.0)
    repeated = np.repeat(np.arange(30), weights.astype(int))
    forms = [weights] if model is MultiClassSVC else [weights, np.tile(weights[:, None], 3)]
    expected = model(kernel="rbf").fit(X[repeated], y[repeated])._kernel.gamma
    for form in forms:
        assert model(kernel="rbf").fit(X, y, sample_weight=form)._kernel.gamma == pytest.approx(expected)


@pytest.mark.parametrize("model", [MultiClassSVC, MultiLabelSVC])
def test_an_indefinite_precomputed_matrix_is_warned_of(model):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(30, 3)), np.arange(30) % 3
    K = X @ X.T + 0.1 * np.eye(30)
    K[0, 1] = K[1, 0] = 20.0
    with pytest.warns(UserWarning, match="not positive semi-definite"):
        model(kernel="precomputed", max_iter=5).fit(K, y)


@pytest.mark.parametrize("model", [MultiClassSVC, MultiLabelSVC])
def test_a_fit_with_little_time_ends_before_its_kernel_is_there(model):
    """The kernel of 2,000 rows by a callable that takes its time, and a limit that allows a part of it."""
    calls = []

    def slow(A, B):
        calls.append(len(A) * len(B))
        return A @ B.T

    X, y = np.random.default_rng(3).normal(size=(2000, 3)), np.arange(2000) % 3
    with pytest.warns(UserWarning, match="time_limit"):
        fitted = model(kernel=slow, time_limit=1e-6, cache_size=1000, max_iter=50).fit(X, y)
    assert fitted.n_iter_ == 1
    assert sum(calls) < 0.5 * 2000**2
    assert fitted.predict(X[:5]).shape == (5,)
