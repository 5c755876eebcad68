"""Steps that may stand before a model in a file, and what they may hold.

A step is one line in `STEPS`: a table of its fitted attributes as in `core.state`, with the
parameters that need more than scikit-learn's own constraints. No step here opens a file, calls a
function that the file names, or takes more than linear time and memory in the text it is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from maxmargin._names import ESTIMATORS, WRAPPERS
from maxmargin.core.state import (
    FLOATS,
    INPUT,
    LARGEST,
    Array,
    Checked,
    Field,
    Flag,
    Number,
    Numbered,
    Several,
    Sizes,
    State,
    Whole,
    chosen,
    floats,
    part,
)
from maxmargin.io.dates import PARTS
from maxmargin.io.reach import FARTHEST, PROJECTIONS, VECTORISERS, flatten, reach

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


def _plain_dtype(value: Any) -> str | None:
    known = isinstance(value, np.dtype) and value.kind in "biufOU"
    return None if known else "a type of numbers or words was expected"


SEEN = Checked(_counts)
OUTPUT: dict[str, Field] = {
    "_sklearn_output_config": chosen(
        {}, *({"transform": kind} for kind in ("default", "pandas", "polars")), group="output"
    ),
}
COLUMNS: Array = floats("n_features")
SCALES: Array = floats("n_features", low=1 / LARGEST)
DIVISORS = replace(SCALES, none=True)


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
    "token_pattern": Checked(_pattern),
    "stop_words": Checked(_words),
    "ngram_range": Checked(_ngrams),
    "vocabulary": Checked(_words),
    "dtype": chosen(np.float64, np.float32, np.int64, np.int32),
}
VOCABULARY: dict[str, Field] = {
    "vocabulary_": Numbered(size="n_features", texts=True),
    "fixed_vocabulary_": Flag(),
}


def _tokens(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: words are found by a pattern."""
    if state["analyzer"] == "word" and state["token_pattern"] is None:
        raise ValueError("its analyzer is 'word', but token_pattern is missing")


DENSE_ONLY = ("MinMaxScaler",)


@dataclass(frozen=True)
class Steps(Field):
    """A list of named steps, each with a table of its own: `inner` ones and, at the end, a `last` one."""

    inner: tuple[str, ...]
    last: tuple[str, ...]


@dataclass(frozen=True)
class ColumnParts(Field):
    """A list of (name, step, columns), the columns as one or several names or places."""

    kinds: tuple[str, ...]


def _chain(state: Mapping[str, Any], sizes: Sizes) -> None:
    """The steps of a pipeline take what the step before gives."""
    steps = [step for _, step in state["steps"] if step not in (None, "passthrough")]
    if len({_is_fitted(step) for step in steps}) > 1:
        raise ValueError("some of its steps are fitted and some are not")
    flat = flatten(steps)
    for before, after in pairwise(flat):
        given, taken = _gives(before), _takes(after)
        if given is not None and taken is not None and given != taken:
            raise ValueError("a step gives another number of columns than the next one takes")
        names = _names(before)
        if "feature_names_in_" in vars(after) and names not in (None, list(after.feature_names_in_)):
            raise ValueError("a step gives other names of columns than the next one takes")
    for before, after in pairwise(flat):
        if type(before).__name__ == "NamedColumns":
            check_kinds(list(before.kinds.values()), after)
    if any(type(step).__name__ in VECTORISERS for step in flat[1:]):
        raise ValueError("only its first step can read texts")
    sparse = False
    for step in flat:
        if sparse and not _takes_sparse(step):
            raise ValueError("a step cannot take the sparse rows of the step before")
        sparse = _gives_sparse(step) or (sparse and type(step).__name__ not in PROJECTIONS)
    fitted = [step for step in flat if _is_fitted(step) and hasattr(step, "transform")]
    if reach(fitted) > FARTHEST:
        raise ValueError(f"its steps make numbers above {FARTHEST:g} out of ordinary ones")


def check_kinds(kinds: Sequence[str], step: Any) -> None:
    """A rule: a step takes the kinds of columns that it is given, as a model does numbers alone."""
    if type(step).__name__ == "ColumnTransformer":
        for _, part, columns in vars(step).get("transformers_", ()):
            places = columns if isinstance(columns, list) else [columns]
            if all(type(place) is int and 0 <= place < len(kinds) for place in places):
                check_kinds([kinds[place] for place in places], flatten([part])[0])
        return
    kind = {"DateColumns": "date", **dict.fromkeys(VECTORISERS, "text")}.get(type(step).__name__, "number")
    if type(step).__name__ != "OneHotEncoder" and set(kinds) != {kind}:
        raise ValueError(f"a step takes columns of the kind {kind} and is given others")


