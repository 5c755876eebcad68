"""Coordinate ascent on the active sets of labels, for `label_blocks`.

Letters as in `problem`. The active samples of a label have dual variables of their own, its positives first.
Every other negative sample i has alpha_i = u lambda_i: one number u per label moves all of them along the
shared direction m = sum_i lambda_i x_i.

The rows of active samples are copied side by side and their features are numbered in order of appearance, so
that the memory of a label does not grow with n_samples and n_features. Features are sorted by falling
frequency, and the first ones keep their numbers.

Python calls only `ascend`: its parts take the same arrays and share their helpers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import prefetch
from maxmargin.core.rows import RowArrays, row_add, row_dot, shuffle

# Largest part of the gap, and at least of the gap that tol allows, that pruning may add.
SPARE = 0.3
# Labels that are scanned together, and samples between two updates of their lists of candidates.
LANES, CHUNK = (0,) * 64, 64
# Over-relaxation of a step: active samples share the bias and the features of the label, which steps on one
# variable at a time underestimate.
RELAXED = 1.4
# A variable at its bound is skipped while its gradient points out of the box by more than this part of the
# largest violation of the pass before. Every iteration starts with all of them.
SKIPPED = 0.2
# The slope of the bias is at least this part of the slope for samples that share nothing else; passes that
# may leave more than the one before.
STIFF, WORSE = 0.125, 3
# Number of most frequent features that keep their numbers.
COMMON = 1024
# Active samples whose rows are prefetched, and an entry of a row that may be in its second cache line.
PREFETCH, LINE = 8, 12
# Largest weight of 16 bits.
LARGEST = 32767
# The first ascent includes the shared direction if the bias takes more than this part of the mass that the
# active negatives can carry.
BURDEN = 0.1


class LabelCosts(NamedTuple):
    """Weights of samples, upper bounds (off, on) and margins of labels, constant feature, and the loss.

    The box of sample i for label l is weight[i] * upper[side, l]. If `squared`, it is the factor of the
    squared hinge.
    """

    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    bias: float
    squared: bool


class Samples(NamedTuple):
    """The rows of X, the parts of them that are scanned, and weights for the first scan.

    Features are sorted by falling frequency; `names` are their numbers in X. Rows are padded with zeros to
    a multiple of four. `rarity` and `length_penalty` weight the features and rows of the first scan.

    A feature of a single sample has a weight only while that sample is active or has a part in the shared
    direction. Such features of samples without a part come last, from `n_scanned` on, and scans read rows up
    to `stop` only. `probe` holds evenly spaced rows. Scores in single precision have an error of at most
    `score_error` times the norm of the weights, and of `weight_error` units from weights of 16 bits.
    """

    rows: RowArrays
    names: np.ndarray
    squares: np.ndarray
    rarity: np.ndarray
    length_penalty: np.ndarray
    n_scanned: int
    stop: np.ndarray
    probe: RowArrays
    probe_stop: np.ndarray
    score_error: float
    weight_error: float


class SharedDirection(NamedTuple):
    """lambda (n_samples, sum 1), m = X'lambda (n_features), X m and |m|^2.

    `most` is the largest u and `ridge` the curvature of the squared hinge along u, both for boxes of one.
    `support` lists the samples of positive lambda and `order` the features, by falling lambda and |m|.
    """

    share: np.ndarray
    m: np.ndarray
    products: np.ndarray
    square: float
    most: float
    ridge: float
    support: np.ndarray
    order: np.ndarray


class Rule(NamedTuple):
    """The numbers of `label_blocks.BlockRule` that the loops read, tol, prune_below and max_rounds."""

    tol: float
    prune_below: float
    max_rounds: int
    candidates: int
    least: int
    passes: int
    begin: float
    listed: int


class Workspace(NamedTuple):
    """Memory of one thread, for one label after the other.

    Per active sample: alpha, squared norm, box, x . (m - q), position in the random order, row in `local`.
    `marks` marks the active samples. `number` numbers their features (-1: none), `features` lists them, the
    `COMMON` most frequent ones first. `w` and `q` use these numbers, the bias last; `kept` is w after
    pruning, and `v` holds weights of all features. `violators`, `excess` and `cost` describe the samples
    found by a scan; `state` is that of the ascent (see `_shared_line`).
    """

    alpha: np.ndarray
    square: np.ndarray
    box: np.ndarray
    product: np.ndarray
    order: np.ndarray
    local: RowArrays
    marks: np.ndarray
    number: np.ndarray
    features: np.ndarray
    w: np.ndarray
    q: np.ndarray
    kept: np.ndarray
    v: np.ndarray
    violators: np.ndarray
    excess: np.ndarray
    cost: np.ndarray
    bucket: np.ndarray
    state: np.ndarray


class Lanes(NamedTuple):
    """Labels that are solved side by side, one per lane.

    State between two iterations: label (-1: free lane), iterations so far, active samples (positives first),
    their alpha and margin deficits, u, whether the bias is a separate variable, the pruning threshold, the
    target gap of the next ascent, both objectives, and whether the label is done. Weights of the next scan:
    half their squared norm, bias, number, features and values; `weights` holds those of all lanes side by
    side, as integer multiples of `unit`. Results of the scan, in the same units: the score limit, number of
    candidates, candidates and scores; all scores of a chunk of samples, and the bits of the lanes that pass.
    """

    label: np.ndarray
    iteration: np.ndarray
    n_on: np.ndarray
    size: np.ndarray
    active: np.ndarray
    alpha: np.ndarray
    deficit: np.ndarray
    u: np.ndarray
    separate_bias: np.ndarray
    prune_below: np.ndarray
    target: np.ndarray
    dual: np.ndarray
    primal: np.ndarray
    done: np.ndarray
    half_norm: np.ndarray
    bias: np.ndarray
    n_kept: np.ndarray
    features: np.ndarray
    values: np.ndarray
    unit: np.ndarray
    weights: np.ndarray
    limit: np.ndarray
    n_found: np.ndarray
    candidates: np.ndarray
    score: np.ndarray
    scores: np.ndarray
    passing: np.ndarray


class Line(NamedTuple):
    """The shared direction of one label without its active samples: |m - q|^2, mass, curvature, largest u."""

    square: float
    mass: float
    curvature: float
    most: float


@compiled
def find_direction(rows, squares, weight, n_passes, share, w):
    """Coordinate ascent on sum_i lambda_i - 1/2 |X'lambda|^2, lambda >= 0: a short vector of the hull."""
    data, indices, indptr, dense = rows
    for _ in range(n_passes):
        for i in range(share.shape[0]):
            if weight[i] > 0.0 and squares[i] > 0.0:
                begin, left = indptr[i], 1.0
                for k in range(begin, indptr[i + 1]):
                    left -= data[k] * w[indices[k - dense * begin]]
                new = max(share[i] + left / squares[i], 0.0)
                step = new - share[i]
                if step != 0.0:
                    share[i] = new
                    for k in range(begin, indptr[i + 1]):
                        w[indices[k - dense * begin]] += data[k] * step


