"""Loss-augmented inference for the F-score: find the set of labels that violates the margin most.

For a sample with scores a, attractive pairs W >= 0 and true set P of n1 = |P| labels,

    h(y) = s(y) + 1 - 2 p / (k + n1),   s(y) = sum_i a_i y_i + sum_{i<j} W_ij y_i y_j,
    k = |y|,  p = |y and P|,            h(empty) = 0 when n1 = 0,

which is (8) of Petterson and Caetano, "Submodular multi-label learning", 2011, and the slack (5) of y is
h(y) - s(P).

*Exact.* 1/(k + n1) is convex in k, so a line A + B k that touches it from below at one or two neighbouring
integers gives U(y) = 1 + s(y) - 2 p (A + B k) >= h(y), with equality where it touches and where p = 0. As B <
0, U is again a sum of unary scores and attractive pairs: one cut. The maximum of U is convex in the slope B.
Bisection over the chords through k0 and k0 + 1, then secant steps over the lines through one integer,
minimise this bound. If a gap remains, the search branches on a label, after switching on the labels of the
fixed point, which belong to some optimum (Theorem 1).

*Fixed point* (Algorithm 2). With the loss at a fixed cardinality k, h_k(y) = s(y) + 1 - 2 p / (k + n1) is one
cut, and the size of its largest maximiser grows with k. Iterating k <- |y_k| downward from V finds the
greatest k that equals the size of its own maximiser. The set found is inside some optimum but need not be
one; Algorithm 3 and Theorem 2 sometimes prove that it is.

Both need a label in P and a pair; `problem.worst_sets` handles the other samples.

The sums over remembered sets at the end are for the interior point method: scores of sets, with the weights
of pairs above the diagonal of T, and sums over the labels and pairs of sets.
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
    CutWorkspace,
    Graph,
    copy,
    fill,
    maximise,
    set_score,
)

# Most secant steps of one node; the bound is valid after any number of them.
SECANTS = 12


class Example(NamedTuple):
    """One sample at one theta: scores a, the true set P as 0/1, its size n1, and the pairs."""

    a: np.ndarray
    truth: np.ndarray
    n1: np.int64
    graph: Graph


class SearchWorkspace(NamedTuple):
    """Workspace of inference: states and sets of labels, nodes and their bounds, scores, cuts."""

    state: np.ndarray
    shrinking: np.ndarray
    trial: np.ndarray
    small: np.ndarray
    large: np.ndarray
    stack: np.ndarray
    bounds: np.ndarray
    u: np.ndarray
    cuts: CutWorkspace

    @classmethod
    def empty(cls, V: int) -> SearchWorkspace:
        """Allocate a workspace for inference with V labels."""
        state, shrinking, trial, small, large = np.zeros((5, V), np.uint8)
        stack, bounds = np.empty((V + 2, V), np.uint8), np.empty(V + 2)
        return cls(state, shrinking, trial, small, large, stack, bounds, np.empty(V), CutWorkspace.empty(V))


class Answer(NamedTuple):
    """The sets found for all samples at one theta.

    `slack[n]` belongs to `sets[n]`. `bound[n]` is at least any slack of sample n, and equals `slack[n]` (up
    to rounding) if the set is optimal.
    """

    sets: np.ndarray
    slack: np.ndarray
    bound: np.ndarray
    nodes: np.ndarray


class Proof(NamedTuple):
    """The sets of Algorithm 2, their h, and whether Algorithm 3 proves them optimal."""

    sets: np.ndarray
    values: np.ndarray
    proven: np.ndarray


@helper
def size_and_hits(truth, y):
    """Return k = |y| and p = |y and P|."""
    size, hits = np.int64(0), np.int64(0)
    for i in range(y.shape[0]):
        size += y[i]
        hits += y[i] * truth[i]
    return size, hits


@helper(hot=True)
def count(y):
    """Return |y|."""
    size = np.int64(0)
    for i in range(y.shape[0]):
        size += y[i]
    return size


@helper(hot=True)
def f1_loss(size, hits, n1):
    """Return 1 - F1 (1) of a set of `size` labels, `hits` of them true; 0 between two empty sets."""
    return 1.0 - 2.0 * hits / (size + n1) if size + n1 > 0 else 0.0


@helper(hot=True)
def increment(k, further, n1):
    """Return the gain (10) of a true label when the cardinality grows from k to `further`."""
    return 2.0 * (further - k) / ((further + n1) * (k + n1))


@helper
def augmented_score(example, y):
    """Return h(y), the objective (8) up to a constant."""
    size, hits = size_and_hits(example.truth, y)
    return set_score(example.a, example.graph, y) + f1_loss(size, hits, example.n1)


@helper(hot=True)
def keep_better(value, best, trial, y):
    """Copy `trial` to y if its value is above the best; return the best value."""
    if value > best:
        copy(y, trial)
        return value
    return best


@helper(hot=True)
def rounding(a, total):
    """Return the difference of two values of h below which they count as equal."""
    scale = 1.0
    for i in range(a.shape[0]):
        scale = max(scale, abs(a[i]), total[i])
    return ROUNDING * a.shape[0] * scale


@helper(hot=True)
def chords(state):
    """Return the smallest and the largest k whose chord, through k and k + 1, the decided labels allow."""
    low, high = 0, state.shape[0] - 1
    for i in range(state.shape[0]):
        low += state[i] == ON
        high -= state[i] == OFF
    return low, high


@helper(hot=True)
def fix_and_branch(a, straddled, state, trial, small, large):
    """Switch on the labels of the fixed point (`trial`); return the label to branch on, or -1.

    Labels in which the maximisers on both sides of the bound differ come first, then large scores.
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
    """Algorithm 2: write the greatest fixed point of k -> |largest maximiser of h_k| into y.

    Labels that leave the maximiser stay off, also in `state`. Returns the size of y, and the score that the
    last cut may have lost to rounding.
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
def best_addition(example, size, work, y):
    """Algorithm 3: return a bound of the gain in h_k, at k = |y|, of sets that contain y and one label more.

    This is the maximum of beta in (14), or minus infinity if y contains all labels.
    """
    a, truth, n1, graph = example
    u, state, trial, V = work.u, work.state, work.trial, a.shape[0]
    price = 2.0 / (size + n1)
    for i in range(V):
        u[i] = a[i] - price * truth[i]
        state[i] = ON if y[i] else FREE
    here = set_score(u, graph, y)
    best = -np.inf
    for i in range(V):
        if not y[i]:
            state[i] = ON
            missed = maximise(u, 0.0, truth, state, graph, SMALLEST, work.cuts, trial)
            state[i] = FREE
            best = max(best, set_score(u, graph, trial) + missed - here)
    return best


@helper(hot=True)
def line_of(met, m, touch):
    """Return level and tilt of U as a function of the slope; `met` is (1 + s, p, k) of a set."""
    score, hits, size = met
    return score - 2.0 * hits * touch, 2.0 * hits * (size - m)


@compiled
def exact_search(scores, truth, graph, max_nodes, chosen, hints, answer, work):
    """Maximise h (4) by branch and bound for the chosen samples, all with the same pairs and n1 >= 1.

    The bound equals the slack, up to rounding, unless `max_nodes` ends the search. It includes nodes that
    were closed because their values count as equal, and the scores that cuts may lose. `hints[n]` is the
    cardinality at which the search of sample n starts; it is replaced by a better one for the next search. It
    saves cuts and changes no result.

    A node lowers its bound by cuts, first over the chords through k and k + 1: a maximiser with more than k
    labels leads to a flatter chord, one with fewer to a steeper one. The last of each kind stay in `large`
    and `small`. Then over the lines through 1/(m + n1) at the m where both meet. There

        U(y) = level(y) - 2 p (k - m) B   with   level(y) = 1 + s(y) - 2 p / (m + n1):

    `large` (k > m) is the maximiser for steep slopes B, `small` (k < m) for flat ones; the next cut is at the
    slope where they cross.
    """
    state, trial, small, large, u = work.state, work.trial, work.small, work.large, work.u
    for n in chosen:
        a, hint, y = scores[n], hints[n], answer.sets[n]
        example = Example(a, truth[n], count(truth[n]), graph)
        n1 = example.n1
        # The true set is the first candidate, so no slack is negative.
        copy(y, truth[n])
        best = at_truth = set_score(a, graph, y)
        closed, missed, tie = -np.inf, 0.0, rounding(a, graph.total)
        nodes, depth, first_hint = 0, 1, hint
        fill(work.stack[0], FREE)
        work.bounds[0] = np.inf
        while depth > 0:
            depth -= 1
            bound = work.bounds[depth]
            if bound <= best + tie or nodes == max_nodes:
                # A node that is not opened counts with the bound of its parent.
                closed = max(closed, bound)
                continue
            nodes += 1
            copy(state, work.stack[depth])
            low, high = chords(state)
            if high < low:
                # All labels are decided.
                for i in range(a.shape[0]):
                    trial[i] = state[i] == ON
                best = keep_better(augmented_score(example, trial), best, trial, y)
                continue

            k, secants, crossing = min(max(hint, low), high), 0, -np.inf
            small_met, large_met = False, False
            below = above = (0.0, np.int64(0), np.int64(0))
            while bound > best + tie:
                # The line intercept + slope k: a chord as long as some are left, then a secant step.
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
                # p k is p plus the pairs with labels in P, counted once for each: the family of the cut.
                for i in range(a.shape[0]):
                    u[i] = a[i] - 2.0 * (intercept + slope) * truth[n, i]
                missed += maximise(u, -2.0 * slope, truth[n], state, graph, SMALLEST, work.cuts, trial)
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
                if upper <= crossing + tie:
                    break
            if nodes == 1:
                first_hint = hint
            if bound > best + tie:
                # By Theorem 1, which also holds with forced labels, some optimum of this node contains the
                # fixed point, so only labels outside of it need branching.
                copy(work.shrinking, state)
                missed += fixed_point(example, work.shrinking, u, work.cuts, trial)[1]
                best = keep_better(augmented_score(example, trial), best, trial, y)
            if bound <= best + tie:
                closed = max(closed, bound)
                continue
            choice = fix_and_branch(a, small_met and large_met, state, trial, small, large)
            if choice < 0:
                continue
            # The last node on the stack is visited first.
            for side in (OFF, ON):
                copy(work.stack[depth], state)
                work.stack[depth, choice] = side
                work.bounds[depth] = bound
                depth += 1
        answer.slack[n], answer.bound[n] = best - at_truth, max(best, closed) + missed - at_truth
        answer.nodes[n], hints[n] = nodes, first_hint


@compiled
def fixed_point_batch(scores, truth, graph, proving, chosen, proof, work):
    """Run Algorithm 2 for each chosen sample and, with `proving`, test its optimality (Theorem 2, (15)).

    h of the result may be below that of the true set. Theorem 2 does not hold for an empty true set.
    """
    V = scores.shape[1]
    for n in chosen:
        example, y = Example(scores[n], truth[n], count(truth[n]), graph), proof.sets[n]
        fill(work.state, FREE)
        size, _ = fixed_point(example, work.state, work.u, work.cuts, y)
        proof.values[n] = augmented_score(example, y)
        if proving:
            # (15): gamma of (14) is at most the gain of all n1 true labels when the set grows to V.
            further = increment(size, V, example.n1) * example.n1
            proof.proven[n] = best_addition(example, size, work, y) + further <= 0


@helper(hot=True)
def score_of(scores, T, y, on):
    """Return the score of one set; `on` is workspace for its labels."""
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
    """Write the score of every known set minus that of the true one; zero for the others."""
    for n in range(scores.shape[0]):
        here = score_of(scores[n], T, truth[n], on)
        for k in range(known.shape[1]):
            rise[n, k] = score_of(scores[n], T, sets[n, k], on) - here if known[n, k] else 0.0


@compiled
def gather_batch(weights, truth, sets, on, labels, joint):
    """Add weights[n, k] (set minus true set) to the labels of each sample and to the pairs of all."""
    for n in range(weights.shape[0]):
        total = 0.0
        for k in range(weights.shape[1]):
            if weights[n, k] != 0:
                add_set(weights[n, k], sets[n, k], on, labels[n], joint)
                total += weights[n, k]
        if total != 0:
            add_set(-total, truth[n], on, labels[n], joint)
