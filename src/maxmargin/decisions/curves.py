"""Curves from scores to probabilities, fitted on held-out scores of all labels at once.

A sigmoid per label, p = 1 / (1 + exp(-(a s + b))), is fitted to Platt's targets (n+ + 1) / (n+ + 2)
and 1 / (n- + 2), so that it is finite whatever the data. The slopes of the labels are taken as drawn
around a shared one, in logarithms, since a steep slope is known as well as a flat one in proportion
only: with a_l the slope of label l alone and v_l its variance, the spread tau^2 of the true log a is what
the log a_l differ by beyond their v_l / a_l^2 (DerSimonian and Laird), and label l minimises

    log loss_l(a, b) + (log a - mean)^2 / (2 tau^2) ,

so that a label with many positives keeps its slope and one with two takes that of the others. Scores
are never turned around: where labels are too few to share a slope, one below zero becomes zero.

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

NEWTON_STEPS = 100
HALVINGS = 30
# Labels whose losses are minimised side by side.
TOGETHER = 16
# A Newton step that lowers no label's loss by more than this (per unit of weight) is the last.
PRECISION = 1e-10
# Fewer labels with a slope of their own say nothing about how slopes spread.
FEWEST = 3
# Few labels can look alike by chance: the spread of the logarithms of slopes that is expected before any is
# seen, and the precision with which it counts beside those of the labels (experiments/slopes.py).
EXPECTED_SPREAD, ITS_PRECISION = 0.2, 100.0
# A smaller slope of a label alone is none.
FLAT = 1e-100
# Temperatures looked at, as powers of e around the size of the scores.
COLDEST, HOTTEST = -12.0, 12.0


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
    """A rule: the knots of every label are in order, and there is at least one."""
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
    """softmax(scores / value); of one column, the sigmoid of it."""

    value: float

    STATE: ClassVar[State] = State({"value": Number(1e-100)})

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        scaled = scores / self.value
        return expit(scaled) if scores.shape[1] == 1 else softmax(scaled, axis=1)


def fit_sigmoids(scores: np.ndarray, on: np.ndarray, weight: np.ndarray, rate: np.ndarray) -> Sigmoids:
    """Sigmoids of all labels, their slopes shrunk towards a shared one.

    Parameters
    ----------
    scores : array of shape (n_samples, n_labels)
    on : bool array of shape (n_samples, n_labels)
    weight : array of shape (n_samples, n_labels)
        Zero for entries that are unknown.
    rate : array of shape (n_labels,)
        Probability of a label all of whose entries are unknown.
    """
    positive, negative = (weight * on).sum(axis=0), (weight * ~on).sum(axis=0)
    target = np.where(on, (positive + 1) / (positive + 2), 1 / (negative + 2))
    size = positive + negative
    mean = (weight * scores).sum(axis=0) / np.maximum(size, 1e-300)
    centred = scores - mean
    unit = float(np.sqrt((weight * centred**2).sum() / max(weight.sum(), 1e-300))) or 1.0
    loss = _Logistic(centred / unit, target, weight)
    two_sided = (positive > 0) & (negative > 0)
    start = logit(np.where(size > 0, (positive + 1) / (size + 2), rate))
    free, b = loss.minimise(np.zeros(len(size)), start, np.zeros(len(size)), np.zeros(len(size)))
    variance = loss.slope_variance(free, b)
    slope = np.where(two_sided, free, 0.0)
    rising = two_sided & (free > FLAT)
    if rising.sum() >= FEWEST:
        logs, variances = np.log(free[rising]), variance[rising] / free[rising] ** 2
        mean_log, spread = spread_of(logs, variances, EXPECTED_SPREAD, ITS_PRECISION)
        shared = np.full(len(size), np.exp(mean_log))
        pull = np.full(len(size), 1 / spread if spread > 0 else np.inf)
        slope, b = loss.minimise(shared, b, shared, pull)
        slope = np.where(two_sided, slope, np.where(size > 0, shared, 0.0))
    slope = np.maximum(slope, 0.0)
    slope, b = loss.minimise(slope, b, slope, np.full(len(size), np.inf))
    return Sigmoids(slope / unit, b - slope * mean / unit)


def spread_of(
    estimates: np.ndarray, variances: np.ndarray, expected: float = 0.0, precision: float = 0.0
) -> tuple[float, float]:
    """Mean of what was estimated, and its variance beyond that of the estimates (DerSimonian, Laird).

    An `expected` variance counts as much as estimates of that `precision` together.
    """
    w = 1 / variances
    mean = float(w @ estimates / w.sum())
    excess = float(w @ (estimates - mean) ** 2) - (len(w) - 1) + precision * expected
    room = float(w.sum() - (w**2).sum() / w.sum()) + precision
    spread = max(0.0, excess / room) if room > 0 else 0.0
    w = 1 / (variances + spread)
    return float(w @ estimates / w.sum()), spread


class _Logistic:
    """sum_i w_i (log(1 + exp(a z_i + b)) - t_i (a z_i + b)) of every label, minimised together."""

    def __init__(self, z: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        # Labels are rows here, so that a few of them fit into the cache.
        self.z, self.target, self.weight = (np.ascontiguousarray(part.T) for part in (z, target, weight))

    def some(self, labels: Any) -> _Logistic:
        """The losses of some of the labels."""
        few = copy(self)
        few.z, few.target, few.weight = self.z[labels], self.target[labels], self.weight[labels]
        return few

    def at(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Value of every loss, and the probabilities."""
        f = a[:, None] * self.z + b[:, None]
        e = np.exp(-np.abs(f))
        value = np.einsum("li,li->l", self.weight, np.maximum(f, 0.0) + np.log1p(e) - self.target * f)
        return value, np.where(f >= 0, 1.0, e) / (1.0 + e)

    def hessian(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        h = self.weight * p * (1 - p)
        return np.einsum("li,li,li->l", h, self.z, self.z), np.einsum("li,li->l", h, self.z), h.sum(axis=1)

    def slope_variance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Variance of every slope at the minimum: an entry of the inverse Hessian."""
        aa, ab, bb = self.hessian(self.at(a, b)[1])
        return 1 / np.maximum(aa - ab**2 / np.maximum(bb, 1e-300), 1e-12)

    def minimise(
        self, a: np.ndarray, b: np.ndarray, centre: np.ndarray, pull: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Newton's method with (log a - log centre)^2 pull / 2 added; an infinite pull keeps a as it is."""
        a, b = a.copy(), b.copy()
        for first in range(0, len(a), TOGETHER):
            left = np.arange(first, min(first + TOGETHER, len(a)))
            for _ in range(NEWTON_STEPS):
                step = self.some(left)
                a[left], b[left], gain = step.newton(a[left], b[left], centre[left], pull[left])
                left = left[gain > PRECISION * np.maximum(step.weight.sum(axis=1), 1.0)]
                if not left.size:
                    break
        return a, b

    def newton(
        self, a: np.ndarray, b: np.ndarray, centre: np.ndarray, pull: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step of every label, halved until it does not raise its loss, and what was gained."""
        held = np.isinf(pull)
        pull = np.where(held, 0.0, pull)
        drawn = pull > 0

        def distance(a: np.ndarray) -> np.ndarray:
            """log a - log centre; infinite for slopes that are not positive."""
            ratio = np.divide(a, centre, out=np.ones(len(a)), where=drawn)
            return np.log(ratio, out=np.full(len(a), np.inf), where=ratio > 0)

        def whole(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, p = self.at(a, b)
            return value + 0.5 * pull * distance(a) ** 2, p

        before, p = whole(a, b)
        slack = self.weight * (p - self.target)
        # The curvature of the square of a logarithm is that of its first-order part: never negative.
        ridge = np.divide(pull, a**2, out=np.zeros(len(a)), where=drawn)
        ga = np.where(held, 0.0, np.einsum("li,li->l", slack, self.z) + ridge * a * distance(a))
        gb = slack.sum(axis=1)
        aa, ab, bb = self.hessian(p)
        aa, ab, bb = aa + ridge + 1e-9, np.where(held, 0.0, ab), bb + 1e-9
        det = aa * bb - ab**2
        da, db = (bb * ga - ab * gb) / det, (aa * gb - ab * ga) / det
        length = np.ones(len(a))
        for _ in range(HALVINGS):
            after, _ = whole(a - length * da, b - length * db)
            worse = ~(after <= before)
            if not worse.any():
                break
            length[worse] /= 2
        length[worse] = 0.0
        return a - length * da, b - length * db, np.where(worse, 0.0, before - after)


def fit_isotonic(scores: np.ndarray, on: np.ndarray, weight: np.ndarray, rate: np.ndarray) -> IsotonicCurves:
    """Nondecreasing curves of all labels; n samples tell no probability below 1 / (n + 2).

    A label whose entries are all unknown, or all on one side, has the same probability everywhere.
    """
    xs, ys = [], []
    for l in range(scores.shape[1]):
        told = weight[:, l] > 0
        size, positive = weight[told, l].sum(), (weight[told, l] * on[told, l]).sum()
        x, y = np.zeros(1), np.array([(positive + 1) / (size + 2) if told.any() else rate[l]])
        if 0 < positive < size:
            curve = IsotonicRegression(out_of_bounds="clip")
            curve.fit(scores[told, l], on[told, l].astype(float), weight[told, l])
            x, y = curve.X_thresholds_, np.clip(curve.y_thresholds_, 1 / (size + 2), 1 - 1 / (size + 2))
        xs.append(np.asarray(x, np.float64))
        ys.append(np.asarray(y, np.float64))
    start = np.concatenate([[0], np.cumsum([len(x) for x in xs])]).astype(np.int64)
    return IsotonicCurves(np.concatenate(xs), np.concatenate(ys), start)


def fit_temperature(scores: np.ndarray, on: np.ndarray, weight: np.ndarray, rate: np.ndarray) -> Temperature:
    """The temperature of one class per sample, from the samples all of whose scores are known.

    n of them tell of no error rarer than 1 / (n + 2), as with Platt's sigmoids: so much of every target is
    shared by the other classes, or answers that are all right would make T vanish.
    """
    told = (weight > 0).all(axis=1)
    scores, on, weight = scores[told], on[told], weight[told, 0]
    if not len(scores) or (scores.shape[1] == 1 and (on.all() or not on.any())):
        return Temperature(1.0)
    if scores.shape[1] == 1:
        scores, on = np.hstack([np.zeros_like(scores), scores]), np.hstack([~on, on])
    rows, truth = np.arange(len(scores)), np.argmax(on, axis=1)
    missed = 1 / (weight.sum() + 2)
    target = np.where(on, 1 - missed, missed / max(scores.shape[1] - 1, 1))
    unit = float(np.abs(scores - scores[rows, truth][:, None]).mean()) or 1.0

    def slope(power: float) -> float:
        """The slope of the log loss in 1 / T, which grows with it."""
        P = softmax(scores / (unit * np.exp(power)), axis=1)
        return float(weight @ np.einsum("ik,ik->i", P - target, scores))

    if slope(COLDEST) <= 0 or slope(HOTTEST) >= 0:
        return Temperature(unit * float(np.exp(COLDEST if slope(COLDEST) <= 0 else HOTTEST)))
    return Temperature(unit * float(np.exp(brentq(slope, COLDEST, HOTTEST, xtol=1e-13))))


def coolest(loss: Callable[[float], float], unit: float) -> Temperature:
    """The temperature with the smallest loss; `unit` is the size of the scores."""
    unit = unit or 1.0
    found = minimize_scalar(
        lambda power: loss(unit * float(np.exp(power))),
        bounds=(COLDEST, HOTTEST),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return Temperature(unit * float(np.exp(found.x)))
