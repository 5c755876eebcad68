"""Which classes and functions a model file may name, and what a restored model must satisfy."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin._names import ESTIMATORS
from maxmargin.io.model_errors import ModelFileError

# Parts of fitted estimators: plain carriers of values.
_PARTS = {
    "EntropyState": "maxmargin.ranking.state",
    "GrowingLabels": "maxmargin.ranking.labels",
    "Kernel": "maxmargin.core.kernels",
    "LabelSpace": "maxmargin.edge.labels",
    "SquaredState": "maxmargin.ranking.state",
    "SequenceLabels": "maxmargin.edge.groups",
}
# What a model is commonly put behind in a Pipeline.
_SCIKIT_LEARN = {
    "CountVectorizer": "sklearn.feature_extraction.text",
    "MaxAbsScaler": "sklearn.preprocessing",
    "MinMaxScaler": "sklearn.preprocessing",
    "Normalizer": "sklearn.preprocessing",
    "Pipeline": "sklearn.pipeline",
    "RobustScaler": "sklearn.preprocessing",
    "StandardScaler": "sklearn.preprocessing",
    "TfidfTransformer": "sklearn.feature_extraction.text",
    "TfidfVectorizer": "sklearn.feature_extraction.text",
}
_FUNCTIONS = {"from_labels": "maxmargin.priors", "identity": "maxmargin.priors"}
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (set, frozenset, list, tuple, str, int, float, bool, np.ndarray, sp.csr_array, sp.csr_matrix)
} | {f"numpy.{kind.__name__}": kind for kind in (np.float32, np.float64, np.int32, np.int64)}


def class_name(cls: type) -> str | None:
    """The name under which a file refers to a class, None if it may not."""
    for prefix, table in (("", ESTIMATORS), ("part.", _PARTS), ("sklearn.", _SCIKIT_LEARN)):
        if cls.__name__ in table and _find(table[cls.__name__], cls.__name__) is cls:
            return prefix + cls.__name__
    return None


def find_class(name: str) -> Any:
    """The class that a file names."""
    prefix, _, last = name.rpartition(".")
    table = {"": ESTIMATORS, "part": _PARTS, "sklearn": _SCIKIT_LEARN}.get(prefix, {})
    if last not in table:
        raise ModelFileError(f"it names the class {name[:80]!r}, which a model file may not hold")
    return _find(table[last], last)


def function_name(function: Any) -> str | None:
    """The name under which a file refers to a function, None if it may not."""
    name = getattr(function, "__name__", "")
    if name in _FUNCTIONS and _find(_FUNCTIONS[name], name) is function:
        return name
    return None


def find_function(name: str) -> Any:
    """The function that a file names."""
    if name not in _FUNCTIONS:
        raise ModelFileError(f"it names the function {name[:80]!r}, which a model file may not hold")
    return _find(_FUNCTIONS[name], name)


def type_name(kind: type) -> str | None:
    """The name under which a file refers to a plain type, None if it may not."""
    return next((name for name, known in _TYPES.items() if known is kind), None)


def find_type(name: str) -> type:
    """The plain type that a file names."""
    if name not in _TYPES:
        raise ModelFileError(f"it names the type {name[:80]!r}, which a model file may not hold")
    return _TYPES[name]


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def restore(cls: Any, state: dict[str, Any]) -> Any:
    """An object of an allowed class with the given attributes; runs none of its code."""
    fields = getattr(cls, "__dataclass_fields__", {})
    for key in state:
        if hasattr(cls, key) and key not in fields:
            raise ModelFileError(f"it sets {key[:80]!r} of {cls.__name__}, which is not a value")
    restored = cls.__new__(cls)
    restored.__dict__.update(state)
    return restored
