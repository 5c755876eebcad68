"""Online multi-class learners under one roof: predict, compare, learn, one row after the other.

Each adapter is a function (X, y, n_classes) -> (seconds, mistakes): X is CSR of word presence, y
holds class numbers, `mistakes` says per round whether the label predicted before learning was
wrong. Preparation that a user of the peer would do once (dictionaries, parsed examples) is not
timed unless the name says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

from maxmargin import LabelRanker, StreamRanker

Answer = tuple[float, np.ndarray]
Learner = Callable[[Any, np.ndarray, int], Answer]


def null(X: Any, y: np.ndarray, n_classes: int) -> Answer:
    """Looks at every row and always answers class 0: the cost of the harness itself."""
    start = time.perf_counter()
    total = 0
    for i in range(len(y)):
        total += X.indptr[i + 1] - X.indptr[i]
    return time.perf_counter() - start, y != 0


def ours(
    update: str = "all_pairs", regulariser: str = "squared", unit: bool = False, **options: Any
) -> Learner:
    """`LabelRanker.partial_fit` on the whole stream in one call; scaling to unit length is timed too."""

    def learn(X: Any, y: np.ndarray, n_classes: int) -> Answer:
        model = LabelRanker(update, regulariser, trace=True, **options)
        start = time.perf_counter()
        X = normalize(X) if unit else X
        model.partial_fit(X, y, classes=np.arange(n_classes))
        return time.perf_counter() - start, model.trace_["mistake"]

    return learn


def ours_row_by_row(X: Any, y: np.ndarray, n_classes: int) -> Answer:
    """`LabelRanker.partial_fit` with one row at a time, slicing included."""
    model = LabelRanker(trace=True)
    classes = np.arange(n_classes)
    start = time.perf_counter()
    for i in range(len(y)):
        model.partial_fit(X[i : i + 1], y[i : i + 1], classes=classes)
    return time.perf_counter() - start, model.trace_["mistake"]


def ours_dictionaries(X: Any, y: np.ndarray, n_classes: int) -> Answer:
    """`StreamRanker`, predict_one then learn_one, on dictionaries."""
    rows, model = _dictionaries(X), StreamRanker()
    wrong = np.empty(len(y), bool)
    start = time.perf_counter()
    for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        wrong[i] = model.predict_one(row) != label
        model.learn_one(row, label)
    return time.perf_counter() - start, wrong


def scikit_learn(X: Any, y: np.ndarray, n_classes: int) -> Answer:
    """SGDClassifier with the PA-I step, one-vs-rest, one row at a time."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0)
    classes = np.arange(n_classes)
    wrong = np.ones(len(y), bool)
    start = time.perf_counter()
    for i in range(len(y)):
        row = X[i : i + 1]
        if i:
            wrong[i] = model.predict(row)[0] != y[i]
        model.partial_fit(row, y[i : i + 1], classes=classes)
    return time.perf_counter() - start, wrong


def river(X: Any, y: np.ndarray, n_classes: int) -> Answer:
    """River's PA-I classifier, one-vs-rest."""
    from river import linear_model, multiclass

    rows, model = _dictionaries(X), multiclass.OneVsRestClassifier(linear_model.PAClassifier(C=1.0, mode=1))
    wrong = np.empty(len(y), bool)
    start = time.perf_counter()
    for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        wrong[i] = model.predict_one(row) != label
        model.learn_one(row, label)
    return time.perf_counter() - start, wrong


def vowpal_wabbit(parsing: bool, rate: float = 0.5, weighed: bool = False) -> Learner:
    """Vowpal Wabbit, --oaa with hinge loss; it predicts before it learns. Weighing rows is not timed."""

    def learn(X: Any, y: np.ndarray, n_classes: int) -> Answer:
        from vowpalwabbit import Workspace

        vw = Workspace(f"--oaa {n_classes} --quiet -b 22 --loss_function hinge -l {rate}")
        if weighed:
            X = weighed_rows(X)
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

    return learn


def vowpal_wabbit_ldf(X: Any, y: np.ndarray, n_classes: int) -> Answer:
    """Vowpal Wabbit, --csoaa_ldf: the words shared, one line per label, words x label crossed."""
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


def _dictionaries(X: Any) -> list[dict[int, float]]:
    return [dict.fromkeys(X.indices[X.indptr[i] : X.indptr[i + 1]].tolist(), 1.0) for i in range(X.shape[0])]


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
