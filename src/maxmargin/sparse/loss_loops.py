"""Losses of the machines with a shared basis, and their compiled passes over the scores.

A loss is a convex function of the scores F (l samples x k columns), summed over samples with weights
c_i = C * sample_weight_i. Three are here, a fourth in `largest_margin`:

- `SquaredMargins` (SMSVM):  sum_i c_i sum_{r != y_i} max(0, 1 + F_ir - F_{i,y_i})^2
- `SquaredHinges` (SM3L, SpSVM):  sum_i c_i sum_r max(0, 1 - Y_ir F_ir)^2, without the entries Y = 0
- `MultiLogit` (import vector machine):  sum_i c_i [log sum_r exp F_ir - F_{i,y_i}]

The first two are piecewise quadratic, so they have a generalised Hessian and an exact line search.
`at(F)` returns the value, the gradient G = dL/dF and a curvature. A curvature stores one k x k matrix D_i per
sample and has these methods:

- `rows()`: the samples with D_i != 0, and `restrict(rows)`: the same curvature on those;
- `product(U)`: D_i U_i for every sample, `along(v)`: v' D_i v, `diagonal()`: the D_i,rr;
- `blocks(Psi)`: all nonzero blocks Psi' diag(D_rs) Psi, as (r, s, block) with r <= s;
- `mixtures(S)`: sum_i S_qi D_i for each row q of S.

The compiled passes at the end need no temporaries. *Margins* are those of one class against all others,
M_ir = 1 + F_ir - F_{i,y_i} for r != y_i; *hinges* are M_ir = 1 - Y_ir F_ir.

- `*_expand`: loss and gradient G in F, for the hinges also the weights D = 2 c [M > 0] of the generalised
  Hessian; `star_leaves` finds those of the margins;
- `*_slope`: first and second derivative of the loss along F + t dF;
- `*_after`: loss of F + K_q step_q' for every candidate q, K_q its kernel row;
- `star_product`: the Hessian of the margins times U;
- `star_through`: the same between Psi' and Psi V, leaf by leaf;
- `star_transposed`: Psi' G, leaf by leaf; `star_mixtures`: sums over samples with equal leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import entr

from maxmargin.core.jit import compiled
from maxmargin.core.linalg import root_of_slope

Blocks = Iterator[tuple[int, int, np.ndarray]]
Curvature: TypeAlias = "StarCurvature | DiagonalCurvature | SoftmaxCurvature | DenseCurvature"
# Armijo's rule: sufficient fraction of the predicted decrease; 2^-60 of a step is below rounding.
SUFFICIENT, HALVINGS = 1e-4, 60
# A pass over leaves is faster than a matrix product if at least FEW entries come to one leaf.
FEW = 4
# Samples whose losses are summed together, so that their data stay in the L1 cache.
TILE = 512


class Stars(NamedTuple):
    """One star per sample: centre `y[i]`, leaves `leaves[start[i]:start[i + 1]]` of weight `weights[i]`."""

    y: np.ndarray
    weights: np.ndarray
    start: np.ndarray
    leaves: np.ndarray


@dataclass(frozen=True)
class StarCurvature:
    """Per sample the Laplacian of a star: centre y_i, leaves r with weights D_ir (D_{i,y_i} = 0).

    The leaves of sample i are the classes that violate its margin, (3.15); k is the number of classes.
    """

    stars: Stars
    k: int

    @cached_property
    def D(self) -> np.ndarray:
        """The weights as a matrix (samples x classes)."""
        D = np.zeros((len(self.stars.y), self.k))
        D[self._samples, self.stars.leaves] = self.stars.weights[self._samples]
        return D

    @property
    def _samples(self) -> np.ndarray:
        """The sample of every leaf."""
        return np.repeat(np.arange(len(self.stars.y)), np.diff(self.stars.start))

    @property
    def few(self) -> bool:
        """Whether loops over leaves are faster than products with all classes."""
        return FEW * (len(self.stars.leaves) + len(self.stars.y)) <= len(self.stars.y) * self.k

    def rows(self) -> np.ndarray:
        return np.flatnonzero(np.diff(self.stars.start))

    def restrict(self, rows: np.ndarray) -> StarCurvature:
        """Restrict to `rows`, which must include all samples with leaves."""
        y, weights, start, leaves = self.stars
        return StarCurvature(
            Stars(y[rows], weights[rows], np.append(start[rows], start[-1:]), leaves), self.k
        )

    def through(self, Psi: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Return Psi' [D (Psi V)]."""
        if not self.few:
            return Psi.T @ self.product(Psi @ V)
        answer = np.zeros(V.T.shape, Psi.dtype)
        star_through(Psi, self.stars, np.ascontiguousarray(V.T), answer)
        return answer.T

    def product(self, U: np.ndarray) -> np.ndarray:
        U, answer = np.ascontiguousarray(U), np.zeros(U.shape, U.dtype)
        star_product(self.stars, U, answer)
        return answer

    def along(self, v: np.ndarray) -> np.ndarray:
        y, weights, _, leaves = self.stars
        samples = self._samples
        return weights * np.bincount(samples, (v[leaves] - v[y[samples]]) ** 2, len(y))

    def diagonal(self) -> np.ndarray:
        y, weights, start, _ = self.stars
        answer = self.D.copy()
        answer[np.arange(len(y)), y] = weights * np.diff(start)
        return answer

    def blocks(self, Psi: np.ndarray) -> Blocks:
        y, k = self.stars.y, self.k
        own: dict[int, np.ndarray] = {}
        pair: dict[tuple[int, int], np.ndarray] = {}
        for s in range(k):
            members = np.flatnonzero(y == s)
            for r in np.flatnonzero(self.D[members].any(axis=0)).tolist():
                rows = members[self.D[members, r] > 0]
                T = weighted_gram(Psi[rows], self.D[rows, r])
                key = (r, s) if r < s else (s, r)
                pair[key] = pair[key] + T if key in pair else T
        for (r, s), T in pair.items():
            yield r, s, -T
            for m in (r, s):
                own[m] = own[m] + T if m in own else T
        for m, T in own.items():
            yield m, m, T

    def mixtures(self, S: np.ndarray) -> np.ndarray:
        sums = np.zeros((self.k, self.k, len(S)))
        star_mixtures(self.stars, np.ascontiguousarray(S.T), sums)
        T = np.ascontiguousarray(sums.transpose(2, 0, 1))
        answer = -(T + T.transpose(0, 2, 1))
        r = np.arange(self.k)
        answer[:, r, r] = T.sum(axis=1) + T.sum(axis=2)
        return answer


