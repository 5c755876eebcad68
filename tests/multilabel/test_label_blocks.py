"""Many labels, solved block by block: the optimum of the dense path, the certificate, the sparse model."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import maxmargin
from maxmargin import MultiLabelSVC
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.multilabel import choice
from maxmargin.multilabel.label_blocks import Answer, BlockRule, LabelBlocks, ManyM3L
from maxmargin.multilabel.loops import add_squares
from maxmargin.multilabel.member_loops import LANES, ascend
from maxmargin.multilabel.newton import LabelByLabel
from maxmargin.multilabel.scan_loops import evaluate, lower_biases, scan
from tests.checks import apart
from tests.naive import label_blocks as naive

RNG = np.random.default_rng(7)
N, D, L = 70, 24, 21
X = sp.random_array((N, D), density=0.2, format="csr", random_state=RNG)
Y = (RNG.random((N, L)) < 0.15).astype(int)
Y[0], Y[1] = 1, 0
TOL = 1e-8


def problem(rows=X, Y=Y, C=1.0, bias=1.0, squared=False, weight=None):
    n, n_labels = Y.shape
    weight = np.ones(n) if weight is None else weight
    return ManyM3L(
        Rows.of(rows), sp.csr_array(Y), weight, np.full((2, n_labels), C), np.ones(n_labels), bias, squared
    )


def solve(posed, tol=TOL, **options):
    solver = LabelBlocks(posed, tol=tol, rng=np.random.RandomState(0), **options)
    return solver, run(solver, Stopping(tol, solver.n_epochs))


def first_iteration(posed, rule):
    """A solver, and what it works in, with every label before its first turn."""
    solver = LabelBlocks(posed, tol=1e-3, rng=np.random.RandomState(0), rule=rule)
    work, lanes = posed.workspace(solver.samples), posed.lanes(solver.samples)
    lanes.label[:L], lanes.iteration[:] = np.arange(L), -1
    return solver, work, lanes


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("C, bias, sparse", [(0.1, 1.0, True), (1.0, 0.0, False), (3.0, 2.0, True)])
def test_labels_reach_the_optimum_of_a_generic_method(C, bias, squared, sparse):
    rows = X if sparse else np.ascontiguousarray(X.toarray())
    solver, outcome = solve(problem(rows, Y[:, :2], C, bias, squared), prune_below=0.0)
    assert outcome.converged
    W = solver.solution().weights.toarray()
    for l in range(2):
        best, w = naive.dual_optimum(X.toarray(), Y[:, l], bias, C, squared)
        assert solver.primal[l] == pytest.approx(best, rel=1e-7)
        np.testing.assert_allclose(W[:, l], w, atol=2e-3)
    assert naive.primal(X, Y[:, :2], W, bias, C, squared=squared) == pytest.approx(
        outcome.certificate.primal, rel=1e-12
    )


@pytest.mark.parametrize("C, bias, sparse", [(0.1, 1.0, True), (1.0, 0.0, False), (30.0, 2.0, True)])
def test_newton_reaches_the_optimum_of_the_squared_hinge_loss(C, bias, sparse):
    rows = X if sparse else np.ascontiguousarray(X.toarray() * 2.0 ** np.arange(D))
    solver = LabelByLabel(problem(rows, Y[:, :2], C, bias, squared=True), tol=TOL)
    outcome = run(solver, Stopping(TOL, solver.n_epochs))
    assert outcome.converged
    W = solver.solution().weights.toarray()
    again = naive.primal(rows, Y[:, :2], W, bias, C, squared=True)
    assert outcome.certificate.primal == pytest.approx(again, rel=1e-12)
    if sparse:
        for l in range(2):
            best, w = naive.dual_optimum(X.toarray(), Y[:, l], bias, C, squared=True)
            assert solver.primal[l] == pytest.approx(best, rel=1e-6)
            np.testing.assert_allclose(W[:, l], w, atol=2e-3)


def test_squares_of_sparse_rows_are_those_of_a_product():
    near, weights = np.array([3, 50, 7, 8]), np.array([1.0, 2.0, 0.5, 3.0])
    system, Z = np.ones((D, D)), X.toarray()[near]
    add_squares(Rows.of(X).flat, near, weights, system)
    np.testing.assert_allclose(np.tril(system), np.tril(1 + Z.T @ (weights[:, None] * Z)), rtol=1e-13)
    np.testing.assert_array_equal(np.triu(system, 1), np.triu(np.ones((D, D)), 1))


def test_labels_that_are_not_done_are_left_to_newton_with_their_weights():
    given = {}

    class Noted(LabelByLabel):
        def solve(self, l, clock, start):
            given[l] = start
            return super().solve(l, clock, start)

    posed = problem(C=100.0, squared=True)
    rule, kept = BlockRule(tries_squared=3), lambda: Noted(posed, tol=TOL)
    assert solve(posed, fallback=kept, rule=rule)[1].converged and given
    left = solve(posed, max_rounds=3)[0].solution().weights.toarray()
    for l, start in given.items():
        np.testing.assert_array_equal(start, left[:, l])


def test_newton_comes_first_where_squares_of_sparse_rows_are_cheap():
    rng = np.random.default_rng(0)
    for columns, method in ((40, LabelByLabel), (400, LabelBlocks), (3000, LabelBlocks)):
        rows = sp.random_array((200, columns), density=4 / columns, format="csr", random_state=rng)
        posed = problem(rows, np.eye(200, 3, dtype=int), squared=True)
        solver = choice.default(posed, rng=np.random.RandomState(0), tol=1e-3)
        assert type(solver) is method
        if method is LabelBlocks:
            assert (solver.build_fallback is not None) == (columns == 400)


@pytest.mark.parametrize(
    "columns, squared, method",
    [(D, True, LabelByLabel), (D, False, LabelByLabel), (600, True, LabelBlocks), (600, False, LabelBlocks)],
)
def test_newton_is_for_few_features(columns, squared, method):
    rows = sp.csr_array(np.ones((3, columns)))
    posed = problem(rows, np.eye(3, dtype=int), squared=squared)
    assert type(choice.default(posed, rng=np.random.RandomState(0), tol=1e-3)) is method


@pytest.mark.parametrize("squared", [True, False])
def test_newton_drops_weights_within_the_gap_and_labels_it_has_no_time_for_are_off(squared):
    posed = problem(squared=squared)
    solver = LabelByLabel(posed, tol=1e-2, prune_below=0.05)
    solver.epoch(Clock(0.0))
    np.testing.assert_array_equal(solver.solution().weights.toarray()[-1], -1.0)
    whole = LabelByLabel(posed, tol=1e-2)
    culled = LabelByLabel(posed, tol=1e-2, prune_below=0.05)
    run(whole, Stopping(1e-2, whole.n_epochs))
    assert run(culled, Stopping(1e-2, culled.n_epochs)).converged
    assert culled.solution().weights.nnz < whole.solution().weights.nnz
    W = culled.solution().weights.toarray()
    assert naive.primal(X, Y, W, 1.0, squared=squared) == pytest.approx(culled.certify().primal, rel=1e-12)


@pytest.mark.parametrize("C, bias, sparse", [(0.1, 1.0, False), (1.0, 0.0, True), (30.0, 2.0, False)])
def test_newton_reaches_the_optimum_of_the_hinge_loss(C, bias, sparse):
    rows = X if sparse else np.ascontiguousarray(X.toarray())
    weight = RNG.integers(0, 3, N).astype(float)
    solver = LabelByLabel(problem(rows, Y[:, :2], C, bias, weight=weight), tol=TOL, n_threads=2)
    outcome = run(solver, Stopping(TOL, solver.n_epochs))
    assert outcome.converged
    W = solver.solution().weights.toarray()
    repeated = np.repeat(np.arange(N), weight.astype(int))
    for l in range(2):
        best, w = naive.dual_optimum(X.toarray()[repeated], Y[repeated, l], bias, C)
        assert solver.primal[l] == pytest.approx(best, rel=1e-7)
        np.testing.assert_allclose(W[:, l], w, atol=2e-3)


def test_few_dense_features_converge_block_by_block_as_they_do_at_once():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 4)) * [1.0, 30.0, 0.01, 1.0] + [0.0, 0.0, 0.0, 10.0]
    labels = (rng.random((60, 3)) < 0.5).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MultiLabelSVC(C=100.0, memory_limit=0, prune_below=0, n_jobs=2).fit(rows, labels)
        again = MultiLabelSVC(C=100.0, memory_limit=0, prune_below=0).fit(rows, labels)
        whole = MultiLabelSVC(C=100.0).fit(rows, labels)
    assert sp.issparse(model.coef_) and model.duality_gap_ <= model.tol
    assert model.primal_objective_ == pytest.approx(whole.primal_objective_, rel=2e-3)
    np.testing.assert_array_equal(model.coef_.toarray(), again.coef_.toarray())


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_labels_that_passes_do_not_bring_to_an_end_are_left_to_newton(loss):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 80)) * (rng.random((120, 80)) < 0.15) * 10.0 ** rng.uniform(-2, 2, 80)
    labels = (rng.random((120, 3)) < 0.4).astype(int)
    model = MultiLabelSVC(C=30, loss=loss, memory_limit=0, prune_below=0).fit(sp.csr_array(rows), labels)
    assert model.duality_gap_ <= model.tol
    dense = MultiLabelSVC(C=30, loss=loss, tol=1e-6, memory_limit=0, prune_below=0).fit(rows, labels)
    assert dense.primal_objective_ <= model.primal_objective_ * (1 + 1e-6)
    assert model.dual_objective_ <= dense.primal_objective_
    scores = rows @ model.coef_.toarray().T + model.intercept_
    hinge = np.maximum(0, 1 - np.where(labels > 0, 1, -1) * scores)
    norm = np.sum(model.coef_.toarray() ** 2) + np.sum(model.intercept_**2)
    primal = 0.5 * norm + 30 * np.sum(hinge ** (2 if loss == "squared_hinge" else 1))
    assert primal == pytest.approx(model.primal_objective_, rel=1e-9)


def test_a_rescued_label_keeps_the_better_answer():
    class Worse:
        stuck = ""

        def solve(self, l, clock, start):
            return Answer(np.zeros(D + 1), 1e9, 0.0)

    class Exact:
        stuck = ""

        def solve(self, l, clock, start):
            return answers[l]

    posed = problem(C=30.0)
    newton = LabelByLabel(posed, tol=1e-9)
    answers = [newton.solve(l, Clock()) for l in range(L)]
    rule = BlockRule(tries=2, newton=1e9)
    for method, better in ((Worse, False), (Exact, True)):
        solver, outcome = solve(posed, 1e-9, fallback=method, rule=rule)
        assert outcome.converged == better
        assert (solver.primal < 1e9).all()
    np.testing.assert_allclose(solver.solution().weights.toarray().T, [a.weights for a in answers], atol=1e-6)


def test_features_that_differ_too_much_are_named_where_rounding_stops_a_label():
    rng = np.random.default_rng(0)
    rows = np.column_stack([1e14 * (1 + 0.1 * rng.normal(size=30)), rng.normal(size=30)])
    labels = rng.random((30, 10)) < 0.5  # so many that one of them is stopped for certain
    # Rounding decides whether the solver or max_iter ends the fit: both name the features.
    with pytest.warns(ConvergenceWarning, match="scale the features"):
        MultiLabelSVC(C=1e6, memory_limit=0, tol=1e-9).fit(rows, labels)


def test_newton_says_where_features_are_too_long_for_the_squared_hinge_loss():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(72, 52))
    labels = (rows @ rng.normal(size=(52, 3)) > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match="scale the features or loosen tol"):
        MultiLabelSVC(loss="squared_hinge").fit(1e8 * rows, labels)
    assert MultiLabelSVC(loss="squared_hinge").fit(rows, labels).duality_gap_ <= 1e-3


@pytest.mark.parametrize(
    "mixed, squared, common", [(True, True, 8), (True, False, 40), (False, True, 400), (False, False, 8)]
)
def test_no_violator_hides_from_the_bounds(mixed, squared, common):
    # Words of very different frequency; few samples near a label, so that bounds pass most of them over.
    rng = np.random.default_rng(3)
    n, d = 400, 150
    rows = sp.csr_array((rng.random((n, d)) < 1 / np.arange(1, d + 1)) * rng.random((n, d)))
    if mixed:
        rows.data *= np.where(rng.random(rows.nnz) < 0.5, -1.0, 1.0)
    labels = (rng.random((n, 12)) < 0.02).astype(int)
    labels[0], labels[1] = 1, 0
    posed = problem(rows.astype(np.float32), labels, squared=squared)
    solver, outcome = solve(posed, 1e-4, prune_below=0.01, rule=BlockRule(common=common))
    assert outcome.converged
    W = solver.solution().weights.toarray()
    again = naive.primal(rows.astype(np.float32).astype(float), labels, W, 1.0, squared=squared)
    assert solver.certify().primal == pytest.approx(again, rel=1e-12)


@pytest.mark.parametrize("block", [1, 17, 100])
def test_every_block_size_gives_the_model_of_the_dense_path(block):
    dense = MultiLabelSVC(tol=1e-8, random_state=0).fit(X, Y)
    solver, outcome = solve(problem(), prune_below=0.0, rule=BlockRule(block=block))
    assert outcome.converged
    W = solver.solution().weights.toarray()
    np.testing.assert_allclose(W[:-1].T, dense.coef_, atol=1e-6 * np.abs(dense.coef_).max() + 2e-5)
    assert outcome.certificate.primal == pytest.approx(dense.primal_objective_, rel=1e-6)
    first, _ = solve(problem(), prune_below=0.0, rule=BlockRule(block=1))
    np.testing.assert_array_equal(W, first.solution().weights.toarray())


def test_threads_do_not_change_the_answer():
    one, _ = solve(problem(), rule=BlockRule(block=3))
    two, _ = solve(problem(), rule=BlockRule(block=3), n_threads=2)
    np.testing.assert_array_equal(one.solution().weights.toarray(), two.solution().weights.toarray())


def test_culled_weights_are_those_that_are_certified():
    whole, _ = solve(problem(), 1e-2, prune_below=0.0)
    solver, outcome = solve(problem(), 1e-2, prune_below=0.05)
    W = solver.solution().weights
    assert outcome.converged and W.nnz < whole.solution().weights.nnz
    assert naive.primal(X, Y, W.toarray(), 1.0) == pytest.approx(outcome.certificate.primal, rel=1e-12)
    assert np.all(solver.primal - solver.dual <= 1e-2 * solver.primal)


def test_a_background_carries_the_bias_of_labels_far_from_all_negatives():
    # Every sample has a word of its own, so no negative comes near the positive of a label.
    n = 400
    rows, labels = sp.eye_array(n, format="csr"), np.eye(n, dtype=int)[:, :2]
    solver, outcome = solve(problem(rows, labels), 1e-6)
    # By symmetry one number for all negatives, 2 / n, and one for the positive, its box.
    best = 1 + 2 * (n - 1) / n - 0.5 * (1 + 4 * (n - 1) / n**2) - 0.5 * (1 - 2 * (n - 1) / n) ** 2
    assert outcome.converged
    np.testing.assert_allclose(solver.primal, best, rtol=2e-6)


def test_weights_count_as_repeated_samples():
    weight = RNG.integers(0, 3, N).astype(float)
    repeated = np.repeat(np.arange(N), weight.astype(int))
    one = MultiLabelSVC(memory_limit=0, prune_below=0, tol=1e-8).fit(X, Y, sample_weight=weight)
    two = MultiLabelSVC(memory_limit=0, prune_below=0, tol=1e-8).fit(X[repeated], Y[repeated])
    assert one.primal_objective_ == pytest.approx(two.primal_objective_, rel=1e-7)
    np.testing.assert_allclose(one.coef_.toarray(), two.coef_.toarray(), atol=apart(one, two))


@pytest.mark.parametrize(
    "more",
    [
        {"class_weight": "balanced"},
        {"class_weight": {3: 4.0}},
        {"label_weight": np.linspace(0.5, 2, L)},
        {"label_margin": np.linspace(0.5, 2, L)},
        {"fit_intercept": False},
        {"intercept_scaling": 3.0},
    ],
)
def test_parameters_mean_what_they_mean_on_the_dense_path(more):
    dense = MultiLabelSVC(tol=1e-7, max_iter=5000, **more).fit(X, Y)
    sparse = MultiLabelSVC(tol=1e-7, max_iter=5000, memory_limit=0, prune_below=0, **more).fit(X, Y)
    assert sp.issparse(sparse.coef_) and not sp.issparse(dense.coef_)
    assert sparse.primal_objective_ == pytest.approx(dense.primal_objective_, rel=1e-6)
    scores = dense.decision_function(X)
    longest = np.sqrt(X.multiply(X).sum(axis=1).max() + 9)
    clear = np.abs(scores) > longest * apart(dense, sparse)
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(sparse.predict(X)[clear], dense.predict(X)[clear])


@pytest.mark.parametrize("kind", ["csr", "csc", "sets", "lists", "dense"])
def test_labels_of_every_kind(kind):
    y = {
        "csr": sp.csr_array(Y),
        "csc": sp.csc_matrix(Y),
        "sets": [set(np.flatnonzero(row).tolist()) for row in Y],
        "lists": [np.flatnonzero(row).tolist() * 2 for row in Y],
        "dense": Y,
    }[kind]
    model = MultiLabelSVC(memory_limit=0, random_state=0).fit(X, y)
    answer = model.predict(X)
    scores = model.decision_function(X)
    on = scores > 0
    if kind in ("sets", "lists"):
        assert [set(row) for row in answer] == [set(np.flatnonzero(row).tolist()) for row in on]
        assert type(answer[0]) is (set if kind == "sets" else list)
    else:
        found = answer.toarray() if sp.issparse(answer) else answer
        np.testing.assert_array_equal(found, on)
        assert sp.issparse(answer) == (kind != "dense")
        assert isinstance(answer, sp.csr_matrix) == (kind == "csc")


def test_constant_labels_empty_rows_and_one_sample():
    rows, labels = X.toarray(), Y.copy()
    rows[5:9] = 0
    labels[:, 2], labels[:, 4] = 0, 1
    with pytest.warns(UserWarning, match="Label 2, 4 is constant"):
        model = MultiLabelSVC(memory_limit=0, prune_below=0).fit(sp.csr_array(rows), sp.csr_array(labels))
    answer = model.predict(rows).toarray()
    assert not answer[:, 2].any() and answer[:, 4].all()
    assert list(np.flatnonzero(model.constant_labels_)) == [2, 4]
    np.testing.assert_allclose(model.decision_function(rows)[5], model.intercept_)


@pytest.mark.parametrize(
    "y, message",
    [
        (sp.coo_array((np.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(N, 3)), "duplicate entries"),
        (sp.csr_array(2 * Y), "other than 0 and 1"),
        (np.where(Y == 1, np.nan, 0.0), "unknown entries"),
        ([None, *({"a"} if i % 2 else {"b"} for i in range(1, N))], "unknown entries"),
        (sp.csr_array(Y[:-1]), "inconsistent numbers of samples"),
    ],
)
def test_labels_that_are_refused(y, message):
    for parameters in ({"memory_limit": 0}, {"loss": "squared_hinge"}):
        with pytest.raises(ValueError, match=message):
            MultiLabelSVC(**parameters).fit(X, y)


def test_squared_hinge_says_what_it_needs_and_certifies_itself():
    with pytest.raises(ValueError, match="needs solver='auto'"):
        MultiLabelSVC(loss="squared_hinge", kernel="rbf").fit(X, Y)
    model = MultiLabelSVC(loss="squared_hinge", tol=1e-4, prune_below=0.02, memory_limit=0).fit(X, Y)
    W = np.vstack([model.coef_.toarray().T, model.intercept_])
    assert model.duality_gap_ <= 1e-4
    assert model.primal_objective_ == pytest.approx(naive.primal(X, Y, W, 1.0, squared=True), rel=1e-12)


def test_a_fit_that_runs_out_of_time_keeps_the_labels_it_did_not_reach_off():
    posed = problem()
    solver = LabelBlocks(posed, tol=1e-3, rng=np.random.RandomState(0), rule=BlockRule(block=7))
    solver.epoch(Clock(0.0))
    rest = solver.solution().weights.toarray()
    np.testing.assert_array_equal(rest[-1], -1.0)
    assert not rest[:-1].any()
    assert naive.primal(X, Y, rest, 1.0) == pytest.approx(solver.certify().primal, rel=1e-12)
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        MultiLabelSVC(memory_limit=0, max_iter=1, tol=1e-9).fit(X, Y)


@pytest.mark.parametrize("memory_limit", [2048, 0])
def test_top_labels_are_those_of_the_sorted_scores(memory_limit):
    model = MultiLabelSVC(memory_limit=memory_limit, n_jobs=2).fit(X, Y)
    scores = model.decision_function(X)
    for k in (1, 5, L):
        labels, best = model.predict_top(X, k)
        expected, values = naive.top(scores, k)
        np.testing.assert_array_equal(labels, expected)
        np.testing.assert_allclose(best, values, rtol=1e-12)
    for k in (0, L + 1, 1.5, True):
        with pytest.raises(ValueError, match="k must be from 1"):
            model.predict_top(X, k)


def test_float32_empty_columns_and_model_file(tmp_path):
    wide = sp.csr_array((X.data, 50 * X.indices, X.indptr), shape=(N, 50 * D)).astype(np.float32)
    model = MultiLabelSVC(memory_limit=0, prune_below=0, tol=1e-6).fit(wide, sp.csr_array(Y))
    narrow = MultiLabelSVC(memory_limit=0, prune_below=0, tol=1e-6).fit(X, sp.csr_array(Y))
    assert model.primal_objective_ == pytest.approx(narrow.primal_objective_, rel=3e-6)
    # Single precision moves the rows by 1e-7, and the optimum by less than the gaps do.
    close = apart(model, narrow)
    np.testing.assert_allclose(model.coef_.toarray()[:, ::50], narrow.coef_.toarray(), atol=close)
    assert model.coef_.nnz == model.coef_[:, ::50].nnz
    maxmargin.save(model, tmp_path / "many.mm")
    again = maxmargin.load(tmp_path / "many.mm")
    assert again.coef_.format == "csc" and model.coef_.indices.dtype == np.int32
    np.testing.assert_array_equal(model.decision_function(wide), again.decision_function(wide))


def test_memory_decides_and_the_answer_fits_a_limit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not sp.issparse(MultiLabelSVC().fit(X, Y).coef_)
    small = MultiLabelSVC(memory_limit=0.01).fit(X, sp.csr_array(Y))
    assert sp.issparse(small.coef_)
    np.testing.assert_array_equal(small.predict(X).toarray(), small.decision_function(X) > 0)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_coefficients_that_fit_and_are_mostly_not_zero_are_dense(loss, n_labels, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 2))
    labels = (rows @ rng.normal(size=(2, n_labels)) + rng.normal(size=(50, n_labels)) > 0).astype(int)
    given = {"loss": loss, "prune_below": 0, "tol": 1e-8}
    dense = MultiLabelSVC(**given).fit(rows, labels)
    small = MultiLabelSVC(**given, memory_limit=0).fit(rows, labels)
    assert isinstance(dense.coef_, np.ndarray) and sp.issparse(small.coef_)
    np.testing.assert_allclose(dense.coef_, small.coef_.toarray(), atol=apart(dense, small))
    for model in (dense, small):
        maxmargin.save(model, tmp_path / "m.mm")
        again = maxmargin.load(tmp_path / "m.mm")
        assert type(again.coef_) is type(model.coef_)
        np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))


def test_squared_hinges_of_weights_that_are_mostly_zero_have_sparse_coefficients():
    rows = sp.hstack([X, sp.csr_array((N, 2 * D))], format="csr")
    assert isinstance(MultiLabelSVC(loss="squared_hinge").fit(X, Y).coef_, np.ndarray)
    assert sp.issparse(MultiLabelSVC(loss="squared_hinge").fit(rows, Y).coef_)


def test_violations_that_are_all_alike_are_found():
    # Negatives far from a label all miss its margin by the same; more than a list of them holds.
    n = 600
    rows = sp.csr_array((np.ones(n), (np.arange(n), np.arange(n) % 3)), shape=(n, 3))
    labels = np.zeros((n, 1), int)
    labels[:3] = 1
    solver, outcome = solve(problem(rows, labels), 1e-6, max_rounds=100)
    assert outcome.converged
    best, _ = naive.dual_optimum(rows.toarray(), labels[:, 0], 1.0)
    assert solver.primal[0] == pytest.approx(best, rel=2e-6)


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", [True, False])
def test_a_look_lists_what_dense_scores_say(sparse):
    posed = problem(X if sparse else np.ascontiguousarray(X.toarray()))
    lanes, stop = posed.lanes(posed.samples(16, 2, np.zeros(D))), posed.rows.indptr[1:]
    lanes.weights[:D] = 1000 * RNG.normal(size=(D, len(LANES)))
    lanes.limit[:] = np.linspace(-1000, 1000, len(LANES))
    lanes.limit[3] = np.inf  # a lane that is free
    scan(posed.rows.flat, stop, lanes)
    scores = X.toarray() @ lanes.weights[:D]
    for k in range(len(LANES)):
        expected = np.flatnonzero(scores[:, k] >= lanes.limit[k])
        found = lanes.n_found[k]
        np.testing.assert_array_equal(lanes.candidates[k, :found], expected)
        np.testing.assert_allclose(
            lanes.score[k, :found] / 1000, scores[expected, k] / 1000, rtol=1e-5, atol=1e-5
        )


@pytest.mark.nojit
def test_a_bias_that_too_many_samples_are_near_to_is_lowered():
    posed, step, rule_of_loops = problem(), 2, BlockRule(listed=1, least=4).for_loops(1e-3, 0.0, 10)
    samples = posed.samples(16, step, np.zeros(D))
    lanes = posed.lanes(samples)
    W, unit = RNG.integers(-9000, 9000, size=(D, len(LANES))), 1 / 4096
    lanes.weights[:D], lanes.unit[:] = W[samples.names], unit
    lanes.label[0], lanes.label[1] = 4, 2  # the others are free
    lanes.bias[:2], lanes.limit[:2] = [0.0, -9.0], [-1.0 / unit, 8.0 / unit]
    lanes.size[:2], lanes.n_on[:2], lanes.half_norm[:2] = 2, 1, [0.5, 41.0]
    lanes.active[:2, :2], lanes.deficit[:2, :2] = [0, 1], [2.0, 3.0]
    lanes.iteration[:2] = 1
    scan(samples.probe, samples.probe_stop, lanes)
    lower_biases(samples, posed.costs, rule_of_loops, posed.workspace(samples), lanes, step)
    # Two of every second sample may still violate the margin, but for ties of a level in 256.
    h = 1 + (X.toarray() @ (unit * W[:, 0]))[::step][1:]
    shift = -lanes.bias[0]
    assert np.sort(h)[-3] - h.max() / 256 <= shift <= np.sort(h)[-2] + h.max() / 256
    assert lanes.half_norm[0] == pytest.approx(0.5 + 0.5 * shift**2)
    np.testing.assert_allclose(lanes.deficit[0, :2], [2 + shift, 3 - shift])
    assert unit * lanes.limit[0] == pytest.approx(-1 + shift, abs=1e-5)
    assert unit * np.float64(lanes.limit[0]) <= -1 + shift
    assert lanes.bias[1] == -9.0 and lanes.half_norm[1] == 41.0  # nobody is near


@pytest.mark.nojit
@pytest.mark.parametrize(
    "bias, squared, sparse", [(1.0, False, True), (0.0, False, False), (2.0, True, True)]
)
def test_the_first_members_share_most_with_the_positives(bias, squared, sparse):
    rows = X if sparse else np.ascontiguousarray(X.toarray())
    posed, rule = problem(rows, bias=bias, squared=squared), BlockRule(candidates=1, least=3, common=20)
    solver, work, lanes = first_iteration(posed, rule)
    samples, costs, background, rule_of_loops = solver.samples, posed.costs, solver.shared, solver.loop_rule
    ascend(samples, costs, background, solver.on, rule_of_loops, solver.draws, work, lanes)
    scan(samples.rows, samples.stop, lanes)
    evaluate(samples, costs, background, rule_of_loops, work, lanes)
    for l in range(L):
        scores = naive.shared(X.toarray(), Y[:, l], *((20, 0.2) if sparse else (np.inf, 0.0)))
        members, on = lanes.active[l, : lanes.size[l]], np.flatnonzero(Y[:, l])
        np.testing.assert_array_equal(members[: len(on)], on)
        chosen, off = members[len(on) :], np.setdiff1d(np.flatnonzero(scores > 0), on)
        assert set(chosen) <= set(off) and min(1, len(off)) <= len(chosen) <= 3 + len(on)
        left = np.setdiff1d(off, chosen)
        # But for ties of a level in 256.
        worst = scores[chosen].min() if len(chosen) else 0.0
        assert scores[left].max(initial=0.0) <= worst + scores[off].max(initial=0.0) / 128


@pytest.mark.parametrize(
    "bias, squared, C, sparse",
    [(1.0, False, 1.0, True), (2.0, True, 1.0, False), (0.0, False, 1.0, True), (1.0, False, 30.0, False)],
)
def test_an_ascent_leaves_about_what_it_was_told(bias, squared, C, sparse):
    rows = X if sparse else np.ascontiguousarray(X.toarray())
    solver, work, lanes = first_iteration(
        problem(rows, bias=bias, squared=squared, C=C), BlockRule(passes=5000, begin=1e-4)
    )
    arguments = solver.samples, solver.problem.costs, solver.shared
    for turn in range(-1, 3):
        target = lanes.target.copy()
        ascend(*arguments, solver.on, solver.loop_rule, solver.draws, work, lanes)
        scan(solver.samples.rows, solver.samples.stop, lanes)
        alone = np.flatnonzero(lanes.u[:L] == 0) if turn >= 0 else []
        for k in alone:
            size, y = lanes.size[k], np.where(np.arange(lanes.size[k]) < lanes.n_on[k], 1.0, -1.0)
            part, alpha = X.toarray()[lanes.active[k, :size]], lanes.alpha[k, : lanes.size[k]]
            kept = slice(lanes.n_kept[k])
            w = np.zeros(D + 1)
            w[solver.names[lanes.features[k, kept]]], w[D] = lanes.values[k, kept], lanes.bias[k]
            # Members without alpha that miss no margin have left: they are in neither objective. The gaps
            # that a pass sees are those before its steps.
            primal = naive.primal(part, (y[:, None] > 0).astype(int), w[:, None], bias, C, squared=squared)
            assert -1e-9 <= primal - lanes.dual[k] <= 10 * target[k]
            Z = np.column_stack([part, np.full(size, bias)]) * y[:, None]
            ridge = np.sum(alpha**2) / (4 * C) if squared else 0.0
            assert lanes.dual[k] == pytest.approx(alpha.sum() - 0.5 * np.sum((Z.T @ alpha) ** 2) - ridge)
        evaluate(*arguments, solver.loop_rule, work, lanes)
        lanes.done[:] = False
    assert len(alone) > 0


def test_samples_without_features_do_not_swing_with_the_bias():
    rows = X.toarray()
    rows[5:9] = 0
    _, outcome = solve(problem(sp.csr_array(rows)), 1e-3, max_rounds=12)
    assert outcome.converged


def test_weights_are_shown_as_whole_numbers_that_hide_no_sample():
    solver, work, lanes = first_iteration(problem(), BlockRule())
    samples = solver.samples
    for _ in range(2):
        ascend(
            samples,
            solver.problem.costs,
            solver.shared,
            solver.on,
            solver.loop_rule,
            solver.draws,
            work,
            lanes,
        )
        scan(samples.rows, samples.stop, lanes)
        for k in range(L):
            kept, w = slice(lanes.n_kept[k]), np.zeros(D)
            w[lanes.features[k, kept]] = lanes.values[k, kept]
            shown = lanes.weights[:D, k]
            assert abs(shown).max() == 32767 and shown.dtype == np.int16
            np.testing.assert_allclose(lanes.unit[k] * shown, w, atol=0.51 * lanes.unit[k])
            scores, found = (
                X.toarray() @ w[np.argsort(solver.names[:D])],
                lanes.candidates[k, : lanes.n_found[k]],
            )
            least = -1 - lanes.bias[k] if lanes.iteration[k] else 1e-3
            assert set(np.flatnonzero(scores >= least)) <= set(found)
            assert np.all(scores[found] >= least - 1e-3)
        evaluate(samples, solver.problem.costs, solver.shared, solver.loop_rule, work, lanes)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_score_that_overflows_single_precision_is_looked_at_again():
    posed = problem(sp.csr_array(np.array([[1e37, 1e37], [1.0, 0.0]])), np.eye(2, dtype=int))
    lanes, stop = posed.lanes(posed.samples(16, 1, np.ones(2))), posed.rows.indptr[1:]
    lanes.weights[:2] = np.array([[30_000], [-30_000]])
    lanes.limit[:] = 40_000.0
    scan(posed.rows.flat, stop, lanes)
    np.testing.assert_array_equal(lanes.n_found, 1)
    np.testing.assert_array_equal(lanes.candidates[:, 0], 0)


def test_the_bias_that_is_stored_is_the_best_one_below():
    solver, _ = solve(problem(), 0.05, prune_below=0.05)
    W = solver.solution().weights.toarray()
    for l in range(L):
        at = naive.primal(X, Y[:, [l]], W[:, [l]], 1.0)
        for shift in np.linspace(0, 0.5, 50):
            lower = W[:, [l]] - shift * np.eye(1, D + 1, D).T
            assert naive.primal(X, Y[:, [l]], lower, 1.0) >= at * (1 - 1e-9)


def test_every_label_of_a_block_is_certified_by_itself():
    solver, _ = solve(problem(), 1e-4, rule=BlockRule(block=5))
    W = solver.solution().weights.toarray()
    for l in range(L):
        alone = naive.primal(X, Y[:, [l]], W[:, [l]], 1.0)
        assert solver.primal[l] == pytest.approx(alone, rel=1e-12)
        assert alone - solver.dual[l] <= 1e-4 * alone
        best, _ = naive.dual_optimum(X.toarray(), Y[:, l], 1.0)
        assert solver.dual[l] <= best + 1e-9 and solver.primal[l] >= best - 1e-6
