"""The losses of the machines with a shared basis: derivatives, curvature, line search."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.core.linalg import root_of_slope
from maxmargin.sparse.loss_loops import (
    TILE,
    MultiLogit,
    SquaredHinges,
    SquaredMargins,
    star_transposed,
)
from tests.naive import basis as naive

NAMES = ("margins", "hinges", "logit")


def make(name, seed=0, n=9, k=4):
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.2, 2.0, n)
    c[rng.integers(n)] = 0.0
    F = rng.normal(size=(n, k))
    if name == "hinges":
        return SquaredHinges(rng.integers(-1, 2, (n, k)), c), F
    y = rng.integers(0, k, n)
    return (SquaredMargins if name == "margins" else MultiLogit)(y, c, k), F


def terms(loss, F):
    if isinstance(loss, SquaredMargins):
        return list(naive.margin_terms(F, loss.y))
    return list(naive.hinge_terms(F, loss.Y))


@pytest.mark.nojit
@pytest.mark.parametrize("name", ["margins", "hinges"])
@pytest.mark.parametrize("seed", range(3))
def test_compiled_passes_equal_their_slow_twins(name, seed):
    loss, F = make(name, seed)
    found = loss.at(F)
    assert found.value == pytest.approx(naive.value(terms(loss, F), loss.c), rel=1e-13)
    np.testing.assert_allclose(found.gradient, naive.gradient(terms(loss, F), loss.c, F.shape), atol=1e-13)
    D = naive.curvature(terms(loss, F), loss.c, F.shape)
    U = np.random.default_rng(seed).normal(size=F.shape)
    np.testing.assert_allclose(found.curvature.product(U), np.einsum("irs,is->ir", D, U), atol=1e-13)
    rng = np.random.default_rng(seed)
    K, steps = rng.normal(size=(3, len(F))), rng.normal(size=(3, F.shape[1]))
    expected = [naive.value(terms(loss, F + np.outer(k, s)), loss.c) for k, s in zip(K, steps, strict=True)]
    np.testing.assert_allclose(loss.after(F, K, steps), expected, rtol=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("few", [True, False])
def test_products_between_functions_equal_the_sum_over_samples(few, dtype):
    """Whether the weights are gone through one by one or as a matrix."""
    rng = np.random.default_rng(0)
    n, k, d = 12, 8, 3
    loss = SquaredMargins(rng.integers(0, k, n), rng.uniform(0.2, 2.0, n), k)
    F = np.zeros((n, k))
    if few:  # every sample far on the right side but for one rival, one sample without
        F[np.arange(n), loss.y] = 5.0
        F[np.arange(1, n), (loss.y[1:] + 3) % k] = 4.5
    at = loss.at(F)
    assert at.curvature.few == few
    Psi, V = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(d, k)).astype(dtype)
    D = naive.curvature(terms(loss, F), loss.c, F.shape)
    expected = sum(np.outer(Psi[i], D[i] @ V.T @ Psi[i]) for i in range(n))
    found = at.curvature.through(Psi, V)
    rounding = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)
    wide = np.hstack([Psi, np.full((n, 2), np.nan, dtype)])
    pulled = np.zeros((k, d), dtype)
    star_transposed(wide, at.curvature.stars, at.gradient, pulled)
    np.testing.assert_allclose(pulled.T, Psi.T @ at.gradient, atol=rounding)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(3))
def test_the_leaves_of_a_star_are_the_classes_that_violate_a_margin(seed):
    loss, F = make("margins", seed)
    stars = loss.at(F).curvature.stars
    found = [set(stars.leaves[a:b].tolist()) for a, b in pairwise(stars.start)]
    expected: list[set[int]] = [set() for _ in F]
    for i, margin, weights in terms(loss, F):
        if margin > 0 and loss.c[i] > 0:
            expected[i] |= set(np.flatnonzero(np.asarray(weights) > 0).tolist())
    assert found == expected and any(found)


def test_losses_after_steps_hold_beyond_a_tile_of_samples():
    rng = np.random.default_rng(0)
    n, k = TILE + 3, 3
    loss = SquaredMargins(rng.integers(0, k, n), rng.random(n), k)
    F, K, steps = rng.normal(size=(n, k)), rng.normal(size=(2, n)), rng.normal(size=(2, k))
    expected = [loss.at(F + np.outer(row, step)).value for row, step in zip(K, steps, strict=True)]
    np.testing.assert_allclose(loss.after(F, K, steps), expected, rtol=1e-12)


@pytest.mark.nojit
@pytest.mark.parametrize("size", [1e-3, 0.1, 10.0])
def test_losses_after_short_and_long_steps_are_exact(size):
    """Margins that a step moves over the edge count, and all others as they are."""
    rng = np.random.default_rng(0)
    n, k = 40, 6
    loss = SquaredMargins(rng.integers(0, k, n), rng.random(n), k)
    F = rng.normal(size=(n, k))
    F[np.arange(n), loss.y] += 3.0
    F[0, (loss.y[0] + 1) % k] = F[0, loss.y[0]] - 1.0  # a margin of zero
    K, steps = rng.normal(size=(5, n)), size * rng.normal(size=(5, k))
    expected = [
        naive.value(terms(loss, F + np.outer(row, s)), loss.c) for row, s in zip(K, steps, strict=True)
    ]
    np.testing.assert_allclose(loss.after(F, K, steps), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["margins", "hinges"])
def test_parts_of_a_loss_add_up(name):
    loss, F = make(name)
    parts = [loss.take(rows).at(F[rows]) for rows in (np.arange(4), np.arange(4, 9))]
    assert sum(part.value for part in parts) == pytest.approx(loss.at(F).value, rel=1e-13)
    np.testing.assert_allclose(np.vstack([p.gradient for p in parts]), loss.at(F).gradient, atol=1e-13)


@pytest.mark.nojit
@pytest.mark.parametrize("name", ["margins", "hinges"])
@pytest.mark.parametrize("longest", [np.inf, 1.0, 0.2])
def test_line_search_is_exact(name, longest):
    for seed in range(6):
        loss, F = make(name, seed)
        rng = np.random.default_rng(seed + 50)
        # A descent direction with some terms switching on and others off on the way.
        dF = -loss.at(F).gradient * rng.uniform(0, 3, F.shape) + 0.3 * rng.normal(size=F.shape)
        here, there = terms(loss, F), terms(loss, F + dF)
        M = np.array([m for _, m, _ in here])
        dM = np.array([m for _, m, _ in there]) - M
        c = np.array([loss.c[i] for i, _, _ in here])
        q1, q2 = -0.4, 0.7
        expected = naive.line_minimum(M, dM, c, q1, q2, longest)
        assert loss.step(F, dF, q1, q2, longest) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_line_search_without_any_term_and_far_minimum():
    assert root_of_slope(lambda t: (0.0, 0.0), -1e6, 1e-3, np.inf) == pytest.approx(1e9)
    assert root_of_slope(lambda t: (0.0, 0.0), -1.0, 4.0, np.inf) == pytest.approx(0.25)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_and_curvature_by_finite_differences(name):
    loss, F = make(name, 3)
    found = loss.at(F)
    rng = np.random.default_rng(1)
    V = rng.normal(size=F.shape)
    h = 1e-6
    up, down = loss.at(F + h * V), loss.at(F - h * V)
    assert (up.value - down.value) / (2 * h) == pytest.approx(np.vdot(found.gradient, V), rel=1e-7)
    slope = (up.gradient - down.gradient) / (2 * h)
    np.testing.assert_allclose(found.curvature.product(V), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_curvature_views_agree(name):
    loss, F = make(name, 5)
    curvature = loss.at(F).curvature
    n, k = F.shape
    D = np.stack([curvature.product(np.tile(e, (n, 1))) for e in np.eye(k)], axis=2)
    v = np.random.default_rng(2).normal(size=k)
    np.testing.assert_allclose(curvature.along(v), np.einsum("r,irs,s->i", v, D, v), atol=1e-12)
    np.testing.assert_allclose(curvature.diagonal(), np.einsum("irr->ir", D), atol=1e-12)
    S = np.random.default_rng(3).random((2, n))
    np.testing.assert_allclose(curvature.mixtures(S), np.einsum("qi,irs->qrs", S, D), atol=1e-12)
    Psi = np.random.default_rng(4).normal(size=(n, 3))
    full = np.zeros((k, k, 3, 3))
    for r, s, block in curvature.blocks(Psi):
        full[r, s], full[s, r] = block, block.T
    np.testing.assert_allclose(full, np.einsum("id,irs,ie->rsde", Psi, D, Psi), atol=1e-12)
    rows = curvature.rows()
    assert set(rows) >= {i for i in range(n) if D[i].any()}
    np.testing.assert_allclose(curvature.restrict(rows).product(F[rows]), curvature.product(F)[rows])


def test_own_class_contributes_nothing_and_margin_scales_out():
    loss, F = make("margins", 7)
    shifted = F + np.random.default_rng(0).normal(size=(len(F), 1))
    assert loss.at(shifted).value == pytest.approx(loss.at(F).value, rel=1e-12)
    np.testing.assert_allclose(loss.at(F).gradient.sum(axis=1), 0, atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(2, 6), st.integers(0, 10**6))
def test_losses_are_convex_along_lines(n, k, seed):
    rng = np.random.default_rng(seed)
    y, c = rng.integers(0, k, n), rng.random(n)
    F, V = rng.normal(size=(2, n, k))
    for loss in (SquaredMargins(y, c, k), MultiLogit(y, c, k), SquaredHinges(rng.integers(-1, 2, (n, k)), c)):
        middle = loss.at(F + 0.5 * V).value
        assert middle <= 0.5 * (loss.at(F).value + loss.at(F + V).value) + 1e-9
