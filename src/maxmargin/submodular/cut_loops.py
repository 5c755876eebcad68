"""Maximise sums of unary scores and attractive pairs by minimum cuts.

Problem, over sets y of V labels written as 0/1 vectors:

    max_y  sum_i u_i y_i + sum_{i<j} W_ij y_i y_j + t sum_{i<j} ([i in P] + [j in P]) y_i y_j,   W, t >= 0

The last term is a dense family of pairs around a set P of labels (`positive`), used by the
F-score majorant; t = 0 leaves it out. `state[i]` is 0 for a free label, 1 for one forced on and
2 for one forced off.

1. A label whose score is positive by itself is on; one whose score stays negative with every
   undecided neighbour on is off. Repeating this decides most labels without any flow. The sums
   over the family around P are counts, so that its pairs are not touched here.
2. For the labels left, W y_i y_j = W/2 (y_i + y_j) - W/2 [y_i != y_j] gives a flow network with
   arcs of capacity W/2 both ways and the excess c_i = score_i + (half the row sum): a source where
   positive, a sink where negative. Waves of pushes along shortest paths solve it. Which arcs have
   a residual is kept in bits (`out` and `into` a label), so that a breadth-first search takes a few
   words per label however dense the graph is; the residual of an arc is written when it is first used.
3. The smallest maximiser is what sources still reach, the largest is what cannot reach a sink.

This is the maximisation (2) of Petterson and Caetano, "Submodular multi-label learning", 2011.
Residuals and scores that rounding cannot tell from zero count as zero. A set found so may score less than the
best one; by how much at most is the sum of all that was taken for zero, which every cut answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import readonly

# The numbers of a cut of V labels are sums of up to 2 V terms, no larger than `scale` each: they are rounded
# by less than this times V times `scale`.
ROUNDING = 4 * float(np.finfo(np.float64).eps)
FREE, ON, OFF = 0, 1, 2
UNDECIDED = 2
# Which maximiser; as numbers of one type, or every loop would be compiled for each of them.
SMALLEST, LARGEST = np.bool_(False), np.bool_(True)

# The powers of two are all different modulo 67, which finds the place of a single bit.
NONE, ONE, MODULUS = np.uint64(0), np.uint64(1), np.uint64(67)
PLACES = np.array([next((p for p in range(64) if 2**p % 67 == rest), 0) for rest in range(67)])

# Rows of the arrays of a `CutRoom`: numbers of a label, arcs in bits, sets of labels in bits.
GAIN, REACH, EXCESS = 0, 1, 2
OUT, INTO, USED = 0, 1, 2
CORE, SINKS, ACTIVE, UNSEEN, FRONT = 0, 1, 2, 3, 4


class Arcs(NamedTuple):
    """W as rows of arcs: row i lies from `start[i]` to `start[i + 1]`, and `total[i]` is its sum."""

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
        """The graph of W, in arrays of its own."""
        start, head, weight, total = arcs
        V = total.size
        matrix, near = np.zeros((V, V)), np.zeros((V, (V + 63) // 64), np.uint64)
        tail, head = np.repeat(np.arange(V), np.diff(start)), head.astype(np.int64)
        matrix[tail, head] = weight
        tail, head = tail[weight > 0], head[weight > 0]
        np.bitwise_or.at(near, (tail, head >> 6), ONE << (head & 63).astype(np.uint64))
        return cls(start.copy(), arcs.head.copy(), weight.copy(), total.copy(), matrix, near)


class CutRoom(NamedTuple):
    """Workspace of a cut.

    `numbers` are, for each label, its score with the labels that are on (GAIN), the pairs that
    undecided labels may still bring (REACH), and its EXCESS. `core` lists the labels of the network.
    `residual[i, j]` is valid where arc (i, j) has been USED. `levels[d]` are the labels at distance
    d from a sink.
    """

    numbers: np.ndarray
    core: np.ndarray
    residual: np.ndarray
    arcs: np.ndarray
    levels: np.ndarray
    masks: np.ndarray

    @classmethod
    def empty(cls, V: int) -> CutRoom:
        """Workspace for `maximise` on V labels."""
        words = (V + 63) // 64
        return cls(
            np.empty((3, V)),
            np.empty(V, np.int64),
            np.empty((V, V)),
            np.empty((3, V, words), np.uint64),
            np.empty((V + 1, words), np.uint64),
            np.empty((5, words), np.uint64),
        )


class BatchRoom(NamedTuple):
    """Workspace of a cut for each of many rows: scores and two sets of one, states, P (empty), the cut's."""

    u: np.ndarray
    best: np.ndarray
    other: np.ndarray
    state: np.ndarray
    positive: np.ndarray
    cuts: CutRoom

    @classmethod
    def empty(cls, V: int) -> BatchRoom:
        """Workspace for V labels."""
        best, other, state = np.zeros((3, V), np.uint8)
        positive = readonly(np.zeros(V, np.uint8))
        return cls(np.empty(V), best, other, state, positive, CutRoom.empty(V))