@helper(hot=True)
def square_of(x):
    """x^2; it compiles faster than a power."""
    return x * x


@helper(hot=True)
def copy_row(samples, costs, work, l, i, side, size, known):
    """Copy sample i as active sample number `size`; return the number of features known then."""
    rows = samples.rows
    data, indices, indptr, dense = work.local
    begin, put = np.uint64(rows.indptr[i]), np.uint64(indptr[size])
    length = np.uint64(rows.indptr[i + 1]) - begin
    if dense:
        for t in range(length):
            data[put + t] = rows.data[begin + t]
    else:
        # About a third of the features are new, which no branch can predict: so there is no branch.
        for t in range(length):
            data[put + t] = rows.data[begin + t]
            j = rows.indices[begin + t]
            new = work.number[j] < 0
            number = known if new else work.number[j]
            work.features[known], work.number[j], indices[put + t] = j, number, number
            known += np.int64(new)
    indptr[size + 1] = put + length
    work.square[size] = samples.squares[i]
    work.box[size] = costs.weight[i] * costs.upper[side, l]
    work.order[size], work.product[size] = size, 0.0
    return known


@helper
def _reset(work, known):
    """Set the workspace back to its state without active samples."""
    D = work.w.shape[0] - 1
    for t in range(known):
        work.w[t], work.q[t] = 0.0, 0.0
    if not work.local.dense:
        for t in range(min(COMMON, D), known):
            work.number[work.features[t]] = -1
    work.w[D], work.q[D] = 0.0, 0.0


