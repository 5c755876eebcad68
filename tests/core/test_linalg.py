"""Cholesky factors with a growing ridge, conjugate gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from maxmargin.core.linalg import conjugate_gradients, ridged_cholesky


def definite(n, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return np.eye(n) + A @ A.T


def test_a_definite_matrix_gets_the_plain_factor():
    A = definite(12)
    np.testing.assert_array_equal(ridged_cholesky(A)[0], cho_factor(A, lower=True)[0])


def test_a_ridge_is_relative_to_the_largest_diagonal_entry():
    A = np.diag([1.0, 4.0])
    L = np.tril(ridged_cholesky(A, ridge=0.25)[0])
    np.testing.assert_allclose(L @ L.T, A + np.eye(2))


@pytest.mark.parametrize("ridge", [0.0, 1e-12])
def test_a_singular_matrix_is_solved_up_to_a_small_ridge(ridge):
    A = np.ones((3, 3)) - 1e-15 * np.eye(3)
    before = A.copy()
    factor = ridged_cholesky(A, ridge=ridge)
    np.testing.assert_allclose(A @ cho_solve(factor, np.full(3, 3.0)), 3.0, rtol=1e-9)
    np.testing.assert_array_equal(A, before)


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match=r"shape \(2, 2\) is not positive definite"):
        ridged_cholesky(np.array([[1.0, 3.0], [3.0, 1.0]]), tries=8)


def test_conjugate_gradients_reach_the_accuracy_asked_for():
    A, b = definite(30), np.random.default_rng(1).normal(size=(30, 2))
    x, products = conjugate_gradients(lambda V: A @ V, b, accuracy=1e-10)
    np.testing.assert_allclose(x, np.linalg.solve(A, b), atol=1e-7)
    _, with_inverse = conjugate_gradients(lambda V: A @ V, b, lambda V: np.linalg.solve(A, V), accuracy=1e-10)
    assert with_inverse <= 2 < products
    assert conjugate_gradients(lambda V: A @ V, b, accuracy=1e-10, max_products=3)[1] == 3
