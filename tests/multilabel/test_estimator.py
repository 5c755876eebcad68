"""MultiLabelSVC as a user meets it: scikit-learn's checks, kinds of labels, errors, limits."""

import pickle
import signal
import threading
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import maxmargin
from maxmargin import MultiLabelSVC, priors
from maxmargin.metrics import scorer


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(
        n_samples=120, n_features=12, n_classes=5, n_labels=2, random_state=1
    )
    return X / 20, Y


def test_lives_in_scikit_learn(data):
    X, Y = data
    search = GridSearchCV(
        make_pipeline(StandardScaler(), MultiLabelSVC(random_state=0)),
        {"multilabelsvc__C": [0.01, 1.0], "multilabelsvc__prior": [None, priors.from_labels]},
        cv=3,
        scoring=scorer("hamming_accuracy"),
    ).fit(X, Y)
    assert search.best_score_ > 0.6
    scores = cross_val_score(MultiLabelSVC(random_state=0), X, Y, cv=3, scoring=scorer("hamming_accuracy"))
    assert scores.min() > 0.6
    model = MultiLabelSVC(C=2, prior=priors.from_labels, random_state=0)
    assert clone(model).get_params()["C"] == 2
    fitted = pickle.loads(pickle.dumps(model.fit(X, Y)))
    np.testing.assert_array_equal(fitted.predict(X), model.predict(X))


def test_predict_answers_in_the_kind_of_fit(data):
    X, Y = data
    expected = MultiLabelSVC(random_state=0).fit(X, Y).predict(X)
    assert expected.dtype == Y.dtype and set(np.unique(expected)) <= {0, 1}

    signs = MultiLabelSVC(random_state=0).fit(X, 2 * Y - 1).predict(X)
    np.testing.assert_array_equal(signs, 2 * expected - 1)
    booleans = MultiLabelSVC(random_state=0).fit(X, Y.astype(bool)).predict(X)
    assert booleans.dtype == bool
    np.testing.assert_array_equal(booleans, expected.astype(bool))
    lists = MultiLabelSVC(random_state=0).fit(X, Y.tolist()).predict(X)
    np.testing.assert_array_equal(lists, expected)

    for kind in (sp.csr_matrix, sp.csr_array, sp.coo_array, sp.csc_matrix):
        answer = MultiLabelSVC(random_state=0).fit(X, kind(Y)).predict(X)
        assert sp.issparse(answer) and answer.format == "csr"
        assert isinstance(answer, sp.sparray) == issubclass(kind, sp.sparray)
        np.testing.assert_array_equal(answer.toarray(), expected)

    names = np.array(["a", "b", "c", "d", "e"])
    for container in (set, frozenset, list, tuple):
        y = [container(names[row == 1].tolist()) for row in Y]
        answer = MultiLabelSVC(random_state=0).fit(X, y).predict(X)
        assert answer == [container(names[row == 1].tolist()) for row in expected]


def test_frames_in_frames_out(data):
    X, Y = data
    names = ["a", "b", "c", "d", "e"]
    columns = [f"x{k}" for k in range(X.shape[1])]
    expected = MultiLabelSVC(random_state=0).fit(X, Y).predict(X)
    index = pd.Index(range(1000, 1000 + len(X)))
    frame = pd.DataFrame(X, columns=columns, index=index)
    model = MultiLabelSVC(random_state=0).fit(frame, pd.DataFrame(Y, columns=names, index=index))
    answer = model.predict(frame)
    assert isinstance(answer, pd.DataFrame) and list(answer.columns) == names == list(model.classes_)
    assert answer.index.equals(index) and list(model.feature_names_in_) == columns
    np.testing.assert_array_equal(answer.to_numpy(), expected)

    model = MultiLabelSVC(random_state=0).fit(pl.DataFrame(X, schema=columns), pl.DataFrame(Y, schema=names))
    answer = model.predict(pl.DataFrame(X, schema=columns))
    assert isinstance(answer, pl.DataFrame) and answer.columns == names
    np.testing.assert_array_equal(answer.to_numpy(), expected)

    holes = pl.DataFrame(Y, schema=names).with_columns(
        pl.when(pl.int_range(pl.len()) < 3).then(None).otherwise(pl.col("a")).alias("a")
    )
    by_null = MultiLabelSVC(random_state=0).fit(X, holes)
    filled = Y.astype(float)
    filled[:3, 0] = np.nan
    np.testing.assert_allclose(by_null.coef_, MultiLabelSVC(random_state=0).fit(X, filled).coef_)


