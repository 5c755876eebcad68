"""Minimum cuts by general flow solvers: scipy and networkx."""

from __future__ import annotations

import numpy as np


def capacities(a: np.ndarray, index: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The graph of one cut as a matrix; the last two nodes are source and sink."""
    V = len(a)
    matrix = np.zeros((V + 2, V + 2))
    matrix[index[:, 0], index[:, 1]] = matrix[index[:, 1], index[:, 0]] = weight / 2
    c = a + matrix[:V, :V].sum(axis=1)
    matrix[V, :V], matrix[:V, V + 1] = np.maximum(c, 0), np.maximum(-c, 0)
    return matrix


def cut_by_scipy(scores: np.ndarray, index: np.ndarray, weight: np.ndarray) -> None:
    """Its flow takes integers, so it is given rounded capacities and only its time counts."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import maximum_flow

    V = scores.shape[1]
    for a in scores:
        whole = np.round(1e6 * capacities(a, index, weight)).astype(np.int32)
        maximum_flow(sp.csr_array(whole), V, V + 1)


def cut_by_networkx(scores: np.ndarray, index: np.ndarray, weight: np.ndarray) -> None:
    import networkx as nx

    V = scores.shape[1]
    for a in scores:
        graph = nx.from_numpy_array(capacities(a, index, weight), create_using=nx.DiGraph)
        nx.set_edge_attributes(graph, {(u, v): d["weight"] for u, v, d in graph.edges(data=True)}, "capacity")
        nx.minimum_cut_value(graph, V, V + 1)
