"""Block-coordinate Frank-Wolfe for 1/2 |theta|^2 + sum_n c_n max_y [...] with a nonnegative block.

    dual      D(mu) = sum_n c_n loss_n - 1/2 |theta|^2,   theta = u with the nonnegative block cut at zero,
              u = sum_n u_n,  u_n the mean of c_n (phi(x^n, y^n) - phi(x^n, y)) over the planes of sample n
    step      within one sample, weight moves from one plane to a higher one as far as D grows
    gap       P(theta') - D(mu) for any theta'; at theta(mu) it is the sum over samples of
              c_n (value of the highest plane - value of the mean plane)

Lacoste-Julien, Jaggi, Schmidt, Pletscher, "Block-coordinate Frank-Wolfe optimization for structural
SVMs", 2013. There a sample has one plane, its mean, and every step needs inference: `memory` = 1 is
that method. With a memory, a sample also moves weight among its latest sets and to sets that differ
from them in one label, and passes without inference follow each one with it for as long as they pay
(Shah, Kolmogorov, Lampert, "A multi-plane block-coordinate Frank-Wolfe algorithm", 2015). These draw
samples in proportion to their gaps when last seen (Osokin et al., "Minding the gaps for block
Frank-Wolfe optimization of structured SVMs", 2016): long rows fall behind soonest.

D rises steadily while P jumps about, so P is asked for at a weighted mean of the thetas met, later
ones counting more, or at the last one where that looks better. The best theta met is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require

# Most passes without inference after one with it, and the part of the gain of the latter that
# each of them must bring.
CHEAP_PASSES, WORTHWHILE = 10, 0.1
# Most steps in one visit of a sample that has a memory.
ROUNDS = 30
# Part of the visits that go to samples regardless of their gaps.
REGARDLESS = 0.2
# Theta after pass k counts k^(RECENT - 1) in the mean.
RECENT = 6


@dataclass(frozen=True)
class BlockSolution:
    """The best theta met, and the planes of every sample."""

    theta: np.ndarray
    blocks: Any

    def fits(self, problem: Any) -> bool:
        """Whether the blocks are means of planes of this problem: same true sets, same pairs."""
        same_truth = np.array_equal(self.blocks.truth, problem.truth)
        return same_truth and np.array_equal(self.blocks.pairs, problem.pairs.index)


class ClippedBCFW:
    """State of the method: one combination of planes per sample, and theta that they add up to."""

    def __init__(
        self,
        problem: Any,
        rng: np.random.RandomState,
        memory: int = 20,
        start: BlockSolution | None = None,
    ) -> None:
        require(problem, ("blocks", "blocks_vector", "block_pass", "risk", "certificate"), "BCFW")
        self.problem, self.rng = problem, rng
        self.rounds = 1 if memory == 1 else ROUNDS
        self.extra = 0 if memory == 1 else CHEAP_PASSES
        self.blocks = problem.blocks(memory) if start is None else start.blocks
        self.used = np.flatnonzero(problem.cost > 0)
        self.vector = problem.blocks_vector(self.blocks)
        self.best = self.mean = self.theta
        self.best_primal = np.inf
        self.passes = 0

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
        return BlockSolution(self.best, self.blocks)

    def dual(self) -> float:
        theta = self.theta
        return float(self.problem.cost @ self.blocks.losses - 0.5 * theta @ theta)

    def epoch(self, clock: Clock) -> Progress:
        start = self.dual()
        met = self._pass(self.rng.permutation(self.used), ask=True)
        now = self.dual()
        worthwhile = WORTHWHILE * (now - start)
        for _ in range(self.extra):
            self._pass(self._by_gap(), ask=False)
            last, now = now, self.dual()
            if now - last < worthwhile or clock.expired():
                break
        theta = self.theta
        looks = 0.5 * float(theta @ theta) + met
        self._try(theta if looks < self.best_primal else self.mean)
        return Progress(Certificate(self.best_primal, min(now, self.best_primal)), len(self.used))

    def certify(self) -> Certificate:
        self.vector = self.problem.blocks_vector(self.blocks)
        return self.problem.certificate(self.best, self.dual())

    def _pass(self, order: np.ndarray, ask: bool) -> float:
        """Visit the blocks in this order; the loss part of P as it was met on the way."""
        upper = self.problem.block_pass(order, self.vector, self.blocks, self.rounds, ask)
        self.mean = self.mean + RECENT / (RECENT + self.passes) * (self.theta - self.mean)
        self.passes += 1
        return float(self.problem.cost @ upper)

    def _by_gap(self) -> np.ndarray:
        """As many samples as there are, those with large gaps more often."""
        gaps = np.maximum(self.problem.cost * self.blocks.gaps, 0.0)[self.used]
        total, n = float(gaps.sum()), len(self.used)
        if total == 0:
            return self.rng.permutation(self.used)
        return self.rng.choice(self.used, n, p=REGARDLESS / n + (1 - REGARDLESS) * gaps / total)

    def _try(self, theta: np.ndarray) -> None:
        primal = 0.5 * float(theta @ theta) + self.problem.risk(theta)[1]
        if primal < self.best_primal:
            self.best_primal, self.best = primal, theta
