"""Latent multi-class SVM: a sample is a bag of candidate rows, one of which shows its class.

Bag i has candidates x_h, h = 0..m_i - 1, and the class y_i; class k with candidate h scores
W_k . x_h, and a bag gets the class with the largest score over its candidates.

    J(W) = 1/2 |W|^2 + sum_i C_i { max_{h,k} [ [k != y_i] + W_k . x_h ] - max_h W_{y_i} . x_h }

is convex minus convex. With candidates h*_i chosen for the true classes, the majoriser

    J_h*(W) = 1/2 |W|^2 + sum_i C_i { max_{h,k} [ [k != y_i] + W_k . x_h ] - W_{y_i} . x_{h*_i} }

is convex, lies above J, and touches it where every h*_i is a best candidate. Its dual, with
alpha_i a distribution over the pairs (h, k) of bag i, is

    D(alpha) = sum_i C_i E_{alpha_i} [k != y_i] - 1/2 |W|^2,
    W_k = sum_i C_i ( [k = y_i] x_{h*_i} - sum_h alpha_i(h, k) x_h ).

Block gaps C_i (max H_i - E_{alpha_i} H_i), H_i(h, k) = [k != y_i] + W_k . x_h, sum to
J_h*(W) - D(alpha). C_i = C * sample_weight_i; in the scaling of the partial-linearization
paper lambda = 1 / (C * sum of weights). The bias is a constant feature, regularised.

CCCP rounds: majorise, decrease the majoriser, choose candidates again. The state is a pair of accepted
weights W and their best candidates h*, so that J_h*(W) = J(W). Every epoch visits the blocks of the dual of
J_h* (see oracle_loops.py). Let V be the mean of the weights of alpha over the last epochs. Once

    J_h*(V) - D(alpha) <= round_precision (J(W) - D(alpha)),

V has achieved at least a share 1 - round_precision of the possible decrease of this majoriser and is
accepted. The objective never rises, because J(V) <= J_h*(V) < J(W). Then h* becomes the best candidates under
V, and alpha continues from its current value (or restarts at h* if that is better).

Stopping: D(alpha) <= min J_h*, so J(W) - D(alpha) bounds the gain of another round. The fit has converged
when this is at most tol J(W): W is stationary to that tolerance. The distance to the global minimum has no
such bound.

The first W is 0, where all candidates are equally good, so any choice of h* may start. If the majoriser of
the first choice has its minimum at W = 0, the best candidates under V are tried instead, until they repeat;
then the rounds cannot leave 0.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import UNKNOWN, Certificate, Clock, Evaluated, Progress
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.structured.atoms import CAPACITY, AtomBlocks, Atoms
from maxmargin.structured.block_solver import EVALUATE_EVERY, SYNCHRONISE_EVERY, Blocks, chunks
from maxmargin.structured.latent_loops import Bags, BagScores, BagWork, bag_values, pair_products
from maxmargin.structured.oracle_loops import SoftRule, bcpl_epoch, weights_of_state

# Mass that a start takes from the truth, and the largest step length is 1 - EPSILON.
SOFTNESS, EPSILON = 1e-3, 2.2204e-16


@dataclass(frozen=True)
class BagValues:
    """J and J_h* at some weights, and the best candidate of every true class there."""

    objective: float
    majoriser: float
    best: np.ndarray


class LatentProblem:
    """Stacked candidates of all bags, their classes, and the objectives above.

    Parameters
    ----------
    rows : Rows
        Candidates of all bags, one bag after the other.
    offsets : ndarray of shape (n + 1,)
        Bag i is the rows offsets[i]..offsets[i + 1] - 1.
    y : ndarray of int
        Class of every bag, 0..K-1.
    n_classes : int
    C : float
    sample_weight : ndarray of shape (n,), optional
    bias : float
        Value of the constant feature; 0 for none.
    n_threads : int
        Threads for passes over all bags at fixed weights.
    """

    def __init__(
        self,
        rows: Rows,
        offsets: np.ndarray,
        y: np.ndarray,
        n_classes: int,
        C: float,
        sample_weight: np.ndarray | None = None,
        bias: float = 0.0,
        n_threads: int = 1,
    ) -> None:
        self.rows = rows
        self.offsets = readonly(offsets.astype(np.int64))
        self.y = readonly(y.astype(np.int64))
        self.n_classes = n_classes
        self.sizes = np.diff(self.offsets)
        self.costs = readonly(C * (np.ones(self.y.size) if sample_weight is None else sample_weight))
        self.bias = float(bias)
        self.n_threads = n_threads

    @property
    def largest(self) -> int:
        return int(self.sizes.max())

    @property
    def size(self) -> int:
        return (self.rows.shape[1] + 1) * self.n_classes

    def shaped(self, vector: np.ndarray) -> np.ndarray:
        """A vector of weights as W, (features + 1) x classes."""
        return vector.reshape(-1, self.n_classes)

    def bags(self, chosen: np.ndarray) -> Bags:
        """The blocks of the majoriser with the candidates `chosen`."""
        return Bags(self.rows.flat, self.offsets, self.y, self.costs, readonly(chosen), self.bias)

    def curvatures(self) -> np.ndarray:
        """C_i max_h |x_h|^2, the scale of a temperature for bag i."""
        norms = self.rows.squared_norms() + self.bias**2
        return self.costs * np.maximum.reduceat(norms, self.offsets[:-1])

    def means(self) -> LatentProblem:
        """The problem with every bag replaced by the mean of its candidates."""
        X, n = self.rows.matrix, self.y.size
        if self.rows.dense:
            mean = np.add.reduceat(X, self.offsets[:-1], axis=0) / self.sizes[:, None]
        else:
            share = np.repeat(1.0 / self.sizes, self.sizes)
            average = sp.csr_array((share, np.arange(share.size), self.offsets), shape=(n, share.size))
            mean = sp.csr_array(average @ X)
        rows = Rows.of(mean)
        return LatentProblem(
            rows, np.arange(n + 1), self.y, self.n_classes, 1.0, self.costs, self.bias, self.n_threads
        )

    def values(self, vector: np.ndarray, chosen: np.ndarray) -> BagValues:
        """Evaluate J and the majoriser with the candidates `chosen` at W."""
        n, bags, W = self.y.size, self.bags(chosen), self.shaped(vector)
        found, best = np.empty((3, n)), np.empty(n, np.int64)

        def part(bounds: tuple[int, int]) -> None:
            bag_values(bags, *bounds, W, np.empty((self.largest, self.n_classes)), found, best)

        run_threads(part, chunks(self.offsets, self.n_threads), self.n_threads)
        hinge, at_chosen, at_best = found
        half = 0.5 * float(vector @ vector)
        return BagValues(
            half + float(self.costs @ (hinge - at_best)), half + float(self.costs @ (hinge - at_chosen)), best
        )

    def dual(self, vector: np.ndarray, expected_loss: np.ndarray) -> float:
        """D, eq. (12), from W and the expected loss of every bag."""
        return float(self.costs @ expected_loss) - 0.5 * float(vector @ vector)


class PairBlocks(AtomBlocks):
    """Steps on the pairs (candidate, class) of each bag that carry weight; see `AtomBlocks`.

    The products of the candidates couple a block, so a projection on the simplex does not solve it exactly.
    The repeated visits cost about as much as scoring all pairs. There are more epochs of steps before cutting
    planes than for chains, because slower rounds choose better candidates.
    """

    problem: LatentProblem

    def __init__(
        self,
        problem: LatentProblem,
        chosen: np.ndarray,
        repeats: int = 30,
        first_steps: int = 60,
        late_steps: int = 400,
        **options: Any,
    ) -> None:
        work = BagScores.empty(problem.largest, problem.n_classes)
        scored = problem.rows.shape[0] * problem.n_classes
        atoms = self._at(problem, chosen)
        waits = {"first_steps": first_steps, "late_steps": late_steps}
        given = {"repeats": repeats, "scored": scored, **waits, **options}
        super().__init__(problem, problem.bags(chosen), atoms, work, **given)

    def _at(self, problem: LatentProblem, chosen: np.ndarray) -> Atoms:
        """All weight on (h*_i, y_i): W = 0."""
        n = problem.y.size
        atoms = Atoms.empty(np.full(n, 2), np.full(n, CAPACITY))
        atoms.filled[:] = 1
        atoms.alpha[atoms.atom_at[:-1]] = 1.0
        atoms.answers[atoms.answer_at[:-1]] = chosen
        atoms.answers[atoms.answer_at[:-1] + 1] = problem.y
        norms = problem.rows.squared_norms() + problem.bias**2
        atoms.grams[atoms.gram_at[:-1]] = norms[problem.offsets[:-1] + chosen]
        return atoms

    def restart(self, chosen: np.ndarray) -> None:
        """Restart at other candidates."""
        self.blocks, self.atoms = self.problem.bags(chosen), self._at(self.problem, chosen)
        self.vector[:] = 0.0

    def follow(self, chosen: np.ndarray) -> None:
        """Continue with other candidates of the true classes, on copies of the arrays.

        The weight of (old h*, y) moves to (new h*, y) if the block stores that pair; otherwise the old pair
        is renamed.
        """
        p, before, atoms = self.problem, self.blocks.chosen, self.atoms.copy()
        self.blocks, self.atoms = p.bags(chosen), atoms
        for i in np.flatnonzero(chosen != before).tolist():
            pairs, alpha, gram = atoms.of(i)
            pairs = pairs[: atoms.filled[i]]
            is_truth = pairs[:, 1] == p.y[i]
            source = np.flatnonzero(is_truth & (pairs[:, 0] == before[i]))
            target = np.flatnonzero(is_truth & (pairs[:, 0] == chosen[i]))
            if not source.size:
                continue
            if target.size:
                alpha[target[0]] += alpha[source[0]]
                alpha[source[0]] = 0.0
                continue
            pairs[source[0], 0] = chosen[i]
            pair_products(self.blocks, i, pairs, len(pairs), source[0], gram)
        self.vector = self.recompute()[0]
        self.w = p.shaped(self.vector)


class SoftPairs(Blocks):
    """Block-coordinate partial linearisation, Algorithm 2, over all pairs (candidate, class) of each bag.

    The target of block i is s(h, k) ~ alpha_i(h, k) exp(H_i(h, k) / tau_i), eq. (9), the step the
    exact line search (E_s H - E H) / (C_i |E_s Phi - E Phi|^2), eq. (10), at most 1 - epsilon.
    Memory: one number for every candidate and class.

    Parameters
    ----------
    problem : LatentProblem
    chosen : ndarray of int
        First candidates; the start has 1 - SOFTNESS on (h*_i, y_i) and the rest spread evenly.
    temperature : float or "auto"
        tau; "auto" is 0.1 C_i max_h |x_h|^2, or the safe C_i max_h |x_h|^2 / 2 without a line search.
    safeguard : bool
        Take the Frank-Wolfe step if its gain is larger.
    search : bool
        False takes steps of length one: online exponentiated gradient (Collins et al. 2008). The features of
        two answers are at most 2 max_h |x_h| apart, so no step lowers D at the safe tau_i or above.
    floor : float > 0
        Share of the uniform distribution to blend in after each step, which keeps every pair positive.
    """

    problem: LatentProblem

    def __init__(
        self,
        problem: LatentProblem,
        chosen: np.ndarray,
        temperature: float | str = "auto",
        safeguard: bool = True,
        *,
        search: bool = True,
        floor: float = 1e-15,
    ) -> None:
        super().__init__(problem, problem.bags(chosen))
        curvatures = problem.curvatures()
        tau = (
            (0.1 if search else 0.5) * curvatures
            if temperature == "auto"
            else np.full(curvatures.size, temperature, float)
        )
        rates = np.divide(1.0, tau, out=np.ones_like(tau), where=tau > 0)
        self.rule = SoftRule(rates, 1.0 - EPSILON, floor, safeguard, search)
        self.work = BagWork.empty(problem.largest, problem.n_classes, problem.rows.shape[1])
        self.name = "bcpl" if search else "oeg"
        self.restart(chosen)

    @property
    def dual(self) -> np.ndarray:
        return self.alpha

    def visit(self, order: np.ndarray) -> None:
        bcpl_epoch(self.blocks, self.w, self.alpha, self.rule, order, self.gaps, self.work)

    def restart(self, chosen: np.ndarray) -> None:
        """Restart at other candidates, with the softness up to SOFTNESS that has the largest D."""
        self.blocks = self.problem.bags(chosen)
        self._soften(SOFTNESS)
        self._soften(SOFTNESS * self.best_share())

    def _soften(self, softness: float) -> None:
        """Put 1 - softness on the chosen candidates of the true classes, and spread the rest evenly."""
        p = self.problem
        others = np.repeat(p.sizes * p.n_classes - 1, p.sizes)
        truth = p.offsets[:-1] + self.blocks.chosen, p.y
        self.alpha = np.repeat(softness / np.maximum(others, 1)[:, None], p.n_classes, axis=1)
        self.alpha[truth] = np.where(others[p.offsets[:-1]] > 0, 1.0 - softness, 1.0)
        self.synchronise()

    def follow(self, chosen: np.ndarray) -> None:
        """Continue with other candidates: exchange the weights of (old h*, y) and (new h*, y), on a copy."""
        p, before, alpha = self.problem, self.blocks.chosen, self.alpha.copy()
        old_pair, new_pair = (p.offsets[:-1] + before, p.y), (p.offsets[:-1] + chosen, p.y)
        alpha[old_pair], alpha[new_pair] = self.alpha[new_pair], self.alpha[old_pair]
        self.blocks, self.alpha = p.bags(chosen), alpha
        self.vector = self.recompute()[0]
        self.w = p.shaped(self.vector)

    def expected_loss(self) -> np.ndarray:
        p, wrong = self.problem, self.alpha.copy()
        wrong[np.arange(p.offsets[-1]), np.repeat(p.y, p.sizes)] = 0.0
        return np.add.reduceat(wrong.sum(axis=1), p.offsets[:-1])

    def recompute(self) -> tuple[np.ndarray, np.ndarray]:
        vector = np.zeros_like(self.vector)
        weights_of_state(self.blocks, self.alpha, self.problem.shaped(vector), self.work)
        return vector, self.expected_loss()


@dataclass(frozen=True)
class LatentSolution:
    """The weights of the model, as one vector, their best candidates, and J after every round."""

    vector: np.ndarray
    chosen: np.ndarray
    objectives: np.ndarray


class LatentRounds(Evaluated):
    """The CCCP rounds above.

    Parameters
    ----------
    problem : LatentProblem
    blocks : PairBlocks or SoftPairs
        The distributions and their steps, at the first candidates.
    rng : RandomState
        Order of the visits.
    tol : float
        The fit stops when another round can lower J by at most this share.
    round_precision : float
        See above.
    """

    def __init__(
        self,
        problem: LatentProblem,
        blocks: PairBlocks | SoftPairs,
        rng: np.random.RandomState,
        tol: float,
        *,
        round_precision: float = 0.5,
    ) -> None:
        self.problem, self.blocks, self.rng, self.tol = problem, blocks, rng, tol
        self.round_precision = round_precision
        self.accepted = np.zeros(problem.size)
        self.objective = problem.values(self.accepted, blocks.blocks.chosen).objective
        self.objectives: list[float] = []
        self.tried = {blocks.blocks.chosen.tobytes()}
        self.epochs = self.stage = 0

    @property
    def name(self) -> str:
        return self.blocks.name

    def _move(self, clock: Clock) -> Progress:
        """One sweep; end the round when its weights are accepted."""
        seen = self.blocks.sweep(self.rng, clock)
        self.epochs += 1
        if self.epochs % SYNCHRONISE_EVERY == 0:
            self.blocks.synchronise()
        dual = self.blocks.objective()
        allowed = self.round_precision * (self.objective - dual)
        idle = not self.objectives and self._stationary(dual)
        due = self.blocks.solved or self.epochs % EVALUATE_EVERY == 0
        if due or self.blocks.gaps.sum() <= allowed or idle:
            values = self.problem.values(self.blocks.mean.value, self.blocks.blocks.chosen)
            if values.majoriser - dual <= allowed and values.objective < self.objective:
                self.accepted, self.objective = self.blocks.mean.value.copy(), values.objective
                self.objectives.append(self.objective)
                self._choose(values.best)
            elif idle and values.best.tobytes() not in self.tried:
                self._choose(values.best)
        dual = self.blocks.objective()
        # Until the first round ends the model is that of alpha, whose J and D are not known yet.
        known = self.objectives or self._stationary(dual)
        certificate = Certificate(self.objective, dual) if known else UNKNOWN
        return Progress(certificate, seen, stage=self.stage)

    def _stationary(self, dual: float) -> bool:
        """Whether another round can lower the objective by at most tol J."""
        return self.objective - dual <= self.tol * self.objective

    def _choose(self, best: np.ndarray) -> None:
        """Begin a round with the candidates `best`, from alpha or, if that is better, from W = 0."""
        if np.array_equal(best, self.blocks.blocks.chosen):
            return
        self.tried.add(best.tobytes())
        self.stage += 1
        self.blocks.follow(best)
        if self.blocks.objective() <= 0:
            self.blocks.restart(best)
        self.blocks.mean.count = 0

    def _evaluate(self) -> tuple[LatentSolution, Certificate]:
        """The accepted weights, or those of alpha if they are better with the same candidates.

        A fit that ends in its first round returns the weights of alpha and their best candidates. J of the
        weights and D of the stored alpha are recomputed.
        """
        chosen = self.blocks.blocks.chosen
        vector, expected_loss = self.blocks.recompute()
        dual, values = self.problem.dual(vector, expected_loss), self.problem.values(vector, chosen)
        objective = self.problem.values(self.accepted, chosen).objective
        unfinished = self.epochs > 0 and not self.objectives and not self._stationary(dual)
        converged = values.objective < objective and np.array_equal(values.best, chosen)
        if unfinished and not converged:
            dual = self._dual_at(values.best)
        if not (unfinished or converged):
            solution = LatentSolution(self.accepted, chosen, np.array(self.objectives))
            return solution, Certificate(objective, dual)
        objectives = np.array([*self.objectives, values.objective])
        return LatentSolution(vector, values.best, objectives), Certificate(values.objective, dual)

    def _dual_at(self, chosen: np.ndarray) -> float:
        """D of the majoriser with other candidates, which is at least that of W = 0."""
        other = copy(self.blocks)
        other.follow(chosen)
        return max(other.objective(), 0.0)


def pairwise(
    problem: LatentProblem, rng: np.random.RandomState, tol: float, chosen: np.ndarray
) -> LatentRounds:
    """Rounds of pairwise steps."""
    return LatentRounds(problem, PairBlocks(problem, chosen), rng, tol)


def frank_wolfe(
    problem: LatentProblem, rng: np.random.RandomState, tol: float, chosen: np.ndarray
) -> LatentRounds:
    """Rounds of Frank-Wolfe steps."""
    return LatentRounds(problem, PairBlocks(problem, chosen, pairwise=False), rng, tol)


def partial_linearisation(
    problem: LatentProblem, rng: np.random.RandomState, tol: float, chosen: np.ndarray, **options: Any
) -> LatentRounds:
    """Rounds of partial linearisation."""
    return LatentRounds(problem, SoftPairs(problem, chosen, **options), rng, tol)


def exponentiated_gradient(
    problem: LatentProblem, rng: np.random.RandomState, tol: float, chosen: np.ndarray, **options: Any
) -> LatentRounds:
    """Rounds of online exponentiated gradient."""
    blocks = SoftPairs(problem, chosen, safeguard=False, search=False, **options)
    return LatentRounds(problem, blocks, rng, tol)
