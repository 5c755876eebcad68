"""Multi-class machines in the feature space of a kernel.

The problem is that of `maxmargin.structured.multiclass_problem` with x_i.x_j replaced by K_ij. With the
coefficients B = diag(C_i) (E - alpha), E one-hot, the scores of the training samples are K B,
|W|^2 = tr(B'KB), and a block step takes C_i delta_k K_i from the scores of class k.

The exact solver is `maxmargin.structured.working_sets`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate
from maxmargin.core.rows import readonly
from maxmargin.structured import multiclass_loops as loops
from maxmargin.structured.multiclass_loops import KernelRows, ProblemArrays, StepRule
from maxmargin.structured.multiclass_problem import (
    Evaluation,
    Iterate,
    KernelSolution,
    Labels,
    MultiClassProblem,
    Setup,
)

LANES = (0,) * 4
# Rows of a kernel that does not fit, fetched at a time.
FETCHED = 64


class KernelMultiClass(MultiClassProblem):
    """The problem in the feature space of a kernel."""

    def __init__(self, K: KernelMatrix, labels: Labels) -> None:
        super().__init__(labels, K.diagonal)
        self.K = K
        self.arrays = self.arrays_with(labels.Delta, np.dtype(np.float64), LANES, 0.0)

    def iterate(self, setup: Setup, entropic: bool = False, softness: float = 0.0) -> KernelIterate:
        return KernelIterate(self, setup, entropic, softness)

    def coefficients(self, alpha: np.ndarray, logs: bool = False) -> np.ndarray:
        """B = C_i (e_{y_i} - alpha_i): the scores of a sample x are k(x, X) B."""
        return self.steps(self.normalised(alpha, logs))

    def evaluate(self, alpha: np.ndarray, logs: bool = False) -> Evaluation:
        """P of (2) and D of (4) for the given blocks, scores anew in float64."""
        B = self.coefficients(alpha, logs)
        scores = self.K.times(B)
        half = 0.5 * float(np.vdot(B, scores))
        blocks = self.normalised(alpha, logs)
        H = scores + self.labels.Delta[self.y]
        H -= H[np.arange(self.n), self.y][:, None]
        losses = H.max(axis=1) if self.loss == loops.CRAMMER_SINGER else np.maximum(H, 0).sum(axis=1)
        gaps = self.costs * np.maximum(losses - np.einsum("ik,ik->i", blocks, H), 0)
        certificate = Certificate(half + float(self.costs @ losses), self.linear_term(blocks) - half)
        return Evaluation(certificate, gaps, np.ascontiguousarray(scores.T), B)

    def precise(self) -> KernelMultiClass:
        """The same problem on kernel values in float64."""
        K = self.K
        return KernelMultiClass(KernelMatrix(K.kernel, K.X, K.cache_size, np.float64), self.labels)

    def within(self, samples: np.ndarray, room: np.ndarray) -> KernelMultiClass:
        """The problem of some samples, the others as they are; its kernel values are kept in `room`."""
        labels = replace(self.labels, y=self.y[samples], costs=self.costs[samples])
        return KernelMultiClass(self.K.within(samples, room), labels)

    def products(self, samples: np.ndarray) -> np.ndarray:
        return self.K.square(samples).astype(np.float64)


class KernelIterate(Iterate):
    """A dual point with the scores (c, n) of the training samples, in double precision."""

    problem: KernelMultiClass

    def __init__(self, problem: KernelMultiClass, setup: Setup, entropic: bool, softness: float) -> None:
        super().__init__(problem, replace(setup, dtype=np.float64), entropic, softness)
        self.scores = np.zeros((problem.c, problem.n))
        if self.moved:
            B = problem.coefficients(self.alpha, entropic)
            self.scores = np.ascontiguousarray(problem.K.times(B).T)

    def squared_norm(self) -> float:
        return float(np.vdot(self.problem.coefficients(self.alpha, self.entropic), self.scores.T))

    def block_sweep(self, rule: StepRule, order: np.ndarray, gaps: np.ndarray) -> float:
        return sum(
            loops.block_kernel_sweep(part, rows, self.problem.arrays, rule, self.scores, self.alpha, gaps)
            for part, rows in self._parts(order)
        )

    def margins(self, samples: np.ndarray | None = None) -> np.ndarray:
        scores, y = self.scores, self.problem.y
        if samples is not None:
            scores, y = scores[:, samples], y[samples]
        return scores.T + self.problem.labels.Delta[y]

    def image(self, direction: np.ndarray) -> tuple[np.ndarray, float]:
        costed = self.problem.costs[:, None] * direction
        moved = self.problem.K.times(costed)
        return np.ascontiguousarray(moved.T), float(np.vdot(costed, moved))

    def advance(self, alpha: np.ndarray, image: np.ndarray) -> None:
        self.alpha = alpha
        self.scores -= image

    def evaluate(self) -> Evaluation:
        return self.problem.evaluate(self.alpha, self.entropic)

    def resync(self, evaluation: Evaluation) -> None:
        self.scores = evaluation.image.copy()

    def solution(self, evaluation: Evaluation) -> KernelSolution:
        return KernelSolution(evaluation.answer, self.blocks())

    def _parts(self, order: np.ndarray) -> Iterator[tuple[np.ndarray, KernelRows]]:
        """Samples to visit, with their kernel rows."""
        K = self.problem.K
        if K.whole is not None:
            yield readonly(order), KernelRows(readonly(order), readonly(K.whole))
            return
        size = min(FETCHED, K.cache.capacity)
        for k in range(0, len(order), size):
            part = order[k : k + size]
            yield readonly(part), KernelRows(readonly(K.cache.fetch(part)), readonly(K.cache.store))


def restricted(arrays: ProblemArrays, part: np.ndarray) -> ProblemArrays:
    """The problem of some samples alone."""
    y, costs, norms = (readonly(values[part]) for values in (arrays.y, arrays.costs, arrays.norms))
    return arrays._replace(y=y, costs=costs, norms=norms)
