"""Epochs of block moves on a GPU, and the solver that repeats them for kernel models.

A block has m samples; `tile` holds the m x m kernel values among them. Coefficients b, their bounds lo and
hi, and residuals e are label-major: one row per column of scores (label or class), one number per sample. A
change d of the coefficients of sample i changes the residuals of the block by -R d' tile[i] and those of all
samples by -R d' K[i], with the prior R of the labels (the identity without a prior). `triton_moves` has the
moves as Triton programs; `tests/naive/device.py` has their slow twins, with which the tests run the solvers
on a CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.device.backend import SHARE, free_bytes, kernel_demand
from maxmargin.device.numerics import DeviceKernel, dtype_of

# Limit for the root of a piecewise linear function; a few steps are usually enough.
ROOT_STEPS = 40
# Blocks between two checks of the time limit.
CLOCK_EVERY = 64
# Tiling of the product that updates all scores, and the rounding of its factors. The error is proportional to
# the change, and residuals are recomputed before a certificate counts.
COLUMNS, WARPS, PRECISION = 64, 4, "tf32"
# Replays of one CUDA graph per epoch; with fewer blocks the epoch is one graph.
PARTS = 4
# Epochs between two recomputations of the running scores.
REFRESH = 8
# Epochs without a tenth less gap after which work continues in float64.
PATIENCE = 40


def padded_width(n_columns: int) -> int:
    """Columns of a Triton program: a power of two, at least 16."""
    return max(16, 1 << (n_columns - 1).bit_length())


def n_parts(n_blocks: int) -> int:
    """Parts of an epoch; samples are padded so that all parts have the same number of blocks."""
    return PARTS if n_blocks > 4 * PARTS else 1


class BlockMoves(ABC):
    """Epochs of moves on blocks in random order; each change is added to the scores of all samples.

    In single precision, with the whole kernel matrix in memory, an epoch is captured once as a CUDA graph.

    Parameters
    ----------
    K : DeviceKernel
    scores : tensor of shape (n_columns, n_samples)
        Residuals or scores, from which changes are subtracted.
    block : int
        Samples of a block; divides n_samples.
    """

    def __init__(self, K: DeviceKernel, scores: torch.Tensor, block: int) -> None:
        self.K, self.scores, self.block = K, scores, block
        L, n = scores.shape
        device, dtype = scores.device, scores.dtype
        self.n_blocks = n // block
        self.moved = torch.zeros(L, block, dtype=dtype, device=device)
        self.order = torch.zeros(n, dtype=torch.int32, device=device)
        self.window = torch.zeros(n // n_parts(self.n_blocks), dtype=torch.int32, device=device)
        self.tile = torch.empty(block, block, dtype=dtype, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    @abstractmethod
    def launch(self, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
        """Launch the move of block k of `order`; it writes what the scores lose to `moved`."""

    def epoch(self, rng: np.random.RandomState, clock: Clock) -> None:
        """Move every sample once; stops early when the time limit has expired."""
        order = torch.from_numpy(rng.permutation(self.scores.shape[1]).astype(np.int32))
        self.order.copy_(order)
        captures = self.scores.device.type == "cuda" and self.scores.dtype == torch.float32
        if captures and self.K.whole is not None:
            self._replay()
            return
        for k in range(self.n_blocks):
            if k % CLOCK_EVERY == CLOCK_EVERY - 1 and clock.expired():
                return
            self._move_block(k)

    def _move_block(self, k: int) -> None:
        """Move block k, with the rows of K that it needs."""
        samples = self.order[k * self.block : (k + 1) * self.block].long()
        strip = self.K.rows(samples)
        tile = strip[:, samples].contiguous()
        self.launch(self.order, k, tile)
        self.scores.addmm_(self.moved, strip, alpha=-1)

    def _launch_block(self, k: int, K: torch.Tensor) -> None:
        """Gather the tile of block k of the window, move the block, and update all scores."""
        from maxmargin.device import triton_moves

        order, m = self.window, self.block
        L, n = self.scores.shape
        triton_moves.gather[(m // 4,)](order, k, K, self.tile, n, BLOCK=m, ROWS=4, num_warps=4)
        self.launch(order, k, self.tile)
        rows = 16 if L <= 16 else 32 if L <= 32 else 64 if L <= 64 else 128
        triton_moves.propagate[(-(-n // COLUMNS), -(-L // rows))](
            order, k, K, self.scores, self.moved, n, L,
            BLOCK=m, ROWS=rows, COLUMNS=COLUMNS, PRECISION=PRECISION, num_warps=WARPS,
        )  # fmt: skip

    def _replay(self) -> None:
        for window in self.order.split(len(self.window)):
            self.window.copy_(window)
            if self.graph is None:
                self.graph = self._capture()
            self.graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Moves on all blocks of the window, as one graph."""
        K = self.K.whole
        assert K is not None
        # The first launch compiles the programs, which must not happen during the capture.
        self._launch_block(0, K)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin()
            for k in range(len(self.window) // self.block):
                self._launch_block(k, K)
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return graph


class DeviceSolver(Evaluated, ABC):
    """Block moves in float32 over a kernel matrix, certified in float64 from the stored coefficients.

    Running scores drift, so they are recomputed every REFRESH epochs, and after a certificate above `tol`. If
    the gap has not fallen by a tenth within PATIENCE epochs, work continues in float64.

    Parameters
    ----------
    matrix : KernelMatrix
        The kernel and the rows; kernel values are computed on the device.
    n_columns : int
        Scores of a sample.
    block : int
        Samples moved at a time; samples are padded to a multiple of it.
    rng : RandomState
    device : torch.device
    """

    name = "block steps on a GPU"

    def __init__(
        self,
        matrix: KernelMatrix,
        n_columns: int,
        block: int,
        rng: np.random.RandomState,
        device: torch.device,
    ) -> None:
        self.matrix, self.n_columns, self.block = matrix, n_columns, block
        self.rng, self.device = rng, device
        self.padding = -matrix.n % (block * n_parts(-(-matrix.n // block)))
        self.epochs, self.patience = 0, Patience(PATIENCE)
        self.moves: BlockMoves | None = None

    def load(self, stored: torch.Tensor, itemsize: int) -> None:
        """Continue from stored dual variables, in numbers of `itemsize` bytes."""
        self.itemsize, dtype = itemsize, dtype_of(itemsize)
        n, d = self.matrix.X.shape
        demand = kernel_demand(n, d, self.n_columns, itemsize, self.block)
        self.moves = None  # frees the kernel matrix before the next one is allocated
        whole = self._keeps_whole(demand.wish)
        self.K = DeviceKernel(self.matrix.kernel, self.matrix.X, self.padding, self.device, dtype, whole)
        self.moves = self._make_moves(stored.to(dtype).contiguous())
        self._refresh()

    def _keeps_whole(self, n_bytes: int) -> bool:
        """Whether the kernel matrix fits the free memory."""
        return n_bytes <= SHARE * free_bytes(self.device)

    def epoch(self, clock: Clock) -> Progress:
        # A stored answer was certified above `tol`, although the running scores promised less: they drifted.
        if self._answer is not None:
            self._refresh()
        return super().epoch(clock)

    def _move(self, clock: Clock) -> Progress:
        assert self.moves is not None
        self.moves.epoch(self.rng, clock)
        self.epochs += 1
        if self.epochs % REFRESH == 0:
            self._refresh()
        certificate = self._running()
        if self.itemsize == 4 and self.patience.exhausted(certificate.gap):
            self.load(self._stored(), 8)
        return Progress(certificate, self.matrix.n)

    def _evaluate(self) -> tuple[torch.Tensor, Certificate]:
        """The stored dual variables in float64, and their certificate."""
        stored = self._stored()
        return stored, self._certificate(stored)

    @abstractmethod
    def solution(self) -> Any:
        """The solution that the certificate belongs to."""

    @abstractmethod
    def _make_moves(self, stored: torch.Tensor) -> BlockMoves:
        """The moves, starting from dual variables in the working precision."""

    @abstractmethod
    def _refresh(self) -> None:
        """Recompute the running scores."""

    @abstractmethod
    def _running(self) -> Certificate:
        """Both objectives by the running scores."""

    @abstractmethod
    def _stored(self) -> torch.Tensor:
        """The dual variables in float64, exactly feasible."""

    @abstractmethod
    def _certificate(self, stored: torch.Tensor) -> Certificate:
        """Both objectives of stored dual variables, from kernel values in float64."""
