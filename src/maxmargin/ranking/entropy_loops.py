"""Label ranking under the entropy: one compiled loop over the rounds of a stream.

The weights of label y are w_j = e^(theta_j) / Z over all n coordinates, 1/n at first. Three
arrays carry them, feature-major: `theta` is the master (an underflowed weight can come back),
`v` = e^(theta - c_y) makes scoring free of exponentials, and `z` = Z_y e^(-c_y) stays within
[1e-100, 1e100]: a step slack only the columns of its row, and a label's column is computed
anew when z leaves that range or after as many slack as there are columns. Coordinates that
never occurred have theta = 0 and are counted, not stored.

A row is NULL (constant: it cannot move any weight), LOGISTIC (two values, base and base +
slope, which covers binary rows) or TILTED (anything else); see `ranking_steps`.
"""

from __future__ import annotations

import math

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.ranking.interior_loops import interior_point
from maxmargin.ranking.loops import (
    ALL_PAIRS,
    CURVATURE,
    EXACT,
    FIRST,
    FIXED,
    GAIN,
    GAP,
    LOSS,
    MASS,
    MISTAKE,
    WORST_PAIR,
    add_rows,
    enter_round,
    track_threshold,
)
from maxmargin.ranking.step_loops import (
    LOGISTIC,
    SATURATED,
    TILTED,
    key_of,
    level,
    log_growth,
    pair_step,
    round_gap,
    score_of,
    tie_width,
    tilt,
    tilted_pair_step,
    water_fill,
    worst_pair,
)

NULL = -1
TINY = 1e-200
ROUNDING = 4e-16
DRIFT = 1e-12
WIDEST = 230.0


@compiled
def survey_rows(data, indptr, n_features, kind, base, slope, spread):
    """Kind of every row, its base and slope (two values), and the range of its values."""
    for i in range(indptr.size - 1):
        low, high, count = math.inf, -math.inf, 0
        for e in range(indptr[i], indptr[i + 1]):
            if data[e] != 0.0:
                count += 1
                low, high = min(low, data[e]), max(high, data[e])
        base[i], slope[i], spread[i] = 0.0, 0.0, 0.0
        if count == 0 or (count == n_features and low == high):
            kind[i] = NULL
            base[i] = low if count else 0.0
        elif low == high:
            kind[i], slope[i], spread[i] = LOGISTIC, low, abs(low)
        elif count == n_features:
            between = False
            for e in range(indptr[i], indptr[i + 1]):
                between = between or low < data[e] < high
            kind[i], spread[i] = TILTED if between else LOGISTIC, high - low
            if not between:
                base[i], slope[i] = low, high - low
        else:
            kind[i], spread[i] = TILTED, max(high, 0.0) - min(low, 0.0)


@compiled
def refresh(theta, v, c, z, slack, y, used, n_features):
    """Recompute the column and normaliser of label y from its master theta."""
    top = 0.0 if used < n_features else theta[0, y]
    for j in range(used):
        top = max(top, theta[j, y])
    total = (n_features - used) * math.exp(-top) if used < n_features else 0.0
    for j in range(used):
        total += math.exp(theta[j, y] - top)
    c[y] = top + math.log(total)
    z[y] = 1.0
    slack[y] = ROUNDING
    for j in range(used):
        v[j, y] = math.exp(theta[j, y] - c[y])


@compiled
def _log_rest(theta, v, c, z, y, cols, mark, used, n_features):
    """Log of the mass of label y outside the row, summed afresh: no cancellation."""
    for j in range(cols.size):
        mark[cols[j]] = 1
    outside = n_features - used
    total = outside * math.exp(-c[y]) if outside else 0.0
    for j in range(used):
        if not mark[j]:
            total += v[j, y]
    if total >= TINY:
        result = math.log(total) - math.log(z[y])
    else:
        top = 0.0 if outside else -math.inf
        for j in range(used):
            if not mark[j]:
                top = max(top, theta[j, y])
        total = outside * math.exp(-top) if outside else 0.0
        for j in range(used):
            if not mark[j]:
                total += math.exp(theta[j, y] - top)
        result = top + math.log(total) - c[y] - math.log(z[y]) if total > 0.0 else -math.inf
    for j in range(cols.size):
        mark[cols[j]] = 0
    return result


@compiled
def _logit(mass, theta, v, c, z, y, cols, mark, used, n_features):
    """Logit of the mass of label y on the row, where its plain value is 0 or 1 up to rounding."""
    if mass < TINY:
        top = -math.inf
        for j in range(cols.size):
            top = max(top, theta[cols[j], y])
        total = 0.0
        for j in range(cols.size):
            total += math.exp(theta[cols[j], y] - top)
        log_q = top + math.log(total) - c[y] - math.log(z[y])
        return log_q - math.log1p(-math.exp(log_q))
    rest = _log_rest(theta, v, c, z, y, cols, mark, used, n_features)
    return math.log1p(-math.exp(rest)) - rest


@compiled
def _growth(key, alpha, relevant, known, gamma):
    """Dual gain of a step on a row of two values."""
    gain = 0.0
    for y in range(known):
        if alpha[y] != 0.0:
            gain -= log_growth(level(key[y], LOGISTIC), alpha[y])
            if relevant[y]:
                gain += gamma * alpha[y]
    return gain


