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
a label, after fixing the labels of the fixed point, which belong to some optimum.

*Fixed point.* The paper's Algorithm 2; the true set is kept when it is better. *Without pairs* the
answer is found by sorting. Both are in `f1_sets`.

Reference: Petterson and Caetano, "Submodular multi-label learning", 2011: Algorithms 2 and 3.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.submodular.cut_loops import (
    FREE,
    OFF,
    ON,
    SMALLEST,
    cut_workspace,
    maximise,
    own_graph,
    set_score,
)
from maxmargin.submodular.set_loops import (
    augmented_score,
    best_addition,
    copy,
    empty_truth,
    fill,
    fixed_point,
    independent_search,
    size_and_hits,
)

SETTLED = 1e-10
SECANTS = 12


@compiled
def inference_workspace(V):
    """Scratch arrays for inference with V labels: sets, nodes to visit and their bounds, scores, cuts."""
    sets = np.zeros((7, V), np.uint8)
    stack = np.empty((V + 2, V), np.uint8)
    return sets, stack, np.empty(V + 2), np.empty(V), cut_workspace(V)


@compiled
def line_cut(a, graph, truth, n1, intercept, slope, state, work, u, trial):
    """Maximise U for the line `intercept + slope * k`; answer U, h, k and p of the maximiser."""
    for i in range(a.shape[0]):
        u[i] = a[i] - 2.0 * (intercept + slope) * truth[i]
    maximise(u, -2.0 * slope, truth, state, graph, SMALLEST, work, trial)
    score = 1.0 + set_score(a, graph, trial)
    size, hits = size_and_hits(truth, trial)
    upper = score - 2.0 * hits * (intercept + slope * size)
    return upper, score - 2.0 * hits / (size + n1), size, hits


@compiled
def exact_search(a, graph, truth, n1, max_nodes, hint, scratch, y):
    """Branch and bound on h for n1 >= 1.

    Answers the best value, a bound on the optimum (equal to it up to rounding unless `max_nodes`
    ended the search), the number of nodes, and the cardinality to try first next time.
    """
    sets, stack, bounds, u, work = scratch
    state, trial, small, large, wake = sets[0], sets[1], sets[2], sets[3], sets[4]
    V = a.shape[0]
    copy(y, truth)
    best = set_score(a, graph, truth)
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
            value = augmented_score(a, graph, truth, n1, trial)
            if value > best:
                best = value
                copy(y, trial)
            continue

        too_small, too_large = False, False
        k0 = min(max(hint, low), high)
        while low <= high:
            slope = -1.0 / ((k0 + n1) * (k0 + 1 + n1))
            intercept = 1.0 / (k0 + n1) - slope * k0
            upper, value, size, _ = line_cut(a, graph, truth, n1, intercept, slope, state, work, u, trial)
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
                a, graph, truth, n1, low, state, work, u, trial, small, large, bound, best, y
            )
            if bound <= best + SETTLED:
                continue

        copy(wake, state)
        fixed_point(a, graph, truth, n1, work, u, wake, trial)
        value = augmented_score(a, graph, truth, n1, trial)
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
def refine(a, graph, truth, n1, m, state, work, u, trial, small, large, bound, best, y):
    """Lower the bound over the lines that touch 1/(k + n1) at k = m alone.

    U(y) = level(y) - 2 p (k - m) B with level(y) = 1 + s(y) - 2 p / (m + n1): `large` (k > m)
    rules for steep slopes, `small` (k < m) for flat ones, and where they cross is the next cut.
    """
    touch = 1.0 / (m + n1)
    size, hits = size_and_hits(truth, small)
    small_level = 1.0 + set_score(a, graph, small) - 2.0 * hits * touch
    small_tilt = 2.0 * hits * (size - m)
    size, hits = size_and_hits(truth, large)
    large_level = 1.0 + set_score(a, graph, large) - 2.0 * hits * touch
    large_tilt = 2.0 * hits * (size - m)
    for _ in range(SECANTS):
        if not (small_tilt < 0 < large_tilt):
            break
        slope = (large_level - small_level) / (large_tilt - small_tilt)
        upper, value, size, hits = line_cut(
            a, graph, truth, n1, touch - slope * m, slope, state, work, u, trial
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
def infer(a, graph, truth, exact, max_nodes, hint, order, scratch, y):
    """One example by the method asked for: slack of y, bound on the slack, nodes, next hint.

    The bound is infinite where the method proves none.
    """
    sets, u, work = scratch[0], scratch[3], scratch[4]
    n1 = np.int64(0)
    for i in range(a.shape[0]):
        n1 += truth[i]
    at_truth = set_score(a, graph, truth)
    if graph[1].shape[0] == 0:
        value = independent_search(a, truth, n1, order, y) - at_truth
        return value, value, 1, hint
    if n1 == 0:
        value = empty_truth(a, graph, truth, work, sets[5], sets[6], y)
        return value, value, 1, hint
    if exact:
        value, bound, nodes, hint = exact_search(a, graph, truth, n1, max_nodes, hint, scratch, y)
        return value - at_truth, bound - at_truth, nodes, hint
    state = sets[0]
    fill(state, FREE)
    fixed_point(a, graph, truth, n1, work, u, state, y)
    value = augmented_score(a, graph, truth, n1, y)
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
    graph = own_graph(start, head, weight, total)
    scratch = inference_workspace(V)
    order = np.empty(V, np.int64)
    a = np.empty(V)
    for n in range(begin, end):
        copy(a, scores[n])
        slack[n], bound[n], nodes[n], hints[n] = infer(
            a, graph, truth[n], exact, max_nodes, hints[n], order, scratch, Y[n]
        )


@compiled
def fixed_point_batch(scores, truth, start, head, weight, total, certify, begin, end, Y, value, certified):
    """Algorithm 2 for each example, and with `certify` whether Algorithm 3 proves it optimal.

    Nothing repairs the answer here: h may be below that of the true set. An empty true set is
    handled exactly.
    """
    V = scores.shape[1]
    graph = own_graph(start, head, weight, total)
    scratch = inference_workspace(V)
    sets, u, work = scratch[0], scratch[3], scratch[4]
    a = np.empty(V)
    for n in range(begin, end):
        copy(a, scores[n])
        y = Y[n]
        n1 = np.int64(0)
        for i in range(V):
            n1 += truth[n, i]
        if n1 == 0:
            value[n] = empty_truth(a, graph, truth[n], work, sets[5], sets[6], y)
            certified[n] = 1
            continue
        fill(sets[0], FREE)
        size = fixed_point(a, graph, truth[n], n1, work, u, sets[0], y)
        value[n] = augmented_score(a, graph, truth[n], n1, y)
        if certify:
            gain = best_addition(a, graph, truth[n], n1, y, size, work, u, sets[0], sets[1])
            growth = 2.0 * (V - size) / ((V + n1) * (size + n1))
            certified[n] = gain + growth * n1 <= 0
