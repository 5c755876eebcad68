"""Epochs of block moves on a device: one permutation of the blocks, a move on each, its change carried on.

What is moved is `Board`: numbers per column (label or class) and sample, label-major, and a kernel matrix
over samples. On a GPU in single precision the moves are Triton programs, and with the whole kernel matrix at
hand an epoch is captured once as a CUDA graph; anywhere else they are plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from maxmargin.core.loop import Clock
from maxmargin.device.kernels import DeviceKernel

# Blocks between two looks at the clock.
LOOK = 64
# The product that carries a change on: columns and warps of a program, and how factors are rounded.
# Errors are in proportion to the change, and residuals are computed anew before they count.
COLUMNS, WARPS, PRECISION = 64, 4, "tf32"


# Parts of an epoch that are replays of one graph, where there are blocks enough: capturing takes time.
PARTS = 4


def parts_of(n_blocks: int) -> int:
    """How many parts an epoch has; samples are padded so that all have as many blocks."""
    return PARTS if n_blocks > 4 * PARTS else 1


@dataclass
class Board:
    """The numbers that moves work on.

    Parameters
    ----------
    K : DeviceKernel
    scores : tensor of shape (n_columns, n_samples)
        What a change is taken from: residuals, or scores.
    moved : tensor of shape (n_columns, block)
        The change of a block, as it is taken from the scores.
    others : tuple of tensors
        Whatever else the move reads or writes.
    """

    K: DeviceKernel
    scores: torch.Tensor
    moved: torch.Tensor
    others: tuple[Any, ...] = field(default_factory=tuple)

    @property
    def parts(self) -> int:
        return parts_of(self.n_blocks)

    @property
    def block(self) -> int:
        return self.moved.shape[1]

    @property
    def n_blocks(self) -> int:
        return self.scores.shape[1] // self.block


class Sweeper:
    """Runs epochs of one kind of move.

    Parameters
    ----------
    board : Board
    plain : callable
        ``plain(board, samples, tile)`` moves some samples, given their own kernel values, and
        returns the change.
    program : callable
        ``program(board, order, k, tile)`` launches the same move on block k as a Triton program.
    """

    def __init__(self, board: Board, plain: Callable[..., Any], program: Callable[..., Any]) -> None:
        self.board, self.plain, self.program = board, plain, program
        scores, m = board.scores, board.block
        self.fast = scores.device.type == "cuda"
        self.order = torch.zeros(scores.shape[1], dtype=torch.int32, device=scores.device)
        self.window = torch.zeros(scores.shape[1] // board.parts, dtype=torch.int32, device=scores.device)
        self.tile = torch.empty(m, m, dtype=scores.dtype, device=scores.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def epoch(self, rng: np.random.RandomState, clock: Clock) -> None:
        """Move every sample once, in blocks drawn anew; ends early when time has expired."""
        order = torch.from_numpy(rng.permutation(self.board.scores.shape[1]).astype(np.int32))
        self.order.copy_(order)
        if self.fast and self.board.K.whole is not None and self.board.scores.dtype == torch.float32:
            self._replay()
            return
        for k in range(self.board.n_blocks):
            if k % LOOK == LOOK - 1 and clock.expired():
                return
            self._by_strip(k)

    def _by_strip(self, k: int) -> None:
        """A move on the rows of K that it needs."""
        board, m = self.board, self.board.block
        samples = self.order[k * m : (k + 1) * m].long()
        strip = board.K.rows(samples)
        tile = strip[:, samples].contiguous()
        if not self.fast:
            board.scores.addmm_(self.plain(board, samples, tile), strip, alpha=-1)
            return
        self.program(board, self.order, k, tile)
        board.scores.addmm_(board.moved, strip, alpha=-1)

    def _launch(self, k: int, K: torch.Tensor) -> None:
        """A move on a block of the window, with the whole K, and the product that carries it on."""
        from maxmargin.device import triton_moves

        board, order, m = self.board, self.window, self.board.block
        L, n = board.scores.shape
        triton_moves.gather[(m // 4,)](order, k, K, self.tile, n, BLOCK=m, ROWS=4, num_warps=4)
        self.program(board, order, k, self.tile)
        rows = 16 if L <= 16 else 32 if L <= 32 else 64 if L <= 64 else 128
        triton_moves.carry[(-(-n // COLUMNS), -(-L // rows))](
            order, k, K, board.scores, board.moved, n, L,
            BLOCK=m, ROWS=rows, COLUMNS=COLUMNS, PRECISION=PRECISION, num_warps=WARPS,
        )  # fmt: skip

    def _replay(self) -> None:
        for window in self.order.split(len(self.window)):
            self.window.copy_(window)
            if self.graph is None:
                self.graph = self._captured()
            self.graph.replay()

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Moves on all blocks of the window, as one graph."""
        K = self.board.K.whole
        assert K is not None
        # Once outside the graph, so that the programs are compiled before they are captured.
        self._launch(0, K)
        graph, beside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            graph.capture_begin()
            for k in range(len(self.window) // self.board.block):
                self._launch(k, K)
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(beside)
        return graph
