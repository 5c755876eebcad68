"""Loss-augmented inference for the F-score: which set of labels violates the margin most?

For an example with scores a, attractive pairs W >= 0 and true set P of n1 = |P| labels,

    h(y) = s(y) + 1 - 2 p / (k + n1),   s(y) = sum_i a_i y_i + sum_{i<j} W_ij y_i y_j,
    k = |y|,  p = |y and P|,            h(empty) = 0 when n1 = 0,

and the slack of y is h(y) - s(P).

*Exact.* 1/(k + n1) is convex in k, so a line A + B k that touches it from below at one or two
neighbouring integers gives U(y) = 1 + s(y) - 2 p (A + B k) >= h(y), with equality where it
touches and where p = 0. As B < 0, U is again unary scores and attractive pairs, one cut. Its
maximum is convex in the slope B: bisection over the chords through k0 and k0 + 1, then secant
steps over the lines through one integer, find the best bound. What is not settled so branches on
a label, after fixing the labels of the fixed point below, which belong to some optimum.

*Fixed point.* With the loss at a fixed cardinality k, h_k(y) = s(y) + 1 - 2 p / (k + n1) is one
cut, and the size of its largest maximiser grows with k. The greatest k that equals the size of
its own maximiser is reached by iterating k <- |y_k| downward from V. The answer lies inside
some optimum but need not be one; the true set is kept when it is better.

*Without pairs* the best y is the top p of P and the top q of the rest, for some p and q: sorting.

Reference: Petterson and Caetano, "Submodular multi-label learning", 2011: Algorithms 2 and 3.
"""

from __future__ import annotations

import numpy as np

from maxmargin._jit._compile import compiled
from maxmargin._jit.cuts import FREE, OFF, ON, cut_workspace, maximise, own_graph, set_score

SETTLED = 1e-10
SECANTS = 12


@compiled
def largest_truth(truth, begin, end):
    """Size of the largest true set among the examples from `begin` to `end`."""
    largest = 0
    for n in range(begin, end):
        size = 0
        for i in range(truth.shape[1]):
            size += truth[n, i]
        largest = max(largest, size)
    return largest


@compiled
def inference_workspace(V, n_arcs, largest):
    """Scratch arrays for inference with true sets of at most `largest` labels."""
    joint_arcs = n_arcs + largest * (2 * V - 1 - largest)
    joint = (
        np.empty(V + 1, np.int64),
        np.empty(V, np.int64),
        np.empty(joint_arcs, np.uint32),
        np.empty(joint_arcs, np.uint32),
        np.empty(joint_arcs),
        np.empty(joint_arcs, np.uint8),
        np.empty(V),
    )
    sets = np.zeros((7, V), np.uint8)
    stack = np.empty((V + 2, V), np.uint8)
    bounds = np.empty(V + 2)
    return joint, sets, stack, bounds, np.empty(V), cut_workspace(V, joint_arcs)


@compiled
def join_truth(plain, truth, n1, joint):
    """Write into `joint` the graph `plain` with the family of arcs around the true set added."""
    start, _, head, mirror, weight, _, total = plain
    joint_start, joint_stop, joint_head, joint_mirror, joint_weight, around, joint_total = joint
    V = truth.shape[0]
    joint_start[0] = 0
    for i in range(V):
        joint_stop[i] = joint_start[i] + start[i + 1] - start[i]
        joint_start[i + 1] = joint_stop[i] + (V - 1 if truth[i] else n1)
        joint_total[i] = total[i]
    rank = 0
    for i in range(V):
        a = joint_start[i]
        for k in range(start[i], start[i + 1]):
            j = head[k]
            joint_head[a] = j
            joint_mirror[a] = mirror[k] - start[j] + joint_start[j]
            joint_weight[a] = weight[k]
            around[a] = 0
            a += 1
        for j in range(V):
            if j == i or not (truth[i] or truth[j]):
                continue
            joint_head[a] = j
            if truth[j]:
                joint_mirror[a] = joint_stop[j] + (i - 1 if i > j else i)
            else:
                joint_mirror[a] = joint_stop[j] + rank
            joint_weight[a] = 0.0
            around[a] = truth[i] + truth[j]
            a += 1
        rank += truth[i]


