"""Submodular multi-label learning: example F1 as the loss, attractive pairs of labels.

Petterson and Caetano, "Submodular multi-label learning", 2011, with the plane of their Algorithm 1 corrected
(the regulariser does not belong in it). Samples n with features x (bias appended), true sets y^n, costs c_n =
C times the sample weight, pairs e = (i, j) with strength r_e:

    s(x, y)   = sum_i y_i <z_i, x> + sum_e y_i y_j r_e t_e,      theta = (Z, t),   t >= 0
    primal    P(theta) = 1/2 |theta|^2 + sum_n c_n max_y [ Delta(y, y^n) + s(x^n, y) - s(x^n, y^n) ]
    Delta     1 - 2 |y and y^n| / (|y| + |y^n|), and 0 between two empty sets
    a plane   one set y_n per sample gives  b + <g, theta> <= loss part of P, for all theta, with
              g = sum_n c_n (phi(x^n, y_n) - phi(x^n, y^n)),  b = sum_n c_n Delta(y_n, y^n)
    link      theta(g) = -g, its pairs cut at zero, minimises 1/2 |theta|^2 + <g, theta>
    dual      D = b - 1/2 |theta(g)|^2 for any convex combination (g, b) of planes

lambda of the paper is 1 / (C N), and its C_ij times its c is the strength r_e; P here is C N times the
objective of the paper. Without pairs the model is RML (reverse multi-label learning, forward).

n_ij is the (weighted) number of samples with both labels. "count" is n_ij divided by the largest of them,
"jaccard" is n_ij / (n_i + n_j - n_ij), which does not favour frequent labels. The pairs are the
floor(fraction V (V - 1) / 2) with the largest n_ij, ties in lexicographic order; a pair that never occurs is
dropped.

Loss-augmented inference (4) is that of `inference_loops`, except for samples that need no search:

*Without pairs* the best y is the top p of P and the top q of the rest, for some p and q.

*Without true labels* the loss is 1 for any set but the empty one. The largest maximiser of the score is best
if it has a label; otherwise one cut for every label i, with i forced on, gives the best set with i.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import count_threads, run_threads
from maxmargin.submodular.cut_loops import Arcs, BatchWorkspace, Graph, margins_batch, maximise_batch
from maxmargin.submodular.inference_loops import (
    Answer,
    Proof,
    SearchWorkspace,
    exact_search,
    fixed_point_batch,
)

ALL = slice(None)
# Most numbers in an array of inference by NumPy; bounds the memory.
LARGEST_STEP = 1 << 22
# With at most this many labels, inference scores all sets by one matrix product, and nothing is compiled.
FEW_LABELS = 7
# Values with a smaller relative difference may be equal up to rounding.
TIED = 1e-14


@dataclass(frozen=True)
class LabelPairs:
    """Pairs i < j (rows of `index`), most frequent first, and their strengths."""

    index: np.ndarray
    strength: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


def cooccurrence(truth: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return n_ij for all labels, with n_ii the frequency of label i."""
    Y = truth.astype(np.float64)
    return Y.T @ (Y if weights is None else Y * weights[:, None])


def attractive_pairs(
    truth: np.ndarray, fraction: float, scale: float, method: str = "count", weights: np.ndarray | None = None
) -> LabelPairs:
    """Return the most frequent pairs of labels, with strength `scale` times their normalised count."""
    counts = cooccurrence(truth, weights)
    i, j = np.triu_indices(len(counts), 1)
    n = counts[i, j]
    # Rounding handles fractions such as 0.29 * 100, which is 28.999999999999996.
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


def weighted_graph(n_labels: int, index: np.ndarray, weight: np.ndarray) -> Arcs:
    """Return the pairs with a positive weight as arcs."""
    W, (i, j) = np.zeros((n_labels, n_labels)), index.T
    W[i, j] = W[j, i] = np.maximum(weight, 0.0)
    tail, head = np.nonzero(W)
    start = np.append(0, np.cumsum(np.count_nonzero(W, axis=1)))
    return Arcs(*map(readonly, (start, head.astype(np.uint32), W[tail, head], W.sum(axis=1))))


def over_ranges(work: Callable[[int, int], None], size: int, n_jobs: int | None) -> None:
    """Call `work` on ranges that cover 0..size: once, or on several threads if `n_jobs` is set.

    Each thread gets several ranges of samples, because the cost of cuts varies.
    """
    if n_jobs is None:
        work(0, size)
        return
    n_threads = count_threads(n_jobs)
    parts = 1 if n_threads <= 1 else 4 * n_threads
    bounds = np.linspace(0, size, min(parts, max(size, 1)) + 1).astype(int).tolist()
    run_threads(lambda part: work(*part), itertools.pairwise(bounds), n_threads)


