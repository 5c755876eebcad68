"""ChainSVC: the scikit-learn surface, input kinds, limit cases."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.svm import LinearSVC

from maxmargin import ChainSVC, LatentSVC, metrics
from maxmargin.structured.chain import SOLVERS


def words(n=30, seed=0, K=3, f=5, longest=6, noise=1.0):
    """Sequences from a chain in which a label is mostly followed by the next one."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(K, f))
    X, y = [], []
    for _ in range(n):
        L = rng.integers(1, longest + 1)
        z = [rng.integers(K)]
        while len(z) < L:
            z.append((z[-1] + 1) % K if rng.random() < 0.8 else rng.integers(K))
        X.append(centres[z] + noise * rng.normal(size=(L, f)))
        y.append("".join("abc"[k] for k in z))
    return X, y


X, Y = words()
STACKED, LENGTHS = np.concatenate(X), [len(x) for x in X]
LETTERS = np.array(list("".join(Y)))


def fitted(**options):
    return ChainSVC(C=0.5, random_state=0, **options).fit(X, Y)


def test_transitions_help_beyond_the_training_set():
    unseen, truth = words(60, seed=1)
    alone = ChainSVC(C=0.5, tol=1e-9, random_state=0).fit(STACKED, LETTERS)
    joint = fitted(tol=1e-9)
    assert joint.score(unseen, truth) > alone.score(np.concatenate(unseen), list("".join(truth))) + 0.05
    assert joint.score(unseen, truth) == metrics.letter_accuracy(truth, joint.predict(unseen))


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_agree(solver):
    tol = 0.2 if solver == "oeg" else 3e-2
    model = ChainSVC(C=0.05, solver=solver, tol=tol, max_iter=20_000, random_state=0).fit(X, Y)
    exact = ChainSVC(C=0.05, tol=1e-8, max_iter=20_000).fit(X, Y)
    assert model.duality_gap_ <= tol and exact.duality_gap_ <= 1e-8
    assert model.dual_objective_ <= exact.primal_objective_ + 1e-9
    assert exact.dual_objective_ - 1e-9 <= model.primal_objective_
    for record in model.history_:
        assert record["dual"] <= exact.primal_objective_ + 1e-9
        assert record["primal"] >= exact.dual_objective_ - 1e-9
        assert record["gap"] >= 0


@pytest.mark.parametrize(("n_classes", "scaling"), [(2, 1.0), (3, 1.0), (3, 2.5)])
def test_sequences_of_length_one_are_a_multiclass_problem(n_classes, scaling):
    """first, last and bias act on the same node: one constant column of sqrt(3) intercept_scaling."""
    rows, labels = STACKED, np.where(LETTERS == "c", "b", LETTERS) if n_classes == 2 else LETTERS
    chain = ChainSVC(C=0.3, intercept_scaling=scaling, tol=1e-9, max_iter=50_000, random_state=0)
    chain.fit(rows, labels)
    reference = LinearSVC(
        C=0.3,
        multi_class="crammer_singer",
        intercept_scaling=scaling * np.sqrt(3),
        tol=1e-10,
        max_iter=1_000_000,
    ).fit(rows, labels)
    if n_classes == 2:
        W = np.vstack([-reference.coef_ / 2, reference.coef_ / 2])
        bias = np.array([-0.5, 0.5]) * reference.intercept_
    else:
        W, bias = reference.coef_, reference.intercept_
    np.testing.assert_allclose(chain.coef_, W, atol=1e-3)
    np.testing.assert_allclose(chain.intercept_ + chain.first_ + chain.last_, bias, atol=1e-3)
    np.testing.assert_array_equal(chain.transitions_, 0)
    scores = rows @ W.T + bias
    truth = np.searchsorted(chain.classes_, labels)
    margins = scores + 1 - scores[np.arange(len(rows)), truth][:, None]
    margins[np.arange(len(rows)), truth] = 0
    objective = 0.5 * (W**2).sum() + 0.5 * (bias**2).sum() / (3 * scaling**2) + 0.3 * margins.max(1).sum()
    assert chain.primal_objective_ == pytest.approx(objective, rel=1e-6)


