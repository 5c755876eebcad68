"""Dynamic programs against enumeration."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.core.rows import Rows
from maxmargin.structured.chain_loops import (
    Messages,
    excess,
    forward_backward,
    kbest,
    unary_scores,
    viterbi,
)
from maxmargin.structured.chain_paper_loops import (
    WIDEST,
    EdgeMarginals,
    MarginalWork,
    add_log_messages,
    is_narrow,
    multiply_messages,
    potential_marginals,
    soft_target,
    target_factors,
    target_logs,
)
from tests.naive import chain as naive

KAT = json.loads((Path(__file__).parents[1] / "fixtures" / "kat_chain.json").read_text())["dp"]


def run_viterbi(un, R):
    L, K = un.shape
    path = np.empty(L, np.int64)
    value = viterbi(un, R, L, np.empty((L, K)), path)
    return value, path


def run_forward_backward(un, pr, stride):
    L, K = un.shape
    messages = Messages.empty(L, K)
    log_z = forward_backward(un, pr, stride, L, messages)
    forward, backward, norms, _ = messages
    node = np.exp(forward + backward - norms[0][:, None])
    tables = [pr[t * stride] for t in range(L - 1)]
    edge = np.array(
        [
            np.exp(forward[t][:, None] + tables[t] + (un[t + 1] + backward[t + 1])[None, :] - norms[1, t])
            for t in range(L - 1)
        ]
    ).reshape(L - 1, K, K)
    return log_z, node, edge


@pytest.mark.nojit
def test_known_marginals_and_best_labeling():
    un, pr = np.array(KAT["unary"]), np.array(KAT["pair"])
    log_z, node, edge = run_forward_backward(un, pr, 1)
    assert log_z == pytest.approx(KAT["logZ"], abs=1e-9)
    np.testing.assert_allclose(node, KAT["node"], atol=1e-9)
    np.testing.assert_allclose(edge, KAT["edge"], atol=1e-9)
    best = max(naive.labelings(3, 3), key=lambda z: naive.score(un, pr, z))
    assert list(best) == KAT["viterbi"]
    assert naive.score(un, pr, best) == pytest.approx(KAT["viterbi_value"])


@given(L=st.integers(1, 5), K=st.integers(1, 6), seed=st.integers(0, 1000), whole=st.booleans())
@settings(max_examples=30, deadline=None)
def test_viterbi_is_the_best_of_all_labelings(L, K, seed, whole):
    rng = np.random.default_rng(seed)
    # Whole numbers make ties, and every sum exact.
    draw = (lambda *s: rng.integers(-1, 2, s).astype(float)) if whole else (lambda *s: rng.normal(size=s))
    un, R = draw(L, K), draw(K, K)
    zs = naive.labelings(L, K)
    scores = np.array([naive.score(un, np.repeat(R[None], L, 0), z) for z in zs])
    value, path = run_viterbi(un, R)
    assert value == pytest.approx(scores.max(), abs=1e-12)
    assert tuple(path) == zs[int(np.argmax(scores >= scores.max() - 1e-12))]


@given(L=st.integers(1, 4), K=st.integers(1, 4), k=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_k_best_are_the_top_of_all_labelings(L, K, k, seed):
    rng = np.random.default_rng(seed)
    un, R = rng.normal(size=(L, K)), rng.normal(size=(K, K))
    labels, values = np.empty((k, L), np.int64), np.empty(k)
    came, rank = np.empty((2, L, K, k), np.int64)
    found = kbest(un, R, L, k, np.empty((L, K, k)), came, rank, np.empty(K, np.int64), labels, values)
    zs = naive.labelings(L, K)
    scores = np.array([naive.score(un, np.repeat(R[None], L, 0), z) for z in zs])
    order = np.argsort(-scores)[:k]
    assert found == min(k, K**L)
    np.testing.assert_allclose(values[:found], scores[order], atol=1e-12)
    assert [tuple(z) for z in labels[:found]] == [zs[j] for j in order]


@given(
    L=st.integers(1, 4),
    K=st.integers(1, 4),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1.0, 30.0, 1e4]),
)
@settings(max_examples=30, deadline=None)
def test_marginals_equal_enumeration(L, K, seed, scale):
    rng = np.random.default_rng(seed)
    un, pr = scale * rng.normal(size=(L, K)), scale * rng.normal(size=(max(L - 1, 1), K, K))
    zs = naive.labelings(L, K)
    scores = np.array([naive.score(un, pr, z) for z in zs])
    node, edge = naive.marginals(naive.softmax(scores), zs, L, K)
    log_z, got_node, got_edge = run_forward_backward(un, pr, 1)
    assert log_z == pytest.approx(scores.max() + np.log(np.exp(scores - scores.max()).sum()), rel=1e-12)
    np.testing.assert_allclose(got_node, node, atol=1e-9)
    np.testing.assert_allclose(got_edge, edge, atol=1e-9)


def test_marginals_stay_finite_when_almost_frozen():
    rng = np.random.default_rng(0)
    un, R = rng.normal(size=(10_000, 3)), rng.normal(size=(1, 3, 3))
    _, node, edge = run_forward_backward(un / 1e-12, R / 1e-12, 0)
    _, path = run_viterbi(un, R[0])
    np.testing.assert_array_equal(node.argmax(1), path)
    np.testing.assert_allclose(node.sum(1), 1.0, atol=1e-6)
    # An edge adds four numbers of this size, so a few units in their last place are all it can keep.
    np.testing.assert_allclose(edge.sum((1, 2)), 1.0, atol=8 * np.spacing(np.abs(un / 1e-12).max()))


@pytest.mark.nojit
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unary_scores_and_excess(sparse, dtype):
    import scipy.sparse as sp

    rng = np.random.default_rng(1)
    L, f, K = 4, 7, 3
    X = (rng.normal(size=(L + 2, f)) * (rng.random((L + 2, f)) < 0.6)).astype(dtype)
    U, R, B = rng.normal(size=(f, K)), rng.normal(size=(K, K)), rng.normal(size=(3, K))
    un = np.empty((L, K))
    unary_scores(Rows.of(sp.csr_array(X) if sparse else X).flat, 1, L, U, B, un)
    expected = X[1 : L + 1].astype(float) @ U + B[0]
    expected[0] += B[1]
    expected[-1] += B[2]
    np.testing.assert_allclose(un, expected, atol=1e-12)
    y, z = np.array([9, 0, 1, 2, 1]), np.array([0, 2, 2, 1])
    pr = np.repeat(R[None], L, 0)
    difference = naive.score(un, pr, z) - naive.score(un, pr, y[1:])
    assert excess(un, R, y, 1, z, L) == pytest.approx(difference)
    assert excess(un, R, y, 1, y[1:], L) == 0.0


@pytest.mark.nojit
@pytest.mark.parametrize("rate", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("L", [1, 2, 4])
def test_soft_targets_equal_enumeration(L, rate):
    """s ~ p_mu exp(rate * score), also at rates at which products of factors would underflow."""
    rng = np.random.default_rng(L)
    K = 3
    zs = naive.labelings(L, K)
    node, kept = naive.marginals(rng.dirichlet(np.ones(len(zs))), zs, L, K)
    un, R = rng.normal(size=(L, K)), rng.normal(size=(K, K))
    state = EdgeMarginals(node, kept.sum(0)[None], kept, np.array([0, len(kept)]))
    work = MarginalWork.empty(L, K, 1)
    work.un[:] = un
    soft_target(state, 0, 0, L, R, rate, work)
    nodes, edges = work.nodes, work.edges
    logs = []
    for z in zs:
        value = (
            np.log(node[0, z[0]]) if L == 1 else sum(np.log(kept[t, z[t], z[t + 1]]) for t in range(L - 1))
        )
        logs.append(value - sum(np.log(node[t, z[t]]) for t in range(1, L - 1)))
    scores = np.array([naive.score(un, np.repeat(R[None], L, 0), z) for z in zs])
    target = naive.softmax(np.array(logs) + rate * scores)
    expected_node, expected_edge = naive.marginals(target, zs, L, K)
    np.testing.assert_allclose(nodes, expected_node, atol=1e-9)
    np.testing.assert_allclose(edges[: L - 1], expected_edge, atol=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("L", [1, 2, 4])
def test_marginals_of_potentials_equal_enumeration(L, scale):
    """Whether factors are multiplied or logarithms added."""
    rng = np.random.default_rng(L)
    K = 3
    un, table = scale * rng.normal(size=(L, K)), scale * rng.normal(size=(1, K, K))
    assert is_narrow(un, table, L, 1.0) == (scale < 1e4)
    zs = naive.labelings(L, K)
    scores = np.array([naive.score(un, np.repeat(table, L, 0), z) for z in zs])
    node, edge = naive.marginals(naive.softmax(scores), zs, L, K)
    work = MarginalWork.empty(L, K, 1)
    potential_marginals(un, table, L, work)
    np.testing.assert_allclose(work.nodes, node, atol=1e-9)
    np.testing.assert_allclose(work.edges[: L - 1], edge, atol=1e-9)


def targets_both_ways(nodes, kept, un, R, rate):
    """Soft targets by products and by logarithms: ((nodes, edges), (nodes, edges))."""
    L, K = un.shape
    found = []
    for build, run in (target_factors, multiply_messages), (target_logs, add_log_messages):
        work = MarginalWork.empty(L, K, 1)
        work.un[:] = un
        build(nodes, kept, 0, L, R, rate, work)
        run(work.phi, work.edges, 1, L, work)
        found.append((work.nodes, work.edges[: L - 1]))
    return found


@pytest.mark.parametrize("share", [0.0, 0.1, 0.999])
@pytest.mark.parametrize("L", [1, 2, 30])
def test_products_and_logarithms_agree_up_to_the_widest_range(L, share):
    """The potentials pull the two halves of the chain apart, against marginals at the floor of BCPL."""
    rng = np.random.default_rng(L)
    K, floor = 6, 1e-15
    frozen = np.full((K, K), floor / K**2)
    frozen[0, 0] += 1.0 - floor
    kept = np.repeat(frozen[None], L - 1, 0)
    nodes = np.repeat(frozen.sum(1)[None], L, 0)
    un, R = rng.random((L, K)), rng.random((K, K))
    un[: L // 2, 1] += 9.0
    un[L // 2 :, 2] += 9.0
    R[1, 2] -= 9.0
    rate = share * WIDEST / (np.ptp(un, axis=1).max() + np.ptp(R))
    assert is_narrow(un, R, L, rate)
    products, logs = targets_both_ways(nodes, kept, un, R, rate)
    for got, expected in zip(products, logs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-300)


def test_ranges_beyond_the_widest_take_logarithms():
    """Here the product of the two messages underflows."""
    un, R = np.array([[0.0, -3.0], [-3.0, 0.0]]), np.array([[0.0, -3.0], [-3.0, 0.0]])
    nodes, kept, rate = np.full((2, 2), 0.5), np.full((1, 2, 2), 0.25), 300.0
    assert not is_narrow(un, R, 2, rate)
    products, logs = targets_both_ways(nodes, kept, un, R, rate)
    assert np.isnan(products[1]).any()
    state = EdgeMarginals(nodes, kept, kept, np.array([0, 1]))
    work = MarginalWork.empty(2, 2, 1)
    work.un[:] = un
    soft_target(state, 0, 0, 2, R, rate, work)
    third = np.array([[1.0, 1.0], [0.0, 1.0]]) / 3.0
    np.testing.assert_allclose(work.edges[0], third, atol=1e-12)
    np.testing.assert_array_equal(work.edges, logs[1])
    np.testing.assert_allclose(work.nodes, [third.sum(1), third.sum(0)], atol=1e-12)