@helper(hot=True)
def _shared_line(costs, shared, work, active, l, n_on, size, carried, state):
    """The shared direction m - q without the active samples; moves u to its best value.

    The state is [u, w . (m - q), ridge of the squared hinge along u for boxes of one, bias]. If u was zero
    and would stay zero at this bias, the direction is left out of the ascent.
    """
    w, q, mass, slope, rows = work.w, work.q, 1.0, 0.0, work.local
    D = w.shape[0] - 1
    # w . (m - q), and the mass 1 - sum of the lambda of active samples.
    for t in range(size):
        i = active[t]
        a, share = work.alpha[t], shared.share[i]
        if a > 0.0:
            slope += (a if t < n_on else -a) * shared.products[i]
        if share > 0.0:
            mass -= share
            slope -= share * row_dot(rows, t, 0.0, w)
    state[1] = slope
    if mass <= 1e-9 or (not carried and mass * (costs.margin[l] + costs.bias * state[3]) + slope <= 0.0):
        return Line(0.0, 0.0, 0.0, 0.0)
    # q = sum of lambda_i x_i over the active samples, |m - q|^2, and x . (m - q) of each of them.
    square = shared.square
    for t in range(size):
        i = active[t]
        share = shared.share[i]
        if share > 0.0:
            row_add(rows, t, 1.0, share, q)
            square -= 2.0 * share * shared.products[i]
            state[2] -= share * share / (2.0 * costs.weight[i])
    for t in range(size):
        i = active[t]
        x = row_dot(rows, t, 0.0, q)
        square += shared.share[i] * x
        work.product[t] = shared.products[i] - x
    square = max(square, 0.0)
    most = np.inf if costs.squared and costs.upper[0, l] > 0.0 else shared.most * costs.upper[0, l]
    ridge = max(state[2], 0.0) / costs.upper[0, l] if costs.squared and costs.upper[0, l] > 0.0 else 0.0
    line = Line(square, mass, square + square_of(costs.bias * mass) + ridge, most)
    _update_u(costs, l, line, w, D, state)
    return line


@helper(hot=True)
def _update_u(costs, l, line, w, last, state):
    """Move u to its best value in its box."""
    g = line.mass * (costs.margin[l] + costs.bias * w[last]) + state[1]
    g -= state[0] * (line.curvature - square_of(costs.bias * line.mass))
    if line.curvature <= 0.0 or (state[0] == 0.0 and g <= 0.0):
        return
    u = min(max(state[0] + g / line.curvature, 0.0), line.most)
    w[last] -= costs.bias * line.mass * (u - state[0])
    state[0] = u


