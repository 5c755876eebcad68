import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from maxmargin import priors


def test_from_categories():
    signatures = np.array([[1, 0, 1], [0, 0, 1]])
    S = 2.0 * signatures - 1
    np.testing.assert_allclose(priors.from_categories(signatures), S.T @ S / 2)
    R = priors.from_categories(S, weights=[3, 1])
    np.testing.assert_allclose(R, (3 * np.outer(S[0], S[0]) + np.outer(S[1], S[1])) / 4)
    real = priors.from_categories([[0.2, 2.0], [1.0, -3.0]])
    np.testing.assert_allclose(np.diag(real), 1)
    assert np.linalg.eigvalsh(priors.from_categories(signatures, shrinkage=0.25))[0] >= 0.25 - 1e-12
    for weights in ([1], [1, -1], [0, 0], [1, np.nan]):
        with pytest.raises(ValueError, match="weights"):
            priors.from_categories(signatures, weights)


def test_from_labels():
    Y = np.random.RandomState(0).randint(0, 2, (50, 4))
    Y[:, 3] = 0
    R = priors.from_labels(Y, shrinkage=0)
    np.testing.assert_allclose(R[:3, :3], np.corrcoef(Y[:, :3].T), atol=1e-12)
    np.testing.assert_allclose(R[3], [0, 0, 0, 1])
    np.testing.assert_allclose(priors.from_labels(sp.csr_array(Y)), priors.shrink(R, 0.1))
    S = 2.0 * Y - 1
    np.testing.assert_allclose(priors.from_labels(Y, "second_moment"), S.T @ S / 50)
    with pytest.warns(UserWarning, match="almost rank one"):
        priors.from_labels(np.eye(30, dtype=int), "second_moment")
    with pytest.raises(ValueError, match="complete label indicator"):
        priors.from_labels([[0.5, 1.0]])
    with pytest.raises(ValueError, match="method must be"):
        priors.from_labels(Y, "guess")


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 6))
def test_factor_and_check(seed, rank, L):
    P = np.random.RandomState(seed).randn(rank, L)
    R = P.T @ P
    F = priors.factor(priors.check(R))
    np.testing.assert_allclose(F.T @ F, R, atol=1e-8 * max(1, R.max()))
    assert len(F) <= min(rank, L)
    np.testing.assert_allclose(np.diag(priors.normalise(R)), 1)


def test_check_names_the_fault():
    for R, message in [
        (np.ones((2, 3)), "square"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), r"prior\[0, 1\] = 0.5"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1"),
        (np.array([[1.0, 0], [0, 0]]), r"prior\[1, 1\] = 0"),
        ([["a"]], "numbers"),
        (np.array([[np.inf]]), "NaN or infinity"),
        (np.ones(3), "matrix"),
    ]:
        with pytest.raises(ValueError, match=message):
            priors.check(R)
    with pytest.raises(ValueError, match="3 labels"):
        priors.check(np.eye(2), 3)
    clipped = priors.check(np.array([[1.0, 2.0], [2.0, 1.0]]), clip=True)
    np.testing.assert_allclose(clipped, [[1.5, 1.5], [1.5, 1.5]])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        priors.shrink(np.eye(2), 2)
    with pytest.raises(ValueError, match="positive diagonal"):
        priors.normalise(np.zeros((2, 2)))
    np.testing.assert_array_equal(priors.identity(3), np.eye(3))
    np.testing.assert_array_equal(priors.identity(np.zeros((5, 2))), np.eye(2))


def test_a_prior_is_a_matrix_or_built_from_the_training_labels():
    signs = np.array([[1, -1], [-1, 1], [1, 0], [0, -1]])
    assert priors.read_prior(None, signs) is None
    R = np.array([[1, 0.5], [0.5, 1]])
    np.testing.assert_array_equal(priors.read_prior(R.tolist(), signs), R)
    np.testing.assert_array_equal(
        priors.read_prior(priors.from_labels, signs), priors.from_labels((signs > 0).astype(int))
    )
    with pytest.raises(ValueError, match="there are 2 labels"):
        priors.read_prior(np.eye(3), signs)
