"""Multi-class machines in the dual: Crammer-Singer with any cost matrix, and Weston-Watkins.

Letters: n samples x_i with class y_i of c classes and cost C_i = C * sample weight; W_k the
weights of class k; Delta(y, k) the cost of answering k when the truth is y;
H_i(k) = Delta(y_i, k) + W_k.x_i - W_{y_i}.x_i the loss-augmented margin; alpha_i a point of
the simplex over classes; q_i = |x_i|^2; kappa_i = C_i q_i the curvature of block i.

    P(W)     = 1/2 |W|^2 + sum_i C_i max_k H_i(k)
    D(alpha) = sum_i C_i sum_k alpha_ik Delta(y_i, k) - 1/2 |W|^2
    W_k      = sum_i C_i (1[k = y_i] - alpha_ik) x_i
    P - D    = sum_i g_i,   g_i = C_i [ max_k H_i(k) - alpha_i.H_i ]

This is the problem of Mohapatra et al. with lambda = 1/(C sum_i weight_i) and
p_i = weight_i / sum weight, multiplied by C sum_i weight_i; temperatures keep their meaning,
because H and kappa are the same in both scales.

Weston-Watkins replaces the maximum by sum_{k != y_i} max(0, H_i(k)) and the simplex by
0 <= alpha_ik <= 1 for k != y_i; with alpha_{i y_i} = 1 - sum of the others every other
formula stays as it is. The sparse-machines paper writes it with margin 2 and
lambda = 1/(2C), which doubles W.

`LinearMultiClass` keeps W; `KernelMultiClass`, in its own file, keeps the scores of the
training samples. Both offer the same operations to the solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin._jit import multiclass as loops
from maxmargin._rows import Rows, readonly
from maxmargin._threads import run_threads
from maxmargin.solvers._loop import Certificate

LOSSES = {"crammer_singer": loops.CRAMMER_SINGER, "weston_watkins": loops.WESTON_WATKINS}
STEPS = {
    "fw": loops.FRANK_WOLFE,
    "pairwise": loops.PAIRWISE,
    "pl": loops.LINEARIZED,
    "eg": loops.EXPONENTIATED,
}
# Keep the nonzeros of the busiest rows of a dense X when this share of X would hold them.
EXTRACT_SHARE = 1 / 8
SEGMENTS = 16


@dataclass(frozen=True)
class Labels:
    """Classes, costs and cost matrix of the samples: what both kinds of problem share."""

    y: np.ndarray
    costs: np.ndarray
    Delta: np.ndarray
    loss: str = "crammer_singer"

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.y), len(self.Delta)


@dataclass(frozen=True)
class StepRule:
    """A block step by name and its numbers; temperatures are one per sample."""

    name: str
    temperatures: np.ndarray
    safeguard: bool = True
    truncation: float = 2.2e-16
    floor: float = 1e-15


@dataclass
class State:
    """Dual blocks and what follows from them.

    `alpha` holds logarithms when `entropic`. `weights` is W for a linear problem and the
    class-major scores of the training samples for a kernel; `certified` is W as the last
    certificate computed it in float64. `moves` collects the weighted moves of W for averaging
    over `n_steps` block steps.
    """

    alpha: np.ndarray
    weights: np.ndarray
    entropic: bool
    moves: np.ndarray
    n_steps: int = 0
    certified: np.ndarray | None = None

    def blocks(self) -> np.ndarray:
        """The dual blocks themselves, on the simplex to rounding in float64."""
        return np.exp(self.alpha) if self.entropic else np.asarray(self.alpha, np.float64)


def alpha_moved(state: State, y: np.ndarray) -> bool:
    """Whether any block has left the truth."""
    return state.entropic or bool((state.alpha[np.arange(len(y)), y] != 1).any())


def normalised(state: State, loss: int) -> np.ndarray:
    """The dual blocks in float64, exactly on their simplex."""
    alpha = state.blocks()
    return alpha / alpha.sum(axis=1, keepdims=True) if loss == loops.CRAMMER_SINGER else alpha.copy()


class MultiClassProblem:
    """Operations that do not depend on how the scores are kept."""

    def __init__(self, labels: Labels, norms: np.ndarray, dtype: Any) -> None:
        self.labels = labels
        self.n, self.c = labels.shape
        self.dtype = np.dtype(dtype)
        self.y = readonly(labels.y.astype(np.int64))
        self.costs = readonly(labels.costs.astype(np.float64))
        self.norms = readonly(norms)
        self.kappa = self.costs * norms
        self.loss = LOSSES[labels.loss]
        self.present = np.flatnonzero(self.costs > 0)
        self.run_length = 1
        self.rounding = 16 * float(np.finfo(self.dtype).eps)

    def first_blocks(self, entropic: bool, spread: float) -> np.ndarray:
        """All mass on the truth, less `spread` shared by the other classes."""
        n, c = self.n, self.c
        alpha = np.full((n, c), spread / max(c - 1, 1), np.float64 if entropic else self.dtype)
        alpha[np.arange(n), self.y] = 1.0 - spread if c > 1 else 1.0
        return np.log(alpha) if entropic else alpha

    def given_blocks(self, alpha: np.ndarray, entropic: bool, spread: float) -> np.ndarray:
        """Blocks to start from, moved inside the simplex when logarithms are needed."""
        return np.log((1 - spread) * alpha + spread / self.c) if entropic else alpha.astype(self.dtype)

    def first_primal(self) -> float:
        """P(0), an upper bound that costs nothing."""
        Delta = self.labels.Delta
        worst = Delta.max(axis=1) if self.loss == loops.CRAMMER_SINGER else Delta.sum(axis=1)
        return float(self.costs @ worst[self.y])

    def dual(self, state: State) -> float:
        """D of the stored blocks, from the weights as they are kept."""
        if not alpha_moved(state, self.y):
            return 0.0
        return self.linear_term(state.blocks()) - 0.5 * self.squared_norm(state)

    def squared_norm(self, state: State) -> float:
        """|W|^2."""
        raise NotImplementedError

    def interior(self, alpha: np.ndarray) -> np.ndarray:
        """Samples whose block is not at a vertex."""
        inside = (alpha > 0) & (alpha < 1)
        inside[np.arange(self.n), self.y] &= self.loss == loops.CRAMMER_SINGER
        return inside.any(axis=1) & (self.costs > 0)

    def face(self, alpha: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Free coordinates (mask), pivots, lower and upper bounds of the blocks of some samples.

        On a simplex the upper bounds follow from the lower ones.
        """
        here = np.arange(len(rows))
        free = (alpha > 0) & (alpha < 1)
        lower, upper = np.zeros(alpha.shape), np.full(alpha.shape, np.inf)
        if self.loss == loops.CRAMMER_SINGER:
            pivots = np.argmax(alpha, axis=1)
        else:
            pivots = self.y[rows]
            upper[:] = 1.0
            lower[here, pivots], upper[here, pivots] = -np.inf, np.inf
        free[here, pivots] = False
        return free, pivots, lower, upper

    def rebalanced(self, blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Blocks that sum to one exactly: the largest coordinate, or the truth's, takes the rounding."""
        here = np.arange(len(blocks))
        crammer_singer = self.loss == loops.CRAMMER_SINGER
        takes = np.argmax(blocks, axis=1) if crammer_singer else self.y[rows]
        blocks[here, takes] = 0.0
        blocks[here, takes] = 1.0 - blocks.sum(axis=1)
        return blocks

    def linear_term(self, alpha: np.ndarray) -> float:
        """sum_i C_i alpha_i . Delta_i."""
        total = 0.0
        for start in range(0, self.n, 4096):
            part = slice(start, start + 4096)
            dots = np.einsum("ik,ik->i", alpha[part], self.labels.Delta[self.y[part]])
            total += float(self.costs[part] @ dots)
        return total


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
        self.width = padded_width(self.c)
        Delta = np.zeros((self.c, self.width))
        Delta[:, : self.c] = labels.Delta
        self._Delta = {kind: readonly(Delta.astype(kind)) for kind in (np.dtype(np.float64), self.dtype)}
        self._everything = readonly(np.arange(self.n))
        # Long dense rows come from memory faster when a few neighbours are read in a row.
        self.run_length = 8 if rows.dense and rows.shape[1] >= 64 else 1
        self._extract: Extract | None = None
        self._density: float | None = None

    def start(self, entropic: bool, spread: float = 0.0, alpha: np.ndarray | None = None) -> State:
        """State at the given blocks, or at all mass on the truth."""
        if alpha is None:
            alpha = self.first_blocks(entropic, spread)
        else:
            alpha = self.given_blocks(alpha, entropic, spread)
        state = State(alpha, self._zeros(self.dtype), entropic, np.empty((0, 0), self.dtype))
        if alpha_moved(state, self.y):
            self._rebuild(state, state.weights)
        return state

    def exact_sweep(self, state: State, order: np.ndarray, gaps: np.ndarray, idle: np.ndarray) -> float:
        """Solve the blocks in `order` exactly; returns the increase of the dual."""
        gain = 0.0
        for sample, flat, part in self._parts(order):
            gain += loops.exact_sweep(
                self.loss,
                readonly(part),
                sample,
                *flat,
                self.y,
                self.costs,
                self.norms,
                self._Delta[self.dtype],
                self.bias,
                self.rounding,
                state.weights,
                state.alpha,
                gaps,
                idle,
            )
        return gain

    def block_sweep(self, state: State, rule: StepRule, order: np.ndarray, gaps: np.ndarray) -> float:
        """One step of `rule` on the blocks in `order`; returns the increase of the dual."""
        gain = loops.block_sweep(
            STEPS[rule.name],
            readonly(order),
            self._everything,
            *self.rows.flat,
            self.y,
            self.costs,
            self.norms,
            self._Delta[self.dtype],
            self.bias,
            readonly(rule.temperatures),
            rule.safeguard,
            rule.truncation,
            rule.floor,
            state.weights,
            state.alpha,
            state.moves,
            state.n_steps,
            gaps,
        )
        state.n_steps += len(order)
        return gain

    def certify(self, state: State, gaps: np.ndarray) -> Certificate:
        """P and D of the stored blocks: W anew in float64, all samples and classes."""
        W = self._zeros(np.dtype(np.float64))
        self._rebuild(state, W)
        losses, linear = self._score(W, state, gaps)
        state.certified = W
        state.weights = W.astype(self.dtype)
        half = 0.5 * float(np.vdot(W, W))
        return Certificate(half + losses, linear - half)

    def solution(self, state: State, average: np.ndarray | None = None) -> np.ndarray:
        """Weights of the model (n_features + 1, c): averaged, certified or as they are."""
        W = state.weights if state.certified is None else state.certified
        return (W if average is None else average)[:, : self.c]

    def squared_norm(self, state: State) -> float:
        return float(np.vdot(state.weights, state.weights))

    def averaged_primal(self, state: State) -> tuple[float, np.ndarray]:
        """P of the averaged weights W - V/S_K, and those weights."""
        K = state.n_steps
        W = state.weights.astype(np.float64) - state.moves / (0.5 * K * (K + 1))
        losses, _ = self._score(W, state, np.empty(self.n))
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

    def _rebuild(self, state: State, W: np.ndarray) -> None:
        loops.rebuild(
            self.loss,
            state.entropic,
            *self.rows.flat,
            self.y,
            self.costs,
            self.bias,
            state.alpha,
            W,
        )

    def _score(self, W: np.ndarray, state: State, gaps: np.ndarray) -> tuple[float, float]:
        edges = np.linspace(0, self.n, self.n_threads + 1).astype(np.int64)

        def part(t: int) -> np.ndarray:
            totals = np.zeros(2)
            loops.score_pass(
                self.loss,
                state.entropic,
                edges[t],
                edges[t + 1],
                *self.rows.flat,
                self.y,
                self.costs,
                self._Delta[W.dtype],
                self.bias,
                W,
                state.alpha,
                gaps,
                totals,
            )
            return totals

        losses, linear = np.sum(run_threads(part, range(self.n_threads), self.n_threads), axis=0)
        return float(losses), float(linear)

    def _parts(self, order: np.ndarray) -> list[tuple[np.ndarray, Any, np.ndarray]]:
        """Cut `order` into rows whose nonzeros are at hand and rows read from X itself."""
        whole = (self._everything, self.rows.flat, order)
        if not self.rows.dense or 2 * len(order) > self.n:
            return [whole]
        if self._density is None:
            probe = self.rows.matrix[:: max(1, self.n // 256)]
            self._density = np.count_nonzero(probe) / max(probe.size, 1)
        if self._density >= 0.5:
            return [whole]
        if self._extract is None:
            self._extract = Extract(self.rows)
        return self._extract.split(order, whole)


class Extract:
    """The nonzeros of the busiest rows of a dense X, so that sweeps over them skip the zeros.

    Rows are added when they are first asked for, until `EXTRACT_SHARE` of the bytes of X are
    used; when it is full and far fewer rows are asked for, it starts afresh with those.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        data, indices, _, _ = rows.flat
        room = int(EXTRACT_SHARE * data.nbytes) // (data.itemsize + indices.itemsize)
        self.values, self.columns = np.empty(room + 1, data.dtype), np.empty(room + 1, indices.dtype)
        self.samples = np.empty(rows.shape[0], np.int64)
        self.starts = np.zeros(rows.shape[0] + 1, np.int64)
        self.place = np.full(rows.shape[0], -1, np.int64)
        self.count, self.full = 0, False

    def add(self, samples: np.ndarray) -> None:
        """Extract as many of the samples as still fit."""
        data, indices, indptr, _ = self.rows.flat
        before = self.count
        self.count += loops.extract(
            readonly(samples), data, indices, indptr, before, self.values, self.columns, self.starts
        )
        added = samples[: self.count - before]
        self.full = len(added) < len(samples)
        self.samples[before : self.count] = added
        self.place[added] = np.arange(before, self.count)

    def split(self, order: np.ndarray, whole: Any) -> list[tuple[np.ndarray, Any, np.ndarray]]:
        """The part of `order` that is at hand, and the part to be read from X."""
        missing = order[self.place[order] < 0]
        if self.full and len(missing) and 2 * len(order) < self.count:
            self.place[:], self.count, self.full = -1, 0, False
            missing = order
        if len(missing) and not self.full:
            self.add(np.sort(missing))
        flat = (readonly(self.values), readonly(self.columns), readonly(self.starts), np.int64(0))
        parts = []
        # Alternating, so that no part of the samples is always the last to be visited.
        for segment in np.array_split(order, SEGMENTS if (self.place[order] < 0).any() else 1):
            place = self.place[segment]
            parts.append((readonly(self.samples), flat, place[place >= 0]))
            parts.append((whole[0], whole[1], segment[place < 0]))
        return [part for part in parts if len(part[2])]


def single_is_enough(kappa: np.ndarray, norms: np.ndarray, tol: float) -> bool:
    """Whether float32 can move the blocks finely enough for the gap asked for.

    A block moves by H / kappa, which float32 resolves next to 1 while kappa is moderate.
    """
    return tol >= 1e-4 and kappa.max(initial=0.0) <= 1e3 and norms.max(initial=0.0) <= 1e12


def padded_width(c: int) -> int:
    """Classes per row of W, rounded up so that every row starts on a vector boundary."""
    return c if c <= 2 else -(-c // 8) * 8 if c > 4 else 4


def aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros that start on a cache line."""
    size = shape[0] * shape[1]
    pad = 64 // dtype.itemsize
    buffer = np.zeros(size + pad, dtype)
    skip = (-buffer.ctypes.data % 64) // dtype.itemsize
    return buffer[skip : skip + size].reshape(shape)


def step_rule(
    problem: MultiClassProblem,
    solver: str,
    temperature: float | str,
    *,
    safeguard: bool = True,
    truncation: float = 2.2e-16,
    floor: float = 1e-15,
) -> StepRule:
    """The step of a solver with its temperatures.

    "auto" is 0.1 kappa_i for partial linearization, which has a line search, and the smallest
    safe value for exponentiated gradient: kappa_i / 4 for blocks, max_i q_i sum_i C_i / 4 for
    the batch form.
    """
    name = {"bcfw": "fw", "bcpl": "pl", "oeg": "eg"}.get(solver, solver)
    scale = np.full(problem.n, batch_curvature(problem)) if solver == "eg" else problem.kappa
    if temperature == "auto":
        taus = (0.25 if name == "eg" else 0.1) * scale
    else:
        taus = np.full(problem.n, float(temperature))
    # A block without curvature belongs at a vertex; any small temperature takes it there.
    taus = np.where((problem.kappa == 0) | (taus == 0), 1e-6, taus)
    if name == "pl" and temperature == 0:
        name = "fw"
    return StepRule(name, taus, safeguard, truncation, floor)


def batch_curvature(problem: MultiClassProblem) -> float:
    """max_i q_i sum_i C_i, what kappa_i is to one block."""
    return float(problem.norms.max(initial=0.0) * problem.costs.sum())


def is_safe(problem: MultiClassProblem, solver: str, rule: StepRule) -> bool:
    """Whether every step of the rule is sure not to lower the dual."""
    if rule.name != "eg":
        return True
    curvature = problem.kappa if solver == "oeg" else batch_curvature(problem)
    return bool((rule.temperatures >= 0.25 * (1 - 1e-12) * curvature).all())
