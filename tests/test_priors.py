import itertools

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


def test_from_graph():
    path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    laplacian = np.diag(path.sum(axis=1)) - path
    expected = priors.normalise(np.linalg.inv(np.eye(3) + 10 * laplacian))
    for graph in (path, sp.csr_array(path), [(0, 1), (1, 2)], [(0, 1, 1.0), (2, 1, 1.0)]):
        np.testing.assert_allclose(priors.from_graph(graph), expected)
    named = priors.from_graph([("b", "a")], labels=["a", "b", "c"], strength=3.0)
    np.testing.assert_allclose(named, [[1, 0.75, 0], [0.75, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(priors.from_graph(path, strength=0.0), np.eye(3))
    for graph, labels, match in (
        ([("a", "b")], None, "pass labels"),
        ([("a", "z")], ["a", "b"], "'z', which is not among the labels"),
        ([(0, 1, -1.0)], None, "must not be negative"),
        (np.array([[0, 1], [2, 0]]), None, "symmetric"),
        ([], None, "non-empty"),
    ):
        with pytest.raises(ValueError, match=match):
            priors.from_graph(graph, labels)
    with pytest.raises(ValueError, match="strength"):
        priors.from_graph(path, strength=-1.0)


def test_from_tree_is_the_covariance_of_what_is_handed_down():
    edges = [("root", "a"), ("a", "b"), ("a", "c"), ("root", "d")]
    labels = ["a", "b", "c", "d", "alone"]
    R = priors.from_tree(edges, labels, strength=2.0)
    rng = np.random.default_rng(0)
    root, a = np.sqrt(2) * rng.normal(size=(2, 200_000))
    b, c, d, alone = rng.normal(size=(4, 200_000))
    drawn = np.corrcoef([root + a, root + a + b, root + a + c, root + d, alone])
    np.testing.assert_allclose(R, drawn, atol=0.01)
    np.testing.assert_allclose(priors.from_tree([(0, 1), (0, 2)])[1, 2], 0.5)
    # Two parents: both hand down.
    two = priors.from_tree([("p", "x"), ("q", "x"), ("q", "y")], ["x", "y"])
    np.testing.assert_allclose(two[0, 1], 1 / np.sqrt(3 * 2))
    with pytest.raises(ValueError, match="contain a cycle"):
        priors.from_tree([(0, 1), (1, 2), (2, 0)])
    with pytest.raises(ValueError, match="strength"):
        priors.from_tree([(0, 1)], strength=0.0)


def joint_objective(W, R, loss):
    return 0.5 * np.trace(np.linalg.solve(R, W @ W.T)) + loss


def test_learned_rounds_lower_the_joint_objective():
    from maxmargin import MultiLabelSVC

    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 6))
    Y = (X @ rng.normal(size=(6, 1)) * [1.0, 1.0, -1.0] + rng.normal(size=(150, 3)) > 0).astype(int)
    base = MultiLabelSVC(C=0.05, tol=1e-10, fit_intercept=False, random_state=0)
    values = []
    for rounds in range(1, 5):
        R = priors.learned(base, X, Y, n_rounds=rounds, shrinkage=1e-3)
        assert np.trace(R) == pytest.approx(3)
        model = base.set_params(prior=R).fit(X, Y)
        values.append(model.primal_objective_)
        assert model.duality_gap_ <= 1e-10
        base.set_params(prior=None)
    assert values[0] <= MultiLabelSVC(C=0.05, fit_intercept=False, tol=1e-10).fit(X, Y).primal_objective_
    assert all(after <= before * (1 + 1e-4) for before, after in itertools.pairwise(values))
    # Labels that go together are found, with their signs.
    assert R[0, 1] > 0.5 and R[0, 2] < -0.5


def test_the_best_prior_for_weights_is_the_best():
    rng = np.random.default_rng(1)
    W = rng.normal(size=(3, 5))
    R = priors.best_for(W @ W.T, 1e-9)
    best = joint_objective(W, R, 0.0)
    for _ in range(50):
        A = rng.normal(size=(3, 3))
        other = R + 0.1 * (A @ A.T)
        assert joint_objective(W, other * 3 / np.trace(other), 0.0) >= best - 1e-9
    np.testing.assert_allclose(priors.best_for(np.zeros((2, 2)), 0.1), np.eye(2))
    W = rng.normal(size=(4, 9)) * [[1], [0], [1], [1]]
    assert np.flatnonzero(priors.best_for(W @ W.T, 0.1)[1]).tolist() == [1]


def test_learned_with_a_kernel_is_that_of_its_feature_space():
    from maxmargin import MultiLabelSVC

    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 3))
    Y = (X[:, :2] > 0).astype(int)
    for bias in ({"fit_intercept": False}, {"intercept_scaling": 2.0}):
        linear = MultiLabelSVC(C=0.1, tol=1e-8, **bias)
        kernel = MultiLabelSVC(C=0.1, tol=1e-8, kernel="poly", degree=1, gamma=1.0, **bias)
        R = priors.learned(linear, X + 1, Y)
        np.testing.assert_allclose(priors.learned(kernel, X + 1, Y), R, atol=1e-4)
    with pytest.raises(ValueError, match="precomputed"):
        priors.learned(MultiLabelSVC(kernel="precomputed"), X @ X.T, Y)
    for wrong in ({"n_rounds": 0}, {"shrinkage": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            priors.learned(MultiLabelSVC(), X, Y, **wrong)


@pytest.mark.filterwarnings("ignore:Label 1 is constant")
def test_learned_takes_labels_that_are_solved_block_by_block():
    from maxmargin import MultiLabelSVC

    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    Y = (X[:, :2] > -0.5).astype(int)
    with_constant = np.insert(Y, 1, 1, axis=1)
    dense, blocks = (MultiLabelSVC(C=0.1, tol=1e-8, memory_limit=limit) for limit in (100, 0))
    for labels in (Y, with_constant):
        R = priors.learned(dense, X, labels)
        np.testing.assert_allclose(priors.learned(blocks, X, labels), R, atol=1e-4)
    assert np.flatnonzero(R[1]).tolist() == [1]
