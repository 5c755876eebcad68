"""The compiled loops against their slow twins, iterate by iterate on the same order."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin import priors
from maxmargin.core.rows import Rows, readonly
from maxmargin.multilabel import dca_loops, loops
from maxmargin.multilabel.dca import DualCoordinateAscent
from maxmargin.multilabel.problem import EntryCosts, LinearM3L, hamming_costs, tied_costs
from tests.naive import m3l as naive

pytestmark = pytest.mark.nojit

N, D, L = 9, 4, 3
BIAS, PULL = 1.5, np.array([0.3, 1.0, 0.05])


def make(seed, entry_weights=False, tied=False):
    rng = np.random.RandomState(seed)
    X = rng.randn(N, D) * (rng.rand(N, D) < 0.7)
    X[2] = 0
    Y = np.where(rng.rand(N, L) < 0.5, 1, -1).astype(np.int8)
    weight = rng.rand(N, L if entry_weights else 1) + 0.5
    upper = rng.rand(2, L) + 0.5
    if tied:
        return (
            rng,
            X,
            tied_costs(Y, upper, weight, priors.shrink(np.full((L, L), 0.4) + 0.6 * np.eye(L), 0.5)),
        )
    Y[1, 1] = 0
    return rng, X, hamming_costs(Y, upper, weight, rng.rand(2, L) + 0.5)


def kinds(X):
    return Rows.of(X), Rows.of(sp.csr_array(X))


VARIANTS = [{}, {"entry_weights": True}, {"tied": True}]


@pytest.mark.parametrize("variant", VARIANTS)
def test_accumulate_and_measure(variant):
    rng, X, costs = make(0, **variant)
    alpha = rng.rand(N, L) * costs.boxes() * (rng.rand(N, L) < 0.7)
    T, G = rng.randn(D + 1, L), rng.randn(L, L)
    for rows in kinds(X):
        problem = LinearM3L(rows, costs, None, BIAS)
        np.testing.assert_allclose(
            problem.accumulate(alpha), naive.accumulate(X, BIAS, alpha, costs.signs), atol=1e-12
        )
        for mix in (None, G):
            flags = np.empty((N, L), np.bool_)
            sums = problem.measure(alpha, T, mix, flags, 2, quiet=0.1)
            *expected, marks = naive.measure(X, BIAS, alpha, *costs.flat(np.float64), T, mix, 0.1)
            np.testing.assert_allclose(np.array(sums), np.array(expected), rtol=1e-12)
            np.testing.assert_array_equal(flags, marks)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bias", [BIAS, 0.0])
def test_sweep_labels(variant, bias):
    rng, X, costs = make(1, **variant)
    q = (X**2).sum(1)
    r = rng.rand(L) + 0.5
    for rows in kinds(X):
        ours = np.zeros((N, L)), np.zeros((D + 1, L)), np.zeros(L)
        theirs = np.zeros((N, L)), np.zeros((D + 1, L)), np.zeros(L)
        for _ in range(4):
            order = rng.permutation(N)
            for lo, hi in ((0, 1), (1, L)):
                loops.sweep_labels(
                    rows.flat, bias, readonly(PULL), readonly(order), np.uint64(lo), np.uint64(hi), ours[0],
                    *costs.flat(np.float64), readonly(q), readonly(r), ours[1], ours[2],
                )  # fmt: skip
            naive.sweep_labels(X, bias, PULL, order, theirs[0], *costs.flat(np.float64), q, r, *theirs[1:])
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-12)
        boxes = costs.boxes()
        if not bias:
            np.testing.assert_array_equal(ours[0][2], boxes[2])  # an empty row goes to its bound


def test_gather_lists():
    rng = np.random.RandomState(2)
    flags = rng.rand(N, L) < 0.5
    order = rng.permutation(N)
    counts = flags.sum(0)
    starts = np.concatenate([[0], np.cumsum(counts)])
    members = np.empty(counts.sum(), np.int32)
    loops.gather_lists(readonly(flags), readonly(order), starts[:-1].copy(), members)
    for l in range(L):
        assert list(members[starts[l] : starts[l + 1]]) == [i for i in order if flags[i, l]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_polish_labels(variant):
    rng, X, costs = make(3, **variant)
    q, r = (X**2).sum(1), rng.rand(L) + 0.5
    draws = rng.randint(0, 2**32, 64, dtype=np.uint32)
    lists = [rng.permutation(N)[: 6 + l].astype(np.int32) for l in range(L)]
    starts = np.cumsum([0, *map(len, lists)])
    targets = np.array([0.0, 0.3, 1e-3])
    for rows in kinds(X):
        for n_passes in (1, 2, 5):
            alpha = np.zeros((N, L))
            WT, S, remaining = np.zeros((L, D + 1)), np.zeros(L), np.full(L, np.nan)
            loops.polish_labels(
                rows.flat, BIAS, readonly(PULL), readonly(np.array([2, 0, 1])), readonly(starts),
                readonly(np.concatenate(lists)), alpha, *costs.flat(np.float64), readonly(q), readonly(r),
                WT, S, readonly(targets), n_passes, readonly(draws), remaining,
            )  # fmt: skip
            twin, W2, S2 = np.zeros((N, L)), np.zeros((L, D + 1)), np.zeros(L)
            for l in range(L):
                left = naive.polish_label(
                    X, BIAS, PULL, l, lists[l], twin, *costs.flat(np.float64), q, r, W2[l], S2,
                    targets[l], n_passes, draws,
                )  # fmt: skip
                assert remaining[l] == pytest.approx(left, abs=1e-12)
            np.testing.assert_allclose(alpha, twin, atol=1e-12)
            np.testing.assert_allclose(WT, W2, atol=1e-12)
            np.testing.assert_allclose(S, S2, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("low_rank", [False, True])
def test_sweep_samples(variant, low_rank):
    rng, X, costs = make(4, **variant)
    P = rng.randn(2, L)
    R = P.T @ P if low_rank else P.T @ P + np.eye(L)
    q = (X**2).sum(1)
    for rows in kinds(X):
        alpha, S = np.zeros((N, L)), np.zeros(L)
        twin, V, S2 = np.zeros((N, L)), np.zeros((D + 1, L)), np.zeros(L)
        T = np.zeros((D + 1, 2 if low_rank else L))
        G = readonly(P.T if low_rank else R)
        flags, marks = np.ones((N, L), np.bool_), np.ones((N, L), np.bool_)
        reach = np.full(L, -np.inf), np.full(L, np.inf)
        for _ in range(4):
            order, label_order = rng.permutation(N), rng.permutation(L)
            low, high = np.zeros((2, 2, L))
            low[0], high[0] = reach
            low2, high2 = low.copy(), high.copy()
            counts = flags.sum(1)
            loops.sweep_samples(
                rows.flat, BIAS, readonly(PULL), readonly(order), readonly(label_order), alpha,
                *costs.flat(np.float64), readonly(q), readonly(np.diag(R).copy()), T, G, G, low_rank,
                flags, counts, low, high, S,
            )  # fmt: skip
            naive.sweep_samples(
                X, BIAS, PULL, order, label_order, twin, *costs.flat(np.float64), q, R, V, marks, low2,
                high2, S2,
            )  # fmt: skip
            np.testing.assert_allclose(alpha, twin, atol=1e-9)
            np.testing.assert_allclose(T, V @ P.T if low_rank else V, atol=1e-9)
            np.testing.assert_array_equal(flags, marks)
            np.testing.assert_array_equal(counts, marks.sum(1))
            np.testing.assert_allclose(S, S2, atol=1e-9)
            np.testing.assert_allclose((low, high), (low2, high2), atol=1e-9)
            reach = low[1] / 2, high[1] / 2


@pytest.mark.parametrize("delayed", [False, True])
def test_dca_passes(delayed):
    rng, X, costs = make(5)
    P = rng.randn(L, L)
    R = P.T @ P
    q = (X**2).sum(1) + BIAS**2
    for rows in kinds(X):
        problem = LinearM3L(rows, costs, R, BIAS)
        planner = DualCoordinateAscent(problem, np.zeros((N, L)), tol=1e-3, rng=np.random.RandomState(7))
        alpha, twin = np.zeros((N, L)), np.zeros((N, L))
        Z, Z2 = np.zeros((D + 1, L)), np.zeros((D + 1, L))
        active, active2 = np.ones((N, L), np.bool_), np.ones((N, L), np.bool_)
        for sweep in range(4):
            low, high = np.zeros((2, L)), np.zeros((2, L))
            low[0], high[0] = (-0.3, 0.3) if sweep else (-np.inf, np.inf)
            low2, high2 = low.copy(), high.copy()
            pairs = np.flatnonzero(active)
            if delayed:
                pairs, bounds = planner._delayed_order(pairs)
                cuts = list(itertools.pairwise(bounds))
                order: tuple = (readonly(pairs), readonly(bounds))
            else:
                pairs = rng.permutation(pairs)
                cuts = [(k, k + 1) for k in range(len(pairs))]
                order = (readonly(pairs),)
            chunks = [[divmod(int(pair), L) for pair in pairs[a:b]] for a, b in cuts]
            loop = dca_loops.delayed_pass if delayed else dca_loops.random_pass
            seen = loop(
                rows.flat, BIAS, *order, alpha, *costs.flat(np.float64), readonly(q), readonly(R), Z,
                active, low, high,
            )  # fmt: skip
            seen2 = naive.dca_pass(
                X, BIAS, chunks, twin, *costs.flat(np.float64), q, R, Z2, active2, low2, high2
            )
            assert seen == pytest.approx(seen2, abs=1e-10)
            np.testing.assert_allclose(alpha, twin, atol=1e-10)
            np.testing.assert_allclose(Z, Z2, atol=1e-10)
            np.testing.assert_array_equal(active, active2)
            np.testing.assert_allclose((low, high), (low2, high2), atol=1e-10)


def test_delayed_order_visits_every_pair_once_in_chunks_of_one_label():
    _, X, costs = make(6)
    problem = LinearM3L(Rows.of(X), costs, None, BIAS)
    planner = DualCoordinateAscent(problem, np.zeros((N, L)), tol=1e-3, rng=np.random.RandomState(0))
    pairs = np.flatnonzero(np.random.RandomState(1).rand(N * L) < 0.8)
    order, bounds = planner._delayed_order(pairs)
    assert sorted(order) == sorted(pairs)
    for a, b in itertools.pairwise(bounds):
        assert 0 < b - a <= L
        assert len(set(order[a:b] % L)) == 1


def test_costs_matrices_agree_with_the_loops():
    _, _, costs = make(7, entry_weights=True)
    boxes, margins = naive.matrices_of(*costs.flat(np.float64))
    np.testing.assert_allclose(costs.boxes(), boxes)
    known = costs.signs != 0
    np.testing.assert_allclose(costs.margins()[known], margins[known])
    assert isinstance(costs, EntryCosts)