KINDS = {
    "list": (X, Y, {}),
    "csr": ([sp.csr_array(x) for x in X], Y, {}),
    "csr matrix": ([sp.csr_matrix(x) for x in X], Y, {}),
    "object array": (np.array([*X, None], dtype=object)[:-1], Y, {}),
    "nested lists": ([x.tolist() for x in X], Y, {}),
    "pandas": ([pd.DataFrame(x, columns=list("pqrst")) for x in X], Y, {}),
    "polars": ([pl.DataFrame(x, schema=list("pqrst")) for x in X], Y, {}),
    "stacked": (STACKED, LETTERS, {"lengths": LENGTHS}),
    "stacked csr": (sp.csr_array(STACKED), LETTERS, {"lengths": LENGTHS}),
    "read-only": (np.lib.stride_tricks.as_strided(STACKED, writeable=False), LETTERS, {"lengths": LENGTHS}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_model(kind):
    rows, labels, more = KINDS[kind]
    model = ChainSVC(C=0.5, tol=1e-4, random_state=0).fit(rows, labels, **more)
    reference = ChainSVC(C=0.5, tol=1e-4, random_state=0).fit(X, Y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-8)
    predicted = model.predict(rows, **more)
    assert "".join(predicted) == "".join(reference.predict(X))
    assert model.score(rows, labels, **more) == reference.score(X, Y)
    if kind in ("pandas", "polars"):
        assert list(model.feature_names_in_) == list("pqrst")


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        (lambda w: w, str),
        (list, list),
        (tuple, tuple),
        (lambda w: np.array(list(w)), np.ndarray),
        (lambda w: [ord(c) for c in w], list),
    ],
)
def test_labels_come_back_in_their_kind(kind, same):
    labels = [kind(w) for w in Y]
    model = ChainSVC(C=0.5, random_state=0).fit(X, labels)
    predicted = model.predict(X)
    assert isinstance(predicted, list) and all(type(p) is same for p in predicted)
    assert [list(p) for p in predicted] == [
        [type(model.classes_.tolist()[0])(c) for c in kind(w)] for w in fitted().predict(X)
    ]
    best, _ = model.predict_kbest(X[:1], k=1)[0][0]
    assert type(best) is same


def test_equal_lengths_as_one_array():
    cube, labels = np.random.default_rng(0).normal(size=(8, 4, 3)), np.arange(32).reshape(8, 4) % 3
    model = ChainSVC(random_state=0).fit(cube, labels)
    predicted = model.predict(cube)
    assert predicted.shape == (8, 4)
    np.testing.assert_array_equal(predicted, np.array(model.predict(list(cube))))


def test_k_best_and_marginals_agree_with_the_prediction():
    model = fitted()
    for best, word, rows in zip(model.predict_kbest(X, k=4), model.predict(X), X, strict=True):
        assert best[0][0] == word
        scores = [value for _, value in best]
        assert scores == sorted(scores, reverse=True)
        assert len({labels for labels, _ in best}) == len(best) == min(4, 3 ** len(rows))
    cold = model.predict_marginals(X, temperature=1e-6)
    for marginals, word in zip(cold, model.predict(X), strict=True):
        np.testing.assert_allclose(marginals.sum(1), 1.0, atol=1e-9)
        assert "".join(model.classes_[marginals.argmax(1)]) == word
    stacked = model.predict_marginals(STACKED, lengths=LENGTHS)
    np.testing.assert_allclose(stacked, np.concatenate(model.predict_marginals(X)), atol=1e-12)
    hot = model.predict_marginals(X, temperature=1e9)
    np.testing.assert_allclose(np.concatenate(hot), 1 / 3, atol=1e-6)


