"""Conversion of labels: any kind of y outside, a matrix of signs inside.

`LabelSpace.read` converts the labels passed to `fit` to a matrix of signs (int8, N x L): +1 the label is
on, -1 it is off, 0 it is unknown. The space stores the kind of y and returns predictions in it. A row of
sets that is None (or NaN, as in frames) is a sample with unknown labels.

| passed to fit                                  | kind         | predict returns                 |
|------------------------------------------------|--------------|---------------------------------|
| array of 0/1, booleans, NaN for unknown        | "indicator"  | array of 0/1 of the same dtype  |
| array of -1/+1, NaN for unknown                | "sign"       | array of -1/+1                  |
| scipy sparse matrix or array of 0/1            | "sparse"     | the same kind of CSR            |
| pandas or polars frame of such columns         | "frame"      | the same kind of frame          |
| list, array or Series of sets, lists or tuples | "sets"       | list of the same containers     |
| vector of two classes                          | "binary"     | vector of classes               |
| vector of more classes (or of one)             | "multiclass" | vector of classes (best score)  |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_consistent_length, column_or_1d

from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import LabelNames, Ruled, Sizes, State, chosen
from maxmargin.edge.estimator import check_given, class_vector, is_missing, warn

CONTAINERS = (set, frozenset, list, tuple)
NUMBERS = (int, float, np.number, np.bool_)
# Number of names that a warning lists.
MAX_LISTED = 5
UNKNOWN = (
    "y has unknown entries (None or NaN), which need dense dual variables; use loss='hinge' with a larger "
    "memory_limit, give the entries a value, or leave their samples out."
)
# Libraries of frames that a model file may name.
FRAMES = ("pandas", "polars", "pyarrow")
# Kinds of labels: the containers and the kinds of dtype that predictions may have.
KINDS: dict[str, tuple[tuple[Any, ...], str]] = {
    "indicator": ((None,), "biuf"),
    "sign": ((None,), "iuf"),
    "sparse": ((sp.csr_array, sp.csr_matrix), "iu"),
    "frame": (FRAMES, ""),
    "sets": (CONTAINERS, ""),
    "binary": ((None,), "biufUO"),
    "multiclass": ((None,), "biufUO"),
}


def _check_space(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check a stored space: container and dtype agree with the kind, which fixes the number of columns."""
    kind, container, dtype = state["kind"], state["container"], state["dtype"]
    sizes.fix("n_columns", 1 if kind == "binary" else sizes["n_classes"])
    if kind == "frame":
        names = state["classes"].tolist()
        known = isinstance(dtype, str) and dtype in ("sign", "indicator")
        if container not in FRAMES or not known:
            raise ValueError("a frame for predictions was expected")
        if len(set(names)) < len(names) or not all(isinstance(name, (str, int)) for name in names):
            raise ValueError("columns of a frame with different names were expected")
        if container != "pandas" and not all(isinstance(name, str) for name in names):
            raise ValueError("columns of a frame named by strings were expected")
        return
    containers, kinds = KINDS[kind]
    if not any(container is one for one in containers):
        raise ValueError(f"labels of the kind {kind} do not come in {container!r}")
    if dtype.kind not in kinds if isinstance(dtype, np.dtype) else dtype is not None or kinds:
        raise ValueError(f"labels of the kind {kind} do not have the dtype {dtype!r}")


def check_same(classes: np.ndarray, known: np.ndarray) -> None:
    """Check a stored model: `classes_` are the labels that it predicts."""
    if classes.dtype != known.dtype or not np.array_equal(classes, known):
        raise ValueError("its classes_ differ from the labels that it predicts")


def check_answers(space: LabelSpace, classes: np.ndarray) -> None:
    """Check a stored model: `classes_` are those of its label space, and binary labels have two."""
    check_same(classes, space.classes)
    if space.kind == "binary" and len(space.classes) != 2:
        raise ValueError(f"it has binary labels, but {len(space.classes)} classes")


