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

`LinearMultiClass` keeps W and `KernelMultiClass` the scores of the training samples, each in
its own file. Both offer the same operations to the solvers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_loops as loops

LOSSES = {"crammer_singer": loops.CRAMMER_SINGER, "weston_watkins": loops.WESTON_WATKINS}
STEPS = {
    "fw": loops.FRANK_WOLFE,
    "pairwise": loops.PAIRWISE,
    "pl": loops.LINEARIZED,
    "eg": loops.EXPONENTIATED,
}


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
    over `n_steps` block steps. `sums` adds up `n_sums` snapshots of W taken during the last
    exact sweeps, the latest ones counting most.
    """

    alpha: np.ndarray
    weights: np.ndarray
    entropic: bool
    moves: np.ndarray
    n_steps: int = 0
    sums: np.ndarray | None = None
    n_sums: float = 0.0
    certified: np.ndarray | None = None

    def fade(self) -> None:
        """Halve the weight of the snapshots so far."""
        if self.sums is not None:
            self.sums *= self.sums.dtype.type(0.5)
            self.n_sums *= 0.5

    def forget(self) -> None:
        """Drop the snapshots of W, after a move that leaves them behind."""
        self.sums, self.n_sums = None, 0.0

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


class MultiClassProblem(ABC):
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
        # Blocks visited between two looks at the clock.
        self.stride = 65536
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

    @abstractmethod
    def squared_norm(self, state: State) -> float:
        """|W|^2."""

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
