"""Multi-class machines in the dual: Crammer-Singer with any cost matrix, and Weston-Watkins.

Letters: n samples x_i with class y_i of c classes and cost C_i = C * sample weight; W_k the
weights of class k; Delta(y, k) the cost of answering k when the truth is y;
H_i(k) = Delta(y_i, k) + W_k.x_i - W_{y_i}.x_i the loss-augmented margin; alpha_i a point of
the simplex over classes; q_i = |x_i|^2; kappa_i = C_i q_i the curvature of block i.

    P(W)     = 1/2 |W|^2 + sum_i C_i max_k H_i(k)                                   (2)
    D(alpha) = sum_i C_i sum_k alpha_ik Delta(y_i, k) - 1/2 |W|^2                   (4)
    W_k      = sum_i C_i (1[k = y_i] - alpha_ik) x_i
    P - D    = sum_i g_i,   g_i = C_i [ max_k H_i(k) - alpha_i.H_i ]

The numbers are those of Mohapatra et al. Their problem has lambda = 1/(C sum_i weight_i) and p_i = weight_i /
sum weight; here it is multiplied by C sum_i weight_i. H and kappa, and so temperatures, are the same in both
scales.

Weston-Watkins replaces the maximum by sum_{k != y_i} max(0, H_i(k)) and the simplex by
0 <= alpha_ik <= 1 for k != y_i; with alpha_{i y_i} = 1 - sum of the others all other formulas hold. The
paper on sparse machines uses margin 2 and lambda = 1/(2C), which doubles W.

With a kernel x_i.x_j is K_ij. With the coefficients B = diag(C_i) (E - alpha), E one-hot, the scores of the
training samples are K B, |W|^2 = tr(B'KB), and a block step takes C_i delta_k K_i from the scores of class k.

A *problem* is this mathematics and never changes. An *iterate* is a dual point with its image (W, or the
scores of the training samples with a kernel) in the working precision; it belongs to the solver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate, squared_norm
from maxmargin.core.rows import RowArrays, Rows, readonly
from maxmargin.core.threads import aligned_empty, aligned_zeros, run_threads
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.multiclass_loops import (
    KernelRows,
    Moves,
    ProblemArrays,
    SampleRows,
    Snapshots,
    StepRule,
)

# Numbers that loops on kernel rows take at a time.
KERNEL_LANES = (0,) * 4
# Rows of a kernel that does not fit, fetched at a time.
FETCHED = 64

LOSSES = {"crammer_singer": loops.CRAMMER_SINGER, "weston_watkins": loops.WESTON_WATKINS}
# Zeros of a dense X are skipped in words of this many entries.
ZERO_WORD = (0,) * 8
# Rows whose nonzeros are extracted at a time in a pass over all rows.
CHUNK = 512
# Parts of many rows, for threads to share.
PARTS = 16

# Rows, and which of them to read.
Chunk = tuple[SampleRows, int, int]
Chunks = Callable[[int, int], Iterable[Chunk]]


@dataclass(frozen=True)
class Labels:
    """Classes, costs and cost matrix of the samples, for both kinds of problem."""

    y: np.ndarray
    costs: np.ndarray
    Delta: np.ndarray
    loss: str = "crammer_singer"


@dataclass(frozen=True)
class Setup:
    """The start of a solver: gap to reach, random generator, initial blocks, precision."""

    tol: float
    rng: Any
    blocks: np.ndarray | None = None
    dtype: Any = np.float64


class Evaluation(NamedTuple):
    """The certificate of a dual point, recomputed in float64 over all samples and classes.

    `image` is W or the scores of the dual point; `answer` is the weights or coefficients of the model, to
    which the certificate belongs.
    """

    certificate: Certificate
    gaps: np.ndarray
    image: np.ndarray
    answer: np.ndarray


class LinearSolution(NamedTuple):
    """Weights (n_features + 1, c), the bias last, and the dual blocks (n, c)."""

    weights: np.ndarray
    blocks: np.ndarray


class KernelSolution(NamedTuple):
    """Coefficients B (n, c), by which k(x, X) B are the scores of x, and the dual blocks (n, c)."""

    coefficients: np.ndarray
    blocks: np.ndarray


def plain(alpha: np.ndarray, logs: bool) -> np.ndarray:
    """Blocks themselves, given as they are or as logarithms."""
    return np.exp(alpha) if logs else alpha


class MultiClassProblem(ABC):
    """The mathematics that does not depend on where scores come from."""

    def __init__(self, labels: Labels, norms: np.ndarray) -> None:
        self.labels = labels
        self.n, self.c = len(labels.y), len(labels.Delta)
        self.y = readonly(labels.y.astype(np.int64))
        self.costs = readonly(labels.costs.astype(np.float64))
        self.norms = readonly(norms)
        self.kappa = self.costs * norms
        self.loss = LOSSES[labels.loss]
        self.present = np.flatnonzero(self.costs > 0)

    def first_primal(self) -> float:
        """P(0), an upper bound that costs nothing."""
        Delta = self.labels.Delta
        worst = Delta.max(axis=1) if self.loss == loops.CRAMMER_SINGER else Delta.sum(axis=1)
        return float(np.einsum("i,i", self.costs, worst[self.y]))

    def linear_term(self, alpha: np.ndarray) -> float:
        """sum_i C_i alpha_i . Delta_i."""
        total = 0.0
        for start in range(0, self.n, 4096):
            part = slice(start, start + 4096)
            dots = np.einsum("ik,ik->i", alpha[part], self.labels.Delta[self.y[part]])
            total += float(self.costs[part] @ dots)
        return total

    def normalised(self, alpha: np.ndarray, logs: bool) -> np.ndarray:
        """Blocks in float64, exactly on their simplex."""
        alpha = np.array(plain(alpha, logs), np.float64)
        if self.loss == loops.CRAMMER_SINGER:
            return alpha / alpha.sum(axis=1, keepdims=True)
        truth = np.arange(self.n), self.y
        alpha[truth] = 0.0
        alpha[truth] = 1.0 - alpha.sum(axis=1)
        return alpha

    def steps(self, blocks: np.ndarray) -> np.ndarray:
        """C_i (e_{y_i} - alpha_i), from alpha of the wrong classes alone: 1 - alpha_truth is rounded."""
        here = np.arange(self.n), self.y
        steps = -self.costs[:, None] * blocks
        steps[here] = 0.0
        steps[here] = -steps.sum(axis=1)
        return steps

    def arrays_with(self, Delta: np.ndarray, dtype: np.dtype, lanes: tuple, bias: float) -> ProblemArrays:
        """The problem as compiled loops of the given precision take it."""
        rounding = 16 * float(np.finfo(dtype).eps)
        Delta = readonly(Delta.astype(dtype))
        return ProblemArrays(self.y, self.costs, self.norms, Delta, self.loss, bias, rounding, lanes)

    @abstractmethod
    def iterate(self, setup: Setup, entropic: bool = False, softness: float = 0.0) -> Iterate:
        """A dual point to be moved from: the given blocks, or all mass on the truth, less `softness`."""

    @abstractmethod
    def products(self, samples: np.ndarray) -> np.ndarray:
        """x_i.x_j of some samples, bias included."""


class Iterate(ABC):
    """A dual point and its image: W, or the scores of the training samples with a kernel.

    `alpha` holds logarithms if `entropic`, and otherwise masses in the working precision `dtype`. Samples are
    visited in runs of `run_length` neighbours; the clock is checked every `stride` samples.
    """

    problem: MultiClassProblem
    run_length = 1
    stride = 65536

    def __init__(self, problem: MultiClassProblem, setup: Setup, entropic: bool, softness: float) -> None:
        self.problem = problem
        self.entropic, self.dtype = entropic, np.dtype(setup.dtype)
        n, c, kind = problem.n, problem.c, np.float64 if entropic else self.dtype
        if setup.blocks is None:
            alpha = np.full((n, c), softness / max(c - 1, 1), kind)
            alpha[np.arange(n), problem.y] = 1.0 - softness if c > 1 else 1.0
        elif entropic:
            alpha = (1 - softness) * setup.blocks + softness / c
        else:
            alpha = setup.blocks.astype(kind)
        self.alpha = np.log(alpha) if entropic else alpha

    @property
    def moved(self) -> bool:
        """Whether any block has left the truth."""
        y = self.problem.y
        return self.entropic or bool((self.alpha[np.arange(len(y)), y] != 1).any())

    def blocks(self) -> np.ndarray:
        """The dual blocks themselves, on the simplex to rounding in the working precision."""
        return plain(self.alpha, self.entropic)

    def dual(self) -> float:
        """D of (4), from the stored image."""
        if not self.moved:
            return 0.0
        return self.problem.linear_term(self.blocks()) - 0.5 * self.squared_norm()

    @abstractmethod
    def squared_norm(self) -> float:
        """|W|^2."""

    @abstractmethod
    def block_sweep(self, rule: StepRule, order: np.ndarray, gaps: np.ndarray) -> float:
        """One step of `rule` on the blocks in `order`; returns the increase of the dual."""

    @abstractmethod
    def margins(self) -> np.ndarray:
        """H_i(k) up to a constant per sample, in float64."""

    @abstractmethod
    def image(self, direction: np.ndarray) -> tuple[np.ndarray, float]:
        """The decrease of the stored image when all blocks move by `direction`, and its squared norm."""

    @abstractmethod
    def advance(self, alpha: np.ndarray, image: np.ndarray) -> None:
        """Set all blocks, or their logarithms, and subtract the image of the move from the stored one."""

    @abstractmethod
    def evaluate(self) -> Evaluation:
        """Evaluate the blocks; changes nothing."""

    @abstractmethod
    def resync(self, evaluation: Evaluation) -> None:
        """Replace the stored image, which drifts by rounding, by the recomputed one."""

    @abstractmethod
    def solution(self, evaluation: Evaluation) -> LinearSolution | KernelSolution:
        """The model of an evaluation of these blocks."""


class LinearMultiClass(MultiClassProblem):
    """The problem on the rows of X with an optional constant feature of value `bias`.

    A dense X of which more than the share `zeros` are zeros is read by its nonzeros.
    """

    def __init__(
        self, rows: Rows, labels: Labels, bias: float = 0.0, *, n_threads: int = 1, zeros: float = 0.5
    ) -> None:
        super().__init__(labels, rows.squared_norms() + bias * bias)
        self.rows, self.n_threads = rows, n_threads
        self.bias = float(bias)
        # Few classes would waste most of a longer word.
        self.lanes = (0,) * (4 if self.c <= 4 else 8)
        self.everything = SampleRows(readonly(np.arange(self.n)), rows.flat)
        self.density = density(rows)
        self.zero_rich = rows.dense and self.density < 1 - zeros
        self._arrays: dict[np.dtype, ProblemArrays] = {}

    def arrays(self, dtype: np.dtype) -> ProblemArrays:
        """The problem as loops over a W of the given precision take it."""
        if dtype not in self._arrays:
            Delta = np.full((self.c, -(-self.c // len(self.lanes)) * len(self.lanes)), loops.PAD)
            Delta[:, : self.c] = self.labels.Delta
            self._arrays[dtype] = self.arrays_with(Delta, dtype, self.lanes, self.bias)
        return self._arrays[dtype]

    def zeros(self, dtype: Any) -> np.ndarray:
        """W = 0, its classes padded to whole words."""
        return aligned_zeros(self.rows.shape[1] + 1, self.c, dtype, multiple=len(self.lanes))

    def iterate(self, setup: Setup, entropic: bool = False, softness: float = 0.0) -> LinearIterate:
        return LinearIterate(self, setup, entropic, softness)

    def weights(self, alpha: np.ndarray, logs: bool) -> np.ndarray:
        """W(alpha) in float64."""
        return self._read(alpha, logs, rebuild=True)[0]

    def losses(
        self, W: np.ndarray, alpha: np.ndarray, logs: bool, chunks: Chunks | None = None
    ) -> tuple[float, float, np.ndarray]:
        """sum_i C_i max_k H_i(k) at W, the linear term of D, and the block gaps at W."""
        return self._read(alpha, logs, W, chunks)[1:]

    def evaluate(
        self,
        alpha: np.ndarray,
        logs: bool = False,
        mean: np.ndarray | None = None,
        image: np.ndarray | None = None,
    ) -> Evaluation:
        """P of (2) and D of (4) for the given blocks; W is recomputed unless given as `image`.

        P is that of W or of `mean`, another W: P - D bounds the distance to the optimum for any W.
        """
        if mean is not None and image is None and self.n_threads == 1:
            point = mean
            W, losses, linear, gaps = self._read(alpha, logs, point, rebuild=True)
        else:
            W = self.weights(alpha, logs) if image is None else image
            point = W if mean is None else mean
            losses, linear, gaps = self.losses(point, alpha, logs)
        primal = 0.5 * squared_norm(point) + losses
        return Evaluation(Certificate(primal, linear - 0.5 * squared_norm(W)), gaps, W, point)

    def products(self, samples: np.ndarray) -> np.ndarray:
        X = self.rows.matrix[samples].astype(np.float64)
        K = X @ X.T
        return np.asarray(K if self.rows.dense else K.toarray()) + self.bias**2

    def _read(
        self,
        alpha: np.ndarray,
        logs: bool,
        point: np.ndarray | None = None,
        chunks: Chunks | None = None,
        rebuild: bool = False,
    ) -> tuple[np.ndarray, float, float, np.ndarray]:
        """Read all rows once: recompute W(alpha) if `rebuild`; losses, linear term and gaps at a `point`.

        One thread sums W, and the losses are summed in fixed parts, so both are independent of the number of
        threads.
        """
        n_parts = 1 if self.n < PARTS * CHUNK else PARTS
        edges = np.linspace(0, self.n, n_parts + 1).astype(np.int64)
        W = self.zeros(np.float64) if rebuild else np.empty((0, 0))
        gaps = np.empty(self.n)
        read = self._chunks if chunks is None else chunks

        def part(t: int) -> np.ndarray:
            totals = np.zeros(2)
            for source, first, last in read(edges[t], edges[t + 1]):
                if rebuild:
                    loops.rebuild(first, last, source, self.arrays(W.dtype), logs, alpha, W)
                if point is not None:
                    arrays = self.arrays(point.dtype)
                    loops.score_pass(first, last, source, arrays, logs, point, alpha, gaps, totals)
            return totals

        losses, linear = np.sum(run_threads(part, range(n_parts), 1 if rebuild else self.n_threads), axis=0)
        return W, float(losses), float(linear), gaps

    def _chunks(self, first: int, last: int) -> Iterable[Chunk]:
        """The rows of X, or their nonzeros if X has many zeros."""
        return nonzero_chunks(self.rows, first, last) if self.zero_rich else [(self.everything, first, last)]


class LinearIterate(Iterate):
    """A dual point with its W in the working precision."""

    problem: LinearMultiClass

    def __init__(self, problem: LinearMultiClass, setup: Setup, entropic: bool, softness: float) -> None:
        super().__init__(problem, setup, entropic, softness)
        rows = problem.rows
        if self.moved:
            self.weights = problem.weights(self.alpha, entropic).astype(self.dtype)
        else:
            self.weights = problem.zeros(self.dtype)
        # Long dense rows come from memory faster when a few neighbours are read in a row.
        self.run_length = 8 if rows.dense and rows.shape[1] >= 64 else 1
        self.nonzeros = Nonzeros(rows, problem.density, self.dtype) if problem.zero_rich else None

    def squared_norm(self) -> float:
        return squared_norm(self.weights)

    def exact_sweep(
        self, order: np.ndarray, gaps: np.ndarray, idle: np.ndarray, snapshots: Snapshots | None = None
    ) -> float:
        if snapshots is None:
            snapshots = Snapshots(0, np.empty((0, 0), self.dtype), np.empty(0))
        arrays, whole = self.problem.arrays(self.dtype), self.problem.everything
        gain = 0.0
        for source, part in [(whole, order)] if self.nonzeros is None else self.nonzeros.split(order, whole):
            gain += loops.exact_sweep(
                readonly(part), source, arrays, snapshots, self.weights, self.alpha, gaps, idle
            )
        return gain

    def block_sweep(
        self, rule: StepRule, order: np.ndarray, gaps: np.ndarray, moves: Moves | None = None
    ) -> float:
        if moves is None:
            moves = Moves(0, np.empty((0, 0), self.dtype))
        arrays, whole = self.problem.arrays(self.dtype), self.problem.everything
        return loops.block_sweep(readonly(order), whole, arrays, rule, moves, self.weights, self.alpha, gaps)

    def margins(self) -> np.ndarray:
        problem = self.problem
        W = self.weights[:, : problem.c].astype(np.float64)
        return (
            np.asarray(problem.rows.matrix @ W[:-1] + problem.bias * W[-1]) + problem.labels.Delta[problem.y]
        )

    def image(self, direction: np.ndarray) -> tuple[np.ndarray, float]:
        problem = self.problem
        costed = problem.costs[:, None] * direction
        G = problem.zeros(np.float64)
        G[:-1, : problem.c] = problem.rows.matrix.T @ costed
        G[-1, : problem.c] = problem.bias * costed.sum(axis=0)
        return G, squared_norm(G)

    def advance(self, alpha: np.ndarray, image: np.ndarray) -> None:
        self.alpha = alpha
        self.weights -= image.astype(self.dtype)

    def evaluate(self, mean: np.ndarray | None = None, image: np.ndarray | None = None) -> Evaluation:
        return self.problem.evaluate(self.alpha, self.entropic, mean, image)

    def estimate(self, W: np.ndarray) -> tuple[float, np.ndarray] | None:
        """P at a W of the working precision, and the block gaps there; None if that is not cheap."""
        if self.nonzeros is None or not self.nonzeros.complete:
            return None
        source = self.nonzeros.source
        losses, _, gaps = self.problem.losses(
            W, self.alpha, self.entropic, lambda first, last: [(source, first, last)]
        )
        return 0.5 * squared_norm(W) + losses, gaps

    def resync(self, evaluation: Evaluation) -> None:
        np.copyto(self.weights, evaluation.image, casting="same_kind")

    def solution(self, evaluation: Evaluation) -> LinearSolution:
        return LinearSolution(evaluation.answer[:, : self.problem.c], self.blocks())


class Nonzeros:
    """The nonzeros of rows of a dense X in the working precision, so that sweeps skip the zeros.

    Rows are added on their first visit, until the memory is `share` of that of X. If not all nonzeros fit,
    only the rows of passes over at most half of the samples are added; when the memory is full and far fewer
    rows are visited, it is filled again with those. A pass with rows of both kinds alternates between them in
    `segments` parts.
    """

    def __init__(
        self, rows: Rows, density: float, dtype: np.dtype, *, share: float = 1 / 6, segments: int = 16
    ) -> None:
        self.rows, self.dtype, self.segments = rows, dtype, segments
        n, d = rows.shape
        self.index = index_type(d)
        self.capacity = int(share * rows.data.nbytes) // (dtype.itemsize + self.index.itemsize)
        self.holds_all = 1.05 * density * n * d < self.capacity
        self.count, self.full = 0, False

    def _allocate(self) -> None:
        n = self.rows.shape[0]
        self.values = aligned_empty(self.capacity + 1, self.dtype)
        self.columns = aligned_empty(self.capacity + 1, self.index)
        self.samples = np.empty(n, np.int64)
        self.starts = np.zeros(n + 1, np.int64)
        self.place = np.full(n, -1, np.int64)

    @property
    def complete(self) -> bool:
        """Whether the nonzeros of all rows are stored."""
        return self.count == self.rows.shape[0]

    @property
    def source(self) -> SampleRows:
        """The stored rows, as those of a CSR matrix."""
        return sample_rows(self.samples, self.values, self.columns, self.starts)

    def add(self, samples: np.ndarray) -> None:
        """Store as many of the samples as fit."""
        before = self.count
        self.count += loops.copy_nonzeros(
            readonly(samples), self.rows.flat, ZERO_WORD, before, self.values, self.columns, self.starts
        )
        added = samples[: self.count - before]
        self.full = len(added) < len(samples)
        self.samples[before : self.count] = added
        self.place[added] = np.arange(before, self.count)

    def split(self, order: np.ndarray, whole: SampleRows) -> list[tuple[SampleRows, np.ndarray]]:
        """Split `order` into stored rows and rows to read from X."""
        if not (self.holds_all or 2 * len(order) <= self.rows.shape[0]):
            return [(whole, order)]
        if self.count == 0:
            self._allocate()
        if self.complete:
            return [(self.source, self.place[order])]
        missing = order[self.place[order] < 0]
        if self.full and len(missing) and 2 * len(order) < self.count:
            self.place[:], self.count, self.full = -1, 0, False
            missing = order
        if len(missing) and not self.full:
            self.add(np.sort(missing))
        source = self.source
        parts = []
        # Alternate, so that no part of the samples is always visited last.
        for segment in np.array_split(order, self.segments if (self.place[order] < 0).any() else 1):
            place = self.place[segment]
            parts.append((source, place[place >= 0]))
            parts.append((whole, segment[place < 0]))
        return [part for part in parts if len(part[1])]


def nonzero_chunks(rows: Rows, first: int, last: int) -> Iterator[Chunk]:
    """The nonzeros of rows first..last of a dense X as they are, `CHUNK` rows at a time."""
    capacity = CHUNK * rows.shape[1] + 1
    values, columns = np.empty(capacity, rows.data.dtype), np.empty(capacity, index_type(rows.shape[1]))
    for start in range(first, last, CHUNK):
        samples = np.arange(start, min(start + CHUNK, last))
        starts = np.zeros(len(samples) + 1, np.int64)
        loops.copy_nonzeros(readonly(samples), rows.flat, ZERO_WORD, 0, values, columns, starts)
        yield sample_rows(samples, values, columns, starts), 0, len(samples)


def sample_rows(
    samples: np.ndarray, values: np.ndarray, columns: np.ndarray, starts: np.ndarray
) -> SampleRows:
    """Rows given by their nonzeros."""
    rows = RowArrays(readonly(values), readonly(columns), readonly(starts), np.int64(0))
    return SampleRows(readonly(samples), rows)


def index_type(d: int) -> np.dtype:
    """The shortest type of a column's index."""
    return np.dtype(np.uint16 if d <= 2**16 else np.uint32)


