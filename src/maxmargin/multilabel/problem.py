"""M3L: max-margin multi-label classification with a label prior R, linear or with a kernel.

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

With a kernel F = K A R and nothing else changes; the bias is a constant added to K. There
the coefficients A, called B, the residuals E = Y * m - F and the bounds lo <= B <= hi (the box
[0, c_il] times the sign y_il) are kept label-major (L x N), one label one contiguous vector:

    gap      P - D = sum_il [ (hi - B) max(E, 0) + (B - lo) max(-E, 0) ]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import _check_sample_weight, check_array

from maxmargin import priors
from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate, squared_norm
from maxmargin.core.rows import Rows, check_digits, readonly
from maxmargin.core.threads import aligned_empty, aligned_zeros, ranges, run_threads
from maxmargin.edge.labels import LabelSpace
from maxmargin.multilabel import loops

# Samples measured at a time by one thread (and rows of weights multiplied by R), and most such chunks.
CHUNK, MOST_CHUNKS = 1024, 16
# Condition of R up to which products with it keep twelve digits.
WELL_CONDITIONED = 1e4
# Size of a row whose square, summed over many, is still finite in single precision.
LARGEST_SINGLE = 1e15
# From this number of columns on the weights of a label do not fit into the first-level cache.
WIDE = 4096
# Number of most frequent columns whose weights of all labels fit into the second-level cache; on RCV1 twice
# as many are as good.
FREQUENT = 2048
# Samples times labels up to which NumPy takes milliseconds for sums over dense rows.
FEW_ENTRIES = 50_000
# Most bytes of a dense matrix of a solver for few features.
LARGEST_DENSE = 2**30


@dataclass(frozen=True)
class EntryCosts:
    """The sign, the box and the margin of every entry, for a loss that is a sum over labels, (5).

    The box of entry (i, l) is weight[i, l] * upper[side, l] (one column of weights serves all labels). Its
    margin is margin[side, l], or margin[i, l] if `per_entry_margin`. The side is 0 for y = -1 and 1 for y =
    +1. Unknown entries (sign 0) have an empty box.
    """

    signs: np.ndarray
    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    per_entry_margin: bool = False
    constant: float = 0.0

    def flat(self, dtype: type) -> loops.EntryArrays:
        """Read-only arguments of the compiled loops, in working precision.

        In single precision boxes are a few roundings smaller, so that no product of weight and upper is
        larger than its box in double precision.
        """
        inner = self.upper if dtype == np.float64 else self.upper * (1 - 4 * float(np.finfo(dtype).eps))
        weight, upper, margin = (readonly(np.asarray(a, dtype)) for a in (self.weight, inner, self.margin))
        return loops.EntryArrays(readonly(self.signs), weight, upper, margin, self.per_entry_margin)

    def boxes(self, dtype: type = np.float64) -> np.ndarray:
        """All boxes as one matrix, rounded as in the loops."""
        signs, weight, upper, *_ = self.flat(dtype)
        sides = np.where(signs > 0, upper[1], np.where(signs < 0, upper[0], dtype(0)))
        return sides * weight

    def margins(self) -> np.ndarray:
        """All margins as one matrix."""
        if self.per_entry_margin:
            return self.margin
        return np.where(self.signs > 0, self.margin[1], self.margin[0])


def hinge_costs(
    signs: np.ndarray, upper: np.ndarray, weight: np.ndarray, margin: np.ndarray | None = None
) -> EntryCosts:
    """Costs of the hinge, a bound on the (weighted) Hamming loss (6); the default margin is one."""
    return EntryCosts(signs, weight, upper, np.ones_like(upper) if margin is None else margin)


def tied_costs(signs: np.ndarray, upper: np.ndarray, weight: np.ndarray, R: np.ndarray) -> EntryCosts:
    """Costs of the loss Delta(y_i, y) = y_i' R (y_i - y), section 3.2 of the paper.

    Per label the loss is q_i - s_il if the label is right and q_i + s_il if it is wrong, with s = Y * (Y R)
    and q_i = y_i'R y_i / L. So the margin is s, and q - s is a constant.
    """
    if not signs.all():
        raise ValueError("loss='tied' needs every entry of y, but some are unknown; use loss='hinge'.")
    Y = signs.astype(np.float64)
    s = Y * (Y @ R)
    if s.min() < 0:
        i, l = np.unravel_index(np.argmin(s), s.shape)
        raise ValueError(
            f"loss='tied' with this prior rewards a wrong label (sample {i}, label {l}); use a prior with "
            "R[l, l] >= sum of |R[l, k]|, for example maxmargin.priors.shrink(R, amount), or loss='hinge'."
        )
    q = s.sum(axis=1, keepdims=True) / Y.shape[1]
    costs = EntryCosts(signs, weight, upper, s, per_entry_margin=True)
    return replace(costs, constant=0.5 * float(np.sum(costs.boxes() * (q - s))))


def given_costs(signs: np.ndarray, upper: np.ndarray, weight: np.ndarray, label_cost: Any) -> EntryCosts:
    """Costs of any loss that is a sum over labels, (5), from the costs of wrong and right predictions.

    With costs a (right) and b (wrong) in units of the Hamming loss, the hinge of an entry is max(a, b - y f)
    = a + max(0, b - a - y f), the constraints (13)-(14): b - a is the margin and a is a constant.
    """
    name = "label_cost"
    given = check_array(label_cost, dtype=np.float64, input_name=name, allow_nd=True)
    if given.shape not in (signs.shape, (*signs.shape, 2)):
        n, L = signs.shape
        raise ValueError(
            f"label_cost has shape {given.shape}; pass the cost of a wrong prediction of each entry of y, "
            f"({n}, {L}), or the costs of a right and a wrong one, ({n}, {L}, 2)."
        )
    right, wrong = (given[..., 0], given[..., 1]) if given.ndim == 3 else (np.zeros(signs.shape), given)
    margin = np.ascontiguousarray(wrong - right)
    known = signs != 0
    if (margin[known] < 0).any():
        i, l = np.argwhere(known & (margin < 0))[0]
        raise ValueError(
            f"label_cost makes a wrong prediction cheaper than a right one (sample {i}, label {l}); "
            "its cost must be at least as high."
        )
    costs = EntryCosts(signs, weight, upper, margin, per_entry_margin=True)
    return replace(costs, constant=float(np.sum(costs.boxes() * right)))


def entry_weights(sample_weight: Any, signs: np.ndarray) -> np.ndarray:
    """Sample weights as a column, or entry weights as a matrix; ones when None."""
    n, L = signs.shape
    if sample_weight is None:
        return np.ones((n, 1))
    if np.asarray(sample_weight).ndim == 2:
        weight = check_array(sample_weight, dtype=np.float64, input_name="sample_weight")
        if weight.shape != (n, L):
            raise ValueError(
                f"sample_weight has shape {weight.shape}; pass one weight per sample ({n},) or one per "
                f"entry of y ({n}, {L})."
            )
    else:
        weight = _check_sample_weight(sample_weight, signs, dtype=np.float64)[:, None]
    if (weight < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`; weights must be nonnegative.")
    if not weight.any():
        raise ValueError("sample_weight is zero everywhere; at least one weight must be positive.")
    return weight


def side_weights(class_weight: Any, space: LabelSpace, totals: Callable[[], np.ndarray]) -> np.ndarray:
    """Weights of negative (row 0) and positive (row 1) entries of every label.

    `totals` returns the sums of sample weights on both sides; it is called for "balanced" only.
    """
    L = space.n_columns
    if class_weight is None:
        return np.ones((2, L))
    if isinstance(class_weight, str):
        sides = totals()
        return np.divide(sides.sum(axis=0), 2 * sides, out=np.ones((2, L)), where=sides > 0)
    if isinstance(class_weight, dict):
        if space.kind == "binary":
            _check_names(class_weight, space, "class_weight")
            sides = np.array([[float(class_weight.get(name, 1.0))] for name in space.classes.tolist()])
            return _nonnegative(sides, "class_weight")
        sides = np.ones((2, L))
        sides[1] = label_numbers(class_weight, space, "class_weight", default=1.0)
        return sides
    sides = check_array(class_weight, dtype=np.float64, input_name="class_weight").T
    if sides.shape != (2, L):
        raise ValueError(f"class_weight must have shape ({L}, 2): the weights of 'off' and 'on' per label.")
    return _nonnegative(sides, "class_weight")


def side_totals(signs: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sums of weights of the negative and positive entries of every label."""
    return np.vstack([((signs < 0) * weight).sum(axis=0), ((signs > 0) * weight).sum(axis=0)])


