"""Linear M3L whose rows do not fit the memory: random groups of rows that still matter, one after the other.

Problem, dual and gap as in `multilabel.problem`, for labels that no prior couples; the ascent is that of
`multilabel.sweeps`. The weights, and the dual variables that are not zero, are in memory. An epoch

1. *moves*: rows with a share of the gap are dealt out at random to groups that fit the memory; each group is
   copied, its dual variables take some passes under the weights of all, and it is forgotten. That happens a
   few times, with other groups each time; where all such rows fit, they stay for as many passes as they need;
2. *measures*: one pass over all rows, under weights that do not move, makes the certificate and says which
   rows matter from then on.

Groups must be dealt anew: rows that always take their turn together pull the weights to and fro between
them, which costs many more passes. Groups are made of runs of neighbouring rows, which are read from a file
in one go.

The bias of all labels is moved towards its dual value once per pass over all groups, as in `sweeps` once per
pass over all rows. Within a group it is drawn to where it was, plus what the group itself asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Patience, Progress
from maxmargin.core.rows import Rows
from maxmargin.core.threads import aligned_zeros
from maxmargin.dask.label_groups import whole
from maxmargin.dask.rounds import FEW_ROWS, Scattered
from maxmargin.dask.working_sets import Part, rows_of
from maxmargin.multilabel.newton import few_features
from maxmargin.multilabel.problem import LinearM3L, Sums
from maxmargin.multilabel.sweeps import BiasPull, LabelSweeps, SweepRule

# Rows that stay together when rows are dealt out.
RUN = 64
# How often all rows are dealt out in the first epoch, for one sweep; and later those that matter, for so many
# passes. Found on the rows of `experiments/out_of_core.py`.
FIRST_DEALS, DEALS, PASSES = 2, 3, 3


def suits(problem: Scattered) -> bool:
    """Whether no prior couples labels, and rows are not so short and full that other methods are faster."""
    largest: Part = problem.parts[int(np.argmax(problem.sizes))]
    problem_of_part = LinearM3L(Rows.of(largest.X), largest.costs, problem.R, largest.bias)
    return not problem_of_part.coupled and not few_features(problem_of_part)


def gathered(some: list[tuple[Any, np.ndarray]]) -> Any:
    """Rows of several matrices as one, copied one matrix after the other to need no room for two copies."""
    first, _ = some[0]
    dtype = np.result_type(*(X.dtype for X, _ in some))
    ends = np.cumsum([0, *(len(ids) for _, ids in some)])
    if not sp.issparse(first):
        dense = np.empty((ends[-1], first.shape[1]), dtype)
        for (X, ids), (a, b) in zip(some, pairwise(ends), strict=True):
            dense[a:b] = X[ids]
        return dense
    lengths = np.concatenate([np.diff(X.indptr)[ids] for X, ids in some])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    data, indices = np.empty(indptr[-1], dtype), np.empty(indptr[-1], first.indices.dtype)
    for (X, ids), (a, b) in zip(some, pairwise(indptr[ends]), strict=True):
        piece = X[ids]
        data[a:b], indices[a:b] = piece.data, piece.indices
    return sp.csr_array((data, indices, indptr), shape=(ends[-1], first.shape[1]))


class GroupSweeps(LabelSweeps):
    """Sweeps over a group of rows, under weights that other rows have made as well."""

    def _prepare(self, alpha: np.ndarray) -> None:
        super(LabelSweeps, self)._prepare(alpha)

    def join(self, W: np.ndarray, S: np.ndarray, follow: BiasPull) -> None:
        """Take over weights, S and the pull of the bias."""
        self.W, self.WT, self.S, self.follow = W, np.empty(W.shape[::-1], W.dtype), S, follow

    def sweep(self) -> None:
        """One pass over all entries."""
        self._sweep()

    def polish(self, flags: np.ndarray, gaps: np.ndarray, gap: float, clock: Clock) -> None:
        """Passes over marked entries; `gaps` of the labels are these rows' share, `gap` is that of all."""
        self.flags, self.gaps, self.gap = flags, gaps, gap
        self._polish(clock)


