"""Cuts and loss-augmented inference (4) for many samples over the same pairs of labels.

Most samples go to the compiled searches of `inference_loops`. The others are answered here:

*Without pairs* the best y is the top p of P and the top q of the rest, for some p and q.

*Without true labels* the loss is 1 for any set but the empty one. The largest maximiser of the score is best
if it has a label; otherwise the best set with label i is one cut, with i forced on, for every i.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maxmargin.core.rows import readonly
from maxmargin.core.threads import count_threads, run_threads
from maxmargin.submodular.cut_loops import Arcs, BatchRoom, Graph, margins_batch, maximise_batch
from maxmargin.submodular.inference_loops import (
    Answer,
    Proof,
    SearchRoom,
    exact_search,
    fixed_point_batch,
)

# Numbers in an array of a step of inference without loops.
LARGEST_STEP = 1 << 22


@dataclass(frozen=True)
class PairGraph:
    """Pairs of labels as rows of arcs; `places[e]` are the two arcs of pair e."""

    start: np.ndarray
    head: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, n_labels: int, index: np.ndarray) -> PairGraph:
        E = len(index)
        tail = np.concatenate([index[:, 0], index[:, 1]])
        head = np.concatenate([index[:, 1], index[:, 0]])
        order = np.lexsort((head, tail))
        place = np.empty(2 * E, np.int64)
        place[order] = np.arange(2 * E)
        start = np.concatenate([[0], np.cumsum(np.bincount(tail, minlength=n_labels))]).astype(np.int64)
        return cls(start, head[order].astype(np.uint32), np.column_stack([place[:E], place[E:]]))

    def arcs(self, weight: np.ndarray) -> Arcs:
        """What the compiled loops take, for one weight per pair."""
        arcs = np.empty(len(self.head))
        arcs[self.places] = weight[:, None]
        total = np.zeros(len(self.start) - 1)
        np.add.at(total, np.repeat(np.arange(len(total)), np.diff(self.start)), arcs)
        return Arcs(*(readonly(part) for part in (self.start, self.head, arcs, total)))


def weighted_graph(n_labels: int, index: np.ndarray, weight: np.ndarray) -> Arcs:
    """The pairs with a positive weight, for the compiled loops."""
    used = weight > 0
    return PairGraph.of(n_labels, index[used]).arcs(weight[used])


def over_ranges(
    work: Callable[[int, int], None], size: int, n_jobs: int | None, parts_per_thread: int = 4
) -> None:
    """Call `work` on ranges that cover 0..size: all at once, or by threads when `n_jobs` asks for them.

    Each thread gets several ranges of samples, because cuts vary in cost.
    """
    if n_jobs is None:
        work(0, size)
        return
    n_threads = count_threads(n_jobs)
    parts = 1 if n_threads <= 1 else parts_per_thread * n_threads
    bounds = np.linspace(0, size, min(parts, max(size, 1)) + 1).astype(int).tolist()
    run_threads(lambda part: work(*part), itertools.pairwise(bounds), n_threads)


def best_sets(scores: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> np.ndarray:
    """The smallest best set of labels (2) for every row of unary scores: one cut each."""
    return maximisers(scores, graph, False, n_jobs)[0]


def maximisers(
    scores: np.ndarray, graph: Arcs, largest: bool, n_jobs: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The smallest or largest best set of every row, and by how much at most another one is better."""
    scores, own = readonly(scores), Graph.of(graph)
    Y, missed = np.empty(scores.shape, np.uint8), np.empty(len(scores))

    def part(lo: int, hi: int) -> None:
        maximise_batch(scores, own, largest, lo, hi, Y, missed, BatchRoom.empty(scores.shape[1]))

    over_ranges(part, len(scores), n_jobs)
    return Y, missed


