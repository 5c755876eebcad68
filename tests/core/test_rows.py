"""Products of rows with feature-major weights, for every width that their loops treat in its own way."""

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.jit import compiled
from maxmargin.core.rows import Rows, line_scores, row_outer, row_scores, vector_product

pytestmark = pytest.mark.nojit

# Less than a cache line and than a group of either size, just one, with some columns left over, and several.
WIDTHS = (1, 15, 16, 31, 32, 37, 64, 101, 112, 113, 147, 256)
BIAS = 1.5


@compiled
def scores_between(rows, i, bias, W, lo, hi, scores):
    row_scores(rows, i, bias, W, lo, hi, scores)


@compiled
def scores_of_lines(rows, i, bias, W, scores):
    line_scores(rows, i, bias, W, scores)


@compiled
def product(t, G, answer):
    vector_product(t, G, answer)


@compiled
def outer_between(rows, i, bias, step, lo, hi, W):
    row_outer(rows, i, bias, step, lo, hi, W)


def make(width, dtype):
    rng = np.random.RandomState(width)
    X = rng.randn(6, 7) * (rng.rand(6, 7) < 0.6)
    X[2] = 0
    W = rng.randn(8, width).astype(dtype)
    kinds = Rows.of(X.astype(dtype)), Rows.of(sp.csr_array(X.astype(dtype)))
    return rng, np.hstack([X, np.full((6, 1), BIAS)]), W, kinds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", WIDTHS)
def test_scores(width, dtype):
    _, X, W, kinds = make(width, dtype)
    for rows in kinds:
        scores = np.full((6, width), np.nan, dtype)
        for i in range(6):
            scores_between(rows.flat, i, dtype(BIAS), W, 0, width, scores[i])
        np.testing.assert_allclose(scores, X @ W, atol=1e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize(
    "lo, hi", [(0, 16), (16, 101), (16, 48), (3, 34), (3, 36), (3, 80), (3, 120), (0, 112), (100, 101)]
)
def test_scores_touch_their_range_alone(lo, hi):
    _, X, W, kinds = make(121, np.float64)
    for rows in kinds:
        scores = np.full(121, np.nan)
        scores_between(rows.flat, 4, BIAS, W, np.uint64(lo), np.uint64(hi), scores)
        np.testing.assert_allclose(scores[lo:hi], X[4] @ W[:, lo:hi], atol=1e-12)
        assert np.isnan(np.delete(scores, np.arange(lo, hi))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [16, 32, 48, 64, 112, 128, 176, 256])
def test_scores_of_whole_lines(width, dtype):
    _, X, W, kinds = make(width, dtype)
    for rows in kinds:
        scores = np.full(width, np.nan, dtype)
        scores_of_lines(rows.flat, 4, dtype(BIAS), W, scores)
        np.testing.assert_allclose(scores, X[4] @ W, atol=1e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", WIDTHS)
def test_outer(width, dtype):
    rng, X, W, kinds = make(width, dtype)
    lo = width // 3
    # Some groups of sixteen have one step, others none.
    step = (rng.randn(width) * (rng.rand(width) < 0.05)).astype(dtype)
    step[-1] = 1.25
    expected = W.astype(np.float64)
    expected[:, lo:] += np.outer(X[4], step[lo:])
    for rows in kinds:
        moved = W.copy()
        outer_between(rows.flat, 4, dtype(BIAS), step, np.uint64(lo), np.uint64(width), moved)
        np.testing.assert_allclose(moved, expected, atol=1e-5 if dtype is np.float32 else 1e-12)
        np.testing.assert_array_equal(moved[:, :lo], W[:, :lo])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("width", "length"), [(1, 1), (16, 5), (33, 1), (112, 5), (145, 5)])
def test_product_of_a_vector(length, width, dtype):
    rng = np.random.RandomState(width)
    t, G = rng.randn(7).astype(dtype), rng.randn(length, width).astype(dtype)
    answer = np.full(width, np.nan, dtype)
    product(t, G, answer)
    np.testing.assert_allclose(answer, t[:length] @ G, atol=1e-5 if dtype is np.float32 else 1e-12)
