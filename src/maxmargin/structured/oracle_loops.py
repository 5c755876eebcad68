"""Block methods for samples with too many answers to list: chains of labels, bags of candidates.

Sample (block) i has answers z with features Phi_i(z) and losses Delta_i(z). The dual of the
structured SVM, eq. (12) of Mohapatra et al. 2016, has one distribution alpha_i over the answers
of each block,

    D(alpha) = sum_i C_i E_{alpha_i} Delta_i - 1/2 |w|^2,   w = sum_i C_i E_{alpha_i} Psi_i,

with Psi_i(z) = Phi_i(truth) - Phi_i(z). Answers are found by an oracle as the largest of
H_i(z) = Delta_i(z) - w . Psi_i(z), and C_i (max H_i - E_{alpha_i} H_i) is the gap of block i.

A kind of block is a named tuple (`Chain`, `Bags`) with a field `costs`, the C_i, for which the
generic functions below are declared; the epochs are written once. Two forms of alpha occur:

- *atoms*: a short list of answers with weights, losses and the Gram matrix of their Psi. With it a
  step on the list costs O(atoms) and moves H exactly, so that one call of the oracle pays for many
  steps, and a later visit may do without the oracle;
- *a state* of the kind's own (marginals, or a number for every answer), for steps towards a
  softened answer.

The dual rises smoothly under block steps, but the primal jumps about, as each visit serves its own
block; the mean of w over the last few epochs is the better model.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from maxmargin.core.jit import compiled, generic, helper
from maxmargin.core.loop import BestWeights, Certificate, Clock, Evaluated, Progress
from maxmargin.core.simplex import line_search
from maxmargin.edge.estimator import Row, first_that_holds
from maxmargin.structured.planes import Listed, affordable, solve_listed

# A term this far below the largest one vanishes in a float64 sum.
NEGLIGIBLE = -50.0


class Atoms(NamedTuple):
    """Answers that carry weight, of all blocks, in flat arrays.

    Block i owns room for ``capacity[i]`` atoms, from ``atom_at[i]`` in `alpha` and `losses`, from
    ``gram_at[i]`` in `grams` (capacity x capacity) and from ``answer_at[i]`` in `answers` (capacity x
    ``widths[i]``, the numbers that name an answer); ``filled[i]`` of it are taken. The first is the one a
    block started with; others of weight 0 stay as cache until their place is needed.
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
        room = self.capacity[i]
        answers = self.answers[self.answer_at[i] : self.answer_at[i + 1]].reshape(room, self.widths[i])
        gram = self.grams[self.gram_at[i] : self.gram_at[i + 1]].reshape(room, room)
        return answers, self.alpha[self.atom_at[i] : self.atom_at[i + 1]], gram

    def in_use(self) -> np.ndarray:
        """How many atoms of every block carry weight."""
        return np.add.reduceat(self.alpha > 0, self.atom_at[:-1], dtype=np.int64)

    def expected_loss(self) -> np.ndarray:
        """E Delta of every block."""
        return np.add.reduceat(self.alpha * self.losses, self.atom_at[:-1])

    def enlarged(self) -> Atoms:
        """The same with twice the room for blocks that are full and use more than half of it."""
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
    source: np.ndarray, begins: np.ndarray, target: np.ndarray, places: np.ndarray, lengths: np.ndarray
) -> None:
    """Copy the runs of `source` that begin at `begins` to where they begin in `target`."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(places, lengths) + within] = source[np.repeat(begins, lengths) + within]


class AtomRule(NamedTuple):
    """How the weights of a block's atoms are moved: see `AtomBlocks`."""

    pairwise: bool
    steps: int
    precision: float
    relaxation: float


class SoftRule(NamedTuple):
    """How a step towards a softened answer is made: 1 / tau of each block, longest step, floor, safeguard.

    Without `search` every step is as long as the longest: exponentiated gradient.
    """

    rates: np.ndarray
    longest: float
    floor: float
    safeguard: bool
    search: bool = True


@generic
def look(blocks, w, i, work):
    """Score the answers of block i under w, write the best one into work.answer, return its H."""