@dataclass(frozen=True)
class DiagonalCurvature:
    """Columns without coupling: D_i = diag(D_i.)."""

    D: np.ndarray

    def rows(self) -> np.ndarray:
        return np.flatnonzero(self.D.any(axis=1))

    def restrict(self, rows: np.ndarray) -> DiagonalCurvature:
        return DiagonalCurvature(self.D[rows])

    def product(self, U: np.ndarray) -> np.ndarray:
        return self.D * U

    def along(self, v: np.ndarray) -> np.ndarray:
        return self.D @ v**2

    def diagonal(self) -> np.ndarray:
        return self.D

    def blocks(self, Psi: np.ndarray) -> Blocks:
        for r in range(self.D.shape[1]):
            rows = np.flatnonzero(self.D[:, r])
            yield r, r, weighted_gram(Psi[rows], self.D[rows, r])

    def mixtures(self, S: np.ndarray) -> np.ndarray:
        k = self.D.shape[1]
        answer = np.zeros((len(S), k, k))
        answer[:, np.arange(k), np.arange(k)] = S @ self.D
        return answer


@dataclass(frozen=True)
class SoftmaxCurvature:
    """D_i = c_i (diag(p_i) - p_i p_i')."""

    p: np.ndarray
    c: np.ndarray

    def rows(self) -> np.ndarray:
        return np.flatnonzero(self.c)

    def restrict(self, rows: np.ndarray) -> SoftmaxCurvature:
        return SoftmaxCurvature(self.p[rows], self.c[rows])

    def product(self, U: np.ndarray) -> np.ndarray:
        mean = np.einsum("ir,ir->i", self.p, U)
        return self.c[:, None] * self.p * (U - mean[:, None])

    def along(self, v: np.ndarray) -> np.ndarray:
        mean = self.p @ v
        return self.c * np.einsum("ir,ir->i", self.p, (v - mean[:, None]) ** 2)

    def diagonal(self) -> np.ndarray:
        return self.c[:, None] * self.p * (1 - self.p)

    def blocks(self, Psi: np.ndarray) -> Blocks:
        k = self.p.shape[1]
        for r in range(k):
            for s in range(r, k):
                weight = self.c * self.p[:, r] * ((r == s) - self.p[:, s])
                yield r, s, (Psi.T * weight) @ Psi

    def mixtures(self, S: np.ndarray) -> np.ndarray:
        k = self.p.shape[1]
        weighted = S * self.c
        answer = np.empty((len(S), k, k))
        for r in range(k):
            answer[:, r] = -(weighted * self.p[:, r]) @ self.p
        answer[:, np.arange(k), np.arange(k)] += weighted @ self.p
        return answer


