"""Maximise sums of unary scores and attractive pairs by minimum cuts.

Problem, over sets y of V labels written as 0/1 vectors:

    max_y  sum_i u_i y_i + sum_{i<j} W_ij y_i y_j + t sum_{i<j} ([i in P] + [j in P]) y_i y_j,   W, t >= 0

The last term is a dense family of pairs around a set P of labels (`positive`), used by the
F-score majorant; t = 0 leaves it out. `state[i]` is 0 for a free label, 1 for one forced on and
2 for one forced off.

A graph is the tuple (start, stop, head, mirror, weight, around, total). Row i holds the arcs from
label i: those of W from `start[i]` to `stop[i]`, then those of the family around P up to
`start[i + 1]`. `mirror[a]` is the arc back, an arc's pair term is `weight[a] + t * around[a]`, and
`total[i]` is the sum of W over row i.

1. A label whose score is positive by itself is on; one whose score stays negative with every
   undecided neighbour on is off. Repeating this decides most labels without any flow. The sums
   over the family around P are counts, so that its arcs are not touched here.
2. For the labels left, W y_i y_j = W/2 (y_i + y_j) - W/2 [y_i != y_j] gives a flow network with
   arcs of capacity W/2 both ways and the excess c_i = score_i + (half the row sum): a source where
   positive, a sink where negative. Waves of pushes along shortest paths solve it.
3. The smallest maximiser is what sources still reach, the largest is what cannot reach a sink.

Residuals and scores within 1e-11 max(1, largest score) of zero count as zero.
"""

from __future__ import annotations

import numpy as np

from maxmargin._jit._compile import compiled

ROUNDING = 1e-11
FREE, ON, OFF = 0, 1, 2
UNDECIDED = 2
UNSEEN, DECIDED = -1, -2


@compiled
def cut_workspace(V, n_arcs):
    """Scratch arrays for `maximise` on V labels and at most `n_arcs` arcs."""
    floats = np.empty((3, V))
    nodes = np.empty((3, V), np.int64)
    residual = np.empty(n_arcs)
    return floats, nodes, residual


@compiled
def own_graph(start, head, mirror, weight, total):
    """The graph of W alone, in arrays of its own."""
    n_arcs = head.shape[0]
    return (
        start.copy(),
        start[1:].copy(),
        head.copy(),
        mirror.copy(),
        weight.copy(),
        np.zeros(n_arcs, np.uint8),
        total.copy(),
    )


@compiled
def maximise(u, t, positive, state, graph, largest, work, y):
    """Write the smallest (or largest) maximiser into y."""
    start, stop, head, _, weight, _, total = graph
    floats, nodes = work[0], work[1]
    gain, room, excess, core = floats[0], floats[1], floats[2], nodes[0]
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
                for k in range(start[i], stop[i]):
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
                for k in range(start[i], stop[i]):
                    room[head[k]] -= weight[k]
                    gain[head[k]] += weight[k]
            elif reach <= margin:
                y[i] = 0
                for k in range(start[i], stop[i]):
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
    push_flow(free, t, zero, graph, work, y)
    mark(free, largest, zero, graph, work)
    level = nodes[1]
    for c in range(free):
        reached = level[core[c]] >= 0
        y[core[c]] = (not reached) if largest else reached


