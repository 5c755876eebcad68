"""M3L: max-margin multi-label classification with a label prior R (linear).

Hariharan, Vishwanathan, Varma, "Efficient max-margin multi-label classification with
applications to zero-shot learning", Machine Learning 88, 2012.

With signs y_il, scores f_il = z_l . x_i, boxes c_il >= 0, margins m_il >= 0 and the dual
variables alpha_il:

    primal   P(Z)     = 1/2 tr(R^-1 Z'Z) + sum_il c_il max(0, m_il - y_il f_il) + const
    dual     D(alpha) = <m, alpha> - 1/2 <A, F> + const,   A = Y * alpha,  0 <= alpha <= c
    link     V = X'A,   Z = V R,   F = X Z,   tr(R^-1 Z'Z) = <V, Z> = <A, F>
    gradient g = m - Y * F
    gap      P - D = sum_il [ c_il max(0, g_il) - alpha_il g_il ]

The paper writes alpha/2 for alpha, C/2 for C, 2g for g and Delta for twice the margin. R
enters only through V R, so a singular R needs no inverse. The bias is a constant feature,
regularised and correlated through R like any other weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from maxmargin import priors
from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.multilabel import loops


@dataclass(frozen=True)
class EntryCosts:
    """What the loss asks of every entry: its sign, its box and its margin.

    The box of entry (i, l) is weight[i, l] * upper[side, l] (one column of weights serves
    all labels), its margin is margin[side, l], or margin[i, l] when `tied`; side is 0 for
    y = -1 and 1 for y = +1. Unknown entries (sign 0) have an empty box.
    """

    signs: np.ndarray
    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    tied: bool = False
    constant: float = 0.0

    def flat(self, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
        """Read-only arguments of the compiled loops, in working precision."""
        weight, upper, margin = (
            readonly(np.asarray(a, dtype)) for a in (self.weight, self.upper, self.margin)
        )
        return readonly(self.signs), weight, upper, margin, self.tied

    def boxes(self) -> np.ndarray:
        """All boxes as one matrix."""
        sides = np.where(self.signs > 0, self.upper[1], np.where(self.signs < 0, self.upper[0], 0.0))
        return sides * self.weight

    def margins(self) -> np.ndarray:
        """All margins as one matrix."""
        if self.tied:
            return self.margin
        return np.where(self.signs > 0, self.margin[1], self.margin[0])


def hamming_costs(
    signs: np.ndarray, upper: np.ndarray, weight: np.ndarray, margin: np.ndarray | None = None
) -> EntryCosts:
    """Costs of the (weighted) Hamming loss: margin one unless given per side and label."""
    return EntryCosts(signs, weight, upper, np.ones_like(upper) if margin is None else margin)


def tied_costs(signs: np.ndarray, upper: np.ndarray, weight: np.ndarray, R: np.ndarray) -> EntryCosts:
    """Costs of the loss tied to the prior, Delta(y_i, y) = y_i' R (y_i - y).

    Per label it charges q_i - s_il when the label is right and q_i + s_il when it is wrong,
    with s = Y * (Y R) and q_i = y_i'R y_i / L; so the margin is s and q - s a constant.
    """
    if not signs.all():
        raise ValueError("loss='tied' needs every label entry; y has unknown ones. Use loss='hamming'.")
    Y = signs.astype(np.float64)
    s = Y * (Y @ R)
    if s.min() < 0:
        i, l = np.unravel_index(np.argmin(s), s.shape)
        raise ValueError(
            f"loss='tied' with this prior rewards a wrong label (sample {i}, label {l}); use a prior with "
            "R[l, l] >= sum of |R[l, k]|, for example maxmargin.priors.shrink(R, amount), or loss='hamming'."
        )
    q = s.sum(axis=1, keepdims=True) / Y.shape[1]
    costs = EntryCosts(signs, weight, upper, s, tied=True)
    constant = 0.5 * float(np.sum(costs.boxes() * (q - s)))
    return EntryCosts(signs, weight, upper, s, tied=True, constant=constant)


class Sums(NamedTuple):
    """One number per label: hinge losses, gap, <m, alpha> and S = sum of A."""

    loss: np.ndarray
    gap: np.ndarray
    value: np.ndarray
    S: np.ndarray


@dataclass(frozen=True)
class LinearM3L:
    """The linear problem over rows of X; R is None for independent labels."""

    rows: Rows
    costs: EntryCosts
    R: np.ndarray | None = None
    bias: float = 1.0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Samples, labels, features."""
        return self.rows.shape[0], self.costs.signs.shape[1], self.rows.shape[1]

    @cached_property
    def coupled(self) -> bool:
        """Whether the prior ties any two labels together."""
        return self.R is not None and bool(np.any(self.R[~np.eye(len(self.R), dtype=bool)]))

    @cached_property
    def r(self) -> np.ndarray:
        """Diagonal of R."""
        return np.ones(self.shape[1]) if self.R is None else np.diag(self.R).copy()

    @cached_property
    def q(self) -> np.ndarray:
        """Squared norm of every sample, without the bias."""
        return self.rows.squared_norms()

    @cached_property
    def low_rank(self) -> np.ndarray | None:
        """P (rank x L) with R = P'P when working in its rank is cheaper than in the labels."""
        if self.R is None or not self.coupled:
            return None
        P = priors.factor(self.R)
        return P if 2 * len(P) <= P.shape[1] else None

    def accumulate(self, alpha: np.ndarray, dtype: type = np.float64, n_threads: int = 1) -> np.ndarray:
        """V = X'A, feature-major with the bias last."""
        _, L, D = self.shape
        V: np.ndarray = np.zeros((D + 1, L), dtype)

        def work(part: tuple[np.uint64, np.uint64]) -> None:
            loops.accumulate(
                self.rows.flat, dtype(self.bias), readonly(alpha), readonly(self.costs.signs), *part, V
            )

        run_threads(work, self.label_ranges(n_threads), n_threads)
        return V

    def couple(self, V: np.ndarray) -> np.ndarray:
        """Z = V R (V itself for independent labels)."""
        if self.R is None:
            return V
        return (
            V @ self.R.astype(V.dtype) if self.coupled and self.R is not None else V * self.r.astype(V.dtype)
        )

    def solution(
        self,
        alpha: np.ndarray,
        u: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> tuple[np.ndarray, Certificate]:
        """Weights Z of a dual solution and its certificate, recomputed in float64.

        `u` is the bias row of V when the solver carries its own.
        """
        n, L, _ = self.shape
        V = self.accumulate(alpha, n_threads=n_threads)
        Z = self.couple(V)
        primal_norm = dual_norm = float(np.vdot(V, Z))
        if u is not None:
            bias = u.astype(np.float64)
            primal_norm += float(bias @ self.couple(bias) - V[-1] @ Z[-1])
            Z[-1] = self.couple(bias)
        if self.rows.data.dtype != np.float64 and not self.coupled:
            # The weights as a model stores them. (With tied labels the norm would need the inverse of R.)
            Z = Z.astype(self.rows.data.dtype).astype(np.float64)
            primal_norm = float(np.einsum("dl,dl->l", Z, Z) @ (1 / np.where(self.r > 0, self.r, 1.0)))
        sums = self.measure(alpha, Z, None, np.empty((n, L), np.bool_), n_threads)
        constant = self.costs.constant
        return Z, Certificate(
            0.5 * primal_norm + float(sums.loss.sum()) + constant,
            float(sums.value.sum()) - 0.5 * dual_norm + constant,
        )

    def warm(self, alpha: np.ndarray, scale: float) -> np.ndarray:
        """A feasible start from the solution for another C: scaled, then cut to the boxes."""
        return np.clip(alpha * scale, 0, self.costs.boxes())

    def closed_form_scale(self) -> float:
        """Largest factor on all boxes for which alpha = box is optimal (section 12.7).

        With every alpha at its box, g = m - Y*F and F grows in proportion to the boxes; the
        solution keeps this form until the first gradient reaches zero.
        """
        boxes = self.costs.boxes()
        Z = self.couple(self.accumulate(boxes))
        X = self.rows.matrix
        scores = X @ Z[:-1] + self.bias * Z[-1]
        pull = self.costs.signs * scores
        limited = (pull > 0) & (boxes > 0)
        if not limited.any():
            return np.inf
        return float(np.min(self.costs.margins()[limited] / pull[limited]))

    def label_ranges(self, n_parts: int) -> list[tuple[np.uint64, np.uint64]]:
        """Cut the labels into contiguous ranges that share no cache line (16 floats)."""
        L = self.shape[1]
        cuts = sorted({min(L, 16 * round(L * part / (16 * n_parts))) for part in range(n_parts)} | {0, L})
        return [(np.uint64(lo), np.uint64(hi)) for lo, hi in pairwise(cuts)]

    def measure(
        self,
        alpha: np.ndarray,
        T: np.ndarray,
        G: np.ndarray | None,
        flags: np.ndarray,
        n_threads: int,
        quiet: float = 0.0,
    ) -> Sums:
        """Sums per label for weights T (or T G); marks entries with a gap above `quiet`."""
        n, L, _ = self.shape
        dtype = T.dtype.type
        costs = self.costs.flat(dtype)
        mix = readonly(np.empty((0, 0), dtype) if G is None else G)
        bounds = np.linspace(0, n, n_threads + 1).astype(np.int64)

        def work(part: tuple[np.int64, np.int64]) -> np.ndarray:
            sums = np.zeros((4, L))
            loops.measure(
                self.rows.flat, dtype(self.bias), *part, readonly(alpha), *costs,
                readonly(T), mix, G is not None, dtype(quiet), flags, *sums,
            )  # fmt: skip
            return sums

        parts = list(pairwise(bounds))
        return Sums(*sum(run_threads(work, parts, n_threads), np.zeros((4, L))))
