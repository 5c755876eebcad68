"""Label ranking: one compiled loop over the rounds of a stream, under both regularisers.

A round has four steps:

1. score all labels, which puts the round in normal form (`score_squared`, `score_entropy`);
2. find the worst pair, its loss, and the threshold (`evaluate_round`);
3. find the step alpha (`find_step`, or `interior_loops` for rows without a closed form);
4. add alpha_y x to the weights (`apply_squared`, `apply_entropy`).

`rounds` takes the weights of one regulariser and None for the other, and is compiled for the one it gets.
A label is known from the round in which it first occurs. If the steps of all rows are stored, a later pass
removes the old step of a row before it finds the new one, and keeps the better of both, so that the dual
never decreases.

Weights are feature-major (W[slot, label]): the scores of all labels are a sum of contiguous rows, one for
each nonzero of x. `slots` maps a column of X to its row of W; a column without entries has no slot, so a
hashed space of millions of columns takes memory for the columns in use only. `entropy_loops` describes the
weights of the entropy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.ranking.entropy_loops import apply_flat, apply_tilted, tilted_keys, two_value_keys
from maxmargin.ranking.interior_loops import interior_point
from maxmargin.ranking.step_loops import (
    ALL_PAIRS,
    FIXED,
    LINEAR,
    LOGISTIC,
    NULL,
    TILTED,
    WORST_PAIR,
    Round,
    Shapes,
    dual_gain,
    level,
    log_growth,
    pair_step,
    round_gap,
    score_of,
    tilt,
    tilted_pair_step,
    water_fill,
    worst_pair,
)

# Columns of the record that every round writes.
MISTAKE, LOSS, GAIN, MASS, GAP, FIRST, CURVATURE, N_RECORD = 0, 1, 2, 3, 4, 5, 6, 7


class Relevant(NamedTuple):
    """Relevant labels of all rows: those of row i are `labels[start[i]:start[i + 1]]`."""

    start: np.ndarray
    labels: np.ndarray


class Batch(NamedTuple):
    """The rows of some rounds as slots and values, in the order of the rounds.

    Round t has `cols[start[t]:start[t + 1]]`. It is row `order[t]` of `relevant` and `shapes`, and round
    number `first + t` of the fit.
    """

    start: np.ndarray
    cols: np.ndarray
    vals: np.ndarray
    order: np.ndarray
    relevant: Relevant
    shapes: Shapes
    first: int


class Rule(NamedTuple):
    """The margin, the largest step, and the update (I, II or III)."""

    gamma: float
    C: float
    update: int


class SquaredWeights(NamedTuple):
    """W, and the sum of (round number) x (step), which is empty unless weights are averaged."""

    W: np.ndarray
    weighted: np.ndarray


class Memory(NamedTuple):
    """Stored steps, one row per row of X (empty: none); `again` means that they are of an earlier pass."""

    steps: np.ndarray
    again: bool


class Log(NamedTuple):
    """The threshold (value, rounds, growth of weights) and one line per round."""

    threshold: np.ndarray
    record: np.ndarray


class Work(NamedTuple):
    """Workspace of a round, by label except `log_weight`, `mark` (slots) and `ones` (entries of x)."""

    relevant: np.ndarray
    key: np.ndarray
    alpha: np.ndarray
    old: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    mass: np.ndarray
    logit: np.ndarray
    log_weight: np.ndarray
    log_rest: np.ndarray
    mark: np.ndarray
    ones: np.ndarray

    @classmethod
    def of(cls, batch: Batch, n_slots: int, n_labels: int) -> Work:
        """Return a workspace for the rows of a batch."""
        sizes, kinds = np.diff(batch.start), batch.shapes.kind
        tilted = int(sizes[kinds[batch.order] == TILTED].max(initial=0)) if kinds.size else 0
        key, mass, logit, log_rest = np.empty((4, n_labels))
        alpha, old = np.zeros((2, n_labels))
        inside, outside = np.empty((2, n_labels), np.int64)
        return cls(
            np.zeros(n_labels, np.uint8), key, alpha, old, inside, outside, mass, logit,
            np.empty((n_labels if tilted else 0, tilted)), log_rest,
            np.zeros(n_slots, np.uint8), np.ones(sizes.max(initial=0)),
        )  # fmt: skip


@compiled
def assign_slots(indices, slots, used):
    """Give every column that occurs for the first time the next free slot; return the number of slots."""
    for e in range(indices.size):
        if slots[indices[e]] < 0:
            slots[indices[e]] = used
            used += 1
    return used


@compiled
def gather_rows(rows, order, slots, shapes, start, cols, vals):
    """Write the rows of `order` as slots and values (x - base) / span, without entries equal to base or 0.

    Base and span are those of `shapes`, or 0 and 1 where it is empty. The rounds read only this copy, so they
    are compiled once for all types of X.
    """
    data, indices, indptr, dense = rows
    size = 0
    for t in range(order.size):
        i = order[t]
        start[t] = size
        zero, one = (shapes.base[i], shapes.span[i]) if shapes.base.size else (0.0, 1.0)
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[e])
            if x != zero and x != 0.0:
                cols[size] = np.uint32(slots[indices[e - dense * indptr[i]]])
                vals[size] = (x - zero) / one
                size += 1
    start[order.size] = size


@compiled
def weight_rows(rows, counts, seen, learn, smooth, damped, out):
    """Multiply every entry by the rarity of its column, and scale every row to unit length.

    The factor of entry x_j in round t is smooth + log((2 + t) / (1 + counts[j])), or its square root if
    `damped`. With `learn`, each row is added to the counts before the next one. Returns the number of rows
    counted.
    """
    data, indices, indptr, dense = rows
    for i in range(indptr.size - 1):
        norm = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = data[e]
            if data[e] != 0.0:
                j = indices[e - dense * indptr[i]]
                # Columns beyond the counts have not occurred yet.
                met = counts[j] if j < counts.size else 0
                rarity = smooth + np.log((2.0 + seen) / (1.0 + met))
                out[e] *= np.sqrt(rarity) if damped else rarity
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


@helper(hot=True)
def add_rows(W, cols, vals, known, out):
    """Add the sum of vals[j] W[cols[j]] over the row to `out`, four rows of W at a time."""
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


@compiled(allocates=True)
def score_rows(rows, slots, W, unseen, out):
    """Write the scores of every row; `unseen` is the weight of columns without a slot, per label."""
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


@compiled
def rounds(batch, squared, entropy, interior, rule, known, memory, log, work):
    """Run the rounds of a batch with the weights `squared` or `entropy`; the other one is None.

    `interior` is None if no step needs the interior point method, which is then not compiled. True sends all
    steps of update III there, False only those of TILTED rows. Returns the number of known labels.
    """
    for t in range(batch.order.size):
        i, before = batch.order[t], known
        known, n_relevant = mark_relevant(batch.relevant, i, known, work.relevant)
        log.record[t, FIRST] = known > before
        if 0 < n_relevant < known:
            cols = batch.cols[batch.start[t] : batch.start[t + 1]]
            x = batch.vals[batch.start[t] : batch.start[t + 1]]
            # Scores are offset + scale * H(u_y), without the old step of the row; steps are unit * alpha.
            if squared is not None:
                kind, offset, scale, unit, kappa = score_squared(squared, cols, x, known, i, memory, work)
            if entropy is not None:
                kind, offset, scale, unit, kappa = score_entropy(
                    entropy, batch.shapes, cols, x, known, rule.update, i, memory, work
                )
            log.record[t, CURVATURE] = kappa
            form = Round(
                kind, rule.gamma / scale, rule.C * unit, known,
                work.relevant, work.key, work.log_weight, work.log_rest, x,
            )  # fmt: skip
            r, s, mistake, loss, size = evaluate_round(form, offset, scale, log, t)
            if unit == 0.0:
                null_step(rule, i, r, s, memory, log.record[t])
            else:
                # Update I, II or III: the step alpha and its mass.
                all_pairs = rule.update == ALL_PAIRS and loss > 0.0
                by_path = False
                if interior is not None:
                    by_path = all_pairs and (interior or kind == TILTED)
                    if by_path:
                        mass = interior_point(form, loss, work.alpha)
                if not by_path:
                    mass = find_step(form, rule, r, s, mistake, loss, work.inside, work.outside, work.alpha)
                if all_pairs:
                    log.record[t, GAP] = round_gap(form, work.alpha) / (form.C * (loss + size))
                # theta_y += alpha_y x / unit, where this gains more of the dual than the old step.
                gain = keep_better_step(form, memory.again, work)
                log.record[t, GAIN], log.record[t, MASS] = gain / (unit / scale), mass / unit
                store_step(memory, i, unit, known, work)
                if squared is not None:
                    apply_squared(squared, cols, x, known, unit, batch.first + t, work)
                if entropy is not None:
                    apply_entropy(entropy, form, cols, batch.shapes.slope[i], memory.again, work)
        clear_marks(batch.relevant, i, work.relevant)
    return known


@helper(hot=True)
def mark_relevant(relevant, i, known, mark):
    """Mark the relevant labels; return how many labels are now known and how many are relevant."""
    for e in range(relevant.start[i], relevant.start[i + 1]):
        mark[relevant.labels[e]] = 1
        known = max(known, np.int64(relevant.labels[e]) + 1)
    return known, relevant.start[i + 1] - relevant.start[i]


@helper(hot=True)
def clear_marks(relevant, i, mark):
    """Remove the marks of the relevant labels."""
    for e in range(relevant.start[i], relevant.start[i + 1]):
        mark[relevant.labels[e]] = 0


@helper(hot=True)
def evaluate_round(form, offset, scale, log, t):
    """Return the worst pair, whether it is a mistake, its loss in normal form, and the size of its scores."""
    r, s, mistake = worst_pair(form.kind, form.known, form.relevant, form.key)
    p_r, p_s = score_of(form.key[r], form.kind), score_of(form.key[s], form.kind)
    loss = max(0.0, form.gamma - (p_r - p_s))
    log.record[t, MISTAKE], log.record[t, LOSS] = mistake, loss * scale
    track_threshold(log.threshold, offset + scale * 0.5 * (p_r + p_s))
    return r, s, mistake, loss, abs(p_r) + abs(p_s)


@helper(hot=True)
def track_threshold(threshold, middle):
    """Move the threshold b (24) towards the middle of the worst relevant and the best other score."""
    threshold[1] += 1.0
    rate = threshold[2] / (threshold[1] + threshold[2] - 1.0)
    threshold[0] += rate * (middle - threshold[0])


@helper(hot=True)
def find_step(form, rule, r, s, mistake, loss, inside, outside, alpha):
    """Write the step of the rule into alpha and return its mass.

    Update I (8): mass C for the worst pair, after a mistake only. Update II (9): the best mass for the worst
    pair. Update III (10): the best step over all pairs, by water filling. `inside` and `outside` are integer
    workspace.
    """
    for y in range(form.known):
        alpha[y] = 0.0
    mass = 0.0
    if rule.update == FIXED:
        if mistake:
            mass = form.C
            alpha[r], alpha[s] = mass, -mass
    elif loss > 0.0:
        if rule.update == WORST_PAIR:
            if form.kind == TILTED:
                mass = tilted_pair_step(form, r, s)
            else:
                u, v = level(form.key[r], form.kind), level(form.key[s], form.kind)
                mass = pair_step(u, v, form.gamma, form.C, form.kind)
            alpha[r], alpha[s] = mass, -mass
        else:
            mass = water_fill(form, inside, outside, alpha)
    return mass


@helper(hot=True)
def null_step(rule, i, r, s, memory, record):
    """Record the step of a row that moves no weight: mass C for the worst pair raises the dual."""
    if not memory.again:
        record[MASS], record[GAIN] = rule.C, rule.gamma * rule.C
        if memory.steps.shape[0] > 0:
            memory.steps[i, r], memory.steps[i, s] = rule.C, -rule.C


@helper(hot=True)
def keep_better_step(form, again, work):
    """Return the dual gain over the old step of the row; restore the old step if it is the better one."""
    gain, kept = dual_gain(form, work.alpha), 0.0
    if again:
        kept = dual_gain(form, work.old)
        if kept > gain:
            gain = kept
            for y in range(form.known):
                work.alpha[y] = work.old[y]
    return gain - kept


@helper(hot=True)
def store_step(memory, i, unit, known, work):
    """Store the step of the row, if steps are stored."""
    if memory.steps.shape[0] > 0:
        for y in range(known):
            if work.alpha[y] != work.old[y]:
                memory.steps[i, y] = work.alpha[y] / unit


@helper(hot=True)
def score_squared(weights, cols, x, known, i, memory, work):
    """Write the scores without the row's old step; return kind, offset, scale, unit and kappa."""
    norm = 0.0
    for j in range(x.size):
        norm += x[j] * x[j]
    for y in range(known):
        work.key[y] = 0.0
    add_rows(weights.W, cols, x, known, work.key)
    if memory.again:
        for y in range(known):
            work.old[y] = memory.steps[i, y] * norm
            work.key[y] -= work.old[y]
    return np.int64(LINEAR), 0.0, 1.0, norm, norm


