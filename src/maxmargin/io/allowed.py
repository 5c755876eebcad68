"""What a model file may name, and what a restored model must satisfy.

The compiled loops trust the sizes of a fitted model's arrays, so a file must not be able to
break them. What goes through numpy alone is checked there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin._names import ESTIMATORS


class ModelFileError(ValueError):
    """A file is not a model that can be loaded, or a model cannot be put into a file."""


# Parts of fitted estimators: plain carriers of values.
_PARTS = {
    "EntropyState": "maxmargin.ranking.entropy",
    "GrowingLabels": "maxmargin.ranking.labels",
    "Kernel": "maxmargin.core.kernels",
    "LabelSpace": "maxmargin.edge.labels",
    "SequenceLabels": "maxmargin.edge.groups",
    "SquaredState": "maxmargin.ranking.problem",
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
    """An object of an allowed class with the given attributes, checked; runs none of its code."""
    fields = getattr(cls, "__dataclass_fields__", {})
    for key in state:
        if hasattr(cls, key) and key not in fields:
            raise ModelFileError(f"it sets {key[:80]!r} of {cls.__name__}, which is not a value")
    restored = cls.__new__(cls)
    restored.__dict__.update(state)
    rule = _RULES.get(cls.__name__)
    if rule is not None:
        rule(state)
    return restored


def _latent(state: dict[str, Any]) -> None:
    if "coef_" in state:
        K = _vector(state, "classes_")
        _shape(state, "coef_", (K, _whole(state, "n_features_in_")))
        _shape(state, "intercept_", (K,))
        if not isinstance(state.get("_groups_of_one"), bool):
            raise ModelFileError("it does not say whether its samples are single rows")


def _chain(state: dict[str, Any]) -> None:
    _latent(state)
    if "coef_" in state:
        K = _vector(state, "classes_")
        _shape(state, "transitions_", (K, K))
        _shape(state, "first_", (K,))
        _shape(state, "last_", (K,))


def _submodular(state: dict[str, Any]) -> None:
    if "coef_" not in state:
        return
    V = len(state["intercept_"])
    _shape(state, "intercept_", (V,))
    _shape(state, "coef_", (V, _whole(state, "n_features_in_")))
    _shape(state, "interaction_", (V, V))
    if not (np.isfinite(state["interaction_"]).all() and (state["interaction_"] >= 0).all()):
        raise ModelFileError("its interaction_ holds something else than attractions")


def _ranker(state: dict[str, Any]) -> None:
    if "_state" not in state:
        return
    learnt = vars(state["_state"])
    labels = _vector(state, "classes_")
    if _whole(learnt, "n_labels") != labels or len(state["_labels"].index) != labels:
        raise ModelFileError("its labels and its weights differ in number")


def _ranking_state(state: dict[str, Any]) -> None:
    """Slots point into the weights, and the weights have room for every label."""
    columns, labels = _whole(state, "used"), _whole(state, "n_labels")
    slots = state["slots"]
    if not isinstance(slots, np.ndarray) or slots.dtype != np.int32:
        raise ModelFileError("its slots are not whole numbers")
    _shape(state, "slots", (_whole(state, "n_features"),))
    if slots.size and not (slots.min() >= -1 and slots.max() < columns):
        raise ModelFileError("its slots point beyond its weights")
    _shape(state, "threshold", (3,))
    if "counts" in state:
        _shape(state, "counts", (_whole(state, "n_features") if state.get("rarity") else 0,))
        if state["counts"].dtype != np.int64 or not (state["counts"] >= 0).all():
            raise ModelFileError("its counts are not whole numbers")
        _whole(state, "counted")
    names = ("W",) if "W" in state else ("theta", "v")
    room = state[names[0]].shape
    if len(room) != 2 or room[0] < columns or room[1] < labels:
        raise ModelFileError("its weights have no room for its labels")
    for name in names[1:] + (("weighted",) if state.get("average") else ()):
        _shape(state, name, room)
    if "theta" in state:
        for name in ("c", "z", "slack"):
            _shape(state, name, room[1:])


_RULES: dict[str, Callable[[dict[str, Any]], None]] = {
    "ChainSVC": _chain,
    "EntropyState": _ranking_state,
    "LabelRanker": _ranker,
    "LatentSVC": _latent,
    "SquaredState": _ranking_state,
    "SubmodularSVC": _submodular,
}


def _vector(state: dict[str, Any], name: str) -> int:
    value = state[name]
    if not isinstance(value, np.ndarray) or value.ndim != 1:
        raise ModelFileError(f"its {name} is not a vector")
    return len(value)


def _whole(state: dict[str, Any], name: str) -> int:
    value = state[name]
    if type(value) is not int or value < 0:
        raise ModelFileError(f"its {name} is not a whole number")
    return value


def _shape(state: dict[str, Any], name: str, shape: tuple[int, ...]) -> None:
    value = state[name]
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype.kind not in "biuf":
        raise ModelFileError(f"its {name} is not an array of numbers of shape {shape}")
