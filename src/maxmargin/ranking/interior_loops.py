"""Update III of label ranking by the paper's primal-dual interior point method.

With d = labels + 1 variables, the last one the slack of the mass constraint,

    min sum_y f_y(alpha_y),  f_y' = m_y(alpha_y) - gamma [y in Y],  f_slack = 0,
    row 0: the steps sum to zero,   row 1: mass over Y + slack = C,   s_y alpha_y <= 0,

with s_y = -1 for y in Y and for the slack, +1 for the others. Multipliers: lam >= 0 of the signs,
nu of the two rows. Each iteration aims at a tenth of eta = sum lam |alpha|: steps and multipliers
are eliminated, which leaves a 2 x 2 system in nu; the length is found by backtracking on the
norm of all residuals. It stops when eta and both residuals are small; whether the step is good
is for `ranking_steps.round_gap` to say.
"""

from __future__ import annotations

import math

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.ranking.step_loops import LOGISTIC, TILTED, sigmoid, tilt

TOLERANCE = 1e-11
ITERATIONS = 200


@compiled
def _slopes(u, log_weight, log_rest, x, size, relevant, known, gamma, kind, alpha, first, second):
    """f' and f'' at alpha; the slack variable has neither."""
    for y in range(known):
        if kind == TILTED:
            _, m, variance = tilt(log_weight[y], log_rest[y], x, size, alpha[y])
        elif kind == LOGISTIC:
            m = sigmoid(u[y] + alpha[y])
            variance = m * (1.0 - m)
        else:
            m, variance = u[y] + alpha[y], 1.0
        first[y] = m - gamma * relevant[y]
        second[y] = variance
    first[known] = second[known] = 0.0


@compiled
def _residuals(first, lam, nu0, nu1, row0, row1, sign, alpha, C, mu):
    """Norms of the dual and primal residual, and of all residuals together."""
    dual = centre = 0.0
    total0, total1 = 0.0, -C
    for y in range(alpha.size):
        dual += (first[y] + lam[y] * sign[y] + nu0 * row0[y] + nu1 * row1[y]) ** 2
        centre += (-lam[y] * sign[y] * alpha[y] - mu) ** 2
        total0 += row0[y] * alpha[y]
        total1 += row1[y] * alpha[y]
    primal = total0 * total0 + total1 * total1
    return math.sqrt(dual), math.sqrt(primal), math.sqrt(dual + centre + primal)


@compiled
def interior_path(u, log_weight, log_rest, x, size, relevant, known, gamma, C, kind, loss, limit, point):
    """At most `limit` iterations; returns their number. `u` holds levels, not keys.

    `point` receives the steps and, last, the slack.
    """
    d = known + 1
    row0, row1, sign = np.ones(d), np.zeros(d), np.ones(d)
    n_in = 0
    for y in range(known):
        if relevant[y]:
            n_in += 1
            row1[y], sign[y] = 1.0, -1.0
    row0[known], row1[known], sign[known] = 0.0, 1.0, -1.0
    first, second, z, w = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    lam, step, d_lam = np.empty(d), np.empty(d), np.empty(d)
    trial, trial_lam = np.empty(d), np.empty(d)
    mean_slack = 1.5 * C / d
    for y in range(known):
        point[y] = C / (2.0 * n_in) if relevant[y] else -C / (2.0 * (known - n_in))
    point[known] = 0.5 * C
    for y in range(d):
        lam[y] = loss * mean_slack / abs(point[y])
    nu0 = nu1 = 0.0
    _slopes(u, log_weight, log_rest, x, size, relevant, known, gamma, kind, point, first, second)
    for iteration in range(limit):
        eta = 0.0
        for y in range(d):
            eta += lam[y] * abs(point[y])
        mu = 0.1 * eta / d
        dual, primal, norm = _residuals(first, lam, nu0, nu1, row0, row1, sign, point, C, mu)
        if eta <= TOLERANCE * C * loss and dual <= TOLERANCE * loss and primal <= TOLERANCE * C:
            return iteration
        m00 = m01 = m11 = b0 = 0.0
        b1 = -C
        for y in range(d):
            room = abs(point[y])
            z[y] = second[y] + lam[y] / room
            w[y] = -first[y] - mu * sign[y] / room - nu0 * row0[y] - nu1 * row1[y]
            m00 += row0[y] / z[y]
            m01 += row0[y] * row1[y] / z[y]
            m11 += row1[y] / z[y]
            b0 += row0[y] * (w[y] / z[y] + point[y])
            b1 += row1[y] * (w[y] / z[y] + point[y])
        det = m00 * m11 - m01 * m01
        if not det > 0.0:
            return iteration
        d0, d1 = (m11 * b0 - m01 * b1) / det, (m00 * b1 - m01 * b0) / det
        length = 1.0
        for y in range(d):
            step[y] = (w[y] - row0[y] * d0 - row1[y] * d1) / z[y]
            d_lam[y] = (lam[y] * sign[y] * step[y] + mu) / abs(point[y]) - lam[y]
            if d_lam[y] < 0.0:
                length = min(length, -lam[y] / d_lam[y])
        length *= 0.99
        moved = False
        while not moved and length > 1e-14:
            inside = True
            for y in range(d):
                trial[y] = point[y] + length * step[y]
                trial_lam[y] = lam[y] + length * d_lam[y]
                inside = inside and sign[y] * trial[y] < 0.0
            if inside:
                _slopes(u, log_weight, log_rest, x, size, relevant, known, gamma, kind, trial, first, second)
                t0, t1 = nu0 + length * d0, nu1 + length * d1
                _, _, new = _residuals(first, trial_lam, t0, t1, row0, row1, sign, trial, C, mu)
                moved = new <= (1.0 - 0.01 * length) * norm
            if moved:
                nu0, nu1 = t0, t1
            else:
                length *= 0.5
        if not moved:
            return iteration
        point[:] = trial
        lam[:] = trial_lam
    return limit


@compiled
def interior_point(u, log_weight, log_rest, x, size, relevant, known, gamma, C, kind, loss, alpha):
    """The step of update III; the caller accepts it by its gap.

    A C far above the mass that the best step moves would drown that step in rounding, so the
    method starts from a C of the size of the loss, and enlarges it while it binds.
    """
    n_in = 0
    for y in range(known):
        n_in += relevant[y]
    reach = min(C, 8.0 * loss * min(n_in, known - n_in))
    point = np.empty(known + 1)
    while True:
        interior_path(
            u, log_weight, log_rest, x, size, relevant, known, gamma, reach, kind, loss, ITERATIONS, point
        )
        up = down = 0.0
        for y in range(known):
            # Steps that are interior by rounding only are none.
            alpha[y] = point[y] if abs(point[y]) > 1e-9 * reach else 0.0
            if relevant[y]:
                up += alpha[y]
            else:
                down -= alpha[y]
        if reach >= C or up < 0.9 * reach:
            break
        reach = min(C, 8.0 * reach)
    mass = min(up, down, C)
    for y in range(known):
        if alpha[y] != 0.0:
            alpha[y] *= mass / (up if relevant[y] else down)