@helper(hot=True)
def apply_squared(weights, cols, x, known, norm, number, work):
    """Add alpha_y x to W[:, y] for every label that moves, and to the weighted sum when averaging."""
    for y in range(known):
        if work.alpha[y] != work.old[y]:
            change = (work.alpha[y] - work.old[y]) / norm
            for j in range(cols.size):
                weights.W[cols[j], y] += change * x[j]
            if weights.weighted.shape[0] > 0:
                late = (number + 1.0) * change
                for j in range(cols.size):
                    weights.weighted[cols[j], y] += late * x[j]


@helper(hot=True)
def score_entropy(weights, shapes, cols, x, known, update, i, memory, work):
    """Like `score_squared`, with keys of logits (two values) or log weights (other rows)."""
    kind, base, span = shapes.kind[i], shapes.base[i], shapes.span[i]
    for y in range(known):
        work.mass[y] = work.key[y] = 0.0
    if kind == NULL:
        return np.int64(LINEAR), base, 1.0, 0.0, 0.0
    if memory.again:
        for y in range(known):
            work.old[y] = memory.steps[i, y] * span
    add_rows(weights.v, cols, work.ones[: cols.size], known, work.mass)
    offset = 0.0
    if kind == LOGISTIC:
        # q_y is the mass of label y on the larger of the two values.
        sign = -1.0 if shapes.slope[i] < 0.0 else 1.0
        offset = base if sign > 0.0 else -span
        two_value_keys(weights, cols, known, sign, memory.again, work)
    else:
        add_rows(weights.v, cols, x, known, work.key)
        tilted_keys(weights, cols, x, known, update, work)
    return kind, offset, span, span, 0.25 * span * span


