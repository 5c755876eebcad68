"""Columns and labels of tables by name.

`NamedColumns` finds the columns of a frame, `DateColumns` turns dates into numbers. `maxmargin fit` saves a
model by column positions and stores the names in the metadata of the file; `by_name` adds them to the loaded
model. `by_position` does the reverse for a model that was saved in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.state import INPUT, Array, Checked, Sizes, State, chosen
from maxmargin.edge.labels import LabelSpace
from maxmargin.edge.wrappers import takes_kernel
from maxmargin.io.checked import ModelFileError
from maxmargin.io.mixed import KINDS, Cells, day_of
from maxmargin.io.steps import DATE_PARTS, LAST_DAY, VECTORISERS, check_kinds, flatten, rebuild
from maxmargin.io.table import classes
from maxmargin.io.words import no_column

# The metadata that `maxmargin fit` stores, with their types.
METADATA: dict[str, Any] = {
    "family": str, "data": str, "samples": int, "label_names": list, "feature_names": list, "sparse": bool,
    "seconds": (int, float), "reading": dict,
}  # fmt: skip


def _check_kinds(value: Any) -> str | None:
    words = isinstance(value, dict) and all(isinstance(word, str) for pair in value.items() for word in pair)
    if type(value) is not dict or not value or not words:
        return "expected a dict of column names to kinds"
    unknown = set(value.values()) - set(KINDS)
    return f"{unknown.pop()!r} is not a kind of column; expected {', '.join(KINDS)}" if unknown else None


def _check_words(value: Any) -> str | None:
    words = isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)
    return None if words else "expected a list of words"


def _same_names(state: Mapping[str, Any], sizes: Sizes) -> None:
    if "feature_names_in_" in state and list(state["kinds"]) != state["feature_names_in_"].tolist():
        raise ValueError("its columns have other names than its kinds")


class NamedColumns(TransformerMixin, BaseEstimator):
    """Select the columns of a table by name, in the order in which the model was fitted.

    Parameters
    ----------
    kinds : dict of str to {"number", "category", "text", "date"}
        Name and kind of every column.
    decimal : {".", ","}, default="."
        The decimal mark of numbers that are stored as words.
    missing : sequence of str, default=()
        Words that mean a missing value.

    Notes
    -----
    In a frame of pandas, polars or pyarrow, columns are found by name: they may come in any order, other
    columns are ignored, and values are read as `maxmargin predict` reads them. In any other input, including
    a frame without names, columns are found by position, and their number must be that of `kinds`.

    Examples
    --------
    >>> import pandas as pd
    >>> from maxmargin.tables import NamedColumns
    >>> columns = NamedColumns({"size": "number", "price": "number"})
    >>> columns.fit_transform(pd.DataFrame({"id": [7], "price": [2.5], "size": [True]}))
    array([[1. , 2.5]])
    """

    STATE: ClassVar[State] = State(
        {**INPUT},
        _same_names,
        {"kinds": Checked(_check_kinds), "decimal": chosen(".", ","), "missing": Checked(_check_words)},
    )

    def __init__(self, kinds: dict[str, str], *, decimal: str = ".", missing: Sequence[str] = ()) -> None:
        self.kinds = kinds
        self.decimal = decimal
        self.missing = missing

    def fit(self, X: Any, y: Any = None) -> NamedColumns:
        """Check the kinds; X is not used."""
        fault = _check_kinds(self.kinds)
        if fault is not None:
            raise ValueError(f"kinds: {fault}.")
        self.n_features_in_ = len(self.kinds)
        self.feature_names_in_ = np.array(list(self.kinds), dtype=object)
        return self

    def transform(self, X: Any) -> Any:
        """Return the columns as one array, of floats if all are numbers, otherwise of objects."""
        check_is_fitted(self)
        names, frame = list(self.kinds), _named_frame(X)
        if frame is not None:
            return self._from_frame(frame)
        if not sp.issparse(X):
            X = np.asarray(X, None if self._numbers else object)
        if X.ndim != 2 or X.shape[1] != len(names):
            raise ValueError(
                f"X has shape {X.shape}, but the model takes {len(names)} columns; pass a frame with the "
                f"columns {', '.join(map(repr, names[:5]))}{' and others' if len(names) > 5 else ''}."
            )
        if self._numbers:
            return X
        return self._join([self._read(X[:, j].tolist(), name) for j, name in enumerate(names)])

    def select(self, X: Any) -> Any:
        """Return the columns of a frame by name; return anything else unchanged."""
        frame = _named_frame(X)
        return X if frame is None else self._from_frame(frame)

    def _from_frame(self, frame: nw.DataFrame[Any]) -> np.ndarray:
        absent = [name for name in self.kinds if name not in frame.columns]
        if absent:
            raise ValueError(f"X: {no_column(absent, map(str, frame.columns))}.")
        return self._join([self._values(frame[name], name) for name in self.kinds])

    @property
    def _numbers(self) -> bool:
        return set(self.kinds.values()) == {"number"}

    def _values(self, column: Any, name: str) -> Any:
        """Return the values of a frame's column for a model."""
        numeric = column.dtype.is_numeric() or column.dtype == nw.Boolean
        null = column.is_null().to_numpy()
        if numeric and self.kinds[name] == "number" and not self.missing:
            return np.asarray((column.cast(nw.Float64) if null.any() else column).to_numpy(), np.float64)
        cells = zip(column.to_list(), null, strict=True)
        return self._read([None if is_null else cell for cell, is_null in cells], name)

    def _read(self, values: list[Any], name: str) -> list[Any]:
        cells = Cells(decimal=self.decimal, missing=self.missing)
        read, types = cells.readers[self.kinds[name]], set(map(type, values))
        if types == {float} and self.kinds[name] == "number" and not self.missing:
            return values
        try:
            if types <= {str, type(None)}:  # read repeated words once
                found = {word: read(cells.value(word)) for word in set(values)}
                return [found[word] for word in values]
            plain = (value.item() if isinstance(value, np.generic) else value for value in values)
            return [read(cells.value(value)) for value in plain]
        except ValueError as error:
            raise ValueError(f"X, column {name!r}: {error}.") from None

    def _join(self, columns: Sequence[Sequence[Any]]) -> np.ndarray:
        X = np.empty((len(columns[0]), len(columns)), np.float64 if self._numbers else object)
        for j, column in enumerate(columns):
            X[:, j] = column
        return X

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns."""
        return np.array(list(self.kinds), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        for name in ("sparse", "categorical", "string", "allow_nan"):
            setattr(tags.input_tags, name, True)
        return tags


def _named_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return a frame whose columns have names, None for anything else."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    named = isinstance(frame, nw.DataFrame) and any(isinstance(name, str) for name in frame.columns)
    return frame if named else None


class DateColumns(TransformerMixin, BaseEstimator):
    """Turn dates into numbers: year, month, weekday (Monday is 1) and days since the first in training.

    A missing date is NaN in all four.

    Examples
    --------
    >>> from maxmargin.tables import DateColumns
    >>> DateColumns().fit_transform([["2024-01-31"], ["2024-02-05"]]).tolist()
    [[2024.0, 1.0, 3.0, 0.0], [2024.0, 2.0, 1.0, 5.0]]
    """

    STATE: ClassVar[State] = State({**INPUT, "first_": Array(("n_features",), ("i8",), 1, LAST_DAY)})

    def fit(self, X: Any, y: Any = None) -> DateColumns:
        """Find the first day of every column."""
        days = _days(X)
        self.n_features_in_ = days.shape[1]
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        self.first_ = np.where(np.isnan(days), LAST_DAY, days).min(axis=0, initial=LAST_DAY).astype(np.int64)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return four numbers for each date."""
        check_is_fitted(self)
        days = _days(X)
        if days.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {days.shape[1]} columns, but DateColumns was fitted on {self.n_features_in_}."
            )
        found = np.full((*days.shape, DATE_PARTS), np.nan)
        for i, j in np.argwhere(~np.isnan(days)):
            day = date.fromordinal(int(days[i, j]))
            found[i, j] = day.year, day.month, day.isoweekday(), days[i, j] - self.first_[j]
        return found.reshape(len(days), -1)

    def names(self, columns: list[str]) -> list[str]:
        """Return names such as "created: month" and "created: days since 2024-01-31"."""
        return [
            f"{name}: {part}"
            for name, first in zip(columns, self.first_, strict=True)
            for part in ("year", "month", "weekday", f"days since {date.fromordinal(int(first))}")
        ]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the numbers."""
        known = getattr(self, "feature_names_in_", None) if input_features is None else input_features
        columns = [f"x{j}" for j in range(self.n_features_in_)] if known is None else list(known)
        return np.array(self.names(columns), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


def _days(X: Any) -> np.ndarray:
    """Return the ordinal of each day, NaN for a missing one."""
    rows = np.asarray(X, dtype=object)
    if rows.ndim != 2:
        raise ValueError(f"X must have rows and columns. Got shape {rows.shape} instead.")
    found = np.full(rows.shape, np.nan)
    for position, value in np.ndenumerate(rows):
        day = day_of(value)
        if day is not None:
            found[position] = day.toordinal()
    return found


def is_noted(metadata: Mapping[str, Any]) -> bool:
    """Whether the metadata of a file have the form that `maxmargin fit` writes."""
    if not all(isinstance(metadata.get(name), kind) for name, kind in METADATA.items()):
        return False
    kinds = metadata.get("columns")
    words = [*metadata["label_names"], *metadata["feature_names"]]
    return (
        (kinds is None or _check_kinds(kinds) is None)
        and isinstance(metadata.get("target", ""), str)
        and all(isinstance(word, str) for word in words)
        and all(value is None or isinstance(value, (str, bool)) for value in metadata["reading"].values())
    )


def numbered(names: Sequence[str]) -> bool:
    """Whether the names are x0, x1, ..., as those of SVMlight files."""
    return all(name == f"x{j}" for j, name in enumerate(names))


def by_name(model: Any, metadata: Mapping[str, Any]) -> Any:
    """Give a model of `maxmargin fit` the names of columns and labels in its metadata."""
    if not is_noted(metadata):
        return model
    _name_labels(model, metadata["label_names"])
    kinds, names = metadata.get("columns") or {}, metadata["feature_names"]
    if metadata["family"] == "chain" or numbered(names) or hasattr(model, "feature_names_in_"):
        return model
    if takes_kernel(model):
        return model
    width = model.n_features_in_
    # A ranker may be wider than the columns of its training data.
    wider = any(getattr(part, "n_features", None) is not None for part in _wrapped(model))
    if len(set(names)) < len(names) or len(names) > width or (len(names) < width and not wider):
        raise ModelFileError(f"its metadata name {len(names)} columns, but the model takes {width}")
    reading = metadata["reading"]
    missing = reading.get("missing") or ""
    columns = NamedColumns(
        {name: kinds.get(name, "number") for name in names},
        decimal="," if reading.get("decimal") == "," else ".",
        missing=[word.strip() for word in missing.split(",")] if missing else [],
    )
    return _with_columns(columns.fit(None), model)


def _with_columns(columns: NamedColumns, model: Any) -> Any:
    """Put the columns before a model: as the first step of a pipeline, or inside the estimator."""
    if hasattr(model, "steps"):
        check_kinds(list(columns.kinds.values()), flatten([model])[0])
        return Pipeline([("columns", columns), *model.steps])
    if hasattr(model, "estimator_"):
        model.estimator_ = _with_columns(columns, model.estimator_)
        if hasattr(model, "estimators_"):
            model.estimators_ = [_with_columns(columns, one) for one in model.estimators_]
    else:
        check_kinds(list(columns.kinds.values()), model)
        model._table = columns
    model.feature_names_in_ = columns.feature_names_in_
    return model


def _label_spaces(part: Any) -> Iterator[tuple[str, Any, LabelSpace]]:
    """Yield the attributes of an estimator that hold labels: name, value, and the LabelSpace in it."""
    for name in ("_labels", "_space"):
        labels = vars(part).get(name)
        space = getattr(labels, "space", labels)
        if isinstance(space, LabelSpace):
            yield name, labels, space


def _set_space(part: Any, name: str, labels: Any, space: LabelSpace) -> None:
    if isinstance(labels, LabelSpace):
        setattr(part, name, space)
    else:
        labels.space = space
        labels.index = {word: k for k, word in enumerate(space.classes.tolist())}


def _name_labels(model: Any, names: Sequence[str]) -> None:
    """Name the columns of 0/1 labels in a model and in the models that it wraps."""
    words = np.array([*names, None], dtype=object)[:-1]
    for part in _wrapped(model):
        for name, labels, space in _label_spaces(part):
            if space.kind not in ("indicator", "sign", "sparse"):
                continue
            if not np.array_equal(space.classes, np.arange(len(space.classes))):
                continue
            if len(names) != len(space.classes) or len(set(names)) < len(names):
                raise ModelFileError(
                    f"its metadata name {len(names)} labels, but the model has {len(space.classes)}"
                )
            _set_space(part, name, labels, replace(space, classes=words))
            part.classes_ = words


def _wrapped(model: Any) -> Iterator[Any]:
    """Yield a model and the fitted models that it wraps."""
    yield model
    inner = [model.steps[-1][1]] if hasattr(model, "steps") else []
    for one in (*inner, *vars(model).get("estimators_", ()), vars(model).get("estimator_")):
        if one is not None:
            yield from _wrapped(one)


@dataclass(frozen=True)
class Names:
    """Names of columns and labels in a model that was saved in Python.

    `columns` is empty if columns have no names; `kinds` are their kinds, None if all are numbers. `labelled`
    is false if labels have no names; `several` is true if samples have several labels.
    """

    columns: tuple[str, ...]
    kinds: dict[str, str] | None
    labels: tuple[str, ...]
    labelled: bool
    several: bool


def by_position(model: Any) -> Names:
    """Change a model that was saved in Python to take arrays and to answer with 0/1 columns or classes.

    Return its names. Classes become words or integers, as in data files.
    """
    kinds, named, spaces = _kinds_of(_first(model)), columns_of(model), label_spaces(model)
    if any(kind != "number" for kind in kinds) and not named:
        raise ModelFileError("it takes columns of words without names; fit it on a frame")
    for part in _wrapped(model):
        _use_plain_labels(part)
    for step in _all_steps(model):
        if "transformers_" in vars(step):
            _select_by_position(step)
        if "categories_" in vars(step):
            # Frames have NaN for a missing word, files have None.
            step.categories_ = [_nan_to_none(known) for known in step.categories_]
        vars(step).pop("feature_names_in_", None)
    several = bool(spaces) and not spaces[0].single_label
    labelled = not several or spaces[0].classes.dtype.kind == "O"
    words = named if any(kind != "number" for kind in kinds) else None
    return Names(tuple(named), words, tuple(map(str, model.classes_.tolist())), labelled, several)


def columns_of(model: Any) -> dict[str, str]:
    """Return the column names of a fitted model and their kinds; empty if it has no names."""
    names = getattr(model, "feature_names_in_", ())
    return dict(zip(map(str, names), _kinds_of(_first(model)), strict=True)) if len(names) else {}


def label_spaces(model: Any) -> list[LabelSpace]:
    """Return the label spaces of a model and of the models that it wraps."""
    return [space for part in _wrapped(model) for _, _, space in _label_spaces(part)]


def _all_steps(model: Any) -> Iterator[Any]:
    """Yield a model and all fitted steps in it."""
    yield model
    inner = [step for _, step in getattr(model, "steps", ())]
    inner += [step for _, step, _ in vars(model).get("transformers_", ())]
    inner += [*vars(model).get("estimators_", ()), vars(model).get("estimator_")]
    for step in inner:
        if step not in (None, "passthrough", "drop"):
            yield from _all_steps(step)


def _first(model: Any) -> Any:
    """Return the first step, which takes the columns of the data."""
    while hasattr(model, "estimator_"):
        model = model.estimator_
    return flatten([model])[0]


def _kinds_of(step: Any) -> list[str]:
    """Return the kinds of the columns that a fitted step takes."""
    if isinstance(step, NamedColumns):
        return list(step.kinds.values())
    if "_table" in vars(step):
        return list(step._table.kinds.values())
    if type(step).__name__ in VECTORISERS:
        raise ModelFileError("it takes a list of texts; fit it on a frame, behind maxmargin.prepare")
    kinds = ["number"] * int(step.n_features_in_)
    if type(step).__name__ == "OneHotEncoder":
        return ["category" if known.dtype.kind in "UO" else "number" for known in step.categories_]
    for _, part, columns in vars(step).get("transformers_", ()):
        positions = _positions(step, columns)
        inner = flatten([part])[0]
        if type(inner).__name__ in VECTORISERS:
            own = ["text"]
        else:
            own = ["date"] * len(positions) if isinstance(inner, DateColumns) else _kinds_of(inner)
        for position, kind in zip(positions, own, strict=True):
            kinds[position] = kind
    return kinds


def _positions(step: Any, columns: Any) -> list[int]:
    names = vars(step).get("feature_names_in_")
    position: dict[Any, int] = {} if names is None else {name: j for j, name in enumerate(names.tolist())}
    own = columns if isinstance(columns, list) else [columns]
    return [position[column] if isinstance(column, str) else column for column in own]


def _select_by_position(step: Any) -> None:
    """Change a ColumnTransformer to select its columns by position."""
    for name in ("transformers", "transformers_"):
        parts = []
        for word, one, columns in getattr(step, name):
            positions = _positions(step, columns)
            parts.append((word, one, positions if isinstance(columns, list) else positions[0]))
        setattr(step, name, parts)
    vars(step).pop("feature_names_in_", None)
    rebuild(step)


def _nan_to_none(known: np.ndarray) -> np.ndarray:
    if known.dtype != object:
        return known
    return np.array([*(None if word != word else word for word in known.tolist()), None], dtype=object)[:-1]


def _use_plain_labels(part: Any) -> None:
    """Let a model answer with the labels of data files: words, integers or 0/1 columns."""
    several = False
    for name, labels, space in list(_label_spaces(part)):
        several = not space.single_label
        plain = space
        if not several:
            plain = replace(space, classes=_plain(space.classes))
        elif space.kind != "sparse":
            plain = replace(space, kind="indicator", container=None, dtype=np.dtype(np.int64))
        _set_space(part, name, labels, plain)
    if "classes_" in vars(part) and not several:
        part.classes_ = _plain(part.classes_)


def _plain(names: np.ndarray) -> np.ndarray:
    """Return classes as words or integers."""
    if names.dtype.kind == "f" and (names == np.rint(names)).all():
        return names.astype(np.int64)
    return names if names.dtype.kind in "iu" else classes([str(name) for name in names.tolist()])[0]