@compiled
def _tilted_gain(log_weight, log_rest, x, alpha, relevant, known, gamma):
    """Dual gain of a step on any row."""
    gain = 0.0
    for y in range(known):
        if alpha[y] != 0.0:
            after, _, _ = tilt(log_weight[y], log_rest[y], x, x.size, alpha[y])
            before, _, _ = tilt(log_weight[y], log_rest[y], x, x.size, 0.0)
            gain -= after - before
            if relevant[y]:
                gain += gamma * alpha[y]
    return gain


@compiled
def _log_weights(theta, v, c, z, y, cols, x, mass, removed, mark, used, n_features, out):
    """Fill the log weights of label y on the row, less the step `removed`; return that of the rest."""
    log_z = c[y] + math.log(z[y])
    for j in range(cols.size):
        out[j] = theta[cols[j], y] - log_z - removed * x[j]
    if mass > SATURATED:
        return _log_rest(theta, v, c, z, y, cols, mark, used, n_features)
    return math.log1p(-mass)


@compiled(inline=True)
def _renormalise(theta, v, c, z, slack, y, change, growth, used, n_features):
    """Scale z of label y by e^growth; True when its column was computed anew instead."""
    if abs(math.log(z[y]) + growth) > WIDEST:
        refresh(theta, v, c, z, slack, y, used, n_features)
        return True
    grown = z[y] * math.exp(growth)
    # Rounding of the old z stays in the new one, which may be much smaller.
    slack[y] += ROUNDING * (z[y] + grown * (1.0 + abs(growth) + abs(change)))
    z[y] = grown
    if slack[y] > DRIFT * grown:
        refresh(theta, v, c, z, slack, y, used, n_features)
        return True
    return False


@compiled
def _apply(theta, v, c, z, slack, y, cols, x, change, growth, used, n_features):
    """theta[:, y] += change x on the columns of the row; `growth` is the change of log Z."""
    for j in range(cols.size):
        theta[cols[j], y] += change * x[j]
    if not _renormalise(theta, v, c, z, slack, y, change, growth, used, n_features):
        for j in range(cols.size):
            v[cols[j], y] = math.exp(theta[cols[j], y] - c[y])


@compiled
def _apply_flat(theta, v, c, z, slack, y, cols, change, growth, used, n_features):
    """`_apply` for a row of ones: one exponential in all."""
    for j in range(cols.size):
        theta[cols[j], y] += change
    if not _renormalise(theta, v, c, z, slack, y, change, growth, used, n_features):
        factor = math.exp(change) if abs(change) < WIDEST else 0.0
        for j in range(cols.size):
            weight = v[cols[j], y] * factor
            v[cols[j], y] = weight if weight > TINY else math.exp(theta[cols[j], y] - c[y])


