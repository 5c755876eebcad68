"""Loops of `many`: one label at a time, on the few samples that matter to it.

Names as in `problem`. The members of a label are the samples with a dual variable of their own, its
positives first. Every other negative sample i has alpha_i = u lambda_i: one number u per label moves
them all along the shared direction m = sum_i lambda_i x_i, the *background* (see `many`).

The rows of members are copied side by side, their features numbered as they come, so that a label works
in little memory whatever n_samples and n_features are. Features stand in falling order of their frequency,
and the first ones keep their numbers.

`climb` is all that Python calls: one function, as its parts take the same arrays and share what they call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.lanes import prefetch
from maxmargin.core.rows import RowArrays, row_add, row_dot, shuffle

# An ascent aims at AIM times the gap that tol allows, or at the part FOLLOW of the gap there is; where a scan
# finds fewer than FEW new violators, which do not explain the gap, at the part PATIENCE of its aim before.
AIM, FOLLOW, FEW, PATIENCE = 2.0, 0.02, 8, 0.25
# Part of the gap, at least of that which tol allows, that dropping weights may add.
SPARE = 0.3
# Labels that are looked at together, samples between two lists of those that pass; levels by which the worst
# violations are told apart; halvings that find the best bias.
LANES, STRETCH, LEVELS, HALVINGS = (0,) * 64, 64, 256, 12


class LabelCosts(NamedTuple):
    """Weight of every sample, boxes (off, on) and margin of every label, constant feature, and the loss.

    The box of sample i for label l is weight[i] * upper[side, l]; with `squared` it is the factor of
    the squared hinge loss.
    """

    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    bias: float
    squared: bool


class Samples(NamedTuple):
    """X by rows, what of them is looked at, and how much a feature says of the samples that share it.

    A sample with many features shares some with anyone: what it shares counts `terse` times.

    Features stand in falling order of their frequency; what they are in X is in `names`. Rows are filled up
    with zeros to a multiple of four, so that their products have few different lengths.

    A feature of one sample alone has a weight only while that sample is a member or carries a part of the
    background. So those of samples that carry none are left out of looks: they are the ones from `n_seen` on,
    the last of their rows, which are looked at up to `stop`. `probe` are some of the rows, evenly spread.
    `slack` times the norm of weights is what scores in single precision may be wrong by, `spread` what they
    may be where every weight is wrong by half.
    """

    rows: RowArrays
    names: np.ndarray
    squares: np.ndarray
    rarity: np.ndarray
    terse: np.ndarray
    n_seen: int
    stop: np.ndarray
    probe: RowArrays
    probe_stop: np.ndarray
    slack: float
    spread: float


class Background(NamedTuple):
    """lambda (n_samples, sum 1), m = X'lambda (n_features), X m and |m|^2.

    For boxes of one: the largest u, and the curvature that the squared hinge loss adds along u. The
    samples of positive lambda and the features come in falling order of lambda and |m|.
    """

    share: np.ndarray
    m: np.ndarray
    products: np.ndarray
    square: float
    most: float
    ridge: float
    carriers: np.ndarray
    order: np.ndarray


class Rule(NamedTuple):
    """Numbers of `many.BlockRule`, tol and what else the loops are told."""

    tol: float
    cull: float
    max_rounds: int
    candidates: int
    least: int
    passes: int
    begin: float
    listed: int


class Room(NamedTuple):
    """What one thread works in, for one label after the other.

    Of every member: alpha, squared norm, box, x . (m - q), turn and row in `local`. `marks` are the samples
    that are members. `place` numbers the features of members (-1: none), `features` lists them, the
    `COMMON` most frequent ones first; `w` and `q` are numbered so, the bias last, `kept` is w as it is
    stored. `v` are weights of all features. The samples found near the margin, by how much and at which cost,
    are the work of `near_loops`; `state` is that of the ascent (see `straighten`).
    """

    alpha: np.ndarray
    own: np.ndarray
    box: np.ndarray
    product: np.ndarray
    turn: np.ndarray
    local: RowArrays
    marks: np.ndarray
    place: np.ndarray
    features: np.ndarray
    w: np.ndarray
    q: np.ndarray
    kept: np.ndarray
    v: np.ndarray
    near: np.ndarray
    excess: np.ndarray
    cost: np.ndarray
    bucket: np.ndarray
    state: np.ndarray


class Lanes(NamedTuple):
    """Labels that are on their way together, one in each lane.

    What stays of a label between two turns: its number (-1: the lane is free), turns so far, members
    (positives first), their alpha and how short of the margin they are, u, whether the bias stands apart, the
    size of weights to drop, what the next ascent aims at, dual and primal objectives; whether it is done. The
    weights that are looked at: half their squared norm, bias, number, features and values; `weights` holds
    those of all lanes side by side, as whole numbers of a unit each. Of the look, in these units: the score
    that is near, how many samples are, which, and their scores; all scores of a stretch of samples, and the
    lanes that each of these passes.
    """

    label: np.ndarray
    turns: np.ndarray
    n_on: np.ndarray
    size: np.ndarray
    members: np.ndarray
    alpha: np.ndarray
    short: np.ndarray
    u: np.ndarray
    apart: np.ndarray
    cull: np.ndarray
    target: np.ndarray
    dual: np.ndarray
    primal: np.ndarray
    done: np.ndarray
    half: np.ndarray
    bias: np.ndarray
    n_kept: np.ndarray
    features: np.ndarray
    values: np.ndarray
    unit: np.ndarray
    weights: np.ndarray
    limit: np.ndarray
    found: np.ndarray
    near: np.ndarray
    score: np.ndarray
    stretch: np.ndarray
    passing: np.ndarray


class Line(NamedTuple):
    """The direction u of one label without its members: |m - q|^2, its mass, curvature, largest u."""

    square: float
    mass: float
    curvature: float
    most: float


# A step goes so far beyond the best place of its variable: members share the bias and the label's
# words, which one variable at a time underrates.
RELAXED = 1.4
# A member at a bound rests where its gradient points out of the box by more than this part of the largest
# violation of the pass before. One that should not rest costs little: the next turn begins with all.
RESTS = 0.2
# The slope of the bias is at least this part of what members would say that share nothing else; passes that
# may leave more than the one before.
STIFF, WORSE = 0.125, 3
# So many of the most frequent features keep their numbers.
COMMON = 1024


@compiled
def spread(rows, squares, weight, n_passes, share, w):
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
    """x^2, which takes less time to compile than a power."""
    return x * x


@helper(hot=True)
def join(samples, costs, room, l, i, side, size, known):
    """Sample i becomes member number `size`; returns how many features are known then."""
    rows = samples.rows
    data, indices, indptr, dense = room.local
    begin, put = np.uint64(rows.indptr[i]), np.uint64(indptr[size])
    length = np.uint64(rows.indptr[i + 1]) - begin
    if dense:
        for t in range(length):
            data[put + t] = rows.data[begin + t]
    else:
        # A third of the features are new, which nothing foretells: so no branch.
        for t in range(length):
            data[put + t] = rows.data[begin + t]
            j = rows.indices[begin + t]
            new = room.place[j] < 0
            number = known if new else room.place[j]
            room.features[known], room.place[j], indices[put + t] = j, number, number
            known += np.int64(new)
    indptr[size + 1] = put + length
    room.own[size] = samples.squares[i]
    room.box[size] = costs.weight[i] * costs.upper[side, l]
    room.turn[size], room.product[size] = size, 0.0
    return known


@helper
def leave(room, known):
    """Make the room as it was before its members came."""
    D = room.w.shape[0] - 1
    for t in range(known):
        room.w[t], room.q[t] = 0.0, 0.0
    if not room.local.dense:
        for t in range(min(COMMON, D), known):
            room.place[room.features[t]] = -1
    room.w[D], room.q[D] = 0.0, 0.0


@helper(hot=True)
def straighten(costs, background, room, members, l, n_on, size, carried, state):
    """The direction u once the members have left the background; moves u to its best place.

    The state is [u, w . (m - q), ridge of the squared loss along u for boxes of one, the bias]. Where u was
    zero before, and with this bias would stay so, it is left out of the ascent.
    """
    w, q, mass, pull, rows = room.w, room.q, 1.0, 0.0, room.local
    D = w.shape[0] - 1
    for t in range(size):
        i = members[t]
        a, share = room.alpha[t], background.share[i]
        if a > 0.0:
            pull += (a if t < n_on else -a) * background.products[i]
        if share > 0.0:
            mass -= share
            pull -= share * row_dot(rows, t, 0.0, w)
    state[1] = pull
    slope = mass * (costs.margin[l] + costs.bias * state[3]) + pull
    if mass <= 1e-9 or (not carried and slope <= 0.0):
        return Line(0.0, 0.0, 0.0, 0.0)
    square = background.square
    for t in range(size):
        i = members[t]
        share = background.share[i]
        if share > 0.0:
            row_add(rows, t, 1.0, share, q)
            square -= 2.0 * share * background.products[i]
            state[2] -= share * share / (2.0 * costs.weight[i])
    for t in range(size):
        i = members[t]
        x = row_dot(rows, t, 0.0, q)
        square += background.share[i] * x
        room.product[t] = background.products[i] - x
    square = max(square, 0.0)
    most = np.inf if costs.squared and costs.upper[0, l] > 0.0 else background.most * costs.upper[0, l]
    ridge = max(state[2], 0.0) / costs.upper[0, l] if costs.squared and costs.upper[0, l] > 0.0 else 0.0
    line = Line(square, mass, square + square_of(costs.bias * mass) + ridge, most)
    _follow(costs, l, line, w, D, state)
    return line


@helper(hot=True)
def _follow(costs, l, line, w, last, state):
    """Move u to its best place in its box."""
    g = line.mass * (costs.margin[l] + costs.bias * w[last]) + state[1]
    g -= state[0] * (line.curvature - square_of(costs.bias * line.mass))
    if line.curvature <= 0.0 or (state[0] == 0.0 and g <= 0.0):
        return
    u = min(max(state[0] + g / line.curvature, 0.0), line.most)
    w[last] -= costs.bias * line.mass * (u - state[0])
    state[0] = u


@helper(hot=True)
def _pass(costs, room, l, n_on, line, state, active, reach, apart):
    """One pass of coordinate ascent over the active members of label l, u following every step.

    A step of alpha_i moves u to its best place as long as that is inside its box, so that the curvature
    along alpha_i is what the background cannot take over. With the bias apart it is the same for all.
    Returns the number of members still active, the extreme gradients of those that moved, the sum of the
    gaps seen, and how much less the bias of the alphas would be for a larger one apart.
    """
    w, alpha, product, turn = room.w, room.alpha, room.product, room.turn
    last = w.shape[0] - 1
    bias, margin = costs.bias, costs.margin[l]
    low, high, left, rate = 0.0, 0.0, 0.0, 0.0
    joint = 0.0 if apart else bias * bias
    kept = 0
    for position in range(active):
        t = turn[position]
        y = 1.0 if t < n_on else -1.0
        a, c, ridge = alpha[t], room.box[t], 0.0
        if c == 0.0:
            continue
        b = state[3] if apart else w[last]
        h = margin - y * (row_dot(room.local, t, 0.0, w) + bias * b - state[0] * product[t])
        g = h
        if costs.squared:
            ridge, c = 0.5 / c, np.inf
            g -= ridge * a
            left += square_of(max(h, 0.0)) / (2.0 * ridge) - a * h + 0.5 * ridge * a * a
        else:
            left += c * max(h, 0.0) - a * h
        if (a == 0.0 and g < reach[0]) or (a == c and g > reach[1]):
            continue
        turn[kept], turn[position] = t, turn[kept]
        kept += 1
        if (a == 0.0 and g <= 0.0) or (a == c and g >= 0.0):
            continue
        low, high = min(low, g), max(high, g)
        own = room.own[t] + joint + ridge
        if own > 0.0:
            new = min(max(a + (g if apart else RELAXED * g) / own, 0.0), c)
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
        row_add(room.local, t, bias, step, w)
        state[1] += step * product[t]
        if line.mass > 0.0:
            _follow(costs, l, line, w, last, state)
    return kept, low, high, left, rate


@helper(hot=True)
def ascend(costs, room, l, n_on, line, size, apart, target, n_passes, draws):
    """Dual coordinate ascent on the members and the background of a label.

    All members share the bias b, which is noise for each of them while others move it. So it stands `apart`:
    a pass takes it as it is, and after it b moves towards the one of the alphas, by the secant of the two.
    Where that does not converge, each step moves it again; returns whether it did not come to that. A member
    at a bound rests once its gradient points far out of the box (`RESTS`); done when the gaps seen in a pass
    over all of them, and half the square of what b is off by, reach the target.
    """
    cursor = np.int64(l) * 7919 + size
    active, reach, w, last = size, (-np.inf, np.inf), room.w, room.w.shape[0] - 1
    state, worse, before, moved, old = room.state, 0, np.inf, 0.0, 0.0
    for _ in range(n_passes):
        every = active == size
        cursor = shuffle(room.turn, active, draws, cursor)
        active, low, high, left, rate = _pass(costs, room, l, n_on, line, state, active, reach, apart)
        reach = (RESTS * low if low < 0.0 else -np.inf), (RESTS * high if high > 0.0 else np.inf)
        if not apart:
            state[3] = w[last]
        off = w[last] - state[3]
        left += 0.5 * off * off
        if left <= target:
            if every:
                break
            active, reach = size, (-np.inf, np.inf)
        if apart:
            worse += left >= before
            apart, before = worse < WORSE, left
            slope = min(max((old - w[last]) / moved, STIFF * rate), rate) if moved != 0.0 else rate
            moved, old = off / (1.0 + slope), w[last]
            state[3] += moved
    return worse < WORSE


@helper(reorder=True, hot=True)
def dual_of(costs, room, l, line, state, size, known):
    """<m, alpha> - 1/2 |w|^2 (- the ridge of the squared loss), background included."""
    w, u = room.w, state[0]
    D = w.shape[0] - 1
    total, norm = u * line.mass, 0.0
    ridge = (
        (line.curvature - line.square - square_of(costs.bias * line.mass)) * u * u if costs.squared else 0.0
    )
    for t in range(size):
        a = room.alpha[t]
        total += a
        if costs.squared and a > 0.0:
            ridge += a * a * 0.5 / room.box[t]
    for t in range(known):
        norm += w[t] * w[t]
    norm += square_of(w[D]) - 2.0 * u * state[1] + u * u * line.square
    return costs.margin[l] * total - 0.5 * (norm + ridge)


@helper
def shortages(costs, room, l, n_on, size, short):
    """How short of the margin members are, by the weights that are kept; returns their loss."""
    loss, squared = 0.0, costs.squared
    for t in range(size):
        f = row_dot(room.local, t, costs.bias, room.kept)
        h = costs.margin[l] - f if t < n_on else costs.margin[l] + f
        short[t] = h
        h = max(h, 0.0)
        loss += room.box[t] * (h * h if squared else h)
    return loss


@compiled
def sow(counts, features, values, first, free, labels, answer):
    """Write the weights of labels from `first` on, label by label, where their features have room."""
    at = 0
    for l in range(counts.shape[0]):
        for _ in range(counts[l]):
            j = features[at]
            labels[free[j]], answer[free[j]] = first + l, values[at]
            free[j] += 1
            at += 1


# Members whose rows are asked for before they are needed; an entry of a row that may be in its second line.
AHEAD, LINE = 8, 12
# Of 16 bits.
LARGEST = 32767
# A first ascent has the background if the bias takes more than this part of what negative members can carry.
BURDEN = 0.1


@helper(hot=True)
def _open(costs, on, lanes, k, rule):
    """The positives of a label become its first members, with the alpha of their boxes."""
    l, size, loss = lanes.label[k], 0, 0.0
    h = 2.0 * costs.margin[l]
    for t in range(on.indptr[l], on.indptr[l + 1]):
        i = on.indices[t]
        if costs.weight[i] > 0.0:
            c = costs.weight[i] * costs.upper[1, l]
            lanes.members[k, size], lanes.alpha[k, size] = i, c
            loss += c * (h * h if costs.squared else h)
            size += 1
    lanes.n_on[k] = lanes.size[k] = size
    lanes.u[k], lanes.cull[k], lanes.target[k] = 0.0, rule.cull, rule.begin * loss
    lanes.apart[k], lanes.dual[k] = costs.bias > 0.0, -np.inf


@helper(hot=True)
def _enter(samples, costs, share, room, lanes, k, known):
    """The members of a lane come into the room; returns how many features are known then."""
    last = lanes.size[k] - 1
    for t in range(last + 1):
        ahead = samples.rows.indptr[lanes.members[k, min(t + AHEAD, last)]]
        prefetch(samples.rows.data, ahead)
        prefetch(samples.rows.indices, ahead)
        prefetch(samples.rows.data, ahead + LINE)
        prefetch(samples.rows.indices, ahead + LINE)
        further = lanes.members[k, min(t + 2 * AHEAD, last)]
        prefetch(samples.rows.indptr, further)
        prefetch(samples.squares, further)
        prefetch(costs.weight, further)
        prefetch(share, further)
        side = 1 if t < lanes.n_on[k] else 0
        known = join(samples, costs, room, lanes.label[k], lanes.members[k, t], side, t, known)
        a = room.alpha[t] = lanes.alpha[k, t]
        if a > 0.0:
            row_add(room.local, t, costs.bias, a if side else -a, room.w)
    return known


@helper(reorder=True)
def _cull(background, room, known, u, cull):
    """Keep the weights larger than `cull`; returns half the squared norm of all that are."""
    D = room.w.shape[0] - 1
    norm = square_of(room.w[D])
    for t in range(known):
        x = room.w[t]
        if u > 0.0:
            x -= u * (background.m[room.features[t]] - room.q[t])
        room.kept[t] = x if abs(x) > cull else 0.0
    for t in range(known):
        norm += square_of(room.kept[t])
    if u > 0.0:
        for s in range(D):
            j = background.order[s]
            x = u * background.m[j]
            if abs(x) <= cull:
                break
            if room.place[j] < 0:
                norm += x * x
    room.kept[D] = room.w[D]
    return 0.5 * norm


@helper
def _show(samples, costs, background, room, lanes, k, known):
    """Put the weights that are kept where they are looked at, in units of which the largest has 32,767."""
    D, u, cull, l, count = room.w.shape[0] - 1, lanes.u[k], lanes.cull[k], lanes.label[k], 0
    features, values = lanes.features[k], lanes.values[k]
    for t in range(known):
        features[count], values[count] = room.features[t], room.kept[t]
        count += int(room.kept[t] != 0.0)
    if u > 0.0:
        for s in range(D):
            j = background.order[s]
            x = -u * background.m[j]
            if abs(x) <= cull:
                break
            if room.place[j] < 0:
                features[count], values[count] = j, x
                count += 1
    largest = 0.0
    for t in range(count):
        largest = max(largest, abs(values[t]))
    unit = largest / LARGEST if largest > 0.0 else 1.0
    last = lanes.weights.shape[0] - 1
    for t in range(count):
        lanes.weights[min(features[t], last), k] = np.int16(np.rint(values[t] / unit))
    lanes.n_kept[k], lanes.bias[k], lanes.unit[k] = count, room.w[D], unit
    limit = -costs.margin[l] - costs.bias * room.w[D]
    limit -= samples.slack * np.sqrt(2.0 * lanes.half[k]) + 1e-6 * abs(limit) + samples.spread * unit
    lanes.limit[k] = limit / unit


@helper
def _drop(costs, background, room, lanes, k, known, cull):
    """Drop the weights up to `cull`; returns the members' part of the objective then."""
    half = lanes.half[k] = _cull(background, room, known, lanes.u[k], cull)
    return half + shortages(costs, room, lanes.label[k], lanes.n_on[k], lanes.size[k], lanes.short[k])


