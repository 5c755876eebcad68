"""The measures of the command line against their definitions, sample by sample."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.cli.measures import MEASURES, measure


def by_hand(relevant, scores):
    """Top label right, ranking loss and average precision; ties count against the model."""
    top, loss, precision = [], [], []
    for yes, value in zip(relevant, scores, strict=True):
        if yes.all():
            continue
        if not yes.any():
            top, loss, precision = [*top, 0], [*loss, 1], [*precision, 0]
            continue
        on, off = value[yes], value[~yes]
        top.append(on.max() > off.max())
        loss.append((on[:, None] <= off[None, :]).mean())
        ranks = (value[None, :] >= on[:, None]).sum(axis=1)
        precision.append(np.mean((on[None, :] >= on[:, None]).sum(axis=1) / ranks))
    return [np.mean(top), np.mean(loss), np.mean(precision)]


@pytest.mark.parametrize("ties", [False, True])
def test_rankings_of_several_labels(ties):
    rng = np.random.default_rng(0)
    relevant, scores = rng.random((60, 4)) < 0.4, rng.normal(size=(60, 4))
    scores = scores.round() if ties else scores
    relevant[0], relevant[1] = True, False
    found = measure("ranking", relevant.astype(int), None, scores=scores, classes=range(4))
    assert list(found) == list(MEASURES["ranking"])
    assert list(found.values()) == pytest.approx(by_hand(relevant, scores), abs=1e-12)


def test_a_label_that_the_model_has_never_met_is_wrong_in_every_respect():
    rng = np.random.default_rng(0)
    y, scores = rng.choice(["a", "b", "c", "new"], 40), rng.normal(size=(40, 3))
    relevant = y[:, None] == np.array(["a", "b", "c"])
    found = measure("ranking", y, None, scores=scores, classes=["a", "b", "c"])
    assert list(found.values()) == pytest.approx(by_hand(relevant, scores), abs=1e-12)
    nothing = measure("ranking", np.array(["new"]), None, scores=scores[:1], classes=["a", "b", "c"])
    assert list(nothing.values()) == [0, 1, 0]


def test_letters_and_words():
    truth, predicted = np.array(list("abcde")), np.array(list("abxde"))
    found = measure("chain", truth, predicted, lengths=np.array([3, 2]))
    assert found == {"letter accuracy": 0.8, "word accuracy": 0.5}
