"""The label edge: words outside, signs inside.

`LabelSpace.read` takes the labels in whatever kind the user has them, and answers with a
matrix of signs (int8, N x L): +1 the label is on, -1 it is off, 0 it is not known. The
space remembers the kind and gives predictions back in it; each kind is one class below. A row of
sets that is None (or NaN, as frames have it) is a sample whose labels are not known.

| given to fit                                   | kind         | predict answers                 |
|------------------------------------------------|--------------|---------------------------------|
| array of 0/1, booleans, NaN for unknown        | "indicator"  | array of 0/1 of the same dtype  |
| array of -1/+1, NaN for unknown                | "sign"       | array of -1/+1                  |
| scipy sparse matrix or array of 0/1            | "sparse"     | the same kind of CSR            |
| pandas or polars frame of such columns         | "frame"      | the same kind of frame          |
| list, array or Series of sets, lists or tuples  | "sets"       | list of the same containers     |
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
# How many names a warning shows.
SHOWN = 5
UNKNOWN = (
    "y has unknown entries (None or NaN), which need dense dual variables; use loss='hamming' with a larger "
    "memory_limit, give the entries a value, or leave their samples out."
)


class Indicator:
    """Arrays of 0/1, NaN for unknown."""

    @staticmethod
    def signs(space: LabelSpace, y: Any) -> np.ndarray:
        values = np.asarray(y)
        if values.shape[1] != len(space.classes):
            raise ValueError(f"y has {values.shape[1]} label columns, but {len(space.classes)} were fitted.")
        return signs_of_dense(values)

    @staticmethod
    def answer(space: LabelSpace, on: np.ndarray, like: Any) -> Any:
        return on.astype(space.dtype)


class Sign(Indicator):
    """Arrays of -1/+1, NaN for unknown."""

    @staticmethod
    def answer(space: LabelSpace, on: np.ndarray, like: Any) -> Any:
        return np.where(on, 1, -1).astype(space.dtype)


class Sparse:
    """SciPy matrices and arrays of 0/1."""

    @staticmethod
    def signs(space: LabelSpace, y: Any) -> np.ndarray:
        y = sp.csr_array(y)
        y.sum_duplicates()
        known = ~np.isnan(y.data) if y.dtype.kind == "f" else np.ones(y.data.size, bool)
        if not np.isin(y.data[known], (0, 1)).all():
            raise ValueError("y is sparse and holds values other than 0 and 1; pass a binary indicator.")
        signs = np.full(y.shape, -1, np.int8)
        rows = np.repeat(np.arange(y.shape[0]), np.diff(y.indptr))
        signs[rows, y.indices] = np.where(known, np.where(y.data == 1, 1, -1), 0)
        return signs

    @staticmethod
    def answer(space: LabelSpace, on: np.ndarray, like: Any) -> Any:
        return space.container(on.astype(space.dtype))


class Frame:
    """Frames of pandas, polars and others that narwhals knows, one column per label."""

    @staticmethod
    def signs(space: LabelSpace, y: Any) -> np.ndarray:
        return Indicator.signs(space, frame_values(nw.from_native(y, eager_only=True)))

    @staticmethod
    def answer(space: LabelSpace, on: np.ndarray, like: Any) -> Any:
        values = np.where(on, 1, -1 if space.dtype == "sign" else 0)
        data = {name: values[:, k] for k, name in enumerate(space.classes)}
        try:
            native = nw.from_dict(data, backend=space.container).to_native()
        except ImportError as error:
            raise ImportError(
                f"The labels given to fit were a {space.container} frame, and so are predictions; install "
                f"{space.container}."
            ) from error
        index = getattr(like, "index", None)
        if space.container == "pandas" and index is not None and len(index) == len(native):
            native.index = index
        return native


def _column(column: Mapping[Any, int], name: Any, i: int) -> int:
    """The column of a label of sample i."""
    if name not in column:
        raise ValueError(f"y[{i}] holds the label {name!r}, which was not seen in fit.")
    return column[name]


class Sets:
    """Sequences of sets, lists or tuples of names."""

    @staticmethod
    def signs(space: LabelSpace, y: Any) -> np.ndarray:
        rows = label_rows(y)
        column = {name: k for k, name in enumerate(space.classes)}
        signs = np.full((len(rows), len(space.classes)), -1, np.int8)
        for i, labels in enumerate(rows):
            if labels is None:
                signs[i] = 0
                continue
            for name in labels:
                signs[i, _column(column, name, i)] = 1
        return signs

    @staticmethod
    def answer(space: LabelSpace, on: np.ndarray, like: Any) -> Any:
        return [space.container(space.classes[row].tolist()) for row in on]


class Binary:
    """Vectors of two classes: one column, on for the second class."""

    @staticmethod
    def signs(space: LabelSpace, y: Any) -> np.ndarray:
        codes = _codes(space.classes, column_or_1d(np.asarray(y)))
        return np.where(codes == 1, 1, -1).astype(np.int8)[:, None]

    @staticmethod
    def answer(space: LabelSpace, on: np.ndarray, like: Any) -> Any:
        return space.classes[on[:, 0].astype(int)]


class MultiClass:
    """Vectors of more classes, or of one: one column per class."""

    @staticmethod
    def signs(space: LabelSpace, y: Any) -> np.ndarray:
        codes = _codes(space.classes, column_or_1d(np.asarray(y)))
        signs = np.full((len(codes), len(space.classes)), -1, np.int8)
        signs[np.arange(len(codes)), codes] = 1
        return signs

    @staticmethod
    def answer(space: LabelSpace, on: np.ndarray, like: Any) -> Any:
        return space.classes[np.argmax(on, axis=1)]


KINDS: dict[str, Any] = {
    "indicator": Indicator,
    "sign": Sign,
    "sparse": Sparse,
    "frame": Frame,
    "sets": Sets,
    "binary": Binary,
    "multiclass": MultiClass,
}


# Libraries whose frames a model file may name.
FRAMES = ("pandas", "polars", "pyarrow")
# Kinds of labels, the containers that answer in them, and the sorts of dtype.
FORMS: dict[str, tuple[tuple[Any, ...], str]] = {
    "indicator": ((None,), "biuf"),
    "sign": ((None,), "iuf"),
    "sparse": ((sp.csr_array, sp.csr_matrix), "iu"),
    "sets": (CONTAINERS, ""),
    "binary": ((None,), "biufUO"),
    "multiclass": ((None,), "biufUO"),
}


def _check_form(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: container and dtype are those of the kind, which says how many columns there are."""
    kind, container, dtype = state["kind"], state["container"], state["dtype"]
    sizes.fix("n_columns", 1 if kind == "binary" else sizes["n_classes"])
    if kind == "frame":
        names = state["classes"].tolist()
        known = isinstance(dtype, str) and dtype in ("sign", "indicator")
        if container not in FRAMES or not known:
            raise ValueError("a frame that answers was expected")
        if len(set(names)) < len(names) or not all(isinstance(name, (str, int)) for name in names):
            raise ValueError("columns of a frame were expected that differ by name")
        if container != "pandas" and not all(isinstance(name, str) for name in names):
            raise ValueError("columns of a frame were expected that have names")
        return
    containers, sorts = FORMS[kind]
    if not any(container is one for one in containers):
        raise ValueError(f"labels of the kind {kind} do not come in {container!r}")
    if dtype.kind not in sorts if isinstance(dtype, np.dtype) else dtype is not None or sorts:
        raise ValueError(f"labels of the kind {kind} do not have the dtype {dtype!r}")


