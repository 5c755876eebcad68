"""`LabelRanker`: known answers, the naive twin, guarantees, limit cases, growth."""

import json
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from maxmargin import LabelRanker
from maxmargin.core.loop import Clock
from maxmargin.core.rows import Rows
from maxmargin.ranking.entropy import EntropyState
from maxmargin.ranking.estimator import SOLVERS
from maxmargin.ranking.loops import Relevant
from maxmargin.ranking.problem import OnlineRanking, RankingProblem, SquaredState
from tests.naive import ranking as naive

KNOWN = json.loads((Path(__file__).parents[1] / "fixtures" / "ranking.json").read_text())
UPDATES = {"I": "fixed", "II": "worst_pair", "III": "all_pairs"}
REGULARISERS = {"l2": "squared", "ent": "entropy"}
SIX = [(update, regulariser) for update in UPDATES.values() for regulariser in REGULARISERS.values()]


def stream(seed, m=14, n=6, k=4, rows="binary", single=False):
    """A random stream: X dense, and the relevant labels as a boolean matrix."""
    rng = np.random.RandomState(seed)
    X = (rng.rand(m, n) < 0.5).astype(float)
    if rows == "scaled":
        X *= rng.choice([-0.75, 0.5, 1.25], (m, 1))
    elif rows == "real":
        X *= rng.randn(m, n)
    elif rows == "shifted":
        X = 0.5 + 1.5 * X
    elif rows == "dense":
        X = rng.randn(m, n)
    Y = rng.rand(m, k) < 0.4
    if single:
        Y = np.eye(k, dtype=bool)[rng.randint(k, size=m)]
    return X, Y


def sets(Y):
    return [set(np.flatnonzero(row).tolist()) for row in Y]


def ranker(update="all_pairs", regulariser="squared", **options):
    """The online algorithm: one pass in the order of the rows, by default."""
    given = {"max_iter": 1, "shuffle": False, "weighting": None, **options}
    return LabelRanker(update, regulariser, **given)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("case", KNOWN["sequences"], ids=lambda c: f"{c['F']}-{c['kind']}-{c['C']}")
def test_known_sequences(case, update, solver):
    if update not in case["runs"]:
        assert case["kind"] == "real" and case["F"] == "ent"
        return
    run = case["runs"][update]
    model = ranker(
        UPDATES[update], REGULARISERS[case["F"]], C=case["C"], margin=case["gamma"], solver=solver, trace=True
    )
    X = np.array(case["X"], float)
    model.partial_fit(X, [set(labels) for labels in case["Y"]], classes=range(case["k"]))
    np.testing.assert_array_equal(model.trace_["mistake"], run["mistakes"])
    assert model.n_mistakes_ == run["M"] and model.n_rounds_ == len(X)
    np.testing.assert_allclose(model.trace_["loss"], run["loss"], atol=1e-8)
    np.testing.assert_allclose(model.trace_["gain"], run["gain"], atol=1e-8)
    np.testing.assert_allclose(model.coef_, run["W"], atol=1e-8)
    assert model.dual_objective_ == pytest.approx(run["D"], abs=1e-8)
    assert model.dual_objective_ <= case["competitor_P"] + 1e-6
    assert model.step_gap_ < 1e-9


