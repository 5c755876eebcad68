"""Newton steps on the face of the dual on which the blocks lie.

Once it is known which coordinates end at a bound, the rest is a quadratic in the free ones.
With z_j the move of free coordinate j = (i, k) against the pivot p of its block, the
minimiser of T = -D solves

    G z = r,   G_jj' = C_i C_i' K_ii' <u_j, u_j'>,   r_j = C_i (H_ik - H_ip),   u_j = e_k - e_p,

K_ii' = x_i.x_i'. The step stops at the first bound it meets, and that coordinate stays there;
so every step raises the dual and a face is solved after finitely many. Block sweeps find the
face, these steps finish it: where sweeps need thousands of passes (large C, few features), a
few dozen steps reach the last digits. A step costs O(m^3) for m free coordinates, so it is
taken only while they are few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from threadpoolctl import ThreadpoolController

# Largest number of free coordinates for which a face is solved, and of steps on one face.
MOST_FREE, MOST_STEPS = 400, 100
# Added to the diagonal of G, relative to its mean, so that flat directions run into a bound.
RIDGE = 1e-13


def solve_face(problem: Any, state: Any) -> int:
    """Take Newton steps until the face is solved; returns how many were taken.

    The matrices are small: threads would only wait for each other.
    """
    if not 0 < np.count_nonzero(problem.interior(state.alpha)) <= MOST_FREE:
        return 0
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        return newton_steps(problem, state)


def newton_steps(problem: Any, state: Any) -> int:
    """The steps of `solve_face`."""
    for taken in range(MOST_STEPS):
        rows = np.flatnonzero(problem.interior(state.alpha))
        if not 0 < len(rows) <= MOST_FREE:
            return taken
        alpha = state.alpha[rows]
        free, pivots, lower, upper = problem.face(alpha, rows)
        at, classes = np.nonzero(free)
        if not 0 < len(at) <= MOST_FREE:
            return taken
        z = newton(problem, state, rows, at, classes, pivots[at])
        delta = np.zeros_like(alpha)
        delta[at, classes] = z
        np.subtract.at(delta, (at, pivots[at]), z)
        gamma, hit = room(alpha, delta, lower, upper)
        new = alpha + min(gamma, 1.0) * delta
        if gamma <= 1.0:
            new[hit] = (lower if delta[hit] < 0 else upper)[hit]
        problem.move(state, rows, problem.rebalanced(new, rows))
        if gamma > 1.0:
            return taken + 1
    return MOST_STEPS


def newton(
    problem: Any, state: Any, rows: np.ndarray, at: np.ndarray, classes: np.ndarray, pivots: np.ndarray
) -> np.ndarray:
    """Moves of the free coordinates (sample rows[at], class) to the minimum of their face."""
    costs = problem.costs[rows][at]
    H = problem.margins_of(state, rows)
    r = costs * (H[at, classes] - H[at, pivots])
    overlap = (classes[:, None] == classes).astype(float) + (pivots[:, None] == pivots)
    overlap -= (classes[:, None] == pivots).astype(float) + (pivots[:, None] == classes)
    G = problem.products(rows)[np.ix_(at, at)] * (costs[:, None] * costs) * overlap
    G[np.diag_indices_from(G)] += RIDGE * np.trace(G) / len(G) + np.finfo(float).tiny
    try:
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(G), r)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(G, r, rcond=None)[0]


def room(
    alpha: np.ndarray, delta: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, tuple[int, int]]:
    """Longest step that keeps lower <= alpha <= upper, and the coordinate that stops it."""
    bound = np.where(delta < 0, lower, upper)
    longest = np.full(alpha.shape, np.inf)
    np.divide(bound - alpha, delta, out=longest, where=delta != 0)
    hit = np.unravel_index(int(np.argmin(longest)), longest.shape)
    return float(longest[hit]), (int(hit[0]), int(hit[1]))
