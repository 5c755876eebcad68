"""Models of tables know their columns and labels by name.

`NamedColumns` finds the columns of a frame. `by_name` gives it to a model that `maxmargin fit` wrote: such a
file holds the model by places, and the names in the notes beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.state import INPUT, Checked, Sizes, State, chosen
from maxmargin.edge.labels import LabelSpace
from maxmargin.edge.wrappers import takes_kernel
from maxmargin.io.allowed import ModelFileError
from maxmargin.io.mixed import KINDS, Cells
from maxmargin.io.reach import VECTORISERS, flatten
from maxmargin.io.steps import check_kinds, rebuild
from maxmargin.io.table import classes
from maxmargin.io.words import no_column

# What `maxmargin fit` notes beside a model.
NOTES: dict[str, Any] = {
    "family": str, "data": str, "samples": int, "label_names": list, "feature_names": list, "sparse": bool,
    "seconds": (int, float), "reading": dict,
}  # fmt: skip


def _kinds(value: Any) -> str | None:
    if (
        type(value) is dict
        and value
        and all(isinstance(word, str) for pair in value.items() for word in pair)
    ):
        unknown = set(value.values()) - set(KINDS)
        return f"{unknown.pop()!r} is no kind of column" if unknown else None
    return "a dict of the names of columns to their kinds was expected"


def _words(value: Any) -> str | None:
    words = isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)
    return None if words else "a list of words was expected"


def _of_kinds(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: the names are those of the parameter."""
    if "feature_names_in_" in state and list(state["kinds"]) != state["feature_names_in_"].tolist():
        raise ValueError("its columns have other names than its kinds")