def label_numbers(values: Any, space: LabelSpace, name: str, default: float) -> np.ndarray:
    """One nonnegative number per label from None, a number, a dict by label, or an array."""
    L = space.n_columns
    if values is None:
        return np.full(L, default)
    if isinstance(values, dict):
        _check_names(values, space, name)
        names = space.classes[1:] if space.kind == "binary" else space.classes
        values = [values.get(label, default) for label in names.tolist()]
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim == 0:
        numbers = np.full(L, float(numbers))
    if numbers.shape != (L,):
        raise ValueError(f"{name} must hold one number per label ({L}). Got shape {numbers.shape} instead.")
    return _nonnegative(numbers, name)


def _nonnegative(numbers: np.ndarray, name: str) -> np.ndarray:
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise ValueError(f"{name} must hold finite nonnegative numbers.")
    return numbers


def _check_names(values: dict, space: LabelSpace, name: str) -> None:
    unknown = [key for key in values if key not in space.classes.tolist()]
    if unknown:
        raise ValueError(
            f"{name} contains {unknown[0]!r}, which is not a label; labels are {space.classes[:5]}..."
        )


def used_columns(X: Any) -> tuple[Any, np.ndarray | None]:
    """CSR rows without their empty columns, and the numbers of the other columns, if most columns are empty.

    Otherwise X itself and None.
    """
    if not sp.issparse(X) or 2 * X.nnz >= X.shape[1]:
        return X, None
    columns, places = np.unique(X.indices, return_inverse=True)
    places = places.astype(np.int32)
    return sp.csr_array((X.data, places, X.indptr), shape=(X.shape[0], len(columns))), columns