@pytest.mark.parametrize("rows", ["binary", "scaled", "real", "shifted", "dense"])
@pytest.mark.parametrize(("update", "regulariser"), SIX)
def test_rounds_equal_the_naive_twin(update, regulariser, rows):
    """Weights after every single round; dense and CSR."""
    m = 5 if (update, regulariser) == ("all_pairs", "entropy") else 14
    X, Y = stream(7, m=m, rows=rows)
    X[2] = 0.0
    if regulariser == "entropy":
        X[3] = 2.5  # constant: moves nothing
    C, margin = 0.75, 0.625  # sums of these are exact: ties are the same everywhere
    twin = naive.NaiveRanker(Y.shape[1], X.shape[1], update, regulariser, margin, C)
    options = {"C": C, "margin": margin, "trace": True}
    dense, sparse = ranker(update, regulariser, **options), ranker(update, regulariser, **options)
    for i in range(m):
        mistake, loss, gain = twin.round(X[i], Y[i])
        dense.partial_fit(X[i : i + 1], sets(Y[i : i + 1]), classes=range(Y.shape[1]))
        sparse.partial_fit(sp.csr_array(X[i : i + 1]), sets(Y[i : i + 1]), classes=range(Y.shape[1]))
        for model in (dense, sparse):
            last = model.trace_[-1]
            assert last["mistake"] == mistake
            assert last["loss"] == pytest.approx(loss, abs=1e-9)
            assert last["gain"] == pytest.approx(gain, abs=1e-9)
            np.testing.assert_allclose(model.coef_, twin.W, atol=1e-8)
            np.testing.assert_allclose(model.label_scores(X), X @ twin.W.T, atol=1e-8)


@pytest.mark.nojit
@pytest.mark.parametrize(("update", "regulariser"), SIX)
def test_twin_without_compilation(update, regulariser):
    X, Y = stream(11, m=3, n=4, k=3)
    Y[0] = [True, False, False]
    twin = naive.NaiveRanker(3, 4, update, regulariser, 0.5, 0.7)
    model = ranker(update, regulariser, C=0.7, margin=0.5).partial_fit(X, sets(Y), classes=range(3))
    for x, relevant in zip(X, Y, strict=True):
        twin.round(x, relevant)
    np.testing.assert_allclose(model.coef_, twin.W, atol=1e-8)


@pytest.mark.parametrize(("update", "regulariser"), SIX)
@pytest.mark.parametrize("rows", ["binary", "real"])
def test_guarantees(update, regulariser, rows):
    """Gains are never negative, pay for mistakes, add up to the dual, and stay below any competitor."""
    rng = np.random.RandomState(0)
    X, Y = stream(1, m=60, n=8, k=5, rows=rows)
    margin, C = 0.5, 0.15
    model = ranker(update, regulariser, C=C, margin=margin, trace=True)
    model.partial_fit(X, sets(Y), classes=range(5))
    gains = model.trace_["gain"]
    assert model.dual_objective_ == pytest.approx(gains.sum())
    if update != "fixed":
        assert gains.min() >= -1e-12
    smallest = margin * C - model.curvature_ * C**2
    assert (gains[model.trace_["mistake"]] >= smallest - 1e-12).all()
    if update != "fixed":
        loss = model.trace_["loss"]
        kappa = (X**2).sum(1) if regulariser == "squared" else np.ptp(X, axis=1) ** 2 / 4
        with np.errstate(divide="ignore", invalid="ignore"):
            floor = np.where(loss <= 2 * kappa * C, loss**2 / (4 * kappa), C * loss - kappa * C**2)
        assert (gains >= np.nan_to_num(floor, nan=0.0) - 1e-12).all()
    assert model.n_mistakes_ * smallest <= model.dual_objective_ + 1e-12
    for _ in range(20):
        W = rng.randn(5, 8)
        if regulariser == "entropy":
            W = naive.softmax(W)
        losses = sum(naive.loss(W @ x, y, margin) for x, y in zip(X, Y, strict=True))
        primal = naive.complexity(W, regulariser) + C * losses
        assert model.dual_objective_ <= primal + 1e-9
        bound = model.mistake_bound(W, X, sets(Y))
        assert bound == pytest.approx(primal / smallest if smallest > 0 else np.inf)
        assert model.n_mistakes_ <= bound


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("regulariser", ["squared", "entropy"])
def test_dual_stays_below_the_optimum_of_a_generic_solver_and_reaches_it(regulariser, solver):
    cvxpy = pytest.importorskip("cvxpy")
    X, Y = stream(4, m=12, n=5, k=3)
    margin, C = 0.4, 0.5
    W = cvxpy.Variable((3, 5))
    losses = 0
    for x, relevant in zip(X, Y, strict=True):
        if relevant.any() and not relevant.all():
            p = W @ x
            lead = cvxpy.min(p[relevant]) - cvxpy.max(p[~relevant])
            losses += cvxpy.pos(margin - lead)
    if regulariser == "squared":
        objective, constraints = 0.5 * cvxpy.sum_squares(W) + C * losses, []
    else:
        entropy = -cvxpy.sum(cvxpy.entr(W)) + 3 * np.log(5)
        objective, constraints = entropy + C * losses, [cvxpy.sum(W, axis=1) == 1]
    best = cvxpy.Problem(cvxpy.Minimize(objective), constraints).solve(solver="CLARABEL")
    for update in UPDATES.values():
        online = ranker(update, regulariser, C=C, margin=margin).partial_fit(X, sets(Y), classes=range(3))
        assert online.dual_objective_ <= best + 1e-7
    model = ranker("all_pairs", regulariser, C=C, margin=margin, max_iter=3000, tol=1e-8, random_state=0)
    model.set_params(solver=solver).fit(X, sets(Y))
    assert all(record["dual"] <= record["primal"] + 1e-10 for record in model.history_)
    assert model.primal_objective_ == pytest.approx(best, abs=1e-6)
    assert model.dual_objective_ == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("update", "regulariser"), SIX)