def _is_fitted(step: Any) -> bool:
    return any(name in vars(one) for one in flatten([step]) for name in ("n_features_in_", "vocabulary_"))


def _takes(step: Any) -> int | None:
    """The number of columns that a fitted step takes; None of one that is not, or that reads texts."""
    width = vars(step).get("n_features_in_")
    return None if width is None else int(width)


def _gives(step: Any) -> int | None:
    """The number of columns that a fitted step gives; None of one that is not."""
    state = vars(step)
    if type(step).__name__ in VECTORISERS:
        return len(state["vocabulary_"]) if "vocabulary_" in state else None
    if type(step).__name__ in PROJECTIONS:
        return len(state["components_"]) if "components_" in state else None
    if type(step).__name__ == "SelectKBest":
        return int(step.get_support().sum()) if "scores_" in state else None
    if type(step).__name__ == "OneHotEncoder":
        return sum(map(len, state["categories_"])) if "categories_" in state else None
    if type(step).__name__ == "DateColumns":
        return len(PARTS) * len(state["first_"]) if "first_" in state else None
    if type(step).__name__ == "ColumnTransformer":
        fitted = [one for _, one, _ in state.get("transformers_", ()) if one != "drop"]
        return sum(_gives(flatten([one])[-1]) or 0 for one in fitted) if fitted else None
    return _takes(step)


def _names(step: Any) -> list[str] | None:
    """Names of the columns that a step gives in a frame; None where it makes them up from values."""
    if type(step).__name__ in ("OneHotEncoder", "DateColumns", "ColumnTransformer"):
        return None
    if type(step).__name__ in PROJECTIONS:
        return [f"{type(step).__name__.lower()}{j}" for j in range(_gives(step) or 0)]
    named = vars(step).get("feature_names_in_")
    taken = [f"x{j}" for j in range(_takes(step) or 0)] if named is None else list(named)
    if type(step).__name__ == "SelectKBest" and "scores_" in vars(step):
        return [taken[j] for j in step.get_support(indices=True)]
    return taken


def _gives_sparse(step: Any) -> bool:
    state = vars(step)
    encodes = type(step).__name__ == "OneHotEncoder" and state["sparse_output"]
    return type(step).__name__ in VECTORISERS or bool(encodes) or bool(state.get("sparse_output_"))


def takes_sparse(model: Any) -> bool:
    """Whether all steps of a pipeline take sparse rows, or a model does."""
    return all(map(_takes_sparse, flatten([model])))


def _takes_sparse(step: Any) -> bool:
    options = vars(step)
    centred = options.get("with_mean") or options.get("with_centering")
    precomputed = isinstance(options.get("kernel"), str) and options["kernel"] == "precomputed"
    return not centred and not precomputed and type(step).__name__ not in DENSE_ONLY


def _columns(state: Mapping[str, Any], sizes: Sizes) -> None:
    """The parts of a ColumnTransformer are those it was told, fitted on columns that there are."""
    if "transformers_" not in state:
        return
    told, fitted = state["transformers"], state["transformers_"]
    if [(name, columns) for name, _, columns in told] != [(name, columns) for name, _, columns in fitted]:
        raise ValueError("its fitted parts are others than those it was told")
    names = set(state["feature_names_in_"].tolist()) if "feature_names_in_" in state else set()
    for name, step, columns in fitted:
        flat, own = flatten([step]), columns if isinstance(columns, list) else [columns]
        for column in own:
            if column not in names if isinstance(column, str) else not 0 <= column < state["n_features_in_"]:
                raise ValueError(f"its part {name!r} takes a column that there is not")
        reads = type(flat[0]).__name__ in VECTORISERS
        if not _is_fitted(step) or reads == isinstance(columns, list) or not hasattr(flat[-1], "transform"):
            raise ValueError(f"its part {name!r} is not fitted, or takes another kind of columns")
        if not reads and _takes(flat[0]) != len(own):
            raise ValueError(f"its part {name!r} takes another number of columns")
        given = [column if isinstance(column, str) else _name_at(state, column) for column in own]
        named = vars(flat[0]).get("feature_names_in_")
        if not reads and named is not None and list(named) != given:
            raise ValueError(f"its part {name!r} knows its columns by other names")
        if reach(flat) > FARTHEST:
            raise ValueError(f"its part {name!r} makes numbers above {FARTHEST:g} out of ordinary ones")


