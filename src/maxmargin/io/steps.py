"""Steps of scikit-learn that a model file may hold before a model, and what they may contain.

`STEPS` has one entry per step: its module, and a table of its fitted attributes as in `core.state`, with the
parameters that need more than scikit-learn's own constraints. No step here opens a file, calls a function
named by the file, or takes more than linear time and memory in its text.

`reach` bounds the numbers that fitted steps pass on. Each number of a scaler may be sound while several of
them together overflow: a mean of 1e60 over a scale of 1e-60. A sound chain passes on numbers near 1 in any
units of X, because its first scaler was fitted on X. Entries are therefore measured in the units of the
first scaler, and in units of 1 if there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
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

MODELS = (*(name for name in ESTIMATORS if name != "StreamRanker"), "ThresholdTuner", *WRAPPERS)
VECTORISERS = ("CountVectorizer", "TfidfVectorizer", "TextColumn")
PROJECTIONS = ("PCA", "TruncatedSVD")
# Scalers that subtract an attribute if a parameter is on, and divide by `scale_` if another parameter is.
CENTRED = {
    "StandardScaler": ("with_mean", "mean_", "with_std"),
    "RobustScaler": ("with_centering", "center_", "with_scaling"),
}
# Columns that `maxmargin.tables.DateColumns` makes of a date, and the largest ordinal of a day.
DATE_PARTS, LAST_DAY = 4, date.max.toordinal()
# Bound on the numbers that steps pass on; estimators accept rows that are several digits larger.
FARTHEST = 1e30
# Score functions for the selection of features; they are called in `fit` only.
SCORES = ("chi2", "f_classif", "mutual_info_classif")
LONGEST_NGRAM = 10
# A few fixed pieces and one repeated piece: the matcher cannot backtrack, so it takes linear time.
_PIECE = r"(?:\\[wdsS]|\[(?:[^\\\[\]]|\\[wds\-\]])+\]|[A-Za-z0-9_#@' -])"
_PATTERN = re.compile(rf"(?:\(\?[uai]\))?(\\b)?{_PIECE}{{0,8}}({_PIECE})(?:\+|\{{\d,\}})(\\b)?")
_LONGEST_PATTERN = 100
# Attributes that follow from others: files leave them out, and `rebuild` restores them.
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


@dataclass(frozen=True)
class Steps(Field):
    """A list of (name, step); `inner` are the classes of the first steps, `last` those of the last one."""

    inner: tuple[str, ...]
    last: tuple[str, ...]


@dataclass(frozen=True)
class ColumnParts(Field):
    """A list of (name, step, columns) with one or several column names or positions."""

    kinds: tuple[str, ...]


def essential(step: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that do not follow from others, without the columns that a table drops."""
    derived = DERIVED.get(type(step).__name__, ())
    kept = {name: value for name, value in state.items() if name not in derived}
    if "transformers_" in kept:
        kept["transformers_"] = [one for one in kept["transformers_"] if one[:2] != ("remainder", "drop")]
    return kept


def rebuild(step: Any) -> None:
    """Restore the derived attributes of a step that was read from a file and checked."""
    if "_fit_dtype" in vars(step):
        step._fill_dtype = step._fit_dtype
    if "transformers_" not in vars(step):
        return
    names = vars(step).get("feature_names_in_")
    position = {} if names is None else {name: j for j, name in enumerate(names.tolist())}
    step._columns = [columns for _, _, columns in step.transformers_]
    step._transformer_to_input_indices, step.output_indices_, start = {}, {}, 0
    for name, one, columns in step.transformers_:
        step._transformer_to_input_indices[name] = [
            position.get(column, column) for column in _listed(columns)
        ]
        width = _gives(flatten([one])[-1]) or 0
        step.output_indices_[name] = slice(start, start + width)
        start += width
    step._transformer_to_input_indices["remainder"] = []
    step._remainder = ("remainder", "drop", [])
    step.output_indices_["remainder"] = slice(0, 0)


def flatten(steps: Sequence[Any]) -> list[Any]:
    """Return the steps, with pipelines among them replaced by their steps."""
    flat: list[Any] = []
    for step in steps:
        if type(step).__name__ == "Pipeline":
            flat += flatten([inner for _, inner in step.steps])
        elif step not in (None, "passthrough", "drop"):
            flat.append(step)
    return flat


def takes_sparse(model: Any) -> bool:
    """Whether a model, and all steps of a pipeline, take sparse rows."""
    return all(map(_takes_sparse, flatten([model])))