@helper(hot=True)
def _choose(costs, background, room, lanes, k, known, rule):
    """Drop weights as far as the members' part of the objective allows it, in steps of a quarter.

    The first turn settles nothing, and drops them all.
    """
    cull = lanes.cull[k]
    if lanes.turns[k] > 0:
        whole = _drop(costs, background, room, lanes, k, known, 0.0)
        allowed = SPARE * max(rule.tol * whole, whole - lanes.dual[k])
        while cull > 0.0 and not _drop(costs, background, room, lanes, k, known, cull) - whole <= allowed:
            cull = 0.25 * cull if cull > 1e-6 else 0.0
        lanes.cull[k] = cull
        if cull > 0.0:
            return
    _drop(costs, background, room, lanes, k, known, cull)


@helper(hot=True)
def _store(room, lanes, k, share):
    """Keep the members that matter: those off the margin with no alpha are found again if need be."""
    kept = 0
    for t in range(lanes.size[k]):
        i = lanes.members[k, t]
        if t < lanes.n_on[k] or room.alpha[t] > 0.0 or lanes.short[k, t] > 0.0 or share[i] > 0.0:
            lanes.members[k, kept], lanes.alpha[k, kept] = i, room.alpha[t]
            lanes.short[k, kept] = lanes.short[k, t]
            kept += 1
    lanes.size[k] = kept