@generic
def margin(blocks, w, i, answer, work):
    """H of an answer of block i, from the scores that `look` left in `work`."""


@generic
def loss(blocks, i, answer):
    """Delta of an answer."""


@generic
def dot(blocks, w, i, answer):
    """w . Psi of an answer, up to a number that all answers of the block share."""


@generic
def add(blocks, w, i, answer, scale):
    """w += scale Psi of an answer, less a vector that all but the truth share; how much of that is owed.

    The truth, whose Psi is zero, adds and owes nothing: where features are large its weight is all but one,
    and what it moves by would be lost in rounding.
    """


@generic
def add_shared(blocks, w, i, scale):
    """w += scale times the vector that `add` leaves out."""


@generic
def fill_gram(blocks, i, answers, m, spot, gram, work):
    """Products of the Psi of m answers with that of answer `spot`, into its row and column of `gram`."""


@generic
def toward_best(blocks, w, state, i, work):
    """Direction from the state of block i to the answer that `look` found; returns its slope, d . H."""


@generic
def toward_soft(blocks, w, state, rate, i, work):
    """Direction to the softened answer s(z) ~ alpha(z) exp(rate H(z)), eq. (9); returns its slope."""


@generic
def away_from_truth(blocks, state, i, work):
    """Direction from the truth to the state of block i."""


@generic
def scatter(blocks, i, work):
    """Features of the direction in `work`, E_d Phi, laid out for `move`; returns their squared norm."""


@generic
def move(blocks, w, scale, work):
    """w -= scale times the features that `scatter` laid out."""


@generic
def aim_at_best(blocks, i, work):
    """Make the answer that `look` found the target of `mix`, in place of the softened one."""


@generic
def mix(blocks, state, gamma, floor, i, work):
    """State of block i += gamma (target - state), blended with `floor` of the uniform distribution.

    Leaves the move that was made as the direction in `work`, so that w follows the state and not the plan.
    """


@helper
def solve_cached(m, alpha, H, gram, cost, steps, precision):
    """Pairwise steps on the simplex of m atoms until its gap has shrunk by `precision`.

    Each step moves weight from the worst atom in use to the best one, up to the
    minimiser of the quadratic or until the worst is used up.
    """
    goal = -1.0
    for _ in range(steps):
        u, v, mean = 0, -1, 0.0
        for j in range(m):
            if H[j] > H[u]:
                u = j
            if alpha[j] > 0.0:
                mean += alpha[j] * H[j]
                if v < 0 or H[j] < H[v]:
                    v = j
        gap = H[u] - mean
        if goal < 0.0:
            goal = precision * gap
        if gap <= goal or H[u] <= H[v]:
            break
        curvature = cost * (gram[u, u] + gram[v, v] - 2.0 * gram[u, v])
        step = alpha[v]
        if curvature * step > H[u] - H[v]:
            step = (H[u] - H[v]) / curvature
            alpha[v] -= step
        else:
            alpha[v] = 0.0
        alpha[u] += step
        for j in range(m):
            H[j] -= cost * step * (gram[j, u] - gram[j, v])


@helper
def frank_wolfe_on_atoms(m, alpha, H, gram, u, cost):
    """Move alpha towards atom u by the exact line search, eq. (10) with tau = 0."""
    mean, cross, norm = 0.0, 0.0, 0.0
    for j in range(m):
        mean += alpha[j] * H[j]
        cross += alpha[j] * gram[u, j]
        for l in range(m):
            norm += alpha[j] * alpha[l] * gram[j, l]
    gamma = line_search(H[u] - mean, cost * (gram[u, u] - 2.0 * cross + norm), 1.0)
    for j in range(m):
        alpha[j] *= 1.0 - gamma
    alpha[u] += gamma


@helper
def largest(sizes):
    """The largest of some sizes (a loop compiles many times faster than ``max``)."""
    most = 0
    for size in sizes:
        most = max(most, size)
    return most


@helper
def free_place(m, alpha, H):
    """A place for a new atom: unused, else the cached one of weight 0 with the lowest H, else -1."""
    if m < alpha.size:
        return m
    spot = -1
    for j in range(1, m):
        if alpha[j] == 0.0 and (spot < 0 or H[j] < H[spot]):
            spot = j
    return spot