def check_same(classes: np.ndarray, known: np.ndarray) -> None:
    """A rule for models: the public names of the labels are those that answers come in."""
    if classes.dtype != known.dtype or not np.array_equal(classes, known):
        raise ValueError("its classes_ are other names than it answers with")


def check_answers(space: LabelSpace, classes: np.ndarray) -> None:
    """A rule for models: the names of the labels are the same everywhere, and two classes are two."""
    check_same(classes, space.classes)
    if space.kind == "binary" and len(space.classes) != 2:
        raise ValueError(f"it has two classes, but {len(space.classes)} names for them")


@dataclass(frozen=True)
class LabelSpace:
    """The labels known to a fitted estimator and the kind in which they were given.

    `container` is the class of an answer (sets, sparse rows), or the name of the library of a frame.
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
        _check_form,
    )

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Pickles of earlier versions hold an empty frame where the name of its library stands now."""
        self.__dict__.update(state)
        if isinstance(self.container, nw.DataFrame):
            self.__dict__["container"] = _library(self.container)

    @classmethod
    def read(cls, y: Any) -> tuple[LabelSpace, np.ndarray]:
        """Learn the label space of `y` and return it with the matrix of signs."""
        space = cls.recognise(y)
        return space, space.signs(y)

    @classmethod
    def recognise(cls, y: Any) -> LabelSpace:
        """The space of labels given in any of the kinds, of which there must be one."""
        space = cls._recognise(y)
        if not len(space.classes) and not space.single_label:
            raise ValueError("y has no labels: it has no columns; pass a column for every label.")
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
        """Name of every column: for two classes that of the second."""
        return self.classes[1:] if self.kind == "binary" else self.classes

    @property
    def n_columns(self) -> int:
        """Number of label columns inside: one for two classes, else one per class or label."""
        return 1 if self.kind == "binary" else len(self.classes)

    @property
    def single_label(self) -> bool:
        """Whether each sample has exactly one class."""
        return self.kind in ("binary", "multiclass")

    def signs(self, y: Any) -> np.ndarray:
        """Encode labels of the kind seen by `fit` as an int8 matrix of +1, -1 and 0 (unknown)."""
        return KINDS[self.kind].signs(self, y)

    def positives(self, y: Any) -> sp.csr_array:
        """Which labels are on, as sparse rows of booleans; of sparse y and of sets nothing else is made."""
        if self.kind == "sparse":
            on = sp.csr_array(y, copy=True)
            on.sum_duplicates()
            if not np.isin(on.data, (0, 1)).all():
                raise ValueError(
                    "y is sparse and holds values other than 0 and 1 (a pair given twice counts twice); pass "
                    "a binary indicator without unknown entries."
                )
            on.eliminate_zeros()
            return sp.csr_array((np.ones(on.nnz, bool), on.indices, on.indptr), shape=on.shape)
        if self.kind == "sets":
            column = {name: k for k, name in enumerate(self.classes.tolist())}
            told = label_rows(y)
            if None in told:
                raise ValueError(UNKNOWN)
            rows = [sorted({_column(column, name, i) for name in labels}) for i, labels in enumerate(told)]
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
        """Give a boolean N x L matrix of predictions back in the kind given to fit.

        The matrix may be sparse rows, which stay sparse for the kinds "sparse" and "sets".

        `like` is the X of the prediction; a pandas frame lends its index to the answer.
        """
        if sp.issparse(on) and self.kind == "sparse":
            return self.container(on.astype(self.dtype))
        if sp.issparse(on) and self.kind == "sets":
            rows = np.split(on.indices, on.indptr[1:-1])
            return [self.container(self.classes[row].tolist()) for row in rows]
        return KINDS[self.kind].answer(self, on.toarray() if sp.issparse(on) else on, like)

    def scores(self, decision: np.ndarray) -> np.ndarray:
        """Shape a decision matrix as scikit-learn expects: a vector for two classes."""
        return decision[:, 0] if self.kind == "binary" else decision

    def choose(self, decision: np.ndarray) -> np.ndarray:
        """Turn scores (N x L) into a boolean matrix: positive labels, or the best class."""
        if self.kind == "multiclass":
            on = np.zeros(decision.shape, bool)
            on[np.arange(len(decision)), np.argmax(decision, axis=1)] = True
            return on
        return decision > 0


