"""Kernel multi-class machines on a GPU: blocks of dual variables, walked over one kernel matrix.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. In every epoch samples are
put in random order and cut into sets. In a set every block alpha_i goes to its best place, over-relaxed,
given the others (with the loss of Crammer and Singer a projection on the simplex); one product carries the
change to the scores of all samples.

Work is in float32; training stops on the gap of the stored blocks, recomputed in float64 from kernel values
in float64. When rounding keeps the gap from falling, work goes on in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from maxmargin.core.loop import Certificate
from maxmargin.device import moves
from maxmargin.device.solver import DeviceSolver
from maxmargin.device.sweeper import Board, Sweeper
from maxmargin.structured.multiclass_loops import WESTON_WATKINS
from maxmargin.structured.multiclass_problem import KernelMultiClass, KernelSolution, Setup


@dataclass(frozen=True)
class DeviceRule:
    """Sizes of the moves; none of it changes the optimum.

    Parameters
    ----------
    block, rounds : int
        Samples of a set, and how often each of its blocks is moved.
    relaxation : float
        A step goes so many times as far as the best one.
    refresh : int
        Epochs after which scores are computed anew.
    patience : int
        Epochs without a tenth less gap after which work goes on in float64.
    """

    block: int = 32
    rounds: int = 1
    relaxation: float = 1.4
    refresh: int = 8
    patience: int = 40


class DeviceBlocks(DeviceSolver):
    """Projections of blocks on a device of PyTorch.

    Parameters
    ----------
    problem : KernelMultiClass
    setup : Setup
    device : torch.device
    itemsize : int
        Bytes of a number of the working precision, 4 or 8.
    rule : DeviceRule
    """

    def __init__(
        self,
        problem: KernelMultiClass,
        setup: Setup,
        *,
        device: torch.device,
        itemsize: int = 4,
        rule: DeviceRule | None = None,
    ) -> None:
        self.problem = problem
        self.rule = rule = DeviceRule() if rule is None else rule
        super().__init__(
            problem.K, problem.c, rule.block,
            rng=setup.rng, device=device, refresh=rule.refresh, patience=rule.patience,
        )  # fmt: skip
        self.boxed = problem.loss == WESTON_WATKINS
        self.y = torch.from_numpy(np.pad(problem.y, (0, self.padding))).to(device)
        self.costs64 = torch.from_numpy(np.pad(problem.costs, (0, self.padding))).to(device)
        self.Delta64 = torch.from_numpy(problem.labels.Delta).to(device)[self.y].T.contiguous()
        self.truth = torch.nn.functional.one_hot(self.y, problem.c).T.double()
        alpha = self.truth.clone()
        if setup.blocks is not None:
            alpha[:, : problem.n] = torch.from_numpy(np.ascontiguousarray(setup.blocks.T, np.float64))
        self.load(alpha, itemsize)

    def _sweeper(self, stored: torch.Tensor, moved: torch.Tensor) -> Sweeper:
        dtype, rule = moved.dtype, self.rule
        self.alpha, self.Delta = stored.to(dtype).contiguous(), self.Delta64.to(dtype)
        self.costs = self.costs64.to(dtype)
        self.scores = torch.empty_like(self.Delta)
        others = (self.alpha, self.Delta, self.costs, self.y, self.boxed, rule.rounds, rule.relaxation)
        return Sweeper(Board(self.K, self.scores, moved, others), _project, _project_program)

    def _refresh(self) -> None:
        B = self.costs * (self.truth.to(self.costs.dtype) - self.alpha)
        self.scores.copy_(self.K.times(B))

    def _running(self) -> Certificate:
        return self._measure(self.alpha, self.scores, self.Delta, self.costs)

    def _measure(
        self, alpha: torch.Tensor, scores: torch.Tensor, Delta: torch.Tensor, costs: torch.Tensor
    ) -> Certificate:
        """P of (2) and D of (4)."""
        H = Delta + scores - scores.gather(0, self.y[None])
        hinges = H.clamp(min=0).sum(dim=0) if self.boxed else H.amax(dim=0)
        losses = torch.sum(costs * hinges, dtype=torch.float64)
        linear = torch.sum(costs * (alpha * Delta).sum(dim=0), dtype=torch.float64)
        B = costs * (self.truth.to(alpha.dtype) - alpha)
        half = 0.5 * torch.sum(B * scores, dtype=torch.float64)
        losses, linear, half = torch.stack([losses, linear, half]).tolist()
        return Certificate(half + losses, linear - half)

    def _stored(self) -> torch.Tensor:
        """alpha, exactly balanced."""
        alpha = self.alpha.double()
        if not self.boxed:
            return alpha / alpha.sum(dim=0)
        wrong = torch.where(self.truth > 0, 0.0, alpha)
        return torch.where(self.truth > 0, 1 - wrong.sum(dim=0), wrong)

    def _certificate(self, stored: torch.Tensor) -> Certificate:
        scores = self.K.times_exactly(self.costs64 * (self.truth - stored))
        return self._measure(stored, scores, self.Delta64, self.costs64)

    def solution(self) -> KernelSolution:
        problem = self.problem
        alpha = self._evaluated()[0][:, : problem.n].T.cpu().numpy()
        return KernelSolution(problem.steps(alpha), alpha)


def _project(board: Board, samples: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
    alpha, Delta, costs, y, boxed, rounds, relaxation = board.others
    some, scores = alpha[:, samples], board.scores[:, samples]
    moved = moves.project(
        tile, scores, some, Delta[:, samples], costs[samples], y[samples], boxed, rounds, relaxation
    )
    alpha[:, samples] = some
    return moved


def _project_program(board: Board, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
    from maxmargin.device import triton_moves

    alpha, Delta, costs, y, boxed, rounds, relaxation = board.others
    c, n = board.scores.shape
    triton_moves.project[(1,)](
        order, k, tile, board.scores, alpha, Delta, costs, y, board.moved, n, relaxation,
        L=c, BOXED=boxed, ROUNDS=rounds, BLOCK=board.block, WIDTH=max(16, 1 << (c - 1).bit_length()),
        STEPS=moves.ROOT_STEPS, num_warps=1,
    )  # fmt: skip
