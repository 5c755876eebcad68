"""Maximise sums of unary scores and attractive pairs by minimum cuts.

Problem, over sets y of V labels written as 0/1 vectors:

    max_y  sum_i u_i y_i + sum_{i<j} W_ij y_i y_j + t sum_{i<j} ([i in P] + [j in P]) y_i y_j,   W, t >= 0

The last term is a dense family of pairs around a set P of labels (`positive`), which the F-score majorant
needs; t = 0 removes it. `state[i]` is 0 for a free label, 1 for one forced on and 2 for one forced off.

1. A label whose score is positive by itself is on; one whose score is negative with all undecided neighbours
   on is off. Repeating this decides most labels without any flow. Counts give the sums over the family around
   P, so that its pairs are not visited here.
2. For the remaining labels, W y_i y_j = W/2 (y_i + y_j) - W/2 [y_i != y_j] gives a flow network with arcs of
   capacity W/2 both ways and the excess c_i = score_i + (half the row sum): a source if positive, a sink if
   negative. Waves of pushes along shortest paths solve it. Bits store which arcs have a residual (`out` and
   `into` a label), so that a breadth-first search takes a few words per label, however dense the graph is.
   The residual of an arc is written when it is first used.
3. The smallest maximiser is the set that sources still reach, the largest the set that cannot reach a sink.

This is the maximisation (2) of Petterson and Caetano, "Submodular multi-label learning", 2011. Residuals and
scores that are zero up to rounding count as zero, so the set found may score less than the best one. Every
cut returns an upper bound of the difference: the sum of all numbers that counted as zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import readonly

# The numbers of a cut of V labels are sums of up to 2 V terms of at most `scale`: their rounding is less than
# this times V times `scale`.
ROUNDING = 4 * float(np.finfo(np.float64).eps)
FREE, ON, OFF = 0, 1, 2
UNDECIDED = 2
# Which maximiser; of one NumPy type, so that loops are compiled once.
SMALLEST, LARGEST = np.bool_(False), np.bool_(True)

# The powers of two are all different modulo 67, which gives the position of a single bit.
NONE, ONE, MODULUS = np.uint64(0), np.uint64(1), np.uint64(67)
PLACES = np.array([next((p for p in range(64) if 2**p % 67 == rest), 0) for rest in range(67)])

# Rows of the arrays of a `CutWorkspace`: numbers per label, arcs as bits, sets of labels as bits.
GAIN, POSSIBLE, EXCESS = 0, 1, 2
OUT, INTO, USED = 0, 1, 2
CORE, SINKS, ACTIVE, UNSEEN, FRONT = 0, 1, 2, 3, 4


class Arcs(NamedTuple):
    """W as rows of arcs: row i is `start[i]` to `start[i + 1]`, and `total[i]` is its sum."""

    start: np.ndarray
    head: np.ndarray
    weight: np.ndarray
    total: np.ndarray


class Graph(NamedTuple):
    """W as arcs, as a matrix, and with the neighbours of label i as the bits of `near[i]`, 64 to a word."""

    start: np.ndarray
    head: np.ndarray
    weight: np.ndarray
    total: np.ndarray
    matrix: np.ndarray
    near: np.ndarray

    @classmethod
    def of(cls, arcs: Arcs) -> Graph:
        """Return the graph of W, in arrays of its own."""
        start, head, weight, total = arcs
        V = total.size
        matrix, near = np.zeros((V, V)), np.zeros((V, (V + 63) // 64), np.uint64)
        tail, head = np.repeat(np.arange(V), np.diff(start)), head.astype(np.int64)
        matrix[tail, head] = weight
        tail, head = tail[weight > 0], head[weight > 0]
        np.bitwise_or.at(near, (tail, head >> 6), ONE << (head & 63).astype(np.uint64))
        return cls(start.copy(), arcs.head.copy(), weight.copy(), total.copy(), matrix, near)


class CutWorkspace(NamedTuple):
    """Workspace of a cut.

    `numbers` are, for each label, its score with the labels that are on (GAIN), the pairs with undecided
    labels (POSSIBLE), and its EXCESS. `core` lists the labels of the network. `residual[i, j]` is valid if
    arc (i, j) is USED. `levels[d]` are the labels at distance d from a sink.
    """

    numbers: np.ndarray
    core: np.ndarray
    residual: np.ndarray
    arcs: np.ndarray
    levels: np.ndarray
    masks: np.ndarray

    @classmethod
    def empty(cls, V: int) -> CutWorkspace:
        """Allocate a workspace for `maximise` on V labels."""
        words = (V + 63) // 64
        return cls(
            np.empty((3, V)),
            np.empty(V, np.int64),
            np.empty((V, V)),
            np.empty((3, V, words), np.uint64),
            np.empty((V + 1, words), np.uint64),
            np.empty((5, words), np.uint64),
        )


class BatchWorkspace(NamedTuple):
    """Workspace of the cuts of many rows: scores, two sets, states, P (empty), and that of a cut."""

    u: np.ndarray
    best: np.ndarray
    other: np.ndarray
    state: np.ndarray
    positive: np.ndarray
    cuts: CutWorkspace

    @classmethod
    def empty(cls, V: int) -> BatchWorkspace:
        """Allocate a workspace for V labels."""
        best, other, state = np.zeros((3, V), np.uint8)
        positive = readonly(np.zeros(V, np.uint8))
        return cls(np.empty(V), best, other, state, positive, CutWorkspace.empty(V))


@helper(hot=True)
def lowest(bits):
    """Return the lowest bit, which must exist."""
    return bits ^ (bits & (bits - ONE))


@helper(hot=True)
def place(bit):
    """Return the position of a single bit in its word."""
    return PLACES[bit % MODULUS]


@helper(hot=True)
def bit_of(i):
    """Return the bit of label i in its word, which is word i // 64."""
    return ONE << np.uint64(i & 63)