class LabelClassifier(ClassifierMixin):
    """A classifier whose y may be of any kind, with scikit-learn's meaning of `score`."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of samples whose labels are all right: subset accuracy, or accuracy for classes.

        Unknown entries of y (NaN) are left out, and so are samples without a known entry.
        `maxmargin.metrics.scorer` has other measures.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : the true labels, in the kind that `fit` was given
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
        right = np.all((truth == chosen) | ~known, axis=1)
        rows, weight = with_known(known, sample_weight, "y")
        return float(np.average(right[rows], weights=weight))


def with_known(known: np.ndarray, sample_weight: Any, name: str) -> tuple[np.ndarray, Any]:
    """The samples that have a known entry, and their weights."""
    rows = np.asarray(known.any(axis=1))
    if not rows.any():
        raise ValueError(
            f"{name} has no known entry, so there is nothing to measure; leave such samples out."
        )
    return rows, None if sample_weight is None else np.asarray(sample_weight, dtype=float)[rows]


def constant_labels(signs: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which labels lack a side among the entries of positive weight, and which of all are ever on."""
    counted = signs if np.all(weight > 0) else signs * (weight > 0)
    on, off = counted.max(axis=0, initial=0) > 0, counted.min(axis=0, initial=0) < 0
    return np.logical_not(on & off), np.asarray(on)


def warn_of_constants(names: np.ndarray, constant: np.ndarray) -> None:
    """Say which labels are constant, if any."""
    if constant.any():
        shown = ", ".join(repr(name) for name in names[constant][:SHOWN].tolist())
        more = " and others" if constant.sum() > SHOWN else ""
        warn(f"Label {shown}{more} is constant in y; its constant is predicted.")


