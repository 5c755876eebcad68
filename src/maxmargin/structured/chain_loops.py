"""Dynamic programs on label chains (Viterbi, k best labelings, forward-backward), and chains as blocks.

A chain of length L over K labels has unary potentials ``un`` (L x K) and pair potentials
``pr`` (edges x K x K); edge t, from position t to t + 1, uses ``pr[t * stride]``, so that
``stride = 0`` shares one table between all edges. Weights are feature-major: row c of ``U``
(features x K) holds feature c for all labels, ``R`` (K x K) the transitions, and the rows
of ``B`` (3 x K) bias, first and last.

The loops over labels are contiguous. They process four nonzeros of a row, or four labels before a transition,
at once, which saves three of four passes over the output row.

The second half declares the generic functions of oracle_loops.py for lists of labelings. The feature
difference of a labeling involves only the positions at which it differs from the truth.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.rows import RowArrays
from maxmargin.structured.oracle_loops import (
    NEGLIGIBLE,
    add,
    add_shared,
    dot,
    fill_gram,
    loss,
    margin,
    max_oracle,
)


class Chain(NamedTuple):
    """Sequences as blocks: i is the rows offsets[i]..offsets[i + 1] - 1, and a wrong label costs loss[i]."""

    rows: RowArrays
    offsets: np.ndarray
    y: np.ndarray
    costs: np.ndarray
    loss: np.ndarray


class ChainWeights(NamedTuple):
    """Weights of a chain, or an equal number of features."""

    U: np.ndarray
    R: np.ndarray
    B: np.ndarray


class ChainWork(NamedTuple):
    """Workspace of the oracle, and weights that are zero between calls."""

    un: np.ndarray
    forward: np.ndarray
    answer: np.ndarray
    zeros: ChainWeights


class Messages(NamedTuple):
    """Workspace of forward-backward: messages (L x K), normalisers of nodes and edges (2 x L), K terms."""

    forward: np.ndarray
    backward: np.ndarray
    norms: np.ndarray
    terms: np.ndarray

    @classmethod
    def empty(cls, length: int, n_labels: int) -> Messages:
        forward, backward = np.empty((2, length, n_labels))
        return cls(forward, backward, np.empty((2, length)), np.empty(n_labels))


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


@helper
def augment(un, y, start, length, loss):
    """Add the Hamming loss: `loss` for every label of every position except the true one."""
    for t in range(length):
        for a in range(un.shape[1]):
            un[t, a] += loss
        un[t, y[start + t]] -= loss


@helper
def viterbi(un, R, length, forward, path):
    """Viterbi: write the best labeling into `path` and return its score; ties go to the lowest label."""
    K = R.shape[0]
    # forward[t, b]: the score of the best labeling up to position t that ends with label b.
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
    # Trace the best labeling back from its last label.
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


@helper
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
def decode(chain, first, last, weights, un, forward, labels, out):
    """Labelings with the largest H_i(z) of the sequences first..last-1; out[i] is that H, xi_i of eq. (11).

    With zero losses these are the labelings with the highest scores, for any truth.
    """
    for i in range(first, last):
        start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
        path = labels[start : start + length]
        unary_scores(chain.rows, start, length, weights.U, weights.B, un)
        augment(un, chain.y, start, length, chain.loss[i])
        viterbi(un, weights.R, length, forward, path)
        out[i] = excess(un, weights.R, chain.y, start, path, length)


@compiled
def kbest(un, R, length, k, scores, came, rank, at, labels, values):
    """The k best labelings, best first, into `labels` (k x L) and `values`; returns how many exist.

    scores, came, rank (L x K x k) hold the k best partial labelings up to every position and label. They are
    merged from the sorted lists of the K previous labels, with the position in each list in `at`: O(L K^2 k).
    Ties go to the lowest previous label, then to the better rank.
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


@helper
def log_sum(values, size):
    """log(sum(exp(values[:size]))), relative to the largest term."""
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


@helper
def shift_to_zero(values, size):
    """Subtract the largest value and return it."""
    top = values[0]
    for a in range(1, size):
        top = max(top, values[a])
    for a in range(size):
        values[a] -= top
    return top


@helper
def forward_backward(un, pr, stride, length, messages):
    """Log messages of forward-backward, in both directions; returns log Z.

    Every message is shifted to a maximum of 0, which keeps all digits on long chains and at low temperatures.
    norms[0, t] and norms[1, t] normalise node t and edge t:

        log mu_t(a) = forward[t, a] + backward[t, a] - norms[0, t],
        log mu_{t, t+1}(a, b) = forward[t, a] + pr[t * stride, a, b] + un[t + 1, b]
                                + backward[t + 1, b] - norms[1, t].
    """
    forward, backward, norms, terms = messages
    K = un.shape[1]
    for a in range(K):
        forward[0, a] = un[0, a]
        backward[length - 1, a] = 0.0
    log_z = shift_to_zero(forward[0], K)
    for t in range(1, length):
        table = pr[(t - 1) * stride]
        for b in range(K):
            for a in range(K):
                terms[a] = forward[t - 1, a] + table[a, b]
            forward[t, b] = un[t, b] + log_sum(terms, K)
        log_z += shift_to_zero(forward[t], K)
    norms[1, length - 1] = 0.0
    for t in range(length - 2, -1, -1):
        table = pr[t * stride]
        for a in range(K):
            for b in range(K):
                terms[b] = table[a, b] + un[t + 1, b] + backward[t + 1, b]
            backward[t, a] = log_sum(terms, K)
        norms[1, t] = shift_to_zero(backward[t], K)
    for t in range(length):
        for a in range(K):
            terms[a] = forward[t, a] + backward[t, a]
        norms[0, t] = log_sum(terms, K)
        norms[1, t] += norms[0, t]
    return log_z + log_sum(forward[length - 1], K)


