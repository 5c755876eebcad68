"""M3L with a kernel on a GPU: block sweeps over one kernel matrix that all labels share.

Problem, dual, gap and letters are those of `problem`: signed coefficients B between lo and hi, residuals
E = T - R B K, all label-major. In every epoch samples are put in random order and cut into blocks; blocks
that stay the same take many times as many epochs. In a block every coefficient goes to its best place given
the others; one product carries the change to all residuals. Labels that are not tied are moved side by side,
tied ones one after the other. Blocks undo some of what others did; a mean of the last epochs has less of
that, and is the answer where its gap is smaller.

Work is in float32. The running residuals drift, so they are computed anew before the gap is believed, and
what training stops on is the gap of the stored coefficients, in float64 from kernel values in float64.
When rounding keeps the gap from falling, work goes on in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from maxmargin.core.loop import Certificate
from maxmargin.device import moves
from maxmargin.device.solver import DeviceSolver
from maxmargin.device.sweeper import Board, Sweeper
from maxmargin.multilabel.problem import EntryCosts, KernelM3L, Solution


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
    newest : float
        Part of the last epoch in the mean of epochs.
    """

    block: int = 128
    rounds: int = 2
    tied_block: int = 32
    tied_rounds: int = 1
    refresh: int = 8
    patience: int = 40
    newest: float = 0.4


class DeviceSweeps(DeviceSolver):
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
        self.problem = problem
        self.rule = rule = DeviceRule() if rule is None else rule
        block = rule.tied_block if problem.coupled else rule.block
        super().__init__(
            problem.K, problem.shape[1], block,
            rng=rng, device=device, refresh=rule.refresh, patience=rule.patience,
        )  # fmt: skip
        self.R = torch.from_numpy(problem.prior).to(device)
        numbers = entry_bounds(problem.costs, device, torch.float64)
        self.lo64, self.hi64, self.T64 = (self._padded(part) for part in numbers)
        signs, start = (torch.from_numpy(part).to(device).T for part in (problem.costs.signs, alpha))
        self.load(self._padded(signs * start.double()), itemsize)

    def _padded(self, numbers: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(numbers, (0, self.padding)).contiguous()

    def _sweeper(self, stored: torch.Tensor, moved: torch.Tensor) -> Sweeper:
        dtype, L = moved.dtype, self.n_columns
        self.B, self.T = stored.to(dtype), self.T64.to(dtype)
        self.lo, self.hi = self.lo64.to(dtype), self.hi64.to(dtype)
        self.E = torch.empty_like(self.T)
        self.mean: tuple[torch.Tensor, torch.Tensor] | None = None
        self.answer = self.B
        if self.problem.coupled:
            width = max(16, 1 << (L - 1).bit_length())
            R = torch.nn.functional.pad(self.R.to(dtype), (0, width - L, 0, width - L)).contiguous()
            compact = torch.zeros(4 * width, dtype=dtype, device=self.device)
            others = (self.B, self.lo, self.hi, R, compact, self.rule.tied_rounds)
            return Sweeper(Board(self.K, self.E, moved, others), _walk, _walk_program)
        r = self.R.diagonal().to(dtype).contiguous()
        compact = torch.zeros(4 * L * self.block, dtype=dtype, device=self.device)
        others = (self.B, self.lo, self.hi, r, compact, self.rule.rounds)
        return Sweeper(Board(self.K, self.E, moved, others), _sweep, _sweep_program)

    def _refresh(self) -> None:
        self.E.copy_(self.T - self.R.to(self.T.dtype) @ self.K.times(self.B))

    def _running(self) -> Certificate:
        if self.mean is None:
            self.mean = self.B.clone(), self.E.clone()
        for mean, last in zip(self.mean, (self.B, self.E), strict=True):
            mean.lerp_(last, self.rule.newest)
        found = {B: self._measure(B, self.T, E, self.lo, self.hi) for B, E in ((self.B, self.E), self.mean)}
        self.answer = min(found, key=lambda B: found[B].gap)
        return found[self.answer]

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

    def _stored(self) -> torch.Tensor:
        """The answer, with what stands at a rounded bound put exactly on it."""
        B = torch.clamp(self.answer.double(), self.lo64, self.hi64)
        return torch.where(
            self.hi == self.answer, self.hi64, torch.where(self.lo == self.answer, self.lo64, B)
        )

    def _certificate(self, stored: torch.Tensor) -> Certificate:
        E = self.T64 - self.R @ self.K.times_exactly(stored)
        return self._measure(stored, self.T64, E, self.lo64, self.hi64)

    def solution(self) -> Solution:
        return self.problem.solution(self._evaluated()[0][:, : self.matrix.n].cpu().numpy())


def entry_bounds(
    costs: EntryCosts, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """lo, hi and T = Y * margins on a device, label-major; in single precision boxes are a bit smaller."""
    signs, weight, upper, margin, per_entry_margin = costs.flat(
        np.float32 if dtype == torch.float32 else np.float64
    )
    signs, weight, upper, margin = (
        torch.tensor(part, device=device) for part in (signs, weight, upper, margin)
    )
    signs = signs.T
    box = signs * torch.where(signs > 0, upper[1][:, None], upper[0][:, None]) * weight.T
    margins = margin.T if per_entry_margin else torch.where(signs > 0, margin[1][:, None], margin[0][:, None])
    return box.clamp(max=0).contiguous(), box.clamp(min=0).contiguous(), (signs * margins).contiguous()


def _sweep(board: Board, samples: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
    B, lo, hi, r, _, rounds = board.others
    some, e = B[:, samples], board.scores[:, samples]
    moved = moves.sweep(tile, e, some, lo[:, samples], hi[:, samples], r, rounds)
    B[:, samples] = some
    return moved


def _walk(board: Board, samples: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
    B, lo, hi, R, _, rounds = board.others
    some, e, L = B[:, samples], board.scores[:, samples], len(B)
    moved = moves.walk(tile, e, some, lo[:, samples], hi[:, samples], R[:L, :L], rounds)
    B[:, samples] = some
    return moved


def _sweep_program(board: Board, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
    from maxmargin.device import triton_moves

    B, lo, hi, r, compact, rounds = board.others
    L, n = board.scores.shape
    triton_moves.sweep[(L,)](
        order, k, tile, board.scores, B, lo, hi, r, compact, board.moved, n,
        ROUNDS=rounds, BLOCK=board.block, num_warps=1,
    )  # fmt: skip


def _walk_program(board: Board, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
    from maxmargin.device import triton_moves

    B, lo, hi, R, compact, rounds = board.others
    L, n = board.scores.shape
    triton_moves.walk[(1,)](
        order, k, tile, board.scores, B, lo, hi, R, compact, board.moved, n,
        L=L, ROUNDS=rounds, BLOCK=board.block, WIDTH=R.shape[1], num_warps=1,
    )  # fmt: skip
