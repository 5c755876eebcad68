"""Exact block solver: one simplex projection per block, few visits to blocks that are done.

Problem, dual and gap are those of `maxmargin.problems.multiclass`. A visit to block i sets

    alpha_i <- projection of alpha_i + H_i / kappa_i on the simplex,

the best point of the block (Crammer and Singer 2001; Keerthi et al. 2008), after which
g_i = 0. No other step gains more from the same point, and none needs fewer numbers.

Which blocks are visited in a pass:

- *shrinking*: a block found optimal at a vertex waits 1, 3, 7, ... passes for its next visit,
  each time it is found so again; a block that moved is visited in every pass;
- *gap sampling*: a block whose last gap was well below the mean waits for one pass.

When the free coordinates are few, Newton steps on their face (`maxmargin.solvers.face`) take
over every `FINISH` passes what sweeps alone would crawl through.

Stopping: the gaps found on arrival, summed over all blocks, say when a certificate is worth
its price. Then W is recomputed from alpha in float64 and all samples are scored, nothing
shrunk away; the run ends when that gap is at most `tol`. The same pass gives every block its
true gap, which wakes the ones that were left out wrongly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.solvers._loop import Certificate, Clock, Progress, require
from maxmargin.solvers.face import solve_face

# Longest wait is 2**LONGEST - 1 passes; after a certificate that failed, 2**SHORT - 1.
LONGEST, SHORT = 6, 2
# Blocks with less than this share of the mean gap sit out one pass.
QUIET = 0.3
# Passes between two attempts to solve the face by Newton steps.
FINISH = 10
# A certificate that fails is followed by passes // CHECKS passes without one.
CHECKS = 6
# Blocks visited between two looks at the clock.
STRIDE = 65536


class ExactBlocks:
    """The method behind ``solver="exact"``."""

    def __init__(
        self,
        problem: Any,
        state: Any,
        tol: float,
        rng: np.random.Generator,
        *,
        sampling: bool = True,
        shrinking: bool = True,
        finishing: bool = True,
    ) -> None:
        require(
            problem, ("exact_sweep", "certify", "first_primal", "present", "run_length"), "solver='exact'"
        )
        self.problem, self.state, self.tol, self.rng = problem, state, tol, rng
        self.sampling, self.shrinking = sampling, shrinking
        self.finishing = finishing and problem.dtype == np.float64
        n = problem.n
        self.gaps = np.full(n, np.inf)
        self.gaps[problem.costs == 0] = 0.0
        self.idle = np.zeros(n, np.bool_)
        self.streak = np.zeros(n, np.int64)
        self.due = np.zeros(n, np.int64)
        self.passes = 0
        # How much of the gaps found on arrival is still there at the end of a pass.
        self.remainder = 0.8
        self.next_check = 0
        self.primal = problem.first_primal()
        self.dual = problem.dual(state)

    def epoch(self, clock: Clock) -> Progress:
        """Visit the blocks that are due; certify when the gaps found look small enough."""
        visited = self._due()
        order = shuffled(visited, self.problem.run_length, self.rng)
        for k in range(0, len(order), STRIDE):
            self.dual += self.problem.exact_sweep(self.state, order[k : k + STRIDE], self.gaps, self.idle)
            if clock.expired():
                break
        found = float(self.gaps.sum())
        if self.finishing and (self.passes + 1) % FINISH == 0 and solve_face(self.problem, self.state):
            self.dual = self.problem.dual(self.state)
        self._reschedule(visited, found)
        close = self.remainder * found <= self.tol * (self.dual + found)
        if close and self.passes >= self.next_check:
            certificate = self.certify()
            self.next_check = self.passes + 1 + self.passes // CHECKS
            if found > 0 and np.isfinite(found):
                self.remainder = min(max((certificate.primal - certificate.dual) / found, 0.05), 2.0)
            return Progress(certificate, len(visited), exact=True)
        return Progress(Certificate(self.primal, self.dual), len(visited))

    def certify(self) -> Certificate:
        """Recompute P and D from the stored blocks; blocks with a gap are due at once."""
        certificate = self.problem.certify(self.state, self.gaps)
        self.primal, self.dual = min(self.primal, certificate.primal), certificate.dual
        awake = self.gaps > 0.01 * self.gaps.mean()
        self.streak[awake] = 0
        self.due[awake] = self.passes
        np.minimum(self.streak, SHORT, out=self.streak)
        np.minimum(self.due, self.passes + 2**SHORT - 1, out=self.due)
        return certificate

    def _due(self) -> np.ndarray:
        present = self.problem.present
        if not (self.shrinking or self.sampling):
            return present
        while True:
            visited = present[self.due[present] <= self.passes]
            if len(visited):
                return visited
            self.passes += 1

    def _reschedule(self, visited: np.ndarray, found: float) -> None:
        self.passes += 1
        wait = np.zeros(len(visited), np.int64)
        if self.sampling:
            wait[self.gaps[visited] <= QUIET * found / self.problem.n] = 1
        if self.shrinking:
            idle = self.idle[visited]
            streak = np.where(idle, np.minimum(self.streak[visited] + 1, LONGEST), 0)
            self.streak[visited] = streak
            wait[idle] = 2 ** streak[idle] - 1
        self.due[visited] = self.passes + wait


def shuffled(visited: np.ndarray, run_length: int, rng: Any) -> np.ndarray:
    """Samples in random order, in runs of neighbours when they are many."""
    if run_length == 1 or len(visited) < 64 * run_length:
        return rng.permutation(visited)
    whole = len(visited) // run_length * run_length
    runs = rng.permutation(visited[:whole].reshape(-1, run_length))
    return np.concatenate([runs.ravel(), visited[whole:]])
