"""Update III of label ranking by the primal-dual interior point method of the paper.

With d = labels + 1 variables, the last one the slack of the mass constraint, (12) is

    min sum_y f_y(alpha_y),  f_y' = m_y(alpha_y) - gamma [y in Y],  f_slack = 0,
    row 0: the steps sum to zero,   row 1: mass over Y + slack = C,   s_y alpha_y <= 0,

with s_y = -1 for y in Y and for the slack, +1 for the others. Multipliers: lam >= 0 of the signs, nu of the
two rows. Each iteration aims at a tenth of eta = sum lam |alpha|. Eliminating steps and multipliers leaves a
2 x 2 system in nu; backtracking on the norm of all residuals finds the length. The method stops when eta and
both residuals are small. `step_loops.round_gap` certifies the step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import helper
from maxmargin.ranking.step_loops import LOGISTIC, TILTED, level, sigmoid, tilt

# Largest residuals at the end, relative to C and the loss, and the largest number of iterations.
TOLERANCE, ITERATIONS = 1e-11, 200
# Contraction of eta in (17), as in the paper, and the usual constants of a backtracking search.
CONTRACTION, TO_THE_BORDER, DECREASE, SHORTER, SHORTEST = 0.1, 0.99, 0.01, 0.5, 1e-14
# Steps below this fraction of C are zero at the optimum.
INTERIOR = 1e-9
# C grows by the factor STAGE as long as the mass of the step is at least BINDING times C.
STAGE, BINDING = 8.0, 0.9


class Path(NamedTuple):
    """The iterate of the interior point method, d variables (labels, then the slack), and its workspace.

    `nu` and `d_nu` have two entries. `row0`, `row1` and `sign` are constants of the problem (row 0 is one for
    every label and zero for the slack).
    """

    u: np.ndarray
    row0: np.ndarray
    row1: np.ndarray
    sign: np.ndarray
    point: np.ndarray
    lam: np.ndarray
    nu: np.ndarray
    first: np.ndarray
    second: np.ndarray
    step: np.ndarray
    d_lam: np.ndarray
    d_nu: np.ndarray
    trial: np.ndarray
    trial_lam: np.ndarray


@helper(allocates=True)
def _start(form, C, loss, point):
    """Return the first iterate: half of C in equal parts, and multipliers with equal products lam |alpha|."""
    known, d = form.known, form.known + 1
    path = Path(
        np.empty(known), np.ones(d), np.zeros(d), np.ones(d), point, np.empty(d), np.zeros(2),
        np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.zeros(2), np.empty(d), np.empty(d),
    )  # fmt: skip
    n_in = 0
    for y in range(known):
        if form.kind != TILTED:
            path.u[y] = level(form.key[y], form.kind)
        if form.relevant[y]:
            n_in += 1
            path.row1[y], path.sign[y] = 1.0, -1.0
    path.row0[known], path.row1[known], path.sign[known] = 0.0, 1.0, -1.0
    for y in range(known):
        point[y] = C / (2.0 * n_in) if form.relevant[y] else -C / (2.0 * (known - n_in))
    point[known] = 0.5 * C
    mean_slack = 1.5 * C / d
    for y in range(d):
        path.lam[y] = loss * mean_slack / abs(point[y])
    return path


@helper(hot=True)
def _slopes(form, u, alpha, first, second):
    """Write f' and f'' of (12) at alpha; both are zero for the slack."""
    for y in range(form.known):
        if form.kind == TILTED:
            _, m, variance = tilt(form.log_weight[y], form.log_rest[y], form.x, alpha[y])
        elif form.kind == LOGISTIC:
            m = sigmoid(u[y] + alpha[y])
            variance = m * (1.0 - m)
        else:
            m, variance = u[y] + alpha[y], 1.0
        first[y] = m - form.gamma * form.relevant[y]
        second[y] = variance
    first[form.known] = second[form.known] = 0.0


@helper(hot=True)
def residuals(path, alpha, lam, nu0, nu1, C, mu):
    """Return the norms of the dual residual (16), of the primal one, and of both with the centrality (17)."""
    dual = centre = 0.0
    total0, total1 = 0.0, -C
    for y in range(alpha.size):
        dual += (path.first[y] + lam[y] * path.sign[y] + nu0 * path.row0[y] + nu1 * path.row1[y]) ** 2
        centre += (-lam[y] * path.sign[y] * alpha[y] - mu) ** 2
        total0 += path.row0[y] * alpha[y]
        total1 += path.row1[y] * alpha[y]
    primal = total0 * total0 + total1 * total1
    return math.sqrt(dual), math.sqrt(primal), math.sqrt(dual + centre + primal)


