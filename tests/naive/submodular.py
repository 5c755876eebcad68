"""Slow obvious twins of the cut, inference and block loops: enumeration and plain numpy."""

from __future__ import annotations

import itertools

import numpy as np


def all_sets(V):
    return np.array(list(itertools.product((0, 1), repeat=V)), dtype=np.int64)


def scores_of(sets, a, W):
    """Score of each set for unary scores a and an upper triangular W."""
    return sets @ a + np.einsum("ki,ij,kj->k", sets, W, sets)


def losses_of(sets, truth):
    sizes = sets.sum(axis=1) + truth.sum()
    return np.where(sizes > 0, 1 - 2 * (sets @ truth) / np.maximum(sizes, 1), 0.0)


def best_sets(a, W, tie=1e-9):
    """Value, smallest and largest maximiser by enumeration."""
    sets = all_sets(len(a))
    values = scores_of(sets, a, W)
    best = sets[values >= values.max() - tie]
    return values.max(), best.min(axis=0), best.max(axis=0)


def margins(a, W):
    sets = all_sets(len(a))
    values = scores_of(sets, a, W)
    return np.array([values[sets[:, i] == 1].max() - values[sets[:, i] == 0].max() for i in range(len(a))])


def loss_augmented(a, W, truth):
    """The largest h by enumeration, and all sets that reach it."""
    sets = all_sets(len(a))
    values = scores_of(sets, a, W) + losses_of(sets, truth)
    return values.max(), sets[values >= values.max() - 1e-9]


def algorithm_2(a, W, truth):
    """The paper's loop over k, with the largest maximiser of each h_k (n1 >= 1)."""
    V, n1 = len(a), truth.sum()
    k, k_max, answers = 0, 0, {}
    while k <= V:
        answers[k] = best_sets(a - 2 / (k + n1) * truth, W)[2]
        size = answers[k].sum()
        if size > k:
            k_max = k = size
        else:
            k_max = k if size == k else k_max
            k += 1
    return answers[k_max], k_max


def algorithm_3(a, W, truth, y):
    """Best gain in h_k, k = |y|, over sets that add at least one label to y."""
    sets = all_sets(len(a))
    sets = sets[(sets >= y).all(axis=1) & (sets.sum(axis=1) > y.sum())]
    if not len(sets):
        return -np.inf
    u = a - 2 / (y.sum() + truth.sum()) * truth
    return scores_of(sets, u, W).max() - scores_of(y[None], u, W)[0]


def sorted_search(a, truth):
    """All (p, q): the top p true labels and the top q others."""
    order = np.argsort(-a)
    on, off = order[truth[order] == 1], order[truth[order] == 0]
    best = (-np.inf, None)
    for p in range(len(on) + 1):
        for q in range(len(off) + 1):
            y = np.zeros(len(a), dtype=np.int64)
            y[on[:p]] = 1
            y[off[:q]] = 1
            value = a @ y + losses_of(y[None], truth)[0]
            if value > best[0]:
                best = (value, y)
    return best


def pair_features(Y, pairs):
    return Y[:, pairs[:, 0]] * Y[:, pairs[:, 1]]


