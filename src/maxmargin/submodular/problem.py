"""Submodular multi-label learning: example F1 as the loss, attractive pairs of labels.

Petterson and Caetano, "Submodular multi-label learning", 2011, with the plane of their Algorithm 1
corrected (the regulariser does not belong in it). Samples n with features x (bias appended), true
sets y^n, costs c_n = C times the sample weight, pairs e = (i, j) with strength r_e:

    s(x, y)   = sum_i y_i <z_i, x> + sum_e y_i y_j r_e t_e,      theta = (Z, t),   t >= 0
    primal    P(theta) = 1/2 |theta|^2 + sum_n c_n max_y [ Delta(y, y^n) + s(x^n, y) - s(x^n, y^n) ]
    Delta     1 - 2 |y and y^n| / (|y| + |y^n|), and 0 between two empty sets
    a plane   one set y_n per sample gives  b + <g, theta> <= loss part of P, for all theta, with
              g = sum_n c_n (phi(x^n, y_n) - phi(x^n, y^n)),  b = sum_n c_n Delta(y_n, y^n)
    link      theta(g) = -g, its pairs cut at zero, minimises 1/2 |theta|^2 + <g, theta>
    dual      D = b - 1/2 |theta(g)|^2 for any convex combination (g, b) of planes

The paper's lambda is 1 / (C N), and its C_ij times its c is the strength r_e; P here is C N times
the paper's objective. Without pairs the model is RML (reverse multi-label learning, forward).

n_ij is the (weighted) number of samples with both labels. "count" is n_ij divided by the largest
of them, "jaccard" is n_ij / (n_i + n_j - n_ij), which does not favour frequent labels. The pairs
kept are the floor(fraction V (V - 1) / 2) with the largest n_ij, ties in lexicographic order; a
pair that never occurs is dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows, add_outer, readonly, score_rows
from maxmargin.core.threads import count_threads, run_threads
from maxmargin.submodular.cut_loops import Arcs, BatchRoom, Graph, margins_batch, maximise_batch
from maxmargin.submodular.inference_loops import (
    Answer,
    PairWeights,
    Proof,
    SearchRoom,
    fixed_point_batch,
    infer_batch,
    slacks_batch,
)


@dataclass(frozen=True)
class LabelPairs:
    """Pairs i < j (rows of `index`), most frequent first, and the scale of their feature."""

    index: np.ndarray
    strength: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


def cooccurrence(truth: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """n_ij for all labels, with n_ii the frequency of label i."""
    Y = truth.astype(np.float64)
    return Y.T @ (Y if weights is None else Y * weights[:, None])


def attractive_pairs(
    truth: np.ndarray, fraction: float, scale: float, method: str = "count", weights: np.ndarray | None = None
) -> LabelPairs:
    """The most frequent pairs of labels with strength `scale` times their normalised count."""
    return frequent_pairs(cooccurrence(truth, weights), fraction, scale, method)


def frequent_pairs(counts: np.ndarray, fraction: float, scale: float, method: str) -> LabelPairs:
    """The same from the counts n_ij."""
    i, j = np.triu_indices(len(counts), 1)
    n = counts[i, j]
    # The rounding guards a fraction such as 0.29 * 100, which is 28.999999999999996.
    keep = np.argsort(-n, kind="stable")[: int(np.floor(round(fraction * len(n), 9)))]
    keep = keep[n[keep] > 0]
    i, j, n = i[keep], j[keep], n[keep]
    if method == "jaccard":
        normalised = n / (counts[i, i] + counts[j, j] - n)
    else:
        normalised = n / counts[np.triu_indices(len(counts), 1)].max(initial=np.finfo(float).tiny)
    strength = scale * normalised
    used = strength > 0
    return LabelPairs(np.column_stack([i, j])[used].astype(np.int64), strength[used])


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
    scores, own = readonly(scores), Graph.of(graph)
    Y = np.empty(scores.shape, np.uint8)

    def part(lo: int, hi: int) -> None:
        maximise_batch(scores, own, False, lo, hi, Y, BatchRoom.empty(scores.shape[1]))

    over_ranges(part, len(scores), n_jobs)
    return Y


def label_margins(scores: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> np.ndarray:
    """Best score with a label on minus best score with it off, for every row and label."""
    scores, own = readonly(scores), Graph.of(graph)
    margins = np.empty(scores.shape)

    def part(lo: int, hi: int) -> None:
        margins_batch(scores, own, lo, hi, margins, BatchRoom.empty(scores.shape[1]))

    over_ranges(part, len(scores), n_jobs)
    return margins


def fixed_points(scores: np.ndarray, truth: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> Proof:
    """Algorithm 2 for every row of unary scores, and whether Algorithm 3 proves its answer optimal."""
    scores, truth, own = readonly(scores), readonly(truth), Graph.of(graph)
    N, V = scores.shape
    proof = Proof(np.empty(scores.shape, np.uint8), np.empty(N), np.empty(N, np.uint8))

    def part(lo: int, hi: int) -> None:
        fixed_point_batch(scores, truth, own, lo, hi, proof, SearchRoom.empty(V))

    over_ranges(part, N, n_jobs)
    return proof


@dataclass(frozen=True)
class SubmodularF1:
    """The learning problem (3) over rows of X; `exact` chooses the inference of the planes."""

    rows: Rows
    truth: np.ndarray
    cost: np.ndarray
    pairs: LabelPairs
    bias: float = 1.0
    exact: bool = True
    max_nodes: int = 1000
    n_jobs: int | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Samples, labels, features, pairs."""
        return *self.truth.shape, self.rows.shape[1], len(self.pairs)

    @property
    def n_samples(self) -> int:
        return len(self.truth)

    @property
    def dimension(self) -> int:
        """Length of theta: (D + 1) V unary weights, feature-major with the bias last, then the pairs."""
        _, V, D, E = self.shape
        return (D + 1) * V + E

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unary weights Z ((D + 1) x V) and pair weights t of one flat vector."""
        V = self.truth.shape[1]
        end = len(theta) - len(self.pairs)
        return theta[:end].reshape(-1, V), theta[end:]

    def cut(self, vector: np.ndarray) -> np.ndarray:
        """The link: minus a gradient with its pairs cut at zero."""
        theta = vector.copy()
        t = self.split(theta)[1]
        np.maximum(t, 0.0, out=t)
        return theta

    def dual(self, offset: float, theta: np.ndarray) -> float:
        """D of a combination of planes with this offset, where theta is its link."""
        return offset - 0.5 * float(theta @ theta)

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """Unary scores of all samples, in float64."""
        scores = np.empty(self.truth.shape)
        rows, bias, Z = self.rows.flat, np.float64(self.bias), readonly(Z)
        self._over_samples(lambda lo, hi: score_rows(rows, bias, Z, lo, hi, scores))
        return scores

    def guesses(self) -> np.ndarray:
        """Cardinality at which the first search of every sample starts: that of its true set."""
        return self.truth.sum(axis=1, dtype=np.int64)

    def infer(
        self,
        theta: np.ndarray,
        hints: np.ndarray | None = None,
        *,
        exact: bool | None = None,
        max_nodes: int | None = None,
    ) -> Answer:
        """The most violating set (4) of every sample, by the problem's inference unless told otherwise.

        `hints` are the cardinalities at which the searches start; they are replaced by those at
        which they ended, which saves cuts when theta has moved a little only.
        """
        Z, t = self.split(theta)
        N, V = self.truth.shape
        graph = Graph.of(weighted_graph(V, self.pairs.index, self.pairs.strength * t))
        scores, truth = readonly(self.scores(Z)), readonly(self.truth)
        hints = self.guesses() if hints is None else hints
        exact = self.exact if exact is None else exact
        max_nodes = self.max_nodes if max_nodes is None else max_nodes
        answer = Answer(np.empty((N, V), np.uint8), np.empty(N), np.empty(N), np.empty(N, np.int64))

        def part(lo: int, hi: int) -> None:
            room = SearchRoom.empty(V)
            infer_batch(scores, truth, graph, exact, max_nodes, lo, hi, hints, answer, room)

        self._over_samples(part)
        return answer

    def risk(self, theta: np.ndarray, hints: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """The sets that inference found most violating, and a proven upper bound of the loss part of P."""
        answer = self.infer(theta, hints)
        bound = answer.bound
        if not np.isfinite(bound).all():
            bound = self.infer(theta, hints, exact=True, max_nodes=1).bound
        return answer.sets, float(self.cost @ bound)

    def cure(self, theta: np.ndarray) -> str:
        """What to change where no set that inference finds at theta closes the gap."""
        if not self.exact:
            return "use inference='exact'"
        cut_short = np.any(self.infer(theta).nodes >= self.max_nodes)
        return "increase max_nodes" if cut_short else "scale the features"

    def primal(self, theta: np.ndarray, risk: float) -> float:
        """P (6) at theta, whose loss part is `risk`."""
        return 0.5 * float(theta @ theta) + risk

    def certificate(self, theta: np.ndarray, dual: float, hints: np.ndarray) -> Certificate:
        """Proven upper bound of P at theta, next to a dual value; `hints` are read only."""
        return Certificate(self.primal(theta, self.risk(theta, hints.copy())[1]), dual)

    def slacks(self, theta: np.ndarray, memory: list[np.ndarray]) -> np.ndarray:
        """Slack (5) at theta of given sets, one per sample in every entry of `memory`: a row for each."""
        Z, t = self.split(theta)
        scores, truth, sets = readonly(self.scores(Z)), readonly(self.truth), readonly(np.stack(memory))
        first, second = (readonly(side) for side in self.pairs.index.T)
        pairs = PairWeights(first, second, readonly(self.pairs.strength * t))
        values = np.empty(sets.shape[:2])
        self._over_samples(lambda lo, hi: slacks_batch(scores, truth, pairs, sets, lo, hi, values))
        return values

    def along(self, start: np.ndarray, end: np.ndarray, memory: list[np.ndarray]) -> Callable[[float], float]:
        """The loss part of P from `start` (0) to `end` (1), as far as given sets know it."""
        here, there = self.slacks(start, memory), self.slacks(end, memory)

        def risk(beta: float) -> float:
            return float(self.cost @ np.maximum(np.max(here + beta * (there - here), axis=0), 0.0))

        return risk

    def losses(self, sets: np.ndarray) -> np.ndarray:
        """Delta(y_n, y^n) (1) of every sample."""
        hits = np.sum(sets & self.truth, axis=1, dtype=np.float64)
        sizes = np.sum(sets, axis=1, dtype=np.float64) + self.truth.sum(axis=1)
        return np.where(sizes > 0, 1.0 - 2.0 * hits / np.maximum(sizes, 1.0), 0.0)

    def joints(self, sets: np.ndarray) -> np.ndarray:
        """Which pairs are on, both labels, in the set of every sample: 0 or 1."""
        i, j = self.pairs.index.T
        return (sets[:, i] & sets[:, j]).astype(np.float64)

    def plane(self, sets: np.ndarray) -> tuple[np.ndarray, float]:
        """Gradient g (7), without the regulariser, and offset b of the plane of one set per sample."""
        change = sets.astype(np.float64) - self.truth
        joint = self.joints(sets) - self.joints(self.truth)
        gradient = self.features(self.cost[:, None] * change, self.cost @ joint)
        return gradient, float(self.cost @ self.losses(sets))

    def features(self, labels: np.ndarray, joints: np.ndarray) -> np.ndarray:
        """Flat vector of sum_n (x_n, bias) labels[n]' and of the pair sums times their strengths."""
        vector = np.zeros(self.dimension)
        Z, t = self.split(vector)
        rows, bias, labels = self.rows.flat, np.float64(self.bias), readonly(labels)
        # Threads share labels, not samples: each sums its own columns, in the same order however many.
        V = Z.shape[1]
        over_ranges(
            lambda lo, hi: add_outer(rows, bias, labels, lo, hi, np.empty(V, np.int64), Z), V, self.n_jobs, 1
        )
        t += self.pairs.strength * joints
        return vector

    def shrunk(self, long: float = 10.0) -> tuple[SubmodularF1, np.ndarray]:
        """The problem with columns of root mean square at most 1, where one is above `long`, and the scale.

        Weights of it over the scale give the same scores here, at a smaller norm, and its sets are sets here.
        """
        rows, squares = self.rows, np.square(self.rows.data, dtype=np.float64)
        columns = np.broadcast_to(rows.indices, rows.shape).ravel() if rows.dense else rows.indices
        scale = np.sqrt(np.bincount(columns, squares, minlength=rows.shape[1]) / max(rows.shape[0], 1))
        if scale.max(initial=0.0) <= long:
            return self, np.ones(len(scale))
        scale = np.maximum(scale, 1.0)
        values = (rows.data / scale[columns]).astype(rows.data.dtype)
        return replace(self, rows=rows.with_values(values)), scale

    @cached_property
    def graph(self) -> PairGraph:
        """All pairs, whatever their weights."""
        return PairGraph.of(self.truth.shape[1], self.pairs.index)

    @cached_property
    def squares(self) -> np.ndarray:
        """Squared norm of every sample, bias included."""
        return self.rows.squared_norms() + self.bias**2

    def _over_samples(self, work: Callable[[int, int], None]) -> None:
        over_ranges(work, len(self.truth), self.n_jobs)