@compiled
def push_flow(n, t, zero, graph, work, y):
    """Waves of excess towards the nearest sinks until none can be reached.

    The network is that of the first n entries of `core`; all other labels are decided. Each wave
    labels nodes with their distance to a sink and then moves excess one step at a time along
    shortest paths, the farthest nodes first. What gets stuck is a source of the next wave, at a
    larger distance, so that the waves end. A wave needs no distances beyond its farthest source.
    """
    start, _, head, mirror, weight, around, _ = graph
    floats, nodes, residual = work
    excess = floats[2]
    core, level, queue = nodes[0], nodes[1], nodes[2]
    for i in range(y.shape[0]):
        level[i] = DECIDED
    for c in range(n):
        for a in range(start[core[c]], start[core[c] + 1]):
            residual[a] = 0.5 * (weight[a] + t * around[a])
    while True:
        size, active = 0, 0
        for c in range(n):
            i = core[c]
            level[i] = UNSEEN
            if excess[i] < -zero:
                level[i] = 0
                queue[size] = i
                size += 1
            elif excess[i] > zero:
                active += 1
        sinks, hidden = size, active
        k = 0
        while k < size and hidden > 0:
            i = queue[k]
            k += 1
            for a in range(start[i], start[i + 1]):
                j = head[a]
                if level[j] == UNSEEN and residual[mirror[a]] > zero:
                    level[j] = level[i] + 1
                    queue[size] = j
                    size += 1
                    hidden -= excess[j] > zero
        if hidden == active:
            return
        for k in range(size - 1, sinks - 1, -1):
            i = queue[k]
            left = excess[i]
            if left <= zero:
                continue
            below = level[i] - 1
            for a in range(start[i], start[i + 1]):
                j = head[a]
                if level[j] == below and residual[a] > zero:
                    flow = min(left, residual[a])
                    if below == 0:
                        flow = min(flow, -excess[j])
                        if flow <= 0:
                            continue
                    left -= flow
                    excess[j] += flow
                    residual[a] -= flow
                    residual[mirror[a]] += flow
                    if left <= zero:
                        break
            excess[i] = left


@compiled
def mark(n, from_sinks, zero, graph, work):
    """Set `level` nonnegative exactly on what sources reach, or on what reaches sinks."""
    start, _, head, mirror, _, _, _ = graph
    floats, nodes, residual = work
    excess = floats[2]
    core, level, queue = nodes[0], nodes[1], nodes[2]
    size = 0
    for c in range(n):
        i = core[c]
        level[i] = UNSEEN
        if (excess[i] < -zero) if from_sinks else (excess[i] > zero):
            level[i] = 0
            queue[size] = i
            size += 1
    k = 0
    while k < size:
        i = queue[k]
        k += 1
        for a in range(start[i], start[i + 1]):
            j = head[a]
            if level[j] == UNSEEN and residual[mirror[a] if from_sinks else a] > zero:
                level[j] = 0
                queue[size] = j
                size += 1


@compiled
def set_score(u, graph, y):
    """sum_i u_i y_i + sum_{i<j} W_ij y_i y_j."""
    start, stop, head, _, weight, _, _ = graph
    score = 0.0
    for i in range(u.shape[0]):
        if y[i]:
            score += u[i]
            for k in range(start[i], stop[i]):
                if head[k] > i and y[head[k]]:
                    score += weight[k]
    return score


@compiled
def maximise_batch(U, start, head, mirror, weight, total, largest, begin, end, Y):
    """One cut for each row of U from `begin` to `end`, all over the same pairs."""
    V = U.shape[1]
    graph = own_graph(start, head, mirror, weight, total)
    work = cut_workspace(V, head.shape[0])
    state, positive = np.zeros(V, np.uint8), np.zeros(V, np.uint8)
    for n in range(begin, end):
        maximise(U[n], 0.0, positive, state, graph, largest, work, Y[n])


@compiled
def margins_batch(U, start, head, mirror, weight, total, begin, end, margins):
    """Best score with label i on minus best score with it off, for every row and label."""
    V = U.shape[1]
    graph = own_graph(start, head, mirror, weight, total)
    work = cut_workspace(V, head.shape[0])
    state, positive = np.zeros(V, np.uint8), np.zeros(V, np.uint8)
    best, other = np.empty(V, np.uint8), np.empty(V, np.uint8)
    for n in range(begin, end):
        u = U[n]
        maximise(u, 0.0, positive, state, graph, False, work, best)
        value = set_score(u, graph, best)
        for i in range(V):
            margins[n, i] = u[i]
            if start[i + 1] == start[i]:
                continue
            state[i] = OFF if best[i] else ON
            maximise(u, 0.0, positive, state, graph, False, work, other)
            loss = value - set_score(u, graph, other)
            margins[n, i] = loss if best[i] else -loss
            state[i] = FREE
