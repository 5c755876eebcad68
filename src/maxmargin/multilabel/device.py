"""M3L with a kernel on a GPU: block sweeps over one kernel matrix that all labels share.

Problem, dual, gap and letters are those of `problem`: signed coefficients B between lo and hi, residuals
E = T - R B K, all label-major. Samples are put in random order once and cut into blocks. In a block every
coefficient goes to its best place given the others, a few times over; one product carries the change to
all residuals. Labels that are not tied are moved side by side, tied ones one after the other.

Work is in float32. The running residuals drift, so they are computed anew before the gap is believed, and
what training stops on is the gap of the stored coefficients, in float64 from kernel values in float64.
When rounding keeps the gap from falling, work goes on in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from maxmargin.core.loop import Certificate, Clock, Patience, Progress
from maxmargin.device import moves
from maxmargin.device.backend import Demand, dtype_of, keeps_whole
from maxmargin.device.kernels import DeviceKernel, ordered
from maxmargin.device.sweeper import Board, Sweeper
from maxmargin.multilabel.problem import KernelM3L, Solution


@dataclass(frozen=True)
class DeviceRule:
    """Sizes of the moves; none of it changes the optimum.

    Parameters
    ----------
    block, rounds : int
        Samples of a block, and how often each of its coefficients is moved, for independent labels.
    tied_block, tied_rounds : int
        The same for tied labels.
    refresh : int
        Epochs after which residuals are computed anew.
    patience : int
        Epochs without a tenth less gap after which work goes on in float64.
    """

    block: int = 128
    rounds: int = 2
    tied_block: int = 32
    tied_rounds: int = 1
    refresh: int = 8
    patience: int = 40


class DeviceSweeps:
    """Block sweeps on a device of PyTorch.

    Parameters
    ----------
    problem : KernelM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    rng : RandomState
    device : torch.device
    itemsize : int
        Bytes of a number of the working precision, 4 or 8.
    rule : DeviceRule
    """

    def __init__(
        self,
        problem: KernelM3L,
        alpha: np.ndarray,
        *,
        rng: np.random.RandomState,
        device: torch.device,
        itemsize: int = 4,
        rule: DeviceRule | None = None,
    ) -> None:
        self.problem, self.rng, self.device = problem, rng, device
        self.rule = DeviceRule() if rule is None else rule
        self.block = self.rule.tied_block if problem.coupled else self.rule.block
        n = problem.shape[0]
        self.order = rng.permutation(n)
        self.padding = -n % self.block
        self.R = torch.from_numpy(problem.prior).to(device)
        self.epochs, self.patience = 0, Patience(self.rule.patience)
        self._exact: tuple[torch.Tensor, Certificate] | None = None
        self.lo64, self.hi64 = (self._sent(bound) for bound in problem.bounds)
        self.T64 = self._sent(problem.target)
        self._load(self._sent(problem.coefficients(alpha)), itemsize)

    def _sent(self, numbers: np.ndarray) -> torch.Tensor:
        """Numbers per label and sample on the device, in the order of the blocks, padded by zeros."""
        there = torch.from_numpy(np.ascontiguousarray(numbers[:, self.order], np.float64)).to(self.device)
        return torch.nn.functional.pad(there, (0, self.padding))

    def _load(self, B: torch.Tensor, itemsize: int) -> None:
        """Take up work in a precision."""
        self.itemsize, dtype = itemsize, dtype_of(itemsize)
        n, L = self.problem.shape
        demand = Demand(n, self.problem.K.X.shape[1], L, itemsize, self.block)
        self.sweeper: Sweeper | None = None  # gives its kernel matrix back before the next one is made
        kernel = self.problem.K.kernel
        rows = ordered(kernel, self.problem.K.X, self.order, self.padding)
        K = DeviceKernel(kernel, rows, self.device, dtype, keeps_whole(self.device, demand))
        self.B, self.T = B.to(dtype), self.T64.to(dtype)
        self.lo, self.hi = self.lo64.to(dtype), self.hi64.to(dtype)
        self.E = torch.empty_like(self.T)
        moved = torch.zeros(L, self.block, dtype=dtype, device=self.device)
        if self.problem.coupled:
            width = max(16, 1 << (L - 1).bit_length())
            R = torch.nn.functional.pad(self.R.to(dtype), (0, width - L)).contiguous()
            board = Board(K, self.E, moved, (self.B, self.lo, self.hi, R, self.rule.tied_rounds))
            self.sweeper = Sweeper(board, _walk, _walk_program)
        else:
            r = self.R.diagonal().to(dtype).contiguous()
            board = Board(K, self.E, moved, (self.B, self.lo, self.hi, r, self.rule.rounds))
            self.sweeper = Sweeper(board, _sweep, _sweep_program)
        self.K = K
        self._refresh()

    def _refresh(self) -> None:
        """Residuals computed anew."""
        self.E.copy_(self.T - self.R.to(self.T.dtype) @ self.K.times(self.B))

    def epoch(self, clock: Clock) -> Progress:
        assert self.sweeper is not None
        # Asked for already, and not good enough: the running residuals had told otherwise.
        if self._exact is not None:
            self._refresh()
        self._exact = None
        self.sweeper.epoch(self.rng, clock)
        self.epochs += 1
        if self.epochs % self.rule.refresh == 0:
            self._refresh()
        certificate = self._measure(self.B, self.T, self.E, self.lo, self.hi)
        if self.itemsize == 4 and self.patience.exhausted(certificate.gap):
            self._load(self._feasible(), 8)
        return Progress(certificate, self.problem.shape[0])

    def _measure(
        self, B: torch.Tensor, T: torch.Tensor, E: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor
    ) -> Certificate:
        """Both objectives of B with residuals E; the dual is (25)."""
        value = torch.sum(T * B, dtype=torch.float64)
        norm = 0.5 * (value - torch.sum(E * B, dtype=torch.float64))
        loss = torch.sum(torch.maximum(hi * E, lo * E), dtype=torch.float64)
        value, norm, loss = torch.stack([value, norm, loss]).tolist()
        constant = self.problem.costs.constant
        return Certificate(norm + loss + constant, value - norm + constant)

    def _feasible(self) -> torch.Tensor:
        """B in float64, with what stands at a rounded bound put exactly on it."""
        B = torch.clamp(self.B.double(), self.lo64, self.hi64)
        return torch.where(self.B == self.hi, self.hi64, torch.where(self.B == self.lo, self.lo64, B))

    def _evaluated(self) -> tuple[torch.Tensor, Certificate]:
        if self._exact is None:
            B = self._feasible()
            E = self.T64 - self.R @ self.K.times_exactly(B)
            self._exact = B, self._measure(B, self.T64, E, self.lo64, self.hi64)
        return self._exact

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> Solution:
        n = self.problem.shape[0]
        B = np.empty((self.problem.shape[1], n))
        B[:, self.order] = self._evaluated()[0][:, :n].cpu().numpy()
        return self.problem.solution(B)


def _sweep(board: Board, rows: slice, tile: torch.Tensor) -> torch.Tensor:
    B, lo, hi, r, rounds = board.others
    return moves.sweep(tile, board.scores[:, rows].clone(), B[:, rows], lo[:, rows], hi[:, rows], r, rounds)


def _walk(board: Board, rows: slice, tile: torch.Tensor) -> torch.Tensor:
    B, lo, hi, R, rounds = board.others
    R = R[:, : len(R)]
    return moves.walk(tile, board.scores[:, rows].clone(), B[:, rows], lo[:, rows], hi[:, rows], R, rounds)


def _sweep_program(board: Board, order: torch.Tensor, k: int, strip: torch.Tensor, ahead: int) -> None:
    from maxmargin.device import triton_moves

    B, lo, hi, r, rounds = board.others
    L, n = board.scores.shape
    triton_moves.sweep[(L,)](
        order, k, strip, ahead, board.scores, B, lo, hi, r, board.moved, n,
        ROUNDS=rounds, BLOCK=board.block, num_warps=1,
    )  # fmt: skip


def _walk_program(board: Board, order: torch.Tensor, k: int, strip: torch.Tensor, ahead: int) -> None:
    from maxmargin.device import triton_moves

    B, lo, hi, R, rounds = board.others
    L, n = board.scores.shape
    triton_moves.walk[(1,)](
        order, k, strip, ahead, board.scores, B, lo, hi, R, board.moved, n, L,
        ROUNDS=rounds, BLOCK=board.block, WIDTH=R.shape[1], num_warps=1,
    )  # fmt: skip
