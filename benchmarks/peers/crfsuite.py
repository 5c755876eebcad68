"""sklearn-crfsuite: decoding, from its feature dictionaries and from its own item sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.problems.chain import Words

NEEDS = ("sklearn_crfsuite", "pycrfsuite")
# What folds of the training words choose (experiments/ocr_words.py).
C2, SCALING = 1.0, 2.0


def fit(words: Words) -> Any:
    import sklearn_crfsuite

    crf = sklearn_crfsuite.CRF(
        algorithm="lbfgs", c2=C2 / SCALING**2, max_iterations=200, all_possible_transitions=True
    )
    return crf.fit(features(words), words.cut(words.y))


def features(words: Words) -> list[list[dict[str, float]]]:
    """Dark pixels of every letter by name, of size 1 / SCALING; a constant, whether it is first, last."""
    X, sequences, row = words.X, [], 0
    for length in words.lengths:
        sequence = []
        for t in range(length):
            found = {f"p{j}": 1 / SCALING for j in X.indices[X.indptr[row] : X.indptr[row + 1]]}
            found["bias"] = 1.0
            if t == 0:
                found["first"] = 1.0
            if t == length - 1:
                found["last"] = 1.0
            sequence.append(found)
            row += 1
        sequences.append(sequence)
    return sequences


def prepared(sequences: list[list[dict[str, float]]]) -> list[Any]:
    """Dictionaries turned into the library's own item sequences."""
    import pycrfsuite

    return [pycrfsuite.ItemSequence(sequence) for sequence in sequences]


def tag(crf: Any, sequences: list[Any]) -> list[list[str]]:
    return [crf.tagger_.tag(sequence) for sequence in sequences]
