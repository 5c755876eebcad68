"""Maximise sums of unary scores and attractive pairs by minimum cuts.

Problem, over sets y of V labels written as 0/1 vectors:

    max_y  sum_i u_i y_i + sum_{i<j} W_ij y_i y_j + t sum_{i<j} ([i in P] + [j in P]) y_i y_j,   W, t >= 0

The last term is a dense family of pairs around a set P of labels (`positive`), used by the
F-score majorant; t = 0 leaves it out. `state[i]` is 0 for a free label, 1 for one forced on and
2 for one forced off.

A graph is the tuple (start, head, weight, total, matrix, near): row i of W as the arcs from
`start[i]` to `start[i + 1]` and as `matrix[i]`, its sum `total[i]`, and its neighbours as the bits of
`near[i]`, 64 labels to a word.

1. A label whose score is positive by itself is on; one whose score stays negative with every
   undecided neighbour on is off. Repeating this decides most labels without any flow. The sums
   over the family around P are counts, so that its pairs are not touched here.
2. For the labels left, W y_i y_j = W/2 (y_i + y_j) - W/2 [y_i != y_j] gives a flow network with
   arcs of capacity W/2 both ways and the excess c_i = score_i + (half the row sum): a source where
   positive, a sink where negative. Waves of pushes along shortest paths solve it. Which arcs have
   a residual is kept in bits (`out` and `into` a label), so that a breadth-first search takes a few
   words per label however dense the graph is; the residual of an arc is written when it is first used.
3. The smallest maximiser is what sources still reach, the largest is what cannot reach a sink.

Residuals and scores within 1e-11 max(1, largest score) of zero count as zero.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled

ROUNDING = 1e-11
FREE, ON, OFF = 0, 1, 2
UNDECIDED = 2
# Which maximiser; as numbers of one type, or every loop would be compiled for each of them.
SMALLEST, LARGEST = np.bool_(False), np.bool_(True)

# The powers of two are all different modulo 67, which finds the place of a single bit.
NONE, ONE, MODULUS = np.uint64(0), np.uint64(1), np.uint64(67)
PLACES = np.array([next((p for p in range(64) if 2**p % 67 == rest), 0) for rest in range(67)])

# Sets of labels in bits that a cut works with.
CORE, SINKS, ACTIVE, UNSEEN, FRONT = 0, 1, 2, 3, 4


@compiled(inline=True)
def lowest(bits):
    """The lowest bit, which must exist."""
    return bits ^ (bits & (bits - ONE))


@compiled(inline=True)
def place(bit):
    """Place of a single bit in its word."""
    return PLACES[bit % MODULUS]


@compiled(inline=True)
def bit_of(i):
    """The bit of label i in its word, which is word i // 64."""
    return ONE << np.uint64(i & 63)


@compiled
def cut_workspace(V):
    """Scratch arrays for `maximise` on V labels."""
    words = (V + 63) // 64
    floats = np.empty((3, V))
    core = np.empty(V, np.int64)
    residual = np.empty((V, V))
    arcs = np.empty((3, V, words), np.uint64)
    levels = np.empty((V + 1, words), np.uint64)
    masks = np.empty((5, words), np.uint64)
    return floats, core, residual, arcs, levels, masks


