"""The same situation, the same behaviour: promises that hold for all estimators alike."""

import inspect
import pickle
import re
import time
import tracemalloc
import warnings
from numbers import Real

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.validation import check_is_fitted

import maxmargin
from maxmargin import baselines
from maxmargin._names import ESTIMATORS, WRAPPERS
from tests.naive import objectives

RNG = np.random.default_rng(3)
N, D = 48, 4
X = np.abs(RNG.normal(size=(N, D)))
Y = (X @ RNG.normal(size=(D, 3)) + 0.3 * RNG.normal(size=(N, 3)) > 0).astype(int)
CODES = np.argmax(X @ RNG.normal(size=(D, 3)) + 0.3 * RNG.normal(size=(N, 3)), axis=1)
WORDS = np.array(["ant", "bee", "cat"])[CODES]
LENGTHS = np.full(N // 3, 3)

# Estimator -> parameters, labels, and how rows are cut into samples.
SMALL = {"max_basis": 4, "n_candidates": 4}
CASES = {
    "MultiLabelSVC": ({}, Y, {}),
    "MultiLabelSVC prior": ({"prior": maxmargin.priors.from_labels}, Y, {}),
    "MultiLabelSVC rbf": ({"kernel": "rbf"}, Y, {}),
    "MultiLabelSVC dca": ({"solver": "dca"}, Y, {}),
    "MultiClassSVC": ({}, WORDS, {}),
    "MultiClassSVC bcfw": ({"solver": "bcfw"}, WORDS, {}),
    "MultiClassSVC rbf": ({"kernel": "rbf"}, WORDS, {}),
    "LatentSVC": ({}, WORDS[::3], {"lengths": LENGTHS}),
    "ChainSVC": ({}, WORDS, {"lengths": LENGTHS}),
    "LabelRanker": ({}, Y, {}),
    "SparseMultiClassSVC": (SMALL, WORDS, {}),
    "SparseMultiLabelSVC": (SMALL, Y, {}),
    "SubmodularSVC": ({"C": 0.1, "tol": 1e-2}, Y, {}),
    "SubmodularSVC bcfw": ({"C": 0.1, "tol": 1e-2, "solver": "bcfw"}, Y, {}),
}
# Everything but StreamRanker, which is a LabelRanker fed by dictionaries.
assert {name.split()[0] for name in CASES} == set(ESTIMATORS) - {"StreamRanker"}
WARM = [
    name
    for name in CASES
    if name.split()[0] in ("MultiLabelSVC", "MultiClassSVC", "ChainSVC", "SubmodularSVC")
]
OF_CLASSES = [name for name, (_, y, _) in CASES.items() if y.ndim == 1]
OF_LABELS = [name for name, (_, y, _) in CASES.items() if y.ndim == 2]
# One pass over the rows is one epoch, so there is no second one.
ITERATING = [name for name in CASES if name != "LabelRanker"]
LEARNT = (
    "coef_",
    "intercept_",
    "dual_coef_",
    "transitions_",
    "interaction_",
    "support_vectors_",
    "basis_vectors_",
)


def build(name, **given):
    cls = getattr(maxmargin, name.split()[0])
    params = {**CASES[name][0], **given}
    if "random_state" in cls().get_params():
        params.setdefault("random_state", 0)
    return cls(**params)


def fit(model, name, rows=X, y=None, **more):
    _, labels, cut = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows, labels if y is None else y, **cut, **more)


def predict(model, name, rows=X):
    return model.predict(rows, **CASES[name][2])


def learnt(model):
    return {
        key: np.asarray(value)
        for key in LEARNT
        if sp.issparse(value := getattr(model, key, None)) is False and value is not None
    }


def same(a, b):
    first, second = learnt(a), learnt(b)
    assert first.keys() == second.keys()
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key], err_msg=key)


class Watcher:
    """Keep the model of every epoch; end the fit after `stop` epochs, or raise KeyboardInterrupt."""

    def __init__(self, stop=None, interrupt=None):
        self.stop, self.interrupt, self.models = stop, interrupt, []

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context):
        if context.task_name == "epoch" and self.interrupt == len(self.models):
            raise KeyboardInterrupt

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        if context.task_name != "epoch":
            return False
        self.models.append(fitted_estimator)
        return self.stop is not None and len(self.models) >= self.stop


