"""The preprocessing of `maxmargin.prepare` as a graph: numbers, categories and words.

Every column is a separate n x 1 input of numbers or strings; NaN and the empty string are missing values.
Words need more than primitive operators: ONNX has lower case and counts of known words, onnxruntime has an
operator that splits strings into words. skl2onnx supports neither missing categories nor these words.
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

# Runs of letters that match \w in Python; a vocabulary has no words of one letter.
WORD = r"[\p{L}\p{N}_]+"
# Every Linux with glibc 2.35 or later has this locale.
LOCALE = "C.UTF-8"
# Fills short strings up to the length of the longest; not a word.
PADDING = "#"
# Parameters that only affect which words are in the vocabulary, or how files are read.
FIT_ONLY = ("max_df", "min_df", "max_features", "vocabulary", "dtype", "input", "encoding", "decode_error")


def is_table(step: Any) -> bool:
    """Whether a step has only parts that `maxmargin.prepare` makes."""
    return isinstance(step, ColumnTransformer) and all(
        isinstance(part, (OneHotEncoder, TextColumn)) or _is_of_numbers(part)
        for _, part, _ in step.transformers_
        if part != "drop"
    )


def _is_of_numbers(part: Any) -> bool:
    return isinstance(part, Pipeline) and isinstance(part.steps[0][1], (SimpleImputer, DateColumns))


def prepared(step: ColumnTransformer, graph: Graph, through: Any) -> str:
    """Add the features of a table; `through(pipeline, graph, x)` applies a pipeline to numbers."""
    found = []
    for _, part, columns in step.transformers_:
        if part == "drop":
            continue
        chosen = [columns] if isinstance(columns, (str, int)) else list(columns)
        names = [graph.columns[int(c)] if isinstance(c, (int, np.integer)) else str(c) for c in chosen]
        if isinstance(part, TextColumn):
            found.append(words(part, graph, graph.column(names[0], text=True)))
        elif isinstance(part, OneHotEncoder):
            found += categories(part, graph, names)
        elif isinstance(part.steps[0][1], DateColumns):
            raise ValueError(
                f"Column {names[0]!r} has dates, which cannot be exported; convert them to numbers before "
                "fitting."
            )
        else:
            values = [graph.column(name, text=False) for name in names]
            x = graph.add("Concat", *values, axis=1)
            found.append(through(Pipeline([*part.steps, ("end", None)]), graph, x))
    return graph.add("Concat", *found, axis=1)


def categories(step: OneHotEncoder, graph: Graph, names: list[str]) -> list[str]:
    """Add one 0/1 column per value of every column."""
    if step.drop is not None or getattr(step, "_infrequent_enabled", False):
        raise ValueError("A OneHotEncoder that drops or merges values cannot be exported; use its defaults.")
    found = []
    for name, known in zip(names, step.categories_, strict=True):
        values = ["" if value is None or value != value else value for value in known.tolist()]
        if not all(isinstance(value, str) for value in values):
            raise ValueError(
                f"Column {name!r} has categories other than strings, which cannot be exported; convert them "
                "to strings before fitting."
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
    """Add the tf-idf of the words of a column."""
    given, usual = step.get_params(), TfidfVectorizer().get_params()
    other = [name for name, value in usual.items() if name not in FIT_ONLY and given[name] != value]
    if other:
        remedy = "use words (--text-as word)" if "analyzer" in other else "leave it at its default"
        raise ValueError(f"A text column with {other[0]}={given[other[0]]!r} cannot be exported; {remedy}.")
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
