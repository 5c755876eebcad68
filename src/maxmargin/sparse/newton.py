"""Newton methods for a fixed basis: min 1/2 |W|^2 + L(Psi W P) over W (d x r).

Gradient g = W + Psi' G P', generalised Hessian H V = V + Psi' [D (Psi V P)] P'. The objective
is 1-strongly convex, so e - min e <= |g|^2 / 2; every method here stops when that bound is at
or below `slack`.

- `JointNewton`: all coefficients at once, then an exact line search. The Newton equation is
  solved by a Cholesky factor of H when it has at most `DENSE` rows (`DENSE_LOW_RANK` for a prior
  of low rank), else by conjugate
  gradients; only samples with curvature take part.
- `Sweeps` (Algorithm 3 of Ganu, Shevade and Sundararajan): class after class, one Newton step
  in the coefficients of that class and an exact search on the segment to it.

The preconditioner of the conjugate gradients is the inverse of every column's own block
I + Psi' diag(D_rr) Psi. With a prior it works in the space of the labels, b = al P, where only
R^-1 couples them: the blocks are (R^-1)_rr I + Psi' diag(D_rr) Psi (R^+ for a singular R). It
follows a growing basis by bordering, which costs one product with H, and is computed anew when
the iterations it failed to save have cost as much as that would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

DENSE, DENSE_LOW_RANK = 300, 1500
CG_STEPS = 250
# A direction of no more than this accuracy is computed in float32.
SINGLE = 1e-2


class JointNewton:
    """Newton's method on all coefficients of a problem.

    Parameters
    ----------
    problem : object
        Offers `Psi`, `P`, `scores`, `back`, `expansion`, `gradient`, `move`.
    max_iter : int
    solver : {"auto", "newton", "newton-cg"}
        Whether the Newton equation is solved directly; "auto" goes by its size.
    """

    def __init__(self, problem: Any, max_iter: int, solver: str = "auto") -> None:
        self.problem, self.max_iter, self.solver = problem, max_iter, solver
        self.blocks = InverseBlocks()

    def optimise(self, slack: Callable[[], float], expired: Callable[[], bool]) -> bool:
        """Iterate; True when the bound on the excess reached `slack`."""
        first = None
        for iteration in range(self.max_iter + 1):
            g = self.problem.gradient()
            size, enough = float(np.vdot(g, g)), 2 * slack()
            if size <= enough:
                return True
            if iteration == self.max_iter or expired():
                return False
            first = size if first is None else first
            # No more accuracy than superlinear convergence or the goal itself asks for.
            accuracy = max(min(0.1, np.sqrt(size / first)), 0.3 * np.sqrt(enough / size))
            self.problem.move(self.direction(g, min(accuracy, 0.3)))
        return False

    def direction(self, g: np.ndarray, accuracy: float) -> np.ndarray:
        """Solve H V = -g, directly or by conjugate gradients to a relative `accuracy`."""
        problem = self.problem
        curvature = problem.expansion.curvature
        rows = curvature.rows()
        curvature, Psi, P = curvature.restrict(rows), problem.Psi[rows], problem.P
        if self._directly(g):
            H = hessian(Psi, curvature, P, g.shape)
            return -cho_solve(cho_factor(H, lower=True), g.T.ravel()).reshape(g.T.shape).T
        if accuracy >= SINGLE:
            Psi = Psi.astype(np.float32, copy=False)
            P = None if P is None else P.astype(np.float32)

        def product(V: np.ndarray) -> np.ndarray:
            U = Psi @ V.astype(Psi.dtype, copy=False)
            U = curvature.product(U) if P is None else curvature.product(U @ P) @ P.T
            return V + Psi.T @ U.astype(Psi.dtype, copy=False)

        weights, M = curvature.diagonal(), problem.directions
        self.blocks.follow(Psi, weights, np.einsum("mr,mr->m", M, M))
        precondition = self.blocks.apply if P is None else lambda V: self.blocks.apply(V @ M.T) @ M
        V, steps = conjugate_gradients(product, -g, precondition, accuracy)
        self.blocks.judge(steps, 4.0 * Psi.size * g.shape[1])
        return V

    def _directly(self, g: np.ndarray) -> bool:
        low_rank = self.problem.P is not None and len(self.problem.P) < len(self.problem.directions)
        small = g.size <= (DENSE_LOW_RANK if low_rank else DENSE)
        return self.solver == "newton" or (self.solver == "auto" and small)


def hessian(Psi: np.ndarray, curvature: Any, P: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    """The Hessian as an (r d) x (r d) matrix, coefficients of a column next to each other."""
    d, r = shape
    if P is None:
        H = np.zeros((r, d, r, d))
        for a, b, block in curvature.blocks(Psi):
            H[a, :, b, :] = block
            H[b, :, a, :] = block.T
    else:
        mixed, blocks = [], []
        for a, b, block in curvature.blocks(Psi):
            pair = np.outer(P[:, a], P[:, b])
            mixed.append((pair if a == b else pair + pair.T).ravel())
            blocks.append(block.ravel())
        sums = np.array(mixed).T @ np.array(blocks, dtype=np.float64)
        H = sums.reshape(r, r, d, d).transpose(0, 2, 1, 3)
    flat = H.reshape(r * d, r * d)
    flat[np.diag_indices_from(flat)] += 1.0
    return flat


class InverseBlocks:
    """Inverses of base_r I + Psi' diag(w_r) Psi for every column r, kept while d grows."""

    def __init__(self) -> None:
        self.inverse, self.base = np.empty((0, 0, 0)), np.empty(0)
        self.cost, self.spent, self.usual = 0.0, 0.0, 0

    def follow(self, Psi: np.ndarray, weights: np.ndarray, base: np.ndarray) -> None:
        """Make the blocks fit Psi: border them, or compute them anew when that has paid off."""
        d, self.base = Psi.shape[1], base
        if len(self.inverse) != weights.shape[1] or self.spent >= self.cost:
            self._renew(Psi, weights)
        while self.inverse.shape[1] < d:
            self._border(Psi[:, : self.inverse.shape[1] + 1], weights)

    def _renew(self, Psi: np.ndarray, weights: np.ndarray) -> None:
        d = Psi.shape[1]
        self.inverse = np.empty((weights.shape[1], d, d))
        for block, weight, base in zip(self.inverse, weights.T, self.base, strict=True):
            gram = own_block(Psi, weight)
            gram[np.diag_indices(d)] += base
            block[:] = cho_solve(cho_factor(gram, lower=True, check_finite=False), np.eye(d))
        self.cost, self.spent, self.usual = 2.0 * np.count_nonzero(weights) * d * d, 0.0, 0

    def _border(self, Psi: np.ndarray, weights: np.ndarray) -> None:
        d = Psi.shape[1] - 1
        new = Psi[:, d].astype(np.float64)
        pulled = weights * new[:, None]
        h = (Psi[:, :d].T @ pulled.astype(Psi.dtype)).T.astype(np.float64)
        u = np.matmul(self.inverse, h[:, :, None])[:, :, 0]
        own = self.base + new @ pulled
        s = np.maximum(own - np.einsum("rd,rd->r", h, u), self.base)
        # A block is at least the base, its inverse at most 1 / base. Where that fails, the weights
        # have changed too much since the other rows were made, and the new row stands alone.
        diagonal = np.einsum("rdd->rd", self.inverse) + u**2 / s[:, None]
        stale = diagonal.max(axis=1, initial=0.0) > 2 / self.base
        u[stale], s[stale] = 0.0, own[stale]
        larger = np.empty((len(self.inverse), d + 1, d + 1))
        larger[:, :d, :d] = self.inverse + u[:, :, None] * (u / s[:, None])[:, None, :]
        larger[:, :d, d] = larger[:, d, :d] = -u / s[:, None]
        larger[:, d, d] = 1 / s
        self.inverse = larger

    def apply(self, V: np.ndarray) -> np.ndarray:
        return np.matmul(self.inverse, V.T[:, :, None])[:, :, 0].T

    def judge(self, steps: int, flops: float) -> None:
        """Take note of how many products a solution took, and what more of them cost."""
        if self.usual == 0:
            self.usual = steps
        self.spent += max(steps - self.usual, 0) * flops


