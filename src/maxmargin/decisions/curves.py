"""Curves from scores to probabilities, fitted to the held-out scores of all labels at once.

A sigmoid per label, p = 1 / (1 + exp(-(a s + b))), is fitted to Platt's targets (n+ + 1) / (n+ + 2)
and 1 / (n- + 2), so that it is finite for all data. The slopes of the labels share a prior: log a_l is
normal around a common mean, with variance tau^2. With a_l the slope of label l fitted alone and v_l its
variance, tau^2 is the variance of the log a_l beyond their own variances v_l / a_l^2 (DerSimonian and
Laird). Label l then minimises

    log loss_l(a, b) + (log a - mean)^2 / (2 tau^2) ,

so a label with many positives keeps its slope, and one with two takes the slope of the others. If too few
labels have a positive slope to estimate the prior, negative slopes become zero.

An isotonic curve is the best nondecreasing one. The temperature T of softmax(s / T) is the one with
the smallest log loss.

Platt, "Probabilistic outputs for support vector machines", 1999. Zadrozny, Elkan, "Transforming
classifier scores into accurate multiclass probability estimates", KDD 2002. Guo et al., "On
calibration of modern neural networks", ICML 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, logit, softmax
from sklearn.isotonic import IsotonicRegression

from maxmargin.core.state import Array, Number, Sizes, State, floats, indices

MAX_NEWTON_STEPS = 100
MAX_HALVINGS = 30
# Labels whose losses are minimised together: their scores fit into the cache.
BATCH = 16
# Newton stops if no loss falls by more than this, per unit of sample weight.
PRECISION = 1e-10
# Fewer slopes than this do not estimate the variance of the prior.
MIN_LABELS = 3
# Prior guess of tau^2, and its precision: a few slopes can agree by chance (experiments/slopes.py).
PRIOR_VARIANCE, PRIOR_PRECISION = 0.2, 100.0
# Smaller slopes count as zero.
MIN_SLOPE = 1e-100
# Range of log T, relative to the size of the scores.
MIN_LOG_T, MAX_LOG_T = -12.0, 12.0


@dataclass(frozen=True)
class Sigmoids:
    """One sigmoid per label."""

    slope: np.ndarray
    intercept: np.ndarray

    STATE: ClassVar[State] = State(
        {"slope": floats("n_curves", low=0.0), "intercept": floats("n_curves")},
    )

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        return expit(self.slope * scores + self.intercept)


def _check_steps(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check stored curves: every label has at least one knot, and its knots are in order."""
    start, x = state["start"], state["x"]
    if start[0] != 0 or start[-1] != len(x) or (np.diff(start) < 1).any():
        raise ValueError("its knots are not those of one curve after another")
    sizes.fix("n_curves", len(start) - 1)
    inside = np.ones(len(x), bool)
    inside[start[:-1]] = False
    if (np.diff(x)[inside[1:]] < 0).any():
        raise ValueError("the knots of a curve are not in order")


@dataclass(frozen=True)
class IsotonicCurves:
    """One nondecreasing curve per label, through the knots start[l]..start[l + 1] - 1."""

    x: np.ndarray
    y: np.ndarray
    start: np.ndarray

    STATE: ClassVar[State] = State(
        {
            "x": floats("n_knots"),
            "y": Array(("n_knots",), ("f8",), 0.0, 1.0),
            "start": indices("n_starts"),
        },
        _check_steps,
    )

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        out = np.empty(scores.shape)
        for l, (a, b) in enumerate(zip(self.start[:-1], self.start[1:], strict=True)):
            out[:, l] = np.interp(scores[:, l], self.x[a:b], self.y[a:b])
        return out


@dataclass(frozen=True)
class Temperature:
    """softmax(scores / value); the sigmoid if there is one column."""

    value: float

    STATE: ClassVar[State] = State({"value": Number(1e-100)})

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        scaled = scores / self.value
        return expit(scaled) if scores.shape[1] == 1 else softmax(scaled, axis=1)


