"""Preprocessing of data frames with numbers, categories, text and dates.

`prepare` returns an unfitted `ColumnTransformer` of scikit-learn for the columns of a data frame:

| kind     | columns                       | features                      | a missing value is  |
|----------|-------------------------------|-------------------------------|---------------------|
| number   | numbers and booleans          | centred, scaled to variance 1 | the column's median |
| category | few different strings         | one 0/1 column per string     | a separate category |
| text     | other strings                 | tf-idf of words or characters | an empty string     |
| date     | dates, named by `dates`       | year, month, weekday, days    | the column's median |

A category that was absent from the fit becomes zeros. Columns of dates that are not named are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from maxmargin.core.state import State
from maxmargin.edge.estimator import warn
from maxmargin.io.named import DateColumns, NamedColumns
from maxmargin.io.steps import PROJECTIONS, STEPS, flatten

__all__ = ["DateColumns", "NamedColumns", "TextColumn", "column_kinds", "prepare"]

KINDS = ("number", "category", "text", "date")
# Strings are categories if there are at most so many different ones, each twice on average.
MOST_CATEGORIES, LEAST_REPEATED = 50, 2
CHARACTERS = (2, 5)
_DATE = re.compile(
    r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d{2}))([T ]\d{1,2}:\d{2}.*)?"
)


class TextColumn(TfidfVectorizer):
    """scikit-learn's `TfidfVectorizer` for a column; a missing value is an empty string."""

    STATE: ClassVar[State] = STEPS["TfidfVectorizer"][1]

    def decode(self, doc: Any) -> str:
        """Return the text of a cell."""
        if doc is None or doc != doc:
            return ""
        if not isinstance(doc, (str, bytes)):
            raise ValueError(f"a text column holds {doc!r}, a {type(doc).__name__}; pass strings.")
        return super().decode(doc)


def prepare(
    table: Any,
    *,
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    text: Sequence[str] = (),
    dates: Sequence[str] = (),
    drop: Sequence[str] = (),
    scale: bool = True,
    analyzer: str = "word",
) -> ColumnTransformer:
    """Return a transformer for the columns of a table, by their kinds.

    Parameters
    ----------
    table : data frame of pandas, polars or pyarrow
        Its columns determine the kinds. It must not contain the labels.
    numbers, categories, text, dates : sequences of str, default=()
        Columns of these kinds; the kinds of other columns are inferred (see `column_kinds`). A date becomes
        four numbers (`maxmargin.tables.DateColumns`).
    drop : sequence of str, default=()
        Columns to leave out.
    scale : bool, default=True
        If True, numbers are centred and scaled to a variance of one.
    analyzer : {"word", "character"}, default="word"
        Whether the features of texts are words, or sequences of two to five characters inside words. The
        latter are better for short texts, misspellings and languages with long words.

    Returns
    -------
    sklearn.compose.ColumnTransformer
        Not fitted. `maxmargin.save` supports pipelines that start with it.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> import maxmargin
    >>> shop = pd.DataFrame({
    ...     "price": [10.0, None, 80.0, 90.0],
    ...     "colour": ["red", "blue", "red", "blue"],
    ...     "title": ["cotton shirt", "wool socks", "silk shirt", "silk scarf"],
    ... })
    >>> tags = [{"cheap"}, {"cheap"}, {"premium"}, {"premium"}]
    >>> model = make_pipeline(maxmargin.prepare(shop), maxmargin.MultiLabelSVC()).fit(shop, tags)
    >>> model.predict(shop) == tags
    True
    """
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise TypeError(
            f"table must be a data frame of pandas, polars or pyarrow. Got a {type(table).__name__} instead; "
            "for an array of numbers use a StandardScaler."
        )
    kinds = named_kinds(numbers, categories, text, dates)
    absent = [name for name in (*kinds, *drop) if name not in frame.columns]
    if absent:
        raise ValueError(
            f"No column is called {absent[0]!r}; there are {', '.join(map(repr, frame.columns))}."
        )
    return assemble(column_kinds(table, kinds=kinds, drop=drop), scale=scale, analyzer=analyzer)


