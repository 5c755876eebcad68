"""Newton's method for the labels of `ManyM3L` with the hinge loss with few features, one label at a time.

Members near a label are few where samples are far apart, as texts are. In a few dense dimensions every
sample is near every label, and the ascent on members needs thousands of looks. There each label is a problem
of its own for `Newton`, which needs some dozen steps; all of them share one scaled copy of X.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.threads import run_threads
from maxmargin.multilabel.many import Answer, ManyM3L, ManySolution, cull_weights
from maxmargin.multilabel.newton import Newton, scaled_columns
from maxmargin.multilabel.problem import EntryCosts, LinearM3L

# Labels of an epoch for each thread.
BLOCK = 16


class LabelNewton:
    """The solver of `ManyM3L` with the hinge loss where features are few.

    Parameters
    ----------
    problem : ManyM3L
        Without `squared`.
    tol : float
        The relative gap that every label reaches.
    n_threads : int, default=1
    cull : float, default=0.0
        Largest weight that may be dropped.
    max_rounds : int, default=1000
        Most epochs of Newton's method for a label.
    """

    def __init__(
        self, problem: ManyM3L, *, tol: float, n_threads: int = 1, cull: float = 0.0, max_rounds: int = 1000
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        self.cull, self.max_rounds = cull, max_rounds
        self.on = problem.on.tocsc()
        self.constant, self.primal = problem.at_rest()
        self.dual = np.zeros(problem.shape[1])
        self.W = np.zeros((problem.n_features + 1, problem.shape[1]))
        self.W[-1] = self.constant
        self.columns = scaled_columns(self._label(0))
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

    def _label(self, l: int) -> LinearM3L:
        """One label as a problem of its own."""
        problem, on = self.problem, self.on
        signs = np.full((problem.shape[0], 1), -1, np.int8)
        signs[on.indices[on.indptr[l] : on.indptr[l + 1]]] = 1
        margin = np.full((2, 1), problem.margin[l])
        costs = EntryCosts(signs, problem.weight[:, None], problem.upper[:, [l]], margin)
        return LinearM3L(problem.rows, costs, bias=problem.bias)

    def _keep(self, l: int, clock: Clock) -> None:
        """Solve one label, if there is time, and keep its answer."""
        answer = self.solve(l, clock)
        if answer is not None:
            self.W[:, l], self.primal[l], self.dual[l] = answer

    def solve(self, l: int, clock: Clock, start: np.ndarray | None = None) -> Answer | None:
        """Newton steps on one label until its gap is small enough, and what can be dropped then.

        `start` are weights to begin with, the bias last; None are zeros.
        """
        if clock.expired() or not self.problem.upper[:, l].any():
            return None
        label = self._label(l)
        newton = Newton(label, np.zeros(label.shape), tol=0.5 * self.tol, columns=self.columns)
        if start is not None:
            newton.begin_with(start)
        for _ in range(self.max_rounds):
            progress = newton.epoch(clock)
            if progress.stuck:
                self.stuck = progress.stuck
            close = progress.certificate.gap <= newton.tol and newton.certify().gap <= newton.tol
            if close or progress.stuck or clock.expired():
                break
        alpha, weights = newton.solution()
        primal, dual = newton.certify().primal, newton.certify().dual

        def of(kept: np.ndarray) -> float:
            return label.evaluate(alpha, weights=kept[:, None])[1].primal

        return Answer(*cull_weights(weights[:, 0], primal, dual, self.cull, self.tol, of), dual)
