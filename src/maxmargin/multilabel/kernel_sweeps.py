"""The default solver with a kernel: block sweeps, greedy pair steps, Newton steps.

Problem, dual, gap and letters as in `problem`: signed coefficients B between lo and hi, residuals E = T - K B
R, all label-major. All labels share K.

There are three moves, none of which lowers the dual objective:

- *block sweeps*: a few one-variable sweeps over all labels of some samples with the kernel of these
  samples, then one matrix product that updates all residuals. Cheap per coefficient: for independent labels
  the product has only the changed coefficients, otherwise it is a BLAS product. A prior of low rank is
  applied in its factors. Of many samples, random batches are swept several times within their own kernel,
  block by block, before the product.
- *pair steps* on one label: the most violating coefficient and its best partner (as in `paper_kernel`) move
  together; the pass that updates the residual also finds the next violation. They end when the gap of the
  label has fallen to its part of the goal, or with coupled labels to a quarter, because the others move it
  again. Independent labels run in threads, in both moves.
- *Newton steps*: when the pair steps on a label have cost as much as a Cholesky factorisation of K on its
  free coefficients, that system is solved and the step is clipped to the box.

Independent labels get block sweeps until the gap is small, and then for as long as the last sweep lowered the
gap at a smaller cost than pair steps would, by the number of free coefficients; then pair steps follow. With
coupled labels each epoch takes the move that last raised the dual more relative to its (counted, not timed)
cost.

If K does not fit in memory, samples are taken in random chunks whose own kernel fits; the moves run inside
the chunk and its change is added to all residuals in blocks. A sample whose coefficients all stay at their
bounds is skipped for an epoch.

Training stops on the relative duality gap, recomputed in float64 from B. Work in float32 switches to float64
when rounding keeps the gap from falling.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.core.rows import readonly
from maxmargin.core.threads import aligned_zeros, run_threads
from maxmargin.multilabel import kernel_loops as loops
from maxmargin.multilabel.problem import KernelM3L, Solution

# Blocks that are swept between two checks of the clock.
BLOCKS_AT_ONCE = 16


# Sweeps over a block.
SWEEPS = 8
# A sweep skips a coefficient whose step would gain at most this part of an equal share of its label's gap.
NEGLIGIBLE = 0.003
# Independent labels: passes of block sweeps within the kernel of a batch.
PASSES = 4
# Independent labels: if a sweep ends at up to NEAR times the gap that tol allows, the point at the part BACK
# of the way back to its start is evaluated. The dual objective converges before the primal one, which depends
# on every last step: on all images of Animals with Attributes the gap there is smaller by a seventh.
NEAR, BACK = 1.3, 0.3
# Factor by which one visit reduces the gap of an independent label, and of a coupled one.
INDEPENDENT, COUPLED = 0.01, 0.25
# Visits aim at this part of the gap that tol allows.
AIM = 0.9
# Most free coefficients of a Newton step, most Newton steps of a visit, and the ridge of the system relative
# to its largest diagonal entry.
NEWTON_MOST, NEWTON_ROUNDS, RIDGE = 4000, 5, 1e-10
# Speed of a multiply-add in a matrix product, a block sweep and a factorisation, relative to one in a pair
# step (which waits for memory). They only decide which move comes next, by counted operations.
PRODUCT_SPEED, SWEEP_SPEED, CHOLESKY_SPEED = 80.0, 10.0, 30.0
# The rating of a move that was not taken grows by this factor per epoch, so that it is tried again.
RETRY = 1.25


@dataclass(frozen=True)
class KernelRule:
    """Sizes and costs of the moves; none of them changes the optimum.

    Parameters
    ----------
    block : int
        Samples of a block (their kernel stays in cache).
    batch : int
        Independent labels: samples of a batch, in whose own kernel block sweeps are made before all other
        samples are updated, if that update costs at least as much as the sweeps.
    sweep_until, sweep_epochs : float, int
        Independent labels: pair steps follow below this relative gap, or after this number of epochs.
    pair_steps : float
        Pair steps per free coefficient that reduce the gap of a label by the factor e, at the speeds above
        (`benchmarks/problems/kernel_multilabel.py`).
    batch_speed : float
        The speed of a multiply-add in a block sweep within a batch.
    """

    block: int = 64
    batch: int = 1024
    sweep_until: float = 0.05
    sweep_epochs: int = 4
    pair_steps: float = 0.2
    batch_speed: float = 20.0

    def sweep_cost(self, n: int, n_labels: int, rank: int) -> float:
        """Cost of an epoch of block sweeps, in multiply-adds of pair steps."""
        return n * (n * rank / PRODUCT_SPEED + self.block * n_labels * SWEEPS / SWEEP_SPEED)

    def batch_cost(self, n: int, n_labels: int) -> float:
        """Cost of the passes over all batches, in multiply-adds of pair steps."""
        labels = len(loops.LABELS) * -(-n_labels // len(loops.LABELS))
        return n * PASSES * self.block * labels * SWEEPS / self.batch_speed

    def in_batches(self, n: int, n_labels: int) -> bool:
        """Whether sweeps work on batches, or on blocks of all samples."""
        return n > self.batch and self.sweep_cost(n, 0, n_labels) >= self.batch_cost(n, n_labels)


def newton_cost(m: int) -> float:
    """Cost of a Newton step on m coefficients, in multiply-adds of pair steps: m^3 / 3 and a gather."""
    return m**3 / (3 * CHOLESKY_SPEED) + m**2


class Part(NamedTuple):
    """Some samples, or all of them: their kernel, their columns of the state, their targets."""

    K: np.ndarray
    diagonal: np.ndarray
    state: loops.KernelState
    T: np.ndarray


class KernelSweeps(Evaluated):
    """State of the method; B is the solution, label-major, in working precision.

    Parameters
    ----------
    problem : KernelM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap at which training stops; visits of labels aim at it.
    rng : numpy.random.RandomState
        Draws the order of the samples in the block sweeps.
    n_threads : int, default=1
        Threads over independent labels.
    rule : KernelRule
    """

    def __init__(
        self,
        problem: KernelM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        rng: np.random.RandomState,
        n_threads: int = 1,
        rule: KernelRule | None = None,
    ) -> None:
        self.tol, self.rng, self.n_threads = tol, rng, n_threads
        self.rule = KernelRule() if rule is None else rule
        self.swept, self.before = 0, np.inf
        self.rates = {"sweep": np.inf, "pairs": np.inf}
        self.patience = Patience(3)
        self.gap = np.inf
        self.best = BestWeights()
        self._load(problem, problem.coefficients(alpha))

    def epoch(self, clock: Clock) -> Progress:
        """One pass over all samples (block sweeps) or over all labels (pair steps)."""
        if self.gap <= self.tol:
            # The last running gap was small enough but not its certificate: residuals have drifted.
            self.E[:] = self.problem.target - self._evaluated()[2]
        return super().epoch(clock)

    def _move(self, clock: Clock) -> Progress:
        if self.problem.K.build(clock.expired):
            self._improve_all(clock)
        gaps, duals = measure(self.state, self.T)
        dual = float(duals.sum()) + self.problem.costs.constant
        certificate = Certificate(dual + float(gaps.sum()), dual)
        self.gap = certificate.gap
        self.best.offer(certificate.primal, self.B)
        if self.patience.exhausted(certificate.gap) and self.E.dtype != np.float64:
            self._load(self.problem.precise(), self.problem.feasible(self.B))
        return Progress(certificate, int(np.count_nonzero(self.state.movable().any(axis=0))))

    def _evaluate(self) -> tuple[Solution, Certificate, np.ndarray]:
        """The best B, with its P and the D of the present B, and the scores of the latter, in float64."""
        B = self.problem.feasible(self.B)
        F = self.problem.scores(B)
        certificate = self.problem.certificate(B, F)
        if certificate.gap > self.tol and not self.best.are_last:
            best = self.problem.feasible(self.best.weights)
            at_best = self.problem.certificate(best, self.problem.scores(best))
            if at_best.primal < certificate.primal:
                B, certificate = best, Certificate(at_best.primal, certificate.dual)
        return self.problem.solution(B), certificate, F

    def _load(self, problem: KernelM3L, B: np.ndarray) -> None:
        """Set the problem and the state in the precision of its kernel values."""
        self.problem = problem
        dtype = problem.K.dtype
        self.T = readonly(problem.target.astype(dtype))
        self.R, self.diagonal = (readonly(a.astype(dtype)) for a in (problem.prior, problem.K.diagonal))
        self.r = readonly(np.diag(self.R).copy())
        self.P = None if problem.low_rank is None else problem.low_rank.astype(dtype)
        self.B = B.astype(dtype)
        self.E = (problem.target - problem.scores(B) if B.any() else problem.target).astype(dtype)
        bounds = (readonly(bound.astype(dtype)) for bound in problem.bounds)
        self.state = loops.KernelState(self.E, self.B, *bounds)

    def _improve_all(self, clock: Clock) -> None:
        K = self.problem.K
        if not K.build(clock.expired):
            return
        if K.whole is not None:
            part = Part(readonly(K.whole), self.diagonal, self.state, self.T)
            (self._improve_coupled if self.problem.coupled else self._improve)(part, clock)
            return
        chunks = self._chunks()
        for samples in chunks:
            self._improve_chunk(samples, COUPLED if len(chunks) > 1 else INDEPENDENT, clock)
            if clock.expired():
                break

    def _improve(self, part: Part, clock: Clock) -> None:
        """One epoch on independent labels."""
        gaps, duals = measure(part.state, part.T)
        gap, rule = float(gaps.sum()), self.rule
        primal = gap + float(duals.sum()) + self.problem.costs.constant
        rough = gap > rule.sweep_until * abs(primal) and self.swept < rule.sweep_epochs
        if rough or self._sweeps_pay(part.state, gap):
            before = part.state.E.copy(), part.state.B.copy()
            self._sweep(part, gaps, clock)
            self._average(part, *before)
            self.swept, self.before = self.swept + 1, gap
        else:
            self.before = 0.0
            self._visit_labels(part, gaps, duals, INDEPENDENT, clock)

    def _average(self, part: Part, E: np.ndarray, B: np.ndarray) -> None:
        """Go a part of the way back to the state before a sweep, if that reaches the goal."""
        gap, allowed = self._gap(part)
        if not allowed < gap <= NEAR * allowed:
            return
        back = part.K.dtype.type(BACK)
        then = part.state._replace(
            E=part.state.E + back * (E - part.state.E), B=part.state.B + back * (B - part.state.B)
        )
        gap, allowed = self._gap(part._replace(state=then))
        if gap <= allowed:
            part.state.E[:], part.state.B[:] = then.E, then.B

    def _gap(self, part: Part) -> tuple[float, float]:
        """The gap of all labels, and the gap that tol allows."""
        gaps, duals = measure(part.state, part.T)
        gap = float(gaps.sum())
        return gap, self.tol * abs(gap + float(duals.sum()) + self.problem.costs.constant)

    def _sweeps_pay(self, state: loops.KernelState, gap: float) -> bool:
        """Whether the last sweep lowered the gap at a smaller cost than pair steps would have."""
        if not 0 < gap < self.before or np.isinf(self.before):
            return False
        _, b, lo, hi = state
        L, n = b.shape
        free = int(np.count_nonzero((b > lo) & (b < hi)))
        steps = self.rule.pair_steps * free * np.log(self.before / gap)
        if self.rule.in_batches(n, L):
            return n * steps > self.rule.sweep_cost(n, 0, L) + self.rule.batch_cost(n, L)
        return n * steps > self.rule.sweep_cost(n, L, L)

    def _improve_coupled(self, part: Part, clock: Clock) -> None:
        """One epoch on coupled labels: the move with the larger expected gain per cost."""
        rule = self.rule
        gaps, duals = measure(part.state, part.T)
        L, n = self.E.shape
        move = max(self.rates, key=lambda name: self.rates[name])
        if move == "sweep":
            self._sweep(part, gaps, clock)
            cost = rule.sweep_cost(n, L, L if self.P is None else len(self.P))
        else:
            steps = self._visit_labels(part, gaps, duals, COUPLED, clock)
            cost = n * (steps + L * L / SWEEP_SPEED)
        gained = float(measure(part.state, part.T)[1].sum() - duals.sum())
        self.rates = {name: RETRY * rate for name, rate in self.rates.items()}
        self.rates[move] = gained / cost

    def _improve_chunk(self, samples: np.ndarray, least: float, clock: Clock) -> None:
        """All moves within a chunk; its change is then added to all residuals."""
        E, B, lo, hi, T = (np.ascontiguousarray(array[:, samples]) for array in (*self.state, self.T))
        K, diagonal = readonly(self.problem.K.square(samples)), readonly(self.diagonal[samples])
        if clock.expired():  # before any move, which would have to be carried to all residuals
            return
        part = Part(K, diagonal, loops.KernelState(E, B, readonly(lo), readonly(hi)), readonly(T))
        self._sweep(part, measure(part.state, part.T)[0], clock)
        self._visit_labels(part, *measure(part.state, part.T), least, clock)
        changes = B - self.B[:, samples]
        self.B[:, samples] = B
        if self.P is not None:
            self.E -= self.P.T @ self.problem.K.combine(self.P @ changes, samples)
        else:
            self.E -= self.problem.K.combine(self.R @ changes, samples)

    def _chunks(self) -> list[np.ndarray]:
        """Random chunks of the samples that may still move, whose own kernel fits in memory."""
        K = self.problem.K
        size = max(int(np.sqrt(K.cache_size * 2**20 / K.dtype.itemsize)), self.rule.block)
        inside = (self.state.lo < self.B) & (self.state.hi > self.B)
        order = self.rng.permutation(np.flatnonzero((self.state.movable() | inside).any(axis=0)))
        return [np.sort(part) for part in np.array_split(order, -(-len(order) // size))] if len(order) else []

    def _sweep(self, part: Part, gaps: np.ndarray, clock: Clock) -> None:
        """Block sweeps over all samples in random order; steps with a small part of the gap are skipped."""
        n, rule = len(part.diagonal), self.rule
        if self.problem.coupled:
            self._sweep_coupled(part, self._blocks(n), clock)
            return
        negligible = readonly((NEGLIGIBLE * gaps / n).astype(part.K.dtype))
        if not rule.in_batches(n, len(self.r)):
            self._sweep_labels(part, negligible, clock)
            return
        batches = self._batches(n)
        kept = np.empty(max(len(samples) for samples in batches) ** 2, part.K.dtype)
        for samples in batches:
            self._sweep_batch(part, samples, kept, negligible)
            if clock.expired():
                return

    def _blocks(self, n: int) -> list[np.ndarray]:
        """All samples in random order, cut into blocks."""
        order, block = self.rng.permutation(n), self.rule.block
        return [np.sort(order[begin : begin + block]) for begin in range(0, n, block)]

    def _batches(self, n: int) -> list[np.ndarray]:
        """All samples in random batches of short runs of neighbours, which share cache lines."""
        runs = self.rng.permutation(-(-n // loops.LINE))
        parts = np.array_split(runs, -(-n // self.rule.batch))
        batches = [np.add.outer(loops.LINE * np.sort(part), np.arange(loops.LINE)).ravel() for part in parts]
        return [readonly(batch[batch < n]) for batch in batches]

    def _sweep_labels(self, part: Part, negligible: np.ndarray, clock: Clock) -> None:
        """Block sweeps on independent labels, a range of them in each thread."""
        rule, lanes = self.rule, loops.LANES[part.K.dtype]
        blocks = self._blocks(len(part.diagonal))
        orders = [
            readonly(np.concatenate(blocks[begin : begin + BLOCKS_AT_ONCE]))
            for begin in range(0, len(blocks), BLOCKS_AT_ONCE)
        ]

        def work(labels: slice) -> None:
            state = loops.KernelState(*(array[labels] for array in part.state))
            work = loops.workspace(rule.block, part.K.dtype)
            for order in orders:
                loops.block_sweeps(
                    part.K, self.r[labels], order, state, SWEEPS, negligible[labels], work, lanes
                )
                if clock.expired():
                    return

        run_threads(work, self._ranges(len(self.r)), self.n_threads)

    def _sweep_batch(self, part: Part, samples: np.ndarray, kept: np.ndarray, negligible: np.ndarray) -> None:
        """Several passes of block sweeps within the kernel of some samples, then one product for all others.

        Threads take ranges of labels in the passes, and ranges of columns in the product. `kept` is memory
        for the kernel.
        """
        (L, n), m, rule = part.state.E.shape, len(samples), self.rule
        dtype, lanes = part.K.dtype, loops.LANES[part.K.dtype]
        inside, changes = kept[: m * m].reshape(m, m), np.empty((m, L), dtype)
        orders = [readonly(self.rng.permutation(m)) for _ in range(PASSES)]

        def read(rows: slice) -> None:
            loops.gather(part.K, samples[rows], samples, inside[rows])

        def move(labels: slice) -> None:
            E, B, lo, hi = (np.take(array[labels], samples, axis=1) for array in part.state)
            state = loops.KernelState(E, B.copy(), readonly(lo), readonly(hi))
            work = loops.workspace(rule.block, dtype)
            for order in orders:
                loops.block_sweeps(
                    readonly(inside), self.r[labels], order, state, SWEEPS, negligible[labels],
                    work, lanes,
                )  # fmt: skip
            part.state.B[labels][:, samples] = state.B
            changes[:, labels] = ((B - state.B) * self.r[labels, None]).T

        def propagate(columns: slice) -> None:
            tile = aligned_zeros(rule.block, len(lanes), dtype)
            loops.propagate(part.K, samples, changes, part.state.E, columns.start, columns.stop, tile, lanes)

        run_threads(read, self._ranges(m), self.n_threads)
        run_threads(move, self._ranges(L), self.n_threads)
        # The ranges of columns do not change any rounding.
        run_threads(propagate, self._ranges(n, len(lanes)), self.n_threads)

    def _ranges(self, size: int, unit: int = 1) -> list[slice]:
        """One range of 0..size per thread, cut at multiples of `unit`."""
        units = -(-size // unit)
        cuts = np.linspace(0, units, min(self.n_threads, units) + 1).astype(int) * unit
        return [slice(begin, min(end, size)) for begin, end in pairwise(cuts.tolist())]

    def _sweep_coupled(self, part: Part, blocks: list[np.ndarray], clock: Clock) -> None:
        E = part.state.E
        for samples in blocks:
            rows = part.K[samples]
            changes = np.empty((len(E), len(samples)), E.dtype)
            inside = readonly(rows[:, samples])
            loops.coupled_block_sweeps(inside, self.R, samples, part.state, SWEEPS, changes)
            np.subtract(E, self._mix(changes, rows), out=E)
            if clock.expired():
                return

    def _mix(self, changes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """R changes K[rows], in the cheapest order."""
        if self.P is not None:
            return self.P.T @ ((self.P @ changes) @ rows)
        return (self.R @ changes) @ rows

    def _visit_labels(
        self, part: Part, gaps: np.ndarray, duals: np.ndarray, least: float, clock: Clock
    ) -> int:
        """Pair steps on every label, the largest gap first; returns the number of steps."""
        gap = float(gaps.sum())
        if gap <= 0:
            return 0
        aim = AIM * self.tol * abs(float(duals.sum()) + self.problem.costs.constant)
        reduction = max(min(aim / gap, 1.0), least)
        labels = np.argsort(-gaps)
        if self.problem.coupled:
            return sum(self._visit_coupled(l, part, reduction, clock) for l in labels)
        return sum(run_threads(lambda l: self._visit(l, part, reduction, clock), labels, self.n_threads))

    def _visit_coupled(self, l: int, part: Part, reduction: float, clock: Clock) -> int:
        """Pair steps on one label, then their effect on all labels coupled to it."""
        E = part.state.E
        before = E[l].copy()
        steps = self._visit(l, part, reduction, clock)
        if steps:
            before -= E[l]
            before /= self.r[l]
            loops.update_coupled(l, self.R, before, E)
        return steps

    def _visit(self, l: int, part: Part, reduction: float, clock: Clock) -> int:
        """Reduce the gap of one label by the factor `reduction`; return the number of steps."""
        label = e, b, lo, hi = part.state.label(l)
        target = reduction * loops.label_gap(label)
        if target <= 0 or clock.expired():
            return 0
        n, dtype = len(e), e.dtype
        work = loops.scratch(n, dtype)
        singular = dtype.type(loops.SINGULAR[dtype])
        total = 0
        for _ in range(NEWTON_ROUNDS):
            m = int(np.count_nonzero((b > lo) & (b < hi)))
            budget = max(n, int(newton_cost(m) / n))  # one pair step: n multiply-adds
            steps, gap = loops.label_steps(
                part.K, part.diagonal, self.r[l], label, work, budget, target, singular
            )
            total += steps
            if gap <= target or steps < budget or clock.expired():
                break
            newton_step(part.K, self.r[l], label)
        return total


def measure(state: loops.KernelState, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gap and dual objective, label by label."""
    gaps, duals = np.empty((2, len(T)))
    loops.measure_labels(state, T, gaps, duals)
    return gaps, duals


def newton_step(K: np.ndarray, r: Any, label: loops.KernelState) -> None:
    """Solve for the free coefficients of one label, clip to the box, and move along that line.

    The line search is exact, so the dual objective never falls. Nothing happens if there are no or too many
    free coefficients, or if K is not definite on them.
    """
    e, b, lo, hi = label
    free = np.flatnonzero((b > lo) & (b < hi))
    if not 0 < len(free) <= NEWTON_MOST:
        return
    inside = K[np.ix_(free, free)].astype(np.float64) * r
    inside[np.diag_indices_from(inside)] += RIDGE * inside.diagonal().max()
    try:
        step = cho_solve(cho_factor(inside, lower=True, overwrite_a=True, check_finite=False), e[free])
    except LinAlgError:
        return
    aim = np.clip(b[free] + step, lo[free], hi[free]).astype(b.dtype)
    move = aim - b[free]
    change = r * (move @ K[free])
    slope, curvature = float(move @ e[free]), float(move @ change[free])
    if slope <= 0:
        return
    length = 1.0 if curvature <= slope else slope / curvature
    b[free] = aim if length == 1.0 else b[free] + b.dtype.type(length) * move
    e -= e.dtype.type(length) * change
