"""Linear M3L whose rows do not fit the memory: random groups of rows that still matter, one after the other.

Problem, dual and gap as in `multilabel.problem`, for labels that no prior couples; the ascent is that of
`multilabel.sweeps`. The weights are in memory, with the labels of all rows and one group of these; dual
variables lie in a temporary file, as the rows do in theirs. An epoch

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

import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import BestWeights, Certificate, Clock, Patience, Progress
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import aligned_zeros
from maxmargin.dask.label_groups import joined
from maxmargin.dask.rounds import Scattered
from maxmargin.dask.stored import integers_for
from maxmargin.dask.stream_loops import copy_rows
from maxmargin.dask.working_sets import Part, rows_of
from maxmargin.multilabel.choice import few_features
from maxmargin.multilabel.problem import LARGEST_SINGLE, LinearM3L, Sums
from maxmargin.multilabel.sweeps import BiasPull, LabelSweeps, SweepRule

# Rows that stay together when rows are dealt out.
RUN = 64
# How often all rows are dealt out in the first epoch, for one sweep; and later those that matter, for so many
# passes. Found on the rows of `experiments/out_of_core.py`.
FIRST_DEALS, DEALS, PASSES = 2, 3, 3
# Columns of W come in multiples of that.
LANES = 16
# Bytes of a group beside its rows, for each of them and for each of their labels; the same of the largest
# part while it is looked at. And of what does not depend on sizes: squares of some entries, random numbers.
PER_ROW, PER_ENTRY, PER_SEEN_ROW, PER_SEEN_ENTRY, ALWAYS = 100, 16, 40, 20, 1 << 20
# Memory in MiB that a fit may take whatever is given, as Python and what it imports take several times as
# much; and bytes of rows, with PER_ENTRY for each of their labels, that are then simply loaded.
LEAST, LOADED = 32, 24 << 20


def suits(problem: Scattered) -> bool:
    """Whether no prior couples labels, and rows are not so short and full that other methods are faster."""
    largest: Part = problem.parts[int(np.argmax(problem.sizes))]
    problem_of_part = LinearM3L(Rows.of(largest.X), largest.costs, problem.R, largest.bias)
    return not problem_of_part.coupled and not few_features(problem_of_part)


def fitting_group(problem: Scattered, n_bytes: int, limit: float) -> int:
    """Rows of a group for which a fit needs no more than `limit` MiB, or LEAST; X takes `n_bytes`."""
    limit = max(limit, LEAST)
    n, L, largest = sum(problem.sizes), problem.parts[0].costs.signs.shape[1], max(problem.sizes)
    # Labels, weights of samples, marks; W and its transpose; Z, what it is summed up from, and a copy of it.
    kept = sum(part.costs.signs.nbytes + part.costs.weight.nbytes for part in problem.parts) + 2 * n
    kept += 8 * (problem.n_features + 1) * (2 * LANES * -(-L // LANES) + 3 * L)
    kept += largest * (PER_SEEN_ROW + PER_SEEN_ENTRY * L) + ALWAYS
    each = n_bytes / n + PER_ROW + PER_ENTRY * L
    fitting = int((limit * 2**20 - kept) / each)
    if fitting < RUN:
        raise ValueError(
            f"memory_limit={limit:g} (MiB) is too little for the labels of {n:,} samples and the weights; "
            f"raise it to {(kept + RUN * each) / 2**20 + 0.1:.1f} or more, or give working_rows."
        )
    return min(fitting, n)


def loadable(problem: Scattered, n_bytes: int) -> bool:
    """Whether rows of `n_bytes` are so few that there is nothing to gain from leaving them in files."""
    L = problem.groups[-1].stop
    return n_bytes + PER_ENTRY * sum(problem.sizes) * L <= LOADED


def mapped_zeros(shape: tuple[int, int], dtype: type) -> np.ndarray:
    """Zeros in a temporary file that goes when they do; the room for them is taken at once."""
    with tempfile.TemporaryFile(prefix="maxmargin-") as file:
        zeros = np.memmap(file, dtype, "w+", shape=shape)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, zeros.nbytes)
    return np.asarray(zeros)


class Copies:
    """Room for copies of the rows of one group at a time, which the next ones take over.

    It is made of pages of its own, which go back to the system with it, where malloc would keep them. New
    ones cost ten times the copies themselves.
    """

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}

    def rows(self, some: list[tuple[Any, np.ndarray]], dtype: Any) -> Any:
        """Rows of several matrices as one, copied one matrix after the other to need no room for more."""
        first, _ = some[0]
        ends = np.cumsum([0, *(len(ids) for _, ids in some)])
        if not sp.issparse(first):
            dense = self._room("data", ends[-1] * first.shape[1], dtype).reshape(-1, first.shape[1])
            for (X, ids), (a, b) in zip(some, pairwise(ends), strict=True):
                dense[a:b] = X[ids]
            return dense
        lengths = np.concatenate([X.indptr[ids + 1] - X.indptr[ids] for X, ids in some])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        # One type of integers for both, or scipy would copy the columns to make it so.
        indptr = indptr.astype(integers_for(max(indptr[-1], first.shape[1])))
        data = self._room("data", indptr[-1], dtype)
        indices = self._room("indices", indptr[-1], indptr.dtype)
        for (X, ids), (a, b) in zip(some, pairwise(indptr[ends]), strict=True):
            copy_rows(*map(readonly, (X.data, X.indices, X.indptr, ids)), data[a:b], indices[a:b])
        return sp.csr_array((data, indices, indptr), shape=(ends[-1], first.shape[1]))

    def _room(self, name: str, size: int, dtype: Any) -> np.ndarray:
        n_bytes = int(size) * np.dtype(dtype).itemsize
        if name not in self.pages or len(self.pages[name]) < n_bytes:
            self.pages.pop(name, None)  # before there are more
            self.pages[name] = paged(n_bytes)
        # Not a part of a longer array, of which scipy would take a copy.
        return np.frombuffer(self.pages[name], dtype, int(size))


def paged(n_bytes: int) -> Any:
    """Room for bytes in pages of its own."""
    return mmap.mmap(-1, max(n_bytes, 1))


class GroupSweeps(LabelSweeps):
    """Sweeps over a group of rows, under weights that other rows have made as well."""

    def _prepare(self, alpha: np.ndarray) -> None:
        super(LabelSweeps, self)._prepare(alpha)

    def join(self, W: np.ndarray, S: np.ndarray, follow: BiasPull) -> None:
        """Take over weights, S and the pull of the bias."""
        self.W, self.WT, self.S, self.follow = W, np.empty(W.shape[::-1], W.dtype), S, follow
        self.WT[self.L :] = 0
        self.turned = self.ahead = False

    def sweep(self) -> None:
        """One pass over all entries."""
        self._ascend(Clock(), sweeps=1, polish=False)
        self._catch_up()

    def _part(self, k: int) -> np.ndarray:
        if len(self.parts) == 1:
            return self.W
        lo, hi = self.parts[k]
        W = aligned_zeros(len(self.W), hi - lo, self.real)  # and idle columns
        W[:, : hi - lo] = self.W[:, lo:hi]
        return W

    def polish(self, flags: np.ndarray, gaps: np.ndarray, gap: float, clock: Clock) -> None:
        """Passes over marked entries; `gaps` of the labels are these rows' share, `gap` is that of all."""
        self.flags, self.gaps, self.gap = flags, gaps, gap
        self._ascend(clock)
        self._catch_up()