@compiled
def own_graph(start, head, weight, total):
    """The graph of W, in arrays of its own."""
    V = total.shape[0]
    matrix = np.zeros((V, V))
    near = np.zeros((V, (V + 63) // 64), np.uint64)
    for i in range(V):
        for k in range(start[i], start[i + 1]):
            set_arc(i, np.int64(head[k]), weight[k], matrix, near)
    return start.copy(), head.copy(), weight.copy(), total.copy(), matrix, near


@compiled(inline=True)
def set_arc(i, j, weight, matrix, near):
    """Write one arc into the matrix and the bits of the neighbours."""
    matrix[i, j] = weight
    if 0.5 * weight > ROUNDING:
        near[i, j >> 6] |= bit_of(j)
    else:
        near[i, j >> 6] &= ~bit_of(j)


@compiled
def maximise(u, t, positive, state, graph, largest, work, y):
    """Write the smallest (or largest) maximiser into y."""
    start, head, weight, total = graph[0], graph[1], graph[2], graph[3]
    floats, core = work[0], work[1]
    gain, room, excess = floats[0], floats[1], floats[2]
    V = u.shape[0]
    on, on_positive, free, free_positive = 0, 0, 0, 0
    scale = 1.0
    for i in range(V):
        gain[i] = u[i]
        room[i] = total[i]
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
    zero = ROUNDING * max(scale, t * V)
    if free < V:
        for i in range(V):
            if state[i] != FREE:
                for k in range(start[i], start[i + 1]):
                    room[head[k]] -= weight[k]
                    if state[i] == ON:
                        gain[head[k]] += weight[k]

    margin = -zero if largest else zero
    before = -1
    while before != free:
        before = free
        kept = 0
        for c in range(before):
            i = core[c]
            here = positive[i]
            score = gain[i] + t * (here * on + on_positive)
            reach = score + room[i] + t * (here * (free - 1) + free_positive - here)
            if score > margin:
                y[i] = 1
                on += 1
                on_positive += here
                for k in range(start[i], start[i + 1]):
                    room[head[k]] -= weight[k]
                    gain[head[k]] += weight[k]
            elif reach <= margin:
                y[i] = 0
                for k in range(start[i], start[i + 1]):
                    room[head[k]] -= weight[k]
            else:
                core[kept] = i
                kept += 1
                continue
            free -= 1
            free_positive -= here
    if free == 0:
        return
    for c in range(free):
        i = core[c]
        here = positive[i]
        pairs = room[i] + t * (here * (free - 1) + free_positive - here)
        excess[i] = gain[i] + t * (here * on + on_positive) + 0.5 * pairs
    lay_out(free, t, zero, positive, graph, work)
    push_flow(t, zero, positive, graph, work)
    search(largest, work)
    unseen = work[5][UNSEEN]
    for c in range(free):
        i = core[c]
        missed = unseen[i >> 6] & bit_of(i) != NONE
        y[i] = missed if largest else not missed


@compiled
def lay_out(n, t, zero, positive, graph, work):
    """Write in bits the network of the first n entries of `core`; all other labels are decided."""
    near = graph[5]
    floats, core, _, arcs, _, masks = work
    excess, out, into, used = floats[2], arcs[0], arcs[1], arcs[2]
    around = masks[FRONT]
    words = masks.shape[1]
    for w in range(words):
        masks[CORE, w] = masks[SINKS, w] = masks[ACTIVE, w] = around[w] = NONE
    for c in range(n):
        i = core[c]
        w, bit = i >> 6, bit_of(i)
        masks[CORE, w] |= bit
        if positive[i]:
            around[w] |= bit
        if excess[i] < -zero:
            masks[SINKS, w] |= bit
        elif excess[i] > zero:
            masks[ACTIVE, w] |= bit
    family = 0.5 * t > zero
    for c in range(n):
        i = core[c]
        for w in range(words):
            row = near[i, w]
            if family:
                row |= masks[CORE, w] if positive[i] else around[w]
            out[i, w] = into[i, w] = row & masks[CORE, w]
            used[i, w] = NONE
        out[i, i >> 6] &= ~bit_of(i)
        into[i, i >> 6] &= ~bit_of(i)


@compiled
def push_flow(t, zero, positive, graph, work):
    """Waves of excess towards the nearest sinks until none can be reached.

    Each wave labels nodes with their distance to a sink and then moves excess one step at a time
    along shortest paths, the farthest nodes first. What gets stuck is a source of the next wave, at
    a larger distance, so that the waves end.
    """
    matrix = graph[4]
    floats, _, residual, arcs, levels, masks = work
    excess, out, into, used = floats[2], arcs[0], arcs[1], arcs[2]
    sinks, active = masks[SINKS], masks[ACTIVE]
    words = masks.shape[1]
    while True:
        depth = rank(into, levels, masks)
        if depth == 0:
            return
        for d in range(depth, 0, -1):
            below = levels[d - 1]
            for w in range(words):
                rest = levels[d, w] & active[w]
                while rest != NONE:
                    here = lowest(rest)
                    rest ^= here
                    i = 64 * w + place(here)
                    left = excess[i]
                    v = 0
                    while v < words and left > zero:
                        there = out[i, v] & below[v]
                        while there != NONE and left > zero:
                            bit = lowest(there)
                            there ^= bit
                            j = 64 * v + place(bit)
                            if used[i, v] & bit != NONE:
                                ahead, back = residual[i, j], residual[j, i]
                            else:
                                ahead = 0.5 * (matrix[i, j] + t * (positive[i] + positive[j]))
                                back = ahead
                                used[i, v] |= bit
                                used[j, w] |= here
                            flow = min(left, ahead, -excess[j]) if d == 1 else min(left, ahead)
                            residual[i, j], residual[j, i] = ahead - flow, back + flow
                            out[j, w] |= here
                            into[i, v] |= bit
                            if ahead - flow <= zero:
                                out[i, v] ^= bit
                                into[j, w] ^= here
                            left -= flow
                            excess[j] += flow
                            if d > 1:
                                active[v] |= bit
                            elif excess[j] >= -zero:
                                sinks[v] ^= bit
                                below[v] ^= bit
                        v += 1
                    excess[i] = left
                    if left <= zero:
                        active[w] ^= here


@compiled
def rank(into, levels, masks):
    """Write the labels at distance d from a sink into `levels[d]`, up to the farthest source.

    Answers that distance; 0 when no source reaches a sink.
    """
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


@compiled
def search(from_sinks, work):
    """Leave in UNSEEN what sources do not reach, or what does not reach sinks."""
    arcs, masks = work[3], work[5]
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
                    new = arcs[1 if from_sinks else 0, i, v] & unseen[v]
                    unseen[v] ^= new
                    front[v] |= new
                    more |= new


@compiled
def set_score(u, graph, y):
    """sum_i u_i y_i + sum_{i<j} W_ij y_i y_j."""
    start, head, weight = graph[0], graph[1], graph[2]
    score = 0.0
    for i in range(u.shape[0]):
        if y[i]:
            score += u[i]
            for k in range(start[i], start[i + 1]):
                if head[k] > i and y[head[k]]:
                    score += weight[k]
    return score


@compiled
def maximise_batch(U, start, head, weight, total, largest, begin, end, Y):
    """One cut for each row of U from `begin` to `end`, all over the same pairs."""
    V = U.shape[1]
    graph = own_graph(start, head, weight, total)
    work = cut_workspace(V)
    state, positive = np.zeros(V, np.uint8), np.zeros(V, np.uint8)
    for n in range(begin, end):
        maximise(U[n], 0.0, positive, state, graph, largest, work, Y[n])


@compiled
def margins_batch(U, start, head, weight, total, begin, end, margins):
    """Best score with label i on minus best score with it off, for every row and label."""
    V = U.shape[1]
    graph = own_graph(start, head, weight, total)
    work = cut_workspace(V)
    state, positive = np.zeros(V, np.uint8), np.zeros(V, np.uint8)
    best, other = np.empty(V, np.uint8), np.empty(V, np.uint8)
    for n in range(begin, end):
        u = U[n]
        maximise(u, 0.0, positive, state, graph, SMALLEST, work, best)
        value = set_score(u, graph, best)
        for i in range(V):
            margins[n, i] = u[i]
            if start[i + 1] == start[i]:
                continue
            state[i] = OFF if best[i] else ON
            maximise(u, 0.0, positive, state, graph, SMALLEST, work, other)
            loss = value - set_score(u, graph, other)
            margins[n, i] = loss if best[i] else -loss
            state[i] = FREE
