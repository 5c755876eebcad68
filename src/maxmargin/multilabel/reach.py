"""What can be left alone: entries of little gap, and variables out of reach of the others."""

from __future__ import annotations

import numpy as np


def coupled_reach(R: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (44)-(45) beyond which a variable at its box is not expected back in the next pass.

    `low` and `high` are the extreme projected gradients of each label in the last pass. A
    unit of gradient of label k moves label l by |R_kl| / R_kk, so
    lb_l = min_k |R_kl| low_k / R_kk and ub_l = max_k |R_kl| high_k / R_kk; a bound of zero
    says nothing and becomes infinite.
    """
    push = np.abs(R) / np.diag(R)[:, None]
    lower = np.min(push * low[:, None], axis=0)
    upper = np.max(push * high[:, None], axis=0)
    return np.where(lower < 0, lower, -np.inf), np.where(upper > 0, upper, np.inf)


def neglected_share(tol: float, primal: float, n_entries: int) -> float:
    """Gap per entry below which an entry may rest: together they hold a tenth of what tol allows."""
    return 0.1 * tol * abs(primal) / n_entries