def frequent_first(rows: Rows) -> tuple[Rows, np.ndarray | None]:
    """Rows with columns sorted by falling frequency, without empty ones, and their former numbers.

    Frequently used weights then lie side by side and stay in cache. Returns the rows themselves and None if
    columns are few and most of them are used.
    """
    if rows.dense:
        return rows, None
    if rows.shape[1] < WIDE and 2 * np.count_nonzero(np.bincount(rows.indices)) >= rows.shape[1]:
        return rows, None
    if 2 * len(rows.indices) < rows.shape[1]:
        used, places = np.unique(rows.indices, return_inverse=True)
        indices = readonly(places.astype(np.uint32))
    else:
        used, indices = np.arange(rows.shape[1]), rows.indices
    counts = np.bincount(indices, minlength=len(used))
    most = int(counts.max(initial=0))
    # Numbers of 16 bits are sorted six times as fast.
    rareness = (most - counts).astype(np.uint16 if most < 2**16 else np.int64)
    order = np.argsort(rareness, kind="stable")[: np.count_nonzero(counts)]
    places = np.zeros(len(used), np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    answer = np.take(places, indices, out=aligned_empty(len(indices), np.uint32), mode="clip")
    return rows.renumbered(answer, len(order)), used[order]


def shrinking_bounds(R: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (44), (45) beyond which a variable at its bound is skipped in the next pass.

    `low` and `high` are the extreme projected gradients of each label in the last pass. A unit of gradient of
    label k moves label l by |R_kl| / R_kk, so lb_l = min_k |R_kl| low_k / R_kk and ub_l = max_k |R_kl| high_k
    / R_kk. A bound of zero is replaced by an infinite one.
    """
    push = np.abs(R) / np.diag(R)[:, None]
    lower = np.min(push * low[:, None], axis=0)
    upper = np.max(push * high[:, None], axis=0)
    return np.where(lower < 0, lower, -np.inf), np.where(upper > 0, upper, np.inf)


class Solution(NamedTuple):
    """The result of a solver: dual variables (N x L) and the weights of the certificate.

    The weights are Z, feature-major with the bias last ((D+1) x L), or with a kernel those of the training
    samples, A R (N x L). `alpha` may be a view of an array that the next epoch changes.
    """

    alpha: np.ndarray
    weights: np.ndarray


class Sums(NamedTuple):
    """One number per label: hinge losses, gap, <m, alpha> and S = sum of A."""

    loss: np.ndarray
    gap: np.ndarray
    value: np.ndarray
    S: np.ndarray


class M3L(ABC):
    """What the linear and the kernel problem share; R is None for independent labels."""

    costs: EntryCosts
    R: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int]:
        """Samples, labels."""
        n, L = self.costs.signs.shape
        return n, L

    @cached_property
    def coupled(self) -> bool:
        """Whether the prior couples any two labels."""
        return self.R is not None and bool(np.any(self.R[~np.eye(len(self.R), dtype=bool)]))

    @cached_property
    def r(self) -> np.ndarray:
        """Diagonal of R."""
        return np.ones(self.shape[1]) if self.R is None else np.diag(self.R).copy()

    @cached_property
    def prior(self) -> np.ndarray:
        """R, the identity when none was given."""
        return np.eye(self.shape[1]) if self.R is None else self.R

    @cached_property
    def factor(self) -> np.ndarray:
        """P (rank x L) with R = P'P."""
        return priors.factor(self.prior)

    @cached_property
    def condition(self) -> float:
        """Largest eigenvalue of R, in units of the smallest."""
        sizes = np.linalg.eigvalsh(self.prior)
        return float(sizes[-1] / sizes[0]) if sizes[0] > 0 else math.inf

    @cached_property
    def ill_conditioned(self) -> bool:
        """Whether products with R may lose more than four digits to cancellation."""
        return self.coupled and self.condition > WELL_CONDITIONED

    @cached_property
    def low_rank(self) -> np.ndarray | None:
        """P (rank x L) with R = P'P when working in its rank is cheaper than in the labels."""
        if not self.coupled:
            return None
        P = self.factor
        return P if 2 * len(P) <= P.shape[1] else None

    @abstractmethod
    def max_norm(self) -> float:
        """Largest norm of a row, with the bias, or the square root of a kernel's diagonal."""

    def check_sizes(self) -> None:
        """Refuse numbers for which |X'A|^2 could overflow."""
        mass = float(self.costs.weight.sum(axis=0).max()) * float(self.costs.upper.max())
        check_digits(self.max_norm(), mass, math.sqrt(self.r.max()))

    @abstractmethod
    def training_scores(self, alpha: np.ndarray) -> np.ndarray:
        """F (N x L) of given dual variables."""

    def warm(self, alpha: np.ndarray, scale: float) -> np.ndarray:
        """A feasible start from the solution for another C: scaled, then clipped to the boxes."""
        return np.clip(alpha * scale, 0, self.costs.boxes())

    def closed_form_scale(self) -> float:
        """Largest factor on all boxes for which alpha = box is optimal.

        With every alpha at its box, g = m - Y*F and F grows in proportion to the boxes; the
        solution keeps this form until the first gradient reaches zero.
        """
        boxes = self.costs.boxes()
        own_scores = self.costs.signs * self.training_scores(boxes)
        limited = (own_scores > 0) & (boxes > 0)
        if not limited.any():
            return np.inf
        return float(np.min(self.costs.margins()[limited] / own_scores[limited]))


@dataclass(frozen=True)
class LinearM3L(M3L):
    """The linear problem over rows of X.

    `columns` are the numbers of the features in the user's X, None for all. `n_threads` threads share
    computations that are made once per fit.
    """

    rows: Rows
    costs: EntryCosts
    R: np.ndarray | None = None
    bias: float = 1.0

    columns: np.ndarray | None = None
    n_threads: int = 1

    def max_norm(self) -> float:
        return math.sqrt(float(self.q.max(initial=self.bias**2)))

    @property
    def n_features(self) -> int:
        return self.rows.shape[1]

    @cached_property
    def q(self) -> np.ndarray:
        """Squared norm of every sample, without the bias."""
        return self.rows.squared_norms(self.n_threads)

    @cached_property
    def single_rows(self) -> Rows:
        """The rows in single precision if they do not overflow; dense rows may be too large for a copy.

        Rare features come last in their rows, so that the processor waits for all of them together: on RCV1 a
        sweep or pass takes a tenth less time.
        """
        rows, n_threads = self.rows, self.n_threads
        if rows.dense or self.max_norm() > LARGEST_SINGLE:
            return rows
        indices = aligned_empty(len(rows.indices), rows.indices.dtype)
        values = aligned_empty(len(rows.data), np.float32)

        def copy(part: tuple[int, int]) -> None:
            loops.rare_last(rows.flat, np.uint32(FREQUENT), *part, indices, values)

        run_threads(copy, ranges(rows.shape[0], n_threads), n_threads)
        return rows.renumbered(indices, rows.shape[1]).with_values(values)

    def rows_for(self, dtype: type) -> Rows:
        """The rows for loops that work in this precision."""
        return self.single_rows if dtype == np.float32 else self.rows

    def accumulate(
        self,
        alpha: np.ndarray,
        dtype: type = np.float64,
        n_threads: int = 1,
        padded: bool = False,
        buffer: np.ndarray | None = None,
    ) -> np.ndarray:
        """V = X'A, feature-major with the bias last; `padded` with zero columns to whole cache lines.

        V uses the memory of `buffer` if that is given and large enough.
        """
        V = aligned_zeros(self.n_features + 1, self.shape[1], dtype, 16 if padded else 1, n_threads, buffer)
        if self._is_small():
            V[:-1, : self.shape[1]] = self.rows.matrix.T @ (self.costs.signs * alpha)
            V[-1, : self.shape[1]] = self.bias * (self.costs.signs * alpha).sum(axis=0)
            return V
        rows, signs = self.rows_for(dtype).flat, readonly(self.costs.signs)

        def work(part: tuple[int, int]) -> None:
            loops.accumulate(rows, dtype(self.bias), readonly(alpha), signs, *part, V)

        run_threads(work, ranges(loops.PARTS, n_threads), n_threads)
        return V

    def couple(self, V: np.ndarray) -> np.ndarray:
        """Z = V R, the optimality condition (23) (V itself for independent labels); padding stays zero."""
        if self.R is None:
            return V
        idle = 0, V.shape[-1] - len(self.r)
        if self.coupled:
            return V @ np.pad(self.R.astype(V.dtype), idle)
        return V * np.pad(self.r.astype(V.dtype), idle)

    def training_scores(self, alpha: np.ndarray) -> np.ndarray:
        Z = self.couple(self.accumulate(alpha))
        return self.rows.matrix @ Z[:-1] + self.bias * Z[-1]

    def _weights_and_norms(self, V: np.ndarray, n_threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Z = V R, written over V, and the part of every row in tr(R V'V).

        Both use V P' if R is ill-conditioned: the part of V that R removes is gone before it can cancel.
        Otherwise Z costs one product, and rounding changes the norm by eps times the condition of R.
        """
        norms = np.empty(len(V))
        factor = self.factor if self.ill_conditioned else None

        def work(first: int) -> None:
            rows = slice(first, first + CHUNK)
            part = V[rows, : self.shape[1]]
            if factor is not None:
                U = part @ factor.T
                Z, norms[rows] = U @ factor, np.einsum("dk,dk->d", U, U)
            else:
                Z = self.couple(part)
                norms[rows] = np.einsum("dl,dl->d", part, Z)
            if Z is not part:
                part[:] = Z

        run_threads(work, range(0, len(V), CHUNK), n_threads)
        return V, norms

    def evaluate(
        self,
        alpha: np.ndarray,
        bias_row: np.ndarray | None = None,
        n_threads: int = 1,
        weights: np.ndarray | None = None,
        buffer: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Certificate]:
        """Weights Z of dual variables and their certificate, recomputed in float64.

        The primal objective is (12)-(14), the dual one (25). If the solver has weights of its own, the primal
        objective is that of these: `bias_row` is the bias row of V, `weights` are all of them as U with Z = U
        P. `buffer` is memory that may be overwritten.
        """
        L = self.shape[1]
        V = self.accumulate(alpha, n_threads=n_threads, padded=True, buffer=buffer)
        Z, norms = self._weights_and_norms(V, n_threads)
        primal_norm = dual_norm = float(norms.sum())
        if weights is not None:
            Z = weights @ self.factor if self.coupled else weights * np.sqrt(self.r)
            primal_norm = squared_norm(weights)
        elif bias_row is not None:
            Z[-1:, :L], norms[-1:] = self._weights_and_norms(bias_row[None].astype(np.float64))
            primal_norm = float(norms.sum())
        sums = self.measure(alpha, Z, None, None, n_threads)
        constant = self.costs.constant
        return Z[:, :L], Certificate(
            0.5 * primal_norm + float(sums.loss.sum()) + constant,
            float(sums.value.sum()) - 0.5 * dual_norm + constant,
        )

    def check_memory(self, solver: str, cells: int) -> None:
        """Refuse a dense matrix of `cells` float64 numbers that is too large."""
        if 8 * cells > LARGEST_DENSE:
            raise ValueError(
                f"solver={solver!r} is for few features: with {self.n_features:,} it would need a dense "
                f"matrix of {8 * cells / 2**30:,.1f} GiB; use solver='auto'."
            )

    def measure(
        self,
        alpha: np.ndarray,
        T: np.ndarray,
        G: np.ndarray | None,
        flags: np.ndarray | None,
        n_threads: int,
        negligible: float = 0.0,
    ) -> Sums:
        """Sums per label for weights T (or T G); `flags` marks the entries with a gap above `negligible`."""
        n, L = self.shape
        dtype = T.dtype.type
        if self._is_small():
            return self._sums(alpha, T if G is None else T[:, : len(G)] @ G, flags, negligible)
        rows, costs = self.rows_for(dtype).flat, self.costs.flat(dtype)
        # Padded, so that its rows start on cache lines.
        mix = np.empty((0, 0), dtype) if G is None else np.pad(G, ((0, 0), (0, -G.shape[1] % 16)))
        scoring = loops.Scoring(readonly(T), readonly(mix), dtype(self.bias))
        marks = np.empty((0, 0), np.bool_) if flags is None else flags
        # Chunks that do not depend on the number of threads, so that the sums do not either.
        bounds = np.linspace(0, n, min(-(-n // CHUNK), MOST_CHUNKS) + 1).astype(np.int64)

        def work(part: tuple[np.int64, np.int64]) -> np.ndarray:
            sums = np.zeros((4, L))
            loops.measure(rows, costs, scoring, *part, readonly(alpha), dtype(negligible), marks, sums)
            return sums

        return Sums(*sum(run_threads(work, list(pairwise(bounds)), n_threads), np.zeros((4, L))))

    def _is_small(self) -> bool:
        """Whether NumPy takes only milliseconds, so that no loop has to be compiled."""
        return self.rows.dense and math.prod(self.shape) <= FEW_ENTRIES

    def _sums(self, alpha: np.ndarray, W: np.ndarray, flags: np.ndarray | None, negligible: float) -> Sums:
        """`measure` by NumPy, in float64."""
        costs, real = self.costs, W.dtype.type
        W = W[:, : self.shape[1]].astype(np.float64)
        boxes, a = costs.boxes(real).astype(np.float64), alpha.astype(np.float64)
        m = np.where(costs.signs == 0, 0.0, costs.margins())
        g = m - costs.signs * (self.rows.matrix @ W[:-1] + self.bias * W[-1])
        hinge = np.maximum(g, 0.0)
        # As two terms, one of which is zero: an entry at its bound has no rounding error.
        gap = (boxes - a) * hinge + a * np.maximum(-g, 0.0)
        if flags is not None:
            np.greater(gap, negligible, out=flags)
        return Sums(*(part.sum(axis=0) for part in (boxes * hinge, gap, m * a, costs.signs * a)))


@dataclass(frozen=True)
class KernelM3L(M3L):
    """The problem on a kernel matrix; `linear` is the same problem on rows if the kernel is linear."""

    K: KernelMatrix
    costs: EntryCosts
    R: np.ndarray | None = None
    linear: LinearM3L | None = None

    def max_norm(self) -> float:
        return math.sqrt(float(np.max(self.K.diagonal, initial=0.0)))

    @cached_property
    def target(self) -> np.ndarray:
        """T = Y * margins, label-major."""
        return np.ascontiguousarray((self.costs.signs * self.costs.margins()).T)

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """lo and hi, label-major."""
        box = np.ascontiguousarray((self.costs.signs * self.costs.boxes()).T)
        return np.minimum(box, 0), np.maximum(box, 0)

    def coefficients(self, alpha: np.ndarray) -> np.ndarray:
        """B of given dual variables (N x L)."""
        return np.ascontiguousarray((self.costs.signs * alpha + 0.0).T)  # + 0.0: no negative zeros

    def feasible(self, B: np.ndarray) -> np.ndarray:
        """B in float64, with coefficients at a rounded bound moved exactly to the bound."""
        lo, hi = self.bounds
        at_lo, at_hi = (np.equal(B, bound.astype(B.dtype)) for bound in (lo, hi))
        return np.where(at_hi, hi, np.where(at_lo, lo, np.clip(B.astype(np.float64), lo, hi)))

    def scores(self, B: np.ndarray) -> np.ndarray:
        """F of all training samples, label-major, recomputed in float64."""
        return np.ascontiguousarray((self.K.times(np.ascontiguousarray(B.T)) @ self.prior).T)

    def training_scores(self, alpha: np.ndarray) -> np.ndarray:
        return self.scores(self.coefficients(alpha)).T

    def certificate(self, B: np.ndarray, F: np.ndarray) -> Certificate:
        """Both objectives of a feasible B whose scores are F; the dual is (25)."""
        norm, loss = 0.5 * float(np.vdot(B, F)), self.loss(F)
        value = float(np.vdot(self.target, B))
        return Certificate(norm + loss + self.costs.constant, value - norm + self.costs.constant)

    def certified(self, B: np.ndarray) -> Certificate:
        """Both objectives of a feasible B, recomputed in float64 from the part of it that the model stores.

        Columns of different scales cancel in K B but not in scores computed from weights.
        """
        if self.linear is None:
            return self.certificate(B, self.scores(B))
        return self.linear.evaluate(np.abs(B).T, n_threads=self.linear.n_threads)[1]

    def loss(self, F: np.ndarray) -> float:
        """Hinge losses of scores F, label-major."""
        lo, hi = self.bounds
        E = self.target - F
        return float(np.sum(np.maximum(hi * E, lo * E)))

    def solution(self, B: np.ndarray) -> Solution:
        """Dual variables and weights of the training samples of a feasible B."""
        return Solution(np.abs(B).T, B.T @ self.prior if self.coupled else B.T * self.r)

    def precise(self) -> KernelM3L:
        """The same problem with kernel values in float64."""
        K = self.K
        return replace(self, K=KernelMatrix(K.kernel, K.X, K.cache_size, np.float64, K.n_threads))