@pytest.mark.parametrize("name", CASES)
def test_a_fit_can_be_repeated_cloned_and_pickled(name):
    model = fit(build(name), name)
    same(model, fit(clone(model), name))
    again = pickle.loads(pickle.dumps(model))
    same(model, again)
    np.testing.assert_array_equal(predict(model, name), predict(again, name))


OTHERS = {
    "SparseOneVsRest": lambda: baselines.SparseOneVsRest(**SMALL),
    "ImportVectorMachine": lambda: baselines.ImportVectorMachine(**SMALL),
    "ThresholdTuner": lambda: baselines.ThresholdTuner(maxmargin.MultiLabelSVC(solver="dca")),
    "LabelSets": lambda: maxmargin.LabelSets(maxmargin.MultiLabelSVC(solver="dca"), recall=0.9),
    "Calibrated": lambda: maxmargin.Calibrated(maxmargin.MultiLabelSVC(solver="dca")),
}


@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_fits_with_default_parameters_repeat(name):
    """Without a `random_state`, too; None draws from the state of NumPy, as in scikit-learn."""
    if name in OTHERS:
        y = WORDS if name == "ImportVectorMachine" else Y
        first, second = (OTHERS[name]().fit(X, y).predict(X) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        return
    cls = getattr(maxmargin, name.split()[0])
    same(*(fit(cls(**CASES[name][0]), name) for _ in range(2)))
    if "random_state" in cls().get_params():
        models = []
        for _ in range(2):
            np.random.seed(7)  # noqa: NPY002
            models.append(fit(build(name, random_state=None), name))
        same(*models)


def test_every_random_state_is_zero_by_default():
    public = [getattr(maxmargin, name) for name in (*ESTIMATORS, *WRAPPERS)]
    public += [cls for cls in map(baselines.__dict__.get, baselines.__all__) if isinstance(cls, type)]
    drawn = [inspect.signature(cls).parameters.get("random_state") for cls in public]
    assert {parameter.default for parameter in drawn if parameter is not None} == {0}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_single_class_is_warned_of_and_predicted(name):
    y = np.full(len(CASES[name][1]), "ant")
    with pytest.warns(UserWarning, match="a single class .'ant'.; the model will always predict it"):
        model = fit(build(name), name, y=y)
    assert list(model.classes_) == ["ant"]
    assert set(np.concatenate([np.atleast_1d(part) for part in predict(model, name)]).tolist()) == {"ant"}


@pytest.mark.parametrize("name", [name for name in OF_LABELS if name != "LabelRanker"])
def test_constant_labels_are_warned_of_and_predicted(name):
    y = Y.copy()
    y[:, 0], y[:, 2] = 1, 0
    if "prior" in name:
        pytest.skip("a prior informs labels without two sides")
    with pytest.warns(UserWarning, match="constant in y"):
        model = fit(build(name), name, y=y)
    answer = predict(model, name)
    assert answer[:, 0].all() and not answer[:, 2].any()


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_on_other_data_warns_and_starts_anew(name):
    model = fit(build(name, warm_start=True), name)
    _, y, cut = CASES[name]
    # All but the last sample, which is three rows of a sequence or bag and one row elsewhere.
    rows, labels = (X[:-3], y[: len(y) - (3 if len(y) == N else 1)]) if cut else (X[:-1], y[:-1])
    shorter = {key: value[:-1] for key, value in cut.items()}
    cold = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cold.fit(rows, labels, **shorter)
        with pytest.warns(UserWarning, match="warm_start"):
            model.fit(rows, labels, **shorter)
    same(model, cold)


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_keeps_nothing_unless_asked(name):
    assert not hasattr(fit(build(name), name), "_warm")
    model = fit(build(name, warm_start=True), name)
    assert hasattr(model, "_warm") and fit(model, name).duality_gap_ <= model.tol


MORE = {
    **{name: {"warm_start": True} for name in WARM},
    **{
        f"LabelRanker {more}": given
        for more, given in {
            "squared": {"average": True, "weighting": "idf"},
            "presence": {"weighting": None},
            "entropy": {"regulariser": "entropy"},
            "growing": {"n_features": "grow"},
        }.items()
    },
}


@pytest.mark.parametrize("name", MORE)
def test_a_model_mapped_from_a_file_learns_on(name, tmp_path):
    base = name if name in CASES else "LabelRanker"
    ranks = base == "LabelRanker"
    rows = (X > 0.5).astype(float) if "entropy" in name else X
    model = build(base, **MORE[name])
    model = model.partial_fit(rows, Y) if ranks else fit(model, base, rows)
    joblib.dump(model, tmp_path / "m")
    mapped, plain = joblib.load(tmp_path / "m", mmap_mode="r"), joblib.load(tmp_path / "m")
    for each in (mapped, plain):
        predict(each, base, rows)
        each.partial_fit(rows[::-1], Y[::-1]) if ranks else fit(each.set_params(C=2.0), base, rows)
    same(mapped, plain)


def test_a_stream_mapped_from_a_file_learns_on(tmp_path):
    joblib.dump(maxmargin.StreamRanker().learn_one({"a": 1.0}, "x"), tmp_path / "m")
    mapped = joblib.load(tmp_path / "m", mmap_mode="r")
    assert mapped.learn_one({"a": 1.0, "b": 2.0}, "y").rank_one({"b": 1.0})[0] == "y"


@pytest.mark.parametrize("name", ITERATING)
def test_ctrl_c_keeps_the_model_and_is_passed_on(name):
    warm = {"warm_start": True} if name in WARM else {}
    model = build(name, tol=1e-13, **warm).set_callbacks(Watcher(interrupt=1))
    with pytest.raises(KeyboardInterrupt, match=r"stopped after 1 epochs .* stores this model") as caught:
        fit_loudly(model, name)
    assert model.n_iter_ == 1
    assert ("warm_start" in str(caught.value)) == (name in WARM)
    assert len(predict(model, name)) in (N, len(LENGTHS))
    if name in WARM:
        assert hasattr(model, "_warm")


@pytest.mark.parametrize("name", ITERATING)
def test_ctrl_c_is_not_lost_where_the_fit_was_over_anyway(name):
    model = build(name, tol=0.999).set_callbacks(Watcher(interrupt=0))
    with pytest.raises(KeyboardInterrupt):
        fit_loudly(model, name)


def test_ctrl_c_ends_a_search():
    pressed = []

    class Once(Watcher):
        def on_fit_task_begin(self, estimator, context, **more):
            pressed.append(context.task_name)
            if len(pressed) == 5:
                raise KeyboardInterrupt

    model = build("MultiClassSVC").set_callbacks(Once())
    search = GridSearchCV(model, {"C": [0.1, 1.0, 10.0]}, cv=3)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, WORDS)
    assert not hasattr(search, "cv_results_") and len(pressed) == 5


