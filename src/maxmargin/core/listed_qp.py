"""Interior point steps for the best weights over listed answers: Mehrotra's predictor and corrector.

Block i has a list of answers j whose values are v_j = loss_j + a_j . theta. The best weights

    min  1/2 |theta|^2 + sum_i c_i xi_i    so that  s_j = xi_i - v_j(theta) >= 0,  t >= 0,

t the last entries of theta (possibly none), satisfy with multipliers alpha_j and r

    theta + sum_j alpha_j a_j = (0, r),   sum_{j of i} alpha_j = c_i,   alpha_j s_j = 0,   t_e r_e = 0.

A Newton step towards alpha_j s_j = t_e r_e = mu is one system in theta with

    H = I + sum_i sum_j d_j (a_j - mean_i)(a_j - mean_i)' + diag(0, r / t),   d = alpha / s,

mean_i the mean of the a_j of a block under d. A step is two of them on one factor (Mehrotra 1992): the first
aims at mu = 0, and its result determines mu and the products of the changes for the second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np


class Point(NamedTuple):
    """The start of a step: slacks and multipliers of the answers, weights t and their multipliers r.

    `residual` is theta + sum alpha a - (0, r), and `excess` is sum_j alpha_j - c_i; both converge to zero.
    """

    slack: np.ndarray
    alpha: np.ndarray
    t: np.ndarray
    r: np.ndarray
    residual: np.ndarray
    excess: np.ndarray


class Step(NamedTuple):
    """A change of theta, whose last part is t, and of all other variables."""

    theta: np.ndarray
    xi: np.ndarray
    slack: np.ndarray
    alpha: np.ndarray
    t: np.ndarray
    r: np.ndarray


class Equations(ABC):
    """The equations of a step from a point.

    A subclass defines the layout of answers (`sums`, `repeat`), the products with their a_j (`combine`,
    `scores`) and the inverse of H. Where `known` is false there is no answer: its multiplier is 0 and its
    slack 1.
    """

    def __init__(self, point: Point, known: Any = True) -> None:
        self.point, self.known = point, known
        self.d = point.alpha / point.slack
        total = self.sums(self.d)
        self.total = np.where(total > 0, total, 1.0)

    @abstractmethod
    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum over the answers of every block."""

    @abstractmethod
    def repeat(self, values: np.ndarray) -> np.ndarray:
        """One value per block, repeated for each of its answers."""

    @abstractmethod
    def combine(self, weights: np.ndarray) -> np.ndarray:
        """sum_j weights_j a_j."""

    @abstractmethod
    def scores(self, theta: np.ndarray) -> np.ndarray:
        """a_j . theta."""

    @abstractmethod
    def inverse(self, right: np.ndarray) -> np.ndarray:
        """H^-1 right."""

    def solve(self, products: np.ndarray, pair_products: np.ndarray) -> Step:
        """The step that changes alpha s and t r as given, to first order, and removes the residuals."""
        point, d = self.point, self.d
        change, push = products / point.slack, pair_products / point.t
        lift = (point.excess + self.sums(change)) / self.total
        right = -point.residual - self.combine(change - d * self.repeat(lift))
        right[len(right) - len(push) :] += push
        theta = self.inverse(right)
        t = theta[len(theta) - len(push) :]
        scores = self.scores(theta)
        xi = lift + self.sums(d * scores) / self.total
        slack = np.where(self.known, self.repeat(xi) - scores, 0.0)
        return Step(theta, xi, slack, change - d * slack, t, push - point.r / point.t * t)

    def mehrotra(self, least: float = 0.0) -> tuple[Step, float, float]:
        """The corrected step, the mean of the products alpha s and t r, and the mean that it aims at.

        The target is between `least` and the present mean.
        """
        slack, alpha, t, r, _, _ = self.point
        size = np.count_nonzero(np.broadcast_to(self.known, slack.shape)) + len(t)
        mu = (float(np.sum(alpha * slack)) + float(t @ r)) / size
        step = self.solve(-alpha * slack, -t * r)
        primal = min(step_length(slack, step.slack), step_length(t, step.t))
        dual = min(step_length(alpha, step.alpha), step_length(r, step.r))
        left = float(np.sum((alpha + dual * step.alpha) * (slack + primal * step.slack)))
        left += float((t + primal * step.t) @ (r + dual * step.r))
        target = max(mu * min(1.0, max(left, 0.0) / (size * mu)) ** 3, min(mu, least / size))
        products = target - alpha * slack - step.alpha * step.slack
        return self.solve(np.where(self.known, products, 0.0), target - t * r - step.t * step.r), mu, target


def max_step(values: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The largest step that keeps every row of values nonnegative."""
    ratios = np.divide(values, -step, out=np.full(values.shape, np.inf), where=step < 0)
    return ratios.min(axis=-1, initial=np.inf)


def step_length(values: np.ndarray, step: np.ndarray) -> float:
    """The largest step up to 1 that keeps the values nonnegative."""
    return min(1.0, float(max_step(values.reshape(-1), step.reshape(-1))))
