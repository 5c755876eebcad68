"""sklearn-crfsuite: decoding, from its feature dictionaries and from its own item sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.problems.chain import Words

NEEDS = ("sklearn_crfsuite", "pycrfsuite")


def fit(words: Words) -> Any:
    import sklearn_crfsuite

    crf = sklearn_crfsuite.CRF(algorithm="lbfgs", c2=0.1, max_iterations=50, all_possible_transitions=True)
    return crf.fit(features(words), words.cut(words.y))


def features(words: Words) -> list[list[dict[str, float]]]:
    """Dark pixels of every letter by name, a constant, and whether it is the first or last."""
    X, sequences, row = words.X, [], 0
    for length in words.lengths:
        sequence = []
        for t in range(length):
            found = {f"p{j}": 1.0 for j in X.indices[X.indptr[row] : X.indptr[row + 1]]}
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
