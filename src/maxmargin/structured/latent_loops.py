"""Bags of candidate rows as blocks: the generic functions of oracle_loops.py, and evaluation.

Bag i is the rows offsets[i]..offsets[i + 1] - 1; an answer is a pair of a candidate h and a class k, with
features x_h in slot k. W is feature-major (features + 1) x K, with the constant feature `bias` in its last
row. H(h, k) = [k != y] + W_k . x_h. A block stores a list of pairs, or a number alpha (rows x K) for every
pair.

The features of two pairs are orthogonal if the classes differ; otherwise their product is that of the
candidates. The truth of a bag is the pair of its class and the chosen candidate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import (
    RowArrays,
    row_column_add,
    row_column_dot,
    row_product,
    row_scores,
    scatter_rows,
    scattered_norm,
    subtract_scattered,
)
from maxmargin.structured.oracle_loops import (
    NEGLIGIBLE,
    add,
    add_shared,
    aim_at_best,
    away_from_truth,
    dot,
    fill_gram,
    loss,
    margin,
    max_oracle,
    mix,
    move,
    scatter,
    toward_best,
    toward_soft,
)


class Bags(NamedTuple):
    """Bags as blocks; `chosen` is the candidate of each bag that represents its class."""

    rows: RowArrays
    offsets: np.ndarray
    y: np.ndarray
    costs: np.ndarray
    chosen: np.ndarray
    bias: float


class BagScores(NamedTuple):
    """Workspace of the oracle: H of all pairs, and the best pair."""

    H: np.ndarray
    answer: np.ndarray

    @classmethod
    def empty(cls, largest: int, n_classes: int) -> BagScores:
        return cls(np.zeros((largest, n_classes)), np.zeros(2, np.int64))


class BagWork(NamedTuple):
    """`BagScores` with a target, a direction `d` to it and the features V of the direction.

    V is nonzero on the columns of X listed in `columns`; `counts` holds a stamp and their number.
    """

    H: np.ndarray
    answer: np.ndarray
    target: np.ndarray
    d: np.ndarray
    V: np.ndarray
    columns: np.ndarray
    seen: np.ndarray
    counts: np.ndarray

    @classmethod
    def empty(cls, largest: int, n_classes: int, n_features: int) -> BagWork:
        scores = BagScores.empty(largest, n_classes)
        target, d = np.zeros((2, largest, n_classes))
        columns, seen = np.zeros((2, n_features), np.int64)
        V = np.zeros((n_features + 1, n_classes))
        return cls(*scores, target, d, V, columns, seen, np.zeros(2, np.int64))


@helper(hot=True)
def margins(bags, W, i, H):
    """H(h, k) of all pairs; returns the best pair, the lowest candidate and class on ties."""
    K, start, y = W.shape[1], bags.offsets[i], bags.y[i]
    best_h, best_k = 0, 0
    for h in range(bags.offsets[i + 1] - start):
        row_scores(bags.rows, start + h, bags.bias, W, 0, K, H[h])
        for k in range(K):
            if k != y:
                H[h, k] += 1.0
            if H[h, k] > H[best_h, best_k]:
                best_h, best_k = h, k
    return best_h, best_k


@max_oracle.of(Bags)
def best_pair(bags, W, i, work):
    best_h, best_k = margins(bags, W, i, work.H)
    work.answer[0], work.answer[1] = best_h, best_k
    return work.H[best_h, best_k]


@margin.of(Bags)
def margin_of_pair(bags, W, i, answer, work):
    return work.H[answer[0], answer[1]]


@loss.of(Bags)
def loss_of_pair(bags, i, answer):
    return 0.0 if answer[1] == bags.y[i] else 1.0


@dot.of(Bags)
def dot_pair(bags, W, i, answer):
    """-W_k . x_h, without the score of the truth."""
    return -row_column_dot(bags.rows, bags.offsets[i] + answer[0], bags.bias, answer[1], W)


@add.of(Bags)
def add_pair(bags, W, i, answer, scale):
    """W_k -= scale x_h; returns the scale still to add to the truth."""
    if answer[0] == bags.chosen[i] and answer[1] == bags.y[i]:
        return 0.0
    row_column_add(bags.rows, bags.offsets[i] + answer[0], bags.bias, -scale, answer[1], W)
    return scale


@add_shared.of(Bags)
def add_truth(bags, W, i, scale):
    """W_y += scale x_{h*}."""
    row_column_add(bags.rows, bags.offsets[i] + bags.chosen[i], bags.bias, scale, bags.y[i], W)


@compiled
def pair_products(bags, i, answers, m, spot, gram):
    """Products of m pairs with pair `spot`; 0 for pairs of different classes."""
    start = bags.offsets[i]
    for j in range(m):
        product = 0.0
        if answers[j, 1] == answers[spot, 1]:
            product = row_product(bags.rows, start + answers[j, 0], start + answers[spot, 0], bags.bias)
        gram[j, spot] = product
        gram[spot, j] = product


@fill_gram.of(Bags)
def fill_gram_of_pairs(bags, i, answers, m, spot, gram, work):
    pair_products(bags, i, answers, m, spot, gram)


@compiled
def bag_values(bags, first, last, W, H, values, best):
    """Largest H, score of the true class at the chosen candidate, and its largest score over all candidates.

    These are the rows of `values`, for the bags first..last-1. `best` gets the candidate of the largest
    score; a tie keeps the chosen candidate, otherwise the first one.
    """
    for i in range(first, last):
        truth, top = bags.y[i], bags.chosen[i]
        best_h, best_k = margins(bags, W, i, H)
        values[0, i] = H[best_h, best_k]
        values[1, i] = H[top, truth]
        for h in range(bags.offsets[i + 1] - bags.offsets[i]):
            if H[h, truth] > H[top, truth]:
                top = h
        values[2, i] = H[top, truth]
        best[i] = top


@compiled
def bag_scores(rows, offsets, first, last, bias, W, work, scores, candidates):
    """Largest score of every class over the candidates of a bag, and the candidate (lowest on ties)."""
    K = W.shape[1]
    for i in range(first, last):
        for h in range(offsets[i + 1] - offsets[i]):
            row_scores(rows, offsets[i] + h, bias, W, 0, K, work)
            for k in range(K):
                if h == 0 or work[k] > scores[i, k]:
                    scores[i, k] = work[k]
                    candidates[i, k] = h


@helper
def direction(target, alpha, H, start, size, d):
    """d = target - alpha, and its product with H."""
    total = 0.0
    for h in range(size):
        for k in range(H.shape[1]):
            d[h, k] = target[h, k] - alpha[start + h, k]
            total += d[h, k] * H[h, k]
    return total


@aim_at_best.of(Bags)
def aim_at_pair(bags, i, work):
    """Put all mass of the target on one pair."""
    work.target[: bags.offsets[i + 1] - bags.offsets[i]] = 0.0
    work.target[work.answer[0], work.answer[1]] = 1.0


@toward_best.of(Bags)
def toward_pair(bags, W, alpha, i, work):
    start, size = bags.offsets[i], bags.offsets[i + 1] - bags.offsets[i]
    aim_at_best(bags, i, work)
    return direction(work.target, alpha, work.H, start, size, work.d)


@helper
def soften(alpha, H, start, size, rate, top, target):
    """target(h, k) = alpha(h, k) exp(rate H(h, k)), normalised: eq. (9)."""
    K = H.shape[1]
    largest = -np.inf
    for h in range(size):
        for k in range(K):
            target[h, k] = math.log(alpha[start + h, k]) + rate * (H[h, k] - top)
            largest = max(largest, target[h, k])
    total = 0.0
    for h in range(size):
        for k in range(K):
            shifted = target[h, k] - largest
            target[h, k] = math.exp(shifted) if shifted > NEGLIGIBLE else 0.0
            total += target[h, k]
    for h in range(size):
        for k in range(K):
            target[h, k] /= total


@toward_soft.of(Bags)
def toward_soft_pair(bags, W, alpha, rate, i, work):
    start, size = bags.offsets[i], bags.offsets[i + 1] - bags.offsets[i]
    soften(alpha, work.H, start, size, rate, work.H[work.answer[0], work.answer[1]], work.target)
    return direction(work.target, alpha, work.H, start, size, work.d)


@away_from_truth.of(Bags)
def away_from_true_pair(bags, alpha, i, work):
    """The truth gets minus the mass of the others, since 1 - alpha is rounded."""
    start, size = bags.offsets[i], bags.offsets[i + 1] - bags.offsets[i]
    total = 0.0
    for h in range(size):
        for k in range(alpha.shape[1]):
            if h != bags.chosen[i] or k != bags.y[i]:
                work.d[h, k] = alpha[start + h, k]
                total += work.d[h, k]
    work.d[bags.chosen[i], bags.y[i]] = -total


@scatter.of(Bags)
def scatter_bag(bags, i, work):
    """V = sum_h (x_h, bias) d_h'."""
    start, size = bags.offsets[i], bags.offsets[i + 1] - bags.offsets[i]
    V, d, counts = work.V, work.d, work.counts
    counts[0] += 1
    counts[1] = scatter_rows(bags.rows, start, size, d, V, work.columns, work.seen, counts[0])
    last = V[V.shape[0] - 1]
    norm = scattered_norm(V, work.columns, counts[1])
    for k in range(last.size):
        last[k] = 0.0
        for h in range(size):
            last[k] += bags.bias * d[h, k]
        norm += last[k] * last[k]
    return norm


@move.of(Bags)
def move_bag(bags, W, scale, work):
    subtract_scattered(scale, work.V, work.columns, work.counts[1], W)
    last = W.shape[0] - 1
    for k in range(W.shape[1]):
        W[last, k] -= scale * work.V[last, k]


@mix.of(Bags)
def mix_pairs(bags, alpha, gamma, floor, i, work):
    start, size, K = bags.offsets[i], bags.offsets[i + 1] - bags.offsets[i], alpha.shape[1]
    total, uniform = 0.0, floor / (size * K)
    for h in range(size):
        for k in range(K):
            old = alpha[start + h, k]
            mixed = (1.0 - gamma) * old + gamma * work.target[h, k]
            alpha[start + h, k] = (1.0 - floor) * mixed + uniform
            work.d[h, k] = -old
            total += alpha[start + h, k]
    for h in range(size):
        for k in range(K):
            alpha[start + h, k] /= total
            work.d[h, k] += alpha[start + h, k]