@pytest.mark.parametrize("solver", ["pairwise", "bcfw"])
def test_weights_are_repetition(solver):
    counts = np.random.default_rng(0).integers(0, 3, len(X))
    repeated = [i for i, c in enumerate(counts) for _ in range(c)]
    tol = {"pairwise": 1e-8, "bcfw": 1e-2}[solver]
    options = {"C": 0.05, "solver": solver, "tol": tol, "max_iter": 20_000, "random_state": 0}
    weighted = ChainSVC(**options).fit(X, Y, sample_weight=counts)
    copied = ChainSVC(**options).fit([X[i] for i in repeated], [Y[i] for i in repeated])
    assert weighted.primal_objective_ == pytest.approx(copied.primal_objective_, rel=tol)
    if solver == "pairwise":
        np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=1e-4)


def test_plain_hamming_loss_counts_letters():
    """On words of one length L, w = L w' turns the count at C into L^2 times the share at C / L."""
    cube, labels = np.random.default_rng(0).normal(size=(6, 3, 2)), np.arange(18).reshape(6, 3) % 2
    count = ChainSVC(C=0.2, tol=1e-9, max_iter=20_000, normalize_loss=False).fit(cube, labels)
    share = ChainSVC(C=0.2 / 3, tol=1e-9, max_iter=20_000).fit(cube, labels)
    assert count.primal_objective_ == pytest.approx(9 * share.primal_objective_, rel=1e-8)
    np.testing.assert_allclose(count.coef_, 3 * share.coef_, atol=1e-3)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("solver", SOLVERS)
def test_intercept_scaling_scales_all_weights_without_features(solver, kind):
    """w = (U / s, R) turns constants of size s at C into rows x / s and constants of 1 at s^2 C, over s^2."""
    s, rows = 4.0, kind(STACKED)
    options = {"solver": solver, "tol": 0.1, "max_iter": 20_000, "random_state": 0}
    if "temperature" in SOLVERS[solver].reads:
        options["temperature"] = 0.9
    scaled = ChainSVC(C=0.05, intercept_scaling=s, **options).fit(rows, LETTERS, lengths=LENGTHS)
    plain = ChainSVC(C=0.05 * s**2, **options).fit(rows / s, LETTERS, lengths=LENGTHS)
    assert scaled.dual_objective_ <= plain.primal_objective_ / s**2 * (1 + 1e-9)
    assert plain.dual_objective_ / s**2 <= scaled.primal_objective_ * (1 + 1e-9)
    if solver == "pairwise":  # which gets close enough to tell the weights
        scaled.set_params(tol=1e-9).fit(rows, LETTERS, lengths=LENGTHS)
        plain.set_params(tol=1e-9).fit(rows / s, LETTERS, lengths=LENGTHS)
        assert scaled.primal_objective_ == pytest.approx(plain.primal_objective_ / s**2, rel=1e-8)
        np.testing.assert_allclose(scaled.coef_, plain.coef_ / s, atol=1e-3)
        for name in ("transitions_", "intercept_", "first_", "last_"):
            np.testing.assert_allclose(getattr(scaled, name), getattr(plain, name), atol=1e-3)


@pytest.mark.parametrize("scaling", [1e-200, 0.0, 1e200, np.nan])
def test_an_intercept_scaling_that_would_overflow_is_refused(scaling):
    with pytest.raises(ValueError, match="'intercept_scaling' parameter of ChainSVC must be a float in"):
        fitted(intercept_scaling=scaling)


@pytest.mark.parametrize("other", [{"normalize_loss": False}, {"intercept_scaling": 1.1}])
def test_warm_start_with_other_losses_starts_anew(other):
    model = ChainSVC(C=0.3, tol=1e-4, max_iter=5000, warm_start=True, random_state=0).fit(X, Y)
    with pytest.warns(UserWarning, match="starting from zero"):
        model.set_params(**other).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, clone(model).fit(X, Y).coef_)


def test_warm_start_goes_on():
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        model = ChainSVC(C=0.3, max_iter=3, tol=1e-6, warm_start=True, random_state=0).fit(X, Y)
    before = model.dual_objective_
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    assert model.history_[0]["dual"] >= before * (1 - 1e-12)
    model.set_params(C=0.5, max_iter=5000, tol=1e-4).fit(X, Y)
    cold = ChainSVC(C=0.5, max_iter=5000, tol=1e-4).fit(X, Y)
    assert model.primal_objective_ == pytest.approx(cold.primal_objective_, rel=1e-3)


