"""Vowpal Wabbit; it predicts before it learns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

NEEDS = ("vowpalwabbit",)


def learn(
    X: Any, y: np.ndarray, n_classes: int, parsing: bool = False, weighed: bool = False
) -> tuple[float, np.ndarray]:
    """--oaa with hinge loss; `parsing` includes parsing in the time, weighting rows is not timed."""
    from vowpalwabbit import Workspace

    vw = Workspace(f"--oaa {n_classes} --quiet -b 22 --loss_function hinge -l 0.5")
    X = weighed_rows(X) if weighed else X
    texts = [f"{label + 1} | {_words(X, i, weighed)}" for i, label in enumerate(y.tolist())]
    wrong = np.empty(len(y), bool)
    examples = [] if parsing else [vw.parse(text) for text in texts]
    start = time.perf_counter()
    if parsing:
        examples = [vw.parse(text) for text in texts]
    for i, example in enumerate(examples):
        vw.learn(example)
        wrong[i] = example.get_prediction() != y[i] + 1
    seconds = time.perf_counter() - start
    for example in examples:
        vw.finish_example(example)
    vw.finish()
    return seconds, wrong


def learn_crossed(X: Any, y: np.ndarray, n_classes: int) -> tuple[float, np.ndarray]:
    """--csoaa_ldf: the words shared, one line per label, words x label crossed."""
    from vowpalwabbit import Workspace

    vw = Workspace("--csoaa_ldf mc --quiet -b 22 -q sl --loss_function hinge")
    wrong = np.empty(len(y), bool)
    seconds = 0.0
    for i, label in enumerate(y.tolist()):
        lines = [f"shared |s {_words(X, i)}"]
        lines += [f"{c + 1}:{float(c != label)} |l c{c}" for c in range(n_classes)]
        example = vw.parse(lines)
        start = time.perf_counter()
        predicted = vw.predict(example)
        vw.learn(example)
        seconds += time.perf_counter() - start
        wrong[i] = predicted != label + 1
        vw.finish_example(example)
    vw.finish()
    return seconds, wrong


def weighed_rows(X: Any) -> Any:
    """Word presence times log((2 + t) / (1 + rows before with the word)), rows of unit length."""
    counts, out = np.zeros(X.shape[1]), X.astype(np.float64)
    for t in range(X.shape[0]):
        words = X.indices[X.indptr[t] : X.indptr[t + 1]]
        out.data[X.indptr[t] : X.indptr[t + 1]] = np.log((2 + t) / (1 + counts[words]))
        counts[words] += 1
    return normalize(out)


def _words(X: Any, i: int, values: bool = False) -> str:
    """Row i in Vowpal Wabbit's own form, with values where they are not all one."""
    part = slice(X.indptr[i], X.indptr[i + 1])
    if not values:
        return " ".join(map(str, X.indices[part].tolist()))
    pairs = zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True)
    return " ".join(f"{j}:{x:.6g}" for j, x in pairs)
