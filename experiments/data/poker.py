"""Poker hands: the class is a fixed function of the five cards, so test hands can be drawn.

A hand is ten numbers, suit (1 to 4) and rank (1, the ace, to 13) of five different cards. Classes:
0 nothing, 1 one pair, 2 two pairs, 3 three of a kind, 4 straight, 5 flush, 6 full house, 7 four of
a kind, 8 straight flush, 9 royal flush.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BLOCK = 1 << 15


def label_hands(hands: Any) -> np.ndarray:
    """Return the class of each hand by the rules of poker.

    Parameters
    ----------
    hands : array-like of shape (n_hands, 10)
        suit, rank, suit, rank, ...

    Examples
    --------
    >>> from experiments.data.poker import label_hands
    >>> label_hands([[1, 10, 1, 11, 1, 13, 1, 12, 1, 1], [2, 7, 3, 7, 1, 2, 1, 3, 1, 9]])
    array([9, 1])
    """
    hands = np.asarray(hands)
    if hands.ndim != 2 or hands.shape[1] != 10:
        raise ValueError(f"hands must have shape (n_hands, 10). Got {hands.shape} instead.")
    suits, ranks = hands[:, 0::2], hands[:, 1::2]
    whole = np.equal(hands, np.floor(hands)).all()
    if not (whole and np.isin(suits, range(1, 5)).all() and np.isin(ranks, range(1, 14)).all()):
        raise ValueError("hands must hold suits from 1 to 4 and ranks from 1 to 13, alternating.")
    suits, ranks = suits.astype(int), np.sort(ranks.astype(int), axis=1)
    cards = np.sort(suits * 13 + hands[:, 1::2].astype(int), axis=1)
    if (np.diff(cards, axis=1) == 0).any():
        raise ValueError("a hand holds the same card twice.")
    counts = (hands[:, 1::2, None].astype(int) == np.arange(1, 14)).sum(axis=1)
    most, pairs = counts.max(axis=1), (counts == 2).sum(axis=1)
    flush = (suits == suits[:, :1]).all(axis=1)
    ace_high = (ranks == [1, 10, 11, 12, 13]).all(axis=1)
    straight = (np.diff(ranks, axis=1) == 1).all(axis=1) | ace_high
    conditions = [
        flush & ace_high,
        flush & straight,
        most == 4,
        (most == 3) & (pairs == 1),
        flush,
        straight,
        most == 3,
        pairs == 2,
        pairs == 1,
    ]
    return np.select(conditions, range(9, 0, -1), default=0)


def draw_hands(n_hands: int, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Draw random hands; return them with their classes.

    Parameters
    ----------
    n_hands : int
        Number of hands of five different cards in random order.
    random_state : int or None, default=None
        Seed of numpy.random.default_rng.

    Returns
    -------
    X : ndarray of shape (n_hands, 10)
        Features as in `load("poker")`.
    y : ndarray of shape (n_hands,)
        Classes.
    """
    if n_hands < 1:
        raise ValueError(f"n_hands must be at least 1. Got {n_hands} instead.")
    rng = np.random.default_rng(random_state)
    cards = np.empty((n_hands, 5), dtype=int)
    for start in range(0, n_hands, _BLOCK):
        size = min(_BLOCK, n_hands - start)
        cards[start : start + size] = np.argsort(rng.random((size, 52)), axis=1)[:, :5]
    hands = np.empty((n_hands, 10))
    hands[:, 0::2] = cards // 13 + 1
    hands[:, 1::2] = cards % 13 + 1
    return hands, label_hands(hands)
