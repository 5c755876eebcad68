"""Block methods for samples with too many answers to enumerate: chains of labels, bags of candidates.

Sample (block) i has answers z with features Phi_i(z) and losses Delta_i(z). The dual of the structured
SVM, eq. (12) of Mohapatra et al. 2016, has one distribution alpha_i over the answers of each block,

    D(alpha) = sum_i C_i E_{alpha_i} Delta_i - 1/2 |w|^2,   w = sum_i C_i E_{alpha_i} Psi_i,

with Psi_i(z) = Phi_i(truth) - Phi_i(z). A max-oracle returns the answer with the largest
H_i(z) = Delta_i(z) - w . Psi_i(z), and C_i (max H_i - E_{alpha_i} H_i) is the gap of block i.

A kind of block is a named tuple (`Chain`, `Bags`) with a field `costs`, the C_i. It declares bodies for the
generic functions below; the epochs are written once. There are two forms of alpha:

- *atoms*: a short list of answers with weights, losses and the Gram matrix of their Psi. A step on the list
  costs O(atoms) and updates H exactly, so one oracle call serves many steps, and a later visit can do
  without the oracle;
- *a state* specific to the kind (marginals, or a number for every answer), for steps towards a softened
  answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, generic, helper
from maxmargin.core.simplex import line_search

# A term this far below the largest one, in logarithms, vanishes in a float64 sum.
NEGLIGIBLE = -50.0


class AtomRule(NamedTuple):
    """Parameters of a step on the atoms of a block: see `AtomBlocks`."""

    pairwise: bool
    steps: int
    precision: float
    relaxation: float


class SoftRule(NamedTuple):
    """Parameters of a step towards a softened answer: 1 / tau of each block, longest step, floor, safeguard.

    Without `search` every step has the longest length: exponentiated gradient.
    """

    rates: np.ndarray
    longest: float
    floor: float
    safeguard: bool
    search: bool = True


@generic
def max_oracle(blocks, w, i, work):
    """Score the answers of block i under w, write the one with the largest H into work.answer, return H."""


@generic
def margin(blocks, w, i, answer, work):
    """H of an answer of block i, from the scores that `max_oracle` left in `work`."""


@generic
def loss(blocks, i, answer):
    """Delta of an answer."""


@generic
def dot(blocks, w, i, answer):
    """w . Psi of an answer, up to a constant of the block."""


@generic
def add(blocks, w, i, answer, scale):
    """Add scale Psi of an answer to w, except for the features of the truth; return the scale still to add.

    Psi of the truth is zero, so it adds nothing and returns 0. Its weight is close to one where features are
    large, and adding and subtracting its features would lose digits.
    """


@generic
def add_shared(blocks, w, i, scale):
    """Add scale times the features of the truth to w, which `add` leaves out."""


@generic
def fill_gram(blocks, i, answers, m, spot, gram, work):
    """Products of the Psi of m answers with that of answer `spot`, into its row and column of `gram`."""


@generic
def toward_best(blocks, w, state, i, work):
    """Direction from the state of block i to the answer of `max_oracle`; returns its slope, d . H."""


@generic
def toward_soft(blocks, w, state, rate, i, work):
    """Direction to the softened answer s(z) ~ alpha(z) exp(rate H(z)), eq. (9); returns its slope."""


@generic
def away_from_truth(blocks, state, i, work):
    """Direction from the truth to the state of block i."""


@generic
def scatter(blocks, i, work):
    """Compute the features of the direction in `work`, E_d Phi, for `move`; returns their squared norm."""


@generic
def move(blocks, w, scale, work):
    """w -= scale times the features that `scatter` computed."""


@generic
def aim_at_best(blocks, i, work):
    """Make the answer of `max_oracle` the target of `mix`, in place of the softened one."""


@generic
def mix(blocks, state, gamma, floor, i, work):
    """State of block i += gamma (target - state), blended with `floor` of the uniform distribution.

    Writes the actual move, rounding included, into `work` as the direction, so that w stays consistent.
    """


@helper
def solve_cached(m, alpha, H, gram, cost, steps, precision):
    """Pairwise steps on the simplex of m atoms until its gap has shrunk by `precision`.

    Each step moves weight from the worst atom in use to the best one, up to the minimiser of the quadratic
    or until the worst one has no weight left.
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
def free_slot(m, alpha, H):
    """A slot for a new atom: an unused one, else the cached atom of weight 0 with the lowest H, else -1."""
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
    rest = 0.0
    for j in range(m):
        if alpha[j] != old[j]:
            rest += add(blocks, w, i, answers[j], blocks.costs[i] * (alpha[j] - old[j]))
    if rest != 0.0:
        add_shared(blocks, w, i, rest)


