"""The compiled loops against an independent dense twin, iterate by iterate on the same order."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin import priors
from maxmargin.core import rows as core_rows
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import aligned_zeros
from maxmargin.multilabel import loops, paper_linear_loops, sweep_loops
from maxmargin.multilabel.paper_linear import DualCoordinateAscent
from maxmargin.multilabel.problem import EntryCosts, LinearM3L, hinge_costs, shrinking_bounds, tied_costs
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
        R = priors.shrink(np.full((L, L), 0.4) + 0.6 * np.eye(L), 0.5)
        return rng, X, tied_costs(Y, upper, weight, R)
    Y[1, 1] = 0
    return rng, X, hinge_costs(Y, upper, weight, rng.rand(2, L) + 0.5)


def kinds(X):
    return Rows.of(X), Rows.of(sp.csr_array(X))


def geometry(X, bias, r, damping=PULL):
    return sweep_loops.Geometry(np.float64(bias), readonly(damping), readonly((X**2).sum(1)), readonly(r))


VARIANTS = [{}, {"entry_weights": True}, {"tied": True}]


@pytest.mark.parametrize("variant", VARIANTS)
def test_costs_are_those_of_their_definition(variant):
    _, _, costs = make(7, **variant)
    c, m = naive.boxes_and_margins(costs)
    np.testing.assert_array_equal(costs.boxes(), c)
    known = costs.signs != 0
    np.testing.assert_array_equal(costs.margins()[known], m[known])
    flat = costs.flat(np.float64)
    for i, l in itertools.product(range(N), range(L)):
        assert loops.entry_costs(flat, i, l) == (c[i, l], m[i, l])


@pytest.mark.parametrize("variant", VARIANTS)
def test_accumulate_and_measure(variant):
    rng, X, costs = make(0, **variant)
    c, m = naive.boxes_and_margins(costs)
    alpha = rng.rand(N, L) * c * (rng.rand(N, L) < 0.7)
    T, G = rng.randn(D + 1, L), rng.randn(L, L)
    Xb = naive.with_bias(X, BIAS)
    for rows in kinds(X):
        problem = LinearM3L(rows, costs, None, BIAS)
        for n_threads in (1, 3):
            V = problem.accumulate(alpha, n_threads=n_threads)
            np.testing.assert_allclose(V, Xb.T @ (costs.signs * alpha), atol=1e-12)
        for mix in (None, G):
            flags = np.empty((N, L), np.bool_)
            sums = problem.measure(alpha, T, mix, flags, 2, negligible=0.1)
            g = m - costs.signs * (Xb @ (T if mix is None else T @ mix))
            gaps = naive.shares(alpha, c, g)
            expected = c * np.maximum(g, 0), gaps, m * alpha, costs.signs * alpha
            np.testing.assert_allclose(
                np.array(sums), np.array([table.sum(0) for table in expected]), rtol=1e-12
            )
            np.testing.assert_array_equal(flags, gaps > 0.1)


@pytest.mark.parametrize("every_entry", [False, True])
@pytest.mark.parametrize("n_labels", [1, 16, 37])
def test_sums_of_any_number_of_labels(n_labels, every_entry):
    """Fewer than a line, one, and several with some left over; rows of no, few and many nonzeros."""
    rng = np.random.RandomState(n_labels)
    X, signs = rng.randn(N, D), rng.choice([-1, 1], (N, n_labels)).astype(np.int8)
    shapes = [(N, n_labels), (N, n_labels)] if every_entry else [(N, 1), (2, n_labels)]
    weight, margin = (rng.rand(*shape) + 0.1 for shape in shapes)
    costs = EntryCosts(signs, weight, rng.rand(2, n_labels) + 0.5, margin, per_entry_margin=every_entry)
    c, m = naive.boxes_and_margins(costs)
    alpha = c * rng.rand(N, n_labels) * (rng.rand(N, n_labels) < np.linspace(0, 1, N)[:, None])
    Xb, T = naive.with_bias(X, BIAS), rng.randn(D + 1, n_labels)
    g = m - signs * (Xb @ T)
    gaps = naive.shares(alpha, c, g)
    expected = c * np.maximum(g, 0), gaps, m * alpha, signs * alpha
    for rows, dtype, real in itertools.product(kinds(X), (np.float64, np.float32), (np.float64, np.float32)):
        problem, given = LinearM3L(rows, costs, None, BIAS), alpha.astype(dtype)
        exact = 1e-12 if dtype is real is np.float64 else 2e-5
        np.testing.assert_allclose(problem.accumulate(given, real), Xb.T @ (signs * alpha), atol=exact)
        flags = np.empty((N, n_labels), np.bool_)
        sums = problem.measure(given, T.astype(real), None, flags, 1, negligible=0.1)
        np.testing.assert_allclose(np.array(sums), [table.sum(axis=0) for table in expected], atol=exact)
        np.testing.assert_array_equal(flags, gaps > 0.1)


@pytest.mark.parametrize("n_labels", [1, 37])
def test_entries_at_the_bound_they_belong_to_are_not_marked(n_labels):
    rng = np.random.RandomState(n_labels)
    X, signs = rng.randn(N, D), rng.choice([-1, 1], (N, n_labels)).astype(np.int8)
    costs = hinge_costs(signs, rng.rand(2, n_labels) + 0.5, rng.rand(N, 1), rng.rand(2, n_labels) + 0.1)
    T = rng.randn(D + 1, n_labels).astype(np.float32)
    g = costs.margins() - signs * (naive.with_bias(X, BIAS) @ T)
    alpha = np.where(g > 0, costs.boxes(np.float32), np.float32(0))
    assert alpha.any() and not alpha.all()
    for rows in kinds(X.astype(np.float32)):
        flags = np.empty((N, n_labels), np.bool_)
        sums = LinearM3L(rows, costs, None, BIAS).measure(alpha, T, None, flags, 1)
        assert not flags.any() and not sums.gap.any()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("low_rank", [False, True])
def test_evaluated_objectives_are_those_of_their_definition(variant, low_rank):
    rng, X, costs = make(8, **variant)
    c, m = naive.boxes_and_margins(costs)
    P = rng.randn(2, L)
    R = P.T @ P + (0 if low_rank else np.eye(L))
    alpha = rng.rand(N, L) * c
    Xb = naive.with_bias(X, BIAS)
    for rows in kinds(X):
        Z, certificate = LinearM3L(rows, costs, R, BIAS).evaluate(alpha)
        np.testing.assert_allclose(Z, Xb.T @ (costs.signs * alpha) @ R, atol=1e-12)
        expected = naive.primal(Xb, costs.signs, c, m, R, Z) + costs.constant
        assert certificate.primal == pytest.approx(expected, rel=1e-9)
        expected = naive.dual(Xb, costs.signs, m, R, alpha) + costs.constant
        assert certificate.dual == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bias", [BIAS, 0.0])
def test_sweep_labels(variant, bias):
    rng, X, costs = make(1, **variant)
    r = rng.rand(L) + 0.5
    for rows in kinds(X):
        ours = sweep_loops.Ascent(np.zeros((N, L)), np.zeros((D + 1, L)), np.zeros(L))
        twin = naive.Twin(X, bias, costs, np.diag(r), PULL)
        marks = np.zeros((N, L), np.bool_)
        for _ in range(4):
            before = twin.alpha.copy()
            order = rng.permutation(N)
            for lo, hi in ((0, 1), (1, L)):
                W = aligned_zeros(D + 1, hi - lo, np.float64)  # and idle columns
                W[:, : hi - lo] = ours.W[:, lo:hi]
                state = ours._replace(W=W)
                sweep_loops.sweep_labels(
                    rows.flat, costs.flat(np.float64), geometry(X, bias, r), readonly(order),
                    np.uint64(lo), np.uint64(hi), state, marks,
                )  # fmt: skip
                ours.W[:, lo:hi] = W[:, : hi - lo]
            for i, l in itertools.product(order, range(L)):
                twin.maximise(i, l)
            for a, b in zip(ours, (twin.alpha, twin.Z, twin.S), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-12)
            within = (twin.alpha > 0) & (twin.alpha < twin.c)
            np.testing.assert_array_equal(marks, within | (twin.alpha != before))
        if not bias:
            np.testing.assert_array_equal(ours.alpha[2], twin.c[2])  # an empty row goes to its bound


@pytest.mark.parametrize("every_entry", [False, True])
def test_sweeps_of_many_labels_are_those_of_each_alone(every_entry):
    """Lines of labels, the last two of which overlap; with boxes and margins of every entry, or few."""
    rng, n_labels = np.random.RandomState(6), 53
    X = rng.randn(N, D)
    signs = np.where(rng.rand(N, n_labels) < 0.3, 1, -1).astype(np.int8)
    upper = rng.rand(2, n_labels) + 0.5
    if every_entry:
        signs[rng.rand(N, n_labels) < 0.2] = 0
        costs = EntryCosts(
            signs, rng.rand(N, n_labels), upper, rng.rand(N, n_labels) + 0.1, per_entry_margin=True
        )
    else:
        costs = hinge_costs(signs, upper, rng.rand(N, 1), rng.rand(2, n_labels) + 0.1)
    fixed = geometry(X, BIAS, np.ones(n_labels), np.full(n_labels, 0.3))
    for rows in kinds(X):
        found = []
        for cuts in (range(n_labels + 1), (0, 16, n_labels), (0, 48, n_labels)):
            sizes = (N, n_labels), (D + 1, n_labels), n_labels
            state = sweep_loops.Ascent(*map(np.zeros, sizes))
            marks = np.zeros((N, n_labels), np.bool_)
            rng.seed(0)
            for _ in range(3):
                order = readonly(rng.permutation(N))
                for lo, hi in itertools.pairwise(cuts):
                    W = aligned_zeros(D + 1, hi - lo, np.float64)  # and idle columns
                    W[:, : hi - lo] = state.W[:, lo:hi]
                    part = np.uint64(lo), np.uint64(hi), state._replace(W=W)
                    sweep_loops.sweep_labels(rows.flat, costs.flat(np.float64), fixed, order, *part, marks)
                    state.W[:, lo:hi] = W[:, : hi - lo]
            found.append(state)
        for one, *cut in zip(*found, strict=True):
            for many in cut:
                np.testing.assert_allclose(many, one, atol=1e-12)
        within = (state.alpha > 0) & (state.alpha < costs.boxes())
        assert within.any() and marks[within].all() and not marks.all()


def test_gather_lists():
    rng = np.random.RandomState(2)
    flags = rng.rand(N, L) < 0.5
    order = rng.permutation(N)
    counts = flags.sum(0)
    starts = np.concatenate([[0], np.cumsum(counts)])
    members = np.empty(counts.sum(), np.int32)
    ends = starts[:-1].copy()
    for part in ((0, 1), (1, L)):
        sweep_loops.gather_lists(readonly(flags.view(np.uint8)), readonly(order), *part, ends, members)
    np.testing.assert_array_equal(ends, starts[1:])
    for l in range(L):
        assert list(members[starts[l] : starts[l + 1]]) == [i for i in order if flags[i, l]]


def test_shuffle_gives_every_order_equally_often():
    rng = np.random.RandomState(0)
    draws = rng.randint(0, 2**32, 1 << 12, dtype=np.uint32)
    seen: dict[tuple, int] = {}
    cursor = 5
    for _ in range(6 * 400):
        turn = np.array([0, 1, 2, 9])
        before, cursor = cursor, core_rows.shuffle(turn, 3, draws, cursor)
        assert cursor == before + 2 and turn[3] == 9
        seen[tuple(turn[:3])] = seen.get(tuple(turn[:3]), 0) + 1
        cursor = rng.randint(1 << 12)
    assert sorted(seen) == sorted(itertools.permutations(range(3)))
    assert max(abs(count - 400) for count in seen.values()) < 100


@pytest.mark.parametrize("variant", VARIANTS)
def test_polish_labels(variant):
    rng, X, costs = make(3, **variant)
    r = rng.rand(L) + 0.5
    draws = readonly(rng.randint(0, 2**32, 64, dtype=np.uint32))
    samples = [rng.permutation(N)[: 6 + l].astype(np.int32) for l in range(L)]
    starts = np.cumsum([0, *map(len, samples)])
    first, target = np.array([11, 3, 40]), np.array([-1.0, 0.3, 1e-3])
    tables = (starts, np.concatenate(samples), first, target)
    lists = sweep_loops.Lists(*(readonly(table) for table in tables))
    limits = itertools.product((1, 2, 5), (0.0, 0.4), (0.0, 0.2))
    halved = False
    for rows, limit in itertools.product(kinds(X), limits):
        enough = sweep_loops.PassLimits(*limit)
        ours = sweep_loops.Ascent(np.zeros((N, L)), np.zeros((L, D + 1)), np.zeros(L))
        remaining = np.full(L, np.nan)
        sweep_loops.label_passes(
            rows.flat, costs.flat(np.float64), geometry(X, BIAS, r), readonly(np.array([2, 0, 1])), lists,
            draws, enough, ours, remaining,
        )  # fmt: skip
        twin = naive.Twin(X, BIAS, costs, np.diag(r), PULL)
        for l in range(L):
            cursor = [int(first[l])]

            def shuffle(queue, cursor=cursor):
                turn = np.arange(len(queue))
                cursor[0] = core_rows.shuffle(turn, len(queue), draws, cursor[0])
                return [queue[t] for t in turn]

            left = twin.polish(l, samples[l], shuffle, target[l], *enough)
            assert remaining[l] == pytest.approx(left, abs=1e-12)
        np.testing.assert_allclose(ours.alpha, twin.alpha, atol=1e-12)
        np.testing.assert_allclose(ours.W, twin.Z.T, atol=1e-12)
        np.testing.assert_allclose(ours.S, twin.S, atol=1e-12)
        assert twin.damping[1] == PULL[1] == 1
        halved |= bool((twin.damping < PULL).any())
    assert halved


def room(size):
    nowhere, values = np.empty(0, np.int64), np.full((5, size), np.nan)
    return sweep_loops.SampleLists(nowhere, nowhere, np.empty(size, np.uint32), *values)


def sample_lists(costs, alpha, flags):
    starts, counts = np.empty(N + 1, np.int64), np.empty(N, np.int64)
    lists = room(np.count_nonzero(flags))._replace(starts=starts, counts=counts)
    sweep_loops.gather_entries(readonly(flags.view(np.uint8)), costs.flat(np.float64), alpha, lists)
    np.testing.assert_array_equal(counts, flags.sum(axis=1))
    np.testing.assert_array_equal(starts, np.append(0, np.cumsum(counts)))
    return lists


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("low_rank", [False, True])
def test_sweep_samples(variant, low_rank):
    """Two sweeps over all entries, then over those that the last one marked, some of which take no step."""
    rng, X, costs = make(4, **variant)
    P = rng.randn(2, L)
    R = P.T @ P if low_rank else P.T @ P + np.eye(L)
    G = P.T if low_rank else R
    idle = 16 - G.shape[1]
    for rows in kinds(X):
        ours = sweep_loops.Ascent(np.zeros((N, L)), np.zeros((D + 1, 16)), np.zeros(L))
        twin = naive.Twin(X, BIAS, costs, R, PULL)
        flags, marks = np.zeros((N, L), np.bool_), np.zeros((N, L), np.bool_)
        bounds, lists, queues = (np.full(L, -np.inf), np.full(L, np.inf)), room(L), []
        for done in range(6):
            order, small = rng.permutation(N), 0.02 if done > 2 else 0.0
            low, high = np.zeros((2, 2, L))
            low[0], high[0] = bounds
            before, twin.primal = twin.alpha.copy(), 0.0
            seen, primal = sweep_loops.sweep_samples(
                rows.flat, costs.flat(np.float64), geometry(X, BIAS, np.diag(R).copy()), readonly(order),
                sweep_loops.Mixing(readonly(np.pad(G, ((0, 0), (0, idle)))), low_rank), ours, lists,
                loops.Bounds(flags, low, high), small,
            )  # fmt: skip
            if done < 2:
                *extremes, gaps = twin.sweep_all(order, marks)
                np.testing.assert_array_equal(flags, marks)
                assert primal == pytest.approx(twin.primal, rel=1e-9)
            else:
                assert primal == 0.0
                *extremes, gaps = twin.sweep_lists(order, queues, bounds, small)
                assert lists.counts.tolist() == [len(queue) for queue in queues]
                for i, first in enumerate(lists.starts[:-1]):
                    assert lists.label[first : first + lists.counts[i]].tolist() == queues[i]
                    for e in range(first, lists.starts[i + 1]):
                        assert lists.before[e] == pytest.approx(before[i, lists.label[e]], abs=1e-9)
                ours.alpha[np.repeat(np.arange(len(ours.alpha)), np.diff(lists.starts)), lists.label] = (
                    lists.a
                )
                bounds = low[1] / 2, high[1] / 2
            assert seen == pytest.approx(gaps, abs=1e-9)
            np.testing.assert_allclose(ours.alpha, twin.alpha, atol=1e-9)
            T = np.pad(twin.V @ P.T if low_rank else twin.V, ((0, 0), (0, idle)))
            np.testing.assert_allclose(ours.W, T, atol=1e-9)
            np.testing.assert_allclose(ours.S, twin.S, atol=1e-9)
            np.testing.assert_allclose((low[1], high[1]), extremes, atol=1e-9)
            if done == 1:
                assert marks.any() and not marks.all()
                lists = sample_lists(costs, ours.alpha, flags)
                queues = [np.flatnonzero(marked).tolist() for marked in marks]
        assert sum(map(len, queues)) < marks.sum()


def test_sweep_samples_of_many_labels():
    """Sweeps over more than a line of labels; lists of many and of few, whose scores are found otherwise."""
    rng, n_labels = np.random.RandomState(10), sweep_loops.MANY + 5
    X = rng.randn(N, D)
    signs = np.where(rng.rand(N, n_labels) < 0.3, 1, -1).astype(np.int8)
    costs = hinge_costs(signs, np.ones((2, n_labels)), np.ones((N, 1)))
    P = rng.randn(4, n_labels) / 4
    R, damping = P.T @ P + np.eye(n_labels), np.full(n_labels, 0.3)
    mixing = sweep_loops.Mixing(readonly(np.pad(R, ((0, 0), (0, 32 - n_labels)))), False)
    listed = rng.rand(N, n_labels) < np.linspace(0.2, 1, N)[:, None]
    bounds = np.full(n_labels, -np.inf), np.full(n_labels, np.inf)
    queues = [np.flatnonzero(marked).tolist() for marked in listed]
    for rows in kinds(X):
        ours = sweep_loops.Ascent(np.zeros((N, n_labels)), np.zeros((D + 1, 32)), np.zeros(n_labels))
        twin = naive.Twin(X, BIAS, costs, R, damping)
        flags, marks = np.zeros((N, n_labels), np.bool_), np.zeros((N, n_labels), np.bool_)
        lists = room(n_labels)
        for done in range(5):
            order = rng.permutation(N)
            low, high = np.zeros((2, 2, n_labels))
            low[0], high[0] = bounds
            seen, _ = sweep_loops.sweep_samples(
                rows.flat, costs.flat(np.float64), geometry(X, BIAS, np.diag(R).copy(), damping),
                readonly(order), mixing, ours, lists, loops.Bounds(flags, low, high), 0.0,
            )  # fmt: skip
            if done < 2:
                *_, gaps = twin.sweep_all(order, marks)
                np.testing.assert_array_equal(flags, marks)
            else:
                *_, gaps = twin.sweep_lists(order, queues, bounds)
                ours.alpha[np.repeat(np.arange(len(ours.alpha)), np.diff(lists.starts)), lists.label] = (
                    lists.a
                )
            assert seen == pytest.approx(gaps, abs=1e-9)
            np.testing.assert_allclose(ours.alpha, twin.alpha, atol=1e-9)
            np.testing.assert_allclose(ours.W[:, :n_labels], twin.V, atol=1e-9)
            np.testing.assert_allclose(ours.S, twin.S, atol=1e-9)
            if done == 1:
                assert marks.any() and not marks.all()
                lists = sample_lists(costs, ours.alpha, listed)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("delayed", [False, True])
def test_dca_passes(delayed, tied):
    """Also in phase B: only the chunk's own label is scored in a chunk, so the delay changes nothing."""
    rng, X, costs = make(5)
    P = rng.randn(L, L)
    R = P.T @ P if tied else np.diag(rng.rand(L) + 0.5)
    q = readonly((X**2).sum(1) + BIAS**2)
    for rows in kinds(X):
        problem = LinearM3L(rows, costs, R, BIAS)
        planner = DualCoordinateAscent(problem, np.zeros((N, L)), tol=1e-3, rng=np.random.RandomState(7))
        state = paper_linear_loops.PaperState(readonly(R), q, np.zeros((N, L)), np.zeros((D + 1, L)))
        twin = naive.Twin(X, BIAS, costs, R)
        active, marks = np.ones((N, L), np.bool_), np.ones((N, L), np.bool_)
        for sweep in range(4):
            low, high = np.zeros((2, L)), np.zeros((2, L))
            low[0], high[0] = (-0.3, 0.3) if sweep else (-np.inf, np.inf)
            reach = loops.Bounds(active, low, high)
            given = rows.flat, costs.flat(np.float64), BIAS
            if delayed:
                pairs, chunks = planner._delayed_order(np.flatnonzero(active))
                seen = paper_linear_loops.delayed_pass(
                    *given, readonly(pairs), readonly(chunks), state, reach
                )
            else:
                pairs = rng.permutation(np.flatnonzero(active))
                seen = paper_linear_loops.random_pass(*given, readonly(pairs), state, reach)
            *extremes, expected = twin.sweep([divmod(pair, L) for pair in pairs], marks, (low[0], high[0]))
            assert seen == pytest.approx(expected, abs=1e-10)
            np.testing.assert_allclose(state.alpha, twin.alpha, atol=1e-10)
            np.testing.assert_allclose(state.Z, twin.Z, atol=1e-10)
            np.testing.assert_array_equal(active, marks)
            np.testing.assert_allclose((low[1], high[1]), extremes, atol=1e-10)


