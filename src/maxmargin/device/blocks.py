"""Block moves in PyTorch, and the solver that repeats them for kernel models.

A block has m samples; `tile` holds the m x m kernel values among them. Coefficients b, their bounds lo and
hi, and residuals e are label-major: one row per column of scores (label or class), one number per sample. A
change d of the coefficients of sample i changes the residuals of the block by -R d' tile[i] and those of all
samples by -R d' K[i], with the prior R of the labels (the identity without a prior).

The functions `sweep`, `walk`, `project` and `descend` run on every device; `triton_moves` has the same moves
as programs for a GPU, and the tests compare the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.device.backend import SHARE, free_bytes, kernel_demand
from maxmargin.device.numerics import DeviceKernel, SparseRows, dtype_of

# Replaces 1 / 0 for a sample with K_ii = 0: the step takes its coefficients to a bound.
HUGE = 1e30
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


def inverse(curvature: torch.Tensor) -> torch.Tensor:
    """1 / curvature, or HUGE where the curvature is 0."""
    return torch.where(curvature > 0, 1 / curvature, HUGE)


def padded_width(n_columns: int) -> int:
    """Columns of a Triton program: a power of two, at least 16."""
    return max(16, 1 << (n_columns - 1).bit_length())


def sweep(
    tile: torch.Tensor, e: torch.Tensor, b: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor,
    r: torch.Tensor, rounds: int,
) -> torch.Tensor:  # fmt: skip
    """Move the coefficients of independent labels one after the other, `rounds` times over the block.

    `r` is the diagonal of R. Changes b and e; returns r times the change of b.
    """
    before = b.clone()
    step = inverse(r[:, None] * tile.diagonal())
    for _ in range(rounds):
        for i in range(len(tile)):
            new = torch.clamp(b[:, i] + e[:, i] * step[:, i], lo[:, i], hi[:, i])
            e -= (r * (new - b[:, i]))[:, None] * tile[i]
            b[:, i] = new
    return r[:, None] * (b - before)


def walk(
    tile: torch.Tensor, e: torch.Tensor, b: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor,
    R: torch.Tensor, rounds: int,
) -> torch.Tensor:  # fmt: skip
    """Move the coefficients of coupled labels, sample by sample and label by label.

    Changes b and e; returns R times the change of b.
    """
    moved = torch.zeros_like(b)
    for _ in range(rounds):
        for i in range(len(tile)):
            step = inverse(R.diagonal() * tile[i, i])
            image = torch.zeros_like(b[:, i])
            for label in range(len(R)):
                residual = e[label, i] - tile[i, i] * image[label]
                new = torch.clamp(b[label, i] + residual * step[label], lo[label, i], hi[label, i])
                image += (new - b[label, i]) * R[label]
                b[label, i] = new
            e -= image[:, None] * tile[i]
            moved[:, i] += image
    return moved


def project(
    tile: torch.Tensor, f: torch.Tensor, alpha: torch.Tensor, Delta: torch.Tensor, costs: torch.Tensor,
    y: torch.Tensor, boxed: bool, rounds: int, relaxation: float,
) -> torch.Tensor:  # fmt: skip
    """Move the block alpha_i of each sample to its optimum given the others, `relaxation` times the step.

    With the loss of Crammer and Singer that is a projection on the simplex; `boxed` selects the loss of
    Weston and Watkins. `f` holds the scores (c x m), `Delta` the cost of every answer, `y` the true classes.
    Changes alpha and f; returns C_i times the change of alpha, which is subtracted from the scores.
    """
    before = alpha.clone()
    for _ in range(rounds):
        for i in range(len(tile)):
            if costs[i] == 0:
                continue
            step = inverse(costs[i] * tile[i, i]) * relaxation
            slope = (f[:, i] + Delta[:, i]) * step
            new = box(alpha[:, i], slope, int(y[i])) if boxed else simplex(alpha[:, i] + slope)
            f -= (costs[i] * (new - alpha[:, i]))[:, None] * tile[i]
            alpha[:, i] = new
    return costs * (alpha - before)


def box(at: torch.Tensor, slope: torch.Tensor, truth: int) -> torch.Tensor:
    """The optimal block of Weston and Watkins: wrong classes in [0, 1], the true class balances them.

    A class moves from `at` to max(0, min(1, at + slope - slope_truth - D)), where D is the sum of all
    changes. D is the root of a rising piecewise linear function.
    """
    wrong = torch.arange(len(at), device=at.device) != truth
    aim = at + slope - slope[truth]
    low, high = -float(at[wrong].sum()), float((1 - at[wrong]).sum())
    root = min(max(0.0, low), high)
    for _ in range(ROOT_STEPS):
        new = torch.where(wrong, torch.clamp(aim - root, 0, 1), at)
        excess = root - float((new - at).sum())
        if excess == 0:
            break
        low, high = (root, high) if excess < 0 else (low, root)
        # The root of the current linear piece, or the midpoint if that lies outside the bracket.
        straight = root - excess / (1 + int((wrong & (new > 0) & (new < 1)).sum()))
        root = straight if low < straight < high else (low + high) / 2
    new = torch.where(wrong, torch.clamp(aim - root, 0, 1), at)
    new[truth] = at[truth] - (new - at).sum()
    return new


def simplex(v: torch.Tensor) -> torch.Tensor:
    """The projection of v on the simplex: max(v - tau, 0) with sum 1."""
    v = v - v.max()
    tau = torch.clamp((v.sum() - 1) / len(v), min=-1)
    for _ in range(len(v)):
        kept = v > tau
        higher = (v[kept].sum() - 1) / kept.sum()
        if higher <= tau:
            break
        tau = higher
    return torch.clamp(v - tau, min=0)


class Lists(NamedTuple):
    """The samples that each label visits: ``members[starts[l] : starts[l] + counts[l]]``, in that order."""

    members: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor


class Entries(NamedTuple):
    """Coefficients, their bounds, targets of the scores, and flags of the active entries, all L x n."""

    B: torch.Tensor
    lo: torch.Tensor
    hi: torch.Tensor
    T: torch.Tensor
    flags: torch.Tensor


class Bias(NamedTuple):
    """The constant feature, its weight per label, and rho / s^2 of each: how far the bias follows a step."""

    feature: float
    at: torch.Tensor
    pull: torch.Tensor


def descend(
    lists: Lists, X: SparseRows, w: torch.Tensor, entries: Entries, q: torch.Tensor, r: torch.Tensor,
    bias: Bias, bounds: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """One pass of dual coordinate ascent over the list of every label, for linear models of sparse rows.

    An entry at a bound whose residual points out of the box by more than `bounds` (below and above, 2 x L)
    becomes inactive. Changes w, B, flags and the weight of the bias; returns the gaps measured on the way,
    and the largest violations below and above.
    """
    seen = torch.zeros(len(w), dtype=torch.float64, device=w.device)
    violations = torch.zeros_like(bounds)
    for label, (start, count) in enumerate(zip(lists.starts.tolist(), lists.counts.tolist(), strict=True)):
        for i in lists.members[start : start + count].tolist():
            row = slice(X.starts[i], X.starts[i + 1])
            columns, values = X.columns[row].long(), X.values[row]
            b, lo, hi = entries.B[label, i], entries.lo[label, i], entries.hi[label, i]
            # The residual, and the share of this entry in the gap.
            e = entries.T[label, i] - w[label, columns] @ values - bias.feature * bias.at[label]
            seen[label] += (hi - b) * e.clamp(min=0) + (b - lo) * (-e).clamp(min=0)
            if (b == lo and -e > bounds[0, label]) or (b == hi and e > bounds[1, label]):
                entries.flags[label, i] = False
                continue
            if b > lo:
                violations[0, label] = torch.maximum(violations[0, label], -e)
            if b < hi:
                violations[1, label] = torch.maximum(violations[1, label], e)
            # The coordinate step, and the weights and the bias that follow it.
            own = (q[i] + bias.pull[label] * bias.feature**2) * r[label]
            change = torch.clamp(b + e * inverse(own), lo, hi) - b
            entries.B[label, i] += change
            w[label, columns] += change * r[label] * values
            bias.at[label] += bias.pull[label] * bias.feature * change * r[label]
    return seen, violations


def n_parts(n_blocks: int) -> int:
    """Parts of an epoch; samples are padded so that all parts have the same number of blocks."""
    return PARTS if n_blocks > 4 * PARTS else 1


class BlockMoves(ABC):
    """Epochs of moves on blocks in random order; each change is added to the scores of all samples.

    On a GPU in single precision the moves are Triton programs, and with the whole kernel matrix in memory an
    epoch is captured once as a CUDA graph. Elsewhere they are plain PyTorch.

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
        self.fast = device.type == "cuda"
        self.order = torch.zeros(n, dtype=torch.int32, device=device)
        self.window = torch.zeros(n // n_parts(self.n_blocks), dtype=torch.int32, device=device)
        self.tile = torch.empty(block, block, dtype=dtype, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    @abstractmethod
    def move(self, samples: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
        """Move the coefficients of `samples` in plain PyTorch; returns what to subtract from the scores."""

    @abstractmethod
    def launch(self, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
        """Launch the same move on block k of `order` as a Triton program, which writes `moved`."""

    def epoch(self, rng: np.random.RandomState, clock: Clock) -> None:
        """Move every sample once; stops early when the time limit has expired."""
        order = torch.from_numpy(rng.permutation(self.scores.shape[1]).astype(np.int32))
        self.order.copy_(order)
        if self.fast and self.K.whole is not None and self.scores.dtype == torch.float32:
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
        if not self.fast:
            self.scores.addmm_(self.move(samples, tile), strip, alpha=-1)
            return
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
