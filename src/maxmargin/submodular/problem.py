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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from maxmargin.core.linalg import product, transposed_product
from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows
from maxmargin.submodular.inference import PairGraph, score_sets, weighted_graph, worst_sets
from maxmargin.submodular.inference_loops import Answer

ALL = slice(None)


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

    def scores(self, Z: np.ndarray, samples: Any = ALL) -> np.ndarray:
        """Unary scores of some samples, in float64."""
        return product(self.rows.matrix[samples], Z[:-1]) + self.bias * Z[-1]

    def guesses(self) -> np.ndarray:
        """Cardinality at which the first search of every sample starts: that of its true set."""
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
        """The most violating set (4) of some samples, by the problem's inference unless told otherwise.

        `hints` are the cardinalities at which the searches of all samples start; they are replaced by those
        at which they ended, which saves cuts when theta has moved a little only.
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
        W = np.zeros((Z.shape[1], Z.shape[1]))
        i, j = self.pairs.index.T
        W[i, j] = W[j, i] = self.pairs.strength * t
        scores = self.scores(Z)
        at_truth = score_sets(scores, W, self.truth)
        return np.array([score_sets(scores, W, sets) + self.losses(sets) - at_truth for sets in memory])

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
        Z[:-1], Z[-1] = transposed_product(self.rows.matrix, labels), self.bias * labels.sum(axis=0)
        t[:] = self.pairs.strength * joints
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
