"""Label ranking under the squared norm: one compiled loop over the rounds of a stream.

Weights are feature-major (W[slot, label]), so that the scores of all labels are a sum of
contiguous rows, one per nonzero of x. `slots` maps a column of X to its row of W; a column
that never occurred has none, so a hashed space of millions costs only what was seen.

A round: score, judge, step (see `ranking_steps`), W[slot, y] += alpha_y x. Labels are known
from the round in which they first occur. With `steps` (rows x labels) given, a later pass
takes the example's old step out before it finds the new one, and keeps the better of both,
so the dual never decreases.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.ranking.interior_loops import interior_point
from maxmargin.ranking.step_loops import (
    LINEAR,
    pair_step,
    round_gap,
    tie_width,
    water_fill,
    worst_pair,
)

FIXED, WORST_PAIR, ALL_PAIRS = 1, 2, 3
EXACT, INTERIOR_POINT = 0, 1
# Columns of the record of a round.
MISTAKE, LOSS, GAIN, MASS, GAP, FIRST, CURVATURE, N_RECORD = 0, 1, 2, 3, 4, 5, 6, 7


@compiled
def assign_slots(indices, slots, used):
    """Give every column that occurs for the first time the next free slot, in order of occurrence."""
    for e in range(indices.size):
        if slots[indices[e]] < 0:
            slots[indices[e]] = used
            used += 1
    return used


@compiled
def gather_rows(rows, order, slots, base, scale, start, cols, vals):
    """Lay out the rows of `order` as slots and values (x - base) / scale, without entries at base or 0.

    `base` and `scale` are per row, or empty for 0 and 1. The rounds read nothing but this, so that
    they are compiled once for all kinds of X.
    """
    data, indices, indptr, dense = rows
    size = 0
    for t in range(order.size):
        i = order[t]
        start[t] = size
        zero, one = (base[i], scale[i]) if base.size else (0.0, 1.0)
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[e])
            if x != zero and x != 0.0:
                cols[size] = np.uint32(slots[indices[e - dense * indptr[i]]])
                vals[size] = (x - zero) / one
                size += 1
    start[order.size] = size


@compiled
def weigh_rows(rows, counts, seen, learn, out):
    """Weigh entries by how rare their column was before, and bring every row to unit length.

    Entry x_j of round t becomes x_j log((2 + t) / (1 + counts[j])); with `learn` each row counts for
    those after it. Returns the number of rows counted.
    """
    data, indices, indptr, dense = rows
    for i in range(indptr.size - 1):
        norm = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = data[e]
            if data[e] != 0.0:
                j = indices[e - dense * indptr[i]]
                # Columns beyond the counts have never been met.
                met = counts[j] if j < counts.size else 0
                out[e] *= np.log((2.0 + seen) / (1.0 + met))
                norm += np.float64(out[e]) * out[e]
                if learn:
                    counts[j] += 1
        if norm > 0.0:
            norm = np.sqrt(norm)
            for e in range(indptr[i], indptr[i + 1]):
                out[e] /= norm
        if learn:
            seen += 1
    return seen


@compiled(inline=True)
def add_rows(W, cols, vals, known, out):
    """out += sum over the row of vals[j] W[cols[j]], four rows at a time."""
    size = cols.size
    j = 0
    while j + 4 <= size:
        w0, w1, w2, w3 = W[cols[j]], W[cols[j + 1]], W[cols[j + 2]], W[cols[j + 3]]
        x0, x1, x2, x3 = vals[j], vals[j + 1], vals[j + 2], vals[j + 3]
        for y in range(known):
            out[y] += (x0 * w0[y] + x1 * w1[y]) + (x2 * w2[y] + x3 * w3[y])
        j += 4
    while j < size:
        w0, x0 = W[cols[j]], vals[j]
        for y in range(known):
            out[y] += x0 * w0[y]
        j += 1


@compiled
def score_rows(rows, slots, W, unseen, out):
    """Scores of every row; `unseen` is the weight of a column without a slot, per label."""
    data, indices, indptr, dense = rows
    known = out.shape[1]
    longest = 0
    for i in range(indptr.size - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    cols, vals = np.empty(longest, np.uint32), np.empty(longest)
    for i in range(indptr.size - 1):
        size, rest = 0, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            slot = slots[indices[e - dense * indptr[i]]]
            if slot < 0:
                rest += data[e]
            elif data[e] != 0.0:
                cols[size], vals[size] = np.uint32(slot), data[e]
                size += 1
        row = out[i]
        for y in range(known):
            row[y] = rest * unseen[y]
        add_rows(W, cols[:size], vals[:size], known, row)


@compiled(inline=True)
def enter_round(labels, start, stop, known, relevant):
    """Mark the relevant labels; return how many labels are now known and how many are relevant."""
    new_known = known
    for e in range(start, stop):
        relevant[labels[e]] = 1
        new_known = max(new_known, np.int64(labels[e]) + 1)
    return new_known, stop - start


@compiled(inline=True)
def track_threshold(threshold, middle):
    """Follow the midpoint between the worst relevant and the best other score."""
    threshold[1] += 1.0
    rate = threshold[2] / (threshold[1] + threshold[2] - 1.0)
    threshold[0] += rate * (middle - threshold[0])


@compiled
def _gain(p, alpha, relevant, known, gamma):
    """Dual gain of a step in normal form."""
    gain = 0.0
    for y in range(known):
        if alpha[y] != 0.0:
            gain -= alpha[y] * (p[y] + 0.5 * alpha[y])
            if relevant[y]:
                gain += gamma * alpha[y]
    return gain


@compiled
def squared_rounds(
    start, cols_, vals_, order, label_start, labels,
    W, weighted, known, n_before, gamma, C, update, solver, steps, again, threshold, record,
):  # fmt: skip
    """Run the rounds of `order`, whose rows `gather_rows` laid out; returns the number of known labels.

    `weighted` is the sum of (round number) x (step) for averaging, or empty; `n_before` counts
    the rounds before this call; `again` says that `steps` holds the steps of an earlier pass.
    """
    capacity = W.shape[1]
    p, alpha, old = np.empty(capacity), np.zeros(capacity), np.zeros(capacity)
    relevant = np.zeros(capacity, np.uint8)
    inside, outside = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    nothing, nothing2 = np.empty(0), np.empty((0, 0))
    # Typed, because a literal argument would compile the callees once more.
    kind, none = np.int64(LINEAR), np.int64(0)
    keep, average = steps.shape[0] > 0, weighted.shape[0] > 0
    for t in range(order.size):
        i = order[t]
        cols, vals = cols_[start[t] : start[t + 1]], vals_[start[t] : start[t + 1]]
        size, norm = cols.size, 0.0
        for j in range(size):
            norm += vals[j] * vals[j]
        before = known
        known, n_relevant = enter_round(labels, label_start[i], label_start[i + 1], known, relevant)
        record[t, FIRST] = known > before
        if 0 < n_relevant < known:
            for y in range(known):
                p[y] = 0.0
            add_rows(W, cols, vals, known, p)
            if again:
                for y in range(known):
                    old[y] = steps[i, y] * norm
                    p[y] -= old[y]
            r, s, mistake = worst_pair(p, relevant, known, tie_width(p, known, kind))
            loss = max(0.0, gamma - (p[r] - p[s]))
            record[t, MISTAKE], record[t, LOSS], record[t, CURVATURE] = mistake, loss, norm
            track_threshold(threshold, 0.5 * (p[r] + p[s]))
            if norm == 0.0:
                if not again:
                    record[t, MASS], record[t, GAIN] = C, gamma * C
                    if keep:
                        steps[i, r], steps[i, s] = C, -C
            else:
                for y in range(known):
                    alpha[y] = 0.0
                limit = C * norm
                mass = 0.0
                if update == FIXED:
                    if mistake:
                        mass = limit
                        alpha[r], alpha[s] = limit, -limit
                elif loss > 0.0:
                    if update == WORST_PAIR:
                        mass = pair_step(p[r], p[s], gamma, limit, kind)
                        alpha[r], alpha[s] = mass, -mass
                    elif solver == EXACT:
                        mass = water_fill(p, relevant, known, gamma, limit, kind, inside, outside, alpha)
                    else:
                        interior_point(
                            p, nothing2, nothing, nothing, none,
                            relevant, known, gamma, limit, kind, loss, alpha,
                        )  # fmt: skip
                        for y in range(known):
                            mass += alpha[y] * relevant[y]
                    if update == ALL_PAIRS:
                        gap = round_gap(
                            p, nothing2, nothing, nothing, none,
                            relevant, known, gamma, limit, kind, alpha,
                        )  # fmt: skip
                        record[t, GAP] = gap / (limit * (loss + abs(p[r]) + abs(p[s])))
                gain = _gain(p, alpha, relevant, known, gamma)
                if again:
                    kept = _gain(p, old, relevant, known, gamma)
                    if kept > gain:
                        gain = kept
                        for y in range(known):
                            alpha[y] = old[y]
                    gain -= kept
                record[t, GAIN] = gain / norm
                record[t, MASS] = mass / norm
                for y in range(known):
                    if alpha[y] != 0.0 or old[y] != 0.0:
                        change = (alpha[y] - old[y]) / norm
                        if keep:
                            steps[i, y] = alpha[y] / norm
                        if change != 0.0:
                            for j in range(size):
                                W[cols[j], y] += change * vals[j]
                            if average:
                                late = (n_before + t + 1.0) * change
                                for j in range(size):
                                    weighted[cols[j], y] += late * vals[j]
        for e in range(label_start[i], label_start[i + 1]):
            relevant[labels[e]] = 0
    return known


@compiled
def add_steps(rows, steps, known, W, slots):
    """W += sum over rows of steps[i, y] x_i: the weights of a stored dual solution."""
    data, indices, indptr, dense = rows
    for i in range(indptr.size - 1):
        for y in range(known):
            alpha = steps[i, y]
            if alpha != 0.0:
                for e in range(indptr[i], indptr[i + 1]):
                    if data[e] != 0.0:
                        W[np.uint64(slots[indices[e - dense * indptr[i]]]), y] += alpha * data[e]


@compiled
def hinge_losses(scores, label_start, labels, born, gamma, out):
    """Loss of every row over the labels known in its round (`born[y]` <= row index)."""
    known = scores.shape[1]
    relevant = np.zeros(known, np.uint8)
    for i in range(scores.shape[0]):
        for e in range(label_start[i], label_start[i + 1]):
            relevant[labels[e]] = 1
        low, high = np.inf, -np.inf
        for y in range(known):
            if born[y] <= i:
                if relevant[y]:
                    low = min(low, scores[i, y])
                else:
                    high = max(high, scores[i, y])
        out[i] = max(0.0, gamma - (low - high))
        for e in range(label_start[i], label_start[i + 1]):
            relevant[labels[e]] = 0
