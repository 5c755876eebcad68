"""MultiLabelSVC on a cluster reaches the optimum of one machine, whatever the partitions."""

import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin import priors
from maxmargin.dask import MultiLabelSVC
from tests.checks import apart
from tests.dask.conftest import Inline, delayed_parts

TIGHT = {"tol": 1e-8, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 6)) * (rng.random((70, 6)) < 0.7)
    Y = (X @ rng.normal(size=(6, 4)) + rng.normal(size=(70, 4)) > 0.5).astype(int)
    return X, Y


@pytest.mark.parametrize(
    ("n_parts", "partition"),
    [(1, "rows"), (2, "rows"), (3, "rows"), (7, "rows"), (3, "labels"), (7, "labels")],
)
def test_reaches_the_optimum_of_one_machine(client, data, n_parts, partition):
    X, Y = data
    X = sp.csr_array(X) if n_parts == 3 else X
    best = maxmargin.MultiLabelSVC(**TIGHT).fit(X, Y)
    model = MultiLabelSVC(partition=partition, working_rows=25, **TIGHT)
    model.fit(*delayed_parts(X, Y, n_parts), client=client)
    assert model.partition_ == partition
    assert model.duality_gap_ <= 1e-8
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    assert model.dual_objective_ == pytest.approx(best.dual_objective_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=apart(model, best))
    assert np.array_equal(model.predict(X), model.decision_function(X) > 0)


VARIANTS = {
    "prior": {"prior": priors.from_labels},
    "rank one": {"prior": np.ones((4, 4))},
    "diagonal": {"prior": np.diag([1.0, 2.0, 0.5, 1.0])},
    "tied": {"prior": np.eye(4) + 0.1, "loss": "tied"},
    "balanced": {"class_weight": "balanced"},
    "weights": {"label_weight": [1, 2, 3, 4], "label_margin": 2.0, "class_weight": {0: 3.0}},
    "no intercept": {"fit_intercept": False, "C": 10.0},
    "scaled intercept": {"intercept_scaling": 5.0},
    "newton": {"solver": "newton"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_have_the_meaning_of_one_machine(client, data, name):
    X, Y = data
    best = maxmargin.MultiLabelSVC(**TIGHT, **VARIANTS[name]).fit(X, Y)
    for partition in ("labels", "rows"):
        model = MultiLabelSVC(partition=partition, working_rows=30, **TIGHT, **VARIANTS[name])
        model.fit(da.from_array(X, (30, 6)), da.from_array(Y, (40, 4)), client=client)
        assert model.duality_gap_ <= 1e-8
        assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


@pytest.mark.parametrize("prior", [None, np.eye(4) + 0.1])
def test_rows_that_all_fit_a_solve_take_one_round(client, data, prior):
    _, Y = data
    # Wide, and most columns are empty.
    X = sp.random_array((70, 2000), density=2e-3, rng=np.random.default_rng(0), format="csr")
    best = maxmargin.MultiLabelSVC(prior=prior, **TIGHT).fit(X, Y)
    model = MultiLabelSVC(prior=prior, partition="rows", **TIGHT)
    model.fit(*delayed_parts(X, Y, 7), client=client)
    assert (model.partition_, model.n_iter_) == ("rows", 1)
    assert model.duality_gap_ <= 1e-8
    np.testing.assert_allclose(model.coef_, best.coef_, atol=apart(model, best))
    assert not model.coef_[:, X.sum(axis=0) == 0].any()


class Workers(Inline):
    """A client with `n` simulated workers."""

    def __init__(self, n):
        self.n = n

    def scheduler_info(self, n_workers):
        return {"workers": {k: {"memory_limit": 2**30} for k in range(self.n)}}


def test_any_number_of_workers_reaches_the_gap():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 20))
    Y = X @ rng.normal(size=(20, 6)) + 4 * rng.normal(size=(400, 6)) > 0
    model = MultiLabelSVC(partition="rows", working_rows=60, C=0.1, random_state=0)
    for n in (1, 6):
        assert model.fit(X, Y, client=Workers(n)).duality_gap_ <= 1e-3


def test_sample_weights_and_unknown_entries(client, data):
    X, Y = data
    Y = Y.astype(float)
    Y[::7, 1] = np.nan
    weight = np.arange(len(Y)) % 3.0
    best = maxmargin.MultiLabelSVC(**TIGHT).fit(X, Y, sample_weight=weight)
    for working_rows in (None, 30):
        model = MultiLabelSVC(partition="rows", working_rows=working_rows, **TIGHT)
        model.fit(da.from_array(X, (30, 6)), Y, sample_weight=weight, client=client)
        assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