def is_sets(y: Any, *, expected: bool = False) -> bool:
    """Whether y is a sequence of label collections (as opposed to a matrix of numbers).

    Where these are `expected`, lists of numbers are collections whatever the numbers.
    """
    rows = _entries(y)
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return False
    first = next((row for row in rows if not is_missing(row)), None)
    if rows is not y and not isinstance(first, CONTAINERS):
        return False
    told = [row for row in rows if not is_missing(row)]
    if not all(isinstance(row, CONTAINERS) for row in told):
        return any(isinstance(row, (set, frozenset)) for row in told)
    if not told or rows is not y:  # a vector of objects holds collections, never rows of a matrix
        return bool(told)
    if expected or len(told) < len(rows) or any(isinstance(row, (set, frozenset)) for row in told):
        return True
    entries = [entry for row in told for entry in row]
    if len({len(row) for row in told}) > 1:
        return True
    if not all(isinstance(entry, NUMBERS) or is_missing(entry) for entry in entries):
        return True
    # Rows of equal length holding only 0, 1, -1 or what is missing are an indicator written as lists. Other
    # whole numbers are labels, unless a row says one twice; a wrong entry of a matrix is better called that.
    if all(is_missing(entry) or entry in (-1, 0, 1) for entry in entries):
        return not entries
    whole = all(isinstance(entry, (int, np.integer)) for entry in entries)
    return whole and all(len(set(row)) == len(row) for row in told)


def label_rows(y: Any) -> list[Any]:
    """The collections of a y of sets, None for a row whose labels are not known."""
    given = _entries(y)
    if given is None or isinstance(given, str):
        raise ValueError(
            f"y should be a sequence of sets, lists or tuples of labels. Got {type(y).__name__} instead."
        )
    rows = [None if is_missing(row) else row for row in given]
    for i, row in enumerate(rows):
        if row is not None and not isinstance(row, CONTAINERS):
            raise ValueError(
                f"y[{i}] is {row!r}, and other rows are collections of labels; write [{row!r}], or None "
                "where the labels are not known."
            )
    return rows


def _entries(y: Any) -> Any:
    """The entries of a vector of objects or of a column of a frame; anything else as it is."""
    if isinstance(y, np.ndarray):
        return y.tolist() if y.ndim == 1 and y.dtype == object else None
    if isinstance(y, Sequence):
        return y
    series = nw.from_native(y, series_only=True, pass_through=True)
    if isinstance(series, nw.Series) and series.dtype in (nw.List, nw.Array, nw.Object, nw.Unknown):
        # Lists of pyarrow and polars come as arrays from some versions.
        return [row.tolist() if isinstance(row, np.ndarray) else row for row in series.to_list()]
    return None


def signs_alike(*answers: Any) -> list[np.ndarray]:
    """Label sets of the same samples, of any kind, as signs over the same labels."""
    if not any(is_sets(answer) for answer in answers):
        return [LabelSpace.recognise(answer).signs(answer) for answer in answers]
    rows = [label_rows(answer) for answer in answers]
    names = {name for answer in rows for labels in answer if labels is not None for name in labels}
    space = LabelSpace("sets", np.array(list(names), dtype=object), set)
    return [space.signs(answer) for answer in rows]


def surely_sets(answer: Any) -> Any:
    """A prediction whose collections are sets: lists of the labels 0 and 1 are no rows of an indicator.

    Estimators answer with a list where they were fitted to sets, and only there.
    """
    return [frozenset(row) for row in answer] if isinstance(answer, list) else answer


def container_of(rows: Sequence[Any]) -> type:
    """The kind of collection that predictions come in: that of the first one."""
    kind = next(type(row) for row in rows if row is not None)
    return kind if kind in CONTAINERS else set


def sorted_names(rows: Sequence[Any]) -> np.ndarray:
    """All names of a sequence of label collections, in order."""
    names = {name for labels in rows if labels is not None for name in labels}
    if not names:
        raise ValueError("y holds no label at all; every set is empty.")
    if any(is_missing(name) for name in names):
        raise ValueError(
            "y holds a set with a label that is missing (None or NaN); leave it out of the set, or write "
            "None in place of the set where the labels of the sample are not known."
        )
    try:
        ordered = sorted(names)
    except TypeError:
        ordered = sorted(names, key=lambda name: (type(name).__name__, str(name)))
    array = np.empty(len(ordered), dtype=object)
    array[:] = ordered
    return array


def _library(frame: nw.DataFrame[Any]) -> str:
    """The name of the library that a frame is of."""
    return str(frame.implementation.value)


def matrix_of(y: Any) -> np.ndarray:
    """Labels of an array, a sparse matrix, a frame or nested lists as one array; what is missing is NaN."""
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
    """Columns of a frame as one matrix; nulls become NaN."""
    columns = []
    for k in range(frame.shape[1]):
        column = frame[:, k]  # by place: pandas knows columns that are called by numbers
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


def signs_of_dense(values: np.ndarray) -> np.ndarray:
    """Signs of a matrix of 0/1 or -1/+1, 0 for NaN."""
    if values.dtype == object:
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("y is a matrix of objects; pass 0/1 or -1/+1, with NaN for unknown.") from None
    if values.dtype.kind not in "buif":
        raise ValueError(f"y is a matrix of {values.dtype}; pass 0/1 or -1/+1, with NaN for unknown.")
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
