"""Research sets by name; at toy size, made data of the same form where a set is not on this machine.

What a script reads in full is listed in `data.toml`. Without its data a script ends with one line and exit
code 1; with ``--small`` it goes on with made data, which shows that it runs and nothing else.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments._results import SMALL
from maxmargin import datasets
from maxmargin.datasets import Dataset

# Samples, features and labels of a made set; the first half of the samples trains.
SAMPLES, FEATURES, LABELS = 600, 40, 12
WORDS_OF_A_TEXT, VOCABULARY = 12, 300
# Made classes of images have as many attributes as the real ones, by their names.
ATTRIBUTES = ("black", "weak", *(f"attribute{k}" for k in range(83)))


def load(name: str, split: str | None = None) -> Dataset:
    """A data set as `maxmargin.datasets.load` has it, or a made one as described above."""
    try:
        return datasets.load(name, split=split)
    except FileNotFoundError as error:
        if not SMALL:
            raise SystemExit(f"Error: {error}") from None
    print(f"{name} is not on this machine; --small uses made data of its form.", file=sys.stderr)
    return made(name).part(split)


def made(name: str) -> Dataset:
    """Made data of the form of a known set."""
    rng = np.random.default_rng(sum(name.encode()))
    kinds = {"chain": _letters, "zero-shot": _attributes, "ranking": _mail, "multilabel": _labels}
    task = datasets.info(name).task
    make = kinds.get(task.removesuffix("-text"), _classes)
    return make(name, rng, task.endswith("-text") or name == "rcv1-subsets")


def _halves(n: int) -> dict[str, np.ndarray]:
    return {"train": np.arange(n // 2), "test": np.arange(n // 2, n)}


def _texts(rng: np.random.Generator, n: int) -> tuple[sp.csr_array, dict[str, np.ndarray]]:
    """Counts of words, a few of them frequent, and the texts that they are of."""
    words = (VOCABULARY * rng.random((n, WORDS_OF_A_TEXT)) ** 3).astype(int)
    starts = np.arange(n + 1, dtype=np.int32) * WORDS_OF_A_TEXT
    X = sp.csr_array((np.ones(words.size), words.ravel().astype(np.int32), starts), shape=(n, VOCABULARY))
    X.sum_duplicates()
    texts = [" ".join(f"word{k}" for k in row) for row in words]
    return X, {"text": np.array(texts, dtype=object)}


def _features(rng: np.random.Generator, n: int, texts: bool) -> tuple[Any, dict[str, np.ndarray]]:
    return _texts(rng, n) if texts else (rng.random((n, FEATURES)), {})


def _scores(rng: np.random.Generator, X: Any, n_labels: int) -> np.ndarray:
    noise = rng.normal(size=(X.shape[0], n_labels))
    return np.asarray(X @ rng.normal(size=(X.shape[1], n_labels))) + 0.3 * noise


def _labels(name: str, rng: np.random.Generator, texts: bool) -> Dataset:
    X, per_row = _features(rng, SAMPLES, texts)
    scores = _scores(rng, X, LABELS)
    Y = (scores > np.quantile(scores, 0.8, axis=0)).astype(np.int32)
    names = tuple(f"label{k}" for k in range(LABELS))
    features = tuple(f"x{j}" for j in range(X.shape[1]))
    return Dataset(X, Y, features, names, name=name, per_row=per_row, **_halves(SAMPLES))


def _classes(name: str, rng: np.random.Generator, texts: bool) -> Dataset:
    X, per_row = _features(rng, SAMPLES, texts)
    names = np.array([f"class{k}" for k in range(6)])
    y = names[_scores(rng, X, len(names)).argmax(axis=1)]
    features = tuple(f"x{j}" for j in range(X.shape[1]))
    kept = tuple(np.unique(y).tolist())
    return Dataset(X, y, features, kept, name=name, per_row=per_row, **_halves(SAMPLES))


def _letters(name: str, rng: np.random.Generator, texts: bool) -> Dataset:
    """Words of pixels; the first fifth is fold 0, as of letter.data."""
    lengths = rng.integers(3, 8, size=SAMPLES // 4)
    word = np.repeat(np.arange(len(lengths)), lengths)
    codes = rng.integers(0, 26, size=len(word))
    X = (rng.random((len(word), 128)) < rng.random((26, 128))[codes]).astype(float)
    fold = np.where(word < len(lengths) // 5, 0, 1)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Dataset(
        X,
        np.array(list("abcdefghijklmnopqrstuvwxyz"))[codes],
        tuple(f"pixel{j}" for j in range(128)),
        tuple("abcdefghijklmnopqrstuvwxyz"),
        train=np.flatnonzero(fold == 0),
        test=np.flatnonzero(fold),
        name=name,
        per_row={"word": word, "position": np.arange(len(word)) - starts, "fold": fold},
    )


def _attributes(name: str, rng: np.random.Generator, texts: bool) -> Dataset:
    """Images of 50 classes with attributes; 40 classes train, the others test."""
    index = np.repeat(np.arange(50), 30)
    signatures = (rng.random((50, len(ATTRIBUTES))) < 0.4).astype(np.int32)
    centres = signatures @ rng.random((len(ATTRIBUTES), FEATURES)) / len(ATTRIBUTES)
    X = (centres[index] + 0.05 * rng.random((len(index), FEATURES))).astype(np.float32)
    seen, unseen = np.arange(40), np.arange(40, 50)
    return Dataset(
        X,
        signatures[index],
        tuple(f"phog{j}" for j in range(FEATURES)),
        ATTRIBUTES,
        train=np.flatnonzero(index < 40),
        test=np.flatnonzero(index >= 40),
        name=name,
        per_row={"class_index": index},
        extras={
            "class_names": tuple(f"animal{k}" for k in range(50)),
            "signatures": signatures,
            "signatures_continuous": 100.0 * signatures,
            "train_classes": seen,
            "test_classes": unseen,
        },
    )


def _mail(name: str, rng: np.random.Generator, texts: bool) -> Dataset:
    """A stream of messages as the words that occur in them, and the folder of each."""
    X, _ = _texts(rng, SAMPLES)
    X.data[:] = 1.0
    folders = np.array([f"folder{k}" for k in range(8)])
    y = folders[_scores(rng, X, len(folders)).argmax(axis=1)]
    per_row = {
        "date": np.arange(SAMPLES, dtype=float),
        "file": np.array([f"{folder}/{k}" for k, folder in enumerate(y)]),
    }
    names = tuple(np.unique(y).tolist())
    return Dataset(X, y, tuple(f"word{j}" for j in range(VOCABULARY)), names, name=name, per_row=per_row)
