"""Dynamic programs on label chains: scores, Viterbi, k best labelings, forward-backward.

A chain of length L over K labels has unary potentials ``un`` (L x K) and pair potentials
``pr`` (edges x K x K); edge t, from position t to t + 1, uses ``pr[t * stride]``, so that
``stride = 0`` shares one table between all edges. Weights are feature-major: row c of ``U``
(features x K) holds feature c for all labels, ``R`` (K x K) the transitions, and the rows
of ``B`` (3 x K) bias, first and last.

The loops over labels are contiguous; four nonzeros of a row, or four labels before a
transition, are taken at once, which spares three of four passes over the row written.
"""

from __future__ import annotations

import math

import numpy as np

from maxmargin.core.jit import compiled

# A term this far below the largest one vanishes in a float64 sum.
NEGLIGIBLE = -50.0


@compiled(reorder=True)
def unary_scores(rows, start, length, U, B, un):
    """un[t] = U' x_t + bias (+ first at the start, + last at the end)."""
    data, indices, indptr, dense = rows
    K = U.shape[1]
    for t in range(length):
        row = un[t]
        for a in range(K):
            row[a] = B[0, a]
        if t == 0:
            for a in range(K):
                row[a] += B[1, a]
        if t == length - 1:
            for a in range(K):
                row[a] += B[2, a]
        k, end = indptr[start + t], indptr[start + t + 1]
        shift = dense * k
        while k + 4 <= end:
            x0, x1, x2, x3 = data[k], data[k + 1], data[k + 2], data[k + 3]
            if x0 != 0.0 or x1 != 0.0 or x2 != 0.0 or x3 != 0.0:
                w0, w1 = U[indices[k - shift]], U[indices[k + 1 - shift]]
                w2, w3 = U[indices[k + 2 - shift]], U[indices[k + 3 - shift]]
                for a in range(K):
                    row[a] += x0 * w0[a] + x1 * w1[a] + x2 * w2[a] + x3 * w3[a]
            k += 4
        while k < end:
            x0, w0 = data[k], U[indices[k - shift]]
            for a in range(K):
                row[a] += x0 * w0[a]
            k += 1


@compiled
def augment(un, y, start, length, loss):
    """Add the Hamming loss: `loss` for every label of every position except the true one."""
    for t in range(length):
        for a in range(un.shape[1]):
            un[t, a] += loss
        un[t, y[start + t]] -= loss


@compiled
def viterbi(un, R, length, forward, path):
    """Write the best labeling into `path` and return its score; ties go to the lowest label."""
    K = R.shape[0]
    for a in range(K):
        forward[0, a] = un[0, a]
    for t in range(1, length):
        before, row = forward[t - 1], forward[t]
        for b in range(K):
            row[b] = before[0] + R[0, b]
        a = 1
        while a + 4 <= K:
            f0, f1, f2, f3 = before[a], before[a + 1], before[a + 2], before[a + 3]
            r0, r1, r2, r3 = R[a], R[a + 1], R[a + 2], R[a + 3]
            for b in range(K):
                s0, s1, s2, s3 = f0 + r0[b], f1 + r1[b], f2 + r2[b], f3 + r3[b]
                s0 = s1 if s1 > s0 else s0
                s2 = s3 if s3 > s2 else s2
                s0 = s2 if s2 > s0 else s0
                row[b] = s0 if s0 > row[b] else row[b]
            a += 4
        while a < K:
            f0, r0 = before[a], R[a]
            for b in range(K):
                s0 = f0 + r0[b]
                row[b] = s0 if s0 > row[b] else row[b]
            a += 1
        for b in range(K):
            row[b] += un[t, b]
    label = 0
    for a in range(1, K):
        if forward[length - 1, a] > forward[length - 1, label]:
            label = a
    best = forward[length - 1, label]
    path[length - 1] = label
    for t in range(length - 1, 0, -1):
        came = 0
        for a in range(1, K):
            if forward[t - 1, a] + R[a, label] > forward[t - 1, came] + R[came, label]:
                came = a
        label = came
        path[t - 1] = label
    return best


@compiled
def excess(un, R, y, start, z, length):
    """Score of labeling z minus that of the truth; exactly 0 for the truth itself."""
    total = 0.0
    for t in range(length):
        a, b = z[t], y[start + t]
        if a != b:
            total += un[t, a] - un[t, b]
        if t > 0 and (a != b or z[t - 1] != y[start + t - 1]):
            total += R[z[t - 1], a] - R[y[start + t - 1], b]
    return total


@compiled
def decode(rows, offsets, first, last, U, R, B, un, forward, labels, scores):
    """Best labeling and its score for the sequences first..last-1, into `labels` and `scores`."""
    for i in range(first, last):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        unary_scores(rows, start, length, U, B, un)
        scores[i] = viterbi(un, R, length, forward, labels[start : start + length])


