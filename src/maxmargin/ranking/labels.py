"""Labels of a stream: words outside, indices in order of first occurrence inside.

The kinds are those of `edge.labels.LabelSpace`; here each row becomes the list of its relevant
labels, and labels that were never met before are added at the end.
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
    """A rule: labels are numbered in their order, and of the family of their kind."""
    space = state["space"]
    if state["family"] != _FAMILY.get(space.kind, space.kind):
        raise ValueError(f"labels of the kind {space.kind} are not {state['family']}")
    if state["index"] != {name: k for k, name in enumerate(space.classes.tolist())}:
        raise ValueError("its labels are not numbered in their order")


class GrowingLabels:
    """The labels a stream has shown so far, and the kind in which it shows them."""

    STATE: ClassVar[State] = State(
        {
            "space": part("LabelSpace"),
            "index": Numbered(size="n_classes"),
            "family": chosen("classes", "sets", "indicator", "frame", "sparse"),
        },
        _check_index,
    )

    def __init__(self, y: Any, classes: Any = None, declare: bool = False) -> None:
        """Recognise the kind of `y`; `declare` makes all its labels known in sorted order."""
        self.space = LabelSpace.recognise(y) if declare else _recognise(y)
        self.index: dict[Any, int] = {}
        self.family = _FAMILY.get(self.space.kind, self.space.kind)
        known = self.space.classes
        if classes is not None:
            known = _declared(classes, self.space)
        elif not declare and self.family in ("classes", "sets"):
            known = known[:0]
        self.space = replace(self.space, classes=known)
        self.index = {name: k for k, name in enumerate(known.tolist())}

    @property
    def single_label(self) -> bool:
        """Whether every row has exactly one relevant label."""
        return self.family == "classes"

    @property
    def classes(self) -> np.ndarray:
        """Labels in the order of their indices."""
        return self.space.classes

    def read(self, y: Any, grow: bool = True) -> Relevant:
        """Relevant labels of every row; new labels are added, or refused when `grow` is false."""
        known = len(self.index)
        readers = {
            "classes": self._read_classes,
            "sets": self._read_sets,
            "indicator": self._read_indicator,
            "frame": self._read_frame,
            "sparse": self._read_sparse,
        }
        relevant = readers[self.family](y)
        if len(self.index) > known:
            fresh = [name for name, k in self.index.items() if k >= known]
            if not grow:
                for name in fresh:
                    del self.index[name]
                raise ValueError(f"y holds the label {fresh[0]!r}, which the ranker has not met.")
            self.space = replace(self.space, classes=_append(self.classes, fresh))
        return relevant

    def _indices(self, names: list[Any]) -> np.ndarray:
        return np.array([self.index.setdefault(name, len(self.index)) for name in names], np.int64)

    def _read_classes(self, y: Any) -> Relevant:
        values = np.asarray(y)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values.ravel()
        if values.ndim != 1 or (values.dtype == object and isinstance(values[0], edge.CONTAINERS)):
            raise ValueError("y was a vector of classes before and is not one now; keep to one kind.")
        if values.dtype.kind == "f" and not (values == np.rint(values)).all():
            raise ValueError("y holds numbers that are no classes (NaN, infinite or fractional).")
        if len(self.classes) and _sort(values.dtype) != _sort(self.classes.dtype):
            raise ValueError(
                f"y holds {values.dtype} and held {self.classes.dtype} before; keep to one type of label."
            )
        names, first, codes = np.unique(values, return_index=True, return_inverse=True)
        by_occurrence = np.argsort(first, kind="stable")
        numbers = np.empty(len(names), np.int64)
        numbers[by_occurrence] = self._indices(names[by_occurrence].tolist())
        return Relevant(np.arange(len(values) + 1), numbers[codes.ravel()])

    def _read_sets(self, y: Any) -> Relevant:
        if not edge.is_sets(y, expected=True):
            raise ValueError("y was a sequence of label sets before and is not one now; keep to one kind.")
        told = edge.label_rows(y)
        if None in told:
            raise ValueError(
                f"y[{told.index(None)}] is None; a ranker needs the complete set of relevant labels of every "
                "row: drop the row, or write an empty set for no label."
            )
        rows = [self._indices(_sorted(labels)) for labels in told]
        start = np.cumsum([0] + [len(row) for row in rows])
        return Relevant(start, np.concatenate(rows) if rows else np.empty(0, np.int64))

    def _read_indicator(self, y: Any) -> Relevant:
        return self._of_matrix(edge.signs_of_dense(np.atleast_2d(np.asarray(y))))

    def _read_frame(self, y: Any) -> Relevant:
        frame = nw.from_native(y, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise ValueError("y was a frame of labels before and is not one now; keep to one kind.")
        columns = self._indices(list(frame.columns))
        relevant = self._of_matrix(edge.signs_of_dense(edge.frame_values(frame)), named=True)
        return Relevant(relevant.start, columns[relevant.labels])

    def _read_sparse(self, y: Any) -> Relevant:
        matrix = sp.csr_array(check_format(y, "y"))
        if not sp.issparse(y) or not np.isin(matrix.data, (0, 1)).all():
            raise ValueError("y must be a sparse matrix of zeros and ones, as it was before.")
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
            raise ValueError(f"y has {n_columns} label columns, but {len(self.index)} are known.")
        self._indices(list(range(len(self.index), n_columns)))


def _recognise(y: Any) -> LabelSpace:
    """Kind of the first y of a stream; unlike `LabelSpace` it lets every set be empty."""
    if edge.is_sets(y):
        rows = edge.label_rows(y)
        if not any(rows):
            return LabelSpace("sets", np.empty(0, object), edge.container_of(rows))
    return LabelSpace.recognise(y)


def _declared(classes: Any, space: LabelSpace) -> np.ndarray:
    """Labels announced in advance, in the order of their indices."""
    if space.kind == "sets":
        return edge.sorted_names([list(classes)])
    if space.single_label:
        return np.unique(np.asarray(classes))
    names = np.asarray(classes)
    if len(names) != len(space.classes):
        raise ValueError(f"classes names {len(names)} labels, but y has {len(space.classes)} columns.")
    return names


def _sorted(labels: Any) -> list[Any]:
    names = set(labels)
    try:
        return sorted(names)
    except TypeError:
        return sorted(names, key=lambda name: (type(name).__name__, str(name)))


def _sort(dtype: np.dtype) -> str:
    """Whether a type holds numbers, strings or anything else; these do not mix."""
    return "number" if dtype.kind in "biuf" else "text" if dtype.kind in "US" else dtype.kind


def _append(classes: np.ndarray, names: list[Any]) -> np.ndarray:
    """Labels with new ones behind them, in the type of the old ones where they fit it."""
    fresh = np.empty(len(names), classes.dtype if classes.dtype.kind in "Obiuf" else np.asarray(names).dtype)
    fresh[:] = names
    return np.concatenate([classes, fresh])
