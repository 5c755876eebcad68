"""Graph cuts and F-score inference against enumeration, networkx and scipy."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import maximum_flow

from maxmargin.submodular import problem
from maxmargin.submodular.problem import (
    best_sets,
    fixed_points,
    label_margins,
    maximisers,
    weighted_graph,
    worst_sets,
)
from tests.naive import submodular as naive

KNOWN = json.loads((Path(__file__).parents[1] / "fixtures" / "kat_submodular.json").read_text())


@pytest.fixture(autouse=True)
def searches(monkeypatch):
    """Few labels are enumerated; here they are cut and searched."""
    monkeypatch.setattr(problem, "FEW_LABELS", 0)


def graph_of(W):
    i, j = np.nonzero(np.triu(W, 1))
    return weighted_graph(len(W), np.column_stack([i, j]), W[i, j])


def draw(rng, V, n=4, ties=False, density=0.6, scale=1.0):
    W = np.triu(scale * rng.random((V, V)) * (rng.random((V, V)) < density), 1)
    U = rng.normal(size=(n, V)) - 0.4 * (W + W.T).sum(axis=1)
    truth = (rng.random((n, V)) < rng.choice([0.2, 0.6])).astype(np.uint8)
    return (np.round(4 * U) / 4, np.round(4 * W) / 4, truth) if ties else (U, W, truth)


def both_maximisers(U, W):
    return [maximisers(U, graph_of(W), largest)[0] for largest in (False, True)]


def infer(U, W, truth, exact=True, max_nodes=1000, hints=None):
    hints = np.zeros(len(U), np.int64) if hints is None else hints
    return worst_sets(U, truth, graph_of(W), hints, exact=exact, max_nodes=max_nodes)


@pytest.mark.parametrize("case", KNOWN["cuts"])
def test_known_cuts(case):
    a, W = np.array([case["a"]]), np.array(case["W"])
    smallest, largest = both_maximisers(a, W)
    assert smallest[0].tolist() == case["smallest"] and largest[0].tolist() == case["largest"]
    assert naive.scores_of(smallest, a[0], W)[0] == pytest.approx(case["value"], abs=1e-9)


@pytest.mark.nojit
@pytest.mark.parametrize("V", range(1, 6))
def test_small_cuts_equal_enumeration(V):
    check_cuts(V, 2)


@pytest.mark.parametrize("V", [6, 9, 12])
def test_cuts_equal_enumeration(V):
    check_cuts(V, 6)


def check_cuts(V, repeats):
    rng = np.random.default_rng(V)
    for repeat in range(repeats):
        U, W, _ = draw(rng, V, ties=repeat % 2 == 1, density=rng.choice([0.0, 0.3, 1.0]))
        smallest, largest = both_maximisers(U, W)
        for n, a in enumerate(U):
            _, small, large = naive.best_sets(a, W)
            assert np.array_equal(smallest[n], small) and np.array_equal(largest[n], large)
        np.testing.assert_allclose(label_margins(U, graph_of(W)), [naive.margins(a, W) for a in U], atol=1e-9)


@pytest.mark.parametrize("V, density", [(60, 0.05), (60, 1.0)])
def test_cut_value_equals_networkx_and_integer_flow(V, density):
    rng = np.random.default_rng(V)
    W = np.triu(rng.integers(0, 20, (V, V)) * (rng.random((V, V)) < density), 1) * 2.0
    half = (W + W.T) / 2
    for _ in range(3):
        a = rng.integers(-30, 30, V) - np.round(half.sum(axis=1))
        y = best_sets(a[None].astype(float), graph_of(W))
        c = a + half.sum(axis=1)
        flow = nx.DiGraph()
        capacity = np.zeros((V + 2, V + 2), np.int32)
        for i in range(V):
            capacity[V, i], capacity[i, V + 1] = max(c[i], 0), max(-c[i], 0)
        capacity[:V, :V] = half
        for i, j in zip(*np.nonzero(capacity), strict=True):
            flow.add_edge(i, j, capacity=int(capacity[i, j]))
        flow.add_nodes_from([V, V + 1])
        expected = c[c > 0].sum() - nx.maximum_flow_value(flow, V, V + 1)
        assert naive.scores_of(y, a, W)[0] == pytest.approx(expected, abs=1e-6)
        by_scipy = maximum_flow(sp.csr_matrix(capacity), V, V + 1).flow_value
        assert c[c > 0].sum() - by_scipy == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans(), st.sampled_from([0.0, 0.4, 1.0]))
def test_exact_inference_equals_enumeration(seed, V, ties, density):
    rng = np.random.default_rng(seed)
    U, W, truth = draw(rng, V, ties=ties, density=density, scale=rng.choice([0.2, 1.0]))
    Y, slack, bound, _ = infer(U, W, truth)
    for n, a in enumerate(U):
        best, _ = naive.loss_augmented(a, W, truth[n].astype(int))
        here = naive.scores_of(truth[n : n + 1].astype(int), a, W)[0]
        own = naive.scores_of(Y[n : n + 1].astype(int), a, W)[0]
        own += naive.losses_of(Y[n : n + 1].astype(int), truth[n].astype(int))[0]
        assert slack[n] == pytest.approx(best - here, abs=1e-8)
        assert own == pytest.approx(best, abs=1e-8)
        assert bound[n] == pytest.approx(slack[n], abs=1e-8)


def hard_instances(rng, V, n):
    """Scores at which the majorants rarely settle at the root."""
    W = np.triu(rng.random((V, V)) * 0.25, 1)
    U = -0.5 * (W + W.T).sum(axis=1) + rng.normal(size=(n, V)) * 0.15
    return U, W, (rng.random((n, V)) < 0.5).astype(np.uint8)


def test_branching_is_needed_somewhere_and_stays_exact():
    rng = np.random.default_rng(0)
    U, W, truth = hard_instances(rng, 9, 300)
    _, slack, bound, nodes = infer(U, W, truth)
    assert nodes.max() > 1, "the instances are meant to need branching"
    best = [naive.loss_augmented(a, W, t.astype(int))[0] for a, t in zip(U, truth, strict=True)]
    here = [naive.scores_of(t[None].astype(int), a, W)[0] for a, t in zip(U, truth, strict=True)]
    np.testing.assert_allclose(slack, np.subtract(best, here), atol=1e-8)
    np.testing.assert_allclose(bound, slack, atol=1e-8)


@pytest.mark.parametrize("start", [0, 4, 9])
def test_the_start_of_a_search_does_not_change_its_result(start):
    rng = np.random.default_rng(5)
    U, W, truth = hard_instances(rng, 9, 100)
    first, again = infer(U, W, truth), infer(U, W, truth, hints=np.full(100, start))
    np.testing.assert_allclose(again.slack, first.slack, atol=1e-9)
    np.testing.assert_allclose(again.bound, first.bound, atol=1e-9)


@pytest.mark.parametrize("size", [1e-13, 1e-12, 1e-11, 1e-10])
def test_the_bound_holds_where_sets_nearly_tie(size):
    rng = np.random.default_rng(0)
    for _ in range(30):
        V = int(rng.integers(2, 8))
        U, W, truth = draw(rng, V, n=6, ties=True)
        truth[0] = 0
        U, W = U + size * rng.normal(size=U.shape), W * (1 + size * rng.random(W.shape))
        answer = infer(U, W, truth)
        best = [naive.loss_augmented(a, W, t.astype(int))[0] for a, t in zip(U, truth, strict=True)]
        here = [naive.scores_of(t[None].astype(int), a, W)[0] for a, t in zip(U, truth, strict=True)]
        # The sums of both sides are rounded.
        np.testing.assert_array_less(np.subtract(best, here), answer.bound + 1e-14 * V)
        np.testing.assert_allclose(answer.slack, answer.bound, atol=1e-13 * V)


def test_truncated_search_keeps_a_true_bound():
    rng = np.random.default_rng(0)
    U, W, truth = hard_instances(rng, 9, 300)
    _, full, _, nodes = infer(U, W, truth)
    _, slack, bound, _ = infer(U, W, truth, max_nodes=1)
    assert (slack <= full + 1e-9).all() and (bound >= full - 1e-9).all()
    assert (bound[nodes > 1] > slack[nodes > 1]).any()


@pytest.mark.parametrize("case", KNOWN["loss_augmented"])
def test_known_inference(case):
    a, W, truth = np.array([case["a"]]), np.array(case["W"]), np.array([case["yn"]], np.uint8)
    Y, slack, bound, _ = infer(a, W, truth)
    assert slack[0] + case["h_truth"] == pytest.approx(case["h_opt"], abs=1e-6)
    assert Y[0].tolist() in case["y_opt"] and bound[0] == pytest.approx(slack[0], abs=1e-8)
    if truth.sum():
        y, value, certified = fixed_points(a, truth, graph_of(W))
        assert y[0].tolist() == case["y_alg2"] and value[0] == pytest.approx(case["h_alg2"], abs=1e-6)
        assert bool(certified[0]) == case["certified"]


@pytest.mark.parametrize("case", KNOWN["rml"])
def test_known_inference_without_pairs(case):
    a, truth = np.array([case["a"]]), np.array([case["yn"]], np.uint8)
    _, slack, _, _ = infer(a, np.zeros((len(case["a"]),) * 2), truth)
    assert slack[0] + a[0] @ truth[0] == pytest.approx(case["h"], abs=1e-6)


@pytest.mark.nojit
def test_sorting_equals_the_double_loop():
    rng = np.random.default_rng(1)
    for V in range(1, 7):
        U, W, truth = draw(rng, V, density=0.0)
        U = np.round(U, 1)
        _, slack, _, _ = infer(U, W, truth)
        for n, a in enumerate(U):
            value, _ = naive.sorted_search(a, truth[n].astype(int))
            assert slack[n] == pytest.approx(value - a @ truth[n], abs=1e-10)


def test_pairs_of_weight_zero_change_nothing():
    rng = np.random.default_rng(2)
    U, _, truth = draw(rng, 10, n=30, density=0.0)
    tiny = np.triu(np.full((10, 10), 1e-13), 1)
    np.testing.assert_allclose(infer(U, tiny, truth)[1], infer(U, 0 * tiny, truth)[1], atol=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_theorems_and_the_papers_loop(ties):
    """Algorithm 2 as printed, Theorem 1 (inside some optimum), Theorem 2 (the certificate)."""
    rng = np.random.default_rng(3)
    optimal = proven = 0
    for _ in range(60):
        V = int(rng.integers(2, 8))
        U, W, truth = draw(rng, V, ties=ties)
        truth[:, 0] = 1
        Y, value, certified = fixed_points(U, truth, graph_of(W))
        for n, a in enumerate(U):
            t, y = truth[n].astype(int), Y[n].astype(int)
            expected, size = naive.algorithm_2(a, W, t)
            assert np.array_equal(y, expected) and y.sum() == size
            best, optima = naive.loss_augmented(a, W, t)
            for optimum in optima:
                union = (y | optimum)[None]
                h = naive.scores_of(union, a, W)[0] + naive.losses_of(union, t)[0]
                assert h == pytest.approx(best, abs=1e-8)
            growth = 2 * (V - size) / ((V + t.sum()) * (size + t.sum()))
            assert bool(certified[n]) == (naive.algorithm_3(a, W, t, y) + growth * t.sum() <= 0)
            if certified[n]:
                assert value[n] == pytest.approx(best, abs=1e-8)
            optimal += abs(value[n] - best) < 1e-8
            proven += certified[n]
    assert 0 < proven < optimal < 240


def test_fixed_points_are_never_below_the_truth():
    a, W, truth = np.array([[0.9, 0.45, -9.0]]), np.zeros((3, 3)), np.array([[1, 1, 0]], np.uint8)
    W[1, 2] = 1e-6
    Y, slack, bound, _ = infer(a, W, truth, exact=False)
    assert slack[0] == 0 and Y[0].tolist() == [1, 1, 0] and bound[0] == np.inf
    assert fixed_points(a, truth, graph_of(W))[0][0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("V", [1, 3, 7])
def test_enumerated_sets_are_those_of_searches(V, ties, monkeypatch):
    rng = np.random.default_rng(V)
    U, W, truth = draw(rng, V, n=40, ties=ties)
    searched, cut = infer(U, W, truth), best_sets(U, graph_of(W))
    monkeypatch.setattr(problem, "FEW_LABELS", V)
    # In steps of a few rows.
    monkeypatch.setattr(problem, "LARGEST_STEP", 7 << V)
    found = infer(U, W, truth)
    np.testing.assert_allclose(found.slack, searched.slack, atol=1e-9)
    np.testing.assert_allclose(found.bound, searched.bound, atol=1e-9)
    assert np.array_equal(best_sets(U, graph_of(W)), cut)


def test_many_labels_and_threads():
    rng = np.random.default_rng(4)
    U, W, _ = draw(rng, 150, n=40, density=0.05)
    one, two = best_sets(U, graph_of(W), 1), best_sets(U, graph_of(W), 2)
    assert np.array_equal(one, two)
    assert np.array_equal(label_margins(U[:2], graph_of(W)) > 1e-9, one[:2] > 0)