def own_block(Psi: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Psi' diag(weight) Psi in float64, from the rows that have a weight."""
    rows = np.flatnonzero(weight)
    scaled = Psi[rows] * np.sqrt(weight[rows], dtype=Psi.dtype)[:, None]
    return (scaled.T @ scaled).astype(np.float64, copy=False)


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray],
    b: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray],
    accuracy: float,
) -> tuple[np.ndarray, int]:
    """Solve H x = b until the preconditioned residual is `accuracy` times the first one.

    Returns x and the number of products with H.
    """
    x = np.zeros_like(b)
    residual = b.copy()
    z = precondition(residual)
    p = z.copy()
    rho = first = float(np.vdot(residual, z))
    steps = 0
    while steps < CG_STEPS:
        steps += 1
        Hp = product(p)
        curvature = float(np.vdot(p, Hp))
        if not curvature > 0:  # rounding has eaten the direction
            break
        step = rho / curvature
        x += step * p
        residual -= step * Hp
        z = precondition(residual)
        previous, rho = rho, float(np.vdot(residual, z))
        if not rho > accuracy**2 * first:
            break
        p = z + (rho / previous) * p
    return x, steps


class Sweeps:
    """Class-by-class Newton steps.

    Parameters
    ----------
    problem : object
        Offers `Psi`, `P`, `directions`, `expansion`, `gradient`, `move`.
    max_iter : int
        Most sweeps over the classes.
    """

    def __init__(self, problem: Any, max_iter: int) -> None:
        self.problem, self.max_iter = problem, max_iter

    def optimise(self, slack: Callable[[], float], expired: Callable[[], bool]) -> bool:
        """Sweep; True when the bound on the excess reached `slack`."""
        for sweep in range(self.max_iter + 1):
            g = self.problem.gradient()
            if 0.5 * float(np.vdot(g, g)) <= slack():
                return True
            if sweep == self.max_iter or expired():
                return False
            for u in self.problem.directions:
                self._step(u)
        return False

    def _step(self, u: np.ndarray) -> None:
        """One Newton step in W along delta u' (delta in R^d) and an exact search up to its end."""
        problem = self.problem
        v = u if problem.P is None else u @ problem.P
        slope = problem.gradient() @ u
        H = own_block(problem.Psi, problem.expansion.curvature.along(v))
        H[np.diag_indices_from(H)] += u @ u
        delta = -cho_solve(cho_factor(H, lower=True), slope)
        problem.move(np.outer(delta, u), longest=1.0)
