"""M3L by its definition, dense and slow: an independent twin of the linear loops.

Nothing is kept but the dual variables and the anchor of the bias; the weights X'A, all scores and all
gradients are made anew for every single step. A step is exact coordinate maximisation: the gradient of
the dual is affine in its own variable, so two evaluations of it give the root, and the box cuts it.
"""

from collections import deque

import numpy as np


def boxes_and_margins(costs):
    """c and m entry by entry, by the definition of `EntryCosts`."""
    c, m = np.zeros(costs.signs.shape), np.zeros(costs.signs.shape)
    for i, l in zip(*np.nonzero(costs.signs), strict=True):
        side = {-1: 0, 1: 1}[int(costs.signs[i, l])]
        column = l if costs.weight.shape[1] == costs.signs.shape[1] > 1 else 0
        c[i, l] = costs.weight[i, column] * costs.upper[side, l]
        m[i, l] = costs.margin[i, l] if costs.per_entry_margin else costs.margin[side, l]
    return c, m


def with_bias(X, bias):
    return np.column_stack([X, np.full(len(X), bias)])


def primal(Xb, Y, c, m, R, Z):
    """1/2 tr(R^-1 Z'Z) + sum of hinges; the pseudo-inverse where R is singular."""
    return 0.5 * np.trace(np.linalg.pinv(R) @ Z.T @ Z) + np.sum(c * np.maximum(0, m - Y * (Xb @ Z)))


def dual(Xb, Y, m, R, alpha):
    """<m, alpha> - 1/2 sum_lk R_lk (Y_l alpha_l)' X X' (Y_k alpha_k)."""
    A = Y * alpha
    return np.sum(m * alpha) - 0.5 * np.sum(R * (A.T @ (Xb @ Xb.T) @ A))


def shares(alpha, c, g):
    """The gap of every entry: its loss minus the part that its dual variable accounts for."""
    return (c - alpha) * np.maximum(g, 0) + alpha * np.maximum(-g, 0)