def check_kinds(kinds: Sequence[str], step: Any) -> None:
    """Raise ValueError if a step does not take columns of these kinds; models take numbers only."""
    if type(step).__name__ == "ColumnTransformer":
        for _, one, columns in vars(step).get("transformers_", ()):
            positions = _listed(columns)
            if all(type(position) is int and 0 <= position < len(kinds) for position in positions):
                check_kinds([kinds[position] for position in positions], flatten([one])[0])
        return
    kind = {"DateColumns": "date", **dict.fromkeys(VECTORISERS, "text")}.get(type(step).__name__, "number")
    if type(step).__name__ != "OneHotEncoder" and set(kinds) != {kind}:
        raise ValueError(f"a step takes columns of the kind {kind} but gets others")


def scaling(step: Any) -> tuple[Any, Any] | None:
    """Return the shift and the divisor of a fitted scaler for each column; None for any other step."""
    state, kind = vars(step), type(step).__name__
    if kind == "MaxAbsScaler":
        return 0.0, state["scale_"]
    if kind == "MinMaxScaler":
        return -state["min_"] / state["scale_"], 1 / state["scale_"]
    if kind not in CENTRED:
        return None
    centres, centre, scales = CENTRED[kind]
    return state[centre] if state[centres] else 0.0, state["scale_"] if state[scales] else 1.0


def reach(steps: Sequence[Any]) -> float:
    """Return the largest entry that fitted steps can pass on, as explained in the header."""
    size: Any = 0.0  # per column: size of what the steps themselves added
    own: Any = 1.0  # per column: what an entry of 1 has become; 0 after a scaler, which has the units of X
    largest = 1.0
    for step in steps:
        kind, scaled = type(step).__name__, scaling(step)
        if scaled is not None:
            shift, unit = (np.asarray(number, np.float64) for number in scaled)
            size = (size + np.abs(shift)) / unit + np.any(own)
            own = 0.0
        elif kind == "SimpleImputer" and step.statistics_.dtype.kind != "O":
            size = np.maximum(size, np.abs(step.statistics_))
        elif kind == "ColumnTransformer":
            size = max(reach(flatten([one])) for _, one, _ in step.transformers_)
            own = 0.0
        elif kind == "DateColumns":
            size, own = float(LAST_DAY), 0.0
        elif kind in PROJECTIONS:
            size, own = _projected(step, size, own)
        elif kind == "SelectKBest":
            size, own = (each[step.get_support()] if np.ndim(each) else each for each in (size, own))
        elif kind in VECTORISERS or kind in ("OneHotEncoder", "Normalizer"):
            size, own = 1.0, 0.0
        idf = vars(vars(step).get("_tfidf", step)).get("idf_")
        if idf is not None:
            size = (size + np.max(own)) * np.max(idf, initial=0.0)
        if not np.any(own) or step is steps[-1]:
            sizes = [float(np.max(each, initial=0.0)) for each in (size, own)]
            # After an overflow, some entries may be NaN.
            largest = max(largest, *(np.inf if np.isnan(each) else each for each in sizes))
    return largest