def test_a_vector_of_classes_is_one_label_per_class():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = MultiLabelSVC(random_state=0).fit(X, names)
    assert model.decision_function(X).shape == (150, 3)
    assert set(model.predict(X)) <= set(names) and model.score(X, names) > 0.8
    two = MultiLabelSVC(random_state=0).fit(X[:100], names[:100])
    assert two.decision_function(X).shape == (150,)
    np.testing.assert_array_equal(two.predict(X) == "versicolor", two.decision_function(X) > 0)


def test_constant_labels_are_said_and_predicted(data):
    X, Y = data
    Y = Y.copy()
    Y[:, 1], Y[:, 3] = 0, 1
    with pytest.warns(UserWarning, match="Label 1, 3 is constant"):
        model = MultiLabelSVC(random_state=0).fit(X, Y)
    far = np.vstack([X, 1e6 * X, -1e6 * X])
    assert not model.predict(far)[:, 1].any() and model.predict(far)[:, 3].all()
    np.testing.assert_array_equal(model.constant_labels_, [False, True, False, True, False])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rest = MultiLabelSVC(random_state=0).fit(X, Y[:, [0, 2, 4]])
    assert model.primal_objective_ == pytest.approx(rest.primal_objective_, rel=2e-3)
    with pytest.warns(UserWarning, match="constant"):
        assert MultiLabelSVC().fit(X, np.zeros_like(Y)).predict(X).sum() == 0


def test_a_prior_informs_labels_without_examples(data):
    X, Y = data
    holes = Y[:, :2].astype(float)
    holes[:, 1] = np.nan
    model = MultiLabelSVC(prior=np.ones((2, 2)), random_state=0).fit(X, holes)
    answer = model.predict(X)
    np.testing.assert_array_equal(answer[:, 0], answer[:, 1])
    assert answer[:, 0].any() and not answer[:, 0].all()


def test_predict_category():
    rng = np.random.RandomState(0)
    signatures = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0], [1, 1, 0, 0]])
    kind = rng.randint(0, 3, 200)
    X = signatures[kind] @ rng.randn(4, 30) + 0.1 * rng.randn(200, 30)
    model = MultiLabelSVC(random_state=0).fit(X, signatures[kind])
    np.testing.assert_array_equal(model.predict_category(X, signatures[:3]), kind)
    np.testing.assert_array_equal(model.predict_category(X, 2 * signatures[:3] - 1), kind)
    named = pd.DataFrame(signatures[:3], index=["cat", "dog", "eel"])
    assert list(model.predict_category(X[:3], named)) == [named.index[k] for k in kind[:3]]
    with pytest.raises(ValueError, match="4 columns"):
        model.predict_category(X, signatures[:, :3])
    with pytest.raises(ValueError, match=r"0/1 or -1/\+1"):
        model.predict_category(X, signatures * 0.5)


def test_score_is_subset_accuracy_of_known_entries(data):
    X, Y = data
    model = MultiLabelSVC(random_state=0).fit(X, Y)
    right = model.predict(X) == Y
    assert model.score(X, Y) == pytest.approx(right.all(axis=1).mean()) == accuracy_score(Y, model.predict(X))
    holes = Y.astype(float)
    holes[:, 0] = np.nan
    assert model.score(X, holes) == pytest.approx(right[:, 1:].all(axis=1).mean())
    weight = np.arange(len(X))
    assert model.score(X, Y, weight) == pytest.approx(np.average(right.all(axis=1), weights=weight))


