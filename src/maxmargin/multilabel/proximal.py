"""Newton steps on the smoothed problems of labels, in the letters of `newton`: NumPy and LAPACK alone.

X (N x D) is dense, with the constant feature as its last column and every column brought to about one; the
norm charges `ridge` (D) for the weights of the columns. Of the labels at hand, a row each: signs y, boxes c,
margins m, scores f = z X', shares t = alpha / c of the boxes, a the centre of the proximal step in these
shares, g = m - y f.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dposv

from maxmargin.core.linalg import ridged_cholesky

# The line search: how far the slope has to fall, and at how many lengths it is evaluated.
FLAT, LENGTHS = 0.1, 30


class Columns(NamedTuple):
    """The scaled rows, what the norm charges the weight of each column, and the diagonal of R."""

    X: np.ndarray
    ridge: np.ndarray
    r: np.ndarray


class Entries(NamedTuple):
    """Signs, boxes and margins, each L x N."""

    y: np.ndarray
    c: np.ndarray
    m: np.ndarray


class NewtonState(NamedTuple):
    """What all labels keep between calls, label-major.

    `omega`, `primal` and `dual` have one number per label; `centre`, `scores` and `best_share` are L x N,
    `z` and `best_z` L x D. The best weights and the best shares need not be of the same step.
    """

    omega: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    centre: np.ndarray
    scores: np.ndarray
    best_share: np.ndarray
    z: np.ndarray
    best_z: np.ndarray


class Shrinking(NamedTuple):
    """When a proximal step is solved, and omega of the next: see `newton.NewtonRule`."""

    shrink: float
    least: float
    solved: float


def newton_steps(
    columns: Columns,
    entries: Entries,
    labels: np.ndarray,
    targets: tuple[float, float],
    n_steps: int,
    rule: Shrinking,
    state: NewtonState,
) -> None:
    """Up to `n_steps` Newton steps on each of `labels`; one whose gap is at most its target rests.

    The target of a label is targets[0] times its objective plus targets[1].
    """
    X = columns.X
    for _ in range(n_steps):
        y, c, m = (part[labels] for part in entries)
        z, f, omega, centre = state.z[labels], state.scores[labels], state.omega[labels], state.centre[labels]
        ridge = columns.ridge / columns.r[labels, None]
        g = m - y * f
        t = shares(centre, g, omega)
        V = (y * c * t) @ X
        loss = row_sums(c, np.maximum(g, 0.0))
        value, inner = row_sums(m, c * t), row_sums(g, c * t)
        rest = ridge * z - V
        apart = 0.5 * (rest * rest / ridge).sum(axis=1)
        primal = 0.5 * (ridge * z * z).sum(axis=1) + loss
        dual = value - 0.5 * (V * V / ridge).sum(axis=1)
        keep_best(labels, (primal, dual), z, t, state)
        left = state.primal[labels] - state.dual[labels] > targets[0] * state.primal[labels] + targets[1]
        solved = left & (apart <= rule.solved * (loss - inner))
        if solved.any():
            centre[solved] = state.centre[labels[solved]] = t[solved]
            omega[solved] = np.maximum(rule.shrink * omega[solved], rule.least)
            state.omega[labels] = omega
            t[solved] = shares(centre[solved], g[solved], omega[solved])
            rest[solved] = ridge[solved] * z[solved] - (y * c * t)[solved] @ X
        if not left.all():
            labels, solved, omega, ridge, rest = (part[left] for part in (labels, solved, omega, ridge, rest))
            y, c, z, f, g, t, centre = (part[left] for part in (y, c, z, f, g, t, centre))
        if not labels.size:
            return
        d = np.stack([direction(X, *each) for each in zip(ridge, c / omega[:, None], t, rest, strict=True)])
        change = d @ X.T
        first = (rest * d).sum(axis=1)
        length = step_lengths(
            centre + g / omega[:, None], y * change / omega[:, None], c * y * change,
            first, (ridge * z * d).sum(axis=1), (ridge * d * d).sum(axis=1),
        )  # fmt: skip
        # Where rounding has eaten the direction, a new centre may help; otherwise the label rests.
        length[~(first < 0.0)] = 0.0
        state.z[labels] = z + length[:, None] * d
        state.scores[labels] = f + length[:, None] * change
        labels = labels[(first < 0.0) | solved]
        if not labels.size:
            return


def shares(centre: np.ndarray, g: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """t = clip(a + g / omega, 0, 1), the proximal point."""
    t = g / omega[:, None]
    t += centre
    np.maximum(t, 0.0, out=t)
    return np.minimum(t, 1.0, out=t)


def row_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The products of the rows of two matrices."""
    return np.einsum("ij,ij->i", a, b)