@helper(hot=True)
def apply_entropy(weights, form, cols, slope, again, work):
    """Add alpha_y x to theta[:, y] for every label that moves, and update its normaliser."""
    for y in range(form.known):
        change = work.alpha[y] - work.old[y]
        if change == 0.0:
            continue
        if form.kind == LOGISTIC:
            sign = -1.0 if slope < 0.0 else 1.0
            now = work.logit[y] if sign < 0.0 or again else level(form.key[y], LOGISTIC)
            apply_flat(weights, y, cols, sign * change, log_growth(now, sign * change))
        else:
            after, _, _ = tilt(form.log_weight[y], form.log_rest[y], form.x, work.alpha[y])
            now, _, _ = tilt(form.log_weight[y], form.log_rest[y], form.x, work.old[y])
            apply_tilted(weights, y, cols, form.x, change, after - now)


@compiled
def add_steps(rows, steps, known, W, slots):
    """Add steps[i, y] x_i over all rows to W: the vectors theta of (6) and (26) from stored steps."""
    data, indices, indptr, dense = rows
    for i in range(indptr.size - 1):
        for y in range(known):
            alpha = steps[i, y]
            if alpha != 0.0:
                for e in range(indptr[i], indptr[i + 1]):
                    if data[e] != 0.0:
                        W[np.uint64(slots[indices[e - dense * indptr[i]]]), y] += alpha * data[e]


@compiled(allocates=True)
def hinge_losses(scores, relevant, born, gamma, out):
    """Write the loss (1) of every row over the labels known in its round (`born[y]` <= row index)."""
    known = scores.shape[1]
    mark = np.zeros(known, np.uint8)
    for i in range(scores.shape[0]):
        mark_relevant(relevant, i, known, mark)
        low, high = np.inf, -np.inf
        for y in range(known):
            if born[y] <= i:
                if mark[y]:
                    low = min(low, scores[i, y])
                else:
                    high = max(high, scores[i, y])
        out[i] = max(0.0, gamma - (low - high))
        clear_marks(relevant, i, mark)
