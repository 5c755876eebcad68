"""Scans of all samples for `label_blocks`: violators, exact primal objectives, scores of sparse weights.

All lanes are scanned together: their weights lie side by side, so that one register holds a feature of all of
them and every sample is read once. The scan uses weights of 16 bits and sums in single precision. Samples
whose scores may reach the margin, rounding included, are scored again in double precision. All others have no
loss, so the primal objective is exact.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import (
    add_product,
    as_reals,
    bits_not_below,
    fill,
    load,
    load_row,
    lowest_bit,
    prefetch,
    store_row,
)
from maxmargin.core.rows import row_dot
from maxmargin.multilabel.member_loops import CHUNK, LANES

# The next ascent aims at AIM times the gap that tol allows, or at FOLLOW times the current gap if that is
# more. If a scan finds fewer than FEW new violators, it aims at PATIENCE times its previous target.
AIM, FOLLOW, FEW, PATIENCE = 2.0, 0.02, 8, 0.25
# Levels of the histogram that selects the worst violators, and halvings that find the best bias.
LEVELS, HALVINGS = 256, 12
# Entries of X whose weights are prefetched, and samples whose rows are.
PREFETCH, PREFETCH_ROWS = np.uint64(64), 8
NONE, ONE = np.uint64(0), np.uint64(1)


@compiled
def scan(rows, stop, lanes):
    """List for every lane the samples whose score is not below its limit, and these scores.

    Row i is read up to position stop[i].
    """
    data, indices, indptr, dense = rows
    n, width, last = indptr.shape[0] - 1, len(LANES), np.uint64(max(indices.shape[0], 1) - 1)
    scores, passing, limit = lanes.scores, lanes.passing, load(lanes.limit, 0, LANES)
    zero = fill(np.float32(0.0), limit)
    lanes.n_found[:] = 0
    for first in range(0, n, CHUNK):
        size = min(CHUNK, n - first)
        # Scores of all lanes for a chunk of samples, and one bit per lane that passes its limit.
        for r in range(size):
            s, begin = zero, indptr[first + r]
            shift = np.uint64(dense * begin)
            for t in range(np.uint64(begin), np.uint64(stop[first + r])):
                if not dense:
                    ahead = width * np.int64(indices[min(t + PREFETCH, last)])
                    prefetch(lanes.weights, ahead)
                    prefetch(lanes.weights, ahead + width // 2)
                j = np.uint64(indices[t - shift])
                s = add_product(s, np.float32(data[t]), as_reals(load_row(lanes.weights, j, 0, LANES), s))
            store_row(s, scores, np.uint64(r), 0)
            # An overflow gives NaN, which counts as not below the limit.
            passing[r] = bits_not_below(s, limit)
        # Append the samples that pass to the lists of their lanes.
        for r in range(size):
            bits = passing[r]
            while bits != NONE:
                k = lowest_bit(bits)
                bits &= bits - ONE
                at = lanes.n_found[k]
                lanes.candidates[k, at], lanes.score[k, at] = first + r, scores[r, k]
                lanes.n_found[k] = at + 1


@helper(hot=True)
def _write_weights(work, lanes, k, present):
    """Write the weights of a lane to all features, or zeros if not `present`."""
    for t in range(lanes.n_kept[k]):
        work.v[lanes.features[k, t]] = lanes.values[k, t] if present else 0.0
    work.v[work.v.shape[0] - 1] = lanes.bias[k] if present else 0.0


@helper
def _violators(samples, costs, work, lanes, k, step, exact):
    """List the inactive samples that violate the margin; return their number.

    Scores are in double precision if `exact`. The scan covered every `step`-th sample.
    """
    l, found = lanes.label[k], 0
    offset = costs.margin[l] + costs.bias * lanes.bias[k]
    last = lanes.n_found[k] - 1
    for t in range(last + 1):
        if exact:
            ahead = samples.rows.indptr[lanes.candidates[k, min(t + PREFETCH_ROWS, last)]]
            prefetch(samples.rows.data, ahead)
            prefetch(samples.rows.indices, ahead)
        i = step * lanes.candidates[k, t]
        c = costs.weight[i] * costs.upper[0, l]
        if not work.marks[i] and c > 0.0:
            if exact:
                h = costs.margin[l] + row_dot(samples.rows, i, costs.bias, work.v)
            else:
                h = offset + lanes.unit[k] * np.float64(lanes.score[k, t])
            if h > 0.0:
                work.violators[found], work.excess[found], work.cost[found] = i, h, c
                found += 1
    return found


@helper(reorder=True)
def _losses(costs, deficit, cost, size, shift):
    """Loss and its slope for margin deficits reduced by `shift`, at the given costs."""
    loss, slope = 0.0, 0.0
    if costs.squared:
        for t in range(size):
            h = max(deficit[t] - shift, 0.0)
            loss += cost[t] * h * h
            slope -= 2.0 * cost[t] * h
    else:
        for t in range(size):
            h = max(deficit[t] - shift, 0.0)
            loss += cost[t] * h
            slope -= cost[t] if h > 0.0 else 0.0
    return loss, slope


@helper
def _loss_at(costs, work, lanes, k, found, shift):
    """Loss if all scores fall by `shift`, and its slope, without half the squared bias."""
    n_on, size = lanes.n_on[k], lanes.size[k]
    new, new_slope = _losses(costs, work.excess, work.cost, found, shift)
    on, on_slope = _losses(costs, lanes.deficit[k], work.box, n_on, -shift)
    off, off_slope = _losses(costs, lanes.deficit[k, n_on:], work.box[n_on:], size - n_on, shift)
    return new + on + off, new_slope - on_slope + off_slope


@helper(hot=True)
def _best_bias(costs, work, lanes, k, found):
    """Primal objective at the best bias up to the present one, and the fall of all scores that it means.

    Samples that were not found have no loss for any such bias. The bias is found by bisection of the slope.
    """
    b, rest = lanes.bias[k], lanes.half_norm[k] - 0.5 * lanes.bias[k] * lanes.bias[k]
    loss, slope = _loss_at(costs, work, lanes, k, found, 0.0)
    best, at, low, high = rest + 0.5 * b * b + loss, 0.0, 0.0, 0.0
    if costs.bias > 0.0 and costs.bias * slope < b:
        for t in range(found):
            high = max(high, work.excess[t])
        for t in range(lanes.n_on[k], lanes.size[k]):
            high = max(high, lanes.deficit[k, t])
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            loss, slope = _loss_at(costs, work, lanes, k, found, middle)
            c = b - middle / costs.bias
            if rest + 0.5 * c * c + loss < best:
                best, at = rest + 0.5 * c * c + loss, middle
            if costs.bias * slope < c:
                low = middle
            else:
                high = middle
    return best, at


@helper(hot=True)
def _primal(samples, costs, rule, work, lanes, k):
    """Number of violators, primal objective and fall of the bias; exact if the label may be done."""
    found, primal, shift = 0, 0.0, 0.0
    for exact in range(2):
        if exact:
            _write_weights(work, lanes, k, True)
        found = _violators(samples, costs, work, lanes, k, 1, exact == 1)
        primal, shift = _best_bias(costs, work, lanes, k, found)
        if exact:
            _write_weights(work, lanes, k, False)
        if primal - lanes.dual[k] > 2.0 * rule.tol * primal and lanes.iteration[k] < rule.max_rounds:
            break
    return found, primal, shift


@helper
def level(excess, found, limit, bucket):
    """A level that at most `limit` of the excesses reach, except for those of one bucket of the histogram."""
    if found <= limit:
        return 0.0
    highest = 0.0
    for t in range(found):
        highest = max(highest, excess[t])
    for k in range(LEVELS):
        bucket[k] = 0
    scale = LEVELS / highest
    for t in range(found):
        bucket[min(np.int64(scale * excess[t]), LEVELS - 1)] += 1
    cut, total = LEVELS, 0
    while cut > 0 and (total == 0 or total + bucket[cut - 1] <= limit):
        cut -= 1
        total += bucket[cut]
    return cut / scale


@helper(hot=True)
def _activate(work, lanes, k, i, share):
    """Add sample i to the active set of a lane, with its part of the shared direction as alpha."""
    size = lanes.size[k]
    lanes.active[k, size], lanes.alpha[k, size] = i, lanes.u[k] * share[i]
    work.marks[i] = True
    lanes.size[k] = size + 1


@helper
def add_violators(work, lanes, k, found, most, share):
    """Add the worst violators, at most `most`, to the active set; return how many were added."""
    least, first = level(work.excess, found, most, work.bucket), lanes.size[k]
    for t in range(found):
        if work.excess[t] >= least and lanes.size[k] - first < most:
            _activate(work, lanes, k, work.violators[t], share)
    return lanes.size[k] - first


@helper(hot=True)
def _activate_shared(work, lanes, k, most, shared):
    """Add samples of the shared direction to the active set, largest parts first."""
    first = lanes.size[k]
    for t in range(shared.support.shape[0]):
        if lanes.size[k] - first >= most:
            break
        if not work.marks[shared.support[t]]:
            _activate(work, lanes, k, shared.support[t], shared.share)


@helper(hot=True)
def _mark(costs, work, lanes, k):
    """Mark the active samples of a lane and compute their boxes."""
    for t in range(lanes.size[k]):
        i, side = lanes.active[k, t], 1 if t < lanes.n_on[k] else 0
        work.marks[i], work.box[t] = True, costs.weight[i] * costs.upper[side, lanes.label[k]]


@helper(hot=True)
def _unmark(work, lanes, k):
    for t in range(lanes.size[k]):
        work.marks[lanes.active[k, t]] = False


@helper(hot=True)
def _most_new(rule, lanes, k):
    """Most samples that a scan may activate: before the first ascent in proportion to the positives."""
    first = lanes.iteration[k] == 0
    return rule.least + rule.candidates * lanes.n_on[k] if first else max(rule.least, lanes.size[k])


@compiled
def lower_biases(samples, costs, rule, work, lanes, step):
    """After a scan of every `step`-th sample: lower the bias of lanes with too many violators to list."""
    for k in range(len(LANES)):
        most = rule.listed * _most_new(rule, lanes, k) // step
        if lanes.label[k] < 0 or costs.bias == 0.0 or lanes.n_found[k] <= most:
            continue
        _mark(costs, work, lanes, k)
        found = _violators(samples, costs, work, lanes, k, step, False)
        _unmark(work, lanes, k)
        shift = level(work.excess, found, most, work.bucket)
        if shift > 0.0:
            old, new = lanes.bias[k], lanes.bias[k] - shift / costs.bias
            limit = np.float64(lanes.limit[k]) + shift * (1.0 - 1e-6) / lanes.unit[k]
            lanes.bias[k], lanes.limit[k] = new, limit
            lanes.half_norm[k] += 0.5 * (new * new - old * old)
            for t in range(lanes.size[k]):
                lanes.deficit[k, t] += shift if t < lanes.n_on[k] else -shift


@compiled
def evaluate(samples, costs, shared, rule, work, lanes):
    """After a scan: the primal objective of every lane, and either its end or its new active samples."""
    for k in range(len(LANES)):
        l = lanes.label[k]
        if l < 0:
            continue
        _mark(costs, work, lanes, k)
        most = _most_new(rule, lanes, k)
        if lanes.iteration[k] == 0:
            # The scan before the first ascent ranks samples by the features shared with positives.
            found = _violators(samples, costs, work, lanes, k, 1, False)
            offset = costs.margin[l] + costs.bias * lanes.bias[k]
            for t in range(found):
                work.excess[t] = samples.length_penalty[work.violators[t]] * (work.excess[t] - offset)
            add_violators(work, lanes, k, found, most, shared.share)
            _unmark(work, lanes, k)
            continue
        # The label is done if P - D <= tol P, or after its last round.
        found, primal, shift = _primal(samples, costs, rule, work, lanes, k)
        lanes.primal[k], dual = primal, lanes.dual[k]
        lanes.done[k] = primal - dual <= rule.tol * primal or lanes.iteration[k] >= rule.max_rounds
        if shift > 0.0:
            lanes.bias[k] -= shift / costs.bias
        if not lanes.done[k]:
            # Few new violators do not explain the gap: solve more accurately, on more samples.
            target = max(AIM * rule.tol * primal, FOLLOW * (primal - dual))
            if add_violators(work, lanes, k, found, most, shared.share) < FEW:
                target = PATIENCE * min(lanes.target[k], AIM * rule.tol * primal)
                if lanes.u[k] > 0.0:
                    _activate_shared(work, lanes, k, most, shared)
            lanes.target[k] = target
        _unmark(work, lanes, k)


@helper(hot=True)
def _score(rows, i, weights, intercept, scores):
    """Scores of sample i by weights that are stored feature by feature."""
    for l in range(intercept.shape[0]):
        scores[l] = intercept[l]
    begin = rows.indptr[i]
    for t in range(begin, rows.indptr[i + 1]):
        x = np.float64(rows.data[t])
        j = rows.indices[t - rows.dense * begin]
        for c in range(np.uint64(weights.indptr[j]), np.uint64(weights.indptr[j + 1])):
            scores[weights.indices[c]] += x * weights.data[c]


@compiled
def score_labels(rows, weights, intercept, scores):
    """scores[i] = x_i'W + b for sparse weights, feature by feature."""
    for i in range(scores.shape[0]):
        _score(rows, i, weights, intercept, scores[i])


@helper(hot=True)
def _insert(scores, labels, best):
    """Keep the highest scores in falling order; equal scores keep the order of the labels."""
    k = best.shape[0]
    filled = 0
    for l in range(scores.shape[0]):
        f = scores[l]
        if filled == k and f <= best[k - 1]:
            continue
        place = min(filled, k - 1)
        while place > 0 and best[place - 1] < f:
            best[place], labels[place] = best[place - 1], labels[place - 1]
            place -= 1
        best[place], labels[place] = f, l
        filled = min(filled + 1, k)


@compiled(allocates=True)
def top_labels(rows, weights, intercept, begin, end, labels, best):
    """The labels with the highest scores of the samples from `begin` to `end`, best first."""
    scores = np.empty(intercept.shape[0])
    for i in range(begin, end):
        _score(rows, i, weights, intercept, scores)
        _insert(scores, labels[i], best[i])


@compiled
def top_scores(scores, labels, best):
    """The same for scores that are already computed."""
    for i in range(scores.shape[0]):
        _insert(scores[i], labels[i], best[i])
