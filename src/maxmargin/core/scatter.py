"""Sums of outer products x_t d_t' over the rows of a block, kept sparse in the features.

V (features x K) is a workspace. ``seen[c] == stamp`` marks the columns of X that the block
has touched, `columns` lists them; a row of V is overwritten on its first touch, so nothing
has to be cleared between blocks.
"""

from __future__ import annotations

from maxmargin.core.jit import compiled


@compiled(reorder=True)
def spread_rows(data, indices, indptr, dense, start, length, d, V, columns, seen, stamp):
    """V = sum_t x_t d_t' over the rows start..start + length - 1; returns how many columns it touched."""
    K = d.shape[1]
    touched = 0
    for t in range(length):
        move = d[t]
        begin = indptr[start + t]
        for k in range(begin, indptr[start + t + 1]):
            value = data[k]
            if value != 0.0:
                c = indices[k - dense * begin]
                row = V[c]
                if seen[c] != stamp:
                    seen[c] = stamp
                    columns[touched] = c
                    touched += 1
                    for a in range(K):
                        row[a] = value * move[a]
                else:
                    for a in range(K):
                        row[a] += value * move[a]
    return touched


@compiled(reorder=True)
def spread_norm(V, columns, touched):
    """|V|^2 over the touched columns."""
    total = 0.0
    for j in range(touched):
        row = V[columns[j]]
        for a in range(row.size):
            total += row[a] * row[a]
    return total


@compiled(reorder=True)
def subtract_spread(scale, V, columns, touched, W):
    """W -= scale * V on the touched columns."""
    for j in range(touched):
        row, weights = V[columns[j]], W[columns[j]]
        for a in range(row.size):
            weights[a] -= scale * row[a]


@compiled
def best_step(numerator, curvature, longest):
    """Minimiser of the quadratic along the move, within [0, longest]."""
    if numerator <= 0.0:
        return 0.0
    if numerator >= longest * curvature:
        return longest
    return numerator / curvature