KINDS = {
    "sets": lambda Y: [{f"l{k}" for k in np.flatnonzero(row)} for row in Y],
    "signs": lambda Y: 2 * Y - 1,
    "sparse": sp.csr_array,
    "classes": lambda Y: np.array(["a", "b", "c"])[np.minimum(Y.sum(axis=1), 2)],
    "binary": lambda Y: np.array(["no", "yes"])[Y[:, 0]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_every_kind(client, data, kind):
    X, Y = data
    order = np.argsort(Y.sum(axis=1), kind="stable")  # partitions lack some labels and classes
    X, y = X[order], KINDS[kind](Y[order])
    cuts = [slice(0, 10), slice(10, 40), slice(40, 70)]
    best = maxmargin.MultiLabelSVC(**TIGHT).fit(X, y)
    model = MultiLabelSVC(**TIGHT).fit([dask.delayed((X[rows], y[rows])) for rows in cuts], client=client)
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    assert np.array_equal(model.classes_, best.classes_)
    ours, theirs = model.predict(X), model.to_local().predict(X)
    assert type(ours) is type(theirs) is type(best.predict(X))
    if sp.issparse(ours):
        ours, theirs = ours.toarray(), theirs.toarray()
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("partition", ["labels", "rows"])
def test_two_processes_reach_the_optimum(processes, data, partition):
    X, Y = data
    best = maxmargin.MultiLabelSVC(tol=1e-6, random_state=0).fit(X, Y)
    model = MultiLabelSVC(partition=partition, working_rows=40, tol=1e-6, random_state=0)
    model.fit(da.from_array(sp.csr_array(X).toarray(), (30, 6)), da.from_array(Y, (30, 4)), client=processes)
    assert model.duality_gap_ <= 1e-6
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=2e-6)


def test_prediction_is_lazy_and_to_local_returns_the_model_of_one_machine(client, data, tmp_path):
    X, Y = data
    rows = da.from_array(X, (30, 6))
    model = MultiLabelSVC(random_state=0).fit(rows, Y, client=client)
    scores, labels = model.decision_function(rows), model.predict(rows)
    assert isinstance(scores, da.Array)
    assert isinstance(labels, da.Array)
    assert scores.chunks == ((30, 30, 10), (4,))
    local = model.to_local()
    assert type(local) is maxmargin.MultiLabelSVC
    np.testing.assert_allclose(scores.compute(), local.decision_function(X))
    assert np.array_equal(labels.compute(), local.predict(X))
    maxmargin.save(local, tmp_path / "model.mm")
    assert np.array_equal(maxmargin.load(tmp_path / "model.mm").predict(X), local.predict(X))


def pair(X, y):
    return dask.delayed((X, y))


BAD = {
    "Partition 0: X has 3 rows, but y has 2": [pair(np.ones((3, 2)), np.eye(2))],
    "features in partition": [pair(np.ones((2, 2)), np.eye(2)), pair(np.ones((2, 3)), np.eye(2))],
    "Partition 0: Input X contains NaN": [pair(np.full((2, 2), np.nan), np.eye(2))],
    "-1/\\+1 in others": [pair(np.ones((2, 2)), np.eye(2)), pair(np.ones((2, 2)), 2 * np.eye(2) - 1)],
    "no rows": [pair(np.ones((0, 2)), np.ones((0, 2)))],
}


@pytest.mark.parametrize("message", BAD)
def test_malformed_partitions_are_refused(client, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=message):
            MultiLabelSVC().fit(BAD[message], client=client)


def test_a_fit_that_stops_early_warns(client, data):
    X, Y = data
    model = MultiLabelSVC(partition="rows", working_rows=12, max_iter=1, tol=1e-6)
    with pytest.warns(UserWarning, match="increase max_iter"):
        model.fit(da.from_array(X, (30, 6)), Y, client=client)
    assert 1e-6 < model.duality_gap_ < np.inf


def test_unsupported_parameters_are_refused(client, data):
    X, Y = data
    with pytest.raises(ValueError, match="kernel"):
        MultiLabelSVC(kernel="rbf").fit(X, Y, client=client)
    with pytest.raises(ValueError, match="to_local"):
        MultiLabelSVC(warm_start=True).fit(X, Y, client=client)