@dataclass(frozen=True)
class LabelSpace:
    """The labels of a fitted estimator and the kind in which they were passed.

    `container` is the class of a prediction (of sets, of sparse rows), or the name of a frame's library.
    """

    kind: str
    classes: np.ndarray
    container: Any = None
    dtype: Any = None

    STATE: ClassVar[State] = State(
        {
            "kind": chosen(*KINDS),
            "classes": LabelNames("n_classes", least=0),
            "container": Ruled(),
            "dtype": Ruled(),
        },
        _check_space,
    )

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Older pickles store an empty frame in place of the name of its library."""
        self.__dict__.update(state)
        if isinstance(self.container, nw.DataFrame):
            self.__dict__["container"] = _library(self.container)

    @classmethod
    def read(cls, y: Any) -> tuple[LabelSpace, np.ndarray]:
        """Return the label space of `y` and the matrix of signs."""
        space = cls.recognise(y)
        return space, space.signs(y)

    @classmethod
    def recognise(cls, y: Any) -> LabelSpace:
        """Return the label space of `y`, which must have at least one label."""
        space = cls._recognise(y)
        if not len(space.classes) and not space.single_label:
            raise ValueError("y has no columns; pass one column per label.")
        return space

    @classmethod
    def _recognise(cls, y: Any) -> LabelSpace:
        check_given(y, "the labels")
        if sp.issparse(y):
            check_format(y, "y")
            container = sp.csr_array if isinstance(y, sp.sparray) else sp.csr_matrix
            dtype = y.dtype if y.dtype.kind in "iu" else np.dtype(np.int64)
            return cls("sparse", np.arange(y.shape[1]), container, dtype)
        frame = nw.from_native(y, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            kind = "sign" if _has_minus_one(frame_values(frame)) else "indicator"
            return cls("frame", np.array(frame.columns, dtype=object), _library(frame), kind)
        if is_sets(y):
            rows = label_rows(y)
            return cls("sets", sorted_names(rows), container_of(rows))
        values = np.asarray(y)
        if values.ndim == 2 and values.shape[1] == 1 and not _is_indicator(values):
            values = column_or_1d(values, warn=True)
        if values.ndim == 2:
            values = matrix_of(values)
            kind = "sign" if _has_minus_one(values) else "indicator"
            dtype = np.dtype(np.int64) if values.dtype.kind in "fO" else values.dtype
            return cls(kind, np.arange(values.shape[1]), None, dtype)
        if values.ndim != 1:
            raise ValueError(
                f"y should be a 1d array, or a 2d array of label indicators; got an array of shape "
                f"{values.shape} instead."
            )
        classes = np.unique(class_vector(values))
        return cls("binary" if classes.size == 2 else "multiclass", classes, None, classes.dtype)

    @property
    def names(self) -> np.ndarray:
        """The label of every column; the second class if there are two."""
        return self.classes[1:] if self.kind == "binary" else self.classes

    @property
    def n_columns(self) -> int:
        """Number of columns of signs: one for two classes, else one per class or label."""
        return 1 if self.kind == "binary" else len(self.classes)

    @property
    def single_label(self) -> bool:
        """Whether each sample has exactly one class."""
        return self.kind in ("binary", "multiclass")

    def signs(self, y: Any) -> np.ndarray:
        """Encode labels of the kind passed to `fit` as an int8 matrix of +1, -1 and 0 (unknown)."""
        if self.kind == "sparse":
            return _signs_of_sparse(y)
        if self.kind == "sets":
            return self._signs_of_sets(label_rows(y))
        if self.single_label:
            codes = _codes(self.classes, column_or_1d(np.asarray(y)))
            if self.kind == "binary":
                return np.where(codes == 1, 1, -1).astype(np.int8)[:, None]
            signs = np.full((len(codes), len(self.classes)), -1, np.int8)
            signs[np.arange(len(codes)), codes] = 1
            return signs
        frame = self.kind == "frame"
        values = frame_values(nw.from_native(y, eager_only=True)) if frame else np.asarray(y)
        if values.shape[1] != len(self.classes):
            raise ValueError(f"y has {values.shape[1]} label columns, but {len(self.classes)} were fitted.")
        return signs_of_dense(values)

    def _signs_of_sets(self, rows: Sequence[Any]) -> np.ndarray:
        column = {name: k for k, name in enumerate(self.classes.tolist())}
        signs = np.full((len(rows), len(column)), -1, np.int8)
        for i, labels in enumerate(rows):
            if labels is None:
                signs[i] = 0
                continue
            for name in labels:
                signs[i, _column(column, name, i)] = 1
        return signs

    def positives(self, y: Any) -> sp.csr_array:
        """Return which labels are on as sparse rows of booleans, without dense temporaries for sparse y."""
        if self.kind == "sparse":
            on = sp.csr_array(y, copy=True)
            on.sum_duplicates()
            if not np.isin(on.data, (0, 1)).all():
                raise ValueError(
                    "y is sparse and has values other than 0 and 1 (duplicate entries are summed); pass a "
                    "binary indicator without unknown entries."
                )
            on.eliminate_zeros()
            return sp.csr_array((np.ones(on.nnz, bool), on.indices, on.indptr), shape=on.shape)
        if self.kind == "sets":
            column = {name: k for k, name in enumerate(self.classes.tolist())}
            given = label_rows(y)
            if None in given:
                raise ValueError(UNKNOWN)
            rows = [sorted({_column(column, name, i) for name in labels}) for i, labels in enumerate(given)]
            indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
            indices = np.fromiter((k for row in rows for k in row), np.int64, int(indptr[-1]))
            return sp.csr_array(
                (np.ones(len(indices), bool), indices, indptr), shape=(len(rows), len(column))
            )
        signs = self.signs(y)
        if not signs.all():
            raise ValueError(UNKNOWN)
        return sp.csr_array(signs > 0)

    def answer(self, on: Any, like: Any = None) -> Any:
        """Return a boolean N x L matrix of predictions in the kind passed to fit.

        Sparse rows stay sparse for the kinds "sparse" and "sets". `like` is the X of the prediction; a
        pandas frame of predictions takes its index.
        """
        if sp.issparse(on) and self.kind == "sets":
            rows = np.split(on.indices, on.indptr[1:-1])
            return [self.container(self.classes[row].tolist()) for row in rows]
        if self.kind == "sparse":
            return self.container(on.astype(self.dtype))
        on = on.toarray() if sp.issparse(on) else on
        if self.kind == "indicator":
            return on.astype(self.dtype)
        if self.kind == "sign":
            return np.where(on, 1, -1).astype(self.dtype)
        if self.kind == "sets":
            return [self.container(self.classes[row].tolist()) for row in on]
        if self.kind == "frame":
            return self._frame(np.where(on, 1, -1 if self.dtype == "sign" else 0), like)
        return self.classes[on[:, 0].astype(int) if self.kind == "binary" else np.argmax(on, axis=1)]

    def _frame(self, values: np.ndarray, like: Any) -> Any:
        data = {name: values[:, k] for k, name in enumerate(self.classes)}
        try:
            native = nw.from_dict(data, backend=self.container).to_native()
        except ImportError as error:
            raise ImportError(
                f"The labels passed to fit were a {self.container} frame, and so are predictions; install "
                f"{self.container}."
            ) from error
        index = getattr(like, "index", None)
        if self.container == "pandas" and index is not None and len(index) == len(native):
            native.index = index
        return native

    def scores(self, decision: np.ndarray) -> np.ndarray:
        """Return a decision matrix in scikit-learn's shape: a vector for two classes."""
        return decision[:, 0] if self.kind == "binary" else decision

    def choose(self, decision: np.ndarray) -> np.ndarray:
        """Convert scores (N x L) to a boolean matrix: positive labels, or the best class."""
        if self.kind == "multiclass":
            on = np.zeros(decision.shape, bool)
            on[np.arange(len(decision)), np.argmax(decision, axis=1)] = True
            return on
        return decision > 0


