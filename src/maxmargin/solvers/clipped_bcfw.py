"""Block-coordinate Frank-Wolfe for 1/2 |theta|^2 + sum_n c_n max_y [...] with a nonnegative block.

    dual      D(mu) = sum_n c_n loss_n - 1/2 |theta|^2,   theta = u with the nonnegative block cut at zero,
              u = sum_n u_n,  u_n the mean of c_n (phi(x^n, y^n) - phi(x^n, y)) over the planes of sample n
    step      within one sample, weight moves from its lowest to its highest plane by
              slope / curvature, at most all of it; the curvature ignores the cut at zero, which can
              only make it too large, so D never falls
    gap       P - D = sum_n c_n (slack of the best set - slack of the mean plane), P with proven bounds

Lacoste-Julien, Jaggi, Schmidt, Pletscher, "Block-coordinate Frank-Wolfe optimization for structural
SVMs", 2013. There a sample has one plane, its mean, and every step needs inference: `memory` = 1
and `rounds` = 1 is that method. With a memory, a sample also moves weight among its latest sets, and
passes over all samples without inference follow each one with it (Shah, Kolmogorov, Lampert, "A
multi-plane block-coordinate Frank-Wolfe algorithm", 2015) for as long as they pay.

During a pass the slacks are those met on the way, which prove nothing; `certify` recomputes theta,
D and the bounds of all slacks from the stored blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.solvers._loop import Certificate, Clock, Progress, require

# Most passes without inference after one with it, and the part of the gain of the latter that
# each of them must bring.
CHEAP_PASSES, WORTHWHILE = 10, 0.2


@dataclass(frozen=True)
class BlockSolution:
    """theta and the mean plane of every sample."""

    theta: np.ndarray
    blocks: Any

    def fits(self, problem: Any) -> bool:
        """Whether the blocks are means of planes of this problem: same true sets, same pairs."""
        same_truth = np.array_equal(self.blocks.truth, problem.truth)
        return same_truth and np.array_equal(self.blocks.pairs, problem.pairs.index)


class ClippedBCFW:
    """State of the method: one mean plane per sample, and theta that they add up to."""

    def __init__(
        self,
        problem: Any,
        rng: np.random.RandomState,
        memory: int = 10,
        start: BlockSolution | None = None,
    ) -> None:
        require(problem, ("blocks", "blocks_vector", "block_pass", "certificate"), "BCFW")
        self.problem, self.rng = problem, rng
        self.rounds = 1 if memory == 1 else 2 * memory
        self.extra = 0 if memory == 1 else CHEAP_PASSES
        self.blocks = problem.blocks(memory) if start is None else start.blocks
        self.used = np.flatnonzero(problem.cost > 0)
        self.vector = problem.blocks_vector(self.blocks)

    @property
    def theta(self) -> np.ndarray:
        """theta(u): the nonnegative block cut at zero."""
        theta = self.vector.copy()
        end = len(theta) - self.problem.n_nonnegative
        np.maximum(theta[end:], 0.0, out=theta[end:])
        return theta

    @property
    def solution(self) -> BlockSolution:
        """What to keep of the run."""
        return BlockSolution(self.theta, self.blocks)

    def dual(self) -> float:
        theta = self.theta
        return float(self.problem.cost @ self.blocks.losses - 0.5 * theta @ theta)

    def epoch(self, clock: Clock) -> Progress:
        before = self.dual()
        upper = self.problem.block_pass(
            self.rng.permutation(self.used), self.vector, self.blocks, self.rounds
        )
        theta, now = self.theta, self.dual()
        met = Certificate(max(0.5 * float(theta @ theta) + float(self.problem.cost @ upper), now), now)
        worthwhile = WORTHWHILE * (now - before)
        for _ in range(self.extra):
            order = self.rng.permutation(self.used)
            self.problem.block_pass(order, self.vector, self.blocks, self.rounds, ask=False)
            last, now = now, self.dual()
            if now - last < worthwhile or clock.expired():
                break
        return Progress(Certificate(met.primal, min(now, met.primal)), len(self.used))

    def certify(self) -> Certificate:
        self.vector = self.problem.blocks_vector(self.blocks)
        return self.problem.certificate(self.theta, self.dual())
