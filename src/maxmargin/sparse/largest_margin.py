"""The squared Crammer-Singer loss, the squared largest margin of every sample, and a smooth copy below it.

    sum_i c_i max(0, max_{r != y_i} M_ir)^2,   M_ir = 1 + F_ir - F_{i,y_i}

The supplement of the paper treats it like the squared Weston-Watkins loss, but it has kinks where two classes
tie, and at the optimum many do. So Newton's method works on the copy with e > 0 in

    c_i max over b >= 0 of  2 b . M_i - (sum_r b_r)^2 - e |b|^2  =  c_i (s_i^2 + e |b_i|^2),

    s_i = max over sets S of classes of  sum_S M_ir / (e + |S|),   b_ir = max(0, M_ir - s_i) / e.

e = 0 is the loss itself. A basis grows at a large e; its last coefficients are optimised at falling e, down
to `least`. (With a small e the copy is as kinked as the loss, and Newton steps are short.) The best b at e =
0 costs e |b|^2 <= e (sum b)^2 more here, so the copy is at most the fraction e below the loss;
`Expansion.excess` is the difference. The copy is piecewise quadratic with the Hessian

    2 c / e (I_S - 1_S 1_S' / n) + 2 c / (n (e + n)) 1_S 1_S',   S = {r: b_r > 0},  n = |S|

in M. Its multipliers a = 2 c b give the dual of the full model, as for the other losses.
"""

from __future__ import annotations

import numpy as np

from maxmargin.core.linalg import root_of_slope
from maxmargin.sparse.loss_loops import DenseCurvature, Expansion, scaled_bound


class SquaredLargestMargin:
    """The loss above; it needs k^2 numbers per sample.

    Parameters
    ----------
    y : int array of shape (l,)
        Class codes 0..k-1.
    c : float array of shape (l,)
        Weight of every sample, C included.
    k : int
        Number of classes.
    least : float
        Smallest e.
    smoothing : float, default=0.1
        The e of this copy.
    """

    relative = True

    def __init__(self, y: np.ndarray, c: np.ndarray, k: int, least: float, smoothing: float = 0.1) -> None:
        self.y, self.c, self.n_columns = y, c, k
        self.least, self.smoothing = least, max(smoothing, least)
        self._own = np.arange(len(y)), y

    def less_smoothed(self) -> SquaredLargestMargin | None:
        """Return a copy closer to the loss, or None if this is the closest one."""
        if self.smoothing <= self.least:
            return None
        return SquaredLargestMargin(self.y, self.c, self.n_columns, self.least, self.smoothing / 4)

    def at(self, F: np.ndarray) -> Expansion:
        M = self._margins(F)
        s, b = self._maximiser(M)
        value = self._value(s, b)
        G = 2 * self.c[:, None] * b
        G[self._own] = -G.sum(axis=1)
        loss = float(self.c @ np.maximum(M.max(axis=1), 0.0) ** 2)
        return Expansion(value, G, DenseCurvature(self._hessians(b > 0)), max(loss - value, 0.0))

    def after(self, F: np.ndarray, K: np.ndarray, steps: np.ndarray) -> np.ndarray:
        candidates = (F + np.outer(k, step) for k, step in zip(K, steps, strict=True))
        return np.array([self._value(*self._maximiser(self._margins(after))) for after in candidates])

    def step(self, F: np.ndarray, dF: np.ndarray, q1: float, q2: float, longest: float) -> float:
        M, dM = self._margins(F), dF - dF[self._own][:, None]
        dM[self._own] = 0.0

        def derivatives(t: float) -> tuple[float, float]:
            _, b = self._maximiser(M + t * dM)
            on = b > 0
            n, total = on.sum(axis=1), np.einsum("ir,ir->i", on, dM)
            some = np.maximum(n, 1)
            deviation = np.einsum("ir,ir->i", on, (dM - (total / some)[:, None]) ** 2)
            bend = deviation / self.smoothing + total**2 / (some * (self.smoothing + some))
            return 2 * float(self.c @ np.einsum("ir,ir->i", b, dM)), 2 * float(self.c @ bend)

        return root_of_slope(derivatives, q1, q2, longest)

    def full_bound(self, at: Expansion, quadratic: float) -> float:
        some = self.c > 0
        totals = -at.gradient[self._own][some]
        return scaled_bound(float(totals.sum()), float(np.sum(totals**2 / (4 * self.c[some]))), quadratic)

    def _margins(self, F: np.ndarray) -> np.ndarray:
        """Return M, with minus infinity for the own class."""
        M = 1.0 + F - F[self._own][:, None]
        M[self._own] = -np.inf
        return M

    def _maximiser(self, M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return s and b of every sample; the best set S contains the largest few margins."""
        e = self.smoothing
        sums = np.cumsum(-np.sort(-M, axis=1)[:, :-1], axis=1)
        s = np.maximum((sums / (e + np.arange(1, sums.shape[1] + 1))).max(axis=1), 0.0)
        return s, np.maximum(M - s[:, None], 0.0) / e

    def _value(self, s: np.ndarray, b: np.ndarray) -> float:
        return float(self.c @ (s**2 + self.smoothing * np.einsum("ir,ir->i", b, b)))

    def _hessians(self, on: np.ndarray) -> np.ndarray:
        """Return D_i in F: the Hessian in M on S, and its products with the own class."""
        n, e = on.sum(axis=1), self.smoothing
        D = np.zeros((*on.shape, on.shape[1]))
        for i in np.flatnonzero(n):
            S = np.flatnonzero(on[i])
            apart = np.eye(n[i]) - 1.0 / n[i]
            D[i][np.ix_(S, S)] = 2 * self.c[i] * (apart / e + 1.0 / (n[i] * (e + n[i])))
            D[i, S, self.y[i]] = D[i, self.y[i], S] = -2 * self.c[i] / (e + n[i])
            D[i, self.y[i], self.y[i]] = 2 * self.c[i] * n[i] / (e + n[i])
        return D
