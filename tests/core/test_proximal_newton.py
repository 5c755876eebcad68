"""What Newton steps are made of: the line search, and systems whose columns differ in scale."""

import numpy as np
import pytest

from maxmargin.core.proximal_newton import FLAT, half_squares, roots_of_slopes, solve_scaled, sums


def slopes(starts, bends, kinks, scale=1.0):
    """Slopes that never fall: a line, and a jump of the bend at every kink."""

    def slope(t, of):
        steps = np.maximum(t[:, None] - kinks[of], 0.0).sum(axis=1)
        return starts[of] + bends[of] * t + 10.0 * steps / scale

    return slope


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_line_searches_end_where_the_slope_is_nearly_flat(scale):
    rng = np.random.default_rng(0)
    starts, bends = -rng.uniform(0.5, 2, 20), rng.uniform(1e-3, 10, 20) / scale
    slope = slopes(starts, bends, scale * rng.uniform(0, 3, (20, 5)), scale)
    enclosed = []
    lengths = roots_of_slopes(slope, starts, lambda: enclosed.append(1))
    assert (np.abs(slope(lengths, np.arange(20))) <= FLAT * -starts).all()
    assert enclosed or (lengths >= 1.0).all()


def test_directions_that_do_not_fall_are_not_taken():
    starts = np.array([-1.0, 0.0, 2.0, np.nan])
    lengths = roots_of_slopes(slopes(starts, np.ones(4), np.ones((4, 1))), starts, lambda: None)
    assert lengths[0] > 0 and not lengths[1:].any()


def test_systems_of_columns_of_all_sizes_are_solved():
    rng = np.random.default_rng(0)
    size = 10.0 ** np.linspace(-6, 6, 8)
    X = rng.normal(size=(30, 8)) * size
    matrix, x = X.T @ X, rng.normal(size=8) / size
    found = solve_scaled(np.tril(matrix), matrix @ x)
    np.testing.assert_allclose(found, x, rtol=1e-8)


def test_a_singular_system_gets_a_ridge():
    found = solve_scaled(np.ones((2, 2)), np.ones(2))
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-6)


@pytest.mark.parametrize("groups", [1, 3])
def test_sums_are_those_of_every_group(groups):
    a, b = np.random.default_rng(0).normal(size=(2, groups, 2, 5))
    np.testing.assert_allclose(sums(a, b), (a * b).sum(axis=(1, 2)))
    np.testing.assert_allclose(half_squares(a), 0.5 * (a * a).sum(axis=(1, 2)))