def density(rows: Rows) -> float:
    """Share of nonzeros among the entries of X; of a dense X, in about 256 of its rows."""
    n, d = rows.shape
    if not rows.dense:
        return rows.data.size / max(n * d, 1)
    probe = rows.matrix[:: max(1, n // 256)]
    return np.count_nonzero(probe) / max(probe.size, 1)


class KernelMultiClass(MultiClassProblem):
    """The problem in the feature space of a kernel."""

    def __init__(self, K: KernelMatrix, labels: Labels) -> None:
        super().__init__(labels, K.diagonal)
        self.K = K
        self.arrays = self.arrays_with(labels.Delta, np.dtype(np.float64), KERNEL_LANES, 0.0)

    def iterate(self, setup: Setup, entropic: bool = False, softness: float = 0.0) -> KernelIterate:
        return KernelIterate(self, setup, entropic, softness)

    def coefficients(self, alpha: np.ndarray, logs: bool = False) -> np.ndarray:
        """B = C_i (e_{y_i} - alpha_i): the scores of a sample x are k(x, X) B."""
        return self.steps(self.normalised(alpha, logs))

    def evaluate(self, alpha: np.ndarray, logs: bool = False) -> Evaluation:
        """P of (2) and D of (4) for the given blocks, with scores recomputed in float64."""
        B = self.coefficients(alpha, logs)
        scores = self.K.times(B)
        half = 0.5 * float(np.vdot(B, scores))
        blocks = self.normalised(alpha, logs)
        H = scores + self.labels.Delta[self.y]
        H -= H[np.arange(self.n), self.y][:, None]
        losses = H.max(axis=1) if self.loss == loops.CRAMMER_SINGER else np.maximum(H, 0).sum(axis=1)
        gaps = self.costs * np.maximum(losses - np.einsum("ik,ik->i", blocks, H), 0)
        certificate = Certificate(half + float(self.costs @ losses), self.linear_term(blocks) - half)
        return Evaluation(certificate, gaps, np.ascontiguousarray(scores.T), B)

    def precise(self) -> KernelMultiClass:
        """The same problem on kernel values in float64."""
        K = self.K
        return KernelMultiClass(KernelMatrix(K.kernel, K.X, K.cache_size, np.float64), self.labels)

    def within(self, samples: np.ndarray, buffer: np.ndarray) -> KernelMultiClass:
        """The problem of some samples, with the others fixed; its kernel values are stored in `buffer`."""
        labels = replace(self.labels, y=self.y[samples], costs=self.costs[samples])
        return KernelMultiClass(self.K.submatrix(samples, buffer), labels)

    def products(self, samples: np.ndarray) -> np.ndarray:
        return self.K.square(samples).astype(np.float64)


class KernelIterate(Iterate):
    """A dual point with the scores (c, n) of the training samples, in double precision."""

    problem: KernelMultiClass

    def __init__(self, problem: KernelMultiClass, setup: Setup, entropic: bool, softness: float) -> None:
        super().__init__(problem, replace(setup, dtype=np.float64), entropic, softness)
        self.scores = np.zeros((problem.c, problem.n))
        if self.moved:
            B = problem.coefficients(self.alpha, entropic)
            self.scores = np.ascontiguousarray(problem.K.times(B).T)

    def squared_norm(self) -> float:
        return float(np.vdot(self.problem.coefficients(self.alpha, self.entropic), self.scores.T))

    def block_sweep(self, rule: StepRule, order: np.ndarray, gaps: np.ndarray) -> float:
        return sum(
            loops.block_kernel_sweep(part, rows, self.problem.arrays, rule, self.scores, self.alpha, gaps)
            for part, rows in self._parts(order)
        )

    def margins(self) -> np.ndarray:
        return self.scores.T + self.problem.labels.Delta[self.problem.y]

    def image(self, direction: np.ndarray) -> tuple[np.ndarray, float]:
        costed = self.problem.costs[:, None] * direction
        moved = self.problem.K.times(costed)
        return np.ascontiguousarray(moved.T), float(np.vdot(costed, moved))

    def advance(self, alpha: np.ndarray, image: np.ndarray) -> None:
        self.alpha = alpha
        self.scores -= image

    def evaluate(self) -> Evaluation:
        return self.problem.evaluate(self.alpha, self.entropic)

    def resync(self, evaluation: Evaluation) -> None:
        self.scores = evaluation.image.copy()

    def solution(self, evaluation: Evaluation) -> KernelSolution:
        return KernelSolution(evaluation.answer, self.blocks())

    def _parts(self, order: np.ndarray) -> Iterator[tuple[np.ndarray, KernelRows]]:
        """Samples to visit, with their kernel rows."""
        K = self.problem.K
        if K.whole is not None:
            yield readonly(order), KernelRows(readonly(order), readonly(K.whole))
            return
        size = min(FETCHED, K.cache.capacity)
        for k in range(0, len(order), size):
            part = order[k : k + size]
            yield readonly(part), KernelRows(readonly(K.cache.fetch(part)), readonly(K.cache.store))


def restricted(arrays: ProblemArrays, part: np.ndarray) -> ProblemArrays:
    """The problem of some samples alone."""
    y, costs, norms = (readonly(values[part]) for values in (arrays.y, arrays.costs, arrays.norms))
    return arrays._replace(y=y, costs=costs, norms=norms)