def _name_at(state: Mapping[str, Any], place: int) -> str | None:
    names = state.get("feature_names_in_")
    return None if names is None else names[place]


def _filled(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A SimpleImputer has one filling for every column, and looks for what its columns can hold."""
    if "statistics_" not in state:
        return
    if len(state["statistics_"]) != sizes["n_features"]:
        raise ValueError("its fillings are not one for every column")
    numbers, missing = state["_fit_dtype"].kind in "biuf", state["missing_values"]
    if numbers != (state["statistics_"].dtype.kind in "biuf"):
        raise ValueError("its fillings are numbers for words, or words for numbers")
    if numbers and not isinstance(missing, (int, float)):
        raise ValueError(f"missing_values is {missing!r}, but its columns are numbers")


def _encoded(state: Mapping[str, Any], sizes: Sizes) -> None:
    """The widths of a OneHotEncoder are those of its categories."""
    if "categories_" in state and state["_n_features_outs"] != list(map(len, state["categories_"])):
        raise ValueError("its widths are not those of its categories")


def _values(value: Any) -> str | None:
    """Categories of a column: different words or numbers, and at most one that stands for missing."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biufUO":
        return "a vector of categories was expected"
    words = value.tolist()
    known = [word for word in words if word is not None and word == word]
    if not all(isinstance(word, (str, int, float)) for word in known) or len(words) - len(known) > 1:
        return "it holds something that is no category"
    if len(set(known)) < len(known):
        return "it holds a category twice"
    return None


def _fillings(value: Any) -> str | None:
    """What stands in for missing values: numbers, or words."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        if value.dtype.kind in "iuf" and np.isfinite(value).all():
            return None
        if value.dtype.kind in "UO" and all(isinstance(word, (str, int)) for word in value.tolist()):
            return None
    return (
        "finite numbers or words were expected; for a column without any value set keep_empty_features=True"
    )


# Scores that features are selected by; they are called in a fit only.
SCORES = ("chi2", "f_classif", "mutual_info_classif")


def _score(value: Any) -> str | None:
    known = getattr(value, "__name__", "") in SCORES
    return None if known else f"one of {', '.join(SCORES)} was expected"


# Attributes that follow from others; files do without them, and `rebuild` puts them back.
DERIVED: dict[str, tuple[str, ...]] = {
    "ColumnTransformer": (
        "_columns",
        "_name_to_fitted_passthrough",
        "_n_features",
        "_remainder",
        "_transformer_to_input_indices",
        "output_indices_",
    ),
    "SimpleImputer": ("_fill_dtype",),
}


def essential(step: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a step that do not follow from others; what a table drops is no part of it."""
    derived = DERIVED.get(type(step).__name__, ())
    kept = {name: value for name, value in state.items() if name not in derived}
    if "transformers_" in kept:
        kept["transformers_"] = [one for one in kept["transformers_"] if one[:2] != ("remainder", "drop")]
    return kept


def rebuild(step: Any) -> None:
    """Put back the derived attributes of a step that was read from a file and checked."""
    if "_fit_dtype" in vars(step):
        step._fill_dtype = step._fit_dtype
    if "transformers_" not in vars(step):
        return
    names = vars(step).get("feature_names_in_")
    place = {} if names is None else {name: j for j, name in enumerate(names.tolist())}
    step._columns = [columns for _, _, columns in step.transformers_]
    step._transformer_to_input_indices, step.output_indices_, start = {}, {}, 0
    for name, one, columns in step.transformers_:
        own = columns if isinstance(columns, list) else [columns]
        step._transformer_to_input_indices[name] = [place.get(column, column) for column in own]
        width = _gives(flatten([one])[-1]) or 0
        step.output_indices_[name] = slice(start, start + width)
        start += width
    step._transformer_to_input_indices["remainder"] = []  # what is dropped is not looked for
    step._remainder = ("remainder", "drop", [])
    step.output_indices_["remainder"] = slice(0, 0)


SCALE, TEXTS = "sklearn.preprocessing", "sklearn.feature_extraction.text"
# A step is found in its module and holds what its table says.
STEPS: dict[str, tuple[str, State]] = {
    "CountVectorizer": (TEXTS, State(VOCABULARY, _tokens, TEXT)),
    "MaxAbsScaler": (
        SCALE,
        State({**INPUT, **OUTPUT, "n_samples_seen_": SEEN, "max_abs_": COLUMNS, "scale_": SCALES}),
    ),
    "MinMaxScaler": (
        SCALE,
        State(
            {**INPUT, **OUTPUT, "n_samples_seen_": SEEN}
            | {"scale_": SCALES}
            | dict.fromkeys(("min_", "data_min_", "data_max_", "data_range_"), COLUMNS),
            parameters={"feature_range": Checked(_range)},
        ),
    ),
    "Normalizer": (SCALE, State({**INPUT, **OUTPUT})),
    "RobustScaler": (
        SCALE,
        State(
            {**INPUT, **OUTPUT, **_maybe("center_"), "scale_": DIVISORS},
            _needs(("with_centering", "center_"), ("with_scaling", "scale_")),
            {"quantile_range": Checked(_range)},
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
        State(
            {**INPUT, **OUTPUT, "idf_": floats("n_features", low=0.0, high=FARTHEST, group="idf")},
            _needs(("use_idf", "idf_")),
        ),
    ),
    "TfidfVectorizer": (TEXTS, State({**VOCABULARY, "_tfidf": part("TfidfTransformer")}, _tokens, TEXT)),
}
STEPS["SimpleImputer"] = (
    "sklearn.impute",
    State(
        {
            **INPUT,
            **OUTPUT,
            "statistics_": Checked(_fillings),
            "indicator_": chosen(None),
            "_fit_dtype": Checked(_plain_dtype),
        },
        _filled,
        {"add_indicator": chosen(False)},
    ),
)
STEPS["OneHotEncoder"] = (
    SCALE,
    State(
        {
            **INPUT,
            **OUTPUT,
            "categories_": Several(Checked(_values), size="n_features"),
            "_n_features_outs": Several(Whole()),
            "_infrequent_enabled": chosen(False),
            "_drop_idx_after_grouping": chosen(None),
            "drop_idx_": chosen(None),
        },
        _encoded,
        {
            "categories": chosen("auto"),
            "drop": chosen(None),
            "min_frequency": chosen(None),
            "max_categories": chosen(None),
            "feature_name_combiner": chosen("concat"),
            "dtype": chosen(np.float64, np.float32),
        },
    ),
)
COMPONENTS: dict[str, Field] = {
    "components_": floats("n_components", "n_features"),
    "explained_variance_": floats("n_components", low=0.0),
    "explained_variance_ratio_": floats("n_components", finite=False),
    "singular_values_": floats("n_components"),
}
DECOMPOSITION = "sklearn.decomposition"
STEPS["TruncatedSVD"] = (DECOMPOSITION, State({**INPUT, **OUTPUT, **COMPONENTS}))
STEPS["PCA"] = (
    DECOMPOSITION,
    State(
        {
            **INPUT,
            **OUTPUT,
            **COMPONENTS,
            "mean_": COLUMNS,
            "n_components_": Whole(1, size="n_components"),
            "n_samples_": Whole(),
            "noise_variance_": Number(finite=False),
            "_fit_svd_solver": chosen("auto", "full", "covariance_eigh", "arpack", "randomized"),
        }
    ),
)
STEPS["SelectKBest"] = (
    "sklearn.feature_selection",
    State(
        {
            **INPUT,
            **OUTPUT,
            "scores_": floats("n_features", dtypes=(*FLOATS, "i8"), finite=False),
            "pvalues_": floats("n_features", finite=False, none=True),
        },
        parameters={"score_func": Checked(_score)},
    ),
)
COLUMN_PARTS = (*STEPS, "TextColumn", "DateColumns", "Pipeline")
TRANSFORMERS = (*COLUMN_PARTS, "ColumnTransformer", "NamedColumns")
STEPS["ColumnTransformer"] = (
    "sklearn.compose",
    State(
        {**INPUT, **OUTPUT, "sparse_output_": Flag(), "transformers_": ColumnParts(COLUMN_PARTS)},
        _columns,
        {
            "transformers": ColumnParts(COLUMN_PARTS),
            "remainder": chosen("drop"),
            "transformer_weights": chosen(None),
            # More jobs are processes, whose start takes seconds.
            "n_jobs": chosen(None, 1),
        },
    ),
)
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
