"""Consistent sets are the best of all consistent sets."""

import itertools

import numpy as np
import pytest

from maxmargin.decisions import consistent_labels

RNG = np.random.default_rng(0)


def test_against_all_sets():
    for _ in range(30):
        parent = [None] + [RNG.integers(k) if RNG.random() < 0.8 else None for k in range(1, 6)]
        # Columns in any order, so that children may stand before their parents.
        order = RNG.permutation(6)
        edges = [(int(order[p]), int(order[k])) for k, p in enumerate(parent) if p is not None]
        scores = RNG.normal(size=(3, 6))
        found = consistent_labels(scores, edges)
        for row, on in zip(scores, found, strict=True):
            allowed = [
                np.array(z, bool)
                for z in itertools.product((0, 1), repeat=6)
                if all(z[p] >= z[c] for p, c in edges)
            ]
            assert any((on == z).all() for z in allowed)
            assert row[on].sum() == pytest.approx(max(row[z].sum() for z in allowed))


def test_scores_are_not_changed_and_bad_trees_are_said():
    scores = np.array([[-1.0, 2.0]])
    assert consistent_labels(scores, [(0, 1)]).tolist() == [[True, True]]
    assert scores.tolist() == [[-1.0, 2.0]]
    with pytest.raises(ValueError, match="2 has two parents"):
        consistent_labels(np.zeros((1, 3)), [(0, 2), (1, 2)])
    with pytest.raises(ValueError, match="round in a circle"):
        consistent_labels(np.zeros((1, 2)), [(0, 1), (1, 0)])
    with pytest.raises(ValueError, match="not among the labels"):
        consistent_labels(np.zeros((1, 2)), [("a", "b")])
    with pytest.raises(ValueError, match="2 columns"):
        consistent_labels(np.zeros((1, 2)), [("a", "b")], ["a", "b", "c"])