@compiled
def hinges(rows, offsets, first, last, y, loss, U, R, B, un, forward, path, out):
    """out[i] = max_z H_i(z), the loss of sequence i, for the sequences first..last-1."""
    for i in range(first, last):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        unary_scores(rows, start, length, U, B, un)
        augment(un, y, start, length, loss[i])
        viterbi(un, R, length, forward, path)
        out[i] = excess(un, R, y, start, path, length)


@compiled
def kbest(un, R, length, k, scores, came, rank, at, labels, values):
    """The k best labelings, best first, into `labels` (k x L) and `values`; returns how many exist.

    scores, came, rank (L x K x k) hold, for every position and label, the k best ways to get
    there. They are merged from the sorted lists of the K labels before, `at` being the
    position in each list: O(L K^2 k). Ties go to the lowest label before, then the better rank.
    """
    K = R.shape[0]
    for a in range(K):
        scores[0, a, 0] = un[0, a]
        for j in range(1, k):
            scores[0, a, j] = -np.inf
    for t in range(1, length):
        for b in range(K):
            for a in range(K):
                at[a] = 0
            for j in range(k):
                best, top = -np.inf, -1
                for a in range(K):
                    if at[a] < k and scores[t - 1, a, at[a]] + R[a, b] > best:
                        best, top = scores[t - 1, a, at[a]] + R[a, b], a
                if top < 0:
                    scores[t, b, j] = -np.inf
                    continue
                scores[t, b, j] = best + un[t, b]
                came[t, b, j] = top
                rank[t, b, j] = at[top]
                at[top] += 1
    for a in range(K):
        at[a] = 0
    for j in range(k):
        best, label = -np.inf, -1
        for a in range(K):
            if at[a] < k and scores[length - 1, a, at[a]] > best:
                best, label = scores[length - 1, a, at[a]], a
        if label < 0:
            return j
        place = at[label]
        at[label] += 1
        values[j] = best
        for t in range(length - 1, -1, -1):
            labels[j, t] = label
            if t > 0:
                label, place = came[t, label, place], rank[t, label, place]
    return k


@compiled
def log_sum(values, size):
    """log(sum(exp(values[:size]))), with the largest term taken out."""
    top = values[0]
    for a in range(1, size):
        top = max(top, values[a])
    if top == -np.inf:
        return top
    total = 0.0
    for a in range(size):
        if values[a] - top > NEGLIGIBLE:
            total += math.exp(values[a] - top)
    return top + math.log(total)


@compiled
def shift_to_zero(values, size):
    """Subtract the largest value and return it."""
    top = values[0]
    for a in range(1, size):
        top = max(top, values[a])
    for a in range(size):
        values[a] -= top
    return top


@compiled
def forward_backward(un, pr, stride, length, forward, backward, norms, work):
    """Forward and backward log messages; returns log Z.

    Every message is shifted to a largest value of 0, so that no digits are lost on long
    chains or at low temperatures. norms[0, t] and norms[1, t] normalise node t and edge t:

        log mu_t(a) = forward[t, a] + backward[t, a] - norms[0, t],
        log mu_{t, t+1}(a, b) = forward[t, a] + pr[t * stride, a, b] + un[t + 1, b]
                                + backward[t + 1, b] - norms[1, t].
    """
    K = un.shape[1]
    for a in range(K):
        forward[0, a] = un[0, a]
        backward[length - 1, a] = 0.0
    log_z = shift_to_zero(forward[0], K)
    for t in range(1, length):
        table = pr[(t - 1) * stride]
        for b in range(K):
            for a in range(K):
                work[a] = forward[t - 1, a] + table[a, b]
            forward[t, b] = un[t, b] + log_sum(work, K)
        log_z += shift_to_zero(forward[t], K)
    norms[1, length - 1] = 0.0
    for t in range(length - 2, -1, -1):
        table = pr[t * stride]
        for a in range(K):
            for b in range(K):
                work[b] = table[a, b] + un[t + 1, b] + backward[t + 1, b]
            backward[t, a] = log_sum(work, K)
        norms[1, t] = shift_to_zero(backward[t], K)
    for t in range(length):
        for a in range(K):
            work[a] = forward[t, a] + backward[t, a]
        norms[0, t] = log_sum(work, K)
        norms[1, t] += norms[0, t]
    return log_z + log_sum(forward[length - 1], K)


@compiled
def node_marginals(rows, offsets, first, last, U, R, B, rate, un, forward, backward, norms, work, out):
    """Marginals of softmax(rate * score) for the sequences first..last-1, into out (rows x K)."""
    K = U.shape[1]
    table = np.empty((1, K, K))
    for a in range(K):
        for b in range(K):
            table[0, a, b] = rate * R[a, b]
    for i in range(first, last):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        unary_scores(rows, start, length, U, B, un)
        for t in range(length):
            for a in range(K):
                un[t, a] *= rate
        forward_backward(un, table, 0, length, forward, backward, norms, work)
        for t in range(length):
            for a in range(K):
                out[start + t, a] = math.exp(forward[t, a] + backward[t, a] - norms[0, t])