def fit_loudly(model, name):
    _, y, cut = CASES[name]
    return model.fit(X, y, **cut)


@pytest.mark.parametrize("name", ITERATING)
def test_a_callback_can_stop_a_fit(name):
    watcher = Watcher(stop=2)
    model = build(name, tol=1e-13).set_callbacks(watcher)
    with pytest.warns(ConvergenceWarning, match="callback"):
        fit_loudly(model, name)
    assert model.n_iter_ == 2 and len(watcher.models) == 2


class Pruner(Watcher):
    """A callback that ends a fit by an exception."""

    def on_fit_task_end(self, estimator, context, **more):
        raise RuntimeError("pruned")


@pytest.mark.parametrize("name", CASES)
def test_a_fit_that_raises_leaves_the_estimator_as_it_was(name):
    model = build(name).set_callbacks(Pruner())
    with pytest.raises(RuntimeError, match="pruned"):
        fit(model, name)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(NotFittedError):
        predict(model, name)
    fit(model.set_callbacks(), name)
    before, answer, attributes = pickle.dumps(learnt(model)), predict(model, name), set(vars(model))
    with pytest.raises(RuntimeError, match="pruned"):
        fit(model.set_callbacks(Pruner()), name, X[:, :2])
    assert set(vars(model.set_callbacks())) == attributes and pickle.dumps(learnt(model)) == before
    np.testing.assert_array_equal(predict(model, name), answer)


@pytest.mark.parametrize("name", CASES)
def test_a_fit_on_wrong_labels_leaves_the_model_as_it_was(name):
    model = fit(build(name), name)
    answer = predict(model, name)
    with pytest.raises(ValueError):
        model.fit(X[:, :2], CASES[name][1][:-1], **CASES[name][2])
    np.testing.assert_array_equal(predict(model, name), answer)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_a_callback_that_reads_the_model_does_not_change_it(name, dtype):
    rows = X.astype(dtype)
    plain = fit(build(name), name, rows)
    watcher = Watcher()
    watched = fit(build(name).set_callbacks(watcher), name, rows)
    same(plain, watched)
    assert len(watcher.models) == watched.n_iter_ == plain.n_iter_
    untimed = [[{**record, "seconds": 0} for record in model.history_] for model in (plain, watched)]
    assert untimed[0] == untimed[1]
    assert len(predict(watcher.models[-1], name, rows)) == len(predict(plain, name, rows))