def fit_sigmoids(scores: np.ndarray, on: np.ndarray, weight: np.ndarray, rate: np.ndarray) -> Sigmoids:
    """Fit the sigmoids of all labels, with slopes shrunk towards a common one.

    Parameters
    ----------
    scores : array of shape (n_samples, n_labels)
    on : bool array of shape (n_samples, n_labels)
    weight : array of shape (n_samples, n_labels)
        Zero for unknown entries.
    rate : array of shape (n_labels,)
        Probability of a label without known entries.
    """
    positive, negative = (weight * on).sum(axis=0), (weight * ~on).sum(axis=0)
    target = np.where(on, (positive + 1) / (positive + 2), 1 / (negative + 2))
    size = positive + negative
    mean = (weight * scores).sum(axis=0) / np.maximum(size, 1e-300)
    centred = scores - mean
    unit = float(np.sqrt((weight * centred**2).sum() / max(weight.sum(), 1e-300))) or 1.0
    loss = _Logistic(centred / unit, target, weight)
    two_sided = (positive > 0) & (negative > 0)
    # 1. Fit every label alone.
    start = logit(np.where(size > 0, (positive + 1) / (size + 2), rate))
    zeros = np.zeros(len(size))
    free, b = loss.minimise(zeros, start, zeros, zeros)
    variance = loss.slope_variance(free, b)
    slope = np.where(two_sided, free, 0.0)
    rising = two_sided & (free > MIN_SLOPE)
    if rising.sum() >= MIN_LABELS:
        # 2. Estimate mean and variance of log a, then refit all labels with this prior.
        logs, variances = np.log(free[rising]), variance[rising] / free[rising] ** 2
        mean_log, tau2 = between_variance(logs, variances, PRIOR_VARIANCE, PRIOR_PRECISION)
        shared = np.full(len(size), np.exp(mean_log))
        penalty = np.full(len(size), 1 / tau2 if tau2 > 0 else np.inf)
        slope, b = loss.minimise(shared, b, shared, penalty)
        slope = np.where(two_sided, slope, np.where(size > 0, shared, 0.0))
    # 3. Refit the intercepts with fixed nonnegative slopes.
    slope = np.maximum(slope, 0.0)
    slope, b = loss.minimise(slope, b, slope, np.full(len(size), np.inf))
    return Sigmoids(slope / unit, b - slope * mean / unit)


def between_variance(
    estimates: np.ndarray, variances: np.ndarray, guess: float = 0.0, precision: float = 0.0
) -> tuple[float, float]:
    """Return the mean of the estimated values and their variance (DerSimonian, Laird).

    A `guess` of the variance weighs as much as estimates with a total precision of `precision`.
    """
    w = 1 / variances
    mean = float(w @ estimates / w.sum())
    excess = float(w @ (estimates - mean) ** 2) - (len(w) - 1) + precision * guess
    scale = float(w.sum() - (w**2).sum() / w.sum()) + precision
    tau2 = max(0.0, excess / scale) if scale > 0 else 0.0
    w = 1 / (variances + tau2)
    return float(w @ estimates / w.sum()), tau2