@helper(hot=True)
def newton_direction(path, C, mu):
    """Solve (17) and (18): nu from a 2 x 2 system, steps by (20), multipliers by (19).

    Returns the length at which a multiplier would turn negative, or 0 if the system is singular.
    """
    point, lam, nu, row0, row1 = path.point, path.lam, path.nu, path.row0, path.row1
    z, w = path.trial, path.trial_lam  # free until the line search
    m00 = m01 = m11 = b0 = 0.0
    b1 = -C
    # Eliminating steps and multipliers leaves (m00 m01; m01 m11) d_nu = (b0, b1).
    for y in range(point.size):
        size = abs(point[y])
        z[y] = path.second[y] + lam[y] / size
        w[y] = -path.first[y] - mu * path.sign[y] / size - nu[0] * row0[y] - nu[1] * row1[y]
        m00 += row0[y] / z[y]
        m01 += row0[y] * row1[y] / z[y]
        m11 += row1[y] / z[y]
        b0 += row0[y] * (w[y] / z[y] + point[y])
        b1 += row1[y] * (w[y] / z[y] + point[y])
    det = m00 * m11 - m01 * m01
    if not det > 0.0:
        return 0.0
    d0, d1 = (m11 * b0 - m01 * b1) / det, (m00 * b1 - m01 * b0) / det
    path.d_nu[0], path.d_nu[1] = d0, d1
    length = 1.0
    for y in range(point.size):
        path.step[y] = (w[y] - row0[y] * d0 - row1[y] * d1) / z[y]
        path.d_lam[y] = (lam[y] * path.sign[y] * path.step[y] + mu) / abs(point[y]) - lam[y]
        if path.d_lam[y] < 0.0:
            length = min(length, -lam[y] / path.d_lam[y])
    return length


@helper(hot=True)
def _line_search(form, path, C, mu, norm, length):
    """Halve the length until all residuals fall, and move; return False if they do not fall at any length."""
    d0, d1 = path.d_nu[0], path.d_nu[1]
    while length > SHORTEST:
        inside = True
        for y in range(path.point.size):
            path.trial[y] = path.point[y] + length * path.step[y]
            path.trial_lam[y] = path.lam[y] + length * path.d_lam[y]
            inside = inside and path.sign[y] * path.trial[y] < 0.0
        if inside:
            _slopes(form, path.u, path.trial, path.first, path.second)
            nu0, nu1 = path.nu[0] + length * d0, path.nu[1] + length * d1
            _, _, new = residuals(path, path.trial, path.trial_lam, nu0, nu1, C, mu)
            if new <= (1.0 - DECREASE * length) * norm:
                path.nu[0], path.nu[1] = nu0, nu1
                for y in range(path.point.size):
                    path.point[y], path.lam[y] = path.trial[y], path.trial_lam[y]
                return True
        length *= SHORTER
    return False


@helper
def interior_path(form, C, loss, limit, point):
    """Run at most `limit` iterations of the interior point method for (12); return their number.

    `C` may be smaller than that of the round. `point` receives the steps and, last, the slack.
    """
    path = _start(form, C, loss, point)
    _slopes(form, path.u, point, path.first, path.second)
    for iteration in range(limit):
        eta = 0.0
        for y in range(point.size):
            eta += path.lam[y] * abs(point[y])
        mu = CONTRACTION * eta / point.size
        # Stop if the gap eta and both residuals are small, else take a damped Newton step.
        dual, primal, norm = residuals(path, point, path.lam, path.nu[0], path.nu[1], C, mu)
        if eta <= TOLERANCE * C * loss and dual <= TOLERANCE * loss and primal <= TOLERANCE * C:
            return iteration
        length = newton_direction(path, C, mu)
        if length == 0.0 or not _line_search(form, path, C, mu, norm, TO_THE_BORDER * length):
            return iteration
    return limit


@helper(allocates=True)
def interior_point(form, loss, alpha):
    """Solve update III (11) by way of (12), as the paper does; return the mass of the step.

    If C is far above the mass of the best step, rounding relative to C hides that step. So the method starts
    from a C of the size of the loss, and enlarges it as long as it binds.
    """
    known, C = form.known, form.C
    n_in = 0
    for y in range(known):
        n_in += form.relevant[y]
    limit = min(C, STAGE * loss * min(n_in, known - n_in))
    point = np.empty(known + 1)
    while True:
        interior_path(form, limit, loss, ITERATIONS, point)
        up = down = 0.0
        for y in range(known):
            alpha[y] = point[y] if abs(point[y]) > INTERIOR * limit else 0.0
            if form.relevant[y]:
                up += alpha[y]
            else:
                down -= alpha[y]
        if limit >= C or up < BINDING * limit:
            break
        limit = min(C, STAGE * limit)
    # Scale both sides to the same mass, so that the steps sum to zero.
    balanced, mass = min(up, down, C), 0.0
    for y in range(known):
        if alpha[y] != 0.0:
            alpha[y] *= balanced / (up if form.relevant[y] else down)
        mass += alpha[y] * form.relevant[y]
    return mass