def best_sets(scores: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> np.ndarray:
    """Return the smallest best set of labels (2) for every row of unary scores: one cut each."""
    if scores.shape[1] > FEW_LABELS:
        return maximisers(scores, graph, False, n_jobs)[0]
    # Smaller sets come first.
    sets, best = all_sets(scores.shape[1]), np.empty(len(scores), np.int64)
    for rows in _steps(len(scores), len(sets)):
        values = _values_of_all(scores[rows], graph)
        tied = TIED * (1.0 + np.abs(values).max(axis=1, keepdims=True))
        best[rows] = (values >= values.max(axis=1, keepdims=True) - tied).argmax(axis=1)
    return sets[best]


def all_sets(V: int) -> np.ndarray:
    """Return all sets of V labels, smaller ones first."""
    sets = np.array(list(itertools.product([0, 1], repeat=V)), np.uint8)
    return sets[np.argsort(sets.sum(axis=1), kind="stable")]


def _steps(size: int, width: int) -> list[slice]:
    """Return slices of rows such that an array with `width` columns has at most `LARGEST_STEP` numbers."""
    step = max(LARGEST_STEP // max(width, 1), 1)
    return [slice(first, first + step) for first in range(0, size, step)]


def _values_of_all(scores: np.ndarray, graph: Arcs) -> np.ndarray:
    """Return the score of every set for every row."""
    sets = all_sets(scores.shape[1]).astype(np.float64)
    return scores @ sets.T + 0.5 * np.einsum("sv,sv->s", sets @ Graph.of(graph).matrix, sets)


def maximisers(
    scores: np.ndarray, graph: Arcs, largest: bool, n_jobs: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest or largest best set of every row, and a bound of the score lost to rounding."""
    scores, own = readonly(scores), Graph.of(graph)
    Y, missed = np.empty(scores.shape, np.uint8), np.empty(len(scores))

    def part(lo: int, hi: int) -> None:
        maximise_batch(scores, own, largest, lo, hi, Y, missed, BatchWorkspace.empty(scores.shape[1]))

    over_ranges(part, len(scores), n_jobs)
    return Y, missed


def label_margins(scores: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> np.ndarray:
    """Return the best score with a label on minus the best score with it off, for every row and label."""
    scores, own = readonly(scores), Graph.of(graph)
    margins = np.empty(scores.shape)

    def part(lo: int, hi: int) -> None:
        margins_batch(scores, own, lo, hi, margins, BatchWorkspace.empty(scores.shape[1]))

    over_ranges(part, len(scores), n_jobs)
    return margins


def score_sets(scores: np.ndarray, W: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return the score of one set of every sample; W is the symmetric matrix of pair weights."""
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
    """Return the most violating set (4) of every sample and its slack (5), exactly or by Algorithm 2.

    Algorithm 2 gives no bound: it is infinite. `hints` are replaced by the cardinalities at which the
    searches ended.
    """
    if not len(graph.head):
        return _without_pairs(scores, truth)
    if exact and scores.shape[1] <= FEW_LABELS:
        return _by_enumeration(scores, truth, graph)
    scores, truth, own = readonly(scores), readonly(truth), Graph.of(graph)
    N, V = scores.shape
    answer = Answer(np.empty((N, V), np.uint8), np.empty(N), np.full(N, np.inf), np.ones(N, np.int64))
    proof = Proof(answer.sets, answer.slack, np.empty(N, np.uint8))
    labelled = truth.any(axis=1)
    chosen = np.flatnonzero(labelled)

    def part(lo: int, hi: int) -> None:
        work = SearchWorkspace.empty(V)
        if exact:
            exact_search(scores, truth, own, max_nodes, chosen[lo:hi], hints, answer, work)
        else:
            fixed_point_batch(scores, truth, own, False, chosen[lo:hi], proof, work)

    over_ranges(part, len(chosen), n_jobs)
    if not exact:
        answer.slack[:] -= score_sets(scores, own.matrix, truth)
        below = labelled & (answer.slack < 0)
        answer.sets[below], answer.slack[below] = truth[below], 0.0
    if len(chosen) < N:
        found = _without_truth(scores[~labelled], graph, n_jobs)
        answer.sets[~labelled], answer.slack[~labelled], answer.bound[~labelled] = found
    return answer


def fixed_points(scores: np.ndarray, truth: np.ndarray, graph: Arcs, n_jobs: int | None = None) -> Proof:
    """Run Algorithm 2 for every row of unary scores, and test its result by Algorithm 3."""
    scores, truth, own = readonly(scores), readonly(truth), Graph.of(graph)
    N, V = scores.shape
    proof = Proof(np.empty(scores.shape, np.uint8), np.empty(N), np.ones(N, np.uint8))
    labelled = truth.any(axis=1)
    chosen = np.flatnonzero(labelled)

    def part(lo: int, hi: int) -> None:
        fixed_point_batch(scores, truth, own, True, chosen[lo:hi], proof, SearchWorkspace.empty(V))

    over_ranges(part, len(chosen), n_jobs)
    if len(chosen) < N:
        proof.sets[~labelled], proof.values[~labelled], _ = _without_truth(scores[~labelled], graph, n_jobs)
    return proof


def _by_enumeration(scores: np.ndarray, truth: np.ndarray, graph: Arcs) -> Answer:
    """Run exact inference over all sets of few labels."""
    N, V = scores.shape
    sets = all_sets(V)
    sizes, best, slack = sets.sum(axis=1, dtype=np.float64), np.empty(N, np.int64), np.empty(N)
    for rows in _steps(N, len(sets)):
        values, hits = _values_of_all(scores[rows], graph), truth[rows].astype(np.float64) @ sets.T
        here = np.arange(len(values))
        at_truth = values[here, (hits - 0.5 * sizes).argmax(axis=1)]
        total = sizes + truth[rows].sum(axis=1)[:, None]
        values += np.where(total > 0, 1.0 - 2.0 * hits / np.maximum(total, 1.0), 0.0)
        best[rows] = values.argmax(axis=1)
        slack[rows] = values[here, best[rows]] - at_truth
    return Answer(sets[best], slack, slack.copy(), np.ones(N, np.int64))


def _without_pairs(scores: np.ndarray, truth: np.ndarray) -> Answer:
    """Run exact inference without pairs: for each p the best q, in chunks of samples."""
    N, V = scores.shape
    answer = Answer(np.empty((N, V), np.uint8), np.empty(N), np.empty(N), np.ones(N, np.int64))
    at_truth, on = np.einsum("nv,nv->n", scores, truth), truth.astype(bool)
    for rows in _steps(N, V + 1):
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
    """Run exact inference for samples without true labels; return sets, values of (8), and bounds."""
    V = scores.shape[1]
    W = Graph.of(graph).matrix
    sets, missed = maximisers(scores, graph, True, n_jobs)
    values = np.where(sets.any(axis=1), 1.0 + score_sets(scores, W, sets), 0.0)
    # If no set scores above the empty one, label i gains at most its own score and its pairs.
    alone = 1.0 + scores.max(axis=1, initial=-np.inf)
    none = np.logical_not(sets.any(axis=1))
    single = np.flatnonzero(none & (alone > 0))
    sets[single, scores[single].argmax(axis=1)], values[single] = 1, alone[single]
    which, label = np.nonzero(none[:, None] & (1.0 + scores + graph.total > values[:, None]))
    for part in _steps(len(which), V):
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
    def dimension(self) -> int:
        """Length of theta: (D + 1) V unary weights, feature-major with the bias last, then the pairs."""
        _, V, D, E = self.shape
        return (D + 1) * V + E

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return unary weights Z ((D + 1) x V) and pair weights t of one flat vector."""
        V = self.truth.shape[1]
        end = len(theta) - len(self.pairs)
        return theta[:end].reshape(-1, V), theta[end:]

    def cut(self, vector: np.ndarray) -> np.ndarray:
        """Return the link: the vector with its pairs cut at zero."""
        theta = vector.copy()
        t = self.split(theta)[1]
        np.maximum(t, 0.0, out=t)
        return theta

    def dual(self, offset: float, theta: np.ndarray) -> float:
        """Return D of a combination of planes with this offset and link theta."""
        return offset - 0.5 * float(theta @ theta)

    def scores(self, Z: np.ndarray, samples: Any = ALL) -> np.ndarray:
        """Return unary scores of some samples, in float64; float32 rows are copied in chunks only."""
        X = self.rows.matrix if samples is ALL else self.rows.matrix[samples]
        scores = np.empty((X.shape[0], Z.shape[1]))
        for rows in self._parts(X.shape[0]):
            scores[rows] = (X if rows is ALL else X[rows]) @ Z[:-1]
        return scores + self.bias * Z[-1]

    def _parts(self, size: int) -> list[slice]:
        return _steps(size, self.rows.shape[1]) if self.rows.dense else [ALL]

    def guesses(self) -> np.ndarray:
        """Return the cardinality at which the first search of every sample starts: that of its true set."""
        return self.truth.sum(axis=1, dtype=np.int64)

    def infer(
        self,
        theta: np.ndarray,
        hints: np.ndarray | None = None,
        samples: Any = ALL,
        *,
        exact: bool | None = None,
        max_nodes: int | None = None,
    ) -> Answer:
        """Return the most violating set (4) of some samples, by the inference of the problem by default.

        `hints` are the cardinalities at which the searches of all samples start. They are replaced by those
        at which the searches ended, which saves cuts when theta has moved only a little.
        """
        Z, t = self.split(theta)
        graph = weighted_graph(self.truth.shape[1], self.pairs.index, self.pairs.strength * t)
        hints = self.guesses() if hints is None else hints
        own = hints[samples]
        answer = worst_sets(
            self.scores(Z, samples),
            self.truth[samples],
            graph,
            own,
            exact=self.exact if exact is None else exact,
            max_nodes=self.max_nodes if max_nodes is None else max_nodes,
            n_jobs=self.n_jobs,
        )
        hints[samples] = own
        return answer

    def risk(self, theta: np.ndarray, hints: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """Return the most violating sets of the inference, and a proven upper bound of the loss part of P."""
        answer = self.infer(theta, hints)
        bound = answer.bound
        if not np.isfinite(bound).all():
            bound = self.infer(theta, hints, exact=True, max_nodes=1).bound
        return answer.sets, float(self.cost @ bound)

    def remedy(self, theta: np.ndarray) -> str:
        """Return what to change if no set that inference finds at theta closes the gap."""
        if not self.exact:
            return "use inference='exact'"
        cut_short = np.any(self.infer(theta).nodes >= self.max_nodes)
        return "increase max_nodes" if cut_short else "scale the features"

    def primal(self, theta: np.ndarray, risk: float) -> float:
        """Return P (6) at theta, whose loss part is `risk`."""
        return 0.5 * float(theta @ theta) + risk

    def certificate(self, theta: np.ndarray, dual: float, hints: np.ndarray) -> Certificate:
        """Return a proven upper bound of P at theta, next to a dual value; `hints` are not changed."""
        return Certificate(self.primal(theta, self.risk(theta, hints.copy())[1]), dual)

    def slacks(self, theta: np.ndarray, memory: list[np.ndarray]) -> np.ndarray:
        """Return the slack (5) at theta of given sets: a row per entry of `memory`, one set per sample."""
        Z, t = self.split(theta)
        W = np.zeros((Z.shape[1], Z.shape[1]))
        i, j = self.pairs.index.T
        W[i, j] = W[j, i] = self.pairs.strength * t
        scores = self.scores(Z)
        at_truth = score_sets(scores, W, self.truth)
        return np.array([score_sets(scores, W, sets) + self.losses(sets) - at_truth for sets in memory])

    def along(self, start: np.ndarray, end: np.ndarray, memory: list[np.ndarray]) -> Callable[[float], float]:
        """Return a lower bound of the loss part of P from `start` (0) to `end` (1), by the given sets."""
        here, there = self.slacks(start, memory), self.slacks(end, memory)

        def risk(beta: float) -> float:
            return float(self.cost @ np.maximum(np.max(here + beta * (there - here), axis=0), 0.0))

        return risk

    def losses(self, sets: np.ndarray) -> np.ndarray:
        """Return Delta(y_n, y^n) (1) of every sample."""
        hits = np.sum(sets & self.truth, axis=1, dtype=np.float64)
        sizes = np.sum(sets, axis=1, dtype=np.float64) + self.truth.sum(axis=1)
        return np.where(sizes > 0, 1.0 - 2.0 * hits / np.maximum(sizes, 1.0), 0.0)

    def joints(self, sets: np.ndarray) -> np.ndarray:
        """Return which pairs are on, both labels, in the set of every sample: 0 or 1."""
        i, j = self.pairs.index.T
        return (sets[:, i] & sets[:, j]).astype(np.float64)

    def plane(self, sets: np.ndarray) -> tuple[np.ndarray, float]:
        """Return gradient g (7), without the regulariser, and offset b of the plane of one set per sample."""
        change = sets.astype(np.float64) - self.truth
        joint = self.joints(sets) - self.joints(self.truth)
        gradient = self.features(self.cost[:, None] * change, self.cost @ joint)
        return gradient, float(self.cost @ self.losses(sets))

    def features(self, labels: np.ndarray, joints: np.ndarray) -> np.ndarray:
        """Return sum_n (x_n, bias) labels[n]' and the pair sums times their strengths as one flat vector."""
        vector = np.zeros(self.dimension)
        Z, t = self.split(vector)
        X = self.rows.matrix
        for rows in self._parts(len(labels)):
            Z[:-1] += (X if rows is ALL else X[rows]).T @ labels[rows]
        Z[-1] = self.bias * labels.sum(axis=0)
        t[:] = self.pairs.strength * joints
        return vector

    def shrunk(self, long: float = 10.0) -> tuple[SubmodularF1, np.ndarray]:
        """Return the problem with columns of root mean square at most 1, and the scale of the columns.

        If no column is above `long`, the problem is returned unchanged. Weights divided by the scale give the
        same scores in this problem, at a smaller norm, and sets of one problem are sets of the other.
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
    def squares(self) -> np.ndarray:
        """Squared norm of every sample, bias included."""
        return self.rows.squared_norms() + self.bias**2
