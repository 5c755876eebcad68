"""Many labels without a prior: each is solved on a small active set of samples and certified on all samples.

Problem, dual and gap as in `problem`, without a prior: labels share only X. With the squared hinge,
c_il max(0, m_il - y_il f_il)^2, the dual variables have no upper bound and

    dual     D(alpha) = <m, alpha> - 1/2 <A, F> - sum_il alpha_il^2 / (4 c_il).

y is sparse and stays sparse; no array has n_samples x n_labels entries.

**Active set.** Only the positives of a label and the negatives near its margin have dual variables of their
own. An iteration is an ascent on the active set (`member_loops`) and a scan of all samples for 64 labels at
once (`scan_loops`). The scan yields the exact primal objective, and the negatives that violate the margin
most join the active set; those with alpha = 0 that satisfy it leave. The first negatives are found by a scan
with the features of the positives, above all rare ones. The stored bias is the best one not above that of the
ascent. A label is done when P - D <= tol P, so the same holds for the sum over labels. The answer depends
neither on the order of labels nor on the size of a block.

**Shared dual direction.** A label with few positives needs negatives for its bias only: sum_i alpha_i must be
about the same on both sides, distributed so that X'alpha is short. All labels need the same, so it is
computed once: lambda >= 0 with sum 1 and a short m = X'lambda. Inactive samples have alpha_i = u lambda_i,
with one number u per label. A sample that joins the active set keeps its part u lambda_i as alpha (q sums
these parts, so the direction of a label is m - q). If a scan finds almost no violators and the gap is still
large, the samples with the largest lambda join the active set.

**Pruning.** Weights up to `prune_below` are set to zero, and the primal objective is that of the remaining
weights. Where pruning would add too much, the threshold of the label is quartered until it does not.

**Fallback.** Ascent is slow if a few features are far larger than others. If features are few, a label that
is not done after as many scans as Newton's method would cost is solved by Newton's method from its weights.

The model has a CSC `coef_`: the labels of a feature lie side by side, so a sample is scored by its features
in memory of one number per label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.core.rows import RowArrays, Rows, check_digits, readonly
from maxmargin.core.threads import aligned_zeros, run_threads
from maxmargin.multilabel import member_loops as loops
from maxmargin.multilabel import scan_loops
from maxmargin.multilabel.member_loops import CHUNK, LANES
from maxmargin.multilabel.problem import used_columns

# A row of k features counts k^-LENGTH_PENALTY in the first scan. On titles that finds 77 % of the support
# vectors instead of 75 %, in rows of 8 words instead of 18.
LENGTH_PENALTY = 0.2
# Passes that compute the shared direction, and random numbers for the orders (a power of two).
DIRECTION_PASSES, N_DRAWS = 100, 1 << 13
# Blocks per thread and epoch, so that no thread waits long for the others.
BLOCKS_PER_THREAD = 4
# Most samples that are scored at a time.
SCORED, MIB = 256, 2**20


@dataclass(frozen=True)
class BlockRule:
    """Sizes of blocks, active sets and ascents; none of them changes the optimum.

    Parameters
    ----------
    block : int
        Labels of a block, the unit of threads and epochs.
    common : int
        In the first scan a feature of this many samples has half the weight of a rare one.
    candidates, least : int
        The first active set has `candidates` samples per positive and `least` more. A scan adds as many
        violators as there are active samples, and at least `least`.
    passes : int
        Most passes over the active set between two scans.
    begin : float
        Target gap of the first ascent, relative to the loss of a model without positive predictions.
    listed, step : int
        If every `step`-th sample predicts more than `listed` violators per sample that may be added, the bias
        is lowered before the scan.
    tries, tries_squared : int
        Fewest scans of a label before the fallback, and all scans with the squared hinge (3 to 10 are as good
        on enron, delicious, bibtex and corel5k; 30 take up to twice as long).
    newton : float
        A scan costs as much as Newton's method if X'X takes this many times the products of X (estimated from
        times on enron at C = 100).
    """

    block: int = 512
    common: int = 100
    candidates: int = 20
    least: int = 128
    passes: int = 60
    begin: float = 0.05
    listed: int = 4
    step: int = 64
    tries: int = 30
    tries_squared: int = 10
    newton: float = 12.0

    def most_scans(self, problem: ManyM3L) -> int:
        """Scans of a label that cost as much as Newton's method on all samples and features."""
        if problem.squared:
            return self.tries_squared
        (n, _), d, entries = problem.shape, problem.n_features + 1, max(problem.rows.data.size, 1)
        return max(self.tries, int(n * d * d / (self.newton * entries)))

    def for_loops(self, tol: float, prune_below: float, max_rounds: int) -> loops.Rule:
        """The numbers that the loops read."""
        given = (getattr(self, name) for name in loops.Rule._fields[3:])
        return loops.Rule(float(tol), float(prune_below), int(max_rounds), *given)


