"""Rows that do not fit the memory: random sets of rows reach the optimum of all rows."""

import tracemalloc

import dask
import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.dask import MultiLabelSVC, store
from maxmargin.dask import rounds as module
from maxmargin.dask.multilabel import TASKS
from maxmargin.dask.rounds import Here, Partitioned, Rounds
from maxmargin.dask.working_sets import Part
from maxmargin.multilabel.problem import hinge_costs, tied_costs

N, D, L = 400, 60, 3
CUTS = [slice(0, 150), slice(150, 150), slice(150, N)]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = sp.random_array((N, D), density=0.1, rng=rng, format="csr", data_sampler=rng.normal)
    Y = np.where(X @ rng.normal(size=(D, L)) + 0.5 * rng.normal(size=(N, L)) > 0.2, 1, -1).astype(np.int8)
    return X, Y


def partitioned(X, Y, *, R=None, bias=1.0, tied=False):
    upper, weight = 0.1 * np.ones((2, L)), 1.0 + np.arange(N)[:, None] % 3
    prior = np.eye(L) if R is None else R
    costs = [
        tied_costs(Y[c], upper, weight[c], prior) if tied else hinge_costs(Y[c], upper, weight[c])
        for c in CUTS
        if c.start < c.stop
    ]
    costs.insert(1, hinge_costs(Y[:0], upper, weight[:0]))
    parts = [Part(X[c], cost, bias) for c, cost in zip(CUTS, costs, strict=True)]
    sizes = [len(Y[c]) for c in CUTS]
    return Partitioned(TASKS, parts, sizes, D, [slice(0, L)], R, bias, sum(one.constant for one in costs))


VARIANTS = {
    "plain": {},
    "prior that does not couple": {"R": np.diag([1.0, 2.0, 0.5])},
    "large bias": {"bias": 10.0},
    "no bias": {"bias": 0.0},
    "very large bias": {"bias": 100.0},
    "tied": {"tied": True},
    "prior that couples": {"R": np.eye(L) + 0.5},
}


def rounds(problem, tol, budget):
    rng = np.random.RandomState(0)
    return Rounds(problem, Here(), tol=tol, budget=budget, rng=rng, in_turn=True)


@pytest.mark.parametrize(
    ("name", "budget"), [*((name, 130) for name in VARIANTS), ("plain", N), ("prior that couples", N)]
)
def test_sets_of_rows_reach_the_optimum_and_the_certificate_is_true(data, name, budget):
    X, Y = data
    problem = partitioned(X, Y, **VARIANTS[name])
    solver = rounds(problem, 1e-8, budget)
    outcome = run(solver, Stopping(1e-8, 500))
    assert outcome.converged
    # Objectives from the definition; certifying again changes nothing.
    Z, alpha = solver.solution(), np.vstack(solver.groups[0].alphas)
    costs = [part.costs for part in problem.parts]
    margins, boxes = (np.vstack([getattr(c, kind)() for c in costs]) for kind in ("margins", "boxes"))
    R = np.eye(L) if problem.R is None else problem.R
    full = sp.hstack([X, np.full((N, 1), problem.bias)], format="csr")
    V = full.T @ (Y * alpha)
    losses = np.sum(boxes * np.maximum(margins - Y * (full @ Z), 0))
    primal = 0.5 * np.trace(np.linalg.inv(R) @ Z.T @ Z) + losses
    dual = np.sum(margins * alpha) - 0.5 * np.trace(R @ V.T @ V)
    assert ((alpha >= 0) & (alpha <= boxes)).all()
    assert outcome.certificate.primal == pytest.approx(primal + problem.constant, rel=1e-12)
    assert outcome.certificate.dual == pytest.approx(dual + problem.constant, rel=1e-12)
    assert solver.certify() == outcome.certificate


def test_sets_may_be_smaller_than_runs_of_rows(data):
    X, Y = data
    assert run(rounds(partitioned(X, Y), 1e-3, 10), Stopping(1e-3, 100)).converged


def test_an_expired_time_limit_leaves_a_feasible_state(data):
    X, Y = data
    solver = rounds(partitioned(X, Y), 1e-8, 60)
    solver.epoch(Clock(0.0))
    assert not any(alpha.any() for alpha in solver.groups[0].alphas)
    certificate = solver.certify()
    assert certificate.dual == 0.0 < certificate.primal


def test_small_data_are_loaded_whatever_the_memory_limit(data, tmp_path, monkeypatch):
    X, Y = data
    monkeypatch.setattr(module, "LEAST", 0)
    mapped = store([dask.delayed((X[c], Y[c])) for c in CUTS], tmp_path)
    model = MultiLabelSVC(C=0.1, memory_limit=0.01, random_state=0).fit(mapped, client="here")
    assert model.duality_gap_ <= 1e-3
    n_bytes = X.data.nbytes + X.indices.nbytes + sum(X[c].indptr.nbytes for c in CUTS)
    monkeypatch.setattr(module, "LOADED", n_bytes + 16 * N * L - 1)
    with pytest.raises(ValueError, match="memory_limit"):
        model.fit(mapped, client="here")
    monkeypatch.setattr(module, "LEAST", 32)
    assert model.fit(mapped, client="here").duality_gap_ <= 1e-3


@pytest.fixture(scope="module")
def many():
    """Rows of 960 bytes in 16 partitions of a thousand, with 64-bit indices."""
    rng, parts, weights = np.random.default_rng(0), [], np.random.default_rng(1).normal(size=800)
    for _ in range(16):
        columns = 10 * np.arange(80) + rng.integers(0, 10, (1000, 80))
        X = sp.csr_array((rng.normal(size=columns.size), columns.ravel(), np.arange(1001) * 80), (1000, 800))
        parts.append((X, (X @ weights > rng.normal(size=1000)).astype(np.int8)[:, None]))
    return parts


def test_a_fit_stays_within_its_memory_limit(many, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LEAST", 0)
    monkeypatch.setattr(module, "LOADED", 0)
    mapped = store([dask.delayed(pair) for pair in many], tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.glob("*-X-*.npy")) < 16.2 * 960_000
    model = MultiLabelSVC(C=0.001, tol=0.02, memory_limit=5, random_state=0)
    model.fit(mapped, client="here")  # imports and compilation do not count
    tracemalloc.start()
    model.fit(mapped, client="here")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.duality_gap_ <= 0.02
    assert 3.0 < peak / 2**20 <= 5.0
    with pytest.raises(ValueError, match=r"memory_limit=0.1 .* raise it to \d\.\d"):
        MultiLabelSVC(memory_limit=0.1).fit(mapped, client="here")
