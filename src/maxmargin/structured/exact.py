"""Exact block solver: one simplex projection per block, few visits to blocks that are done.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`. A visit to block i sets

    alpha_i <- projection of alpha_i + H_i / kappa_i on the simplex,

the best point of the block (Crammer and Singer 2001; Keerthi et al. 2008), after which
g_i = 0. No other step gains more from the same point, and none needs fewer numbers.

Which blocks are visited in a pass:

- *shrinking*: a block found optimal at a vertex waits 1, 3, 7, ... passes for its next visit,
  each time it is found so again; a block that moved is visited in every pass;
- *gap sampling*: a block whose last gap was well below the mean waits for one pass.

When the free coordinates are few, Newton steps on their face (`maxmargin.structured.face`) take
over every `FINISH` passes what sweeps alone would crawl through.

The primal point: P - D holds for any W, and W(alpha) swings around the optimum while alpha
moves, so that P(W(alpha)) falls late. The mean of W over the last passes is better by a factor
of three to ten and is what is certified, and what the model keeps, while `tol` is not tight
and W is small enough to be looked at a few times in a pass.

Stopping: the gaps found on arrival, summed over all blocks, say when a certificate is worth
its price. Then W(alpha) is recomputed in float64 for the dual and all samples are scored at
the primal point, nothing shrunk away; the run ends when that gap is at most `tol`. Where
scoring in working precision is much cheaper (a dense X with many zeros), that is done first.
Either pass gives every block its gap, which wakes the ones that were left out wrongly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require
from maxmargin.core.rows import readonly
from maxmargin.structured import schedule_loops as schedule
from maxmargin.structured.face import solve_face

# Longest wait is 2**LONGEST - 1 passes.
LONGEST = 6
# Blocks with less than this share of the mean gap sit out one pass.
QUIET = 0.5
# Passes between two attempts to solve the face by Newton steps.
FINISH = 10
# A certificate that fails is followed by passes // CHECKS passes without one.
CHECKS = 6
# From this gap on the mean of W is worth a look; below it W itself settles.
LOOSE = 1e-4


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
        averaging: bool = True,
    ) -> None:
        require(
            problem,
            ("exact_sweep", "certify", "first_primal", "present", "run_length", "stride", "averages"),
            "solver='exact'",
        )
        self.problem, self.state, self.tol, self.rng = problem, state, tol, rng
        self.sampling, self.shrinking = sampling, shrinking
        self.finishing = finishing and problem.dtype == np.float64
        self.averaging = averaging and problem.averages and tol >= LOOSE
        n = problem.n
        self.gaps = np.full(n, np.inf)
        self.gaps[problem.costs == 0] = 0.0
        self.idle = np.zeros(n, np.bool_)
        self.streak, self.due = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.visited = np.empty(len(problem.present) + 1, np.int64)
        self.passes = 0
        # How much of the gaps found on arrival is still there at the end of a pass.
        self.remainder = 0.6
        self.next_check = 0
        self.primal = problem.first_primal()
        self.dual = problem.dual(state)

    def epoch(self, clock: Clock) -> Progress:
        """Visit the blocks that are due; certify when the gaps found look small enough."""
        visited = self._due()
        order = shuffled(visited, self.problem.run_length, self.rng)
        self.state.fade()
        for part in np.array_split(order, -(-len(order) // self.problem.stride)):
            self.dual += self.problem.exact_sweep(self.state, part, self.gaps, self.idle, self.averaging)
            if clock.expired():
                break
        found = float(self.gaps.sum())
        if self.finishing and (self.passes + 1) % FINISH == 0 and solve_face(self.problem, self.state):
            self.dual = self.problem.dual(self.state)
            self.state.forget()
        self._reschedule(visited, found)
        close = self.remainder * found <= self.tol * (self.dual + found)
        if close and self.passes >= self.next_check:
            return self._check(found, len(visited))
        return Progress(Certificate(self.primal, self.dual), len(visited))

    def certify(self) -> Certificate:
        """Recompute P and D from the stored blocks; blocks with a gap are due at once."""
        certificate = self.problem.certify(self.state, self.gaps, self.averaging)
        if self.state.n_sums and certificate.gap > self.tol:
            mean = self.state.certified
            plain = self.problem.certify(self.state, self.gaps)
            if plain.primal <= certificate.primal:
                certificate = plain
            else:
                self.state.certified = mean
        self.primal, self.dual = min(self.primal, certificate.primal), certificate.dual
        self._wake()
        return certificate

    def _check(self, found: float, n_visited: int) -> Progress:
        """Certify, unless a cheaper look says that it would be in vain."""
        self.next_check = self.passes + 1 + self.passes // CHECKS
        primal = self.problem.survey(self.state, self.gaps) if self.averaging else None
        if primal is not None and Certificate(primal, self.dual).gap > self.tol:
            self.next_check = self.passes + 2
            self._learn(primal - self.dual, found)
            self._wake()
            return Progress(Certificate(self.primal, self.dual), n_visited)
        certificate = self.certify()
        self._learn(certificate.primal - certificate.dual, found)
        return Progress(certificate, n_visited, exact=True)

    def _learn(self, gap: float, found: float) -> None:
        if found > 0 and np.isfinite(found):
            self.remainder = min(max(gap / found, 0.05), 2.0)

    def _wake(self) -> None:
        """Blocks with a gap are due at once; the others have just been seen to be done."""
        awake = self.gaps > 0.01 * self.gaps.mean()
        self.streak[awake] = 0
        self.due[awake] = self.passes

    def _due(self) -> np.ndarray:
        present = self.problem.present
        if not (self.shrinking or self.sampling):
            return present
        while True:
            size = schedule.due_blocks(present, self.due, self.passes, self.visited)
            if size:
                return self.visited[:size].copy()
            self.passes += 1

    def _reschedule(self, visited: np.ndarray, found: float) -> None:
        self.passes += 1
        quiet = QUIET * found / self.problem.n if self.sampling else -1.0
        longest = LONGEST if self.shrinking else 0
        schedule.postpone(
            readonly(visited), self.gaps, self.idle, self.passes, quiet, longest, self.streak, self.due
        )


def shuffled(visited: np.ndarray, run_length: int, rng: Any) -> np.ndarray:
    """Samples in random order, in runs of neighbours when they are many."""
    if run_length == 1 or len(visited) < 64 * run_length:
        return rng.permutation(visited)
    whole = len(visited) // run_length * run_length
    runs = rng.permutation(visited[:whole].reshape(-1, run_length))
    return np.concatenate([runs.ravel(), visited[whole:]])
