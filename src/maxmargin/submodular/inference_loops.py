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

Both need a label in P and a pair; `maxmargin.submodular.inference` answers for the other samples.

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
    """Workspace of inference: states and sets of labels, nodes and their bounds, scores, cuts."""

    state: np.ndarray
    wake: np.ndarray
    trial: np.ndarray
    small: np.ndarray
    large: np.ndarray
    stack: np.ndarray
    bounds: np.ndarray
    u: np.ndarray
    cuts: CutRoom

    @classmethod
    def empty(cls, V: int) -> SearchRoom:
        """Workspace for inference with V labels."""
        state, wake, trial, small, large = np.zeros((5, V), np.uint8)
        stack, bounds = np.empty((V + 2, V), np.uint8), np.empty(V + 2)
        return cls(state, wake, trial, small, large, stack, bounds, np.empty(V), CutRoom.empty(V))


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


@helper
def size_and_hits(truth, y):
    """k = |y| and p = |y and P|."""
    size, hits = np.int64(0), np.int64(0)
    for i in range(y.shape[0]):
        size += y[i]
        hits += y[i] * truth[i]
    return size, hits


@helper(hot=True)
def count(y):
    """|y|."""
    size = np.int64(0)
    for i in range(y.shape[0]):
        size += y[i]
    return size


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


@helper(hot=True)
def rounding(a, total):
    """Values of h closer than this count as equal: their sums are rounded by about as much."""
    scale = 1.0
    for i in range(a.shape[0]):
        scale = max(scale, abs(a[i]), total[i])
    return ROUNDING * a.shape[0] * scale


@helper(hot=True)
def chords(state):
    """The least and the largest k whose chord, through k and k + 1, the decided labels allow."""
    low, high = 0, state.shape[0] - 1
    for i in range(state.shape[0]):
        low += state[i] == ON
        high -= state[i] == OFF
    return low, high


@helper(hot=True)
def fix_and_branch(a, straddled, state, trial, small, large):
    """Switch the labels of the fixed point (`trial`) on; answer the label to branch on, -1 for none.

    Preferred are labels that the maximisers on either side of the bound dispute, then large scores.
    """
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
def fixed_point(example, state, u, cuts, y):
    """Algorithm 2: the greatest fixed point of k -> |largest maximiser of h_k|, written into y.

    Labels that leave the maximiser stay off, so `state` ends as a record of them. Answers its size, and what
    its cut can have missed.
    """
    a, truth, n1, graph = example
    V = a.shape[0]
    size = V
    for i in range(V):
        size -= state[i] == OFF
    while True:
        price = 2.0 / (size + n1)
        for i in range(V):
            u[i] = a[i] - price * truth[i]
        missed = maximise(u, 0.0, truth, state, graph, LARGEST, cuts, y)
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
def line_of(met, m, touch):
    """Level and tilt of U of a set as a function of the slope; `met` holds 1 + s, p and k of the set."""
    score, hits, size = met
    return score - 2.0 * hits * touch, 2.0 * hits * (size - m)