@helper
def find_answer(answer, answers, m):
    """Which of m answers equals `answer`, -1 if none does."""
    width = answers.shape[1]
    for j in range(m):
        t = 0
        while t < width and answers[j, t] == answer[t]:
            t += 1
        if t == width:
            return j
    return -1


@helper(hot=True)
def add_changes(blocks, w, i, answers, alpha, old, m):
    """Move w by the change of the weights of m atoms."""
    owed = 0.0
    for j in range(m):
        if alpha[j] != old[j]:
            owed += add(blocks, w, i, answers[j], blocks.costs[i] * (alpha[j] - old[j]))
    if owed != 0.0:
        add_shared(blocks, w, i, owed)


@compiled(allocates=True)
def atom_epoch(blocks, w, atoms, rule, order, gaps, work):
    """Visit the blocks in `order`: call the oracle, keep its answer, step on the atoms, move w.

    gaps[i] receives the gap of block i before its visit. A block whose atoms all carry weight
    goes without the new answer.
    """
    most = largest(atoms.capacity)
    H, old = np.empty(most), np.empty(most)
    for index in range(order.size):
        i = order[index]
        cost, m = blocks.costs[i], atoms.filled[i]
        room, width = atoms.capacity[i], atoms.widths[i]
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]].reshape((room, width))
        alpha = atoms.alpha[atoms.atom_at[i] : atoms.atom_at[i + 1]]
        gram = atoms.grams[atoms.gram_at[i] : atoms.gram_at[i + 1]].reshape((room, room))
        top = look(blocks, w, i, work)
        mean = 0.0
        for j in range(m):
            H[j] = margin(blocks, w, i, answers[j], work)
            mean += alpha[j] * H[j]
            old[j] = alpha[j]
        gaps[i] = max(cost * (top - mean), 0.0)

        spot = find_answer(work.answer, answers, m)
        if spot < 0:
            spot = free_place(m, alpha, H)
            if spot >= 0:
                for t in range(answers.shape[1]):
                    answers[spot, t] = work.answer[t]
                m = max(m, spot + 1)
                atoms.filled[i] = m
                alpha[spot], old[spot], H[spot] = 0.0, 0.0, top
                atoms.losses[atoms.atom_at[i] + spot] = loss(blocks, i, work.answer)
                fill_gram(blocks, i, answers, m, spot, gram, work)

        if rule.pairwise:
            solve_cached(m, alpha, H, gram, cost / rule.relaxation, rule.steps, rule.precision)
        elif spot >= 0:
            frank_wolfe_on_atoms(m, alpha, H, gram, spot, cost)
        add_changes(blocks, w, i, answers, alpha, old, m)


@compiled(allocates=True)
def cached_epoch(blocks, w, atoms, rule, order):
    """Visit the blocks in `order` without the oracle: pairwise steps on the atoms in use, move w."""
    most = largest(atoms.capacity)
    H, old = np.empty(most), np.empty(most)
    for index in range(order.size):
        i = order[index]
        m = atoms.filled[i]
        room, width = atoms.capacity[i], atoms.widths[i]
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]].reshape((room, width))
        alpha = atoms.alpha[atoms.atom_at[i] : atoms.atom_at[i + 1]]
        gram = atoms.grams[atoms.gram_at[i] : atoms.gram_at[i + 1]].reshape((room, room))
        for j in range(m):
            old[j], H[j] = alpha[j], -np.inf
            if alpha[j] > 0.0:
                H[j] = atoms.losses[atoms.atom_at[i] + j] - dot(blocks, w, i, answers[j])
        solve_cached(m, alpha, H, gram, blocks.costs[i] / rule.relaxation, rule.steps, rule.precision)
        add_changes(blocks, w, i, answers, alpha, old, m)


