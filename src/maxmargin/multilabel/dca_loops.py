"""Inner loops of the paper's linear solver: dual coordinate ascent over pairs (sample, label).

Letters and entry costs as in `_jit/m3l.py`; here the bias is an ordinary last feature, Z holds
the weights V R feature-major ((D+1) x L) and R the whole prior. A pair is one number i * L + l.
`low` and `high` (two rows: read, write) hold the bounds (44)-(45) of this pass and collect the
extreme projected gradients for the next.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import row_column_dot, row_outer
from maxmargin.multilabel.loops import entry_costs


@compiled(inline=True)
def visit(
    rows, bias, i, l, alpha, Y, weight, upper, margin, tied, q, R, Z,
    active, low, high,
):  # fmt: skip
    """Update (37)-(39) of one variable; returns the signed step and the gap it had."""
    c, m = entry_costs(i, l, Y, weight, upper, margin, tied)
    y, a = Y[i, l], alpha[i, l]
    g = m - y * row_column_dot(rows, i, bias, l, Z)
    gap = c * max(g, 0.0) - a * g
    if (a == 0.0 and g < low[0, l]) or (a == c and g > high[0, l]):
        active[i, l] = False
        return 0.0, gap
    if not (a == 0.0 and g < 0.0) and not (a == c and g > 0.0):
        low[1, l], high[1, l] = min(low[1, l], g), max(high[1, l], g)
    curvature = R[l, l] * q[i]
    target = a + g / curvature if curvature > 0.0 else (c if g > 0.0 else a)
    alpha[i, l] = min(max(target, 0.0), c)
    return y * (alpha[i, l] - a), gap


@compiled
def random_pass(
    rows, bias, pairs, alpha, Y, weight, upper, margin, tied, q, R, Z,
    active, low, high,
):  # fmt: skip
    """Phase A: every step is felt by all labels at once, eq. (40). Returns the gap seen."""
    L = alpha.shape[1]
    step = np.empty(L)
    seen = 0.0
    for position in range(pairs.shape[0]):
        i, l = pairs[position] // L, pairs[position] % L
        d, gap = visit(
            rows, bias, i, l, alpha, Y, weight, upper, margin, tied, q, R, Z,
            active, low, high,
        )  # fmt: skip
        seen += gap
        if d != 0.0:
            for k in range(L):
                step[k] = d * R[l, k]
            row_outer(rows, i, bias, step, 0, L, Z)
    return seen


@compiled
def delayed_pass(
    rows, bias, pairs, chunks, alpha, Y, weight, upper, margin, tied, q, R, Z,
    active, low, high,
):  # fmt: skip
    """Phase B: chunks of steps along one label touch only z_l; the other labels follow once.

    `chunks` holds the start of every chunk and the end of the last; v = sum of step * x over a
    chunk is kept with the list of features it touches.
    """
    data, indices, indptr, dense = rows
    L = alpha.shape[1]
    D = Z.shape[0] - 1
    v = np.zeros(D + 1)
    marked = np.zeros(D + 1, np.bool_)
    touched = np.empty(D + 1, np.int64)
    seen = 0.0
    for chunk in range(chunks.shape[0] - 1):
        n_touched = 0
        l = pairs[chunks[chunk]] % L
        for position in range(chunks[chunk], chunks[chunk + 1]):
            i = pairs[position] // L
            d, gap = visit(
                rows, bias, i, l, alpha, Y, weight, upper, margin, tied, q, R,
                Z, active, low, high,
            )  # fmt: skip
            seen += gap
            if d == 0.0:
                continue
            shift = dense * indptr[i]
            for k in range(indptr[i], indptr[i + 1] + 1):
                last = k == indptr[i + 1]
                j = np.int64(D) if last else np.int64(indices[k - shift])
                x = bias if last else data[k]
                Z[j, l] += x * d * R[l, l]
                v[j] += x * d
                if not marked[j]:
                    marked[j] = True
                    touched[n_touched] = j
                    n_touched += 1
        for t in range(n_touched):
            j = touched[t]
            for k in range(L):
                if k != l:
                    Z[j, k] += v[j] * R[l, k]
            v[j] = 0.0
            marked[j] = False
    return seen