def block_pass(X, truth, cost, pairs, strength, order, state, rounds, ask=True):
    """One pass of block steps with a memory and flips, in lists and dense arrays.

    `state` is a list of (sets, shares) per sample; the combination of sample n is the sum of shares
    times planes. The first entry is the rest, which only ever loses weight; the others are the
    memory, which has no limit here.
    """
    sets = all_sets(truth.shape[1])
    for n in order:
        own, share = state[n]
        gained = 0.0
        for turn in range(rounds):
            values = plane_values(X, truth, cost, pairs, strength, state, n, sets)
            if ask and turn == 0:
                place(own, share, sets[np.argmax(values)])
            mine = np.array(own)
            values = plane_values(X, truth, cost, pairs, strength, state, n, mine)
            used = [m for m in [*range(1, len(own)), 0] if share[m] > 1e-12]
            low = min(used, key=lambda m: values[m])
            high = 1 + int(np.argmax(values[1:]))
            square = X[n] @ X[n]
            jump = strength * (pair_features(mine, pairs)[high] - pair_features(mine, pairs)[low])
            curvature = square * np.sum((mine[high] - mine[low]) ** 2) + jump @ jump
            chosen = promise(values[high] - values[low], share[low], cost[n] * curvature), low, mine[high]
            rises, flips, best = {}, {}, (chosen[0], None)
            for m in range(1, len(own)):
                if share[m] <= 0.3 * max(share[1:]):
                    continue
                near = np.abs(mine[m] - np.eye(truth.shape[1], dtype=np.int64))
                rises[m] = plane_values(X, truth, cost, pairs, strength, state, n, near) - values[m]
                flips[m] = together(rises[m])
                bend = cost[n] * square * max(flips[m].sum(), 1)
                best = max(best, (promise(rises[m][flips[m]].sum(), share[m], bend), m), key=lambda b: b[0])
            m = best[1]
            if m is not None:
                joint = np.abs(mine[m] - flips[m])
                slope = plane_values(X, truth, cost, pairs, strength, state, n, joint[None])[0] - values[m]
                worth = promise(slope, share[m], cost[n] * square * flips[m].sum())
                alone = promise(rises[m].max(), share[m], cost[n] * square)
                if worth < alone:
                    worth, joint = alone, np.abs(mine[m] - np.eye(len(joint), dtype=int)[np.argmax(rises[m])])
                if worth > chosen[0]:
                    chosen = worth, m, joint
            gain, low, target = chosen
            if gain <= 1e-2 * gained:
                break
            gained += gain
            high = place(own, share, target)
            line_search(X, truth, cost, pairs, strength, state, n, low, high)
    return state


def together(rise):
    """The most labels that each bring more than half of what they bring on average, best first."""
    order = np.argsort(-rise)
    sizes = [k for k in range(1, 1 + np.sum(rise > 0)) if rise[order[k - 1]] > 0.5 * rise[order[:k]].mean()]
    return np.isin(np.arange(len(rise)), order[: max(sizes, default=0)])


def promise(slope, most, curvature):
    if slope <= 0:
        return 0.0
    gamma = min(most, slope / curvature)
    return gamma * slope - 0.5 * gamma**2 * curvature


def place(own, share, y):
    for m in range(1, len(own)):
        if np.array_equal(own[m], y):
            return m
    own.append(y)
    share.append(0.0)
    return len(own) - 1


def line_search(X, truth, cost, pairs, strength, state, n, low, high):
    """Move weight from plane `low` to plane `high` of sample n while the second is the higher one."""
    own, share = state[n]
    before = list(share)

    def slope(gamma):
        share[low], share[high] = before[low] - gamma, before[high] + gamma
        values = plane_values(X, truth, cost, pairs, strength, state, n, np.array([own[low], own[high]]))
        return values[1] - values[0]

    least, most = 0.0, before[low]
    if slope(most) < 0:
        for _ in range(60):
            middle = 0.5 * (least + most)
            if slope(middle) > 0:
                least = middle
            else:
                most = middle
        slope(0.5 * (least + most))


def plane_values(X, truth, cost, pairs, strength, state, n, sets):
    """Value of the plane of each set for sample n at the theta of the state."""
    theta1, u = dual_vector(X, truth, cost, pairs, strength, state)
    W = np.zeros((truth.shape[1],) * 2)
    W[pairs[:, 0], pairs[:, 1]] = strength * np.maximum(u, 0)
    return scores_of(sets, X[n] @ theta1, W) + losses_of(sets, truth[n])


def dual_vector(X, truth, cost, pairs, strength, state):
    """theta before the cut at zero: unary weights (D x V) and pairs."""
    labels = np.array([np.dot(share, np.array(own)) for own, share in state])
    joints = np.array([np.dot(share, pair_features(np.array(own), pairs)) for own, share in state])
    theta1 = X.T @ (cost[:, None] * (truth - labels))
    return theta1, strength * (cost @ (pair_features(truth, pairs) - joints))


def dual_value(X, truth, cost, pairs, strength, state):
    theta1, u = dual_vector(X, truth, cost, pairs, strength, state)
    losses = [np.dot(share, losses_of(np.array(own), truth[n])) for n, (own, share) in enumerate(state)]
    return cost @ np.array(losses) - 0.5 * np.sum(theta1**2) - 0.5 * np.sum(np.maximum(u, 0) ** 2)
