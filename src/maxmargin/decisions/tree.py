"""Sets of labels that agree with a tree: a child implies its parent.

Among the sets S that hold with every label its ancestors, the one with the largest sum of scores is found
from the leaves up: the gain of a label with the best of what is below it is

    gain(l) = score(l) + sum over children c of max(0, gain(c)) ,

and a label is in S when its parent is and its gain is positive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.priors import ancestors


def consistent_labels(scores: Any, edges: Any, labels: Any = None) -> np.ndarray:
    """The best consistent set of labels of every sample.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_labels)
        Such as those of `decision_function`, or log-odds; positive speaks for a label.
    edges : sequence of (parent, child)
        All of them labels; every label has at most one parent.
    labels : sequence, default=None
        Names of the columns, for edges that call labels by name.

    Returns
    -------
    bool array of shape (n_samples, n_labels)
        The set of the largest sum of scores among those in which a child implies its parent; no larger
        one than needed.

    Examples
    --------
    >>> from maxmargin.decisions import consistent_labels
    >>> edges = [("animal", "cat"), ("animal", "dog")]
    >>> consistent_labels([[-1.0, 3.0, -2.0], [-1.0, 0.5, 0.2]], edges, ["animal", "cat", "dog"])
    array([[ True,  True, False],
           [False, False, False]])
    """
    scores = np.array(scores, dtype=np.float64)
    if scores.ndim != 2 or np.isnan(scores).any():
        raise ValueError("scores must be a matrix of numbers, one column per label.")
    names = list(range(scores.shape[1])) if labels is None else list(labels)
    if len(names) != scores.shape[1]:
        raise ValueError(f"labels has {len(names)} names, but scores has {scores.shape[1]} columns.")
    place = {name: k for k, name in enumerate(names)}
    parent: dict[int, int] = {}
    for above, below in edges:
        for name in (above, below):
            if name not in place:
                raise ValueError(f"an edge names {name!r}, which is not among the labels.")
        if parent.get(place[below], place[above]) != place[above]:
            raise ValueError(f"{below!r} has two parents; consistent sets are found in trees only.")
        parent[place[below]] = place[above]
    depth = {place[name]: len(above) for name, above in ancestors(edges, names).items()}
    downward = sorted(depth, key=lambda k: depth[k])
    gain = scores
    for k in reversed(downward):
        if k in parent:
            gain[:, parent[k]] += np.maximum(gain[:, k], 0.0)
    on = gain > 0
    for k in downward:
        if k in parent:
            on[:, k] &= on[:, parent[k]]
    return on