# The gap of a sparse machine is that of its present basis; the fit ends when the basis does.
@pytest.mark.parametrize("name", [name for name in ITERATING if not name.startswith("Sparse")])
def test_tol_decides_when_a_fit_is_over(name):
    model = fit(build(name, tol=1e-2), name)
    assert model.duality_gap_ <= 1e-2
    assert all(record["gap"] > 1e-2 for record in model.history_[:-1])


@pytest.mark.parametrize("name", CASES)
def test_a_number_that_overflows_is_named(name):
    constraints = build(name)._parameter_constraints
    numbers = [key for key in constraints if any(getattr(c, "type", None) is Real for c in constraints[key])]
    assert "C" in numbers
    for key in numbers:
        for value in (1e308, 10**400, np.inf, 5e-324):
            if value == 5e-324 and key not in ("C", "intercept_scaling"):
                continue
            with pytest.raises(ValueError, match=key):
                fit(build(name, **{key: value}), name)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("name", CASES)
def test_an_entry_whose_square_overflows_is_named(name, form):
    rows = X.copy()
    rows[5, 2] = -1e160
    with pytest.raises(ValueError, match=r"X\[5, 2\] is -1e\+160, .* scale the features"):
        fit(build(name), name, form(rows))


@pytest.mark.parametrize(("largest", "dtype"), [(1e25, np.float64), (1e30, np.float32)])
@pytest.mark.parametrize("name", CASES)
def test_a_large_entry_leaves_no_nan(name, largest, dtype):
    rows = X.astype(dtype)
    rows[5, 2] = largest
    model = fit(build(name, **({} if name.startswith("Sparse") else {"max_iter": 20})), name, rows)
    assert not np.isnan(model.duality_gap_)
    assert all(np.isfinite(value).all() for value in learnt(model).values())


@pytest.mark.parametrize("name", CASES)
def test_rows_without_features_can_be_fitted(name):
    given = {"fit_intercept": False} if "fit_intercept" in build(name).get_params() else {}
    model = fit(build(name, **given), name, np.zeros_like(X))
    assert model.duality_gap_ <= model.tol


def test_a_class_of_no_weight_does_not_unbalance_the_others():
    weights = (CODES > 0).astype(float)
    kept = CODES > 0
    model = maxmargin.MultiClassSVC(class_weight="balanced", random_state=0, tol=1e-8)
    with pytest.warns(UserWarning, match="no weight"):
        model.fit(X, CODES, weights)
    per_class = len(X[kept]) / (2 * np.bincount(CODES[kept])[1:])
    by_hand = maxmargin.MultiClassSVC(random_state=0, tol=1e-8)
    with pytest.warns(UserWarning, match="no weight"):
        by_hand.fit(X, CODES, weights * np.concatenate([[0], per_class])[CODES])
    assert model.primal_objective_ == pytest.approx(by_hand.primal_objective_, rel=1e-7)


@pytest.mark.parametrize("name", ITERATING)
def test_a_time_limit_ends_a_fit(name):
    given = {} if name.startswith("Sparse") else {"max_iter": 10**6}
    # What is compiled late must not be compiled within the limit.
    fit(build(name, tol=0.0, **({} if name.startswith("Sparse") else {"max_iter": 80})), name)
    model = build(name, **{**given, "tol": 0.0, "time_limit": 0.05})
    begin = time.process_time()
    fit(model, name)
    assert time.process_time() - begin < 1.0


def test_starts_of_a_latent_fit_share_the_time_limit():
    bags = np.random.default_rng(0).normal(size=(3000, 40, 5)), np.arange(3000) % 3
    fit(build("LatentSVC", max_iter=1), "LatentSVC")
    model = maxmargin.LatentSVC(C=10, n_init=50, time_limit=0.2, random_state=0)
    begin = time.process_time()
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(*bags)
    assert time.process_time() - begin < 3.0