@compiled
def entropy_rounds(
    start, cols_, x_, order, label_start, labels,
    used, n_features, theta, v, c, z, slack, kinds, bases, slopes, spreads,
    known, gamma_, C_, update, solver, steps, again, threshold, record,
):  # fmt: skip
    """Run the rounds of `order`; returns the number of known labels. See `squared_rounds`."""
    capacity = theta.shape[1]
    longest = tilted = 0
    for t in range(order.size):
        longest = max(longest, start[t + 1] - start[t])
        if kinds[order[t]] == TILTED:
            tilted = max(tilted, start[t + 1] - start[t])
    ones = np.ones(longest)
    mass, mean, key = np.empty(capacity), np.empty(capacity), np.empty(capacity)
    alpha, old, logit = np.zeros(capacity), np.zeros(capacity), np.empty(capacity)
    log_weight, log_rest = np.empty((capacity if tilted else 0, tilted)), np.empty(capacity)
    relevant, mark = np.zeros(capacity, np.uint8), np.zeros(theta.shape[0], np.uint8)
    inside, outside = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    keep = steps.shape[0] > 0
    for t in range(order.size):
        i = order[t]
        kind, base, spread = kinds[i], bases[i], spreads[i]
        cols, x = cols_[start[t] : start[t + 1]], x_[start[t] : start[t + 1]]
        size = cols.size
        before = known
        known, n_relevant = enter_round(labels, label_start[i], label_start[i + 1], known, relevant)
        record[t, FIRST] = known > before
        if 0 < n_relevant < known:
            record[t, CURVATURE] = 0.25 * spread * spread
            if kind == NULL:
                record[t, MISTAKE], record[t, LOSS] = 1.0, gamma_
                if not again:
                    record[t, MASS], record[t, GAIN] = C_, gamma_ * C_
                track_threshold(threshold, base)
                if keep and not again:
                    for y in range(known):
                        key[y] = 0.0
                    r, s, _ = worst_pair(key, relevant, known, 0.0)
                    steps[i, r], steps[i, s] = C_, -C_
            else:
                gamma, C = gamma_ / spread, C_ * spread
                sign = -1.0 if kind == LOGISTIC and slopes[i] < 0.0 else 1.0
                for y in range(known):
                    mass[y] = mean[y] = alpha[y] = 0.0
                add_rows(v, cols, ones[:size], known, mass)
                if kind == TILTED:
                    add_rows(v, cols, x, known, mean)
                if again:
                    for y in range(known):
                        old[y] = steps[i, y] * spread
                if kind == LOGISTIC:
                    # Scores are offset + spread * H: the larger of the two values is the event.
                    offset = base if sign > 0.0 else -spread
                    for y in range(known):
                        q = mass[y] / z[y]
                        if q > SATURATED or mass[y] < TINY:
                            key[y] = key_of(_logit(mass[y], theta, v, c, z, y, cols, mark, used, n_features))
                        else:
                            key[y] = q
                    if sign < 0.0 or again:
                        for y in range(known):
                            logit[y] = level(key[y], LOGISTIC)
                            if sign < 0.0 or old[y] != 0.0:
                                key[y] = key_of(sign * logit[y] - old[y])
                else:
                    offset = 0.0
                    for y in range(known):
                        mass[y] /= z[y]
                        key[y] = mean[y] / z[y]
                        if old[y] != 0.0 or update == ALL_PAIRS:
                            log_rest[y] = _log_weights(
                                theta, v, c, z, y, cols, x, mass[y], old[y], mark, used, n_features,
                                log_weight[y],
                            )  # fmt: skip
                            if old[y] != 0.0:
                                _, key[y], _ = tilt(log_weight[y], log_rest[y], x, size, 0.0)
                r, s, mistake = worst_pair(key, relevant, known, tie_width(key, known, kind))
                if kind == TILTED and update != ALL_PAIRS:
                    for y in (r, s):
                        if old[y] == 0.0:
                            log_rest[y] = _log_weights(
                                theta, v, c, z, y, cols, x, mass[y], 0.0, mark, used, n_features,
                                log_weight[y],
                            )  # fmt: skip
                p_r, p_s = key[r], key[s]
                if kind == LOGISTIC:
                    p_r, p_s = score_of(p_r, LOGISTIC), score_of(p_s, LOGISTIC)
                loss = max(0.0, gamma - (p_r - p_s))
                record[t, MISTAKE], record[t, LOSS] = mistake, loss * spread
                track_threshold(threshold, offset + spread * 0.5 * (p_r + p_s))
                step_mass = 0.0
                if update == FIXED:
                    if mistake:
                        step_mass = C
                        alpha[r], alpha[s] = C, -C
                elif loss > 0.0:
                    if update == WORST_PAIR:
                        if kind == LOGISTIC:
                            step_mass = pair_step(level(key[r], kind), level(key[s], kind), gamma, C, kind)
                        else:
                            step_mass = tilted_pair_step(
                                log_weight[r], log_rest[r], log_weight[s], log_rest[s], x, size, gamma, C
                            )
                        alpha[r], alpha[s] = step_mass, -step_mass
                    elif kind == LOGISTIC and solver == EXACT:
                        step_mass = water_fill(key, relevant, known, gamma, C, kind, inside, outside, alpha)
                    else:
                        if kind == LOGISTIC:
                            for y in range(known):
                                mean[y] = level(key[y], kind)
                        interior_point(
                            mean, log_weight, log_rest, x, size,
                            relevant, known, gamma, C, kind, loss, alpha,
                        )  # fmt: skip
                        for y in range(known):
                            step_mass += alpha[y] * relevant[y]
                    if update == ALL_PAIRS:
                        gap = round_gap(
                            key, log_weight, log_rest, x, size, relevant, known, gamma, C, kind, alpha
                        )
                        record[t, GAP] = gap / (C * (loss + abs(p_r) + abs(p_s)))
                if kind == LOGISTIC:
                    gain = _growth(key, alpha, relevant, known, gamma)
                    kept = _growth(key, old, relevant, known, gamma) if again else 0.0
                else:
                    gain = _tilted_gain(log_weight, log_rest, x, alpha, relevant, known, gamma)
                    kept = 0.0
                    if again:
                        kept = _tilted_gain(log_weight, log_rest, x, old, relevant, known, gamma)
                if again and kept > gain:
                    gain = kept
                    for y in range(known):
                        alpha[y] = old[y]
                record[t, GAIN], record[t, MASS] = gain - kept, step_mass / spread
                for y in range(known):
                    change = alpha[y] - old[y]
                    if keep:
                        steps[i, y] = alpha[y] / spread
                    if change == 0.0:
                        continue
                    if kind == LOGISTIC:
                        now = logit[y] if sign < 0.0 or again else level(key[y], kind)
                        growth = log_growth(now, sign * change)
                        _apply_flat(theta, v, c, z, slack, y, cols, sign * change, growth, used, n_features)
                    else:
                        after, _, _ = tilt(log_weight[y], log_rest[y], x, size, alpha[y])
                        now, _, _ = tilt(log_weight[y], log_rest[y], x, size, old[y])
                        _apply(theta, v, c, z, slack, y, cols, x, change, after - now, used, n_features)
        for e in range(label_start[i], label_start[i + 1]):
            relevant[labels[e]] = 0
    return known
