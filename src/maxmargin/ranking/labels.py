"""Labels of a stream, numbered in order of first occurrence.

The kinds are those of `edge.labels.LabelSpace`. Each row becomes the list of its relevant labels, and new
labels are added at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp

from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import Numbered, Sizes, State, chosen, part
from maxmargin.edge import labels as edge
from maxmargin.edge.labels import LabelSpace
from maxmargin.ranking.loops import Relevant

_FAMILY = {"binary": "classes", "multiclass": "classes", "sign": "indicator"}


def _check_index(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that labels are numbered in their order, and that the family fits their kind."""
    space = state["space"]
    if state["family"] != _FAMILY.get(space.kind, space.kind):
        raise ValueError(f"labels of the kind {space.kind} are not {state['family']}")
    if state["index"] != {name: k for k, name in enumerate(space.classes.tolist())}:
        raise ValueError("its labels are not numbered in the order of their names")


class GrowingLabels:
    """The labels of a stream up to now, and their kind."""

    STATE: ClassVar[State] = State(
        {
            "space": part("LabelSpace"),
            "index": Numbered(size="n_classes"),
            "family": chosen("classes", "sets", "indicator", "frame", "sparse"),
        },
        _check_index,
    )

    def __init__(self, y: Any, classes: Any = None, declare: bool = False) -> None:
        """Recognise the kind of `y`; with `declare`, all its labels are known at once, in sorted order."""
        self.space = LabelSpace.recognise(y) if declare else _recognise(y)
        self.family = _FAMILY.get(self.space.kind, self.space.kind)
        known = self.space.classes
        if classes is not None:
            known = _declared(classes, self.space)
        elif not declare and self.family in ("classes", "sets"):
            known = known[:0]
        self.space = replace(self.space, classes=known)
        self.index: dict[Any, int] = {name: k for k, name in enumerate(known.tolist())}

    @property
    def single_label(self) -> bool:
        """Whether every row has exactly one relevant label."""
        return self.family == "classes"

    @property
    def classes(self) -> np.ndarray:
        """Labels in the order of their indices."""
        return self.space.classes

    def read(self, y: Any, grow: bool = True) -> Relevant:
        """Return the relevant labels of every row; add new labels, or raise an error if `grow` is false."""
        known = len(self.index)
        relevant: Relevant = getattr(self, f"_read_{self.family}")(y)
        if len(self.index) > known:
            fresh = [name for name, k in self.index.items() if k >= known]
            if not grow:
                for name in fresh:
                    del self.index[name]
                raise ValueError(f"y contains the label {fresh[0]!r}, which the ranker has not met.")
            self.space = replace(self.space, classes=_append(self.classes, fresh))
        return relevant

    def _indices(self, names: list[Any]) -> np.ndarray:
        return np.array([self.index.setdefault(name, len(self.index)) for name in names], np.int64)

    def _read_classes(self, y: Any) -> Relevant:
        values = np.asarray(y)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values.ravel()
        if values.ndim != 1 or (values.dtype == object and isinstance(values[0], edge.CONTAINERS)):
            raise ValueError("y must be a vector of classes, as in the first call; keep to one kind.")
        if values.dtype.kind == "f" and not (values == np.rint(values)).all():
            raise ValueError("y contains numbers that are no classes (NaN, infinite or fractional).")
        if len(self.classes) and _sort(values.dtype) != _sort(self.classes.dtype):
            raise ValueError(
                f"y is of type {values.dtype}, after {self.classes.dtype} before; keep to one type of label."
            )
        names, first, codes = np.unique(values, return_index=True, return_inverse=True)
        by_occurrence = np.argsort(first, kind="stable")
        numbers = np.empty(len(names), np.int64)
        numbers[by_occurrence] = self._indices(names[by_occurrence].tolist())
        return Relevant(np.arange(len(values) + 1), numbers[codes.ravel()])

    def _read_sets(self, y: Any) -> Relevant:
        if not edge.is_sets(y, expected=True):
            raise ValueError("y must be a sequence of label sets, as in the first call; keep to one kind.")
        given = edge.label_rows(y)
        if None in given:
            raise ValueError(
                f"y[{given.index(None)}] is None; a ranker needs the complete set of relevant labels of "
                "every row: drop the row, or write an empty set for no label."
            )
        rows = [self._indices(_sorted(labels)) for labels in given]
        start = np.cumsum([0] + [len(row) for row in rows])
        return Relevant(start, np.concatenate(rows) if rows else np.empty(0, np.int64))

    def _read_indicator(self, y: Any) -> Relevant:
        return self._of_matrix(edge.signs_of_dense(np.atleast_2d(np.asarray(y))))

    def _read_frame(self, y: Any) -> Relevant:
        frame = nw.from_native(y, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise ValueError("y must be a frame of labels, as in the first call; keep to one kind.")
        columns = self._indices(list(frame.columns))
        relevant = self._of_matrix(edge.signs_of_dense(edge.frame_values(frame)), named=True)
        return Relevant(relevant.start, columns[relevant.labels])

    def _read_sparse(self, y: Any) -> Relevant:
        matrix = sp.csr_array(check_format(y, "y"))
        if not sp.issparse(y) or not np.isin(matrix.data, (0, 1)).all():
            raise ValueError("y must be a sparse matrix of zeros and ones, as in the first call.")
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        self._name_columns(matrix.shape[1])
        return Relevant(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))

    def _of_matrix(self, signs: np.ndarray, named: bool = False) -> Relevant:
        if (signs == 0).any():
            row = int(np.flatnonzero((signs == 0).any(axis=1))[0])
            raise ValueError(
                f"y has an unknown (NaN) entry in row {row}; a ranker needs the complete set of relevant "
                "labels of every row: drop the row or fill the entry."
            )
        if not named:
            self._name_columns(signs.shape[1])
        rows, labels = np.nonzero(signs > 0)
        return Relevant(np.searchsorted(rows, np.arange(len(signs) + 1)), labels.astype(np.int64))

    def _name_columns(self, n_columns: int) -> None:
        if n_columns < len(self.index):
            raise ValueError(f"y has {n_columns} label columns, fewer than the {len(self.index)} known ones.")
        self._indices(list(range(len(self.index), n_columns)))