def test_old_names_of_parameters_work_with_a_warning(data, tmp_path):
    X, Y = data
    new = MultiLabelSVC(prune_below=0, memory_limit=0).fit(X, Y)
    with pytest.warns(FutureWarning) as warned:
        old = MultiLabelSVC(loss="hamming", cull=0, memory_limit=0).fit(X, Y)
    messages = sorted(str(each.message) for each in warned)
    assert messages[0] == "The parameter cull is deprecated; use prune_below=0."
    assert messages[1] == "loss='hamming' is deprecated; use loss='hinge'."
    np.testing.assert_array_equal(old.coef_.toarray(), new.coef_.toarray())
    maxmargin.save(old, tmp_path / "old.mm")
    loaded = maxmargin.load(tmp_path / "old.mm")
    assert (loaded.loss, loaded.prune_below, loaded.cull) == ("hinge", 0, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.fit(X, Y)


def test_limits_keep_a_usable_model(data):
    X, Y = data
    for limit, knob in (({"max_iter": 1}, "max_iter"), ({"time_limit": 1e-6}, "time_limit")):
        model = MultiLabelSVC(C=100, tol=1e-9, random_state=0, **limit)
        with pytest.warns(ConvergenceWarning, match=rf"gap of .* increase {knob}"):
            model.fit(X, Y)
        assert model.predict(X).shape == Y.shape
        assert model.dual_objective_ <= model.primal_objective_ and model.duality_gap_ > 1e-9


def test_a_warm_start_on_other_data_starts_anew_and_says_so(data):
    X, Y = data
    model = MultiLabelSVC(warm_start=True, random_state=0).fit(X, Y)
    with pytest.warns(
        UserWarning, match=r"the last fit had data of shape \(120, 5\), this one has \(100, 5\)"
    ):
        model.fit(X[:100], Y[:100])
    cold = MultiLabelSVC(random_state=0).fit(X[:100], Y[:100])
    np.testing.assert_array_equal(model.coef_, cold.coef_)
    assert not hasattr(cold, "_warm")
    assert not hasattr(model.set_params(warm_start=False).fit(X, Y), "_warm")


class _Interrupt:
    """A callback that presses Ctrl-C during the second epoch."""

    def __init__(self):
        self.epochs = 0

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context):
        self.epochs += context.task_name == "epoch"
        if self.epochs == 2:
            self.epochs = 99
            signal.raise_signal(signal.SIGINT)

    def on_fit_task_end(self, estimator, context): ...


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="needs signals")
def test_ctrl_c_keeps_the_model(data):
    X, Y = data
    model = MultiLabelSVC(C=100, tol=1e-9, max_iter=10**6, random_state=0).set_callbacks(_Interrupt())
    # Jobs in the background may have been started with Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt, match="warm_start"):
            model.fit(X, Y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.n_iter_ == 1 and model.duality_gap_ > 1e-9
    assert scorer("hamming_accuracy")(model, X, Y) > 0.5


class _Stop:
    """A callback that ends the fit after two epochs and looks at the model reached."""

    def __init__(self):
        self.scores = []

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        if context.task_name == "epoch":
            self.scores.append(fitted_estimator.score(X, y))
        return len(self.scores) == 2


def test_callbacks(data, capsys):
    from sklearn.callback import ProgressBar, ScoringMonitor

    X, Y = data
    stop = _Stop()
    model = MultiLabelSVC(C=100, tol=1e-9, random_state=0).set_callbacks(stop)
    with pytest.warns(ConvergenceWarning, match="callback"):
        model.fit(X, Y)
    assert model.n_iter_ == 2 and model.score(X, Y) == pytest.approx(stop.scores[-1])
    MultiLabelSVC(random_state=0).set_callbacks(ProgressBar()).fit(X, Y)
    assert "MultiLabelSVC" in capsys.readouterr().out
    monitor = ScoringMonitor(scoring="accuracy")
    MultiLabelSVC(random_state=0, tol=1e-4).set_callbacks(monitor).fit(X, Y)
    MultiLabelSVC(random_state=0, verbose=1).fit(X, Y)
    assert "gap" in capsys.readouterr().out


BAD = [
    ({"C": -1}, {}, "The 'C' parameter of MultiLabelSVC must be a float in the range"),
    ({"solver": "magic"}, {}, "The 'solver' parameter of MultiLabelSVC"),
    ({"prior": np.eye(4)}, {}, "prior has shape"),
    ({"prior": np.arange(25.0).reshape(5, 5)}, {}, "prior must be symmetric"),
    ({"prior": np.eye(5) - 0.5}, {}, "positive semi-definite"),
    ({"prior": np.diag([1, 1, 0, 1, 1])}, {}, "positive diagonal"),
    ({"prior": np.full((5, 5), np.nan)}, {}, "NaN"),
    ({"class_weight": {7: 2.0}}, {}, "class_weight contains 7"),
    ({"class_weight": np.ones((2, 2))}, {}, r"class_weight must have shape \(5, 2\)"),
    ({"label_weight": [1, 2]}, {}, "label_weight must hold one number per label"),
    ({"label_weight": [1, 1, 1, 1, -1]}, {}, "label_weight must hold finite nonnegative"),
    ({"label_margin": [1, 1, 1, 1, np.inf]}, {}, "label_margin must hold finite"),
    ({}, {"sample_weight": -np.ones(120)}, "Negative values in data passed to `sample_weight`"),
    ({}, {"sample_weight": np.zeros(120)}, "at least one non-zero"),
    ({}, {"sample_weight": np.zeros((120, 5))}, "sample_weight is zero everywhere"),
    ({}, {"sample_weight": np.ones((120, 3))}, "sample_weight has shape"),
    ({}, {"sample_weight": np.full(120, np.nan)}, "sample_weight"),
    ({}, {"label_cost": np.ones((120, 3))}, "label_cost has shape"),
    (
        {},
        {"label_cost": -np.ones((120, 5))},
        r"a wrong prediction cheaper than a right one \(sample 0, label 0\)",
    ),
    ({}, {"label_cost": np.full((120, 5), np.nan)}, "label_cost contains NaN"),
    ({"label_margin": 2.0}, {"label_cost": np.ones((120, 5))}, "leave loss at 'hinge' and label_margin"),
    ({"loss": "squared_hinge"}, {"label_cost": np.ones((120, 5))}, "and no label_cost"),
    ({"stopping": "projected_gradient"}, {}, "read by solver 'dca', 'smo' only"),
    ({"solver": "dca", "break_factor": 0.0}, {}, "read by solver 'smo' only"),
    ({"n_jobs": 0}, {}, "n_jobs == 0"),
    (
        {"solver": "dca", "n_jobs": 2},
        {},
        "n_jobs=2 is read by solver 'auto', 'newton' only; with solver='dca'",
    ),
    ({"solver": "newton", "precision": "single"}, {}, "precision='single' is read by solver 'auto', 'smo'"),
]


def test_weights_of_entries_may_be_lists(data):
    X, Y = data
    weight = np.random.RandomState(0).rand(*Y.shape)
    model, same = (
        MultiLabelSVC(random_state=0).fit(X, Y, sample_weight=w) for w in (weight, weight.tolist())
    )
    np.testing.assert_array_equal(model.coef_, same.coef_)
    with pytest.raises(ValueError, match="one weight per sample"):
        MultiLabelSVC(loss="squared_hinge").fit(X, Y, sample_weight=weight.tolist())


@pytest.mark.parametrize(("parameters", "extra", "message"), BAD)
def test_bad_parameters_are_named(data, parameters, extra, message):
    X, Y = data
    with pytest.raises(ValueError, match=message):
        MultiLabelSVC(**parameters).fit(X, Y, **extra)


def test_bad_labels_and_features_are_named(data):
    X, Y = data
    with pytest.raises(ValueError, match="it holds 2"):
        MultiLabelSVC().fit(X, Y * 2)
    with pytest.raises(ValueError, match="mixes -1, 0 and 1"):
        MultiLabelSVC().fit(X, np.where(np.arange(5) == 1, -1, Y))
    with pytest.raises(ValueError, match="sparse and has values other than 0 and 1"):
        MultiLabelSVC().fit(X, sp.csr_array(Y * 3))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        MultiLabelSVC().fit(X, Y[:50])
    with pytest.raises(ValueError, match="every set is empty"):
        MultiLabelSVC().fit(X, [set()] * len(X))
    with pytest.raises(ValueError, match="matrix of objects"):
        MultiLabelSVC().fit(X, np.full(Y.shape, "yes", dtype=object))
    with pytest.raises(ValueError, match="NaN"):
        MultiLabelSVC().fit(np.where(X > 0.1, np.nan, X), Y)
    with pytest.raises(NotFittedError):
        MultiLabelSVC().predict(X)
    model = MultiLabelSVC(random_state=0).fit(X, [{"a"} if row[0] else {"b"} for row in Y])
    assert model.score(X[:1], [{"zebra"}]) == 0.0
