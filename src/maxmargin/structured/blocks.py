"""Block methods with a fixed step: BCFW, BCPL, OEG and pairwise steps.

Problem, dual and gap are those of `maxmargin.structured.multiclass_problem`; the steps themselves are
`maxmargin.core.simplex`. One epoch is one pass over a random permutation of the blocks, then a
certificate: W recomputed from alpha in float64, every sample scored. The run ends when that
relative gap is at most `tol`.

| name     | target s of block i                     | step                                  |
|----------|-----------------------------------------|---------------------------------------|
| fw       | vertex of the largest margin            | exact line search (BCFW)              |
| pl       | alpha_ik exp(H_ik / tau), normalised    | exact line search (BCPL, Algorithm 2) |
| eg       | the same                                | 1 (OEG)                               |
| pairwise | mass from the worst to the best answer  | exact, two classes change             |

With averaging the model is the weighted average of all iterates (weight 2/(k+2) at block
step k), and the certificate pairs its primal value with the dual value of the blocks.

An exponentiated step has no line search. Below its safe temperature kappa_i / 4 it may climb
down for ever; a run whose dual has not risen for `PATIENCE` passes is ended, and the best
blocks seen are kept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require

PATIENCE = 10
TOO_COLD = "raise temperature, below whose safe value the dual objective falls,"


class Watch:
    """Remembers the best blocks of a method whose dual may fall, and says when it gave up."""

    def __init__(self, state: Any, dual: float) -> None:
        self.best, self.alpha, self.waited = dual, state.alpha.copy(), 0

    def lost(self, state: Any, dual: float) -> bool:
        if dual > self.best:
            self.best, self.alpha, self.waited = dual, state.alpha.copy(), 0
            return False
        self.waited += 1
        return self.waited >= PATIENCE or not math.isfinite(dual)

    def restore(self, state: Any) -> None:
        state.alpha = self.alpha


class BlockSteps:
    """The method behind the solvers "bcfw", "bcpl", "oeg" and "pairwise"."""

    def __init__(
        self,
        problem: Any,
        state: Any,
        rule: Any,
        rng: np.random.Generator,
        *,
        averaging: bool = False,
        watched: bool = False,
    ) -> None:
        require(problem, ("block_sweep", "certify", "present", "stride"), f"solver with step {rule.name!r}")
        self.problem, self.state, self.rule, self.rng = problem, state, rule, rng
        self.gaps = np.zeros(problem.n)
        self.averaging = averaging
        if averaging:
            require(problem, ("start_averaging", "averaged_primal"), "averaging=True")
            problem.start_averaging(state)
        self.watch = Watch(state, problem.dual(state)) if watched else None

    def epoch(self, clock: Clock) -> Progress:
        """One pass over all blocks in random order, then a certificate."""
        order = self.rng.permutation(self.problem.present)
        for part in np.array_split(order, -(-len(order) // self.problem.stride)):
            self.problem.block_sweep(self.state, self.rule, part, self.gaps)
            if clock.expired():
                break
        certificate = self.certify()
        if self.watch is not None and self.watch.lost(self.state, certificate.dual):
            self.watch.restore(self.state)
            return Progress(self.certify(), len(order), exact=True, stuck=TOO_COLD)
        return Progress(certificate, len(order), exact=True)

    def certify(self) -> Certificate:
        """P and D of the stored blocks; P of the averaged weights when there are any."""
        certificate = self.problem.certify(self.state, self.gaps)
        if self.averaging and self.state.n_steps:
            primal, self.average = self.problem.averaged_primal(self.state)
            return Certificate(primal, certificate.dual)
        return certificate