@helper(hot=True)
def _pass(costs, work, l, n_on, line, state, size, bounds, separate):
    """One pass over the first `size` samples of the order; u follows every step.

    A step of alpha_i also moves u to its best value while that is inside its box, so the curvature along
    alpha_i is reduced by what u takes over. A separate bias is constant during the pass.
    Returns the number of samples still visited, the extreme gradients of those that moved, the sum of the
    gaps seen, and the rate by which the bias of the dual variables falls in a separate one.
    """
    w, alpha, product, order = work.w, work.alpha, work.product, work.order
    last = w.shape[0] - 1
    bias, margin = costs.bias, costs.margin[l]
    low, high, left, rate = 0.0, 0.0, 0.0, 0.0
    joint = 0.0 if separate else bias * bias
    kept = 0
    for position in range(size):
        t = order[position]
        y = 1.0 if t < n_on else -1.0
        a, c, ridge = alpha[t], work.box[t], 0.0
        if c == 0.0:
            continue
        # Gradient g = m - y f (- alpha / 2c for the squared hinge), and the part of the sample in the gap.
        b = state[3] if separate else w[last]
        h = margin - y * (row_dot(work.local, t, 0.0, w) + bias * b - state[0] * product[t])
        g = h
        if costs.squared:
            ridge, c = 0.5 / c, np.inf
            g -= ridge * a
            left += square_of(max(h, 0.0)) / (2.0 * ridge) - a * h + 0.5 * ridge * a * a
        else:
            left += c * max(h, 0.0) - a * h
        if (a == 0.0 and g < bounds[0]) or (a == c and g > bounds[1]):
            continue
        order[kept], order[position] = t, order[kept]
        kept += 1
        if (a == 0.0 and g <= 0.0) or (a == c and g >= 0.0):
            continue
        low, high = min(low, g), max(high, g)
        # Step (37) on alpha, relaxed; or on alpha and u together if u stays inside its box.
        own = work.square[t] + joint + ridge
        if own > 0.0:
            new = min(max(a + (g if separate else RELAXED * g) / own, 0.0), c)
        else:
            new = c if g > 0.0 else 0.0
        if 0.0 < state[0] < line.most:
            cross = -y * (product[t] + bias * bias * line.mass)
            reduced = own - cross * cross / line.curvature
            if reduced > 1e-9 * own:
                best = min(max(a + g / reduced, 0.0), c)
                if 0.0 <= state[0] - cross * (best - a) / line.curvature <= line.most:
                    new = best
        if 0.0 < new < c:
            rate += bias * bias / own
        step = y * (new - a)
        alpha[t] = new
        row_add(work.local, t, bias, step, w)
        state[1] += step * product[t]
        if line.mass > 0.0:
            _update_u(costs, l, line, w, last, state)
    return kept, low, high, left, rate


@helper(hot=True)
def _passes(costs, work, l, n_on, line, size, separate, target, n_passes, draws):
    """Passes over the active samples of a label until the gap seen in a pass over all of them is small.

    The bias b is common to all samples, so steps of some are noise for the others. A `separate` b is
    therefore constant during a pass and then moves towards the bias of the dual variables by a secant step.
    If that does not converge, every step moves it. Returns whether b stayed separate. The gap includes half
    the square of the distance between the two.
    """
    cursor = np.int64(l) * 7919 + size
    visited, bounds, w, last = size, (-np.inf, np.inf), work.w, work.w.shape[0] - 1
    state, worse, before, moved, old = work.state, 0, np.inf, 0.0, 0.0
    for _ in range(n_passes):
        whole = visited == size
        cursor = shuffle(work.order, visited, draws, cursor)
        visited, low, high, left, rate = _pass(costs, work, l, n_on, line, state, visited, bounds, separate)
        bounds = (SKIPPED * low if low < 0.0 else -np.inf), (SKIPPED * high if high > 0.0 else np.inf)
        if not separate:
            state[3] = w[last]
        off = w[last] - state[3]
        left += 0.5 * off * off
        if left <= target:
            if whole:
                break
            visited, bounds = size, (-np.inf, np.inf)
        if separate:
            worse += left >= before
            separate, before = worse < WORSE, left
            slope = min(max((old - w[last]) / moved, STIFF * rate), rate) if moved != 0.0 else rate
            moved, old = off / (1.0 + slope), w[last]
            state[3] += moved
    return worse < WORSE