def test_a_pass_of_exact_steps_never_lowers_the_dual():
    """The twin itself: every step is the best of many values of its variable."""
    rng, X, costs = make(9)
    P = rng.randn(L, L)
    twin = naive.Twin(X, BIAS, costs, P.T @ P)
    Xb = naive.with_bias(X, BIAS)

    def value(alpha):
        return naive.dual(Xb, twin.Y, twin.m, twin.R, alpha)

    for i, l in itertools.product(range(N), range(L)):
        twin.maximise(i, l)
        for t in np.linspace(0, 1, 21):
            other = twin.alpha.copy()
            other[i, l] = t * twin.c[i, l]
            assert value(other) <= value(twin.alpha) + 1e-12


def test_bounds_of_the_reach_are_the_printed_ones():
    R = np.array([[2.0, -1.0, 0.0], [-1.0, 1.0, 0.5], [0.0, 0.5, 4.0]])
    low, high = np.array([-3.0, 0.0, -1.0]), np.array([0.0, 2.0, 0.5])
    lower, upper = shrinking_bounds(R, low, high)
    for l in range(L):
        worst = min(abs(R[k, l]) / R[k, k] * low[k] for k in range(L))
        best = max(abs(R[k, l]) / R[k, k] * high[k] for k in range(L))
        assert lower[l] == (worst if worst < 0 else -np.inf)
        assert upper[l] == (best if best > 0 else np.inf)


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
