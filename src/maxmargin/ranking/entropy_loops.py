"""Weights on the simplex under the entropy: scores of a row, and steps.

The weights of label y are w_j = e^(theta_j) / Z over all n coordinates, 1/n at the start. Three feature-major
arrays store them: `theta` is exact (an underflowed weight can grow again), `v` = e^(theta - c_y) makes scores
free of exponentials, and `z` = Z_y e^(-c_y) is the normaliser. A step touches only the columns of its row and
multiplies z. These products round; `slack` bounds the accumulated error. The column of a label is recomputed
from theta when `slack` is no longer small relative to z, or when z leaves [1e-100, 1e100]. Coordinates that
have not occurred have theta = 0; they are counted, not stored.

A row is NULL (constant: it cannot move any weight), LOGISTIC (two values, base and base + slope, which
includes binary rows) or TILTED (any other row); see `step_loops`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.ranking.step_loops import (
    ALL_PAIRS,
    LOGISTIC,
    NULL,
    SATURATED,
    TILTED,
    key_of,
    level,
    tilt,
    worst_pair,
)

# A mass or a weight below this is computed from its logarithm.
TINY = 1e-200
# Rounding of z by one product, the largest slack, both relative to z, and the largest |log z|.
ROUNDING, DRIFT, WIDEST = 4e-16, 1e-12, 230.0


class EntropyWeights(NamedTuple):
    """The weights on the simplex; the header of this file defines the arrays."""

    theta: np.ndarray
    v: np.ndarray
    c: np.ndarray
    z: np.ndarray
    slack: np.ndarray
    used: int
    n_features: int


@compiled
def inspect_rows(rows, n_features, shapes):
    """Write the kind of every row, its base and slope (two values), and the range of its values."""
    data, _, indptr, _ = rows
    kind, base, slope, span = shapes
    for i in range(indptr.size - 1):
        low, high, count = math.inf, -math.inf, 0
        for e in range(indptr[i], indptr[i + 1]):
            if data[e] != 0.0:
                count += 1
                low, high = min(low, data[e]), max(high, data[e])
        base[i], slope[i], span[i] = 0.0, 0.0, 0.0
        if count == 0 or (count == n_features and low == high):
            kind[i] = NULL
            base[i] = low if count else 0.0
        elif low == high:
            kind[i], slope[i], span[i] = LOGISTIC, low, abs(low)
        elif count == n_features:
            between = False
            for e in range(indptr[i], indptr[i + 1]):
                between = between or low < data[e] < high
            kind[i], span[i] = TILTED if between else LOGISTIC, high - low
            if not between:
                base[i], slope[i] = low, high - low
        else:
            kind[i], span[i] = TILTED, max(high, 0.0) - min(low, 0.0)


@helper(hot=True)
def two_value_keys(weights, cols, known, sign, again, work):
    """Turn masses into keys of logits without the old step; `logit` stores those with it."""
    for y in range(known):
        mass = work.mass[y]
        q = mass / weights.z[y]
        if q > SATURATED or mass < TINY:
            q = key_of(_logit(mass, weights, y, cols, work.mark))
        work.key[y] = q
    if sign < 0.0 or again:
        for y in range(known):
            work.logit[y] = level(work.key[y], LOGISTIC)
            if sign < 0.0 or work.old[y] != 0.0:
                work.key[y] = key_of(sign * work.logit[y] - work.old[y])


@helper(hot=True)
def tilted_keys(weights, cols, x, known, update, work):
    """Write the scores without the old step, and the log weights of labels whose step may need them."""
    for y in range(known):
        work.mass[y] /= weights.z[y]
        work.key[y] /= weights.z[y]
        if work.old[y] != 0.0 or update == ALL_PAIRS:
            work.log_rest[y] = _log_weights(weights, y, cols, x, work)
            if work.old[y] != 0.0:
                _, work.key[y], _ = tilt(work.log_weight[y], work.log_rest[y], x, 0.0)
    if update != ALL_PAIRS:
        r, s, _ = worst_pair(np.int64(TILTED), known, work.relevant, work.key)
        for y in (r, s):
            if work.old[y] == 0.0:
                work.log_rest[y] = _log_weights(weights, y, cols, x, work)


@helper
def apply_tilted(weights, y, cols, x, change, growth):
    """Add change * x to theta[:, y] on the columns of the row; `growth` is the change of log Z."""
    for j in range(cols.size):
        weights.theta[cols[j], y] += change * x[j]
    if not _renormalise(weights, y, change, growth):
        for j in range(cols.size):
            weights.v[cols[j], y] = math.exp(weights.theta[cols[j], y] - weights.c[y])


@helper
def apply_flat(weights, y, cols, change, growth):
    """`apply_tilted` for a row of ones: one exponential in all."""
    theta, v = weights.theta, weights.v
    for j in range(cols.size):
        theta[cols[j], y] += change
    if not _renormalise(weights, y, change, growth):
        factor = math.exp(change) if abs(change) < WIDEST else 0.0
        for j in range(cols.size):
            weight = v[cols[j], y] * factor
            v[cols[j], y] = weight if weight > TINY else math.exp(theta[cols[j], y] - weights.c[y])


@helper(hot=True)
def _renormalise(weights, y, change, growth):
    """Multiply z of label y by e^growth; return True if its column was recomputed instead."""
    z, slack = weights.z, weights.slack
    if abs(math.log(z[y]) + growth) > WIDEST:
        refresh(weights, y)
        return True
    grown = z[y] * math.exp(growth)
    # The absolute error of the old z remains in the new one, which may be much smaller.
    slack[y] += ROUNDING * (z[y] + grown * (1.0 + abs(growth) + abs(change)))
    z[y] = grown
    if slack[y] > DRIFT * grown:
        refresh(weights, y)
        return True
    return False


@compiled
def refresh(weights, y):
    """Recompute the column and the normaliser of label y from theta."""
    theta, v, c, used, n_features = weights.theta, weights.v, weights.c, weights.used, weights.n_features
    top = 0.0 if used < n_features else theta[0, y]
    for j in range(used):
        top = max(top, theta[j, y])
    total = (n_features - used) * math.exp(-top) if used < n_features else 0.0
    for j in range(used):
        total += math.exp(theta[j, y] - top)
    c[y] = top + math.log(total)
    weights.z[y] = 1.0
    weights.slack[y] = ROUNDING
    for j in range(used):
        v[j, y] = math.exp(theta[j, y] - c[y])


@helper
def _log_rest(weights, y, cols, mark):
    """Return the log mass of label y outside the row, as a new sum without cancellation."""
    theta, v, used = weights.theta, weights.v, weights.used
    for j in range(cols.size):
        mark[cols[j]] = 1
    outside = weights.n_features - used
    total = outside * math.exp(-weights.c[y]) if outside else 0.0
    for j in range(used):
        if not mark[j]:
            total += v[j, y]
    # If this sum underflows, the largest theta is taken out before the exponentials.
    if total >= TINY:
        result = math.log(total) - math.log(weights.z[y])
    else:
        top = 0.0 if outside else -math.inf
        for j in range(used):
            if not mark[j]:
                top = max(top, theta[j, y])
        total = outside * math.exp(-top) if outside else 0.0
        for j in range(used):
            if not mark[j]:
                total += math.exp(theta[j, y] - top)
        log_z = math.log(weights.z[y])
        result = top + math.log(total) - weights.c[y] - log_z if total > 0.0 else -math.inf
    for j in range(cols.size):
        mark[cols[j]] = 0
    return result


@helper
def _logit(mass, weights, y, cols, mark):
    """Return the logit of the mass of label y on the row, if the mass itself rounds to 0 or 1."""
    if mass < TINY:
        top = -math.inf
        for j in range(cols.size):
            top = max(top, weights.theta[cols[j], y])
        total = 0.0
        for j in range(cols.size):
            total += math.exp(weights.theta[cols[j], y] - top)
        log_q = top + math.log(total) - weights.c[y] - math.log(weights.z[y])
        return log_q - math.log1p(-math.exp(log_q))
    rest = _log_rest(weights, y, cols, mark)
    return math.log1p(-math.exp(rest)) - rest


@helper
def _log_weights(weights, y, cols, x, work):
    """Write the log weights of label y on the row without its old step; return the log weight of the rest."""
    log_z = weights.c[y] + math.log(weights.z[y])
    for j in range(cols.size):
        work.log_weight[y, j] = weights.theta[cols[j], y] - log_z - work.old[y] * x[j]
    if work.mass[y] > SATURATED:
        return _log_rest(weights, y, cols, work.mark)
    return math.log1p(-work.mass[y])