@helper(reorder=True)
def dual_of(costs, work, l, line, state, size, known):
    """<m, alpha> - 1/2 |w|^2 (less the ridge of the squared hinge), shared direction included."""
    w, u = work.w, state[0]
    D = w.shape[0] - 1
    total, norm = u * line.mass, 0.0
    ridge = (
        (line.curvature - line.square - square_of(costs.bias * line.mass)) * u * u if costs.squared else 0.0
    )
    for t in range(size):
        a = work.alpha[t]
        total += a
        if costs.squared and a > 0.0:
            ridge += a * a * 0.5 / work.box[t]
    for t in range(known):
        norm += w[t] * w[t]
    norm += square_of(w[D]) - 2.0 * u * state[1] + u * u * line.square
    return costs.margin[l] * total - 0.5 * (norm + ridge)


@helper
def margin_deficits(costs, work, l, n_on, size, deficit):
    """Write the margin deficits of active samples under the pruned weights; return their loss."""
    loss, squared = 0.0, costs.squared
    for t in range(size):
        f = row_dot(work.local, t, costs.bias, work.kept)
        h = costs.margin[l] - f if t < n_on else costs.margin[l] + f
        deficit[t] = h
        h = max(h, 0.0)
        loss += work.box[t] * (h * h if squared else h)
    return loss


@compiled
def scatter_columns(counts, features, values, first, free, labels, answer):
    """Write the weights of labels `first`, ... into a matrix stored by feature.

    free[j] is the next free position of feature j.
    """
    at = 0
    for l in range(counts.shape[0]):
        for _ in range(counts[l]):
            j = features[at]
            labels[free[j]], answer[free[j]] = first + l, values[at]
            free[j] += 1
            at += 1


@helper(hot=True)
def _open(costs, on, lanes, k, rule):
    """Start a label: its positives are active, with alpha at their boxes."""
    l, size, loss = lanes.label[k], 0, 0.0
    h = 2.0 * costs.margin[l]
    for t in range(on.indptr[l], on.indptr[l + 1]):
        i = on.indices[t]
        if costs.weight[i] > 0.0:
            c = costs.weight[i] * costs.upper[1, l]
            lanes.active[k, size], lanes.alpha[k, size] = i, c
            loss += c * (h * h if costs.squared else h)
            size += 1
    lanes.n_on[k] = lanes.size[k] = size
    lanes.u[k], lanes.prune_below[k], lanes.target[k] = 0.0, rule.prune_below, rule.begin * loss
    lanes.separate_bias[k], lanes.dual[k] = costs.bias > 0.0, -np.inf


@helper(hot=True)
def _load(samples, costs, share, work, lanes, k, known):
    """Copy the active samples of a lane into the workspace; return the number of features known then."""
    last = lanes.size[k] - 1
    for t in range(last + 1):
        ahead = samples.rows.indptr[lanes.active[k, min(t + PREFETCH, last)]]
        prefetch(samples.rows.data, ahead)
        prefetch(samples.rows.indices, ahead)
        prefetch(samples.rows.data, ahead + LINE)
        prefetch(samples.rows.indices, ahead + LINE)
        further = lanes.active[k, min(t + 2 * PREFETCH, last)]
        prefetch(samples.rows.indptr, further)
        prefetch(samples.squares, further)
        prefetch(costs.weight, further)
        prefetch(share, further)
        side = 1 if t < lanes.n_on[k] else 0
        known = copy_row(samples, costs, work, lanes.label[k], lanes.active[k, t], side, t, known)
        a = work.alpha[t] = lanes.alpha[k, t]
        if a > 0.0:
            row_add(work.local, t, costs.bias, a if side else -a, work.w)
    return known


