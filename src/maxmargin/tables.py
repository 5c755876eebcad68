"""Tables as people have them made ready for a model: numbers, categories and text.

`prepare` looks at a data frame and answers with scikit-learn's `ColumnTransformer`, not yet fitted:

| kind     | columns                    | what is done                  | a missing value is  |
|----------|----------------------------|-------------------------------|---------------------|
| number   | numbers and booleans       | centred, scaled to variance 1 | the column's median |
| category | few different words, often | one 0/1 column per word       | a word of its own   |
| text     | other words                | tf-idf of words or characters | an empty text       |
| date     | dates, named by `dates`    | year, month, weekday, days    | the column's median |

A category that training did not have is none of those it had: zeros. Columns of dates that are not named are
refused.
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
from maxmargin.io.named import DateColumns, NamedColumns
from maxmargin.io.steps import PROJECTIONS, STEPS, flatten

__all__ = ["DateColumns", "NamedColumns", "TextColumn", "column_kinds", "prepare"]

KINDS = ("number", "category", "text", "date")
# Words are categories up to so many different ones, each of which occurs twice in the mean.
MOST_CATEGORIES, LEAST_REPEATED = 50, 2
CHARACTERS = (2, 5)
_DATE = re.compile(
    r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d{2}))([T ]\d{1,2}:\d{2}.*)?"
)


class TextColumn(TfidfVectorizer):
    """scikit-learn's `TfidfVectorizer` for the column of a table: a missing text is an empty one."""

    STATE: ClassVar[State] = STEPS["TfidfVectorizer"][1]

    def decode(self, doc: Any) -> str:
        """The text of a cell."""
        if doc is None or doc != doc:
            return ""
        if not isinstance(doc, (str, bytes)):
            raise ValueError(f"a column of texts holds {doc!r}, a {type(doc).__name__}.")
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
    """What makes the columns of a table ready for a model, by their kinds.

    Parameters
    ----------
    table : data frame of pandas, polars or pyarrow
        Its columns are looked at; nothing is fitted yet. Labels must not be among them.
    numbers, categories, text, dates : sequences of str, default=()
        Columns whose kind is told; that of the others is seen (see `column_kinds`). A date becomes four
        numbers (`maxmargin.tables.DateColumns`).
    drop : sequence of str, default=()
        Columns to leave out.
    scale : bool, default=True
        Whether numbers are centred and scaled to a variance of one.
    analyzer : {"word", "character"}, default="word"
        Whether texts are taken as words, or as runs of two to five characters inside words, which
        is better for short texts, misspellings and languages with long words.

    Returns
    -------
    sklearn.compose.ColumnTransformer
        Not fitted; the first step of a pipeline, which `maxmargin.save` can hold.

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
            "an array of numbers needs no more than a StandardScaler."
        )
    told = told_kinds(numbers, categories, text, dates)
    absent = [name for name in (*told, *drop) if name not in frame.columns]
    if absent:
        raise ValueError(
            f"No column is called {absent[0]!r}; there are {', '.join(map(repr, frame.columns))}."
        )
    kinds = column_kinds(table, told=told, drop=drop)
    return assemble(kinds, scale=scale, analyzer=analyzer)


def told_kinds(*columns: Iterable[str]) -> dict[str, str]:
    """Columns whose kind was told, each once: numbers, categories, text and dates."""
    told: dict[str, str] = {}
    for kind, names in zip(KINDS, columns, strict=True):
        if isinstance(names, str):
            raise TypeError(f"columns are named in a list: [{names!r}].")
        for name in names:
            if name in told:
                raise ValueError(f"Column {name!r} is told to be a {told[name]} and a {kind}; say one.")
            told[name] = kind
    return told


def column_kinds(
    table: Any, *, told: Mapping[str, str] | None = None, drop: Sequence[str] = ()
) -> dict[str, str]:
    """The kind of every column of a data frame: "number", "category" or "text".

    Numbers and booleans are numbers. Words are categories where there are at most 50 different ones
    and each occurs at least twice in the mean; otherwise they are text.

    Parameters
    ----------
    table : data frame of pandas, polars or pyarrow
    told : mapping of str to str, default=None
        Kinds that are known.
    drop : sequence of str, default=()
        Columns to leave out.

    Raises
    ------
    ValueError
        For a column of dates, lists or other objects, with what to do about it.

    Examples
    --------
    >>> import pandas as pd
    >>> from maxmargin.tables import column_kinds
    >>> column_kinds(pd.DataFrame({"price": [1.5, 2.0], "title": ["wool socks", "silk scarf"]}))
    {'price': 'number', 'title': 'text'}
    """
    frame = nw.from_native(table, eager_only=True)
    known = dict(told or {})
    kinds = {}
    for name in frame.columns:
        if name not in drop:
            kinds[name] = known.get(name) or _kind_of_series(frame[name], name)
    if not kinds:
        raise ValueError("No column is left to learn from.")
    return kinds


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
    """The kind of a column of words and numbers."""
    known = [value for value in values if not (value is None or value != value or value == "")]
    if all(isinstance(value, (int, float)) for value in known):
        return "number"
    strange = next((value for value in known if not isinstance(value, (str, int, float))), None)
    if strange is not None:
        if hasattr(strange, "isoformat"):
            raise ValueError(dates_refused(name, strange))
        raise ValueError(
            f"Column {name!r} holds {strange!r}, a {type(strange).__name__}: not a number, a category or a "
            "text. Leave it out (drop=, or --drop) or, if these are the labels, name it as such."
        )
    words = [str(value) for value in known]
    if all(_DATE.fullmatch(word.strip()) for word in words):
        raise ValueError(dates_refused(name, words[0]))
    different = len(set(words))
    few = different <= MOST_CATEGORIES and different * LEAST_REPEATED <= len(words)
    return "category" if few else "text"


def dates_refused(name: str, example: Any) -> str:
    """What to do about a column of dates."""
    return (
        f"Column {name!r} holds dates ({str(example)!r}): --dates {name} (dates= in Python) takes year, "
        f"month, weekday and days since the first, --drop {name} (drop=) leaves it out."
    )


def assemble(kinds: Mapping[Any, str], *, scale: bool = True, analyzer: str = "word") -> ColumnTransformer:
    """The preparation of columns, by name or place, of the given kinds."""
    if analyzer not in ("word", "character"):
        raise ValueError(f"analyzer must be 'word' or 'character'. Got {analyzer!r} instead.")
    of = {kind: [column for column, its in kinds.items() if its == kind] for kind in KINDS}
    parts: list[tuple[str, Any, Any]] = []
    if of["number"]:
        steps: list[tuple[str, Any]] = [("fill", SimpleImputer(strategy="median", keep_empty_features=True))]
        steps += [("scale", StandardScaler())] if scale else []
        parts.append(("numbers", Pipeline(steps), of["number"]))
    if of["category"]:
        parts.append(("categories", OneHotEncoder(handle_unknown="ignore"), of["category"]))
    if of["date"]:
        steps = [
            ("days", DateColumns()),
            ("fill", SimpleImputer(strategy="median", keep_empty_features=True)),
        ]
        parts.append(("dates", Pipeline(steps + [("scale", StandardScaler())] * scale), of["date"]))
    how = {} if analyzer == "word" else {"analyzer": "char_wb", "ngram_range": CHARACTERS}
    parts += [(f"text_{k}", TextColumn(**how), column) for k, column in enumerate(of["text"])]
    return ColumnTransformer(parts)


def feature_names(prepared: ColumnTransformer, columns: Sequence[str]) -> list[str]:
    """What the features are called that a fitted preparation gives: price, colour=red, title: silk.

    A scaled number is told with its unit: ``price (per 12.5)``. `columns` are the names of the columns
    that it was fitted on.
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
    """Name, fitted step and names of the columns of every part of a preparation."""
    parts = []
    for name, step, chosen in prepared.transformers_:
        if step != "drop":
            places = [chosen] if isinstance(chosen, (str, int)) else list(chosen)
            parts.append((name, step, [columns[c] if isinstance(c, int) else str(c) for c in places]))
    return parts


def names_behind(steps: Pipeline, columns: Sequence[str]) -> list[str]:
    """What the features are called behind the fitted steps of a pipeline."""
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
    """What the fitted steps before a model do, in words."""
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
