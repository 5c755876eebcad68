"""Triton programs compute the same as the plain moves: on a GPU, or interpreted on the CPU."""

import os

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
pytest.importorskip("triton")

from maxmargin.device import triton_moves  # noqa: E402
from maxmargin.device.blocks import ROOT_STEPS  # noqa: E402
from maxmargin.device.multilabel import Bias, Entries, Lists  # noqa: E402
from maxmargin.device.numerics import DeviceRows  # noqa: E402
from tests.naive import device as twins  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
M, N, L = 32, 96, 5


@pytest.fixture
def numbers():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 4))
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(2)) + 1
    A = rng.normal(size=(L, 2))
    R = A @ A.T + 0.5 * np.eye(L)
    E = rng.normal(size=(L, N)) * 2
    sign = np.where(rng.random((L, N)) < 0.5, -1, 1)
    lo, hi = np.minimum(sign, 0) * 0.7, np.maximum(sign, 0) * 0.7
    B = np.clip(rng.normal(size=(L, N)), lo, hi)
    alpha = rng.dirichlet(np.ones(L), size=N).T
    Delta = 1 - np.eye(L)[rng.integers(L, size=N)].T
    costs = rng.random(N)
    costs[40] = 0
    given = {
        "K": K,
        "R": R,
        "E": E,
        "lo": lo,
        "hi": hi,
        "B": B,
        "alpha": alpha,
        "Delta": Delta,
        "costs": costs,
    }
    return {
        name: torch.tensor(np.ascontiguousarray(value), dtype=torch.float32, device=DEVICE)
        for name, value in given.items()
    }


@pytest.fixture
def samples():
    """A random order of the samples; the tests move its third block."""
    return torch.from_numpy(np.random.default_rng(1).permutation(N)).to(DEVICE)


def tile_of(K, samples):
    tile = torch.empty(M, M, device=DEVICE)
    triton_moves.gather[(2,)](samples.to(torch.int32), 2, K, tile, N, BLOCK=M, ROWS=16, num_warps=4)
    return tile


def test_gather(numbers, samples):
    block = samples[2 * M :]
    torch.testing.assert_close(tile_of(numbers["K"], samples), numbers["K"][block][:, block])


def both(call):
    """Results of the Triton program and of its twin, for ``call(programs)``."""
    return call(triton_moves), call(twins)


def assert_close(found, expected, tolerance=1e-4):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("rounds", [1, 3])
def test_sweep(numbers, samples, rounds):
    K, E, lo, hi = (numbers[name] for name in ("K", "E", "lo", "hi"))
    r, tile = numbers["R"].diagonal().contiguous(), tile_of(K, samples)

    def call(programs):
        B, moved = numbers["B"].clone(), torch.zeros(L, M, device=DEVICE)
        compact = torch.zeros(4 * L * M, device=DEVICE)
        programs.sweep[(L,)](
            samples.to(torch.int32), 2, tile, E, B, lo, hi, r, compact, moved, N,
            ROUNDS=rounds, BLOCK=M, num_warps=1,
        )  # fmt: skip
        return moved, B

    found, expected = both(call)
    assert float(expected[0].abs().max()) > 0.1
    assert_close(found, expected, 1e-5)
    torch.testing.assert_close(found[1][:, samples[: 2 * M]], numbers["B"][:, samples[: 2 * M]])


@pytest.mark.parametrize("rounds", [1, 2])
def test_walk(numbers, samples, rounds):
    K, E, lo, hi, R = (numbers[name] for name in ("K", "E", "lo", "hi", "R"))
    padded, tile = torch.nn.functional.pad(R, (0, 16 - L, 0, 16 - L)).contiguous(), tile_of(K, samples)

    def call(programs):
        B, moved = numbers["B"].clone(), torch.zeros(L, M, device=DEVICE)
        compact = torch.zeros(4 * 16, device=DEVICE)
        programs.walk[(1,)](
            samples.to(torch.int32), 2, tile, E, B, lo, hi, padded, compact, moved, N,
            L=L, ROUNDS=rounds, BLOCK=M, WIDTH=16, num_warps=1,
        )  # fmt: skip
        return moved, B

    assert_close(*both(call))


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("rounds", [1, 2])
def test_project(numbers, samples, rounds, boxed):
    y = numbers["Delta"].argmin(dim=0)
    if boxed:
        numbers["alpha"] = torch.where(numbers["Delta"] == 0, 0.0, numbers["lo"] + numbers["hi"]).abs()
        numbers["alpha"][y, torch.arange(N)] = 1 - numbers["alpha"].sum(dim=0)
    K, F, Delta, costs = (numbers[name] for name in ("K", "E", "Delta", "costs"))
    costs[samples[2 * M + 3]] = 0
    tile = tile_of(K, samples)

    def call(programs):
        alpha, moved = numbers["alpha"].clone(), torch.zeros(L, M, device=DEVICE)
        programs.project[(1,)](
            samples.to(torch.int32), 2, tile, F, alpha, Delta, costs, y, moved, N, 1.4,
            L=L, BOXED=boxed, ROUNDS=rounds, BLOCK=M, WIDTH=16, STEPS=ROOT_STEPS, num_warps=1,
        )  # fmt: skip
        return moved, alpha

    assert_close(*both(call), 1e-5)


