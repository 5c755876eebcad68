"""One example at a time, as dictionaries: `StreamRanker`."""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from maxmargin.core.state import Numbered, Sizes, State, part
from maxmargin.ranking.estimator import LabelRanker, choose_labels, descending, learn_rows, score_rows

if TYPE_CHECKING:
    Classifier: Any = object
else:
    try:  # if River is installed, `StreamRanker` is one of its classifiers
        from river.base import Classifier
    except ImportError:
        Classifier = object


def _check_width(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that the ranker takes rows of varying width, and that all its columns have names."""
    width = state["ranker"].n_features
    if width is None:
        raise ValueError("its ranker accepts rows of one width only")
    if width == "grow" and sizes.get("n_features", 0) > max(len(state["columns"]), 1):
        raise ValueError("its ranker has columns without a name")


class StreamRanker(Classifier):
    """A `LabelRanker` with the `learn_one` and `predict_one` of River.

    If River is installed, this is a `river.base.Classifier` for River's pipelines, metrics and
    `progressive_val_score`; it also works without River.

    Features have names, and new names may occur at any time. A text value stands for the feature "name=text"
    with the value 1. With ``n_features="grow"`` every new name gets a new column; with an integer, names are
    hashed to that many columns (a collision keeps the larger value, so that presence stays presence). For
    whole chunks of rows, `LabelRanker.partial_fit` is far faster.

    Parameters
    ----------
    ranker : LabelRanker, default=None
        The ranker to train, with `n_features` set; None means ``LabelRanker(n_features="grow")``.

    Examples
    --------
    >>> from maxmargin import StreamRanker
    >>> model = StreamRanker()
    >>> _ = model.learn_one({"goal": 1, "match": 1}, "sports")
    >>> _ = model.learn_one({"flight": 1, "hotel": 1}, "travel")
    >>> model.predict_one({"hotel": 1})
    'travel'
    >>> model.rank_one({"match": 1, "beach": 1})
    ['sports', 'travel']
    """

    STATE: ClassVar[State] = State({"ranker": part("LabelRanker"), "columns": Numbered()}, _check_width)

    def __init__(self, ranker: LabelRanker | None = None) -> None:
        self.ranker = LabelRanker(n_features="grow") if ranker is None else ranker
        if self.ranker.n_features is None:
            raise ValueError(
                'ranker needs n_features="grow" or the width of a hashed space, because new names may occur.'
            )
        self.columns: dict[Hashable, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    def clone(
        self, new_params: Mapping[str, Any] | None = None, include_attributes: bool = False
    ) -> StreamRanker:
        """Return an untrained ranker with the same parameters, as River clones.

        Parameters
        ----------
        new_params : mapping, default=None
            ``{"ranker": LabelRanker(...)}`` to clone with another ranker.
        include_attributes : bool, default=False
            Whether to copy what was learnt, too.
        """
        if include_attributes:
            return copy.deepcopy(self)
        return type(self)(clone((new_params or {}).get("ranker", self.ranker)))

    def _row(self, x: Mapping[Hashable, float | str], learn: bool) -> Any:
        """Return x as one CSR row; a prediction leaves out unknown names."""
        width: Any = self.ranker.n_features
        values: dict[int, float] = {}
        numbers: dict[Hashable, float] = {}
        for name, given in x.items():
            if isinstance(given, str):
                numbers[f"{name}={given}"] = 1.0
            else:
                numbers[name] = given
        # Sorted, so that sums do not depend on the order of the dictionary.
        for name, value in sorted(numbers.items(), key=lambda item: str(item[0])):
            if width == "grow":
                column = self.columns.setdefault(name, len(self.columns)) if learn else self.columns.get(name)
            else:
                column = zlib.crc32(repr(name).encode()) % width
            if not math.isfinite(value):
                raise ValueError(f"x[{name!r}] is {value}; every value must be a finite number.")
            if column is not None and abs(value) > abs(values.get(column, 0.0)):
                values[column] = value
        indices = np.array(sorted(values), dtype=np.int32)
        data = np.array([values[j] for j in indices.tolist()], dtype=np.float64)
        n_columns = max(len(self.columns), 1) if width == "grow" else width
        return sp.csr_array((data, indices, np.array([0, len(indices)], np.int32)), shape=(1, n_columns))

    def learn_one(self, x: Mapping[Hashable, float | str], y: Any) -> StreamRanker:
        """Predict and update; y is a label, or a set of labels if the first y was one."""
        row = self._row(x, learn=True)
        if hasattr(self.ranker, "classes_"):
            learn_rows(self.ranker, row, [y])
        else:
            self.ranker.partial_fit(row, [y])
        return self

    def predict_one(self, x: Mapping[Hashable, float | str], **more: Any) -> Any:
        """Return the most relevant label (or the set of relevant ones); None before the first example."""
        if not hasattr(self.ranker, "classes_"):
            return None
        answer = choose_labels(self.ranker, self._scores(x))[0]
        return answer.item() if isinstance(answer, np.generic) else answer

    def rank_one(self, x: Mapping[Hashable, float | str]) -> list[Any]:
        """Return all known labels, from the most to the least relevant."""
        if not hasattr(self.ranker, "classes_"):
            return []
        return self.ranker.classes_[descending(self._scores(x))[0]].tolist()

    def _scores(self, x: Mapping[Hashable, float | str]) -> np.ndarray:
        return score_rows(self.ranker, self._row(x, learn=False))
