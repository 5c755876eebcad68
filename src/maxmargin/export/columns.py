"""Columns of a table as a graph: what `maxmargin.prepare` does to numbers, categories and words.

Every column is an input of its own, n x 1, of numbers or texts; an empty text, and NaN, is a missing value.
Words need more than primitive operators: lower case and the count of known words are ONNX's own, cutting
texts into words is an operator of onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from maxmargin.export.graph import Graph
from maxmargin.tables import DateColumns, TextColumn

# Runs of what Python's \w matches; words of one letter are in no vocabulary.
WORD = r"[\p{L}\p{N}_]+"
# Known to every Linux with glibc 2.35 or later, and to containers without other languages.
LOCALE = "C.UTF-8"
# What a text is filled up with to the length of the longest; no word.
PADDING = "#"
# Parameters that say which words are learnt, not what is done with a text.
LIKE_ANY = ("max_df", "min_df", "max_features", "vocabulary", "dtype", "input", "encoding", "decode_error")


def is_table(step: Any) -> bool:
    """Whether a step prepares columns in the way of `maxmargin.prepare`."""
    return isinstance(step, ColumnTransformer) and all(
        isinstance(part, (OneHotEncoder, TextColumn)) or _is_of_numbers(part)
        for _, part, _ in step.transformers_
        if part != "drop"
    )


def _is_of_numbers(part: Any) -> bool:
    return isinstance(part, Pipeline) and isinstance(part.steps[0][1], (SimpleImputer, DateColumns))


def prepared(step: ColumnTransformer, graph: Graph, through: Any) -> str:
    """The features of a table; `through(pipeline, graph, x)` is what a pipeline does to numbers."""
    found = []
    for _, part, columns in step.transformers_:
        if part == "drop":
            continue
        places = [columns] if isinstance(columns, (str, int)) else list(columns)
        names = [graph.columns[int(c)] if isinstance(c, (int, np.integer)) else str(c) for c in places]
        if isinstance(part, TextColumn):
            found.append(words(part, graph, graph.column(names[0], text=True)))
        elif isinstance(part, OneHotEncoder):
            found += categories(part, graph, names)
        elif isinstance(part.steps[0][1], DateColumns):
            raise ValueError(
                f"Column {names[0]!r} holds dates, which cannot be exported; turn them into numbers before "
                "fitting."
            )
        else:
            values = [graph.column(name, text=False) for name in names]
            x = graph.add("Concat", *values, axis=1)
            found.append(through(Pipeline([*part.steps, ("end", None)]), graph, x))
    return graph.add("Concat", *found, axis=1)


def categories(step: OneHotEncoder, graph: Graph, names: list[str]) -> list[str]:
    """One 0/1 column per value of every column."""
    if step.drop is not None or getattr(step, "_infrequent_enabled", False):
        raise ValueError("A OneHotEncoder that drops or joins values cannot be exported; use its defaults.")
    found = []
    for name, known in zip(names, step.categories_, strict=True):
        values = ["" if value is None or value != value else value for value in known.tolist()]
        if not all(isinstance(value, str) for value in values):
            raise ValueError(
                f"Column {name!r} has categories that are no texts, which cannot be exported; turn them into "
                "texts before fitting."
            )
        code = graph.add(
            "LabelEncoder",
            graph.column(name, text=True),
            domain="ai.onnx.ml",
            keys_strings=values,
            values_int64s=list(range(len(values))),
            default_int64=-1,
        )
        here = graph.add("Equal", code, graph.constant(np.arange(len(values))[None]))
        found.append(graph.cast(here, graph.dtype))
    return found


def words(step: TextColumn, graph: Graph, column: str) -> str:
    """Tf-idf of the words of a column."""
    given, usual = step.get_params(), TfidfVectorizer().get_params()
    other = [name for name, value in usual.items() if name not in LIKE_ANY and given[name] != value]
    if other:
        cure = "take words (--text-as word)" if "analyzer" in other else "leave it at its default"
        raise ValueError(f"A text column with {other[0]}={given[other[0]]!r} cannot be exported; {cure}.")
    flat = graph.add("Reshape", column, graph.constant(np.array([-1])))
    lower = graph.add(
        "StringNormalizer", flat, case_change_action="LOWER", is_case_sensitive=1, locale=LOCALE
    )
    cut = graph.add(
        "Tokenizer", lower, domain="com.microsoft", mark=0, mincharnum=1, pad_value=PADDING, tokenexp=WORD
    )
    vocabulary = sorted(step.vocabulary_, key=step.vocabulary_.__getitem__)
    counts = graph.add(
        "TfIdfVectorizer",
        cut,
        mode="TF",
        min_gram_length=1,
        max_gram_length=1,
        max_skip_count=0,
        ngram_counts=[0],
        ngram_indexes=list(range(len(vocabulary))),
        pool_strings=vocabulary,
    )
    weighted = graph.add("Mul", graph.cast(counts, graph.dtype), graph.numbers(step.idf_))
    return graph.unit(weighted, graph.add("Sqrt", graph.sums(graph.add("Mul", weighted, weighted))))