class _Logistic:
    """sum_i w_i (log(1 + exp(a z_i + b)) - t_i (a z_i + b)) of every label, minimised together."""

    def __init__(self, z: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        # One row per label: a batch of labels is contiguous.
        self.z, self.target, self.weight = (np.ascontiguousarray(part.T) for part in (z, target, weight))

    def some(self, labels: Any) -> _Logistic:
        """Return the losses of some of the labels."""
        few = copy(self)
        few.z, few.target, few.weight = self.z[labels], self.target[labels], self.weight[labels]
        return few

    def at(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the value of every loss, and the probabilities."""
        f = a[:, None] * self.z + b[:, None]
        e = np.exp(-np.abs(f))
        value = np.einsum("li,li->l", self.weight, np.maximum(f, 0.0) + np.log1p(e) - self.target * f)
        return value, np.where(f >= 0, 1.0, e) / (1.0 + e)

    def hessian(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        h = self.weight * p * (1 - p)
        return np.einsum("li,li,li->l", h, self.z, self.z), np.einsum("li,li->l", h, self.z), h.sum(axis=1)

    def slope_variance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the variance of every slope at the minimum: an entry of the inverse Hessian."""
        aa, ab, bb = self.hessian(self.at(a, b)[1])
        return 1 / np.maximum(aa - ab**2 / np.maximum(bb, 1e-300), 1e-12)

    def minimise(
        self, a: np.ndarray, b: np.ndarray, centre: np.ndarray, penalty: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Minimise loss + penalty (log a - log centre)^2 / 2 by Newton; an infinite penalty fixes a."""
        a, b = a.copy(), b.copy()
        for first in range(0, len(a), BATCH):
            left = np.arange(first, min(first + BATCH, len(a)))
            for _ in range(MAX_NEWTON_STEPS):
                part = self.some(left)
                a[left], b[left], gain = part.newton(a[left], b[left], centre[left], penalty[left])
                left = left[gain > PRECISION * np.maximum(part.weight.sum(axis=1), 1.0)]
                if not left.size:
                    break
        return a, b

    def newton(
        self, a: np.ndarray, b: np.ndarray, centre: np.ndarray, penalty: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Make one step per label, halved until its loss does not rise; return the decrease as well."""
        fixed = np.isinf(penalty)
        penalty = np.where(fixed, 0.0, penalty)
        penalised = penalty > 0

        def log_ratio(a: np.ndarray) -> np.ndarray:
            """log a - log centre; infinite for slopes that are not positive."""
            ratio = np.divide(a, centre, out=np.ones(len(a)), where=penalised)
            return np.log(ratio, out=np.full(len(a), np.inf), where=ratio > 0)

        def objective(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, p = self.at(a, b)
            return value + 0.5 * penalty * log_ratio(a) ** 2, p

        before, p = objective(a, b)
        residual = self.weight * (p - self.target)
        # Gauss-Newton curvature of the penalty, which is never negative.
        ridge = np.divide(penalty, a**2, out=np.zeros(len(a)), where=penalised)
        ga = np.where(fixed, 0.0, np.einsum("li,li->l", residual, self.z) + ridge * a * log_ratio(a))
        gb = residual.sum(axis=1)
        aa, ab, bb = self.hessian(p)
        aa, ab, bb = aa + ridge + 1e-9, np.where(fixed, 0.0, ab), bb + 1e-9
        det = aa * bb - ab**2
        da, db = (bb * ga - ab * gb) / det, (aa * gb - ab * ga) / det
        length = np.ones(len(a))
        for _ in range(MAX_HALVINGS):
            after, _ = objective(a - length * da, b - length * db)
            worse = ~(after <= before)
            if not worse.any():
                break
            length[worse] /= 2
        length[worse] = 0.0
        return a - length * da, b - length * db, np.where(worse, 0.0, before - after)


def fit_isotonic(scores: np.ndarray, on: np.ndarray, weight: np.ndarray, rate: np.ndarray) -> IsotonicCurves:
    """Fit a nondecreasing curve per label, with probabilities of at least 1 / (n + 2).

    A label without known entries, or with one sign only, has the same probability everywhere.
    """
    xs, ys = [], []
    for l in range(scores.shape[1]):
        known = weight[:, l] > 0
        size, positive = weight[known, l].sum(), (weight[known, l] * on[known, l]).sum()
        x, y = np.zeros(1), np.array([(positive + 1) / (size + 2) if known.any() else rate[l]])
        if 0 < positive < size:
            curve = IsotonicRegression(out_of_bounds="clip")
            curve.fit(scores[known, l], on[known, l].astype(float), weight[known, l])
            x, y = curve.X_thresholds_, np.clip(curve.y_thresholds_, 1 / (size + 2), 1 - 1 / (size + 2))
        xs.append(np.asarray(x, np.float64))
        ys.append(np.asarray(y, np.float64))
    start = np.concatenate([[0], np.cumsum([len(x) for x in xs])]).astype(np.int64)
    return IsotonicCurves(np.concatenate(xs), np.concatenate(ys), start)


def fit_temperature(scores: np.ndarray, on: np.ndarray, weight: np.ndarray, rate: np.ndarray) -> Temperature:
    """Fit the temperature for one class per sample, to the samples whose scores are all known.

    As with Platt's targets, 1 / (n + 2) of every target is spread over the other classes. Without this,
    T would vanish if all predictions were correct.
    """
    known = (weight > 0).all(axis=1)
    scores, on, weight = scores[known], on[known], weight[known, 0]
    if not len(scores) or (scores.shape[1] == 1 and (on.all() or not on.any())):
        return Temperature(1.0)
    if scores.shape[1] == 1:
        scores, on = np.hstack([np.zeros_like(scores), scores]), np.hstack([~on, on])
    rows, truth = np.arange(len(scores)), np.argmax(on, axis=1)
    missed = 1 / (weight.sum() + 2)
    target = np.where(on, 1 - missed, missed / max(scores.shape[1] - 1, 1))
    unit = float(np.abs(scores - scores[rows, truth][:, None]).mean()) or 1.0

    def slope(log_t: float) -> float:
        """The derivative of the log loss by 1 / T, which increases with 1 / T."""
        P = softmax(scores / (unit * np.exp(log_t)), axis=1)
        return float(weight @ np.einsum("ik,ik->i", P - target, scores))

    if slope(MIN_LOG_T) <= 0 or slope(MAX_LOG_T) >= 0:
        return Temperature(unit * float(np.exp(MIN_LOG_T if slope(MIN_LOG_T) <= 0 else MAX_LOG_T)))
    return Temperature(unit * float(np.exp(brentq(slope, MIN_LOG_T, MAX_LOG_T, xtol=1e-13))))


def minimise_temperature(loss: Callable[[float], float], unit: float) -> Temperature:
    """Return the temperature with the smallest loss; `unit` is the size of the scores."""
    unit = unit or 1.0
    found = minimize_scalar(
        lambda log_t: loss(unit * float(np.exp(log_t))),
        bounds=(MIN_LOG_T, MAX_LOG_T),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return Temperature(unit * float(np.exp(found.x)))
