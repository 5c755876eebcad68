"""Tasks for linear M3L whose rows are in several parts; `rounds` runs them.

Problem, dual and gap are those of `multilabel.problem`. A round has two kinds of tasks for every group of
labels that no prior couples:

1. *scan*, in every part: scores of its rows under the weights Z of the group, the sums that make the
   certificate, and the rows with the largest shares of the gap;
2. *solve*, for each group: the dual over these rows, which the parts send; other dual variables are fixed.

A solve is a problem of the same kind and uses the ordinary solvers. With W the rows sent and Z the weights of
all rows, the scores due to other rows are F' = X_W (Z - X_W'A_W R), and

    D(alpha) = const + <m - Y_W F', alpha_W> - 1/2 <A_W, X_W X_W'A_W R>:

only the margins change. Every round is therefore an exact ascent over a block of feasible dual variables,
without averaging, damping or line search. The number of rounds depends on how many rows may be sent, not on
how many parts there are. Tasks are pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Stopping, run
from maxmargin.core.rows import Rows
from maxmargin.multilabel.estimator import SOLVERS
from maxmargin.multilabel.problem import EntryCosts, LinearM3L

# Rows scored at a time, which bounds the memory for scores.
BATCH = 4096
# Most epochs of a solve.
INNER_EPOCHS = 50
# Rows with gradients below NEAR may have to move when other rows move. SHUFFLE breaks ties at random.
NEAR, SHUFFLE = 0.3, 1e-3


@dataclass(frozen=True)
class Part:
    """Some rows of the problem with their costs."""

    X: Any
    costs: EntryCosts
    bias: float

    def of(self, labels: slice) -> EntryCosts:
        """The costs of some labels."""
        costs = self.costs
        weight = costs.weight if costs.weight.shape[1] == 1 else costs.weight[:, labels]
        return replace(
            costs,
            signs=costs.signs[:, labels],
            weight=weight,
            upper=costs.upper[:, labels],
            margin=costs.margin[:, labels],
        )


class Scan(NamedTuple):
    """Sums of a part per label (losses and <m, alpha>), and the numbers of the rows to send."""

    loss: np.ndarray
    value: np.ndarray
    ids: np.ndarray


class Sent(NamedTuple):
    """Rows that a part sends: their numbers, the rows, their costs and their dual variables."""

    ids: np.ndarray
    X: Any
    costs: Any
    alpha: np.ndarray


class Move(NamedTuple):
    """The result of a solve: the change of V, the bias row, and the new dual variables of every part's rows.

    The solvers store the bias as a primal variable, close to its dual value.
    """

    dV: np.ndarray
    bias_row: np.ndarray
    alphas: list[np.ndarray]


class Weights(NamedTuple):
    """Weights Z of some labels; `lag` is the dual value of the bias minus the last row of Z."""

    Z: np.ndarray
    lag: np.ndarray


@dataclass(frozen=True)
class Task:
    """What a solve needs besides the rows: prior, bias, the current dual of the group, gap and solver."""

    R: np.ndarray | None
    bias: float
    dual: float
    tol: float
    seed: int
    solver: str
    n_threads: int = 1
    epochs: int = INNER_EPOCHS


def scores(X: Any, Z: np.ndarray, bias: float) -> np.ndarray:
    """(x_i, bias)'Z of some rows, in float64."""
    return np.asarray(X @ Z[:-1]) + bias * Z[-1]


def dense(alpha: Any) -> np.ndarray:
    """Dual variables of some rows as a dense array."""
    return alpha.toarray() if sp.issparse(alpha) else np.asarray(alpha)


def scan(part: Part, labels: slice, weights: Weights, alpha: Any, quota: int | None, seed: int) -> Scan:
    """Measure the rows of a part under the weights of some labels, and choose up to `quota` rows to send."""
    costs = part.of(labels)
    n, L = costs.signs.shape
    loss, value = np.zeros(L), np.zeros(L)
    share, near = np.zeros((2, n))
    for first in range(0, n, BATCH):
        rows = slice(first, min(first + BATCH, n))
        some = rows_of(costs, rows)
        a, margins = dense(alpha[rows]), some.margins()
        gradient = margins - some.signs * scores(part.X[rows], weights.Z, part.bias)
        boxes = some.boxes()
        hinge = boxes * np.maximum(gradient, 0.0)
        loss += hinge.sum(axis=0)
        value += np.einsum("il,il->l", margins, a)
        share[rows] = np.sum(hinge - a * gradient, axis=1)
        near[rows] = np.sum(boxes * np.maximum(NEAR - np.abs(gradient), 0.0), axis=1)
    return Scan(loss, value, choose(share, near, quota, np.random.default_rng(seed)))


