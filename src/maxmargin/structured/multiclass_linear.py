"""Multi-class machines on the rows of X: the problem of `multiclass_problem` that keeps W."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.extract import Extract, Piece
from maxmargin.structured.lane_loops import PAD
from maxmargin.structured.multiclass_problem import (
    STEPS,
    Labels,
    MultiClassProblem,
    State,
    StepRule,
    alpha_moved,
)

# Snapshots of W during a sweep: how many at most, how many visits apart at least when rows are
# full (sparser rows make a snapshot dearer), and below how many there is no point in a mean.
SNAPSHOTS, APART, FEW = 32, 10.0, 6

Pieces = Callable[[int, int], Iterable[Piece]]


class LinearMultiClass(MultiClassProblem):
    """The problem on the rows of X with an optional constant feature of value `bias`.

    `precision` is the working precision of W and alpha: "single", "double", or "auto" for
    single when `single_is_enough` at the given `tol`. Certificates are in float64 always.
    """

    def __init__(
        self,
        rows: Rows,
        labels: Labels,
        bias: float = 0.0,
        *,
        precision: str = "double",
        tol: float = 0.0,
        n_threads: int = 1,
    ) -> None:
        norms = rows.squared_norms() + bias * bias
        if precision == "auto":
            single = single_is_enough(labels.costs * norms, norms, tol)
        else:
            single = precision == "single"
        super().__init__(labels, norms, np.float32 if single else np.float64)
        self.rows, self.n_threads = rows, n_threads
        self.bias = float(bias)
        # Few classes would waste most of a longer word.
        self.lanes = (0,) * (4 if self.c <= 4 else 8)
        self.width = -(-self.c // len(self.lanes)) * len(self.lanes)
        Delta = np.full((self.c, self.width), PAD)
        Delta[:, : self.c] = labels.Delta
        self._Delta = {kind: readonly(Delta.astype(kind)) for kind in (np.dtype(np.float64), self.dtype)}
        self._everything = readonly(np.arange(self.n))
        # Long dense rows come from memory faster when a few neighbours are read in a row.
        self.run_length = 8 if rows.dense and rows.shape[1] >= 64 else 1
        self.averages = True
        self._extract = Extract(rows, self.dtype) if rows.dense else None
        # Features of X per entry of a row.
        self._sparsity = rows.shape[0] * rows.shape[1] / max(rows.data.size, 1)

    def start(self, entropic: bool, spread: float = 0.0, alpha: np.ndarray | None = None) -> State:
        """State at the given blocks, or at all mass on the truth."""
        if alpha is None:
            alpha = self.first_blocks(entropic, spread)
        else:
            alpha = self.given_blocks(alpha, entropic, spread)
        state = State(alpha, self._zeros(self.dtype), entropic, np.empty((0, 0), self.dtype))
        if alpha_moved(state, self.y):
            state.weights = self._rebuilt(state).astype(self.dtype)
        return state

    def exact_sweep(
        self, state: State, order: np.ndarray, gaps: np.ndarray, idle: np.ndarray, snapshots: bool = False
    ) -> float:
        """Solve the blocks in `order` exactly; returns the increase of the dual.

        With `snapshots`, W is added to a sum a few times on the way, for the mean that `survey`
        and `certify` consider; not when it has so many more features than a row that this
        would cost as much as the visits.
        """
        every = max(len(order) // SNAPSHOTS, int(APART * self._sparsity))
        if not snapshots or FEW * every > len(order):
            every = 0
            state.forget()
        elif state.sums is None:
            state.sums = self._zeros(self.dtype)
        gain = 0.0
        for sample, flat, part in self._parts(order):
            gain += loops.exact_sweep(
                self.loss,
                readonly(part),
                sample,
                flat,
                self.y,
                self.costs,
                self.norms,
                self._Delta[self.dtype],
                self.bias,
                self.rounding,
                self.lanes,
                every,
                state.weights,
                state.alpha,
                gaps,
                idle,
                state.moves if state.sums is None else state.sums,
            )
            state.n_sums += len(part) // every if every else 0
        return gain

    def block_sweep(self, state: State, rule: StepRule, order: np.ndarray, gaps: np.ndarray) -> float:
        """One step of `rule` on the blocks in `order`; returns the increase of the dual."""
        gain = loops.block_sweep(
            STEPS[rule.name],
            readonly(order),
            self._everything,
            self.rows.flat,
            self.y,
            self.costs,
            self.norms,
            self._Delta[self.dtype],
            self.bias,
            readonly(rule.temperatures),
            rule.safeguard,
            rule.truncation,
            rule.floor,
            self.lanes,
            state.weights,
            state.alpha,
            state.moves,
            state.n_steps,
            gaps,
        )
        state.n_steps += len(order)
        return gain

    def survey(self, state: State, gaps: np.ndarray) -> float | None:
        """P of the mean of W in working precision, with all block gaps; None if it is not cheap."""
        if self._extract is None or not self._extract.complete or not state.n_sums:
            return None
        assert state.sums is not None
        W = state.sums / self.dtype.type(state.n_sums)
        everything = (readonly(self._extract.samples), self._extract.flat)
        losses, _ = self._scored(W, state, gaps, lambda first, last: [(*everything, first, last)])
        return 0.5 * float(np.vdot(W, W)) + losses

    def certify(self, state: State, gaps: np.ndarray, mean: bool = False) -> Certificate:
        """P and D of the stored blocks: W anew in float64, all samples and classes.

        P is that of W, or with `mean` that of the mean of W during the last sweeps, which is the
        better primal point while W still moves to and fro; either as a model will store it.
        """
        point = None
        if mean and state.n_sums:
            assert state.sums is not None
            point = self._stored(state.sums.astype(np.float64) / state.n_sums)
        if point is not None and self.n_threads == 1:
            W, losses, linear = self._read(state, self._pieces, point, gaps, rebuild=True)
        else:
            W = self._rebuilt(state)
            point = self._stored(W) if point is None else point
            losses, linear = self._scored(point, state, gaps, self._pieces)
        state.certified = point
        state.weights = W.astype(self.dtype)
        primal = 0.5 * float(np.vdot(state.certified, state.certified)) + losses
        return Certificate(primal, linear - 0.5 * float(np.vdot(W, W)))

    def solution(self, state: State, average: np.ndarray | None = None) -> np.ndarray:
        """Weights of the model (n_features + 1, c): averaged, certified or as they are."""
        W = state.weights if state.certified is None else state.certified
        return (W if average is None else average)[:, : self.c]

    def squared_norm(self, state: State) -> float:
        return float(np.vdot(state.weights, state.weights))

    def averaged_primal(self, state: State) -> tuple[float, np.ndarray]:
        """P of the averaged weights W - V/S_K, and those weights."""
        K = state.n_steps
        W = self._stored(state.weights.astype(np.float64) - state.moves / (0.5 * K * (K + 1)))
        losses, _ = self._scored(W, state, np.empty(self.n), self._pieces)
        return 0.5 * float(np.vdot(W, W)) + losses, W

    def start_averaging(self, state: State) -> None:
        """Collect the moves of W from here on."""
        state.moves = self._zeros(self.dtype)
        state.n_steps = 0

    def margins(self, state: State) -> np.ndarray:
        """H_i(k) up to a constant per sample, for all samples (n x c)."""
        W = state.weights[:, : self.c].astype(np.float64)
        scores = self.rows.matrix @ W[:-1] + self.bias * W[-1]
        return np.asarray(scores) + self.labels.Delta[self.y]

    def margins_of(self, state: State, samples: np.ndarray) -> np.ndarray:
        """H of some samples, up to a constant each."""
        W = state.weights[:, : self.c]
        scores = self.rows.matrix[samples] @ W[:-1] + self.bias * W[-1]
        return np.asarray(scores) + self.labels.Delta[self.y[samples]]

    def products(self, samples: np.ndarray) -> np.ndarray:
        """x_i.x_j of some samples, bias included."""
        X = self.rows.matrix[samples].astype(np.float64)
        K = X @ X.T
        return np.asarray(K if self.rows.dense else K.toarray()) + self.bias**2

    def move(self, state: State, samples: np.ndarray, blocks: np.ndarray) -> None:
        """Set the blocks of some samples and take the move from W."""
        costed = self.costs[samples, None] * (blocks - state.alpha[samples])
        state.alpha[samples] = blocks
        state.weights[:-1, : self.c] -= self.rows.matrix[samples].T @ costed
        state.weights[-1, : self.c] -= self.bias * costed.sum(axis=0)

    def image(self, direction: np.ndarray) -> tuple[np.ndarray, float]:
        """What moving alpha by `direction` takes from W, and its squared norm."""
        costed = self.costs[:, None] * direction
        G = self._zeros(np.dtype(np.float64))
        G[:-1, : self.c] = self.rows.matrix.T @ costed
        G[-1, : self.c] = self.bias * costed.sum(axis=0)
        return G, float(np.vdot(G, G))

    def _zeros(self, dtype: np.dtype) -> np.ndarray:
        return aligned_zeros((self.rows.shape[1] + 1, self.width), dtype)

    def _stored(self, W: np.ndarray) -> np.ndarray:
        """W rounded to the precision of X, in which a model keeps it; of two classes, their difference."""
        if self.rows.data.dtype == np.float64:
            return W
        if self.c == 2:
            lead = 0.5 * (W[:, 1] - W[:, 0]).astype(np.float32).astype(np.float64)
            W = np.zeros_like(W)
            W[:, 0], W[:, 1] = -lead, lead
        return W.astype(np.float32).astype(np.float64)

    def _rebuilt(self, state: State) -> np.ndarray:
        """W(alpha) in float64."""
        return self._read(state, self._pieces, rebuild=True)[0]

    def _scored(self, W: np.ndarray, state: State, gaps: np.ndarray, pieces: Pieces) -> tuple[float, float]:
        """Losses at W and the linear term of the dual; `gaps` become the block gaps at W."""
        return self._read(state, pieces, W, gaps)[1:]

    def _read(
        self,
        state: State,
        pieces: Pieces,
        point: np.ndarray | None = None,
        gaps: np.ndarray | None = None,
        rebuild: bool = False,
    ) -> tuple[np.ndarray, float, float]:
        """Read all rows once: W(alpha) anew if asked for; losses at a point, if given, and linear term.

        W is summed by one thread, so that it is the same whatever their number.
        """
        n_threads = 1 if rebuild else self.n_threads
        edges = np.linspace(0, self.n, n_threads + 1).astype(np.int64)
        W = self._zeros(np.dtype(np.float64)) if rebuild else np.empty((0, 0))

        def part(t: int) -> np.ndarray:
            totals = np.zeros(2)
            for sample, flat, first, last in pieces(edges[t], edges[t + 1]):
                shared = (self.loss, state.entropic, first, last, sample, flat, self.y, self.costs)
                if rebuild:
                    loops.rebuild(*shared, self.bias, self.lanes, state.alpha, W)
                if point is not None:
                    Delta = self._Delta[point.dtype]
                    loops.score_pass(*shared, Delta, self.bias, self.lanes, point, state.alpha, gaps, totals)
            return totals

        losses, linear = np.sum(run_threads(part, range(n_threads), n_threads), axis=0)
        return W, float(losses), float(linear)

    def _pieces(self, first: int, last: int) -> Iterable[Piece]:
        """Rows of X to be read in float64: themselves, or their nonzeros where zeros are many."""
        if self._extract is not None and self._extract.useful:
            return self._extract.pieces(first, last)
        return [(self._everything, self.rows.flat, first, last)]

    def _parts(self, order: np.ndarray) -> list[tuple[np.ndarray, Any, np.ndarray]]:
        """Cut `order` into rows whose nonzeros are at hand and rows read from X itself."""
        whole = (self._everything, self.rows.flat)
        return [(*whole, order)] if self._extract is None else self._extract.split(order, whole)


def single_is_enough(kappa: np.ndarray, norms: np.ndarray, tol: float) -> bool:
    """Whether float32 can move the blocks finely enough for the gap asked for.

    A block moves by H / kappa, which float32 resolves next to 1 while kappa is moderate.
    """
    return tol >= 1e-4 and kappa.max(initial=0.0) <= 1e3 and norms.max(initial=0.0) <= 1e12


def aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros that start on a cache line."""
    size = shape[0] * shape[1]
    pad = 64 // dtype.itemsize
    buffer = np.zeros(size + pad, dtype)
    skip = (-buffer.ctypes.data % 64) // dtype.itemsize
    return buffer[skip : skip + size].reshape(shape)
