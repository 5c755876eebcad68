"""Linear equations with positive definite matrices: one Cholesky policy, conjugate gradients; a line search.

Examples
--------
>>> import numpy as np
>>> from scipy.linalg import cho_solve
>>> from maxmargin.core.linalg import conjugate_gradients, ridged_cholesky
>>> A, b = np.array([[4.0, 2.0], [2.0, 3.0]]), np.array([8.0, 7.0])
>>> cho_solve(ridged_cholesky(A), b).round(12)
array([1.25, 1.5 ])
>>> x, products = conjugate_gradients(lambda v: A @ v, b, accuracy=1e-12)
>>> x.round(12), products
(array([1.25, 1.5 ]), 2)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor

from maxmargin.core.loop import SERIAL_SIZE
from maxmargin.core.threads import one_blas_thread, product_threads, run_threads

Operator = Callable[[np.ndarray], np.ndarray]
# First ridge after zero: the rounding of float64.
SMALLEST = float(np.finfo(np.float64).eps)
# Rows of a large product per task of a thread.
ROWS = 4096


def product(X: Any, W: np.ndarray) -> np.ndarray:
    """X @ W for dense or CSR rows; the result does not depend on the number of threads."""
    if sp.issparse(X):
        return np.asarray(X @ W)
    n = X.shape[0]
    if n * W.size <= SERIAL_SIZE:
        return np.asarray(X @ W)
    with one_blas_thread():
        if n <= ROWS:
            return np.asarray(X @ W)
        answer = np.empty((n, *W.shape[1:]), np.result_type(X, W))

        def work(first: int) -> None:
            np.matmul(X[first : first + ROWS], W, out=answer[first : first + ROWS])

        run_threads(work, range(0, n, ROWS), product_threads(n * W.size))
        return answer


def ridged_cholesky(
    A: np.ndarray, ridge: float = 0.0, growth: float = 10.0, tries: int = 16
) -> tuple[np.ndarray, bool]:
    """Cholesky factor of A, or of A plus the first ridge of a growing sequence that makes it definite.

    Parameters
    ----------
    A : array of shape (n, n)
        Symmetric, read below its diagonal only; positive definite up to rounding. It is not changed.
    ridge : float, default=0.0
        Ridge of the first try, relative to the largest diagonal entry.
    growth : float, default=10.0
        Factor from one try to the next; a ridge of 0 is followed by the rounding of float64.
    tries : int, default=16
        After this number of failures an error is raised: A is not definite up to rounding.

    Returns
    -------
    factor : (array, bool)
        As returned by `scipy.linalg.cho_factor` and taken by `scipy.linalg.cho_solve`; lower.
    """
    scale = float(np.diagonal(A).max(initial=0.0))
    for _ in range(tries):
        try:
            return cho_factor(_plus(A, ridge * scale), lower=True)
        except np.linalg.LinAlgError:
            last, ridge = ridge, max(growth * ridge, SMALLEST)
    raise np.linalg.LinAlgError(
        f"A matrix of shape {A.shape} is not positive definite, not even with {last:.1g} times its largest "
        "diagonal entry added to the diagonal."
    )


def _plus(A: np.ndarray, ridge: float) -> np.ndarray:
    if ridge == 0.0:
        return A
    A = A.copy()
    A[np.diag_indices_from(A)] += ridge
    return A


def conjugate_gradients(
    product: Operator,
    b: np.ndarray,
    precondition: Operator | None = None,
    *,
    accuracy: float = 1e-10,
    max_products: int = 250,
) -> tuple[np.ndarray, int]:
    """Solve A x = b by conjugate gradients, from x = 0.

    Parameters
    ----------
    product : callable
        V -> A V for arrays of the shape of b; A is symmetric positive definite.
    b : array
    precondition : callable, default=None
        V -> M V with M close to the inverse of A; None for the identity.
    accuracy : float, default=1e-10
        Stop when the residual, in the norm of M, is this fraction of the first one.
    max_products : int, default=250

    Returns
    -------
    x : array
    products : int
        How often `product` was called.
    """
    precondition = np.copy if precondition is None else precondition
    x = np.zeros_like(b)
    residual = b.copy()
    z = precondition(residual)
    p = z.copy()
    rho = first = float(np.vdot(residual, z))
    products = 0
    while products < max_products:
        products += 1
        Ap = product(p)
        curvature = float(np.vdot(p, Ap))
        if not curvature > 0:  # the direction is rounding
            break
        step = rho / curvature
        x += step * p
        residual -= step * Ap
        z = precondition(residual)
        previous, rho = rho, float(np.vdot(residual, z))
        if not rho > accuracy**2 * first:
            break
        p = z + (rho / previous) * p
    return x, products


def root_of_slope(
    derivatives: Callable[[float], tuple[float, float]],
    q1: float,
    q2: float,
    longest: float,
    *,
    accuracy: float = 1e-13,
    tries: int = 200,
) -> float:
    """The t in [0, longest] that minimises q1 t + q2 t^2 / 2 + f(t), f convex and piecewise quadratic.

    The slope of the sum is increasing and piecewise linear. Newton's method on it, kept inside a shrinking
    bracket, finds the root once it is on the right piece.

    Parameters
    ----------
    derivatives : callable
        t -> (f'(t), f''(t)).
    q1, q2, longest : float
    accuracy : float, default=1e-13
        Relative to t.
    tries : int, default=200
    """
    low, high, t = 0.0, longest, min(1.0, longest)
    for _ in range(tries):
        slope, curvature = derivatives(t)
        slope, curvature = slope + q1 + q2 * t, curvature + q2
        if slope <= 0 and t >= longest:
            return longest
        if slope > 0:
            high = t
        else:
            low = t
        if slope == 0 or curvature <= 0:
            return t
        following = t - slope / curvature
        if not low <= following <= high:
            following = 0.5 * (low + high)
        if abs(following - t) <= accuracy * t:
            return following
        t = following
    return t