@pytest.mark.parametrize("rows", ["scaled", "real"])
def test_passes_raise_the_dual(update, regulariser, rows):
    X, Y = stream(5, m=30, n=8, k=4, rows=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ranker(update, regulariser, C=0.5, margin=0.4, max_iter=40, tol=0.0, random_state=1)
        model.fit(X, sets(Y))
    duals = [record["dual"] for record in model.history_]
    assert (np.diff(duals) >= -1e-10).all()
    assert all(record["dual"] <= record["primal"] + 1e-10 for record in model.history_)
    assert model.dual_objective_ == pytest.approx(duals[-1], abs=1e-9)
    W = model.coef_
    losses = sum(naive.loss(W @ x, y, 0.4) for x, y in zip(X, Y, strict=True))
    assert model.primal_objective_ == pytest.approx(naive.complexity(W, regulariser) + 0.5 * losses)


def passes(regulariser, dtype=np.float64, **options):
    """A solver on a small sample that remembers its steps."""
    X, Y = stream(5, m=30, n=8, k=4)
    rows, on = Rows.of(X.astype(dtype)), np.nonzero(Y)
    state = (SquaredState if regulariser == "squared" else EntropyState)(8, np.dtype(dtype))
    state.declare(4)
    relevant = Relevant(np.searchsorted(on[0], np.arange(31)), on[1])
    return OnlineRanking(
        RankingProblem(0.4, 0.5), state, rows, relevant, state.inspect(rows), remember=True,
        random_state=np.random.RandomState(0), **options,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("regulariser", ["squared", "entropy"])
def test_certificates_change_nothing(regulariser, dtype):
    plain, watched = passes(regulariser, dtype, renewal=3), passes(regulariser, dtype, renewal=3)
    for _ in range(8):
        plain.epoch(Clock())
        watched.epoch(Clock())
        before = watched.state.weights()
        certificate, solution = watched.certify(), watched.solution()
        assert certificate == watched.certify() and solution is watched.solution()
        np.testing.assert_array_equal(watched.state.weights(), before)
        kept = solution.weights()
        if watched.best.are_last:
            np.testing.assert_allclose(kept, before, atol=1e-12 if dtype == np.float64 else 1e-6)
        assert certificate.dual == pytest.approx(watched.state.dual, abs=1e-6) and certificate.gap >= 0
        watched.epoch(Clock())
        plain.epoch(Clock())
        np.testing.assert_array_equal(solution.weights(), kept)
    np.testing.assert_array_equal(plain.state.weights(), watched.state.weights())
    assert plain.certify() == watched.certify()


@pytest.mark.parametrize("regulariser", ["squared", "entropy"])
def test_pieces_of_any_size_give_the_same_rounds(regulariser):
    whole = passes(regulariser)
    for cut in ({"most_rounds": 7}, {"most_entries": 20}, {"most_entries": 1}):
        parts = passes(regulariser, **cut)
        assert parts.learn() == whole.rows.shape[0]
        if not whole.records:
            whole.learn()
        np.testing.assert_array_equal(np.concatenate(parts.records), np.concatenate(whole.records))
        np.testing.assert_array_equal(parts.state.weights(), whole.state.weights())


def test_a_single_class_warns_and_is_predicted():
    with pytest.warns(UserWarning, match="a single class .'ant'.; the model will always predict it"):
        model = ranker().fit(np.eye(3), ["ant"] * 3)
    assert model.predict(np.eye(3)).tolist() == ["ant"] * 3


def test_a_callback_sees_the_model_of_the_epoch():
    X, Y = stream(5, m=30, n=8, k=4)
    seen = []

    class Watcher:
        def setup(self, estimator, context): ...

        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "epoch":
                seen.append(fitted_estimator)

    given = {"C": 0.5, "margin": 0.4, "max_iter": 5, "tol": 0.0, "random_state": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        watched = ranker(**given).set_callbacks(Watcher()).fit(X, sets(Y))
        plain = ranker(**given).fit(X, sets(Y))
        third = ranker(**{**given, "max_iter": 3}).fit(X, sets(Y))
    np.testing.assert_array_equal(watched.coef_, plain.coef_)
    assert len(seen) == 5
    np.testing.assert_array_equal(seen[2].coef_, third.coef_)
    assert seen[-1].predict(X) == plain.predict(X)


def test_single_labels_give_crammer_singer():
    rng = np.random.RandomState(0)
    X = rng.randn(60, 5)
    y = np.argmax(X @ rng.randn(5, 3) + 0.5 * rng.randn(60, 3), axis=1)
    ours = ranker(C=0.3, max_iter=3000, tol=1e-7, random_state=0).fit(X, y)
    theirs = LinearSVC(
        multi_class="crammer_singer", C=0.3, fit_intercept=False, tol=1e-10, max_iter=100000, random_state=0
    ).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
    assert ours.duality_gap_ <= 1e-7


def test_too_few_passes_warn_if_more_than_five_are_allowed():
    X, Y = stream(5, m=30, n=8, k=4, rows="real")
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        ranker(max_iter=6, tol=1e-9).fit(X, sets(Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ranker(max_iter=5, tol=1e-9).fit(X, sets(Y))
    assert model.n_iter_ == 5 and 0 < model.duality_gap_ <= 1
    assert model.dual_objective_ <= model.primal_objective_


@pytest.mark.parametrize("kind", ["classes", "sets"])
@pytest.mark.parametrize("dense", [True, False])
def test_fit_shuffles_and_partial_fit_does_not(kind, dense):
    X, Y = stream(3, m=40, n=8, rows="real", single=kind == "classes")
    X = X if dense else sp.csr_array(X)
    y = Y.argmax(axis=1) if kind == "classes" else sets(Y)
    order = np.random.RandomState(7).permutation(40)
    shuffled = LabelRanker(max_iter=1, random_state=7).fit(X, y)
    by_hand = ranker().fit(X[order], [y[i] for i in order])
    np.testing.assert_array_equal(shuffled.coef_, by_hand.coef_)
    assert shuffled.n_mistakes_ == by_hand.n_mistakes_ and shuffled.threshold_ == by_hand.threshold_
    online = LabelRanker(random_state=7).partial_fit(X, y, classes=range(4))
    np.testing.assert_array_equal(online.coef_, ranker().fit(X, y).coef_)
    assert hasattr(by_hand, "history_") and not hasattr(by_hand.partial_fit(X, y), "history_")


def test_more_passes_than_memory_are_refused():
    X, y = sp.csr_array((1 << 20, 2)), np.arange(1 << 20)
    with pytest.raises(MemoryError, match="max_iter=1"):
        LabelRanker().fit(X, y)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(SIX),
    st.sampled_from(["binary", "scaled", "dense"]),
    st.lists(st.integers(1, 39), max_size=4, unique=True),
    st.booleans(),
)
def test_chunks_equal_one_call(seed, algorithm, rows, cuts, as_sets):
    """Labels and columns occur for the first time anywhere; chunk borders do not matter."""
    X, Y = stream(seed, m=40, n=10, k=6, rows=rows, single=not as_sets)
    X[:20, 5:] = 0.0
    X = sp.csr_array(X)
    y = sets(Y) if as_sets else np.array(list("cafebd"))[Y.argmax(1)]
    whole, parts = (ranker(*algorithm, C=0.5, margin=0.3, trace=True) for _ in range(2))
    whole.partial_fit(X, y)
    borders = [0, *sorted(cuts), 40]
    for a, b in pairwise(borders):
        parts.partial_fit(X[a:b], y[a:b])
    assert whole.classes_.tolist() == parts.classes_.tolist()
    np.testing.assert_allclose(whole.coef_, parts.coef_, atol=1e-8)
    np.testing.assert_array_equal(whole.trace_["mistake"], parts.trace_["mistake"])
    assert whole.n_first_occurrences_ == parts.n_first_occurrences_
    assert whole.threshold_ == pytest.approx(parts.threshold_)


@pytest.mark.parametrize(("update", "regulariser"), SIX)
def test_a_new_label_starts_from_scratch_and_keeps_the_guarantee(update, regulariser):
    X, Y = stream(9, m=50, n=8, k=5, single=True)
    y = Y.argmax(1)
    margin, C = 0.5, 0.12
    model = ranker(update, regulariser, C=C, margin=margin, trace=True).partial_fit(X, y)
    order = list(dict.fromkeys(y.tolist()))
    assert model.classes_.tolist() == order
    assert model.n_first_occurrences_ == 5
    born = np.array([np.flatnonzero(y == label)[0] for label in order])
    twin = naive.NaiveRanker(5, 8, update, regulariser, margin, C)
    full = twin.theta
    wrong = 0
    for i in range(50):
        known = int((born <= i).sum())
        twin.theta = full[:known]
        relevant = np.array(order[:known]) == y[i]
        mistake, _, gain = twin.round(X[i], relevant)
        wrong += mistake and i in born
        assert model.trace_["mistake"][i] == mistake
        assert model.trace_["gain"][i] == pytest.approx(gain, abs=1e-9)
    assert model.n_first_mistakes_ == wrong
    W = naive.softmax(np.random.RandomState(0).randn(5, 8))
    losses = sum(
        naive.loss(W[born <= i] @ X[i], (np.array(order) == y[i])[born <= i], margin) for i in range(50)
    )
    primal = naive.complexity(W, regulariser) + C * losses
    smallest = margin * C - model.curvature_ * C**2
    assert model.n_mistakes_ * smallest <= model.dual_objective_ <= primal
    assert model.mistake_bound(W, X, y) == pytest.approx(primal / smallest if smallest > 0 else np.inf)


@pytest.mark.parametrize("regulariser", ["squared", "entropy"])
def test_two_labels_make_the_last_two_updates_equal(regulariser):
    X, Y = stream(3, m=60, k=2, single=True)
    options = {"regulariser": regulariser, "C": 0.9, "margin": 0.4}
    second, third = (ranker(update, **options) for update in ("worst_pair", "all_pairs"))
    second, third = second.partial_fit(X, Y.argmax(1)), third.partial_fit(X, Y.argmax(1))
    np.testing.assert_allclose(second.coef_, third.coef_, atol=1e-11)
    assert second.n_mistakes_ == third.n_mistakes_


def test_fixed_step_squared_is_the_ranking_perceptron():
    X, Y = stream(6, m=80, rows="real")
    W = np.zeros((4, 6))
    wrong = []
    for x, relevant in zip(X, Y, strict=True):
        p = W @ x
        wrong.append(relevant.any() and not relevant.all() and p[relevant].min() <= p[~relevant].max())
        if wrong[-1]:
            r = min(np.flatnonzero(relevant), key=lambda y, p=p: p[y])
            s = max(np.flatnonzero(~relevant), key=lambda y, p=p: p[y])
            W[r] += x
            W[s] -= x
    for C, margin in ((1.0, 1.0), (7.0, 0.2), (0.25, 3.0)):
        model = ranker("fixed", C=C, margin=margin, trace=True).partial_fit(X, sets(Y), classes=range(4))
        np.testing.assert_array_equal(model.trace_["mistake"], wrong)
        np.testing.assert_allclose(model.coef_, C * W, atol=1e-9)


@pytest.mark.parametrize("update", UPDATES.values())
def test_entropy_invariances(update):
    X, Y = stream(8, m=12, rows="real")
    one = ranker(update, "entropy", C=0.6, margin=0.3).fit(X, sets(Y))
    scaled = ranker(update, "entropy", C=0.2, margin=0.9).fit(3 * X, sets(Y))
    shifted = ranker(update, "entropy", C=0.6, margin=0.3).fit(X + 2.0, sets(Y))
    np.testing.assert_allclose(one.coef_, scaled.coef_, atol=1e-8)
    np.testing.assert_allclose(one.coef_, shifted.coef_, atol=1e-8)


@pytest.mark.parametrize("rounds", [10**4, pytest.param(10**6, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("update", "regulariser"), SIX)
def test_long_streams_with_a_large_c_stay_finite(update, regulariser, rounds):
    rng = np.random.RandomState(0)
    X = sp.random_array((5000, 30), density=0.2, random_state=0, format="csr")
    X.data[:] = 1.0
    y = rng.randint(6, size=5000)
    model = ranker(update, regulariser, C=1e3, margin=0.5)
    for _ in range(rounds // 5000):
        model.partial_fit(X, y)
    assert model.n_rounds_ == rounds
    assert np.isfinite(model.coef_).all() and np.isfinite(model.dual_objective_)
    if regulariser == "entropy":
        np.testing.assert_allclose(model.coef_.sum(axis=1), 1.0, atol=1e-9)
    assert np.isfinite(model.label_scores(X)).all()
    assert model.step_gap_ < 1e-9


def test_margin_out_of_reach_takes_the_full_step():
    X, Y = stream(3, m=20, single=True)
    with pytest.warns(UserWarning, match="smaller margin"):
        model = ranker("worst_pair", "entropy", margin=1.0, C=0.3, trace=True).fit(X, Y.argmax(1))
    assert (model.trace_["loss"] > 0).all()


def test_averaging_is_the_mean_over_rounds():
    X, Y = stream(12, m=30, rows="real")
    current = ranker("worst_pair")
    total = np.zeros((4, 6))
    for i in range(30):
        current.partial_fit(X[i : i + 1], sets(Y[i : i + 1]), classes=range(4))
        total += current.coef_
    model = ranker("worst_pair", average=True).partial_fit(X, sets(Y), classes=range(4))
    np.testing.assert_allclose(model.coef_, total / 30, atol=1e-12)
    np.testing.assert_allclose(model.label_scores(X), X @ (total / 30).T, atol=1e-12)
    assert model.n_mistakes_ == current.n_mistakes_


@pytest.mark.parametrize(("update", "regulariser"), SIX)
def test_input_kinds_give_the_same_model(update, regulariser):
    X, Y = stream(13, m=40, n=12, rows="scaled")
    options = {"C": 0.5, "margin": 0.3}
    base = ranker(update, regulariser, **options).fit(X, sets(Y))
    frozen = X.copy()
    frozen.flags.writeable = False
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    explicit = sp.csr_array(np.where(X == 0, 9.0, X))
    explicit.data[explicit.data == 9.0] = 0.0
    for other in (frozen, sp.csr_array(X), sp.csc_matrix(X), wide, explicit, np.asfortranarray(X)):
        model = ranker(update, regulariser, **options).fit(other, sets(Y))
        np.testing.assert_allclose(model.coef_, base.coef_, atol=1e-12)
    single = ranker(update, regulariser, **options).fit(X.astype(np.float32), sets(Y))
    np.testing.assert_allclose(single.coef_, base.coef_, atol=2e-5)
    if regulariser == "squared":
        assert single.coef_.dtype == np.float32


@pytest.mark.parametrize("regulariser", ["squared", "entropy"])
def test_a_wide_feature_space_equals_padding(regulariser):
    X, Y = stream(14, m=40, n=10)
    update, options = "all_pairs", {"C": 0.5, "margin": 0.3}
    padded = ranker(update, regulariser, **options).fit(np.hstack([X, np.zeros((40, 15))]), sets(Y))
    wide = ranker(update, regulariser, n_features=25, **options).fit(X, sets(Y))
    np.testing.assert_allclose(wide.coef_, padded.coef_, atol=1e-12)
    assert wide.n_features_in_ == 25 and wide.label_scores(X[:, :3]).shape == (40, 4)
    fresh = np.zeros((1, 25))
    fresh[0, 20] = 1.0
    np.testing.assert_allclose(wide.label_scores(fresh), fresh @ padded.coef_.T, atol=1e-12)
    with pytest.raises(ValueError, match="n_features=25"):
        wide.predict(np.zeros((1, 26)))


def test_a_growing_feature_space():
    X, Y = stream(15, m=40, n=10)
    X[:20, 6:] = 0.0
    base = ranker().partial_fit(X, sets(Y), classes=range(4))
    grown = ranker(n_features="grow").partial_fit(X[:20, :6], sets(Y[:20]), classes=range(4))
    grown.partial_fit(X[20:], sets(Y[20:]))
    np.testing.assert_allclose(grown.coef_, base.coef_, atol=1e-12)
    np.testing.assert_allclose(
        grown.label_scores(np.ones((1, 14))), base.label_scores(np.ones((1, 10))), atol=1e-12
    )


def test_rounds_without_pairs_change_nothing():
    X = np.eye(3)
    model = ranker().partial_fit(X, [set(), {0, 1, 2}, set()], classes=range(3))
    assert model.n_mistakes_ == 0 and not model.coef_.any() and model.dual_objective_ == 0
    for regulariser in REGULARISERS.values():
        model = ranker(regulariser=regulariser, C=0.3, margin=0.5)
        model.partial_fit(np.zeros((2, 3)), ["a", "b"], classes=["a", "b"])
        assert model.n_mistakes_ == 2 and model.dual_objective_ == pytest.approx(2 * 0.5 * 0.3)
        assert np.ptp(model.coef_) == 0


def test_label_kinds_and_prediction_rules():
    X, Y = stream(16, m=60, n=12)
    Y = np.column_stack([X[:, :3] > 0, ~(X[:, 0] > 0)])
    base = ranker().fit(X, sets(Y))
    on = base.label_scores(X) > base.threshold_
    assert base.predict(X) == sets(on)
    assert np.mean(on == Y) > 0.8
    indicator = ranker().fit(X, Y.astype(int))
    np.testing.assert_array_equal(indicator.predict(X), on.astype(int))
    np.testing.assert_array_equal(ranker().fit(X, sp.csr_array(Y.astype(int))).predict(X).toarray(), on)
    top = ranker(n_predicted=2).fit(X, Y.astype(int))
    assert (top.predict(X).sum(axis=1) == 2).all()
    ranks = top.rank(X)
    for row, order in zip(top.predict(X), ranks, strict=True):
        assert set(np.flatnonzero(row)) == set(order[:2])
    scores = np.take_along_axis(top.label_scores(X), ranks.astype(int), axis=1)
    assert (np.diff(scores, axis=1) <= 0).all()
    frames = pytest.importorskip("pandas")
    labels = frames.DataFrame({f"l{k}": Y[:, k].astype(int) for k in range(4)})
    model = ranker().fit(X, labels)
    assert model.classes_.tolist() == list(model.predict(X).columns) == ["l0", "l1", "l2", "l3"]
    np.testing.assert_array_equal(model.predict(X), on)


KINDS = "keep to one kind"
X_WRONG, Y_WRONG = stream(18, m=10)
CODES, ONES = np.arange(10) % 3, np.ones((4, 6))
# The call on a ranker, the error, and what its message names.
WRONG = {
    "unknown label": (lambda r: r.fit(X_WRONG, np.where(np.eye(10, 4, -3), np.nan, Y_WRONG)), "row 3"),
    "missing value": (lambda r: r.fit(np.where(X_WRONG == 1, np.nan, X_WRONG), sets(Y_WRONG)), "NaN"),
    "indicator": (lambda r: r.partial_fit(X_WRONG, CODES).partial_fit(X_WRONG, Y_WRONG.astype(int)), KINDS),
    "sets": (lambda r: r.partial_fit(X_WRONG, CODES).partial_fit(X_WRONG, sets(Y_WRONG)), KINDS),
    "no class": (lambda r: r.partial_fit(X_WRONG, CODES).partial_fit(X_WRONG, CODES + np.nan), "no classes"),
    "type": (lambda r: r.partial_fit(X_WRONG, CODES).partial_fit(X_WRONG, list("abababcdcd")), "one type"),
    "width": (lambda r: r.partial_fit(X_WRONG, Y_WRONG + 0).partial_fit(X_WRONG, np.eye(10, 2)), "columns"),
    "length": (lambda r: r.fit(X_WRONG, sets(Y_WRONG)[:5]), "inconsistent"),
    "C": (lambda r: r.set_params(C=np.inf).fit(X_WRONG, CODES), "range"),
    "solver": (lambda r: r.set_params(solver="exact").fit(X_WRONG, CODES), "was removed; use solver='auto'"),
    "entropy grows": (
        lambda r: r.set_params(regulariser="entropy", n_features="grow").fit(X_WRONG, CODES), "squared",
    ),
    "entropy average": (
        lambda r: r.set_params(regulariser="entropy", average=True).fit(X_WRONG, CODES), "squared",
    ),
    "unmet label": (lambda r: r.fit(X_WRONG, CODES).mistake_bound(ONES[:3], X_WRONG, CODES + 1), "not met"),
    "shape of W": (lambda r: r.fit(X_WRONG, CODES).mistake_bound(ONES, X_WRONG, CODES), "shape"),
    "rounds": (lambda r: r.fit(X_WRONG, CODES).mistake_bound(ONES[:3], X_WRONG[:4], CODES[:4]), "10 rounds"),
    "simplex": (
        lambda r: r.set_params(regulariser="entropy").fit(X_WRONG, CODES).mistake_bound(
            ONES[:3], X_WRONG, CODES
        ),
        "sum to one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", WRONG)
def test_wrong_calls_name_what_to_change(call):
    with pytest.raises(ValueError, match=WRONG[call][1]):
        WRONG[call][0](ranker())
    with pytest.raises(AttributeError, match="trace"):
        _ = ranker().fit(X_WRONG, CODES).trace_


@pytest.mark.parametrize("regulariser", ["squared", "entropy"])
def test_a_chunk_too_large_for_the_memory_changes_nothing(monkeypatch, regulariser):
    """A chunk that cannot be held leaves the ranker as it was."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 9)), rng.integers(3, size=40)
    X[:20, 5:] = 0
    ranker, other = (LabelRanker(regulariser=regulariser).partial_fit(X[:20], y[:20]) for _ in range(2))

    def nothing_left(*sizes):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(type(ranker._state), "_allocate", nothing_left)
        with pytest.raises(MemoryError):
            ranker.partial_fit(X[20:], y[20:])
    assert ranker._state.slots.max() == 4
    ranker.partial_fit(X[20:], y[20:])
    other.partial_fit(X[20:], y[20:])
    np.testing.assert_array_equal(ranker.decision_function(X), other.decision_function(X))