class ManySolution(NamedTuple):
    """Sparse weights (labels are columns, the bias is the last row) and both objectives of every label."""

    weights: sp.csr_array | sp.csc_array
    primal: np.ndarray
    dual: np.ndarray


class Answer(NamedTuple):
    """Weights of one label, the bias last, and its two objectives."""

    weights: np.ndarray
    primal: float
    dual: float


class OneLabel(Protocol):
    """A method that solves one label from given weights; `solve` returns None if there is no time left.

    `stuck` names the remedy if rounding keeps the method from converging.
    """

    stuck: str

    def solve(self, l: int, clock: Clock, start: np.ndarray) -> Answer | None: ...


@dataclass(frozen=True)
class ManyM3L:
    """Independent labels, with y as a sparse matrix of the positive entries.

    The box of an entry is weight[i] * upper[side, l] and its margin is margin[l]; `squared` selects the
    squared hinge. `columns` are the user's features that the rows hold, None for all.
    """

    rows: Rows
    on: sp.csr_array
    weight: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    bias: float = 1.0
    squared: bool = False
    columns: np.ndarray | None = None

    @classmethod
    def of(cls, X: Any, on: sp.csr_array, weight: np.ndarray, **costs: Any) -> ManyM3L:
        """Build the problem; sparse rows are sorted by length, so that loop exits are predictable."""
        X, columns = used_columns(X)
        if sp.issparse(X):
            order = np.argsort(np.diff(X.indptr), kind="stable")
            X, on, weight = X[order], on[order], weight[order]
        problem = cls(Rows.of(X), on, weight, columns=columns, **costs)
        largest = math.sqrt(float(problem.squares.max(initial=problem.bias**2)))
        check_digits(largest, float(problem.weight.sum()) * float(problem.upper.max(initial=0.0)))
        return problem

    @property
    def shape(self) -> tuple[int, int]:
        """Samples, labels."""
        n, L = self.on.shape
        return n, L

    @property
    def n_features(self) -> int:
        return self.rows.shape[1]

    @cached_property
    def squares(self) -> np.ndarray:
        """Squared norm of every sample, without the bias."""
        return readonly(self.rows.squared_norms())

    @cached_property
    def costs(self) -> loops.LabelCosts:
        weight, upper, margin = (readonly(a) for a in (self.weight, self.upper, self.margin))
        return loops.LabelCosts(weight, upper, margin, self.bias, self.squared)

    def negative_model(self) -> tuple[np.ndarray, np.ndarray]:
        """The bias of every label that predicts all samples as negative, and its primal objective."""
        on = self.on.T @ self.weight
        h = np.array([[0.0], [2.0]]) * self.margin if self.bias else np.tile(self.margin, (2, 1))
        loss = self.upper * h ** (2 if self.squared else 1)
        constant = np.where(self.upper.any(axis=0), -self.margin / self.bias if self.bias else 0.0, 0.0)
        return constant, 0.5 * constant**2 + loss[1] * on + loss[0] * (self.weight.sum() - on)

    def shared_direction(self, n_passes: int) -> loops.SharedDirection:
        """The shared dual direction; zero without a bias."""
        n = self.shape[0]
        share, w = np.zeros(n), np.zeros(self.n_features + 1)
        if self.bias:
            loops.find_direction(self.rows.flat, self.squares, readonly(self.weight), n_passes, share, w)
        total = float(share.sum())
        if total > 0:
            share /= total
            w /= total
        m = w[:-1]
        support = np.flatnonzero(share)
        boxes, parts = self.weight[support], share[support]
        products = np.asarray(self.rows.matrix @ m, dtype=np.float64)
        return loops.SharedDirection(
            readonly(share),
            readonly(m),
            readonly(products),
            float(m @ m),
            float(np.min(boxes / parts)) if parts.size else 0.0,
            float(np.sum(parts**2 / (2 * boxes))),
            readonly(support[np.argsort(-parts, kind="stable")]),
            readonly(np.argsort(-np.abs(m), kind="stable")),
        )

    def samples(self, common: int, step: int, m: np.ndarray) -> loops.Samples:
        """X with features sorted by frequency, and what scans read of it."""
        X, squares = self.rows.matrix, self.squares
        (n, D), lengths = self.rows.shape, np.diff(self.rows.indptr)
        longest, norm = int(lengths.max(initial=0)), 1e-30 + float(np.sqrt(squares.max(initial=0.0)))
        penalty = readonly(np.maximum(lengths, 1.0) ** -LENGTH_PENALTY)
        errors = 2.0**-22 * (longest + 4) * norm, 0.51 * float(np.sqrt(longest)) * norm
        if self.rows.dense:
            flat, probe = self.rows.flat, Rows.of(X[::step]).flat
            names, rarity = readonly(np.arange(D)), readonly(np.ones(D))
            scanned = D, flat.indptr[1:], probe, probe.indptr[1:]
            return loops.Samples(flat, names, squares, rarity, penalty, *scanned, *errors)
        counts = np.bincount(X.indices, minlength=D)
        # Features of a single sample that are not in m come last.
        names = np.argsort(-(counts + (m != 0)), kind="stable")
        n_scanned = int(np.count_nonzero((counts > 1) | (m != 0)))
        place = np.empty(D, X.indices.dtype)
        place[names] = np.arange(D)
        sorted_ = sp.csr_array((X.data.copy(), place[X.indices], X.indptr), shape=X.shape)
        sorted_.sort_indices()
        skipped = np.searchsorted(X.indptr, np.flatnonzero(sorted_.indices >= n_scanned), side="right") - 1
        kept = lengths - np.bincount(skipped, minlength=n)
        flat, probe = padded(sorted_), padded(sorted_[::step])
        stops = readonly(flat.indptr[:-1] + kept), probe, readonly(probe.indptr[:-1] + kept[::step])
        rarity = readonly(1.0 / (1.0 + counts[names] / common))
        return loops.Samples(flat, readonly(names), squares, rarity, penalty, n_scanned, *stops, *errors)

    def workspace(self, samples: loops.Samples) -> loops.Workspace:
        """Memory for one thread; unused parts are never touched."""
        n, D = self.shape[0], self.n_features
        dense = self.rows.dense
        data = np.empty_like(samples.rows.data)
        indices = np.arange(D, dtype=np.uint32) if dense else np.empty(data.size, np.uint32)
        every = np.arange(D + 1, dtype=np.int32)
        number = every[:D].copy()
        if not dense:
            number[loops.COMMON :] = -1
        return loops.Workspace(
            alpha=np.empty(n),
            square=np.empty(n),
            box=np.empty(n),
            product=np.empty(n),
            order=np.empty(n, np.int64),
            local=RowArrays(data, indices, np.zeros(n + 1, np.int64), np.int64(dense)),
            marks=np.zeros(n, np.bool_),
            number=number,
            features=every,
            w=np.zeros(D + 1),
            q=np.zeros(D + 1),
            kept=np.zeros(D + 1),
            v=np.zeros(D + 1),
            violators=np.empty(n, np.int64),
            excess=np.empty(n),
            cost=np.empty(n),
            bucket=np.empty(scan_loops.LEVELS, np.int64),
            state=np.zeros(4),
        )

    def lanes(self, samples: loops.Samples) -> loops.Lanes:
        """Free lanes; of arrays with one entry per sample, unused parts are never touched."""
        (n, _), D, K = self.shape, self.n_features, len(LANES)
        whole, real = np.zeros((4, K), np.int64), np.zeros((8, K))
        return loops.Lanes(
            label=np.full(K, -1),
            iteration=whole[0],
            n_on=whole[1],
            size=whole[2],
            active=np.empty((K, n), np.int64),
            alpha=np.empty((K, n)),
            deficit=np.empty((K, n)),
            u=real[0],
            separate_bias=np.zeros(K, np.bool_),
            prune_below=real[1],
            target=real[2],
            dual=real[3],
            primal=real[4],
            done=np.zeros(K, np.bool_),
            half_norm=real[5],
            bias=real[6],
            n_kept=whole[3],
            features=np.empty((K, D + 1), np.int32),
            values=np.empty((K, D + 1)),
            unit=real[7],
            weights=aligned_zeros(samples.n_scanned + 1, K, np.int16),
            limit=np.full(K, np.inf, np.float32),
            n_found=np.zeros(K, np.int64),
            candidates=np.empty((K, n + 1), np.int32),
            score=np.empty((K, n + 1), np.float32),
            scores=np.empty((CHUNK, K), np.float32),
            passing=np.empty(CHUNK, np.uint64),
        )


