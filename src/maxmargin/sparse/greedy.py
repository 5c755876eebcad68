"""Greedy growth of a basis (Algorithms 1, 2 and 4 of Ganu, Shevade and Sundararajan).

An epoch adds one basis function:

1. draw `n_candidates` samples not in the basis and not dependent on it; score each by the
   exact objective after its step; the best one joins. If none lowers the objective, draw
   again, at most `REDRAWS` times, then stop;
2. optimise all coefficients until the bound on the excess, |g|^2 / 2, is below three hundredths of
   the decrease so far in this epoch (or below `tol` times the objective).

It ends when the basis has `max_basis` functions, when no admissible candidate is left, or when
the relative decrease (e_old - e_new) / e_old stayed below `rel_tol` for `patience` epochs. Then
the last coefficients are optimised in float64 until the excess is at most half of `tol` times
the objective.

The sequence of bases is nested, and the coefficients of every stage are kept in `path`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.sparse.newton import JointNewton, Sweeps

REDRAWS = 3
# Candidates scored together; bounds the memory of their kernel rows.
AT_ONCE = 128
# Relative excess beyond which coefficients cannot be told from optimal ones in float64.
PRECISION = 1e-13
STAGE_SLACK = 0.03
SOLVERS = ("auto", "newton", "newton-cg", "sweeps")


class Greedy:
    """Grow the basis of a problem, one function an epoch.

    Parameters
    ----------
    problem : object
        Offers `score`, `admissible`, `grow`, `gradient`, `move`, `objective`, `refine`,
        `certify`.
    pool : int array
        Samples that may become basis functions, in a canonical order.
    rng : numpy RandomState
        Draws the candidates.
    max_basis : int
    n_candidates : int or None
        None scores the whole pool.
    rel_tol : float
    patience : int
    tol : float
        Relative excess at which the final coefficients count as optimal.
    max_iter : int
        Newton iterations (or sweeps) for one basis.
    solver : {"auto", "newton", "newton-cg", "sweeps"}
    random_start : bool
        Take the first basis function at random, as the paper does, not the best of a draw.
    keep_path : bool
    """

    def __init__(
        self,
        problem: Any,
        pool: np.ndarray,
        rng: Any,
        *,
        max_basis: int,
        n_candidates: int | None,
        rel_tol: float,
        patience: int,
        tol: float,
        max_iter: int,
        solver: str = "auto",
        random_start: bool = False,
        keep_path: bool = True,
    ) -> None:
        needed = ("score", "admissible", "grow", "gradient", "move", "objective", "refine", "certify")
        require(problem, needed, "Greedy growth")
        self.problem, self.pool, self.rng = problem, pool, rng
        self.max_basis, self.n_candidates = max_basis, n_candidates
        self.rel_tol, self.patience = rel_tol, patience
        self.tol = tol
        self.inner = (
            Sweeps(problem, max_iter) if solver == "sweeps" else JointNewton(problem, max_iter, solver)
        )
        self.random_start, self.keep_path = random_start, keep_path
        self.path: list[np.ndarray] = []
        self._idle = 0

    def epoch(self, clock: Clock) -> Progress:
        problem = self.problem
        before = problem.objective
        grown = self._grow()
        if grown:
            self.inner.optimise(
                lambda: max(self.tol * before, STAGE_SLACK * (before - problem.objective)), clock.expired
            )
            self._idle = self._idle + 1 if before - problem.objective < self.rel_tol * before else 0
        full = len(problem.basis) >= self.max_basis
        done = not grown or full or self._idle >= self.patience
        if done:
            problem.refine()
            goal = max(0.5 * self.tol, PRECISION)
            self.inner.optimise(lambda: goal * problem.objective, clock.expired)
        if self.keep_path and problem.basis:
            del self.path[len(problem.basis) - 1 :]
            self.path.append(problem.W.copy())
        g = problem.gradient()
        excess = 0.5 * float(np.vdot(g, g))
        primal = problem.objective
        return Progress(Certificate(primal, primal - excess), len(problem.basis), done=done)

    def certify(self) -> Certificate:
        return self.problem.certify()

    def _grow(self) -> bool:
        """Add the best admissible candidate; False when there is none that helps."""
        problem = self.problem
        for _ in range(REDRAWS + 1):
            left = problem.admissible(self.pool)
            if not left.size:
                return False
            drawn = self._draw(left)
            if self._join_best(drawn):
                return True
            if drawn.size == left.size:
                return False
        return False

    def _join_best(self, drawn: np.ndarray) -> bool:
        """Score the drawn candidates, some at a time, and let the best join if it helps."""
        problem, lowest, winner = self.problem, self.problem.objective, None
        for start in range(0, drawn.size, AT_ONCE):
            scored = problem.score(drawn[start : start + AT_ONCE])
            best = int(np.argmin(scored.objectives))
            if scored.objectives[best] < lowest:
                lowest = scored.objectives[best]
                winner = int(scored.indices[best]), scored.rows[best], scored.steps[best]
        if winner is None:
            return False
        problem.grow(*winner)
        return True

    def _draw(self, left: np.ndarray) -> np.ndarray:
        if self.random_start and not self.problem.basis:
            return left[self.rng.choice(left.size, 1)]
        if self.n_candidates is None or self.n_candidates >= left.size:
            return left
        return left[self.rng.choice(left.size, self.n_candidates, replace=False)]