@helper(reorder=True)
def _pruned(shared, work, known, u, threshold):
    """Write the weights larger than `threshold` to `kept`; return half their squared norm."""
    D = work.w.shape[0] - 1
    norm = square_of(work.w[D])
    for t in range(known):
        x = work.w[t]
        if u > 0.0:
            x -= u * (shared.m[work.features[t]] - work.q[t])
        work.kept[t] = x if abs(x) > threshold else 0.0
    for t in range(known):
        norm += square_of(work.kept[t])
    # Features of no active sample have the weights -u m_j.
    if u > 0.0:
        for s in range(D):
            j = shared.order[s]
            x = u * shared.m[j]
            if abs(x) <= threshold:
                break
            if work.number[j] < 0:
                norm += x * x
    work.kept[D] = work.w[D]
    return 0.5 * norm


@helper
def _publish(samples, costs, shared, work, lanes, k, known):
    """Write the pruned weights of a lane for the next scan, rounded to 16 bits, and its score limit."""
    D, u, threshold, l = work.w.shape[0] - 1, lanes.u[k], lanes.prune_below[k], lanes.label[k]
    features, values, count = lanes.features[k], lanes.values[k], 0
    for t in range(known):
        features[count], values[count] = work.features[t], work.kept[t]
        count += int(work.kept[t] != 0.0)
    if u > 0.0:
        for s in range(D):
            j = shared.order[s]
            x = -u * shared.m[j]
            if abs(x) <= threshold:
                break
            if work.number[j] < 0:
                features[count], values[count] = j, x
                count += 1
    largest = 0.0
    for t in range(count):
        largest = max(largest, abs(values[t]))
    unit = largest / LARGEST if largest > 0.0 else 1.0
    last = lanes.weights.shape[0] - 1
    for t in range(count):
        lanes.weights[min(features[t], last), k] = np.int16(np.rint(values[t] / unit))
    lanes.n_kept[k], lanes.bias[k], lanes.unit[k] = count, work.w[D], unit
    # A negative violates its margin if x . w > -(margin + bias); the limit is lower by the largest error.
    limit = -costs.margin[l] - costs.bias * work.w[D]
    limit -= samples.score_error * np.sqrt(2.0 * lanes.half_norm[k]) + 1e-6 * abs(limit)
    limit -= samples.weight_error * unit
    lanes.limit[k] = limit / unit


@helper
def _prune(costs, shared, work, lanes, k, known, threshold):
    """Prune weights up to `threshold`; return the part of active samples in the objective then."""
    half = lanes.half_norm[k] = _pruned(shared, work, known, lanes.u[k], threshold)
    return half + margin_deficits(costs, work, lanes.label[k], lanes.n_on[k], lanes.size[k], lanes.deficit[k])


@helper(hot=True)
def _prune_within_gap(costs, shared, work, lanes, k, known, rule):
    """Prune as far as the gap allows: quarter the threshold until the objective rises little enough.

    The first ascent is not final, so it prunes without a check.
    """
    threshold = lanes.prune_below[k]
    if lanes.iteration[k] > 0:
        whole = _prune(costs, shared, work, lanes, k, known, 0.0)
        allowed = SPARE * max(rule.tol * whole, whole - lanes.dual[k])
        while threshold > 0.0:
            if _prune(costs, shared, work, lanes, k, known, threshold) - whole <= allowed:
                break
            threshold = 0.25 * threshold if threshold > 1e-6 else 0.0
        lanes.prune_below[k] = threshold
        if threshold > 0.0:
            return
    _prune(costs, shared, work, lanes, k, known, threshold)


@helper(hot=True)
def _store(work, lanes, k, share):
    """Store the active samples of a lane, without negatives that have no alpha and satisfy their margin."""
    kept = 0
    for t in range(lanes.size[k]):
        i = lanes.active[k, t]
        if t < lanes.n_on[k] or work.alpha[t] > 0.0 or lanes.deficit[k, t] > 0.0 or share[i] > 0.0:
            lanes.active[k, kept], lanes.alpha[k, kept] = i, work.alpha[t]
            lanes.deficit[k, kept] = lanes.deficit[k, t]
            kept += 1
    lanes.size[k] = kept