def choose(share: np.ndarray, near: np.ndarray, quota: int | None, rng: np.random.Generator) -> np.ndarray:
    """Up to `quota` rows: half by their shares of the gap, the rest by how close they are to their margins.

    Rows near their margins must be able to move when the others push them. Without a quota, all rows with a
    share of the gap.
    """
    if quota is None:
        return np.flatnonzero(share > 0.0)
    noise = 1.0 + SHUFFLE * rng.random(len(share))
    first = _largest(share * noise, max(quota // 2, quota - int(np.count_nonzero(near))))
    left = near * noise
    left[first] = 0.0
    return np.sort(np.concatenate([first, _largest(left, quota - len(first))]))


def _largest(numbers: np.ndarray, most: int) -> np.ndarray:
    """Positions of the largest positive numbers, at most `most`."""
    positions = np.flatnonzero(numbers > 0.0)
    if positions.size <= most:
        return positions
    return positions[np.argpartition(-numbers[positions], most)[:most]]


def send(part: Part, labels: slice, alpha: Any, scanned: Scan) -> Sent:
    """The rows chosen by a scan."""
    ids = scanned.ids
    return Sent(ids, part.X[ids], rows_of(part.of(labels), ids), dense(alpha[ids]))


def rows_of(costs: EntryCosts, rows: slice | np.ndarray) -> EntryCosts:
    """The costs of some rows."""
    margin = costs.margin[rows] if costs.per_entry_margin else costs.margin
    return replace(costs, signs=costs.signs[rows], weight=costs.weight[rows], margin=margin)


def solve(task: Task, weights: Weights, *sent: Sent) -> tuple[Move, list[np.ndarray]]:
    """Maximise the dual over the rows sent, with the others fixed; returns the move and the row numbers."""
    ids = [one.ids for one in sent]
    alpha = np.vstack([one.alpha for one in sent])
    if not alpha.size:
        return no_move(sent, weights), ids
    problem, V = _restricted(task, weights, sent, alpha)
    rng = np.random.RandomState(task.seed)
    solver = SOLVERS[task.solver].build(
        problem, alpha.copy(), tol=task.tol, rng=rng, n_threads=task.n_threads
    )
    run(solver, Stopping(task.tol, task.epochs))
    solution = solver.solution()
    step = np.asarray(solution.alpha, np.float64) - alpha
    dV = problem.accumulate(step)
    bias_row = solution.weights[-1] - problem.couple(V[-1:])[0]
    # A solve that stopped early may overshoot: the best point of the segment is never worse than its start.
    slope = float(np.vdot(problem.costs.margin, step) - np.vdot(problem.couple(V), dV))
    curvature = float(np.vdot(problem.couple(dV), dV))
    if slope < curvature:
        share = max(slope, 0.0) / curvature
        step, dV, bias_row = share * step, share * dV, share * problem.couple(dV[-1:])[0]
    ends = np.cumsum([len(some) for some in ids])[:-1]
    return Move(dV, bias_row, np.split(alpha + step, ends)), ids


def no_move(sent: Sequence[Sent], weights: Weights) -> Move:
    """The move of a solve without rows."""
    return Move(np.zeros_like(weights.Z), np.zeros_like(weights.lag), [one.alpha for one in sent])


def _restricted(
    task: Task, weights: Weights, sent: Sequence[Sent], alpha: np.ndarray
) -> tuple[LinearM3L, np.ndarray]:
    """The problem over the rows sent, whose objective is that of the whole group, and V of these rows."""
    costs = EntryCosts(
        np.vstack([one.costs.signs for one in sent]),
        stacked_weights([one.costs for one in sent]),
        sent[0].costs.upper,
        np.vstack([one.costs.margins() for one in sent]),
        per_entry_margin=True,
    )
    X = stacked([one.X for one in sent])
    problem = LinearM3L(Rows.of(X), costs, task.R, task.bias)
    V = problem.accumulate(alpha)
    Z = problem.couple(V)
    # Scores due to other rows reduce the margins.
    others = weights.Z - Z
    others[-1] += weights.lag
    margin = costs.margin - costs.signs * scores(X, others, task.bias)
    constant = task.dual - float(np.vdot(margin, alpha) - 0.5 * np.vdot(V, Z))
    return replace(problem, costs=replace(costs, margin=margin, constant=constant)), V


def stacked_weights(costs: list[EntryCosts]) -> np.ndarray:
    """Weights of samples, or of entries if any part has them."""
    wide = max(one.weight.shape[1] for one in costs)
    return np.vstack([np.broadcast_to(one.weight, (len(one.signs), wide)) for one in costs])


def stacked(blocks: list[Any]) -> Any:
    """Blocks of rows as one matrix; a single block is not copied."""
    if len(blocks) == 1:
        return blocks[0]
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.vstack(blocks)


def accumulate(part: Part, labels: slice, alpha: Any) -> np.ndarray:
    """V = X'A of the rows of a part."""
    return LinearM3L(Rows.of(part.X), part.of(labels), None, part.bias).accumulate(dense(alpha))


def replaced(alpha: Any, rows: np.ndarray, new: np.ndarray) -> Any:
    """Dual variables with some rows replaced; a dense array is changed in place."""
    if not sp.issparse(alpha):
        alpha[rows] = new
        return alpha
    keep = np.ones(alpha.shape[0])
    keep[rows] = 0.0
    kept = sp.diags_array(keep, format="csr") @ alpha
    kept.eliminate_zeros()
    positions = sp.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), (alpha.shape[0], len(rows)))
    return sp.csr_array(kept + positions @ sp.csr_array(new))
