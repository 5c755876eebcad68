"""Passes over the scores F (l x k) of the machines with a shared basis, without temporaries.

*Margins* are those of one class against all others, M_ir = 1 + F_ir - F_{i,y_i} for r != y_i;
*hinges* are M_ir = 1 - Y_ir F_ir with signs Y, where 0 stands for no term. The loss is
sum c_i max(0, M_ir)^2 in both cases.

- `*_expand`: loss, gradient G in F and weights D = 2 c [M > 0] of the generalised Hessian;
- `*_slope`: first and second derivative of the loss along F + t dF;
- `*_after`: loss of F + K_q step_q' for every candidate q, K_q its kernel row;
- `star_product`: the Hessian of the margins times U.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled
from maxmargin.core.rows import readonly


def margins_expand(F: np.ndarray, y: np.ndarray, c: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    G, D = np.empty_like(F), np.empty_like(F)
    return _margins_expand(readonly(F), y, c, G, D), G, D


def hinges_expand(F: np.ndarray, Y: np.ndarray, c: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    G, D = np.empty_like(F), np.empty_like(F)
    return _hinges_expand(readonly(F), Y, c, G, D), G, D


def margins_slope(
    F: np.ndarray, dF: np.ndarray, y: np.ndarray, c: np.ndarray, t: float
) -> tuple[float, float]:
    return _margins_slope(readonly(F), readonly(dF), y, c, float(t))


def hinges_slope(
    F: np.ndarray, dF: np.ndarray, Y: np.ndarray, c: np.ndarray, t: float
) -> tuple[float, float]:
    return _hinges_slope(readonly(F), readonly(dF), Y, c, float(t))


def margins_after(
    F: np.ndarray, y: np.ndarray, c: np.ndarray, K: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    losses = np.empty(len(K))
    _margins_after(readonly(F), y, c, readonly(K), readonly(steps), losses)
    return losses


def hinges_after(F: np.ndarray, Y: np.ndarray, c: np.ndarray, K: np.ndarray, steps: np.ndarray) -> np.ndarray:
    losses = np.empty(len(K))
    _hinges_after(readonly(F), Y, c, readonly(K), readonly(steps), losses)
    return losses


def star_product(D: np.ndarray, y: np.ndarray, U: np.ndarray) -> np.ndarray:
    answer = np.empty_like(U)
    _star_product(readonly(D.astype(U.dtype, copy=False)), readonly(y), readonly(U), answer)
    return answer


@compiled(reorder=True)
def _margins_expand(F, y, c, G, D):
    total = 0.0
    for i in range(F.shape[0]):
        own = np.int64(y[i])
        base = 1.0 - F[i, own]
        weight = 2.0 * c[i]
        squares = 0.0
        pulled = 0.0
        for r in range(F.shape[1]):
            xi = max(base + F[i, r], 0.0) if r != own else 0.0
            G[i, r] = weight * xi
            D[i, r] = weight if xi > 0.0 else 0.0
            squares += xi * xi
            pulled += weight * xi
        G[i, own] = -pulled
        total += c[i] * squares
    return total


@compiled(reorder=True)
def _hinges_expand(F, Y, c, G, D):
    total = 0.0
    for i in range(F.shape[0]):
        weight = 2.0 * c[i]
        squares = 0.0
        for r in range(F.shape[1]):
            sign = float(Y[i, r])
            xi = max(1.0 - sign * F[i, r], 0.0) * abs(sign)
            G[i, r] = -sign * weight * xi
            D[i, r] = weight if xi > 0.0 else 0.0
            squares += xi * xi
        total += c[i] * squares
    return total


@compiled(reorder=True)
def _margins_slope(F, dF, y, c, t):
    slope = 0.0
    curvature = 0.0
    for i in range(F.shape[0]):
        own = np.int64(y[i])
        base = 1.0 - F[i, own]
        first = 0.0
        second = 0.0
        for r in range(F.shape[1]):
            change = dF[i, r] - dF[i, own]
            xi = base + F[i, r] + t * change
            change = change if xi > 0.0 else 0.0
            first += xi * change
            second += change * change
        slope += 2.0 * c[i] * first
        curvature += 2.0 * c[i] * second
    return slope, curvature


@compiled(reorder=True)
def _hinges_slope(F, dF, Y, c, t):
    slope = 0.0
    curvature = 0.0
    for i in range(F.shape[0]):
        first = 0.0
        second = 0.0
        for r in range(F.shape[1]):
            sign = float(Y[i, r])
            change = -sign * dF[i, r]
            xi = 1.0 - sign * F[i, r] + t * change
            change = change if xi > 0.0 else 0.0
            first += xi * change
            second += change * change
        slope += 2.0 * c[i] * first
        curvature += 2.0 * c[i] * second
    return slope, curvature


@compiled(reorder=True)
def _star_product(D, y, U, answer):
    for i in range(U.shape[0]):
        own = np.int64(y[i])
        centre = U[i, own]
        total = U.dtype.type(0.0)
        for r in range(U.shape[1]):
            value = D[i, r] * (U[i, r] - centre)
            answer[i, r] = value
            total += value
        answer[i, own] = -total


@compiled(reorder=True)
def _margins_after(F, y, c, K, steps, losses):
    n, k = F.shape
    for q in range(K.shape[0]):
        total = 0.0
        for i in range(n):
            value = K[q, i]
            own = np.int64(y[i])
            base = 1.0 - (F[i, own] + value * steps[q, own])
            part = 0.0
            for r in range(k):
                xi = max(base + F[i, r] + value * steps[q, r], 0.0) if r != own else 0.0
                part += xi * xi
            total += c[i] * part
        losses[q] = total


@compiled(reorder=True)
def _hinges_after(F, Y, c, K, steps, losses):
    n, k = F.shape
    for q in range(K.shape[0]):
        total = 0.0
        for i in range(n):
            value = K[q, i]
            part = 0.0
            for r in range(k):
                sign = float(Y[i, r])
                xi = max(1.0 - sign * (F[i, r] + value * steps[q, r]), 0.0) * abs(sign)
                part += xi * xi
            total += c[i] * part
        losses[q] = total