class LabelClassifier(ClassifierMixin):
    """A classifier with scikit-learn's `score` for y of any kind."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of samples whose labels are all correct: (subset) accuracy.

        Unknown entries of y (NaN) are left out, and so are samples without a known entry.
        `maxmargin.metrics.scorer` has other measures.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : the true labels, in the kind passed to `fit`
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        float
        """
        answer = self.predict(X)
        if not isinstance(answer, list) and np.ndim(answer) == 1:
            return float(accuracy_score(y, answer, sample_weight=sample_weight))
        truth, chosen = signs_alike(y, surely_sets(answer))
        check_consistent_length(truth, chosen, sample_weight)
        known = truth != 0
        correct = np.all((truth == chosen) | ~known, axis=1)
        rows, weight = with_known(known, sample_weight, "y")
        return float(np.average(correct[rows], weights=weight))


def with_known(known: np.ndarray, sample_weight: Any, name: str) -> tuple[np.ndarray, Any]:
    """Return which samples have a known entry, and their weights."""
    rows = np.asarray(known.any(axis=1))
    if not rows.any():
        raise ValueError(f"{name} has no known entry; pass at least one sample with known labels.")
    return rows, None if sample_weight is None else np.asarray(sample_weight, dtype=float)[rows]


def constant_labels(signs: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which labels are constant among samples of positive weight, and which labels are ever on."""
    counted = signs if np.all(weight > 0) else signs * (weight > 0)
    on, off = counted.max(axis=0, initial=0) > 0, counted.min(axis=0, initial=0) < 0
    return np.logical_not(on & off), np.asarray(on)


def warn_of_constants(names: np.ndarray, constant: np.ndarray) -> None:
    """Warn about constant labels, if any."""
    if constant.any():
        warn(f"Label {quoted(names[constant])} is constant in y; the model will always predict the constant.")


def quoted(names: np.ndarray) -> str:
    """List the first names in quotes."""
    more = " and others" if len(names) > MAX_LISTED else ""
    return ", ".join(map(repr, names[:MAX_LISTED].tolist())) + more


def is_sets(y: Any, *, expected: bool = False) -> bool:
    """Whether y is a sequence of label collections, in contrast to a matrix of numbers.

    If collections are `expected`, lists of numbers are collections for all numbers.
    """
    rows = _entries(y)
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return False
    first = next((row for row in rows if not is_missing(row)), None)
    if rows is not y and not isinstance(first, CONTAINERS):
        return False
    known = [row for row in rows if not is_missing(row)]
    has_sets = any(isinstance(row, (set, frozenset)) for row in known)
    if not all(isinstance(row, CONTAINERS) for row in known):
        return has_sets
    if not known or rows is not y:  # a vector of objects holds collections, never rows of a matrix
        return bool(known)
    if expected or len(known) < len(rows) or has_sets:
        return True
    entries = [entry for row in known for entry in row]
    if len({len(row) for row in known}) > 1:
        return True
    if not all(isinstance(entry, NUMBERS) or is_missing(entry) for entry in entries):
        return True
    # Rows of equal length with 0, 1, -1 and missing entries only are an indicator written as lists. Rows of
    # other whole numbers are labels, unless one repeats a number: then they are a matrix with a wrong entry.
    if all(is_missing(entry) or entry in (-1, 0, 1) for entry in entries):
        return not entries
    whole = all(isinstance(entry, (int, np.integer)) for entry in entries)
    return whole and all(len(set(row)) == len(row) for row in known)


def label_rows(y: Any) -> list[Any]:
    """Return the collections of a y of sets, None for a row with unknown labels."""
    given = _entries(y)
    if given is None or isinstance(given, str):
        raise ValueError(
            f"y should be a sequence of sets, lists or tuples of labels. Got {type(y).__name__} instead."
        )
    rows = [None if is_missing(row) else row for row in given]
    for i, row in enumerate(rows):
        if row is not None and not isinstance(row, CONTAINERS):
            raise ValueError(
                f"y[{i}] is {row!r}, but other rows are collections of labels; write [{row!r}], or None "
                "for unknown labels."
            )
    return rows


def _entries(y: Any) -> Any:
    """Return the entries of a sequence, a vector of objects or a column of a frame; else None."""
    if isinstance(y, np.ndarray):
        return y.tolist() if y.ndim == 1 and y.dtype == object else None
    if isinstance(y, Sequence):
        return y
    series = nw.from_native(y, series_only=True, pass_through=True)
    if isinstance(series, nw.Series) and series.dtype in (nw.List, nw.Array, nw.Object, nw.Unknown):
        # Some versions of pyarrow and polars return lists as arrays.
        return [row.tolist() if isinstance(row, np.ndarray) else row for row in series.to_list()]
    return None


def signs_alike(*answers: Any) -> list[np.ndarray]:
    """Return several label sets of the same samples as signs over the same labels."""
    if not any(is_sets(answer) for answer in answers):
        return [LabelSpace.recognise(answer).signs(answer) for answer in answers]
    rows = [label_rows(answer) for answer in answers]
    names = {name for answer in rows for labels in answer if labels is not None for name in labels}
    space = LabelSpace("sets", np.array(list(names), dtype=object), set)
    return [space.signs(answer) for answer in rows]


def surely_sets(answer: Any) -> Any:
    """Convert the collections of a prediction to sets.

    Estimators predict a list only if they were fitted to sets, so lists of the labels 0 and 1 in it are
    not rows of an indicator.
    """
    return [frozenset(row) for row in answer] if isinstance(answer, list) else answer


def container_of(rows: Sequence[Any]) -> type:
    """Return the kind of collection for predictions: that of the first known row."""
    kind = next(type(row) for row in rows if row is not None)
    return kind if kind in CONTAINERS else set


def sorted_names(rows: Sequence[Any]) -> np.ndarray:
    """Return all names of a sequence of label collections, sorted."""
    names = {name for labels in rows if labels is not None for name in labels}
    if not names:
        raise ValueError("y has no labels: every set is empty; at least one label is needed.")
    if any(is_missing(name) for name in names):
        raise ValueError(
            "y has a set with a missing label (None or NaN); remove the label, or write None in place of the "
            "set if the labels of the sample are unknown."
        )
    try:
        ordered = sorted(names)
    except TypeError:
        ordered = sorted(names, key=lambda name: (type(name).__name__, str(name)))
    array = np.empty(len(ordered), dtype=object)
    array[:] = ordered
    return array


def _library(frame: nw.DataFrame[Any]) -> str:
    return str(frame.implementation.value)


def matrix_of(y: Any) -> np.ndarray:
    """Return labels of an array, sparse matrix, frame or nested lists as one array; NaN if missing."""
    if sp.issparse(y):
        return np.asarray(y.toarray())
    frame = nw.from_native(y, eager_only=True, pass_through=True)
    values = frame_values(frame) if isinstance(frame, nw.DataFrame) else np.asarray(y)
    if values.dtype != object:
        return values
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return values


def frame_values(frame: Any) -> np.ndarray:
    """Return the columns of a frame as one matrix; nulls become NaN."""
    columns = []
    for k in range(frame.shape[1]):
        column = frame[:, k]  # by position: pandas columns may have numbers as names
        if column.null_count():
            column = column.cast(nw.Float64)
        columns.append(np.asarray(column.to_numpy()))
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def _codes(classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    codes = np.searchsorted(classes, y)
    unknown = np.flatnonzero(classes[np.minimum(codes, len(classes) - 1)] != y)
    if unknown.size:
        raise ValueError(f"y[{unknown[0]}] is {y[unknown[0]]!r}, a class that was not seen in fit.")
    return codes


def _column(column: Mapping[Any, int], name: Any, i: int) -> int:
    """Return the column of a label of sample i."""
    if name not in column:
        raise ValueError(f"y[{i}] holds the label {name!r}, which was not seen in fit.")
    return column[name]


def _is_indicator(values: np.ndarray) -> bool:
    if values.dtype.kind not in "buif":
        return False
    if values.dtype.kind == "f":
        known = values[~np.isnan(values)]
        on = known == 1
        return bool((on | (known == 0)).all() or (on | (known == -1)).all())
    least, most = values.min(initial=1), values.max(initial=0)
    return bool(most <= 1 and (least >= 0 or (least == -1 and values.all())))


def _has_minus_one(values: np.ndarray) -> bool:
    if values.dtype.kind == "i":
        return bool(values.min(initial=0) < 0)
    return values.dtype.kind == "f" and bool((values == -1).any())


def _signs_of_sparse(y: Any) -> np.ndarray:
    """Return the signs of a sparse matrix of 0/1, 0 for NaN."""
    y = sp.csr_array(y)
    y.sum_duplicates()
    known = ~np.isnan(y.data) if y.dtype.kind == "f" else np.ones(y.data.size, bool)
    if not np.isin(y.data[known], (0, 1)).all():
        raise ValueError("y is sparse and has values other than 0 and 1; pass a binary indicator.")
    signs = np.full(y.shape, -1, np.int8)
    rows = np.repeat(np.arange(y.shape[0]), np.diff(y.indptr))
    signs[rows, y.indices] = np.where(known, np.where(y.data == 1, 1, -1), 0)
    return signs


def signs_of_dense(values: np.ndarray) -> np.ndarray:
    """Return the signs of a matrix of 0/1 or -1/+1, 0 for NaN."""
    kind = "objects" if values.dtype == object else str(values.dtype)
    if values.dtype == object:
        values = matrix_of(values)
    if values.dtype.kind not in "buif":
        raise ValueError(f"y is a matrix of {kind}; pass 0/1 or -1/+1, with NaN for unknown.")
    if not _is_indicator(values):
        bad = values[~np.isin(values, (-1, 0, 1))]
        bad = bad[~np.isnan(bad)] if bad.dtype.kind == "f" else bad
        what = f"it holds {bad.flat[0]}" if bad.size else "it mixes -1, 0 and 1"
        raise ValueError(
            f"y must be a binary indicator of 0/1 or of -1/+1 (NaN for an unknown entry); {what}."
        )
    signs = np.equal(values, 1, order="C").view(np.int8)
    signs *= 2
    signs -= 1
    if values.dtype.kind == "f":
        signs[np.isnan(values)] = 0
    return signs
