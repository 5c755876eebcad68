"""Label ranking: what the competitor minimises, its dual, and the weights that carry the dual.

With labels y, examples (x_t, Y_t), margin gamma and a regulariser F with conjugate G,

    P(w) = sum_y F(w_y) + C sum_t loss_t,    loss_t = max over r in Y_t, s not in Y_t of
                                                      [gamma - (<w_r, x_t> - <w_s, x_t>)]_+
    D    = gamma sum_t a_t - sum_y G(theta_y),   theta_y = sum_t alpha_ty x_t,   w_y = grad G(theta_y)

where alpha_t >= 0 on Y_t, <= 0 off it, sums to zero, and a_t, its sum over Y_t, is at most C.

| regulariser | F(w)                          | G(theta)                       | kappa(x)            |
|-------------|-------------------------------|--------------------------------|---------------------|
| squared     | 1/2 |w|^2                     | 1/2 |theta|^2                  | |x|^2               |
| entropy     | sum_j w_j log(n w_j), simplex | log sum_j e^theta_j - log n    | (max x - min x)^2/4 |

A mistake raises D by at least lambda = gamma C - kappa C^2, and D <= P(w) for every w, hence
lambda M <= P(w): the number of mistakes M is bounded by any competitor's objective. C is the
paper's own, which is scikit-learn's: it multiplies the sum of the losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows, readonly
from maxmargin.ranking import loops
from maxmargin.ranking.state import EntropyState, Relevant, SquaredState, Survey

# Nonzeros laid out at a time.
PIECE = 1 << 18

UPDATES = {"fixed": loops.FIXED, "worst_pair": loops.WORST_PAIR, "all_pairs": loops.ALL_PAIRS}
STATES: dict[str, Any] = {"squared": SquaredState, "entropy": EntropyState}


@dataclass(frozen=True)
class RankingProblem:
    """Margin, C and the kind of step; `interior_point` asks for the paper's solver of update III."""

    gamma: float
    C: float
    update: str = "all_pairs"
    interior_point: bool = False

    @property
    def codes(self) -> tuple[float, float, int, int]:
        """The problem as the compiled loops take it."""
        solver = loops.INTERIOR_POINT if self.interior_point else loops.EXACT
        return self.gamma, self.C, UPDATES[self.update], solver

    def losses(self, scores: np.ndarray, relevant: Relevant, born: np.ndarray) -> np.ndarray:
        """Loss of every row over the labels that were known in its round."""
        out = np.empty(len(scores))
        loops.hinge_losses(readonly(scores), *relevant.flat, readonly(born), self.gamma, out)
        return out

    def smallest_gain(self, kappa: float) -> float:
        """lambda: what a mistake adds to the dual at least."""
        return self.gamma * self.C - kappa * self.C**2


class RankingStream:
    """A problem, the rows and labels it meets, and the state they move.

    With `remember` the step of every row is kept (rows x labels), which later passes need to
    take it out again and certificates need to recompute the dual.
    """

    def __init__(
        self,
        problem: RankingProblem,
        state: Any,
        rows: Rows,
        survey: Survey,
        relevant: Relevant,
        remember: bool = False,
    ) -> None:
        self.problem, self.state, self.rows, self.relevant = problem, state, rows, relevant
        self.n_rows = rows.shape[0]
        self.survey = survey
        self.records: list[np.ndarray] = []
        state.admit(rows, relevant)
        self._first_rows = [state.n_rounds + row for row in relevant.first_rows(state.n_labels)]
        self.steps = np.zeros((self.n_rows, state.n_labels) if remember else (0, 0))

    def learn(self, order: np.ndarray) -> int:
        """Predict and update in the given order, and count; returns how many rounds moved the dual."""
        state = self.state
        record = np.zeros((len(order), loops.N_RECORD))
        known = self._run(order, False, record)
        fresh = known - state.n_labels
        state.born += self._first_rows[:fresh]
        del self._first_rows[:fresh]
        state.n_labels = known
        state.tally(record)
        self.records.append(record[:, : loops.MASS].copy())
        return int(np.count_nonzero(record[:, loops.GAIN]))

    def improve(self, order: np.ndarray) -> int:
        """Replace the steps of rows that were met before by better ones; returns how many changed."""
        record = np.zeros((len(order), loops.N_RECORD))
        self._run(order, True, record)
        self.state.dual += float(record[:, loops.GAIN].sum())
        return int(np.count_nonzero(record[:, loops.GAIN]))

    def _run(self, order: np.ndarray, again: bool, record: np.ndarray) -> int:
        """Rounds in pieces of bounded size, because each piece of X is laid out in memory of its own."""
        state, known = self.state, self.state.n_labels
        sizes = np.cumsum(self.rows.indptr[order + 1] - self.rows.indptr[order])
        start = 0
        while start < len(order):
            done = sizes[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(sizes, done + PIECE, side="right")))
            piece = order[start:stop]
            layout = state.lay_out(self.rows, self.survey, piece)
            known = state.rounds(
                self.problem.codes, layout, known, self.survey, self.relevant, piece, self.steps, again,
                record[start:stop],
            )  # fmt: skip
            state.n_steps += len(piece)
            start = stop
        return known

    def running(self) -> Certificate:
        """Primal and dual of the state as it is."""
        return Certificate(self._primal(), self.state.dual)

    def certify(self) -> Certificate:
        """Dual recomputed from the stored steps (else from the weights), primal from the weights."""
        state, remembered = self.state, self.steps.size > 0
        if remembered:
            conjugate = state.rebuild(self.rows, self.steps)
            state.mass = 0.5 * float(np.abs(self.steps).sum())
        else:
            conjugate = state.conjugate()
        state.dual = self.problem.gamma * state.mass - conjugate
        return Certificate(self._primal(), state.dual)

    def _primal(self) -> float:
        scores = self.state.scores(self.rows, averaged=False)
        born = np.zeros(self.state.n_labels, np.int64)
        losses = self.problem.losses(scores, self.relevant, born)
        return self.state.complexity() + self.problem.C * float(losses.sum())


def competitor_objective(
    problem: RankingProblem, state: Any, W: np.ndarray, scores: np.ndarray, relevant: Relevant
) -> float:
    """P(W) of a fixed competitor on the whole stream, over the labels known in each round."""
    losses = problem.losses(scores, relevant, np.array(state.born, np.int64))
    return state.complexity_of(W) + problem.C * float(losses.sum())