@helper(hot=True)
def lowest(bits):
    """The lowest bit, which must exist."""
    return bits ^ (bits & (bits - ONE))


@helper(hot=True)
def place(bit):
    """Place of a single bit in its word."""
    return PLACES[bit % MODULUS]


@helper(hot=True)
def bit_of(i):
    """The bit of label i in its word, which is word i // 64."""
    return ONE << np.uint64(i & 63)


@helper
def copy(target, source):
    """Write one vector over another (a loop compiles many times faster than a slice)."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@helper
def fill(target, value):
    """Write one state over all labels."""
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
def maximise(u, t, positive, state, graph, largest, room, y):
    """Write the smallest (or largest) maximiser into y; answers by how much at most another set is better."""
    tally, scale = take_forced(u, positive, state, graph, room, y)
    zero = ROUNDING * u.shape[0] * max(scale, t * u.shape[0])
    # A label whose score is zero is in the largest maximiser and not in the smallest.
    tally, missed = settle(t, -zero if largest else zero, positive, tally, graph, room, y)
    free = tally[2]
    if free == 0:
        return missed
    missed += lay_out(t, zero, positive, tally, graph, room)
    missed += push_flow(t, zero, positive, graph, room)
    search(largest, room)
    core, unseen = room.core, room.masks[UNSEEN]
    for c in range(free):
        i = core[c]
        apart = unseen[i >> 6] & bit_of(i) != NONE
        y[i] = apart if largest else not apart
    return missed


@helper(hot=True)
def take_forced(u, positive, state, graph, room, y):
    """Start from the forced labels; list the free ones in `core`.

    Answers the tally (labels on and how many of them in P, labels free and how many of them in P)
    and the largest number in sight.
    """
    start, head, weight, total = graph.start, graph.head, graph.weight, graph.total
    gain, reach, core = room.numbers[GAIN], room.numbers[REACH], room.core
    V = u.shape[0]
    on, on_positive, free, free_positive = 0, 0, 0, 0
    scale = 1.0
    for i in range(V):
        gain[i] = u[i]
        reach[i] = total[i]
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
    if free < V:
        for i in range(V):
            if state[i] != FREE:
                for k in range(start[i], start[i + 1]):
                    reach[head[k]] -= weight[k]
                    if state[i] == ON:
                        gain[head[k]] += weight[k]
    return (on, on_positive, free, free_positive), scale


@helper(hot=True)
def settle(t, margin, positive, tally, graph, room, y):
    """Decide the labels that need no flow, until none is left; answers the new tally and what that can miss.

    Each decision moves the weight of a pair from what its other label may still get (`reach`) to
    what it has for certain (`gain`), or away; the family around P moves with the counts.
    """
    start, head, weight = graph.start, graph.head, graph.weight
    gain, reach, core = room.numbers[GAIN], room.numbers[REACH], room.core
    on, on_positive, free, free_positive = tally
    before, missed = -1, 0.0
    while before != free:
        before = free
        kept = 0
        for c in range(before):
            i = core[c]
            here = positive[i]
            score = gain[i] + t * (here * on + on_positive)
            most = score + reach[i] + t * (here * (free - 1) + free_positive - here)
            if score > margin:
                y[i] = 1
                missed += max(-score, 0.0)
                on += 1
                on_positive += here
                for k in range(start[i], start[i + 1]):
                    reach[head[k]] -= weight[k]
                    gain[head[k]] += weight[k]
            elif most <= margin:
                y[i] = 0
                missed += max(most, 0.0)
                for k in range(start[i], start[i + 1]):
                    reach[head[k]] -= weight[k]
            else:
                core[kept] = i
                kept += 1
                continue
            free -= 1
            free_positive -= here
    return (on, on_positive, free, free_positive), missed


@helper(hot=True)
def lay_out(t, zero, positive, tally, graph, room):
    """Write the network of the free labels, the first of `core`: excesses, and arcs in bits.

    Answers the sum of the excesses that count as zero.
    """
    gain, reach, excess = room.numbers[GAIN], room.numbers[REACH], room.numbers[EXCESS]
    out, into, used = room.arcs[OUT], room.arcs[INTO], room.arcs[USED]
    core, masks, near = room.core, room.masks, graph.near
    on, on_positive, free, free_positive = tally
    around = masks[FRONT]
    words = masks.shape[1]
    missed = 0.0
    for w in range(words):
        masks[CORE, w] = masks[SINKS, w] = masks[ACTIVE, w] = around[w] = NONE
    for c in range(free):
        i = core[c]
        here = positive[i]
        # Half of each pair with another free label goes to the score, the other half to the arcs.
        pairs = reach[i] + t * (here * (free - 1) + free_positive - here)
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
    for c in range(free):
        i = core[c]
        for w in range(words):
            row = near[i, w]
            if t > 0:
                # The family joins a label of P to all, any other label to those of P.
                row |= masks[CORE, w] if positive[i] else around[w]
            out[i, w] = into[i, w] = row & masks[CORE, w]
            used[i, w] = NONE
        out[i, i >> 6] &= ~bit_of(i)
        into[i, i >> 6] &= ~bit_of(i)
    return missed


@helper(hot=True)
def push_flow(t, zero, positive, graph, room):
    """Waves of excess towards the nearest sinks until none can be reached.

    Each wave labels nodes with their distance to a sink and then moves excess one step at a time
    along shortest paths, the farthest nodes first. What gets stuck is a source of the next wave, at
    a larger distance, so that the waves end. Answers the sum of all that came to count as zero.
    """
    active, levels = room.masks[ACTIVE], room.levels
    missed = 0.0
    while True:
        farthest = rank(room)
        if farthest == 0:
            return missed
        for distance in range(farthest, 0, -1):
            for w in range(active.shape[0]):
                rest = levels[distance, w] & active[w]
                while rest != NONE:
                    here = lowest(rest)
                    rest ^= here
                    i = 64 * w + place(here)
                    missed += discharge(i, here, distance, t, zero, positive, graph, room)


@helper(hot=True)
def discharge(i, here, distance, t, zero, positive, graph, room):
    """Push the excess of label i, whose bit is `here`, to labels one step nearer to a sink.

    Answers the sum of the residuals and excesses that count as zero after it.
    """
    excess, matrix, residual = room.numbers[EXCESS], graph.matrix, room.residual
    out, into, used = room.arcs[OUT], room.arcs[INTO], room.arcs[USED]
    sinks, active, nearer = room.masks[SINKS], room.masks[ACTIVE], room.levels[distance - 1]
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
                # The first use of an arc: its capacity is half the weight of the pair, both ways.
                ahead = 0.5 * (matrix[i, j] + t * (positive[i] + positive[j]))
                back = ahead
                used[i, v] |= bit
                used[j, w] |= here
            # A sink takes no more than it lacks; a label on the way passes all of it on.
            flow = min(left, ahead, -excess[j]) if distance == 1 else min(left, ahead)
            residual[i, j], residual[j, i] = ahead - flow, back + flow
            # What went ahead can come back; a full arc leaves both lists.
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
                # A sink that has got all it lacked attracts no more flow, in this wave either.
                sinks[v] ^= bit
                nearer[v] ^= bit
        v += 1
    excess[i] = left
    if left <= zero:
        missed += left
        active[w] ^= here
    return missed


@helper
def rank(room):
    """Write the labels at distance d from a sink into `levels[d]`, up to the farthest source.

    Answers that distance; 0 when no source reaches a sink.
    """
    into, levels, masks = room.arcs[INTO], room.levels, room.masks
    active, unseen, hidden = masks[ACTIVE], masks[UNSEEN], masks[FRONT]
    words = masks.shape[1]
    missing = NONE
    for w in range(words):
        levels[0, w] = masks[SINKS, w]
        unseen[w] = masks[CORE, w] & ~masks[SINKS, w]
        hidden[w] = active[w]
        missing |= active[w]
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
def search(from_sinks, room):
    """Leave in UNSEEN what sources do not reach, or what does not reach sinks."""
    arcs, masks = room.arcs, room.masks
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
    """sum_i u_i y_i + sum_{i<j} W_ij y_i y_j."""
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
def maximise_batch(U, graph, largest, begin, end, Y, missed, room):
    """One cut for each row of U from `begin` to `end`, all over the same pairs; `missed` as of `maximise`."""
    for n in range(begin, end):
        copy(room.u, U[n])
        missed[n] = maximise(room.u, 0.0, room.positive, room.state, graph, largest, room.cuts, Y[n])


@compiled
def margins_batch(U, graph, begin, end, margins, room):
    """Best score with label i on minus best score with it off, for every row and label."""
    u, best, other, state, positive, cuts = room
    for n in range(begin, end):
        copy(u, U[n])
        maximise(u, 0.0, positive, state, graph, SMALLEST, cuts, best)
        value = set_score(u, graph, best)
        for i in range(U.shape[1]):
            margins[n, i] = u[i]
            # Without pairs the margin of a label is its own score.
            if graph.start[i + 1] == graph.start[i]:
                continue
            state[i] = OFF if best[i] else ON
            maximise(u, 0.0, positive, state, graph, SMALLEST, cuts, other)
            loss = value - set_score(u, graph, other)
            margins[n, i] = loss if best[i] else -loss
            state[i] = FREE