def _projected(step: Any, size: Any, own: Any) -> tuple[Any, Any]:
    """Return bounds on the components of rows with entries of these sizes."""
    absolute = np.abs(np.asarray(step.components_, np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        size = absolute @ np.broadcast_to(size + np.abs(getattr(step, "mean_", 0.0)), absolute.shape[1:])
        own = absolute @ np.broadcast_to(np.asarray(own, np.float64), absolute.shape[1:])
    if vars(step).get("whiten"):
        deviations = np.sqrt(step.explained_variance_)
        unit = np.maximum(deviations, np.finfo(deviations.dtype).eps)
        size, own = size / unit, own / unit
    return size, own


def _listed(columns: Any) -> list[Any]:
    return columns if isinstance(columns, list) else [columns]


def _is_fitted(step: Any) -> bool:
    return any(name in vars(one) for one in flatten([step]) for name in ("n_features_in_", "vocabulary_"))


def _takes(step: Any) -> int | None:
    """Return the number of input columns; None if the step is not fitted or takes texts."""
    width = vars(step).get("n_features_in_")
    return None if width is None else int(width)


def _gives(step: Any) -> int | None:
    """Return the number of output columns; None if the step is not fitted."""
    state, kind = vars(step), type(step).__name__
    if kind in VECTORISERS:
        return len(state["vocabulary_"]) if "vocabulary_" in state else None
    if kind in PROJECTIONS:
        return len(state["components_"]) if "components_" in state else None
    if kind == "SelectKBest":
        return int(step.get_support().sum()) if "scores_" in state else None
    if kind == "OneHotEncoder":
        return sum(map(len, state["categories_"])) if "categories_" in state else None
    if kind == "DateColumns":
        return DATE_PARTS * len(state["first_"]) if "first_" in state else None
    if kind == "ColumnTransformer":
        fitted = [one for _, one, _ in state.get("transformers_", ()) if one != "drop"]
        return sum(_gives(flatten([one])[-1]) or 0 for one in fitted) if fitted else None
    return _takes(step)


def _output_names(step: Any) -> list[str] | None:
    """Return the names of the output columns in a frame; None if they depend on values."""
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


def _takes_sparse(step: Any) -> bool:
    state = vars(step)
    centred = state.get("with_mean") or state.get("with_centering")
    precomputed = isinstance(state.get("kernel"), str) and state["kernel"] == "precomputed"
    return not centred and not precomputed and type(step).__name__ != "MinMaxScaler"


# Complaints about single values: a message, or None if the value is sound.


def _pattern(value: Any) -> str | None:
    """Accept patterns of tokens that are matched in linear time."""
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _LONGEST_PATTERN:
        return "expected a pattern of at most 100 letters"
    found = _PATTERN.fullmatch(value)
    # A word boundary at the end must be where the repeated piece ends, or within one word.
    if found is None or (found[3] and not found[1] and found[2] != r"\w"):
        return f"{value!r} is not a pattern that a model file may hold: fixed pieces, then a repeated one"
    try:
        re.compile(value)
    except re.error as error:
        return f"{value!r} is not a pattern ({error})"
    return None


def _pair(low: float, high: float, *kinds: type) -> Callable[[Any], str | None]:
    """Accept a tuple of two numbers of the given types, in order and within bounds."""

    def complaint(value: Any) -> str | None:
        pair = isinstance(value, tuple) and len(value) == 2 and all(type(x) in kinds for x in value)
        if pair and low <= value[0] <= value[1] <= high:
            return None
        return f"expected two numbers from {low:g} to {high:g}, the smaller first"

    return complaint


def _words(value: Any) -> str | None:
    if value is None or value == "english":
        return None
    if isinstance(value, (list, tuple, set, frozenset, dict)) and all(isinstance(w, str) for w in value):
        return None
    return "expected words"


def _counts(value: Any) -> str | None:
    numbers = np.asarray(value)
    if numbers.dtype.kind in "iuf" and numbers.ndim <= 1 and np.isfinite(numbers).all():
        return None
    return "expected numbers"


def _plain_dtype(value: Any) -> str | None:
    known = isinstance(value, np.dtype) and value.kind in "biufOU"
    return None if known else "expected a type of numbers or words"


def _score(value: Any) -> str | None:
    return None if getattr(value, "__name__", "") in SCORES else f"expected one of {', '.join(SCORES)}"


def _categories(value: Any) -> str | None:
    """Accept different words or numbers, at most one of which stands for missing."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biufUO":
        return "expected a vector of categories"
    words = value.tolist()
    known = [word for word in words if word is not None and word == word]
    if not all(isinstance(word, (str, int, float)) for word in known) or len(words) - len(known) > 1:
        return "it holds something that is not a category"
    return "it holds a category twice" if len(set(known)) < len(known) else None


def _fillings(value: Any) -> str | None:
    """Accept numbers or words that replace missing values."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        if value.dtype.kind in "iuf" and np.isfinite(value).all():
            return None
        if value.dtype.kind in "UO" and all(isinstance(word, (str, int)) for word in value.tolist()):
            return None
    return "expected finite numbers or words; for a column without any value set keep_empty_features=True"


# Rules about several attributes of a step: ValueError if they do not fit together.


def _needs(*pairs: tuple[str, str]) -> Callable[[Mapping[str, Any], Sizes], None]:
    """Return a rule: the attribute must be present if the parameter is on."""

    def rule(state: Mapping[str, Any], sizes: Sizes) -> None:
        for parameter, attribute in pairs:
            if sizes and state.get(parameter) and state.get(attribute) is None:
                raise ValueError(f"{parameter} is on, but {attribute} is missing")

    return rule


def _check_tokens(state: Mapping[str, Any], sizes: Sizes) -> None:
    if state["analyzer"] == "word" and state["token_pattern"] is None:
        raise ValueError("its analyzer is 'word', but token_pattern is missing")


def _check_imputer(state: Mapping[str, Any], sizes: Sizes) -> None:
    if "statistics_" not in state:
        return
    if len(state["statistics_"]) != sizes["n_features"]:
        raise ValueError("it does not have one filling for every column")
    numbers, missing = state["_fit_dtype"].kind in "biuf", state["missing_values"]
    if numbers != (state["statistics_"].dtype.kind in "biuf"):
        raise ValueError("its fillings are numbers for words, or words for numbers")
    if numbers and not isinstance(missing, (int, float)):
        raise ValueError(f"missing_values is {missing!r}, but its columns are numbers")


def _check_encoder(state: Mapping[str, Any], sizes: Sizes) -> None:
    if "categories_" in state and state["_n_features_outs"] != list(map(len, state["categories_"])):
        raise ValueError("its widths are not those of its categories")


def _check_pipeline(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that each step takes the output of the step before."""
    steps = [step for _, step in state["steps"] if step not in (None, "passthrough")]
    if len({_is_fitted(step) for step in steps}) > 1:
        raise ValueError("some of its steps are fitted and some are not")
    flat = flatten(steps)
    for before, after in pairwise(flat):
        given, taken = _gives(before), _takes(after)
        if given is not None and taken is not None and given != taken:
            raise ValueError("a step gives another number of columns than the next one takes")
        names = _output_names(before)
        if "feature_names_in_" in vars(after) and names not in (None, list(after.feature_names_in_)):
            raise ValueError("a step gives other names of columns than the next one takes")
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


def _check_columns(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that the fitted parts of a ColumnTransformer match its parameter and take existing columns."""
    if "transformers_" not in state:
        return
    given, fitted = state["transformers"], state["transformers_"]
    if [(name, columns) for name, _, columns in given] != [(name, columns) for name, _, columns in fitted]:
        raise ValueError("its fitted parts differ from its parameter transformers")
    listed = state["feature_names_in_"].tolist() if "feature_names_in_" in state else None
    names = set(listed or ())
    for name, step, columns in fitted:
        flat, own = flatten([step]), _listed(columns)
        for column in own:
            if column not in names if isinstance(column, str) else not 0 <= column < state["n_features_in_"]:
                raise ValueError(f"its part {name!r} takes a column that does not exist")
        reads = type(flat[0]).__name__ in VECTORISERS
        if not _is_fitted(step) or reads == isinstance(columns, list) or not hasattr(flat[-1], "transform"):
            raise ValueError(f"its part {name!r} is not fitted, or takes another kind of columns")
        if not reads and _takes(flat[0]) != len(own):
            raise ValueError(f"its part {name!r} takes another number of columns")
        if listed is None:
            expected: list[Any] = [column if isinstance(column, str) else None for column in own]
        else:
            expected = [column if isinstance(column, str) else listed[column] for column in own]
        named = vars(flat[0]).get("feature_names_in_")
        if not reads and named is not None and list(named) != expected:
            raise ValueError(f"its part {name!r} was fitted on columns of other names")
        if reach(flat) > FARTHEST:
            raise ValueError(f"its part {name!r} makes numbers above {FARTHEST:g} out of ordinary ones")


# Fields that several steps share: the input, the output configuration, columns, divisors.
_FITTED: dict[str, Field] = {
    **INPUT,
    "_sklearn_output_config": chosen(
        {}, *({"transform": kind} for kind in ("default", "pandas", "polars")), group="output"
    ),
}
_SEEN: dict[str, Field] = {"n_samples_seen_": Checked(_counts)}
_COLUMNS: Array = floats("n_features")
_SCALES: Array = floats("n_features", low=1 / LARGEST)
_RANGE = Checked(_pair(-LARGEST, LARGEST, int, float))
_TEXT: dict[str, Field] = {
    "input": chosen("content"),
    "encoding": chosen("utf-8", "utf8", "latin-1", "ascii", "cp1252", "utf-16"),
    "strip_accents": chosen(None, "ascii", "unicode"),
    "preprocessor": chosen(None),
    "tokenizer": chosen(None),
    "analyzer": chosen("word", "char", "char_wb"),
    "token_pattern": Checked(_pattern),
    "stop_words": Checked(_words),
    "ngram_range": Checked(_pair(1, LONGEST_NGRAM, int)),
    "vocabulary": Checked(_words),
    "dtype": chosen(np.float64, np.float32, np.int64, np.int32),
}
_VOCABULARY: dict[str, Field] = {
    "vocabulary_": Numbered(size="n_features", texts=True),
    "fixed_vocabulary_": Flag(),
}
_COMPONENTS: dict[str, Field] = {
    "components_": floats("n_components", "n_features"),
    "explained_variance_": floats("n_components", low=0.0),
    "explained_variance_ratio_": floats("n_components", finite=False),
    "singular_values_": floats("n_components"),
}


def _scaler(fields: Mapping[str, Field], *more: Any) -> tuple[str, State]:
    return "sklearn.preprocessing", State({**_FITTED, **fields}, *more)


def _centred(kind: str, fields: Mapping[str, Field], *more: Any) -> tuple[str, State]:
    """Declare a scaler whose centre and scale are None if their parameters are off."""
    centres, centre, scales = CENTRED[kind]
    optional = {centre: replace(_COLUMNS, none=True), "scale_": replace(_SCALES, none=True)}
    return _scaler({**optional, **fields}, _needs((centres, centre), (scales, "scale_")), *more)


STEPS: dict[str, tuple[str, State]] = {
    "MaxAbsScaler": _scaler({**_SEEN, "max_abs_": _COLUMNS, "scale_": _SCALES}),
    "MinMaxScaler": _scaler(
        {
            **_SEEN,
            "scale_": _SCALES,
            **dict.fromkeys(("min_", "data_min_", "data_max_", "data_range_"), _COLUMNS),
        },
        None,
        {"feature_range": _RANGE},
    ),
    "Normalizer": _scaler({}),
    "RobustScaler": _centred(
        "RobustScaler", {}, {"quantile_range": Checked(_pair(-LARGEST, LARGEST, int, float))}
    ),
    "StandardScaler": _centred("StandardScaler", {**_SEEN, "var_": replace(_COLUMNS, none=True)}),
    "OneHotEncoder": _scaler(
        {
            "categories_": Several(Checked(_categories), size="n_features"),
            "_n_features_outs": Several(Whole()),
            "_infrequent_enabled": chosen(False),
            "_drop_idx_after_grouping": chosen(None),
            "drop_idx_": chosen(None),
        },
        _check_encoder,
        {
            "categories": chosen("auto"),
            "drop": chosen(None),
            "min_frequency": chosen(None),
            "max_categories": chosen(None),
            "feature_name_combiner": chosen("concat"),
            "dtype": chosen(np.float64, np.float32),
        },
    ),
    "SimpleImputer": (
        "sklearn.impute",
        State(
            {
                **_FITTED,
                "statistics_": Checked(_fillings),
                "indicator_": chosen(None),
                "_fit_dtype": Checked(_plain_dtype),
            },
            _check_imputer,
            {"add_indicator": chosen(False)},
        ),
    ),
    "CountVectorizer": ("sklearn.feature_extraction.text", State(_VOCABULARY, _check_tokens, _TEXT)),
    "TfidfTransformer": (
        "sklearn.feature_extraction.text",
        State(
            {**_FITTED, "idf_": floats("n_features", low=0.0, high=FARTHEST, group="idf")},
            _needs(("use_idf", "idf_")),
        ),
    ),
    "TfidfVectorizer": (
        "sklearn.feature_extraction.text",
        State({**_VOCABULARY, "_tfidf": part("TfidfTransformer")}, _check_tokens, _TEXT),
    ),
    "TruncatedSVD": ("sklearn.decomposition", State({**_FITTED, **_COMPONENTS})),
    "PCA": (
        "sklearn.decomposition",
        State(
            {
                **_FITTED,
                **_COMPONENTS,
                "mean_": _COLUMNS,
                "n_components_": Whole(1, size="n_components"),
                "n_samples_": Whole(),
                "noise_variance_": Number(finite=False),
                "_fit_svd_solver": chosen("auto", "full", "covariance_eigh", "arpack", "randomized"),
            }
        ),
    ),
    "SelectKBest": (
        "sklearn.feature_selection",
        State(
            {
                **_FITTED,
                "scores_": floats("n_features", dtypes=(*FLOATS, "i8"), finite=False),
                "pvalues_": floats("n_features", finite=False, none=True),
            },
            parameters={"score_func": Checked(_score)},
        ),
    ),
}
_COLUMN_PARTS = (*STEPS, "TextColumn", "DateColumns", "Pipeline")
_TRANSFORMERS = (*_COLUMN_PARTS, "ColumnTransformer", "NamedColumns")
STEPS["ColumnTransformer"] = (
    "sklearn.compose",
    State(
        {**_FITTED, "sparse_output_": Flag(), "transformers_": ColumnParts(_COLUMN_PARTS)},
        _check_columns,
        {
            "transformers": ColumnParts(_COLUMN_PARTS),
            "remainder": chosen("drop"),
            "transformer_weights": chosen(None),
            "n_jobs": chosen(None, 1),  # more jobs are processes, which take seconds to start
        },
    ),
)
STEPS["Pipeline"] = (
    "sklearn.pipeline",
    State(
        {},
        _check_pipeline,
        {
            "steps": Steps(_TRANSFORMERS, (*MODELS, *_TRANSFORMERS)),
            "memory": chosen(None),
            "transform_input": chosen(None),
            "verbose": Flag(),
        },
    ),
)
