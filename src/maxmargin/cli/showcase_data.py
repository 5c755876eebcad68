"""Data of the demo: what ships with the package and with scikit-learn, and what is made of it.

Every function answers with a training and a test part.
"""

from __future__ import annotations

from typing import Any

from maxmargin.cli.data import Samples

Split = tuple[Samples, Samples]


def standardised(name: str) -> Split:
    """A shipped data set in its own split, columns scaled to mean 0 and variance 1."""
    from sklearn.preprocessing import StandardScaler

    from maxmargin.datasets import load

    data = load(name)
    train, test = data.part("train"), data.part("test")
    scaler = StandardScaler().fit(train.X)
    names = data.label_names, data.feature_names
    return (
        Samples(scaler.transform(train.X), train.Y, *names),
        Samples(scaler.transform(test.X), test.Y, *names),
    )


def titles(n_train: int = 2000) -> Split:
    """Titles of books and articles with their subjects: those that the first ones, to train on, have."""
    import numpy as np
    import scipy.sparse as sp

    from maxmargin.datasets import load

    train, test = (load("yso-sample").part(side) for side in ("train", "test"))
    known = np.flatnonzero(train.Y[:n_train].any(axis=0))
    names = tuple(train.label_names[k] for k in known), train.feature_names
    few = slice(0, n_train)
    return (
        Samples(sp.csr_matrix(train.X[few]), train.Y[few, known], *names, texts=train.per_row["text"][few]),
        Samples(sp.csr_matrix(test.X), test.Y[:, known], *names, texts=test.per_row["text"]),
    )


def mail() -> Split:
    """The shipped stream of mail, in its order: 500 messages, then the rest."""
    import scipy.sparse as sp

    from maxmargin.datasets import load

    data = load("mail-stream")
    X, names = sp.csr_matrix(data.X), (data.label_names, data.feature_names)
    return Samples(X[:500], data.Y[:500], *names), Samples(X[500:], data.Y[500:], *names)


def digits() -> Split:
    """scikit-learn's 1797 images of handwritten digits, every second one for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    X, y = bunch.data / 16.0, bunch.target
    names = tuple(str(digit) for digit in bunch.target_names), tuple(bunch.feature_names)
    return Samples(X[::2], y[::2], *names), Samples(X[1::2], y[1::2], *names)


def _pools(images: Samples) -> list[Any]:
    """Rows of each digit."""
    import numpy as np

    return [np.flatnonzero(images.y == digit) for digit in range(10)]


def digit_words(length: int = 10, noise: float = 0.3, hidden: float = 0.3, seed: int = 0) -> Split:
    """Sequences of handwritten digits that mostly count upwards, 100 to train and 100 to test.

    The images are scikit-learn's with pixel noise, some of them hidden by it altogether; their order is
    drawn: a digit is followed by the next higher one with probability 0.9 and by any digit otherwise.
    """
    import numpy as np

    rng = np.random.default_rng(seed)

    def words(images: Samples, n_words: int = 100) -> Samples:
        pools, rows = _pools(images), []
        for _ in range(n_words):
            digit = rng.integers(10)
            for _ in range(length):
                rows.append(rng.choice(pools[digit]))
                digit = (digit + 1) % 10 if rng.random() < 0.9 else rng.integers(10)
        seen = images.X[rows] * (rng.random((len(rows), 1)) >= hidden)
        X = seen + noise * rng.standard_normal((len(rows), images.X.shape[1]))
        lengths = np.full(n_words, length)
        return Samples(X, images.y[rows], images.label_names, images.feature_names, lengths)

    train, test = digits()
    return words(train), words(test)


def numbers(noise: float = 0.3, seed: int = 0) -> Split:
    """Two digits side by side with pixel noise: 90 of the 100 numbers to train, the ten others to test.

    A number has two of 20 labels, "first 0" to "first 9" and "second 0" to "second 9".
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    unseen = 10 * np.arange(10) + rng.permutation(10)
    seen = np.setdiff1d(np.arange(100), unseen)
    names = tuple(f"{place} {digit}" for place in ("first", "second") for digit in range(10))

    def images(of: Samples, categories: Any, n: int) -> Samples:
        pools, drawn = _pools(of), rng.choice(categories, n)
        sides = [of.X[[rng.choice(pools[digit]) for digit in place]] for place in (drawn // 10, drawn % 10)]
        X = np.hstack(sides) + noise * rng.standard_normal((n, 2 * of.X.shape[1]))
        Y = np.hstack([np.eye(10, dtype=int)[drawn // 10], np.eye(10, dtype=int)[drawn % 10]])
        return Samples(X, Y, names, ())

    train, test = digits()
    return images(train, seen, 400), images(test, unseen, 1000)