class Streamed:
    """The solver: weights and sparse dual variables in memory, rows wherever they are.

    Parameters
    ----------
    problem : Scattered
        Of labels that no prior couples; its parts are at hand.
    tol : float
        The relative gap to reach.
    budget : int or None
        Rows of a group; None is the size of the largest part, at least 10,000.
    dtype : type
        Working precision; double takes over where single does not get further.
    rng : numpy.random.RandomState
    n_threads : int, default=1
    """

    def __init__(
        self,
        problem: Scattered,
        *,
        tol: float,
        budget: int | None,
        dtype: type,
        rng: np.random.RandomState,
        n_threads: int = 1,
    ) -> None:
        self.problem, self.tol, self.rng, self.n_threads = problem, tol, rng, n_threads
        self.parts: list[Part] = problem.parts
        self.budget = budget or max(FEW_ROWS, *problem.sizes)
        self.ends = np.concatenate([[0], np.cumsum(problem.sizes)])
        self.n, self.L = int(self.ends[-1]), self.parts[0].costs.signs.shape[1]
        self.r = np.ones(self.L) if problem.R is None else np.diag(problem.R).copy()
        self.rule = SweepRule()
        self.alpha = sp.csr_array((self.n, self.L), dtype=dtype)
        self.W = aligned_zeros(problem.n_features + 1, self.L, dtype)
        self.S = np.zeros(self.L)
        norms = np.concatenate([self._of(part).q for part in self.parts])
        self.follow = BiasPull(problem.bias, norms, self.L, self.rule)
        self.patience = Patience()
        self.marks = sp.csr_array((self.n, self.L), dtype=np.bool_)
        self.gaps, self.gap, self.quiet = np.zeros(self.L), np.inf, 0.0
        self._answer: tuple[np.ndarray, Certificate] | None = None

    def epoch(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The measured gap was small enough and yet there is another epoch: the weights have drifted.
            self.W[:, : self.L] = self.solution()
        self._answer = None
        if np.isinf(self.gap):
            for _ in range(FIRST_DEALS):
                self._deal(np.arange(self.n), None, clock)
        else:
            self._move(clock)
        certificate = self._measure()
        if self.patience.exhausted(certificate.gap) and self.W.dtype == np.float32:
            self.alpha, self.W = self.alpha.astype(np.float64), self.W.astype(np.float64)
        return Progress(certificate, len(self._marked()))

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> np.ndarray:
        """Z, feature-major with the bias last."""
        return self._evaluated()[0]

    def _of(self, part: Part) -> LinearM3L:
        return LinearM3L(Rows.of(part.X), part.costs, self.problem.R, part.bias)

    def _marked(self) -> np.ndarray:
        """The rows with a share of the gap."""
        return np.flatnonzero(np.diff(self.marks.indptr))

    def _move(self, clock: Clock) -> None:
        rows = self._marked()
        if len(rows) <= self.budget:
            self._deal(rows, self.rule.label_passes, clock)
            return
        for _ in range(DEALS):
            self._deal(rows, PASSES, clock)

    def _deal(self, rows: np.ndarray, passes: int | None, clock: Clock) -> None:
        """Deal rows out to groups, let each of these move in turn, then the bias.

        `passes` are over marked entries; None is one over all.
        """
        moved, answers = [], []
        groups = self._groups(rows)
        for group in groups:
            if clock.expired():
                break
            answers.append(self._visit(group, passes, len(groups) == 1, clock))
            moved.append(group)
        if not moved:
            return
        rest = np.setdiff1d(np.arange(self.n), np.concatenate(moved), assume_unique=True)
        order = np.argsort(np.concatenate([*moved, rest]))
        self.alpha = sp.csr_array(sp.vstack([*answers, self.alpha[rest]], format="csr")[order])
        if len(groups) > 1:
            goal = self.problem.bias * self.S * self.r
            self.W[-1, : self.L] += self.follow.pull * (goal - self.W[-1, : self.L])

    def _groups(self, rows: np.ndarray) -> list[np.ndarray]:
        """Random groups of about the rows that fit the memory, made of runs."""
        runs, places = np.unique(rows // RUN, return_inverse=True)
        number = -(-len(rows) // self.budget)
        dealt = (self.rng.permutation(len(runs)) % max(number, 1))[places]
        return [rows[dealt == k] for k in range(number)]

    def _visit(self, rows: np.ndarray, passes: int | None, alone: bool, clock: Clock) -> sp.csr_array:
        """Move the dual variables of some rows, and the weights with them.

        Rows that are `alone` move the bias as in `sweeps`. Others see it where it should be, and it answers
        their steps only.
        """
        bias, before = self.problem.bias, self.W[-1, : self.L].astype(np.float64)
        S = self.S if alone or not bias else before / (bias * self.r)
        sweeps = GroupSweeps(
            self._of(self._taken(rows)),
            self.alpha[rows].toarray(),
            tol=self.tol,
            rng=self.rng,
            n_threads=self.n_threads,
            rule=replace(self.rule, label_passes=passes or 1),
        )
        sweeps.join(self.W, S.copy(), self.follow)
        if passes is None:
            sweeps.sweep()
        else:
            flags = self.marks[rows].toarray()
            marked = np.bincount(self.marks.indices, minlength=self.L)
            share = np.count_nonzero(flags, axis=0) / np.maximum(marked, 1)
            sweeps.polish(flags, self.gaps * share, self.gap, clock)
        change = sweeps.S - S
        self.S = self.S + change
        if not alone:
            self.W[-1, : self.L] = before + self.follow.pull * bias * change * self.r
        return sp.csr_array(sweeps.alpha)

    def _taken(self, rows: np.ndarray) -> Part:
        """Copies of some rows of all parts, in their order."""
        cuts = np.searchsorted(rows, self.ends)
        some = [
            (part, rows[a:b] - first)
            for part, first, (a, b) in zip(self.parts, self.ends[:-1], pairwise(cuts), strict=True)
            if a < b
        ]
        costs = whole(*(Part(part.X[:0], rows_of(part.costs, ids), part.bias) for part, ids in some)).costs
        return Part(gathered([(part.X, ids) for part, ids in some]), costs, self.problem.bias)

    def _measure(self) -> Certificate:
        """The certificate by the weights at hand; marks what to visit next."""
        marks: list[sp.csr_array] = []
        sums = self._sums(self.W, self.quiet, marks)
        self.marks, self.S = sp.csr_array(sp.vstack(marks, format="csr")), sums.S
        lag = self.W[-1, : self.L] / self.r - self.problem.bias * self.S
        lag_share = 0.5 * self.r * lag**2
        self.gaps = sums.gap + lag_share
        self.follow.learn(self.gaps, lag_share)
        norms = np.einsum("jl,jl->l", self.W, self.W, dtype=np.float64)[: self.L]
        primal = 0.5 * float(np.sum(norms / self.r)) + float(sums.loss.sum()) + self.problem.constant
        certificate = Certificate(primal, primal - float(self.gaps.sum()))
        self.gap = certificate.gap
        self.quiet = self.rule.neglected * self.tol * abs(primal) / (self.n * self.L)
        return certificate

    def _sums(self, Z: np.ndarray, quiet: float, marks: list[sp.csr_array]) -> Sums:
        """Sums over all rows under weights Z, part by part; adds marks of their entries."""
        total = np.zeros((4, self.L))
        for part, alpha in self._dual():
            flags = np.zeros(alpha.shape, np.bool_)
            if len(alpha):
                total += self._of(part).measure(alpha, Z, None, flags, self.n_threads, quiet)
            marks.append(sp.csr_array(flags))
        return Sums(*total)

    def _dual(self) -> Iterator[tuple[Part, np.ndarray]]:
        """Every part with its dual variables."""
        for part, (first, last) in zip(self.parts, pairwise(self.ends), strict=True):
            yield part, self.alpha[first:last].toarray()

    def _evaluated(self) -> tuple[np.ndarray, Certificate]:
        """Weights and certificate from the stored dual variables in float64, kept until the next epoch."""
        if self._answer is None:
            V = np.zeros((self.problem.n_features + 1, self.L))
            for part, alpha in self._dual():
                V += self._of(part).accumulate(alpha, n_threads=self.n_threads)
            Z, norms = V * self.r, (V * V) @ self.r
            dual_norm = float(norms.sum())
            # The bias is a primal variable of its own, as in `sweeps`.
            Z[-1] = self.W[-1, : self.L]
            norms[-1] = float(np.sum(Z[-1] ** 2 / self.r))
            sums, constant = self._sums(Z, 0.0, []), self.problem.constant
            self._answer = (
                Z,
                Certificate(
                    0.5 * float(norms.sum()) + float(sums.loss.sum()) + constant,
                    float(sums.value.sum()) - 0.5 * dual_norm + constant,
                ),
            )
        return self._answer