@helper(hot=True)
def _first_weights(samples, costs, work, lanes, k, known):
    """Weights that find negatives near the positives: the features of these, above all rare ones.

    Negatives that share a frequent feature reduce its weight, so it counts little. A negative near one
    positive matters about as much as one near many, so weights are square roots.
    """
    l, last = lanes.label[k], work.w.shape[0] - 1
    for t in range(known):
        x = work.w[t]
        work.kept[t] = np.copysign(np.sqrt(abs(x) * samples.rarity[work.features[t]]), x)
    if costs.bias > 0.0:
        work.w[last] = -costs.margin[l] / costs.bias


@helper(hot=True)
def _needs_shared(costs, work, l, n_on, size):
    """Whether the bias takes a large part of the mass that the first active negatives can carry."""
    load, most = costs.margin[l] / square_of(costs.bias), 0.0
    for t in range(size):
        if t < n_on:
            load += work.box[t]
        else:
            most += work.box[t]
    return load > BURDEN * most


@helper(hot=True)
def _clear(lanes):
    """Set the scanned weights of all lanes to zero."""
    total = 0
    for k in range(len(LANES)):
        total += lanes.n_kept[k]
    last = lanes.weights.shape[0] - 1
    if total > last:
        lanes.weights[:] = 0
    else:
        for k in range(len(LANES)):
            for t in range(lanes.n_kept[k]):
                lanes.weights[min(lanes.features[k, t], last), k] = 0


@helper(hot=True)
def _ascend_lane(costs, shared, rule, draws, work, lanes, k, known):
    """Ascent on the active set of a lane, its dual objective, and its pruned weights."""
    w, state, last = work.w, work.state, work.w.shape[0] - 1
    l, n_on, size = lanes.label[k], lanes.n_on[k], lanes.size[k]
    line, carried = Line(0.0, 0.0, 0.0, 0.0), lanes.u[k] > 0.0
    state[0], state[1], state[2], state[3] = 0.0, 0.0, shared.ridge, lanes.bias[k]
    if lanes.iteration[k] == 0 and costs.bias > 0.0:
        state[3] = -costs.margin[l] / costs.bias
        carried = _needs_shared(costs, work, l, n_on, size)
    if lanes.iteration[k] > 0 or carried:
        line = _shared_line(costs, shared, work, lanes.active[k], l, n_on, size, carried, state)
    separate = lanes.separate_bias[k] and line.mass == 0.0
    converged = _passes(costs, work, l, n_on, line, size, separate, lanes.target[k], rule.passes, draws)
    dual = dual_of(costs, work, l, line, state, size, known)
    # Steps that move the bias never lower the dual objective; after a fall they are used from then on.
    lanes.separate_bias[k] = lanes.separate_bias[k] and converged and dual >= lanes.dual[k]
    lanes.dual[k] = dual
    lanes.u[k], w[last] = state[0], state[3]
    _prune_within_gap(costs, shared, work, lanes, k, known, rule)


@compiled
def ascend(samples, costs, shared, on, rule, draws, work, lanes):
    """Every lane: ascent on its active set, its dual objective, and the weights for the next scan."""
    D = work.w.shape[0] - 1
    _clear(lanes)
    for k in range(len(LANES)):
        lanes.n_kept[k], lanes.limit[k] = 0, np.inf
        if lanes.label[k] >= 0:
            first = lanes.iteration[k] < 0
            if first:
                _open(costs, on, lanes, k, rule)
            known = D if work.local.dense else min(COMMON, D)
            known = _load(samples, costs, shared.share, work, lanes, k, known)
            if first:
                _first_weights(samples, costs, work, lanes, k, known)
            else:
                _ascend_lane(costs, shared, rule, draws, work, lanes, k, known)
            _publish(samples, costs, shared, work, lanes, k, known)
            if first:
                # Candidates are all samples of positive score.
                lanes.half_norm[k], lanes.limit[k] = 0.0, 1e-30
            else:
                _store(work, lanes, k, shared.share)
            _reset(work, known)
            lanes.iteration[k] += 1
