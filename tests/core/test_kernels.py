"""Kernel values, the kernel matrix and the row cache."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import chi2_kernel, linear_kernel, polynomial_kernel, rbf_kernel, sigmoid_kernel
from sklearn.svm import SVC

from maxmargin.core import kernel_matrix as matrix
from maxmargin.core import kernels as functions
from maxmargin.core.kernel_matrix import (
    KernelMatrix,
    RowCache,
    check_precomputed,
    rounds,
    smallest_eigenvalue,
)
from maxmargin.core.kernels import Clouds, Kernel
from maxmargin.core.rows import readonly

REFERENCE = {
    "linear": lambda X, Z: linear_kernel(X, Z),
    "rbf": lambda X, Z: rbf_kernel(X, Z, gamma=0.3),
    "poly": lambda X, Z: polynomial_kernel(X, Z, degree=3, gamma=0.3, coef0=1.5),
    "sigmoid": lambda X, Z: sigmoid_kernel(X, Z, gamma=0.3, coef0=1.5),
    "chi2": lambda X, Z: chi2_kernel(X, Z, gamma=0.3),
}


def features(n=17, d=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.random((n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)


def settled(X, name, **options):
    return Kernel.of(X, name, gamma=0.3, degree=3, coef0=1.5, **options)


@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.parametrize("swap", [False, True])
def test_sparse_rows_meet_a_dense_basis(name, swap):
    X, Z = features(), features(9, seed=1)
    made = (sp.csr_array(X), Z) if swap else (X, sp.csr_array(Z))
    np.testing.assert_allclose(settled(X, name).block(*made), REFERENCE[name](X, Z), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_blocks_equal_sklearn(name, dtype, make):
    X, Z = features(dtype=dtype), features(9, seed=1, dtype=dtype)
    kernel = settled(make(X), name, offset=0.25)
    K = kernel.block(make(X), make(Z))
    assert K.dtype == dtype and isinstance(K, np.ndarray)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(K, REFERENCE[name](X, Z) + 0.25, rtol=tolerance, atol=tolerance)
    whole = REFERENCE[name](X.astype(float), X.astype(float)) + 0.25
    np.testing.assert_allclose(kernel.diagonal(make(X)), np.diag(whole), rtol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_metric_sees_rows_through_its_matrix(make):
    rng = np.random.default_rng(0)
    X, Z, M = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    kernel = replace(Kernel("rbf", 0.7, offset=0.5), metric=M)
    expected = rbf_kernel(X @ M.T, Z @ M.T, gamma=0.7) + 0.5
    np.testing.assert_allclose(kernel.block(make(X), Z), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.scores(make(X), Z, np.eye(4)), expected, rtol=1e-12)
    single = kernel.block(make(X.astype(np.float32)), Z.astype(np.float32))
    np.testing.assert_allclose(single, expected, rtol=1e-5)


def test_clouds_are_means_of_the_kernel_over_gaussians():
    """Means over many draws of both ends, scaled so that a cloud is 1 at its centre."""
    rng = np.random.default_rng(0)
    kernel = replace(Kernel("rbf", 0.7, offset=0.5), metric=np.array([[1.0, 0.5], [-0.3, 0.8]]))
    point, X = replace(kernel, offset=0.0, metric=None), rng.normal(size=(6, 2))
    clouds = Clouds(rng.normal(size=(3, 2)), np.array([[0.2, 1.0], [0.0, 0.0], [2.0, 0.4]]))
    V = clouds.centres @ kernel.metric.T
    draws = V + rng.normal(size=(400_000, 3, 2)) * np.sqrt(clouds.spread / (2 * kernel.gamma))
    scale = np.sqrt(np.prod(1 + clouds.spread, axis=1))
    K, K_JJ = kernel.block(X, clouds), kernel.inner_products(clouds)
    for j in range(3):
        means = point.block(X @ kernel.metric.T, draws[:, j]).mean(axis=1) * scale[j] + 0.5
        np.testing.assert_allclose(K[:, j], means, rtol=0.01)
        for i in range(j):
            pairs = np.exp(-kernel.gamma * ((draws[:, i] - draws[:, j]) ** 2).sum(axis=1))
            assert K_JJ[i, j] == pytest.approx(pairs.mean() * scale[i] * scale[j] + 0.5, rel=0.01)
    np.testing.assert_allclose(np.diag(kernel.block(clouds.centres, clouds)), 1.5, rtol=1e-12)
    np.testing.assert_allclose(K[:, 1], kernel.block(X, clouds.centres)[:, 1], rtol=1e-12)
    np.testing.assert_array_equal(K_JJ, K_JJ.T)
    np.testing.assert_allclose(K_JJ[1, 1], 1.5, rtol=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("metric", [None, np.diag([1.0, 2.0, 0.5])])
def test_clouds_meet_rows_of_any_kind(make, metric):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(6, 3)) + 30, rng.normal(size=(4, 3)) + 30
    kernel, spread = replace(Kernel("rbf", 0.7, offset=0.5), metric=metric), rng.exponential(size=(4, 3))
    M = np.eye(3) if metric is None else metric
    apart = ((X[:, None] - Z) @ M.T) ** 2 / (1 + spread)
    expected = np.exp(-0.7 * apart.sum(axis=2)) + 0.5
    np.testing.assert_allclose(kernel.block(make(X), Clouds(Z, spread)), expected, rtol=1e-10)
    np.testing.assert_allclose(kernel.scores(make(X), Clouds(Z, spread), np.eye(4)), expected, rtol=1e-10)
    single = kernel.block(make(X.astype(np.float32)), Clouds(Z.astype(np.float32), spread.astype(np.float32)))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-3)
    gram = kernel.inner_products(Clouds(Z, spread))
    assert np.linalg.eigvalsh(gram)[0] > 0


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_poly_degrees(degree):
    X = features() - 0.4
    K = Kernel.of(X, "poly", gamma=2.0, degree=degree, coef0=1).block(X, X)
    np.testing.assert_allclose(K, (2 * X @ X.T + 1) ** degree, rtol=1e-10)


def test_callable_and_precomputed():
    X = features()
    own = Kernel.of(X, lambda A, B: (A @ B.T) ** 2, offset=1.0)
    np.testing.assert_allclose(own.block(X[:3], X), (X[:3] @ X.T) ** 2 + 1)
    np.testing.assert_allclose(own.diagonal(X), np.diag(own.block(X, X)))
    K = (X @ X.T) ** 2
    given_matrix = Kernel.of(K, "precomputed", offset=1.0)
    columns = np.array([4, 0, 7])
    np.testing.assert_allclose(given_matrix.block(K[:3], columns), K[:3][:, columns] + 1)
    coefficients = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(
        given_matrix.scores(K, columns, coefficients), (K[:, columns] + 1) @ coefficients
    )


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_gamma_is_that_of_svc(make, gamma):
    X = features()
    model = SVC(gamma=gamma).fit(make(X), np.arange(len(X)) % 2)
    assert Kernel.of(make(X), "rbf", gamma=gamma).gamma == pytest.approx(model._gamma, rel=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_gamma_counts_weights_as_repetitions(make):
    X, weights = features(), np.arange(17) % 3
    weighted = Kernel.of(make(X), "rbf", sample_weight=weights).gamma
    assert weighted == pytest.approx(Kernel.of(np.repeat(X, weights, axis=0), "rbf").gamma, rel=1e-12)


def test_constant_features_have_gamma_one():
    assert Kernel.of(np.ones((3, 2)), "rbf").gamma == 1.0


def test_distant_float32_rows_are_not_lost_to_rounding():
    rng = np.random.default_rng(0)
    X = (1000 + rng.normal(size=(30, 4))).astype(np.float32)
    K = Kernel.of(X, "rbf", gamma=0.5).block(X, X)
    np.testing.assert_allclose(K, rbf_kernel(X.astype(float), gamma=0.5), atol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_scores_in_bounded_blocks(make, monkeypatch):
    X, Z = features(40), features(9, seed=1)
    coefficients = np.random.default_rng(0).normal(size=(9, 3))
    kernel = settled(make(X), "rbf")
    expected = kernel.block(make(X), make(Z)) @ coefficients
    monkeypatch.setattr(functions, "BLOCK_BYTES", 9 * 8 * 4)
    sizes = []
    block = Kernel.block

    def counted(self, A, B, dtype):
        sizes.append(A.shape[0])
        return block(self, A, B, dtype)

    monkeypatch.setattr(Kernel, "block", counted)
    np.testing.assert_allclose(kernel.scores(make(X), make(Z), coefficients), expected, rtol=1e-12)
    assert sizes == [4] * 10
    nothing = kernel.scores(make(X), make(Z)[:0], coefficients[:0])
    assert nothing.shape == (40, 3) and not nothing.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_as_wide_as_the_coefficients(dtype):
    """What was certified in float64 is predicted with in float64, whatever the rows."""
    X = features(dtype=np.float32)
    kernel = settled(X, "rbf")
    scores = kernel.scores(X, X, np.ones((17, 2), dtype))
    assert scores.dtype == dtype
    exact = kernel.block(X.astype(np.float64), X.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(scores[:, 0], exact, rtol=1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (features(), {"kernel": "cosine"}, "kernel must be a callable or one of"),
        (features(), {"kernel": 3}, "kernel must be a callable or one of"),
        (features(), {"gamma": "big"}, "gamma must be"),
        (features(), {"gamma": -1.0}, "gamma must be"),
        (features(), {"gamma": np.nan}, "gamma must be"),
        (features(), {"degree": -1}, "degree must be"),
        (features(), {"degree": 2.5}, "degree must be"),
        (features(), {"coef0": np.inf}, "coef0 must be"),
        (features(), {"offset": -1.0}, "offset must be"),
        (features() - 1, {"kernel": "chi2"}, "nonnegative features"),
        (features(), {"kernel": "precomputed"}, "square matrix"),
        (sp.eye_array(3, format="csr"), {"kernel": "precomputed"}, "dense matrix"),
        (features(), {"kernel": "sigmoid", "coef0": -5.0}, "positive semi-definite"),
        (features(), {"kernel": lambda A, B: np.ones(3)}, "one value for each pair"),
        (features(), {"kernel": lambda A, B: np.full((len(A), len(B)), np.nan)}, "not finite"),
    ],
)
def test_bad_kernels_are_named(X, options, message):
    with pytest.raises(ValueError, match=message):
        Kernel.of(X, **options)


def test_bad_precomputed_matrices_are_named():
    K = features() @ features().T + np.eye(17)
    assert check_precomputed(K) == 0
    lifted = K + 9 * np.outer(np.arange(17) % 2 - 0.5, np.arange(17) % 2 - 0.5)
    smallest = float(np.linalg.eigvalsh(lifted - 3 * np.eye(17))[0])
    assert check_precomputed(lifted - 3 * np.eye(17)) == pytest.approx(smallest, abs=1e-6) and smallest < -1
    for bad, message in [
        (K[:, :5], "square"),
        (np.where(np.eye(17) > 0, np.nan, K), "NaN"),
        (K + np.triu(np.ones_like(K)), "symmetric"),
        (K - 30 * np.eye(17), r"positive semi-definite, but K\[\d+, \d+\] = -"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_precomputed(bad)


def test_large_indefinite_matrices_are_recognised(monkeypatch):
    X = features(300, 8)
    K = rbf_kernel(X)
    direction = np.linalg.qr(np.random.default_rng(1).normal(size=(300, 1)))[0]
    indefinite = K - 5.0 * direction @ direction.T
    exact = np.linalg.eigvalsh(indefinite)[0]
    assert smallest_eigenvalue(indefinite) == pytest.approx(exact, rel=1e-8)
    monkeypatch.setattr(matrix, "CHECKED_ROWS", 10)
    assert smallest_eigenvalue(indefinite) == pytest.approx(exact, rel=1e-6)
    assert smallest_eigenvalue(K) > -1e-9
    assert check_precomputed(indefinite) == smallest_eigenvalue(indefinite) < 0
    assert check_precomputed(K) == 0


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cache_size", [0, 0.001, np.inf])
def test_matrix_is_the_same_whole_or_in_rows(make, dtype, cache_size, monkeypatch):
    monkeypatch.setattr(functions, "BLOCK_BYTES", 700)
    X = features(50)
    kernel = settled(make(X), "rbf", offset=0.5)
    K = KernelMatrix(kernel, make(X), cache_size, dtype)
    assert (K.whole is not None) == (cache_size == np.inf)
    expected = kernel.block(make(X), make(X))
    np.testing.assert_allclose(K.rows(np.array([3, 44])), expected[[3, 44]], rtol=1e-5)
    assert K.rows(np.array([3])).dtype == dtype
    assert (K.rows(np.array([3]))[0, 3]) == 1.5
    some = np.array([7, 3, 44, 20])
    np.testing.assert_allclose(K.square(some), expected[np.ix_(some, some)], rtol=1e-5)
    W = np.random.default_rng(1).normal(size=(2, 4)).astype(dtype)
    np.testing.assert_allclose(K.combine(W, some), W @ expected[some], rtol=1e-4, atol=1e-5)
    B = np.random.default_rng(0).normal(size=(50, 4))
    np.testing.assert_allclose(K.times(B), expected @ B, rtol=1e-10)
    if K.whole is not None:
        np.testing.assert_array_equal(K.whole, K.whole.T)


def test_precomputed_matrix_is_not_copied():
    K = features() @ features().T
    assert KernelMatrix(Kernel.of(K, "precomputed"), K, 0).whole is K
    shifted = KernelMatrix(Kernel.of(K, "precomputed", offset=1.0), K, 0)
    np.testing.assert_allclose(shifted.rows(np.array([2, 5])), K[[2, 5]] + 1)
    np.testing.assert_allclose(shifted.times(np.eye(17)), K + 1)
    some = np.array([2, 3, 4])
    np.testing.assert_allclose(shifted.square(some), K[2:5, 2:5] + 1)
    np.testing.assert_allclose(shifted.combine(np.ones((1, 3)), some), (K[2:5] + 1).sum(axis=0)[None])


class Trace:
    """A matrix that remembers which of its rows were computed."""

    def __init__(self, n, m=3):
        self.rows = np.arange(float(n * m)).reshape(n, m)
        self.asked: list[int] = []

    def __call__(self, indices):
        self.asked += indices.tolist()
        return self.rows[indices]


def three_row_cache(n=10):
    trace = Trace(n)
    return trace, RowCache(trace, trace.rows.shape, cache_size=3 * 3 * 8 / 2**20)


def test_access_trace_of_the_cache():
    trace, cache = three_row_cache()
    assert cache.capacity == 3
    for index, kept in [
        (0, [0]),
        (1, [0, 1]),
        (2, [0, 1, 2]),
        (0, [1, 2, 0]),
        (3, [2, 0, 3]),
        (2, [0, 3, 2]),
        (1, [3, 2, 1]),
        (0, [2, 1, 0]),
    ]:
        np.testing.assert_array_equal(cache.row(index), trace.rows[index])
        assert cache.kept() == kept
    assert trace.asked == [0, 1, 2, 3, 1, 0]
    assert (cache.hits, cache.misses) == (2, 6)


def test_pinned_rows_stay_in_place():
    trace, cache = three_row_cache()
    first = cache.row(0)
    for index in (1, 2, 3, 4):
        cache.row(index, pinned=(0,))
    np.testing.assert_array_equal(first, trace.rows[0])
    assert cache.kept() == [0, 3, 4]
    cache.row(5)
    assert cache.kept() == [3, 4, 5]


def test_too_many_rows_at_once_is_an_error():
    _, cache = three_row_cache()
    with pytest.raises(ValueError, match="increase cache_size"):
        cache.fetch(np.arange(4))
    with pytest.raises(ValueError, match="cache_size must be"):
        RowCache(lambda i: i, (3, 3), cache_size=-1)


def test_a_failing_row_leaves_the_cache_whole():
    trace, cache = three_row_cache()
    cache.fetch(np.arange(3))
    cache.compute = lambda indices: 1 / 0
    with pytest.raises(ZeroDivisionError):
        cache.row(7)
    cache.compute = trace
    for index in (7, 8, 9, 0):
        np.testing.assert_array_equal(cache.row(index), trace.rows[index])
    assert cache.kept() == [8, 9, 0]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 6),
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), max_size=25),
)
def test_cache_behaves_like_a_list_in_order_of_use(size, accesses):
    trace = Trace(10)
    cache = RowCache(trace, trace.rows.shape, cache_size=size * 3 * 8 / 2**20)
    order: list[int] = []
    for wanted in accesses:
        if len(wanted) > size:
            continue
        np.testing.assert_array_equal(cache.store[cache.fetch(np.array(wanted))], trace.rows[wanted])
        room = size - sum(i not in order for i in wanted)
        for i in [i for i in order if i not in wanted][: max(0, len(order) - room)]:
            order.remove(i)
        order = [i for i in order if i not in wanted] + wanted
        assert cache.kept() == order


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e7), (np.float64, 1e40)])
def test_values_that_overflow_are_refused(dtype, scale):
    X = np.array([[1.0, 2.0], [0.5, 0.1]]) * scale
    with pytest.raises(ValueError, match=r"k\(x, x\) is .* for sample 0, too large for float.*; scale the"):
        Kernel.of(X.astype(dtype), "poly", gamma=1.0, degree=5)
    assert Kernel.of(X.astype(dtype), "rbf", gamma=1.0).name == "rbf"


def test_a_matrix_is_built_while_there_is_time():
    X = features(600, 3)
    K = KernelMatrix(settled(X, "rbf"), X, np.inf)
    looks = iter([False, True, False, False])
    assert not K.build(lambda: next(looks))
    # What needs no kernel value does not wait for them.
    assert not K.times(np.zeros((600, 2))).any()
    assert K.build(lambda: next(looks))
    np.testing.assert_allclose(K.whole, REFERENCE["rbf"](X, X), rtol=1e-9)
    np.testing.assert_array_equal(K.whole, K.whole.T)
    assert KernelMatrix(settled(X, "rbf"), X, 0.1).build(lambda: True)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_threads_change_no_value(make):
    """Neither those kept nor a product with values computed anew, over several tiles and the rest of one."""
    X = make(features(1200, 3))
    one, three = (KernelMatrix(settled(X, "rbf"), X, np.inf, np.float32, n) for n in (1, 3))
    np.testing.assert_array_equal(one.whole, three.whole)
    B = np.random.default_rng(0).normal(size=(1200, 2))
    np.testing.assert_array_equal(one.times(B), three.times(B))
    np.testing.assert_allclose(three.times(B), REFERENCE["rbf"](features(1200, 3), features(1200, 3)) @ B)


def test_a_kernel_of_the_user_is_called_by_one_thread():
    callers = set()

    def product(X, Z):
        callers.add(threading.get_ident())
        return X @ Z.T

    X = features(1200, 3)
    K = KernelMatrix(Kernel.of(X, product), X, np.inf, np.float32, 3)
    assert K.whole is not None and K.times(X).shape == X.shape
    assert callers == {threading.get_ident()}


@pytest.mark.parametrize("n", range(1, 9))
def test_rounds_hold_every_pair_once_and_no_number_twice(n):
    played = list(rounds(n))
    assert sorted(pair for pairs in played for pair in pairs) == [
        (i, j) for i in range(n) for j in range(i, n)
    ]
    for pairs in played:
        met = [i for pair in pairs for i in set(pair)]
        assert len(met) == len(set(met))


def test_values_beyond_single_precision_stay_double():
    X = np.linspace(-1, 1, 6)[:, None]
    for offset, dtype in ((1.0, np.float32), (1e42, np.float64)):
        kernel = Kernel.of(X, "rbf", gamma=1.0, offset=offset)
        K = KernelMatrix(kernel, X, dtype=np.float32)
        assert K.dtype == dtype
        np.testing.assert_allclose(K.whole, kernel.block(X, X, np.dtype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_combinations_of_many_rows_leave_out_those_without_weight(dtype):
    """More rows than are gathered at a time, some of them in no combination, in any order."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    K = KernelMatrix(Kernel.of(X, "rbf"), X, dtype=dtype)
    assert K.build()
    W, some = rng.normal(size=(4, 150)).astype(dtype), rng.permutation(200)[:150]
    W[:, ::3] = 0
    expected = W.astype(np.float64) @ Kernel.of(X, "rbf").block(X, X)[some]
    np.testing.assert_allclose(K.combine(W, some), expected, atol=1e-4 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(K.combine(np.zeros_like(W), some), 0)
    np.testing.assert_array_equal(K.square(some), K.whole[np.ix_(some, some)])


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_are_as_precise_as_what_they_are_of(dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate([-np.logspace(-9, np.log10(80), 400), -80 * rng.random(400), [0.0, -0.0, -1e-45]])
    x = x.astype(dtype)
    exponentials = functions.exponentials_single if dtype == np.float32 else functions.exponentials_double
    K = x[None].copy()
    exponentials(K, dtype(0.0))
    expected = np.exp(x.astype(np.longdouble))
    error = np.abs(K[0] - expected) / expected
    assert (error <= (2 + np.abs(x)) * np.finfo(dtype).eps).all()
    # Distances rounded below zero count as zero, those beyond all numbers as large, NaN stays.
    K = np.array([[1e-3, 5.0, -np.inf, -1e30, np.nan]], dtype)
    exponentials(K, dtype(0.5))
    np.testing.assert_allclose(K[0], [1.5, 1.5, 0.5, 0.5, np.nan], rtol=1e-30)


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_are_added_by_the_weights_that_are_not_zero(dtype):
    rng = np.random.default_rng(0)
    K, chosen = rng.normal(size=(9, matrix.STRIP + 3)).astype(dtype), np.array([7, 2, 5])
    weights = (rng.normal(size=(3, 4)) * (rng.random((3, 4)) < 0.5)).astype(dtype)
    found = rng.normal(size=(4, K.shape[1])).astype(dtype)
    expected = found + weights.T @ K[chosen]
    matrix.add_rows(readonly(K), readonly(chosen), readonly(weights), found)
    np.testing.assert_allclose(found, expected, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cache_size", [0, np.inf])
@pytest.mark.parametrize("name", ["rbf", "poly", "precomputed"])
def test_rows_are_spread_onto_all_or_some(make, dtype, cache_size, name, monkeypatch):
    monkeypatch.setattr(matrix, "TILE_ROWS", 7)
    monkeypatch.setattr(matrix, "TILE_BYTES", 7 * 30 * 8)
    X = features(90)
    if name == "precomputed":
        make, X = np.asarray, X @ X.T
    kernel = settled(make(X), name, offset=0.5)
    K = KernelMatrix(kernel, make(X), cache_size, dtype)
    expected = kernel.block(make(X), np.arange(90) if name == "precomputed" else make(X))
    rng = np.random.default_rng(1)
    samples, onto = rng.permutation(90)[:40], np.array([3, 80, 5, 41])
    weights = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.2)
    atol = 1e-4 if dtype == np.float32 else 1e-12
    for kept in (False, True):
        if kept:
            K.build()
        spread = K.combine_nonzeros(weights.astype(dtype), samples)
        assert spread.dtype == dtype
        np.testing.assert_allclose(spread, weights.T @ expected[samples], rtol=1e-5, atol=atol)
        spread = K.combine_nonzeros(weights.astype(dtype), samples, onto)
        np.testing.assert_allclose(spread, weights.T @ expected[np.ix_(samples, onto)], rtol=1e-5, atol=atol)
    B = np.zeros((90, 6))
    B[samples] = weights
    np.testing.assert_allclose(K.times(B), expected @ B, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["rbf", "precomputed"])
def test_the_matrix_of_some_samples_is_kept_in_the_room_given(dtype, name):
    X = features(60)
    X = X @ X.T if name == "precomputed" else X
    K = KernelMatrix(settled(X, name, offset=0.5), X, 0, dtype)
    some, room = np.array([1, 4, 30, 31, 59]), np.empty(30, dtype)
    within = K.submatrix(some, room)
    assert within.build() and within.n == 5 and within.whole.dtype == dtype
    np.testing.assert_allclose(within.whole, K.square(some), rtol=1e-6)
    assert name == "precomputed" or np.shares_memory(within.whole, room)


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 2, 200)])
def test_the_variance_of_sparse_rows_is_summed_in_double_precision(weight):
    """Far from zero: what single precision rounds in the sum of a row is larger than the variance."""
    X = (1e3 + np.random.default_rng(0).normal(size=(200, 50))).astype(np.float32)
    sparse = Kernel.of(sp.csr_array(X), "rbf", sample_weight=weight).gamma
    assert sparse == pytest.approx(Kernel.of(X.astype(float), "rbf", sample_weight=weight).gamma, rel=1e-6)