class Streamed:
    """The solver: weights in memory, dual variables in a temporary file, rows wherever they are.

    Parameters
    ----------
    problem : Scattered
        Of labels that no prior couples; its parts are at hand.
    tol : float
        The relative gap to reach.
    budget : int
        Rows of a group.
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
        budget: int,
        dtype: type,
        rng: np.random.RandomState,
        n_threads: int = 1,
    ) -> None:
        self.problem, self.tol, self.rng, self.n_threads = problem, tol, rng, n_threads
        self.parts: list[Part] = problem.parts
        self.budget = budget
        self.ends = np.concatenate([[0], np.cumsum(problem.sizes)])
        self.n, self.L = int(self.ends[-1]), self.parts[0].costs.signs.shape[1]
        self.r = np.ones(self.L) if problem.R is None else np.diag(problem.R).copy()
        self.rule = SweepRule()
        self.alpha = mapped_zeros((self.n, self.L), dtype)
        self.flags = mapped_zeros((self.n, self.L), np.bool_)
        self.W = aligned_zeros(problem.n_features + 1, self.L, dtype)
        self.S = np.zeros(self.L)
        total, self.reach = 0.0, problem.bias
        for part, _ in self._filled():
            of_part = self._of(part)
            total, self.reach = total + float(of_part.q.sum()), max(self.reach, of_part.reach())
        self.follow = BiasPull(problem.bias, np.array([total / self.n]), self.L, self.rule)
        self.copies = Copies()
        self.patience = Patience()
        # Rows with a share of the gap, and how many there are for every label.
        self.marked, self.counts = np.ones(self.n, np.bool_), np.full(self.L, self.n)
        self.gaps, self.gap, self.quiet = np.zeros(self.L), np.inf, 0.0
        self.best = BestWeights()
        self._answer: tuple[np.ndarray, Certificate] | None = None

    def epoch(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The measured gap was small enough and yet there is another epoch: the weights have drifted.
            self.W[:, : self.L] = self._weights()[0]
        self._answer = None
        if np.isinf(self.gap):
            for _ in range(FIRST_DEALS):
                self._deal(None, clock)
        else:
            self._move(clock)
        certificate = self._measure()
        if self.patience.exhausted(certificate.gap) and self.W.dtype == np.float32:
            self._double()
        self.best.offer(certificate.primal, self.W[:, : self.L])
        return Progress(Certificate(self.best.primal, certificate.dual), int(np.count_nonzero(self.marked)))

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> np.ndarray:
        """Z, feature-major with the bias last."""
        return self._evaluated()[0]

    def _of(self, part: Part) -> LinearM3L:
        return LinearM3L(Rows.of(part.X), part.costs, self.problem.R, part.bias)

    def _double(self) -> None:
        """Go on in double precision."""
        alpha = mapped_zeros(self.alpha.shape, np.float64)
        for first, last in pairwise(self.ends):
            alpha[first:last] = self.alpha[first:last]
        self.alpha, self.W = alpha, self.W.astype(np.float64)

    def _move(self, clock: Clock) -> None:
        if np.count_nonzero(self.marked) <= self.budget:
            self._deal(self.rule.label_passes, clock)
            return
        for _ in range(DEALS):
            self._deal(PASSES, clock)

    def _deal(self, passes: int | None, clock: Clock) -> None:
        """Deal marked rows out to groups, let each of these move in turn, then the bias.

        `passes` are over marked entries; None is one over all.
        """
        groups = self._groups()
        for runs in groups:
            if clock.expired():
                return
            self._visit(self._rows_in(runs), passes, len(groups) == 1, clock)
        if len(groups) > 1:
            goal = self.problem.bias * self.S * self.r
            self.W[-1, : self.L] += self.follow.pull * (goal - self.W[-1, : self.L])

    def _groups(self) -> list[np.ndarray]:
        """Random groups of runs, at least one each, whose marked rows are about as many as fit the memory."""
        runs = np.flatnonzero(np.logical_or.reduceat(self.marked, np.arange(0, self.n, RUN)))
        number = min(-(-int(np.count_nonzero(self.marked)) // self.budget), len(runs))
        dealt = self.rng.permutation(runs)
        return [np.sort(dealt[k::number]) for k in range(number)]

    def _rows_in(self, runs: np.ndarray) -> np.ndarray:
        """The marked rows of some runs."""
        rows = (runs[:, None] * RUN + np.arange(RUN)).ravel()
        rows = rows[rows < self.n]
        return rows[self.marked[rows]]

    def _visit(self, rows: np.ndarray, passes: int | None, alone: bool, clock: Clock) -> None:
        """Move the dual variables of some rows, and the weights with them.

        Rows that are `alone` move the bias as in `sweeps`. Others see it where it should be, and it answers
        their steps only.
        """
        bias, before = self.problem.bias, self.W[-1, : self.L].astype(np.float64)
        S = self.S if alone or not bias else before / (bias * self.r)
        sweeps = GroupSweeps(
            self._of(self._taken(rows)),
            self.alpha[rows],
            tol=self.tol,
            rng=self.rng,
            n_threads=self.n_threads,
            rule=replace(self.rule, label_passes=passes or 1),
        )
        sweeps.join(self.W, S.copy(), self.follow)
        if passes is None:
            sweeps.sweep()
        else:
            flags = self.flags[rows]
            share = np.count_nonzero(flags, axis=0) / np.maximum(self.counts, 1)
            sweeps.polish(flags, self.gaps * share, self.gap, clock)
        self.alpha[rows] = sweeps.alpha
        change = sweeps.S - S
        self.S = self.S + change
        if not alone:
            self.W[-1, : self.L] = before + self.follow.pull * bias * change * self.r

    def _taken(self, rows: np.ndarray) -> Part:
        """Copies of some rows of all parts, in their order."""
        cuts = np.searchsorted(rows, self.ends)
        some = [
            (part, rows[a:b] - first)
            for part, first, (a, b) in zip(self.parts, self.ends[:-1], pairwise(cuts), strict=True)
            if a < b
        ]
        costs = joined([rows_of(part.costs, ids) for part, ids in some])
        X = self.copies.rows([(part.X, ids) for part, ids in some], self._precision())
        return Part(X, costs, self.problem.bias)

    def _precision(self) -> Any:
        """The type of copied entries: as `LinearM3L.rows_for` would have them, which then copies nothing."""
        sparse = sp.issparse(self.parts[0].X)
        if sparse and self.W.dtype == np.float32 and self.reach <= LARGEST_SINGLE:
            return np.float32
        return np.result_type(*(part.X.dtype for part in self.parts))

    def _measure(self) -> Certificate:
        """The certificate by the weights at hand; marks what to visit next."""
        self.counts = np.zeros(self.L, np.int64)
        total = np.zeros((4, self.L))
        for part, rows in self._filled():
            flags = self.flags[rows]
            total += self._of(part).measure(self.alpha[rows], self.W, None, flags, self.n_threads, self.quiet)
            self.marked[rows] = flags.any(axis=1)
            self.counts += np.count_nonzero(flags, axis=0)
        sums = Sums(*total)
        self.S = sums.S
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

    def _filled(self) -> Iterator[tuple[Part, slice]]:
        """Every part that is not empty, and where its rows are among all."""
        for part, (first, last) in zip(self.parts, pairwise(self.ends), strict=True):
            if first < last:
                yield part, slice(first, last)

    def _evaluated(self) -> tuple[np.ndarray, Certificate]:
        """The best weights, and their certificate with the dual variables; kept until the next epoch."""
        if self._answer is None:
            Z, dual_norm = self._weights()
            certificate = self._certificate(Z, dual_norm)
            if certificate.gap > self.tol and not self.best.are_last:
                best = self.best.weights.astype(np.float64)
                at_best = self._certificate(best, dual_norm)
                if at_best.primal < certificate.primal:
                    Z, certificate = best, at_best
            self._answer = Z, certificate
        return self._answer

    def _weights(self) -> tuple[np.ndarray, float]:
        """Weights from the stored dual variables in float64, and the norm in the dual objective."""
        Z = np.zeros((self.problem.n_features + 1, self.L))
        for part, rows in self._filled():
            Z += self._of(part).accumulate(self.alpha[rows], n_threads=self.n_threads)
        dual_norm = float(np.einsum("jl,jl,l->", Z, Z, self.r))
        Z *= self.r
        # The bias is a primal variable of its own, as in `sweeps`.
        Z[-1] = self.W[-1, : self.L]
        return Z, dual_norm

    def _certificate(self, Z: np.ndarray, dual_norm: float) -> Certificate:
        """P at weights Z, and D of the stored dual variables."""
        loss = value = 0.0
        for part, rows in self._filled():
            flags = np.empty(self.flags[rows].shape, np.bool_)
            sums = self._of(part).measure(self.alpha[rows], Z, None, flags, self.n_threads)
            loss, value = loss + float(sums.loss.sum()), value + float(sums.value.sum())
        norm, constant = float(np.einsum("jl,jl,l->", Z, Z, 1 / self.r)), self.problem.constant
        return Certificate(0.5 * norm + loss + constant, value - 0.5 * dual_norm + constant)
