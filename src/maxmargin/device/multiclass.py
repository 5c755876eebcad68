"""Kernel multi-class machines on a GPU: moves of dual blocks over one kernel matrix.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. Every epoch puts the samples in
random order and cuts them into sets. In a set every block alpha_i moves to its optimum given the others,
over-relaxed; with the loss of Crammer and Singer that is a projection on the simplex. One product adds the
change to the scores of all samples.

Work is in float32; training stops on the gap of the stored blocks, recomputed in float64, and work continues
in float64 when rounding keeps the gap from falling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from maxmargin.core.loop import Certificate
from maxmargin.device import blocks
from maxmargin.device.blocks import BlockMoves, DeviceSolver
from maxmargin.structured.multiclass_loops import WESTON_WATKINS
from maxmargin.structured.multiclass_problem import KernelMultiClass, KernelSolution, Setup

# Samples of a set, moves of each of its blocks, and the length of a step relative to the optimal one.
BLOCK, ROUNDS, RELAXATION = 32, 1, 1.4


class ClassMoves(BlockMoves):
    """Moves of the blocks alpha_i, one sample after the other."""

    def __init__(
        self, K: Any, scores: torch.Tensor, alpha: torch.Tensor, Delta: torch.Tensor, costs: torch.Tensor,
        y: torch.Tensor, boxed: bool,
    ) -> None:  # fmt: skip
        super().__init__(K, scores, BLOCK)
        self.alpha, self.Delta, self.costs, self.y, self.boxed = alpha, Delta, costs, y, boxed

    def launch(self, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
        from maxmargin.device import triton_moves

        c, n = self.scores.shape
        triton_moves.project[(1,)](
            order, k, tile, self.scores, self.alpha, self.Delta, self.costs, self.y, self.moved, n,
            RELAXATION, L=c, BOXED=self.boxed, ROUNDS=ROUNDS, BLOCK=self.block, WIDTH=blocks.padded_width(c),
            STEPS=blocks.ROOT_STEPS, num_warps=1,
        )  # fmt: skip


class DeviceBlocks(DeviceSolver):
    """Moves of dual blocks on a device of PyTorch.

    Parameters
    ----------
    problem : KernelMultiClass
    setup : Setup
    device : torch.device
    itemsize : int
        Bytes of a number of the working precision, 4 or 8.
    """

    def __init__(
        self, problem: KernelMultiClass, setup: Setup, *, device: torch.device, itemsize: int = 4
    ) -> None:
        self.problem = problem
        super().__init__(problem.K, problem.c, BLOCK, setup.rng, device)
        self.boxed = problem.loss == WESTON_WATKINS
        self.y = torch.from_numpy(np.pad(problem.y, (0, self.padding))).to(device)
        self.costs64 = torch.from_numpy(np.pad(problem.costs, (0, self.padding))).to(device)
        self.Delta64 = torch.from_numpy(problem.labels.Delta).to(device)[self.y].T.contiguous()
        self.truth = torch.nn.functional.one_hot(self.y, problem.c).T.double()
        alpha = self.truth.clone()
        if setup.blocks is not None:
            alpha[:, : problem.n] = torch.from_numpy(np.ascontiguousarray(setup.blocks.T, np.float64))
        self.load(alpha, itemsize)

    def _make_moves(self, stored: torch.Tensor) -> BlockMoves:
        dtype = stored.dtype
        self.alpha, self.Delta, self.costs = stored, self.Delta64.to(dtype), self.costs64.to(dtype)
        self.scores = torch.empty_like(self.Delta)
        return ClassMoves(self.K, self.scores, self.alpha, self.Delta, self.costs, self.y, self.boxed)

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
        """alpha, with sums of exactly 1."""
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