@pytest.mark.parametrize(("precision", "error"), [("tf32", 2e-2), ("ieee", 1e-5)])
def test_propagate(numbers, samples, precision, error):
    moved = numbers["B"][:, :M].contiguous()

    def call(programs):
        E = numbers["E"].clone()
        programs.propagate[(2, 1)](
            samples.to(torch.int32), 2, numbers["K"], E, moved, N, L,
            BLOCK=M, ROWS=16, COLUMNS=64, PRECISION=precision, num_warps=4,
        )  # fmt: skip
        return (E,)

    assert_close(*both(call), error)


def test_simplex_is_the_projection():
    rng = np.random.default_rng(0)
    for size in (1, 2, 7):
        v = torch.tensor(3 * rng.normal(size=size))
        point = twins.simplex(v)
        assert float(point.sum()) == pytest.approx(1)
        assert float(point.min()) >= 0
        others = torch.tensor(rng.dirichlet(np.ones(size), size=500))
        assert float((v - point).square().sum()) <= float((v - others).square().sum(1).min()) + 1e-12


def test_descend():
    """One pass over lists of different length; rows are empty, short, or longer than the prefetched part."""
    rng = np.random.default_rng(2)
    n, d = 40, 400
    X = sp.random(n, d, 0.05, "csr", rng=rng, dtype="f4")
    X = sp.vstack([X, sp.csr_array((1, d), dtype="f4"), rng.normal(size=(2, d)).astype("f4")], format="csr")
    n = X.shape[0]
    rows = DeviceRows(X, torch.device(DEVICE), torch.float32).rows
    listed = rng.random((L, n)) < [[1], [0.7], [0.3], [0.0], [0.5]]
    members = np.concatenate([rng.permutation(np.flatnonzero(of_label)) for of_label in listed])
    counts = listed.sum(axis=1)
    sign = np.where(rng.random((L, n)) < 0.5, -1, 1)
    lo, hi = np.minimum(sign, 0) * 0.7, np.maximum(sign, 0) * 0.7
    B = np.clip(rng.normal(size=(L, n)), lo, hi)

    def there(numbers, dtype=torch.float32):
        return torch.tensor(numbers, dtype=dtype, device=DEVICE)

    def run(descend):
        flags = torch.ones(L, n, dtype=torch.bool, device=DEVICE)
        entries = Entries(there(B), there(lo), there(hi), there(sign), flags)
        w = there(np.random.default_rng(0).normal(size=(L, d)))
        bias = Bias(2.0, there(np.linspace(-1, 1, L)), there(np.linspace(0.1, 1, L)))
        lists = Lists(
            there(members, torch.int32),
            there(np.cumsum(counts) - counts, torch.int64),
            there(counts, torch.int64),
        )
        q, r = there(X.power(2).sum(axis=1)), there(np.linspace(0.5, 2, L))
        seen, violations = descend(lists, rows, w, entries, q, r, bias, there(np.full((2, L), 1.5)))
        return seen, violations, w, entries.B, flags, bias.at

    fast, plain = run(triton_moves.descend), run(twins.descend)
    assert not fast[4].all()
    for a, b in zip(fast, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_sparse_rows(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    X = sp.random(30, 50, 0.3, "csr", rng=rng)
    X = sp.vstack([X, sp.csr_array((1, 50)), rng.normal(size=(2, 50))], format="csr")
    rows = DeviceRows(X, torch.device(DEVICE), dtype)
    W = torch.tensor(rng.normal(size=(L, 50)), dtype=dtype, device=DEVICE)
    B = torch.tensor(rng.normal(size=(L, X.shape[0])), dtype=dtype, device=DEVICE)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(rows.rows.times(W).cpu().numpy(), W.cpu().numpy() @ X.T, atol=tolerance)
    np.testing.assert_allclose(rows.columns.times(B).cpu().numpy(), B.cpu().numpy() @ X, atol=tolerance)
    monkeypatch.setattr("maxmargin.device.numerics.PIECE", 4)
    np.testing.assert_allclose(rows.rows.times(W).cpu().numpy(), W.cpu().numpy() @ X.T, atol=tolerance)


def test_box_is_the_optimum():
    """No other feasible block has a larger value of the quadratic."""
    rng = np.random.default_rng(0)
    for size in (2, 3, 9):
        at = torch.tensor(rng.random(size) * (rng.random(size) < 0.7))
        slope, truth = torch.tensor(2 * rng.normal(size=size)), int(rng.integers(size))
        wrong = torch.arange(size) != truth
        at[truth] = 1 - at[wrong].sum()

        def value(new, at=at, slope=slope):
            return float(((new - at) * slope).sum() - 0.5 * ((new - at) ** 2).sum())

        best = twins.box(at, slope, truth)
        assert float(best.sum()) == pytest.approx(1)
        assert 0 <= float(best[wrong].min()) <= float(best[wrong].max()) <= 1
        for _ in range(200):
            other = torch.where(
                wrong, torch.clamp(best + 0.2 * torch.tensor(rng.normal(size=size)), 0, 1), best
            )
            other[truth] = 1 - other[wrong].sum()
            assert value(other) <= value(best) + 1e-12