@helper
def copy(target, source):
    """Copy one vector to another; a loop compiles many times faster than a slice."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@helper
def fill(target, value):
    """Set all entries to `value`."""
    for i in range(target.shape[0]):
        target[i] = value


@helper(hot=True)
def set_arc(i, j, weight, matrix, near):
    """Write one arc into the matrix and the bits of the neighbours."""
    matrix[i, j] = weight
    if weight > 0:
        near[i, j >> 6] |= bit_of(j)
    else:
        near[i, j >> 6] &= ~bit_of(j)


@helper
def maximise(u, t, positive, state, graph, largest, work, y):
    """Write the smallest (or largest) maximiser into y; return a bound of the score lost to rounding."""
    tally, scale = apply_forced(u, positive, state, graph, work, y)
    zero = ROUNDING * u.shape[0] * max(scale, t * u.shape[0])
    # A label with a score of zero is in the largest maximiser and not in the smallest.
    tally, missed = decide(t, -zero if largest else zero, positive, tally, graph, work, y)
    free = tally[2]
    if free == 0:
        return missed
    missed += build_network(t, zero, positive, tally, graph, work)
    missed += push_flow(t, zero, positive, graph, work)
    search(largest, work)
    core, unseen = work.core, work.masks[UNSEEN]
    for c in range(free):
        i = core[c]
        apart = unseen[i >> 6] & bit_of(i) != NONE
        y[i] = apart if largest else not apart
    return missed


@helper(hot=True)
def apply_forced(u, positive, state, graph, work, y):
    """Start from the forced labels; list the free ones in `core`.

    Returns the tally (labels on and how many of them in P, labels free and how many of them in P) and the
    largest number of the problem.
    """
    start, head, weight, total = graph.start, graph.head, graph.weight, graph.total
    gain, possible, core = work.numbers[GAIN], work.numbers[POSSIBLE], work.core
    V = u.shape[0]
    on, on_positive, free, free_positive = 0, 0, 0, 0
    scale = 1.0
    # Free labels are undecided; the others keep their forced state.
    for i in range(V):
        gain[i] = u[i]
        possible[i] = total[i]
        scale = max(scale, abs(u[i]), total[i])
        if state[i] == FREE:
            y[i] = UNDECIDED
            core[free] = i
            free += 1
            free_positive += positive[i]
        elif state[i] == ON:
            y[i] = 1
            on += 1
            on_positive += positive[i]
        else:
            y[i] = 0
    # Pairs with a forced label belong to the gain of the other one, or are lost.
    if free < V:
        for i in range(V):
            if state[i] != FREE:
                for k in range(start[i], start[i + 1]):
                    possible[head[k]] -= weight[k]
                    if state[i] == ON:
                        gain[head[k]] += weight[k]
    return (on, on_positive, free, free_positive), scale


@helper(hot=True)
def decide(t, margin, positive, tally, graph, work, y):
    """Decide labels without flow as long as possible; return the tally and the score that may be lost.

    Each decision moves the weight of a pair from what its other label may still gain (`possible`) to what it
    has gained (`gain`), or removes it. The family around P follows from the counts.
    """
    start, head, weight = graph.start, graph.head, graph.weight
    gain, possible, core = work.numbers[GAIN], work.numbers[POSSIBLE], work.core
    on, on_positive, free, free_positive = tally
    before, missed = -1, 0.0
    while before != free:
        before = free
        kept = 0
        for c in range(before):
            i = core[c]
            here = positive[i]
            # The score with the decided labels alone, and with all undecided ones on.
            score = gain[i] + t * (here * on + on_positive)
            most = score + possible[i] + t * (here * (free - 1) + free_positive - here)
            if score > margin:
                y[i] = 1
                missed += max(-score, 0.0)
                on += 1
                on_positive += here
                for k in range(start[i], start[i + 1]):
                    possible[head[k]] -= weight[k]
                    gain[head[k]] += weight[k]
            elif most <= margin:
                y[i] = 0
                missed += max(most, 0.0)
                for k in range(start[i], start[i + 1]):
                    possible[head[k]] -= weight[k]
            else:
                core[kept] = i
                kept += 1
                continue
            free -= 1
            free_positive -= here
    return (on, on_positive, free, free_positive), missed


@helper(hot=True)
def build_network(t, zero, positive, tally, graph, work):
    """Write the network of the free labels, the first ones of `core`: excesses, and arcs as bits.

    Returns the sum of the excesses that count as zero.
    """
    gain, possible, excess = work.numbers[GAIN], work.numbers[POSSIBLE], work.numbers[EXCESS]
    out, into, used = work.arcs[OUT], work.arcs[INTO], work.arcs[USED]
    core, masks, near = work.core, work.masks, graph.near
    on, on_positive, free, free_positive = tally
    around = masks[FRONT]
    words = masks.shape[1]
    missed = 0.0
    for w in range(words):
        masks[CORE, w] = masks[SINKS, w] = masks[ACTIVE, w] = around[w] = NONE
    # Excess of every free label: sources are active, sinks have a deficit.
    for c in range(free):
        i = core[c]
        here = positive[i]
        # Half of each pair with another free label belongs to the score, the other half to the arcs.
        pairs = possible[i] + t * (here * (free - 1) + free_positive - here)
        excess[i] = gain[i] + t * (here * on + on_positive) + 0.5 * pairs
        w, bit = i >> 6, bit_of(i)
        masks[CORE, w] |= bit
        if here:
            around[w] |= bit
        if excess[i] < -zero:
            masks[SINKS, w] |= bit
        elif excess[i] > zero:
            masks[ACTIVE, w] |= bit
        else:
            missed += abs(excess[i])
    # Arcs to the neighbours among the free labels.
    for c in range(free):
        i = core[c]
        for w in range(words):
            row = near[i, w]
            if t > 0:
                # The family connects a label of P with all labels, any other label with those of P.
                row |= masks[CORE, w] if positive[i] else around[w]
            out[i, w] = into[i, w] = row & masks[CORE, w]
            used[i, w] = NONE
        out[i, i >> 6] &= ~bit_of(i)
        into[i, i >> 6] &= ~bit_of(i)
    return missed


@helper(hot=True)
def push_flow(t, zero, positive, graph, work):
    """Push excess towards the nearest sinks, in waves, until none can be reached.

    Each wave labels nodes with their distance to a sink and then moves excess one step at a time along
    shortest paths, the farthest nodes first. Excess that remains at a node starts the next wave, at a larger
    distance, so the waves end. Returns the sum of all numbers that counted as zero.
    """
    active, levels = work.masks[ACTIVE], work.levels
    missed = 0.0
    while True:
        farthest = rank(work)
        if farthest == 0:
            return missed
        for distance in range(farthest, 0, -1):
            for w in range(active.shape[0]):
                rest = levels[distance, w] & active[w]
                while rest != NONE:
                    here = lowest(rest)
                    rest ^= here
                    i = 64 * w + place(here)
                    missed += discharge(i, here, distance, t, zero, positive, graph, work)


@helper(hot=True)
def discharge(i, here, distance, t, zero, positive, graph, work):
    """Push the excess of label i, whose bit is `here`, to labels one step closer to a sink.

    Returns the sum of the residuals and excesses that count as zero.
    """
    excess, matrix, residual = work.numbers[EXCESS], graph.matrix, work.residual
    out, into, used = work.arcs[OUT], work.arcs[INTO], work.arcs[USED]
    sinks, active, nearer = work.masks[SINKS], work.masks[ACTIVE], work.levels[distance - 1]
    w = i >> 6
    left, missed = excess[i], 0.0
    v = 0
    while v < active.shape[0] and left > zero:
        there = out[i, v] & nearer[v]
        while there != NONE and left > zero:
            bit = lowest(there)
            there ^= bit
            j = 64 * v + place(bit)
            if used[i, v] & bit != NONE:
                ahead, back = residual[i, j], residual[j, i]
            else:
                # First use of an arc: its capacity is half the weight of the pair, both ways.
                ahead = 0.5 * (matrix[i, j] + t * (positive[i] + positive[j]))
                back = ahead
                used[i, v] |= bit
                used[j, w] |= here
            # A sink takes at most its deficit; another label passes everything on.
            flow = min(left, ahead, -excess[j]) if distance == 1 else min(left, ahead)
            residual[i, j], residual[j, i] = ahead - flow, back + flow
            # Flow can return along the arc; a saturated arc leaves both lists.
            out[j, w] |= here
            into[i, v] |= bit
            if ahead - flow <= zero:
                missed += ahead - flow
                out[i, v] ^= bit
                into[j, w] ^= here
            left -= flow
            excess[j] += flow
            if distance > 1:
                active[v] |= bit
            elif excess[j] >= -zero:
                missed -= excess[j]
                # A sink without deficit attracts no more flow, in this wave and later.
                sinks[v] ^= bit
                nearer[v] ^= bit
        v += 1
    excess[i] = left
    if left <= zero:
        missed += left
        active[w] ^= here
    return missed


@helper
def rank(work):
    """Write the labels at distance d from a sink into `levels[d]`, up to the farthest source.

    Returns that distance, or 0 if no source reaches a sink.
    """
    into, levels, masks = work.arcs[INTO], work.levels, work.masks
    active, unseen, hidden = masks[ACTIVE], masks[UNSEEN], masks[FRONT]
    words = masks.shape[1]
    missing = NONE
    for w in range(words):
        levels[0, w] = masks[SINKS, w]
        unseen[w] = masks[CORE, w] & ~masks[SINKS, w]
        hidden[w] = active[w]
        missing |= active[w]
    # Breadth-first search from the sinks, along arcs with a residual, until all sources are found.
    depth, farthest = 0, 0
    while missing != NONE:
        new = levels[depth + 1]
        for w in range(words):
            new[w] = NONE
        for w in range(words):
            rest = levels[depth, w]
            while rest != NONE:
                bit = lowest(rest)
                rest ^= bit
                i = 64 * w + place(bit)
                for v in range(words):
                    new[v] |= into[i, v]
        depth += 1
        found, missing, met = NONE, NONE, NONE
        for w in range(words):
            new[w] &= unseen[w]
            unseen[w] ^= new[w]
            met |= hidden[w] & new[w]
            hidden[w] &= unseen[w]
            found |= new[w]
            missing |= hidden[w]
        if met != NONE:
            farthest = depth
        if found == NONE:
            break
    return farthest


@helper
def search(from_sinks, work):
    """Write the labels that no source reaches, or that reach no sink, into UNSEEN."""
    arcs, masks = work.arcs, work.masks
    unseen, front = masks[UNSEEN], masks[FRONT]
    words = masks.shape[1]
    more = NONE
    for w in range(words):
        front[w] = masks[SINKS if from_sinks else ACTIVE, w]
        unseen[w] = masks[CORE, w] & ~front[w]
        more |= front[w]
    while more != NONE:
        more = NONE
        for w in range(words):
            while front[w] != NONE:
                bit = lowest(front[w])
                front[w] ^= bit
                i = 64 * w + place(bit)
                for v in range(words):
                    new = arcs[INTO if from_sinks else OUT, i, v] & unseen[v]
                    unseen[v] ^= new
                    front[v] |= new
                    more |= new


@helper
def set_score(u, graph, y):
    """Return sum_i u_i y_i + sum_{i<j} W_ij y_i y_j."""
    start, head, weight = graph.start, graph.head, graph.weight
    score = 0.0
    for i in range(u.shape[0]):
        if y[i]:
            score += u[i]
            for k in range(start[i], start[i + 1]):
                if head[k] > i and y[head[k]]:
                    score += weight[k]
    return score


@compiled
def maximise_batch(U, graph, largest, begin, end, Y, missed, work):
    """Compute one cut for each row of U from `begin` to `end`; `missed` as in `maximise`."""
    for n in range(begin, end):
        copy(work.u, U[n])
        missed[n] = maximise(work.u, 0.0, work.positive, work.state, graph, largest, work.cuts, Y[n])


@compiled
def margins_batch(U, graph, begin, end, margins, work):
    """Write the best score with label i on minus the best score with it off, for every row and label."""
    u, best, other, state, positive, cuts = work
    for n in range(begin, end):
        copy(u, U[n])
        maximise(u, 0.0, positive, state, graph, SMALLEST, cuts, best)
        value = set_score(u, graph, best)
        for i in range(U.shape[1]):
            margins[n, i] = u[i]
            # The margin of a label without pairs is its own score.
            if graph.start[i + 1] == graph.start[i]:
                continue
            state[i] = OFF if best[i] else ON
            maximise(u, 0.0, positive, state, graph, SMALLEST, cuts, other)
            loss = value - set_score(u, graph, other)
            margins[n, i] = loss if best[i] else -loss
            state[i] = FREE
