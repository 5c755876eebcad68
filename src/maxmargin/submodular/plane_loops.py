"""Sums over the remembered sets of all samples, which the interior point method takes many of.

A set is a 0/1 vector over labels. With the unary scores of a sample and a matrix T of pair weights (above
its diagonal), its score is sum_i y_i s_i + sum_{i<j} y_i y_j T_ij; the sums the other way add a number to
the labels and to the pairs of a set. Only labels that are on cost anything.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled


@compiled(inline=True)
def score_of(scores, T, y, on):
    """Score of one set; `on` is room for its labels."""
    size, total = 0, 0.0
    for i in range(y.shape[0]):
        if y[i]:
            total += scores[i]
            for b in range(size):
                total += T[on[b], i]
            on[size] = i
            size += 1
    return total


@compiled(inline=True)
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
def rise_batch(scores, T, truth, sets, known, rise):
    """Score of every known set minus that of the true one; zero for the others."""
    on = np.empty(scores.shape[1], np.int64)
    for n in range(scores.shape[0]):
        here = score_of(scores[n], T, truth[n], on)
        for k in range(known.shape[1]):
            rise[n, k] = score_of(scores[n], T, sets[n, k], on) - here if known[n, k] else 0.0


@compiled
def gather_batch(weights, truth, sets, labels, joint):
    """Sum of weights[n, k] (set minus true set): into the labels of every sample, into the pairs of all."""
    on = np.empty(truth.shape[1], np.int64)
    for n in range(weights.shape[0]):
        total = 0.0
        for k in range(weights.shape[1]):
            if weights[n, k] != 0:
                add_set(weights[n, k], sets[n, k], on, labels[n], joint)
                total += weights[n, k]
        if total != 0:
            add_set(-total, truth[n], on, labels[n], joint)


@compiled
def spread_batch(scores, T, d, sets, labels, joint):
    """Sum of d[n, k] (score - mean of the sample) (set), as `gather_batch`, with the means weighted by d."""
    on, values = np.empty(scores.shape[1], np.int64), np.empty(d.shape[1])
    for n in range(scores.shape[0]):
        total, mean = 0.0, 0.0
        for k in range(d.shape[1]):
            if d[n, k] != 0:
                values[k] = score_of(scores[n], T, sets[n, k], on)
                mean += d[n, k] * values[k]
                total += d[n, k]
        for k in range(d.shape[1]):
            if d[n, k] != 0:
                add_set(d[n, k] * (values[k] - mean / total), sets[n, k], on, labels[n], joint)


@compiled
def combine_sets(weights, samples, sets, place, labels, pairs):
    """Row f: sum_k weights[f, k] of the labels and of the pairs of set k of samples[f].

    `place[i, j]` is the column of pair i < j, -1 where there is none.
    """
    on = np.empty(labels.shape[1], np.int64)
    for f in range(samples.shape[0]):
        for k in range(weights.shape[1]):
            weight, y, size = weights[f, k], sets[samples[f], k], 0
            if weight == 0:
                continue
            for i in range(y.shape[0]):
                if y[i]:
                    labels[f, i] += weight
                    for b in range(size):
                        e = place[on[b], i]
                        if e >= 0:
                            pairs[f, e] += weight
                    on[size] = i
                    size += 1


@compiled
def add_rows(values, samples, rows, labels):
    """labels[samples[f]] += values[f] rows[f]."""
    for f in range(samples.shape[0]):
        value, row, target = values[f], rows[f], labels[samples[f]]
        for i in range(row.shape[0]):
            target[i] += value * row[i]