def _recognise(y: Any) -> LabelSpace:
    """Return the kind of the first y of a stream; all its sets may be empty."""
    if edge.is_sets(y):
        rows = edge.label_rows(y)
        if not any(rows):
            return LabelSpace("sets", np.empty(0, object), edge.container_of(rows))
    return LabelSpace.recognise(y)


def _declared(classes: Any, space: LabelSpace) -> np.ndarray:
    """Return the labels given in advance, in the order of their indices."""
    if space.kind == "sets":
        return edge.sorted_names([list(classes)])
    if space.single_label:
        return np.unique(np.asarray(classes))
    names = np.asarray(classes)
    if len(names) != len(space.classes):
        raise ValueError(f"classes has {len(names)} labels, but y has {len(space.classes)} columns.")
    return names


def _sorted(labels: Any) -> list[Any]:
    names = set(labels)
    try:
        return sorted(names)
    except TypeError:
        return sorted(names, key=lambda name: (type(name).__name__, str(name)))


def _sort(dtype: np.dtype) -> str:
    """Return whether a type is one of numbers, of strings, or another; a stream may not mix them."""
    return "number" if dtype.kind in "biuf" else "text" if dtype.kind in "US" else dtype.kind


def _append(classes: np.ndarray, names: list[Any]) -> np.ndarray:
    """Append new labels, in the type of the old ones if possible."""
    fresh = np.empty(len(names), classes.dtype if classes.dtype.kind in "Obiuf" else np.asarray(names).dtype)
    fresh[:] = names
    return np.concatenate([classes, fresh])