def named_kinds(*columns: Iterable[str]) -> dict[str, str]:
    """Return the kind of each column named by the user: numbers, categories, text and dates."""
    kinds: dict[str, str] = {}
    for kind, names in zip(KINDS, columns, strict=True):
        if isinstance(names, str):
            raise TypeError(f"columns must be a list of names, such as [{names!r}]. Got {names!r} instead.")
        for name in names:
            if name in kinds:
                raise ValueError(f"Column {name!r} is named as a {kinds[name]} and a {kind}; choose one.")
            kinds[name] = kind
    return kinds


def column_kinds(
    table: Any,
    *,
    kinds: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    told: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the kind of every column of a data frame: "number", "category" or "text".

    Numbers and booleans are numbers. Strings are categories if there are at most 50 different ones and
    each occurs at least twice on average; otherwise they are text.

    Parameters
    ----------
    table : data frame of pandas, polars or pyarrow
    kinds : mapping of str to str, default=None
        Kinds of some columns, which are not inferred.
    drop : sequence of str, default=()
        Columns to leave out.
    told : mapping of str to str, default=None
        Deprecated; use `kinds`.

    Raises
    ------
    ValueError
        For a column of dates, lists or other objects; the message says what to do.

    Examples
    --------
    >>> import pandas as pd
    >>> from maxmargin.tables import column_kinds
    >>> column_kinds(pd.DataFrame({"price": [1.5, 2.0], "title": ["wool socks", "silk scarf"]}))
    {'price': 'number', 'title': 'text'}
    """
    frame = nw.from_native(table, eager_only=True)
    if told is not None:
        warn("column_kinds: told is deprecated; use kinds.", FutureWarning)
    known = dict(kinds or told or {})
    found = {
        name: known.get(name) or _kind_of_series(frame[name], name)
        for name in frame.columns
        if name not in drop
    }
    if not found:
        raise ValueError("No column is left to learn from; drop fewer columns.")
    return found


def _kind_of_series(column: Any, name: str) -> str:
    kind = column.dtype
    if kind.is_numeric() or kind == nw.Boolean:
        return "number"
    if kind.is_temporal():
        raise ValueError(dates_refused(name, next(iter(column.drop_nulls().to_list()), kind)))
    if kind in (nw.Categorical, nw.Enum):
        return "category"
    return kind_of_values(column.to_list(), name)


def kind_of_values(values: Sequence[Any], name: str) -> str:
    """Return the kind of a column of strings and numbers."""
    known = [value for value in values if not (value is None or value != value or value == "")]
    if all(isinstance(value, (int, float)) for value in known):
        return "number"
    strange = next((value for value in known if not isinstance(value, (str, int, float))), None)
    if strange is not None:
        if hasattr(strange, "isoformat"):
            raise ValueError(dates_refused(name, strange))
        raise ValueError(
            f"Column {name!r} holds {strange!r}, a {type(strange).__name__}: not a number, a category or a "
            "text. Leave it out (drop=, or --drop), or name it as the labels if it holds them."
        )
    words = [str(value) for value in known]
    if all(_DATE.fullmatch(word.strip()) for word in words):
        raise ValueError(dates_refused(name, words[0]))
    different = len(set(words))
    few = different <= MOST_CATEGORIES and different * LEAST_REPEATED <= len(words)
    return "category" if few else "text"


def dates_refused(name: str, example: Any) -> str:
    """Return the message for a column of dates that was not named."""
    return (
        f"Column {name!r} holds dates ({str(example)!r}): --dates {name} (dates= in Python) uses year, "
        f"month, weekday and days since the first, --drop {name} (drop=) leaves it out."
    )


def assemble(kinds: Mapping[Any, str], *, scale: bool = True, analyzer: str = "word") -> ColumnTransformer:
    """Return the transformer for columns, by name or number, of the given kinds."""
    if analyzer not in ("word", "character"):
        raise ValueError(f"analyzer must be 'word' or 'character'. Got {analyzer!r} instead.")
    of = {kind: [column for column, its in kinds.items() if its == kind] for kind in KINDS}
    parts: list[tuple[str, Any, Any]] = []

    def numeric(*first: tuple[str, Any]) -> Pipeline:
        fill = ("fill", SimpleImputer(strategy="median", keep_empty_features=True))
        return Pipeline([*first, fill, *([("scale", StandardScaler())] if scale else [])])

    if of["number"]:
        parts.append(("numbers", numeric(), of["number"]))
    if of["category"]:
        parts.append(("categories", OneHotEncoder(handle_unknown="ignore"), of["category"]))
    if of["date"]:
        parts.append(("dates", numeric(("days", DateColumns())), of["date"]))
    options = {} if analyzer == "word" else {"analyzer": "char_wb", "ngram_range": CHARACTERS}
    parts += [(f"text_{k}", TextColumn(**options), column) for k, column in enumerate(of["text"])]
    return ColumnTransformer(parts)


def feature_names(prepared: ColumnTransformer, columns: Sequence[str]) -> list[str]:
    """Return the feature names of a fitted preparation: price, colour=red, title: silk.

    The name of a scaled number contains its unit: ``price (per 12.5)``. `columns` are the names of the
    columns that the preparation was fitted on.
    """
    names: list[str] = []
    for _, step, own in _parts(prepared, columns):
        if isinstance(step, CountVectorizer):
            names += [f"{own[0]}: {word}" for word in step.get_feature_names_out().tolist()]
        elif isinstance(step, OneHotEncoder):
            for column, values in zip(own, step.categories_, strict=True):
                names += [f"{column}={'(missing)' if v is None or v != v else v}" for v in values.tolist()]
        else:
            names += names_behind(step, own)
    return names


def _parts(prepared: ColumnTransformer, columns: Sequence[str]) -> list[tuple[str, Any, list[str]]]:
    """Return name, fitted step and column names of every part of a preparation."""
    parts = []
    for name, step, chosen in prepared.transformers_:
        if step != "drop":
            keys = [chosen] if isinstance(chosen, (str, int)) else list(chosen)
            parts.append((name, step, [columns[c] if isinstance(c, int) else str(c) for c in keys]))
    return parts


def names_behind(steps: Pipeline, columns: Sequence[str]) -> list[str]:
    """Return the feature names after the fitted steps of a pipeline."""
    names = list(columns)
    for step in flatten([steps]):
        if isinstance(step, ColumnTransformer):
            names = feature_names(step, names)
        elif type(step).__name__ == "SelectKBest":
            names = [names[j] for j in step.get_support(indices=True)]
        elif type(step).__name__ in PROJECTIONS:
            names = [f"component {k + 1}" for k in range(len(step.components_))]
        elif isinstance(step, DateColumns):
            names = step.names(names)
        elif isinstance(step, StandardScaler) and step.scale_ is not None and len(names) == len(step.scale_):
            names = [
                f"{name} (per {unit:.3g})" for name, unit in zip(names, step.scale_.tolist(), strict=True)
            ]
    return names


def words_for(steps: Pipeline, columns: Sequence[str]) -> str:
    """Describe the fitted steps before a model."""
    words = []
    for step in flatten([steps]):
        if isinstance(step, SimpleImputer):
            words.append(f"missing numbers are the {step.strategy} of their column")
        elif isinstance(step, StandardScaler):
            words.append(
                "columns are centred and scaled to a variance of one" if step.with_mean else "scaled"
            )
        elif isinstance(step, (NamedColumns, DateColumns)):
            continue
        elif isinstance(step, ColumnTransformer):
            words += [_words_for_part(one, own) for _, one, own in _parts(step, columns)]
        else:
            words.append(repr(step))
    return "; ".join(words)


def _words_for_part(step: Any, own: Sequence[str]) -> str:
    shown = ", ".join(own)
    if isinstance(step, TextColumn):
        return f"text ({shown}) as tf-idf of {'words' if step.analyzer == 'word' else 'characters'}"
    if isinstance(step, OneHotEncoder):
        return f"categories ({shown}) as one 0/1 column per value"
    if isinstance(step, Pipeline) and isinstance(step.steps[0][1], DateColumns):
        return f"dates ({shown}) as year, month, weekday and days since the first: {words_for(step, own)}"
    return (
        f"numbers ({shown}): {words_for(step, own)}" if isinstance(step, Pipeline) else f"{shown}: {step!r}"
    )
