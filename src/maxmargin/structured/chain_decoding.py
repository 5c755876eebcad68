"""What a trained chain says of sequences: best labeling, k best labelings, marginals.

Weights are (U, R, B) as in _jit/chain.py: features x labels, transitions, and the rows bias,
first, last.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.structured.chain_loops import decode, kbest, node_marginals, unary_scores
from maxmargin.structured.chain_problem import pieces

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


def best_labels(rows: Rows, offsets: np.ndarray, weights: Parts, n_threads: int = 1) -> np.ndarray:
    """Label of every row in the best labeling of its sequence."""
    K, longest = weights[1].shape[0], int(np.diff(offsets).max())
    labels, scores = np.empty(rows.shape[0], np.int64), np.empty(offsets.size - 1)

    def part(bounds: tuple[int, int]) -> None:
        un, forward = np.empty((2, longest, K))
        decode(rows.flat, readonly(offsets), *bounds, *weights, un, forward, labels, scores)

    run_threads(part, pieces(offsets, n_threads), n_threads)
    return labels


def marginals(
    rows: Rows, offsets: np.ndarray, weights: Parts, temperature: float, n_threads: int = 1
) -> np.ndarray:
    """Probability of every label (columns) of every row under softmax(score / temperature)."""
    K, longest = weights[1].shape[0], int(np.diff(offsets).max())
    out = np.empty((rows.shape[0], K))

    def part(bounds: tuple[int, int]) -> None:
        un, forward, backward = np.empty((3, longest, K))
        node_marginals(
            rows.flat, readonly(offsets), *bounds, *weights, 1.0 / temperature,
            un, forward, backward, np.empty((2, longest)), np.empty(K), out,
        )  # fmt: skip

    run_threads(part, pieces(offsets, n_threads), n_threads)
    return out


def best_labelings(
    rows: Rows, offsets: np.ndarray, weights: Parts, k: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each sequence its k best labelings (fewer if there are not so many) and their scores."""
    U, R, B = weights
    K = R.shape[0]
    for start, length in zip(offsets[:-1], np.diff(offsets), strict=True):
        un, scores = np.empty((length, K)), np.empty((length, K, k))
        came, rank = np.empty((2, length, K, k), np.int64)
        labels, values = np.empty((k, length), np.int64), np.empty(k)
        unary_scores(rows.flat, start, length, U, B, un)
        found = kbest(un, R, length, k, scores, came, rank, np.empty(K, np.int64), labels, values)
        yield labels[:found], values[:found]
