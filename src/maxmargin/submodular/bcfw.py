"""Block-coordinate Frank-Wolfe for 1/2 |theta|^2 + sum_n c_n max_y [...] with a nonnegative block.

    dual      D(mu) = sum_n c_n loss_n - 1/2 |theta|^2,   theta = u with the nonnegative block cut at zero,
              u = sum_n u_n,  u_n the mean of c_n (phi(x^n, y^n) - phi(x^n, y)) over the planes of sample n
    step      within one sample, weight moves from one plane to a higher one as far as D grows
    gap       P(theta') - D(mu) for any theta'; at theta(mu) it is the sum over samples of
              c_n (value of the highest plane - value of the mean plane)

Lacoste-Julien, Jaggi, Schmidt, Pletscher, "Block-coordinate Frank-Wolfe optimization for structural
SVMs", 2013. There a sample has one plane, its mean, and every step needs inference: `memory` = 1 is
that method. Inference answers for a 64th of the samples at a time, at one theta, before these take their
steps. With a memory, a sample also moves weight among its latest sets and to sets that differ from them in a
few labels, and passes without inference follow each one with it for as long as they pay (Shah, Kolmogorov,
Lampert, "A multi-plane block-coordinate Frank-Wolfe algorithm", 2015). These draw
samples in proportion to their gaps when last seen (Osokin et al., "Minding the gaps for block
Frank-Wolfe optimization of structured SVMs", 2016): long rows fall behind soonest.

On long rows, c |x|^2 above 1, what one block gains the others undo, and the passes are many. So theta is held
near a centre z: the passes work on

    1/2 |theta|^2 + hold/2 |theta - z|^2 + sum_n ...,     theta = (u + hold z) / (1 + hold), cut at zero,

where steps are 1 + hold times as long, and after some of them z moves to theta and on in the direction of its
last move (Shalev-Shwartz, Zhang, "Accelerated proximal stochastic dual coordinate ascent", 2014; Lin, Mairal,
Harchaoui, "A universal catalyst for first-order optimization", 2015). D is that of the planes as before. At
theta the gap is that of the blocks plus 1/2 |theta - theta(mu)|^2: where the second part rules, hold gets
smaller. To a gap of 1e-2 enron takes 250 to 300 passes so, and 1,000 without.

D rises while P jumps about, so P is asked for at a weighted mean of the thetas met, later
ones counting more, or at the last one where that looks better. The best theta met is the answer, and the best
D met is its proof.

Few steps in a visit and many visits are faster than blocks that are solved: the passes are cheap, and what
a block gains by itself the others undo. Going on along the last two passes as far as D grows, with shares cut
at zero, was tried on enron: most of such steps lower D once they are cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Evaluated, Progress
from maxmargin.core.rows import readonly
from maxmargin.submodular.block_loops import (
    MISSING,
    Blocks,
    Pairs,
    Samples,
    StepRoom,
    Visit,
    Weights,
    block_pass,
)
from maxmargin.submodular.problem import SubmodularF1

# Theta is held no more than this, and not at all below that.
TIGHT, LOOSE = 30.0, 0.5
# It is held less when its distance from theta(mu) makes more than this part of the gap.
FAR = 0.3
# Most passes without inference after the first one with it, how many more after each that follows, and after
# any: later on inference finds less that is new. With 20 throughout, emotions to 1e-3 needs over 1,000 epochs
# in place of 223.
CHEAP_PASSES, FURTHER_PASSES, MOST_PASSES = 20, 2, 40
# The part of the gain of the pass with inference that each of them must bring.
WORTHWHILE = 0.01
# Most steps in one visit of a sample that has a memory; a visit ends when a step promises less than this part
# of what the visit has gained. More steps are undone by other blocks.
ROUNDS, ENOUGH = 2, 0.1
# Part of the visits without inference that go to samples regardless of their gaps, which may be old.
REGARDLESS = 0.2
# Passes from one move of the centre to the next.
TURN = 10
# Theta after pass k counts k^(RECENCY - 1) in the mean.
RECENCY = 12
# Inference answers for so many parts of the samples in turn, each at one theta.
BATCHES = 64


def first_blocks(problem: SubmodularF1, memory: int) -> Blocks:
    """Every sample at its true set, where theta = 0, with room to remember `memory` sets."""
    N, V = problem.truth.shape
    sets, share, kept = np.zeros((N, memory, V), np.uint8), np.zeros((N, memory)), np.zeros(N, np.int64)
    if memory > 1:
        sets[:, 0], share[:, 0], kept[:] = problem.truth, 1.0, 1
    labels, joints = np.zeros((N, V)), np.zeros((N, len(problem.pairs)))
    return Blocks(sets, share, kept, labels, joints, np.zeros(N), np.zeros(N))


def vector_of(problem: SubmodularF1, blocks: Blocks) -> np.ndarray:
    """u = sum_n u_n, whose positive part on the pairs gives theta."""
    return problem.features(-problem.cost[:, None] * blocks.labels, -(problem.cost @ blocks.joints))


@dataclass(frozen=True)
class BlockSolution:
    """The best theta met, and the planes of every sample with the true sets and pairs they belong to.

    The arrays of the blocks are read-only views of the solver's state, without copies.
    """

    theta: np.ndarray
    blocks: Blocks
    truth: np.ndarray
    pairs: np.ndarray

    def fits(self, problem: SubmodularF1) -> bool:
        """Whether the blocks are means of planes of this problem: same true sets, same pairs."""
        return np.array_equal(self.truth, problem.truth) and np.array_equal(self.pairs, problem.pairs.index)


class ClippedBCFW(Evaluated):
    """State of the method: one combination of planes per sample, and u that they add up to.

    Parameters
    ----------
    problem : SubmodularF1
    rng : RandomState
        Draws the order of the samples.
    memory : int
        How many sets a sample remembers; 1 is the method without memory.
    start : BlockSolution or None
        The solution of another fit, from which the blocks are copied.
    hold : float
        How much theta is held near a centre at the start, in means of c |x|^2; not at all without a memory.
    renewal : int
        After so many epochs u is summed up anew, so that rounding does not pile up.
    """

    def __init__(
        self,
        problem: SubmodularF1,
        rng: np.random.RandomState,
        *,
        memory: int = 40,
        start: BlockSolution | None = None,
        hold: float = 0.2,
        renewal: int = 100,
    ) -> None:
        self.problem, self.rng = problem, rng
        self.plain, self.renewal = memory == 1, renewal
        if start is None:
            self.blocks = first_blocks(problem, memory)
        else:
            self.blocks = Blocks(*(part.copy() for part in start.blocks))
        self.used = np.flatnonzero(problem.cost > 0)
        self.hints = problem.guesses()
        self.vector = vector_of(problem, self.blocks)
        self.best = self.mean = self.centre = self.last = problem.cut(self.vector)
        self.best_primal, self.best_dual = np.inf, -np.inf
        self.hold = 0.0
        self._keep()
        long = (0.0 if self.plain else hold) * float(problem.cost @ problem.squares) / max(len(self.used), 1)
        self.epochs = self.passes = 0
        V, E = problem.truth.shape[1], len(problem.pairs)
        first, second = np.ascontiguousarray(problem.pairs.index.T)
        which = np.full((V, V), MISSING)
        which[first, second] = which[second, first] = np.arange(E)
        self._samples = Samples(
            readonly(problem.truth),
            readonly(problem.cost),
            readonly(problem.squares),
            np.float64(problem.bias),
        )
        self._hold(min(long, TIGHT))
        self._pairs = Pairs(
            readonly(first), readonly(second), readonly(problem.pairs.strength), readonly(which)
        )
        self._matrix = np.zeros((V, V))
        self._room = StepRoom.empty(self.blocks.memory.shape[1], V, E)

    def _move(self, clock: Clock) -> Progress:
        """A pass with inference, cheap ones for as long as they pay, and P of a good theta."""
        if self.epochs and self.epochs % self.renewal == 0:
            self._aim(vector_of(self.problem, self.blocks))
        cheap_passes = 0 if self.plain else min(CHEAP_PASSES + self.epochs * FURTHER_PASSES, MOST_PASSES)
        self.epochs += 1
        start = self._height()
        risk = self.visit(self.rng.permutation(self.used), ask=True)
        worthwhile = WORTHWHILE * (self._height() - start)
        for done in range(1, cheap_passes + 1):
            if done % TURN == 0:
                self._recentre()
            start = self._height()
            self.visit(self._by_gap(), ask=False)
            if self._height() - start < worthwhile or clock.expired():
                break
        theta = self.problem.cut(self.vector)
        looks = self.problem.primal(theta, risk)
        self._try(theta if looks < self.best_primal else self.mean)
        self._keep()
        self._let_go(theta)
        return Progress(Certificate(self.best_primal, min(self.best_dual, self.best_primal)), len(self.used))

    def _evaluate(self) -> tuple[BlockSolution, Certificate]:
        """The best theta and the blocks of the best D; P and D anew, from these."""
        blocks = Blocks(*(readonly(part) for part in self.best_blocks))
        dual = self._dual(blocks, vector_of(self.problem, blocks))
        solution = BlockSolution(self.best, blocks, self.problem.truth, self.problem.pairs.index)
        return solution, self.problem.certificate(self.best, dual, self.hints)

    def visit(self, order: np.ndarray, ask: bool, rounds: int | None = None) -> float:
        """Visit the blocks in this order; answers the loss part of P as it was met on the way.

        Without `ask` the blocks work on their remembered sets, and the answer is zero.
        """
        problem = self.problem
        rounds = (1 if self.plain else ROUNDS) if rounds is None else rounds
        risk = 0.0
        if ask:
            for part in np.array_split(order, range(0, len(order), len(order) // BATCHES + 1)[1:]):
                found = problem.infer(problem.cut(self.vector), self.hints, part)
                bound = np.where(np.isfinite(found.bound), found.bound, found.slack)
                risk += float(problem.cost[part] @ bound)
                self._step(part, found.sets, rounds)
        else:
            self._step(order, np.empty((0, problem.truth.shape[1]), np.uint8), rounds)
        theta = problem.cut(self.vector)
        self.mean = self.mean + RECENCY / (RECENCY + self.passes) * (theta - self.mean)
        self.passes += 1
        return risk

    def _step(self, order: np.ndarray, found: np.ndarray, rounds: int) -> None:
        """Improve the blocks in this order; the sets that inference found are new to them."""
        block_pass(
            self.problem.rows.flat,
            self._samples,
            self._pairs,
            readonly(order),
            found,
            Visit(rounds, ENOUGH),
            Weights(*self.problem.split(self.vector), self._matrix),
            self.blocks,
            self._room,
        )

    def _dual(self, blocks: Blocks, vector: np.ndarray) -> float:
        """D of blocks whose u is the vector."""
        problem = self.problem
        return problem.dual(float(problem.cost @ blocks.losses), problem.cut(vector))

    def _height(self) -> float:
        """What passes raise: the dual of what they work on, up to a constant of the centre."""
        theta = self.problem.cut(self.vector)
        return float(self.problem.cost @ self.blocks.losses) - 0.5 * (1.0 + self.hold) * float(theta @ theta)

    def _total(self) -> np.ndarray:
        """u, of which `vector` is a mean with the centre."""
        return (1.0 + self.hold) * self.vector - self.hold * self.centre

    def _aim(self, total: np.ndarray) -> None:
        """Write theta, before it is cut, that belongs to u and the centre."""
        self.vector = (total + self.hold * self.centre) / (1.0 + self.hold)

    def _keep(self) -> None:
        """Keep the blocks if their D is the best so far."""
        dual = self._dual(self.blocks, self._total())
        if dual > self.best_dual:
            self.best_dual, self.best_blocks = dual, Blocks(*(part.copy() for part in self.blocks))

    def _hold(self, hold: float) -> None:
        """Hold theta so much from now on, where it is; not at all if that is little."""
        total = self._total()
        self.centre = self.last = self.problem.cut(self.vector)
        self.hold = hold if hold > LOOSE else 0.0
        self._samples = self._samples._replace(cost=readonly(self.problem.cost / (1.0 + self.hold)))
        self._aim(total)

    def _recentre(self) -> None:
        """Move the centre to theta and on, by the part of its last move that suits the hold."""
        if self.hold == 0:
            return
        total, theta = self._total(), self.problem.cut(self.vector)
        root = (1.0 + self.hold) ** -0.5
        self.centre = theta + (1.0 - root) / (1.0 + root) * (theta - self.last)
        self.last = theta
        self._aim(total)

    def _let_go(self, theta: np.ndarray) -> None:
        """Hold theta less where that makes too much of the gap, or move the centre."""
        away = theta - self.problem.cut(self._total())
        if 0.5 * float(away @ away) > FAR * (self.best_primal - self.best_dual):
            self._hold(self.hold / 3)
        else:
            self._recentre()

    def _by_gap(self) -> np.ndarray:
        """As many samples as there are, those with large gaps more often."""
        gaps = np.maximum(self.problem.cost * self.blocks.gaps, 0.0)[self.used]
        total, n = float(gaps.sum()), len(self.used)
        if total == 0:
            return self.rng.permutation(self.used)
        return self.rng.choice(self.used, n, p=REGARDLESS / n + (1 - REGARDLESS) * gaps / total)

    def _try(self, theta: np.ndarray) -> None:
        primal = self.problem.primal(theta, self.problem.risk(theta, self.hints)[1])
        if primal < self.best_primal:
            self.best_primal, self.best = primal, theta
