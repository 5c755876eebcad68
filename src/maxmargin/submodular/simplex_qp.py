"""The master problem of a bundle method: a small concave program over the simplex.

    max_alpha  D(alpha) = b.alpha - 1/2 alpha'K alpha - 1/2 |max(0, -B'alpha)|^2,   alpha >= 0, sum alpha = 1

K is the Gram matrix of the planes on the free coordinates, the rows of B their parts on the
nonnegative ones. D is concave, smooth and piecewise quadratic. Its gradient is the value of each
plane at theta(alpha), so the gap of the program is

    max_i grad_i - alpha.grad  >=  max D - D(alpha).

An active-set Newton method: the support grows by the plane with the largest gradient, a Newton
step (on the piece of D at hand) moves within the support, a plane that reaches zero leaves it.
Each step is cut by a line search on D, so D never falls.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

RIDGE = 1e-13
STEPS_PER_PLANE = 20


def maximise(
    K: np.ndarray, B: np.ndarray, b: np.ndarray, alpha: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Improve `alpha` until the gap of the program is at most `tol`; answer it with the gradient."""
    alpha = alpha / alpha.sum()
    for _ in range(STEPS_PER_PLANE * (len(b) + 5)):
        clipped = np.maximum(-alpha @ B, 0.0)
        grad = b - K @ alpha + B @ clipped
        best = int(np.argmax(grad))
        if grad[best] - alpha @ grad <= tol:
            break
        inside = alpha > 0
        inside[best] = True
        support = np.flatnonzero(inside)
        direction = _newton(K, B[:, clipped > 0], grad, support)
        newcomer = support == best
        if alpha[best] == 0 and direction[newcomer][0] <= 0:
            support = support[~newcomer]
            direction = _newton(K, B[:, clipped > 0], grad, support)
        if direction @ grad[support] <= 0:
            # Rounding has eaten the Newton step: fall back on moving weight to the best plane.
            support = np.flatnonzero(inside)
            direction = (support == best) - alpha[support]
        alpha = _move(K, B, b, alpha, support, direction)
    clipped = np.maximum(-alpha @ B, 0.0)
    return alpha, b - K @ alpha + B @ clipped


def _newton(K: np.ndarray, B: np.ndarray, grad: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Newton direction within the support, with entries that sum to zero."""
    H = K[np.ix_(support, support)] + B[support] @ B[support].T
    ridge = RIDGE * max(float(H.diagonal().max()), np.finfo(float).tiny)
    while True:
        try:
            factor = cho_factor(H + ridge * np.eye(len(H)), lower=True)
            break
        except np.linalg.LinAlgError:
            ridge *= 100
    towards, level = cho_solve(factor, np.column_stack([grad[support], np.ones(len(H))])).T
    return towards - towards.sum() / level.sum() * level


def _move(
    K: np.ndarray, B: np.ndarray, b: np.ndarray, alpha: np.ndarray, support: np.ndarray, direction: np.ndarray
) -> np.ndarray:
    """Step along `direction` as far as D grows and alpha stays nonnegative."""
    here = alpha[support]
    shrinking = direction < 0
    reach = np.min(here[shrinking] / -direction[shrinking], initial=np.inf)
    bend = K[support] @ alpha, K[np.ix_(support, support)] @ direction
    v, w = -alpha @ B, -direction @ B[support]

    def slope(t: float) -> float:
        return float(direction @ (b[support] - bend[0] - t * bend[1]) - w @ np.maximum(v + t * w, 0.0))

    step = min(1.0, reach)
    if slope(step) < 0:
        low, high = 0.0, step
        for _ in range(60):
            middle = 0.5 * (low + high)
            if slope(middle) > 0:
                low = middle
            else:
                high = middle
        step = low if low > 0 else high
    moved = alpha.copy()
    moved[support] = np.maximum(here + step * direction, 0.0)
    if step == reach:
        blocked = np.flatnonzero(shrinking)
        moved[support[blocked[np.argmin(here[blocked] / -direction[blocked])]]] = 0.0
    return moved / moved.sum()