@compiled
def weights_of_atoms(blocks, atoms, w):
    """Add sum_i C_i E_{alpha_i} Psi_i to w, which enters as zero."""
    for i in range(atoms.filled.size):
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]]
        answers = answers.reshape((atoms.capacity[i], atoms.widths[i]))
        alpha = atoms.alpha[atoms.atom_at[i] : atoms.atom_at[i + 1]]
        owed = 0.0
        for j in range(atoms.filled[i]):
            scale = blocks.costs[i] * alpha[j]
            if scale > 0.0:
                owed += add(blocks, w, i, answers[j], scale)
        add_shared(blocks, w, i, owed)


@compiled
def lay_out(blocks, atoms, order, w, vector, rows):
    """Psi of the atoms of the blocks in `order`, one per row; w views `vector`, zero before and after."""
    at = 0
    for index in range(order.size):
        i = order[index]
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]]
        answers = answers.reshape((atoms.capacity[i], atoms.widths[i]))
        for j in range(atoms.filled[i]):
            add_shared(blocks, w, i, add(blocks, w, i, answers[j], 1.0))
            # One by one: compiling the assignment of a slice takes seconds, for the words of its error.
            for c in range(vector.size):
                rows[at, c] = vector[c]
                vector[c] = 0.0
            at += 1


@compiled
def bcpl_epoch(blocks, w, state, rule, order, gaps, work):
    """Block-coordinate partial linearisation, Algorithm 2, on the blocks in `order`.

    The target of a step is the softened answer, eq. (9), its length the exact line search, eq.
    (10). With the safeguard the best answer itself is tried as target, too, and the step that
    promises the larger gain is taken. Steps end at `longest` < 1, and `floor` of the uniform
    distribution is blended in after each, so that no answer is lost for good. Without the line search it
    is online exponentiated gradient.
    """
    for index in range(order.size):
        i = order[index]
        cost = blocks.costs[i]
        look(blocks, w, i, work)
        slope = toward_best(blocks, w, state, i, work)
        gaps[i] = max(cost * slope, 0.0)
        best_gamma, best_gain = 0.0, -1.0
        if rule.safeguard:
            curvature = cost * scatter(blocks, i, work)
            best_gamma = line_search(slope, curvature, rule.longest)
            best_gain = best_gamma * (slope - 0.5 * best_gamma * curvature)
        slope = toward_soft(blocks, w, state, rule.rates[i], i, work)
        curvature = cost * scatter(blocks, i, work)
        gamma = line_search(slope, curvature, rule.longest) if rule.search else rule.longest
        if best_gain > gamma * (slope - 0.5 * gamma * curvature):
            gamma = best_gamma
            aim_at_best(blocks, i, work)
        if gamma > 0.0:
            mix(blocks, state, gamma, rule.floor, i, work)
            scatter(blocks, i, work)
            move(blocks, w, cost, work)


@compiled
def weights_of_state(blocks, state, w, work):
    """Add sum_i C_i E_{alpha_i} Psi_i to w, which enters as zero."""
    for i in range(blocks.costs.size):
        if blocks.costs[i] > 0.0:
            away_from_truth(blocks, state, i, work)
            scatter(blocks, i, work)
            move(blocks, w, blocks.costs[i], work)


class Problem(Protocol):
    """What block steps ask of a problem: C_i, and weights as one vector and as the loops take them."""

    costs: np.ndarray

    @property
    def size(self) -> int: ...

    def shaped(self, vector: np.ndarray) -> Any: ...

    def dual(self, vector: np.ndarray, expected_loss: np.ndarray) -> float: ...


class ConvexProblem(Problem, Protocol):
    """A problem whose primal is known at any weights, and whose blocks start at the truth."""

    blocks: Any

    def primal(self, vector: np.ndarray) -> float: ...

    def true_atoms(self, capacity: int) -> Atoms: ...

    def workspace(self) -> Any: ...


def pieces(offsets: np.ndarray, n_threads: int) -> list[tuple[int, int]]:
    """Cut the groups of rows into runs of about equal total length, a few for each thread."""
    n = offsets.size - 1
    if n_threads <= 1:
        return [(0, n)]
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], 4 * n_threads + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], cuts, [n]]))
    return [(int(a), int(b)) for a, b in itertools.pairwise(bounds)]