class NamedColumns(TransformerMixin, BaseEstimator):
    """The columns of a table by their names, in the order in which the model behind was fitted.

    Parameters
    ----------
    kinds : dict of str to {"number", "category", "text", "date"}
        Name and kind of every column.
    decimal : {".", ","}, default="."
        The decimal mark of numbers that are written as words.
    missing : sequence of str, default=()
        Words that mean a missing value.

    Notes
    -----
    In a frame of pandas, polars or pyarrow columns are found by name: they come in any order, others are
    ignored, and values are read as `maxmargin predict` reads them. In anything else, a frame without names
    too, they are found by place, and there must be as many.

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
        _of_kinds,
        {"kinds": Checked(_kinds), "decimal": chosen(".", ","), "missing": Checked(_words)},
    )

    def __init__(self, kinds: dict[str, str], *, decimal: str = ".", missing: Sequence[str] = ()) -> None:
        self.kinds = kinds
        self.decimal = decimal
        self.missing = missing

    def fit(self, X: Any, y: Any = None) -> NamedColumns:
        """Check the kinds; nothing is learnt from X."""
        complaint = _kinds(self.kinds)
        if complaint is not None:
            raise ValueError(f"kinds: {complaint}.")
        self.n_features_in_ = len(self.kinds)
        self.feature_names_in_ = np.array(list(self.kinds), dtype=object)
        return self

    def transform(self, X: Any) -> Any:
        """The columns as one array: of floats where all are numbers, of objects otherwise."""
        check_is_fitted(self)
        names, frame = list(self.kinds), _named(X)
        if frame is not None:
            return self._found(frame)
        if not sp.issparse(X):
            X = np.asarray(X, None if self._numbers else object)
        if X.ndim != 2 or X.shape[1] != len(names):
            raise ValueError(
                f"X has shape {X.shape}, but the model takes {len(names)} columns; pass a frame with the "
                f"columns {', '.join(map(repr, names[:5]))}{' and others' if len(names) > 5 else ''}."
            )
        if self._numbers:
            return X
        return self._joined([self._read(X[:, j].tolist(), name) for j, name in enumerate(names)])

    def select(self, X: Any) -> Any:
        """The columns of a frame by name; anything else as it is."""
        frame = _named(X)
        return X if frame is None else self._found(frame)

    def _found(self, frame: nw.DataFrame[Any]) -> np.ndarray:
        absent = [name for name in self.kinds if name not in frame.columns]
        if absent:
            raise ValueError(f"X: {no_column(absent, map(str, frame.columns))}.")
        return self._joined([self._values(frame[name], name) for name in self.kinds])

    @property
    def _numbers(self) -> bool:
        return set(self.kinds.values()) == {"number"}

    def _values(self, column: Any, name: str) -> Any:
        """The values of a column of a frame as a model takes them."""
        numeric = column.dtype.is_numeric() or column.dtype == nw.Boolean
        null = column.is_null().to_numpy()
        if numeric and self.kinds[name] == "number" and not self.missing:
            return np.asarray((column.cast(nw.Float64) if null.any() else column).to_numpy(), np.float64)
        return self._read(
            [None if no else cell for cell, no in zip(column.to_list(), null, strict=True)], name
        )

    def _read(self, values: list[Any], name: str) -> list[Any]:
        cells = Cells(decimal=self.decimal, missing=self.missing)
        meaning, types = cells.meaning[self.kinds[name]], set(map(type, values))
        if types == {float} and self.kinds[name] == "number" and not self.missing:
            return values
        try:
            if types <= {str, type(None)}:
                read = {word: meaning(cells.value(word)) for word in set(values)}
                return [read[word] for word in values]
            return [
                meaning(cells.value(value.item() if isinstance(value, np.generic) else value))
                for value in values
            ]
        except ValueError as error:
            raise ValueError(f"X, column {name!r}: {error}.") from None

    def _joined(self, columns: Sequence[Sequence[Any]]) -> np.ndarray:
        X = np.empty((len(columns[0]), len(columns)), np.float64 if self._numbers else object)
        for j, column in enumerate(columns):
            X[:, j] = column
        return X

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns."""
        return np.array(list(self.kinds), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        for name in ("sparse", "categorical", "string", "allow_nan"):
            setattr(tags.input_tags, name, True)
        return tags


def _named(X: Any) -> nw.DataFrame[Any] | None:
    """A frame whose columns have names, None of anything else."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    named = isinstance(frame, nw.DataFrame) and any(isinstance(name, str) for name in frame.columns)
    return frame if named else None


def is_noted(metadata: Mapping[str, Any]) -> bool:
    """Whether the metadata of a file are as `maxmargin fit` writes them; a file may come from anywhere."""
    if not all(isinstance(metadata.get(name), kind) for name, kind in NOTES.items()):
        return False
    kinds = metadata.get("columns")
    words = [*metadata["label_names"], *metadata["feature_names"]]
    return (
        (kinds is None or _kinds(kinds) is None)
        and isinstance(metadata.get("target", ""), str)
        and all(isinstance(word, str) for word in words)
        and all(value is None or isinstance(value, (str, bool)) for value in metadata["reading"].values())
    )


def numbered(names: Sequence[str]) -> bool:
    """Whether the names say no more than the place of each feature, as in SVMlight."""
    return all(name == f"x{j}" for j, name in enumerate(names))


def by_name(model: Any, metadata: Mapping[str, Any]) -> Any:
    """A model of `maxmargin fit` that knows its columns and labels by the names noted beside it."""
    if not is_noted(metadata):
        return model
    _name_labels(model, metadata["label_names"])
    kinds, names = metadata.get("columns") or {}, metadata["feature_names"]
    if metadata["family"] == "chain" or numbered(names) or hasattr(model, "feature_names_in_"):
        return model
    if takes_kernel(model):
        return model
    width = model.n_features_in_
    # A ranker may have room for more columns than it has met.
    room = any(getattr(part, "n_features", None) is not None for part in _parts(model))
    if len(set(names)) < len(names) or len(names) > width or (len(names) < width and not room):
        raise ModelFileError(f"its notes name {len(names)} columns, and the model takes {width}")
    reading = metadata["reading"]
    decimal, missing = reading.get("decimal") or ".", reading.get("missing") or ""
    columns = NamedColumns(
        {name: kinds.get(name, "number") for name in names},
        decimal="," if decimal == "," else ".",
        missing=[word.strip() for word in missing.split(",")] if missing else [],
    )
    return _behind(columns.fit(None), model)


def _behind(columns: NamedColumns, model: Any) -> Any:
    """The model with its columns found by name: by the first step of a pipeline, or by itself."""
    if hasattr(model, "steps"):
        check_kinds(list(columns.kinds.values()), flatten([model])[0])
        return Pipeline([("columns", columns), *model.steps])
    if hasattr(model, "estimator_"):
        model.estimator_ = _behind(columns, model.estimator_)
        if hasattr(model, "estimators_"):
            model.estimators_ = [_behind(columns, one) for one in model.estimators_]
    else:
        check_kinds(list(columns.kinds.values()), model)
        model._table = columns
    model.feature_names_in_ = columns.feature_names_in_
    return model


def _name_labels(model: Any, names: Sequence[str]) -> None:
    """Call the columns of 0/1 labels by their names in a model and in those that it wraps."""
    words = np.array([*names, None], dtype=object)[:-1]
    for part in _parts(model):
        for place in ("_labels", "_space"):
            labels = vars(part).get(place)
            space = getattr(labels, "space", labels)
            if not isinstance(space, LabelSpace) or space.kind not in ("indicator", "sign", "sparse"):
                continue
            if not np.array_equal(space.classes, np.arange(len(space.classes))):
                continue
            if len(names) != len(space.classes) or len(set(names)) < len(names):
                raise ModelFileError(
                    f"its notes name {len(names)} labels, and the model has {len(space.classes)}"
                )
            named = replace(space, classes=words)
            if labels is space:
                setattr(part, place, named)
            else:
                labels.space, labels.index = named, {name: k for k, name in enumerate(names)}
            part.classes_ = words


def _parts(model: Any) -> Iterator[Any]:
    """A model, and the fitted models that it wraps."""
    yield model
    inner = [model.steps[-1][1]] if hasattr(model, "steps") else []
    for one in (*inner, *vars(model).get("estimators_", ()), vars(model).get("estimator_")):
        if one is not None:
            yield from _parts(one)


@dataclass(frozen=True)
class Names:
    """What a model that was saved in Python says of the data it takes.

    `columns` are the names of its columns, none where it does not know them, and `kinds` their kinds, None
    where all are numbers. `labelled` is false where labels have no names, and `several` is true where samples
    have several.
    """

    columns: tuple[str, ...]
    kinds: dict[str, str] | None
    labels: tuple[str, ...]
    labelled: bool
    several: bool


def by_place(model: Any) -> Names:
    """Let a model that was saved in Python take arrays and answer 0/1 columns or classes; the names it knows.

    Classes become words or whole numbers, as files of data have them.
    """
    kinds, named, spaces = _kinds_of(_first(model)), columns_of(model), label_spaces(model)
    if any(kind != "number" for kind in kinds) and not named:
        raise ModelFileError("it takes columns of words without names; fit it on a frame")
    for part in _parts(model):
        _plain_labels(part)
    for step in _steps(model):
        if "transformers_" in vars(step):
            _place_columns(step)
        if "categories_" in vars(step):
            # Frames have NaN for a missing word, files have None.
            step.categories_ = [_without_nan(known) for known in step.categories_]
        vars(step).pop("feature_names_in_", None)
    several = bool(spaces) and not spaces[0].single_label
    labelled = not several or spaces[0].classes.dtype.kind == "O"
    words = named if any(kind != "number" for kind in kinds) else None
    return Names(tuple(named), words, tuple(map(str, model.classes_.tolist())), labelled, several)


def columns_of(model: Any) -> dict[str, str]:
    """The columns that a fitted model knows by name, and their kinds; none of one that knows no names."""
    names = getattr(model, "feature_names_in_", ())
    return dict(zip(map(str, names), _kinds_of(_first(model)), strict=True)) if len(names) else {}


def label_spaces(model: Any) -> list[LabelSpace]:
    """The labels of a model and of those that it wraps, where they have a kind."""
    found = [vars(part).get(place) for part in _parts(model) for place in ("_labels", "_space")]
    spaces = [getattr(labels, "space", labels) for labels in found]
    return [space for space in spaces if isinstance(space, LabelSpace)]


def _steps(model: Any) -> Iterator[Any]:
    """A model and all fitted steps in it."""
    yield model
    inner = [step for _, step in getattr(model, "steps", ())]
    inner += [step for _, step, _ in vars(model).get("transformers_", ())]
    inner += [*vars(model).get("estimators_", ()), vars(model).get("estimator_")]
    for step in inner:
        if step not in (None, "passthrough", "drop"):
            yield from _steps(step)


def _first(model: Any) -> Any:
    """What sees the columns of the data first."""
    while hasattr(model, "estimator_"):
        model = model.estimator_
    return flatten([model])[0]


def _kinds_of(step: Any) -> list[str]:
    """The kinds of the columns that a fitted step takes."""
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
        places = _places(step, columns)
        inner = flatten([part])[0]
        if type(inner).__name__ in VECTORISERS:
            own = ["text"]
        else:
            own = ["date"] * len(places) if type(inner).__name__ == "DateColumns" else _kinds_of(inner)
        for place, kind in zip(places, own, strict=True):
            kinds[place] = kind
    return kinds


def _places(step: Any, columns: Any) -> list[int]:
    names = vars(step).get("feature_names_in_")
    place: dict[Any, int] = {} if names is None else {name: j for j, name in enumerate(names.tolist())}
    own = columns if isinstance(columns, list) else [columns]
    return [place[column] if isinstance(column, str) else column for column in own]


def _place_columns(step: Any) -> None:
    """Let a ColumnTransformer find its columns by place."""

    def placed(columns: Any) -> Any:
        places = _places(step, columns)
        return places if isinstance(columns, list) else places[0]

    for name in ("transformers", "transformers_"):
        parts = [(word, one, placed(columns)) for word, one, columns in getattr(step, name)]
        setattr(step, name, parts)
    vars(step).pop("feature_names_in_", None)
    rebuild(step)


def _without_nan(known: np.ndarray) -> np.ndarray:
    if known.dtype != object:
        return known
    return np.array([*(None if word != word else word for word in known.tolist()), None], dtype=object)[:-1]


def _plain_labels(part: Any) -> None:
    """Let a model answer as files of data have labels."""
    several = False
    for place in ("_labels", "_space"):
        labels = vars(part).get(place)
        space = getattr(labels, "space", labels)
        if not isinstance(space, LabelSpace):
            continue
        several = not space.single_label
        if not several:
            plain = replace(space, classes=_plain(space.classes))
        elif space.kind == "sparse":
            plain = space
        else:
            plain = replace(space, kind="indicator", container=None, dtype=np.dtype(np.int64))
        if labels is space:
            setattr(part, place, plain)
        else:
            labels.space = plain
            labels.index = {name: k for k, name in enumerate(plain.classes.tolist())}
    if "classes_" in vars(part) and not several:
        part.classes_ = _plain(part.classes_)


def _plain(names: np.ndarray) -> np.ndarray:
    """Classes as words or whole numbers."""
    if names.dtype.kind == "f" and (names == np.rint(names)).all():
        return names.astype(np.int64)
    return names if names.dtype.kind in "iu" else classes([str(name) for name in names.tolist()])[0]
