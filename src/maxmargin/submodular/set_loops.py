"""Sets of labels under the F-score loss: their value, and the simpler ways to a violating one.

In the letters of `f1_inference`: h(y) = s(y) + 1 - 2 p / (k + n1), a graph as in `cuts`.

*Fixed point.* With the loss at a fixed cardinality k, h_k(y) = s(y) + 1 - 2 p / (k + n1) is one
cut, and the size of its largest maximiser grows with k. The greatest k that equals the size of
its own maximiser is reached by iterating k <- |y_k| downward from V. The answer lies inside
some optimum but need not be one.

*Without pairs* the best y is the top p of P and the top q of the rest, for some p and q: sorting.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.submodular.cut_loops import FREE, LARGEST, OFF, ON, SMALLEST, maximise, set_score


@compiled
def copy(target, source):
    """Write one vector over another (a graph loop compiles many times faster than a slice)."""
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
    size, hits = np.int64(0), np.int64(0)
    for i in range(y.shape[0]):
        size += y[i]
        hits += y[i] * truth[i]
    return size, hits


@compiled(inline=True)
def f1_loss(size, hits, n1):
    """1 - F1 of a set of `size` labels, `hits` of them true; 0 between two empty sets."""
    return 1.0 - 2.0 * hits / (size + n1) if size + n1 > 0 else 0.0


@compiled
def augmented_score(a, graph, truth, n1, y):
    """h(y)."""
    size, hits = size_and_hits(truth, y)
    return set_score(a, graph, y) + f1_loss(size, hits, n1)


@compiled
def empty_truth(a, graph, truth, work, state, trial, y):
    """Exact inference when no label is true: the best non-empty set, or the empty one."""
    V = a.shape[0]
    total = graph[3]
    fill(state, FREE)
    best = 0.0
    for i in range(-1, V):
        if i >= 0:
            # No set scores above the empty one, so label i brings at most its own score and pairs.
            if 1.0 + a[i] + total[i] <= best:
                continue
            state[i] = ON
        maximise(a, 0.0, truth, state, graph, LARGEST, work, trial)
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
                    return value
    return best


@compiled
def fixed_point(a, graph, truth, n1, work, u, state, y):
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
        maximise(u, 0.0, truth, state, graph, LARGEST, work, y)
        now = 0
        for i in range(V):
            now += y[i]
            if not y[i]:
                state[i] = OFF
        if now == size:
            return size
        size = now


@compiled
def best_addition(a, graph, truth, n1, y, size, work, u, state, trial):
    """Gain in h_k, at k = |y|, of the best set that contains y and one label more.

    Minus infinity when y is everything already (Algorithm 3).
    """
    V = a.shape[0]
    price = 2.0 / (size + n1)
    for i in range(V):
        u[i] = a[i] - price * truth[i]
        state[i] = ON if y[i] else FREE
    here = set_score(u, graph, y)
    best = -np.inf
    for i in range(V):
        if not y[i]:
            state[i] = ON
            maximise(u, 0.0, truth, state, graph, SMALLEST, work, trial)
            state[i] = FREE
            best = max(best, set_score(u, graph, trial) - here)
    return best


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
