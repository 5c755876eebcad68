"""Newton's method for the squared hinge loss of few features, one label at a time.

Problem, dual and certificate as in `many`, with rows z_i = (x_i, bias). The primal objective

    P(w) = 1/2 |w|^2 + sum_i c_i max(0, h_i)^2,     h_i = m - y_i w . z_i

is piecewise quadratic: a Newton step leads towards the minimum of the piece at w, and goes as far as P falls
along it. With N the rows of the samples with h_i > 0, y and c those of them, that minimum solves

    (I + 2 N' diag(c) N) w = 2 m N' diag(c) y,     w = m N' (N N' + diag(1 / 2c))^-1 y,

the second where they are fewer than the features and rounding allows it. Whatever w is,
alpha_i = 2 c_i max(0, h_i) is a dual solution, and its gap is what the gradient says:
P(w) - D(alpha) = 1/2 |grad P(w)|^2. So the certificate costs nothing, and the method ends after some steps,
whatever C and the conditioning of X. Columns are divided by powers of two inside, so the scale of a feature
does not matter.

Keerthi, DeCoste, "A modified finite Newton method for fast solution of large scale linear SVMs", Journal of
Machine Learning Research 6, 2005.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve

from maxmargin.core.linalg import ridged_cholesky
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.rows import Rows
from maxmargin.core.threads import run_threads
from maxmargin.multilabel.loops import add_squares
from maxmargin.multilabel.many import Answer, ManyM3L, ManySolution, cull_weights
from maxmargin.multilabel.problem import powers_of_two

# Labels of an epoch for each thread.
BLOCK = 64
# Part of the slope that may be left where a step ends; how often one looks for that place at most.
FLAT, LOOKS = 0.01, 60
# Largest 2 c |z|^2 at which rounding allows equations in samples: features do not scale their matrix.
SAFE = 1e8
# Least part of sparse rows that is not zero from which on they are filled up.
FILLED = 0.2


def filled(Z: Any) -> np.ndarray:
    """Rows with their zeros."""
    return Z.toarray() if sp.issparse(Z) else Z


class SquaredNewton:
    """The solver of `ManyM3L` with the squared hinge loss where features are few.

    Parameters
    ----------
    problem : ManyM3L
        With `squared`.
    tol : float
        The relative gap that every label reaches.
    n_threads : int, default=1
    cull : float, default=0.0
        Largest weight that may be dropped.
    max_rounds : int, default=1000
        Most steps for a label.
    """

    def __init__(
        self, problem: ManyM3L, *, tol: float, n_threads: int = 1, cull: float = 0.0, max_rounds: int = 1000
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        self.cull, self.max_rounds = cull, max_rounds
        X, (n, L) = problem.rows.matrix, problem.shape
        bias = np.full((n, 1), float(problem.bias))
        self.sparse = problem.rows.data.size < FILLED * n * problem.n_features
        if self.sparse:
            self.Z = sp.hstack([X, sp.csr_array(bias)], format="csr", dtype=np.float64)
            largest = abs(self.Z).max(axis=0).toarray().ravel()
        else:
            self.Z = np.hstack([filled(X), bias], dtype=np.float64)
            largest = np.abs(self.Z).max(axis=0, initial=0.0)
        # Products of all samples, which the labels share, where they are not much larger than Z.
        self.products: np.ndarray | None = None
        if n <= 2 * len(largest):
            rows = filled(self.Z)
            self.products = rows @ rows.T
        self.scale = powers_of_two(largest)
        if self.sparse:
            self.Z.data /= self.scale[self.Z.indices]
            self.flat = Rows.of(self.Z).flat
        else:
            self.Z /= self.scale
        longest = float(problem.squares.max(initial=0.0)) + problem.bias**2
        self.safe = SAFE / longest if longest > 0 else np.inf
        self.on = problem.on.tocsc()
        self.constant, self.primal = problem.at_rest()
        self.dual = np.zeros(L)
        self.W = np.zeros((len(largest), L))
        self.W[-1] = self.constant
        self.next, self.stuck = 0, ""

    @property
    def n_epochs(self) -> int:
        """Epochs that all labels take."""
        return -(-self.problem.shape[1] // (BLOCK * self.n_threads))

    def epoch(self, clock: Clock) -> Progress:
        L = self.problem.shape[1]
        labels = range(self.next, min(self.next + BLOCK * self.n_threads, L))
        run_threads(lambda l: self._keep(l, clock), labels, self.n_threads)
        self.next = labels.stop
        certificate = self.certify()
        over, close = self.next == L, certificate.gap <= self.tol
        stuck = self.stuck if over and not close else ""
        return Progress(certificate, len(labels), exact=True, done=over and close, stuck=stuck)

    def certify(self) -> Certificate:
        return Certificate(float(self.primal.sum()), float(self.dual.sum()))

    def solution(self) -> ManySolution:
        return ManySolution(sp.csc_array(self.W), self.primal, self.dual)

    def _keep(self, l: int, clock: Clock) -> None:
        """Solve one label, if there is time, and keep its answer."""
        answer = self.solve(l, clock)
        if answer is not None:
            self.W[:, l], self.primal[l], self.dual[l] = answer

    def solve(self, l: int, clock: Clock, start: np.ndarray | None = None) -> Answer | None:
        """Newton steps on one label until its gap is small enough, and what can be dropped then.

        `start` are weights to begin with, the bias last; None are zeros.
        """
        if clock.expired():
            return None
        problem, on = self.problem, self.on
        y = np.full(problem.shape[0], -1.0)
        y[on.indices[on.indptr[l] : on.indptr[l + 1]]] = 1.0
        c = problem.weight * problem.upper[(y > 0).astype(int), l]
        margin, tol = problem.margin[l], self.tol
        w = np.zeros(len(self.scale)) if start is None else start
        primal, dual = np.inf, 0.0
        for _ in range(self.max_rounds):
            scores = self.Z @ (self.scale * w)
            h = np.maximum(margin - y * scores, 0.0)
            primal = 0.5 * w @ w + c @ h**2
            gradient = w - self.scale * (self.Z.T @ (2 * c * y * h))
            dual = primal - 0.5 * gradient @ gradient
            if primal - dual <= 0.5 * tol * primal:
                break
            step = self._step(w, gradient, np.flatnonzero(c * h > 0), (y, c, margin))
            size = self._fall(w, scores, step, float(gradient @ step), (y, c, margin, primal))
            if size == 0.0:
                self.stuck = "scale the features"
                break
            w = w + size * step
        return self._answer(w, dual, (y, c, margin))

    def _step(self, w: np.ndarray, gradient: np.ndarray, near: np.ndarray, label) -> np.ndarray:
        """The way from w to the minimum of the piece whose violators are `near`."""
        y, c, margin = label
        twice, few = 2 * c[near], len(w) // 2 if self.products is None else len(w)
        if len(near) < few and twice.max(initial=0.0) < self.safe:
            if self.products is None:
                rows = filled(self.Z[near]) * self.scale
                system = rows @ rows.T
            else:
                system = self.products[np.ix_(near, near)]
            system.flat[:: len(system) + 1] += 1 / twice
            shares = np.zeros(len(y))
            shares[near] = margin * cho_solve(ridged_cholesky(system), y[near])
            return self.scale * (self.Z.T @ shares) - w
        if self.sparse:
            system = np.zeros((len(w), len(w)))
            add_squares(self.flat, near, twice, system)
        else:
            rows = self.Z[near]
            system = (rows * twice[:, None]).T @ rows
        system.flat[:: len(system) + 1] += self.scale**-2
        return -cho_solve(ridged_cholesky(system), gradient / self.scale) / self.scale

    def _fall(self, w: np.ndarray, scores: np.ndarray, step: np.ndarray, slope: float, label) -> float:
        """How far to go along the step; zero where rounding leaves nothing to gain."""
        y, c, margin, primal = label
        move = self.Z @ (self.scale * step)
        size, shortest, longest = 1.0, 0.0, np.inf
        for _ in range(LOOKS):
            h = np.maximum(margin - y * (scores + size * move), 0.0)
            rise = (w + size * step) @ step - 2 * (c * y * move) @ h
            if abs(rise) <= -FLAT * slope:
                break
            shortest, longest = (shortest, size) if rise > 0 else (size, longest)
            size -= rise / (step @ step + 2 * (c * (h > 0)) @ move**2)
            if not shortest < size < longest:
                size = 0.5 * (shortest + longest)
        there = w + size * step
        h = np.maximum(margin - y * (scores + size * move), 0.0)
        return size if 0.5 * there @ there + c @ h**2 < primal else 0.0

    def _answer(self, w: np.ndarray, dual: float, label) -> Answer:
        """Keep the weights that the gap needs, and the primal objective of these."""
        y, c, margin = label

        def primal(kept: np.ndarray) -> float:
            h = np.maximum(margin - y * (self.Z @ (self.scale * kept)), 0.0)
            return 0.5 * kept @ kept + c @ h**2

        return Answer(*cull_weights(w, primal(w), dual, self.cull, self.tol, primal), dual)