@helper
def read_nodes(messages, length, nodes):
    """Compute node marginals from the messages of `forward_backward`."""
    for t in range(length):
        for a in range(nodes.shape[1]):
            nodes[t, a] = math.exp(messages.forward[t, a] + messages.backward[t, a] - messages.norms[0, t])


@compiled(allocates=True)
def node_marginals(rows, offsets, first, last, weights, rate, un, messages, out):
    """Marginals of softmax(rate * score) for the sequences first..last-1, into out (rows x K)."""
    K = weights.U.shape[1]
    table = np.empty((1, K, K))
    for a in range(K):
        for b in range(K):
            table[0, a, b] = rate * weights.R[a, b]
    for i in range(first, last):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        unary_scores(rows, start, length, weights.U, weights.B, un)
        for t in range(length):
            for a in range(K):
                un[t, a] *= rate
        forward_backward(un, table, 0, length, messages)
        read_nodes(messages, length, out[start : start + length])


@max_oracle.of(Chain)
def viterbi_oracle(chain, w, i, work):
    """Loss-augmented scores and the best labeling by Viterbi."""
    start, length = chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    unary_scores(chain.rows, start, length, w.U, w.B, work.un)
    augment(work.un, chain.y, start, length, chain.loss[i])
    viterbi(work.un, w.R, length, work.forward, work.answer)
    return excess(work.un, w.R, chain.y, start, work.answer, length)


@margin.of(Chain)
def margin_of_labeling(chain, w, i, answer, work):
    """Excess of a labeling over the truth."""
    start = chain.offsets[i]
    return excess(work.un, w.R, chain.y, start, answer, chain.offsets[i + 1] - start)


@loss.of(Chain)
def loss_of_labeling(chain, i, answer):
    """Share or number of wrong labels."""
    start, wrong = chain.offsets[i], 0
    for t in range(chain.offsets[i + 1] - start):
        wrong += answer[t] != chain.y[start + t]
    return chain.loss[i] * wrong


@helper(hot=True)
def add_difference(chain, w, i, z, scale):
    """Add scale * Psi(z) to the weights, only at the positions at which z differs from the truth."""
    data, indices, indptr, dense = chain.rows
    U, R, B = w
    y, start, length = chain.y, chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    for t in range(length):
        a, b = z[t], y[start + t]
        if a != b:
            begin = indptr[start + t]
            for k in range(begin, indptr[start + t + 1]):
                value = scale * data[k]
                if value != 0.0:
                    c = indices[k - dense * begin]
                    U[c, b] += value
                    U[c, a] -= value
            B[0, b] += scale
            B[0, a] -= scale
            if t == 0:
                B[1, b] += scale
                B[1, a] -= scale
            if t == length - 1:
                B[2, b] += scale
                B[2, a] -= scale
        if t > 0 and (a != b or z[t - 1] != y[start + t - 1]):
            R[y[start + t - 1], b] += scale
            R[z[t - 1], a] -= scale


@helper(hot=True)
def clear_difference(chain, w, i, z):
    """Set every weight to zero that `add_difference` changes for z."""
    _, indices, indptr, dense = chain.rows
    U, R, B = w
    y, start = chain.y, chain.offsets[i]
    for t in range(chain.offsets[i + 1] - start):
        a, b = z[t], y[start + t]
        if a != b:
            begin = indptr[start + t]
            for k in range(begin, indptr[start + t + 1]):
                c = indices[k - dense * begin]
                U[c, b] = 0.0
                U[c, a] = 0.0
        if t > 0:
            R[y[start + t - 1], b] = 0.0
            R[z[t - 1], a] = 0.0
    for s in range(B.shape[0]):
        for a in range(B.shape[1]):
            B[s, a] = 0.0


@helper(hot=True)
def dot_difference(chain, w, i, z):
    """Psi(z) . w."""
    data, indices, indptr, dense = chain.rows
    U, R, B = w
    y, start, length = chain.y, chain.offsets[i], chain.offsets[i + 1] - chain.offsets[i]
    total = 0.0
    for t in range(length):
        a, b = z[t], y[start + t]
        if a != b:
            begin = indptr[start + t]
            for k in range(begin, indptr[start + t + 1]):
                c = indices[k - dense * begin]
                total += data[k] * (U[c, b] - U[c, a])
            total += B[0, b] - B[0, a]
            if t == 0:
                total += B[1, b] - B[1, a]
            if t == length - 1:
                total += B[2, b] - B[2, a]
        if t > 0 and (a != b or z[t - 1] != y[start + t - 1]):
            total += R[y[start + t - 1], b] - R[z[t - 1], a]
    return total


@add.of(Chain)
def add_labeling(chain, w, i, answer, scale):
    add_difference(chain, w, i, answer, scale)
    return 0.0


@add_shared.of(Chain)
def add_nothing(chain, w, i, scale):
    """The difference of a labeling is complete."""


@dot.of(Chain)
def dot_labeling(chain, w, i, answer):
    return dot_difference(chain, w, i, answer)


@fill_gram.of(Chain)
def fill_gram_of_labelings(chain, i, answers, m, spot, gram, work):
    """Through the difference of the new labeling, laid out in weights that are zero before and after."""
    add_difference(chain, work.zeros, i, answers[spot], 1.0)
    for j in range(m):
        product = dot_difference(chain, work.zeros, i, answers[j])
        gram[j, spot] = product
        gram[spot, j] = product
    clear_difference(chain, work.zeros, i, answers[spot])
