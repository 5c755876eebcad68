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
        ``plain(board, rows, tile)`` moves the samples of a slice, given their own kernel values, and returns
        the change.
    program : callable
        ``program(board, order, k, strip, ahead)`` launches the same move as a Triton program.
    """

    def __init__(self, board: Board, plain: Callable[..., Any], program: Callable[..., Any]) -> None:
        self.board, self.plain, self.program = board, plain, program
        scores = board.scores
        self.fast = scores.device.type == "cuda"
        self.order = torch.zeros(board.n_blocks, dtype=torch.int32, device=scores.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def epoch(self, rng: np.random.RandomState, clock: Clock) -> None:
        """Move every block once, in random order; early when time has expired."""
        order = rng.permutation(self.board.n_blocks)
        if not self.fast:
            self._plainly(order, clock)
        elif self.board.K.whole is None or self.board.scores.dtype != torch.float32:
            self._by_strips(order, clock)
        else:
            self.order.copy_(torch.from_numpy(order.astype(np.int32)))
            self._replay()

    def _plainly(self, order: np.ndarray, clock: Clock) -> None:
        board, m = self.board, self.board.block
        for count, k in enumerate(order):
            if count % LOOK == LOOK - 1 and clock.expired():
                return
            rows = slice(int(k) * m, int(k + 1) * m)
            strip = board.K.rows(rows)
            board.scores -= self.plain(board, rows, strip[:, rows].clone()) @ strip

    def _by_strips(self, order: np.ndarray, clock: Clock) -> None:
        board, m = self.board, self.board.block
        self.order.copy_(torch.from_numpy(order.astype(np.int32)))
        for count, k in enumerate(order):
            if count % LOOK == LOOK - 1 and clock.expired():
                return
            strip = board.K.rows(slice(int(k) * m, int(k + 1) * m))
            if board.scores.dtype == torch.float32:
                self._launch(count, strip, 0)
            else:
                self.program(board, self.order, count, strip, 0)
                board.scores.addmm_(board.moved, strip, alpha=-1)

    def _launch(self, k: int, strip: torch.Tensor, ahead: int) -> None:
        """A move, and the product in single precision that carries it on."""
        from maxmargin.device import triton_moves

        board = self.board
        L, n = board.scores.shape
        self.program(board, self.order, k, strip, ahead)
        rows = 16 if L <= 16 else 32 if L <= 32 else 64 if L <= 64 else 128
        columns = 64
        triton_moves.carry[(-(-n // columns), -(-L // rows))](
            self.order, k, strip, ahead, board.scores, board.moved, n, L,
            BLOCK=board.block, DEPTH=32, ROWS=rows, COLUMNS=columns, num_warps=4,
        )  # fmt: skip

    def _replay(self) -> None:
        whole = self.board.K.whole
        assert whole is not None
        if self.graph is None:
            # Once outside the graph, so that the programs are compiled before they are captured.
            self._launch(0, whole, 1)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                for k in range(self.board.n_blocks):
                    self._launch(k, whole, 1)
        self.graph.replay()
