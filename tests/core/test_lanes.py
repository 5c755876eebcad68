"""SIMD words: every operation against its meaning on small arrays."""

import numpy as np
import pytest

from maxmargin.core import lanes as simd
from maxmargin.core.jit import compiled


@compiled
def numbers(M, x, lanes, out):
    """One word per row of `out`."""
    a, b = simd.load_row(M, 0, 0, lanes), simd.load_row(M, 1, 0, lanes)
    simd.store_row(simd.add(a, b), out, 0, 0)
    simd.store_row(simd.subtract(a, b), out, 1, 0)
    simd.store_row(simd.multiply(a, b), out, 2, 0)
    simd.store_row(simd.add_product(a, x, b), out, 3, 0)
    simd.store_row(simd.larger(a, b), out, 4, 0)
    simd.store_row(simd.where_above(a, b, simd.fill(x, a), b), out, 5, 0)
    simd.prefetch(M[0], 1)
    simd.store(simd.load(M[1], 0, lanes), out[6], 0)
    simd.store_row(simd.divide(a, b), out, 7, 0)
    return simd.total(a), simd.largest(a), simd.any_nonzero(a)


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [4, 16, 24])
def test_words_mean_what_they_say(dtype, count):
    rng = np.random.default_rng(count)
    M = rng.normal(size=(2, count)).astype(dtype)
    x, out = dtype(0.3), np.zeros((8, count), dtype)
    total, largest, nonzero = numbers(M, x, (0,) * count, out)
    a, b = M
    expected = [a + b, a - b, a * b, a + x * b, np.maximum(a, b), np.where(a > b, x, b), b, a / b]
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert total == pytest.approx(a.sum(), rel=1e-5)
    assert largest == a.max() and nonzero


@pytest.mark.nojit
def test_nonzero_lanes_are_seen_one_by_one():
    for k in range(12):
        M, out = np.zeros((2, 12)), np.zeros((8, 12))
        M[0, k] = -1e-300
        assert numbers(M, 0.0, (0,) * 12, out)[2]
        M[0, k] = -0.0
        assert not numbers(M, 0.0, (0,) * 12, out)[2]


@compiled
def bits(M, lanes, out):
    """The lanes of row 0 that are not below those of row 1, by their bits and listed; and those of row 2."""
    some = simd.bits_nonzero(simd.load_row(M, 2, 0, lanes))
    found = simd.bits_not_below(simd.load_row(M, 0, 0, lanes), simd.load_row(M, 1, 0, lanes))
    left, count = found, 0
    while left != 0:
        out[count] = simd.lowest_bit(left)
        left &= left - np.uint64(1)
        count += 1
    return found, count, some


@pytest.mark.nojit
@pytest.mark.parametrize("count", [4, 12, 32, 64])
def test_lanes_that_are_not_below_are_listed(count):
    M = np.random.default_rng(count).normal(size=(3, count)).astype(np.float32)
    M[1, 2], M[0, 1], M[0, 3] = M[0, 2], np.nan, np.inf
    M[2, ::3], M[2, 1], M[2, 2] = 0, np.nan, -1e-40
    M[2, 3] = -0.0
    out = np.zeros(count, np.int64)
    found, size, some = bits(M, (0,) * count, out)
    assert int(some) == sum(1 << k for k in range(count) if k % 3)
    expected = np.flatnonzero(~(M[0] < M[1]))
    np.testing.assert_array_equal(out[:size], expected)
    assert int(found) == sum(1 << int(k) for k in expected) and {1, 2, 3} <= set(expected)


@compiled
def reals(M, lanes, out):
    like = simd.load_row(out, 0, 0, lanes)
    simd.store_row(simd.as_reals(simd.load_row(M, 1, 0, lanes), like), out, 0, 0)


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 12, 64])
@pytest.mark.parametrize(
    ("given", "size"), [(np.int8, 1), (np.int16, 400), (np.float32, 0.1), (np.float64, 0.1)]
)
def test_numbers_become_others(given, size, count, dtype):
    M = (np.arange(-count, count).reshape(2, count) * size).astype(given)
    out = np.zeros((1, count), dtype)
    reals(M, (0,) * count, out)
    np.testing.assert_array_equal(out[0], M[1].astype(dtype))


@compiled
def above(M, lanes, out):
    simd.store_above(simd.load_row(M, 0, 0, lanes), simd.load_row(M, 1, 0, lanes), out, 1)


@pytest.mark.nojit
@pytest.mark.parametrize("count", [1, 12, 16])
def test_comparisons_are_stored_as_truth_values(count):
    M = np.random.default_rng(count).normal(size=(2, count))
    M[0, 0] = M[1, 0]
    M[0, -1] = np.nan if count > 1 else M[0, 0]
    for row in (M, -M):
        out = np.ones(count + 2, np.bool_)
        above(row, (0,) * count, out)
        np.testing.assert_array_equal(out, [True, *(row[0] > row[1]), True])