@compiled(allocates=True)
def atom_epoch(blocks, w, atoms, rule, order, gaps, work):
    """Visit the blocks in `order`: call the oracle, store its answer, step on the atoms, update w.

    gaps[i] receives the gap of block i before its visit. A block without a free slot does not store the new
    answer.
    """
    most = largest(atoms.capacity)
    H, old = np.empty(most), np.empty(most)
    for index in range(order.size):
        i = order[index]
        cost, m = blocks.costs[i], atoms.filled[i]
        capacity, width = atoms.capacity[i], atoms.widths[i]
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]].reshape((capacity, width))
        alpha = atoms.alpha[atoms.atom_at[i] : atoms.atom_at[i + 1]]
        gram = atoms.grams[atoms.gram_at[i] : atoms.gram_at[i + 1]].reshape((capacity, capacity))
        # The gap of the block: C_i (max H - E_alpha H).
        top = max_oracle(blocks, w, i, work)
        mean = 0.0
        for j in range(m):
            H[j] = margin(blocks, w, i, answers[j], work)
            mean += alpha[j] * H[j]
            old[j] = alpha[j]
        gaps[i] = max(cost * (top - mean), 0.0)

        # Store the answer of the oracle, if it is new.
        spot = find_answer(work.answer, answers, m)
        if spot < 0:
            spot = free_slot(m, alpha, H)
            if spot >= 0:
                for t in range(answers.shape[1]):
                    answers[spot, t] = work.answer[t]
                m = max(m, spot + 1)
                atoms.filled[i] = m
                alpha[spot], old[spot], H[spot] = 0.0, 0.0, top
                atoms.losses[atoms.atom_at[i] + spot] = loss(blocks, i, work.answer)
                fill_gram(blocks, i, answers, m, spot, gram, work)

        # Steps on the list, then w follows.
        if rule.pairwise:
            solve_cached(m, alpha, H, gram, cost / rule.relaxation, rule.steps, rule.precision)
        elif spot >= 0:
            frank_wolfe_on_atoms(m, alpha, H, gram, spot, cost)
        add_changes(blocks, w, i, answers, alpha, old, m)


@compiled(allocates=True)
def cached_epoch(blocks, w, atoms, rule, order):
    """Visit the blocks in `order` without the oracle: pairwise steps on the atoms in use, update w."""
    most = largest(atoms.capacity)
    H, old = np.empty(most), np.empty(most)
    for index in range(order.size):
        i = order[index]
        m = atoms.filled[i]
        capacity, width = atoms.capacity[i], atoms.widths[i]
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]].reshape((capacity, width))
        alpha = atoms.alpha[atoms.atom_at[i] : atoms.atom_at[i + 1]]
        gram = atoms.grams[atoms.gram_at[i] : atoms.gram_at[i + 1]].reshape((capacity, capacity))
        for j in range(m):
            old[j], H[j] = alpha[j], -np.inf
            if alpha[j] > 0.0:
                H[j] = atoms.losses[atoms.atom_at[i] + j] - dot(blocks, w, i, answers[j])
        solve_cached(m, alpha, H, gram, blocks.costs[i] / rule.relaxation, rule.steps, rule.precision)
        add_changes(blocks, w, i, answers, alpha, old, m)


@compiled
def weights_of_atoms(blocks, atoms, w):
    """Add sum_i C_i E_{alpha_i} Psi_i to w, which is zero on entry."""
    for i in range(atoms.filled.size):
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]]
        answers = answers.reshape((atoms.capacity[i], atoms.widths[i]))
        alpha = atoms.alpha[atoms.atom_at[i] : atoms.atom_at[i + 1]]
        rest = 0.0
        for j in range(atoms.filled[i]):
            scale = blocks.costs[i] * alpha[j]
            if scale > 0.0:
                rest += add(blocks, w, i, answers[j], scale)
        add_shared(blocks, w, i, rest)


@compiled
def expand_atoms(blocks, atoms, order, w, vector, rows):
    """Psi of the atoms of the blocks in `order`, one per row; w views `vector`, zero before and after."""
    at = 0
    for index in range(order.size):
        i = order[index]
        answers = atoms.answers[atoms.answer_at[i] : atoms.answer_at[i + 1]]
        answers = answers.reshape((atoms.capacity[i], atoms.widths[i]))
        for j in range(atoms.filled[i]):
            add_shared(blocks, w, i, add(blocks, w, i, answers[j], 1.0))
            # An explicit loop: numba takes seconds to compile the assignment of a slice.
            for c in range(vector.size):
                rows[at, c] = vector[c]
                vector[c] = 0.0
            at += 1


@compiled
def bcpl_epoch(blocks, w, state, rule, order, gaps, work):
    """Block-coordinate partial linearisation, Algorithm 2, on the blocks in `order`.

    The target of a step is the softened answer, eq. (9), and its length comes from the exact line search,
    eq. (10). With the safeguard the best answer itself is a second target, and the step with the larger gain
    is taken. The length is at most `longest` < 1, and `floor` of the uniform distribution is blended in after
    each step, so that no answer is lost for good. Without the line search this is online exponentiated
    gradient.
    """
    for index in range(order.size):
        i = order[index]
        cost = blocks.costs[i]
        max_oracle(blocks, w, i, work)
        # The gap, and the Frank-Wolfe step of the safeguard.
        slope = toward_best(blocks, w, state, i, work)
        gaps[i] = max(cost * slope, 0.0)
        best_gamma, best_gain = 0.0, -1.0
        if rule.safeguard:
            curvature = cost * scatter(blocks, i, work)
            best_gamma = line_search(slope, curvature, rule.longest)
            best_gain = best_gamma * (slope - 0.5 * best_gamma * curvature)
        # The step towards the softened answer, eq. (9) and (10).
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
    """Add sum_i C_i E_{alpha_i} Psi_i to w, which is zero on entry."""
    for i in range(blocks.costs.size):
        if blocks.costs[i] > 0.0:
            away_from_truth(blocks, state, i, work)
            scatter(blocks, i, work)
            move(blocks, w, blocks.costs[i], work)
