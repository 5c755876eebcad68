"""Newton's method for few features and labels that a prior couples: one label at a time, in turns.

Problem, dual and gap as in `problem`, proximal steps as in `newton`. There coupled labels are joined to one
of N L entries, whose matrices are of the order (D+1) rank(R). Where R can be inverted, Q = R^-1, the smoothed
primal of a proximal step,

    min_Z  1/2 tr(Q Z'Z) + sum_il c_il phi(g_il),

ties labels together by its norm alone, and is minimised over the weights z_l of one label after the other:
with s_l = sum_{k != l} Q_lk z_k / Q_ll it is

    1/2 Q_ll |z_l + s_l|^2 + sum_i c_il phi(g_il) + const,

the problem of one label with weights z_l + s_l, margins m_il + y_il x_i's_l and 1 / Q_ll for r. A turn is
some of its Newton steps. The gap at any Z and its shares t, with V = X'(y c t), splits into

    P(Z) - D(c t) = sum_il c_il (max(g_il, 0) - t_il g_il) + 1/2 tr(R E'E),     E = Z Q - V :

when the second part, which the rounds bring to zero, is below `solved` times the first, t becomes the new
centre and omega shrinks. 10 to 40 rounds of all labels are usual, each of O(N D^2 + (N + D) L) per label;
their number grows with the condition of R.

The weights with the smallest primal and the shares with the largest dual value are kept, each for itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Patience, Progress, Solver, Switch, stalls
from maxmargin.core.rows import readonly
from maxmargin.multilabel.interior import InteriorPoint
from maxmargin.multilabel.newton import NewtonRule, scaled_columns
from maxmargin.multilabel.problem import LinearM3L, Solution
from maxmargin.multilabel.proximal import Entries, NewtonState, Shrinking, newton_steps
from maxmargin.multilabel.rescue import affordable


class NewtonInTurns:
    """State of the method: weights Z of the scaled columns (L x D), scores F = X Z' (N x L), centre, omega.

    Parameters
    ----------
    problem : LinearM3L
        With a prior that can be inverted.
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap that training stops at.
    steps : int, default=2
        Newton steps of a turn.
    rule : NewtonRule
    """

    def __init__(
        self,
        problem: LinearM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        steps: int = 2,
        rule: NewtonRule | None = None,
    ) -> None:
        self.problem, self.tol, self.steps = problem, tol, steps
        self.rule = NewtonRule() if rule is None else rule
        (n, L), costs = problem.shape, problem.costs
        columns, self.scale = scaled_columns(replace(problem, R=None))
        Q = np.linalg.inv(problem.prior)
        self.Q = 0.5 * (Q + Q.T)
        self.columns = columns._replace(r=readonly(1 / np.diag(self.Q)))
        self.Y, self.boxes = costs.signs.astype(np.float64), costs.boxes()
        self.margins = np.array(costs.margins(), np.float64)
        parts = (self.Y, self.boxes, self.margins)
        self.entries = Entries(*(np.ascontiguousarray(part.T) for part in parts))
        self.widest = float(self.margins.max(initial=0.0)) or 1.0
        D = len(self.scale)
        self.state = NewtonState(
            omega=np.full(L, self.rule.first * self.widest),
            primal=np.empty(L),
            dual=np.empty(L),
            centre=np.full((L, n), 0.5),
            scores=np.zeros((L, n)),
            best_share=np.zeros((L, n)),
            z=np.zeros((L, D)),
            best_z=np.zeros((L, D)),
        )
        self.Z, self.F = np.zeros((L, D)), np.zeros((n, L))
        self.best_Z, self.best_share = self.Z.copy(), np.zeros((n, L))
        constant = costs.constant
        self.bounds = Certificate(float(np.sum(self.boxes * self.margins)) + constant, constant)
        # The best dual value of the rounds, which may be far below that of no share at all for long.
        self.highest = -np.inf
        self.patience = Patience(100)
        self._answer: tuple[Solution, Certificate] | None = None
        if alpha.any():
            self._begin_at(alpha)

    def epoch(self, clock: Clock) -> Progress:
        """A turn of every label, and what it has come to."""
        self._answer = None
        for l in range(len(self.Z)):
            self._turn(l)
            if clock.expired():
                break
        self._look()
        reached = Certificate(self.bounds.primal, self.highest).gap
        stuck = "scale the features" if self.patience.exhausted(reached) else ""
        return Progress(self.bounds, self.problem.shape[0], stuck=stuck)

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> Solution:
        return self._evaluated()[0]

    def _turn(self, l: int) -> None:
        state = self.state
        others = self.Q[l] / self.Q[l, l]
        others[l] = 0.0
        s, shift = others @ self.Z, self.F @ others
        self.entries.m[l] = self.margins[:, l] + self.Y[:, l] * shift
        state.z[l], state.scores[l] = self.Z[l] + s, self.F[:, l] + shift
        state.primal[l], state.dual[l] = np.inf, -np.inf
        # No centre moves within a turn: no step is ever "solved".
        fixed = Shrinking(1.0, 0.0, -1.0)
        newton_steps(self.columns, self.entries, np.array([l]), (0.0, 0.0), self.steps, fixed, state)
        self.Z[l], self.F[:, l] = state.z[l] - s, state.scores[l] - shift

    def _look(self) -> None:
        """Both objectives and the parts of the gap; the next centre where the proximal step is solved."""
        state, ridge, R = self.state, self.columns.ridge[:, None], self.problem.prior
        self.F = self.columns.X @ self.Z.T
        g = self.margins - self.Y * self.F
        share = np.clip(state.centre.T + g / state.omega, 0.0, 1.0)
        alpha = share * self.boxes
        V, ZQ = self.columns.X.T @ (self.Y * alpha), ridge * (self.Z.T @ self.Q)
        E = ZQ - V
        apart = 0.5 * float(np.sum((E @ R) * E / ridge))
        left = float(np.sum(self.boxes * (np.maximum(g, 0.0) - share * g)))
        loss, constant = float(np.sum(self.boxes * np.maximum(g, 0.0))), self.problem.costs.constant
        primal = 0.5 * float(np.sum(self.Z.T * ZQ)) + loss + constant
        dual = float(np.sum(self.margins * alpha)) - 0.5 * float(np.sum((V @ R) * V / ridge)) + constant
        self.highest = max(dual, self.highest)
        if primal < self.bounds.primal:
            self.best_Z = self.Z.copy()
        if dual > self.bounds.dual:
            self.best_share = share
        self.bounds = Certificate(min(primal, self.bounds.primal), max(dual, self.bounds.dual))
        if apart <= self.rule.solved * left:
            state.centre[:] = share.T
            state.omega[:] = np.maximum(self.rule.shrink * state.omega, self.rule.least * self.widest)

    def _begin_at(self, alpha: np.ndarray) -> None:
        """Start from dual variables that are near the optimum, as `Newton` does."""
        problem, state, boxes = self.problem, self.state, self.boxes
        Z, certificate = problem.evaluate(alpha)
        if certificate.gap > self.rule.near:
            return
        state.centre[:] = np.divide(alpha, boxes, out=np.zeros(boxes.shape), where=boxes > 0).T
        self.Z = np.ascontiguousarray(Z[: len(self.scale)].T) * self.scale
        self.F = self.columns.X @ self.Z.T
        state.omega[:] = self.rule.again * self.widest

    def _evaluated(self) -> tuple[Solution, Certificate]:
        """The best weights and dual variables as they are, kept until the next epoch."""
        if self._answer is None:
            alpha = self.best_share * self.boxes
            U = (self.best_Z / self.scale).T @ self.Q @ self.problem.factor.T
            if not self.problem.bias:
                U = np.vstack([U, np.zeros(U.shape[1])])
            Z, certificate = self.problem.evaluate(alpha, weights=U)
            self._answer = Solution(readonly(alpha), Z), certificate
        return self._answer


def turns_default(problem: LinearM3L, alpha: np.ndarray, *, tol: float) -> Solver:
    """Turns, and an interior point method where rounding stops them and it can be paid."""
    turns = NewtonInTurns(problem, alpha, tol=tol)
    if not affordable(problem):
        return turns
    return Switch(turns, lambda: InteriorPoint(problem), stalls(60), ("newton", "interior"))