class Twin:
    """The dual at one point; the bias row is anchored at u0 where S was S0, and follows with `damping`.

    Within a pass the bias row of V is u0 + damping bias (S - S0), S = sum_i A_il; `damping` one is the plain
    method, in which the bias is an ordinary feature.
    """

    def __init__(self, X, bias, costs, R, damping=1.0):
        self.X, self.bias, self.Y, self.R = X, bias, costs.signs.astype(float), R
        self.c, self.m = boxes_and_margins(costs)
        self.damping = damping * np.ones(len(R))
        self.alpha = np.zeros(self.Y.shape)
        self.anchor = np.zeros(len(R)), np.zeros(len(R))
        self.primal = 0.0

    @property
    def S(self):
        return (self.Y * self.alpha).sum(axis=0)

    @property
    def V(self):
        u0, S0 = self.anchor
        bias_row = u0 + self.damping * self.bias * (self.S - S0)
        return np.vstack([self.X.T @ (self.Y * self.alpha), bias_row])

    @property
    def Z(self):
        return self.V @ self.R

    def gradient(self):
        return self.m - self.Y * (with_bias(self.X, self.bias) @ self.Z)

    def maximise(self, i, l):
        """The best value of one variable, all others fixed."""
        here, g = self.alpha[i, l], self.gradient()[i, l]
        self.alpha[i, l] = here + 1
        fall = g - self.gradient()[i, l]
        flat = fall < 1e-13
        best = here + g / (1.0 if flat else fall)
        if flat:
            best = self.c[i, l] if g > 0 else here
        self.alpha[i, l] = np.clip(best, 0, self.c[i, l])

    def outward(self, i, l, g):
        """How far the gradient points out of the box: negative at zero, positive at the top, else 0."""
        if self.alpha[i, l] == 0 and g < 0:
            return g
        if self.alpha[i, l] == self.c[i, l] and g > 0:
            return g
        return 0.0

    def visit(self, i, l, reach, small=0.0):
        """A step, unless the entry is out of reach or its share of the gap is small.

        Returns whether it stays, projected g, and share; adds to `primal` what it has of the primal value.
        """
        g = self.gradient()[i, l]
        score = self.Y[i, l] * (self.m[i, l] - g)
        self.primal += 0.5 * self.Y[i, l] * self.alpha[i, l] * score + self.c[i, l] * max(g, 0.0)
        share = shares(self.alpha, self.c, self.gradient())[i, l]
        out = self.outward(i, l, g)
        if out < reach[0][l] or out > reach[1][l]:
            return False, 0.0, share
        if share >= small:
            self.maximise(i, l)
        return True, g - out, share

    def sweep(self, pairs, marks, reach):
        """Visit the marked pairs in order; return the extreme gradients per label and the sum of gaps."""
        low, high, gap_sum = np.zeros(len(self.R)), np.zeros(len(self.R)), 0.0
        for i, l in pairs:
            if marks[i, l]:
                marks[i, l], projected, share = self.visit(i, l, reach)
                low[l], high[l] = min(low[l], projected), max(high[l], projected)
                gap_sum += share
        return low, high, gap_sum

    def sweep_all(self, order, marks):
        """Visit the entries of each sample that have a variable or a positive gradient when its turn comes.

        Marks those that moved or are within their boxes; returns what `sweep` does.
        """
        unbounded = np.full(len(self.R), -np.inf), np.full(len(self.R), np.inf)
        found = []
        for i in order:
            before = self.alpha[i].copy()
            wanted = (before > 0) | (self.gradient()[i] > 0)
            found.append(self.sweep([(i, l) for l in np.flatnonzero(wanted)], np.ones_like(marks), unbounded))
            inside = (self.alpha[i] > 0) & (self.alpha[i] < self.c[i])
            marks[i] = wanted & ((self.alpha[i] != before) | inside)
        low, high, gap_sum = zip(*found, strict=True)
        return np.min(low, axis=0), np.max(high, axis=0), sum(gap_sum)

    def sweep_lists(self, order, lists, reach, small=0.0):
        """Visit the listed labels of each sample; the last of the list takes the place of one that leaves."""
        low, high, gap_sum = np.zeros(len(self.R)), np.zeros(len(self.R)), 0.0
        for i in order:
            waiting, lists[i] = deque(lists[i]), []
            while waiting:
                l = waiting.popleft()
                stays, projected, share = self.visit(i, l, reach, small)
                low[l], high[l] = min(low[l], projected), max(high[l], projected)
                gap_sum += share
                if stays:
                    lists[i].append(l)
                else:
                    waiting.rotate(1)
        return low, high, gap_sum

    def draw_bias(self):
        """End a pass: move the bias row towards bias * S by the factor `damping`, and anchor it there."""
        u = self.V[-1]
        self.anchor = u + self.damping * (self.bias * self.S - u), self.S

    def polish(self, l, samples, shuffle, target, n_passes, least, idle):
        """Passes over some samples of one label (R diagonal); return the gap that the last one summed up.

        `shuffle` gives the order of a pass; the last of the list takes the place of an entry that leaves.
        The variables end at their means over the last pass, in which a step with k visits to go, its own
        included, counts k times. Passes end at a gap of `target`, or of the part `least` of the gap of the
        first pass if that is larger; entries with less than the part `idle` of an equal share of it take no
        step. `damping` of the label is halved after a pass in which the bias overshot its goal.
        """
        small = last = 0.0
        queue, reach, left = list(samples), (-np.inf, np.inf), np.nan
        others = np.arange(len(self.R)) != l
        for done in range(n_passes):
            waiting, queue, moved, left = deque(shuffle(queue)), [], [0.0], 0.0
            turns, means = len(waiting), self.alpha[:, l].copy()
            while waiting:
                i = waiting.popleft()
                g = self.gradient()[i, l]
                share = shares(self.alpha, self.c, self.gradient())[i, l]
                left += share
                if not reach[0] <= self.outward(i, l, g) <= reach[1]:
                    waiting.rotate(1)
                    continue
                queue.append(i)
                if share > small:
                    moved.append(g)
                    before = self.alpha[i, l]
                    self.maximise(i, l)
                    means[i] += (self.alpha[i, l] - before) * (len(waiting) + 1) / turns
            u, S = self.V[-1], self.S
            self.draw_bias()
            self.anchor = np.where(others, u, self.anchor[0]), self.S
            left += 0.5 * self.R[l, l] * (self.bias * S[l] - self.anchor[0][l]) ** 2
            lag = self.bias * S[l] - u[l]
            if lag * last < 0 and self.damping[l] < 1:
                self.damping[l] /= 2
            last = lag
            reach = min(moved) / 4 or -np.inf, max(moved) / 4 or np.inf
            if done == 0:
                target = max(target, least * left)
                small = idle * target / max(len(queue), 1)
            if left <= target:
                break
        self.alpha[:, l] = means
        return left
