"""Rows that do not fit the memory: random groups of them reach the optimum of all rows at once."""

import tracemalloc

import dask
import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.dask import MultiLabelSVC, store, streamed
from maxmargin.dask.multilabel import TASKS
from maxmargin.dask.rounds import Scattered
from maxmargin.dask.streamed import Copies, Streamed, suits
from maxmargin.dask.working_sets import Part
from maxmargin.multilabel.problem import hamming_costs, tied_costs
from tests.checks import apart

N, D, L = 400, 60, 3
CUTS = [slice(0, 150), slice(150, 150), slice(150, N)]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = sp.random_array((N, D), density=0.1, rng=rng, format="csr", data_sampler=rng.normal)
    Y = np.where(X @ rng.normal(size=(D, L)) + 0.5 * rng.normal(size=(N, L)) > 0.2, 1, -1).astype(np.int8)
    return X, Y


def scattered(X, Y, *, R=None, bias=1.0, tied=False):
    upper, weight = 0.1 * np.ones((2, L)), 1.0 + np.arange(N)[:, None] % 3
    prior = np.eye(L) if R is None else R
    costs = [
        tied_costs(Y[c], upper, weight[c], prior) if tied else hamming_costs(Y[c], upper, weight[c])
        for c in CUTS
        if c.start < c.stop
    ]
    costs.insert(1, hamming_costs(Y[:0], upper, weight[:0]))
    parts = [Part(X[c], cost, bias) for c, cost in zip(CUTS, costs, strict=True)]
    sizes = [len(Y[c]) for c in CUTS]
    return Scattered(TASKS, parts, sizes, D, [slice(0, L)], R, bias, sum(one.constant for one in costs))


VARIANTS = {
    "plain": {},
    "prior that does not couple": {"R": np.diag([1.0, 2.0, 0.5])},
    "large bias": {"bias": 10.0},
    "no bias": {"bias": 0.0},
    "tied": {"tied": True},
}


@pytest.mark.parametrize(
    ("name", "budget"), [*((name, 130) for name in VARIANTS), ("large bias", None), ("tied", None)]
)
def test_groups_reach_the_optimum_and_the_certificate_is_true(data, name, budget):
    X, Y = data
    problem = scattered(X, Y, **VARIANTS[name])
    assert suits(problem)
    solver = Streamed(problem, tol=1e-8, budget=budget or N, dtype=np.float64, rng=np.random.RandomState(0))
    outcome = run(solver, Stopping(1e-8, 500))
    assert outcome.converged
    # Objectives from the definition, and the same answer again: certifying changes nothing.
    Z, alpha = solver.solution(), solver.alpha
    costs = [part.costs for part in problem.parts]
    margins, boxes = (np.vstack([getattr(c, kind)() for c in costs]) for kind in ("margins", "boxes"))
    r = np.ones(L) if problem.R is None else np.diag(problem.R)
    full = sp.hstack([X, np.full((N, 1), problem.bias)], format="csr")
    V = full.T @ (Y * alpha)
    primal = 0.5 * np.sum(Z**2 / r) + np.sum(boxes * np.maximum(margins - Y * (full @ Z), 0))
    dual = np.sum(margins * alpha) - 0.5 * np.sum(V**2 * r)
    assert ((alpha >= 0) & (alpha <= boxes)).all()
    assert outcome.certificate.primal == pytest.approx(primal + problem.constant, rel=1e-12)
    assert outcome.certificate.dual == pytest.approx(dual + problem.constant, rel=1e-12)
    assert solver.certify() == outcome.certificate


def test_groups_may_be_smaller_than_runs_of_rows(data):
    X, Y = data
    solver = Streamed(scattered(X, Y), tol=1e-3, budget=10, dtype=np.float64, rng=np.random.RandomState(0))
    assert run(solver, Stopping(1e-3, 100)).converged


def test_single_precision_hands_over_to_double(data):
    X, Y = data
    solver = Streamed(scattered(X, Y), tol=1e-10, budget=130, dtype=np.float32, rng=np.random.RandomState(0))
    assert run(solver, Stopping(1e-10, 500)).converged
    assert solver.W.dtype == np.float64


def test_time_that_is_up_leaves_a_feasible_state(data):
    X, Y = data
    solver = Streamed(scattered(X, Y), tol=1e-8, budget=60, dtype=np.float64, rng=np.random.RandomState(0))
    solver.epoch(Clock(0.0))
    assert not solver.alpha.any()
    certificate = solver.certify()
    assert certificate.dual == 0.0 < certificate.primal


