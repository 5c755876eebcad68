"""Short lists of answers with weights, and the steps on them: pairwise, Frank-Wolfe, cutting planes.

`ROWS` decides before every epoch which of them runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.loop import Clock
from maxmargin.edge.estimator import Row, first_that_holds
from maxmargin.structured.block_solver import Blocks, BlockSolver, ConvexProblem, Problem
from maxmargin.structured.oracle_loops import (
    AtomRule,
    atom_epoch,
    cached_epoch,
    expand_atoms,
    weights_of_atoms,
)
from maxmargin.structured.planes import Listed, affordable, solve_listed

# Slots for atoms that a block starts with.
CAPACITY = 8
# A visit takes at most so many steps, until the gap of its list has shrunk to this share of itself.
STEPS, PRECISION = 100, 0.1
# Divides the curvature of the quadratic that a visit minimises. The dual still rises: the minimiser d
# satisfies d . H >= d'Qd / RELAXATION, so the change of the true quadratic is at most
# (1/2 - 1/RELAXATION) d'Qd < 0. Over-relaxation anticipates the steps of other blocks.
RELAXATION = 1.5


class Atoms(NamedTuple):
    """Answers with weights, of all blocks, in flat arrays.

    Block i has ``capacity[i]`` slots, from ``atom_at[i]`` in `alpha` and `losses`, from ``gram_at[i]`` in
    `grams` (capacity x capacity) and from ``answer_at[i]`` in `answers` (capacity x ``widths[i]``, the
    numbers that encode an answer); ``filled[i]`` slots are in use. The first atom is the one the block
    started with. Other atoms of weight 0 stay cached until their slot is needed.
    """

    widths: np.ndarray
    capacity: np.ndarray
    filled: np.ndarray
    answer_at: np.ndarray
    atom_at: np.ndarray
    gram_at: np.ndarray
    answers: np.ndarray
    alpha: np.ndarray
    losses: np.ndarray
    grams: np.ndarray

    @classmethod
    def empty(cls, widths: np.ndarray, capacity: np.ndarray) -> Atoms:
        def starts(sizes: np.ndarray) -> np.ndarray:
            return np.concatenate([[0], np.cumsum(sizes)])

        answer_at, atom_at, gram_at = starts(capacity * widths), starts(capacity), starts(capacity**2)
        filled, answers = np.zeros(widths.size, np.int64), np.zeros(answer_at[-1], np.int32)
        alpha, losses = np.zeros((2, atom_at[-1]))
        grams = np.zeros(gram_at[-1])
        return cls(widths, capacity, filled, answer_at, atom_at, gram_at, answers, alpha, losses, grams)

    def copy(self) -> Atoms:
        return Atoms(*(part.copy() for part in self))

    def of(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Answers, weights and Gram matrix of block i, as views."""
        capacity = self.capacity[i]
        answers = self.answers[self.answer_at[i] : self.answer_at[i + 1]].reshape(capacity, self.widths[i])
        gram = self.grams[self.gram_at[i] : self.gram_at[i + 1]].reshape(capacity, capacity)
        return answers, self.alpha[self.atom_at[i] : self.atom_at[i + 1]], gram

    def in_use(self) -> np.ndarray:
        """Number of atoms with a positive weight in every block."""
        return np.add.reduceat(self.alpha > 0, self.atom_at[:-1], dtype=np.int64)

    def expected_loss(self) -> np.ndarray:
        """E Delta of every block."""
        return np.add.reduceat(self.alpha * self.losses, self.atom_at[:-1])

    def enlarged(self) -> Atoms:
        """The same with twice the slots for full blocks whose weights use more than half of them."""
        full = self.filled == self.capacity
        if not full.any():
            return self
        full &= 2 * self.in_use() > self.capacity
        if not full.any():
            return self
        new = Atoms.empty(self.widths, np.where(full, 2 * self.capacity, self.capacity))
        m = self.filled
        new.filled[:] = m
        copy_runs(self.answers, self.answer_at[:-1], new.answers, new.answer_at[:-1], m * self.widths)
        copy_runs(self.alpha, self.atom_at[:-1], new.alpha, new.atom_at[:-1], m)
        copy_runs(self.losses, self.atom_at[:-1], new.losses, new.atom_at[:-1], m)
        # Row r of the Gram matrix of a block begins r times its capacity behind the first.
        block, row = np.repeat(np.arange(m.size), m), np.arange(m.sum()) - np.repeat(np.cumsum(m) - m, m)
        old_at, new_at = (atoms.gram_at[block] + row * atoms.capacity[block] for atoms in (self, new))
        copy_runs(self.grams, old_at, new.grams, new_at, m[block])
        return new


