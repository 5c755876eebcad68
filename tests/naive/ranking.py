"""Slow, obvious label ranking: dense weights, every weight renormalised, levels found by bisection."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

TIE = 1e-12  # scores closer than this differ by rounding only


def softmax(theta):
    return np.exp(theta - logsumexp(theta, axis=-1, keepdims=True))


def weights(theta, regulariser):
    return theta.copy() if regulariser == "squared" else softmax(theta)


def conjugate(theta, regulariser):
    """sum over labels of G(theta_y)."""
    if regulariser == "squared":
        return 0.5 * np.sum(theta**2)
    return np.sum(logsumexp(theta, axis=1) - np.log(theta.shape[1]))


def complexity(W, regulariser):
    """sum over labels of F(w_y)."""
    if regulariser == "squared":
        return 0.5 * np.sum(W**2)
    positive = W[W > 0]
    return np.sum(positive * np.log(W.shape[1] * positive))


def loss(p, relevant, margin):
    if not relevant.any() or relevant.all():
        return 0.0
    return max(0.0, margin - (p[relevant].min() - p[~relevant].max()))


def root(function, low, high):
    """Root of a nondecreasing function, or the end of the interval that is nearest to one."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return brentq(function, low, high, xtol=1e-15, rtol=1e-14)


def slope(theta_y, x, a, regulariser):
    """Score of one label after a step a."""
    return weights((theta_y + a * x)[None], regulariser)[0] @ x


def line_search(theta, x, relevant, margin, C, regulariser):
    """Update III: move mass a, each side to a common level, until the levels are `margin` apart."""

    def steps_to(level, labels, sign):
        """Steps of one side that bring all its labels to the level or beyond."""
        out = np.zeros(len(theta))
        for y in labels:
            away = lambda t, y=y: sign * (slope(theta[y], x, sign * t, regulariser) - level)  # noqa: E731
            out[y] = sign * root(away, 0.0, C)
        return out

    def level_of(a, labels, sign):
        """Level that mass a reaches on one side."""
        ends = [slope(theta[y], x, t, regulariser) for y in labels for t in (0.0, sign * C)]
        low, high = sorted((sign * min(ends), sign * max(ends)))
        return sign * root(lambda t: sign * steps_to(sign * t, labels, sign).sum() - a, low, high)

    inside, outside = np.flatnonzero(relevant), np.flatnonzero(~relevant)
    a = root(lambda a: level_of(a, inside, 1) - level_of(a, outside, -1) - margin, 0.0, C)
    return steps_to(level_of(a, inside, 1), inside, 1) + steps_to(level_of(a, outside, -1), outside, -1)


class NaiveRanker:
    """One round at a time on dense rows; labels 0..k-1 known from the start."""

    def __init__(self, k, n, update, regulariser, margin, C):
        self.theta = np.zeros((k, n))
        self.update, self.regulariser, self.margin, self.C = update, regulariser, margin, C
        self.dual = 0.0

    @property
    def W(self):
        return weights(self.theta, self.regulariser)

    def round(self, x, relevant):
        """Predict, judge, update; returns mistake, loss and gain."""
        p = self.W @ x
        if not relevant.any() or relevant.all():
            return False, 0.0, 0.0
        constant = np.all(x == (0.0 if self.regulariser == "squared" else x[0]))
        if constant:
            return True, self.margin, self.margin * self.C
        mistake = p[relevant].min() <= p[~relevant].max() + TIE
        now = loss(p, relevant, self.margin)
        alpha = self.step(x, p, relevant, mistake, now)
        before = conjugate(self.theta, self.regulariser)
        self.theta += alpha[:, None] * x
        gain = self.margin * alpha[relevant].sum() - (conjugate(self.theta, self.regulariser) - before)
        self.dual += gain
        return mistake, now, gain

    def step(self, x, p, relevant, mistake, now):
        alpha = np.zeros(len(p))
        r = np.flatnonzero(relevant & (p <= p[relevant].min() + TIE))[0]
        s = np.flatnonzero(~relevant & (p >= p[~relevant].max() - TIE))[0]
        if self.update == "fixed":
            tau = self.C if mistake else 0.0
        elif now == 0.0:
            tau = 0.0
        elif self.update == "all_pairs":
            return line_search(self.theta, x, relevant, self.margin, self.C, self.regulariser)
        else:

            def descent(t):
                r_score = slope(self.theta[r], x, t, self.regulariser)
                return r_score - slope(self.theta[s], x, -t, self.regulariser) - self.margin

            tau = self.C if descent(self.C) <= 0 else root(descent, 0.0, self.C)
        alpha[r], alpha[s] = tau, -tau
        return alpha


def interior_point(score, curvature, relevant, margin, C, start_loss, steps):
    """The paper's primal-dual interior point method with the full Newton system, iterate by iterate.

    `score(alpha)` and `curvature(alpha)` give m_y and its slope for all labels. Returns the list of
    points (labels, then the slack).
    """
    k = len(relevant)
    d = k + 1
    A = np.zeros((2, d))
    A[0, :k] = 1
    A[1, :k] = relevant
    A[1, k] = 1
    b = np.array([0.0, C])
    P = np.where(np.append(relevant, True), -1.0, 1.0)
    alpha = np.append(np.where(relevant, C / (2 * relevant.sum()), -C / (2 * (~relevant).sum())), C / 2)
    lam = start_loss * np.mean(-P * alpha) / (-P * alpha)
    nu = np.zeros(2)

    def first(alpha):
        return np.append(score(alpha[:k]) - margin * relevant, 0.0)

    def residual(alpha, lam, nu, mu):
        return np.concatenate([first(alpha) + lam * P + A.T @ nu, -lam * P * alpha - mu, A @ alpha - b])

    points = [alpha]
    for _ in range(steps):
        mu = 0.1 * np.sum(lam * -P * alpha) / d
        r = residual(alpha, lam, nu, mu)
        H = np.diag(np.append(curvature(alpha[:k]), 0.0))
        K = np.block(
            [
                [H, np.diag(P), A.T],
                [np.diag(-lam * P), np.diag(-P * alpha), np.zeros((d, 2))],
                [A, np.zeros((2, d + 2))],
            ]
        )
        move = np.linalg.solve(K, -r)
        da, dl, dn = move[:d], move[d : 2 * d], move[2 * d :]
        falling = dl < 0
        s = 0.99 * min(1.0, np.min(-lam[falling] / dl[falling], initial=1.0))
        while np.any(P * (alpha + s * da) >= 0) or np.linalg.norm(
            residual(alpha + s * da, lam + s * dl, nu + s * dn, mu)
        ) > (1 - 0.01 * s) * np.linalg.norm(r):
            s *= 0.5
        alpha, lam, nu = alpha + s * da, lam + s * dl, nu + s * dn
        points.append(alpha)
    return points


def weigh(X, before=(), power=1.0, smooth=0.0):
    """Rows times (smooth + log((2 + t) / (1 + rows before with that column))) ** power, of length one."""
    past = [row != 0 for row in before]
    out = []
    for row in X:
        counts = np.sum(past, axis=0) if past else np.zeros(len(row))
        row_out = row * (smooth + np.log((2 + len(past)) / (1 + counts))) ** power
        out.append(row_out / (np.linalg.norm(row_out) or 1.0))
        past.append(row != 0)
    return np.array(out)
