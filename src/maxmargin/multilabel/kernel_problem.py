"""M3L with a kernel: the problem of `problems.m3l` with f_l(x) = sum_i k(x, x_i) (A R)_il.

With A = Y * alpha, T = Y * margins and the residuals E = T - F:

    link     F = K A R
    primal   P = 1/2 <A, F> + sum_il c_il max(0, m_il - y_il f_il) + const
    dual     D = <T, A> - 1/2 <A, F> + const,   lo <= A <= hi
    gap      P - D = sum_il [ (hi - A) max(E, 0) + (A - lo) max(-E, 0) ]

lo and hi are the box [0, c_il] times the sign y_il. The solvers keep A, called B there, and
E label-major (L x N), so that one label is one contiguous vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from maxmargin import priors
from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate

if TYPE_CHECKING:
    from maxmargin.multilabel.problem import EntryCosts


@dataclass(frozen=True)
class KernelM3L:
    """The kernelised problem; R is None for independent labels."""

    K: KernelMatrix
    costs: EntryCosts
    R: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Samples, labels."""
        return self.costs.signs.shape

    @cached_property
    def prior(self) -> np.ndarray:
        """R, the identity when none was given."""
        return np.eye(self.shape[1]) if self.R is None else self.R

    @cached_property
    def coupled(self) -> bool:
        """Whether the prior ties any two labels together."""
        return bool(np.any(self.prior[~np.eye(self.shape[1], dtype=bool)]))

    @cached_property
    def low_rank(self) -> np.ndarray | None:
        """P (rank x L) with R = P'P when working in its rank is cheaper than in the labels."""
        if not self.coupled:
            return None
        P = priors.factor(self.prior)
        return P if 2 * len(P) <= P.shape[1] else None

    @cached_property
    def target(self) -> np.ndarray:
        """T = Y * margins, label-major."""
        return np.ascontiguousarray((self.costs.signs * self.costs.margins()).T)

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """lo and hi, label-major."""
        box = np.ascontiguousarray((self.costs.signs * self.costs.boxes()).T)
        return np.minimum(box, 0), np.maximum(box, 0)

    @property
    def constant(self) -> float:
        """The part of both objectives that no solution changes."""
        return self.costs.constant

    def feasible(self, B: np.ndarray) -> np.ndarray:
        """B in float64, with what stands at a rounded bound put exactly on it."""
        lo, hi = self.bounds
        at_lo, at_hi = (np.equal(B, bound.astype(B.dtype)) for bound in (lo, hi))
        return np.where(at_hi, hi, np.where(at_lo, lo, np.clip(B.astype(np.float64), lo, hi)))

    def scores(self, B: np.ndarray) -> np.ndarray:
        """F of all training samples, label-major, recomputed in float64."""
        return np.ascontiguousarray((self.K.times(np.ascontiguousarray(B.T)) @ self.prior).T)

    def certificate(self, B: np.ndarray, F: np.ndarray) -> Certificate:
        """Both objectives of a feasible B whose scores are F."""
        lo, hi = self.bounds
        norm = 0.5 * float(np.vdot(B, F))
        E = self.target - F
        loss = float(np.sum(np.maximum(hi * E, lo * E)))
        value = float(np.vdot(self.target, B))
        return Certificate(norm + loss + self.constant, value - norm + self.constant)

    def dual_coef(self, B: np.ndarray) -> np.ndarray:
        """Weight of every training sample in the score of every label, A R (N x L)."""
        return B.T @ self.prior

    def coefficients(self, alpha: np.ndarray) -> np.ndarray:
        """B of given dual variables (N x L)."""
        return np.ascontiguousarray((self.costs.signs * alpha).T)

    def alpha(self, B: np.ndarray) -> np.ndarray:
        """Dual variables (N x L) of a given B."""
        return np.abs(B).T

    def warm(self, alpha: np.ndarray, scale: float) -> np.ndarray:
        """A feasible start from the solution for another C: scaled, then cut to the boxes."""
        return np.clip(alpha * scale, 0, self.costs.boxes())

    def closed_form_scale(self) -> float:
        """Largest factor on all boxes for which alpha = box is optimal."""
        boxes = self.costs.boxes()
        pull = self.costs.signs * self.scores(self.coefficients(boxes)).T
        limited = (pull > 0) & (boxes > 0)
        if not limited.any():
            return np.inf
        return float(np.min(self.costs.margins()[limited] / pull[limited]))

    def precise(self) -> KernelM3L:
        """The same problem with kernel values kept in float64."""
        K = self.K
        return replace(self, K=KernelMatrix(K.kernel, K.X, K.cache_size, np.float64))
