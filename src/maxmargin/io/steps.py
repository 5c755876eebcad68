"""Steps that may stand before a model in a file, and what they may hold.

A step is one line in `STEPS`: a table of its fitted attributes as in `core.state`, with the
parameters that need more than scikit-learn's own constraints. No step here opens a file, calls a
function that the file names, or takes more than linear time and memory in the text it is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from maxmargin._names import ESTIMATORS, WRAPPERS
from maxmargin.core.state import (
    INPUT,
    LARGEST,
    Array,
    Field,
    Flag,
    Meeting,
    Numbered,
    Sizes,
    State,
    chosen,
    floats,
    part,
)

MODELS = (*(name for name in ESTIMATORS if name != "StreamRanker"), "ThresholdTuner", *WRAPPERS)
LONGEST_NGRAM = 10
# One repeated piece after a few fixed ones: nothing to go back to, so matching is linear.
_PIECE = r"(?:\\[wdsS]|\[(?:[^\\\[\]]|\\[wds\-\]])+\]|[A-Za-z0-9_#@' -])"
_PATTERN = re.compile(rf"(?:\(\?[uai]\))?(\\b)?{_PIECE}{{0,8}}({_PIECE})(?:\+|\{{\d,\}})(\\b)?")
_LONGEST_PATTERN = 100


def _pattern(value: Any) -> str | None:
    """Whether a pattern of tokens is one whose matching takes linear time."""
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _LONGEST_PATTERN:
        return "a pattern of at most 100 letters was expected"
    found = _PATTERN.fullmatch(value)
    # A word boundary at the end is where the repeated piece ends, or is looked for inside one word only.
    if found is None or (found[3] and not found[1] and found[2] != r"\w"):
        return f"{value!r} is not a pattern that a model file may hold: fixed pieces, then a repeated one"
    try:
        re.compile(value)
    except re.error as error:
        return f"{value!r} is not a pattern ({error})"
    return None


def _ngrams(value: Any) -> str | None:
    whole = isinstance(value, tuple) and len(value) == 2 and all(type(n) is int for n in value)
    if whole and 1 <= value[0] <= value[1] <= LONGEST_NGRAM:
        return None
    return f"two numbers from 1 to {LONGEST_NGRAM} were expected, the smaller first"


def _range(value: Any) -> str | None:
    pair = isinstance(value, tuple) and len(value) == 2 and all(type(x) in (int, float) for x in value)
    if pair and -LARGEST <= value[0] <= value[1] <= LARGEST:
        return None
    return "two numbers were expected, the smaller first"


def _words(value: Any) -> str | None:
    """None, or words: a list, a set or the keys of a numbered dict."""
    if value is None or value == "english":
        return None
    if isinstance(value, (list, tuple, set, frozenset, dict)) and all(isinstance(w, str) for w in value):
        return None
    return "words were expected"


def _counts(value: Any) -> str | None:
    """How many samples a scaler has seen: a number, or one for each column."""
    numbers = np.asarray(value)
    if numbers.dtype.kind in "iuf" and numbers.ndim <= 1 and np.isfinite(numbers).all():
        return None
    return "numbers were expected"


SEEN = Meeting(_counts)
OUTPUT: dict[str, Field] = {
    "_sklearn_output_config": chosen(
        {}, *({"transform": kind} for kind in ("default", "pandas", "polars")), group="output"
    ),
}
COLUMNS: Array = floats("n_features")
DIVISORS: Array = floats("n_features", low=1 / LARGEST, none=True)


def _needs(*pairs: tuple[str, str]) -> Any:
    """A rule: where the parameter is on, the attribute is there."""

    def rule(state: Mapping[str, Any], sizes: Sizes) -> None:
        for parameter, attribute in pairs:
            if sizes and state.get(parameter) and state.get(attribute) is None:
                raise ValueError(f"{parameter} is on, but {attribute} is missing")

    return rule


def _maybe(*names: str) -> dict[str, Field]:
    return {name: floats("n_features", none=True) for name in names}


TEXT: dict[str, Field] = {
    "input": chosen("content"),
    "encoding": chosen("utf-8", "utf8", "latin-1", "ascii", "cp1252", "utf-16"),
    "strip_accents": chosen(None, "ascii", "unicode"),
    "preprocessor": chosen(None),
    "tokenizer": chosen(None),
    "analyzer": chosen("word", "char", "char_wb"),
    "token_pattern": Meeting(_pattern),
    "stop_words": Meeting(_words),
    "ngram_range": Meeting(_ngrams),
    "vocabulary": Meeting(_words),
    "dtype": chosen(np.float64, np.float32, np.int64, np.int32),
}
VOCABULARY: dict[str, Field] = {
    "vocabulary_": Numbered(size="n_features", texts=True),
    "fixed_vocabulary_": Flag(),
}


VECTORISERS = ("CountVectorizer", "TfidfVectorizer")
DENSE_ONLY = ("MinMaxScaler",)


@dataclass(frozen=True)
class Steps(Field):
    """A list of named steps, each with a table of its own: `inner` ones and, at the end, a `last` one."""

    inner: tuple[str, ...]
    last: tuple[str, ...]


def _chain(state: Mapping[str, Any], sizes: Sizes) -> None:
    """The steps of a pipeline take what the step before gives."""
    steps = [step for _, step in state["steps"] if step not in (None, "passthrough")]
    if len({_is_fitted(step) for step in steps}) > 1:
        raise ValueError("some of its steps are fitted and some are not")
    # A vectoriser gives columns and takes texts; any other step gives as many columns as it takes.
    if len({width for step in steps for width in _widths(step)}) > 1:
        raise ValueError("a step gives another number of columns than the next one takes")
    flat = _flat(steps)
    for before, after in pairwise(flat):
        if "feature_names_in_" in vars(after) and _names(before) != list(after.feature_names_in_):
            raise ValueError("a step gives other names of columns than the next one takes")
    if any(type(step).__name__ in VECTORISERS for step in flat[1:]):
        raise ValueError("only its first step can read texts")
    if flat and type(flat[0]).__name__ in VECTORISERS and not all(map(_takes_sparse, flat[1:])):
        raise ValueError("a step cannot take the sparse rows of a vectoriser")


def _flat(steps: list[Any]) -> list[Any]:
    """Steps with those of inner pipelines."""
    inner = (
        [pair[1] for pair in step.steps] if type(step).__name__ == "Pipeline" else None for step in steps
    )
    pieces = [[step] if part is None else _flat(part) for step, part in zip(steps, inner, strict=True)]
    return [step for piece in pieces for step in piece if step not in (None, "passthrough")]


def _is_fitted(step: Any) -> bool:
    return any(name in vars(one) for one in _flat([step]) for name in ("n_features_in_", "vocabulary_"))


def _widths(step: Any) -> list[int]:
    found = [
        len(vars(one)["vocabulary_"]) if "vocabulary_" in vars(one) else vars(one).get("n_features_in_")
        for one in _flat([step])
    ]
    return [int(width) for width in found if width is not None]


def _names(step: Any) -> list[str]:
    """Names of the columns that a step gives in a frame."""
    named = vars(step).get("feature_names_in_")
    return [f"x{j}" for j in range(sum(_widths(step)))] if named is None else list(named)


def _takes_sparse(step: Any) -> bool:
    options = vars(step)
    centred = options.get("with_mean") or options.get("with_centering")
    precomputed = isinstance(options.get("kernel"), str) and options["kernel"] == "precomputed"
    return not centred and not precomputed and type(step).__name__ not in DENSE_ONLY


SCALE, TEXTS = "sklearn.preprocessing", "sklearn.feature_extraction.text"
# A step is found in its module and holds what its table says.
STEPS: dict[str, tuple[str, State]] = {
    "CountVectorizer": (TEXTS, State(VOCABULARY, parameters=TEXT)),
    "MaxAbsScaler": (
        SCALE,
        State({**INPUT, **OUTPUT, "n_samples_seen_": SEEN, "max_abs_": COLUMNS, "scale_": DIVISORS}),
    ),
    "MinMaxScaler": (
        SCALE,
        State(
            {**INPUT, **OUTPUT, "n_samples_seen_": SEEN}
            | dict.fromkeys(("scale_", "min_", "data_min_", "data_max_", "data_range_"), COLUMNS),
            parameters={"feature_range": Meeting(_range)},
        ),
    ),
    "Normalizer": (SCALE, State({**INPUT, **OUTPUT})),
    "RobustScaler": (
        SCALE,
        State(
            {**INPUT, **OUTPUT, **_maybe("center_"), "scale_": DIVISORS},
            _needs(("with_centering", "center_"), ("with_scaling", "scale_")),
            {"quantile_range": Meeting(_range)},
        ),
    ),
    "StandardScaler": (
        SCALE,
        State(
            {**INPUT, **OUTPUT, "n_samples_seen_": SEEN, **_maybe("mean_", "var_"), "scale_": DIVISORS},
            _needs(("with_mean", "mean_"), ("with_std", "scale_")),
        ),
    ),
    "TfidfTransformer": (
        TEXTS,
        State({**INPUT, **OUTPUT, "idf_": floats("n_features", group="idf")}, _needs(("use_idf", "idf_"))),
    ),
    "TfidfVectorizer": (TEXTS, State({**VOCABULARY, "_tfidf": part("TfidfTransformer")}, parameters=TEXT)),
}
TRANSFORMERS = (*STEPS, "Pipeline")
STEPS["Pipeline"] = (
    "sklearn.pipeline",
    State(
        {},
        _chain,
        {
            "steps": Steps(TRANSFORMERS, (*MODELS, *TRANSFORMERS)),
            "memory": chosen(None),
            "transform_input": chosen(None),
            "verbose": Flag(),
        },
    ),
)
