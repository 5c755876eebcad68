"""The Triton programs give what the plain moves give: on a GPU, or else interpreted on the CPU."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
pytest.importorskip("triton")

from maxmargin.device import moves, triton_moves  # noqa: E402

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
    given = {"K": K, "R": R, "E": E, "lo": lo, "hi": hi, "B": B, "alpha": alpha, "Delta": Delta, "costs": costs}
    return {name: torch.tensor(np.ascontiguousarray(value), dtype=torch.float32, device=DEVICE) for name, value in given.items()}


ORDER = [2, 0, 1]
ROWS = slice(32, 64)  # the block that stands third in ORDER


def order():
    return torch.tensor(ORDER, dtype=torch.int32, device=DEVICE)


def strips(K):
    """The whole matrix, and the rows of the block alone."""
    return [(K, 1), (K[ROWS].contiguous(), 0)]


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("whole", [0, 1])
def test_sweep(numbers, rounds, whole):
    K, E, lo, hi = (numbers[name] for name in ("K", "E", "lo", "hi"))
    r = numbers["R"].diagonal().contiguous()
    B, twin = numbers["B"].clone(), numbers["B"].clone()
    moved = torch.zeros(L, M, device=DEVICE)
    strip, ahead = strips(K)[whole]
    triton_moves.sweep[(L,)](
        order(), 2, strip, ahead, E, B, lo, hi, r, moved, N, ROUNDS=rounds, BLOCK=M, num_warps=1
    )
    expected = moves.sweep(
        K[ROWS, ROWS], E[:, ROWS].clone(), twin[:, ROWS], lo[:, ROWS], hi[:, ROWS], r, rounds
    )
    assert float(expected.abs().max()) > 0.1
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(B, twin, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("whole", [0, 1])
def test_walk(numbers, rounds, whole):
    K, E, lo, hi, R = (numbers[name] for name in ("K", "E", "lo", "hi", "R"))
    B, twin = numbers["B"].clone(), numbers["B"].clone()
    moved = torch.zeros(L, M, device=DEVICE)
    padded = torch.nn.functional.pad(R, (0, 16 - L)).contiguous()
    strip, ahead = strips(K)[whole]
    triton_moves.walk[(1,)](
        order(), 2, strip, ahead, E, B, lo, hi, padded, moved, N, L,
        ROUNDS=rounds, BLOCK=M, WIDTH=16, num_warps=1,
    )  # fmt: skip
    expected = moves.walk(
        K[ROWS, ROWS], E[:, ROWS].clone(), twin[:, ROWS], lo[:, ROWS], hi[:, ROWS], R, rounds
    )
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(B, twin, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("whole", [0, 1])
def test_project(numbers, rounds, whole):
    K, F, Delta, costs = (numbers[name] for name in ("K", "E", "Delta", "costs"))
    alpha, twin = numbers["alpha"].clone(), numbers["alpha"].clone()
    moved = torch.zeros(L, M, device=DEVICE)
    strip, ahead = strips(K)[whole]
    triton_moves.project[(1,)](
        order(), 2, strip, ahead, F, alpha, Delta, costs, moved, N, L, 1.4,
        ROUNDS=rounds, BLOCK=M, WIDTH=16, num_warps=1,
    )  # fmt: skip
    expected = moves.project(
        K[ROWS, ROWS], F[:, ROWS].clone(), twin[:, ROWS], Delta[:, ROWS], costs[ROWS], rounds, 1.4
    )
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alpha, twin, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("whole", [0, 1])
def test_carry(numbers, whole):
    K, E = numbers["K"], numbers["E"].clone()
    moved = numbers["B"][:, :M].contiguous()
    expected = E - moved @ K[ROWS]
    strip, ahead = strips(K)[whole]
    triton_moves.carry[(2, 1)](
        order(), 2, strip, ahead, E, moved, N, L, BLOCK=M, DEPTH=32, ROWS=16, COLUMNS=64, num_warps=4
    )
    torch.testing.assert_close(E, expected, atol=1e-5, rtol=1e-5)


def test_simplex_is_the_nearest_point():
    rng = np.random.default_rng(0)
    for size in (1, 2, 7):
        v = torch.tensor(3 * rng.normal(size=size))
        point = moves.simplex(v)
        assert float(point.sum()) == pytest.approx(1)
        assert float(point.min()) >= 0
        others = torch.tensor(rng.dirichlet(np.ones(size), size=500))
        assert float((v - point).square().sum()) <= float((v - others).square().sum(1).min()) + 1e-12
