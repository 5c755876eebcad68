"""Linear machines with one class per sample whose rows lie in several parts.

Problem, dual and gap as in `structured.multiclass_problem`; rounds and tasks as in `working_sets`. What
travels of a dual block is its mass on wrong classes, most of which is zero: b_ik = alpha_ik, k != y_i.

A solve over the rows S, with W' the weights that come from all others, maximises

    D(alpha_S) = const + sum_S C_i alpha_i.Delta_i - 1/2 |W' + W(alpha_S)|^2,

which is the ordinary problem but for where its weights start: every block step sees W, whoever made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.dask.rounds import Tasks
from maxmargin.dask.working_sets import (
    NEAR,
    PIECE,
    Call,
    Look,
    Move,
    Task,
    Weights,
    at_rest,
    choose,
    stacked,
)
from maxmargin.structured.exact import ExactBlocks
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    Labels,
    LinearIterate,
    LinearMultiClass,
    Setup,
)


@dataclass(frozen=True)
class ClassPart:
    """Some rows of the problem, with what the loss asks of them."""

    X: Any
    labels: Labels
    bias: float


class Beside(LinearMultiClass):
    """The problem over some rows, next to weights W' and a value of the dual that others make."""

    def __init__(self, X: Any, labels: Labels, bias: float, others: np.ndarray, value: float) -> None:
        super().__init__(Rows.of(X), labels, bias)
        self.others = super().zeros(np.float64)
        self.others[:, : self.c] = others
        self.value = value

    def zeros(self, dtype: Any) -> np.ndarray:
        """The weights that all blocks on the truth leave."""
        W = super().zeros(dtype)
        W[:] = self.others
        return W

    def iterate(self, setup: Setup, entropic: bool = False, softness: float = 0.0) -> LinearIterate:
        return BesideIterate(self, setup, entropic, softness)

    def evaluate(
        self,
        alpha: np.ndarray,
        logs: bool = False,
        mean: np.ndarray | None = None,
        image: np.ndarray | None = None,
    ) -> Evaluation:
        W = self.weights(alpha, logs)
        losses, linear, gaps = self.losses(W, alpha, logs)
        own = W - self.others
        primal = 0.5 * float(np.vdot(own, own)) - 0.5 * float(np.vdot(self.others, self.others)) + losses
        dual = linear - 0.5 * float(np.vdot(W, W))
        return Evaluation(Certificate(self.value + primal, self.value + dual), gaps, W, W)


class BesideIterate(LinearIterate):
    """A dual point of some rows, with the weights of all."""

    problem: Beside

    def dual(self) -> float:
        problem = self.problem
        return problem.value + problem.linear_term(self.blocks()) - 0.5 * self.squared_norm()


def look(
    part: ClassPart, classes: slice, weights: Weights, wrong: sp.csr_array, quota: int, seed: int
) -> Look:
    """Measure the rows of a part under the weights; choose up to `quota` rows to send."""
    labels = part.labels
    n = len(labels.y)
    loss, value = np.zeros(1), np.zeros(1)
    share, near = np.zeros((2, n))
    for first in range(0, n, PIECE):
        rows = slice(first, min(first + PIECE, n))
        b, y, costs = wrong[rows].toarray(), labels.y[rows], labels.costs[rows]
        truth = np.arange(len(y)), y
        F, Delta = weights.scores(part.X[rows], part.bias), labels.Delta[y]
        H = Delta + F - F[truth][:, None]
        H[truth] = 0.0
        worst = H.max(axis=1) if labels.loss == "crammer_singer" else np.maximum(H, 0.0).sum(axis=1)
        loss += costs @ worst
        value += costs @ np.einsum("ik,ik->i", b, Delta)
        share[rows] = costs * (worst - np.einsum("ik,ik->i", b, H))
        near[rows] = costs * np.maximum(NEAR - _lead(H, truth, labels.loss), 0.0)
    chosen = choose(share, near, quota, np.random.default_rng(seed))
    return Look(loss, value, chosen)


def called(part: ClassPart, classes: slice, wrong: sp.csr_array, seen: Look) -> Call:
    """The rows that a look has chosen."""
    ids, labels = seen.ids, part.labels
    some = Labels(labels.y[ids], labels.costs[ids], labels.Delta, labels.loss)
    return Call(ids, part.X[ids], some, wrong[ids].toarray())


def everything(part: ClassPart, classes: slice, wrong: sp.csr_array) -> Call:
    """All rows of a part."""
    return Call(np.arange(part.X.shape[0]), part.X, part.labels, wrong.toarray())


def _lead(H: np.ndarray, truth: tuple[np.ndarray, np.ndarray], loss: str) -> np.ndarray:
    """By how much each sample's largest margin leads the next, or its closest margin is off zero."""
    if H.shape[1] < 2:
        return np.full(len(H), np.inf)
    if loss == "crammer_singer":
        best = np.partition(H, -2, axis=1)
        return best[:, -1] - best[:, -2]
    distance = np.abs(H)
    distance[truth] = np.inf
    return distance.min(axis=1)


def solve(task: Task, weights: Weights, *calls: Call) -> tuple[Move, list[np.ndarray]]:
    """Maximise the dual over the rows sent, all other blocks held fixed; also says which rows."""
    ids = [call.ids for call in calls]
    wrong = np.vstack([call.alpha for call in calls])
    if not wrong.size:
        return at_rest(calls, weights), ids
    labels = _joined([call.costs for call in calls])
    X = stacked([call.X for call in calls])
    before = blocks_of(wrong, labels.y)
    Z = weights.Z
    own = LinearMultiClass(Rows.of(X), labels, task.bias).weights(before, False)[:, : len(labels.Delta)]
    value = task.dual - float(labels.costs @ np.einsum("ik,ik->i", wrong, labels.Delta[labels.y]))
    value += 0.5 * float(np.vdot(Z, Z))
    problem = Beside(X, labels, task.bias, Z - own, value)
    setup = Setup(task.tol, np.random.RandomState(task.seed), before)
    solver = ExactBlocks(problem, setup, averaging=False)
    run(solver, Stopping(task.tol, task.epochs))
    # The weights that belong to the blocks, whether or not they are the best.
    solution = solver.current()[1]
    dW = solution.weights - Z
    after = solution.blocks.copy()
    after[np.arange(len(after)), labels.y] = 0.0
    ends = np.cumsum([len(some) for some in ids])[:-1]
    return Move(dW, dW[-1], np.split(after, ends)), ids


def blocks_of(wrong: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Dual blocks from their masses on wrong classes."""
    alpha = wrong.copy()
    alpha[np.arange(len(y)), y] = 1.0 - wrong.sum(axis=1)
    return alpha


def _joined(labels: list[Labels]) -> Labels:
    y = np.concatenate([one.y for one in labels])
    return Labels(y, np.concatenate([one.costs for one in labels]), labels[0].Delta, labels[0].loss)


def accumulated(part: ClassPart, classes: slice, wrong: sp.csr_array) -> np.ndarray:
    """W of the blocks of a part."""
    c = len(part.labels.Delta)
    if not len(part.labels.y):
        return np.zeros((part.X.shape[1] + 1, c))
    problem = LinearMultiClass(Rows.of(part.X), part.labels, part.bias)
    return problem.weights(blocks_of(wrong.toarray(), part.labels.y), False)[:, :c]


TASKS = Tasks(everything, look, called, solve, accumulated)
