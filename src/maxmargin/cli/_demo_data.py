"""Data of the demo: what ships with the package and with scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.cli._samples import Samples


@dataclass(frozen=True)
class Split:
    """Training and test rows; `lengths` cut stacked rows into sequences."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    lengths: np.ndarray | None = None
    lengths_test: np.ndarray | None = None
    label_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()

    @property
    def train(self) -> Samples:
        return Samples(self.X, self.y, self.label_names, self.feature_names, self.lengths)

    @property
    def test(self) -> Samples:
        return Samples(self.X_test, self.y_test, self.label_names, self.feature_names, self.lengths_test)


def _table(name: str) -> Split:
    """A shipped data set in its own split, columns scaled to mean 0 and variance 1."""
    from sklearn.preprocessing import StandardScaler

    from maxmargin.datasets import load

    data = load(name)
    train, test = data.part("train"), data.part("test")
    scaler = StandardScaler().fit(train.X)
    return Split(
        scaler.transform(train.X),
        train.Y,
        scaler.transform(test.X),
        test.Y,
        label_names=data.label_names,
        feature_names=data.feature_names,
    )


def _digits() -> Split:
    """scikit-learn's 1797 images of handwritten digits, every second one for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    X, y = bunch.data / 16.0, bunch.target
    names = tuple(str(digit) for digit in bunch.target_names)
    return Split(
        X[::2], y[::2], X[1::2], y[1::2], label_names=names, feature_names=tuple(bunch.feature_names)
    )


def _mail() -> Split:
    """The shipped stream of mail, in its order: the first four fifths, then the rest."""
    from maxmargin.datasets import load

    data = load("mail-stream")
    cut = data.X.shape[0] * 4 // 5
    return Split(
        data.X[:cut],
        data.Y[:cut],
        data.X[cut:],
        data.Y[cut:],
        label_names=data.label_names,
        feature_names=data.feature_names,
    )


def digit_words(length: int = 6, noise: float = 0.5, seed: int = 0) -> Split:
    """Sequences of handwritten digits that mostly count upwards.

    The images are scikit-learn's, blurred by pixel noise; their order is drawn: a digit is
    followed by the next higher one with probability 0.8 and by any digit otherwise.
    """
    split = _digits()
    rng = np.random.default_rng(seed)
    parts = []
    for X, y, n_words in ((split.X, split.y, 150), (split.X_test, split.y_test, 150)):
        pools = [np.flatnonzero(y == digit) for digit in range(10)]
        rows = []
        for _ in range(n_words):
            digit = rng.integers(10)
            for _ in range(length):
                rows.append(rng.choice(pools[digit]))
                digit = (digit + 1) % 10 if rng.random() < 0.8 else rng.integers(10)
        blurred = X[rows] + noise * rng.standard_normal((len(rows), X.shape[1]))
        parts.append((blurred, y[rows], np.full(n_words, length)))
    (X, y, lengths), (X_test, y_test, lengths_test) = parts
    return Split(X, y, X_test, y_test, lengths, lengths_test, split.label_names, split.feature_names)


LOADERS: dict[str, Callable[[], Split]] = {
    "yeast": lambda: _table("yeast"),
    "emotions": lambda: _table("emotions"),
    "mail-stream": _mail,
    "digits": _digits,
    "digit-words": digit_words,
}
