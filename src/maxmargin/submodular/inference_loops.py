"""Loss-augmented inference for the F-score: which set of labels violates the margin most?

For a sample with scores a, attractive pairs W >= 0 and true set P of n1 = |P| labels,

    h(y) = s(y) + 1 - 2 p / (k + n1),   s(y) = sum_i a_i y_i + sum_{i<j} W_ij y_i y_j,
    k = |y|,  p = |y and P|,            h(empty) = 0 when n1 = 0,

which is (8) of Petterson and Caetano, "Submodular multi-label learning", 2011, and the slack (5) of
y is h(y) - s(P).

*Exact.* 1/(k + n1) is convex in k, so a line A + B k that touches it from below at one or two
neighbouring integers gives U(y) = 1 + s(y) - 2 p (A + B k) >= h(y), with equality where it
touches and where p = 0. As B < 0, U is again unary scores and attractive pairs, one cut. Its
maximum is convex in the slope B: bisection over the chords through k0 and k0 + 1, then secant
steps over the lines through one integer, find the best bound. What is not settled so branches on
a label, after fixing the labels of the fixed point, which belong to some optimum (Theorem 1).

*Fixed point* (Algorithm 2). With the loss at a fixed cardinality k, h_k(y) = s(y) + 1 - 2 p / (k + n1)
is one cut, and the size of its largest maximiser grows with k. The greatest k that equals the size
of its own maximiser is reached by iterating k <- |y_k| downward from V. The answer lies inside some
optimum but need not be one; Algorithm 3 and Theorem 2 sometimes prove that it is.

*Without pairs* the best y is the top p of P and the top q of the rest, for some p and q: sorting.

At the end are sums over the sets that samples remember, which the interior point method takes many of: scores
of sets, T holding the weights of pairs above its diagonal, and sums over the labels and pairs of sets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.submodular.cut_loops import (
    FREE,
    LARGEST,
    OFF,
    ON,
    ROUNDING,
    SMALLEST,
    CutRoom,
    Graph,
    copy,
    fill,
    maximise,
    set_score,
)

# Most secant steps of one node. They end by themselves once a step no longer helps, and the bound is
# valid after any number of them.
SECANTS = 12


class Example(NamedTuple):
    """One sample at one theta: scores a, the true set P as 0/1, its size n1, and the pairs."""

    a: np.ndarray
    truth: np.ndarray
    n1: np.int64
    graph: Graph


class SearchRoom(NamedTuple):
    """Workspace of inference: one sample, states and sets of labels, nodes and their bounds, scores, cuts."""

    a: np.ndarray
    truth: np.ndarray
    state: np.ndarray
    wake: np.ndarray
    trial: np.ndarray
    small: np.ndarray
    large: np.ndarray
    stack: np.ndarray
    bounds: np.ndarray
    u: np.ndarray
    order: np.ndarray
    cuts: CutRoom

    @classmethod
    def empty(cls, V: int) -> SearchRoom:
        """Workspace for inference with V labels."""
        truth, state, wake, trial, small, large = np.zeros((6, V), np.uint8)
        stack, bounds = np.empty((V + 2, V), np.uint8), np.empty(V + 2)
        a, u = np.empty((2, V))
        order, cuts = np.empty(V, np.int64), CutRoom.empty(V)
        return cls(a, truth, state, wake, trial, small, large, stack, bounds, u, order, cuts)


class Answer(NamedTuple):
    """What inference found for all samples at one theta.

    `slack[n]` belongs to `sets[n]`; `bound[n]` is no smaller than any slack of sample n, and
    equal to `slack[n]` (to rounding) where the answer is optimal.
    """

    sets: np.ndarray
    slack: np.ndarray
    bound: np.ndarray
    nodes: np.ndarray


class Proof(NamedTuple):
    """The sets that Algorithm 2 found, h of them, and whether Algorithm 3 proves them optimal."""

    sets: np.ndarray
    values: np.ndarray
    proven: np.ndarray


class PairWeights(NamedTuple):
    """Pairs of labels (`first`, `second`) and one weight each."""

    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray


@helper
def size_and_hits(truth, y):
    """k = |y| and p = |y and P|."""
    size, hits = np.int64(0), np.int64(0)
    for i in range(y.shape[0]):
        size += y[i]
        hits += y[i] * truth[i]
    return size, hits


@helper(hot=True)
def f1_loss(size, hits, n1):
    """1 - F1 (1) of a set of `size` labels, `hits` of them true; 0 between two empty sets."""
    return 1.0 - 2.0 * hits / (size + n1) if size + n1 > 0 else 0.0


@helper(hot=True)
def increment(k, further, n1):
    """What the score of a true label gains when the cardinality grows from k to `further` (10)."""
    return 2.0 * (further - k) / ((further + n1) * (k + n1))


@helper
def augmented_score(example, y):
    """h(y), the objective (8) up to a constant."""
    size, hits = size_and_hits(example.truth, y)
    return set_score(example.a, example.graph, y) + f1_loss(size, hits, example.n1)


@helper(hot=True)
def keep_better(value, best, trial, y):
    """Write `trial` over y when its value is above the best; answers the best value."""
    if value > best:
        copy(y, trial)
        return value
    return best


@helper
def line_cut(example, intercept, slope, room):
    """Maximise U for the line `intercept + slope * k` under `state`, into `trial`.

    Answers U, h, k and p of the maximiser, and by how much at most it misses the largest U.
    """
    a, truth, n1, graph = example
    u, trial = room.u, room.trial
    # p k is p plus the pairs with at least one label in P, twice for two: the family of the cut.
    for i in range(a.shape[0]):
        u[i] = a[i] - 2.0 * (intercept + slope) * truth[i]
    missed = maximise(u, -2.0 * slope, truth, room.state, graph, SMALLEST, room.cuts, trial)
    score = 1.0 + set_score(a, graph, trial)
    size, hits = size_and_hits(truth, trial)
    upper = score - 2.0 * hits * (intercept + slope * size)
    return upper, score - 2.0 * hits / (size + n1), size, hits, missed


@helper(hot=True)
def rounding(example):
    """Values of h closer than this count as equal: their sums are rounded by about as much."""
    a, total, scale = example.a, example.graph.total, 1.0
    for i in range(a.shape[0]):
        scale = max(scale, abs(a[i]), total[i])
    return ROUNDING * a.shape[0] * scale


@helper
def exact_search(example, max_nodes, hint, room, y):
    """Solve (4), the maximum of h, by branch and bound for n1 >= 1.

    Answers the best value, a bound on the optimum (equal to it up to rounding unless `max_nodes`
    ended the search), the number of nodes, and the cardinality to try first next time. The bound contains
    what nodes left open because their values count as equal, and what all cuts can have missed.
    """
    state, trial, stack, bounds = room.state, room.trial, room.stack, room.bounds
    V = example.a.shape[0]
    # The true set is the first candidate, so that no slack is negative.
    copy(y, example.truth)
    best = set_score(example.a, example.graph, y)
    closed, missed, settled = -np.inf, 0.0, rounding(example)
    nodes, depth = 0, 1
    fill(stack[0], FREE)
    bounds[0] = np.inf
    first_hint = hint
    while depth > 0:
        depth -= 1
        bound = bounds[depth]
        if bound <= best + settled or nodes == max_nodes:
            # A node that is never opened counts with the bound of its parent.
            closed = max(closed, bound)
            continue
        nodes += 1
        copy(state, stack[depth])
        low, high = chords(state)
        if high < low:
            # Every label is decided.
            for i in range(V):
                trial[i] = state[i] == ON
            best = keep_better(augmented_score(example, trial), best, trial, y)
            continue

        bound, best, touch, straddled, hint, next_hint, short = bisect_chords(
            example, low, high, hint, bound, best, settled, room, y
        )
        missed += short
        if nodes == 1:
            first_hint = next_hint
        if straddled and bound > best + settled:
            bound, best, short = refine(example, touch, bound, best, settled, room, y)
            missed += short
        if bound > best + settled:
            # By Theorem 1, which holds under forced labels too, some optimum of this node contains the fixed
            # point, so that only labels outside of it are branched on.
            copy(room.wake, state)
            _, short = fixed_point(example, room.wake, room, trial)
            missed += short
            best = keep_better(augmented_score(example, trial), best, trial, y)
        if bound <= best + settled:
            closed = max(closed, bound)
            continue
        choice = fix_and_branch(example.a, straddled, room)
        if choice < 0:
            continue
        # The last one on the stack is visited first.
        for way in (OFF, ON):
            copy(stack[depth], state)
            stack[depth, choice] = way
            bounds[depth] = bound
            depth += 1
    return best, max(best, closed) + missed, nodes, first_hint


@helper(hot=True)
def chords(state):
    """The least and the largest k whose chord, through k and k + 1, the decided labels allow."""
    low, high = 0, state.shape[0] - 1
    for i in range(state.shape[0]):
        low += state[i] == ON
        high -= state[i] == OFF
    return low, high


@helper(hot=True)
def bisect_chords(example, low, high, hint, bound, best, settled, room, y):
    """Lower the bound of a node over the chords through k and k + 1, k from `low` to `high`.

    A maximiser with more than k labels asks for a flatter chord, one with fewer for a steeper one;
    the last of each kind stay in `large` and `small`. Answers bound, best value, the k where both
    meet, whether both kinds were met, the last k that settled nothing, the k to start with next time, and
    what the cuts can have missed.
    """
    too_small, too_large, missed = False, False, 0.0
    n1 = example.n1
    k = min(max(hint, low), high)
    while low <= high:
        slope = -1.0 / ((k + n1) * (k + 1 + n1))
        intercept = 1.0 / (k + n1) - slope * k
        upper, value, size, _, short = line_cut(example, intercept, slope, room)
        missed += short
        bound = min(bound, upper)
        best = keep_better(value, best, room.trial, y)
        if bound <= best + settled:
            return bound, best, low, False, hint, k, missed
        if size > k:
            low = k + 1
            too_large = True
            copy(room.large, room.trial)
        else:
            high = k - 1
            too_small = True
            copy(room.small, room.trial)
        hint = k
        k = (low + high) // 2
    return bound, best, low, too_small and too_large, hint, hint, missed


@helper(hot=True)
def refine(example, m, bound, best, settled, room, y):
    """Lower the bound over the lines that touch 1/(k + n1) at k = m alone.

    U(y) = level(y) - 2 p (k - m) B with level(y) = 1 + s(y) - 2 p / (m + n1): `large` (k > m)
    rules for steep slopes, `small` (k < m) for flat ones, and where they cross is the next cut. Answers
    bound, best value, and what the cuts can have missed.
    """
    missed = 0.0
    a, truth, n1, graph = example
    small, large, trial = room.small, room.large, room.trial
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
        upper, value, size, hits, short = line_cut(example, touch - slope * m, slope, room)
        missed += short
        crossing = small_level - small_tilt * slope
        bound = min(bound, upper)
        best = keep_better(value, best, trial, y)
        if bound <= best + settled or upper <= crossing + settled:
            break
        level = upper + 2.0 * hits * (size - m) * slope
        if size > m:
            copy(large, trial)
            large_level, large_tilt = level, 2.0 * hits * (size - m)
        else:
            copy(small, trial)
            small_level, small_tilt = level, 2.0 * hits * (size - m)
    return bound, best, missed


@helper(hot=True)
def fix_and_branch(a, straddled, room):
    """Switch the labels of the fixed point (`trial`) on; answer the label to branch on, -1 for none.

    Preferred are labels that the maximisers on either side of the bound dispute, then large scores.
    """
    state, trial, small, large = room.state, room.trial, room.small, room.large
    choice, contested, strength = -1, False, -1.0
    for i in range(a.shape[0]):
        if trial[i]:
            state[i] = ON
        elif state[i] == FREE:
            disputed = straddled and small[i] != large[i]
            if (disputed, abs(a[i])) > (contested, strength):
                choice, contested, strength = i, disputed, abs(a[i])
    return choice


@helper
def fixed_point(example, state, room, y):
    """Algorithm 2: the greatest fixed point of k -> |largest maximiser of h_k|, written into y.

    Labels that leave the maximiser stay off, so `state` ends as a record of them. Answers its size, and what
    its cut can have missed.
    """
    a, truth, n1, graph = example
    u, V = room.u, a.shape[0]
    size = V
    for i in range(V):
        size -= state[i] == OFF
    while True:
        price = 2.0 / (size + n1)
        for i in range(V):
            u[i] = a[i] - price * truth[i]
        missed = maximise(u, 0.0, truth, state, graph, LARGEST, room.cuts, y)
        now = 0
        for i in range(V):
            now += y[i]
            if not y[i]:
                state[i] = OFF
        if now == size:
            return size, missed
        size = now


@helper
def best_addition(example, size, room, y):
    """Algorithm 3: a bound of the gain in h_k, at k = |y|, of sets that contain y and one label more.

    This is the maximum of beta in (14); minus infinity when y is everything already.
    """
    a, truth, n1, graph = example
    u, state, trial, V = room.u, room.state, room.trial, a.shape[0]
    price = 2.0 / (size + n1)
    for i in range(V):
        u[i] = a[i] - price * truth[i]
        state[i] = ON if y[i] else FREE
    here = set_score(u, graph, y)
    best = -np.inf
    for i in range(V):
        if not y[i]:
            state[i] = ON
            missed = maximise(u, 0.0, truth, state, graph, SMALLEST, room.cuts, trial)
            state[i] = FREE
            best = max(best, set_score(u, graph, trial) + missed - here)
    return best


@helper(hot=True)
def empty_truth(example, room, y):
    """Exact inference when no label is true: the best non-empty set, or the empty one.

    Answers its value, and by how much at most a cut missed a better one.
    """
    a, truth, _, graph = example
    state, trial, V = room.state, room.trial, a.shape[0]
    fill(state, FREE)
    best, missed = 0.0, 0.0
    for i in range(-1, V):
        if i >= 0:
            # No set scores above the empty one, so label i brings at most its own score and pairs.
            if 1.0 + a[i] + graph.total[i] <= best:
                continue
            state[i] = ON
        missed = max(missed, maximise(a, 0.0, truth, state, graph, LARGEST, room.cuts, trial))
        value = 1.0 + set_score(a, graph, trial)
        if i >= 0:
            state[i] = FREE
            if value > best:
                best = value
                copy(y, trial)
        else:
            copy(y, trial)
            for j in range(V):
                if trial[j]:
                    return value, missed
    return best, missed


@helper
def sort_falling(a, order):
    """Write the places of a into `order`, the largest entry first, by a heap with the smallest on top.

    ``np.argsort`` takes longer to compile than all of the search.
    """
    n = a.shape[0]
    for i in range(n):
        order[i] = i
    first, last = n // 2, n - 1
    while last > 0:
        if first > 0:
            first -= 1
        else:
            order[0], order[last] = order[last], order[0]
            last -= 1
        parent = first
        while 2 * parent + 1 <= last:
            child = 2 * parent + 1
            if child < last and a[order[child + 1]] < a[order[child]]:
                child += 1
            if a[order[parent]] <= a[order[child]]:
                break
            order[parent], order[child] = order[child], order[parent]
            parent = child


@helper
def independent_search(a, truth, n1, order, y):
    """Exact inference without pairs, by sorting; answers h of the set written into y."""
    V = a.shape[0]
    sort_falling(a, order)
    for i in range(V):
        y[i] = 0
    if n1 == 0:
        # Delta is 1 for any label at all: the best one, and with it all of positive score.
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
        # The best number of misses grows with the number of hits, so both only move forward.
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


@helper(hot=True)
def infer(example, exact, max_nodes, hint, room, y):
    """One example by the method asked for: slack (5) of y, bound on the slack, nodes, next hint.

    The bound is infinite where the method proves none.
    """
    a, truth, n1, graph = example
    at_truth = set_score(a, graph, truth)
    if graph.head.shape[0] == 0:
        value = independent_search(a, truth, n1, room.order, y) - at_truth
        return value, value, 1, hint
    if n1 == 0:
        value, missed = empty_truth(example, room, y)
        return value, value + missed, 1, hint
    if exact:
        value, bound, nodes, hint = exact_search(example, max_nodes, hint, room, y)
        return value - at_truth, bound - at_truth, nodes, hint
    fill(room.state, FREE)
    fixed_point(example, room.state, room, y)
    value = augmented_score(example, y)
    if value < at_truth:
        copy(y, truth)
        value = at_truth
    return value - at_truth, np.inf, 1, hint


@helper(hot=True)
def load(target, source):
    """Copy a 0/1 vector and answer how many entries are one."""
    total = np.int64(0)
    for i in range(target.shape[0]):
        target[i] = source[i]
        total += source[i]
    return total


@compiled
def infer_batch(scores, truth, graph, exact, max_nodes, begin, end, hints, answer, room):
    """Inference for the samples from `begin` to `end`, all over the same pairs.

    `hints[n]` is the cardinality at which the search of sample n starts, and is replaced by the
    one at which it ended: a guess that saves cuts and settles nothing.
    """
    for n in range(begin, end):
        copy(room.a, scores[n])
        example = Example(room.a, room.truth, load(room.truth, truth[n]), graph)
        answer.slack[n], answer.bound[n], answer.nodes[n], hints[n] = infer(
            example, exact, max_nodes, hints[n], room, answer.sets[n]
        )


@compiled
def fixed_point_batch(scores, truth, graph, begin, end, proof, room):
    """Algorithm 2 for each sample, and whether it is proven optimal (Theorem 2 with (15)).

    Nothing repairs the answer here: h may be below that of the true set. An empty true set is
    handled exactly, since Theorem 2 does not hold for it.
    """
    V = scores.shape[1]
    for n in range(begin, end):
        copy(room.a, scores[n])
        n1 = load(room.truth, truth[n])
        example, y = Example(room.a, room.truth, n1, graph), proof.sets[n]
        if n1 == 0:
            proof.values[n], _ = empty_truth(example, room, y)
            proof.proven[n] = 1
            continue
        fill(room.state, FREE)
        size, _ = fixed_point(example, room.state, room, y)
        proof.values[n] = augmented_score(example, y)
        # (15): gamma of (14) is at most what all n1 true labels gain when the set grows to V.
        proof.proven[n] = best_addition(example, size, room, y) + increment(size, V, n1) * n1 <= 0


@compiled
def slacks_batch(scores, truth, pairs, memory, begin, end, values):
    """Slack (5) of every given set, `memory[m, n]`, of the samples from `begin` to `end`."""
    first, second, weight = pairs
    V = truth.shape[1]
    for n in range(begin, end):
        a, t = scores[n], truth[n]
        n1, at_truth = 0, 0.0
        for i in range(V):
            if t[i]:
                n1 += 1
                at_truth += a[i]
        for e in range(first.shape[0]):
            if t[first[e]] and t[second[e]]:
                at_truth += weight[e]
        for m in range(memory.shape[0]):
            y = memory[m, n]
            size, hits, score = 0, 0, -at_truth
            for i in range(V):
                if y[i]:
                    size += 1
                    hits += t[i]
                    score += a[i]
            for e in range(first.shape[0]):
                if y[first[e]] and y[second[e]]:
                    score += weight[e]
            values[m, n] = score + f1_loss(size, hits, n1)


@helper(hot=True)
def score_of(scores, T, y, on):
    """Score of one set; `on` is room for its labels."""
    size, total = 0, 0.0
    for i in range(y.shape[0]):
        if y[i]:
            total += scores[i]
            for b in range(size):
                total += T[on[b], i]
            on[size] = i
            size += 1
    return total


@helper(hot=True)
def add_set(weight, y, on, labels, joint):
    """Add a weight to the labels of a set and to its pairs (above the diagonal of `joint`)."""
    size = 0
    for i in range(y.shape[0]):
        if y[i]:
            labels[i] += weight
            for b in range(size):
                joint[on[b], i] += weight
            on[size] = i
            size += 1


@compiled
def rise_batch(scores, T, truth, sets, known, on, rise):
    """Score of every known set minus that of the true one; zero for the others."""
    for n in range(scores.shape[0]):
        here = score_of(scores[n], T, truth[n], on)
        for k in range(known.shape[1]):
            rise[n, k] = score_of(scores[n], T, sets[n, k], on) - here if known[n, k] else 0.0


@compiled
def gather_batch(weights, truth, sets, on, labels, joint):
    """Sum of weights[n, k] (set minus true set): into the labels of every sample, into the pairs of all."""
    for n in range(weights.shape[0]):
        total = 0.0
        for k in range(weights.shape[1]):
            if weights[n, k] != 0:
                add_set(weights[n, k], sets[n, k], on, labels[n], joint)
                total += weights[n, k]
        if total != 0:
            add_set(-total, truth[n], on, labels[n], joint)
