"""Certificates of the stored model in every precision, the same bits for any number of threads, limits."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from maxmargin import MultiLabelSVC, priors
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.edge.labels import LabelSpace
from maxmargin.multilabel.problem import FREQUENT, WIDE, LinearM3L, frequent_first, hinge_costs, used_columns
from maxmargin.multilabel.sweeps import LabelSweeps
from tests.checks import apart
from tests.multilabel.test_campaign import stored_objective


def data(n=80, d=6, L=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, L)) + rng.normal(size=(n, L)) > 0).astype(float)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {"kernel": "rbf", "gamma": 0.5},
        {"kernel": "poly", "solver": "smo"},
        {"prior": np.eye(3) + 0.8, "C": 2.4e5},
        {"intercept_scaling": 3.7, "C": 1e3},
        {"intercept_scaling": 3.7, "precision": "single"},
    ],
    ids=lambda given: " ".join(given),
)
def test_float32_rows_are_certified_as_they_are_stored(given, sparse):
    X, Y = data()
    X = (100 * X).astype(np.float32)
    parameters = {"C": 10.0, "class_weight": None, "fit_intercept": True, "intercept_scaling": 1.0, **given}
    model = MultiLabelSVC(**parameters, random_state=0, tol=1e-4, max_iter=300)
    model.fit(sp.csr_array(X) if sparse else X, Y)
    stored, _ = stored_objective(model, X, Y, None, parameters)
    assert model.primal_objective_ == pytest.approx(stored, rel=1e-9)
    # What predicts is what was stored, whatever the precision of new rows.
    scores = model.decision_function(X)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, model.decision_function(X.astype(float)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("solver", ["auto", "dca", "smo", "newton"])
def test_the_certificate_of_a_linear_model_is_that_of_its_weights(solver, sparse):
    """Columns from 1e-6 to 1e6: products of rows round by more than what small columns add to a score."""
    X, Y = data(d=7)
    X *= 10.0 ** np.linspace(-6, 6, 7)
    prior = np.eye(3) + 0.8
    model = MultiLabelSVC(solver=solver, prior=prior, max_iter=50, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(sp.csr_array(X) if sparse else X, Y)
    W, b = (part.astype(np.longdouble) for part in (model.coef_, model.intercept_))
    scores = X.astype(np.longdouble) @ W.T + b
    Z = np.column_stack([W, b])
    norm = np.sum(Z * (np.linalg.inv(prior).astype(np.longdouble) @ Z))
    primal = 0.5 * norm + np.sum(np.maximum(0, 1 - (2 * Y - 1) * scores))
    assert model.primal_objective_ == pytest.approx(float(primal), rel=1e-13)
    gap = (model.primal_objective_ - model.dual_objective_) / model.primal_objective_
    assert model.duality_gap_ == pytest.approx(gap, rel=1e-12)


def chi2(x, z):
    return np.exp(-0.02 * sum((a - b) ** 2 / (a + b) for a, b in zip(x, z, strict=True) if a + b > 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["auto", "smo"])
def test_chi2_on_sparse_rows_is_certified_as_a_slow_twin_computes_it(solver, dtype):
    rng = np.random.default_rng(0)
    X = (rng.gamma(1.0, size=(40, 30)) * (rng.random((40, 30)) < 0.4)).astype(dtype)
    Y = (X[:, :3] > 0.1).astype(float)
    model = MultiLabelSVC(C=1e3, kernel="chi2", gamma=0.02, solver=solver, tol=1e-6, random_state=0)
    model.fit(sp.csr_array(X), Y)
    rows = X.astype(np.float64)
    K = np.array([[chi2(x, z) for z in rows[model.support_]] for x in rows])
    scores = K @ model.dual_coef_.T + model.intercept_
    norm = np.vdot(model.dual_coef_.T, scores[model.support_])
    primal = 0.5 * norm + 1e3 * np.sum(np.maximum(0, 1 - (2 * Y - 1) * scores))
    assert model.primal_objective_ == pytest.approx(primal, rel=1e-11)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_dual_variables_in_single_precision_stay_within_their_boxes(precision):
    """With X = 0 the optimum is the sum of all boxes, exactly; no dual may exceed it."""
    rng = np.random.default_rng(0)
    X, Y = np.zeros((50, 3)), rng.integers(0, 2, (50, 4))
    Y[0], Y[1] = 0, 1
    for C in 10.0 ** rng.uniform(-3, 3, 20):
        weights = rng.uniform(0.1, 3, 50)
        model = MultiLabelSVC(C=C, fit_intercept=False, precision=precision, random_state=0)
        model.fit(X, Y, sample_weight=weights)
        assert model.dual_objective_ <= 4 * C * weights.sum() * (1 + 1e-15)
        assert model.duality_gap_ <= 1e-6


def test_a_warm_start_in_single_precision_stays_within_the_boxes():
    X, Y = data(L=2)
    model = MultiLabelSVC(C=1 / 3, precision="single", warm_start=True, random_state=0).fit(X, Y)
    best = MultiLabelSVC(C=0.7 / 3, tol=1e-10).fit(X, Y).primal_objective_
    model.set_params(C=0.7 / 3, max_iter=1, tol=0.5).fit(X, Y)
    assert model.dual_objective_ <= best * (1 + 1e-9)
    assert (model._warm[0] <= 0.7 / 3).all()


@pytest.mark.parametrize("solver", ["auto", "dca", "newton"])
def test_what_a_singular_prior_does_not_see_does_not_cancel(solver):
    """Unscaled features make the part of V in the null space of R large; the dual must stay below P*."""
    X, Y = data(n=60, L=3)
    X = 1e5 * X + 1e6
    P = np.array([[1.0, 1, 0.3], [0.2, -1, 1]])
    options = {"C": 10.0, "prior": P.T @ P, "random_state": 0}
    best = MultiLabelSVC(solver="newton", tol=1e-10, **options).fit(X, Y)
    assert best.duality_gap_ <= 1e-10
    model = MultiLabelSVC(solver=solver, max_iter=50, tol=1e-4, **options)
    if solver == "dca":
        with pytest.warns(ConvergenceWarning):
            model.fit(X, Y)
    else:
        model.fit(X, Y)
    assert model.dual_objective_ <= best.primal_objective_ * (1 + 1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_bits_for_any_number_of_threads(dtype, sparse):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(1500, 320)) * (rng.random((1500, 320)) < 0.1)).astype(dtype)
    Y = (X[:, :40] @ rng.normal(size=(40, 37)) + 0.5 * rng.normal(size=(1500, 37)) > 0.5).astype(int)
    X = sp.csr_array(X) if sparse else X
    for rows in (X, X[:, :30]):  # sweeps, Newton's method
        models = [
            MultiLabelSVC(n_jobs=n, max_iter=4, tol=1e-2, random_state=0).fit(rows, Y) for n in (1, 2, 4)
        ]
        for model in models[1:]:
            np.testing.assert_array_equal(model.coef_, models[0].coef_)
            np.testing.assert_array_equal(model.intercept_, models[0].intercept_)
            untimed = [[{**record, "seconds": 0} for record in m.history_] for m in (model, models[0])]
            assert untimed[0] == untimed[1]


def test_the_same_bits_for_any_number_of_threads_on_wide_rows():
    """Where samples are visited in blocks and threads have their own weights, of ranges that differ."""
    rng = np.random.default_rng(0)
    X = sp.random_array((1100, 5000), density=0.004, rng=rng, format="csr", dtype=np.float32)
    Y = (X @ rng.normal(size=(5000, 70)) + 0.2 * rng.normal(size=(1100, 70)) > 0.5).astype(int)
    for tol in (1e-1, 1e-3):  # with and without a measurement before polishing
        one, *others = (MultiLabelSVC(n_jobs=n, tol=tol, random_state=0).fit(X, Y) for n in (1, 2, 3))
        for model in others:
            np.testing.assert_array_equal(model.coef_, one.coef_)
            np.testing.assert_array_equal(model.intercept_, one.intercept_)


def test_the_paper_s_solver_gives_up_single_precision_where_it_must():
    X, Y = data()
    model = MultiLabelSVC(kernel="rbf", solver="smo", precision="single", tol=1e-9, max_iter=2000)
    assert model.fit(X, Y).duality_gap_ <= 1e-9


def test_stuck_kernel_fits_are_rescued():
    X, Y = data(n=60)
    for given in (
        {"kernel": "poly", "C": 10.0, "intercept_scaling": 100.0},
        {"kernel": "rbf", "C": 1e5},
        {"kernel": "rbf", "C": 1e4, "prior": np.ones((3, 3)) + 0.1 * np.eye(3)},
    ):
        model = MultiLabelSVC(tol=1e-5, random_state=0, **given).fit(1e3 * X, Y)
        assert model.duality_gap_ <= 1e-5


def test_empty_columns_cost_nothing_and_weigh_nothing():
    rng = np.random.default_rng(0)
    X = sp.csr_array(
        (rng.normal(size=300), rng.integers(0, 10**6, 300, np.int32), np.arange(0, 301, 5, np.int32)),
        shape=(60, 10**6),
    )
    X.sum_duplicates()
    y = np.arange(60) % 2
    few, columns = used_columns(X)
    assert few.shape[1] == len(columns) == len(np.unique(X.indices))
    wide = MultiLabelSVC(tol=1e-8, random_state=0).fit(X, y)
    narrow = MultiLabelSVC(tol=1e-8, random_state=0).fit(few, y)
    assert wide.coef_.shape == (1, 10**6) and np.count_nonzero(wide.coef_) <= len(columns)
    assert wide.primal_objective_ == pytest.approx(narrow.primal_objective_, rel=1e-7)
    longest = np.sqrt(1 + (X.multiply(X)).sum(axis=1).max())
    scores = narrow.decision_function(few)
    np.testing.assert_allclose(wide.decision_function(X), scores, atol=longest * apart(wide, narrow))


def test_columns_are_numbered_by_frequency_and_weights_go_back_to_their_own():
    rng = np.random.default_rng(0)
    dense = rng.random((40, WIDE)) * (rng.random((40, WIDE)) < 0.01)
    dense[:, 7], dense[:30, 3000], dense[:, 11] = 1.0, -1.0, 0.0
    X = sp.csr_array(dense)
    rows, columns = frequent_first(Rows.of(X))
    counts = np.diff(X.tocsc().indptr)
    assert columns.tolist()[:2] == [7, 3000] and sorted(columns) == np.flatnonzero(counts).tolist()
    assert (np.diff(counts[columns]) <= 0).all() and rows.shape == (40, len(columns))
    np.testing.assert_array_equal(rows.matrix.toarray(), dense[:, columns])
    Y = rng.random((40, 3)) < 0.5
    given = {"C": 0.1, "tol": 1e-8, "random_state": 0}
    wide, plain = (MultiLabelSVC(**given).fit(A, Y) for A in (X, dense))
    assert not wide.coef_[:, counts == 0].any()
    np.testing.assert_allclose(wide.coef_, plain.coef_, atol=apart(wide, plain))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_rare_words_come_last(n_threads):
    rng = np.random.default_rng(0)
    X = sp.random_array((30, FREQUENT + 500), density=0.01, rng=rng, format="csr")
    X = sp.csr_array(X.toarray() * (np.arange(30) != 3)[:, None])
    rows = Rows.of(X)
    costs = hinge_costs(np.ones((30, 2), np.int8), np.ones((2, 2)), np.ones((30, 1)))
    few = Rows.of(X[:, :FREQUENT])
    np.testing.assert_array_equal(LinearM3L(few, costs).single_rows.indices, few.indices)  # none is rare
    single = LinearM3L(rows, costs, n_threads=n_threads).single_rows
    assert single.data.dtype == np.float32
    np.testing.assert_array_equal(single.matrix.toarray(), X.toarray().astype(np.float32))
    for i in range(30):
        mine = slice(single.indptr[i], single.indptr[i + 1])
        assert (np.diff(single.indices[mine] >= FREQUENT) >= 0).all()
        as_read = np.zeros(X.shape[1], np.float32)
        as_read[single.indices[mine]] = single.data[mine]
        np.testing.assert_array_equal(as_read, X[[i]].toarray()[0].astype(np.float32))


def test_sparse_rows_are_read_in_the_working_precision():
    X, Y = data()
    costs = hinge_costs(np.where(Y > 0, 1, -1).astype(np.int8), np.ones((2, 3)), np.ones((len(Y), 1)))
    for A, single in ((sp.csr_array(X), np.float32), (X, np.float64)):
        problem = LinearM3L(Rows.of(A), costs)
        assert problem.rows_for(np.float32).data.dtype == single
        assert problem.rows_for(np.float64) is problem.rows
    huge = LinearM3L(Rows.of(sp.csr_array(1e30 * X)), costs)
    assert huge.rows_for(np.float32).data.dtype == np.float64


@pytest.mark.parametrize("n, sparse, tol, expected", [
    (5000, True, 1e-3, np.float32), (5000, True, 1e-5, np.float64), (3000, False, 1e-3, np.float64),
    (1000, True, 1e-3, np.float64),
])  # fmt: skip
def test_sparse_rows_that_are_not_small_are_worked_on_in_single_precision(n, sparse, tol, expected):
    X = sp.random_array((n, 1000), density=0.1, format="csr", rng=np.random.default_rng(0))
    model = MultiLabelSVC(tol=tol)
    model._space, signs = LabelSpace.read(np.arange(n)[:, None] % np.arange(2, 32) == 0)
    problem = model._problem(X if sparse else X.toarray() + 1, signs, None)
    assert model._start(problem, model._stopping()).dtype == expected


@pytest.mark.parametrize("value", [1e160, 1e308])
@pytest.mark.parametrize("given", [{}, {"kernel": "poly"}, {"solver": "dca"}])
def test_numbers_whose_squares_overflow_are_refused(value, given):
    X, Y = data()
    X[3, 2] = value
    with pytest.raises(ValueError, match=r"X\[3, 2\] is 1e\+\d+, .* scale"), np.errstate(over="ignore"):
        MultiLabelSVC(gamma=1.0, **given).fit(X, Y)


def test_tol_decides_however_small_the_problem():
    X, Y = data(n=20, L=2)
    costs = hinge_costs(np.where(Y > 0, 1, -1).astype(np.int8), np.ones((2, 2)), np.ones((20, 1)))
    problem = LinearM3L(Rows.of(X), costs)
    for tol in (1e-1, 1e-6):
        sweeps = LabelSweeps(problem, np.zeros(Y.shape), tol=tol, rng=np.random.RandomState(0))
        outcome = run(sweeps, Stopping(tol))
        assert outcome.converged and all(record["gap"] > tol for record in outcome.history[:-1])


@pytest.mark.parametrize("solver", ["auto", "smo"])
def test_a_kernel_matrix_is_built_only_while_there_is_time(solver, monkeypatch):
    X, Y = data(n=600)
    built = []
    block = Kernel.block
    monkeypatch.setattr(Kernel, "block", lambda self, *given: built.append(1) or block(self, *given))
    model = MultiLabelSVC(kernel="rbf", solver=solver, time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X, Y)
    assert not built and model.duality_gap_ == 1.0
    assert not model.decision_function(X).any()


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"solver": "dca"}, {"solver": "newton"}, {"kernel": "rbf"}])
def test_a_time_limit_is_kept_to_about_an_epoch(given):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 60))
    Y = (rng.random((20_000, 10)) < 0.3).astype(int)
    MultiLabelSVC(max_iter=1, **given).fit(X[:100], Y[:100])
    model = MultiLabelSVC(time_limit=0.1, tol=1e-9, prior=None, **given)
    start = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X, Y)
    spent = time.perf_counter() - start
    assert spent < 20 and len(model.history_) >= 1


def test_a_prior_on_single_precision_rows_keeps_its_coefficients():
    X, Y = data()
    model = MultiLabelSVC(prior=priors.from_labels, random_state=0).fit(X.astype(np.float32), Y)
    assert model.coef_.dtype == model.intercept_.dtype == np.float64


def test_small_indefinite_kernels_have_the_optimum_of_pair_steps():
    """Newton's method on a factor of K would leave its negative eigenvalues out, and never close the gap."""
    X, Y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MultiLabelSVC(kernel="sigmoid", coef0=-1.0, C=0.1, tol=1e-9, random_state=0).fit(X, Y)
    assert np.linalg.eigvalsh(model._kernel.block(X, X)).min() < -1e-6
    assert model.duality_gap_ <= 1e-9
