"""Poker hands against an obvious reading of the rules."""

from collections import Counter

import numpy as np
import pytest

from experiments.data.poker import draw_hands, label_hands


def by_the_rules(hand) -> int:
    suits, ranks = hand[0::2], sorted(hand[1::2])
    same = sorted(Counter(ranks).values(), reverse=True)
    flush = len(set(suits)) == 1
    royal = ranks == [1, 10, 11, 12, 13]
    straight = royal or ranks == list(range(int(ranks[0]), int(ranks[0]) + 5))
    if flush and royal:
        return 9
    if flush and straight:
        return 8
    if same[0] == 4:
        return 7
    if same == [3, 2]:
        return 6
    if flush:
        return 5
    if straight:
        return 4
    return {(3, 1): 3, (2, 2): 2, (2, 1): 1}.get(tuple(same[:2]), 0)


def test_equals_the_rules_on_drawn_hands():
    X, y = draw_hands(3000, random_state=0)
    assert y.tolist() == [by_the_rules(hand) for hand in X.tolist()]
    assert {0, 1, 2, 3} <= set(y.tolist())


def test_four_and_full_house():
    assert label_hands([[1, 5, 2, 5, 3, 5, 4, 5, 1, 9], [1, 5, 2, 5, 3, 5, 4, 9, 1, 9]]).tolist() == [7, 6]


def test_drawing_is_repeatable_and_fair():
    X, y = draw_hands(40_000, random_state=3)
    np.testing.assert_array_equal(X, draw_hands(40_000, random_state=3)[0])
    assert np.mean(y == 0) == pytest.approx(0.501177, abs=0.01)
    assert np.mean(y == 1) == pytest.approx(0.422569, abs=0.01)
    cards = X[:, 0::2] * 13 + X[:, 1::2]
    assert (np.diff(np.sort(cards, axis=1), axis=1) > 0).all()
    for place in range(5):
        assert np.bincount(cards[:, place].astype(int) - 14, minlength=52).min() > 600


@pytest.mark.parametrize(
    ("hands", "message"),
    [
        ([[1] * 9], "shape"),
        ([[1, 1] * 5], "same card twice"),
        ([[5, 1, 1, 2, 1, 3, 1, 4, 1, 5]], "suits from 1 to 4"),
        ([[1.5, 1, 1, 2, 1, 3, 1, 4, 1, 5]], "suits from 1 to 4"),
    ],
)
def test_invalid_hands_are_refused(hands, message):
    with pytest.raises(ValueError, match=message):
        label_hands(hands)
    with pytest.raises(ValueError, match="n_hands"):
        draw_hands(0)