class Blocks(ABC):
    """The distributions of all blocks, w that belongs to them, and the steps that move both."""

    # The solver that ran the last epoch.
    name = ""
    # Whether the mean of w over an epoch is a better model than w at its end.
    averages = False
    # Whether the last epoch solved for all answers listed, so that its weights are worth an evaluation.
    settled = False

    def __init__(self, problem: Problem, blocks: Any) -> None:
        self.problem, self.blocks = problem, blocks
        self.vector = np.zeros(problem.size)
        self.w = problem.shaped(self.vector)
        self.visited = np.flatnonzero(problem.costs > 0)
        self.mean = RunningMean(problem.size)
        self.gaps = np.where(problem.costs > 0, np.inf, 0.0)

    @property
    @abstractmethod
    def dual(self) -> Any:
        """The dual solution, from which another fit can go on."""

    @abstractmethod
    def visit(self, order: np.ndarray) -> None:
        """Move the blocks of `order`, one after the other."""

    @abstractmethod
    def expected_loss(self) -> np.ndarray:
        """E Delta of every block."""

    @abstractmethod
    def recompute(self) -> tuple[np.ndarray, np.ndarray]:
        """w and E Delta of every block from the dual solution; changes nothing."""

    def synchronise(self) -> None:
        """Replace w by the one that belongs to the dual solution, without the rounding of many steps."""
        self.vector[:] = self.recompute()[0]

    def objective(self) -> float:
        """D at the present w."""
        return self.problem.dual(self.vector, self.expected_loss())

    def best_share(self) -> float:
        """Where D is highest on the way from the truth, where w = 0, to here: 1 is here.

        D(t) = t E Delta - t^2 |w|^2 / 2 where the distributions mix linearly.
        """
        slope, curvature = float(self.problem.costs @ self.expected_loss()), float(self.vector @ self.vector)
        return 1.0 if slope >= curvature else slope / curvature

    def sweep(self, rng: np.random.RandomState, clock: Clock) -> int:
        """Visit every block once in random order and keep the mean of w on the way; how many were visited."""
        mean, seen = self.walk(rng, clock)
        if mean is not None:
            self.mean.add(mean)
        return seen

    def walk(
        self, rng: np.random.RandomState, clock: Clock, pieces: int = 8
    ) -> tuple[np.ndarray | None, int]:
        """Visit every block once in random order; the mean of w on the way, and how many were visited.

        The clock is looked at between `pieces` parts of the pass; the mean is None if time ran out.
        """
        total, seen = np.zeros_like(self.vector), 0
        for piece in np.array_split(rng.permutation(self.visited), pieces):
            if clock.expired():
                return None, seen
            self.visit(piece)
            seen += piece.size
            total += self.vector / pieces
        return total, seen


