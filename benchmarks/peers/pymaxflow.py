"""PyMaxflow, which is GPL and needed for the race of cuts alone."""

from __future__ import annotations

import numpy as np

NEEDS = ("maxflow",)


def cut(scores: np.ndarray, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    import maxflow

    V = scores.shape[1]
    half = np.bincount(index.ravel(), weights=np.repeat(weight, 2), minlength=V) / 2
    i, j = np.ascontiguousarray(index[:, 0]), np.ascontiguousarray(index[:, 1])
    answers = np.empty(scores.shape, bool)
    for n, a in enumerate(scores):
        graph = maxflow.Graph[float](V, len(index))
        nodes = graph.add_nodes(V)
        graph.add_edges(i, j, weight / 2, weight / 2)
        c = a + half
        graph.add_grid_tedges(nodes, np.maximum(c, 0), np.maximum(-c, 0))
        graph.maxflow()
        answers[n] = ~graph.get_grid_segments(nodes)
    return answers
