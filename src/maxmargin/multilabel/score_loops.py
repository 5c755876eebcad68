"""Scores of sparse weights, feature by feature, and the best labels of a sample."""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled, helper


@helper(hot=True)
def _score(rows, i, weights, intercept, scores):
    """Scores of sample i by weights that are stored feature by feature."""
    for l in range(intercept.shape[0]):
        scores[l] = intercept[l]
    begin = rows.indptr[i]
    for t in range(begin, rows.indptr[i + 1]):
        x = np.float64(rows.data[t])
        j = rows.indices[t - rows.dense * begin]
        for c in range(np.uint64(weights.indptr[j]), np.uint64(weights.indptr[j + 1])):
            scores[weights.indices[c]] += x * weights.data[c]


@compiled
def score_labels(rows, weights, intercept, scores):
    """scores[i] = x_i'W + b for sparse weights, feature by feature."""
    for i in range(scores.shape[0]):
        _score(rows, i, weights, intercept, scores[i])


@helper(hot=True)
def _insert(scores, labels, best):
    """The highest of some scores in falling order; of equal ones the first label."""
    k = best.shape[0]
    filled = 0
    for l in range(scores.shape[0]):
        f = scores[l]
        if filled == k and f <= best[k - 1]:
            continue
        place = min(filled, k - 1)
        while place > 0 and best[place - 1] < f:
            best[place], labels[place] = best[place - 1], labels[place - 1]
            place -= 1
        best[place], labels[place] = f, l
        filled = min(filled + 1, k)


@compiled(allocates=True)
def top_labels(rows, weights, intercept, begin, end, labels, best):
    """The labels with the highest scores of the samples from `begin` to `end`, as `_insert` orders them."""
    scores = np.empty(intercept.shape[0])
    for i in range(begin, end):
        _score(rows, i, weights, intercept, scores)
        _insert(scores, labels[i], best[i])


@compiled
def top_scores(scores, labels, best):
    """The same of dense scores."""
    for i in range(scores.shape[0]):
        _insert(scores[i], labels[i], best[i])