@compiled
def exact_search(scores, truth, graph, max_nodes, chosen, hints, answer, room):
    """Solve (4), the maximum of h, by branch and bound for the chosen samples, all over the same pairs.

    Every n1 >= 1. The bound is equal to the slack, up to rounding, unless `max_nodes` ended the search. It
    contains what nodes left open because their values count as equal, and what all cuts can have missed.
    `hints[n]` is the cardinality at which the search of sample n starts, and is replaced by the one to start
    with next time: a guess that saves cuts and settles nothing.

    A node lowers its bound by cuts, first over the chords through k and k + 1: a maximiser with more than k
    labels asks for a flatter chord, one with fewer for a steeper one, and the last of each kind stay in
    `large` and `small`. Then over the lines through 1/(m + n1) at the m where both meet. There

        U(y) = level(y) - 2 p (k - m) B   with   level(y) = 1 + s(y) - 2 p / (m + n1):

    `large` (k > m) rules for steep slopes B, `small` (k < m) for flat ones, and where they cross is the
    next cut.
    """
    state, trial, small, large, u = room.state, room.trial, room.small, room.large, room.u
    for n in chosen:
        a, hint, y = scores[n], hints[n], answer.sets[n]
        example = Example(a, truth[n], count(truth[n]), graph)
        n1 = example.n1
        # The true set is the first candidate, so that no slack is negative.
        copy(y, truth[n])
        best = at_truth = set_score(a, graph, y)
        closed, missed, settled = -np.inf, 0.0, rounding(a, graph.total)
        nodes, depth, first_hint = 0, 1, hint
        fill(room.stack[0], FREE)
        room.bounds[0] = np.inf
        while depth > 0:
            depth -= 1
            bound = room.bounds[depth]
            if bound <= best + settled or nodes == max_nodes:
                # A node that is never opened counts with the bound of its parent.
                closed = max(closed, bound)
                continue
            nodes += 1
            copy(state, room.stack[depth])
            low, high = chords(state)
            if high < low:
                # Every label is decided.
                for i in range(a.shape[0]):
                    trial[i] = state[i] == ON
                best = keep_better(augmented_score(example, trial), best, trial, y)
                continue

            k, secants, crossing = min(max(hint, low), high), 0, -np.inf
            small_met, large_met = False, False
            below = above = (0.0, np.int64(0), np.int64(0))
            while bound > best + settled:
                chord = low <= high
                if chord:
                    slope = -1.0 / ((k + n1) * (k + 1 + n1))
                    intercept = 1.0 / (k + n1) - slope * k
                    hint = k
                else:
                    touch = 1.0 / (low + n1)
                    small_level, small_tilt = line_of(below, low, touch)
                    large_level, large_tilt = line_of(above, low, touch)
                    if secants == SECANTS or not (small_met and large_met and small_tilt < 0 < large_tilt):
                        break
                    slope = (large_level - small_level) / (large_tilt - small_tilt)
                    intercept = touch - slope * low
                    crossing = small_level - small_tilt * slope
                    secants += 1
                # p k is p plus the pairs with at least one label in P, twice for two: the family of the cut.
                for i in range(a.shape[0]):
                    u[i] = a[i] - 2.0 * (intercept + slope) * truth[n, i]
                missed += maximise(u, -2.0 * slope, truth[n], state, graph, SMALLEST, room.cuts, trial)
                score = 1.0 + set_score(a, graph, trial)
                size, hits = size_and_hits(truth[n], trial)
                upper = score - 2.0 * hits * (intercept + slope * size)
                bound = min(bound, upper)
                best = keep_better(score - 2.0 * hits / (size + n1), best, trial, y)
                if size > (k if chord else low):
                    large_met, above = True, (score, hits, size)
                    copy(large, trial)
                    low = k + 1 if chord else low
                else:
                    small_met, below = True, (score, hits, size)
                    copy(small, trial)
                    high = k - 1 if chord else high
                k = (low + high) // 2
                if upper <= crossing + settled:
                    break
            if nodes == 1:
                first_hint = hint
            if bound > best + settled:
                # By Theorem 1, which holds under forced labels too, some optimum of this node contains the
                # fixed point, so that only labels outside of it are branched on.
                copy(room.wake, state)
                missed += fixed_point(example, room.wake, u, room.cuts, trial)[1]
                best = keep_better(augmented_score(example, trial), best, trial, y)
            if bound <= best + settled:
                closed = max(closed, bound)
                continue
            choice = fix_and_branch(a, small_met and large_met, state, trial, small, large)
            if choice < 0:
                continue
            # The last one on the stack is visited first.
            for way in (OFF, ON):
                copy(room.stack[depth], state)
                room.stack[depth, choice] = way
                room.bounds[depth] = bound
                depth += 1
        answer.slack[n], answer.bound[n] = best - at_truth, max(best, closed) + missed - at_truth
        answer.nodes[n], hints[n] = nodes, first_hint


@compiled
def fixed_point_batch(scores, truth, graph, proving, chosen, proof, room):
    """Algorithm 2 for each sample that is chosen, and with `proving` whether it is optimal (Theorem 2, (15)).

    Nothing repairs the answer here: h may be below that of the true set. Theorem 2 does not hold for an empty
    true set.
    """
    V = scores.shape[1]
    for n in chosen:
        example, y = Example(scores[n], truth[n], count(truth[n]), graph), proof.sets[n]
        fill(room.state, FREE)
        size, _ = fixed_point(example, room.state, room.u, room.cuts, y)
        proof.values[n] = augmented_score(example, y)
        if proving:
            # (15): gamma of (14) is at most what all n1 true labels gain when the set grows to V.
            further = increment(size, V, example.n1) * example.n1
            proof.proven[n] = best_addition(example, size, room, y) + further <= 0


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