def keep_best(
    labels: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    z: np.ndarray,
    t: np.ndarray,
    state: NewtonState,
) -> None:
    """Keep weights and shares that are better than those before, each for itself."""
    primal, dual = bounds
    lower, higher = primal < state.primal[labels], dual > state.dual[labels]
    state.primal[labels[lower]], state.best_z[labels[lower]] = primal[lower], z[lower]
    state.dual[labels[higher]], state.best_share[labels[higher]] = dual[higher], t[higher]


def direction(
    X: np.ndarray, ridge: np.ndarray, weight: np.ndarray, t: np.ndarray, gradient: np.ndarray
) -> np.ndarray:
    """Newton's direction of one label: H d = -gradient, H = diag(ridge) + sum of c / omega x x' over the
    entries within their boxes."""
    if not gradient.size:  # LAPACK knows no empty matrix
        return gradient
    free = np.flatnonzero((t > 0.0) & (t < 1.0) & (weight > 0.0))
    rows = X[free] * np.sqrt(weight[free, None])
    H = np.asarray(dsyrk(1.0, rows.T, lower=True))
    H.flat[:: len(H) + 1] += ridge
    # Columns differ in scale: a diagonal of ones keeps rounding apart from the curvature.
    scale = 1.0 / np.sqrt(np.diagonal(H))
    H *= scale
    H *= scale[:, None]
    _, d, failed = dposv(H, -scale * gradient, lower=True)
    if failed:
        d = cho_solve(ridged_cholesky(H), -scale * gradient, check_finite=False)
    return scale * d


def step_lengths(
    start: np.ndarray,
    fall: np.ndarray,
    weight: np.ndarray,
    first: np.ndarray,
    slope: np.ndarray,
    bend: np.ndarray,
) -> np.ndarray:
    """The length of every label's step, at which the slope has fallen to a tenth.

    The slope is `first` < 0 at zero and never falls along the step.
    At length s the shares are clip(start - s fall, 0, 1), and the slope is slope + s bend - weight . shares.
    """
    length, low, high = np.ones(len(first)), np.zeros(len(first)), np.full(len(first), np.inf)
    at_low, at_high = first.copy(), np.zeros(len(first))
    open = np.flatnonzero(first < 0.0)
    for _ in range(LENGTHS):
        if not open.size:
            break
        whole = open.size == len(first)
        a, b, w = (part if whole else part[open] for part in (start, fall, weight))
        t = length[open, None] * b
        np.subtract(a, t, out=t)
        np.maximum(t, 0.0, out=t)
        np.minimum(t, 1.0, out=t)
        s = slope[open] + length[open] * bend[open] - row_sums(w, t)
        still = np.abs(s) > -FLAT * first[open]
        open, s = open[still], s[still]
        rises = s >= 0.0
        low[open[~rises]], at_low[open[~rises]] = length[open[~rises]], s[~rises]
        high[open[rises]], at_high[open[rises]] = length[open[rises]], s[rises]
        inside = np.isfinite(high[open])
        within = open[inside]
        share = at_low[within] / (at_low[within] - at_high[within])
        length[within] = low[within] + (high[within] - low[within]) * np.clip(share, 0.05, 0.95)
        length[open[~inside]] *= 2.0
    return length