@pytest.mark.parametrize("dense", [False, True])
def test_copied_rows_are_those_asked_for(data, dense):
    X = data[0].toarray() if dense else data[0]
    later = X[150:].astype(np.float32)
    if not dense:
        later.indptr, later.indices = later.indptr.astype(np.int64), later.indices.astype(np.int64)
    copies, all_ids = Copies(), np.arange(150)
    # The second group takes over the room of the first, the third needs more.
    for first, second, dtype in [
        (np.array([3, 149]), np.array([0, 1, 200]), np.float64),
        (np.array([5]), np.array([7, 8]), np.float32),
        (all_ids, all_ids, np.float64),
    ]:
        found = copies.rows([(X[:150], first), (later, second)], dtype)
        assert found.dtype == dtype
        assert np.shares_memory(found if dense else found.data, np.frombuffer(copies.pages["data"], np.uint8))
        expected = np.vstack([data[0][:150].toarray()[first], data[0][150:].toarray()[second]])
        np.testing.assert_allclose(found if dense else found.toarray(), expected, rtol=1e-7)


def test_a_fit_of_mapped_rows_is_that_of_rows_in_memory(data, tmp_path):
    X, Y = data
    mapped = store([dask.delayed((X[c], Y[c])) for c in CUTS], tmp_path)
    best = maxmargin.MultiLabelSVC(C=0.1, tol=1e-8, random_state=0).fit(X, Y)
    model = MultiLabelSVC(C=0.1, tol=1e-8, working_rows=100, random_state=0).fit(mapped, client="here")
    assert model.duality_gap_ <= 1e-8
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=apart(model, best))


def test_what_does_not_suit_is_left_to_rounds(data):
    X, Y = data
    assert not suits(scattered(X, Y, R=np.array([[1.0, 0.5, 0], [0.5, 1.0, 0], [0, 0, 1.0]])))
    assert not suits(scattered(X.toarray() + 1.0, Y))


def test_few_rows_are_loaded_whatever_the_memory(data, tmp_path, monkeypatch):
    X, Y = data
    mapped = store([dask.delayed((X[c], Y[c])) for c in CUTS], tmp_path)
    model = MultiLabelSVC(C=0.1, memory_limit=0.01, random_state=0).fit(mapped, client="here")
    assert model.n_iter_ == 1 and model.duality_gap_ <= 1e-3
    n_bytes = X.data.nbytes + X.indices.nbytes + sum(X[c].indptr.nbytes for c in CUTS)
    monkeypatch.setattr(streamed, "LOADED", n_bytes + 16 * N * L - 1)
    model.fit(mapped, client="here")
    assert model.n_iter_ > 1 and model.duality_gap_ <= 1e-3
    monkeypatch.setattr(streamed, "LEAST", 0)
    with pytest.raises(ValueError, match="memory_limit"):
        model.fit(mapped, client="here")


@pytest.fixture(scope="module")
def many():
    """Rows of 960 bytes in 16 partitions of a thousand, with places of 64 bits."""
    rng, parts, weights = np.random.default_rng(0), [], np.random.default_rng(1).normal(size=800)
    for _ in range(16):
        columns = 10 * np.arange(80) + rng.integers(0, 10, (1000, 80))
        X = sp.csr_array((rng.normal(size=columns.size), columns.ravel(), np.arange(1001) * 80), (1000, 800))
        parts.append((X, (X @ weights > rng.normal(size=1000)).astype(np.int8)[:, None]))
    return parts


def test_a_fit_keeps_to_the_memory_given(many, tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "LEAST", 0)
    monkeypatch.setattr(streamed, "LOADED", 0)
    mapped = store([dask.delayed(pair) for pair in many], tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.glob("*-X-*.npy")) < 16.2 * 960_000
    model = MultiLabelSVC(C=0.001, tol=0.02, memory_limit=5, random_state=0)
    model.fit(mapped, client="here")  # what is loaded or compiled once does not count
    # Pages are told to the counter of memory as well.
    monkeypatch.setattr(streamed, "paged", bytearray)
    tracemalloc.start()
    model.fit(mapped, client="here")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.duality_gap_ <= 0.02
    assert 3.0 < peak / 2**20 <= 5.0
    with pytest.raises(ValueError, match=r"memory_limit=0.1 .* raise it to \d\.\d"):
        MultiLabelSVC(memory_limit=0.1).fit(mapped, client="here")
