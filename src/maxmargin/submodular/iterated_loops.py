"""Sums over remembered sets that conjugate gradients take many of; T: pair weights above its diagonal."""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.submodular.inference_loops import add_set, score_of


@compiled(allocates=True)
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


@compiled(allocates=True)
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
