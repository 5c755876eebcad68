"""Submodular multi-label learning: example F1 as the loss, attractive pairs of labels.

Petterson and Caetano, "Submodular multi-label learning", 2011, with the plane of their Algorithm 1
corrected (the regulariser does not belong in it). Samples n with features x (bias appended), true
sets y^n, costs c_n = C times the sample weight, pairs e = (i, j) with strength r_e:

    s(x, y)   = sum_i y_i <z_i, x> + sum_e y_i y_j r_e t_e,      theta = (Z, t),   t >= 0
    primal    P(theta) = 1/2 |theta|^2 + sum_n c_n max_y [ Delta(y, y^n) + s(x^n, y) - s(x^n, y^n) ]
    Delta     1 - 2 |y and y^n| / (|y| + |y^n|), and 0 between two empty sets
    a plane   one set y_n per sample gives  b + <g, theta> <= loss part of P, for all theta, with
              g = sum_n c_n (phi(x^n, y_n) - phi(x^n, y^n)),  b = sum_n c_n Delta(y_n, y^n)

The paper's lambda is 1 / (C N), and its C_ij times its c is the strength r_e; P here is C N times
the paper's objective. Without pairs the model is RML (reverse multi-label learning, forward).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from maxmargin.core.loop import Certificate
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.submodular import block_loops as submodular_blocks
from maxmargin.submodular import cut_loops as cuts
from maxmargin.submodular import inference_loops as f1_inference
from maxmargin.submodular import loops
from maxmargin.submodular.label_pairs import LabelPairs


@dataclass(frozen=True)
class PairGraph:
    """Pairs of labels as rows of arcs; `slots[e]` are the two arcs of pair e."""

    start: np.ndarray
    head: np.ndarray
    slots: np.ndarray

    @classmethod
    def of(cls, n_labels: int, index: np.ndarray) -> PairGraph:
        E = len(index)
        tail = np.concatenate([index[:, 0], index[:, 1]])
        head = np.concatenate([index[:, 1], index[:, 0]])
        order = np.lexsort((head, tail))
        place = np.empty(2 * E, np.int64)
        place[order] = np.arange(2 * E)
        start = np.concatenate([[0], np.cumsum(np.bincount(tail, minlength=n_labels))]).astype(np.int64)
        slots = np.column_stack([place[:E], place[E:]])
        return cls(start, head[order].astype(np.uint32), slots)

    def flat(self, weight: np.ndarray) -> tuple[np.ndarray, ...]:
        """Arguments of the compiled loops for one weight per pair."""
        arcs = np.empty(len(self.head))
        arcs[self.slots] = weight[:, None]
        total = np.zeros(len(self.start) - 1)
        np.add.at(total, np.repeat(np.arange(len(total)), np.diff(self.start)), arcs)
        return tuple(readonly(part) for part in (self.start, self.head, arcs, total))


def weighted_graph(n_labels: int, index: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """Compiled-loop arguments of the pairs with a positive weight."""
    used = weight > 0
    return PairGraph.of(n_labels, index[used]).flat(weight[used])


def sample_ranges(n: int, n_threads: int) -> list[tuple[int, int]]:
    """Contiguous ranges of samples, several per thread because cuts vary in cost."""
    parts = 1 if n_threads <= 1 else 4 * n_threads
    bounds = np.linspace(0, n, min(parts, max(n, 1)) + 1).astype(int)
    return [(int(lo), int(hi)) for lo, hi in itertools.pairwise(bounds)]


def best_sets(scores: np.ndarray, graph: tuple[np.ndarray, ...], n_threads: int = 1) -> np.ndarray:
    """The smallest best set of labels for every row of unary scores: one cut each."""
    scores = readonly(scores)
    Y = np.empty(scores.shape, np.uint8)

    def work(part: tuple[int, int]) -> None:
        cuts.maximise_batch(scores, *graph, False, *part, Y)

    run_threads(work, sample_ranges(len(scores), n_threads), n_threads)
    return Y


def label_margins(scores: np.ndarray, graph: tuple[np.ndarray, ...], n_threads: int = 1) -> np.ndarray:
    """Best score with a label on minus best score with it off, for every row and label."""
    scores = readonly(scores)
    margins = np.empty(scores.shape)

    def work(part: tuple[int, int]) -> None:
        cuts.margins_batch(scores, *graph, *part, margins)

    run_threads(work, sample_ranges(len(scores), n_threads), n_threads)
    return margins


@dataclass(frozen=True)
class Answer:
    """What inference found for all samples at one theta.

    `slack[n]` belongs to `sets[n]`; `bound[n]` is no smaller than any slack of sample n, and
    equal to `slack[n]` (to rounding) where the answer is optimal.
    """

    sets: np.ndarray
    slack: np.ndarray
    bound: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True)
class Blocks:
    """One convex combination of planes per sample: mean labels, mean pairs (both on), mean loss.

    `memory[n]` holds the `kept[n]` sets that the sample remembers and `share[n]` their part of the
    combination; `gaps[n]` is how far the block was from its best when it was last visited. All belong
    to the true sets and the pairs of one problem.
    """

    truth: np.ndarray
    pairs: np.ndarray
    labels: np.ndarray
    joints: np.ndarray
    losses: np.ndarray
    memory: np.ndarray
    share: np.ndarray
    kept: np.ndarray
    gaps: np.ndarray


@dataclass(frozen=True)
class SubmodularF1:
    """The learning problem over rows of X; `exact` chooses the inference of the planes."""

    rows: Rows
    truth: np.ndarray
    cost: np.ndarray
    pairs: LabelPairs
    bias: float = 1.0
    exact: bool = True
    max_nodes: int = 1000
    n_threads: int = 1
    hints: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hints", self.truth.sum(axis=1, dtype=np.int64))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Samples, labels, features, pairs."""
        return *self.truth.shape, self.rows.shape[1], len(self.pairs)

    @property
    def dimension(self) -> int:
        """Length of theta: (D + 1) V unary weights, feature-major with the bias last, then the pairs."""
        _, V, D, E = self.shape
        return (D + 1) * V + E

    @property
    def n_nonnegative(self) -> int:
        """How many coordinates at the end of theta must not be negative."""
        return len(self.pairs)

    @property
    def when_stuck(self) -> str:
        """What to change when new planes no longer help although the gap is open."""
        return "increase max_nodes" if self.exact else "use inference='exact'"

    @cached_property
    def graph(self) -> PairGraph:
        """All pairs, whatever their weights."""
        return PairGraph.of(self.truth.shape[1], self.pairs.index)

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unary weights Z ((D + 1) x V) and pair weights t of one flat vector."""
        V = self.truth.shape[1]
        end = len(theta) - len(self.pairs)
        return theta[:end].reshape(-1, V), theta[end:]

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """Unary scores of all samples, in float64."""
        scores = np.empty(self.truth.shape)
        Z = readonly(Z)

        def work(part: tuple[int, int]) -> None:
            loops.score_rows(self.rows.flat, np.float64(self.bias), Z, *part, scores)

        run_threads(work, sample_ranges(len(scores), self.n_threads), self.n_threads)
        return scores

    def infer(self, theta: np.ndarray, exact: bool | None = None, max_nodes: int | None = None) -> Answer:
        """The most violating set of every sample, by the problem's inference unless told otherwise."""
        Z, t = self.split(theta)
        N, V = self.truth.shape
        graph = weighted_graph(V, self.pairs.index, self.pairs.strength * t)
        scores, truth = readonly(self.scores(Z)), readonly(self.truth)
        exact = self.exact if exact is None else exact
        max_nodes = self.max_nodes if max_nodes is None else max_nodes
        answer = Answer(np.empty((N, V), np.uint8), np.empty(N), np.empty(N), np.empty(N, np.int64))

        def work(part: tuple[int, int]) -> None:
            f1_inference.infer_batch(
                scores, truth, *graph, exact, max_nodes, *part, self.hints,
                answer.sets, answer.slack, answer.bound, answer.nodes,
            )  # fmt: skip

        run_threads(work, sample_ranges(N, self.n_threads), self.n_threads)
        return answer

    def risk(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """The sets that inference found most violating, and a proven upper bound of the loss part of P."""
        answer = self.infer(theta)
        bound = answer.bound
        if not np.isfinite(bound).all():
            bound = self.infer(theta, exact=True, max_nodes=1).bound
        return answer.sets, float(self.cost @ bound)

    def remembered(self, theta: np.ndarray, memory: list[np.ndarray]) -> np.ndarray:
        """Slack of each remembered set at theta, one row per entry of the memory."""
        Z, t = self.split(theta)
        scores, truth = readonly(self.scores(Z)), readonly(self.truth)
        first, second = (readonly(side) for side in self.pairs.index.T)
        weight, stack = readonly(self.pairs.strength * t), readonly(np.stack(memory))
        values = np.empty(stack.shape[:2])

        def work(part: tuple[int, int]) -> None:
            loops.remembered_slack(scores, truth, first, second, weight, stack, *part, values)

        run_threads(work, sample_ranges(len(scores), self.n_threads), self.n_threads)
        return values

    def losses(self, sets: np.ndarray) -> np.ndarray:
        """Delta(y_n, y^n) of every sample."""
        hits = np.sum(sets & self.truth, axis=1, dtype=np.float64)
        sizes = np.sum(sets, axis=1, dtype=np.float64) + self.truth.sum(axis=1)
        return np.where(sizes > 0, 1.0 - 2.0 * hits / np.maximum(sizes, 1.0), 0.0)

    def plane(self, sets: np.ndarray) -> tuple[np.ndarray, float]:
        """Gradient g and offset b of the plane that one set per sample gives."""
        i, j = self.pairs.index.T
        change = sets.astype(np.float64) - self.truth
        joint = (sets[:, i] & sets[:, j]).astype(np.float64) - (self.truth[:, i] & self.truth[:, j])
        gradient = self.accumulate(self.cost[:, None] * change, self.cost @ joint)
        return gradient, float(self.cost @ self.losses(sets))

    def accumulate(self, labels: np.ndarray, joints: np.ndarray) -> np.ndarray:
        """Flat vector of sum_n (x_n, bias) labels[n]' and of the pair sums times their strengths."""
        vector = np.zeros(self.dimension)
        Z, t = self.split(vector)
        labels = readonly(labels)

        def work(part: tuple[int, int]) -> None:
            loops.add_outer(self.rows.flat, np.float64(self.bias), labels, *part, Z)

        run_threads(work, self._label_ranges(), self.n_threads)
        t += self.pairs.strength * joints
        return vector

    def _label_ranges(self) -> list[tuple[int, int]]:
        V = self.truth.shape[1]
        bounds = np.linspace(0, V, min(self.n_threads, V) + 1).astype(int)
        return [(int(lo), int(hi)) for lo, hi in itertools.pairwise(bounds)]

    def blocks(self, memory: int) -> Blocks:
        """Every sample at its true set, where theta = 0, with room to remember `memory` sets."""
        N, V = self.truth.shape
        i, j = self.pairs.index.T
        sets, share, kept = np.zeros((N, memory, V), np.uint8), np.zeros((N, memory)), np.zeros(N, np.int64)
        if memory > 1:
            sets[:, 0], share[:, 0], kept[:] = self.truth, 1.0, 1
        joints = (self.truth[:, i] & self.truth[:, j]).astype(np.float64)
        labels = self.truth.astype(np.float64)
        return Blocks(
            self.truth, self.pairs.index, labels, joints, np.zeros(N), sets, share, kept, np.zeros(N)
        )

    def blocks_vector(self, blocks: Blocks) -> np.ndarray:
        """u = sum_n u_n, whose positive part on the pairs gives theta."""
        zero = self.blocks(0)
        labels = self.cost[:, None] * (zero.labels - blocks.labels)
        return self.accumulate(labels, self.cost @ (zero.joints - blocks.joints))

    def block_pass(
        self, order: np.ndarray, vector: np.ndarray, blocks: Blocks, rounds: int, ask: bool = True
    ) -> np.ndarray:
        """Up to `rounds` steps for each block in `order`; the bounds of the slacks as they were met.

        Without `ask` the blocks work on their remembered sets, and the answer is zero.
        """
        Z, u = self.split(vector)
        first, second = (readonly(side) for side in self.pairs.index.T)
        slack, bound = np.zeros(len(self.truth)), np.zeros(len(self.truth))
        submodular_blocks.block_pass(
            self.rows.flat, np.float64(self.bias), readonly(order), readonly(self.truth),
            readonly(self.cost), readonly(self.squares), first, second, readonly(self.pairs.strength),
            readonly(self.graph.slots.reshape(-1)), readonly(self.graph.start), readonly(self.graph.head),
            ask, self.exact, self.max_nodes, rounds, self.hints,
            blocks.memory, blocks.share, blocks.kept,
            Z, u, blocks.labels, blocks.joints, blocks.losses, blocks.gaps, slack, bound,
        )  # fmt: skip
        return np.where(np.isfinite(bound), bound, slack)

    @cached_property
    def squares(self) -> np.ndarray:
        """Squared norm of every sample, bias included."""
        return self.rows.squared_norms() + self.bias**2

    def certificate(self, theta: np.ndarray, dual: float) -> Certificate:
        """Proven upper bound of P at theta, next to a dual value."""
        return Certificate(0.5 * float(theta @ theta) + self.risk(theta)[1], dual)
