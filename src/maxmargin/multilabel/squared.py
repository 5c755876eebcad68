"""Newton's method for the squared hinge loss of few features, one label at a time.

Problem, dual and certificate as in `many`, with rows z_i = (x_i, bias). The primal objective

    P(w) = 1/2 |w|^2 + sum_i c_i max(0, h_i)^2,     h_i = m - y_i w . z_i

is piecewise quadratic: a Newton step solves with I + 2 sum_(h_i > 0) c_i z_i z_i', and is halved until P
falls by enough. Whatever w is, alpha_i = 2 c_i max(0, h_i) is a dual solution, and its gap is what the
gradient says: P(w) - D(alpha) = 1/2 |grad P(w)|^2. So the certificate costs nothing, and the method ends
after some steps, whatever C and the conditioning of X. Columns are divided by powers of two inside, so the
scale of a feature does not matter.

Keerthi, DeCoste, "A modified finite Newton method for fast solution of large scale linear SVMs", Journal of
Machine Learning Research 6, 2005.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve

from maxmargin.core.linalg import ridged_cholesky
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.threads import one_blas_thread, run_threads
from maxmargin.multilabel.many import Answer, ManyM3L, ManySolution, cull_weights
from maxmargin.multilabel.problem import powers_of_two

# Labels of an epoch for each thread.
BLOCK = 64
# Part of the fall that the gradient promises which a step has to keep; how often it is halved at most.
ENOUGH, HALVINGS = 1e-4, 40


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
        X, L = problem.rows.matrix, problem.shape[1]
        dense = X.toarray() if sp.issparse(X) else X
        self.Z = np.column_stack([dense, np.full(len(dense), problem.bias)]).astype(np.float64)
        self.scale = powers_of_two(np.abs(self.Z).max(axis=0, initial=0.0))
        self.Z /= self.scale
        self.on = problem.on.tocsc()
        self.constant, self.primal = problem.at_rest()
        self.dual = np.zeros(L)
        self.W = np.zeros((self.Z.shape[1], L))
        self.W[-1] = self.constant
        self.next, self.stuck = 0, ""

    @property
    def n_epochs(self) -> int:
        """Epochs that all labels take."""
        return -(-self.problem.shape[1] // (BLOCK * self.n_threads))

    def epoch(self, clock: Clock) -> Progress:
        L = self.problem.shape[1]
        labels = range(self.next, min(self.next + BLOCK * self.n_threads, L))
        with one_blas_thread():
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

    def solve(self, l: int, clock: Clock) -> Answer | None:
        """Newton steps on one label until its gap is small enough, and what can be dropped then."""
        if clock.expired():
            return None
        problem, on = self.problem, self.on
        y = np.full(problem.shape[0], -1.0)
        y[on.indices[on.indptr[l] : on.indptr[l + 1]]] = 1.0
        c = problem.weight * problem.upper[(y > 0).astype(int), l]
        margin, tol = problem.margin[l], self.tol
        w, scores = np.zeros(self.Z.shape[1]), np.zeros(len(y))
        primal, dual = np.inf, 0.0
        for _ in range(self.max_rounds):
            h = np.maximum(margin - y * scores, 0.0)
            primal = 0.5 * w @ w + c @ h**2
            gradient = w - self.scale * (self.Z.T @ (2 * c * y * h))
            dual = primal - 0.5 * gradient @ gradient
            if primal - dual <= 0.5 * tol * primal:
                break
            near = np.flatnonzero(c * h > 0)
            rows = self.Z[near]
            hessian = (rows * (2 * c[near])[:, None]).T @ rows
            hessian.flat[:: len(hessian) + 1] += self.scale**-2
            step = -cho_solve(ridged_cholesky(hessian), gradient / self.scale) / self.scale
            size = self._fall(w, scores, step, float(gradient @ step), (y, c, margin, primal))
            if size == 0.0:
                self.stuck = "scale the features"
                break
            w = w + size * step
            scores = self.Z @ (self.scale * w)
        return self._answer(w, dual, (y, c, margin))

    def _fall(self, w, scores, step, slope, label) -> float:
        """How much of the step to take; zero where rounding leaves nothing to gain."""
        y, c, margin, primal = label
        move, size = self.Z @ (self.scale * step), 1.0
        for _ in range(HALVINGS):
            h = np.maximum(margin - y * (scores + size * move), 0.0)
            there = w + size * step
            if 0.5 * there @ there + c @ h**2 <= primal + ENOUGH * size * slope:
                return size
            size *= 0.5
        return 0.0

    def _answer(self, w: np.ndarray, dual: float, label) -> Answer:
        """Keep the weights that the gap needs, and the primal objective of these."""
        y, c, margin = label

        def primal(kept: np.ndarray) -> float:
            h = np.maximum(margin - y * (self.Z @ (self.scale * kept)), 0.0)
            return 0.5 * kept @ kept + c @ h**2

        return Answer(*cull_weights(w, primal(w), dual, self.cull, self.tol, primal), dual)