def copy_runs(
    source: np.ndarray, begins: np.ndarray, target: np.ndarray, targets: np.ndarray, lengths: np.ndarray
) -> None:
    """Copy the runs of `source` that start at `begins` to the positions `targets` in `target`."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(targets, lengths) + within] = source[np.repeat(begins, lengths) + within]


class AtomBlocks(Blocks):
    """Steps on short lists of answers.

    A visit calls the oracle for the best answer u, adds it to the list of the block and then either moves
    alpha towards u (Frank-Wolfe) or, on the list alone, repeatedly moves weight from the worst answer v in
    use to the best one, gamma = min((H_u - H_v) / (C_i |Psi_u - Psi_v|^2), alpha_v).

    A pairwise epoch then visits the blocks again without the oracle, which costs a fraction of a call.

    Parameters
    ----------
    atoms : Atoms
        The start; updated in place.
    pairwise : bool
        Pairwise steps rather than Frank-Wolfe.
    steps : int
        Maximum number of steps in a visit.
    repeats : int
        Maximum number of visits without the oracle in an epoch.
    scored : int or None
        Number of answers that the oracle scores in an epoch; the repeated visits cost no more than that.
    first_steps : int
        Epochs of steps before cutting planes, for a problem with few weights.
    late_steps : int
        Further epochs before cutting planes, for a problem with more weights.

    Pairwise steps with an active set: Lacoste-Julien and Jaggi (2015); cached answers: Shah,
    Kolmogorov and Lampert (2015), Osokin et al. (2016).
    """

    averages = True

    def __init__(
        self,
        problem: Problem,
        blocks: Any,
        atoms: Atoms,
        work: Any,
        *,
        pairwise: bool = True,
        steps: int = STEPS,
        repeats: int = 5,
        scored: int | None = None,
        first_steps: int = 5,
        late_steps: int = 150,
    ) -> None:
        super().__init__(problem, blocks)
        self.first_steps = self.steps_left = first_steps
        self.late_steps = late_steps
        self.atoms, self.work = atoms, work
        self.rule = AtomRule(pairwise, steps, PRECISION, RELAXATION)
        self.repeats, self.scored = repeats, scored

    @property
    def dual(self) -> Atoms:
        return self.atoms

    def visit(self, order: np.ndarray) -> None:
        atom_epoch(self.blocks, self.w, self.atoms, self.rule, order, self.gaps, self.work)

    def revisit(self, order: np.ndarray) -> None:
        """Visit the blocks of `order` without the oracle."""
        cached_epoch(self.blocks, self.w, self.atoms, self.rule, order)

    def sweep(self, rng: np.random.RandomState, clock: Clock) -> int:
        self.atoms = self.atoms.enlarged()
        self.steps_left -= 1
        row = first_that_holds(ROWS, self)
        self.name = row.name
        self.solved = row.build is AtomBlocks.cut
        return int(row.build(self, rng, clock))

    def affords_planes(self, late: bool) -> bool:
        """Whether weights and stored answers are few enough for cutting planes, early or late."""
        answers = int((self.atoms.filled[self.visited] + 1).sum())
        return affordable(answers, self.problem.size, late)

    def cut(self, rng: np.random.RandomState, clock: Clock) -> int:
        """Call the oracle at the mean of w, then solve over all stored answers; see planes.py.

        The solution repositions the mean. If rounding keeps the dual from rising, the distributions stay and
        block steps follow.
        """
        order, atoms, vector = self.visited, self.atoms, np.zeros_like(self.vector)
        store_only = self.rule._replace(steps=0)
        atom_epoch(
            self.blocks, self.problem.shaped(self.mean.value), atoms, store_only, order, self.gaps, self.work
        )
        filled = atoms.filled[order]
        begins = np.cumsum(filled) - filled
        positions = np.arange(filled.sum()) + np.repeat(atoms.atom_at[order] - begins, filled)
        Psi = np.empty((positions.size, vector.size))
        expand_atoms(self.blocks, atoms, order, self.problem.shaped(vector), vector, Psi)
        listed = Listed(Psi, atoms.losses[positions], self.problem.costs[order], begins)
        before, dual = atoms.alpha[positions], self.objective()
        w, alpha = solve_listed(listed, self.mean.value, before, self.rule.precision, clock)
        self.mean.restart(w)
        atoms.alpha[positions] = alpha
        self.synchronise()
        if not self.objective() > dual:
            atoms.alpha[positions] = before
            self.synchronise()
            self.steps_left = self.first_steps
        return order.size

    def walk(self, rng: np.random.RandomState, clock: Clock) -> tuple[np.ndarray | None, int]:
        mean, seen = super().walk(rng, clock)
        if mean is None or not self.rule.pairwise:
            return mean, seen
        in_use = self.atoms.in_use()
        mixed = self.visited[in_use[self.visited] > 1]
        repeats = self.repeats if self.scored is None else min(self.repeats, self.scored // in_use.sum())
        for _ in range(repeats):
            if clock.expired():
                return None, seen
            self.revisit(rng.permutation(mixed))
            mean += self.vector
        return mean / (1 + repeats), seen

    def expected_loss(self) -> np.ndarray:
        return self.atoms.expected_loss()

    def recompute(self) -> tuple[np.ndarray, np.ndarray]:
        vector = np.zeros_like(self.vector)
        weights_of_atoms(self.blocks, self.atoms, self.problem.shaped(vector))
        return vector, self.expected_loss()


ROWS = (
    Row(
        "bcfw",
        lambda blocks: not blocks.rule.pairwise,
        Blocks.sweep,
        "solver='bcfw'.",
    ),
    Row(
        "planes",
        lambda blocks: blocks.steps_left < 0 and blocks.affords_planes(late=False),
        AtomBlocks.cut,
        "Few weights, after some epochs of steps: the cost of cutting planes does not depend on C.",
    ),
    Row(
        "planes",
        lambda blocks: blocks.steps_left < -blocks.late_steps and blocks.affords_planes(late=True),
        AtomBlocks.cut,
        "More weights, after many epochs of steps, which are slow here.",
    ),
    Row(
        "pairwise",
        lambda blocks: True,
        Blocks.sweep,
        "Otherwise: steps are cheap and fill the lists of answers.",
    ),
)


def on_atoms(
    problem: ConvexProblem,
    rng: np.random.RandomState,
    tol: float,
    start: Atoms | None = None,
    **options: Any,
) -> BlockSolver:
    """The solver with steps on atoms, from `start` or from the truth."""
    atoms = problem.true_atoms() if start is None else start.copy()
    blocks = AtomBlocks(problem, problem.blocks, atoms, problem.workspace(), **options)
    if start is not None:
        blocks.synchronise()
    return BlockSolver(problem, blocks, rng, tol)
