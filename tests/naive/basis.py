"""Slow, obvious versions of the passes over the scores of the machines with a shared basis."""

import numpy as np


def margin_terms(F, y):
    """(i, r, M_ir, sign pattern row) of every term of the squared margins."""
    for i in range(F.shape[0]):
        for r in range(F.shape[1]):
            if r != y[i]:
                pattern = np.zeros(F.shape[1])
                pattern[r], pattern[y[i]] = 1.0, -1.0
                yield i, 1.0 + pattern @ F[i], pattern


def hinge_terms(F, Y):
    for i in range(F.shape[0]):
        for r in range(F.shape[1]):
            if Y[i, r] != 0:
                pattern = np.zeros(F.shape[1])
                pattern[r] = -Y[i, r]
                yield i, 1.0 + pattern @ F[i], pattern


def value(terms, c):
    return sum(c[i] * max(M, 0.0) ** 2 for i, M, _ in terms)


def gradient(terms, c, shape):
    G = np.zeros(shape)
    for i, M, pattern in terms:
        G[i] += 2 * c[i] * max(M, 0.0) * pattern
    return G


def curvature(terms, c, shape):
    """The k x k generalised Hessian of every sample."""
    D = np.zeros((shape[0], shape[1], shape[1]))
    for i, M, pattern in terms:
        if M > 0:
            D[i] += 2 * c[i] * np.outer(pattern, pattern)
    return D


def line_minimum(M, dM, c, q1, q2, longest):
    """Minimise q1 t + q2 t^2/2 + sum c max(0, M + t dM)^2 by walking over sorted breakpoints."""
    on = (M > 0) | ((M == 0) & (dM > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        breaks = np.where(dM != 0, -M / dM, np.inf)
    order = [k for k in np.argsort(breaks) if 0 < breaks[k] < np.inf and breaks[k] < longest]
    c0 = q1 + 2 * np.sum((c * dM * M)[on])
    c1 = q2 + 2 * np.sum((c * dM**2)[on])
    for k in order:
        if c0 + c1 * breaks[k] >= 0:
            break
        sign = 1 if dM[k] > 0 else -1
        c0 += sign * 2 * c[k] * dM[k] * M[k]
        c1 += sign * 2 * c[k] * dM[k] ** 2
    return min(max(-c0 / c1, 0.0), longest)


def row_key_pairs(X):
    """All pairs of equal rows of a dense matrix."""
    return {(i, j) for i in range(len(X)) for j in range(i) if (X[i] == X[j]).all()}