@pytest.mark.parametrize(
    "name", ["MultiLabelSVC dca", "MultiClassSVC bcfw", "ChainSVC", "SubmodularSVC bcfw"]
)
def test_a_warning_names_the_cure_at_the_line_of_the_caller(name):
    _, y, cut = CASES[name]
    with pytest.warns(ConvergenceWarning, match="increase max_iter") as caught:
        build(name, max_iter=1, tol=1e-12).fit(X, y, **cut)
    assert {warning.filename for warning in caught} == {__file__}
    uneven = X * np.array([1.0, 1.0, 1.0, 1e4])
    with pytest.warns(
        ConvergenceWarning, match=r"StandardScaler\), as columns of X differ .* factor of \d"
    ) as caught:
        build(name, max_iter=1, tol=1e-12).fit(uneven, y, **cut)
    far = [warning for warning in caught if "gap of 0.9" in str(warning.message)]
    assert not any("usable" in str(warning.message) for warning in far)


OBJECTIVES = {
    "MultiLabelSVC": objectives.multilabel,
    "MultiClassSVC": objectives.multiclass,
    "ChainSVC": objectives.chain,
    "LatentSVC": objectives.latent,
    "LabelRanker": objectives.ranking,
    "SparseMultiClassSVC": objectives.basis_of_classes,
    "SparseMultiLabelSVC": objectives.basis_of_labels,
    "SubmodularSVC": objectives.submodular,
}
TWO = np.where(WORDS == "ant", "ant", "bee")
STORED = {
    **{name: ({}, y) for name, (_, y, _) in CASES.items()},
    "MultiLabelSVC rbf prior": ({"kernel": "rbf", "prior": maxmargin.priors.from_labels}, Y),
    "MultiLabelSVC single": ({"precision": "single"}, Y),
    "MultiClassSVC two": ({}, TWO),
    "MultiClassSVC exact": ({"solver": "exact"}, WORDS),
    "MultiClassSVC exact two": ({"solver": "exact"}, TWO),
    "MultiClassSVC rbf two": ({"kernel": "rbf"}, TWO),
    "SparseMultiClassSVC linear": ({"kernel": "linear", **SMALL}, WORDS),
    "SparseMultiLabelSVC linear": ({"kernel": "linear", **SMALL}, Y),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", STORED)
def test_the_objective_is_that_of_the_stored_coefficients(name, dtype):
    """By definition, in float64, with a bias that no binary fraction multiplies exactly and a large C."""
    family = name.split()[0]
    given, y = STORED[name]
    given = {**CASES.get(name, ({},))[0], **given, "C": 30.0}
    named = getattr(maxmargin, family)().get_params()
    given |= {k: v for k, v in {"fit_intercept": True, "intercept_scaling": 0.3}.items() if k in named}
    rows = (3 * X).astype(dtype)
    model = build(family, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows, y, **CASES[family][2])
    primal = OBJECTIVES[family](model, rows, y)
    assert primal == pytest.approx(model.primal_objective_, rel=1e-9)
    assert model.dual_objective_ <= primal * (1 + 1e-14)


# The latent problem is not convex: two routes may end in two optima.
@pytest.mark.parametrize("name", [name for name in ITERATING if name != "LatentSVC"])
def test_a_weight_of_two_is_the_sample_twice(name):
    _, y, cut = CASES[name]
    n = len(LENGTHS) if cut else N
    weights = np.where(np.arange(n) % 2, 1.0, 2.0)
    twice = np.concatenate([np.arange(n), np.flatnonzero(weights == 2)])
    of_rows = (3 * twice[:, None] + np.arange(3)).ravel() if cut else twice
    of_labels = of_rows if len(y) == N else twice
    # All rows are candidates, or the greedy choice would see different ones.
    given = {"n_candidates": None} if name.startswith("Sparse") else {}
    weighted = fit(build(name, **given), name, sample_weight=weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        repeated = build(name, **given).fit(
            X[of_rows], y[of_labels], **({"lengths": np.full(len(twice), 3)} if cut else {})
        )
    assert weighted.primal_objective_ == pytest.approx(
        repeated.primal_objective_, rel=max(weighted.tol, 1e-9)
    )


@pytest.mark.parametrize("name", CASES)
def test_pipelines_and_searches(name):
    _, y, cut = CASES[name]
    if cut:
        # Samples as lists of matrices, as a search would cut them.
        data = [X[start : start + 3] for start in range(0, N, 3)]
        labels = [y[start : start + 3] for start in range(0, N, 3)] if len(y) == N else y
        search = GridSearchCV(build(name), {"C": [0.1, 1.0]}, cv=KFold(2))
    else:
        data, labels = X, y
        pipe = make_pipeline(MaxAbsScaler(), build(name))
        search = GridSearchCV(pipe, {f"{type(build(name)).__name__.lower()}__C": [0.1, 1.0]}, cv=KFold(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(data, labels)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(search.predict(data)) == len(data)


@pytest.mark.parametrize("name", CASES)
def test_frames_lend_their_names(name):
    _, y, _ = CASES[name]
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(D)])
    labels = pd.DataFrame(y, columns=["p", "q", "r"]) if y.ndim == 2 else pd.Series(y)
    model = fit(build(name), name, frame, labels)
    assert list(model.feature_names_in_) == list(frame.columns)
    answer = predict(model, name, frame)
    if y.ndim == 2:
        assert list(answer.columns) == ["p", "q", "r"]
    reference = predict(fit(build(name), name), name)
    np.testing.assert_array_equal(np.asarray(answer), np.asarray(reference))


def malformed(matrix, how):
    """Sparse rows whose index arrays point outside of them; loops that follow them end the process."""
    broken = sp.csr_array(matrix)
    if how == "index":
        broken.indices[3] = 10**8
    else:
        broken.indptr[2] = 10**8
    return broken


@pytest.mark.parametrize("how", ["index", "pointer"])
@pytest.mark.parametrize("name", CASES)
def test_malformed_sparse_rows_are_refused(name, how):
    broken, model = malformed(X, how), build(name)
    with pytest.raises(ValueError, match=r"X is a malformed csr matrix: .*; build it from rows, columns"):
        fit(model, name, broken)
    fit(model, name)
    if "warm_start" in model.get_params():
        model.set_params(warm_start=True)
    methods = ("fit", "partial_fit", "predict", "decision_function", "label_scores", "transform", "explain")
    for method in filter(lambda method: hasattr(model, method), methods):
        labels = CASES[name][1:2] if "fit" in method else ()
        with pytest.raises(ValueError, match="X is a malformed csr matrix"):
            getattr(model, method)(broken, *labels, **CASES[name][2])


@pytest.mark.parametrize("name", OF_LABELS)
def test_malformed_sparse_labels_are_refused(name):
    broken, model = malformed(Y, "index"), build(name)
    with pytest.raises(ValueError, match="y is a malformed csr matrix"):
        fit(model, name, y=broken)
    fit(model, name, y=sp.csr_array(Y))
    for method in filter(lambda method: hasattr(model, method), ("partial_fit", "score")):
        with pytest.raises(ValueError, match="y is a malformed csr matrix"):
            getattr(model, method)(X, broken)


@pytest.mark.parametrize("name", CASES)
def test_sparse_rows_and_dense_rows_agree(name):
    dense = fit(build(name), name)
    sparse = fit(build(name), name, sp.csr_array(X))
    assert sparse.primal_objective_ == pytest.approx(dense.primal_objective_, rel=dense.tol)


@pytest.mark.parametrize("name", [*ESTIMATORS, *WRAPPERS])
def test_parameters_are_documented_in_the_order_of_the_signature(name):
    """scikit-learn checks the names; here their order counts, too."""
    cls = getattr(maxmargin, name)
    section = re.split(r"\n\n\w+\n-{3,}\n", inspect.getdoc(cls).split("Parameters\n----------\n")[1])[0]
    documented = [
        word for names in re.findall(r"^(\w[\w, ]*) :", section, re.M) for word in names.split(", ")
    ]
    assert documented == list(inspect.signature(cls).parameters)


LINEAR = (
    "MultiLabelSVC",
    "MultiLabelSVC prior",
    "MultiLabelSVC smo",
    "MultiClassSVC",
    "ChainSVC",
    "SubmodularSVC",
)


@pytest.mark.parametrize("name", LINEAR)
def test_a_sparse_row_is_scored_without_a_copy_of_the_model(name, tmp_path):
    base, _, more = name.partition(" ")
    settings = {"smo": {"solver": "smo"}, "prior": {"prior": maxmargin.priors.from_labels}}.get(more, {})
    rows = sp.hstack([sp.csr_array(X), sp.csr_array((N, 200_000))], format="csr")
    trained = fit(build(base, **settings), base, rows)
    maxmargin.save(trained, tmp_path / "model")
    few, cut = rows[:3], {key: lengths[:1] for key, lengths in CASES[base][2].items()}
    for model in (trained, maxmargin.load(tmp_path / "model"), pickle.loads(pickle.dumps(trained))):
        model.predict(few, **cut)
        tracemalloc.start()
        try:
            model.predict(few, **cut)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < model.coef_.nbytes / 10