@helper(hot=True)
def _guess(samples, costs, room, lanes, k, known):
    """Weights that find samples near the positives: the features these have, above all the rare ones.

    Negatives that share a frequent feature take its weight away, so it says little. A negative near one
    positive matters about as much as one near many, so it is roots that count.
    """
    l, last = lanes.label[k], room.w.shape[0] - 1
    for t in range(known):
        x = room.w[t]
        room.kept[t] = np.copysign(np.sqrt(abs(x) * samples.rarity[room.features[t]]), x)
    if costs.bias > 0.0:
        room.w[last] = -costs.margin[l] / costs.bias


@helper(hot=True)
def _burdened(costs, room, l, n_on, size):
    """Whether the bias would take a good part of what the first negatives can carry."""
    load, most = costs.margin[l] / square_of(costs.bias), 0.0
    for t in range(size):
        if t < n_on:
            load += room.box[t]
        else:
            most += room.box[t]
    return load > BURDEN * most


@helper(hot=True)
def _clear(lanes):
    """Take the weights of all lanes away, one by one or as they stand."""
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
def _climb(costs, background, rule, draws, room, lanes, k, known):
    """Ascent of a lane on its members, its dual objective, and the weights that are kept."""
    w, state, last = room.w, room.state, room.w.shape[0] - 1
    l, n_on, size = lanes.label[k], lanes.n_on[k], lanes.size[k]
    line, carried = Line(0.0, 0.0, 0.0, 0.0), lanes.u[k] > 0.0
    state[0], state[1], state[2], state[3] = 0.0, 0.0, background.ridge, lanes.bias[k]
    if lanes.turns[k] == 0 and costs.bias > 0.0:
        state[3] = -costs.margin[l] / costs.bias
        carried = _burdened(costs, room, l, n_on, size)
    if lanes.turns[k] > 0 or carried:
        line = straighten(costs, background, room, lanes.members[k], l, n_on, size, carried, state)
    apart = lanes.apart[k] and line.mass == 0.0
    well = ascend(costs, room, l, n_on, line, size, apart, lanes.target[k], rule.passes, draws)
    dual = dual_of(costs, room, l, line, state, size, known)
    # It never falls by steps that move the bias: so where it did, they do from now on.
    lanes.apart[k] = lanes.apart[k] and well and dual >= lanes.dual[k]
    lanes.dual[k] = dual
    lanes.u[k], w[last] = state[0], state[3]
    _choose(costs, background, room, lanes, k, known, rule)


@compiled
def climb(samples, costs, background, on, rule, draws, room, lanes):
    """Every lane: ascent on its members, its dual objective, and the weights that are looked at next."""
    D = room.w.shape[0] - 1
    _clear(lanes)
    for k in range(len(LANES)):
        lanes.n_kept[k], lanes.limit[k] = 0, np.inf
        if lanes.label[k] >= 0:
            first = lanes.turns[k] < 0
            if first:
                _open(costs, on, lanes, k, rule)
            known = D if room.local.dense else min(COMMON, D)
            known = _enter(samples, costs, background.share, room, lanes, k, known)
            if first:
                _guess(samples, costs, room, lanes, k, known)
            else:
                _climb(costs, background, rule, draws, room, lanes, k, known)
            _show(samples, costs, background, room, lanes, k, known)
            if first:
                # Scores of zero are not near.
                lanes.half[k], lanes.limit[k] = 0.0, 1e-30
            else:
                _store(room, lanes, k, background.share)
            leave(room, known)
            lanes.turns[k] += 1
