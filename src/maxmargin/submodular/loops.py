"""Loops over the rows of X for the submodular multi-label machine.

Z holds the unary weights feature-major with the bias last ((D + 1) x V).
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import row_outer_few, row_scores


@compiled
def score_rows(rows, bias, Z, begin, end, scores):
    """scores[n] = (x_n, bias)' Z for the rows from `begin` to `end`."""
    V = Z.shape[1]
    for n in range(begin, end):
        row_scores(rows, n, bias, Z, 0, V, scores[n])


@compiled
def add_outer(rows, bias, step, lo, hi, Z):
    """Z[:, lo:hi] += sum_n (x_n, bias) step[n, lo:hi]', skipping zeros of `step`."""
    few = np.empty(Z.shape[1], np.int64)
    for n in range(step.shape[0]):
        n_few = 0
        for i in range(lo, hi):
            if step[n, i] != 0:
                few[n_few] = i
                n_few += 1
        if n_few:
            row_outer_few(rows, n, bias, step[n], few, n_few, Z)


@compiled
def remembered_slack(scores, truth, first, second, weight, memory, begin, end, values):
    """Slack of every remembered set of the examples from `begin` to `end`."""
    V = truth.shape[1]
    for n in range(begin, end):
        a, t = scores[n], truth[n]
        n1, at_truth = 0, 0.0
        for i in range(V):
            if t[i]:
                n1 += 1
                at_truth += a[i]
        for e in range(first.shape[0]):
            if t[first[e]] and t[second[e]]:
                at_truth += weight[e]
        for m in range(memory.shape[0]):
            y = memory[m, n]
            size, hits, score = 0, 0, -at_truth
            for i in range(V):
                if y[i]:
                    size += 1
                    hits += t[i]
                    score += a[i]
            for e in range(first.shape[0]):
                if y[first[e]] and y[second[e]]:
                    score += weight[e]
            if size + n1 > 0:
                score += 1.0 - 2.0 * hits / (size + n1)
            values[m, n] = score