@compiled
def copy(target, source):
    """Write one set over another (a plain loop compiles many times faster than a slice)."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@compiled
def fill(target, value):
    """Write one state over all labels."""
    for i in range(target.shape[0]):
        target[i] = value


@compiled(inline=True)
def size_and_hits(truth, y):
    """k = |y| and p = |y and P|."""
    size, hits = 0, 0
    for i in range(y.shape[0]):
        size += y[i]
        hits += y[i] * truth[i]
    return size, hits


@compiled
def augmented_score(a, plain, truth, n1, y):
    """h(y)."""
    size, hits = size_and_hits(truth, y)
    loss = 1.0 - 2.0 * hits / (size + n1) if size + n1 > 0 else 0.0
    return set_score(a, plain, y) + loss


@compiled
def empty_truth(a, plain, truth, work, state, trial, y):
    """Exact inference when no label is true: the best non-empty set, or the empty one."""
    V = a.shape[0]
    total = plain[6]
    fill(state, FREE)
    best = 0.0
    for i in range(-1, V):
        if i >= 0:
            # No set scores above the empty one, so label i brings at most its own score and pairs.
            if 1.0 + a[i] + total[i] <= best:
                continue
            state[i] = ON
        maximise(a, 0.0, truth, state, plain, True, work, trial)
        value = 1.0 + set_score(a, plain, trial)
        if i >= 0:
            state[i] = FREE
            if value > best:
                best = value
                copy(y, trial)
        else:
            copy(y, trial)
            for j in range(V):
                if trial[j]:
                    return value
    return best


@compiled
def fixed_point(a, plain, truth, n1, work, u, state, y):
    """The greatest fixed point of k -> |largest maximiser of h_k|, written into y.

    Labels that leave the maximiser stay off, so `state` ends as a record of them.
    """
    V = a.shape[0]
    size = V
    for i in range(V):
        size -= state[i] == OFF
    while True:
        price = 2.0 / (size + n1)
        for i in range(V):
            u[i] = a[i] - price * truth[i]
        maximise(u, 0.0, truth, state, plain, True, work, y)
        now = 0
        for i in range(V):
            now += y[i]
            if not y[i]:
                state[i] = OFF
        if now == size:
            return size
        size = now


@compiled
def best_addition(a, plain, truth, n1, y, size, work, u, state, trial):
    """Gain in h_k, at k = |y|, of the best set that contains y and one label more.

    Minus infinity when y is everything already (Algorithm 3).
    """
    V = a.shape[0]
    price = 2.0 / (size + n1)
    for i in range(V):
        u[i] = a[i] - price * truth[i]
        state[i] = ON if y[i] else FREE
    here = set_score(u, plain, y)
    best = -np.inf
    for i in range(V):
        if not y[i]:
            state[i] = ON
            maximise(u, 0.0, truth, state, plain, False, work, trial)
            state[i] = FREE
            best = max(best, set_score(u, plain, trial) - here)
    return best


@compiled
def line_cut(a, plain, truth, n1, intercept, slope, state, joint, work, u, trial):
    """Maximise U for the line `intercept + slope * k`; answer U, h, k and p of the maximiser."""
    for i in range(a.shape[0]):
        u[i] = a[i] - 2.0 * (intercept + slope) * truth[i]
    maximise(u, -2.0 * slope, truth, state, joint, False, work, trial)
    score = 1.0 + set_score(a, plain, trial)
    size, hits = size_and_hits(truth, trial)
    upper = score - 2.0 * hits * (intercept + slope * size)
    return upper, score - 2.0 * hits / (size + n1), size, hits


@compiled
def exact_search(a, plain, truth, n1, max_nodes, hint, scratch, y):
    """Branch and bound on h for n1 >= 1.

    Answers the best value, a bound on the optimum (equal to it up to rounding unless `max_nodes`
    ended the search), the number of nodes, and the cardinality to try first next time.
    """
    joint, sets, stack, bounds, u, work = scratch
    state, trial, small, large, wake = sets[0], sets[1], sets[2], sets[3], sets[4]
    V = a.shape[0]
    join_truth(plain, truth, n1, joint)
    copy(y, truth)
    best = set_score(a, plain, truth)
    unsettled = -np.inf
    nodes, depth = 0, 1
    fill(stack[0], FREE)
    bounds[0] = np.inf
    first_hint = hint
    while depth > 0:
        depth -= 1
        bound = bounds[depth]
        if bound <= best + SETTLED:
            continue
        if nodes == max_nodes:
            unsettled = max(unsettled, bound)
            continue
        nodes += 1
        copy(state, stack[depth])
        low, high = 0, V - 1
        for i in range(V):
            low += state[i] == ON
            high -= state[i] == OFF
        if high < low:
            for i in range(V):
                trial[i] = state[i] == ON
            value = augmented_score(a, plain, truth, n1, trial)
            if value > best:
                best = value
                copy(y, trial)
            continue

        too_small, too_large = False, False
        k0 = min(max(hint, low), high)
        while low <= high:
            slope = -1.0 / ((k0 + n1) * (k0 + 1 + n1))
            intercept = 1.0 / (k0 + n1) - slope * k0
            upper, value, size, _ = line_cut(
                a, plain, truth, n1, intercept, slope, state, joint, work, u, trial
            )
            bound = min(bound, upper)
            if value > best:
                best = value
                copy(y, trial)
            if bound <= best + SETTLED:
                break
            if size > k0:
                low = k0 + 1
                too_large = True
                copy(large, trial)
            else:
                high = k0 - 1
                too_small = True
                copy(small, trial)
            hint = k0
            k0 = (low + high) // 2
        if nodes == 1:
            first_hint = k0 if low <= high else hint
        if bound <= best + SETTLED:
            continue
        if too_small and too_large:
            bound, best = refine(
                a, plain, truth, n1, low, state, joint, work, u, trial, small, large, bound, best, y
            )
            if bound <= best + SETTLED:
                continue

        copy(wake, state)
        fixed_point(a, plain, truth, n1, work, u, wake, trial)
        value = augmented_score(a, plain, truth, n1, trial)
        if value > best:
            best = value
            copy(y, trial)
        if bound <= best + SETTLED:
            continue
        choice, contested, strength = -1, False, -1.0
        for i in range(V):
            if trial[i]:
                state[i] = ON
            elif state[i] == FREE:
                disputed = too_small and too_large and small[i] != large[i]
                if (disputed, abs(a[i])) > (contested, strength):
                    choice, contested, strength = i, disputed, abs(a[i])
        if choice < 0:
            continue
        for way in (OFF, ON):
            copy(stack[depth], state)
            stack[depth, choice] = way
            bounds[depth] = bound
            depth += 1
    return best, max(best, unsettled), nodes, first_hint


@compiled
def refine(a, plain, truth, n1, m, state, joint, work, u, trial, small, large, bound, best, y):
    """Lower the bound over the lines that touch 1/(k + n1) at k = m alone.

    U(y) = level(y) - 2 p (k - m) B with level(y) = 1 + s(y) - 2 p / (m + n1): `large` (k > m)
    rules for steep slopes, `small` (k < m) for flat ones, and where they cross is the next cut.
    """
    touch = 1.0 / (m + n1)
    size, hits = size_and_hits(truth, small)
    small_level = 1.0 + set_score(a, plain, small) - 2.0 * hits * touch
    small_tilt = 2.0 * hits * (size - m)
    size, hits = size_and_hits(truth, large)
    large_level = 1.0 + set_score(a, plain, large) - 2.0 * hits * touch
    large_tilt = 2.0 * hits * (size - m)
    for _ in range(SECANTS):
        if not (small_tilt < 0 < large_tilt):
            break
        slope = (large_level - small_level) / (large_tilt - small_tilt)
        upper, value, size, hits = line_cut(
            a, plain, truth, n1, touch - slope * m, slope, state, joint, work, u, trial
        )
        crossing = small_level - small_tilt * slope
        bound = min(bound, upper)
        if value > best:
            best = value
            copy(y, trial)
        if bound <= best + SETTLED or upper <= crossing + SETTLED:
            break
        level = upper + 2.0 * hits * (size - m) * slope
        if size > m:
            copy(large, trial)
            large_level, large_tilt = level, 2.0 * hits * (size - m)
        else:
            copy(small, trial)
            small_level, small_tilt = level, 2.0 * hits * (size - m)
    return bound, best


@compiled
def independent_search(a, truth, n1, order, y):
    """Exact inference without pairs, by sorting; answers h of the set written into y."""
    V = a.shape[0]
    ranked = np.argsort(-a)
    for c in range(V):
        order[c] = ranked[c]
    for i in range(V):
        y[i] = 0
    if n1 == 0:
        value = 1.0 + a[order[0]]
        if value <= 0:
            return 0.0
        y[order[0]] = 1
        for c in range(1, V):
            if a[order[c]] <= 0:
                break
            y[order[c]] = 1
            value += a[order[c]]
        return value
    best, best_hits, best_misses = -np.inf, 0, 0
    hits, hit_sum, next_hit = 0, 0.0, 0
    misses, miss_sum, next_miss = 0, 0.0, 0
    while True:
        while next_miss < V:
            j = order[next_miss]
            if truth[j]:
                next_miss += 1
                continue
            size = hits + misses + n1
            if a[j] + 2.0 * hits / (size * (size + 1.0)) <= 0:
                break
            misses += 1
            miss_sum += a[j]
            next_miss += 1
        value = hit_sum + miss_sum + 1.0 - 2.0 * hits / (hits + misses + n1)
        if value > best:
            best, best_hits, best_misses = value, hits, misses
        if hits == n1:
            break
        while not truth[order[next_hit]]:
            next_hit += 1
        hit_sum += a[order[next_hit]]
        next_hit += 1
        hits += 1
    for c in range(V):
        i = order[c]
        if truth[i]:
            y[i] = best_hits > 0
            best_hits -= 1 if best_hits > 0 else 0
        else:
            y[i] = best_misses > 0
            best_misses -= 1 if best_misses > 0 else 0
    return best


@compiled
def infer(a, plain, truth, exact, max_nodes, hint, order, scratch, y):
    """One example by the method asked for: slack of y, bound on the slack, nodes, next hint.

    The bound is infinite where the method proves none.
    """
    sets, u, work = scratch[1], scratch[4], scratch[5]
    n1 = 0
    for i in range(a.shape[0]):
        n1 += truth[i]
    at_truth = set_score(a, plain, truth)
    if plain[2].shape[0] == 0:
        value = independent_search(a, truth, n1, order, y) - at_truth
        return value, value, 1, hint
    if n1 == 0:
        value = empty_truth(a, plain, truth, work, sets[5], sets[6], y)
        return value, value, 1, hint
    if exact:
        value, bound, nodes, hint = exact_search(a, plain, truth, n1, max_nodes, hint, scratch, y)
        return value - at_truth, bound - at_truth, nodes, hint
    state = sets[0]
    fill(state, FREE)
    fixed_point(a, plain, truth, n1, work, u, state, y)
    value = augmented_score(a, plain, truth, n1, y)
    if value < at_truth:
        copy(y, truth)
        value = at_truth
    return value - at_truth, np.inf, 1, hint


@compiled
def infer_batch(
    scores,
    truth,
    start,
    head,
    mirror,
    weight,
    total,
    exact,
    max_nodes,
    begin,
    end,
    hints,
    Y,
    slack,
    bound,
    nodes,
):
    """Inference for the examples from `begin` to `end`, all over the same pairs."""
    V = scores.shape[1]
    plain = own_graph(start, head, mirror, weight, total)
    scratch = inference_workspace(V, head.shape[0], largest_truth(truth, begin, end))
    order = np.empty(V, np.int64)
    for n in range(begin, end):
        slack[n], bound[n], nodes[n], hints[n] = infer(
            scores[n], plain, truth[n], exact, max_nodes, hints[n], order, scratch, Y[n]
        )


@compiled
def fixed_point_batch(
    scores, truth, start, head, mirror, weight, total, certify, begin, end, Y, value, certified
):
    """Algorithm 2 for each example, and with `certify` whether Algorithm 3 proves it optimal.

    Nothing repairs the answer here: h may be below that of the true set. An empty true set is
    handled exactly.
    """
    V = scores.shape[1]
    plain = own_graph(start, head, mirror, weight, total)
    scratch = inference_workspace(V, head.shape[0], 0)
    sets, u, work = scratch[1], scratch[4], scratch[5]
    for n in range(begin, end):
        a, y = scores[n], Y[n]
        n1 = 0
        for i in range(V):
            n1 += truth[n, i]
        if n1 == 0:
            value[n] = empty_truth(a, plain, truth[n], work, sets[5], sets[6], y)
            certified[n] = 1
            continue
        fill(sets[0], FREE)
        size = fixed_point(a, plain, truth[n], n1, work, u, sets[0], y)
        value[n] = augmented_score(a, plain, truth[n], n1, y)
        if certify:
            gain = best_addition(a, plain, truth[n], n1, y, size, work, u, sets[0], sets[1])
            growth = 2.0 * (V - size) / ((V + n1) * (size + n1))
            certified[n] = gain + growth * n1 <= 0