@pytest.mark.parametrize(
    ("solver", "options"),
    [("pairwise", {"temperature": 1.0}), ("bcfw", {"safeguard": False}), ("oeg", {"safeguard": False})],
)
def test_a_parameter_that_the_solver_does_not_read_is_refused(solver, options):
    with pytest.raises(ValueError, match=f"is read by solver.*with solver='{solver}'"):
        ChainSVC(solver=solver, **options).fit(X, Y)


@pytest.mark.parametrize("solver", SOLVERS)
def test_warm_start_of_every_solver_keeps_its_dual(solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ChainSVC(C=0.2, solver=solver, max_iter=5, tol=1e-9, warm_start=True).fit(X, Y)
        before = model.dual_objective_
        model.fit(X, Y)
    assert model.history_[0]["dual"] >= before - 1e-12


def test_time_limit_and_callbacks():
    from sklearn.callback import ProgressBar

    ChainSVC(solver="bcfw", tol=0.5).fit(X, Y)  # compiles
    with pytest.warns(ConvergenceWarning, match="increase time_limit"):
        model = ChainSVC(C=100, solver="bcfw", tol=1e-12, max_iter=10**6, time_limit=0.2).fit(X, Y)
    assert model.predict(X) and model.history_[-1]["seconds"] < 5
    ChainSVC(C=0.01).set_callbacks(ProgressBar()).fit(X, Y)


def test_very_long_sequence():
    rng = np.random.default_rng(0)
    z = np.cumsum(rng.random(10_000) < 0.2) % 3
    rows = np.eye(3)[z] + 0.8 * rng.normal(size=(10_000, 3))
    model = ChainSVC(C=1e-3, normalize_loss=False, tol=1e-2).fit([rows, rows[:5]], [z, z[:5]])
    assert model.duality_gap_ <= 1e-2
    assert model.score([rows], [z]) > 0.8
    marginals = model.predict_marginals([rows], temperature=0.01)[0]
    np.testing.assert_allclose(marginals.sum(1), 1.0, atol=1e-9)
    assert len(model.predict_kbest([rows], k=3)[0]) == 3


def test_labels_unknown_to_fit_count_as_wrong():
    model = fitted()
    assert model.score(X, ["z" * len(x) for x in X]) == 0.0


@pytest.mark.parametrize(
    ("rows", "labels", "more", "message"),
    [
        ([], [], {}, "empty list"),
        ([np.ones((2, 3)), np.ones((0, 3))], ["ab", ""], {}, r"X\[1\] is empty"),
        ([np.ones((2, 3)), np.ones((1, 2))], ["ab", "a"], {}, r"X\[1\] has 2 features"),
        (X, [Y[0] + "a", *Y[1:]], {}, r"y\[0\] has shape"),
        (X, None, {}, "requires y"),
        ([np.ones((1, 1))] * 2, ["a", [1]], {}, "mixes strings and numbers"),
        (X, Y, {"lengths": LENGTHS}, "leave lengths out"),
        (STACKED, LETTERS, {"lengths": [0, len(STACKED) - 1, 1]}, r"lengths\[0\] is 0"),
        (STACKED, LETTERS, {"lengths": 3.5}, "whole numbers"),
        (STACKED, LETTERS, {"lengths": [0, *np.cumsum(LENGTHS)]}, "np.diff"),
        (STACKED, [list(word) for word in Y], {"lengths": LENGTHS}, "join them"),
        ([np.ones((2, 1))], [["a", None]], {}, "None"),
        ([np.ones((1, 1))], [[np.nan]], {}, "NaN"),
        (X, Y, {"sample_weight": np.ones(len(X) + 1)}, "sample_weight"),
    ],
)
def test_bad_input_is_named(rows, labels, more, message):
    with pytest.raises(ValueError, match=message):
        ChainSVC().fit(rows, labels, **more)


def test_bad_prediction_input_is_named():
    with pytest.raises(NotFittedError):
        ChainSVC().predict(X)
    model = fitted()
    with pytest.raises(ValueError, match="features"):
        model.predict([np.ones((2, 9))])
    with pytest.raises(ValueError, match="empty list"):
        model.predict([])
    with pytest.raises(ValueError, match=r"pass \[X\]"):
        model.predict(X[0])
    for k in (0, 2.0, True):
        with pytest.raises(ValueError, match="k must be"):
            model.predict_kbest(X, k=k)
    for temperature in (0, np.nan, "warm"):
        with pytest.raises(ValueError, match="temperature must be"):
            model.predict_marginals(X, temperature=temperature)


@given(
    n=st.integers(1, 6),
    K=st.integers(1, 5),
    f=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([np.float32, np.float64]),
    sparse=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_any_shape_is_solved_to_its_gap(n, K, f, seed, dtype, sparse):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, n)
    rows = [rng.normal(size=(L, f)).round(1).astype(dtype) for L in lengths]
    labels = [rng.integers(0, K, L) for L in lengths]
    weights = rng.integers(1, 4, n)
    model = ChainSVC(C=0.1, tol=1e-5, max_iter=50_000, random_state=0)
    model.fit([sp.csr_array(x) for x in rows] if sparse else rows, labels, sample_weight=weights)
    assert model.duality_gap_ <= 1e-5
    assert model.dual_objective_ <= model.primal_objective_ * (1 + 1e-12)


def test_metrics_name_what_is_wrong():
    with pytest.raises(ValueError, match="same number"):
        metrics.letter_accuracy(["a"], [])
    with pytest.raises(ValueError, match=r"y_true\[0\]"):
        metrics.word_accuracy(["ab"], ["a"])
    with pytest.raises(ValueError, match="sample_weight"):
        metrics.word_accuracy(["ab"], ["ab"], sample_weight=[1, 2])
    assert metrics.word_accuracy(["ab", "c"], ["ab", "d"], sample_weight=[3, 1]) == 0.75
    assert metrics.letter_accuracy(["ab", "c"], ["ab", "d"], sample_weight=[3, 1]) == 6 / 7


@pytest.mark.parametrize(
    "lengths", [[2**62, 2**62, 2**62, 2**62 + 40], np.array([2**63 + 20, 2**63 + 20], np.uint64), [10**6]]
)
@pytest.mark.parametrize("estimator", [ChainSVC, LatentSVC])
def test_lengths_whose_sum_wraps_are_refused(estimator, lengths):
    with pytest.raises(ValueError, match=r"lengths\[0\] is \d+, but X has 40 rows"):
        estimator().fit(np.ones((40, 2)), ["a", "b"] * 20, lengths=lengths)


def test_the_labelings_asked_for_may_be_more_than_there_are():
    X = np.random.default_rng(0).normal(size=(6, 2))
    model = ChainSVC(random_state=0).fit(X, list("abcabc"), lengths=[3, 3])
    few, one = model.predict_kbest(X[:5], k=10**9, lengths=[4, 1])
    assert len(few) == 3**4 == len({"".join(labels) for labels, _ in few}) and len(one) == 3
    with pytest.raises(ValueError, match=r"k=1000000000000 labelings .* take a smaller k"):
        model.predict_kbest(np.ones((100, 2)), k=10**12, lengths=[100])


@pytest.mark.parametrize("solver", ["bcpl", "oeg"])
def test_a_temperature_that_leaves_floating_point_is_named(solver):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match="increase the temperature or decrease C"):
        ChainSVC(solver=solver, temperature=1e-59, random_state=0).fit(X, list("abca") * 10, lengths=[4] * 10)
    model = ChainSVC(random_state=0).fit(X, list("abca") * 10, lengths=[4] * 10)
    for temperature in (1e-320, 1e308):
        with pytest.raises(ValueError, match=r"temperature=\S+ is too (small|large)"):
            model.predict_marginals(X, temperature, lengths=[4] * 10)