class AtomBlocks(Blocks):
    """Steps on short lists of answers.

    A visit finds the best answer u by the oracle, adds it to the list of the block and then either
    moves alpha towards u (Frank-Wolfe), or, on the list alone, repeatedly moves weight from the
    worst answer v in use to the best one, gamma = min((H_u - H_v) / (C_i |Psi_u - Psi_v|^2), alpha_v).

    After the visits of a pairwise epoch the blocks are visited again on the answers in use alone,
    which costs a fraction of a call of the oracle.

    Parameters
    ----------
    atoms : Atoms
        Where to start. They are moved in place.
    pairwise : bool
        Pairwise steps rather than Frank-Wolfe.
    steps, precision : int, float
        A visit makes at most `steps` steps, until the gap of the list has shrunk to `precision` of itself.
    relaxation : float in (0, 2)
        Divides the curvature of the quadratic that a visit minimises. The dual still rises: the
        minimiser d satisfies d . H >= d'Qd / relaxation, so the change of the true quadratic is at
        most (1/2 - 1/relaxation) d'Qd < 0. Over-relaxation anticipates what other blocks will do.
    repeats : int
        Most visits without the oracle in an epoch.
    scored : int or None
        How many answers the oracle scores in an epoch; the repeated visits then cost no more than it.
    first_steps : int
        Epochs of steps, after which few weights are found by cutting planes.
    late_steps : int
        Epochs more, after which these are worth their time for more weights.

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
        steps: int = 100,
        precision: float = 0.1,
        relaxation: float = 1.5,
        repeats: int = 5,
        scored: int | None = None,
        first_steps: int = 5,
        late_steps: int = 150,
    ) -> None:
        super().__init__(problem, blocks)
        self.first_steps = self.steps_left = first_steps
        self.late_steps = late_steps
        self.atoms, self.work = atoms, work
        self.rule = AtomRule(pairwise, steps, precision, relaxation)
        self.repeats, self.scored = repeats, scored

    @property
    def dual(self) -> Atoms:
        return self.atoms

    def visit(self, order: np.ndarray) -> None:
        atom_epoch(self.blocks, self.w, self.atoms, self.rule, order, self.gaps, self.work)

    def revisit(self, order: np.ndarray) -> None:
        """Visit the blocks of `order` on the answers in use alone."""
        cached_epoch(self.blocks, self.w, self.atoms, self.rule, order)

    def sweep(self, rng: np.random.RandomState, clock: Clock) -> int:
        self.atoms = self.atoms.enlarged()
        self.steps_left -= 1
        row = first_that_holds(ROWS, self)
        self.name = row.name
        self.settled = row.build is AtomBlocks.cut
        return int(row.build(self, rng, clock))

    def affords_planes(self, late: bool) -> bool:
        """Whether weights and listed answers are few enough for cutting planes, at once or late."""
        answers = int((self.atoms.filled[self.visited] + 1).sum())
        return affordable(answers, self.problem.size, late)

    def cut(self, rng: np.random.RandomState, clock: Clock) -> int:
        """Ask the oracle at the mean of w, then solve for all answers listed; see planes.py.

        The weights that this finds take the place of the mean. Where rounding keeps the dual from
        rising the distributions stay, and steps follow.
        """
        order, atoms, vector = self.visited, self.atoms, np.zeros_like(self.vector)
        ask = self.rule._replace(steps=0)
        atom_epoch(self.blocks, self.problem.shaped(self.mean.value), atoms, ask, order, self.gaps, self.work)
        filled = atoms.filled[order]
        begins = np.cumsum(filled) - filled
        places = np.arange(filled.sum()) + np.repeat(atoms.atom_at[order] - begins, filled)
        Psi = np.empty((places.size, vector.size))
        lay_out(self.blocks, atoms, order, self.problem.shaped(vector), vector, Psi)
        listed = Listed(Psi, atoms.losses[places], self.problem.costs[order], begins)
        before, dual = atoms.alpha[places], self.objective()
        w, alpha = solve_listed(listed, self.mean.value, before, self.rule.precision, clock)
        self.mean.restart(w)
        atoms.alpha[places] = alpha
        self.synchronise()
        if not self.objective() > dual:
            atoms.alpha[places] = before
            self.synchronise()
            self.steps_left = self.first_steps
        return order.size

    def walk(
        self, rng: np.random.RandomState, clock: Clock, pieces: int = 8
    ) -> tuple[np.ndarray | None, int]:
        mean, seen = super().walk(rng, clock, pieces)
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
        "Frank-Wolfe steps were asked for.",
    ),
    Row(
        "planes",
        lambda blocks: blocks.steps_left < 0 and blocks.affords_planes(late=False),
        AtomBlocks.cut,
        "Few weights, and enough steps for lists of answers: cutting planes do not mind a large C.",
    ),
    Row(
        "planes",
        lambda blocks: blocks.steps_left < -blocks.late_steps and blocks.affords_planes(late=True),
        AtomBlocks.cut,
        "Steps are seen to be slow: planes for more weights.",
    ),
    Row(
        "pairwise",
        lambda blocks: True,
        Blocks.sweep,
        "Steps, which cost little, and fill the lists.",
    ),
)


class RunningMean:
    """Mean of w over the last few epochs, the newest of which has at least the weight `newest`."""

    def __init__(self, size: int, newest: float = 0.2) -> None:
        self.value, self.newest, self.count = np.zeros(size), newest, 0

    def add(self, mean: np.ndarray) -> None:
        self.count += 1
        self.value += max(1.0 / self.count, self.newest) * (mean - self.value)

    def restart(self, value: np.ndarray) -> None:
        """Forget all but `value`."""
        self.value, self.count = value, 1


@dataclass(frozen=True)
class Solution:
    """The weights to keep, as one vector, and the dual solution that proves how good they are."""

    vector: np.ndarray
    dual: Any


class BlockSolver(Evaluated):
    """Epochs of block steps on a convex problem, with a certificate.

    Any weights w' and any feasible alpha bracket the optimum, P(w') >= D(alpha). The dual of a
    certificate is that of the stored alpha; its primal belongs to the weights the fit keeps: the best
    of those of alpha, the mean over the last epochs and those evaluated before.

    Block gaps are collected on the way at no cost, but each belongs to the weights of its own
    visit. Their sum only says when an evaluation is worth a pass over all blocks.

    Parameters
    ----------
    problem : ConvexProblem
    blocks : Blocks
        The distributions to move.
    rng : RandomState
        Order of the visits.
    tol : float
        Relative gap at which the collected gaps ask for an evaluation.
    evaluate_every : int
        Epochs after which the primal is evaluated in any case.
    synchronise_every : int
        Epochs after which w is computed anew from the dual solution.
    """

    def __init__(
        self,
        problem: ConvexProblem,
        blocks: Blocks,
        rng: np.random.RandomState,
        tol: float,
        *,
        evaluate_every: int = 5,
        synchronise_every: int = 50,
    ) -> None:
        self.problem, self.blocks, self.rng, self.tol = problem, blocks, rng, tol
        self.evaluate_every, self.synchronise_every = evaluate_every, synchronise_every
        self.best = BestWeights()
        self.epochs = 0

    @property
    def name(self) -> str:
        return self.blocks.name

    @classmethod
    def on_atoms(
        cls,
        problem: ConvexProblem,
        rng: np.random.RandomState,
        tol: float,
        start: Atoms | None = None,
        capacity: int = 8,
        **options: Any,
    ) -> BlockSolver:
        """The solver with steps on atoms, from `start` or from the truth with room for `capacity` atoms."""
        atoms = problem.true_atoms(capacity) if start is None else start.copy()
        blocks = AtomBlocks(problem, problem.blocks, atoms, problem.workspace(), **options)
        if start is not None:
            blocks.synchronise()
        return cls(problem, blocks, rng, tol)

    def _move(self, clock: Clock) -> Progress:
        """One sweep; evaluate the primal when it is due."""
        if self.epochs == 0 and self.blocks.vector.any():
            self.best.offer(self.problem.primal(self.blocks.vector), self.blocks.vector)
        seen = self.blocks.sweep(self.rng, clock)
        self.epochs += 1
        if self.epochs % self.synchronise_every == 0:
            self.blocks.synchronise()
        dual = self.blocks.objective()
        if not math.isfinite(dual):
            raise ValueError(
                "Scores divided by the temperature leave floating point; take a larger temperature or a "
                "smaller C."
            )
        if self._due(dual):
            vector = self.blocks.mean.value if self.blocks.averages else self.blocks.vector
            self.best.offer(self.problem.primal(vector), vector)
        return Progress(Certificate(self.best.primal, dual), seen)

    def _due(self, dual: float) -> bool:
        if self.blocks.settled or self.epochs % self.evaluate_every == 0:
            return True
        estimate = self.blocks.gaps.sum()
        return bool(estimate <= self.tol * abs(dual + estimate))

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The weights with the lower primal, and the dual solution; w and D recomputed from it."""
        vector, expected_loss = self.blocks.recompute()
        dual, primal = self.problem.dual(vector, expected_loss), self.problem.primal(vector)
        if self.blocks.averages:
            other = self.problem.primal(self.blocks.mean.value)
            if other < primal:
                vector, primal = self.blocks.mean.value.copy(), other
        if self.best.primal < primal:
            vector, primal = self.best.weights, self.best.primal
        return Solution(vector, self.blocks.dual), Certificate(primal, dual)