def label_margins(scores: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> np.ndarray:
    """Best score with a label on minus best score with it off, for every row and label."""
    scores, own = readonly(scores), Graph.of(graph)
    margins = np.empty(scores.shape)

    def part(lo: int, hi: int) -> None:
        margins_batch(scores, own, lo, hi, margins, BatchRoom.empty(scores.shape[1]))

    over_ranges(part, len(scores), n_jobs)
    return margins


def score_sets(scores: np.ndarray, W: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Score of one set of every sample, over the symmetric matrix W of pair weights."""
    sets = sets.astype(np.float64)
    return np.einsum("nv,nv->n", scores + 0.5 * (sets @ W), sets)


def worst_sets(
    scores: np.ndarray,
    truth: np.ndarray,
    graph: Arcs,
    hints: np.ndarray,
    *,
    exact: bool = True,
    max_nodes: int = 1000,
    n_jobs: int | None = None,
) -> Answer:
    """The most violating set (4) of every sample, exactly or by Algorithm 2, whose bound is infinite.

    `hints` are replaced by the cardinalities at which the searches ended.
    """
    if not len(graph.head):
        return _without_pairs(scores, truth)
    scores, truth, own = readonly(scores), readonly(truth), Graph.of(graph)
    N, V = scores.shape
    answer = Answer(np.empty((N, V), np.uint8), np.empty(N), np.full(N, np.inf), np.ones(N, np.int64))
    proof = Proof(answer.sets, answer.slack, np.empty(N, np.uint8))
    there = truth.any(axis=1)
    chosen = np.flatnonzero(there)

    def part(lo: int, hi: int) -> None:
        room = SearchRoom.empty(V)
        if exact:
            exact_search(scores, truth, own, max_nodes, chosen[lo:hi], hints, answer, room)
        else:
            fixed_point_batch(scores, truth, own, False, chosen[lo:hi], proof, room)

    over_ranges(part, len(chosen), n_jobs)
    if not exact:
        answer.slack[:] -= score_sets(scores, own.matrix, truth)
        below = there & (answer.slack < 0)
        answer.sets[below], answer.slack[below] = truth[below], 0.0
    if len(chosen) < N:
        found = _without_truth(scores[~there], graph, n_jobs)
        answer.sets[~there], answer.slack[~there], answer.bound[~there] = found
    return answer


def fixed_points(scores: np.ndarray, truth: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> Proof:
    """Algorithm 2 for every row of unary scores, and whether Algorithm 3 proves its answer optimal."""
    scores, truth, own = readonly(scores), readonly(truth), Graph.of(graph)
    N, V = scores.shape
    proof = Proof(np.empty(scores.shape, np.uint8), np.empty(N), np.ones(N, np.uint8))
    there = truth.any(axis=1)
    chosen = np.flatnonzero(there)

    def part(lo: int, hi: int) -> None:
        fixed_point_batch(scores, truth, own, True, chosen[lo:hi], proof, SearchRoom.empty(V))

    over_ranges(part, len(chosen), n_jobs)
    if len(chosen) < N:
        proof.sets[~there], proof.values[~there], _ = _without_truth(scores[~there], graph, n_jobs)
    return proof


def _without_pairs(scores: np.ndarray, truth: np.ndarray) -> Answer:
    """Exact inference where all labels are their own: for each p the best q, in steps of so many samples."""
    N, V = scores.shape
    answer = Answer(np.empty((N, V), np.uint8), np.empty(N), np.empty(N), np.ones(N, np.int64))
    at_truth, on = np.einsum("nv,nv->n", scores, truth), truth.astype(bool)
    step = max(LARGEST_STEP // (V + 1), 1)
    for rows in (slice(first, first + step) for first in range(0, N, step)):
        a, hit, n1 = scores[rows], on[rows], truth[rows].sum(axis=1, dtype=np.int64)
        sides = [np.where(side, a, -np.inf) for side in (hit, ~hit)]
        order = [np.argsort(-side, axis=1, kind="stable") for side in sides]
        sums = [np.pad(np.cumsum(-np.sort(-side, axis=1), axis=1), [(0, 0), (1, 0)]) for side in sides]
        best, sizes = np.full(len(a), -np.inf), np.zeros((2, len(a)), np.int64)
        for p in range(int(n1.max(initial=0)) + 1):
            total = np.arange(p, p + V + 1) + n1[:, None]
            loss = np.where(total > 0, 1.0 - 2.0 * p / np.maximum(total, 1), 0.0)
            value = sums[0][:, p : p + 1] + sums[1] + loss
            q = value.argmax(axis=1)
            value = value[np.arange(len(a)), q]
            better = value > best
            best[better], sizes[0, better], sizes[1, better] = value[better], p, q[better]
        y = np.zeros(a.shape, np.uint8)
        for size, ranks in zip(sizes, order, strict=True):
            y |= np.argsort(ranks, axis=1) < size[:, None]
        answer.sets[rows] = y
        answer.slack[rows] = answer.bound[rows] = best - at_truth[rows]
    return answer


def _without_truth(
    scores: np.ndarray, graph: Arcs, n_jobs: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exact inference for samples without true labels: sets, values of (8), and bounds of these."""
    V = scores.shape[1]
    W = Graph.of(graph).matrix
    sets, missed = maximisers(scores, graph, True, n_jobs)
    values = np.where(sets.any(axis=1), 1.0 + score_sets(scores, W, sets), 0.0)
    # Where no set scores above the empty one, label i brings at most its own score and its pairs.
    alone = 1.0 + scores.max(axis=1, initial=-np.inf)
    open_ = ~sets.any(axis=1)
    single = np.flatnonzero(open_ & (alone > 0))
    sets[single, scores[single].argmax(axis=1)], values[single] = 1, alone[single]
    which, label = np.nonzero(open_[:, None] & (1.0 + scores + graph.total > values[:, None]))
    step = max(LARGEST_STEP // V, 1)
    for part in np.array_split(np.arange(len(which)), range(step, len(which), step)):
        n, own = which[part], scores[which[part]]
        forced = own.copy()
        forced[np.arange(len(n)), label[part]] = 1.0
        found, short = maximisers(forced, graph, True, n_jobs)
        value = 1.0 + score_sets(own, W, found)
        np.maximum.at(missed, n, short)
        order = np.argsort(value, kind="stable")
        np.maximum.at(values, n, value)
        best = order[value[order] == values[n[order]]]
        sets[n[best]] = found[best]
    return sets, values, values + missed