@dataclass(frozen=True)
class DenseCurvature:
    """Any positive semi-definite D_i (l x k x k)."""

    D: np.ndarray

    def rows(self) -> np.ndarray:
        return np.flatnonzero(self.D.any(axis=(1, 2)))

    def restrict(self, rows: np.ndarray) -> DenseCurvature:
        return DenseCurvature(self.D[rows])

    def product(self, U: np.ndarray) -> np.ndarray:
        return np.einsum("irs,is->ir", self.D, U)

    def along(self, v: np.ndarray) -> np.ndarray:
        return np.einsum("irs,r,s->i", self.D, v, v)

    def diagonal(self) -> np.ndarray:
        return np.einsum("irr->ir", self.D).copy()

    def blocks(self, Psi: np.ndarray) -> Blocks:
        k = self.D.shape[1]
        for r in range(k):
            for s in range(r, k):
                rows = np.flatnonzero(self.D[:, r, s])
                yield r, s, (Psi[rows].T * self.D[rows, r, s]) @ Psi[rows]

    def mixtures(self, S: np.ndarray) -> np.ndarray:
        return (S @ self.D.reshape(len(self.D), -1)).reshape(-1, *self.D.shape[1:])


def weighted_gram(Psi: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return Psi' diag(weight) Psi for nonnegative weights, exactly symmetric."""
    scaled = Psi * np.sqrt(weight, dtype=Psi.dtype)[:, None]
    return scaled.T @ scaled


@dataclass(frozen=True)
class Expansion:
    """A loss at one F: value, gradient in F, curvature in F.

    If the value is that of a smooth copy, `excess` is the difference between the loss and the copy.
    """

    value: float
    gradient: np.ndarray
    curvature: Curvature
    excess: float = 0.0


class SquaredMargins:
    """Squared Weston-Watkins margins of one class against all others (SMSVM), (3.9).

    Parameters
    ----------
    y : int array of shape (l,)
        Class codes 0..k-1.
    c : float array of shape (l,)
        Weight of every sample, C included.
    k : int
        Number of classes.
    """

    relative = True

    def __init__(self, y: np.ndarray, c: np.ndarray, k: int) -> None:
        self.y, self.c, self.n_columns = y.astype(np.uint32, copy=False), np.ascontiguousarray(c), k

    def take(self, rows: np.ndarray | slice) -> SquaredMargins:
        """Return the loss of some of the samples."""
        return SquaredMargins(self.y[rows], self.c[rows], self.n_columns)

    def value_and_gradient(self, F: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient at F, without the curvature."""
        G = np.empty(F.shape)
        return margins_expand(F, self.y, self.c, G), G

    def at(self, F: np.ndarray) -> Expansion:
        value, G = self.value_and_gradient(F)
        start, leaves = np.empty(len(F) + 1, np.uint32), np.empty(F.size + 1, np.uint32)
        star_leaves(G, start, leaves)
        stars = Stars(self.y, 2 * self.c, start, leaves[: start[-1]].copy())
        return Expansion(value, G, StarCurvature(stars, self.n_columns))

    def after(self, F: np.ndarray, K: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the loss of F + K_q steps_q' for every candidate q."""
        losses = np.zeros(len(K))
        margins_after(np.ascontiguousarray(F), self.y, self.c, K, steps, losses)
        return losses

    def step(self, F: np.ndarray, dF: np.ndarray, q1: float, q2: float, longest: float) -> float:
        """Return the t in [0, longest] that minimises q1 t + q2 t^2 / 2 + loss(F + t dF)."""
        return root_of_slope(lambda t: self.slope(F, dF, t), q1, q2, longest)

    def slope(self, F: np.ndarray, dF: np.ndarray, t: float) -> tuple[float, float]:
        """Return first and second derivative of loss(F + t dF) in t."""
        return margins_slope(F, dF, self.y, self.c, t)

    def full_bound(self, at: Expansion, quadratic: float) -> float:
        """Return a lower bound on the objective of the full model; `quadratic` is tr(G' K G R)."""
        return scaled_bound(float(np.maximum(at.gradient, 0).sum()), at.value, quadratic)


class SquaredHinges:
    """Squared hinges, one per label (SM3L, (4.22); with one column SpSVM).

    Parameters
    ----------
    Y : int array of shape (l, k)
        Signs +1 and -1; 0 where a label is not known.
    c : float array of shape (l,)
        Weight of every sample, C included.
    """

    relative = False

    def __init__(self, Y: np.ndarray, c: np.ndarray) -> None:
        self.Y, self.c = Y.astype(np.int8, order="C", copy=False), np.ascontiguousarray(c)
        self.n_columns = Y.shape[1]

    def take(self, rows: np.ndarray | slice) -> SquaredHinges:
        return SquaredHinges(self.Y[rows], self.c[rows])

    def value_and_gradient(self, F: np.ndarray) -> tuple[float, np.ndarray]:
        at = self.at(F)
        return at.value, at.gradient

    def at(self, F: np.ndarray) -> Expansion:
        G, D = np.empty(F.shape), np.empty(F.shape)
        value = hinges_expand(F, self.Y, self.c, G, D)
        return Expansion(value, G, DiagonalCurvature(D))

    def after(self, F: np.ndarray, K: np.ndarray, steps: np.ndarray) -> np.ndarray:
        losses = np.empty(len(K))
        hinges_after(F, self.Y, self.c, K, steps, losses)
        return losses

    def step(self, F: np.ndarray, dF: np.ndarray, q1: float, q2: float, longest: float) -> float:
        return root_of_slope(lambda t: self.slope(F, dF, t), q1, q2, longest)

    def slope(self, F: np.ndarray, dF: np.ndarray, t: float) -> tuple[float, float]:
        return hinges_slope(F, dF, self.Y, self.c, t)

    def full_bound(self, at: Expansion, quadratic: float) -> float:
        return scaled_bound(float(np.abs(at.gradient).sum()), at.value, quadratic)


class MultiLogit:
    """Multinomial logistic loss (import vector machine).

    Parameters
    ----------
    y : int array of shape (l,)
        Class codes 0..k-1.
    c : float array of shape (l,)
        Weight of every sample, C included.
    k : int
        Number of classes.
    """

    relative = True

    def __init__(self, y: np.ndarray, c: np.ndarray, k: int) -> None:
        self.y, self.c, self.n_columns = y, c, k
        self._own = np.arange(len(y)), y

    def value(self, F: np.ndarray) -> float:
        top = F.max(axis=1)
        excess = np.log(np.exp(F - top[:, None]).sum(axis=1)) + top - F[self._own]
        return float(self.c @ excess)

    def at(self, F: np.ndarray) -> Expansion:
        p = np.exp(F - F.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        G = self.c[:, None] * p
        G[self._own] -= self.c
        return Expansion(self.value(F), G, SoftmaxCurvature(p, self.c))

    def after(self, F: np.ndarray, K: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return np.array([self.value(F + np.outer(k, step)) for k, step in zip(K, steps, strict=True)])

    def step(self, F: np.ndarray, dF: np.ndarray, q1: float, q2: float, longest: float) -> float:
        """Return a t in (0, min(1, longest)] with sufficient decrease (Armijo), found by halving."""
        start = self.at(F)
        slope = q1 + float(np.vdot(start.gradient, dF))
        t = min(1.0, longest)
        for _ in range(HALVINGS):
            change = q1 * t + 0.5 * q2 * t * t + self.value(F + t * dF) - start.value
            if change <= SUFFICIENT * t * slope:
                break
            t *= 0.5
        return t

    def full_bound(self, at: Expansion, quadratic: float) -> float:
        """Return a lower bound on the objective of the full model; `quadratic` is tr(G' K G).

        log sum exp F is the maximum of p.F + H(p) over probabilities p, with H the entropy. So any p give the
        bound sum_i c_i H(p_i) - 1/2 tr(G' K G) with G = c (p - own class). The present ones are moved towards
        the own class, p = own + s (p - own), to the best s in [0, 1].
        """
        own = np.zeros_like(at.gradient)
        own[self._own] = 1.0
        p = cast(SoftmaxCurvature, at.curvature).p

        def bound(s: float) -> float:
            return float(self.c @ entr(own + s * (p - own)).sum(axis=1)) - 0.5 * s * s * quadratic

        best = minimize_scalar(lambda s: -bound(s), bounds=(0.0, 1.0), method="bounded").x
        return max(bound(float(best)), bound(1.0), 0.0)


def scaled_bound(total: float, loss: float, quadratic: float) -> float:
    """Return the maximum of s total - s^2 (loss + quadratic / 2), the dual at s times the multipliers."""
    return total**2 / (4 * (loss + 0.5 * quadratic)) if total else 0.0


class Loss(Protocol):
    """A loss of the scores; `SquaredMargins` describes the methods.

    A loss is `relative` if it does not change when a number is added to all scores of a sample.
    """

    relative: bool
    n_columns: int

    def at(self, F: np.ndarray) -> Expansion: ...

    def after(self, F: np.ndarray, K: np.ndarray, steps: np.ndarray) -> np.ndarray: ...

    def step(self, F: np.ndarray, dF: np.ndarray, q1: float, q2: float, longest: float) -> float: ...

    def full_bound(self, at: Expansion, quadratic: float) -> float: ...


@compiled(reorder=True)
def margins_expand(F, y, c, G):
    """Write the gradient of the margins and return their loss; G_ir > 0 marks the violators (3.11)."""
    total = 0.0
    for i in range(F.shape[0]):
        own = np.int64(y[i])
        base = 1.0 - F[i, own]
        weight = 2.0 * c[i]
        squares = 0.0
        pulled = 0.0
        for r in range(F.shape[1]):
            xi = max(base + F[i, r], 0.0) if r != own else 0.0
            squares += xi * xi
            pulled += weight * xi
        for r in range(F.shape[1]):
            G[i, r] = weight * max(base + F[i, r], 0.0)
        G[i, own] = -pulled
        total += c[i] * squares
    return total


@compiled
def star_leaves(G, start, leaves):
    """Write the classes with G_ir > 0 of every sample; `leaves` has one entry more than G."""
    end = np.uint32(0)
    for i in range(G.shape[0]):
        start[i] = end
        for r in range(G.shape[1]):
            leaves[end] = r
            end += np.uint32(G[i, r] > 0.0)
    start[G.shape[0]] = end


@compiled(reorder=True)
def hinges_expand(F, Y, c, G, D):
    """Write gradient and weights of the hinges; return their loss."""
    total = 0.0
    for i in range(F.shape[0]):
        weight = 2.0 * c[i]
        squares = 0.0
        for r in range(F.shape[1]):
            sign = float(Y[i, r])
            xi = max(1.0 - sign * F[i, r], 0.0) * abs(sign)
            squares += xi * xi
        for r in range(F.shape[1]):
            sign = float(Y[i, r])
            xi = max(1.0 - sign * F[i, r], 0.0) * abs(sign)
            G[i, r] = -sign * weight * xi
            D[i, r] = weight if xi > 0.0 else 0.0
        total += c[i] * squares
    return total


@compiled(reorder=True)
def margins_slope(F, dF, y, c, t):
    """Return first and second derivative in t of the loss of the margins at F + t dF."""
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
def hinges_slope(F, dF, Y, c, t):
    """Return first and second derivative in t of the loss of the hinges at F + t dF."""
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
def star_product(stars, U, answer):
    """Add the Hessian of the margins times U to answer."""
    for i in range(U.shape[0]):
        own = np.int64(stars.y[i])
        weight = U.dtype.type(stars.weights[i])
        total = U.dtype.type(0.0)
        for e in range(stars.start[i], stars.start[i + 1]):
            r = np.int64(stars.leaves[e])
            total += weight * (U[i, r] - U[i, own])
        for e in range(stars.start[i], stars.start[i + 1]):
            r = np.int64(stars.leaves[e])
            answer[i, r] += weight * (U[i, r] - U[i, own])
        answer[i, own] -= total


@compiled(reorder=True)
def star_through(Psi, stars, V, answer):
    """Add (Psi' D Psi V)' to answer, D the Hessian of the margins; V and answer have a row per class."""
    d = Psi.shape[1]
    zero = Psi.dtype.type(0.0)
    for i in range(Psi.shape[0]):
        row = Psi[i]
        own = np.int64(stars.y[i])
        weight = Psi.dtype.type(stars.weights[i])
        centre = zero
        for j in range(d):
            centre += row[j] * V[own, j]
        total = zero
        for e in range(stars.start[i], stars.start[i + 1]):
            r = np.int64(stars.leaves[e])
            value = zero
            for j in range(d):
                value += row[j] * V[r, j]
            value = weight * (value - centre)
            total += value
            for j in range(d):
                answer[r, j] += value * row[j]
        for j in range(d):
            answer[own, j] -= total * row[j]


@compiled(reorder=True)
def star_transposed(Psi, stars, G, answer):
    """Add G' Psi to answer, G the gradient of the margins; Psi may have more columns than answer."""
    for i in range(Psi.shape[0]):
        if stars.start[i] == stars.start[i + 1]:
            continue
        row = Psi[i]
        own = np.int64(stars.y[i])
        for e in range(stars.start[i], stars.start[i + 1]):
            r = np.int64(stars.leaves[e])
            value = Psi.dtype.type(G[i, r])
            for j in range(answer.shape[1]):
                answer[r, j] += value * row[j]
        value = Psi.dtype.type(G[i, own])
        for j in range(answer.shape[1]):
            answer[own, j] += value * row[j]


@compiled(reorder=True)
def star_mixtures(stars, S, sums):
    """Add the S_i of all samples of class s with the leaf r, times their weights, to sums[r, s]."""
    for i in range(S.shape[0]):
        row = S[i]
        own = np.int64(stars.y[i])
        weight = stars.weights[i]
        for e in range(stars.start[i], stars.start[i + 1]):
            into = sums[np.int64(stars.leaves[e]), own]
            for q in range(S.shape[1]):
                into[q] += weight * row[q]


@compiled(reorder=True, allocates=True)
def margins_after(F, y, c, K, steps, losses):
    """Add the loss of the margins at F + K_q step_q' to losses_q.

    No step moves a margin of sample i by more than |K_qi| times the range of the step, so most classes keep
    their margin at any step. The loss sums over the other ones, for all candidates at once.
    """
    n, k = F.shape
    count = K.shape[0]
    moves, span = np.empty((k, count)), np.empty(count)
    for q in range(count):
        lowest = highest = steps[q, 0]
        for r in range(k):
            moves[r, q] = steps[q, r]
            lowest, highest = min(lowest, steps[q, r]), max(highest, steps[q, r])
        span[q] = highest - lowest
    largest, values, rivals = np.empty(TILE), np.empty(count), np.empty(k + 1, np.uint32)
    for first in range(0, n, TILE):
        size = min(TILE, n - first)
        # The largest change of a margin of sample i by any step.
        for i in range(size):
            largest[i] = 0.0
        for q in range(count):
            row, most = K[q, first : first + size], span[q]
            for i in range(size):
                largest[i] = max(largest[i], abs(row[i]) * most)
        for i in range(first, first + size):
            # The classes that may violate the margin after some step.
            own, scores = np.int64(y[i]), F[i]
            base = 1.0 - scores[own]
            least = -base - largest[i - first]
            end = np.uint32(0)
            for r in range(k):
                rivals[end] = r
                end += np.uint32((scores[r] > least) & (r != own))
            if end == 0:
                continue
            for q in range(count):
                values[q] = K[q, i]
            for e in range(end):
                rival = np.int64(rivals[e])
                margin, weight = base + scores[rival], c[i]
                for q in range(count):
                    xi = max(margin + values[q] * (moves[rival, q] - moves[own, q]), 0.0)
                    losses[q] += weight * (xi * xi)


@compiled(reorder=True)
def hinges_after(F, Y, c, K, steps, losses):
    """Write the loss of the hinges at F + K_q step_q' for every candidate q."""
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
