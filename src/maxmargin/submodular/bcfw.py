"""Block-coordinate Frank-Wolfe for 1/2 |theta|^2 + sum_n c_n max_y [...] with a nonnegative block.

    dual      D(mu) = sum_n c_n loss_n - 1/2 |theta|^2,   theta = u with the nonnegative block cut at zero,
              u = sum_n u_n,  u_n the mean of c_n (phi(x^n, y^n) - phi(x^n, y)) over the planes of sample n
    step      within one sample, weight moves from one plane to a higher one as far as D grows
    gap       P(theta') - D(mu) for any theta'; at theta(mu) it is the sum over samples of
              c_n (value of the highest plane - value of the mean plane)

Lacoste-Julien, Jaggi, Schmidt, Pletscher, "Block-coordinate Frank-Wolfe optimization for structural SVMs",
2013. There a sample has one plane, its mean, and every step needs inference: `memory` = 1 is that method.
Inference runs for a 64th of the samples at a time, at one theta, before these take their steps.

With a memory, a sample also moves weight among its latest sets and to sets that differ from them in a few
labels. Passes without inference follow each pass with it as long as they raise D enough (Shah, Kolmogorov,
Lampert, "A multi-plane block-coordinate Frank-Wolfe algorithm", 2015). They draw samples in proportion to
their last gaps (Osokin et al., "Minding the gaps for block Frank-Wolfe optimization of structured SVMs",
2016), because long rows converge more slowly. Few steps per visit and many visits are faster than solving
each block: other blocks undo most of the gain of a solved block.

On long rows, c |x|^2 above 1, blocks interfere strongly, and many passes are needed. So a proximal term with
the weight w keeps theta near a centre z: the passes work on

    1/2 |theta|^2 + w/2 |theta - z|^2 + sum_n ...,     theta = (u + w z) / (1 + w), cut at zero,

with steps 1 + w times as long. Every few passes z moves to theta and further in the direction of its last
move (Shalev-Shwartz, Zhang, "Accelerated proximal stochastic dual coordinate ascent", 2014; Lin, Mairal,
Harchaoui, "A universal catalyst for first-order optimization", 2015). D is that of the planes, as before. At
theta the gap is that of the blocks plus 1/2 |theta - theta(mu)|^2; if the second part dominates, w is
reduced.

D rises while P fluctuates. So P is evaluated at a weighted mean of all thetas, with larger weights for later
ones, or at the last theta if its estimated P is lower. The solution is the best theta, with the best D as its
certificate.
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
    StepWorkspace,
    Weights,
    block_pass,
)
from maxmargin.submodular.problem import SubmodularF1

# Largest proximal weight, and the one below which it is zero.
MOST_PROXIMAL, LEAST_PROXIMAL = 30.0, 0.5
# The proximal weight is reduced when |theta - theta(mu)|^2 / 2 is more than this fraction of the gap.
FAR = 0.3
# Most passes without inference: after the first one with it, additional ones after each further one, and at
# most. Inference finds fewer new sets later on.
CHEAP_PASSES, FURTHER_PASSES, MOST_PASSES = 20, 2, 40
# Least gain of a pass without inference, relative to that of the pass with inference before.
WORTHWHILE = 0.01
# Most steps in one visit of a sample with a memory.
ROUNDS = 2
# Fraction of the visits without inference that draw samples uniformly, because their stored gaps may be old.
UNIFORM = 0.2
# Passes between two moves of the centre.
CENTRE_PASSES = 10
# Theta after pass k has the weight k^(RECENCY - 1) in the mean.
RECENCY = 12
# Batches of samples per pass with inference.
BATCHES = 64


def first_blocks(problem: SubmodularF1, memory: int) -> Blocks:
    """Return blocks with every sample at its true set, where theta = 0, and memory for `memory` sets."""
    N, V = problem.truth.shape
    sets, share, kept = np.zeros((N, memory, V), np.uint8), np.zeros((N, memory)), np.zeros(N, np.int64)
    if memory > 1:
        sets[:, 0], share[:, 0], kept[:] = problem.truth, 1.0, 1
    labels, joints = np.zeros((N, V)), np.zeros((N, len(problem.pairs)))
    return Blocks(sets, share, kept, labels, joints, np.zeros(N), np.zeros(N))


def vector_of(problem: SubmodularF1, blocks: Blocks) -> np.ndarray:
    """Return u = sum_n u_n; with its pairs cut at zero it is theta."""
    return problem.features(-problem.cost[:, None] * blocks.labels, -(problem.cost @ blocks.joints))


@dataclass(frozen=True)
class BlockSolution:
    """The best theta, and the planes of every sample with the true sets and pairs they belong to.

    The arrays of the blocks are read-only views of the state of the solver.
    """

    theta: np.ndarray
    blocks: Blocks
    truth: np.ndarray
    pairs: np.ndarray

    def fits(self, problem: SubmodularF1) -> bool:
        """Return whether the blocks are means of planes of this problem: same true sets, same pairs."""
        return np.array_equal(self.truth, problem.truth) and np.array_equal(self.pairs, problem.pairs.index)


class ClippedBCFW(Evaluated):
    """The method: one combination of planes per sample, and their sum u.

    Parameters
    ----------
    problem : SubmodularF1
    rng : RandomState
        Draws the order of the samples.
    memory : int
        How many sets a sample remembers; 1 is the method without memory.
    start : BlockSolution or None
        The solution of another fit, whose blocks are copied.
    proximal_weight : float
        Initial proximal weight, in units of mean(c |x|^2); 0 if memory = 1.
    renewal : int
        Recompute u from the blocks after this many epochs, which removes accumulated rounding.
    """

    def __init__(
        self,
        problem: SubmodularF1,
        rng: np.random.RandomState,
        *,
        memory: int = 40,
        start: BlockSolution | None = None,
        proximal_weight: float = 0.2,
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
        self.proximal_weight = 0.0
        self._keep_best_blocks()
        mean = float(problem.cost @ problem.squares) / max(len(self.used), 1)
        weight = 0.0 if self.plain else min(proximal_weight * mean, MOST_PROXIMAL)
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
        self._set_proximal_weight(weight)
        self._pairs = Pairs(
            readonly(first), readonly(second), readonly(problem.pairs.strength), readonly(which)
        )
        self._matrix = np.zeros((V, V))
        self._work = StepWorkspace.empty(self.blocks.memory.shape[1], V, E)

    def _move(self, clock: Clock) -> Progress:
        """Run a pass with inference, cheap passes as long as they gain enough, and evaluate P."""
        if self.epochs and self.epochs % self.renewal == 0:
            self._set_total(vector_of(self.problem, self.blocks))
        cheap_passes = 0 if self.plain else min(CHEAP_PASSES + self.epochs * FURTHER_PASSES, MOST_PASSES)
        self.epochs += 1
        start = self._pass_objective()
        risk = self.visit(self.rng.permutation(self.used), infer=True)
        worthwhile = WORTHWHILE * (self._pass_objective() - start)
        # Passes over the remembered sets, as long as each raises the dual enough.
        for done in range(1, cheap_passes + 1):
            if done % CENTRE_PASSES == 0:
                self._move_centre()
            start = self._pass_objective()
            self.visit(self._by_gap(), infer=False)
            if self._pass_objective() - start < worthwhile or clock.expired():
                break
        theta = self.problem.cut(self.vector)
        estimate = self.problem.primal(theta, risk)
        self._evaluate_theta(theta if estimate < self.best_primal else self.mean)
        self._keep_best_blocks()
        self._adapt_proximal_weight(theta)
        return Progress(Certificate(self.best_primal, min(self.best_dual, self.best_primal)), len(self.used))

    def _evaluate(self) -> tuple[BlockSolution, Certificate]:
        """Return the best theta and the blocks of the best D, with P and D recomputed from them."""
        blocks = Blocks(*(readonly(part) for part in self.best_blocks))
        dual = self._dual(blocks, vector_of(self.problem, blocks))
        solution = BlockSolution(self.best, blocks, self.problem.truth, self.problem.pairs.index)
        return solution, self.problem.certificate(self.best, dual, self.hints)

    def visit(self, order: np.ndarray, infer: bool, rounds: int | None = None) -> float:
        """Visit the blocks in this order; return the loss part of P met on the way.

        Without `infer` the blocks use their remembered sets, and zero is returned.
        """
        problem = self.problem
        rounds = (1 if self.plain else ROUNDS) if rounds is None else rounds
        risk = 0.0
        if infer:
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
        """Improve the blocks in this order; `found` are the sets that inference found for them."""
        block_pass(
            self.problem.rows.flat,
            self._samples,
            self._pairs,
            readonly(order),
            found,
            rounds,
            Weights(*self.problem.split(self.vector), self._matrix),
            self.blocks,
            self._work,
        )

    def _dual(self, blocks: Blocks, vector: np.ndarray) -> float:
        """Return D of blocks whose u is the vector."""
        problem = self.problem
        return problem.dual(float(problem.cost @ blocks.losses), problem.cut(vector))

    def _pass_objective(self) -> float:
        """Return the dual that passes raise, with the proximal term, up to a constant of the centre."""
        theta = self.problem.cut(self.vector)
        return float(self.problem.cost @ self.blocks.losses) - 0.5 * (1.0 + self.proximal_weight) * float(
            theta @ theta
        )

    def _total(self) -> np.ndarray:
        """Return u, of which `vector` is a mean with the centre."""
        return (1.0 + self.proximal_weight) * self.vector - self.proximal_weight * self.centre

    def _set_total(self, total: np.ndarray) -> None:
        """Set theta, before it is cut, from u and the centre."""
        self.vector = (total + self.proximal_weight * self.centre) / (1.0 + self.proximal_weight)

    def _keep_best_blocks(self) -> None:
        """Copy the blocks if their D is the best yet."""
        dual = self._dual(self.blocks, self._total())
        if dual > self.best_dual:
            self.best_dual, self.best_blocks = dual, Blocks(*(part.copy() for part in self.blocks))

    def _set_proximal_weight(self, proximal_weight: float) -> None:
        """Set the proximal weight, and the centre to theta; a small weight becomes zero."""
        total = self._total()
        self.centre = self.last = self.problem.cut(self.vector)
        self.proximal_weight = proximal_weight if proximal_weight > LEAST_PROXIMAL else 0.0
        self._samples = self._samples._replace(
            cost=readonly(self.problem.cost / (1.0 + self.proximal_weight))
        )
        self._set_total(total)

    def _move_centre(self) -> None:
        """Move the centre to theta and further along its last move (Nesterov's momentum)."""
        if self.proximal_weight == 0:
            return
        total, theta = self._total(), self.problem.cut(self.vector)
        root = (1.0 + self.proximal_weight) ** -0.5
        self.centre = theta + (1.0 - root) / (1.0 + root) * (theta - self.last)
        self.last = theta
        self._set_total(total)

    def _adapt_proximal_weight(self, theta: np.ndarray) -> None:
        """Reduce the proximal weight if the proximal term is too much of the gap, or move the centre."""
        away = theta - self.problem.cut(self._total())
        if 0.5 * float(away @ away) > FAR * (self.best_primal - self.best_dual):
            self._set_proximal_weight(self.proximal_weight / 3)
        else:
            self._move_centre()

    def _by_gap(self) -> np.ndarray:
        """Draw as many samples as there are, those with large gaps more often."""
        gaps = np.maximum(self.problem.cost * self.blocks.gaps, 0.0)[self.used]
        total, n = float(gaps.sum()), len(self.used)
        if total == 0:
            return self.rng.permutation(self.used)
        return self.rng.choice(self.used, n, p=UNIFORM / n + (1 - UNIFORM) * gaps / total)

    def _evaluate_theta(self, theta: np.ndarray) -> None:
        primal = self.problem.primal(theta, self.problem.risk(theta, self.hints)[1])
        if primal < self.best_primal:
            self.best_primal, self.best = primal, theta