def prune_weights(
    w: np.ndarray,
    primal: float,
    dual: float,
    threshold: float,
    tol: float,
    primal_of: Callable[[np.ndarray], float],
) -> tuple[np.ndarray, float]:
    """The weights of a label larger than `threshold`, lowered as far as the gap needs, and their P."""
    while threshold > 0.0:
        kept = np.where(np.abs(w) > threshold, w, 0.0)
        kept[-1] = w[-1]
        found = primal_of(kept)
        if found - dual <= tol * found:
            return kept, found
        threshold = 0.25 * threshold if threshold > 1e-6 else 0.0
    return w, primal


def padded(X: sp.csr_array) -> RowArrays:
    """Rows padded with zeros to a multiple of four."""
    lengths = np.diff(X.indptr).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(-(-lengths // 4) * 4)])
    at = np.arange(X.indices.size) + np.repeat(indptr[:-1] - X.indptr[:-1], lengths)
    data, indices = np.zeros(indptr[-1], X.dtype), np.zeros(indptr[-1], np.uint32)
    data[at], indices[at] = X.data, X.indices
    return RowArrays(readonly(data), readonly(indices), readonly(indptr), np.int64(0))


# Features, sorted by frequency, and weights of some labels, the bias last.
Weights = dict[int, tuple[np.ndarray, np.ndarray]]


class Packed(NamedTuple):
    """Weights of some labels one after the other: the number of weights per label, features, values."""

    counts: np.ndarray
    features: np.ndarray
    values: np.ndarray


def packed(weights: Weights, names: np.ndarray) -> Packed:
    """The weights of a block with the numbers of their features in X."""
    features, values = (np.concatenate(arrays) for arrays in zip(*weights.values(), strict=True))
    return Packed(np.array([len(part[0]) for part in weights.values()]), names[features], values)


def assembled(parts: list[Packed], shape: tuple[int, int]) -> sp.csr_array:
    """The weights of all parts as one matrix with a row per feature."""
    counts = sum(np.bincount(part.features, minlength=shape[0]) for part in parts)
    total = int(np.sum(counts))
    index_dtype = np.int32 if total < 2**31 else np.int64
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(index_dtype)
    labels, values, free, first = np.empty(total, index_dtype), np.empty(total), indptr[:-1].copy(), 0
    for part in parts:
        loops.scatter_columns(*part, first, free, labels, values)
        first += len(part.counts)
    return sp.csr_array((values, labels, indptr), shape=shape)


class LabelBlocks:
    """The solver of `ManyM3L`: an epoch solves some blocks of labels, each label until it is certified.

    Parameters
    ----------
    problem : ManyM3L
    tol : float
        The relative gap that every label reaches.
    rng : numpy.random.RandomState
        Draws the orders of active samples.
    n_threads : int, default=1
    prune_below : float, default=0.0
        Largest weight that may be pruned.
    max_rounds : int, default=1000
        Most scans of all samples for a label.
    fallback : callable, default=None
        Takes nothing and returns a `OneLabel` for labels that cost more scans than it does.
    rule : BlockRule
    """

    def __init__(
        self,
        problem: ManyM3L,
        *,
        tol: float,
        rng: np.random.RandomState,
        n_threads: int = 1,
        prune_below: float = 0.0,
        max_rounds: int = 1000,
        fallback: Callable[[], OneLabel] | None = None,
        rule: BlockRule | None = None,
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        self.rule = BlockRule() if rule is None else rule
        L = problem.shape[1]
        self.draws = readonly(rng.randint(0, 2**32, N_DRAWS, dtype=np.uint32))
        shared = problem.shared_direction(DIRECTION_PASSES)
        self.samples = problem.samples(self.rule.common, self.rule.step, shared.m)
        m = readonly(shared.m[self.samples.names])
        largest = readonly(np.argsort(-np.abs(m), kind="stable"))
        self.shared = shared._replace(m=m, order=largest)
        columns = problem.on.tocsc()
        positives, starts = (readonly(a.astype(np.int64)) for a in (columns.indices, columns.indptr))
        self.on = RowArrays(readonly(np.empty(0)), positives, starts, np.int64(0))
        self.names = np.append(self.samples.names, problem.n_features).astype(np.int32)
        most = max_rounds if fallback is None else min(self.rule.most_scans(problem), max_rounds)
        self.loop_rule = self.rule.for_loops(tol, prune_below, most)
        self.build_fallback = fallback if most < max_rounds else None
        self.fallback: OneLabel | None = None
        self.constant, self.primal = problem.negative_model()
        self.dual = np.zeros(L)
        self.blocks = [np.arange(a, min(a + self.rule.block, L)) for a in range(0, L, self.rule.block)]
        self.batch = 1 if n_threads == 1 else n_threads * BLOCKS_PER_THREAD
        self.done: list[Packed | None] = [None] * len(self.blocks)
        self.workspaces: list[tuple[loops.Workspace, loops.Lanes]] = []
        self.next = 0

    @property
    def n_epochs(self) -> int:
        """Epochs that all blocks take."""
        return -(-len(self.blocks) // self.batch)

    def epoch(self, clock: Clock) -> Progress:
        batch = range(self.next, min(self.next + self.batch, len(self.blocks)))
        found = run_threads(lambda b: self._solve_block(b, clock), batch, self.n_threads)
        self._run_fallback(found, clock)
        for b, weights in zip(batch, found, strict=True):
            self.done[b] = packed(weights, self.names)
        self.next = batch.stop
        certificate = self.certify()
        over, close = self.next == len(self.blocks), certificate.gap <= self.tol
        stuck = self.fallback.stuck if self.fallback and over and not close else ""
        visited = int(sum(len(self.blocks[b]) for b in batch))
        return Progress(certificate, visited, exact=True, done=over and close, stuck=stuck)

    def certify(self) -> Certificate:
        return Certificate(float(self.primal.sum()), float(self.dual.sum()))

    def solution(self) -> ManySolution:
        parts = [
            self._negative(labels) if weights is None else weights
            for labels, weights in zip(self.blocks, self.done, strict=True)
        ]
        shape = self.problem.n_features + 1, self.problem.shape[1]
        return ManySolution(assembled(parts, shape), self.primal, self.dual)

    def _negative(self, labels: np.ndarray) -> Packed:
        """Weights of labels that were not reached: all samples are negative."""
        bias = np.full(len(labels), self.problem.n_features, np.int32)
        return Packed(np.ones(len(labels), np.int64), bias, self.constant[labels])

    def _run_fallback(self, found: list[Weights], clock: Clock) -> None:
        """Solve the labels that are not done by the fallback and keep the better answer."""
        if self.build_fallback is None:
            return
        gap = self.primal - self.dual
        left = {l: weights for weights in found for l in weights if gap[l] > self.tol * self.primal[l]}
        if not left or clock.expired():
            return
        if self.fallback is None:
            self.fallback = self.build_fallback()
        fallback = self.fallback

        def solve(l: int) -> Answer | None:
            start, (features, values) = np.zeros(len(self.names)), left[l][l]
            start[self.names[features]] = values
            return fallback.solve(l, clock, start)

        answers = run_threads(solve, left, self.n_threads)
        for (l, weights), answer in zip(left.items(), answers, strict=True):
            if answer is not None and answer.primal - answer.dual < gap[l]:
                w = answer.weights[self.names]
                features = np.append(np.flatnonzero(w[:-1]), len(w) - 1)
                weights[l] = features.astype(np.int32), w[features]
                self.primal[l], self.dual[l] = answer.primal, answer.dual

    def _solve_block(self, b: int, clock: Clock) -> Weights:
        """Solve the labels of one block until they are done or time has expired."""
        labels, problem = self.blocks[b], self.problem
        try:
            work, lanes = self.workspaces.pop()
        except IndexError:
            work, lanes = problem.workspace(self.samples), problem.lanes(self.samples)
        bias = np.array([problem.n_features], np.int32)
        weights = {l: (bias, self.constant[[l]]) for l in labels.tolist()}
        waiting, left = labels[::-1].tolist(), len(labels)
        while True:
            for k in np.flatnonzero(lanes.done | (lanes.label < 0)).tolist():
                if lanes.done[k]:
                    self._store(lanes, k, weights)
                    left -= 1
                lanes.label[k], lanes.iteration[k] = waiting.pop() if waiting else -1, -1
                lanes.done[k] = False
            if left == 0 or clock.expired():
                break
            self._iterate(work, lanes)
        lanes.label[:] = -1
        self.workspaces.append((work, lanes))
        return weights

    def _iterate(self, work: loops.Workspace, lanes: loops.Lanes) -> None:
        """One iteration of all lanes: ascent, a scan of some samples, a scan of all, evaluation."""
        samples, costs, rule = self.samples, self.problem.costs, self.loop_rule
        loops.ascend(samples, costs, self.shared, self.on, rule, self.draws, work, lanes)
        scan_loops.scan(samples.probe, samples.probe_stop, lanes)
        scan_loops.lower_biases(samples, costs, rule, work, lanes, self.rule.step)
        scan_loops.scan(samples.rows, samples.stop, lanes)
        scan_loops.evaluate(samples, costs, self.shared, rule, work, lanes)

    def _store(self, lanes: loops.Lanes, k: int, weights: Weights) -> None:
        """Store the weights and objectives of the label in a lane."""
        l, last = int(lanes.label[k]), lanes.n_kept[k]
        lanes.features[k, last], lanes.values[k, last] = self.problem.n_features, lanes.bias[k]
        weights[l] = lanes.features[k, : last + 1].copy(), lanes.values[k, : last + 1].copy()
        self.primal[l], self.dual[l] = lanes.primal[k], lanes.dual[k]


def side_totals(on: sp.csr_array, weight: np.ndarray) -> np.ndarray:
    """Sums of the weights of the negatives and positives of every label."""
    positive = on.T @ weight
    return np.vstack([weight.sum() - positive, positive])


def constant_labels(on: sp.csr_array, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels with one side only among the samples of positive weight, and labels with any positive."""
    counts = on.T @ (weight > 0).astype(np.int64)
    return (counts == 0) | (counts == np.count_nonzero(weight)), counts > 0


def attributes(problem: ManyM3L, solution: ManySolution, n_features: int, *, dense: bool) -> dict[str, Any]:
    """Coefficients and intercepts, as they were certified.

    If a `dense` matrix is allowed, it is used where at least half of the coefficients are not zero.
    """
    Z = solution.weights.tocsr()
    counts = np.zeros(n_features, Z.indptr.dtype)
    counts[slice(None) if problem.columns is None else problem.columns] = np.diff(Z.indptr[:-1])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(Z.indptr.dtype)
    # The last row of Z holds the biases; the data of the other rows is used in place.
    coef = sp.csr_array((Z.data[: indptr[-1]], Z.indices[: indptr[-1]], indptr), (n_features, Z.shape[1]))
    if dense and 2 * coef.nnz >= math.prod(coef.shape):
        coef = coef.toarray()
    return {"coef_": coef.T, "intercept_": problem.bias * Z[[-1]].toarray()[0]}


def chunks(n_samples: int, n_labels: int, memory_limit: float) -> Iterator[slice]:
    """Slices of samples whose scores take no more than `memory_limit` MiB."""
    size = int(np.clip(memory_limit * MIB // (8 * max(n_labels, 1)), 1, SCORED))
    return (slice(start, min(start + size, n_samples)) for start in range(0, n_samples, size))


def scores(X: Any, coef: Any, intercept: np.ndarray) -> np.ndarray:
    """Scores of all labels by CSC weights, one row per sample."""
    answer = np.empty((X.shape[0], len(intercept)))
    scan_loops.score_labels(Rows.of(X).flat, Rows.of(coef.T).flat, readonly(intercept), answer)
    return answer


def top(X: Any, coef: Any, intercept: np.ndarray, k: int, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """The k labels with the highest scores of every sample, best first, and these scores."""
    n = X.shape[0]
    labels, best = np.empty((n, k), np.int64), np.empty((n, k))
    rows, weights, bias = Rows.of(X).flat, Rows.of(coef.T).flat, readonly(intercept)

    def work(part: slice) -> None:
        scan_loops.top_labels(rows, weights, bias, part.start, part.stop, labels, best)

    size = max(-(-n // (4 * n_threads)), 1)
    run_threads(work, [slice(a, min(a + size, n)) for a in range(0, n, size)], n_threads)
    return labels, best


def top_dense(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for given scores."""
    labels, best = np.empty((len(scores), k), np.int64), np.empty((len(scores), k))
    scan_loops.top_scores(readonly(scores.astype(np.float64, copy=False)), labels, best)
    return labels, best
